"""Races: accesses of different warps to the same memory, at least one of them a store, that nothing orders.

Which instructions are checked and what they order is worked out here; the runtime finds the races, see ``native_runtime_races``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..flow.operands import matched
from ..ptx.syntax import Instruction
from ..results import Race, RaceAccess
from .effects import combines
from .launch import LaunchPlan
from .native_layout import Race as Layout
from .program import Program, Site
from .spaces import bit_of, reachable

__all__ = ["race_flags", "race_remark", "races_of"]

_KINDS = {Layout.RAW: "RAW", Layout.WAR: "WAR", Layout.WAW: "WAW"}
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_COPIES = ("async_copy", "bulk_copy")
_STORES = ("store", "atomic", "reduction")


def race_flags(program: Program, plan: LaunchPlan) -> NDArray[np.uint8]:
    """For each site, and for accesses that are no site's, the bits of ``Race`` (``native_layout``); zeros where nothing is checked."""
    if not plan.races or plan.cluster_ctas > 1 or plan.shared_bytes == 0:
        return np.zeros(len(program.sites) + 1, np.uint8)
    found = program.kernel.memo.get(place := f"races{program.variant}")
    if found is None:
        found = program.kernel.memo[place] = _flags(program)
    assert isinstance(found, np.ndarray)
    return found


def race_remark(program: Program, plan: LaunchPlan) -> tuple[str, ...]:
    """What the reference backend says where it is asked to look for races."""
    if not plan.races or plan.shared_bytes == 0:
        return ()
    kernel = program.kernel
    return (f"{kernel.span}: {kernel.name!r}: races are looked for on the backend 'native' only",)


def _flags(program: Program) -> NDArray[np.uint8]:
    made = np.zeros(len(program.sites) + 1, np.uint8)
    if len(made) > Layout.MOST_SITES:
        return made
    made[-1] = Layout.CHECKED
    alone = _read_alone(program)
    for site in program.sites:
        words = site.instruction.opcode.split(".")
        bits = 0
        if _reaches_shared(site) and site.index not in alone:
            bits |= Layout.CHECKED
        effect = site.instruction.effect
        flag = effect in ("load", "store") and not _STRONG.isdisjoint(words)
        if (
            flag
            or effect in ("atomic", "reduction")
            or (effect == "bulk_copy" and combines(site.instruction))
        ):
            bits |= Layout.IS_STRONG
        if bits & Layout.IS_STRONG:
            bits |= Layout.ACQUIRES * ("acquire" in words or "acq_rel" in words)
            bits |= Layout.RELEASES * ("release" in words or "acq_rel" in words)
        made[site.index] = bits
    return made


def _read_alone(program: Program) -> frozenset[int]:
    """Loads that no store to shared memory can meet: between the barriers of all threads at which they can come, there is none.

    Copies that are not over at a barrier and calls of functions are not followed.
    """
    reaching = [site for site in program.sites if _reaches_shared(site)]
    stores = {site.index for site in reaching if site.kind in _STORES}
    copies = any(site.instruction.effect in _COPIES for site in reaching)
    if copies or len(program.functions) > 1 or any(block.waits for block in program.blocks):
        return frozenset()
    of_block: dict[int, list[Site]] = defaultdict(list)
    for site in reaching:
        of_block[site.block].append(site)
    whole = {block.index for block in program.blocks if block.kind == "barrier" and _of_all(block.terminator)}
    met: set[int] = set()
    for start in (program.entries[0], *(next(iter(program.blocks[index].successors)) for index in whole)):
        seen, waiting = {start}, [start]
        while waiting:
            index = waiting.pop()
            for after in program.blocks[index].successors if index not in whole else ():
                if after >= 0 and after not in seen:
                    seen.add(after)
                    waiting.append(after)
        here = {site.index for index in seen for site in of_block.get(index, ())}
        if here & stores:
            met |= here
    return frozenset(site.index for site in reaching if site.index not in met)


def _reaches_shared(site: Site) -> bool:
    copies = site.instruction.effect in _COPIES
    return copies or bool(reachable(site.instruction) & bit_of("shared"))


def _of_all(instruction: Instruction | None) -> bool:
    """Whether a barrier waits for all threads of the CTA."""
    assert instruction is not None
    words = instruction.opcode.split(".")
    given = {form.name for form, _ in matched(instruction)}
    return "cluster" not in words and "arrive" not in words and "b" not in given


def races_of(program: Program, plan: LaunchPlan, tables: Iterable[NDArray[np.int64]]) -> tuple[Race, ...]:
    """What the workers found: of those of the same instructions the one of the first CTA."""
    rows: dict[int, list[int]] = {}
    for table in tables:
        for row in table[1 : 1 + int(table[0]) * Layout.COLUMNS].reshape(-1, Layout.COLUMNS).tolist():
            known = rows.setdefault(row[0], row)
            if known is not row:
                total = known[5] + row[5]
                rows[row[0]] = kept = min(known, row, key=lambda item: item[1])
                kept[5] = total
    return tuple(_race(program, plan, row) for row in sorted(rows.values(), key=lambda row: (row[1], row[0])))


def _race(program: Program, plan: LaunchPlan, row: list[int]) -> Race:
    key, cta, before, after, place, count = row
    wide, tall, _ = plan.grid
    block = (cta % wide, cta // wide % tall, cta // (wide * tall))
    first, second = (_access(program, plan, info & 0xFFFFFFFF, block) for info in (before, after))
    return Race(_KINDS[key & 255], "shared", _variable(program, place), place, first, second, count)


def _access(program: Program, plan: LaunchPlan, info: int, block: tuple[int, int, int]) -> RaceAccess:
    thread = (info >> 9 & 31) * 32 + (info & 31)
    wide, tall, _ = plan.block
    where = (thread % wide, thread // wide % tall, thread // (wide * tall))
    if info >> 14 >= len(program.sites):
        return RaceAccess(str(program.kernel.span), "", "", block, where)
    instruction = program.sites[info >> 14].instruction
    source = "" if instruction.location is None else str(instruction.location)
    return RaceAccess(str(instruction.span), source, instruction.opcode, block, where)


def _variable(program: Program, place: int) -> str:
    """``tile + 12``, of a variable in shared memory."""
    starts = [(start, variable.name) for variable, start in program.shared.items() if start <= place]
    if place >= program.shared_static and program.dynamic_shared:
        starts.append((program.shared_static, program.dynamic_shared[0].name))
    if not starts:
        return f"shared memory + {place}"
    start, name = max(starts)
    return f"{name} + {place - start}" if place > start else name
