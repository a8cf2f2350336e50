// Reductions over the distributed shared memory of a cluster of blocks; for sm_90 and newer.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int kBins = 1024;
constexpr int kBlocks = 4;
constexpr int kOwn = kBins / kBlocks;

// Counts of values below 1024: more bins than one block wants to hold, so each block of the cluster has a quarter of them, and every
// thread adds to the bins of whichever block its value falls to.
extern "C" __global__ void __cluster_dims__(kBlocks, 1, 1)
cluster_histogram(int n, const unsigned short* __restrict__ data, unsigned* __restrict__ bins)
{
    __shared__ unsigned own[kOwn];
    cg::cluster_group cluster = cg::this_cluster();
    for (int bin = threadIdx.x; bin < kOwn; bin += blockDim.x)
        own[bin] = 0;
    cluster.sync();

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned value = data[i];
        atomicAdd(cluster.map_shared_rank(own, value / kOwn) + value % kOwn, 1u);
    }
    cluster.sync();

    unsigned first = cluster.block_rank() * kOwn;
    for (int bin = threadIdx.x; bin < kOwn; bin += blockDim.x)
        if (own[bin] != 0)
            atomicAdd(&bins[first + bin], own[bin]);
}

// One sum per cluster: warps by shuffles, blocks in shared memory, and the first block adds up what the others of its cluster hold.
extern "C" __global__ void __cluster_dims__(8, 1, 1) cluster_sum(int n, const float* __restrict__ x, float* __restrict__ sums)
{
    __shared__ float parts[32];
    __shared__ float total;
    cg::cluster_group cluster = cg::this_cluster();
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);

    float value = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value += x[i];
    for (int distance = 16; distance > 0; distance /= 2)
        value += warp.shfl_down(value, distance);
    if (warp.thread_rank() == 0)
        parts[warp.meta_group_rank()] = value;
    block.sync();
    if (warp.meta_group_rank() == 0) {
        value = warp.thread_rank() < warp.meta_group_size() ? parts[warp.thread_rank()] : 0;
        for (int distance = 16; distance > 0; distance /= 2)
            value += warp.shfl_down(value, distance);
        if (warp.thread_rank() == 0)
            total = value;
    }
    cluster.sync();

    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++)
            sum += *cluster.map_shared_rank(&total, rank);
        sums[blockIdx.x / cluster.num_blocks()] = sum;
    }
    // no block may end while the first reads its total
    cluster.sync();
}
