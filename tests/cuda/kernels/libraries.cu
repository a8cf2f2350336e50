// Kernels made of CUB's block and warp primitives.

#include <cub/cub.cuh>

extern "C" __global__ void block_radix_sort(int* keys, float* values)
{
    using Sort = cub::BlockRadixSort<int, 64, 4, float>;
    __shared__ typename Sort::TempStorage storage;
    int k[4];
    float v[4];
    const int base = blockIdx.x * 256 + threadIdx.x * 4;
    for (int j = 0; j < 4; j++) {
        k[j] = keys[base + j];
        v[j] = values[base + j];
    }
    Sort(storage).Sort(k, v);
    for (int j = 0; j < 4; j++) {
        keys[base + j] = k[j];
        values[base + j] = v[j];
    }
}

extern "C" __global__ void block_scan_and_reduce(const int* x, int* scanned, int* total, double* largest)
{
    using Load = cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Store = cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using Scan = cub::BlockScan<int, 64, cub::BLOCK_SCAN_RAKING>;
    using Reduce = cub::BlockReduce<double, 64>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } storage;
    int v[4], sum;
    Load(storage.load).Load(x + blockIdx.x * 256, v);
    __syncthreads();
    double most = max(max(v[0], v[1]), max(v[2], v[3])) * 0.5;
    Scan(storage.scan).ExclusiveSum(v, v, sum);
    __syncthreads();
    Store(storage.store).Store(scanned + blockIdx.x * 256, v);
    __syncthreads();
    most = Reduce(storage.reduce).Reduce(most, cuda::maximum<>{});
    if (threadIdx.x == 0) {
        total[blockIdx.x] = sum;
        largest[blockIdx.x] = most;
    }
}

extern "C" __global__ void warp_sort_and_histogram(short* keys, const unsigned char* samples, unsigned* bins)
{
    using Sort = cub::WarpMergeSort<short, 4, 32>;
    using Histogram = cub::BlockHistogram<unsigned char, 64, 4, 256, cub::BLOCK_HISTO_ATOMIC>;
    __shared__ typename Sort::TempStorage sort[2];
    __shared__ typename Histogram::TempStorage storage;
    __shared__ unsigned mine[256];
    short k[4];
    const int base = blockIdx.x * 256 + threadIdx.x * 4;
    for (int j = 0; j < 4; j++)
        k[j] = keys[base + j];
    Sort(sort[threadIdx.x / 32]).Sort(k, [](short a, short b) { return a > b; });
    for (int j = 0; j < 4; j++)
        keys[base + j] = k[j];
    unsigned char s[4];
    for (int j = 0; j < 4; j++)
        s[j] = samples[base + j];
    Histogram(storage).Histogram(s, mine);
    __syncthreads();
    for (int j = threadIdx.x; j < 256; j += 64)
        atomicAdd(&bins[j], mine[j]);
}
