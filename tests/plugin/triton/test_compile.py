"""``torch.compile`` under ``--gpuperf-triton``: Inductor's kernels for the declared GPU run here. Skipped without Triton and torch.

The programs hold what was compiled against the same functions of torch on the CPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

SUITE = """
import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


@triton.jit
def thrice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 3, at < n)


def launch(x):
    y = torch.empty_like(x)
    thrice[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 128)
    return y


def random(*shape, **options):
    return torch.randn(*shape, device="cuda", generator=torch.Generator().manual_seed(1), **options)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def same(function, *inputs, **options):
    close(torch.compile(function, fullgraph=True, **options)(*inputs), function(*inputs))


def test_forward_and_backward():
    x, w = random(16, 64).requires_grad_(), random(64, 32).requires_grad_()

    def f(x, w):
        return torch.tanh(F.gelu(x * 2) @ w).square().mean()

    f(x, w).backward()
    expected = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    torch.compile(f, fullgraph=True)(x, w).backward()
    close((x.grad, w.grad), expected)


def test_a_gradient_within():
    f = torch.func.grad(lambda x: x.sin().sum())
    close(torch.compile(f)(random(64)), random(64).cos())


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention():
    # which compiles itself, up to Inductor
    q, k, v = (random(1, 1, 128, 16).mul(scale).requires_grad_() for scale in (1, 2, 3))
    mask = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 128, 128, device="cuda")
    found = flex_attention(q, k, v, block_mask=mask)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(found, expected)
    gradients = [torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (found, expected)]
    close(*gradients)


def test_what_the_compiled_part_creates():
    def f(x):
        rows = torch.tril_indices(4, 4, device="cuda")[0]
        return x + torch.arange(10, device=x.device) + torch.ones(10, device="cuda") + rows

    same(f, random(10))


def test_a_module_moved_to_the_device():
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)).cuda()
    close(torch.compile(module)(random(4, 8)), module(random(4, 8)))


def test_moves_within():
    same(lambda x: (x.to(0) + 1).cuda() * 2, random(64))


def test_in_place_and_dynamic():
    @torch.compile(dynamic=True)
    def f(x):
        x.mul_(2).add_(x.shape[0])

    for n in (10, 33):
        x = random(n)
        f(x)
        close(x, random(n) * 2 + n)


def test_a_kernel_of_the_program_and_a_break():
    same(lambda x: launch(x + 1).sum(), random(1000))

    def broken(x):
        y = launch(x)
        torch._dynamo.graph_break()
        return y + 1

    close(torch.compile(broken)(random(1000)), random(1000) * 3 + 1)


def test_random_numbers():
    zeros = torch.compile(lambda x: F.dropout(x, 0.25))(torch.ones(10_000, device="cuda")) == 0
    assert 0.2 < float(zeros.float().mean()) < 0.3


def test_without_graphs():
    same(lambda x: torch.relu(x) + 1, random(64), mode="reduce-overhead")


def test_the_code_is_for_the_declared_gpu():
    from torch._inductor.utils import run_and_get_code

    _, (code,) = run_and_get_code(torch.compile(lambda x: torch.softmax(x, -1)), random(8, 100))
    assert "empty_strided_cuda" in code and "DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90" in code


def test_among_several():
    # rows of one and columns of the other: more than one way to tile them
    same(lambda x, y: x + y.t(), random(64, 128), random(128, 64))
"""


DOCS = Path(__file__).resolve().parents[3] / "docs" / "programs.md"


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder, and the output of two runs; the second compiles from nothing in other folders."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-triton --gpuperf -p no:cacheprovider\ngpuperf_targets = h100-sxm\n"
        "filterwarnings = error:Accessing the data pointer of FakeTensor\n"
    )
    (folder / "test_compiled.py").write_text(SUITE)
    (folder / "test_documented.py").write_text(documented())
    first = run(folder, "first", "--gpuperf-update")
    return folder, first, run(folder, "second")


def documented() -> str:
    """The example of docs/programs.md."""
    section = DOCS.read_text().partition("### torch.compile")[2]
    return re.split(r"^```.*\n", section, flags=re.MULTILINE)[1]


def run(folder: Path, cache: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=folder,
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / cache),
            "TRITON_CACHE_DIR": str(folder / cache),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_compiled_functions_compute_what_they_did(gated: tuple[Path, str, str]) -> None:
    assert re.search(r"^13 passed", gated[1], re.MULTILINE)


def test_what_is_compiled_anew_is_equal(gated: tuple[Path, str, str]) -> None:
    kernels = re.search(r"(\d+) kernels analysed: \1 new", gated[1])
    assert kernels is not None
    assert f"{kernels[1]} kernels analysed: {kernels[1]} equal" in gated[2]


def test_what_is_tried_is_no_launch(gated: tuple[Path, str, str]) -> None:
    cases = re.findall(
        r"^  (test_among_several/.*):$", (gated[0] / "baselines/test_compiled.yaml").read_text(), re.MULTILINE
    )
    assert cases == ["test_among_several/triton_poi_fused_add_t_0"]


def test_code_for_a_gpu_lies_elsewhere(gated: tuple[Path, str, str]) -> None:
    assert list(gated[0].glob("first/gpuperf/inductor/*/*.py"))
    assert not list(gated[0].glob("first/??/*.py"))


def test_a_torch_that_is_built_otherwise_compiles_nothing_and_runs_all_else(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "from pytest_gpuperf.triton import activation, inductor\n"
        "inductor._GUARDS = 'no_such_table'\n"
        "activation.switch_on('h100-sxm')\n"
        "print(torch.ones(3, device='cuda').sum().item())\n"
        "try: torch.compile(lambda x: x + 1)(torch.ones(3, device='cuda'))\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("3.0\n"), done.stderr
    assert "gpuperf cannot run torch.compile with torch" in done.stdout and "no_such_table" in done.stdout
