"""The order of instructions in a block and the numbers of registers, on random graphs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from gpuperf_engine.timing.expanded.numbering import Numbers
from gpuperf_engine.timing.expanded.order import WAIT, Ordering, Step

LATENCY = 40


def random_steps(seed: int, count: int) -> tuple[list[Step], dict[int, int], list[int]]:
    """Steps that read values of earlier ones, some of which are written again, and memory in order (-1, -2); the sizes of the values,
    and those that are live behind the steps."""
    choices = np.random.default_rng(seed)
    steps, words = list[Step](), {0: 1, 1: 2}
    for at in range(count):
        known = [*words]
        read = {
            known[at] for at in choices.integers(max(0, len(known) - 12), len(known), choices.integers(0, 4))
        }
        loads = bool(choices.random() < 0.3)
        target = int(choices.choice(known)) if choices.random() < 0.15 else len(words)
        words.setdefault(target, int(choices.choice([1, 1, 1, 2, 4])))
        token = int(choices.choice([-1, -2]))
        stores = bool(choices.random() < 0.1)
        reads = (*read, token) if loads or stores else tuple(read)
        writes = (token,) if stores else (target,)
        steps.append(Step(tuple(int(one) for one in reads), writes, LATENCY if loads else 4.0, loads=loads))
    if seed % 2:
        steps.append(Step((0,), (), 1.0, last=True))
    kept = [int(one) for one in choices.choice(len(words), 4, replace=False)]
    return steps, words, kept


def waits(steps: Sequence[Step]) -> set[tuple[int, int]]:
    """Pairs of steps of which the second must follow the first: it reads what the first wrote, writes what it reads or writes, or
    ends the block."""
    pairs = set()
    for later, second in enumerate(steps):
        for earlier, first in enumerate(steps[:later]):
            if (
                set(first.writes) & {*second.reads, *second.writes}
                or set(first.reads) & set(second.writes)
                or second.last
            ):
                pairs.add((earlier, later))
    return pairs


def live_registers(steps: Sequence[Step], words: dict[int, int], kept: Sequence[int]) -> int:
    """The most registers that are live between two steps, backwards from the end."""
    live = set(kept)
    most = sum(words[value] for value in live)
    for step in reversed(steps):
        live -= set(step.writes)
        live |= {value for value in step.reads if value >= 0}
        most = max(most, sum(words[value] for value in live))
    return most


@pytest.mark.parametrize("seed", range(60))
def test_dependences_are_kept_and_registers_bounded(seed: int) -> None:
    steps, words, kept = random_steps(seed, 10 + 3 * seed)
    fewest = None
    for registers in (0, 20, 32, 64, 255):
        order, most = Ordering(steps, words, kept).within(registers, 40)
        assert sorted(order) == [*range(len(steps))]
        place = {at: number for number, at in enumerate(order)}
        assert all(place[earlier] < place[later] for earlier, later in waits(steps))
        # as told, and by liveness of the order that was found
        assert most == live_registers([steps[at] for at in order], words, kept)
        fewest = most if fewest is None else fewest
        assert most <= max(fewest, registers)
    assert Ordering(steps, words, kept).within(255, 40) == Ordering(steps, words, kept).within(255, 40)


@pytest.mark.parametrize("between", [8, 16])
@pytest.mark.parametrize("count", [4, 12])
def test_loads_come_as_many_instructions_ahead_as_their_latency(between: int, count: int) -> None:
    """Of a loop body: each load is used by an addition, ``between`` others behind the one before."""
    steps, words, uses = list[Step](), {0: 1}, list[int]()
    for _ in range(count):
        for _ in range(between):
            words[len(words)] = 1
            steps.append(Step((0,), (), 4.0))
        value = len(words)
        words[value] = words[value + 1] = 1
        steps.append(Step((0,), (value,), LATENCY, loads=True))
        uses.append(len(steps))
        steps.append(Step((value,), (value + 1,), 4.0))
    order, _ = Ordering(steps, words, [0]).within(255, 40)
    place = {at: number for number, at in enumerate(order)}
    ahead = [place[use] - place[use - 1] for use in uses]
    # those of the beginning are as early as they can be
    early = LATENCY // (between + 2) + 1
    assert all(LATENCY - between - 2 <= one <= LATENCY + between + 2 for one in ahead[early:])
    assert [place[use - 1] for use in uses[:early]] == sorted(place[use - 1] for use in uses[:early])


def test_a_chain_of_sums_has_its_loads_a_latency_ahead() -> None:
    """30 loads, each used by a product that adds to the one before: ten loads of four clocks each are issued before the first is
    there, then one between two products, as ptxas 13.0 has it in convolutions."""
    steps, words, total = list[Step](), {0: 1, 1: 1}, 30
    for at in range(2, 2 + total):
        words[at] = 1
        steps += [Step((0,), (at,), LATENCY, loads=True, issue=4), Step((at, 1), (1,), 4.0)]
    order, most = Ordering(steps, words, [1]).within(255, 40)
    assert ["LF"[at % 2] for at in order] == ["L"] * 10 + ["F", "L"] * (total - 10) + ["F"] * 10
    assert most == 12


def rows_of_sums() -> tuple[list[Step], dict[int, int], list[int]]:
    """Sums of products with four columns of two rows, whose 17 values are used again one step of 68 loads later, as nvcc writes a
    convolution: more than 70 live values in this order, of which 8 are sums."""
    steps, words = list[Step](), {0: 1}
    columns, rows, taps, far = 4, 2, 17, 12
    sums = {(column, row): 1 + column * rows + row for column in range(columns) for row in range(rows)}
    words.update(dict.fromkeys(sums.values(), 1))
    loaded: dict[tuple[int, int, int], int] = {}
    for down in range(far):
        for tap in range(taps):
            for column, row in sums:
                key = column, down + row, tap
                if key not in loaded:
                    loaded[key] = len(words)
                    words[loaded[key]] = 1
                    steps.append(Step((0,), (loaded[key],), LATENCY, loads=True, issue=4))
                steps.append(Step((loaded[key], sums[column, row]), (sums[column, row],), 4.0))
    return steps, words, [0, *sums.values()]


@pytest.mark.parametrize("free", [30, 38])
def test_what_is_used_far_behind_does_not_take_the_registers_of_early_loads(free: int) -> None:
    """Column by column few registers are needed, and loads still come early, but take no more than there are with all warps."""
    steps, words, kept = rows_of_sums()
    assert live_registers(steps, words, kept) > 70
    order, most = Ordering(steps, words, kept).within(255, free)
    assert most == live_registers([steps[at] for at in order], words, kept) <= free
    place = {at: number for number, at in enumerate(order)}
    first: dict[int, int] = {}
    for at, step in enumerate(steps):
        for value in step.reads:
            if value > 8:
                first[value] = min(first.get(value, 1 << 30), place[at])
    ahead = [first[step.writes[0]] - place[at] for at, step in enumerate(steps) if step.loads]
    assert np.median(ahead) >= 10


def test_an_assembler_that_keeps_to_the_order_of_a_program_uses_what_it_needs() -> None:
    """From sm_90 on: as many registers as the program holds, and all there are if these are too few."""
    steps, words, kept = rows_of_sums()
    given = live_registers(steps, words, kept)
    ordering = Ordering(steps, words, kept, saves=False)
    assert ordering.needed == given > ordering.least
    order, most = ordering.within(255, 38)
    assert given <= most <= given + 8
    sums = [steps[at].writes for at in order if not steps[at].loads]
    # but for the last few, for which there are no loads left to wait for
    assert sums[:-16] == [step.writes for step in steps if not step.loads][:-16]
    assert ordering.within(60, 38)[1] == 60


def test_loads_wait_where_registers_are_few() -> None:
    """100 loads of four registers, each used at once: with 255 registers many come early, with 20 at most a few."""
    steps, words = list[Step](), {0: 1}
    for _ in range(100):
        value = len(words)
        words[value] = 4
        steps += [Step((0,), (value,), LATENCY, loads=True), Step((value,), (), 4.0)]
    assert Ordering(steps, words, [0]).within(20, 40)[1] <= 20
    assert 20 < Ordering(steps, words, [0]).within(255, 40)[1] <= 255


@pytest.mark.parametrize("room", [62, 94, 126])
def test_loads_come_early_up_to_the_room_of_a_kernel(room: int) -> None:
    """100 loads of four registers, due 80 steps ahead of their use, with three steps each: 27 would wait at once."""
    steps, words, sums = list[Step](), {0: 1}, range(1, 33)
    words.update(dict.fromkeys(sums, 1))
    for _ in range(100):
        value = len(words)
        words[value] = 4
        steps += [
            Step((0,), (value,), 2 * LATENCY, loads=True),
            Step((value, 1), (1,), 4.0),
            Step((2,), (2,), 4.0),
        ]
    ordering = Ordering(steps, words, [0, *sums])
    assert ordering.least == 37
    order, most = ordering.within(255, 30, room)
    assert room - 4 < most <= room
    assert most == live_registers([steps[at] for at in order], words, [0, *sums])
    # without, eight more than the fewest
    assert ordering.within(255, 30)[1] <= 37 + 8


def test_products_come_when_tensor_cores_are_free() -> None:
    """16 independent loads and additions, then as many products of two clocks: one other step between two products."""
    others = [Step((0,), (number,), 4.0, loads=number % 2 == 0) for number in range(1, 17)]
    products = [Step((0,), (number,), 20.0, unit="tensor", busy=2) for number in range(17, 33)]
    words = dict.fromkeys(range(33), 1)
    order, _ = Ordering([*others, *products], words, [*range(33)]).within(255, 40)
    assert [at >= 16 for at in order] == [True, False] * 16
    assert [at for at in order if at < 16] == [*range(16)]


def test_a_wait_does_not_come_before_what_is_due_earlier() -> None:
    """An addition that waits for a product stays in front of a barrier, what follows the barrier may come before it."""
    product, addition = Step((0,), (1,), 20.0, unit="tensor", busy=2), Step((1,), (2,), 4.0)
    barrier, load, further = (
        Step((-1,), (-1,), 4.0, unit=WAIT),
        Step((-1, 0), (3,), 20.0, loads=True),
        Step((0,), (4,), 4.0),
    )
    steps = [product, addition, barrier, load, further]
    order, _ = Ordering(steps, dict.fromkeys(range(5), 1), [2, 3, 4]).within(255, 40)
    assert order == [0, 4, 1, 2, 3]


def test_steps_wait_for_results_where_others_can_be_issued() -> None:
    """Two chains of additions, one behind the other in the program: each step of one fills a clock in which the other waits."""
    chain = [Step((number,), (number + 1,), 2.0) for number in range(1, 9)]
    other = [Step((number + 20,), (number + 21,), 2.0) for number in range(1, 9)]
    words = dict.fromkeys(range(40), 1)
    order, _ = Ordering([*chain, *other], words, [9, 29]).within(255, 40)
    assert [at >= 8 for at in order] == [False, True] * 8


def test_few_registers_are_kept_to_by_the_given_order() -> None:
    """Each of 40 values is used at once: loads cannot come early if only two more registers are left."""
    steps, words = list[Step](), {0: 1}
    for _ in range(40):
        value = len(words)
        words[value] = 4
        steps += [Step((0,), (value,), LATENCY, loads=True), Step((value,), (), 4.0), Step((), (), 4.0)]
    for registers in (5, 7, 9, 13):
        order, most = Ordering(steps, words, [0]).within(registers, 40)
        assert most <= registers and sorted(order) == [*range(120)]


def test_steps_of_equal_rank_keep_their_order() -> None:
    steps = [Step((0,), (number,), 4.0) for number in range(1, 30)]
    words = dict.fromkeys(range(30), 1)
    assert Ordering(steps, words, [*range(30)]).within(255, 40)[0] == [*range(29)]


def assigned(seed: int, count: int) -> None:
    steps, words, kept = random_steps(seed, count)
    uniform = {value for value in words if value % 11 == 5}
    predicates = {value for value in words if value % 13 == 7 and value not in uniform}
    size = {value: 1 if value in predicates else words[value] for value in words}
    cuts = [0, count // 3, count // 2, len(steps)]
    blocks = [*itertools.pairwise(cuts)]
    # liveness of straight code, backwards
    live, behind, before = set(kept), list[set[int]](), list[set[int]]()
    for step in reversed(steps):
        behind.append(set(live))
        live = live - set(step.writes) | {value for value in step.reads if value >= 0}
        before.append(set(live))
    behind.reverse()
    before.reverse()
    numbers = Numbers(size, uniform, predicates)
    numbers.assign(
        blocks,
        [tuple(before[start]) for start, _ in blocks],
        [tuple(behind[end - 1]) for _, end in blocks],
        [(step.reads, step.writes) for step in steps],
    )
    named = {value for step in steps for value in (*step.reads, *step.writes) if value >= 0}
    for value in named:
        places = numbers.of(value)
        assert len(places) == size[value] and places == tuple(range(places[0], places[0] + size[value]))
        assert len(places) == 1 or places[0] % 2 == 0
        first, last = (512, 519) if value in predicates else (256, 319) if value in uniform else (0, 255)
        assert first <= places[0] and places[-1] < last
    for together in (*before, *behind):
        taken = [place for value in together & named for place in numbers.of(value)]
        if sum(size[value] for value in together & named & predicates) <= 4:
            assert len(taken) == len(set(taken)), "two values that are live together share a register"


@pytest.mark.parametrize("seed", range(40))
def test_values_that_are_live_together_have_registers_of_their_own(seed: int) -> None:
    assigned(seed, 12 + 2 * seed)


def test_registers_are_used_again() -> None:
    """A chain of 1000 values needs two registers."""
    words = dict.fromkeys(range(1001), 1)
    numbers = Numbers(words, (), ())
    numbers.assign([(0, 1000)], [(0,)], [(1000,)], [((at,), (at + 1,)) for at in range(1000)])
    assert len({numbers.of(value) for value in range(1001)}) <= 2


def test_values_that_live_around_a_loop_keep_their_register() -> None:
    """Block 1 is a loop: 0 is read in it, and so is live at its end as well, and 1 lives only at its beginning."""
    numbers = Numbers({0: 1, 1: 1, 2: 1}, (), ())
    numbers.assign(
        [(0, 2), (2, 5)],
        [(), (0,)],
        [(0,), (0,)],
        [((), (0,)), ((0,), ()), ((0,), (1,)), ((1,), ()), ((), (2,))],
    )
    assert numbers.of(0) not in (numbers.of(1), numbers.of(2))
    assert numbers.of(0) and numbers.of(1) and numbers.of(2)


def test_more_values_than_registers_share_them() -> None:
    words = dict.fromkeys(range(400), 1)
    numbers = Numbers(words, (), ())
    numbers.assign([(0, 400)], [()], [tuple(range(400))], [((), (at,)) for at in range(400)])
    assert {place for value in range(400) for place in numbers.of(value)} == {*range(255)}
