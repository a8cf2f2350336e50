// y = a * x + y in half precision, two elements per thread in one 32-bit word.

#include <cuda_fp16.h>

extern "C" __global__ void haxpy(int n, float a, const __half* __restrict__ x, __half* __restrict__ y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i + 1 < n) {
        const __half2 x2 = reinterpret_cast<const __half2*>(x)[i];
        const __half2 y2 = reinterpret_cast<__half2*>(y)[i];
        reinterpret_cast<__half2*>(y)[i] = __hfma2(__float2half2_rn(a), x2, y2);
    } else if (2 * i < n) {
        y[2 * i] = __hfma(__float2half_rn(a), x[2 * i], y[2 * i]);  // odd n: the last element has no partner
    }
}
