"""CuPy: its kernels that are written at launch, as kernels of tests."""
