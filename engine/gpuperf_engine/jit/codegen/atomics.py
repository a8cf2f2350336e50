"""Atomics as LLVM IR: a loop over the active lanes in ascending order, with the row's semantics on scalars inside.

Lanes whose elements are in the allocation that the site accessed last, or in shared memory, are checked here; others by the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...flow.operands import matched
from ...isa.effects import ATOMIC
from ...isa.evaluation import evaluate
from ...isa.primitives import Value, select
from ...isa.selectors import select as form_of
from ...isa.spaces import WINDOWS
from ...isa.types import scalar_type
from ...ptx.syntax import Immediate, Vector
from ..ir.abi import UNWRITTEN, Context, Cta
from ..ir.access_records import SiteCache
from ..ir.operands import LANES, Ref, constant, scalar_ll, vector_ll, vector_of
from ..ir.values import NativeValue
from .memory import Access, pointer_number
from .values import record_values

__all__ = ["write_atomic"]

U64 = scalar_type("u64")
#: bytes in ``%vals`` for each source operand, and for the old values
_AREA = 1024


@dataclass(frozen=True)
class _Near:
    """Elements that need no call of ``reach``: aligned, and with an index below ``limit`` from address ``low`` on, in the allocation
    that the site accessed last or in shared memory. ``bias``: host address − address."""

    access: Access
    low: Ref
    limit: Ref
    bias: Ref

    def has(self, address: Ref) -> Ref:
        """Whether an address is one of them."""
        writer = self.access.to.writer
        shift = constant("i64", self.access.bytes.bit_length() - 1)
        distance = writer.sub(address, self.low)
        return writer.icmp("ult", writer.intrinsic("fshr.i64", "i64", distance, distance, shift), self.limit)

    def host(self, address: Ref) -> Ref:
        writer = self.access.to.writer
        return writer.pointer(writer.add(address, self.bias))


def write_atomic(access: Access) -> None:
    """``atom`` and ``red``. In programs whose CTAs may run in parallel, global ones are atomic on the host too."""
    to, writer = access.to, access.to.writer
    sources = _operands(access)
    record_values(access, sources[-1])
    for number, elements in enumerate(sources):
        for element, value in enumerate(elements):
            cell = to.writer.at("%vals", number * _AREA + element * LANES * access.type.bytes)
            writer.store(value.vector(), cell, 16)
    addresses = access.addresses()
    writer.store(addresses, "%area", 64)
    races = writer.icmp("ne", _of_site(access, Context.RACE_SITES, "i16"), 0)
    near = _near(access, races)
    apart = None if access.space == 1 else _apart(access, addresses)
    between = Ref("i32", "0") if apart is None else _unchecked(access, apart, races)
    single = None if apart is None or near is None else _single(access, near, addresses, apart)
    head, body, done = writer.label("lanes"), writer.label("lane"), writer.label("done")
    if single is not None:
        single.begin()
    writer.store(access.mask, "%loop")
    writer.jump(head)
    writer.start(head)
    writer.forget()
    rest = writer.load("i32", "%loop")
    writer.branch(writer.icmp("eq", rest, 0), done, body)
    writer.start(body)
    lane = writer.zext(writer.intrinsic("cttz.i32", "i32", rest, constant("i1", "true")), "i64")
    writer.store(writer.and_(rest, _less(access, rest)), "%loop")
    host = _host(access, lane, between, near)
    if single is not None:
        host = writer.select(single.holds, single.cell, host)
    for element in range(access.count):
        _combine(access, sources, host, lane, element, single)
    if access.space == 3 and access.bytes > 4:
        given = pointer_number(to, "%ctx"), writer.number(host), str(access.bytes)
        writer.call("put_back", "i64", *(("i64", value) for value in given))
    writer.jump(head)
    writer.start(done)
    writer.forget()
    if single is not None:
        single.end()
    access.count_atomic(writer.zext(access.mask, "i64"))
    if access.instruction.effect is ATOMIC:
        to.assign(access.instruction, _old(access), access.guard)


def _of_site(access: Access, table: int, scalar: str) -> Ref:
    """An element of a table of the context, by site."""
    writer = access.to.writer
    cell = writer.element(writer.field("%ctx", table, "ptr"), scalar, access.to.site(access.instruction))
    return writer.load(scalar, cell)


def _near(access: Access, races: Ref) -> _Near | None:
    """The elements that need no call; ``None`` if all may need one. Where races are checked, there are none."""
    to, writer = access.to, access.to.writer
    if access.space == 1:
        if to.generator.clustered or (access.bytes < 4 and not to.generator.watching):
            return None
        low, span, no = constant("i64", 0), Ref("i64", "%sharedbytes"), races
        bias = writer.field("%cta", Cta.SHARED)
        if not to.generator.watching:
            writer.set_field("%cta", Cta.MARKED, constant("i64", 1))
    else:
        offset = writer.shl(Ref("i64", to.site(access.instruction)), SiteCache.BYTES.bit_length() - 1)
        cache = writer.place(writer.field("%ctx", Context.CACHE, "ptr"), offset)
        low, span, tracked = (
            writer.field(cache, field) for field in (SiteCache.START, SiteCache.SPAN, SiteCache.TRACKED)
        )
        maps = writer.or_(writer.field("%ctx", Context.READS), writer.field("%ctx", Context.WRITES))
        no = writer.or_(races, writer.icmp("ne", writer.or_(maps, tracked), 0))
        bias = writer.field("%ctx", Context.ARENA)
    count = writer.lshr(span, access.bytes.bit_length() - 1)
    return _Near(access, low, writer.select(no, constant("i64", 0), count), bias)


class _Single:
    """An atomic whose lanes all have one address, in a program whose CTAs may run in parallel: they are combined in a cell of this
    thread, which is exchanged with memory once, as if no other thread had accessed it in between; and again if one has."""

    def __init__(self, access: Access, holds: Ref, host: Ref) -> None:
        self.access, self.holds, self.host = access, holds, host
        self.raw = f"i{access.type.bits}"
        writer = access.to.writer
        self.cell = writer.place("%vals", 3 * _AREA)
        self._start = writer.at("%vals", 3 * _AREA + 64)
        self._again = writer.label("single")

    def begin(self) -> None:
        writer = self.access.to.writer
        ready = writer.label("ready")
        writer.branch(self.holds, self._again, ready)
        writer.start(self._again)
        align = self.access.type.bytes
        value = writer.ref(self.raw, f"load atomic {self.raw}, ptr {self.host} monotonic, align {align}")
        writer.store(value, self.cell)
        writer.store(value, self._start)
        writer.enter(ready)

    def end(self) -> None:
        writer = self.access.to.writer
        swap, finish = writer.label("swap"), writer.label("finish")
        writer.branch(self.holds, swap, finish)
        writer.start(swap)
        old, new = writer.load(self.raw, self._start), writer.load(self.raw, self.cell)
        pair = _exchanged(self.access, self.host, old, new)
        writer.branch(writer.member(pair, 1, "i1"), finish, self._again)
        writer.start(finish)


def _single(access: Access, near: _Near, addresses: Ref, apart: Ref) -> _Single | None:
    """The atomic as one exchange, in a program for which that is possible."""
    writer = access.to.writer
    if not access.to.generator.program.order_free or access.count > 1:
        return None
    address = writer.extract(addresses, _first(access))
    tests = [writer.icmp("ne", access.mask, 0), writer.icmp("eq", apart, 0), near.has(address)]
    return _Single(access, writer.all(tests), near.host(address))


def _less(access: Access, rest: Ref) -> Ref:
    return access.to.writer.sub(rest, 1)


def _operands(access: Access) -> list[list[NativeValue]]:
    """The value operands (b, and c of cas), each as its elements."""
    to, values = access.to, []
    for slot, operand in matched(access.instruction):
        if slot.role != "source" or slot.name == "policy":
            continue
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        values.append(
            [
                to.source(element, access.type)
                if isinstance(element, Immediate)
                else to.as_type(to.source(element, None), access.type).clean()
                for element in elements
            ]
        )
    return values


def _first(access: Access) -> Ref:
    """The first active lane, or 0."""
    writer = access.to.writer
    first = writer.intrinsic("cttz.i32", "i32", access.mask, constant("i1", "false"))
    return writer.and_(first, LANES - 1)


def _apart(access: Access, addresses: Ref) -> Ref:
    """The active lanes with another address than the first one."""
    writer = access.to.writer
    one = writer.extract(addresses, _first(access))
    return writer.and_(writer.bits(writer.icmp("ne", addresses, writer.splat(one))), access.mask)


def _unchecked(access: Access, apart: Ref, races: Ref) -> Ref:
    """Lanes that need no check for races of their own: those between the first and the last one, if all have the same address (those
    two have the same races), and those that are checked all at once. None where races are not checked."""
    writer, mask, before = access.to.writer, access.mask, access.to.writer.block
    check, checked = writer.label("check"), writer.label("checked")
    writer.branch(races, check, checked)
    writer.start(check)
    behind = writer.intrinsic("ctlz.i32", "i32", mask, constant("i1", "false"))
    last = writer.lshr(Ref("i32", str(1 << 31)), writer.and_(behind, LANES - 1))
    inner = writer.and_(writer.and_(mask, _less(access, mask)), writer.not_(last))
    between = writer.select(writer.icmp("eq", apart, 0), inner, Ref("i32", "0"))
    lanes, after = writer.or_(between, _noted(access)), writer.block
    writer.enter(checked)
    return writer.phi("i32", (0, before), (lanes, after))


def _noted(access: Access) -> Ref:
    """Lanes that have been checked for races, all at once."""
    to, writer = access.to, access.to.writer
    noted = writer.call(
        "race_atomics",
        "i64",
        ("i64", pointer_number(to, "%ctx")),
        ("i64", to.site(access.instruction)),
        ("i64", str(writer.zext(access.mask, "i64"))),
        ("i64", pointer_number(to, "%area")),
        ("i64", str(access.bytes)),
        ("i64", str(access.space + 12)),
    )
    return writer.trunc(noted, "i32")


def _host(access: Access, lane: Ref, between: Ref, near: _Near | None) -> Ref:
    """Host pointer of one lane's element, checked; ``between``: lanes that are not checked for races."""
    writer = access.to.writer
    address = writer.load("i64", writer.element("%area", "i64", lane))
    if near is None:
        return _reach(access, lane, address, between)
    fast, slow, reached = writer.label("near"), writer.label("far"), writer.label("reached")
    writer.branch(near.has(address), fast, slow)
    writer.start(fast)
    host = near.host(address)
    if access.space == 1:
        written = writer.label("written")
        writer.branch(_is_written(access, host), written, slow)
        writer.start(written)
        _mark(access, host)
    close = writer.block
    writer.jump(reached)
    writer.start(slow)
    checked, far = _reach(access, lane, address, between), writer.block
    writer.enter(reached)
    return writer.phi("ptr", (host, close), (checked, far))


def _reach(access: Access, lane: Ref, address: Ref, between: Ref) -> Ref:
    """Host pointer of one lane's element, by the runtime."""
    to, writer = access.to, access.to.writer
    unseen = writer.and_(writer.lshr(writer.zext(between, "i64"), lane), 1)
    how = writer.or_(writer.shl(unseen, 5), access.space + 12)
    arguments = [
        *(("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
        ("i64", to.site(access.instruction)), ("i64", lane), ("i64", address), ("i64", str(access.bytes)), ("i64", how),
    ]  # fmt: skip
    reached = writer.call("reach", "i64", *arguments)
    to.fault_if(writer.icmp("eq", reached, 0))
    return writer.pointer(reached)


def _shadow(access: Access, host: Ref) -> Ref:
    writer = access.to.writer
    return writer.place(host, writer.field("%cta", Cta.SHARED_SHADOW))


def _is_written(access: Access, host: Ref) -> Ref:
    """Whether all bytes of an element in shared memory have been written, by the shadow or the fill pattern (``Context.WATCH``)."""
    writer, size = access.to.writer, access.bytes
    if access.to.generator.watching:
        seen = writer.load(f"i{8 * size}", _shadow(access, host), 1)
        return writer.icmp("eq", seen, 0x01010101010101010101010101010101 % (1 << 8 * size))
    words = writer.load(vector_of(size // 4, "i32"), host, 4)
    return writer.icmp("eq", writer.bits(writer.icmp("eq", words, UNWRITTEN)), 0)


def _mark(access: Access, host: Ref) -> None:
    """Mark the words of an element in shared memory, as the value to store may be the fill pattern."""
    if access.to.generator.watching:
        return
    writer, shadow = access.to.writer, _shadow(access, host)
    for word in range(access.bytes // 4):
        writer.set_field(shadow, 4 * word, constant("i8", 1))


def _exchanged(access: Access, memory: str, old: Ref, new: Ref) -> Ref:
    """Compare and swap; returns the pair of what was there and whether it was ``old``."""
    raw, align = f"i{access.type.bits}", access.type.bytes
    return access.to.writer.ref(
        f"{{{raw}, i1}}", f"cmpxchg ptr {memory}, {raw} {old}, {raw} {new} seq_cst seq_cst, align {align}"
    )


def _combine(
    access: Access,
    sources: list[list[NativeValue]],
    host: Ref,
    lane: Ref,
    element: int,
    single: _Single | None,
) -> None:
    """old → new for one element of one lane; stores the old value after the operands."""
    to, writer = access.to, access.to.writer
    kind, raw = scalar_ll(access.type), f"i{access.type.bits}"
    memory = to.writer.at(host, element * access.type.bytes)
    given = []
    for number in range(len(sources)):
        base = to.writer.at("%vals", number * _AREA + element * LANES * access.type.bytes)
        cell = writer.element(base, kind, lane)
        given.append(to.value(access.type, writer.load(kind, cell), True))
    shared_host = to.generator.program.order_free and access.space != 1
    old_raw: Ref
    if shared_host:
        start = writer.ref(raw, f"load atomic {raw}, ptr {memory} monotonic, align {access.type.bytes}")
        before, again, stored = writer.label("before"), writer.label("again"), writer.label("stored")
        writer.enter(before)
        writer.enter(again)
        old_raw = current = writer.phi(raw, (start, before))
    else:
        old_raw = writer.load(raw, memory, access.type.bytes)
    old = to.value(access.type, old_raw if kind == raw else writer.bitcast(old_raw, kind), True)
    new = _evaluated(access, lane, [old, *given])
    text = new.clean().scalar()
    new_raw = text if kind == raw else writer.bitcast(text, raw)
    if shared_host:
        swap = writer.label("swap")
        if single is not None:
            put = writer.label("put")
            writer.branch(single.holds, put, swap)
            writer.start(put)
            writer.store(new_raw, memory, access.type.bytes)
            writer.jump(stored)
            writer.start(swap)
        else:
            writer.enter(swap)
        pair = _exchanged(access, memory, old_raw, new_raw)
        current.come(writer.member(pair, 0, raw))
        writer.branch(writer.member(pair, 1, "i1"), stored, again)
        writer.start(stored)
    else:
        writer.store(new_raw, memory, access.type.bytes)
    if access.instruction.effect is ATOMIC:
        base = to.writer.at("%vals", 2 * _AREA + element * LANES * access.type.bytes)
        cell = writer.element(base, raw, lane)
        writer.store(old_raw, cell)


def _evaluated(access: Access, lane: Ref, given: list[Value | int]) -> NativeValue:
    """The value to store. For generic addresses, the window decides whether floats are flushed: not in shared memory (manual,
    ``atom``), nor in local memory, where ptxas generates an ordinary ``FADD``."""
    to, form = access.to, access.instruction.form
    new = evaluate(form, given)[0]
    if access.name == "generic" and access.type.is_float and "space" in form.row.keywords:
        cell = to.writer.element("%area", "i64", lane)
        address = to.value(U64, to.writer.load("i64", cell), True)
        near = evaluate(form_of(form, {"space": "shared"}), given)[0]
        for window in ("shared", "local"):
            start, size = WINDOWS[window]
            new = select((address - start).compare("lt", size), near, new)
    assert isinstance(new, NativeValue)
    return new


def _old(access: Access) -> list[NativeValue]:
    to, values = access.to, []
    for element in range(access.count):
        cell = to.writer.at("%vals", 2 * _AREA + element * LANES * access.type.bytes)
        values.append(to.value(access.type, to.writer.load(vector_ll(access.type), cell, 16)))
    return values
