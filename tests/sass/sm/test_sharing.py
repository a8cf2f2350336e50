"""How much of what CTAs touch comes from DRAM, counted by hand for small grids."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.sass.sm.sharing import Group, Reuse, reuse_of, rows_of

GRID = (4, 4, 1)
#: words of 4 bytes of the 10 sectors that a CTA touches
TILE = 10 * 8
SECTORS = np.arange(10, dtype=np.int64)
SECTOR, BIG, SMALL = 32, 1 << 30, 1


def test_rows_of_tiles_are_touched_alike() -> None:
    # CTAs of a row of the grid touch the same 10 sectors: of 8 that run at once, 4 each.
    found = reuse_of(SECTORS, (0, TILE, 0), GRID, 8)
    assert found == Reuse(20, 80, 40, 160, 4.0)
    # each is asked of DRAM by one of the four, and the other three wait with it
    assert found.behind(1 / 4, SMALL) == 1.0
    # L2 holds all of it: still the four of a row run at once
    assert found.behind(1 / 4, BIG) == 1.0
    # all of it is in L2 from the start
    assert found.behind(0.0, BIG) == 0.0


def test_what_all_ctas_read_comes_from_dram_while_the_first_run() -> None:
    found = reuse_of(SECTORS, (0, 0, 0), GRID, 8)
    assert found == Reuse(10, 80, 10, 160, 8.0)
    # 8 of the 16 CTAs run first: one has them from DRAM, seven wait with it
    assert found.behind(1 / 16, 40 * SECTOR) == pytest.approx((8 / 16 - 1 / 16) / (15 / 16))
    # L2 does not hold them until the others run
    assert found.behind(1 / 8, 9 * SECTOR) == 1.0


def test_ctas_that_overlap_touch_shared_sectors_at_other_times() -> None:
    # Each touches 10 sectors, of which the next one touches 9: as the rows of a convolution.
    found = reuse_of(SECTORS, (TILE // 10, 8 * TILE, 0), GRID, 4)
    assert (found.once, found.summed, found.alike) == (13, 40, 1.0)
    assert found.behind(13 / 40, SMALL) == 0.0


def test_nothing_shared_waits_for_nobody() -> None:
    found = reuse_of(SECTORS, (TILE, 4 * TILE, 0), GRID, 8)
    assert found == Reuse(80, 80, 160, 160, 1.0)
    assert found.behind(1.0, SMALL) == 0.0
    assert Reuse.drawn(10.0, 100, 8, 16).behind(0.5, SMALL) == 0.0


def moved(*words: int) -> bytes:
    return np.array(words, np.int64).tobytes()


def test_ctas_that_work_out_their_place_share_what_they_are_seen_to() -> None:
    # 16 CTAs in a row, four of which touch the same 10 sectors; steps along the axis would say that all 16 do, or none.
    rows = moved(*(number // 4 * TILE for number in range(16)))
    columns = moved(*(number % 4 * TILE for number in range(16)))
    for steps in ((0, 0, 0), (TILE, 0, 0)):
        assert reuse_of(SECTORS, steps, (16, 1, 1), 8, rows) == Reuse(20, 80, 40, 160, 4.0)
        assert reuse_of(SECTORS, steps, (16, 1, 1), 8, columns) == Reuse(40, 80, 40, 160, 2.0)


def test_ctas_that_are_not_seen_are_as_those_that_are() -> None:
    # Of 64 CTAs 16 are seen; of those that run at once 16 of 32.
    rows = moved(*(number // 4 * TILE for number in range(16)))
    assert reuse_of(SECTORS, (0, 0, 0), (64, 1, 1), 32, rows) == Reuse(40, 160, 160, 640, 4.0)
    # their array has no more sectors than that
    assert reuse_of(SECTORS, (0, 0, 0), (64, 1, 1), 32, rows, 100).once_of_all == 100


def rows(width: int, pitch: int, count: int) -> np.ndarray:
    """Sectors of ``count`` rows of so many words, ``pitch`` words apart."""
    return (np.arange(count)[:, None] * pitch // 8 + np.arange(width // 8)[None, :]).reshape(-1)


@pytest.mark.parametrize("width", [8, 16, 24, 32])
def test_ctas_that_have_parts_of_a_line_each_share_nothing(width: int) -> None:
    # Rows of 16 words are half a line: beside each other lie as many bytes as there are CTAs.
    found = reuse_of(rows(width, 96, 4), (width, 4 * 96, 0), (96 // width, 4, 1), 8)
    assert (found.once, found.summed) == (8 * 4 * width // 8, 8 * 4 * width // 8)
    assert found.once_of_all == found.summed_of_all == 4 * 4 * 96 // 8


def test_ctas_whose_parts_of_a_sector_are_no_whole_ones_share_the_rest() -> None:
    # Rows of 12 words: a sector and a half, of which two are touched.
    found = reuse_of(np.arange(2), (12, 0, 0), (16, 1, 1), 16)
    assert (found.once, found.summed) == (16 * 12 // 8 + 1, 16 * 2)


@pytest.mark.parametrize(("together", "opened"), [(1, 16), (2, 8), (4, 4), (16, 4), (64, 4)])
def test_ctas_side_by_side_share_rows_of_dram(together: int, opened: int) -> None:
    # A CTA has 64 of the 256 words of a row, of each of 16 rows; the next 16 CTAs are below, or beside.
    beside = Group("global", False, (64, 16 * 8192, 0))
    own = (np.arange(16)[:, None] * 8192 // 8 + np.arange(8)[None, :]).reshape(-1)
    assert rows_of(own, beside, (4, 64, 1), together) == (opened, 16)
    below = Group("global", False, (16 * 8192, 64, 0))
    assert rows_of(own, below, (64, 4, 1), together) == (16, 16)
    seen = Group("global", False, (0, 0, 0), moved(*(16 * 8192 * number for number in range(16))))
    assert rows_of(own, seen, (4, 64, 1), together) == (16, 16)
