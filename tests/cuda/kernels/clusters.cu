// Clusters through the CUDA C++ library (cooperative groups) and, where it has no word for something, inline PTX.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// What a thread can ask about its cluster; 20 numbers per thread.
extern "C" __global__ void places(unsigned* out)
{
    __shared__ int anything;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned* own = out + 20 * (block * blockDim.x + threadIdx.x);
    dim3 index = cluster.block_index(), blocks = cluster.dim_blocks(), threads = cluster.dim_threads();
    dim3 thread = cluster.thread_index();
    own[0] = index.x, own[1] = index.y, own[2] = index.z;
    own[3] = blocks.x, own[4] = blocks.y, own[5] = blocks.z;
    own[6] = threads.x, own[7] = threads.y, own[8] = threads.z;
    own[9] = thread.x, own[10] = thread.y, own[11] = thread.z;
    own[12] = cluster.block_rank(), own[13] = cluster.num_blocks();
    own[14] = cluster.thread_rank(), own[15] = cluster.num_threads();
    unsigned last = cluster.num_blocks() - 1;
    own[16] = cluster.query_shared_rank(&anything);
    own[17] = cluster.query_shared_rank(cluster.map_shared_rank(&anything, last));
    own[18] = __isShared(&anything) + 2 * __isClusterShared(&anything);
    int* far = cluster.map_shared_rank(&anything, last);
    own[19] = __isShared(far) + 2 * __isClusterShared(far);
}

// Every thread hands its number to the next block of the cluster, as often as asked; the barrier comes in two halves.
extern "C" __global__ void pass_on(int* out, int rounds)
{
    extern __shared__ int slots[];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    int* there = cluster.map_shared_rank(slots, next);
    int value = blockIdx.x * blockDim.x + threadIdx.x;
    cluster.sync();
    for (int round = 0; round < rounds; round++) {
        there[blockDim.x * (round & 1) + threadIdx.x] = value;
        auto token = cluster.barrier_arrive();
        int more = 2 * round;
        cluster.barrier_wait(std::move(token));
        value = slots[blockDim.x * (round & 1) + threadIdx.x] + more;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
    cluster.sync();
}

// Atomics of every width on the first block's shared memory.
extern "C" __global__ void meet(unsigned long long* wide, unsigned* words, float* floats, int* locked)
{
    __shared__ unsigned long long sum, largest;
    __shared__ unsigned count, bits, lock;
    __shared__ float total;
    __shared__ int guarded;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.thread_rank();
    if (threadIdx.x == 0)
        sum = largest = 0, count = bits = lock = 0, total = 0, guarded = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&sum, 0), (1ull << 33) + rank);
    atomicMax(cluster.map_shared_rank(&largest, 0), (unsigned long long)rank << 32);
    atomicInc(cluster.map_shared_rank(&count, 0), 99u);
    atomicOr(cluster.map_shared_rank(&bits, 0), 1u << (rank % 31));
    atomicAdd(cluster.map_shared_rank(&total, 0), 0.25f * rank);
    if (threadIdx.x % 32 == 0) {
        unsigned* gate = cluster.map_shared_rank(&lock, 0);
        volatile int* inside = cluster.map_shared_rank(&guarded, 0);
        while (atomicCAS(gate, 0u, 1u) != 0u) {
        }
        *inside = *inside + 3;
        __threadfence();
        atomicExch(gate, 0u);
    }
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        unsigned place = blockIdx.x / cluster.num_blocks();
        wide[2 * place] = sum, wide[2 * place + 1] = largest;
        words[2 * place] = count, words[2 * place + 1] = bits;
        floats[place] = total, locked[place] = guarded;
    }
}

// A matrix transposed by clusters of 2 x 2 blocks: each tile is read from the block across the diagonal.
extern "C" __global__ void __cluster_dims__(2, 2, 1) transpose_pairs(const float* __restrict__ in, float* __restrict__ out, int n)
{
    __shared__ float tile[16][17];
    cg::cluster_group cluster = cg::this_cluster();
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[row * n + column];
    cluster.sync();
    dim3 index = cluster.block_index();
    float* across = cluster.map_shared_rank(&tile[0][0], index.y + 2 * index.x);
    // what lies at (column, row) of this cluster's part comes to (row, column) of the part mirrored at the main diagonal
    int mirrored_row = (blockIdx.x - index.x + index.y) * 16 + threadIdx.y;
    int mirrored_column = (blockIdx.y - index.y + index.x) * 16 + threadIdx.x;
    out[mirrored_row * n + mirrored_column] = across[threadIdx.x * 17 + threadIdx.y];
    cluster.sync();
}

__device__ unsigned shared_address(const void* pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// The address arithmetic of libraries: the even block of a pair by a mask, its partner by an exclusive or.
extern "C" __global__ void pairs(int4* out, int from)
{
    __shared__ int4 own[32];
    unsigned rank, here = shared_address(&own[threadIdx.x]);
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    own[threadIdx.x] = make_int4(from, rank, threadIdx.x, blockIdx.x);
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    int4 even, other;
    asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(even.x), "=r"(even.y), "=r"(even.z), "=r"(even.w) : "r"(here & 0xFEFFFFFFu) : "memory");
    asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(other.x), "=r"(other.y), "=r"(other.z), "=r"(other.w) : "r"(here ^ 0x01000000u) : "memory");
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    int4* place = out + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    place[0] = even, place[1] = other;
}
