// Asynchronous copies to shared memory: pipelines as CUDA C++ has them, and cp.async by hand with sizes and ignored copies.

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

// Two stages: the next tile is on its way while this one is summed.
extern "C" __global__ void pipeline(const float4* x, float* sums, int tiles)
{
    __shared__ float4 stage[2][32];
    float sum = 0;
    __pipeline_memcpy_async(&stage[0][threadIdx.x], &x[threadIdx.x], 16);
    __pipeline_commit();
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) {
            __pipeline_memcpy_async(&stage[(t + 1) & 1][threadIdx.x], &x[(t + 1) * 32 + threadIdx.x], 16);
            __pipeline_commit();
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        const float4 v = stage[t & 1][31 - threadIdx.x];
        sum += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
        __syncthreads();
    }
    sums[threadIdx.x] = sum;
}

extern "C" __global__ void group_copy(const int* x, int* out, int n)
{
    extern __shared__ int buffer[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, buffer, x, sizeof(int) * n);
    cg::wait(block);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = buffer[n - 1 - i];
}

// Lanes copy 16, 8, 0 or 3 bytes of 16; every fifth is ignored, every seventh does not copy at all.
extern "C" __global__ void partial(const uint4* x, uint4* out, uint4* ignored)
{
    __shared__ uint4 stage[64];
    const unsigned lane = threadIdx.x;
    stage[lane] = make_uint4(7, 7, 7, 7);
    stage[lane + 32] = make_uint4(9, 9, 9, 9);
    const unsigned to = (unsigned)__cvta_generic_to_shared(&stage[lane]);
    const unsigned sizes[4] = {16, 8, 0, 3};
    const uint4* from = (lane & 3) == 2 ? nullptr : &x[lane];
    if (lane % 7 != 6)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(sizes[lane & 3]) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], 8, p; }" ::"r"(to + 512), "l"(&x[lane]),
                 "r"(lane % 5 == 4 ? 1 : 0) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[lane] = stage[lane];
    ignored[lane] = stage[lane + 32];
}

extern "C" __global__ void outside(const int* x, int* out)
{
    __shared__ int stage[32];
    __pipeline_memcpy_async(&stage[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[threadIdx.x] = stage[threadIdx.x];
}
