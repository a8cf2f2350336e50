// Textures and surfaces as CUDA C++ has them: objects passed by value, in structures and in tables.

#include <cuda_runtime.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

__device__ float4 wide(float v) { return make_float4(v, 0, 0, 0); }
__device__ float4 wide(float2 v) { return make_float4(v.x, v.y, 0, 0); }
__device__ float4 wide(float4 v) { return v; }
__device__ int4 wide(int v) { return make_int4(v, 0, 0, 0); }
__device__ int4 wide(unsigned v) { return make_int4(v, 0, 0, 0); }
__device__ int4 wide(short v) { return make_int4(v, 0, 0, 0); }
__device__ int4 wide(ushort2 v) { return make_int4(v.x, v.y, 0, 0); }
__device__ int4 wide(char4 v) { return make_int4(v.x, v.y, v.z, v.w); }
__device__ int4 wide(uchar4 v) { return make_int4(v.x, v.y, v.z, v.w); }

// One kernel per geometry and type of texel: coordinates in, four components out.
#define FETCHES(TYPE, WIDE)                                                                                                     \
    extern "C" __global__ void fetch_1d_##TYPE(cudaTextureObject_t t, const float* x, const float*, const float*, const int*,  \
                                               WIDE* out)                                                                      \
    {                                                                                                                          \
        out[THREAD] = wide(tex1D<TYPE>(t, x[THREAD]));                                                                         \
    }                                                                                                                          \
    extern "C" __global__ void fetch_2d_##TYPE(cudaTextureObject_t t, const float* x, const float* y, const float*, const int*, \
                                               WIDE* out)                                                                      \
    {                                                                                                                          \
        out[THREAD] = wide(tex2D<TYPE>(t, x[THREAD], y[THREAD]));                                                              \
    }                                                                                                                          \
    extern "C" __global__ void fetch_3d_##TYPE(cudaTextureObject_t t, const float* x, const float* y, const float* z,          \
                                               const int*, WIDE* out)                                                          \
    {                                                                                                                          \
        out[THREAD] = wide(tex3D<TYPE>(t, x[THREAD], y[THREAD], z[THREAD]));                                                   \
    }                                                                                                                          \
    extern "C" __global__ void fetch_a1d_##TYPE(cudaTextureObject_t t, const float* x, const float*, const float*,             \
                                                const int* layer, WIDE* out)                                                   \
    {                                                                                                                          \
        out[THREAD] = wide(tex1DLayered<TYPE>(t, x[THREAD], layer[THREAD]));                                                   \
    }                                                                                                                          \
    extern "C" __global__ void fetch_a2d_##TYPE(cudaTextureObject_t t, const float* x, const float* y, const float*,           \
                                                const int* layer, WIDE* out)                                                   \
    {                                                                                                                          \
        out[THREAD] = wide(tex2DLayered<TYPE>(t, x[THREAD], y[THREAD], layer[THREAD]));                                        \
    }                                                                                                                          \
    extern "C" __global__ void fetch_int_##TYPE(cudaTextureObject_t t, const int* x, WIDE* out)                                \
    {                                                                                                                          \
        out[THREAD] = wide(tex1Dfetch<TYPE>(t, x[THREAD]));                                                                    \
    }

FETCHES(float, float4)
FETCHES(float2, float4)
FETCHES(float4, float4)
FETCHES(int, int4)
FETCHES(unsigned, int4)
FETCHES(short, int4)
FETCHES(ushort2, int4)
FETCHES(char4, int4)
FETCHES(uchar4, int4)

extern "C" __global__ void levels(cudaTextureObject_t t, const float* x, const float* y, float* out)
{
    float a = x[THREAD], b = y[THREAD];
    out[2 * THREAD] = tex2DLod<float>(t, a, b, 1.5f);
    out[2 * THREAD + 1] = tex2DGrad<float>(t, a, b, make_float2(0.5f, 1), make_float2(2, 0.25f));
}

extern "C" __global__ void gathers(cudaTextureObject_t t, const float* x, const float* y, float4* out)
{
    out[4 * THREAD] = tex2Dgather<float4>(t, x[THREAD], y[THREAD], 0);
    out[4 * THREAD + 1] = tex2Dgather<float4>(t, x[THREAD], y[THREAD], 1);
    out[4 * THREAD + 2] = tex2Dgather<float4>(t, x[THREAD], y[THREAD], 2);
    out[4 * THREAD + 3] = tex2Dgather<float4>(t, x[THREAD], y[THREAD], 3);
}

// Lanes of a warp fetch from different textures, some of them from none.
extern "C" __global__ void table(const cudaTextureObject_t* textures, int count, const float* x, const float* y, float* out)
{
    int which = THREAD % (count + 1);
    out[THREAD] = which < count ? tex2D<float>(textures[which], x[THREAD], y[THREAD]) : -1;
}

// A picture turned and filtered: what textures are made for.
extern "C" __global__ void rotate(cudaTextureObject_t picture, uchar4* out, int width, int height, float cosine, float sine)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float u = (x + 0.5f) / width - 0.5f, v = (y + 0.5f) / height - 0.5f;
    float4 found = tex2D<float4>(picture, u * cosine - v * sine + 0.5f, v * cosine + u * sine + 0.5f);
    out[y * width + x] = make_uchar4(rintf(found.x * 255), rintf(found.y * 255), rintf(found.z * 255), rintf(found.w * 255));
}

// Each thread adds the texel on its left, read through a surface, and writes to another one.
extern "C" __global__ void shift(cudaSurfaceObject_t from, cudaSurfaceObject_t to)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float here, left;
    surf2Dread(&here, from, x * 4, y, cudaBoundaryModeTrap);
    surf2Dread(&left, from, (x - 1) * 4, y, cudaBoundaryModeZero);
    surf2Dwrite(here + left, to, x * 4, y, cudaBoundaryModeTrap);
}

template <cudaSurfaceBoundaryMode MODE>
__device__ void around(cudaSurfaceObject_t s, int4* out)
{
    int x = (int)THREAD - 8;
    uchar4 a;
    short2 b;
    int4 c;
    surf1Dread(&a, s, 4 * x, MODE);
    surf1Dread(&b, s, 4 * x, MODE);
    surf1Dread(&c, s, 16 * x, MODE);
    out[3 * THREAD] = make_int4(a.x, a.y, a.z, a.w);
    out[3 * THREAD + 1] = make_int4(b.x, b.y, 0, 0);
    out[3 * THREAD + 2] = c;
}
extern "C" __global__ void around_zero(cudaSurfaceObject_t s, int4* out) { around<cudaBoundaryModeZero>(s, out); }
extern "C" __global__ void around_clamp(cudaSurfaceObject_t s, int4* out) { around<cudaBoundaryModeClamp>(s, out); }
extern "C" __global__ void around_trap(cudaSurfaceObject_t s, int4* out) { around<cudaBoundaryModeTrap>(s, out); }

// Every thread writes three times in each direction, once inside.
extern "C" __global__ void scatter(cudaSurfaceObject_t volume, cudaSurfaceObject_t layers)
{
    int x = threadIdx.x - 4, y = threadIdx.y - 2, z = threadIdx.z - 1;
    surf3Dwrite((short)(100 * z + 10 * y + x), volume, 2 * x, y, z, cudaBoundaryModeZero);
    surf2DLayeredwrite((unsigned char)(16 * z + 4 * y + x), layers, x, y, z, cudaBoundaryModeZero);
}

extern "C" __global__ void decides(cudaTextureObject_t t, const float* x, int* out)
{
    int steps = 0;
    for (float v = tex1D<float>(t, x[THREAD]); v > 1; v *= 0.5f)
        steps++;
    out[THREAD] = steps;
}
