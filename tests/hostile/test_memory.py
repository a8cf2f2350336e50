"""Accesses that miss: every state space, every way of missing, at the boundary and far away."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hostile.kernels import line_of, module, refusal, success
from tests.hostile.sandbox import Job, Sandbox

START = """
    ld.param.u64 %rd0, [a];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd2, %rd0, %rd1;
"""
BEFORE = """
.const .align 16 .b32 table[16] = {1, 2, 3};
.global .align 16 .b32 counter[5];
.shared .align 16 .b8 tile[64];
"""
LOCAL = "    .local .align 16 .b8 scratch[32];\n"
SHARED_WINDOW, LOCAL_WINDOW = "cvta.shared.u64 %rd3, tile_;", "cvta.local.u64 %rd3, scratch_;"


def job(backend: str, body: str, block: int = 1, words: int = 64, **options: object) -> Job:
    text = module(f"{LOCAL}{START}\n    {body}\n    ret;", ".param .u64 a", BEFORE)
    return Job(text, backend=backend, block=block, args=[np.zeros(words, np.uint32)], options=options)


OUTSIDE = {
    "one past the end": "ld.global.u32 %r1, [%rd0+256];",
    "last byte past the end": "ld.global.u8 %r1, [%rd0+256];",
    "before the start": "ld.global.u32 %r1, [%rd0+-4];",
    "store past the end": "st.global.u32 [%rd0+256], %r0;",
    "atomic past the end": "atom.global.add.u32 %r1, [%rd0+256], 1;",
    "reduction past the end": "red.global.add.u32 [%rd0+256], 1;",
    "compare and swap past the end": "atom.global.cas.b64 %rd4, [%rd0+256], %rd1, %rd1;",
    "vector past the end": "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+256];",
    "vector of doubles past the end": "st.global.v2.f64 [%rd0+256], {%fd0, %fd1};",
    "far behind": "ld.global.u64 %rd4, [%rd0+1048576];",
    "far before": "ld.global.u64 %rd4, [%rd0+-1048576];",
    "half of the address space away": "add.u64 %rd3, %rd0, 0x8000000000000000; ld.global.u32 %r1, [%rd3];",
    "the last word": "mov.u64 %rd3, 0xfffffffffffffffc; ld.global.u32 %r1, [%rd3];",
    "the last byte": "mov.u64 %rd3, 0xffffffffffffffff; ld.global.u8 %r1, [%rd3];",
    "the last vector": "mov.u64 %rd3, 0xfffffffffffffff0; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];",
    "store to the last word": "mov.u64 %rd3, 0xfffffffffffffff8; st.global.u64 [%rd3], %rd3;",
    "atomic on the last word": "mov.u64 %rd3, 0xfffffffffffffffc; atom.global.or.b32 %r1, [%rd3], 1;",
    "offset that wraps": "mov.u64 %rd3, 0xfffffffffffffff8; ld.global.u32 %r1, [%rd3+1048576];",
    "a function's address": "mov.u64 %rd3, f; ld.global.u32 %r1, [%rd3];",
    "module variable past its end": "ld.global.u32 %r1, [counter+20];",
    "constant past its end": "ld.const.u32 %r1, [table+64];",
    "constant far past its end": "mov.u64 %rd3, table; add.u64 %rd3, %rd3, 0x100000000; ld.const.u32 %r1, [%rd3];",
    "shared past the end": "ld.shared.u32 %r1, [tile+64];",
    "shared store past the end": "st.shared.u32 [tile+64], %r0;",
    "shared atomic past the end": "atom.shared.add.u32 %r1, [tile+64], 1;",
    "shared before the start": "mov.u32 %r2, -4; ld.shared.u32 %r1, [%r2];",
    "shared at two to the 31": "mov.u32 %r2, 0x80000000; st.shared.u32 [%r2], %r0;",
    "shared beyond 32 bits": "mov.u64 %rd3, 0x100000000; ld.shared.u32 %r1, [%rd3];",
    "shared vector past the end": "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+64];",
    "local past the end": "ld.local.u32 %r1, [scratch+32];",
    "local store far past the end": "mov.u64 %rd3, scratch; st.local.u32 [%rd3+65536], %r0;",
    "local before the start": "mov.u64 %rd3, scratch; ld.local.u32 %r1, [%rd3+-4];",
    "local vector past the end": "st.local.v2.u64 [scratch+32], {%rd0, %rd1};",
    "generic past the end": "ld.u32 %r1, [%rd0+256];",
    "generic store past shared": "mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; st.u32 [%rd3+64], %r0;",
    "generic before shared": "mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; ld.u32 %r1, [%rd3+-4];",
    "generic past local": "mov.u64 %rd3, scratch; cvta.local.u64 %rd3, %rd3; ld.u64 %rd4, [%rd3+32];",
    "generic atomic past shared": "mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; atom.add.u32 %r1, [%rd3+64], 1;",
    "generic at the end of a window": "mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; "
    "add.u64 %rd3, %rd3, 0xfffffff0; ld.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];",
    "generic at the last word": "mov.u64 %rd3, 0xfffffffffffffff0; ld.v2.u64 {%rd4, %rd5}, [%rd3];",
    "not an address at all": "mov.u64 %rd3, 0x123456789abcdef0; ld.u32 %r1, [%rd3];",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_out_of_bounds(sandbox: Sandbox, backend: str, name: str) -> None:
    body = OUTSIDE[name]
    made = job(backend, body)
    text = str(made.text).replace(".visible", ".func f() { ret; }\n.visible")
    message = refusal(
        sandbox,
        Job(text, backend=backend, block=1, args=made.args),
        "MemoryFault",
        f"k.ptx:{line_of(text, body)}:",
        "out-of-bounds",
        "thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'",
    )
    if "end" in name and "global" in body and "%rd0" in body:
        assert "past the end of 'array0' (256 bytes at 0x3000" in message


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u16 %h1, [%rd0+1];",
        "ld.global.u32 %r1, [%rd0+2];",
        "ld.global.u64 %rd4, [%rd0+4];",
        "st.global.u64 [%rd0+4], %rd1;",
        "ld.global.v2.u32 {%r1, %r2}, [%rd0+4];",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];",
        "st.global.v4.f32 [%rd0+8], {%f1, %f2, %f3, %f4};",
        "ld.global.v2.f64 {%fd1, %fd2}, [%rd0+8];",
        "ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%rd0+2];",
        "atom.global.add.u32 %r1, [%rd0+2], 1;",
        "red.global.add.f64 [%rd0+4], %fd1;",
        "ld.shared.u32 %r1, [tile+1];",
        "st.shared.v4.u32 [tile+8], {%r1, %r2, %r3, %r4};",
        "atom.shared.cas.b32 %r1, [tile+2], 0, 1;",
        "ld.local.u64 %rd4, [scratch+4];",
        "st.local.u16 [scratch+1], %h1;",
        "ld.const.u32 %r1, [table+2];",
        "ld.u32 %r1, [%rd0+2];",
        "mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; ld.u32 %r1, [%rd3+2];",
        "mov.u64 %rd3, scratch; cvta.local.u64 %rd3, %rd3; st.u64 [%rd3+4], %rd1;",
    ],
)
def test_misaligned(sandbox: Sandbox, backend: str, body: str) -> None:
    made = job(backend, body)
    refusal(
        sandbox,
        made,
        "MemoryFault",
        f"k.ptx:{line_of(str(made.text), body)}:",
        "misaligned",
        "must be a multiple of",
    )


@pytest.mark.parametrize("words", [61, 62, 63])
@pytest.mark.parametrize(
    "body",
    [
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+240];",
        "st.global.v4.u32 [%rd0+240], {%r1, %r2, %r3, %r4};",
        "ld.v2.u64 {%rd4, %rd5}, [%rd0+240];",
    ],
)
def test_vectors_across_the_end(sandbox: Sandbox, backend: str, body: str, words: int) -> None:
    if "u64" in body and words == 63:  # the last element begins inside
        success(sandbox, job(backend, body, words=words))
        return
    over = 256 - 4 * words
    refusal(sandbox, job(backend, body, words=words), "MemoryFault", f"{over} bytes past the end of 'array0'")


def test_vectors_up_to_the_end_are_fine(sandbox: Sandbox, backend: str) -> None:
    success(sandbox, job(backend, "st.global.v4.u32 [%rd0+240], {%r1, %r2, %r3, %r4};"))
    success(sandbox, job(backend, "ld.local.v4.u32 {%r1, %r2, %r3, %r4}, [scratch+16];"))
    success(sandbox, job(backend, "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+48];"))


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r1, [%rd0];",
        "st.global.u64 [%rd0+8], %rd1;",
        "ld.u8 %r1, [%rd0+4095];",
        "atom.global.add.u32 %r1, [%rd0], 1;",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];",
    ],
)
def test_null_pointers(sandbox: Sandbox, backend: str, body: str) -> None:
    made = job(backend, body)
    null = Job(made.text, backend=backend, block=1, args=[None])
    refusal(sandbox, null, "MemoryFault", "null pointer", "a pointer argument is None")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("mov.u64 %rd3, table; st.global.u32 [%rd3], %r0;", "constant memory"),
        ("mov.u64 %rd3, table; cvta.const.u64 %rd3, %rd3; st.u32 [%rd3], %r0;", "constant memory"),
        ("mov.u64 %rd3, table; cvta.const.u64 %rd3, %rd3; atom.add.u32 %r1, [%rd3], 1;", "constant memory"),
        ("mov.u64 %rd3, a; cvta.param.u64 %rd3, %rd3; st.u32 [%rd3], %r0;", "parameter memory"),
        ("mov.u64 %rd3, a; cvta.param.u64 %rd3, %rd3; red.add.u32 [%rd3], 1;", "parameter memory"),
    ],
)
def test_memory_that_cannot_be_written(sandbox: Sandbox, backend: str, body: str, what: str) -> None:
    refusal(sandbox, job(backend, body), "MemoryFault", what)


def test_parameters_through_generic_addresses(sandbox: Sandbox, backend: str) -> None:
    read = "mov.u64 %rd3, a; cvta.param.u64 %rd3, %rd3; ld.u64 %rd4, [%rd3]; st.global.u64 [%rd0], %rd4;"
    outcome = success(sandbox, job(backend, read))
    assert outcome.outputs[0][:2].view(np.uint64)[0] >> 40 == 0x30
    beyond = "mov.u64 %rd3, a; cvta.param.u64 %rd3, %rd3; ld.u64 %rd4, [%rd3+8];"
    refusal(sandbox, job(backend, beyond), "MemoryFault", "out-of-bounds", "parameters of k")


@pytest.mark.parametrize(
    "body", ["ld.param.u64 %rd3, [a+8];", "ld.param.u64 %rd3, [a+-8];", "ld.param.u32 %r3, [a+6];"]
)
def test_parameters_at_constant_offsets(sandbox: Sandbox, backend: str, body: str) -> None:
    outcome = sandbox.run(job(backend, body))
    assert outcome.kind == "error", outcome
    assert outcome.type in ("MemoryFault", "PtxError"), outcome.text
    assert "k.ptx:" in outcome.text and len(outcome.text.splitlines()) <= 5


def test_the_lowest_faulting_thread_is_named(sandbox: Sandbox, backend: str) -> None:
    refusal(
        sandbox,
        job(backend, "ld.global.u32 %r1, [%rd2];", block=96),
        "MemoryFault",
        "thread (16, 0, 0) of block (0, 0, 0)",
        "0x300000000100",
    )
    body = "mov.u32 %r5, %ctaid.y; mul.wide.u32 %rd5, %r5, 256; add.u64 %rd6, %rd0, %rd5; ld.global.u32 %r1, [%rd6];"
    made = job(backend, body)
    several = Job(made.text, backend=backend, grid=(1, 2, 2), block=(2, 2, 2), args=made.args)
    refusal(sandbox, several, "MemoryFault", "thread (0, 0, 0) of block (0, 1, 0)")


@pytest.mark.parametrize(
    "body",
    [
        "setp.lt.u32 %p1, %r0, 16; @%p1 st.global.u32 [%rd2], 1;",
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra OVER; st.global.u32 [%rd2], 1; OVER:",
        "setp.ge.u32 %p1, %r0, 16; @%p1 ret; st.global.u32 [%rd2], 1;",
        "setp.lt.u32 %p1, %r0, 16; @%p1 atom.global.add.u32 %r1, [%rd2], 1;",
        "setp.lt.u32 %p1, %r0, 16; @!%p1 mov.u64 %rd2, -1; @%p1 st.u32 [%rd2], 1;",
    ],
)
def test_inactive_lanes_may_hold_any_address(sandbox: Sandbox, backend: str, body: str) -> None:
    outcome = success(sandbox, job(backend, body, block=32))
    assert outcome.outputs[0][::4].tolist() == [1] * 16


def test_what_was_written_before_the_fault_stays(sandbox: Sandbox, backend: str) -> None:
    outcome = sandbox.run(job(backend, "st.global.u32 [%rd0], 7; ld.global.u32 %r1, [%rd0+256];"))
    assert outcome.type == "MemoryFault"
    assert outcome.outputs[0][0] == 7


def test_a_fault_in_a_device_function_names_line_and_kernel(sandbox: Sandbox, backend: str) -> None:
    function = """
.func deref(.param .b64 p)
{
    .reg .b64 %a;
    .reg .b32 %v;
    ld.param.u64 %a, [p];
    ld.global.u32 %v, [%a];
    ret;
}"""
    body = """
    ld.param.u64 %rd0, [a];
    { .param .b64 p0; st.param.b64 [p0+0], %rd0; call deref, (p0); }
    ret;"""
    text = module(body, ".param .u64 a", function)
    refusal(
        sandbox,
        Job(text, backend=backend, args=[None]),
        "MemoryFault",
        f"k.ptx:{line_of(text, 'ld.global.u32 %v, [%a]')}:",
        "null pointer",
        "kernel 'k'",
    )


def test_the_source_line_is_named(sandbox: Sandbox, backend: str) -> None:
    body = ".loc 1 42 7\n    ld.global.u32 %r1, [%rd0+256];"
    made = job(backend, body)
    text = str(made.text) + '\n.file 1 "axpy.cu"\n'
    refusal(sandbox, Job(text, backend=backend, block=1, args=made.args), "MemoryFault", "axpy.cu:42")


def test_the_line_that_calls_a_function_of_cudas_headers_is_named(sandbox: Sandbox, backend: str) -> None:
    body = ".loc 1 42 7\n    .loc 2 9 1, function_name $name, inlined_at 1 42 7\n    ld.global.u32 %r1, [%rd0+256];"
    made = job(backend, body)
    files = '.file 1 "axpy.cu"\n.file 2 "/usr/local/cuda/include/device.hpp"\n'
    names = ".section .debug_str\n{\n$name:\n.b8 102, 0\n}\n"
    text = f"{made.text}\n{files}{names}"
    where = "source line axpy.cu:42, inlined from /usr/local/cuda/include/device.hpp:9"
    refusal(sandbox, Job(text, backend=backend, block=1, args=made.args), "MemoryFault", where)


def test_a_pointer_of_the_host_is_suspected_far_from_all_arrays(sandbox: Sandbox, backend: str) -> None:
    for address, expected in (("0x7ffc3ec32ad0", True), ("0x300000100000", False)):
        made = job(backend, f"mov.u64 %rd3, {address}; st.global.u32 [%rd3], %r0;")
        error = refusal(sandbox, made, "MemoryFault", "out-of-bounds st.global.u32")
        assert ("a pointer of the host? kernels access memory of the device" in error) is expected


def test_dynamic_shared_memory(sandbox: Sandbox, backend: str) -> None:
    before = ".extern .shared .align 16 .b8 dynamic[];"
    text = module("st.shared.u32 [dynamic+60], 1;\n    ret;", "", before)
    success(sandbox, Job(text, backend=backend, options={"shared_bytes": 64}))
    for size in (0, 60, 63):
        job_ = Job(text, backend=backend, options={"shared_bytes": size})
        refusal(sandbox, job_, "MemoryFault", f"beyond the {size} bytes", "pass shared_bytes= at launch")


def test_no_shared_memory_at_all(sandbox: Sandbox, backend: str) -> None:
    text = module("mov.u32 %r1, 0; ld.shared.u32 %r2, [%r1];\n    ret;")
    refusal(sandbox, Job(text, backend=backend), "MemoryFault", "beyond the 0 bytes")


def test_zero_sized_arrays(sandbox: Sandbox, backend: str) -> None:
    success(sandbox, job(backend, "", words=0))
    refusal(sandbox, job(backend, "ld.global.u8 %r1, [%rd0];", words=0), "MemoryFault", "out-of-bounds")


def test_uninitialised_reads_are_noted(sandbox: Sandbox, backend: str) -> None:
    text = module("ld.shared.u32 %r1, [tile];\n    ret;", "", ".shared .align 4 .b32 tile[4];")
    note = f"k.ptx:{line_of(text, 'ld.shared')}:1: ld.shared.u32 reads uninitialised memory"
    assert success(sandbox, Job(text, backend=backend)).profile["notes"] == [note]


def test_a_loop_without_end_names_its_source_line(sandbox: Sandbox, backend: str) -> None:
    """Whether its state repeats, or it counts until the limit is reached."""
    files = '.file 1 "spin.cu"\n'
    for body, kind, message in (
        (
            "ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p0, %r1, 0;",
            "Deadlock",
            "no thread can make progress",
        ),
        ("add.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;", "BudgetExceeded", "does not seem to end"),
    ):
        loop = f"SPIN:\n    .loc 1 51 3\n    {body}\n    @%p0 bra SPIN;"
        made = job(backend, loop)
        text = f"{made.text}\n{files}"
        spinning = Job(text, backend=backend, block=1, args=made.args, options={"max_instructions": 100_000})
        refusal(sandbox, spinning, kind, message, "source line spin.cu:51")
