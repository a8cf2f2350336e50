"""Iterations of a loop as straight PTX, with what an assembler knows about it: constants, sums with constants, and results that an
earlier iteration has computed already.

An integer register is a constant, or another register plus a constant, until something needs its value. So counters vanish, and
addresses that move by constants become offsets of one register."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ...flow.operands import reads, writes
from ...ptx import spell
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Register, Symbol
from ...ptx.write import Names

__all__ = ["Straight"]

#: A name and a constant that is added to it; without name the constant alone.
_Sum = tuple[str, int]
_INTEGERS = frozenset(("s32", "u32", "b32", "s64", "u64", "b64"))
#: Integer instructions whose equal operands give equal results.
_REPEATED = frozenset(
    (
        "and",
        "or",
        "xor",
        "not",
        "shl",
        "shr",
        "mul",
        "mad",
        "add",
        "sub",
        "cvt",
        "min",
        "max",
        "bfe",
        "lop3",
        "shf",
        "prmt",
    )
)
#: Offsets in the address of an access are this large at most (24 bits with sign).
_FARTHEST = 1 << 23


class Straight:
    """``names``: those of the kernel, changed while the code is written and restored by ``finish``; ``add``: takes a line with the
    instruction that it is made of; ``declare``: declares registers; ``kept``: registers that live on, or are carried from one
    iteration to the next."""

    def __init__(
        self,
        names: Names,
        add: Callable[[str, Instruction], None],
        declare: Callable[[Iterable[tuple[Register, str]]], None],
        kept: Collection[Register],
    ) -> None:
        self.names, self.add, self.declare, self.kept = names, add, declare, frozenset(kept)
        self.original = list(names.registers)
        self.values: dict[int, _Sum] = {}
        self.seen: dict[tuple[str, ...], str] = {}
        self.registers: dict[int, Register] = {}
        #: The bits that may be set in registers, by name; for others all.
        self.bits: dict[str, int] = {}

    def start(self, register: Register, value: int) -> None:
        """A register holds a constant in front of the code."""
        self.values[register.index] = "", value
        self.registers[register.index] = register

    def run(self, items: Iterable[Instruction]) -> None:
        """Writes instructions."""
        for item in items:
            if not self._computed(item):
                self._written(item)

    def finish(self, last: Instruction) -> None:
        """Sets the registers that live on; ``last``: the instruction that this is attributed to."""
        moves: list[tuple[Register, str, int]] = []
        for index, (name, offset) in self.values.items():
            register = self.registers[index]
            own = self.original[index]
            if register not in self.kept or (name, offset) == (own, 0):
                continue
            if name != own:
                held = self._held(register, (name, offset), last)
                moves.append((register, held, 0))
            else:
                moves.append((register, own, offset))
        self.names.registers[:] = self.original
        while moves:
            # a register is set when no other one needs what it held before
            needed = {name for register, name, _ in moves if name != self.original[register.index]}
            free = next(
                (at for at, move in enumerate(moves) if self.original[move[0].index] not in needed), None
            )
            if free is None:
                register = moves[0][0]
                own, copy = self.original[register.index], self._fresh(register)
                self.add(f"mov.b{register.type.bits} {copy}, {own};", last)
                moves = [(one, copy if name == own else name, offset) for one, name, offset in moves]
                continue
            register, name, offset = moves.pop(free)
            own, bits = self.original[register.index], register.type.bits
            self.add(
                f"add.s{bits} {own}, {name}, {offset};" if offset else f"mov.b{bits} {own}, {name};", last
            )

    # -- values --------------------------------------------------------------------------------------------------------

    def value(self, operand: Operand) -> _Sum | None:
        """The value of an integer operand; ``None`` for others."""
        if isinstance(operand, Immediate):
            return ("", operand.value) if operand.kind == "int" else None
        if not isinstance(operand, Register) or not _is_integer(operand):
            return None
        return self.values.get(operand.index, (self.names.registers[operand.index], 0))

    def _computed(self, item: Instruction) -> bool:
        """Whether a result is known as a sum, so that nothing, or something simpler, is written."""
        targets = writes(item)
        if not _is_integer_result(item, targets):
            return False
        root, *words = item.opcode.split(".")
        if not words or words[-1] not in _INTEGERS or "cc" in words or item.operands[0] is not targets[0]:
            return False
        given = [self.value(operand) for operand in item.operands[1:]]
        values = [value for value in given if value is not None]
        if len(values) != len(given):
            return False
        found = self._sum(root, words, values, targets[0], item)
        if found is None:
            return False
        bits = 1 << targets[0].type.bits
        self.values[targets[0].index] = found[0], (found[1] + bits // 2) % bits - bits // 2
        self.registers[targets[0].index] = targets[0]
        return True

    def _sum(
        self, root: str, words: list[str], given: list[_Sum], target: Register, item: Instruction
    ) -> _Sum | None:
        constants = [offset for name, offset in given if not name]
        alone = len(constants) == len(given)
        kind = words[-1]
        if root == "mov":
            return given[0]
        if root == "add" and len(words) == 1:
            return self._added(given[0], given[1], target, item)
        if root == "sub" and len(words) == 1 and not given[1][0]:
            return given[0][0], given[0][1] - given[1][1]
        if root == "shl" and not given[1][0] and 0 <= given[1][1] < target.type.bits:
            return self._times(given[0], 1 << given[1][1], f"shl.{kind}", str(given[1][1]), target, item)
        if root in ("mul", "mad") and words[:1] == ["lo"] and len(words) == 2:
            product: _Sum | None = None
            for one, other in ((given[0], given[1]), (given[1], given[0])):
                if not other[0]:
                    product = self._times(one, other[1], f"mul.lo.{kind}", str(other[1]), target, item)
            if product is None:
                return None
            return product if root == "mul" else self._added(product, given[2], target, item)
        if alone and root in ("shr", "cvt", "mul"):
            return self._folded(root, words, constants)
        if alone and root in ("and", "or", "xor") and len(given) == 2:
            first, second = constants
            return "", {"and": first & second, "or": first | second, "xor": first ^ second}[root]
        if root == "and" and len(constants) == 1:
            return self._masked(given, constants[0], kind, target, item)
        if root == "or" and len(constants) == 1:
            (name, offset), *_ = (one for one in given if one[0])
            if not (self.bits.get(name, -1) & constants[0] or offset):
                return name, constants[0]
        return None

    @staticmethod
    def _folded(root: str, words: list[str], given: list[int]) -> _Sum | None:
        """The result of a shift to the right, of a conversion, or of a multiplication with a result of twice as many bits."""
        bits = int(words[-1][1:])
        first, *rest = given = [value % (1 << bits) for value in given]
        if words[-1][0] == "s":
            first, *rest = given = [value - (value >> bits - 1 << bits) for value in given]
        if root == "shr" and len(words) == 1:
            # More than all bits are as many, and the amount is unsigned also for signed numbers.
            return "", first >> min(rest[0] % (1 << 32), bits)
        if root == "cvt" and len(words) == 2 and words[0] in _INTEGERS:
            wide = 1 << int(words[0][1:])
            signed = words[0][0] == "s" and first % wide >= wide // 2
            return "", first % wide - wide * signed
        if root == "mul" and words[0] == "wide" and len(words) == 2:
            return "", first * rest[0]
        return None

    def _masked(
        self, given: list[_Sum], mask: int, kind: str, target: Register, item: Instruction
    ) -> _Sum | None:
        """Some bits of a register."""
        (name, offset), *_ = (one for one in given if one[0])
        if offset:
            return None
        result = self._once(f"and.{kind}", (name, str(mask)), target, item)
        self.bits[result] = self.bits.get(name, -1) & mask
        return result, 0

    def _added(self, one: _Sum, other: _Sum, target: Register, item: Instruction) -> _Sum:
        if one[0] and other[0]:
            name = self._once(f"add.s{target.type.bits}", tuple(sorted((one[0], other[0]))), target, item)
            return name, one[1] + other[1]
        return one[0] or other[0], one[1] + other[1]

    def _times(
        self, value: _Sum, factor: int, opcode: str, text: str, target: Register, item: Instruction
    ) -> _Sum:
        if not value[0]:
            return "", value[1] * factor
        result = self._once(opcode, (value[0], text), target, item)
        if opcode.startswith("shl"):
            self.bits[result] = self.bits.get(value[0], -1) * factor
        return result, value[1] * factor

    def _once(self, opcode: str, operands: tuple[str, ...], target: Register, item: Instruction) -> str:
        """The name of the result of an instruction, which is written unless it was before."""
        key = (opcode, *operands)
        if key not in self.seen:
            self.seen[key] = name = self._fresh(target)
            self.add(f"{opcode} {name}, {', '.join(operands)};", item)
        return self.seen[key]

    def _fresh(self, register: Register) -> str:
        name = self.names.fresh(self.original[register.index])
        self.declare([(register, name)])
        return name

    def _held(self, register: Register, value: _Sum, item: Instruction) -> str:
        """The name of a register that holds a value."""
        name, offset = value
        bits = register.type.bits
        if not name:
            return self._once(f"mov.b{bits}", (str(offset),), register, item)
        return self._once(f"add.s{bits}", (name, str(offset)), register, item) if offset else name

    # -- instructions --------------------------------------------------------------------------------------------------

    def _written(self, item: Instruction) -> None:
        names, operands, targets = self.names, list(item.operands), writes(item)
        bases: set[int] = set()
        for place, operand in enumerate(operands):
            if not isinstance(operand, Address) or not isinstance(operand.base, Register):
                continue
            base = operand.base
            name, offset = self.values.get(base.index, (names.registers[base.index], 0))
            if (
                name
                and base not in targets
                and abs(operand.offset + offset) < _FARTHEST
                and sum(one is base for one in reads(item)) == 1
            ):
                operands[place] = replace(operand, offset=operand.offset + offset)
                names.registers[base.index] = name
                bases.add(base.index)
        for register in reads(item):
            if register.index in self.values and register.index not in bases:
                names.registers[register.index] = self._held(register, self.values[register.index], item)
        key: tuple[str, ...] = ()
        if _repeats(item, targets):
            key = (item.opcode, *(spell.operand(one, names) for one in operands[1:]))
            if key in self.seen:
                self._result(targets[0], self.seen[key])
                return
        for target in targets:
            integer = _is_integer(target)
            if target in self.kept and not integer:
                continue
            name = self._fresh(target)
            if item.guard is not None or target in reads(item):
                # lanes without the guard keep the old value
                old = names.registers[target.index]
                if target.index in self.values:
                    old = self._held(target, self.values[target.index], item)
                if old != name:
                    self.add(f"mov.{_moved(target)} {name}, {old};", item)
            if integer:
                self._result(target, name)
            names.registers[target.index] = name
        if key:
            self.seen[key] = names.registers[targets[0].index]
        self.add(spell.instruction(replace(item, operands=tuple(operands)), names), item)

    def _result(self, target: Register, name: str) -> None:
        self.values[target.index] = name, 0
        self.registers[target.index] = target


def _is_integer(register: Register) -> bool:
    return register.type.bits in (32, 64) and register.type.kind in ("s", "u", "b")


def _is_integer_result(item: Instruction, targets: tuple[Register, ...]) -> bool:
    """Whether an instruction only computes one integer, in all lanes."""
    return item.guard is None and len(targets) == 1 and _is_integer(targets[0]) and item.effect.name == "pure"


def _repeats(item: Instruction, targets: tuple[Register, ...]) -> bool:
    """Whether an instruction has the same result whenever its operands have the same names."""
    if not _is_integer_result(item, targets):
        return False
    root, *words = item.opcode.split(".")
    if root == "mov":
        return isinstance(item.operands[1], Symbol)
    return root in _REPEATED and not {"cc"} & set(words) and all(map(_is_integer, reads(item)))


def _moved(register: Register) -> str:
    return "pred" if register.type.is_predicate else f"b{register.type.bits}"
