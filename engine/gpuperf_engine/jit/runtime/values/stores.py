"""Dead stores (``simt.dead_stores``): who wrote each word last, held against who stores to it, as LLVM IR; see ``values.function``."""

from __future__ import annotations

from collections.abc import Callable

from ....memory.store_shadow import StoreShadow
from ...ir.abi import Context
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref, count_of, numbers, vector_of
from .loads import Loads
from .rows import V1, V64

__all__ = ["Stores"]


class Stores(Loads):
    """Words of 32 bits have an entry each (``values.dead``). Elements of whole words, and pairs of halves, are traced by vectors,
    narrower ones, and words of which bytes have entries of their own, lane by lane."""

    def trace(self, addresses: Ref, mask: Ref) -> None:
        """The lanes of an access read or store."""
        to = self.to
        how = to.field(self.record, Values.TRACES)
        to.branch(to.icmp("eq", how, 0), "traced", "trace")
        to.start("trace")
        epoch = to.field("%ctx", Context.STORE_EPOCH)
        touched = to.pointer(to.field(self.record, Values.TOUCHED))
        reads = to.icmp("eq", how, Values.READS)
        to.branch(reads, "trace.load", "trace.store")
        to.start("trace.load")
        to.branch(to.icmp("eq", to.load("i64", touched), epoch), "trace.on", "traced")
        to.start("trace.store")
        to.store(epoch, touched)
        thread = to.or_(epoch, to.shl(self._warp(), StoreShadow.THREAD + 5))
        to.enter("trace.on")
        who = to.phi("i64", (0, "trace.load"), (thread, "trace.store"))
        kept = to.cast("sext", to.icmp("eq", how, Values.STORES), "i64")
        slot = to.add(Ref("i64", "%slot"), 1)
        if self.kind.bits == 16:
            to.branch(to.icmp("eq", to.field(self.record, Values.PAIRS), 0), "lanes", "words")
            to.start("words")
        if self.kind.bits >= 16:
            self._words(addresses, mask, (epoch, who, slot, kept))
        self._lanes(addresses, mask, (who, slot, kept))
        to.enter("traced")

    # -- vectors of words --------------------------------------------------------------------------------------------------

    def _words(self, addresses: Ref, mask: Ref, given: tuple[Ref, Ref, Ref, Ref]) -> None:
        """Whole words, unless bytes of one have entries of their own."""
        to, size = self.to, max(4, self.kind.bits // 8)
        words = size // 4
        base = to.pointer(to.field("%ctx", Context.STORE_WORDS))
        places = to.shl(addresses, 1)
        ladder = numbers("i64", range(0, LANES * size, size))
        first = to.extract(addresses, 0)
        in_row = to.bits(to.icmp("eq", addresses, to.add(to.splat(first), ladder)))
        to.branch(to.icmp("eq", to.and_(in_row, mask), -1), "words.row", "words.scattered")
        to.start("words.row")
        wide = vector_of(LANES * words, "i64")
        row = to.place(base, to.shl(first, 1))
        threads = numbers("i64", (lane << StoreShadow.THREAD for lane in range(LANES) for _ in range(words)))
        held = to.load(wide, row, 8)
        self._held([held], None, given[0])
        (entries,) = self._entries([held], Ref(wide, threads), given)
        to.store(entries, row, 8)
        to.jump("traced")
        to.start("words.scattered")
        on = to.bitcast(mask, V1)
        pointers = [
            to.ref(f"<{LANES} x ptr>", f"getelementptr i8, ptr {base}, {V64} {to.add(places, 8 * word)}")
            for word in range(words)
        ]
        all_held = [self.gathered(pointer, on, V64) for pointer in pointers]
        self._held(all_held, on, given[0])
        lanes = numbers("i64", (lane << StoreShadow.THREAD for lane in range(LANES)))
        for pointer, entries in zip(pointers, self._entries(all_held, Ref(V64, lanes), given)):
            name = f"llvm.masked.scatter.v{LANES}i64.v{LANES}p0"
            to.needs[name] = f"declare void @{name}({V64}, {pointer.type}, {V1})"
            to.do(f"call void @{name}({V64} {entries}, {pointer.type} align 8 {pointer}, {V1} {on})")
        to.jump("traced")

    def _held(self, held: list[Ref], on: Ref | None, epoch: Ref) -> None:
        """Leave where bytes have entries, and where a load finds no store."""
        to = self.to
        mixed, live = Ref("i1", "false"), Ref("i1", "false")
        for entries in held:
            count = count_of(entries.type)
            marked = to.splat(to.or_(epoch, StoreShadow.MIXED), count)
            mixed = to.or_(mixed, to.icmp("ne", to.bits(to.icmp("eq", entries, marked)), 0))
            current = to.icmp("uge", entries, to.splat(epoch, count))
            live = to.or_(live, to.icmp("ne", to.bits(current), 0))
        whole, stores = to.label("words.whole"), to.label("words.stores")
        to.branch(mixed, "lanes", whole)
        to.start(whole)
        loads = to.icmp("eq", to.field(self.record, Values.TRACES), Values.READS)
        to.branch(to.and_(loads, to.not_(live)), "traced", stores)
        to.start(stores)

    def _entries(self, held: list[Ref], lanes: Ref, given: tuple[Ref, Ref, Ref, Ref]) -> list[Ref]:
        """Count what is dead, and give the new entries."""
        to = self.to
        epoch, who, slot, kept = given
        count = count_of(lanes.type)
        own = to.or_(to.splat(who, count), lanes)
        dead = []
        for entries in held:
            same = to.icmp("eq", to.and_(entries, -1 << StoreShadow.THREAD), own)
            dead.append(to.bits(to.and_(same, to.icmp("uge", entries, to.splat(epoch, count)))))
        for entries, lost in zip(held, dead):
            before, head, body, done = to.block, *(to.label(f"dead{end}") for end in ("", ".some", ".none"))
            to.enter(head)
            rest = to.phi(lost.type, (lost, before))
            to.branch(to.icmp("eq", rest, 0), done, body)
            to.start(body)
            lane = self.first(rest)
            index = to.trunc(lane, "i32") if lane.type == "i64" else lane
            by = to.and_(to.extract(entries, index), StoreShadow.MIXED)
            alike = to.icmp("eq", to.and_(entries, StoreShadow.MIXED), to.splat(by, count))
            together = to.and_(rest, to.bits(alike))
            number = to.intrinsic(f"ctpop.{lost.type}", lost.type, together)
            bytes = to.shl(to.zext(number, "i64") if number.type == "i32" else number, 2)
            start = to.field(self.record, Values.START)
            to.run(
                "values_dead", (to.number("%ctx"), start, by, bytes, Ref("i64", "%slot"), Ref("i64", "-1"))
            )
            rest.come(to.xor(rest, together))
            to.jump(head)
            to.start(done)
        entry = to.splat(to.and_(slot, kept), count)
        keep = to.splat(kept, count)
        return [to.and_(to.or_(own, entry), keep)] * len(held)

    # -- one lane after the other ------------------------------------------------------------------------------------------

    def _lanes(self, addresses: Ref, mask: Ref, given: tuple[Ref, Ref, Ref]) -> None:
        """First what is dead, if it is a store, and then the new entries."""
        to = self.to
        who, slot, kept = given
        (to.start if self.kind.bits >= 16 else to.enter)("lanes")
        loads = to.icmp("eq", who, 0)
        to.branch(loads, "lanes.entered", "lanes.dead")
        to.start("lanes.dead")
        self._each_lane(addresses, mask, lambda own: (own, Ref("i64", "-1")), who)
        to.enter("lanes.entered")
        none = Ref("i64", "0")
        self._each_lane(addresses, mask, lambda own: (none, to.and_(to.or_(own, slot), kept)), who)

    def _each_lane(
        self, addresses: Ref, mask: Ref, given: Callable[[Ref], tuple[Ref, Ref]], who: Ref
    ) -> None:
        """Call the runtime for each lane; ``given``: who stores, and the entry, from its number."""
        to = self.to
        before, head, body, done = to.block, to.label("lane"), to.label("lane.some"), to.label("lane.none")
        to.enter(head)
        rest = to.phi("i32", (mask, before))
        to.branch(to.icmp("eq", rest, 0), done, body)
        to.start(body)
        lane = self.first(rest)
        own = to.or_(who, to.shl(to.zext(lane, "i64"), StoreShadow.THREAD))
        address, size = to.extract(addresses, lane), Ref("i64", str(self.kind.bits // 8))
        if self.kind.bits == 16:
            size = to.shl(size, to.field(self.record, Values.PAIRS))
        to.run("values_traced", (to.number("%ctx"), Ref("i64", "%slot"), address, size, *given(own)))
        rest.come(to.and_(rest, to.sub(rest, 1)))
        to.jump(head)
        to.start(done)
