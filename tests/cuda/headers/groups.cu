// Groups of threads.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

__global__ void groups(int* data, float* sums) {
    __shared__ int staged[256];
    auto grid = cg::this_grid();
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(warp);
    cg::memcpy_async(block, staged, data + block.group_index().x * 256, sizeof(int) * 256);
    cg::wait(block);
    int value = staged[block.thread_rank() % 256];
    value += warp.shfl_xor(value, 5) + eight.shfl_down(value, 1) + warp.any(value > 3) + warp.match_any(value);
    value += cg::reduce(warp, value, cg::plus<int>()) + cg::inclusive_scan(eight, value);
    float part = cg::reduce(eight, float(value), cg::greater<float>());
    if (value & 1) {
        auto active = cg::coalesced_threads();
        value += active.thread_rank() + cg::reduce(active, value, cg::bit_xor<int>());
        auto labelled = cg::labeled_partition(active, value % 3);
        if (labelled.thread_rank() == 0) atomicAdd(sums, part);
    }
    cg::invoke_one(warp, [&] { atomicAdd(&data[0], 1); });
    grid.sync();
    data[grid.thread_rank()] = value;
}

#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(2) clusters(int* data) {
    __shared__ int mine;
    auto cluster = cg::this_cluster();
    mine = cluster.block_rank();
    cluster.sync();
    int* other = cluster.map_shared_rank(&mine, (mine + 1) % cluster.num_blocks());
    data[cluster.thread_rank()] = *other + cluster.query_shared_rank(other);
    auto token = cluster.barrier_arrive();
    cluster.barrier_wait(std::move(token));
}
#endif
