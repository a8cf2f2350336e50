"""Predicted spills: the registers of a function that an assembler would keep in local memory if more are live than a thread has.

Chaitin's rule with the usual costs ("Register Allocation & Spilling via Graph Coloring", 1982): if too many registers are live, those
are spilled whose loads and stores are executed least, with a factor of ten for each level of loops. A spilled register is loaded once
in each block that reads it before writing it, and stored once in each block that writes it. Values that are constant in a launch need
no registers: an assembler reads parameters from constant memory, rematerialises other constants (Briggs, Cooper and Torczon,
"Rematerialization", 1992), and GPUs since Turing have uniform registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..ptx.syntax import Instruction, Register
from .blocks import BasicBlock
from .liveness import words_of
from .loops import find_loops
from .operands import reads, writes

__all__ = ["Spilled", "spill"]

_LEVEL = 10.0
_LEVELS = 6


@dataclass(frozen=True, slots=True)
class Spilled:
    """Registers (index, 32-bit words) loaded and stored by number of the block, the words of all spilled registers, and the block with
    the highest pressure (-1 for a function without blocks)."""

    loads: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    stores: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    words: int = 0
    tightest: int = -1


def spill(blocks: Sequence[BasicBlock], room: int, constants: Collection[Register] = ()) -> Spilled:
    """The spills of one function whose threads have ``room`` 32-bit registers for values other than ``constants``. Needs ``live_out``
    of the blocks."""
    use = {block.index: _exposed(block) for block in blocks}
    written = {block.index: _written(block) for block in blocks}
    costs: dict[Register, float] | None = None
    spilled: set[Register] = set()
    free = frozenset(constants)
    most, tightest = -1, -1
    for block in blocks:
        live = {register for register in block.live_out if words_of(register)} - spilled - free
        words = sum(words_of(register) for register in live)
        points: list[Instruction | None] = [None, *reversed(block.instructions)]
        for instruction in points:
            operands: set[Register] = set()
            if instruction is not None:
                operands = set(reads(instruction)) | set(writes(instruction))
                if instruction.guard is None:
                    killed = live.intersection(writes(instruction))
                    live -= killed
                    words -= sum(words_of(register) for register in killed)
                fresh = set(reads(instruction)) - live - spilled - free
                live |= fresh
                words += sum(words_of(register) for register in fresh)
            if words > most:
                most, tightest = words, block.index
            while words > room:
                if costs is None:
                    costs = _costs(blocks, use, written)
                candidates = [register for register in live - operands if words_of(register)]
                if not candidates:
                    break
                known = costs
                worst = min(candidates, key=lambda item: (known.get(item, 0.0) / words_of(item), item.index))
                spilled.add(worst)
                live.discard(worst)
                words -= words_of(worst)

    def spilled_of(of: Mapping[int, Sequence[Register]]) -> dict[int, tuple[tuple[int, int], ...]]:
        indices = {
            index: tuple((item.index, words_of(item)) for item in items if item in spilled)
            for index, items in of.items()
        }
        return {index: items for index, items in indices.items() if items}

    return Spilled(spilled_of(use), spilled_of(written), sum(words_of(item) for item in spilled), tightest)


def _exposed(block: BasicBlock) -> list[Register]:
    """Registers that a block reads before it writes them, in order."""
    registers: dict[Register, None] = {}
    written: set[Register] = set()
    for instruction in block.instructions:
        for register in reads(instruction):
            if register not in written:
                registers[register] = None
        written.update(writes(instruction))
    return list(registers)


def _written(block: BasicBlock) -> list[Register]:
    return list(dict.fromkeys(register for item in block.instructions for register in writes(item)))


def _costs(
    blocks: Sequence[BasicBlock],
    use: Mapping[int, Sequence[Register]],
    written: Mapping[int, Sequence[Register]],
) -> dict[Register, float]:
    depths = dict.fromkeys((block.index for block in blocks), 0)
    for loop in find_loops(blocks):
        for index in loop.body:
            depths[index] = max(depths[index], loop.depth)
    costs: dict[Register, float] = {}
    for block in blocks:
        weight = 1.0
        for _ in range(min(depths[block.index], _LEVELS)):
            weight *= _LEVEL
        for register in (*use[block.index], *written[block.index]):
            costs[register] = costs.get(register, 0.0) + weight
    return costs
