"""Functions of Triton as sources of kernels. Expected values are from torch on the CPU, expected PTX from Triton's own compiler.
Skipped without Triton and torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

TESTS = """
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


CONFIGS = [triton.Config({"BLOCK": 128}), *(triton.Config({"BLOCK": 1024}, num_warps=n) for n in (4, 8))]


@triton.autotune(CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def double(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + at, tl.load(x + at) * 2)
    else:
        tl.store(x + at, tl.load(x + at, at < n) * 2, at < n)


@triton.jit
def shift(a, b):
    b.store([0, 0], a.load([0, 16]) + 1)


@gluon.jit
def copy(x, out, N: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at))


def test_each_kind_of_memory(gpuperf):
    x, y, out = torch.rand(1000), np.arange(1000, dtype=np.float32), gpuperf.zeros(1000, np.float32)
    kernel = gpuperf.kernel(add)
    kernel[lambda given: (triton.cdiv(1000, given["BLOCK"]),)](x, y, out, 1000, BLOCK=256)
    assert np.array_equal(out.numpy(), x.numpy() + y)
    whole = torch.zeros(100)
    kernel[(1,)](x[1:], x[3:], whole[10:], 50, BLOCK=64)
    assert torch.equal(whole[10:60], x[1:51] + x[3:53]) and not whole[60:].any() and not whole[:10].any()
    with pytest.raises(Exception, match="past the end of 'out'"):
        kernel[(1,)](x, x, torch.zeros(64), 100, BLOCK=128)
    fixed = np.zeros(64, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(Exception, match="the kernel wrote to 'out', which is read-only"):
        kernel[(1,)](x, x, fixed, 64, BLOCK=64)
    with pytest.raises(Exception, match="failed to specialize"):
        kernel[(1,)]("text", x, torch.zeros(64), 64, BLOCK=64)
    with pytest.raises(Exception, match="add missing 1 required positional argument: 'n'"):
        kernel[(1,)](x, x, x, BLOCK=64)


def test_one_configuration(gpuperf):
    x = torch.rand(4096)
    expected, kernel = x.clone(), gpuperf.kernel(double)
    for grid, n, given in ((4, 4096, {"BLOCK": 1024, "num_warps": 8}), (32, 4095, {"BLOCK": 128}), (16, 4096, {"BLOCK": 256})):
        profile = kernel[(grid,)](x, n, **given)
        assert profile.block == (32 * given.get("num_warps", 4), 1, 1)
        expected[:n] *= 2
        assert torch.equal(x, expected)
    for given, message in (({}, "none was named"), ({"BLOCK": 1024}, "2 of its 3 fit")):
        with pytest.raises(Exception, match=message):
            kernel[(4,)](x, 4096, **given)


def test_descriptors(gpuperf):
    a, b = torch.arange(64.0 * 64).reshape(64, 64), torch.zeros(32, 32)
    gpuperf.kernel(shift)[(1,)](*(TensorDescriptor.from_tensor(t, [32, 32]) for t in (a, b)))
    assert torch.equal(b, a[:32, 16:48] + 1)


def test_gluon(gpuperf):
    x, out = torch.rand(256).to(torch.bfloat16), torch.zeros(256, dtype=torch.bfloat16)
    gpuperf.kernel(copy)[(1,)](x, out, 256, gl.BlockedLayout([1], [32], [4], [0]))
    assert torch.equal(out, x)


@pytest.mark.gpuperf(targets=["h100-sxm"])
def test_the_ptx_of_triton(gpuperf):
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    attrs = {(at,): [["tt.divisibility", 16]] for at in range(4)}
    source = ASTSource(add, signature, {(4,): 256}, attrs)
    expected = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"debug": False})
    x = torch.rand(1024)
    kernel = gpuperf.kernel(add)
    kernel[(4,)](x, x, torch.empty(1024), 1024, BLOCK=256)
    (case,) = gpuperf._recorder.cases.values()
    assert case.source.text == expected.asm["ptx"]
    by_hand = gpuperf.kernel(expected, name="compiled")
    x, out = (gpuperf.array(t.numpy()) for t in (x, torch.zeros(1024)))
    by_hand[4, 128](x, x, out, np.int32(1024), None, None)
    assert np.array_equal(out.numpy(), 2 * x.numpy())
"""


@pytest.mark.parametrize("targets", ["a100-sxm-80gb", "h100-sxm, b200, rtx-5090"])
def test_functions(tmp_path: Path, targets: str) -> None:
    (tmp_path / "test_functions.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ngpuperf_targets = {targets}\naddopts = -p no:cacheprovider\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--gpuperf", "--gpuperf-update"],
        cwd=tmp_path,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "5 passed" in result.stdout, result.stdout + result.stderr
