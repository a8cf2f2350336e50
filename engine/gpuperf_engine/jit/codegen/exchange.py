"""Exchange between lanes as LLVM IR: shfl, vote, match, redux, activemask, elect, bar.warp.sync, mma.

The participants are the live lanes of the member mask. All must be present; otherwise the warp stops for the scheduler
(``Event.PARK``), which executes the operation when the others have arrived, and continues after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...flow.operands import matched
from ...isa.effects import (
    ACTIVEMASK,
    CONVERGENCE,
    ELECT,
    MATCH,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUX,
    SHFL,
    VOTE,
    WARP_BARRIER,
    WARPGROUP,
    Effect,
)
from ...isa.evaluation import evaluate
from ...isa.rules import Noted
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction, Operand
from ..ir.abi import Context, State
from ..ir.codes import CONVERGE_CODE, SYNC_CODE, Event, Status
from ..ir.operands import LANES, Ref, constant, vector_ll
from ..ir.values import NativeValue
from ..runtime.matrix_functions import matrix_name, matrix_types
from .handlers import handles
from .memory import pointer_number
from .rows import write_rows
from .warpgroup import write_warpgroup

if TYPE_CHECKING:
    from .block import BlockWriter

U32 = scalar_type("u32")
PRED = scalar_type("pred")
#: the mask of all lanes
_ALL = (1 << LANES) - 1
_LANE_IDS = f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>"
_LANE_BITS = f"<{', '.join(f'i32 {1 << lane}' for lane in range(LANES))}>"


class _Exchange:
    """One exchange: its operands by name, and ``members``, the lanes that take part, as u32 of each lane."""

    def __init__(self, to: BlockWriter, instruction: Instruction) -> None:
        self.to = to
        self.instruction = instruction
        self.guard = to.guard(instruction)
        self.mask = to.effective_mask(self.guard)
        self.operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        self.types = {slot.name: slot.type for slot, _ in matched(instruction)}
        self.members = self._members()

    def source(self, name: str) -> NativeValue:
        """An operand's value."""
        return self.to.source(self.operands[name], self.types[name])

    def _members(self) -> NativeValue:
        to, writer = self.to, self.to.writer
        here = to.value(U32, self.mask, True)
        if self.instruction.effect.whole_warp:
            asked = to.constant(_ALL, U32)
        elif "membermask" not in self.operands:
            return here
        else:
            asked = self.to.source(self.operands["membermask"], U32)
        live = writer.load("i32", "%live")
        if asked.number == _ALL:  # no lane is alien
            to.check_faults()
            wanted, missing = to.value(U32, live, True), writer.icmp("ne", self.mask, live)
        else:
            wanted, missing = self._checked(asked, live)
        stay, go = writer.label("park"), writer.label("together")
        writer.branch(missing, stay, go)
        writer.start(stay)
        cell = to.writer.at("%st", State.MEMBERS)
        kept = writer.load(f"<{LANES} x i32>", cell, 64)
        given = writer.select(to.spread(self.mask), asked.vector(), kept)
        writer.store(given, cell, 64)
        to.generator.stop(to.place, Status.EVENT, Event.PARK, to.reason)
        writer.start(go)
        if self.instruction.effect.whole_warp:
            to.error(writer.xor(self.mask, -1), Event.INCOMPLETE)
        return wanted

    def _checked(self, asked: NativeValue, live: Ref) -> tuple[NativeValue, Ref]:
        """The lanes that take part, and i1: whether any of them is missing. Lanes that are not in their own mask are an error."""
        to, writer = self.to, self.to.writer
        wanted = asked._and(to.value(U32, live, True))
        missing = self._any(wanted._and(to.value(U32, writer.xor(self.mask, -1), True)))
        if asked.uniform:
            alien = writer.and_(self.mask, writer.xor(asked.scalar(), -1))
        else:
            own = asked._and(to.value(U32, _LANE_BITS))
            alien = writer.and_(self.mask, to.bits_of(own._compare(own.constant(0, U32), "eq")))
        if self.instruction.effect is SHFL:
            alien, wanted = self._shuffle_by_all(asked, alien, wanted)
        to.error(alien, Event.MEMBER_MASK)
        return wanted, missing

    def _shuffle_by_all(self, asked: NativeValue, alien: Ref, wanted: NativeValue) -> tuple[Ref, NativeValue]:
        """If all live lanes execute a shuffle with one member mask, all take part, even those outside of it, which is noted (rule
        ``shuffle-mask``). Returns the lanes for which it is an error, and those that take part."""
        to, writer = self.to, self.to.writer
        every = writer.icmp("eq", self.mask, writer.load("i32", "%live"))
        if asked.uniform:
            one = asked.scalar()
        else:
            lowest = writer.intrinsic("cttz.i32", "i32", self.mask, constant("i1", "false"))
            one = writer.extract(asked.vector(), writer.and_(lowest, LANES - 1))
            same = to.bits_of(asked._compare(to.value(U32, one, True), "eq"))
            every = writer.and_(every, writer.icmp("eq", writer.and_(same, self.mask), self.mask))
        lax = writer.icmp("eq", writer.and_(writer.field("%ctx", Context.STRICT), 1 << Noted.SHUFFLE_MASK), 0)
        passes = writer.and_(writer.and_(every, lax), writer.icmp("ne", alien, 0))
        pointers = [("i64", pointer_number(to, name)) for name in ("%ctx", "%cta")]
        noted, on = writer.label("noted"), writer.label("on")
        writer.branch(passes, noted, on)
        writer.start(noted)
        first = writer.intrinsic("cttz.i32", "i32", alien, constant("i1", "false"))
        writer.call(
            "breach", "i64", *pointers,
            *[("i64", str(number)) for number in (Noted.SHUFFLE_MASK, to.place_of(self.instruction))],
            *[("i64", writer.zext(number, "i64")) for number in (first, one)],
        )  # fmt: skip
        writer.jump(on)
        writer.start(on)
        left = writer.select(passes, Ref("i32", "0"), alien)
        if wanted.uniform:
            return left, to.value(U32, writer.select(passes, self.mask, wanted.scalar()), True)
        return left, to.value(
            U32, writer.select(passes, to.value(U32, self.mask, True).vector(), wanted.vector())
        )

    def _any(self, value: NativeValue) -> Ref:
        """i1: a value is not 0 in some active lane."""
        if value.uniform:
            return self.to.writer.icmp("ne", value.scalar(), 0)
        bits = self.to.bits_of(value._compare(value.constant(0, U32), "ne"))
        return self.to.writer.icmp("ne", self.to.writer.and_(bits, self.mask), 0)

    def ballot(self, predicate: NativeValue) -> NativeValue:
        """Active lanes in which a predicate holds."""
        bits = self.to.writer.and_(self.mask, self.to.bits_of(predicate))
        return self.to.value(U32, bits, True)


Results = TypeVar("Results", bound=Callable[[_Exchange], list[NativeValue]])


def write_exchange(to: BlockWriter, instruction: Instruction, write: Callable[[_Exchange], None]) -> None:
    """One exchange instruction, written by ``write``. If lanes may have to wait, the block can be continued after it, and the
    instruction can be executed separately, for the lanes of a diverged warp."""
    begins = to.block.synchronises and instruction is to.block.instructions[0]
    diverges = begins and to.generator.may_diverge[to.number]
    if diverges:
        to.generator.resumable.add(CONVERGE_CODE + to.block.index)
        to.writer.jump(f"m{to.block.index}")
        to.writer.start(f"m{to.block.index}")
        to.restart()
    if not to.share(instruction, lambda writer: write(_Exchange(writer, instruction))):
        write(_Exchange(to, instruction))
    if diverges:
        to.check_faults()
        to.flush(frozenset(to.slots))
        to.generator.resumable.add(SYNC_CODE + to.block.index)
        word = to.writer.field("%st", State.CONVERGING, "i32")
        converged, on = to.writer.label("converged"), f"s{to.block.index}"
        to.writer.branch(to.writer.icmp("eq", word, 0), on, converged)
        to.writer.start(converged)
        to.generator.stop(str(SYNC_CODE + to.block.index), Status.EVENT, Event.CONVERGED)
        to.writer.start(f"s{to.block.index}")
        to.restart()


def _gives(*effects: Effect) -> Callable[[Results], Results]:
    """Registers the function that computes the results of an exchange."""

    def register(results: Results) -> Results:
        def write(exchange: _Exchange) -> None:
            exchange.to.assign(exchange.instruction, results(exchange), exchange.guard)

        handles(*effects)(lambda to, instruction: write_exchange(to, instruction, write))
        return results

    return register


@handles(WARPGROUP)
def _product(to: BlockWriter, instruction: Instruction) -> None:
    write_exchange(to, instruction, lambda exchange: write_warpgroup(exchange.to, instruction, exchange.mask))


@handles(MATRIX_LOAD, MATRIX_STORE)
def _rows(to: BlockWriter, instruction: Instruction) -> None:
    write_exchange(to, instruction, lambda exchange: write_rows(exchange.to, instruction, exchange.mask))


@_gives(WARP_BARRIER, CONVERGENCE)
def _nothing(exchange: _Exchange) -> list[NativeValue]:
    return []


@_gives(ACTIVEMASK)
def _active(exchange: _Exchange) -> list[NativeValue]:
    return [exchange.to.value(U32, exchange.mask, True)]


@_gives(ELECT)
def _elect(exchange: _Exchange) -> list[NativeValue]:
    members = exchange.members
    lowest = members._and(members._neg())
    lane = lowest._sub(members.constant(1, U32))._popc()
    mine = exchange.to.value(U32, _LANE_IDS)._compare(lane, "eq")
    return [lane, mine]


@_gives(VOTE)
def _vote(exchange: _Exchange) -> list[NativeValue]:
    modifiers = exchange.instruction.form.modifiers
    ballot = exchange.ballot(exchange.source("a"))._and(exchange.members)
    mode = str(modifiers.get("mode") or "ballot")
    if mode == "ballot":
        return [ballot]
    none, every = ballot._compare(ballot.constant(0, U32), "eq"), ballot._compare(exchange.members, "eq")
    if mode == "uni":
        return [none._or(every)]
    return [every if mode == "all" else none._not()]


@_gives(MATCH)
def _match(exchange: _Exchange) -> list[NativeValue]:
    to = exchange.to
    value = exchange.source("a")
    if "all" not in exchange.instruction.opcode.split("."):
        same = _runtime_match(exchange, value)
        return [same._and(exchange.members)]
    same = _runtime_match(exchange, value)._and(exchange.members)
    every = same._compare(exchange.members, "eq")
    return [every._select(exchange.members, to.constant(0, U32)), every]


def _runtime_match(exchange: _Exchange, value: NativeValue) -> NativeValue:
    """For each lane the active lanes that hold the same value."""
    to, writer = exchange.to, exchange.to.writer
    bits = value.type.bits
    raw = value.bits_as(scalar_type(f"u{bits}"))
    text = writer.call(
        f"v_match_{bits}", f"<{LANES} x i32>", (vector_ll(raw.type), raw.vector()), ("i32", exchange.mask)
    )
    return to.value(U32, text)


@_gives(REDUX)
def _redux(exchange: _Exchange) -> list[NativeValue]:
    """The combination of the members' values; all operations are independent of the order."""
    value = exchange.source("a").clean()
    if (
        value.type.is_float
    ):  # so that the result of a single lane is its magnitude or the canonical NaN as well
        (combined,) = evaluate(exchange.instruction.form, [value, value])
        assert isinstance(combined, NativeValue)
        value = combined.clean()
    return [_tree(exchange, value) if exchange.members.uniform else _folds(exchange, value)]


def _tree(exchange: _Exchange, value: NativeValue) -> NativeValue:
    """Combine lanes at distances 16, 8, 4, 2 and 1; lanes outside have the neutral element."""
    to, writer = exchange.to, exchange.to.writer
    members = writer.and_(exchange.members.scalar(), exchange.mask)
    neutral = Ref(value.ll(False), "zeroinitializer")
    if exchange.instruction.form.modifiers["op"] not in ("add", "xor"):
        lowest = writer.intrinsic("cttz.i32", "i32", members, constant("i1", "false"))
        lane = writer.and_(lowest, LANES - 1)
        neutral = writer.splatted(writer.extract(value.vector(), lane))
    total = writer.select(to.spread(members), value.vector(), neutral)
    for distance in (16, 8, 4, 2, 1):
        other = writer.pick(total, [lane ^ distance for lane in range(LANES)])
        combined = evaluate(
            exchange.instruction.form, [to.value(value.type, total), to.value(value.type, other)]
        )[0]
        assert isinstance(combined, NativeValue)
        total = combined.bits_as(value.type).clean().vector()
    return to.value(value.type, total)


def _folds(exchange: _Exchange, value: NativeValue) -> NativeValue:
    """Fold over the members in ascending order, for one distinct member mask after the other."""
    to, writer = exchange.to, exchange.to.writer
    kind = vector_ll(value.type)
    scalar = kind.split()[-1].rstrip(">")
    writer.store(value.vector(), "%vals", 64)
    writer.store(exchange.members.vector(), "%area", 64)
    result = to.writer.at("%vals", 1024)
    writer.store(exchange.mask, "%loop")
    head, body, done = writer.label("groups"), writer.label("group"), writer.label("done")
    writer.jump(head)
    writer.start(head)
    writer.forget()
    rest = writer.load("i32", "%loop")
    writer.branch(writer.icmp("eq", rest, 0), done, body)
    writer.start(body)
    first = writer.intrinsic("cttz.i32", "i32", rest, constant("i1", "true"))
    members = writer.load("i32", writer.element("%area", "i32", first))
    members = writer.and_(members, exchange.mask)
    writer.store(writer.and_(rest, _complement(to, members)), "%loop")
    low = writer.intrinsic("cttz.i32", "i32", members, constant("i1", "true"))
    start = writer.load(scalar, writer.element("%vals", scalar, low))
    left = writer.and_(members, _less(to, members))
    before = writer.label("before")
    writer.enter(before)
    with writer.while_("fold") as fold:
        total = writer.phi(scalar, (start, before))
        remaining = writer.phi("i32", (left, before))
        fold.until(writer.icmp("eq", remaining, 0))
        lane = writer.intrinsic("cttz.i32", "i32", remaining, constant("i1", "true"))
        other = writer.load(scalar, writer.element("%vals", scalar, lane))
        pair = [to.value(value.type, total, True), to.value(value.type, other, True)]
        combined = evaluate(exchange.instruction.form, pair)[0]
        assert isinstance(combined, NativeValue)
        text = combined.bits_as(value.type).clean().scalar()
        below = _less(to, remaining)
        writer.enter(writer.label("end"))
        total.come(text)
        remaining.come(writer.and_(remaining, below))
    writer.forget()
    old = writer.load(kind, result, 64)
    whole = writer.splatted(total)
    chosen = writer.select(to.spread(members), whole, old)
    writer.store(chosen, result, 64)
    writer.jump(head)
    writer.start(done)
    writer.forget()
    return to.value(value.type, writer.load(kind, result, 64))


@_gives(MATRIX)
def _matrix(exchange: _Exchange) -> list[NativeValue]:
    to, form = exchange.to, exchange.instruction.form
    given = to.sources(exchange.instruction)
    slots = [slot for slot in form.sources for _ in range(slot.vector)]
    constants = [value.number or 0 for slot, value in zip(slots, given) if slot.constant]
    values = [value.clean() for slot, value in zip(slots, given) if not slot.constant]
    _, returned = matrix_types(form)
    arguments = [(vector_ll(value.type), value.vector()) for value in values]
    results = to.writer.call(matrix_name(form, constants), returned, *arguments)
    types = [slot.type for slot in form.destinations for _ in range(slot.vector) if slot.type is not None]
    if form.row.applied.checked is not None:
        wrong = to.value(PRED, to.writer.member(results, len(types), vector_ll(PRED)))
        to.error(to.bits_of(wrong), Event.MEANINGLESS)
    return [
        to.value(type, to.writer.member(results, index, vector_ll(type))) for index, type in enumerate(types)
    ]


def _complement(to: BlockWriter, mask: Ref) -> Ref:
    return to.writer.xor(mask, -1)


def _less(to: BlockWriter, mask: Ref) -> Ref:
    return to.writer.sub(mask, 1)


_PATTERNS: dict[tuple[str, int, int], tuple[list[int], list[bool]]] = {}


def _pattern(exchange: _Exchange, b: NativeValue, c: NativeValue) -> tuple[list[int], list[bool]]:
    """Source lanes and range tests of a shuffle with constant operands: the row's semantics on constants."""
    form = exchange.instruction.form
    key = (str(form.modifiers.get("mode")), b.number or 0, c.number or 0)
    pattern = _PATTERNS.get(key)
    if pattern is None:
        lanes, inside = [], []
        for lane in range(LANES):
            source, good = evaluate(form, [b.constant(lane, U32), b, c])
            assert isinstance(source, NativeValue) and isinstance(good, NativeValue)
            lanes.append((source.number or 0) % LANES)
            inside.append(bool(good.number))
        pattern = _PATTERNS[key] = (lanes, inside)
    return pattern


@_gives(SHFL)
def _shuffle(exchange: _Exchange) -> list[NativeValue]:
    to, writer = exchange.to, exchange.to.writer
    value = exchange.source("a").clean()
    b, c = exchange.source("b"), exchange.source("c")
    here = to.spread(exchange.mask)
    # lanes that do not participate provide 0
    given = writer.select(here, value.vector(), "zeroinitializer")
    if b.number is not None and c.number is not None and exchange.members.uniform:
        lanes, inside = _pattern(exchange, b, c)
        shuffled = writer.pick(given, lanes)
        flags = f"<{', '.join('i1 true' if good else 'i1 false' for good in inside)}>"
        return [to.value(value.type, shuffled), to.value(PRED, flags)]
    source, good = evaluate(exchange.instruction.form, [to.value(U32, _LANE_IDS), b, c])
    assert isinstance(source, NativeValue) and isinstance(good, NativeValue)
    raw = f"<{LANES} x i32>"
    text = writer.call("v_permute_32", raw, (raw, given), (raw, source.vector()))
    fetched = to.value(value.type, text)
    if not exchange.members.uniform:
        # lanes of another group do not take part in the exchange of this one
        member = exchange.members._shr(source)._and(exchange.members.constant(1, U32))
        fetched = member._compare(member.constant(0, U32), "eq")._select(
            fetched.constant(0, value.type), fetched
        )
    return [fetched, good]
