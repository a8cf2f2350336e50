// Conditions on integers: quotients, remainders, shifts, masks, clamps, wraps and what is written on two paths.
#include "common.h"
#define GLOBAL (blockIdx.x * blockDim.x + threadIdx.x)
#define WHEN(condition, place) if (condition) { MIX(place); out[place] = acc; }

KERNEL(three_dimensions) {
    unsigned acc = 1;
    int x = GLOBAL, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    WHEN(x < n && y < m && z < p, 1)
    WHEN(x == y, 2)
    WHEN(y == z && x > 3, 3)
    WHEN((x + y + z) % 5 == 0, 4)
    DONE;
}

KERNEL(linear_thread) {
    unsigned acc = 1;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned id = block * blockDim.x * blockDim.y * blockDim.z + thread;
    WHEN(id < (unsigned)n, 1)
    WHEN(thread % 32 == 0, 2)
    WHEN(id % 10 == (unsigned)p, 3)
    WHEN(thread / 32 < (unsigned)m, 4)
    DONE;
}

KERNEL(signed_division) {
    unsigned acc = 1;
    int i = (int)GLOBAL - m;
    WHEN(i / 8 == p, 1)
    WHEN(i % 8 == 3, 2)
    WHEN(i / 7 > -2 && i / 7 < 2, 3)
    WHEN(i % 7 == -1, 4)
    WHEN(i / 100 * 100 == i, 5)
    WHEN(i >> 3 < n, 6)
    DONE;
}

KERNEL(divided_by_parameter) {
    unsigned acc = 1;
    int i = (int)GLOBAL - 100;
    unsigned u = GLOBAL;
    WHEN(i / n < m, 1)
    WHEN(i % n == p, 2)
    WHEN(u / (unsigned)m % 3 == 0, 3)
    WHEN(u % (unsigned)m < u / (unsigned)m, 4)
    DONE;
}

KERNEL(divided_by_block) {
    unsigned acc = 1;
    int d = (int)blockIdx.x + 1;
    WHEN(n / d > m, 1)
    WHEN((int)threadIdx.x % d == 0, 2)
    WHEN((int)threadIdx.x * d < p, 3)
    DONE;
}

KERNEL(high_bits) {
    unsigned acc = 1;
    unsigned u = GLOBAL * 2654435u + (unsigned)n;
    WHEN(u >> 29 == 3, 1)
    WHEN(__umulhi(GLOBAL, 0x10000000u) == 1, 2)
    WHEN((int)u < 0, 3)
    WHEN(__mulhi((int)GLOBAL - 5000, 1 << 24) < -1, 4)
    DONE;
}

KERNEL(shifts_and_masks) {
    unsigned acc = 1;
    unsigned u = GLOBAL;
    WHEN((u & 31) == (unsigned)p, 1)
    WHEN((u & ~63u) < (unsigned)n, 2)
    WHEN((u >> 4 & 7) == 5, 3)
    WHEN((u << 3 | 5) > (unsigned)m, 4)
    WHEN(((u & 0xff0) | 3) == 0x123, 5)
    WHEN(((blockIdx.x << 8) + threadIdx.x) >> 6 == 9, 6)
    WHEN((u & 0x80000000u) != 0, 7)
    DONE;
}

KERNEL(shifted_by_parameter) {
    unsigned acc = 1;
    unsigned u = GLOBAL;
    WHEN(u >> (p & 31) < (unsigned)n, 1)
    WHEN((u << (m & 15)) < (unsigned)n, 2)
    WHEN((1u << (threadIdx.x & 31)) > (unsigned)m, 3)
    DONE;
}

KERNEL(clamps) {
    unsigned acc = 1;
    int i = (int)GLOBAL - p, c = min(max(i, 0), n), a = abs(i - m);
    WHEN(c == 0, 1)
    WHEN(c == n, 2)
    WHEN(a < 10, 3)
    WHEN(min(i, m - i) > 20, 4)
    WHEN(max((unsigned)i, (unsigned)n) == (unsigned)n, 5)
    DONE;
}

KERNEL(wraps) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    WHEN(i - 1 < (unsigned)n, 1)
    WHEN(i - (unsigned)m < (unsigned)n, 2)
    WHEN(i + (unsigned)p < i, 3)
    WHEN((int)(i * 0x01000193u) < 0, 4)
    WHEN((int)(i + (unsigned)n) < (int)i, 5)
    WHEN((unsigned long long)i * 5 > (unsigned)n, 6)
    WHEN((long long)(int)(i + 0x7ffffff0u) < 0, 7)
    DONE;
}

KERNEL(narrow) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    WHEN((unsigned char)i < 17, 1)
    WHEN((signed char)(i + n) < -100, 2)
    WHEN((short)(i * 40) > m, 3)
    WHEN((unsigned short)(i - 3) == (unsigned short)p, 4)
    DONE;
}

WIDE(wide) {
    unsigned acc = 1;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, j = i * 3000000000ll;
    WHEN(j < n, 1)
    WHEN(i / 1000 > m, 2)
    WHEN(i % 48 == p, 3)
    WHEN((j >> 32) == 5, 4)
    WHEN((unsigned long long)(j - 1) > (unsigned long long)n, 5)
    WHEN((int)j > 7, 6)
    DONE;
}

WIDE(wide_division) {
    unsigned acc = 1;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    WHEN(i / (unsigned long long)n < 3, 1)
    WHEN(i % (unsigned long long)m == (unsigned long long)p, 2)
    DONE;
}

KERNEL(two_paths) {
    unsigned acc = 1;
    int i = GLOBAL, v;
    if (i < n) { v = i * 2; out[1] = 1; } else { v = m - i; out[2] = 2; }
    if (threadIdx.x < 5) v += 100;
    WHEN(v > p, 3)
    if (i & 1) { v = -v; out[4] = v; }
    if (i & 4) { v = 7; out[5] = v; }
    WHEN(v < 0, 6)
    ROLLED for (int j = v; j < 40; j += 9) MIX(j);
    DONE;
}

KERNEL(selected) {
    unsigned acc = 1;
    int i = GLOBAL;
    int a = i < n ? m : p, b = i % 2 ? a : i, c = b > a ? b - a : a - b;
    bool all = (i > 3) & (c < 50), any = (b == 7) | (a > n), odd = all ^ any;
    WHEN(all, 1)
    WHEN(any, 2)
    WHEN(odd, 3)
    WHEN(!all && c != 3, 4)
    DONE;
}

KERNEL(switched) {
    unsigned acc = 1;
    int i = GLOBAL;
    switch ((i >> 2) - n) {
    case 0: MIX(3); out[1] = acc; break;
    case 1: MIX(i); out[2] = acc; break;
    case 2: acc ^= 5; out[3] = acc;
    case 3: MIX(6); out[4] = acc; break;
    case 4: out[5] = i; return;
    case 5: ROLLED for (int j = 0; j < i; j++) MIX(j); break;
    case 6: MIX(31); out[6] = acc; break;
    case 7: out[7] = 8; break;
    default: MIX(1);
    }
    DONE;
}

KERNEL(switched_by_remainder) {
    unsigned acc = 1;
    ROLLED for (int j = 0; j < (n & 15); j++)
        switch ((GLOBAL + j) % 6) {
        case 0: MIX(3); out[1] = acc; break;
        case 1: MIX(4); out[2] = acc; break;
        case 2: MIX(5); out[3] = acc; break;
        case 3: MIX(6); out[4] = acc; continue;
        case 4: out[5] = j; if ((int)blockIdx.x > m) return; break;
        case 5: acc -= j; out[6] = acc; break;
        }
    DONE;
}

KERNEL(diagonals) {
    unsigned acc = 1;
    int x = GLOBAL, y = blockIdx.y * blockDim.y + threadIdx.y;
    WHEN(x + y < n, 1)
    WHEN(2 * x - 3 * y > m, 2)
    WHEN(x == y + p, 3)
    WHEN(abs(x - y) <= 2, 4)
    WHEN(7 * x + 5 * y == n, 5)
    DONE;
}

KERNEL(returns) {
    unsigned acc = 1;
    int i = GLOBAL;
    if (i < n) return;
    if (threadIdx.x == 3) return;
    if (blockIdx.x == (unsigned)m) { out[1] = 1; return; }
    MIX(i);
    if ((int)threadIdx.x >= p) return;
    DONE;
}

// tile of tiles: all quotients of one flattened index
KERNEL(unflattened) {
    unsigned acc = 1;
    unsigned t = GLOBAL, w = t % 14, h = t / 14 % 14, c = t / 196 % 6, b = t / 1176;
    if (b >= (unsigned)n) return;
    ROLLED for (unsigned r = 0; r < 3; r++)
        ROLLED for (unsigned s = 0; s < 3; s++)
            if (h + r - 1 < 14 && w + s - 1 < 14) { MIX(c); out[1] = acc; }
    DONE;
}

KERNEL(bits) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    WHEN(__popc(threadIdx.x) == 2, 1)
    WHEN(__clz(n) > 5, 2)
    WHEN((threadIdx.x ^ 5) < (unsigned)m, 3)
    WHEN(__brev(threadIdx.x) > 0x40000000u, 4)
    WHEN(__ffs(threadIdx.x) == 3, 5)
    WHEN(__byte_perm(threadIdx.x, n, 0x4321) > 9u, 6)
    WHEN(i < (unsigned)p, 7)
    DONE;
}

KERNEL(special) {
    unsigned acc = 1;
    unsigned lane, lower;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lower));
    WHEN(lane < (unsigned)n, 1)
    WHEN(__popc(lower) == m, 2)
    WHEN(gridDim.x * blockDim.x > (unsigned)p, 3)
    WHEN(blockIdx.x == gridDim.x - 1, 4)
    WHEN(threadIdx.x == blockDim.x - 1, 5)
    DONE;
}
