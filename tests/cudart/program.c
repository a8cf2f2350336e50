/* A CUDA program as nvcc's host code is, without nvcc: it registers the fat binary in the file argv[1], and does what argv[2] says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *handle;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, handle);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocManaged(void **, size_t, unsigned), cudaHostRegister(void *, size_t, unsigned);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, handle);
int cudaMemset(void *, int, size_t), cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int), cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
struct location { int type, id; };
int cudaMemAdvise(void *, size_t, int, struct location);
int cudaMemPrefetchAsync_v2(void *, size_t, struct location, unsigned, handle), cudaStreamAttachMemAsync(handle, void *, size_t, unsigned);
int cudaStreamDestroy(handle), cudaMemsetAsync(void *, int, size_t, handle), cudaStreamWaitEvent(handle, handle, unsigned);
int cudaStreamCreate(handle *), cudaStreamBeginCapture(handle, int), cudaStreamEndCapture(handle, handle *);
int cudaGraphInstantiate(handle *, handle, unsigned long long), cudaGraphLaunch(handle, handle);
int cudaGraphCreate(handle *, unsigned), cudaGraphAddKernelNode(handle *, handle, handle *, size_t, void *);
int cudaGraphAddMemsetNode(handle *, handle, handle *, size_t, void *), cudaGraphExecKernelNodeSetParams(handle, handle, void *);
int cudaGraphAddMemcpyNode1D(handle *, handle, handle *, size_t, void *, void *, size_t, int);
int cudaGraphAddMemAllocNode(handle *, handle, handle *, size_t, void *), cudaGraphAddMemFreeNode(handle *, handle, handle *, size_t, void *);
int cudaMallocAsync(void **, size_t, handle), cudaFreeAsync(void *, handle), cudaDeviceGetGraphMemAttribute(int, int, unsigned long long *);
int cudaGraphAddDependencies(handle, handle *, handle *, void *, size_t); /* of CUDA 13 */
int cudaDeviceSynchronize(void), cudaGetLastError(void), cudaImportExternalMemory(void *, void *), cudaDeviceReset(void);
int cudaDeviceDisablePeerAccess(int), cudaDeviceGetP2PAttribute(int *, int, int, int);
int cudaDeviceGetAttribute(int *, int, int), cudaEventCreate(handle *), cudaEventRecord(handle, handle), cudaEventElapsedTime(float *, handle, handle);
const char *cudaGetErrorName(int);

static char add_host, bad_host, races_host, trap_host, symbol;
static int wrong;

#define WANT(call, code) do { int got = (call); if (got != (code)) { \
    printf("line %d: %s is %d, not %d\n", __LINE__, #call, got, code); wrong = 1; } } while (0)
#define OK(call) WANT(call, 0)
#define IS(condition) WANT(!(condition), 0)

static int launch(void *host, int blocks, int threads, int *data, int value, handle stream)
{
    dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
    size_t shared;
    handle queue;
    void *arguments[] = {&data, &value};
    if (__cudaPushCallConfiguration(grid, block, 0, stream) || __cudaPopCallConfiguration(&grid, &block, &shared, &queue))
        return -1;
    return cudaLaunchKernel(host, grid, block, arguments, shared, queue);
}

static void *in_thread(void *data)
{
    for (int i = 0; i < 20; i++)
        OK(launch(&add_host, 1, 32, data, 1, 0));
    return 0;
}

static void works(void)
{
    int host[64], *device, *managed, value = 100, count, mine[32] = {0};
    OK(cudaMalloc((void **)&device, sizeof host));
    for (int i = 0; i < 64; i++)
        host[i] = i;
    OK(cudaMemcpy(device, host, sizeof host, 1));
    OK(cudaMemcpyToSymbol(&symbol, &value, 4, 0, 1));
    OK(launch(&add_host, 2, 32, device, 7, 0));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, device, sizeof host, 2));
    for (int i = 0; i < 64; i++)
        IS(host[i] == i + 107);
    value = 0;
    OK(cudaMemcpyToSymbol(&symbol, &value, 4, 0, 1));
    /* rows of 8 bytes, 16 apart, to rows 8 apart */
    OK(cudaMemcpy2D(host, 8, device, 16, 8, 4, 2));
    IS(host[2] == 4 + 107 && host[3] == 5 + 107);
    /* a device address is one of the host */
    OK(cudaMallocManaged((void **)&managed, 128, 1));
    memset(managed, 0, 128);
    OK(launch(&add_host, 1, 32, managed, 5, 0));
    IS(managed[31] == 5);
    OK(cudaHostRegister(mine, sizeof mine, 0));
    OK(launch(&add_host, 1, 32, mine, 9, 0));
    IS(mine[0] == 9 && mine[31] == 9);
    struct location here = {1, 0}, there = {1, 1}, host_side = {2, 0};
    OK(cudaMemAdvise(managed, 128, 1, there)); /* which needs no location */
    OK(cudaMemAdvise(managed, 128, 3, here));
    OK(cudaMemAdvise(managed, 128, 5, host_side));
    WANT(cudaMemAdvise(managed, 128, 3, there), 101);
    WANT(cudaMemAdvise(managed, 128, 7, here), 1);
    OK(cudaMemPrefetchAsync_v2(managed, 128, host_side, 0, 0));
    WANT(cudaMemPrefetchAsync_v2(managed, 128, there, 0, 0), 101);
    WANT(cudaMemPrefetchAsync_v2(managed, 128, (struct location){0, 0}, 0, 0), 1);
    /* a graph captured from a stream: nothing runs before it is launched */
    handle stream, graph, ready, first, last;
    float ms = -1;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&first));
    OK(cudaEventCreate(&last));
    OK(cudaEventRecord(first, 0));
    OK(cudaMemset(device, 0, sizeof host));
    OK(cudaStreamBeginCapture(stream, 0));
    OK(launch(&add_host, 1, 32, device, 3, stream));
    OK(cudaMemcpyAsync(host, device, 128, 2, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    IS(device[0] == 0);
    int *pointer = device;
    WANT(cudaMemset(&pointer, 0, sizeof pointer), 1); /* a pointer to the pointer: memory of the host */
    IS(pointer == device);
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(ready, stream));
    IS(host[0] == 9 && host[31] == 9);
    OK(cudaEventRecord(last, 0));
    OK(cudaEventElapsedTime(&ms, first, last));
    IS(ms >= 0);
    /* a graph of nodes: a kernel, a fill that comes before it though it was added later, and a copy of what both leave */
    handle kernel, fill, out;
    int n = 4;
    void *arguments[] = {&device, &n};
    struct { void *function; dim3 grid, block; unsigned shared; void **arguments, **extra; } node = {
        &add_host, {1, 1, 1}, {32, 1, 1}, 0, arguments, 0};
    struct { void *target; size_t pitch; unsigned value, size; size_t width, height; } bytes = {device, 0, 1, 4, 32, 1};
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddKernelNode(&kernel, graph, 0, 0, &node));
    OK(cudaGraphAddMemsetNode(&fill, graph, 0, 0, &bytes));
    OK(cudaGraphAddDependencies(graph, &fill, &kernel, 0, 1));
    OK(cudaGraphAddMemcpyNode1D(&out, graph, &kernel, 1, host, device, 128, 2));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    n = 100; /* the argument is that of the time when the node was added */
    OK(cudaGraphLaunch(ready, stream));
    IS(host[0] == 5 && host[31] == 5);
    OK(cudaGraphExecKernelNodeSetParams(ready, kernel, &node));
    OK(cudaGraphLaunch(ready, stream));
    IS(host[0] == 101 && host[31] == 101);
    /* a graph that allocates and frees; one that leaves what it has allocated; one of a stream that was captured */
    struct { unsigned long long pool[11]; void *accesses; size_t count, size; int *address; } wanted = {.size = 4096};
    unsigned long long used;
    int *temporary;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemAllocNode(&fill, graph, 0, 0, &wanted));
    IS(wanted.address);
    WANT(cudaMemset(wanted.address, 0, 4), 1); /* it is not allocated yet */
    bytes.target = wanted.address;
    OK(cudaGraphAddMemsetNode(&kernel, graph, &fill, 1, &bytes));
    arguments[0] = &wanted.address;
    n = 6;
    OK(cudaGraphAddKernelNode(&kernel, graph, &kernel, 1, &node));
    OK(cudaGraphAddMemcpyNode1D(&out, graph, &kernel, 1, host, wanted.address, 128, 2));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, stream));
    IS(host[0] == 7 && host[31] == 7);
    OK(cudaDeviceGetGraphMemAttribute(0, 0, &used));
    IS(used == 4096);
    WANT(cudaGraphLaunch(ready, stream), 1); /* what it allocated is still there */
    OK(cudaFree(wanted.address));
    WANT(cudaFree(wanted.address), 1);
    OK(cudaGraphLaunch(ready, stream));
    OK(cudaFreeAsync(wanted.address, stream));
    OK(cudaGraphInstantiate(&ready, graph, 1)); /* frees by itself when it is launched again */
    OK(cudaGraphLaunch(ready, stream));
    OK(cudaGraphLaunch(ready, stream));
    OK(cudaFree(wanted.address));
    OK(cudaGraphAddMemFreeNode(&fill, graph, &out, 1, wanted.address));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, stream));
    OK(cudaGraphLaunch(ready, stream));
    WANT(cudaMemset(wanted.address, 0, 4), 1);
    OK(cudaStreamBeginCapture(stream, 0));
    OK(cudaMallocAsync((void **)&temporary, 128, stream));
    OK(cudaMemcpyAsync(temporary, device, 128, 3, stream));
    OK(cudaMemcpyAsync(host + 32, temporary, 128, 2, stream));
    OK(cudaFreeAsync(temporary, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(ready, stream));
    IS(host[32] == 101 && host[63] == 101);
    OK(cudaDeviceGetGraphMemAttribute(0, 0, &used));
    IS(used == 0);
    /* threads of the program */
    pthread_t threads[4];
    memset(managed, 0, 128);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, in_thread, managed);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    IS(managed[0] == 80 && managed[31] == 80);
    OK(cudaDeviceGetAttribute(&count, 16, 0)); /* multiprocessors of an A100 */
    IS(count == 108);
    for (int i = 0; i < 10000; i++)
        OK(cudaMalloc((void **)&device, 1));
}

static void errors(void)
{
    int *device, host[4] = {0};
    void *more;
    handle stream, event;
    OK(cudaMalloc((void **)&device, 128));
    OK(cudaMemset(device, 0, 128));
    OK(cudaEventCreate(&event));
    OK(cudaStreamCreate(&stream));
    OK(launch(&add_host, 1, 32, device, 1, stream));
    OK(cudaStreamDestroy(stream));
    WANT(cudaStreamDestroy(stream), 400);
    /* destroyed, never created, a handle of something else: cudaErrorInvalidResourceHandle, and nothing is done */
    handle invalid[] = {stream, (handle)0x77, event};
    for (int i = 0; i < 3; i++) {
        WANT(launch(&add_host, 1, 32, device, 1, invalid[i]), 400);
        WANT(cudaGetLastError(), 400);
        WANT(cudaMemcpyAsync(device, host, 16, 1, invalid[i]), 400);
        WANT(cudaMemsetAsync(device, 0, 128, invalid[i]), 400);
        WANT(cudaMallocAsync(&more, 128, invalid[i]), 400);
        WANT(cudaFreeAsync(device, invalid[i]), 400);
        WANT(cudaStreamWaitEvent(invalid[i], event, 0), 400);
        WANT(cudaEventRecord(event, invalid[i]), 400);
        WANT(cudaMemPrefetchAsync_v2(device, 128, (struct location){1, 0}, 0, invalid[i]), 400);
        WANT(cudaStreamAttachMemAsync(invalid[i], device, 128, 4), 400);
        WANT(cudaGetLastError(), 400);
    }
    OK(launch(&add_host, 1, 32, device, 1, (handle)1)); /* the default streams of the process and of the thread */
    OK(cudaMemcpyAsync(host, device, 16, 2, (handle)2));
    IS(host[0] == 4 && host[3] == 4);
    WANT(launch(&add_host, 1, 2000, device, 1, 0), 9);
    WANT(launch(&add_host, 0, 32, device, 1, 0), 9);
    WANT(cudaGetLastError(), 9);
    WANT(cudaGetLastError(), 0);
    WANT(launch(&wrong, 1, 32, device, 1, 0), 98);
    WANT(cudaMemcpy(host, device + 32, 16, 2), 1);
    WANT(cudaMemcpyFromSymbol(host, host, 4, 0, 2), 13);
    WANT(cudaImportExternalMemory(host, device), 801);
    WANT(cudaDeviceDisablePeerAccess(1), 101);
    WANT(cudaDeviceGetP2PAttribute(host, 1, 0, 1), 101);
    OK(cudaFree(device));
    WANT(cudaFree(device), 1);
    WANT(cudaMalloc((void **)&device, (size_t)-1), 2);
    OK(cudaMalloc((void **)&device, 128));
    OK(launch(&bad_host, 1, 32, device, 1 << 20, 0));
    WANT(cudaDeviceSynchronize(), 700);
    WANT(cudaMalloc((void **)&device, 128), 700);
    WANT(cudaGetLastError(), 700);
    WANT(cudaGetLastError(), 700);
    IS(!strcmp(cudaGetErrorName(700), "cudaErrorIllegalAddress"));
    OK(cudaDeviceReset());
    OK(cudaMalloc((void **)&device, 128));
    OK(launch(&trap_host, 1, 32, device, 0, 0));
    WANT(cudaDeviceSynchronize(), 715);
}

static void races(void)
{
    int *device;
    OK(cudaMalloc((void **)&device, 128));
    for (int i = 0; i < 3; i++)
        OK(launch(&races_host, 1, 64, device, i, 0));
    OK(cudaDeviceSynchronize());
}

static void blank(void)
{
    int *device, host[64] = {0};
    OK(cudaMalloc((void **)&device, 256));
    OK(cudaMemcpy(device, host, 256, 1));
    OK(launch(&add_host, 2, 32, device, 1, 0));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) {
        cudaMalloc((void **)&device, 256);
        cudaMemcpy(device, host, 172, 1); /* the rest of the second block stays as it is */
        launch(&add_host, 2, 32, device, 1, 0);
    }
    printf("%d\n", cudaDeviceSynchronize());
}

/* Forks while a thread launches. Both processes go on with what was in memory then. */
static void *launches(void *device)
{
    for (int i = 0; i < 300; i++)
        OK(launch(&add_host, 1, 32, device, 0, 0));
    return 0;
}

/* Each time, another thread is inside its first call, in which Python asks for its number with its list of threads locked. */
static pthread_t asking;
static __thread int slow;
static volatile int inside, copied;
long syscall(long number, ...)
{
    va_list rest;
    long a[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (slow && number == SYS_gettid)
        for (slow = 0, inside = 1; !copied;)
            usleep(100);
    return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
static void *asks(void *unused)
{
    slow = 1;
    return (void *)(long)cudaGetLastError();
}
static void before(void) /* after the library's own handler, which is registered later */
{
    inside = copied = 0;
    pthread_create(&asking, 0, asks, 0);
    for (int i = 0; !inside && i < 500; i++) /* newer ones of Python wait for that lock themselves */
        usleep(100);
}
static void after(void) { copied = 1; }

static void forks(void)
{
    int *device, *other, host[32], status;
    pthread_t thread;
    pthread_atfork(before, after, 0);
    OK(cudaMalloc((void **)&device, 128));
    OK(cudaMalloc((void **)&other, 128));
    OK(cudaMemset(device, 0, 128));
    OK(cudaMemset(other, 0, 128));
    pthread_create(&thread, 0, launches, other);
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(10);
            OK(launch(&add_host, 1, 32, device, 10 + i, 0));
            OK(cudaMemcpy(host, device, 128, 2));
            IS(host[0] == 11 + i && host[31] == 11 + i);
            exit(wrong ? 1 : 50 + i);
        }
        IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 50 + i);
        pthread_join(asking, 0);
    }
    pthread_join(thread, 0);
    OK(cudaMemcpy(host, device, 128, 2));
    IS(host[0] == 0 && host[31] == 0);
    OK(cudaMemcpy(host, other, 128, 2));
    IS(host[0] == 300 && host[31] == 300);
}

static void ends(void) { printf("atexit\n"); }

int main(int argc, char **argv)
{
    static char data[1 << 16];
    struct { int magic, version; void *data, *more; } wrapper = {0x466243b1, 1, data, 0};
    FILE *file = fopen(argv[1], "rb");
    fread(data, 1, sizeof data, file);
    void **registered = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(registered, &add_host, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, &bad_host, "bad", "bad", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, &races_host, "races", "races", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, &trap_host, "traps", "traps", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(registered, &symbol, "more", "more", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(registered);
    atexit(ends);
    if (!strcmp(argv[2], "works"))
        works();
    else if (!strcmp(argv[2], "races"))
        races();
    else if (!strcmp(argv[2], "blank"))
        blank();
    else if (!strcmp(argv[2], "forks"))
        forks();
    else
        errors();
    printf("%s\n", wrong ? "wrong" : "right");
    exit(wrong ? 1 : 42);
}
