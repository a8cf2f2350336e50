"""Runtime functions that check accesses to shared memory by a whole warp for races, as LLVM IR; see ``races.clocks``.

If every word was last accessed before the last barrier of all warps, or by the warp itself, a few vector comparisons suffice to update
the epochs. Else the epochs are compared with the clock of the warp, and last the access is checked lane by lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ...ir.abi import Context, Cta, State
from ...ir.operands import LANES, Ref, numbers, vector_of
from ...ir.race_records import Race, RaceWarp
from .text import ACTIVE, MASK, MASK64, NEAR, SITE, V32, AccessEmitter, Form, begin, stored_at

__all__ = ["race_declarations", "races_function", "races_name"]


def races_name(form: Form, stores: bool) -> str:
    """Return the name of the function for one form of access."""
    return f"races_{'store' if stores else 'load'}_{form.name}"


def race_declarations(form: Form) -> str:
    """Return declarations of the functions that race checks of a form call, beyond those of accesses."""
    found = ["declare i64 @race_lanes(i64, i64, i64, i64, i64, i64, i64, i64)"]
    for count in (16, LANES):
        vector, pointers, mask, name = (
            f"<{count} x i32>",
            f"<{count} x ptr>",
            f"<{count} x i1>",
            f"v{count}i32",
        )
        found += [
            f"declare void @llvm.masked.store.{name}.p0({vector}, ptr, {mask})",
            f"declare {vector} @llvm.masked.gather.{name}.v{count}p0({pointers}, {mask}, {vector})",
            f"declare void @llvm.masked.scatter.{name}.v{count}p0({vector}, {pointers}, {mask})",
        ]
    return "\n".join([*found, ""])


def races_function(form: Form, wide: bool, stores: bool) -> str:
    """Return the function, private to the object of one form of access. ``wide``: the host has AVX-512."""
    return _Races(form, wide, stores).text()


class _Words(ABC):
    """Some words of the access, one per element of a vector. ``lanes``: those that are accessed; ``info``: the details of their
    epochs."""

    def __init__(self, to: AccessEmitter, count: int, lanes: Ref, info: Ref) -> None:
        self.to, self.count, self.lanes, self.info = to, count, lanes, info
        self.kind = vector_of(count, "i32")

    def some(self, test: Ref) -> Ref:
        """Whether any element of a vector of i1 is set."""
        return self.to.any(test)

    @abstractmethod
    def load(self, plane: Ref) -> Ref: ...

    @abstractmethod
    def store(self, plane: Ref, value: Ref, lanes: Ref) -> None: ...


class _Row(_Words):
    """Sixteen consecutive words, ``offset`` bytes from the start of a plane."""

    def __init__(self, to: AccessEmitter, lanes: Ref, info: Ref, offset: Ref) -> None:
        super().__init__(to, 16, lanes, info)
        self.offset = offset

    def load(self, plane: Ref) -> Ref:
        return self.to.load(self.kind, self.to.place(plane, self.offset), 4)

    def store(self, plane: Ref, value: Ref, lanes: Ref) -> None:
        self.to.masked_store(value, self.to.place(plane, self.offset), lanes, 4)


class _Scattered(_Words):
    """A word of each lane, at any addresses."""

    def __init__(self, to: AccessEmitter, info: Ref, offsets: Ref) -> None:
        super().__init__(to, LANES, ACTIVE, info)
        self.offsets = offsets

    def load(self, plane: Ref) -> Ref:
        return self.to.gather(self.to.pointers(plane, self.offsets, Form(4)), ACTIVE, Form(4))

    def store(self, plane: Ref, value: Ref, lanes: Ref) -> None:
        self.to.scatter(value, self.to.pointers(plane, self.offsets, Form(4)), lanes, Form(4))


class _Races:
    def __init__(self, form: Form, wide: bool, stores: bool) -> None:
        self.to = AccessEmitter()
        self.form, self.wide, self.stores = form, wide, stores

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self._inside()
        if 4 <= form.size < 16:
            self._quickly()
        else:
            to.jump("slow")
        to.start("slow")
        to.store(to.zext(NEAR, "i64"), "%area", 64)
        values = stored_at(to, form) if self.stores else 0
        items = (to.number("%ctx"), SITE, MASK64, to.number("%area"), values, form.width, form.size)
        to.run("race_lanes", (*items, 4 if self.stores else 8))
        to.enter("end")
        to.give()
        value = "" if not self.stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
        name = races_name(form, self.stores)
        return to.function(f"internal void @{name}(ptr %ctx, i64 %site, i32 %mask, {V32} %a{value})")

    def _inside(self) -> None:
        """Skip the check of invalid accesses."""
        to, shift = self.to, self.form.shift
        size = to.context(Context.SHARED_BYTES)
        indices = to.rotated(NEAR, shift)
        outside = to.outside(indices, to.trunc(to.lshr(size, shift), "i32"))
        flags = to.race_flags()
        strong = to.and_(flags, Race.IS_STRONG)
        self.record = to.field(to.context(Context.CTA, "ptr"), Cta.RACES, "ptr")
        self.me = to.context(Context.RACE_WARP, "ptr")
        tests = [to.icmp("eq", outside, 0), to.icmp("ne", MASK, 0), to.icmp("ne", self.me, "null")]
        to.branch(to.all(tests), "inside", "end")
        to.start("inside")
        far = to.icmp("ne", self.record, to.field(self.me, RaceWarp.RECORD, "ptr"))
        lanewise = to.or_(far, to.icmp("ne", strong, 0))
        to.branch(lanewise, "slow", "weak")
        to.start("weak")

    def _quickly(self) -> None:
        to, form = self.to, self.form
        warp = to.field(to.context(Context.STATE, "ptr"), State.INDEX, "i32")
        self.clock = to.place(self.me, RaceWarp.CLOCK)
        self.epoch = to.field(self.me, RaceWarp.EPOCH, "i32")
        self.base = to.field(self.me, RaceWarp.BASE, "i32")
        self.mask = to.field(self.me, RaceWarp.MASK, "i32")
        self.agent = to.and_(self.epoch, 127)
        plane = to.field(self.record, Race.PLANE)
        self.planes = [to.field(self.record, Race.PLANES, "ptr")]
        for _ in range(Race.PLANES_COUNT - 1):
            self.planes.append(to.place(self.planes[-1], plane))
        site = to.shl(to.trunc(SITE, "i32"), 14)
        both = to.or_(site, to.shl(warp, 9))
        self.behind = to.or_(both, 15 << 5)
        starts = to.pick(NEAR, [lane & 16 for lane in range(LANES)])
        ladder = numbers("i32", [(lane & 15) * form.size for lane in range(LANES)])
        distance = to.sub(NEAR, starts)
        rows = to.icmp("eq", to.bits(to.icmp("eq", distance, ladder)), -1)
        lows = [to.extract(NEAR, lane) for lane in (0, 16)]
        near = [to.zext(low, "i64") for low in lows]
        room = to.sub(to.context(Context.SHARED_BYTES), 16 * form.size)
        tests = [rows, *(to.icmp("sle", place, room) for place in near)]
        to.branch(to.all(tests), "rows", "norows")
        to.start("rows")
        words = form.size // 4
        self._way(
            "rows", [self._row(half, block, words, near[half]) for half in (0, 1) for block in range(words)]
        )
        to.start("norows")
        if not self.wide:
            to.jump("slow")
            return
        lanes = self._info(range(LANES), LANES)
        places = [to.add(NEAR, 4 * word) for word in range(words)]
        self._way("loose", [_Scattered(to, lanes, place) for place in places])

    def _info(self, lanes: Sequence[int], count: int) -> Ref:
        return self.to.or_(self.to.splat(self.behind, count), numbers("i32", lanes))

    def _row(self, half: int, block: int, words: int, near: Ref) -> _Row:
        lanes = [16 * half + (16 * block + word) // words for word in range(16)]
        active = self.to.pick(ACTIVE, lanes)
        return _Row(self.to, active, self._info(lanes, 16), self.to.add(near, 64 * block))

    def _way(self, label: str, parts: Sequence[_Words]) -> None:
        """Compare the epochs of all words, and update them."""
        to = self.to
        bad = self._any_late(parts, Race.WRITER)
        if self.stores:
            # where the first reader precedes the last barrier of all warps, so does the other one
            some = Ref("i1", "false")
            for part in parts:
                after = self._after(part, part.load(self.planes[Race.READER]))
                here = to.and_(after, part.lanes)
                some = to.or_(some, part.some(here))
            to.branch(bad, f"{label}ask", f"{label}one")
            to.start(f"{label}one")
            to.branch(some, f"{label}two", f"{label}good")
            to.start(f"{label}two")
            read = self._any_late(parts, Race.READER)
            bad = to.or_(read, self._any_late(parts, Race.OTHER))
        to.branch(bad, f"{label}ask", f"{label}good")
        to.start(f"{label}ask")
        if self.wide:
            bad = Ref("i1", "false")
            for part in parts:
                for plane in (Race.WRITER, Race.READER, Race.OTHER) if self.stores else (Race.WRITER,):
                    bad = to.or_(bad, self._unknown(part, part.load(self.planes[plane])))
            to.branch(bad, "slow", f"{label}good")
        else:
            to.jump("slow")
        to.start(f"{label}good")
        for part in parts:
            epoch = to.splat(self.epoch, part.count)
            if self.stores:
                part.store(self.planes[Race.WRITER], epoch, part.lanes)
                part.store(self.planes[Race.WRITER + 1], part.info, part.lanes)
            else:
                self._read(part, epoch)
        to.jump("end")

    def _any_late(self, parts: Sequence[_Words], plane: int) -> Ref:
        """Whether any word of a plane is late (``_late``)."""
        found = Ref("i1", "false")
        for part in parts:
            late = self._late(part, part.load(self.planes[plane]))
            late = self.to.and_(late, part.lanes)
            found = self.to.or_(found, part.some(late))
        return found

    def _after(self, part: _Words, epochs: Ref) -> Ref:
        """Test which epochs are not earlier than the last barrier of all warps."""
        base = self.to.splat(self.base, part.count)
        return self.to.icmp("uge", epochs, base)

    def _late(self, part: _Words, epochs: Ref) -> Ref:
        """Test which epochs are those of other agents since the last barrier of all warps."""
        to, count = self.to, part.count
        after = self._after(part, epochs)
        agents = to.and_(epochs, to.splat(self.mask, count))
        other = to.icmp("ne", agents, to.splat(self.agent, count))
        return to.and_(after, other)

    def _unknown(self, part: _Words, epochs: Ref) -> Ref:
        """Whether any of these epochs is not covered by the clock either."""
        to, count = self.to, part.count
        late = to.and_(self._late(part, epochs), part.lanes)
        agents = to.and_(epochs, to.splat(self.mask, count))
        agents = to.shl(agents, 2)
        pointers = to.pointers(self.clock, agents, Form(4))
        known = to.gather(pointers, late, Form(4))
        times = to.lshr(epochs, 8)
        return part.some(to.and_(to.icmp("ugt", times, known), late))

    def _read(self, part: _Words, epoch: Ref) -> None:
        """Store a reader as the first one if the present first reader happened before it, else as the second one."""
        to = self.to
        epochs = part.load(self.planes[Race.READER])
        late = self._late(part, epochs)
        early = to.not_(late)
        fresh = to.icmp("ne", epochs, epoch)
        for place, which in ((Race.READER, to.and_(early, fresh)), (Race.OTHER, late)):
            lanes = to.and_(which, part.lanes)
            with to.if_(part.some(lanes), "put"):
                part.store(self.planes[place], epoch, lanes)
                part.store(self.planes[place + 1], part.info, lanes)
