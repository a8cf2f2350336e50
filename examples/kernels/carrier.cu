// Samples of a carrier wave, y = sin(omega * t), in double precision. Large phases leave the fast path of the sine's
// argument reduction for a function call that multiplies by 2 / pi to 1 152 bits.

extern "C" __global__ void carrier(int n, double omega, const double* __restrict__ t, double* __restrict__ y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = sin(omega * t[i]);
}
