// C = A * diag(d) * B in single precision, row major: A is m x k, d has k entries, B is k x n, C is m x n.

constexpr int kTile = 16;

extern "C" __global__ void sgemm_tiled(int m, int n, int k, const float* __restrict__ a, const float* __restrict__ d,
                                       const float* __restrict__ b, float* __restrict__ c)
{
    __shared__ float tile_a[kTile][kTile];
    __shared__ float tile_b[kTile][kTile];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * kTile + y;
    const int col = blockIdx.x * kTile + x;

    float sum = 0.0f;
    for (int first = 0; first < k; first += kTile) {
        tile_a[y][x] = row < m && first + x < k ? a[row * k + first + x] * d[first + x] : 0.0f;
        tile_b[y][x] = first + y < k && col < n ? b[(first + y) * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTile; ++i)
            sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < m && col < n)
        c[row * n + col] = sum;
}
