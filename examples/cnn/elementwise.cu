// Batch normalisation and activations. Four elements per access, so that the bookkeeping of a thread is spread over
// more than one of them: the number of elements of a plane, and of the whole, is a multiple of four.
#include "tensor.cuh"

// out = gamma * (in - mean) / sqrt(variance + epsilon) + beta with the statistics of training; blockIdx.y counts planes.
extern "C" __global__ void batch_norm(int channels, int quads, float epsilon, const float4* __restrict__ in,
                                      const float* __restrict__ gamma, const float* __restrict__ beta,
                                      const float* __restrict__ mean, const float* __restrict__ variance,
                                      float4* __restrict__ out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quads)
        return;
    const int c = blockIdx.y % channels;
    const float scale = gamma[c] * rsqrtf(variance[c] + epsilon);
    const float shift = beta[c] - mean[c] * scale;
    float4 v = in[blockIdx.y * quads + i];
    v.x = v.x * scale + shift;
    v.y = v.y * scale + shift;
    v.z = v.z * scale + shift;
    v.w = v.w * scale + shift;
    out[blockIdx.y * quads + i] = v;
}

__device__ inline float relu6(float v)
{
    return fminf(fmaxf(v, 0.0f), 6.0f);
}

__device__ inline float silu(float v)
{
    return __fdividef(v, 1.0f + __expf(-v));
}

template <float (*activate)(float)>
__device__ inline void activate_in_place(int quads, float4* __restrict__ data)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quads)
        return;
    float4 v = data[i];
    v.x = activate(v.x);
    v.y = activate(v.y);
    v.z = activate(v.z);
    v.w = activate(v.w);
    data[i] = v;
}

extern "C" __global__ void relu6_activation(int quads, float4* __restrict__ data)
{
    activate_in_place<relu6>(quads, data);
}

extern "C" __global__ void silu_activation(int quads, float4* __restrict__ data)
{
    activate_in_place<silu>(quads, data);
}
