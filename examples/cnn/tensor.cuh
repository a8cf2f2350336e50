// Tensors are single precision, dense, in NCHW order.
#pragma once

// Starts a copy of one element to shared memory; of zero, without touching the address, where inside is false: the size of
// the source is an operand of the copy, so a border costs no branch.
__device__ inline void copy_or_zero(float* shared, const float* global, bool inside)
{
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(to), "l"(global), "r"(inside ? 4 : 0) : "memory");
}

// Waits until everything whose copy this thread has started is there.
__device__ inline void wait_for_copies()
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

// The sum over the lanes of a warp, in every lane.
__device__ inline float warp_sum(float value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// The largest value of a warp, in every lane.
__device__ inline float warp_max(float value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}
