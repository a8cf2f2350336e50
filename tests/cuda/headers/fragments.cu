// Fragments of matrices in all shapes and types that an architecture has.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <int M, int N, int K, typename In, typename Out, typename Left = wmma::row_major, typename Right = wmma::col_major>
__device__ void product(const void* a, const void* b, void* c) {
    wmma::fragment<wmma::matrix_a, M, N, K, In, Left> left;
    wmma::fragment<wmma::matrix_b, M, N, K, In, Right> right;
    wmma::fragment<wmma::accumulator, M, N, K, Out> sum;
    using Stored = typename decltype(left)::storage_element_type;
    wmma::load_matrix_sync(left, static_cast<const Stored*>(a), 64);
    wmma::load_matrix_sync(right, static_cast<const Stored*>(b), 64);
    wmma::load_matrix_sync(sum, static_cast<Out*>(c), 64, wmma::mem_col_major);
    wmma::mma_sync(sum, left, right, sum);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] + sum.x[i];
    wmma::store_matrix_sync(static_cast<Out*>(c), sum, 64, wmma::mem_row_major);
}

template <typename In, typename Out>
__device__ void shapes(const void* a, const void* b, void* c) {
    product<16, 16, 16, In, Out>(a, b, c);
    product<32, 8, 16, In, Out, wmma::col_major, wmma::row_major>(a, b, c);
    product<8, 32, 16, In, Out, wmma::col_major, wmma::col_major>(a, b, c);
}

__global__ void halves(const void* a, const void* b, void* c) {
    shapes<__half, __half>(a, b, c);
    shapes<__half, float>(a, b, c);
}

__global__ void integers(const void* a, const void* b, void* c) {
    shapes<signed char, int>(a, b, c);
    shapes<unsigned char, int>(a, b, c);
}

__global__ void fours(const void* a, const void* b, int* c) {
    using namespace wmma::experimental;
    wmma::fragment<wmma::matrix_a, 8, 8, 32, precision::s4, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 32, precision::s4, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 32, int> sum;
    wmma::fill_fragment(sum, 1);
    wmma::load_matrix_sync(left, a, 32);
    wmma::load_matrix_sync(right, b, 32);
    wmma::mma_sync(sum, left, right, sum, true);
    wmma::store_matrix_sync(c, sum, 8, wmma::mem_row_major);
}

__global__ void single_bits(const void* a, const void* b, int* c) {
    using namespace wmma::experimental;
    wmma::fragment<wmma::matrix_a, 8, 8, 128, precision::b1, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 128, precision::b1, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> sum;
    wmma::fill_fragment(sum, 1);
    wmma::load_matrix_sync(left, a, 128);
    wmma::load_matrix_sync(right, b, 128);
    wmma::bmma_sync(sum, left, right, sum, bmmaBitOpXOR);
#if __CUDA_ARCH__ >= 800
    wmma::bmma_sync(sum, left, right, sum, bmmaBitOpAND);
#endif
    wmma::store_matrix_sync(c, sum, 8, wmma::mem_row_major);
}

#if __CUDA_ARCH__ >= 800
__global__ void wider(const void* a, const void* b, void* c) {
    shapes<__nv_bfloat16, float>(a, b, c);
    product<16, 16, 8, wmma::precision::tf32, float>(a, b, c);
    product<8, 8, 4, double, double>(a, b, c);
}
#endif
