"""Checks of shared memory, for accesses of 16 bytes by up to 32 lanes at once, as LLVM IR; see ``races.shared_memory``.

These are functions of ``intrinsics``. Each iteration takes four pieces of 16 bytes, which are 16 words. Most words have one of few
epochs: an epoch that happened before the access is compared with all 16 words at once, and with those of the following pieces.
"""

from __future__ import annotations

from ...ir.emitter import Emitter, Phi
from ...ir.operands import LANES, Ref, numbers, vector_of
from ...ir.race_records import Race, RaceWarp
from ..access.text import V1, V32, V64

__all__ = ["pieces_words"]

_FOUR, _WORDS, _TESTS = vector_of(4, "i32"), vector_of(16, "i32"), vector_of(16, "i1")
_NONE = Ref(_TESTS, "zeroinitializer")


def pieces_words() -> str:
    """The functions ``pieces_stored`` and ``pieces_loaded``."""
    declared = "\n".join(
        f"declare {kind} @llvm.{word}.{kind}({kind}, i1)"
        for word, kind in (("ctlz", "i32"), ("cttz", "i32"), ("cttz", "i16"))
    )
    return "\n".join((declared, _Pieces(True).text(), _Pieces(False).text()))


class _Pieces:
    """``pieces_stored(record, me, epoch, info, each, lanes, places, limit)`` and ``pieces_loaded`` (also with ``async_proxy`` and
    ``noted``): returns whether no access has a race; all accesses are then recorded. Otherwise some may have been recorded. ``each``:
    the lane of a piece is its number; ``limit``: the last offset in shared memory at which a piece may begin; ``noted``: the loads
    need not be recorded."""

    def __init__(self, stores: bool) -> None:
        self.to, self.stores = Emitter(), stores
        self.me = Ref("i64", "%me")

    def text(self) -> str:
        to = self.to
        to.start("entry")
        to.do(f"%starts = alloca {V64}, align 64", f"%infos = alloca {V32}, align 64")
        me, record = to.pointer("%me"), to.pointer("%record")
        self.epoch = to.trunc(Ref("i64", "%epoch"), "i32")
        self.base = to.field(me, RaceWarp.BASE, "i32")
        self.mask = to.field(me, RaceWarp.MASK, "i32")
        self.agent = to.and_(to.field(me, RaceWarp.EPOCH, "i32"), 127)
        plane = to.field(record, Race.PLANE)
        self.planes = [to.field(record, Race.PLANES, "ptr")]
        for _ in range(Race.PLANES_COUNT - 1):
            self.planes.append(to.place(self.planes[-1], plane))
        count = self._prepare()
        to.enter("groups")
        group = to.phi("i64", (0, "checked"))
        # even stores of the same warp are not visible to the async proxy
        good = to.phi("i32", (self.epoch if self.stores else 0, "checked"))
        self.starts = to.place("%starts", to.shl(group, 5))
        self.infos = to.place("%infos", to.shl(group, 4))
        self.at = [to.field(self.starts, 8 * piece) for piece in range(4)]
        last = self._store(good) if self.stores else self._load(good)
        after = to.add(group, 1)
        group.come(after)
        good.come(last)
        to.branch(to.icmp("ult", after, count), "groups", "done")
        for label, answer in (("done", 1), ("unsure", 0)):
            to.start(label)
            to.do(f"ret i64 {answer}")
        more = "" if self.stores else ", i64 %async_proxy, i64 %noted"
        name = "pieces_stored" if self.stores else "pieces_loaded"
        parameters = ("record", "me", "epoch", "info", "each", "lanes", "places", "limit")
        return to.function(f"i64 @{name}({', '.join(f'i64 %{item}' for item in parameters)}{more})")

    def _prepare(self) -> Ref:
        """The offsets of the pieces and the details to record; inactive lanes have those of the first active one. Returns how many
        groups of four pieces there are."""
        to = self.to
        mask = to.trunc(Ref("i64", "%lanes"), "i32")
        lanes = to.bitcast(mask, V1)
        starts = to.load(V64, to.pointer("%places"), 8)
        first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
        first = to.and_(first, LANES - 1)
        starts = to.select(lanes, starts, to.splat(to.extract(starts, first)))
        beyond = to.icmp("ugt", starts, to.splat(Ref("i64", "%limit")))
        loose = to.icmp("ne", to.and_(starts, 15), 0)
        wrong = to.icmp("ne", to.bits(to.or_(beyond, loose)), 0)
        to.branch(wrong, "unsure", "inside")
        to.start("inside")
        to.store(starts, "%starts", 64)
        own = to.select(lanes, numbers("i32", range(LANES)), to.splat(first))
        own = to.mul(own, to.splat(to.trunc(Ref("i64", "%each"), "i32")))
        info = to.add(own, to.splat(to.trunc(Ref("i64", "%info"), "i32")))
        to.store(info, "%infos", 64)
        free = to.ref("i32", f"call i32 @llvm.ctlz.i32(i32 {mask}, i1 false)")
        count = to.lshr(to.sub(Ref("i32", str(LANES + 3)), free), 2)
        to.branch(to.icmp("eq", mask, 0), "done", "checked")
        to.start("checked")
        return to.zext(count, "i64")

    # -- sixteen words -----------------------------------------------------------------------------------------------------

    def _words(self, plane: int) -> Ref:
        """The words of four pieces in one of the planes."""
        to = self.to
        four = [to.load(_FOUR, to.place(self.planes[plane], start), 4) for start in self.at]
        halves = [to.pick(one, range(8), other) for one, other in zip(four[::2], four[1::2])]
        return to.pick(halves[0], range(16), halves[1])

    def _put(self, plane: int, words: Ref) -> None:
        for piece, start in enumerate(self.at):
            part = self.to.pick(words, range(4 * piece, 4 * piece + 4))
            self.to.store(part, self.to.place(self.planes[plane], start), 4)

    def _info(self) -> Ref:
        """The details of the epochs to record."""
        to = self.to
        four = to.load(_FOUR, self.infos, 4)
        return to.pick(four, [word // 4 for word in range(16)])

    def _note(self, plane: int) -> None:
        self._put(plane, self.to.splat(self.epoch, 16))
        self._put(plane + 1, self._info())

    def _store(self, good: Ref) -> Ref:
        # if the first reader comes before the last barrier of all warps, so does the other one; most words have no reader after it
        for plane in (Race.WRITER, Race.READER, Race.OTHER):
            words = self._words(plane)
            good, _ = self._unordered(plane, words, self._late(words, good), good, None)
        self._note(Race.WRITER)
        return good

    def _load(self, good: Ref) -> Ref:
        to = self.to
        words = self._words(Race.WRITER)
        late = self._late(words, good)
        # for reads by the async proxy every word is checked
        proxy = Ref("i64", "%async_proxy")
        fresh = to.icmp("ne", words, to.splat(good, 16))
        tests = to.splat(to.icmp("ne", proxy, 0), 16)
        late = to.or_(late, to.and_(tests, fresh))
        good, _ = self._unordered(Race.WRITER, words, late, good, proxy)
        noted, note, after = (to.label(name) for name in ("noted", "note", "after"))
        to.branch(to.icmp("ne", Ref("i64", "%noted"), 0), after, note)
        to.start(note)
        words = self._words(Race.READER)
        stale = to.icmp("ne", words, to.splat(self.epoch, 16))
        to.branch(to.icmp("ne", to.bits(stale), 0), noted, after)
        to.start(noted)
        _, others = self._unordered(Race.READER, words, self._late(words, self.epoch), self.epoch, None, True)
        several, alone = to.label("several"), to.label("alone")
        to.branch(to.icmp("ne", to.bits(others), 0), several, alone)
        to.start(alone)
        self._note(Race.READER)
        to.jump(after)
        to.start(several)
        self._note_beside(words, others)
        to.enter(after)
        return good

    def _note_beside(self, words: Ref, others: Ref) -> None:
        """Some words have another reader, which is kept: record the access as the other reader of these words."""
        to = self.to
        epochs, info = to.splat(self.epoch, 16), self._info()
        self._put(Race.READER, to.select(others, words, epochs))
        self._put(Race.READER + 1, to.select(others, self._words(Race.READER + 1), info))
        self._put(Race.OTHER, to.select(others, epochs, self._words(Race.OTHER)))
        self._put(Race.OTHER + 1, to.select(others, info, self._words(Race.OTHER + 1)))

    # -- order -------------------------------------------------------------------------------------------------------------

    def _late(self, words: Ref, good: Ref) -> Ref:
        """Words whose epochs are of other agents, after the last barrier of all warps, and differ from ``good``."""
        to = self.to
        after = to.icmp("uge", words, to.splat(self.base, 16))
        agents = to.and_(words, to.splat(self.mask, 16))
        other = to.icmp("ne", agents, to.splat(self.agent, 16))
        fresh = to.icmp("ne", words, to.splat(good, 16))
        own = to.icmp("ne", words, to.splat(self.epoch, 16))
        return to.and_(to.and_(after, other), to.and_(fresh, own))

    def _unordered(
        self, plane: int, words: Ref, late: Ref, good: Ref, proxy: Ref | None, keep: bool = False
    ) -> tuple[Ref, Ref]:
        """Look up each epoch of some words in the warp's vector clock. Returns the last epoch that happened before the access, and
        with ``keep`` the words whose epochs did not; otherwise such words end the check."""
        to = self.to
        ask, one, ordered, open_, done = (
            to.label(name) for name in ("ask", "one", "ordered", "open", "asked")
        )
        begun = to.block
        to.enter(ask)
        left = to.phi(_TESTS, (late, begun))
        known = to.phi("i32", (good, begun))
        others = to.phi(_TESTS, (_NONE, begun))
        bits = to.bits(left)
        to.branch(to.icmp("eq", bits, 0), done, one)
        to.start(one)
        word = to.zext(to.ref("i16", f"call i16 @llvm.cttz.i16(i16 {bits}, i1 true)"), "i64")
        start = to.load("i64", to.place(self.starts, to.shl(to.lshr(word, 2), 3)))
        place = to.add(start, to.shl(to.and_(word, 3), 2))
        epoch = to.load("i32", to.place(self.planes[plane], place))
        same = to.icmp("eq", words, to.splat(epoch, 16))
        rest = to.and_(left, to.not_(same))
        wide = to.zext(epoch, "i64")
        if proxy is None:
            before = to.run("race_happened_before_cached", (self.me, wide))
        else:
            before = to.run("race_visible", (self.me, wide, proxy))
        to.branch(to.icmp("ne", before, 0), ordered, open_ if keep else "unsure")
        to.start(ordered)
        self._again(ask, left, rest, known, epoch, others, others)
        if keep:
            to.start(open_)
            self._again(ask, left, rest, known, known, others, to.or_(others, same))
        to.start(done)
        return known, others

    def _again(self, ask: str, left: Phi, rest: Ref, known: Phi, epoch: Ref, others: Phi, more: Ref) -> None:
        for phi, value in ((left, rest), (known, epoch), (others, more)):
            phi.come(value)
        self.to.jump(ask)
