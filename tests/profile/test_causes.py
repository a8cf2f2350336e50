"""What branches depend on, by construction."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.profile.naming import plain_name
from gpuperf_engine.results import Cause
from tests.profile.explaining import BRANCH, DATA, THREAD, N, causes, explained, kernel_of


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param("and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 0;", {THREAD}, id="parity"),
        pytest.param("setp.lt.u32 %p1, %r0, %r1;", {THREAD, N}, id="thread and parameter"),
        pytest.param("ld.global.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, %r1;", {DATA, N}, id="data"),
        pytest.param("ld.global.nc.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, 2;", {DATA}, id="data, not coherent"),
        pytest.param(
            "ld.global.u32 %r3, [%rd0]; setp.le.u32 %p1, %r0, %r3;",
            {THREAD, Cause("data", "given", False)},
            id="one word for all",
        ),
        pytest.param(
            "atom.global.add.u32 %r3, [%rd0], 1; setp.lt.u32 %p1, %r3, 9;",
            {Cause("atomic", "given", True)},
            id="atomic",
        ),
        pytest.param(
            "atom.shared.add.u32 %r3, [tile], 1; setp.lt.u32 %p1, %r3, 9;",
            {Cause("atomic", "tile", True)},
            id="shared atomic",
        ),
        pytest.param(
            "and.b32 %r3, %r0, 3; mul.wide.u32 %rd3, %r3, 4; mov.u64 %rd4, table; add.u64 %rd3, %rd3, %rd4;"
            "ld.const.u32 %r3, [%rd3]; setp.lt.u32 %p1, %r3, 7;",
            {Cause("data", "table", True)},
            id="constants",
        ),
        pytest.param(
            "mov.u32 %r3, %clock; and.b32 %r3, %r3, 0; setp.eq.u32 %p1, %r3, %r0;",
            {Cause("time", "clock", True), THREAD},
            id="clock",
        ),
        pytest.param(
            "mov.u32 %r3, %laneid; setp.lt.u32 %p1, %r3, 9;", {Cause("thread", "laneid", True)}, id="lane"
        ),
        pytest.param("mov.u32 %r3, %tid.y; add.u32 %r3, %r3, %r0; setp.lt.u32 %p1, %r3, 9;", {THREAD}, id="flat"),
        pytest.param(
            "ld.global.u32 %r3, [%rd1]; shfl.sync.bfly.b32 %r3, %r3, 1, 31, -1; setp.lt.u32 %p1, %r3, 2;",
            {DATA},
            id="shuffled data",
        ),
        pytest.param(
            "setp.eq.u32 %p2, %r1, 3; selp.u32 %r3, %r0, 7, %p2; setp.lt.u32 %p1, %r3, 2;",
            {THREAD, N},
            id="selected",
        ),
        pytest.param(
            "mov.u32 %r3, %r1; setp.eq.u32 %p2, %r1, 0; @%p2 mov.u32 %r3, 7; setp.lt.u32 %p1, %r0, %r3;",
            {THREAD, N},
            id="guarded write",
        ),
    ],
)  # fmt: skip
def test_what_a_branch_depends_on(condition: str, expected: set[Cause]) -> None:
    variables = ".const .align 4 .b32 table[4] = {6, 7, 8, 9}; .shared .align 4 .b32 tile[2];"
    assert (
        causes(explained(f"{condition} {BRANCH}", given=[0, 1, 2, 3, 4, 5, 6, 7], extra=variables))
        == expected
    )


def test_a_branch_on_a_parameter_does_not_diverge() -> None:
    found = explained(f"setp.lt.u32 %p1, %r1, 5; {BRANCH}")
    assert found.branches == () and found.loops == ()


def test_rows_of_a_block_are_told_apart() -> None:
    found = explained(f"mov.u32 %r3, %tid.y; setp.eq.u32 %p1, %r3, 0; {BRANCH}", block=(16, 2))
    assert causes(found) == {Cause("thread", "tid.y", True)}


def test_data_is_followed_through_shared_memory() -> None:
    found = explained(
        f"""
        ld.global.u32 %r3, [%rd1];
        shl.b32 %r4, %r0, 2;
        mov.u32 %r5, tile;
        add.u32 %r4, %r4, %r5;
        st.shared.u32 [%r4], %r3;
        bar.sync 0;
        ld.shared.u32 %r6, [tile+8];
        ld.shared.u32 %r7, [%r4];
        setp.lt.u32 %p1, %r7, 2;
        {BRANCH}
        """,
        given=[1, 2, 3],
        extra=".shared .align 4 .b8 tile[128];",
    )
    assert causes(found) == {DATA, THREAD}  # the thread chooses the word


def test_data_is_followed_through_asynchronous_copies() -> None:
    """The size of the source, here chosen by a parameter, decides between data and zeros."""
    found = explained(
        f"""
        shl.b32 %r4, %r0, 2;
        mov.u32 %r5, tile;
        add.u32 %r4, %r4, %r5;
        setp.gt.u32 %p2, %r1, 2;
        selp.u32 %r6, 4, 0, %p2;
        cp.async.ca.shared.global [%r4], [%rd1], 4, %r6;
        cp.async.wait_all;
        ld.shared.u32 %r7, [%r4];
        setp.lt.u32 %p1, %r7, 2;
        {BRANCH}
        """,
        given=[1, 2, 3],
        extra=".shared .align 4 .b8 tile[128];",
    )
    assert causes(found) == {DATA, THREAD, N}


def test_data_is_followed_through_matrix_fragments() -> None:
    found = explained(
        f"""
        ld.global.u32 %r3, [%rd1];
        shl.b32 %r4, %r0, 2;
        mov.u32 %r5, tile;
        add.u32 %r4, %r4, %r5;
        st.shared.u32 [%r4], %r3;
        bar.sync 0;
        and.b32 %r6, %r0, 7;
        shl.b32 %r6, %r6, 4;
        add.u32 %r6, %r6, %r5;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r7}}, [%r6];
        setp.lt.u32 %p1, %r7, 2;
        {BRANCH}
        """,
        given=[1, 2, 3],
        extra=".shared .align 16 .b8 tile[128];",
    )
    assert causes(found) == {DATA, THREAD}


def test_a_leader_is_elected_by_lane() -> None:
    assert causes(explained(f"elect.sync %r3|%p1, -1; {BRANCH}")) == {Cause("thread", "laneid", True)}


def test_data_is_followed_through_local_memory_and_calls() -> None:
    function = """
    .func (.param .b32 r) twice (.param .b32 a)
    { .reg .b32 %a; ld.param.b32 %a, [a]; add.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }
    """
    found = explained(
        f"""
        .local .align 4 .b8 kept[8];
        ld.global.u32 %r3, [%rd1];
        st.local.u32 [kept+4], %r3;
        ld.local.u32 %r4, [kept+4];
        {{ .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r4; call (r0), twice, (a0); ld.param.b32 %r5, [r0]; }}
        setp.lt.u32 %p1, %r5, 3;
        {BRANCH}
        """,
        given=[1, 2, 3],
        extra=function,
    )
    assert causes(found) == {DATA}


def test_what_chose_a_value_is_a_cause() -> None:
    """%r3 is 1 or 2, two constants; which one it is the first branch decides."""
    found = explained(
        f"""
        ld.global.u32 %r4, [%rd1];
        setp.lt.u32 %p2, %r4, 2;
        @%p2 bra SMALL;
        mov.u32 %r3, 1;
        bra CHOSEN;
        SMALL: mov.u32 %r3, 2;
        CHOSEN: setp.eq.u32 %p1, %r3, 1;
        {BRANCH}
        """,
        given=[1, 2, 3],
    )
    assert [set(branch.causes) for branch in found.branches] == [{DATA}, {DATA}]


def test_whether_something_was_stored_is_a_cause() -> None:
    """Constants are stored, where data says so; the guard around both store and load is no cause of what is loaded."""
    found = explained(
        f"""
        setp.ge.u32 %p3, %r0, %r1;
        @%p3 bra DONE;
        shl.b32 %r4, %r0, 2;
        mov.u32 %r5, tile;
        add.u32 %r4, %r4, %r5;
        ld.global.u32 %r3, [%rd1];
        setp.lt.u32 %p2, %r3, 2;
        @%p2 bra SMALL;
        st.shared.u32 [%r4], 1;
        bra STORED;
        SMALL: st.shared.u32 [%r4], 2;
        STORED: ld.shared.u32 %r7, [%r4];
        setp.eq.u32 %p1, %r7, 1;
        {BRANCH}
        DONE:
        """,
        given=[1, 2, 3],
        n=9,
        extra=".shared .align 4 .b8 tile[128];",
    )
    assert [set(branch.causes) for branch in found.branches] == [{THREAD, N}, {DATA}, {DATA, THREAD}]


def test_which_result_a_function_returns_is_a_cause() -> None:
    function = """
    .func (.param .b32 r) side (.param .b32 a)
    { .reg .b32 %a; .reg .pred %p; ld.param.b32 %a, [a]; setp.lt.u32 %p, %a, 2; @%p bra SMALL;
      st.param.b32 [r], 1; bra END; SMALL: st.param.b32 [r], 2; END: ret; }
    """
    found = explained(
        f"""
        ld.global.u32 %r4, [%rd1];
        {{ .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r4; call (r0), side, (a0); ld.param.b32 %r5, [r0]; }}
        setp.eq.u32 %p1, %r5, 1;
        {BRANCH}
        """,
        given=[1, 2, 3],
        extra=function,
    )
    assert {branch.function: set(branch.causes) for branch in found.branches} == {"k": {DATA}, "side": {DATA}}


def test_a_pointer_in_a_structure_and_a_pointer_from_memory() -> None:
    kernel = kernel_of(
        """
        ld.param.u64 %rd0, [s+8];
        mov.u32 %r0, %tid.x;
        mul.wide.u32 %rd1, %r0, 4;
        add.u64 %rd1, %rd0, %rd1;
        ld.global.u32 %r3, [%rd1];
        setp.lt.u32 %p1, %r3, 2;
        @%p1 bra NEXT;
        ld.param.u64 %rd2, [s];
        ld.global.u64 %rd3, [%rd2];
        add.u64 %rd3, %rd3, 4;
        mul.wide.u32 %rd4, %r0, 4;
        add.u64 %rd3, %rd3, %rd4;
        ld.global.u32 %r4, [%rd3];
        setp.lt.u32 %p2, %r4, 9;
        NEXT: @%p2 bra JOIN;
        add.u32 %r5, %r5, 1;
        JOIN: ret;
        """,
        ".param .align 8 .b8 s[16]",
    )
    device = ge.Device(memory_bytes=1 << 20)
    words = device.array(np.arange(64, dtype=np.uint32), name="words")
    table = device.array(np.array([words.address], np.uint64), name="table")
    given = np.array([table.address, words.address], np.uint64).tobytes()
    found = ge.explain(device.launch(kernel, 1, 32, [given]))
    by_line = [set(branch.causes) for branch in sorted(found.branches, key=lambda branch: branch.line)]
    words_data = Cause("data", "words", True)
    assert by_line[0] == {words_data}
    assert by_line[1] == {words_data, Cause("data", "", True)}  # what a loaded pointer points to has no name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZZ16histogram_sharedE10local_bins", "local_bins"),
        ("_ZZ6kernelPfiE4tile", "tile"),
        ("_ZZ6kernelPfiE4tile_0", "tile"),
        ("_ZZN2ns6kernelEPfE5E4foo", "E4foo"),
        ("_ZL6lookup", "lookup"),
        ("tile", "tile"),
        ("E4tile", "E4tile"),
        ("_ZZ6kernelE9tile", "_ZZ6kernelE9tile"),  # is none
    ],
)
def test_names_of_static_variables(mangled: str, name: str) -> None:
    assert plain_name(mangled) == name
