"""``--gpuperf-cuda``: tests that call CUDA in their own process, here the driver API by ``ctypes``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cudart.launches import PTX, WORSE, needs_compiler

#: ``add`` adds a number to the 32 elements of an array. ``kept`` is released when modules are gone.
HOST = """
import ctypes, os
from pathlib import Path

cuda = ctypes.CDLL("libcuda.so.1")

def right(code):
    assert code == 0, code

class Array:
    def __init__(self):
        self.address = ctypes.c_uint64()
        self.fill, self.release, self.write = cuda.cuMemsetD32_v2, cuda.cuMemFree_v2, os.write
        right(cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(128)))
        right(self.fill(self.address, 0, 32))

    def add(self, number, blocks):
        value = ctypes.c_uint(number)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self.address), ctypes.addressof(value))
        return cuda.cuLaunchKernel(add, blocks, 1, 1, 32, 1, 1, 0, None, arguments, None)

    def values(self):
        host = (ctypes.c_uint * 32)()
        right(cuda.cuMemcpyDtoH_v2(host, self.address, ctypes.c_size_t(128)))
        return list(host)

    def __del__(self):
        self.write(1, b"fill %d, release %d\\n" % (self.fill(self.address, 0, 32), self.release(self.address)))

add = ctypes.c_void_p()
right(cuda.cuInit(0))
right(cuda.cuModuleLoadData(ctypes.byref(add), Path("k.ptx").read_bytes()))
right(cuda.cuModuleGetFunction(ctypes.byref(add), add, b"add"))
kept = Array()

def test_out_of_bounds():
    array = Array()
    right(array.add(1, blocks=1000))
    assert cuda.cuCtxSynchronize() == 700

def test_add():
    right(kept.add(2, blocks=1))
    right(kept.add(3, blocks=1))
    assert kept.values() == [5] * 32
"""
LINE = next(number for number, line in enumerate(HOST.splitlines(), 1) if "cuLaunchKernel" in line)


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)


@needs_compiler
def test_tests_that_call_cuda_are_gated(tmp_path: Path) -> None:
    (tmp_path / "test_host.py").write_text(HOST)
    (tmp_path / "k.ptx").write_text(PTX)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-cuda\ngpuperf_targets = a100-sxm-80gb\n"
    )
    done = run(tmp_path, "--gpuperf", "--gpuperf-update")
    # a kernel that failed leaves nothing to the next test; what Python releases at its end is released (success), and the rest is told
    # that the driver has shut down (CUDA_ERROR_DEINITIALIZED)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "2 passed" in done.stdout and done.stdout.endswith("fill 4, release 0\n")
    (tmp_path / "k.ptx").write_text(WORSE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuperf_targets = a100-sxm-80gb\n")
    done = run(tmp_path, "--gpuperf-cuda", "--gpuperf")
    assert done.returncode == 1
    assert "pytest --gpuperf-cuda --gpuperf --gpuperf-update test_host.py::test_add" in done.stdout
    # 11 instructions of 32 threads, and one more, twice
    assert "thread_instructions 704 → 768 " in " ".join(done.stdout.split())
    assert f"launched at test_host.py:{LINE}" in done.stdout


@needs_compiler
def test_a_target_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuperf_targets = b9000\n")
    done = run(tmp_path, "--gpuperf-cuda")
    assert done.returncode == 4
    assert "gpuperf_targets" in done.stderr and "b9000" in done.stderr


def test_where_the_libraries_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "empty"))
    done = run(tmp_path, "--gpuperf-cuda")
    assert done.returncode == 4
    assert done.stderr.startswith("ERROR: --gpuperf-cuda: ") and "set CC to a C compiler" in done.stderr
    assert "Traceback" not in done.stderr


@needs_compiler
@pytest.mark.parametrize("wanted", [None, "cub"])
def test_cub_is_off_where_cupy_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    """As by pytest, where a filter of warnings names a class of it."""
    kinds = ("elementwise", "reduction", "routine")
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text("from . import _core\n")
    (package / "_core.py").write_text(
        "uses = {}\n"
        + "".join(f"def set_{kind}_accelerators(names): uses['{kind}'] = names\n" for kind in kinds)
    )
    uses = {kind: [] for kind in kinds} if wanted is None else {}
    (tmp_path / "test_uses.py").write_text(f"import cupy\ndef test(): assert cupy._core.uses == {uses}\n")
    if wanted is None:
        monkeypatch.delenv("CUPY_ACCELERATORS", raising=False)
    else:
        monkeypatch.setenv("CUPY_ACCELERATORS", wanted)
    code = "import cupy, pytest; raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', '--gpuperf-cuda']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
