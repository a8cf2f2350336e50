"""The programs of CTest, gated: every launch is compared with its baseline."""

import pytest


@pytest.mark.parametrize("size, steps", [(32, 4), (100, 10)])
def test_heat(gpuperf, size, steps):
    done = gpuperf.run(["build/heat", "--size", str(size), "--steps", str(steps)])
    assert done.stdout.endswith("PASSED\n")
