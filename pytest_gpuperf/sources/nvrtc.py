"""NVRTC, NVIDIA's compiler as a library (NVRTC documentation): device code alone, without nvcc and a compiler of the host."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import util
from pathlib import Path

from gpuperf_engine.errors import MachineError

__all__ = ["Nvrtc", "find_nvrtc"]

_NO_HOST_HEADERS = "open source file"


class Nvrtc:
    """A loaded NVRTC; ``title`` says its version."""

    def __init__(self, library: ctypes.CDLL, headers: Sequence[str]) -> None:
        self._library = library
        self._headers = headers
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.title = f"NVRTC {major.value}.{minor.value}"

    def compile(
        self, file: Path, text: str, shown: str, number: str, options: Sequence[str], expression: str
    ) -> tuple[str, str]:
        """The PTX, and the kernel that the name expression means. Raises ``EngineError`` with the first messages."""
        from .compiler import failed

        library = self._library
        program = ctypes.c_void_p()
        name = os.fsencode(file.resolve())
        self._check(
            library.nvrtcCreateProgram(
                ctypes.byref(program), text.encode("utf-8", "surrogateescape"), name, 0, None, None
            )
        )
        try:
            if expression:
                self._check(library.nvrtcAddNameExpression(program, expression.encode()))
            given = [f"--gpu-architecture=compute_{number}", "-lineinfo", *options, *self._headers]
            array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
            code = library.nvrtcCompileProgram(program, len(given), array)
            if code:
                log = self._text(program, "ProgramLog") or self._message(code)
                error = failed(self.title, shown, log, number)
                if _NO_HOST_HEADERS in log:
                    error.hint = (
                        "NVRTC has no headers of the host: give their folder with includes=, "
                        "or compile with nvcc: pip install 'pytest-gpuperf[nvcc]'"
                    )
                raise error
            lowered = ctypes.c_char_p()
            if expression:
                self._check(library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(lowered)))
            return self._text(program, "PTX"), (lowered.value or b"").decode()
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.value.decode("utf-8", "replace")

    def _message(self, code: int) -> str:
        return (self._library.nvrtcGetErrorString(code) or b"").decode()

    def _check(self, code: int) -> None:
        if code:
            raise MachineError(f"{self.title}: {self._message(code)}")


@lru_cache(maxsize=1)
def find_nvrtc() -> Nvrtc:
    """``libnvrtc`` of ``$GPUPERF_NVRTC``, the wheel, ``$CUDA_HOME`` or ``$CUDA_PATH``, or the system, the first that loads. Raises
    ``MachineError`` if none does."""
    for path in _libraries():
        try:
            library = _loaded(path)
        except OSError:
            continue
        return Nvrtc(library, _headers(Path(path)))
    raise MachineError(
        "there is neither nvcc nor NVRTC to compile CUDA C++ with",
        details=[
            "looked for nvcc on the PATH, and for both in $CUDA_HOME, in $CUDA_PATH and among the installed wheels"
        ],
        hint="pip install 'pytest-gpuperf[nvrtc]', or set CUDA_HOME, or GPUPERF_NVRTC to the library",
    )


def _loaded(path: str) -> ctypes.CDLL:
    """The library, behind its built-in functions: that of the wheel for CUDA 13.0 opens them by name, and is not told where it lies
    itself. Raises ``OSError``."""
    found = Path(path).resolve().parent.glob("libnvrtc-builtins.so*") if os.sep in path else ()
    for builtins in found:
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path)


def _libraries() -> Iterator[str]:
    named = os.environ.get("GPUPERF_NVRTC")
    if named:
        yield named
    spec = util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for path in sorted(folder.glob("*/lib/libnvrtc.so.*"), reverse=True):
            yield str(path)
        for path in sorted(folder.glob("*/bin/**/nvrtc64_*.dll"), reverse=True):
            if "alt" not in path.stem and "builtins" not in path.stem:
                yield str(path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            for path in sorted(Path(os.environ[variable]).glob("lib*/libnvrtc.so*")):
                yield str(path)
    system = ctypes.util.find_library("nvrtc")
    if system:
        yield system


def _headers(library: Path) -> list[str]:
    """CUDA's own headers (``cuda_fp16.h`` …), where they are beside the library."""
    folder = library.parent.parent / "include"
    return [f"-I{path}" for path in (folder, folder / "cccl") if path.is_dir()]
