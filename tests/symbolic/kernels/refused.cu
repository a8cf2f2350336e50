// Control that depends on what is not known without running every block.
#include "common.h"
#define GLOBAL (blockIdx.x * blockDim.x + threadIdx.x)
#define WHEN(condition, place) if (condition) { MIX(place); out[place] = acc; }

KERNEL(data) {
    unsigned acc = 1;
    unsigned h = GLOBAL + out[threadIdx.x & 31] + 1;
    ROLLED while (h > 1) { h = h & 1 ? 3 * h + 1 : h / 2; MIX(h); }
    WHEN(acc < (unsigned)n, 1)
    DONE;
}

KERNEL(floats) {
    unsigned acc = 1;
    WHEN((float)GLOBAL * 0.5f < (float)n, 1)
    DONE;
}

KERNEL(atomic_order) {
    unsigned acc = 1;
    WHEN(atomicAdd(out, 1u) < (unsigned)n, 1)
}

KERNEL(hashed) {
    unsigned acc = 1;
    unsigned h = GLOBAL * 2654435761u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    WHEN(h < (unsigned)n, 1)
    DONE;
}

KERNEL(block_product) {
    unsigned acc = 1;
    WHEN(blockIdx.x * blockIdx.y < (unsigned)n, 1)
    WHEN(blockIdx.x * (GLOBAL >> 2) < (unsigned)m, 2)
    DONE;
}

KERNEL(leading_zeros) {
    unsigned acc = 1;
    WHEN(__clz(GLOBAL) > (n & 31), 1)
    WHEN(__popc(blockIdx.x) == 2, 2)
    WHEN(__brev(GLOBAL) < (unsigned)m, 3)
    DONE;
}

KERNEL(local_array) {
    unsigned acc = 1, kept[8];
    ROLLED for (int j = 0; j < 8; j++) kept[j] = j * blockIdx.x;
    WHEN(kept[n & 7] < (unsigned)m, 1)
    DONE;
}

__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};

KERNEL(constant_table) {
    unsigned acc = 1;
    WHEN(table[n & 7] < (int)GLOBAL, 1)
    WHEN(table[threadIdx.x & 7] < m, 2)
    WHEN(table[blockIdx.x & 7] == 1, 3)
    DONE;
}

KERNEL(uniform_load) {
    unsigned acc = 1;
    if (GLOBAL < out[31]) out[1] = acc;
}
