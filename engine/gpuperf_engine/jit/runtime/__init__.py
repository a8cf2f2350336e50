"""Functions that generated code calls, and the compiler of the subset of Python they are written in."""
