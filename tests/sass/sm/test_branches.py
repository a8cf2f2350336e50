"""Branches of one warp: loops in a line of code and beyond it, and rings of lines, as measured.

cicuvc/nvidia-sass-document: notes/sm120/icache_topology.md (RTX 5090) and notes/sm100/arch/b200_icache_topology.md at commit 76041fd,
notes/sm90/arch/h100_icache_loop_replay.md at 092226e; the instructions are those of probe_icache_capacity.py, probe_icache_lines.py
and probe_icache_hash.py in tests/asm_construct at afe9976.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuperf_engine.jit.ir.sm_records import CODE_LINE, END
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.listing import Listing
from gpuperf_engine.sass.sm.asynchronous import Copies
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.simulate import Memory, simulate
from gpuperf_engine.sass.sm.streams import Class, Classes
from gpuperf_engine.timing.models.simulation import numbers_of

from .machines import decoded

#: what the references count with; a NOP that yields takes two clocks
CONTROL = ["5: IADD3 R10, R10, -0x1, RZ", "13: ISETP.NE.AND P0, PT, R10, RZ, PT", "6: @P0 BRA `(.L_0)"]
NOP = "~NOP"


def clocks(code: list[str], places: list[int], machine: str) -> float:
    """Of one repetition: ``places``: where the blocks begin that a repetition executes; ``.L_N`` is the Nth of them."""
    texts = [*code, "EXIT"]
    labels = {f".L_{number}": place for number, place in enumerate(places)}
    graph = build_graph(Listing(decoded(texts).instructions, {"k": 0, **labels}, frozenset()), "k")
    numbers = replace(numbers_of(load_machine(machine)), code=None)
    block = {item.start: item.index for item in graph.blocks}
    last = block[max(start for start in block if start <= len(code))]
    ends = []
    for times in (4, 12):
        stream = np.array([block[place] for place in places] * times + [last, END], np.uint32)
        none = np.zeros(0, np.uint8)
        starts = np.array([stream.ctypes.data], np.int64)
        only = Class(stream, starts, none, np.zeros(0, np.int64), none, none.astype(np.uint32))
        memory = Memory(1, 64.0, 8.0, ())
        classes = Classes((only,), (), {}, (1, 1, 1))
        ends.append(simulate(Operations(graph, numbers), classes, Copies(), numbers, memory, [0], 1, 1).ended)
    return (ends[1] - ends[0]) / 8


@pytest.mark.parametrize(
    ("machine", "nops", "measured"),
    [("b200", 1997, 2.0206 * 1997), ("b200", 1917, 2.0214 * 1917), ("rtx-5090", 3997, 2.0125 * 3997)],
)
def test_a_long_loop(machine: str, nops: int, measured: float) -> None:
    # without the branch, the loop takes two clocks for each NOP, and 18
    more = clocks([NOP] * nops + CONTROL, [0], machine) - 2 * nops - 18
    # one clock more or less on the B200; a branch to the next of 504 lines takes 25 clocks on the RTX 5090, this one 32
    assert more == pytest.approx(measured - 2 * nops - 18, abs=1 if machine == "b200" else 7.1)


@pytest.mark.parametrize(
    ("machine", "lines", "measured"),
    [("h100-sxm", 12, 30.76), ("h100-sxm", 16, 30.82), ("rtx-5090", 60, 25.05)],
)
def test_a_ring_of_lines(machine: str, lines: int, measured: float) -> None:
    # JMP on the H100, of 12 and 16 lines, BRA on the RTX 5090, of 496 lines, that fit into its cache; clocks for a line
    code = [*CONTROL, *[NOP] * (CODE_LINE - len(CONTROL))]
    code[2] = "6: @P0 BRA `(.L_1)"
    for line in range(1, lines):
        code += [f"6: BRA `(.L_{(line + 1) % lines})", *[NOP] * (CODE_LINE - 1)]
    places = [CODE_LINE * line for line in range(lines)]
    assert clocks(code, places, machine) / lines == pytest.approx(measured, rel=0.025)


@pytest.mark.parametrize("machine", ["h100-sxm", "b200", "rtx-5090"])
def test_a_loop_in_one_line_takes_its_stall_counts(machine: str) -> None:
    # an RTX 5090 takes 23 clocks for a loop of four instructions, whose stall counts are 18 to 23
    # (tests/readsb_timing.cu and notes/sm90/arch/lsu_mio_structure.md of the same repository at f20cda1)
    code = ["1: IADD3 R6, R6, 0x1, RZ", "4: UIADD3 UR4, UR4, 0x1, URZ", *CONTROL[1:]]
    code[-1] = "5: @P0 BRA `(.L_0)"
    assert clocks(code, [0], machine) == 23


def test_other_machines_have_the_stall_count_only() -> None:
    assert clocks([NOP] * 100 + CONTROL, [0], "rtx-a6000") == 200 + 24
