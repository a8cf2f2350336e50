"""Histogram of bytes: each block counts in shared memory, then adds its counts to those of all."""

import numpy as np
from numba import cuda, int32

BINS = 256
THREADS = 256


@cuda.jit
def histogram_kernel(values, counts):
    own = cuda.shared.array(BINS, int32)
    own[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(own, values[i], 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, cuda.threadIdx.x, own[cuda.threadIdx.x])


def histogram(values: np.ndarray, blocks: int = 8) -> np.ndarray:
    counts = cuda.to_device(np.zeros(BINS, np.int32))
    histogram_kernel[blocks, THREADS](cuda.to_device(values), counts)
    return counts.copy_to_host()
