"""PTX of CUDA C++: files that nvcc or NVRTC compile when a test asks for a kernel of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError

from .base import Compilation, PtxSource, display
from .files import find_file, missing, named_path

__all__ = ["DEFAULT_ARCHITECTURE", "SUFFIXES", "CudaSource", "pytest_gpuperf_ptx_source"]

SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx")
_ARCHITECTURE = re.compile(r"(?:sm|compute)_\d+[af]?")
DEFAULT_ARCHITECTURE = "sm_80"
"""The architecture if no machine is declared."""

COMPILERS = ("auto", "nvcc", "nvrtc")


@dataclass(frozen=True)
class CudaSource:
    """CUDA C++ with compiler options, as the first argument of ``gpuperf.kernel``.

    ``path`` is relative to the test file, then to the rootdir, so are ``includes``. ``defines`` are macros with their values,
    ``None`` for one without; ``std`` is the standard (``c++17``), ``arch`` the architecture (``sm_90a``; default: the lowest of the
    declared targets), ``options`` are other compiler options. ``compiler`` is ``nvcc``, ``nvrtc`` or ``auto``: nvcc if it is
    installed.
    """

    path: str | os.PathLike[str]
    includes: Sequence[str | os.PathLike[str]] = ()
    defines: Mapping[str, object] = field(default_factory=dict)
    std: str = ""
    arch: str = ""
    options: Sequence[str] = ()
    compiler: str = "auto"


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(
    source: object, entry: str | None, target: str, item: pytest.Item
) -> Compilation | PtxSource | None:
    """A path that ends in one of ``SUFFIXES``, or a ``CudaSource``. Raises ``EngineError`` for a file that does not exist or does not
    compile, and where there is no compiler."""
    path = named_path(source.path if isinstance(source, CudaSource) else source)
    if path is None or not (isinstance(source, CudaSource) or path.suffix in SUFFIXES):
        return None
    given = source if isinstance(source, CudaSource) else CudaSource(path)
    file = find_file(path, item)
    if file is None:
        raise missing(path, item, "CUDA", "*.cu")
    if given.compiler not in COMPILERS:
        raise EngineError(
            f"compiler={given.compiler!r} is not known", hint=f"known compilers: {', '.join(COMPILERS)}"
        )
    if given.arch and not _ARCHITECTURE.fullmatch(given.arch):
        raise EngineError(
            f"arch={given.arch!r} names no architecture", hint="for example arch='sm_80', or 'sm_90a'"
        )

    def compiled(arch: str) -> PtxSource:
        from .compiler import compile_cuda

        folders = [_folder(include, item) for include in given.includes]
        return compile_cuda(
            given, file, display(file, item.config.rootpath), folders, given.arch or arch, entry
        )

    return compiled(target) if _ARCHITECTURE.fullmatch(target) else Compilation(compiled)


def _folder(include: str | os.PathLike[str], item: pytest.Item) -> Path:
    path = Path(include)
    tried = [path] if path.is_absolute() else [item.path.parent / path, item.config.rootpath / path]
    found = next((folder for folder in tried if folder.is_dir()), None)
    if found is None:
        raise EngineError(
            f"no folder {os.fspath(include)!r} to include from",
            details=[f"looked for {display(folder, item.config.rootpath)}" for folder in tried],
            hint="paths are relative to the test file, then to the rootdir",
        )
    return found.resolve()
