"""Races: accesses of different warps to the same memory, at least one of them a store, that nothing orders.

Which instructions are checked and what they order is worked out here; the runtime finds the races, see ``jit.runtime.races_clocks``,
and ``race_findings`` reads them off.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

import numpy as np
from numpy.typing import NDArray

from ..flow.dependence import Access, Aliases, Object, objects
from ..flow.operands import writes
from ..isa.effects import TENSOR_COPY, TENSOR_PRODUCT, TEXTURE
from ..memory.arena import Memory
from ..memory.image_rows import Images
from ..ptx.syntax import Address, Instruction, Register, Variable
from ..simt.effects import is_strong
from ..simt.launch import LaunchPlan
from ..simt.program import Program, Site
from ..symbolic.slice_program import dependence_of
from .barrier_intervals import conflicting_sites, reaches_shared
from .disjoint import are_apart, are_threads_apart
from .index_arrays import IndexArray, index_arrays
from .ir.race_records import Race as Layout
from .linear_addresses import Forms

__all__ = ["race_flags"]

#: stands for all objects
_ANYTHING: Object = ("global", "anything")
#: warps of a launch for which it is found out which accesses of shared memory need no check: of fewer ones the checks cost less
_WORTH_IT = 256
#: and which of global memory
_WORTH_FORMS = 64
_ORDERS = Layout.IS_STRONG | Layout.ACQUIRES | Layout.RELEASES | Layout.NARROW | Layout.IN_CLUSTER
#: launches of a kernel of which that is kept, and bytes of indices that they have loaded
_KEPT, _KEPT_BYTES = 64, 1 << 25


def race_flags(program: Program, plan: LaunchPlan, memory: Memory) -> NDArray[np.uint16]:
    """For each site, for accesses that are no site's, and for each of ``Program.images`` the bits of ``jit.ir.race_records.Race``;
    zeros where nothing is checked. ``memory``: that of the device, as it is when the launch begins."""
    if not plan.races:
        return _no_flags(program)
    images = memory.images
    # launches often repeat the one before
    decides = (
        program.variant, plan.grid, plan.block, plan.cluster, plan.shared_bytes, plan.only_kept,
        plan.parameters, plan.symbols.tobytes(), plan.pointed_at, images.targets if program.images else (),
    )  # fmt: skip
    last = program.kernel.memo.get("race flags")
    if not (isinstance(last, tuple) and last[0] == decides and _hold(last[2], memory)):
        last = program.kernel.memo["race flags"] = decides, *_decided(program, plan, memory)
    flags: NDArray[np.uint16] = last[1]
    return flags


def _hold(indices: Iterable[IndexArray], memory: Memory) -> bool:
    """Whether all elements are what they were."""
    return all(array.is_as_kept(memory) for array in indices)


def _decided(
    program: Program, plan: LaunchPlan, memory: Memory
) -> tuple[NDArray[np.uint16], Sequence[IndexArray]]:
    """The flags of a launch, and the arrays of indices that they depend on."""
    images = memory.images
    clustered = plan.cluster_ctas > 1
    asked = Layout.AMONG * (plan.ctas > plan.cluster_ctas and not plan.only_kept)
    # what a thread has stored itself is not to be read through an image either
    several = plan.warps_per_cta * plan.cluster_ctas > 1
    asked |= Layout.WITHIN * (several or any(item.effect is TEXTURE for item in program.images))
    aliases, shown = _aliases(program, plan, images) if asked else ({}, ())
    numbers = [[*aliases.values()], *map(sorted, shown)]
    place = f"races{program.variant} {plan.shared_bytes > 0} {clustered} {asked} {numbers}"
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
        for site in touched:
            flags[site.index] |= asked
        known = program.kernel.memo[place] = (flags, touched, reads)
    assert isinstance(known, tuple)
    flags, touched, reads = known
    assert isinstance(flags, np.ndarray)
    warps = plan.ctas * plan.warps_per_cta
    indices: Sequence[IndexArray] = ()
    if touched and warps >= _WORTH_FORMS:
        bits, indices = _apart(program, plan, memory, place, touched, reads)
        flags = flags.copy()
        flags[[*bits]] &= Layout.ALL - np.array([*bits.values()], np.uint16)
        scattered = [
            number for number, bit in bits.items() if bit & Layout.WORDS and flags[number] & Layout.AMONG
        ]
        flags[scattered] |= Layout.WORDS
    if flags[len(program.sites)] and not clustered and warps >= _WORTH_IT:
        flags = flags & _where_conflicts(program, plan)
    return flags, indices


def _no_flags(program: Program) -> NDArray[np.uint16]:
    return np.zeros(len(program.sites) + 1 + len(program.images), np.uint16)


def _where_conflicts(program: Program, plan: LaunchPlan) -> NDArray[np.uint16]:
    """The bits that are left where it is known which accesses of shared memory conflict in blocks of the launch's shape."""
    place = f"conflicts{program.variant} {plan.block} {plan.shared_bytes}"
    masks = program.kernel.memo.get(place)
    if masks is None:
        conflicts = conflicting_sites(program, plan)
        masks = program.kernel.memo[place] = ~_no_flags(program)
        for site in program.sites:
            if reaches_shared(site) and conflicts is not None and site.index not in conflicts:
                # what orders nothing but itself is as good as unordered
                masks[site.index] -= Layout.CHECKED | _ORDERS * (site.space == "shared")
        masks[len(program.sites)] = Layout.ALL * (conflicts is None or bool(conflicts))
    assert isinstance(masks, np.ndarray)
    return masks


def _apart(
    program: Program,
    plan: LaunchPlan,
    memory: Memory,
    place: str,
    touched: Mapping[Site, frozenset[Object]],
    reads: Mapping[Site, Object],
) -> tuple[Mapping[int, int], Sequence[IndexArray]]:
    """Sites of objects that each block, or each thread, accesses at places of its own, however they are reached, or that hold the same
    whoever stores there; and the bits of ``Race`` that they need not have. And the arrays of indices that this depends on."""
    kept = program.kernel.memo.setdefault("apart", {})
    assert isinstance(kept, dict)
    key = place, plan.grid, plan.block, plan.parameters
    if key not in kept or not _hold(kept[key][1], memory):
        known = (array for _, indices in kept.values() for array in indices)
        if len(kept) >= _KEPT or sum(array.kept_bytes for array in known) > _KEPT_BYTES:
            kept.clear()
        kept[key] = _sites_apart(program, plan, memory, touched, reads)
        for array in kept[key][1]:
            array.keep()
    bits, indices = kept[key]
    assert isinstance(bits, dict) and isinstance(indices, list)
    return bits, indices


def _sites_apart(
    program: Program,
    plan: LaunchPlan,
    memory: Memory,
    touched: Mapping[Site, frozenset[Object]],
    reads: Mapping[Site, Object],
) -> tuple[dict[int, int], Sequence[IndexArray]]:
    if any(_ANYTHING in items for items in touched.values()):
        return {}, []
    forms = Forms(program, plan)
    of_object: dict[Object, list[Site]] = defaultdict(list)
    for site, items in touched.items():
        for item in items:
            of_object[item].append(site)
    of_place = {item: _of_places(sites, forms, plan) for item, sites in of_object.items()}
    left = {item: reduce(and_, places.values()) for item, places in of_place.items()}
    open_ = [
        item
        for item, bit in left.items()
        if bit & Layout.GLOBAL != Layout.GLOBAL and forms.pieces(of_object[item]) is None
    ]
    indices = []
    for array in index_arrays(reads, forms, memory) if open_ else ():
        indexed = array.forms(forms)
        for item in open_:
            more = _bits(*array.apart(of_object[item], indexed), plan)
            left[item] |= more
            of_place[item] = {site: bit | more for site, bit in of_place[item].items()}
        if indexed.has_loaded:
            indices.append(array)
    bits = {
        site.index: reduce(and_, (of_place[item][site] for item in items), Layout.GLOBAL)
        for site, items in touched.items()
    }
    if program.order_free and plan.cluster_ctas == 1:
        among = {item for item, bit in left.items() if not bit & Layout.AMONG}
        for number in _by_words(touched, among, of_object, forms):
            bits[number] |= Layout.WORDS
    return bits, indices


def _of_places(sites: Sequence[Site], forms: Forms, plan: LaunchPlan) -> dict[Site, int]:
    """The bits of ``Race`` that sites of an object need not have: where it is known that some access other bytes than all others, each
    of such ranges is an object of its own."""
    found: dict[Site, int] = {}
    for group in _groups(sites, forms):
        needs = _conflict(group, forms.program)
        bits = (
            _bits_of_the_same(group, forms, plan) | _bits_apart(group, forms, plan)
            if needs
            else Layout.GLOBAL
        )
        found.update(dict.fromkeys(group, bits))
    return found


def _groups(sites: Sequence[Site], forms: Forms) -> list[list[Site]]:
    """Sites by ranges of addresses that do not overlap; all are one group unless the range of each is known."""
    ranges = []
    for site in sites:
        form = forms.of(site) if site.index < len(forms.program.sites) else None
        if form is None:
            return [[*sites]]
        low, high = forms.range(form)
        ranges.append((low, high + site.bytes, site))
    ranges.sort(key=lambda item: item[:2])
    groups: list[list[Site]] = []
    end = ranges[0][0]
    for low, high, site in ranges:
        if low >= end:
            groups.append([])
        groups[-1].append(site)
        end = max(end, high)
    return groups


def _conflict(sites: Sequence[Site], program: Program) -> bool:
    """Whether accesses by these sites to the same place can be a race."""
    count, graph = len(program.sites), dependence_of(program)
    stored = any(
        site.index >= count
        or any("global" in access.spaces for access in graph.writes_memory(site.instruction))
        for site in sites
    )
    return stored and any(site.index >= count or not _is_atomic_among_all(site) for site in sites)


def _is_atomic_among_all(site: Site) -> bool:
    """Whether accesses of a site race with no other such one."""
    return is_strong(site.instruction) and not _is_narrow(site.instruction, False)


def _by_words(
    touched: Mapping[Site, frozenset[Object]],
    among: set[Object],
    of_object: Mapping[Object, Sequence[Site]],
    forms: Forms,
) -> Iterable[int]:
    """The numbers of the sites that access objects which all sites access by whole words, and some at addresses that depend on
    data."""
    count = len(forms.program.sites)

    def is_whole(site: Site) -> bool:
        return site.index < count and site.bytes in (4, 8, 16)

    chosen = {
        item
        for item in among
        if all(map(is_whole, of_object[item]))
        and any(_depends_on_data(forms.program, site.instruction, forms) for site in of_object[item])
    }
    while True:
        mixed = {item for items in touched.values() if items & chosen and items - chosen for item in items}
        if not mixed & chosen:
            return [site.index for site, items in touched.items() if items and items <= chosen]
        chosen -= mixed


def _depends_on_data(program: Program, instruction: Instruction, forms: Forms) -> bool:
    """Whether an address comes from what the lanes of a warp load from several places in global or shared memory."""
    graph = dependence_of(program)
    bases = [item.base for item in instruction.operands if isinstance(item, Address)]
    left = [*graph.origins_of(instruction, [base for base in bases if isinstance(base, Register)])]
    seen = set(left)
    while left:
        node = left.pop()
        if isinstance(node, Instruction) and any(
            not access.spaces.isdisjoint(("global", "shared")) for access in graph.reads_memory(node)
        ):
            if not _is_of_warp(program, node, forms):
                return True
            continue
        more = seen.symmetric_difference(seen.union(graph.sources(node)))
        seen |= more
        left += more
    return False


def _is_of_warp(program: Program, load: Instruction, forms: Forms) -> bool:
    """Whether all lanes of a warp load from one place."""
    function = program.blocks[program.block_of[load]].function
    if all(register in program.uniformity[function].uniform for register in writes(load)):
        return True
    number = program.site_of.get(load)
    form = None if number is None else forms.of(program.sites[number])
    return form is not None and form.is_of_warp(forms.plan.block)


def _bits_apart(sites: Sequence[Site], forms: Forms, plan: LaunchPlan) -> int:
    """The bits of ``Race`` that an object need not have, by the addresses of all accesses."""
    known = forms.pieces(sites)
    if known is None:
        return 0
    pieces, size = known
    among = are_apart(pieces, size, forms.extents)
    return _bits(among, are_threads_apart(pieces, size, forms.extents), plan)


def _bits(among: bool, within: bool, plan: LaunchPlan) -> int:
    """The same where blocks, and where the threads of each block, have places of their own."""
    if plan.cluster_ctas > 1:
        # the blocks of a cluster are held against one another like the warps of a block
        within = within and among
    return Layout.AMONG * among | Layout.WITHIN * within


def _bits_of_the_same(sites: Iterable[Site], forms: Forms, plan: LaunchPlan) -> int:
    """The same of an object that is only stored to, and each byte with the same value by whoever stores there, as a flag that all
    threads set, or all of a block: elements of one size, which are aligned to it, or all bytes alike."""
    count = len(forms.program.sites)
    stored: set[object] = set()
    for site in sites:
        content = None if site.index >= count or is_strong(site.instruction) else forms.stored(site)
        if content is None:
            return 0
        one_byte = isinstance(content, bytes) and len({*content}) == 1
        stored.add(content[:1] if one_byte else content)
    if len(stored) > 1:
        return 0
    if all(isinstance(item, bytes) for item in stored):
        return Layout.GLOBAL
    return Layout.WITHIN * (plan.cluster_ctas == 1)


def _aliases(program: Program, plan: LaunchPlan, images: Images) -> tuple[Aliases, Sequence[frozenset[int]]]:
    """Which words of the parameter buffer, and which variables, point into the same allocation; and the numbers of those that each of
    ``Program.images`` may access."""
    starts = [address for address, _ in plan.pointed_at]
    known: dict[int, int] = {}
    found: dict[int | Variable, int] = {}

    def note(key: int | Variable, address: int, alone: bool) -> None:
        place = bisect.bisect_right(starts, address) - 1
        inside = place >= 0 and address < sum(plan.pointed_at[place])
        if inside or alone:
            found[key] = known.setdefault(starts[place] if inside else address, len(known))
        else:
            found[key] = -1

    for number, address in enumerate(
        np.frombuffer(plan.parameters[: len(plan.parameters) // 8 * 8], np.uint64)
    ):
        note(8 * number, int(address), False)
    for target, address in zip(program.symbols, plan.symbols.tolist()):
        if isinstance(target, Variable):
            note(target, int(address), True)
    anywhere = frozenset(known.setdefault(start, len(known)) for start in images.starts if program.images)
    shown = []
    for handle in _handles(program, plan):
        allocation = None if handle is None else images.allocation_of(handle)
        shown.append(anywhere if allocation is None else frozenset((known[allocation.address],)))
    return found, shown


def _handles(program: Program, plan: LaunchPlan) -> Sequence[int | None]:
    """The handle that each of ``Program.images`` has in all threads, if that is known."""
    if not program.images:
        return ()
    kept = program.kernel.memo.setdefault("handles", {})
    assert isinstance(kept, dict)
    key = program.variant, plan.grid, plan.block, plan.parameters, plan.symbols.tobytes()
    if key not in kept:
        if len(kept) >= _KEPT:
            kept.clear()
        forms = Forms(program, plan)
        kept[key] = [forms.handle(instruction) for instruction in program.images]
    handles = kept[key]
    assert isinstance(handles, list)
    return handles


def _touched(
    program: Program, aliases: Aliases, shown: Sequence[frozenset[int]]
) -> tuple[dict[Site, frozenset[Object]], dict[Site, Object]]:
    """Which sites access which objects in global memory to which some site stores, and not all by atomics; and which access one to
    which none stores."""
    graph = dependence_of(program)
    pointers = {key: number for key, number in aliases.items() if number >= 0}

    def objects_of(accesses: Iterable[Access]) -> frozenset[Object]:
        found: set[Object] = set()
        for access in accesses:
            if "global" in access.spaces:
                some = objects(access, pointers)
                found.update((_ANYTHING,) if some is None else (item for item in some if item[0] == "global"))
        return frozenset(found)

    stored: set[Object] = set()
    weakly: set[Object] = set()
    touched: dict[Site, frozenset[Object]] = {}
    for site in program.sites:
        instruction = site.instruction
        into = objects_of(graph.writes_memory(instruction))
        touched[site] = into | objects_of(graph.reads_memory(instruction))
        stored |= into
        weakly |= frozenset() if _is_atomic_among_all(site) else touched[site]
    for site, numbers in zip(_image_sites(program), shown):
        texels: frozenset[Object] = frozenset(("global", number) for number in numbers)
        touched[site] = texels
        stored |= texels if site.kind != "load" else frozenset()
        weakly |= texels if site.kind != "reduction" else frozenset()

    def conflicts_with(item: Object, others: set[Object]) -> bool:
        return bool(others) if item == _ANYTHING else item in others or _ANYTHING in others

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
    """Of what accesses images, as if these were sites."""
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
    """What accesses order."""
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
                | Layout.NARROW * _is_narrow(site.instruction, clustered)
                | Layout.IN_CLUSTER * (clustered and "cluster" in words)
            )
    return flags


def _is_narrow(instruction: Instruction, clustered: bool) -> bool:
    """Whether the scope is one block; that of a cluster is one where there are no clusters."""
    words = instruction.opcode.split(".")
    return "cta" in words or ("cluster" in words and not clustered)


def _is_in_async_proxy(instruction: Instruction) -> bool:
    """Whether it is a bulk or tensor copy that reads shared memory, or ``wgmma``: not ``tensormap.cp_fenceproxy``."""
    form = instruction.form
    if instruction.effect in (TENSOR_COPY, TENSOR_PRODUCT):
        return True
    if ".async.bulk" in form.opcode:
        spaces = [str(form.modifier(name) or "") for name in ("src", "dst")]
        return spaces[0].startswith("shared") or spaces[1] == "global"
    return form.opcode.startswith("wgmma.mma_async")
