"""Recurrences, closed form and simulation of a tile: against each other, and against schedules worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.errors import EngineError
from gpuperf_engine.warp_specialization import Timeline, math_start, math_wait, simulate, stage_starts

#: whole numbers, so that sums are exact
GENERATOR = np.random.default_rng(16)
COUNT, MOST = 480, 12
A, B, T = (GENERATOR.integers(1, 30, COUNT).astype(float) for _ in range(3))
STAGES = GENERATOR.integers(1, MOST + 1, COUNT)
DEPTH = GENERATOR.integers(1, 6, COUNT)
WARPS = GENERATOR.integers(1, 3, COUNT)


def starts(timeline: Timeline, what: str) -> list[float]:
    return [item.start for item in timeline.of(what)]


def test_closed_form() -> None:
    found = stage_starts(A[:, None], B[:, None], T[:, None], stages=MOST, depth=DEPTH, dma_warps=WARPS)
    last = found.math[np.arange(COUNT), STAGES - 1]
    assert (last == math_start(A, B, T, stages=STAGES, depth=DEPTH, dma_warps=WARPS)).all()


def test_the_simulation_is_the_recurrences() -> None:
    """For times that differ from stage to stage too."""
    times = [GENERATOR.integers(0, 30, (COUNT, MOST)).astype(float) for _ in range(3)]
    found = stage_starts(*times, stages=MOST, depth=DEPTH, dma_warps=WARPS)
    for index in range(0, COUNT, 4):
        a, b, t = (part[index] for part in times)
        ran = simulate(a, b, t, stages=MOST, depth=int(DEPTH[index]), dma_warps=int(WARPS[index]))
        assert starts(ran, "load A") == list(found.a[index])
        assert starts(ran, "load B") == list(found.b[index])
        assert starts(ran, "math") == list(found.math[index])
        assert ran.end == found.math[index, -1] + t[-1]


def test_waits_of_the_simulation() -> None:
    for index in range(0, COUNT, 8):
        given = A[index], B[index], T[index]
        shape = {"depth": int(DEPTH[index]), "dma_warps": int(WARPS[index])}
        stages = int(STAGES[index])
        ran = simulate(*given, stages=stages, **shape, epilogue=5.0)
        waited = math_wait(*map(np.asarray, given), stages=np.asarray(stages), **shape)
        assert ran.waited("MATH") == waited
        # MATH does nothing but wait and compute
        assert ran.end == ran.waited("MATH") + stages * T[index] + 5.0


def test_one_dma_warp_by_hand() -> None:
    """Loads of 2 and 3, MATH of 4, two buffers: loads limit, and stage 2 waits for no buffer."""
    ran = simulate(2, 3, 4, stages=3, depth=2)
    assert starts(ran, "load A") == [0, 5, 10]
    assert starts(ran, "load B") == [2, 7, 12]
    assert starts(ran, "math") == [5, 10, 15]
    assert ran.end == 19
    assert [(item.start, item.end) for item in ran.of("wait full")] == [(0, 5), (9, 10), (14, 15)]
    assert not ran.of("wait empty")


def test_two_dma_warps_by_hand() -> None:
    """Loads of 2 and 3 side by side, MATH of 4, two buffers: MATH limits, and both producers wait for it."""
    ran = simulate(2, 3, 4, stages=4, depth=2, dma_warps=2)
    # MATH of stage 0 is 3 to 7 and frees the buffer of stage 2
    assert starts(ran, "math") == [3, 7, 11, 15]
    assert starts(ran, "load A") == [0, 2, 7, 11]
    assert starts(ran, "load B") == [0, 3, 7, 11]
    assert ran.waited("DMA A") == (7 - 4) + (11 - 9)
    assert ran.waited("MATH") == 3
    assert ran.warps == ("DMA A", "DMA B", "MATH")


def test_one_buffer_overlaps_nothing() -> None:
    assert starts(simulate(2, 3, 4, stages=3, depth=1), "math") == [5, 14, 23]


def test_more_than_two_buffers_help_no_constant_times_but_uneven_ones() -> None:
    shape = {"stages": 20}
    assert simulate(2, 3, 4, depth=2, **shape).end == simulate(2, 3, 4, depth=8, **shape).end
    late = [1.0] * 20
    late[10] = 30.0
    assert simulate(late, 1, 6, depth=8, **shape).end < simulate(late, 1, 6, depth=2, **shape).end


def test_what_cannot_be_simulated() -> None:
    with pytest.raises(EngineError, match="load_b has 2 times for 3 stages"):
        simulate(1, [1, 2], 1, stages=3)
    with pytest.raises(EngineError, match="math has the negative time -1"):
        simulate(1, 1, [1, -1], stages=2)
    with pytest.raises(EngineError, match="0 stages through 2 buffers"):
        simulate(1, 1, 1, stages=0)
