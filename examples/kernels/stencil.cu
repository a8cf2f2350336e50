// One step of 2-D heat diffusion, a five-point stencil. Border cells are kept.

// Weight of the cell itself and of each of its four neighbours. They sum to one, so heat is conserved.
__constant__ float kCentreWeight = 0.5f;
__constant__ float kNeighbourWeight = 0.125f;

// Neighbours straight from global memory: their lines overlap, and the caches serve them.
extern "C" __global__ void heat_step(int width, int height, const float* __restrict__ in, float* __restrict__ out)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;

    const int i = y * width + x;
    const float centre = in[i];
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[i] = centre;
        return;
    }
    const float around = (in[i - 1] + in[i + 1]) + (in[i - width] + in[i + width]);
    out[i] = kCentreWeight * centre + kNeighbourWeight * around;
}

// The same step from a shared tile with a one-cell halo; launched with 32 x 8 threads.
constexpr int kWidth = 32;
constexpr int kHeight = 8;

extern "C" __global__ void heat_step_shared(int width, int height, const float* __restrict__ in,
                                            float* __restrict__ out)
{
    __shared__ float tile[kHeight + 2][kWidth + 2];
    const int first_x = blockIdx.x * kWidth - 1;
    const int first_y = blockIdx.y * kHeight - 1;
    for (int e = threadIdx.y * kWidth + threadIdx.x; e < (kHeight + 2) * (kWidth + 2); e += kWidth * kHeight) {
        const int x = first_x + e % (kWidth + 2);
        const int y = first_y + e / (kWidth + 2);
        tile[e / (kWidth + 2)][e % (kWidth + 2)] =
            x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0.0f;
    }
    __syncthreads();

    const int tx = threadIdx.x + 1;
    const int ty = threadIdx.y + 1;
    const int x = first_x + tx;
    const int y = first_y + ty;
    if (x >= width || y >= height)
        return;

    const float centre = tile[ty][tx];
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * width + x] = centre;
        return;
    }
    const float around = (tile[ty][tx - 1] + tile[ty][tx + 1]) + (tile[ty - 1][tx] + tile[ty + 1][tx]);
    out[y * width + x] = kCentreWeight * centre + kNeighbourWeight * around;
}
