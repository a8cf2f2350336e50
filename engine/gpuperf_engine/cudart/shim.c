/* A library of CUDA whose functions are in Python, all but a few: each is a jump through a slot, which is filled when the first of them is called.
 *
 * The interpreter is that of the program if it has one, else that of `gpuperf run` (GPUPERF_RUN_PYTHON, GPUPERF_RUN_LIBPYTHON), started in
 * the process of the program, so that a pointer means the same to the program, to kernels and to the engine. It is not started while
 * the library is loaded: the loader holds a lock then, which threads of Python and LLVM need. LIBRARY, COUNT, NAME and the jumps come from build.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#ifdef INSIDE
#pragma GCC visibility push(hidden)
#endif

extern __attribute__((visibility("hidden"))) void *NAME(gpuperf_slots)[COUNT];

static void *python;
static volatile int attached, embedded;
static int (*initialized)(void), (*holds)(void);

/* What functions lead to when Python is about to end: the driver's own answer then (cudaErrorCudartUnloading), and success for those that
 * release what ends with the process. */
static int unloading(void) { return 4; }
static int released(void) { return 0; }
static const char *unloading_text(void) { return "driver shutting down"; }
static int unloading_driver_text(int code, const char **text)
{
    if (text)
        *text = unloading_text();
    return 0;
}
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* Where the launch of a thread returns to. `f<<<...>>>(...)` is __cudaPushCallConfiguration(...) ? 0 : f(...), and the stub of f takes
 * the configuration back and calls cudaLaunchKernel: who pushed is who launches. Arguments may launch themselves, so there are several. */
typedef struct { unsigned x, y, z; } dim3;
static __thread void *caller;

static void *take_caller(void)
{
    void *taken = caller;
    caller = 0;
    return taken;
}

#define LAUNCH(name, parameters, arguments) \
    int NAME(name) parameters \
    { \
        if (!caller) \
            caller = __builtin_return_address(0); \
        return ((int (*) parameters)NAME(gpuperf_slots)[SLOT_##name]) arguments; \
    }
#ifdef RUNTIME
static __thread struct { dim3 grid, block; size_t shared; void *stream, *caller; } waiting[16];
static __thread unsigned depth;

unsigned NAME(__cudaPushCallConfiguration)(dim3 grid, dim3 block, size_t shared, void *stream)
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

int NAME(__cudaPopCallConfiguration)(dim3 *grid, dim3 *block, size_t *shared, void **stream)
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

/* What nvcc's host code registers, in chunks that stay where they are: constructors of libraries call these, so they are in C. */
#define ROWS 512
struct chunk {
    struct { long kind; void *handle, *host; const char *name; size_t size; } rows[ROWS];
    struct chunk *next;
};
static struct chunk first, *last = &first;
static long registered;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

static void add(long kind, void *handle, const void *host, const char *name, size_t size)
{
    pthread_mutex_lock(&registering);
    long row = registered % ROWS;
    if (registered && !row)
        last = last->next;
    if (row == ROWS - 1)
        last->next = calloc(1, sizeof first);
    last->rows[row].kind = kind, last->rows[row].handle = handle, last->rows[row].host = (void *)host;
    last->rows[row].name = name, last->rows[row].size = size;
    __atomic_store_n(&registered, registered + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&registering);
}

void **NAME(__cudaRegisterFatBinary)(void *wrapper)
{
    void **handle = calloc(1, 16);
    add(0, handle, wrapper, NULL, 0);
    return handle;
}

void NAME(__cudaRegisterFatBinaryEnd)(void **handle) { (void)handle; }

void NAME(__cudaUnregisterFatBinary)(void **handle) { (void)handle; }

void NAME(__cudaRegisterFunction)(void **handle, const char *host, char *function, const char *name)
{
    add(1, handle, host, name, 0);
}

void NAME(__cudaRegisterVar)(void **handle, char *host, char *address, const char *name, int external, size_t size)
{
    add(2, handle, host, name, size);
}

void NAME(__cudaRegisterManagedVar)(void **handle, void **host, char *address, const char *name, int external, size_t size)
{
    add(3, handle, host, name, size);
}

/* what `attach` of boot.py is given */
static void *parts[] = {take_caller, unloading, released, unloading_text, unloading_driver_text, &first, &registered};
#else
#define BLOCKS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream
LAUNCH(cuLaunchKernel, (void *kernel, BLOCKS, void **arguments, void **extra), (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra))
LAUNCH(cuLaunchKernel_ptsz, (void *kernel, BLOCKS, void **arguments, void **extra), (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra))
LAUNCH(cuLaunchKernelEx, (void *config, void *kernel, void **arguments, void **extra), (config, kernel, arguments, extra))
LAUNCH(cuLaunchKernelEx_ptsz, (void *config, void *kernel, void **arguments, void **extra), (config, kernel, arguments, extra))
LAUNCH(cuLaunchCooperativeKernel, (void *kernel, BLOCKS, void **arguments), (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments))
LAUNCH(cuLaunchCooperativeKernel_ptsz, (void *kernel, BLOCKS, void **arguments), (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments))
static void *parts[] = {take_caller, unloading, released, unloading_text, unloading_driver_text, NULL, NULL};
#endif

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
    if (!embedded)
        return;
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

static int interpreter(void)
{
    int (*initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return initialized && initialized();
}

/* functions of Python, for `guarded` */
static void *(*pending)(void);
static void (*fetch)(void **, void **, void **), (*restore)(void *, void *, void *);

static void attach(void)
{
    initialized = (int (*)(void))symbol("Py_IsInitialized");
    holds = (int (*)(void))symbol("PyGILState_Check");
    pending = (void *(*)(void))symbol("PyErr_Occurred");
    fetch = (void (*)(void **, void **, void **))symbol("PyErr_Fetch");
    restore = (void (*)(void *, void *, void *))symbol("PyErr_Restore");
    char code[1024];
    snprintf(code, sizeof code,
             "try:\n from gpuperf_engine.cudart import boot as _gpuperf\n"
             "except ImportError:\n import os, sys\n sys.path += os.environ.get('GPUPERF_RUN_PATH', '').split(os.pathsep)\n"
             " from gpuperf_engine.cudart import boot as _gpuperf\n"
             "_gpuperf.attach('%s', %p, %p)\n",
             LIBRARY, (void *)NAME(gpuperf_slots), (void *)parts);
    if (run(code))
        fail("the emulator did not start", NULL);
    attached = 1;
}

/* fork() of C knows nothing of the interpreter, whose locks a thread may hold that the new process lacks: as os.fork() does, the thread
 * that forks waits for them. It holds the interpreter already if Python itself forks. */
static __thread int forking, held_before;

static void call(const char *name) { ((void (*)(void))symbol(name))(); }

static void before_fork(void)
{
    if (!attached || !initialized() || holds())
        return;
    held_before = ((int (*)(void))symbol("PyGILState_Ensure"))();
    forking = 1;
    run("_gpuperf.before_fork()\n");
    call("PyOS_BeforeFork");
}

/* Until Python 3.11 the new process waits for the lock of the list of threads before it sets up new locks, and a thread takes that lock
 * without the interpreter's when it calls a function for the first time: it may have held it at the fork. The lock comes before two
 * pointers to the main interpreter (`_PyRuntime.interpreters`). */
static void free_list_of_threads(void)
{
    int minor = 0;
    sscanf(((const char *(*)(void))symbol("Py_GetVersion"))(), "3.%d", &minor);
    if (minor > 11)
        return;
    void **runtime = symbol("_PyRuntime"), *interpreter = ((void *(*)(void))symbol("PyInterpreterState_Main"))();
    for (int i = 1; i < 16; i++)
        if (runtime[i] == interpreter && runtime[i + 1] == interpreter) {
            ((int (*)(void **))symbol("_PyThread_at_fork_reinit"))(&runtime[i - 1]);
            return;
        }
}

static void after_fork(const char *name)
{
    if (!forking)
        return;
    forking = 0;
    call(name);
    run("_gpuperf.after_fork()\n");
    ((void (*)(int))symbol("PyGILState_Release"))(held_before);
}

static void after_fork_in_parent(void) { after_fork("PyOS_AfterFork_Parent"); }
static void after_fork_in_child(void)
{
    if (forking)
        free_list_of_threads();
    after_fork("PyOS_AfterFork_Child");
}

/* Fills the slots. A thread that has the interpreter takes no lock of C, which another one may hold that waits for the interpreter. */
__attribute__((visibility("hidden"))) void NAME(gpuperf_start)(void)
{
    if (!interpreter()) {
        const char *program = getenv("GPUPERF_RUN_PYTHON"), *library = getenv("GPUPERF_RUN_LIBPYTHON");
        if (!program || !library)
            fail(LIBRARY, " is that of gpuperf: start the program with gpuperf run -- PROGRAM");
        pthread_mutex_lock(&starting);
        if (!interpreter()) {
            start(program, library);
            embedded = 1;
            attach();
            pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
            ((void *(*)(void))symbol("PyEval_SaveThread"))();
        }
        pthread_mutex_unlock(&starting);
    }
    if (!attached) {
        int held = ((int (*)(void))symbol("PyGILState_Ensure"))();
        attach();
        ((void (*)(int))symbol("PyGILState_Release"))(held);
    }
}

/* A function that Python may call while an exception is on its way, which frees what it holds: it is put aside meanwhile. */
static long guarded(int slot, long a, long b, long c, long d, long e, long f)
{
    void *type, *value, *trace;
    long (*call)(long, long, long, long, long, long) = (long (*)(long, long, long, long, long, long))NAME(gpuperf_slots)[slot];
    if (!attached || !initialized() || !holds() || !pending())
        return call(a, b, c, d, e, f);
    fetch(&type, &value, &trace);
    long code = call(a, b, c, d, e, f);
    restore(type, value, trace);
    return code;
}
#define GUARDED(name) \
    long NAME(name)(long a, long b, long c, long d, long e, long f) { return guarded(SLOT_##name, a, b, c, d, e, f); }

/* Here, so that it runs after what the program itself has registered for its end. */
__attribute__((constructor)) static void loaded(void)
{
    on_exit(leave, NULL);
}
