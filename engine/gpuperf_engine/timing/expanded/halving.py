"""64-bit integers as the two 32-bit registers that an assembler gives them, as PTX: halves that are constants, or that nothing needs
(``halves``), are not computed.

Bitwise operations, shifts by constants to the right, selections and counts of bits become such of halves. Sums and products of which
only the lower half is needed become those of 32 bits, as for addresses in constant, shared and local memory, which have 32 bits. What
is left is computed in 64 bits, of halves that are put together: ``mov.b64`` of two registers costs nothing."""

from __future__ import annotations

from ...flow.operands import reads, writes
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.syntax import Immediate, Instruction, Operand, Register, Vector
from ...simt.program import Program
from .halves import SHORT, WORDS, Halves, Operation, is_wide, small_addresses
from .rewriting import Rewriter, Rewritten

__all__ = ["halved"]


def halved(program: Program) -> Rewritten | None:
    """The kernel with 64-bit integers in halves where that saves instructions; ``None`` if there are none of them."""
    halves = Halves(program)
    compared = any(halves.same_half(one) is not None for one in halves.operations.values())
    if not halves.split and not compared:
        return None
    return _Writer(program.kernel, halves).written()


class _Writer(Rewriter):
    def __init__(self, kernel: Function, halves: Halves) -> None:
        super().__init__(kernel)
        self.halves = halves
        self.own = list(self.names.registers)
        self.parts: dict[tuple[Register, int], str] = {}

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
        if not isinstance(operand, Register) or not is_wide(operand):
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

    def apart(self, item: Instruction, operation: Operation) -> bool:
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

    def taken(self, item: Instruction, operation: Operation) -> bool:
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
            opcode = "mov.b32" if operation.type in WORDS else f"cvt.{operation.type}.u32"
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

    def of_half(self, item: Instruction, operation: Operation, half: int) -> str:
        """The instruction that sets half of a result, with braces for its target."""
        kind, name, sources = operation.kind, operation.name, operation.sources
        assert operation.target is not None
        value = self.halves.value(item, operation.target, half)
        if value is not None:
            return f"mov.b32 {{}}, {_signed(value)}"
        if kind == "widen":
            low = self.half(sources[0], 0, item)
            if operation.type in SHORT:
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
            if is_wide(source) or isinstance(source, Immediate)
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

    def shifted(self, item: Instruction, operation: Operation, half: int) -> str:
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
