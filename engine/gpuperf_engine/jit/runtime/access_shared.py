"""Runtime functions for accesses of shared memory by a whole warp, as LLVM IR; see ``access``.

Whether memory was ever written is known from what it holds (``UNWRITTEN``), or in watched memory, to which pieces of words are
stored, from a shadow byte for byte. What is not written takes the slow way.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from ...isa.spaces import RANK_SHIFT
from ..ir.abi import SHAPE_BYTES, SITE_BYTES, UNWRITTEN, Context, Counter, Cta
from ..ir.emitter import LANES
from .access_races import races_name
from .access_text import V32, V64, Form, Text, finish, given, head, ones_of, slow

__all__ = ["shared_access"]


def shared_access(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Shared memory, 32-bit addresses."""
    return _Shared(name, form, wide, stores).text()


class _Shared:
    def __init__(self, name: str, form: Form, wide: bool, stores: bool) -> None:
        self.to = Text()
        self.name, self.form, self.wide, self.stores = name, form, wide, stores
        self.watched = name.startswith("watched")
        #: of loads that return a value: what each way gives, by label
        self.held: dict[str, str] = {}
        self.loose: dict[str, str] = {}

    def text(self) -> str:
        to, form = self.to, self.form
        self.value = head(to, self.name, form, self.stores, V32)
        self._races()
        cta = self.cta = to.field("%ctx", Context.CTA, "ptr")
        self.base = to.field(cta, Cta.SHARED, "ptr")
        self.shadow = to.place(self.base, to.field(cta, Cta.SHARED_SHADOW)) if self.watched else ""
        self.size = to.field("%ctx", Context.SHARED_BYTES)
        if self.watched and self.stores:
            to.do(f"store i64 1, ptr {to.place(cta, Cta.MARKED)}")
        starts = to.pick("%a", "i32", LANES, [lane & 16 for lane in range(LANES)])
        self.distance = to.op(f"sub {V32} %a, {starts}")
        self.lows = [to.op(f"extractelement {V32} %a, i32 {lane}") for lane in (0, 16)]
        self.near = [to.op(f"zext i32 {low} to i64") for low in self.lows]
        odd = to.op(f"and i32 {to.op(f'or i32 {self.lows[0]}, {self.lows[1]}')}, {form.size - 1}")
        self.aligned = to.op(f"icmp eq i32 {odd}, 0")
        self.sound = ""
        if self.stores and not self.watched:
            # pieces of words are stored to watched memory only
            narrow = form.size < 4
            self.sound = "false" if narrow else to.op(f"xor i1 {self._unwritten(self.value, '')}, true")
        self._rows()
        self._scattered()
        self._count()
        return "\n".join([*to.lines, "}", ""])

    def _races(self) -> None:
        """Look for races with other accesses first, while what is overwritten is there."""
        to, form = self.to, self.form
        flags = to.op(f"load i8, ptr {to.place(to.field('%ctx', Context.RACE_SITES, 'ptr'), '%site')}")
        to.do(f"br i1 {to.op(f'icmp eq i8 {flags}, 0')}, label %access, label %races", "races:")
        value = "" if not self.stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
        to.do(
            f"call void @{races_name(form, self.stores)}(ptr %ctx, i64 %site, i32 %mask, {V32} %a{value})",
            "br label %access",
            "access:",
        )

    # -- half warps that are consecutive or have one address -----------------------------------------------------------

    def _halves(self, places: list[str]) -> list[str]:
        """The raw halves at two places."""
        to, align = self.to, min(8, self.form.size)
        return [to.op(f"load {self.form.half()}, ptr {place}, align {align}") for place in places]

    def _whole(self, halves: list[str]) -> str:
        count = 16 * self.form.pieces
        return self.to.pick(halves[0], self.form.kind, count, range(2 * count), halves[1])

    def _rows(self) -> None:
        to, form = self.to, self.form
        ladder = ", ".join(f"i32 {(lane & 15) * form.size}" for lane in range(LANES))
        rows = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {V32} {self.distance}, <{ladder}>'))}, -1")
        self.rows = rows
        room = to.op(f"sub i64 {self.size}, {16 * form.size}")
        tests = [rows, self.aligned, *(to.op(f"icmp sle i64 {place}, {room}") for place in self.near)]
        if self.sound:
            tests.append(self.sound)
        if self.stores and not self.wide:
            tests.append(to.op("icmp eq i32 %mask, -1"))
        to.do(f"br i1 {to.all(tests)}, label %rows, label %norows", "rows:")
        places = [to.place(self.base, item) for item in self.near]
        shadows = [to.place(self.shadow, item) for item in self.near] if self.watched else []
        if self.stores:
            self._put_rows(self.value, places)
            if shadows:
                self._put_rows(f"splat ({form.kind} {ones_of(form)})", shadows)
            to.do("br label %kinds", "norows:", "br label %any")
            return
        row = self._whole(self._halves(places))
        seen = self._whole(self._halves(shadows)) if shadows else ""
        if form.size < 4 and not shadows:
            unwritten = self._blank_near(places)
        else:
            unwritten = self._unwritten(row, seen)
        self._held(row, "rows", unwritten)
        to.do("norows:")
        same = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {V32} {self.distance}, zeroinitializer'))}, -1")
        room = to.op(f"sub i64 {self.size}, {form.size}")
        tests = [same, self.aligned, *(to.op(f"icmp sle i64 {place}, {room}") for place in self.near)]
        to.do(f"br i1 {to.all(tests)}, label %same, label %any", "same:")
        places = [to.place(self.base, item) for item in self.near]
        shadows = [to.place(self.shadow, item) for item in self.near] if self.watched else []
        repeated = self._repeated(places)
        seen = self._repeated(shadows) if shadows else ""
        if form.size < 4 and not shadows:
            unwritten = self._blank_near(places)
        else:
            unwritten = self._unwritten(repeated, seen)
        self._held(repeated, "same", unwritten)

    def _held(self, raw: str, label: str, unwritten: str) -> None:
        """End a way of loading whole half warps."""
        if self.form.alone:
            self.held[label] = raw
        else:
            self.to.split(raw, self.form)
        self.to.do(f"br i1 {unwritten}, label %slow, label %kinds")

    def _repeated(self, places: list[str]) -> str:
        """What lies at two places, in all lanes of the half warps."""
        to, form = self.to, self.form
        one = f"<{form.pieces} x {form.kind}>"
        parts = [to.op(f"load {one}, ptr {place}, align {min(8, form.size)}") for place in places]
        order = [(lane >> 4) * form.pieces + part for lane in range(LANES) for part in range(form.pieces)]
        return to.pick(parts[0], form.kind, form.pieces, order, parts[1])

    def _put_rows(self, value: str, places: list[str]) -> None:
        to, form, count = self.to, self.form, 16 * self.form.pieces
        on = to.repeat("%lanes", "i1", form.pieces) if self.wide else ""
        for number, place in enumerate(places):
            part = range(number * count, (number + 1) * count)
            data = to.pick(value, form.kind, 2 * count, part)
            if self.wide:
                active = to.pick(on, "i1", 2 * count, part)
                to.do(
                    f"call void @llvm.masked.store.v{count}{form.kind}.p0({form.half()} {data}, "
                    f"ptr align {min(8, form.size)} {place}, <{count} x i1> {active})"
                )
            else:
                to.do(f"store {form.half()} {data}, ptr {place}, align {min(8, form.size)}")

    # -- any addresses ---------------------------------------------------------------------------------------------------

    def _scattered(self) -> None:
        to, form = self.to, self.form
        to.do("any:")
        if self.wide:
            shift = form.shift
            indices = to.op(
                f"call {V32} @llvm.fshr.v{LANES}i32({V32} %a, {V32} %a, {V32} splat (i32 {shift}))"
            )
            limit = to.splat(to.op(f"trunc i64 {to.op(f'lshr i64 {self.size}, {shift}')} to i32"), "i32")
            inside = to.bits(to.op(f"icmp ult {V32} {indices}, {limit}"))
            outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
            tests = [to.op(f"icmp eq i32 {outside}, 0"), *([self.sound] if self.sound else [])]
            to.do(f"br i1 {to.all(tests)}, label %gather, label %slow", "gather:")
            if self.stores:
                to.scatter(self.value, to.pointers(self.base, "%a", "i32", form), "%lanes", form)
                if self.watched:
                    ones = f"splat ({form.kind} {ones_of(form)})"
                    to.scatter(ones, to.pointers(self.shadow, "%a", "i32", form), "%lanes", form)
                to.do("br label %shapes")
            else:
                self._gather()
        else:
            to.do("br label %slow")
        to.do("slow:")
        self._of_peer()
        to.do("lanewise:")
        wide_addresses = to.op(f"zext {V32} %a to {V64}")
        slowly = slow(to, form, self.stores, wide_addresses, "1")
        if slowly:
            self.loose["lanewise"] = slowly
        to.do("br label %shapes")

    def _of_peer(self) -> None:
        """If all lanes go to one other CTA of the cluster, and may: the same access, made there. Else on to ``lanewise``."""
        to, form = self.to, self.form
        alone = to.op(f"icmp eq i64 {to.field(self.cta, Cta.CLUSTER)}, 0")
        empty = to.op("icmp eq i32 %mask, 0")
        to.do(f"br i1 {to.op(f'or i1 {alone}, {empty}')}, label %lanewise, label %ranks", "ranks:")
        window = to.op(f"trunc i64 {to.field(self.cta, Cta.WINDOW)} to i32")
        absolute = to.op(f"add {V32} %a, {to.splat(window, 'i32')}")
        lane = to.op("call i32 @llvm.cttz.i32(i32 %mask, i1 false)")
        lead = to.op(f"extractelement {V32} {absolute}, i32 {lane}")
        start = to.op(f"and i32 {lead}, {-1 << RANK_SHIFT}")
        inside = to.op(f"sub {V32} {absolute}, {to.splat(start, 'i32')}")
        near = to.bits(to.op(f"icmp ult {V32} {inside}, splat (i32 {1 << RANK_SHIFT})"))
        stray = to.op(f"and i32 %mask, {to.op(f'xor i32 {near}, -1')}")
        allowed = to.op(f"load i8, ptr {to.place(to.field('%ctx', Context.REMOTE, 'ptr'), '%site')}")
        tests = [
            to.op(f"icmp eq i32 {stray}, 0"),
            to.op(f"icmp ne i32 {start}, {window}"),
            to.op(f"icmp ne i8 {allowed}, 0"),
        ]
        to.do(f"br i1 {to.all(tests)}, label %peer, label %lanewise", "peer:")
        own = to.number(self.cta)
        wide = [to.op(f"zext i32 {number} to i64") for number in (lane, lead)]
        items = (to.number("%ctx"), own, "%site", *wide, 0)
        peer = to.op(f"call i64 @cluster_cta({given(items)})")
        to.do(f"br i1 {to.op(f'icmp eq i64 {peer}, 0')}, label %lanewise, label %there", "there:")
        cell = to.place("%ctx", Context.CTA)
        to.do(f"store i64 {peer}, ptr {cell}")
        arguments = f"ptr %ctx, i64 %site, i32 %mask, {V32} {inside}"
        if not form.alone:
            arguments += ", ptr %vals"
        elif self.stores:
            arguments += f", {form.raw} %v"
        made = ""
        if form.alone and not self.stores:
            made = to.op(f"call {form.raw} @{self.name}({arguments})")
        else:
            to.do(f"call void @{self.name}({arguments})")
        to.do(f"store i64 {own}, ptr {cell}")
        finish(to, form, self.stores, made)

    def _gather(self) -> None:
        to, form = self.to, self.form
        if form.size < 4:
            words = to.op(f"and {V32} %a, splat (i32 -4)")
            shift = to.op(f"shl {V32} {to.op(f'and {V32} %a, splat (i32 3)')}, splat (i32 3)")
            word = Form(4)
            found = to.gather(to.pointers(self.base, words, "i32", word), "%lanes", word)
            raw = self._cut(found, shift)
            if self.watched:
                seen = self._cut(
                    to.gather(to.pointers(self.shadow, words, "i32", word), "%lanes", word), shift
                )
                unwritten = self._unwritten(raw, seen)
            else:
                blank = to.op(f"icmp eq {V32} {found}, splat (i32 {UNWRITTEN})")
                unwritten = to.op(f"icmp ne i32 {to.op(f'and i32 {to.bits(blank)}, %mask')}, 0")
        else:
            raw = to.gather(to.pointers(self.base, "%a", "i32", form), "%lanes", form)
            seen = ""
            if self.watched:
                seen = to.gather(to.pointers(self.shadow, "%a", "i32", form), "%lanes", form)
            unwritten = self._unwritten(raw, seen)
        if form.alone:
            self.loose["gather"] = raw
        else:
            to.split(raw, form)
        to.do(f"br i1 {unwritten}, label %slow, label %shapes")

    def _cut(self, words: str, shift: str) -> str:
        """The bytes of an access of less than a word."""
        moved = self.to.op(f"lshr {V32} {words}, {shift}")
        return self.to.op(f"trunc {V32} {moved} to {self.form.raw}")

    # -- what was never written --------------------------------------------------------------------------------------------

    def _unwritten(self, raw: str, seen: str) -> str:
        """Whether an active lane has a byte that was never written (or holds what unwritten words hold)."""
        to, form = self.to, self.form
        if self.watched:
            count = LANES * form.pieces
            bad = to.op(f"icmp ne {form.raw} {seen}, splat ({form.kind} {ones_of(form)})")
        else:
            count = LANES * form.size // 4
            words = to.op(f"bitcast {form.raw} {raw} to <{count} x i32>")
            bad = to.op(f"icmp eq <{count} x i32> {words}, splat (i32 {UNWRITTEN})")
        on = to.repeat("%lanes", "i1", count // LANES)
        active = to.op(f"and <{count} x i1> {bad}, {on}")
        return to.op(f"icmp ne i{count} {to.op(f'bitcast <{count} x i1> {active} to i{count}')}, 0")

    def _blank_near(self, places: list[str]) -> str:
        """The same for rows of pieces of words: whether any word there holds what unwritten words hold."""
        to, count = self.to, 16 * self.form.size // 4 + 1
        found = []
        for place in places:
            number = to.op(f"and i64 {to.number(place)}, -4")
            pointer = to.op(f"inttoptr i64 {number} to ptr")
            words = to.op(f"load <{count} x i32>, ptr {pointer}, align 4")
            blank = to.op(f"icmp eq <{count} x i32> {words}, splat (i32 {UNWRITTEN})")
            found.append(to.op(f"icmp ne i{count} {to.op(f'bitcast <{count} x i1> {blank} to i{count}')}, 0"))
        return to.op(f"or i1 {found[0]}, {found[1]}")

    # -- wavefronts --------------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Wavefronts follow from the mask and the lanes' distances: those of the last access of the site are remembered."""
        to, form = self.to, self.form
        returns = form.alone and not self.stores
        raw = form.raw

        def joined(values: dict[str, str]) -> str:
            if not returns:
                return ""
            return to.op(
                f"phi {raw} " + ", ".join(f"[ {value}, %{label} ]" for label, value in values.items())
            )

        to.do("kinds:")
        held = joined(self.held)
        flag = to.field("%ctx", Context.COUNTING)
        to.do(f"br i1 {to.op(f'icmp eq i64 {flag}, 0')}, label %end, label %memo", "memo:")
        shape = self._shape()
        apart = to.op(f"zext i32 {to.op(f'sub i32 {self.lows[1]}, {self.lows[0]}')} to i64")
        key = to.op(f"or i64 {to.op(f'shl i64 {apart}, 2')}, {to.op(f'select i1 {self.rows}, i64 1, i64 2')}")
        hit = to.op(f"icmp eq i64 {key}, {to.field(shape, 144)}")
        hit = to.op(f"and i1 {hit}, {to.op(f'icmp eq i64 %mask64, {to.field(shape, 128)}')}")
        to.do(f"br i1 {hit}, label %known, label %fresh", "fresh:")
        to.do(f"store i64 {key}, ptr {to.place(shape, 144)}", "br label %measure")
        to.do("shapes:")
        loose = joined(self.loose)
        flag = to.field("%ctx", Context.COUNTING)
        to.do(f"br i1 {to.op(f'icmp eq i64 {flag}, 0')}, label %end, label %compare", "compare:")
        shape2 = self._shape()
        start = to.splat(to.op(f"and i32 {self.lows[0]}, -4"), "i32")
        relative = to.op(f"sub {V32} %a, {start}")
        differs = to.bits(to.op(f"icmp ne {V32} {relative}, {to.op(f'load {V32}, ptr {shape2}, align 64')}"))
        alike = to.op(f"icmp eq i32 {to.op(f'and i32 {differs}, %mask')}, 0")
        alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 %mask64, {to.field(shape2, 128)}')}")
        alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 3, {to.field(shape2, 144)}')}")
        to.do(f"br i1 {alike}, label %known2, label %renew", "renew:")
        to.do(
            f"store {V32} {relative}, ptr {shape2}, align 64",
            f"store i64 3, ptr {to.place(shape2, 144)}",
            "br label %measure",
        )
        to.do("known2:", "br label %known", "measure:")
        shape3 = to.op(f"phi ptr [ {shape}, %fresh ], [ {shape2}, %renew ]")
        value3 = joined({"fresh": held, "renew": loose})
        to.do(
            f"store i64 %mask64, ptr {to.place(shape3, 128)}",
            f"store {V64} {to.op(f'zext {V32} %a to {V64}')}, ptr %area, align 64",
        )
        items = (to.number("%ctx"), "%site", "%mask64", to.number("%area"), form.size, int(not self.stores))
        measured = to.op(f"call i64 @count_wavefronts({given(items)})")
        to.do(f"store i64 {measured}, ptr {to.place(shape3, 136)}", "br label %end", "known:")
        shape4 = to.op(f"phi ptr [ {shape}, %memo ], [ {shape2}, %known2 ]")
        value4 = joined({"memo": held, "known2": loose})
        result = to.field(shape4, 136)
        record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
        to.bump(record, Counter.WAVEFRONTS, to.op(f"and i64 {result}, 63"))
        to.bump(record, Counter.IDEAL, to.op(f"lshr i64 {result}, 6"))
        to.do("br label %end", "end:")
        finish(
            to,
            form,
            self.stores,
            joined({"kinds": held, "shapes": loose, "measure": value3, "known": value4}),
        )

    def _shape(self) -> str:
        to = self.to
        return to.place(to.field("%ctx", Context.SHAPES, "ptr"), to.op(f"mul i64 %site, {SHAPE_BYTES}"))
