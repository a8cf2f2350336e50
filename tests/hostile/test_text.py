"""Text that is not PTX, or PTX that means nothing: every refusal names a position and says what would be accepted."""

from __future__ import annotations

import random
import string

import pytest

from tests.hostile.kernels import HEAD, line_of, module, refusal
from tests.hostile.sandbox import Job, Sandbox


def parse(sandbox: Sandbox, text: str | bytes, seconds: float = 20.0) -> str:
    """The message for a text that must be refused on its own."""
    outcome = sandbox.run(Job(text, entry=None), seconds)
    assert outcome.kind == "error", f"{outcome.kind}: {outcome.text}"
    assert outcome.type in ("PtxSyntaxError", "PtxError"), outcome
    assert outcome.text.startswith("k.ptx"), outcome.text
    assert 1 <= len(outcome.text.splitlines()) <= 5, outcome.text
    assert max(map(len, outcome.text.splitlines())) <= 400, outcome.text
    return outcome.text


MEANINGLESS = {
    "undeclared register": ("add.u32 %x1, %r1, %r2;", "%x1"),
    "undeclared source": ("add.u32 %r1, %r1, %y;", "%y"),
    "register beyond its range": ("add.u32 %r99, %r1, %r2;", "%r99"),
    "undeclared label": ("bra NOWHERE;", "NOWHERE"),
    "undeclared variable": ("ld.global.u32 %r1, [nothing];", "nothing"),
    "undeclared parameter": ("ld.param.u32 %r1, [n];", "n"),
    "undeclared function": ("call unknown;", "unknown"),
    "undeclared branch table": ("brx.idx %r1, TABLE;", "TABLE"),
    "undeclared predicate": ("@%q bra END;\nEND:", "%q"),
    "guard that is not a predicate": ("@%r1 mov.u32 %r2, 1;", "%r1"),
    "unknown instruction": ("frobnicate.u32 %r1, %r2;", "frobnicate"),
    "misspelt instruction": ("ad.u32 %r1, %r2, %r3;", "ad"),
    "unknown modifier": ("add.fast.u32 %r1, %r2, %r3;", "fast"),
    "type that the instruction has not": ("add.b32 %r1, %r2, %r3;", "b32"),
    "missing type": ("add %r1, %r2, %r3;", "add"),
    "operand too few": ("add.u32 %r1, %r2;", "add"),
    "operand too many": ("add.u32 %r1, %r2, %r3, %r4;", "add"),
    "operand of the wrong width": ("add.u32 %r1, %rd1, %r2;", "found a .b64 register"),
    "result of the wrong width": ("add.u64 %r1, %rd1, %rd2;", "found a .b32 register"),
    "float operand of an integer instruction": ("add.u32 %r1, %f1, %r2;", "found a .f32 register"),
    "predicate operand": ("add.u32 %r1, %p1, %r2;", "found a .pred register"),
    "constant as result": ("add.u32 5, %r1, %r2;", "found an integer constant"),
    "address as operand": ("add.u32 %r1, [%rd1], %r2;", "found an address"),
    "register as address of the wrong width": ("ld.global.u32 %r1, [%h1];", "found .b16"),
    "vector of the wrong length": ("ld.global.v4.u32 {%r1, %r2}, [%rd1];", "v4"),
    "vector without its modifier": ("ld.global.u32 {%r1, %r2}, [%rd1];", "vector"),
    "rounding that does not exist": ("add.rx.f32 %f1, %f2, %f3;", "rx"),
    "float constant without its digits": ("mov.f32 %f1, 0f3F8;", "0f3F8"),
    "integer constant beyond 64 bits": ("mov.u64 %rd1, 99999999999999999999999;", "9999"),
    "label defined twice": ("L: // first\nmov.u32 %r1, 1;\nL:\nmov.u32 %r1, 2;", "L"),
    "register declared twice": (".reg .b32 %r1;", "%r1"),
    "branch to a register": ("bra %r1;", "found a .b32 register"),
    "branch to a variable": (".local .b32 place;\nbra place;", "found the address of a variable"),
    "store of nothing": ("st.global.u32 [%rd1];", "st"),
    "space that does not exist": ("ld.globl.u32 %r1, [%rd1];", "did you mean '.global'?"),
    "special register that does not exist": ("mov.u32 %r1, %tid.w2;", "w2"),
    "write to a special register": ("mov.u32 %tid.x, %r1;", "found a .u32 special register"),
    "parameter of a call too few": ("call f;", "f"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGLESS)
def test_what_means_nothing(sandbox: Sandbox, name: str) -> None:
    body, part = MEANINGLESS[name]
    text = module(f"\n{body}\nret;", before=".func f(.param .b32 n) { ret; }")
    message = parse(sandbox, text)
    first = line_of(text, body.split("\n")[0])
    lines = range(first, first + len(body.split("\n")))
    assert any(message.startswith(f"k.ptx:{line}:") for line in lines), message
    assert part in message, message


BROKEN = {
    "empty": "",
    "white space": " \n\t\n ",
    "a comment": "// nothing here\n",
    "a comment without end": "/* nothing here",
    "a word": "hello",
    "HTML": "<!DOCTYPE html><html><body>404</body></html>",
    "CUDA": "__global__ void k(float *x) { x[threadIdx.x] = 1; }",
    "Python": "import numpy as np\nprint(np.zeros(3))\n",
    "JSON": '{"kernel": "k"}',
    "an ELF file": "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xbe\x00",
    "zeros": "\0" * 1000,
    "no version": ".target sm_80\n.address_size 64\n.visible .entry k() { ret; }",
    "no target": ".version 8.0\n.address_size 64\n.visible .entry k() { ret; }",
    "version that is none": ".version eight\n.target sm_80\n",
    "version without minor": ".version 8\n.target sm_80\n",
    "version from the future": ".version 99.0\n.target sm_80\n.visible .entry k() { frob; }",
    "target that is none": ".version 8.0\n.target x86_64\n.visible .entry k() { ret; }",
    "address size that is none": ".version 8.0\n.target sm_80\n.address_size 48\n.visible .entry k() { ret; }",
    "entry without name": HEAD + ".visible .entry () { ret; }",
    "entry without body": HEAD + ".visible .entry k()",
    "body without end": HEAD + ".visible .entry k() { ret;",
    "body without semicolon": HEAD + ".visible .entry k() { ret }",
    "brace too many": HEAD + ".visible .entry k() { ret; } }",
    "parameter without type": HEAD + ".visible .entry k(.param n) { ret; }",
    "parameter list without end": HEAD + ".visible .entry k(.param .u32 n { ret; }",
    "two entries of one name": HEAD + ".entry k() { ret; }\n.entry k() { ret; }",
    "string without end": HEAD + '.file 1 "saxpy.cu\n.visible .entry k() { ret; }',
    "array of negative size": HEAD + ".global .b8 x[-1];",
    "array of no type": HEAD + ".global x[4];",
    "initialiser too long": HEAD + ".global .b32 x[2] = {1, 2, 3};",
    "initialiser of the wrong shape": HEAD + ".global .b32 x[2][2] = {{1, 2, 3}, {4}};",
    "initialiser naming nothing": HEAD + ".global .u64 x = y;",
    "initialised shared memory": HEAD + ".shared .b32 x = 1;",
    "alignment that is not a power of two": HEAD + ".global .align 3 .b32 x;",
    "address of a register as initialiser": HEAD + ".global .u64 x = %r1;",
    "non-ASCII quotes": HEAD + ".visible .entry k() { mov.u32 %r1, “1”; ret; }",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_ptx(sandbox: Sandbox, name: str) -> None:
    parse(sandbox, BROKEN[name])


def test_bytes_are_not_text(sandbox: Sandbox) -> None:
    parse(sandbox, b"\x7fELF\x02\x01\x01")


@pytest.mark.parametrize("target", ["sm_50", "sm_60"])
def test_an_instruction_that_the_target_has_not(sandbox: Sandbox, target: str) -> None:
    text = module("redux.sync.add.u32 %r1, %r2, -1;\nret;").replace("sm_90", target)
    message = parse(sandbox, text)
    assert "sm_80" in message


def test_an_instruction_that_the_version_has_not(sandbox: Sandbox) -> None:
    text = (
        module("redux.sync.add.u32 %r1, %r2, -1;\nret;")
        .replace(".version 8.0", ".version 6.0")
        .replace("sm_90", "sm_70")
    )
    assert "7.0" in parse(sandbox, text) or "sm_80" in parse(sandbox, text)


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
@pytest.mark.parametrize(
    "form",
    [
        ".global .b32 x = {n}1{m};",
        ".global .b32 x[2] = {b}1{e};",
        ".visible .entry k() {{ {b} ret; {e} }}",
        ".visible .entry k() {{ .reg .b32 %r<4>; mov.u32 %r1, {n}1{m}; ret; }}",
        ".visible .entry k() {{ .reg .b32 %r<4>; mov.u32 %r1, {minus}1; ret; }}",
    ],
)
def test_deep_nesting(sandbox: Sandbox, form: str, depth: int) -> None:
    """Blocks and parentheses may nest; what they may not is end in a crash, or take long."""
    text = HEAD + form.format(n="(" * depth, m=")" * depth, b="{" * depth, e="}" * depth, minus="-" * depth)
    outcome = sandbox.run(Job(text, entry=None), 20)
    assert outcome.kind in ("ok", "error"), f"{outcome.kind}: {outcome.text[-500:]}"
    if outcome.kind == "error":
        assert len(outcome.text.splitlines()) <= 5 and len(outcome.text) < 1000, outcome.text


NOISE = {
    "letters": string.ascii_letters + "\n",
    "punctuation": string.punctuation + "\n",
    "printable": string.printable,
    "braces": "{}\n;",
    "everything": "".join(map(chr, range(256))),
    "spaces": " ",
    "digits": string.digits,
    "lines": "\n",
    "quotes": '"',
    "slashes": "/*",
}


@pytest.mark.parametrize("name", NOISE)
def test_ten_megabytes_of_noise(sandbox: Sandbox, name: str) -> None:
    choices = random.Random(0).choices(NOISE[name], k=100_000)
    noise = "".join(choices) * 100
    parse(sandbox, noise, seconds=30)
    message = parse(sandbox, HEAD + noise, seconds=30) if name not in ("spaces", "lines") else "k.ptx"
    assert message.startswith("k.ptx")


def test_a_long_line(sandbox: Sandbox) -> None:
    text = module("mov.u32 %r1, 1; " * 100_000 + "mov.u32 %zz, 1;")
    assert "%zz" in parse(sandbox, text, seconds=40)


def test_a_long_name(sandbox: Sandbox) -> None:
    parse(sandbox, module(f"bra {'L' * 1_000_000};"))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_truncated_modules(sandbox: Sandbox, share: float) -> None:
    text = module(
        "mov.u32 %r1, 1;\nbra END;\nEND:\nret;",
        ".param .u64 a, .param .u32 n",
        ".global .b32 x[4] = {1, 2, 3};",
    )
    outcome = sandbox.run(Job(text[: int(len(text) * share)], entry=None))
    assert outcome.kind in ("ok", "error"), outcome.text
    if outcome.kind == "error":
        assert outcome.text.startswith("k.ptx"), outcome.text


def test_errors_of_a_kernel_name_its_line_not_the_modules(sandbox: Sandbox) -> None:
    text = HEAD + ".entry a() { ret; }\n\n.entry b()\n{\n  bra NOWHERE;\n}\n"
    refusal(sandbox, Job(text, entry="b"), "PtxError", "k.ptx:8:", "NOWHERE")
    assert sandbox.run(Job(text, entry="a", block=1)).kind == "ok"
