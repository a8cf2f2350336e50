"""Words of global memory (``Word``) that only one warp has accessed, for all lanes of an access at once, as LLVM IR.

These are functions of ``intrinsics``; see ``races.scattered``. The 16 bytes of each word are loaded separately: gather instructions
are slower on most hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.emitter import Emitter
from ...ir.operands import LANES, Ref, count_of, numbers, vector_of
from ...ir.race_records import Word
from ..access.text import V1, V64

__all__ = ["claims_words"]

_FOUR, _PART, _TESTS = vector_of(8, "i64"), vector_of(16, "i32"), vector_of(16, "i1")
_FLAGGED, _NUMBERS = Word.FLAGGED, Word.NUMBERS
#: of the upper half of ``LOADED``: the number of the accessor that loaded the word, and the flag of words that were not loaded
_LOADER = Word.NUMBERS | 1 << 31


def claims_words() -> str:
    """The functions ``claimed`` and ``claimed_beside``."""
    declared = (
        f"declare {_PART} @llvm.masked.load.v16i32.p0(ptr, {_TESTS}, {_PART})",
        f"declare void @llvm.masked.store.v8i64.p0({_FOUR}, ptr, <8 x i1>)",
    )
    return "\n".join((*declared, _claimed(), _claimed_beside()))


def _claimed() -> str:
    """``claimed(lanes, addresses, words, from, data, span, claim, first, stores, count, notes, shift)``: the lanes whose words
    another accessor has accessed, whose addresses are outside of ``span``, or that store again to words that the accessor has stored.
    The others, with ``count`` words each, are recorded if ``notes`` is not 0. ``shift``: log2 of the step from a byte of global
    memory to the record of its word."""
    to = Emitter()
    to.start("entry")
    to.do(f"%starts = alloca {V64}, align 64")
    mask = to.trunc(Ref("i64", "%lanes"), "i32")
    given = to.load(V64, to.pointer("%addresses"), 8)
    places = to.sub(given, to.splat(Ref("i64", "%from")))
    on = to.bitcast(mask, V1)
    first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.extract(places, to.and_(first, LANES - 1))
    places = to.select(on, places, to.splat(one))
    beyond = to.bits(to.icmp("uge", places, to.splat(Ref("i64", "%span"))))
    to.branch(to.icmp("ne", beyond, 0), "outside", "inside")
    to.start("outside")
    to.give(Ref("i64", "%lanes"))
    to.start("inside")
    to.store(places, "%starts", 64)
    data = to.pointer("%data")
    for lane in range(LANES):
        # prefetch the lines that the access itself will use
        near = to.place(data, to.load("i64", to.place("%starts", 8 * lane)))
        to.do(f"call void @llvm.prefetch.p0(ptr {near}, i32 1, i32 3, i32 1)")
    to.store(to.shl(places, to.splat(Ref("i64", "%shift"))), "%starts", 64)
    to.switch(Ref("i64", "%count"), "lanes1", ((2, "lanes2"), (4, "lanes4")))
    for count in (1, 2, 4):
        to.start(f"lanes{count}")
        _Claims(to, count, mask).write()
    head = "i64 @claimed(" + ", ".join(
        f"i64 %{name}"
        for name in (
            "lanes",
            "addresses",
            "words",
            "from",
            "data",
            "span",
            "claim",
            "first",
            "stores",
            "count",
            "notes",
            "shift",
        )
    )
    return to.function(f"{head})")


def _claimed_beside() -> str:
    """``claimed_beside(at, count, claim, first, power, stores)``: record adjacent words, up to the first group of four in which
    another accessor has accessed a word, or which is stored again; returns how many were recorded. ``at``: the address of the first
    record; ``power``: log2 of the words per lane."""
    to = Emitter()
    to.start("entry")
    at, count, claim = to.pointer("%at"), Ref("i64", "%count"), Ref("i64", "%claim")
    me = to.splat(to.trunc(to.lshr(claim, 32), "i32"), 16)
    launch = to.splat(to.trunc(Ref("i64", "%first"), "i32"), 16)
    stores = to.icmp("ne", Ref("i64", "%stores"), 0)
    telling = to.select(
        stores,
        numbers("i32", (0, 0, 0, _NUMBERS) * 4),
        numbers("i32", (0, _FLAGGED, 0, _signed(_LOADER)) * 4),
    )
    claims, power = to.splat(claim, 8), to.splat(Ref("i64", "%power"), 8)
    begun = to.block
    to.enter("words")
    done = to.phi("i64", (0, begun))
    numbered = to.add(to.splat(done, 8), numbers("i64", (0, 0, 1, 1, 2, 2, 3, 3)))
    on = to.icmp("ult", numbered, to.splat(count, 8))
    both = to.pick(on, [place // 2 for place in range(16)])
    place = to.place(at, to.shl(done, 4))
    words = to.ref(
        _PART,
        f"call {_PART} @llvm.masked.load.v16i32.p0(ptr align 16 {place}, {_TESTS} {both}, {_PART} zeroinitializer)",
    )
    unknown = to.icmp("ult", to.and_(words, _NUMBERS), launch)
    same = to.icmp("eq", to.and_(words, telling), me)
    good = to.bits(to.or_(unknown, same))
    to.branch(to.icmp("eq", to.or_(good, 0x5555), -1), "good", "end")
    to.start("good")
    content = to.add(claims, to.lshr(numbered, power))
    unloaded = to.and_(to.pick(unknown, range(1, 16, 2)), numbers("i1", (0, 1) * 4))
    fresh = to.select(stores, numbers("i1", (1, 0) * 4), unloaded)
    fresh = to.and_(fresh, on)
    to.do(f"call void @llvm.masked.store.v8i64.p0({_FOUR} {content}, ptr align 16 {place}, <8 x i1> {fresh})")
    after = to.add(done, 4)
    done.come(after)
    to.branch(to.icmp("ult", after, count), "words", "end")
    to.start("end")
    last = to.phi("i64", (done, "words"), (count, "good"))
    to.give(last)
    names = ("at", "count", "claim", "first", "power", "stores")
    return to.function(f"i64 @claimed_beside({', '.join(f'i64 %{name}' for name in names)})")


class _Claims:
    """The rest of ``claimed``, for a given number of words per lane."""

    def __init__(self, to: Emitter, count: int, mask: Ref) -> None:
        self.to, self.count, self.mask = to, count, mask
        self.words = to.pointer("%words")
        self.claim = Ref("i64", "%claim")

    def write(self) -> None:
        to, count = self.to, self.count
        tests = [self._part(lane) for lane in range(0, LANES, LANES // count)]
        rest, noted = (self._joined(items) for items in zip(*tests))
        result = to.zext(rest, "i64")
        noting, done = f"noting{count}", f"done{count}"
        stores = to.icmp("ne", Ref("i64", "%stores"), 0)
        to.branch(to.icmp("ne", Ref("i64", "%notes"), 0), noting, done)
        to.start(noting)
        to.branch(stores, f"stored{count}", f"loaded{count}")
        for kind in ("stored", "loaded"):
            to.start(f"{kind}{count}")
            self._note_all(f"{kind}{count}", kind == "stored", noted)
            to.jump(done)
        to.start(done)
        to.give(result)

    def _note_all(self, label: str, stores: bool, noted: Ref) -> None:
        """Record accesses by these lanes. If several lanes access a word, the last one is recorded as storing it and the first one as
        loading it."""
        to, end = self.to, f"{label}end"
        into = to.place(self.words, Word.STORED if stores else Word.LOADED)
        to.branch(to.icmp("eq", noted, -1), f"{label}all", f"{label}some")
        to.start(f"{label}all")
        for number in range(LANES) if stores else reversed(range(LANES)):
            start = to.load("i64", to.place("%starts", 8 * number))
            self._note(into, start, to.add(self.claim, number))
        to.jump(end)
        to.start(f"{label}some")
        with to.while_(f"{label}left") as loop:
            left = to.phi("i32", (noted, f"{label}some"))
            loop.until(to.icmp("eq", left, 0))
            if stores:
                lane = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)")
            else:
                behind = to.ref("i32", f"call i32 @llvm.ctlz.i32(i32 {left}, i1 true)")
                lane = to.sub(Ref("i32", str(LANES - 1)), behind)
            wide = to.zext(lane, "i64")
            start = to.load("i64", to.place("%starts", to.shl(wide, 3)))
            self._note(into, start, to.add(self.claim, wide))
            left.come(to.and_(left, to.not_(to.shl(Ref("i32", "1"), lane))))
        to.jump(end)
        to.start(end)

    def _joined(self, parts: Sequence[Ref]) -> Ref:
        """The union of the masks of all parts."""
        to = self.to
        first, *others = parts
        for number, item in enumerate(others, 1):
            first = to.or_(first, to.shl(item, number * LANES // self.count))
        return to.and_(first, self.mask)

    def _note(self, into: Ref, start: Ref, content: Ref) -> None:
        first = self.to.place(into, start)
        for word in range(self.count):
            self.to.store(content, self.to.place(first, word * Word.BYTES))

    def _part(self, lane: int) -> tuple[Ref, Ref]:
        """32 words, of the lanes from a given one on: the masks of lanes that are left, and of lanes to record."""
        to, count = self.to, self.count
        each = 2 * count
        pieces = []
        for number in range(lane, lane + LANES // count):
            start = to.load("i64", to.place("%starts", 8 * number))
            pieces.append(to.load(vector_of(each, "i64"), to.place(self.words, start), 16))
        while len(pieces) > 8:
            size = count_of(pieces[0].type)
            pieces = [to.pick(one, range(2 * size), other) for one, other in zip(pieces[::2], pieces[1::2])]
        # the upper halves of STORED and LOADED, interleaved by word; then separated
        halves = [to.bitcast(piece, _PART) for piece in pieces]
        halves = [to.pick(one, range(1, 32, 2), other) for one, other in zip(halves[::2], halves[1::2])]
        stored, loaded = (
            to.pick(
                to.pick(halves[0], range(side, 32, 2), halves[1]),
                range(32),
                to.pick(halves[2], range(side, 32, 2), halves[3]),
            )
            for side in (0, 1)
        )
        me = to.splat(to.trunc(to.lshr(self.claim, 32), "i32"))
        first = to.splat(to.trunc(Ref("i64", "%first"), "i32"))
        storer, loader = to.and_(stored, _NUMBERS), to.and_(loaded, _NUMBERS)
        unstored, unloaded = (to.bits(to.icmp("ult", number, first)) for number in (storer, loader))
        mine = to.bits(to.icmp("eq", to.and_(stored, _FLAGGED), me))
        loaded_once, of_me = (
            to.bits(to.icmp("eq", item, me)) for item in (to.and_(loaded, _signed(_LOADER)), loader)
        )
        stores = to.icmp("ne", Ref("i64", "%stores"), 0)
        free = to.or_(unstored, to.select(stores, Ref("i32", "0"), mine))
        known = to.or_(unloaded, to.select(stores, of_me, loaded_once))
        done = to.and_(free, known)
        noted = to.and_(free, to.or_(unloaded, to.select(stores, of_me, Ref("i32", "0"))))
        rest = to.not_(done)
        if count == 1:
            return rest, noted
        # a lane is left if any of its words is, and then none of them is recorded
        rest = self._of_lanes(rest)
        noted = to.and_(self._of_lanes(noted), to.not_(rest))
        return rest, noted

    def _of_lanes(self, bits: Ref) -> Ref:
        """The lanes of a part with at least one of these words."""
        to, count = self.to, self.count
        groups = to.bitcast(bits, vector_of(LANES // count, f"i{count}"))
        some = to.bits(to.icmp("ne", groups, 0))
        return to.zext(some, "i32")


def _signed(number: int) -> int:
    """A 32-bit constant as LLVM writes it: signed."""
    return number - (1 << 32) if number >> 31 else number
