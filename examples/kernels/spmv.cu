// y = A * x for a sparse matrix in compressed sparse rows: row r holds values[offsets[r]] ... values[offsets[r + 1] - 1].

constexpr int kWarp = 32;

// One thread per row: lanes walk rows of different lengths, and their loads are far apart.
extern "C" __global__ void spmv_scalar(int rows, const int* __restrict__ offsets, const int* __restrict__ columns,
                                       const float* __restrict__ values, const float* __restrict__ x,
                                       float* __restrict__ y)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int e = offsets[row]; e < offsets[row + 1]; ++e)
        sum += values[e] * x[columns[e]];
    y[row] = sum;
}

// One warp per row: the lanes read a row in whole lines and add up by shuffles. The block is a multiple of the warp.
extern "C" __global__ void spmv_vector(int rows, const int* __restrict__ offsets, const int* __restrict__ columns,
                                       const float* __restrict__ values, const float* __restrict__ x,
                                       float* __restrict__ y)
{
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
    const int lane = threadIdx.x % kWarp;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int e = offsets[row] + lane; e < offsets[row + 1]; e += kWarp)
        sum += values[e] * x[columns[e]];
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0)
        y[row] = sum;
}
