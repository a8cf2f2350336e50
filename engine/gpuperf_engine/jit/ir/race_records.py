"""Records of the race detector: vector clocks and epochs of warps and CTAs, and the accesses to lines and words of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .records import U8, U16, U32, U64, Array32, Array64, Pointer, Record

if TYPE_CHECKING:
    from .abi import Cta

__all__ = [
    "Accessor",
    "Accessors",
    "Batch",
    "Batches",
    "Line",
    "LineAccess",
    "LineEntry",
    "LineRoom",
    "Race",
    "RaceClock",
    "RaceFindings",
    "RaceMbarrier",
    "RaceRow",
    "RaceWarp",
    "Segment",
    "Segments",
    "Window",
    "Word",
]


class Race(Record):
    """Clocks and shadows of one CTA's memory; see ``jit.runtime.races.clocks``.

    A clock has one time of four bytes per agent, 128 in a CTA: the warps; the ``cp.async`` of each warp; the copies that signal one
    mbarrier each, or those of one warp that complete by groups; all other CTAs as one agent (their last known release); the ``wgmma``
    of each warp. In a cluster, a clock has 128 times for each CTA, with a stride of ``PEER`` bytes, indexed by the CTA's rank xor
    the rank of the clock's CTA.
    """

    NOW = U64(0)  # number of operations that order accesses
    PLANES = U64(8)  # host address of the first shadow of shared memory, word for word
    PLANE = U64(16)  # bytes of each
    # number of agents of a CTA: its warps, until the first asynchronous operation
    AGENTS = U64(24)
    SLOTS = U64(32)  # number of known mbarriers
    # step from one time to the next: in a cluster the power of two that is above all ranks, else 1
    STEP = U64(40)
    CLOCK_BYTES = U64(48)
    RANK = U64(56)
    WARPS = U64(64)  # host address of the records of the warps, and bytes of each
    WARP = U64(72)
    MBARRIERS = U64(80)  # and of the mbarriers
    MBARRIER = U64(88)
    JOINED_PEER = U64(96)  # whether a warp has acquired from another CTA since the last barrier of all warps
    ROOM = U64(104)  # bytes of all clocks and records
    CTA: Pointer[Cta] = Pointer(112)
    TWIN = U64(
        120
    )  # offset from a clock to its copy for the async proxy; 0: the async proxy reads no shared memory
    FENCED_PROXY = U64(128)  # whether a warp has executed a proxy fence since the last barrier of all warps
    WINDOW: Pointer[Window] = Pointer(136)  # 0: races in global memory between its own warps are not checked
    SEGMENTS: Pointer[Segments] = Pointer(144)
    BULK_AGENTS = U64(
        160
    )  # warps with an agent for their groups of bulk copies, counted down from the last agent of mbarriers
    AGAIN = U64(152)  # 1: times have restarted; 2: and earlier records are cleared
    OLDEST = U64(
        168
    )  # accessors of global memory (``Accessors``) below this one are from before the restart of times
    CLOCKS = 192
    # clocks of the CTA, by number: its barriers, then those of releases by atomics and flags, and of releases to the cluster; of the
    # barrier of the cluster, and of its last completion
    EVERYTHING = 16
    EVERYWHERE = 17
    CLUSTER_BARRIER = 18
    CLUSTER_COMPLETE = 19
    CLOCKS_COUNT = 20
    PEER = 1024
    MOST_MBARRIERS = 31
    #: number of agents of mbarriers that may serve bulk copies by groups instead
    MOST_OF_BULK = 15
    # numbers of agents that are not warps
    OF_COPIES = 32
    OF_MBARRIERS = 64
    OF_OTHERS = 95
    OF_PRODUCTS = 96
    # planes: epochs, and the details of each: site << 14 | warp << 9 | bytes of the word << 5 | lane
    WRITER = 0
    READER = 2
    OTHER = 4
    PLANES_COUNT = 6
    #: flag of epochs: atomic, or of an access that is ``volatile``, ``relaxed`` or stronger
    STRONG = 128
    #: set in times of asynchronous agents and of agents of other CTAs: no barrier alone orders their accesses
    ASYNCHRONOUS = 1 << 23
    #: times beyond which shadows are cleared at a barrier of all warps, and checking ends
    LATE = 1 << 22
    LAST = (1 << 23) - 16
    EVER = (1 << 24) - 1
    #: of a site: checked; strong; acquires; releases; scope is the own CTA only, or the own cluster of several CTAs
    CHECKED = 1
    IS_STRONG = 2
    ACQUIRES = 4
    RELEASES = 8
    NARROW = 32
    IN_CLUSTER = 256
    #: reads through a texture or surface, which need not see stores of the same launch
    IMAGE = 512
    #: reads shared memory by the async proxy
    ASYNC_PROXY = 64
    #: accesses to global memory are checked against those of other CTAs, and against those of other warps
    AMONG = 16
    WITHIN = 128
    GLOBAL = AMONG | WITHIN
    ALL = (1 << 16) - 1
    #: they are checked against those of other CTAs by words (``Word``), not lines
    WORDS = 1 << 13
    #: and some accesses to the object are of one byte or two
    OF_BYTES = 1 << 10
    OF_HALVES = 1 << 11
    #: offset in ``Context.SCRATCH`` of the addresses of up to 32 pieces of 16 bytes
    PLACES = 7168
    MOST_SITES = 1 << 18
    #: in clusters, where the details of an epoch have the CTA of the access from bit 28 on: its rank xor that of the memory
    MOST_SITES_IN_CLUSTER = 1 << 14
    BEHIND = (1 << 28) - 1
    #: of a finding (``RaceRow``)
    COLUMNS = 7
    #: of accesses to global memory in clusters, instead of a CTA: its cluster << RANK_BITS | its rank
    RANK_BITS = 4
    RANK_PLACE = 28
    MOST_FOUND = 256
    RAW, WAR, WAW = 1, 2, 3
    #: or-ed to the kind: the memory is global; the last accesses of a CTA to the line were to other bytes; both accesses are of one
    #: CTA
    FAR = 4
    NEAR_BY = 8
    OF_ONE = 32
    #: or-ed to the kind: the accesses are ordered, but the later one is through a texture or surface, or by the async proxy without a
    #: proxy fence after the earlier one
    UNFENCED = 16


class RaceClock(Record):
    """A vector clock."""

    TIMES = Array32(0)


class RaceMbarrier(Record):
    """An mbarrier: the clock of its phase, then that of the completed phases."""

    ADDRESS = U64(0)
    ARRIVING = Array32(64)


class RaceWarp(Record):
    """Clock and epochs of a warp."""

    EPOCH = U64(0)  # of its accesses: time << 8 | agent
    BASE = U64(8)  # accesses with epochs below this one happened before, unless they are asynchronous
    FENCED = U64(16)  # whether it has executed a fence (1), and one whose scope is the cluster or more (2)
    READ = U64(24)  # whether it has read a value that others may have released
    COPIES = U64(32)  # time of the open group of copies; 0: it has no copies
    GROUPS = U64(40)  # groups committed
    PRODUCTS = U64(48)  # time of the open group of ``wgmma``; 0: it has none
    RECORD: Pointer[Race] = Pointer(56)
    MASK = U64(64)  # bits of an epoch that identify the agent
    TURN = U64(72)  # rank xor that of the CTA whose shared memory is accessed
    RING = Array64(80)  # times of the commits of the last groups of copies
    PRODUCTS_RING = Array64(304)  # and groups of ``wgmma``
    RING_SIZE = 28
    KNOWN = Array32(528)  # cache of epochs known to have happened before, by a few bits of their agents
    # bulk copies that read shared memory, by groups: time of the open group (0: it has no copies), groups committed, and for each
    # of the last groups the latest time of all groups up to it
    BULK = U64(592)
    BULK_GROUPS = U64(600)
    BULK_RING = Array64(608)
    BULK_AGENT = U64(832)  # 0: it has issued none
    CLOCK = Array32(896)  # its clock, then the clock at the last fence


class Accessors(Record):
    """The agents that access words of global memory: the allocation of ``Accessor`` rows, which have no order. The rows of a launch
    follow those of earlier launches, so that nothing has to be cleared."""

    NEXT = U64(0)  # the first free number; a host thread reserves ``SOME`` at once
    SOME = 256
    CELLS = U64(8)  # number of cells of shared words in use
    ROWS = 16


class Accessor(Record):
    """A warp, or an asynchronous copy, at one time of its clock."""

    CTA = U32(0)  # number of its CTA or cluster, counted over all launches
    EPOCH = U32(4)
    BYTES = 8


class Word(Record):
    """The accesses to a word of global memory, where CTAs cannot wait for one another. A word has four bytes, or two or one if the
    launch has narrower accesses (``Context.RACE_UNIT``), and is accessed as a whole. While only one CTA has accessed the word: its
    last store and its last load, each as the details of the epoch, from bit 32 on the number of the accessor (``Accessors``), and
    flags."""

    STORED = U64(0)
    LOADED = U64(8)
    BYTES = 16
    BEHIND = (1 << 32) - 1
    NUMBERS = (1 << 27) - 1
    #: log2 of BYTES
    POWER = 4
    # flags of STORED: this word and the following ones under the same lock are locked (the sign); several CTAs have accessed the word,
    # and the lower half is the number of its cell; the window of the CTA has an entry for the word, too; there was no store; the store
    # was atomic among all CTAs, or strong
    LOCKED = -(1 << 63)
    UNLOCKED = (1 << 63) - 1
    SHARED = 1 << 62
    WINDOWED = 1 << 61
    NONE = 1 << 60
    ATOMIC = 1 << 59
    # of LOADED: there was no load (the sign); from this bit on, the bytes that held several values
    NOTHING = -(1 << 63)
    DIFFERS = 59
    #: the number of the accessor with all flags but LOCKED
    FLAGGED = (1 << 31) - 1
    #: bytes of the records of words under one lock, and their number
    LOCKS = 64
    TOGETHER = 4
    #: cells of words that several CTAs access
    MOST_SHARED = 1 << 22


class Batches(Record):
    """The ``Batch`` rows of a launch, numbered from 1 in the order of the accesses. A batch has the words that the lanes of one
    instruction accessed at once."""

    NEXT = U64(0)  # the first free number
    NUMBERED = U64(8)  # the first number that is not in ``Context.RACE_NUMBERS``
    LOWEST = U64(16)  # the first and the last accessed word
    HIGHEST = U64(24)
    ACCESSES = U64(32)  # checked accesses by warps
    # the value in ``Context.RACE_NUMBERS`` of words that are in no batch (any more): APART | the number of the launch among all that
    # used this memory
    LEFT = U64(40)
    APART = 1 << 31
    WORDS = 64  # of the instruction that runs, as those of a batch
    # the last batch in each slot, by a hash of first words; may be one of an earlier launch
    LAST = Array32(64 + 4 * 32)
    SLOTS = 1 << 12
    #: size of all numbers
    MOST = 1 << 22
    # by batch: the index in global memory of the first word of each lane; rows; and 16 bits per lane, one for each byte that held
    # several values
    PLACES = LAST + 4 * SLOTS
    PLACES_BYTES = 4 * 32
    ROWS = PLACES + MOST * PLACES_BYTES
    DIFFERS = ROWS + MOST * 32
    DIFFERS_BYTES = 2 * 32
    BYTES = DIFFERS + MOST * DIFFERS_BYTES
    #: of the bytes of bits of words: those of a block lie together, of which each 1 << TURN are at a place that the block decides
    BLOCK = 12
    TURN = 6
    TURNS = 63


class Batch(Record):
    """A batch of words: their last store and their last load (0: none), as in ``Word`` but without lanes and flags. Where CTAs may
    wait for one another, it has segments instead of accessors."""

    STORED = U64(0)
    LOADED = U64(8)
    MASK = U32(16)  # the lanes that accessed the words, COUNT words each (at most 8, or 16 of adjacent lanes)
    COUNT = U8(20)
    LEFT = U8(21)  # whether any word has left the batch
    DIFFERING = U8(22)  # whether the bytes that held several values are recorded
    ATOMIC = U8(23)  # whether the store was atomic among all CTAs
    BEFORE = U32(24)  # the previous batch in the same slot; or a higher number
    BYTES = 32
    #: fewest lanes of a batch
    LEAST = 8
    #: most words of a lane whose bits are in one byte
    WIDEST = 8
    #: number of batches of a slot that a lookup visits
    NEAR = 8


class Line(Record):
    """A cell: the accesses to 64 bytes of global memory, or to a word that several CTAs access, in pairs of entries
    (``LineEntry``): one of stores and one of loads. The first pair is in the cell, which suffices for a line that one warp
    accesses; further pairs are in its room (``LineRoom``)."""

    LAUNCH = U32(0)  # ``RACE_FIRST`` of the launch
    OWNER = U32(4)  # the only CTA that has accessed the line, or SHARED; of a word the number of its line
    DIFFERS = U64(8)  # bytes that held several values
    LOCK = 16  # a byte: whether the lock is held
    FULL = U8(17)  # whether its room is in use
    PAIR = 18
    CELL = 64
    BITS = 6
    BYTES = 1 << BITS
    SHARED = (1 << 32) - 1


class LineRoom(Record):
    """The room of a line or of a shared word."""

    STORED = U64(0)  # bytes to which any CTA stored
    # the CTA from whose window the first pair was copied; 0: none, or the pair is still in the window
    KEPT_OF = U32(8)
    SUSPECT = U8(12)  # whether CTAs may have accessed the same bytes of the line
    KEPT = 16
    VALUES = 64  # in windows, the bytes that the CTA stored last; else the memory's content when the pair was saved
    # ``RACE_FIRST`` of the launch << 32 | the highest number of a CTA in the entries of stores, and in those of loads, once all are in
    # use: CTAs with higher numbers do not change the entries
    STORERS = U64(VALUES + Line.BYTES)
    LOADERS = U64(STORERS + 8)
    MORE = LOADERS + 8  # further pairs
    PAIRS = 4
    BYTES = MORE + (PAIRS - 1) * 2 * 23 + 6


class LineEntry(Record):
    """Accesses to a line by one agent, or by one CTA."""

    # 0: none; the number of a CTA, or of a segment; in windows, and while only one CTA has accessed the line, an epoch
    WHO = U32(0)
    BY = U32(4)  # the details of the last access's epoch
    MASK = U64(8)  # bytes accessed
    # extent of the last access in the line: its first byte, log2 of the bytes of a lane (``Line.BITS``: all are of one lane), and all
    # its bytes − 1
    AT = U16(16)
    STRONG = U8(18)  # 1 strong, 4 among the CTAs of a cluster too, 2 among all
    EPOCH = U32(19)  # of the last access
    BYTES = 23
    POWER = Line.BITS
    LENGTH = Line.BITS + 3


class Window(Record):
    """A cache of a CTA, or of a cluster (at its first CTA): cells for the lines of global memory that it accessed last, or for words
    where the launch checks words, and their rooms. The tag of a cell is the number of the CTA or cluster << 32 | whether the cell is
    a word << 31 | the number of the line or word >> 11, as the number of the cell is the rest: so no two lines, and no two words of a
    byte within 4 TiB, have one tag."""

    LINES_BITS = 11
    LINES = 1 << LINES_BITS
    TAGS = Array64(LINES * Line.CELL)
    ROOMS = TAGS + LINES * 8
    BYTES = ROOMS + LINES * LineRoom.BYTES


class LineAccess(Record):
    """The access of the running warp to global memory, at ``Context.SCRATCH`` + PLACE: of the instruction, and of one line."""

    CTA: Pointer[Cta] = Pointer(0)
    RECORD = U64(8)  # host address of the ``Race`` record of the CTA, or of the cluster's first CTA; or 0
    NUMBER = U64(16)  # of the CTA or cluster, counted over all launches
    EPOCH = U64(24)  # in clusters as if the memory were that of the first CTA
    FLAGS = U64(32)  # of the site
    STRONG = U64(40)  # as ``LineEntry.STRONG``
    STORES = U64(48)  # 4, or 0: it loads
    # host address of the stored values, lane after lane, or 0; that of the value for the line's first byte (up to 63 bytes before and
    # after the values are readable); bytes of a lane
    VALUES = U64(56)
    IMAGE = U64(64)
    SIZE = U64(72)
    INFO = U64(
        80
    )  # the details of the epoch: (in clusters, rank << 28 |) site << 14 | warp << 9 | the first lane
    START = U64(88)  # device address of the first byte, and the bytes of the line as a mask
    MASK = U64(96)
    SHAPE = U64(104)  # as ``LineEntry.AT``
    RANK = U64(112)  # of the CTA in its cluster
    ACCESSOR = U64(120)  # its number among ``Accessors``
    BUFFER = 128  # of the bytes of a line
    PAIR = 256  # two entries of a line
    BEFORE = U64(304)  # an accessor whose accesses happened before this one; or 0
    UNIT = U64(312)  # log2 of the bytes of a line, or of a word if words are checked
    PLACE = 7424


class Segment(Record):
    """Accesses to global memory by one agent of a CTA between two releases. Numbers begin at 1."""

    CTA = U32(0)  # in clusters its cluster << ``Race.RANK_BITS`` | its rank
    EPOCH = U32(4)
    RELEASED = U32(8)  # the first release to other CTAs that covers it; 0: there was none
    NEXT = U32(12)  # the next one of the agent
    BYTES = 16
    MOST = 1 << 22


class RaceFindings(Record):
    """The detected races; ``COUNT`` ``RaceRow`` records follow."""

    COUNT = U64(0)
    BYTES = 8


class RaceRow(Record):
    """A detected race: among all with its sites and kind, the one of the first CTAs."""

    KEY = U64(0)  # kind and sites
    CTA = U64(8)
    BEFORE = U64(16)  # the details of both epochs
    AFTER = U64(24)
    PLACE = U64(32)  # address (in clusters, from bit 32 on, 1 + the CTA that has it)
    COUNT = U64(40)
    OTHER = U64(48)  # CTA of the later access
    BYTES = 56


class Segments(Record):
    """Of a CTA: by agent the first segment that is not released yet (0: none) and the last one."""

    LISTS = Array32(0)
    # whether a fence precedes no strong write yet; and by warp, the epoch of the fence
    PENDING = U32(128 * 8)
    FENCES = Array32(PENDING + 4)
    # by warp, the number of releases at its last strong read, and the epoch of that read
    READS = Array32(FENCES + 128)
    READ_AT = Array32(READS + 128)
    BYTES = READ_AT + 128 + 60
