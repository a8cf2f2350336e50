"""Races as users read them: the runtime's records with instructions, threads and objects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ...isa.effects import ATOMIC, LOAD
from ...memory.spaces import piece_of
from ...ptx.syntax import Address, Instruction
from ...results import Race, RaceAccess
from ...results.races import LAUNCH_END, PROXY_FENCE
from ...simt.launch import LaunchPlan
from ...simt.program import Program
from ..ir.race_records import Race as Layout

__all__ = ["races_of"]

_KINDS = {Layout.RAW: "RAW", Layout.WAR: "WAR", Layout.WAW: "WAW"}


def races_of(program: Program, plan: LaunchPlan, tables: Iterable[NDArray[np.int64]]) -> tuple[Race, ...]:
    """The races that workers recorded; for each pair of instructions, that of the first CTA."""
    rows: dict[int, list[int]] = {}
    for table in tables:
        for row in table[1 : 1 + int(table[0]) * Layout.COLUMNS].reshape(-1, Layout.COLUMNS).tolist():
            known = rows.setdefault(row[0], row)
            if known is not row:
                total = known[5] + row[5]
                rows[row[0]] = kept = min(known, row, key=lambda item: (item[1], item[6]))
                kept[5] = total
    rows = {key: row for key, row in rows.items() if not _seeds(program, row)}
    if plan.cluster_ctas > 1:
        for key, row in rows.items():
            if key & Layout.FAR:
                row[1], row[6] = (_in_cluster(plan, number) for number in (row[1], row[6]))
    exact = {_sort(key) for key in rows if key & Layout.FAR and not key & Layout.NEAR_BY}
    rows = {key: row for key, row in rows.items() if not key & Layout.NEAR_BY or _sort(key) not in exact}
    found = sorted(rows.values(), key=lambda row: (row[1], row[6], row[0]))
    return tuple(_race(program, plan, row) for row in found)


def _sort(key: int) -> int:
    """The kind, and whether both accesses are in one block. A race whose instructions are not exactly known is omitted if another
    race of the same kind is exact."""
    return key & (Layout.OF_ONE | Layout.UNFENCED | 3)


def _seeds(program: Program, row: list[int]) -> bool:
    """Whether a race is between ``atom.cas`` and a plain load of the same address before it: the first attempt of a loop, as in
    CUDA's headers for types without atomics. If the loaded value is outdated, the exchange fails."""
    sites = [(info & 0xFFFFFFFF) >> 14 for info in row[2:4]]
    if not row[0] & Layout.FAR or max(sites) >= len(program.sites):
        return False
    pair = sorted((program.sites[number].instruction for number in sites), key=lambda item: item.effect.name)
    places = [
        (item.base, item.offset)
        for instruction in pair
        for item in instruction.operands
        if isinstance(item, Address)
    ]
    effects = [instruction.effect for instruction in pair]
    return effects == [ATOMIC, LOAD] and "cas" in pair[0].opcode.split(".") and places[0] == places[1]


def _race(program: Program, plan: LaunchPlan, row: list[int]) -> Race:
    key, cta, before, after, place, count, other = row
    first, second = (
        _access(program, plan, info & 0xFFFFFFFF, _block(plan, number))
        for info, number in ((before, cta), (after, other))
    )
    kind = _KINDS[key & 3]
    place -= (place & 0xFFFFFFFF) % _element(program, before, after)
    if key & Layout.FAR:
        # the count depends on which CTAs ran concurrently
        missing = LAUNCH_END if key & Layout.UNFENCED else ""
        nearby = bool(key & Layout.NEAR_BY)
        return Race(
            kind, "global", _object(plan, place), place, first, second, missing=missing, nearby=nearby
        )
    owner, place = place >> 32, place & 0xFFFFFFFF
    name = _variable(program, place)
    if owner and _block(plan, owner - 1) != second.block:
        name += f" of block {_block(plan, owner - 1)}"
    missing = PROXY_FENCE if key & Layout.UNFENCED else ""
    return Race(kind, "shared", name, place, first, second, count, missing)


def _element(program: Program, *infos: int) -> int:
    """Bytes of the smallest element that either access has; 1 if neither has any. Of two stores the runtime knows the first byte that
    they change, which may be inside an element; elements are aligned to their size."""
    accesses = [_instruction(program, (info & 0xFFFFFFFF) >> 14) for info in infos]
    sizes = [piece_of(instruction) for instruction in accesses if instruction is not None]
    return min(filter(None, sizes), default=1)


def _in_cluster(plan: LaunchPlan, number: int) -> int:
    """The linear index of a CTA from its number in cluster order."""
    cluster, rank = divmod(number, 1 << Layout.RANK_BITS)
    index, below = 0, 1
    for wide, inner in zip(plan.grid, plan.cluster):
        index += below * (cluster % (wide // inner) * inner + rank % inner)
        cluster, rank, below = cluster // (wide // inner), rank // inner, below * wide
    return index


def _block(plan: LaunchPlan, cta: int) -> tuple[int, int, int]:
    wide, tall, _ = plan.grid
    return cta % wide, cta // wide % tall, cta // (wide * tall)


def _access(program: Program, plan: LaunchPlan, info: int, block: tuple[int, int, int]) -> RaceAccess:
    thread = (info >> 9 & 31) * 32 + (info & 31)
    wide, tall, _ = plan.block
    where = (thread % wide, thread // wide % tall, thread // (wide * tall))
    instruction = _instruction(program, info >> 14)
    if instruction is None:
        return RaceAccess(str(program.kernel.span), "", "", block, where)
    source = "" if instruction.location is None else str(instruction.location)
    return RaceAccess(str(instruction.span), source, instruction.opcode, block, where)


def _instruction(program: Program, number: int) -> Instruction | None:
    """The instruction for an index of the flags; ``None`` for accesses without a site."""
    count = len(program.sites)
    if number < count:
        return program.sites[number].instruction
    return [None, *program.images][number - count]


def _object(plan: LaunchPlan, address: int) -> str:
    """The name of an argument with an offset, such as ``x + 12``."""
    for (start, size), name in zip(plan.pointed_at, plan.names):
        if name and start <= address < start + size:
            return f"{name} + {address - start}" if address > start else name
    return plan.describe(address).removeprefix("in ")


def _variable(program: Program, place: int) -> str:
    """The name of a variable in shared memory with an offset, such as ``tile + 12``."""
    starts = [(start, variable.name) for variable, start in program.shared.items() if start <= place]
    if place >= program.shared_static and program.dynamic_shared:
        starts.append((program.shared_static, program.dynamic_shared[0].name))
    if not starts:
        return f"shared memory + {place}"
    start, name = max(starts)
    return f"{name} + {place - start}" if place > start else name
