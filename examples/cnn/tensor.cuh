// Tensors are single precision, dense, in NCHW order. The accesses below are predicated instructions, not branches: an
// element beyond the border costs a warp no divergence, and its address is never touched.
#pragma once

// *address, or otherwise where inside is false.
__device__ inline float load_if(bool inside, const float* address, float otherwise = 0.0f)
{
    float value = otherwise;
    asm("{\n"
        "    .reg .pred inside;\n"
        "    setp.ne.s32 inside, %2, 0;\n"
        "    @inside ld.global.nc.f32 %0, [%1];\n"
        "}"
        : "+f"(value)
        : "l"(address), "r"(static_cast<int>(inside)));
    return value;
}

// *address = value where inside is true.
__device__ inline void store_if(bool inside, float* address, float value)
{
    asm volatile("{\n"
                 "    .reg .pred inside;\n"
                 "    setp.ne.s32 inside, %2, 0;\n"
                 "    @inside st.global.f32 [%0], %1;\n"
                 "}"
                 :
                 : "l"(address), "f"(value), "r"(static_cast<int>(inside))
                 : "memory");
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
