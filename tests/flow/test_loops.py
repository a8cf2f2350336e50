"""Loops of small kernels: heads, bodies, nesting; irreducible ones."""

from __future__ import annotations

from gpuperf_engine.flow.loops import find_loops
from tests.flow.test_blocks import program


def loops(body: str) -> list[tuple[int, set[int], tuple[int, ...], int, bool]]:
    found = find_loops(program(body).blocks)
    return [(loop.head, set(loop.body), loop.latches, loop.depth, loop.reducible) for loop in found]


def test_straight_code_has_none() -> None:
    assert loops("mov.u32 %r1, 0; ret;") == []


def test_a_nest_of_two() -> None:
    assert loops(
        """
        A: mov.u32 %r2, 0;
        B: add.s32 %r2, %r2, 1;
        setp.lt.s32 %p1, %r2, 3;
        @%p1 bra B;
        add.s32 %r1, %r1, 1;
        setp.lt.s32 %p2, %r1, 3;
        @%p2 bra A;
        ret;
        """
    ) == [(0, {0, 1, 2}, (2,), 1, True), (1, {1}, (1,), 2, True)]


def test_two_back_edges_to_one_head_are_one_loop() -> None:
    assert loops(
        """
        L: add.s32 %r1, %r1, 1;
        setp.lt.s32 %p1, %r1, 3;
        @%p1 bra L;
        setp.lt.s32 %p2, %r1, 9;
        @%p2 bra L;
        ret;
        """
    ) == [(0, {0, 1}, (0, 1), 1, True)]


def test_an_irreducible_loop() -> None:
    assert loops(
        """
        setp.lt.s32 %p1, %r1, 3;
        @%p1 bra B;
        A: add.s32 %r1, %r1, 1;
        B: add.s32 %r1, %r1, 2;
        setp.lt.s32 %p2, %r1, 9;
        @%p2 bra A;
        ret;
        """
    ) == [(2, {1, 2}, (1,), 1, False)]  # a walk that takes the branch first comes back to B
