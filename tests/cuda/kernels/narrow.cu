// Conversions to and from 8-, 6- and 4-bit floating point and powers of two (cuda_fp8.h, cuda_fp6.h, cuda_fp4.h). One word of
// results per operation. On targets without instructions for them the headers work them out on integers.

#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define PUT(value) out[(k++) * n + i] = (unsigned)(value)
#define NEAREST cudaRoundNearest

extern "C" __global__ void to_narrow(const float* x, const float* y, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i], b = y[i];
    const float2 two = make_float2(a, b);
    const double2 wide = make_double2(a, b);
    const __half h = __float2half_rn(a), g = __float2half_rn(b);
    const __nv_bfloat16 p = __float2bfloat16_rn(a), q = __float2bfloat16_rn(b);
    const __half2 halves = __half2(h, g);
    const __nv_bfloat162 bfloats = __nv_bfloat162(p, q);
    unsigned k = 0;
#define EIGHT(kind)                                                                                              \
    PUT(__nv_cvt_float_to_fp8(a, __NV_SATFINITE, kind)); PUT(__nv_cvt_double_to_fp8(a, __NV_SATFINITE, kind));   \
    PUT(__nv_cvt_halfraw_to_fp8(__half_raw(h), __NV_SATFINITE, kind));                                           \
    PUT(__nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw(p), __NV_SATFINITE, kind));                                \
    PUT(__nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, kind)); PUT(__nv_cvt_double2_to_fp8x2(wide, __NV_SATFINITE, kind)); \
    PUT(__nv_cvt_halfraw2_to_fp8x2(__half2_raw(halves), __NV_SATFINITE, kind));                                  \
    PUT(__nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw(bfloats), __NV_SATFINITE, kind));
#define SMALL(size, kind)                                                                                        \
    PUT(__nv_cvt_float_to_##size(a, kind, NEAREST)); PUT(__nv_cvt_double_to_##size(a, kind, NEAREST));           \
    PUT(__nv_cvt_halfraw_to_##size(__half_raw(h), kind, NEAREST));                                               \
    PUT(__nv_cvt_bfloat16raw_to_##size(__nv_bfloat16_raw(p), kind, NEAREST));                                    \
    PUT(__nv_cvt_float2_to_##size##x2(two, kind, NEAREST)); PUT(__nv_cvt_double2_to_##size##x2(wide, kind, NEAREST)); \
    PUT(__nv_cvt_halfraw2_to_##size##x2(__half2_raw(halves), kind, NEAREST));                                    \
    PUT(__nv_cvt_bfloat16raw2_to_##size##x2(__nv_bfloat162_raw(bfloats), kind, NEAREST));
    EIGHT(__NV_E4M3) EIGHT(__NV_E5M2) SMALL(fp6, __NV_E2M3) SMALL(fp6, __NV_E3M2) SMALL(fp4, __NV_E2M1)
#define POWER(saturate, round)                                                                                   \
    PUT(__nv_cvt_float_to_e8m0(a, saturate, round)); PUT(__nv_cvt_double_to_e8m0(a, saturate, round));           \
    PUT(__nv_cvt_bfloat16raw_to_e8m0(__nv_bfloat16_raw(p), saturate, round));                                    \
    PUT(__nv_cvt_float2_to_e8m0x2(two, saturate, round)); PUT(__nv_cvt_double2_to_e8m0x2(wide, saturate, round)); \
    PUT(__nv_cvt_bfloat162raw_to_e8m0x2(__nv_bfloat162_raw(bfloats), saturate, round));
    POWER(__NV_SATFINITE, cudaRoundZero) POWER(__NV_NOSAT, cudaRoundPosInf)
}

extern "C" __global__ void from_narrow(const unsigned* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const unsigned short pair = (unsigned short)x[i];
    const unsigned char one = (unsigned char)pair;
    unsigned k = 0;
    auto half = [&](__half_raw value) { PUT(value.x); };
    auto halves = [&](__half2_raw value) { PUT(value.x | (unsigned)value.y << 16); };
    half(__nv_cvt_fp8_to_halfraw(one, __NV_E4M3)); halves(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3));
    half(__nv_cvt_fp8_to_halfraw(one, __NV_E5M2)); halves(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E5M2));
    half(__nv_cvt_fp6_to_halfraw(one & 0x3f, __NV_E2M3)); halves(__nv_cvt_fp6x2_to_halfraw2(pair & 0x3f3f, __NV_E2M3));
    half(__nv_cvt_fp6_to_halfraw(one & 0x3f, __NV_E3M2)); halves(__nv_cvt_fp6x2_to_halfraw2(pair & 0x3f3f, __NV_E3M2));
    half(__nv_cvt_fp4_to_halfraw(one & 0xf, __NV_E2M1)); halves(__nv_cvt_fp4x2_to_halfraw2(one, __NV_E2M1));
    PUT(__nv_cvt_e8m0_to_bf16raw(one).x);
    const __nv_bfloat162_raw powers = __nv_cvt_e8m0x2_to_bf162raw(pair);
    PUT(powers.x | (unsigned)powers.y << 16);
}

// The classes: constructors and conversion operators.
extern "C" __global__ void narrow_classes(const float* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i];
    unsigned k = 0;
#define CLASSES(one, two, four)                                                                                  \
    {                                                                                                            \
        const one single(a);                                                                                     \
        const two pair(make_float2(a, -a));                                                                      \
        const four quad(make_float4(a, -a, a * 0.5f, 1.0f));                                                     \
        PUT(single.__x); PUT(pair.__x); PUT(quad.__x); PUT(__float_as_uint(float(single)));                      \
        const float4 back = float4(quad);                                                                        \
        PUT(__float_as_uint(back.y)); PUT(__float_as_uint(back.z));                                              \
    }
    CLASSES(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3)
    CLASSES(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2)
    CLASSES(__nv_fp6_e2m3, __nv_fp6x2_e2m3, __nv_fp6x4_e2m3)
    CLASSES(__nv_fp6_e3m2, __nv_fp6x2_e3m2, __nv_fp6x4_e3m2)
    CLASSES(__nv_fp4_e2m1, __nv_fp4x2_e2m1, __nv_fp4x4_e2m1)
}
