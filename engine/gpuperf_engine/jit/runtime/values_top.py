"""The most frequent and the different values of the rows of a record, as LLVM IR; see ``values_function``.

Rows whose values are all known, or become known in room that is left, are counted by comparisons. Others are counted by buckets of
their hashes: only in buckets of many elements single values are looked for.
"""

from __future__ import annotations

from ...simt.value_records import BATCHES, BUCKETS, HEAVY_SHIFT, TOP
from ..ir.abi import Context
from ..ir.access_records import Values
from ..ir.emitter import Phi
from ..ir.operands import LANES, Ref, count_of, vector_of
from .values_rows import Rows
from .values_sample import SAMPLED

__all__ = ["Top"]

_COUNTS, _NUMBERS = vector_of(TOP, "i64"), vector_of(BUCKETS, "i16")
#: sets of buckets that take turns, so that counting in one need not wait for the count before
_SETS = 4
_MOST = BATCHES * LANES
_HALF = LANES // 2


class Top(Rows):
    """Values that are frequent, and a sample of different ones."""

    def allocate(self) -> None:
        """Room on the stack."""
        to = self.to
        to.do(
            # a row more, as whole halves are stored
            f"%low = alloca [{_MOST + LANES} x {self.scalar}], align 64",
            f"%row_hashes = alloca {self.word}, align 64",
            f"%buckets = alloca [{_SETS} x {_NUMBERS}], align 64",
            f"%row_buckets = alloca <{LANES} x i16>, align 64",
            f"%taken = alloca [{BATCHES} x i32], align 64",
            f"%frequent = alloca [{_MOST} x i64], align 64",
            f"%frequent_counts = alloca [{_MOST} x i64], align 64",
        )

    def top(self, rows: Ref, count: Ref) -> None:
        """Take rows of ``count`` elements into the most frequent values, and those not known into the sample."""
        to = self.to
        # the last chunk had many values: then so may this one, and its buckets tell
        many = to.icmp("ne", to.field(self.record, Values.MANY), 0)
        to.branch(many, "count", "know")
        to.start("count")
        self._count_in_buckets(rows)
        to.branch(to.all((many, self._few_buckets())), "know", "heavy")
        to.start("know")
        self._known(rows)
        to.start("others")
        to.put("i64", 1, to.place(self.record, Values.MANY))
        to.branch(many, "heavy", "count")
        to.start("heavy")
        self._take_heavy(rows, count)
        to.enter("done")

    # -- values that are known -------------------------------------------------------------------------------------------

    def _known(self, rows: Ref) -> None:
        """Count values by comparison, and take new ones in while there is room; else go to ``others``."""
        to = self.to
        self.hits = to.field("%ctx", Context.SCRATCH, "ptr")
        self.known = to.place(self.hits, 8 * TOP)
        counts = to.load(_COUNTS, to.place(self.record, Values.TOP_COUNTS), 64)
        used = self._used(counts)
        some = to.icmp("ne", used, 0)
        tops = to.load(_COUNTS, to.place(self.record, Values.TOP), 64)
        tops = to.trunc(tops, "i32") if self.scalar == "i32" else tops
        zero = Ref("i64", "0")
        first = to.extract(self.values_of(zero), self.first(self.lanes_in(zero)))
        seed = to.select(some, to.extract(tops, 0), first)
        # places without a value have that of the first one, which finds its lanes before them
        to.store(
            to.select(to.icmp("ne", counts, "zeroinitializer"), tops, to.splat(seed, TOP)), self.known, 64
        )
        to.put(_COUNTS, "zeroinitializer", self.hits, 64)
        start, before = to.select(some, used, 1), to.block
        with self.each_row(rows, "know") as row:
            values_used = to.phi("i64", (start, before))
            values, lanes = self.values_of(row), self.lanes_in(row)
            inside = to.block
            to.enter("match")
            rest, now = to.phi("i32", (lanes, inside)), to.phi("i64", (values_used, inside))
            left = self._matched(values, rest)
            to.branch(to.icmp("eq", now, TOP), "others", "learn")
            to.start("learn")
            new = to.extract(values, self.first(left))
            to.store(new, to.element(self.known, self.scalar, now))
            rest.come(left)
            now.come(to.add(now, 1))
            to.jump("match")
            to.start("matched")
            values_used.come(now)
        hits = to.load(_COUNTS, self.hits, 64)
        known = to.load(vector_of(TOP, self.scalar), self.known, 64)
        to.store(self.widened(known), to.place(self.record, Values.TOP), 64)
        to.store(to.add(counts, hits), to.place(self.record, Values.TOP_COUNTS), 64)
        to.put("i64", 0, to.place(self.record, Values.MANY))
        to.branch(to.icmp("eq", used, now), "done", "name")
        to.start("name")
        to.store(self.hashed(known), "%low", 64)
        self._sample(to.element("%low", self.scalar, used), to.sub(now, used))
        to.jump("done")

    def _used(self, counts: Ref) -> Ref:
        """How many of the counts are not 0."""
        to = self.to
        used = to.zext(to.bits(to.icmp("ne", counts, "zeroinitializer")), "i32")
        return self.popcount(used)

    def _matched(self, values: Ref, rest: Ref) -> Ref:
        """Count lanes with known values, and go to ``matched`` once that is done with all; gives those that have others."""
        to = self.to
        left: Ref = rest
        for place in range(TOP):
            if place in (1, 4, 8):
                going = to.label("more")
                to.branch(to.icmp("eq", left, 0), "matched", going)
                to.start(going)
            value = to.splat(to.field(self.known, self.bytes * place, self.scalar))
            hits = to.and_(to.bits(to.icmp("eq", values, value)), left)
            to.bump(self.hits, 8 * place, self.popcount(hits))
            left = to.xor(left, hits)
        new = to.label("new")
        to.branch(to.icmp("eq", left, 0), "matched", new)
        to.start(new)
        return left

    # -- buckets ---------------------------------------------------------------------------------------------------------

    def _count_in_buckets(self, rows: Ref) -> None:
        """Count all elements in buckets of their hashes, and sample them."""
        to = self.to
        for number in range(_SETS):
            to.put(_NUMBERS, "zeroinitializer", to.place("%buckets", number * BUCKETS * 2), 64)
        before = to.block
        with self.each_row(rows, "counting") as row:
            filled = to.phi("i64", (0, before))
            low = self._count_row(self.values_of(row), self.lanes_in(row), filled)
            filled.come(low)
        with to.if_(to.icmp("ne", low, 0), "sample"):
            self._sample(Ref("ptr", "%low"), low)
        total: Ref | None = None
        for number in range(_SETS):
            own = to.load(_NUMBERS, to.place("%buckets", number * BUCKETS * 2), 64)
            total = own if total is None else to.add(total, own)
        assert total is not None
        to.store(total, "%buckets", 64)

    def _few_buckets(self) -> Ref:
        """Whether all elements can have few values."""
        to = self.to
        some = to.bits(to.icmp("ne", to.load(_NUMBERS, "%buckets", 64), "zeroinitializer"))
        number = to.intrinsic(f"ctpop.{some.type}", some.type, some)
        return to.icmp("ule", number, TOP)

    def _count_row(self, values: Ref, lanes: Ref, filled: Ref) -> Ref:
        """Count a row in its buckets, and add to the hashes for the sample; gives how many these are then. Often half warps have one
        value each, or the same ones."""
        to = self.to
        to.branch(to.icmp("eq", lanes, -1), "full", "partial")
        to.start("full")
        halves = to.icmp("eq", values, to.pick(values, [lane & _HALF for lane in range(LANES)]))
        to.branch(to.icmp("eq", to.bits(halves), -1), "pair", "several")
        to.start("several")
        low, high = (to.pick(values, range(start, start + _HALF)) for start in (0, _HALF))
        to.branch(to.icmp("eq", to.bits(to.icmp("eq", low, high)), -1), "half", "each")
        ways: list[tuple[str | int, str]] = []
        for name, count, weight in (("pair", 2, _HALF), ("half", _HALF, 2), ("each", LANES, 1)):
            to.start(name)
            part = values
            if name == "pair":
                part = to.pick(values, [_HALF * (lane == 1) for lane in range(_HALF)])
            elif name == "half":
                part = low
            hashes = self._hash_row(part)
            for lane in range(count):
                self._count_one(Ref("i64", str(lane)), lane % _SETS, weight)
            chosen = Ref("i32", str((1 << count) - 1 if count < LANES else -1))
            ways.append((self._add_low(filled, hashes, chosen), to.block))
            to.jump("counted")
        to.start("partial")
        hashes = self._hash_row(values)
        to.enter("rest")
        left = to.phi("i32", (lanes, "partial"))
        self._count_one(to.zext(self.first(left), "i64"), 0, 1)
        after = to.and_(left, to.sub(left, 1))
        left.come(after)
        to.branch(to.icmp("eq", after, 0), "rested", "rest")
        to.start("rested")
        ways.append((self._add_low(filled, hashes, lanes), to.block))
        to.enter("counted")
        return to.phi("i64", *ways)

    def _hash_row(self, values: Ref) -> Ref:
        """Hashes of a row, or of half a row that has all of its values; their buckets are at ``%row_buckets``."""
        to = self.to
        hashes = self.hashed(values)
        to.store(to.trunc(to.and_(hashes, BUCKETS - 1), "i16"), "%row_buckets", 64)
        return hashes

    def _count_one(self, lane: Ref, number: int, weight: int) -> None:
        to = self.to
        bucket = to.zext(to.load("i16", to.element("%row_buckets", "i16", lane)), "i64")
        cell = to.element(to.place("%buckets", number * BUCKETS * 2), "i16", bucket)
        to.store(to.add(to.load("i16", cell), weight), cell)

    def _add_low(self, number: Ref, hashes: Ref, different: Ref) -> Ref:
        """Put hashes that are low enough behind others for the sample; gives how many these are then."""
        to, length = self.to, count_of(hashes.type)
        highest = to.splat(self.narrow(to.field(self.record, Values.HIGHEST)), length)
        chosen = different if length == LANES else to.trunc(different, f"i{length}")
        low = to.bits(to.and_(to.icmp("ule", hashes, highest), to.bitcast(chosen, vector_of(length, "i1"))))
        if not self.wide:
            return self._add_one_by_one(number, hashes, low)
        # pieces of exactly one register: LLVM 22 packs longer ones by way of stores that it takes to be aligned
        count = 512 // self.kind.word
        piece = vector_of(count, self.scalar)
        for start in range(0, length, count):
            own = to.trunc(to.lshr(low, start), f"i{count}") if count < length else low
            tests = to.bitcast(own, vector_of(count, "i1"))
            part = to.pick(hashes, range(start, start + count))
            name = f"experimental.vector.compress.v{count}{self.scalar}"
            packed = to.intrinsic(name, piece, part, tests, Ref(piece, "poison"))
            to.store(packed, to.element("%low", self.scalar, number), self.bytes)
            number = to.add(number, self.popcount(to.zext(own, "i32")))
        return number

    def _add_one_by_one(self, number: Ref, hashes: Ref, low: Ref) -> Ref:
        to = self.to
        to.store(hashes, "%row_hashes", 64)
        low = to.zext(low, "i32") if low.type != "i32" else low
        before, head, one, done = to.block, *(to.label(hint) for hint in ("add", "add.one", "added"))
        to.enter(head)
        rest, now = to.phi("i32", (low, before)), to.phi("i64", (number, before))
        to.branch(to.icmp("eq", rest, 0), done, one)
        to.start(one)
        hash = to.load(self.scalar, to.element("%row_hashes", self.scalar, self.first(rest)))
        to.store(hash, to.element("%low", self.scalar, now))
        rest.come(to.and_(rest, to.sub(rest, 1)))
        now.come(to.add(now, 1))
        to.jump(head)
        to.start(done)
        return now

    def _sample(self, hashes: Ref, number: Ref) -> None:
        self.to.do(f"call void @{SAMPLED}{self.kind.name}(ptr {self.record}, ptr {hashes}, i64 {number})")

    # -- values in buckets of many elements ------------------------------------------------------------------------------

    def _take_heavy(self, rows: Ref, count: Ref) -> None:
        """Values of heavy buckets, until what is left there is light, go to the most frequent ones; the others are lost."""
        to = self.to
        total = to.load(_NUMBERS, "%buckets", 64)
        light = to.lshr(count, HEAVY_SHIFT)
        heavy = to.icmp("ugt", total, to.splat(to.trunc(light, "i16"), BUCKETS))
        rest = to.select(heavy, Ref(_NUMBERS, "zeroinitializer"), total)
        lost = to.zext(to.intrinsic(f"vector.reduce.umax.v{BUCKETS}i16", "i16", rest), "i64")
        mask, before = to.bits(heavy), to.block
        to.branch(to.icmp("eq", mask, 0), "lose", "peels")
        to.start("peels")
        to.put(f"[{BATCHES} x i32]", "zeroinitializer", "%taken", 64)
        to.enter("bucket")
        buckets = to.phi(mask.type, (mask, "peels"))
        number, worst = to.phi("i64", (0, "peels")), to.phi("i64", (lost, "peels"))
        bucket = self.first(buckets)
        inside = to.zext(to.load("i16", to.element("%buckets", "i16", to.trunc(bucket, "i64"))), "i64")
        to.enter("peel")
        left, taken = to.phi("i64", (inside, "bucket")), to.phi("i64", (number, "bucket"))
        to.branch(to.icmp("ule", left, light), "peeled", "seek")
        to.start("seek")
        own = self._peel(rows, to.trunc(bucket, self.scalar), taken)
        left.come(to.sub(left, own))
        taken.come(to.add(taken, 1))
        to.jump("peel")
        to.start("peeled")
        more = to.and_(buckets, to.sub(buckets, 1))
        most = to.select(to.icmp("ugt", left, worst), left, worst)
        for phi, value in ((buckets, more), (number, taken), (worst, most)):
            phi.come(value)
        to.branch(to.icmp("eq", more, 0), "merge", "bucket")
        to.start("merge")
        given = [to.number(name) for name in (self.record, "%frequent", "%frequent_counts")]
        to.run("values_merge", (*given, taken))
        to.enter("lose")
        to.bump(self.record, Values.TOP_ERROR, to.phi("i64", (lost, before), (most, "merge")))

    def _peel(self, rows: Ref, bucket: Ref, number: Ref) -> Ref:
        """Take the first value of a bucket that is not yet taken; gives how many elements have it."""
        to = self.to
        to.enter("find")
        row = to.phi("i64", (0, "seek"))
        hashes = self.hashed(self.values_of(row))
        here = to.icmp("eq", to.and_(hashes, BUCKETS - 1), to.splat(bucket))
        free = to.and_(self.lanes_in(row), to.not_(to.load("i32", to.element("%taken", "i32", row))))
        lanes = to.and_(to.bits(here), free)
        row.come(to.add(row, 1))
        to.branch(to.icmp("eq", lanes, 0), "find", "found")
        to.start("found")
        value = to.extract(self.values_of(row), self.first(lanes))
        splatted = to.splat(value)
        with self.each_row(rows, "take") as each:
            count: Phi = to.phi("i64", (0, "found"))
            hits = to.and_(to.bits(to.icmp("eq", self.values_of(each), splatted)), self.lanes_in(each))
            cell = to.element("%taken", "i32", each)
            to.store(to.or_(to.load("i32", cell), hits), cell)
            together = to.add(count, self.popcount(hits))
            count.come(together)
        to.store(self.widened(value), to.element("%frequent", "i64", number))
        to.store(together, to.element("%frequent_counts", "i64", number))
        return together
