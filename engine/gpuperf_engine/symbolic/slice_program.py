"""Programs with only the instructions of a slice, and with the same blocks and counters.

Blocks keep their tally, so the clock, the instruction limit and the quantum of time slices are as in the whole program. Properties
that depend on the instructions (live sets, uniform registers, whether the order of CTAs is observable) are computed again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from ..flow.dependence import Aliases, Dependence
from ..flow.liveness import live_sets
from ..flow.loops import find_loops
from ..flow.slicing import Slice, slice_program
from ..flow.uniformity import analyse_uniformity, may_stop
from ..isa.effects import CONVERGENCE, HINT, MATRIX, PURE, WARPGROUP
from ..isa.model import EVERYTHING, LANE_BY_LANE
from ..ptx.syntax import Instruction
from ..simt.program import Program, is_order_free

__all__ = ["dependence_of", "reduced", "slice_of"]

#: assumed iterations of loops: few or many
_TRIPS = (1, 16)
#: a slice with more than this share of a program's instructions gets no program of its own
MOST = 0.7


def slice_of(program: Program, demand: str, aliases: Aliases | None) -> Slice:
    """The cached slice of a program for a demand and the pointers of a launch."""
    memo = program.kernel.memo
    key = ("slice", demand, None if aliases is None else tuple(aliases.items()))
    wanted = memo.get(key)
    if not isinstance(wanted, Slice):
        wanted = memo[key] = slice_program(dependence_of(program), demand, aliases)
    return wanted


def dependence_of(program: Program) -> Dependence:
    """The cached dependence graph of a program."""
    memo = program.kernel.memo
    dependence = memo.get("dependence")
    if not isinstance(dependence, Dependence):
        dependence = memo["dependence"] = Dependence(program)
    return dependence


def reduced(program: Program, wanted: Slice) -> Program:
    """The program that runs a slice, cached by its set of instructions."""
    memo = program.kernel.memo
    # slices are cached as well, so their ids stay valid
    known = memo.get(("reduced", id(wanted)))
    if isinstance(known, _Reduced) and known.wanted is wanted:
        return known.program
    program_of_slice = _build(program, wanted)
    memo["reduced", id(wanted)] = _Reduced(wanted, program_of_slice)
    return program_of_slice


@dataclass(frozen=True, slots=True)
class _Reduced:
    wanted: Slice
    program: Program


def _build(program: Program, wanted: Slice) -> Program:
    # the CTAs that are cancelled depend on the order of requests, and so on the whole program
    if program.cancels or all(
        item in wanted.instructions for block in program.blocks for item in block.instructions
    ):
        return program
    if wanted.demand == "addresses" and _is_most(program, wanted):
        return program
    numbers = [
        (block.index, item.index, item in wanted.guards, _only_converges(item, wanted))
        for block in program.blocks
        for item in block.instructions
        if item in wanted.instructions or item in wanted.guards
    ]
    variant = hashlib.blake2b(repr(numbers).encode(), digest_size=16).hexdigest()
    memo = program.kernel.memo
    known = memo.get(("reduced", variant))
    if not isinstance(known, Program):
        known = memo["reduced", variant] = _reduce(program, wanted, variant)
    return known


def _is_most(program: Program, wanted: Slice) -> bool:
    """Whether the slice omits few instructions, which are harmless with undefined operands: then the whole program, which other
    launches have compiled, is as fast."""
    left_out = {
        item for block in program.blocks for item in block.instructions if item not in wanted.instructions
    }
    if any(item.effect is not PURE or item.form.row.applied.checked is not None for item in left_out):
        return False
    depths = dict.fromkeys((block.index for block in program.blocks), 0)
    for number in range(len(program.functions)):
        for loop in find_loops(program.blocks_of(number)):
            for index in loop.body:
                depths[index] = max(depths[index], loop.depth)
    for trips in _TRIPS:
        total = omitted = 0
        for block in program.blocks:
            weight = trips ** depths[block.index]
            total += weight * len(block.instructions)
            omitted += weight * sum(item in left_out for item in block.instructions)
        if omitted > (1 - MOST) * total:
            return False
    return True


def _reduce(program: Program, wanted: Slice, variant: str) -> Program:
    # a guard that is only counted is moved to an instruction without effect
    stubs = {item: _stub(item) for item in wanted.guards}
    convergences = {
        item: _convergence_alone(item) for item in wanted.instructions if _only_converges(item, wanted)
    }
    stubs |= convergences
    blocks = []
    for block in program.blocks:
        left = tuple(
            stubs.get(item, item)
            for item in block.instructions
            if item in wanted.instructions or item in stubs
        )
        whole = left[:1] == tuple(convergences.get(item, item) for item in block.instructions[:1])
        made_block = replace(
            block,
            instructions=left,
            synchronises=block.synchronises and whole,
            waits=block.waits and whole,
        )
        if block.kind == "call" and block.terminator not in wanted.instructions:
            # a system call on which the slice does not depend
            made_block.kind, made_block.terminator = "fall", None
        blocks.append(made_block)
    reduced_program = replace(program, blocks=tuple(blocks), variant=variant)
    reduced_program.predicated_of = {
        stubs.get(item, item): index for item, index in program.predicated_of.items()
    }
    waits = any(may_stop(block) for block in blocks)
    uniformity = []
    for number, function in enumerate(program.functions):
        own = reduced_program.blocks_of(number)
        live_sets(function, own)
        divergent = (len(program.functions) > 1 and waits) or number in program.recursive
        recursive = number in program.recursive
        uniformity.append(analyse_uniformity(function, own, assume_divergent=divergent, recursive=recursive))
    reduced_program.uniformity = tuple(uniformity)
    reduced_program.order_free = program.order_free or (
        is_order_free(reduced_program) and not _sees_others(wanted)
    )
    return reduced_program


def _stub(instruction: Instruction) -> Instruction:
    form = replace(instruction.form, effect=HINT, operands=())
    return replace(instruction, form=form, operands=(), registers_read=None, registers_written=None)


def _only_converges(instruction: Instruction, wanted: Slice) -> bool:
    """Whether this is a matrix product whose operands are not computed, so that lanes only converge there."""
    checked = instruction.effect is MATRIX and instruction.form.row.applied.checked is not None
    looks = instruction.effect is WARPGROUP or checked
    return looks and instruction in wanted.instructions and instruction not in wanted.complete


def _convergence_alone(instruction: Instruction) -> Instruction:
    row = replace(instruction.form.row, accepts=EVERYTHING, applied=LANE_BY_LANE)
    form = replace(instruction.form, row=row, effect=CONVERGENCE, operands=())
    return replace(instruction, form=form, operands=(), registers_read=None, registers_written=None)


def _sees_others(wanted: Slice) -> bool:
    """Whether a read of the slice may see a write of another CTA in the same launch."""
    graph = wanted.dependence
    return any(
        "global" in access.spaces and any(graph.writers_of(item, wanted.aliases))
        for item in wanted.complete
        for access in graph.reads_memory(item)
    )
