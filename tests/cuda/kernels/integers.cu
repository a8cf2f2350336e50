// Integer intrinsics, 128-bit arithmetic, bit fields and the packed (SIMD) intrinsics: one word of results per operation.

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void bits(const unsigned* x, const unsigned* y, unsigned* out)
{
    const unsigned i = THREAD, a = x[i], b = y[i], n = blockDim.x * gridDim.x;
    unsigned k = 0;
#define PUT(value) out[(k++) * n + i] = (unsigned)(value)
    PUT(__clz(a));
    PUT(__ffs(a));
    PUT(__popc(a));
    PUT(__brev(a));
    PUT(__byte_perm(a, b, 0x5140));
    PUT(__byte_perm(a, b, a & 0x7777));
    PUT(__mul24((int)a, (int)b));
    PUT(__umul24(a, b));
    PUT(__mulhi((int)a, (int)b));
    PUT(__umulhi(a, b));
    PUT(__sad((int)a, (int)b, 7u));
    PUT(__usad(a, b, 7u));
    PUT(__hadd((int)a, (int)b));
    PUT(__rhadd((int)a, (int)b));
    PUT(__uhadd(a, b));
    PUT(__urhadd(a, b));
    PUT(__funnelshift_l(a, b, a));
    PUT(__funnelshift_lc(a, b, b & 63));
    PUT(__funnelshift_r(a, b, a));
    PUT(__funnelshift_rc(a, b, b & 63));
    PUT(__dp4a((int)a, (int)b, 5));
    PUT(__dp4a(a, b, 5u));
    PUT(__dp2a_lo((int)a, (int)b, 5));
    PUT(__dp2a_hi(a, b, 5u));
    PUT(abs((int)a));
    PUT(min((int)a, (int)b));
    PUT(umax(a, b));
    PUT((int)a / (int)(b | 1));
    PUT((int)a % (int)(b | 1));
    PUT(a / (b | 1));
    PUT(a % (b | 1));
    PUT((int)a >> (b & 31));
    PUT(a >> (b & 31));
    PUT(a << (b & 31));
    PUT((a >> 5) & 0x1ff);
    PUT((int)(a << 7) >> 20);
    PUT(__fns(a, b & 31, 1));
}

extern "C" __global__ void bits64(const unsigned long long* x, const unsigned long long* y, unsigned long long* out)
{
    typedef unsigned long long word;
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const word a = x[i], b = y[i];
    unsigned k = 0;
#undef PUT
#define PUT(value) out[(k++) * n + i] = (word)(value)
    PUT(__clzll(a));
    PUT(__ffsll(a));
    PUT(__popcll(a));
    PUT(__brevll(a));
    PUT(__mul64hi((long long)a, (long long)b));
    PUT(__umul64hi(a, b));
    PUT(llabs((long long)a));
    PUT(llmin((long long)a, (long long)b));
    PUT(ullmax(a, b));
    PUT((long long)a / (long long)(b | 1));
    PUT((long long)a % (long long)(b | 1));
    PUT(a / (b | 1));
    PUT(a % (b | 1));
    PUT((long long)a >> (b & 63));
    PUT(a << (b & 63));
    PUT(a * b);
    PUT((word)(unsigned)a * (unsigned)b + b);
}

typedef unsigned __int128 wide;
typedef __int128 swide;

// Arithmetic on 128 bits: sums with carry, products, shifts, quotients.
extern "C" __global__ void wide_integers(const unsigned long long* x, const unsigned long long* y, unsigned long long* out)
{
    const unsigned i = THREAD, n = blockDim.x * gridDim.x;
    const wide a = ((wide)x[2 * i + 1] << 64) | x[2 * i], b = ((wide)y[2 * i + 1] << 64) | y[2 * i];
    unsigned k = 0;
#undef PUT
#define PUT(value)                                              \
    do {                                                        \
        const wide v = (wide)(value);                           \
        out[(k * n + i) * 2] = (unsigned long long)v;           \
        out[(k * n + i) * 2 + 1] = (unsigned long long)(v >> 64); \
        k++;                                                    \
    } while (0)
    PUT(a + b);
    PUT(a - b);
    PUT(a * b);
    PUT(a / (b | 1));
    PUT(a % (b | 1));
    PUT((swide)a / (swide)(b | 1));
    PUT((swide)a % (swide)(b | 1));
    PUT(a << (unsigned)(b & 127));
    PUT(a >> (unsigned)(b & 127));
    PUT((swide)a >> (unsigned)(b & 127));
    PUT(a < b);
    PUT((swide)a < (swide)b);
    PUT(-a);
    PUT(a ^ (b & ~a));
}

struct Packed {
    unsigned sign : 1, exponent : 8, mantissa : 23;
    int small : 5, middle : 13;
    long long big : 40;
};

// Bit fields, read and changed in place.
extern "C" __global__ void bit_fields(Packed* items, long long* sums)
{
    Packed item = items[THREAD];
    sums[THREAD] = (long long)item.sign + item.exponent + item.mantissa + item.small + item.middle + item.big;
    item.sign ^= 1;
    item.exponent += 3;
    item.small -= 2;
    item.middle *= 3;
    item.big = -item.big;
    items[THREAD] = item;
}
