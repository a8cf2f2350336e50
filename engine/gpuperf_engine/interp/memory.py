"""Loads, stores and atomics of the reference backend: every access is checked, counted, and executed for all lanes at once.

If several lanes store to one address, the highest lane wins. Atomics on one address execute in ascending lane order. Errors name the
lowest lane with an invalid access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..errors import MemoryFault
from ..flow.operands import left_out, matched, used_bytes
from ..isa.effects import LOAD
from ..isa.evaluation import evaluate
from ..isa.model import Form
from ..isa.selectors import select
from ..isa.spaces import RANK_SHIFT, WINDOWS
from ..isa.types import ScalarType, scalar_type
from ..memory.access_faults import Access, memory_fault
from ..memory.arena import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from ..memory.spaces import STRAYS, bit_of, piece_of, reachable
from ..ptx.syntax import Address, Immediate, Instruction, Operand, Register, Variable, Vector
from ..simt.atomic_targets import are_combined
from ..simt.clusters import reaches_peers
from ..simt.counters import (
    LINE_BYTES,
    SITE_COLUMNS,
    atomic_wavefronts,
    local_sectors,
    sectors,
    serializations,
    wavefronts,
)
from ..simt.effects import is_strong, takes_short_addresses
from ..simt.faults import cta_of, thread_of
from ..simt.padding import BlankRead, Overrun, merge
from ..simt.rule_breaches import Breach
from ..simt.value_records import part_of_word
from .operands import (
    Guarded,
    Prepare,
    Reader,
    address_of,
    address_operand,
    as_type,
    by_warp,
    destinations,
    every_lane,
    integer,
    lane_value,
    reader,
)
from .regions import Region
from .value_recorder import ValueRecorder
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["MemoryStep", "Part", "address_reader", "stored_readers"]

_U64 = scalar_type("u64")
(
    _REQUESTS, _LANES, _SECTORS, _WAVEFRONTS, _IDEAL, _SHARED_LANES, _LOCAL_LANES, _LINES, _LOCAL_SECTORS,
    _SERIALIZATIONS, _SHARED_SERIALIZATIONS, _ELSEWHERE, _SHARED_REQUESTS, _LOCAL_REQUESTS, _GLOBAL_WAVEFRONTS,
) = range(len(SITE_COLUMNS))  # fmt: skip


def address_reader(to: Prepare, operand: Address, space: str, short: bool = False) -> Reader:
    """Reads the lanes' addresses as u64: base plus offset, in 32 bits for 32-bit registers in shared and local memory. Addresses of
    constants and parameters become generic, as these are in device memory. In shared memory a generic address in its window counts
    as its low 32 bits; ``short``: a generic address below 2^32 is an offset in that window (``effects.takes_short_addresses``)."""
    read = _sum_reader(to, operand, space)
    if short and space == "generic":
        return lambda warp: _lengthened(read(warp))
    return read


def _sum_reader(to: Prepare, operand: Address, space: str) -> Reader:
    base, offset = operand.base, operand.offset
    window = WINDOWS[space][0] if space in ("const", "param") else 0
    if isinstance(base, Variable):
        if (moving := by_warp(to, base, offset)) is not None:
            return moving
        constant = integer(address_of(to, base, offset, operand) + window, _U64)
        return lambda warp: constant
    if base is None:
        absolute = integer(offset + window, _U64)
        return lambda warp: absolute
    return _register_reader(base, offset + window, space)


def _register_reader(register: Register, offset: int, space: str) -> Reader:
    width = 32 if register.type.bits <= 32 and space in ("shared", "local") else 64
    number = scalar_type(f"u{width}")
    own = scalar_type(f"u{register.type.bits}")
    added = integer(offset, number)

    def read(warp: ReferenceWarp) -> LaneValue:
        base = warp.read(register).bits(own).convert(number)
        return lane_value((base + added).convert(_U64))

    if space == "shared" and width == 64:
        return lambda warp: _shortened(read(warp))
    return read


def _shortened(value: LaneValue) -> LaneValue:
    """Addresses of shared memory; those in the window of generic addresses are truncated (manual, "Addresses as Operands": addresses
    are "truncated if the register width exceeds the state space address width")."""
    offsets = value.data - np.uint64(SHARED_WINDOW)
    return LaneValue(np.where(offsets < np.uint64(WINDOW_BYTES), offsets, value.data), _U64)


def _lengthened(value: LaneValue) -> LaneValue:
    """Generic addresses; those below 2^32 are offsets in the shared window."""
    addresses = value.data + np.uint64(SHARED_WINDOW)
    return LaneValue(np.where(value.data < np.uint64(WINDOW_BYTES), addresses, value.data), _U64)


def stored_readers(to: Prepare, instruction: Instruction, type: ScalarType) -> list[list[Reader]]:
    """For each value operand, without cache policies, the readers of its elements in the access's type."""
    readers = []
    for slot, operand in matched(instruction):
        if slot.role == "source" and slot.name != "policy":
            elements = operand.elements if isinstance(operand, Vector) else (operand,)
            readers.append([_element(to, element, type) for element in elements])
    return readers


def _element(to: Prepare, operand: Operand, type: ScalarType) -> Reader:
    if isinstance(operand, Immediate):
        return reader(to, operand, type)
    own = reader(to, operand, None)
    return lambda warp: as_type(own(warp), type)


class Part(NamedTuple):
    """The lanes of an access to one region, with their byte offsets in it."""

    region: Region
    lanes: Lanes
    offsets: Lanes
    initialized: bool
    #: bytes of each that lie inside an object, if some extend past its end
    inside: Lanes | None = None


def _by_shadow(
    region: Region, lanes: Lanes, offsets: Lanes, initialized: Lanes, inside: Lanes | None = None
) -> list[Part]:
    """Splits an access by whether the memory is ``initialized`` as a whole, or tracked by its shadow."""
    if not lanes.size or bool(initialized.all()) or not initialized.any():
        return [Part(region, lanes, offsets, bool(initialized.all()), inside)] if lanes.size else []
    selections = (initialized, True), (~initialized, False)
    return [
        Part(
            region,
            lanes[selected],
            offsets[selected],
            is_initialized,
            None if inside is None else inside[selected],
        )
        for selected, is_initialized in selections
    ]


#: lane, address, space, size of the space
_Refusal = tuple[int, int, str, int]
_RANK_SHIFT, _OFFSET = np.uint64(RANK_SHIFT), np.uint64((1 << RANK_SHIFT) - 1)


def _in_window(addresses: Lanes, base: int) -> Lanes:
    return cast(Lanes, addresses - np.uint64(base) < np.uint64(WINDOW_BYTES))


def _bytes_of(part: Part, bytes_: Lanes) -> Lanes:
    """The offsets in the region of these bytes of each access, without those past the end of an object."""
    offsets: Lanes = part.offsets[:, None] + bytes_
    return offsets if part.inside is None else offsets[bytes_ < part.inside[:, None]]


class MemoryStep:
    """One load, store, atomic or reduction. Calling it with a warp executes it for the active lanes."""

    def __init__(
        self, to: Prepare, instruction: Instruction, kind: str = "", space: str = "", size: int = 0
    ) -> None:
        """``kind``, ``space`` and ``size`` are for one end of a copy, which only uses ``reach``."""
        form = instruction.form
        self.instruction = instruction
        self.kind = kind or instruction.effect.name
        self.space = space or form.space or "generic"
        self.reaches = reachable(instruction, space)
        self.piece = piece_of(instruction)
        #: whether it may access the shared memory of other CTAs of the cluster
        self.remote = reaches_peers(instruction)
        #: whether it is an arrival at an mbarrier
        self.arrives = False
        site = to.program.site_of.get(instruction)
        self.site = site
        self.writes = self.kind != "load"
        self.strong = is_strong(instruction)
        #: whether it counts as redundant if the thread has loaded the same before
        self.reloads = instruction.effect is LOAD and not self.strong
        #: byte offsets of the elements that a vector store does not write
        self.kept: list[int] = []
        #: the bytes that the program uses of what it loads, if not all
        self.used: Lanes | None = None
        #: and how many follow the last one of these, and may be outside
        self.spare = 0
        if size:
            self.bytes = size
            return
        self.type = scalar_type(str(form.modifier("type")))
        self.bytes = to.program.sites[site].bytes if site is not None else self.type.bytes
        if site is None:
            vectors = [len(item.elements) for item in instruction.operands if isinstance(item, Vector)]
            self.bytes *= max(vectors, default=1)
        self.count = max(1, self.bytes // self.type.bytes)
        used = used_bytes(instruction) & ((1 << self.bytes) - 1)
        if used != (1 << self.bytes) - 1:
            self.used = np.array([byte for byte in range(self.bytes) if used >> byte & 1], np.int64)
            self.spare = self.bytes - used.bit_length()
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, address_operand(instruction), self.space, short)
        self.targets = destinations(instruction)
        self.values = stored_readers(to, instruction, self.type) if self.writes else []
        self.kept = [self.type.bytes * element for element in left_out(instruction)] if self.writes else []
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        guard, active = self.guarded(warp)
        lanes = np.flatnonzero(active)
        if not lanes.size:
            return
        addresses = every_lane(self.addresses(warp))[lanes]
        recorder = warp.counters.values
        if recorder is not None and self.kind != "load":
            self._record(
                warp, recorder, lanes, addresses, [every_lane(read(warp)) for read in self.values[-1]]
            )
        parts = self.reach(warp, lanes, addresses)
        if warp.counters.sites is not None and self.site is not None:
            self.tally(warp.counters.sites[self.site], lanes, addresses)
        if self.kind == "load":
            loaded = self._load(warp, parts, guard)
            if recorder is not None:
                self._record(warp, recorder, lanes, addresses, loaded)
        elif self.kind == "store":
            self._store(warp, parts)
        else:
            if warp.counters.targets is not None and self.space in ("global", "generic"):
                inside = ~_in_window(addresses, SHARED_WINDOW)
                inside &= ~_in_window(addresses, LOCAL_WINDOW)
                warp.counters.targets.add(addresses[inside], lanes[inside], are_combined(self.instruction))
            self._atomic(warp, parts, guard)

    # -- addresses -------------------------------------------------------------------------------------------------------

    def reach(self, warp: ReferenceWarp, lanes: Lanes, addresses: Lanes, tracks: bool = True) -> list[Part]:
        """The regions of an access, with the lanes that access them and their byte offsets; ``tracks``: updates footprint and shadow.
        Raises ``MemoryFault``."""
        if self.space == "shared":
            refused, parts = self._shared(warp, lanes, addresses)
        elif self.space == "local":
            refused, part = self._private(warp, warp.local, lanes, addresses)
            parts = [part]
        elif self.space == "generic":
            refused, parts = self._generic(warp, lanes, addresses)
        else:
            refused, parts = self._arena(warp, lanes, addresses)
        if refused:
            raise self._fault(warp, *min(refused))
        for part in parts if tracks else ():
            self._track(warp, part)
            if warp.cta.arena.memory.touched is not None and part.region is warp.cta.arena.region:
                self._note(warp.cta.arena.memory.touched, part)
        return parts

    def _note(self, touched: tuple[Lanes, Lanes], part: Part) -> None:
        """Add the bytes that are read and written to the footprint."""
        if self.kind != "store":
            touched[0][_bytes_of(part, np.arange(self.bytes))] = 1
        if self.writes:
            touched[1][self._written(part)] = 1

    def _written(self, part: Part) -> Lanes:
        """The bytes that each lane writes."""
        inside = np.arange(self.bytes)
        for kept in self.kept:
            inside = inside[(inside < kept) | (inside >= kept + self.type.bytes)]
        return _bytes_of(part, inside)

    def _arena(
        self, warp: ReferenceWarp, lanes: Lanes, addresses: Lanes
    ) -> tuple[list[_Refusal], list[Part]]:
        arena = warp.cta.arena
        parameters = warp.cta.plan.parameter_address
        good, initialized = arena.check(addresses, self.bytes, self.writes, self.reaches, parameters)
        aligned = addresses % np.uint64(self.bytes) == 0
        offsets = (addresses - np.uint64(arena.memory.origin)).astype(np.int64)
        parts: list[Part] = []
        if not good.all() and self.spare:
            within, behind = arena.check(
                addresses, self.bytes - self.spare, self.writes, self.reaches, parameters
            )
            within &= ~good & aligned
            inside = np.full(len(lanes), self.bytes - self.spare)[within]
            parts += _by_shadow(arena.region, lanes[within], offsets[within], behind[within], inside)
            lanes, addresses, offsets = lanes[~within], addresses[~within], offsets[~within]
            good, aligned, initialized = good[~within], aligned[~within], initialized[~within]
        if not good.all():
            piece = 0 if warp.cta.plan.strict == "error" else self.piece
            runs_past, ends, behind = arena.beyond(addresses, self.bytes, piece, self.reaches)
            runs_past &= ~good & aligned
            if runs_past.any() and self.site is not None:
                inside = np.where(ends > addresses, ends - addresses, 0).astype(np.int64)[runs_past]
                for lane, address, end in zip(lanes[runs_past], addresses[runs_past], ends[runs_past]):
                    self._runs_past(warp, int(lane), int(address), int(end))
                parts += _by_shadow(
                    arena.region, lanes[runs_past], offsets[runs_past], behind[runs_past], inside
                )
                lanes, addresses, offsets = lanes[~runs_past], addresses[~runs_past], offsets[~runs_past]
                good, aligned, initialized = good[~runs_past], aligned[~runs_past], initialized[~runs_past]
        good &= aligned
        space = "const" if self.space == "const" else "global"
        refused = [
            (int(lanes[index]), int(addresses[index]), space, 0) for index in np.flatnonzero(~good)[:1]
        ]
        parts += _by_shadow(arena.region, lanes, offsets, initialized)
        return refused, parts

    def _reads_blank(self, warp: ReferenceWarp, part: Part, used: Lanes) -> None:
        """Note a read of uninitialised memory, of the first thread."""
        assert self.site is not None
        blank = part.region.shadow[part.offsets[:, None] + used] == 0
        if part.inside is not None:
            blank &= used < part.inside[:, None]
        index = min(np.flatnonzero(blank.any(1)), key=lambda index: int(part.lanes[index]))
        address = int(part.offsets[index]) + int(used[blank[index].argmax()])
        if part.region is warp.cta.arena.region:
            address += warp.cta.arena.memory.origin
        elif part.region is warp.local:
            address += LOCAL_WINDOW - int(part.lanes[index]) * warp.local_bytes
        else:
            address += SHARED_WINDOW
        read = BlankRead(warp.cta.index, warp.index, int(part.lanes[index]), address)
        own = warp.counters.blank.get(self.site)
        if own is None or read[:3] < own[:3]:
            warp.counters.blank[self.site] = read

    def _runs_past(self, warp: ReferenceWarp, lane: int, address: int, end: int) -> None:
        """Note an access that ends in the padding after an object."""
        assert self.site is not None
        overrun = Overrun(warp.cta.index, warp.index, lane, address, address + self.bytes - end)
        own = warp.counters.beyond.get(self.site)
        if own is None or overrun[:3] != own[:3]:
            merge(warp.counters.beyond, {self.site: overrun})
        elif overrun.farthest > own.farthest:
            warp.counters.beyond[self.site] = own._replace(farthest=overrun.farthest)

    def _shared(self, warp: ReferenceWarp, lanes: Lanes, offsets: Lanes) -> tuple[list[_Refusal], list[Part]]:
        """Shared memory of the CTA and, if the access may reach them, of other CTAs of its cluster; ``offsets`` are addresses in the
        shared window."""
        cta = warp.cta
        if cta.plan.cluster_ctas == 1:
            refused, part = self._private(warp, cta.shared, lanes, offsets)
            return refused, [part]
        refused, parts = [], []
        ranks = offsets >> _RANK_SHIFT
        broken: dict[str, tuple[int, int]] = {}
        for rank in np.unique(ranks).tolist():
            chosen = ranks == rank
            region: Region | None = cta.shared
            rule = None
            if rank != cta.rank:
                region, rule = cta.shared_of(rank, self.arrives) if self.remote else (None, None)
            first = np.flatnonzero(chosen)[0]
            if rule is not None and region is not None:
                position = int(lanes[first]), int(offsets[first])
                broken[rule] = min(broken.get(rule, position), position)
            if region is None:
                refused.append((int(lanes[first]), int(offsets[first]), "shared", 0))
                continue
            bad, part = self._private(warp, region, lanes[chosen], offsets[chosen] & _OFFSET, rank)
            refused += bad
            parts.append(part)
        for rule, (lane, offset) in broken.items():
            breach = Breach(rule, self.instruction, cta.index, warp.index, lane, offset)
            warp.counters.breaches.append(breach)
        return refused, parts

    def _private(
        self, warp: ReferenceWarp, region: Region, lanes: Lanes, where: Lanes, rank: int = 0
    ) -> tuple[list[_Refusal], Part]:
        """The shared memory of the CTA of a rank, or local memory; ``where`` are addresses within it."""
        shared = region is not warp.local
        space, limit = ("shared", warp.cta.plan.shared_bytes) if shared else ("local", warp.local_bytes)
        size = self.bytes - (self.spare if shared else 0)
        good = (where % np.uint64(self.bytes) == 0) & (where <= np.uint64(max(0, limit - size)))
        good &= limit >= size
        good &= shared or self.kind in ("load", "store") or bool(self.reaches & STRAYS)
        refused = [
            (int(lanes[index]), (rank << RANK_SHIFT) + int(where[index]), space, limit)
            for index in np.flatnonzero(~good)[:1]
        ]
        offsets = where.astype(np.int64) if shared else where.astype(np.int64) + lanes * limit
        return refused, Part(region, lanes, offsets, False)

    def _generic(
        self, warp: ReferenceWarp, lanes: Lanes, addresses: Lanes
    ) -> tuple[list[_Refusal], list[Part]]:
        in_shared, in_local = _in_window(addresses, SHARED_WINDOW), _in_window(addresses, LOCAL_WINDOW)
        refused: list[_Refusal] = []
        parts: list[Part] = []
        for kind, inside, base in (("shared", in_shared, SHARED_WINDOW), ("local", in_local, LOCAL_WINDOW)):
            if inside.any() and not self.reaches & bit_of(kind):
                first = np.flatnonzero(inside)[0]
                refused.append((int(lanes[first]), int(addresses[first]) - base, kind, 0))
                inside[:] = False
        if in_shared.any():
            offsets = addresses[in_shared] - np.uint64(SHARED_WINDOW)
            bad, parts = self._shared(warp, lanes[in_shared], offsets)
            refused += bad
        if in_local.any():
            offsets = addresses[in_local] - np.uint64(LOCAL_WINDOW)
            if self.reaches & STRAYS:
                position = int(lanes[in_local][0]), int(offsets[0])
                if warp.cta.plan.strict == "error":
                    refused.append((*position, "local", warp.local_bytes))
                else:
                    breach = Breach("local-order", self.instruction, warp.cta.index, warp.index, *position)
                    warp.counters.breaches.append(breach)
            bad, part = self._private(warp, warp.local, lanes[in_local], offsets)
            refused += bad
            parts = [*parts, part]
        others = ~(in_shared | in_local)
        if others.any():
            bad, more = self._arena(warp, lanes[others], addresses[others])
            refused += bad
            parts += more
        return refused, parts

    def _track(self, warp: ReferenceWarp, part: Part) -> None:
        """Check or update the shadow of memory that is not known to be initialised."""
        if part.initialized:
            return
        region, offsets = part.region, part.offsets
        if self.used is not None:
            if self.site is not None and not region.shadow[_bytes_of(part, self.used)].all():
                self._reads_blank(warp, part, self.used)
            return
        if part.inside is not None:
            if self.kind != "store" and not region.shadow[_bytes_of(part, np.arange(self.bytes))].all():
                self._reads_blank(warp, part, np.arange(self.bytes))
            if self.writes:
                region.shadow[self._written(part)] = 1
            return
        if self.kind != "store" and self.site is not None and region.unwritten(offsets, self.bytes):
            self._reads_blank(warp, part, np.arange(self.bytes))
        if self.kept:
            region.shadow[self._written(part)] = 1
        elif self.writes:
            region.mark(offsets, self.bytes)

    def _fault(self, warp: ReferenceWarp, lane: int, address: int, space: str, limit: int) -> MemoryFault:
        plan = warp.cta.plan
        return memory_fault(
            warp.cta.arena.memory,
            Access(
                self.instruction,
                warp.cta.program.kernel.name,
                self.kind,
                space,
                address,
                self.bytes,
                thread_of(plan, warp.index, lane),
                cta_of(plan, warp.cta.index),
                limit,
                cluster=warp.cta.refusal(address, self.remote, self.arrives) if space == "shared" else None,
                reaches=self.reaches,
                parameters=plan.parameter_address,
            ),
        )

    # -- data ------------------------------------------------------------------------------------------------------------

    def _record(
        self,
        warp: ReferenceWarp,
        recorder: ValueRecorder,
        lanes: Lanes,
        addresses: Lanes,
        values: list[Lanes],
    ) -> None:
        """Record the values of the access, if values are observed."""
        addresses = self.recorded(warp, addresses)
        loader = warp.number if self.reloads else 0
        slots = recorder.slots.get(-1 if self.site is None else self.site, ())
        whole = self.type.bytes >= 4 or not self.kept
        for slot in slots:
            bytes = slot.kind.bits // 8
            element, part = divmod(slot.element * bytes, self.type.bytes)
            if element * self.type.bytes not in self.kept:
                element_values = values[element][lanes]
                if bytes < self.type.bytes:
                    element_values = np.ascontiguousarray(
                        element_values.view(f"u{bytes}")[part // bytes :: self.type.bytes // bytes]
                    )
                stores = self.kind == "store"
                recorder.add(
                    slot,
                    self.space,
                    lanes,
                    addresses,
                    element_values,
                    stores,
                    loader,
                    warp.number,
                    self.strong,
                    (part_of_word(slot, slots) or 0) if whole else 0,
                )

    def recorded(self, warp: ReferenceWarp, addresses: Lanes) -> Lanes:
        """Addresses as they are recorded, those of shared memory relative to the CTA's own."""
        if self.space == "shared" and warp.cta.plan.cluster_ctas > 1:
            own = np.uint64(warp.cta.rank << RANK_SHIFT)
            return (addresses - own) & np.uint64(0xFFFF_FFFF)
        return addresses

    def _load(self, warp: ReferenceWarp, parts: list[Part], guard: Lanes | None) -> list[Lanes]:
        loaded = []
        for element, target in enumerate(self.targets[: self.count]):
            data = np.zeros(32, dtype_of(self.type))
            for region, lanes, offsets, *_ in parts:
                data[lanes] = region.gather(offsets + element * self.type.bytes, self.type)
            if target is not None:
                warp.write(target, LaneValue(data, self.type), guard)
            loaded.append(data)
        return loaded

    def _store(self, warp: ReferenceWarp, parts: list[Part]) -> None:
        for element, read in enumerate(self.values[0][: self.count]):
            if element * self.type.bytes in self.kept:
                continue
            data = every_lane(read(warp))
            for region, lanes, offsets, *_ in parts:
                region.scatter(offsets + element * self.type.bytes, data[lanes], self.type)

    def _atomic(self, warp: ReferenceWarp, parts: list[Part], guard: Lanes | None) -> None:
        operands = [[every_lane(read(warp)) for read in operand] for operand in self.values]
        old = [np.zeros(32, dtype_of(self.type)) for _ in range(self.count)]
        for region, lanes, offsets, *_ in parts:
            meant = self.instruction.form
            if region is not warp.cta.arena.region:
                meant = select(meant, {"space": "shared"})  # nor in local memory: without flushing subnormals
            if offsets.size > 1 and self.count == 1 and (offsets == offsets[0]).all():
                self._queue(meant, region, lanes, offsets[:1], [operand[0] for operand in operands], old[0])
                continue
            ranks = _ranks_at_address(offsets)
            for number in range(int(ranks.max()) + 1):
                now = ranks == number
                self._combine(meant, region, lanes[now], offsets[now], operands, old)
        for target, data in zip(self.targets, old):
            if target is not None:
                warp.write(target, LaneValue(data, self.type), guard)

    def _combine(
        self,
        meant: Form,
        region: Region,
        lanes: Lanes,
        offsets: Lanes,
        operands: list[list[Lanes]],
        old: list[Lanes],
    ) -> None:
        """Combine in lanes with different addresses."""
        for element in range(self.count):
            byte_offsets = offsets + element * self.type.bytes
            before = region.gather(byte_offsets, self.type)
            old[element][lanes] = before
            sources = [LaneValue(operand[element][lanes], self.type) for operand in operands]
            (after,) = evaluate(meant, [LaneValue(before, self.type), *sources])
            region.scatter(byte_offsets, np.broadcast_to(lane_value(after).data, lanes.shape), self.type)

    def _queue(
        self, meant: Form, region: Region, lanes: Lanes, offset: Lanes, operands: list[Lanes], old: Lanes
    ) -> None:
        """Combine lane by lane at one address, without accessing memory in between. With equal operands it stops once the value no
        longer changes."""
        value = region.gather(offset, self.type)
        alike = all((operand[lanes] == operand[lanes[0]]).all() for operand in operands)
        for index, lane in enumerate(lanes):
            old[lane] = value[0]
            sources = [LaneValue(operand[lane : lane + 1], self.type) for operand in operands]
            (after,) = evaluate(meant, [LaneValue(value, self.type), *sources])
            before, value = value, np.broadcast_to(lane_value(after).data, (1,))
            if alike and before[0] == value[0]:
                old[lanes[index:]] = value[0]
                break
        region.scatter(offset, value, self.type)

    # -- counters --------------------------------------------------------------------------------------------------------

    def tally(self, row: list[int], lanes: Lanes, addresses: Lanes, again: bool = False) -> None:
        """Adds to the site's counters; see ``counters.SITE_COLUMNS``. ``again``: a further access of the same instruction."""
        if not again:
            row[_REQUESTS] += 1
            row[_LANES] += int(lanes.size)
        if self.space == "shared":
            self._count_shared(row, lanes, addresses)
        elif self.space == "local":
            row[_LOCAL_SECTORS] += local_sectors(addresses, lanes, self.bytes)
        elif self.space == "global":
            self._count_global(row, lanes, addresses)
        elif self.space == "generic":
            in_shared, in_local = _in_window(addresses, SHARED_WINDOW), _in_window(addresses, LOCAL_WINDOW)
            if in_shared.any():
                row[_SHARED_LANES] += int(in_shared.sum())
                row[_SHARED_REQUESTS] += 1
                self._count_shared(row, lanes[in_shared], addresses[in_shared])
            if in_local.any():
                row[_LOCAL_LANES] += int(in_local.sum())
                row[_LOCAL_REQUESTS] += 1
                offsets = addresses[in_local] - np.uint64(LOCAL_WINDOW)
                row[_LOCAL_SECTORS] += local_sectors(offsets, lanes[in_local], self.bytes)
            others = ~(in_shared | in_local)
            if others.any():
                self._count_global(row, lanes[others], addresses[others])
            else:
                row[_ELSEWHERE] += 1

    def _count_global(self, row: list[int], lanes: Lanes, addresses: Lanes) -> None:
        row[_SECTORS] += sectors(addresses)
        row[_LINES] += sectors(addresses, LINE_BYTES)
        if self.kind == "load":
            row[_GLOBAL_WAVEFRONTS] += wavefronts(addresses, lanes, self.bytes)[0]
        if self.kind in ("atomic", "reduction"):
            row[_SERIALIZATIONS] += serializations(addresses)

    def _count_shared(self, row: list[int], lanes: Lanes, addresses: Lanes) -> None:
        if self.kind in ("atomic", "reduction"):
            row[_SHARED_SERIALIZATIONS] += serializations(addresses)
            needed, ideal = atomic_wavefronts(addresses, lanes, self.bytes)
        else:
            needed, ideal = wavefronts(addresses, lanes, self.bytes, self.kind == "load")
        row[_WAVEFRONTS] += needed
        row[_IDEAL] += ideal


def _ranks_at_address(offsets: Lanes) -> Lanes:
    """For each lane, the number of lower lanes with the same offset."""
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    first = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty_like(first)
    ranks[order] = np.arange(offsets.size) - first
    return ranks
