// Every double-precision function of the CUDA math library, one kernel each, one thread per element.

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define UNARY(name)                                                                     \
    extern "C" __global__ void k_##name(const double* x, double* out)                   \
    {                                                                                   \
        out[INDEX] = name(x[INDEX]);                                                    \
    }
#define BINARY(name)                                                                    \
    extern "C" __global__ void k_##name(const double* x, const double* y, double* out)  \
    {                                                                                   \
        out[INDEX] = name(x[INDEX], y[INDEX]);                                          \
    }

UNARY(acos) UNARY(acosh) UNARY(asin) UNARY(asinh) UNARY(atan) UNARY(atanh)
UNARY(cbrt) UNARY(ceil) UNARY(cos) UNARY(cosh) UNARY(cospi)
UNARY(cyl_bessel_i0) UNARY(cyl_bessel_i1)
UNARY(erf) UNARY(erfc) UNARY(erfcinv) UNARY(erfcx) UNARY(erfinv)
UNARY(exp) UNARY(exp2) UNARY(exp10) UNARY(expm1)
UNARY(fabs) UNARY(floor) UNARY(j0) UNARY(j1) UNARY(lgamma)
UNARY(log) UNARY(log10) UNARY(log1p) UNARY(log2) UNARY(logb)
UNARY(nearbyint) UNARY(normcdf) UNARY(normcdfinv) UNARY(rcbrt) UNARY(rint) UNARY(round)
UNARY(rsqrt) UNARY(sin) UNARY(sinh) UNARY(sinpi) UNARY(sqrt)
UNARY(tan) UNARY(tanh) UNARY(tgamma) UNARY(trunc) UNARY(y0) UNARY(y1)

BINARY(atan2) BINARY(copysign) BINARY(fdim) BINARY(fmax) BINARY(fmin)
BINARY(fmod) BINARY(hypot) BINARY(nextafter) BINARY(pow) BINARY(remainder) BINARY(rhypot)

#define RESULT(name, type, call)                                                        \
    extern "C" __global__ void k_##name(const double* x, const double* y, type* out)    \
    {                                                                                   \
        const double a = x[INDEX], b = y[INDEX];                                        \
        (void)b;                                                                        \
        out[INDEX] = call;                                                              \
    }

RESULT(ilogb, int, ilogb(a))
RESULT(isfinite, int, isfinite(a))
RESULT(isinf, int, isinf(a))
RESULT(isnan, int, isnan(a))
RESULT(signbit, int, signbit(a) != 0)
RESULT(lrint, long long, llrint(a))
RESULT(lround, long long, llround(a))
RESULT(jn, double, jn(3, a))
RESULT(yn, double, yn(2, a))
RESULT(ldexp, double, ldexp(a, (int)b))
RESULT(scalbn, double, scalbn(a, (int)b))
RESULT(fma, double, fma(a, b, a))
RESULT(norm3d, double, norm3d(a, b, 1.5))
RESULT(norm4d, double, norm4d(a, b, 1.5, -2.5))
RESULT(rnorm3d, double, rnorm3d(a, b, 1.5))
RESULT(rnorm4d, double, rnorm4d(a, b, 1.5, -2.5))

extern "C" __global__ void k_frexp(const double* x, double* fraction, int* exponent)
{
    fraction[INDEX] = frexp(x[INDEX], &exponent[INDEX]);
}

extern "C" __global__ void k_modf(const double* x, double* fraction, double* whole)
{
    fraction[INDEX] = modf(x[INDEX], &whole[INDEX]);
}

extern "C" __global__ void k_remquo(const double* x, const double* y, double* rest, int* quotient)
{
    rest[INDEX] = remquo(x[INDEX], y[INDEX], &quotient[INDEX]);
}

extern "C" __global__ void k_sincos(const double* x, double* sine, double* cosine)
{
    sincos(x[INDEX], &sine[INDEX], &cosine[INDEX]);
}

extern "C" __global__ void k_sincospi(const double* x, double* sine, double* cosine)
{
    sincospi(x[INDEX], &sine[INDEX], &cosine[INDEX]);
}
