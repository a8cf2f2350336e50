"""Records that compiled code, the runtime and Python share: the context, the CTA, its cluster and barriers, the state of a warp.

All are plain bytes at host addresses; the classes define offsets. There is one context and one CTA record per operating-
system thread, and a block of warp states for each CTA in flight. ``access_records``, ``copy_records`` and ``race_records`` define
the records of one subject each, and ``codes`` the values of enumerated fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory.spaces import STRAYS, bit_of
from ...simt import clusters
from .records import U32, U64, Array8, Array32, Array64, Pointer, Pointers, Record

if TYPE_CHECKING:
    from .race_records import Race, RaceWarp
    from .tensor_records import TensorWork

__all__ = [
    "BARRIERS",
    "MATRICES_BYTES",
    "UNWRITTEN",
    "Barrier",
    "Breach",
    "Breaches",
    "Cluster",
    "Context",
    "Cta",
    "Entry",
    "Presence",
    "Range",
    "Reach",
    "State",
]

BARRIERS = 16
#: the fill pattern of words of shared memory that no store has written
UNWRITTEN = 0x5BD1E995
#: size of the buffer of a warp for the matrices of one product of a warpgroup
MATRICES_BYTES = 1 << 16


class Context(Record):
    """One thread's view of the launch; fields of eight bytes."""

    # the fields of a launch, in the order in which ``WorkerContext.begin`` packs them
    WARP_CODE = U64(0)
    BUDGET = U64(8)
    ARENA = U64(16)  # host address = device address + this
    SHADOW = U64(24)  # shadow byte = device address + this
    # ascending
    TABLE: Pointer[Range] = Pointer(32)
    TABLE_ROWS = U64(40)
    PARAM_ADDRESS = U64(48)
    COUNTING = U64(56)  # 1: sectors and wavefronts are counted
    READS = U64(64)  # map of the bytes read = device address + this; 0: not tracked
    WRITES = U64(72)  # likewise of the bytes written
    IMAGES = U64(80)  # rows of textures and surfaces, ``isa.images.image.ROW_WORDS`` words each
    IMAGE_ROWS = U64(88)
    # per site, of generic accesses: the function for accesses whose lanes all address shared memory; 0: there is none
    NEAR = U64(96)
    STRICT = U64(104)  # rules whose breach is an error, a bit each (``isa.rules.Noted``)
    RACE_SITES = U64(112)  # two bytes per site: bits of ``Race``; zeros where races are not checked
    # all others
    WARPS = U64(120)
    STATE_BYTES = U64(128)
    QUANTUM = U64(136)
    BLOCKS = U64(144)  # counters of blocks: warps, lanes, divergent, as three arrays
    SITES = U64(152)  # SITE_COUNTERS per site
    PREDICATED = U64(160)
    CACHE = U64(168)  # SiteCache.BYTES per site
    UNSEEN = U64(176)  # UNSEEN_BYTES per site
    TIDS = U64(184)  # per warp: 32 × tid.x, tid.y, tid.z as i32
    PARAMS = U64(192)
    SHARED_BYTES = U64(200)
    LOCAL_BYTES = U64(208)  # per thread
    SCRATCH = U64(216)  # for the runtime's own use
    ZERO_START = U64(224)  # start of the part of the state that is cleared when a CTA starts
    ZERO_BYTES = U64(232)
    LAST_LANES = U64(240)  # active lanes of the last warp, as a mask
    NTID = Array32(248)  # three i32
    NCTAID = Array32(260)  # three i32
    FAULT_SITE = U64(272)
    FAULT_LANE = U64(280)
    FAULT_ADDRESS = U64(288)
    # 0: global and the other spaces of the arena, 1: shared, 2: local; from 8 on: an error of an mbarrier
    FAULT_SPACE = U64(296)
    SHARED_WINDOW = U64(304)
    LOCAL_WINDOW = U64(312)
    WINDOW_BYTES = U64(320)
    WATCH = U64(328)  # how a load detects unwritten shared memory: 1 by the shadow, 2 by the fill pattern
    SYMBOLS = U64(336)  # addresses of variables and functions, in order of ``Program.symbols``
    ATOMIC_LOCK = U64(344)
    PASSED = U64(352)  # barriers released, for the livelock check
    DYNAMIC_SHARED = U64(360)
    SHAPES = U64(368)
    CTA: Pointer[Cta] = Pointer(376)  # the records of the running CTA and warp
    STATE: Pointer[State] = Pointer(384)
    FAULTED = U64(392)  # 1 after an invalid access
    # offset in a state of the parameters of calls, which extend to its end; they too are cleared when a CTA starts
    PARAMETERS = U64(400)
    THREADS = U64(408)  # counters of single threads, COLUMN_BYTES each, by recorded CTA and warp
    THREADS_SPARE = U64(416)  # a scratch copy of one warp's counters, for CTAs that are not recorded
    KEPT = U64(424)  # the recorded CTAs, i64, ascending, with −1 after the last
    KEPT_COUNT = U64(432)
    CLUSTER_CTAS = U64(440)  # CTAs of a cluster; 0: CTAs run by themselves
    CLUSTER_SHAPE = Array32(448)  # three i32
    CLUSTERS = Array32(460)  # of the grid, three i32
    EXPLICIT_CLUSTER = U64(472)
    REMOTE = U64(480)  # a byte per site: whether it may reach the shared memory of other CTAs
    # the mbarrier object, and the amount that exceeds its range; of a bulk copy: 1 for a read
    FAULT_WORD = U64(488)
    FAULT_AMOUNT = U64(496)
    OWNER: Pointer[Cta] = Pointer(504)  # the record of the CTA that has the mbarrier object
    FAULT_SIZE = U64(512)  # bytes of an invalid access, where they differ from those of its site
    MOVED = U64(520)  # bytes of a tensor copy
    REACHES = U64(528)  # a byte per site: the bits of the memory that it may access (``spaces.reachable``)
    NOTED: Pointer[Breaches] = Pointer(536)  # the count of the recorded breaches, then their records
    RACES_FOUND = U64(544)  # how many, and their rows of ``Race.COLUMNS`` words
    # epoch of the asynchronous copy whose access is checked, and the rank of its CTA << 32; 0: the access is the warp's own
    RACE_AGENT = U64(552)
    # the value that the lane stores, if known, and bytes from one element of a lane to the next, / 32
    RACE_VALUE = U64(560)
    RACE_WIDTH = U64(568)
    PIECES = U64(576)  # a byte per site: bytes that must begin inside an object (``spaces.piece_of``)
    BEYOND = U64(584)  # BEYOND_BYTES per site
    ENTRIES = U64(592)  # of a warp's stack
    # function that runs before the first access or store to an allocation, with its row and whether the access is a store
    SAVE = U64(600)
    SAVE_RECORD = U64(608)  # and its first argument
    # host address of the cells of the lines of global memory (``Line``); 0: races between CTAs are not checked
    RACE_LINES = U64(616)
    RACE_FROM = U64(624)  # start of global memory, and its bytes
    RACE_SPAN = U64(632)
    RACE_FIRST = U64(640)  # number of the launch's first CTA, counted over all launches
    RACE_LOCKED = U64(648)  # 1: several threads run CTAs, so that a check locks the line or word
    # the clocks of the running warp; 0: races in shared memory are not checked
    RACE_WARP: Pointer[RaceWarp] = Pointer(656)
    # the mbarrier at which the previous lane of the instruction arrived; 0: this is the first lane
    RACE_ARRIVED = U64(664)
    RACE_LOWEST = U64(672)  # first and last line of which CTAs may have accessed the same bytes
    RACE_HIGHEST = U64(680)
    RACE_SEGMENTS = U64(688)  # host address of the ``Segment`` records; 0: no CTA can wait for another one
    RACE_SEGMENT_COUNT = U64(696)  # and how many are in use
    RACE_RELEASES = U64(704)  # number of releases to other CTAs
    RACE_ROOMS = U64(712)  # host address of the rooms of the lines
    VALUE_ROWS = U64(720)  # ``ValueRow.BYTES`` per slot of ``simt.value_records``
    VALUE_RECORDS = U64(728)  # one after the other, of different sizes
    VALUE_USED = U64(736)  # bytes in use, and how many there are
    VALUE_ROOM = U64(744)
    VALUE_LEFT_OUT = U64(752)  # 1: accesses were not recorded because there is no room
    AREA_BYTES = U64(760)  # of an area, and of all areas of a warp
    AREAS_BYTES = U64(768)
    VALUE_LOADS = U64(776)  # ``LOADS`` of ``simt.value_records`` ``ValueLoad`` records
    # ``Target`` records, by slot of ``simt.atomic_targets``; 0: atomics on global memory are not counted by address
    TARGETS = U64(784)
    VALUE_SHAPES = U64(792)  # ``ValueShape`` records of the objects of several axes, and one of address 0
    # the last writers of words, as ``memory.store_shadow`` defines them: 8 bytes at this + 2 · address, and for words that several
    # threads wrote 8 bytes of each byte at the next + 8 · address; 0: stores are not traced
    STORE_WORDS = U64(800)
    STORE_BYTES = U64(808)
    STORE_OBJECTS = U64(816)  # 8 bytes at this + start / 32 of each object: the epoch of its last store
    STORE_EPOCH = U64(824)  # the first epoch of this launch
    STORE_FROM = U64(832)  # start of the traced memory, and its bytes
    STORE_SPAN = U64(840)
    # of the running bulk copy: the function that records bytes of device memory (``values_range_…``; 0: none), and its slot
    VALUE_RANGE = U64(848)
    VALUE_SLOT = U64(856)
    TENSOR_WORK: Pointer[TensorWork] = Pointer(864)  # for matrices of ``tcgen05``
    # host address of the words of global memory (``Word``; 0: words are not checked), and of the cells of words that several CTAs
    # access
    RACE_WORDS = U64(872)
    RACE_CELLS = U64(880)
    RACE_ACCESSORS = U64(888)  # host address of ``Accessors``, and the first one of the launch
    RACE_ACCESSORS_FROM = U64(896)
    RACE_ACCESSOR = U64(904)  # the last one, and the end of those reserved; 0: there was none
    RACE_ACCESSORS_END = U64(912)
    BY_LANES = U64(920)  # whether warps may arrive at barriers diverged
    # of clusters, or of CTAs without cluster: the next one in launch order that has not started, how many the grid has, how many were
    # cancelled, and the number of cancel requests
    FOLLOWING = U64(928)
    UNITS = U64(936)
    CANCELLED = U64(944)
    ASKED = U64(952)
    ANSWER = U64(
        960
    )  # the response to a cancel request: 1 + the number of the cluster or CTA, 0 if none was left
    # host addresses: of one bit per word of global memory, set after its first access (0: words are not in batches); of four bytes per
    # word, the number of its batch or ``Batches.LEFT``; and of the ``Batches``
    RACE_BITS = U64(968)
    RACE_NUMBERS = U64(976)
    RACE_BATCHES = U64(984)
    # log2 of the bytes of a word of global memory, for all fields above; and the number of bytes from RACE_FROM on whose words may
    # be in batches
    RACE_UNIT = U64(992)
    RACE_BATCHED = U64(1000)
    # four bytes per site: a bit for each byte of a load that the program uses (``operands.used_bytes``)
    USED = U64(1008)
    BYTES = 1016


class Range(Record):
    """Device addresses that programs may access: an allocation, or memory that the launch itself set up."""

    START = U64(0)
    END = U64(8)
    KIND = U64(16)  # ``spaces.KINDS``
    FLAGS = U64(24)  # 1: initialised; + 2: ``SAVE`` runs before the first access; + 4: before the first store
    BYTES = 32


class Breaches(Record):
    """The ``Breach`` records of a launch follow."""

    COUNT = U64(0)
    BYTES = 8


class Breach(Record):
    """A recorded breach of a rule; see ``isa.rules.Noted``."""

    RULE = U64(0)
    SITE = U64(8)
    CTA = U64(16)
    WARP = U64(24)
    LANE = U64(32)
    ADDRESS = U64(40)


class Entry(Record):
    """An entry of the SIMT stack of a warp: the block where its lanes continue, a mask that contains them, their reconvergence point,
    and the kind."""

    PLACE = U32(0)
    MASK = U32(4)
    ID = U32(8)
    KIND = U32(12)
    BYTES = 16


class Cta(Record):
    """The CTA being run; fields of eight bytes."""

    INDEX = U64(0)
    INDICES = Array64(8)  # X, Y and Z
    X = U64(8)
    Y = U64(16)
    Z = U64(24)
    SHARED = U64(32)
    SHARED_SHADOW = U64(40)  # offset from shared memory to its shadow, in host addresses
    LOCAL = U64(48)  # local memory of all threads, thread after thread
    LOCAL_SHADOW = U64(56)  # offset, as above
    STATES: Pointer[State] = Pointer(64)
    POSITION = U64(72)  # the next warp of this round
    LIVE_WARPS = U64(80)
    RAN = U64(88)  # whether a warp ran in this round
    MARKED = U64(96)  # whether the shadow of shared memory is in use
    # a bit for each barrier at which warps have arrived; from bit 16 on for those at which single lanes have, and for the cluster's
    ACTIVE = U64(104)
    RANK = U64(112)  # in the cluster
    WINDOW = U64(120)  # start of its shared memory in the shared window
    BARRIERS = 128  # BARRIERS records
    CLUSTER: Pointer[Cluster] = Pointer(
        128 + 16 * 48
    )  # host address of the Cluster record; 0: the CTA is in no cluster
    PRESENCE = U64(904)  # one of ``Presence``
    CLUSTERID = Array64(912)  # three i64
    WITHIN = Array64(936)  # %cluster_ctaid, three i64
    PHASES = U64(960)  # phases of mbarriers completed
    AREAS = U64(968)  # host address of the saved registers of recursive calls, by warp
    RACES: Pointer[Race] = Pointer(976)  # 0: races are not checked
    RACE_ROOM: Pointer[Race] = Pointer(984)  # the same record, reserved when the CTA starts
    TENSOR = U64(992)  # host address of its tensor memory, of 512 columns; 0: the program uses none
    # a bit for each allocated unit of 32 columns; whether the CTA has given up the right to allocate; units of each allocation, by its
    # first unit
    TENSOR_UNITS = U64(1000)
    TENSOR_CLOSED = U64(1008)
    TENSOR_SIZES = Array8(1016)
    # by barrier and warp, two u32: lanes that have arrived, and those of them that arrived without the rest of their warp
    LANES = 1032
    LANES_BYTES = 16 * 32 * 8
    BYTES = LANES + LANES_BYTES


class Cluster(Record):
    """A cluster being run; fields of eight bytes."""

    SIZE = U64(0)  # CTAs
    LEFT = U64(8)  # those that have not ended
    POSITION = U64(16)  # the next CTA of this round, by rank
    LIVE = U64(24)  # warps that have not ended
    ARRIVED = U64(32)  # those that have arrived at the barrier
    PEERS: Pointers[Cta] = Pointers(40)  # host addresses of the Cta records, by rank
    NUMBER = U64(40 + 16 * 8)  # in the grid
    BYTES = NUMBER + 8


class Presence:
    """Whether a CTA of a cluster has started, runs, or has ended."""

    WAITING = clusters.WAITING
    RUNNING = clusters.RUNNING
    ENDED = clusters.ENDED


class Reach:
    """Bits of ``Context.REACHES``."""

    PARAM = bit_of("param")
    SHARED = bit_of("shared")
    LOCAL = bit_of("local")
    STRAYS = STRAYS


class Barrier(Record):
    """One CTA barrier; fields of eight bytes. Counts are in warps; where warps may arrive diverged, ``ARRIVED`` counts threads."""

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
    CULPRITS = U32(76)  # lanes that caused an error
    WAITS = U32(80)  # entries of the SIMT stack that wait for other lanes
    SLICE_SHIFT = U32(84)  # the quantum is shifted right by this
    CLUSTER = U32(88)  # at the barrier of the cluster: 1 arrived, 2 it has completed since
    SEEN = U32(92)  # phases completed when the warp was suspended
    EXPIRED = U32(96)  # 1: the wait expires; 2: its phase was complete when its object was initialised again
    COMMITS = U32(100)  # groups of products of its warpgroup that it has committed
    PRODUCTS = U32(104)  # of its warpgroup that it has executed
    CALLS = U32(108)  # depth of nested calls, counted in programs with recursive functions
    # if < NO_AREA: the area of the last popped entry, whose registers are not restored yet (see ``jit.codegen.recursion``)
    AREA = U32(112)
    FREE = U32(116)  # head of the list of freed areas; 0: none
    AREAS = U32(120)  # number of areas ever used
    WANTED = U32(
        124
    )  # the groups, or fences, that the warps of its warpgroup must have reached before it continues
    FENCES = U32(128)  # fences before products of its warpgroup that it has executed
    SLICE_END = U32(132)  # the block that ended with the last time slice
    SLICES = U32(136)  # time slices that ended in loops that may wait for other threads
    YIELDING = U32(140)  # ``YieldBits``
    HOLDS = U32(144)  # lanes whose predicate held at the aligned barrier where the warp is being gathered
    GATHERED = U32(148)  # id, warps and kind of that barrier
    CLOCK_STEPS = U32(152)  # low half of STEPS when a loop that waits for the clock last read it
    BEGAN = U32(156)  # 1 + phases completed when it resumed; 0: it is suspended
    CONVERGING = U32(160)  # 1: an exchange runs for the lanes of a diverged warp
    STOPS = U32(164)  # at ``Event.CONVERGE``: whether the running path has begun to wait
    # where warps arrive at barriers diverged, instead of ``CLUSTER``: lanes that have arrived at the barrier of the cluster, and lanes
    # that have not observed yet that it is complete
    CLUSTER_ARRIVED = U32(168)
    CLUSTER_PASSED = U32(172)
    # where it waits at an mbarrier with all running lanes: offset of the object + 2 + the parity of the phase; else 0
    AWAITED = U32(176)
    CLOCK_GAP = U32(180)  # see ``flow.clock_loops``
    CLOCK_AHEAD = U64(184)  # the clock minus STEPS
    # u32 of each lane: the member mask of the operation where it waits, 0 after the operation; of a path that waits at a barrier of
    # the CTA the barrier's number, after the barrier the results (lanes whose predicate held, and ``BarrierResult``); of a path
    # that waits there for the rest of its warp number + kind << 8 + warps << 16
    MEMBERS = Array32(192)
    STACK = 320
    ENTRY = 16
