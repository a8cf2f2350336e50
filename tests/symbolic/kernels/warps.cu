// Votes and exchanges inside a warp, barriers, calls: control that hangs on other lanes or on other functions.
#include "common.h"
#define GLOBAL (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL 0xffffffffu
#define WHEN(condition, place) if (condition) { MIX(place); out[place] = acc; }

KERNEL(votes) {
    unsigned acc = 1, mask = __ballot_sync(__activemask(), GLOBAL < (unsigned)n);
    WHEN(__any_sync(__activemask(), GLOBAL == (unsigned)m), 1)
    WHEN(__all_sync(__activemask(), GLOBAL > (unsigned)p), 2)
    WHEN(mask == ALL, 3)
    WHEN(__popc(mask) > 7, 4)
    DONE;
}

KERNEL(shuffled) {
    unsigned acc = 1;
    unsigned got = __shfl_xor_sync(__activemask(), GLOBAL, 1);
    WHEN(got < (unsigned)n, 1)
    DONE;
}

KERNEL(active) {
    unsigned acc = 1;
    if (GLOBAL < (unsigned)n) { WHEN(__popc(__activemask()) > 5, 1) }
    DONE;
}

KERNEL(counted_barrier) {
    unsigned acc = 1;
    int met = __syncthreads_count(GLOBAL < (unsigned)n);
    WHEN(met > m, 1)
    DONE;
}

KERNEL(barriers) {
    unsigned acc = 1;
    if (blockIdx.x < (unsigned)n) { MIX(3); __syncthreads(); out[1] = acc; }
    __syncthreads();
    WHEN(threadIdx.x < (unsigned)m, 2)
    __syncthreads();
    DONE;
}

KERNEL(through_shared) {
    __shared__ unsigned word;
    unsigned acc = 1;
    if (threadIdx.x == 0) word = blockIdx.x;
    __syncthreads();
    WHEN(word < (unsigned)n, 1)
    DONE;
}

__device__ __noinline__ unsigned inner(unsigned i, unsigned n) {
    unsigned acc = i;
    ROLLED for (unsigned j = 0; j < n; j++) { if (j > i) return acc; MIX(j); }
    return acc * 3;
}

KERNEL(calls) {
    unsigned acc = 1;
    if (GLOBAL < (unsigned)n) MIX(inner(GLOBAL, m));
    DONE;
}

__device__ __noinline__ int limit_of(int i, int p) { return i > p ? i - p : p; }

KERNEL(calls_decide) {
    unsigned acc = 1;
    WHEN(limit_of(GLOBAL, p) < n, 1)
    DONE;
}

__device__ __noinline__ unsigned factorial(unsigned i) { return i < 2 ? 1 : i * factorial(i - 1); }

KERNEL(recursion) {
    unsigned acc = 1;
    MIX(factorial((threadIdx.x & 3) + (n & 3)));
    DONE;
}

__device__ __noinline__ unsigned leaves(unsigned i, unsigned n) {
    if (i == n) asm volatile("exit;");
    return i + 1;
}

KERNEL(calls_in_loops) {
    unsigned acc = 1;
    ROLLED for (unsigned j = 0; j < (unsigned)(n & 63); j++) {
        if (j + (unsigned)p > GLOBAL) MIX(inner(j, m & 15));
        else acc = leaves(GLOBAL + j, m);
    }
    DONE;
}

__device__ __noinline__ unsigned deeper(unsigned i, unsigned depth) {
    if (depth == 0 || i % 5 == 0) return i;
    return deeper(i + 1, depth - 1) + 1;
}

KERNEL(recursion_by_block) {
    unsigned acc = 1;
    MIX(deeper(GLOBAL, blockIdx.x % 4 + (n & 1)));
    DONE;
}

typedef unsigned (*Function)(unsigned, unsigned);
__device__ Function functions[3] = {inner, leaves, deeper};

KERNEL(calls_by_address) {
    unsigned acc = 1;
    MIX(functions[blockIdx.x % 3](GLOBAL & 7, m & 7));
    DONE;
}
