"""Races: unordered accesses of different warps to the same memory, at least one of which is a store.

This module determines which instructions are checked and what they order; the runtime detects the races (see
``jit.runtime.races.clocks``), and ``races.findings`` reads its records.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...flow.dependence import Access, Aliases, Object, objects
from ...isa.effects import TENSOR_COPY, TENSOR_PRODUCT, TEXTURE
from ...memory.arena import Memory
from ...memory.image_rows import Images
from ...ptx.syntax import Instruction, Variable
from ...simt.effects import is_strong
from ...simt.launch import LaunchPlan
from ...simt.program import Program, Site
from ...symbolic.slice_program import dependence_of
from ..addresses.linear import Forms
from ..ir.race_records import Race as Layout
from .barrier_intervals import conflicting_sites, reaches_shared
from .places import ANYTHING, KEPT, Places, is_atomic_among_all, is_narrow, places, words_by_data

__all__ = ["race_flags"]

#: the least number of warps for which accesses to shared memory are analysed; with fewer, the checks cost less than the analysis
_WORTH_IT = 256
#: the same for accesses to global memory
_WORTH_FORMS = 64
_WORD = struct.Struct("<Q")
#: no analysis
_ANYWHERE = Places({}, (), False)
_WORDS = Layout.WORDS | Layout.OF_BYTES | Layout.OF_HALVES
_ORDERS = Layout.IS_STRONG | Layout.ACQUIRES | Layout.RELEASES | Layout.NARROW | Layout.IN_CLUSTER


def race_flags(program: Program, plan: LaunchPlan, memory: Memory) -> NDArray[np.uint16]:
    """The bits of ``jit.ir.race_records.Race`` for each site, for accesses without a site, and for each of ``Program.images``; zeros
    if nothing is checked. ``memory``: the memory of the device before the launch."""
    if not plan.races:
        return program.once(_no_flags)
    images = memory.images
    # launches often repeat the previous one
    decides = (
        program.variant, plan.grid, plan.block, plan.cluster, plan.shared_bytes, plan.only_kept,
        plan.parameters, plan.symbols.tobytes(), plan.pointed_at, images.targets if program.images else (),
    )  # fmt: skip
    last = program.kernel.memo.get("race flags")
    if not (isinstance(last, tuple) and last[0] == decides and not last[2].is_open and last[2].hold(memory)):
        last = program.kernel.memo["race flags"] = decides, *_decided(program, plan, memory)
    flags: NDArray[np.uint16] = last[1]
    return flags


def _decided(program: Program, plan: LaunchPlan, memory: Memory) -> tuple[NDArray[np.uint16], Places]:
    """The flags of a launch, and the analysis of the addresses that it accesses."""
    images = memory.images
    clustered = plan.cluster_ctas > 1
    asked = Layout.AMONG * (plan.ctas > plan.cluster_ctas and not plan.only_kept)
    # reading a thread's own store through an image is a race as well
    several = plan.warps_per_cta * plan.cluster_ctas > 1
    asked |= Layout.WITHIN * (several or any(item.effect is TEXTURE for item in program.images))
    aliases, shown = _aliases(program, plan, images) if asked else ({}, ())
    numbers = (*aliases.values(), *map(tuple, map(sorted, shown)))
    place = "races", program.variant, plan.shared_bytes > 0, clustered, asked, numbers
    known = program.kernel.memo.get(place)
    if known is None:
        flags = _no_flags(program)
        touched: dict[Site, frozenset[Object]] = {}
        reads: dict[Site, Object] = {}
        if len(flags) <= (Layout.MOST_SITES_IN_CLUSTER if clustered else Layout.MOST_SITES):
            if asked:
                touched, reads = _touched(program, aliases, shown)
            if plan.shared_bytes:
                flags |= _flags(program, clustered)
            if touched or plan.shared_bytes:
                flags |= _orders(program, clustered)
        some = (program.order_free and not plan.only_kept) or asked & Layout.AMONG
        by_data = words_by_data(program, touched) if some and not clustered else {}
        for site in touched:
            flags[site.index] |= asked | Layout.AMONG * bool(by_data)
        known = program.kernel.memo[place] = (flags, touched, reads, by_data)
    assert isinstance(known, tuple)
    flags, touched, reads, by_data = known
    assert isinstance(flags, np.ndarray)
    warps = plan.ctas * plan.warps_per_cta
    known_places = _ANYWHERE
    if touched and warps >= _WORTH_FORMS:
        known_places = places(program, plan, memory, place, touched, reads)
        bits = known_places.bits
        flags = flags.copy()
        flags[[*bits]] &= Layout.ALL - np.array([*bits.values()], np.uint16)
        scattered = {
            number: bit & _WORDS
            for number, bit in bits.items()
            if bit & Layout.WORDS and flags[number] & Layout.AMONG
        }
        flags[[*scattered]] |= np.array([*scattered.values()], np.uint16)
    elif by_data:
        flags = flags.copy()
        flags[[*by_data]] |= np.array([*by_data.values()], np.uint16)
    if flags[len(program.sites)] and not clustered and warps >= _WORTH_IT:
        flags = flags & _where_conflicts(program, plan)
    return flags, known_places


def _no_flags(program: Program) -> NDArray[np.uint16]:
    return np.zeros(len(program.sites) + 1 + len(program.images), np.uint16)


def _where_conflicts(program: Program, plan: LaunchPlan) -> NDArray[np.uint16]:
    """Masks of the bits that remain after the analysis of shared memory in blocks of the launch's shape."""
    place = f"conflicts{program.variant} {plan.block} {plan.shared_bytes}"
    masks = program.kernel.memo.get(place)
    if masks is None:
        conflicts = conflicting_sites(program, plan)
        masks = program.kernel.memo[place] = ~_no_flags(program)
        for site in program.sites:
            if reaches_shared(site) and conflicts is not None and site.index not in conflicts:
                # a site without conflicts need not order anything in shared memory
                masks[site.index] -= Layout.CHECKED | _ORDERS * (site.space == "shared")
        masks[len(program.sites)] = Layout.ALL * (conflicts is None or bool(conflicts))
    assert isinstance(masks, np.ndarray)
    return masks


def _aliases(program: Program, plan: LaunchPlan, images: Images) -> tuple[Aliases, Sequence[frozenset[int]]]:
    """The aliases of words of the parameter buffer and variables, by allocation; and the numbers of the allocations that each of
    ``Program.images`` may access."""
    starts = [address for address, _ in plan.pointed_at]
    ends = [address + size for address, size in plan.pointed_at]
    known: dict[int, int] = {}
    found: dict[int | Variable, int] = {}
    words = memoryview(plan.parameters)[: len(plan.parameters) // 8 * 8]
    for number, (address,) in enumerate(_WORD.iter_unpack(words)):
        place = bisect.bisect_right(starts, address) - 1
        inside = place >= 0 and address < ends[place]
        found[8 * number] = known.setdefault(starts[place], len(known)) if inside else -1
    for target, address in zip(program.symbols, plan.symbols.tolist()):
        if isinstance(target, Variable):
            place = bisect.bisect_right(starts, address) - 1
            inside = place >= 0 and address < ends[place]
            found[target] = known.setdefault(starts[place] if inside else address, len(known))
    if not program.images:
        return found, ()
    anywhere = frozenset(known.setdefault(start, len(known)) for start in images.starts)
    shown = []
    for handle in _handles(program, plan):
        levels = () if handle is None else images.levels_of(handle)
        shown.append(frozenset(known[level.address] for level in levels) or anywhere)
    return found, shown


def _handles(program: Program, plan: LaunchPlan) -> Sequence[int | None]:
    """The handle of each of ``Program.images``, if it is the same in all threads and known."""
    if not program.images:
        return ()
    kept = program.kernel.memo.setdefault("handles", {})
    assert isinstance(kept, dict)
    key = program.variant, plan.grid, plan.block, plan.parameters, plan.symbols.tobytes()
    if key not in kept:
        if len(kept) >= KEPT:
            kept.clear()
        forms = Forms(program, plan)
        kept[key] = [forms.handle(instruction) for instruction in program.images]
    handles = kept[key]
    assert isinstance(handles, list)
    return handles


def _touched(
    program: Program, aliases: Aliases, shown: Sequence[frozenset[int]]
) -> tuple[dict[Site, frozenset[Object]], dict[Site, Object]]:
    """By site, the accessed objects in global memory to which some site stores, except objects that only atomics access; and by site,
    the object to which no site stores."""
    graph = dependence_of(program)
    pointers = {key: number for key, number in aliases.items() if number >= 0}

    def objects_of(accesses: Iterable[Access]) -> frozenset[Object]:
        found: set[Object] = set()
        for access in accesses:
            if "global" in access.spaces:
                some = objects(access, pointers)
                found.update((ANYTHING,) if some is None else (item for item in some if item[0] == "global"))
        return frozenset(found)

    stored: set[Object] = set()
    weakly: set[Object] = set()
    touched: dict[Site, frozenset[Object]] = {}
    for site in program.sites:
        instruction = site.instruction
        into = objects_of(graph.writes_memory(instruction))
        touched[site] = into | objects_of(graph.reads_memory(instruction))
        stored |= into
        weakly |= frozenset() if is_atomic_among_all(site) else touched[site]
    for site, numbers in zip(_image_sites(program), shown):
        texels: frozenset[Object] = frozenset(("global", number) for number in numbers)
        touched[site] = texels
        stored |= texels if site.kind != "load" else frozenset()
        weakly |= texels if site.kind != "reduction" else frozenset()

    def conflicts_with(item: Object, others: set[Object]) -> bool:
        return bool(others) if item == ANYTHING else item in others or ANYTHING in others

    found: dict[Site, frozenset[Object]] = {}
    for site, items in touched.items():
        some = frozenset(
            item for item in items if conflicts_with(item, stored) and conflicts_with(item, weakly)
        )
        if some:
            found[site] = some
    reads = {
        site: item
        for site, items in touched.items()
        if len(items) == 1
        for item in items
        if not conflicts_with(item, stored)
    }
    return found, reads


def _image_sites(program: Program) -> Iterable[Site]:
    """Accesses to images as sites."""
    for instruction, index in program.images.items():
        kind = "load" if instruction.effect is TEXTURE else "reduction" if is_strong(instruction) else "store"
        yield Site(index, program.block_of.get(instruction, 0), instruction, "global", kind, 1)


def _flags(program: Program, clustered: bool) -> NDArray[np.uint16]:
    flags = _no_flags(program)
    conflicts = None if clustered else conflicting_sites(program, None)
    flags[len(program.sites)] = Layout.CHECKED * (conflicts is None or bool(conflicts))
    for site in program.sites:
        if reaches_shared(site) and (conflicts is None or site.index in conflicts):
            flags[site.index] |= Layout.CHECKED
        if _is_in_async_proxy(site.instruction):
            flags[site.index] |= Layout.ASYNC_PROXY
    return flags


def _orders(program: Program, clustered: bool) -> NDArray[np.uint16]:
    """The ordering bits of each access."""
    flags = _no_flags(program)
    for instruction, index in program.images.items():
        flags[index] = Layout.IS_STRONG * is_strong(instruction) | Layout.IMAGE * (
            instruction.effect is TEXTURE
        )
    for site in program.sites:
        words = site.instruction.opcode.split(".")
        if is_strong(site.instruction):
            flags[site.index] = (
                Layout.IS_STRONG
                | Layout.ACQUIRES * ("acquire" in words or "acq_rel" in words)
                | Layout.RELEASES * ("release" in words or "acq_rel" in words)
                | Layout.NARROW * is_narrow(site.instruction, clustered)
                | Layout.IN_CLUSTER * (clustered and "cluster" in words)
            )
    return flags


def _is_in_async_proxy(instruction: Instruction) -> bool:
    """Whether an instruction is a bulk or tensor copy that reads shared memory, or ``wgmma``; ``tensormap.cp_fenceproxy`` is not."""
    form = instruction.form
    if instruction.effect in (TENSOR_COPY, TENSOR_PRODUCT):
        return True
    if ".async.bulk" in form.opcode:
        spaces = [str(form.modifier(name) or "") for name in ("src", "dst")]
        return spaces[0].startswith("shared") or spaces[1] == "global"
    return form.opcode.startswith("wgmma.mma_async")
