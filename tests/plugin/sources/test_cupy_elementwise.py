"""CuPy's ``ElementwiseKernel`` without a GPU, held against NumPy and against what CuPy itself compiles and launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gpuperf_engine import Device
from gpuperf_engine.errors import EngineError, LaunchError
from pytest_gpuperf.cupy.memory import MovedArrays
from pytest_gpuperf.sources import cupy_elementwise
from tests.cudart.launches import needs_compiler

#: runs each case once as CuPy does, on our libraries of CUDA, and once without; prints the differences
BOTH = """
import json, sys
import numpy as np
from pytest_gpuperf.programs import cuda
cuda.switch_on("a100-sxm-80gb")
import cupy
from cupy.cuda import compiler
from gpuperf_engine import Device
from pytest_gpuperf.cupy.elementwise import prepare
from pytest_gpuperf.cupy.memory import ArrayStructure, MovedArrays
from pytest_gpuperf.sources.cupy_raw import options

texts, launches = [], []
compile_now, launch = compiler._compile_using_nvrtc_no_warning, cuda.CudaDevice._launch
def compiling(source, given, arch, *rest):
    texts.append((source, list(given), arch))
    return compile_now(source, given, arch, *rest)
def launching(self, kernel, grid, block, parameters, **shape):
    launches.append((kernel.name, tuple(grid), tuple(block), bytes(parameters)))
    return launch(self, kernel, grid, block, parameters, **shape)
compiler._compile_using_nvrtc_no_warning = compiling
cuda._device.state.launch = launching.__get__(cuda._device)

def kernel(name, inputs, operation="z = x + y", outputs="T z", **more):
    return cupy.ElementwiseKernel(inputs, outputs, operation, name, **more)

def numbers(xp, *shape, dtype="float32"):
    return xp.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))

def case(made, *arguments, **keywords):
    return made, lambda xp: [
        numbers(xp, *given) if isinstance(given, tuple) else given(xp) if callable(given) else given for given in arguments
    ], keywords

def typed(dtype, *shape):
    return lambda xp: numbers(xp, *shape, dtype=dtype)

half, complex_, halves = typed("float16", 9), typed("complex64", 5), lambda xp: numbers(xp, 3, 4, 5, 8)[..., ::2]
CASES = {
    "contiguous": case(kernel("k0", "T x, T y"), (3, 50), (3, 50), (3, 50)),
    "scalar": case(kernel("k1", "T x, T y"), (1000,), 2, (1000,)),
    "numpy scalar": case(kernel("k2", "T x, int32 y"), (7,), np.int16(3), (7,)),
    "half": case(kernel("k3", "T x, T y"), half, half, half),
    "complex": case(kernel("k4", "T x, bool y", "z = y ? x * x : x"), complex_, True, complex_),
    "broadcast": case(kernel("k5", "T x, T y"), (4, 1, 6), (5, 1), (4, 5, 6)),
    "transposed": case(kernel("k6", "T x, T y"), lambda xp: numbers(xp, 6, 4).T, (4, 6), (4, 6)),
    "merged": case(kernel("k7", "T x, T y"), halves, (3, 4, 5, 4), (3, 4, 5, 4)),
    "partly merged": case(kernel("k8", "T x, T y"), lambda xp: numbers(xp, 2, 3, 4, 5).transpose(2, 3, 0, 1), 1, (4, 5, 2, 3)),
    "ones": case(kernel("k9", "T x, T y"), lambda xp: numbers(xp, 3, 1, 4, 1).transpose(2, 1, 0, 3), 1, (4, 1, 3, 1)),
    "backwards": case(kernel("k10", "T x, T y"), lambda xp: numbers(xp, 40)[::-3], 1, (14,)),
    "not reduced": case(kernel("k11", "T x, T y", reduce_dims=False), (3, 4, 5), (3, 4, 5), (3, 4, 5)),
    "no axes": case(kernel("k12", "T x, T y"), (), 1, ()),
    "raw": case(kernel("k13", "raw T x, int32 y", "z = x[y - 1 - i]"), lambda xp: numbers(xp, 4, 5).T, 20, (20,), block_size=16),
    "size": case(kernel("k14", "raw T x, int64 y", "z[i] = x[i] * y", "raw T z"), (300,), 5, (300,), size=257),
    "parts": case(
        kernel("k15", "T x, T y", "z = twice(x) * f + y; s = z", "T z, float64 s", loop_prep="const float f = N", options=("-DN=3",),
               preamble="__device__ float twice(float v) { return 2 * v; }", after_loop="__syncthreads()"),
        (33,), (33,), (33,), typed("float64", 33),
    ),
    "nothing to read": case(kernel("k16", "", "z = i"), lambda xp: numbers(xp, 2, 3, 8)[..., ::2]),
}

def padded(arguments):
    given = b""
    for argument in arguments:
        array = isinstance(argument, ArrayStructure)
        given += bytes(-len(given) % min(8, len(argument))) + (bytes(8) + argument[8:] if array else argument)
        if array:
            starts.append(len(given) - len(argument))
    return given

seen = {}
for name, (made, arguments, keywords) in CASES.items():
    given = arguments(np)
    device = Device()
    ours = prepare(made, given, keywords, MovedArrays(lambda host, name, contents: device.array(host, name=name)))
    texts.clear(), launches.clear()
    moved = arguments(cupy)
    launches.clear(), texts.clear()
    made(*moved, **keywords)
    [(entry, grid, block, parameters)] = [found for found in launches if found[0] == made.name]
    [(text, flags, arch)] = [found for found in texts if f" {made.name}(" in found[0]]
    starts = []
    expected = padded(ours.arguments)
    for start in starts:
        parameters = parameters[:start] + bytes(8) + parameters[start + 8:]
    # what the kernel sets first: CuPy gives what is there
    unset = (len(ours.arguments[-1]) - 8) // 2
    parameters, expected = parameters[:len(expected) - unset], expected[:len(expected) - unset]
    seen[name] = {
        "text": text == ours.text, "options": flags == options(made.kwargs.get("options", ())), "arch": arch,
        "grid": grid == (ours.blocks, 1, 1), "block": block == (ours.threads, 1, 1),
        "parameters": parameters == expected or [parameters.hex(), expected.hex()],
    }
print(json.dumps(seen))
"""

TESTS = """
import cupy, numpy as np

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
    done = run("-c", BOTH)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    equal = {"text": True, "options": True, "arch": "80", "grid": True, "block": True, "parameters": True}
    assert len(seen) == 17
    assert {name: case for name, case in seen.items() if case != equal} == {}


def test_kernels_of_tests(tmp_path) -> None:
    pytest.importorskip("cupy")
    (tmp_path / "test_it.py").write_text(TESTS)
    command = (
        "-m",
        "pytest",
        "-q",
        str(tmp_path),
        "--gpuperf",
        "-o",
        "gpuperf_targets=a100-sxm-80gb, h100-sxm",
    )
    done = run(*command, "--gpuperf-update")
    assert "5 passed" in done.stdout and done.returncode == 0, done.stdout
    baseline = (tmp_path / "baselines" / "test_it.yaml").read_text()
    assert all(f"test_add/add@{arch}:" in baseline for arch in ("sm_80", "sm_90")), baseline
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
        assert prepare(kernel, arguments, keywords, moved) is not None
        return
    with pytest.raises(LaunchError, match=message):
        prepare(kernel, arguments, keywords, moved)


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

    ask = cupy_elementwise.pytest_gpuperf_ptx_source
    assert ask("k.ptx", "") is None and ask(like("RawKernel"), "") is None
    with pytest.raises(EngineError, match="CUDA C\\+\\+ of a ReductionKernel only at launch"):
        ask(like("ReductionKernel"), "")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="13.6.0"))
    with pytest.raises(EngineError, match=r"of CuPy 13\.6\.0 cannot be compiled without a launch"):
        ask(like("ElementwiseKernel"), "")
