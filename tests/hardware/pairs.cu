// Kernels in pairs that differ in one thing; what that one thing costs is measured and predicted.
// nvcc -ptx -arch=sm_80 -lineinfo pairs.cu  (see the Makefile beside this)
#include <cuda_pipeline.h>

#define STRIDED(S)                                                                                      \
    extern "C" __global__ void strided_##S(int n, const float* __restrict__ x, float* __restrict__ y) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        if (i < n) y[i] = x[(long long)i * S];                                                          \
    }
STRIDED(1)
STRIDED(2)
STRIDED(32)

#define WIDE(NAME, T)                                                                            \
    extern "C" __global__ void NAME(int n, const T* __restrict__ x, T* __restrict__ y) {         \
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)  \
            y[i] = x[i];                                                                         \
    }
WIDE(copy_float, float)
WIDE(copy_float2, float2)
WIDE(copy_float4, float4)

// One block reduces 256 values at a time; the second form meets once more per round than it has to.
#define ROUNDS(NAME, EXTRA)                                                                 \
    extern "C" __global__ void NAME(int rounds, const float* __restrict__ x, float* out) {  \
        __shared__ float tile[256];                                                         \
        float sum = 0;                                                                      \
        for (int r = 0; r < rounds; ++r) {                                                  \
            tile[threadIdx.x] = x[r * 256 + threadIdx.x];                                   \
            __syncthreads();                                                                \
            EXTRA;                                                                          \
            sum += tile[(threadIdx.x * 7 + r) & 255];                                       \
            __syncthreads();                                                                \
        }                                                                                   \
        out[blockIdx.x * 256 + threadIdx.x] = sum;                                          \
    }
ROUNDS(rounds_plain, (void)0)
ROUNDS(rounds_barrier, __syncthreads())

// Sixty-four values at once: with few registers some of them live in local memory.
extern "C" __global__ void many_values(int steps, const float* __restrict__ x, float* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v[64];
#pragma unroll
    for (int k = 0; k < 64; ++k) v[k] = x[i * 64 + k];
    for (int s = 0; s < steps; ++s) {
#pragma unroll
        for (int k = 0; k < 64; ++k) v[k] = v[k] * v[(k + 17) & 63] + v[(k + 31) & 63];
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 64; ++k) sum += v[k];
    y[i] = sum;
}

#define POLYNOMIAL(NAME, T, UNROLL)                                                               \
    extern "C" __global__ void NAME(int n, int degree, const T* __restrict__ x, T* __restrict__ y) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                            \
        if (i >= n) return;                                                                       \
        T v = x[i], sum = 0;                                                                      \
        _Pragma(UNROLL) for (int k = 0; k < degree; ++k) sum = sum * v + (T)k;                    \
        y[i] = sum;                                                                               \
    }
POLYNOMIAL(polynomial_rolled, float, "unroll 1")
POLYNOMIAL(polynomial_unrolled, float, "unroll 8")
POLYNOMIAL(polynomial_double, double, "unroll 8")

#define SPLIT(NAME, CONDITION)                                                                      \
    extern "C" __global__ void NAME(int steps, const float* __restrict__ x, float* __restrict__ y) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                              \
        float v = x[i];                                                                             \
        if (CONDITION) {                                                                            \
            _Pragma("unroll 4") for (int k = 0; k < steps; ++k) v = v * 1.0001f + 0.5f;             \
        } else {                                                                                    \
            _Pragma("unroll 4") for (int k = 0; k < steps; ++k) v = v * v - 0.25f;                  \
        }                                                                                           \
        y[i] = v;                                                                                   \
    }
SPLIT(split_by_lane, threadIdx.x & 1)
SPLIT(split_by_warp, (threadIdx.x >> 5) & 1)

#define ADDING(NAME, PLACE)                                                                 \
    extern "C" __global__ void NAME(int n, unsigned mask, unsigned* bins) {                 \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                      \
        for (int k = 0; k < n; ++k) atomicAdd(&bins[(PLACE) & mask], (unsigned)(i ^ k));    \
    }
ADDING(add_same, k)
ADDING(add_spread, i * 33 + k)

// Tiles of 4 KiB come in through cp.async, DEPTH of them on the way at once.
template <int DEPTH>
__device__ void piped(int tiles, const float4* __restrict__ x, float* __restrict__ y) {
    __shared__ float4 tile[DEPTH][256];
    const float4* mine = x + (long long)blockIdx.x * tiles * 256 + threadIdx.x;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < DEPTH; ++s) {
        if (s < tiles) __pipeline_memcpy_async(&tile[s][threadIdx.x], mine + s * 256, 16);
        __pipeline_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(DEPTH - 1);
        __syncthreads();
        float4 v = tile[t % DEPTH][255 - threadIdx.x];
        sum += v.x * v.y + v.z * v.w;
        __syncthreads();
        if (t + DEPTH < tiles) __pipeline_memcpy_async(&tile[t % DEPTH][threadIdx.x], mine + (t + DEPTH) * 256, 16);
        __pipeline_commit();
    }
    y[blockIdx.x * 256 + threadIdx.x] = sum;
}
#define PIPED(DEPTH) \
    extern "C" __global__ void piped_##DEPTH(int tiles, const float4* x, float* y) { piped<DEPTH>(tiles, x, y); }
PIPED(1)
PIPED(2)
PIPED(4)
