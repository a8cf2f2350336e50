"""Triton programs as they are: their own tests pass, and are gated. Skipped without Triton and torch.

The programs check themselves against torch on the CPU; that the kernels are the shipped ones is held against Triton's own compiler
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

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def clip(x, out, flag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if flag > 0:
        tl.store(out + at, tl.maximum(tl.load(x + at), 0.0))
    else:
        tl.store(out + at, -tl.load(x + at))


@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)), 0))


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(left, right))


@triton.jit(debug=True)
def check(x):
    tl.device_assert(tl.load(x) == 1, "x is one")


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)
"""

TESTS = """
import subprocess
import sys

import numpy as np
import pytest
import torch
import triton
from kernels import add, check, clip, product, total, tuned


def test_device():
    target = triton.runtime.driver.active.get_current_target()
    assert (target.backend, target.arch) == ("cuda", 80)
    assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (8, 0)
    assert torch.zeros(2, device="cuda").is_cuda


@pytest.mark.parametrize("n", [100, 1000])
def test_add(n):
    torch.manual_seed(0)
    x, y = torch.rand(n, device="cuda"), torch.rand(n).to("cuda")
    out = torch.empty_like(x)
    compiled = add[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    assert torch.equal(out, x + y)
    assert compiled.n_regs > 0 and compiled.n_spills == 0
    torch.cuda.synchronize()


def test_memory_of_the_host():
    x, out = np.arange(64, dtype=np.float32), torch.from_numpy(np.zeros(64, np.float32))
    add[(1,)](torch.from_numpy(x), torch.from_numpy(x), out, 64, BLOCK=64)
    assert out.tolist() == (2 * x).tolist()


@pytest.mark.parametrize("flag", [1, 0])
def test_clip(flag):
    x = torch.linspace(-1, 1, 128, device="cuda")
    out = torch.empty_like(x)
    clip[(1,)](x, out, flag, BLOCK=128)
    assert torch.equal(out, x.clamp(min=0) if flag else -x)


def test_total():
    x, out = torch.arange(256.0, device="cuda"), torch.zeros(1, device="cuda")
    total[(1,)](x, out, BLOCK=256)
    assert out.item() == 255 * 128


def test_product():
    a, b = (torch.randint(-4, 4, (32, 32), device="cuda").half() for _ in range(2))
    c = torch.empty(32, 32, device="cuda")
    product[(1,)](a, b, c, 32, 32, 32)
    assert torch.equal(c, a.float() @ b.float())


def test_assertions_in_the_words_of_cuda():
    check[(1,)](torch.ones(1, dtype=torch.int32, device="cuda"))
    with pytest.raises(RuntimeError, match="device-side assert triggered") as caught:
        check[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))
    assert "x is one" in str(caught.value)


def test_bounds_of_each_tensor():
    x, out = torch.rand(128, device="cuda"), torch.empty(64, device="cuda")
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered") as caught:
        add[(1,)](x, x, out, 128, BLOCK=128)
    assert "past the end of 'a tensor' (256 bytes" in str(caught.value)


def test_tuned_by_predicted_time():
    x = torch.rand(1 << 14, device="cuda")
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    assert torch.equal(out, 2 * x) and tuned.best_config.kwargs == {"BLOCK": 1024}
    milliseconds = triton.testing.do_bench(lambda: tuned[(16,)](x, out, x.numel()))
    assert 1e-4 < milliseconds < 1


def test_tensors_are_given_back():
    free = torch.cuda.mem_get_info()[0]
    for _ in range(300):
        torch.empty(1 << 16, device="cuda")
    assert torch.cuda.mem_get_info()[0] == free


def test_what_goes_to_a_device_is_a_copy():
    x = torch.ones(64)
    wrapped = torch.as_tensor(x.numpy(), device="cuda")
    for given in (x.to("cuda"), x.cuda(), x.to(device="cuda:0"), x.to(torch.device("cuda", 0)), x.to(0), wrapped):
        add[(1,)](given, given, given, 64, BLOCK=64)
        assert (given == 2).all() and (x == 1).all()
    kept = given.cpu()
    add[(1,)](given, given, given, 64, BLOCK=64)
    assert (kept == 2).all() and (given == 4).all()
    layer = torch.nn.Linear(2, 2).to("cuda")
    leaf = torch.ones(3, requires_grad=True)
    (leaf.cuda() * 2).sum().backward()
    assert layer.weight.is_leaf and layer.weight.requires_grad and leaf.grad.tolist() == [2, 2, 2]


def test_state_of_the_generator():
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    assert torch.cuda.initial_seed() == torch.initial_seed()


def test_a_generator_of_its_own():
    generator = torch.Generator(device="cuda").manual_seed(3)
    same = torch.rand(4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.rand(4, generator=generator, device="cuda"), same)
    assert isinstance(torch.default_generator, torch.Generator)


def test_memory_of_the_host_in_other_types():
    x = np.arange(64, dtype=np.int32)
    out = torch.empty(64, dtype=torch.int32, device="cuda")
    given = triton.reinterpret(torch.from_numpy(x), triton.language.uint32)
    add[(1,)](given, given, out, 64, BLOCK=64)
    assert out.tolist() == (2 * x).tolist()


def test_machine_code_on_demand():
    x = torch.rand(100, device="cuda")
    compiled = add[(1,)](x, x, torch.empty_like(x), 100, BLOCK=128)
    assert compiled.asm["cubin"].startswith(b"\\x7fELF")
    assert "FADD" in compiled.asm["sass"] and ".target sm_80" in compiled.asm["ptx"]


def test_a_kernel_given_as_ir(tmp_path):
    x, out = torch.arange(256.0, device="cuda"), torch.zeros(1, device="cuda")
    (tmp_path / "total.ttir").write_text(total[(1,)](x, out, BLOCK=256).asm["ttir"])
    triton.compile(str(tmp_path / "total.ttir"))[(1, 1, 1)](x + 1, out)
    assert out.item() == 256 * 257 / 2


def test_a_process_of_its_own():
    program = "import triton; print(triton.runtime.driver.active.get_current_target().arch)"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"80\\n"
"""

TWICE = """
import torch
from kernels import add


def test_twice():
    x, out = torch.rand(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    for _ in range(TIMES):
        add[(4096,)](x, x, out, 1 << 20, BLOCK=256)
    out.zero_()
    add[(4096,)](x, x, out, 1 << 20, BLOCK=256)
"""
SHIPPED = """
import triton
from kernels import add
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
aligned = {(at,): [["tt.divisibility", 16]] for at in range(3)}
source = ASTSource(fn=add, signature=types, constexprs={(4,): 256}, attrs=aligned)
print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"])
"""
FAILS = """
import torch
from kernels import add


def launch(out):
    x = torch.rand(64, device="cuda")
    add[(1,)](x, x, out, 64, BLOCK=64)


def test_bounds():
    launch(torch.empty(32, device="cuda"))


def test_budget():
    try:
        launch(torch.empty(64, device="cuda"))
    except RuntimeError:
        pass
"""
USED = """
import torch
from kernels import add

x = torch.rand(100, device="cuda")
print(add[(1,)](x, x, torch.empty_like(x), 100, BLOCK=256).asm["ptx"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = a100-sxm-80gb\naddopts = --gpuperf-triton\n"
    )
    (tmp_path / "shipped.py").write_text(SHIPPED)
    (tmp_path / "used.py").write_text(USED)
    return tmp_path


def run(project: Path, *command: str, code: int = 0) -> str:
    """What a command prints."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        "TRITON_CACHE_DIR": str(project / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_a_suite_passes_unchanged(project: Path) -> None:
    assert "19 passed" in run(project, "pytest", "-q")


def test_every_launch_is_gated(project: Path) -> None:
    select = ("-k", "test_add or test_clip or test_total")
    assert "5 new" in run(project, "pytest", "-q", "--gpuperf-update", *select)
    assert "5 equal" in run(project, "pytest", "-q", "--gpuperf", *select)
    changed = KERNELS.replace(
        "tl.maximum(tl.load(x + at), 0.0)", "tl.maximum(tl.load(x + at), tl.load(x + at) * 0)"
    )
    assert changed != KERNELS
    (project / "kernels.py").write_text(changed)
    text = run(project, "pytest", "-q", "--gpuperf", "--gpuperf-report=report", *select, code=1)
    assert "test_clip[1]" in text and "FAILED test_kernels.py::test_clip[1]" in text
    assert "FAILED test_kernels.py::test_add" not in text
    cases = json.loads((project / "report" / "gpuperf.json").read_text())["cases"]
    (case,) = [case for case in cases if case["id"] == "test_clip[1]/clip"]
    assert case["call"] == {
        "path": "test_kernels.py",
        "line": TESTS.splitlines().index("    clip[(1,)](x, out, flag, BLOCK=128)") + 1,
    }


def test_failures_are_shown_at_the_launch(project: Path) -> None:
    (project / "test_kernels.py").write_text(FAILS)
    text = run(project, "pytest", "-q", "--gpuperf", "--gpuperf-budget=1", "-W", "ignore", code=1)
    assert "test_kernels.py:8: KernelError" in text and "test_kernels.py:8: OverBudget" in text
    assert "most by add" in text and "runtime/jit.py" not in text and "direct cause" not in text
    assert "runtime/jit.py" in run(project, "pytest", "-q", "--full-trace", "-k", "bounds", code=1)


def test_values_of_tensors_are_judged(project: Path) -> None:
    (project / "pytest.ini").write_text(
        (project / "pytest.ini").read_text() + "gpuperf_program_values = objects\n"
    )
    test, select = project / "test_kernels.py", ("--gpuperf-report=report",)
    test.write_text(TWICE.replace("TIMES", "1"))
    assert "2 new" in run(project, "pytest", "-q", "--gpuperf-update", *select)
    test.write_text(TWICE.replace("TIMES", "2"))
    text = run(project, "pytest", "-q", "--gpuperf", *select, code=1)
    # by its parameter; what torch writes between two launches is no store of the kernel
    assert "the launch of 'add' writes 1,048,576 elements of 'out'; 1,048,576 (100.0 %) already held" in text
    (case,) = [
        case
        for case in json.loads((project / "report" / "gpuperf.json").read_text())["cases"]
        if case["detail"]["findings"]
    ]
    assert [row["rule"] for row in case["detail"]["findings"] if row["severity"] == "fail"] == [
        "redundant-values"
    ]
    assert "launch add (2 times)" in run(project, "pytest_gpuperf.cli", "flow", "report/gpuperf.json")


def test_the_kernel_is_the_shipped_one(project: Path) -> None:
    (project / "pytest.ini").unlink()
    shipped = run(project, "shipped")
    used = run(
        project,
        "pytest_gpuperf.cli",
        "run",
        "--triton",
        "--target",
        "a100-sxm-80gb",
        "--",
        sys.executable,
        "used.py",
    )
    assert ".visible .entry add(" in used
    assert used == shipped
