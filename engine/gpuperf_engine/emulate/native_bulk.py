"""Bulk copies as LLVM IR: the runtime copies; of reductions it finds the pieces, which are combined here by the row's meaning.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..flow.operands import matched
from ..isa.frame import evaluate, has_meaning
from ..isa.mbarriers import Mbarrier
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Instruction, Operand, Vector
from .clusters import reaches_peers
from .native_layout import SITE_BYTES, Bulk
from .native_memory import SPACES, address_value, pointer_number
from .native_values import LANES, NativeValue, scalar_ll
from .program import is_done_once

if TYPE_CHECKING:
    from .native_blocks import BlockWriter

__all__ = ["write_bulk", "write_signal"]

U16, U32, U64 = scalar_type("u16"), scalar_type("u32"), scalar_type("u64")
_PIECE = 16
#: where in %vals
_TARGETS, _SIZES, _TOLD, _WORDS, _COORDINATES = (8 * LANES * place for place in range(5))
Arguments = list[tuple[str, str]]


def write_bulk(to: BlockWriter, instruction: Instruction) -> None:
    """``cp.async.bulk``, ``cp.reduce.async.bulk`` and ``st.bulk``."""
    frame, writer = to.frame, to.writer
    operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
    site = frame.program.site_of[instruction]
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    if guard is not None:
        some = writer.op(f"zext i1 {writer.op(f'icmp ne i32 {mask}, 0')} to i64")
        frame.bump("%sites", site * SITE_BYTES, some)
    if is_done_once(instruction):
        mask = writer.op(f"and i32 {mask}, {writer.op(f'sub i32 0, {mask}')}")
    lanes = writer.op(f"zext i32 {mask} to i64")
    if "t" in operands:
        _tensor(to, instruction, operands, site, lanes)
        return
    if "d" not in operands:
        (_answer if "m" in operands else _fill)(to, instruction, operands, site, lanes)
        return
    spelling = instruction.spelling
    spaces = {name: str(spelling.modifier(name)).split("::")[0] for name in ("dst", "src")}
    how = Bulk.FROM_GLOBAL * (spaces["src"] == "global") | Bulk.TO_GLOBAL * (spaces["dst"] == "global")
    targets, sizes, words = (frame.field("%vals", place) for place in (_TARGETS, _SIZES, _WORDS))
    _put(to, _address(to, operands["a"], spaces["src"]), "%area")
    _put(to, _address(to, operands["d"], spaces["dst"]), targets)
    _put(to, to.source(operands["size"], U32), sizes)
    told = "0"
    if "m" in operands:
        cell = frame.field("%vals", _TOLD)
        _put(to, _address(to, operands["m"], spaces["dst"]), cell)
        told = pointer_number(to, cell)
    for name, bit in (("mask", Bulk.MULTICAST), ("bytes", Bulk.MASKED)):
        if name in operands:
            how |= bit
            _put(to, to.source(operands[name], U16), words)
    given: Arguments = [*_numbers(to, "%ctx", "%cta", "%st"), ("i64", str(site))]
    ends: Arguments = [*_numbers(to, "%area", targets, sizes), ("i64", told)]
    if has_meaning(spelling):
        writer.call("reduce_begin", "i64", *_numbers(to, "%ctx"), ("i64", lanes))
        _combine(to, instruction, [*given, *ends, ("i64", str(how))])
    else:
        writer.call(
            "bulk_lanes", "i64", *given, ("i64", lanes), *ends, *_numbers(to, words), ("i64", str(how))
        )
    to.faulting = True


def _combine(to: BlockWriter, instruction: Instruction, arguments: Arguments) -> None:
    """A loop over the pieces, each of which is combined element by element."""
    frame, writer = to.frame, to.writer
    kind = scalar_type(str(instruction.spelling.modifier("type")))
    ll = scalar_ll(kind)
    head, body, done = (writer.label(word) for word in ("pieces", "piece", "done"))
    writer.do(f"br label %{head}")
    writer.start(head)
    writer.forget()
    found = writer.call("reduce_next", "i64", *arguments)
    writer.do(f"br i1 {writer.op(f'icmp eq i64 {found}, 0')}, label %{done}, label %{body}")
    writer.start(body)
    cursor = writer.op(f"inttoptr i64 {found} to ptr")
    target = writer.op(f"load ptr, ptr {cursor}")
    for offset in range(0, _PIECE, kind.bytes):
        place = frame.field(target, offset)
        cells = (place, frame.field(cursor, 8 + offset))
        old, new = (
            to.value(kind, writer.op(f"load {ll}, ptr {cell}, align {kind.bytes}"), True) for cell in cells
        )
        made = evaluate(instruction.spelling, [old, new])[0]
        assert isinstance(made, NativeValue)
        writer.do(f"store {ll} {made.bits_as(kind).clean().scalar()}, ptr {place}, align {kind.bytes}")
    writer.do(f"br label %{head}")
    writer.start(done)
    writer.forget()


def _tensor(
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: str
) -> None:
    """``cp.async.bulk.tensor`` of boxes and rows; what else there is ``native`` leaves to the reference backend."""
    frame, spelling = to.frame, instruction.spelling
    where, words = operands["t"], frame.field("%vals", _WORDS)
    assert isinstance(where, Address)
    (vector,) = where.further
    assert isinstance(vector, Vector)
    for axis, item in enumerate(vector.elements):
        _put(to, to.source(item, U32), frame.field("%vals", _COORDINATES + 4 * LANES * axis))
    loads = spelling.modifier("src") == "global"
    how = Bulk.FROM_GLOBAL if loads else Bulk.TO_GLOBAL
    how |= Bulk.FOUR_ROWS * str(spelling.modifier("mode")).endswith("4")
    _put(to, _address(to, where, "generic"), "%area")
    places = frame.field("%vals", _TARGETS)
    _put(to, _address(to, operands["d" if loads else "a"], "shared"), places)
    told = "0"
    if "m" in operands:
        cell = frame.field("%vals", _TOLD)
        _put(to, _address(to, operands["m"], "shared"), cell)
        told = pointer_number(to, cell)
    if "mask" in operands:
        how |= Bulk.MULTICAST
        _put(to, to.source(operands["mask"], U16), words)
    to.writer.call(
        "tensor_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(site)),
        ("i64", lanes),
        *_numbers(to, "%area", frame.field("%vals", _COORDINATES), places),
        ("i64", told),
        *_numbers(to, words),
        ("i64", str(how)),
        ("i64", str(spelling.modifier("dim")).rstrip("d")),
    )
    to.faulting = True


def _fill(
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: str
) -> None:
    frame = to.frame
    space = instruction.spelling.space or "generic"
    sizes = frame.field("%vals", _SIZES)
    _put(to, _address(to, operands["a"], space), "%area")
    _put(to, to.source(operands["bytes"], U64), sizes)
    to.writer.call(
        "fill_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(site)),
        ("i64", lanes),
        *_numbers(to, "%area", sizes),
        ("i64", str(int(space == "generic"))),
    )
    to.faulting = True


def _answer(
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: str
) -> None:
    """The response to a request for another cluster."""
    frame, spelling = to.frame, instruction.spelling
    space = (spelling.space or "generic").split("::")[0]
    how = (
        Bulk.ANSWER
        | Bulk.GENERIC * (space == "generic")
        | Bulk.MULTICAST * bool(spelling.modifier("multicast"))
    )
    targets, sizes, told, words = (frame.field("%vals", place) for place in (_TARGETS, _SIZES, _TOLD, _WORDS))
    _put(to, _address(to, operands["a"], space), targets)
    _put(to, _address(to, operands["m"], space), told)
    _put(to, to.constant(_PIECE, U32), sizes)
    to.writer.call(
        "bulk_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(site)),
        ("i64", lanes),
        *_numbers(to, targets, targets, sizes, told, words),
        ("i64", str(how)),
    )
    to.faulting = True


def write_signal(to: BlockWriter, instruction: Instruction, mask: str, moved: int) -> None:
    """After ``st.async`` or ``red.async``: the mbarrier is told of each lane's bytes."""
    frame, writer = to.frame, to.writer
    form, told = next((form, item) for form, item in matched(instruction) if form.name == "m")
    space = form.space or instruction.spelling.space or "generic"
    # a store that was refused tells nothing
    to.check_faults()
    ones, amounts = frame.field("%vals", 0), frame.field("%vals", 4 * LANES)
    _put(to, _address(to, told, space), "%area")
    _put(to, to.constant(1, U32), ones)
    _put(to, to.constant(moved, U32), amounts)
    how = Mbarrier.COMPLETE | 256 * (space == "generic") | 512 * reaches_peers(instruction)
    writer.call(
        "mbarrier_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta"),
        ("i64", str(-1 - to.block.instructions.index(instruction))),
        ("i64", writer.op(f"zext i32 {mask} to i64")),
        *_numbers(to, "%area", ones, amounts),
        ("i64", str(how)),
    )
    to.faulting = True


def _address(to: BlockWriter, operand: object, space: str) -> NativeValue:
    assert isinstance(operand, Address)
    return _native(address_value(to, operand, SPACES[space]).convert(U64))


def _put(to: BlockWriter, value: NativeValue, cell: str) -> None:
    to.writer.do(f"store <{LANES} x i{value.type.bits}> {value.clean().vector()}, ptr {cell}, align 64")


def _numbers(to: BlockWriter, *pointers: str) -> Arguments:
    return [("i64", pointer_number(to, pointer)) for pointer in pointers]


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
