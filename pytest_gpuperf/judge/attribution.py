"""Attribution of a changed metric to lines of the PTX and of the source.

A metric that is a sum over lines is attributed by the numbers of these lines, before and after. A baseline without lines shows only
which opcodes were added: then the line is a guess, and the text says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..core.mangling import function_name
from ..core.metric import Table
from ..core.metrics import TABLE
from ..core.numbers import signed
from ..core.records import Detail, Entry, Row
from .alignment import Change, differences
from .compare import moved_opcodes
from .lines import decode, line_groups, opcodes_of
from .listing import Listing

__all__ = ["Attribution", "Place"]

Measure = Callable[[Change], int]

_SENTENCES = 3
_MUCH = 0.5
"""Least growth of a line that is listed, as a part of the largest growth."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a number moved: PTX lines ``line`` to ``last``, their source as ``file.cu:line`` (empty if unknown) and the function and
    calls through which it was inlined; ``share`` is how much of the difference these lines make, ``others`` the lines elsewhere
    that moved the same way. Line 0 for lines that are gone, of which ``gone`` is the text."""

    path: str
    line: int
    last: int
    source: str = ""
    inlined: tuple[str, ...] = ()
    share: int = 0
    others: int = 0
    gone: str = ""
    guess: bool = False

    def __str__(self) -> str:
        if not self.line:
            return f"{self.path} ({self.gone})" if self.gone else self.path
        lines = str(self.line) if self.last == self.line else f"{self.line}–{self.last}"
        source = self.source
        if self.inlined:
            function, *calls = self.inlined
            of = f" in {function_name(function)}" if function else ""
            source += f"{of}, inlined at {', '.join(calls)}"
        return f"{self.path}:{lines}" + (f" ({source})" if source else "")


class Attribution:
    """The lines of one case, now and in its baseline (``old`` as it holds them, ``None`` without one)."""

    def __init__(
        self,
        new: Entry,
        old: Entry | None,
        detail: Detail,
        listing: Listing,
        metrics: Table = TABLE,
    ) -> None:
        self.new, self.old, self.detail, self.listing = new, old, detail, listing
        self.metrics = metrics
        self._changes: list[Change] | None = None
        self._read = False

    @property
    def changes(self) -> list[Change] | None:
        """The change of each line; ``None`` if the baseline has no lines."""
        if not self._read:
            self._read = True
            was = decode(self.old["lines"]) if self.old is not None and "lines" in self.old else None
            if was is not None:
                now = line_groups(self.detail, self.listing.text, self.listing.source, self.metrics)
                self._changes = differences(was, now)
        return self._changes

    # Metrics

    def lines_of(self, metric: str) -> Place | None:
        """Return the lines that changed a metric in the direction of its change; ``None`` for a metric without lines, or if none
        changed."""
        for measure in self._measures(metric) if self.changes is not None else ():
            total = sum(measure(change) for change in self.changes or ())
            if total:
                return self._moved_most(measure, 1 if total > 0 else -1)
        return None

    def _measures(self, metric: str) -> tuple[Measure, ...]:
        """Return the counts of a line that contribute to a metric, best first; none for a metric without lines."""
        row = self.metrics.find(metric)
        if row is None:
            return ()
        if row.work is not None:
            return tuple(self._of_opcodes(count, row.work, row.path[-1]) for count in row.lines)
        return tuple(map(_count, row.lines))

    def _of_opcodes(self, count: str, part: int, wanted: str) -> Measure:
        """A count of the opcodes whose category (0) or kind of floating-point operation (1) is the wanted one."""
        work = self.detail.get("opcodes", {})
        named = {name for name, row in work.items() if len(row) > part and row[part] == wanted}

        def measure(change: Change) -> int:
            return change.delta(count) if change.new and named.intersection(change.new.opcodes) else 0

        return measure

    def _moved_most(self, measure: Measure, sign: int) -> Place | None:
        """The source line (the basic block, without sources) that moved most in one direction, and its PTX lines that did."""
        moved = [(sign * measure(change), change) for change in self.changes or ()]
        groups: dict[int, list[tuple[int, Change]]] = {}
        for amount, change in moved:
            groups.setdefault(change.group, []).append((amount, change))
        most = max(groups.values(), key=lambda rows: _weight(rows), default=[])
        if _weight(most) <= (0, 0):
            return None
        grown = [(amount, change) for amount, change in most if amount > 0]
        others = sum(
            amount > 0
            for rows in groups.values()
            if rows is not most and sum(a for a, _ in rows) > 0
            for amount, _ in rows
        )
        there = [(amount, change) for amount, change in grown if change.new is not None]
        if not there:
            where = grown[0][1].where
            return Place(
                self.listing.path, 0, 0, gone=f"gone: {where}", share=sum(a for a, _ in grown), others=others
            )
        run = _run(there)
        rest = len(there) - len(run)
        return self._placed([change for _, change in run], sum(a for a, _ in run), others + rest)

    def _placed(self, changes: Sequence[Change], share: int, others: int) -> Place:
        numbers = [change.new.number for change in changes if change.new is not None]
        return self._at(min(numbers), max(numbers), share, others)

    def _at(self, line: int, last: int, share: int = 0, others: int = 0, guess: bool = False) -> Place:
        source = self.detail["sources"].get(str(line), "")
        inlined = tuple(self.detail.get("inlined", {}).get(str(line), ()))
        return Place(self.listing.path, line, last, source, inlined, share, others, guess=guess)

    # Opcodes

    def moved_opcodes(self) -> list[tuple[str, int]]:
        """(opcode, difference in thread instructions), what moved most first."""
        return moved_opcodes(self.new, self.old or {})

    def _opcode_place(self, name: str, delta: int) -> Place | None:
        if self.changes is None:
            hottest = self.hottest(name)
            return hottest if hottest is not None and hottest.line else None

        def measure(change: Change) -> int:
            line = change.new
            return change.delta("threads") if line is not None and name in line.opcodes else 0

        return self._moved_most(measure, 1 if delta > 0 else -1)

    def grown_opcode(self) -> Place | None:
        """The place of the opcode that grew most; ``None`` if none grew."""
        for name, delta in self.moved_opcodes() if self.old is not None else ():
            if delta > 0 and (lines := self._opcode_place(name, delta)) is not None and lines.line:
                return lines
        return None

    # Guesses

    def hottest(self, opcode: str | None = None) -> Place | None:
        """The source line with most thread instructions (of the PTX lines with ``opcode``, if given) and its PTX lines; ``None`` if
        nothing ran."""
        groups: dict[object, list[Sequence[int]]] = {}
        for row in self.detail["lines"]:
            if opcode is None or opcode in opcodes_of(self.listing.text.get(row[0], "")):
                groups.setdefault(self.detail["sources"].get(str(row[0]), row[0]), []).append(row)
        if not groups:
            return None
        rows = max(groups.values(), key=lambda group: (sum(row[1] for row in group), -group[0][0]))
        numbers = [row[0] for row in rows]
        return self._at(min(numbers), max(numbers), others=len(groups) - 1, guess=True)

    # Words

    def sentences(self, rows: Iterable[Row], limit: int = _SENTENCES) -> list[str]:
        """One per opcode that moved most and per failing metric that the opcodes do not explain: ``+1,048,576 ld.global.f32 at
        saxpy.ptx:31 (saxpy.cu:8)``."""
        if self.old is None:
            return []
        moved, lines = self.moved_opcodes(), []
        for name, delta in moved[:limit]:
            lines.append(_sentence(name, delta, self._opcode_place(name, delta)))
        if len(moved) > limit:
            lines.append(f"and {len(moved) - limit} other opcodes")
        if moved and self.changes is None:
            lines.append(
                "lines are guesses, the hottest with that opcode: the baseline holds no counts of lines"
            )
        at: dict[str, list[str]] = {}
        rows = [row for row in rows if row["fails"] and row["class"] == "exact"]
        instructions = any(row["metric"] == "thread_instructions" for row in rows)
        for row in rows:
            metric, was, now = row["metric"], row["old"], row["new"]
            if was is None or now is None:
                continue
            by_opcodes = metric == "thread_instructions" or metric.startswith("counts.")
            if moved and (by_opcodes or (metric == "warp_instructions" and instructions)):
                continue
            grown = self.lines_of(metric)
            if grown is not None:
                at.setdefault(_there(grown), []).append(signed(now - was, metric))
        return lines + [f"{', '.join(amounts)}{there}" for there, amounts in at.items()]


def _count(name: str) -> Measure:
    return lambda change: change.delta(name)


def _weight(rows: Sequence[tuple[int, Change]]) -> tuple[int, int]:
    """Return the net growth of a group, then the largest growth of a line; zeros if the group did not grow."""
    balance = sum(amount for amount, _ in rows)
    return (balance, max((amount for amount, _ in rows), default=0)) if balance > 0 else (0, 0)


def _run(rows: Sequence[tuple[int, Change]]) -> Sequence[tuple[int, Change]]:
    """Return the line with the largest change, with neighbours of similar change."""
    top = max(range(len(rows)), key=lambda index: (rows[index][0], -index))
    enough = _MUCH * rows[top][0]
    low = high = top
    while low > 0 and rows[low - 1][0] >= enough and rows[low][1].order - rows[low - 1][1].order == 1:
        low -= 1
    while (
        high + 1 < len(rows)
        and rows[high + 1][0] >= enough
        and rows[high + 1][1].order - rows[high][1].order == 1
    ):
        high += 1
    return rows[low : high + 1]


def _sentence(name: str, delta: float, lines: Place | None) -> str:
    return signed(delta, name) + (_there(lines) if lines is not None else "")


def _there(lines: Place) -> str:
    """Format the position of a change, for the end of a sentence."""
    if not lines.line:
        return f", {lines.gone}" if lines.gone else ""
    return f"{', most of them' if lines.others else ''} at {lines}"
