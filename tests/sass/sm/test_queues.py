"""Queues of memory instructions in the sub-partitions: bursts that fill them, and the registers that they read, as measured.

cicuvc/nvidia-sass-document: notes/sm90/arch/h800_mio_queue_topology.md at commit bf21435 (H800; an H20 is equal),
notes/sm100/arch/b200_lsu_exchange_topology.md at 3e4430d and b200_mio_admission_depth.md at 17dc75d (B200) and
notes/sm120/mio_lsu_xu_topology.md at afe9976 (RTX 5090).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest

from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.timing.models.simulation import numbers_of

from .machines import TOY, access, run, run_roles

MEASURED: Final = ("h100-sxm", "b200", "rtx-5090")
#: instructions of the queue, and how many registers they read
READING: Final = {
    "SHFL.IDX PT, R{}, R1, 0x1, 0x1f": 1,
    "SHFL.IDX PT, R{}, R1, R2, 0x1f": 2,
    "SHFL.IDX PT, R{}, R1, R2, R3": 3,
    "LDS R{}, [R1]": 1,
}
NOT_READING: Final = "LDS R{}, [RZ]"
#: clocks of one of them, while another warp of the sub-partition executes MUFU.RCP, one in 8 clocks
BESIDE_MUFU: Final = {
    "h100-sxm": (2.590, 5.133, 7.695, 2.574),
    "rtx-5090": (2.625, 5.234, 7.844, 2.625),
}


def numbers(name: str) -> SmNumbers:
    """Of a machine whose code is always there."""
    return replace(numbers_of(load_machine(name)), code=None)


def stream(text: str, count: int) -> tuple[list[str], list[int]]:
    """So many instructions, at the two clocks in which a warp issued them, and their words."""
    code = [f"2: {text.format(10 + number % 80)}" for number in range(count)]
    return code, (access(1) * count if text.startswith("LDS") else [])


def alone(text: str, warps: int, machine: str) -> float:
    """Clocks that one more instruction of every warp takes."""
    ends = []
    for count in (100, 300):
        code, words = stream(text, count)
        ends.append(run([*code, "EXIT"], [words] * warps, numbers=numbers(machine)).ended)
    return (ends[1] - ends[0]) / 200


@pytest.mark.parametrize("machine", MEASURED)
@pytest.mark.parametrize("text", READING)
def test_a_register_takes_two_clocks(text: str, machine: str) -> None:
    # 2.04, 3.90, 5.82 and 2.04 clocks on an H800; 2.02, 3.98, 5.94 and 2.02 on an RTX 5090
    assert alone(text, 1, machine) == pytest.approx(2 * READING[text], rel=0.01)


@pytest.mark.parametrize("machine", MEASURED)
def test_addresses_have_two_registers_and_stores_their_data(machine: str) -> None:
    # 3.90 clocks on an H800, 3.98 on an RTX 5090; STG.E.128 delays what is behind it by 10 or 11 there, which six registers explain
    for text, clocks in (("LDG.E R{}, [R2.64]", 4), ("STG.E.128 desc[UR4][R2.64], R4", 12)):
        ends = [
            run([text.format(10 + n % 80) for n in range(count)] + ["EXIT"], [access(1, {0: 1}) * count],
                numbers=numbers(machine), lines=1, share=0.0, l2_rate=1e6).ended
            for count in (100, 300)
        ]  # fmt: skip
        assert (ends[1] - ends[0]) / 200 == pytest.approx(clocks, rel=0.01)


@pytest.mark.parametrize(("machine", "most"), [("h100-sxm", 0.99), ("b200", 0.99), ("rtx-5090", 0.505)])
def test_sub_partitions_share_the_lsu(machine: str, most: float) -> None:
    # instructions per clock of all eight warps, and of four in different sub-partitions
    text = "LDS R{}, [R1]"
    assert 8 / alone(text, 8, machine) == pytest.approx(most, rel=0.02)
    assert 4 / alone(text, 4, machine) == pytest.approx(most, rel=0.02)


@pytest.mark.parametrize("machine", BESIDE_MUFU)
@pytest.mark.parametrize("text", READING)
def test_special_functions_read_their_registers_first(text: str, machine: str) -> None:
    measured = BESIDE_MUFU[machine][list(READING).index(text)]
    mufu = [f"2: MUFU.RCP R{10 + number % 80}, R4" for number in range(1200)]
    ends = []
    for count in (100, 300):
        code, words = stream(text, count)
        # the marked warp ends with the code; the other, in the same sub-partition, runs longer
        warps = [(0, words), *[(2, [])] * 3, (1, [])]
        seen = run_roles([code, mufu, []], warps, numbers=numbers(machine))
        ends.append(int(seen.resident_clocks) - int(seen.ended))
    assert (ends[1] - ends[0]) / 200 == pytest.approx(measured, rel=0.04)


def burst(machine: str, warps: int, most: int, wavefronts: int = 1) -> list[int]:
    """Of bursts of 2, 3, … loads from shared memory that read no register: clocks that the last load adds for each of the warps."""
    ends = []
    for count in range(1, most + 1):
        code, _ = stream(NOT_READING, count)
        ends.append(
            run([*code, "EXIT"], [access(wavefronts) * count] * warps, numbers=numbers(machine)).ended
        )
    return [after - before for before, after in pairwise(ends)]


def steps(machine: str, warps: int, most: int) -> list[int]:
    """By which number of loads a burst takes more than two clocks longer, first and from then on as long as the last: those numbers,
    and how much longer it then takes."""
    more = burst(machine, warps, most)
    first = next(number for number, clocks in enumerate(more, 2) if clocks > 2)
    return [first, next(number for number, clocks in enumerate(more, 2) if clocks == more[-1]), more[-1]]


def test_bursts_fill_the_queues() -> None:
    # of loads that read no register, by all sub-partitions: two clocks longer for each up to the fifth, eight from the seventh on
    assert steps("rtx-5090", 4, 12) == [6, 7, 8]
    # an H800 has twice the LSU: two clocks up to the 16th, then four; with two warps in each, about six, then eight
    assert steps("h100-sxm", 4, 24) == pytest.approx([17, 18, 4], abs=1)
    assert steps("h100-sxm", 8, 12) == pytest.approx([6, 7, 8], abs=1)


@pytest.mark.parametrize(
    ("machine", "warps", "wavefronts", "first", "clocks"),
    [
        ("rtx-5090", 1, 2, 21, 4),
        ("rtx-5090", 1, 4, 19, 8),
        ("rtx-5090", 1, 8, 18, 16),
        ("rtx-5090", 1, 32, 18, 64),
        ("rtx-5090", 2, 32, 13, 64),
        ("rtx-5090", 4, 32, 9, 128),
        ("h100-sxm", 1, 32, 31, 64),  # a B200 from the 30th on
        ("h100-sxm", 4, 32, 16, 128),
    ],
)
def test_the_sm_holds_instructions_with_bank_conflicts(
    machine: str, warps: int, wavefronts: int, first: int, clocks: int
) -> None:
    # measured: the first load that waits longer than queues do, and how long each waits from then on: one warp has a wavefront
    # every other clock, several in different sub-partitions one a clock together
    more = burst(machine, warps, first + 8, wavefronts)
    # the queues themselves let a load in every 2, 4 and 8 clocks
    queued = {1: 2, 2: 4, 4: 8}[warps]
    assert next(number for number, each in enumerate(more, 2) if each > queued) == pytest.approx(first, abs=2)
    assert more[-1] == clocks


def test_loads_of_many_lines_have_a_line_each_clock() -> None:
    # on a B200 the 35th load of 32 lines is the first that waits, and from then on each takes 32 clocks
    ends = []
    for count in range(1, 41):
        code = [f"2: LDG.E R{10 + n % 80}, [R2.64]" for n in range(count)]
        words = access(32, dict.fromkeys(range(32), 1)) * count
        ends.append(
            run([*code, "EXIT"], [words], numbers=numbers("b200"), lines=32, share=0.0, l2_rate=1e6).ended
        )
    more = [after - before for before, after in pairwise(ends)]
    assert next(number for number, each in enumerate(more, 2) if each > 4) == pytest.approx(35, abs=1)
    assert more[-1] == 32


def test_a_machine_without_the_rate_has_clocks_by_instruction() -> None:
    code, words = stream("LDS R{}, [R1]", 40)
    few = run([*code[:20], "EXIT"], [words[: len(words) // 2]], numbers=TOY).ended
    assert run([*code, "EXIT"], [words], numbers=TOY).ended - few == 20 * TOY.address_clocks
