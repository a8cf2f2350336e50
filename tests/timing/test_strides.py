"""The model's L1 beside measured loads, strided and in blocks, and the passes counted beside a profiler's."""

from __future__ import annotations

from statistics import mean

import pytest

from gpuperf_engine.timing.launch.site_traffic import tag_wavefronts
from tests.timing.strides import GROUPS, OFFSETS, THREADS, measured, predicted, profile


@pytest.mark.parametrize(
    ("label", "gpu", "rows", "most"),
    [
        ("strides 0, 1, 2, 4, 8", "a100", 10, 0.02),
        ("strides 0, 1, 2, 4, 8", "h200", 10, 0.02),
        ("strides 0, 1, 2, 4, 8", "a40", 5, 0.02),
        ("strides 16, 32, 64", "a100", 6, 0.02),
        ("strides 16, 32, 64", "a40", 3, 0.02),
        ("all other strides", "a100", 114, 0.15),
        ("all other strides", "a40", 57, 0.12),
        ("all other strides", "h200", 22, 0.08),
        ("blocks", "a100", 14, 0.09),
        ("blocks", "a40", 7, 0.09),
        ("blocks", "h200", 14, 0.08),
    ],
)
def test_mean_error(label: str, gpu: str, rows: int, most: float) -> None:
    """``docs/accuracy.md`` prints these. The sets of the tag stage are part of the simulation only."""
    some = [row for row in measured() if GROUPS[label](row) and row.gpu == gpu]
    assert len(some) == rows
    assert most - 0.03 < mean(abs(predicted(row) / row.cycles - 1) for row in some) < most


def test_wavefronts_are_those_that_a_profiler_counted() -> None:
    """``l1tex__data_pipe_lsu_wavefronts`` of every row, to the digits that the log prints."""
    loads = THREADS // 32 * len(OFFSETS)
    rows = list(measured())
    assert len(rows) == 262
    for row in rows:
        counted = profile(row.kind, row.mode, row.step).memory.global_load_wavefronts / loads
        assert counted == pytest.approx(row.wavefronts, abs=0.005 if row.wavefronts < 5 else 0.05), row


def test_the_tag_stage_is_no_faster_than_four_lines_a_cycle() -> None:
    """No row's counted passes of the tag stage are below what its lines need by themselves."""
    loads = THREADS // 32 * len(OFFSETS)
    for row in measured():
        lines = profile(row.kind, row.mode, row.step).memory.global_load_lines / loads
        assert max(1.0, lines / 4) <= row.tags + 0.06, row


@pytest.mark.parametrize(
    ("requests", "lines", "passes"),
    [(0, 0, 0), (1, 1, 1), (1, 4, 1), (1, 5, 2), (1, 32, 8), (8, 71, 1 * 2 + 7 * 3), (2, 9, 1 + 2)],
)
def test_passes_of_the_tag_stage(requests: int, lines: int, passes: float) -> None:
    """Four lines at a time, each request by itself; of 71 lines, seven of eight requests have nine and one has eight."""
    assert tag_wavefronts(requests, lines, 4) == passes
