"""What no iteration of a loop changes, computed in front of it, as PTX.

``nvcc`` has done so for the loops that it leaves. Those of which an assembler unrolls inner ones have more: ``ptxas`` 13.0 computes
addresses that depend on the counter of such an inner loop once."""

from __future__ import annotations

from collections.abc import Collection

from ...flow.blocks import BasicBlock, natural_loop
from ...flow.operands import reads, writes
from ...ptx.module import Function
from ...ptx.syntax import Instruction, Register
from ...simt.program import Program
from .chains import predecessors_of
from .repeats import is_repeatable
from .rewriting import Rewriter, Rewritten

__all__ = ["hoisted"]


def hoisted(program: Program, repeated: Collection[Instruction]) -> Rewritten | None:
    """The kernel with some of its ``repeated`` instructions moved out of loops; ``None`` if none can be. ``repeated``: those of
    loops that became straight code."""
    blocks = program.blocks_of(0)
    defined: dict[Register, list[Instruction]] = {}
    for block in blocks:
        for item in block.instructions:
            for register in writes(item):
                defined.setdefault(register, []).append(item)
    before = predecessors_of(program)
    writer = _Writer(program.kernel)
    for head, body in _loops(blocks):
        outside = [at for at in before.get(head, ()) if at not in body]
        if len(outside) != 1 or (place := _end_of(blocks[outside[0]], blocks[head])) is None:
            continue
        inside = {
            register
            for at in body
            for item in blocks[at].instructions
            if item not in writer.moved
            for register in writes(item)
        }
        for at in sorted(body):
            for item in blocks[at].instructions:
                if (
                    item in repeated
                    and item not in writer.moved
                    and _is_movable(item)
                    and inside.isdisjoint(reads(item))
                    and all(len(defined[register]) == 1 for register in writes(item))
                ):
                    writer.moved.add(item)
                    inside.difference_update(writes(item))
                    writer.places.setdefault(place, []).append(item)
    return writer.written() if writer.moved else None


def _loops(blocks: tuple[BasicBlock, ...]) -> list[tuple[int, set[int]]]:
    """The first block of each loop and all its blocks, outer loops first."""
    loops: dict[int, set[int]] = {}
    for block in blocks:
        for head in block.back_edges:
            loops.setdefault(head, set()).update(natural_loop(blocks, block.index, head))
    return sorted(loops.items(), key=lambda loop: (-len(loop[1]), loop[0]))


def _end_of(block: BasicBlock, head: BasicBlock) -> tuple[int, bool] | None:
    """Where instructions at the end of a block go: in front of an instruction, ``True`` if behind its labels."""
    if block.kind in ("fall", "barrier"):
        return (head.instructions[0].index, False) if head.instructions else None
    if block.kind in ("branch", "jump") and block.instructions and block.instructions[-1] is block.terminator:
        return block.instructions[-1].index, True
    return None


def _is_movable(item: Instruction) -> bool:
    targets = writes(item)
    return is_repeatable(item) and len(targets) == 1 and not targets[0].type.is_predicate


class _Writer(Rewriter):
    def __init__(self, kernel: Function) -> None:
        super().__init__(kernel)
        self.moved: set[Instruction] = set()
        #: Moved instructions by the index of the one that they precede; ``True`` if behind its labels.
        self.places: dict[tuple[int, bool], list[Instruction]] = {}

    def body(self) -> None:
        for item in self.kernel.instructions:
            for behind in (False, True):
                for moved in self.places.get((item.index, behind), ()):
                    self.add(moved)
                if not behind:
                    self.labels(item.index)
            if item not in self.moved:
                self.add(item)
        self.labels(len(self.kernel.instructions))
