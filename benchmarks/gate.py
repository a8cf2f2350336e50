"""What the gate adds to a test: 1 000 unchanged trivial cases with and without judging."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["overhead_seconds"]

PTX = """\
.version 8.0
.target sm_70
.address_size 64
.visible .entry one(.param .u64 x)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    st.global.u64 [%rd1], %rd1;
    ret;
}
"""

TEST = """\
import numpy as np
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_one(gpuperf, n):
    gpuperf.kernel("one.ptx", targets=["h100-sxm"])[1, 32](gpuperf.zeros(1, np.uint64))
"""


def overhead_seconds(count: int = 1000) -> float:
    """Seconds per case that judging takes beyond running the same tests for their results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.ptx").write_text(PTX, encoding="utf-8")
        (folder / "test_one.py").write_text(TEST.format(count=count), encoding="utf-8")
        (folder / "pytest.ini").write_text(
            "[pytest]\naddopts = -p no:cacheprovider -q\ngpuperf_functional = true\n", encoding="utf-8"
        )
        _run(folder, "--gpuperf-update")
        gated = min(_run(folder, "--gpuperf") for _ in range(2))
        plain = min(_run(folder) for _ in range(2))
    return (gated - plain) / count


def _run(folder: Path, *arguments: str) -> float:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - start
