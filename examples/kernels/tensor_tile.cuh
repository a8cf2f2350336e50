// Tiles of 64 x 64 results on tensor cores: C = A B^T, both factors with k running fastest.
//
// Whatever the type, a row of a tile is 64 bytes of k, and one mma.sync takes 32 of them. Tiles come through a ring of stages by
// cp.async; 16-byte pieces of a row are exchanged so that the eight rows of an ldmatrix lie in different banks.

#pragma once

#include <cstdint>

constexpr int TILE = 64;        // rows of A and of B
constexpr int ROW_BYTES = 64;   // of each, in one stage
constexpr int STAGES = 3;
constexpr int THREADS = 128;    // four warps, each with 32 x 32 results

using Stage = unsigned char[TILE * ROW_BYTES];

__device__ inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// where a 16-byte piece of a row lies
__device__ inline int piece_at(int row, int piece) {
    return row * ROW_BYTES + ((piece ^ (row >> 1 & 3)) << 4);
}

__device__ inline void copy_rows(unsigned char* tile, const unsigned char* rows, int64_t pitch) {
    for (int i = threadIdx.x; i < TILE * ROW_BYTES / 16; i += THREADS) {
        const int row = i >> 2, piece = i & 3;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(tile + piece_at(row, piece))),
                     "l"(rows + row * pitch + piece * 16));
    }
}

__device__ inline void load_matrices(uint32_t (&to)[4], const unsigned char* tile, int row, int piece) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(tile + piece_at(row, piece))));
}

// m, n: multiples of 64; bytes of k: a multiple of 64
template <typename Type>
__device__ void multiply(int n, int64_t k_bytes, const unsigned char* a, const unsigned char* b,
                         typename Type::Sum* c) {
    __shared__ alignas(128) Stage tile_a[STAGES];
    __shared__ alignas(128) Stage tile_b[STAGES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = (warp / 2) * 32, column = (warp % 2) * 32;
    a += int64_t(blockIdx.y) * TILE * k_bytes;
    b += int64_t(blockIdx.x) * TILE * k_bytes;
    const int steps = static_cast<int>(k_bytes / ROW_BYTES);
    typename Type::Sum sum[2][4][4] = {};

    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) {
            copy_rows(tile_a[stage], a + stage * ROW_BYTES, k_bytes);
            copy_rows(tile_b[stage], b + stage * ROW_BYTES, k_bytes);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        const int next = step + STAGES - 1;
        if (next < steps) {
            copy_rows(tile_a[next % STAGES], a + next * ROW_BYTES, k_bytes);
            copy_rows(tile_b[next % STAGES], b + next * ROW_BYTES, k_bytes);
        }
        asm volatile("cp.async.commit_group;");
        const unsigned char* here_a = tile_a[step % STAGES];
        const unsigned char* here_b = tile_b[step % STAGES];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t left[2][4], right[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_matrices(left[i], here_a, row + 16 * i + lane % 16, 2 * half + lane / 16);
                load_matrices(right[i], here_b, column + 16 * i + lane % 8 + lane / 16 * 8, 2 * half + lane / 8 % 2);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    Type::multiply(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
        }
    }
    c += (int64_t(blockIdx.y) * TILE + row) * n + int64_t(blockIdx.x) * TILE + column;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                typename Type::Sum* to =
                    c + int64_t(16 * i + lane / 4 + 8 * part) * n + 8 * j + lane % 4 * 2;
                to[0] = sum[i][j][2 * part];
                to[1] = sum[i][j][2 * part + 1];
            }
}
