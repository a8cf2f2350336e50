"""What the bits of accesses are, on PTX written by hand and on what nvcc makes of sources whose types are known."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.flow.access_types import access_types
from gpuperf_engine.simt.program import program_of

from ..support import head


def _types(body: str, functions: str = "", registers: str = "") -> list[tuple[str, ...]]:
    text = (
        head("7.8", "sm_80")
        + f""".shared .align 8 .b8 s[512]; {functions}
.visible .entry k(.param .u64 x) {{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %p; {registers}
    ld.param.u64 %rd1, [x];
    {body}
    ret;
}}"""
    )
    program = program_of(ge.parse(text)["k"])
    return [
        types for instruction, types in access_types(program).items() if instruction.form.space != "param"
    ]


@pytest.mark.parametrize(
    ("body", "types"),
    [
        ("ld.global.b32 %r1, [%rd1]; st.global.b32 [%rd1], %r1;", ["b32", "b32"]),
        ("ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1;", ["b32", "b32"]),
        ("ld.global.s32 %r1, [%rd1]; st.global.u32 [%rd1], %r1;", ["s32", "s32"]),
        ("ld.global.u32 %r1, [%rd1]; add.f32 %r1, %r1, 0f3F800000; st.global.b32 [%rd1], %r1;", ["f32", "f32"]),
        ("ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.b32 [%rd1], %r1;", ["u32", "u32"]),
        ("ld.global.b32 %r1, [%rd1]; mov.b32 %f1, %r1; st.global.b32 [%rd1], %r1;", ["f32", "f32"]),
        ("ld.global.b32 %r1, [%rd1]; cvt.rn.f32.s32 %f1, %r1; st.global.f32 [%rd1], %f1;", ["s32", "f32"]),
        ("ld.global.b32 %r1, [%rd1]; add.s32 %r2, %r1, 1; mov.b32 %f1, %r1; add.f32 %f2, %f1, %f1;", ["b32"]),
        ("ld.global.b32 %r1, [%rd1]; and.b32 %r2, %r1, 0x7FFFFFFF; mov.b32 %f1, %r2; sqrt.approx.f32 %f2, %f1;", ["b32"]),
        ("ld.global.b32 %r1, [%rd1]; mov.b32 %f1, %r1; and.b32 %r2, %r1, 0x7FFFFFFF; st.global.b32 [%rd1], %r2;", ["f32", "b32"]),
        ("ld.global.b32 %r1, [%rd1]; selp.b32 %r2, %r1, %r3, %p; mul.f32 %f1, %r2, %r2;", ["f32"]),
        ("ld.global.b32 %r1, [%rd1]; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; ex2.approx.f32 %f1, %r2;", ["f32"]),
        ("ld.global.b16 %h1, [%rd1]; fma.rn.bf16 %h2, %h1, %h1, %h1; st.global.u16 [%rd1], %h2;", ["bf16", "bf16"]),
        ("mov.b32 %r1, 0; st.global.b32 [%rd1], %r1; add.s32 %r2, %r1, 1; st.global.b32 [%rd1], %r2;", ["b32", "s32"]),
        ("mov.b32 %r1, 0; st.shared.b32 [s], %r1; ld.shared.f32 %f1, [s]; add.s32 %r1, %r1, 1;", ["f32", "f32"]),
        ("mov.b32 %r1, 0f3F800000; st.global.b32 [%rd1], %r1;", ["f32"]),
    ],
)  # fmt: skip
def test_types_follow_definitions_and_uses(body: str, types: list[str]) -> None:
    assert _types(body) == [(type,) for type in types]


@pytest.mark.parametrize(
    ("body", "types"),
    [
        ("ld.global.b32 %r1, [%rd1]; add.f16x2 %r2, %r1, %r1; st.global.u32 [%rd1], %r2;", [("f16",) * 2] * 2),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd1]; fma.rn.bf16x2 %r1, %r1, %r1, %r1;", [("bf16",) * 4]),
        # halves of two pairs make a pair, to either side; bytes, a selection that is not known and words of integers make none
        (
            "ld.global.u32 %r1, [%rd1]; prmt.b32 %r2, %r1, %r3, 0x5410; add.f16x2 %r4, %r3, %r3; st.global.u32 [%rd1], %r2;",
            [("f16",) * 2] * 2,
        ),
        ("ld.global.u32 %r1, [%rd1]; prmt.b32 %r2, %r1, %r1, 0x1032; fma.rn.bf16x2 %r2, %r2, %r2, %r2;", [("bf16",) * 2]),
        ("ld.global.u32 %r1, [%rd1]; prmt.b32 %r2, %r1, %r1, 0x0123; add.f16x2 %r2, %r2, %r2;", [("b32",)]),
        ("ld.global.u32 %r1, [%rd1]; prmt.b32 %r2, %r1, %r1, %r3; add.f16x2 %r2, %r2, %r2;", [("b32",)]),
        (
            "ld.global.u32 %r1, [%rd1]; add.s32 %r1, %r1, 1; prmt.b32 %r2, %r1, %r1, 0x5410; st.global.u32 [%rd1], %r2;",
            [("s32",), ("b32",)],
        ),
        (
            "ld.global.v2.f32 {%f1, %f2}, [%rd1]; mov.b32 %r1, %f1; mov.b32 %r2, %f2; add.f16x2 %r1, %r1, %r2;"
            "mov.b32 %f1, %r1; st.global.v2.f32 [%rd1], {%f1, %f2};", [("f16",) * 4] * 2,
        ),
        ("ld.global.f32 %f1, [%rd1]; mov.b32 %r1, %f1; add.f16x2 %r2, %r1, %r1; add.f32 %f2, %f1, %f1;", [("f32",)]),
        ("ld.global.u32 %r1, [%rd1]; mov.b32 {%h1, %h2}, %r1; add.f16 %h1, %h1, %h2;", [("f16",) * 2]),
        ("ld.global.b32 %r1, [%rd1]; add.f16x2 %r2, %r1, %r1; add.s32 %r3, %r1, 1;", [("b32",)]),
        ("ld.global.b32 %r1, [%rd1]; add.f16x2 %r2, %r1, %r1; fma.rn.bf16x2 %r3, %r1, %r1, %r1;", [("b32",)]),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd1]; add.f16x2 %r1, %r1, %r1; add.s32 %r2, %r2, 1;", [("f16x2", "s32")]),
    ],
)  # fmt: skip
def test_pairs_of_halves_count_by_themselves_where_the_whole_access_is_made_of_them(
    body: str, types: list[tuple[str, ...]]
) -> None:
    assert _types(body) == types


def test_both_ways_of_a_branch_say() -> None:
    body = """
    mov.b32 %r1, 0;
    @%p bra NEXT;
    ld.global.b32 %r1, [%rd1];
NEXT:
    st.global.b32 [%rd1+4], %r1;
    st.global.f32 [%rd1+8], %r1;"""
    assert _types(body) == [("f32",)] * 3


def test_a_constant_says_nothing_of_its_other_uses() -> None:
    """One 0 begins a sum of floats in memory and a counter, as nvcc shares them."""
    body = """
    mov.b32 %r1, 0; st.global.b32 [%rd1], %r1; mov.b32 %r2, %r1;
NEXT:
    ld.global.b32 %r3, [%rd1]; add.f32 %f1, %r3, 0f3F800000; st.global.b32 [%rd1], %f1;
    add.s32 %r2, %r2, 1; setp.lt.s32 %p, %r2, 9; @%p bra NEXT;"""
    assert _types(body) == [("b32",), ("f32",), ("f32",)]


def test_elements_have_types_of_their_own() -> None:
    body = "ld.global.v4.b32 {%r1, %r2, %r3, _}, [%rd1]; add.f32 %f1, %r1, %r1; add.s32 %r4, %r2, 1; "
    assert _types(body) == [("f32", "s32", "b32", "b32")]
    body = "ld.global.v2.b32 {%r1, %r2}, [%rd1]; mov.b64 %rd2, {%r1, %r2}; st.global.b64 [%rd1], %rd2; add.f32 %f1, %r1, %r2;"
    assert _types(body) == [("f32", "f32"), ("f32x2",)]
    body = "ld.global.b64 %rd2, [%rd1]; mov.b64 {%r1, %r2}, %rd2; add.f32 %f1, %r1, %r2;"
    assert _types(body) == [("f32x2",)]


def test_shared_memory_and_calls_pass_types_on() -> None:
    body = """
    ld.global.b32 %r1, [%rd1]; mov.u32 %r2, s;
    st.shared.b32 [%r2], %r1; ld.shared.b32 %r3, [%r2]; add.f32 %f1, %r3, %r3;"""
    assert _types(body) == [("f32",)] * 3
    function = """
.func (.reg .b32 %out) f(.reg .b32 %in) { .reg .b32 %t; add.s32 %t, %in, 1; mov.b32 %out, %t; ret; }"""
    body = "ld.global.b32 %r1, [%rd1]; call (%r2), f, (%r1); st.global.b32 [%rd1], %r2;"
    assert _types(body, function) == [("s32",)] * 2
    function = """
.func (.param .b32 out) f(.param .b32 in) {
    .reg .b32 %t; ld.param.b32 %t, [in]; neg.f32 %t, %t; st.param.b32 [out], %t; ret; }"""
    body = """
    ld.global.b32 %r1, [%rd1];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f, (a); ld.param.b32 %r2, [b]; }
    st.global.b32 [%rd1], %r2;"""
    assert _types(body, function) == [("f32",)] * 2


_METHODS = """
.func whole(.param .b64 to) { .reg .b64 %a; .reg .b32 %t; ld.param.u64 %a, [to]; mov.b32 %t, 7; st.u32 [%a], %t; ret; }
.func half(.param .b64 to) { .reg .b64 %a; .reg .f32 %t; ld.param.u64 %a, [to]; mov.f32 %t, 0f3F000000; st.f32 [%a], %t; ret; }
.global .u64 methods[2] = {whole, half};"""


@pytest.mark.parametrize(
    ("call", "type"), [("%rd3, (a), p;", "b32"), ("half, (a);", "f32")], ids=["virtual", "direct"]
)
def test_what_a_virtual_function_might_store_says_nothing(call: str, type: str) -> None:
    """A function of another class has the same prototype, and stores floats to where it is told."""
    body = f"""
    .local .b32 l; mov.u64 %rd2, l; cvta.local.u64 %rd2, %rd2; ld.global.u64 %rd3, [%rd1];
    p: .callprototype _ (.param .b64 _);
    {{ .param .b64 a; st.param.b64 [a], %rd2; call {call} }}
    ld.local.b32 %r1, [l]; st.global.b32 [%rd1], %r1;"""
    assert _types(body, _METHODS)[1:3] == [(type,)] * 2


def test_atomics_say_what_they_are() -> None:
    assert _types("atom.global.add.f32 %f1, [%rd1], %f2; red.global.or.b32 [%rd1], %r1;") == [
        ("f32",),
        ("b32",),
    ]


def test_a_tile_that_wgmma_multiplies_has_the_type_of_its_operands() -> None:
    """It is brought by a tensor copy, and nobody loads it as words."""
    path = Path(__file__).parents[2] / "examples/kernels/warpgroup_gemm_tma.ptx"
    program = program_of(ge.parse(path.read_text(), path=str(path))["hgemm_tma"])
    types = {
        item.opcode.split(".")[0]: names
        for item, names in access_types(program).items()
        if item.opcode.startswith(("wgmma", "cp."))
    }
    assert types == {"wgmma": ("f16", "f16"), "cp": ("f16",)}
