// Half precision and bfloat16: conversions from and to integers in all roundings, comparisons of pairs as masks and answers,
// moves between single numbers and pairs, functions of pairs. One word of results per operation.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define PUT(value) out[(k++) * n + i] = (unsigned long long)(value)

// T is half or bfloat16, NAME the part of a name that says so, FROM and AS the casts from and to its bits.
#define TO_INTEGERS(NAME, FROM)                                                                                  \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const auto a = FROM(x[i]);                                                                                   \
    unsigned k = 0;                                                                                              \
    PUT((long long)__##NAME##2int_rn(a)); PUT((long long)__##NAME##2int_rz(a));                                  \
    PUT((long long)__##NAME##2int_rd(a)); PUT((long long)__##NAME##2int_ru(a));                                  \
    PUT(__##NAME##2uint_rn(a)); PUT(__##NAME##2uint_rz(a)); PUT(__##NAME##2uint_rd(a)); PUT(__##NAME##2uint_ru(a)); \
    PUT((long long)__##NAME##2short_rn(a)); PUT((long long)__##NAME##2short_rz(a));                              \
    PUT((long long)__##NAME##2short_rd(a)); PUT((long long)__##NAME##2short_ru(a));                              \
    PUT(__##NAME##2ushort_rn(a)); PUT(__##NAME##2ushort_rz(a));                                                  \
    PUT(__##NAME##2ushort_rd(a)); PUT(__##NAME##2ushort_ru(a));                                                  \
    PUT(__##NAME##2ll_rn(a)); PUT(__##NAME##2ll_rz(a)); PUT(__##NAME##2ll_rd(a)); PUT(__##NAME##2ll_ru(a));      \
    PUT(__##NAME##2ull_rn(a)); PUT(__##NAME##2ull_rz(a)); PUT(__##NAME##2ull_rd(a)); PUT(__##NAME##2ull_ru(a));  \
    PUT((long long)__##NAME##2char_rz(a)); PUT(__##NAME##2uchar_rz(a));

extern "C" __global__ void half_to_integers(const unsigned short* x, unsigned long long* out)
{
    TO_INTEGERS(half, __ushort_as_half)
}

extern "C" __global__ void bfloat_to_integers(const unsigned short* x, unsigned long long* out)
{
    TO_INTEGERS(bfloat16, __ushort_as_bfloat16)
}

#define EACH(AS, TYPE, FROM, NAME)                                                                               \
    PUT(AS(__##FROM##2##NAME##_rn((TYPE)a))); PUT(AS(__##FROM##2##NAME##_rz((TYPE)a)));                          \
    PUT(AS(__##FROM##2##NAME##_rd((TYPE)a))); PUT(AS(__##FROM##2##NAME##_ru((TYPE)a)));
#define FROM_INTEGERS(NAME, AS)                                                                                  \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const long long a = x[i];                                                                                    \
    unsigned k = 0;                                                                                              \
    EACH(AS, int, int, NAME) EACH(AS, unsigned, uint, NAME) EACH(AS, short, short, NAME)                         \
    EACH(AS, unsigned short, ushort, NAME) EACH(AS, long long, ll, NAME) EACH(AS, unsigned long long, ull, NAME)

extern "C" __global__ void half_from_integers(const long long* x, unsigned long long* out)
{
    FROM_INTEGERS(half, __half_as_ushort)
}

extern "C" __global__ void bfloat_from_integers(const long long* x, unsigned long long* out)
{
    FROM_INTEGERS(bfloat16, __bfloat16_as_ushort)
}

// Comparisons of pairs in this order: as pairs of numbers, as masks, as one answer; then two of single numbers.
#define COMPARE(T)                                                                                               \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const T a = ((const T*)x)[i], b = ((const T*)y)[i];                                                          \
    unsigned k = 0;                                                                                              \
    auto put = [&](T value) { ((T*)out)[(k++) * n + i] = value; };                                               \
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };                                             \
    put(__heq2(a, b)); put(__hne2(a, b)); put(__hlt2(a, b)); put(__hle2(a, b)); put(__hgt2(a, b)); put(__hge2(a, b)); \
    put(__hequ2(a, b)); put(__hneu2(a, b)); put(__hltu2(a, b)); put(__hleu2(a, b)); put(__hgtu2(a, b)); put(__hgeu2(a, b)); \
    word(__heq2_mask(a, b)); word(__hne2_mask(a, b)); word(__hlt2_mask(a, b)); word(__hle2_mask(a, b));          \
    word(__hgt2_mask(a, b)); word(__hge2_mask(a, b)); word(__hequ2_mask(a, b)); word(__hneu2_mask(a, b));        \
    word(__hltu2_mask(a, b)); word(__hleu2_mask(a, b)); word(__hgtu2_mask(a, b)); word(__hgeu2_mask(a, b));      \
    word(__hbeq2(a, b)); word(__hbne2(a, b)); word(__hblt2(a, b)); word(__hble2(a, b)); word(__hbgt2(a, b));     \
    word(__hbge2(a, b)); word(__hbequ2(a, b)); word(__hbneu2(a, b)); word(__hbltu2(a, b)); word(__hbleu2(a, b)); \
    word(__hbgtu2(a, b)); word(__hbgeu2(a, b));                                                                  \
    word(__hleu(a.x, b.x)); word(__hgtu(a.x, b.x));

extern "C" __global__ void half_compare(const unsigned* x, const unsigned* y, unsigned* out)
{
    COMPARE(__half2)
}

extern "C" __global__ void bfloat_compare(const unsigned* x, const unsigned* y, unsigned* out)
{
    COMPARE(__nv_bfloat162)
}

// Functions of pairs, and single numbers with explicit rounding.
#define FUNCTIONS(T)                                                                                             \
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;                                                       \
    const T a = ((const T*)x)[i], b = ((const T*)y)[i];                                                          \
    unsigned k = 0;                                                                                              \
    auto put = [&](T value) { ((T*)out)[(k++) * n + i] = value; };                                               \
    put(__hadd2_rn(a, b)); put(__hsub2_rn(a, b)); put(__hmul2_rn(a, b)); put(T(__hsub_rn(a.x, b.x), __hsub_rn(a.y, b.y))); \
    put(h2exp10(a)); put(h2log10(a)); put(h2tanh(a)); put(h2tanh_approx(a)); put(T(htanh_approx(a.x), htanh_approx(a.y)));

extern "C" __global__ void half_functions(const unsigned* x, const unsigned* y, unsigned* out)
{
    FUNCTIONS(__half2)
}

extern "C" __global__ void bfloat_functions(const unsigned* x, const unsigned* y, unsigned* out)
{
    FUNCTIONS(__nv_bfloat162)
}

// Moves: between pairs, single numbers, their bits, and single precision.
extern "C" __global__ void half_moves(const unsigned* x, const unsigned* y, const float* s, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const __half2 a = ((const __half2*)x)[i], b = ((const __half2*)y)[i];
    unsigned k = 0;
    auto put = [&](__half2 value) { ((__half2*)out)[(k++) * n + i] = value; };
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };
    put(__half2half2(a.y)); put(__halves2half2(a.x, b.y)); put(make_half2(b.x, a.y)); put(__highs2half2(a, b)); put(__lows2half2(a, b));
    put(__half2(__low2half(a), __high2half(b))); put(__half2(__short_as_half(__half_as_short(a.y)), a.x));
    word(__float_as_uint(__low2float(a))); word(__float_as_uint(__high2float(a)));
    const float2 wide = __half22float2(a);
    word(__float_as_uint(wide.x)); word(__float_as_uint(wide.y));
    put(__float22half2_rn(make_float2(s[i], -s[i]))); put(__float2half2_rn(s[i])); put(__floats2half2_rn(s[i], s[i] * 2.0f));
}

extern "C" __global__ void bfloat_moves(const unsigned* x, const unsigned* y, const float* s, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    typedef __nv_bfloat162 T;
    const T a = ((const T*)x)[i], b = ((const T*)y)[i];
    unsigned k = 0;
    auto put = [&](T value) { ((T*)out)[(k++) * n + i] = value; };
    auto word = [&](unsigned value) { out[(k++) * n + i] = value; };
    put(__bfloat162bfloat162(a.y)); put(__halves2bfloat162(a.x, b.y)); put(make_bfloat162(b.x, a.y));
    put(__highs2bfloat162(a, b)); put(__lows2bfloat162(a, b));
    put(T(__low2bfloat16(a), __high2bfloat16(b))); put(T(__short_as_bfloat16(__bfloat16_as_short(a.y)), a.x));
    word(__float_as_uint(__low2float(a))); word(__float_as_uint(__high2float(a)));
    const float2 wide = __bfloat1622float2(a);
    word(__float_as_uint(wide.x)); word(__float_as_uint(wide.y));
    put(__float22bfloat162_rn(make_float2(s[i], -s[i]))); put(__float2bfloat162_rn(s[i]));
    put(__floats2bfloat162_rn(s[i], s[i] * 2.0f));
    word(__bfloat16_as_ushort(__float2bfloat16(s[i])));
}
