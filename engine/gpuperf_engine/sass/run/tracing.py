"""Machine code as a PTX kernel that records control flow and addresses of warps and executes only the instructions that decide about
them. ``trace_kernel`` has the form of the records.

No warp waits for an mbarrier: the simulation decides when warps continue (``sass.sm``). The trace records the operands of arrivals at
and tests of mbarriers by lane, and the fields of bulk and tensor copies in one word each (``FIELDS``).
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...errors import EngineError
from ...isa.targets import sm_number
from ...jit.ir.sm_records import Signal
from ...profile.build import LaunchRecord
from ...ptx.module import Function
from ...ptx.parse import parse
from ...simt.launch import LaunchPlan
from ...simt.program import build_program
from ..assemble import Assembly
from ..graph import Graph, StateAccess
from ..listing import NEVER, Decoded
from ..registers import COPIES, described_by
from .accesses import barrier_values
from .asynchronous import (
    COORDINATES,
    HIGH,
    LOW,
    MASK,
    PARAMETERS,
    SHARED,
    TOKEN,
    copy_fields,
    data_bytes,
    following,
    names_barrier,
    recorded,
    without_waiting,
)
from .mbarriers import test_of
from .needed import LOADS, STORES, Needed, needed_of
from .operands import Address, Register, read_operand
from .paths import Node, nodes_of, without_slow_paths
from .pointers import Callees, callees_of
from .states import accesses_of_states, grid_waits_of, initialised, waits_of
from .trace_kernel import (
    COPIED,
    GLOBAL,
    GRAIN_BITS,
    OFF,
    OWN_BYTES,
    READ,
    WRITTEN,
    Site,
    Trace,
    TraceKernel,
    place_of,
    prologue,
    setup,
)
from .translate import Translator, cubin_of, label_of, meeting
from .writer import WITHIN, NotRun, Writer, both

__all__ = ["OFF", "Site", "Trace", "Tracer"]


def _sliced(
    graph: Graph, nodes: list[Node], callees: Callees, waits: frozenset[int]
) -> tuple[list[Node], frozenset[int], Needed]:
    """The nodes without the slow paths of quotients and roots, the branches around these, and the slice. Those whose results the slice
    needs remain, as the value that the path in line computes is not the result for all operands: of a root of 0 it is NaN. ``waits``:
    accesses to states of mbarriers. They are not carried out if that would need global memory, as copies may have written what shared
    memory holds, and nothing else that is loaded from shared memory decides."""
    kept: set[int] = set()
    while True:
        left, settled, omitted = without_slow_paths(graph, nodes, kept)
        needed = needed_of(graph, left, settled, graph.grid_waits)
        if waits and needed.spaces & _GLOBAL:
            without = needed_of(graph, left, settled, graph.grid_waits | waits)
            needed = needed if without.spaces & _SHARED else without
        wanted = {item.branch for item in omitted if needed.results_of(graph, item)}
        if not wanted:
            return left, settled, needed
        kept |= wanted
        nodes = nodes_of(graph, callees)


class _Tracing(Translator):
    own_bytes = OWN_BYTES

    def __init__(self, kernel: Function, assembly: Assembly, graph: Graph) -> None:
        callees = callees_of(kernel, graph)
        super().__init__(kernel, assembly, graph, cubin_of(assembly), nodes_of(graph, callees), callees)
        self.to.initialising = frozenset()
        self.to.apart = any("SR_CgaCtaId" in item.text for item in graph.listing.instructions)
        states = accesses_of_states if self.number < _OWN else initialised
        graph.states |= states(graph, self.to.instructions)
        graph.grid_waits = grid_waits_of(graph)
        waits = waits_of(graph) if self.number < _OWN else frozenset()
        self.nodes, self.settled, self.needed = _sliced(graph, self.nodes, callees, waits)
        #: Tests of phases that succeed at once, by position, and the registers of the phases.
        self.passing: dict[int, str] = {}
        for position in self.needed.known - graph.grid_waits:
            self.without_state(position)
        if graph.grid_waits and self.needed.spaces & _GLOBAL:
            raise NotRun(
                "its control flow or addresses depend on loaded values, and it synchronises the grid"
            )
        items = [
            graph.listing.instructions[at] for block in graph.blocks for at in range(block.start, block.end)
        ]
        reads_shared = bool(self.needed.spaces & _SHARED)
        #: Whether stores or copies that are not executed may write memory that the slice loads: the ranges of both are recorded.
        self.both = bool(self.needed.left) or (reads_shared and any(item.base in COPIES for item in items))
        self.both &= bool(self.needed.spaces)
        #: Whether warps may exchange needed values in shared memory with mbarriers, for which the trace does not wait.
        self.passes_on = reads_shared and any(item.base == "SYNCS" for item in items)
        #: By the position of a test of a phase, the place of its value in the record of its block, and the register of the phase.
        self.tested: dict[int, tuple[int, str]] = {}
        self.sites: list[Site] = []
        self.of_block: dict[int, list[int]] = {}
        for block in graph.blocks:
            self.of_block[block.index] = own = []
            for position in range(block.start, block.end):
                for operand, space in self.recorded(position):
                    own.append(len(self.sites))
                    self.sites.append(Site(position, operand, space))

    def without_state(self, position: int) -> None:
        """Notes that the state of an mbarrier at ``position`` is not accessed."""
        state = self.graph.states[position]
        if state.kind == "test":
            self.passing[state.tested_at] = self.graph.listing.instructions[position].operands[0]
        else:
            self.graph.states[position] = replace(state, how=state.how | Signal.RETURNS)

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
                for operand, space in self.recorded(position):
                    self.record(position, operand, next(sites), number)
                    number += 1
                    if self.both and position in self.needed.positions and item.base in LOADS:
                        self.record_reach(READ, item, operand, space)
                    elif self.both and position in self.needed.left:
                        self.record_reach(WRITTEN, item, operand, space)
                if position in self.tested:
                    self.record_test(item, *self.tested[position])
                if position == node.block.end - 1 and self.control(node, item):
                    continue
                if position in self.needed.known:
                    self.give_state(item)
                    continue
                if position in self.passing:
                    self.pass_test(item, self.passing[position])
                carried_out = position in self.needed.positions or item.base in _MEETS
                if carried_out and not without_waiting(item, to):
                    self.ordinary(item)
            except NotRun as reason:
                to.stop(f"{reason} ({item.address:#06x} {item.text})")

    def prologue(self, node: Node) -> None:
        block = node.block.index
        self.to.guard = ""
        copies = any(self.sites[site].space == "copy" for site in self.of_block[block])
        for statement in prologue(block, len(self.of_block[block]), copies):
            self.to.line(statement)

    def or_cut(self, known: str) -> str:
        """A lane ends where its warp has recorded enough, perhaps while the others wait for it."""
        to, now = self.to, self.to.fresh("r")
        to.line(f"ld.global.u32 {now}, [%Tcursor]")
        for limit in ("%Tenough", "%Tuntil"):
            known = to.p("or.pred", known, to.p("setp.gt.u32", now, limit))
        return known

    def recorded(self, position: int) -> list[tuple[int, str]]:
        """The operands of an instruction that are recorded, with their state spaces."""
        found = _recorded(self.graph.listing.instructions[position])
        if found and position in self.graph.states:
            place = found[0][0]
            found += [(place, "mbarrier"), (place, "value")]
        return found

    def record(self, position: int, operand: int, site: int, number: int) -> None:
        to, space, item = self.to, self.sites[site].space, self.graph.listing.instructions[position]
        state = self.graph.states.get(position)
        if state is not None and space == "value":
            self.record_state(item, state, number)
            return
        if space == "copy":
            self.record_copy(item, number)
            return
        if names_barrier(item):
            name, *counts = barrier_values(item, to)
            held = to.r("mov.b32", OFF)
            warps = to.r("shr.u32", counts[0], 5) if counts else "0"
            to.do(f"bfi.b32 {held}, {warps}, {name}, 4, 28")
            to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")
            return
        if space == "word":
            described = described_by(item.operands[operand])
            value = read_operand(item.operands[operand]) if described is None else described[1]
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, {to.word(value)}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")
            return
        if space == "image":
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, 0")
            to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")
            return
        if space == "value":
            held = to.r("mov.b32", OFF)
            value = read_operand(item.operands[operand])
            size = data_bytes(item)
            given = str(size) if size else "0" if isinstance(value, Address) else to.word(value)
            to.do(f"mov.b32 {held}, {given}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")
            return
        where = read_operand(item.operands[operand])
        if space == "window":
            held = to.r("mov.b32", OFF)
            to.do(f"mov.b32 {held}, {to.high(to.pointer(where))}")
            to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")
            return
        near = space in ("shared", "local", "mbarrier")
        if data_bytes(item):  # the mbarrier is in the next register
            where = following(where)
        text = to.address32(where) if near else to.address64(where)
        base, offset = _ADDRESS.match(text).groups("0")  # type: ignore[union-attr]
        if near:
            word = to.r("shr.u32", to.r("add.u32", base, offset), 2)
            if state is not None and space == "mbarrier":
                word = to.r("and.b32", word, 0xFFFFFFFE)
        else:
            moved = to.q("add.u64", base, offset)
            word = to.low(to.q("shr.u64", moved, 2))
        held, guard = to.r("mov.b32", OFF), to.guard
        if item.base == "LDGSTS" and space == "global":
            for flag in map(read_operand, item.operands[2:]):  # false: zeros are stored, and nothing is read
                to.guard = both(to, to.predicate(flag))
        to.do(f"mov.b32 {held}, {word}")
        if space in ("global", "generic"):
            to.do(f"st.global.u32 [%Tlast+{4 * site}], {word}")
        to.guard = guard
        to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")

    def record_state(self, item: Decoded, state: StateAccess, number: int) -> None:
        """Records the value of an access to the state of an mbarrier as those of ``SYNCS``."""
        to = self.to
        held = to.r("mov.b32", OFF)
        value = "0"
        if state.kind == "init":
            value = to.word(read_operand(item.operands[-1]))
            if self.number < _OWN:  # 2³⁰ minus the arrivals, which there is twice 2²⁰ minus them
                value = to.r("shl.b32", to.r("sub.s32", value, _FULL_STATE), 1)
        elif state.kind == "test":
            self.tested[state.tested_at] = number, item.operands[0]
        elif state.how & Signal.TIMES:
            value = to.word(read_operand(item.operands[-1]))
        to.do(f"mov.b32 {held}, {value}")
        to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {held}")

    def record_test(self, item: Decoded, number: int, loaded: str) -> None:
        """Records the parity that a test waits for, at the load before it."""
        test, to = test_of(item, loaded), self.to
        assert test is not None
        state = to.word(read_operand(test[1])) if test[1] else str(1 << 31 if test[0] == _EVEN else 0)
        # With a token, the simulation knows the parity. Other states have pending arrivals there.
        bits = 1 << 31 | (TOKEN if self.passing else 0)
        to.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], {to.r('and.b32', state, bits)}")

    def give_state(self, item: Decoded) -> None:
        """Instead of an access to the state of an mbarrier, writes the state in which the warp arrived; instead of a comparison with
        the counter of a grid, that all CTAs have arrived."""
        target = read_operand(item.operands[0])
        if item.base == "LOP3":
            self.to.put(target, str(1 << 31))
            return
        if isinstance(target, Register) and not target.is_zero:
            self.to.put(target, "0")
            if item.base == "ATOMS":
                self.to.put(target, str(TOKEN), 1)

    def pass_test(self, item: Decoded, loaded: str) -> None:
        """Writes the phase with which a test succeeds."""
        test, to = test_of(item, loaded), self.to
        assert test is not None
        phase = str(0 if test[0] == _EVEN else 1 << 31)
        if test[1]:
            phase = to.r("not.b32", to.word(read_operand(test[1])))
        to.put(read_operand(loaded), phase)

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
            to.line(f"@{first} st.global.u32 [{start}+{place_of(number, field)}], {value}")

        for field in (LOW, HIGH):
            store(lanes, "%Troom", field, str(OFF))
        guard = to.predicate(read_operand(item.predicate[1:])) if item.predicate else "%PT"
        issued = to.p("and.pred", guard, "%Troom")
        for field in range(COORDINATES + 5):
            store(mask, issued, field, fields.get(field, "0" if field == MASK else str(OFF)))
        if self.both and SHARED in fields and item.base not in _FROM_SHARED:
            self.reaches(COPIED, fields[SHARED])

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
            self.reach(first + GLOBAL, self.to.low(self.to.q("shr.u64", moved, GRAIN_BITS)))

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
            if not self.graph.grid_waits:
                raise NotRun("it synchronises the grid")
            return str(_WORKSPACE >> 32 if offset - self.bank.registers == 4 else _WORKSPACE & 0xFFFFFFFF)
        if self.bank.clusters is not None and 0 <= offset - self.bank.clusters < 12:
            raise NotRun("it reads the shape of the grid in clusters")
        if offset == self.bank.explicit:  # Launches with clusters of one CTA are treated as launches without.
            return to.r("min.u32", to.r("sub.u32", "%Tcn", 1), 1)
        return super().launch_constant(to, offset, index, kind)

    def ordinary(self, item: Decoded) -> None:
        """If only copies are recorded, warps do not wait for those that are not recorded or have ended early. If values in shared
        memory are needed, any warp may have stored them: all warps run and wait at barriers of the whole CTA."""
        shared = self.needed.spaces & _SHARED
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
        # The launched grid consists of the traced CTAs.
        for axis in "xyz":
            replaced = ((f"%ctaid.{axis}", f"%T{axis}"), (f"%nctaid.{axis}", f"%T{axis.upper()}"))
            for old, new in (*replaced, (f"%cluster_nctaid.{axis}", f"%Tc{axis}")):
                self.to.lines = [line.replace(old, new) for line in self.to.lines]
        for old, new in (("%cluster_ctarank", "%Trank"), ("%cluster_nctarank", "%Tcn")):
            self.to.lines = [line.replace(old, new) for line in self.to.lines]
        return setup("C", offset, len(self.sites))


#: From this architecture on, mbarriers have instructions of their own.
_OWN = 90
#: 2³⁰ − 2²⁰: by this the lower word of a state exceeds 2²⁰ minus the expected arrivals.
_FULL_STATE = (1 << 30) - (1 << 20)
#: The function of ``LOP3`` that tests for an even phase.
_EVEN = 0xC
#: The distance of addresses of functions, if memory was not kept.
_FUNCTION = 1 << 16
#: The address of the workspace with which a grid synchronises, where no array is.
_WORKSPACE = 0x7FFF_FFFF_FF00
#: Where warps of all CTAs of a cluster wait for each other.
_MEETS = frozenset(["UCGABAR_WAIT"])
#: Spaces of loads that may be from shared, or from global memory.
_SHARED, _GLOBAL = frozenset(["shared", "any"]), frozenset(["global", "any"])
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


class Tracer(TraceKernel):
    """The trace kernel that is made from machine code."""

    def __init__(self, kernel: Function, assembly: Assembly, graph: Graph) -> None:
        written = _Tracing(kernel, assembly, graph)
        self.translation = written.whole()
        self.number = sm_number(assembly.architecture)
        self.sites, self.of_block = written.sites, written.of_block
        self.reads_memory = bool(written.needed.spaces & _GLOBAL)
        self.reads_shared = bool(written.needed.spaces & _SHARED)
        self.atomics = written.needed.atomics
        self.passes_on = written.passes_on
        self.parameter_at = written.parameter_at
        self.graph = graph
        try:
            self.kernel = parse(self.translation.text, path="machine code")["machine_code"]
            lines = {item.span.line: item for item in self.kernel.instructions}
            reconverging = meeting(self.translation, lines)
            self.kernel.memo["program"] = build_program(self.kernel, reconverging, outlined=True)
        except EngineError as error:
            raise NotRun(f"it cannot be translated to PTX: {error.message}") from None

    def _address_of(self, record: LaunchRecord, name: str) -> bytes:
        """The address of a function or module variable, that of a variable 0 if no load needs memory."""
        inputs, module = record.plan.inputs, record.program.kernel.module
        function = module.functions.get(name)
        if inputs is None or not (self.reads_memory or function):
            number = 1 + list(module.functions).index(name) if function else 0
            return (_FUNCTION * number).to_bytes(8, "little")
        return inputs.address(function or module.variable(name)).to_bytes(8, "little")

    def shared_bytes(self, plan: LaunchPlan) -> int:
        # Without needed loads from shared memory, its size does not matter.
        return self.translation.shared_bytes + plan.dynamic_shared if self.reads_shared else 0

    def reason(self, line: int) -> str:
        return self.translation.reasons.get(line, "")

    def buffer(self, record: LaunchRecord) -> bytes:
        """The constant bank of the machine code."""
        raw = self.translation.arguments(record.plan.parameters)
        return raw + b"".join(self._address_of(record, name) for name in self.translation.variables)
