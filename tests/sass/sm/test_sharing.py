"""How much of what CTAs touch comes from DRAM, counted by hand for small grids."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.sass.sm.sharing import Reuse, reuse_of

GRID = (4, 4, 1)
#: words of 4 bytes of the 10 lines that a CTA touches
TILE = 10 * 32
LINES = np.arange(10, dtype=np.int64)
LINE, BIG, SMALL = 128, 1 << 30, 1


def test_rows_of_tiles_are_touched_alike() -> None:
    # CTAs of a row of the grid touch the same 10 lines: of 8 that run at once, 4 each.
    found = reuse_of(LINES, (0, TILE, 0), GRID, 8)
    assert found == Reuse(20, 80, 40, 160, 4.0)
    # each line is asked of DRAM by one of the four, and the other three wait with it
    assert found.behind(1 / 4, SMALL) == 1.0
    # L2 holds all of it: still the four of a row run at once
    assert found.behind(1 / 4, BIG) == 1.0
    # all of it is in L2 from the start
    assert found.behind(0.0, BIG) == 0.0


def test_what_all_ctas_read_comes_from_dram_while_the_first_run() -> None:
    found = reuse_of(LINES, (0, 0, 0), GRID, 8)
    assert found == Reuse(10, 80, 10, 160, 8.0)
    # 8 of the 16 CTAs run first: one has the lines from DRAM, seven wait with it
    assert found.behind(1 / 16, 40 * LINE) == pytest.approx((8 / 16 - 1 / 16) / (15 / 16))
    # L2 does not hold the lines until the others run
    assert found.behind(1 / 8, 9 * LINE) == 1.0


def test_ctas_that_overlap_touch_shared_lines_at_other_times() -> None:
    # Each touches 10 lines, of which the next one touches 9: as the rows of a convolution.
    found = reuse_of(LINES, (TILE // 10, 8 * TILE, 0), GRID, 4)
    assert (found.once, found.summed, found.alike) == (13, 40, 1.0)
    assert found.behind(13 / 40, SMALL) == 0.0


def test_nothing_shared_waits_for_nobody() -> None:
    found = reuse_of(LINES, (TILE, 4 * TILE, 0), GRID, 8)
    assert found == Reuse(80, 80, 160, 160, 1.0)
    assert found.behind(1.0, SMALL) == 0.0
    assert Reuse.drawn(10.0, 100, 8, 16).behind(0.5, SMALL) == 0.0
