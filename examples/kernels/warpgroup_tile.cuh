// Tiles for the warpgroup instructions of sm_90a: C = A B^T, A of m x k and B of n x k in half precision.
//
// A row of a tile is 128 bytes of k, swizzled as the 128-byte pattern of the matrix descriptors says: the eight pieces of 16 bytes
// of a row change places by the number of the row.

#pragma once

#include <cuda_fp16.h>

#include <cstdint>

constexpr int ROWS = 64;              // of A for each warpgroup
constexpr int COLUMNS = 128;          // rows of B
constexpr int DEPTH = 64;             // elements of k in a tile: 128 bytes
constexpr int GROUP = 128;            // threads
constexpr int CONSUMERS = 2;          // warpgroups that multiply
constexpr int STAGES = 3;

struct Stage {
    half a[CONSUMERS * ROWS * DEPTH];
    half b[COLUMNS * DEPTH];
};

__device__ inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline int piece_at(int row, int piece) { return row * DEPTH + ((piece ^ (row & 7)) << 3); }

// start, distance of 8 rows (1024 bytes), swizzling of 128 bytes
__device__ inline uint64_t descriptor(const half* tile) {
    return (shared_address(tile) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ inline void multiply(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)
        : "l"(a), "l"(b));
}

__device__ inline void multiply_tile(float (&sum)[64], const half* a, const half* b) {
    const uint64_t left = descriptor(a), right = descriptor(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) multiply(sum, left + 2 * k, right + 2 * k);  // 32 bytes further on
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ inline void store(float* c, const float (&sum)[64], int n) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
        float* to = c + int64_t(row + i / 2 % 2 * 8) * n + i / 4 * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = make_float2(sum[i], sum[i + 1]);
    }
}

__device__ inline void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
