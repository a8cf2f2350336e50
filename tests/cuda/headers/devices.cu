// Algorithms of whole devices: those of CUB, and others of Thrust.
#include <cub/cub.cuh>
#include <cuda/functional>
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/inner_product.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/random.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/set_operations.h>
#include <thrust/unique.h>

struct Even {
    __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};

void of_cub(void* room, size_t bytes, int* x, int* y, float* f, float* g, int* n, int* offsets, int count, int segments) {
    cub::DeviceReduce::Sum(room, bytes, f, g, count);
    cub::DeviceReduce::ArgMin(room, bytes, x, y, reinterpret_cast<long long*>(g), count);
    cub::DeviceReduce::ReduceByKey(room, bytes, x, y, f, g, n, ::cuda::maximum<>(), count);
    cub::DeviceScan::ExclusiveSum(room, bytes, x, y, count);
    cub::DeviceScan::InclusiveSumByKey(room, bytes, x, f, g, count);
    cub::DeviceRadixSort::SortPairs(room, bytes, f, g, x, y, count);
    cub::DeviceMergeSort::SortKeys(room, bytes, x, count, ::cuda::std::less<>());
    cub::DeviceSegmentedReduce::Max(room, bytes, f, g, segments, offsets, offsets + 1);
    cub::DeviceSegmentedSort::SortKeys(room, bytes, x, y, count, segments, offsets, offsets + 1);
    cub::DeviceSelect::If(room, bytes, x, y, n, count, Even());
    cub::DeviceSelect::Unique(room, bytes, x, y, n, count);
    cub::DevicePartition::If(room, bytes, x, y, n, count, Even());
    cub::DeviceRunLengthEncode::Encode(room, bytes, x, y, offsets, n, count);
    cub::DeviceHistogram::HistogramEven(room, bytes, f, n, 257, 0.0f, 1.0f, count);
    cub::DeviceAdjacentDifference::SubtractLeft(room, bytes, x, count);
    cub::DeviceFor::Bulk(count, [=] __device__(int i) { x[i] = y[i]; });
}

void of_thrust(int* data, int* other, float* f, int n) {
    using thrust::device;
    thrust::device_ptr<int> x(data), y(other);
    thrust::device_ptr<float> g(f);
    thrust::unique(device, x, x + n);
    thrust::remove_if(device, x, x + n, Even());
    thrust::stable_partition(device, x, x + n, Even());
    thrust::merge(device, x, x + n, y, y + n, y + n);
    thrust::set_difference(device, x, x + n, y, y + n, y + n);
    thrust::set_union(device, x, x + n, y, y + n, y + n);
    thrust::lower_bound(device, x, x + n, y, y + n, y + n);
    thrust::adjacent_difference(device, x, x + n, y);
    thrust::reduce_by_key(device, x, x + n, g, y, g);
    thrust::exclusive_scan_by_key(device, x, x + n, g, g);
    f[0] = float(*thrust::max_element(device, x, x + n)) + thrust::inner_product(device, g, g + n, g, 0.0f);
    f[1] = float(thrust::count_if(device, x, x + n, Even()));
}

__global__ void drawn(float* f) {
    thrust::minstd_rand engine(threadIdx.x);
    thrust::normal_distribution<float> normal(0, 1);
    thrust::uniform_int_distribution<int> dice(1, 6);
    f[threadIdx.x] = normal(engine) + float(dice(engine));
}
