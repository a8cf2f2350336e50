// Kernels as others write them: simulation, finance, images, hashing, text, sorting, graphs of blocks.

#include <stdint.h>
#define TILE 16

// N-body: one body per thread, tiles of bodies in shared memory, reciprocal square roots.
__global__ void nbody(const float4* __restrict__ bodies, float4* __restrict__ forces, int n, float softening)
{
    extern __shared__ float4 tile[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 acc = {0.0f, 0.0f, 0.0f};
    for (int base = 0; base < n; base += blockDim.x) {
        if (base + threadIdx.x < n)
            tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
        const int limit = min((int)blockDim.x, n - base);
#pragma unroll 4
        for (int j = 0; j < limit; j++) {
            const float4 other = tile[j];
            const float3 r = {other.x - me.x, other.y - me.y, other.z - me.z};
            const float d2 = r.x * r.x + r.y * r.y + r.z * r.z + softening;
            const float inv = rsqrtf(d2);
            const float s = other.w * inv * inv * inv;
            acc.x += r.x * s;
            acc.y += r.y * s;
            acc.z += r.z * s;
        }
        __syncthreads();
    }
    if (i < n)
        forces[i] = make_float4(acc.x, acc.y, acc.z, 0.0f);
}

__device__ inline float cnd(float d)
{
    const float A1 = 0.31938153f, A2 = -0.356563782f, A3 = 1.781477937f, A4 = -1.821255978f, A5 = 1.330274429f;
    const float K = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float c = 0.39894228040143267793994605993438f * expf(-0.5f * d * d) * (K * (A1 + K * (A2 + K * (A3 + K * (A4 + K * A5)))));
    if (d > 0)
        c = 1.0f - c;
    return c;
}

__global__ void black_scholes(float2* __restrict__ out, const float* price, const float* strike, const float* years, float r, float v, int n)
{
    for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const float S = price[i], X = strike[i], T = years[i];
        const float root = sqrtf(T);
        const float d1 = (logf(S / X) + (r + 0.5f * v * v) * T) / (v * root);
        const float d2 = d1 - v * root;
        const float discount = expf(-r * T);
        const float c1 = cnd(d1), c2 = cnd(d2);
        out[i] = make_float2(S * c1 - X * discount * c2, X * discount * (1.0f - c2) - S * (1.0f - c1));
    }
}

struct XorShift {
    uint32_t x, y, z, w;
    __device__ explicit XorShift(uint32_t seed) : x(seed * 2654435761u + 1), y(362436069u), z(521288629u), w(88675123u) {}
    __device__ uint32_t operator()()
    {
        const uint32_t t = x ^ (x << 11);
        x = y;
        y = z;
        z = w;
        return w = w ^ (w >> 19) ^ (t ^ (t >> 8));
    }
    __device__ float uniform() { return (*this)() * 2.3283064365386963e-10f; }
};

__global__ void monte_carlo_pi(unsigned long long* hits, int rounds)
{
    XorShift random(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned inside = 0;
    for (int i = 0; i < rounds; i++) {
        const float a = random.uniform(), b = random.uniform();
        inside += a * a + b * b <= 1.0f;
    }
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        inside += __shfl_down_sync(0xffffffff, inside, offset);
    if (threadIdx.x % warpSize == 0)
        atomicAdd(hits, (unsigned long long)inside);
}

template <int RADIUS>
__global__ void conv2d(const float* in, const float* weights, float* out, int width, int height)
{
    __shared__ float tile[TILE + 2 * RADIUS][TILE + 2 * RADIUS + 1];
    const int x0 = blockIdx.x * TILE - RADIUS, y0 = blockIdx.y * TILE - RADIUS;
    for (int y = threadIdx.y; y < TILE + 2 * RADIUS; y += TILE)
        for (int x = threadIdx.x; x < TILE + 2 * RADIUS; x += TILE) {
            const int gx = min(max(x0 + x, 0), width - 1), gy = min(max(y0 + y, 0), height - 1);
            tile[y][x] = in[gy * width + gx];
        }
    __syncthreads();
    const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = 0; dy <= 2 * RADIUS; dy++)
        for (int dx = 0; dx <= 2 * RADIUS; dx++)
            sum += weights[dy * (2 * RADIUS + 1) + dx] * tile[threadIdx.y + dy][threadIdx.x + dx];
    out[y * width + x] = sum;
}
template __global__ void conv2d<2>(const float*, const float*, float*, int, int);

__global__ void sobel(const unsigned char* image, unsigned char* edges, int width, int height)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x <= 0 || y <= 0 || x >= width - 1 || y >= height - 1)
        return;
#define P(dx, dy) ((int)image[(y + (dy)) * width + x + (dx)])
    const int gx = P(1, -1) + 2 * P(1, 0) + P(1, 1) - P(-1, -1) - 2 * P(-1, 0) - P(-1, 1);
    const int gy = P(-1, 1) + 2 * P(0, 1) + P(1, 1) - P(-1, -1) - 2 * P(0, -1) - P(1, -1);
    edges[y * width + x] = (unsigned char)min(255, (int)(sqrtf((float)(gx * gx + gy * gy)) + 0.5f));
#undef P
}

__global__ void life(const uint8_t* now, uint8_t* next, int width, int height)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width * height)
        return;
    const int x = i % width, y = i / width;
    int alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy)
                alive += now[((y + dy + height) % height) * width + (x + dx + width) % width];
    next[i] = alive == 3 || (alive == 2 && now[i]);
}

// Scan of the whole grid in one pass: blocks look back at what those before them have published (64-bit status words).
__global__ void scan_look_back(const int* in, int* out, volatile unsigned long long* status, unsigned* order, int n)
{
    __shared__ int warps[32];
    __shared__ int before;
    __shared__ unsigned block;
    if (threadIdx.x == 0)
        block = atomicAdd(order, 1u);
    __syncthreads();
    const int i = block * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = i < n ? in[i] : 0;
    for (int d = 1; d < 32; d <<= 1) {
        const int t = __shfl_up_sync(~0u, v, d);
        if (lane >= d)
            v += t;
    }
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int w = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (int d = 1; d < 32; d <<= 1) {
            const int t = __shfl_up_sync(~0u, w, d);
            if (lane >= d)
                w += t;
        }
        warps[lane] = w;
    }
    __syncthreads();
    v += warp ? warps[warp - 1] : 0;
    if (threadIdx.x == blockDim.x - 1) {
        if (block == 0) {
            status[0] = 2ull << 32 | (unsigned)v;
            before = 0;
        } else {
            status[block] = 1ull << 32 | (unsigned)v;
            __threadfence();
            int sum = 0;
            for (int b = block - 1; b >= 0;) {
                const unsigned long long s = status[b];
                const unsigned state = (unsigned)(s >> 32);
                if (state == 0)
                    continue;
                sum += (int)(unsigned)s;
                if (state == 2)
                    break;
                b--;
            }
            before = sum;
            __threadfence();
            status[block] = 2ull << 32 | (unsigned)(sum + v);
        }
    }
    __syncthreads();
    if (i < n)
        out[i] = v + before;
}

__device__ uint32_t murmur(uint32_t k)
{
    k ^= k >> 16;
    k *= 0x85ebca6b;
    k ^= k >> 13;
    k *= 0xc2b2ae35;
    return k ^ (k >> 16);
}

struct Slot {
    uint32_t key, value;
};

__global__ void hash_insert(Slot* table, uint32_t capacity, const Slot* items, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        uint32_t slot = murmur(items[i].key) & (capacity - 1);
        while (true) {
            const uint32_t seen = atomicCAS(&table[slot].key, 0xffffffffu, items[i].key);
            if (seen == 0xffffffffu || seen == items[i].key) {
                atomicAdd(&table[slot].value, items[i].value);
                break;
            }
            slot = (slot + 1) & (capacity - 1);
        }
    }
}

// LU decomposition without pivots of small matrices, one per block.
__global__ void lu_small(double* matrices, int n)
{
    extern __shared__ double a[];
    double* mine = matrices + (size_t)blockIdx.x * n * n;
    for (int i = threadIdx.x; i < n * n; i += blockDim.x)
        a[i] = mine[i];
    for (int k = 0; k < n - 1; k++) {
        __syncthreads();
        for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x)
            a[i * n + k] /= a[k * n + k];
        __syncthreads();
        for (int t = threadIdx.x; t < (n - k - 1) * (n - k - 1); t += blockDim.x) {
            const int i = k + 1 + t / (n - k - 1), j = k + 1 + t % (n - k - 1);
            a[i * n + j] -= a[i * n + k] * a[k * n + j];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n * n; i += blockDim.x)
        mine[i] = a[i];
}

__constant__ uint8_t sbox[256];

__device__ uint8_t doubled(uint8_t x) { return (uint8_t)((x << 1) ^ ((x >> 7) * 0x1b)); }

// AES-128, one block of 16 bytes per thread; round keys expanded by the host.
__global__ void aes128(const uint8_t* keys, const uint8_t* in, uint8_t* out, int blocks)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= blocks)
        return;
    uint8_t s[16], t[16];
    for (int j = 0; j < 16; j++)
        s[j] = in[16 * i + j] ^ keys[j];
    for (int round = 1; round <= 10; round++) {
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < 4; r++)
                t[4 * c + r] = sbox[s[4 * ((c + r) & 3) + r]];
        for (int c = 0; c < 4; c++) {
            const uint8_t a = t[4 * c], b = t[4 * c + 1], d = t[4 * c + 2], e = t[4 * c + 3];
            if (round < 10) {
                s[4 * c] = doubled(a) ^ doubled(b) ^ b ^ d ^ e;
                s[4 * c + 1] = a ^ doubled(b) ^ doubled(d) ^ d ^ e;
                s[4 * c + 2] = a ^ b ^ doubled(d) ^ doubled(e) ^ e;
                s[4 * c + 3] = doubled(a) ^ a ^ b ^ d ^ doubled(e);
            } else {
                s[4 * c] = a;
                s[4 * c + 1] = b;
                s[4 * c + 2] = d;
                s[4 * c + 3] = e;
            }
        }
        for (int j = 0; j < 16; j++)
            s[j] ^= keys[16 * round + j];
    }
    for (int j = 0; j < 16; j++)
        out[16 * i + j] = s[j];
}

__constant__ uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define ROTR(x, n) (((x) >> (n)) | ((x) << (32 - (n))))

// SHA-256 of one message of up to 55 bytes per thread.
__global__ void sha256(const uint8_t* messages, const int* lengths, int stride, uint32_t* digests, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t w[64];
    const uint8_t* m = messages + (size_t)i * stride;
    const int length = lengths[i];
    for (int j = 0; j < 16; j++) {
        uint32_t v = 0;
        for (int b = 0; b < 4; b++) {
            const int at = 4 * j + b;
            v = v << 8 | (at < length ? m[at] : at == length ? 0x80 : 0);
        }
        w[j] = v;
    }
    w[15] = length * 8;
    for (int j = 16; j < 64; j++) {
        const uint32_t s0 = ROTR(w[j - 15], 7) ^ ROTR(w[j - 15], 18) ^ (w[j - 15] >> 3);
        const uint32_t s1 = ROTR(w[j - 2], 17) ^ ROTR(w[j - 2], 19) ^ (w[j - 2] >> 10);
        w[j] = w[j - 16] + s0 + w[j - 7] + s1;
    }
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], x = h[7];
    for (int j = 0; j < 64; j++) {
        const uint32_t t1 = x + (ROTR(e, 6) ^ ROTR(e, 11) ^ ROTR(e, 25)) + ((e & f) ^ (~e & g)) + sha_k[j] + w[j];
        const uint32_t t2 = (ROTR(a, 2) ^ ROTR(a, 13) ^ ROTR(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        x = g; g = f; f = e; e = d + t1; d = c; c = b; b = a; a = t1 + t2;
    }
    const uint32_t last[8] = {a, b, c, d, e, f, g, x};
    for (int j = 0; j < 8; j++)
        digests[8 * i + j] = h[j] + last[j];
}

__constant__ char base64_digits[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

__global__ void base64(const uint8_t* in, int n, char* out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (3 * i >= n)
        return;
    const int left = n - 3 * i;
    const uint32_t v = in[3 * i] << 16 | (left > 1 ? in[3 * i + 1] << 8 : 0) | (left > 2 ? in[3 * i + 2] : 0);
    char4 digits;
    digits.x = base64_digits[v >> 18];
    digits.y = base64_digits[v >> 12 & 63];
    digits.z = left > 1 ? base64_digits[v >> 6 & 63] : '=';
    digits.w = left > 2 ? base64_digits[v & 63] : '=';
    reinterpret_cast<char4*>(out)[i] = digits;
}

// Merge path: each thread finds its place on the diagonal, then merges a few elements.
__global__ void merge_path(const int* a, int na, const int* b, int nb, int* out, int each)
{
    const int start = (blockIdx.x * blockDim.x + threadIdx.x) * each;
    if (start >= na + nb)
        return;
    int low = max(0, start - nb), high = min(start, na);
    while (low < high) {
        const int middle = (low + high) >> 1;
        if (a[middle] <= b[start - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    int i = low, j = start - low;
    for (int k = start; k < min(start + each, na + nb); k++)
        out[k] = j >= nb || (i < na && a[i] <= b[j]) ? a[i++] : b[j++];
}

__global__ void kmeans_assign(const float* points, const float* centres, int n, int k, int dims, int* labels, float* sums, int* counts)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int best = -1;
    float least = 3.402823466e+38f;
    for (int c = 0; c < k; c++) {
        float d = 0;
        for (int j = 0; j < dims; j++) {
            const float t = points[i * dims + j] - centres[c * dims + j];
            d += t * t;
        }
        if (d < least) {
            least = d;
            best = c;
        }
    }
    labels[i] = best;
    atomicAdd(&counts[best], 1);
    for (int j = 0; j < dims; j++)
        atomicAdd(&sums[best * dims + j], points[i * dims + j]);
}

// Quicksort with a stack of its own, one small array per thread.
__global__ void quicksort(int* data, int n, int arrays)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= arrays)
        return;
    int* v = data + i * n;
    int stack[64], top = 0;
    stack[top++] = 0;
    stack[top++] = n - 1;
    while (top > 0) {
        int high = stack[--top], low = stack[--top];
        while (low < high) {
            const int pivot = v[(low + high) / 2];
            int p = low, q = high;
            do {
                while (v[p] < pivot) p++;
                while (v[q] > pivot) q--;
                if (p <= q) {
                    const int t = v[p];
                    v[p++] = v[q];
                    v[q--] = t;
                }
            } while (p <= q);
            if (q - low < high - p) {
                if (p < high) { stack[top++] = p; stack[top++] = high; }
                high = q;
            } else {
                if (low < q) { stack[top++] = low; stack[top++] = q; }
                low = p;
            }
        }
    }
}

__global__ void search(const char* text, int n, const char* word, int length, int* found, int* places)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + length > n)
        return;
    for (int j = 0; j < length; j++)
        if (text[i + j] != word[j])
            return;
    places[atomicAdd(found, 1)] = i;
}

// Transpose by tiles with a column of padding; any element size.
template <typename T>
__global__ void transpose(const T* __restrict__ in, T* __restrict__ out, int width, int height)
{
    __shared__ T tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
template __global__ void transpose<unsigned char>(const unsigned char*, unsigned char*, int, int);
template __global__ void transpose<double2>(const double2*, double2*, int, int);
