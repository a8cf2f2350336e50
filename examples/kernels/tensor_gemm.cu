// Matrix products on the tensor cores of sm_80: C = A B^T, A of m x k and B of n x k, rows of k elements.

#include <cuda_fp16.h>
#include <mma.h>

#include "tensor_tile.cuh"

struct Half {
    using Sum = float;
    static __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct Byte {
    using Sum = int;
    static __device__ void multiply(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// a warp for each 16 x 16 results, fragments straight from memory; m, n multiples of 32, k of 16
extern "C" __global__ void __launch_bounds__(128)
    hgemm_wmma(int n, int k, const half* a, const half* b, float* c) {
    using namespace nvcuda::wmma;
    const int warp = threadIdx.x / 32;
    const int row = blockIdx.y * 32 + warp / 2 * 16, column = blockIdx.x * 32 + warp % 2 * 16;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int i = 0; i < k; i += 16) {
        fragment<matrix_a, 16, 16, 16, half, row_major> left;
        fragment<matrix_b, 16, 16, 16, half, col_major> right;
        load_matrix_sync(left, a + int64_t(row) * k + i, k);
        load_matrix_sync(right, b + int64_t(column) * k + i, k);
        mma_sync(sum, left, right, sum);
    }
    store_matrix_sync(c + int64_t(row) * n + column, sum, n, mem_row_major);
}

// m, n multiples of 64, k of 32
extern "C" __global__ void __launch_bounds__(THREADS)
    hgemm_mma(int n, int k, const half* a, const half* b, float* c) {
    multiply<Half>(n, int64_t(k) * 2, reinterpret_cast<const unsigned char*>(a),
                   reinterpret_cast<const unsigned char*>(b), c);
}

// m, n and k multiples of 64
extern "C" __global__ void __launch_bounds__(THREADS)
    igemm_mma(int n, int k, const signed char* a, const signed char* b, int* c) {
    multiply<Byte>(n, k, reinterpret_cast<const unsigned char*>(a), reinterpret_cast<const unsigned char*>(b), c);
}
