"""Tags of L1: the sets of the lines of a load, beside a profiler's counters and measured cycles of strided loads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import mean
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.sm.streams import Class
from gpuperf_engine.timing.models.simulation import numbers_of
from tests.timing.strides import MACHINES, OFFSETS, PITCH, SIZES, THREADS, Stride, measured

from .machines import TOY, access, run

SECTOR: Final = 32
LINE: Final = 128
BANKS: Final = 32


@cache
def places(kind: str, mode: str, step: int) -> NDArray[np.int64]:
    """The bytes that the loads of each warp read first: warp, load, lane."""
    across, down, wide = (step, 0, THREADS) if mode == "stride" else (1, PITCH, step)
    thread = np.arange(THREADS).reshape(-1, 1, 32)
    element = (thread % wide & 63) * across + (thread // wide & 31) * down + np.reshape(OFFSETS, (1, -1, 1))
    return element * SIZES[kind]


def tag_passes(row: Stride) -> float:
    """The mean number of lines in the fullest set of a load."""
    lines = places(row.kind, row.mode, row.step) // LINE
    known = np.unique(lines)
    none = np.zeros(len(known), np.uint8)
    of_line = dict(
        zip(
            known.tolist(),
            Class(
                np.array([END], np.uint32), np.zeros(1, np.int64), none, known, none, none.astype(np.uint32)
            ).sets(),
        )
    )
    sets = [[of_line[line] for line in set(load)] for load in lines.reshape(-1, 32).tolist()]
    return mean(int(np.bincount(load).max()) for load in sets)


@pytest.mark.parametrize(
    ("gpu", "rows", "most"), [("a100", 130, 0.023), ("a40", 65, 0.022), ("h200", 32, 0.039)]
)
def test_passes_are_those_that_a_profiler_counted(gpu: str, rows: int, most: float) -> None:
    # l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld of strided loads; with lines / 4 rounded up it is 14.0, 10.9 and 6.1 %
    some = [row for row in measured() if row.gpu == gpu and row.mode == "stride"]
    assert len(some) == rows
    assert mean(abs(tag_passes(row) / row.tags - 1) for row in some) < most


def test_passes_of_lines_in_the_upper_sets() -> None:
    """Lines a multiple of four apart are in different sets, by the formula of the reference."""
    lines = np.array([0, 1, 2, 3, 4, 8, 12, 16, 64, 256, 0b11_0000_0000], np.int64)
    none = np.zeros(len(lines), np.uint8)
    made = Class(np.array([END], np.uint32), np.zeros(1, np.int64), none, lines, none, none.astype(np.uint32))
    assert made.sets().tolist() == [0, 1, 2, 3, 1, 2, 3, 1, 1, 1, 3]


def cycles(row: Stride) -> float:
    """Simulated cycles of an SM per load of a warp."""
    numbers = replace(numbers_of(load_machine(MACHINES[row.gpu])), code=None)
    lanes = SIZES[row.kind] // 4
    warps = places(row.kind, row.mode, row.step)
    words = [[load_words(load, lanes) for load in warp] for warp in warps]
    most = int(warps.max()) // LINE + 1
    ends = []
    for times in (2, 6):
        wide = "" if lanes == 1 else ".64"
        code = [f"LDG.E{wide} R{10 + 2 * (each % 8)}, [R2.64]" for each in range(8 * times)]
        streams = [[word for load in warp for word in load] * times for warp in words]
        ends.append(
            run([*code, "EXIT"], streams, numbers=numbers, lines=most, share=0.0, l1_lines=1 << 13).ended
        )
    return (ends[1] - ends[0]) / (4 * len(OFFSETS) * len(warps))


def load_words(at: NDArray[np.int64], words: int) -> list[int]:
    """What a stream has of the load."""
    step = 32 // words
    passes = 0
    for first in range(0, 32, step):
        word = np.unique(at[first : first + step, None] // 4 + np.arange(words))
        passes += int(np.bincount(word % BANKS).max())
    sectors: dict[int, int] = {}
    for sector in np.unique(at // SECTOR).tolist():
        sectors[sector // 4] = sectors.get(sector // 4, 0) | 1 << sector % 4
    return access(passes, sectors)


@pytest.mark.parametrize(("gpu", "most"), [("a100", 0.02), ("a40", 0.02), ("h200", 0.035)])
def test_strided_loads_take_the_measured_cycles(gpu: str, most: float) -> None:
    # every fifth row; the addition of what was loaded is not part of the code
    some = [row for row in measured() if row.gpu == gpu and row.mode == "stride"][::5]
    errors = [cycles(row) / row.cycles - 1 for row in some]
    assert mean(map(abs, errors)) < most
    assert min(errors) > -0.1


@pytest.mark.parametrize(
    ("lines", "clocks"), [((0, 1, 2, 3), 2), ((0, 5, 10, 15), 4), ((0, 5, 10, 15, 1, 2), 4)]
)
def test_lines_of_one_set_take_turns(lines: tuple[int, ...], clocks: int) -> None:
    ends = []
    for count in (20, 60):
        code = [f"LDG.E R{10 + each % 80}, [R2.64]" for each in range(count)]
        words = access(1, dict.fromkeys(lines, 1)) * count
        ends.append(run([*code, "EXIT"], [words] * 4, numbers=TOY, lines=16, share=0.0).ended)
    assert (ends[1] - ends[0]) / 160 == clocks


def test_lines_of_local_memory_do_not_conflict() -> None:
    ends = []
    for text in ("LDL.128 R4, [R1]", "LDG.E.128 R4, [R2.64]"):
        words = access(1, dict.fromkeys((0, 5, 10, 15), 15)) * 40
        ends.append(run([text] * 40 + ["EXIT"], [words] * 4, numbers=TOY, lines=16, share=0.0).ended)
    assert ends[0] < ends[1]
