"""Runtime functions that record the values that accesses transfer, as LLVM IR: three for each type of the elements.

Generated code calls ``values_of_<type>(context, slot, mask, addresses, values, how)`` with the access: it adds one element of the
lanes in ``mask`` to the records of the objects that they access (``access_records.Values``), as a row.
``values_reduced_<type>(context, record)`` adds the rows of a record to its sums, once there are ``BATCHES`` of them, and at the end
of the launch. ``simt.value_records`` defines the sums. ``values_range_<type>(context, address, bytes)`` records consecutive
elements of device memory, for the slot in the context. ``how``: space (0 the arena, 1 shared, 2 local, 3 generic), +
``Values.HELD`` for a store, which is recorded before it executes, + ``Values.STRONG`` if it is strong, ``Values.LOADED`` for a load
that could be removed, and ``Values.FIRST`` and ``Values.FURTHER`` for the parts of words, of which the first ones trace the words.
"""

from __future__ import annotations

from ....simt.value_records import BATCHES, ValueKind, value_kind
from ...ir.abi import Context
from ...ir.access_records import ValueRow, Values
from ...ir.operands import LANES, Ref, lanes_of, numbers
from .lines import Lines
from .rows import V1, V64, Rows
from .sample import Sample
from .spread import Spread
from .stores import Stores
from .sums import Sums
from .tally import Tally
from .top import Top

__all__ = ["IMPORTS", "PREFIX", "RANGE_PREFIX", "values_function"]

PREFIX = "values_of_"
RANGE_PREFIX = "values_range_"
_REDUCED = "values_reduced_"
_LOCATED = "values_located_"
_COMPARED = "values_compared_"
#: functions of ``runtime.values`` that these call
IMPORTS = ("values_record", "values_merge", "values_dead", "values_traced")


def values_function(name: str, wide: bool) -> str:
    """Return the IR of the functions for the type in that name. ``wide``: the host has AVX-512."""
    kind = value_kind(name[len(PREFIX) :])
    parts: list[Rows] = [_Recorded(name, kind, wide), _Located(_LOCATED + kind.name, kind, wide)]
    parts += [_Compared(_COMPARED + kind.name, kind, wide)]
    reduced = _ReducedBytes if kind.bits == 8 else _Reduced
    parts.append(reduced(_REDUCED + kind.name, kind, wide))
    parts += [] if kind.bits == 8 else [Sample(kind, wide)]
    parts.append(_Range(RANGE_PREFIX + kind.name, kind, wide))
    texts = [part.text() for part in parts]
    # several functions may declare one intrinsic
    needs = sorted({line for part in parts for line in part.to.needs.values()})
    return "\n".join([*needs, *_DECLARED, *texts])


_DECLARED = tuple(
    f"declare i64 @{name}({', '.join(['i64'] * count)})"
    for name, count in zip(IMPORTS, (5, 4, 6, 6), strict=True)
)


class _Access(Rows):
    """A function with an access as parameters."""

    def __init__(self, name: str, kind: ValueKind, wide: bool) -> None:
        super().__init__(name, kind, wide)
        self.addresses, self.value, self.mask = Ref(V64, "%a"), Ref(self.raw, "%v"), Ref("i32", "%mask")

    def begin(self) -> None:
        to = self.to
        to.start("entry")
        self.row = to.place(to.field("%ctx", Context.VALUE_ROWS, "ptr"), to.shl(Ref("i64", "%slot"), 5))

    def inside(self) -> tuple[Ref, Ref]:
        """Return offsets into the object of the slot's record, and the lanes that access it."""
        to = self.to
        offsets = to.sub(self.addresses, to.splat(to.field(self.row, ValueRow.START)))
        limit = to.splat(to.field(self.row, ValueRow.LIMIT))
        return offsets, to.bits(to.icmp("ult", offsets, limit))

    def call(self, name: str, mask: Ref) -> None:
        """Call another function with the access of some lanes."""
        given = f"ptr %ctx, i64 %slot, i32 {mask}, {V64} %a, {self.raw} %v, i64 %how"
        self.to.do(f"tail call void @{name}{self.kind.name}({given})")

    def function(self) -> str:
        given = f"ptr %ctx, i64 %slot, i32 %mask, {V64} %a, {self.raw} %v, i64 %how"
        return self.to.function(f"void @{self.name}({given})")


class _Located(_Access):
    """Handles lanes that access other objects than that of the slot's record: object by object; skips lanes that access none."""

    def text(self) -> str:
        to = self.to
        self.begin()
        to.enter("next")
        rest = to.phi("i32", (self.mask, "entry"))
        to.branch(to.icmp("eq", rest, 0), "end", "find")
        to.start("find")
        address = to.extract(self.addresses, self.first(rest))
        size = self.kind.bits // 8
        known = to.run(
            "values_record", (to.number("%ctx"), Ref("i64", "%slot"), address, size, Ref("i64", "%how"))
        )
        to.branch(to.icmp("eq", known, 0), "unknown", "known")
        to.start("known")
        to.store(Ref("ptr", f"@{_REDUCED}{self.kind.name}"), to.place(to.pointer(known), Values.REDUCE))
        lanes = to.and_(self.inside()[1], rest)
        self.call(PREFIX, lanes)
        rest.come(to.xor(rest, lanes))
        to.jump("next")
        to.start("unknown")
        rest.come(to.and_(rest, to.sub(rest, 1)))
        to.jump("next")
        to.start("end")
        to.give()
        return self.function()


class _Appending(_Access):
    """Appends an access to the slot's record, as a row."""

    def append(self, offsets: Ref) -> None:
        """Append a row to the record, and add its rows to the sums when the buffer is full."""
        to, kind = self.to, self.kind
        value = self.value
        if kind.bits < 32:
            value = to.cast("sext" if kind.kind == "s" else "zext", value, "i32")
        rows = to.field(self.record, Values.ROWS)
        place = to.add(to.mul(rows, LANES * self.bytes), self.buffer)
        to.store(value, to.place(self.record, place), 64)
        to.store(self.mask, to.place(self.record, to.add(to.shl(rows, 2), Values.LANES)))
        broken = to.icmp("eq", to.field(self.record, Values.LINE), Values.BROKEN)
        to.branch(broken, "appended", "indices")
        to.start("indices")
        indices = to.trunc(to.lshr(offsets, (kind.bits // 8).bit_length() - 1), "i32")
        to.store(indices, to.place(self.record, to.add(to.shl(rows, 7), Values.INDICES)), 64)
        to.enter("appended")
        more = to.add(rows, 1)
        to.store(more, to.place(self.record, Values.ROWS))
        to.branch(to.icmp("eq", more, BATCHES), "reduce", "end")
        to.start("reduce")
        to.do(f"tail call void @{_REDUCED}{kind.name}(ptr %ctx, ptr {self.record})")
        to.give()


class _Recorded(_Appending):
    """Records an access that needs no comparison, as accesses to shared memory. All calls are tail calls, so that the function
    needs no frame and saves no registers."""

    def text(self) -> str:
        to = self.to
        self.begin()
        offsets, lanes = self.inside()
        to.branch(to.icmp("eq", to.and_(lanes, self.mask), self.mask), "here", "elsewhere")
        to.start("elsewhere")
        self.call(_LOCATED, self.mask)
        to.give()
        to.start("here")
        to.branch(to.icmp("eq", self.mask, 0), "end", "add")
        to.start("add")
        self.record = to.field(self.row, ValueRow.RECORD, "ptr")
        held = to.or_(to.field(self.record, Values.COMPARES), to.field(self.record, Values.TRACES))
        to.branch(to.icmp("eq", held, 0), "append", "compared")
        to.start("compared")
        self.call(_COMPARED, self.mask)
        to.give()
        to.start("append")
        self.append(offsets)
        to.start("end")
        to.give()
        return self.function()


class _Compared(_Appending, Stores):
    """Compares an access with earlier ones, then appends it as a row."""

    def text(self) -> str:
        to = self.to
        self.begin()
        self.on = to.bitcast(self.mask, V1)
        self.record = to.field(self.row, ValueRow.RECORD, "ptr")
        self._compare()
        self.trace(self.addresses, self.mask)
        self.append(to.sub(self.addresses, to.splat(to.field(self.row, ValueRow.START))))
        to.start("end")
        to.give()
        return self.function()

    def _compare(self) -> None:
        """Compare stores with the memory's content, and loads with earlier loads."""
        to = self.to
        compares = to.field(self.record, Values.COMPARES)
        to.branch(to.icmp("eq", compares, 0), "compared", "compare")
        to.start("compare")
        to.branch(to.icmp("eq", compares, Values.HELD), "store", "load")
        to.start("load")
        self.count_reloads(self.addresses, self.value, self.mask)
        to.jump("compared")
        to.start("store")
        self._silent()
        to.enter("compared")

    def _silent(self) -> None:
        """Count stores of values that memory already has."""
        to = self.to
        size = self.kind.bits // 8
        ladder = numbers("i64", range(0, LANES * size, size))
        first = to.extract(self.addresses, 0)
        in_row = to.all((self.on, to.icmp("eq", self.addresses, to.add(to.splat(first), ladder))))
        to.branch(to.icmp("eq", to.bits(in_row), -1), "row", "scattered")
        held, seen = {}, {}
        for way in ("row", "scattered"):
            to.start(way)
            held[way] = to.and_(to.icmp("eq", self._there(Context.ARENA, way), "%v"), self.on)
            before = to.block
            to.branch(to.icmp("eq", to.field(self.record, Values.TRACKED), 0), "written", f"{way}.shadow")
            to.start(f"{way}.shadow")
            ones = 0x0101010101010101 % (1 << self.kind.bits)
            seen[way] = to.and_(held[way], to.icmp("eq", self._there(Context.SHADOW, way), ones))
            to.jump("written")
            assert before == way
        to.start("written")
        ways = [(held[way], way) for way in held] + [(seen[way], f"{way}.shadow") for way in seen]
        to.bump(self.record, Values.SILENT, self.popcount(to.phi(V1, *ways)))

    def _there(self, memory: int, way: str) -> Ref:
        """Load from memory, or from its shadow, at the addresses."""
        to = self.to
        base = to.pointer(to.field("%ctx", memory))
        if way == "row":
            return to.load(self.raw, to.place(base, to.extract(self.addresses, 0)), 1)
        if self.kind.bits >= 32:
            return self.gathered(self.pointers(base, self.addresses), self.on, self.raw)
        # hosts gather words at least; aligned words do not cross pages
        words = self.gathered(self.pointers(base, to.and_(self.addresses, -4)), self.on, lanes_of("i32"))
        down = to.trunc(to.shl(to.and_(self.addresses, 3), 3), "i32")
        return to.trunc(to.lshr(words, down), f"i{self.kind.bits}")


class _Range(Rows):
    """Records consecutive elements of device memory that a bulk copy moves, or combines with those at ``%host``, 32 at a time:
    complete elements whose bytes all have their bit in ``%chosen``, one for each of 16 bytes. They count as read, but by no lane.
    Products read matrices in shared memory in the same way."""

    def text(self) -> str:
        to, size = self.to, self.kind.bits // 8
        to.start("entry")
        whose = to.field("%ctx", Context.VALUE_SLOT)
        slot, how = to.and_(whose, 0xFFFFFFFF), to.lshr(whose, 32)
        start = to.number("%first")
        end = to.add(start, to.number("%bytes"))
        first = to.and_(to.add(start, size - 1), -size)
        host = to.place(Ref("ptr", "%host"), to.sub(first, start))
        whole = to.icmp("ult", first, end)
        count = to.select(whole, to.lshr(to.sub(end, first), size.bit_length() - 1), 0)
        shifts = str(numbers("i64", [number * size % 16 for number in range(LANES)]))
        every = to.splat(Ref("i64", str((1 << size) - 1)))
        bits = to.and_(to.lshr(to.splat(to.number("%chosen")), Ref(V64, shifts)), every)
        moved = to.icmp("eq", bits, every)
        count = to.select(to.icmp("ne", to.bits(moved), 0), count, 0)
        ladder = numbers("i64", range(0, LANES * size, size))
        to.enter("batch")
        done = to.phi("i64", (0, "entry"))
        to.branch(to.icmp("uge", done, count), "end", "some")
        to.start("some")
        rest = to.sub(count, done)
        on = to.and_(to.icmp("ult", Ref(V64, str(numbers("i64", range(LANES)))), to.splat(rest)), moved)
        offset = to.mul(done, size)
        name = f"llvm.masked.load.v{LANES}i{self.kind.bits}.p0"
        to.needs[name] = f"declare {self.raw} @{name}(ptr, {V1}, {self.raw})"
        given = f"ptr align 1 {to.place(host, offset)}, {V1} {on}, {self.raw} zeroinitializer"
        values = to.ref(self.raw, f"call {self.raw} @{name}({given})")
        addresses = to.add(to.splat(to.add(first, offset)), str(ladder))
        given = f"ptr %ctx, i64 {slot}, i32 {to.bits(on)}, {V64} {addresses}, {self.raw} {values}, i64 {how}"
        to.do(f"call void @{PREFIX}{self.kind.name}({given})")
        done.come(to.add(done, LANES))
        to.jump("batch")
        to.start("end")
        to.give(Ref("i32", "0"))
        return to.function(f"i32 @{self.name}(ptr %ctx, ptr %first, ptr %bytes, ptr %host, ptr %chosen)")


class _Reduced(Sums, Lines, Spread, Top):
    """Adds rows to the sums of their record."""

    def text(self) -> str:
        to = self.to
        to.start("entry")
        self.allocate()
        rows = to.field(self.record, Values.ROWS)
        to.put("i64", 0, to.place(self.record, Values.ROWS))
        to.branch(to.icmp("eq", rows, 0), "end", "rows")
        to.start("rows")
        counted = self.sums(rows)
        self.line(rows)
        if self.floats:
            self.spread(rows)
        self.top(rows, counted)
        to.enter("end")
        to.give()
        return to.function(f"void @{self.name}(ptr %ctx, ptr %record)")


class _ReducedBytes(_Reduced, Tally):
    """Counts every value of 8 bits."""

    allocate, top = Tally.allocate, Tally.top
