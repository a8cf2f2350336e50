// The warp-specialised product of warpgroup_gemm.cu with tiles that the tensor memory accelerator brings, swizzled on the way.

#include <cuda.h>

#include "warpgroup_tile.cuh"

__device__ inline void copy_tile(half* tile, const CUtensorMap* map, int k, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared_address(tile)),
        "l"(map), "r"(k), "r"(row), "r"(shared_address(barrier))
        : "memory");
}

// One thread that copies and two warpgroups that multiply, a ring of stages between them. m, n: multiples of 128, k of 64. The maps
// have boxes of 64 elements of k and 128 rows.
extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * GROUP, 1)
    hgemm_tma(int n, int k, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    Stage* stages = reinterpret_cast<Stage*>(dynamic);
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int group = threadIdx.x / GROUP, steps = k / DEPTH;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&full[stage])), "r"(1));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[stage])),
                         "r"(CONSUMERS * GROUP));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int step = 0; step < steps; ++step) {
                Stage& stage = stages[step % STAGES];
                uint64_t* barrier = &full[step % STAGES];
                wait(&empty[step % STAGES], (step / STAGES + 1) & 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                             "r"(uint32_t(sizeof(Stage)))
                             : "memory");
                copy_tile(stage.a, &a, step * DEPTH, blockIdx.y * CONSUMERS * ROWS, barrier);
                copy_tile(stage.b, &b, step * DEPTH, blockIdx.x * COLUMNS, barrier);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sum[64] = {};
        for (int step = 0; step < steps; ++step) {
            const Stage& stage = stages[step % STAGES];
            wait(&full[step % STAGES], step / STAGES & 1);
            multiply_tile(sum, stage.a + (group - 1) * ROWS * DEPTH, stage.b);
            if (step > 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                arrive(&empty[(step - 1) % STAGES]);
            }
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        c += (int64_t(blockIdx.y) * CONSUMERS + group - 1) * ROWS * n + int64_t(blockIdx.x) * COLUMNS;
        store(c, sum, n);
    }
}
