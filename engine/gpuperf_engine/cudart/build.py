"""Builds the libraries that programs load as CUDA, from ``shim.c`` and ``preload.c``, once. This needs a C compiler."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ..errors import MachineError
from ..jit import cache
from .driver_names import symbols

__all__ = ["LIBRARIES", "PRELOAD", "UNVERSIONED", "build_libraries", "names"]

LIBRARIES = ("libcudart.so.12", "libcudart.so.13", "libcuda.so.1")
"""The runtimes, one for each CUDA version that a program may be compiled with, and the driver."""
PRELOAD = "libgpuperf_preload.so"
"""Preloaded into programs that contain the runtime."""
UNVERSIONED = "libgpuperf_cuda.so"
"""For a process that has loaded the driver itself: later loads of ``libcuda.so`` find this library by its soname, and through it the
driver. The file ``libcuda.so`` is for linkers and for the search of the loader."""

_HERE = Path(__file__).resolve().parent
_NAMED = "libcuda.so"
#: a function jumps through its slot; the slot first points to code that passes the function's number to ``gpuperf_first``
_JUMPS = {
    "x86_64": "jmp *{slots}+{offset}(%rip)",
    "aarch64": "adrp x16, {slots}+{offset}\nldr x16, [x16, :lo12:{slots}+{offset}]\nbr x16",
}
_STARTS = {"x86_64": "pushq ${number}\njmp {first}", "aarch64": "mov x17, #{number}\nb {first}"}
#: saves the arguments while the slots are filled
_FIRST = {
    "x86_64": (
        "{prefix}gpuperf_first: "
        + "".join(f"pushq %{register}\n" for register in ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax"))
        + "subq $136, %rsp\n"
        + "".join(f"movups %xmm{number}, {16 * number}(%rsp)\n" for number in range(8))
        + "call {prefix}gpuperf_start\n"
        + "".join(f"movups {16 * number}(%rsp), %xmm{number}\n" for number in range(8))
        + "addq $136, %rsp\n"
        + "".join(f"popq %{register}\n" for register in ("rax", "r9", "r8", "rcx", "rdx", "rsi", "rdi"))
        + "popq %r11\nleaq {prefix}gpuperf_slots(%rip), %r10\njmp *(%r10,%r11,8)\n"
    ),
    "aarch64": (
        "{prefix}gpuperf_first: stp x29, x30, [sp, #-16]!\nmov x29, sp\n"
        + "".join(f"stp x{number}, x{number + 1}, [sp, #-16]!\n" for number in (0, 2, 4, 6))
        + "stp x8, x17, [sp, #-16]!\n"
        + "".join(f"stp q{number}, q{number + 1}, [sp, #-32]!\n" for number in (0, 2, 4, 6))
        + "bl {prefix}gpuperf_start\n"
        + "".join(f"ldp q{number}, q{number + 1}, [sp], #32\n" for number in (6, 4, 2, 0))
        + "ldp x8, x17, [sp], #16\n"
        + "".join(f"ldp x{number}, x{number + 1}, [sp], #16\n" for number in (6, 4, 2, 0))
        + "ldp x29, x30, [sp], #16\nadrp x16, {prefix}gpuperf_slots\nadd x16, x16, :lo12:{prefix}gpuperf_slots\n"
        "ldr x16, [x16, x17, lsl #3]\nbr x16\n"
    ),
}
#: the symbol version of ``__cxa_atexit`` in libc
_LIBC = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
#: functions in ``shim.c``
_IN_C = frozenset(
    f"__cuda{what}"
    for what in (
        *(
            "RegisterFatBinary",
            "RegisterFatBinaryEnd",
            "RegisterFunction",
            "RegisterVar",
            "RegisterManagedVar",
        ),
        *("UnregisterFatBinary", "PushCallConfiguration", "PopCallConfiguration"),
    )
)
#: functions whose return address is recorded before the jump
_NOTED = re.compile(r"(__cuda|cuda|cu)Launch(Cooperative)?Kernel(ExC|Ex)?(_ptsz)?")
#: functions that destructors call, possibly while a Python exception is propagating: all have few arguments, in integer registers
_UNWINDING = re.compile(
    r".*(Free|Destroy|Unload|Release|Unregister|Synchronize|Query|LastError|[GS]etDevice|CtxPushCurrent|CtxPopCurrent|CtxGetCurrent"
    r"|CtxSetCurrent|EventRecord).*"
)
_OPTIONS = ("-shared", "-fPIC", "-O2", "-w", "-o", "library")
_SECONDS = 60


@lru_cache(maxsize=3)
def names(library: str) -> tuple[str, ...]:
    """The functions of a library, in the order of its slots: the exports of CUDA's runtime (12 and 13), or of the driver."""
    if library == "libcuda.so.1":
        return symbols()
    words = (_HERE / "names.txt").read_text(encoding="utf-8").split()
    return tuple(name for name in words if name not in _IN_C)


def build_libraries() -> Path:
    """The folder with all libraries. Raises ``MachineError`` if there is no C compiler, or if the system is not Linux."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in _JUMPS:
        raise MachineError(
            f"programs cannot be run on {platform.system()} {machine}",
            hint="Linux on x86-64 and AArch64 can; kernels of a program are measured everywhere: gpuperf.kernel(FILE, NAME)",
        )
    shim, preload = (_HERE / "shim.c").read_text("utf-8"), (_HERE / "preload.c").read_text("utf-8")
    sources = {library: [_generated(library, shim, machine)] for library in LIBRARIES}
    sources[PRELOAD] = [
        preload,
        *(_generated(library, shim, machine, inside=True) for library in LIBRARIES[:2]),
    ]
    sources[UNVERSIONED] = [""]
    linked = {library: _linking(library, machine) for library in sources}
    folder = _folder() / f"cudart-{cache.key('cudart', repr(sources), _OPTIONS, repr(linked), machine)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for library, texts in sources.items():
        if not (folder / library).is_file():
            _compile(texts, folder / library, *linked[library])
    with suppress(FileExistsError):
        (folder / _NAMED).symlink_to(LIBRARIES[-1])
    return folder


def _linking(library: str, machine: str) -> tuple[list[str], str]:
    """Options for the linker, and the text of the version script that they may name."""
    if library == PRELOAD:
        return ["-ldl", "-Wl,-z,initfirst"], ""
    if library == UNVERSIONED:
        return [
            f"-Wl,-soname,{_NAMED}",
            "-Wl,--no-as-needed",
            "-Wl,-rpath,$ORIGIN",
            "-L..",
            f"-l:{LIBRARIES[-1]}",
        ], ""
    versions = f"{_LIBC[machine]} {{ __cxa_atexit; }};\n{library} {{ *; }};\n"
    return ["-ldl", f"-Wl,-soname,{library}", "-Wl,--version-script=versions"], versions


def _folder() -> Path:
    base = cache.folder()
    return base if base is not None else Path(tempfile.mkdtemp(prefix="gpuperf-"))


def _generated(library: str, shim: str, machine: str, *, inside: bool = False) -> str:
    """The source of a library; ``inside`` another library, its symbols have a prefix, and a table lists them by name."""
    known, prefix = names(library), f"gpuperf_{library.rpartition('.')[2]}_" if inside else ""
    head = [
        f'#define LIBRARY "{library}"',
        f"#define COUNT {len(known)}",
        f"#define NAME(name) {prefix + '##' if prefix else ''}name",
    ]
    head += ["#define RUNTIME"] if "cudart" in library else []
    head += ["#define INSIDE"] if inside else []
    head += [f"#define SLOT_{name} {number}" for number, name in enumerate(known) if _in_c(name)]
    jumps = ""
    for number, name in enumerate(known):
        if not _in_c(name):
            jump = _JUMPS[machine].format(slots=f"{prefix}gpuperf_slots", offset=8 * number)
            symbol = prefix + name
            jumps += (
                f".globl {symbol}\n.type {symbol}, %function\n{symbol}: {jump}\n.size {symbol}, .-{symbol}\n"
            )
        start = _STARTS[machine].format(number=number, first=f"{prefix}gpuperf_first")
        jumps += f".Lslot_{prefix}{number}: {start}\n"
    slots = "".join(f".quad .Lslot_{prefix}{number}\n" for number in range(len(known)))
    first = _FIRST[machine].replace("{prefix}", prefix)
    variable = f"{prefix}gpuperf_slots"
    text = f".text\n{first}{jumps}.data\n.balign 8\n.hidden {variable}\n.globl {variable}\n{variable}:\n{slots}.text\n"
    lines = [f'"{line}\\n"' for line in text.splitlines()]
    table = _table(prefix, library) if inside else []
    guarded = [f"GUARDED({name})" for name in known if _UNWINDING.fullmatch(name)]
    return "\n".join([*head, shim, *guarded, "__asm__(", *lines, ");", *table, ""])


def _in_c(name: str) -> bool:
    """Whether a function has a wrapper in C before its slot, instead of only a jump."""
    return bool(_NOTED.fullmatch(name) or _UNWINDING.fullmatch(name))


def _table(prefix: str, library: str) -> list[str]:
    rows = [f'{{"{name}", (void *){prefix}{name}}},' for name in (*names(library), *sorted(_IN_C))]
    declared = [f"extern char {prefix}{name}[];" for name in names(library) if not _in_c(name)]
    variable = f"gpuperf_runtime_{library.rpartition('.')[2]}"
    return [
        *declared,
        f"const struct {{ const char *name; void *address; }} {variable}[] = {{",
        *rows,
        "{0, 0}};",
    ]


def _compile(sources: list[str], library: Path, options: list[str], versions: str) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise MachineError(
            "there is no C compiler to build the CUDA runtime with",
            details=["it is built once, from two files of 300 lines, and kept in the cache"],
            hint="apt-get install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (Fedora), or set CC",
        )
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        files = [f"{number}.c" for number in range(len(sources))]
        for name, source in zip(files, sources):
            (Path(folder) / name).write_text(source, encoding="utf-8")
        (Path(folder) / "versions").write_text(versions)
        command = [*compiler.split(), *_OPTIONS, *files, *options]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MachineError(f"cannot run {compiler}: {error}", hint="set CC to a C compiler") from None
        if done.returncode:
            raise MachineError(
                f"{compiler} does not compile the CUDA runtime",
                details=(done.stderr or done.stdout).splitlines()[:6],
                hint="apt-get install gcc libc6-dev (Debian, Ubuntu), or set CC to another compiler",
            )
        os.replace(Path(folder) / "library", library)
