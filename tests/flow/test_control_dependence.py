"""Deciding branches of small kernels, by hand."""

from __future__ import annotations

from gpuperf_engine.flow.control_dependence import ControlDependence
from tests.flow.test_blocks import program


def control_dependence(body: str) -> ControlDependence:
    return ControlDependence(program(body).blocks)


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
    found = control_dependence(NESTED)
    assert found.of_predecessor(5) == (0, 1)
    assert (found.of_predecessor(0), found.of_predecessor(3), found.of_predecessor(4)) == ((), (0,), (1,))


def test_branches_over_a_block() -> None:
    found = control_dependence(NESTED)
    assert [sorted(found.of_block(block)) for block in range(7)] == [[], [0], [0, 1], [0], [0, 1], [], [5]]


def test_ends_of_the_loops_that_a_value_leaves() -> None:
    found = control_dependence(
        """
        mov.u32 %r1, 0;          // 0
        A: mov.u32 %r2, 0;       // 1
        B: @%p1 bra DONE;        // 2
        @%p2 bra B;              // 3
        @%p3 bra A;              // 4
        DONE: ret;               // 5
        """
    )
    assert found.of_loop_exits(3, 4) == (2, 3)
    assert set(found.of_loop_exits(3, 5)) == {2, 3, 4}
    assert found.of_loop_exits(4, 5) == (2, 4)
    assert found.of_loop_exits(1, 3) == found.of_loop_exits(0, 5) == ()
