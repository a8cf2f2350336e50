// Algorithms of whole devices.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

struct Twice {
    __host__ __device__ float operator()(float x) const { return 2 * x; }
};

float run(float* data, int* keys, int n) {
    thrust::device_ptr<float> x(data);
    thrust::device_ptr<int> k(keys);
    thrust::transform(thrust::device, x, x + n, x, Twice());
    thrust::inclusive_scan(thrust::device, x, x + n, x);
    thrust::sort_by_key(thrust::device, k, k + n, x);
    return thrust::reduce(thrust::device, x, x + n);
}
