"""SASS, the machine code of a GPU: kernels assembled by ``ptxas``, disassembled by ``nvdisasm``, and counted without a GPU."""
