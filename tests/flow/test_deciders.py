"""Deciding branches of small kernels, by hand."""

from __future__ import annotations

from gpuperf_engine.flow.control_dependence import Deciders
from tests.flow.test_blocks import program


def deciders(body: str) -> Deciders:
    return Deciders(program(body).blocks)


NESTED = """
    @%p1 bra A;          // 0
    @%p2 bra B;          // 1
    mov.u32 %r1, 1;      // 2
    bra JOIN;
A:  mov.u32 %r1, 2;      // 3
    bra JOIN;
B:  mov.u32 %r1, 3;      // 4
JOIN: @%p3 ret;          // 5
    mov.u32 %r2, 1;      // 6
    ret;
"""


def test_all_branches_up_to_the_dominator_decide_at_a_join() -> None:
    found = deciders(NESTED)
    assert found.at_join(5) == (0, 1)
    assert (found.at_join(0), found.at_join(3), found.at_join(4)) == ((), (0,), (1,))


def test_branches_over_a_block() -> None:
    found = deciders(NESTED)
    assert [sorted(found.over(block)) for block in range(7)] == [[], [0], [0, 1], [0], [0, 1], [], [5]]


def test_ends_of_the_loops_that_a_value_leaves() -> None:
    found = deciders(
        """
        mov.u32 %r1, 0;          // 0
        A: mov.u32 %r2, 0;       // 1
        B: @%p1 bra DONE;        // 2
        @%p2 bra B;              // 3
        @%p3 bra A;              // 4
        DONE: ret;               // 5
        """
    )
    assert found.on_leaving(3, 4) == (2, 3)
    assert set(found.on_leaving(3, 5)) == {2, 3, 4}
    assert found.on_leaving(4, 5) == (2, 4)
    assert found.on_leaving(1, 3) == found.on_leaving(0, 5) == ()
