"""Of which 64-bit integers the halves are constants, or needed: what ``halving`` writes.

Both follow from all instructions at once, without their order: a half is a constant if all that set it set the same one, and needed if
anything reads it that is not left out itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...flow.operands import reads, writes
from ...isa.effects import ATOMIC, LOAD, PURE, REDUCTION, STORE
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Register, Symbol, Variable, Vector
from ...simt.program import Program

__all__ = ["SHORT", "WORDS", "Halves", "Operation", "is_wide", "small_addresses"]

_WIDE = ("b64", "u64", "s64")
WORDS = ("u32", "s32", "b32")
SHORT = ("u16", "s16", "b16", "u8", "s8", "b8")
_MASK = (1 << 32) - 1
#: State spaces whose addresses have 32 bits.
_SMALL = ("const", "shared", "local")
_BITWISE = ("and", "or", "xor", "not")
#: Operations whose lower half depends on lower halves alone.
_SUMS = ("add", "sub", "neg", "mul.lo", "mad.lo")
#: Operations whose results are in halves if only the lower one is needed.
_PARTLY = ("sum", "product", "left", "widen")
_ORDERED = ("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
#: A half that no instruction has set yet, while constants are looked for.
_UNSET = -1

#: A register and which half of it: 0 the lower one.
_Half = tuple[Register, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction whose halves may be computed apart. ``kind``: ``bitwise``, ``select``, ``copy``, ``left`` or ``right`` (by
    ``amount`` bits), ``insert`` (from bit ``amount`` on), ``count``, ``sum``, ``product`` (of 32-bit numbers), ``widen``, ``narrow``,
    ``pack``, ``unpack``, ``compare``, ``symbol`` (an address) or ``access``; ``name``: its opcode without types; ``type``: that of the
    result, of a comparison or of what is widened; ``target``: the 64-bit register that it sets; ``sources``: its other operands."""

    kind: str
    name: str
    type: str
    target: Register | None
    sources: tuple[Operand, ...]
    amount: int = 0


def is_wide(operand: Operand | None) -> bool:
    return isinstance(operand, Register) and operand.type.name in _WIDE


def _operation(item: Instruction) -> Operation | None:
    if item.effect in (LOAD, STORE, ATOMIC, REDUCTION):
        return Operation("access", "", "", None, item.operands)
    root, *words = item.opcode.split(".")
    if item.effect is not PURE or item.effect.site or not words or len(item.operands) < 2:
        return None
    first, *rest = item.operands
    kind = words[-1]
    if isinstance(first, Register) and first.type.name in _WIDE:
        return _wide(root, words, first, tuple(rest))
    if root == "setp" and len(words) == 2 and kind in _WIDE and isinstance(first, Register):
        return Operation("compare", words[0], kind, None, tuple(rest))
    if root == "popc" and kind == "b64":
        return Operation("count", root, kind, None, tuple(rest))
    if root == "cvt" and len(words) == 2 and kind in _WIDE and words[0] in WORDS + SHORT and is_wide(rest[0]):
        return Operation("narrow", root, words[0], None, tuple(rest))
    if root == "mov" and kind in _WIDE and isinstance(first, Vector) and _is_pair(first) and is_wide(rest[0]):
        return Operation("unpack", root, kind, None, tuple(rest))
    return None


def _wide(root: str, words: list[str], target: Register, sources: tuple[Operand, ...]) -> Operation | None:
    """An operation with a 64-bit result."""
    kind, first = words[-1], sources[0]
    name = ".".join((root, *words[:-1]))
    if name == "cvt." + words[0] and words[0] in _WIDE and kind in WORDS + SHORT:
        return Operation("widen", root, kind, target, sources)
    if name == "mul.wide" and kind in WORDS:
        return Operation("product", root, kind, target, sources)
    if kind not in _WIDE:
        return None
    if name == "mov":
        if isinstance(first, Vector):
            return Operation("pack", root, kind, target, sources) if _is_pair(first) else None
        if is_wide(first) or (isinstance(first, Immediate) and first.kind == "int"):
            return Operation("copy", root, kind, target, sources)
        small = (
            isinstance(first, Symbol) and isinstance(first.target, Variable) and first.target.space in _SMALL
        )
        return Operation("symbol", root, kind, target, sources) if small else None
    if name in _BITWISE:
        return Operation("bitwise", name, kind, target, sources)
    if name == "bfi":
        places = [one.value & 255 for one in sources[2:] if isinstance(one, Immediate)]
        if len(places) < 2 or not places[1]:
            return None
        start, end = places[0], places[0] + places[1] - 1
        alone = start // 32 == end // 32 < 2
        return Operation("insert", name, kind, target, sources, start) if alone else None
    if name == "selp":
        return Operation("select", name, kind, target, sources)
    if name in ("shl", "shr") and isinstance(sources[1], Immediate):
        amount = min(sources[1].value % (1 << 32), 64)
        return Operation("left" if name == "shl" else "right", name, kind, target, sources[:1], amount)
    return Operation("sum", name, kind, target, sources) if name in _SUMS else None


def _is_pair(vector: Vector) -> bool:
    return len(vector.elements) == 2 and all(
        isinstance(one, Register) and one.type.bits == 32 for one in vector.elements
    )


@dataclass(eq=False)
class Halves:
    """Which registers are in halves (``split``), which halves are constants (``known``) and which are needed (``needed``)."""

    program: Program
    operations: dict[Instruction, Operation] = field(default_factory=dict, init=False)
    definitions: dict[Register, list[Instruction]] = field(default_factory=dict, init=False)
    users: dict[Register, list[Instruction]] = field(default_factory=dict, init=False)
    known: dict[_Half, int | None] = field(default_factory=dict, init=False)
    needed: set[_Half] = field(default_factory=set, init=False)
    split: set[Register] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        for item in self.program.kernel.instructions:
            operation = _operation(item)
            if operation is not None:
                self.operations[item] = operation
            for register in writes(item):
                self.definitions.setdefault(register, []).append(item)
            for register in reads(item):
                self.users.setdefault(register, []).append(item)
        self._find_known()
        self._find_needed()
        self._choose()

    def in_halves(self, item: Instruction) -> bool:
        """Whether an instruction sets its result in halves."""
        operation = self.operations.get(item)
        if operation is None or operation.target not in self.split or operation.kind == "symbol":
            return False
        return operation.kind not in ("sum", "product") or (operation.target, 1) not in self.needed

    # -- constants -----------------------------------------------------------------------------------------------------

    def _find_known(self) -> None:
        """Halves that have one value wherever they are set: assumed first, and given up where an instruction sets another one."""
        left = {register for register in self.definitions if is_wide(register)}
        while left:
            register = left.pop()
            for half in (0, 1):
                values = {self.value(item, register, half) for item in self.definitions[register]} - {_UNSET}
                value = None if len(values) > 1 else values.pop() if values else _UNSET
                before = self.known.get((register, half), _UNSET)
                if before is None or value == before:
                    continue
                self.known[register, half] = value if before == _UNSET else None
                for item in self.users.get(register, ()):
                    left.update(one for one in writes(item) if is_wide(one))
        self.known = {half: None if value == _UNSET else value for half, value in self.known.items()}

    def constant(self, operand: Operand, half: int) -> int | None:
        """The value of half of an operand; ``None`` if it is not known."""
        if isinstance(operand, Immediate):
            return operand.value >> 32 * half & _MASK if operand.kind == "int" else None
        if not isinstance(operand, Register) or not is_wide(operand) or operand not in self.definitions:
            return None
        return self.known.get((operand, half), _UNSET)

    def value(self, item: Instruction, register: Register, half: int) -> int | None:
        """The half that an instruction sets; ``None`` if it is not known, ``_UNSET`` as long as its operands are not."""
        operation = self.operations.get(item)
        if operation is None or operation.target is not register:
            zeros = item.effect is LOAD and item.opcode.rpartition(".")[2] in (
                "u8",
                "u16",
                "u32",
                "b8",
                "b16",
                "b32",
            )
            return 0 if half and zeros else None
        kind, sources = operation.kind, operation.sources
        if kind == "widen":
            return 0 if half and operation.type[0] != "s" else None
        if kind == "copy":
            return self.constant(sources[0], half)
        if kind == "bitwise":
            return _combined(operation.name, [self.constant(source, half) for source in sources])
        if kind == "select":
            one, other = (self.constant(source, half) for source in sources[:2])
            return one if one == other or other == _UNSET else other if one == _UNSET else None
        if kind in ("left", "right"):
            return self._shifted(operation, half)
        return None

    def _shifted(self, operation: Operation, half: int) -> int | None:
        low, high = (self.constant(operation.sources[0], at) for at in (0, 1))
        amount = operation.amount
        if _UNSET in (low, high):
            return _UNSET
        if operation.kind == "right" and operation.type == "s64" and (high is None or high >> 31):
            return None
        if operation.kind == "left":
            parts = [(low, amount - 32), (high, amount)] if half else [(low, amount)]
        else:
            parts = [(high, -amount)] if half else [(low, -amount), (high, 32 - amount)]
        value = 0
        for part, by in parts:
            if abs(by) < 32:
                if part is None:
                    return None
                value |= (part << by if by >= 0 else part >> -by) & _MASK
        return value

    # -- needs ---------------------------------------------------------------------------------------------------------

    def _find_needed(self) -> None:
        left: list[_Half] = []

        def need(operand: Operand, half: int) -> None:
            if isinstance(operand, Register) and is_wide(operand) and (operand, half) not in self.needed:
                self.needed.add((operand, half))
                left.append((operand, half))

        for item in self.program.kernel.instructions:
            operation = self.operations.get(item)
            if operation is None or operation.target is None:
                for register, half in self._read(item, operation):
                    need(register, half)
        while left:
            register, half = left.pop()
            for item in self.definitions.get(register, ()):
                operation = self.operations.get(item)
                if operation is not None and operation.target is register:
                    for source, at in self._sources(operation, half):
                        need(source, at)

    def _read(self, item: Instruction, operation: Operation | None) -> Iterator[_Half]:
        """The halves that an instruction reads that sets no register in halves."""
        addresses = small_addresses(item)
        half = None if operation is None else self.same_half(operation)
        for register in filter(is_wide, reads(item)):
            if half is not None:
                yield register, half
            elif (operation is not None and operation.kind == "narrow") or register in addresses:
                yield register, 0
            else:
                yield from ((register, 0), (register, 1))

    def same_half(self, operation: Operation) -> int | None:
        """The half that a comparison is one of, as the others are the same constants."""
        if operation.kind != "compare":
            return None
        one, other = operation.sources[:2]
        for half in (0, 1):
            values = self.constant(one, 1 - half), self.constant(other, 1 - half)
            mine = self.constant(one, half), self.constant(other, half)
            lower = half == values[0] == 0 and operation.name in _ORDERED
            alike = None not in values and values[0] == values[1] and None in mine
            if alike and (lower or operation.name in ("eq", "ne")):
                return half
        return None

    def _sources(self, operation: Operation, half: int) -> Iterator[tuple[Operand, int]]:
        """What half of a result depends on."""
        kind, sources, amount = operation.kind, operation.sources, operation.amount
        assert operation.target is not None
        if self.known[operation.target, half] is not None:
            return
        if kind == "bitwise":
            yield from ((source, half) for source in sources)
        elif kind in ("select", "copy"):
            yield from ((source, half) for source in sources[:2])
        elif kind == "insert":
            yield sources[1], half
            if half == amount // 32:
                yield sources[0], 0
        elif kind in ("left", "right"):
            near, far = (0, 1) if kind == "left" else (1, 0)
            if amount < 32:
                yield sources[0], half
            if half == far and amount:
                yield sources[0], near
            if operation.type == "s64" and kind == "right":
                yield sources[0], 1
        elif kind == "sum":
            for source in sources:
                yield from ((source, at) for at in range(half + 1))
        elif kind == "widen":
            yield sources[0], 0

    # -- choice --------------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Registers of bitwise operations, and results of sums and products whose upper half is not needed."""
        split = self.split
        alike: list[tuple[Register, ...]] = []
        for operation in self.operations.values():
            target = operation.target
            wide = tuple(
                one for one in (target, *operation.sources) if isinstance(one, Register) and is_wide(one)
            )
            if operation.kind in ("bitwise", "count", "insert", "right"):
                split.update(wide)
            elif operation.kind in ("select", "copy"):
                alike.append(wide)
            elif target is not None and operation.kind in _PARTLY and (target, 1) not in self.needed:
                split.add(target)
        before = -1
        while len(split) > before:
            before = len(split)
            for wide in alike:
                if not split.isdisjoint(wide):
                    split.update(wide)


def _combined(name: str, values: list[int | None]) -> int | None:
    """A bitwise operation on constants."""
    if (name == "and" and 0 in values) or (name == "or" and _MASK in values):
        return 0 if name == "and" else _MASK
    if None in values or _UNSET in values:
        return None if None in values else _UNSET
    first, second = (value or 0 for value in (*values, 0)[:2])
    return {"and": first & second, "or": first | second, "xor": first ^ second, "not": ~first & _MASK}[name]


def small_addresses(item: Instruction) -> set[Register]:
    """64-bit registers that an access only uses as an address of 32 bits."""
    if (item.form.space or "").partition("::")[0] not in _SMALL or item.effect not in (
        LOAD,
        STORE,
        ATOMIC,
        REDUCTION,
    ):
        return set()
    bases = [one.base for one in item.operands if isinstance(one, Address) and isinstance(one.base, Register)]
    return {base for base in bases if is_wide(base) and sum(one is base for one in reads(item)) == 1}
