// More of the standard library on the device, and of CUDA's own additions to it.
#include <cuda/annotated_ptr>
#include <cuda/bit>
#include <cuda/cmath>
#include <cuda/functional>
#include <cuda/ptx>
#include <cuda/std/atomic>
#include <cuda/std/barrier>
#include <cuda/std/bitset>
#include <cuda/std/cassert>
#include <cuda/std/chrono>
#include <cuda/std/cmath>
#include <cuda/std/complex>
#include <cuda/std/expected>
#include <cuda/std/functional>
#include <cuda/std/inplace_vector>
#include <cuda/std/limits>
#include <cuda/std/mdspan>
#include <cuda/std/numbers>
#include <cuda/std/numeric>
#include <cuda/std/ranges>
#include <cuda/std/ratio>
#include <cuda/std/span>
#include <cuda/std/variant>
#include <cuda/warp>
#include <cuda/work_stealing>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

__global__ void containers(int* data, int n, double* z) {
    cuda::std::span<int> all(data, n);
    cuda::std::mdspan<int, cuda::std::dextents<int, 2>> grid(data, n / 4, 4);
    cuda::std::inplace_vector<int, 8> few;
    few.push_back(all[threadIdx.x]);
    cuda::std::bitset<70> bits(few[0]);
    cuda::std::variant<int, float> either = few[0] > 3 ? cuda::std::variant<int, float>(1.5f) : cuda::std::variant<int, float>(2);
    cuda::std::expected<int, float> found = cuda::std::visit([](auto x) { return int(x); }, either);
    grid(threadIdx.x / 4, threadIdx.x % 4) += found.value_or(3) + int(bits.count());
    cuda::std::complex<double> w(z[0], z[1]);
    w = cuda::std::pow(w, 2.5) + cuda::std::atanh(w) * cuda::std::polar(1.0, 3.25);
    z[0] = w.real() + cuda::std::tgamma(z[1]) + cuda::std::lerp(z[0], z[1], 0.25) + cuda::std::remainder(z[0], z[1]);
    z[1] = w.imag() + double(cuda::ceil_div(data[2], 3)) + double(cuda::ilog2(data[3] | 1)) + cuda::std::midpoint(z[0], z[1]);
}

__global__ void orders(int* data, int n) {
    data[0] = cuda::std::accumulate(data, data + n, 0) + cuda::std::inner_product(data, data + n, data, 1);
    cuda::std::partial_sum(data, data + n, data);
    cuda::std::iota(data, data + n, 3);
    cuda::std::atomic_ref<int> shared_with_all(data[2]);
    shared_with_all.fetch_xor(5, cuda::std::memory_order_acq_rel);
    shared_with_all.notify_all();
    auto now = cuda::std::chrono::high_resolution_clock::now();
    data[3] += int(now.time_since_epoch().count() & 1);
    data[4] += int(cuda::bitfield_extract(unsigned(data[5]), 3, 9)) + int(cuda::bit_reverse(unsigned(data[6])));
}

__global__ void properties(const int* in, int* out) {
    cuda::annotated_ptr<const int, cuda::access_property::persisting> kept(in);
    cuda::access_property once(out, 1024, 2048, cuda::access_property::persisting{}, cuda::access_property::streaming{});
    cuda::annotated_ptr<int, cuda::access_property> there(out, once);
    there[threadIdx.x] = kept[threadIdx.x];
    cuda::apply_access_property(in, 256, cuda::access_property::persisting{});
    cuda::discard_memory(out + 4096, 128);
    __shared__ int staged[64];
    __pipeline_memcpy_async(&staged[threadIdx.x], in + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    auto moved = cuda::device::warp_shuffle_xor(staged[threadIdx.x], 3);
    out[threadIdx.x] += moved.data + int(cuda::ptx::get_sreg_laneid());
}

#if __CUDA_ARCH__ >= 900
__global__ void instructions(unsigned long long* out, unsigned* other) {
    using namespace cuda::ptx;
    __shared__ cuda::std::uint64_t barrier;
    mbarrier_init(&barrier, blockDim.x);
    auto state = mbarrier_arrive(&barrier);
    while (!mbarrier_try_wait(&barrier, state)) {
    }
    barrier_cluster_arrive();
    barrier_cluster_wait();
    fence_mbarrier_init(sem_release, scope_cluster);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group(n32_t<0>{});
    out[threadIdx.x] = barrier + get_sreg_cluster_ctarank();
    red_async(op_inc, other, 3u, &barrier);
}
#endif
