// cuda::barrier and cuda::pipeline of the C++ library: mbarrier objects, waits with states and parities, copies that arrive.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void ring(int *out, int rounds) {
  __shared__ barrier b;
  __shared__ int cell[256];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  int value = threadIdx.x;
  for (int r = 0; r < rounds; r++) {
    cell[threadIdx.x] = value;
    b.arrive_and_wait();
    value += cell[(threadIdx.x + 1) % blockDim.x];
    auto token = b.arrive();
    value += r;
    b.wait(std::move(token));
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
extern "C" __global__ void drops(int *out) {
  __shared__ barrier b;
  __shared__ int sum;
  if (threadIdx.x == 0) { init(&b, blockDim.x); sum = 0; }
  __syncthreads();
  for (int r = 0; r < (int)threadIdx.x / 32 + 1; r++) { atomicAdd(&sum, 1); b.arrive_and_wait(); }
  b.arrive_and_drop();
  if (threadIdx.x == blockDim.x - 1) out[blockIdx.x] = sum;
}
extern "C" __global__ void copies(const int *in, int *out) {
  __shared__ barrier b;
  __shared__ alignas(16) int tile[512];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  auto block = cg::this_thread_block();
  cuda::memcpy_async(block, tile, in + blockIdx.x * 512, cuda::aligned_size_t<16>(sizeof(int) * 512), b);
  b.arrive_and_wait();
  for (int i = threadIdx.x; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = tile[511 - i];
}
extern "C" __global__ void staged(const float *in, float *out, int n) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) float tile[2][128];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0;
  for (int fetch = 0, use = 0; use < n; use++) {
    for (; fetch < n && fetch < use + 2; fetch++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, tile[fetch % 2], in + fetch * 128, cuda::aligned_size_t<16>(512), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum += tile[use % 2][threadIdx.x ^ 1];
    pipe.consumer_release();
  }
  out[threadIdx.x] = sum;
}
extern "C" __global__ void partitioned(const float *in, float *out, int n) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) float tile[2][64];
  auto block = cg::this_thread_block();
  auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  if (role == cuda::pipeline_role::producer) {
    for (int i = 0; i < n; i++) {
      pipe.producer_acquire();
      cuda::memcpy_async(&tile[i % 2][threadIdx.x * 2], in + i * 64 + threadIdx.x * 2, 8, pipe);
      pipe.producer_commit();
    }
  } else {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      pipe.consumer_wait();
      sum += tile[i % 2][threadIdx.x - 32];
      pipe.consumer_release();
    }
    out[threadIdx.x - 32] = sum;
  }
}
