// Pooling. blockIdx.z, or the warp, counts channels of all images.
#include <math_constants.h>

#include "tensor.cuh"

// The largest of 3 x 3, stride 2, padding 1; one thread per pixel.
extern "C" __global__ void max_pool_3x3(int height, int width, const float* __restrict__ images, float* __restrict__ out)
{
    const int out_height = (height - 1) / 2 + 1;
    const int out_width = (width - 1) / 2 + 1;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= out_height || col >= out_width)
        return;

    const float* const image = images + blockIdx.z * height * width;
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int r = 2 * row - 1; r <= 2 * row + 1; ++r)
#pragma unroll
        for (int s = 2 * col - 1; s <= 2 * col + 1; ++s) {
            // beyond the border is taken the nearest pixel, which is in the window as well
            const int nearest = min(max(r, 0), height - 1) * width + min(max(s, 0), width - 1);
            largest = fmaxf(largest, image[nearest]);
        }
    out[(blockIdx.z * out_height + row) * out_width + col] = largest;
}

// The mean of every plane, one warp each.
extern "C" __global__ void global_average_pool(int planes, int size, const float* __restrict__ images,
                                               float* __restrict__ out)
{
    const int plane = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (plane >= planes)
        return;

    float sum = 0.0f;
    for (int i = lane; i < size; i += 32)
        sum += images[plane * size + i];
    sum = warp_sum(sum);
    if (lane == 0)
        out[plane] = sum / size;
}
