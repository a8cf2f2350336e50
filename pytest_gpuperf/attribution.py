"""Why a number moved: which opcodes and which PTX and source lines. PYTEST_DONT_REWRITE

A baseline holds totals, per opcode too; so what was added is exact per opcode, and the line is the source line that executes
that opcode most often now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuperf_engine.emulate.device import program_of

from .figures import number

__all__ = ["attribute", "function_lines", "hottest", "opcode_of", "position", "source_lines"]

_GUARD = re.compile(r"@!?[%\w$]+\s+")
_LABEL = re.compile(r"[\w$%]+:\s*")
_OPCODE = re.compile(r"[a-z_][\w.:]*")


def opcode_of(line: str) -> str:
    """The opcode of a line of PTX, without guard and operands; empty for anything else."""
    text = line.strip().lstrip("{ \t")
    text = _LABEL.sub("", text, count=1)
    text = _GUARD.sub("", text, count=1)
    match = _OPCODE.match(text)
    return match[0] if match and not text.startswith(".") else ""


def source_lines(kernel: Any) -> dict[int, str]:
    """PTX line → ``file.cu:line`` of the instructions of a kernel and all it calls, where it was compiled with line numbers."""
    found: dict[int, str] = {}
    for function in program_of(kernel).functions:
        for instruction in function.instructions:
            # Line 0 stands for code of the compiler's own.
            if instruction.location is not None and instruction.location.line > 0:
                found.setdefault(instruction.span.line, str(instruction.location))
    return found


def function_lines(kernel: Any) -> list[tuple[int, int]]:
    """First and last PTX line of a kernel and of each function it calls, from the head to the last instruction."""
    return [
        (
            function.span.line,
            max((found.span.end_line for found in function.instructions), default=function.span.line),
        )
        for function in program_of(kernel).functions
    ]


def hottest(
    lines: Sequence[Sequence[int]], path: str, sources: Mapping[int, str], among: set[int] | None = None
) -> tuple[int, str]:
    """``(31, "saxpy.ptx:31–44 (saxpy.cu:8)")``: the source line with most thread instructions and its PTX lines, of those
    ``among`` if given; the PTX line alone where the kernel was compiled without line numbers. Line 0 if nothing ran."""
    groups: dict[object, list[Sequence[int]]] = {}
    for row in lines:
        if among is None or row[0] in among:
            groups.setdefault(sources.get(row[0], row[0]), []).append(row)
    if not groups:
        return 0, path
    source, rows = max(groups.items(), key=lambda item: (sum(row[1] for row in item[1]), -item[1][0][0]))
    first, last = min(row[0] for row in rows), max(row[0] for row in rows)
    place = f"{path}:{first}" if first == last else f"{path}:{first}–{last}"
    return first, f"{place} ({source})" if isinstance(source, str) else place


def moved_opcodes(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(opcode, difference in thread instructions), what moved most first."""
    was, now = old.get("counts", {}).get("opcodes", {}), new.get("counts", {}).get("opcodes", {})
    deltas = {name: now.get(name, 0) - was.get(name, 0) for name in {*was, *now}}
    moved = [name for name in deltas if deltas[name]]
    return [(name, deltas[name]) for name in sorted(moved, key=lambda name: (-abs(deltas[name]), name))]


def lines_by_opcode(text: Mapping[int, str]) -> dict[str, set[int]]:
    """The lines of PTX that hold each opcode."""
    found: dict[str, set[int]] = {}
    for line, content in text.items():
        found.setdefault(opcode_of(content), set()).add(line)
    return found


def attribute(
    new: Mapping[str, Any],
    old: Mapping[str, Any],
    lines: Sequence[Sequence[int]],
    text: Mapping[int, str],
    path: str,
    sources: Mapping[int, str],
    limit: int = 3,
) -> list[str]:
    """One sentence per opcode that moved most: ``+1,048,576 ld.global.f32 at saxpy.ptx:31 (saxpy.cu:8)``."""
    places, moved, sentences = lines_by_opcode(text), moved_opcodes(new, old), []
    for name, delta in moved[:limit]:
        where = ""
        if name in places:
            several = ", most of them" if len(places[name]) > 1 else ""
            where = f"{several} at {hottest(lines, path, sources, places[name])[1]}"
        sentences.append(f"{'+' if delta > 0 else '−'}{number(abs(delta))} {name}{where}")
    if len(moved) > limit:
        sentences.append(f"and {len(moved) - limit} other opcodes")
    return sentences


def position(
    new: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    lines: Sequence[Sequence[int]],
    text: Mapping[int, str],
    path: str,
    sources: Mapping[int, str],
) -> tuple[int, str]:
    """As ``hottest``: where the opcode that grew most since ``old`` is hottest, else the hottest place of all."""
    grown = next((name for name, delta in moved_opcodes(new, old) if delta > 0), None) if old else None
    among = lines_by_opcode(text).get(grown) if grown is not None else None
    return hottest(lines, path, sources, among)
