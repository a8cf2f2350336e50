// Half precision and bfloat16, single and packed: arithmetic, comparisons, functions; 8-bit floats.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

// Single numbers: T is __half or __nv_bfloat16, AS the cast to its bits.
#define SINGLE(T, AS, FROM)                                                                                      \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const T a = FROM(x[i]), b = FROM(y[i]), c = FROM(z[i]);                                                      \
    unsigned k = 0;                                                                                              \
    auto put = [&](T value) { out[(k++) * n + i] = AS(value); };                                                 \
    auto flag = [&](bool value) { out[(k++) * n + i] = value; };                                                 \
    put(__hadd(a, b)); put(__hsub(a, b)); put(__hmul(a, b)); put(__hdiv(a, b)); put(__hfma(a, b, c));            \
    put(__hadd_sat(a, b)); put(__hsub_sat(a, b)); put(__hmul_sat(a, b)); put(__hfma_sat(a, b, c));               \
    put(__hadd_rn(a, b)); put(__hmul_rn(a, b)); put(__hfma_relu(a, b, c)); put(__hneg(a)); put(__habs(a));       \
    put(__hmax(a, b)); put(__hmin(a, b)); put(__hmax_nan(a, b)); put(__hmin_nan(a, b));                          \
    flag(__heq(a, b)); flag(__hne(a, b)); flag(__hlt(a, b)); flag(__hle(a, b)); flag(__hgt(a, b));               \
    flag(__hge(a, b)); flag(__hequ(a, b)); flag(__hneu(a, b)); flag(__hltu(a, b)); flag(__hgeu(a, b));           \
    flag(__hisnan(a)); flag(__hisinf(a) != 0);                                                                   \
    put(hceil(a)); put(hfloor(a)); put(hrint(a)); put(htrunc(a)); put(hsqrt(c)); put(hrsqrt(c)); put(hrcp(c));   \
    put(hexp(a)); put(hexp2(a)); put(hexp10(a)); put(hlog(c)); put(hlog2(c)); put(hlog10(c)); put(hsin(a)); put(hcos(a)); \
    put(htanh(a));

extern "C" __global__ void half_single(const unsigned short* x, const unsigned short* y, const unsigned short* z, unsigned short* out)
{
    SINGLE(__half, __half_as_ushort, __ushort_as_half)
}

extern "C" __global__ void bfloat_single(const unsigned short* x, const unsigned short* y, const unsigned short* z, unsigned short* out)
{
    SINGLE(__nv_bfloat16, __bfloat16_as_ushort, __ushort_as_bfloat16)
}

// Pairs: the same, and what only pairs have.
#define PACKED(T, LOW, HIGH)                                                                                     \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const T a = ((const T*)x)[i], b = ((const T*)y)[i], c = ((const T*)z)[i];                                    \
    unsigned k = 0;                                                                                              \
    auto put = [&](T value) { ((T*)out)[(k++) * n + i] = value; };                                               \
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };                                             \
    put(__hadd2(a, b)); put(__hsub2(a, b)); put(__hmul2(a, b)); put(__h2div(a, b)); put(__hfma2(a, b, c));       \
    put(__hadd2_sat(a, b)); put(__hsub2_sat(a, b)); put(__hmul2_sat(a, b)); put(__hfma2_sat(a, b, c));           \
    put(__hfma2_relu(a, b, c)); put(__hneg2(a)); put(__habs2(a)); put(__hcmadd(a, b, c));                        \
    put(__hmax2(a, b)); put(__hmin2(a, b)); put(__hmax2_nan(a, b)); put(__hmin2_nan(a, b));                      \
    put(__heq2(a, b)); put(__hne2(a, b)); put(__hlt2(a, b)); put(__hleu2(a, b)); put(__hgtu2(a, b));             \
    word(__heq2_mask(a, b)); word(__hltu2_mask(a, b)); word(__hbge2(a, b)); word(__hbneu2(a, b));                \
    put(__hisnan2(a)); put(h2ceil(a)); put(h2floor(a)); put(h2rint(a)); put(h2trunc(a)); put(h2sqrt(c));         \
    put(h2rsqrt(c)); put(h2rcp(c)); put(h2exp(a)); put(h2exp2(a)); put(h2log(c)); put(h2log2(c)); put(h2sin(a)); \
    put(h2cos(a)); put(HIGH(a)); put(LOW(a)); put(__lowhigh2highlow(a)); put(__highs2##LOW##_);

extern "C" __global__ void half_pairs(const unsigned* x, const unsigned* y, const unsigned* z, unsigned* out)
{
#define __highs2__low2half2_ __lows2half2(a, b)
    PACKED(__half2, __low2half2, __high2half2)
}

extern "C" __global__ void bfloat_pairs(const unsigned* x, const unsigned* y, const unsigned* z, unsigned* out)
{
#define __highs2__low2bfloat162_ __lows2bfloat162(a, b)
    PACKED(__nv_bfloat162, __low2bfloat162, __high2bfloat162)
}

extern "C" __global__ void bfloat_conversions(const float* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i];
    unsigned k = 0;
    auto put = [&](__nv_bfloat16 value) { out[(k++) * n + i] = __bfloat16_as_ushort(value); };
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };
    put(__float2bfloat16_rn(a)); put(__float2bfloat16_rz(a)); put(__float2bfloat16_rd(a)); put(__float2bfloat16_ru(a));
    put(__double2bfloat16(a));
    const __nv_bfloat16 b = __float2bfloat16_rn(a);
    word(__float_as_uint(__bfloat162float(b)));
    word(__bfloat162int_rz(b)); word(__bfloat162uint_rn(b)); word(__bfloat162short_rd(b));
    put(__int2bfloat16_rn((int)a)); put(__ll2bfloat16_rz((long long)a)); put(__ushort2bfloat16_ru((unsigned short)a));
}

// 8-bit floats through the classes of cuda_fp8.h.
extern "C" __global__ void eight_bits(const float* x, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i];
    unsigned k = 0;
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };
    __nv_fp8_e4m3 p(a);
    __nv_fp8_e5m2 q(a);
    word(p.__x);
    word(q.__x);
    word(__float_as_uint(float(p)));
    word(__float_as_uint(float(q)));
    __nv_fp8x2_e4m3 pair(make_float2(a, -a));
    word(pair.__x);
    word(__nv_cvt_float_to_fp8(a, __NV_NOSAT, __NV_E5M2));
    word(__nv_cvt_float_to_fp8(a, __NV_NOSAT, __NV_E4M3));
    word(__nv_cvt_double_to_fp8(a, __NV_SATFINITE, __NV_E4M3));
    word(__nv_cvt_halfraw_to_fp8(__half_raw(__float2half(a)), __NV_SATFINITE, __NV_E5M2));
    __nv_fp8x4_e5m2 four(make_float4(a, -a, a * 2, a / 2));
    word(four.__x);
}
