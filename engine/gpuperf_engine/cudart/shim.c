/* A libcudart whose functions are in Python, all but a few: each is a jump through a slot, which `attach` fills when the library is loaded.
 *
 * The interpreter is that of `gpuperf run` (GPUPERF_RUN_PYTHON, GPUPERF_RUN_LIBPYTHON), started in the process of the program, so that
 * a pointer means the same to the program, to kernels and to the engine. LIBRARY, COUNT and the jumps come from build.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

__attribute__((visibility("hidden"))) void *gpuperf_slots[COUNT];

static void *python;

/* Where the launch of a thread returns to. `f<<<...>>>(...)` is __cudaPushCallConfiguration(...) ? 0 : f(...), and the stub of f takes
 * the configuration back and calls cudaLaunchKernel: who pushed is who launches. Arguments may launch themselves, so there are several. */
typedef struct { unsigned x, y, z; } dim3;
static __thread struct { dim3 grid, block; size_t shared; void *stream, *caller; } waiting[16];
static __thread unsigned depth;
static __thread void *caller;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    if (depth == sizeof waiting / sizeof *waiting)
        return 1;
    waiting[depth].grid = grid;
    waiting[depth].block = block;
    waiting[depth].shared = shared;
    waiting[depth].stream = stream;
    waiting[depth++].caller = __builtin_return_address(0);
    return 0;
}

int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream)
{
    if (!depth)
        return 52; /* cudaErrorMissingConfiguration */
    depth--;
    *grid = waiting[depth].grid;
    *block = waiting[depth].block;
    *shared = waiting[depth].shared;
    *stream = waiting[depth].stream;
    caller = waiting[depth].caller;
    return 0;
}

static void *take_caller(void)
{
    void *taken = caller;
    caller = 0;
    return taken;
}

#define LAUNCH(name, parameters, arguments) \
    int name parameters \
    { \
        if (!caller) \
            caller = __builtin_return_address(0); \
        return ((int (*) parameters)gpuperf_slots[SLOT_##name]) arguments; \
    }
#define BY_SHAPE(name) \
    LAUNCH(name, (void *host, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream), \
           (host, grid, block, arguments, shared, stream))
#define BY_CONFIG(name) LAUNCH(name, (void *config, void *host, void **arguments), (config, host, arguments))
BY_SHAPE(cudaLaunchKernel)
BY_SHAPE(cudaLaunchKernel_ptsz)
BY_SHAPE(__cudaLaunchKernel)
BY_SHAPE(__cudaLaunchKernel_ptsz)
BY_SHAPE(cudaLaunchCooperativeKernel)
BY_SHAPE(cudaLaunchCooperativeKernel_ptsz)
BY_CONFIG(cudaLaunchKernelExC)
BY_CONFIG(cudaLaunchKernelExC_ptsz)

static void fail(const char *what, const char *more)
{
    fprintf(stderr, "gpuperf: %s%s\n", what, more ? more : "");
    fflush(NULL);
    _exit(3);
}

static void *symbol(const char *name)
{
    void *found = dlsym(python ? python : RTLD_DEFAULT, name);
    if (!found)
        fail("the Python library lacks ", name);
    return found;
}

static int run(const char *code)
{
    return ((int (*)(const char *))symbol("PyRun_SimpleString"))(code);
}

/* The interpreter cannot be ended while its threads run: what the program has printed is written, and the process ends. */
static void leave(int status, void *unused)
{
    void *cout = dlsym(RTLD_DEFAULT, "_ZSt4cout");
    void (*flush)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZNSo5flushEv");
    (void)unused;
    if (cout && flush)
        flush(cout);
    fflush(NULL);
    ((int (*)(void))symbol("PyGILState_Ensure"))();
    run("from gpuperf_engine.cudart import boot as _gpuperf\n_gpuperf.ended()\n");
    fflush(NULL);
    _exit(status);
}

/* LLVM's destructors must not run at exit: a thread of the engine may be compiling. The program's own do. */
int __cxa_atexit(void (*function)(void *), void *argument, void *object)
{
    static int (*real)(void (*)(void *), void *, void *);
    Dl_info info;
    if (!real)
        real = (int (*)(void (*)(void *), void *, void *))dlsym(RTLD_NEXT, "__cxa_atexit");
    if (object && dladdr(object, &info) && info.dli_fname && strstr(info.dli_fname, "libllvmlite"))
        return 0;
    return real(function, argument, object);
}

static void start(const char *program, const char *library)
{
    python = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!python)
        fail("cannot load Python: ", dlerror());
    /* from Python 3.14 on a configuration is made by name; before that the program's name is set */
    void *(*create)(void) = (void *(*)(void))dlsym(python, "PyInitConfig_Create");
    if (create) {
        void *config = create();
        ((int (*)(void *, const char *, const char *))symbol("PyInitConfig_SetStr"))(config, "executable", program);
        ((int (*)(void *, const char *, long long))symbol("PyInitConfig_SetInt"))(config, "install_signal_handlers", 0);
        if (((int (*)(void *))symbol("Py_InitializeFromInitConfig"))(config))
            fail("cannot start Python ", program);
        return;
    }
    wchar_t *name = ((wchar_t * (*)(const char *, size_t *)) symbol("Py_DecodeLocale"))(program, NULL);
    ((void (*)(const wchar_t *))symbol("Py_SetProgramName"))(name);
    ((void (*)(int))symbol("Py_InitializeEx"))(0);
}

__attribute__((constructor)) static void attach(void)
{
    const char *program = getenv("GPUPERF_RUN_PYTHON"), *library = getenv("GPUPERF_RUN_LIBPYTHON");
    int (*initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int running = initialized && initialized(), held = 0;
    char code[512];
    if (!program || !library)
        fail(LIBRARY, " is that of gpuperf: start the program with gpuperf run -- PROGRAM");
    if (running)
        held = ((int (*)(void))symbol("PyGILState_Ensure"))();
    else
        start(program, library);
    snprintf(code, sizeof code,
             "from gpuperf_engine.cudart import boot as _gpuperf\n_gpuperf.attach('%s', %p, %p)\n", LIBRARY, (void *)gpuperf_slots,
             (void *)take_caller);
    if (run(code))
        fail("the CUDA runtime did not start", NULL);
    if (running)
        ((void (*)(int))symbol("PyGILState_Release"))(held);
    else {
        ((void *(*)(void))symbol("PyEval_SaveThread"))();
        on_exit(leave, NULL);
    }
}
