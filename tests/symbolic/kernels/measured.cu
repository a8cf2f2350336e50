// The kernels that the cost of counting is measured on.
#include "common.h"

WIDE(saxpy_wide) {
    unsigned acc = 1;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { MIX(i); DONE; }
}

// int, as most people write it: wraps every 4 194 304 blocks of 1 024
KERNEL(saxpy_narrow) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { MIX(i); DONE; }
}

WIDE(grid_stride) {
    unsigned acc = 1;
    long long stride = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) MIX(i);
    DONE;
}

KERNEL(stencil) {
    unsigned acc = 1;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= m) return;
    if (x > 0) MIX(x - 1);
    if (y > 0) acc ^= 0x55u * out[0];
    if (x > 0 && y > 0 && x < n - 1 && y < m - 1) {
        out[1] = acc;
    } else {
        out[2] = acc + 1;
    }
}

KERNEL(rows) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ROLLED for (int j = 0; j <= i; j++) MIX(j);
    DONE;
}

KERNEL(after) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#pragma unroll 4
    for (int j = i + 1; j < n; j++) MIX(j);
    DONE;
}

KERNEL(triple) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ROLLED for (int j = i; j < n; j++)
        ROLLED for (int k = 0; k < j; k++) MIX(k);
    DONE;
}

KERNEL(lower_triangle) {
    unsigned acc = 1;
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < n && j <= i) { MIX(i * 7 + j); DONE; }
}

KERNEL(all_pairs) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ROLLED for (int j = 0; j < n; j++) {
        int other = j;
        asm("" : "+r"(other)); // or the compiler splits the loop in two
        if (other != i) { MIX(j); out[3] = acc; }
    }
    DONE;
}

KERNEL(all_pairs_split) {
    unsigned acc = 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ROLLED for (int j = 0; j < n; j++)
        if (j != i) { MIX(j); out[3] = acc; }
    DONE;
}

// rows of a picture of width m, flattened
KERNEL(flat_picture) {
    unsigned acc = 1;
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= (unsigned)n) return;
    unsigned y = t / (unsigned)m, x = t % (unsigned)m;
    if (x > 0 && x < (unsigned)m - 1) { MIX(x); out[4] = acc; }
    if (y > 0 && y < (unsigned)p) { MIX(y); out[5] = acc; }
    DONE;
}

// constants: division arrives as a high product and a shift
KERNEL(digits) {
    unsigned acc = 1;
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x + (unsigned)p;
    if (t >= (unsigned)n) return;
    unsigned row = t / 224, column = t % 224, channel = row / 7, rest = row % 7;
    if (column == 0) { MIX(row); out[4] = acc; }
    if (rest > 3) { MIX(rest); out[5] = acc; }
    if (channel < (unsigned)m) { MIX(channel); out[6] = acc; }
    DONE;
}

// programs in groups of p rows of an m × n tile grid, as Triton's matrix multiplication does
KERNEL(swizzle) {
    unsigned acc = 1;
    int pid = blockIdx.x, in_group = p * n, group = pid / in_group, first = group * p;
    int rows = min(m - first, p);
    int row = first + (pid % in_group) % rows, column = (pid % in_group) / rows;
    if (row * 64 + (int)threadIdx.x < m * 64 - 5) { MIX(row); out[4] = acc; }
    if (column < n / 2) { MIX(column); out[5] = acc; }
    DONE;
}

KERNEL(sgemm) {
    __shared__ unsigned a[16][16], b[16][16];
    unsigned acc = 1;
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    for (int k = 0; k < p; k += 16) {
        a[threadIdx.y][threadIdx.x] = row < m && k + (int)threadIdx.x < p ? row + k : 0;
        b[threadIdx.y][threadIdx.x] = column < n && k + (int)threadIdx.y < p ? column + k : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) acc += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) DONE;
}
