"""PTX instructions that an assembler combines into one: a multiplication or shift with the addition that uses it (``IMAD.WIDE``,
``LEA``), two additions (``IADD3``), up to three bitwise operations (``LOP3``), and comparisons with logic on their predicates.

An instruction is folded into the only one that uses its result, in the same block. Offsets that are added to several base addresses
that are the same in all threads are folded into each of these additions: the base is in a constant bank.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...flow.operands import reads, writes
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Register, Symbol, Variable
from ...simt.program import Program

__all__ = ["Folds", "folds_of"]

_LOGIC = {
    f"{name}.{bits}": frozenset(f"{other}.{bits}" for other in ("and", "or", "xor", "not"))
    for bits in ("b32", "b64")
    for name in ("and", "or", "xor", "not")
}
_ADDS = frozenset(("add.s32", "add.u32", "sub.s32", "sub.u32"))
_WIDE_ADDS = frozenset(("add.s64", "add.u64"))
_WIDE_PRODUCTS = frozenset(("mul.wide.s32", "mul.wide.u32"))
_SHIFTS = frozenset(("shl.b64", "mul.lo.s64", "mul.lo.u64"))
_EXTENSIONS = frozenset(("cvt.s64.s32", "cvt.u64.u32"))
#: Additions without rounding modifier, with the products that the manual lets an optimizer contract with them ("add", "mul": sequences
#: without rounding modifiers may be optimized to fused multiply-adds), and the opcode of both together.
_CONTRACTED = {
    f"{add}{ftz}.{kind}": (f"mul{ftz}.{kind}", name)
    for add in ("add", "sub")
    for kind, name, modes in (
        ("f32", "FFMA", ("", ".ftz")), ("f64", "DFMA", ("",)), ("f16", "HFMA2", ("", ".ftz")), ("f16x2", "HFMA2", ("", ".ftz")),
    )
    for ftz in modes
}  # fmt: skip
_JOINED = frozenset(("and.pred", "or.pred", "xor.pred", "not.pred"))
#: Comparisons by type; of 64-bit integers they are two instructions, of other integers ``ISETP``.
_COMPARISONS = {"f32": "FSETP", "f64": "DSETP", "f16": "HSETP2", "bf16": "HSETP2", "s64": "ISETP.EX", "u64": "ISETP.EX",
                "b64": "ISETP.EX"}  # fmt: skip
_OFFSETS = frozenset((*_ADDS, *_WIDE_ADDS, "sub.s64", "sub.u64"))
#: The most registers that one instruction reads.
_MOST_SOURCES = 3


@dataclass(slots=True)
class Folds:
    """``gone``: instructions that others include; ``sources``: the registers that these then read; ``opcode``: the machine instruction
    that they become, where it is another one; ``bases``: for registers that are others plus a constant and only used as addresses,
    these others, with the constant: the offset of the access includes it."""

    gone: set[Instruction] = field(default_factory=set)
    sources: dict[Instruction, tuple[Register, ...]] = field(default_factory=dict)
    opcode: dict[Instruction, str] = field(default_factory=dict)
    bases: dict[Register, tuple[Register, int]] = field(default_factory=dict)


def folds_of(program: Program, constant: Collection[Register]) -> Folds:
    """The folds of the kernel of a program; ``constant``: registers that are the same in all threads."""
    return _Folder(program, constant).folds


class _Folder:
    def __init__(self, program: Program, constant: Collection[Register]) -> None:
        self.constant = constant
        self.folds = Folds()
        self.definition: dict[Register, Instruction] = {}
        several: set[Register] = set()
        self.users: dict[Register, list[Instruction]] = {}
        self.block = program.block_of
        for block in program.blocks_of(0):
            for item in block.instructions:
                for register in writes(item):
                    if register in self.definition:
                        several.add(register)
                    self.definition[register] = item
                for register in reads(item):
                    self.users.setdefault(register, []).append(item)
        guards = {block.guard.register for block in program.blocks_of(0) if block.guard is not None}
        for register in (*several, *guards):
            self.definition.pop(register, None)
        for block in program.blocks_of(0):
            for item in block.instructions:
                self.offset(item)
        for block in program.blocks_of(0):
            for item in block.instructions:
                if item not in self.folds.gone:  # as an offset
                    self.fold(item)

    def sources(self, item: Instruction) -> tuple[Register, ...]:
        known = self.folds.sources.get(item)
        return reads(item) if known is None else known

    def folded(
        self, register: Register, into: Instruction, opcodes: Collection[str], shared: bool = False
    ) -> Instruction | None:
        """The instruction that sets a register, if it may be folded into another one. ``shared``: other users may include it too."""
        item = self.definition.get(register)
        if (
            item is None
            or item.opcode not in opcodes
            or item.guard is not None
            or register in self.folds.bases
        ):
            return None
        if register in self.constant or self.block.get(item) != self.block.get(into):
            return None
        users = self.users.get(register, [])
        if not shared and (len(users) != 1 or item in self.folds.gone):
            return None
        # what it reads must not change in between
        if any(source not in self.definition for source in self.sources(item)):
            return None
        return item

    def fold(self, item: Instruction) -> None:
        opcode = item.opcode
        if item.guard is not None or any(register in self.constant for register in writes(item)):
            return
        if opcode in _LOGIC:
            self.join(item, _LOGIC[opcode])
        elif opcode in _ADDS:
            if not self.join(item, ("shl.b32",), "LEA") and not self.join(
                item, ("mul.lo.s32", "mul.lo.u32"), "IMAD"
            ):
                self.join(item, _ADDS)
        elif opcode in _JOINED:
            self.predicates(item)
        elif opcode in _CONTRACTED:
            product, becomes = _CONTRACTED[opcode]
            self.join(item, (product,), becomes)
        elif opcode in _SHIFTS:
            self.widened(item)
        elif opcode in _WIDE_ADDS:
            self.address(item)

    def offset(self, item: Instruction) -> None:
        """A constant that is added to an address, or the address of an array in constant memory, which is one."""
        if item.opcode not in _OFFSETS or item.guard is not None:
            return
        target, base, offset = item.operands
        added = item.opcode.startswith("add")
        if added and self.is_constant_array(base):
            base, offset = offset, base
        by = 0
        if isinstance(offset, Immediate):
            bits = 1 << target.type.bits if isinstance(target, Register) else 1
            by = (offset.value + bits // 2) % bits - bits // 2
        elif not added or not self.is_constant_array(offset):
            return
        if not isinstance(target, Register) or not isinstance(base, Register):
            return
        if self.definition.get(target) is not item or base not in self.definition or target in self.constant:
            return
        users = self.users.get(target, [])
        if not users or not all(_addresses_with(user, target) for user in users):
            return
        root, more = self.folds.bases.get(base, (base, 0))
        self.folds.bases[target] = root, more + (-by if item.opcode.startswith("sub") else by)
        self.folds.gone.add(item)

    def is_constant_array(self, operand: Operand) -> bool:
        item = self.definition.get(operand) if isinstance(operand, Register) else None
        if item is None or not item.opcode.startswith("mov."):
            return False
        symbol = item.operands[1]
        return (
            isinstance(symbol, Symbol)
            and isinstance(symbol.target, Variable)
            and symbol.target.space == "const"
        )

    def join(self, item: Instruction, opcodes: Collection[str], becomes: str = "") -> bool:
        for register in reads(item):
            other = self.folded(register, item, opcodes)
            if other is None:
                continue
            mine = [source for source in self.sources(item) if source is not register]
            every = tuple(dict.fromkeys((*mine, *self.sources(other))))
            if len([source for source in every if source not in self.constant]) > _MOST_SOURCES:
                continue
            if self.folds.opcode.get(other):
                continue
            self.folds.gone.add(other)
            self.folds.sources[item] = every
            if becomes:
                self.folds.opcode[item] = becomes
                return True
            if item.opcode in _ADDS:
                return True
        return False

    def predicates(self, item: Instruction) -> None:
        """A comparison also combines its result with a predicate."""
        for register in reads(item):
            other = self.definition.get(register)
            if other is None or not other.opcode.startswith("setp."):
                continue
            found = self.folded(register, item, (other.opcode,))
            if found is not None and len(writes(found)) == 1:
                mine = [source for source in self.sources(item) if source is not register]
                self.folds.gone.add(found)
                self.folds.sources[item] = tuple(dict.fromkeys((*mine, *self.sources(found))))
                self.folds.opcode[item] = _COMPARISONS.get(found.opcode.rpartition(".")[2], "ISETP")
                return

    def widened(self, item: Instruction) -> None:
        """A 32-bit number that is extended and multiplied by a constant is multiplied into 64 bits."""
        if not any(isinstance(operand, Immediate) for operand in item.operands):
            return
        for register in reads(item):
            other = self.folded(register, item, _EXTENSIONS)
            if other is not None:
                self.folds.gone.add(other)
                self.folds.sources[item] = self.sources(other)
                self.folds.opcode[item] = "IMAD.WIDE"

    def address(self, item: Instruction) -> None:
        """A product that is added to an address: ``IMAD.WIDE``, or ``LEA`` and ``LEA.HI.X`` for a shifted 64-bit number."""
        for register in reads(item):
            other = self.definition.get(register)
            if other is None:
                continue
            wide = other.opcode in _WIDE_PRODUCTS or self.folds.opcode.get(other) == "IMAD.WIDE"
            if not wide and other.opcode != "shl.b64":
                continue
            users = self.users.get(register, [])
            bases = [[one for one in reads(user) if one is not register] for user in users]
            shared = len(users) > 1 and all(
                user.opcode in _WIDE_ADDS
                and self.block.get(user) == self.block.get(item)
                and all(base in self.constant for base in based)
                for user, based in zip(users, bases)
            )
            found = self.folded(register, item, (other.opcode,), shared=shared)
            if found is None:
                continue
            mine = [source for source in reads(item) if source is not register]
            self.folds.gone.add(found)
            self.folds.sources[item] = tuple(dict.fromkeys((*self.sources(found), *mine)))
            if wide:
                self.folds.opcode[item] = "IMAD.WIDE"
            return


def _addresses_with(item: Instruction, register: Register) -> bool:
    """Whether an instruction uses a register as the base of an address and nowhere else."""
    bases = [one for one in item.operands if isinstance(one, Address) and one.base is register]
    return len(bases) == 1 and sum(one is register for one in reads(item)) == 1 and bool(item.effect.site)
