"""Atomics as LLVM IR: a loop over the active lanes in ascending order, with the row's semantics on scalars inside."""

from __future__ import annotations

from ...flow.operands import matched
from ...isa.effects import ATOMIC
from ...isa.evaluation import evaluate
from ...isa.primitives import Value, select
from ...isa.selectors import select as form_of
from ...isa.spaces import WINDOWS
from ...isa.types import scalar_type
from ...ptx.syntax import Immediate, Vector
from ..ir.operands import LANES, Ref, constant, scalar_ll, vector_ll
from ..ir.values import NativeValue
from .memory import Access, pointer_number
from .values import record_values

__all__ = ["write_atomic"]

U64 = scalar_type("u64")
#: bytes in ``%vals`` for each source operand, and for the old values
_AREA = 1024


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
    writer.store(access.mask, "%loop")
    between = _between(access, addresses)
    if access.space != 1:
        between = writer.or_(between, _noted(access))
    head, body, done = writer.label("lanes"), writer.label("lane"), writer.label("done")
    writer.jump(head)
    writer.start(head)
    writer.forget()
    rest = writer.load("i32", "%loop")
    writer.branch(writer.icmp("eq", rest, 0), done, body)
    writer.start(body)
    lane = writer.zext(writer.intrinsic("cttz.i32", "i32", rest, constant("i1", "true")), "i64")
    writer.store(writer.and_(rest, _less(access, rest)), "%loop")
    host = _reach(access, lane, between)
    for element in range(access.count):
        _combine(access, sources, host, lane, element)
    if access.space == 3 and access.bytes > 4:
        given = pointer_number(to, "%ctx"), writer.number(host), str(access.bytes)
        writer.call("put_back", "i64", *(("i64", value) for value in given))
    writer.jump(head)
    writer.start(done)
    writer.forget()
    access.count_atomic(writer.zext(access.mask, "i64"))
    if access.instruction.effect is ATOMIC:
        to.assign(access.instruction, _old(access), access.guard)


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


def _between(access: Access, addresses: Ref) -> Ref:
    """Lanes between the first and the last one, if all have the same address in global memory: those two have the same races."""
    writer, mask = access.to.writer, access.mask
    if access.space == 1:
        return Ref("i32", "0")
    first = writer.intrinsic("cttz.i32", "i32", mask, constant("i1", "false"))
    one = writer.extract(addresses, writer.and_(first, LANES - 1))
    apart = writer.bits(writer.icmp("ne", addresses, writer.splat(one)))
    behind = writer.intrinsic("ctlz.i32", "i32", mask, constant("i1", "false"))
    last = writer.lshr(Ref("i32", str(1 << 31)), writer.and_(behind, LANES - 1))
    inner = writer.and_(writer.and_(mask, _less(access, mask)), writer.not_(last))
    return writer.select(writer.icmp("eq", writer.and_(apart, mask), 0), inner, Ref("i32", "0"))


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


def _reach(access: Access, lane: Ref, between: Ref) -> Ref:
    """Host pointer of one lane's element, checked; ``between``: lanes that are not checked for races."""
    to, writer = access.to, access.to.writer
    cell = writer.element("%area", "i64", lane)
    address = writer.load("i64", cell)
    unseen = writer.and_(writer.lshr(writer.zext(between, "i64"), lane), 1)
    how = writer.or_(writer.shl(unseen, 5), access.space + 12)
    arguments = [
        *(("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
        ("i64", to.site(access.instruction)), ("i64", lane), ("i64", address), ("i64", str(access.bytes)), ("i64", how),
    ]  # fmt: skip
    reached = writer.call("reach", "i64", *arguments)
    to.fault_if(writer.icmp("eq", reached, 0))
    return writer.pointer(reached)


def _combine(access: Access, sources: list[list[NativeValue]], host: str, lane: Ref, element: int) -> None:
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
        writer.enter(writer.label("swap"))
        pair = writer.ref(
            f"{{{raw}, i1}}",
            f"cmpxchg ptr {memory}, {raw} {old_raw}, {raw} {new_raw} seq_cst seq_cst, align {access.type.bytes}",
        )
        current.come(writer.member(pair, 0, raw))
        writer.branch(writer.member(pair, 1, "i1"), stored, again)
        writer.start(stored)
    else:
        writer.store(new_raw, memory, access.type.bytes)
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
