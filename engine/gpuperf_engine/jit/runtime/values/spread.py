"""Differences of floats from the first one of a record, as LLVM IR; see ``values.function`` and ``simt.value_records``."""

from __future__ import annotations

from ...ir.access_records import Values
from ...ir.operands import LANES, Ref
from .rows import V1, Rows

__all__ = ["Spread"]

_DOUBLES = f"<{LANES} x double>"


class Spread(Rows):
    """Sums differences and their squares by lane, as long as no difference is larger than the first value itself."""

    def spread(self, rows: Ref) -> None:
        """Add rows to the sums."""
        to = self.to
        state = to.field(self.record, Values.SPREAD)
        to.branch(to.icmp("eq", state, Values.WIDE), "spread.end", "spread.begin")
        to.start("spread.begin")
        with to.if_(to.icmp("eq", state, 0), "spread.first"):
            lane = self.first(self.lanes_in(Ref("i64", "0")))
            first = self.as_doubles(to.extract(self.values_of(Ref("i64", "0")), lane))
            to.store(first, to.place(self.record, Values.REFERENCE))
            to.put("i64", Values.NEAR, to.place(self.record, Values.SPREAD))
        before = to.block
        reference = to.splat(to.field(self.record, Values.REFERENCE, "double"))
        size = self.magnitude(reference)
        sums = {
            offset: to.load(_DOUBLES, to.place(self.record, offset), 64)
            for offset in (Values.DIFFERENCES, Values.SQUARES)
        }
        with self.each_row(rows, "spread") as row:
            differences = to.phi(_DOUBLES, (sums[Values.DIFFERENCES], before))
            squares = to.phi(_DOUBLES, (sums[Values.SQUARES], before))
            near = to.phi(V1, ("splat (i1 true)", before))
            on = to.bitcast(self.lanes_in(row), V1)
            off = to.select(on, to.fsub(self.as_doubles(self.values_of(row)), reference), "zeroinitializer")
            # false for NaN too
            nearer = to.and_(near, to.fcmp("ole", self.magnitude(off), size))
            further, squared = to.fadd(differences, off), to.fadd(squares, to.fmul(off, off))
            differences.come(further)
            squares.come(squared)
            near.come(nearer)
        to.store(further, to.place(self.record, Values.DIFFERENCES), 64)
        to.store(squared, to.place(self.record, Values.SQUARES), 64)
        with to.if_(to.icmp("ne", to.bits(nearer), -1), "spread.wide"):
            to.put("i64", Values.WIDE, to.place(self.record, Values.SPREAD))
        to.enter("spread.end")
