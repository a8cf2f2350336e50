"""Linear forms in the indices of threads and blocks, and whether accesses at such addresses are disjoint.

If every coefficient of a block index is at least the maximum sum of the smaller terms, and all larger coefficients are multiples of
it, no two blocks access the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd

__all__ = [
    "AXES",
    "Form",
    "are_apart",
    "are_threads_apart",
    "are_values_apart",
]

#: axes of ``%tid``, of ``%ctaid`` and of a loaded index
_THREAD, _BLOCK, _LOADED = range(3), range(3, 6), 6
AXES = 7


@dataclass(frozen=True)
class Form:
    """``constant`` + Σ number · index + Σ number · bit of an index + Σ step · count, without overflow in partial results."""

    constant: int
    #: coefficients by axis of ``%tid`` (0 … 2) and ``%ctaid`` (3 … 5), and of a loaded index minus its minimum (6)
    numbers: tuple[int, ...] = (0,) * AXES
    #: steps > 0, each with the maximum of its count, which begins at 0
    steps: tuple[tuple[int, int], ...] = ()
    #: coefficients by axis and bit of the index
    bits: tuple[tuple[tuple[int, int], int], ...] = ()

    @property
    def known(self) -> bool:
        """Whether it is constant."""
        return not any(self.numbers) and not self.steps and not self.bits

    @property
    def is_loaded(self) -> bool:
        """Whether it contains a loaded index."""
        return self.numbers[_LOADED] != 0 or any(axis == _LOADED for (axis, _), _ in self.bits)

    @property
    def is_of_block(self) -> bool:
        """Whether all threads of a block have the same number."""
        several = any(self.numbers[:3]) or self.steps or any(axis < 3 for (axis, _), _ in self.bits)
        return not (several or self.is_loaded)

    def plus(self, other: Form, sign: int = 1) -> Form:
        """The sum (``sign`` −1: the difference), treating all counts as independent."""
        numbers = tuple(a + sign * b for a, b in zip(self.numbers, other.numbers))
        most = dict(self.steps)
        for step, count in other.steps:
            most[step] = most.get(step, 0) + count
        constant = self.constant + sign * other.constant
        if sign < 0:
            constant -= sum(step * count for step, count in other.steps)
        bits = dict(self.bits)
        for key, number in other.bits:
            bits[key] = bits.get(key, 0) + sign * number
        left = tuple(sorted((key, number) for key, number in bits.items() if number))
        return Form(constant, numbers, tuple(sorted(most.items())), left)

    def times(self, other: Form) -> Form | None:
        """The product, if one of them is a constant."""
        if not self.known:
            return other.times(self) if other.known else None
        by = self.constant
        constant = by * other.constant
        if by < 0:
            constant += by * sum(step * count for step, count in other.steps)
        steps = tuple((abs(by) * step, count) for step, count in other.steps) if by else ()
        bits = tuple((key, by * number) for key, number in other.bits) if by else ()
        return Form(constant, tuple(by * item for item in other.numbers), steps, bits)

    def joined(self, other: Form) -> Form | None:
        """A form that covers both."""
        if self == other:
            return self
        if self.numbers != other.numbers or self.bits != other.bits:
            return None
        most = dict(self.steps)
        for step, count in other.steps:
            most[step] = max(most.get(step, 0), count)
        distance = abs(self.constant - other.constant)
        if distance:
            most[distance] = most.get(distance, 0) + 1
        return Form(min(self.constant, other.constant), self.numbers, tuple(sorted(most.items())), self.bits)

    def by_bits(self, axis: int, extent: int) -> list[int]:
        """The numbers of all bits of an index."""
        count, bits = (extent - 1).bit_length(), dict(self.bits)
        return [(self.numbers[axis] << bit) + bits.get((axis, bit), 0) for bit in range(count)]

    def of_axis(self, axis: int, extent: int) -> list[tuple[int, int]]:
        """Coefficients with their extents: those of the index, or, if its bits have different ones, of its bits, which are assumed to
        be independent."""
        if any(bit == axis for (bit, _), _ in self.bits):
            return [(number, 2) for number in self.by_bits(axis, extent)]
        return [(self.numbers[axis], extent)] if extent > 1 else []


def are_apart(forms: Sequence[Form], size: int, extents: Sequence[int]) -> bool:
    """Whether no two blocks access a byte through any of these addresses, with ``size`` bytes each; no index is loaded."""
    return _are_apart(forms, size, extents, _BLOCK, _THREAD)


def are_values_apart(forms: Sequence[Form], size: int, extents: Sequence[int]) -> bool:
    """Whether no byte is accessed with two values of the index that is loaded, by whichever threads, as ``are_apart``."""
    return _are_apart(forms, size, extents, (_LOADED,), (*_THREAD, *_BLOCK))


def are_threads_apart(forms: Sequence[Form], size: int, extents: Sequence[int]) -> bool:
    """Whether no two threads of a block access a byte, as ``are_apart``, if they have loaded the same index."""
    shapes = {replace(form, constant=0) for form in forms}
    same = all(
        form.of_axis(axis, extents[axis]) == forms[0].of_axis(axis, extents[axis])
        for form in shapes
        for axis in (*_BLOCK, _LOADED)
    )
    return same and _are_apart(forms, size, extents, _THREAD, ())


def _are_apart(
    forms: Sequence[Form], size: int, extents: Sequence[int], axes: Iterable[int], others: Iterable[int]
) -> bool:
    """Whether no byte is accessed under two values of the indices of some axes, whatever those of others are."""
    most: dict[int, int] = {}
    places: set[int] = set()
    constants: dict[Form, set[int]] = defaultdict(set)
    for form in forms:
        constants[replace(form, constant=0)].add(form.constant)
    among = []
    for axis in axes:
        numbers = forms[0].of_axis(axis, extents[axis])
        if any(form.of_axis(axis, extents[axis]) != numbers for form in constants):
            return False
        among += [(abs(number), extent) for number, extent in numbers]
    for form, starts in constants.items():
        within = dict(form.steps)
        start = 0
        for number, extent in (item for axis in others for item in form.of_axis(axis, extents[axis])):
            if number:
                start += min(number, 0) * (extent - 1)
                within[abs(number)] = within.get(abs(number), 0) + extent - 1
        places.update(start + constant for constant in starts)
        for step, count in within.items():
            most[step] = max(most.get(step, 0), count)
    distances = sorted(bit - min(places) for bit in places)
    known = {number for number, _ in among if number} | {*most}
    # tries all accesses of a block as one range, their distances as one more step, or as several steps
    ways = [
        [(1, distances[-1])],
        [(gcd(*distances), distances[-1] // max(1, gcd(*distances)))],
        _steps_of(distances, known),
    ]
    return any(
        _are_ladder(among, [*most.items(), *(step for step in more if step[1])], size) for more in ways
    )


def _steps_of(distances: Sequence[int], known: Iterable[int]) -> list[tuple[int, int]]:
    """Steps with maximum counts whose sums cover all distances, preferably multiples of known numbers."""
    steps = []
    for number in sorted(known, reverse=True):
        counts = {distance // number for distance in distances}
        by = gcd(*counts)
        if by:
            steps.append((by * number, max(counts) // by))
        distances = [distance % number for distance in distances]
    rest = gcd(*distances)
    return [*steps, (rest, max(distances) // max(1, rest))]


def _are_ladder(blocks: Sequence[tuple[int, int]], steps: Sequence[tuple[int, int]], size: int) -> bool:
    """Whether ``size`` bytes at Σ number · index + Σ step · count are those of one index of each block; ``blocks`` are numbers with
    extents, ``steps`` with the greatest counts."""
    left = sorted(blocks)
    while left:
        number, extent = left[-1]
        around = size + sum(other * (times - 1) for other, times in left[:-1])
        around += sum(step * count for step, count in steps if step <= number)
        above = [step for step, _ in steps if step > number]
        if number < around or (above and gcd(*above) < around + number * (extent - 1)):
            return False
        steps = [item for item in steps if item[0] <= number]
        left.pop()
    return True
