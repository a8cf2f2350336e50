"""Control that never ends, never meets or leads nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hostile.kernels import line_of, module, refusal, success
from tests.hostile.sandbox import Job, Sandbox

OUT = ".param .u64 out"
LOAD = "ld.param.u64 %rd0, [out];"


def job(
    backend: str, body: str, *, block: object = 32, grid: object = 1, before: str = "", **options: object
) -> Job:
    text = module(f"\n    {LOAD}\n{body}\n    ret;", OUT, before)
    return Job(text, backend=backend, grid=grid, block=block, args=[np.zeros(64, np.uint32)], options=options)


# -- loops without end


@pytest.mark.parametrize(
    "body",
    [
        "LOOP: bra LOOP;",
        "LOOP: bra.uni LOOP;",
        "setp.eq.u32 %p1, 0, 0;\nLOOP: @%p1 bra LOOP;",
        "LOOP: mov.u32 %r1, 5;\n    bra LOOP;",
        "LOOP: ld.volatile.global.u32 %r1, [%rd0];\n    setp.eq.u32 %p1, %r1, 0;\n    @%p1 bra LOOP;",
    ],
)
def test_loops_that_change_nothing_are_reported_at_once(sandbox: Sandbox, backend: str, body: str) -> None:
    made = job(backend, body)
    refusal(sandbox, made, "Deadlock", "k.ptx:", "kernel 'k'", seconds=10)


@pytest.mark.parametrize(
    "body",
    [
        "LOOP: add.u32 %r1, %r1, 1;\n    bra LOOP;",
        "LOOP: add.u32 %r1, %r1, 1;\n    st.global.u32 [%rd0], %r1;\n    bra LOOP;",
        "LOOP: atom.global.add.u32 %r1, [%rd0], 1;\n    setp.ne.u32 %p1, %r1, 0xffffffff;\n    @%p1 bra LOOP;",
        "LOOP: bar.sync 0;\n    add.u32 %r1, %r1, 1;\n    bra LOOP;",
        "LOOP: shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;\n    add.u32 %r1, %r1, 1;\n    bra LOOP;",
    ],
)
def test_runaways_end_at_the_budget(sandbox: Sandbox, backend: str, body: str) -> None:
    limit = 2_000 if backend == "reference" else 100_000
    made = job(backend, body, max_instructions=limit, block=64)
    refusal(
        sandbox, made, "BudgetExceeded", "k.ptx:", "kernel 'k'", f"{limit:,}", "max_instructions", seconds=30
    )


def test_the_default_budget_ends_a_runaway(sandbox: Sandbox) -> None:
    body = "LOOP: add.u32 %r1, %r1, 1;\n    xor.b32 %r2, %r1, %r2;\n    bra LOOP;"
    refusal(sandbox, job("llvm", body), "BudgetExceeded", "100,000,000", seconds=60)


def test_runaway_recursion(sandbox: Sandbox, backend: str) -> None:
    function = """
.func down(.param .b32 n)
{
    .reg .b32 %n;
    ld.param.b32 %n, [n];
    add.u32 %n, %n, 1;
    { .param .b32 p0; st.param.b32 [p0], %n; call down, (p0); }
    ret;
}"""
    body = "{ .param .b32 p0; st.param.b32 [p0], 1; call down, (p0); }"
    outcome = sandbox.run(job(backend, body, before=function))
    assert outcome.kind == "error", outcome.text
    assert "k.ptx:" in outcome.text and "down" in outcome.text, outcome.text
    assert len(outcome.text.splitlines()) <= 5


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_small_budgets(sandbox: Sandbox, backend: str, limit: int) -> None:
    """A short kernel either ends or meets the budget, which is looked at when a warp has had its turn."""
    outcome = sandbox.run(job(backend, "mov.u32 %r1, 1;", max_instructions=limit))
    assert outcome.kind == "ok" if limit >= 3 else outcome.type == "BudgetExceeded", outcome.text


# -- barriers


def test_a_divergent_barrier(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p1, %r0, 5;
    @%p1 bra SKIP;
    bar.sync 0;
SKIP:
    add.u32 %r1, %r0, 1;"""
    outcome = sandbox.run(job(backend, body))
    assert outcome.kind == "ok", outcome.text


def test_a_guarded_barrier(sandbox: Sandbox, backend: str) -> None:
    body = "mov.u32 %r0, %laneid;\n    setp.lt.u32 %p1, %r0, 5;\n    @%p1 bar.sync 0;"
    outcome = sandbox.run(job(backend, body))
    assert outcome.kind == "ok", outcome.text


def test_lanes_that_wait_at_different_barriers(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r0, %laneid;
    setp.lt.u32 %p1, %r0, 5;
    @%p1 bra OTHER;
    bar.sync 1;
    bra END;
OTHER:
    bar.sync 2;
END:"""
    made = job(backend, body)
    lines = [str(line_of(str(made.text), f"bar.sync {number}")) for number in (1, 2)]
    refusal(sandbox, made, "Deadlock", *lines, "bar.sync", "kernel 'k'")


def test_a_barrier_that_other_warps_never_reach(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p1, %r0, 32;
    @%p1 bra OTHER;
    bar.sync 1;
    bra END;
OTHER:
    bar.sync 2;
END:"""
    made = job(backend, body, block=64)
    text = str(made.text)
    refusal(
        sandbox,
        made,
        "Deadlock",
        str(line_of(text, "bar.sync 1")),
        str(line_of(text, "bar.sync 2")),
        "kernel 'k'",
    )


def test_exited_warps_do_not_hold_a_barrier_up(sandbox: Sandbox, backend: str) -> None:
    body = "mov.u32 %r0, %tid.x;\n    setp.ge.u32 %p1, %r0, 32;\n    @%p1 exit;\n    bar.sync 0;"
    success(sandbox, job(backend, body, block=96))


@pytest.mark.parametrize("number", ["16", "99", "-1"])
def test_barrier_numbers_that_do_not_exist(sandbox: Sandbox, backend: str, number: str) -> None:
    outcome = sandbox.run(job(backend, f"bar.sync {number};"))
    assert outcome.kind == "error", outcome
    assert "k.ptx:" in outcome.text and "15" in outcome.text, outcome.text
    outcome = sandbox.run(job(backend, f"mov.s32 %r1, {number};\n    bar.sync %r1;"))
    assert outcome.kind == "error", outcome
    assert "k.ptx:" in outcome.text and "15" in outcome.text, outcome.text


@pytest.mark.parametrize("count", ["33", "1", "48", "0", "-32"])
def test_barrier_counts_that_are_no_multiple_of_a_warp(sandbox: Sandbox, backend: str, count: str) -> None:
    outcome = sandbox.run(job(backend, f"mov.s32 %r1, {count};\n    bar.sync 1, %r1;", block=64))
    assert outcome.kind == "error", outcome
    assert "k.ptx:" in outcome.text and "multiple of 32" in outcome.text, outcome.text


def test_a_barrier_that_waits_for_more_than_there_are(sandbox: Sandbox, backend: str) -> None:
    made = job(backend, "bar.sync 3, 96;", block=64)
    refusal(sandbox, made, "Deadlock", str(line_of(str(made.text), "bar.sync 3")))


def test_an_arrival_that_nobody_waits_for_is_fine(sandbox: Sandbox, backend: str) -> None:
    success(sandbox, job(backend, "bar.arrive 4, 128;", block=64))


# -- waiting for each other through memory


def test_a_warp_that_never_comes(sandbox: Sandbox, backend: str) -> None:
    """Block 0 waits for a flag that nobody sets."""
    body = """
LOOP:
    ld.acquire.gpu.global.u32 %r1, [%rd0];
    setp.ne.u32 %p1, %r1, 1;
    @%p1 bra LOOP;"""
    made = job(backend, body, grid=2, block=64)
    text = str(made.text)
    message = refusal(sandbox, made, "Deadlock", "kernel 'k'", seconds=20)
    lines = [line_of(text, part) for part in ("LOOP:", "ld.acquire", "setp.ne", "@%p1 bra")]
    assert any(f":{line}" in message or f"line {line}" in message for line in lines), message


def test_a_lock_that_is_never_released(sandbox: Sandbox, backend: str) -> None:
    body = """
LOOP:
    atom.global.cas.b32 %r1, [%rd0], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LOOP;"""
    refusal(sandbox, job(backend, body, block=64), "Deadlock", "k.ptx:", seconds=20)


SPIN_LOCK = """
    mov.u32 %r9, %tid.x;
LOOP:
    atom.global.cas.b32 %r1, [%rd0], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LOOP;
    ld.volatile.global.u32 %r2, [%rd0+4];
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%rd0+4], %r2;
    membar.gl;
    atom.global.exch.b32 %r3, [%rd0], 0;"""


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (1, 7), (2, 64), (4, 33)])
def test_spin_locks_between_and_inside_warps_complete(sandbox: Sandbox, grid: int, block: int) -> None:
    outcome = success(sandbox, job("llvm", SPIN_LOCK, grid=grid, block=block), seconds=60)
    assert outcome.outputs[0][:2].tolist() == [0, grid * block]


@pytest.mark.parametrize(("grid", "block"), [(1, 7), (2, 1)])
def test_spin_locks_on_the_reference_backend(sandbox: Sandbox, grid: int, block: int) -> None:
    outcome = success(sandbox, job("reference", SPIN_LOCK, grid=grid, block=block), seconds=60)
    assert outcome.outputs[0][:2].tolist() == [0, grid * block]


def test_a_producer_and_a_consumer_lane_of_one_warp(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p1, %r0, 3;
    @%p1 bra PRODUCE;
WAIT:
    ld.volatile.global.u32 %r1, [%rd0];
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra WAIT;
    bra DONE;
PRODUCE:
    st.volatile.global.u32 [%rd0], 1;
DONE:
    red.global.add.u32 [%rd0+4], 1;"""
    outcome = success(sandbox, job(backend, body))
    assert outcome.outputs[0][:2].tolist() == [1, 32]


def test_a_barrier_of_the_whole_grid(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra MEET;
    mov.u32 %r5, %nctaid.x;
    membar.gl;
    atom.global.add.u32 %r1, [%rd0], 1;
SPIN:
    ld.acquire.gpu.global.u32 %r2, [%rd0];
    setp.lt.u32 %p2, %r2, %r5;
    @%p2 bra SPIN;
MEET:
    bar.sync 0;
    ld.volatile.global.u32 %r3, [%rd0];
    mov.u32 %r6, %nctaid.x;
    setp.eq.u32 %p3, %r3, %r6;
    @%p3 red.global.add.u32 [%rd0+4], 1;"""
    outcome = success(sandbox, job(backend, body, grid=12, block=64, cooperative=True), seconds=60)
    assert outcome.outputs[0][:2].tolist() == [12, 12 * 64]


# -- ways to nowhere


@pytest.mark.parametrize("index", ["3", "100", "0xffffffff", "-1"])
def test_an_indirect_branch_beyond_its_table(sandbox: Sandbox, backend: str, index: str) -> None:
    body = f"""
    mov.s32 %r1, {index};
TABLE: .branchtargets ONE, TWO, ONE;
    brx.idx %r1, TABLE;
ONE:
    mov.u32 %r2, 1;
TWO:"""
    made = job(backend, body)
    outcome = sandbox.run(made)
    assert outcome.kind == "error", outcome
    assert f"k.ptx:{line_of(str(made.text), 'brx.idx')}:" in outcome.text and "3" in outcome.text, (
        outcome.text
    )


def test_an_indirect_branch_beyond_its_table_in_inactive_lanes(sandbox: Sandbox, backend: str) -> None:
    body = """
    mov.u32 %r1, %tid.x;
    setp.gt.u32 %p1, %r1, 1;
    @%p1 bra END;
TABLE: .branchtargets ONE, TWO;
    brx.idx %r1, TABLE;
ONE:
    st.global.u32 [%rd0], 1;
TWO:
    st.global.u32 [%rd0+4], 2;
END:"""
    outcome = success(sandbox, job(backend, body))
    assert outcome.outputs[0][:2].tolist() == [1, 2]


@pytest.mark.parametrize("target", ["0", "0xffffffffffffffff", "0x300000000000", "0x123"])
def test_a_call_of_what_is_no_function(sandbox: Sandbox, backend: str, target: str) -> None:
    before = ".func f() { ret; }"
    body = f"""
    mov.u64 %rd1, f;
    mov.u64 %rd2, {target};
PROTO: .callprototype _ ();
    call %rd2, PROTO;"""
    made = job(backend, body, before=before)
    outcome = sandbox.run(made)
    assert outcome.kind == "error", outcome
    assert f"k.ptx:{line_of(str(made.text), 'call %rd2')}:" in outcome.text, outcome.text
    assert len(outcome.text.splitlines()) <= 5


@pytest.mark.parametrize(
    ("declaration", "call"),
    [
        (
            ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);",
            "{ .param .b64 a0; .param .b64 a1; .param .b32 r0; st.param.b64 [a0], %rd0; st.param.b64 [a1], %rd0; "
            "call.uni (r0), vprintf, (a0, a1); ld.param.b32 %r1, [r0]; }",
        ),
        (
            ".extern .func (.param .b64 r) malloc (.param .b64 a);",
            "{ .param .b64 a0; .param .b64 r0; st.param.b64 [a0], 64; call.uni (r0), malloc, (a0); "
            "ld.param.b64 %rd1, [r0]; }",
        ),
        (".extern .func nothing ();", "call nothing;"),
        (
            ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);",
            "{ .param .b64 a0; .param .b32 a1; st.param.b64 [a0], %rd0; st.param.b32 [a1], 1; "
            "call __assertfail, (a0, a0, a1, a0, a0); }",
        ),
    ],
)
def test_a_call_of_a_function_without_a_body(
    sandbox: Sandbox, backend: str, declaration: str, call: str
) -> None:
    made = job(backend, call, before=declaration)
    outcome = sandbox.run(made)
    if outcome.kind == "ok":
        assert "vprintf" in declaration or "malloc" in declaration
        return
    assert outcome.kind == "error", outcome.text
    assert f"k.ptx:{line_of(str(made.text), call)}:" in outcome.text, outcome.text
    # where no lane gets there it does no harm
    guarded = f"setp.ne.u32 %p1, 0, 0;\n    @!%p1 bra SKIP;\n    {call}\nSKIP:"
    success(sandbox, job(backend, guarded, before=declaration))


@pytest.mark.parametrize("instruction", ["trap;", "brkpt;"])
def test_traps(sandbox: Sandbox, backend: str, instruction: str) -> None:
    body = f"mov.u32 %r0, %tid.x;\n    setp.eq.u32 %p1, %r0, 37;\n    @!%p1 bra END;\n    {instruction}\nEND:"
    made = job(backend, body, block=64)
    refusal(
        sandbox,
        made,
        "TrapError",
        f"k.ptx:{line_of(str(made.text), f'    {instruction}')}:",
        "thread (37, 0, 0) of block (0, 0, 0)",
        "kernel 'k'",
    )
    guarded = f"mov.u32 %r0, %tid.x;\n    setp.eq.u32 %p1, %r0, 99;\n    @%p1 {instruction}"
    success(sandbox, job(backend, guarded, block=64))


def test_falling_off_the_end_returns(sandbox: Sandbox, backend: str) -> None:
    text = module(f"{LOAD} st.global.u32 [%rd0], 1;", OUT)
    outcome = success(sandbox, Job(text, backend=backend, args=[np.zeros(4, np.uint32)]))
    assert outcome.outputs[0][0] == 1


def test_an_empty_kernel(sandbox: Sandbox, backend: str) -> None:
    outcome = success(sandbox, Job(module(""), backend=backend))
    assert outcome.profile["thread_instructions"] == 0
