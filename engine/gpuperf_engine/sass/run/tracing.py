"""Machine code as a PTX kernel that records control flow and addresses of warps and executes only the instructions that decide about
them.

For each basic block that a warp executes, the kernel records the number of the block, the lanes that execute it, and for each access
of the block the addresses of the 32 lanes, in 4-byte words.

No warp waits for an mbarrier: the simulation decides when warps continue (``sass.sm``). The trace records the operands of arrivals at
and tests of mbarriers by lane, and the fields of bulk and tensor copies in one word each (``FIELDS``).
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
from ..registers import COPIES, described_by
from .asynchronous import (
    COORDINATES,
    HIGH,
    LOW,
    MASK,
    PARAMETERS,
    SHARED,
    copy_fields,
    data_bytes,
    following,
    recorded,
    without_waiting,
)
from .needed import LOADS, STORES, Needed, needed_of
from .operands import Address, read_operand
from .paths import Node, nodes_of, without_slow_paths
from .translate import Translator, cubin_of, label_of, meeting
from .writer import WITHIN, NotRun, Writer

__all__ = ["OFF", "Site", "Trace", "Tracer"]
#: The address of an inactive lane.
OFF = 0xFFFFFFFF
#: Words of a record: the block and its lanes, then those of each access.
_HEAD, _LANES = 2, 32
_MOST_WORDS = 1 << 28
_FIRST_WORDS = 1 << 16
#: The most warp instructions that record a word, and that translate an instruction of the launch.
_OF_WORD, _OF_INSTRUCTION = 64, 64
#: The most words that a block with copies records.
_MOST_OF_BLOCK = 1 << 12
#: Flag of a limit of words: the words of all blocks count, not only those of blocks with copies.
_BEGINNING = 1 << 31


@dataclass(frozen=True, slots=True)
class Site:
    """A recorded access: the position of its instruction, the operand with the address, and the state space. ``mbarrier`` and
    ``value``: the address of an arrival or a test, and its operand; ``copy``: the fields of a copy; ``word``: an operand of a
    ``tcgen05`` instruction; ``image``: a texture or surface, of which only the active lanes are recorded; ``generic``: global or
    shared memory, depending on the upper words of the addresses, which ``window`` records."""

    position: int
    operand: int
    space: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of some CTAs of a launch. ``words[cta][warp]``: the records of a warp; ``last[cta, warp, site]``: the word of the last
    access of each site of global memory, ``OFF`` if there is none; ``used[cta, warp]``: the words that a complete record of the warp
    has. Ranges of shared memory, first and last address: ``copied``: destinations of copies; ``written``: destinations of stores that
    are not executed; ``read``: loads whose values decide about control flow or addresses."""

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
        self.to.initialising = frozenset()
        self.nodes, self.settled = without_slow_paths(graph, self.nodes)
        self.to.apart = any("SR_CgaCtaId" in item.text for item in graph.listing.instructions)
        self.needed: Needed = needed_of(graph, self.nodes, self.settled)
        if self.needed.atomics:  # CTAs that are not traced take part in them
            raise NotRun("its control flow or addresses depend on results of its atomics")
        items = [
            graph.listing.instructions[at] for block in graph.blocks for at in range(block.start, block.end)
        ]
        reads_shared = bool(self.needed.spaces & {"shared", "any"})
        #: Whether stores or copies that are not executed may write memory that the slice loads: the ranges of both are recorded.
        self.both = bool(self.needed.left) or (reads_shared and any(item.base in COPIES for item in items))
        self.both &= bool(self.needed.spaces)
        #: Whether warps may exchange needed values in shared memory with mbarriers, for which the trace does not wait.
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
                to.line(f"bra.uni {label_of(node.ways[0])}")
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
        # If only copies, or only first accesses, of a CTA are recorded, a warp ends when it has recorded enough.
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

    def or_cut(self, known: str) -> str:
        """A lane ends where its warp has recorded enough, perhaps while the others wait for it."""
        to, now = self.to, self.to.fresh("r")
        to.line(f"ld.global.u32 {now}, [%Tcursor]")
        for limit in ("%Tenough", "%Tuntil"):
            known = to.p("or.pred", known, to.p("setp.gt.u32", now, limit))
        return known

    def record(self, item: Decoded, operand: int, site: int, number: int) -> None:
        to, space = self.to, self.sites[site].space
        if space == "copy":
            self.record_copy(item, number)
            return
        if space == "word":
            described = described_by(item.operands[operand])
            value = read_operand(item.operands[operand]) if described is None else described[1]
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, {to.word(value)}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        if space == "image":
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, 0")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        if space == "value":
            held = to.r("mov.b32", OFF)
            value = read_operand(item.operands[operand])
            size = data_bytes(item)
            given = str(size) if size else "0" if isinstance(value, Address) else to.word(value)
            to.do(f"mov.b32 {held}, {given}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        where = read_operand(item.operands[operand])
        if space == "window":
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, {to.high(to.pointer(where))}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
            return
        near = space in ("shared", "local", "mbarrier")
        if data_bytes(item):  # the mbarrier is in the next register
            where = following(where)
        text = to.address32(where) if near else to.address64(where)
        base, offset = _ADDRESS.match(text).groups("0")  # type: ignore[union-attr]
        if near:
            word = to.r("shr.u32", to.r("add.u32", base, offset), 2)
        else:
            moved = to.q("add.u64", base, offset)
            word = to.low(to.q("shr.u64", moved, 2))
        held = to.r("mov.b32", OFF)
        to.do(f"mov.b32 {held}, {word}")
        to.line(f"@%Troom st.global.u32 [%Tplace+{4 * (_HEAD + _LANES * number)}], {held}")
        if space in ("global", "generic"):
            to.do(f"st.global.u32 [%Tlast+{4 * site}], {word}")

    def record_copy(self, item: Decoded, number: int) -> None:
        """Records the fields of a copy, with the values of the lowest lane that issues it."""
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
        """Records the range of a load whose value is needed, or of a store that is not executed."""
        where = read_operand(item.operands[operand])
        if space in ("shared", "generic"):
            text = (
                self.to.address32(where) if space == "shared" else f"[{self.to.low(self.to.pointer(where))}]"
            )
            base, offset = _ADDRESS.match(text).groups("0")  # type: ignore[union-attr]
            self.reaches(first, self.to.r("add.u32", base, offset))
        if space in ("global", "generic"):
            base, offset = _ADDRESS.match(self.to.address64(where)).groups("0")  # type: ignore[union-attr]
            moved = self.to.q("add.u64", base, offset)
            self.reach(first + _GLOBAL, self.to.low(self.to.q("shr.u64", moved, _GRAIN_BITS)))

    def reaches(self, first: int, address: str) -> None:
        """Records a range of shared memory."""
        self.reach(first, self.to.r("and.b32", address, WITHIN))

    def reach(self, first: int, place: str) -> None:
        """Updates the minimum of the addresses of a warp, and that of their complements, after the sites of ``last``."""
        at = 4 * (max(1, len(self.sites)) + first)
        self.to.do(f"red.global.min.u32 [%Tlast+{at}], {place}")
        self.to.do(f"red.global.min.u32 [%Tlast+{at + 4}], {self.to.r('not.b32', place)}")

    def launch_constant(self, to: Writer, offset: int, index: str, kind: str) -> str:
        within = offset - (self.bank.pointer or 0)
        if self.bank.pointer is not None and within in (0, 4) and not index:
            return str(PARAMETERS) if within else str(self.bank.parameters)
        if offset - self.bank.registers in (4, 8):
            raise NotRun("it synchronises the grid")
        if self.bank.clusters is not None and 0 <= offset - self.bank.clusters < 12:
            raise NotRun("it reads the shape of the grid in clusters")
        if offset == self.bank.explicit:  # Launches with clusters of one CTA are treated as launches without.
            return to.r("min.u32", to.r("sub.u32", "%Tcn", 1), 1)
        return super().launch_constant(to, offset, index, kind)

    def ordinary(self, item: Decoded) -> None:
        """If only copies are recorded, warps do not wait for those that are not recorded or have ended early. If values in shared
        memory are needed, any warp may have stored them: all warps run and wait at barriers of the whole CTA."""
        shared = self.needed.spaces & {"shared", "any"}
        if item.base in _MEETS:
            # Each CTA runs independently.
            if shared:
                self.to.do("barrier.sync 0")
            return
        whole = shared and len(item.operands) < 2
        if item.base == "BAR" and not self.to.guard and not whole:
            self.to.guard = "@%Tall "
        super().ordinary(item)

    def allocation(self) -> list[str]:
        """Tensor memory is not accessed."""
        return []

    def system_call(self, item: Decoded) -> None:
        raise NotRun("a call that is not known here")

    def setup(self, offset: int) -> list[str]:
        names = ("words", "cursors", "last", "table")
        lines = [
            ".reg .b32 %Tnow, %Tend, %Tcapacity, %Tmask, %Tblock, %Tcta, %Twarp, %Tx, %Ty, %Tz, %TX, %TY, %TZ, %Tn, %Tm;",
            ".reg .b32 %Tenough, %Tuntil, %Tcx, %Tcy, %Tcz, %Tcn, %Trank;",
            ".reg .b64 %Tplace, %Twords, %Tcursor, %Tlane, %Tlast, %Tq, %Tcursors, %Ttable, %Tfirst;",
            ".reg .pred %Troom, %Tall, %Tcounts;",
            *(f"ld.param.u64 %T{name}, [C+{offset + 8 * number}];" for number, name in enumerate(names)),
            *(f"ld.param.u32 %T{axis}, [C+{offset + 32 + 4 * number}];" for number, axis in enumerate("XYZ")),
            # The number of the warp in its CTA, and among all warps.
            "mov.u32 %Tn, %tid.z; mov.u32 %Tm, %ntid.y; mov.u32 %Tblock, %tid.y; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock;",
            "mov.u32 %Tm, %ntid.x; mov.u32 %Tblock, %tid.x; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock; shr.u32 %Tn, %Tn, 5;",
            f"mov.u32 %Tcta, %ctaid.x; ld.param.u32 %Tm, [C+{offset + 44}]; mad.lo.u32 %Twarp, %Tcta, %Tm, %Tn;",
            # From the table of CTAs: the position in the grid, the capacity of a warp in words, and the start of the first warp's
            # words.
            "mad.wide.u32 %Tq, %Tcta, 32, %Ttable; ld.global.u32 %Tx, [%Tq]; ld.global.u32 %Ty, [%Tq+4];",
            "ld.global.u32 %Tz, [%Tq+8]; ld.global.u32 %Tcapacity, [%Tq+12]; ld.global.u64 %Tfirst, [%Tq+16];",
            # If only copies are recorded: the limit of words, and the mask of warps.
            "ld.global.u32 %Tenough, [%Tq+24]; ld.global.u32 %Tm, [%Tq+28]; setp.eq.u32 %Tall, %Tenough, 0xFFFFFFFF;",
            # A bit of the limit selects whether the words of all blocks count.
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
        # The launched grid consists of the traced CTAs.
        for axis in "xyz":
            replaced = ((f"%ctaid.{axis}", f"%T{axis}"), (f"%nctaid.{axis}", f"%T{axis.upper()}"))
            for old, new in (*replaced, (f"%cluster_nctaid.{axis}", f"%Tc{axis}")):
                self.to.lines = [line.replace(old, new) for line in self.to.lines]
        for old, new in (("%cluster_ctarank", "%Trank"), ("%cluster_nctarank", "%Tcn")):
            self.to.lines = [line.replace(old, new) for line in self.to.lines]
        return [
            statement.strip() + ";" for line in lines for statement in line.split(";") if statement.strip()
        ]


#: Offsets after the sites of ``last``. For shared, then global memory: the minimum address of stores that are not executed, the
#: complement of the maximum, and the same for needed loads; then those of destinations of copies in shared memory.
_WRITTEN, _READ, _GLOBAL, _COPIED, _REACHES = 0, 2, 4, 8, 10
#: Ranges of global memory have this granularity, in bits of an address.
_GRAIN_BITS = 8
#: Where warps of all CTAs of a cluster wait for each other.
_MEETS = frozenset(["UCGABAR_WAIT"])
#: Copies that read shared memory.
_FROM_SHARED = frozenset(["UTMASTG", "UTMAREDG", "UBLKRED"])
_ADDRESS = re.compile(r"\[(%?\w+)(?:\+(-?\d+))?\]$")


def _recorded(item: Decoded) -> list[tuple[int, str]]:
    """The operands of an instruction whose addresses are recorded, with their state spaces."""
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
    """The trace kernel of a kernel for one architecture."""

    def __init__(self, kernel: Function, assembly: Assembly, graph: Graph) -> None:
        written = _Tracing(kernel, assembly, graph)
        self.translation = written.whole()
        #: 90 for ``sm_90a``
        self.number = int(assembly.architecture[3:].rstrip("af"))
        self.sites, self.of_block = written.sites, written.of_block
        #: Whether loaded values decide about control flow or addresses.
        self.reads_memory = bool(written.needed.spaces & {"global", "any"})
        self.reads_shared = bool(written.needed.spaces & {"shared", "any"})
        self.passes_on = written.passes_on
        #: The offset in the parameter buffer of a launch for a constant of bank 0.
        self.parameter_at = written.parameter_at
        self.graph = graph
        try:
            self.kernel = parse(self.translation.text, path="machine code")["machine_code"]
            lines = {item.span.line: item for item in self.kernel.instructions}
            reconverging = meeting(self.translation, lines)
            self.kernel.memo["program"] = build_program(self.kernel, reconverging, outlined=True)
        except EngineError as error:
            raise NotRun(f"it cannot be translated to PTX: {error.message}") from None

    def copies(self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int, warps: int) -> Trace:
        """Records of the first copies of these CTAs, ``words`` words for each warp of the mask ``warps``."""
        # If these warps load needed values from shared memory, other warps may have stored them.
        mask = 0xFFFFFFFF if self.reads_shared else warps
        return self._attempt(record, ctas, len(ctas), words + _MOST_OF_BLOCK, (words, mask))

    def beginnings(
        self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int
    ) -> NDArray[np.uint32]:
        """``Trace.last`` of these CTAs. Each warp ends when its record would have ``words`` words."""
        return self._attempt(record, ctas, 0, 0, (_BEGINNING + words, 0xFFFFFFFF)).last

    def whole(
        self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int
    ) -> list[list[NDArray[np.uint32]]]:
        """``Trace.words`` of these CTAs, of whose warps most have at most ``words`` words."""
        everything = OFF, 0xFFFFFFFF
        first = self._attempt(record, ctas, len(ctas), words, everything)
        most = int(first.used.max(initial=0))
        if most <= words:
            return first.words
        if most * record.plan.warps_per_cta * len(ctas) > _MOST_WORDS:
            raise NotRun("its CTAs execute too many instructions to be recorded")
        return self._attempt(record, ctas, len(ctas), most, everything).words

    def trace(self, record: LaunchRecord, ctas: list[tuple[int, int, int]], full: int) -> Trace:
        """The complete trace of the first ``full`` of these CTAs of a launch; of the others only ``last``."""
        everything = OFF, 0xFFFFFFFF
        if self.passes_on:  # one CTA is enough
            self._attempt(record, ctas[:1], 1, 0, everything, "note")
        first = self._attempt(record, ctas, full, _FIRST_WORDS, everything)
        wanted = int(first.used[:full].max(initial=0))
        if wanted <= _FIRST_WORDS:
            return first
        capacity = -(-wanted // 1024) * 1024
        if capacity * record.plan.warps_per_cta * full > _MOST_WORDS:
            raise NotRun("its CTAs execute too many instructions to be recorded")
        # The results of the other CTAs are complete.
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
        """A device with ``room`` bytes of memory, and with the memory of the launch if loads need it; ``full``: the number of CTAs
        that are recorded completely. Raises ``NotRun`` if the contents of memory were not kept."""
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
        """The address of a module variable, 0 if no load needs memory."""
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
        """Runs the trace kernel. ``words`` has at most ``capacity`` words for each warp: if ``used`` is larger, they are truncated."""
        plan, warps = record.plan, record.plan.warps_per_cta
        total = capacity * warps * full
        # Without needed loads from shared memory, its size does not matter.
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
        """The parameter buffer: the constant bank of the machine code, followed by the parameters of the trace."""
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
    """The instruction budget of a warp: more than all warps of the launch execute, or than can be recorded of one of ``full`` CTAs.
    CTAs that wait for stores of other CTAs would never end."""
    lengths = np.array([len(block.instructions) for block in record.program.blocks], np.int64)
    executed = int(record.observation.block_warps.astype(np.int64) @ lengths)
    words = _MOST_WORDS // (record.plan.warps_per_cta * max(1, full))
    return min(_OF_INSTRUCTION * (executed + 1024), _OF_WORD * words)


def _table(
    ctas: list[tuple[int, int, int]], full: int, capacity: int, warps: int, copies: tuple[int, int]
) -> NDArray[np.uint32]:
    """A row for each CTA: its position in the grid, the capacity of each of its warps in words, the start of the first warp's words,
    and ``copies``: the limit of words and the mask of warps."""
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
    """The records of each warp of each CTA: ``used`` words, at most ``capacity``."""
    starts: NDArray[np.int64] = capacity * np.arange(used.size).reshape(used.shape)
    ends = starts + np.minimum(used, capacity)
    return [
        [recorded[start:end] for start, end in zip(*of_cta)] for of_cta in zip(starts.tolist(), ends.tolist())
    ]


def _reaches(ends: NDArray[np.uint32]) -> list[tuple[int, int] | None]:
    """Ranges of shared memory: destinations of copies, stores that are not executed, and needed loads; ``ends``: [CTA, warp, reach].
    Raises ``NotRun`` if such stores and loads may overlap in global memory."""
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
