"""Records of the accesses of a site: counters, the last access, and the values that accesses load and store."""

from __future__ import annotations

from ...memory import store_shadow
from ...simt import value_records
from .records import U32, U64, Array32, Array64, Record

__all__ = [
    "BEYOND_BYTES",
    "SITE_BYTES",
    "SITE_COUNTERS",
    "UNSEEN_BYTES",
    "BeyondRecord",
    "Counter",
    "GlobalShape",
    "SharedShape",
    "SiteCache",
    "StrayAtomic",
    "Target",
    "UnseenRecord",
    "ValueLoad",
    "ValueRow",
    "ValueShape",
    "Values",
]

#: as ``counters.SITE_COLUMNS``, in columns and bytes
SITE_COUNTERS = 15
SITE_BYTES = 8 * SITE_COUNTERS
#: of a site, its first read of memory that no store had written: as below, without the last
UNSEEN_BYTES = 24
#: of a site, accesses that ran past an object: index of the CTA + 1 (0: there are none), warp · 32 + lane, address, bytes past it
BEYOND_BYTES = 32


class UnseenRecord(Record):
    """The read of uninitialised memory of the first thread at a site."""

    CTA = U64(0)  # index + 1; 0: there is none
    THREAD = U64(8)  # warp · 32 + lane
    ADDRESS = U64(16)  # 0: not of global memory
    BYTES = UNSEEN_BYTES


class BeyondRecord(Record):
    """Accesses of a site that ran past an object."""

    CTA = U64(0)  # index + 1 of the first one; 0: there are none
    THREAD = U64(8)  # warp · 32 + lane
    ADDRESS = U64(16)
    EXCESS = U64(24)  # bytes past the object, at most
    BYTES = BEYOND_BYTES


class ValueRow:
    """The record that a slot of ``simt.value_records`` used last; fields of eight bytes."""

    START = 0  # of its object
    LIMIT = 8  # one more than the highest offset at which an element may begin
    RECORD = 16
    FIRST = 24  # of the records of the slot
    BYTES = 32


class ValueShape(Record):
    """The shape of an object of several axes."""

    START = U64(0)
    ROW = U64(8)  # bytes of the last axis
    PLANE = U64(16)  # and of the last two; 0: there are but two
    BYTES = 24


class Values:
    """The values that the accesses of a slot to one object transfer: ``simt.value_records.Carried`` in compiled code."""

    SLOT = 0
    SPACE = 8
    START = 16
    NEXT = 24  # record of the slot
    COUNT = 32
    ZEROS = 40
    NEGATIVE_ZEROS = 48
    NANS = 56
    SILENT = 64
    COMPARES = 72  # HELD: stores are compared with the memory's content; LOADED: loads with earlier loads
    TRACKED = 80  # whether the shadow marks the written bytes
    LINE = 88
    LINE_INDEX = 96
    LINE_BASE = 104
    #: along each axis of the object
    SLOPES = (112, 200, 208)
    FITS = 120
    TOP_ERROR = 128
    LEVEL = 136
    SAMPLED = 144
    HIGHEST = 152  # hash that is sampled
    ROWS = 160  # in use
    REDUCE = 168  # address of the function that adds rows to the sums
    SIZE = 176  # of the record
    MANY = 184  # whether the last chunk had more values than there is room for
    RELOADS = 192
    #: distance from the first access along each axis from which on an access updates the slope (4 bytes each); 1: there is none yet
    FARTHER = (216, 220, 224)
    ROW = 228  # elements of the object's last axis and of its last two (4 bytes each); 0: it has one
    PLANE = 232
    RUN = 236  # elements in which integers rise by the slope along the only axis (4 bytes)
    SEEN = 240  # accesses since the function was fitted
    TRIES = 248  # functions that were discarded
    # of each lane, words; 0 is neutral
    MINIMUM = 256
    MAXIMUM = 512
    ORS = 768
    TINY = 1024
    # of each lane, doubles: sums of the differences from the first value, and of their squares
    DIFFERENCES = 1280
    SQUARES = 1536
    REFERENCE = 1792  # that value
    SPREAD = 1800  # 0: there is none yet; NEAR; WIDE: a difference was more than that value
    #: role of the accesses in dead stores (``simt.dead_stores``): 0: none; READS; OVERWRITES; STORES, which may be overwritten
    TRACES = 1808
    DEAD = 1816  # bytes overwritten unread
    # the slot + 1 that overwrote most of them, if one overwrote the majority, and its lead (Boyer and Moore, 1981)
    OVERWRITER = 1824
    LEAD = 1832
    TOUCHED = 1840  # address of the epoch of the object's last store
    # log2 of the parts of a word, where the slot of its first part checks the whole word for dead stores; the next slots are the
    # other parts
    PARTS = 1848
    # 8 bytes each
    TOP = 1856
    TOP_COUNTS = TOP + 8 * value_records.TOP
    # of each row, lanes that have values (4 bytes), and indices of elements (4 bytes each)
    LANES = TOP_COUNTS + 8 * value_records.TOP
    INDICES = LANES + 4 * value_records.BATCHES
    # DISTINCT_SLOTS words, then those of rows
    TABLE = INDICES + 4 * value_records.BATCHES * 32
    WORDS = value_records.DISTINCT_SLOTS + value_records.BATCHES * 32
    # values of LINE
    ANCHORED = value_records.ANCHORED
    SLOPED = value_records.SLOPED
    BROKEN = value_records.BROKEN
    # values of SPREAD
    NEAR = value_records.NEAR
    WIDE = value_records.WIDE
    TOP_SLOTS = value_records.TOP
    #: of an entry of ``StoreShadow``: first bit of the thread, and how the store covers a word
    THREAD = store_shadow.StoreShadow.THREAD
    SPREADS = 3 << store_shadow.StoreShadow.SPREAD
    BYTES = store_shadow.StoreShadow.BYTES << store_shadow.StoreShadow.SPREAD
    HALVES = store_shadow.StoreShadow.HALVES << store_shadow.StoreShadow.SPREAD
    MIXED = store_shadow.StoreShadow.MIXED << store_shadow.StoreShadow.SPREAD
    #: of COMPARES, and of how functions are called
    HELD = 4
    LOADED = 8
    STRONG = 16  # of HELD
    FIRST = 32  # parts of words
    FURTHER = 64
    # of TRACES
    READS = 1
    OVERWRITES = 2
    STORES = 3
    #: bytes of all records of a launch
    ROOM = 60 << 20


class ValueLoad:
    """The last load of a warp from one object."""

    WARP = 0  # number in the launch + 1
    LANES = 8
    WIDTH = 12  # bytes of an element
    ADDRESSES = 64
    VALUES = 320
    BYTES = 576


class SiteCache(Record):
    """The allocation that a site accessed last; fields of eight bytes."""

    START = U64(0)
    SPAN = U64(8)  # its bytes
    TRACKED = U64(16)  # whether stores must mark its shadow
    BYTES = 32


class SharedShape(Record):
    """The last access of a site to shared memory; the next one has the same wavefronts if its lanes have the same distances."""

    DISTANCES = Array32(0)  # of the lanes, 32 × i32
    MASK = U32(128)
    RESULT = U64(136)  # wavefronts + 64 · ideal
    #: 1 or 2, + 4 · distance of the half warps: consecutive lanes, or one address in each half; 3: any addresses
    KIND = U64(144)


class GlobalShape(Record):
    """The last access of a site to global memory; the words of a load are recorded apart from its sectors and lines."""

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


class Target(Record):
    """A slot of ``simt.atomic_targets``."""

    LANES = U64(0)
    SAVED = U64(8)
    WORD = U64(16)
    BYTES = 32


class StrayAtomic(Record):
    """An atomic of a local variable of several words, at ``Context.SCRATCH`` + PLACE, after a copy of these words."""

    HOST = U64(16)  # of the first word
    PLACE = 8128
