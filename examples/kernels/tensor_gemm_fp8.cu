// The product of tensor_gemm.cu on numbers of eight bits (e4m3), which sm_89 introduced.

#include "tensor_tile.cuh"

struct Eight {
    using Sum = float;
    static __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// m, n and k multiples of 64
extern "C" __global__ void __launch_bounds__(THREADS)
    qgemm_mma(int n, int k, const unsigned char* a, const unsigned char* b, float* c) {
    multiply<Eight>(n, k, a, b, c);
}
