"""Pairs of instructions on single halves that an assembler makes one on both halves of registers (``HADD2``, ``HMUL2``, ``HFMA2``).

``ptxas`` 13.0 pairs independent instructions of a block. An operand of a pair costs nothing if both are halves of one register (of a
vector that was loaded or unpacked, or results of another pair), or the same; otherwise ``PRMT`` puts both into a register, also if
they were loaded one by one. Two operands for which halves of other registers would have to be taken apart are too much, and so is one
whose halves would have to be exchanged. A result is half of a register, of which a store of the upper one needs another ``PRMT``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...flow.blocks import BasicBlock
from ...flow.operands import access_bytes, matched, reads, registers_in, writes
from ...isa.effects import LOAD
from ...ptx.syntax import Immediate, Instruction, Operand, Register, Vector
from ...simt.program import Program
from .folding import Folds
from .merging import Merges
from .opcodes import pieces_of

__all__ = ["Pairs", "pairs_of"]

_ROOTS = frozenset(("add", "sub", "mul", "fma"))
_TYPES = ("f16", "bf16")
#: Conversions of which one instruction makes two, and that instruction (before 8.0 there is none).
_CONVERTED, _CONVERTS = ("cvt.rn.f16.f32", "cvt.rn.bf16.f32"), "F2FP"
#: Instructions may be so far apart. Assumed; enough for a column of the largest tiles that threads compute.
_WINDOW = 64


@dataclass(slots=True)
class Pairs:
    """``gone``: instructions that are a part of another one; ``packs``: the opcode of each pack that is executed, and the registers
    that it reads; ``sources``: those that a pair reads, ``results``: those that it writes; ``separate``: the pairs of registers that
    it reads as one register, and ``assembled``: those of them that are put into one in front of it; ``joined``: registers that are
    halves of one; ``upper``: those that are the upper ones."""

    gone: set[Instruction] = field(default_factory=set)
    packs: dict[Instruction, tuple[str, tuple[Register, ...]]] = field(default_factory=dict)
    sources: dict[Instruction, tuple[Register, ...]] = field(default_factory=dict)
    results: dict[Instruction, tuple[Register, ...]] = field(default_factory=dict)
    separate: dict[Instruction, tuple[tuple[Register, Register], ...]] = field(default_factory=dict)
    assembled: dict[Instruction, tuple[tuple[Register, Register], ...]] = field(default_factory=dict)
    joined: list[tuple[Register, Register]] = field(default_factory=list)
    upper: set[Register] = field(default_factory=set)


def pairs_of(
    program: Program, architecture: int, folds: Folds, merges: Merges, roots: Mapping[int, int]
) -> Pairs:
    """The pairs of the kernel of a program; ``roots``: for registers that share the place of another one, its index."""
    return _Pairing(program, architecture, folds, merges, roots).pairs


class _Pairing:
    def __init__(
        self, program: Program, architecture: int, folds: Folds, merges: Merges, roots: Mapping[int, int]
    ) -> None:
        self.architecture, self.folds, self.roots = architecture, folds, roots
        self.pairs = Pairs()
        self.sources: dict[Instruction, list[Operand]] = {}
        self.definitions: dict[Register, list[Instruction]] = {}
        self.users: dict[Register, list[Instruction]] = {}
        for block in program.blocks_of(0):
            for item in block.instructions:
                for register in writes(item):
                    self.definitions.setdefault(register, []).append(item)
                for register in reads(item):
                    self.users.setdefault(register, []).append(item)
        #: Of the block: the registers that it is entered with, and what its instructions on halves set.
        self.live_in: set[Register] = set()
        self.set_here: set[int] = set()
        #: The other half of the same register, and whether that is the upper one.
        self.mates: dict[Register, tuple[Register, bool]] = {}
        for block in program.blocks_of(0):
            for item in block.instructions:
                self.loaded(item, merges)
        for block in program.blocks_of(0):
            self.block(block)
        self.place = {
            item: (block.index, at)
            for block in program.blocks_of(0)
            for at, item in enumerate(block.instructions)
        }
        for block in program.blocks_of(0):
            for item in block.instructions:
                self.packed(item)
        self.pairs.upper.update(register for register, (_, upper) in self.mates.items() if not upper)

    def is_half(self, item: Instruction) -> bool:
        """Whether one machine instruction computes with single halves."""
        root, *words = item.opcode.split(".")
        return root in _ROOTS and words[-1] in _TYPES and len(pieces_of(item, self.architecture)) == 1

    def root(self, register: Register) -> int:
        return self.roots.get(register.index, register.index)

    # -- halves of registers -------------------------------------------------------------------------------------------

    def loaded(self, item: Instruction, merges: Merges) -> None:
        """Halves of words that are loaded or unpacked."""
        if item.guard is not None or item in merges.gone:
            return
        if item.effect is LOAD:
            group = merges.first.get(item, (item,))
            if access_bytes(item) // max(1, len(writes(item))) != 2:
                return
            halves = [register for one in group for register in writes(one)]
        elif item.opcode.startswith("mov.b") and isinstance(item.operands[0], Vector):
            halves = [one for one in item.operands[0].elements if isinstance(one, Register)]
            if len(halves) != len(item.operands[0].elements):
                return
        else:
            return
        if len(halves) % 2 or any(one.type.bits != 16 for one in halves):
            return
        for low, high in zip(halves[::2], halves[1::2]):
            if len(self.definitions[low]) == len(self.definitions[high]) == 1:
                self.join(low, high)

    def packed(self, item: Instruction) -> None:
        """A register that is packed from its halves is in their place, if it is unpacked before they change again. Other halves are
        converted into one register, or put together."""
        if not item.opcode.startswith("mov.b32") or not isinstance(item.operands[1], Vector):
            return
        (word,), halves = writes(item), item.operands[1].elements
        low, high = halves if len(halves) == 2 else (None, None)
        if not isinstance(low, Register) or not isinstance(high, Register):
            return
        if self.mates.get(low) == (high, True) and item.guard is None:
            if len(self.definitions[word]) == 1 or self.unpacked_first(word, low, high):
                self.pairs.joined.append((low, word))
        elif (sources := self.converted(item, low, high)) is not None:
            self.pairs.packs[item] = _CONVERTS, sources
        elif low is not high or not all(map(_takes_halves, self.users.get(word, ()))):
            self.pairs.packs[item] = "PRMT", tuple(dict.fromkeys((low, high)))

    def unpacked_first(self, word: Register, low: Register, high: Register) -> bool:
        """Whether a register is only unpacked, and before its halves change in the same block."""
        changes = [self.place[one] for half in (low, high) for one in self.definitions[half]]
        for one in self.users.get(word, ()):
            block, at = self.place[one]
            if not isinstance(one.operands[0], Vector):
                return False
            if any(other == block and before < at for other, before in changes):
                return False
        return True

    def converted(self, item: Instruction, low: Register, high: Register) -> tuple[Register, ...] | None:
        """What two halves are converted from, if nothing else reads them and one instruction converts both (``F2FP``)."""
        block, at = self.place[item]
        made = []
        for half in (low, high):
            found = self.definitions.get(half, [])
            if len(found) != 1 or self.users[half] != [item] or low is high:
                return None
            if found[0].opcode not in _CONVERTED or found[0].guard is not None or item.guard is not None:
                return None
            if self.place[found[0]][0] != block:
                return None
            made.append(found[0])
        if made[0].opcode != made[1].opcode or pieces_of(made[0], self.architecture)[0].opcode != _CONVERTS:
            return None
        sources = tuple(dict.fromkeys(register for one in made for register in reads(one)))
        if any(
            self.place[one] > self.place[made[0]] and self.place[one] < (block, at)
            for register in sources
            for one in self.definitions.get(register, ())
        ):
            return None
        self.pairs.gone.update(made)
        return sources

    def join(self, low: Register, high: Register) -> None:
        if low not in self.mates and high not in self.mates:
            self.mates[low], self.mates[high] = (high, True), (low, False)
            self.pairs.joined.append((low, high))

    # -- pairs ---------------------------------------------------------------------------------------------------------

    def block(self, block: BasicBlock) -> None:
        halves = [
            (at, item)
            for at, item in enumerate(block.instructions)
            if self.is_half(item) and item.guard is None and item not in self.folds.gone
        ]
        if len(halves) < 2:
            return
        self.live_in = set(block.live_in)
        self.set_here = {self.root(register) for _, item in halves for register in writes(item)}
        taken: set[Instruction] = set()
        packed: set[tuple[Register, Register]] = set()
        for number, (at, item) in enumerate(halves):
            if item in taken:
                continue
            best: tuple[int, Instruction, Instruction, Instruction] | None = None  # cost, low, high, place
            for later, other in halves[number + 1 : number + 1 + _WINDOW]:
                if other in taken or other.opcode != item.opcode or not self.alike(item, other):
                    continue
                orders = [pair for pair in ((item, other), (other, item)) if self.fit(*pair)]
                place = self.together(block, at, later) if orders else None
                if place is None:
                    continue
                for low, high in orders:
                    cost = self.cost(low, high, packed)
                    if best is None or cost < best[0]:
                        best = cost, low, high, place
                if best is not None and best[0] <= 0:
                    break
            if best is not None:
                self.pair(*best[1:], packed)
                taken.update(best[1:3])

    def operands(self, item: Instruction) -> list[Operand]:
        """Its sources, those of a product that is folded into it first."""
        known = self.sources.get(item)
        if known is None:
            known = self.sources[item] = self._operands(item)
        return known

    def _operands(self, item: Instruction) -> list[Operand]:
        given = [operand for slot, operand in matched(item) if slot.name != "d"]
        for number, operand in enumerate(given):
            if isinstance(operand, Register):
                product = self.definitions.get(operand, [item])[0]
                if product in self.folds.gone and product.opcode.startswith("mul"):
                    inner = [one for slot, one in matched(product) if slot.name != "d"]
                    return [*inner, *given[:number], *given[number + 1 :]]
        return given

    def alike(self, item: Instruction, other: Instruction) -> bool:
        """Whether both have registers or constants in the same places."""
        first, second = self.operands(item), self.operands(other)
        result, another = writes(item), writes(other)
        return (
            [isinstance(one, Register) for one in first] == [isinstance(one, Register) for one in second]
            and len(result) == len(another) == 1
            and result[0] is not another[0]
            and (item in self.folds.opcode) == (other in self.folds.opcode)
        )

    def fit(self, item: Instruction, other: Instruction) -> bool:
        """Whether the results can be the lower and the upper half of one register, and at most one operand takes halves of others
        apart."""
        (low,), (high,) = writes(item), writes(other)
        if (self.mates.get(low), self.mates.get(high)) not in ((None, None), ((high, True), (low, False))):
            return False
        apart = [pair for pair in self.separate(item, other) if not self.mates.keys().isdisjoint(pair)]
        return len(apart) < 2 and not any(self.mates.get(one) == (another, False) for one, another in apart)

    def cost(self, item: Instruction, other: Instruction, packed: set[tuple[Register, Register]]) -> int:
        """How many instructions a pair needs besides its own, less one where its result would have to be packed otherwise."""
        (low,), (high,) = writes(item), writes(other)
        users = self.users.get(high, [])
        packs = any(self.is_pack(one, low, high) for one in users)
        taken = any(not _takes_halves(one) and not self.is_pack(one, low, high) for one in users)
        return sum(one not in packed for one in self.separate(item, other)) + taken - packs

    def separate(self, item: Instruction, other: Instruction) -> list[tuple[Register, Register]]:
        """Operands of both that are not halves of one register, nor the same, nor constants."""
        found: list[tuple[Register, Register]] = []
        for one, another in zip(self.operands(item), self.operands(other)):
            if not isinstance(one, Register) or not isinstance(another, Register):
                continue
            if one is another or self.mates.get(one) == (another, True):
                continue
            if self.same(one, another) or self.carried(one, another) or (one, another) in found:
                continue
            found.append((one, another))
        return found

    def same(self, one: Register, another: Register) -> bool:
        """Whether both are copies of one register, or constants."""
        sources = []
        for register in (one, another):
            found = self.definitions.get(register, [])
            if len(found) != 1 or not found[0].opcode.startswith("mov.") or found[0].guard is not None:
                return False
            if isinstance(found[0].operands[0], Vector):
                return False
            sources.append(found[0].operands[1])
        left, right = sources
        return left is right or (isinstance(left, Immediate) and isinstance(right, Immediate))

    def carried(self, one: Register, another: Register) -> bool:
        """Whether both are sums of the iteration before, which become halves of one register."""
        return (
            one is not another
            and one not in self.mates
            and another not in self.mates
            and {one, another} <= self.live_in
            and {self.root(one), self.root(another)} <= self.set_here
        )

    def is_pack(self, item: Instruction, low: Register, high: Register) -> bool:
        """Whether it puts both halves into one register, or stores them as neighbours."""
        given = [one for operand in item.operands for one in _elements(operand)]
        return any(at % 2 == 0 and one is low and given[at + 1] is high for at, one in enumerate(given[:-1]))

    def together(self, block: BasicBlock, first: int, second: int) -> Instruction | None:
        """The one of two instructions in whose place both can be executed: the later one, if nothing between reads the result of the
        earlier one or changes its operands, or the earlier one, if nothing between changes the operands of the later one or uses its
        result."""
        item, other = block.instructions[first], block.instructions[second]
        between = block.instructions[first + 1 : second]
        written = {register for one in between for register in writes(one)}
        read = {register for one in between for register in reads(one)}
        (first_result,), (second_result,) = writes(item), writes(other)
        if first_result in self.read_by(other):
            return None
        if first_result not in read and written.isdisjoint((*self.read_by(item), first_result)):
            return other
        if second_result not in {*read, *reads(item)} and written.isdisjoint(
            (*self.read_by(other), second_result)
        ):
            return item
        return None

    def read_by(self, item: Instruction) -> set[Register]:
        return {register for operand in self.operands(item) for register in registers_in(operand)}

    def pair(
        self,
        item: Instruction,
        other: Instruction,
        place: Instruction,
        packed: set[tuple[Register, Register]],
    ) -> None:
        (low,), (high,) = writes(item), writes(other)
        separate = self.separate(item, other)
        for one, another in zip(self.operands(item), self.operands(other)):
            if isinstance(one, Register) and isinstance(another, Register) and self.carried(one, another):
                self.join(one, another)
        apart = {register for one in separate for register in one}
        pairs = self.pairs
        pairs.gone.add(other if place is item else item)
        pairs.separate[place] = tuple(separate)
        pairs.assembled[place] = tuple(one for one in separate if one not in packed)
        given = (*self.operands(item), *self.operands(other))
        pairs.sources[place] = tuple(
            dict.fromkeys(one for operand in given for one in registers_in(operand) if one not in apart)
        )
        pairs.results[place] = (low, high)
        packed.update(separate)
        self.join(low, high)


def _elements(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Vector):
        yield from operand.elements


def _takes_halves(item: Instruction) -> bool:
    """Whether it reads either half of a register, or one as both."""
    return any(word.removesuffix("x2") in _TYPES for word in item.opcode.split(".")[1:])
