"""Memory layouts that the generated code, the runtime and Python share: the context, the CTA, the warp's state.

All are plain bytes at host addresses; the classes give offsets. There is one context and one CTA record per operating-
system thread, and a block of warp states for each CTA in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory.spaces import bit_of
from ...simt import clusters

if TYPE_CHECKING:
    from ...ptx.syntax import Instruction
    from ...simt.program import Program

__all__ = [
    "APART",
    "AREA_SHIFT",
    "BARRIERS",
    "BEYOND_BYTES",
    "CONVERGE_CODE",
    "EXIT_CODE",
    "GATHER_CODE",
    "KIND",
    "MATRICES_BYTES",
    "PLACE_SHIFT",
    "RETURN_CODE",
    "SITE_BYTES",
    "SITE_COUNTERS",
    "SYNC_CODE",
    "UNSEEN_BYTES",
    "UNWRITTEN",
    "WAIT_CODE",
    "Barrier",
    "Bulk",
    "Cluster",
    "Context",
    "Counter",
    "Cta",
    "Event",
    "GlobalShape",
    "Line",
    "Presence",
    "Race",
    "Reach",
    "Reason",
    "Segment",
    "Segments",
    "SharedShape",
    "SiteCache",
    "State",
    "Status",
    "Wait",
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
#: in a program without recursive functions, 1 + the number of the function
AREA_SHIFT = 8
KIND = (1 << AREA_SHIFT) - 1
#: from the runtime to itself: the lanes of a ``.sync`` operation stand at several instructions
APART = 64
#: what unwritten words of shared memory hold until a value is stored
UNWRITTEN = 0x5BD1E995
#: room of a warp for the matrices of one product of a warpgroup
MATRICES_BYTES = 1 << 16

#: an instruction that is no site: −1 − (its block << this | its place there)
PLACE_SHIFT = 20


class Context:
    """One thread's view of the launch; fields of eight bytes."""

    WARP_CODE = 0
    WARPS = 8
    STATE_BYTES = 16
    QUANTUM = 24
    BUDGET = 32
    ARENA = 40  # host address = device address + this
    SHADOW = 48  # shadow byte = device address + this
    TABLE = 56  # rows of four: start, end, kind (``spaces.KINDS``), 1 if initialised + 2 if the first store is to be told
    TABLE_ROWS = 64
    BLOCKS = 72  # counters of blocks: warps, lanes, divergent, as three arrays
    SITES = 80  # SITE_COUNTERS per site
    PREDICATED = 88
    CACHE = 96  # SiteCache.BYTES per site
    UNSEEN = 104  # UNSEEN_BYTES per site
    TIDS = 112  # per warp: 32 × tid.x, tid.y, tid.z as i32
    PARAMS = 120
    SHARED_BYTES = 128
    LOCAL_BYTES = 136  # per thread
    SCRATCH = 144  # for the runtime's own use
    ZERO_START = 152  # part of the state that is zero when a CTA starts
    ZERO_BYTES = 160
    LAST_LANES = 168  # active lanes of the last warp, as a mask
    NTID = 176  # three i32
    NCTAID = 188  # three i32
    FAULT_SITE = 200
    FAULT_LANE = 208
    FAULT_ADDRESS = 216
    FAULT_SPACE = (
        224  # 0 global and others in the arena, 1 shared, 2 local; from 8 on an error of an mbarrier
    )
    SHARED_WINDOW = 232
    LOCAL_WINDOW = 240
    WINDOW_BYTES = 248
    WATCH = 256  # how unwritten shared memory is known: 1 by its shadow, 2 by what it holds
    SYMBOLS = 264  # addresses of variables and functions, in order of ``Program.symbols``
    ATOMIC_LOCK = 272
    PASSED = 280  # barriers released, for the livelock check
    DYNAMIC_SHARED = 288
    PARAM_ADDRESS = 296
    SHAPES = 304
    CTA = 312  # the records of the CTA and warp that run
    STATE = 320
    FAULTED = 328  # 1 after a refused access
    COUNTING = 336  # 1: sectors and wavefronts are counted
    PARAMETERS = (
        344  # where the parameters of calls begin in a state, to its end; they too are zero when a CTA starts
    )
    THREADS = 352  # counters of single threads, COLUMN_BYTES each, by kept CTA and warp
    THREADS_SPARE = 360  # as much as one warp of a CTA that is not kept may write to
    KEPT = 368  # their CTAs, i64, ascending, and −1 behind the last
    KEPT_COUNT = 376
    READS = 384  # map of bytes that were read = device address + this; 0: not observed
    WRITES = 392  # and of those that were written
    CLUSTER_CTAS = 400  # CTAs of a cluster; 0: CTAs run by themselves
    CLUSTER_SHAPE = 408  # three i32
    CLUSTERS = 420  # of the grid, three i32
    EXPLICIT_CLUSTER = 432
    REMOTE = 440  # a byte per site: whether it may reach the shared memory of other CTAs
    FAULT_WORD = 448  # the mbarrier object, and the amount that it does not allow; of a bulk copy 1 where it was reading
    FAULT_AMOUNT = 456
    OWNER = 464  # the record of the CTA that has the mbarrier object
    IMAGES = 472  # rows of textures and surfaces, ``isa.images.ROW_WORDS`` words each
    IMAGE_ROWS = 480
    NEAR = 488  # per site, for generic accesses: the function for those that go to shared memory whole; 0: there is none
    FAULT_SIZE = 496  # bytes of a refused access, if they are not those of its site
    MOVED = 504  # bytes of a tensor copy
    REACHES = 512  # a byte per site: the bits of the memory that it may reach (``spaces.reachable``)
    STRICT = 520  # rules whose breach is an error, a bit each (``isa.rules.Noted``)
    NOTED = 528  # records of breaches that are noted, behind their number
    RACE_SITES = 536  # a byte per site: bits of ``Race``; zeros where races are not looked for
    RACES_FOUND = 544  # how many, and their rows of ``Race.COLUMNS`` words
    RACE_AGENT = 552  # stamp of the asynchronous copy that accesses memory now, and the rank of its CTA << 32; 0: the warp does
    RACE_VALUE = 560  # what the lane stores, if known, and bytes from one element of a lane to the next, / 32
    RACE_WIDTH = 568
    PIECES = 576  # a byte per site: bytes that must begin inside an object (``spaces.piece_of``)
    BEYOND = 584  # BEYOND_BYTES per site
    ENTRIES = 592  # of a warp's stack; 0: all moves of paths that wait are left to Python
    SAVE = 600  # function that is given the row of an allocation before the first store to it
    RACE_LINES = 608  # host address of the cells of the lines of global memory (``Line``); 0: CTAs are not held against one another
    RACE_FROM = 616  # where global memory begins, and its bytes
    RACE_SPAN = 624
    RACE_FIRST = 632  # number of the first CTA of the launch, of all launches
    RACE_LOCKED = 640  # 1: several threads run CTAs, so that a line is locked while it is looked at
    RACE_WARP = 648  # what the warp that runs knows of the order of accesses; 0: races in shared memory are not looked for
    RACE_TOLD = 664  # the mbarrier that the last lane of an instruction has told of it; 0: it is the first
    RACE_LOWEST = 672  # lines in which several CTAs met: the first and the last one
    RACE_HIGHEST = 680
    RACE_SEGMENTS = 688  # host address of the ``Segment`` records; 0: no CTA can wait for another one
    RACE_SEGMENT_COUNT = 696  # and how many are in use
    RACE_RELEASES = 704  # how often anything was released to other CTAs
    RACE_ROOMS = 712  # host address of the rooms of the lines
    BYTES = 720


class SiteCache:
    """The allocation that a site accessed last; fields of eight bytes."""

    START = 0
    SPAN = 8  # its bytes
    TRACKED = 16  # whether stores must be noted in its shadow
    BYTES = 32


class SharedShape:
    """The last access of a site to shared memory, whose wavefronts hold for the next one if its lanes are as far apart."""

    DISTANCES = 0  # of the lanes, 32 × i32
    MASK = 128
    RESULT = 136  # wavefronts + 64 · ideal
    #: 1, 2 + 4 · distance of the half warps: consecutive lanes, one address in each; 3: any addresses
    KIND = 144


class GlobalShape:
    """The last access of a site to global memory; of loads, the words that it took lie apart from its sectors and lines."""

    SECTORS = 0  # distances of the lanes in sectors, and in lines, 32 × i64 each
    LINES = 256
    MASK = 512
    RESULT = 520  # sectors + 64 · lines
    IS_SHARED = 528  # 1 while the record is a ``SharedShape`` (generic accesses)
    WORDS = 576  # distances in words, 32 × i64
    WORDS_MASK = 832
    WAVEFRONTS = 840
    BYTES = 896


class Counter:
    """The counters of one site, in bytes: ``counters.SITE_COLUMNS``."""

    REQUESTS = 0
    LANES = 8
    SECTORS = 16
    WAVEFRONTS = 24
    IDEAL = 32
    SHARED_LANES = 40
    LOCAL_LANES = 48
    LINES = 56
    LOCAL_SECTORS = 64
    SERIALIZATIONS = 72
    SHARED_SERIALIZATIONS = 80
    ELSEWHERE = 88
    SHARED_REQUESTS = 96
    LOCAL_REQUESTS = 104
    GLOBAL_WAVEFRONTS = 112


class Cta:
    """The CTA being run; fields of eight bytes."""

    INDEX = 0
    X = 8
    Y = 16
    Z = 24
    SHARED = 32
    SHARED_SHADOW = 40  # host address of the shadow of shared memory, as a distance from it
    LOCAL = 48  # local memory of all threads, one after the other
    LOCAL_SHADOW = 56  # distance, as above
    STATES = 64
    POSITION = 72  # of the visit: the warp that comes next
    LIVE_WARPS = 80
    RAN = 88  # whether a warp ran since the scheduler was at the first one
    MARKED = 96  # whether the shadow of shared memory is in use
    ACTIVE = 104  # barriers at which warps have arrived, a bit each; from bit 16 on, whether Python keeps any
    RANK = 112  # in the cluster
    WINDOW = 120  # where its shared memory begins in the shared window
    BARRIERS = 128  # BARRIERS records
    CLUSTER = 128 + 16 * 48  # host address of the Cluster record; 0: the CTA runs by itself
    PRESENCE = 904  # as ``clusters``: has not started, runs, has ended
    CLUSTERID = 912  # three i64
    WITHIN = 936  # %cluster_ctaid, three i64
    PHASES = 960  # phases of mbarriers completed
    AREAS = 968  # host address of what activations of recursive functions keep, by warp
    RACES = 976  # host address of the Race record; 0: races are not looked for
    RACE_ROOM = 984  # the same, from the start of a CTA on
    BYTES = 992


class Race:
    """What is known of the order of accesses of one CTA's shared memory; see ``jit.runtime.races``.

    Clocks are numbers of four bytes, by agent: warps, then the ``cp.async`` of each warp, then the copies that tell one mbarrier
    each and, as one, all other CTAs (the last of their releases that is known), then the ``wgmma`` of each warp: 128 of a CTA. In a
    cluster such 128 follow for each CTA, ``PEER`` bytes from one to the next, by its rank xor that of the CTA whose clock it is.
    """

    NOW = 0  # counts what orders anything
    PLANES = 8  # host address of the first of the shadows of shared memory, word for word
    PLANE = 16  # bytes of each
    AGENTS = 24  # how many agents of a CTA there are: 32, in a cluster its warps, until something is done asynchronously
    SLOTS = 32  # mbarriers that are known
    STEP = 40  # from one time to the next: in a cluster the power of two from which on no rank is, else 1
    CLOCK_BYTES = 48
    RANK = 56
    WARPS = 64  # host address of the records of the warps, and bytes of each
    WARP = 72
    MBARRIERS = 80  # and of the mbarriers
    MBARRIER = 88
    MET = 96  # whether a warp has learned of another CTA since all warps met
    ROOM = 104  # bytes of all clocks and records
    CTA = 112  # host address of that of the CTA
    TWIN = 120  # from a clock to what of it the async proxy sees; 0: it reads no shared memory
    WINDOW = 136  # host address of the cells of lines of global memory that the CTA accessed (``Line``); 0: there are none
    SEGMENTS = 144  # host address of the ``Segments`` of the CTA
    AGAIN = 152  # 1: times have begun anew; 2: and what was noted before is forgotten
    FENCED_PROXY = 128  # whether a warp has let the async proxy see more since all warps met
    CLOCKS = 192
    # clocks of the CTA, by number: its barriers, then those of what was released by atomics and flags, and to the cluster; of the
    # barrier of the cluster, and of its last completion
    EVERYTHING = 16
    EVERYWHERE = 17
    MEETING = 18
    GONE_ON = 19
    CLOCKS_COUNT = 20
    PEER = 1024
    # an mbarrier: its address, clocks of its phase and of those completed
    MOST_MBARRIERS = 31
    ARRIVING = 64
    # a warp
    STAMP = 0  # of its accesses: time << 8 | agent
    BASE = 8  # stamps below this one are those of accesses that come before, unless they are asynchronous
    FENCED = 16  # whether it has executed a fence (1), and one whose scope is the cluster or more (2)
    READ = 24  # whether it has read what others may have released
    COPIES = 32  # time of the group of copies that is open; 0: none was made
    GROUPS = 40  # groups committed
    PRODUCTS = 48  # time of the group of ``wgmma`` that is open; 0: none was made
    RECORD = 56  # host address of the record of its CTA
    MASK = 64  # bits of a stamp that tell the agent
    TURN = 72  # rank xor that of the CTA whose shared memory is accessed
    RING = 80  # when groups of copies were committed, the last ones
    PRODUCTS_RING = 304  # and groups of ``wgmma``
    RING_SIZE = 28
    KNOWN = 528  # stamps that were last found to come before, by a few bits of their agents
    CLOCK = 640  # then that of the last fence
    # numbers of agents that are not warps
    OF_COPIES = 32
    OF_MBARRIERS = 64
    OF_OTHERS = 95
    OF_PRODUCTS = 96
    # planes: stamps, and what is behind them: site << 14 | warp << 9 | bytes of the word << 5 | lane
    WRITER = 0
    READER = 2
    OTHER = 4
    PLANES_COUNT = 6
    #: flag of stamps: atomic, or of an access that is ``volatile``, ``relaxed`` or stronger
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
    #: in clusters, where what is behind a stamp has the CTA of the access from bit 28 on: its rank xor that of the memory
    MOST_SITES_IN_CLUSTER = 1 << 14
    BEHIND = (1 << 28) - 1
    #: of a finding: kind and sites, CTA, what is behind both stamps, address (in clusters, from bit 32 on, 1 + the CTA that has it),
    #: how often, CTA of the later access
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


class Line:
    """A cell: what is known of the accesses to 64 bytes of global memory, by pairs of entries: of those who stored and of those who
    loaded. The first pair is in the cell, so that a line that one warp accesses takes no more room; the others are in the line's room,
    if they are in use.

    A CTA has a window: cells of its own, for the lines that it accessed last, with a tag each: the number of the CTA << 32 | line.
    As long as a line is accessed by one warp alone, its cell among those of all CTAs stands for that of the window."""

    BITS = 6
    BYTES = 1 << BITS
    LAUNCH = 0  # u32: ``RACE_FIRST`` of the launch
    LOCK = 4  # u8: whether it is held
    OWNER = 8  # u32: who alone has accessed the line, or SHARED
    FULL = 12  # u8: whether its room is in use
    SUSPECT = 13  # u8: whether several CTAs met
    DIFFERS = 16  # bytes that held several values
    PAIR = 24
    CELL = 64
    ENTRY = 20
    SHARED = (1 << 32) - 1
    # the room
    STORED = 0  # bytes to which any CTA stored
    #: u32: the CTA to whose window the first pair belongs, as it was; 0: there is none, or it is there
    KEPT_OF = 8
    KEPT = 16
    VALUES = 56  # in windows, what the CTA stored last; else what was there when the pair was kept
    MORE = VALUES + 64  # further pairs
    PAIRS = 4
    ROOM = MORE + (PAIRS - 1) * 2 * ENTRY
    # an entry: u32 who (0: nobody): the number of a CTA; of a segment; in windows, and while one CTA has the line, a stamp
    WHO = 0
    BY = 4  # u32: what is behind the stamp of the last access
    MASK = 8  # bytes accessed
    #: u16: where the last access lies in the line: its first byte, the logarithm of the bytes of a lane, and bytes in all − 1
    AT = 16
    STRONG = 18  # u8: 1 strong, 2 among CTAs too
    POWER = BITS
    LENGTH = BITS + 3
    #: lines of a window; where its tags and rooms begin, and its bytes
    WINDOW = 2048
    TAGS = WINDOW * CELL
    ROOMS = TAGS + WINDOW * 8
    ALL = ROOMS + WINDOW * ROOM


class Segment:
    """Accesses of global memory by one agent of a CTA between two releases; u32 each. Numbers begin at 1."""

    CTA = 0
    STAMP = 4
    RELEASED = 8  # the first release to other CTAs that covers it; 0: there was none
    NEXT = 12  # the next one of the agent
    BYTES = 16
    MOST = 1 << 22


class Segments:
    """Of a CTA: by agent the first segment that was not released yet (0: there is none) and the last one, u32 each."""

    RELEASED = 128 * 8  # clock of all that was released to other CTAs
    #: u32: whether a fence has not been followed by a strong write yet; and by warp, the stamp of the fence
    PENDING = RELEASED + 512
    FENCES = PENDING + 4
    #: by warp, the releases that there were at its last strong read, and the stamp of that
    READS = FENCES + 128
    READ_AT = READS + 128
    BYTES = READ_AT + 128 + 60


class Cluster:
    """A cluster being run; fields of eight bytes."""

    SIZE = 0  # CTAs
    LEFT = 8  # those that have not ended
    POSITION = 16  # of the sweep: the CTA that comes next, by rank
    LIVE = 24  # warps that have not ended
    ARRIVED = 32  # those that have arrived at the barrier
    PEERS = 40  # host addresses of the Cta records, by rank
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


class Barrier:
    """One CTA barrier; fields of eight bytes. Counts are in warps."""

    ARRIVED = 0
    EXPECTED = 8  # 0: all warps that have not ended
    ALL = 16
    ANY = 24
    COUNT = 32
    BYTES = 48


class State:
    """One warp: header, stack of four i32 (block, mask, id, kind and area) per entry, then the registers."""

    PC = 0
    MASK = 4
    ID = 8
    DEPTH = 12
    LIVE = 16
    QUANTUM = 20
    WAIT = 24
    EVENT = 28
    BARRIER_ID = 32
    BARRIER_WARPS = 36  # 0: all
    BARRIER_KIND = 40  # 0 sync, 1 arrive, 2 red; of the cluster: 3 arrive, 4 wait, 5 arrive.relaxed
    BARRIER_LANES = 44  # lanes whose predicate holds
    BARRIER_ALL = 48
    BARRIER_ANY = 52
    BARRIER_COUNT = 56
    INDEX = 60
    STEPS = 64  # warp instructions executed, i64
    DETAIL = 72  # of an event
    CULPRITS = 76  # lanes that an error is about
    WAITS = 80  # entries of the stack that wait for other lanes
    SLICE_SHIFT = 84  # time slices are shortened by this many bits
    CLUSTER = 88  # at the barrier of the cluster: 1 arrived, 2 it has completed since
    SEEN = 92  # phases completed when the warp was suspended
    EXPIRED = 96  # 1: the wait gives up
    COMMITS = 100  # groups of products of its warpgroup that it has made
    PRODUCTS = 104  # of its warpgroup that it has executed
    CALLS = 108  # inside one another; counted in programs with recursive functions
    AREA = 112  # of the entry popped last, what its lanes keep (see ``jit.codegen.recursion``)
    FREE = 116  # the first area that is free again; 0: none
    AREAS = 120  # those ever used
    WANTED = 124  # groups, or fences, to which the warps of its warpgroup must have come for it to go on
    FENCES = 128  # before products of its warpgroup, to which it has come
    SLICE_END = 132  # the block at whose end the last time slice ended
    SLICES = 136  # time slices that ended in loops that may wait for other threads
    YIELDING = 140  # ``YieldBits``
    HOLDS = 144  # lanes whose predicate held at the aligned barrier where the warp is being gathered
    GATHERED = 148  # that barrier, as ``BARRIER_ID``, ``BARRIER_WARPS`` and ``BARRIER_KIND``
    CONVERGING = 160  # 1: an exchange is carried out for the lanes of a diverged warp
    MEMBERS = 192  # u32 of each lane: the member mask that it gave where it waits, 0 after its operation
    STACK = 320
    ENTRY = 16


class YieldBits:
    """How long the lanes of a warp wait at a reconvergence point, see ``simt.stack.Yielding``."""

    YIELDS = 1
    LEFT_EARLY = 2


class Reason:
    """What a path waits for: at a CTA barrier, for the rest of the warp at an aligned one, or at the exchange that begins its block:
    then ``EXCHANGE`` + the number of its ``simt.effects.convergence_key``."""

    BARRIER = 1
    ALIGNED = 2
    EXCHANGE = 3


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


class Wait:
    """State of a warp between its time slices."""

    RUNNABLE = 0
    BARRIER = 1
    DONE = 2
    SLICE_OVER = 3
    PARKED = 4
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
    #: lanes arrive at a barrier of the CTA at which warps are diverged
    ARRIVES = 52
    #: an exchange has been carried out for the lanes of a diverged warp
    CONVERGED = 53
    #: all lanes of a ``.sync`` operation are there, at several instructions; ``DETAIL``: whether no path runs
    CONVERGE = 54
    #: no path of the warp can go on
    BLOCKED = 55


def instruction_at(program: Program, site: int) -> Instruction:
    """The instruction of a site, or the one that is no site of that number."""
    if site >= 0:
        return program.sites[site & ~Bulk.SIGNALS].instruction
    block, place = divmod(-1 - site, 1 << PLACE_SHIFT)
    return program.blocks[block].instructions[place]
