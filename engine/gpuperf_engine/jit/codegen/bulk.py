"""Bulk and tensor copies, and changes of tensor maps, as LLVM IR: calls of the runtime, which executes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import BULK_COPY, TENSOR_MAP
from ...isa.evaluation import has_semantics
from ...isa.mbarriers import Mbarrier
from ...isa.tensor_maps import FIELDS, field_word
from ...isa.types import scalar_type
from ...memory.tensor_boxes import copy_of
from ...memory.tensor_maps import field_bit, field_place
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from ...simt.clusters import reaches_peers
from ...simt.effects import warp_uniform_copy
from ..ir.access_records import SITE_BYTES
from ..ir.copy_records import Bulk
from ..ir.operands import LANES, Ref, constant
from ..ir.values import NativeValue
from .combine import combine_address, combined_types
from .handlers import handles
from .memory import SPACES, address_value, pointer_number, takes_short
from .values import recording_ranges

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["put_ranks", "report_kind", "write_bulk", "write_replace", "write_signal"]

U16, U32, U64 = scalar_type("u16"), scalar_type("u32"), scalar_type("u64")
_PIECE = 16
#: offsets in %vals
_TARGETS, _SIZES, _MBARRIERS, _WORDS, _VECTORS = (8 * LANES * number for number in range(5))
#: the first vector of im2col offsets
_OFFSETS = 5
Arguments = list[tuple[str, str]]


@handles(BULK_COPY)
def write_bulk(to: BlockWriter, instruction: Instruction) -> None:
    """``cp.async.bulk``, ``cp.reduce.async.bulk`` and ``st.bulk``."""
    generator, writer = to.generator, to.writer
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    site = generator.program.site_of[instruction]
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    if guard is not None:
        some = writer.zext(writer.icmp("ne", mask, 0), "i64")
        writer.bump("%sites", site * SITE_BYTES, some)
    if warp_uniform_copy(instruction):
        mask = writer.and_(mask, writer.sub(constant("i32", 0), mask))
    lanes = writer.zext(mask, "i64")
    if "t" in operands:
        _tensor(to, instruction, operands, site, lanes)
        return
    if "d" not in operands:
        (_answer if "m" in operands else _fill)(to, instruction, operands, site, lanes)
        return
    form = instruction.form
    spaces = {name: str(form.modifier(name)).split("::")[0] for name in ("dst", "src")}
    how = Bulk.FROM_GLOBAL * (spaces["src"] == "global") | Bulk.TO_GLOBAL * (spaces["dst"] == "global")
    targets, sizes, words = (writer.at("%vals", offset) for offset in (_TARGETS, _SIZES, _WORDS))
    _put(to, _address(to, operands["a"], spaces["src"]), "%area")
    _put(to, _address(to, operands["d"], spaces["dst"]), targets)
    _put(to, to.source(operands["size"], U32), sizes)
    mbarriers = "0"
    if "m" in operands:
        cell = writer.at("%vals", _MBARRIERS)
        _put(to, _address(to, operands["m"], spaces["dst"]), cell)
        mbarriers = pointer_number(to, cell)
    if "mask" in operands:
        how |= Bulk.MULTICAST
        _put(to, put_ranks(to, instruction), words)
    if "bytes" in operands:
        how |= Bulk.MASKED
        _put(to, _native(to.source(operands["bytes"], U16).convert(U32)), words)
    if "left" in operands:
        how |= Bulk.EDGES
        left, right = (to.source(operands[name], U32) for name in ("left", "right"))
        _put(to, _native(_edge(left) | _edge(right) << 8), words)
    how |= report_kind(instruction) << Bulk.REPORT
    combine = combine_address(to, instruction) if has_semantics(form) else "0"
    with recording_ranges(to, site):
        writer.call(
            "bulk_lanes",
            "i64",
            *_numbers(to, "%ctx", "%cta", "%st"),
            ("i64", str(site)),
            ("i64", lanes),
            *_numbers(to, "%area", targets, sizes),
            ("i64", mbarriers),
            *_numbers(to, words),
            ("i64", str(how)),
            ("i64", combine),
        )
    to.faulting = True


def _tensor(
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: Ref
) -> None:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``."""
    writer, copy = to.writer, copy_of(instruction)
    where, words = operands["t"], writer.at("%vals", _WORDS)
    assert isinstance(where, Address)
    _put_coordinates(to, operands, copy.mode)
    how = Bulk.FROM_GLOBAL if copy.loads else Bulk.TO_GLOBAL
    how |= Bulk.FOUR_ROWS * copy.four_rows | copy.mode << Bulk.MODE
    how |= Bulk.PAIRED * (instruction.form.modifier("group") == "cta_group::2")
    how |= _put_overrides(to, instruction, operands)
    how |= report_kind(instruction) << Bulk.REPORT
    _put(to, _address(to, where, "generic"), "%area")
    cells = writer.at("%vals", _TARGETS)
    _put(to, _address(to, operands["d" if copy.loads else "a"], "shared"), cells)
    mbarriers, combine, kinds = "0", "0", 0
    if "m" in operands:
        cell = writer.at("%vals", _MBARRIERS)
        _put(to, _address(to, operands["m"], "shared"), cell)
        mbarriers = pointer_number(to, cell)
    if "mask" in operands:
        how |= Bulk.MULTICAST
        _put(to, put_ranks(to, instruction), words)
    if copy.operation:
        combine = combine_address(to, instruction)
        kinds = sum(1 << number for number in combined_types(copy.operation))
    with recording_ranges(to, site):
        to.writer.call(
            "tensor_lanes",
            "i64",
            *_numbers(to, "%ctx", "%cta", "%st"),
            ("i64", str(site)),
            ("i64", lanes),
            *_numbers(to, "%area", writer.at("%vals", _VECTORS), cells),
            ("i64", mbarriers),
            *_numbers(to, words),
            ("i64", str(how)),
            ("i64", str(copy.rank)),
            ("i64", combine),
            ("i64", str(kinds)),
        )
    to.faulting = True


def _put_coordinates(to: BlockWriter, operands: dict[str, Operand], mode: int) -> None:
    """Store coordinates, and the im2col offsets, which are 0 if the instruction has none."""
    writer = to.writer
    for first, operand in ((0, operands["c"]), (_OFFSETS, operands.get("offsets"))):
        for axis, item in enumerate(_elements(operand)):
            cell = writer.at("%vals", _VECTORS + 4 * LANES * (first + axis))
            _put(to, _native(to.source(item, U16 if first else U32).convert(U32)), cell)
    if mode and "offsets" not in operands:
        for axis in range(3):
            _put(to, to.constant(0, U32), writer.at("%vals", _VECTORS + 4 * LANES * (_OFFSETS + axis)))


def _put_overrides(to: BlockWriter, instruction: Instruction, operands: dict[str, Operand]) -> int:
    """Store the address, sizes and strides that override those of the map. Returns the corresponding flags of ``Bulk``."""
    writer, how = to.writer, 0
    if "base" in operands:
        how |= Bulk.READDRESSED
        _put(to, _native(to.source(operands["base"], U64)), writer.at("%vals", _VECTORS + Bulk.BASE))
    if "sizes" in operands:
        how |= Bulk.RESIZED
        bits = next(slot.type.bits for slot, _ in matched(instruction) if slot.name == "sizes" and slot.type)
        upper = (operands["upper"],) if "upper" in operands else ()
        for first, kind, items in (
            (Bulk.EXTENTS, scalar_type(f"u{bits}"), _elements(operands["sizes"])),
            (Bulk.LOWER, U32, _elements(operands.get("lower"))),
            (Bulk.UPPER, U16, upper),
        ):
            for axis, item in enumerate(items):
                cell = writer.at("%vals", _VECTORS + first + 4 * LANES * axis)
                _put(to, _native(to.source(item, kind).convert(U32)), cell)
    return how


def _elements(operand: Operand | None) -> tuple[Operand, ...]:
    if operand is None:
        return ()
    return operand.elements if isinstance(operand, Vector) else (operand,)


@handles(TENSOR_MAP)
def write_replace(to: BlockWriter, instruction: Instruction) -> None:
    """``tensormap.replace``."""
    generator, writer = to.generator, to.writer
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    name, ordinal = str(instruction.form.modifier("field")), operands.get("ordinal")
    number = ordinal.value if isinstance(ordinal, Immediate) else 0
    start, size, bias = field_place(name, number)
    field = FIELDS[name]
    # an empty range of values for a field that does not exist
    low, high = (field.low, field.high) if number < field.number else (1, 0)
    space = (instruction.form.space or "generic").split("::")[0]
    values = writer.at("%vals", 0)
    _put(to, _address(to, operands["a"], space), "%area")
    _put(to, _native(to.source(operands["value"], U64 if size == 8 else U32).convert(U64)), values)
    mask = to.effective_mask(to.guard(instruction))
    writer.call(
        "replace_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(len(generator.program.sites))),
        ("i64", str(to.place_of(instruction))),
        ("i64", writer.zext(mask, "i64")),
        *_numbers(to, "%area", values),
        *(("i64", str(number)) for number in (SPACES[space], start, size, bias, low, high, field.multiple)),
        ("i64", str(field_word(name, number))),
        ("i64", str(field_bit(name, number))),
    )
    to.faulting = True


def _fill(
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: Ref
) -> None:
    writer = to.writer
    space = instruction.form.space or "generic"
    sizes = writer.at("%vals", _SIZES)
    _put(to, _address(to, operands["a"], space, takes_short(to, instruction)), "%area")
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
    to: BlockWriter, instruction: Instruction, operands: dict[str, Operand], site: int, lanes: Ref
) -> None:
    """The response to a request for another cluster."""
    writer, form = to.writer, instruction.form
    space = (form.space or "generic").split("::")[0]
    how = (
        Bulk.ANSWER | Bulk.GENERIC * (space == "generic") | Bulk.MULTICAST * bool(form.modifier("multicast"))
    )
    targets, sizes, mbarriers, words = (
        writer.at("%vals", offset) for offset in (_TARGETS, _SIZES, _MBARRIERS, _WORDS)
    )
    short = takes_short(to, instruction)
    _put(to, _address(to, operands["a"], space, short), targets)
    _put(to, _address(to, operands["m"], space, short), mbarriers)
    _put(to, to.constant(_PIECE, U32), sizes)
    to.writer.call(
        "bulk_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(site)),
        ("i64", lanes),
        *_numbers(to, targets, targets, sizes, mbarriers, words),
        ("i64", str(how)),
        ("i64", "0"),
    )
    # the time slice ends at the next back edge, so that resident CTAs alternate in taking clusters
    asks = writer.icmp("ne", lanes, 0)
    quantum = writer.select(asks, constant("i32", 0), writer.load("i32", "%quantum"))
    writer.store(quantum, "%quantum")
    to.faulting = True


def write_signal(to: BlockWriter, instruction: Instruction, mask: Ref, moved: int) -> None:
    """After ``st.async`` or ``red.async``: complete the bytes of each lane at its mbarrier."""
    writer = to.writer
    slot, mbarriers = next((slot, item) for slot, item in matched(instruction) if slot.name == "m")
    space = slot.space or instruction.form.space or "generic"
    # an invalid store signals nothing
    to.check_faults()
    ones, amounts = writer.at("%vals", 0), writer.at("%vals", 4 * LANES)
    _put(to, _address(to, mbarriers, space, takes_short(to, instruction)), "%area")
    _put(to, to.constant(1, U32), ones)
    _put(to, to.constant(moved, U32), amounts)
    how = Mbarrier.COMPLETE | 256 * (space == "generic") | 512 * reaches_peers(instruction)
    writer.call(
        "mbarrier_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta"),
        ("i64", str(to.place_of(instruction))),
        ("i64", writer.zext(mask, "i64")),
        *_numbers(to, "%area", ones, amounts),
        ("i64", str(how)),
    )
    to.faulting = True


def _address(to: BlockWriter, operand: object, space: str, short: bool = False) -> NativeValue:
    assert isinstance(operand, Address)
    return _native(address_value(to, operand, SPACES[space], short).convert(U64))


def _put(to: BlockWriter, value: NativeValue, cell: str) -> None:
    to.writer.store(value.clean().vector(), cell, 64)


def _numbers(to: BlockWriter, *pointers: str) -> Arguments:
    return [("i64", pointer_number(to, pointer)) for pointer in pointers]


def put_ranks(to: BlockWriter, instruction: Instruction) -> NativeValue:
    """The CTA mask of a multicast."""
    slot, operand = next((slot, item) for slot, item in matched(instruction) if slot.name == "mask")
    kind = U16 if slot.type is None or slot.type.bits == 16 else U32
    return _native(to.source(operand, kind).convert(U32))


def report_kind(instruction: Instruction) -> int:
    """The number of the reported pattern, from 1 on; 0 for none."""
    pattern = str(instruction.form.modifier("report") or "").rpartition("::")[2]
    return Bulk.PATTERNS.index(pattern) + 1 if pattern in Bulk.PATTERNS else 0


def _edge(count: NativeValue) -> NativeValue:
    """Ignored bytes at one end, at most 255, which is invalid."""
    return _native(count.apply("minimum", count.constant(255, U32), nan=False))


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
