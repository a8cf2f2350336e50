// Quotients and remainders by constants, which compilers write as high products and shifts.
#include "common.h"
#define GLOBAL (blockIdx.x * blockDim.x + threadIdx.x)
#define WHEN(condition, place) if (condition) { MIX(place); out[place] = acc; }
#define TESTS(type, d)                                                                                                 \
    {                                                                                                                  \
        type q = u / (type)d, r = u % (type)d;                                                                         \
        WHEN(r == (type)(d / 2), 1)                                                                                    \
        WHEN(q + (type)threadIdx.x < (type)n, 2)                                                                       \
        WHEN(q / (type)3 % (type)5 == (type)2, 3)                                                                      \
        WHEN(r > (type)(d / 3) && q % 2 == 1, 4)                                                                       \
        ROLLED for (type j = 0; j < r && j < 20; j += 3) MIX(j);                                                       \
    }
#define SIGNED(d) KERNEL(signed_##d) { unsigned acc = 1; int u = (int)GLOBAL * (p & 3) - m; TESTS(int, d) DONE; }
#define UNSIGNED(d) KERNEL(unsigned_##d) { unsigned acc = 1; unsigned u = GLOBAL + (unsigned)m; TESTS(unsigned, d) DONE; }
#define LONG(d) WIDE(long_##d) { unsigned acc = 1; long long u = (long long)GLOBAL * (p & 7) - m; TESTS(long long, d) DONE; }

SIGNED(3) SIGNED(7) SIGNED(10) SIGNED(12) SIGNED(49) SIGNED(100) SIGNED(1009)
UNSIGNED(3) UNSIGNED(7) UNSIGNED(14) UNSIGNED(21) UNSIGNED(196) UNSIGNED(641) UNSIGNED(1000)
LONG(3) LONG(7) LONG(48) LONG(1000)
