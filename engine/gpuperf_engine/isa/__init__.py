"""What PTX instructions are: types, the instruction table and its rows, and the primitives in which semantics are written."""
