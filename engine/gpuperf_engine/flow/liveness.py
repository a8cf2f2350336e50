"""Live registers of a thread. Sets are bit masks in Python integers, with one bit per register."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ..isa.types import SCALAR_TYPES
from ..ptx.module import Function
from ..ptx.syntax import Instruction, Register
from .blocks import BasicBlock
from .operands import reads, writes

__all__ = ["live_sets", "live_within", "pressure", "words_of"]


#: 32-bit registers per register of a type; 0 for predicates, which are counted separately
_WEIGHTS = {kind.name: 0 if kind.is_predicate else max(1, kind.bits // 32) for kind in SCALAR_TYPES.values()}


def words_of(register: Register) -> int:
    """The number of 32-bit registers that a register occupies; 0 for a predicate."""
    return _WEIGHTS[register.type.name]


def live_sets(function: Function, blocks: Sequence[BasicBlock]) -> None:
    """Set ``live_in`` and ``live_out`` of the blocks of one function.

    A guarded write does not kill the register, as lanes whose guard does not hold keep the old value.
    """
    used: list[int] = []
    killed: list[int] = []
    for block in blocks:
        use = kill = 0
        if block.guard is not None:
            use |= 1 << block.guard.register.index if not block.instructions else 0
        for instruction in block.instructions:
            for register in reads(instruction):
                use |= (1 << register.index) & ~kill
            if instruction.guard is None or block.guard_applied:
                for register in writes(instruction):
                    kill |= 1 << register.index
        used.append(use)
        killed.append(kill)
    live_in, live_out = _solve(blocks, used, killed)
    sets = _Sets(function)
    for index, block in enumerate(blocks):
        block.live_in, block.live_out = sets[live_in[index]], sets[live_out[index]]


def live_within(
    function: Function,
    blocks: Sequence[BasicBlock],
    executed: Container[Instruction],
    guards: Container[Instruction],
) -> list[frozenset[Register]]:
    """Registers live at the start of each block of one function if only some of its instructions are executed, and only the guards of
    some others are read."""
    used: list[int] = []
    killed: list[int] = []
    for block in blocks:
        use = kill = 0
        if block.guard is not None and not block.instructions:
            use |= 1 << block.guard.register.index
        for instruction in block.instructions:
            if instruction in executed:
                for register in reads(instruction):
                    use |= (1 << register.index) & ~kill
            elif instruction.guard is not None and instruction in guards:
                use |= (1 << instruction.guard.register.index) & ~kill
            if instruction in executed and (instruction.guard is None or block.guard_applied):
                for register in writes(instruction):
                    kill |= 1 << register.index
        used.append(use)
        killed.append(kill)
    live_in, _ = _solve(blocks, used, killed)
    sets = _Sets(function)
    return [sets[live] for live in live_in]


def _solve(
    blocks: Sequence[BasicBlock], used: Sequence[int], killed: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Live sets at the start and the end of each block, from the registers that blocks use before they kill them, and kill."""
    first = blocks[0].index
    live_in = list(used)
    live_out = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks) - 1, -1, -1):
            out = 0
            for target in blocks[index].successors:
                if target >= 0:
                    out |= live_in[target - first]
            into = used[index] | (out & ~killed[index])
            if out != live_out[index] or into != live_in[index]:
                live_out[index], live_in[index] = out, into
                changed = True
    return live_in, live_out


class _Sets(dict[int, frozenset[Register]]):
    """Bit mask → set of registers, built from the previous set, as those of successive blocks differ little and many are equal."""

    def __init__(self, function: Function) -> None:
        self._registers = function.registers
        self._bits, self._before = 0, frozenset[Register]()

    def __missing__(self, bits: int) -> frozenset[Register]:
        registers, others = self._registers, bits ^ self._bits
        changed = []
        while others:
            low = others & -others
            changed.append(registers[low.bit_length() - 1])
            others ^= low
        self[bits] = self._before = self._before.symmetric_difference(changed)
        self._bits = bits
        return self._before


def pressure(blocks: Sequence[BasicBlock]) -> tuple[int, int]:
    """The maximum numbers of 32-bit registers and of predicates that are live at one point of a function.

    64-bit registers count two, 128-bit four, narrower ones one: ptxas gives each at least a register.
    """
    most = predicates = 0
    weights = _WEIGHTS
    for block in blocks:
        live = set(block.live_out)
        flags = sum(not weights[register.type.name] for register in live)
        words = sum(weights[register.type.name] for register in live)
        most, predicates = max(most, words), max(predicates, flags)
        for instruction in reversed(block.instructions):
            if instruction.guard is None:
                for register in writes(instruction):
                    if register in live:
                        live.discard(register)
                        weight = weights[register.type.name]
                        words -= weight
                        flags -= not weight
            for register in reads(instruction):
                if register not in live:
                    live.add(register)
                    weight = weights[register.type.name]
                    words += weight
                    flags += not weight
            if words > most:
                most = words
            if flags > predicates:
                predicates = flags
    return most, predicates
