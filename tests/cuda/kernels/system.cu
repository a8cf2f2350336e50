// What kernels ask of the system: text, memory of the heap, assertions.

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

struct Values {
    long long wide;
    double real;
    int word;
    short half;
    signed char byte;
    char letter;
};

extern "C" __global__ void conversions(const Values* values, const char* text, const int* stars, int* counts)
{
    const Values v = values[THREAD];
    int i = 0;
    int* out = counts + 16 * THREAD;
    out[i++] = printf("[%d|%i|%5d|%-6d|%06d|%+d|% d|%.4d|%+.3d|%8.3d]\n", v.word, v.word, v.word, v.word, v.word, v.word, v.word,
                      v.word, v.word, v.word);
    out[i++] = printf("[%u|%o|%#o|%x|%X|%#x|%#X|%08x|%-8x|%#10x]\n", v.word, v.word, v.word, v.word, v.word, v.word, v.word, v.word,
                      v.word, v.word);
    out[i++] = printf("[%lld|%llx|%ld|%lu|%llo|%20lld|%-20lld|%020lld]\n", v.wide, v.wide, (long)v.wide, (unsigned long)v.wide,
                      v.wide, v.wide, v.wide, v.wide);
    out[i++] = printf("[%hd|%hu|%hx|%hhd|%hhu]\n", v.half, v.half, v.half, v.byte, v.byte);
    out[i++] = printf("[%f|%.0f|%#.0f|%.3f|%12.4f|%-12.4f|%+f|% f|%012.3f|%F]\n", v.real, v.real, v.real, v.real, v.real, v.real, v.real,
                      v.real, v.real, v.real);
    out[i++] = printf("[%e|%.2e|%E|%g|%G|%.10g|%#g|%14.3e|%-14g]\n", v.real, v.real, v.real, v.real, v.real, v.real, v.real, v.real,
                      v.real);
    out[i++] = printf("[%a|%A|%.0a|%.3a|%20a|%-20.2a|%+a]\n", v.real, v.real, v.real, v.real, v.real, v.real, v.real);
    out[i++] = printf("[%c|%3c|%-3c|%s|%12s|%-12s|%.3s|%%]\n", v.letter, v.letter, v.letter, text, text, text, text);
    out[i++] = printf("[%*d|%-*d|%.*f|%*.*f]\n", stars[0], v.word, stars[0], v.word, stars[1], v.real, stars[0], stars[1], v.real);
    out[i++] = printf("no argument\n");
    out[i++] = printf("[%f %d %f %c %lld]\n", (float)v.real, v.word, v.real, v.letter, v.wide);
}

extern "C" __global__ void addresses(const int* p, const char* none)
{
    if (THREAD == 0)
        printf("[%p|%p|%s|%20p]\n", p, none, none, p);
}

// A text made by each thread, in local and in shared memory.
extern "C" __global__ void texts()
{
    __shared__ char common[8];
    char own[4] = {(char)('a' + threadIdx.x % 26), (char)('0' + blockIdx.x), 0, 0};
    if (threadIdx.x == 0)
        for (int i = 0; i < 8; i++)
            common[i] = i < 7 ? 'A' + i : 0;
    __syncthreads();
    printf("%s %s\n", own, common);
}

extern "C" __global__ void diverging(const int* x)
{
    if (x[THREAD] % 3 == 0) {
        printf("three %d\n", x[THREAD]);
    } else if (x[THREAD] % 3 == 1) {
        for (int i = 0; i < x[THREAD] % 4; i++)
            printf("one %d %d\n", x[THREAD], i);
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1)
        printf("end of %d\n", blockIdx.x);
}

extern "C" __global__ void loud(int n)
{
    for (int i = 0; i < n; i++)
        printf("%08d %08d\n", (int)THREAD, i);
}

extern "C" __global__ void unending_text(const char* text) { printf("%s\n", text); }

extern "C" __global__ void returned(const int* x, int* out)
{
    int n = printf("%d %d\n", x[THREAD], 7);
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[THREAD] + i;
    out[THREAD] = sum;
}

struct Node {
    int value;
    Node* next;
};

// Each thread keeps a list of its own, which the next launch reads and gives back.
extern "C" __global__ void build(Node** heads, const int* lengths)
{
    Node* head = nullptr;
    for (int i = 0; i < lengths[THREAD]; i++) {
        Node* node = (Node*)malloc(sizeof(Node));
        node->value = i * i + (int)THREAD;
        node->next = head;
        head = node;
    }
    heads[THREAD] = head;
}

extern "C" __global__ void sum_and_free(Node** heads, long long* sums)
{
    long long sum = 0;
    for (Node* node = heads[THREAD]; node != nullptr;) {
        Node* next = node->next;
        sum += node->value;
        free(node);
        node = next;
    }
    heads[THREAD] = nullptr;
    sums[THREAD] = sum;
}

extern "C" __global__ void exhaust(unsigned long long size, int* given)
{
    void* block = malloc(size);
    given[THREAD] = block != nullptr;
}

extern "C" __global__ void recycle(int rounds, unsigned long long* where)
{
    for (int i = 0; i < rounds; i++) {
        int* block = (int*)malloc(40);
        block[9] = i;
        where[THREAD] = (unsigned long long)block;
        free(block);
    }
}

extern "C" __global__ void misuse(int kind, int* out)
{
    int* block = (int*)malloc(40);
    int* other = new int[3];
    block[0] = 1;
    other[2] = 2;
    if (threadIdx.x == 5) {
        if (kind == 0)
            block[10] = 3;
        if (kind == 1)
            out[0] = block[-1];
        if (kind == 2) {
            free(block);
            out[0] = block[0];
        }
        if (kind == 3) {
            free(block);
            free(block);
        }
        if (kind == 4)
            free(block + 1);
        if (kind == 5)
            free(out);
        if (kind == 6)
            free(nullptr);
    }
    out[1] = other[2];
}

extern "C" __global__ void checks(const float* x, int n)
{
    if (THREAD < n)
        assert(x[THREAD] >= 0.0f);
}
