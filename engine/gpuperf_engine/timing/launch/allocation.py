"""Registers that a thread of a launch has on a machine, and what does not fit into them.

An estimate from liveness refuses no launch: where fewer registers are left for each thread than estimated, the kernel has that many.
What ``ptxas`` has assigned is a fact, and a launch that it does not fit is an error as it is on the GPU. Spills come from the
limits that an assembler knows: 255, ``.maxnreg``, and what ``.maxntid`` or ``.reqntid`` with ``.minnctapersm`` leave for a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from ...flow.spilling import Spilled, spill
from ...machines.machine import Machine
from ...machines.occupancy import WARP_SIZE
from ...profile.build import LaunchRecord
from ...ptx.syntax import Immediate
from ...results import Resources
from ...simt.program import Program, declared_registers

__all__ = ["NO_REGISTER", "Allocation", "allocate", "registers_that_fit"]

_KEPT_ASIDE = 2
"""Registers that an estimate adds to those that are live, for the ABI and addressing."""
NO_REGISTER = -1
"""Index of a spilled register that is not known."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """``registers`` per thread; ``loads`` and ``stores`` of spilled registers (index, 32-bit words) by number of the block in which
    they are executed, and the ``words`` of 32 bits that a thread keeps in memory for them; ``notes`` for people."""

    registers: int
    loads: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    stores: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    words: int = 0
    notes: tuple[str, ...] = ()


def registers_that_fit(machine: Machine, threads: int, ctas: int = 1) -> int:
    """The most registers per thread with which so many CTAs of so many threads fit on an SM, in steps of the allocation unit; 0 if
    they do not fit at all."""
    warps = -(-threads // WARP_SIZE)
    parts = machine.sub_partitions
    step = machine.register_allocation_unit // WARP_SIZE
    in_part = machine.registers_per_sm // parts // -(-warps * ctas // parts)
    in_cta = machine.registers_per_cta // (-(-warps // parts) * parts)
    each = min(in_part, in_cta) // WARP_SIZE // step * step
    return min(machine.max_registers_per_thread, each)


def allocate(record: LaunchRecord, machine: Machine, resources: Resources) -> Allocation:
    """For one launch, from registers that are estimated or that ``ptxas`` has assigned."""
    program = record.program
    if resources.source != "estimate":
        if not resources.spill_loads and not resources.spill_stores:
            return Allocation(resources.registers)
        spilled = _spilled(program, resources.registers, constants=True)
        return Allocation(
            resources.registers,
            _scaled(spilled, spilled.loads, resources.spill_loads // 4),
            _scaled(spilled, spilled.stores, resources.spill_stores // 4),
            max(1, ceil(resources.local_bytes / 4)) if resources.local_bytes else spilled.words,
        )
    limit = _declared(program, machine)
    fitting = registers_that_fit(machine, prod(record.plan.block))
    registers = min(resources.registers, limit)
    notes = []
    if 0 < fitting < registers:
        notes.append(
            f"registers: {registers} estimated, of which {fitting} fit with {prod(record.plan.block)} threads per CTA"
        )
        registers = fitting
    most = max((limit, *_requested(program)))
    spilled = Spilled() if program.registers <= min(most, 254) else _spilled(program, most)
    if spilled.words:
        notes.append(f"spills: {4 * spilled.words} bytes per thread estimated, with {most} registers")
    return Allocation(registers, spilled.loads, spilled.stores, spilled.words, tuple(notes))


def _declared(program: Program, machine: Machine) -> int:
    """The most registers that the kernel's own directives allow a thread."""
    kernel = program.kernel
    limit = machine.max_registers_per_thread
    if kernel.maxnreg:
        limit = min(limit, declared_registers(kernel.maxnreg))
    bound = kernel.reqntid or kernel.maxntid
    if bound:
        limit = min(limit, registers_that_fit(machine, prod(bound), kernel.minnctapersm or 1) or limit)
    return limit


def _requested(program: Program) -> list[int]:
    """Registers that warpgroups take for themselves at run time (``setmaxnreg.inc``)."""
    return [
        operand.value
        for block in program.blocks
        for instruction in block.instructions
        if instruction.opcode.startswith("setmaxnreg.inc")
        for operand in instruction.operands
        if isinstance(operand, Immediate) and isinstance(operand.value, int)
    ]


def _spilled(program: Program, registers: int, constants: bool = False) -> Spilled:
    """Of all functions of a program with so many registers per thread; numbers of blocks are those of the program. ``constants``:
    whether these may be spilled like other values, as what is spilled in fact is shared out among the blocks."""
    known = program.kernel.memo.setdefault("timing.spills", {})
    assert isinstance(known, dict)
    key = registers, constants
    if key not in known:
        parts = [
            spill(
                program.blocks_of(number),
                max(1, registers - _KEPT_ASIDE),
                () if constants else uniformity.constant,
            )
            for number, uniformity in enumerate(program.uniformity)
        ]
        known[key] = Spilled(
            {index: items for part in parts for index, items in part.loads.items()},
            {index: items for part in parts for index, items in part.stores.items()},
            sum(part.words for part in parts),
            parts[0].tightest,
        )
    spilled = known[key]
    assert isinstance(spilled, Spilled)
    return spilled


def _scaled(
    spilled: Spilled, items: Mapping[int, tuple[tuple[int, int], ...]], words: int
) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """As many words as ``ptxas`` moves, in the blocks that the estimate names, or where most registers are live."""
    estimated = sum(size for registers in items.values() for _, size in registers)
    if not words:
        return {}
    if not estimated:
        return {spilled.tightest: ((NO_REGISTER, 1),) * words}
    scaled = {}
    for index, registers in items.items():
        count = ceil(len(registers) * words / estimated)
        scaled[index] = tuple(registers[position % len(registers)] for position in range(count))
    return scaled
