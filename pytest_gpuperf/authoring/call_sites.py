"""Call sites of CUDA in the C code of a program: functions and lines of addresses, and names of arrays from their source lines.

Functions come from the file's symbol table; lines and inlined functions from ``addr2line`` (binutils), if it is installed and the
program has debug information (``-g``). A call without known line or source is named by its function and its ordinal among calls of its
kind there, which changes elsewhere do not affect.
"""

from __future__ import annotations

import bisect
import linecache
import mmap
import os
import re
import shutil
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf_engine.binaries.elf import MAGIC, read_elf
from gpuperf_engine.device.events import CallSite, Event
from gpuperf_engine.errors import EngineError

from ..core.mangling import function_name
from ..programs.device import UNNAMED

if TYPE_CHECKING:
    from gpuperf_engine import RecordedProgram
    from gpuperf_engine.memory.arena import Allocation

__all__ = ["named_after_sites", "with_lines"]

_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION = 2
_LINE = re.compile(r"(.+):(\d+|\?)(?: \(discriminator \d+\))?")
_SECONDS = 120
#: files of CUDA's headers and of nvcc's host code, whose functions are between a program and the library
_WRAPPERS = re.compile(r"/(cuda_runtime\w*|host_runtime|device_functions)\.h$|\.stub\.c$")
_STUB = "__device_stub_"
#: functions that call ``main``
_OUTERMOST = ("_start", "__libc_start_main", "__libc_start_call_main")
#: the variable that an allocation is assigned to: of C through a pointer to it, of Python by name
_NAME = r"[A-Za-z_]\w*(?:(?:\.|->)\w+|\[\w*\])*"
_POINTER = re.compile(rf"(?:[Aa]lloc)\w*\b.*?&[\s(]*({_NAME})")
_PLAIN = re.compile(
    r"(?:cuda|cu)\w*[Aa]lloc\w*\s*\(\s*(?:\([^()]*\)\s*)*([A-Za-z_]\w*)|^([A-Za-z_]\w*)\s*=[^=]"
)
#: a function's own name, without namespaces, arguments of templates and parameters
_CALLED = re.compile(r"(?:\w+::)*([A-Za-z_]\w*)")
#: lines after an allocation that are searched for the ``return`` of its function
_FUNCTION_LINES = 50


@dataclass(frozen=True, slots=True)
class _Frame:
    """One function at an address of a program; functions inlined there have their own frames. ``start``: start of the function's
    code."""

    function: str
    path: str
    line: int
    start: int


def with_lines(program: RecordedProgram) -> RecordedProgram:
    """Return the program with functions, and known lines, in the call paths of its events."""
    files: dict[str, set[int]] = defaultdict(set)
    paths = {event.path: event.kind for event in program.events}
    for site in (site for path in paths for site in path if site.address):
        files[site.path].add(site.address)
    frames = {
        (file, address): calls
        for file, addresses in files.items()
        for address, calls in _frames(file, sorted(addresses)).items()
    }
    if not frames:
        return program
    known = {path: _path(path, kind, frames) for path, kind in paths.items()}
    texts = _Ordinals(known.values())
    sites = {path: (texts.named(calls[0]), *calls[1:]) if calls else () for path, calls in known.items()}
    return replace(program, events=tuple(replace(event, path=sites[event.path]) for event in program.events))


def _path(
    path: tuple[CallSite, ...], kind: str, frames: Mapping[tuple[str, int], tuple[_Frame, ...]]
) -> tuple[CallSite, ...]:
    """Return the calls of the program itself, the innermost first. Of a launch, the first is that of ``<<<…>>>``; calls of nvcc's host
    code inside it are removed."""
    function = path[0].text if path else ""
    if kind == "launch" and len(path) > 1:
        first, rest = path[0], path[1:]
        start = frames[first.path, first.address][-1].start
        outer_numbers = (
            number
            for number, site in enumerate(rest)
            if site.path == first.path and frames[site.path, site.address][-1].start == start
        )
        path = (first, *rest[next(outer_numbers, len(rest)) + 1 :])
        function = "launch"
    called = [
        CallSite("", frame.path or site.path, frame.line, frame.function, 0 if frame.line else site.address)
        for site in path
        for frame in (frames[site.path, site.address] if site.address else ())
    ]
    while len(called) > 1 and _is_wrapper(called[0], function):
        del called[0]
    while len(called) > 1 and called[-1].function in _OUTERMOST:
        called.pop()
    return tuple(
        replace(site, text=_source(site) or ("" if number else f"\0{function}"))
        for number, site in enumerate(called)
    )


def _is_wrapper(site: CallSite, function: str) -> bool:
    return bool(_WRAPPERS.search(site.path)) or site.function == function or site.function.startswith(_STUB)


def _source(site: CallSite) -> str:
    return linecache.getline(site.path, site.line).strip() if site.line else ""


class _Ordinals:
    """Texts of calls without source: ``cudaMemcpy #2 in main``, numbered by address or line among the calls of the program."""

    def __init__(self, paths: Iterable[tuple[CallSite, ...]]) -> None:
        self._alike: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
        for path in paths:
            if path and path[0].text.startswith("\0"):
                positions = self._alike[self._key(path[0])]
                position = (path[0].line, path[0].address)
                if position not in positions:
                    bisect.insort(positions, position)

    @staticmethod
    def _key(site: CallSite) -> tuple[str, str, str]:
        return site.text, site.path, site.function

    def named(self, site: CallSite) -> CallSite:
        if not site.text.startswith("\0"):
            return site
        ordinal = self._alike[self._key(site)].index((site.line, site.address)) + 1
        container = site.function or Path(site.path).name
        return replace(site, text=f"{site.text[1:]} #{ordinal} in {container}", function="")


# -- files ----------------------------------------------------------------------------------------------------------------------------


def _frames(file: str, addresses: list[int]) -> dict[int, tuple[_Frame, ...]]:
    """Return the frames of each address, the innermost first; the last is the function that contains the address."""
    symbols = _symbols(file)
    starts = [start for start, _, _ in symbols]
    inlined = _lines(file, addresses)
    frames = {}
    for address in addresses:
        index = bisect.bisect_right(starts, address) - 1
        start, end, name = symbols[index] if index >= 0 else (0, 0, "")
        inside = index >= 0 and (address < end or start == end)
        own = _Frame(_name(name) if inside else "", "", 0, start if inside else address)
        known = inlined.get(address, ())
        frames[address] = tuple(
            _Frame(function or own.function, path, line, own.start) for function, path, line in known
        ) or (own,)
    return frames


def _name(symbol: str) -> str:
    """Return a function's own name, without the suffixes that compilers append to clones."""
    return function_name(symbol.partition(".")[0] or symbol)


def _symbols(file: str) -> list[tuple[int, int, str]]:
    """Return start, end and name of the functions of an ELF file, in order; empty for other files and stripped ones."""
    try:
        with open(file, "rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                return []
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        wanted = (".symtab", ".strtab", ".dynsym", ".dynstr")
        sections = {item.name: item.data for item in read_elf(data, file, wanted).sections}
    except (OSError, ValueError, EngineError):
        return []
    functions: dict[int, tuple[int, int, str]] = {}
    for table, names in ((".dynsym", ".dynstr"), (".symtab", ".strtab")):
        entries, strings = sections.get(table, b""), bytes(sections.get(names, b""))
        for name, info, _, section, value, size in _SYMBOL.iter_unpack(entries[: len(entries) // 24 * 24]):
            if info & 15 == _FUNCTION and section and name < len(strings):
                text = strings[name : strings.find(b"\0", name)].decode("utf-8", "replace")
                functions[value] = value, value + size, text
    return [functions[start] for start in sorted(functions)]


def _lines(file: str, addresses: list[int]) -> dict[int, list[tuple[str, str, int]]]:
    """Return function, path and line of each frame at the addresses with known lines."""
    tool = shutil.which("addr2line")
    if tool is None:
        return {}
    command = [tool, "-a", "-f", "-i", "-e", file]
    requests = "\n".join(map(hex, addresses)) + "\n"
    try:
        done = subprocess.run(
            command,
            input=requests,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(_parsed(done.stdout.splitlines())) if done.returncode == 0 else {}


def _parsed(rows: list[str]) -> Iterator[tuple[int, list[tuple[str, str, int]]]]:
    """Parse the output of ``addr2line -a -f -i``: an address, then pairs of a function and its line."""
    number = 0
    while number < len(rows) and rows[number].startswith("0x"):
        address, frames = int(rows[number], 16), []
        number += 1
        while number + 1 < len(rows) and not rows[number].startswith("0x"):
            match = _LINE.fullmatch(rows[number + 1])
            if match and match[1] != "??" and match[2] != "?" and int(match[2]):
                function = "" if rows[number] == "??" else _name(rows[number])
                frames.append((function, os.path.normpath(match[1]), int(match[2])))
            number += 2
        if frames:
            yield address, frames


# -- names ----------------------------------------------------------------------------------------------------------------------------


def named_after_sites(program: RecordedProgram) -> RecordedProgram:
    """Return the program with each unnamed array named after the variable that receives the allocation, or after the call. Arrays with
    one name that exist at once are numbered; an array that replaces a freed one takes its name."""
    events = {event.number: event for event in program.events}
    ordinals = _ordinals(program.events)
    allocations: dict[str, list[Allocation]] = {}
    renamed: dict[str, str] = {}
    for array in program.arrays:
        allocation = array.allocation
        number = program.origins.get(allocation, -1)
        unnamed = allocation.name.partition("#")[0] in UNNAMED
        name = (_variable(events.get(number), ordinals.get(number, 0)) if unnamed else "") or allocation.name
        alike = allocations.setdefault(name, [])
        freed = (index for index, other in enumerate(alike) if program.ends.get(other, number + 1) <= number)
        index = next(freed, len(alike))
        alike[index : index + 1] = [allocation]
        renamed[allocation.name] = name if index == 0 else f"{name}#{index + 1}"
        allocation.name = renamed[allocation.name]
    carried = {
        number: tuple(replace(record, object=renamed.get(record.object, record.object)) for record in records)
        for number, records in program.carried.items()
    }
    return replace(program, carried=carried)


def _ordinals(events: Iterable[Event]) -> dict[int, int]:
    """Count, for each allocation, the earlier ones of its line."""
    counts: Counter[tuple[str, int]] = Counter()
    ordinals = {}
    for event in events:
        if event.kind == "allocate" and event.path:
            line = event.path[0].path, event.path[0].line
            ordinals[event.number] = counts[line]
            counts[line] += 1
    return ordinals


def _variable(event: Event | None, ordinal: int) -> str:
    """Return the variable that receives an allocation, from its line, which may have several allocations; else the text of the
    call."""
    if event is None or not event.path:
        return ""
    text = event.path[0].text
    pointers = _POINTER.findall(text)
    if pointers:
        variable = str(pointers[ordinal % len(pointers)])
        return _assigned(event.path, 0, variable) or variable
    if match := _PLAIN.search(text):
        variable = str(next(filter(None, match.groups())))
        return _caller_argument(event.path) or _assigned(event.path, 0, variable) or variable
    return text if event.path[0].address else ""


def _assigned(path: tuple[CallSite, ...], depth: int, variable: str) -> str:
    """Return the variable of the caller, if the function at ``depth`` returns ``variable``: ``x`` of ``x = alloc<float>(n)``."""
    site, caller = path[depth], path[depth + 1] if depth + 1 < len(path) else None
    called = _CALLED.match(site.function)
    if caller is None or called is None or not _returns(site, variable):
        return ""
    match = re.search(rf"({_NAME})\s*=[^=;][^;]*?\b{called[1]}\b\s*(?:<[^;=]*>)?\s*\(", caller.text)
    return "" if match is None else _assigned(path, depth + 1, match[1]) or match[1]


def _returns(site: CallSite, variable: str) -> bool:
    """Whether the function returns the variable after that line. The function ends at the first unindented brace."""
    returned = re.compile(rf"\breturn\s+(?:\([^()]*\)\s*)*{re.escape(variable)}\s*;")
    for number in range(site.line, site.line + _FUNCTION_LINES if site.line else 0):
        line = linecache.getline(site.path, number)
        if returned.search(line):
            return True
        if not line or line.startswith("}"):
            break
    return False


def _caller_argument(path: tuple[CallSite, ...]) -> str:
    """Return the caller's argument, if the function has the pointer from it: ``reserve(&x, n)`` for ``cudaMalloc(pointer, n)``."""
    called = _CALLED.match(path[0].function)
    if len(path) < 2 or called is None:
        return ""
    match = re.search(rf"\b{called[1]}\b\s*(?:<[^;=]*>)?\s*\([^;]*?&[\s(]*({_NAME})", path[1].text)
    return "" if match is None else match[1]
