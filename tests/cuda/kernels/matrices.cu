// Matrix products through nvcuda::wmma: tiles in shared memory, an epilogue on fragments, integers, single precision through tf32.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// c = alpha · a · b + beta · c; a row-major (m, k), b column-major (k, n): one warp per 16 × 16 tile, four to a block.
extern "C" __global__ void gemm_f16(int m, int n, int k, float alpha, float beta, const half* a, const half* b, float* c) {
    int row = (blockIdx.y * 2 + threadIdx.y) * 16, column = (blockIdx.x * 2 + threadIdx.x / 32) * 16;
    if (row >= m || column >= n) return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum, old;
    wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(left, a + row * k + i, k);
        wmma::load_matrix_sync(right, b + column * k + i, k);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::load_matrix_sync(old, c + row * n + column, n, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = alpha * sum.x[i] + beta * old.x[i];
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

// Two warps multiply a 32 × 16 by a 16 × 16 matrix that all threads brought to padded shared memory.
extern "C" __global__ void tiles_f16(const half* a, const half* b, half* c) {
    __shared__ __align__(32) half left[32][24], right[16][24], out[32][24];
    int t = threadIdx.x;
    for (int i = t; i < 32 * 16; i += 64) left[i / 16][i % 16] = a[i];
    for (int i = t; i < 16 * 16; i += 64) right[i / 16][i % 16] = b[i];
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> sum;
    wmma::fill_fragment(sum, __float2half(1.0f));
    wmma::load_matrix_sync(x, &left[t / 32 * 16][0], 24);
    wmma::load_matrix_sync(y, &right[0][0], 24);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(&out[t / 32 * 16][0], sum, 24, wmma::mem_row_major);
    __syncthreads();
    for (int i = t; i < 32 * 16; i += 64) c[i] = out[i / 16][i % 16];
}

extern "C" __global__ void tall_s8(const signed char* a, const signed char* b, int* c) {
    wmma::fragment<wmma::matrix_a, 32, 8, 16, signed char, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, signed char, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 32, 8, 16, int> sum;
    wmma::fill_fragment(sum, 7);
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(c, sum, 32, wmma::mem_col_major);
}

extern "C" __global__ void single_tf32(const float* a, const float* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(x, a, 8);
    wmma::load_matrix_sync(y, b, 8);
    for (int i = 0; i < x.num_elements; ++i) x.x[i] = wmma::__float_to_tf32(x.x[i]);
    for (int i = 0; i < y.num_elements; ++i) y.x[i] = wmma::__float_to_tf32(y.x[i]);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
