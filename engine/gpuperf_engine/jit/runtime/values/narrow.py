"""Dead stores of elements of 8 and 16 bits, as LLVM IR; see ``values.stores``."""

from __future__ import annotations

from ....memory.store_shadow import StoreShadow
from ...ir.abi import Context
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref, numbers, vector_of
from .entries import Entries, Tracing
from .rows import V1, V64

__all__ = ["Narrow"]

_LANES = numbers("i64", (lane << StoreShadow.THREAD for lane in range(LANES)))


class Narrow(Entries):
    """Traces words where a warp accesses consecutive complete words, each covered by several threads; else bytes, with an entry
    each."""

    def trace_narrow(self, addresses: Ref, mask: Ref, given: Tracing) -> None:
        """Trace lanes that read or store elements of less than a word."""
        to, size = self.to, self.kind.bits // 8
        first = to.extract(addresses, 0)
        ladder = numbers("i64", range(0, LANES * size, size))
        in_row = to.bits(to.icmp("eq", addresses, to.add(to.splat(first), ladder)))
        aligned = to.icmp("eq", to.and_(first, 3), 0)
        row = to.all((aligned, to.icmp("eq", to.and_(in_row, mask), -1)))
        to.branch(row, "narrow.row", "narrow.bytes")
        to.start("narrow.row")
        self._row(first, given)
        to.start("narrow.bytes")
        self._bytes(addresses, mask, given)

    def _row(self, first: Ref, given: Tracing) -> None:
        """Trace complete words of a full warp."""
        to, size = self.to, self.kind.bits // 8
        count = LANES * size // 4
        place = to.place(to.pointer(to.field("%ctx", Context.STORE_WORDS)), to.shl(first, 1))
        held = to.load(vector_of(count, "i64"), place, 8)
        current = self.current(held, given.epoch)
        to.branch(to.icmp("eq", given.who, 0), "narrow.load", "narrow.store")
        to.start("narrow.load")
        to.branch(to.icmp("eq", to.bits(current), 0), "traced", "narrow.read")
        to.start("narrow.read")
        to.put(held.type, "zeroinitializer", place, 8)
        to.jump("traced")
        to.start("narrow.store")
        spread = Values.BYTES if size == 1 else Values.HALVES
        otherwise = to.icmp("ne", to.and_(held, Values.SPREADS), spread)
        foreign = to.icmp("ne", to.bits(to.and_(current, otherwise)), 0)
        to.branch(foreign, "narrow.bytes", "narrow.words")
        to.start("narrow.words")
        threads = (4 // size * word << StoreShadow.THREAD | spread for word in range(count))
        own = self.owned(numbers("i64", threads), given)
        self.count_dead(held, self.lost(held, own, given.epoch), 4)
        to.store(self.renewed(own, given), place, 8)
        to.jump("traced")

    def _bytes(self, addresses: Ref, mask: Ref, given: Tracing) -> None:
        """Trace bytes by their own entries."""
        to, size = self.to, self.kind.bits // 8
        on = to.bitcast(mask, V1)
        words = self.pointers(
            to.pointer(to.field("%ctx", Context.STORE_WORDS)), to.shl(to.and_(addresses, -4), 1)
        )
        held = self.gathered(words, on, V64)
        current = self.current(held, given.epoch)
        # reads of bytes without a store need no entry
        loads = to.icmp("eq", given.who, 0)
        on = to.select(loads, to.and_(on, current), on)
        to.branch(to.icmp("eq", to.bits(on), 0), "traced", "bytes.some")
        to.start("bytes.some")
        whole = to.icmp("ne", to.and_(held, Values.SPREADS), Values.MIXED)
        whole = to.and_(on, to.or_(whole, to.not_(current)))
        base = to.pointer(to.field("%ctx", Context.STORE_BYTES))
        to.branch(to.icmp("eq", to.bits(whole), 0), "bytes.own", "bytes.split")
        to.start("bytes.split")
        self._split(
            to.select(current, held, 0), words, self.pointers(base, to.shl(to.and_(addresses, -4), 3)), whole
        )
        to.enter("bytes.own")
        own = self.owned(_LANES, given)
        in_words = [to.and_(to.add(addresses, byte) if byte else addresses, 3) for byte in range(size)]
        places = [self.pointers(base, to.shl(to.add(addresses, byte), 3)) for byte in range(size)]
        entries = [self.gathered(place, on, V64) for place in places]
        lost = [self.lost(entry, own, given.epoch) for entry in entries]
        for entry, own_lost, of_words in zip(entries, lost, in_words):
            self.count_dead(entry, own_lost, 1, of_words)
        for place in places:
            self.scatter(self.renewed(own, given), place, on)
        to.jump("traced")

    def _split(self, held: Ref, words: Ref, bytes: Ref, on: Ref) -> None:
        """Split entries of words into entries of their bytes."""
        to = self.to
        first, spread = to.and_(held, ~Values.SPREADS), to.and_(held, Values.SPREADS)
        threads = to.select(
            to.icmp("eq", spread, Values.BYTES), Ref(V64, f"splat (i64 {1 << StoreShadow.THREAD})"), 0
        )
        halves = to.select(
            to.icmp("eq", spread, Values.HALVES), Ref(V64, f"splat (i64 {1 << StoreShadow.THREAD})"), 0
        )
        for byte in range(4):
            entry = to.add(first, to.mul(threads, byte)) if byte else first
            entry = to.add(entry, halves) if byte > 1 else entry
            pointers = to.ref(bytes.type, f"getelementptr i8, {bytes.type} {bytes}, i64 {8 * byte}")
            self.scatter(entry, pointers, on)
        mixed = to.splat(to.or_(to.field("%ctx", Context.STORE_EPOCH), Values.MIXED))
        self.scatter(mixed, words, on)
