"""Branches, loops, tables and calls: results and counts worked out by hand from the PTX text."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from tests.engine.running import collect

#: instructions that ``collect`` adds behind a body: three moves, mad, ld.param, mul, add, st, ret
EPILOGUE = 9


def test_both_sides_of_a_branch_run_once_per_warp(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 10;
        @%p1 bra LOW;
        add.u32 %r0, %r1, 100;
        bra END;
    LOW:
        add.u32 %r0, %r1, 200;
        add.u32 %r0, %r0, 1;
    END:
        """,
    )
    assert values.tolist() == [lane + 201 if lane < 10 else lane + 100 for lane in range(32)]
    assert profile.thread_instructions == 32 * (3 + EPILOGUE) + 22 * 2 + 10 * 2
    assert profile.warp_instructions == 3 + 2 + 2 + EPILOGUE
    assert (profile.branches.executed, profile.branches.divergent) == (1, 1)
    assert profile.branches.efficiency == 0


def test_nested_branches_meet_inside_out(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 0;
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra EVEN;
        add.u32 %r0, %r0, 1;
        bra MEET;
    EVEN:
        and.b32 %r3, %r1, 2;
        setp.eq.u32 %p2, %r3, 0;
        @!%p2 bra INNER;
        add.u32 %r0, %r0, 10;
    INNER:
        add.u32 %r0, %r0, 100;
    MEET:
        add.u32 %r0, %r0, 1000;
        """,
    )
    assert values.tolist() == [1001 if lane % 2 else 1110 if lane % 4 == 0 else 1100 for lane in range(32)]
    # 5 for all; 2 for 16; 3 for 16; 1 for 8; 1 for 16; 1 for all
    assert profile.thread_instructions == 32 * (6 + EPILOGUE) + 16 * 2 + 16 * 3 + 8 + 16
    assert profile.warp_instructions == 6 + 2 + 3 + 1 + 1 + EPILOGUE
    assert (profile.branches.executed, profile.branches.divergent) == (2, 2)


def test_a_loop_runs_as_long_as_its_longest_lane(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 0;
        mov.u32 %r2, 0;
    LOOP:
        add.u32 %r0, %r0, %r2;
        add.u32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %r1;
        @%p1 bra LOOP;
        """,
    )
    assert values.tolist() == [lane * (lane + 1) // 2 for lane in range(32)]
    trips = sum(lane + 1 for lane in range(32))
    assert profile.thread_instructions == 32 * (3 + EPILOGUE) + 4 * trips
    assert profile.warp_instructions == 3 + 4 * 32 + EPILOGUE
    # every trip but the last loses the lane whose count is reached
    assert (profile.branches.executed, profile.branches.divergent) == (32, 31)


def test_a_ragged_last_warp(backend: str) -> None:
    _, profile = collect(backend, "mov.u32 %r0, 7;", block=33)
    assert profile.thread_instructions == 33 * (1 + EPILOGUE)
    assert profile.warp_instructions == 2 * (1 + EPILOGUE)


def test_table_branch(backend: str) -> None:
    body = """
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 3;
    TABLE: .branchtargets A, B, A, C;
        brx.idx %r2, TABLE;
    A:
        mov.u32 %r0, 1;
        bra END;
    B:
        mov.u32 %r0, 2;
        bra END;
    C:
        mov.u32 %r0, 3;
    END:
        """
    values, profile = collect(backend, body)
    assert values.tolist() == [(1, 2, 1, 3)[lane % 4] for lane in range(32)]
    assert profile.warp_instructions == 3 + 2 + 2 + 1 + EPILOGUE
    assert profile.thread_instructions == 32 * (3 + EPILOGUE) + 24 * 2 + 8
    assert (profile.branches.executed, profile.branches.divergent) == (1, 1)


def test_table_branch_beyond_its_table(backend: str) -> None:
    with pytest.raises(
        ge.EngineError, match=r"k\.ptx:\d+:\d+: brx\.idx: index 7 of a table of 2 labels"
    ) as caught:
        collect(
            backend,
            """
            mov.u32 %r1, %tid.x;
        TABLE: .branchtargets A, B;
            brx.idx %r1, TABLE;
        A:
            mov.u32 %r0, 1;
        B:
            """.replace("%r1, TABLE", "%r2, TABLE").replace("%tid.x;", "%tid.x; add.u32 %r2, %r1, 7;"),
        )
    assert "thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'" in str(caught.value)


def test_lanes_that_return_early_are_gone(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.ge.u32 %p1, %r1, 20;
        @%p1 ret;
        setp.ge.u32 %p2, %r1, 8;
        @%p2 exit;
        mov.u32 %r0, 5;
        """,
    )
    assert values.tolist() == [5] * 8 + [0] * 24
    assert profile.thread_instructions == 32 * 3 + 20 * 2 + 8 * (1 + EPILOGUE)
    assert (profile.branches.executed, profile.branches.divergent) == (2, 2)


def test_a_guard_masks_without_branching(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 1;
        setp.lt.u32 %p1, %r1, 5;
        @%p1 add.u32 %r0, %r0, %r1;
        @!%p1 mov.u32 %r0, 99;
        """,
    )
    assert values.tolist() == [lane + 1 if lane < 5 else 99 for lane in range(32)]
    assert profile.thread_instructions == 32 * (5 + EPILOGUE)
    assert profile.thread_instructions_predicated_on == 32 * (3 + EPILOGUE) + 5 + 27
    assert profile.branches.executed == 0


SQUARE = """
.func (.param .b32 out) square(.param .b32 in)
{
    .reg .b32 %s<4>;
    ld.param.u32 %s0, [in];
    mul.lo.u32 %s1, %s0, %s0;
    st.param.b32 [out], %s1;
    ret;
}
.func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %s<4>;
    .reg .pred %q;
    ld.param.u32 %s0, [in];
    shl.b32 %s1, %s0, 1;
    st.param.b32 [out], %s1;
    setp.gt.u32 %q, %s0, 8;
    @%q ret;
    add.u32 %s1, %s1, 1;
    st.param.b32 [out], %s1;
    ret;
}
"""

CALL = """{{
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r1;
        call.uni (b), {callee}, (a);
        ld.param.b32 %r0, [b];
        }}"""


def test_a_call_under_divergence(backend: str) -> None:
    values, profile = collect(
        backend,
        f"""
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 0;
        setp.lt.u32 %p1, %r1, 16;
        @!%p1 bra END;
        {CALL.format(callee="twice")}
    END:
        """,
        before=SQUARE,
    )
    assert values.tolist() == [
        2 * lane if 8 < lane < 16 else 2 * lane + 1 if lane <= 8 else 0 for lane in range(32)
    ]
    inside = 16 * 5 + 9 * 3  # nine lanes do not return early
    assert profile.thread_instructions == 32 * (4 + EPILOGUE) + 16 * 3 + inside
    assert profile.warp_instructions == 4 + 3 + 5 + 3 + EPILOGUE
    assert (profile.branches.executed, profile.branches.divergent) == (2, 2)


def test_a_guarded_call_counts_for_all_active_lanes(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 3;
        setp.lt.u32 %p1, %r1, 4;
        {
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r1;
        @%p1 call (b), square, (a);
        @%p1 ld.param.b32 %r0, [b];
        }
        """,
        before=SQUARE,
    )
    assert values.tolist() == [0, 1, 4, 9] + [3] * 28
    assert profile.thread_instructions == 32 * (6 + EPILOGUE) + 4 * 4
    assert profile.warp_instructions == 6 + 4 + EPILOGUE
    assert profile.branches.executed == 0


def test_lanes_call_different_functions_through_a_register(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 0;
        mov.u64 %rd1, square;
        mov.u64 %rd2, twice;
        selp.b64 %rd3, %rd1, %rd2, %p1;
        {
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r1;
        PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %rd3, (a), PROTO;
        ld.param.b32 %r0, [b];
        }
        """,
        before=SQUARE,
    )
    assert values.tolist() == [lane * lane if lane % 2 == 0 else 2 * lane + (lane <= 8) for lane in range(32)]
    assert profile.warp_instructions == 9 + 4 + 8 + EPILOGUE


def test_a_call_of_no_function(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="0x5 is not the address of a function") as caught:
        collect(
            backend,
            """
            mov.u64 %rd3, 5;
            PROTO: .callprototype _ ();
            call %rd3, (), PROTO;
            """,
            before=SQUARE,
        )
    assert "thread (0, 0, 0)" in str(caught.value)


RECURSIVE = """
.func (.param .b32 out) sum(.param .b32 in)
{
    .reg .b32 %s<6>;
    .reg .pred %q;
    ld.param.u32 %s0, [in];
    mov.u32 %s2, %s0;
    setp.eq.u32 %q, %s0, 0;
    @%q bra DONE;
    sub.u32 %s1, %s0, 1;
    {
    .param .b32 a;
    .param .b32 b;
    st.param.b32 [a], %s1;
    call (b), sum, (a);
    ld.param.b32 %s3, [b];
    }
    add.u32 %s2, %s3, %s0;
DONE:
    st.param.b32 [out], %s2;
    ret;
}
"""


def test_recursion_to_a_depth_of_its_own_per_lane(backend: str) -> None:
    values, profile = collect(backend, f"mov.u32 %r1, %tid.x;\n{CALL.format(callee='sum')}", before=RECURSIVE)
    assert values.tolist() == [lane * (lane + 1) // 2 for lane in range(32)]
    # lane n runs the function n + 1 times: 6 instructions each, 5 more for the n calls that go on
    assert profile.thread_instructions == 32 * (4 + EPILOGUE) + sum(6 * (n + 1) + 5 * n for n in range(32))
    # the lanes of one depth run together: 32 depths, all but the last with a call; lanes part at each depth but the last
    assert profile.warp_instructions == 4 + EPILOGUE + 32 * 6 + 31 * 5
    assert (profile.branches.executed, profile.branches.divergent) == (32, 31)


def test_recursion_without_end(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="calls inside one another"):
        collect(
            backend,
            f"mov.u32 %r1, 77;\n{CALL.format(callee='sum')}",
            before=RECURSIVE.replace("setp.eq.u32 %q, %s0, 0", "setp.eq.u32 %q, %s0, 100000"),
        )


def test_parameters_in_registers(backend: str) -> None:
    before = """
.func (.reg .u32 out) add3 (.reg .u32 a, .reg .u32 b)
{
    add.u32 out, a, b;
    add.u32 out, out, 3;
    ret;
}
"""
    values, _ = collect(backend, "mov.u32 %r1, %tid.x;\ncall (%r0), add3, (%r1, 40);", before=before)
    assert values.tolist() == [lane + 43 for lane in range(32)]


def test_registers_never_written_are_zero_in_every_call(backend: str) -> None:
    before = """
.func (.param .b32 out) once(.param .b32 in)
{
    .reg .b32 %s<4>;
    ld.param.u32 %s0, [in];
    add.u32 %s1, %s1, %s0;
    st.param.b32 [out], %s1;
    ret;
}
"""
    body = f"""
        mov.u32 %r1, %tid.x;
        {CALL.format(callee="once")}
        mov.u32 %r1, %r0;
        {CALL.format(callee="once")}
        """
    values, _ = collect(backend, body, before=before)
    assert values.tolist() == list(range(32))


def test_trap_names_its_thread(backend: str) -> None:
    with pytest.raises(ge.EngineError, match=r"k\.ptx:\d+:\d+: trap executed") as caught:
        collect(
            backend,
            """
            mov.u32 %r1, %ctaid.x;
            mov.u32 %r2, %tid.x;
            setp.ne.u32 %p1, %r1, 1;
            setp.lt.or.u32 %p2, %r2, 35, %p1;
            @!%p2 trap;
            mov.u32 %r0, 1;
            """,
            grid=2,
            block=64,
        )
    assert "thread (35, 0, 0) of block (1, 0, 0) of kernel 'k'" in str(caught.value)
