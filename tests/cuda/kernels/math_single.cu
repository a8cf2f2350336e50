// Every single-precision function of the CUDA math library, one kernel each, one thread per element.

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define UNARY(name)                                                                     \
    extern "C" __global__ void k_##name(const float* x, float* out)                     \
    {                                                                                   \
        out[INDEX] = name(x[INDEX]);                                                    \
    }
#define BINARY(name)                                                                    \
    extern "C" __global__ void k_##name(const float* x, const float* y, float* out)     \
    {                                                                                   \
        out[INDEX] = name(x[INDEX], y[INDEX]);                                          \
    }

UNARY(acosf) UNARY(acoshf) UNARY(asinf) UNARY(asinhf) UNARY(atanf) UNARY(atanhf)
UNARY(cbrtf) UNARY(ceilf) UNARY(cosf) UNARY(coshf) UNARY(cospif)
UNARY(cyl_bessel_i0f) UNARY(cyl_bessel_i1f)
UNARY(erff) UNARY(erfcf) UNARY(erfcinvf) UNARY(erfcxf) UNARY(erfinvf)
UNARY(expf) UNARY(exp2f) UNARY(exp10f) UNARY(expm1f)
UNARY(fabsf) UNARY(floorf) UNARY(j0f) UNARY(j1f) UNARY(lgammaf)
UNARY(logf) UNARY(log10f) UNARY(log1pf) UNARY(log2f) UNARY(logbf)
UNARY(nearbyintf) UNARY(normcdff) UNARY(normcdfinvf) UNARY(rcbrtf) UNARY(rintf) UNARY(roundf)
UNARY(rsqrtf) UNARY(sinf) UNARY(sinhf) UNARY(sinpif) UNARY(sqrtf)
UNARY(tanf) UNARY(tanhf) UNARY(tgammaf) UNARY(truncf) UNARY(y0f) UNARY(y1f)
UNARY(__cosf) UNARY(__exp10f) UNARY(__expf) UNARY(__log10f) UNARY(__log2f) UNARY(__logf)
UNARY(__saturatef) UNARY(__sinf) UNARY(__tanf) UNARY(__frsqrt_rn)

BINARY(atan2f) BINARY(copysignf) BINARY(fdimf) BINARY(fdividef) BINARY(fmaxf) BINARY(fminf)
BINARY(fmodf) BINARY(hypotf) BINARY(nextafterf) BINARY(powf) BINARY(remainderf) BINARY(rhypotf)
BINARY(__fdividef) BINARY(__powf)

#define RESULT(name, type, call)                                                        \
    extern "C" __global__ void k_##name(const float* x, const float* y, type* out)      \
    {                                                                                   \
        const float a = x[INDEX], b = y[INDEX];                                         \
        (void)b;                                                                        \
        out[INDEX] = call;                                                              \
    }

RESULT(ilogbf, int, ilogbf(a))
RESULT(isfinite, int, isfinite(a))
RESULT(isinf, int, isinf(a))
RESULT(isnan, int, isnan(a))
RESULT(signbit, int, signbit(a) != 0)
RESULT(lrintf, long long, llrintf(a))
RESULT(lroundf, long long, llroundf(a))
RESULT(lrint32, int, (int)lrintf(a))
RESULT(lround32, int, (int)lroundf(a))
RESULT(jnf, float, jnf(3, a))
RESULT(ynf, float, ynf(2, a))
RESULT(ldexpf, float, ldexpf(a, (int)b))
RESULT(scalbnf, float, scalbnf(a, (int)b))
RESULT(scalblnf, float, scalblnf(a, (long)b))
RESULT(fmaf, float, fmaf(a, b, a))
RESULT(norm3df, float, norm3df(a, b, 1.5f))
RESULT(norm4df, float, norm4df(a, b, 1.5f, -2.5f))
RESULT(rnorm3df, float, rnorm3df(a, b, 1.5f))
RESULT(rnorm4df, float, rnorm4df(a, b, 1.5f, -2.5f))

extern "C" __global__ void k_normf(const float* x, float* out)
{
    const float* mine = x + 5 * INDEX;
    out[2 * INDEX] = normf(5, mine);
    out[2 * INDEX + 1] = rnormf(5, mine);
}

extern "C" __global__ void k_frexpf(const float* x, float* fraction, int* exponent)
{
    fraction[INDEX] = frexpf(x[INDEX], &exponent[INDEX]);
}

extern "C" __global__ void k_modff(const float* x, float* fraction, float* whole)
{
    fraction[INDEX] = modff(x[INDEX], &whole[INDEX]);
}

extern "C" __global__ void k_remquof(const float* x, const float* y, float* rest, int* quotient)
{
    rest[INDEX] = remquof(x[INDEX], y[INDEX], &quotient[INDEX]);
}

extern "C" __global__ void k_sincosf(const float* x, float* sine, float* cosine)
{
    sincosf(x[INDEX], &sine[INDEX], &cosine[INDEX]);
}

extern "C" __global__ void k_sincospif(const float* x, float* sine, float* cosine)
{
    sincospif(x[INDEX], &sine[INDEX], &cosine[INDEX]);
}

extern "C" __global__ void k_fast_sincosf(const float* x, float* sine, float* cosine)
{
    __sincosf(x[INDEX], &sine[INDEX], &cosine[INDEX]);
}
