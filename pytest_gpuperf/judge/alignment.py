"""Alignment of the lines of a kernel before and after an edit, by their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeVar

from .lines import Group, Line

__all__ = ["Change", "differences"]

T = TypeVar("T")

_PAIRS = 40_000
"""Most pairs of a gap that is aligned by resemblance; larger gaps are aligned by order."""

_POPULAR = 4_000
"""Number of lines from which a frequent text is not used as an anchor: comparing all with all would take seconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one line of PTX costs more (or less) than before. ``old`` or ``new`` is ``None`` for a line that is only there now, or was
    only there before; ``where`` names the line of the source, ``group`` and ``order`` where it stands in it."""

    where: str
    group: int
    order: int
    new: Line | None
    old: Line | None

    def delta(self, name: str) -> int:
        """The difference of one count."""
        now = self.new.counts.get(name, 0) if self.new is not None else 0
        return now - (self.old.counts.get(name, 0) if self.old is not None else 0)


def differences(old: Sequence[Group], new: Sequence[Group]) -> list[Change]:
    """One change for each line of ``new``, in its order, and for each of ``old`` that is gone."""
    before, after = _joined(old), _joined(new)
    changes: list[Change] = []
    for number, (was, now) in enumerate(_pairs_of_groups(before, after)):
        pairs = _pairs_of_lines(was.lines if was else [], now.lines if now else [])
        where = now.where if now else was.where if was else ""
        changes += [Change(where, number, order, line, past) for order, (past, line) in enumerate(pairs)]
    return changes


def _joined(groups: Sequence[Group]) -> list[Group]:
    """The groups, all basic blocks of a function in one: an edit may split a block or join two."""
    joined: list[Group] = []
    plain: dict[str, Group] = {}
    for group in groups:
        if not group.plain:
            joined.append(group)
        elif group.where in plain:
            plain[group.where].lines.extend(group.lines)
        else:
            plain[group.where] = Group(group.where, [*group.lines])
            joined.append(plain[group.where])
    return joined


def _pairs_of_groups(old: list[Group], new: list[Group]) -> list[tuple[Group | None, Group | None]]:
    """Pair groups, the surest first: same text and same instructions, then same text, then similar ones between these, then moved
    text."""
    partner: dict[int, int] = {}

    def anchor(key: Callable[[Group], Hashable | None]) -> None:
        for low, high, first, last in [*_gaps(partner, len(old), len(new))]:
            left, right = [key(group) for group in old[low:high]], [key(group) for group in new[first:last]]
            for a, b, size in _blocks(left, right):
                partner.update((low + a + i, first + b + i) for i in range(size) if left[a + i] is not None)

    anchor(lambda group: (group.where, "".join(line.token for line in group.lines)))
    anchor(lambda group: group.where if group.named or group.plain else None)
    anchor(lambda group: group.text if group.named else None)
    for low, high, first, last in [*_gaps(partner, len(old), len(new))]:
        for a, b in _alike(old[low:high], new[first:last], _resemblance):
            partner[low + a] = first + b
    taken = set(partner.values())
    moved: dict[str, list[int]] = {}
    for index, group in enumerate(new):
        if index not in taken and group.named:
            moved.setdefault(group.where, []).append(index)
    for index, group in enumerate(old):
        if index not in partner and moved.get(group.where):
            partner[index] = moved[group.where].pop(0)
    source = {there: here for here, there in partner.items()}
    pairs: list[tuple[Group | None, Group | None]] = [
        (old[source[index]] if index in source else None, group) for index, group in enumerate(new)
    ]
    return pairs + [(group, None) for index, group in enumerate(old) if index not in partner]


def _pairs_of_lines(old: Sequence[Line], new: Sequence[Line]) -> list[tuple[Line | None, Line | None]]:
    """The lines of one group: same instruction first, in order; then same opcode in between; then the same one that moved."""
    partner: dict[int, int] = {}
    for length in (2, 1):
        for low, high, first, last in [*_gaps(partner, len(old), len(new))]:
            left = [line.token[:length] for line in old[low:high]]
            right = [line.token[:length] for line in new[first:last]]
            for a, b, size in _blocks(left, right):
                partner.update((low + a + i, first + b + i) for i in range(size))
    taken = set(partner.values())
    moved: dict[str, list[int]] = {}
    for index, line in enumerate(new):
        if index not in taken:
            moved.setdefault(line.token, []).append(index)
    for index, line in enumerate(old):
        if index not in partner and moved.get(line.token):
            partner[index] = moved[line.token].pop(0)
    source = {there: here for here, there in partner.items()}
    pairs: list[tuple[Line | None, Line | None]] = [
        (old[source[index]] if index in source else None, line) for index, line in enumerate(new)
    ]
    return pairs + [(line, None) for index, line in enumerate(old) if index not in partner]


def _gaps(partner: dict[int, int], old: int, new: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges between paired items in which both sides have unpaired ones."""
    low = first = 0
    for here, there in [*sorted(partner.items()), (old, new)]:
        if here > low and there > first:
            yield low, here, first, there
        low, first = here + 1, there + 1


def _blocks(left: Sequence[object], right: Sequence[object]) -> list[tuple[int, int, int]]:
    """Return matching ranges in the same order: common ends directly, the middle by ``difflib``."""
    size = min(len(left), len(right))
    head = next((i for i in range(size) if left[i] != right[i]), size)
    tail = next((i for i in range(size - head) if left[-1 - i] != right[-1 - i]), size - head)
    inner = left[head : len(left) - tail], right[head : len(right) - tail]
    blocks = [(0, 0, head)]
    if all(inner):
        matcher = SequenceMatcher(None, *inner, autojunk=len(inner[1]) > _POPULAR)
        blocks += [(head + a, head + b, length) for a, b, length in matcher.get_matching_blocks()]
    return [*blocks, (len(left) - tail, len(right) - tail, tail)]


def _alike(old: Sequence[T], new: Sequence[T], resemblance: Callable[[T, T], float]) -> list[tuple[int, int]]:
    """Return pairs in order with the largest sum of resemblances (Needleman and Wunsch, without a gap penalty)."""
    if len(old) * len(new) > _PAIRS:
        return [(i, i) for i in range(min(len(old), len(new)))]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            paired = resemblance(old[i], new[j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired + best[i + 1][j + 1] if paired else 0.0)
    pairs, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs


def _resemblance(old: Group, new: Group) -> float:
    """0 for lines of different files; else more than 0, by the share of instructions that both have."""
    if old.where.partition(":")[0] != new.where.partition(":")[0] or old.plain != new.plain:
        return 0.0
    left, right = (Counter(line.token[0] for line in group.lines) for group in (old, new))
    common = (left & right).total()
    return 0.1 + 2 * common / (left.total() + right.total())
