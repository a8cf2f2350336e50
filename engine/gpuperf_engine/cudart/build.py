"""Builds ``libcudart`` from ``shim.c``, once: a C compiler is needed then."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from ..errors import MachineError
from ..jit import cache

__all__ = ["IN_C", "VERSIONS", "build_library", "names"]

VERSIONS = ("12", "13")
"""Of CUDA: a program asks for the ``libcudart.so`` of the one that it was compiled with."""

IN_C = ("__cudaPushCallConfiguration", "__cudaPopCallConfiguration")
"""Functions that ``shim.c`` has by itself."""

#: functions to which it passes on, having noted who calls
_NOTED = re.compile(r"(__)?cudaLaunch(Cooperative)?Kernel(ExC)?(_ptsz)?")

_HERE = Path(__file__).resolve().parent
_JUMPS = {
    "x86_64": "jmp *gpuperf_slots+{offset}(%rip)",
    "aarch64": "adrp x16, gpuperf_slots+{offset}\\n ldr x16, [x16, :lo12:gpuperf_slots+{offset}]\\n br x16",
}
#: the version that libc gives ``__cxa_atexit``
_LIBC = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
_SECONDS = 60


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The functions that CUDA's runtime library exports, of versions 12 and 13: the order of the slots."""
    return tuple((_HERE / "names.txt").read_text(encoding="utf-8").split())


def build_library(version: str) -> Path:
    """A folder with ``libcudart.so.VERSION``. Raises ``MachineError`` where there is no C compiler, or another system than Linux."""
    source, jump = (_HERE / "shim.c").read_bytes(), _JUMPS.get(platform.machine())
    if platform.system() != "Linux" or jump is None:
        raise MachineError(
            f"programs cannot be run on {platform.system()} {platform.machine()}",
            hint="Linux on x86-64 and AArch64 can; kernels of a program are measured everywhere: gpuperf.kernel(FILE, NAME)",
        )
    generated = _generated(jump, version)
    folder = _folder() / f"cudart-{cache.key('cudart', source, generated, platform.machine())}"
    library = folder / f"libcudart.so.{version}"
    if not library.is_file():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _compile(source, generated, version, library)
    return folder


def _folder() -> Path:
    base = cache.folder()
    return base if base is not None else Path(tempfile.mkdtemp(prefix="gpuperf-"))


def _generated(jump: str, version: str) -> bytes:
    lines = [f'#define LIBRARY "libcudart.so.{version}"', f"#define COUNT {len(names())}"]
    text = []
    for number, name in enumerate(names()):
        if _NOTED.fullmatch(name):
            lines.append(f"#define SLOT_{name} {number}")
        if name in IN_C or _NOTED.fullmatch(name):
            continue
        text.append(
            f'__asm__(".text\\n .globl {name}\\n .type {name}, %function\\n {name}: {jump.format(offset=8 * number)}\\n '
            f'.size {name}, .-{name}\\n");'
        )
    return "\n".join([*lines, '#include "shim.c"', *text, ""]).encode()


def _compile(source: bytes, generated: bytes, version: str, library: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise MachineError(
            "there is no C compiler to build the CUDA runtime with",
            details=["it is built once, from a file of 150 lines, and kept in the cache"],
            hint="apt-get install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (Fedora), or set CC",
        )
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        (Path(folder) / "shim.c").write_bytes(source)
        (Path(folder) / "cudart.c").write_bytes(generated)
        (Path(folder) / "versions").write_text(
            f"{_LIBC[platform.machine()]} {{ __cxa_atexit; }};\nlibcudart.so.{version} {{ *; }};\n"
        )
        command = [
            *compiler.split(),
            *("-shared", "-fPIC", "-O2", "-w", "-o", "library", "cudart.c", "-ldl"),
            *(f"-Wl,-soname,libcudart.so.{version}", "-Wl,--version-script=versions"),
        ]
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
