"""The cost of each line of a kernel, in reports and baselines.

A baseline is compared with a kernel that was edited and compiled again: line numbers, registers, labels and the order of
instructions may all differ. So it has the text of lines instead of their numbers: one entry per line of the source (per basic block
if the PTX names no source), each with the costs of its PTX lines and two characters per PTX line, by which these are identified:

    saxpy.cu: y[i] = a * x[i] + y[i]; | threads=65536*7 global_load_sectors=8192@2,4 | sQk2a9*2.…

``65536*7``: seven lines of PTX, each run by 65,536 threads; ``8192@2,4``: 8,192 at each of the lines 2 and 4, counted from 0;
``4-64/5`` is every fifth from 4 to 64. ``warps`` is left out where every warp was whole (a 32nd of ``threads``, rounded up). A line
that was inlined reads ``tile.cuh: … ← gemm.cu: …``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby

from ..core.escaping import storable
from ..core.mangling import function_name
from ..core.metric import Table
from ..core.metrics import TABLE
from ..core.records import Access, Detail

__all__ = ["PTX", "Group", "Line", "decode", "encode", "line_groups", "named_line", "opcodes_of"]

PTX = "PTX"
"""Name of entries whose instructions come from no source line."""

_TEXT = 64
_MOST = 200_000
"""Most lines of PTX in a baseline, so that a damaged one cannot exhaust memory."""

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_INTO = " ← "
_EVERY = ("threads", "warps")
_WARP = 32
_BRANCHES = ("bra", "ret", "exit")
_BRANCH = "executed"
_COUNTED = "!"
"""Stands for the opcode of a branch that is counted: its executions are those of warps."""
_RUN = re.compile(r"(\d{1,40})(?:\*(\d{1,6}))?")
_PLACES = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?:/(\d{1,6}))?)?")
_CODE = re.compile(r"([\w!-]{2})(?:\*(\d{1,6})\.)?", re.ASCII)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_LABEL = re.compile(r"^\s*[\w$%]+\s*:(?!:)")
_GUARD = re.compile(r"^@!?\s*[%\w$]+\s+")
_OPCODE = re.compile(r"[a-z_][\w.:]*")
_OPERAND = re.compile(r"%[\w$]+(?:\.\w+)?|\d[\w.]*|[A-Za-z_$][\w$.]*|\S")
_FUNCTION = re.compile(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$%]+)")
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|laneid|n?warpid|n?smid|gridid|n?clusterid|cluster_|lanemask_|clock|global)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of PTX that ran. ``number`` is 0 for one of a baseline; ``counts`` by the last part of a metric's name, ``threads`` and
    ``warps`` for the instructions; no zeros."""

    token: str
    counts: Mapping[str, int]
    number: int = 0
    opcodes: tuple[str, ...] = ()


@dataclass(slots=True)
class Group:
    """The lines of PTX, in order, that come from ``where``: one line of the source (and one call, if inlined); without source, the
    lines of one basic block of ``function``."""

    where: str
    lines: list[Line] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether ``where`` has text of the source, at least that of a call."""
        return ": " in self.where

    @property
    def text(self) -> str:
        """The text of the source without names of files, which does not change when a file is renamed."""
        return _INTO.join(part.partition(": ")[2] for part in self.where.split(_INTO))

    @property
    def plain(self) -> bool:
        """Whether the instructions come from no source."""
        return self.where.rpartition(" ")[2] == PTX and not self.named


# What was measured


def line_groups(
    detail: Detail, text: Mapping[int, str], texts: Mapping[str, str], metrics: Table = TABLE
) -> list[Group]:
    """The lines of PTX that ran, by line of the source.

    ``detail`` is that of a report's case, ``text`` the PTX by line, ``texts`` the source by ``file:line``.
    """
    functions = _functions(text)
    sources, inlined = detail["sources"], detail.get("inlined", {})
    groups: dict[tuple[int, ...], Group] = {}
    files: dict[str, int] = {}
    orders: dict[tuple[str, ...], tuple[int, ...]] = {}
    block = 0
    before: Line | None = None
    for line in _measured(detail, text, metrics):
        number, name = functions.get(line.number, (0, ""))
        source = sources.get(str(line.number), "")
        chain: tuple[str, ...] = ()
        if source:
            chain = (source, *inlined.get(str(line.number), ("",))[1:])
            order = orders.get(chain)
            if order is None:
                order = orders[chain] = tuple(part for call in chain for part in _order(call, files))
            key: tuple[int, ...] = (number, 1, *order)
        else:
            if before is None or any(before.counts.get(name) != line.counts.get(name) for name in _EVERY):
                block += 1
            before = line
            key = (number, 0, block)
        group = groups.get(key)
        if group is None:
            where = _INTO.join(named_line(call, texts) for call in chain) if chain else PTX
            group = groups[key] = Group(storable(f"{function_name(name)}() {where}" if number > 0 else where))
        group.lines.append(line)
    return [groups[key] for key in sorted(groups)]


def _order(position: str, files: dict[str, int]) -> tuple[int, int]:
    path, _, line = position.rpartition(":")
    return files.setdefault(path, len(files)), int(line) if line.isdigit() else 0


def named_line(position: str, texts: Mapping[str, str]) -> str:
    """``saxpy.cu: y[i] = a * x[i] + y[i];`` for ``src/saxpy.cu:8``; the file alone where its text is not known."""
    name = position.rpartition(":")[0].rpartition("/")[2]
    text = " ".join(texts.get(position, "").split())[:_TEXT].replace(" | ", " || ").replace(_INTO, " ")
    return f"{name}: {text.strip()}" if text else name


def _functions(text: Mapping[int, str]) -> dict[int, tuple[int, str]]:
    """By line of PTX: the number of the function (the kernel is 0) and its name."""
    functions: dict[int, tuple[int, str]] = {}
    numbers = sorted(text)
    names: list[str] = []
    entry = ""
    current = ""
    for index, number in enumerate(numbers):
        if ".entry" in text[number] or ".func" in text[number]:
            head = " ".join(text[n] for n in numbers[index : index + 4])
            match = _FUNCTION.search(head)
            if match:
                current = match[1]
                names.append(current)
                entry = current if ".entry" in text[number] else entry
        functions[number] = (0, current)
    rank = {name: index for index, name in enumerate([entry, *(name for name in names if name != entry)])}
    return {number: (rank.get(name, 0), name) for number, (_, name) in functions.items()}


def _measured(detail: Detail, text: Mapping[int, str], metrics: Table) -> Iterator[Line]:
    """Yield the executed lines with their counts."""
    memory: dict[int, dict[str, int]] = {}
    for access in detail.get("accesses", ()):
        counts = memory.setdefault(access["line"], {})
        for name, count in _of_access(access, metrics):
            counts[name] = counts.get(name, 0) + count
    for row in detail["lines"]:
        number, threads, warps, divergent = row[0], row[1], row[2], row[5]
        if not threads:
            continue
        statement = _statement(number, text)
        token, opcodes, branch = _token(statement)
        counts = {"threads": threads, "warps": warps, "divergent": divergent, **memory.get(number, {})}
        counts[_BRANCH] = warps if branch else 0
        yield Line(token, {name: count for name, count in counts.items() if count}, number, opcodes)


def _of_access(row: Access, metrics: Table) -> Iterator[tuple[str, int]]:
    """Yield a memory instruction's contributions by metric, and one more count that baselines have."""
    for metric in metrics.counted:
        if metric.access is not None:
            yield metric.count, metric.access(row)
    if row.get("kind", ""):  # reports of earlier versions do not say it
        yield "shared_atomic_serializations", row["shared_serializations"]


def _statement(number: int, text: Mapping[int, str]) -> str:
    """A line of PTX, to the end of its last statement."""
    parts = [text.get(number, "")]
    while ";" not in parts[-1] and number + 1 in text and len(parts) < 64:
        number += 1
        parts.append(text[number])
    return "\n".join(parts)


@lru_cache(maxsize=65536)
def _token(statement: str) -> tuple[str, tuple[str, ...], bool]:
    """Return two characters for the instructions of a line, one for the opcodes and one for the operands without names; the
    opcodes; and whether one is a counted branch."""
    opcodes, operands, branch = [], [], False
    for part in _COMMENT.sub(" ", statement).split(";"):
        part = part.strip().lstrip("{} \t\n")
        while match := _LABEL.match(part):
            part = part[match.end() :].strip()
        guard = _GUARD.match(part)
        part = part[guard.end() :] if guard else part
        opcode = _OPCODE.match(part)
        if opcode is None:
            continue
        opcodes.append(opcode[0])
        branch |= opcode[0].startswith("brx.idx") or (guard is not None and opcode[0].startswith(_BRANCHES))
        jumps = opcode[0].startswith(("bra", "brx", "call"))
        shape = [] if jumps else [_shaped(token) for token in _OPERAND.findall(part[opcode.end() :])]
        operands.append("".join(["@" if guard else "", *shape]))
    first, second = (_ALPHABET[zlib.crc32(";".join(parts).encode()) & 63] for parts in (opcodes, operands))
    return f"{_COUNTED if branch else first}{second}", tuple(opcodes), branch


def _shaped(token: str) -> str:
    if token[0] == "%":
        return token if _SPECIAL.match(token) else "%"
    return "$" if token[0].isalpha() or token[0] in "_$" else token


def opcodes_of(line: str) -> tuple[str, ...]:
    """The opcodes of a line of PTX, without guards and operands."""
    return _token(line)[1]


# In baselines


def encode(groups: Iterable[Group]) -> list[str]:
    """One line of text per group."""
    return [f"{group.where} | {_numbers(group.lines)} | {_code(group.lines)}" for group in groups]


def _numbers(lines: Sequence[Line]) -> str:
    parts = []
    whole = all(line.counts.get("warps", 0) == _whole(line.counts["threads"]) for line in lines)
    for name in _EVERY[: 1 if whole else 2]:
        runs = [(value, len([*run])) for value, run in groupby(line.counts.get(name, 0) for line in lines)]
        parts.append(f"{name}=" + ",".join(f"{v}*{n}" if n > 1 else f"{v}" for v, n in runs))
    for name in sorted({name for line in lines for name in line.counts} - {*_EVERY, _BRANCH}):
        places: dict[int, list[int]] = {}
        for index, line in enumerate(lines):
            if count := line.counts.get(name):
                places.setdefault(count, []).append(index)
        values = ";".join(f"{count}@{','.join(_ranges(where))}" for count, where in places.items())
        parts.append(f"{name}={values}")
    return " ".join(parts)


def _whole(threads: int) -> int:
    return -(-threads // _WARP)


def _ranges(places: Sequence[int]) -> Iterator[str]:
    """Ascending numbers, those at equal distances as a range: ``7``, ``3-5``, ``4-64/5``."""
    start = 0
    while start < len(places):
        end = start + 1
        step = places[end] - places[start] if end < len(places) else 0
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        if end - start > 2:
            yield f"{places[start]}-{places[end - 1]}" + (f"/{step}" if step > 1 else "")
        else:
            end = start + 1
            yield str(places[start])
        start = end


def _code(lines: Sequence[Line]) -> str:
    codes = []
    for token, run in groupby(line.token for line in lines):
        length = len([*run])
        codes.append(f"{token}*{length}." if length > 2 else token * length)
    return "".join(codes)


def decode(entries: Iterable[str]) -> list[Group] | None:
    """Return the groups of an ``encode`` result; ``None`` for other text."""
    groups, most = [], _MOST
    try:
        for entry in entries:
            where, numbers, code = entry.rsplit(" | ", 2)
            tokens = _expanded(_CODE, code, most)
            counts: list[dict[str, int]] = [{} for _ in tokens]
            most -= len(tokens)
            for part in numbers.split(" "):
                name, _, values = part.partition("=")
                _read(name, values, counts)
            for token, line in zip(tokens, counts):
                line.setdefault("warps", _whole(line["threads"]))
                if token[0] == _COUNTED:
                    line[_BRANCH] = line["warps"]
            groups.append(Group(where, [Line(t, c) for t, c in zip(tokens, counts, strict=True)]))
    except (ValueError, IndexError, KeyError):
        return None
    return groups


def _expanded(pattern: re.Pattern[str], text: str, most: int) -> list[str]:
    parts: list[str] = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        times = int(match[2] or 1) if match else most + 1
        if match is None or len(parts) + times > most:
            raise ValueError(text)
        parts += [match[1]] * times
        at = match.end()
    return parts


def _read(name: str, values: str, counts: list[dict[str, int]]) -> None:
    if name in _EVERY:
        numbers: list[int] = []
        for run in values.split(","):
            match = _RUN.fullmatch(run)
            times = int(match[2] or 1) if match else 0
            if match is None or len(numbers) + times > len(counts):
                raise ValueError(values)
            numbers += [int(match[1])] * times
        for line, value in zip(counts, numbers, strict=True):
            line[name] = value
        return
    for part in values.split(";"):
        count, _, places = part.partition("@")
        for stretch in places.split(","):
            found_range = _PLACES.fullmatch(stretch)
            if found_range is None:
                raise ValueError(values)
            first, last, step = (int(number or 0) for number in found_range.groups())
            for index in range(first, max(first, last) + 1, step or 1):
                counts[index][name] = int(count)
