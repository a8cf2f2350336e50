"""Records of the simulation of one SM (``jit.runtime.sm.core``), at host addresses.

Times are in clocks; of servers that several requests share in 1/256 clock (``FRACTION``).
"""

from __future__ import annotations

from .records import U8, U16, U32, U64, Array64, Pointer, Record

__all__ = [
    "AT_BIT",
    "CAUSE_BIT",
    "END",
    "FRACTION",
    "GROUPS",
    "MOST_QUEUED",
    "NONE",
    "SUB_CORES",
    "TRAIL",
    "WINDOW",
    "Block",
    "Cause",
    "Change",
    "Code",
    "Copy",
    "Event",
    "Kind",
    "Line",
    "Mbarrier",
    "Op",
    "Program",
    "Slot",
    "Sm",
    "Stall",
    "Stream",
    "Warp",
]

#: binary digits of a clock in the times of servers
FRACTION = 8
#: groups of accesses that there is room for
GROUPS = 256
#: the word that ends a stream, and what is not there
END = 0xFFFFFFFF
NONE = 0xFFFF
#: the most sub-partitions, pipes of each and instructions in the memory queue of each that there is room for
SUB_CORES, _PIPES, MOST_QUEUED = 4, 16, 32
#: of a time with what it is the time of: above the lower bits the cause, above that the time (40 bits); below the position of an
#: instruction
CAUSE_BIT, AT_BIT = 20, 24
#: instructions that a warp remembers it issued, and words of 64 clocks for which a sub-partition remembers in which it issued
TRAIL, WINDOW = 64, 32


class Cause:
    """What a warp waits for before an instruction: a result of another one (``GROUP``: of copies, ``PRODUCT``: of products of a
    warpgroup); a pipe, or room in the memory queue; register ports, or other warps, while it could issue; its own branch or fence
    (``PAUSE``); the instruction itself (``FETCH``); or, held at an instruction, the other warps of the CTA, of the cluster or of the
    warpgroup, or an mbarrier. ``UNKNOWN``: there was no room left to say."""

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
        UNKNOWN,
    ) = range(14)


class Change:
    """What is otherwise at an instruction in a launch that is simulated again, one bit each: its results are there a clock later;
    what it loads again is in L1; its accesses have no more wavefronts, or no more lines, than their bytes need; its barrier
    holds nobody."""

    HIDDEN, NEAR, NO_CONFLICTS, SIDE_BY_SIDE, NO_BARRIER = 1, 2, 4, 8, 16


class Kind:
    """What an instruction does besides occupying a pipe; from ``SHARED`` on, it goes through the memory queue. ``MATRIX``: a
    product of a warpgroup, ``TRANSFER``: a bulk or tensor copy; from ``INIT`` on, what an mbarrier is told and asked."""

    (
        PLAIN,
        BARRIER,
        ARRIVE,
        COMMIT,
        WAIT,
        MATRIX,
        MATRIX_ARRIVE,
        MATRIX_WAIT,
        CLUSTER_ARRIVE,
        CLUSTER_WAIT,
        TRANSFER,
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
    ) = range(24)


class Op(Record):
    """A machine instruction. ``READS`` and ``WRITES``: how many of the numbers at ``REGISTERS`` there are of each. ``OTHER``: a second
    pipe that it may go through, ``NONE`` for none. ``PORTS``: clocks in which it reads its registers, ``REUSED`` where the
    instruction before was the same warp's. ``PAUSE``: clocks before the next one of the warp. ``ARGUMENT``: of a barrier and of
    a wait; of an access the words of a lane. ``CHANGE``: bits of ``Change``. ``COMMON``: 1 where all sub-partitions share its pipe,
    ``YIELDS`` where another warp is preferred next.
    ``LINE``: that of its line of code, from 1 on, where a line or a block begins; 0 elsewhere, and where all code is there at
    once. Counted are ``ISSUED``, how often it was issued,
    ``MOVED``, clocks of the unit that all memory instructions share, ``LINES`` that its accesses touched from ``LANES``,
    ``AGAIN``, sectors that a CTA had touched and L1 no longer has, and ``STALLS``, what its warps waited for."""

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
    MOVED = U64(40)
    STALLS: Pointer[Stall] = Pointer(48)
    CHANGE = U16(56)
    COMMON = U8(58)
    YIELDS = U8(59)
    LINE = U32(60)
    LINES = U64(64)
    LANES = U64(72)
    AGAIN = U64(80)
    BYTES = 88


class Code(Record):
    """A line of 128 bytes of code. ``HOLDS``: the instruction cache of the SM does, from ``READY`` on; ``USED``: the number of its
    last use there. ``L15_HOLDS`` and ``L15_USED``: likewise in the next level."""

    READY = U64(0)
    USED = U64(8)
    L15_USED = U64(16)
    HOLDS = U8(24)
    L15_HOLDS = U8(25)
    BYTES = 32


class Event(Record):
    """What happened in a window of clocks. ``WHAT``: 0 a warp of ``PART`` issued the instruction at the position ``OP``, 1 it was held
    at it, 2 a unit worked for it: ``PART`` 0 that of all memory instructions, 1 L2, 2 DRAM. ``WARP``: its number on the SM.
    From ``SINCE`` a warp waited, until ``AT`` for the reason ``WHY`` (``Stall``), until ``NOW`` for another; a unit worked."""

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
    """Clocks that warps waited at the instruction ``AT`` for the same, ``TIMES`` often. ``WHY``: the cause, and below ``CAUSE_BIT``
    the position of the instruction that they waited for. ``NEXT``: of the same instruction."""

    WHY = U64(0)
    CLOCKS = U64(8)
    TIMES = U64(16)
    AT = U64(24)
    NEXT: Pointer[Stall] = Pointer(32)
    BYTES = 40


class Block(Record):
    """``OPS``: of its first instruction; ``ENDS``: behind its last."""

    OPS: Pointer[Op] = Pointer(0)
    ENDS = U64(8)
    BYTES = 16


class Line(Record):
    """A line of 128 bytes that a CTA touches. ``VALID``, ``DIRTY``, ``TOUCHED``: sectors in L1, those to be written back, and those
    that the CTA has touched; ``DRAM``: 1 if they come from DRAM then, 2 if L2 has just asked DRAM for them. ``OPEN``: of the first
    line of each row of DRAM until when that row counts as open."""

    VALID = U8(0)
    DIRTY = U8(1)
    TOUCHED = U8(2)
    DRAM = U8(3)
    READY = U64(8)
    NEWER = U64(16)
    OLDER = U64(24)
    OPEN = U64(32)
    BYTES = 40


class Copy(Record):
    """A kind of bulk or tensor copies: ``BYTES_MOVED`` in shared memory; ``SECTORS`` and ``REQUESTS`` of global memory; ``WAY``: 0 to
    shared memory, 1 from it, 2 reduction, 3 to L2, 4 to shared memory of another CTA. ``SHARE`` / 2¹⁶ of the sectors come from DRAM,
    ``SUM``: what is left over of them. ``IN_STEP``: 1 where CTAs that run at once copy the same."""

    BYTES_MOVED = U64(0)
    SECTORS = U64(8)
    REQUESTS = U64(16)
    WAY = U64(24)
    SHARE = U64(32)
    SUM = U64(40)
    #: where the tensor map, or the copied bytes, are: set as streams are made
    KEY = U64(48)
    FORM = U64(56)
    IN_STEP = U64(64)
    BYTES = 72


class Mbarrier(Record):
    """``COUNT`` arrivals of each phase, of which ``PENDING`` are left, with ``EXPECTED`` bytes; ``READY``: when the last of
    those so far was there. ``PHASE``: its number; ``DONE``: when the last even and the last odd phase were complete.
    ``TOKENS``: by warp the parity of the phase that it arrived in last. ``BY``: the position of the instruction that made ``READY``
    what it is, ``DONE_BY`` that of ``DONE``."""

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
    """``STATE``: 0 not there, 1 runs, 2 to 17 waits at a barrier, 40 at that of the cluster, 48 to 55 for the others of a warpgroup,
    from 64 on at an mbarrier for the phase of ``PARITY``. ``TESTS``: 1 + the mbarrier whose phase is not complete. ``NUMBER``:
    of the warp in its CTA. ``PRODUCTS``: when those of each group are complete, ``PRODUCED`` many of them. ``CLUSTER``:
    arrivals at the barrier of the cluster. ``AT``: when its operands are ready, and ``WHY`` (``Stall``) not before; ``SINCE``:
    until when its clocks are accounted for. ``HELD``: the instruction at which it waits for others. ``GROUPS``: when its copies
    of each group and of all before it are complete, ``COMMITTED`` many of them; ``COPIED``: all so far; positions of instructions that
    these come from are in ``GROUP_BY``, ``COPIED_BY`` and ``PRODUCT_BY``. ``READY``: by number of a register when it is, with
    the position of the instruction that writes it. ``ISSUES``: the last ``TRAIL`` of its ``STEPS`` instructions: when, and the
    position of what it had waited for, its own where that was no result. ``LINE``: of code, where it is."""

    STATE = U64(0)
    AT = U64(8)
    OP: Pointer[Op] = Pointer(16)
    ENDS = U64(24)
    PLACE = U64(32)
    SLOT = U64(40)
    AGE = U64(48)
    SINCE = U64(56)
    LINE = U64(64)
    COMMITTED = U64(72)
    GROUPS = Array64(80)
    PRODUCTS = Array64(144)
    PRODUCED = U64(208)
    PARITY = U64(216)
    TESTS = U64(224)
    NUMBER = U64(232)
    CLUSTER = U64(240)
    WHY = U64(248)
    HELD: Pointer[Op] = Pointer(256)
    STEPS = U64(264)
    COPIED_BY = U64(272)
    GROUP_BY = Array64(280)
    PRODUCT_BY = Array64(344)
    ISSUES = Array64(408)
    COPIED = U64(408 + 8 * TRAIL)
    READY = Array64(416 + 8 * TRAIL)
    BYTES = 416 + 8 * TRAIL + 8 * 528


class Program(Record):
    """What the CTAs of a class execute: the ``STREAMS`` of their warps (addresses), how many ``LINES`` they touch, and the group of
    each (bytes at ``GROUPS``); at ``ROWS`` the number of the first line that lies in the same row of DRAM (32 bits each)."""

    STREAMS = U64(0)
    LINES = U64(8)
    GROUPS = U64(16)
    ROWS = U64(24)
    BYTES = 32


class Slot(Record):
    """Room for a CTA, started at ``SINCE``, the one before it at ``BEFORE``: the first ones start in step with those of other SMs.
    ``LIVE`` warps; ``LINES``: its first; ``ARRIVED``: at each of 16 barriers. ``MBARRIERS``:
    its first. ``WARPGROUPS``: warps of each of 8 that are ready for a product. Of the cluster, in the slot of its first CTA:
    warps that have ``GATHERED`` at its barrier, its ``PHASE``, and since when;
    the position at which the ``LAST`` arrived."""

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
    BYTES = 280


class Sm(Record):
    """One SM, and the numbers of its machine. The CTAs of a cluster run on ``GROUP`` SMs, of which the first is at ``PEERS``."""

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
    ADDRESS_CLOCKS = U64(96)
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
    # as it runs
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
    # of waves: when one ended, how long it took and how far data were behind; since when, and how many, were alike; CTAs left out
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
    # when the unit of copies, and the reader of operands in shared memory (in 1/256 clock), are free
    TMA = U64(_STEADY + 128)
    OPERANDS = U64(_STEADY + 136)
    # clocks (1/256) of the path to shared memory for operands and copies
    COPIED = U64(_STEADY + 144)
    # the first instruction; where the next stall goes, of all SMs of a cluster in the first, and the last that there is room for;
    # 1 where warps remember what they issued; why the result of the test of an mbarrier is late
    OPS = U64(_STEADY + 152)
    STALL = U64(_STEADY + 160)
    LAST_STALL = U64(_STEADY + 168)
    TRAILS = U64(_STEADY + 176)
    LATE_BY = U64(_STEADY + 184)
    # where the next event goes, how many there is still room for, and the window of clocks
    EVENT: Pointer[Event] = Pointer(_STEADY + 200)
    EVENTS_LEFT = U64(_STEADY + 208)
    WINDOW_FROM = U64(_STEADY + 216)
    WINDOW_TO = U64(_STEADY + 224)
    # clocks of warps between the start of their CTA and their end
    RESIDED = U64(_STEADY + 192)
    # bits of the clocks in which a sub-partition issued, and the number of its last word
    MARKED = Array64(_STEADY + 232)
    MARKS = Array64(_STEADY + 232 + 8 * SUB_CORES)
    # of 256: how far reads and writes of DRAM are mixed
    MIXED = U64(_STEADY + 232 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    # by CTA: the instructions that the SM had issued when it ended
    PROGRESS = U64(_STEADY + 240 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    # waves that must take equally long for the next ones to be left out, and what part of a wave they may differ by (1 / n)
    ALIKE = U64(_STEADY + 248 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    ALIKE_PART = U64(_STEADY + 256 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW)
    _CODE = _STEADY + 264 + 8 * SUB_CORES + 8 * SUB_CORES * WINDOW
    # lines of code (the first is none), and how many there are
    CODE = U64(_CODE)
    CODE_LINES = U64(_CODE + 8)
    # of the instruction cache and of the next level: numbers of lines, set by set
    SETS = U64(_CODE + 16)
    WAYS = U64(_CODE + 24)
    CELLS = U64(_CODE + 32)
    L15_SETS = U64(_CODE + 40)
    L15_WAYS = U64(_CODE + 48)
    L15_CELLS = U64(_CODE + 56)
    # lines that are fetched ahead; clocks (1/256) of a line from the next level and from L2, the latency of the former
    AHEAD = U64(_CODE + 64)
    L15_COST = U64(_CODE + 72)
    CODE_COST = U64(_CODE + 80)
    LATENCY_L15 = U64(_CODE + 88)
    # uses of lines; when the way of code into the SM is free, and for how long it was not (1/256)
    USES = U64(_CODE + 96)
    FETCHED = U64(_CODE + 104)
    FETCHING = U64(_CODE + 112)
    # rows of DRAM: when the next one can be opened, clocks (1/256) of one and of all so far, and how long one stays open
    ROWS = U64(_CODE + 120)
    ROW_COST = U64(_CODE + 128)
    ROW_BUSY = U64(_CODE + 136)
    ROW_OPEN = U64(_CODE + 144)
    # by number of a pipe that all sub-partitions share: when it is free
    COMMON = Array64(_CODE + 152)
    # of sub-partitions: 1 where the last instruction yields
    YIELDED = Array64(_CODE + 152 + 8 * _PIPES)
    BYTES = _CODE + 152 + 8 * _PIPES + 8 * SUB_CORES


class Stream(Record):
    """What a warp recorded, and what becomes of it. ``WORDS`` of 32 bits from ``AT`` to ``ENDS``; ``BLOCKS``: by number of the block
    where its sites begin in ``SITES`` and end; ``TABLE``: lines that the CTA touches, ``MASK`` + 1 cells of 16 bytes; ``SECTORS``: by
    number of the line those of it that are touched.
    ``MBARRIERS``: their words of shared memory, ``COPIES``: kinds of copies (``Copy``), as met so far in all streams."""

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
    BYTES = 136
