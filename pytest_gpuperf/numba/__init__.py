"""Numba: functions of ``@cuda.jit`` as kernels of tests, and its driver, so that unchanged programs run on the engine."""
