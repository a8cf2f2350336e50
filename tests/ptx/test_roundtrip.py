"""Print, parse: the same module; and the two ways of reading a statement agree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuperf_engine.ptx import canonical, digest, parse, shapes, write
from gpuperf_engine.ptx.parse import _Grammar
from gpuperf_engine.ptx.resolve import _STATEMENT
from gpuperf_engine.ptx.text import Text
from tests.cuda import compiled

from .same import shape

ROOT = Path(__file__).parents[2]
TEXTS = {
    **{path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").rglob("*.ptx"))},
    **{unit.split("/")[-1]: compiled.ptx(unit) for unit in compiled.UNITS if unit.startswith("ptx/data/")},
}
PTXAS = shutil.which("ptxas")


@pytest.mark.parametrize("name", TEXTS)
def test_print_then_parse_gives_the_same_module(name: str) -> None:
    module = parse(TEXTS[name], f"{name}.ptx")
    again = parse(write(module), f"{name}.ptx")
    assert shape(again) == shape(module)
    assert [digest(again[name]) for name in again] == [digest(module[name]) for name in module]
    assert write(again) == write(module)


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas")
@pytest.mark.parametrize("name", ["sgemm", "calls.sm_80", "softmax.sm_80"])
def test_what_we_print_assembles(name: str, tmp_path: Path) -> None:
    printed = tmp_path / "printed.ptx"
    module = parse(TEXTS[name])
    printed.write_text(write(module), encoding="utf-8")
    assert PTXAS is not None
    command = [PTXAS, f"-arch={module.target}", "-o", str(tmp_path / "out.cubin"), str(printed)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if len(text) < 40_000])
def test_common_forms_are_read_as_the_grammar_reads_them(name: str) -> None:
    text = Text(TEXTS[name], f"{name}.ptx")
    grammar = _Grammar()
    module = parse(text.original, f"{name}.ptx")
    seen: set[str] = set()
    for start, end in module.bodies.values():  # type: ignore[attr-defined]
        place = start
        while (found := _STATEMENT.match(text.code, place, end)) is not None:
            place = found.end()
            if found.lastgroup == "directive":
                if found["directive"] in (".loc", ".file"):
                    place = text.code.index("\n", place)
                    continue
                begin, place = found.start("directive"), text.code.index(";", place) + 1
                if found["directive"] in (".reg", ".param", ".shared", ".local"):
                    quick = shapes.declaration(text.code, begin, place)
                    assert quick is None or quick == grammar.declaration(text, begin, place)
                elif found["directive"] == ".pragma":
                    assert shapes.directive(text.code, begin, place) == grammar.directive(text, begin, place)
            elif found.lastgroup == "operands" and "call" not in found["opcode"] and len(seen) < 150:
                sign = found["opcode"] + "".join(sign for sign in found["operands"] if not sign.isalnum())
                if sign in seen:
                    continue
                seen.add(sign)
                begin = found.start("opcode")
                node = grammar.instruction(text, begin, found.end())
                assert node.opcode == found["opcode"]
                for operand in node.operands:
                    piece = text.code[begin + operand.start : begin + operand.end]
                    assert shapes.operand(piece, operand.start) in (operand, None)
    for name, start in _headers(text):
        end = text.code.index("{", start)
        assert shapes.directive(text.code, start, end) == grammar.directive(text, start, end), name


def _headers(text: Text) -> list[tuple[str, int]]:
    result = []
    place = text.code.find(".visible .entry")
    while place >= 0:
        result.append((text.code[place : place + 60], place))
        place = text.code.find(".visible .entry", place + 1)
    return result


ONE = """
.version 8.0 .target sm_80 .address_size 64
.global .u32 table[2] = {1, 2};
.visible .entry k(.param .u64 out) {
    .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;   // a comment
    setp.lt.u32 %p1, %r1, 4;
    @%p1 bra DONE;
    ld.global.u32 %r2, [table+4];
    st.global.u32 [%rd1], %r2;
DONE: ret;
}
"""
RENAMED = """
.version 8.3 .target sm_90 .address_size 64
.global .u32 unused;
.global .u32 other[2] = {1, 2};
.visible .entry kernel(.param .u64 p) {
    .reg .pred %q<9>; .reg .b64 %y; .reg .b32 x, z, w;
    .loc 1 2 3
    ld.param.u64 %y, [p];
    mov.u32 z, %tid.x;
    setp.lt.u32 %q7, z, 4;
    @%q7 bra END;
    { .reg .b32 z; ld.global.u32 z, [other+4]; st.global.u32 [%y], z; }
UNUSED:
END:
    ret;
}
.file 1 "a.cu"
"""


def test_digest_ignores_names_comments_positions_and_versions() -> None:
    assert canonical(parse(ONE)["k"]) == canonical(parse(RENAMED)["kernel"])
    assert len(digest(parse(ONE)["k"])) == 12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{1, 2}", "{1, 3}"),
        ("%r1, 4", "%r1, 5"),
        ("setp.lt", "setp.le"),
        ("@%p1", "@!%p1"),
        ("table+4", "table"),
        (".param .u64 out)", ".param .u64 out) .maxntid 128"),
        ("[%rd1], %r2", "[%rd1], %r1"),
        (".b32 %r<3>", ".u32 %r<3>"),
    ],
)
def test_digest_sees_what_matters(old: str, new: str) -> None:
    assert digest(parse(ONE.replace(old, new))["k"]) != digest(parse(ONE)["k"])


def test_digest_follows_calls_and_addresses() -> None:
    text = """.version 8.0 .target sm_80 .address_size 64
    .func (.reg .b32 r) f (.reg .b32 x) { add.u32 r, x, 1; ret; }
    .entry k() { .reg .b32 a; mov.u32 a, 3; call (a), f, (a); ret; }"""
    assert digest(parse(text)["k"]) != digest(parse(text.replace("x, 1", "x, 2"))["k"])
    assert digest(parse(text)["k"]) == digest(parse(text.replace("f (", "g (").replace("f, (", "g, ("))["k"])
