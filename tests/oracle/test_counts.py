"""Thread, warp and branch counts of control-flow shapes, worked out by hand.

In the comments a block is a letter with its number of instructions; lanes are counted per block execution.
"""

from __future__ import annotations

import random

import pytest

from .kernels import HEAD, launch, module
from .replay import EXIT, join_points
from .scalar import Result, run
from .shapes import FUNCTIONS, IF_ELSE, SHAPES, Shape


def counts(result: Result) -> tuple[int, int, int, int]:
    """Thread instructions, warp instructions, branches executed, branches divergent."""
    return (result.thread_instructions, result.warp_instructions, result.branches_executed,
            result.branches_divergent)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shape(shape: Shape) -> None:
    assert counts(run(shape.ptx, "k", shape.grid, shape.block, [])) == shape.counts


def test_counts_per_opcode_line_and_block() -> None:
    result = launch(IF_ELSE)
    # add: 24 lanes in B and 8 in C, each issued once; bra: the guarded one by 32 lanes, the other by 24.
    assert result.opcodes == {"mov.u32": 32, "setp.lt.u32": 32, "bra": 56, "add.u32": 32, "ret": 32}
    assert result.warp_opcodes == {"mov.u32": 1, "setp.lt.u32": 1, "bra": 2, "add.u32": 2, "ret": 1}
    assert result.predicated_on == 184 - 24  # the guard of the branch holds for 8 of 32
    assert sorted(result.thread_blocks.values()) == [8, 24, 32, 32]
    assert sorted(result.warp_blocks.values()) == [1, 1, 1, 1]
    assert result.branch_efficiency == 0.0


def test_blocks_issued_twice() -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == "block shared by two branches")
    assert sorted(launch(shape.body).warp_blocks.values()) == [1, 1, 1, 1, 2]


def test_guarded_calls_are_predicated() -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == "divergent call joins after the call")
    assert launch(shape.body, before=FUNCTIONS).predicated_on == 176 - 24


def test_guards_that_all_fail_still_count() -> None:
    body = """
    setp.ne.u32 %p0, 0, 0;
    @%p0 add.u32 %r0, %r0, 1;
    @!%p0 add.u32 %r0, %r0, 1;
    @%p0 bra AWAY;
AWAY:
    @%p0 exit;
    ret;
"""
    result = launch(body)
    assert counts(result) == (6 * 32, 6, 2, 0)
    assert result.predicated_on == 3 * 32


def test_a_loop_without_end_stops_at_the_budget() -> None:
    with pytest.raises(Exception, match="ran over 1000 instructions"):
        run(module("L: bra L;"), "k", 1, 1, [], max_instructions=1000)


def test_join_points_of_known_graphs() -> None:
    # Diamond 0 → 1, 2 → 3 → exit.
    assert join_points([[1, 2], [3], [3], [EXIT]]) == [3, 3, 3, EXIT]
    # Loop 0 → 1 → 0 or 2; an endless loop 3 → 3 joins nowhere.
    assert join_points([[1], [0, 2], [EXIT], [3]]) == [1, 2, EXIT, EXIT]
    # A side that leaves: 0 → 1, 2; 1 → exit; 2 → 3.
    assert join_points([[1, 2], [EXIT], [3], [EXIT]]) == [EXIT, EXIT, 3, EXIT]
    # A branch into an endless loop joins where the other side goes.
    assert join_points([[1, 2], [1], [EXIT]]) == [2, EXIT, EXIT]


def reachable(successors: list[list[int]], start: int, without: int) -> set[int]:
    """Nodes that can be reached from ``start`` on ways that do not lead through ``without``."""
    seen, stack = {start}, [start]
    while stack:
        node = stack.pop()
        for target in successors[node] if node != EXIT else []:
            if target not in seen and target != without:
                seen.add(target)
                stack.append(target)
    return seen


def test_join_points_of_random_graphs() -> None:
    """By the definition: a node post-dominates another if removing it cuts that off from the exit."""
    rng = random.Random(7)
    for _ in range(150):
        count = rng.randint(1, 9)
        graph = [[rng.randrange(-1, count) for _ in range(rng.randint(1, 2))] for _ in range(count)]
        for node, found in enumerate(join_points(graph)):
            if EXIT not in reachable(graph, node, -2):
                assert found == EXIT
                continue
            after = [d for d in range(count) if d != node and EXIT not in reachable(graph, node, d)]
            # The nearest one is the one from which all others still have to be passed.
            nearest = [d for d in after if all(EXIT not in reachable(graph, d, o) for o in after if o != d)]
            assert found == (nearest[0] if after else EXIT)


def test_two_entries_count_apart() -> None:
    text = HEAD + ".entry a() { ret; }\n.entry b() { .reg .b32 %r; mov.u32 %r, 1; ret; }"
    assert counts(run(text, "a", 1, 32, [])) == (32, 1, 0, 0)
    assert counts(run(text, "b", 1, 32, [])) == (64, 2, 0, 0)
