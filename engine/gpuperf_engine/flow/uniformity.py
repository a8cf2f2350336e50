"""Registers with one value per warp, and loops in which threads may wait for others.

A register is *constant* if its only definition depends on nothing but the launch and the CTA: one copy per warp suffices in any case.
It is *uniform* if at any time all lanes that may still read it have the same value, provided that lanes of the warp only diverge at
branches and converge at their reconvergence points. In a function where lanes may otherwise be at different instructions (a spin loop,
a ``.sync`` instruction reached from different branches), only constants are uniform.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..isa.effects import LOAD, PURE
from ..ptx.module import Function
from ..ptx.syntax import Address, CallTarget, Instruction, Register, SpecialRegister, Symbol, Variable, Vector
from .blocks import EXIT, BasicBlock, natural_loop
from .operands import reads, writes

__all__ = [
    "Uniformity",
    "analyse_uniformity",
    "mark_waiting_loops",
    "may_stop",
    "observes_others",
    "sides_of",
]

_CTA_CONSTANT = (
    "ntid",
    "ctaid",
    "nctaid",
    "gridid",
    "nwarpid",
    "nsmid",
    "smid",
    "dynamic_smem_size",
    "total_smem_size",
    "aggr_smem_size",
    "current_graph_exec",
    "reserved_smem_offset",
    "envreg",
    "cluster",
    "is_explicit_cluster",
    "nclusterid",
)


@dataclass(frozen=True, slots=True)
class Uniformity:
    """``uniform`` registers of one function (including constants), the ``constant`` ones, and ``may_diverge``: whether lanes of a
    warp may be at different instructions other than between a branch and its reconvergence point. ``divergent``: the blocks that,
    apart from this, may run without some of the lanes that entered the function and have not left it."""

    uniform: frozenset[Register]
    constant: frozenset[Register]
    may_diverge: bool
    divergent: frozenset[int]


def observes_others(instruction: Instruction) -> bool:
    """Whether the result may depend on concurrent writes of other threads: atomics with a result, states and waits of
    mbarriers, volatile, relaxed, acquire and mmio loads."""
    if instruction.effect.observes:
        return True
    if instruction.effect is not LOAD:
        return False
    parts = instruction.opcode.split(".")
    return any(word in parts for word in ("volatile", "relaxed", "acquire", "mmio"))


def mark_waiting_loops(blocks: Sequence[BasicBlock]) -> None:
    """Set ``back_edge_cost`` to 64 on back edges of loops whose exits depend on values that other threads may write."""
    if not any(observes_others(instruction) for block in blocks for instruction in block.instructions):
        return
    first = blocks[0].index
    for block in blocks:
        for head in block.back_edges:
            body = [blocks[index - first] for index in natural_loop(blocks, block.index, head, first)]
            if _waits(body):
                block.back_edge_cost = 64


def _waits(body: Sequence[BasicBlock]) -> bool:
    inside = {block.index for block in body}
    tainted: set[Register] = set()
    changed = True
    while changed:
        changed = False
        for block in body:
            for instruction in block.instructions:
                if observes_others(instruction) or any(
                    register in tainted for register in reads(instruction)
                ):
                    fresh = [register for register in writes(instruction) if register not in tainted]
                    if fresh:
                        tainted.update(fresh)
                        changed = True
    for block in body:
        leaving = any(target not in inside for target in block.successors)
        if leaving and block.guard is not None and block.guard.register in tainted:
            return True
        if (
            leaving
            and block.kind == "indirect"
            and block.terminator
            and tainted.intersection(reads(block.terminator))
        ):
            return True
    return False


def analyse_uniformity(
    function: Function,
    blocks: Sequence[BasicBlock],
    *,
    assume_divergent: bool = False,
    recursive: bool = False,
) -> Uniformity:
    """Needs ``live_in``/``live_out`` and the costs of the back edges. ``assume_divergent``: lanes may be at different instructions for
    other reasons, such as another function of the program. ``recursive``: the function may have several activations, so that
    its local variables have no fixed address. Source: the usual divergence analysis (Karrenberg and Hack, "Improving Performance of
    OpenCL on CPUs", 2012), with regions bounded by the reconvergence points."""
    constant = _constants(function, blocks, recursive)
    everything = {register for block in blocks for item in block.instructions for register in writes(item)}
    # parameters in registers, which are the first registers of a function, may differ between lanes
    formals = sum(item.space == "reg" for item in (*function.params, *function.returns))
    varying: set[Register] = set(function.registers[:formals])
    regions: dict[int, list[set[int]]] = {}
    apart: dict[int, set[Register]] = {}
    touched = [_touched(block) for block in blocks]
    steps = _steps(blocks, varying, recursive)
    while True:
        before = len(varying)
        divergent = [block for block in blocks if _diverges(block, varying)]
        for block in divergent:
            if block.index not in regions:
                regions[block.index] = _sides(block, blocks)
                apart[block.index] = _different_between_sides(block, regions[block.index], blocks, touched)
        may_diverge = assume_divergent or _may_diverge(blocks, divergent, regions)
        _spread(steps, varying)
        for block in divergent:
            varying |= apart[block.index]
        if may_diverge:
            varying |= everything - constant
        if len(varying) == before:
            parted = frozenset(index for side in _partial_sides(divergent, regions) for index in side)
            return Uniformity(frozenset(everything - varying), constant, may_diverge, parted)


def _constants(function: Function, blocks: Sequence[BasicBlock], recursive: bool) -> frozenset[Register]:
    definitions: dict[Register, list[Instruction]] = {}
    for block in blocks:
        for instruction in block.instructions:
            for register in writes(instruction):
                definitions.setdefault(register, []).append(instruction)
    constants: set[Register] = set()
    candidates = {
        register: assignments[0]
        for register, assignments in definitions.items()
        if len(assignments) == 1
        and assignments[0].guard is None
        and not (recursive and (register in blocks[0].live_in or _names_local(assignments[0])))
    }
    changed = True
    while changed:
        changed = False
        for register, instruction in candidates.items():
            if register not in constants and _is_constant(instruction, constants, function):
                constants.add(register)
                changed = True
    return frozenset(constants)


def _is_constant(instruction: Instruction, constant: Iterable[Register], function: Function) -> bool:
    if any(register not in constant for register in reads(instruction)):
        return False
    if instruction.effect is LOAD:
        return instruction.form.space in ("param", "const") and _uniform_parameters(instruction, function)
    return instruction.effect is PURE and _uniform_specials(instruction) and not _carries(instruction)


def _uniform_parameters(instruction: Instruction, function: Function) -> bool:
    """Parameters of an entry are the same for all threads; those of device functions and of calls are not."""
    return instruction.form.space == "const" or (function.is_entry and _entry_parameter(instruction))


def _entry_parameter(instruction: Instruction) -> bool:
    """Whether a load of an entry reads the kernel's own parameters, not the ``.param`` variables of a call."""
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Variable):
            owner = operand.base.function
            return owner is not None and operand.base in owner.params
    return True


def _uniform_specials(instruction: Instruction) -> bool:
    for operand in instruction.operands:
        if isinstance(operand, SpecialRegister) and not operand.name.startswith(_CTA_CONSTANT):
            return False
        if isinstance(operand, Vector) and not all(
            item.name.startswith(_CTA_CONSTANT)
            for item in operand.elements
            if isinstance(item, SpecialRegister)
        ):
            return False
    return True


def _names_local(instruction: Instruction) -> bool:
    """Whether an operand is the address of a local variable."""
    targets = (
        operand.target
        if isinstance(operand, Symbol)
        else operand.base
        if isinstance(operand, Address)
        else operand
        for operand in instruction.operands
    )
    return any(isinstance(target, Variable) and target.space == "local" for target in targets)


def _carries(instruction: Instruction) -> bool:
    return instruction.form.reads_carry or instruction.form.writes_carry


def _varies(instruction: Instruction, in_entry: bool) -> bool:
    """Whether the results may differ between lanes with equal sources."""
    if instruction.effect is LOAD:
        # equal addresses imply equal values only in memory that lanes share, which excludes local memory and call parameters
        space = instruction.form.space
        return space in ("local", "generic") or (
            space == "param" and not (in_entry and _entry_parameter(instruction))
        )
    return instruction.effect.varies or not _uniform_specials(instruction) or _carries(instruction)


def _steps(
    blocks: Sequence[BasicBlock], varying: set[Register], recursive: bool
) -> list[tuple[tuple[Register, ...], tuple[Register, ...]]]:
    """The propagation steps: registers that instructions read and write. Adds results that vary with equal sources to ``varying``."""
    steps = []
    for block in blocks:
        for instruction in block.instructions:
            written = writes(instruction)
            moves = recursive and _names_local(instruction)
            if written and (moves or _varies(instruction, block.function == 0)):
                varying.update(written)
            elif written:
                steps.append((reads(instruction), written))
    return steps


def _spread(steps: list[tuple[tuple[Register, ...], tuple[Register, ...]]], varying: set[Register]) -> None:
    changed = True
    while changed:
        changed = False
        for read, written in steps:
            if not varying.isdisjoint(read) and not varying.issuperset(written):
                varying.update(written)
                changed = True


def _diverges(block: BasicBlock, varying: set[Register]) -> bool:
    if block.kind == "branch" and block.guard is not None:
        return block.guard.register in varying
    if block.kind == "indirect" and block.terminator is not None:
        return any(register in varying for register in reads(block.terminator))
    if block.kind == "call" and block.terminator is not None:
        target = next(item for item in block.terminator.operands if isinstance(item, CallTarget))
        return target.register is not None and target.register in varying
    return False


def _sides(block: BasicBlock, blocks: Sequence[BasicBlock]) -> list[set[int]]:
    """For each successor of a divergent branch, the blocks that its lanes may run before the reconvergence point."""
    first = blocks[0].index
    sides = []
    for target in dict.fromkeys(block.successors):
        side: set[int] = set()
        stack = [target]
        while stack:
            index = stack.pop()
            if index in (EXIT, block.reconvergence) or index in side:
                continue
            side.add(index)
            stack += blocks[index - first].successors
        sides.append(side)
    return sides


def _different_between_sides(
    block: BasicBlock,
    sides: list[set[int]],
    blocks: Sequence[BasicBlock],
    of_blocks: Sequence[tuple[frozenset[Register], frozenset[Register]]],
) -> set[Register]:
    """Registers that may differ between lanes on different sides of ``block``. ``of_blocks``: see ``_touched``."""
    first = blocks[0].index
    live_at_reconvergence: frozenset[Register] = frozenset()
    if block.reconvergence != EXIT:
        live_at_reconvergence = blocks[block.reconvergence - first].live_in
    written, touched = (
        [set[Register]().union(*(of_blocks[index - first][which] for index in side)) for side in sides]
        for which in (0, 1)
    )
    different: set[Register] = set()
    for index, registers in enumerate(written):
        # lanes leave a loop in different iterations, so registers written in it differ at the reconvergence point
        different |= registers & live_at_reconvergence
        for other in range(len(sides)):
            if other != index:
                different |= registers & touched[other]
    return different


def _touched(block: BasicBlock) -> tuple[frozenset[Register], frozenset[Register]]:
    """The registers that a block writes, and those that it reads or writes, or that are live at its start."""
    written: set[Register] = set()
    read = set(block.live_in)
    for instruction in block.instructions:
        written.update(writes(instruction))
        read.update(reads(instruction))
    if block.guard is not None:
        read.add(block.guard.register)
    return frozenset(written), frozenset(written | read)


def sides_of(
    branch: BasicBlock, blocks: Sequence[BasicBlock], uniform: Collection[Register]
) -> Iterator[set[int]]:
    """By side, the blocks that some lanes of a warp may run after the branch of this block; none if its guard is one of the
    ``uniform`` registers of the function."""
    read = [branch.guard.register] if branch.kind == "branch" and branch.guard is not None else []
    if branch.kind in ("indirect", "call") and branch.terminator is not None:
        read = [*reads(branch.terminator)]
    varying = {register for register in read if register not in uniform}
    if _diverges(branch, varying):
        yield from _partial_sides([branch], {branch.index: _sides(branch, blocks)})


def may_stop(block: BasicBlock) -> bool:
    """Whether lanes may wait in this block while others of their warp continue."""
    return block.synchronises or block.waits or block.back_edge_cost > 1


def _may_diverge(
    blocks: Sequence[BasicBlock], divergent: Sequence[BasicBlock], regions: dict[int, list[set[int]]]
) -> bool:
    """Whether there are spin loops in which lanes diverge, or warp-synchronising instructions that only some lanes may reach."""
    if not any(may_stop(block) for block in blocks):
        return False
    first = blocks[0].index
    sides = _partial_sides(divergent, regions)
    return any(may_stop(blocks[index - first]) for side in sides for index in side) or any(
        branch.back_edge_cost > 1 for branch in divergent
    )


def _partial_sides(divergent: Sequence[BasicBlock], regions: dict[int, list[set[int]]]) -> Iterator[set[int]]:
    """The sides of divergent branches, except guarded returns and exits, after which the remaining lanes are all lanes."""
    for branch in divergent:
        for target, side in zip(dict.fromkeys(branch.successors), regions[branch.index]):
            if not branch.leaves or target == EXIT:
                yield side
