"""The interface: arguments, memory spaces, variables, calls, syntax seen in the wild, and errors."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from .kernels import HEAD, collect, launch, module
from .reader import parse
from .scalar import Buffer, OracleError, PtxError, run
from .shapes import RECURSION, RECURSIVE_BODY
from .tokens import tokenize

SAXPY = """
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.nc.f32 %f2, [%rd5];
    add.s64 %rd6, %rd2, %rd4;
    ld.global.f32 %f3, [%rd6];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd6], %f4;
DONE:
    ret;
"""


def test_saxpy() -> None:
    n = 100
    x, y = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
    text = module(SAXPY, ".param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y")
    out = Buffer(y)
    result = run(text, "k", (2,), (64, 1), [np.int32(n), 2.0, Buffer(x), out])
    np.testing.assert_array_equal(result.memory[1], 2 * x + y)
    np.testing.assert_array_equal(out.numpy(), result.memory[1])
    # 128 threads run 10 instructions and ret, 100 of them 8 more; the fourth warp (96…127) has 4 of them.
    assert result.thread_instructions == 128 * 11 + 100 * 8
    assert result.warp_instructions == 4 * 19
    assert (result.branches_executed, result.branches_divergent) == (4, 1)
    assert result.branch_efficiency == 75.0


def test_parameters_of_all_kinds_are_placed_by_alignment() -> None:
    body = """
    ld.param.s8 %r1, [a];
    ld.param.u16 %r2, [b];
    ld.param.f64 %fd1, [c];
    ld.param.b32 %r3, [d+4];
    mov.b64 %rd1, d;
    ld.param.b32 %r4, [%rd1+8];
    ld.param.u64 %rd2, [e];
    cvt.rzi.s32.f64 %r5, %fd1;
    st.global.v4.b32 [%rd2], {%r1, %r2, %r3, %r4};
    st.global.b32 [%rd2+16], %r5;
    ret;
"""
    text = module(body, ".param .s8 a, .param .u16 b, .param .f64 c, .param .align 4 .b8 d[12], "
                        ".param .u64 .ptr .global .align 16 e")  # fmt: skip
    out = Buffer(np.zeros(5, np.int32))
    structure = struct.pack("<iii", 1, 22, 333)
    result = run(text, "k", 1, 1, [np.int8(-3), 65535, 7.9, structure, out])
    assert result.memory[0].tolist() == [-3, 65535, 22, 333, 7]


def test_addresses_are_fixed_aligned_and_kept() -> None:
    text = module("ret;", ".param .u64 a, .param .u64 b")
    a, b = Buffer(300), Buffer(b"xyz")  # an address is given when the buffer is made
    assert a.address >= 0x300000000000
    assert a.address % 256 == 0
    assert b.address == a.address + 768  # 300 bytes need 512, a gap follows
    run(text, "k", 1, 1, [b, a])
    run(text, "k", 1, 1, [a, None])
    assert b.address == a.address + 768


def test_pointers_outlive_a_launch() -> None:
    """The first launch stores a pointer to one buffer in another, the second follows it."""
    text = (
        HEAD
        + """
.global .align 4 .u32 unrelated[100];
.entry store(.param .u64 where, .param .u64 what)
{
    .reg .b64 %a, %b;
    ld.param.u64 %a, [where];
    ld.param.u64 %b, [what];
    st.global.u64 [%a], %b;
    ret;
}
.entry follow(.param .u64 where, .param .u64 what, .param .u64 result)
{
    .reg .b64 %a; .reg .b32 %x;
    ld.param.u64 %a, [where];
    ld.global.u64 %a, [%a];
    ld.global.u32 %x, [%a+4];
    ld.param.u64 %a, [result];
    st.global.u32 [%a], %x;
    ret;
}
"""
    )
    cell, values, result = Buffer(8), Buffer(np.array([5, 77], np.uint32)), Buffer(np.zeros(1, np.uint32))
    run(text, "store", 1, 1, [cell, values])
    assert run(text, "follow", 1, 1, [cell, values, result]).memory[2].tolist() == [77]
    with pytest.raises(OracleError, match="no allocation holds"):
        run(text, "follow", 1, 1, [cell, None, result])
    run(text, "follow", 1, 1, [cell, None, result], reachable=[values])


def test_special_registers_in_three_dimensions() -> None:
    body = """
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %nctaid.x;
    mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z;
    mad.lo.u32 %r10, %r3, %r5, %r2;
    mad.lo.u32 %r10, %r10, %r4, %r1;            // thread in its block
    mad.lo.u32 %r11, %r9, 3, %r8;
    mad.lo.u32 %r11, %r11, %r6, %r7;            // block in the grid, 3 high
    mad.lo.u32 %r12, %r11, 24, %r10;
    mul.wide.u32 %rd2, %r12, 4;
    add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r13, %laneid;
    mov.u32 %r14, %nctaid.z;
    mad.lo.u32 %r13, %r14, 100, %r13;
    st.global.u32 [%rd1], %r13;
    ret;
"""
    text = module(body, ".param .u64 out")
    out = run(text, "k", (2, 3, 2), (4, 3, 2), [Buffer(np.zeros(12 * 24, np.int32))]).memory[0]
    assert out.tolist() == [200 + i for i in range(24)] * 12


def test_lane_masks() -> None:
    holds = {"lt": int.__lt__, "le": int.__le__, "eq": int.__eq__, "ge": int.__ge__, "gt": int.__gt__}
    for name, relation in holds.items():
        expected = [sum(1 << i for i in range(32) if relation(i, lane)) for lane in range(32)]
        assert collect(f"mov.u32 %r0, %lanemask_{name};") == expected


def test_loads_extend_to_the_register() -> None:
    before = ".global .align 8 .b8 bytes[8] = {0xFF, 0x80, 1, 2, 3, 4, 5, 6};"
    assert collect("ld.global.s8 %r0, [bytes];", 1, before=before) == [0xFFFFFFFF]
    assert collect("ld.global.u8 %r0, [bytes+1];", 1, before=before) == [0x80]
    assert collect("ld.global.s16 %h1, [bytes]; cvt.s32.s16 %r0, %h1;", 1, before=before) == [0xFFFF80FF]
    assert collect("ld.global.v2.u8 {_, %r0}, [bytes+2];", 1, before=before) == [2]
    assert collect("ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [bytes]; mov.b32 %r0, {%h2, %h3};", 1,
                   before=before) == [0x06050403]  # fmt: skip
    assert collect("mov.u64 %rd1, bytes+4; ld.u16 %r0, [%rd1 + 2];", 1, before=before) == [0x0605]


def test_initialisers() -> None:
    before = """
.const .align 4 .f32 numbers[2][2] = {{1.0, 0f40000000}, {-0.5}};
.global .u32 plain = 1 << 5;
.global .u64 pointers[2] = {plain, generic(plain)+4};
.const .s16 sized[] = {-1, 2, 3};
.global .align 8 .u8 mixed[8] = {0xFF(plain), 0xFF00(plain), 1};
"""
    assert collect("ld.const.b32 %r0, [numbers+8];", 1, before=before) == [0xBF000000]
    assert collect("ld.const.b32 %r0, [numbers+12];", 1, before=before) == [0]
    assert collect("ld.const.s16 %r0, [sized];", 1, before=before) == [0xFFFFFFFF]
    indirect = "ld.global.u64 %rd1, [pointers+8]; ld.global.u32 %r0, [%rd1+-4];"
    assert collect(indirect, 1, before=before) == [32]
    address = (
        "mov.u64 %rd1, plain; cvt.u32.u64 %r1, %rd1; ld.global.u16 %r2, [mixed]; and.b32 %r1, %r1, 0xffff;"
    )
    assert collect(address + "sub.u32 %r0, %r1, %r2;", 1, before=before) == [0]


def test_symbols_are_set_and_read_back() -> None:
    before = ".visible .const .b32 factor = 3;\n.visible .global .b32 seen;\n"
    text = module("ld.const.u32 %r1, [factor]; st.global.u32 [seen], %r1; ret;", before=before)
    assert run(text, "k", 1, 1, []).symbols["seen"] == (3).to_bytes(4, "little")
    changed = run(text, "k", 1, 1, [], symbols={"factor": (8).to_bytes(4, "little")})
    assert changed.symbols["seen"] == (8).to_bytes(4, "little")


def test_generic_addresses_reach_every_space() -> None:
    body = """
    .shared .align 8 .b8 s[16];
    .local .align 8 .b8 l[16];
    mov.u64 %rd1, s;
    cvta.shared.u64 %rd1, %rd1;
    mov.u64 %rd2, l;
    cvta.local.u64 %rd2, %rd2;
    mov.u32 %r1, %tid.x;
    st.u32 [%rd2+4], %r1;
    st.shared.u32 [s+8], 5;
    ld.u32 %r2, [%rd1+8];
    ld.local.u32 %r3, [l+4];
    cvta.to.shared.u64 %rd3, %rd1;
    ld.shared.u32 %r4, [%rd3+8];
    add.u32 %r0, %r2, %r3;
    add.u32 %r0, %r0, %r4;
"""
    assert collect(body, 4) == [10, 11, 12, 13]


def test_dynamic_shared_memory_follows_the_static() -> None:
    before = ".extern .shared .align 16 .b8 dynamic[];\n"
    body = """
    .shared .align 4 .b8 fixed[20];
    mov.u32 %r1, dynamic;
    st.shared.u32 [fixed+16], 5;
    st.shared.u32 [%r1+60], 9;
    ld.shared.u32 %r2, [dynamic+60];
    ld.shared.u32 %r3, [fixed+16];
    add.u32 %r0, %r1, %r2;
    mad.lo.u32 %r0, %r3, 100, %r0;
"""
    assert collect(body, 1, before=before, shared_bytes=64) == [500 + 32 + 9]
    with pytest.raises(OracleError, match="shared memory ends at 80"):
        collect(body, 1, before=before, shared_bytes=48)


def test_recursion_returns_the_sum() -> None:
    # total(n) = n + … + 1 for n = lane & 3
    assert collect(RECURSIVE_BODY, before=RECURSION) == [0, 1, 3, 6] * 8


def test_deep_recursion() -> None:
    body = RECURSIVE_BODY.replace("and.b32 %r2, %r1, 3", "mov.u32 %r2, 500")
    assert collect(body, 1, before=RECURSION) == [125250]


def test_recursion_without_end_is_an_error() -> None:
    before = ".func f() { call f, (); ret; }"
    with pytest.raises(OracleError, match="f calls itself without end"):
        launch("call f, (); ret;", 1, before=before)


def test_calls_with_registers_structures_and_locals() -> None:
    before = """
.func (.reg .u32 sum) plus(.reg .u32 a, .reg .u32 b)
{
    .local .align 4 .b8 spill[4];
    st.local.u32 [spill], a;
    ld.local.u32 sum, [spill];
    add.u32 sum, sum, b;
    ret;
}
.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16])
{
    .reg .b64 %a, %b;
    ld.param.b64 %a, [in];
    ld.param.b64 %b, [in+8];
    st.param.b64 [out], %b;
    st.param.v2.b32 [out+8], {1, 2};
    ret;
}
"""
    body = """
    call.uni (%r1), plus, (40, 2);
    {
    .param .align 8 .b8 given[16];
    .param .align 8 .b8 back[16];
    st.param.b64 [given+0], 7;
    st.param.b64 [given+8], 1000;
    call.uni (back), swap, (given);
    ld.param.b32 %r2, [back];
    ld.param.b32 %r3, [back+12];
    }
    add.u32 %r0, %r1, %r2;
    add.u32 %r0, %r0, %r3;
"""
    assert collect(body, 3, before=before) == [42 + 1000 + 2] * 3


def test_a_function_declared_before_it_stands() -> None:
    before = """
.func (.param .b32 r) twice(.param .b32 a);
.func (.param .b32 r) twice(.param .b32 a)
{
    .reg .b32 %x;
    ld.param.b32 %x, [a];
    shl.b32 %x, %x, 1;
    st.param.b32 [r], %x;
    ret;
}
"""
    assert collect("call (%r0), twice, (21);", 1, before=before) == [42]


def test_cp_async_copies_and_fills_with_zeros() -> None:
    before = ".global .align 16 .b8 from[16] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
    body = """
    .shared .align 16 .b8 to[32];
    cp.async.ca.shared.global [to], [from], 8, 4;
    cp.async.cg.shared.global.L2::128B [to+16], [from], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.u32 %r1, [to];
    ld.shared.u32 %r2, [to+4];
    ld.shared.u32 %r3, [to+20];
    add.u32 %r0, %r1, %r2;
    add.u32 %r0, %r0, %r3;
"""
    assert collect(body, 1, before=before) == [0x04030201 + 0 + 0x08070605]


def test_forms_that_trip_parsers() -> None:
    text = (
        HEAD
        + """
.file 1 "a//b.cu"
.section .debug_abbrev { .b8 1
.b8 0x2e }
.weak .global .align 4 .attribute(.managed) .b32 managed;
.visible .entry const(
    .param .u64 .ptr .global .align 4 const_param_0
)
.maxntid 128, 1, 1
.minnctapersm 2
.pragma "nounroll";
{
    .reg .pred %p<2>; .reg .b32 %r<5>;
    .loc 1 4 5
    .loc 1 2 3, function_name $L__info_string0, inlined_at 1 4 5
    mov.u32
        %r1,
        0x10U;   /* a comment
                    over lines */
    .pragma "used_bytes_mask 0xfff";
    .reg .b64 %rd<3>;
    // begin inline asm
    { .reg .b32 %r1; LOOP: mov.u32 %r1, 7; bra END; END: }
    { .reg .b32 %r1; LOOP: mov.u32 %r1, 8; bra END; END: }
    // end inline asm
$L__BB0_1: { mov.b32 %r2, 010; }
    setp.eq.s32 %p0|%p1, %r1, 16;
    @!%p0 trap;
    ld.param.u64 %rd1, [const_param_0];
    st.global.u32 [ %rd1 + 0 ], %r1;
    st.global.u32 [%rd1+-4+8], %r2;
    mov.u32 %r3, WARP_SZ;
    st.global.u32 [%rd1+8], %r3;
    ret;
}
"""
    )
    out = run(text, "const", 1, 1, [Buffer(np.zeros(3, np.uint32))])
    assert out.memory[0].tolist() == [16, 8, 32]
    # mov, 2·(mov, bra), mov, setp, trap, ld, st, st, mov, st, ret
    assert out.thread_instructions == 14


def test_tokens_know_their_lines() -> None:
    tokens = tokenize("a /* x\n y */ b\n// c\n.loc 1 2\n%tid.x")
    assert [(t.text, t.line) for t in tokens] == [("a", 1), ("b", 2), ("%tid", 5), (".x", 5)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u64 %rd1, 0; ld.global.u32 %r0, [%rd1];", "no allocation holds 4 bytes at 0x0"),
        ("mov.u64 %rd1, cell; ld.global.u32 %r0, [%rd1+4];", "no allocation holds 4 bytes"),
        ("mov.u64 %rd1, cell; ld.global.u32 %r0, [%rd1+2];", "misaligned access of 4 bytes"),
        ("mov.u64 %rd1, cell; st.global.u64 [%rd1], 1;", "no allocation holds 8 bytes"),
        ("mov.u32 %r1, 0; ld.shared.u32 %r0, [%r1];", "shared memory ends at 0"),
        ("st.local.u32 [8], 1;", "local memory ends at 0"),
        ("trap;", "line .*: trap"),
        ("brkpt;", "line .*: brkpt"),
        ("add.e4m3x4.e4m3x4 %r0, %r1, %r2;", "no type that the oracle knows"),
        ("red.async.relaxed.cluster.global.add.u32 [cell], 1, [cell];", "there is no mbarrier"),
        ("bar.sync 16;", "there is no barrier 16"),
        ("mov.u32 %r0, %nothing;", "unknown name '%nothing'"),
        ("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [cell, {%f1}];", "does not know"),
        ("call missing, ();", "unknown function"),
    ],
)
def test_errors_of_kernels(body: str, message: str) -> None:
    if body.startswith("tex"):
        body = "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, cell, {%f1};"
    with pytest.raises(OracleError, match=message):
        launch(body, 1, before=".global .align 8 .b32 cell;\n")


def test_an_unknown_instruction_that_nobody_reaches_is_no_error() -> None:
    launch("bra END; frobnicate.u32 %r0, %r1; END: ret;")


@pytest.mark.parametrize(
    "text", ["@", ".version 8.0 .target sm_80 .entry k( {", "\x01", ".entry k() { add.u32 "]
)
def test_text_that_is_not_ptx(text: str) -> None:
    with pytest.raises(PtxError):
        parse(text)


def test_wrong_arguments() -> None:
    text = module("ret;", ".param .u32 n")
    with pytest.raises(OracleError, match="takes 1 arguments, not 0"):
        run(text, "k", 1, 1, [])
    with pytest.raises(OracleError, match="has 4 bytes, the argument 8"):
        run(text, "k", 1, 1, [np.int64(3)])
    with pytest.raises(OracleError, match="no entry named 'other'"):
        run(text, "other", 1, 1, [])


def test_results_do_not_depend_on_the_quantum() -> None:
    text = module(SAXPY, ".param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y")
    runs = []
    for quantum in (1, 7, 2000):
        x, y = Buffer(np.arange(50, dtype=np.float32)), Buffer(np.ones(50, np.float32))
        result = run(text, "k", 1, 64, [50, 3.0, x, y], quantum=quantum)
        runs.append((result.memory[1].tolist(), result.opcodes, result.warp_opcodes))
    assert runs[0] == runs[1] == runs[2]


def test_float_sums_of_vectors_flush_subnormals() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) { .reg .b64 a; .reg .f32 f<2>;"
        "ld.param.u64 a, [p]; mov.b32 f0, 0x00000001; mov.b32 f1, 0x3f800000;"
        "red.global.v2.add.f32 [a], {f0, f1}; red.global.add.f32 [a+8], f0; ret; }"
    )
    memory = Buffer(np.array([0x00700000, 0x00700000, 0x80700000], np.uint32))
    run(text, "k", 1, 1, [memory])
    assert memory.numpy().tolist() == [0, 0x3F800000, 0]
