// Narrow numbers, matrices and intrinsics.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <mma.h>

using namespace nvcuda;

__global__ void numbers(__half2* h, __nv_bfloat162* b, float* f, unsigned char* e, int* i) {
    int t = threadIdx.x;
    h[t] = h2exp(__hfma2_relu(h[t], h2sqrt(h[t]), __hmax2_nan(h[t], h2rcp(h[t]))));
    b[t] = __hmul2(__habs2(b[t]), h2log(b[t]));
    atomicAdd(h, h[t]);
    atomicAdd(b, b[t]);
    e[t] = __nv_cvt_float_to_fp8(f[t], __NV_SATFINITE, __NV_E4M3);
    e[t + 1] = __nv_cvt_float_to_fp6(f[t], __NV_E3M2, cudaRoundNearest);
    e[t + 2] = __nv_cvt_float_to_fp4(f[t], __NV_E2M1, cudaRoundNearest);
    f[t] = __fsqrt_rd(__fdividef(f[t], 3)) + __int_as_float(__vabsdiffs4(i[t], i[t + 1])) + __frcp_ru(f[t]) + __sinf(f[t]);
    i[t] = __dp4a(i[t], i[t + 1], 3) + __funnelshift_lc(i[t], 5, 3) + __byte_perm(i[t], 7, 0x3210) + __brev(i[t]) + __ffs(i[t]);
    i[t] += __match_any_sync(~0u, i[t]) + __vimax3_s32_relu(i[t], 3, 4) + __activemask();
#if __CUDA_ARCH__ >= 800
    i[t] += __reduce_add_sync(~0u, i[t]);
#endif
    asm volatile("pmevent 3;");
    __nanosleep(20);
    __builtin_assume(i[t] > 0);
    if (i[t] == 12345) __trap();
}

__global__ void tiles(const __half* a, const __half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
