"""What a GPU executes (SASS): kernels assembled by ``ptxas``, read with ``nvdisasm``, and counted without a GPU."""
