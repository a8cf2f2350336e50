"""Tensor memory as LLVM IR: calls of the runtime, which checks, copies and multiplies; loads and stores of warps are inline.

The lanes of a column of tensor memory are consecutive: a register of ``32x32b`` is one vector in memory, one of the other shapes is
assembled from up to four columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import (
    TENSOR_ALLOC,
    TENSOR_COPY,
    TENSOR_FREE,
    TENSOR_LOAD,
    TENSOR_ORDER,
    TENSOR_PRODUCT,
    TENSOR_SHIFT,
    TENSOR_STORE,
)
from ...isa.tensor_memory import (
    COPIES,
    SHAPES,
    Tensor,
    columns_of,
    fragment,
    how_of,
    packed_bits,
    reduced,
)
from ...isa.types import scalar_type
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from ..ir.access_records import SITE_BYTES
from ..ir.codes import WAIT_CODE, Status
from ..ir.operands import LANES, Ref, constant
from ..ir.tensor_records import TensorWork
from ..ir.values import NativeValue
from ..runtime.tensor.products import NUMBERS, SUMS
from .exchange import write_exchange
from .handlers import handles
from .mbarrier import hold_warp
from .memory import SPACES, address_value, pointer_number, takes_short
from .values import recording_matrix

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["write_alloc", "write_product"]

B32, U32, U64, PRED = (scalar_type(name) for name in ("b32", "u32", "u64", "pred"))
#: a space with plain 32-bit addresses, as those of tensor memory are, independent of the cluster
_PLAIN = SPACES["local"]
_HALF = LANES // 2


def _operands(instruction: Instruction) -> dict[str, Operand]:
    return {slot.name: operand for slot, operand in matched(instruction)}


def _address(to: BlockWriter, operand: Operand, space: int = _PLAIN, short: bool = False) -> NativeValue:
    assert isinstance(operand, Address)
    return _native(address_value(to, operand, space, short).convert(U64))


def _numbers(to: BlockWriter, *pointers: str) -> list[tuple[str, str]]:
    return [("i64", pointer_number(to, pointer)) for pointer in pointers]


def _lowest(to: BlockWriter, mask: Ref) -> Ref:
    """The lowest lane of a mask, 0 of none, as i64."""
    writer = to.writer
    lane = writer.intrinsic("cttz.i32", "i32", mask, constant("i1", "false"))
    return writer.zext(writer.and_(lane, LANES - 1), "i64")


def _of_lane(to: BlockWriter, value: NativeValue, lane: Ref) -> Ref:
    """The value of one lane, as i64."""
    wide = _native(value.convert(U64))
    return wide.scalar() if wide.uniform else to.writer.extract(wide.vector(), to.writer.trunc(lane, "i32"))


def _count(to: BlockWriter, instruction: Instruction, mask: Ref) -> int:
    """The site of an instruction; a predicated one is a request only if the guard holds in some lane."""
    writer = to.writer
    site = to.generator.program.site_of[instruction]
    if instruction.guard is not None and instruction in to.generator.program.predicated_of:
        some = writer.zext(writer.icmp("ne", mask, 0), "i64")
        writer.bump("%sites", site * SITE_BYTES, some)
    return site


@handles(TENSOR_ALLOC)
def write_alloc(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.alloc``, the first instruction of the block, where it continues after a stop."""
    writer, operands = to.writer, _operands(instruction)
    _count(to, instruction, to.effective_mask(to.guard(instruction)))
    code = WAIT_CODE + to.block.index
    to.generator.resumable.add(code)
    writer.jump(f"w{to.block.index}")
    writer.start(f"w{to.block.index}")
    to.restart()
    guard = None if instruction.guard is None else to.predicate(instruction.guard)
    mask = to.effective_mask(guard)
    come, over = writer.label("come"), writer.label("over")
    writer.branch(writer.icmp("eq", mask, 0), over, come)
    writer.start(come)
    lane = _lowest(to, mask)
    space = (instruction.form.space or "generic").split("::")[0]
    address = _of_lane(to, _address(to, operands["a"], SPACES[space], takes_short(to, instruction)), lane)
    columns = _of_lane(to, to.source(operands["columns"], U32), lane)
    done = writer.call(
        "tensor_alloc", "i64", *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", str(to.generator.program.site_of[instruction])), ("i64", lane), ("i64", address), ("i64", columns),
        ("i64", str(SPACES[space] + 4)),
    )  # fmt: skip
    hold = writer.label("hold")
    writer.branch(writer.icmp("ne", done, 0), over, hold)
    writer.start(hold)
    hold_warp(to, to.wait_code, Status.SUSPENDED)
    writer.start(over)
    to.restart()
    to.faulting = True


@handles(TENSOR_FREE)
def write_free(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.dealloc`` and ``relinquish_alloc_permit``."""
    writer, operands = to.writer, _operands(instruction)
    mask = to.effective_mask(to.guard(instruction))
    address, columns = Ref("i64", "0"), Ref("i64", "0")
    lane = _lowest(to, mask)
    if operands:
        address = _of_lane(to, to.source(operands["taddr"], U32), lane)
        columns = _of_lane(to, to.source(operands["columns"], U32), lane)
    with writer.if_(writer.icmp("ne", mask, 0)):
        writer.call(
            "tensor_free", "i64", *_numbers(to, "%ctx", "%cta"), ("i64", str(to.place_of(instruction))), ("i64", lane),
            ("i64", address), ("i64", columns),
        )  # fmt: skip
    to.faulting = True


@handles(TENSOR_ORDER)
def write_order(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.wait`` and ``fence``: everything issued before is already complete."""
    to.guard(instruction)


def _place(to: BlockWriter, instruction: Instruction, registers: int, packed: bool) -> tuple[str, int, Ref]:
    """Shape, offset of its second half, and the host pointer of the warp's address."""
    operands, writer = _operands(instruction), to.writer
    shape = next(item for item in SHAPES if item in instruction.opcode.split("."))
    second = operands.get("offset")
    offset = int(second.value) if isinstance(second, Immediate) else 0
    address = _of_lane(to, _address(to, operands["taddr"]), Ref("i64", "0"))
    align = LANES if shape == "32x32b" else _HALF
    host = writer.call(
        "tensor_place", "i64", *_numbers(to, "%ctx", "%cta", "%st"), ("i64", str(to.place_of(instruction))), ("i64", address),
        ("i64", str(align)), ("i64", str(columns_of(shape, registers, packed, offset))),
    )  # fmt: skip
    to.faulting = True
    to.check_faults()
    return shape, offset, writer.pointer(host)


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


@handles(TENSOR_LOAD)
def _load(to: BlockWriter, instruction: Instruction) -> None:
    write_exchange(to, instruction, lambda exchange: _write_load(exchange.to, instruction))


def _write_load(to: BlockWriter, instruction: Instruction) -> None:
    writer = to.writer
    packed = bool(instruction.form.modifier("pack::16b"))
    registers = len(_elements(_operands(instruction)["d"]))
    shape, offset, base = _place(to, instruction, registers, packed)
    results = []
    for register in range(registers):
        word = _register(to, base, (shape, register, packed, offset), 0)
        if packed:
            high = _register(to, base, (shape, register, packed, offset), 1)
            word = writer.or_(writer.and_(word, 0xFFFF), writer.shl(high, 16))
        results.append(to.value(B32, word))
    kind = next(slot.type for slot in instruction.form.operands if slot.name == "d")
    assert kind is not None
    loaded = [value.bits_as(kind) for value in results]
    if instruction.form.modifier("red"):
        loaded.append(_native(reduced(instruction.form.modifiers, loaded)))
    to.assign(instruction, loaded, None)


def _register(to: BlockWriter, base: Ref, what: tuple[str, int, bool, int], further: int) -> Ref:
    """A register of all lanes, ``further`` columns on."""
    writer = to.writer
    places = [fragment(what[0], what[1], lane, what[2], what[3]) for lane in range(LANES)]
    columns = sorted({column for _, column in places})
    rows = LANES if what[0] == "32x32b" else _HALF
    vectors = [
        writer.load(f"<{rows} x i32>", writer.place(base, (column + further) * Tensor.COLUMN_BYTES), 4)
        for column in columns
    ]
    if rows == LANES:
        return vectors[0]
    while len(vectors) < 2:
        vectors.append(vectors[0])
    if len(vectors) == 2:
        order = [columns.index(column) * _HALF + row for row, column in places]
        return writer.pick(vectors[0], order, vectors[1])
    pairs = [writer.pick(vectors[index], range(LANES), vectors[index + 1]) for index in (0, 2)]
    order = [columns.index(column) * _HALF + row for row, column in places]
    return writer.pick(pairs[0], order, pairs[1])


@handles(TENSOR_STORE)
def _store(to: BlockWriter, instruction: Instruction) -> None:
    write_exchange(to, instruction, lambda exchange: _write_store(exchange.to, instruction))


def _write_store(to: BlockWriter, instruction: Instruction) -> None:
    writer = to.writer
    packed = bool(instruction.form.modifier("unpack::16b"))
    values = [to.source(item, B32).clean().vector() for item in _elements(_operands(instruction)["b"])]
    shape, offset, base = _place(to, instruction, len(values), packed)
    for further in range(1 + packed):
        words = values
        if packed:
            words = [writer.lshr(word, 16) if further else writer.and_(word, 0xFFFF) for word in values]
        _put_columns(to, base, shape, (packed, offset), words, further)


def _put_columns(
    to: BlockWriter, base: Ref, shape: str, how: tuple[bool, int], words: list[Ref], further: int
) -> None:
    """Store registers, column by column."""
    writer = to.writer
    held: dict[int, dict[int, tuple[int, int]]] = {}
    for register in range(len(words)):
        for lane in range(LANES):
            row, column = fragment(shape, register, lane, *how)
            held.setdefault(column, {})[row] = (register, lane)
    for column, places in held.items():
        cell = writer.place(base, (column + further) * Tensor.COLUMN_BYTES)
        sources = sorted({register for register, _ in places.values()})
        order = [sources.index(places[row][0]) * LANES + places[row][1] for row in range(len(places))]
        if len(places) == LANES:
            writer.store(words[sources[0]], cell, 4)
        else:
            writer.store(writer.pick(words[sources[0]], order, words[sources[-1]]), cell, 4)


@handles(TENSOR_COPY)
def write_copy(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.cp``."""
    writer, operands = to.writer, _operands(instruction)
    mask = to.effective_mask(to.guard(instruction))
    site = _count(to, instruction, mask)
    modifiers = instruction.form.modifiers
    rows, pieces, multicast = COPIES[str(modifiers["shape"]), str(modifiers.get("multicast") or "")]
    addresses, descriptors = writer.at("%vals", 0), writer.at("%vals", 8 * LANES)
    writer.store(_address(to, operands["taddr"]).vector(), addresses, 64)
    writer.store(to.source(operands["b"], U64).clean().vector(), descriptors, 64)
    writer.call(
        "tensor_copy", "i64", *_numbers(to, "%ctx", "%cta", "%st"), ("i64", str(site)), ("i64", writer.zext(mask, "i64")),
        *_numbers(to, addresses, descriptors), ("i64", str(rows + (pieces << 8) + (multicast << 12))),
        ("i64", str(packed_bits(modifiers))), ("i64", str(int(modifiers.get("group") == "cta_group::2"))),
    )  # fmt: skip
    to.faulting = True


@handles(TENSOR_SHIFT)
def write_shift(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.shift``."""
    writer = to.writer
    mask = to.effective_mask(to.guard(instruction))
    addresses = writer.at("%vals", 0)
    writer.store(_address(to, _operands(instruction)["taddr"]).vector(), addresses, 64)
    writer.call(
        "tensor_shift", "i64", *_numbers(to, "%ctx", "%cta"), ("i64", str(to.place_of(instruction))),
        ("i64", writer.zext(mask, "i64")), *_numbers(to, addresses),
        ("i64", str(int(instruction.form.modifier("group") == "cta_group::2"))),
    )  # fmt: skip
    to.faulting = True


@handles(TENSOR_PRODUCT)
def write_product(to: BlockWriter, instruction: Instruction) -> None:
    """``tcgen05.mma``."""
    writer, operands = to.writer, _operands(instruction)
    mask = to.effective_mask(to.guard(instruction))
    site = _count(to, instruction, mask)
    how = how_of(instruction.opcode, to.generator.program.kernel.module.target)
    a = operands["a"]
    if isinstance(a, Address):
        how |= Tensor.A_TENSOR
        _put(to, _address(to, a), TensorWork.OPERAND_A)
    else:
        _put(to, to.source(a, U64), TensorWork.OPERAND_A)
    for name, place in (
        ("d", TensorWork.OPERAND_D),
        ("meta", TensorWork.OPERAND_META),
        ("scale_a", TensorWork.OPERAND_SCALE_A),
        ("scale_b", TensorWork.OPERAND_SCALE_B),
    ):
        if name in operands:
            _put(to, _address(to, operands[name]), place)
    _put(to, to.source(operands["b"], U64), TensorWork.OPERAND_B)
    _put(to, to.source(operands["idesc"], U32), TensorWork.OPERAND_IDESC)
    reads = to.source(operands["enable"], PRED)
    _put(to, _native(reads._select(to.constant(1, U32), to.constant(0, U32))), TensorWork.OPERAND_READS)
    disabled = _elements(operands["mask"]) if "mask" in operands else ()
    for number in range(8):
        word = to.source(disabled[number], U32) if number < len(disabled) else to.constant(0, U32)
        _put(to, word, TensorWork.OPERAND_MASKS + 8 * LANES * number)
    if how & Tensor.WEIGHTS:
        zeros = to.source(operands["zeros"], U64) if "zeros" in operands else to.constant(0, U64)
        _put(to, zeros, TensorWork.OPERAND_ZEROS)
    scale = operands.get("scale")
    if isinstance(scale, Immediate):
        how |= int(scale.value) << Tensor.SCALE
    functions = []
    for name in (NUMBERS, SUMS):
        writer.needs[name] = f'declare i32 @"{name}"(ptr, ptr, ptr)'
        functions.append(("i64", str(writer.number(f'@"{name}"'))))
    with recording_matrix(to, site, 0):
        writer.call(
            "tensor_multiply", "i64", *_numbers(to, "%ctx", "%cta", "%st"), ("i64", str(site)), ("i64", writer.zext(mask, "i64")),
            *_numbers(to, "%vals"), ("i64", str(how)), *functions,
        )  # fmt: skip
    to.faulting = True


def _put(to: BlockWriter, value: NativeValue, place: int) -> None:
    wide = _native(value.convert(U64)).clean().vector()
    to.writer.store(wide, to.writer.at("%vals", place), 64)


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
