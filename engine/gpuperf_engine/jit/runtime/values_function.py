"""Runtime functions that record what accesses carry, as LLVM IR: one for each type of the elements, called beside the access.

``values_<type>(context, cta, slot, mask, addresses, values, how)`` adds one element of the lanes in ``mask`` to the records of the
objects that they access (``access_records.Values``). What is kept is defined by ``simt.value_records``; here it is computed for all
lanes at once. ``how``: space (0 the arena, 1 shared, 2 local, 3 generic), + 4 for a store, which is recorded before it is made.
"""

from __future__ import annotations

from ...simt.value_records import DISTINCT_SLOTS, HASH_FACTORS, LINE_TRIAL, TOLERANCE, TOP, value_kind
from ..ir.abi import Context
from ..ir.access_records import ValueRow, Values
from ..ir.emitter import LANES, Emitter, Ref, alike, lanes_of, vector_of

__all__ = ["IMPORTS", "PREFIX", "STORES", "values_function"]

PREFIX = "values_of_"
#: functions of ``runtime.values`` that these call
IMPORTS = ("values_record", "values_sample", "most_alike")
_V64, _V1 = lanes_of("i64"), lanes_of("i1")
_COUNTS, _HALF = vector_of(TOP, "i64"), vector_of(16, "i32")
#: added to the space of an access that stores
STORES = 4


def values_function(name: str, wide: bool) -> str:
    """The function of that name. ``wide``: the host has AVX-512."""
    return _Recorder(name, wide).text()


class _Recorder:
    def __init__(self, name: str, wide: bool) -> None:
        self.name = name
        self.wide = wide
        self.type = value_kind(name[len(PREFIX) :])
        self.raw = lanes_of(f"i{self.type.bits}")
        #: lanes are computed with in words of 32 or 64 bits
        self.scalar = "i64" if self.type.bits == 64 else "i32"
        self.word = lanes_of(self.scalar)
        #: whether lines are those of floats
        self.floats = self.type.is_float and self.type.fits
        self.to = Emitter()

    def text(self) -> str:
        to, bits = self.to, self.type.bits
        to.start("entry")
        to.do(*(f"%{name} = alloca {_V64}, align 64" for name in ("area", "different", "counted")))
        raw = Ref(self.raw, "%v")
        self.value = raw if bits >= 32 else to.cast("sext" if self.type.kind == "s" else "zext", raw, "i32")
        self.addresses = Ref(_V64, "%a")
        row = to.place(to.field("%ctx", Context.VALUE_ROWS, "ptr"), to.shl(Ref("i64", "%slot"), 5))
        to.enter("next")
        rest = to.phi("i32", ("%mask", "entry"))
        to.branch(to.icmp("eq", rest, 0), "end", "look")
        to.start("look")
        start = to.field(row, ValueRow.START)
        self.offsets = to.sub(self.addresses, to.splat(start))
        limit = to.splat(to.field(row, ValueRow.LIMIT))
        self.on = to.and_(to.icmp("ult", self.offsets, limit), to.bitcast(rest, _V1))
        self.lanes = to.bits(self.on)
        to.branch(to.icmp("eq", self.lanes, 0), "find", "add")
        to.start("find")
        lane = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {rest}, i1 true)")
        address = to.extract(self.addresses, lane)
        given = (to.number("%ctx"), Ref("i64", "%slot"), address, bits // 8, Ref("i64", "%how"))
        known = to.run("values_record", given)
        left = to.and_(rest, to.sub(rest, 1))
        rest.come(to.select(to.icmp("eq", known, 0), left, rest))
        to.jump("next")
        to.start("add")
        self.record = to.field(row, ValueRow.RECORD, "ptr")
        self._count()
        self._silent()
        self._line()
        self._top()
        to.start("done")
        rest.come(to.and_(rest, to.not_(self.lanes)))
        to.jump("next")
        to.start("end")
        to.do("ret void")
        head = f"void @{self.name}(ptr %ctx, i64 %slot, i32 %mask, {_V64} %a, {self.raw} %v, i64 %how)"
        return self._declarations() + to.function(head)

    def _declarations(self) -> str:
        raw, word = f"v{LANES}i{self.type.bits}", f"v{LANES}{self.scalar}"
        pointers, flags = lanes_of("ptr"), _V1
        found = [
            "declare i32 @llvm.cttz.i32(i32, i1)",
            "declare i32 @llvm.ctlz.i32(i32, i1)",
            "declare i32 @llvm.ctpop.i32(i32)",
            f"declare {self.word} @llvm.umax.{word}({self.word}, {self.word})",
            f"declare {_COUNTS} @llvm.usub.sat.v{TOP}i64({_COUNTS}, {_COUNTS})",
            f"declare {lanes_of('double')} @llvm.fabs.v{LANES}f64({lanes_of('double')})",
        ]
        gathered = dict.fromkeys(((raw, self.raw), (word, self.word)))
        found += [
            f"declare {kind} @llvm.masked.gather.{name}.v{LANES}p0({pointers}, {flags}, {kind})"
            for name, kind in gathered
        ]
        if self.wide:
            found.append(f"declare {_HALF} @llvm.x86.avx512.conflict.d.512({_HALF})")
        numbers = {"values_record": 5, "values_sample": 4, "most_alike": 2}
        found += [f"declare i64 @{name}({', '.join(['i64'] * count)})" for name, count in numbers.items()]
        found += [
            f"declare i64 @llvm.vector.reduce.umin.v{count}i64(<{count} x i64>)" for count in (TOP, LANES)
        ]
        return "\n".join([*found, ""])

    def _wide(self, words: Ref) -> Ref:
        """Words as numbers of 64 bits."""
        return self.to.zext(words, "i64") if self.scalar == "i32" else words

    def _gather(self, base: Ref, offsets: Ref, on: Ref, type: str) -> Ref:
        """Elements at byte offsets; zero where ``on`` does not hold."""
        to = self.to
        pointers = to.ref(lanes_of("ptr"), f"getelementptr i8, ptr {base}, {offsets.type} {offsets}")
        name = f"llvm.masked.gather.v{LANES}{type[len('<32 x ') : -1]}.v{LANES}p0"
        align = max(1, int(type[len("<32 x i") : -1]) // 8)
        return to.ref(
            type,
            f"call {type} @{name}({pointers.type} align {align} {pointers}, {_V1} {on}, {type} zeroinitializer)",
        )

    def _popcount(self, tests: Ref) -> Ref:
        """How many of the lanes a test holds for, as i64."""
        bits = self.to.bits(tests) if tests.type == _V1 else tests
        return self.to.zext(self.to.ref("i32", f"call i32 @llvm.ctpop.i32(i32 {bits})"), "i64")

    # -- sums and bounds -----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        to, type = self.to, self.type
        to.bump(self.record, Values.COUNT, self._popcount(self.lanes))
        sign = 1 << (type.bits - 1)
        numbers = self.on
        if type.is_float:
            self.magnitude = to.and_(self.value, sign - 1)
            ordered = to.icmp("ule", self.magnitude, type.infinity)
            numbers = to.and_(self.on, ordered)
            to.bump(self.record, Values.NANS, self._popcount(to.and_(self.on, to.not_(ordered))))
            zero = to.icmp("eq", self.magnitude, 0)
            negative = to.icmp("ne", to.and_(self.value, self._signed(sign)), 0)
            whole = (1 << type.bits) - 1
            flipped = to.xor(self.value, self._signed(whole))
            key = to.select(negative, flipped, to.or_(self.value, self._signed(sign)))
            self._raise(Values.ORS, to.select(numbers, self.value, 0), "or")
            to.bump(self.record, Values.NEGATIVE_ZEROS, self._popcount(to.all((self.on, zero, negative))))
            nonzero = to.and_(numbers, to.not_(zero))
            self._raise(Values.TINY, to.select(nonzero, to.xor(self.magnitude, -1), 0))
        else:
            zero = to.icmp("eq", self.value, 0)
            wide = 1 << (63 if self.scalar == "i64" else 31)
            key = to.xor(self.value, self._signed(wide)) if type.kind == "s" else self.value
        to.bump(self.record, Values.ZEROS, self._popcount(to.and_(self.on, zero)))
        self._raise(Values.MAXIMUM, to.select(numbers, key, 0))
        self._raise(Values.MINIMUM, to.select(numbers, to.xor(key, -1), 0))

    def _signed(self, number: int) -> int:
        """A pattern of a word as LLVM reads it."""
        width = 64 if self.scalar == "i64" else 32
        return number - (1 << width) if number >> (width - 1) else number

    def _raise(self, offset: int, value: Ref, how: str = "max") -> None:
        """Take the lanes' values into an accumulator for each lane; 0 changes none."""
        to = self.to
        cell = to.place(self.record, offset)
        before = to.load(self.word, cell, 64)
        if how == "or":
            after = to.or_(before, value)
        else:
            name = f"llvm.umax.v{LANES}{self.scalar}"
            after = to.ref(self.word, f"call {self.word} @{name}({self.word} {before}, {self.word} {value})")
        to.store(after, cell, 64)

    def _silent(self) -> None:
        """Stores of the bits that are there."""
        to = self.to
        to.branch(to.icmp("eq", to.field(self.record, Values.COMPARES), 0), "compared", "compare")
        to.start("compare")
        held = self._gather(to.pointer(to.field("%ctx", Context.ARENA)), self.addresses, self.on, self.raw)
        same = to.and_(to.icmp("eq", held, "%v"), self.on)
        to.branch(to.icmp("eq", to.field(self.record, Values.TRACKED), 0), "written", "shadow")
        before = to.block
        to.start("shadow")
        shadow = self._gather(to.pointer(to.field("%ctx", Context.SHADOW)), self.addresses, self.on, self.raw)
        ones = 0x0101010101010101 % (1 << self.type.bits)
        seen = to.and_(same, to.icmp("eq", shadow, ones))
        to.enter("written")
        silent = to.phi(_V1, (same, before), (seen, "shadow"))
        to.bump(self.record, Values.SILENT, self._popcount(silent))
        to.enter("compared")

    # -- a line through the values ---------------------------------------------------------------------------------------

    def _line(self) -> None:
        """Fits to the line through the first access and the first one at another index; of halves it is one through their bits."""
        to = self.to
        shift = (self.type.bits // 8).bit_length() - 1
        wide = to.lshr(self.offsets, shift)
        index = wide if self.scalar == "i64" and not self.floats else to.trunc(wide, "i32")
        state = to.field(self.record, Values.LINE)
        to.branch(to.icmp("uge", state, Values.SLOPED), "sloped", "begin")
        to.start("begin")
        self._begin_line(index, state)
        to.start("sloped")
        to.branch(to.icmp("eq", to.field(self.record, Values.LINE), Values.BROKEN), "fitted", "fit")
        to.start("fit")
        kind = index.type[len("<32 x ") : -1]
        first = to.field(self.record, Values.LINE_INDEX, kind)
        distance = to.sub(index, to.splat(first))
        base = to.splat(to.field(self.record, Values.LINE_BASE, self.scalar))
        if self.floats:
            fits = self._near(distance, base)
        else:
            slope = to.splat(to.field(self.record, Values.LINE_SLOPE, self.scalar))
            fits = to.icmp("eq", to.add(base, to.mul(slope, distance)), self.value)
        cell = to.place(self.record, Values.FITS)
        together = to.add(to.load("i64", cell), self._popcount(to.and_(self.on, fits)))
        to.store(together, cell)
        count = to.field(self.record, Values.COUNT)
        vain = to.and_(to.icmp("uge", count, LINE_TRIAL), to.icmp("ult", to.shl(together, 1), count))
        to.branch(vain, "abandon", "fitted")
        to.start("abandon")
        to.put("i64", Values.BROKEN, to.place(self.record, Values.LINE))
        to.enter("fitted")

    def _near(self, distance: Ref, base: Ref) -> Ref:
        """Whether values are those of the line, to their rounding."""
        to, doubles = self.to, lanes_of("double")
        slope = to.splat(to.field(self.record, Values.LINE_SLOPE, "double"))
        origin, value = self._double(base), self._double(self.value)
        along = to.cast("sitofp", distance, "double")
        expected = to.ref(
            doubles, f"fadd {doubles} {origin}, {to.ref(doubles, f'fmul {doubles} {slope}, {along}')}"
        )
        off = self._absolute(to.ref(doubles, f"fsub {doubles} {expected}, {value}"))
        size = to.ref(doubles, f"fadd {doubles} {self._absolute(value)}, {self._absolute(origin)}")
        factor = f"splat (double {TOLERANCE[self.type.bits]!r})"
        allowed = to.ref(doubles, f"fmul {doubles} {size}, {factor}")
        return to.ref(_V1, f"fcmp ole {doubles} {off}, {allowed}")

    def _absolute(self, value: Ref) -> Ref:
        return self.to.ref(value.type, f"call {value.type} @llvm.fabs.v{LANES}f64({value.type} {value})")

    def _double(self, value: Ref) -> Ref:
        """Words that are floats, as doubles."""
        to = self.to
        if self.type.bits == 64:
            return to.bitcast(value, alike(value.type, "double"))
        return to.cast("fpext", to.bitcast(value, alike(value.type, "float")), "double")

    def _begin_line(self, index: Ref, state: Ref) -> None:
        to = self.to
        scalar = index.type[len("<32 x ") : -1]
        to.branch(to.icmp("eq", state, 0), "anchor", "anchored")
        to.start("anchor")
        lane = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {self.lanes}, i1 true)")
        to.store(to.extract(index, lane), to.place(self.record, Values.LINE_INDEX))
        to.store(to.extract(self.value, lane), to.place(self.record, Values.LINE_BASE))
        to.put("i64", Values.ANCHORED, to.place(self.record, Values.LINE))
        to.enter("anchored")
        first = to.field(self.record, Values.LINE_INDEX, scalar)
        elsewhere = to.and_(to.bits(to.icmp("ne", index, to.splat(first))), self.lanes)
        to.branch(to.icmp("eq", elsewhere, 0), "sloped", "slope")
        to.start("slope")
        last = to.sub(Ref("i32", "31"), to.ref("i32", f"call i32 @llvm.ctlz.i32(i32 {elsewhere}, i1 true)"))
        run = to.sub(to.extract(index, last), first)
        base = to.field(self.record, Values.LINE_BASE, self.scalar)
        value = to.extract(self.value, last)
        cell = to.place(self.record, Values.LINE_SLOPE)
        if self.floats:
            rise = to.ref("double", f"fsub double {self._double(value)}, {self._double(base)}")
            slope = to.ref("double", f"fdiv double {rise}, {to.cast('sitofp', run, 'double')}")
            to.store(slope, cell)
            to.put("i64", Values.SLOPED, to.place(self.record, Values.LINE))
        else:
            difference = to.sub(value, base)
            # a quotient of the least number and −1 would trap
            backwards = to.icmp("eq", run, -1)
            by = to.select(backwards, Ref(self.scalar, "1"), run)
            quotient = to.sdiv(difference, by)
            exact = to.icmp("eq", to.mul(quotient, by), difference)
            to.store(to.select(backwards, to.sub(Ref(self.scalar, "0"), difference), quotient), cell)
            broken = to.select(exact, Ref("i64", str(Values.SLOPED)), Values.BROKEN)
            to.store(broken, to.place(self.record, Values.LINE))
        to.jump("sloped")

    # -- most frequent and different values --------------------------------------------------------------------------------

    def _top(self) -> None:
        """Lanes whose value is among the most frequent ones count there; the others are sampled and merged."""
        to = self.to
        counts = to.load(_COUNTS, to.place(self.record, Values.TOP_COUNTS), 64)
        used = to.bits(to.icmp("ne", counts, "zeroinitializer"))
        before = to.block
        to.branch(to.icmp("eq", used, 0), "others", "known")
        to.start("known")
        rest = self.lanes
        for place in range(TOP):
            if place in (1, 4, 8):
                going = to.label("more")
                to.branch(to.icmp("eq", rest, 0), "done", going)
                to.start(going)
            value = to.splat(to.field(self.record, Values.TOP + 8 * place, self.scalar))
            hits = to.and_(to.bits(to.icmp("eq", self.value, value)), rest)
            to.bump(self.record, Values.TOP_COUNTS + 8 * place, self._popcount(hits))
            rest = to.xor(rest, hits)
        last = to.block
        to.branch(to.icmp("eq", rest, 0), "done", "others")
        to.start("others")
        rest = to.phi("i32", (self.lanes, before), (rest, last))
        self._sample(rest)
        self._merge(rest)

    def _sample(self, rest: Ref) -> None:
        """Values whose hash is low enough and not at its first place in the table."""
        to = self.to
        hashed = self.value
        width = 64 if self.scalar == "i64" else 32
        first, second = HASH_FACTORS[width]
        for factor in (first, second, None):
            hashed = to.xor(hashed, to.lshr(hashed, width // 2))
            if factor is not None:
                hashed = to.mul(hashed, self._signed(factor))
        self.hashed = hashed
        highest = to.splat(to.field(self.record, Values.HIGHEST, self.scalar))
        # 0 marks free places: it is the hash of 0 alone, which is known by its count
        low = to.all((to.icmp("ule", hashed, highest), to.icmp("ne", hashed, 0), to.bitcast(rest, _V1)))
        to.branch(to.icmp("eq", to.bits(low), 0), "sampled", "probe")
        to.start("probe")
        table = to.place(self.record, Values.TABLE)
        places = to.shl(self._wide(to.and_(hashed, DISTINCT_SLOTS - 1)), 3)
        held = self._gather(table, places, low, self.word)
        new = to.bits(to.and_(low, to.icmp("ne", held, hashed)))
        to.branch(to.icmp("eq", new, 0), "sampled", "sample")
        to.start("sample")
        to.store(self._wide(hashed), "%area", 64)
        to.run(
            "values_sample",
            (to.number("%ctx"), to.number(self.record), to.zext(new, "i64"), to.number("%area")),
        )
        to.enter("sampled")

    def _merge(self, rest: Ref) -> None:
        to = self.to
        counts = to.load(_COUNTS, to.place(self.record, Values.TOP_COUNTS), 64)
        used = to.bits(to.icmp("ne", counts, "zeroinitializer"))
        together = to.add(self._popcount(rest), self._popcount(to.zext(used, "i32")))
        to.store(self._wide(self.value), "%area", 64)
        full = to.icmp("ugt", together, TOP)
        if self.wide:
            to.branch(to.all((full, to.icmp("eq", rest, -1), self._all_differ())), "fewer", "alike")
            to.start("alike")
        most = to.run("most_alike", (to.number("%area"), to.zext(rest, "i64")))
        to.branch(to.and_(to.icmp("eq", most, 1), full), "fewer", "pairs")
        to.start("fewer")
        self._lose(counts, Ref("i64", "1"))
        to.jump("done")
        to.start("pairs")
        counted = self._pairs(rest)
        less = self._loss(counts, counted)
        kept = self._lose(counts, less)
        self._insert(kept, counted, less)

    def _pairs(self, rest: Ref) -> Ref:
        """How often each of the remaining values stands there, in any order, and 0; the values are at ``%different``."""
        to = self.to
        to.put(_V64, "zeroinitializer", "%counted", 64)
        before = to.block
        to.enter("pair")
        left, place = to.phi("i32", (rest, before)), to.phi("i64", (0, before))
        lane = to.zext(to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)"), "i64")
        wide = to.load("i64", to.place("%area", to.shl(lane, 3)))
        value = to.trunc(wide, "i32") if self.scalar == "i32" else wide
        hits = to.and_(to.bits(to.icmp("eq", self.value, to.splat(value))), left)
        to.store(wide, to.place("%different", to.shl(place, 3)))
        to.store(self._popcount(hits), to.place("%counted", to.shl(place, 3)))
        after = to.xor(left, hits)
        left.come(after)
        place.come(to.add(place, 1))
        to.branch(to.icmp("eq", after, 0), "paired", "pair")
        to.start("paired")
        return to.load(_V64, "%counted", 64)

    def _loss(self, counts: Ref, counted: Ref) -> Ref:
        """The least number that no more than ``TOP`` of all counts exceed: 0, or one of the counts."""
        to = self.to
        to.enter("loss")
        less = to.phi("i64", (0, "paired"))
        above: Ref | None = None
        following: Ref | None = None
        for vector, lanes in ((counts, TOP), (counted, LANES)):
            more = to.icmp("ugt", vector, to.splat(less, lanes))
            many = to.zext(to.bits(more), "i32") if lanes < LANES else to.bits(more)
            number, name = self._popcount(many), f"llvm.vector.reduce.umin.v{lanes}i64"
            least = to.ref("i64", f"call i64 @{name}({vector.type} {to.select(more, vector, -1)})")
            above = number if above is None else to.add(above, number)
            if following is not None:
                least = to.select(to.icmp("ult", least, following), least, following)
            following = least
        assert above is not None and following is not None
        less.come(following)
        to.branch(to.icmp("ule", above, TOP), "lose", "loss")
        to.start("lose")
        return less

    def _insert(self, kept: Ref, counted: Ref, less: Ref) -> None:
        """Put the values that more than what is lost had to free places."""
        to = self.to
        used = to.zext(to.bits(to.icmp("ne", kept, "zeroinitializer")), "i32")
        chosen = to.bits(to.icmp("ugt", counted, to.splat(less)))
        before = to.block
        to.enter("insert")
        free, left = to.phi("i32", (used, before)), to.phi("i32", (chosen, before))
        to.branch(to.icmp("eq", left, 0), "done", "put")
        to.start("put")
        source = to.shl(to.zext(to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)"), "i64"), 3)
        hole = to.not_(free)
        target = to.shl(to.zext(to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {hole}, i1 true)"), "i64"), 3)
        to.store(
            to.load("i64", to.place("%different", source)), to.place(self.record, to.add(target, Values.TOP))
        )
        own = to.sub(to.load("i64", to.place("%counted", source)), less)
        to.store(own, to.place(self.record, to.add(target, Values.TOP_COUNTS)))
        free.come(to.or_(free, to.and_(hole, to.sub(Ref("i32", "0"), hole))))
        left.come(to.and_(left, to.sub(left, 1)))
        to.jump("insert")

    def _all_differ(self) -> Ref:
        """Whether 32 lanes are seen to have as many values: by 32 bits of their hashes."""
        to = self.to
        words = to.trunc(self.hashed, "i32") if self.scalar == "i64" else self.hashed
        low, high = (to.pick(words, range(start, start + 16)) for start in (0, 16))
        name = "llvm.x86.avx512.conflict.d.512"
        below = [to.ref(_HALF, f"call {_HALF} @{name}({_HALF} {part})") for part in (low, high)]
        same = to.icmp("ne", to.or_(*below), "zeroinitializer")
        for lane in range(16):
            same = to.or_(same, to.icmp("eq", high, to.pick(low, [lane] * 16)))
        return to.icmp("eq", to.bits(same), 0)

    def _lose(self, counts: Ref, less: Ref) -> Ref:
        """Take as much from all counts."""
        to = self.to
        name, each = f"llvm.usub.sat.v{TOP}i64", to.splat(less, TOP)
        kept = to.ref(_COUNTS, f"call {_COUNTS} @{name}({_COUNTS} {counts}, {_COUNTS} {each})")
        to.store(kept, to.place(self.record, Values.TOP_COUNTS), 64)
        to.bump(self.record, Values.TOP_ERROR, less)
        return kept
