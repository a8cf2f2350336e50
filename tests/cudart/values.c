/* Moves values that it need not, unless FIXED: zeros are copied to what is overwritten unread. MORE has code and calls before it.
 * argv: the fat binary. */
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 16384 };
typedef struct { unsigned x, y, z; } dim3;
typedef void *handle;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, handle);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaMalloc(void **, size_t), cudaMallocHost(void **, size_t), cudaFree(void *), cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaGetLastError(void), cudaDeviceSynchronize(void);

static char halve_host;

__attribute__((noinline)) static int stub(void *host, float *from, float *to)
{
    dim3 grid, block;
    size_t shared;
    handle queue;
    void *arguments[] = {&from, &to};
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &queue))
        return -1;
    return cudaLaunchKernel(host, grid, block, arguments, shared, queue);
}

#ifdef MORE
__attribute__((noinline)) static int more(void) { return cudaGetLastError() + cudaDeviceSynchronize(); }
#endif

__attribute__((noinline)) static float *upload(const float *host)
{
    float *memory;
    cudaMalloc((void **)&memory, COUNT * 4);
    cudaMemcpy(memory, host, COUNT * 4, 1); /* upload */
    return memory;
}

int main(int argc, char **argv)
{
    static char fat[1 << 16];
    static float zeros[COUNT];
    struct { int magic, version; void *data, *more; } wrapper = {0x466243b1, 1, fat, 0};
    FILE *file = fopen(argv[1], "rb");
    float *host, *from, *to;
    fread(fat, 1, sizeof fat, file);
    __cudaRegisterFunction(__cudaRegisterFatBinary(&wrapper), &halve_host, "halve", "halve", -1, 0, 0, 0, 0, 0);
#ifdef MORE
    if (more())
        return 1;
#endif
    cudaMallocHost((void **)&host, COUNT * 4);
    for (int i = 0; i < COUNT; i++)
        host[i] = i * 37 % 101;
    from = upload(host);
    cudaMalloc((void **)&to, COUNT * 4);
#ifndef FIXED
    cudaMemcpy(to, zeros, COUNT * 4, 1); /* zeros */
#endif
    __cudaPushCallConfiguration((dim3){COUNT / 256, 1, 1}, (dim3){256, 1, 1}, 0, 0) || stub(&halve_host, from, to); /* launch */
    cudaMemcpy(host, to, COUNT * 4, 2);
    printf("%g\n", host[5]);
    return cudaFree(from) | cudaFree(to) | cudaFreeHost(host);
}
