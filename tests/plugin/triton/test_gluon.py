"""Gluon kernels with what Triton's own language does not reach. Skipped without Triton and torch."""

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

COLUMNS = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

PIXELS, CHANNELS, HIGH, WIDE = 64, 8, 6, 5


@gluon.jit
def column(image, out, y, x, DOWN: gl.constexpr, RIGHT: gl.constexpr):
    shared = gl.allocate_shared_memory(image.dtype, image.block_shape, image.layout)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    mbarrier.expect(done, image.block_type.nbytes)
    tma.async_load_im2col(image, [0, y, x, 0], [DOWN, RIGHT], done, shared)
    mbarrier.wait(done, phase=0)
    mbarrier.invalidate(done)
    tma.async_store(out, [0, 0], shared)
    tma.store_wait(pendings=0)


def check(down, right, lower, upper, steps):
    image = torch.arange(1.0, 1 + 3 * HIGH * WIDE * CHANNELS, device="cuda").reshape(3, HIGH, WIDE, CHANNELS)
    out = torch.full((PIXELS, CHANNELS), -1.0, device="cuda")
    layout = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=32, rank=2)
    given = TensorDescriptorIm2Col(
        image, list(image.shape), list(image.stride()), [PIXELS, CHANNELS], layout,
        element_strides=[1, *steps, 1], pixel_box_lower_corner=lower, pixel_box_upper_corner=upper,
    )
    written = TensorDescriptor.from_tensor(out, [PIXELS, CHANNELS], layout)
    column[(1,)](given, written, *lower, down, right, num_warps=1)
    # the pixels of the bounding box, image by image and row by row, each moved by the offsets; outside of the image there are zeros
    expected = []
    for number in range(3):
        for y in range(lower[0], HIGH + upper[0], steps[0]):
            for x in range(lower[1], WIDE + upper[1], steps[1]):
                inside = 0 <= y + down < HIGH and 0 <= x + right < WIDE
                expected.append(image[number, y + down, x + right] if inside else torch.zeros(CHANNELS))
    count = min(PIXELS, len(expected))
    torch.testing.assert_close(out[:count], torch.stack(expected[:count]), atol=0, rtol=0)


def test_a_tap_of_a_filter():
    check(1, 2, [-1, -2], [-1, -2], [1, 1])


def test_every_second_pixel():
    check(2, 0, [-1, -1], [-1, -1], [2, 1])
"""


def test_descriptors_in_im2col_mode(tmp_path: Path) -> None:
    (tmp_path / "test_columns.py").write_text(COLUMNS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ngpuperf_targets = h100-sxm\naddopts = --gpuperf-triton -p no:cacheprovider\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in result.stdout, result.stdout + result.stderr
