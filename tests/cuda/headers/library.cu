// The standard library on the device.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/cmath>
#include <cuda/std/complex>
#include <cuda/std/numeric>
#include <cuda/std/optional>
#include <cuda/std/tuple>

__global__ void values(cuda::std::complex<float>* z, double* d, unsigned* u) {
    int i = threadIdx.x;
    z[i] = cuda::std::exp(z[i] * cuda::std::conj(z[i])) / (z[i] + 1.0f);
    auto pair = cuda::std::make_tuple(d[i], u[i]);
    cuda::std::optional<double> maybe;
    if (u[i] > 3) maybe = cuda::std::fma(cuda::std::get<0>(pair), 2.0, cuda::std::lgamma(d[i]));
    d[i] = maybe.value_or(cuda::std::hypot(d[i], 3.0));
    u[i] = cuda::std::popcount(u[i]) + cuda::std::countl_zero(u[i]) + cuda::std::rotl(u[i], 3) + cuda::std::gcd(u[i], 12u);
    cuda::std::array<unsigned, 4> four{u[i], 1, 2, 3};
    u[i] += four[i & 3];
}

__global__ void orders(int* shared_with_all, long long* wide, __int128* wider) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(*shared_with_all);
    cuda::atomic_ref<long long, cuda::thread_scope_system> b(*wide);
    cuda::atomic_ref<int, cuda::thread_scope_block> c(shared_with_all[1]);
    a.fetch_add(1, cuda::memory_order_acq_rel);
    a.fetch_max(3, cuda::memory_order_relaxed);
    int expected = 3;
    a.compare_exchange_strong(expected, 4, cuda::memory_order_seq_cst);
    b.store(b.load(cuda::memory_order_acquire) + 1, cuda::memory_order_release);
    c.exchange(7);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_system);
}

__global__ void waits(const int* in, int* out) {
    __shared__ int buffer[2][64];
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
    }
    __syncthreads();
    cuda::memcpy_async(&buffer[0][threadIdx.x], in + threadIdx.x, cuda::aligned_size_t<4>(4), barrier);
    barrier.arrive_and_wait();
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&buffer[1][threadIdx.x], in + 64 + threadIdx.x, cuda::aligned_size_t<4>(4), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    out[threadIdx.x] = buffer[0][threadIdx.x] + buffer[1][threadIdx.x ^ 1];
    pipe.consumer_release();
    if (threadIdx.x % 32 == 0) {
        semaphore.acquire();
        out[0] += 1;
        semaphore.release();
    }
}
