// The end of the network: features to scores to probabilities, one warp per result.
#include <math_constants.h>

#include "tensor.cuh"

// scores[n][o] = weights[o] . features[n] + bias[o]; blockIdx.y is n. The number of features is a multiple of four.
extern "C" __global__ void fully_connected(int features, int outputs, const float* __restrict__ in,
                                           const float* __restrict__ weights, const float* __restrict__ bias,
                                           float* __restrict__ scores)
{
    const int output = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (output >= outputs)
        return;

    const float4* const w = reinterpret_cast<const float4*>(weights + output * features);
    const float4* const x = reinterpret_cast<const float4*>(in + blockIdx.y * features);
    float sum = 0.0f;
    for (int i = lane; i < features / 4; i += 32) {
        const float4 a = w[i], b = x[i];
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        scores[blockIdx.y * outputs + output] = sum + bias[output];
}

// Softmax of each row in place, one warp per row.
extern "C" __global__ void softmax(int rows, int cols, float* __restrict__ scores)
{
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows)
        return;

    float* const line = scores + row * cols;
    float largest = -CUDART_INF_F;
    for (int i = lane; i < cols; i += 32)
        largest = fmaxf(largest, line[i]);
    largest = warp_max(largest);
    float sum = 0.0f;
    for (int i = lane; i < cols; i += 32) {
        const float power = __expf(line[i] - largest);
        line[i] = power;
        sum += power;
    }
    sum = warp_sum(sum);
    for (int i = lane; i < cols; i += 32)
        line[i] /= sum;
}
