// What the other files of the math library leave out: extremes and magnitudes of integers, NaN by its name, scaling by long, casts,
// the fast hyperbolic tangent, and (sm_100) arithmetic on pairs of single-precision numbers.

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define PUT(value) out[(k++) * n + i] = (unsigned long long)(value)

extern "C" __global__ void integer_rest(const long long* x, const long long* y, unsigned long long* out)
{
    typedef unsigned long long word;
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const long long a = x[i], b = y[i];
    unsigned k = 0;
    PUT(labs(a)); PUT(llmax(a, b)); PUT(llmin(a, b)); PUT(ullmin((word)a, (word)b)); PUT(ullmax((word)a, (word)b));
    PUT(umin((unsigned)a, (unsigned)b)); PUT(umax((unsigned)a, (unsigned)b));
    PUT((long long)max((int)a, (int)b)); PUT((long long)min((int)a, (int)b));
    PUT((unsigned)__float_as_int(__int_as_float((int)a)));
    PUT(__nv_bswap16((unsigned short)a)); PUT(__nv_bswap32((unsigned)a)); PUT(__nv_bswap64((word)a));
}

extern "C" __global__ void float_rest(const float* x, const float* y, unsigned* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float a = x[i], b = y[i];
    unsigned k = 0;
    PUT(__float_as_uint(__tanhf(a))); PUT(__float_as_uint(fdivide(a, b))); PUT(__float_as_uint(nanf("")));
    PUT(__double2hiint(nan(""))); PUT(__float_as_uint((float)scalbln((double)a, (long)b)));
    PUT((int)lrint((double)a)); PUT((int)lround((double)a));
}

// The functions that take the rounding as an argument.
extern "C" __global__ void double_modes(const double* x, const double* y, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const double a = x[i], b = y[i];
    unsigned k = 0;
#define BITS(value) PUT(__double_as_longlong(value))
    BITS(dadd(a, b, cudaRoundZero)); BITS(dadd(a, b, cudaRoundPosInf));
    BITS(dsub(a, b, cudaRoundZero)); BITS(dsub(a, b, cudaRoundPosInf));
    BITS(dmul(a, b, cudaRoundZero)); BITS(dmul(a, b, cudaRoundPosInf));
    BITS(fma(a, b, a, cudaRoundZero)); BITS(fma(a, b, a, cudaRoundPosInf));
    PUT(double2int(a, cudaRoundMinInf)); PUT(double2int(a, cudaRoundPosInf));
    PUT(double2uint(a, cudaRoundMinInf)); PUT(double2uint(a, cudaRoundPosInf));
    PUT(double2ll(a, cudaRoundMinInf)); PUT(double2ll(a, cudaRoundPosInf));
    PUT(double2ull(a, cudaRoundMinInf)); PUT(double2ull(a, cudaRoundPosInf));
    BITS(int2double(double2int(a, cudaRoundZero))); BITS(float2double((float)a));
    BITS(int2double(7)); BITS(uint2double(7)); BITS(ll2double(7, cudaRoundZero)); BITS(ull2double(7, cudaRoundMinInf));
}

#if __CUDA_ARCH__ >= 1000
extern "C" __global__ void pairs_of_singles(const float2* x, const float2* y, const float2* z, float2* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const float2 a = x[i], b = y[i], c = z[i];
    unsigned k = 0;
    auto put = [&](float2 value) { out[(k++) * n + i] = value; };
    put(__fadd2_rn(a, b)); put(__fadd2_rz(a, b)); put(__fadd2_rd(a, b)); put(__fadd2_ru(a, b));
    put(__fmul2_rn(a, b)); put(__fmul2_rz(a, b)); put(__fmul2_rd(a, b)); put(__fmul2_ru(a, b));
    put(__ffma2_rn(a, b, c)); put(__ffma2_rz(a, b, c)); put(__ffma2_rd(a, b, c)); put(__ffma2_ru(a, b, c));
}
#endif
