"""Running totals: a scan of each block in shared memory, then the totals of the blocks before are added."""

import numpy as np
from numba import cuda, float32

THREADS = 128


@cuda.jit
def scan_kernel(values, out, totals):
    shared = cuda.shared.array(THREADS, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = values[i] if i < values.size else 0
    distance = 1
    while distance < THREADS:
        cuda.syncthreads()
        other = shared[thread - distance] if thread >= distance else float32(0)
        cuda.syncthreads()
        shared[thread] += other
        distance *= 2
    if i < values.size:
        out[i] = shared[thread]
    if thread == THREADS - 1:
        totals[cuda.blockIdx.x] = shared[thread]


@cuda.jit
def add_kernel(out, before):
    i = cuda.grid(1)
    if i < out.size:
        out[i] += before[cuda.blockIdx.x]


def running_totals(values: np.ndarray) -> np.ndarray:
    blocks = -(-values.size // THREADS)
    out = cuda.device_array(values.size, np.float32)
    totals = cuda.device_array(blocks, np.float32)
    scan_kernel[blocks, THREADS](cuda.to_device(values), out, totals)
    ends = totals.copy_to_host()
    add_kernel[blocks, THREADS](out, cuda.to_device(np.cumsum(ends, dtype=np.float32) - ends))
    return out.copy_to_host()
