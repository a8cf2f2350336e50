"""What ``make bench`` measures of a process is that of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.__main__ import measured
from tests.docs.blocks import ROOT

MIB = 1 << 20


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4")
def test_the_peak_is_that_of_one_process() -> None:
    """A small process after a big one, whose peak ``RUSAGE_CHILDREN`` would repeat."""
    # in a process of its own: a child's peak begins with the memory of the process that starts it
    code = """import os, sys
from benchmarks.__main__ import measured
for size in (400, 1):
    print(measured([sys.executable, "-c", f"bytearray(b'x' * ({size} << 20))"], dict(os.environ)).peak_bytes)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    big, small = map(int, done.stdout.split())
    assert 400 * MIB < big < 1200 * MIB and MIB < small < 300 * MIB


def test_a_process_that_fails_ends_the_measurement_with_its_output() -> None:
    with pytest.raises(SystemExit, match="why"):
        measured([sys.executable, "-c", "print('why'); raise SystemExit(3)"], dict(os.environ))
