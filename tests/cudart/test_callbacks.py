"""Exceptions of Python where C calls functions of CUDA: those on their way pass, and what a handler of a signal raises is not lost."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys

import pytest

from gpuperf_engine.cudart import boot  # noqa: F401  # it registers the functions
from gpuperf_engine.cudart.build import _UNWINDING, LIBRARIES, names
from gpuperf_engine.cudart.calls import FUNCTIONS

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="needs a C compiler on Linux"
)
CALLS = """
#include <signal.h>
#include <stddef.h>
extern void *PyExc_ValueError;
void PyErr_SetString(void *, const char *);
int {free}(void *), {allocate}(void **, size_t);
int unwinds(void *memory)
{{
    PyErr_SetString(PyExc_ValueError, "from below");
    return {free}(memory);
}}
int is_interrupted(void **memory)
{{
    raise(SIGALRM);
    return {allocate}(memory, 256);
}}
int is_interrupted_where_nothing_is(void)
{{
    raise(SIGALRM);
    return {missing}();
}}
"""
PROGRAM = """
import ctypes, signal

class Interrupt(BaseException):
    pass

def handler(number, frame):
    raise Interrupt

signal.signal(signal.SIGALRM, handler)
cuda = ctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL)
calls = ctypes.PyDLL("./calls.so")
memory = [ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()]
print(*[cuda.{allocate}(ctypes.byref(each), ctypes.c_size_t(256)) for each in memory])
try:
    calls.unwinds(memory[0])
except ValueError as error:
    print(error)
print(cuda.{free}(memory[0]), cuda.{free}(memory[1]))
{interrupted}
print(cuda.{free}(memory[2]))
"""
RUNTIME = {
    "library": "libcudart.so.13",
    "allocate": "cudaMalloc",
    "free": "cudaFree",
    "missing": "cudaImportExternalMemory",
}
DRIVER = {
    "library": "libcuda.so.1",
    "allocate": "cuMemAlloc_v2",
    "free": "cuMemFree_v2",
    "missing": "cuImportExternalMemory",
}


@needs_compiler
@pytest.mark.parametrize(
    ("used", "interrupted", "said"),
    [
        (RUNTIME, "print(calls.is_interrupted(ctypes.byref(memory[0])))", "cudaMalloc"),
        (DRIVER, "print(calls.is_interrupted_where_nothing_is())", "cuImportExternalMemory"),
    ],
    ids=["runtime", "driver"],
)
def test_no_exception_is_lost(tmp_path, used, interrupted, said):
    (tmp_path / "calls.c").write_text(CALLS.format(**used))
    subprocess.run(
        [COMPILER, "-w", "-shared", "-fPIC", "calls.c", "-o", "calls.so"], cwd=tmp_path, check=True
    )
    (tmp_path / "program.py").write_text(PROGRAM.format(interrupted=interrupted, **used))
    command = [sys.executable, "-m", "pytest_gpuperf.cli", "run", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    # what was freed while the exception passed is no memory any more: cudaErrorInvalidValue; then cudaErrorUnknown
    assert (done.stdout, done.returncode) == ("0 0 0\nfrom below\n1 0\n999\n999\n", 0), done.stderr
    assert f"gpuperf: {said} was interrupted by Interrupt: the device is in error\n" in done.stderr
    assert "ignored" not in done.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_unwinding_calls_takes_few_integers(library):
    """It is passed on as six integers, with its result."""
    some = 0
    for name in names(library):
        known = FUNCTIONS.get(name)
        if known is not None and _UNWINDING.fullmatch(name):
            some += 1
            assert known.result is ctypes.c_int
            assert len(known.types) <= 6
            assert not {*known.types} & {ctypes.c_float, ctypes.c_double}
            assert not any(issubclass(each, ctypes.Structure) for each in known.types)
    assert some > 20
