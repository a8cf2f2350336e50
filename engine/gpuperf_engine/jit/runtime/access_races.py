"""Runtime functions that look for races in accesses of shared memory by a whole warp, as LLVM IR; see ``races``.

Where every word was last accessed before the last barrier of all warps, or by the warp itself, a few comparisons of vectors tell
so, and the stamps are renewed. Else the clock of the warp is asked for all words, and at last everything is done lane by lane.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..ir.abi import Context, Cta, Race, State
from ..ir.emitter import LANES
from .access_text import V32, V64, Form, Text, given

__all__ = ["race_declarations", "races_function", "races_name"]


def races_name(form: Form, stores: bool) -> str:
    """Of the function for one form of access."""
    return f"races_{'store' if stores else 'load'}_{form.name}"


def race_declarations(form: Form) -> str:
    """What the functions of a form call beyond what accesses call."""
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
    """Private to the object of one form of access. ``wide``: the host has AVX-512."""
    return _Races(form, wide, stores).text()


class _Words(ABC):
    """Some words of the access, one per element of a vector. ``lanes`` are those that are accessed, ``info`` what lies behind their
    stamps."""

    def __init__(self, to: Text, count: int, lanes: str, info: str) -> None:
        self.to, self.count, self.lanes, self.info = to, count, lanes, info
        self.kind = f"<{count} x i32>"

    def some(self, test: str) -> str:
        """Whether a vector of i1 has a bit."""
        bits = self.to.op(f"bitcast <{self.count} x i1> {test} to i{self.count}")
        return self.to.op(f"icmp ne i{self.count} {bits}, 0")

    @abstractmethod
    def load(self, plane: str) -> str: ...

    @abstractmethod
    def store(self, plane: str, value: str, lanes: str) -> None: ...


class _Row(_Words):
    """Sixteen words side by side, ``offset`` bytes from the start of a plane."""

    def __init__(self, to: Text, lanes: str, info: str, offset: str) -> None:
        super().__init__(to, 16, lanes, info)
        self.offset = offset

    def load(self, plane: str) -> str:
        return self.to.op(f"load {self.kind}, ptr {self.to.place(plane, self.offset)}, align 4")

    def store(self, plane: str, value: str, lanes: str) -> None:
        place = self.to.place(plane, self.offset)
        mask = f"<{self.count} x i1> {lanes}"
        self.to.do(
            f"call void @llvm.masked.store.v16i32.p0({self.kind} {value}, ptr align 4 {place}, {mask})"
        )


class _Scattered(_Words):
    """A word of each lane, anywhere."""

    def __init__(self, to: Text, info: str, offsets: str) -> None:
        super().__init__(to, LANES, "%lanes", info)
        self.offsets = offsets

    def load(self, plane: str) -> str:
        return self.to.gather(self.to.pointers(plane, self.offsets, "i32", Form(4)), "%lanes", Form(4))

    def store(self, plane: str, value: str, lanes: str) -> None:
        self.to.scatter(value, self.to.pointers(plane, self.offsets, "i32", Form(4)), lanes, Form(4))


class _Races:
    def __init__(self, form: Form, wide: bool, stores: bool) -> None:
        self.to = Text()
        self.form, self.wide, self.stores = form, wide, stores

    def text(self) -> str:
        to, form = self.to, self.form
        value = "" if not self.stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
        to.do(
            f"define internal void @{races_name(form, self.stores)}"
            f"(ptr %ctx, i64 %site, i32 %mask, {V32} %a{value}) nounwind {{",
            "entry:",
            f"%area = alloca {V64}, align 64",
            f"%out = alloca {form.raw}, align 64",
            f"%lanes = bitcast i32 %mask to <{LANES} x i1>",
            "%mask64 = zext i32 %mask to i64",
        )
        self._inside()
        if form.size >= 4:
            self._quickly()
        else:
            to.do("br label %slow")
        to.do("slow:")
        to.do(f"store {V64} {to.op(f'zext {V32} %a to {V64}')}, ptr %area, align 64")
        place = "0"
        if self.stores and form.alone:
            to.do(f"store {form.raw} %v, ptr %out, align 64")
            place = to.number("%out")
        elif self.stores:
            place = to.number("%vals")
        items = (to.number("%ctx"), "%site", "%mask64", to.number("%area"), place, form.width, form.size)
        to.op(f"call i64 @race_lanes({given((*items, 4 if self.stores else 8))})")
        to.do("br label %end", "end:", "ret void", "}", "")
        return "\n".join(to.lines)

    def _inside(self) -> None:
        """What is refused is no access."""
        to, shift = self.to, self.form.shift
        size = to.field("%ctx", Context.SHARED_BYTES)
        indices = to.op(f"call {V32} @llvm.fshr.v{LANES}i32({V32} %a, {V32} %a, {V32} splat (i32 {shift}))")
        limit = to.splat(to.op(f"trunc i64 {to.op(f'lshr i64 {size}, {shift}')} to i32"), "i32")
        inside = to.bits(to.op(f"icmp ult {V32} {indices}, {limit}"))
        outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
        flags = to.op(f"load i8, ptr {to.place(to.field('%ctx', Context.RACE_SITES, 'ptr'), '%site')}")
        strong = to.op(f"and i8 {flags}, {Race.IS_STRONG}")
        self.record = to.field(to.field("%ctx", Context.CTA, "ptr"), Cta.RACES, "ptr")
        self.me = to.field("%ctx", Context.RACE_WARP, "ptr")
        tests = [
            to.op(f"icmp eq i32 {outside}, 0"),
            to.op("icmp ne i32 %mask, 0"),
            to.op(f"icmp ne ptr {self.me}, null"),
        ]
        to.do(f"br i1 {to.all(tests)}, label %inside, label %end", "inside:")
        far = to.op(f"icmp ne ptr {self.record}, {to.field(self.me, Race.RECORD, 'ptr')}")
        lanewise = to.op(f"or i1 {far}, {to.op(f'icmp ne i8 {strong}, 0')}")
        to.do(f"br i1 {lanewise}, label %slow, label %weak", "weak:")

    def _quickly(self) -> None:
        to, form = self.to, self.form
        warp = to.field(to.field("%ctx", Context.STATE, "ptr"), State.INDEX, "i32")
        self.clock = to.place(self.me, Race.CLOCK)
        self.stamp = to.field(self.me, Race.STAMP, "i32")
        self.base = to.field(self.me, Race.BASE, "i32")
        self.mask = to.field(self.me, Race.MASK, "i32")
        self.agent = to.op(f"and i32 {self.stamp}, 127")
        plane = to.field(self.record, Race.PLANE)
        self.planes = [to.field(self.record, Race.PLANES, "ptr")]
        for _ in range(Race.PLANES_COUNT - 1):
            self.planes.append(to.place(self.planes[-1], plane))
        site = to.op(f"shl i32 {to.op('trunc i64 %site to i32')}, 14")
        both = to.op(f"or i32 {site}, {to.op(f'shl i32 {warp}, 9')}")
        self.behind = to.op(f"or i32 {both}, {15 << 5}")
        starts = to.pick("%a", "i32", LANES, [lane & 16 for lane in range(LANES)])
        ladder = ", ".join(f"i32 {(lane & 15) * form.size}" for lane in range(LANES))
        distance = to.op(f"sub {V32} %a, {starts}")
        rows = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {V32} {distance}, <{ladder}>'))}, -1")
        lows = [to.op(f"extractelement {V32} %a, i32 {lane}") for lane in (0, 16)]
        near = [to.op(f"zext i32 {low} to i64") for low in lows]
        room = to.op(f"sub i64 {to.field('%ctx', Context.SHARED_BYTES)}, {16 * form.size}")
        tests = [rows, *(to.op(f"icmp sle i64 {place}, {room}") for place in near)]
        to.do(f"br i1 {to.all(tests)}, label %rows, label %norows", "rows:")
        words = form.size // 4
        self._way(
            "rows", [self._row(half, block, words, near[half]) for half in (0, 1) for block in range(words)]
        )
        to.do("norows:")
        if not self.wide:
            to.do("br label %slow")
            return
        lanes = self._info(range(LANES), LANES)
        places = [to.op(f"add {V32} %a, splat (i32 {4 * word})") for word in range(words)]
        self._way("loose", [_Scattered(to, lanes, place) for place in places])

    def _info(self, lanes: Sequence[int], count: int) -> str:
        numbers = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.to.op(f"or <{count} x i32> {self.to.splat(self.behind, 'i32', count)}, <{numbers}>")

    def _row(self, half: int, block: int, words: int, near: str) -> _Row:
        lanes = [16 * half + (16 * block + word) // words for word in range(16)]
        active = self.to.pick("%lanes", "i1", LANES, lanes)
        return _Row(self.to, active, self._info(lanes, 16), self.to.op(f"add i64 {near}, {64 * block}"))

    def _way(self, label: str, parts: Sequence[_Words]) -> None:
        """Compare the stamps of all words, and renew them."""
        to = self.to
        bad = self._any_late(parts, Race.WRITER)
        if self.stores:
            # where the first reader comes before the last barrier of all warps, so does the other one
            some = "false"
            for part in parts:
                after = self._after(part, part.load(self.planes[Race.READER]))
                here = to.op(f"and <{part.count} x i1> {after}, {part.lanes}")
                some = to.op(f"or i1 {some}, {part.some(here)}")
            to.do(f"br i1 {bad}, label %{label}ask, label %{label}one", f"{label}one:")
            to.do(f"br i1 {some}, label %{label}two, label %{label}good", f"{label}two:")
            read = self._any_late(parts, Race.READER)
            bad = to.op(f"or i1 {read}, {self._any_late(parts, Race.OTHER)}")
        to.do(f"br i1 {bad}, label %{label}ask, label %{label}good", f"{label}ask:")
        if self.wide:
            bad = "false"
            for part in parts:
                for plane in (Race.WRITER, Race.READER, Race.OTHER) if self.stores else (Race.WRITER,):
                    bad = to.op(f"or i1 {bad}, {self._unknown(part, part.load(self.planes[plane]))}")
            to.do(f"br i1 {bad}, label %slow, label %{label}good")
        else:
            to.do("br label %slow")
        to.do(f"{label}good:")
        for part in parts:
            stamp = to.splat(self.stamp, "i32", part.count)
            if self.stores:
                part.store(self.planes[Race.WRITER], stamp, part.lanes)
                part.store(self.planes[Race.WRITER + 1], part.info, part.lanes)
            else:
                self._read(part, stamp)
        to.do("br label %end")

    def _any_late(self, parts: Sequence[_Words], plane: int) -> str:
        """Whether any word of a plane is late (``_late``)."""
        found = "false"
        for part in parts:
            late = self._late(part, part.load(self.planes[plane]))
            late = self.to.op(f"and <{part.count} x i1> {late}, {part.lanes}")
            found = self.to.op(f"or i1 {found}, {part.some(late)}")
        return found

    def _after(self, part: _Words, stamps: str) -> str:
        """Where stamps are not earlier than the last barrier of all warps."""
        base = self.to.splat(self.base, "i32", part.count)
        return self.to.op(f"icmp uge {part.kind} {stamps}, {base}")

    def _late(self, part: _Words, stamps: str) -> str:
        """Where stamps are those of other agents since the last barrier of all warps."""
        to, count, kind = self.to, part.count, part.kind
        after = self._after(part, stamps)
        agents = to.op(f"and {kind} {stamps}, {to.splat(self.mask, 'i32', count)}")
        other = to.op(f"icmp ne {kind} {agents}, {to.splat(self.agent, 'i32', count)}")
        return to.op(f"and <{count} x i1> {after}, {other}")

    def _unknown(self, part: _Words, stamps: str) -> str:
        """Whether any of these is not known to the clock either."""
        to, count, kind = self.to, part.count, part.kind
        late = to.op(f"and <{count} x i1> {self._late(part, stamps)}, {part.lanes}")
        agents = to.op(f"and {kind} {stamps}, {to.splat(self.mask, 'i32', count)}")
        agents = to.op(f"shl {kind} {agents}, splat (i32 2)")
        pointers = to.op(f"getelementptr i8, ptr {self.clock}, {kind} {agents}")
        known = to.op(
            f"call {kind} @llvm.masked.gather.v{count}i32.v{count}p0(<{count} x ptr> align 4 {pointers}, "
            f"<{count} x i1> {late}, {kind} zeroinitializer)"
        )
        times = to.op(f"lshr {kind} {stamps}, splat (i32 8)")
        return part.some(to.op(f"and <{count} x i1> {to.op(f'icmp ugt {kind} {times}, {known}')}, {late}"))

    def _read(self, part: _Words, stamp: str) -> None:
        """A reader takes the first place if who is there comes before it, else the other."""
        to, count = self.to, part.count
        stamps = part.load(self.planes[Race.READER])
        late = self._late(part, stamps)
        early = to.op(f"xor <{count} x i1> {late}, splat (i1 true)")
        fresh = to.op(f"icmp ne {part.kind} {stamps}, {stamp}")
        for place, which in (
            (Race.READER, to.op(f"and <{count} x i1> {early}, {fresh}")),
            (Race.OTHER, late),
        ):
            lanes = to.op(f"and <{count} x i1> {which}, {part.lanes}")
            to.count += 1
            yes, no = f"put{to.count}", f"kept{to.count}"
            to.do(f"br i1 {part.some(lanes)}, label %{yes}, label %{no}", f"{yes}:")
            part.store(self.planes[place], stamp, lanes)
            part.store(self.planes[place + 1], part.info, lanes)
            to.do(f"br label %{no}", f"{no}:")
