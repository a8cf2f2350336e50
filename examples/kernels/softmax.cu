// Softmax over the rows of a rows x cols matrix, one block per row. The row's maximum is subtracted first, so that no
// exponential overflows.

#include "row_reduce.cuh"

// The row waits in dynamic shared memory between the passes: cols * sizeof(float) bytes.
extern "C" __global__ void softmax(int cols, const float* __restrict__ in, float* __restrict__ out)
{
    extern __shared__ float row[];
    in += static_cast<size_t>(blockIdx.x) * cols;
    out += static_cast<size_t>(blockIdx.x) * cols;

    float highest = Max::identity;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        row[i] = in[i];
        highest = fmaxf(highest, row[i]);
    }
    highest = block_reduce<Max>(highest);

    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        row[i] = expf(row[i] - highest);
        sum += row[i];
    }
    sum = block_reduce<Sum>(sum);

    const float scale = 1.0f / sum;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[i] = row[i] * scale;
}
