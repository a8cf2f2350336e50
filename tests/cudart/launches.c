/* A CUDA program as nvcc's host code is: f<<<grid, block>>>(...) pushes the configuration where it stands, and a stub launches.
 * argv: the fat binary, how often each line launches, the exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *handle;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, handle);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaMalloc(void **, size_t), cudaMemset(void *, int, size_t), cudaMemcpy(void *, const void *, size_t, int);

static char add_host, store_host;

static int stub(void *host, int *data, int value)
{
    dim3 grid, block;
    size_t shared;
    handle queue;
    void *arguments[] = {&data, &value};
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &queue))
        return -1;
    return cudaLaunchKernel(host, grid, block, arguments, shared, queue);
}

#define LAUNCH(host, blocks, data, value) \
    (__cudaPushCallConfiguration((dim3){blocks, 1, 1}, (dim3){32, 1, 1}, 0, 0) ? -1 : stub(host, data, value))

int main(int argc, char **argv)
{
    static char fat[1 << 16];
    struct { int magic, version; void *data, *more; } wrapper = {0x466243b1, 1, fat, 0};
    FILE *file = fopen(argv[1], "rb");
    int *data, host[64], count = atoi(argv[2]), code = atoi(argv[3]), wrong = 0;
    fread(fat, 1, sizeof fat, file);
    void **registered = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(registered, &add_host, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, &store_host, "store", "store", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(registered);
    cudaMalloc((void **)&data, sizeof host);
    cudaMemset(data, 0, sizeof host);
    for (int i = 0; i < count; i++)
        wrong |= LAUNCH(&add_host, 1, data, 1); /* first */
    for (int i = 0; i < count; i++)
        wrong |= LAUNCH(&add_host, 1 + i % 2, data, 1); /* second */
    wrong |= LAUNCH(&store_host, 1, data, LAUNCH(&add_host, 1, data, 1)); /* third */
    cudaMemcpy(host, data, sizeof host, 2);
    wrong |= host[0] != 0 || host[63] != count / 2;
    printf("%s, %s\n", wrong ? "wrong" : "right", getenv("GREETING") ? getenv("GREETING") : "silent");
    fprintf(stderr, "done\n");
    if (code == 99)
        _exit(0);
    return wrong ? 1 : code;
}
