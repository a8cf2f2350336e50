// Counts of the 256 byte values. Both kernels stride over the data with any grid and any block.

constexpr int kBins = 256;

// Every byte is one atomic in global memory: equal neighbours queue up behind each other.
extern "C" __global__ void histogram_global(int n, const unsigned char* __restrict__ data, unsigned* __restrict__ bins)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[data[i]], 1u);
}

// A private histogram per block in shared memory; only its non-empty bins reach global memory.
extern "C" __global__ void histogram_shared(int n, const unsigned char* __restrict__ data, unsigned* __restrict__ bins)
{
    __shared__ unsigned local_bins[kBins];
    for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x)
        local_bins[bin] = 0;
    __syncthreads();

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local_bins[data[i]], 1u);
    __syncthreads();

    for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x)
        if (local_bins[bin] != 0)
            atomicAdd(&bins[bin], local_bins[bin]);
}
