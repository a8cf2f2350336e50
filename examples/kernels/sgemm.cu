// C = A * B in single precision, row major: A is m x k, B is k x n, C is m x n. Four stages of the same product, each
// removing what limits the one before it. All accept any m, n and k.

// Stage 1. Neighbouring threads take neighbouring *rows*, so a warp touches 32 lines of A and of C at every access.
extern "C" __global__ void sgemm_naive(int m, int n, int k, const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n)
        return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

// Stage 2. Neighbouring threads take neighbouring *columns*: B and C are read and written in whole lines, and A is
// the same word for the whole warp.
extern "C" __global__ void sgemm_coalesced(int m, int n, int k, const float* __restrict__ a,
                                           const float* __restrict__ b, float* __restrict__ c)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

// Stage 3. A block of 16 x 16 threads stages tiles of A and B in shared memory: each word is fetched from global
// memory once per block instead of 16 times.
constexpr int kTile = 16;

extern "C" __global__ void sgemm_tiled(int m, int n, int k, const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c)
{
    __shared__ float tile_a[kTile][kTile];
    __shared__ float tile_b[kTile][kTile];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * kTile + y;
    const int col = blockIdx.x * kTile + x;

    float sum = 0.0f;
    for (int first = 0; first < k; first += kTile) {
        tile_a[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
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

// Stage 4. Each of 256 threads keeps a 4 x 4 piece of a 64 x 64 tile of C in registers: eight words from shared memory
// feed sixteen multiply-adds. A's tile is stored transposed, so that both operands are read as one 16-byte vector.
constexpr int kBlockTile = 64;
constexpr int kDepth = 16;
constexpr int kPiece = 4;
constexpr int kThreads = (kBlockTile / kPiece) * (kBlockTile / kPiece);

extern "C" __global__ void __launch_bounds__(kThreads)
    sgemm_register(int m, int n, int k, const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c)
{
    __shared__ __align__(16) float tile_a[kDepth][kBlockTile + kPiece];  // padded: the transposing store has no conflict
    __shared__ __align__(16) float tile_b[kDepth][kBlockTile];
    const int t = threadIdx.x;
    const int first_row = blockIdx.y * kBlockTile;
    const int first_col = blockIdx.x * kBlockTile;
    const int piece_row = t / (kBlockTile / kPiece) * kPiece;
    const int piece_col = t % (kBlockTile / kPiece) * kPiece;

    float sum[kPiece][kPiece] = {};
    for (int first = 0; first < k; first += kDepth) {
#pragma unroll
        for (int e = t; e < kBlockTile * kDepth; e += kThreads) {
            const int row = first_row + e / kDepth;
            const int depth = first + e % kDepth;
            tile_a[e % kDepth][e / kDepth] = row < m && depth < k ? a[row * k + depth] : 0.0f;
        }
#pragma unroll
        for (int e = t; e < kBlockTile * kDepth; e += kThreads) {
            const int depth = first + e / kBlockTile;
            const int col = first_col + e % kBlockTile;
            tile_b[e / kBlockTile][e % kBlockTile] = depth < k && col < n ? b[depth * n + col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            const float4 column = *reinterpret_cast<const float4*>(&tile_a[i][piece_row]);
            const float4 line = *reinterpret_cast<const float4*>(&tile_b[i][piece_col]);
            const float left[kPiece] = {column.x, column.y, column.z, column.w};
            const float right[kPiece] = {line.x, line.y, line.z, line.w};
#pragma unroll
            for (int r = 0; r < kPiece; ++r)
#pragma unroll
                for (int s = 0; s < kPiece; ++s)
                    sum[r][s] += left[r] * right[s];
        }
        __syncthreads();
    }

#pragma unroll
    for (int r = 0; r < kPiece; ++r)
#pragma unroll
        for (int s = 0; s < kPiece; ++s) {
            const int row = first_row + piece_row + r;
            const int col = first_col + piece_col + s;
            if (row < m && col < n)
                c[row * n + col] = sum[r][s];
        }
}
