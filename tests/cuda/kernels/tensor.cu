// Tensor copies through cuda::ptx, with maps as __grid_constant__ parameters, for sm_90.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_fp16.h>

namespace ptx = cuda::ptx;

// The matrix is transposed tile by tile: in with a tensor copy, out with another, what lies outside left alone.
extern "C" __global__ void transpose(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
  constexpr int tile = 32;
  __shared__ alignas(128) float from[tile][tile], to[tile][tile];
  __shared__ alignas(8) uint64_t bar;
  int x = blockIdx.x * tile, y = blockIdx.y * tile;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    const int32_t place[2] = {x, y};
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof(from));
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, from, &in, place, &bar);
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
  for (int i = threadIdx.x; i < tile * tile; i += blockDim.x) to[i % tile][i / tile] = from[i / tile][i % tile];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    const int32_t place[2] = {y, x};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &out, place, to);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}

// Row sums of a matrix of halves whose tiles come swizzled: the reader undoes it.
extern "C" __global__ void row_sums(const __grid_constant__ CUtensorMap in, float *out, int tiles) {
  constexpr int rows = 64, columns = 64, stages = 2;
  __shared__ alignas(1024) half ring[stages][rows * columns];
  __shared__ alignas(8) uint64_t full[stages], empty[stages];
  if (threadIdx.x == 0)
    for (int s = 0; s < stages; s++) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], rows);
    }
  __syncthreads();
  if (threadIdx.x >= rows) {
    if (threadIdx.x == rows)
      for (int t = 0; t < tiles; t++) {
        int s = t % stages;
        if (t >= stages)
          while (!ptx::mbarrier_try_wait_parity(&empty[s], (t / stages - 1) & 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], sizeof(ring[s]));
        const int32_t place[2] = {t * columns, int(blockIdx.x) * rows};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, ring[s], &in, place, &full[s]);
      }
    return;
  }
  float sum = 0;
  for (int t = 0; t < tiles; t++) {
    int s = t % stages;
    while (!ptx::mbarrier_try_wait_parity(&full[s], (t / stages) & 1)) {}
    for (int c = 0; c < columns; c++) {
      int chunk = (c / 8) ^ (threadIdx.x % 8);
      sum += __half2float(ring[s][threadIdx.x * columns + chunk * 8 + c % 8]) * (c + 1);
    }
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &empty[s]);
  }
  out[blockIdx.x * rows + threadIdx.x] = sum;
}
