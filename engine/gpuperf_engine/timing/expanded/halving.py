"""64-bit integers as the two 32-bit registers that an assembler gives them, as PTX: halves that are constants, or that nothing needs,
are not computed.

Bitwise operations, shifts by constants to the right, selections and counts of bits become such of halves. Sums and products of which
only the lower half is needed become those of 32 bits, as for addresses in constant, shared and local memory, which have 32 bits. What
is left is computed in 64 bits, of halves that are put together: ``mov.b64`` of two registers costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...flow.operands import reads, writes
from ...isa.effects import ATOMIC, LOAD, PURE, REDUCTION, STORE
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Register, Symbol, Variable, Vector
from ...simt.program import Program
from .rewriting import Rewriter, Rewritten

__all__ = ["halved"]

_WIDE = ("b64", "u64", "s64")
_WORDS = ("u32", "s32", "b32")
_SHORT = ("u16", "s16", "b16", "u8", "s8", "b8")
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


def halved(program: Program) -> Rewritten | None:
    """The kernel with 64-bit integers in halves where that saves instructions; ``None`` if there are none of them."""
    halves = _Halves(program)
    if not halves.split and not any(map(halves.same_half, halves.operations.values())):
        return None
    return _Writer(program.kernel, halves).written()


@dataclass(frozen=True, slots=True)
class _Operation:
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


def _is_wide(operand: Operand | None) -> bool:
    return isinstance(operand, Register) and operand.type.name in _WIDE


def _operation(item: Instruction) -> _Operation | None:
    if item.effect in (LOAD, STORE, ATOMIC, REDUCTION):
        return _Operation("access", "", "", None, item.operands)
    root, *words = item.opcode.split(".")
    if item.effect is not PURE or item.effect.site or not words or len(item.operands) < 2:
        return None
    first, *rest = item.operands
    kind = words[-1]
    if isinstance(first, Register) and first.type.name in _WIDE:
        return _wide(root, words, first, tuple(rest))
    if root == "setp" and len(words) == 2 and kind in _WIDE and isinstance(first, Register):
        return _Operation("compare", words[0], kind, None, tuple(rest))
    if root == "popc" and kind == "b64":
        return _Operation("count", root, kind, None, tuple(rest))
    if (
        root == "cvt"
        and len(words) == 2
        and kind in _WIDE
        and words[0] in _WORDS + _SHORT
        and _is_wide(rest[0])
    ):
        return _Operation("narrow", root, words[0], None, tuple(rest))
    if (
        root == "mov"
        and kind in _WIDE
        and isinstance(first, Vector)
        and _is_pair(first)
        and _is_wide(rest[0])
    ):
        return _Operation("unpack", root, kind, None, tuple(rest))
    return None


def _wide(root: str, words: list[str], target: Register, sources: tuple[Operand, ...]) -> _Operation | None:
    """An operation with a 64-bit result."""
    kind, first = words[-1], sources[0]
    name = ".".join((root, *words[:-1]))
    if name == "cvt." + words[0] and words[0] in _WIDE and kind in _WORDS + _SHORT:
        return _Operation("widen", root, kind, target, sources)
    if name == "mul.wide" and kind in _WORDS:
        return _Operation("product", root, kind, target, sources)
    if kind not in _WIDE:
        return None
    if name == "mov":
        if isinstance(first, Vector):
            return _Operation("pack", root, kind, target, sources) if _is_pair(first) else None
        if _is_wide(first) or (isinstance(first, Immediate) and first.kind == "int"):
            return _Operation("copy", root, kind, target, sources)
        small = (
            isinstance(first, Symbol) and isinstance(first.target, Variable) and first.target.space in _SMALL
        )
        return _Operation("symbol", root, kind, target, sources) if small else None
    if name in _BITWISE:
        return _Operation("bitwise", name, kind, target, sources)
    if name == "bfi":
        places = [one.value & 255 for one in sources[2:] if isinstance(one, Immediate)]
        if len(places) < 2 or not places[1]:
            return None
        start, end = places[0], places[0] + places[1] - 1
        alone = start // 32 == end // 32 < 2
        return _Operation("insert", name, kind, target, sources, start) if alone else None
    if name == "selp":
        return _Operation("select", name, kind, target, sources)
    if name in ("shl", "shr") and isinstance(sources[1], Immediate):
        amount = min(sources[1].value % (1 << 32), 64)
        return _Operation("left" if name == "shl" else "right", name, kind, target, sources[:1], amount)
    return _Operation("sum", name, kind, target, sources) if name in _SUMS else None


def _is_pair(vector: Vector) -> bool:
    return len(vector.elements) == 2 and all(
        isinstance(one, Register) and one.type.bits == 32 for one in vector.elements
    )


@dataclass(eq=False)
class _Halves:
    """Which registers are in halves (``split``), which halves are constants (``known``) and which are needed (``needed``)."""

    program: Program
    operations: dict[Instruction, _Operation] = field(default_factory=dict, init=False)
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
        left = {register for register in self.definitions if _is_wide(register)}
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
                    left.update(one for one in writes(item) if _is_wide(one))
        self.known = {half: None if value == _UNSET else value for half, value in self.known.items()}

    def constant(self, operand: Operand, half: int) -> int | None:
        """The value of half of an operand; ``None`` if it is not known."""
        if isinstance(operand, Immediate):
            return operand.value >> 32 * half & _MASK if operand.kind == "int" else None
        if not isinstance(operand, Register) or not _is_wide(operand) or operand not in self.definitions:
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

    def _shifted(self, operation: _Operation, half: int) -> int | None:
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
            if isinstance(operand, Register) and _is_wide(operand) and (operand, half) not in self.needed:
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

    def _read(self, item: Instruction, operation: _Operation | None) -> Iterator[_Half]:
        """The halves that an instruction reads that sets no register in halves."""
        addresses = small_addresses(item)
        half = None if operation is None else self.same_half(operation)
        for register in filter(_is_wide, reads(item)):
            if half is not None:
                yield register, half
            elif (operation is not None and operation.kind == "narrow") or register in addresses:
                yield register, 0
            else:
                yield from ((register, 0), (register, 1))

    def same_half(self, operation: _Operation) -> int | None:
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

    def _sources(self, operation: _Operation, half: int) -> Iterator[tuple[Operand, int]]:
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
                one for one in (target, *operation.sources) if isinstance(one, Register) and _is_wide(one)
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
    return {base for base in bases if _is_wide(base) and sum(one is base for one in reads(item)) == 1}


class _Writer(Rewriter):
    def __init__(self, kernel: Function, halves: _Halves) -> None:
        super().__init__(kernel)
        self.halves = halves
        self.own = list(self.names.registers)
        self.parts: dict[_Half, str] = {}

    def body(self) -> None:
        for item in self.kernel.instructions:
            self.labels(item.index)
            self.lines += [f'\t.pragma "{text}";' for text in item.pragmas]
            operation = self.halves.operations.get(item)
            if operation is None or not self.apart(item, operation):
                self.whole(item)
        self.labels(len(self.kernel.instructions))

    # -- operands ------------------------------------------------------------------------------------------------------

    def part(self, register: Register, half: int) -> str:
        """The register that half of a register is in."""
        known = self.parts.get((register, half))
        if known is None:
            known = self.parts[register, half] = self.new("b32", self.own[register.index])
        return known

    def new(self, kind: str, like: str) -> str:
        name = self.names.fresh(like)
        self.declared.append(f"\t.reg .{kind} {name};")
        return name

    def held(self, text: str, item: Instruction) -> str:
        """A register with a 32-bit value."""
        if not _is_number(text):
            return text
        name = self.new("b32", "%half")
        self.line(f"mov.b32 {name}, {text};", item)
        return name

    def half(self, operand: Operand, half: int, item: Instruction) -> str:
        """Half of an operand: a number or the name of a register. A 32-bit operand is a lower half."""
        value = self.halves.constant(operand, half)
        if value is not None:
            return _signed(value)
        if not isinstance(operand, Register) or not _is_wide(operand):
            return spell.operand(operand, self.names)
        if operand in self.halves.split:
            return self.part(operand, half)
        return self.computed(operand, item) if half == 0 else self.unpacked(operand, item)[1]

    def computed(self, register: Register, item: Instruction) -> str:
        """The lower half of a register that is not in halves. A product or an address is computed a second time."""
        name, whole = self.new("b32", self.own[register.index]), self.own[register.index]
        made = self.halves.definitions.get(register, [])
        operation = self.halves.operations.get(made[0]) if len(made) == 1 and made[0].guard is None else None
        sources = () if operation is None else operation.sources
        once = all(
            not isinstance(one, Register) or len(self.halves.definitions.get(one, ())) == 1 for one in sources
        )
        if operation is not None and once and operation.kind in ("product", "symbol"):
            opcode = "mul.lo.s32" if operation.kind == "product" else "mov.u32"
            given = ", ".join(spell.operand(one, self.names) for one in sources)
            self.line(f"{opcode} {name}, {given};", item)
        else:
            self.line(f"cvt.u32.u64 {name}, {whole};", item)
        return name

    def unpacked(self, register: Register, item: Instruction) -> tuple[str, str]:
        low, high = (self.new("b32", self.own[register.index]) for _ in range(2))
        self.line(f"mov.b64 {{{low}, {high}}}, {self.own[register.index]};", item)
        return low, high

    # -- instructions --------------------------------------------------------------------------------------------------

    def put(self, text: str, item: Instruction) -> None:
        """Adds an instruction that is executed where the given one is."""
        guard = ""
        if item.guard is not None:
            guard = f"@{'!' if item.guard.negated else ''}{self.names.register(item.guard.register)} "
        self.line(f"{guard}{text};", item)

    def whole(self, item: Instruction) -> None:
        """An instruction as it is, with the halves of what it reads put together, and those of what it sets taken apart."""
        halves, names = self.halves, self.names.registers
        addresses = small_addresses(item)
        for register in dict.fromkeys(filter(halves.split.__contains__, reads(item))):
            if register in addresses:
                names[register.index] = self.held(self.half(register, 0, item), item)
            elif any(map(halves.in_halves, halves.definitions.get(register, ()))):
                if register not in writes(item):
                    names[register.index] = self.new(register.type.name, self.own[register.index])
                self.join(register, names[register.index], item)
        self.line(spell.instruction(item, self.names), item)
        names[:] = self.own
        for result in filter(halves.split.__contains__, writes(item)):
            whole = self.own[result.index]
            needed = [half for half in (0, 1) if self.is_set(result, half)]
            if needed == [0]:
                self.put(f"cvt.u32.u64 {self.part(result, 0)}, {whole}", item)
            elif needed:
                self.put(f"mov.b64 {{{self.part(result, 0)}, {self.part(result, 1)}}}, {whole}", item)

    def is_set(self, register: Register, half: int) -> bool:
        """Whether half of a register is in a register."""
        return (register, half) in self.halves.needed and self.halves.constant(register, half) is None

    def join(self, register: Register, name: str, item: Instruction) -> None:
        low, high = (self.half(register, half, item) for half in (0, 1))
        if _is_number(low) and _is_number(high):
            self.line(f"mov.b64 {name}, {(int(high) << 32) + int(low) % (1 << 32)};", item)
        elif high == "0":
            self.line(f"cvt.u64.u32 {name}, {low};", item)
        else:
            self.line(f"mov.b64 {name}, {{{self.held(low, item)}, {self.held(high, item)}}};", item)

    def apart(self, item: Instruction, operation: _Operation) -> bool:
        """Writes an instruction on halves; returns whether it did."""
        halves, kind, sources = self.halves, operation.kind, operation.sources
        if operation.target is None:
            half = halves.same_half(operation)
            if kind == "compare" and half is not None:
                one, other = (self.half(source, half, item) for source in sources)
                target = spell.operand(item.operands[0], self.names)
                self.put(f"setp.{operation.name}.u32 {target}, {one}, {other}", item)
                return True
            if halves.split.isdisjoint(one for one in sources if isinstance(one, Register)):
                return False
            return self.taken(item, operation)
        if not halves.in_halves(item):
            return False
        # A shift to the left reads the lower half for the upper one, others the other way round.
        for half in (1, 0) if kind == "left" else (0, 1):
            if self.is_set(operation.target, half):
                self.put(self.of_half(item, operation, half).format(self.part(operation.target, half)), item)
        return True

    def taken(self, item: Instruction, operation: _Operation) -> bool:
        """Results of fewer bits."""
        source = operation.sources[0]
        if operation.kind == "unpack":
            assert isinstance(item.operands[0], Vector)
            parts = [self.half(source, half, item) for half in (0, 1)]
            for element, part in zip(item.operands[0].elements, parts):
                self.put(f"mov.b32 {spell.operand(element, self.names)}, {part}", item)
            return True
        target = spell.operand(item.operands[0], self.names)
        if operation.kind == "narrow":
            low = self.half(source, 0, item)
            opcode = "mov.b32" if operation.type in _WORDS else f"cvt.{operation.type}.u32"
            self.put(f"{opcode} {target}, {low}", item)
            return True
        if operation.kind != "count":
            return False
        parts = [self.half(source, half, item) for half in (0, 1)]
        counts = [part for part in parts if not _is_number(part)]
        number = sum((int(part) % (1 << 32)).bit_count() for part in parts if _is_number(part))
        if len(counts) == 2:
            names = [self.new("b32", "%half") for _ in counts]
            for name, part in zip(names, counts):
                self.line(f"popc.b32 {name}, {part};", item)
            self.put(f"add.s32 {target}, {names[0]}, {names[1]}", item)
        elif counts:
            name = self.new("b32", "%half") if number else target
            self.put(f"popc.b32 {name}, {counts[0]}", item)
            if number:
                self.put(f"add.s32 {target}, {name}, {number}", item)
        else:
            self.put(f"mov.b32 {target}, {number}", item)
        return True

    def of_half(self, item: Instruction, operation: _Operation, half: int) -> str:
        """The instruction that sets half of a result, with braces for its target."""
        kind, name, sources = operation.kind, operation.name, operation.sources
        assert operation.target is not None
        value = self.halves.value(item, operation.target, half)
        if value is not None:
            return f"mov.b32 {{}}, {_signed(value)}"
        if kind == "widen":
            low = self.half(sources[0], 0, item)
            if operation.type in _SHORT:
                short = self.new("b32", "%half") if half else "{}"
                text = f"cvt.{operation.type[0].replace('b', 'u')}32.{operation.type} {short}, {low}"
                if not half:
                    return text
                self.line(f"{text};", item)
                low = short
            return f"shr.s32 {{}}, {low}, 31" if half else f"mov.b32 {{}}, {low}"
        if kind == "pack":
            assert isinstance(sources[0], Vector)
            return f"mov.b32 {{}}, {spell.operand(sources[0].elements[half], self.names)}"
        if kind in ("left", "right"):
            return self.shifted(item, operation, half)
        if kind == "insert":
            rest = self.half(sources[1], half, item)
            if half != operation.amount // 32:
                return f"mov.b32 {{}}, {rest}"
            given, count = self.half(sources[0], 0, item), spell.operand(sources[3], self.names)
            return f"bfi.b32 {{}}, {given}, {rest}, {operation.amount % 32}, {count}"
        parts = [
            self.half(source, half, item)
            for source in sources
            if _is_wide(source) or isinstance(source, Immediate)
        ]
        if kind == "product":
            parts = [spell.operand(source, self.names) for source in sources]
        if kind == "copy" or (kind == "select" and parts[0] == parts[1]):
            return f"mov.b32 {{}}, {parts[0]}"
        if kind == "select":
            return f"selp.b32 {{}}, {parts[0]}, {parts[1]}, {spell.operand(sources[2], self.names)}"
        if kind in ("sum", "product"):
            if all(map(_is_number, parts)):
                parts[0] = self.held(parts[0], item)
            return f"{'mul.lo' if kind == 'product' else name}.s32 {{}}, {', '.join(parts)}"
        if _is_number(parts[0]) and len(parts) == 2:
            parts.reverse()
        if parts[-1] == "0" or (name == "and" and parts[-1] == "-1"):
            return f"mov.b32 {{}}, {parts[0]}"
        if name == "xor" and parts[-1] == "-1":
            return f"not.b32 {{}}, {parts[0]}"
        return f"{name}.b32 {{}}, {', '.join(parts)}"

    def shifted(self, item: Instruction, operation: _Operation, half: int) -> str:
        """A half that is shifted, with bits of the other one."""
        left, amount = operation.kind == "left", operation.amount
        near = self.half(operation.sources[0], 0 if left else 1, item)
        opcode = "shl.b32" if left else "shr.s32" if operation.type == "s64" else "shr.u32"
        if half == (0 if left else 1):  # which gets zeros, or signs
            return f"{opcode} {{}}, {near}, {min(amount, 31)}" if amount else f"mov.b32 {{}}, {near}"
        far = self.half(operation.sources[0], 1 if left else 0, item)
        if amount in (0, 32):
            return f"mov.b32 {{}}, {near if amount else far}"
        if amount > 32:
            return f"{opcode} {{}}, {near}, {min(amount - 32, 31)}"
        if near == "0":
            return f"{'shl.b32' if left else 'shr.u32'} {{}}, {far}, {amount}"
        if far == "0":
            return f"{'shr.u32' if left else 'shl.b32'} {{}}, {near}, {32 - amount}"
        low, high = (near, far) if left else (far, near)
        return f"shf.{'l' if left else 'r'}.wrap.b32 {{}}, {low}, {high}, {amount}"


def _signed(value: int) -> str:
    """A 32-bit constant as text."""
    return str(value - (value >> 31 << 32))


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
