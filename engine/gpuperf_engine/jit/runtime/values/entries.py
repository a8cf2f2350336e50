"""Comparison of the entries of last stores with the present store or read, as LLVM IR; see ``values.stores``."""

from __future__ import annotations

from dataclasses import dataclass

from ....memory.store_shadow import StoreShadow
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref, count_of
from .loads import Loads
from .rows import V1, V64

__all__ = ["Entries", "Tracing"]


@dataclass(frozen=True, slots=True)
class Tracing:
    """The effect of an access on entries: the ``epoch`` of this launch, the epoch with the thread of lane 0 (``who``; 0 for reads),
    the slot + 1, and −1 if entries are ``kept``, else 0."""

    epoch: Ref
    who: Ref
    slot: Ref
    kept: Ref


class Entries(Loads):
    """Counts dead stores of entries, and computes the new entries."""

    def current(self, entries: Ref, epoch: Ref) -> Ref:
        """Test which entries are of this launch."""
        to = self.to
        return to.icmp("uge", entries, to.splat(epoch, count_of(entries.type)))

    def owned(self, lanes: Ref, given: Tracing) -> Ref:
        """Return entries without slot; ``lanes``: the threads, from that of lane 0, and how they cover words."""
        to = self.to
        return to.or_(to.splat(given.who, count_of(lanes.type)), lanes)

    def lost(self, entries: Ref, own: Ref, epoch: Ref) -> Ref:
        """Return which entries are those of the same thread, as bits."""
        to = self.to
        same = to.icmp("eq", to.and_(entries, -1 << StoreShadow.THREAD), own)
        return to.bits(to.and_(same, self.current(entries, epoch)))

    def renewed(self, own: Ref, given: Tracing) -> Ref:
        """The new entries."""
        to, count = self.to, count_of(own.type)
        entry = to.splat(to.and_(given.slot, given.kept), count)
        return to.and_(to.or_(own, entry), to.splat(given.kept, count))

    def count_dead(self, entries: Ref, lost: Ref, bytes: int, places: Ref | None = None) -> None:
        """Count so many dead bytes of each of these entries; ``places``: of single bytes, their index in the word."""
        to, count = self.to, count_of(entries.type)
        before, head, body, done = to.block, *(to.label(f"dead{end}") for end in ("", ".some", ".none"))
        to.enter(head)
        rest = to.phi(lost.type, (lost, before))
        to.branch(to.icmp("eq", rest, 0), done, body)
        to.start(body)
        lane = self.first(rest)
        bits = int(lane.type[1:])
        index = lane if bits == 32 else to.cast("trunc" if bits > 32 else "zext", lane, "i32")
        by = to.and_(to.extract(entries, index), StoreShadow.SLOT)
        alike = to.icmp("eq", to.and_(entries, StoreShadow.SLOT), to.splat(by, count))
        byte = Ref("i64", "-1")
        if places is not None:
            byte = to.extract(places, index)
            alike = to.and_(alike, to.icmp("eq", places, to.splat(byte, count)))
        together = to.and_(rest, to.bits(alike))
        number = to.intrinsic(f"ctpop.{lost.type}", lost.type, together)
        number = to.zext(number, "i64") if bits < 64 else number
        start = to.field(self.record, Values.START)
        amount = to.mul(number, bytes)
        to.run("values_dead", (to.number("%ctx"), start, by, amount, Ref("i64", "%slot"), byte))
        rest.come(to.xor(rest, together))
        to.jump(head)
        to.start(done)

    def scatter(self, values: Ref, pointers: Ref, on: Ref) -> None:
        """Store entries where pointers of the lanes point to."""
        to = self.to
        name = f"llvm.masked.scatter.v{LANES}i64.v{LANES}p0"
        to.needs[name] = f"declare void @{name}({V64}, {pointers.type}, {V1})"
        to.do(f"call void @{name}({V64} {values}, {pointers.type} align 8 {pointers}, {V1} {on})")

    def pointers(self, base: Ref, offsets: Ref) -> Ref:
        """Pointers of the lanes."""
        return self.to.ref(f"<{LANES} x ptr>", f"getelementptr i8, ptr {base}, {V64} {offsets}")
