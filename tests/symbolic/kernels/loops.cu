// Loops of every kind: under masks, left early, nested, counted up, down, by steps and by conditions of their own.
#include "common.h"
#define GLOBAL (blockIdx.x * blockDim.x + threadIdx.x)

// the counter goes on to be used by the lanes that did not loop
KERNEL(masked_counter) {
    unsigned acc = 1;
    int j = threadIdx.x, i = GLOBAL;
    if (i % 3 == p) {
        ROLLED for (; j < n; j++) MIX(j);
    }
    if (j < m) { MIX(7); out[1] = acc; }
    ROLLED for (; j < m; j += 5) MIX(j);
    DONE;
}

KERNEL(masked_twice) {
    unsigned acc = 1;
    int i = GLOBAL, k = 0;
    if (threadIdx.x & 1) {
        ROLLED for (int j = 0; j < n; j++) { MIX(j); k += 2; }
        if (i < m) ROLLED for (int j = 0; j < i; j++) { MIX(j); k -= 3; }
    } else {
        ROLLED for (int j = n; j > 0; j--) { MIX(j); k += i; }
    }
    if (k < p) { MIX(k); out[1] = acc; }
    DONE;
}

KERNEL(leaves_early) {
    unsigned acc = 1;
    int i = GLOBAL;
    ROLLED for (int j = 0; j < n; j++) {
        if (j > i) break;
        if ((j & 3) == 2) continue;
        MIX(j);
        if (j * 5 > m + i) return;
        out[1] = acc;
    }
    DONE;
}

KERNEL(two_exits) {
    unsigned acc = 1;
    int i = GLOBAL, j = 0;
    ROLLED while (j < n && i - 2 * j > -p) { MIX(j); j++; }
    if (j == n) { MIX(5); out[2] = acc; }
    DONE;
}

KERNEL(nested_exit) {
    unsigned acc = 1;
    int i = GLOBAL;
    ROLLED for (int a = 0; a < n; a++) {
        ROLLED for (int b = a; b < m; b++) {
            MIX(b);
            if (a + b > i) goto out_of_both;
        }
        out[1] = acc;
    }
    MIX(9);
    out[2] = acc;
out_of_both:
    DONE;
}

KERNEL(at_least_once) {
    unsigned acc = 1;
    int i = GLOBAL, j = i - p;
    ROLLED do { MIX(j); j += 3; } while (j < n);
    if (j > m) { MIX(1); out[1] = acc; }
    DONE;
}

KERNEL(downwards) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    ROLLED for (unsigned j = i + 1; j-- > 0;) { MIX(j); if (j + (unsigned)p < i) break; }
    ROLLED for (int j = n; j >= (int)i; j -= 7) MIX(j);
    DONE;
}

KERNEL(unequal) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    ROLLED for (unsigned j = i; j != i + (unsigned)(n & 255); j++) MIX(j);
    ROLLED for (unsigned j = i * 4; j != i * 8 + 64; j += 4) MIX(j);
    DONE;
}

KERNEL(doubling) {
    unsigned acc = 1;
    unsigned i = GLOBAL;
    ROLLED for (unsigned j = 1; j < (unsigned)n && j; j *= 2) { MIX(j); if (j > i) out[1] = acc; }
    ROLLED for (unsigned j = (unsigned)m; j; j >>= 1) MIX(j);
    DONE;
}

KERNEL(halving_reduction) {
    unsigned acc = 1;
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) { MIX(s); out[1] = acc; }
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x < (unsigned)n) { MIX(2); out[2] = acc; }
    DONE;
}

KERNEL(alternating) {
    unsigned acc = 1;
    int i = GLOBAL;
    ROLLED for (int j = 0; j < (n & 127); j++) {
        if (j % 2) { MIX(j); out[1] = acc; } else acc += 3;
        if ((j + i) % 3 == 0) { MIX(i); out[2] = acc; }
    }
    DONE;
}

KERNEL(steps) {
    unsigned acc = 1;
    int i = GLOBAL, step = (threadIdx.x >> 5) + 1;
    ROLLED for (int j = i; j < n; j += step) MIX(j);
    ROLLED for (int j = 0; j < i; j += 3) { MIX(j); j += (int)threadIdx.x & 1; }
    ROLLED for (long long j = i; j < (long long)m * 3; j += 1 + (unsigned)p % 64) MIX(j);
    DONE;
}

KERNEL(two_counters) {
    unsigned acc = 1;
    int i = GLOBAL;
    ROLLED for (int a = 0, b = n; a < b; a += 2, b -= 1) { MIX(a + b); if (a > i) { out[1] = acc; } }
    DONE;
}

KERNEL(growing_step) {
    unsigned acc = 1;
    unsigned i = GLOBAL, step = 1;
    ROLLED for (unsigned j = 0; j < i && j < (unsigned)n; j += step, step += 2) MIX(j);
    DONE;
}

KERNEL(trapezoid) {
    unsigned acc = 1;
    int i = GLOBAL, low = max(0, i - p), high = min(n, i + m);
    ROLLED for (int j = low; j < high; j++) { MIX(j); if (j == i) out[1] = acc; }
    DONE;
}

KERNEL(nest) {
    unsigned acc = 1;
    int i = blockIdx.x, w = threadIdx.x >> 5;
    ROLLED for (int a = w; a < n; a += 2) {
        MIX(a);
        ROLLED for (int b = 0; b < i; b++) {
            MIX(b);
            ROLLED for (int c = b; c < a; c++) { MIX(c); if (c > m) break; }
            if (a + b == (int)threadIdx.x) { out[1] = acc; }
        }
    }
    DONE;
}

KERNEL(loop_of_barriers) {
    unsigned acc = 1;
    for (int j = 0; j < (int)blockIdx.x; j++) {
        if (threadIdx.x + j < (unsigned)n) { MIX(j); out[1] = acc; }
        __syncthreads();
        if (j > m) break;
    }
    DONE;
}

KERNEL(skewed) {
    unsigned acc = 1;
    int x = GLOBAL, y = blockIdx.y * blockDim.y + threadIdx.y;
    ROLLED for (int t = 0; t < n; t++)
        if (x - t >= 0 && x - t < m && y - 2 * t < p) { MIX(t); out[1] = acc; }
    DONE;
}

KERNEL(after_the_last) {
    unsigned acc = 1;
    int i = GLOBAL, j;
    ROLLED for (j = i & ~3; j + 4 <= n; j += 4) MIX(j);
    ROLLED for (; j < n; j++) { MIX(j); out[1] = acc; }
    if (j > n) { MIX(j); out[2] = acc; }
    DONE;
}
