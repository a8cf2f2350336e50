// Matrix products with the warpgroup instructions of sm_90a: C = A B^T, A of m x k and B of n x k in half precision.

#include "warpgroup_tile.cuh"

// One warpgroup, plain loads and stores. m: a multiple of 64, n of 128, k of 64.
extern "C" __global__ void __launch_bounds__(GROUP)
    hgemm_wgmma(int n, int k, const half* a, const half* b, float* c) {
    __shared__ alignas(1024) half tile_a[ROWS * DEPTH];
    __shared__ alignas(1024) half tile_b[COLUMNS * DEPTH];
    a += int64_t(blockIdx.y) * ROWS * k;
    b += int64_t(blockIdx.x) * COLUMNS * k;
    float sum[64] = {};
    for (int first = 0; first < k; first += DEPTH) {
        for (int i = threadIdx.x; i < (ROWS + COLUMNS) * 8; i += GROUP) {
            const int row = i / 8 % (ROWS + COLUMNS), piece = i % 8;
            const bool left = row < ROWS;
            const int line = left ? row : row - ROWS;
            const uint4 data = *reinterpret_cast<const uint4*>((left ? a : b) + int64_t(line) * k + first + piece * 8);
            *reinterpret_cast<uint4*>((left ? tile_a : tile_b) + piece_at(line, piece)) = data;
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        multiply_tile(sum, tile_a, tile_b);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    store(c + int64_t(blockIdx.y) * ROWS * n + int64_t(blockIdx.x) * COLUMNS, sum, n);
}

__device__ inline void copy_rows(half* tile, const half* rows, int count, int64_t pitch) {
    for (int i = threadIdx.x; i < count * 8; i += GROUP)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(tile + piece_at(i / 8, i % 8))),
                     "l"(rows + i / 8 * pitch + i % 8 * 8));
}

// A warpgroup that copies and two that multiply, a ring of stages between them. m, n: multiples of 128, k of 64.
extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * GROUP, 1)
    hgemm_specialised(int n, int k, const half* a, const half* b, float* c) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    Stage* stages = reinterpret_cast<Stage*>(dynamic);
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int group = threadIdx.x / GROUP, steps = k / DEPTH;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&full[stage])), "r"(GROUP));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[stage])),
                         "r"(CONSUMERS * GROUP));
        }
    }
    __syncthreads();
    a += int64_t(blockIdx.y) * CONSUMERS * ROWS * k;
    b += int64_t(blockIdx.x) * COLUMNS * k;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int step = 0; step <= steps; ++step) {
            if (step < steps) {
                Stage& stage = stages[step % STAGES];
                wait(&empty[step % STAGES], (step / STAGES + 1) & 1);
                copy_rows(stage.a, a + step * DEPTH, CONSUMERS * ROWS, k);
                copy_rows(stage.b, b + step * DEPTH, COLUMNS, k);
            }
            asm volatile("cp.async.commit_group;");
            if (step > 0) {  // the copies of the step before are done: show them to the asynchronous proxy
                asm volatile("cp.async.wait_group 1;" ::: "memory");
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                arrive(&full[(step - 1) % STAGES]);
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
