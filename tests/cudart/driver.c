/* A program of the driver API: it loads the PTX of the file argv[1], and does what argv[2] says. Expected values are those of the manual. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;
typedef unsigned long long address;

int cuInit(unsigned), cuDriverGetVersion(int *), cuDeviceGet(int *, int), cuDeviceGetName(char *, int, int), cuDeviceGetAttribute(int *, int, int);
int cuDevicePrimaryCtxRetain(handle *, int), cuDevicePrimaryCtxGetState(int, unsigned *, int *), cuDevicePrimaryCtxRelease_v2(int);
int cuCtxCreate_v2(handle *, unsigned, int), cuCtxGetCurrent(handle *), cuCtxSetCurrent(handle), cuCtxDestroy_v2(handle), cuCtxSynchronize(void);
int cuCtxPushCurrent_v2(handle), cuCtxPopCurrent_v2(handle *), cuCtxGetDevice(int *);
int cuModuleLoadData(handle *, const void *), cuModuleLoadDataEx(handle *, const void *, unsigned, int *, void **), cuModuleUnload(handle);
int cuModuleGetFunction(handle *, handle, const char *), cuModuleGetGlobal_v2(address *, size_t *, handle, const char *), cuModuleLoad(handle *, const char *);
int cuLibraryLoadData(handle *, const void *, int *, void **, unsigned, int *, void **, unsigned), cuLibraryGetKernel(handle *, handle, const char *);
int cuKernelGetFunction(handle *, handle), cuLibraryUnload(handle), cuFuncGetAttribute(int *, int, handle), cuFuncSetAttribute(handle, int, int);
int cuFuncGetName(const char **, handle), cuFuncGetParamInfo(handle, size_t, size_t *, size_t *), cuFuncGetModule(handle *, handle);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
int cuLaunchKernelEx(const void *, handle, void **, void **);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address), cuMemGetInfo_v2(size_t *, size_t *), cuMemGetAddressRange_v2(address *, size_t *, address);
int cuMemcpyHtoD_v2(address, const void *, size_t), cuMemcpyDtoH_v2(void *, address, size_t), cuMemcpyDtoDAsync_v2(address, address, size_t, handle);
int cuMemcpy2D_v2(const void *), cuMemsetD8_v2(address, unsigned char, size_t), cuMemsetD16_v2(address, unsigned short, size_t);
int cuMemsetD32_v2(address, unsigned, size_t), cuMemsetD2D16_v2(address, size_t, unsigned short, size_t, size_t);
int cuPointerGetAttribute(void *, int, address), cuStreamCreate(handle *, unsigned), cuStreamSynchronize_ptsz(handle), cuStreamDestroy_v2(handle);
int cuEventCreate(handle *, unsigned), cuEventRecord(handle, handle), cuEventElapsedTime(float *, handle, handle), cuEventSynchronize(handle);
int cuArray3DCreate_v2(handle *, const void *), cuArrayCreate_v2(handle *, const void *), cuMemcpyHtoA_v2(handle, size_t, const void *, size_t), cuTexObjectCreate(address *, void *, void *, void *);
int cuMipmappedArrayCreate(handle *, const void *, unsigned), cuMipmappedArrayGetLevel(handle *, handle, unsigned), cuMipmappedArrayDestroy(handle), cuMemcpy3D_v2(const void *);
int cuTensorMapEncodeTiled(void *, int, unsigned, void *, void *, void *, void *, void *, int, int, int, int), cuTensorMapReplaceAddress(void *, void *);
int cuStreamBeginCapture_v2(handle, int), cuStreamEndCapture(handle, handle *), cuGraphInstantiateWithFlags(handle *, handle, address), cuGraphLaunch(handle, handle);
int cuGraphGetNodes(handle, handle *, size_t *), cuGraphNodeGetType(handle, int *), cuGraphAddKernelNode_v2(handle *, handle, handle *, size_t, void *);
int cuGraphExecKernelNodeSetParams_v2(handle, handle, void *), cuGraphAddNode_v2(handle *, handle, handle *, void *, size_t, void *);
int cuStreamGetCaptureInfo_v3(handle, int *, address *, handle *, handle **, void **, size_t *);
int cuGetProcAddress_v2(const char *, void **, int, address, int *), cuGetErrorName(int, const char **), cuGetErrorString(int, const char **);
int cuOccupancyMaxPotentialBlockSize(int *, int *, handle, void *, size_t, int);
int cuLinkCreate_v2(unsigned, int *, void **, handle *), cuLinkAddData_v2(handle, int, void *, size_t, const char *, unsigned, int *, void **);
int cuMemGetAllocationGranularity(size_t *, const void *, int), cuMemAddressReserve(address *, size_t, size_t, address, address);
int cuMemCreate(address *, size_t, const void *, address), cuMemMap(address, size_t, size_t, address, address), cuMemUnmap(address, size_t);
int cuMemSetAccess(address, size_t, const void *, size_t), cuMemRelease(address), cuMemAddressFree(address, size_t);
int cuMemGetAccess(address *, const void *, address), cuMemRetainAllocationHandle(address *, address), cuImportExternalMemory(void *, address);
int cuLinkComplete(handle, void **, size_t *), cuLinkDestroy(handle);

struct location { int type, id; };
int cuMemPrefetchAsync(address, size_t, int, handle), cuMemPrefetchAsync_v2(address, size_t, struct location, unsigned, handle);
int cuFuncSetBlockShape(handle, int, int, int), cuFuncSetSharedSize(handle, unsigned), cuParamSetSize(handle, unsigned), cuParamSeti(handle, int, unsigned);
int cuParamSetv(handle, int, void *, unsigned), cuLaunchGrid(handle, int, int);
int cuMemAdvise(address, size_t, int, int), cuMemAdvise_v2(address, size_t, int, struct location);
int cuStreamAttachMemAsync(handle, address, size_t, unsigned);

static int wrong;
#define WANT(call, code) do { int got = (call); if (got != (code)) { \
    printf("line %d: %s is %d, not %d\n", __LINE__, #call, got, code); wrong = 1; } } while (0)
#define OK(call) WANT(call, 0)
#define IS(condition) WANT(!(condition), 0)

static int launch(handle kernel, unsigned blocks, address data, unsigned value, handle stream)
{
    void *arguments[] = {&data, &value};
    return cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, stream, arguments, 0);
}

static void memory(void)
{
    address device, base;
    unsigned host[16], kind;
    unsigned short halves[32];
    size_t size, all;
    OK(cuMemAlloc_v2(&device, 64));
    OK(cuMemsetD32_v2(device, 0x01020304, 16));
    OK(cuMemsetD16_v2(device + 4, 0xabcd, 2));
    OK(cuMemsetD8_v2(device + 8, 0xee, 4));
    OK(cuMemsetD2D16_v2(device + 16, 16, 7, 2, 3)); /* 3 rows, 16 bytes apart, of two */
    OK(cuMemcpyDtoH_v2(host, device, 64));
    WANT(cuMemsetD8_v2((address)host, 7, 64), 1); /* memory of the host is none of the device */
    memcpy(halves, host, 64);
    IS(host[0] == 0x01020304 && host[1] == 0xabcdabcd && host[2] == 0xeeeeeeee && host[3] == 0x01020304);
    IS(host[4] == 0x00070007 && host[8] == 0x00070007 && host[12] == 0x00070007 && host[5] == 0x01020304 && host[9] == 0x01020304);
    /* CUDA_MEMCPY2D: 2 rows of 4 bytes from column 4 of pitch 16 on the device (2), to pitch 8 on the host (1) */
    struct { size_t x, y; unsigned kind; void *host; address device; handle array; size_t pitch; } sides[2] = {
        {0, 1, 2, 0, device, 0, 16}, {0, 0, 1, host, 0, 0, 8}};
    struct { char sides[2 * sizeof *sides]; size_t width, height; } copy = {{0}, 4, 2};
    memcpy(copy.sides, sides, sizeof sides);
    memset(host, 0, sizeof host);
    OK(cuMemcpy2D_v2(&copy));
    IS(host[0] == 0x00070007 && host[1] == 0 && host[2] == 0x00070007);
    OK(cuMemGetAddressRange_v2(&base, &size, device + 8));
    IS(base == device && size == 64);
    OK(cuPointerGetAttribute(&kind, 2, device + 8));
    IS(kind == 2);
    WANT(cuPointerGetAttribute(&kind, 2, (address)(uintptr_t)host), 1);
    OK(cuMemGetInfo_v2(&size, &all));
    IS(size < all);
    OK(cuMemFree_v2(device));
    WANT(cuMemFree_v2(device), 1);
}

static void textures(void)
{
    struct { size_t width, height; int format; unsigned channels; } shape = {8, 0, 0x20, 1};
    struct { int kind; handle array; long rest[16]; } resource = {0};
    struct { int modes[3], filter; unsigned flags, rest[32]; } texture = {0};
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    address object = 0;
    OK(cuArrayCreate_v2(&resource.array, &shape));
    OK(cuMemcpyHtoA_v2(resource.array, 0, values, 32));
    OK(cuTexObjectCreate(&object, &resource, &texture, 0));
    IS(object);
}

/* `fetch` of the module: levels 0 to 3 of a texture at its middle, or the six faces of a cube map from +x on. */
static void levels_and_faces(handle module)
{
    struct { size_t width, height, depth; int format; unsigned channels, flags; } shape = {8, 4, 0, 0x20, 1, 0};
    struct { int kind; handle array; long rest[16]; } resource = {1};
    struct { int modes[3], filter; unsigned flags, anisotropy; int levels; float bias, least, most, rest[16]; } texture = {.flags = 2, .most = 9};
    float values[32], found[6];
    handle array, kernel;
    address object, data;
    OK(cuMemAlloc_v2(&data, 256));
    OK(cuMipmappedArrayCreate(&resource.array, &shape, 9));
    WANT(cuMipmappedArrayGetLevel(&array, resource.array, 4), 1);
    for (int level = 0; level < 4; level++) {
        struct {
            size_t x, y; int kind; const void *host; address device; handle array; size_t pitch, to_x, to_y;
            int to_kind; void *to_host; address to_device; handle to; size_t to_pitch, width, height;
        } copy = {.kind = 1, .host = values, .to_kind = 3, .width = (8 >> level) * 4, .height = level < 2 ? 4 >> level : 1};
        for (int index = 0; index < 32; index++)
            values[index] = 10 + level;
        OK(cuMipmappedArrayGetLevel(&copy.to, resource.array, level));
        OK(cuMemcpy2D_v2(&copy));
    }
    OK(cuTexObjectCreate(&object, &resource, &texture, 0));
    void *arguments[] = {&object, &data};
    OK(cuModuleGetFunction(&kernel, module, "levels"));
    OK(cuLaunchKernel(kernel, 1, 1, 1, 6, 1, 1, 0, 0, arguments, 0));
    OK(cuMemcpyDtoH_v2(found, data, 24));
    IS(found[0] == 10 && found[1] == 11 && found[3] == 13 && found[5] == 13);
    OK(cuMipmappedArrayDestroy(resource.array));

    shape.height = 8;
    shape.flags = 0x40; /* sparse */
    WANT(cuArray3DCreate_v2(&array, &shape), 801);
    WANT(cuMipmappedArrayCreate(&array, &shape, 2), 801);
    shape.depth = 5;
    shape.flags = 4;
    WANT(cuArray3DCreate_v2(&array, &shape), 1);
    shape.depth = 6;
    shape.width = shape.height = 1;
    OK(cuArray3DCreate_v2(&resource.array, &shape));
    struct {
        size_t x, y, z, lod; int kind; const void *host; address device; handle array, zero; size_t pitch, rows, to_x, to_y, to_z, to_lod;
        int to_kind; void *to_host; address to_device; handle to, zero_too; size_t to_pitch, to_rows, width, height, depth;
    } faces = {.kind = 1, .host = values, .pitch = 4, .rows = 1, .to_kind = 3, .to = resource.array, .width = 4, .height = 1, .depth = 6};
    for (int face = 0; face < 6; face++)
        values[face] = 20 + face;
    OK(cuMemcpy3D_v2(&faces));
    resource.kind = 0;
    OK(cuTexObjectCreate(&object, &resource, &texture, 0));
    OK(cuModuleGetFunction(&kernel, module, "faces"));
    OK(cuLaunchKernel(kernel, 1, 1, 1, 6, 1, 1, 0, 0, arguments, 0));
    OK(cuMemcpyDtoH_v2(found, data, 24));
    for (int face = 0; face < 6; face++)
        IS(found[face] == 20 + face);
    texture.filter = 1;
    texture.flags |= 0x40; /* seamless */
    WANT(cuTexObjectCreate(&object, &resource, &texture, 0), 801);
}

static void maps(void)
{
    char map[128] __attribute__((aligned(64)));
    address data, sizes[2] = {64, 32}, strides[1] = {128};
    unsigned box[2] = {32, 8}, steps[2] = {1, 1};
    OK(cuMemAlloc_v2(&data, 64 * 32 * 2));
    OK(cuTensorMapEncodeTiled(map, 6, 2, (void *)(uintptr_t)data, sizes, strides, box, steps, 0, 2, 0, 0));
    OK(cuTensorMapReplaceAddress(map, (void *)(uintptr_t)(data + 16)));
    strides[0] = 100; /* no multiple of 16 */
    WANT(cuTensorMapEncodeTiled(map, 6, 2, (void *)(uintptr_t)data, sizes, strides, box, steps, 0, 2, 0, 0), 1);
}

/* two pieces of memory side by side are one array, the first mapped a second time is the same memory; `add` adds `value` and 100 */
static void mapping(handle kernel)
{
    struct { int kind, handles, where, ordinal; void *security; unsigned char flags[8]; } made = {1, 0, 1, 0};
    struct { int where, ordinal, flags; } access = {1, 0, 3};
    address base, first, second, again, granted = 9;
    unsigned host[64];
    size_t step;
    OK(cuMemGetAllocationGranularity(&step, &made, 0));
    OK(cuMemAddressReserve(&base, 4 * step, 0, 0, 0));
    IS(base % step == 0);
    WANT(cuMemCreate(&first, step + 4096, &made, 0), 1);
    OK(cuMemCreate(&first, step, &made, 0));
    OK(cuMemCreate(&second, step, &made, 0));
    OK(cuMemMap(base, step, 0, first, 0));
    WANT(cuMemMap(base, step, 0, second, 0), 1);
    WANT(cuMemMap(base + 4 * step, step, 0, second, 0), 1);
    OK(cuMemMap(base + step, step, 0, second, 0));
    OK(cuMemMap(base + 3 * step, step, 0, first, 0));
    WANT(cuMemsetD32_v2(base, 0, 32), 1); /* nobody may access it yet */
    OK(cuMemSetAccess(base, 2 * step, &access, 1));
    OK(cuMemsetD32_v2(base, 5, 2 * step / 4));
    OK(launch(kernel, 2, base + step - 128, 7, 0)); /* 32 words before the second piece, and 32 of it */
    OK(cuMemcpyDtoH_v2(host, base + step - 128, 256));
    IS(host[0] == 112 && host[63] == 112);
    WANT(cuMemsetD32_v2(base + 3 * step, 0, 1), 1);
    OK(cuMemGetAccess(&granted, &access, base + 3 * step));
    IS(granted == 0);
    OK(cuMemSetAccess(base + 3 * step, step, &access, 1));
    OK(cuMemGetAccess(&granted, &access, base + 3 * step));
    IS(granted == 3);
    OK(cuMemcpyDtoH_v2(host, base + 4 * step - 128, 128));
    IS(host[0] == 112 && host[31] == 112);
    OK(cuMemRelease(first));
    WANT(cuMemRelease(first), 400);
    WANT(cuMemUnmap(base, step / 2), 1);
    WANT(cuMemAddressFree(base, 4 * step), 1);
    OK(cuMemUnmap(base, step)); /* the other mapping keeps what it holds */
    WANT(cuMemsetD32_v2(base, 0, 1), 1);
    OK(cuMemRetainAllocationHandle(&again, base + 3 * step));
    OK(cuMemMap(base, step, 0, again, 0));
    OK(cuMemSetAccess(base, step, &access, 1));
    OK(cuMemcpyDtoH_v2(host, base + step - 128, 256));
    IS(host[0] == 112 && host[63] == 112);
    OK(cuMemsetD32_v2(base, 0, 2 * step / 4));
    OK(cuMemcpyDtoH_v2(host, base + step - 128, 256));
    IS(host[0] == 0 && host[63] == 0);
    OK(cuMemUnmap(base, 2 * step));
    OK(cuMemUnmap(base + 3 * step, step));
    OK(cuMemRelease(again));
    OK(cuMemRelease(second));
    OK(cuMemAddressFree(base, 4 * step));
    WANT(cuMemMap(base, step, 0, second, 0), 400);
}

static void works(char *ptx)
{
    int device, version, count, block, log[2] = {5, 6}, active, status;
    char name[64], text[200] = "";
    unsigned flags, host[64];
    handle context, other, module, kernel, library, again, stream, graph, executable, start, end, linking;
    address data, more, global;
    size_t size, offset;
    float milliseconds;
    const char *title, *name_again;
    void *image, *entry, *none;
    OK(cuInit(0));
    OK(cuDriverGetVersion(&version));
    IS(version >= 12000);
    OK(cuDeviceGet(&device, 0));
    WANT(cuDeviceGet(&device, 1), 101);
    OK(cuDeviceGetName(name, sizeof name, 0));
    IS(strstr(name, "A100"));
    OK(cuDeviceGetAttribute(&count, 75, 0));
    IS(count == 8);
    OK(cuCtxGetCurrent(&context));
    IS(!context);
    WANT(cuCtxGetDevice(&device), 201);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuCtxPopCurrent_v2(&again));
    IS(again == other);
    OK(cuCtxGetCurrent(&again));
    IS(again == context);
    OK(cuMemAlloc_v2(&data, 64));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuMemAlloc_v2(&more, 64));
    OK(cuPointerGetAttribute(&again, 1, more + 8)); /* CU_POINTER_ATTRIBUTE_CONTEXT: where it was allocated, not the current one */
    IS(again == other);
    OK(cuPointerGetAttribute(&again, 1, data));
    IS(again == context);
    OK(cuMemFree_v2(more));
    OK(cuMemFree_v2(data));
    OK(cuCtxDestroy_v2(other));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    IS(active == 1);

    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "add"));
    WANT(cuModuleGetFunction(&again, module, "none"), 500);
    OK(cuModuleGetGlobal_v2(&global, &size, module, "more"));
    IS(size == 4);
    OK(cuMemAlloc_v2(&data, 256));
    OK(cuMemsetD32_v2(data, 0, 64));
    OK(launch(kernel, 2, data, 7, 0));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(host, data, 256));
    IS(host[0] == 8 && host[63] == 8);
    OK(cuMemsetD32_v2(global, 100, 1));
    /* all arguments in one buffer: 1 its address, 2 its size, 0 the end */
    struct { address data; unsigned value; } packed = {data, 1};
    size = 12;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, 0};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, extra));
    OK(cuMemcpyDtoH_v2(host, data, 256));
    IS(host[0] == 109 && host[31] == 109 && host[32] == 8);
    mapping(kernel);
    WANT(cuImportExternalMemory(text, data), 801);
    levels_and_faces(module);
    OK(cuFuncGetAttribute(&count, 0, kernel));
    IS(count == 1024);
    OK(cuFuncGetName(&title, kernel));
    IS(!strcmp(title, "add"));
    OK(cuFuncGetName(&name_again, kernel));
    IS(name_again == title); /* valid until the module is unloaded */
    OK(cuFuncGetParamInfo(kernel, 1, &offset, &size));
    IS(offset == 8 && size == 4);
    OK(cuFuncGetModule(&again, kernel));
    IS(again == module);
    OK(cuOccupancyMaxPotentialBlockSize(&count, &block, kernel, 0, 0, 0));
    IS(block == 1024 && count == 2 * 108);

    /* a library has variables of its own: 1 is added, not 100 */
    OK(cuLibraryLoadData(&library, ptx, 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetKernel(&again, library, "add"));
    OK(cuKernelGetFunction(&again, again));
    OK(cuStreamCreate(&stream, 1));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, stream));
    struct { unsigned grid[3], block[3], shared; handle stream; void *attributes; unsigned count; } config = {
        {1, 1, 1}, {32, 1, 1}, 0, stream, 0, 0};
    void *arguments[] = {&data, &packed.value};
    OK(cuLaunchKernelEx(&config, again, arguments, 0));
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    IS(milliseconds > 0);
    OK(cuStreamSynchronize_ptsz(stream));
    OK(cuMemcpyDtoH_v2(host, data, 4));
    IS(host[0] == 111);
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(launch(again, 1, data, 1, stream));
    OK(cuMemcpyDtoDAsync_v2(data + 128, data, 128, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cuGraphLaunch(executable, stream));
    OK(cuGraphLaunch(executable, stream));
    OK(cuMemcpyDtoH_v2(host, data, 256));
    IS(host[0] == 115 && host[32] == 115);
    /* the same launch in several steps, as before CUDA 4, with the text of the parameters out of order */
    {
        unsigned seen[32];
        address other;
        OK(cuMemAlloc_v2(&other, 128));
        OK(cuMemsetD32_v2(other, 5, 32));
        OK(cuFuncSetBlockShape(again, 32, 1, 1));
        OK(cuFuncSetSharedSize(again, 0));
        OK(cuParamSeti(again, 8, 6));
        OK(cuParamSetv(again, 0, &other, 8));
        OK(cuParamSetSize(again, 12));
        OK(cuLaunchGrid(again, 1, 1));
        OK(cuMemcpyDtoH_v2(seen, other, 128));
        IS(seen[0] == 12 && seen[31] == 12); /* 5 + 6 + 1 */
        WANT(cuFuncSetBlockShape(again, 0, 1, 1), 1);
        WANT(cuFuncSetBlockShape((handle)0x77, 1, 1, 1), 400);
        OK(cuMemFree_v2(other));
    }
    /* nodes: two that were captured, a kernel by its packed arguments, and a copy as a node of any kind */
    {
        handle nodes[4], *before;
        unsigned copied[32];
        size_t count = 4;
        int type;
        OK(cuGraphGetNodes(graph, nodes, &count));
        IS(count == 2);
        OK(cuGraphNodeGetType(nodes[1], &type));
        IS(type == 1);
        struct { address data; int value; } packed = {data + 128, 3};
        size_t bytes = 12;
        void *extra[] = {(void *)1, &packed, (void *)2, &bytes, 0};
        struct { handle function; unsigned shape[6], shared; void **arguments, **extra; handle kernel, context; } given = {
            0, {1, 1, 1, 32, 1, 1}, 0, 0, extra, again};
        OK(cuGraphAddKernelNode_v2(&nodes[2], graph, nodes + 1, 1, &given));
        struct { int type, reserved[3], flags, unused; handle context; struct { size_t x, y, z, level; int kind; void *host; address device; handle array; void *unused; size_t pitch, height; } from, to; size_t width, height, depth, rest[9]; } copy = {
            .type = 1, .from = {.kind = 2, .device = data + 128}, .to = {.kind = 1, .host = copied}, .width = 128, .height = 1, .depth = 1};
        OK(cuGraphAddNode_v2(&nodes[3], graph, nodes + 2, 0, 1, &copy));
        OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
        OK(cuGraphLaunch(executable, stream));
        IS(copied[0] == 121); /* 117 is copied before 4 is added */
        packed.value = 10;
        OK(cuGraphExecKernelNodeSetParams_v2(executable, nodes[2], &given));
        OK(cuGraphLaunch(executable, stream));
        IS(copied[0] == 130);
        OK(cuStreamGetCaptureInfo_v3(stream, &type, 0, 0, &before, 0, &count));
        IS(type == 0);
        OK(launch(again, 1, data, -5, stream)); /* 115 again */
        OK(cuMemcpyDtoDAsync_v2(data + 128, data, 128, stream));
    }
    OK(cuLibraryUnload(library));
    OK(cuStreamDestroy_v2(stream));
    WANT(cuStreamSynchronize_ptsz(stream), 400);
    /* nor does anything else take the handle of a destroyed stream, or one that never was of a stream: CUDA_ERROR_INVALID_HANDLE */
    handle invalid[] = {stream, (handle)0x77, start};
    for (int i = 0; i < 3; i++) {
        WANT(launch(kernel, 1, data, 1, invalid[i]), 400);
        config.stream = invalid[i];
        WANT(cuLaunchKernelEx(&config, kernel, arguments, 0), 400);
        WANT(cuMemcpyDtoDAsync_v2(data + 128, data, 128, invalid[i]), 400);
        WANT(cuEventRecord(start, invalid[i]), 400);
        WANT(cuGraphLaunch(executable, invalid[i]), 400);
        WANT(cuStreamBeginCapture_v2(invalid[i], 0), 400);
        WANT(cuMemPrefetchAsync(data, 128, 0, invalid[i]), 400);
        WANT(cuMemPrefetchAsync_v2(data, 128, (struct location){1, 0}, 0, invalid[i]), 400);
        WANT(cuStreamAttachMemAsync(invalid[i], data, 128, 4), 400);
    }
    OK(cuMemPrefetchAsync(data, 128, 0, 0));
    OK(cuMemPrefetchAsync(data, 128, -1, 0)); /* to the host */
    WANT(cuMemPrefetchAsync(data, 128, 1, 0), 101);
    OK(cuMemAdvise(data, 128, 5, -1));
    WANT(cuMemAdvise(data, 128, 5, 2), 101);
    WANT(cuMemAdvise_v2(data, 128, 0, (struct location){1, 0}), 1);
    OK(cuMemPrefetchAsync_v2(data, 128, (struct location){1, 0}, 0, 0));
    OK(cuMemcpyDtoH_v2(host, data, 256));
    IS(host[0] == 115 && host[32] == 115);
    OK(launch(kernel, 1, data, 0, (handle)1)); /* the default streams of the process and of the thread */
    OK(cuMemcpyDtoDAsync_v2(data + 128, data, 128, (handle)2));
    OK(cuMemcpyDtoH_v2(host, data, 256));
    IS(host[0] == 215 && host[32] == 215);

    /* a module that calls what another one has */
    static char caller[] = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func give;\n"
                           ".visible .entry calls() { call give; ret; }";
    static char called[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .func give { ret; }";
    OK(cuLinkCreate_v2(0, 0, 0, &linking));
    OK(cuLinkAddData_v2(linking, 1, caller, sizeof caller, "a", 0, 0, 0));
    OK(cuLinkAddData_v2(linking, 1, called, sizeof called, "b", 0, 0, 0));
    OK(cuLinkComplete(linking, &image, &size));
    OK(cuModuleLoadData(&again, image));
    OK(cuModuleGetFunction(&kernel, again, "calls"));
    OK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0));
    OK(cuModuleUnload(again));
    OK(cuLinkDestroy(linking));

    void *options[] = {text, (void *)sizeof text};
    WANT(cuModuleLoadDataEx(&again, ".version 8.0\n.target sm_80\nnonsense", 2, log, options), 218);
    IS(strstr(text, ":3:1: "));
    WANT(cuModuleLoadData(&again, "nonsense"), 200);
    WANT(cuModuleLoad(&again, "/no/such.ptx"), 301);

    OK(cuGetProcAddress_v2("cuCtxCreate", &entry, 12040, 0, &status));
    IS(status == 0);
    OK(cuGetProcAddress_v2("cuMemAlloc", &entry, 12000, 0, 0));
    OK(((int (*)(address *, size_t))entry)(&data, 16));
    WANT(cuGetProcAddress_v2("cuMemAlloc2", &none, 12000, 0, 0), 500);
    OK(cuGetProcAddress_v2("cuTensorMapEncodeTiled", &none, 11000, 0, &status));
    IS(!none && status == 2);
    memory();
    textures();
    maps();
    OK(cuGetErrorName(1, &title));
    IS(!strcmp(title, "CUDA_ERROR_INVALID_VALUE"));
    OK(cuGetErrorString(700, &title));
    IS(!strcmp(title, "an illegal memory access was encountered"));
    WANT(cuGetErrorName(12345, &title), 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void fails(char *ptx)
{
    handle context, module, kernel;
    address data;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "add"));
    void *none[] = {0, 0};
    WANT(cuLaunchKernel(kernel, 1, 1, 1, 2000, 1, 1, 0, 0, none, 0), 1);
    OK(cuMemAlloc_v2(&data, 64));
    OK(launch(kernel, 1, data, 1, 0));
    WANT(cuCtxSynchronize(), 700);
    WANT(cuMemFree_v2(data), 700);
}

int main(int count, char **arguments)
{
    static char ptx[1 << 16];
    FILE *file = fopen(arguments[1], "rb");
    if (!file || !fread(ptx, 1, sizeof ptx - 1, file))
        return 9;
    strcmp(arguments[2], "works") ? fails(ptx) : works(ptx);
    puts(wrong ? "wrong" : "right");
    return wrong;
}
