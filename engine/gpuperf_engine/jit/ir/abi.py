"""Memory layouts that the generated code, the runtime and Python share: the context, the CTA, the warp's state.

All are plain bytes at host addresses; the classes give offsets. There is one context and one CTA record per operating-
system thread, and a block of warp states for each CTA in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory.spaces import bit_of
from ...memory.tensor_maps import Place
from ...simt import clusters, value_records
from .records import U8, U16, U32, U64, Array8, Array16, Array32, Array64, Pointer, Pointers, Record

if TYPE_CHECKING:
    from ...ptx.syntax import Instruction
    from ...simt.program import Program

__all__ = [
    "AREA_SHIFT",
    "BARRIERS",
    "BEYOND_BYTES",
    "CONVERGE_CODE",
    "EXIT_CODE",
    "GATHER_CODE",
    "KIND",
    "MATRICES_BYTES",
    "NO_AREA",
    "PLACE_SHIFT",
    "RETURN_CODE",
    "SITE_BYTES",
    "SITE_COUNTERS",
    "SYNC_CODE",
    "UNSEEN_BYTES",
    "UNWRITTEN",
    "WAIT_CODE",
    "Barrier",
    "BarrierResult",
    "BeyondRecord",
    "Breach",
    "Breaches",
    "Bulk",
    "Cluster",
    "Context",
    "Counter",
    "Cta",
    "Entry",
    "Event",
    "GlobalShape",
    "Line",
    "LineAccess",
    "LineEntry",
    "LineRoom",
    "Presence",
    "Race",
    "RaceClock",
    "RaceFindings",
    "RaceMbarrier",
    "RaceRow",
    "RaceWarp",
    "Range",
    "Reach",
    "Reason",
    "Segment",
    "Segments",
    "SharedShape",
    "SiteCache",
    "State",
    "Status",
    "TensorMap",
    "ValueRow",
    "Values",
    "Wait",
    "Window",
    "YieldBits",
    "instruction_at",
]

BARRIERS = 16
#: as ``counters.SITE_COLUMNS``, in columns and bytes
SITE_COUNTERS = 15
SITE_BYTES = 8 * SITE_COUNTERS
#: whether a site read memory that nobody had written
UNSEEN_BYTES = 8
#: of a site, accesses that ran past an object: index of the CTA + 1 (0: there are none), warp · 32 + lane, address, bytes past it
BEYOND_BYTES = 32
#: as reconvergence identity: the exit of function f is ``EXIT_CODE + f``
EXIT_CODE = 1 << 30
#: as place to continue: in block b behind the ``.sync`` instruction that begins it is ``SYNC_CODE + b``
SYNC_CODE = 3 << 28
#: as place to continue: in block b behind the call or barrier that ends it is ``RETURN_CODE + b``
RETURN_CODE = 1 << 29
#: as place to continue: at the barrier that ends block b, whose operands have been noted, is ``GATHER_CODE + b``
GATHER_CODE = 1 << 28
#: as place to continue: at the wait on an mbarrier that begins block b, which has been counted, is ``WAIT_CODE + b``
WAIT_CODE = 1 << 27
#: as place to continue: at the exchange that begins block b, for the lanes of a diverged warp, is ``CONVERGE_CODE + b``
CONVERGE_CODE = 1 << 26
#: from this bit on, the kind of an entry of the stack has the number of its area; of a path that waits, its ``Reason``; of a call
#: that keeps nothing, ``NO_AREA`` + the number of the function
AREA_SHIFT = 8
KIND = (1 << AREA_SHIFT) - 1
#: as reconvergence identity: the exit of the function whose call keeps area n is ``EXIT_CODE + NO_AREA + n``
NO_AREA = 1 << 16
#: what unwritten words of shared memory hold until a value is stored
UNWRITTEN = 0x5BD1E995
#: room of a warp for the matrices of one product of a warpgroup
MATRICES_BYTES = 1 << 16

#: an instruction that is not a site: −1 − (its block << this | its place there)
PLACE_SHIFT = 20


class Context(Record):
    """One thread's view of the launch; fields of eight bytes."""

    WARP_CODE = U64(0)
    WARPS = U64(8)
    STATE_BYTES = U64(16)
    QUANTUM = U64(24)
    BUDGET = U64(32)
    ARENA = U64(40)  # host address = device address + this
    SHADOW = U64(48)  # shadow byte = device address + this
    # ascending
    TABLE: Pointer[Range] = Pointer(56)
    TABLE_ROWS = U64(64)
    BLOCKS = U64(72)  # counters of blocks: warps, lanes, divergent, as three arrays
    SITES = U64(80)  # SITE_COUNTERS per site
    PREDICATED = U64(88)
    CACHE = U64(96)  # SiteCache.BYTES per site
    UNSEEN = U64(104)  # UNSEEN_BYTES per site
    TIDS = U64(112)  # per warp: 32 × tid.x, tid.y, tid.z as i32
    PARAMS = U64(120)
    SHARED_BYTES = U64(128)
    LOCAL_BYTES = U64(136)  # per thread
    SCRATCH = U64(144)  # for the runtime's own use
    ZERO_START = U64(152)  # part of the state that is zero when a CTA starts
    ZERO_BYTES = U64(160)
    LAST_LANES = U64(168)  # active lanes of the last warp, as a mask
    NTID = Array32(176)  # three i32
    NCTAID = Array32(188)  # three i32
    FAULT_SITE = U64(200)
    FAULT_LANE = U64(208)
    FAULT_ADDRESS = U64(216)
    # 0 global and others in the arena, 1 shared, 2 local; from 8 on an error of an mbarrier
    FAULT_SPACE = U64(224)
    SHARED_WINDOW = U64(232)
    LOCAL_WINDOW = U64(240)
    WINDOW_BYTES = U64(248)
    WATCH = U64(256)  # how unwritten shared memory is known: 1 by its shadow, 2 by what it holds
    SYMBOLS = U64(264)  # addresses of variables and functions, in order of ``Program.symbols``
    ATOMIC_LOCK = U64(272)
    PASSED = U64(280)  # barriers released, for the livelock check
    DYNAMIC_SHARED = U64(288)
    PARAM_ADDRESS = U64(296)
    SHAPES = U64(304)
    CTA: Pointer[Cta] = Pointer(312)  # the records of the CTA and warp that run
    STATE: Pointer[State] = Pointer(320)
    FAULTED = U64(328)  # 1 after a refused access
    COUNTING = U64(336)  # 1: sectors and wavefronts are counted
    # where the parameters of calls begin in a state, to its end; they too are zero when a CTA starts
    PARAMETERS = U64(344)
    THREADS = U64(352)  # counters of single threads, COLUMN_BYTES each, by kept CTA and warp
    THREADS_SPARE = U64(360)  # as much as one warp of a CTA that is not kept may write to
    KEPT = U64(368)  # their CTAs, i64, ascending, and −1 behind the last
    KEPT_COUNT = U64(376)
    READS = U64(384)  # map of bytes that were read = device address + this; 0: not observed
    WRITES = U64(392)  # and of those that were written
    CLUSTER_CTAS = U64(400)  # CTAs of a cluster; 0: CTAs run by themselves
    CLUSTER_SHAPE = Array32(408)  # three i32
    CLUSTERS = Array32(420)  # of the grid, three i32
    EXPLICIT_CLUSTER = U64(432)
    REMOTE = U64(440)  # a byte per site: whether it may reach the shared memory of other CTAs
    # the mbarrier object, and the amount that it does not allow; of a bulk copy 1 where it was reading
    FAULT_WORD = U64(448)
    FAULT_AMOUNT = U64(456)
    OWNER: Pointer[Cta] = Pointer(464)  # the record of the CTA that has the mbarrier object
    IMAGES = U64(472)  # rows of textures and surfaces, ``isa.images.ROW_WORDS`` words each
    IMAGE_ROWS = U64(480)
    # per site, for generic accesses: the function for those that go to shared memory whole; 0: there is none
    NEAR = U64(488)
    FAULT_SIZE = U64(496)  # bytes of a refused access, if they are not those of its site
    MOVED = U64(504)  # bytes of a tensor copy
    REACHES = U64(512)  # a byte per site: the bits of the memory that it may reach (``spaces.reachable``)
    STRICT = U64(520)  # rules whose breach is an error, a bit each (``isa.rules.Noted``)
    NOTED: Pointer[Breaches] = Pointer(528)  # records of breaches that are noted, behind their number
    RACE_SITES = U64(536)  # a byte per site: bits of ``Race``; zeros where races are not looked for
    RACES_FOUND = U64(544)  # how many, and their rows of ``Race.COLUMNS`` words
    # epoch of the asynchronous copy that accesses memory now, and the rank of its CTA << 32; 0: the warp does
    RACE_AGENT = U64(552)
    # what the lane stores, if known, and bytes from one element of a lane to the next, / 32
    RACE_VALUE = U64(560)
    RACE_WIDTH = U64(568)
    PIECES = U64(576)  # a byte per site: bytes that must begin inside an object (``spaces.piece_of``)
    BEYOND = U64(584)  # BEYOND_BYTES per site
    ENTRIES = U64(592)  # of a warp's stack
    SAVE = U64(600)  # function that is given the row of an allocation before the first store to it
    # host address of the cells of the lines of global memory (``Line``); 0: CTAs are not held against one another
    RACE_LINES = U64(608)
    RACE_FROM = U64(616)  # where global memory begins, and its bytes
    RACE_SPAN = U64(624)
    RACE_FIRST = U64(632)  # number of the first CTA of the launch, of all launches
    RACE_LOCKED = U64(640)  # 1: several threads run CTAs, so that a line is locked while it is looked at
    # what the warp that runs knows of the order of accesses; 0: races in shared memory are not looked for
    RACE_WARP: Pointer[RaceWarp] = Pointer(648)
    # the mbarrier that the last lane of an instruction has arrived at; 0: it is the first
    RACE_ARRIVED = U64(664)
    RACE_LOWEST = U64(672)  # lines in which several CTAs met: the first and the last one
    RACE_HIGHEST = U64(680)
    RACE_SEGMENTS = U64(688)  # host address of the ``Segment`` records; 0: no CTA can wait for another one
    RACE_SEGMENT_COUNT = U64(696)  # and how many are in use
    RACE_RELEASES = U64(704)  # how often anything was released to other CTAs
    RACE_ROOMS = U64(712)  # host address of the rooms of the lines
    VALUE_ROWS = U64(720)  # ``ValueRow.BYTES`` per slot of ``simt.value_records``
    VALUE_RECORDS = U64(728)  # ``Values.BYTES`` each
    VALUE_COUNT = U64(736)  # in use, and how many there are
    VALUE_MOST = U64(744)
    VALUE_LEFT_OUT = U64(752)  # 1: accesses were not recorded because there are too few
    AREA_BYTES = U64(760)  # of an area, and of all areas of a warp
    AREAS_BYTES = U64(768)
    BYTES = 776


class Range(Record):
    """Device addresses that programs may access: an allocation, or what the runtime made of the launch."""

    START = U64(0)
    END = U64(8)
    KIND = U64(16)  # ``spaces.KINDS``
    FLAGS = U64(24)  # 1 if initialised + 2 if the first store is to be told
    BYTES = 32


class BeyondRecord(Record):
    """Accesses of a site that ran past an object."""

    CTA = U64(0)  # index + 1 of the first one; 0: there are none
    THREAD = U64(8)  # warp · 32 + lane
    ADDRESS = U64(16)
    EXCESS = U64(24)  # bytes past the object, at most
    BYTES = BEYOND_BYTES


class Breaches(Record):
    """The ``Breach`` records of a launch follow."""

    COUNT = U64(0)
    BYTES = 8


class Breach(Record):
    """A breach of a rule that is noted; see ``isa.rules.Noted``."""

    RULE = U64(0)
    SITE = U64(8)
    CTA = U64(16)
    WARP = U64(24)
    LANE = U64(32)
    ADDRESS = U64(40)


class Entry(Record):
    """An entry of the stack of a warp: where its lanes go on, at most which lanes, where they reconverge, and what kind it is."""

    PLACE = U32(0)
    MASK = U32(4)
    ID = U32(8)
    KIND = U32(12)
    BYTES = 16


class ValueRow:
    """The record that a slot of ``simt.value_records`` used last; fields of eight bytes."""

    START = 0  # of its object
    LIMIT = 8  # one more than the highest offset at which an element may begin
    RECORD = 16
    FIRST = 24  # of the records of the slot
    BYTES = 32


class Values:
    """What accesses of a slot to one object carried: ``simt.value_records.Carried`` as compiled code keeps it."""

    SLOT = 0
    SPACE = 8
    START = 16
    NEXT = 24  # record of the slot
    COUNT = 32
    ZEROS = 40
    NEGATIVE_ZEROS = 48
    NANS = 56
    SILENT = 64
    COMPARES = 72  # whether stores are held against what is there
    TRACKED = 80  # whether the shadow tells which bytes have been written
    LINE = 88
    LINE_INDEX = 96
    LINE_BASE = 104
    LINE_SLOPE = 112
    FITS = 120
    TOP_ERROR = 128
    LEVEL = 136
    SAMPLED = 144
    HIGHEST = 152  # hash that is sampled
    # of each lane, words of 4 or 8 bytes; 0 is neutral
    MINIMUM = 192
    MAXIMUM = 448
    ORS = 704
    TINY = 960
    # 8 bytes each
    TOP = 1216
    TOP_COUNTS = TOP + 8 * value_records.TOP
    TABLE = TOP_COUNTS + 8 * value_records.TOP
    BYTES = TABLE + 8 * value_records.DISTINCT_SLOTS
    # values of LINE
    ANCHORED = value_records.ANCHORED
    SLOPED = value_records.SLOPED
    BROKEN = value_records.BROKEN
    TOP_SLOTS = value_records.TOP
    TABLE_SLOTS = value_records.DISTINCT_SLOTS
    MOST_SAMPLED = value_records.MOST_SAMPLED
    #: records of a launch: 60 MiB
    MOST = (60 << 20) // BYTES


class SiteCache(Record):
    """The allocation that a site accessed last; fields of eight bytes."""

    START = U64(0)
    SPAN = U64(8)  # its bytes
    TRACKED = U64(16)  # whether stores must be noted in its shadow
    BYTES = 32


class SharedShape(Record):
    """The last access of a site to shared memory, whose wavefronts hold for the next one if its lanes are as far apart."""

    DISTANCES = Array32(0)  # of the lanes, 32 × i32
    MASK = U32(128)
    RESULT = U64(136)  # wavefronts + 64 · ideal
    #: 1, 2 + 4 · distance of the half warps: consecutive lanes, one address in each; 3: any addresses
    KIND = U64(144)


class GlobalShape(Record):
    """The last access of a site to global memory; of loads, the words that it took lie apart from its sectors and lines."""

    SECTORS = Array64(0)  # distances of the lanes in sectors, and in lines, 32 × i64 each
    LINES = Array64(256)
    MASK = U64(512)
    RESULT = U64(520)  # sectors + 64 · lines
    IS_SHARED = U64(528)  # 1 while the record is a ``SharedShape`` (generic accesses)
    WORDS = Array64(576)  # distances in words, 32 × i64
    WORDS_MASK = U64(832)
    WAVEFRONTS = U64(840)
    BYTES = 896


class Counter(Record):
    """The counters of one site, in bytes: ``counters.SITE_COLUMNS``."""

    REQUESTS = U64(0)
    LANES = U64(8)
    SECTORS = U64(16)
    WAVEFRONTS = U64(24)
    IDEAL = U64(32)
    SHARED_LANES = U64(40)
    LOCAL_LANES = U64(48)
    LINES = U64(56)
    LOCAL_SECTORS = U64(64)
    SERIALIZATIONS = U64(72)
    SHARED_SERIALIZATIONS = U64(80)
    ELSEWHERE = U64(88)
    SHARED_REQUESTS = U64(96)
    LOCAL_REQUESTS = U64(104)
    GLOBAL_WAVEFRONTS = U64(112)


class Cta(Record):
    """The CTA being run; fields of eight bytes."""

    INDEX = U64(0)
    INDICES = Array64(8)  # X, Y and Z
    X = U64(8)
    Y = U64(16)
    Z = U64(24)
    SHARED = U64(32)
    SHARED_SHADOW = U64(40)  # host address of the shadow of shared memory, as a distance from it
    LOCAL = U64(48)  # local memory of all threads, one after the other
    LOCAL_SHADOW = U64(56)  # distance, as above
    STATES: Pointer[State] = Pointer(64)
    POSITION = U64(72)  # of the visit: the warp that comes next
    LIVE_WARPS = U64(80)
    RAN = U64(88)  # whether a warp ran since the scheduler was at the first one
    MARKED = U64(96)  # whether the shadow of shared memory is in use
    # barriers at which warps have arrived, a bit each; from bit 16 on, at which lanes have, and that of the cluster
    ACTIVE = U64(104)
    RANK = U64(112)  # in the cluster
    WINDOW = U64(120)  # where its shared memory begins in the shared window
    BARRIERS = 128  # BARRIERS records
    CLUSTER: Pointer[Cluster] = Pointer(
        128 + 16 * 48
    )  # host address of the Cluster record; 0: the CTA runs by itself
    PRESENCE = U64(904)  # as ``clusters``: has not started, runs, has ended
    CLUSTERID = Array64(912)  # three i64
    WITHIN = Array64(936)  # %cluster_ctaid, three i64
    PHASES = U64(960)  # phases of mbarriers completed
    AREAS = U64(968)  # host address of what activations of recursive functions keep, by warp
    RACES: Pointer[Race] = Pointer(976)  # 0: races are not looked for
    RACE_ROOM: Pointer[Race] = Pointer(984)  # the same, from the start of a CTA on
    # by barrier and warp, two u32: lanes that have arrived, and those of them that came without the rest of their warp
    LANES = 992
    LANES_BYTES = 16 * 32 * 8
    BYTES = LANES + LANES_BYTES


class Race(Record):
    """What is known of the order of accesses of one CTA's memory; see ``jit.runtime.races_clocks``.

    Clocks are numbers of four bytes, by agent: warps, then the ``cp.async`` of each warp, then the copies that tell one mbarrier
    each and, as one, all other CTAs (the last of their releases that is known), then the ``wgmma`` of each warp: 128 of a CTA. In a
    cluster such 128 follow for each CTA, ``PEER`` bytes from one to the next, by its rank xor that of the CTA whose clock it is.
    """

    NOW = U64(0)  # counts what orders anything
    PLANES = U64(8)  # host address of the first of the shadows of shared memory, word for word
    PLANE = U64(16)  # bytes of each
    # how many agents of a CTA there are: 32, in a cluster its warps, until something is done asynchronously
    AGENTS = U64(24)
    SLOTS = U64(32)  # mbarriers that are known
    # from one time to the next: in a cluster the power of two from which on no rank is, else 1
    STEP = U64(40)
    CLOCK_BYTES = U64(48)
    RANK = U64(56)
    WARPS = U64(64)  # host address of the records of the warps, and bytes of each
    WARP = U64(72)
    MBARRIERS = U64(80)  # and of the mbarriers
    MBARRIER = U64(88)
    JOINED_PEER = U64(96)  # whether a warp has learned of another CTA since all warps met
    ROOM = U64(104)  # bytes of all clocks and records
    CTA: Pointer[Cta] = Pointer(112)
    TWIN = U64(120)  # from a clock to what of it the async proxy sees; 0: it reads no shared memory
    FENCED_PROXY = U64(128)  # whether a warp has let the async proxy see more since all warps met
    WINDOW: Pointer[Window] = Pointer(
        136
    )  # 0: its accesses of global memory are not held against one another
    SEGMENTS: Pointer[Segments] = Pointer(144)
    AGAIN = U64(152)  # 1: times have begun anew; 2: and what was noted before is forgotten
    CLOCKS = 192
    # clocks of the CTA, by number: its barriers, then those of what was released by atomics and flags, and to the cluster; of the
    # barrier of the cluster, and of its last completion
    EVERYTHING = 16
    EVERYWHERE = 17
    CLUSTER_BARRIER = 18
    CLUSTER_COMPLETE = 19
    CLOCKS_COUNT = 20
    PEER = 1024
    MOST_MBARRIERS = 31
    # numbers of agents that are not warps
    OF_COPIES = 32
    OF_MBARRIERS = 64
    OF_OTHERS = 95
    OF_PRODUCTS = 96
    # planes: epochs, and what is behind them: site << 14 | warp << 9 | bytes of the word << 5 | lane
    WRITER = 0
    READER = 2
    OTHER = 4
    PLANES_COUNT = 6
    #: flag of epochs: atomic, or of an access that is ``volatile``, ``relaxed`` or stronger
    STRONG = 128
    #: set in times of asynchronous agents, and of those of other CTAs: no barrier alone orders what they do
    ASYNCHRONOUS = 1 << 23
    #: times beyond which shadows are cleared at a barrier of all warps, and checking ends
    LATE = 1 << 22
    LAST = (1 << 23) - 16
    EVER = (1 << 24) - 1
    #: of a site: is checked; is strong; acquires; releases; to threads of its own CTA only
    CHECKED = 1
    IS_STRONG = 2
    ACQUIRES = 4
    RELEASES = 8
    NARROW = 32
    #: reads shared memory by the async proxy
    ASYNC_PROXY = 64
    #: accesses of global memory are held against those of other CTAs, and against those of other warps
    AMONG = 16
    WITHIN = 128
    GLOBAL = AMONG | WITHIN
    #: in ``Context.SCRATCH``, of the places of up to 32 pieces of 16 bytes
    PLACES = 7168
    MOST_SITES = 1 << 18
    #: in clusters, where what is behind an epoch has the CTA of the access from bit 28 on: its rank xor that of the memory
    MOST_SITES_IN_CLUSTER = 1 << 14
    BEHIND = (1 << 28) - 1
    #: of a finding (``RaceRow``)
    COLUMNS = 7
    MOST_FOUND = 256
    RAW, WAR, WAW = 1, 2, 3
    #: or-ed to the kind where the memory is global, where the last accesses of a CTA to the line were to other bytes, and where both
    #: accesses are those of one CTA
    FAR = 4
    NEAR_BY = 8
    OF_ONE = 32
    #: or-ed to the kind where the accesses are ordered, but the later one is by the async proxy, which no fence lets see the other
    UNFENCED = 16


class RaceClock(Record):
    """A vector clock."""

    TIMES = Array32(0)


class RaceMbarrier(Record):
    """An mbarrier: clocks of its phase and, behind that, of those completed."""

    ADDRESS = U64(0)
    ARRIVING = Array32(64)


class RaceWarp(Record):
    """What is known of the order of what a warp does."""

    EPOCH = U64(0)  # of its accesses: time << 8 | agent
    BASE = U64(
        8
    )  # epochs below this one are those of accesses that come before, unless they are asynchronous
    FENCED = U64(16)  # whether it has executed a fence (1), and one whose scope is the cluster or more (2)
    READ = U64(24)  # whether it has read what others may have released
    COPIES = U64(32)  # time of the group of copies that is open; 0: none was made
    GROUPS = U64(40)  # groups committed
    PRODUCTS = U64(48)  # time of the group of ``wgmma`` that is open; 0: none was made
    RECORD: Pointer[Race] = Pointer(56)
    MASK = U64(64)  # bits of an epoch that tell the agent
    TURN = U64(72)  # rank xor that of the CTA whose shared memory is accessed
    RING = Array64(80)  # when groups of copies were committed, the last ones
    PRODUCTS_RING = Array64(304)  # and groups of ``wgmma``
    RING_SIZE = 28
    KNOWN = Array32(528)  # epochs that were last found to come before, by a few bits of their agents
    # bulk copies that read shared memory, by groups: time of the group that is open (0: none was made), groups committed, and the
    # latest time of all groups up to each of the last ones
    BULK = U64(592)
    BULK_GROUPS = U64(600)
    BULK_RING = Array64(608)
    CLOCK = Array32(832)  # then that of the last fence


class Line(Record):
    """A cell: what is known of the accesses to 64 bytes of global memory, by pairs of entries (``LineEntry``): of those who stored and
    of those who loaded. The first pair is in the cell, so that a line that one warp accesses takes no more room; the others are in the
    line's room (``LineRoom``), if they are in use. As long as a line is accessed by one warp alone, its cell among those of all CTAs
    stands for that of the window (``Window``)."""

    LAUNCH = U32(0)  # ``RACE_FIRST`` of the launch
    LOCK = 4  # a byte: whether it is held
    OWNER = U32(8)  # who alone has accessed the line, or SHARED
    FULL = U8(12)  # whether its room is in use
    SUSPECT = U8(13)  # whether several CTAs met
    DIFFERS = U64(16)  # bytes that held several values
    PAIR = 24
    CELL = 64
    BITS = 6
    BYTES = 1 << BITS
    SHARED = (1 << 32) - 1


class LineRoom(Record):
    """The room of a line."""

    STORED = U64(0)  # bytes to which any CTA stored
    # the CTA to whose window the first pair belongs, as it was; 0: there is none, or it is there
    KEPT_OF = U32(8)
    KEPT = 16
    VALUES = 56  # in windows, what the CTA stored last; else what was there when the pair was kept
    # ``RACE_FIRST`` of the launch << 32 | the highest number of a CTA in the entries of stores, and in those of loads, since all are
    # in use: CTAs with higher ones change nothing there
    STORERS = U64(VALUES + Line.BYTES)
    LOADERS = U64(STORERS + 8)
    MORE = LOADERS + 8  # further pairs
    PAIRS = 4
    BYTES = MORE + (PAIRS - 1) * 2 * 20


class LineEntry(Record):
    """Accesses of a line by one agent, or by one CTA."""

    # 0: nobody; the number of a CTA; of a segment; in windows, and while one CTA has the line, an epoch
    WHO = U32(0)
    BY = U32(4)  # what is behind the epoch of the last access
    MASK = U64(8)  # bytes accessed
    # where the last access lies in the line: its first byte, the logarithm of the bytes of a lane, and bytes in all − 1
    AT = U16(16)
    STRONG = U8(18)  # 1 strong, 2 among CTAs too
    BYTES = 20
    POWER = Line.BITS
    LENGTH = Line.BITS + 3


class Window(Record):
    """Of a CTA: cells of its own for the lines of global memory that it accessed last, with a tag each, the number of the CTA << 32 |
    line; and their rooms."""

    LINES = 2048
    TAGS = Array64(LINES * Line.CELL)
    ROOMS = TAGS + LINES * 8
    BYTES = ROOMS + LINES * LineRoom.BYTES


class LineAccess(Record):
    """What the running warp does to global memory, at ``Context.SCRATCH`` + PLACE: of the instruction, and of one line."""

    CTA: Pointer[Cta] = Pointer(0)
    RECORD = U64(8)  # host address of the ``Race`` record of the CTA, or 0
    NUMBER = U64(16)  # of the CTA, of all launches
    EPOCH = U64(24)
    FLAGS = U64(32)  # of the site
    STRONG = U64(40)  # as ``LineEntry.STRONG``
    STORES = U64(48)  # 4, or 0: it loads
    # what is stored, as ``race_lanes`` takes it, or 0; bytes of an element, and of a lane
    VALUES = U64(56)
    WIDTH = U64(64)
    SIZE = U64(72)
    INFO = U64(80)  # what is behind the epoch: site << 14 | warp << 9 | the first lane
    START = U64(88)  # device address of the first byte, and the bytes of the line as a mask
    MASK = U64(96)
    SHAPE = U64(104)  # as ``LineEntry.AT``
    PLACE = 7424


class Segment(Record):
    """Accesses of global memory by one agent of a CTA between two releases. Numbers begin at 1."""

    CTA = U32(0)
    EPOCH = U32(4)
    RELEASED = U32(8)  # the first release to other CTAs that covers it; 0: there was none
    NEXT = U32(12)  # the next one of the agent
    BYTES = 16
    MOST = 1 << 22


class RaceFindings(Record):
    """The races that were found; ``COUNT`` ``RaceRow`` records follow."""

    COUNT = U64(0)
    BYTES = 8


class RaceRow(Record):
    """A race that was found: of all with its sites and kind the one of the first CTAs."""

    KEY = U64(0)  # kind and sites
    CTA = U64(8)
    BEFORE = U64(16)  # what is behind the epochs of both accesses
    AFTER = U64(24)
    PLACE = U64(32)  # address (in clusters, from bit 32 on, 1 + the CTA that has it)
    COUNT = U64(40)
    OTHER = U64(48)  # CTA of the later access
    BYTES = 56


class Segments(Record):
    """Of a CTA: by agent the first segment that was not released yet (0: there is none) and the last one."""

    LISTS = Array32(0)
    RELEASED = Array32(128 * 8)  # clock of all that was released to other CTAs
    # whether a fence has not been followed by a strong write yet; and by warp, the epoch of the fence
    PENDING = U32(RELEASED + 512)
    FENCES = Array32(PENDING + 4)
    # by warp, the releases that there were at its last strong read, and the epoch of that
    READS = Array32(FENCES + 128)
    READ_AT = Array32(READS + 128)
    BYTES = READ_AT + 128 + 60


class Cluster(Record):
    """A cluster being run; fields of eight bytes."""

    SIZE = U64(0)  # CTAs
    LEFT = U64(8)  # those that have not ended
    POSITION = U64(16)  # of the sweep: the CTA that comes next, by rank
    LIVE = U64(24)  # warps that have not ended
    ARRIVED = U64(32)  # those that have arrived at the barrier
    PEERS: Pointers[Cta] = Pointers(40)  # host addresses of the Cta records, by rank
    BYTES = 40 + 16 * 8


class Presence:
    """Whether a CTA of a cluster has been visited for the first time, and has ended."""

    WAITING = clusters.WAITING
    RUNNING = clusters.RUNNING
    ENDED = clusters.ENDED


class Reach:
    """Bits of ``Context.REACHES``."""

    PARAM = bit_of("param")
    SHARED = bit_of("shared")
    LOCAL = bit_of("local")


class TensorMap(Record):
    """A tensor map; see ``memory.tensor_maps``."""

    ADDRESS = U64(Place.ADDRESS)
    RANK = U32(Place.RANK)
    TYPE = U32(Place.TYPE)
    SWIZZLE = U32(Place.SWIZZLE)
    FILL = U32(Place.FILL)
    MODE = U32(Place.MODE)
    INTERLEAVE = U32(Place.INTERLEAVE)
    BOX = Array16(Place.BOX)
    STEPS = Array8(Place.STEPS)
    ATOM = U8(Place.ATOM)
    STRIDES = Array64(Place.STRIDES)
    SHAPE = Array32(Place.SHAPE)
    LOWER = Array16(Place.LOWER)
    UPPER = Array16(Place.UPPER)
    CHANNELS = U16(Place.CHANNELS)
    PIXELS = U16(Place.PIXELS)
    UNSET = U32(Place.UNSET)


class Bulk:
    """Bits that say where a bulk copy goes, and the place in ``SCRATCH`` of the coordinates of tensor copies."""

    FROM_GLOBAL = 1
    TO_GLOBAL = 2
    MULTICAST = 4
    MASKED = 8
    FOUR_ROWS = 16
    AGAIN = 32  # the same elements to a further CTA
    ANSWER = 64  # 16 bytes of zeros; of a multicast to all CTAs of the cluster
    GENERIC = 128  # the addresses are generic ones
    EDGES = 2048  # the words are bytes at the ends that are left out: first eight bits, and the next
    REPORT = 12  # from this bit on: 1 + the place of the pattern in ``PATTERNS``
    #: patterns of which the first element of 16 bytes is compared, by their digits, and one for single bytes
    PATTERNS = ("80000000", "8000", "80", "8", "ff")
    #: a tensor copy: the mode of the map that it takes, two bits from this one on
    MODE = 8
    PAIRED = 1024  # mbarriers in one of each two CTAs are signalled
    CURSOR = 6144
    #: a tensor copy whose address, and whose sizes and strides, are operands; where the map is with these
    READDRESSED = 1 << 16
    RESIZED = 1 << 17
    CHANGED = 6400
    #: whether something is to be reported
    FOUND = 6528
    #: places of these operands behind those of the coordinates
    BASE = 1024
    EXTENTS = 1280
    LOWER = 1920
    UPPER = 2432
    #: or-ed to the number of a site where the fault is one of the mbarrier
    SIGNALS = 1 << 40


class Barrier(Record):
    """One CTA barrier; fields of eight bytes. Counts are in warps; where warps may be diverged ``ARRIVED`` is in threads."""

    ARRIVED = U64(0)
    EXPECTED = U64(8)  # 0: all warps that have not ended
    ALL = U64(16)
    ANY = U64(24)
    COUNT = U64(32)
    BYTES = 48


class State(Record):
    """One warp: header, stack of four i32 (block, mask, id, kind and area) per entry, then the registers."""

    PC = U32(0)
    MASK = U32(4)
    ID = U32(8)
    DEPTH = U32(12)
    LIVE = U32(16)
    QUANTUM = U32(20)
    WAIT = U32(24)
    EVENT = U32(28)
    BARRIER_ID = U32(32)
    BARRIER_WARPS = U32(36)  # 0: all
    BARRIER_KIND = U32(40)  # 0 sync, 1 arrive, 2 red; of the cluster: 3 arrive, 4 wait, 5 arrive.relaxed
    BARRIER_LANES = U32(44)  # lanes whose predicate holds
    BARRIER_ALL = U32(48)
    BARRIER_ANY = U32(52)
    BARRIER_COUNT = U32(56)
    INDEX = U32(60)
    STEPS = U64(64)  # warp instructions executed, i64
    DETAIL = U32(72)  # of an event
    CULPRITS = U32(76)  # lanes that an error is about
    WAITS = U32(80)  # entries of the stack that wait for other lanes
    SLICE_SHIFT = U32(84)  # time slices are shortened by this many bits
    CLUSTER = U32(88)  # at the barrier of the cluster: 1 arrived, 2 it has completed since
    SEEN = U32(92)  # phases completed when the warp was suspended
    EXPIRED = U32(96)  # 1: the wait gives up
    COMMITS = U32(100)  # groups of products of its warpgroup that it has made
    PRODUCTS = U32(104)  # of its warpgroup that it has executed
    CALLS = U32(108)  # inside one another; counted in programs with recursive functions
    # of the entry popped last: what its lanes have not taken back yet (see ``jit.codegen.recursion``), if < NO_AREA
    AREA = U32(112)
    FREE = U32(116)  # the first area that is free again; 0: none
    AREAS = U32(120)  # those ever used
    WANTED = U32(124)  # groups, or fences, to which the warps of its warpgroup must have come for it to go on
    FENCES = U32(128)  # before products of its warpgroup, to which it has come
    SLICE_END = U32(132)  # the block at whose end the last time slice ended
    SLICES = U32(136)  # time slices that ended in loops that may wait for other threads
    YIELDING = U32(140)  # ``YieldBits``
    HOLDS = U32(144)  # lanes whose predicate held at the aligned barrier where the warp is being gathered
    GATHERED = U32(148)  # that barrier, as ``BARRIER_ID``, ``BARRIER_WARPS`` and ``BARRIER_KIND``
    CONVERGING = U32(160)  # 1: an exchange is carried out for the lanes of a diverged warp
    STOPS = U32(164)  # at ``Event.CONVERGE``: whether the path that ran has come to wait
    # where warps are diverged at barriers, instead of ``CLUSTER``: lanes that have arrived at the barrier of the cluster, and lanes
    # that do not know yet that theirs is complete
    CLUSTER_ARRIVED = U32(168)
    CLUSTER_PASSED = U32(172)
    # u32 of each lane: the member mask that it gave where it waits, 0 after its operation; of a path that waits at a barrier of the
    # CTA its number, and behind it the results: lanes whose predicate held, and ``BarrierResult``
    MEMBERS = Array32(192)
    STACK = 320
    ENTRY = 16


class BarrierResult:
    """Bits of what a barrier at which warps may be diverged leaves to each lane."""

    COUNT = (1 << 16) - 1
    ANY = 1 << 16
    ALL = 1 << 17


class YieldBits:
    """How long the lanes of a warp wait at a reconvergence point, see ``simt.stack.Yielding``."""

    YIELDS = 1
    LEFT_EARLY = 2


class Reason:
    """What a path waits for: at a CTA barrier, for the rest of the warp at an aligned one, at the barrier of the cluster, or at the
    exchange that begins its block: then ``EXCHANGE`` + the number of its ``simt.effects.convergence_key``."""

    BARRIER = 1
    ALIGNED = 2
    CLUSTER = 3
    EXCHANGE = 4


class Status:
    """What a warp function returns, and what a visit of a CTA returns (there + 8: of the warp that needs Python)."""

    DONE = 0
    BARRIER = 1
    SLICE_OVER = 2
    FAULT = 3
    EVENT = 4
    BLOCKED = 5
    STUCK = 6  # of a cluster: none of its CTAs can go on
    SUSPENDED = 7
    GATHERS = 14
    WARPGROUP = 15
    STOPPED = 16  # from ``settle`` to ``proceed``: the next warp runs


class Wait:
    """State of a warp between its time slices."""

    RUNNABLE = 0
    BARRIER = 1
    DONE = 2
    SLICE_OVER = 3
    CLUSTER = 5
    SUSPENDED = 6
    WARPGROUP = 7
    GATHERS = 8


class Event:
    """Why a warp needs Python: ``State.EVENT``."""

    TRAP = 1
    DIVERGENT_BARRIER = 2
    PARK = 3
    SPIN = 4
    STACK = 5
    CALL = 6
    RETURN = 7
    MEMBER_MASK = 8
    INDEX = 9
    BUDGET = 10
    BARRIER_ID = 11
    TARGET = 12
    CHOOSE = 13
    EXITED = 14
    BARRIER_COUNT = 15
    REFUSED = 16
    DIVERGED = 17
    #: a matrix instruction without all lanes of its warp
    INCOMPLETE = 18
    #: a call of a function of the system
    SYSTEM = 19
    #: operands that mean nothing
    MEANINGLESS = 20
    #: a product of a warpgroup that has fewer than four warps
    NO_WARPGROUP = 40
    #: descriptors that differ among the lanes
    DESCRIPTOR = 41
    #: a line of a matrix that is longer than the pattern of swizzling
    PATTERN = 42
    #: a warp that ended with more or fewer products than another of its warpgroup
    UNEVEN = 43
    #: ``alloca`` without room, or ``stackrestore`` of a wrong value
    ALLOCA = 21
    #: arrives at the barrier of the cluster twice, or waits without having arrived
    CLUSTER_ORDER = 22
    #: a handle that leads to no image of the kind wanted, or coordinates outside a surface
    IMAGE = 23
    #: too many calls inside one another, and no more room for local variables
    DEPTH = 50
    LOCALS = 51
    #: lanes arrive at a barrier in code for warps that are diverged there
    ARRIVES = 52
    #: an exchange has been carried out for the lanes of a diverged warp
    CONVERGED = 53
    #: all lanes of a ``.sync`` operation are there, at several instructions; ``DETAIL``: the number of one of their entries on the
    #: stack; ``CULPRITS``: their member mask
    CONVERGE = 54
    #: no path of the warp can go on
    BLOCKED = 55


def instruction_at(program: Program, site: int) -> Instruction:
    """The instruction of a site, or the one that is not a site of that number."""
    if site >= 0:
        return program.sites[site & ~Bulk.SIGNALS].instruction
    block, place = divmod(-1 - site, 1 << PLACE_SHIFT)
    return program.blocks[block].instructions[place]
