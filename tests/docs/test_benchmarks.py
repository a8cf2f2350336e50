"""What ``make bench`` measures of a process is that of the process."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.__main__ import measured

MIB = 1 << 20


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4")
def test_the_peak_is_that_of_one_process() -> None:
    """A small process after a big one, whose peak ``RUSAGE_CHILDREN`` would repeat."""
    big, small = (
        measured([sys.executable, "-c", f"bytearray(b'x' * ({size} << 20))"], dict(os.environ)).peak_bytes
        for size in (200, 1)
    )
    assert 200 * MIB < big < 1000 * MIB and MIB < small < 150 * MIB


def test_a_process_that_fails_ends_the_measurement_with_its_output() -> None:
    with pytest.raises(SystemExit, match="why"):
        measured([sys.executable, "-c", "print('why'); raise SystemExit(3)"], dict(os.environ))
