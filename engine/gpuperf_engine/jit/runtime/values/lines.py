"""An affine function of the index through the values of a record, as LLVM IR; see ``values.function`` and ``simt.value_records``."""

from __future__ import annotations

from ....simt.value_records import FAR, LINE_TRIAL, LINES, TOLERANCE
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref
from .rows import V1, V32, Rows

__all__ = ["Lines"]

_NONE = Ref(V32, "zeroinitializer")
_FAR = Ref("i32", str(FAR - (1 << 32)))


class Lines(Rows):
    """Counts accesses that agree with a function fitted through the first of them."""

    @property
    def floats(self) -> bool:
        """Whether the function is one of floats."""
        return self.kind.is_float and self.kind.fits

    def line(self, rows: Ref) -> None:
        """Compare rows with the function. For halves it is a function of their bits."""
        to = self.to
        to.branch(self._has_state(Values.BROKEN), "fitted", "fit")
        to.start("fit")
        flat = to.icmp("eq", to.field(self.record, Values.ROW, "i32"), 0)
        to.branch(to.and_(self._has_state(Values.SLOPED), flat), "steady", "rows.each")
        to.start("steady")
        fits, seen, far = self._steady(rows)
        to.branch(to.icmp("eq", far, 0), "summed", "rows.each")
        to.start("summed")
        to.bump(self.record, Values.FITS, fits)
        to.bump(self.record, Values.SEEN, seen)
        to.jump("trial")
        to.start("rows.each")
        self._each(rows)
        to.enter("trial")
        seen, fits = to.field(self.record, Values.SEEN), to.field(self.record, Values.FITS)
        enough = to.and_(self._has_state(Values.SLOPED), to.icmp("uge", seen, LINE_TRIAL))
        with to.if_(to.and_(enough, to.icmp("ult", to.shl(fits, 1), seen)), "vain"):
            self._again()
        to.enter("fitted")

    def _steady(self, rows: Ref) -> tuple[Ref, Ref, Ref]:
        """Return how many accesses of the rows agree with the fitted function, how many there are, and the lanes through which it
        is to be refitted."""
        to, before = self.to, self.to.block
        first = to.splat(to.field(self.record, Values.LINE_INDEX, "i32"))
        farther = to.splat(to.field(self.record, Values.FARTHER[0], "i32"))
        line = self._line()
        with self.each_row(rows, "steadily") as row:
            fits, seen = (to.phi("i64", (0, before)) for _ in range(2))
            far = to.phi("i32", (0, before))
            values, lanes = self.values_of(row), self.lanes_in(row)
            distances = to.sub(self.indices_of(row), first)
            near = to.and_(to.bits(self._near(values, self._risen(0, distances), *line)), lanes)
            fitting = to.add(fits, self.popcount(near))
            counted = to.add(seen, self.popcount(lanes))
            away = to.or_(far, to.and_(to.bits(to.icmp("uge", self._length(distances), farther)), lanes))
            fits.come(fitting)
            seen.come(counted)
            far.come(away)
        return fitting, counted, away

    def _each(self, rows: Ref) -> None:
        """Process rows one by one, each with its updates of the function."""
        to = self.to
        with self.each_row(rows, "lines") as row:
            values, lanes, indices = self.values_of(row), self.lanes_in(row), self.indices_of(row)
            to.branch(self._has_state(Values.BROKEN), "line.next", "line.row")
            to.start("line.row")
            with to.if_(to.icmp("eq", to.field(self.record, Values.LINE), 0), "anchor"):
                self._anchor(values, lanes, indices)
            distances = self._distances(indices)
            before = to.field(self.record, Values.LINE)
            self._draw(0, values, lanes, distances)
            with to.if_(to.icmp("ne", to.field(self.record, Values.ROW, "i32"), 0), "beyond"):
                for axis in (1, 2):
                    self._draw(axis, values, lanes, distances)
            near, known = (to.and_(to.bits(test), lanes) for test in self._on_line(values, distances))
            fits = self.popcount(near)
            begins = to.and_(to.icmp("ne", before, Values.SLOPED), self._has_state(Values.SLOPED))
            few = to.icmp("ult", to.shl(fits, 1), self.popcount(known))
            to.branch(to.and_(begins, few), "line.vain", "line.taken")
            to.start("line.taken")
            to.bump(self.record, Values.FITS, fits)
            to.bump(self.record, Values.SEEN, self.popcount(lanes))
            to.jump("line.next")
            to.start("line.vain")
            self._again()
            to.enter("line.next")

    def _has_state(self, state: int) -> Ref:
        return self.to.icmp("eq", self.to.field(self.record, Values.LINE), state)

    def _anchor(self, values: Ref, lanes: Ref, indices: Ref) -> None:
        """Start the function at the first access of a row."""
        to = self.to
        lane = self.first(lanes)
        to.store(to.extract(indices, lane), to.place(self.record, Values.LINE_INDEX))
        to.store(to.extract(values, lane), to.place(self.record, Values.LINE_BASE))
        to.put("i64", Values.ANCHORED, to.place(self.record, Values.LINE))
        for axis in range(3):
            to.put("i64", 0, to.place(self.record, Values.SLOPES[axis]))
            to.put("i32", 1, to.place(self.record, Values.FARTHER[axis]))
        to.put("i32", 1, to.place(self.record, Values.RUN))

    def _again(self) -> None:
        """Fit another function through the next row, unless the number of tries is used up."""
        to = self.to
        tries = to.add(to.field(self.record, Values.TRIES), 1)
        to.store(tries, to.place(self.record, Values.TRIES))
        last = to.icmp("uge", tries, LINES)
        state = to.select(last, Ref("i64", str(Values.BROKEN)), 0)
        to.store(state, to.place(self.record, Values.LINE))
        to.put("i64", 0, to.place(self.record, Values.FITS))
        to.put("i64", 0, to.place(self.record, Values.SEEN))

    # -- distances -------------------------------------------------------------------------------------------------------

    def _distances(self, indices: Ref) -> list[Ref]:
        """Return the distances of the lanes from the first access, along each axis of the object."""
        to = self.to
        first = to.field(self.record, Values.LINE_INDEX, "i32")
        flat, grid, done = to.label("flat"), to.label("grid"), to.label("distances")
        row = to.field(self.record, Values.ROW, "i32")
        to.branch(to.icmp("eq", row, 0), flat, grid)
        to.start(flat)
        along = to.sub(indices, to.splat(first))
        to.jump(done)
        to.start(grid)
        plane = to.field(self.record, Values.PLANE, "i32")
        own = self._coordinates(indices, to.splat(plane), to.splat(row))
        origin = [to.splat(item) for item in self._coordinates(first, plane, row)]
        distances = [to.sub(here, there) for here, there in zip(own, origin, strict=True)]
        to.enter(done)
        first_axis = to.phi(V32, (along, flat), (distances[0], grid))
        return [first_axis, *(to.phi(V32, (_NONE, flat), (item, grid)) for item in distances[1:])]

    def _coordinates(self, index: Ref, plane: Ref, row: Ref) -> tuple[Ref, Ref, Ref]:
        z = self._quotient(index, plane)
        rest = self.to.sub(index, self.to.mul(z, plane))
        y = self._quotient(rest, row)
        return self.to.sub(rest, self.to.mul(y, row)), y, z

    def _quotient(self, a: Ref, b: Ref) -> Ref:
        """Divide numbers of 32 bits as doubles, which is exact and has vector instructions."""
        to = self.to
        return to.fptoui(to.fdiv(to.uitofp(a, "double"), to.uitofp(b, "double")), "i32")

    # -- slopes ----------------------------------------------------------------------------------------------------------

    def _draw(self, axis: int, values: Ref, lanes: Ref, distances: list[Ref]) -> None:
        """Fit the slope along an axis by the last lane that is far enough from the first access and has no distance along other
        axes of unknown slope."""
        to = self.to
        others = [item for item in range(3) if item != axis]
        farther = to.field(self.record, Values.FARTHER[axis], "i32")
        length = self._length(distances[axis])
        far = to.and_(to.bits(to.icmp("uge", length, to.splat(farther))), lanes)
        with to.if_(to.icmp("ne", far, 0), "draw"):
            off = to.or_(*(to.bits(self._unknown(item, distances[item])) for item in others))
            usable = to.and_(far, to.xor(off, -1))
            with to.if_(to.icmp("ne", usable, 0), "slope"):
                last = to.sub(Ref("i32", "31"), to.intrinsic("ctlz.i32", "i32", usable, Ref("i1", "true")))
                run = to.extract(distances[axis], last)
                beside = [(item, to.extract(distances[item], last)) for item in others]
                slope = self._float_slope if self.floats else self._whole_slope
                slope(axis, to.extract(values, last), run, beside, farther)

    def _length(self, distances: Ref) -> Ref:
        return self.to.intrinsic(f"abs.v{LANES}i32", V32, distances, Ref("i1", "false"))

    def _unknown(self, axis: int, distances: Ref) -> Ref:
        """Test which lanes have a distance along an axis of unknown slope."""
        to = self.to
        unknown = to.icmp("eq", to.field(self.record, Values.FARTHER[axis], "i32"), 1)
        return to.and_(to.icmp("ne", distances, 0), to.splat(unknown))

    def _drawn(self, axis: int, slope: Ref, farther: Ref) -> None:
        to = self.to
        to.store(slope, to.place(self.record, Values.SLOPES[axis]))
        to.store(farther, to.place(self.record, Values.FARTHER[axis]))
        to.put("i64", Values.SLOPED, to.place(self.record, Values.LINE))

    def _whole_slope(
        self, axis: int, value: Ref, run: Ref, beside: list[tuple[int, Ref]], farther: Ref
    ) -> None:
        """Fit an integer slope; along the only axis it may be per several elements, as in an array of structures."""
        to = self.to
        rise = to.sub(value, to.field(self.record, Values.LINE_BASE, self.scalar))
        for item, distance in beside:
            known = to.field(self.record, Values.SLOPES[item], self.scalar)
            rise = to.sub(rise, to.mul(known, self._along(distance)))
        negative = to.icmp("slt", run, 0)
        rise, run = (to.select(negative, to.minus(item), item) for item in (rise, run))
        by = self._along(run)
        quotient = to.sdiv(rise, by)
        exact = to.icmp("eq", to.mul(quotient, by), rise)
        whole, part, after = to.label("whole"), to.label("part"), to.label("drawn")
        to.branch(exact, whole, part)
        to.start(part)
        if axis == 0:
            only = to.label("only")
            to.branch(to.icmp("eq", to.field(self.record, Values.ROW, "i32"), 0), only, "line.vain")
            to.start(only)
            to.store(run, to.place(self.record, Values.RUN))
            self._drawn(axis, rise, _FAR)
            to.jump(after)
        else:
            to.jump("line.vain")
        to.start(whole)
        self._drawn(axis, quotient, _FAR)
        to.enter(after)

    def _float_slope(
        self, axis: int, value: Ref, run: Ref, beside: list[tuple[int, Ref]], farther: Ref
    ) -> None:
        """Fit a slope of floats; while accesses agree with it, refit through ones twice as far away, which are more exact."""
        to = self.to
        (a, by_a), (b, by_b) = beside
        origin = self.as_doubles(to.field(self.record, Values.LINE_BASE, self.scalar))
        there = self.as_doubles(value)
        known = to.fadd(
            *(
                to.fmul(to.field(self.record, Values.SLOPES[item], "double"), to.sitofp(distance, "double"))
                for item, distance in ((a, by_a), (b, by_b))
            )
        )
        slope = to.fdiv(to.fsub(to.fsub(there, origin), known), to.sitofp(run, "double"))
        before = to.field(self.record, Values.SLOPES[axis], "double")
        moved = to.fmul(self.magnitude(to.fsub(slope, before)), to.uitofp(to.lshr(farther, 1), "double"))
        size = to.fadd(self.magnitude(there), self.magnitude(origin))
        agrees = to.fcmp("ole", moved, to.fmul(size, f"{TOLERANCE[self.kind.bits]!r}"))
        with to.if_(to.or_(agrees, to.icmp("eq", farther, 1)), "drawn"):
            length = to.intrinsic("abs.i32", "i32", run, Ref("i1", "false"))
            self._drawn(axis, slope, to.shl(length, 1))

    def _along(self, distance: Ref) -> Ref:
        return self.to.sext(distance, "i64") if self.scalar == "i64" else distance

    # -- fits ------------------------------------------------------------------------------------------------------------

    def _on_line(self, values: Ref, distances: list[Ref]) -> tuple[Ref, Ref]:
        """Return whether values are those of the function (floats up to rounding), and whether its slopes there are known."""
        to = self.to
        flat, grid, done = to.label("flat"), to.label("grid"), to.label("on")
        to.branch(to.icmp("eq", to.field(self.record, Values.ROW, "i32"), 0), flat, grid)
        to.start(flat)
        along = self._risen(0, distances[0])
        to.jump(done)
        to.start(grid)
        x, y, z = (self._risen(axis, distances[axis]) for axis in range(3))
        together = to.fadd(to.fadd(x, y), z) if self.floats else to.add(to.add(x, y), z)
        off = [self._unknown(axis, distances[axis]) for axis in range(3)]
        known = to.not_(to.or_(to.or_(off[0], off[1]), off[2]))
        to.enter(done)
        rise = to.phi(along.type, (along, flat), (together, grid))
        on = to.phi(V1, ("splat (i1 true)", flat), (known, grid))
        return to.and_(self._near(values, rise, *self._line()), on), on

    def _line(self) -> tuple[Ref, Ref]:
        """Return the value of the first access, and the number of elements per integer slope."""
        to = self.to
        base = to.splat(to.field(self.record, Values.LINE_BASE, self.scalar))
        if self.floats:
            base = self.as_doubles(base)
        return base, to.splat(self._along(to.field(self.record, Values.RUN, "i32")))

    def _near(self, values: Ref, rise: Ref, base: Ref, run: Ref) -> Ref:
        """Test whether values are ``rise`` above the first one, up to rounding."""
        to = self.to
        if not self.floats:
            return to.icmp("eq", to.mul(to.sub(values, base), run), rise)
        value = self.as_doubles(values)
        off_by = self.magnitude(to.fsub(to.fadd(base, rise), value))
        size = to.fadd(self.magnitude(value), self.magnitude(base))
        return to.fcmp("ole", off_by, to.fmul(size, f"splat (double {TOLERANCE[self.kind.bits]!r})"))

    def _risen(self, axis: int, distances: Ref) -> Ref:
        to = self.to
        slope = to.splat(to.field(self.record, Values.SLOPES[axis], "double" if self.floats else self.scalar))
        if self.floats:
            return to.fmul(slope, to.sitofp(distances, "double"))
        return to.mul(slope, self._along(distances))
