"""Records of the race detector: what is known of the order of accesses, of warps, CTAs and lines of memory."""

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
    """What is known of the order of accesses of one CTA's memory; see ``jit.runtime.races.clocks``.

    Clocks are numbers of four bytes, by agent: warps, then the ``cp.async`` of each warp, then the copies that tell one mbarrier each,
    or those of a warp that are waited for by groups, and, as one, all other CTAs (the last of their releases that is known), then the
    ``wgmma`` of each warp: 128 of a CTA. In a cluster such 128 follow for each CTA, ``PEER`` bytes from one to the next, by its rank
    xor that of the CTA whose clock it is.
    """

    NOW = U64(0)  # counts what orders anything
    PLANES = U64(8)  # host address of the first of the shadows of shared memory, word for word
    PLANE = U64(16)  # bytes of each
    # how many agents of a CTA there are: its warps, until something is done asynchronously
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
    BULK_AGENTS = U64(
        160
    )  # warps that have an agent for their groups of bulk copies, from the last one of mbarriers on down
    AGAIN = U64(152)  # 1: times have begun anew; 2: and what was noted before is forgotten
    OLDEST = U64(
        168
    )  # accessors of global memory (``Accessors``) below this one are from before times began anew
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
    #: of the agents of mbarriers, how many may be those of bulk copies by groups instead
    MOST_OF_BULK = 15
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
    #: of a site: is checked; is strong; acquires; releases; to threads of its own CTA only, or of its own cluster of several CTAs
    CHECKED = 1
    IS_STRONG = 2
    ACQUIRES = 4
    RELEASES = 8
    NARROW = 32
    IN_CLUSTER = 256
    #: reads through a texture or surface, which stores of the same launch need not reach
    IMAGE = 512
    #: reads shared memory by the async proxy
    ASYNC_PROXY = 64
    #: accesses of global memory are held against those of other CTAs, and against those of other warps
    AMONG = 16
    WITHIN = 128
    GLOBAL = AMONG | WITHIN
    ALL = (1 << 16) - 1
    #: they are held against those of other CTAs word by word (``Word``), not line by line
    WORDS = 1 << 13
    #: and some of the object are to a single byte, or to two
    OF_BYTES = 1 << 10
    OF_HALVES = 1 << 11
    #: in ``Context.SCRATCH``, of the places of up to 32 pieces of 16 bytes
    PLACES = 7168
    MOST_SITES = 1 << 18
    #: in clusters, where what is behind an epoch has the CTA of the access from bit 28 on: its rank xor that of the memory
    MOST_SITES_IN_CLUSTER = 1 << 14
    BEHIND = (1 << 28) - 1
    #: of a finding (``RaceRow``)
    COLUMNS = 7
    #: of accesses of global memory in clusters, instead of a CTA: its cluster << RANK_BITS | its rank
    RANK_BITS = 4
    RANK_PLACE = 28
    MOST_FOUND = 256
    RAW, WAR, WAW = 1, 2, 3
    #: or-ed to the kind where the memory is global, where the last accesses of a CTA to the line were to other bytes, and where both
    #: accesses are those of one CTA
    FAR = 4
    NEAR_BY = 8
    OF_ONE = 32
    #: or-ed to the kind where the accesses are ordered, but the later one is by the async proxy, which no fence lets see the other, or
    #: through a texture or surface
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
    BULK_AGENT = U64(832)  # 0: it has made none
    CLOCK = Array32(896)  # then that of the last fence


class Accessors(Record):
    """Who accessed words of global memory: numbers of ``Accessor`` rows, which are in no order. The first one of a launch is beyond
    all of earlier launches, so that nothing has to be cleared."""

    NEXT = U64(0)  # the first number that is free; host threads take so many at once
    SOME = 256
    CELLS = U64(8)  # how many cells of shared words are in use
    ROWS = 16


class Accessor(Record):
    """A warp, or a copy, between two times."""

    CTA = U32(0)  # the number of its CTA or cluster, of all launches
    EPOCH = U32(4)
    BYTES = 8


class Word(Record):
    """What is known of the accesses to four bytes of global memory that are accessed as a whole, or to two or one if the launch
    looks at narrower accesses (``Context.RACE_UNIT``), where CTAs cannot wait for one another. While one CTA has the word, its
    last store and its last load: what is behind the epoch, and from bit 32 on the number of the accessor (``Accessors``), and
    flags."""

    STORED = U64(0)
    LOADED = U64(8)
    BYTES = 16
    BEHIND = (1 << 32) - 1
    NUMBERS = (1 << 27) - 1
    #: of BYTES, the logarithm
    POWER = 4
    # flags of STORED: a thread looks at the words that are locked together, of which this is the first (the sign); several CTAs have
    # accessed the word, and the lower half is the number of its cell; the window of the CTA knows of it, too; nobody has stored there;
    # the store was atomic among all CTAs, or strong
    LOCKED = -(1 << 63)
    UNLOCKED = (1 << 63) - 1
    SHARED = 1 << 62
    WINDOWED = 1 << 61
    NONE = 1 << 60
    ATOMIC = 1 << 59
    # of LOADED: nobody has loaded it (the sign); from this bit on, the bytes that held several values
    NOTHING = -(1 << 63)
    DIFFERS = 59
    #: the number of the accessor with all flags but LOCKED
    FLAGGED = (1 << 31) - 1
    #: bytes of the records of words that are locked together, and how many these are
    LOCKS = 64
    TOGETHER = 4
    #: cells of words that several CTAs access
    MOST_SHARED = 1 << 22


class Batches(Record):
    """What is known of words that the lanes of one instruction accessed at once, of a launch: ``Batch`` rows, numbered from 1 on in
    the order of the accesses."""

    NEXT = U64(0)  # the first number that is free
    NUMBERED = U64(8)  # the first one that ``Context.RACE_NUMBERS`` does not have
    LOWEST = U64(16)  # the first and the last word that was accessed
    HIGHEST = U64(24)
    ACCESSES = U64(32)  # accesses by warps that were looked at
    # what ``Context.RACE_NUMBERS`` has, of words that are in no batch (any more): APART | the number of the launch, of all that have
    # had this memory
    LEFT = U64(40)
    APART = 1 << 31
    WORDS = 64  # of the instruction that runs, as those of a batch
    # the last batch in each slot, by a hash of first words; or one of an earlier launch
    LAST = Array32(64 + 4 * 32)
    SLOTS = 1 << 12
    #: with all numbers
    MOST = 1 << 22
    # by batch: the numbers, in global memory, of the first word of each lane; rows; and of each lane 16 bits, one for each byte that
    # held several values
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
    """A batch of words: their last store and their last load, as in ``Word``, without lanes and flags; 0: there was none. Where CTAs
    may wait for one another, with numbers of segments instead of accessors."""

    STORED = U64(0)
    LOADED = U64(8)
    MASK = U32(
        16
    )  # the lanes whose words these are, each of COUNT words (at most 8, or 16 of lanes side by side)
    COUNT = U8(20)
    LEFT = U8(21)  # whether any word has left
    DIFFERING = U8(22)  # whether it is noted which bytes held several values
    ATOMIC = U8(23)  # whether the store was atomic among all CTAs
    BEFORE = U32(24)  # the batch before in the same slot; or a higher number
    BYTES = 32
    #: lanes that are worth one
    LEAST = 8
    #: words of a lane whose bits lie in one byte
    WIDEST = 8
    #: batches of a slot that are looked at
    NEAR = 8


class Line(Record):
    """A cell: what is known of the accesses to 64 bytes of global memory, or to a word that several CTAs access, by pairs of entries
    (``LineEntry``): of those who stored and of those who loaded. The first pair is in the cell, so that a line that one warp accesses
    takes no more room; the others are in its room (``LineRoom``), if they are in use."""

    LAUNCH = U32(0)  # ``RACE_FIRST`` of the launch
    OWNER = U32(4)  # who alone has accessed the line, or SHARED; of a word the number of its line
    DIFFERS = U64(8)  # bytes that held several values
    LOCK = 16  # a byte: whether it is held
    FULL = U8(17)  # whether its room is in use
    PAIR = 18
    CELL = 64
    BITS = 6
    BYTES = 1 << BITS
    SHARED = (1 << 32) - 1


class LineRoom(Record):
    """The room of a line or of a shared word."""

    STORED = U64(0)  # bytes to which any CTA stored
    # the CTA to whose window the first pair belongs, as it was; 0: there is none, or it is there
    KEPT_OF = U32(8)
    SUSPECT = U8(12)  # whether several CTAs met
    KEPT = 16
    VALUES = 64  # in windows, what the CTA stored last; else what was there when the pair was kept
    # ``RACE_FIRST`` of the launch << 32 | the highest number of a CTA in the entries of stores, and in those of loads, since all are
    # in use: CTAs with higher ones change nothing there
    STORERS = U64(VALUES + Line.BYTES)
    LOADERS = U64(STORERS + 8)
    MORE = LOADERS + 8  # further pairs
    PAIRS = 4
    BYTES = MORE + (PAIRS - 1) * 2 * 23 + 6


class LineEntry(Record):
    """Accesses of a line by one agent, or by one CTA."""

    # 0: nobody; the number of a CTA; of a segment; in windows, and while one CTA has the line, an epoch
    WHO = U32(0)
    BY = U32(4)  # what is behind the epoch of the last access
    MASK = U64(8)  # bytes accessed
    # where the last access lies in the line: its first byte, the logarithm of the bytes of a lane (``Line.BITS``: all are one lane's),
    # and bytes in all − 1
    AT = U16(16)
    STRONG = U8(18)  # 1 strong, 4 among the CTAs of a cluster too, 2 among all
    EPOCH = U32(19)  # of the last access
    BYTES = 23
    POWER = Line.BITS
    LENGTH = Line.BITS + 3


class Window(Record):
    """Of a CTA, or of a cluster, that is of its first CTA: cells of its own for the lines of global memory that it accessed last, or
    for words where these are looked at, with a tag each, the number of the CTA or cluster << 32 | whether it is a word << 31 | the
    number of the line or word; and their rooms."""

    LINES = 2048
    TAGS = Array64(LINES * Line.CELL)
    ROOMS = TAGS + LINES * 8
    BYTES = ROOMS + LINES * LineRoom.BYTES


class LineAccess(Record):
    """What the running warp does to global memory, at ``Context.SCRATCH`` + PLACE: of the instruction, and of one line."""

    CTA: Pointer[Cta] = Pointer(0)
    RECORD = U64(8)  # host address of the ``Race`` record of the CTA, of clusters that of the first one; or 0
    NUMBER = U64(16)  # of the CTA or cluster, of all launches
    EPOCH = U64(24)  # in clusters as if the memory were that of the first CTA
    FLAGS = U64(32)  # of the site
    STRONG = U64(40)  # as ``LineEntry.STRONG``
    STORES = U64(48)  # 4, or 0: it loads
    # what is stored, lane after lane, or 0, and where it would be stored if the line began there (up to 63 bytes before and behind the
    # values can be read); bytes of a lane
    VALUES = U64(56)
    IMAGE = U64(64)
    SIZE = U64(72)
    INFO = U64(
        80
    )  # what is behind the epoch: (in clusters, rank << 28 |) site << 14 | warp << 9 | the first lane
    START = U64(88)  # device address of the first byte, and the bytes of the line as a mask
    MASK = U64(96)
    SHAPE = U64(104)  # as ``LineEntry.AT``
    RANK = U64(112)  # of the CTA in its cluster
    ACCESSOR = U64(120)  # its number among ``Accessors``
    BUFFER = 128  # of the bytes of a line
    PAIR = 256  # two entries of a line
    BEFORE = U64(304)  # an accessor whose accesses come before this one; or 0
    UNIT = U64(312)  # the logarithm of the bytes of a line, or of a word if words are looked at
    PLACE = 7424


class Segment(Record):
    """Accesses of global memory by one agent of a CTA between two releases. Numbers begin at 1."""

    CTA = U32(0)  # in clusters its cluster << ``Race.RANK_BITS`` | its rank
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
    # whether a fence has not been followed by a strong write yet; and by warp, the epoch of the fence
    PENDING = U32(128 * 8)
    FENCES = Array32(PENDING + 4)
    # by warp, the releases that there were at its last strong read, and the epoch of that
    READS = Array32(FENCES + 128)
    READ_AT = Array32(READS + 128)
    BYTES = READ_AT + 128 + 60
