// Kernels whose control flow is what matters: (out, n, m, p) with 32 words at out, in 32 and in 64 bits.
#pragma once
#define KERNEL(name) extern "C" __global__ void name(unsigned *out, int n, int m, int p)
#define WIDE(name) extern "C" __global__ void name(unsigned *out, long long n, long long m, long long p)
// no closed form that a compiler finds
#define MIX(value) acc = acc * 1664525u + (unsigned)(value)
#define DONE out[threadIdx.x & 31] = acc
#define ROLLED _Pragma("unroll 1")
