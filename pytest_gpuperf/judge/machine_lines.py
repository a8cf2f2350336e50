"""Source lines whose executed machine code differs from another report of the same kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core.numbers import signed
from ..core.records import Case, ListingRow

__all__ = ["moved_machine_lines"]

_MOST = 5
"""Most listed lines."""


def moved_machine_lines(
    new: Case, old: Case, listing: ListingRow | None, old_listing: ListingRow | None
) -> list[str]:
    """A sentence for each source line whose executed machine instructions (by warps) moved most. A line is the same one if it stands
    in the same file with the same text: code that only moved is not named. Nothing where one report holds no machine instructions, or
    holds those of another target."""
    named, was_named = _target(new), _target(old)
    if not named or named != was_named:
        return []
    after, places = _executed(new, named, listing)
    before, gone = _executed(old, named, old_listing)
    moved = [(after[line] - before[line], line) for line in {*after, *before} if after[line] != before[line]]
    moved.sort(key=lambda item: (-abs(item[0]), item[1]))
    lines = [
        f"{signed(delta, 'machine.warp_instructions')} at {places.get(line) or 'gone: ' + gone[line]} ({named})"
        for delta, line in moved[:_MOST]
    ]
    if len(moved) > _MOST:
        lines.append(f"and {len(moved) - _MOST} other lines in machine code")
    return lines


def _target(record: Case) -> str:
    shown = record["detail"]["targets"]
    return next(
        (name for name, entry in shown.items() if entry.get("machine_code", {}).get("instructions")), ""
    )


def _executed(
    record: Case, target: str, listing: ListingRow | None
) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], str]]:
    """Warp instructions by (file, text) of a line, and where that line first stands."""
    counts: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], str] = {}
    for line, position, warps in _rows(record, target, listing):
        counts[line] += warps
        places.setdefault(line, position)
    return counts, places


def _rows(
    record: Case, target: str, listing: ListingRow | None
) -> Iterator[tuple[tuple[str, str], str, int]]:
    """Of each machine instruction its line as (file, text), where that stands, and executions by warps. The PTX where there are no
    sources; one line for what the assembler brought itself."""
    sources = record["detail"]["sources"]
    texts = dict(listing["lines"]) if listing is not None else {}
    original = listing["source"] if listing is not None else {}
    path = record["kernel"]["path"]
    for row in record["detail"]["targets"][target]["machine_code"]["instructions"]:
        line, warps = row[2], row[3]
        source = sources.get(str(line), "")
        if source:
            text, position = original.get(source, ""), source
        else:
            text, position = texts.get(line, ""), f"{path}:{line}" if line else "code of the assembler's own"
        named = " ".join(text.split())
        yield (position.rpartition(":")[0], named or position), position, warps
