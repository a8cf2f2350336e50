// Conversions between numbers of all types in all roundings, bit casts, and arithmetic in directed roundings.

#include <cuda_fp16.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define PUT(value) out[(k++) * n + i] = (unsigned long long)(value)

extern "C" __global__ void from_single(const float* x, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i];
    unsigned k = 0;
#define ALL(to, extend) \
    PUT(extend __float2##to##_rn(a)); PUT(extend __float2##to##_rz(a)); PUT(extend __float2##to##_rd(a)); PUT(extend __float2##to##_ru(a));
    ALL(int, (long long)) ALL(uint, ) ALL(ll, ) ALL(ull, )
    PUT(__half_as_ushort(__float2half_rn(a)));
    PUT(__half_as_ushort(__float2half_rz(a)));
    PUT(__half_as_ushort(__float2half_rd(a)));
    PUT(__half_as_ushort(__float2half_ru(a)));
    PUT(__float_as_uint(a));
    PUT((unsigned char)(int)a);
    PUT((long long)(signed char)(int)a);
    PUT((unsigned short)a);
    PUT((long long)(short)a);
    PUT(__double_as_longlong((double)a));
}

extern "C" __global__ void from_double(const double* x, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const double a = x[i];
    unsigned k = 0;
#undef ALL
#define ALL(to, extend) \
    PUT(extend __double2##to##_rn(a)); PUT(extend __double2##to##_rz(a)); PUT(extend __double2##to##_rd(a)); PUT(extend __double2##to##_ru(a));
    ALL(int, (long long)) ALL(uint, ) ALL(ll, ) ALL(ull, )
    PUT(__float_as_uint(__double2float_rn(a)));
    PUT(__float_as_uint(__double2float_rz(a)));
    PUT(__float_as_uint(__double2float_rd(a)));
    PUT(__float_as_uint(__double2float_ru(a)));
    PUT((unsigned)__double2hiint(a));
    PUT((unsigned)__double2loint(a));
    PUT(__double_as_longlong(__hiloint2double(__double2loint(a), __double2hiint(a))));
    PUT(__half_as_ushort(__double2half(a)));
}

extern "C" __global__ void from_integer(const long long* x, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const long long a = x[i];
    unsigned k = 0;
#undef ALL
#define ALL(from, type) \
    PUT(__float_as_uint(__##from##2float_rn((type)a))); PUT(__float_as_uint(__##from##2float_rz((type)a))); \
    PUT(__float_as_uint(__##from##2float_rd((type)a))); PUT(__float_as_uint(__##from##2float_ru((type)a)));
    ALL(int, int) ALL(uint, unsigned) ALL(ll, long long) ALL(ull, unsigned long long)
    PUT(__double_as_longlong(__int2double_rn((int)a)));
    PUT(__double_as_longlong(__uint2double_rn((unsigned)a)));
    PUT(__double_as_longlong(__ll2double_rn(a)));
    PUT(__double_as_longlong(__ll2double_rz(a)));
    PUT(__double_as_longlong(__ll2double_rd(a)));
    PUT(__double_as_longlong(__ll2double_ru(a)));
    PUT(__double_as_longlong(__ull2double_rn((unsigned long long)a)));
    PUT(__double_as_longlong(__ull2double_rz((unsigned long long)a)));
    PUT(__double_as_longlong(__ull2double_rd((unsigned long long)a)));
    PUT(__double_as_longlong(__ull2double_ru((unsigned long long)a)));
    PUT(__float_as_uint((float)(signed char)a));
    PUT(__float_as_uint((float)(unsigned char)a));
    PUT(__float_as_uint((float)(short)a));
    PUT(__float_as_uint((float)(unsigned short)a));
    PUT((long long)(signed char)a);
    PUT((unsigned short)a);
    PUT(__half_as_ushort(__int2half_rn((int)a)));
    PUT(__half_as_ushort(__uint2half_rz((unsigned)a)));
    PUT(__half_as_ushort(__ll2half_rd(a)));
    PUT(__half_as_ushort(__ull2half_ru((unsigned long long)a)));
    PUT(__half_as_ushort(__short2half_rn((short)a)));
    PUT(__half_as_ushort(__ushort2half_rn((unsigned short)a)));
}

extern "C" __global__ void from_half(const unsigned short* x, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const __half a = __ushort_as_half(x[i]);
    unsigned k = 0;
#undef ALL
#define ALL(to, extend) \
    PUT(extend __half2##to##_rn(a)); PUT(extend __half2##to##_rz(a)); PUT(extend __half2##to##_rd(a)); PUT(extend __half2##to##_ru(a));
    ALL(int, (long long)) ALL(uint, ) ALL(ll, ) ALL(ull, ) ALL(short, (long long)) ALL(ushort, )
    PUT(__float_as_uint(__half2float(a)));
    PUT((long long)__half2char_rz(a));
    PUT(__half2uchar_rz(a));
}

// Sums, products, quotients, roots in the four roundings.
extern "C" __global__ void rounded_single(const float* x, const float* y, const float* z, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i], b = y[i], c = z[i];
    unsigned k = 0;
#undef PUT
#define PUT(value) out[(k++) * n + i] = __float_as_uint(value)
#undef ALL
#define ALL(r) \
    PUT(__fadd_##r(a, b)); PUT(__fsub_##r(a, b)); PUT(__fmul_##r(a, b)); PUT(__fdiv_##r(a, b)); \
    PUT(__frcp_##r(a)); PUT(__fsqrt_##r(a)); PUT(__fmaf_##r(a, b, c));
    ALL(rn) ALL(rz) ALL(rd) ALL(ru)
}

extern "C" __global__ void rounded_double(const double* x, const double* y, const double* z, double* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const double a = x[i], b = y[i], c = z[i];
    unsigned k = 0;
#undef PUT
#define PUT(value) out[(k++) * n + i] = value
#undef ALL
#define ALL(r) \
    PUT(__dadd_##r(a, b)); PUT(__dsub_##r(a, b)); PUT(__dmul_##r(a, b)); PUT(__ddiv_##r(a, b)); \
    PUT(__drcp_##r(a)); PUT(__dsqrt_##r(a)); PUT(__fma_##r(a, b, c));
    ALL(rn) ALL(rz) ALL(rd) ALL(ru)
}
