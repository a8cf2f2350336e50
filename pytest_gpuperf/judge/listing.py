"""The listing of a case: its PTX, the source, and the cost of each line of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuperf_engine.profile.opcodes import work_of
from gpuperf_engine.simt.program import program_of

from ..core.escaping import storable
from ..core.fingerprint import digest_parts
from ..core.metric import Table
from ..core.metrics import TABLE
from ..core.records import ListingRow
from ..sources.original import source_texts
from ..sources.paths import SourcePaths
from .lines import encode, line_groups
from .stalled import add_stalled_lines

if TYPE_CHECKING:
    from gpuperf_engine import Kernel

    from ..sources.base import PtxSource
    from .measure import Measured

__all__ = ["Listing", "add_lines"]

_MOST = 20_000
"""Lines of PTX of one function."""


@dataclass(frozen=True)
class Listing:
    """The PTX of a kernel and of all it calls, by line, and the source by ``file:line``, where it is known. ``key`` is a digest that
    stands for them."""

    path: str
    text: Mapping[int, str]
    source: Mapping[str, str]
    key: str = ""

    @classmethod
    def of_report(cls, path: str, listing: ListingRow | None) -> Listing:
        """Return the listing from a report; an empty one if the report does not have it."""
        if listing is None:
            return cls(path, {}, {})
        return cls(path, {line: text for line, text in listing["lines"]}, listing["source"])

    def to_dict(self) -> ListingRow:
        """Convert to the form in reports."""
        return {
            "id": self.key,
            "path": self.path,
            "lines": [[number, self.text[number]] for number in sorted(self.text)],
            "source": dict(self.source),
        }


def add_lines(
    measured: Measured, kernel: Kernel, source: PtxSource, paths: SourcePaths, metrics: Table = TABLE
) -> Listing:
    """Adds the cost of each line of a kernel to its measurement: source lines to ``detail``, the baseline's lines to ``entry``."""
    text = _text(kernel, source)
    places, inlined = _source_lines(kernel, paths)
    calls = (position for chain in inlined.values() for position in chain[1:])
    texts = {
        storable(position): line for position, line in source_texts([*places.values(), *calls], paths).items()
    }
    listing = Listing(source.path, text, texts, digest_parts([source.path, *text.items()], 12))
    detail = measured.detail
    detail["opcodes"] = _opcode_work(kernel, measured.entry["counts"].get("opcodes", ()))
    detail["sources"] = {str(line): storable(position) for line, position in places.items()}
    detail["inlined"] = {str(line): [storable(part) for part in chain] for line, chain in inlined.items()}
    detail["files"] = sorted(storable(path) for path in paths.files)
    detail["listing"] = listing.key
    if lines := encode(line_groups(measured.detail, text, texts, metrics)):
        measured.entry["lines"] = lines
    add_stalled_lines(measured.entry, detail, source.path, text, texts)
    return listing


def _text(kernel: Kernel, source: PtxSource) -> dict[int, str]:
    lines = source.text.split("\n")  # as the parser counts them
    return {
        number: lines[number - 1]
        for first, last in _function_lines(kernel)
        for number in range(first, min(last, first + _MOST, len(lines)) + 1)
    }


def _source_lines(kernel: Kernel, paths: SourcePaths) -> tuple[dict[int, str], dict[int, list[str]]]:
    """By PTX line, for a kernel and all it calls that were compiled with line numbers: ``file.cu:line``; and where that line was
    inlined, the name of its function (empty if unknown) and ``file.cu:line`` of the calls, innermost first."""
    places: dict[int, str] = {}
    inlined: dict[int, list[str]] = {}
    for function in program_of(kernel).functions:
        for instruction in function.instructions:
            at, line = instruction.location, instruction.span.line
            # line 0 marks code that the compiler generated
            if at is None or at.line <= 0 or line in places:
                continue
            places[line] = paths.place(str(at))
            if at.inlined_at is not None:
                chain = [at.function or ""]
                while (at := at.inlined_at) is not None:
                    chain.append(paths.place(str(at)))
                inlined[line] = chain
    return places, inlined


def _opcode_work(kernel: Kernel, executed: Iterable[str]) -> dict[str, list[str | int]]:
    """Of each opcode that was executed: its category, and the precision and number of its floating-point operations if it has any."""
    wanted = set(executed)
    work: dict[str, list[str | int]] = {}
    for function in program_of(kernel).functions:
        for instruction in function.instructions:
            if instruction.opcode in wanted and instruction.opcode not in work:
                work[instruction.opcode] = [instruction.form.category, *work_of(instruction.form)]
    return {name: work[name] for name in sorted(work)}


def _function_lines(kernel: Kernel) -> list[tuple[int, int]]:
    """First and last PTX line of a kernel and of each function it calls, from the head to the last instruction."""
    return [
        (
            function.span.line,
            max(
                (instruction.span.end_line for instruction in function.instructions),
                default=function.span.line,
            ),
        )
        for function in program_of(kernel).functions
    ]
