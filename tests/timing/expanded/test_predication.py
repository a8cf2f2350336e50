"""Short bodies under predicates against the branches that they were made of, and both against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gpuperf_engine.timing.expanded.predication import predicated

from .rewritten import LANES, WORDS, Both, run

DATA = np.arange(WORDS, dtype=np.uint32) * np.uint32(2654435761)
WORDS_OF_LANES = DATA[:32].astype(np.int64)
#: %r2: the word of the lane; %p1: the lane is under the parameter; %rd3: the place of the lane in the array that is read
BEFORE = "setp.lt.u32 %p1, %r0, %r1; add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r2, [%rd3]; mov.u32 %r9, %r2;"
STORE = "st.global.u32 [%rd1], %r9;"
COUNTS = (0, 1, 11, 32)


def branches(both: Both) -> int:
    made = both.made.kernel if both.made is not None else both.record.program.kernel
    return sum(item.opcode.startswith("bra") for item in made.instructions)


def triangle(body: str, count: int, after: str = STORE, words: int = 1) -> Both:
    """The body is executed by the first ``count`` lanes."""
    return run(f"{BEFORE} @!%p1 bra END; {body} END: {after}", count, words, rewrite=predicated)


def diamond(first: str, second: str, count: int, after: str = STORE) -> Both:
    """The first body is executed by the first ``count`` lanes, the second by the others."""
    text = f"{BEFORE} @!%p1 bra ELSE; {first} bra END; ELSE: {second} END: {after}"
    return run(text, count, rewrite=predicated)


def chosen(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [np.where(count > LANES, first, second)]


@pytest.mark.parametrize("count", COUNTS)
def test_results_behind_a_body_change_in_its_lanes_only(count: int) -> None:
    both = triangle("add.u32 %r3, %r9, 7; mul.lo.u32 %r9, %r3, 5;", count)
    assert branches(both) == 0
    both.check(chosen(count, 5 * (WORDS_OF_LANES + 7), WORDS_OF_LANES))


@pytest.mark.parametrize("count", COUNTS)
def test_loads_and_stores_of_other_lanes_do_not_happen(count: int) -> None:
    """Their addresses are outside of all arrays in the other lanes."""
    body = (
        "add.s64 %rd5, %rd3, 128; ld.global.u32 %r3, [%rd5]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;"
    )
    text = BEFORE + "@!%p1 mov.u64 %rd3, 0; @!%p1 bra END;" + body + "END: st.global.u32 [%rd1+128], %r9;"
    both = run(text, count, 2, rewrite=predicated)
    assert branches(both) == 0
    both.check([*chosen(count, DATA[32:64].astype(np.int64) + 1, np.zeros(32, np.int64)), WORDS_OF_LANES])


@pytest.mark.parametrize("count", COUNTS)
def test_one_of_two_bodies(count: int) -> None:
    both = diamond("add.u32 %r9, %r9, 7;", "mul.lo.u32 %r9, %r9, 3;", count)
    assert branches(both) == 0
    both.check(chosen(count, WORDS_OF_LANES + 7, 3 * WORDS_OF_LANES))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("clobber", ["mov.u32 %r2, 77;", "ld.global.u32 %r2, [%rd3+128];"])
def test_the_first_body_keeps_what_the_second_reads(count: int, clobber: str) -> None:
    """%r2 is not read behind the bodies: in lanes of the second one it is still what was loaded before."""
    both = diamond(f"{clobber} add.u32 %r9, %r2, 1;", "mul.lo.u32 %r9, %r2, 3;", count)
    assert branches(both) == 0
    loaded = np.full(32, 77) if clobber.startswith("mov") else DATA[32:64].astype(np.int64)
    both.check(chosen(count, loaded + 1, 3 * WORDS_OF_LANES))


@pytest.mark.parametrize("count", COUNTS)
def test_a_load_over_its_own_address(count: int) -> None:
    """A pointer to the word of the lane is read from shared memory, over the pointer to it."""
    body = (
        "mov.u64 %rd6, tile; add.s64 %rd6, %rd6, 64; st.shared.u64 [%rd6], %rd0;"
        "ld.shared.u64 %rd6, [%rd6]; ld.global.u32 %r9, [%rd6+4];"
    )
    both = triangle(body, count)
    assert branches(both) == 0
    both.check(chosen(count, np.full(32, int(DATA[1])), WORDS_OF_LANES))


def test_registers_that_mov_cannot_write() -> None:
    """Bytes are loaded into 8-bit registers, and widened to a word of the body."""
    body = ".reg .b8 %c; ld.global.u8 %c, [%rd3]; cvt.u32.u8 %r3, %c; add.u32 %r9, %r9, %r3;"
    both = triangle(body, 20)
    assert branches(both) == 0
    both.check(chosen(20, WORDS_OF_LANES + WORDS_OF_LANES % 256, WORDS_OF_LANES))


@pytest.mark.parametrize(("length", "left"), [(16, 0), (17, 1)])
def test_the_longest_body(length: int, left: int) -> None:
    both = triangle("mad.lo.u32 %r9, %r9, 3, 1;" * length, 9)
    assert branches(both) == left
    value = WORDS_OF_LANES
    for _ in range(length):
        value = (3 * value + 1) & 0xFFFFFFFF
    both.check(chosen(9, value, WORDS_OF_LANES))


@pytest.mark.parametrize(
    "body",
    [
        "setp.eq.u32 %p1, %r2, 0; add.u32 %r9, %r9, 1;",
        "@%p1 add.u32 %r9, %r9, 1;",
        "bar.warp.sync 0x7ff; add.u32 %r9, %r9, 1;",
    ],
    ids=["writes the predicate", "has guards", "synchronises"],
)
def test_bodies_that_stay_behind_their_branches(body: str) -> None:
    both = triangle(body, 11)
    assert both.made is None
    both.check(chosen(11, WORDS_OF_LANES + 1, WORDS_OF_LANES))


def test_a_body_in_a_body() -> None:
    """The inner one loses its branch."""
    body = "add.u32 %r9, %r9, 1; setp.gt.u32 %p2, %r0, 4; @%p2 bra IN; add.u32 %r9, %r9, 16; IN: add.u32 %r9, %r9, 256;"
    both = triangle(body, 11)
    assert branches(both) == 1
    both.check(chosen(11, WORDS_OF_LANES + 257 + 16 * (LANES <= 4), WORDS_OF_LANES))


@pytest.mark.parametrize("count", COUNTS)
def test_a_body_whose_end_is_elsewhere(count: int) -> None:
    """What is reached from several places may be behind other code: the jump there remains."""
    text = f"""{BEFORE} bra.uni TOP; END: add.u32 %r9, %r9, 100; {STORE} ret;
    TOP: @!%p1 bra END; mul.lo.u32 %r9, %r9, 3; bra.uni END; OTHER: add.u32 %r9, %r9, 1; {STORE}"""
    both = run(text, count, rewrite=predicated)
    assert branches(both) == 2
    both.check(chosen(count, 3 * WORDS_OF_LANES + 100, WORDS_OF_LANES + 100))


def test_a_body_in_a_loop_keeps_what_the_next_iteration_reads() -> None:
    """%r4 is written in the body and read by it in later iterations."""
    body = "add.u32 %r4, %r4, %r5; add.u32 %r9, %r9, %r4;"
    text = f"""{BEFORE} mov.u32 %r4, 0; mov.u32 %r5, 0;
    L: and.b32 %r6, %r5, 1; add.u32 %r6, %r6, %r0; and.b32 %r6, %r6, 1; setp.eq.u32 %p2, %r6, 0;
    @!%p2 bra END; {body} END: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r1; @%p3 bra L; {STORE}"""
    both = run(text, 9, rewrite=predicated)
    assert branches(both) == 1
    value, other = WORDS_OF_LANES, np.zeros(32, np.int64)
    for turn in range(9):
        taken = (turn + LANES) % 2 == 0
        other = np.where(taken, other + turn, other)
        value = np.where(taken, value + other, value)
    both.check([value])


#: An operation on registers %r2 to %r6 and its value.
OPERATIONS = {
    "add.u32": lambda a, b: a + b,
    "mul.lo.u32": lambda a, b: a * b,
    "xor.b32": lambda a, b: a ^ b,
    "mov.b32": lambda a, _: a,
    "ld.global.u32": lambda a, _: DATA[a % WORDS].astype(np.int64),
}


@pytest.mark.parametrize("seed", range(12))
def test_random_bodies(seed: int) -> None:
    """Triangles and diamonds of random instructions on five registers, all or some of which are read behind."""
    random = np.random.default_rng(seed)

    def below(most: int) -> int:
        return int(random.integers(most))

    count = COUNTS[below(len(COUNTS))]
    values = {at: WORDS_OF_LANES * (at + 1) & 0xFFFFFFFF for at in range(2, 7)}
    lines = [BEFORE, *(f"mul.lo.u32 %r{at}, %r9, {at + 1};" for at in range(2, 7))]
    taken = count > LANES
    for region in range(6):
        bodies = [list[str](), list[str]()]
        both_sides = below(2)
        for side, lanes in ((0, taken), (1, ~taken))[: 1 + both_sides]:
            for _ in range(1 + below(5)):
                name = list(OPERATIONS)[below(len(OPERATIONS))]
                target, a, b = (2 + below(5) for _ in range(3))
                value = OPERATIONS[name](values[a], values[b]) & 0xFFFFFFFF
                values[target] = np.where(lanes, value, values[target])
                if name.startswith("ld"):
                    bodies[side].append(
                        f"and.b32 %r7, %r{a}, {WORDS - 1}; mul.wide.u32 %rd5, %r7, 4; add.s64 %rd5, %rd5, %rd0;"
                        f"ld.global.u32 %r{target}, [%rd5];"
                    )
                else:
                    second = "" if name.startswith("mov") else f", %r{b}"
                    bodies[side].append(f"{name} %r{target}, %r{a}{second};")
        first, second = map("".join, bodies)
        if both_sides:
            lines.append(f"@!%p1 bra E{region}; {first} bra N{region}; E{region}: {second} N{region}:")
        else:
            lines.append(f"@!%p1 bra N{region}; {first} N{region}:")
        for at in range(2, 7):  # some start again, so that their last values are not read
            if below(3) == 0:
                values[at] = LANES + region
                lines.append(f"add.u32 %r{at}, %r0, {region};")
    stores = [f"st.global.u32 [%rd1+{128 * at}], %r{at + 2};" for at in range(5)]
    both = run("".join([*lines, *stores]), count, 5, rewrite=predicated)
    assert both.made is not None
    both.check([values[at] for at in range(2, 7)])
