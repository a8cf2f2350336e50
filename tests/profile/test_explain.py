"""Explanations of kernels whose loops and branches are known: trip counts by closed form, causes by construction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import SMALL, execute

import gpuperf_engine as ge
from gpuperf_engine.profile.naming import plain_name
from gpuperf_engine.results import Cause, Explanation, LoopProfile
from tests.engine.running import Engine, module

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
THREAD, DATA = Cause("thread", "tid.x", True), Cause("data", "given", True)
N = Cause("parameter", "n", False)

START = """
    ld.param.u64 %rd0, [given];
    ld.param.u32 %r1, [n];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1;
"""


def kernel_of(body: str, parameters: str, before: str = "") -> ge.Kernel:
    return ge.parse(module(body, parameters, before), path="k.ptx")["k"]


def explained(
    body: str,
    given: list[int] | None = None,
    n: int = 3,
    block: int | tuple[int, int] = 32,
    grid: int = 1,
    extra: str = "",
    name: str | None = "given",
) -> Explanation:
    """Of a kernel with an array of 64 words, ``given``, and ``n``; %rd0 points to the array, %rd1 to the thread's word."""
    kernel = kernel_of(f"{START}{body}\n    ret;", ".param .u64 given, .param .u32 n", extra)
    device = ge.Device(memory_bytes=1 << 20)
    values = np.resize(np.array(given or [0], np.uint32), 64)
    return ge.explain(device.launch(kernel, grid, block, [device.array(values, name=name), np.uint32(n)]))


def causes(explanation: Explanation) -> set[Cause]:
    """Of the one branch that diverges, without the shape of the launch."""
    (branch,) = explanation.branches
    return {cause for cause in branch.causes if cause.kind not in ("launch", "block")}


def trips(loop: LoopProfile) -> tuple[Any, ...]:
    return loop.entries, loop.iterations, loop.mean, loop.depth


BRANCH = "@%p1 bra JOIN; add.u32 %r5, %r5, 1; JOIN:"


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


def test_a_count_that_a_loop_hands_on_depends_on_what_ends_the_loop() -> None:
    found = explained(
        f"""
        ld.global.u32 %r4, [%rd1];
        mov.u32 %r3, 0;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, %r4;
        @%p2 bra LOOP;
        setp.gt.u32 %p1, %r3, 2;
        {BRANCH}
        """,
        given=[1, 2, 3],
    )
    assert [set(branch.causes) for branch in found.branches] == [{DATA}, {DATA}]
    (loop,) = found.loops
    lengths = np.resize([1, 2, 3], 32)
    assert trips(loop) == (32, lengths.sum(), lengths.sum() / 32, 1)
    assert (loop.passes, loop.warp_passes, loop.lanes) == (lengths.sum(), 3, lengths.sum() / 3)
    assert set(loop.causes) == {DATA}


NEST = """
    mov.u32 %r3, 0;
OUTER:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra DONE;
    mov.u32 %r4, 0;
INNER:
    add.u32 %r4, %r4, 1;
    setp.le.u32 %p2, %r4, %r3;
    @%p2 bra INNER;
    add.u32 %r3, %r3, 1;
    bra OUTER;
DONE:
"""


@pytest.mark.parametrize("n", [0, 1, 7])
def test_trip_counts_of_a_nest(n: int) -> None:
    """The outer loop is tested at its head, the inner one, of 1, 2, … n trips, at its end."""
    found = explained(NEST, n=n, block=48, grid=5)
    outer = next(loop for loop in found.loops if loop.depth == 1)
    assert trips(outer) == (240, 240 * n, n, 1)
    assert (outer.passes, outer.warp_passes) == (240 * (n + 1), 10 * (n + 1))
    assert outer.causes == (N,)
    inner = [loop for loop in found.loops if loop.depth == 2]
    if n == 0:
        assert not inner  # never reached
    else:
        total = 240 * n * (n + 1) // 2
        assert trips(inner[0]) == (240 * n, total, (n + 1) / 2, 2)
        assert inner[0].thread_instructions == 3 * total
        assert outer.thread_instructions == 240 * (2 * (n + 1) + 3 * n) + 3 * total
    assert found.branches == ()


def test_a_loop_that_ends_in_its_middle() -> None:
    """Thread t comes to the test with 0, 1, … and leaves when it is t: t whole trips and the begun one."""
    found = explained(
        """
        mov.u32 %r3, 0;
        LOOP: mul.lo.u32 %r5, %r3, 3;
        bar.warp.sync -1;
        setp.eq.u32 %p1, %r3, %r1;
        @%p1 bra DONE;
        add.u32 %r3, %r3, 1;
        bra LOOP;
        DONE:
        """,
        n=6,
    )
    assert [trips(loop) for loop in found.loops] == [(32, 32 * 7, 7, 1)]


def test_an_irreducible_loop_has_passes_only() -> None:
    found = explained(
        """
        setp.lt.u32 %p1, %r0, 8;
        @%p1 bra B;
        A: add.u32 %r3, %r3, 1;
        B: add.u32 %r3, %r3, 2;
        setp.lt.u32 %p2, %r3, %r1;
        @%p2 bra A;
        """,
        n=9,
    )
    (loop,) = found.loops
    assert (loop.entries, loop.iterations, loop.mean) == (None, None, None)
    assert loop.passes == 8 * 4 + 24 * 3  # 2, 5, 8, 11 from B; 3, 6, 9 from A


def test_a_loop_entered_by_brx_idx() -> None:
    found = explained(
        """
        T: .branchtargets LOOP, SKIP;
        and.b32 %r4, %r0, 1;
        brx.idx %r4, T;
        SKIP: bra DONE;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        DONE:
        """,
        n=5,
    )
    assert [trips(loop) for loop in found.loops] == [(16, 80, 5, 1)]
    assert causes(found) == {THREAD}


def test_a_loop_around_a_call_and_a_barrier_in_a_device_function() -> None:
    function = """
    .func wait ()
    { .reg .b32 %i; .reg .pred %p; mov.u32 %i, 0;
      AGAIN: bar.sync 0; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4; @%p bra AGAIN; ret; }
    """
    found = explained(
        """
        mov.u32 %r3, 0;
        LOOP: call wait, ();
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        """,
        n=3,
        block=64,
        extra=function,
    )
    assert {(loop.function, loop.entries, loop.iterations) for loop in found.loops} == {
        ("k", 64, 192),
        ("wait", 192, 768),
    }
    assert {loop.causes for loop in found.loops} == {(N,), ()}


def test_unreached_code_is_left_out() -> None:
    found = explained(f"setp.eq.u32 %p2, %r1, 99; @!%p2 ret; setp.lt.u32 %p1, %r0, 5; {BRANCH} {NEST}")
    assert found.branches == () and found.loops == ()
    assert {line.divergent for line in found.lines} == {0}


def test_hot_lines_are_the_hottest() -> None:
    found = explained(NEST, n=7)
    assert {line.thread_instructions for line in found.lines[:3]} == {32 * 28}
    counts = [line.thread_instructions for line in found.lines]
    assert counts == sorted(counts, reverse=True) and 0 not in counts


def test_several_launches_add_up_and_name_all_objects() -> None:
    kernel = kernel_of(
        f"{START} ld.global.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, 2; {BRANCH} ret;",
        ".param .u64 given, .param .u32 n",
    )
    device = ge.Device(memory_bytes=1 << 20)
    arrays = [device.array(np.arange(32, dtype=np.uint32), name=name) for name in ("left", "right")]
    profiles = [device.launch(kernel, 1, 32, [array, 3]) for array in arrays]
    (branch,) = ge.explain(ge.add_profiles(profiles)).branches
    assert (branch.executed, branch.divergent) == (2, 2)
    assert branch.causes == (Cause("data", "left", True), Cause("data", "right", True))


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


def test_more_threads_than_64_bits_count() -> None:
    """A grid of 2⁶³ threads whose loop takes 2¹⁰ trips, twice: by classes of blocks."""
    kernel = kernel_of(
        """
        ld.param.u32 %r1, [n];
        mov.u32 %r0, %tid.x;
        setp.ge.u32 %p1, %r0, 1000;
        @%p1 bra DONE;
        mov.u32 %r3, 0;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        DONE: ret;
        """,
        ".param .u32 n",
    )
    device = ge.Device(observe=())
    grid = (2**31 - 1, 2**16 - 1, 2**6)
    profile = device.launch(kernel, grid, 1024, [1 << 10], demand="control")
    assert profile.method == "classes"
    ctas = grid[0] * grid[1] * grid[2]
    for total, launches in ((profile, 1), (ge.add_profiles([profile, profile]), 2)):
        found = ge.explain(total)
        assert [trips(loop) for loop in found.loops] == [
            (launches * 1000 * ctas, launches * 1000 * ctas << 10, 1024, 1)
        ]
        assert [(branch.divergent, branch.executed) for branch in found.branches] == [
            (launches * ctas, launches * 32 * ctas)
        ]
        assert found.branches[0].causes == (THREAD,)


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_a_slice_explains_as_much_as_the_whole(demand: str) -> None:
    kernel = kernel_of(
        f"{START} ld.global.u32 %r6, [%rd1]; {NEST} setp.lt.u32 %p1, %r6, %r1; {BRANCH} ret;",
        ".param .u64 given, .param .u32 n",
    )
    found = []
    for needed in ("values", demand):
        device = ge.Device(memory_bytes=1 << 20)
        given = device.array(np.arange(64, dtype=np.uint32), name="given")
        found.append(ge.explain(device.launch(kernel, 2, 64, [given, 5], demand=needed)))
    assert found[0] == found[1] and found[0].branches and found[0].loops


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


def test_a_sum_over_kernels_cannot_be_explained() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    one, other = (
        device.launch(kernel_of(body, ".param .u32 n"), 1, 32, [3]) for body in ("ret;", "bar.sync 0; ret;")
    )
    with pytest.raises(ge.NotObserved, match="different kernels"):
        ge.explain(ge.add_profiles([one, other]))


@pytest.mark.parametrize(
    "name",
    ["bfs-300x450", "spmv_vector-37x150", "mandelbrot-35x20x40", "expressions-200x40", "histogram_shared-10"],
)
def test_every_divergence_has_a_cause(name: str) -> None:
    """Something on which the condition depends must be able to differ between lanes."""
    (case,) = (case for case in SMALL if case.name == name)
    engine = Engine(case.text, "native")
    execute(case.program(), engine)
    for profile in engine.profiles:
        found = ge.explain(profile)
        assert sum(branch.divergent for branch in found.branches) == profile.branches.divergent
        assert all(branch.causes[0].varies for branch in found.branches)


def test_an_imported_profile_cannot_be_explained() -> None:
    from dataclasses import replace

    kernel = kernel_of("ret;", ".param .u32 n")
    profile = ge.Device(memory_bytes=1 << 20).launch(kernel, 1, 32, [3])
    with pytest.raises(ge.NotObserved, match="explain the profile"):
        ge.explain(replace(profile, records=()))


def example(stem: str, entry: str, grid: int, block: int, *args: Any) -> Explanation:
    path = EXAMPLES / "kernels" / f"{stem}.ptx"
    kernel = ge.parse(path.read_text(encoding="utf-8"), path=path.name)[entry]
    device = ge.Device(memory_bytes=1 << 26)
    arrays = [
        device.array(value, name=name) if isinstance(value, np.ndarray) else value for name, value in args
    ]
    return ge.explain(device.launch(kernel, grid, block, arrays))


def test_collatz() -> None:
    """The number of steps of 1, 2, … n is known; nvcc closes the loop on the line of the ``while``."""
    steps = [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4]  # OEIS A006577
    found = example("collatz", "collatz", 1, 32, ("n", np.uint32(16)), ("length", np.zeros(16, np.uint32)))
    (loop,) = found.loops
    assert (loop.entries, loop.iterations) == (15, sum(steps))
    assert loop.source.startswith("collatz.cu:") and loop.warp_passes == max(steps)
    assert loop.causes[0] == THREAD


def test_the_least_and_the_most_iterations_of_a_thread() -> None:
    """Of top-tested loops too; threads that never enter do not count."""
    body = f"""{START}
        ld.global.u32 %r4, [%rd1];
        setp.eq.u32 %p1, %r4, 9;
        @%p1 bra DONE;
        mov.u32 %r3, 0;
        LOOP: setp.ge.u32 %p1, %r3, %r4;
        @%p1 bra DONE;
        add.u32 %r3, %r3, 1;
        bra LOOP;
        DONE: ret;
    """
    kernel = kernel_of(body, ".param .u64 given, .param .u32 n")
    device = ge.Device(observe={"threads"}, memory_bytes=1 << 20)
    profiles = [
        device.launch(kernel, 1, 40, [device.array(np.resize(np.array(given, np.uint32), 64)), 3])
        for given in ([9, 2, 5], [9, 4, 7, 3])
    ]
    for profile, expected in zip(
        [*profiles, ge.add_profiles(profiles)], [(2, 5), (3, 7), (2, 7)], strict=True
    ):
        (loop,) = ge.explain(profile).loops
        assert (loop.least, loop.most) == expected
    device = ge.Device(memory_bytes=1 << 20)
    (loop,) = ge.explain(device.launch(kernel, 1, 32, [device.zeros(64, np.uint32), 3])).loops
    assert (loop.iterations, loop.least, loop.most) == (0, None, None)


def test_sparse_rows() -> None:
    """The lengths of rows come from the offsets; one row per thread, unrolled by four behind a remainder."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(4, 40, 64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = rng.integers(0, 9, offsets[-1]).astype(np.int32)
    found = example(
        "spmv",
        "spmv_scalar",
        1,
        64,
        ("rows", np.int32(64)),
        ("offsets", offsets),
        ("columns", columns),
        ("values", np.ones(columns.size, np.float32)),
        ("x", np.ones(9, np.float32)),
        ("y", np.zeros(64, np.float32)),
    )
    offsets_data = Cause("data", "offsets", True)
    assert {loop.causes for loop in found.loops} == {(offsets_data,)}
    unrolled, remainder = found.loops
    assert unrolled.iterations == (lengths // 4).sum() and remainder.iterations == (lengths % 4).sum()
    assert (unrolled.entries, remainder.entries) == (64, np.count_nonzero(lengths % 4))
    assert {branch.causes for branch in found.branches} == {(offsets_data,)}


def test_breadth_first_search() -> None:
    offsets = np.array([0, 1, 3, 3, 4], np.int32)
    found = example(
        "bfs",
        "bfs_expand",
        1,
        32,
        ("vertices", np.int32(4)),
        ("level", np.int32(0)),
        ("offsets", offsets),
        ("neighbours", np.array([1, 0, 3, 1], np.int32)),
        ("distance", np.array([-1, 0, -1, -1], np.int32)),
        ("marked", np.zeros(4, np.uint8)),
    )
    by_name = [{cause.name for cause in branch.causes if cause.varies} for branch in found.branches]
    assert {"tid.x"} in by_name and {"distance"} in by_name
    assert found.loops and all("offsets" in {cause.name for cause in loop.causes} for loop in found.loops)
