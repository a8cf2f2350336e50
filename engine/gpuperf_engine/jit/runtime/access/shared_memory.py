"""Runtime functions for accesses to shared memory by a whole warp, as LLVM IR; see ``access``.

Unwritten memory is detected by its fill pattern (``UNWRITTEN``), or in watched memory, to which the program stores parts of words,
by a shadow of one byte per byte. Accesses to unwritten memory take the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....isa.spaces import RANK_SHIFT
from ...ir.abi import UNWRITTEN, Context, Cta
from ...ir.access_records import SITE_BYTES, Counter, GlobalShape, SharedShape
from ...ir.operands import LANES, Ref, numbers, vector_of
from .races import races_name
from .text import (
    ACTIVE,
    MASK,
    MASK64,
    NEAR,
    SITE,
    V32,
    AccessEmitter,
    Form,
    begin,
    busy,
    choice,
    finish,
    head_of,
    pass_on,
    plain_name,
    slow,
    stored,
    whole_name,
)

__all__ = ["shared_access"]

_WORD = Form(4)


def shared_access(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Return the function for shared memory, with 32-bit addresses. It takes the common paths of launches that observe nothing, and
    needs no stack; for all others it calls another one, which also serves the shared memory of other CTAs."""
    whole = _Shared(name, form, wide, stores)
    whole.name = whole_name(name)
    text = whole.text().replace("define ", "define internal ", 1)
    return "\n".join([_Plain(name, form, wide, stores).text(), text])


class _Shared:
    def __init__(self, name: str, form: Form, wide: bool, stores: bool) -> None:
        self.to = AccessEmitter()
        self.name, self.form, self.wide, self.stores = name, form, wide, stores
        self.watched = name.startswith("watched")
        #: of loads that return a value: the value of each path, by label
        self.held: dict[str, Ref] = {}
        self.loose: dict[str, Ref] = {}

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self.value = stored(to, form, self.stores)
        self._races()
        self._prepare()
        self._rows()
        self._scattered()
        self._slowly()
        self._count()
        return to.function(head_of(self.name, form, self.stores, V32))

    def _prepare(self) -> None:
        """Compare the addresses of each half warp."""
        to, form = self.to, self.form
        cta = self.cta = to.context(Context.CTA, "ptr")
        self.base = to.field(cta, Cta.SHARED, "ptr")
        self.shadow = to.place(self.base, to.field(cta, Cta.SHARED_SHADOW)) if self.watched else None
        self.size = to.context(Context.SHARED_BYTES)
        if self.watched and self.stores:
            to.put("i64", 1, to.place(cta, Cta.MARKED))
        starts = to.pick(NEAR, [lane & 16 for lane in range(LANES)])
        self.distance = to.sub(NEAR, starts)
        self.lows = [to.extract(NEAR, lane) for lane in (0, 16)]
        self.near = [to.zext(low, "i64") for low in self.lows]
        odd = to.and_(to.or_(self.lows[0], self.lows[1]), form.size - 1)
        self.aligned = to.icmp("eq", odd, 0)
        self.sound: Ref | None = None
        if self.stores and not self.watched:
            # parts of words are stored to watched memory only
            narrow = form.size < 4
            self.sound = Ref("i1", "false") if narrow else to.not_(self._unwritten(self.value, None))

    def _races(self) -> None:
        """Check for races first, while memory still has the overwritten values."""
        to, form = self.to, self.form
        flags = to.race_flags()
        to.branch(to.icmp("eq", flags, 0), "access", "races")
        to.start("races")
        value = "" if not self.stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
        to.do(f"call void @{races_name(form, self.stores)}(ptr %ctx, i64 %site, i32 %mask, {V32} %a{value})")
        to.enter("access")

    # -- half warps that are consecutive or have one address -----------------------------------------------------------

    def _halves(self, places: list[Ref]) -> list[Ref]:
        """Load the raw halves at two pointers."""
        return [self.to.load(self.form.half(), place, self.form.align) for place in places]

    def _whole(self, halves: list[Ref]) -> Ref:
        count = 16 * self.form.pieces
        return self.to.pick(halves[0], range(2 * count), halves[1])

    def _rows(self) -> None:
        to, form = self.to, self.form
        ladder = numbers("i32", [(lane & 15) * form.size for lane in range(LANES)])
        self.rows = to.icmp("eq", to.bits(to.icmp("eq", self.distance, ladder)), -1)
        tests = [self.rows, *self._fits(16 * form.size)]
        if self.sound is not None:
            tests.append(self.sound)
        if self.stores and not self.wide:
            tests.append(to.icmp("eq", MASK, -1))
        to.branch(to.all(tests), "rows", "norows")
        to.start("rows")
        if self.stores:
            places, shadows = self._places()
            self._put_rows(self.value, places)
            if shadows:
                self._put_rows(form.ones, shadows)
            to.jump("kinds")
            to.start("norows")
            to.jump("any")
            return
        self._take("rows", lambda places: self._whole(self._halves(places)))
        to.start("norows")
        same = to.icmp("eq", to.bits(to.icmp("eq", self.distance, "zeroinitializer")), -1)
        tests = [same, *self._fits(form.size)]
        to.branch(to.all(tests), "same", "any")
        to.start("same")
        self._take("same", self._repeated)

    def _fits(self, size: int) -> list[Ref]:
        """Test whether the first lanes of both half warps are aligned, with ``size`` bytes from there inside shared memory."""
        room = self.to.sub(self.size, size)
        return [self.aligned, *(self.to.icmp("sle", place, room) for place in self.near)]

    def _places(self) -> tuple[list[Ref], list[Ref]]:
        """Return pointers to the first element of each half warp, and to their shadows."""
        shadow = [self.shadow] if self.shadow is not None else []
        places, *shadows = (
            [self.to.place(base, item) for item in self.near] for base in (self.base, *shadow)
        )
        return places, shadows[0] if shadows else []

    def _take(self, label: str, read: Callable[[list[Ref]], Ref]) -> None:
        """Write a complete path that loads whole half warps by ``read``."""
        to, form = self.to, self.form
        places, shadows = self._places()
        raw = read(places)
        seen = read(shadows) if shadows else None
        narrow = form.size < 4 and not shadows
        unwritten = self._blank_near(places) if narrow else self._unwritten(raw, seen)
        if form.alone:
            self.held[label] = raw
        else:
            to.split(raw, form)
        to.branch(unwritten, "slow", "kinds")

    def _repeated(self, places: list[Ref]) -> Ref:
        """Broadcast the elements at two pointers to all lanes of their half warps."""
        to, form = self.to, self.form
        one = vector_of(form.pieces, form.kind)
        parts = [to.load(one, place, form.align) for place in places]
        order = [(lane >> 4) * form.pieces + part for lane in range(LANES) for part in range(form.pieces)]
        return to.pick(parts[0], order, parts[1])

    def _put_rows(self, value: Ref, places: list[Ref]) -> None:
        to, form, count = self.to, self.form, 16 * self.form.pieces
        on = to.repeat(ACTIVE, form.pieces) if self.wide else None
        for number, place in enumerate(places):
            part = range(number * count, (number + 1) * count)
            data = to.pick(value, part)
            if on is not None:
                to.masked_store(data, place, to.pick(on, part), form.align)
            else:
                to.store(data, place, form.align)

    # -- any addresses ---------------------------------------------------------------------------------------------------

    def _scattered(self) -> None:
        to, form = self.to, self.form
        to.start("any")
        if self.wide:
            indices = to.rotated(NEAR, form.shift)
            outside = to.outside(indices, to.trunc(to.lshr(self.size, form.shift), "i32"))
            tests = [to.icmp("eq", outside, 0), *([] if self.sound is None else [self.sound])]
            to.branch(to.all(tests), "gather", "slow")
            to.start("gather")
            if self.stores:
                to.scatter(self.value, to.pointers(self.base, NEAR, form), ACTIVE, form)
                if self.shadow is not None:
                    to.scatter(form.ones, to.pointers(self.shadow, NEAR, form), ACTIVE, form)
                to.jump("shapes")
            else:
                self._gather()
        else:
            to.jump("slow")

    def _slowly(self) -> None:
        to, form = self.to, self.form
        to.start("slow")
        self._of_peer()
        to.start("lanewise")
        # races of lanes in this CTA's memory have been checked; of lanes in several CTAs none counts as checked
        outside = to.outside(to.rotated(NEAR, form.shift), to.trunc(to.lshr(self.size, form.shift), "i32"))
        alone = to.icmp("eq", to.field(self.cta, Cta.CLUSTER), 0)
        checked = to.or_(alone, to.icmp("eq", outside, 0))
        space = to.select(checked, Ref("i64", "17"), 1)
        slowly = slow(to, form, self.stores, to.zext(NEAR, "i64"), space)
        if slowly is not None:
            self.loose["lanewise"] = slowly
        to.jump("shapes")

    def _of_peer(self) -> None:
        """If all lanes may access one other CTA of the cluster, perform the access there; else branch to ``lanewise``."""
        to, form = self.to, self.form
        alone = to.icmp("eq", to.field(self.cta, Cta.CLUSTER), 0)
        empty = to.icmp("eq", MASK, 0)
        to.branch(to.or_(alone, empty), "lanewise", "ranks")
        to.start("ranks")
        window = to.trunc(to.field(self.cta, Cta.WINDOW), "i32")
        absolute = to.add(NEAR, to.splat(window))
        lane = to.first_lane()
        lead = to.extract(absolute, lane)
        start = to.and_(lead, -1 << RANK_SHIFT)
        inside = to.sub(absolute, to.splat(start))
        stray = to.without(to.icmp("ult", inside, 1 << RANK_SHIFT))
        allowed = to.load("i8", to.place(to.context(Context.REMOTE, "ptr"), "%site"))
        tests = [to.icmp("eq", stray, 0), to.icmp("ne", start, window), to.icmp("ne", allowed, 0)]
        to.branch(to.all(tests), "peer", "lanewise")
        to.start("peer")
        own = to.number(self.cta)
        wide = [to.zext(number, "i64") for number in (lane, lead)]
        items = (to.number("%ctx"), own, SITE, *wide, 0)
        peer = to.run("cluster_cta", items)
        to.branch(to.icmp("eq", peer, 0), "lanewise", "there")
        to.start("there")
        cell = to.place("%ctx", Context.CTA)
        to.store(peer, cell)
        arguments = f"ptr %ctx, i64 %site, i32 %mask, {V32} {inside}"
        if not form.alone:
            arguments += ", ptr %vals"
        elif self.stores:
            arguments += f", {form.raw} %v"
        result = None
        if form.alone and not self.stores:
            result = to.ref(form.raw, f"call {form.raw} @{self.name}({arguments})")
        else:
            to.do(f"call void @{self.name}({arguments})")
        to.store(own, cell)
        finish(to, form, self.stores, result)

    def _gather(self) -> None:
        to, form = self.to, self.form
        if form.size < 4:
            words = to.and_(NEAR, -4)
            shift = to.shl(to.and_(NEAR, 3), 3)
            held = to.gather(to.pointers(self.base, words, _WORD), ACTIVE, _WORD)
            raw = self._cut(held, shift)
            if self.shadow is not None:
                seen = to.gather(to.pointers(self.shadow, words, _WORD), ACTIVE, _WORD)
                unwritten = self._unwritten(raw, self._cut(seen, shift))
            else:
                blank = to.icmp("eq", held, UNWRITTEN)
                unwritten = to.icmp("ne", to.and_(to.bits(blank), MASK), 0)
        else:
            raw = to.gather(to.pointers(self.base, NEAR, form), ACTIVE, form)
            shadow = None
            if self.shadow is not None:
                shadow = to.gather(to.pointers(self.shadow, NEAR, form), ACTIVE, form)
            unwritten = self._unwritten(raw, shadow)
        if form.alone:
            self.loose["gather"] = raw
        else:
            to.split(raw, form)
        to.branch(unwritten, "slow", "shapes")

    def _cut(self, words: Ref, shift: Ref) -> Ref:
        """Extract the bytes of an access of less than a word."""
        return self.to.trunc(self.to.lshr(words, shift), self.form.kind)

    # -- unwritten memory --------------------------------------------------------------------------------------------------

    def _unwritten(self, raw: Ref, seen: Ref | None) -> Ref:
        """Whether an active lane has a byte that was never written (or a word with the fill pattern)."""
        to, form = self.to, self.form
        if seen is not None:
            count = LANES * form.pieces
            bad = to.icmp("ne", seen, form.ones)
        else:
            count = LANES * form.size // 4
            bad = to.icmp("eq", to.bitcast(raw, vector_of(count, "i32")), UNWRITTEN)
        return to.any(to.and_(bad, to.repeat(ACTIVE, count // LANES)))

    def _blank_near(self, places: list[Ref]) -> Ref:
        """The same for rows of parts of words: whether any word there has the fill pattern."""
        to, count = self.to, 16 * self.form.size // 4 + 1
        blank = []
        for place in places:
            pointer = to.pointer(to.and_(to.number(place), -4))
            blank.append(to.any(to.icmp("eq", to.load(vector_of(count, "i32"), pointer, 4), UNWRITTEN)))
        return to.or_(*blank)

    # -- wavefronts --------------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Count wavefronts, which depend on the mask and the lanes' distances; the site's last result is cached."""
        to = self.to
        to.start("kinds")
        held = self._joined(self.held)
        shape = self._of_kind()
        to.start("shapes")
        loose = self._joined(self.loose)
        other = self._of_any()
        to.start("measure")
        self._measure(to.phi("ptr", (shape, "fresh"), (other, "renew")), held, loose)
        to.start("known")
        last = to.phi("ptr", (shape, "memo"), (other, "known2"))
        known = self._joined({"memo": held, "known2": loose})
        result = to.field(last, SharedShape.RESULT)
        record = to.of_site(Context.SITES, SITE_BYTES)
        to.bump(record, Counter.WAVEFRONTS, to.and_(result, 63))
        to.bump(record, Counter.IDEAL, to.lshr(result, 6))
        to.enter("end")
        ways = {"kinds": held, "shapes": loose, "measure": self.measured, "known": known}
        finish(to, self.form, self.stores, self._joined(ways))

    def _joined(self, ways: Mapping[str, Ref | None]) -> Ref | None:
        """The ``phi`` of the loaded values of all paths, if the function returns a value."""
        if self.stores or not self.form.alone:
            return None
        return self.to.phi(
            self.form.raw, *((value, label) for label, value in ways.items() if value is not None)
        )

    def _counted(self, label: str) -> Ref:
        """Return the site's record, in a block that runs only if wavefronts are counted."""
        to = self.to
        to.branch(to.icmp("eq", to.context(Context.COUNTING), 0), "end", label)
        to.start(label)
        return to.of_site(Context.SHAPES, GlobalShape.BYTES)

    def _of_kind(self) -> Ref:
        """Look up half warps of consecutive or equal addresses, by the distance between them. Continues at ``known`` or
        ``measure``."""
        to = self.to
        shape = self._counted("memo")
        apart = to.zext(to.sub(self.lows[1], self.lows[0]), "i64")
        key = to.or_(to.shl(apart, 2), to.select(self.rows, Ref("i64", "1"), 2))
        hit = to.icmp("eq", key, to.field(shape, SharedShape.KIND))
        hit = to.and_(hit, to.icmp("eq", MASK64, to.field(shape, SharedShape.MASK)))
        to.branch(hit, "known", "fresh")
        to.start("fresh")
        to.store(key, to.place(shape, SharedShape.KIND))
        to.jump("measure")
        return shape

    def _of_any(self) -> Ref:
        """Look up any addresses, by all distances from the first one. Continues at ``known`` or ``measure``."""
        to = self.to
        shape = self._counted("compare")
        relative = to.sub(NEAR, to.splat(to.and_(self.lows[0], -4)))
        differs = to.bits(to.icmp("ne", relative, to.load(V32, shape, 64)))
        alike = to.icmp("eq", to.and_(differs, MASK), 0)
        alike = to.and_(alike, to.icmp("eq", MASK64, to.field(shape, SharedShape.MASK)))
        alike = to.and_(alike, to.icmp("eq", Ref("i64", "3"), to.field(shape, SharedShape.KIND)))
        to.branch(alike, "known2", "renew")
        to.start("renew")
        kind = to.place(shape, SharedShape.KIND)
        to.store(relative, shape, 64)
        to.put("i64", 3, kind)
        to.jump("measure")
        to.start("known2")
        to.jump("known")
        return shape

    def _measure(self, shape: Ref, held: Ref | None, loose: Ref | None) -> None:
        """Compute and cache the wavefronts of new distances."""
        to = self.to
        self.measured = self._joined({"fresh": held, "renew": loose})
        mask, addresses = to.place(shape, SharedShape.MASK), to.zext(NEAR, "i64")
        to.store(MASK64, mask)
        to.store(addresses, "%area", 64)
        number, area = to.number("%ctx"), to.number("%area")
        items = (number, SITE, MASK64, area, self.form.size, int(not self.stores))
        measured = to.run("count_wavefronts", items)
        to.store(measured, to.place(shape, SharedShape.RESULT))
        to.jump("end")


class _Plain(_Shared):
    """The common paths of launches without counters and checks for races."""

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self.value = stored(to, form, self.stores)
        busy(to, [to.race_flags()])
        self._prepare()
        self._rows()
        self._scattered()
        for label, ways in (("kinds", self.held), *([("shapes", self.loose)] if self.wide else [])):
            to.start(label)
            finish(to, form, self.stores, self._joined(ways))
        to.start("slow")
        to.jump("whole")
        to.start("whole")
        pass_on(to, whole_name(self.name), form, self.stores, V32)
        plain = to.function(f"internal {head_of(plain_name(self.name), form, self.stores, V32)}")
        return choice(self.name, form, self.stores, V32) + "\n" + plain
