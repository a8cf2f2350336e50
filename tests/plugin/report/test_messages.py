"""What the failure of a test says first, and that nothing which matters is cut off."""

from __future__ import annotations

import pytest


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    return project


def test_error_without_baseline_comes_before_what_is_new(real):
    real.kernel()
    ptx = (real.path / "scale.ptx").read_text().replace(".target sm_70", ".target sm_100a")
    real.write("scale.ptx", ptx.replace(".version 8.0", ".version 8.6"))
    result = real.run()
    result.stdout.fnmatch_lines(
        [
            "gpuperf: scale on h100-sxm: PTX for sm_100a cannot run on h100-sxm (compute capability 9.0)",
            "",
            "✖ test_scale/scale: error",
            "  hottest line: scale.ptx:*",
            "  ✖ h100-sxm: error: PTX for sm_100a cannot run on h100-sxm (compute capability 9.0)",
            "      kernel scale of scale.ptx",
            "  + thread_instructions*",
            "  + warp_instructions*",
            "",
            "An update does not accept this: fix it, or change the declaration.",
        ],
        consecutive=False,
    )
    assert "more (-vv shows all)" not in result.stdout.str()


@pytest.mark.parametrize("call", ["kernel(gpuperf.zeros(64, np.float32), 2.0)", "kernel[2](None, 2.0)"])
def test_launch_without_shape_says_how_to_write_it(real, call):
    real.write(
        "test_k.py",
        f"import numpy as np\ndef test_a(gpuperf):\n    kernel = gpuperf.kernel('scale.ptx')\n    {call}\n",
    )
    result = real.run()
    result.stdout.fnmatch_lines(
        ["*LaunchError: kernel 'scale' needs a grid and a block", "*write kernel[[]grid, block](…) or *"]
    )


def test_limit_comes_first_among_what_fails(real):
    real.update()
    real.kernel("\n".join(["mov.f32 %f4, %f2;"] * 8))
    real.write(
        "test_k.py",
        (real.path / "test_k.py")
        .read_text()
        .replace('"h100-sxm"]', '"h100-sxm"], limits={"thread_instructions": 100}'),
    )
    result = real.run()
    lines = result.stdout.lines
    start = lines.index("▲ test_scale/scale: over limit")
    assert "limit: at most 100" in lines[start + 2] and "allowed 0" in lines[start + 3]
