"""Bulk copies of the reference backend: executed when they are issued, lane by lane, in pieces of 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import MemoryFault
from ..flow.operands import matched
from ..isa.evaluation import evaluate, has_semantics
from ..isa.mbarriers import Mbarrier
from ..isa.spaces import RANK_SHIFT
from ..isa.types import scalar_type
from ..memory.arena import SHARED_WINDOW, WINDOW_BYTES
from ..ptx.syntax import Address, Instruction, Operand
from ..results import SECTOR_BYTES as _SECTOR
from ..simt.clusters import coordinates_of
from ..simt.counters import LINE_BYTES, SITE_COLUMNS
from ..simt.effects import takes_short_addresses, warp_uniform_copy
from ..simt.faults import bad_mbarrier
from .mbarrier import Objects, in_rank, ranks_in, ranks_of
from .memory import MemoryStep, Part, address_reader
from .operands import Guarded, Prepare, every_lane, lane_value, reader
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from ..simt.launch import LaunchPlan
    from .warp import ReferenceWarp

__all__ = [
    "BULK_PIECE",
    "AnswerStep",
    "BulkStep",
    "FillStep",
    "Pattern",
    "SignalStep",
    "Targets",
    "count",
    "in_rank",
    "spans",
    "validity_pattern",
]

_U16, _U32, _U64 = scalar_type("u16"), scalar_type("u32"), scalar_type("u64")
#: bytes of one checked and counted access
BULK_PIECE = 16
#: bytes of a copy that are checked at once
_AT_ONCE = 1 << 14
_WAVEFRONT = 128


def count(warp: ReferenceWarp, site: int, **amounts: int) -> None:
    if warp.counters.sites is not None:
        for name, amount in amounts.items():
            warp.counters.sites[site][SITE_COLUMNS.index(name)] += amount


def spans(address: int, size: int, unit: int) -> int:
    """The number of aligned units that a range of bytes overlaps."""
    return (address + size - 1) // unit - address // unit + 1 if size else 0


class Pattern(NamedTuple):
    """The bit pattern that copies report (manual: "Report Mechanisms for Asynchronous Copy Operations"). The manual samples one
    element of each 16 bytes; here that is the first."""

    code: int
    bits: int
    every: bool

    def is_in(self, data: npt.NDArray[np.uint8]) -> bool:
        if self.every:
            return bool((data == self.code).any())
        return self.matches(data.reshape(-1, BULK_PIECE)[:, : max(1, self.bits // 8)])

    def matches(self, sampled: npt.NDArray[np.uint8]) -> bool:
        """Whether one of these elements, each a row of bytes, has the pattern."""
        wanted = np.frombuffer(self.code.to_bytes(max(1, self.bits // 8), "little"), np.uint8)
        mask = np.uint8(0xFF if self.bits >= 8 else 0xF)
        return bool(((sampled & mask) == wanted).all(axis=1).any())


def validity_pattern(instruction: Instruction) -> Pattern | None:
    """The pattern that a copy reports, or ``None``."""
    kind, _, code = str(instruction.form.modifier("report") or "").rpartition("::")
    if not kind.startswith("mbarrier::report::validity"):
        return None
    return Pattern(int(code, 16), 4 * len(code), kind.endswith("per_element"))


class Targets:
    """The target CTAs of a copy in the cluster, and the mbarriers that it signals."""

    def __init__(
        self, to: Prepare, instruction: Instruction, operands: Mapping[str, Operand], space: str
    ) -> None:
        self.read_ranks = ranks_of(to, instruction)
        self.paired = instruction.form.modifier("group") == "cta_group::2"
        operand = operands.get("m")
        self.mbarriers = Objects(to, instruction, operand, space) if isinstance(operand, Address) else None

    def ranks(self, warp: ReferenceWarp, lane: int) -> list[int] | list[None]:
        """The ranks of a multicast, or ``[None]``: the CTA of the address."""
        if self.read_ranks is None:
            return [None]
        return ranks_in(int(every_lane(self.read_ranks(warp))[lane]))

    @staticmethod
    def address_in(address: int, rank: int | None) -> int:
        """The address with the same offset in the shared memory of the CTA of a rank."""
        return address if rank is None else in_rank(address, rank)

    def signal(
        self, warp: ReferenceWarp, lane: int, rank: int | None, size: int, reports: bool = False
    ) -> None:
        """Complete so many transaction bytes; ``reports``: and report. In a CTA pair, it signals the mbarrier of the CTA whose rank
        has the same parity as that of the mbarrier's address."""
        if self.mbarriers is not None:
            mbarriers = self.mbarriers.read(warp).copy()
            if self.paired and rank is not None:
                rank = rank & ~1 | int(mbarriers[lane]) >> RANK_SHIFT & 1
            mbarriers[lane] = self.address_in(int(mbarriers[lane]), rank)
            if reports:
                self.mbarriers.report(warp, lane, mbarriers)
            self.mbarriers.change(warp, lane, mbarriers, Mbarrier.COMPLETE, 1, size)


class _End:
    """Source or target of a copy."""

    def __init__(
        self, to: Prepare, instruction: Instruction, operand: Address, space: str, kind: str
    ) -> None:
        self.space = space
        self.addresses = address_reader(to, operand, space)
        self.access = MemoryStep(to, instruction, kind, space, BULK_PIECE)
        self.single = MemoryStep(to, instruction, kind, space, 1)

    def byte(self, warp: ReferenceWarp, lane: int, address: int) -> Part:
        """The location of a byte. Raises ``MemoryFault`` if the address is invalid."""
        (part,) = self.single.reach(warp, np.array([lane]), np.array([address], np.uint64))
        return part

    def pieces(self, warp: ReferenceWarp, lane: int, address: int, size: int) -> list[Part]:
        """The locations of pieces of 16 bytes, in order. Raises ``MemoryFault`` for the first invalid one."""
        parts: list[Part] = []
        for start in range(0, size, _AT_ONCE):
            piece = self.part(warp, lane, address + start, min(_AT_ONCE, size - start))
            parts = parts or piece
        return parts

    def part(self, warp: ReferenceWarp, lane: int, address: int, size: int) -> list[Part]:
        """``pieces`` of so few bytes that one check covers them."""
        addresses = np.uint64(address % (1 << 64)) + np.arange(0, size, BULK_PIECE, dtype=np.uint64)
        return self.access.reach(warp, np.repeat(lane, addresses.size), addresses)


class BulkStep:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        form = instruction.form
        self.instruction = instruction
        self.combines = has_semantics(form)
        self.once = warp_uniform_copy(instruction)
        self.type = scalar_type(str(form.modifier("type"))) if self.combines else _U32
        spaces = {name: str(form.modifier(name)).split("::")[0] for name in ("dst", "src")}
        source, target = operands["a"], operands["d"]
        assert isinstance(source, Address)
        assert isinstance(target, Address)
        self.source = _End(to, instruction, source, spaces["src"], "load")
        self.target = _End(to, instruction, target, spaces["dst"], "reduction" if self.combines else "store")
        self.read_size = reader(to, operands["size"], _U32)
        self.targets = Targets(to, instruction, operands, spaces["dst"])
        self.read_bytes = reader(to, operands["bytes"], _U16) if "bytes" in operands else None
        self.read_edges = [reader(to, operands[name], _U32) for name in ("left", "right") if name in operands]
        self.pattern = validity_pattern(instruction)
        self.guarded = Guarded(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: ReferenceWarp) -> None:
        active = self.guarded(warp)[1]
        lanes = np.flatnonzero(active).tolist()[: 1 if self.once else None]
        if not lanes:
            return
        count(warp, self.site, requests=1)
        sources, targets = every_lane(self.source.addresses(warp)), every_lane(self.target.addresses(warp))
        sizes = every_lane(self.read_size(warp))
        for lane in lanes:
            size, source, target = int(sizes[lane]), int(sources[lane]), int(targets[lane])
            if size % BULK_PIECE:
                raise bad_mbarrier(warp.position(), self.instruction, lane, Mbarrier.SIZE, target, 0, size)
            edges = [int(every_lane(read(warp))[lane]) for read in self.read_edges]
            for edge in edges:
                if edge >= BULK_PIECE:
                    raise bad_mbarrier(
                        warp.position(), self.instruction, lane, Mbarrier.EDGE, target, 0, edge
                    )
            for copy, rank in enumerate(self.targets.ranks(warp, lane)):
                address = self.targets.address_in(target, rank)
                operands = None
                if any(edges) and size:
                    self._move_within(warp, lane, source, address, size, *edges)
                else:
                    operands = self._move(warp, lane, source, address, size)
                reports = self.pattern is not None and self._is_reported(warp, lane, source, size)
                self.targets.signal(warp, lane, rank, size, reports)
                self._tally(warp, source, address, size, again=copy > 0)
                if warp.counters.values is not None and not copy:
                    outer = source if self.source.space == "global" else address
                    left, right = edges or (0, 0)
                    recorded = max(0, size - left - right)
                    chosen = self._chosen(warp, lane)
                    warp.counters.values.add_range(self.site, outer + left, recorded, operands, chosen)

    def _move(self, warp: ReferenceWarp, lane: int, source: int, target: int, size: int) -> Lanes | None:
        """Perform one copy; for a reduction, only return its operands."""
        operands = None
        sources, targets = self._reach(warp, lane, source, target, size)
        for source_part, target_part in zip(sources, targets):
            first, last = int(source_part.offsets[0]), int(target_part.offsets[0])
            data = source_part.region.bytes[first : first + size]
            into = target_part.region.bytes[last : last + size]
            if self.combines:
                operands = data.copy()
                dtype = dtype_of(self.type)
                old, new = (
                    LaneValue(into.view(dtype), self.type),
                    LaneValue(operands.view(dtype), self.type),
                )
                (combined,) = evaluate(self.instruction.form, [old, new])
                into[:] = np.ascontiguousarray(lane_value(combined).data).view(np.uint8)
            elif self.read_bytes is not None:
                bits = self._chosen(warp, lane)
                chosen = np.resize([bool(bits >> bit & 1) for bit in range(BULK_PIECE)], size)
                into[chosen] = data[chosen]
            else:
                into[:] = data.copy()
        return operands

    def _chosen(self, warp: ReferenceWarp, lane: int) -> int:
        """The byte mask of a copy, with a bit for each of 16 bytes."""
        return 0xFFFF if self.read_bytes is None else int(every_lane(self.read_bytes(warp))[lane])

    def _reach(
        self, warp: ReferenceWarp, lane: int, source: int, target: int, size: int
    ) -> tuple[list[Part], list[Part]]:
        """The locations of source and target. Raises ``MemoryFault`` for the first invalid piece of either; checks in chunks, so
        that a huge size does not cost more than the memory up to it."""
        sources: list[Part] = []
        targets: list[Part] = []
        for start in range(0, size, _AT_ONCE):
            length = min(_AT_ONCE, size - start)
            try:
                source_parts = self.source.part(warp, lane, source + start, length)
                target_parts = self.target.part(warp, lane, target + start, length)
            except MemoryFault:
                for offset in range(start, start + length, BULK_PIECE):
                    self.source.part(warp, lane, source + offset, BULK_PIECE)
                    self.target.part(warp, lane, target + offset, BULK_PIECE)
                raise
            sources, targets = sources or source_parts, targets or target_parts
        return sources, targets

    def _move_within(
        self, warp: ReferenceWarp, lane: int, source: int, target: int, size: int, left: int, right: int
    ) -> None:
        """A copy that ignores so many bytes at its ends; the first and last 16 bytes are copied byte by byte."""
        first, last = BULK_PIECE * (left > 0), size - BULK_PIECE * (right > 0)
        if left:
            self._move_bytes(warp, lane, source, target, range(left, min(first, size - right)))
        if first < last:
            self._move(warp, lane, source + first, target + first, last - first)
        if right and last >= first:
            self._move_bytes(warp, lane, source, target, range(last, size - right))

    def _move_bytes(self, warp: ReferenceWarp, lane: int, source: int, target: int, offsets: range) -> None:
        """Copy these of 16 bytes, one by one."""
        self.target.part(warp, lane, target + offsets.start // BULK_PIECE * BULK_PIECE, BULK_PIECE)
        for offset in offsets:
            source_part = self.source.byte(warp, lane, source + offset)
            target_part = self.target.byte(warp, lane, target + offset)
            target_part.region.bytes[int(target_part.offsets[0])] = source_part.region.bytes[
                int(source_part.offsets[0])
            ]

    def _is_reported(self, warp: ReferenceWarp, lane: int, source: int, size: int) -> bool:
        """Whether the copied bytes contain the pattern of invalid data."""
        for part in self.source.pieces(warp, lane, source, size):
            first = int(part.offsets[0])
            if self.pattern is not None and self.pattern.is_in(part.region.bytes[first : first + size]):
                return True
        return False

    def _tally(self, warp: ReferenceWarp, source: int, target: int, size: int, again: bool) -> None:
        """Count one copy; ``again``: of the same bytes to another CTA."""
        address = source if self.source.space == "global" else target
        if "global" in (self.source.space, self.target.space) and not again:
            sectors, lines = spans(address, size, _SECTOR), spans(address, size, LINE_BYTES)
            count(warp, self.site, sectors=sectors, lines=lines)
        if self.combines and self.target.space == "global" and warp.counters.targets is not None:
            warp.counters.targets.add_bytes(np.array([target], np.uint64), size)
        waves = -(-size // _WAVEFRONT)
        count(warp, self.site, lanes=0 if again else size // BULK_PIECE, wavefronts=waves, ideal=waves)


class FillStep:
    """``st.bulk``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        target = operands["a"]
        assert isinstance(target, Address)
        self.instruction = instruction
        space = instruction.form.space or "generic"
        self.generic = space == "generic"
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, target, space, short)
        self.access = MemoryStep(to, instruction, "store", space, 8)
        self.read_size = reader(to, operands["bytes"], _U64)
        self.guarded = Guarded(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: ReferenceWarp) -> None:
        lanes = np.flatnonzero(self.guarded(warp)[1]).tolist()
        if not lanes:
            return
        count(warp, self.site, requests=1)
        addresses, sizes = every_lane(self.addresses(warp)), every_lane(self.read_size(warp))
        for lane in lanes:
            size, address = int(sizes[lane]), int(addresses[lane])
            if self.generic and not 0 <= address - SHARED_WINDOW < WINDOW_BYTES:
                raise bad_mbarrier(
                    warp.position(), self.instruction, lane, Mbarrier.NOT_SHARED, address, 0, 0
                )
            if size % 8:
                raise bad_mbarrier(warp.position(), self.instruction, lane, Mbarrier.WORDS, address, 0, size)
            for offset in range(0, size, 8):
                word = np.array([address + offset], np.uint64)
                (part,) = self.access.reach(warp, np.array([lane]), word)
                start = int(part.offsets[0])
                part.region.bytes[start : start + 8] = 0
            waves = -(-size // _WAVEFRONT)
            count(warp, self.site, lanes=size // 8, wavefronts=waves, ideal=waves)


class AnswerStep:
    """``clusterlaunchcontrol.try_cancel``: cancels the next cluster that has not started."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        target, mbarriers = operands["a"], operands["m"]
        assert isinstance(target, Address)
        assert isinstance(mbarriers, Address)
        self.instruction = instruction
        space = instruction.form.space or "generic"
        self.generic = space == "generic"
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, target, space, short)
        self.access = MemoryStep(to, instruction, "store", "shared", BULK_PIECE)
        self.mbarriers = Objects(to, instruction, mbarriers, space)
        self.everywhere = bool(instruction.form.modifier("multicast"))
        self.guarded = Guarded(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: ReferenceWarp) -> None:
        lanes = np.flatnonzero(self.guarded(warp)[1]).tolist()
        if not lanes:
            return
        count(warp, self.site, requests=1)
        addresses, mbarriers = every_lane(self.addresses(warp)), self.mbarriers.read(warp)
        ranks = range(warp.cta.plan.cluster_ctas) if self.everywhere else [None]
        # the time slice ends at the next back edge, so that resident CTAs alternate in taking clusters
        warp.quantum = 0
        for lane in lanes:
            answer = _answer(warp.cta.plan, warp.cta.cluster.pending.cancel())
            for number, rank in enumerate(ranks):
                self._respond(warp, lane, int(addresses[lane]), mbarriers.copy(), rank, answer)
                count(warp, self.site, lanes=int(number == 0), wavefronts=1, ideal=1)

    def _respond(
        self,
        warp: ReferenceWarp,
        lane: int,
        address: int,
        mbarriers: Lanes,
        rank: int | None,
        answer: Lanes,
    ) -> None:
        base = SHARED_WINDOW if self.generic else 0
        if self.generic and not 0 <= address - base < WINDOW_BYTES:
            raise bad_mbarrier(warp.position(), self.instruction, lane, Mbarrier.NOT_SHARED, address, 0, 0)
        offset, object_ = address - base, int(mbarriers[lane])
        if rank is not None:
            offset = in_rank(offset, rank)
            mbarriers[lane] = (
                base + in_rank(object_ - base, rank) if 0 <= object_ - base < WINDOW_BYTES else object_
            )
        (part,) = self.access.reach(warp, np.array([lane]), np.array([offset], np.uint64))
        start = int(part.offsets[0])
        part.region.bytes[start : start + BULK_PIECE] = answer
        self.mbarriers.change(warp, lane, mbarriers, Mbarrier.COMPLETE, 1, BULK_PIECE)


def _answer(plan: LaunchPlan, cancelled: int | None) -> Lanes:
    """The response to a request: 1 and the first CTA of the cancelled cluster, or zeros."""
    words = (0,) * 4
    if cancelled is not None:
        words = (1, *coordinates_of(plan, cancelled * plan.cluster_ctas)[0])
    return np.array(words, "<u4").view(np.uint8)


class SignalStep:
    """``st.async`` and ``red.async``: performs the access, then completes the bytes of each lane at its mbarrier."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.access = MemoryStep(to, instruction)
        slot, mbarriers = next((slot, item) for slot, item in matched(instruction) if slot.name == "m")
        assert isinstance(mbarriers, Address)
        self.mbarriers = Objects(
            to, instruction, mbarriers, slot.space or instruction.form.space or "generic"
        )

    def __call__(self, warp: ReferenceWarp) -> None:
        self.access(warp)
        _, active = self.access.guarded(warp, counts=False)
        addresses = self.mbarriers.read(warp)
        for lane in np.flatnonzero(active).tolist():
            self.mbarriers.change(warp, lane, addresses, Mbarrier.COMPLETE, 1, self.access.bytes)
