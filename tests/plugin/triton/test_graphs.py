"""CUDA graphs of torch: what is captured is not computed, and replays compute it from what memory holds then. Skipped without Triton
and torch.

Expected values follow from torch's notes on CUDA graphs ("CUDA semantics", "CUDA Graphs") by arithmetic.
"""

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
import copy

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def add_twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(y + at, at < n) + 2 * tl.load(x + at, at < n), at < n)


def test_replays_compute_from_the_memory_of_then():
    x, y = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    on_host = torch.zeros(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        add_twice[(1,)](x, y, 100, BLOCK=128)
        z = y * 3
        x += 1
        total = z.sum()
        part = z.view(10, 10)[1:]
        copied = torch.zeros(3, device="cuda")
        copied += total
        torch.mul(total, 2, out=(doubled := torch.empty((), device="cuda")))
        on_host += 1
    assert not torch.cuda.is_current_stream_capturing()
    assert (x == 1).all() and (y == 0).all() and on_host == 1
    for first, added in ((1, 2), (5, 12)):
        x.fill_(first)
        graph.replay()
        assert (x == first + 1).all() and (y == added).all() and (z == 3 * added).all() and (part == 3 * added).all()
        assert total == 300 * added and (copied == 300 * added).all() and doubled == 600 * added and z.is_cuda
    assert on_host == 1


def test_a_step_of_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
    same = copy.deepcopy(model)
    optimizer, expected = (torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, same))
    x, y = torch.randn(3, 16, 4, device="cuda"), torch.randn(3, 16, 2, device="cuda")
    given, wanted = x[0].clone(), y[0].clone()

    def loss_of(each, a, b):
        loss = torch.nn.functional.mse_loss(each(a), b)
        loss.backward()
        return loss

    for each, step in ((model, optimizer), (same, expected)):  # momentum exists before the capture
        loss_of(each, given, wanted)
        step.step()
        step.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = loss_of(model, given, wanted)
        optimizer.step()
    for a, b in zip(x, y):
        given.copy_(a)
        wanted.copy_(b)
        graph.replay()
        expected.zero_grad()
        torch.testing.assert_close(loss, loss_of(same, a, b))
        expected.step()
    for parameter, other in zip(model.parameters(), same.parameters()):
        torch.testing.assert_close(parameter, other)


def test_graphed_callables():
    model = torch.nn.Linear(4, 2).cuda()
    graphed = torch.cuda.make_graphed_callables(copy.deepcopy(model), (torch.randn(3, 4, device="cuda"),))
    x = torch.randn(3, 4, device="cuda")
    torch.testing.assert_close(graphed(x), model(x))
    graphed(x).sum().backward()
    model(x).sum().backward()
    torch.testing.assert_close([each.grad for each in graphed.parameters()], [each.grad for each in model.parameters()])


def test_errors():
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            torch.cuda.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="the host waits for the result of aten::_local_scalar_dense"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            y = torch.ones(1, device="cuda") + 1
            assert torch.ones(1).item() == 1
            y.item()
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="reset"):
        graph.capture_begin()
    graph.reset()
    with pytest.raises(RuntimeError, match="not supported by gpuperf"):
        graph.debug_dump("graph.dot")
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(graph):
        1 / 0
    assert not torch.cuda.is_current_stream_capturing()
"""


def test_graphs(tmp_path: Path) -> None:
    (tmp_path / "test_graphs_of_torch.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--gpuperf-triton",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            ".",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
