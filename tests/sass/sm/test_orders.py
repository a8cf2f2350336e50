"""Which of two versions is faster, as is known of GPUs, on the SM of every machine file. Machine code written by hand: no assembler.

A CTA has eight warps that all do the same, each on lines of its own; an SM holds two of four CTAs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest

from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.timing.models.simulation import numbers_of

from .machines import access, run
from .pipelines import pipeline, plain, shared_b, tiles

NUMBERS = {name: numbers_of(load_machine(name)) for name in machine_ids()}
WARPS, RESIDENT, CTAS = 8, 2, 4
#: one machine of each compute capability
FEW = {numbers.architecture: numbers for numbers in NUMBERS.values()}


@dataclass
class Code:
    """Machine instructions, and the accesses that a warp makes; lines are counted from 0 in each warp."""

    texts: list[str] = field(default_factory=list)
    accesses: list[tuple[int, dict[int, int]]] = field(default_factory=list)

    def plain(self, *texts: str) -> Code:
        self.texts += texts
        return self

    def memory(self, text: str, wavefronts: int = 1, lines: dict[int, int] | None = None) -> Code:
        self.texts.append(text)
        self.accesses.append((wavefronts, lines or {}))
        return self


def cycles(code: Code, numbers: SmNumbers, share: float = 0.0) -> int:
    """``share``: of the lines that come from DRAM."""
    own = 1 + max((line for _, lines in code.accesses for line in lines), default=-1)
    warps = [
        [
            word
            for wavefronts, lines in code.accesses
            for word in access(wavefronts, {warp * own + line: sectors for line, sectors in lines.items()})
        ]
        for warp in range(WARPS)
    ]
    seen = run(
        [*code.texts, "EXIT"], warps, numbers=numbers, ctas=CTAS, resident=RESIDENT, share=share, lines=own * WARPS,
        l2_rate=numbers.l2_rate / numbers.sm_count, dram_rate=numbers.mixed / numbers.sm_count,
    )  # fmt: skip
    return seen.cycles + seen.skipped_cycles


def stored(wavefronts: int) -> Code:
    """A tile of a transpose through shared memory; the store of a column meets so many lanes in one bank."""
    code = Code()
    for row in range(4):
        code.memory(f"LDG.E R{8 + row}, [R2.64]", lines={row: 15})
    for row in range(4):
        code.memory(f"STS [R4], R{8 + row}", wavefronts)
    code.plain("BAR.SYNC 0x0")
    for row in range(4):
        code.memory(f"LDS R{8 + row}, [R5]").memory(f"STG.E [R6.64], R{8 + row}", lines={4 + row: 15})
    return code


def copied(lines: int) -> Code:
    """Four loads and stores; the lanes of a store lie in so many lines."""
    code = Code()
    for row in range(4):
        code.memory(f"LDG.E R{8 + row}, [R2.64]", lines={row: 15})
    for row in range(4):
        spread = {4 + n: 1 << row for n in range(32)} if lines == 32 else {4 + row: 15}
        code.memory(f"STG.E [R6.64], R{8 + row}", lines=spread)
    return code


def wide(width: int) -> Code:
    """16 words of shared memory by each lane, and a sum of them. Neighbours read the same, as in a product of matrices: four
    words at once take two wavefronts."""
    suffix = {1: "", 2: ".64", 4: ".128"}[width]
    code = Code()
    for n in range(0, 16, width):
        code.memory(f"LDS{suffix} R{8 + n}, [R2]", max(1, width // 2))
    return code.plain(*(f"FADD R4, R4, R{8 + n}" for n in range(16)))


def loop(turns: int, each: int) -> Code:
    """So many times ``each`` loads and multiply-adds, and what a loop costs."""
    code = Code()
    for _ in range(turns):
        for n in range(each):
            code.memory(f"LDS R{8 + n}, [R2]")
        code.plain(*(f"FFMA R4, R{8 + n}, R5, R4" for n in range(each)))
        code.plain("IADD3 R2, R2, 0x4, RZ", "ISETP.NE.AND P0, PT, R2, R3, PT", "NOP", "NOP")
    return code


def product(loads: str, products: int, lines: int = 0) -> Code:
    """Of a matrix product: eight turns of two loads for so many multiply-adds; from global memory, or shared."""
    code = Code()
    for turn in range(32 // products):
        for n in (8, 9):
            where = {(2 * turn + n) % max(1, lines): 15} if lines else {}
            code.memory(f"{loads} R{n}, [R2{'.64' if lines else ''}]", lines=where)
        code.plain(*(f"FFMA R{16 + n}, R8, R9, R{16 + n}" for n in range(products)))
    return code


def summed(steps: list[tuple[str, int]]) -> Code:
    """A sum over a CTA: each step through shared memory with so many wavefronts, or by a shuffle."""
    code = Code().memory("LDG.E R4, [R2.64]", lines={0: 15})
    for way, wavefronts in steps:
        if way == "shuffle":
            code.plain("SHFL.BFLY PT, R8, R4, 0x1, 0x1f", "FADD R4, R4, R8")
        else:
            code.memory("STS [R5], R4", wavefronts).plain("BAR.SYNC 0x0").memory("LDS R8, [R6]", wavefronts)
            code.plain("FADD R4, R4, R8")
    return code


def spilled(count: int) -> Code:
    code = Code().memory("LDG.E R4, [R2.64]", lines={0: 15})
    for n in range(count):
        code.memory(f"STL [R1], R{8 + n}", lines={1 + n: 15})
    code.plain(*("FFMA R4, R4, R5, R4" for _ in range(8)))
    for n in range(count):
        code.memory(f"LDL R{8 + n}, [R1]", lines={1 + n: 15}).plain(f"FADD R4, R4, R{8 + n}")
    return code


def counted(lanes: int) -> Code:
    """Sums at addresses of shared memory, so many lanes at one."""
    code = Code()
    for _ in range(8):
        code.memory("ATOMS.ADD RZ, [R2], R3", lanes)
    return code


def ahead(groups: int) -> Code:
    """Copies to shared memory, waited for so many groups later."""
    code = Code()
    copy = "LDGSTS.E [R5], [R2.64]"

    def group(turn: int) -> None:
        for n in range(2):
            code.texts.append(copy)
            code.accesses += [(1, {}), (1, {2 * turn + n: 15})]
        code.plain("LDGDEPBAR")

    for turn in range(groups):
        group(turn)
    for turn in range(8):
        if turn + groups < 8:
            group(turn + groups)
        code.plain(f"DEPBAR.LE SB0, {max(0, min(groups, 7 - turn)):#x}", "BAR.SYNC 0x0")
        code.memory("LDS R8, [R2]").plain(*("FFMA R4, R8, R5, R4" for _ in range(16)))
    return code


#: of each the faster version, then the slower ones
ORDERS: dict[str, tuple[Callable[[], Code], ...]] = {
    "padding of a transpose": (lambda: stored(1), lambda: stored(32)),
    "coalesced stores": (lambda: copied(1), lambda: copied(32)),
    "vector width": (lambda: wide(4), lambda: wide(1)),
    "unrolling": (lambda: loop(2, 8), lambda: loop(16, 1)),
    "stages of a product": (
        lambda: product("LDS", 16),
        lambda: product("LDS", 1),
        lambda: product("LDG.E", 1, 64),
    ),
    "steps of a reduction": (
        lambda: summed([("shuffle", 1)] * 5 + [("shared", 1)]),
        lambda: summed([("shared", 1)] * 6),
        lambda: summed([("shared", 32)] * 6),
    ),
    "spills": (lambda: spilled(0), lambda: spilled(4), lambda: spilled(16)),
    "contended atomics": (lambda: counted(1), lambda: counted(8), lambda: counted(32)),
    "copies ahead": (lambda: ahead(3), lambda: ahead(1), lambda: ahead(0)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_faster_version_is_predicted_faster_on_every_machine(name: str) -> None:
    versions = [version() for version in ORDERS[name]]
    copies = any("LDGSTS" in text for text in versions[0].texts)  # there from sm_80 on
    wrong = {}
    for machine, numbers in NUMBERS.items():
        if copies and numbers.architecture < 80:
            continue
        times = [cycles(code, numbers) for code in versions]
        if any(one >= other for one, other in pairwise(times)):
            wrong[machine] = times
    assert not wrong


#: machines with bulk copies, mbarriers and clusters
COPYING = {name: numbers for name, numbers in NUMBERS.items() if numbers.architecture >= 90}
#: with these and matrix products, likewise: 24 stages of 32 KiB and four products
ASYNCHRONOUS: dict[str, tuple[Callable[[SmNumbers], float], ...]] = {
    "stages of a pipeline": tuple(
        lambda numbers, depth=depth: pipeline(numbers, 24, depth, 32768, 4) for depth in (4, 2, 1)
    ),
    "warp-specialised": (
        lambda numbers: pipeline(numbers, 24, 3, 32768, 4),
        lambda numbers: plain(numbers, 24, 32768, 4),
    ),
    "multicast in a cluster": (
        lambda numbers: shared_b(numbers, multicast=True),
        lambda numbers: shared_b(numbers, multicast=False),
    ),
    "persistent": (
        lambda numbers: tiles(numbers, persistent=True),
        lambda numbers: tiles(numbers, persistent=False),
    ),
}


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_faster_asynchronous_version_is_predicted_faster_on_every_machine(name: str) -> None:
    hopper, blackwell = (
        "h100-sxm h100-pcie h200-sxm gh200",
        "b200 b300 rtx-5070-ti rtx-5080 rtx-5090 rtx-pro-6000-blackwell",
    )
    assert {*hopper.split(), *blackwell.split()} == COPYING.keys()
    for machine, numbers in COPYING.items():
        times = [version(numbers) for version in ASYNCHRONOUS[name]]
        # by more than a twentieth each
        assert all(1.05 * one < other for one, other in pairwise(times)), (machine, times)


def test_ctas_that_stay_are_predicted_faster_than_new_ones_on_every_machine() -> None:
    tile = ["LDG.E R4, [R2.64]", *["FFMA R4, R4, R5, R4"] * 8, "STG.E [R2.64], R4"]
    wrong = {}
    for machine, numbers in NUMBERS.items():
        loop = [access(1, {2 * warp: 15}) + access(1, {2 * warp + 1: 15}) for warp in range(WARPS)]
        times = [
            run(
                [*tile * (CTAS if stay else 1), "EXIT"], [words * (CTAS if stay else 1) for words in loop],
                numbers=numbers, ctas=RESIDENT * (1 if stay else CTAS), resident=RESIDENT, lines=2 * WARPS,
            ).cycles
            for stay in (True, False)
        ]  # fmt: skip
        if times[0] >= times[1]:
            wrong[machine] = times
    assert not wrong


FIXED = [stored(4), product("LDG.E", 4, 16), counted(4), ahead(1)]
#: The longest that the times below may be against the order, relative to the shorter one: where loads take equally long from all
#: slices of L2 and from busy DRAM; and where they do not, so that loads that issue some clocks later meet others (0.3 % is seen).
EVEN, APART = 1.0, 1.005


def of_slices(apart: bool) -> dict[int, SmNumbers]:
    even = {"spread": 0, "wait_one_way": 0.0, "wait_mixed": 0.0}
    return {number: numbers if apart else replace(numbers, **even) for number, numbers in FEW.items()}


@pytest.mark.parametrize(
    ("better", "even"),
    [
        pytest.param(lambda n: replace(n, one_way=2 * n.one_way, mixed=2 * n.mixed), EVEN, id="DRAM"),
        pytest.param(lambda n: replace(n, l2_rate=2 * n.l2_rate, port_rate=2 * n.port_rate), EVEN, id="L2"),
        # two of 7,111 clocks on 8.0, as below
        pytest.param(
            lambda n: replace(n, lanes={unit: 2 * x for unit, x in n.lanes.items()}), 1.0003, id="units"
        ),
        pytest.param(lambda n: replace(n, turnaround=n.turnaround // 2), EVEN, id="turnaround"),
        # two of 7,131 clocks on 8.0: warps that issue earlier take the units of others
        pytest.param(lambda n: replace(n, queue=2 * n.queue), 1.0003, id="queue"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_better_machine_is_never_slower(
    better: Callable[[SmNumbers], SmNumbers], even: float, apart: bool
) -> None:
    wrong, most = {}, APART if apart else even
    for machine, numbers in of_slices(apart).items():
        times = [(cycles(code, better(numbers), 1.0), cycles(code, numbers, 1.0)) for code in FIXED]
        if any(one > most * other for one, other in times):
            wrong[machine] = times
    assert not wrong


@pytest.mark.parametrize("apart", [False, True])
def test_more_work_is_never_faster(apart: bool) -> None:
    more: list[Callable[[Code], Code]] = [
        lambda code: code.plain("FFMA R4, R4, R4, R4"),
        lambda code: code.plain("MUFU.RCP R5, R4"),
        lambda code: code.memory("LDS R8, [R2]", 8),
        lambda code: code.memory("LDG.E R9, [R2.64]", lines={40: 15}),
        lambda code: code.plain("BAR.SYNC 0x0"),
    ]
    wrong, most = {}, APART if apart else EVEN
    for machine, numbers in of_slices(apart).items():
        before = cycles(product("LDG.E", 4, 16), numbers, 1.0)
        for number, add in enumerate(more):
            after = cycles(add(product("LDG.E", 4, 16)), numbers, 1.0)
            if most * after < before:
                wrong[machine, number] = before, after
    assert not wrong


def anything(random: Random) -> tuple[list[str], list[list[int]], int]:
    """Code of some instructions for some warps, and how many lines they touch."""
    texts: list[str] = []
    warps: list[list[int]] = [[] for _ in range(random.choice([1, 4, 8, 12]))]
    lines = 0
    for _ in range(random.randrange(6, 40)):
        register, one, other = (random.randrange(4, 12) for _ in range(3))
        kind = random.choice(["FFMA", "FFMA", "MUFU", "LDS", "LDG", "LDG", "STG", "BAR"])
        texts.append({
            "FFMA": f"FFMA R{register}, R{one}, R{other}, R{register}",
            "MUFU": f"MUFU.RCP R{register}, R{one}",
            "LDS": f"LDS R{register}, [R2]",
            "LDG": f"LDG.E R{register}, [R2.64]",
            "STG": f"STG.E [R2.64], R{register}",
            "BAR": "BAR.SYNC 0x0",
        }[kind])  # fmt: skip
        count, shared, waves = random.choice([1, 4, 8]), random.random() < 0.5, random.choice([1, 2, 8])
        for words in warps:
            if kind == "LDS":
                words += access(waves)
            elif kind in ("LDG", "STG"):
                words += access(1, {lines + line: 15 for line in range(count)})
                lines += 0 if shared else count
        lines += count
    return [*texts, "EXIT"], warps, lines


@pytest.mark.parametrize("seed", range(4))
def test_more_bandwidth_of_dram_never_slows_down_random_code(seed: int) -> None:
    random, names = Random(seed), sorted(name for name in NUMBERS if NUMBERS[name].architecture >= 80)
    for _ in range(25):
        texts, warps, lines = anything(random)
        numbers, ctas, share = (
            NUMBERS[random.choice(names)],
            random.choice([1, 2, 5]),
            random.choice([0.3, 1.0]),
        )
        slow, fast = (
            run(texts, warps, numbers=numbers, ctas=ctas, lines=lines, share=share, dram_rate=rate).cycles
            for rate in (4.0, 8.0)
        )
        assert fast <= slow, (texts, ctas, share)
