"""The CUDA runtime and driver API on a device of the engine: unmodified programs load these libraries instead of NVIDIA's"""
