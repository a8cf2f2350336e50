// Layer normalisation over the rows of a rows x cols matrix, one block per row:
// out = (in - mean) / sqrt(variance + epsilon) * gamma + beta.

#include "row_reduce.cuh"

extern "C" __global__ void layernorm(int cols, float epsilon, const float* __restrict__ in,
                                     const float* __restrict__ gamma, const float* __restrict__ beta,
                                     float* __restrict__ out)
{
    in += static_cast<size_t>(blockIdx.x) * cols;
    out += static_cast<size_t>(blockIdx.x) * cols;

    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        sum += in[i];
    const float mean = block_reduce<Sum>(sum) / cols;

    // The variance from deviations, not from the mean of squares: no cancellation when the mean is large.
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        const float deviation = in[i] - mean;
        squares += deviation * deviation;
    }
    const float scale = rsqrtf(block_reduce<Sum>(squares) / cols + epsilon);

    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[i] = (in[i] - mean) * scale * gamma[i] + beta[i];
}
