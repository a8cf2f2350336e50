"""Words of global memory that the lanes of an instruction access at once (``Batch``), as LLVM IR.

These are functions of ``intrinsics``; see ``races.batched``. The values of each lane are loaded separately: gather instructions are
slower on most hosts.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.emitter import Emitter
from ...ir.operands import LANES, Ref, numbers, vector_of
from ...ir.race_records import Batches
from ..access.text import V1, V32, V64

__all__ = ["batch_words"]

_V16 = vector_of(LANES, "i16")
#: possible sizes of a lane's access, in bytes
_SIZES = (4, 1, 2, 8, 16)
_HEADS = {
    "batch_places": ("lanes", "addresses", "from", "span", "batches", "places", "unit"),
    "batch_claim": ("lanes", "places", "bits", "count", "least"),
    "batch_row": ("places", "first", "power"),
    "batch_keep": ("target", "places"),
    "batch_same": ("lanes", "places", "others"),
    "batch_holding": ("lanes", "places", "place"),
    "batch_compare": ("lanes", "places", "data", "values", "differs", "size", "unit", "before"),
}  # fmt: skip


def batch_words() -> str:
    """The functions. ``lanes`` is a mask, ``count`` the number of words per lane, ``size`` the bytes per lane, ``unit`` the logarithm
    of the bytes of a word; ``bits``: one bit per word of global memory, set if it has been accessed (see ``race_bits_at``);
    ``places``: the number of the first word of each lane.

    ``batch_places``: write the numbers to ``places``, and update the range in ``batches``; returns whether all are within ``span``
    bytes of the address ``from``. Inactive lanes get the number of the first active one.
    ``batch_claim``: the lanes whose words were not accessed before, if there are at least ``least``.
    ``batch_row``: write the numbers to ``places``, for adjacent lanes with 1 << ``power`` words each.
    ``batch_keep``: copy ``places`` to another address.
    ``batch_same``: whether two batches have the same words.
    ``batch_holding``: the lanes that access a word.
    ``batch_compare``: write to ``differs``, 16 bits per lane, which bytes of ``values`` differ from those at ``data``; if ``before``
    is not 0, in addition to the bits that are set there.
    """
    declared = (
        f"declare i32 @llvm.vector.reduce.umin.v32i32({V32})",
        f"declare i32 @llvm.vector.reduce.umax.v32i32({V32})",
    )
    makers: tuple[tuple[str, Callable[[Emitter], None]], ...] = (
        ("batch_places", _places),
        ("batch_claim", _claim),
        ("batch_row", _row),
        ("batch_keep", _keep),
        ("batch_same", _same),
        ("batch_holding", _holding),
        ("batch_compare", _compare),
    )
    return "\n".join((*declared, *(_function(name, make) for name, make in makers)))


def _function(name: str, make: Callable[[Emitter], None]) -> str:
    to = Emitter()
    to.start("entry")
    make(to)
    return to.function(f"internal i64 @{name}({', '.join(f'i64 %{item}' for item in _HEADS[name])})")


def _given(name: str) -> Ref:
    return Ref("i64", f"%{name}")


def _narrow(to: Emitter, name: str) -> Ref:
    return to.trunc(_given(name), "i32")


def _loaded(to: Emitter, base: Ref, offsets: list[Ref], narrow: str) -> Ref:
    """Up to four bytes of each lane, zero-extended."""
    kind, halves = vector_of(LANES // 2, "i32"), []
    for half in (offsets[: LANES // 2], offsets[LANES // 2 :]):
        held = Ref(kind, "poison")
        for lane, offset in enumerate(half):
            item = _extended(to, to.load(narrow, to.place(base, offset), 4 if narrow == "i32" else 1))
            held = to.ref(kind, f"insertelement {kind} {held}, i32 {item}, i32 {lane}")
        halves.append(held)
    return to.pick(halves[0], range(LANES), halves[1])


def _extended(to: Emitter, item: Ref) -> Ref:
    """An element, or a vector of elements, extended to four bytes."""
    return item if item.type.rstrip(">").endswith("i32") else to.zext(item, "i32")


def _spilled(to: Emitter, items: Ref, room: str) -> list[Ref]:
    """The elements of a vector, through a stack slot."""
    to.store(items, room, 64)
    return [to.zext(to.load("i32", to.place(room, 4 * lane), 4), "i64") for lane in range(LANES)]


def _places(to: Emitter) -> None:
    mask = _narrow(to, "lanes")
    places = to.sub(to.load(V64, to.pointer("%addresses"), 8), to.splat(_given("from")))
    first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.extract(places, to.and_(first, LANES - 1))
    places = to.select(to.bitcast(mask, V1), places, to.splat(one))
    beyond = to.bits(to.icmp("uge", places, to.splat(_given("span"))))
    to.branch(to.icmp("ne", beyond, 0), "outside", "inside")
    to.start("outside")
    to.give(Ref("i64", "0"))
    to.start("inside")
    words = to.trunc(to.lshr(places, to.splat(_given("unit"))), "i32")
    to.store(words, to.pointer("%places"), 64)
    batches = to.pointer("%batches")
    for word, test, offset in (("umin", "ult", Batches.LOWEST), ("umax", "ugt", Batches.HIGHEST)):
        most = to.zext(to.ref("i32", f"call i32 @llvm.vector.reduce.{word}.v32i32({V32} {words})"), "i64")
        before = to.load("i64", to.place(batches, offset))
        to.store(to.select(to.icmp(test, most, before), most, before), to.place(batches, offset))
    to.give(Ref("i64", "1"))


def _claim(to: Emitter) -> None:
    to.do(f"%wheres = alloca {V32}, align 64", f"%owns = alloca {V32}, align 64")
    mask, bits = _narrow(to, "lanes"), to.pointer("%bits")
    places = to.load(V32, to.pointer("%places"), 64)
    every = to.sub(to.shl(Ref("i32", "1"), _narrow(to, "count")), 1)
    own = to.shl(to.splat(every), to.and_(places, 7))
    where = to.lshr(places, 3)
    turned = to.shl(to.and_(to.lshr(where, Batches.BLOCK), Batches.TURNS), Batches.TURN)
    starts = _spilled(to, to.xor(where, turned), "%wheres")
    to.store(own, "%owns", 64)
    owns = [to.load("i8", to.place("%owns", 4 * lane)) for lane in range(LANES)]
    held = [to.load("i8", to.place(bits, start)) for start in starts]
    here = [to.and_(one, other) for one, other in zip(held, owns)]
    some = here[0]
    for item in here[1:]:
        some = to.or_(some, item)
    to.branch(to.icmp("eq", some, 0), "free", "taken")
    to.start("free")
    to.branch(to.icmp("eq", mask, -1), "all", "some")
    to.start("all")
    for lane in range(LANES):
        _mark(to, bits, 4 * lane)
    to.give(_given("lanes"))
    to.start("taken")
    found = Ref(vector_of(LANES, "i8"), "poison")
    for lane, item in enumerate(here):
        found = to.ref(found.type, f"insertelement {found.type} {found}, i8 {item}, i32 {lane}")
    fresh = to.and_(to.bits(to.icmp("eq", found, 0)), mask)
    count = to.zext(to.ref("i32", f"call i32 @llvm.ctpop.i32(i32 {fresh})"), "i64")
    to.branch(to.icmp("ult", count, _given("least")), "few", "some")
    to.start("few")
    to.give(Ref("i64", "0"))
    to.start("some")
    lanes = to.phi("i32", (mask, "free"), (fresh, "taken"))
    with to.while_("left") as loop:
        left = to.phi("i32", (lanes, "some"))
        loop.until(to.icmp("eq", left, 0))
        next_one = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)")
        _mark(to, bits, to.shl(to.zext(next_one, "i64"), 2))
        left.come(to.and_(left, to.sub(left, 1)))
    to.give(to.zext(lanes, "i64"))


def _mark(to: Emitter, bits: Ref, offset: Ref | int) -> None:
    """Set the bits of the words of a lane: they have been accessed."""
    start = to.zext(to.load("i32", to.place("%wheres", offset), 4), "i64")
    at = to.place(bits, start)
    to.store(to.or_(to.load("i8", at), to.load("i8", to.place("%owns", offset))), at)


def _row(to: Emitter) -> None:
    lanes = to.shl(numbers("i32", range(LANES)), to.splat(_narrow(to, "power")))
    to.store(to.add(lanes, to.splat(_narrow(to, "first"))), to.pointer("%places"), 64)
    to.give(Ref("i64", "0"))


def _keep(to: Emitter) -> None:
    to.store(to.load(V32, to.pointer("%places"), 64), to.pointer("%target"), 64)
    to.give(Ref("i64", "0"))


def _same(to: Emitter) -> None:
    one, other = (to.load(V32, to.pointer(f"%{name}"), 64) for name in ("places", "others"))
    differ = to.and_(to.bits(to.icmp("ne", one, other)), _narrow(to, "lanes"))
    to.give(to.zext(to.icmp("eq", differ, 0), "i64"))


def _holding(to: Emitter) -> None:
    places = to.load(V32, to.pointer("%places"), 64)
    found = to.bits(to.icmp("eq", places, to.splat(_narrow(to, "place"))))
    to.give(to.zext(to.and_(found, _narrow(to, "lanes")), "i64"))


def _compare(to: Emitter) -> None:
    to.do(f"%room = alloca {V32}, align 64")
    mask = _narrow(to, "lanes")
    places = to.load(V32, to.pointer("%places"), 64)
    first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.extract(places, to.and_(first, LANES - 1))
    places = to.select(to.bitcast(mask, V1), places, to.splat(one))
    offsets = [to.shl(place, _given("unit")) for place in _spilled(to, places, "%room")]
    differs, again = to.pointer("%differs"), to.splat(to.icmp("ne", _given("before"), 0))
    before = to.select(again, to.load(_V16, differs, 2), 0)
    to.switch(_given("size"), "lanes4", [(size, f"lanes{size}") for size in _SIZES[1:]])
    for size in _SIZES:
        to.start(f"lanes{size}")
        count, kind = max(size // 4, 1), f"i{8 * min(size, 4)}"
        given = to.load(vector_of(count * LANES, kind), to.pointer("%values"), min(size, 4))
        found = before
        for word in range(count):
            held = _loaded(to, to.place(to.pointer("%data"), 4 * word), offsets, kind)
            value = to.pick(given, range(word, count * LANES, count)) if count > 1 else _extended(to, given)
            found = to.or_(found, to.shl(to.trunc(_differing(to, held, value), "i16"), 4 * word))
        to.store(found, differs, 2)
        to.give(Ref("i64", "0"))


def _differing(to: Emitter, one: Ref, other: Ref) -> Ref:
    """The bytes of words that differ, one bit each."""
    bits = to.xor(one, other)
    low = to.add(to.and_(bits, 0x7F7F7F7F), to.splat(Ref("i32", str(0x7F7F7F7F))))
    each = to.and_(to.lshr(to.or_(low, bits), 7), 0x01010101)
    found = each
    for places in (7, 14, 21):
        found = to.or_(found, to.lshr(each, places))
    return to.and_(found, 15)
