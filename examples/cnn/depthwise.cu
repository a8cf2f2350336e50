// Depthwise 3 x 3 convolution, padding 1: every channel has a filter of its own. A block of 16 x 4 threads computes a tile
// of 16 x 16 pixels of one channel from a tile of the input with its halo in shared memory; each thread computes a
// column of four pixels and keeps the filter in registers. blockIdx.z counts channels of all images.
#include "tensor.cuh"

constexpr int kTile = 16;
constexpr int kRows = 4;  // pixels per thread
constexpr int kThreads = kTile * kTile / kRows;

template <int kStride>
__device__ inline void convolve(int channels, int height, int width, const float* __restrict__ images,
                                const float* __restrict__ filters, float* __restrict__ out)
{
    constexpr int kHalo = (kTile - 1) * kStride + 3;                               // edge of the tile of the input
    constexpr int kLoads = (kHalo * kHalo + kThreads - 1) / kThreads;              // per thread
    __shared__ float tile[kLoads * kThreads];  // rounded up, so that every thread may store all its loads
    const int x = threadIdx.x;
    const int y = threadIdx.y * kRows;
    const int out_height = (height - 1) / kStride + 1;
    const int out_width = (width - 1) / kStride + 1;
    const int first_row = blockIdx.y * kTile;
    const int first_col = blockIdx.x * kTile;
    const float* const image = images + blockIdx.z * height * width;

#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int e = threadIdx.y * kTile + x + i * kThreads;
        const int row = first_row * kStride - 1 + e / kHalo;
        const int col = first_col * kStride - 1 + e % kHalo;
        const bool inside = (static_cast<unsigned>(row) < height) & (static_cast<unsigned>(col) < width);
        copy_or_zero(&tile[e], image + row * width + col, inside);
    }
    float filter[3][3];
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
        for (int s = 0; s < 3; ++s)
            filter[r][s] = filters[blockIdx.z % channels * 9 + r * 3 + s];
    wait_for_copies();
    __syncthreads();

    float sum[kRows] = {};
#pragma unroll
    for (int r = 0; r < (kRows - 1) * kStride + 3; ++r)
#pragma unroll
        for (int s = 0; s < 3; ++s) {
            const float value = tile[(y * kStride + r) * kHalo + x * kStride + s];
#pragma unroll
            for (int i = 0; i < kRows; ++i)
                if (r >= i * kStride && r < i * kStride + 3)
                    sum[i] += value * filter[r - i * kStride][s];
        }

    float* const target = out + blockIdx.z * out_height * out_width;
    const bool whole = first_row + kTile <= out_height && first_col + kTile <= out_width;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        const int row = first_row + y + i;
        const int col = first_col + x;
        if (whole || (row < out_height && col < out_width))
            target[row * out_width + col] = sum[i];
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    depthwise_3x3(int channels, int height, int width, const float* __restrict__ images,
                  const float* __restrict__ filters, float* __restrict__ out)
{
    convolve<1>(channels, height, width, images, filters, out);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    depthwise_3x3_stride_2(int channels, int height, int width, const float* __restrict__ images,
                           const float* __restrict__ filters, float* __restrict__ out)
{
    convolve<2>(channels, height, width, images, filters, out);
}
