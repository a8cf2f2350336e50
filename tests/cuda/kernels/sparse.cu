// Fetches from sparse textures as CUDA C++ has them: each says whether its texels are resident.

#include <cuda_runtime.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

// One kernel for each function: coordinates in, the texel and whether it is resident out.
#define FETCH(NAME, CALL)                                                                                                     \
    extern "C" __global__ void NAME(cudaTextureObject_t t, const float* a, const float* b, const float* c, const int* layer,  \
                                    float* out, int* there)                                                                   \
    {                                                                                                                         \
        float x = a[THREAD], y = b[THREAD], z = c[THREAD];                                                                    \
        int l = layer[THREAD];                                                                                                \
        bool resident;                                                                                                        \
        out[THREAD] = CALL;                                                                                                   \
        there[THREAD] = resident;                                                                                             \
    }
#define STEP2 make_float2(z, 0)
#define STEP4 make_float4(0.25f, 0, 0, 0)
FETCH(plane, tex2D<float>(t, x, y, &resident))
FETCH(volume, tex3D<float>(t, x, y, z, &resident))
FETCH(layers, tex2DLayered<float>(t, x, y, l, &resident))
FETCH(gather, tex2Dgather<float4>(t, x, y, &resident, 0).z)
FETCH(plane_level, tex2DLod<float>(t, x, y, z, &resident))
FETCH(volume_level, tex3DLod<float>(t, x, y, z, 1.0f, &resident))
FETCH(layers_level, tex2DLayeredLod<float>(t, x, y, l, z, &resident))
FETCH(plane_slope, tex2DGrad<float>(t, x, y, STEP2, STEP2, &resident))
FETCH(volume_slope, tex3DGrad<float>(t, x, y, z, STEP4, STEP4, &resident))
FETCH(layers_slope, tex2DLayeredGrad<float>(t, x, y, l, STEP2, STEP2, &resident))

// The finest level that is in memory, as programs that load levels on demand read it.
extern "C" __global__ void finest(cudaTextureObject_t t, const float* x, const float* y, int levels, float2* out)
{
    bool resident = false;
    float texel = -1;
    int level = 0;
    for (; level < levels && !resident; level++)
        texel = tex2DLod<float>(t, x[THREAD], y[THREAD], level, &resident);
    out[THREAD] = make_float2(resident ? texel : -1, level - 1);
}
