// Reductions over a block whose result every thread gets. The block is a multiple of the warp, at most 1 024 threads.

#pragma once

constexpr int kWarp = 32;

struct Sum {
    static constexpr float identity = 0.0f;
    __device__ static float combine(float a, float b) { return a + b; }
};

struct Max {
    static constexpr float identity = -3.402823466e38f;
    __device__ static float combine(float a, float b) { return fmaxf(a, b); }
};

template <typename Op>
__device__ float warp_reduce(float value)
{
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

template <typename Op>
__device__ float block_reduce(float value)
{
    __shared__ float per_warp[kWarp];
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;

    value = warp_reduce<Op>(value);
    __syncthreads();  // per_warp may still be read by the previous reduction
    if (lane == 0)
        per_warp[warp] = value;
    __syncthreads();
    return warp_reduce<Op>(lane < blockDim.x / kWarp ? per_warp[lane] : Op::identity);
}
