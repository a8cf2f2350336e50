"""Counts, bounds and lines of the rows of a record, as LLVM IR; see ``values_function``."""

from __future__ import annotations

from ...simt.value_records import LINE_TRIAL, TOLERANCE
from ..ir.access_records import Values
from ..ir.operands import LANES, Ref
from .values_rows import V1, Rows

__all__ = ["Sums"]


class Sums(Rows):
    """Counts and bounds, and a line through the values."""

    @property
    def floats(self) -> bool:
        """Whether lines are those of floats."""
        return self.kind.is_float and self.kind.fits

    # -- counts and bounds -----------------------------------------------------------------------------------------------

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

    # -- a line through the values ---------------------------------------------------------------------------------------

    def line(self, rows: Ref) -> None:
        """Fits to the line through the first access and the first one at another index; of halves it is one through their bits."""
        to = self.to
        state = to.field(self.record, Values.LINE)
        to.branch(to.icmp("eq", state, Values.BROKEN), "fitted", "fit")
        to.start("fit")
        with self.each_row(rows, "lines") as row:
            fits = to.phi("i64", (0, "fit"))
            values, lanes, indices = self.values_of(row), self.lanes_in(row), self.indices_of(row)
            to.branch(to.icmp("uge", to.field(self.record, Values.LINE), Values.SLOPED), "sloped", "begin")
            to.start("begin")
            self._begin_line(values, lanes, indices)
            to.start("sloped")
            broken = to.icmp("eq", to.field(self.record, Values.LINE), Values.BROKEN)
            near = to.and_(to.bits(self._on_line(values, indices)), lanes)
            together = to.add(fits, self.popcount(to.select(broken, Ref("i32", "0"), near)))
            fits.come(together)
        cell = to.place(self.record, Values.FITS)
        fitting = to.add(to.load("i64", cell), together)
        to.store(fitting, cell)
        count = to.field(self.record, Values.COUNT)
        vain = to.and_(to.icmp("uge", count, LINE_TRIAL), to.icmp("ult", to.shl(fitting, 1), count))
        to.branch(vain, "abandon", "fitted")
        to.start("abandon")
        to.put("i64", Values.BROKEN, to.place(self.record, Values.LINE))
        to.enter("fitted")

    def _on_line(self, values: Ref, indices: Ref) -> Ref:
        """Whether values are those of the line, floats to their rounding."""
        to = self.to
        distance = to.sub(indices, to.splat(to.field(self.record, Values.LINE_INDEX, "i32")))
        base = to.splat(to.field(self.record, Values.LINE_BASE, self.scalar))
        if not self.floats:
            slope = to.splat(to.field(self.record, Values.LINE_SLOPE, self.scalar))
            along = to.sext(distance, "i64") if self.scalar == "i64" else distance
            return to.icmp("eq", to.add(base, to.mul(slope, along)), values)
        slope = to.splat(to.field(self.record, Values.LINE_SLOPE, "double"))
        origin, value = self._double(base), self._double(values)
        expected = to.fadd(origin, to.fmul(slope, to.sitofp(distance, "double")))
        off = self._absolute(to.fsub(expected, value))
        size = to.fadd(self._absolute(value), self._absolute(origin))
        allowed = to.fmul(size, f"splat (double {TOLERANCE[self.kind.bits]!r})")
        return to.fcmp("ole", off, allowed)

    def _absolute(self, value: Ref) -> Ref:
        return self.to.intrinsic(f"fabs.v{LANES}f64", value.type, value)

    def _double(self, value: Ref) -> Ref:
        """Words that are floats, as doubles."""
        to = self.to
        return to.raw(value, "double") if self.kind.bits == 64 else to.fpext(to.raw(value, "float"), "double")

    def _begin_line(self, values: Ref, lanes: Ref, indices: Ref) -> None:
        to = self.to
        to.branch(to.icmp("eq", to.field(self.record, Values.LINE), 0), "anchor", "anchored")
        to.start("anchor")
        lane = self.first(lanes)
        to.store(to.extract(indices, lane), to.place(self.record, Values.LINE_INDEX))
        to.store(to.extract(values, lane), to.place(self.record, Values.LINE_BASE))
        to.put("i64", Values.ANCHORED, to.place(self.record, Values.LINE))
        to.enter("anchored")
        first = to.field(self.record, Values.LINE_INDEX, "i32")
        elsewhere = to.and_(to.bits(to.icmp("ne", indices, to.splat(first))), lanes)
        to.branch(to.icmp("eq", elsewhere, 0), "sloped", "slope")
        to.start("slope")
        last = to.sub(Ref("i32", "31"), to.intrinsic("ctlz.i32", "i32", elsewhere, Ref("i1", "true")))
        run, value = to.sub(to.extract(indices, last), first), to.extract(values, last)
        base = to.field(self.record, Values.LINE_BASE, self.scalar)
        cell = to.place(self.record, Values.LINE_SLOPE)
        if self.floats:
            rise = to.fsub(self._double(value), self._double(base))
            to.store(to.fdiv(rise, to.sitofp(run, "double")), cell)
            to.put("i64", Values.SLOPED, to.place(self.record, Values.LINE))
        else:
            run = to.sext(run, "i64") if self.scalar == "i64" else run
            difference = to.sub(value, base)
            # a quotient of the least number and −1 would trap
            backwards = to.icmp("eq", run, -1)
            by = to.select(backwards, Ref(self.scalar, "1"), run)
            quotient = to.sdiv(difference, by)
            exact = to.icmp("eq", to.mul(quotient, by), difference)
            to.store(to.select(backwards, to.minus(difference), quotient), cell)
            broken = to.select(exact, Ref("i64", str(Values.SLOPED)), Values.BROKEN)
            to.store(broken, to.place(self.record, Values.LINE))
        to.jump("sloped")
