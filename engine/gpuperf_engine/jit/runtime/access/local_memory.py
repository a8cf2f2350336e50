"""Runtime functions for accesses to local memory by a whole warp, as LLVM IR; see ``access``.

Local memory has rows of 128 bytes, with one word of each lane of the warp: word w of lane l at 128 · w + 4 · l. An access of all lanes
to one address covers whole rows; to several addresses, it is a gather or scatter of words. The shadow has the same layout.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.abi import Context, Cta, State
from ...ir.access_records import SITE_BYTES, Counter
from ...ir.operands import LANES, Ref, numbers
from .text import (
    ACTIVE,
    ADDRESSES,
    MASK,
    MASK64,
    SITE,
    V32,
    V64,
    AccessEmitter,
    Form,
    begin,
    choice,
    finish,
    head_of,
    pass_on,
    plain_name,
    slow,
    stored,
    whole_name,
)

__all__ = ["local_access"]

_ONES = 0x01010101
_WORD = Form(4)
#: stands for all higher addresses, which are invalid
_FAR = 0x7FFFFFFF


def local_access(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Return the function for local memory, with addresses in it. It takes the common paths of launches without counters, and needs no
    stack; for all others it calls another one."""
    whole = _Local(whole_name(name), form, wide, stores).text().replace("define ", "define internal ", 1)
    return "\n".join([_Plain(name, form, wide, stores).text(), whole])


class _Local:
    def __init__(self, name: str, form: Form, wide: bool, stores: bool) -> None:
        self.to = AccessEmitter()
        self.name, self.form, self.wide, self.stores = name, form, wide, stores
        self.rows = range(max(1, form.size // 4))

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self.value = stored(to, form, self.stores)
        self._prepare()
        held = self._whole_rows()
        loose = self._gathered()
        to.start("slow")
        slowly = slow(to, form, self.stores, ADDRESSES, "2")
        to.enter("scattered")
        apart = None
        if slowly is not None:
            apart = to.phi(form.raw, (slowly, "slow"), *([(loose, "gather")] if loose is not None else []))
        self._count()
        result = None
        if held is not None and apart is not None:
            result = to.phi(
                form.raw, (apart, "scattered"), (apart, "count"), (held, "uniform"), (held, "groups")
            )
        finish(to, form, self.stores, result)
        return to.function(head_of(self.name, form, self.stores, V64))

    def _prepare(self) -> None:
        """Find the memory of the warp and its shadow."""
        to = self.to
        far = to.icmp("ugt", ADDRESSES, _FAR)
        self.near = to.select(far, Ref(V32, f"splat (i32 {_FAR})"), to.trunc(ADDRESSES, "i32"))
        cta, state = to.context(Context.CTA, "ptr"), to.context(Context.STATE, "ptr")
        self.limit = to.context(Context.LOCAL_BYTES)
        warp = to.zext(to.field(state, State.INDEX, "i32"), "i64")
        self.base = to.place(to.field(cta, Cta.LOCAL, "ptr"), to.mul(to.shl(warp, 5), self.limit))
        self.shadow = to.place(self.base, to.field(cta, Cta.LOCAL_SHADOW))

    def _whole_rows(self) -> Ref | None:
        """Access whole rows, as all lanes have one address. Returns the loaded value."""
        to, form = self.to, self.form
        start = to.extract(self.near, to.and_(to.first_lane(), 31))
        near = to.zext(start, "i64")
        other = to.bits(to.icmp("ne", self.near, to.splat(start)))
        tests = [
            to.icmp("eq", to.and_(other, MASK), 0),
            to.icmp("ne", MASK, 0),
            to.icmp("eq", to.and_(start, form.size - 1), 0),
            to.icmp("sle", near, to.sub(self.limit, form.size)),
        ]
        to.branch(to.all(tests), "rows", "norows")
        to.start("rows")
        offset = to.shl(to.lshr(near, 2), 7)
        access = _Rows(to, form, to.splat(to.shl(to.and_(start, 3), 3)))
        targets = [to.place(self.base, to.add(offset, 128 * row)) for row in self.rows]
        shadows = [to.place(self.shadow, to.add(offset, 128 * row)) for row in self.rows]
        held = None
        if self.stores:
            changed = access.changed(self.value, targets, shadows, _load)
            for (row, seen), target, mark in zip(changed, targets, shadows):
                to.masked_store(row, target, ACTIVE, 4)
                to.masked_store(seen, mark, ACTIVE, 4)
            to.jump("uniform")
        else:
            held = access.raw([_load(to, target) for target in targets])
            to.branch(access.missing([_load(to, mark) for mark in shadows]), "slow", "uniform")
        to.start("norows")
        return held

    def _gathered(self) -> Ref | None:
        """Gather or scatter words, as lanes have several addresses. Returns the loaded value."""
        to, form = self.to, self.form
        if not self.wide:
            to.jump("slow")
            return None
        indices = to.rotated(self.near, form.shift)
        outside = to.outside(indices, to.trunc(to.lshr(self.limit, form.shift), "i32"))
        to.branch(to.icmp("eq", outside, 0), "gather", "slow")
        to.start("gather")
        words = to.shl(to.lshr(self.near, 2), 7)
        words = to.add(words, numbers("i32", range(0, 4 * LANES, 4)))
        access = _Rows(to, form, to.shl(to.and_(self.near, 3), 3))
        offsets = [to.add(words, 128 * row) for row in self.rows]
        targets = [to.pointers(self.base, offset, _WORD) for offset in offsets]
        shadows = [to.pointers(self.shadow, offset, _WORD) for offset in offsets]
        if self.stores:
            changed = access.changed(self.value, targets, shadows, _gather)
            for (row, seen), target, mark in zip(changed, targets, shadows):
                to.scatter(row, target, ACTIVE, _WORD)
                to.scatter(seen, mark, ACTIVE, _WORD)
            to.jump("scattered")
            return None
        loose = access.raw([_gather(to, target) for target in targets])
        to.branch(access.missing([_gather(to, mark) for mark in shadows]), "slow", "scattered")
        return loose

    def _count(self) -> None:
        """Count sectors at ``scattered`` and ``uniform``; both continue at ``end``."""
        to = self.to
        counting = to.context(Context.COUNTING)
        to.branch(to.icmp("eq", counting, 0), "end", "count")
        to.start("count")
        to.store(ADDRESSES, "%area", 64)
        to.run("count_local", (to.number("%ctx"), SITE, MASK64, to.number("%area"), self.form.size))
        to.jump("end")
        to.start("uniform")
        counting = to.context(Context.COUNTING)
        to.branch(to.icmp("eq", counting, 0), "end", "groups")
        to.start("groups")
        # in each group of eight lanes with an active one, a sector per row
        some = to.zext(to.icmp("ne", to.bitcast(MASK, "<4 x i8>"), "zeroinitializer"), "i64")
        total, *others = [to.extract(some, group) for group in range(4)]
        for other in others:
            total = to.add(total, other)
        record = to.of_site(Context.SITES, SITE_BYTES)
        to.bump(record, Counter.LOCAL_SECTORS, to.mul(total, len(self.rows)))
        to.enter("end")


def _load(to: AccessEmitter, offset: Ref) -> Ref:
    return to.load(V32, offset, 4)


def _gather(to: AccessEmitter, pointers: Ref) -> Ref:
    return to.gather(pointers, ACTIVE, _WORD)


class _Plain(_Local):
    """The common paths of launches without counters."""

    def text(self) -> str:
        to, form = self.to, self.form
        begin(to, form)
        self.value = stored(to, form, self.stores)
        self._prepare()
        held = self._whole_rows()
        loose = self._gathered()
        to.start("slow")
        to.jump("whole")
        for label, value in (("uniform", held), *([("scattered", loose)] if self.wide else [])):
            to.start(label)
            finish(to, form, self.stores, value)
        to.start("whole")
        pass_on(to, whole_name(self.name), form, self.stores, V64)
        plain = to.function(f"internal {head_of(plain_name(self.name), form, self.stores, V64)}")
        return choice(self.name, form, self.stores, V64) + "\n" + plain


class _Rows:
    """Converts between rows of the lanes' words and the values of an access. ``turned``: bits by which an access of less than a
    word is above the word's lowest bit."""

    def __init__(self, to: AccessEmitter, form: Form, turned: Ref) -> None:
        self.to, self.form, self.turned = to, form, turned

    def raw(self, rows: list[Ref]) -> Ref | None:
        """Return the loaded ``raw`` of a form that is returned; write the elements of other forms to ``%vals``."""
        to, form = self.to, self.form
        if form.size < 4:
            raw = to.trunc(to.lshr(rows[0], self.turned), form.kind)
            if not form.alone:
                to.split(raw, form)
            return raw
        if form.alone:
            return rows[0] if form.size == 4 else self._paired(rows)
        for element in range(form.count):
            cell = to.place("%vals", element * LANES * form.width)
            if form.width >= 4:
                parts = rows[element * form.width // 4 : (element + 1) * form.width // 4]
                to.store(self._woven(parts), cell, 16)
            else:
                down = 8 * (element * form.width % 4)
                moved = to.lshr(rows[element * form.width // 4], down)
                to.store(to.trunc(moved, f"i{8 * form.width}"), cell, 16)
        return None

    def _woven(self, parts: list[Ref]) -> Ref:
        """Interleave rows, so that the words of one lane are consecutive."""
        to, size = self.to, LANES
        count = len(parts)
        while len(parts) > 1:
            parts = [to.pick(one, range(2 * size), other) for one, other in zip(parts[::2], parts[1::2])]
            size *= 2
        order = [part * LANES + lane for lane in range(LANES) for part in range(count)]
        return to.pick(parts[0], order) if count > 1 else parts[0]

    def _paired(self, rows: list[Ref]) -> Ref:
        return self.to.bitcast(self._woven(rows), self.form.raw)

    def words(self, value: Ref) -> list[Ref]:
        """The rows of a value of at least a word."""
        to, form = self.to, self.form
        count = form.size // 4
        words = to.bitcast(value, f"<{LANES * count} x i32>")
        if count == 1:
            return [words]
        return [to.pick(words, [lane * count + row for lane in range(LANES)]) for row in range(count)]

    def missing(self, seen: list[Ref]) -> Ref:
        """Whether an active lane has a byte whose shadow is not set."""
        to, form = self.to, self.form
        wanted = Ref(V32, f"splat (i32 {_ONES})")
        if form.size < 4:
            wanted = to.shl(Ref(V32, f"splat (i32 {_ONES % (1 << 8 * form.size)})"), self.turned)
        bad = []
        for row in seen:
            set_ = to.and_(row, wanted)
            bad.append(to.bits(to.icmp("ne", set_, wanted)))
        first = bad[0]
        for item in bad[1:]:
            first = to.or_(first, item)
        return to.icmp("ne", to.and_(first, MASK), 0)

    def changed(
        self, value: Ref, targets: list[Ref], shadows: list[Ref], load: Callable[[AccessEmitter, Ref], Ref]
    ) -> list[tuple[Ref, Ref]]:
        """Return the rows to store and their shadows."""
        to, form = self.to, self.form
        if form.size >= 4:
            return [(row, Ref(V32, f"splat (i32 {_ONES})")) for row in self.words(value)]
        bits = (1 << 8 * form.size) - 1
        hole = to.shl(Ref(V32, f"splat (i32 {bits})"), self.turned)
        kept = to.and_(load(to, targets[0]), to.not_(hole))
        new = to.shl(to.zext(value, "i32"), self.turned)
        ones = to.shl(Ref(V32, f"splat (i32 {_ONES & bits})"), self.turned)
        seen = to.or_(load(to, shadows[0]), ones)
        return [(to.or_(kept, new), seen)]
