"""Records in the subset of Python that the runtime is written in, against ``struct``."""

from __future__ import annotations

import ast
import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuperf_engine.jit import llvm, runtime_objects
from gpuperf_engine.jit.ir import records
from gpuperf_engine.jit.runtime import compile_python
from gpuperf_engine.jit.runtime.functions import signatures


class Inner(records.Record):
    COUNT = records.U16(2)
    WIDE = records.Array64(8)


class Outer(records.Record):
    FLAG = records.U8(0)
    NUMBER = records.U32(4)
    INNER: records.Pointer[Inner] = records.Pointer(8)
    WORDS = records.Array32(16)
    BYTES = records.Array8(32)
    SIZE = 40


CONSTANTS = {"Inner": Inner, "Outer": Outer}


def run(path: Path, body: str, *given: int) -> int:
    """``f(outer, i)`` with that body, compiled and called."""
    path.write_text(
        f"def f(outer: Outer, i: int) -> int:\n    {body}\n\ndef inner_of(outer: Outer) -> Inner:\n    return outer.INNER\n"
    )
    text = compile_python.translate([path], CONSTANTS)
    library = llvm.link([llvm.compile_object(text, 0)], ("f",), {})
    call: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
        library.addresses["f"]
    )
    return call(*given)


@pytest.mark.parametrize(
    "body, result",
    [
        ("return outer.FLAG", 0xFE),
        ("return outer.NUMBER", 0xFFFFFFF0),
        ("return outer.WORDS[0] * 1000 + outer.WORDS[2]", 5007),
        ("return outer.WORDS[i + 1]", 8),
        ("return outer.BYTES[i]", 12),
        ("return outer.INNER.COUNT", 513),
        ("return inner_of(outer).WIDE[i]", 92),
        ("inner = outer.INNER\n    return inner.WIDE[0]", 90),
        ("return Inner(outer.INNER + 8).COUNT", 0),
        ("return outer.NUMBER == 4294967280 and not outer.FLAG == 1", 1),
        ("outer.FLAG += 3\n    return outer.FLAG", 1),
        ("outer.WORDS[i] = -1\n    return outer.WORDS[2] - outer.WORDS[1]", 0xFFFFFFFF - 6),
        ("outer.INNER.WIDE[1] -= 200\n    return outer.INNER.WIDE[1]", 91 - 200),
        ("outer.INNER = Inner(outer.INNER + 8)\n    return outer.INNER - i", 6),
        ("return Outer.WORDS + Outer.SIZE", 56),
    ],
)
def test_fields(tmp_path: Path, body: str, result: int) -> None:
    inner = ctypes.create_string_buffer(struct.pack("<HHIQQQ", 0, 513, 0, 90, 91, 92))
    at = ctypes.addressof(inner)
    outer = ctypes.create_string_buffer(
        struct.pack("<B3xIQ4I8B", 0xFE, 0xFFFFFFF0, at, 5, 6, 7, 8, *range(10, 18))
    )
    if "outer.INNER - i" in body:
        result += at
    assert run(tmp_path / "f.py", body, ctypes.addressof(outer), 2) == result


@pytest.mark.parametrize(
    "body, message",
    [
        ("return outer.SIZE", "outer.SIZE is no field of Outer"),
        ("return outer.NUMBER[1]", r"outer.NUMBER\[1\] is no field of Outer"),
        ("return outer.WORDS", "outer.WORDS is no field of Outer"),
        (
            "outer = i\n    return outer.NUMBER",
            "outer is the address of a record, and is assigned something else",
        ),
        ("return i.NUMBER", "i.NUMBER cannot be translated"),
        ("i.NUMBER = 1", "i.NUMBER cannot be assigned"),
    ],
)
def test_what_is_no_field_is_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^f, line \d: {message}$"):
        run(tmp_path / "f.py", body, 0, 0)


SHORT = '''
def nth(outer: Outer, i: int) -> int:
    """One of two."""
    return outer.WORDS[i] if i < 2 else twice(outer.WORDS[i - 2], i)

def twice(i: int, outer: int) -> int:
    return i + i + outer

def f(outer: Outer, i: int) -> int:
    total = 0
    while i < 4:
        total += nth(outer, twice(i, 0) - i)
        i += 1
    return total
'''


def test_functions_that_only_return_are_written_where_they_are_called(tmp_path: Path) -> None:
    """Their parameters are named as variables of the caller are."""
    path = tmp_path / "short.py"
    path.write_text(SHORT)
    text = compile_python.translate([path], CONSTANTS, exported=("f",))
    assert "define i64 @f(" in text and "define internal i64 @nth(" in text and "call i64" not in text
    library = llvm.link([llvm.compile_object(text, 1)], ("f",), {})
    outer = ctypes.create_string_buffer(struct.pack("<BxxxIQ4I", 0, 0, 0, 5, 6, 0, 0), Outer.SIZE)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])
    assert call(ctypes.addressof(outer), 0) == 5 + 6 + (2 * 5 + 2) + (2 * 6 + 3)


def test_decorators_are_attributes_of_functions(tmp_path: Path) -> None:
    path = tmp_path / "decorated.py"
    functions = "@expanded\ndef f(i: int) -> int:\n    return i\n\n\n@separate\ndef g(i: int) -> int:\n    return f(i)\n"
    path.write_text(functions)
    text = compile_python.translate([path], {})
    assert "@f(i64 %a.i) alwaysinline nounwind" in text and "@g(i64 %a.i) noinline nounwind" in text
    other = tmp_path / "other.py"
    other.write_text(functions.replace("separate", "cache"))
    with pytest.raises(ValueError, match=r"^g, line 6: cache cannot be translated$"):
        compile_python.translate([other], {})


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 71, 200, 320])
def test_fill_and_copy(tmp_path: Path, size: int) -> None:
    """As many bytes as are asked for, at any address."""
    body = "fill(outer, 165, i)\n    copy(outer + 512, outer, i)\n    return 0"
    memory = ctypes.create_string_buffer(bytes(1024), 1024)
    run(tmp_path / "f.py", body, ctypes.addressof(memory) + 3, size)
    half = (bytes(3) + b"\xa5" * size).ljust(512, b"\0")
    assert memory.raw == half * 2


def test_signatures_are_those_of_the_syntax_trees() -> None:
    """They are read off the text."""
    paths = [path for files in runtime_objects.FILES.values() for path in files]
    for path in paths:
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        assert [
            (item.name, item.parameters, item.returns, item.node is not None) for item in signatures([path])
        ] == [
            (node.name, len(node.args.args), ast.unparse(node.returns or ast.Constant("")), _returns(node))
            for node in functions
        ]


def _returns(node: ast.FunctionDef) -> bool:
    """Whether it only returns an expression."""
    statements = [
        item
        for item in node.body
        if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    return len(statements) == 1 and isinstance(statements[0], ast.Return) and bool(statements[0].value)
