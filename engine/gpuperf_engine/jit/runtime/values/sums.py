"""Counts and bounds of the rows of a record, as LLVM IR; see ``values.function``."""

from __future__ import annotations

from ...ir.access_records import Values
from ...ir.operands import Ref
from .rows import V1, Rows

__all__ = ["Sums"]


class Sums(Rows):
    """Counts and bounds."""

    def sums(self, rows: Ref) -> Ref:
        """Take rows into counts and bounds; returns how many elements they are."""
        to = self.to
        count = self._plain(rows)
        plain = to.block
        to.jump("sums.end")
        to.start("special")
        counted = self._special(rows)
        special = to.block
        to.enter("sums.end")
        together = to.phi("i64", (count, plain), (counted, special))
        to.bump(self.record, Values.COUNT, together)
        return together

    # -- rows without zeros and NaN --------------------------------------------------------------------------------------

    def _plain(self, rows: Ref) -> Ref:
        """Update bounds from rows without separately counted values; else branch to ``special``, also for records that had some
        before."""
        to, is_float = self.to, self.kind.is_float
        apart = to.field(self.record, Values.ZEROS)
        if is_float:
            apart = to.or_(apart, to.field(self.record, Values.NANS))
        to.branch(to.icmp("eq", apart, 0), "plain", "special")
        to.start("plain")
        zero = Ref("i64", "0")
        # lanes without a value have that of the first one
        first = to.splat(to.extract(self.values_of(zero), self.first(self.lanes_in(zero))))
        names = ["low", "high", "least", *(["most", "ors"] if is_float else [])]
        before = to.block
        start = {name: Ref(self.word, "zeroinitializer") for name in names}
        start |= {name: Ref(self.word, f"splat ({self.scalar} -1)") for name in ("low", "least")}
        with self.each_row(rows, "plainly") as row:
            sums = {name: to.phi(self.word, (value, before)) for name, value in start.items()}
            count = to.phi("i64", (0, before))
            lanes = self.lanes_in(row)
            values = to.select(to.bitcast(lanes, V1), self.values_of(row), first)
            magnitude = to.and_(values, (1 << (self.kind.bits - 1)) - 1) if is_float else values
            key = self._key(values)
            after = {
                "low": self.lowest(sums["low"], key),
                "high": self.highest(sums["high"], key),
                "least": self.lowest(sums["least"], magnitude),
            }
            if is_float:
                after["most"] = self.highest(sums["most"], magnitude)
                after["ors"] = to.or_(sums["ors"], values)
            together = to.add(count, self.popcount(lanes))
            for name, value in after.items():
                sums[name].come(value)
            count.come(together)
        found = to.icmp("eq", after["least"], 0)
        if is_float:
            found = to.or_(found, to.icmp("ugt", after["most"], self.kind.infinity))
        to.branch(to.icmp("eq", to.bits(found), 0), "plainly.take", "special")
        to.start("plainly.take")
        self._bound(Values.MINIMUM, to.xor(after["low"], -1))
        self._bound(Values.MAXIMUM, after["high"])
        if is_float:
            cell = to.place(self.record, Values.ORS)
            to.store(to.or_(to.load(self.word, cell, 64), after["ors"]), cell, 64)
            self._bound(Values.TINY, to.sub(Ref(self.word, "zeroinitializer"), after["least"]))
        return together

    def _bound(self, offset: int, values: Ref) -> None:
        """Raise a bound of each lane."""
        to = self.to
        cell = to.place(self.record, offset)
        to.store(self.highest(to.load(self.word, cell, 64), values), cell, 64)

    def _key(self, values: Ref) -> Ref:
        """Return keys with the order of the values (``simt.value_records.key_of``)."""
        to, kind = self.to, self.kind
        if not kind.is_float:
            return to.xor(values, self.signed(1 << (kind.word - 1))) if kind.kind == "s" else values
        up = to.shl(values, kind.word - kind.bits) if kind.bits < kind.word else values
        negative = to.and_(to.ashr(up, kind.word - 1), self.signed((1 << kind.bits) - 1))
        return to.xor(values, to.or_(negative, self.signed(1 << (kind.bits - 1))))

    # -- all rows --------------------------------------------------------------------------------------------------------

    def _special(self, rows: Ref) -> Ref:
        """Take rows into bounds and what is counted apart; returns how many elements they are."""
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
        to.bump(self.record, Values.ZEROS, sums["zeros"])
        if self.kind.is_float:
            to.bump(self.record, Values.NANS, to.sub(sums["count"], sums["numbers"]))
            to.bump(self.record, Values.NEGATIVE_ZEROS, sums["negative"])
        return sums["count"]

    def _summed(self, values: Ref, on: Ref) -> tuple[dict[int, Ref], dict[str, Ref]]:
        """Return the values of a row for the bounds (neutral elsewhere), and the lanes for each count."""
        to, kind = self.to, self.kind
        key = self._key(values)
        if not kind.is_float:
            bounds = {Values.MINIMUM: to.select(on, key, -1), Values.MAXIMUM: to.select(on, key, 0)}
            return bounds, {"count": on, "zeros": to.and_(on, to.icmp("eq", values, 0))}
        sign = 1 << (kind.bits - 1)
        magnitude = to.and_(values, sign - 1)
        numbers = to.and_(on, to.icmp("ule", magnitude, kind.infinity))
        bounds = {
            Values.MINIMUM: to.select(numbers, key, -1),
            Values.MAXIMUM: to.select(numbers, key, 0),
            Values.ORS: to.select(numbers, values, 0),
            # −1 for zero: the highest unsigned number
            Values.TINY: to.select(numbers, to.sub(magnitude, 1), -1),
        }
        counts = {"count": on, "numbers": numbers, "zeros": to.and_(on, to.icmp("eq", magnitude, 0))}
        return bounds, counts | {"negative": to.and_(on, to.icmp("eq", values, self.signed(sign)))}
