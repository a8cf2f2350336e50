// Sum of a vector: each block reduces its share to one partial sum. A second launch over the partial sums finishes.

constexpr int kWarp = 32;
constexpr int kBlock = 256;

// Shared-memory tree, one element per thread. The stride halves at every level, so active threads stay consecutive:
// whole warps retire first, and no level has bank conflicts.
extern "C" __global__ void reduce_shared(int n, const float* __restrict__ in, float* __restrict__ partial)
{
    __shared__ float tile[kBlock];
    const int t = threadIdx.x;
    const int i = blockIdx.x * kBlock + t;

    tile[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int stride = kBlock / 2; stride > 0; stride /= 2) {
        if (t < stride)
            tile[t] += tile[t + stride];
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = tile[0];
}

__device__ float warp_sum(float value)
{
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

// Registers and shuffles: a grid-stride sum per thread, five shuffles per warp, and one exchange between warps.
extern "C" __global__ void reduce_shuffle(int n, const float* __restrict__ in, float* __restrict__ partial)
{
    __shared__ float warp_sums[kBlock / kWarp];
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;

    float sum = 0.0f;
    for (int i = blockIdx.x * kBlock + threadIdx.x; i < n; i += gridDim.x * kBlock)
        sum += in[i];

    sum = warp_sum(sum);
    if (lane == 0)
        warp_sums[warp] = sum;
    __syncthreads();

    if (warp == 0) {
        sum = warp_sum(lane < kBlock / kWarp ? warp_sums[lane] : 0.0f);
        if (lane == 0)
            partial[blockIdx.x] = sum;
    }
}
