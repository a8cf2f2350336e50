"""The definition of PTX instructions: types, the instruction table and its rows, and the primitives in which semantics are
written."""
