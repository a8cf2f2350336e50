"""What tests of several folders share: backends, the head of a module, a launch on a device of its own, folders of the session."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit import backend, runtime_libraries
from gpuperf_engine.jit import launch as jit_launch
from gpuperf_engine.sass.tools import find_tool

#: the reference comes first
BACKENDS = ("reference", "llvm")
#: why LLVM took no code of kernels in this test: they ran on the reference backend, so that backends that are compared are one
refused: list[str] = []


def _note_refusals() -> None:
    compile_program = backend._compile

    def noting(*given: Any) -> Any:
        code = compile_program(*given)
        if isinstance(code, str) and code.startswith("LLVM cannot"):
            refused.append(code)
        return code

    backend._compile = noting


_note_refusals()


def compiled(kernel: ge.Kernel) -> object:
    """What the LLVM backend made of a kernel on its first launch: code, or why there is none."""
    return next(item for key, item in kernel.memo.items() if key[0] == "llvm")


def _there(name: str) -> bool:
    try:
        find_tool(name)
    except ge.MachineError:
        return False
    return True


needs_assembler = pytest.mark.skipif(
    not (_there("ptxas") and _there("nvdisasm")), reason="ptxas and nvdisasm are not here"
)


@pytest.fixture
def no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicted times are those of the model that needs none, and do not depend on the programs of the machine."""
    monkeypatch.setenv("GPUPERF_NVDISASM", "/nonexistent/nvdisasm")


def head(version: str, target: str) -> str:
    """The directives that a module begins with."""
    return f".version {version}\n.target {target}\n.address_size 64\n"


def launch(
    backend: str,
    kernel: ge.Kernel | str,
    grid: Any,
    block: Any,
    args: Sequence[object],
    *,
    memory_bytes: int = 1 << 24,
    **options: Any,
) -> tuple[list[NDArray[Any]], ge.Profile]:
    """The arrays among ``args`` as they are afterwards, and the profile. ``kernel``: one, or a module with the entry ``k``."""
    device = ge.Device(backend=backend, memory_bytes=memory_bytes)
    if isinstance(kernel, str):
        kernel = ge.parse(kernel, path="k.ptx")["k"]
    given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    profile = device.launch(kernel, grid, block, given, **options)
    return [made.numpy() for made, arg in zip(given, args, strict=True) if made is not arg], profile


@contextmanager
def shared_folder(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that all workers of pytest-xdist share, and that no other one uses meanwhile: what takes long to make is made once."""
    import fcntl

    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / name
    folder.mkdir(exist_ok=True)
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def wait_for_compilation() -> None:
    """Wait until what earlier tests loaded is compiled well: it would replace what this test loads, for another host or cache."""
    for thread in threading.enumerate():
        if thread.name == "gpuperf-compile":
            thread.join()


def with_fresh_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runtime functions be loaded anew, and forgotten with the test: the addresses of none outlive their library."""
    wait_for_compilation()
    monkeypatch.setattr(runtime_libraries, "_libraries", {})
    monkeypatch.setattr(runtime_libraries, "_unoptimised", {})
    monkeypatch.setattr(runtime_libraries, "_due", {})
    monkeypatch.setattr(jit_launch, "_functions", cache(lambda generation: jit_launch._Functions()))
    monkeypatch.setattr(backend, "improve", lambda *_: None)
