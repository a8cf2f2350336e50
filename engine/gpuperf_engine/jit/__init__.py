"""The LLVM backend: programs compiled to machine code of the host, a warp as vectors of 32 lanes."""
