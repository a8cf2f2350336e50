"""Register numbers of values, by linear scan (Poletto and Sarkar, "Linear Scan Register Allocation", 1999).

Intervals are those from the first to the last position at which a value is live. A value of two or more words has consecutive
registers, the first even. Numbers are only needed for the dependences of the simulation and to be shown: if none is free, those whose
intervals end first are shared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...sass.registers import PREDICATES

__all__ = ["UNIFORM", "Numbers"]

#: The number of the first uniform register.
UNIFORM = 256
_REGISTERS, _UNIFORM_REGISTERS, _PREDICATES = 255, 63, 7


class Numbers:
    """``words``: 32-bit registers of each value; ``uniform``: values in uniform registers; ``predicates``: values that are
    predicates."""

    def __init__(
        self, words: Mapping[int, int], uniform: Collection[int], predicates: Collection[int]
    ) -> None:
        self.words, self.uniform, self.predicates = words, uniform, predicates
        self.numbers: dict[int, tuple[int, ...]] = {}

    def of(self, value: int) -> tuple[int, ...]:
        """The registers of a value."""
        return self.numbers.get(value, ())

    def assign(
        self,
        blocks: Sequence[tuple[int, int]],
        entering: Sequence[tuple[int, ...]],
        leaving: Sequence[tuple[int, ...]],
        steps: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> None:
        """Assigns registers to all values of a listing. ``blocks``: first position and end; ``entering`` and ``leaving``: the values
        that are live there; ``steps``: the values that each position reads and writes."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}

        def seen(value: int, at: int) -> None:
            first[value] = min(first.get(value, at), at)
            last[value] = max(last.get(value, at), at)

        for (start, end), live_in, live_out in zip(blocks, entering, leaving):
            for value in live_in:
                seen(value, start)
            for value in live_out:
                seen(value, end)
            for at in range(start, end):
                for value in (*steps[at][0], *steps[at][1]):
                    if value >= 0:
                        seen(value, at)
        named = {value for read, written in steps for value in (*read, *written) if value >= 0}
        ranges = [
            (
                range(_REGISTERS),
                [value for value in named if value not in self.uniform and value not in self.predicates],
            ),
            (
                range(UNIFORM, UNIFORM + _UNIFORM_REGISTERS),
                [value for value in named & {*self.uniform} if value not in self.predicates],
            ),
            (range(PREDICATES, PREDICATES + _PREDICATES), [value for value in named & {*self.predicates}]),
        ]
        for places, values in ranges:
            self._scan(places, values, first, last)

    def _scan(
        self, places: range, values: list[int], first: Mapping[int, int], last: Mapping[int, int]
    ) -> None:
        until = dict.fromkeys(places, -1)
        for value in sorted(values, key=lambda one: (first[one], one)):
            size = max(1, self.words.get(value, 1))
            step = 1 if size == 1 else 2 if size == 2 else 4
            starts = range(places.start, places.stop - size + 1, step)
            at = next(
                (start for start in starts if all(until[start + n] < first[value] for n in range(size))), None
            )
            if at is None:
                at = min(starts, key=lambda start: sum(until[start + n] for n in range(size)))
            self.numbers[value] = tuple(range(at, at + size))
            for place in self.numbers[value]:
                until[place] = max(until[place], last[value])
