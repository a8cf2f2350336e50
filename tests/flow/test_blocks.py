"""Blocks, reconvergence points, liveness and uniformity of small kernels, worked out by hand."""

from __future__ import annotations

import textwrap

import gpuperf_engine as ge
from gpuperf_engine.simt.program import EXIT, Program, build_program
from tests.support import head

HEAD = head("7.8", "sm_80")


def program(body: str, *, extra: str = "", params: str = ".param .u64 out") -> Program:
    registers = ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>;"
    text = f"{HEAD}{extra}\n.visible .entry k({params})\n{{\n{registers}\n{textwrap.dedent(body)}\n}}\n"
    return build_program(ge.parse(text)["k"])


def shape(made: Program) -> list[tuple[str, tuple[int, ...], int]]:
    return [(block.kind, block.successors, block.reconvergence) for block in made.blocks]


def uniform_names(made: Program) -> set[str]:
    return {register.name for register in made.uniform[0]}


def test_guarded_bra_over_a_side() -> None:
    made = program(
        """
        mov.u32 %r1, %tid.x;
        setp.gt.u32 %p1, %r1, 7;
        @%p1 bra L;
        add.s32 %r1, %r1, 1;
        L: ret;
        """
    )
    assert shape(made) == [("branch", (2, 1), 2), ("fall", (2,), 2), ("return", (), EXIT)]
    assert [len(block.instructions) for block in made.blocks] == [3, 1, 1]
    assert made.blocks[0].counted


def test_guarded_return_leaves_and_has_no_meeting_point() -> None:
    made = program("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 ret; mov.u32 %r2, 1; ret;")
    assert shape(made)[0] == ("branch", (EXIT, 1), EXIT)
    assert made.blocks[0].leaves == "return"


def test_loop_back_edge_and_its_cost() -> None:
    made = program(
        """
        mov.u32 %r1, 0;
        L: add.s32 %r1, %r1, 1;
        setp.lt.s32 %p1, %r1, 10;
        @%p1 bra L;
        ret;
        """
    )
    assert shape(made) == [("fall", (1,), 1), ("branch", (1, 2), 2), ("return", (), EXIT)]
    assert made.blocks[1].back_edges == {1}
    assert made.blocks[1].back_edge_cost == 1
    assert uniform_names(made) == {"%r1", "%p1"}


def test_spin_loop_may_wait_but_a_loop_that_only_counts_atomically_does_not() -> None:
    spin = program(
        "ld.param.u64 %rd1, [out];\nL: atom.global.cas.b32 %r1, [%rd1], 0, 1;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra L;\nret;"
    )
    assert [block.back_edge_cost for block in spin.blocks if block.back_edges] == [64]
    count = program(
        "ld.param.u64 %rd1, [out];\nmov.u32 %r2, 0;\nL: atom.global.add.u32 %r1, [%rd1], 1;\nadd.s32 %r2, %r2, 1;\n"
        "setp.lt.s32 %p1, %r2, 9;\n@%p1 bra L;\nret;"
    )
    assert [block.back_edge_cost for block in count.blocks if block.back_edges] == [1]


def test_barrier_ends_a_block_and_shuffle_begins_one() -> None:
    made = program(
        "mov.u32 %r1, 5;\nbar.sync 0;\nadd.s32 %r1, %r1, 1;\n"
        "shfl.sync.bfly.b32 %r2|%p1, %r1, 16, 31, -1;\nadd.s32 %r1, %r1, %r2;\nret;"
    )
    assert [(block.kind, block.synchronises) for block in made.blocks] == [
        ("barrier", False),
        ("fall", False),
        ("return", True),
    ]


def test_guarded_barrier_counts_for_all_lanes_before_its_guard() -> None:
    made = program("mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 0;\nret;")
    assert [(block.kind, block.counts, block.counted) for block in made.blocks] == [
        ("fall", 2, False),
        ("branch", 1, False),
        ("barrier", 0, False),
        ("return", 1, False),
    ]
    assert made.blocks[2].guard_applied


def test_unreachable_code_is_left_out() -> None:
    made = program("bra L;\nmov.u32 %r1, 1;\nL: ret;")
    assert [block.kind for block in made.blocks] == ["jump", "return"]


def test_text_that_ends_without_ret_returns() -> None:
    made = program("mov.u32 %r1, 1;")
    assert [block.kind for block in made.blocks] == ["fall", "return"]
    assert made.blocks[1].terminator is None


def test_counter_of_a_guarded_body_stays_uniform_but_what_leaves_a_divergent_loop_does_not() -> None:
    """`if (tid < n) for (i…)`: all lanes in the body share i; a loop left lane by lane gives each lane its own count."""
    body = program(
        """
        ld.param.u32 %r9, [n];
        mov.u32 %r1, %tid.x;
        setp.ge.u32 %p1, %r1, %r9;
        @%p1 bra END;
        mov.u32 %r2, 0;
        L: add.s32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, %r9;
        @%p2 bra L;
        END: ret;
        """,
        params=".param .u32 n",
    )
    assert {"%r2", "%p2", "%r9"} <= uniform_names(body)
    assert "%p1" not in uniform_names(body)
    carried = program(
        """
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, 0;
        L: add.s32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, %r1;
        @%p2 bra L;
        st.global.u32 [%rd1], %r2;
        ret;
        """
    )
    assert "%r2" not in uniform_names(carried)


def test_both_sides_writing_one_register_make_it_vary() -> None:
    made = program(
        """
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %tid.x;
        setp.gt.u32 %p1, %r1, 3;
        @%p1 bra A;
        mov.u32 %r2, 1;
        bra J;
        A: mov.u32 %r2, 2;
        J: st.global.u32 [%rd1], %r2;
        ret;
        """
    )
    assert "%r2" not in uniform_names(made)
    assert "%rd1" in uniform_names(made)


def test_order_free() -> None:
    store = "ld.param.u64 %rd1, [out];\nst.global.u32 [%rd1], %r1;\nret;"
    assert program(store).order_free
    assert program("ld.param.u64 %rd1, [out];\nred.global.add.u32 [%rd1], 1;\nret;").order_free
    assert not program("ld.param.u64 %rd1, [out];\nred.global.add.f32 [%rd1], %f1;\nret;").order_free
    used = (
        "ld.param.u64 %rd1, [out];\natom.global.add.u32 %r1, [%rd1], 1;\nst.global.u32 [%rd1+4], %r1;\nret;"
    )
    assert not program(used).order_free
    assert not program("ld.param.u64 %rd1, [out];\nld.volatile.global.u32 %r1, [%rd1];\nret;").order_free


def test_shared_and_local_layout() -> None:
    made = program(
        """
        .shared .align 4 .b8 a[6];
        .shared .align 8 .f64 b[2];
        .local .align 4 .b8 stack[12];
        mov.u32 %r1, a;
        mov.u32 %r2, b;
        mov.u64 %rd2, stack;
        mov.u32 %r3, dynamic;
        ret;
        """,
        extra=".extern .shared .align 16 .b8 dynamic[];",
    )
    assert [(variable.name, offset) for variable, offset in made.shared.items()] == [("a", 0), ("b", 8)]
    assert made.shared_static == 32
    assert [variable.name for variable in made.dynamic_shared] == ["dynamic"]
    assert (list(made.local.values()), made.local_bytes) == ([0], 16)
