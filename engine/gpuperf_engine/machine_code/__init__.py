"""What a GPU executes: kernels assembled by ``ptxas``, read with ``nvdisasm``, and counted without a GPU."""
