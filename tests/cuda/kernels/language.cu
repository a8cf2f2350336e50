// What the language has: calls of all kinds, virtual functions, recursion, structures by value, unions, local arrays, tables,
// initialised globals that point to one another, dense switches, system calls that are not reached.

#include <assert.h>
#include <stdio.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
    __device__ virtual int corners() const { return 0; }
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
    __device__ int corners() const override { return 4; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.0f * radius * radius; }
};

// Odd threads have circles: the lanes of a warp call different functions.
extern "C" __global__ void virtual_functions(const float* x, float* areas, int* corners)
{
    Square square(x[THREAD]);
    Circle circle(x[THREAD]);
    const Shape* shape = (THREAD & 1) ? static_cast<const Shape*>(&circle) : &square;
    areas[THREAD] = shape->area();
    corners[THREAD] = shape->corners();
}

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negative(int x) { return -x; }
typedef int (*Function)(int);
__device__ Function functions[3] = {twice, square, negative};
__constant__ Function constant_functions[3] = {negative, twice, square};

extern "C" __global__ void function_pointers(const int* x, int* out)
{
    const int a = x[THREAD];
    out[2 * THREAD] = functions[THREAD % 3](a);
    out[2 * THREAD + 1] = constant_functions[a % 3](a + 1);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(int* out)
{
    const int i = THREAD;
    out[3 * i] = fibonacci(i % 13);
    out[3 * i + 1] = even(i);
    out[3 * i + 2] = (int)ackermann(i & 1, i % 7);
}

struct Particle {
    double mass;
    float position[3];
    short charge;
    char tag;
};
struct Pair {
    long long first;
    int second;
};
union Word {
    unsigned bits;
    float number;
    unsigned char bytes[4];
};

__device__ __noinline__ Particle moved(Particle p, float3 by)
{
    p.position[0] += by.x;
    p.position[1] += by.y;
    p.position[2] += by.z;
    p.charge++;
    p.tag ^= 1;
    return p;
}
__device__ __noinline__ Pair swapped(Pair p)
{
    Pair q = {p.second, (int)p.first};
    return q;
}

extern "C" __global__ void structures(Particle shape, const float* x, Particle* out, Pair* pairs, unsigned* words)
{
    const unsigned i = THREAD;
    out[i] = moved(shape, make_float3(x[i], -x[i], 2.0f * x[i]));
    Pair p = {(long long)i << 3, (int)i - 7};
    pairs[i] = swapped(swapped(swapped(p)));
    Word w;
    w.number = x[i];
    const unsigned char first = w.bytes[0];
    w.bytes[0] = w.bytes[3];
    w.bytes[3] = first;
    words[i] = w.bits;
}

// Local arrays with indices known only at run time: a small sort and a stack.
extern "C" __global__ void local_arrays(const int* x, int* sorted, int* depth)
{
    int mine[8];
    for (int j = 0; j < 8; j++)
        mine[j] = x[8 * THREAD + j];
    for (int j = 1; j < 8; j++) {
        const int v = mine[j];
        int p = j;
        while (p > 0 && mine[p - 1] > v) {
            mine[p] = mine[p - 1];
            p--;
        }
        mine[p] = v;
    }
    for (int j = 0; j < 8; j++)
        sorted[8 * THREAD + j] = mine[j];
    unsigned char stack[32];
    int top = 0;
    for (int j = 0; j < 8; j++) {
        while (top && stack[top - 1] > (mine[j] & 15))
            top--;
        stack[top++] = mine[j] & 15;
    }
    depth[THREAD] = top;
}

__constant__ float coefficients[5] = {1.0f, -0.5f, 0.25f, -0.125f, 0.0625f};
__constant__ unsigned char nibble[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
__device__ int grid_size[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ const int* row = &grid_size[1][0];
__device__ const int* const* row_again = &row;
__device__ struct { short a; const unsigned char* names[2]; double d; } mixed = {-5, {nibble + 3, nullptr}, 2.5};
__device__ int counter;
__managed__ int shared_with_host = 11;

extern "C" __global__ void tables(const unsigned* x, float* polynomial, int* counts)
{
    const float v = (float)(x[THREAD] & 15) * 0.125f;
    float sum = 0;
    for (int j = 4; j >= 0; j--)
        sum = sum * v + coefficients[j];
    polynomial[THREAD] = sum;
    int bits = 0;
    for (unsigned w = x[THREAD]; w; w >>= 4)
        bits += nibble[w & 15];
    counts[THREAD] = bits + 100 * (*row_again)[THREAD % 3] + 10000 * (mixed.a + 6 + (mixed.names[1] != nullptr));
    counts[THREAD] += 100000 * (int)mixed.d + 1000000 * mixed.names[0][0];
    if (THREAD == 0)
        counter = shared_with_host + grid_size[0][2];
}

__device__ __noinline__ int operation(int kind, int a, int b)
{
    switch (kind) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a & b;
    case 4: return a | b;
    case 5: return a ^ b;
    case 6: return a << (b & 7);
    case 7: return a >> (b & 7);
    case 8: return max(a, b);
    case 9: return min(a, b);
    case 10: return b ? a / b : -1;
    case 11: return b ? a % b : -2;
    case 12: return __popc(a) + b;
    case 13: return __clz(a) - b;
    case 14: return abs(a) + abs(b);
    case 15: return a * a - b * b;
    default: return ~a;
    }
}

// A little machine: one dense switch for every instruction of the program.
extern "C" __global__ void dense_switch(const int* kinds, const int* x, int steps, int* out)
{
    int value = x[THREAD];
    for (int j = 0; j < steps; j++)
        value = operation(kinds[(THREAD + j) % 24], value, j - 3);
    out[THREAD] = value;
}

// printf, assert, malloc and trap stand in the code but are not reached.
extern "C" __global__ void unreached(const int* x, int* out)
{
    assert(x[THREAD] >= 0);
    if (x[THREAD] > 1000)
        printf("thread %d has %d and %f\n", (int)THREAD, x[THREAD], 1.5);
    if (x[THREAD] > 2000) {
        int* more = (int*)malloc(16);
        *more = 1;
        out[0] = *more;
        free(more);
    }
    if (x[THREAD] > 3000)
        __trap();
    out[THREAD] = x[THREAD] + 1;
}

extern "C" __global__ void says(int* out) { out[THREAD] = printf("hello from %d\n", (int)THREAD); }
extern "C" __global__ void asserts(const int* x, int* out)
{
    assert(x[THREAD] < 5 && "too large");
    out[THREAD] = x[THREAD];
}
extern "C" __global__ void allocates(int** out) { out[THREAD] = (int*)malloc(64); }

template <int N, typename F>
__device__ int folded(F f, int start)
{
#pragma unroll
    for (int j = 0; j < N; j++)
        start = f(start, j);
    return start;
}

// Lambdas with captures, templates, goto, early returns, nested loops with break and continue.
extern "C" __global__ void control(const int* x, int n, int* out)
{
    const int i = THREAD;
    if (i >= n)
        return;
    int offset = x[i];
    int value = folded<5>([=](int a, int b) { return a * 3 + b + offset; }, 1);
    for (int a = 0; a < 10; a++) {
        if ((a ^ i) % 3 == 0)
            continue;
        for (int b = a;; b++) {
            if (b * i > 40)
                break;
            if (b > 20)
                goto out;
            value += b;
        }
        value ^= a;
    }
out:
    do {
        value = (value & 1) ? value * 3 + 1 : value / 2;
    } while (value > 1000);
    out[i] = value;
}

// Cache hints, volatile, read-only loads, vector types.
extern "C" __global__ void cache_hints(const int4* __restrict__ x, volatile int* v, int4* out, double2* d, uchar4* c, short2* s)
{
    const unsigned i = THREAD;
    int4 a = __ldg(&x[i]);
    int4 b = __ldcg(&x[i]);
    const int e = __ldcs(&((const int*)x)[i]) + __ldca(&((const int*)x)[i]) + __ldcv(&((const int*)x)[i]) + __ldlu(&((const int*)x)[i]);
    v[i] = v[i] + 1;
    a.x += b.y;
    a.w = e;
    __stcs(&out[i], a);
    __stcg(&d[i], make_double2(a.x, b.z * 0.5));
    __stwb(&c[i], make_uchar4(a.x, a.y, a.z, a.w));
    __stwt(&s[i], make_short2(a.x, -a.y));
}

// Inline PTX: nested scopes, the same names in each, vectors, predicates, immediates, special registers.
extern "C" __global__ void inline_ptx(const unsigned* x, unsigned* out)
{
    unsigned a = x[THREAD], b, c;
    unsigned long long w;
    asm("{\n\t.reg .u32 t1;\n\t{\n\t.reg .u32 t1, t2;\n\tadd.u32 t1, %1, 1;\n\tmul.lo.u32 t2, t1, t1;\n\tmov.u32 %0, t2;\n\t}\n\t"
        "xor.b32 t1, %0, 0xff;\n\tmov.b32 %0, t1;\n\t}" : "=r"(b) : "r"(a));
    asm("{.reg .pred p; setp.gt.u32 p, %1, %2; @p mov.u32 %0, 111; @!p mov.u32 %0, 222;}" : "=r"(c) : "r"(a), "n"(50));
    asm("mov.b64 %0, {%1, %2};" : "=l"(w) : "r"(b), "r"(c));
    unsigned lane, lo, hi;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("bfe.u32 %0, %1, 4, 8;" : "=r"(lo) : "r"(a));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(hi) : "r"(a), "r"(b), "r"(c));
    asm("{ add.cc.u32 %0, %0, %2; addc.u32 %1, %1, 0; }" : "+r"(lo), "+r"(hi) : "r"(0xffffff00u));
    out[THREAD] = (unsigned)(w >> 32) * 3 + (unsigned)w + lane * 1000 + lo + hi;
}
