"""The stack of paths on its own: every case worked out by hand on small block numbers and lane masks."""

from __future__ import annotations

from typing import Any

import pytest

from gpuperf_engine.simt.stack import (
    AFTER,
    AT_END,
    EXIT,
    PENDING,
    RECONVERGE,
    WAIT,
    YIELD_THRESHOLD,
    Convergence,
    SimtStack,
)

ALL = 0xF


class Record:
    """Hooks that write down what happened."""

    def __init__(self) -> None:
        self.convergences: list[Convergence] = []
        self.left: list[tuple[Any, int]] = []
        self.entered: list[tuple[int, int]] = []

    def converge(self, convergence: Convergence) -> None:
        self.convergences.append(convergence)

    def enter(self, function: int, lanes: int) -> tuple[int, int, Any]:
        self.entered.append((function, lanes))
        return function, 100 * function, f"frame {function}"

    def leave(self, payload: Any, lanes: int, others: bool) -> None:
        self.left.append((payload, lanes))


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def warp(record: Record) -> SimtStack:
    return SimtStack(0, ALL, record)


def at(warp: SimtStack) -> tuple[int, int]:
    return warp.pc, warp.mask


def test_a_uniform_branch_pushes_nothing(warp: SimtStack) -> None:
    assert not warp.branch([(1, ALL), (2, 0)], 3)
    assert (at(warp), warp.entries, warp.id) == ((1, ALL), [], EXIT)
    warp.jump(3)  # not the point in force: a plain edge
    assert at(warp) == (3, ALL)


def test_both_sides_run_and_converge(warp: SimtStack) -> None:
    assert warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    assert (at(warp), warp.id) == ((1, 0b0011), 3)
    assert [entry[:4] for entry in warp.entries] == [(3, ALL, EXIT, RECONVERGE), (2, 0b1100, 3, PENDING)]
    warp.jump(3)
    assert at(warp) == (2, 0b1100)
    warp.jump(3)
    assert (at(warp), warp.id, warp.entries) == ((3, ALL), EXIT, [])


def test_a_side_that_is_the_reconvergence_point_waits_there(warp: SimtStack) -> None:
    warp.branch([(3, 0b0001), (2, 0b1110)], 3)  # taken goes straight to the point
    assert at(warp) == (2, 0b1110)
    warp.jump(3)
    assert at(warp) == (3, ALL)
    warp.branch([(4, 0b0100), (5, 0b1011)], 5)  # not taken is the point
    assert at(warp) == (4, 0b0100)
    warp.jump(5)
    assert at(warp) == (5, ALL)


def test_a_loop_that_loses_lanes_pushes_once(warp: SimtStack) -> None:
    for stay in (0b0111, 0b0011, 0b0001):
        assert warp.branch([(1, stay), (2, warp.mask & ~stay)], 2)
        assert len(warp.entries) == 1
        warp.jump(1)
    warp.branch([(1, 0), (2, 0b0001)], 2)
    assert (at(warp), warp.entries) == ((2, ALL), [])


def test_nested_branches(warp: SimtStack) -> None:
    warp.branch([(1, 0b0111), (9, 0b1000)], 10)
    warp.branch([(2, 0b0001), (3, 0b0110)], 4)
    visited = [at(warp)]
    for target in (4, 4, 10, 10):
        warp.jump(target)
        visited.append(at(warp))
    assert visited == [(2, 0b0001), (3, 0b0110), (4, 0b0111), (9, 0b1000), (10, ALL)]


def test_table_branches_run_in_the_order_given(warp: SimtStack) -> None:
    assert warp.branch([(5, 0b0100), (9, 0b0001), (6, 0b1000), (7, 0b0010)], 9)
    order = [at(warp)]
    for _ in range(3):
        warp.jump(9)
        order.append(at(warp))
    assert order == [(5, 0b0100), (6, 0b1000), (7, 0b0010), (9, ALL)]


def test_without_a_reconvergence_point_sides_end_one_by_one(warp: SimtStack) -> None:
    warp.branch([(1, 0b0001), (2, 0b1110)], EXIT)
    assert [entry.kind for entry in warp.entries] == [PENDING]
    warp.exit(warp.mask)
    assert (at(warp), warp.live) == ((2, 0b1110), 0b1110)
    warp.exit(0b0010)
    assert (at(warp), warp.live) == ((2, 0b1100), 0b1100)
    warp.exit(0b1100)
    assert warp.done and not warp.mask and not warp.blocked


def test_lanes_that_exit_do_not_come_back(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    warp.exit(0b0011)
    assert at(warp) == (2, 0b1100)
    warp.exit(0b0100)
    warp.jump(3)
    assert at(warp) == (3, 0b1000)


def test_call_and_return_with_divergence_inside(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0111), (2, 0b1000)], 3)
    warp.call(1, 50, 5, "frame")
    assert at(warp) == (50, 0b0111) and warp.id < 0 and warp.call_depth == 1
    warp.branch([(EXIT, 0b0001), (51, 0b0110)], EXIT)  # a guarded ret
    assert (at(warp), record.left) == ((51, 0b0110), [])
    warp.branch([(52, 0b0010), (53, 0b0100)], 54)
    warp.jump(54)
    warp.jump(54)
    assert at(warp) == (54, 0b0110)
    warp.jump(EXIT)
    assert record.left == [("frame", 0b0111)]
    assert (at(warp), warp.id, warp.call_depth) == ((5, 0b0111), 3, 0)


def test_a_call_just_before_the_reconvergence_point(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0001), (2, 0b1110)], 3)
    warp.call(1, 50, 3)
    warp.jump(EXIT)
    assert at(warp) == (2, 0b1110)
    assert record.left == [(None, 0b0001)]


def test_indirect_calls_go_function_by_function(warp: SimtStack, record: Record) -> None:
    warp.call_each([(2, 0b0101), (4, 0), (3, 0b1010)], 7)
    assert (at(warp), record.entered) == ((200, 0b0101), [(2, 0b0101)])
    warp.jump(EXIT)
    assert (at(warp), record.left) == ((300, 0b1010), [("frame 2", 0b0101)])
    warp.jump(EXIT)
    assert (at(warp), warp.id, warp.entries) == ((7, ALL), EXIT, [])


def test_recursion_keeps_activations_apart(warp: SimtStack, record: Record) -> None:
    warp.call(1, 50, 5, "outer")
    outer = warp.id
    warp.branch([(51, 0b0011), (52, 0b1100)], EXIT)
    warp.call(1, 50, 53, "inner")
    assert warp.id not in (outer, EXIT) and warp.call_depth == 2
    warp.jump(EXIT)
    assert (at(warp), warp.id) == ((53, 0b0011), outer)
    warp.jump(EXIT)
    assert (at(warp), warp.id) == ((52, 0b1100), outer)
    warp.jump(EXIT)
    assert (at(warp), warp.id) == ((5, ALL), EXIT)
    assert record.left == [("inner", 0b0011), ("outer", ALL)]


# Waiting


def test_a_mask_that_is_here_converges_at_once(warp: SimtStack, record: Record) -> None:
    assert warp.arrive("shfl", {ALL: ALL})
    assert record.convergences == [Convergence(ALL, ALL, ((0, ALL),))]


def test_exited_lanes_are_not_waited_for(warp: SimtStack, record: Record) -> None:
    warp.exit(0b0001)
    assert warp.arrive("shfl", {0xFFFFFFFF: 0b1110})
    assert record.convergences == [Convergence(0xFFFFFFFF, 0b1110, ((0, 0b1110),))]


def test_lanes_converge_at_instructions_of_different_branches(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    assert not warp.arrive("shfl", {ALL: 0b0011})
    assert at(warp) == (2, 0b1100)
    assert warp.arrive("shfl", {ALL: 0b1100})
    (convergence,) = record.convergences
    assert convergence.participants == ALL
    assert sorted(convergence.paths) == [(1, 0b0011), (2, 0b1100)]
    assert at(warp) == (2, 0b1100)
    warp.jump(3)
    assert at(warp) == (AFTER + 1, 0b0011)
    warp.pc = 1
    warp.jump(3)
    assert at(warp) == (3, ALL)


def test_lanes_already_at_the_reconvergence_point_go_on_when_nothing_else_can(
    warp: SimtStack, record: Record
) -> None:
    warp.branch([(1, 0b0011), (3, 0b1100)], 3)
    assert not warp.arrive("shfl", {ALL: 0b0011})
    assert (at(warp), warp.id) == ((3, 0b1100), EXIT)
    assert warp.arrive("shfl", {ALL: 0b1100})
    assert len(record.convergences) == 1
    warp.jump(4)
    warp.exit(0b1100)
    assert at(warp) == (AFTER + 1, 0b0011)
    warp.jump(3)
    assert at(warp) == (3, 0b0011)


def test_other_instructions_and_masks_do_not_converge(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    assert not warp.arrive("shfl", {ALL: 0b0011})
    assert not warp.arrive("vote", {ALL: 0b1100})
    assert warp.blocked and not record.convergences
    assert sorted((block, lanes, wait.key) for block, lanes, wait in warp.waiting()) == [
        (1, 0b0011, "shfl"),
        (2, 0b1100, "vote"),
    ]


def test_one_split_may_give_several_masks(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0111), (2, 0b1000)], 3)
    assert not warp.arrive("shfl", {0b0011: 0b0011, 0b1100: 0b0100})
    assert record.convergences == [Convergence(0b0011, 0b0011, ((1, 0b0011),))]
    assert warp.arrive("shfl", {0b1100: 0b1000})
    assert record.convergences[1].participants == 0b1100
    warp.jump(3)
    assert at(warp) == (AFTER + 1, 0b0111)


def test_an_exit_completes_a_mask(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], EXIT)
    assert not warp.arrive("shfl", {ALL: 0b0011})
    warp.exit(0b0100)
    assert not record.convergences
    warp.exit(0b1000)
    assert record.convergences == [Convergence(ALL, 0b0011, ((1, 0b0011),))]
    assert at(warp) == (AFTER + 1, 0b0011)


def test_a_waiting_group_is_passed_over(warp: SimtStack, record: Record) -> None:
    """The inner branch waits on both sides for lanes of the outer side."""
    warp.branch([(1, 0b0011), (5, 0b1100)], 9)
    warp.branch([(2, 0b0001), (3, 0b0010)], 4)
    assert not warp.arrive("bar", {ALL: 0b0001})
    assert at(warp) == (3, 0b0010)
    assert not warp.arrive("bar", {ALL: 0b0010})
    assert at(warp) == (5, 0b1100)
    assert warp.arrive("bar", {ALL: 0b1100})
    warp.jump(9)
    assert warp.pc in (AFTER + 2, AFTER + 3)
    warp.jump(4)
    warp.jump(4)
    assert at(warp) == (4, 0b0011)
    warp.jump(9)
    assert at(warp) == (9, ALL)


def test_barrier_waits_are_released_from_outside(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    warp.wait(6)
    assert at(warp) == (2, 0b1100)
    warp.wait(7)
    assert warp.blocked
    assert [entry.kind for entry in warp.entries] == [RECONVERGE, WAIT, WAIT]
    warp.release(ALL)
    visited = [at(warp)]
    warp.jump(3)
    visited.append(at(warp))
    assert sorted(visited) == [(6, 0b0011), (7, 0b1100)]
    warp.jump(3)
    assert at(warp) == (3, ALL)


# Yielding


def test_the_lane_that_took_the_lock_goes_on(warp: SimtStack) -> None:
    """``while (cas) ; … unlock``: one lane leaves the loop, the others spin until it releases the lock."""
    warp.branch([(1, 0b1110), (2, 0b0001)], 2)
    warp.jump(1)
    warp.switch_path()
    assert at(warp) == (1, 0b1110)  # others may come and help
    assert warp.force_yield()
    warp.switch_path()
    assert (at(warp), warp.id) == ((2, 0b0001), EXIT)
    warp.exit(0b0001)
    assert (at(warp), warp.id) == ((1, 0b1110), 2)
    warp.jump(2)
    assert (at(warp), warp.live) == ((2, 0b1110), 0b1110)


def test_a_warp_yields_after_the_threshold(warp: SimtStack) -> None:
    warp.branch([(1, 0b1110), (2, 0b0001)], 2)
    for _ in range(YIELD_THRESHOLD):
        warp.switch_path()
        assert at(warp) == (1, 0b1110)
    warp.switch_path()
    assert at(warp) == (2, 0b0001)


def test_urging_helps_only_where_lanes_have_arrived(warp: SimtStack) -> None:
    assert not warp.force_yield()
    warp.branch([(1, 0b1110), (2, 0b0001)], 3)
    assert not warp.force_yield()
    warp.jump(3)
    assert warp.force_yield() and not warp.force_yield()


def leave_early(warp: SimtStack) -> None:
    """Lane 0 leaves the loop of block 1 for block 2 while the others spin."""
    warp.branch([(1, 0b1110), (2, 0b0001)], 2)
    warp.force_yield()
    warp.switch_path()
    assert at(warp) == (2, 0b0001)


def test_lanes_that_left_early_are_gathered_at_a_barrier(warp: SimtStack) -> None:
    leave_early(warp)
    warp.jump(7)
    warp.gather()
    assert at(warp) == (1, 0b1110)
    warp.jump(2)
    assert at(warp) == (2, 0b1110)
    warp.jump(7)
    warp.gather()
    assert (at(warp), warp.id, warp.entries) == ((AT_END + 7, ALL), EXIT, [])


def test_the_last_missing_lanes_may_exit(warp: SimtStack) -> None:
    leave_early(warp)
    warp.jump(7)
    warp.gather()
    warp.exit(0b1110)
    assert at(warp) == (AT_END + 7, 0b0001)


def test_lanes_at_two_barriers_are_not_gathered(warp: SimtStack) -> None:
    leave_early(warp)
    warp.jump(7)
    warp.gather()
    warp.jump(2)
    warp.jump(8)
    warp.gather()
    assert warp.blocked


def test_a_barrier_in_a_branch_is_divergent(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (3, 0b1100)], 3)
    warp.gather()
    assert warp.blocked


def test_a_barrier_on_one_side_is_divergent(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    warp.gather()
    assert at(warp) == (2, 0b1100)
    warp.jump(3)
    assert warp.blocked


def test_paths_that_an_early_return_keeps_apart_converge_at_a_barrier(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], EXIT)
    warp.jump(2)
    warp.gather()
    assert at(warp) == (2, 0b1100)
    warp.gather()
    assert (at(warp), warp.id, warp.entries) == ((AT_END + 2, ALL), EXIT, [])


def test_waiting_lanes_prefer_another_split_to_arrived_lanes(warp: SimtStack, record: Record) -> None:
    warp.branch([(1, 0b0011), (2, 0b1100)], EXIT)
    warp.branch([(3, 0b0001), (4, 0b0010)], 4)
    assert not warp.arrive("vote", {0b1101: 0b0001})
    assert at(warp) == (2, 0b1100)
    assert warp.arrive("vote", {0b1101: 0b1100})
    warp.exit(0b1100)
    warp.jump(4)
    assert at(warp) == (4, 0b0011)


def test_sides_take_turns(warp: SimtStack) -> None:
    warp.branch([(1, 0b0001), (2, 0b0010), (3, 0b1100)], 4)
    order = []
    for _ in range(6):
        order.append(warp.pc)
        warp.switch_path()
    assert order == [1, 2, 3, 1, 2, 3]


def test_an_outer_side_gets_its_turn_while_inner_sides_spin(warp: SimtStack) -> None:
    warp.branch([(1, 0b0011), (5, 0b1100)], 9)
    warp.branch([(2, 0b0001), (3, 0b0010)], 4)
    order = []
    for _ in range(8):
        order.append(warp.pc)
        warp.switch_path()
    assert order == [2, 5, 3, 5, 2, 5, 3, 5]


def test_a_split_alone_keeps_running(warp: SimtStack) -> None:
    warp.switch_path()
    assert (at(warp), warp.entries) == ((0, ALL), [])
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    assert not warp.arrive("shfl", {ALL: 0b0011})
    warp.switch_path()
    assert at(warp) == (2, 0b1100)


def test_returned_lanes_may_leave_a_call_early(warp: SimtStack, record: Record) -> None:
    warp.call(1, 50, 5, "frame")
    warp.branch([(51, 0b0111), (EXIT, 0b1000)], EXIT)
    warp.force_yield()
    warp.switch_path()
    assert (at(warp), record.left) == ((5, 0b1000), [("frame", 0b1000)])
    warp.exit(0b1000)
    assert at(warp) == (51, 0b0111)
    warp.jump(EXIT)
    assert (at(warp), record.left[1]) == ((5, 0b0111), ("frame", 0b0111))


def test_recursive_activations_keep_apart_when_turns_are_taken(warp: SimtStack, record: Record) -> None:
    warp.call(1, 50, 5, "outer")
    warp.branch([(51, 0b0011), (52, 0b1100)], EXIT)
    warp.call(1, 50, 53, "inner")
    warp.switch_path()
    assert at(warp) == (52, 0b1100)
    warp.switch_path()
    assert at(warp) == (50, 0b0011)
    warp.jump(EXIT)
    assert at(warp) == (53, 0b0011)
    warp.switch_path()
    assert at(warp) == (52, 0b1100)
    warp.jump(EXIT)
    assert at(warp) == (53, 0b0011)
    warp.jump(EXIT)
    assert at(warp) == (5, ALL)
    assert record.left == [("inner", 0b0011), ("outer", ALL)]


def test_state_tells_different_situations_apart(warp: SimtStack, record: Record) -> None:
    first = warp.state()
    warp.branch([(1, 0b0011), (2, 0b1100)], 3)
    second = warp.state()
    warp.arrive("shfl", {ALL: 0b0011})
    third = warp.state()
    assert len({first, second, third}) == 3
    same = SimtStack(0, ALL, record)
    same.branch([(1, 0b0011), (2, 0b1100)], 3)
    assert same.state() == second
