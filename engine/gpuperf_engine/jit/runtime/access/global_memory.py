"""Runtime functions for accesses to the arena, and for generic ones, by a whole warp, as LLVM IR; see ``access``."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.abi import Context, Cta
from ...ir.access_records import SITE_BYTES, Counter, GlobalShape, SharedShape, SiteCache
from ...ir.operands import LANES, Ref, count_of, numbers, vector_of
from ...ir.race_records import Race
from .text import (
    ACTIVE,
    ADDRESSES,
    MASK,
    MASK64,
    SITE,
    V1,
    V32,
    V64,
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

__all__ = ["global_access"]

#: space, + 4 where sectors are not counted
_HOW = Ref("i64", "%how")
_EXTRA = ", i64 %how"
_WORD = Form(4)
#: bytes of a vector that hosts load for one lane
_VECTOR = 16


def global_access(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Arena and generic addresses. The function takes the common paths of launches that observe nothing, and needs no stack; for all
    others it calls another one."""
    if not wide:
        return _Global(name, form, wide, stores).text()
    whole = _Global(whole_name(name), form, wide, stores).text().replace("define ", "define internal ", 1)
    texts = [_Plain(name, form, wide, stores).text(), whole]
    if _has_function_for_lanes(form, stores):
        texts.append(_stored_by_lanes(name, form) if stores else _loaded_by_lanes(name, form))
    return "\n".join(texts)


class _Global:
    def __init__(self, name: str, form: Form, wide: bool, stores: bool) -> None:
        self.to = AccessEmitter()
        self.name, self.form, self.wide, self.stores = name, form, wide, stores

    def text(self) -> str:
        to = self.to
        begin(to, self.form)
        if self.stores:
            # the race check reads whole lines of memory
            to.do(f"%padded = alloca [{LANES * self.form.size + 128} x i8], align 64")
        self.value = stored(to, self.form, self.stores)
        self._strong()
        self._known()
        in_order = self._in_order()
        self.arena = to.context(Context.ARENA)
        counting = to.context(Context.COUNTING)
        self.quiet = to.or_(to.icmp("eq", counting, 0), to.icmp("uge", _HOW, 4))
        self.space = to.and_(_HOW, 3)
        to.branch(to.all(in_order), "fast", "scattered")
        to.start("fast")
        self._contiguous()
        to.start("scattered")
        if self.wide:
            self._gathered()
        else:
            to.jump("slow")
        to.start("slow")
        self._in_shared()
        to.start("lanewise")
        self._lanewise()
        return to.function(head_of(self.name, self.form, self.stores, V64, _EXTRA))

    def _known(self) -> None:
        """Read which allocation the site accessed last."""
        to = self.to
        self.cache = to.place(to.context(Context.CACHE, "ptr"), to.shl(SITE, 5))
        self.low, self.span = to.field(self.cache, SiteCache.START), to.field(self.cache, SiteCache.SPAN)

    def _strong(self) -> None:
        """Record a strong access, which may be a flag that orders other accesses."""
        to = self.to
        self.flags = to.race_flags()
        strong = to.icmp("ne", to.and_(self.flags, Race.IS_STRONG), 0)
        to.branch(to.and_(strong, to.icmp("ne", MASK, 0)), "strong", "weak")
        to.start("strong")
        to.run("race_flag", (to.number("%ctx"), SITE, 4 if self.stores else 8))
        to.enter("weak")

    def _in_order(self) -> list[Ref]:
        """Test whether lanes are consecutive and the active ones are inside the allocation that the site accessed last."""
        to, shift = self.to, self.form.shift
        self.zero = to.extract(ADDRESSES, 0)
        ladder = numbers("i64", range(0, LANES * self.form.size, self.form.size))
        stray = to.without(to.icmp("eq", ADDRESSES, to.add(to.splat(self.zero), ladder)))
        self.first = to.zext(to.first_lane(), "i64")
        behind = to.zext(to.ref("i32", "call i32 @llvm.ctlz.i32(i32 %mask, i1 false)"), "i64")
        self.last = to.sub(Ref("i64", "31"), behind)
        offset = to.sub(self.zero, self.low)
        index = to.ref("i64", f"call i64 @llvm.fshr.i64(i64 {offset}, i64 {offset}, i64 {shift})")
        self.limit = to.lshr(self.span, shift)
        tests = [to.icmp("ult", to.add(index, lane), self.limit) for lane in (self.first, self.last)]
        tests += [to.icmp("eq", stray, 0), to.icmp("ne", MASK, 0)]
        if not self.wide:
            tests.append(to.icmp("eq", MASK, -1))
        return tests

    # -- consecutive lanes -----------------------------------------------------------------------------------------------

    def _row(self, host: Ref) -> Ref | None:
        """Access consecutive elements from a pointer on. Returns what was loaded."""
        to, form = self.to, self.form
        self.on = to.repeat(ACTIVE, form.pieces) if self.wide else None
        if self.stores:
            self._put_row(self.value, host)
            return None
        if self.on is not None:
            loaded = to.masked_load(form.raw, host, self.on, form.align)
        else:
            loaded = to.load(form.raw, host, form.align)
        if not form.alone:
            to.split(loaded, form)
        return loaded

    def _contiguous(self) -> None:
        to, form = self.to, self.form
        self._checked("row", self.zero)
        host = to.pointer(to.add(self.arena, self.zero))
        loaded = self._row(host)
        self._shadow_of_row(host)
        map_ = to.context(Context.WRITES if self.stores else Context.READS)
        to.branch(to.icmp("eq", map_, 0), "mapped", "map")
        to.start("map")
        self._put_row(form.ones, to.pointer(to.add(map_, self.zero)))
        to.enter("mapped")
        to.branch(self.quiet, "done", "count")
        to.start("count")
        self._count_row()
        to.start("done")
        finish(to, form, self.stores, loaded)

    def _put_row(self, value: Ref, pointer: Ref) -> None:
        if self.on is not None:
            self.to.masked_store(value, pointer, self.on, self.form.align)
        else:
            self.to.store(value, pointer, self.form.align)

    def _shadow_of_row(self, host: Ref) -> None:
        """Mark stored bytes in the shadow, or test those of loaded bytes."""
        to, form = self.to, self.form
        to.branch(to.icmp("ne", to.field(self.cache, SiteCache.TRACKED), 0), "shadow", "whole")
        to.start("shadow")
        shadow = to.place(host, to.sub(to.context(Context.SHADOW), self.arena))
        if self.stores and self.on is not None:
            to.masked_store(form.ones, shadow, self.on, form.align)
        elif self.stores:
            to.run("mark_lanes", (to.number("%ctx"), MASK64, self.zero, form.size))
        else:
            if self.on is not None:
                seen = to.masked_load(form.raw, shadow, self.on, form.align)
                to.branch(self._unseen(seen), "unseen", "whole")
                to.start("unseen")
            to.run("seen_lanes", (to.number("%ctx"), SITE, MASK64, self.zero, form.size))
        to.enter("whole")

    def _count_row(self) -> None:
        """Count sectors and lines from the first and the last lane, where all lanes between are active."""
        to, shift = self.to, self.form.shift
        shifted = to.lshr(MASK64, self.first)
        holes = to.and_(shifted, to.add(shifted, 1))
        to.branch(to.icmp("eq", holes, 0), "ends", "holes")
        to.start("ends")
        record = to.of_site(Context.SITES, SITE_BYTES)
        reached = [to.add(self.zero, to.shl(lane, shift)) for lane in (self.first, self.last)]
        for counter, bits in ((Counter.SECTORS, 5), (Counter.LINES, 7)):
            self._bump_between(record, counter, reached, bits)
        if not self.stores:
            # consecutive words: one wavefront per 128 bytes of lanes
            self._bump_between(record, Counter.GLOBAL_WAVEFRONTS, (self.first, self.last), 7 - max(shift, 2))
        to.jump("done")
        to.start("holes")
        self._count("row", "done")

    def _bump_between(self, record: Ref, counter: int, ends: Sequence[Ref], bits: int) -> None:
        """Count the units of ``1 << bits`` bytes from one end to the other."""
        to = self.to
        first, last = (to.lshr(end, bits) for end in ends)
        to.bump(record, counter, to.add(to.sub(last, first), 1))

    # -- any lanes of one allocation ---------------------------------------------------------------------------------------

    def _gathered(self) -> None:
        to, form = self.to, self.form
        indices = to.rotated(to.sub(ADDRESSES, to.splat(self.low)), form.shift)
        outside = to.outside(indices, self.limit)
        to.branch(to.icmp("eq", outside, 0), "gather", "slow")
        to.start("gather")
        to.store(ADDRESSES, "%area", 64)
        stored = self._checked("anywhere", to.number("%area"))
        shadows = to.pointer(to.context(Context.SHADOW))
        gathered = None
        if self.stores:
            to.scatter(self.value, to.pointers(to.pointer(self.arena), ADDRESSES, form), stored, form)
        else:
            gathered = self._any()
        to.branch(to.icmp("ne", to.field(self.cache, SiteCache.TRACKED), 0), "note", "noted")
        to.start("note")
        if self.stores:
            to.scatter(form.ones, to.pointers(shadows, ADDRESSES, form), ACTIVE, form)
            to.jump("noted")
        else:
            seen = to.gather(to.pointers(shadows, ADDRESSES, form), ACTIVE, form)
            to.branch(self._unseen(seen), "slow", "noted")
        to.start("noted")
        map_ = to.context(Context.WRITES if self.stores else Context.READS)
        to.branch(to.icmp("eq", map_, 0), "counted", "mapany")
        to.start("mapany")
        to.scatter(form.ones, to.pointers(to.pointer(map_), ADDRESSES, form), ACTIVE, form)
        to.enter("counted")
        to.branch(self.quiet, "out1", "direct")
        to.start("direct")
        self._count("any", "out1")
        to.start("out1")
        finish(to, form, self.stores, gathered)

    def _any(self) -> Ref:
        """Load from any addresses."""
        to, form = self.to, self.form
        base = to.pointer(self.arena)
        if form.size >= 4:
            gathered = to.gather(to.pointers(base, ADDRESSES, form), ACTIVE, form)
        else:
            # the word around each element, whose other bytes may belong to nothing but are on the same page
            words = to.gather(to.pointers(base, to.and_(ADDRESSES, -4), _WORD), ACTIVE, _WORD)
            turned = to.shl(to.trunc(to.and_(ADDRESSES, 3), "i32"), 3)
            gathered = to.trunc(to.lshr(words, turned), form.kind)
        if not form.alone:
            to.split(gathered, form)
        return gathered

    # -- lane by lane --------------------------------------------------------------------------------------------------------

    def _lanewise(self) -> None:
        to, form = self.to, self.form
        loaded = slow(to, form, self.stores, ADDRESSES, self.space)
        to.branch(self.quiet, "out2", "sum")
        to.start("sum")
        to.branch(to.icmp("eq", self.space, 3), "windows", "sectors")
        for label in ("windows", "sectors"):
            to.start(label)
            items = (to.number("%ctx"), SITE, MASK64, to.number("%area"), form.size, int(not self.stores))
            to.run(f"count_{label}", items)
            to.jump("out2")
        to.start("out2")
        finish(to, form, self.stores, loaded)

    def _in_shared(self) -> None:
        """If all lanes of a generic access address shared memory, call its function; else branch to ``lanewise``."""
        to, form = self.to, self.form
        function = to.load("ptr", to.place(to.context(Context.NEAR, "ptr"), to.shl(SITE, 3)))
        within = to.sub(ADDRESSES, to.splat(to.context(Context.SHARED_WINDOW)))
        stray = to.without(to.icmp("ult", within, to.splat(to.context(Context.WINDOW_BYTES))))
        tests = [to.icmp("ne", function, "null"), to.icmp("eq", stray, 0), to.icmp("ne", MASK, 0)]
        to.branch(to.all(tests), "near", "lanewise")
        to.start("near")
        self._take_shape()
        window = to.field(to.context(Context.CTA, "ptr"), Cta.WINDOW)
        near = to.trunc(to.sub(within, to.splat(window)), "i32")
        arguments = f"ptr %ctx, i64 %site, i32 %mask, {V32} {near}"
        loaded = None
        if not form.alone:
            to.do(f"call void {function}({arguments}, ptr %vals)")
        elif self.stores:
            to.do(f"call void {function}({arguments}, {form.raw} %v)")
        else:
            loaded = to.ref(form.raw, f"call {form.raw} {function}({arguments})")
        to.branch(self.quiet, "moved", "tally")
        to.start("tally")
        record = to.of_site(Context.SITES, SITE_BYTES)
        lanes = to.zext(to.ref("i32", "call i32 @llvm.ctpop.i32(i32 %mask)"), "i64")
        for counter, amount in (
            (Counter.SHARED_LANES, lanes),
            (Counter.SHARED_REQUESTS, 1),
            (Counter.ELSEWHERE, 1),
        ):
            to.bump(record, counter, amount)
        to.enter("moved")
        finish(to, form, self.stores, loaded)

    def _take_shape(self) -> None:
        """Turn the record of the site's last access into a ``SharedShape``."""
        to = self.to
        shape = to.of_site(Context.SHAPES, GlobalShape.BYTES)
        to.branch(to.icmp("eq", to.field(shape, GlobalShape.IS_SHARED), 1), "nearby", "forget")
        to.start("forget")
        # clear both masks, so that neither form of the record matches the other's content
        for field, value in ((SharedShape.MASK, 0), (GlobalShape.MASK, 0), (GlobalShape.IS_SHARED, 1)):
            to.put("i64", value, to.place(shape, field))
        to.enter("nearby")

    # -- shared by both paths ------------------------------------------------------------------------------------------------

    def _checked(self, way: str, where: Ref) -> Ref:
        """Check an access for races with other CTAs, if its site is checked, by ``race_row`` or ``race_anywhere``. Returns the lanes
        that store."""
        to, form, before = self.to, self.form, self.to.block
        to.branch(to.icmp("ne", to.and_(self.flags, Race.GLOBAL), 0), f"{way}asked", f"{way}free")
        to.start(f"{way}asked")
        values = Ref("i64", "0")
        if self.stores:
            cell = to.place("%padded", 64)
            to.store(self.value, cell, 64)
            values = to.number(cell)
        number = to.number("%ctx")
        how = Ref("i64", str((4 if self.stores else 8) + 16 * (form.count > 1)))
        if self.stores and form.alone and form.size <= 8 and way == "anywhere":
            how = to.or_(how, to.shl(to.zext(self._is_one(), "i64"), 5))
        items = (number, SITE, MASK64, where, values, form.size, how)
        left = to.run(f"race_{way}", items)
        if way == "row":
            to.enter(f"{way}free")
            return ACTIVE
        lanes = to.bitcast(to.trunc(left, "i32"), V1)
        asked = to.block
        to.enter(f"{way}free")
        return to.phi(V1, (ACTIVE, before), (lanes, asked))

    def _is_one(self) -> Ref:
        """Whether all lanes store one value to one address."""
        to = self.to
        first = to.and_(to.trunc(self.first, "i32"), LANES - 1)
        apart = [
            to.bits(to.icmp("ne", given, to.splat(to.extract(given, first))))
            for given in (ADDRESSES, to.bitcast(self.value, vector_of(LANES, f"i{8 * self.form.size}")))
        ]
        return to.icmp("eq", to.and_(to.or_(*apart), MASK), 0)

    def _unseen(self, seen: Ref) -> Ref:
        """Whether a byte of an active lane's shadow is 0."""
        to, size = self.to, self.form.size
        blank = to.icmp("eq", to.bitcast(seen, f"<{LANES * size} x i8>"), "zeroinitializer")
        return to.any(to.and_(blank, to.repeat(ACTIVE, size)))

    def _count(self, label: str, then: str) -> None:
        """Count sectors, lines and, of a load, wavefronts of an access to one allocation by any lanes. The site's last result is
        cached with the distances of its lanes. Continues at ``then``."""
        to, form, before = self.to, self.form, self.to.block
        shape = to.of_site(Context.SHAPES, GlobalShape.BYTES)
        record = to.of_site(Context.SITES, SITE_BYTES)
        units = ((GlobalShape.SECTORS, 5), (GlobalShape.LINES, 7))
        alike, distances = self._as_before(shape, units, GlobalShape.MASK)
        known = to.field(shape, GlobalShape.RESULT)
        to.branch(alike, f"{label}known", f"{label}new")
        to.start(f"{label}new")
        to.store(ADDRESSES, "%area", 64)
        counted = to.run("sectors_of", (to.number("%area"), MASK64))
        self._remember(shape, distances, {GlobalShape.RESULT: counted, GlobalShape.MASK: MASK64})
        to.put("i64", 0, to.place(shape, GlobalShape.IS_SHARED))
        to.enter(f"{label}known")
        result = to.phi("i64", (known, before), (counted, f"{label}new"))
        to.bump(record, Counter.SECTORS, to.and_(result, 63))
        to.bump(record, Counter.LINES, to.lshr(result, 6))
        if not self.stores:
            words = ((GlobalShape.WORDS, max(form.shift, 2)),)
            alike, distances = self._as_before(shape, words, GlobalShape.WORDS_MASK)
            known = to.field(shape, GlobalShape.WAVEFRONTS)
            to.branch(alike, f"{label}kept", f"{label}passes")
            to.start(f"{label}passes")
            taken = self._wavefronts(result)
            self._remember(shape, distances, {GlobalShape.WAVEFRONTS: taken, GlobalShape.WORDS_MASK: MASK64})
            to.enter(f"{label}kept")
            wavefronts = to.phi("i64", (known, f"{label}known"), (taken, f"{label}passes"))
            to.bump(record, Counter.GLOBAL_WAVEFRONTS, wavefronts)
        to.jump(then)

    def _wavefronts(self, counted: Ref) -> Ref:
        """Return the wavefronts of a load whose sectors and lines are counted."""
        to = self.to
        to.store(ADDRESSES, "%area", 64)
        lanes = to.zext(to.ref("i32", "call i32 @llvm.ctpop.i32(i32 %mask)"), "i64")
        alone = to.icmp("eq", to.and_(counted, 63), lanes)
        items = (to.number("%ctx"), MASK64, to.number("%area"), self.form.size, 0, to.zext(alone, "i64"))
        return to.and_(to.run("wavefronts_of", items), 63)

    def _as_before(
        self, shape: Ref, units: Sequence[tuple[int, int]], mask: int
    ) -> tuple[Ref, list[tuple[Ref, Ref]]]:
        """Return whether the active lanes and their distances, in units of (field, bits), equal those cached in these fields of the
        shape; and the distances with the pointers to their fields."""
        to = self.to
        differing: Ref | None = None
        distances = []
        for field, bits in units:
            pieces = to.lshr(ADDRESSES, bits)
            first = to.splat(to.extract(pieces, 0))
            cell = to.place(shape, field)
            distance = to.sub(pieces, first)
            distances.append((distance, cell))
            differs = to.bits(to.icmp("ne", distance, to.load(V64, cell, 64)))
            differing = differs if differing is None else to.or_(differing, differs)
        assert differing is not None
        other = to.and_(MASK, differing)
        same = to.icmp("eq", MASK64, to.field(shape, mask))
        return to.and_(same, to.icmp("eq", other, 0)), distances

    def _remember(self, shape: Ref, distances: list[tuple[Ref, Ref]], fields: dict[int, Ref]) -> None:
        to = self.to
        cells = [to.place(shape, field) for field in fields]
        for value, cell in zip(fields.values(), cells):
            to.store(value, cell)
        for value, cell in distances:
            to.store(value, cell, 64)


class _Plain(_Global):
    """The common paths of launches without counters, checks for races, footprint and shadow."""

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self.value = stored(to, form, self.stores)
        self._known()
        maps = to.context(Context.WRITES if self.stores else Context.READS)
        busy(to, [to.race_flags(), maps, to.field(self.cache, SiteCache.TRACKED)])
        in_order = self._in_order()
        self.arena = to.context(Context.ARENA)
        to.branch(to.all(in_order), "row", "apart")
        to.start("row")
        finish(to, form, self.stores, self._row(to.pointer(to.add(self.arena, self.zero))))
        to.start("apart")
        outside = to.outside(to.rotated(to.sub(ADDRESSES, to.splat(self.low)), form.shift), self.limit)
        to.branch(to.icmp("eq", outside, 0), "anywhere", "whole")
        to.start("anywhere")
        if _has_function_for_lanes(form, self.stores):
            pass_on(to, _lanes_name(self.name), form, self.stores, V64, _EXTRA)
        elif not self.stores:
            finish(to, form, False, self._any())
        else:
            to.scatter(self.value, to.pointers(to.pointer(self.arena), ADDRESSES, form), ACTIVE, form)
            to.give()
        to.start("whole")
        pass_on(to, whole_name(self.name), form, self.stores, V64, _EXTRA)
        plain = to.function(f"internal {head_of(plain_name(self.name), form, self.stores, V64, _EXTRA)}")
        return choice(self.name, form, self.stores, V64, _EXTRA) + "\n" + plain


def _has_function_for_lanes(form: Form, stores: bool) -> bool:
    """Whether a function of its own accesses any addresses, as that needs a stack. Hosts have no scatter for parts of words, which
    often few lanes store; and one vector per lane takes less time than a gather or scatter of its parts."""
    return form.size >= _VECTOR or (stores and form.size < 4)


def _lanes_name(name: str) -> str:
    return f"{name}_lanes"


def _stored_by_lanes(name: str, form: Form) -> str:
    """The function that stores the active lanes' elements one after the other, in ascending order."""
    to = AccessEmitter()
    begin(to, form)
    to.store(ADDRESSES, "%area", 64)
    to.store(stored(to, form, True), "%out", 64)
    arena = to.context(Context.ARENA)
    to.branch(to.icmp("eq", MASK, 0), "done", "lane")
    to.start("lane")
    rest = to.phi("i32", (MASK, "entry"))
    lane = to.zext(to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {rest}, i1 true)"), "i64")
    address = to.load("i64", to.element("%area", "i64", lane))
    kind = form.kind if form.pieces == 1 else vector_of(form.pieces, form.kind)
    item = to.load(kind, to.element("%out", kind, lane), form.align)
    to.store(item, to.pointer(to.add(arena, address)), form.align)
    less = to.and_(rest, to.sub(rest, 1))
    rest.come(less)
    to.branch(to.icmp("eq", less, 0), "done", "lane")
    to.start("done")
    to.give()
    return to.function(f"internal {head_of(_lanes_name(name), form, True, V64, _EXTRA)}")


def _loaded_by_lanes(name: str, form: Form) -> str:
    """The function that loads a vector for each lane, for inactive ones from zeros."""
    to = AccessEmitter()
    begin(to, form)
    zeros = f"@{name}_zeros"
    pointers = to.add(ADDRESSES, to.splat(to.context(Context.ARENA)))
    to.store(to.select(ACTIVE, pointers, to.splat(to.number(zeros))), "%area", 64)
    kind = vector_of(form.pieces, form.kind)
    parts = []
    for lane in range(LANES):
        address = to.load("i64", to.place("%area", 8 * lane))
        parts.append(to.load(kind, to.pointer(address), form.align))
    while len(parts) > 1:
        size = 2 * count_of(parts[0].type)
        parts = [to.pick(one, range(size), other) for one, other in zip(parts[::2], parts[1::2])]
    to.split(parts[0], form)
    to.give()
    constant = f"{zeros} = internal constant [{form.size} x i8] zeroinitializer, align 64\n"
    return constant + to.function(f"internal {head_of(_lanes_name(name), form, False, V64, _EXTRA)}")
