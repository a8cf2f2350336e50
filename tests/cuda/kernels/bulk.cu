// Bulk copies through cuda::ptx and cuda::device::memcpy_async_tx: the copies of the CUDA programming guide, for sm_90.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

// In place: in through a barrier of the library, out in a group of bulk copies.
extern "C" __global__ void add_one(int *data, int offset) {
  __shared__ alignas(16) int tile[1024];
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::memcpy_async(tile, data + offset + blockIdx.x * 1024, cuda::aligned_size_t<16>(sizeof(tile)), bar);
    token = bar.arrive();
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] += 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, data + offset + blockIdx.x * 1024, tile, sizeof(tile));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}

// A warp that copies, four stages ahead of the warps that add: full and empty objects, parities that alternate.
extern "C" __global__ void columns(const float *in, float *out, int tiles) {
  constexpr int stages = 4, width = 128;
  __shared__ alignas(128) float ring[stages][width];
  __shared__ alignas(8) uint64_t full[stages], empty[stages];
  if (threadIdx.x == 0)
    for (int s = 0; s < stages; s++) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], width);
    }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0)
      for (int t = 0; t < tiles; t++) {
        int s = t % stages;
        if (t >= stages)
          while (!ptx::mbarrier_try_wait_parity(&empty[s], (t / stages - 1) & 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], width * 4);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, ring[s], in + t * width, width * 4, &full[s]);
      }
  } else {
    float sum = 0;
    for (int t = 0; t < tiles; t++) {
      int s = t % stages;
      while (!ptx::mbarrier_try_wait_parity(&full[s], (t / stages) & 1)) {}
      sum += ring[s][threadIdx.x - 32];
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &empty[s]);
    }
    out[threadIdx.x - 32] = sum;
  }
}

// Histograms of the blocks, summed in global memory by one bulk reduction each.
extern "C" __global__ void histogram(const unsigned char *in, unsigned *out, int n) {
  __shared__ alignas(16) unsigned counts[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&counts[in[i]], 1);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, out, counts, sizeof(counts));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}

// Each block of a cluster sends its values to the next: st.async, and an object that counts the bytes.
extern "C" __global__ void __cluster_dims__(4, 1, 1) rotate(const int *in, int *out) {
  __shared__ alignas(16) int inbox[64];
  __shared__ alignas(8) uint64_t bar;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof(inbox));
  }
  cluster.sync();
  int next = (cluster.block_rank() + 1) % cluster.num_blocks();
  int *there = cluster.map_shared_rank(inbox, next);
  uint64_t *told = cluster.map_shared_rank(&bar, next);
  ptx::st_async(&there[threadIdx.x], in[blockIdx.x * 64 + threadIdx.x], told);
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
  out[blockIdx.x * 64 + threadIdx.x] = inbox[threadIdx.x];
  cluster.sync();
}
