"""Machine instructions as records of the simulation (``jit.ir.sm_records.Op``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import ALIGNED, EITHER, FRACTION, NONE, Image, Kind, Op, Signal, Tensor
from ...jit.ir.sm_records import Block as BlockRecord
from ...machines.expansion import expansion_of
from ..graph import Graph, StateAccess
from ..listing import NEVER, Decoded
from ..pipes import pipe_of
from ..products import PRODUCTS, machine_cost
from ..registers import (
    COPIES,
    IMAGES,
    TENSOR_PRODUCTS,
    WIDTHS,
    Accesses,
    Expanded,
    accesses_of,
    fragment_of,
)
from ..run.asynchronous import names_barrier
from ..run.needed import LOADS, STORES
from ..run.operands import Immediate, read_operand
from ..run.writer import NotRun
from .numbers import CODE_LINE, SmNumbers

__all__ = ["BRANCHES", "WIDTHS", "Operations", "aligned", "unit_of", "unit_of_opcode"]

_PIPES = (
    "fma",
    "fma+",
    "alu",
    "imad",
    "fp64",
    "fp16",
    "xu",
    "cbu",
    "adu",
    "tensor",
    "uniform",
    "lsu",
    "tex",
    "other",
)
_INTEGER = frozenset(["IMAD", "IMUL", "IDP", "IDP4A"])
_LOGIC = frozenset(["LOP3", "LOP", "SHF", "SHL", "SHR", "FMNMX", "FMNMX3"])
_HALF = frozenset(["HFMA2", "HADD2", "HMUL2", "HADD2_32", "HFMA2_32", "HMUL2_32"])
_CONVERSIONS, _WIDE = frozenset(["F2F", "F2I", "I2F", "FRND"]), frozenset(["F64", "S64", "U64"])
_ATOMICS = frozenset(["ATOM", "ATOMG", "RED", "REDG"])
_SHUFFLES = frozenset(["SHFL", "MATCH", "REDUX", "MOVM"])
BRANCHES = frozenset(["BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET", "BSYNC", "WARPSYNC", "BREAK"])
_WARPGROUP = frozenset(["HGMMA", "IGMMA", "QGMMA", "BGMMA"])
_TOLD = {"EXCH": Kind.INIT, "PHASECHK": Kind.TEST, "ARRIVE": Kind.SIGNAL}
_STATES = {"init": Kind.INIT, "signal": Kind.SIGNAL, "test": Kind.TEST}
#: What a lane signals to an mbarrier: its arrivals (A) and transactions (T), each none, one, or by a register.
_SIGNALS = {
    "A1T0": Signal.ARRIVES,
    "ART0": Signal.ARRIVES | Signal.TIMES,
    "A0TR": Signal.BYTES,
    "A0TX": Signal.BYTES | Signal.COMPLETES,
    "A0T1": Signal.ONE,
}
#: Instructions on tensor memory, besides products.
_TENSOR = TENSOR_PRODUCTS | {"UTCCP", "UTCSHIFT", "UTCBAR", "UTCATOMSWS", "LDTM", "STTM"}
#: Sectors of a line that a prefetch size has.
_PREFETCHES = {"LTC64B": 2, "LTC128B": 4, "LTC256B": 4}
#: Bytes of shared memory that a copy to tensor memory reads, by shape.
_COPIED = {
    "128x256": 4096,
    "128dp256bit": 4096,
    "4dp256bit": 128,
    "128dp128bit": 2048,
    "2x64dp128bit": 1024,
    "4x32dp128bit": 512,
}
#: Units that queue instructions, whose registers are read when a bank is free.
_QUEUED = frozenset(["lsu", "tma", "xu"])


def unit_of(item: Decoded, architecture: int) -> str:
    """The unit of a machine description that an instruction occupies."""
    return unit_of_opcode(item.opcode, architecture)


@cache
def unit_of_opcode(opcode: str, architecture: int) -> str:
    """As ``unit_of``, for an opcode with its modifiers."""
    base, *words = opcode.split(".")
    if base in _INTEGER:
        return "imad"
    if base in _HALF:
        return "fp16"
    if base in _CONVERSIONS and _WIDE.intersection(words) and _narrow(architecture):
        return "fp64"
    if base == "F2I" and not _WIDE.intersection(words) and _slow(architecture):
        return "fp64"
    return pipe_of(opcode, architecture)


@cache
def _narrow(architecture: int) -> bool:
    """Whether conversions from and to 64-bit types go through the 64-bit pipe."""
    expansion = expansion_of("cvt.f64.f32", divmod(architecture, 10))
    return expansion is not None and "fp64" in expansion.units


@cache
def _slow(architecture: int) -> bool:
    """Whether conversions of single precision to 32-bit integers go through the 64-bit pipe."""
    expansion = expansion_of("cvt.rzi.s32.f32", divmod(architecture, 10))
    return expansion is not None and "fp64" in expansion.units


def aligned(size: int) -> NDArray[np.uint8]:
    """Zeros, from the start of a line of the host's cache on."""
    room: NDArray[np.uint8] = np.zeros(size + ALIGNED, np.uint8)
    return room[-room.ctypes.data % ALIGNED :][:size]


class Operations:
    """``table``: an ``Op`` for each instruction, by position; ``blocks``: a ``Block`` for each basic block. The simulation reads and
    writes the arrays in place. ``pair``: the two pipes for single precision."""

    def __init__(self, graph: Graph, numbers: SmNumbers) -> None:
        self.numbers = numbers
        self.items = graph.listing.instructions
        known = [accesses_of(item) for item in self.items]
        registers = [number for one in known for number in (*one.reads, *one.writes)]
        self.registers: NDArray[np.uint16] = np.array([*registers, 0], np.uint16)
        # A warp whose code ends without EXIT is briefly at the position after the last instruction.
        self.table: NDArray[np.uint8] = aligned((len(self.items) + 1) * Op.BYTES)
        self.pair = _index(numbers.pipes.get("fma", "fma")), _index("fma+")
        ports = list(_ports(graph, known))
        place = int(self.registers.ctypes.data)
        for position, (item, accesses) in enumerate(zip(self.items, known)):
            self._fill(position, item, accesses, ports[position], place)
            place += 2 * (len(accesses.reads) + len(accesses.writes))
        for position, state in graph.states.items():
            self._fill_state(position, state)
        for position in graph.grid_waits:
            row = self.table[position * Op.BYTES : (position + 1) * Op.BYTES]
            row.view(np.uint16)[Op.KIND // 2] = Kind.GRID_WAIT
        self._read_only_waits()
        # If the code fits in the instruction cache, the previous launch left all of it there: no lookups are needed.
        if numbers.code is not None and len(self.items) > CODE_LINE * numbers.code.icc_lines:
            self._begin_lines(graph)
        start = int(self.table.ctypes.data)
        self.blocks: NDArray[np.uint64] = np.array(
            [[start + Op.BYTES * block.start, start + Op.BYTES * block.end] for block in graph.blocks],
            np.uint64,
        )
        assert BlockRecord.BYTES == 16

    def _read_only_waits(self) -> None:
        """Marks the waits for bulk copies that need only the sources to have been read (``.read``): no ``CCTL`` follows these waits,
        and L2 need not have responded."""
        bases = [item.base for item in self.items]
        if "UTMACMDFLUSH" not in bases or "LDGSTS" in bases:
            return
        for position, base in enumerate(bases):
            if base == "DEPBAR" and "CCTL" not in bases[position + 1 : position + 3]:
                words = self.table[position * Op.BYTES : (position + 1) * Op.BYTES].view(np.uint64)
                words[Op.ARGUMENT // 8] |= np.uint64(self.numbers.latencies["l2"] << 8)

    def _begin_lines(self, graph: Graph) -> None:
        """Marks the positions where a warp may enter another line of code: the starts of lines and of basic blocks."""
        rows = self.table[: len(self.items) * Op.BYTES].reshape(-1, Op.BYTES)
        starts = [block.start for block in graph.blocks if block.start < block.end]
        places = np.union1d(np.arange(0, len(self.items), CODE_LINE), starts).astype(np.int64)
        numbers = (1 + places // CODE_LINE).astype(np.uint32)
        rows[places, Op.LINE : Op.LINE + 4] = numbers[:, None].view(np.uint8)

    def counted(self, field: int, kind: type[np.unsignedinteger[Any]] = np.uint64) -> NDArray[Any]:
        """A field of all instructions, as numbers of type ``kind``."""
        rows = self.table[: len(self.items) * Op.BYTES].reshape(-1, Op.BYTES)
        return rows[:, field : field + np.dtype(kind).itemsize].copy().view(kind).reshape(-1)

    def occupied(self, issued: NDArray[np.uint64]) -> dict[str, float]:
        """Clocks for which each pipe is occupied by instructions that were issued ``issued`` times. Of a unit with two pipes: the
        mean, or those of instructions that only one of them executes, if these are more."""
        table = self.table[: len(self.items) * Op.BYTES].reshape(-1, Op.BYTES)
        pipes = table[:, Op.PIPE : Op.BUSY + 2].copy().view(np.uint16)
        clocks = issued.astype(np.float64) * pipes[:, 2]
        clocks[self.counted(Op.COMMON, np.uint8) != 0] *= self.numbers.parts
        occupied = {}
        for index, name in enumerate(_PIPES):
            own = float(clocks[pipes[:, 0] == index].sum())
            either = float(clocks[(pipes[:, 0] == index) & (pipes[:, 1] != NONE)].sum())
            if own and name != "lsu":
                occupied[name] = max(own - either, own / 2) if either else own
        return occupied

    def reset(self) -> None:
        """Clears the counters of a run."""
        rows = self.table[: len(self.items) * Op.BYTES].reshape(-1, Op.BYTES)
        rows[:, Op.ISSUED : Op.STALLS + 8] = 0
        rows[:, Op.MOVED : Op.OWN + 16] = 0

    @cached_property
    def has_barrier(self) -> bool:
        """Whether warps wait for one another at one of the 16 barriers of their CTA."""
        return bool(np.isin(self.counted(Op.KIND, np.uint16), (Kind.BARRIER, Kind.NAMED_BARRIER)).any())

    def change(self, changed: Mapping[int, int]) -> None:
        """Sets the changes (``Change``) of instructions, by position, and clears all others."""
        rows = self.table[: len(self.items) * Op.BYTES].reshape(-1, Op.BYTES)
        rows[:, Op.CHANGE : Op.CHANGE + 2] = 0
        for position, bits in changed.items():
            rows[position, Op.CHANGE] = bits

    def _fill(
        self, position: int, item: Decoded, accesses: Accesses, ports: tuple[int, int], registers: int
    ) -> None:
        row = self.table[position * Op.BYTES : (position + 1) * Op.BYTES]
        halves, words = row.view(np.uint16), row.view(np.uint64)
        kind, latency, argument = _kind(item, self.numbers)
        pipe, other, busy = self._pipe(item)
        halves[:4] = kind, pipe, other, busy
        halves[Op.LATENCY // 2] = latency + self._longer(item, busy)
        row[Op.COMMON], row[Op.YIELDS] = self._common(item), item.control.yields
        row[Op.PORTS], row[Op.REUSED] = ports
        row[Op.FREE] = pipe if other == NONE else EITHER
        row[Op.READS], row[Op.WRITES] = len(accesses.reads), len(accesses.writes)
        halves[Op.PAUSE // 2] = _pause(item, self.numbers)
        halves[Op.WINDOW // 2] = self._window(kind, item, ports[0])
        halves[Op.COLLECT // 2] = self._collect(kind, item, (ports[0] & 15) + (ports[0] >> 4))
        row[Op.FETCH], row[Op.PAST_L1] = _fetch(item), _past_l1(item)
        words[Op.REGISTERS // 8], words[Op.ARGUMENT // 8] = registers, argument

    def _fill_state(self, position: int, state: StateAccess) -> None:
        """Makes an access to the state of an mbarrier in shared memory a change or test of the mbarrier too."""
        row = self.table[position * Op.BYTES : (position + 1) * Op.BYTES]
        row.view(np.uint16)[Op.KIND // 2] = _STATES[state.kind]
        row.view(np.uint64)[Op.ARGUMENT // 8] = Signal.STATE | state.how

    def _window(self, kind: int, item: Decoded, reads: int) -> int:
        """The clocks in which an instruction of fixed latency must read its registers (``reads``, by bank); 0 for others, which wait
        in the queue of their unit until they have read theirs."""
        if kind >= Kind.TENSOR or self._common(item) or unit_of(item, self.numbers.architecture) in _QUEUED:
            return 0
        clocks = self.numbers.read_clocks
        return clocks if max(reads & 15, reads >> 4) <= clocks else self.numbers.wide_read_clocks

    def _collect(self, kind: int, item: Decoded, registers: int) -> int:
        """The clocks in which the queue of a sub-partition reads the registers of an instruction; 0 for those that it does not
        queue."""
        numbers, known = self.numbers, self.numbers.operand_clocks
        if kind >= Kind.SHARED:
            return max(1, known * registers) if known else numbers.address_clocks
        return known * registers if unit_of(item, numbers.architecture) == "xu" else 0

    def _common(self, item: Decoded) -> bool:
        """Whether all sub-partitions share the unit of an instruction, because it has fewer lanes than an SM has sub-partitions."""
        unit = unit_of(item, self.numbers.architecture)
        return unit not in ("lsu", "tma") and self.numbers.lanes.get(unit, 1.0) < 1.0

    def _longer(self, item: Decoded, busy: int) -> int:
        """Clocks by which the result of a product that other units than tensor cores execute is later than that of one of their
        instructions: those between its first and its last multiply-adds."""
        unit = unit_of(item, self.numbers.architecture)
        if item.base not in PRODUCTS or unit == "tensor":
            return 0
        lanes = self.numbers.lanes.get(unit, self.numbers.lanes["alu"])
        return max(0, busy - round(32 / (lanes * (self.numbers.parts if self._common(item) else 1))))

    def _pipe(self, item: Decoded) -> tuple[int, int, int]:
        """The two pipes that may execute the instruction, and the clocks for which it occupies one of them."""
        numbers, unit = self.numbers, unit_of(item, self.numbers.architecture)
        if unit == "lsu" or unit == "tma":
            return _PIPES.index("lsu"), NONE, 1
        if item.base in IMAGES:  # the texture units are simulated apart
            return _PIPES.index("tex"), NONE, 1
        if item.base in _TENSOR:  # issued, but not executed, by the sub-partition
            return _PIPES.index("uniform"), NONE, 1
        lanes = numbers.lanes.get(unit, numbers.lanes["alu"])
        if _is_full_rate(item):
            lanes = numbers.tensor_fp16_accumulate or lanes
        if item.base == "IMAD" and "WIDE" in item.opcode.split("."):
            lanes *= numbers.wide_rate
        if self._common(item):
            lanes *= numbers.parts
        busy = max(1, round(32 / lanes))
        if item.base in _WARPGROUP:
            # what one warp of four computes, in products of 16 x 8 x 32 bytes
            busy = max(1, round(shape_of(item)[1] / 8 * 2 * busy))
        elif cost := machine_cost(item.opcode, numbers.architecture):
            busy = max(1, round(32 / lanes * cost.instructions))
        pipe = numbers.pipes.get(unit, unit)
        index = _index(pipe)
        if item.base in _LOGIC and numbers.logic_lanes:
            # The other half than that of the integer multipliers, where these cores execute single precision too.
            return _index("fma+") if pipe == "fma" else index, NONE, max(1, round(32 / numbers.logic_lanes))
        if unit == "fma" and lanes >= 32:
            # two halves of 16 lanes
            return index, _index("fma+"), 2
        return index, NONE, busy


def _index(pipe: str) -> int:
    return _PIPES.index(pipe if pipe in _PIPES else "other")


def _is_full_rate(item: Decoded) -> bool:
    """Whether it is a product with FP16 or integer accumulators, or of packed 4-bit numbers, which GeForce GPUs execute at twice the
    rate, for its types, of one with FP32 accumulators."""
    words = item.opcode.split(".")
    return item.base in ("IMMA", "BMMA", "OMMA") or (
        item.base in ("HMMA", "QMMA") and "F16" in words and "F32" not in words
    )


def _kind(item: Decoded, numbers: SmNumbers) -> tuple[int, int, int]:
    """The kind, the latency and the argument of an instruction."""
    base, latencies = item.base, numbers.latencies
    shared, plain = latencies["shared"], latencies.get(unit_of(item, numbers.architecture), latencies["alu"])
    if item.predicate in NEVER:
        return Kind.PLAIN, plain, 0
    if base in _SHUFFLES:
        return Kind.SHUFFLE, latencies["shuffle"], 0
    if base == "LDGSTS":
        return Kind.COPY, 1, _words(item)
    if base in _ATOMICS:
        return Kind.ATOMIC, latencies["l2"], _words(item)
    space = LOADS.get(base) or STORES.get(base)
    if space == "shared":
        return Kind.SHARED, shared, _words(item)
    if space == "local":
        return (Kind.LOCAL_LOAD if base in LOADS else Kind.LOCAL_STORE), latencies["l1"], _words(item)
    if space is not None:
        return (Kind.LOAD if base in LOADS else Kind.STORE), latencies["l1"], _words(item)
    if base in IMAGES:
        return Kind.IMAGE, 1, _of_image(item)
    if base in ("LDGDEPBAR", "UTMACMDFLUSH"):
        return Kind.COMMIT, 1, 0
    if base == "DEPBAR" and len(item.operands) == 2:
        return Kind.WAIT, 1, _count(item)
    if base in _TENSOR or item.opcode == "FENCE.VIEW.ASYNC.T":
        return _of_tensor_memory(item, numbers)
    if asynchronous := _asynchronous(item, numbers):
        return asynchronous
    if base == "BAR":
        return _barrier(item)
    if base == "MEMBAR" and _through_l2(item):
        return Kind.FENCE, plain, 0
    if base in ("S2R", "S2UR", "CS2R", "R2UR", "VOTEU"):
        return Kind.PLAIN, latencies["xu"], 0
    if base == "LDC":
        return Kind.PLAIN, latencies["l1"], 0
    return Kind.PLAIN, plain, 0


def _words(item: Decoded) -> int:
    """32-bit words that an access moves per lane, at least one. For matrices: the number of wavefronts of their 8 rows of 16 bytes."""
    words = item.opcode.split(".")
    if item.base in ("LDSM", "STSM"):
        return next((int(word) for word in words[1:] if word in ("2", "4")), 1)
    return next((count for name, count in WIDTHS.items() if name in words), 1)


def _fetch(item: Decoded) -> int:
    """Sectors that L2 reads from DRAM if one of them is missing there: the prefetch size of a load (``ld`` and ``cp.async`` with
    ``.level::prefetch_size``, PTX manual), of which at most a line is simulated."""
    words = item.opcode.split(".")
    return next((sectors for name, sectors in _PREFETCHES.items() if name in words), 1)


def _past_l1(item: Decoded) -> bool:
    """Whether it loads from L2 what L1 neither has nor keeps: ``cp.async.cg`` and ``ld.cg`` cache "at global level (cache in L2 and
    below, not L1)" (PTX manual, *Cache Operators*), of which the second is the same instruction as a load that other SMs may order."""
    words = item.opcode.split(".")
    if item.base == "LDGSTS":
        return "BYPASS" in words
    return item.base in ("LD", "LDG") and "STRONG" in words and not {"SM", "CTA"} & set(words)


def _of_image(item: Decoded) -> int:
    """What an instruction on a texture or surface does, as bits of ``Image``."""
    if item.base in ("SUATOM", "SURED"):
        return Image.FETCH | Image.STORE | Image.ATOMIC
    return Image.STORE if item.base == "SUST" else Image.FETCH


def _asynchronous(item: Decoded, numbers: SmNumbers) -> tuple[int, int, int] | None:
    """The kind, the latency and the argument of an instruction of warpgroups, mbarriers, copies or clusters; ``None`` for others."""
    base, words = item.base, item.opcode.split(".")
    if base in _WARPGROUP:
        rows, columns = shape_of(item)
        # of 32 bytes along k; B is read once for the four warps
        read = columns * 32 // 4 + (rows * 32 // 4 if item.operands[1].startswith("gdesc") else 0)
        return (
            Kind.MATRIX,
            numbers.latencies["tensor"],
            read << 1 | any(text.startswith("gsb") for text in item.operands),
        )
    if base == "WARPGROUP" and "ARRIVE" in words:
        return Kind.MATRIX_ARRIVE, 1, 0
    if base == "WARPGROUP" and "DEPBAR" in words:
        return Kind.MATRIX_WAIT, 1, _count(item)
    if base == "UCGABAR_ARV":
        return Kind.CLUSTER_ARRIVE, 1, 0
    if base == "UCGABAR_WAIT":
        return Kind.CLUSTER_WAIT, 1, 0
    if base in COPIES:
        return Kind.TRANSFER, 1, 0
    if base == "ARRIVES":
        return Kind.COPIES_SIGNAL, 1, _signal_of(item)
    if base in ("STAS", "REDAS"):
        return Kind.DATA_SIGNAL, numbers.latencies["shared"], Signal.BYTES | Signal.COMPLETES
    if base == "SYNCS" and words[1] in _TOLD:
        kind, how = _TOLD[words[1]], 0
        if kind == Kind.SIGNAL:
            how = _signal_of(item)
            kind = Kind.EXPECT if how & (Signal.BYTES | Signal.ONE) else kind
        return kind, numbers.latencies["shared"], how
    return None


def _signal_of(item: Decoded) -> int:
    """What an instruction (``SYNCS.ARRIVE`` or ``ARRIVES``) signals to an mbarrier, as bits of ``Signal``. Raises ``NotRun`` for an
    unknown one.

    ``ptxas`` writes ``A1T0`` for ``mbarrier.arrive``, ``ART0`` with a count, nothing with ``expect_tx``; ``A0TR`` for ``expect_tx``,
    ``A0TX`` for ``complete_tx``. For ``cp.async.mbarrier.arrive`` it expects one transaction more (``A0T1``), which ``TRANSCNT``
    completes with the copies; ``ARVCNT``, of ``.noinc``, is an arrival.
    """
    words = item.opcode.split(".")
    if item.base == "ARRIVES":
        return Signal.ONE | Signal.COMPLETES if "TRANSCNT" in words else Signal.ARRIVES
    effects = [effect for word, effect in _SIGNALS.items() if word in words]
    if (
        not {*words} <= _SIGNALS.keys() | {"SYNCS", "ARRIVE", "TRANS64", "RED", "TMASK", "OPTOUT"}
        or len(effects) > 1
    ):
        raise NotRun(f"{item.opcode} is not known here")
    returns = "RED" not in words and bool(accesses_of(item).writes)
    how = effects[0] if effects else Signal.ARRIVES | Signal.BYTES
    return how | Signal.DROPS * ("OPTOUT" in words) | Signal.RETURNS * returns


def _of_tensor_memory(item: Decoded, numbers: SmNumbers) -> tuple[int, int, int]:
    """As ``_asynchronous``, for ``tcgen05``. The argument: bits of ``Tensor``; of a copy also its bytes, from bit 8 on; of loads and
    stores of warps the time in which they pass (1/256 clock). Raises ``NotRun`` if the machine lacks their numbers."""
    base, words = item.base, item.opcode.split(".")
    if not numbers.tensor_read or not numbers.tensor_write or "tcgen05" not in numbers.latencies:
        raise NotRun(
            "the description of the machine lacks tensor_memory.read, tensor_memory.write or latency.tcgen05"
        )
    how = Tensor.PAIR * ("2CTA" in words)
    if base in TENSOR_PRODUCTS:
        first, second = item.operands[:2]
        how |= Tensor.WEIGHTS * ("WS" in words) | Tensor.B_KEPT * ("B_REUSE" in second)
        how |= Tensor.A_KEPT * (first.startswith("tmem") or "A_REUSE" in first) | Tensor.LONG * (
            base == "UTCOMMA"
        )
        return Kind.TENSOR, 1, how
    if base in ("UTCCP", "UTCSHIFT"):
        size = next((size for name, size in _COPIED.items() if f".{name}" in item.opcode), 4096)
        return Kind.TENSOR_COPY, 1, how | (size << 8 if base == "UTCCP" else 0)
    if base == "UTCBAR":
        return Kind.TENSOR_COMMIT, 1, how | Tensor.MULTICAST * ("MULTICAST" in words)
    if base == "UTCATOMSWS":
        return (Kind.DEALLOCATE if "AND" in words else Kind.ALLOCATE), numbers.latencies["shared"], how
    if base == "LDTM":
        return Kind.TENSOR_LOAD, numbers.latencies["tensor_load"], _passing(item, numbers.tensor_read)
    if base == "STTM":
        return Kind.TENSOR_STORE, numbers.latencies["tensor_store"], _passing(item, numbers.tensor_write)
    return Kind.TENSOR_WAIT, 1, 0


def _passing(item: Decoded, rate: float) -> int:
    """The time (1/256 clock) in which a fragment passes, at ``rate`` bytes per clock of a lane of tensor memory. Shapes of 16 lanes
    move two words of a warp's 32 for each lane."""
    words = 4 * fragment_of(item) * (2 if "16dp" in item.opcode else 1)
    return round((words / rate) * (1 << FRACTION))


def _count(item: Decoded) -> int:
    """The number of groups that may still be pending when a wait ends."""
    count = read_operand(item.operands[1])
    return (count.value or 0) if isinstance(count, Immediate) else 0


def shape_of(item: Decoded) -> tuple[int, int]:
    """Rows and columns of a matrix product of a warpgroup."""
    rows, columns, *_ = item.opcode.split(".")[1].split("x")
    return int(rows), int(columns)


def _barrier(item: Decoded) -> tuple[int, int, int]:
    """The kind, the latency and the argument of a barrier: its number, plus 16 times the number of warps that it waits for; 0 warps:
    all of the CTA that have not ended. The trace records a barrier that registers name."""
    if names_barrier(item):
        return (Kind.NAMED_ARRIVE if "ARV" in item.opcode else Kind.NAMED_BARRIER), 1, 0
    values = [one.value or 0 for one in map(read_operand, item.operands) if isinstance(one, Immediate)]
    number = values[0] & 15 if values else 0
    warps = values[1] // 32 if len(values) > 1 else 0
    return (Kind.ARRIVE if "ARV" in item.opcode else Kind.BARRIER), 1, number | warps << 4


def _pause(item: Decoded, numbers: SmNumbers) -> int:
    """Clocks until the next instruction of the warp: the stall count that the assembler encodes. Of a branch it covers the resolution
    of the branch. A warp that yields issues nothing in the next clock."""
    paused = max(item.control.stall, 1 + (item.control.yields and item.base not in BRANCHES))
    if item.base in ("MEMBAR", "FENCE"):
        # Threads of one CTA communicate through shared memory or the L1 of their SM.
        if item.opcode == "FENCE.VIEW.ASYNC.S":
            return max(paused, numbers.latencies["shared"])
        if item.opcode != "FENCE.VIEW.ASYNC.T":
            return max(paused, numbers.latencies["l2" if _through_l2(item) else "l1"])
    return paused


def _through_l2(fence: Decoded) -> bool:
    """Whether a fence orders what threads of other CTAs see."""
    return "CTA" not in fence.opcode.split(".")


def _ports(graph: Graph, known: list[Accesses]) -> Iterator[tuple[int, int]]:
    """For each position the registers that are read from the two banks: without reuse, and without those that earlier instructions of
    the warp have kept. Each bank keeps one register for each operand slot, until that
    slot reads the bank again (Huerta et al., "Dissecting and Modeling the Architecture of Modern GPU Cores", MICRO 2025, 5.3.1)."""
    for block in graph.blocks:
        kept: dict[tuple[int, int], int] = {}
        for position in range(block.start, block.end):
            item = graph.listing.instructions[position]
            if isinstance(item, Expanded):
                yield item.ports
                continue
            every: set[int] = set()
            read: set[int] = set()
            for source in known[position].sources:
                numbers = range(source.number, source.number + source.count)
                every.update(numbers)
                read.update(
                    number
                    for number in numbers
                    if source.count > 2 or kept.get((number & 1, source.slot)) != number
                )
            for source in known[position].sources:
                for number in range(source.number, source.number + source.count):
                    if source.slot in item.control.reuse and source.count <= 2:
                        kept[number & 1, source.slot] = number
                    else:
                        kept.pop((number & 1, source.slot), None)
            yield _by_bank(every), _by_bank(read)


def _by_bank(registers: set[int]) -> int:
    """How many registers are in the even bank (4 bits), and in the odd one."""
    odd = sum(number & 1 for number in registers)
    return min(15, len(registers) - odd) | min(15, odd) << 4
