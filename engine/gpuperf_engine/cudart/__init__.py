"""The CUDA runtime over a device of the engine, for programs that run unchanged: their ``libcudart`` is one of ours"""
