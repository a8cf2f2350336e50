"""Runtime functions for accesses of local memory by a whole warp, as LLVM IR; see ``access``.

Local memory lies in rows of 128 bytes, a word of each lane of the warp: word w of lane l at 128 · w + 4 · l. What all lanes access
at one place is whole rows; at places of their own, a gather or scatter of words. The shadow lies alike.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.abi import SITE_BYTES, Context, Counter, Cta, State
from ..ir.emitter import LANES
from .access_text import V1, V32, V64, Form, Text, finish, given, head, slow

__all__ = ["local_access"]

_ONES = 0x01010101
#: stands for all addresses beyond, which are refused
_FAR = 0x7FFFFFFF


def local_access(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Local memory, addresses within it."""
    to = Text()
    size, rows = form.size, max(1, form.size // 4)
    value = head(to, name, form, stores, V64)
    far = to.op(f"icmp ugt {V64} %a, splat (i64 {_FAR})")
    near32 = to.op(f"select {V1} {far}, {V32} splat (i32 {_FAR}), {V32} {to.op(f'trunc {V64} %a to {V32}')}")
    cta, state = to.field("%ctx", Context.CTA, "ptr"), to.field("%ctx", Context.STATE, "ptr")
    limit = to.field("%ctx", Context.LOCAL_BYTES)
    warp = to.op(f"zext i32 {to.field(state, State.INDEX, 'i32')} to i64")
    base = to.place(to.field(cta, Cta.LOCAL, "ptr"), to.op(f"mul i64 {to.op(f'shl i64 {warp}, 5')}, {limit}"))
    shadow = to.place(base, to.field(cta, Cta.LOCAL_SHADOW))
    first = to.op("call i32 @llvm.cttz.i32(i32 %mask, i1 false)")
    lane = to.op(f"and i32 {first}, 31")
    place = to.op(f"extractelement {V32} {near32}, i32 {lane}")
    near = to.op(f"zext i32 {place} to i64")
    other = to.bits(to.op(f"icmp ne {V32} {near32}, {to.splat(place, 'i32')}"))
    tests = [
        to.op(f"icmp eq i32 {to.op(f'and i32 {other}, %mask')}, 0"),
        to.op("icmp ne i32 %mask, 0"),
        to.op(f"icmp eq i32 {to.op(f'and i32 {place}, {size - 1}')}, 0"),
        to.op(f"icmp sle i64 {near}, {to.op(f'sub i64 {limit}, {size}')}"),
    ]
    to.do(f"br i1 {to.all(tests)}, label %rows, label %norows", "rows:")
    offset = to.op(f"shl i64 {to.op(f'lshr i64 {near}, 2')}, 7")
    turned = to.splat(to.op(f"shl i32 {to.op(f'and i32 {place}, 3')}, 3"), "i32")
    access = _Rows(to, form, turned)
    held = ""
    targets = [to.place(base, to.op(f"add i64 {offset}, {128 * row}")) for row in range(rows)]
    shadows = [to.place(shadow, to.op(f"add i64 {offset}, {128 * row}")) for row in range(rows)]
    if stores:
        for (row, seen), target, mark in zip(
            access.changed(value, targets, shadows, _load), targets, shadows
        ):
            for what, where in ((row, target), (seen, mark)):
                to.do(
                    f"call void @llvm.masked.store.v{LANES}i32.p0({V32} {what}, ptr align 4 {where}, {V1} %lanes)"
                )
        to.do("br label %uniform")
    else:
        held = access.raw([_load(to, target) for target in targets])
        missing = access.missing([_load(to, mark) for mark in shadows])
        to.do(f"br i1 {missing}, label %slow, label %uniform")
    to.do("norows:")
    loose = ""
    if wide:
        shift = form.shift
        indices = to.op(
            f"call {V32} @llvm.fshr.v{LANES}i32({V32} {near32}, {V32} {near32}, {V32} splat (i32 {shift}))"
        )
        most = to.splat(to.op(f"trunc i64 {to.op(f'lshr i64 {limit}, {shift}')} to i32"), "i32")
        inside = to.bits(to.op(f"icmp ult {V32} {indices}, {most}"))
        outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
        to.do(f"br i1 {to.op(f'icmp eq i32 {outside}, 0')}, label %gather, label %slow", "gather:")
        words = to.op(f"shl {V32} {to.op(f'lshr {V32} {near32}, splat (i32 2)')}, splat (i32 7)")
        ladder = ", ".join(f"i32 {4 * lane}" for lane in range(LANES))
        words = to.op(f"add {V32} {words}, <{ladder}>")
        turned = to.op(f"shl {V32} {to.op(f'and {V32} {near32}, splat (i32 3)')}, splat (i32 3)")
        access = _Rows(to, form, turned)
        word = Form(4)
        places = [to.op(f"add {V32} {words}, splat (i32 {128 * row})") for row in range(rows)]
        targets = [to.pointers(base, item, "i32", word) for item in places]
        shadows = [to.pointers(shadow, item, "i32", word) for item in places]
        if stores:
            changed = access.changed(value, targets, shadows, _gather)
            for (row, seen), target, mark in zip(changed, targets, shadows):
                to.scatter(row, target, "%lanes", word)
                to.scatter(seen, mark, "%lanes", word)
            to.do("br label %scattered")
        else:
            loose = access.raw([_gather(to, target) for target in targets])
            missing = access.missing([_gather(to, mark) for mark in shadows])
            to.do(f"br i1 {missing}, label %slow, label %scattered")
    else:
        to.do("br label %slow")
    to.do("slow:")
    slowly = slow(to, form, stores, "%a", "2")
    to.do("br label %scattered", "scattered:")
    returns = form.alone and not stores
    found = ""
    if returns:
        found = to.op(f"phi {form.raw} [ {slowly}, %slow ]" + (f", [ {loose}, %gather ]" if wide else ""))
    flag = to.field("%ctx", Context.COUNTING)
    to.do(f"br i1 {to.op(f'icmp eq i64 {flag}, 0')}, label %end, label %count", "count:")
    to.do(f"store {V64} %a, ptr %area, align 64")
    items = (to.number("%ctx"), "%site", "%mask64", to.number("%area"), size)
    to.op(f"call i64 @count_local({given(items)})")
    to.do("br label %end", "uniform:")
    flag = to.field("%ctx", Context.COUNTING)
    to.do(f"br i1 {to.op(f'icmp eq i64 {flag}, 0')}, label %end, label %groups", "groups:")
    # in each group of eight lanes with an active one, a sector per row
    bytes_ = to.op("bitcast i32 %mask to <4 x i8>")
    some = to.op(f"zext <4 x i1> {to.op(f'icmp ne <4 x i8> {bytes_}, zeroinitializer')} to <4 x i64>")
    parts = [to.op(f"extractelement <4 x i64> {some}, i32 {group}") for group in range(4)]
    total = parts[0]
    for part in parts[1:]:
        total = to.op(f"add i64 {total}, {part}")
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    to.bump(record, Counter.LOCAL_SECTORS, to.op(f"mul i64 {total}, {rows}"))
    to.do("br label %end", "end:")
    result = ""
    if returns:
        ways = {"scattered": found, "count": found, "uniform": held, "groups": held}
        result = to.op(f"phi {form.raw} " + ", ".join(f"[ {way}, %{label} ]" for label, way in ways.items()))
    finish(to, form, stores, result)
    return "\n".join([*to.lines, "}", ""])


def _load(to: Text, place: str) -> str:
    return to.op(f"load {V32}, ptr {place}, align 4")


def _gather(to: Text, pointers: str) -> str:
    return to.gather(pointers, "%lanes", Form(4))


class _Rows:
    """Between the words of the lanes, row by row, and what an access gives or takes. ``turned``: by how many bits the access
    of less than a word lies above the word's lowest."""

    def __init__(self, to: Text, form: Form, turned: str) -> None:
        self.to, self.form, self.turned = to, form, turned

    def raw(self, rows: list[str]) -> str:
        """What was loaded: ``raw`` of a form that is returned; the elements of others go to ``%vals``."""
        to, form = self.to, self.form
        if form.size < 4:
            moved = to.op(f"lshr {V32} {rows[0]}, {self.turned}")
            raw = to.op(f"trunc {V32} {moved} to {form.raw}")
            if not form.alone:
                to.split(raw, form)
            return raw
        if form.alone:
            return rows[0] if form.size == 4 else self._paired(rows)
        for element in range(form.count):
            cell = to.place("%vals", element * LANES * form.width)
            if form.width >= 4:
                parts = rows[element * form.width // 4 : (element + 1) * form.width // 4]
                kind = f"<{LANES * len(parts)} x i32>"
                to.do(f"store {kind} {self._woven(parts)}, ptr {cell}, align 16")
            else:
                down = 8 * (element * form.width % 4)
                moved = to.op(f"lshr {V32} {rows[element * form.width // 4]}, splat (i32 {down})")
                kind = f"<{LANES} x i{8 * form.width}>"
                to.do(f"store {kind} {to.op(f'trunc {V32} {moved} to {kind}')}, ptr {cell}, align 16")
        return ""

    def _woven(self, parts: list[str]) -> str:
        """Words of one lane side by side."""
        to, size = self.to, LANES
        count = len(parts)
        while len(parts) > 1:
            parts = [
                to.pick(one, "i32", size, range(2 * size), other)
                for one, other in zip(parts[::2], parts[1::2])
            ]
            size *= 2
        order = [part * LANES + lane for lane in range(LANES) for part in range(count)]
        return to.pick(parts[0], "i32", size, order) if count > 1 else parts[0]

    def _paired(self, rows: list[str]) -> str:
        return self.to.op(f"bitcast <{2 * LANES} x i32> {self._woven(rows)} to {self.form.raw}")

    def words(self, value: str) -> list[str]:
        """The rows of a value of at least a word."""
        to, form = self.to, self.form
        count = form.size // 4
        words = to.op(f"bitcast {form.raw} {value} to <{LANES * count} x i32>")
        if count == 1:
            return [words]
        return [
            to.pick(words, "i32", LANES * count, [lane * count + row for lane in range(LANES)])
            for row in range(count)
        ]

    def missing(self, seen: list[str]) -> str:
        """Whether an active lane has a byte whose shadow is not set."""
        to, form = self.to, self.form
        wanted = f"splat (i32 {_ONES})"
        if form.size < 4:
            wanted = to.op(f"shl {V32} splat (i32 {_ONES % (1 << 8 * form.size)}), {self.turned}")
        bad = []
        for row in seen:
            set_ = to.op(f"and {V32} {row}, {wanted}")
            bad.append(to.bits(to.op(f"icmp ne {V32} {set_}, {wanted}")))
        found = bad[0]
        for item in bad[1:]:
            found = to.op(f"or i32 {found}, {item}")
        return to.op(f"icmp ne i32 {to.op(f'and i32 {found}, %mask')}, 0")

    def changed(
        self, value: str, targets: list[str], shadows: list[str], load: Callable[[Text, str], str]
    ) -> list[tuple[str, str]]:
        """The rows to store and their shadows."""
        to, form = self.to, self.form
        if form.size >= 4:
            return [(row, f"splat (i32 {_ONES})") for row in self.words(value)]
        bits = (1 << 8 * form.size) - 1
        hole = to.op(f"shl {V32} splat (i32 {bits}), {self.turned}")
        kept = to.op(f"and {V32} {load(to, targets[0])}, {to.op(f'xor {V32} {hole}, splat (i32 -1)')}")
        new = to.op(f"shl {V32} {to.op(f'zext {form.raw} {value} to {V32}')}, {self.turned}")
        ones = to.op(f"shl {V32} splat (i32 {_ONES & bits}), {self.turned}")
        seen = to.op(f"or {V32} {load(to, shadows[0])}, {ones}")
        return [(to.op(f"or {V32} {kept}, {new}"), seen)]
