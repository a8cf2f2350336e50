// Transpose of a rows x cols matrix through a shared tile, so that both global sides are read and written in whole
// lines. Launched with 32 x 8 threads per 32 x 32 tile.

constexpr int kTile = 32;
constexpr int kRowsPerPass = 8;

template <int kPitch>
__device__ void transpose(int rows, int cols, const float* __restrict__ in, float* __restrict__ out)
{
    __shared__ float tile[kTile][kPitch];

    int col = blockIdx.x * kTile + threadIdx.x;
    int row = blockIdx.y * kTile + threadIdx.y;
#pragma unroll
    for (int pass = 0; pass < kTile; pass += kRowsPerPass)
        if (row + pass < rows && col < cols)
            tile[threadIdx.y + pass][threadIdx.x] = in[(row + pass) * cols + col];
    __syncthreads();

    col = blockIdx.y * kTile + threadIdx.x;
    row = blockIdx.x * kTile + threadIdx.y;
#pragma unroll
    for (int pass = 0; pass < kTile; pass += kRowsPerPass)
        if (row + pass < cols && col < rows)
            out[(row + pass) * rows + col] = tile[threadIdx.x][threadIdx.y + pass];
}

// A column of the tile lies in one bank: every read of the second half is a 32-way conflict.
extern "C" __global__ void transpose_conflicts(int rows, int cols, const float* __restrict__ in,
                                               float* __restrict__ out)
{
    transpose<kTile>(rows, cols, in, out);
}

// One unused word per row moves neighbouring rows to neighbouring banks: no conflict.
extern "C" __global__ void transpose_padded(int rows, int cols, const float* __restrict__ in, float* __restrict__ out)
{
    transpose<kTile + 1>(rows, cols, in, out);
}
