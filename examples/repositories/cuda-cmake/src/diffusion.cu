#include "diffusion.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace {

constexpr int TILE = 16;
constexpr int BLOCK = 256;

void check(cudaError_t code)
{
    if (code != cudaSuccess)
        throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(code));
}

template <class T> class Buffer {
  public:
    explicit Buffer(size_t count) : bytes_(count * sizeof(T)) { check(cudaMalloc(&data_, bytes_)); }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    T *get() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    size_t bytes_;
    T *data_ = nullptr;
};

} // namespace

// One step: each block loads a tile with its halo, so that every temperature is read from global memory about once.
__global__ void step(const float *from, float *to, int size, float rate)
{
    __shared__ float tile[TILE + 2][TILE + 2];
    const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = threadIdx.y; row < TILE + 2; row += TILE)
        for (int column = threadIdx.x; column < TILE + 2; column += TILE) {
            const int i = min(max(int(blockIdx.x) * TILE + column - 1, 0), size - 1);
            const int j = min(max(int(blockIdx.y) * TILE + row - 1, 0), size - 1);
            tile[row][column] = from[j * size + i];
        }
    __syncthreads();
    if (x >= size || y >= size)
        return;
    const int i = threadIdx.x + 1, j = threadIdx.y + 1;
    const float here = tile[j][i];
    const float around = tile[j][i - 1] + tile[j][i + 1] + tile[j - 1][i] + tile[j + 1][i];
    const bool border = x == 0 || y == 0 || x == size - 1 || y == size - 1;
    to[y * size + x] = border ? here : here + rate * (around - 4 * here);
}

// The sum of squared differences: a grid-stride loop, then a tree in shared memory, then one atomic for each block.
__global__ void squared_change(const float *before, const float *after, int count, double *sum)
{
    __shared__ double partial[BLOCK];
    double mine = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) {
        const double difference = double(after[i]) - before[i];
        mine += difference * difference;
    }
    partial[threadIdx.x] = mine;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, partial[0]);
}

Result diffuse(const std::vector<float> &plate, int size, int steps, float rate)
{
    const int count = size * size;
    Buffer<float> first(count), second(count);
    Buffer<double> sum(1);
    check(cudaMemcpy(first.get(), plate.data(), first.bytes(), cudaMemcpyHostToDevice));
    check(cudaMemset(sum.get(), 0, sum.bytes()));

    float *now = first.get(), *next = second.get();
    const dim3 grid((size + TILE - 1) / TILE, (size + TILE - 1) / TILE), block(TILE, TILE);
    for (int i = 0; i < steps; i++) {
        step<<<grid, block>>>(now, next, size, rate);
        std::swap(now, next);
    }
    squared_change<<<4, BLOCK>>>(next, now, count, sum.get());
    check(cudaGetLastError());

    Result result{std::vector<float>(count), 0};
    check(cudaMemcpy(result.plate.data(), now, first.bytes(), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(&result.change, sum.get(), sum.bytes(), cudaMemcpyDeviceToHost));
    return result;
}
