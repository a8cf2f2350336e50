"""The most frequent and the different values of the rows of a record, as LLVM IR; see ``values.function``.

Rows whose values are all known, or fit in the free slots, are counted by comparisons. Others are counted in buckets by hash; only
buckets of many elements are searched for single values.
"""

from __future__ import annotations

from ....simt.value_records import BATCHES, BUCKETS, HEAVY_SHIFT, TOP
from ...ir.abi import Context
from ...ir.access_records import Values
from ...ir.emitter import Phi
from ...ir.operands import LANES, Ref, count_of, vector_of
from .rows import Rows
from .sample import SAMPLED

__all__ = ["Top"]

_COUNTS, _NUMBERS = vector_of(TOP, "i64"), vector_of(BUCKETS, "i16")
#: number of sets of buckets used in rotation, so that an increment does not depend on the previous one
_SETS = 2
_MOST = BATCHES * LANES
_HALF = LANES // 2


class Top(Rows):
    """Counts frequent values, and samples different ones."""

    def allocate(self) -> None:
        """Write the allocations on the stack."""
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
        """Add rows of ``count`` elements to the most frequent values, and unknown values to the sample."""
        to = self.to
        # if the last chunk had many values, this one may too: count it in buckets
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
        """Count values by comparison, and add new ones while there are free slots; else branch to ``others``."""
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
        if self.kind.bits == 8:  # all that occur are known
            to.jump("done")
            return
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
        """Count lanes with known values, and branch to ``matched`` once all lanes are counted; returns those with other values."""
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
        low = self._count_rows(rows)
        with to.if_(to.icmp("ne", low, 0), "sample"):
            self._sample(Ref("ptr", "%low"), low)
        total: Ref | None = None
        for number in range(_SETS):
            own = to.load(_NUMBERS, to.place("%buckets", number * BUCKETS * 2), 64)
            total = own if total is None else to.add(total, own)
        assert total is not None
        to.store(total, "%buckets", 64)

    def _count_rows(self, rows: Ref) -> Ref:
        """Count rows in their buckets, equal ones in succession at once; returns how many hashes there are for the sample."""
        to, before = self.to, self.to.block
        to.enter("counting")
        row, filled = to.phi("i64", (0, before)), to.phi("i64", (0, before))
        values, lanes = self.values_of(row), self.lanes_in(row)
        inside = to.block
        to.enter("run")
        last, times = to.phi("i64", (row, inside)), to.phi("i64", (1, inside))
        following = to.add(last, 1)
        to.branch(to.icmp("ult", following, rows), "beside", "run.ended")
        to.start("beside")
        same = to.icmp("eq", to.bits(to.icmp("eq", self.values_of(following), values)), -1)
        last.come(following)
        times.come(to.add(times, 1))
        to.branch(to.and_(same, to.icmp("eq", self.lanes_in(following), lanes)), "run", "run.ended")
        to.start("run.ended")
        low = self._count_row(values, lanes, filled, to.trunc(times, "i16"))
        row.come(following)
        filled.come(low)
        to.branch(to.icmp("uge", following, rows), "counting.done", "counting")
        to.start("counting.done")
        return low

    def _few_buckets(self) -> Ref:
        """Whether few buckets are in use, so that all elements may have few values."""
        to = self.to
        some = to.bits(to.icmp("ne", to.load(_NUMBERS, "%buckets", 64), "zeroinitializer"))
        number = to.intrinsic(f"ctpop.{some.type}", some.type, some)
        return to.icmp("ule", number, TOP)

    def _count_row(self, values: Ref, lanes: Ref, filled: Ref, times: Ref) -> Ref:
        """Count a row so many times in its buckets, and add to the hashes for the sample; returns how many these are then. Often half
        warps have one value each, or the same ones."""
        to = self.to
        to.branch(to.icmp("eq", lanes, -1), "full", "partial")
        to.start("full")
        halves = to.icmp("eq", values, to.pick(values, [lane & _HALF for lane in range(LANES)]))
        to.branch(to.icmp("eq", to.bits(halves), -1), "pair", "several")
        to.start("several")
        low, high = (to.pick(values, range(start, start + _HALF)) for start in (0, _HALF))
        to.branch(to.icmp("eq", to.bits(to.icmp("eq", low, high)), -1), "half", "each")
        ways: list[tuple[str | int, str]] = []
        to.start("pair")
        ways.append((self._count_pair(values, filled, times), to.block))
        to.jump("counted")
        for name, count in (("half", _HALF), ("each", LANES)):
            to.start(name)
            weight = to.mul(times, LANES // count)
            hashes = self._hash_row(low if name == "half" else values)
            for lane in range(count):
                self._count_one(Ref("i64", str(lane)), lane % _SETS, weight)
            chosen = Ref("i32", str((1 << count) - 1 if count < LANES else -1))
            ways.append((self._add_low(filled, hashes, chosen), to.block))
            to.jump("counted")
        to.start("partial")
        hashes = self._hash_row(values)
        to.enter("rest")
        left = to.phi("i32", (lanes, "partial"))
        self._count_one(to.zext(self.first(left), "i64"), 0, times)
        after = to.and_(left, to.sub(left, 1))
        left.come(after)
        to.branch(to.icmp("eq", after, 0), "rested", "rest")
        to.start("rested")
        ways.append((self._add_low(filled, hashes, lanes), to.block))
        to.enter("counted")
        return to.phi("i64", *ways)

    def _count_pair(self, values: Ref, filled: Ref, times: Ref) -> Ref:
        """Count a row of which each half has one value; as scalars, which need not go through memory."""
        to = self.to
        weight, highest = to.mul(times, _HALF), self.narrow(to.field(self.record, Values.HIGHEST))
        for number, lane in enumerate((0, _HALF)):
            hash = self.hashed(to.extract(values, lane))
            self._count_in(to.and_(hash, BUCKETS - 1), number, weight)
            to.store(hash, to.element("%low", self.scalar, filled))
            filled = to.add(filled, to.zext(to.icmp("ule", hash, highest), "i64"))
        return filled

    def _hash_row(self, values: Ref) -> Ref:
        """Hashes of a row, or of half a row that has all of its values; their buckets are at ``%row_buckets``."""
        to = self.to
        hashes = self.hashed(values)
        to.store(to.trunc(to.and_(hashes, BUCKETS - 1), "i16"), "%row_buckets", 64)
        return hashes

    def _count_one(self, lane: Ref, number: int, weight: Ref) -> None:
        to = self.to
        self._count_in(to.load("i16", to.element("%row_buckets", "i16", lane)), number, weight)

    def _count_in(self, bucket: Ref, number: int, weight: Ref) -> None:
        to = self.to
        place = to.zext(bucket, "i64") if bucket.type != "i64" else bucket
        cell = to.element(to.place("%buckets", number * BUCKETS * 2), "i16", place)
        to.store(to.add(to.load("i16", cell), weight), cell)

    def _add_low(self, number: Ref, hashes: Ref, different: Ref) -> Ref:
        """Put hashes that are low enough behind others for the sample; returns how many these are then."""
        to, length = self.to, count_of(hashes.type)
        highest = to.splat(self.narrow(to.field(self.record, Values.HIGHEST)), length)
        chosen = different if length == LANES else to.trunc(different, f"i{length}")
        low = to.bits(to.and_(to.icmp("ule", hashes, highest), to.bitcast(chosen, vector_of(length, "i1"))))
        return self.pack(hashes, low, Ref("ptr", "%low"), number, "%row_hashes")

    def _sample(self, hashes: Ref, number: Ref) -> None:
        self.to.do(f"call void @{SAMPLED}{self.kind.name}(ptr {self.record}, ptr {hashes}, i64 {number})")

    # -- values in buckets of many elements ------------------------------------------------------------------------------

    def _take_heavy(self, rows: Ref, count: Ref) -> None:
        """Add values of heavy buckets to the most frequent ones, until the rest of each bucket is light; the others are dropped."""
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
        """Take the first value of a bucket that is not yet taken; returns how many elements have it."""
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
