"""Machine code as a PTX kernel that records where its warps go and which addresses they access, and does as little else as it can.

For each block that a warp executes it writes the number of the block, the lanes that execute it, and for each access of the block the
addresses of the 32 lanes, in words of four bytes.

Nothing waits for an mbarrier: the simulation says when warps go on (``sass.sm``). What signals and tests of them name is recorded, by
lanes, and what a bulk or tensor copy names, in a word for each field (``FIELDS``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...device.device import Runtime
from ...device.inputs import KEPT_BYTES
from ...errors import BudgetExceeded, EngineError
from ...profile.build import LaunchRecord
from ...ptx.module import Function
from ...ptx.parse import parse
from ...simt.program import build_program
from ..assemble import Assembly
from ..graph import Graph
from ..listing import NEVER, Decoded
from ..registers import COPIES
from .asynchronous import (
    COORDINATES,
    HIGH,
    LOW,
    MASK,
    PARAMETERS,
    SHARED,
    copy_fields,
    recorded,
    without_waiting,
)
from .needed import LOADS, STORES, Needed, needed_of
from .operands import Address, read_operand
from .paths import Node, nodes_of, without_slow_paths
from .translate import Translator, cubin_of, label_of, meeting
from .writer import WITHIN, NotRun, Writer

__all__ = ["OFF", "Site", "Trace", "Tracer"]
#: the address of a lane that is off
OFF = 0xFFFFFFFF
#: words of a record: the block and its lanes, then those of each access
_HEAD, _LANES = 2, 32
_MOST_WORDS = 1 << 28
_FIRST_WORDS = 1 << 16
#: warp instructions that recording takes: of a word, and of an instruction of the launch, at most
_OF_WORD, _OF_INSTRUCTION = 64, 64
#: words that a block with copies records, at most
_MOST_OF_BLOCK = 1 << 12
#: of the words of a warp that are enough: those of all its blocks count, not of those with copies alone
_BEGINNING = 1 << 31


@dataclass(frozen=True, slots=True)
class Site:
    """An access that is recorded: the position of its instruction, which address of it, and the memory that it accesses; ``mbarrier``
    and ``value``: where a signal or test of one goes, and its operand, ``copy``: the fields of a copy; ``generic``: global, or
    shared where the upper words of the addresses, which ``window`` records, say so."""

    position: int
    operand: int
    space: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Of some CTAs of a launch. ``words[cta][warp]``: what a warp recorded; ``last[cta, warp, site]``: the word that the last access
    of each site of global memory accessed, ``OFF`` if it made none; ``used[cta, warp]``: words that a warp would record.
    ``copied``, ``written``, ``read``: the first and the last place in shared memory to which copies write, to which stores go that are
    not carried out, and from which what decides is loaded."""

    words: list[list[NDArray[np.uint32]]]
    last: NDArray[np.uint32]
    used: NDArray[np.uint32]
    copied: tuple[int, int] | None = None
    written: tuple[int, int] | None = None
    read: tuple[int, int] | None = None


class _Tracing(Translator):
    own_bytes = 80

    def __init__(self, kernel: Function, assembly: Assembly, graph: Graph) -> None:
        super().__init__(kernel, assembly, graph, cubin_of(assembly), nodes_of(graph))
        self.nodes, self.settled = without_slow_paths(graph, self.nodes)
        self.to.apart = any("SR_CgaCtaId" in item.text for item in graph.listing.instructions)
        self.needed: Needed = needed_of(graph, self.nodes, self.settled)
        if self.needed.atomics:  # CTAs that are not traced take part in them
            raise NotRun("its control flow or addresses depend on results of its atomics")
        items = [
            graph.listing.instructions[at] for block in graph.blocks for at in range(block.start, block.end)
        ]
        reads_shared = bool(self.needed.spaces & {"shared", "any"})
        #: whether something writes to memory whose contents decide that is not carried out: where both are is recorded
        self.both = bool(self.needed.left) or (reads_shared and any(item.base in COPIES for item in items))
        self.both &= bool(self.needed.spaces)
        #: whether warps may pass on what decides in shared memory by mbarriers, for which nothing waits here
        self.passes_on = reads_shared and any(item.base in ("SYNCS", "ARRIVES") for item in items)
        self.sites: list[Site] = []
        self.of_block: dict[int, list[int]] = {}
        for block in graph.blocks:
            self.of_block[block.index] = own = []
            for position in range(block.start, block.end):
                for operand, space in _recorded(graph.listing.instructions[position]):
                    own.append(len(self.sites))
                    self.sites.append(Site(position, operand, space))

    def block(self, node: Node) -> None:
        to, sites = self.to, iter(self.of_block[node.block.index])
        self.prologue(node)
        number = 0
        for position in range(node.block.start, node.block.end):
            item = self.graph.listing.instructions[position]
            to.encoding = item.encoding
            to.guard = ""
            if position in self.settled:
                to.line(f"bra.uni {label_of(next(iter(node.onward.values())))}")
                continue
            try:
                to.guard = self.guard_of(item.predicate)
                for operand, space in _recorded(item):
                    self.record(item, operand, next(sites), number)
                    number += 1
                    if self.both and position in self.needed.positions and item.base in LOADS:
                        self.record_reach(_READ, item, operand, space)
                    elif self.both and position in self.needed.left:
                        self.record_reach(_WRITTEN, item, operand, space)
                if position == node.block.end - 1 and self.control(node, item):
                    continue
                carried_out = position in self.needed.positions or item.base in _MEETS
                if carried_out and not without_waiting(item, to):
                    self.ordinary(item)
            except NotRun as reason:
                to.stop(f"{reason} ({item.address:#06x} {item.text})")

    def prologue(self, node: Node) -> None:
        to, block = self.to, node.block.index
        size = _HEAD + _LANES * len(self.of_block[block])
        to.guard = ""
        to.line("ld.global.u32 %Tnow, [%Tcursor]")
        copies = any(self.sites[site].space == "copy" for site in self.of_block[block])
        # of CTAs of which copies alone are recorded, or what they begin with, a warp ends when it has recorded enough
        to.line(f"setp.gt.u32 %Troom, %Tnow, %{'Tenough' if copies else 'Tuntil'}")
        to.line("@%Troom exit")
        to.line(f"add.u32 %Tend, %Tnow, {size}")
        if not copies:
            to.line("selp.u32 %Tend, %Tend, %Tnow, %Tcounts")
        to.line("st.global.u32 [%Tcursor], %Tend")
        to.line("setp.le.u32 %Troom, %Tend, %Tcapacity")
        if not copies:
            to.line("and.pred %Troom, %Troom, %Tall")
        to.line("mad.wide.u32 %Tplace, %Tnow, 4, %Twords")
        to.line("activemask.b32 %Tmask")
        to.line(f"mov.u32 %Tblock, {block}")
        to.line("@%Troom st.global.v2.u32 [%Tplace], {%Tblock, %Tmask}")
        if self.of_block[block]:
            to.line("add.u64 %Tplace, %Tplace, %Tlane")

    def record(self, item: Decoded, operand: int, site: int, number: int) -> None:
        to, space = self.to, self.sites[site].space
        if space == "copy":
            self.record_copy(item, number)
            return
        if space == "value":
            held = to.r("mov.b32", OFF)
            value = read_operand(item.operands[operand])
            to.do(f"mov.b32 {held}, {'0' if isinstance(value, Address) else to.word(value)}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        where = read_operand(item.operands[operand])
        if space == "window":
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, {to.high(to.pointer(where))}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        near = space in ("shared", "local", "mbarrier")
        text = to.address32(where) if near else to.address64(where)
        base, sign, offset = _ADDRESS.match(text).groups()  # type: ignore[union-attr]
        if near:
            word = to.r("shr.u32", to.r("add.u32", base, f"{sign or ''}{offset or 0}".lstrip("+")), 2)
        else:
            moved = to.q("add.u64", base, f"{sign or ''}{offset or 0}".lstrip("+"))
            word = to.low(to.q("shr.u64", moved, 2))
        held = to.r("mov.b32", OFF)
        to.do(f"mov.b32 {held}, {word}")
        to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
        if space in ("global", "generic"):
            to.do(f"st.global.u32 [%Tlast+{4 * site}], {word}")

    def record_copy(self, item: Decoded, number: int) -> None:
        """The fields of a copy, as the first lane has them that issues it."""
        to = self.to
        fields = copy_fields(item, to)
        lanes, below, mask = to.fresh("r"), to.fresh("r"), to.fresh("r")
        to.line(f"activemask.b32 {lanes}")
        to.line(f"mov.u32 {below}, %lanemask_lt")
        to.line(f"vote.sync.ballot.b32 {mask}, {to.guard.strip()[1:] or '%PT'}, {lanes}")
        start = to.q("sub.u64", "%Tplace", "%Tlane")

        def store(lanes: str, guarded: str, field: int, value: str) -> None:
            first = to.p("and.pred", to.p("setp.eq.u32", to.r("and.b32", lanes, below), 0), guarded)
            to.line(f"@{first} st.global.u32 [{start}+{4 * (_HEAD + _LANES * number + field)}], {value}")

        for field in (LOW, HIGH):
            store(lanes, "%Troom", field, str(OFF))
        guard = to.predicate(read_operand(item.predicate[1:])) if item.predicate else "%PT"
        issued = to.p("and.pred", guard, "%Troom")
        for field in range(COORDINATES + 5):
            store(mask, issued, field, fields.get(field, "0" if field == MASK else str(OFF)))
        if self.both and SHARED in fields and item.base not in _FROM_SHARED:
            self.reaches(_COPIED, fields[SHARED])

    def record_reach(self, first: int, item: Decoded, operand: int, space: str) -> None:
        """Where what decides is loaded, or where a store that is not carried out goes."""
        where = read_operand(item.operands[operand])
        if space in ("shared", "generic"):
            text = (
                self.to.address32(where) if space == "shared" else f"[{self.to.low(self.to.pointer(where))}]"
            )
            base, sign, offset = _ADDRESS.match(text).groups()  # type: ignore[union-attr]
            self.reaches(first, self.to.r("add.u32", base, f"{sign or ''}{offset or 0}".lstrip("+")))
        if space in ("global", "generic"):
            base, sign, offset = _ADDRESS.match(self.to.address64(where)).groups()  # type: ignore[union-attr]
            moved = self.to.q("add.u64", base, f"{sign or ''}{offset or 0}".lstrip("+"))
            self.reach(first + _GLOBAL, self.to.low(self.to.q("shr.u64", moved, _GRAIN_BITS)))

    def reaches(self, first: int, address: str) -> None:
        """Of shared memory."""
        self.reach(first, self.to.r("and.b32", address, WITHIN))

    def reach(self, first: int, place: str) -> None:
        """The least of a warp's places, and of their complements, behind the sites of ``last``."""
        at = 4 * (max(1, len(self.sites)) + first)
        self.to.do(f"red.global.min.u32 [%Tlast+{at}], {place}")
        self.to.do(f"red.global.min.u32 [%Tlast+{at + 4}], {self.to.r('not.b32', place)}")

    def launch_constant(self, to: Writer, offset: int, index: str, kind: str) -> str:
        within = offset - (self.bank.pointer or 0)
        if self.bank.pointer is not None and within in (0, 4) and not index:
            return str(PARAMETERS) if within else str(self.bank.parameters)
        if offset == self.bank.explicit:  # a launch with clusters of one CTA is taken for one without
            return to.r("min.u32", to.r("sub.u32", "%Tcn", 1), 1)
        return super().launch_constant(to, offset, index, kind)

    def ordinary(self, item: Decoded) -> None:
        """What would wait for warps of which nothing is recorded, or that have recorded enough, does not, where copies alone are
        recorded. Of what is in shared memory all warps may have stored a part: all run, and meet where the whole CTA does."""
        shared = self.needed.spaces & {"shared", "any"}
        if item.base in _MEETS:
            # each CTA runs by itself
            if shared:
                self.to.do("barrier.sync 0")
            return
        whole = shared and len(item.operands) < 2
        if item.base == "BAR" and not self.to.guard and not whole:
            self.to.guard = "@%Tall "
        super().ordinary(item)

    def setup(self, offset: int) -> list[str]:
        names = ("words", "cursors", "last", "table")
        lines = [
            ".reg .b32 %Tnow, %Tend, %Tcapacity, %Tmask, %Tblock, %Tcta, %Twarp, %Tx, %Ty, %Tz, %TX, %TY, %TZ, %Tn, %Tm;",
            ".reg .b32 %Tenough, %Tuntil, %Tcx, %Tcy, %Tcz, %Tcn, %Trank;",
            ".reg .b64 %Tplace, %Twords, %Tcursor, %Tlane, %Tlast, %Tq, %Tcursors, %Ttable, %Tfirst;",
            ".reg .pred %Troom, %Tall, %Tcounts;",
            *(f"ld.param.u64 %T{name}, [C+{offset + 8 * number}];" for number, name in enumerate(names)),
            *(f"ld.param.u32 %T{axis}, [C+{offset + 32 + 4 * number}];" for number, axis in enumerate("XYZ")),
            # the warp in its CTA, and among all
            "mov.u32 %Tn, %tid.z; mov.u32 %Tm, %ntid.y; mov.u32 %Tblock, %tid.y; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock;",
            "mov.u32 %Tm, %ntid.x; mov.u32 %Tblock, %tid.x; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock; shr.u32 %Tn, %Tn, 5;",
            f"mov.u32 %Tcta, %ctaid.x; ld.param.u32 %Tm, [C+{offset + 44}]; mad.lo.u32 %Twarp, %Tcta, %Tm, %Tn;",
            # of each CTA its place in the grid, the words that a warp may record, and where those of its first warp begin
            "mad.wide.u32 %Tq, %Tcta, 32, %Ttable; ld.global.u32 %Tx, [%Tq]; ld.global.u32 %Ty, [%Tq+4];",
            "ld.global.u32 %Tz, [%Tq+8]; ld.global.u32 %Tcapacity, [%Tq+12]; ld.global.u64 %Tfirst, [%Tq+16];",
            # of CTAs of which copies alone are recorded how many words, and of which warps
            "ld.global.u32 %Tenough, [%Tq+24]; ld.global.u32 %Tm, [%Tq+28]; setp.eq.u32 %Tall, %Tenough, 0xFFFFFFFF;",
            # all of them count where a bit says so
            f"setp.ge.u32 %Tcounts, %Tenough, {_BEGINNING}; selp.u32 %Tuntil, %Tenough, 0xFFFFFFFF, %Tcounts;",
            f"@%Tcounts sub.u32 %Tuntil, %Tuntil, {_BEGINNING};",
            "shr.u32 %Tm, %Tm, %Tn; and.b32 %Tm, %Tm, 1; setp.eq.u32 %Troom, %Tm, 0; @%Troom exit;",
            *(
                f"ld.param.u32 %Tc{axis}, [C+{offset + 48 + 4 * number}];"
                for number, axis in enumerate("xyz")
            ),
            "mul.lo.u32 %Tcn, %Tcx, %Tcy; mul.lo.u32 %Tcn, %Tcn, %Tcz; rem.u32 %Trank, %Tz, %Tcz;",
            *(f"rem.u32 %Tm, %T{a}, %Tc{a}; mad.lo.u32 %Trank, %Trank, %Tc{a}, %Tm;" for a in "yx"),
            "mul.wide.u32 %Tq, %Tn, %Tcapacity; add.u64 %Tq, %Tq, %Tfirst; shl.b64 %Tq, %Tq, 2; add.u64 %Twords, %Twords, %Tq;",
            "mad.wide.u32 %Tcursor, %Twarp, 4, %Tcursors;",
            f"mul.wide.u32 %Tq, %Twarp, {4 * (max(1, len(self.sites)) + _REACHES)}; add.u64 %Tlast, %Tlast, %Tq;",
            "mov.u32 %Tm, %laneid; mul.wide.u32 %Tlane, %Tm, 4;",
        ]
        # the grid that is launched is one of the CTAs that are looked at
        for axis in "xyz":
            replaced = ((f"%ctaid.{axis}", f"%T{axis}"), (f"%nctaid.{axis}", f"%T{axis.upper()}"))
            for old, new in (*replaced, (f"%cluster_nctaid.{axis}", f"%Tc{axis}")):
                self.to.lines = [line.replace(old, new) for line in self.to.lines]
        for old, new in (("%cluster_ctarank", "%Trank"), ("%cluster_nctarank", "%Tcn")):
            self.to.lines = [line.replace(old, new) for line in self.to.lines]
        return [
            statement.strip() + ";" for line in lines for statement in line.split(";") if statement.strip()
        ]


#: behind the sites of ``last``, of shared and then of global memory: the least place to which stores that are not carried out go, the
#: complement of the greatest, and those of loads that decide; then those of shared memory to which copies write
_WRITTEN, _READ, _GLOBAL, _COPIED, _REACHES = 0, 2, 4, 8, 10
#: bits of an address that tell no two places of global memory apart
_GRAIN_BITS = 8
#: where warps of all CTAs of a cluster meet
_MEETS = frozenset(["UCGABAR_WAIT"])
#: copies that read shared memory
_FROM_SHARED = frozenset(["UTMASTG", "UTMAREDG", "UBLKRED"])
_ADDRESS = re.compile(r"\[(%?\w+)([+-])?(\d+)?\]$")


def _recorded(item: Decoded) -> list[tuple[int, str]]:
    """Of an instruction the operands that are addresses which are recorded, and in what memory they are."""
    if item.predicate in NEVER:
        return []
    if item.base not in LOADS and item.base not in STORES:
        return recorded(item)
    places = [place for place, text in enumerate(item.operands) if isinstance(read_operand(text), Address)]
    if item.base == "LDGSTS":
        return [(places[0], "shared"), (places[1], "global")]
    space = LOADS.get(item.base) or STORES[item.base]
    if space == "any" and places:
        return [(places[0], "generic"), (places[0], "window")]
    return [(places[0], space)] if places else []


class Tracer:
    """One kernel, for one architecture."""

    def __init__(self, kernel: Function, assembly: Assembly, graph: Graph) -> None:
        written = _Tracing(kernel, assembly, graph)
        self.translation = written.whole()
        #: 90 for ``sm_90a``
        self.number = int(assembly.architecture[3:].rstrip("af"))
        self.sites, self.of_block = written.sites, written.of_block
        #: whether what it loads decides where it goes or what it accesses
        self.reads_memory = bool(written.needed.spaces & {"global", "any"})
        self.reads_shared = bool(written.needed.spaces & {"shared", "any"})
        self.passes_on = written.passes_on
        #: where in the parameter buffer of a launch a constant of bank 0 is
        self.parameter_at = written.parameter_at
        self.graph = graph
        try:
            self.kernel = parse(self.translation.text, path="machine code")["machine_code"]
            lines = {item.span.line: item for item in self.kernel.instructions}
            self.kernel.memo["program"] = build_program(self.kernel, meeting(self.translation, lines))
        except EngineError as error:
            raise NotRun(f"it cannot be translated to PTX: {error.message}") from None

    def copies(self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int, warps: int) -> Trace:
        """Of these CTAs what the first copies record, so many words of each warp among ``warps`` (bits)."""
        # what such warps load from shared memory may be what others have stored
        mask = 0xFFFFFFFF if self.reads_shared else warps
        return self._attempt(record, ctas, len(ctas), words + _MOST_OF_BLOCK, (words, mask))

    def beginnings(
        self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int
    ) -> NDArray[np.uint32]:
        """``Trace.last`` of these CTAs, of whose warps only what comes before they would have recorded so many words is run."""
        return self._attempt(record, ctas, 0, 0, (_BEGINNING + words, 0xFFFFFFFF)).last

    def trace(self, record: LaunchRecord, ctas: list[tuple[int, int, int]], full: int) -> Trace:
        """Of these CTAs of a launch, with all that the first ``full`` of them record; of the others only ``last``."""
        everything = OFF, 0xFFFFFFFF
        if self.passes_on:  # one CTA tells
            self._attempt(record, ctas[:1], 1, 0, everything, "note")
        first = self._attempt(record, ctas, full, _FIRST_WORDS, everything)
        wanted = int(first.used[:full].max(initial=0))
        if wanted <= _FIRST_WORDS:
            return first
        capacity = -(-wanted // 1024) * 1024
        if capacity * record.plan.warps_per_cta * full > _MOST_WORDS:
            raise NotRun("its CTAs execute too many instructions to be recorded")
        # of the others all is known
        again = self._attempt(record, ctas[:full], full, capacity, everything)
        return replace(
            again,
            last=first.last,
            used=first.used,
            copied=first.copied,
            written=first.written,
            read=first.read,
        )

    def _device(self, record: LaunchRecord, room: int, races: str, full: int) -> Runtime:
        """With so many bytes of memory, and with that of the launch if it is read; ``full``: CTAs of which all is recorded. Raises
        ``NotRun`` if memory was not kept."""
        plan, budget = record.plan, _budget(record, full)
        if not self.reads_memory:
            return Runtime(set(), memory_bytes=room, races=races, max_instructions=budget)
        if plan.inputs is None:
            raise NotRun(
                "its control flow or addresses depend on values loaded from global memory, and memory contents were not kept "
                f'(observe={{"inputs"}}, for {KEPT_BYTES >> 20} MiB at most)'
            )
        theirs = plan.inputs.memory
        if theirs.mapped:
            raise NotRun(
                "its control flow or addresses depend on values loaded from global memory, which belongs to a program"
            )
        device = Runtime(set(), memory_bytes=room + theirs.capacity, races=races, max_instructions=budget)
        device.memory.mirror(plan.inputs.saved, theirs.allocations)
        return device

    def _address_of(self, record: LaunchRecord, name: str) -> bytes:
        """Of a variable of the module, where that matters."""
        inputs = record.plan.inputs
        if not self.reads_memory or inputs is None:
            return bytes(8)
        return inputs.address(record.program.kernel.module.variable(name)).to_bytes(8, "little")

    def _attempt(
        self,
        record: LaunchRecord,
        ctas: list[tuple[int, int, int]],
        full: int,
        capacity: int,
        copies: tuple[int, int],
        races: str = "off",
    ) -> Trace:
        """``words`` of no more than ``capacity`` for each warp: where ``used`` is more, they are cut off."""
        plan, warps = record.plan, record.plan.warps_per_cta
        total = capacity * warps * full
        # what is in shared memory is of no consequence, where nothing needed reads it
        shared = self.translation.shared_bytes + plan.dynamic_shared if self.reads_shared else 0
        device = self._device(record, 4 * total + (64 << 20), races, full)
        words = device.empty(max(1, total), np.uint32)
        cursors = device.zeros(warps * len(ctas), np.uint32)
        ends = np.full((len(ctas), warps, max(1, len(self.sites)) + _REACHES), OFF, np.uint32)
        last = device.array(ends.reshape(-1))
        table = device.array(_table(ctas, full, capacity, warps, copies).reshape(-1))
        raw = self._parameters(record, [array.address for array in (words, cursors, last, table)])
        try:
            _, _, seen = device.run(self.kernel, (len(ctas), 1, 1), plan.block, [raw], shared_bytes=shared)
        except BudgetExceeded:
            raise NotRun(
                "its CTAs execute too much to be recorded, or wait for what others store, which is not carried out"
            ) from None
        except EngineError as error:
            line = error.span.line if error.span is not None else 0
            raise NotRun(self.translation.reasons.get(line, error.message)) from None
        if any(race.space == "shared" for race in seen.races):
            raise NotRun(
                "its control flow or addresses depend on values passed in shared memory with mbarriers"
            )
        used = cursors.numpy().reshape(len(ctas), warps)
        if copies[0] != OFF:
            used = np.minimum(used, capacity)
        recorded = device.memory.view(words.allocation).view(np.uint32)
        ends = device.memory.view(last.allocation).view(np.uint32)[: ends.size].reshape(ends.shape)
        copied, written, read = _reaches(ends[:, :, -_REACHES:])
        return Trace(
            _split(recorded, used[:full], capacity),
            ends[:, :, :-_REACHES].copy(),
            used,
            copied,
            written,
            read,
        )

    def _parameters(self, record: LaunchRecord, addresses: list[int]) -> bytes:
        """The parameter buffer: what the machine code finds in its bank of constants, and behind it what the recording needs."""
        plan = record.plan
        raw = self.translation.arguments(plan.parameters)
        raw += b"".join(self._address_of(record, name) for name in self.translation.variables)
        own = (
            np.array(addresses, np.uint64).tobytes()
            + np.array([*plan.grid, plan.warps_per_cta, *plan.cluster], np.uint32).tobytes()
        )
        size = _Tracing.own_bytes
        return raw.ljust(self.kernel.param_bytes - size, b"\0") + own.ljust(size, b"\0")


def _budget(record: LaunchRecord, full: int) -> int:
    """Warp instructions after which a warp is given up: more than all warps of the launch execute, or than can be recorded of one
    of ``full`` CTAs. CTAs that wait for what others store would never end."""
    lengths = np.array([len(block.instructions) for block in record.program.blocks], np.int64)
    executed = int(record.observation.block_warps.astype(np.int64) @ lengths)
    words = _MOST_WORDS // (record.plan.warps_per_cta * max(1, full))
    return min(_OF_INSTRUCTION * (executed + 1024), _OF_WORD * words)


def _table(
    ctas: list[tuple[int, int, int]], full: int, capacity: int, warps: int, copies: tuple[int, int]
) -> NDArray[np.uint32]:
    """Of each CTA its place in the grid, the words that each of its warps may record, where those of its first one begin, and
    ``copies``: how many words of which warps are enough."""
    table = np.zeros((len(ctas), 8), np.uint32)
    table[:, :3] = ctas
    table[:, 6:] = copies
    table[:full, 3] = capacity
    firsts = np.arange(len(ctas), dtype=np.uint64) * np.uint64(capacity * warps)
    table[:, 4], table[:, 5] = firsts & np.uint64(0xFFFFFFFF), firsts >> np.uint64(32)
    return table


def _split(
    recorded: NDArray[np.uint32], used: NDArray[np.uint32], capacity: int
) -> list[list[NDArray[np.uint32]]]:
    """What each warp of each CTA recorded, of ``used`` words no more than ``capacity``."""
    starts: NDArray[np.int64] = capacity * np.arange(used.size).reshape(used.shape)
    ends = starts + np.minimum(used, capacity)
    return [
        [recorded[start:end] for start, end in zip(*of_cta)] for of_cta in zip(starts.tolist(), ends.tolist())
    ]


def _reaches(ends: NDArray[np.uint32]) -> list[tuple[int, int] | None]:
    """Where copies write, stores go that are not carried out, and loads read that decide, in shared memory: [CTA, warp, reach].
    Raises ``NotRun`` if such stores and loads may meet in global memory."""
    least = ends.min(axis=(0, 1)).tolist()
    copied, written, read, stored, loaded = (
        None if least[first] == OFF else (least[first], OFF - least[first + 1])
        for first in (_COPIED, _WRITTEN, _READ, _GLOBAL + _WRITTEN, _GLOBAL + _READ)
    )
    if (
        stored is not None
        and loaded is not None
        and stored[0] <= loaded[1] + 1
        and loaded[0] <= stored[1] + 1
    ):
        raise NotRun(
            "its control flow or addresses depend on values loaded from global memory that it stores to"
        )
    return [copied, written, read]
