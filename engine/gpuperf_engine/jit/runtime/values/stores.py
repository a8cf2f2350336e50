"""Detection of dead stores (``simt.dead_stores``) by the last writer of each word, as LLVM IR; see ``values.function``."""

from __future__ import annotations

from collections.abc import Callable

from ....memory.store_shadow import StoreShadow
from ...ir.abi import Context
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref, numbers, vector_of
from .entries import Tracing
from .narrow import Narrow
from .rows import V1, V64

__all__ = ["Stores"]


class Stores(Narrow):
    """Traces words of 32 bits, with an entry each (``values.dead``): elements of complete words, and all parts of words at once, by
    vectors; words covered by several threads lane by lane."""

    def trace(self, addresses: Ref, mask: Ref) -> None:
        """Trace the lanes of an access."""
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
        given = Tracing(epoch, who, to.add(Ref("i64", "%slot"), 1), kept)
        if self.kind.bits < 32:
            to.branch(to.icmp("eq", to.field(self.record, Values.PARTS), 0), "narrow", "words")
            to.start("narrow")
            self.trace_narrow(addresses, mask, given)
            to.start("words")
        self._words(addresses, mask, given)
        self._lanes(addresses, mask, given)
        to.start("traced")

    # -- vectors of words --------------------------------------------------------------------------------------------------

    def _words(self, addresses: Ref, mask: Ref, given: Tracing) -> None:
        """Trace complete words, unless several threads cover one."""
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
        self._held([held], None, given.epoch)
        to.store(self._entries([held], Ref(wide, threads), given), row, 8)
        to.jump("traced")
        to.start("words.scattered")
        on = to.bitcast(mask, V1)
        pointers = [self.pointers(base, to.add(places, 8 * word)) for word in range(words)]
        all_held = [self.gathered(pointer, on, V64) for pointer in pointers]
        self._held(all_held, on, given.epoch)
        lanes = numbers("i64", (lane << StoreShadow.THREAD for lane in range(LANES)))
        entries = self._entries(all_held, Ref(V64, lanes), given)
        for pointer in pointers:
            self.scatter(entries, pointer, on)
        to.jump("traced")

    def _held(self, held: list[Ref], on: Ref | None, epoch: Ref) -> None:
        """Leave where several threads cover a word, and where no store precedes a load."""
        to = self.to
        spread, live = Ref("i1", "false"), Ref("i1", "false")
        for entries in held:
            current = self.current(entries, epoch)
            some = to.icmp("ne", to.and_(entries, Values.SPREADS), 0)
            spread = to.or_(spread, to.icmp("ne", to.bits(to.and_(current, some)), 0))
            live = to.or_(live, to.icmp("ne", to.bits(current), 0))
        whole, stores = to.label("words.whole"), to.label("words.stores")
        to.branch(spread, "lanes", whole)
        to.start(whole)
        loads = to.icmp("eq", to.field(self.record, Values.TRACES), Values.READS)
        to.branch(to.and_(loads, to.not_(live)), "traced", stores)
        to.start(stores)

    def _entries(self, held: list[Ref], lanes: Ref, given: Tracing) -> Ref:
        """Count dead stores, and return the new entries."""
        own = self.owned(lanes, given)
        lost = [self.lost(entries, own, given.epoch) for entries in held]
        for entries, own_lost in zip(held, lost):
            self.count_dead(entries, own_lost, 4)
        return self.renewed(own, given)

    # -- one lane after the other ------------------------------------------------------------------------------------------

    def _lanes(self, addresses: Ref, mask: Ref, given: Tracing) -> None:
        """Count dead stores lane by lane if the access is a store, then write the new entries."""
        to = self.to
        who, slot, kept = given.who, given.slot, given.kept
        to.start("lanes")
        loads = to.icmp("eq", who, 0)
        to.branch(loads, "lanes.entered", "lanes.dead")
        to.start("lanes.dead")
        self._each_lane(addresses, mask, lambda own: (own, Ref("i64", "-1")), who)
        to.enter("lanes.entered")
        none = Ref("i64", "0")
        self._each_lane(addresses, mask, lambda own: (none, to.and_(to.or_(own, slot), kept)), who)
        to.jump("traced")

    def _each_lane(
        self, addresses: Ref, mask: Ref, given: Callable[[Ref], tuple[Ref, Ref]], who: Ref
    ) -> None:
        """Call the runtime for each lane; ``given`` returns the storing thread and the entry from the lane's number."""
        to = self.to
        before, head, body, done = to.block, to.label("lane"), to.label("lane.some"), to.label("lane.none")
        to.enter(head)
        rest = to.phi("i32", (mask, before))
        to.branch(to.icmp("eq", rest, 0), done, body)
        to.start(body)
        lane = self.first(rest)
        own = to.or_(who, to.shl(to.zext(lane, "i64"), StoreShadow.THREAD))
        address, size = to.extract(addresses, lane), Ref("i64", str(self.kind.bits // 8))
        if self.kind.bits < 32:
            size = to.shl(size, to.field(self.record, Values.PARTS))
        to.run("values_traced", (to.number("%ctx"), Ref("i64", "%slot"), address, size, *given(own)))
        rest.come(to.and_(rest, to.sub(rest, 1)))
        to.jump(head)
        to.start(done)
