// Forward complex FFT of 512 points in double precision, one block of 64 threads per transform: three radix-8 passes
// with all data in registers, and two transposes through shared memory between them. Stockham order: no bit reversal.

constexpr int kPoints = 512;
constexpr int kThreads = 64;
constexpr int kRadix = 8;
constexpr double kTwoPi = 6.283185307179586476925;

struct Complex {
    double re, im;
};

__device__ Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ Complex operator*(Complex a, Complex b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ Complex times_minus_i(Complex a) { return {a.im, -a.re}; }

__device__ void fft4(Complex& a, Complex& b, Complex& c, Complex& d)
{
    const Complex ac = a + c, a_c = a - c, bd = b + d, b_d = times_minus_i(b - d);
    a = ac + bd;
    b = a_c + b_d;
    c = ac - bd;
    d = a_c - b_d;
}

// Eight-point transform in place, outputs in natural order.
__device__ void fft8(Complex (&v)[kRadix])
{
    constexpr double kSqrtHalf = 0.70710678118654752440;
    Complex even[4] = {v[0], v[2], v[4], v[6]};
    Complex odd[4] = {v[1], v[3], v[5], v[7]};
    fft4(even[0], even[1], even[2], even[3]);
    fft4(odd[0], odd[1], odd[2], odd[3]);
    odd[1] = {(odd[1].re + odd[1].im) * kSqrtHalf, (odd[1].im - odd[1].re) * kSqrtHalf};
    odd[2] = times_minus_i(odd[2]);
    odd[3] = {(odd[3].im - odd[3].re) * kSqrtHalf, -(odd[3].re + odd[3].im) * kSqrtHalf};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        v[i] = even[i] + odd[i];
        v[i + 4] = even[i] - odd[i];
    }
}

// v[r] *= exp(-2 pi i r index / period)
__device__ void twiddle(Complex (&v)[kRadix], int index, int period)
{
#pragma unroll
    for (int r = 1; r < kRadix; ++r) {
        Complex w;
        sincos(-kTwoPi * r * index / period, &w.im, &w.re);
        v[r] = v[r] * w;
    }
}

// Moves v[r] to position write(r) and takes v[r] from t + 64 r. Real and imaginary parts go one after the other, which
// halves the shared memory; 72 words per 64 keep the strided writes out of each other's banks.
template <typename Position>
__device__ void exchange(Complex (&v)[kRadix], double* words, Position write)
{
    const int t = threadIdx.x;
    auto padded = [](int position) { return position + position / kRadix; };
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int r = 0; r < kRadix; ++r)
            words[padded(write(r))] = part == 0 ? v[r].re : v[r].im;
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRadix; ++r)
            (part == 0 ? v[r].re : v[r].im) = words[padded(t + kThreads * r)];
        __syncthreads();
    }
}

// data holds transforms back to back, transformed in place.
extern "C" __global__ void __launch_bounds__(kThreads) fft512(double2* __restrict__ data)
{
    __shared__ double words[kPoints + kPoints / kRadix];
    const int t = threadIdx.x;
    data += static_cast<size_t>(blockIdx.x) * kPoints;

    Complex v[kRadix];
#pragma unroll
    for (int r = 0; r < kRadix; ++r)
        v[r] = {data[t + kThreads * r].x, data[t + kThreads * r].y};

    fft8(v);
    exchange(v, words, [t](int r) { return t * kRadix + r; });

    twiddle(v, t % kRadix, kRadix * kRadix);
    fft8(v);
    exchange(v, words, [t](int r) { return t / kRadix * (kRadix * kRadix) + t % kRadix + r * kRadix; });

    twiddle(v, t, kPoints);
    fft8(v);
#pragma unroll
    for (int r = 0; r < kRadix; ++r)
        data[t + kThreads * r] = make_double2(v[r].re, v[r].im);
}
