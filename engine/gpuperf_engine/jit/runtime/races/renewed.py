"""Words of global memory (``Word``) whose earlier accesses are by the warp itself or happened before, for all lanes of an access at
once, as LLVM IR.

This is a function of ``intrinsics``; see ``races.scattered``. It does what ``race_noted`` does for one word of each lane.
"""

from __future__ import annotations

from ...ir.emitter import Emitter
from ...ir.operands import LANES, Ref, numbers, vector_of
from ...ir.race_records import Word
from ..access.text import V1, V64

__all__ = ["renewed_words"]

#: lanes processed at a time
_SOME = 8
_V8, _V16 = vector_of(_SOME, "i64"), vector_of(2 * _SOME, "i64")
_NAMES = (
    "lanes", "addresses", "words", "from", "data", "span", "claim", "first", "before", "again", "stores", "values"
)  # fmt: skip


def renewed_words() -> str:
    """``renewed(lanes, addresses, words, from, data, span, claim, first, before, again, stores, values)``: the lanes whose word an
    accessor other than that of the claim and ``before`` has accessed, or whose addresses are outside of ``span``; the others are
    recorded. ``again``: whether loads by ``before`` have another epoch; ``stores``: whether the words are stored, and ``values``: the
    host address of the values of lanes, or 0. No two lanes store to one word."""
    to = Emitter()
    to.start("entry")
    to.do(f"%starts = alloca {V64}, align 64")
    to.do(f"%renewed = alloca [{LANES * Word.BYTES} x i8], align 64")
    mask = to.trunc(Ref("i64", "%lanes"), "i32")
    given = to.load(V64, to.pointer("%addresses"), 8)
    places = to.sub(given, to.splat(Ref("i64", "%from")))
    first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.extract(places, to.and_(first, LANES - 1))
    places = to.select(to.bitcast(mask, V1), places, to.splat(one))
    beyond = to.bits(to.icmp("uge", places, to.splat(Ref("i64", "%span"))))
    to.branch(to.icmp("ne", beyond, 0), "outside", "inside")
    to.start("outside")
    to.give(Ref("i64", "%lanes"))
    to.start("inside")
    to.store(places, "%starts", 64)
    to.branch(to.icmp("ne", Ref("i64", "%stores"), 0), "storing", "loading")
    for label in ("loading", "storing"):
        to.start(label)
        renewal = _Renewal(to, label == "storing")
        done = [renewal.part(lane) for lane in range(0, LANES, _SOME)]
        found = to.zext(done[0], "i32")
        for number, bits in enumerate(done[1:], 1):
            found = to.or_(found, to.shl(to.zext(bits, "i32"), number * _SOME))
        found = to.and_(found, mask)
        _write(to, label, found)
        to.give(to.zext(to.and_(mask, to.not_(found)), "i64"))
    return to.function(f"i64 @renewed({', '.join(f'i64 %{name}' for name in _NAMES)})")


def _write(to: Emitter, label: str, found: Ref) -> None:
    """Write the words of these lanes to memory; if several lanes load a word, that of the first one remains."""
    pair = vector_of(2, "i64")
    words = to.pointer("%words")
    begun = to.block
    to.enter(f"{label}left")
    left = to.phi("i32", (found, begun))
    to.branch(to.icmp("eq", left, 0), f"{label}done", f"{label}lane")
    to.start(f"{label}lane")
    behind = to.ref("i32", f"call i32 @llvm.ctlz.i32(i32 {left}, i1 true)")
    lane = to.sub(Ref("i32", str(LANES - 1)), behind)
    wide = to.zext(lane, "i64")
    start = to.load("i64", to.place("%starts", to.shl(wide, 3)))
    content = to.load(pair, to.place("%renewed", to.mul(wide, Word.BYTES)), 16)
    to.store(content, to.place(words, to.shl(start, 2)), 16)
    left.come(to.and_(left, to.not_(to.shl(Ref("i32", "1"), lane))))
    to.jump(f"{label}left")
    to.start(f"{label}done")


class _Renewal:
    """The new words of lanes, in ``%renewed``."""

    def __init__(self, to: Emitter, stores: bool) -> None:
        self.to, self.stores = to, stores
        claim = Ref("i64", "%claim")
        self.claim = to.splat(claim, _SOME)
        self.me = to.splat(to.lshr(claim, 32), _SOME)
        self.before = to.splat(Ref("i64", "%before"), _SOME)
        self.first = to.splat(Ref("i64", "%first"), _SOME)
        self.again = to.splat(to.icmp("ne", Ref("i64", "%again"), 0), _SOME)
        self.known = to.splat(to.icmp("ne", Ref("i64", "%values"), 0), _SOME)

    def part(self, lane: int) -> Ref:
        """The words of consecutive lanes: the mask of those that are recorded."""
        to = self.to
        words, pair = to.pointer("%words"), vector_of(2, "i64")
        starts = [to.load("i64", to.place("%starts", 8 * (lane + number))) for number in range(_SOME)]
        pieces = [to.load(pair, to.place(words, to.shl(start, 2)), 16) for start in starts]
        while len(pieces) > 1:
            count = 2 * _SOME // len(pieces)
            pieces = [to.pick(one, range(2 * count), other) for one, other in zip(pieces[::2], pieces[1::2])]
        stored, loaded = (to.pick(pieces[0], range(side, 2 * _SOME, 2)) for side in (0, 1))
        storer = to.and_(to.lshr(stored, 32), Word.FLAGGED)
        loader = to.and_(to.lshr(loaded, 32), Word.NUMBERS)
        unstored = to.icmp("ult", to.and_(storer, Word.NUMBERS), self.first)
        unloaded = to.icmp("ult", loader, self.first)
        done = to.and_(self._free(storer, unstored), self._free(loader, unloaded))
        content = to.add(self.claim, numbers("i64", range(lane, lane + _SOME)))
        if self.stores:
            new = content, self._differing(lane, starts, unstored, unloaded, loaded)
        else:
            nothing = to.icmp("slt", loaded, 0)
            by_before = to.and_(to.icmp("eq", loader, self.before), self.again)
            anew = to.or_(nothing, by_before)
            kept = to.or_(content, to.and_(loaded, 15 << Word.DIFFERS))
            new = stored, to.select(unloaded, content, to.select(anew, kept, loaded))
        joined = to.pick(new[0], [place // 2 + place % 2 * _SOME for place in range(2 * _SOME)], new[1])
        to.store(joined, to.place("%renewed", lane * Word.BYTES), 64)
        return to.bits(done)

    def _free(self, number: Ref, unknown: Ref) -> Ref:
        to = self.to
        mine = to.or_(to.icmp("eq", number, self.me), to.icmp("eq", number, self.before))
        return to.or_(unknown, mine)

    def _differing(self, lane: int, starts: list[Ref], unstored: Ref, unloaded: Ref, loaded: Ref) -> Ref:
        """``LOADED`` after stores, with the bytes that now have several values."""
        to, kind = self.to, vector_of(_SOME, "i32")
        data = to.pointer("%data")
        held = Ref(kind, "poison")
        for number, start in enumerate(starts):
            item = to.load("i32", to.place(data, start), 4)
            held = to.ref(kind, f"insertelement {kind} {held}, i32 {item}, i32 {number}")
        # without stored values, any readable address serves
        given = to.select(
            to.icmp("ne", Ref("i64", "%values"), 0), Ref("i64", "%values"), Ref("i64", "%addresses")
        )
        values = to.load(kind, to.place(to.pointer(str(given)), 4 * lane), 4)
        other = to.xor(held, values)
        low = to.add(to.and_(other, 0x7F7F7F7F), to.splat(Ref("i32", str(0x7F7F7F7F)), _SOME))
        each = to.and_(to.lshr(to.or_(low, other), 7), 0x01010101)
        bits = each
        for places in (7, 14, 21):
            bits = to.or_(bits, to.lshr(each, places))
        bits = to.zext(to.and_(bits, 15), "i64")
        new = to.and_(to.icmp("ne", bits, 0), to.and_(self.known, to.not_(unstored)))
        nobody = to.or_(to.shl(self.me, 32), to.splat(Ref("i64", str(Word.NOTHING)), _SOME))
        before = to.select(unloaded, nobody, loaded)
        return to.select(new, to.or_(before, to.shl(bits, Word.DIFFERS)), loaded)
