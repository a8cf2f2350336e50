// Atomics of every operation and type that CUDA C++ has, on global and shared memory, and cuda::atomic_ref.

#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

// Results do not depend on the order of the threads.
extern "C" __global__ void integer_atomics(const int* x, int* i32, unsigned* u32, unsigned long long* u64, long long* i64)
{
    const int v = x[THREAD];
    atomicAdd(&i32[0], v);
    atomicSub(&i32[1], v);
    atomicMin(&i32[2], v);
    atomicMax(&i32[3], v);
    atomicAnd(&i32[4], v);
    atomicOr(&i32[5], v);
    atomicXor(&i32[6], v);
    atomicAdd_block(&i32[7], 1);
    atomicAdd_system(&i32[8], 2);
    atomicAdd(&u32[0], (unsigned)v);
    atomicMin(&u32[1], (unsigned)v);
    atomicMax(&u32[2], (unsigned)v);
    atomicInc(&u32[3], 6u);
    atomicDec(&u32[4], 6u);
    atomicMax_block(&u32[5 + blockIdx.x], threadIdx.x);
    atomicAdd(&u64[0], (unsigned long long)(long long)v);
    atomicMin(&u64[1], (unsigned long long)v);
    atomicMax(&u64[2], (unsigned long long)v);
    atomicAnd(&u64[3], ~(1ull << (v & 63)));
    atomicOr(&u64[4], 1ull << (v & 63));
    atomicXor(&u64[5], 1ull << (v & 63));
    atomicMin(&i64[0], (long long)v);
    atomicMax(&i64[1], (long long)v << 20);
}

// What atomics return: every thread gets a different ticket, whoever comes first.
extern "C" __global__ void tickets(unsigned* counter, unsigned* out, unsigned* swapped)
{
    out[THREAD] = atomicAdd(counter, 1u);
    swapped[THREAD] = atomicExch(counter + 1, THREAD + 1);
    atomicInc(counter + 2, 4u);
}

extern "C" __global__ void float_atomics(float* f, double* d, __half* h, __half2* hh, __nv_bfloat16* b, __nv_bfloat162* bb)
{
    const int v = threadIdx.x & 3;
    atomicAdd(&f[0], (float)v);
    atomicAdd(&d[0], (double)v);
    atomicAdd(&h[v & 1], __int2half_rn(1));
    atomicAdd(&hh[0], __halves2half2(__int2half_rn(1), __int2half_rn(2)));
    atomicAdd(&b[v & 1], __int2bfloat16_rn(1));
    atomicAdd(&bb[0], __halves2bfloat162(__int2bfloat16_rn(1), __int2bfloat16_rn(2)));
    atomicExch(&f[1], 3.5f);
}

// Sums by compare-and-swap, of 16, 32 and 64 bits: the old way of doing atomicAdd on doubles.
extern "C" __global__ void compare_and_swap(unsigned short* s, unsigned* w, unsigned long long* d)
{
    unsigned short seen = s[0], before;
    do {
        before = seen;
        seen = atomicCAS(&s[0], before, (unsigned short)(before + 1));
    } while (seen != before);
    unsigned old = w[0], assumed;
    do {
        assumed = old;
        old = atomicCAS(&w[0], assumed, __float_as_uint(__uint_as_float(assumed) + 1.0f));
    } while (old != assumed);
    unsigned long long is = d[0], was;
    do {
        was = is;
        is = atomicCAS(&d[0], was, (unsigned long long)__double_as_longlong(__longlong_as_double(was) + 0.5));
    } while (is != was);
}

// A histogram in shared memory, then added to the whole one.
extern "C" __global__ void shared_histogram(const unsigned char* x, int n, unsigned* bins)
{
    __shared__ unsigned mine[64];
    __shared__ double sum;
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        mine[i] = 0;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[x[i] & 63], 1u);
        atomicAdd(&sum, 1.0);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        atomicAdd(&bins[i], mine[i]);
    if (threadIdx.x == 0)
        atomicAdd(&bins[64], (unsigned)sum);
}

extern "C" __global__ void atomic_refs(unsigned* words, float* f, unsigned long long* d)
{
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> a(words[0]);
    a.fetch_add(1, cuda::memory_order_relaxed);
    cuda::atomic_ref<unsigned, cuda::thread_scope_block> b(words[1]);
    b.fetch_max(threadIdx.x, cuda::memory_order_acq_rel);
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> c(words[2]);
    c.fetch_xor(threadIdx.x);
    cuda::atomic_ref<float, cuda::thread_scope_device> g(f[0]);
    g.fetch_add(0.5f, cuda::memory_order_relaxed);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> e(d[0]);
    unsigned long long expected = e.load(cuda::memory_order_acquire);
    while (!e.compare_exchange_weak(expected, expected + 3, cuda::memory_order_release, cuda::memory_order_relaxed)) {
    }
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> last(words[3]);
    last.store(7, cuda::memory_order_release);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
    words[4] = last.load() + a.exchange(a.load()) * 0;
}

// A lock: threads of one warp and of other blocks take turns.
extern "C" __global__ void locked(int* lock, int* value)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int*)value = *(volatile int*)value + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
