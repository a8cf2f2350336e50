"""Shared base of the functions for records of values: rows, which a record buffers until it has ``BATCHES`` of them, as LLVM IR."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....simt.value_records import BATCHES, DISTINCT_SLOTS, HASH_FACTORS, ValueKind
from ...ir.access_records import Values
from ...ir.emitter import Emitter, Phi
from ...ir.operands import LANES, Ref, count_of, lanes_of, vector_of

__all__ = ["V1", "V32", "V64", "Rows"]

V64, V32, V1 = lanes_of("i64"), lanes_of("i32"), lanes_of("i1")


class Rows:
    """A function on the rows of a record of values of one kind; lanes are words of 32 or 64 bits. ``wide``: the host has AVX-512."""

    def __init__(self, name: str, kind: ValueKind, wide: bool) -> None:
        self.name = name
        self.kind = kind
        self.wide = wide
        self.to = Emitter()
        self.scalar = f"i{kind.word}"
        self.word = lanes_of(self.scalar)
        self.raw = lanes_of(f"i{kind.bits}")
        self.bytes = kind.word // 8
        #: offset of the values of rows in a record
        self.buffer = Values.TABLE + DISTINCT_SLOTS * self.bytes
        self.record = Ref("ptr", "%record")

    def text(self) -> str:
        """The function."""
        raise NotImplementedError

    def signed(self, number: int) -> int:
        """Return a bit pattern as signed number, as LLVM prints it."""
        width = self.kind.word
        return number - (1 << width) if number >> (width - 1) else number

    def popcount(self, tests: Ref) -> Ref:
        """Count the lanes for which a test holds, as i64."""
        bits = self.to.bits(tests) if tests.type == V1 else tests
        return self.to.zext(self.to.intrinsic("ctpop.i32", "i32", bits), "i64")

    def first(self, lanes: Ref) -> Ref:
        """The lowest of some lanes."""
        return self.to.intrinsic(f"cttz.{lanes.type}", lanes.type, lanes, Ref("i1", "true"))

    def pack(self, words: Ref, some: Ref, place: Ref, number: Ref, room: str) -> Ref:
        """Put some elements of a vector, by their bits, behind ``number`` others; returns how many these are then. Registers are
        stored whole; where they cannot be packed, they go through ``room``."""
        to, length, bytes = self.to, count_of(words.type), self.bytes
        if self.wide:
            # pieces of exactly one register: LLVM 22 packs longer ones by way of stores that it takes to be aligned
            count = 64 // bytes
            piece = vector_of(count, self.scalar)
            for start in range(0, length, count):
                own = to.trunc(to.lshr(some, start), f"i{count}") if count < length else some
                tests = to.bitcast(own, vector_of(count, "i1"))
                part = to.pick(words, range(start, start + count))
                name = f"experimental.vector.compress.v{count}{self.scalar}"
                packed = to.intrinsic(name, piece, part, tests, Ref(piece, "poison"))
                to.store(packed, to.element(place, self.scalar, number), bytes)
                number = to.add(number, self.popcount(to.zext(own, "i32")))
            return number
        to.store(words, room, 64)
        some = to.zext(some, "i32") if some.type != "i32" else some
        before, head, one, done = to.block, *(to.label(hint) for hint in ("pack", "pack.one", "packed"))
        to.enter(head)
        rest, now = to.phi("i32", (some, before)), to.phi("i64", (number, before))
        to.branch(to.icmp("eq", rest, 0), done, one)
        to.start(one)
        word = to.load(self.scalar, to.element(room, self.scalar, self.first(rest)))
        to.store(word, to.element(place, self.scalar, now))
        rest.come(to.and_(rest, to.sub(rest, 1)))
        now.come(to.add(now, 1))
        to.jump(head)
        to.start(done)
        return now

    def highest(self, a: Ref, b: Ref) -> Ref:
        """The higher ones of two vectors, unsigned."""
        return self.to.intrinsic(f"umax.v{LANES}{self.scalar}", self.word, a, b)

    def lowest(self, a: Ref, b: Ref) -> Ref:
        """The lower ones of two vectors, unsigned."""
        return self.to.intrinsic(f"umin.v{LANES}{self.scalar}", self.word, a, b)

    def widened(self, words: Ref) -> Ref:
        """Extend words to 64 bits."""
        return self.to.zext(words, "i64") if self.scalar == "i32" else words

    def narrow(self, number: Ref) -> Ref:
        """Truncate a number of 64 bits to a word."""
        return self.to.trunc(number, "i32") if self.scalar == "i32" else number

    def gather(self, base: Ref, places: Ref, on: Ref, type: str) -> Ref:
        """Gather elements of an array of ``type`` by index; zero where ``on`` does not hold."""
        to, element = self.to, type[len(f"<{LANES} x ") : -1]
        pointers = to.ref(f"<{LANES} x ptr>", f"getelementptr {element}, ptr {base}, {places.type} {places}")
        return self.gathered(pointers, on, type)

    def gathered(self, pointers: Ref, on: Ref, type: str) -> Ref:
        """Gather from pointers of the lanes; zero where ``on`` does not hold."""
        to, element = self.to, type[len(f"<{LANES} x ") : -1]
        name = f"llvm.masked.gather.v{LANES}{element}.v{LANES}p0"
        to.needs[name] = f"declare {type} @{name}({pointers.type}, {V1}, {type})"
        given = f"{pointers.type} align {int(element[1:]) // 8} {pointers}, {V1} {on}, {type} zeroinitializer"
        return to.ref(type, f"call {type} @{name}({given})")

    def magnitude(self, value: Ref) -> Ref:
        """Doubles without their sign."""
        suffix = "f64" if value.type == "double" else f"v{LANES}f64"
        return self.to.intrinsic(f"fabs.{suffix}", value.type, value)

    def as_doubles(self, value: Ref) -> Ref:
        """Words that are floats of 32 or 64 bits, as doubles."""
        to = self.to
        return to.raw(value, "double") if self.kind.bits == 64 else to.fpext(to.raw(value, "float"), "double")

    # -- rows ------------------------------------------------------------------------------------------------------------

    def values_of(self, row: Ref) -> Ref:
        """The values of a row."""
        to = self.to
        place = to.add(to.mul(row, LANES * self.bytes), self.buffer)
        return to.load(self.word, to.place(self.record, place), 64)

    def lanes_in(self, row: Ref) -> Ref:
        """The lanes of a row that have values."""
        to = self.to
        return to.load("i32", to.place(self.record, to.add(to.shl(row, 2), Values.LANES)))

    def indices_of(self, row: Ref) -> Ref:
        """Which elements of the object the lanes of a row accessed."""
        to = self.to
        return to.load(V32, to.place(self.record, to.add(to.shl(row, 7), Values.INDICES)), 64)

    @contextmanager
    def each_row(self, rows: Ref, hint: str) -> Iterator[Phi]:
        """The code written inside runs for each row, at least once; it must begin with its other phis."""
        to = self.to
        before, head, done = to.block, to.label(hint), to.label(f"{hint}.done")
        to.enter(head)
        row = to.phi("i64", (0, before))
        yield row
        following = to.add(row, 1)
        row.come(following)
        to.branch(to.icmp("uge", following, rows), done, head)
        to.start(done)

    def hashed(self, values: Ref) -> Ref:
        """Their hashes (``simt.value_records.hashed``)."""
        to, width = self.to, self.kind.word
        for factor in (*HASH_FACTORS[width], None):
            values = to.xor(values, to.lshr(values, width // 2))
            if factor is not None:
                values = to.mul(values, self.signed(factor))
        return values


assert BATCHES * LANES * 4 == Values.TABLE - Values.INDICES
