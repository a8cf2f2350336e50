"""Running kernels: memory, warps, grids, and the two backends ``lanes`` (NumPy) and ``native`` (LLVM).

PYTEST_DONT_REWRITE
"""
