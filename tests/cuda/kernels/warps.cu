// Warp intrinsics, barriers with and without reductions, cooperative groups.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL 0xffffffffu
#define PUT(value) out[(k++) * n + i] = (unsigned)(value)

extern "C" __global__ void shuffles(const unsigned* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x, lane = threadIdx.x & 31;
    const unsigned a = x[i];
    unsigned k = 0;
    PUT(__shfl_sync(ALL, a, 5));
    PUT(__shfl_sync(ALL, a, lane * 7));
    PUT(__shfl_sync(ALL, a, 3, 8));
    PUT(__shfl_up_sync(ALL, a, 3));
    PUT(__shfl_up_sync(ALL, a, 3, 16));
    PUT(__shfl_down_sync(ALL, a, 5));
    PUT(__shfl_down_sync(ALL, a, 1, 4));
    PUT(__shfl_xor_sync(ALL, a, 9));
    PUT(__shfl_xor_sync(ALL, a, 1, 2));
    PUT(__float_as_uint(__shfl_xor_sync(ALL, __uint_as_float(a), 2)));
    const unsigned long long wide = __shfl_down_sync(ALL, (unsigned long long)a << 20 | lane, 4);
    PUT(wide);
    PUT(wide >> 32);
    const double d = __shfl_up_sync(ALL, (double)a, 2);
    PUT(d);
    const __half2 h = __shfl_xor_sync(ALL, __floats2half2_rn((float)lane, 1.5f), 1);
    PUT(__half2int_rn(__low2half(h)));
    if (lane & 1)
        PUT(__shfl_sync(0xaaaaaaaau, a, (lane + 2) & 31));
    else
        PUT(__shfl_sync(0x55555555u, a, (lane + 4) & 31));
}

extern "C" __global__ void votes(const unsigned* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x, lane = threadIdx.x & 31;
    const unsigned a = x[i];
    unsigned k = 0;
    PUT(__all_sync(ALL, a < 1000));
    PUT(__any_sync(ALL, a == 3));
    PUT(__ballot_sync(ALL, a & 1));
    PUT(__match_any_sync(ALL, a & 3));
    PUT(__match_any_sync(ALL, (unsigned long long)(a & 1) << 40));
    int same;
    PUT(__match_all_sync(ALL, a >> 31, &same));
    PUT(same);
    PUT(__reduce_add_sync(ALL, a));
    PUT(__reduce_min_sync(ALL, a));
    PUT(__reduce_max_sync(ALL, (int)a - 50));
    PUT(__reduce_and_sync(ALL, a));
    PUT(__reduce_or_sync(ALL, a));
    PUT(__reduce_xor_sync(ALL, a));
    PUT(__popc(__activemask()));
    unsigned branch = 0;
    if (lane < 11)
        branch = __ballot_sync(__activemask(), a & 2);
    __syncwarp();
    PUT(branch);
    if (lane >= 16)
        PUT(__reduce_add_sync(0xffff0000u, a & 7));
    else
        PUT(__reduce_min_sync(0x0000ffffu, a & 7));
}

extern "C" __global__ void barriers(const unsigned* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    __shared__ unsigned stage[256];
    unsigned k = 0;
    PUT(__syncthreads_count(x[i] & 1));
    PUT(__syncthreads_and(x[i] < 1000));
    PUT(__syncthreads_or(x[i] == 3));
    stage[threadIdx.x] = x[i];
    asm volatile("bar.sync 1, 64;" ::: "memory");  // all have 64 threads
    PUT(stage[threadIdx.x ^ 63]);
    // the first warp produces, the second consumes
    if (threadIdx.x < 32) {
        stage[128 + threadIdx.x] = threadIdx.x * 3;
        asm volatile("bar.arrive 2, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
        stage[threadIdx.x] = stage[128 + threadIdx.x - 32];
    }
    asm volatile("barrier.sync 0;" ::: "memory");
    PUT(stage[threadIdx.x]);
    int p;
    asm volatile("{ .reg .pred %p, %q;\n setp.lt.u32 %p, %1, 50;\n barrier.red.or.pred %q, 3, %p;\n selp.u32 %0, 1, 0, %q; }"
                 : "=r"(p) : "r"(x[i]) : "memory");
    PUT(p);
}

extern "C" __global__ void tiles(const int* x, int* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto quad = cg::tiled_partition<4>(warp);
    const int a = x[i];
    unsigned k = 0;
    PUT(cg::reduce(warp, a, cg::plus<int>()));
    PUT(cg::reduce(quad, a, cg::greater<int>()));
    PUT(quad.shfl_down(a, 1));
    PUT(quad.meta_group_rank());
    PUT(quad.ballot(a & 1));
    PUT(warp.any(a == 5));
    PUT(cg::inclusive_scan(warp, a));
    PUT(cg::exclusive_scan(quad, a));
    auto odd = cg::binary_partition(warp, a & 1);
    PUT(cg::reduce(odd, a, cg::plus<int>()));
    auto label = cg::labeled_partition(warp, a % 3);
    PUT(label.size());
    PUT(cg::reduce(label, a, cg::bit_xor<int>()));
    if (a > 20) {
        cg::coalesced_group active = cg::coalesced_threads();
        PUT(active.size() * 100 + active.thread_rank());
        PUT(active.shfl(a, 0));
    } else {
        PUT(-1);
        PUT(-2);
    }
    block.sync();
    PUT(block.thread_rank() + block.group_index().x * 1000);
}

// Tiles of several warps, which keep their barriers in the shared memory that the system reserves.
extern "C" __global__ void large_tiles(const int* x, int* out)
{
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<64>(block);
    const unsigned i = THREAD;
    out[i] = cg::reduce(tile, x[i], cg::plus<int>()) + 10000 * (int)tile.thread_rank();
    tile.sync();
    auto whole = cg::tiled_partition<128>(block);
    out[i] += whole.shfl(x[i], 40) * 1000000 + whole.any(x[i] == 7);
}

// Two passes over a grid that waits for all its blocks in between.
extern "C" __global__ void whole_grid(const int* x, int* partial, int* total)
{
    cg::grid_group grid = cg::this_grid();
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int sum = cg::reduce(warp, x[grid.thread_rank()], cg::plus<int>());
    if (warp.thread_rank() == 0)
        partial[grid.thread_rank() / 32] = sum;
    grid.sync();
    int all = 0;
    for (unsigned j = 0; j < grid.size() / 32; j++)
        all += partial[j];
    total[grid.thread_rank()] = all;
}

// Block-wide reduction as in many code bases: shuffles, shared memory, shuffles; then one atomic.
template <typename T>
__device__ T block_sum(T value)
{
    __shared__ T part[32];
    for (int offset = 16; offset; offset >>= 1)
        value += __shfl_down_sync(ALL, value, offset);
    if ((threadIdx.x & 31) == 0)
        part[threadIdx.x >> 5] = value;
    __syncthreads();
    value = threadIdx.x < (blockDim.x + 31) / 32 ? part[threadIdx.x & 31] : T(0);
    if (threadIdx.x < 32)
        for (int offset = 16; offset; offset >>= 1)
            value += __shfl_down_sync(ALL, value, offset);
    return value;
}

extern "C" __global__ void sums(const float* x, int n, float* single, double* twice)
{
    float a = 0;
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        a += x[i];
    const float s = block_sum(a);
    __syncthreads();
    const double d = block_sum((double)a);
    if (threadIdx.x == 0) {
        atomicAdd(single, s);
        atomicAdd(twice, d);
    }
}
