// Algorithms of blocks and warps.
#include <cub/cub.cuh>

template <typename T>
__device__ void all(const T* in, T* out) {
    using Load = cub::BlockLoad<T, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<T, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<T, 128, 4>;
    using Scan = cub::BlockScan<T, 128>;
    using Reduce = cub::BlockReduce<T, 128>;
    using Warp = cub::WarpReduce<T>;
    using WarpScan = cub::WarpScan<T>;
    using Discontinuity = cub::BlockDiscontinuity<T, 128>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
        typename Warp::TempStorage warp[4];
        typename WarpScan::TempStorage warp_scan[4];
        typename Discontinuity::TempStorage heads;
    } shared;
    T items[4];
    int flags[4];
    Load(shared.load).Load(in + blockIdx.x * 512, items);
    __syncthreads();
    Sort(shared.sort).Sort(items);
    __syncthreads();
    Discontinuity(shared.heads).FlagHeads(flags, items, [](T a, T b) { return a != b; });
    __syncthreads();
    Scan(shared.scan).InclusiveSum(items, items);
    __syncthreads();
    T sum = Reduce(shared.reduce).Sum(items);
    T largest = Warp(shared.warp[threadIdx.x / 32]).Reduce(items[0], [](T a, T b) { return a < b ? b : a; });
    T before;
    WarpScan(shared.warp_scan[threadIdx.x / 32]).ExclusiveSum(items[1], before);
    items[0] += sum + T(flags[0]);
    items[1] += largest + before;
    __syncthreads();
    Store(shared.store).Store(out + blockIdx.x * 512, items);
}

__global__ void block_int(const int* in, int* out) { all(in, out); }
__global__ void block_double(const double* in, double* out) { all(in, out); }
__global__ void block_char(const unsigned char* in, unsigned char* out) { all(in, out); }
