/* The static CUDA runtime (nvcc's default): where a program contains it, each of its functions gets a jump to that of our libcudart.
 *
 * The loader runs this before all constructors, those of libc too, since others register kernels. Functions are those of the symbol tables, so
 * a program that was stripped is left as it is, and a real libcudart that the loader finds by a path is replaced too. Whose version it is, names that only one version has tell: 11 has __cudaRegisterTexture,
 * 12 cudaGetDeviceProperties_v2.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ours, by version: the names of functions and their addresses, up to a null */
struct function {
    const char *name;
    void *address;
};
extern const struct function gpuperf_runtime_12[], gpuperf_runtime_13[];

#if defined(__x86_64__)
static const unsigned char jump[6] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip) */
#else
static const uint32_t jump[2] = {0x58000050, 0xd61f0200}; /* ldr x16, 8; br x16 */
#endif

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

/* The constructor of nvcc's host code that registers kernels: __sti____cudaRegisterAll(void), static in each file. */
static const char registers[] = "_ZL24__sti____cudaRegisterAllv";

/* Calls `visit` for the functions that a file defines and whose names begin with cuda, __cuda or nvrtcGet, and for `registers`. */
static void functions(const char *file, size_t size, void (*visit)(const char *name, uintptr_t value, void *data), void *data)
{
    const Elf64_Ehdr *header = (const void *)file;
    if (size < sizeof *header || memcmp(file, ELFMAG, SELFMAG) || file[EI_CLASS] != ELFCLASS64 || !header->e_shoff ||
        header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > size)
        return;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    for (int index = 0; index < header->e_shnum; index++) {
        const Elf64_Shdr *table = &sections[index];
        if ((table->sh_type != SHT_SYMTAB && table->sh_type != SHT_DYNSYM) || table->sh_link >= header->e_shnum || table->sh_offset + table->sh_size > size)
            continue;
        const Elf64_Shdr *names = &sections[table->sh_link];
        if (names->sh_offset + names->sh_size > size)
            continue;
        const Elf64_Sym *symbol = (const void *)(file + table->sh_offset), *end = symbol + table->sh_size / sizeof *symbol;
        for (; symbol < end; symbol++) {
            if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_name + 8 >= names->sh_size)
                continue;
            const char *name = file + names->sh_offset + symbol->st_name;
            if (!strncmp(name, "cuda", 4) || !strncmp(name, "__cuda", 6) || !strncmp(name, "nvrtcGet", 8) || !strcmp(name, registers))
                visit(name, symbol->st_value, data);
        }
    }
}

struct found {
    int runtime, version, linked;
    uintptr_t compiled[4];
};

/* NVRTC compiles for sm_90, say, to PTX and from that to a cubin: who asks for the second gets the first, which the driver takes too. */
static const char *const compiled[4] = {"nvrtcGetCUBIN", "nvrtcGetCUBINSize", "nvrtcGetPTX", "nvrtcGetPTXSize"};

static void examine(const char *name, uintptr_t value, void *data)
{
    struct found *found = data;
    for (int index = 0; index < 4; index++)
        if (!strcmp(name, compiled[index]))
            found->compiled[index] = value;
    if (!strcmp(name, "cudaMalloc"))
        found->runtime = 1;
    else if (!strcmp(name, "__cudaRegisterTexture"))
        found->version = 11;
    else if (!strcmp(name, "cudaGetDeviceProperties_v2") && found->version == 13)
        found->version = 12;
    else if (!strncmp(name, "__cudaRegisterLinkedBinary", 26))
        found->linked = 1;
}

/* Functions begin 16 bytes apart, or more. */
static void put_jump(char *entry, void *target)
{
    memcpy(entry, jump, sizeof jump);
    memcpy(entry + sizeof jump, &target, sizeof target);
}

static int protect(uintptr_t first, uintptr_t last, int protection)
{
    uintptr_t page = sysconf(_SC_PAGESIZE), start = first & -page, end = (last + 16 + page - 1) & -page;
    return mprotect((void *)start, end - start, protection);
}

/* Whether the functions from `first` to `last` can be written now. */
static int open_code(uintptr_t first, uintptr_t last)
{
    return !protect(first, last, PROT_READ | PROT_WRITE | PROT_EXEC);
}

static void close_code(uintptr_t first, uintptr_t last)
{
    protect(first, last, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)first, (char *)last + 16);
}

struct target {
    const struct function *runtime;
    uintptr_t base, first, last;
    int write;
};

static void redirect(const char *name, uintptr_t value, void *data)
{
    struct target *target = data;
    const struct function *ours = target->runtime;
    char *entry = (char *)(target->base + value);
    while (ours->name && strcmp(ours->name, name))
        ours++;
    if (!ours->name)
        return;
    if (!target->write) {
        if ((uintptr_t)entry < target->first)
            target->first = (uintptr_t)entry;
        if ((uintptr_t)entry > target->last)
            target->last = (uintptr_t)entry;
        return;
    }
    put_jump(entry, ours->address);
}

static void replace(const char *file, size_t size, uintptr_t base, const char *path)
{
    struct found found = {0, 13, 0, {0}};
    functions(file, size, examine, &found);
    for (int index = 0; index < 2; index++)
        if (found.compiled[index] && found.compiled[index + 2] && open_code(base + found.compiled[index], base + found.compiled[index])) {
            put_jump((char *)(base + found.compiled[index]), (void *)(base + found.compiled[index + 2]));
            close_code(base + found.compiled[index], base + found.compiled[index]);
        }
    if (!found.runtime)
        return;
    if (found.version < 12) {
        fprintf(stderr, "gpuperf: %s contains the runtime of CUDA %d: compile it with CUDA 12 or 13\n", path, found.version);
        return;
    }
    struct target target = {found.version == 12 ? gpuperf_runtime_12 : gpuperf_runtime_13, base, UINTPTR_MAX, 0, 0};
    functions(file, size, redirect, &target);
    if (target.first > target.last)
        return;
    if (!open_code(target.first, target.last)) {
        fprintf(stderr, "gpuperf: this system does not let code be written: link %s with nvcc -cudart shared\n", path);
        return;
    }
    target.write = 1;
    functions(file, size, redirect, &target);
    close_code(target.first, target.last);
}

static void call_again(const char *name, uintptr_t value, void *data)
{
    if (!strcmp(name, registers))
        ((void (*)(void))(*(uintptr_t *)data + value))();
}

/* Has an object whose constructors have run register its kernels once more, now with us. What -rdc=true was linked with counts how often it
 * registers, and does not stand a second time. */
static void register_again(const char *file, size_t size, uintptr_t base, const char *path)
{
    struct found found = {0, 13, 0, {0}};
    functions(file, size, examine, &found);
    if (!found.linked && found.version >= 12)
        functions(file, size, call_again, &base);
}

static struct link_map *seen[4096];
static int count, before;

static void with_file(const char *path, uintptr_t base, void (*act)(const char *file, size_t size, uintptr_t base, const char *path))
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    if (!fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0) {
        char *data = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (data != MAP_FAILED) {
            act(data, status.st_size, base, path);
            munmap(data, status.st_size);
        }
    }
    close(file);
}

static const char *path_of(const struct link_map *map)
{
    return map->l_name && *map->l_name ? map->l_name : map == _r_debug.r_map ? "/proc/self/exe" : NULL;
}

/* Every object that the loader has mapped and that was not examined: before its constructors run. */
static void examine_objects(void)
{
    int known = count;
    Dl_info own;
    dladdr((void *)examine_objects, &own);
    size_t folder = strrchr(own.dli_fname, '/') - own.dli_fname + 1;
    for (struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        const char *path = path_of(map);
        int old = 0;
        for (int index = 0; index < known && !old; index++)
            old = seen[index] == map;
        if (old || !path || count == 4096)
            continue;
        seen[count++] = map;
        /* libraries of ours have functions of these names too */
        if (strncmp(path, own.dli_fname, folder))
            with_file(path, map->l_addr, replace);
    }
}

/* For a process that has loaded this library itself, not the loader before all others: the constructors of what was there have run. */
void gpuperf_register_again(void)
{
    for (int index = 0; index < before; index++)
        with_file(path_of(seen[index]), seen[index]->l_addr, register_again);
    before = 0;
}

/* The loader calls this when it has mapped objects, as it calls the debugger's. */
static void mapped(void)
{
    if (_r_debug.r_state == RT_CONSISTENT)
        examine_objects();
}

__attribute__((constructor)) static void attach(void)
{
    uintptr_t entry = (uintptr_t)_r_debug.r_brk;
    examine_objects();
    before = count;
    if (entry && open_code(entry, entry)) {
        put_jump((char *)entry, (void *)mapped);
        close_code(entry, entry);
    }
}
