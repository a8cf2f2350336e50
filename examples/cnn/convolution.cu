// Convolution by implicit GEMM: filters (K x CRS) times the patches of the images (CRS x NPQ), where the matrix of patches
// is never stored: its tiles are gathered from the images on their way to shared memory.
//
// A block of 256 threads computes 64 filters at 64 pixels, each thread 4 x 4 of them in registers. Tiles are double
// buffered: while one is multiplied, the next is on its way. Accepts any sizes.
#include "tensor.cuh"

struct Shape {
    int images, channels, height, width;  // of the input, N C H W
    int filters, out_height, out_width;   // of the output, K P Q
    int stride, padding;
};

constexpr int kTile = 64;   // filters and pixels per block
constexpr int kDepth = 16;  // rows of the patch matrix per step
constexpr int kPiece = 4;   // filters and pixels per thread
constexpr int kThreads = (kTile / kPiece) * (kTile / kPiece);
constexpr int kLoads = kTile * kDepth / kThreads;  // elements of each tile that a thread moves

template <int kSize>  // height and width of a filter
__device__ inline void convolve(const Shape& shape, const float* __restrict__ images, const float* __restrict__ filters,
                                float* __restrict__ out)
{
    __shared__ __align__(16) float tile_f[2][kDepth][kTile + kPiece];  // transposed; padded against bank conflicts
    __shared__ __align__(16) float tile_p[2][kDepth][kTile];
    const int t = threadIdx.x;
    const int plane = shape.out_height * shape.out_width;
    const int pixels = shape.images * plane;
    const int depth = shape.channels * kSize * kSize;
    const int first_filter = blockIdx.y * kTile;
    const int first_pixel = blockIdx.x * kTile;

    // Each thread gathers patches of one pixel, so the divisions that find its place are done once.
    const int pixel = first_pixel + t % kTile;
    const int image = pixel / plane;
    const int row = pixel % plane / shape.out_width * shape.stride - shape.padding;
    const int col = pixel % shape.out_width * shape.stride - shape.padding;
    const float* const origin = images + (image * shape.channels * shape.height + row) * shape.width + col;

    const auto fetch = [&](int buffer, int first) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int f = t / kDepth + i * (kThreads / kDepth);
            const int k = t % kDepth;
            const bool inside = (first_filter + f < shape.filters) & (first + k < depth);
            copy_or_zero(&tile_f[buffer][k][f], filters + (first_filter + f) * depth + first + k, inside);
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int k = t / kTile + i * (kThreads / kTile);
            const int c = (first + k) / (kSize * kSize);
            const int r = (first + k) / kSize % kSize;
            const int s = (first + k) % kSize;
            const bool inside = (pixel < pixels) & (first + k < depth) &
                                (static_cast<unsigned>(row + r) < shape.height) &
                                (static_cast<unsigned>(col + s) < shape.width);
            copy_or_zero(&tile_p[buffer][k][t % kTile], origin + (c * shape.height + r) * shape.width + s, inside);
        }
    };

    const int piece_f = t / (kTile / kPiece) * kPiece;
    const int piece_p = t % (kTile / kPiece) * kPiece;
    float sum[kPiece][kPiece] = {};
    int buffer = 0;
    fetch(buffer, 0);
    for (int first = 0; first < depth; first += kDepth) {
        wait_for_copies();
        __syncthreads();  // the tile is there, and everyone is done with the other buffer
        fetch(buffer ^ 1, first + kDepth);
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            const float4 f = *reinterpret_cast<const float4*>(&tile_f[buffer][i][piece_f]);
            const float4 p = *reinterpret_cast<const float4*>(&tile_p[buffer][i][piece_p]);
            const float left[kPiece] = {f.x, f.y, f.z, f.w};
            const float right[kPiece] = {p.x, p.y, p.z, p.w};
#pragma unroll
            for (int a = 0; a < kPiece; ++a)
#pragma unroll
                for (int b = 0; b < kPiece; ++b)
                    sum[a][b] += left[a] * right[b];
        }
        buffer ^= 1;
    }

    // Only blocks at the edge look whether each result has a place.
    const bool whole = first_filter + kTile <= shape.filters && first_pixel + kTile <= pixels;
    const auto store = [&](bool guarded) {
#pragma unroll
        for (int b = 0; b < kPiece; ++b) {
            const int where = first_pixel + piece_p + b;
            float* const target = out + where / plane * shape.filters * plane + where % plane;
#pragma unroll
            for (int a = 0; a < kPiece; ++a) {
                const int f = first_filter + piece_f + a;
                if (!guarded || (f < shape.filters && where < pixels))
                    target[f * plane] = sum[a][b];
            }
        }
    };
    if (whole)
        store(false);
    else
        store(true);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    convolution_3x3(Shape shape, const float* __restrict__ images, const float* __restrict__ filters,
                    float* __restrict__ out)
{
    convolve<3>(shape, images, filters, out);
}

// A pointwise convolution, the greater part of a depthwise separable one: a patch is one pixel.
extern "C" __global__ void __launch_bounds__(kThreads)
    convolution_1x1(Shape shape, const float* __restrict__ images, const float* __restrict__ filters,
                    float* __restrict__ out)
{
    convolve<1>(shape, images, filters, out);
}
