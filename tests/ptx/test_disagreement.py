"""Parts of a module that disagree: arguments and parameters, declarations and definitions, variables and their memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError
from gpuperf_engine.ptx import parse

TOP = ".version 8.6\n.target sm_90\n.address_size 64\n"
CALLED = ".func f(.reg .{formal} a) {{ ret; }} .entry k() {{ {given} call f, ({name}); ret; }}"
HANDED = ".func f(.param .{formal} a) {{ ret; }} .entry k() {{ .param .{given} x; call f, (x); ret; }}"


def called(formal: str, given: str) -> str:
    return CALLED.format(formal=formal, given=f".reg .{given} x;", name="x")


def handed(formal: str, given: str) -> str:
    return HANDED.format(formal=formal, given=given)


def constant(formal: str, value: str) -> str:
    return CALLED.format(formal=formal, given="", name=value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (called("u32", "s32"), ""),
        (called("b32", "f32"), ""),
        (called("f64", "b64"), ""),
        (called("u32", "u64"), "argument 'x' is .u64, declared is .u32"),
        (called("f32", "u32"), "argument 'x' is .u32, declared is .f32"),
        (called("b64", "b32"), "argument 'x' is .b32, declared is .b64"),
        (handed("s32", "b32"), ""),
        (handed("f32", "s32"), "argument 'x' is .s32, declared is .f32"),
        (constant("b64", "5"), ""),
        (constant("f64", "1.5"), ""),
        (constant("f32", "5"), "a constant of another kind, declared is .f32"),
        (constant("u32", "1.5"), "a constant of another kind, declared is .u32"),
        (
            ".func (.reg .f32 r) f() { ret; } .entry k() { .reg .u32 x; call (x), f; ret; }",
            "result 'x' is .u32, declared is .f32",
        ),
        (
            ".func f(.reg .u32 a); .func f(.reg .u64 a) { ret; }",
            "other parameters than where it was declared",
        ),
        (".func f(.reg .u32 a); .func f() { ret; }", "other parameters than where it was declared"),
        (".func f(.reg .u32 a); .func f(.reg .u32 b) { ret; }", ""),
        (".entry k(.reg .u32 a) { ret; }", "'a' of a kernel is in .reg"),
        (".entry k() .maxntid 32 .reqntid 32 { ret; }", "both '.maxntid' and '.reqntid'"),
        (".entry k() { .reg .v8 .b32 a; ret; }", "a vector of 8 registers"),
        (".const .align 4 .b8 c[65536];", ""),
        (".const .align 4 .b8 c[65536]; .const .b8 d;", "the variables up to it have 65,537 bytes"),
        (".shared .u32 s; .global .u64 t = s;", "'s' is in .shared, which has no address before a launch"),
        (".const .u32 s; .global .u64 t = s;", ""),
    ],
)
def test_refused_as_by_ptxas(text: str, message: str, tmp_path: Path) -> None:
    text = TOP + text
    if message:
        with pytest.raises(EngineError) as caught:
            _read(text)
        assert message in str(caught.value)
    else:
        _read(text)
    if shutil.which("ptxas"):
        (tmp_path / "k.ptx").write_text(text, encoding="utf-8")
        arguments = ["ptxas", "-arch=sm_90", "k.ptx", "-o", "k.cubin"]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode == 0) == (not message), done.stderr


def _read(text: str) -> None:
    module = parse(text)
    for name in module.functions:
        module.function(name)
