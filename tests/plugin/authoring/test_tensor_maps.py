"""Tensor maps in tests: made by the fixture, digested as inputs, predicted like any kernel."""

from __future__ import annotations

import pytest

from tests.cuda import compiled

TEST = """\
import numpy as np

def test_transpose(gpuperf):
    x = gpuperf.array(np.arange(80 * 96, dtype=np.float32).reshape(80, 96))
    out = gpuperf.zeros((96, 80), np.float32)
    kernel = gpuperf.kernel("tensor.ptx", entry="transpose", targets=["h100-sxm"])
    kernel[(3, 3), 128](gpuperf.tensor_map(x, (32, 32)), gpuperf.tensor_map(out, (32, 32)))
    np.testing.assert_array_equal(out.numpy(), x.numpy().T)
    image = gpuperf.zeros((2, 4, 4, 64), np.uint8)
    for kind, corner in ((gpuperf.im2col_map, (0, 0)), (gpuperf.im2col_wide_map, 0)):
        assert len(bytes(kind(image, 64, 8, lower=corner, upper=corner))) == 128
"""


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("tensor.ptx", compiled.ptx("cuda/kernels/tensor"))
    project.write("test_k.py", TEST)
    return project


def test_a_gate_with_tensor_maps(real):
    assert real.run("--gpuperf", "--gpuperf-update").ret == 0
    stored = real.path.joinpath("baselines/test_k.yaml").read_text(encoding="utf-8")
    assert "global_load_sectors: 960" in stored  # 80 · 96 · 4 bytes
    assert real.run("--gpuperf").ret == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(x, (32, 32))", '(x, (32, 32), fill="nan")'),
        ("np.arange(80 * 96,", "1 + np.arange(80 * 96,"),
    ],
)
def test_maps_and_what_they_describe_are_inputs(real, old, new):
    def inputs():
        stored = real.path.joinpath("baselines/test_k.yaml").read_text(encoding="utf-8")
        return next(line for line in stored.splitlines() if "inputs" in line)

    assert real.run("--gpuperf", "--gpuperf-update").ret == 0
    before = inputs()
    real.write("test_k.py", TEST.replace(old, new))
    assert real.run("--gpuperf", "--gpuperf-update").ret == 0
    assert inputs() != before
