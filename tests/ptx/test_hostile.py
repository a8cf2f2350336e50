"""Whatever the text: a message of one to five lines, soon; never a crash, a hang or a bare traceback."""

from __future__ import annotations

import random
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuperf_engine.errors import EngineError, PtxError, PtxSyntaxError
from gpuperf_engine.ptx import parse, write
from tests.cuda import compiled

from .verdicts import HEADER, module

TOP = HEADER[: HEADER.index(".global")]
SAMPLES = [
    compiled.ptx("ptx/data/calls.sm_80"),
    compiled.ptx("ptx/data/misc.sm_90"),
    (Path(__file__).parents[2] / "examples/kernels/saxpy.ptx").read_text(encoding="utf-8"),
]


@cache
def _noise(size: int) -> str:
    generator = random.Random(7)
    return "".join(generator.choices("abc;{}[]()%.,:@!09 \n", k=size))


def _read(text: str | bytes) -> None:
    read = parse(text, "hostile.ptx")
    for name in read.functions:
        read.function(name)


WRONG: dict[str, str | bytes] = {
    "empty": "",
    "blank": " \n\t\n",
    "comment": "// nothing\n/* here */",
    "nul": "\0" * 100,
    "nul in a body": module("add.u32 %r1, \0, 1;"),
    "binary": bytes(range(256)) * 400,
    "elf": b"\x7fELF\x02\x01\x01" + bytes(500),
    "not utf-8": b".version 8.0\n.target sm_80\n\xff\xfe\n",
    "noise": _noise(300_000),
    "noise after the header": TOP + _noise(300_000),
    "noise in a body": module(_noise(300_000)),
    "10 MB of letters": "a" * 10_000_000,
    "10 MB of letters after the header": TOP + "a" * 10_000_000,
    "10 MB of words in a body": module("a " * 5_000_000),
    "a long name": module("add.u32 " + "a" * 1_000_000 + ";"),
    "a long opcode": module("a" * 1_000_000 + " %r1;"),
    "dots": module("." * 1_000_000),
    "blanks in a statement": module("@" + " " * 300_000 + "%p" + " " * 300_000 + "x"),
    "blanks in an address": module("ld.global.u32 %r1, [" + " " * 9000 + "%rd1" + " " * 9000 + "x];"),
    "blanks in a declaration": module(".reg .b32 a" + " " * 100_000 + "b;"),
    "open parentheses": module("mov.u32 %r1, " + "(" * 10_000),
    "brackets": module("ld.global.u32 %r1, " + "[" * 10_000 + "%rd1" + "]" * 10_000 + ";"),
    "nested addresses": module("ld.global.u32 %r1, " + "[%rd1," * 3_000 + "%rd1" + "]" * 3_000 + ";"),
    "braces": module("mov.u32 %r1, " + "{" * 10_000 + "1" + "}" * 10_000 + ";"),
    "bars": module("setp.eq.u32 " + "|".join(["%p"] * 6000) + ", %r1, 1;"),
    "negations": module("mov.pred %p, " + "!" * 10_000 + "%p;"),
    "open scopes": module("{" * 10_000),
    "braces of an initialiser": TOP + ".global .b8 x[4] = " + "{" * 10_000 + "1" + "}" * 10_000 + ";",
    "parentheses of a header": TOP + ".func f" + "(" * 10_000 + ")" * 10_000 + ";",
    "a huge array": TOP + ".global .b8 x[1152921504606846976];",
    "a huge array of arrays": TOP + ".global .b8 x[4294967296][4294967296][99999999];",
    "a huge initialised array": TOP + ".global .b8 x[1152921504606846976] = {1};",
    "a huge shared array": module(".shared .b8 x[1152921504606846976];"),
    "a negative array": TOP + ".global .b8 x[-1];",
    "a fractional array": TOP + ".global .b8 x[1.5];",
    "too many values": TOP + ".global .b8 x[2] = {1, 2, 3};",
    "too many nested values": TOP + ".global .b8 x[2][2] = {{1}, {2}, {3}};",
    "an integer in a float array": TOP + ".global .f32 x[2] = {1};",
    "an initialised shared array": TOP + ".shared .b32 x = 1;",
    "many registers": module(".reg .b32 %q<100000000>;"),
    "digits": module("mov.u32 %r1, " + "9" * 10_000 + ";"),
    "hexadecimal digits": module("mov.u32 %r1, 0x" + "f" * 10_000 + ";"),
    "digits of a float": module("mov.f64 %d1, 1e" + "9" * 10_000 + ";"),
    "digits of a version": TOP.replace("8.0", "8." + "9" * 100_000),
    "digits of a target": TOP.replace("sm_80", "sm_" + "9" * 100_000),
    "digits of an address size": TOP.replace("64", "9" * 100_000),
    "digits of an alignment": TOP + ".global .align " + "9" * 100_000 + " .b8 x;",
    "digits of a dimension": TOP + ".global .b8 x[" + "9" * 100_000 + "];",
    "digits of a count": module(".reg .b32 %q<" + "9" * 100_000 + ">;"),
    "digits of a position": module(".loc " + "9" * 100_000 + " 1 1"),
    "digits of a file": TOP + ".file " + "9" * 100_000 + ' "x"',
    "an open string": TOP + '.file 1 "abc',
    "an open comment": TOP + "/* abc",
    "many open comments": module("/*" * 50_000),
    "division by zero": module("mov.u32 %r1, 5 / (3 - 3);"),
    "no version": ".target sm_80",
    "no target": ".version 8.0\n.entry k() { ret; }",
    "version 10": TOP.replace("8.0", "10.0") + ".entry k() { ret; }",
    "version 0": TOP.replace("8.0", "0.5"),
    "an unknown target": TOP.replace("sm_80", "gfx90a"),
    "address size 16": TOP.replace("64", "16"),
    "two versions": TOP + ".version 8.0",
    "a kernel defined twice": TOP + ".entry k() { ret; } .entry k() { ret; }",
    "a variable declared twice": TOP + ".global .b32 x; .global .b32 x;",
    "a parameter declared twice": TOP + ".entry k(.param .u32 a, .param .u32 a) { ret; }",
    "a kernel that returns": TOP + ".entry (.param .u32 r) k() { ret; }",
    "a call of nothing": module("call nosuch;"),
    "a call with an argument too many": TOP + ".func f() { ret; } .entry k() { call f, (1); ret; }",
    "a jump into a scope": module("bra X; { X: ret; }"),
    "unknown branch targets": module("T: .branchtargets A, B; brx.idx %r1, T;"),
    "no branch targets": module("brx.idx %r1, T;"),
    "an empty list of branch targets": module("T: .branchtargets ; brx.idx %r1, T;"),
    "a list of branch targets that is a comma": module("T: .branchtargets , ; brx.idx %r1, T;"),
    "a list of branch targets that ends in a comma": module("L: T: .branchtargets L, ; brx.idx %r1, T;"),
    "an empty list of call targets": module("T: .calltargets ; call %rd1, T;"),
    "an empty prototype": module("T: .callprototype ; call %rd1, T;"),
    "an empty pragma": module(".pragma ;"),
    "an empty pragma of the module": TOP + ".pragma ;",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_gives_a_short_message_soon(name: str) -> None:
    before = time.perf_counter()
    with pytest.raises(EngineError) as caught:
        _read(WRONG[name])
    assert time.perf_counter() - before < 10
    lines = str(caught.value).splitlines()
    assert 1 <= len(lines) <= 5
    assert max(map(len, lines)) < 500
    assert lines[0].startswith("hostile.ptx:")
    assert isinstance(caught.value, (PtxError, PtxSyntaxError))


RIGHT: dict[str, str | bytes] = {
    "parentheses": module("mov.u32 %r1, " + "(" * 10_000 + "1" + ")" * 10_000 + ";"),
    "scopes": module("{" * 10_000 + "add.u32 %r1, %r1, 1;" + "}" * 10_000),
    "scopes with registers": module("{ .reg .b32 %r1; add.u32 %r1, %r1, 1;" * 3_000 + "}" * 3_000),
    "a long sum": module("mov.u32 %r1, " + "1+" * 10_000 + "1;"),
    "many labels": module("".join(f"L{index}: " for index in range(20_000))),
    "many parameters": TOP + ".func f(" + ",".join(f".param .b32 a{index}" for index in range(5_000)) + ");",
    "digits in debug data": TOP + ".section .debug_str { x: .b8 " + "9" * 100_000 + " }",
    "a byte order mark": "\ufeff" + module(""),
    "the zero that ends a C string": module("") + "\0",
    "carriage returns": module("add.u32 %r1, %r1, 1;").replace("\n", "\r\n"),
    "latin-1 in a comment": b".version 8.0\n.target sm_80 // \xe9\n",
    "a huge uninitialised array": TOP + ".global .b8 x[1099511627776];",
}


@pytest.mark.parametrize("name", RIGHT)
def test_odd_but_right_input_is_read(name: str) -> None:
    _read(RIGHT[name])


_TOKENS = st.sampled_from(
    [
        ";",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        "@",
        "%r1",
        "%p1",
        "ret",
        ".b32",
        "0x",
        "-1",
        "\0",
        '"',
        "/*",
        ":",
        "_",
        "|",
        "!",
    ]
)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_modules_raise_nothing_but_engine_errors(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SAMPLES))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        size = data.draw(st.integers(0, 30))
        kind = data.draw(st.sampled_from(["delete", "double", "replace", "insert", "cut", "flip"]))
        piece = text[at : at + size]
        if kind == "delete":
            text = text[:at] + text[at + size :]
        elif kind == "double":
            text = text[:at] + piece + text[at:]
        elif kind == "replace":
            text = text[:at] + data.draw(_TOKENS) + text[at + size :]
        elif kind == "insert":
            text = text[:at] + data.draw(_TOKENS) + text[at:]
        elif kind == "cut":
            text = text[:at] + text[max(at, len(text) - size) :]
        else:
            text = text[:at] + chr(ord(text[at]) ^ (1 << data.draw(st.integers(0, 6)))) + text[at + 1 :]
        text = text or " "
    try:
        read = parse(text, "mutated.ptx")
    except EngineError as error:
        assert len(str(error).splitlines()) <= 5
        return
    for name in read.functions:
        try:
            read.function(name)
        except EngineError as error:
            assert len(str(error).splitlines()) <= 5
            return
    parse(write(read))


def test_several_errors_are_mentioned_at_once() -> None:
    with pytest.raises(PtxError) as caught:
        _read(module("add.u32 %q1, %r1, 1;\nfoo.u32 %r1;\nadd.u32 %r1;\n"))
    text = str(caught.value)
    assert "hostile.ptx:9:9: register '%q1' is not declared" in text
    assert "also hostile.ptx:10:1: unknown instruction 'foo'" in text
    assert "also hostile.ptx:11:1: add.u32: takes 3 operands, found 1" in text


def test_errors_in_unused_kernels_do_not_matter() -> None:
    text = module("nosuch %r1;") + ".entry fine() { ret; }"
    assert len(parse(text)["fine"].instructions) == 1
    with pytest.raises(PtxError):
        parse(text)["k"]


def test_a_failed_body_fails_again_the_same_way() -> None:
    read = parse(module("nosuch %r1;"))
    messages = []
    for _ in range(2):
        with pytest.raises(PtxError) as caught:
            read["k"]
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert not read.functions["k"].read
