"""Running kernels: memory, warps, grids, and the two backends ``lanes`` (NumPy) and ``native`` (LLVM)."""
