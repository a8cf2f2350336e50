"""An upper bound of the distinct bytes that a launch touches: the bytes of its sectors, and those of the arrays.

Each address is traced back, register by register, to the pointer parameters and variables that it depends on. Instructions on the
same arrays share them: three loads from one array count the array once. A pointer from memory or from a call may point to any of the
arrays that the arguments point to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from ...flow.operands import reads, writes
from ...isa.effects import ATOMIC, CALL, LOAD
from ...ptx.module import Function
from ...ptx.syntax import Address, Instruction, Register, Symbol, Variable
from ...results import SECTOR_BYTES as _SECTOR
from ...simt.launch import LaunchPlan
from ...simt.program import Program

__all__ = ["footprint"]


def footprint(program: Program, plan: LaunchPlan, sectors: Mapping[int, int]) -> int:
    """Upper bound in bytes for instructions that moved ``sectors`` (by index of the site), each of 32 bytes."""
    arrays, addresses = _known(program, plan)
    groups: dict[frozenset[int], int] = {}
    for index, count in sorted(sectors.items()):
        group = _arrays(program, index, plan, sorted(arrays), addresses)
        groups[group] = groups.get(group, 0) + count * _SECTOR
    # A group inside a larger one shares its arrays.
    largest = [group for group in groups if not any(group < other for other in groups)]
    total = 0
    for group in largest:
        moved = sum(count for other, count in groups.items() if other <= group)
        size = sum(_whole_sectors(arrays[start]) for start in group)
        total += min(moved, size) if group else moved
    everything = sum(_whole_sectors(size) for size in arrays.values())
    return min(total, everything) if arrays else total


def _known(program: Program, plan: LaunchPlan) -> tuple[dict[int, int], dict[Variable | Function, int]]:
    """Sizes of the arrays that arguments point to and of the module's variables, by start address; and the addresses of the
    variables."""
    arrays = dict(plan.pointed_at)
    addresses = {target: int(plan.symbols[index]) for target, index in program.symbol_of.items()}
    arrays |= {addresses[target]: target.size for target in addresses if isinstance(target, Variable)}
    return arrays, addresses


def _whole_sectors(size: int) -> int:
    return -(-size // _SECTOR) * _SECTOR


def _arrays(
    program: Program,
    site: int,
    plan: LaunchPlan,
    starts: list[int],
    addresses: Mapping[Variable | Function, int],
) -> frozenset[int]:
    """Start addresses of the arrays that a memory instruction may touch; all arrays if they are unknown."""
    everything = frozenset(starts)
    reached: set[int] = set()
    for origin in _origins(program, site):
        if origin is None:
            return everything
        if origin.space == "param":
            pointer = int.from_bytes(plan.parameters[origin.offset : origin.offset + 8], "little")
            index = bisect_right(starts, pointer) - 1
            if index >= 0 and pointer < starts[index] + dict(plan.pointed_at).get(starts[index], 0):
                reached.add(starts[index])
        elif origin in addresses:
            reached.add(addresses[origin])
    return frozenset(reached) or everything


def _origins(program: Program, site: int) -> frozenset[Variable | None]:
    """Parameters and variables that the address of a site depends on; ``None`` among them stands for an unknown origin."""
    known = program.kernel.memo.setdefault("timing.origins", {})
    assert isinstance(known, dict)
    if site not in known:
        known[site] = _trace(program, site)
    origins: frozenset[Variable | None] = known[site]
    return origins


def _trace(program: Program, site: int) -> frozenset[Variable | None]:
    instruction = program.sites[site].instruction
    function = program.functions[program.blocks[program.sites[site].block].function]
    definitions = _definitions(function)
    origins: set[Variable | None] = set()
    seen: set[Register] = set()
    queue: list[Register] = []
    for operand in instruction.operands:
        if isinstance(operand, Address):
            if isinstance(operand.base, Register):
                queue.append(operand.base)
            elif isinstance(operand.base, Variable):
                origins.add(operand.base)
    while queue:
        register = queue.pop()
        if register in seen:
            continue
        seen.add(register)
        for source in definitions.get(register, ()):
            origins |= _named(source, function)
            if source.effect in (LOAD, ATOMIC, CALL):
                continue
            queue += [item for item in reads(source) if item.type.bits >= 64]
    return frozenset(origins)


def _named(source: Instruction, function: Function) -> set[Variable | None]:
    """Origins outside the registers of the result of a defining instruction."""
    if source.effect is CALL:
        return {None}
    named: set[Variable | None] = set()
    for operand in source.operands:
        if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
            named.add(operand.target)
        elif isinstance(operand, Variable):
            named.add(operand)
        elif isinstance(operand, Address) and source.effect in (LOAD, ATOMIC):
            base = operand.base
            if (
                isinstance(base, Variable)
                and base.space == "param"
                and function.is_entry
                and base in function.params
            ):
                named.add(base)
            else:
                named.add(None)
    return named


def _definitions(function: Function) -> Mapping[Register, list[Instruction]]:
    known = function.memo.get("timing.definitions")
    if known is None:
        definitions: dict[Register, list[Instruction]] = {}
        for instruction in function.instructions:
            for register in writes(instruction):
                definitions.setdefault(register, []).append(instruction)
        known = function.memo["timing.definitions"] = definitions
    assert isinstance(known, dict)
    return known
