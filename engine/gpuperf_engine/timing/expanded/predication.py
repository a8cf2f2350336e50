"""Short branches whose bodies an assembler executes under a predicate instead, as PTX.

Without the branch the body is a part of the block around it: its loads are issued with the others of the block, and all warps issue
its instructions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...flow.blocks import BasicBlock, only_ends, synchronises
from ...flow.operands import reads, writes
from ...isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BRANCH,
    INDIRECT_BRANCH,
    LOAD,
    PURE,
    REDUCTION,
    STORE,
)
from ...ptx import spell
from ...ptx.syntax import Guard, Instruction, Register
from ...simt.program import Program
from .rewriting import Rewriter, Rewritten

__all__ = ["predicated"]

#: The most instructions between a branch and its reconvergence that ptxas 13.0 predicates, on 7.5 to 9.0: bodies of 8 loads and
#: additions, of up to 10 (9.0: 8) pairs of an addition and a store, and of 16 multiply-adds are, longer ones of the first two kinds
#: are not.
_MOST = 16
_EFFECTS = frozenset((PURE, LOAD, STORE, ATOMIC, REDUCTION, ASYNC_COPY))


def predicated(program: Program) -> Rewritten | None:
    """The kernel of a program with short bodies under predicates; ``None`` if there are none."""
    if any(item.effect is INDIRECT_BRANCH for item in program.kernel.instructions):
        return None
    guards, local = _guards(program)
    if not guards:
        return None
    writer = _Writer(program.kernel)
    writer.guards, writer.local = guards, local
    return writer.written()


def _guards(program: Program) -> tuple[dict[Instruction, Guard | None], set[Instruction]]:
    """The guard of each instruction of a body, and ``None`` for the branches that are removed; and those of the instructions whose
    results no lane reads that does not execute the body."""
    blocks = program.blocks_of(0)
    entered: dict[int, int] = {}
    for block in blocks:
        for target in block.successors:
            entered[target] = entered.get(target, 0) + 1
    found: dict[Instruction, Guard | None] = {}
    local: set[Instruction] = set()
    for block in blocks:
        if (
            block.kind != "branch"
            or not block.counted
            or block.leaves
            or block.guard is None
            or block.index in block.back_edges
        ):
            continue
        other, first = block.successors
        if (
            first != block.index + 1
            or entered[first] != 1
            or any(item in found for item in block.instructions)
        ):
            continue
        bodies = [(blocks[first], Guard(block.guard.register, not block.guard.negated))]
        last = first
        if blocks[first].successors != (other,):
            # with another body for the lanes that take the branch
            if (
                other != first + 1
                or entered[other] != 1
                or blocks[other].successors != blocks[first].successors
            ):
                continue
            if blocks[other].successors != (other + 1,):
                continue
            bodies.append((blocks[other], block.guard))
            last = other
        if not all(_fits(body, guard) for body, guard in bodies) or only_ends(
            blocks[bodies[0][0].successors[0]]
        ):
            continue
        if sum(_executed(item) for body, _ in bodies for item in body.instructions) > _MOST:
            continue
        found[block.instructions[-1]] = None
        for body, guard in bodies:
            for item in body.instructions:
                if item.effect is not BRANCH:
                    found[item] = guard
                elif body.index != last or body.successors == (last + 1,):
                    found[item] = None
            # Of the lanes that do not execute it: what is behind the bodies, and the other body, which may come later.
            following = [*body.successors, *(one.index for one, _ in bodies if one is not body)]
            later = {register for at in following if at >= 0 for register in blocks[at].live_in}
            local.update(
                item for item in body.instructions if later.isdisjoint(writes(item)) and writes(item)
            )
    return found, local


def _fits(body: BasicBlock, guard: Guard) -> bool:
    if body.kind not in ("fall", "jump") or body.index in body.successors:
        return False
    for item in body.instructions:
        if item.effect is BRANCH and item is body.instructions[-1] and item.guard is None:
            continue
        if (
            item.guard is not None
            or item.effect not in _EFFECTS
            or synchronises(item)
            or guard.register in writes(item)
        ):
            return False
    return True


def _executed(item: Instruction) -> bool:
    """Whether something is executed for an instruction: constants and copies are operands of others."""
    space = item.form.space
    return not item.opcode.startswith(("mov.", "cvta.", "bra")) and not (
        item.effect is LOAD and space in ("param", "const")
    )


class _Writer(Rewriter):
    guards: dict[Instruction, Guard | None]
    local: set[Instruction]

    def body(self) -> None:
        for item in self.kernel.instructions:
            self.labels(item.index)
            if item not in self.guards:
                self.add(item)
                continue
            guard = self.guards[item]
            if item in self.local and item.effect is PURE:
                # It does no harm in other lanes, and no old value has to be kept there.
                self.add(item)
            elif guard is not None:
                for register in self.overwritten(item):
                    self.line(f"mov.b{register.type.bits} {self.names.register(register)}, 0;", None)
                name = self.names.register(guard.register)
                self.line(
                    f"@{'!' if guard.negated else ''}{name} {spell.instruction(item, self.names)}", item
                )
        self.labels(len(self.kernel.instructions))

    def overwritten(self, item: Instruction) -> Iterator[Register]:
        """Registers whose old values do not have to be kept for other lanes, and that ``mov`` can write."""
        if item in self.local:
            for register in writes(item):
                if register.type.bits in (16, 32, 64) and register not in reads(item):
                    yield register
