// Inclusive prefix sum of integers. A block scans 256 elements and publishes its total; a long vector is scanned block
// by block, then the totals are scanned the same way, then every block adds the total of all blocks before it.

constexpr int kWarp = 32;
constexpr int kBlock = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ int warp_inclusive_scan(int value, int lane)
{
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
        const int below = __shfl_up_sync(kAllLanes, value, offset);
        if (lane >= offset)
            value += below;
    }
    return value;
}

// out may be in. totals, one word per block, may be null.
extern "C" __global__ void scan_block(int n, const int* in, int* out, int* totals)
{
    __shared__ int warp_totals[kBlock / kWarp];
    const int i = blockIdx.x * kBlock + threadIdx.x;
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;

    int sum = warp_inclusive_scan(i < n ? in[i] : 0, lane);
    if (lane == kWarp - 1)
        warp_totals[warp] = sum;
    __syncthreads();

    if (warp == 0) {
        const int total = warp_inclusive_scan(lane < kBlock / kWarp ? warp_totals[lane] : 0, lane);
        if (lane < kBlock / kWarp)
            warp_totals[lane] = total;
    }
    __syncthreads();

    if (warp > 0)
        sum += warp_totals[warp - 1];
    if (i < n)
        out[i] = sum;
    if (totals != nullptr && threadIdx.x == kBlock - 1)
        totals[blockIdx.x] = sum;
}

// scanned_totals is the inclusive scan of what scan_block published.
extern "C" __global__ void scan_add_totals(int n, int* __restrict__ out, const int* __restrict__ scanned_totals)
{
    const int i = blockIdx.x * kBlock + threadIdx.x;
    if (blockIdx.x > 0 && i < n)
        out[i] += scanned_totals[blockIdx.x - 1];
}
