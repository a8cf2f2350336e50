/* Graphs of a program that checks them itself, with the functions of CUDA 13: argv[1] is the fat binary. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *handle;
typedef unsigned long long word;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaMalloc(void **, size_t), cudaMemset(void *, int, size_t), cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, handle), cudaMemsetAsync(void *, int, size_t, handle);
int cudaStreamCreate(handle *), cudaStreamBeginCapture(handle, int), cudaStreamEndCapture(handle, handle *), cudaStreamWaitEvent(handle, handle, unsigned);
int cudaStreamBeginCaptureToGraph(handle, handle, handle *, void *, size_t, int), cudaLaunchHostFunc(handle, void (*)(void *), void *);
int cudaStreamGetCaptureInfo(handle, int *, word *, handle *, handle **, void **, size_t *);
int cudaStreamUpdateCaptureDependencies(handle, handle *, void *, size_t, unsigned);
int cudaStreamIsCapturing(handle, int *), cudaStreamSynchronize(handle), cudaEventSynchronize(handle);
int cudaEventCreate(handle *), cudaEventRecord(handle, handle), cudaEventRecordWithFlags(handle, handle, unsigned), cudaEventElapsedTime(float *, handle, handle);
int cudaGraphCreate(handle *, unsigned), cudaGraphInstantiate(handle *, handle, word), cudaGraphLaunch(handle, handle), cudaGraphClone(handle *, handle);
int cudaGraphDestroy(handle), cudaGraphExecUpdate(handle, handle, void *), cudaGraphExecGetFlags(handle, word *);
int cudaGraphAddNode(handle *, handle, handle *, void *, size_t, void *), cudaGraphNodeSetParams(handle, void *), cudaGraphExecNodeSetParams(handle, handle, void *);
int cudaGraphAddKernelNode(handle *, handle, handle *, size_t, void *), cudaGraphKernelNodeGetParams(handle, void *), cudaGraphKernelNodeSetParams(handle, void *);
int cudaGraphAddMemsetNode(handle *, handle, handle *, size_t, void *), cudaGraphMemsetNodeGetParams(handle, void *), cudaGraphExecMemsetNodeSetParams(handle, handle, void *);
int cudaGraphAddMemcpyNode1D(handle *, handle, handle *, size_t, void *, void *, size_t, int), cudaGraphExecMemcpyNodeSetParams1D(handle, handle, void *, void *, size_t, int);
int cudaGraphAddMemcpyNodeToSymbol(handle *, handle, handle *, size_t, void *, void *, size_t, size_t, int), cudaGraphExecKernelNodeSetParams(handle, handle, void *);
int cudaGraphMemcpyNodeSetParamsFromSymbol(handle, void *, void *, size_t, size_t, int), cudaGraphAddEmptyNode(handle *, handle, handle *, size_t);
int cudaGraphAddChildGraphNode(handle *, handle, handle *, size_t, handle), cudaGraphChildGraphNodeGetGraph(handle, handle *);
int cudaGraphAddEventRecordNode(handle *, handle, handle *, size_t, handle), cudaGraphEventRecordNodeGetEvent(handle, handle *);
int cudaGraphGetNodes(handle, handle *, size_t *), cudaGraphGetRootNodes(handle, handle *, size_t *), cudaGraphGetEdges(handle, handle *, handle *, void *, size_t *);
int cudaGraphNodeGetDependencies(handle, handle *, void *, size_t *), cudaGraphNodeGetDependentNodes(handle, handle *, void *, size_t *);
int cudaGraphNodeGetType(handle, int *), cudaGraphNodeFindInClone(handle *, handle, handle), cudaGraphDestroyNode(handle);
int cudaGraphAddDependencies(handle, handle *, handle *, void *, size_t), cudaGraphRemoveDependencies(handle, handle *, handle *, void *, size_t);
int cudaGraphNodeSetEnabled(handle, handle, unsigned), cudaGraphNodeGetEnabled(handle, handle, unsigned *);
int cudaUserObjectCreate(handle *, void *, void (*)(void *), unsigned, unsigned), cudaUserObjectRetain(handle, unsigned), cudaUserObjectRelease(handle, unsigned);
int cudaGraphRetainUserObject(handle, handle, unsigned, unsigned), cudaGraphReleaseUserObject(handle, handle, unsigned), cudaGraphExecDestroy(handle);
int cudaGraphConditionalHandleCreate(word *, handle, unsigned, unsigned), cudaGraphDebugDotPrint(handle, const char *, unsigned);

static char add_host, decide_host, symbol;
static int wrong, called;

#define WANT(call, code) do { int got = (call); if (got != (code)) { \
    printf("line %d: %s is %d, not %d\n", __LINE__, #call, got, code); wrong = 1; } } while (0)
#define OK(call) WANT(call, 0)
#define IS(condition) WANT(!(condition), 0)

enum { KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT, RECORD, CONDITIONAL = 13 };
typedef struct { void *function; dim3 grid, block; unsigned shared; void **arguments, **extra; } Kernel;
typedef struct { void *target; size_t pitch; unsigned value, size; size_t width, height; } Fill;
typedef struct { word handle; int type; unsigned size; handle *bodies; } Condition;
typedef struct { int type, reserved[3]; union { word all[29]; Kernel kernel; Fill fill; Condition condition; handle one; struct { void (*f)(void *); void *data; } host; } of; word last; } Any;

static void call(void *data) { called += *(int *)data; }

static int value(int *device)
{
    int found;
    OK(cudaMemcpy(&found, device, 4, 2));
    return found;
}

static Kernel adding(void **arguments)
{
    return (Kernel){&add_host, {1, 1, 1}, {1, 1, 1}, 0, arguments, 0};
}

static int launch(int *data, int number, handle stream)
{
    void *arguments[] = {&data, &number};
    return cudaLaunchKernel(&add_host, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream);
}

static void explicit_graph(int *device)
{
    handle graph, clone, ready, nodes[8], child, inner, event, found;
    int number = 3, type, host = 0, one = 1;
    void *arguments[] = {&device, &number};
    Kernel kernel = adding(arguments);
    Fill fill = {device, 0, 5, 4, 1, 1};
    size_t count = 0;
    unsigned enabled;
    OK(cudaEventCreate(&event));
    OK(cudaGraphCreate(&child, 0));
    OK(cudaGraphAddKernelNode(&inner, child, 0, 0, &kernel));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemsetNode(&nodes[0], graph, 0, 0, &fill));
    OK(cudaGraphAddKernelNode(&nodes[1], graph, nodes, 1, &kernel));
    OK(cudaGraphAddChildGraphNode(&nodes[2], graph, nodes + 1, 1, child));
    OK(cudaGraphAddMemcpyNode1D(&nodes[3], graph, nodes + 2, 1, &host, device, 4, 2));
    OK(cudaGraphAddEventRecordNode(&nodes[4], graph, nodes + 3, 1, event));
    OK(cudaGraphAddEmptyNode(&nodes[5], graph, nodes, 5));
    OK(cudaGraphEventRecordNodeGetEvent(nodes[4], &found));
    IS(found == event);
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 11);
    /* the child is a clone: what is done to the original later does not matter, to the node's own graph it does */
    number = 100;
    OK(cudaGraphKernelNodeSetParams(inner, &kernel));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 11);
    OK(cudaGraphChildGraphNodeGetGraph(nodes[2], &found));
    OK(cudaGraphGetNodes(found, 0, &count));
    IS(count == 1);
    OK(cudaGraphGetNodes(found, &inner, &count));
    OK(cudaGraphExecKernelNodeSetParams(ready, inner, &kernel));
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 108);
    /* parameters */
    Kernel read;
    OK(cudaGraphKernelNodeGetParams(nodes[1], &read));
    IS(read.function == &add_host && read.block.x == 1 && *(int *)read.arguments[1] == 3 && *(int **)read.arguments[0] == device);
    Fill filled;
    OK(cudaGraphMemsetNodeGetParams(nodes[0], &filled));
    IS(filled.value == 5 && filled.target == device);
    WANT(cudaGraphMemsetNodeGetParams(nodes[1], &filled), 1);
    fill.value = 7;
    OK(cudaGraphExecMemsetNodeSetParams(ready, nodes[0], &fill));
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 110);
    OK(cudaGraphNodeSetEnabled(ready, nodes[1], 0));
    OK(cudaGraphNodeGetEnabled(ready, nodes[1], &enabled));
    IS(enabled == 0);
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 107);
    WANT(cudaGraphNodeSetEnabled(ready, nodes[5], 0), 1);
    int other = 0;
    OK(cudaGraphExecMemcpyNodeSetParams1D(ready, nodes[3], &other, device, 4, 2));
    OK(cudaGraphLaunch(ready, 0));
    IS(other == 107);
    /* what the graph looks like */
    handle list[16], then[16];
    unsigned char edges[16 * 8];
    memset(edges, 9, sizeof edges);
    count = 16;
    OK(cudaGraphGetNodes(graph, list, &count));
    IS(count == 6 && list[0] == nodes[0] && list[5] == nodes[5] && list[6] == 0);
    count = 16;
    OK(cudaGraphGetRootNodes(graph, list, &count));
    IS(count == 1 && list[0] == nodes[0]);
    OK(cudaGraphGetEdges(graph, 0, 0, 0, &count));
    IS(count == 9);
    count = 16;
    OK(cudaGraphGetEdges(graph, list, then, edges, &count));
    IS(count == 9 && list[0] == nodes[0] && then[0] == nodes[1] && then[8] == nodes[5] && edges[71] == 0 && edges[72] == 9);
    count = 16;
    OK(cudaGraphNodeGetDependencies(nodes[5], list, 0, &count));
    IS(count == 5);
    count = 16;
    OK(cudaGraphNodeGetDependentNodes(nodes[1], list, 0, &count));
    IS(count == 2 && list[0] == nodes[2]);
    const int types[] = {MEMSET, KERNEL, CHILD, MEMCPY, RECORD, EMPTY};
    for (int i = 0; i < 6; i++) {
        OK(cudaGraphNodeGetType(nodes[i], &type));
        IS(type == types[i]);
    }
    OK(cudaGraphDebugDotPrint(graph, "graph.dot", 0));
    OK(cudaGraphDebugDotPrint(graph, "shapes.dot", 1));
    /* a clone has nodes of its own */
    OK(cudaGraphClone(&clone, graph));
    OK(cudaGraphNodeFindInClone(&found, nodes[1], clone));
    IS(found != nodes[1]);
    number = 50;
    OK(cudaGraphKernelNodeSetParams(found, &kernel));
    /* an executable takes the operations of a graph with the same nodes */
    OK(cudaGraphInstantiate(&ready, graph, 0));
    struct { int result; handle node, from; } info;
    OK(cudaGraphExecUpdate(ready, clone, &info));
    IS(info.result == 0);
    OK(cudaGraphLaunch(ready, 0));
    IS(host == 58);
    OK(cudaGraphExecKernelNodeSetParams(ready, nodes[1], &kernel)); /* its nodes are still those of the first graph */
    OK(cudaGraphDestroyNode(nodes[4]));
    count = 16;
    OK(cudaGraphNodeGetDependencies(nodes[5], list, 0, &count));
    IS(count == 4);
    WANT(cudaGraphExecUpdate(ready, graph, &info), 910);
    IS(info.result == 2 || info.result == 3);
    OK(cudaGraphRemoveDependencies(graph, nodes + 3, nodes + 5, 0, 1));
    WANT(cudaGraphRemoveDependencies(graph, nodes + 3, nodes + 5, 0, 1), 1);
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphLaunch(ready, 0)); /* which does not need the graph any more */
    /* copies to and from a variable */
    int sent = 77, back = 0;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemcpyNodeToSymbol(&nodes[0], graph, 0, 0, &symbol, &sent, 4, 0, 1));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, 0));
    OK(cudaGraphMemcpyNodeSetParamsFromSymbol(nodes[0], &back, &symbol, 4, 0, 2));
    OK(cudaGraphInstantiate(&ready, graph, 4));
    OK(cudaGraphLaunch(ready, 0));
    IS(back == 77);
    word flags;
    OK(cudaGraphExecGetFlags(ready, &flags));
    IS(flags == 4);
    /* nodes of any kind by one function */
    Any any = {KERNEL};
    number = 4;
    any.of.kernel = kernel;
    OK(cudaMemset(device, 0, 4));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddNode(&nodes[0], graph, 0, 0, 0, &any));
    any = (Any){HOST};
    any.of.host.f = call, any.of.host.data = &one;
    OK(cudaGraphAddNode(&nodes[1], graph, nodes, 0, 1, &any));
    any = (Any){CHILD};
    any.of.one = clone;
    OK(cudaGraphAddNode(&nodes[2], graph, nodes + 1, 0, 1, &any));
    any = (Any){EMPTY};
    OK(cudaGraphAddNode(&nodes[3], graph, 0, 0, 0, &any));
    any = (Any){WAIT};
    any.of.one = event;
    OK(cudaGraphAddNode(&nodes[4], graph, 0, 0, 0, &any));
    any = (Any){9};
    WANT(cudaGraphAddNode(&nodes[5], graph, 0, 0, 0, &any), 801);
    any = (Any){MEMSET};
    any.of.fill = fill;
    WANT(cudaGraphNodeSetParams(nodes[0], &any), 1);
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, 0));
    IS(called == 1 && host == 58);
    any = (Any){HOST};
    int two = 2;
    any.of.host.f = call, any.of.host.data = &two;
    OK(cudaGraphExecNodeSetParams(ready, nodes[1], &any));
    OK(cudaGraphLaunch(ready, 0));
    IS(called == 3);
}

/* dependencies in a cycle, of which one is behind a node that has an order */
static void circular_graph(void)
{
    handle graph, ready, nodes[3];
    OK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphAddEmptyNode(&nodes[i], graph, nodes, i == 1));
    OK(cudaGraphAddDependencies(graph, nodes + 1, nodes + 2, 0, 1));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphAddDependencies(graph, nodes + 2, nodes + 1, 0, 1));
    WANT(cudaGraphInstantiate(&ready, graph, 0), 1);
}

static void captured_graph(int *device)
{
    handle first, second, fork, join, graph, ready, node, *before, list[16];
    int status, type;
    size_t count;
    word id;
    OK(cudaStreamCreate(&first));
    OK(cudaStreamCreate(&second));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaMemset(device, 0, 8));
    OK(cudaStreamGetCaptureInfo(first, &status, 0, 0, 0, 0, 0));
    IS(status == 0);
    /* two branches: memset -> (add 1 | add 2) -> copy */
    int host[2] = {0, 0};
    OK(cudaStreamBeginCapture(first, 0));
    OK(cudaMemsetAsync(device, 0, 8, first));
    OK(cudaEventRecord(fork, first));
    OK(cudaStreamWaitEvent(second, fork, 0));
    OK(launch(device, 1, first));
    OK(launch(device + 1, 2, second));
    OK(cudaEventRecord(join, second));
    OK(cudaStreamWaitEvent(first, join, 0));
    word *data = 0;
    OK(cudaStreamGetCaptureInfo(first, &status, &id, &graph, &before, (void **)&data, &count));
    IS(status == 1 && id && count == 2 && data && !data[0] && !data[1]); /* full dependencies */
    OK(cudaGraphNodeGetType(before[1], &type));
    IS(type == KERNEL);
    OK(cudaMemcpyAsync(host, device, 8, 2, first));
    /* a node that the program adds itself, and makes the next ones wait for */
    int one = 1;
    Any any = {HOST};
    any.of.host.f = call, any.of.host.data = &one;
    called = 0;
    OK(cudaStreamGetCaptureInfo(first, &status, 0, &graph, &before, 0, &count));
    IS(count == 1);
    OK(cudaGraphAddNode(&node, graph, before, 0, 1, &any));
    OK(cudaStreamUpdateCaptureDependencies(first, &node, 0, 1, 1));
    OK(cudaLaunchHostFunc(first, call, &one));
    OK(cudaEventRecordWithFlags(join, first, 1));
    handle same;
    OK(cudaStreamEndCapture(first, &same));
    IS(same == graph);
    OK(cudaGraphGetNodes(graph, 0, &count));
    IS(count == 7);
    OK(cudaGraphGetEdges(graph, 0, 0, 0, &count));
    IS(count == 7);
    count = 16;
    OK(cudaGraphGetNodes(graph, list, &count));
    const int types[] = {MEMSET, KERNEL, KERNEL, MEMCPY, HOST, HOST, RECORD};
    for (int i = 0; i < 7; i++) {
        OK(cudaGraphNodeGetType(list[i], &type));
        IS(type == types[i]);
    }
    OK(cudaGraphInstantiate(&ready, graph, 0));
    IS(called == 0);
    OK(cudaGraphLaunch(ready, first));
    IS(called == 2 && host[0] == 1 && host[1] == 2);
    /* the arguments of a captured kernel, changed and launched again, as ggml does */
    Kernel read;
    OK(cudaGraphKernelNodeGetParams(list[2], &read));
    int number = 40;
    read.arguments[1] = &number;
    OK(cudaGraphKernelNodeSetParams(list[2], &read));
    OK(cudaGraphExecUpdate(ready, graph, &(struct { int result; handle node, from; }){0}));
    OK(cudaGraphLaunch(ready, first));
    IS(host[1] == 40);
    /* the default stream, which waits for the stream, cannot be used meanwhile */
    OK(cudaStreamBeginCapture(first, 0));
    WANT(cudaStreamIsCapturing(0, &status), 906);
    WANT(launch(device, 1, 0), 906);
    OK(cudaStreamEndCapture(first, &graph));
    OK(cudaStreamIsCapturing(0, &status));
    /* captures of two graphs do not merge */
    OK(cudaStreamBeginCapture(first, 0));
    OK(cudaStreamBeginCapture(second, 0));
    OK(cudaEventRecord(fork, first));
    WANT(cudaStreamWaitEvent(second, fork, 0), 902);
    OK(cudaStreamEndCapture(first, &graph));
    OK(cudaStreamEndCapture(second, &graph));
    WANT(cudaStreamEndCapture(second, &graph), 401); /* the stream is not captured */
    /* another stream than the one that began it cannot end a capture, nor can one that was not waited for be left */
    float milliseconds;
    OK(cudaStreamBeginCapture(first, 0));
    OK(cudaEventRecord(fork, first));
    WANT(cudaEventSynchronize(fork), 907);
    WANT(cudaEventElapsedTime(&milliseconds, join, fork), 907);
    OK(cudaStreamWaitEvent(second, fork, 0));
    OK(launch(device, 1, second));
    WANT(cudaStreamEndCapture(second, &graph), 903);
    OK(cudaStreamIsCapturing(second, &status));
    IS(status == 2);
    WANT(cudaStreamEndCapture(first, &graph), 901);
    IS(graph == 0);
    OK(cudaStreamIsCapturing(second, &status));
    IS(status == 0);
    OK(cudaStreamBeginCapture(first, 0));
    OK(cudaEventRecord(fork, first));
    OK(cudaStreamWaitEvent(second, fork, 0));
    OK(launch(device, 1, second));
    WANT(cudaStreamEndCapture(first, &graph), 904);
    /* nothing of a capture can be waited for */
    OK(cudaStreamBeginCapture(first, 0));
    WANT(cudaStreamSynchronize(first), 900);
    WANT(cudaStreamEndCapture(first, &graph), 901);
    OK(cudaStreamSynchronize(first));
}

/* decide(condition, counter): the counter goes down, and is the condition */
static void conditions(int *device)
{
    handle graph, ready, node, body, stream;
    word condition;
    Any any = {CONDITIONAL};
    void *deciding[] = {&condition, &device};
    Any deciding_node = {KERNEL};
    OK(cudaStreamCreate(&stream));
    /* while: a condition that is 1 at each launch */
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphConditionalHandleCreate(&condition, graph, 1, 1));
    any.of.condition = (Condition){condition, 1, 1, 0};
    OK(cudaGraphAddNode(&node, graph, 0, 0, 0, &any));
    body = any.of.condition.bodies[0];
    OK(cudaStreamBeginCaptureToGraph(stream, body, 0, 0, 0, 0));
    OK(launch(device + 1, 10, stream));
    OK(cudaLaunchKernel(&decide_host, (dim3){1, 1, 1}, (dim3){1, 1, 1}, deciding, 0, stream));
    OK(cudaStreamEndCapture(stream, 0));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    for (int round = 0; round < 2; round++) {
        int start[] = {4, 0};
        OK(cudaMemcpy(device, start, 8, 1));
        OK(cudaGraphLaunch(ready, stream));
        IS(value(device) == 0 && value(device + 1) == 40);
    }
    handle clone;
    WANT(cudaGraphClone(&clone, graph), 801);
    /* if and else; switch: what a kernel before has decided, as 3 - 1, 2 - 1 and 1 - 1 */
    for (int type = 0; type < 3; type += 2) {
        OK(cudaGraphCreate(&graph, 0));
        OK(cudaGraphConditionalHandleCreate(&condition, graph, 0, 0));
        deciding_node.of.kernel = adding(deciding);
        deciding_node.of.kernel.function = &decide_host;
        OK(cudaGraphAddNode(&node, graph, 0, 0, 0, &deciding_node));
        any.of.condition = (Condition){condition, type, 2, 0};
        OK(cudaGraphAddNode(&node, graph, &node, 0, 1, &any));
        for (int i = 0; i < 2; i++) {
            int *into = device + 1, number = i + 1;
            void *arguments[] = {&into, &number};
            Kernel kernel = adding(arguments);
            handle inside;
            OK(cudaGraphAddKernelNode(&inside, any.of.condition.bodies[i], 0, 0, &kernel));
        }
        OK(cudaGraphInstantiate(&ready, graph, 0));
        const int expected[2][3] = {{2, 1, 1}, {1, 2, 0}};
        for (int start = 1; start < 4; start++) {
            int words[] = {start, 0};
            OK(cudaMemcpy(device, words, 8, 1));
            OK(cudaGraphLaunch(ready, 0));
            WANT(value(device + 1), expected[type / 2][start - 1]);
        }
    }
    any.of.condition = (Condition){condition, 1, 2, 0};
    WANT(cudaGraphAddNode(&node, graph, 0, 0, 0, &any), 1);
    any.of.condition = (Condition){12, 1, 1, 0};
    WANT(cudaGraphAddNode(&node, graph, 0, 0, 0, &any), 1);
}

static int destroyed;
static void destroy(void *number) { destroyed += *(int *)number; }

static void user_objects(void)
{
    handle item, graph, clone, ready;
    int number = 3;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaUserObjectCreate(&item, &number, destroy, 1, 1));
    OK(cudaUserObjectRetain(item, 2));
    OK(cudaUserObjectRelease(item, 2));
    WANT(cudaUserObjectRelease(item, 2), 1);
    OK(cudaGraphRetainUserObject(graph, item, 1, 1)); /* moved */
    OK(cudaGraphRetainUserObject(graph, item, 2, 0));
    WANT(cudaGraphReleaseUserObject(graph, item, 4), 1);
    OK(cudaGraphReleaseUserObject(graph, item, 2));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphClone(&clone, graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphDestroy(clone));
    IS(destroyed == 0);
    OK(cudaGraphExecDestroy(ready));
    IS(destroyed == 3);
}

int main(int n, char **argv)
{
    FILE *file = fopen(argv[1], "rb");
    char *image = aligned_alloc(64, 1 << 20);
    fread(image, 1, 1 << 20, file);
    fclose(file);
    static struct { int magic, version; void *data, *unused; } wrapper = {0x466243b1, 1};
    wrapper.data = image;
    void **module = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(module, &add_host, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(module, &decide_host, "decide", "decide", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(module, &symbol, "symbol", "symbol", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(module);
    int *device;
    OK(cudaMalloc((void **)&device, 8));
    explicit_graph(device);
    circular_graph();
    captured_graph(device);
    conditions(device);
    user_objects();
    puts(wrong ? "wrong" : "right");
    return wrong;
}
