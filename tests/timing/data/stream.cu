// Streaming kernels of the kind that gpu-benches measures, one element per thread; written for these tests.
// Compiled with: nvcc -arch=compute_75 -O3 -ptx stream.cu   (CUDA 13.5)

extern "C" __global__ void init(double *a, const double *b, const double *c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        a[i] = 0.5;
}

extern "C" __global__ void read(double *a, const double *b, const double *c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) {
        double value = b[i];
        if (value == 123.0)
            a[i] = value;
    }
}

extern "C" __global__ void scale(double *a, const double *__restrict__ b, const double *c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        a[i] = 1.5 * b[i];
}

// Two arrays read: a = factor * b + c
extern "C" __global__ void triad2(double *a, const double *__restrict__ b, const double *__restrict__ c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        a[i] = 1.5 * b[i] + c[i];
}

// Three arrays read: a = b * d + c
extern "C" __global__ void triad3(double *a, const double *__restrict__ b, const double *__restrict__ c,
                                  const double *__restrict__ d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        a[i] = b[i] * d[i] + c[i];
}

extern "C" __global__ void stencil3pt(double *a, const double *__restrict__ b, const double *c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= 1 && i < n - 1)
        a[i] = 0.5 * b[i - 1] - b[i] + 0.25 * b[i + 1];
}

extern "C" __global__ void stencil5pt(double *a, const double *__restrict__ b, const double *c, const double *d, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= 2 && i < n - 2)
        a[i] = 0.25 * b[i - 2] + 0.125 * b[i - 1] - b[i] + 0.5 * b[i + 1] + 0.75 * b[i + 2];
}
