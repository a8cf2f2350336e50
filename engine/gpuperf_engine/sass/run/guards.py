"""Which guards hold for the same threads.

``ptxas`` computes a predicate anew, or keeps it in a register meanwhile, when there are more than it has predicates for:
``P2R R76, PR, RZ, 0x2`` keeps P1, and ``ISETP.NE.AND P1, PT, R76, RZ, PT`` is the same predicate again. A bit of a register is another
place: ``LOP3.LUT R4, R4, 0xffffffef, RZ, 0xc0, !PT`` clears it, ``@P1 LOP3.LUT R4, R4, 0x10, RZ, 0xfc, !PT`` sets it, and
``LOP3.LUT P5, RZ, R4, 0x10, RZ, 0xc0, !PT`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..listing import Decoded
from ..registers import PREDICATES, UNIFORM_PREDICATES, accesses_of
from .bits import ALL
from .operands import Immediate, Predicate, Register, read_operand
from .paths import Node

__all__ = ["PURE", "SELECTIONS", "Guards", "opposite"]

#: Instructions whose results in a thread follow from what this thread reads alone.
PURE = frozenset([
    "IADD3", "IMAD", "ISETP", "LEA", "LOP3", "MOV", "PLOP3", "PRMT", "SEL", "SHF", "UIADD3", "UIMAD", "UISETP", "ULEA", "ULOP3",
    "UMOV", "UPLOP3", "UPRMT", "USEL", "USHF",
])  # fmt: skip
#: Instructions whose result is one of two operands, by the predicate behind them.
SELECTIONS = frozenset(["SEL", "USEL"])
_NAME = re.compile(r"\bU?[RP]\d+|\.reuse")


def opposite(literal: int) -> int:
    """The literal that holds where ``literal`` does not."""
    return literal ^ 1


class Guards:
    """``of[node]``: for each instruction of a node, by its index, a number that stands for its guard, 0 if there is none, and one for
    the predicate by which it selects an operand. On ways without ``returns`` guards with the same number hold for the same threads,
    even if predicates and registers change in between; ``opposite`` ones for the others. ``order``: by the index of a node, its place
    in an order in which the node before is earlier, unless it ``returns`` to the start of a loop."""

    def __init__(self, items: Sequence[Decoded], nodes: Sequence[Node]) -> None:
        self.order = {node.index: place for place, node in enumerate(_ordered(nodes))}
        by_index = {node.index: node for node in nodes}
        leading: dict[int, list[int]] = {index: [] for index in self.order}
        for node in nodes:
            for onward in node.ways:
                leading[onward.index].append(node.index)
        self.of: dict[int, list[tuple[int, int]]] = {}
        values, behind = _Values(), dict[int, _Held]()
        for index in self.order:
            before = leading[index]
            known = before and not any(self.returns(one, index) for one in before)
            values.held = values.met([behind[one] for one in before], index) if known else _Held(index, {})
            block = by_index[index].block
            self.of[index] = [values.guards_of(items[at]) for at in range(block.start, block.end)]
            behind[index] = values.held

    def returns(self, start: int, end: int) -> bool:
        """Whether the way between two nodes leads back to one that may have been executed before."""
        return self.order[end] <= self.order[start]


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in reverse postorder."""
    found: list[Node] = []
    seen: set[int] = set()
    for start in nodes:
        if start.index in seen:
            continue
        seen.add(start.index)
        going = [(start, iter(start.ways))]
        own: list[Node] = []
        while going:
            onward = next((one for one in going[-1][1] if one.index not in seen), None)
            if onward is None:
                own.append(going.pop()[0])
            else:
                seen.add(onward.index)
                going.append((onward, iter(onward.ways)))
        found = found + own[::-1]
    return found


class _Held:
    """The values of registers and predicates somewhere: ``now`` those that were written since the start of the node ``since``."""

    def __init__(self, since: int, now: dict[int, int]) -> None:
        self.since = since
        self.now = now


class _Values:
    """The values of registers and predicates as numbers: what has the same number is equal."""

    def __init__(self) -> None:
        self.held = _Held(0, {})
        self.known: dict[object, int] = {}
        #: By the value of a register that is not 0 where a predicate holds, the value of this predicate.
        self.kept: dict[int, int] = {}
        #: By the value of a register, the literals that its known bits hold; 0 for bits that are clear.
        self.bits: dict[int, dict[int, int]] = {}
        #: Values of predicates that hold where the predicate with the other value does not.
        self.denied: dict[int, int] = {}

    def guards_of(self, item: Decoded) -> tuple[int, int]:
        """The guard of the next instruction and the predicate by which it selects, after which values are those behind it."""
        guard = self.literal(item.predicate.lstrip("@"))
        selects = self.literal(item.operands[-1]) if item.base in SELECTIONS else 0
        self.after(item, guard)
        return guard, selects

    def literal(self, text: str) -> int:
        """What stands for a predicate; 0 for none, and for one that always holds."""
        predicate = read_operand(text) if text else None
        if not isinstance(predicate, Predicate) or predicate.number < 0:
            return 0
        value = self.of(_number(predicate))
        return 2 * self.denied.get(value, value) + (predicate.inverted ^ (value in self.denied))

    def of(self, number: int) -> int:
        """The value of a register or predicate."""
        return self.in_(self.held, number)

    def in_(self, held: _Held, number: int) -> int:
        value = held.now.get(number)
        return self.numbered((held.since, number)) if value is None else value

    def met(self, before: Sequence[_Held], index: int) -> _Held:
        """The values at the start of a node behind several others."""
        since = before[0].since if len({held.since for held in before}) == 1 else index
        now: dict[int, int] = {}
        for number in {number for held in before for number in held.now}:
            first, *others = (self.in_(held, number) for held in before)
            equal = all(other == first for other in others)
            now[number] = first if equal else self.numbered((index, number, "met"))
        return _Held(since, now)

    def numbered(self, key: object) -> int:
        return self.known.setdefault(key, len(self.known) + 1)

    def after(self, item: Decoded, guard: int) -> None:
        accesses = accesses_of(item)
        if not accesses.writes:
            return
        read = tuple(map(read_operand, item.operands))
        restored = 0 if guard else self.kept.get(self.tested(item), 0) or self.predicate(self.bit(item))
        if restored and isinstance(read[0], Predicate) and len(accesses.writes) == 1:
            self.held.now[accesses.writes[0]] = restored
            return
        key: object = object()
        if item.base in PURE:
            shapes = tuple(_NAME.sub("", text) for text in item.operands)
            before = tuple(map(self.of, accesses.writes)) if guard else ()
            key = item.opcode, shapes, guard, before, tuple(map(self.of, accesses.reads))
        saved = self.saved(item) if not guard else 0
        bits = self.changed(item, guard)
        for place, number in enumerate(accesses.writes):
            self.held.now[number] = self.numbered((key, place))
        if saved:
            self.kept[self.of(accesses.writes[0])] = saved
        if bits:
            self.bits[self.of(accesses.writes[0])] = bits

    def predicate(self, literal: int) -> int:
        """The value of a predicate that holds where a literal does; 0 for none."""
        if not literal & 1:
            return literal >> 1
        value = self.numbered(("not", literal >> 1))
        self.denied[value] = literal >> 1
        return value

    def changed(self, item: Decoded, guard: int) -> dict[int, int]:
        """What is known about the bits of a register after some of them are cleared, or one is set where the guard holds."""
        target, source, mask, *rest = (*item.operands, "", "", "")[:5]
        register, bits = read_operand(source), _mask(mask)
        if (
            item.opcode != "LOP3.LUT"
            or rest[:1] != ["RZ"]
            or bits is None
            or not isinstance(register, Register)
        ):
            return {}
        if register.is_zero or register.uniform:
            return {}
        known = self.bits.get(self.of(register.number), {})
        if item.operands[4] == "0xc0" and not guard:
            return {bit: known.get(bit, 0) if bits & bit else 0 for bit in {*known, *_single(~bits)}}
        sets = item.operands[4] == "0xfc" and guard and target == source.removesuffix(".reuse")
        return known | {bits: guard} if sets and known.get(bits) == 0 else {}

    def bit(self, item: Decoded) -> int:
        """The literal of the bit that ``LOP3.LUT P5, RZ, R4, 0x10, RZ, 0xc0, !PT`` reads; 0 if it is not known."""
        if item.opcode != "LOP3.LUT" or len(item.operands) != 7 or item.operands[4:] != ("RZ", "0xc0", "!PT"):
            return 0
        register, bits = read_operand(item.operands[2]), _mask(item.operands[3])
        if not isinstance(register, Register) or register.is_zero or bits is None:
            return 0
        return self.bits.get(self.of(register.number), {}).get(bits, 0)

    def tested(self, item: Decoded) -> int:
        """The value of the register of which ``ISETP.NE.AND P1, PT, R76, RZ, PT`` finds out whether it is 0; else 0."""
        if item.opcode not in ("ISETP.NE.AND", "ISETP.NE.U32.AND") or item.operands[3:] != ("RZ", "PT"):
            return 0
        tested = read_operand(item.operands[2])
        plain = isinstance(tested, Register) and not tested.is_zero and item.operands[1] == "PT"
        return self.of(tested.number) if isinstance(tested, Register) and plain else 0

    def saved(self, item: Decoded) -> int:
        """The value of the one predicate that ``P2R R76, PR, RZ, 0x2`` saves; else 0."""
        if item.opcode != "P2R" or item.operands[1:3] != ("PR", "RZ"):
            return 0
        mask = read_operand(item.operands[3])
        if not isinstance(mask, Immediate) or not mask.value or mask.value & mask.value - 1:
            return 0
        return self.of(PREDICATES + mask.value.bit_length() - 1)


def _number(predicate: Predicate) -> int:
    return predicate.number + (UNIFORM_PREDICATES if predicate.uniform else PREDICATES)


def _mask(text: str) -> int | None:
    """The 32 bits of a constant; ``None`` for other operands."""
    read = read_operand(text) if text else None
    return read.value & ALL if isinstance(read, Immediate) and read.value is not None else None


def _single(mask: int) -> list[int]:
    """The bits of a mask."""
    return [1 << place for place in range(32) if mask >> place & 1]
