"""Registers per thread of a launch on a machine, and register spills.

Registers estimated from liveness never make a launch fail: if fewer registers fit, the kernel has that many. Registers that ``ptxas``
assigned are facts: a launch that does not fit is an error as on the GPU. Spills follow from the limits that an assembler knows: 255,
``.maxnreg``, and the registers that ``.maxntid`` or ``.reqntid`` with ``.minnctapersm`` leave for a thread.
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

__all__ = ["NO_REGISTER", "Allocation", "allocate", "most_registers", "registers_that_fit", "spilling"]

_KEPT_ASIDE = 2
"""Registers that an estimate adds to live ones, for the ABI and address computations."""
NO_REGISTER = -1
"""Index of an unknown spilled register."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """``registers`` per thread; ``loads`` and ``stores`` of spilled registers (index, 32-bit words) by number of the block that
    executes them; ``words``: 32-bit words of local memory per thread for spills; ``notes`` for users."""

    registers: int
    loads: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    stores: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    words: int = 0
    notes: tuple[str, ...] = ()


def registers_that_fit(machine: Machine, threads: int, ctas: int = 1) -> int:
    """The most registers per thread with which ``ctas`` CTAs of ``threads`` threads fit on an SM, a multiple of the allocation unit; 0
    if they do not fit."""
    warps = -(-threads // WARP_SIZE)
    parts = machine.sub_partitions
    step = machine.register_allocation_unit // WARP_SIZE
    in_part = machine.registers_per_sm // parts // -(-warps * ctas // parts)
    in_cta = machine.registers_per_cta // (-(-warps // parts) * parts)
    each = min(in_part, in_cta) // WARP_SIZE // step * step
    return min(machine.max_registers_per_thread, each)


def allocate(record: LaunchRecord, machine: Machine, resources: Resources) -> Allocation:
    """The allocation of one launch, for estimated registers or those that ``ptxas`` assigned."""
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
    most = most_registers(program, machine)
    spilled = Spilled() if program.registers <= min(most, 254) else _spilled(program, most)
    if spilled.words:
        notes.append(f"spills: {4 * spilled.words} bytes per thread estimated, with {most} registers")
    return Allocation(registers, spilled.loads, spilled.stores, spilled.words, tuple(notes))


def most_registers(program: Program, machine: Machine) -> int:
    """The most registers per thread that a kernel may have: what its directives allow, or warpgroups request at run time."""
    return max((_declared(program, machine), *_requested(program)))


def _declared(program: Program, machine: Machine) -> int:
    """The most registers per thread that the kernel's directives allow."""
    kernel = program.kernel
    limit = machine.max_registers_per_thread
    if kernel.maxnreg:
        limit = min(limit, declared_registers(kernel.maxnreg))
    bound = kernel.reqntid or kernel.maxntid
    if bound:
        limit = min(limit, registers_that_fit(machine, prod(bound), kernel.minnctapersm or 1) or limit)
    return limit


def _requested(program: Program) -> list[int]:
    """Registers that warpgroups request at run time (``setmaxnreg.inc``)."""
    return [
        operand.value
        for block in program.blocks
        for instruction in block.instructions
        if instruction.opcode.startswith("setmaxnreg.inc")
        for operand in instruction.operands
        if isinstance(operand, Immediate) and isinstance(operand.value, int)
    ]


def _spilled(program: Program, registers: int, constants: bool = False) -> Spilled:
    """Spills of all functions of a program with ``registers`` registers per thread, by block of the program. ``constants``: whether
    uniform constants may be spilled too, to distribute the spills of ``ptxas`` over blocks."""
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


def spilling(program: Program, registers: int, words: int) -> Allocation:
    """The allocation of a kernel whose code needs ``words`` more registers than the ``registers`` that it may have: so many words are
    stored and loaded, where more are live in the PTX."""
    spilled = _spilled(program, registers, constants=True)
    loads, stores = (_scaled(spilled, items, words) for items in (spilled.loads, spilled.stores))
    return Allocation(registers, loads, stores, words)


def _scaled(
    spilled: Spilled, items: Mapping[int, tuple[tuple[int, int], ...]], words: int
) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Scales spills to the words that ``ptxas`` moves, in the blocks of the estimate, or where most registers are live."""
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
