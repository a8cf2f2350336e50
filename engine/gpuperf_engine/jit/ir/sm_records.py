"""Records of the simulation of one SM (``jit.runtime.sm.core``), at host addresses.

Times are in clocks; those of units that several requests share are in 1/256 clock (``FRACTION``).
"""

from __future__ import annotations

from .records import U8, U16, U32, U64, Array32, Array64, Pointer, Record

__all__ = [
    "ALIGNED",
    "AT_BIT",
    "CAUSE_BIT",
    "EITHER",
    "END",
    "FRACTION",
    "GROUPS",
    "MOST_OF_ACCESS",
    "MOST_QUEUED",
    "MOST_WARPS",
    "NEVER",
    "NONE",
    "QUEUED",
    "RANK_BIT",
    "REGISTERS",
    "SUB_CORES",
    "TAG_SETS",
    "TOGETHER",
    "TRAIL",
    "WINDOW",
    "Block",
    "Cause",
    "Change",
    "Code",
    "Copy",
    "Event",
    "Image",
    "Kind",
    "Limits",
    "Line",
    "Mbarrier",
    "Op",
    "Program",
    "Slot",
    "Sm",
    "Stall",
    "Stream",
    "Tensor",
    "Warp",
]

#: fractional bits of a clock in the times of shared units
FRACTION = 8
#: maximum number of groups of accesses
GROUPS = 256
#: the word that ends a stream, and the number of a pipe that is absent
END = 0xFFFFFFFF
NONE = 0xFFFF
#: maximum number of sub-partitions, of pipes of each, and of instructions in the memory queue of each
SUB_CORES, _PIPES, MOST_QUEUED = 4, 16, 32
#: sets of the tags of L1
TAG_SETS = 4
#: bytes that an access takes in a stream at most: its head, and 128 lines or 32 signals of two words
MOST_OF_ACCESS = 4 * 129
#: registers, uniform registers and predicates of a warp; maximum number of warps of a CTA
REGISTERS, MOST_WARPS = 528, 32
#: layout of a time with its cause: the time (40 bits) from bit AT_BIT on, the cause from bit CAUSE_BIT on, and below it the position
#: of an instruction
CAUSE_BIT, AT_BIT = 20, 24
#: number of issued instructions in the trail of a warp, and number of 64-clock words in the issue record of a sub-partition
TRAIL, WINDOW = 64, 32
#: bytes of a line of the host's cache, a multiple of which instructions and warps begin at
ALIGNED = 64
#: a time that no simulation reaches, and that leaves room for a cause in a signed number
NEVER = 1 << 38
#: the pipe that is free when one of the two for single precision is
EITHER = 14
#: the bit of ``Sm.NEEDS`` of an instruction that uses the memory queue, above the number of its pipe
QUEUED = 16
#: warps that are compared at once, and bits of the number of a warp in its sub-partition
TOGETHER, RANK_BIT = 8, 12


class Cause:
    """What a warp waits for before it issues: the result of another instruction (``GROUP``: of copies, ``PRODUCT``: of ``wgmma``); a
    pipe, or room in the memory queue; although it could issue, register ports, or other warps that issue; its own branch or fence
    (``PAUSE``); the fetch of the instruction (``FETCH``); or, held at an instruction, the other warps of the CTA, of the cluster or
    of the warpgroup, an mbarrier, or columns of tensor memory. ``UNKNOWN``: there was no room to record the cause."""

    (
        RESULT,
        GROUP,
        PRODUCT,
        PIPE,
        QUEUE,
        PORTS,
        OTHERS,
        PAUSE,
        BARRIER,
        CLUSTER,
        WARPGROUP,
        MBARRIER,
        FETCH,
        COLUMNS,
        UNKNOWN,
    ) = range(15)


class Change:
    """What differs at an instruction when a launch is simulated again, one bit each: its results are ready after one clock; sectors
    that it loads again are in L1; its accesses have no more wavefronts, or no more lines, than their bytes need; no warp waits at its
    barrier."""

    HIDDEN, NEAR, NO_CONFLICTS, SIDE_BY_SIDE, NO_BARRIER = 1, 2, 4, 8, 16


class Kind:
    """What an instruction does besides occupying a pipe; from ``SHARED`` on, it uses the memory queue. ``MATRIX``: ``wgmma``;
    ``FENCE``: waits until the accesses of the warp to global memory are performed;
    ``GRID_WAIT``: for the other CTAs of the grid;
    ``NAMED_BARRIER`` and ``NAMED_ARRIVE``: at the barrier that the stream names, from here on some have words in the stream;
    ``TRANSFER``: a bulk or tensor copy; from ``TENSOR`` on, ``tcgen05``: products, copies to tensor memory, ``commit``, loads and
    stores of warps, ``wait::st``, ``alloc`` and ``dealloc``; ``IMAGE``: a texture or surface; from ``INIT`` on, operations on
    mbarriers, the last: ``st.async`` and ``red.async``."""

    (
        PLAIN,
        BARRIER,
        ARRIVE,
        COMMIT,
        WAIT,
        MATRIX,
        MATRIX_ARRIVE,
        MATRIX_WAIT,
        FENCE,
        CLUSTER_ARRIVE,
        CLUSTER_WAIT,
        GRID_WAIT,
        NAMED_BARRIER,
        NAMED_ARRIVE,
        TRANSFER,
        TENSOR,
        TENSOR_COPY,
        TENSOR_COMMIT,
        TENSOR_LOAD,
        TENSOR_STORE,
        TENSOR_WAIT,
        ALLOCATE,
        DEALLOCATE,
        IMAGE,
        SHARED,
        SHUFFLE,
        LOAD,
        STORE,
        ATOMIC,
        LOCAL_LOAD,
        LOCAL_STORE,
        COPY,
        INIT,
        SIGNAL,
        EXPECT,
        TEST,
        COPIES_SIGNAL,
        DATA_SIGNAL,
    ) = range(38)


class Image:
    """Bits of the argument of an instruction on a texture or surface: it fetches texels, stores them, or both at once in L2."""

    FETCH, STORE, ATOMIC = 1, 2, 4


class Signal:
    """Bits of the argument of an instruction that signals an mbarrier: each lane arrives, if ``TIMES`` as often as its value says;
    it expects as many bytes as its value says, or ``ONE``; or, if ``COMPLETES``, these have come; if ``DROPS``, fewer arrivals are
    expected from the next phase on; ``RETURNS``: its result is the state. ``STATE``: it also accesses the state in shared memory,
    as before Hopper."""

    ARRIVES, TIMES, BYTES, ONE, COMPLETES, DROPS, RETURNS, STATE = 1, 2, 4, 8, 16, 32, 64, 128


class Tensor:
    """Bits of the argument of a ``tcgen05`` instruction: for both CTAs of a pair (``MULTICAST``: of a ``commit``, for those of a
    mask), ``.ws``, whether A or B are not read from shared memory, and ``LONG``: whether bit 31 of the instruction descriptor can say
    K = 96. Sizes: ``LANES`` of tensor memory, and its ``UNITS`` of 32 columns that are allocated together."""

    PAIR, WEIGHTS, A_KEPT, B_KEPT, MULTICAST, LONG = 1, 2, 4, 8, 16, 32
    LANES = 128
    UNITS = 16


class Op(Record):
    """A machine instruction. ``READS`` and ``WRITES``: how many of the register numbers at ``REGISTERS`` are read, and then written.
    ``OTHER``: a second pipe that can execute it, or ``NONE``; ``FREE``: the pipe that is free when one of them is. ``PORTS``: how many
    registers it reads from the even bank (4 bits) and from the odd one, ``REUSED`` if the previous instruction was of the same warp;
    ``WINDOW``: clocks in which these reads must end, 0 if it does not wait for them. ``COLLECT``: clocks in which the queue of its
    sub-partition reads its registers. ``PAUSE``: clocks before the next instruction of the warp. ``ARGUMENT``: of a barrier or a
    wait; for an access, the words of a lane. ``CHANGE``: bits of ``Change``. ``FETCH``: sectors, aligned, that L2 reads from DRAM if
    one of them is missing there. ``PAST_L1``: 1 if it loads what L1 neither has nor keeps. ``COMMON``: 1 if all sub-partitions share
    its pipe, ``YIELDS`` if another warp is preferred next.
    ``LINE``: the number of its line of code, from 1 on, if a line or a block begins with it; 0 elsewhere, and if fetches are not
    simulated. Counters: ``ISSUED``, how often it was issued; ``MOVED``, clocks of the LSU; ``LINES`` that its accesses touched, from
    ``LANES``; ``AGAIN``, sectors that a CTA had touched and that are no longer in L1; ``TURNS`` of L2 of atomics, and
    lines of which stores write sectors in part (``runtime.sm.trace``); ``STALLS``, the results and events that its warps waited for,
    and ``OWN``, by cause from ``Cause.PIPE`` on, other waits: the numbers of their ``Stall``, from 1 on."""

    KIND = U16(0)
    PIPE = U16(2)
    OTHER = U16(4)
    BUSY = U16(6)
    LATENCY = U16(8)
    PORTS = U8(10)
    REUSED = U8(11)
    READS = U8(12)
    WRITES = U8(13)
    PAUSE = U16(14)
    REGISTERS = U64(16)
    ARGUMENT = U64(24)
    ISSUED = U64(32)
    STALLS: Pointer[Stall] = Pointer(40)
    CHANGE = U16(48)
    COMMON = U8(50)
    YIELDS = U8(51)
    LINE = U32(52)
    WINDOW = U16(56)
    COLLECT = U16(58)
    FREE = U8(60)
    # in another line of the host's cache, as only instructions that access memory use it
    MOVED = U64(64)
    LINES = U64(72)
    LANES = U64(80)
    AGAIN = U64(88)
    TURNS = U64(96)
    OWN = Array32(104)
    FETCH = U8(120)
    PAST_L1 = U8(121)
    BYTES = 128


class Code(Record):
    """A line of 128 bytes of code. ``HOLDS``: whether the instruction cache of the SM has it, from ``READY`` on; ``USED``: the number
    of its last use there. ``L15_HOLDS`` and ``L15_USED``: the same for the next level."""

    READY = U64(0)
    USED = U64(8)
    L15_USED = U64(16)
    HOLDS = U8(24)
    L15_HOLDS = U8(25)
    BYTES = 32


class Event(Record):
    """An event in the window of clocks. ``WHAT``: 0 a warp of sub-partition ``PART`` issued the instruction at the position ``OP``, 1
    a warp was held at it, 2 a unit worked for it: ``PART`` 0 the LSU, 1 L2, 2 DRAM. ``WARP``: the number of the warp
    on the SM. A warp waited from ``SINCE`` until ``AT`` for the cause ``WHY`` (``Stall``), then until ``NOW`` for another cause; a
    unit worked from ``SINCE`` until ``NOW``."""

    WHAT = U64(0)
    PART = U64(8)
    WARP = U64(16)
    OP = U64(24)
    SINCE = U64(32)
    AT = U64(40)
    NOW = U64(48)
    WHY = U64(56)
    BYTES = 64


class Stall(Record):
    """Clocks that warps waited at the instruction ``AT`` for one cause, ``TIMES`` times. ``WHY``: the cause, and below ``CAUSE_BIT``
    the position of the instruction that they waited for. ``NEXT``: the next stall of the same instruction."""

    WHY = U64(0)
    CLOCKS = U64(8)
    TIMES = U64(16)
    AT = U64(24)
    NEXT: Pointer[Stall] = Pointer(32)
    BYTES = 40


class Block(Record):
    """A basic block: the addresses of its first instruction (``OPS``), and after its last (``ENDS``)."""

    OPS: Pointer[Op] = Pointer(0)
    ENDS = U64(8)
    BYTES = 16


#: Below the number of a warp in ``Line.SEEN``.
SEEN_BIT = 26
#: Added in the stream to the number of lines of which a store writes sectors in part, if it writes single words of them.
SINGLE = 128


class Line(Record):
    """A line of 128 bytes that a CTA touches. ``VALID``, ``TOUCHED``: the sectors that are in L1, and that the CTA has touched;
    ``DRAM``: 1 if the first touch reads DRAM, 2 if another SM has just requested it from DRAM; ``FETCHED``: sectors that L2 has read
    from DRAM, or is reading, because of a prefetch size. ``SEEN``: the sectors that DRAM had moved for the SM when it last accessed
    the line in L2, and from ``SEEN_BIT`` on the number of the warp that did.
    ``NEWER`` and ``OLDER``: its neighbours in L1 by last use; if L1 evicts a random line, ``OLDER`` is its place there. ``OPEN``: in
    the first line of each row of DRAM, until when the row is open."""

    VALID = U8(0)
    TOUCHED = U8(1)
    DRAM = U8(2)
    FETCHED = U8(3)
    SEEN = U32(4)
    READY = U64(8)
    NEWER = U64(16)
    OLDER = U64(24)
    OPEN = U64(32)
    BYTES = 40


class Copy(Record):
    """A kind of bulk or tensor copies: ``BYTES_MOVED`` in shared memory; ``SECTORS`` and ``REQUESTS`` of global memory; ``WAY``: 0 to
    shared memory, 1 from it, 2 reduction, 3 prefetch to L2, 4 to shared memory of another CTA. ``SHARE`` / 2¹⁶ of the sectors come
    from DRAM, ``SUM``: the remainder of previous copies. ``IN_STEP``: 1 if concurrent CTAs copy the same data."""

    BYTES_MOVED = U64(0)
    SECTORS = U64(8)
    REQUESTS = U64(16)
    WAY = U64(24)
    SHARE = U64(32)
    SUM = U64(40)
    #: address of the tensor map or of the copied bytes; set while streams are made
    KEY = U64(48)
    FORM = U64(56)
    IN_STEP = U64(64)
    BYTES = 72


class Mbarrier(Record):
    """An mbarrier: ``COUNT`` arrivals per phase, of which ``PENDING`` are left, with ``EXPECTED`` bytes; ``READY``: the time of the
    latest signal of the phase. ``PHASE``: its number; ``DONE``: when the last even and the last odd phase completed. ``TOKENS``: by
    warp, the parity of the phase of its last arrival that returned a state. ``BY``: the position of the instruction that determined
    ``READY``, ``DONE_BY`` of that which determined ``DONE``."""

    COUNT = U64(0)
    PENDING = U64(8)
    EXPECTED = U64(16)
    READY = U64(24)
    PHASE = U64(32)
    DONE = Array64(40)
    TOKENS = U64(56)
    BY = U64(64)
    DONE_BY = Array64(72)
    BYTES = 88


class Warp(Record):
    """A warp. ``STATE``: 0 absent, 1 runs, 2 to 17 waits at a barrier, 40 at the barrier of the cluster, 42 for the grid, 41 for
    ``WANTED`` units of columns of tensor memory, 48 to 55 for its warpgroup, from 64 on at an mbarrier for the phase of
    ``PARITY``. ``TESTS``: 1 + the number of the mbarrier whose phase is not complete. ``NUMBER``: the index of the warp in its
    CTA. ``PRODUCTS``: when each group of ``wgmma`` completes, ``PRODUCED`` in all. ``CLUSTER``: arrivals at the barrier of the
    cluster. ``AT``: when its operands are ready, and ``WHY`` (``Stall``) not earlier; ``SINCE``: until when its clocks are
    attributed. ``HELD``: the instruction at which it waits for others. ``GROUPS``: when each group of copies and all before it
    complete, ``COMMITTED`` in all; ``COPIED``: when all copies so far complete; ``GROUP_BY``, ``COPIED_BY`` and ``PRODUCT_BY``:
    the positions of the instructions that determine these times. ``READY``: by register number, when it is ready, with the
    position of the instruction that writes it. ``ISSUES``: its trail, the last ``TRAIL`` of its ``STEPS`` instructions: when each
    issued, and the position of the instruction that it waited for, or its own if it waited for no result. ``LINE``: its line of
    code. ``MULTIPLIED``: when its products on tensor memory so far complete, and ``STORED`` (with the position of the instruction)
    its stores there; ``PERFORMED`` (likewise): when its accesses to global memory so far are. ``TURN``: its number in ``Sm.KEYS``."""

    STATE = U64(0)
    AT = U64(8)
    OP: Pointer[Op] = Pointer(16)
    ENDS = U64(24)
    PLACE = U64(32)
    WHY = U64(40)
    SINCE = U64(48)
    STEPS = U64(56)
    TURN = U64(64)
    SLOT = U64(72)
    AGE = U64(80)
    LINE = U64(88)
    HELD: Pointer[Op] = Pointer(96)
    PARITY = U64(104)
    TESTS = U64(112)
    NUMBER = U64(120)
    COMMITTED = U64(128)
    GROUPS = Array64(136)
    PRODUCTS = Array64(200)
    PRODUCED = U64(264)
    CLUSTER = U64(272)
    COPIED_BY = U64(280)
    GROUP_BY = Array64(288)
    PRODUCT_BY = Array64(352)
    COPIED = U64(416)
    MULTIPLIED = U64(424)
    STORED = U64(432)
    WANTED = U64(440)
    PERFORMED = U64(448)
    ISSUES = Array64(456)
    READY = Array64(456 + 8 * TRAIL)
    BYTES = 456 + 8 * TRAIL + 8 * REGISTERS


class Program(Record):
    """What the CTAs of a class execute: the addresses of the ``STREAMS`` of their warps, how many ``LINES`` they touch, and the group
    of each (bytes at ``GROUPS``); at ``ROWS`` the number of the first line in the same row of DRAM (32 bits each); at ``FILLED`` the
    sectors that stores write only in part (8 bits each); at ``SETS`` the sets of the tags of L1 in which they are (8 bits each)."""

    STREAMS = U64(0)
    LINES = U64(8)
    GROUPS = U64(16)
    ROWS = U64(24)
    FILLED = U64(32)
    SETS = U64(40)
    BYTES = 48


class Slot(Record):
    """Room for a CTA, started at ``SINCE``; the previous CTA in the slot started at ``BEFORE``. The first CTAs start in step with
    those of other SMs. ``LIVE``: its warps that have not ended; ``LINES``: the address of its first line; ``ARRIVED``: arrivals at
    each of 16 barriers. ``MBARRIERS``: the address of its first mbarrier. ``WARPGROUPS``: for each of 8 warpgroups, the warps that
    are ready for ``wgmma``. For the cluster, in the slot of its first CTA: arrivals at its barrier (``GATHERED``), the ``PHASE`` of
    the barrier and its start, and the position of the instruction that arrived ``LAST``. ``COLUMNS``: units of columns of tensor
    memory that it holds, from so many ``ALLOCATIONS``."""

    LIVE = U64(0)
    LINES = U64(8)
    NUMBER = U64(16)
    PROGRAM: Pointer[Program] = Pointer(24)
    SINCE = U64(32)
    ARRIVED = Array64(40)
    MBARRIERS = U64(168)
    GATHERED = U64(176)
    PHASE = U64(184)
    PHASE_AT = U64(192)
    WARPGROUPS = Array64(200)
    LAST = U64(264)
    BEFORE = U64(272)
    COLUMNS = U64(280)
    ALLOCATIONS = U64(288)
    BYTES = 296


class Sm(Record):
    """One SM, and the parameters of its machine. The CTAs of a cluster run on ``GROUP`` SMs, of which the first is at ``PEERS``."""

    CTAS = U64(0)
    RESIDENT = U64(8)
    WARPS = U64(16)
    EACH = U64(24)
    PARTS = U64(32)
    WARP: Pointer[Warp] = Pointer(40)
    SLOT: Pointer[Slot] = Pointer(48)
    BLOCK: Pointer[Block] = Pointer(56)
    CLASSES = U64(64)
    PROGRAMS = U64(72)
    FINISHED = U64(80)
    QUEUE = U64(88)
    LSU_CLOCKS = U64(104)
    TAGS = U64(112)
    LATENCY_L1 = U64(128)
    LATENCY_L2 = U64(136)
    LATENCY_DRAM = U64(144)
    LATENCY_BARRIER = U64(152)
    PORT_COST = U64(160)
    L2_COST = U64(168)
    DRAM_COST = U64(176)
    LEAD = U64(184)
    TURNAROUND = U64(192)
    GAP = U64(200)
    L1_LINES = U64(208)
    SHARES = U64(216)
    SUMS = U64(224)
    # state of the simulation
    STARTED = U64(232)
    LAST_START = U64(240)
    LSU = U64(248)
    PORT = U64(256)
    L2 = U64(264)
    DRAM = U64(272)
    KEPT = U64(280)
    NEWEST: Pointer[Line] = Pointer(288)
    OLDEST: Pointer[Line] = Pointer(296)
    ENDED = U64(304)
    DONE = U64(312)
    ISSUED = U64(320)
    L2_SECTORS = U64(328)
    DRAM_SECTORS = U64(336)
    LSU_BUSY = U64(344)
    WAVE = U64(352)
    FREE = Array64(360)
    ADDRESS = Array64(392)
    LAST = Array64(424)
    NEXT_AT = Array64(456)
    NEXT = Array64(488)
    PUSHED = Array64(520)
    PIPES = Array64(552)
    QUEUES = Array64(552 + 8 * SUB_CORES * _PIPES)
    _STEADY = 552 + 8 * SUB_CORES * _PIPES + 8 * SUB_CORES * MOST_QUEUED
    # waves: when the last one ended, how long it took and the backlog of memory; since when, and how many, took the same time;
    # number of CTAs that were not simulated, and their clocks
    WAVE_ENDED = U64(_STEADY)
    WAVE_TOOK = U64(_STEADY + 8)
    WAVE_BEHIND = U64(_STEADY + 16)
    WAVE_FIRST = U64(_STEADY + 24)
    WAVES_ALIKE = U64(_STEADY + 32)
    SKIPPED = U64(_STEADY + 40)
    SKIPPED_CLOCKS = U64(_STEADY + 48)
    PEERS = U64(_STEADY + 56)
    GROUP = U64(_STEADY + 64)
    COPIES = U64(_STEADY + 72)
    MBARRIERS = U64(_STEADY + 80)
    LATENCY_SHARED = U64(_STEADY + 88)
    LATENCY_TMA_L2 = U64(_STEADY + 96)
    LATENCY_TMA_DRAM = U64(_STEADY + 104)
    LATENCY_CLUSTER = U64(_STEADY + 112)
    REQUEST_CLOCKS = U64(_STEADY + 120)
    # when the unit of copies (TMA), and the unit that reads operands from shared memory (in 1/256 clock), are free
    TMA = U64(_STEADY + 128)
    OPERANDS = U64(_STEADY + 136)
    # clocks (1/256) in which operands and copies use the path to shared memory
    COPIED = U64(_STEADY + 144)
    # address of the first instruction; of the next free stall, for all SMs of a cluster in the first one, and of the last one; 1 if
    # warps keep trails; the cause of a late result of an mbarrier test
    OPS = U64(_STEADY + 152)
    STALL = U64(_STEADY + 160)
    LAST_STALL = U64(_STEADY + 168)
    TRAILS = U64(_STEADY + 176)
    LATE_BY = U64(_STEADY + 184)
    # address of the next event, how many more there is room for, and the window of clocks
    EVENT: Pointer[Event] = Pointer(_STEADY + 200)
    EVENTS_LEFT = U64(_STEADY + 208)
    WINDOW_FROM = U64(_STEADY + 216)
    WINDOW_TO = U64(_STEADY + 224)
    # sum over warps of the clocks from the start of their CTA to their end
    RESIDED = U64(_STEADY + 192)
    # the last word, and bits of the clocks in which each sub-partition issued
    MARKED = Array64(_STEADY + 232)
    MARKS = Array64(_STEADY + 232 + 8 * SUB_CORES)
    # degree of mixing of reads and writes in DRAM, 0 to 256
    MIXED = U64(_STEADY + 232 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    # by CTA: the instructions that the SM had issued when the CTA ended
    PROGRESS = U64(_STEADY + 240 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    # number of waves of the same time after which the rest are not simulated, and the tolerance: 1 / n of a wave
    ALIKE = U64(_STEADY + 248 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    ALIKE_PART = U64(_STEADY + 256 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    _CODE = _STEADY + 264 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW
    # lines of code (number 0 is unused), and their number
    CODE = U64(_CODE)
    CODE_LINES = U64(_CODE + 8)
    # the instruction cache and the next level: sets, ways, and line numbers by set
    SETS = U64(_CODE + 16)
    WAYS = U64(_CODE + 24)
    CELLS = U64(_CODE + 32)
    L15_SETS = U64(_CODE + 40)
    L15_WAYS = U64(_CODE + 48)
    L15_CELLS = U64(_CODE + 56)
    # lines to prefetch; clocks (1/256) per line from the next level and from L2, and the latency of the next level
    AHEAD = U64(_CODE + 64)
    L15_COST = U64(_CODE + 72)
    CODE_COST = U64(_CODE + 80)
    LATENCY_L15 = U64(_CODE + 88)
    # uses of lines; when the path of code into the SM is free, and for how long it was busy (1/256)
    USES = U64(_CODE + 96)
    FETCHED = U64(_CODE + 104)
    FETCHING = U64(_CODE + 112)
    # rows of DRAM: when the next one can be opened, clocks (1/256) to open one, and of all so far, and how long one stays open
    ROWS = U64(_CODE + 120)
    ROW_COST = U64(_CODE + 128)
    ROW_BUSY = U64(_CODE + 136)
    ROW_OPEN = U64(_CODE + 144)
    # by number of a shared pipe: when it is free
    COMMON = Array64(_CODE + 152)
    # by sub-partition: 1 if the last instruction yields
    YIELDED = Array64(_CODE + 152 + 8 * _PIPES)
    _YIELDED = _CODE + 152 + 8 * _PIPES + 8 * SUB_CORES
    # clocks (1/256) for which a line with sectors that are written in part occupies L2 longer than a sector
    PARTIAL_COST = U64(_YIELDED)
    # by how many clocks the latency of the farthest slice of L2 exceeds the mean, and the number of slices
    SPREAD = U64(_YIELDED + 8)
    SLICES = U64(_YIELDED + 16)
    _TENSOR = _YIELDED + 24
    # ``tcgen05``: when the tensor core is free, and for how long it multiplied (1/256 clock); clocks (1/256) of a product for each
    # column of D; clocks from the end of a product until its mbarrier is told, and of a product of a pair; units of columns that are
    # allocated
    TENSOR = U64(_TENSOR)
    TENSOR_BUSY = U64(_TENSOR + 8)
    COLUMN_COST = U64(_TENSOR + 16)
    LATENCY_TENSOR = U64(_TENSOR + 24)
    LATENCY_PAIR = U64(_TENSOR + 32)
    ALLOCATED = U64(_TENSOR + 40)
    # by sub-partition: when the path between its tensor memory and its registers is free (1/256 clock)
    FRAGMENTS = Array64(_TENSOR + 48)
    _L1 = _TENSOR + 48 + 8 * SUB_CORES
    # 1 if the lines of all CTAs have the same numbers, so that CTAs share what is in L1, and stores are kept there
    TOGETHER = U64(_L1)
    # if L1 evicts a random line: addresses of the lines in L1, and the last random number
    KEPT_AT = U64(_L1 + 8)
    DRAWN = U64(_L1 + 16)
    # by CTA: the sectors that its loads read from L2; 0 if they are not counted
    READS = U64(_L1 + 24)
    # by sub-partition: when each of its two register banks has read all registers of the instructions that were issued
    EVEN = Array64(_L1 + 32)
    ODD = Array64(_L1 + 32 + 8 * SUB_CORES)
    _IMAGES = _L1 + 32 + 16 * SUB_CORES
    # textures and surfaces: bytes of a texel; 1/256 clock for a quad of lanes; how many clocks a hit takes, and a miss longer than one
    # in L1; in 1/65536: sectors that a lane fetches from L2, and stores there, and the share of both that DRAM moves; what is left of
    # these numbers; when the last instruction started, and for how long the unit was busy (1/256)
    TEXEL = U64(_IMAGES)
    QUAD_COST = U64(_IMAGES + 8)
    LATENCY_TEX = U64(_IMAGES + 16)
    FETCH_SHARE = U64(_IMAGES + 24)
    STORE_SHARE = U64(_IMAGES + 32)
    IMAGE_SHARE = U64(_IMAGES + 40)
    FETCHED_LEFT = U64(_IMAGES + 48)
    STORED_LEFT = U64(_IMAGES + 56)
    FAR_LEFT = U64(_IMAGES + 64)
    IMAGED = U64(_IMAGES + 72)
    IMAGE_BUSY = U64(_IMAGES + 80)
    # 65,536ths of its mean latency by which a load from DRAM waits longer at most, if DRAM is busy all the time
    DRAM_WAIT = U64(_IMAGES + 88)
    # the most by which the SM may exceed its share of L2, in 2^-FRACTION clocks
    L2_AHEAD = U64(_IMAGES + 96)
    _POOL = _IMAGES + 104
    # memory instructions that the units which all sub-partitions share hold until they are answered (0: unknown), how many they have
    # taken, and when they take the next one
    POOL = U64(_POOL)
    POOLED = U64(_POOL + 8)
    HANDED = U64(_POOL + 16)
    # by number of such an instruction, of all sub-partitions and of each: when its place is free again; by sub-partition: when its
    # next wavefront of shared memory may follow
    POOLS = Array64(_POOL + 24)
    ANSWERED = Array64(_POOL + 24 + 8 * MOST_QUEUED)
    STREAMED = Array64(_POOL + 24 + 8 * MOST_QUEUED * (1 + SUB_CORES))
    _TURNS = _POOL + 24 + 8 * MOST_QUEUED * (1 + SUB_CORES) + 8 * SUB_CORES
    # by sub-partition, for ``ROW`` warps each. ``KEYS``: when the operands of a warp are ready, ``NEVER`` while it does not run; below
    # ``AT_BIT`` how many warps are younger (from ``RANK_BIT`` on), and the number of the warp in its sub-partition. ``NEEDS`` (8 bits
    # each): the pipe of its instruction (``Op.FREE``), and ``QUEUED``
    KEYS = U64(_TURNS)
    NEEDS = U64(_TURNS + 8)
    ROW = U64(_TURNS + 16)
    # by sub-partition: from when there is room in its memory queue
    ROOM = Array64(_TURNS + 24)
    # the two pipes for single precision
    ONE = U64(_TURNS + 24 + 8 * SUB_CORES)
    TWO = U64(_TURNS + 32 + 8 * SUB_CORES)
    # address of the first stall
    FIRST_STALL = U64(_TURNS + 40 + 8 * SUB_CORES)
    _HELD = _TURNS + 48 + 8 * SUB_CORES
    # how many sectors DRAM moves for the SM until L2 begins to lose what it holds, and until all of it is lost; what is left of the
    # part (1/65536) of lines that are lost between these; the number of the warp whose access is executed
    L2_KEPT = U64(_HELD)
    L2_LOST = U64(_HELD + 8)
    LOST_LEFT = U64(_HELD + 16)
    ACCESSES = U64(_HELD + 24)
    # by sub-partition: when its tensor cores have executed the ``wgmma`` of its queue
    QUEUED_PRODUCTS = Array64(_HELD + 32)
    # as ``PARTIAL_COST``, for single words; how many lines these were
    SINGLE_COST = U64(_HELD + 32 + 8 * SUB_CORES)
    SINGLES = U64(_HELD + 40 + 8 * SUB_CORES)
    BYTES = _HELD + 48 + 8 * SUB_CORES


class Limits(Record):
    """What the stream of a warp, from ``AT`` to ``ENDS``, may name: the first ``BLOCKS`` of the blocks at ``BLOCK``, so many ``LINES``
    and ``MBARRIERS`` of its CTA, the first ``KINDS`` of the copies at ``COPIES``, and the CTAs of a cluster of ``GROUP``."""

    AT = U64(0)
    ENDS = U64(8)
    BLOCK: Pointer[Block] = Pointer(16)
    BLOCKS = U64(24)
    LINES = U64(32)
    MBARRIERS = U64(40)
    COPIES = U64(48)
    KINDS = U64(56)
    GROUP = U64(64)
    BYTES = 72


class Stream(Record):
    """What a warp recorded, and its translation. ``COUNT`` words of 32 bits from ``WORDS`` on; ``FIRST_SITE``: by number of a block,
    of ``BLOCKS``, the first of its sites in ``SITES``; ``OUT``: the stream, with room until ``OUT_ENDS``; ``TABLE``: the ``UNIQUE``
    lines that the CTA touches, ``MASK`` + 1 cells of 16 bytes; ``SECTORS``: by number of a line, its touched sectors; ``WRITTEN``: its
    words that stores write (32 bits). ``MBARRIERS``: the words of shared memory that are mbarriers, ``COPIES``: kinds of copies
    (``Copy``), in the order of their first use in all streams."""

    WORDS = U64(0)
    COUNT = U64(8)
    FIRST_SITE = U64(16)
    SITES = U64(24)
    OUT = U64(32)
    TABLE = U64(40)
    MASK = U64(48)
    UNIQUE = U64(56)
    GROUPS = U64(64)
    LINES = U64(72)
    WARP = U64(80)
    SCRATCH = U64(88)
    MBARRIERS = U64(96)
    MBARRIER_COUNT = U64(104)
    COPIES = U64(112)
    COPY_COUNT = U64(120)
    SECTORS = U64(128)
    WRITTEN = U64(136)
    BLOCKS = U64(144)
    OUT_ENDS = U64(152)
    BYTES = 160
