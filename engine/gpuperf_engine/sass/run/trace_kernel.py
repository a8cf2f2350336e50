"""Runs trace kernels: PTX kernels that record control flow and addresses of warps.

For each basic block that a warp executes, the kernel records the number of the block, the lanes that execute it, and for each access
of the block the addresses of the 32 lanes, in 4-byte words. The statements for this are the same whatever the kernel is made from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...device.device import Runtime
from ...device.inputs import KEPT_BYTES
from ...errors import BudgetExceeded, EngineError
from ...profile.build import LaunchRecord
from ...ptx.module import Function
from ...simt.launch import LaunchPlan
from ..graph import Graph
from .writer import NotRun

__all__ = [
    "COPIED",
    "GLOBAL",
    "GRAIN_BITS",
    "OFF",
    "OWN_BYTES",
    "READ",
    "WRITTEN",
    "Site",
    "Trace",
    "TraceKernel",
    "place_of",
    "prologue",
    "setup",
]
#: The address of an inactive lane.
OFF = 0xFFFFFFFF
#: Bytes of the parameters of the trace, behind all others.
OWN_BYTES = 80
#: Words of a record: the block and its lanes, then those of each access.
_HEAD, _LANES = 2, 32
_MOST_WORDS = 1 << 28
_FIRST_WORDS = 1 << 16
#: The most warp instructions that record a word, and that translate an instruction of the launch.
_OF_WORD, _OF_INSTRUCTION = 64, 64
#: The most warps of a launch that run in each trace if results of atomics decide.
_MOST_WARPS = 1 << 14
#: The most words that a block with copies records.
_MOST_OF_BLOCK = 1 << 12
#: Flag of a limit of words: the words of all blocks count, not only those of blocks with copies.
_BEGINNING = 1 << 31
#: Offsets after the sites of ``last``. For shared, then global memory: the minimum address of stores that are not executed, the
#: complement of the maximum, and the same for needed loads; then those of destinations of copies in shared memory.
WRITTEN, READ, GLOBAL, COPIED, _REACHES = 0, 2, 4, 8, 10
#: Ranges of global memory have this granularity, in bits of an address.
GRAIN_BITS = 8


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


def setup(parameter: str, offset: int, sites: int) -> list[str]:
    """The statements in front of the first block, which declare and set the registers ``%T…``. ``parameter`` and ``offset``: where the
    ``OWN_BYTES`` of the trace are; ``sites``: the number of accesses."""
    names = ("words", "cursors", "last", "table")
    lines = [
        ".reg .b32 %Tnow, %Tend, %Tcapacity, %Tmask, %Tblock, %Tcta, %Twarp, %Tx, %Ty, %Tz, %TX, %TY, %TZ, %Tn, %Tm;",
        ".reg .b32 %Tenough, %Tuntil, %Tcx, %Tcy, %Tcz, %Tcn, %Trank;",
        ".reg .b64 %Tplace, %Twords, %Tcursor, %Tlane, %Tlast, %Tq, %Tcursors, %Ttable, %Tfirst;",
        ".reg .pred %Troom, %Tall, %Tcounts;",
        *(
            f"ld.param.u64 %T{name}, [{parameter}+{offset + 8 * number}];"
            for number, name in enumerate(names)
        ),
        *(
            f"ld.param.u32 %T{axis}, [{parameter}+{offset + 32 + 4 * number}];"
            for number, axis in enumerate("XYZ")
        ),
        # The number of the warp in its CTA, and among all warps.
        "mov.u32 %Tn, %tid.z; mov.u32 %Tm, %ntid.y; mov.u32 %Tblock, %tid.y; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock;",
        "mov.u32 %Tm, %ntid.x; mov.u32 %Tblock, %tid.x; mad.lo.u32 %Tn, %Tn, %Tm, %Tblock; shr.u32 %Tn, %Tn, 5;",
        f"mov.u32 %Tcta, %ctaid.x; ld.param.u32 %Tm, [{parameter}+{offset + 44}]; mad.lo.u32 %Twarp, %Tcta, %Tm, %Tn;",
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
            f"ld.param.u32 %Tc{axis}, [{parameter}+{offset + 48 + 4 * number}];"
            for number, axis in enumerate("xyz")
        ),
        "mul.lo.u32 %Tcn, %Tcx, %Tcy; mul.lo.u32 %Tcn, %Tcn, %Tcz; rem.u32 %Trank, %Tz, %Tcz;",
        *(f"rem.u32 %Tm, %T{a}, %Tc{a}; mad.lo.u32 %Trank, %Trank, %Tc{a}, %Tm;" for a in "yx"),
        "mul.wide.u32 %Tq, %Tn, %Tcapacity; add.u64 %Tq, %Tq, %Tfirst; shl.b64 %Tq, %Tq, 2; add.u64 %Twords, %Twords, %Tq;",
        "mad.wide.u32 %Tcursor, %Twarp, 4, %Tcursors;",
        f"mul.wide.u32 %Tq, %Twarp, {4 * (max(1, sites) + _REACHES)}; add.u64 %Tlast, %Tlast, %Tq;",
        "mov.u32 %Tm, %laneid; mul.wide.u32 %Tlane, %Tm, 4;",
    ]
    return [statement.strip() + ";" for line in lines for statement in line.split(";") if statement.strip()]


def prologue(block: int, accesses: int, copies: bool) -> list[str]:
    """The statements, without semicolons, that record a block with so many accesses; ``copies``: whether copies are among them."""
    # If only copies, or only first accesses, of a CTA are recorded, a warp ends when it has recorded enough.
    statements = [
        "ld.global.u32 %Tnow, [%Tcursor]",
        f"setp.gt.u32 %Troom, %Tnow, %{'Tenough' if copies else 'Tuntil'}",
        "@%Troom exit",
        f"add.u32 %Tend, %Tnow, {_HEAD + _LANES * accesses}",
    ]
    if not copies:
        statements.append("selp.u32 %Tend, %Tend, %Tnow, %Tcounts")
    statements += ["st.global.u32 [%Tcursor], %Tend", "setp.le.u32 %Troom, %Tend, %Tcapacity"]
    if not copies:
        statements.append("and.pred %Troom, %Troom, %Tall")
    statements += [
        "mad.wide.u32 %Tplace, %Tnow, 4, %Twords",
        "activemask.b32 %Tmask",
        f"mov.u32 %Tblock, {block}",
        "@%Troom st.global.v2.u32 [%Tplace], {%Tblock, %Tmask}",
    ]
    return [*statements, "add.u64 %Tplace, %Tplace, %Tlane"] if accesses else statements


def place_of(number: int, field: int = 0) -> int:
    """The offset in bytes from ``%Tplace`` of the word of an access, by its number in its block."""
    return 4 * (_HEAD + _LANES * number + field)


class TraceKernel(ABC):
    """A trace kernel, ``kernel``, of the code ``graph`` for architecture ``number`` (90 for ``sm_90a``). ``of_block``: the indices of
    the ``sites`` of each block; ``reads_memory`` and ``reads_shared``: whether loaded values, of shared memory in particular, decide
    about control flow or addresses; ``atomics``: whether results of atomics of global memory do; ``passes_on``: whether warps may
    exchange such values with mbarriers, for which the trace does not wait; ``parameter_at``: the offset in the parameter buffer of a
    launch for a constant of bank 0, negative if it is no parameter."""

    kernel: Function
    graph: Graph
    number: int
    sites: list[Site]
    of_block: dict[int, list[int]]
    reads_memory: bool
    reads_shared: bool
    atomics: bool
    passes_on: bool
    parameter_at: Callable[[int], int]

    @abstractmethod
    def shared_bytes(self, plan: LaunchPlan) -> int:
        """Bytes of dynamic shared memory with which the kernel runs."""

    @abstractmethod
    def buffer(self, record: LaunchRecord) -> bytes:
        """The parameter buffer of the kernel, without the parameters of the trace."""

    def reason(self, line: int) -> str:
        """Why the run ends at a line of the kernel, or an empty string."""
        return ""

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

    def lengths(
        self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """``Trace.used`` and ``Trace.last`` of these CTAs. Each warp ends when its record would have ``words`` words: ``used`` is then
        the first number of words, larger than that, at the end of a block."""
        trace = self._attempt(record, ctas, 0, 0, (_BEGINNING + words, 0xFFFFFFFF))
        return trace.used, trace.last

    def takes_all(self, plan: LaunchPlan) -> bool:
        """Whether all CTAs of the launch run in a trace, as results of atomics decide, and they are not too many."""
        return self.atomics and plan.ctas * plan.warps_per_cta <= _MOST_WARPS

    def in_turns(
        self, record: LaunchRecord, ctas: list[tuple[int, int, int]]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """``Trace.used`` if these CTAs run one after the other, and if they do in the opposite order."""
        everything = OFF, 0xFFFFFFFF
        there = self._attempt(record, ctas, 0, 0, everything)
        back = self._attempt(record, ctas, 0, 0, everything, backwards=True)
        return there.used, back.used

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

    def _attempt(
        self,
        record: LaunchRecord,
        ctas: list[tuple[int, int, int]],
        full: int,
        capacity: int,
        copies: tuple[int, int],
        races: str = "off",
        backwards: bool = False,
    ) -> Trace:
        """Runs the trace kernel. ``words`` has at most ``capacity`` words for each warp: if ``used`` is larger, they are truncated."""
        plan, warps = record.plan, record.plan.warps_per_cta
        total = capacity * warps * full
        shared = self.shared_bytes(plan)
        ctas, rows = self._running(plan, ctas, backwards)
        ends = np.full((len(ctas), warps, max(1, len(self.sites)) + _REACHES), OFF, np.uint32)
        device = self._device(record, 4 * total + ends.nbytes + (64 << 20), races, full)
        # The launch keeps to the limit of the GPU; the trace has room of its own besides.
        device.largest_shared = plan.shared_bytes + shared
        words = device.empty(max(1, total), np.uint32)
        cursors = device.zeros(warps * len(ctas), np.uint32)
        last = device.array(ends.reshape(-1))
        table = device.array(_table(ctas, rows[:full], capacity, warps, copies).reshape(-1))
        raw = self._parameters(record, [array.address for array in (words, cursors, last, table)])
        try:
            _, _, seen = device.run(self.kernel, (len(ctas), 1, 1), plan.block, raw, shared_bytes=shared)
        except BudgetExceeded:
            raise NotRun(
                "its CTAs execute too much to be recorded, or wait for what others store, which is not carried out"
            ) from None
        except EngineError as error:
            line = error.span.line if error.span is not None else 0
            raise NotRun(self.reason(line) or error.message) from None
        if any(race.space == "shared" for race in seen.races):
            raise NotRun(
                "its control flow or addresses depend on values passed in shared memory with mbarriers"
            )
        used = cursors.numpy().reshape(len(ctas), warps)[rows]
        if copies[0] < _BEGINNING:
            used = np.minimum(used, capacity)
        recorded = device.memory.view(words.allocation).view(np.uint32)
        ends = device.memory.view(last.allocation).view(np.uint32)[: ends.size].reshape(ends.shape)
        copied, written, read = _reaches(ends[:, :, -_REACHES:])
        return Trace(
            _split(recorded, used[:full], capacity, rows[:full]),
            ends[rows, :, :-_REACHES],
            used,
            copied,
            written,
            read,
        )

    def _running(
        self, plan: LaunchPlan, ctas: list[tuple[int, int, int]], backwards: bool
    ) -> tuple[list[tuple[int, int, int]], NDArray[np.int64]]:
        """The CTAs that run, one after the other, and the numbers of ``ctas`` among these."""
        rows = np.arange(len(ctas))
        if self.takes_all(plan):
            wide, tall, deep = plan.grid
            rows = np.array([x + wide * (y + tall * z) for x, y, z in ctas])
            ctas = [(x, y, z) for z in range(deep) for y in range(tall) for x in range(wide)]
        return (ctas[::-1], len(ctas) - 1 - rows) if backwards else (ctas, rows)

    def _parameters(self, record: LaunchRecord, addresses: list[int]) -> bytes:
        """The parameter buffer, with the parameters of the trace."""
        plan, raw = record.plan, self.buffer(record)
        own = (
            np.array(addresses, np.uint64).tobytes()
            + np.array([*plan.grid, plan.warps_per_cta, *plan.cluster], np.uint32).tobytes()
        )
        return raw.ljust(self.kernel.param_bytes - OWN_BYTES, b"\0") + own.ljust(OWN_BYTES, b"\0")


def _budget(record: LaunchRecord, full: int) -> int:
    """The instruction budget of a warp: more than all warps of the launch execute, or than can be recorded of one of ``full`` CTAs.
    CTAs that wait for stores of other CTAs would never end."""
    lengths = np.array([len(block.instructions) for block in record.program.blocks], np.int64)
    executed = int(record.observation.block_warps.astype(np.int64) @ lengths)
    words = _MOST_WORDS // (record.plan.warps_per_cta * max(1, full))
    return min(_OF_INSTRUCTION * (executed + 1024), _OF_WORD * words)


def _table(
    ctas: list[tuple[int, int, int]],
    recorded: NDArray[np.int64],
    capacity: int,
    warps: int,
    copies: tuple[int, int],
) -> NDArray[np.uint32]:
    """A row for each CTA: its position in the grid, the capacity of each of its warps in words, the start of the first warp's words,
    and ``copies``: the limit of words and the mask of warps. ``recorded``: the numbers of those that have room, in that order."""
    table = np.zeros((len(ctas), 8), np.uint32)
    table[:, :3] = ctas
    table[:, 6:] = copies
    rows, firsts = np.unique(recorded, return_index=True)
    starts = firsts.astype(np.uint64) * np.uint64(capacity * warps)
    table[rows, 3] = capacity
    table[rows, 4], table[rows, 5] = starts & np.uint64(0xFFFFFFFF), starts >> np.uint64(32)
    return table


def _split(
    words: NDArray[np.uint32], used: NDArray[np.uint32], capacity: int, recorded: NDArray[np.int64]
) -> list[list[NDArray[np.uint32]]]:
    """The records of each warp of each CTA: ``used`` words, at most ``capacity``. ``recorded``: as of ``_table``; a CTA that occurs
    again has the room of its first occurrence."""
    _, firsts, again = np.unique(recorded, return_index=True, return_inverse=True)
    room = firsts[again].reshape(-1, 1)
    starts: NDArray[np.int64] = capacity * (room * used.shape[1] + np.arange(used.shape[1]))
    ends = starts + np.minimum(used, capacity)
    return [
        [words[start:end] for start, end in zip(*of_cta)] for of_cta in zip(starts.tolist(), ends.tolist())
    ]


def _reaches(ends: NDArray[np.uint32]) -> list[tuple[int, int] | None]:
    """Ranges of shared memory: destinations of copies, stores that are not executed, and needed loads; ``ends``: [CTA, warp, reach].
    Raises ``NotRun`` if such stores and loads may overlap in global memory."""
    least = ends.min(axis=(0, 1)).tolist()
    copied, written, read, stored, loaded = (
        None if least[first] == OFF else (least[first], OFF - least[first + 1])
        for first in (COPIED, WRITTEN, READ, GLOBAL + WRITTEN, GLOBAL + READ)
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
