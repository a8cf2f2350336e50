"""Numba programs as they are, and functions of ``@cuda.jit`` as kernels. Skipped without numba-cuda.

The programs check themselves against NumPy; that the kernels are the shipped ones is held against numba-cuda's compiler and nvJitLink
in a process without the driver.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="needs numba-cuda")

KERNELS = """
from numba import cuda, float32


@cuda.jit
def add(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] += x[i]


@cuda.jit
def copied(x, y):
    i = cuda.grid(1)
    y[i] = x[i]


@cuda.jit
def reverse(x):
    kept = cuda.shared.array(0, dtype=float32)
    i = cuda.threadIdx.x
    kept[i] = x[i]
    cuda.syncthreads()
    x[i] = kept[x.size - 1 - i]


@cuda.jit
def whole_grid(x):
    i = cuda.grid(1)
    x[i] = i
    cuda.cg.this_grid().sync()
    kept = x[x.size - 1 - i]
    cuda.cg.this_grid().sync()
    x[i] = kept


@cuda.jit
def count(x):
    cuda.atomic.add(x, cuda.threadIdx.x % 2, 1)


@cuda.jit(debug=True, opt=False)
def checked(x):
    if x[0] == 0:
        raise ValueError("x is zero")
    x[1] = 1 // x[2]


@cuda.jit
def many(x, flag, z, pair, half, record):
    i = cuda.grid(1)
    if flag:
        x[i, 1] = z.real + z.imag * pair[0] + pair[1][i] + half + record.a
        record.b = 7
"""
VALUES = """
import numpy as np
from numba import cuda
from kernels import copied


def test_values():
    x = np.random.default_rng(1).random(65536, np.float32)
    d_y = MADE
    copied[256, 256](x, d_y)
    assert (d_y.copy_to_host() == x).all()
"""
DRIVER = """
import numpy as np
import pytest
from numba import cuda, vectorize
from kernels import add, checked, count, reverse, whole_grid


def test_device():
    assert cuda.is_available() and cuda.get_current_device().compute_capability == (8, 0)
    assert cuda.get_current_device().MULTIPROCESSOR_COUNT == 108


def test_contexts_made_elsewhere():
    from numba.cuda.cudadrv import driver

    device = driver.binding.CUdevice(0)
    primary = driver.driver.cuDevicePrimaryCtxRetain(device)
    assert int(cuda.current_context().handle) == int(primary)
    parameters = [None] * (driver.binding.CUDA_VERSION >= 13000)  # since then there are some, before the flags
    new = driver.driver.cuCtxCreate(*parameters, 0, device)
    try:
        with pytest.raises(RuntimeError, match="non-primary CUDA context"):
            cuda.current_context()
    finally:
        driver.driver.cuCtxDestroy(new)
    assert int(cuda.current_context().handle) == int(primary)
    driver.driver.cuDevicePrimaryCtxRelease(device)


def test_arrays():
    x = np.arange(100, dtype=np.float32)
    y = x.copy()
    add[4, 32](x, y, 100)
    assert (y == 2 * x).all()
    stream = cuda.stream()
    on_device, result = cuda.to_device(x, stream), cuda.device_array_like(x)
    result.copy_to_device(x)
    add[4, 32, stream](on_device, result, 100)
    stream.synchronize()
    assert (result.copy_to_host() == 2 * x).all()


def test_shared_memory_and_events():
    x = np.arange(64, dtype=np.float32)
    start, end = cuda.event(), cuda.event()
    start.record()
    reverse[1, 64, 0, 256](x)
    end.record()
    end.synchronize()
    assert (x == np.arange(64)[::-1]).all() and 0 < cuda.event_elapsed_time(start, end) < 1


def test_grid_and_atomics():
    x, counts = np.zeros(128, np.int32), np.zeros(2, np.int32)
    whole_grid[4, 32](x)
    count[3, 32](counts)
    assert (x == np.arange(128)[::-1]).all() and counts.tolist() == [48, 48]


def test_exceptions_of_kernels():
    with pytest.raises(ValueError, match="x is zero"):
        checked[1, 1](np.zeros(3, np.int32))
    with pytest.raises(ZeroDivisionError):
        checked[1, 1](np.array([1, 0, 0]))


def test_bounds():
    x = np.zeros(16, np.float32)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        add[1, 32](x, x, 32)
    assert "past the end of 'a device array' (64 bytes" in str(caught.value)
    with pytest.raises(ValueError, match="not contiguous"):
        reverse[1, 8, 0, 64](x[::2])


def test_memory_of_the_host():
    for make in (cuda.mapped_array, cuda.managed_array):
        x = make(32, np.float32)
        x[:] = 1
        add[1, 32](x, x, 32)
        assert (x == 2).all()
    del x
    cuda.current_context().memory_manager.deallocations.clear()
    free = cuda.current_context().get_memory_info().free
    for _ in range(50):
        cuda.device_array(1 << 20, np.uint8)
    cuda.current_context().memory_manager.deallocations.clear()
    assert cuda.current_context().get_memory_info().free == free


def test_reductions_and_ufuncs():
    assert cuda.reduce(lambda a, b: a + b)(np.arange(1000.0)) == 999 * 500

    @vectorize(["float32(float32, float32)"], target="cuda")
    def product(a, b):
        return a * b

    x = np.arange(8, dtype=np.float32)
    assert (product(x, x) == x * x).all()
"""
FIXTURE = """
import numpy as np
from kernels import add, many, reverse, whole_grid


def test_add(gpuperf):
    x = np.arange(64, dtype=np.float32)
    y = x.copy()
    kernel = gpuperf.kernel(add)
    profile = kernel[2, 32](x, y, 64)
    assert (y == 2 * x).all() and profile.grid == (2, 1, 1)
    on_device = gpuperf.zeros(64, np.float32)
    kernel[2, 32](gpuperf.array(x), on_device, 64)
    assert (on_device.numpy() == x).all()
    gpuperf.check(add, grid=2, block=32, args=(x, y, np.int32(64)))
    assert (y == 3 * x).all()


def test_kinds_of_arguments(gpuperf):
    x = np.zeros((8, 4), np.float32)
    record = np.array([(1, 2)], np.dtype([("a", "i4"), ("b", "f8")], align=True))[0]
    gpuperf.kernel(many)[1, 8](x[:, ::2], True, 1 + 2j, (3.0, np.arange(8)), np.float16(0.5), record)
    assert x[:, 2].tolist() == [8.5 + i for i in range(8)] and not x[:, [0, 1, 3]].any() and record["b"] == 7


def test_shapes(gpuperf):
    x = np.arange(64, dtype=np.float32)
    gpuperf.kernel(reverse)[1, 64, 0, 256](x)
    assert (x == np.arange(64)[::-1]).all()
    x = np.zeros(128, np.int32)
    gpuperf.kernel(whole_grid)[4, 32](x)
    assert (x == np.arange(128)[::-1]).all()
"""
SHIPPED = """
from types import SimpleNamespace
import numba.cuda.codegen as codegen
import numba.cuda.dispatcher as dispatcher
from numba.cuda import types
from kernels import add

device = SimpleNamespace(compute_capability=(8, 0), id=0)
dispatcher.get_current_device = lambda: device
codegen.devices = SimpleNamespace(get_context=lambda: SimpleNamespace(device=device))
array = types.Array(types.float32, 1, "C")
kernel = dispatcher._Kernel(add.py_func, (array, array, types.int64), **add.targetoptions)
print(kernel.inspect_lto_ptx((8, 0, "")).strip(chr(0)))
"""
USED = """
import sys
from numba import cuda
import numpy as np
from pytest_gpuperf.numba.activation import switch_on

switch_on("a100-sxm-80gb", lines=sys.argv[1] == "lines", races="off")
from kernels import add

x = np.zeros(4, np.float32)
add[1, 32](x, x, 4)
(kernel,) = add.overloads.values()
print(bytes(kernel.library.get_cubin().code).decode())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "shipped.py").write_text(SHIPPED)
    (tmp_path / "used.py").write_text(USED)
    return tmp_path


def run(project: Path, *command: str, code: int = 0) -> str:
    result = subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env={**os.environ, "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_a_suite_passes_and_is_gated(project: Path) -> None:
    (project / "test_kernels.py").write_text(DRIVER)
    (project / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = a100-sxm-80gb\naddopts = --gpuperf-numba\n"
    )
    assert "9 passed" in run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gpuperf", "--gpuperf-update")
    again = ["--gpuperf", "--gpuperf-report=out"]
    run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *again)
    cases = json.loads((project / "out" / "gpuperf.json").read_text())["cases"]
    names = [case["id"] for case in cases]
    assert names[:2] == ["test_arrays/add", "test_arrays/add#2"]
    assert {case["verdict"] for case in cases} == {"ok"}


def test_values_of_arrays_are_judged(project: Path) -> None:
    (project / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = a100-sxm-80gb\naddopts = --gpuperf-numba\ngpuperf_program_values = objects\n"
    )
    for file in project.glob("test_*.py"):
        file.unlink()
    test, options = project / "test_values.py", ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--gpuperf")
    test.write_text(VALUES.replace("MADE", "cuda.device_array(65536, np.float32)"))
    run(project, *options, "--gpuperf-update")
    test.write_text(VALUES.replace("MADE", "cuda.to_device(np.zeros(65536, np.float32))"))
    text = run(project, *options, code=1)
    # the kernel overwrites the zeros that are copied
    assert (
        "new finding: dead-stores | d_y = cuda.to_device(np.zeros(65536, np.float32)) in test_values" in text
    )
    # by the parameter of the kernel
    assert "accept={'dead-stores:y':" in text


def test_processes_that_a_test_starts_find_the_gpu(project: Path) -> None:
    """And what another sitecustomize does is done in them too."""
    (project / "sitecustomize.py").write_text("hidden = True\n")
    (project / "child.py").write_text(
        "from numba import cuda\nimport numpy as np, sitecustomize\nfrom kernels import add\n"
        "x = np.ones(32, np.float32)\nadd[1, 32](x, x, 32)\n"
        "print(tuple(cuda.get_current_device().compute_capability), x.sum())\n"
    )
    (project / "test_child.py").write_text(
        "import multiprocessing, subprocess, sys\n\n\n"
        "def work(queue):\n    from numba import cuda\n    queue.put(cuda.is_available())\n\n\n"
        "def test_child():\n"
        "    done = subprocess.run([sys.executable, 'child.py'], capture_output=True, text=True)\n"
        "    assert done.stdout == '(8, 0) 64.0\\n', done.stderr\n\n\n"
        "def test_spawned():\n"
        "    context = multiprocessing.get_context('spawn')\n    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n    process.start()\n"
        "    assert queue.get(timeout=60)\n    process.join()\n"
    )
    (project / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = a100-sxm-80gb\naddopts = --gpuperf-numba\n"
    )
    assert "2 passed" in run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_child.py")


def test_processes_share_memory(project: Path) -> None:
    """By the bytes of a handle: Numba pickles those of older versions of cuda.bindings alone."""
    (project / "test_shared.py").write_text(
        "import ctypes, multiprocessing\nimport numpy as np\nfrom numba import cuda\n"
        "from numba.cuda.cudadrv.driver import IpcHandle, binding\nfrom kernels import add\n\n\n"
        "def work(data, size):\n"
        "    handle = binding.CUipcMemHandle()\n    ctypes.memmove(handle.getPtr(), data, 64)\n"
        "    opened = IpcHandle(None, handle, size)\n"
        "    x = opened.open_array(cuda.current_context(), 32, np.dtype('f4'), (4,))\n"
        "    assert x.copy_to_host().sum() == 96\n    add[1, 32](x, x, 32)\n    opened.close()\n\n\n"
        "def test_shared():\n"
        "    x = cuda.to_device(np.full(32, 3, np.float32))\n"
        "    shared = cuda.current_context().get_ipc_handle(x.gpu_data)\n"
        "    data = ctypes.string_at(shared.handle.getPtr(), 64)\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work, args=(data, shared.size))\n"
        "    process.start()\n    process.join()\n    assert process.exitcode == 0\n"
        "    assert x.copy_to_host().tolist() == [6] * 32\n"
    )
    (project / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = a100-sxm-80gb\naddopts = --gpuperf-numba\n"
    )
    assert "1 passed" in run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shared.py")


def test_functions_as_kernels(project: Path) -> None:
    (project / "test_kernels.py").write_text(FIXTURE)
    (project / "pytest.ini").write_text("[pytest]\ngpuperf_targets = a100-sxm-80gb\n")
    run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gpuperf", "--gpuperf-update")
    text = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gpuperf")
    assert "3 passed" in text and "5 equal" in text


def test_the_kernel_is_the_shipped_one(project: Path) -> None:
    """Lines are added with the gate, and nothing else."""
    shipped = run(project, "shipped.py")
    assert run(project, "used.py", "plain") == shipped
    with_lines = run(project, "used.py", "lines")
    code, other = (_code(text) for text in (shipped, with_lines))
    assert code == other and ".loc" in with_lines and ".loc" not in shipped


def _code(text: str) -> list[str]:
    """Instructions, without names: those of Numba have the options in them."""
    body = text[text.index("\n{") :].splitlines()
    words = (line.split()[0] for line in body if line.strip() and "_param_" not in line)
    return [word for word in words if word[0] not in "./{}" or word.startswith(".reg")]
