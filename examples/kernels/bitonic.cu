// Ascending bitonic sort of n unsigned keys, n a power of two of at least 1 024. Pairs closer than a block's 1 024 keys
// are compared in shared memory; wider steps are one launch each.

constexpr int kKeys = 1024;  // per block, two per thread
constexpr int kThreads = kKeys / 2;

__device__ void compare_exchange(unsigned& a, unsigned& b, bool ascending)
{
    if ((a > b) == ascending) {
        const unsigned t = a;
        a = b;
        b = t;
    }
}

__device__ void merge_in_block(unsigned* keys, int first, int size, int stride)
{
    const int t = threadIdx.x;
    for (; stride > 0; stride /= 2) {
        const int low = 2 * t - (t & (stride - 1));
        const bool ascending = ((first + low) & size) == 0;
        compare_exchange(keys[low], keys[low + stride], ascending);
        __syncthreads();
    }
}

// Sorts each block of 1 024 keys, neighbouring blocks in opposite directions.
extern "C" __global__ void __launch_bounds__(kThreads) bitonic_sort_blocks(unsigned* __restrict__ data)
{
    __shared__ unsigned keys[kKeys];
    const int first = blockIdx.x * kKeys;
    const int t = threadIdx.x;
    keys[t] = data[first + t];
    keys[t + kThreads] = data[first + t + kThreads];
    __syncthreads();
    for (int size = 2; size <= kKeys; size *= 2)
        merge_in_block(keys, first, size, size / 2);
    data[first + t] = keys[t];
    data[first + t + kThreads] = keys[t + kThreads];
}

// One step of a merge whose pairs are stride keys apart, stride >= 1 024.
extern "C" __global__ void bitonic_merge_step(unsigned* __restrict__ data, int size, int stride)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int low = 2 * t - (t & (stride - 1));
    compare_exchange(data[low], data[low + stride], (low & size) == 0);
}

// All steps of a merge that stay inside a block.
extern "C" __global__ void __launch_bounds__(kThreads) bitonic_merge_blocks(unsigned* __restrict__ data, int size)
{
    __shared__ unsigned keys[kKeys];
    const int first = blockIdx.x * kKeys;
    const int t = threadIdx.x;
    keys[t] = data[first + t];
    keys[t + kThreads] = data[first + t + kThreads];
    __syncthreads();
    merge_in_block(keys, first, size, kKeys / 2);
    data[first + t] = keys[t];
    data[first + t + kThreads] = keys[t + kThreads];
}
