// Random numbers of threads.
#include <curand_kernel.h>

template <typename State>
__device__ void draw(unsigned long long seed, unsigned* bits, float* uniform, double* wide, float* normal, unsigned* poisson) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    State state;
    curand_init(seed, i, 5, &state);
    bits[i] = curand(&state);
    uniform[i] = curand_uniform(&state);
    wide[i] = curand_uniform_double(&state);
    normal[i] = curand_normal(&state);
    poisson[i] = curand_poisson(&state, 3.5) + curand_poisson(&state, 100.0) + curand_poisson(&state, 5000.0);
}

extern "C" __global__ void xorwow(unsigned long long seed, unsigned* b, float* u, double* w, float* n, unsigned* p) {
    draw<curandStateXORWOW_t>(seed, b, u, w, n, p);
}

extern "C" __global__ void philox(unsigned long long seed, unsigned* b, float* u, double* w, float* n, unsigned* p) {
    draw<curandStatePhilox4_32_10_t>(seed, b, u, w, n, p);
}

extern "C" __global__ void mrg32k3a(unsigned long long seed, unsigned* b, float* u, double* w, float* n, unsigned* p) {
    draw<curandStateMRG32k3a_t>(seed, b, u, w, n, p);
}

extern "C" __global__ void sobol(curandDirectionVectors32_t* vectors, curandDirectionVectors64_t* wide_vectors, unsigned* bits,
                                 unsigned long long* wide) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    curandStateSobol32_t state;
    curand_init(vectors[0], i, &state);
    bits[2 * i] = curand(&state);
    bits[2 * i + 1] = curand(&state);
    curandStateScrambledSobol64_t scrambled;
    curand_init(wide_vectors[0], 0x123456789abcdefull, i, &scrambled);
    wide[i] = curand(&scrambled);
}

extern "C" __global__ void others(curandStateMtgp32* twister, curandDiscreteDistribution_t distribution, unsigned* bits, float* numbers,
                                  double* wide) {
    bits[threadIdx.x] = curand(twister);
    curandStatePhilox4_32_10_t state;
    curand_init(1, threadIdx.x, 0, &state);
    bits[threadIdx.x] += curand_discrete(&state, distribution);
    float4 normals = curand_normal4(&state);
    numbers[threadIdx.x] = normals.x + normals.w + curand_log_normal(&state, 0.5f, 2.0f);
    wide[threadIdx.x] = curand_normal_double(&state) + curand_log_normal2_double(&state, 0.5, 2.0).y;
}
