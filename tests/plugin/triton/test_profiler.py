"""Triton's profiler: the tree of scopes and launches that it writes. Skipped without Triton and torch.

The expected format is that of Proton's documentation and of Hatchet ("from_literal"): nodes with frames, metrics and children.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

PROGRAM = """
import torch
import triton
import triton.language as tl
import triton.profiler as proton


def described(grid, metadata, args):
    return {"name": f"copy_{args['n']}", "flops32": 10.0}


@triton.jit(launch_metadata=described)
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


x, y = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
session = proton.start("hooked", hook="triton")
with proton.scope("outer"):
    copy[(1,)](x, y, 64, BLOCK=64)
    with proton.scope("inner", {"bytes": 512}):
        copy[(1,)](x, y, 64, BLOCK=64)
        copy[(1,)](x, y, 32, BLOCK=64)
proton.deactivate(session)
copy[(1,)](x, y, 64, BLOCK=64)
proton.activate(session)
copy[(1,)](x, y, 64, BLOCK=64)
proton.finalize(session)

proton.start("plain")
copy[(1,)](x, y, 64, BLOCK=64)
proton.finalize()
copy[(1,)](x, y, 64, BLOCK=64)
try:
    proton.start("trace", data="trace")
except RuntimeError as error:
    print(error)
"""


def test_scopes_and_launches(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest_gpuperf.cli", "run", "--triton", "--target", "h100-sxm", "--"]
    done = subprocess.run(
        [*command, sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "gpuperf runs proton.start(backend='cupti', data='tree'" in done.stdout

    root, about = json.loads((tmp_path / "hooked.hatchet").read_text())
    assert root["frame"] == {"name": "ROOT", "type": "function"} and about["CUDA"]["0"]["arch"] == "90"
    assert about["CUDA"]["0"]["num_sms"] == 132  # NVIDIA H100 Tensor Core GPU Architecture, table 3
    assert [child["frame"]["name"] for child in root["children"]] == ["outer", "copy_64"]
    outer, last = root["children"]
    first, inner = outer["children"]
    assert (first["frame"]["name"], inner["frame"]["name"]) == ("copy_64", "inner")
    assert inner["metrics"] == {"bytes": 512} and "time (ns)" not in outer["metrics"]
    assert [child["frame"]["name"] for child in inner["children"]] == ["copy_64", "copy_32"]
    for node in (first, last, *inner["children"]):
        assert node["metrics"]["count"] == 1 and node["metrics"]["time (ns)"] > 0
        assert node["metrics"]["flops32"] == 10 and node["metrics"]["device_type"] == "CUDA"

    root, _ = json.loads((tmp_path / "plain.hatchet").read_text())
    assert [child["frame"]["name"] for child in root["children"]] == ["copy"]
    assert root["children"][0]["metrics"]["count"] == 1
