"""Unrolled loops against the loops that they were made of, and both against NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.random_kernels import Seeded

from .rewritten import LANES, LOOPS, WORDS, looped, run

COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "ne": operator.ne,
}  # fmt: skip
INVERSE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq"}
TRIPS = (1, 2, 5, 8, 16, 100)
#: a counter in %r2 goes up from 0 to the bound; sums in %r9
COUNTED = "add.u32 %r2, %r2, 1;", "setp.lt.u32 %p1, %r2, {bound};"
STORE = "st.global.u32 [%rd1], %r9;"


def number(value: int, kind: str) -> int:
    """A value of a type, as the PTX manual has it: modulo 2^bits, in two's complement for signed types."""
    bits = int(kind[1:])
    value %= 1 << bits
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


def last_of(start: int, step: int, comparison: str, bound: int, kind: str) -> tuple[int, int]:
    """The iterations of a loop that adds the step and then goes on while the comparison holds, and its counter behind it."""
    trips, at = 0, number(start, kind)
    while True:
        trips, at = trips + 1, number(at + step, kind)
        if not COMPARED[comparison](at, number(bound, kind)):
            return trips, at


#: Step, comparison, start and bound; the lane is added to the start, and the parameter, 3, to the bound where it is a register.
UP = [(step, comparison, start, bound) for step in (1, 3, 4) for comparison in ("lt", "le")
      for start, bound in ((0, 5), (0, 97), (40, 60), (-20 % 2**31, 11))]  # fmt: skip
DOWN = [(-step, comparison, start, bound) for step in (1, 3, 4) for comparison in ("gt", "ge")
        for start, bound in ((70, 12), (40, 37), (200, 100))]  # fmt: skip
NOT_EQUAL = [(1, "ne", 0, 64), (-1, "ne", 5, 0), (4, "ne", 0, 400)]


@pytest.mark.parametrize(
    "kind, negated", [("s32", False), ("u32", True), ("s64", True), ("u64", False)], ids=str
)
def test_counters_of_all_kinds(kind: str, negated: bool) -> None:
    """Up and down, with bounds in registers and immediate ones, from starts that differ between lanes: the sum of the counters."""
    parts, expected = [], list[NDArray[np.int64]]()
    wide = kind.endswith("64")
    counter, bits = ("%rd5", 64) if wide else ("%r2", 32)
    for step, comparison, start, bound in [*UP[:6], *UP[9:], *DOWN, *NOT_EQUAL]:
        for register in (False, True):
            if start > bound and step > 0:  # once, or until the counter wraps
                continue
            lanes = LANES * (abs(step) if comparison == "ne" else 1) * (comparison != "ne")
            sign = f"setp.{INVERSE[comparison] if negated else comparison}.{kind} %p1, {counter}, "
            limit = ("%rd6" if wide else "%r3") if register else str(bound)
            before = (
                f"mov.u32 %r9, 0; add.u32 %r4, %r1, {bound - 3}; mov.u32 %r3, %r4; cvt.u64.u32 %rd6, %r3;"
            )
            if comparison == "ne":
                before += f"mov.u32 %r2, {start};"
            else:
                before += f"add.u32 %r2, %r0, {start};"
            before += "cvt.u64.u32 %rd5, %r2;"
            body = f"add.s{bits} {counter}, {counter}, {step};"
            if wide:
                body += "cvt.u32.u64 %r2, %rd5;"
            body += "add.u32 %r9, %r9, %r2;"
            after = f"mad.lo.u32 %r9, %r2, 3, %r9; st.global.u32 [%rd1+{128 * len(expected)}], %r9;"
            label = f"L{len(expected)}"
            text = looped(body, sign + limit + ";", before, after, "@!%p1" if negated else "@%p1")
            parts.append(text.replace("L:", f"{label}:").replace("bra L;", f"bra {label};"))
            values = []
            for lane in lanes:
                trips, end = last_of(start + int(lane), step, comparison, bound, kind)
                values.append(trips * (start + int(lane)) + step * trips * (trips + 1) // 2 + 3 * end)
            expected.append(np.array(values))
    both = run("\n".join(parts), 3, len(expected))
    assert both.made is not None
    both.check(expected)


@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("step", [1, 3, -4])
def test_constant_numbers_of_iterations(trips: int, step: int) -> None:
    """Straight code: no branch is left, and the counter holds its last value behind the loop."""
    comparison = "lt" if step > 0 else "gt"
    body = f"add.s32 %r2, %r2, {step}; mad.lo.u32 %r9, %r9, 3, %r2;"
    # a bound that is not reached exactly as well
    bound = 7 + step * trips - (step // abs(step)) * (abs(step) > 1)
    both = run(
        looped(body, f"setp.{comparison}.s32 %p1, %r2, {bound};", "mov.u32 %r2, 7; mov.u32 %r9, %r0;",
               "st.global.u32 [%rd1+128], %r2;" + STORE),
        words=2,
    )  # fmt: skip
    assert both.made is not None
    assert not any(item.opcode == "bra" for item in both.made.kernel.instructions)
    total = LANES.copy()
    for turn in range(trips):
        total = (3 * total + 7 + step * (turn + 1)) & 0xFFFFFFFF
    both.check([total, np.array(7 + step * trips)])


def test_constant_loops_that_run_once_as_their_start_is_beyond_the_bound() -> None:
    for start, step, comparison, bound in ((10, 1, "lt", 5), (3, -1, "gt", 8), (20, 4, "le", 0)):
        body = f"add.s32 %r2, %r2, {step}; add.u32 %r9, %r9, 1;"
        both = run(
            looped(body, f"setp.{comparison}.s32 %p1, %r2, {bound};", f"mov.u32 %r2, {start}; mov.u32 %r9, 0;",
                   "st.global.u32 [%rd1+128], %r2;" + STORE),
            words=2,
        )  # fmt: skip
        both.check([np.array(1), np.array(start + step)])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 31, 200])
def test_lanes_of_different_counts_and_none(count: int) -> None:
    """Lane i iterates (i + count) mod 200 times; those without iterations leave the loop out."""
    body = "xor.b32 %r9, %r9, %r2; mul.lo.u32 %r9, %r9, 5;" + COUNTED[0]
    before = f"mov.u32 %r9, 1; mov.u32 %r2, 0; add.u32 %r3, %r0, {count}; rem.u32 %r3, %r3, 201; setp.eq.u32 %p2, %r3, 0; @%p2 bra E;"
    both = run(looped(body, COUNTED[1].format(bound="%r3"), before, "E:" + STORE))
    assert both.made is not None
    expected = np.ones(32, np.int64)
    counts = (LANES + count) % 201
    for turn in range(200):
        expected = np.where(turn < counts, (expected ^ turn) * 5 & 0xFFFFFFFF, expected)
    both.check([expected])


@pytest.mark.parametrize(("bound", "constant"), [("%r1", False), ("24", True)])
class TestBodies:
    """Loops of 24 iterations, their number in a register and as a constant."""

    def run(
        self, body: str, bound: str, before: str = "", after: str = "", words: int = 1, short: bool = True
    ) -> Any:
        both = run(
            looped(body + COUNTED[0], COUNTED[1].format(bound=bound), f"mov.u32 %r2, 0; mov.u32 %r9, 0;{before}",
                   after + STORE),
            24, words,
        )  # fmt: skip
        assert (both.made is not None) == short
        return both

    def test_floats_are_carried(self, bound: str, constant: bool) -> None:
        both = self.run(
            "cvt.rn.f32.u32 %f2, %r2; fma.rn.f32 %f1, %f1, 0f3F000000, %f2;", bound, "mov.f32 %f1, 0f3F800000;",
            "mov.b32 %r9, %f1;",
        )  # fmt: skip
        value = np.float32(1)
        for turn in range(24):  # exact: halves, and sums of few bits are rounded as float64 to float32 are
            value = np.float32(np.float64(value) * 0.5 + turn)
        both.check([np.broadcast_to(np.array(value).view(np.uint32).astype(np.int64), 32)])

    def test_shared_addresses_move(self, bound: str, constant: bool) -> None:
        """Stores at moving addresses, then loads in the opposite direction."""
        before = "mov.u32 %r5, tile; shl.b32 %r6, %r0, 2; add.u32 %r5, %r5, %r6; mov.u32 %r10, 7;"
        body = "st.shared.u32 [%r5], %r10; mad.lo.u32 %r10, %r10, 3, %r0; add.u32 %r5, %r5, 128;"
        second = looped(
            "add.s32 %r5, %r5, -128; ld.shared.u32 %r11, [%r5]; mad.lo.u32 %r9, %r9, 7, %r11; add.s32 %r2, %r2, -1;",
            "setp.gt.s32 %p1, %r2, 0;",
        ).replace("L:", "M:").replace("bra L", "bra M")  # fmt: skip
        both = self.run(body, bound, before, second)
        values, one = [], np.full(32, 7, np.int64)
        for _ in range(24):
            values.append(one)
            one = 3 * one + LANES & 0xFFFFFFFF
        expected = np.zeros(32, np.int64)
        for value in reversed(values):
            expected = 7 * expected + value & 0xFFFFFFFF
        both.check([expected])

    def test_pointers_move(self, bound: str, constant: bool) -> None:
        """Loads and stores at 64-bit pointers that move, one of them backwards."""
        before = """mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd0, %rd5; add.s64 %rd7, %rd6, 8192; mov.u64 %rd8, %rd1;"""
        body = """ld.global.u32 %r10, [%rd6]; ld.global.u32 %r11, [%rd7+-4]; sub.u32 %r12, %r10, %r11; xor.b32 %r9, %r9, %r12;
        st.global.u32 [%rd8+128], %r12; add.s64 %rd6, %rd6, 128; add.s64 %rd7, %rd7, -128; add.u64 %rd8, %rd8, 128;"""
        both = self.run(body, bound, before, words=25)
        given = np.arange(WORDS, dtype=np.int64) * 2654435761
        turns = np.arange(24)[:, None]
        rows = (given[LANES + 32 * turns] - given[LANES + 2047 - 32 * turns]) & 0xFFFFFFFF
        both.check([np.bitwise_xor.reduce(rows), *rows])

    def test_predicated_instructions(self, bound: str, constant: bool) -> None:
        """A register that some lanes set keeps its value in the others, also where it was a known constant or sum before."""
        body = """and.b32 %r10, %r2, %r0; setp.ne.u32 %p2, %r10, 0; mov.u32 %r11, 3; @%p2 mov.u32 %r11, 10; add.u32 %r12, %r2, 5;
        @!%p2 sub.u32 %r12, %r12, %r11; @%p2 ld.global.u32 %r12, [%rd0]; mad.lo.u32 %r9, %r9, %r11, %r12;"""
        both = self.run(body, bound)
        expected = np.zeros(32, np.int64)
        for turn in range(24):
            taken = (turn & LANES) != 0
            expected = expected * np.where(taken, 10, 3) + np.where(taken, 0, turn + 5 - 3) & 0xFFFFFFFF
        both.check([expected])

    def test_guarded_steps(self, bound: str, constant: bool) -> None:
        body = "setp.gt.u32 %p2, %r0, %r2; @%p2 add.u32 %r9, %r9, 4; @!%p2 add.u32 %r10, %r10, 1;"
        both = self.run(body, bound, "mov.u32 %r10, 5;", "mad.lo.u32 %r9, %r10, 100, %r9;")
        taken = np.minimum(LANES, 24)
        both.check([(5 + 24 - taken) * 100 + 4 * taken])

    def test_or_of_disjoint_and_overlapping_bits(self, bound: str, constant: bool) -> None:
        body = """and.b32 %r10, %r0, 28; or.b32 %r11, %r10, 3; or.b32 %r12, %r10, 5; shl.b32 %r13, %r0, 4; or.b32 %r14, %r13, 9;
        or.b32 %r15, %r13, 24; add.u32 %r16, %r10, %r2; or.b32 %r17, %r16, 1; xor.b32 %r18, %r10, 4; and.b32 %r19, %r16, 6;
        add.u32 %r9, %r9, %r11; mad.lo.u32 %r9, %r9, 3, %r12; add.u32 %r9, %r9, %r14; mad.lo.u32 %r9, %r9, 5, %r15;
        mad.lo.u32 %r9, %r9, 7, %r17; add.u32 %r9, %r9, %r18; mad.lo.u32 %r9, %r9, 9, %r19;"""
        both = self.run(body, bound)
        low, total = LANES & 28, np.zeros(32, np.int64)
        for turn in range(24):
            total = 3 * (total + (low | 3)) + (low | 5)
            total = 5 * (total + (16 * LANES | 9)) + (16 * LANES | 24)
            total = 9 * (7 * total + (low + turn | 1) + (low ^ 4)) + (low + turn & 6)
            total &= 0xFFFFFFFF
        both.check([total])

    def test_registers_that_exchange_their_values(self, bound: str, constant: bool) -> None:
        """Copies around the loop: those behind it must not overwrite what others still need."""
        body = """mov.u32 %r13, %r10; mov.u32 %r10, %r11; mov.u32 %r11, %r12; mov.u32 %r12, %r13; mad.lo.u32 %r9, %r9, 3, %r10;"""
        after = "mad.lo.u32 %r9, %r9, 5, %r11; mad.lo.u32 %r9, %r9, 7, %r12;"
        both = self.run(
            body, bound, "mov.u32 %r10, %r0; add.u32 %r11, %r0, 50; mul.lo.u32 %r12, %r0, 9;", after
        )
        one, two, three, total = LANES, LANES + 50, LANES * 9, np.zeros(32, np.int64)
        for _ in range(24):
            one, two, three = two, three, one
            total = 3 * total + one & 0xFFFFFFFF
        both.check([7 * (5 * total + two) + three])

    def test_pairs_are_exchanged(self, bound: str, constant: bool) -> None:
        """Of 25 iterations with their exchange, an odd number of times."""
        body = "mov.u32 %r13, %r11; mov.u32 %r11, %r10; mov.u32 %r10, %r13;"
        both = run(
            looped(body + COUNTED[0], COUNTED[1].format(bound=bound.replace("24", "25")),
                   "mov.u32 %r2, 0; mov.u32 %r10, %r0; add.u32 %r11, %r0, 50;", "mad.lo.u32 %r9, %r10, 1000, %r11;" + STORE),
            25,
        )  # fmt: skip
        both.check([(LANES + 50) * 1000 + LANES])

    def test_values_of_the_iteration_before(self, bound: str, constant: bool) -> None:
        """Fibonacci numbers, and the values of the last iteration behind the loop."""
        body = "add.u32 %r12, %r10, %r11; mov.u32 %r10, %r11; mov.u32 %r11, %r12; add.u32 %r9, %r2, %r12;"
        both = self.run(
            body, bound, "mov.u32 %r10, %r0; mov.u32 %r11, 1;",
            "st.global.u32 [%rd1+128], %r11; st.global.u32 [%rd1+256], %r2; st.global.u32 [%rd1+384], %r10;", 4,
        )  # fmt: skip
        one, two = LANES, np.ones(32, np.int64)
        for _ in range(24):
            one, two = two, one + two
        both.check([two + 23, two, np.array(24), one])

    def test_products_and_shifts_by_constants(self, bound: str, constant: bool) -> None:
        body = """mul.lo.u32 %r10, %r2, 12; shl.b32 %r11, %r2, 30; mad.lo.s32 %r12, %r2, -7, %r10; add.u32 %r13, %r0, %r2;
        mul.lo.s32 %r14, %r13, 9; shl.b32 %r15, %r13, 3; mad.lo.u32 %r16, %r13, 5, %r13; mul.wide.u32 %rd5, %r13, 20;
        mul.lo.u64 %rd6, %rd5, 4294967299; cvt.u32.u64 %r17, %rd6; shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r18, %rd7;
        add.u32 %r9, %r9, %r10; xor.b32 %r9, %r9, %r11; add.u32 %r9, %r9, %r12; mad.lo.u32 %r9, %r9, 3, %r14; xor.b32 %r9, %r9, %r15;
        mad.lo.u32 %r9, %r9, 5, %r16; add.u32 %r9, %r9, %r17; xor.b32 %r9, %r9, %r18;"""
        both = self.run(body, bound, short=constant)
        total, word = np.zeros(32, np.int64), 0xFFFFFFFF
        for turn in range(24):
            total = (total + 12 * turn ^ turn << 30 & word) + 5 * turn
            total = (3 * total + 9 * (LANES + turn) & word) ^ 8 * (LANES + turn)
            wide = (20 * (LANES + turn)).astype(np.uint64) * np.uint64(4294967299)
            total = 5 * total + 6 * (LANES + turn) + (wide & np.uint64(word)).astype(np.int64) & word
            total ^= (wide >> np.uint64(32)).astype(np.int64)
        both.check([total])

    def test_sums_wrap_around(self, bound: str, constant: bool) -> None:
        body = """add.u32 %r10, %r10, 1073741824; add.s32 %r11, %r11, -2147483648; add.s64 %rd5, %rd5, 4611686018427387904;
        shr.u32 %r12, %r10, 29; shr.s32 %r13, %r11, 31; shr.u64 %rd6, %rd5, 60; cvt.u32.u64 %r14, %rd6; mad.lo.u32 %r9, %r9, 3, %r12;
        mad.lo.u32 %r9, %r9, 3, %r13; mad.lo.u32 %r9, %r9, 3, %r14;"""
        both = self.run(body, bound, "mov.u32 %r10, %r0; mov.u32 %r11, 5; mov.u64 %rd5, 99;")
        total = 0
        for turn in range(1, 25):
            total = 27 * total + 9 * (turn % 4 * 2) - 3 * (turn % 2) + turn % 4 * 4 & 0xFFFFFFFF
        both.check([np.array(total)])

    def test_the_test_comes_before_the_step(self, bound: str, constant: bool) -> None:
        """One more iteration than the bound: the value before the step is compared."""
        both = run(
            looped("setp.lt.u32 %p1, %r2, " + bound + "; add.u32 %r2, %r2, 1; add.u32 %r9, %r9, 2;", "",
                   "mov.u32 %r2, 0; mov.u32 %r9, 0;", STORE),
            24,
        )  # fmt: skip
        both.check([np.array(50)])

    def test_the_predicate_is_used_in_the_next_iteration(self, bound: str, constant: bool) -> None:
        """As in loops that load for the iteration after this one."""
        body = "add.u32 %r2, %r2, 1; selp.u32 %r10, 2, 5, %p1; add.u32 %r9, %r9, %r10; setp.lt.u32 %p1, %r2, "
        both = run(
            looped(body + bound + "; @%p1 add.u32 %r9, %r9, 100;", "",
                   "mov.u32 %r2, 0; mov.u32 %r9, 0; setp.ne.u32 %p1, %r0, %r0;", STORE),
            24,
        )  # fmt: skip
        both.check([np.array(5 + 2 * 23 + 100 * 23)])

    def test_the_counter_is_copied_before_its_step(self, bound: str, constant: bool) -> None:
        both = run(
            looped("mov.u32 %r3, %r2; mad.lo.u32 %r9, %r9, 3, %r3; add.u32 %r2, %r3, 1;", COUNTED[1].format(bound=bound),
                   "mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r9, 0;", STORE),
            24,
        )  # fmt: skip
        total = 0
        for turn in range(24):
            total = 3 * total + turn & 0xFFFFFFFF
        both.check([np.array(total)])

    def test_the_copy_of_a_counter_is_the_next_value(self, bound: str, constant: bool) -> None:
        both = run(
            looped("mad.lo.u32 %r9, %r9, 3, %r3; add.u32 %r2, %r3, 1;", COUNTED[1].format(bound=bound) + "mov.u32 %r3, %r2;",
                   "mov.u32 %r3, 0; mov.u32 %r9, 0;", STORE),
            24,
        )  # fmt: skip
        total = 0
        for turn in range(24):
            total = 3 * total + turn & 0xFFFFFFFF
        assert both.made is not None
        both.check([np.array(total)])

    def test_a_second_loop_goes_on_where_the_first_ended(self, bound: str, constant: bool) -> None:
        first = looped(
            "add.u32 %r9, %r9, 1;" + COUNTED[0], COUNTED[1].format(bound=8), "mov.u32 %r2, 0; mov.u32 %r9, 0;"
        )
        second = looped("add.u32 %r9, %r9, 100;" + COUNTED[0], COUNTED[1].format(bound=bound), "", STORE)
        both = run(first + second.replace("L:", "M:").replace("bra L", "bra M"), 24)
        both.check([np.array(8 + 1600)])

    def test_an_inner_loop_whose_counter_is_not_set_again(self, bound: str, constant: bool) -> None:
        """The second time, the counter is beyond the bound, and the loop runs once."""
        inner = looped("add.u32 %r9, %r9, 1;" + COUNTED[0], COUNTED[1].format(bound=bound))
        text = f"mov.u32 %r2, 0; mov.u32 %r9, 0; mov.u32 %r8, 0;\nO: {inner} add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra O;"
        both = run(text + STORE, 24)
        both.check([np.array(26)])

    def test_a_nested_loop(self, bound: str, constant: bool) -> None:
        inner = looped(
            "mad.lo.u32 %r9, %r9, 3, %r2;" + COUNTED[0], COUNTED[1].format(bound=bound), "mov.u32 %r2, 0;"
        )
        text = f"mov.u32 %r9, 0; mov.u32 %r8, 0;\nO: {inner} add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra O;"
        both = run(text + STORE, 24)
        assert both.made is not None
        total = 0
        for turn in 3 * [*range(24)]:
            total = 3 * total + turn & 0xFFFFFFFF
        both.check([np.array(total)])

    def test_a_register_is_base_and_value(self, bound: str, constant: bool) -> None:
        before = "mov.u32 %r5, tile; mad.lo.u32 %r5, %r0, 4, %r5; mov.u32 %r6, %r5;"
        both = self.run(
            "st.shared.u32 [%r5], %r5; add.u32 %r5, %r5, 128;", bound, before,
            "ld.shared.u32 %r9, [%r6+2944]; sub.u32 %r9, %r9, %r6;",
        )  # fmt: skip
        both.check([np.array(23 * 128)])

    def test_atomics_and_wide_accesses(self, bound: str, constant: bool) -> None:
        before = "mov.u32 %r5, tile; mad.lo.u32 %r5, %r0, 16, %r5; mov.u32 %r6, tile; st.shared.v2.u32 [%r5], {%r0, %r0}; bar.sync 0;"
        # two atomics are too many for a loop of an unknown number of iterations
        second_atomic = "red.shared.add.u32 [%r5+4], 1;" if constant else ""
        both = self.run(
            f"""atom.shared.add.u32 %r10, [%r5], %r2; ld.shared.v2.u32 {{%r11, %r12}}, [%r5]; add.u32 %r9, %r9, %r10;
            mad.lo.u32 %r9, %r9, 3, %r11; {second_atomic} add.u32 %r9, %r9, %r12;""",
            bound, before,
        )  # fmt: skip
        first, second, total = LANES.copy(), LANES.copy(), np.zeros(32, np.int64)
        for turn in range(24):
            total, first = total + first, first + turn
            total = 3 * total + first + second & 0xFFFFFFFF
            second = second + constant
        both.check([total])


@pytest.mark.parametrize(
    ("start", "step", "comparison", "bound", "kind"),
    [
        (2**31 - 9, 1, "lt", 2**31 - 1, "s32"), (2**31 - 30, 4, "le", 2**31 - 5, "s32"), (-(2**31) + 9, -1, "gt", -(2**31), "s32"),
        (2**32 - 9, 1, "lt", 2**32 - 1, "u32"), (9, -1, "gt", 0, "u32"), (9, -1, "ne", 0, "u32"), (40, -4, "gt", 3, "u32"),
        (-9, 1, "ne", 0, "s32"), (-9, 1, "ne", 0, "u32"), (9, -1, "ne", 0, "u64"), (-9, 1, "lt", 0, "s64"),
        (5, 1, "lt", 2, "u32"), (1, 1, "lt", 2, "u32"),
        (2**31 - 6, 3, "lt", 2**31 - 1, "u32"), (2**31 + 20, -3, "gt", 2**31 - 9, "u32"),
        (2**32 - 2, 1, "lt", 4, "u32"), (2**31 - 2, 1, "lt", -(2**31) + 4, "s32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("constant", [False, True], ids=["register", "constant"])
def test_counters_near_the_ends_of_their_types(
    start: int, step: int, comparison: str, bound: int, kind: str, constant: bool
) -> None:
    wide = kind.endswith("64")
    counter, limit, bits = ("%rd5", "%rd6", 64) if wide else ("%r2", "%r3", 32)
    # a loop that goes on for longer than it should traps
    before = f"mov.u32 %r9, 0; mov.b{bits} {counter}, {start}; mov.b{bits} {limit}, {bound};"
    if not constant:
        before += (
            "cvt.u64.u32 %rd7, %r1; add.s64 %rd5, %rd5, %rd7; add.u32 %r2, %r2, %r1; add.u32 %r3, %r3, %r1;"
        )
    body = f"add.s{bits} {counter}, {counter}, {step}; add.u32 %r9, %r9, 1; setp.gt.u32 %p3, %r9, 1000; @%p3 trap;"
    given = str(bound) if constant else limit
    both = run(looped(body, f"setp.{comparison}.{kind} %p1, {counter}, {given};", before, STORE))
    assert both.made is not None
    trips, _ = last_of(start, step, comparison, bound, kind)
    both.check([np.array(trips)])


OPERATIONS = (
    "add.u32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mov.u32 {d}, {a};", "mov.b32 {d}, {c};", "shl.b32 {d}, {a}, {s};",
    "mul.lo.u32 {d}, {a}, {c};", "mad.lo.s32 {d}, {a}, {c}, {b};", "and.b32 {d}, {a}, {c};", "or.b32 {d}, {a}, {c};",
    "xor.b32 {d}, {a}, {b};", "add.s32 {d}, {a}, {c};", "sub.u32 {d}, {a}, {c};", "shr.u32 {d}, {a}, {s};", "not.b32 {d}, {a};",
    "setp.lt.s32 %p2, {a}, {b};", "@%p2 mov.u32 {d}, {a};", "@!%p2 add.u32 {d}, {a}, {c};", "selp.b32 {d}, {a}, {b}, %p2;",
    "min.u32 {d}, {a}, {b};", "add.s32 {d}, {d}, {c};", "mul.hi.u32 {d}, {a}, {b};", "bfe.u32 {d}, {a}, 3, 9;",
    "and.b32 %r30, {a}, 124; add.u32 %r30, %r30, %r29; ld.shared.u32 {d}, [%r30+{o}];",
    "and.b32 %r30, {a}, 124; add.u32 %r30, %r30, %r29; st.shared.u32 [%r30+{o}], {b};",
    "and.b32 %r30, {a}, 4092; cvt.u64.u32 %rd9, %r30; add.s64 %rd9, %rd9, %rd0; ld.global.u32 {d}, [%rd9+{o}];",
    "and.b32 %r30, {a}, 124; add.u32 %r30, %r30, %r29; @%p2 ld.shared.u32 {d}, [%r30+{o}];",
    "and.b32 %r30, {a}, 120; add.u32 %r30, %r30, %r29; ld.shared.v2.u32 {{{d}, %r28}}, [%r30]; xor.b32 {d}, {d}, %r28;",
    "add.u32 %r30, %r29, 128; add.u32 %r30, %r30, {o}; atom.shared.add.u32 {d}, [%r30], {a};",
    "add.s64 {w}, {x}, {y};", "sub.u64 {w}, {x}, {c};", "mov.u64 {w}, {x};", "shl.b64 {w}, {x}, {s};", "mul.wide.u32 {w}, {a}, {c};",
    "cvt.s64.s32 {w}, {a};", "mul.lo.s64 {w}, {x}, {c};", "mad.lo.u64 {w}, {x}, {c}, {y};", "and.b64 {w}, {x}, 65535;",
    "or.b64 {w}, {x}, {c};", "@%p2 add.u64 {w}, {x}, {c};", "@!%p2 mov.u64 {w}, {c};", "cvt.u32.u64 {d}, {x};",
    "add.u64 {w}, {w}, {c};",
    "setp.gt.u64 %p2, {x}, {y};", "setp.eq.u32 %p2|%p4, {a}, {b}; selp.u32 {d}, {a}, {b}, %p4;",
    "cvt.rn.f32.u32 %f1, {a}; fma.rn.f32 %f2, %f1, %f1, %f2; mov.b32 {d}, %f2;", "@%p2 add.f32 %f2, %f2, %f3;",
    "add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {d}, {c};", "mov.u32 {d}, tile; sub.u32 {d}, {d}, %r29; mul.hi.s32 {d}, {d}, {a};",
    "cvt.u16.u32 %h1, {a}; add.u16 %h2, %h2, %h1; cvt.u32.u16 {d}, %h2;", "mov.b64 {w}, {{{a}, {b}}};", "max.s32 {d}, {a}, {c};",
)  # fmt: skip


def random_loop(choices: Seeded, number: int) -> str:
    """A loop of up to 16 random instructions on six registers, two of which it may not set, with a random counter; the sum of all
    registers behind it is stored. Each lane has 64 words of shared memory of its own."""
    pool = [f"%r{index}" for index in range(4, 10)]
    text = [f"{'mad.lo.u32' if index % 2 else 'mul.lo.u32'} %r{index}, %r0, {index * 7 + number}{', %r0' if index % 2 else ''};"
            for index in range(4, 10)]  # fmt: skip
    # the counter may be read, but not set
    counter = "%r2"
    step = (1, 2, 3, 4, -1, -3)[choices.number(0, 5)]
    trips = choices.number(1, 21)
    start = choices.number(0, 9) + (0 if step > 0 else 80)
    of_lane = choices.number(0, 2) == 0
    text.append(
        f"mov.u32 %r2, {start}; setp.eq.u32 %p2, %r0, {choices.number(0, 31)}; mov.u32 %r29, tile; mad.lo.u32 %r29, %r0, 256, %r29;"
    )
    bound = start + trips * step
    comparison = ("lt", "le")[choices.number(0, 1)] if step > 0 else ("gt", "ge")[choices.number(0, 1)]
    text.append(
        f"{'add.u32 %r3, %r1, %r0' if of_lane and step > 0 else 'mov.u32 %r3, %r1'}; add.u32 %r3, %r3, {bound};"
    )
    text += [f"mul.wide.u32 %rd{index}, %r{index - 6}, {number + 7 * index};" for index in range(10, 14)]
    text.append("mov.f32 %f2, 0f3F800000; mov.f32 %f3, 0f40000000; mov.u16 %h2, 5;")
    text.append(f"L{number}:")
    for _ in range(choices.number(1, 16)):
        form = OPERATIONS[choices.number(0, len(OPERATIONS) - 1)]
        source = [*pool, counter, "%r0"]
        text.append(
            form.format(
                d=pool[choices.number(0, 3)],
                a=source[choices.number(0, 7)],
                b=source[choices.number(0, 7)],
                c=(1, 3, 4, 16, 255, 12, -4, 4096, 0x7FFFFFFF, 0)[choices.number(0, 9)],
                s=choices.number(0, 31),
                w=f"%rd{choices.number(10, 12)}",
                x=f"%rd{choices.number(10, 13)}",
                y=f"%rd{choices.number(10, 13)}",
                o=4 * choices.number(0, 31),
            )
        )
    text.append(f"add.s32 {counter}, {counter}, {step};")
    limit = "%r3" if choices.number(0, 1) else str(bound)
    text.append(
        f"setp.{comparison}.{('u32', 's32')[choices.number(0, 1)]} %p1, {counter}, {limit}; @%p1 bra L{number};"
    )
    text += [f"mad.lo.u32 %r10, %r10, 31, {one};" for one in (*pool, counter)]
    for index in range(10, 14):
        text.append(
            f"mov.b64 {{%r11, %r12}}, %rd{index}; mad.lo.u32 %r10, %r10, 31, %r11; mad.lo.u32 %r10, %r10, 31, %r12;"
        )
    text.append(
        "mov.b32 %r11, %f2; xor.b32 %r10, %r10, %r11; cvt.u32.u16 %r11, %h2; mad.lo.u32 %r10, %r10, 31, %r11;"
    )
    text.append(f"st.global.u32 [%rd1+{128 * number}], %r10;")
    return "\n".join(text)


@pytest.mark.parametrize("seed", range(5 * LOOPS))
def test_random_bodies(seed: int) -> None:
    """Of 25 loops each."""
    choices = Seeded(1000 + seed)
    fill = looped("st.shared.u32 [%r5], %r2; add.u32 %r5, %r5, 4;" + COUNTED[0], COUNTED[1].format(bound=2048),
                  "mov.u32 %r2, 0; mov.u32 %r5, tile; mov.u32 %r10, %r0;")  # fmt: skip
    both = run(fill + "\n".join(random_loop(choices, number) for number in range(25)), 0, 25)
    assert both.made is not None
    assert both.results.std(axis=1).min() > 0
    both.check()


@pytest.mark.parametrize("kind", ["s32", "u32", "b32", "s64", "u64", "b64"])
def test_shifts_and_conversions_of_constants(kind: str) -> None:
    """Of a counter, negative at first: shifts to the right by up to more than all bits, and conversions to and from 64 bits."""
    bits, wide = int(kind[1:]), kind.endswith("64")
    counter, shifted = ("%rd5", "%rd6") if wide else ("%r2", "%r3")
    amounts = (0, 1, bits - 1, bits, bits + 9)
    fold = "cvt.u32.u64 %r4, %rd6;" if wide else "mov.u32 %r4, %r3;"
    body = "".join(
        f"shr.{kind} {shifted}, {counter}, {amount}; {fold} mad.lo.u32 %r9, %r9, 31, %r4;"
        for amount in amounts
    )
    body += (
        "cvt.u32.u64 %r5, %rd5; cvt.s32.s64 %r6, %rd5; add.u32 %r9, %r9, %r5; xor.b32 %r9, %r9, %r6;"
        if wide
        else "cvt.s64.s32 %rd7, %r2; cvt.u64.u32 %rd8, %r2; mul.wide.s32 %rd9, %r2, 3; mul.wide.u32 %rd10, %r2, 3;"
        + "".join(
            f"shr.u64 %rd7, %rd{at}, 32; cvt.u32.u64 %r5, %rd7; mad.lo.u32 %r9, %r9, 7, %r5;"
            for at in (7, 8, 9, 10)
        )
    )
    body += f"add.s{bits} {counter}, {counter}, 1;"
    both = run(
        looped(
            body,
            f"setp.lt.s{bits} %p1, {counter}, 3;",
            f"mov.u{bits} {counter}, -5; mov.u32 %r9, %r0;",
            STORE,
        )
    )
    assert both.made is not None and not any(item.opcode == "bra" for item in both.made.kernel.instructions)
    total = LANES.copy()
    for at in range(-5, 3):
        value = at if kind[0] == "s" else at % (1 << bits)
        for amount in amounts:
            total = total * 31 + (value >> min(amount, bits)) % (1 << 32)
        if wide:
            total = (total + at % (1 << 32)) & 0xFFFFFFFF ^ at % (1 << 32)
        else:
            unsigned = at % (1 << 32)
            for long in (at, unsigned, at * 3, unsigned * 3):
                total = (total * 7 + (long % (1 << 64) >> 32)) & 0xFFFFFFFF
        total &= 0xFFFFFFFF
    both.check([total])
