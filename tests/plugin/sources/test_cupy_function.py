"""CuPy's functions that are called, without a GPU, held against NumPy and against what CuPy itself compiles and launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpuperf_engine import Device
from gpuperf_engine.errors import EngineError, LaunchError
from pytest_gpuperf.cupy.memory import MovedArrays
from pytest_gpuperf.sources import cupy_function
from tests.cudart.launches import needs_compiler

TESTS = """
import cupy, numpy as np
from cupyx import jit

add = cupy.ElementwiseKernel("T x, T y, float32 s", "T z", "z = x + y * s", "add")
mirror = cupy.ElementwiseKernel("raw T x, int32 n", "T z", "z = x[n - 1 - i]", "mirror")
grow = cupy.ElementwiseKernel("T x", "T y", "y += x", "grow")

def test_add(gpuperf):
    x, y = np.arange(1000, dtype=np.float32).reshape(10, 100), np.arange(100, dtype=np.float32)
    z = np.empty_like(x)
    profile = gpuperf.kernel(add)(x, y, 2, z)
    assert (profile.grid, profile.block) == ((8, 1, 1), (128, 1, 1))
    np.testing.assert_array_equal(z, x + y * 2)

def test_strides(gpuperf):
    base, z = np.arange(192.0).reshape(2, 3, 8, 4), np.zeros((4, 8, 3, 2))
    x, y = base.T[:, ::-2], base[:1].T[:, ::2]
    gpuperf.kernel(add)(x, y, 2, z[:, ::2])
    np.testing.assert_array_equal(z[:, ::2], x + y * 2)
    assert not z[:, 1::2].any()

def test_arrays_of_gpuperf(gpuperf):
    x, z = gpuperf.array(np.arange(300, dtype=np.int16)), np.empty(300, np.int16)
    gpuperf.kernel(mirror)(x, 300, z, block_size=64)
    assert z.tolist() == list(range(300))[::-1]

def test_overlapping(gpuperf):
    x = np.arange(64)
    gpuperf.kernel(grow)(x[:32], x[32:])
    gpuperf.kernel(grow)(x[:32], x[:32])
    assert x.tolist() == [2 * i for i in range(32)] + [2 * i - 32 for i in range(32, 64)]

norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norms")
dots = cupy.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "dots")

def test_reductions(gpuperf):
    x, y = np.arange(3000, dtype=np.float64).reshape(30, 100), np.empty(())
    first, second = gpuperf.kernel(norm)(x, y)
    assert (first.grid, first.block, second.grid) == ((2, 1, 1), (512, 1, 1), (1, 1, 1))
    assert np.isclose(y, np.sqrt((x * x).sum()))
    z = np.empty(100)
    gpuperf.kernel(dots)(x, x + 1, out=z, axis=0)
    np.testing.assert_allclose(z, (x * (x + 1)).sum(0))
    z = np.zeros((30, 1))
    assert gpuperf.kernel(norm, name="short")(x[:, :40], z, axis=1, keepdims=True).block == (512, 1, 1)
    np.testing.assert_allclose(z[:, 0], np.linalg.norm(x[:, :40], axis=1))
    wide, z = np.asfortranarray(x.reshape(300, 10)), np.empty(10)
    assert gpuperf.kernel(norm)(wide, z, axis=0).grid == (10, 1, 1)
    np.testing.assert_allclose(z, np.linalg.norm(wide, axis=0))

@cupy.fuse
def mixed(x, y):
    return x * y + 1, x - y

@cupy.fuse(kernel_name="total")
def total(x, y):
    return cupy.sum(x * y, axis=1)

def test_fused(gpuperf):
    x, y = np.arange(600, dtype=np.float32).reshape(20, 30), np.float32(3)
    a, b = np.empty_like(x), np.empty_like(x)
    gpuperf.kernel(mixed)(x, y, out=(a, b))
    np.testing.assert_array_equal(a, x * y + 1)
    np.testing.assert_array_equal(b, x - y)
    z = np.empty(20, np.float32)
    gpuperf.kernel(total)(x, x[0], out=z)
    np.testing.assert_allclose(z, (x * x[0]).sum(1))

@jit.rawkernel()
def scaled(x, y, size, scale):
    tid = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    for i in range(tid, size, jit.gridDim.x * jit.blockDim.x):
        y[i] = x[i] * scale

def test_jit(gpuperf):
    x, y = np.arange(1000), np.zeros(1000)
    kernel = gpuperf.kernel(scaled)
    assert kernel[2, 64](x, y, 1000, 2.5).grid == (2, 1, 1)
    np.testing.assert_array_equal(y, x * 2.5)
    kernel((4,), (128,), (x, y, 500, 2.0))
    np.testing.assert_array_equal(y, np.where(x < 500, x * 2.0, x * 2.5))

def test_nothing(gpuperf):
    assert gpuperf.kernel(add)(np.zeros(0), np.zeros(0), 1, np.zeros(0)) is None
    gpuperf.kernel(grow)(np.ones(1), np.ones(1))
"""


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUPY_CACHE_IN_MEMORY": "1"} | variables
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, env=environment
    )


@needs_compiler
def test_as_cupy_compiles_and_launches() -> None:
    pytest.importorskip("cupy")
    done = run(str(Path(__file__).with_name("cupy_as_launched.py")))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    equal = {"text": True, "options": True, "shape": True, "parameters": True}
    two = ("whole", "whole, squared", "whole of Fortran, kept", "mean", "smallest")
    expected = {name: {"number": [2 if name in two else 1] * 3} | equal for name in seen}
    assert len(seen) == 47
    assert {name: case for name, case in seen.items() if case != expected[name]} == {}


def test_kernels_of_tests(tmp_path) -> None:
    cupy = pytest.importorskip("cupy")
    (tmp_path / "test_it.py").write_text(TESTS)
    command = (
        "-m",
        "pytest",
        "-q",
        str(tmp_path),
        f"--rootdir={tmp_path}",
        "--gpuperf",
        "-o",
        "gpuperf_targets=a100-sxm-80gb, h100-sxm",
    )
    done = run(*command, "--gpuperf-update")
    assert "8 passed" in done.stdout and done.returncode == 0, done.stdout
    baseline = (tmp_path / "baselines" / "test_it.yaml").read_text()
    assert all(f"test_add/add@{arch}:" in baseline for arch in ("sm_80", "sm_90")), baseline
    # of another version of either, what has changed is not comparable
    assert baseline.count(f"compiler: cupy {cupy.__version__}, ") == baseline.count("kernel: ")
    cases = (
        "norms_pass1@sm_80",
        "norms_pass2@sm_90",
        "short@sm_80",
        "mixed@sm_80",
        "total@sm_90",
        "scaled@sm_80",
    )
    assert [case for case in cases if f"/{case}:" not in baseline] == []
    # in another process arrays have other addresses of the host
    done = run(*command)
    assert done.returncode == 0 and "changed" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((np.ones(3),), {}, "'add' takes 3 arguments with its outputs, and was given 1"),
        ((np.ones(3), np.ones(4), np.ones(3)), {}, "add: operands could not be broadcast"),
        ((np.ones(1), np.ones(1), np.ones(4)), {}, ""),
        (
            (np.ones(4), np.ones(4), np.ones(1)),
            {},
            r"Out shape is mismatched: \(1,\), and the loop has \(4,\)",
        ),
        ((np.ones(3), np.ones(3, np.float32), np.ones(3)), {}, "Type is mismatched"),
        ((np.ones(3), "a", np.ones(3)), {}, "'y' of 'add': Unsupported type"),
        ((np.ones(3), 1j, np.ones(3)), {}, "add: float"),
        ((np.ones(3), 1, 4), {}, "output 'z' of 'add' is a int"),
        ((1, 1, np.ones(3)), {"size": 3}, "'size' can be used only"),
        ((np.ones(3), 1, np.ones(3)), {"block_size": 0}, "block_size=0 of 'add'"),
        ((np.ones(3), 1, np.ones(3)), {"out": 1}, "'add' takes no 'out'"),
    ],
)
def test_arguments_that_do_not_fit(arguments, keywords, message) -> None:
    cupy = pytest.importorskip("cupy")
    from pytest_gpuperf.cupy.elementwise import prepare

    device = Device()
    moved = MovedArrays(lambda host, name, contents: device.array(host, name=name))
    kernel = cupy.ElementwiseKernel("T x, T y", "T z", "z = x + y", "add")
    if not message:
        assert prepare(kernel, arguments, keywords, moved)
        return
    with pytest.raises(LaunchError, match=message):
        prepare(kernel, arguments, keywords, moved)


def moved_arrays() -> MovedArrays:
    device = Device()
    return MovedArrays(lambda host, name, contents: device.array(host, name=name))


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((np.ones(3),), {}, "'add' takes 2 arguments with its outputs, and was given 1"),
        ((np.ones(3), np.ones(3)), {}, r"Out shape is mismatched: \(3,\), and the results have \(\)"),
        ((np.ones((3, 4)), np.ones(3)), {"axis": 2}, "add: axis=2 of 2 axes: .* out of bounds"),
        ((np.ones((3, 4)), np.ones(3)), {"axis": (1, 1)}, r"add: axis=\(1, 1\) of 2 axes: duplicate"),
        ((np.ones(3), np.ones((), np.float32)), {}, "Type is mismatched"),
        ((2, np.ones(())), {}, "Loop size is undecided"),
        ((np.ones(3), 4), {}, "output 'y' of 'add' is a int"),
        ((np.ones((0, 3)), np.ones(3)), {"axis": 0}, "zero-size array to reduction operation add"),
        ((np.ones(3),), {"dtype": "f4"}, "'add' takes no 'dtype'"),
        (
            (np.ones((2, 3, 500)).T, np.ones((3, 2))),
            {"axis": 0},
            "results in that order, whatever the output's is",
        ),
        ((np.ones((2, 0)), np.ones(0)), {"axis": 0}, ""),
    ],
)
def test_reductions_that_do_not_fit(arguments, keywords, message) -> None:
    cupy = pytest.importorskip("cupy")
    from pytest_gpuperf.cupy.reduction import prepare

    kernel = cupy.ReductionKernel("T x", "T y", "x", "min(a, b)", "y = a", None, "add")
    if not message:
        assert prepare(kernel, arguments, keywords, moved_arrays()) == []
        return
    with pytest.raises(LaunchError, match=message):
        prepare(kernel, arguments, keywords, moved_arrays())


def test_fused_functions_that_do_not_fit() -> None:
    cupy = pytest.importorskip("cupy")
    from pytest_gpuperf.cupy.fused import prepare

    def refused(function, message, *arguments, **keywords) -> None:
        with pytest.raises(LaunchError, match=message):
            prepare(cupy.fuse(kernel_name="f")(function), arguments, keywords, moved_arrays())

    x = np.ones(4)
    refused(lambda x: x + 1, "'f' returns 1 array, and was given 0 as out", x)
    refused(lambda x: x + 1, "'f' returns 1 array, and was given 0 as out", x, out=None)
    refused(lambda x: x + 1, "'f' returns 1 array, and was given 2 as out", x, out=(x, x))
    refused(lambda x: x + 1, "dtype object has no device", np.array([None]), out=x)
    refused(lambda x: x + 1, "was given no array", 3, out=x)
    refused(lambda x: x + 1, "argument 0 of 'f' is a str", "x", out=x)
    refused(lambda x: x / cupy.sum(x), "not write one elementwise or reduction kernel", x, out=x)
    refused(lambda x: x + 1, "takes no 'axis'", x, axis=1, out=x)


@pytest.mark.filterwarnings("ignore:cupyx.jit.rawkernel is experimental")
def test_jit_functions_that_do_not_fit() -> None:
    pytest.importorskip("cupy")
    from cupyx import jit

    from pytest_gpuperf.cupy.jit import prepare

    @jit.rawkernel()
    def twice(x, n):
        if jit.threadIdx.x < n:
            x[jit.threadIdx.x] *= 2

    def refused(message, shape, *arguments, **keywords) -> None:
        with pytest.raises(LaunchError, match=message):
            prepare(twice, shape, arguments, keywords, moved_arrays())

    x = np.ones(4)
    assert len(prepare(twice, (1, (4, 1)), (x, 4), {}, moved_arrays())) == 1
    refused("argument 1 of 'twice': n is not scalar", (1, 4), x, "n")
    refused("argument 1 of 'twice' is a NoneType", (1, 4), x, None)
    refused("argument 1 of 'twice': .*too large", (1, 4), x, 1 << 70)
    refused("dtype object has no device", (1, 4), np.array([None]), 1)
    refused("does not compile 'twice': .*takes 2 positional", (1, 4), x)
    refused("'twice' takes no 'shared'", (1, 4), x, 4, shared=4)
    refused("shared_mem=-1 of 'twice'", (1, 4), x, 4, shared_mem=-1)
    refused(r"\(1, 0\) as a grid or block of 'twice'", ((1, 0), 4), x, 4)


def test_structures_that_cupy_asks_a_gpu_about(monkeypatch) -> None:
    cupy = pytest.importorskip("cupy")
    from pytest_gpuperf.cupy import elementwise

    def asks(*parts: object) -> None:
        raise elementwise.CUDARuntimeError(100)

    monkeypatch.setattr(elementwise._kernel, "_get_elementwise_kernel_code", asks)
    device = Device()
    moved = MovedArrays(lambda host, name, contents: device.array(host, name=name))
    kernel = cupy.ElementwiseKernel("T x", "T y", "y = x", "copy")
    with pytest.raises(LaunchError, match="'copy' has structures, and CuPy asks a GPU"):
        elementwise.prepare(kernel, (np.ones(3), np.ones(3)), {}, moved)


def test_arrays_that_overlap_on_the_host_do_on_the_device() -> None:
    device = Device()
    moved = MovedArrays(lambda host, name, contents: device.array(host, name=name))
    x, alone = np.arange(12, dtype=np.int32), np.zeros(3)
    parts = {"a": x[8::-2], "alone": alone, "b": x[2:4]}
    moved.take(list(parts.items()))
    (first, start), (other, _), (second, offset) = map(moved.place, parts.values())
    assert first is second and (start, offset) == (32, 8) and first.shape == (9,)
    assert (first.name, other.name) == ("a", "alone") and device.arrays.index(first) == 0
    device.copy(first, np.arange(9, dtype=np.int32) + 50)
    moved.write_back()
    assert x.tolist() == [50, 51, 52, 53, 54, 55, 56, 57, 58, 9, 10, 11]


def test_memory_that_may_not_be_written() -> None:
    device = Device()
    moved = MovedArrays(lambda host, name, contents: device.array(host, name=name))
    x = np.zeros(4)
    x.flags.writeable = False
    moved.take([("x", x)])
    moved.write_back()
    device.memset(moved.place(x)[0], 1.0)
    with pytest.raises(LaunchError, match="the kernel wrote to 'x', which is read-only"):
        moved.write_back()


def test_what_else_there_is(monkeypatch) -> None:
    def like(kind: str) -> object:
        return type(kind, (), {"__module__": "cupy._core._kernel"})()

    ask = cupy_function.pytest_gpuperf_ptx_source
    assert ask("k.ptx", "") is None and ask(like("RawKernel"), "") is None
    with pytest.raises(EngineError, match="CUDA C\\+\\+ of a ufunc only at launch"):
        ask(like("ufunc"), "")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="13.6.0"))
    with pytest.raises(
        EngineError, match=r"an ElementwiseKernel of CuPy 13\.6\.0 cannot be compiled without a launch"
    ):
        ask(like("ElementwiseKernel"), "")
