"""Counts and bounds of the rows of a record, as LLVM IR; see ``values_function``."""

from __future__ import annotations

from ..ir.access_records import Values
from ..ir.operands import Ref
from .values_rows import V1, Rows

__all__ = ["Sums"]


class Sums(Rows):
    """Counts and bounds."""

    def sums(self, rows: Ref) -> Ref:
        """Take rows into counts and bounds; gives how many elements they are."""
        to, before = self.to, self.to.block
        offsets = [Values.MINIMUM, Values.MAXIMUM, *([Values.ORS, Values.TINY] if self.kind.is_float else [])]
        starts = {offset: to.load(self.word, to.place(self.record, offset), 64) for offset in offsets}
        for offset in (Values.MINIMUM, Values.TINY):
            if offset in starts:
                starts[offset] = to.xor(starts[offset], -1)
        names = ["count", "zeros", *(["numbers", "negative"] if self.kind.is_float else [])]
        with self.each_row(rows, "sums") as row:
            bounds = {offset: to.phi(self.word, (start, before)) for offset, start in starts.items()}
            counts = {name: to.phi("i64", (0, before)) for name in names}
            on = to.bitcast(self.lanes_in(row), V1)
            found, counted = self._summed(self.values_of(row), on)
            after: dict[int, Ref] = {}
            for offset, value in found.items():
                taken = self.lowest if offset in (Values.MINIMUM, Values.TINY) else self.highest
                after[offset] = (
                    to.or_(bounds[offset], value) if offset == Values.ORS else taken(bounds[offset], value)
                )
                bounds[offset].come(after[offset])
            sums = {name: to.add(counts[name], self.popcount(tests)) for name, tests in counted.items()}
            for name, together in sums.items():
                counts[name].come(together)
        for offset, value in after.items():
            complement = offset in (Values.MINIMUM, Values.TINY)
            to.store(to.xor(value, -1) if complement else value, to.place(self.record, offset), 64)
        to.bump(self.record, Values.COUNT, sums["count"])
        to.bump(self.record, Values.ZEROS, sums["zeros"])
        if self.kind.is_float:
            to.bump(self.record, Values.NANS, to.sub(sums["count"], sums["numbers"]))
            to.bump(self.record, Values.NEGATIVE_ZEROS, sums["negative"])
        return sums["count"]

    def _summed(self, values: Ref, on: Ref) -> tuple[dict[int, Ref], dict[str, Ref]]:
        """What of a row goes into bounds, neutral where it does not, and which lanes into which counts."""
        to, kind = self.to, self.kind
        if not kind.is_float:
            key = to.xor(values, self.signed(1 << (kind.word - 1))) if kind.kind == "s" else values
            bounds = {Values.MINIMUM: to.select(on, key, -1), Values.MAXIMUM: to.select(on, key, 0)}
            return bounds, {"count": on, "zeros": to.and_(on, to.icmp("eq", values, 0))}
        sign, whole = 1 << (kind.bits - 1), (1 << kind.bits) - 1
        magnitude = to.and_(values, sign - 1)
        numbers = to.and_(on, to.icmp("ule", magnitude, kind.infinity))
        up = to.shl(values, kind.word - kind.bits) if kind.bits < kind.word else values
        negative = to.and_(to.ashr(up, kind.word - 1), self.signed(whole))
        key = to.xor(values, to.or_(negative, self.signed(sign)))
        bounds = {
            Values.MINIMUM: to.select(numbers, key, -1),
            Values.MAXIMUM: to.select(numbers, key, 0),
            Values.ORS: to.select(numbers, values, 0),
            # of zero it is the highest number
            Values.TINY: to.select(numbers, to.sub(magnitude, 1), -1),
        }
        counts = {"count": on, "numbers": numbers, "zeros": to.and_(on, to.icmp("eq", magnitude, 0))}
        return bounds, counts | {"negative": to.and_(on, to.icmp("eq", values, self.signed(sign)))}
