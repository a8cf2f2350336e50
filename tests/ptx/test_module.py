"""What a module says after reading: declarations, names, operands, positions."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError, PtxError, UnknownName
from gpuperf_engine.ptx import Module, parse
from gpuperf_engine.ptx.module import Function
from gpuperf_engine.ptx.syntax import (
    Address,
    CallTarget,
    Immediate,
    Negated,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Variable,
    Vector,
)
from gpuperf_engine.ptx.text import Text
from gpuperf_engine.ptx.write import write
from gpuperf_engine.source import SourcePosition

TOP = ".version 8.0\n.target sm_80\n.address_size 64\n"


def body(statements: str, top: str = "", params: str = ".param .u64 a") -> Module:
    registers = ".reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .f32 %f<5>; .reg .f64 %d<3>;"
    return parse(f"{TOP}{top}\n.visible .entry k({params}) {{\n{registers}\n{statements}\n}}\n", "k.ptx")


def last(statements: str, top: str = "") -> list[object]:
    return list(body(statements, top)["k"].instructions[-1].operands)


def test_header() -> None:
    module = parse("// hello\n.version 8.0\n.target sm_90a, texmode_independent, debug\n.address_size 64\n")
    assert (module.version, module.target, module.address_size) == ((8, 0), "sm_90a", 64)
    assert module.target_options == ("texmode_independent", "debug")
    assert module.notes == ()


#: PTX manual, "Release Notes"
FIRST = {"sm_20": "2.0", "sm_75": "6.3", "sm_90": "7.8", "sm_90a": "8.0", "sm_100a": "8.6", "sm_121a": "8.8", "sm_100f": "8.8",
         "compute_80": "7.0", "sm_88": "9.0"}  # fmt: skip


@pytest.mark.parametrize("version", ["2.0", "3.2", "4.3", "6.5", "7.8", "8.8", "9.0"])
@pytest.mark.parametrize("target", FIRST)
def test_versions_and_targets(version: str, target: str) -> None:
    text = f".version {version}\n.target {target}\n.entry k() {{ ret; }}"
    if version < FIRST[target]:
        with pytest.raises(
            PtxError, match=rf"2:1: \.target .* needs \.version {FIRST[target]}, this module has"
        ):
            parse(text)
        return
    module = parse(text)
    assert module.target == target.replace("compute", "sm")
    assert [item.opcode for item in module["k"].instructions] == ["ret"]


@pytest.mark.parametrize("version", ["1.6", "2.4", "3.3", "4.4", "5.1", "6.6", "7.9", "8.9", "0.9"])
def test_versions_that_there_are_not(version: str) -> None:
    with pytest.raises(PtxError, match=rf"1:1: \.version {version} is not known"):
        parse(f".version {version}\n.target sm_20\n.entry k() {{ ret; }}")


@pytest.mark.parametrize(
    ("version", "target", "line", "message"),
    [
        ("8.2", "sm_80", ".entry k() { .reg .b128 q; ret; }", r"type \.b128 needs \.version 8\.3 and"),
        ("8.2", "sm_80", ".entry k() { .shared .b128 q; ret; }", r"type \.b128 needs"),
        ("8.2", "sm_80", ".global .b128 q;", r"type \.b128 needs"),
        ("8.2", "sm_80", ".entry k(.param .b128 q) { ret; }", r"type \.b128 needs"),
        ("6.3", "sm_75", ".func k() .noreturn { trap; }", r"'\.noreturn' needs \.version 6\.4 and"),
        ("8.8", "sm_80", ".func k() .abi_preserve 4 { ret; }", r"'\.abi_preserve' needs \.version 9\.0 and"),
        ("9.0", "sm_75", ".func k() .abi_preserve_control 4 { ret; }", r"needs .* \.target sm_80"),
    ],
)
def test_what_older_versions_and_targets_lack(version: str, target: str, line: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        parse(f".version {version}\n.target {target}\n.address_size 64\n{line}")["k"]
    parse(f".version 9.0\n.target sm_80\n.address_size 64\n{line}")


def test_a_newer_minor_version_is_noted() -> None:
    assert "9.99" in parse(".version 9.99\n.target sm_80\n").notes[0]


def test_parameters_have_offsets_and_attributes() -> None:
    text = """.visible .entry k(
        .param .u8 c, .param .f64 d, .param .align 4 .b8 s[10], .param .u64 .ptr .global .align 16 p,
        .param .u64 .ptr q, .param .align 8 .b8 t[16])
        .maxntid 16, 8, 1 .minnctapersm 2 .maxnreg 64 .reqnctapercluster 2, 1, 1 .explicitcluster
        .pragma "nounroll"; { ret; }"""
    kernel = parse(TOP.replace("sm_80", "sm_90") + text)["k"]
    assert [(param.name, param.offset, param.size) for param in kernel.params] == [
        ("c", 0, 1), ("d", 8, 8), ("s", 16, 10), ("p", 32, 8), ("q", 40, 8), ("t", 48, 16),
    ]  # fmt: skip
    assert kernel.param_bytes == 64
    assert (kernel.params[3].pointer_space, kernel.params[3].pointer_align) == ("global", 16)
    assert (kernel.params[4].pointer_space, kernel.params[4].pointer_align) == ("generic", None)
    assert (kernel.maxntid, kernel.minnctapersm, kernel.maxnreg) == ((16, 8, 1), 2, 64)
    assert kernel.cluster == (2, 1, 1)
    assert kernel.directives == (".explicitcluster", '.pragma "nounroll"')


def test_functions() -> None:
    module = parse(
        TOP + ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);\n"
        ".weak .func (.param .align 8 .b8 r[16]) mk (.param .align 8 .b8 x[16], .reg .b32 y) { ret; }\n"
        ".func nothing .noreturn;\n.func nothing { trap; }\n.visible .entry const() { ret; }\n"
    )
    assert not module.function("vprintf").defined
    assert [param.size for param in module.function("mk").params] == [16, 4]
    assert module.function("mk").returns[0].size == 16
    assert module.function("mk").linkage == "weak"
    assert [register.name for register in module.function("mk").registers] == ["y"]
    assert module.function("nothing").instructions[0].opcode == "trap"
    assert list(module) == ["const"]
    assert module["const"].is_entry
    with pytest.raises(UnknownName, match="did you mean 'const'"):
        module["cons"]
    with pytest.raises(UnknownName, match="no kernel 'mk'"):
        module["mk"]


def test_variables() -> None:
    module = parse(
        TOP
        + """
    .global .align 4 .b8 bytes[8] = {1, 2, 0xff};
    .global .u16 nested[2][3] = {{1, 2}, {3}};
    .global .f32 floats[4] = {1.5, 0f40000000, -2.0};
    .const .f64 double = 0d3FF8000000000000;
    .visible .global .attribute(.managed) .align 16 .v4 .f32 vectors[2] = {{1.0, 2.0}, {3.0}};
    .global .s32 open[] = {-1, 2, 3};
    .extern .shared .align 16 .b8 dynamic[];
    .common .global .u32 common;
    .shared .b32 s[4], t;
    .func f() { ret; }
    .global .u64 pointers[4] = {bytes, bytes+4, generic(floats)+8, f};
    .global .b8 masked[8] = {0xFF(bytes), 0xFF00(bytes), 0xFF0000(bytes), 0xFF000000(bytes)};
    """
    )
    found = module.variables
    assert found["bytes"].initial == bytes([1, 2, 255, 0, 0, 0, 0, 0])
    assert found["nested"].initial == struct.pack("<6H", 1, 2, 0, 3, 0, 0)
    assert found["floats"].initial == struct.pack("<4f", 1.5, 2.0, -2.0, 0.0)
    assert found["double"].initial == struct.pack("<d", 1.5)
    assert found["double"].dims == ()
    vectors = found["vectors"]
    assert vectors.initial == struct.pack("<8f", 1, 2, 0, 0, 3, 0, 0, 0)
    assert (vectors.vector, vectors.dims, vectors.size, vectors.align) == (4, (2,), 32, 16)
    assert (vectors.linkage, vectors.attributes) == ("visible", (".managed",))
    assert found["open"].dims == (3,)
    assert found["open"].initial == struct.pack("<3i", -1, 2, 3)
    assert (found["dynamic"].dims, found["dynamic"].size, found["dynamic"].align) == ((None,), 0, 16)
    assert (found["common"].linkage, found["common"].align) == ("common", 4)
    assert (found["s"].size, found["t"].size, found["t"].space) == (16, 4, "shared")
    relocations = [
        (at, width, target.name, add, generic)
        for at, width, target, add, generic in found["pointers"].relocations
    ]
    assert relocations == [
        (0, 8, "bytes", 0, False),
        (8, 8, "bytes", 4, False),
        (16, 8, "floats", 8, True),
        (24, 8, "f", 0, False),
    ]
    assert [(at, width) for at, width, *_ in found["masked"].relocations] == [(0, 4)]
    assert str(found["nested"].span) == "<string>:6:18"


def test_registers_of_nested_scopes_are_distinct() -> None:
    kernel = body(
        "mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 2; { .reg .b64 %r1; mov.u64 %r1, 3; } mov.u32 %r1, 4; } mov.u32 %r1, 5;"
    )["k"]
    written = [item.operands[0] for item in kernel.instructions]
    assert all(isinstance(register, Register) and register.name == "%r1" for register in written)
    outer, inner, innermost, again, back = written
    assert outer is back
    assert inner is again
    assert len({id(outer), id(inner), id(innermost)}) == 3
    assert [register.index for register in kernel.registers] == list(range(len(kernel.registers)))


def test_vector_registers_are_flattened() -> None:
    operands = last(".reg .v4 .f32 %v; mov.f32 %v.y, %f1; ld.global.v4.f32 %v, [%rd1];")
    assert isinstance(operands[0], Vector)
    assert [part.name for part in operands[0].elements if isinstance(part, Register)] == [
        "%v.x",
        "%v.y",
        "%v.z",
        "%v.w",
    ]


@pytest.mark.parametrize(
    ("constant", "value"),
    [
        ("5", 5), ("-5", -5), ("0x1F", 31), ("0b101", 5), ("017", 15), ("5U", 5), ("0xFFFFFFFFFFFFFFFF", (1 << 64) - 1),
        ("1+2*3", 7), ("(1+2)*3", 9), ("7/2", 3), ("-7/2", -3), ("-7%3", -1), ("1<<4|3", 19), ("~0", -1), ("!5", 0),
        ("1>2?3:4", 4), ("(.u64)-1", (1 << 64) - 1), ("(.s64)0xFFFFFFFFFFFFFFFF", -1), ("-1>>1", -1), ("-1 > 0U", 1),
        ("3==3&&2!=2||1", 1), ("WARP_SZ", 32), ("WARP_SZ-1", 31), ("-9223372036854775808", 1 << 63), ("6^3", 5),
    ],
)  # fmt: skip
def test_integer_constants(constant: str, value: int) -> None:
    operand = last(f"mov.u64 %rd1, {constant};")[1]
    assert isinstance(operand, Immediate)
    assert (operand.value, operand.kind) == (value, "int")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mov.f32 %f1, 1.5;", (0x3FC00000, "f32")),
        ("mov.f32 %f1, 0f3FC00000;", (0x3FC00000, "f32")),
        ("mov.f32 %f1, 0d3FF8000000000000;", (0x3FC00000, "f32")),
        ("mov.f32 %f1, 0.1;", (0x3DCCCCCD, "f32")),
        ("mov.f32 %f1, -1e30+1e30;", (0, "f32")),
        ("mov.f64 %d1, 1.5;", (0x3FF8000000000000, "f64")),
        ("mov.f64 %d1, 0f3FC00000;", (0x3FF8000000000000, "f64")),
        ("mov.b32 %r1, 0f3FC00000;", (0x3FC00000, "f32")),
    ],
)
def test_floating_point_constants(text: str, expected: tuple[int, str]) -> None:
    operand = last(text)[1]
    assert isinstance(operand, Immediate)
    assert (operand.value, operand.kind) == expected


@pytest.mark.parametrize(
    ("text", "base", "offset"),
    [
        ("[%rd1]", "%rd1", 0), ("[%rd1+8]", "%rd1", 8), ("[%rd1+-4]", "%rd1", -4), ("[ %rd1 + 8 ]", "%rd1", 8),
        ("[g]", "g", 0), ("[g+12]", "g", 12), ("[%rd1+(2*4)-1]", "%rd1", 7), ("[g+0x10]", "g", 16),
    ],
)  # fmt: skip
def test_addresses(text: str, base: str, offset: int) -> None:
    operand = last(f"ld.global.u32 %r1, {text};", ".global .u32 g[8];")[1]
    assert isinstance(operand, Address)
    assert isinstance(operand.base, (Register, Variable))
    assert (operand.base.name, operand.offset) == (base, offset)


def test_other_operands() -> None:
    first, _, b = last("setp.lt.s32 %p1|%p2, %r1, -2;")
    assert isinstance(first, Pair)
    assert isinstance(first.second, Register)
    assert isinstance(b, Immediate)
    assert isinstance(last("selp.b32 %r1, 1, 2, !%p1;")[3], Negated)
    assert isinstance(last("atom.global.add.u32 _, [%rd1], 1;")[0], Sink)
    special = last("mov.u32 %r1, %ctaid.y;")[1]
    assert isinstance(special, SpecialRegister)
    assert special.name == "ctaid.y"
    symbol = last("mov.u64 %rd1, g+8;", ".global .u32 g[8];")[1]
    assert isinstance(symbol, Symbol)
    assert (symbol.target.name, symbol.offset) == ("g", 8)
    element = last("mov.u64 %rd1, g[2];", ".global .u32 g[8];")[1]
    assert isinstance(element, Symbol)
    assert element.offset == 8


def test_guards_and_spans() -> None:
    item = body("mov.u32 %r1, 1;\n  @!%p1 add.u32 %r1,\n     %r2, 77;")["k"].instructions[-1]
    assert item.guard is not None
    assert item.guard.negated
    assert item.guard.register.name == "%p1"
    assert (item.span.line, item.span.column, item.span.end_line, item.span.end_column) == (8, 3, 9, 14)
    constant = item.operands[2]
    assert isinstance(constant, Immediate)
    assert (constant.span.line, constant.span.column, constant.span.end_column) == (9, 11, 13)


def test_branches_and_labels() -> None:
    kernel = body(
        "bra END;\nTOP: add.u32 %r1, %r1, 1;\n@%p1 bra TOP;\n{ bra END; END: bra END; }\n"
        "TS: .branchtargets TOP, END, TOP;\nbrx.idx %r1, TS;\nEND: "
    )["k"]
    assert kernel.labels == {"TOP": 1, "END": 4, "END$2": 6}
    assert [[target.index for target in item.targets] for item in kernel.instructions] == [
        [6],
        [],
        [1],
        [4],
        [4],
        [1, 6, 1],
    ]


def test_lists_of_labels_may_be_counted() -> None:
    kernel = body(
        "TS: .branchtargets A<2>, END, B<1>;\nbrx.idx %r1, TS;\nA0: ret;\nA1: ret;\nB0: ret;\nEND: "
    )["k"]
    assert [target.name for target in kernel.instructions[0].targets] == ["A0", "A1", "END", "B0"]
    assert [target.index for target in kernel.instructions[0].targets] == [1, 2, 4, 3]


@pytest.mark.parametrize("count", ["0", "16385", "99999999999999999999"])
def test_a_list_has_a_sensible_number_of_labels(count: str) -> None:
    with pytest.raises(EngineError, match=r"names in a list|does not fit"):
        body(f"TS: .branchtargets A<{count}>;\nbrx.idx %r1, TS;\nA0: ret;")["k"]


def test_pragmas_belong_to_the_next_instruction() -> None:
    kernel = body(
        '.pragma "nounroll";\nL: add.u32 %r1, %r1, 1;\n.pragma "used_bytes_mask 0xfff";\nld.global.u32 %r1, [%rd1];\nret;'
    )["k"]
    assert [item.pragmas for item in kernel.instructions] == [("nounroll",), ("used_bytes_mask 0xfff",), ()]


def test_pragmas_of_a_module_are_its_own() -> None:
    module = parse(TOP + '.pragma "nounroll", "other";\n.entry k() { ret; }\n.pragma "third";\n')
    assert module.pragmas == ("nounroll", "other", "third")
    assert module["k"].directives == () and not any(item.pragmas for item in module["k"].instructions)
    assert parse(write(module)).pragmas == module.pragmas


CALLS = """
.extern .func (.param .b32 r) ext (.param .b64 a);
.func (.reg .b32 r) f (.reg .b32 x) { add.u32 r, x, 1; ret; }
.func (.reg .b32 r) g (.reg .b32 x) { sub.u32 r, x, 1; ret; }
.func plain { ret; }
.alias f2, f;
"""


def test_calls() -> None:
    module = body(
        """call plain;
        { .param .b64 p0; .param .b32 r0; st.param.b64 [p0+0], %rd1;
          call.uni (r0), ext, (p0); ld.param.b32 %r1, [r0]; }
        { .param .b64 p0; .param .b32 r0; call.uni (r0), ext, (p0); }
        call (%r1), f2, (%r2);
        mov.u64 %rd1, f;
        T: .calltargets f, g;
        @%p1 call (%r1), %rd1, (5), T;
        P: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]) .noreturn;
        { .param .b64 p0; .param .align 8 .b8 p1[16]; .param .b32 r0; call (r0), %rd1, (p0, p1), P; }
        ret;""",
        CALLS,
    )
    calls = [item.call for item in module["k"].instructions if item.call is not None]
    assert [call.function and call.function.name for call in calls] == [
        "plain",
        "ext",
        "ext",
        "f",
        None,
        None,
    ]
    assert calls[1].function is not None
    assert isinstance(calls[1].arguments[0], Variable)
    assert calls[1].arguments[0] is not calls[2].arguments[0]
    assert [function.name for function in calls[4].candidates] == ["f", "g"]
    assert isinstance(calls[4].arguments[0], Immediate)
    assert calls[5].prototype is not None
    assert [param.size for param in calls[5].prototype.params] == [8, 16]
    assert isinstance(module["k"].instructions[0].operands[0], CallTarget)


@pytest.mark.parametrize(
    "text",
    [
        "call (%r1), f;",
        "call (%r1), f, (%r1, %r2);",
        "call k;",
        "call (%r1), %rd1, (%r1);",
        "call (%r1), %rd1, (1), X;",
    ],
)
def test_wrong_calls(text: str) -> None:
    with pytest.raises(PtxError):
        body(text, CALLS)["k"]


def test_locations() -> None:
    module = body(
        """.loc 1 10 3
        mov.u32 %r1, 1;
        .loc 2 20 5, function_name $L__info_string0, inlined_at 1 10 3
        mov.u32 %r1, 2;
        .loc 2 30 7, function_name $L__info_string1+0, inlined_at 2 20 5
        mov.u32 %r1, 3;
        .loc 3 1 1
        ret;""",
    )
    module = parse(
        module.text
        + '\n.file 1 "a dir/a.cu"\n.file 2 "b;{.h", 123, 456\n.section .debug_str { $L__info_string0:\n'
        ".b8 102,110,0\n$L__info_string1: .b8 103\n.b8 0 }\n.section .debug_info { .b32 L+4 \n L: .b8 0x10 }\n"
    )
    assert module.files == {1: "a dir/a.cu", 2: "b;{.h"}
    first = SourcePosition("a dir/a.cu", 10, 3)
    second = SourcePosition("b;{.h", 20, 5, "fn", first)
    third = SourcePosition("b;{.h", 30, 7, "g", second)
    assert [item.location for item in module["k"].instructions] == [
        first,
        second,
        third,
        SourcePosition("<file 3>", 1, 1),
    ]


def test_what_trips_parsers() -> None:
    kernel = body(
        """// begin inline asm
        { .reg .pred p; .reg .b32 t; setp.eq.s32 p, %r1, 3; @p add.s32 t, %r1, 1; @!p mov.b32 t, 0; }
        // end inline asm
        mov.u32 /* ; } */ %r1,
                    2 ; .reg .b32 late; mov.b32 late, %r1;
        $L__BB0_1: { add.u32 %r1, %r1, 1; }
        _x$: %label: ld.global.v2.u32 {%r1, %r2}, [%rd1 + 8]; ; ret;""".replace("; ; ret", "; ret")
    )["k"]
    assert [item.opcode for item in kernel.instructions][-2:] == ["ld.global.v2.u32", "ret"]
    assert kernel.labels == {"$L__BB0_1": 5, "_x$": 6, "%label": 6}


def test_dwarf_lines_and_weak_variables() -> None:
    module = parse(
        TOP
        + "@@DWARF .section .debug_info\n@@DWARF .byte 1, 2; {\n.weak .global .b32 w; .weak .global .b32 w;\n"
    )
    assert module.variables["w"].linkage == "weak"


def test_the_grammar_is_loaded_only_for_uncommon_statements() -> None:
    code = (
        "import sys; from gpuperf_engine.ptx import parse; from pathlib import Path\n"
        "for path in sys.argv[1:]:\n"
        "    module = parse(Path(path).read_text())\n"
        "    for name in module.functions: module.function(name)\n"
        "assert 'lark' not in sys.modules\n"
    )
    files = [str(path) for path in sorted((Path(__file__).parents[2] / "examples/kernels").glob("s*.ptx"))]
    assert files
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, *files], check=True, timeout=60, cwd=root / "engine")


def test_bodies_are_read_when_asked_for() -> None:
    module = parse(
        TOP
        + "".join(f".entry k{index}() {{ .reg .b32 a; mov.u32 a, {index}; ret; }}\n" for index in range(300))
    )
    assert not module.functions["k7"].read
    assert len(module["k7"].instructions) == 2
    assert not module.functions["k8"].read
    assert module.instruction_count == 600
    assert not module.kernels["k8"].read
    assert module["k7"] is module["k7"]


@pytest.mark.parametrize(
    "take",
    [
        lambda module: module.kernels["k"],
        lambda module: module.functions["k"],
        lambda module: next(iter(module.kernels.values())),
        lambda module: dict(module.kernels.items())["k"],
        lambda module: copy.copy(module).kernels["k"],
        lambda module: copy.deepcopy(module).functions["k"],
        lambda module: pickle.loads(pickle.dumps(module)).kernels["k"],
        lambda module: copy.copy(module.kernels["k"]),
        lambda module: copy.deepcopy(module.kernels["k"]),
        lambda module: pickle.loads(pickle.dumps(module.functions["k"])),
        lambda module: dataclasses.replace(module.functions["k"]),
    ],
)
def test_a_function_has_its_body_wherever_it_comes_from(take: Callable[[Module], Function]) -> None:
    text = TOP + ".entry k() { .reg .b32 a; mov.u32 a, 1; L: .local .b32 here; ret; }"
    for seen in ("instructions", "registers", "variables", "labels"):
        function = take(parse(text, path="k.ptx"))
        assert len(getattr(function, seen)) == (2 if seen == "instructions" else 1)
        assert function.module.path == "k.ptx"


def test_a_body_that_cannot_be_read_says_so_each_time() -> None:
    function = parse(TOP + ".entry k() { nonsense; }").kernels["k"]
    for _ in range(2):
        with pytest.raises(PtxError, match="nonsense"):
            _ = function.instructions


def test_threads_that_ask_at_once_see_the_whole_body() -> None:
    text = TOP + ".entry k() { .reg .b32 a; " + "mov.u32 a, 1; " * 4000 + "ret; }"
    for _ in range(3):
        function = parse(text).kernels["k"]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda function: len(function.instructions), [function] * 8))
        assert found == [4001] * 8


def test_one_label_in_thousands_of_scopes_stays_cheap() -> None:
    kernel = body("{ .reg .b32 t; L: bra L; }\n" * 20_000)["k"]
    assert len(kernel.labels) == 20_000
    assert [item.targets[0].index for item in kernel.instructions] == list(range(20_000))


@pytest.mark.parametrize("filler", ["", " " * 4000])
def test_comments_and_strings_are_blanked_however_many_there_are(filler: str) -> None:
    """Few are looked up one by one, many by one search."""
    piece = 'add /* "; */ x // " /* \n"/*;//\\"" / "a" /**/;' + filler
    blanked = "add " + " " * 8 + " x " + " " * 8 + '\n"_______" / "_" ' + " " * 4 + ";" + filler
    assert Text(piece * 3, "k.ptx").code == blanked * 3


@pytest.mark.parametrize(
    ("version", "target", "header", "message"),
    [
        ("8.0", "sm_80", ".entry k() .reqnctapercluster 2", "'.reqnctapercluster' needs .version 7.8 and .target sm_90"),
        ("8.0", "sm_80", ".entry k() .explicitcluster", "'.explicitcluster' needs .version 7.8 and .target sm_90"),
        ("7.7", "sm_80", ".entry k() .maxclusterrank 2", "this module has 7.7 and sm_80"),
        ("8.8", "sm_90", ".entry k() .reqntid 32 .reqnctapercluster 2 .blocksareclusters", "needs .version 9.0"),
        ("8.0", "sm_90", ".entry k() .maxclusterrank 2 .reqnctapercluster 2", "both '.reqnctapercluster' and '.maxclusterrank'"),
        ("8.0", "sm_90", ".func k() .reqnctapercluster 2", "only kernels"),
        ("8.0", "sm_90", ".func k() .explicitcluster", "only kernels"),
        ("9.0", "sm_90", ".entry k() .reqnctapercluster 2 .blocksareclusters", "needs '.reqntid' and '.reqnctapercluster'"),
        ("9.0", "sm_90", ".entry k() .reqntid 32 .blocksareclusters", "needs '.reqntid' and '.reqnctapercluster'"),
        ("8.0", "sm_90", ".entry k() .reqnctapercluster 2, 2, 2, 2", "1 to 3 positive numbers"),
        ("8.0", "sm_90", ".entry k() .reqnctapercluster 32", ""),
        ("9.0", "sm_90", ".entry k() .reqntid 32 .reqnctapercluster 2 .blocksareclusters", ""),
        ("8.0", "sm_90", ".entry k() .explicitcluster .maxclusterrank 4", ""),
    ],
)  # fmt: skip
def test_directives_of_clusters(version: str, target: str, header: str, message: str, tmp_path: Path) -> None:
    """As ptxas has it, where there is one."""
    text = f".version {version}\n.target {target}\n.address_size 64\n{header} {{ ret; }}\n"
    if not message:
        parse(text)
    else:
        with pytest.raises(EngineError) as caught:
            parse(text)
        assert message in str(caught.value)
    if shutil.which("ptxas"):
        (tmp_path / "k.ptx").write_text(text)
        options = [f"-arch={target}", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
        assert (subprocess.run(["ptxas", *options], capture_output=True).returncode == 0) is not bool(message)


def test_a_function_of_cudas_headers_is_told_by_the_line_that_calls_it() -> None:
    """nvcc inlines ``atomicAdd``: the innermost position is in its header, and where it was inlined may be in another one."""
    program = SourcePosition("/src/hist.cu", 51, 5)
    header = "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/device_atomic_functions.hpp"
    inner = SourcePosition(
        "/env/site-packages/nvidia/cu13/include/a.hpp",
        7,
        1,
        "f",
        SourcePosition(header, 112, 3, "g", program),
    )
    assert inner.own == program == program.own
    assert SourcePosition(header, 112, 3).own.line == 112
    mine = SourcePosition("/src/include/mine.cuh", 3, 1, "h", program)
    assert mine.own == mine
    assert inner.described == "/src/hist.cu:51, inlined from /env/site-packages/nvidia/cu13/include/a.hpp:7"
    assert mine.described == "/src/include/mine.cuh:3"
