"""A sample of the different values of a record by their hashes, as LLVM IR; see ``values.function``.

``values_sampled_<type>(record, hashes, count)`` adds hashes to a table with linear probing, in which 0 is a free place: it is the hash
of 0 alone, which is known by its count. When the table is full, hashes above half of the highest leave it.
"""

from __future__ import annotations

from ....simt.value_records import DISTINCT_SLOTS, MOST_SAMPLED, ValueKind
from ...ir.access_records import Values
from ...ir.operands import Ref, vector_of
from .rows import Rows

__all__ = ["SAMPLED", "Sample"]

SAMPLED = "values_sampled_"
#: words of the table that are looked at together
_STEP = 16


class Sample(Rows):
    """The function that adds hashes to the sample."""

    def __init__(self, kind: ValueKind, wide: bool) -> None:
        super().__init__(SAMPLED + kind.name, kind, wide)
        self.vector = vector_of(_STEP, self.scalar)

    def text(self) -> str:
        to = self.to
        to.start("entry")
        # a step more, as whole steps are stored
        self.spare = to.alloca(f"[{MOST_SAMPLED + 1 + _STEP} x {self.scalar}]", 64)
        if not self.wide:
            to.do(f"%looked = alloca {self.vector}, align 64")
        self.table = to.place(self.record, Values.TABLE)
        to.enter("next")
        item = to.phi("i64", (0, "entry"))
        to.branch(to.icmp("uge", item, "%count"), "end", "add")
        to.start("add")
        hash = to.load(self.scalar, to.element("%hashes", self.scalar, item))
        following = to.add(item, 1)
        highest = self.narrow(to.field(self.record, Values.HIGHEST))
        wanted = to.and_(to.icmp("ule", hash, highest), to.icmp("ne", hash, 0))
        first = to.and_(hash, DISTINCT_SLOTS - 1)
        item.come(following)
        to.branch(wanted, "probe", "next")
        to.start("probe")
        place = to.phi(self.scalar, (first, "add"))
        held = to.load(self.scalar, to.element(self.table, self.scalar, place))
        item.come(following)
        to.branch(to.icmp("eq", held, hash), "next", "other")
        to.start("other")
        place.come(to.and_(to.add(place, 1), DISTINCT_SLOTS - 1))
        to.branch(to.icmp("eq", held, 0), "put", "probe")
        to.start("put")
        to.store(hash, to.element(self.table, self.scalar, place))
        cell = to.place(self.record, Values.SAMPLED)
        sampled = to.add(to.load("i64", cell), 1)
        to.store(sampled, cell)
        item.come(following)
        to.branch(to.icmp("ugt", sampled, MOST_SAMPLED), "halve", "next")
        to.start("halve")
        kept = self._halve()
        to.store(kept, cell)
        item.come(following)
        to.branch(to.icmp("ugt", kept, MOST_SAMPLED), "halve", "next")
        to.start("end")
        to.give()
        return to.function(f"void @{self.name}(ptr %record, ptr %hashes, i64 %count)")

    def _halve(self) -> Ref:
        """Keep the hashes up to half of the highest one allowed, in a table made anew, as places follow from what was there before;
        gives how many they are."""
        to = self.to
        half = to.lshr(to.field(self.record, Values.HIGHEST), 1)
        to.store(half, to.place(self.record, Values.HIGHEST))
        to.bump(self.record, Values.LEVEL, 1)
        limit = to.splat(self.narrow(half), _STEP)
        before = to.block
        to.enter("look")
        at, kept = to.phi("i64", (0, before)), to.phi("i64", (0, before))
        cell = to.element(self.table, self.vector, at)
        hashes = to.load(self.vector, cell, 64)
        to.put(self.vector, "zeroinitializer", cell, 64)
        some = to.bits(to.all((to.icmp("ule", hashes, limit), to.icmp("ne", hashes, "zeroinitializer"))))
        now = self.pack(hashes, some, self.spare, kept, "%looked")
        following = to.add(at, 1)
        at.come(following)
        kept.come(now)
        to.branch(to.icmp("eq", following, DISTINCT_SLOTS // _STEP), "packed", "look")
        to.start("packed")
        before = to.block
        to.enter("again")
        item = to.phi("i64", (0, before))
        to.branch(to.icmp("eq", item, now), "halved", "place")
        to.start("place")
        hash = to.load(self.scalar, to.element(self.spare, self.scalar, item))
        start = to.and_(hash, DISTINCT_SLOTS - 1)
        to.enter("seek")
        free = to.phi(self.scalar, (start, "place"))
        cell = to.element(self.table, self.scalar, free)
        free.come(to.and_(to.add(free, 1), DISTINCT_SLOTS - 1))
        to.branch(to.icmp("eq", to.load(self.scalar, cell), 0), "replace", "seek")
        to.start("replace")
        to.store(hash, cell)
        item.come(to.add(item, 1))
        to.jump("again")
        to.start("halved")
        return now
