"""Reads a test that is a PTX file: one kernel, one launch, and what must come of it, in the comments above ``.version``.

    // launch: grid=2 block=64 shared=1024 cluster=2     what is left out is 1, shared memory 0
    // in x: f32 1 2.5 0*29 7                            an array; 7*3 is 7 7 7, 5..8 is 5 6 7 8
    // value n: u32 7                                    a number
    // out y: u32 0..31                                  an array afterwards; before, zeros or what "in" says
    // count thread_instructions: 32 * 7 + 5             a counter of the profile, as arithmetic
    // count opcodes bar.sync: 64                        … with a key; "site ld.global.u32 sectors" is a site's
    // error: misaligned ld.u32                          part of the message; the launch must fail
    // without ptxas: it refuses guards there            not run there, and why; also "without oracle"

Names are those of the kernel's parameters. Lines that begin with ``//`` and three spaces go on. All other comments are for readers;
an instruction with the comment ``// fault`` is the one that the error must name. Expected values are worked out from the PTX
manual, never by running.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILES = Path(__file__).resolve().parent
TYPES = {
    **{f"{letter}{bits}": f"{kind}{bits // 8}" for letter, kind in (("u", "u"), ("b", "u"), ("s", "i")) for bits in (8, 16, 32, 64)},
    "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip
_DIRECTIVE = re.compile(r"// (launch|in|value|out|count|error|without)\b ?([^:]*): (.*)")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass
class PtxTest:
    """A file. ``given``: parameter → array or number; ``expected``: parameter → array; ``counts``: counter → number;
    ``without``: "ptxas" or "oracle" → why it has no part."""

    name: str
    text: str
    entry: str
    parameters: list[str]
    shape: dict[str, Any] = field(
        default_factory=lambda: {"grid": 1, "block": 1, "shared": 0, "cluster": None}
    )
    given: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, NDArray[Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    without: dict[str, str] = field(default_factory=dict)

    @property
    def fault(self) -> int | None:
        """The line that an error must name, counted from 1."""
        marked = [
            number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith("// fault")
        ]
        return marked[0] if marked else None

    def arguments(self) -> list[Any]:
        """A new array or a number for each parameter."""
        made = []
        for name in self.parameters:
            value = self.given.get(name)
            if value is None:
                value = np.zeros_like(self.expected[name])
            made.append(value.copy() if isinstance(value, np.ndarray) and value.ndim else value)
        return made


def arithmetic(text: str) -> int:
    """The value of sums, differences, products and whole quotients of integers. Raises ``ValueError`` for anything else."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise ValueError(f"{text!r} is not arithmetic on integers")

    return value(ast.parse(text.strip(), mode="eval").body)


def numbers(text: str) -> NDArray[Any]:
    """``u32 0..3 7*2`` as an array. Raises ``ValueError`` for what is none."""
    kind, *words = text.split()
    found: list[int | float] = []
    for word in words:
        if ".." in word:
            first, last = (int(part, 0) for part in word.split(".."))
            found += range(first, last + 1) if first <= last else range(first, last - 1, -1)
        else:
            one, _, times = word.partition("*")
            number = float(one) if TYPES[kind][0] == "f" else int(one, 0)
            found += [number] * int(times or 1)
    return np.array(found, np.dtype(TYPES[kind]))


def lines_of(text: str) -> Iterator[str]:
    """The comments above ``.version``, with those that go on joined to what they continue."""
    joined = ""
    for line in text.partition("\n.version")[0].splitlines():
        if line.startswith("//   "):
            joined += " " + line[2:].strip()
        else:
            yield joined
            joined = line
    yield joined


def read(path: Path) -> PtxTest:
    """Raises ``ValueError`` with the file's name for one that expects nothing or that cannot be read."""
    text = path.read_text(encoding="utf-8")
    entry = re.search(r"\.entry\s+(\w+)\s*\(([^)]*)\)", text)
    if entry is None:
        raise ValueError(f"{path}: no .entry with its parameters")
    names = [part.split("[")[0].split()[-1] for part in entry[2].split(",") if part.strip()]
    test = PtxTest(path.relative_to(FILES).with_suffix("").as_posix(), text, entry[1], names)
    for line in lines_of(text):
        if (found := _DIRECTIVE.fullmatch(line)) is None:
            continue
        what, name, rest = found[1], found[2].strip(), found[3]
        try:
            if what == "launch":
                pairs = dict(word.split("=") for word in rest.split())
                sizes = {key: tuple(map(int, value.split(","))) for key, value in pairs.items()}
                test.shape.update(
                    {key: value[0] if len(value) == 1 else value for key, value in sizes.items()}
                )
            elif what == "in":
                test.given[name] = numbers(rest)
            elif what == "value":
                test.given[name] = numbers(rest)[0]
            elif what == "out":
                test.expected[name] = numbers(rest)
            elif what == "count":
                test.counts[name] = arithmetic(rest)
            elif what == "without":
                test.without[name] = rest
            else:
                test.errors.append(rest)
        except (ValueError, KeyError, SyntaxError) as error:
            raise ValueError(f"{path}: {line}: {error}") from None
    if not (test.expected or test.counts or test.errors):
        raise ValueError(f"{path}: expects nothing: one of out, count and error is needed")
    if unknown := {*test.given, *test.expected} - {*names}:
        raise ValueError(f"{path}: no parameter is named {', '.join(sorted(unknown))}")
    return test


def every_file() -> list[PtxTest]:
    """All files below this folder, in order of their names."""
    return [read(path) for path in sorted(FILES.rglob("*.ptx"))]
