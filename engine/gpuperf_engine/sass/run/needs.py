"""The registers that are needed at a place of a program, under which guards, and which of their bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .bits import ALL
from .guards import opposite

__all__ = ["ALWAYS", "Needs", "Where", "both"]

#: Literals of guards (``Guards``) that all hold.
Where = frozenset[int]
ALWAYS: Where = frozenset()
#: The most literals that are kept together, and the most sets of literals. What is needed under more is needed under fewer, too.
_MOST_LITERALS, _MOST_SETS = 2, 512


class Needs:
    """Registers as bits by number: ``under`` which guards they are needed; ``parts``: the needed bits of registers that are not needed
    whole. Instructions are taken from the last to the first."""

    def __init__(self) -> None:
        self.under: dict[Where, int] = {}
        self.parts: dict[int, int] = {}
        self._every: int | None = 0

    def join(self, start: Needs, apart: bool) -> None:
        """Adds what is needed at the start of a block that follows. ``apart``: whether guards hold for the same threads there."""
        whole = ~sum(1 << number for number in start.parts)
        for where, bits in start.under.items():
            here = where if apart else ALWAYS
            self.read(here, bits & whole)
            for number, part in start.parts.items():
                if bits >> number & 1:
                    self.read(here, 1 << number, {number: part})

    def settle(self) -> None:
        """Leaves out what says nothing more."""
        always = self.under.get(ALWAYS, 0)
        if len(self.under) > _MOST_SETS:
            always = self.every()
        rest = {where: held for where, bits in self.under.items() if where and (held := bits & ~always)}
        self.under = rest | ({ALWAYS: always} if always else {})
        self._every = None
        every = self.every()
        self.parts = {number: part for number, part in self.parts.items() if every >> number & 1}

    def same(self, other: Needs) -> bool:
        """Whether both are equal."""
        return (self.under, self.parts) == (other.under, other.parts)

    def bits_of(self, number: int) -> int:
        """The needed bits of a register."""
        return self.parts.get(number, ALL) if self.every() >> number & 1 else 0

    def every(self) -> int:
        """All registers that may be needed."""
        if self._every is None:
            self._every = 0
            for bits in self.under.values():
                self._every |= bits
        return self._every

    def wanted(self, guard: int, bits: int) -> list[Where]:
        """Under which guards an instruction decides that writes these registers where ``guard`` holds."""
        return list(
            dict.fromkeys(
                both(where, guard)
                for where, held in self.under.items()
                if held & bits and not (guard and opposite(guard) in where)
            )
        )

    def written(self, guard: int, bits: int) -> None:
        """An instruction writes these registers where its guard holds: before it they are needed elsewhere."""
        for where, held in [(where, held) for where, held in self.under.items() if held & bits]:
            elsewhere = opposite(guard) in where if guard else False
            if elsewhere or (guard and guard not in where and len(where) == _MOST_LITERALS):
                continue
            self._set(where, held & ~bits)
            if guard and guard not in where:
                other = where | {opposite(guard)}
                self._set(other, self.under.get(other, 0) | held & bits)
            self._every = None

    def _set(self, where: Where, bits: int) -> None:
        if bits:
            self.under[where] = bits
        else:
            self.under.pop(where, None)

    def read(self, where: Where, bits: int, parts: Mapping[int, int] | None = None) -> None:
        """These registers are needed, of some only the bits ``parts``."""
        for number in [number for number in self.parts if bits >> number & 1]:
            if parts is None or number not in parts:
                del self.parts[number]
        for number, part in (parts or {}).items():
            held = self.bits_of(number) | part
            bits &= ~((not part) << number)
            self.parts.pop(number, None)
            if held != ALL:
                self.parts[number] = held
        self._set(where, self.under.get(where, 0) | bits)
        if self._every is not None:
            self._every |= bits


def both(where: Iterable[int], guard: int) -> Where:
    """Where a guard holds as well; with fewer others if these are too many."""
    if not guard:
        return frozenset(where)
    others = sorted(literal for literal in where if literal != guard)
    return frozenset([guard, *others[: _MOST_LITERALS - 1]])
