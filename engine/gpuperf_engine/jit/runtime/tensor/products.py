"""Functions for ``tcgen05.mma`` as LLVM IR, which the runtime calls by address with a ``TensorWork``.

``v_tensor_numbers`` decodes elements of a matrix to f64, one after the other; ``v_tensor_sums`` accumulates products, for 32 lanes of
one column of D at once. The products are exact in f64, so that a fused multiply-add has the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....isa.formats import FORMATS, decode, scale
from ....isa.tensor_memory import BYTE_TYPES, Tensor, begin, finish
from ....isa.types import scalar_type
from ...ir.emitter import Emitter
from ...ir.operands import LANES, Ref, constant, lanes_of
from ...ir.tensor_records import TensorWork
from ...ir.values import NativeValue
from ..matrix_functions import internal_functions

__all__ = ["NUMBERS", "SUMS", "TENSOR_PREFIX", "tensor_function"]

TENSOR_PREFIX = "v_tensor_"
NUMBERS, SUMS = f"{TENSOR_PREFIX}numbers", f"{TENSOR_PREFIX}sums"
U8, U32, F64 = (scalar_type(name) for name in ("u8", "u32", "f64"))
_WIDE = lanes_of("double")
#: bytes of the numbers of all lanes for one k
_COLUMN = 8 * Tensor.LANES


def tensor_function(name: str, wide: bool = False) -> str:
    """Return the IR of one of the two functions. ``wide``: the host has AVX-512."""
    writer = Emitter()
    writer.start("entry")
    (_write_numbers if name == NUMBERS else _write_sums)(writer)
    writer.give(constant("i32", 0))
    head = f'define i32 @"{name}"(ptr %work, ptr %same, ptr %too) nounwind {{'
    return "\n".join([*internal_functions(writer, wide), head, *writer.lines, "}", ""])


def _field(writer: Emitter, offset: int) -> Ref:
    return writer.field("%work", offset)


#: flag of the cases with scaled elements, besides the code of the encoding
_SCALED = 256


def _write_numbers(writer: Emitter) -> None:
    form, table, shift = (
        _field(writer, offset) for offset in (TensorWork.FORM, TensorWork.TABLE, TensorWork.SCALE_SHIFT)
    )
    scaled = writer.select(writer.icmp("eq", shift, Tensor.UNSCALED), constant("i64", 0), _SCALED)
    key = writer.or_(writer.or_(form, writer.shl(table, 4)), scaled)
    cases: dict[int, Callable[[Ref, Ref], Ref]] = {
        0: lambda line, k: writer.fpext(_element(writer, line, k, "half"), "double"),
        1: lambda line, k: writer.fpext(_brain(writer, line, k), "double"),
        2: lambda line, k: writer.fpext(_tf32(writer, line, k), "double"),
        Tensor.NIBBLES_FORM | Tensor.E2M1 << 4 | _SCALED: lambda line, k: _meaning(
            writer, "e2m1", _nibble(writer, line, k)
        ),
    }
    for number, name in BYTE_TYPES.items():
        plain = Tensor.BYTES_FORM | number << 4
        cases[plain] = cases[plain | _SCALED] = partial(_byte, writer, name)
    labels = {number: f"case{number}" for number in cases}
    writer.switch(key, "done", list(labels.items()))
    for number, meaning in cases.items():
        writer.start(labels[number])
        _write_lines(writer, meaning, number >= _SCALED)
        writer.jump("done")
    writer.start("done")


def _write_lines(writer: Emitter, meaning: Callable[[Ref, Ref], Ref], scaled: bool) -> None:
    """Write the loop over all elements of one type."""
    source, lines, count, target, step, further, spread, codes, shift, table = (
        _field(writer, offset)
        for offset in (
            *(TensorWork.SOURCE, TensorWork.LINES, TensorWork.COUNT, TensorWork.TARGET, TensorWork.LINE_STEP),
            *(TensorWork.ELEMENT_STEP, TensorWork.SPREAD, TensorWork.SCALES, TensorWork.SCALE_SHIFT),
            TensorWork.SCALE_TABLE,
        )
    )
    sign = writer.field("%work", TensorWork.SIGN, "double")
    powers = writer.icmp("eq", table, Tensor.UE8M0)
    with writer.count_to(lines, "line") as line:
        begins = writer.add(source, writer.mul(line, Tensor.PITCH))
        extra = writer.mul(writer.lshr(line, 4), spread)
        into = writer.add(writer.add(target, writer.mul(line, step)), extra)
        own = writer.pointer(writer.add(codes, writer.shl(line, 3)))
        with writer.count_to(count, "element") as k:
            number = writer.fmul(meaning(begins, k), sign)
            if scaled:
                code = writer.load("i8", writer.element(own, "i8", writer.lshr(k, shift)), 1)
                factors = (_meaning(writer, name, code) for name in ("ue8m0", "ue4m3"))
                number = writer.fmul(number, writer.select(powers, *factors))
            writer.store(number, writer.pointer(writer.add(into, writer.mul(k, further))), 8)


def _element(writer: Emitter, line: Ref, k: Ref, type: str) -> Ref:
    return writer.load(type, writer.element(writer.pointer(line), type, k), 1)


def _brain(writer: Emitter, line: Ref, k: Ref) -> Ref:
    return writer.bitcast(writer.shl(writer.zext(_element(writer, line, k, "i16"), "i32"), 16), "float")


def _tf32(writer: Emitter, line: Ref, k: Ref) -> Ref:
    return writer.bitcast(writer.and_(_element(writer, line, k, "i32"), 0xFFFFE000), "float")


def _nibble(writer: Emitter, line: Ref, k: Ref) -> Ref:
    byte = _element(writer, line, writer.lshr(k, 1), "i8")
    return writer.and_(writer.lshr(byte, writer.trunc(writer.shl(writer.and_(k, 1), 2), "i8")), 15)


def _byte(writer: Emitter, name: str, line: Ref, k: Ref) -> Ref:
    return _meaning(writer, name, _element(writer, line, k, "i8"))


def _meaning(writer: Emitter, name: str, byte: Ref) -> Ref:
    """Return the value (f64) of a byte of a type."""
    if name == "u8":
        return writer.uitofp(byte, "double")
    if name == "s8":
        return writer.sitofp(byte, "double")
    code = NativeValue(writer, U8, byte, True)
    if name == "ue8m0":
        number = scale(code)
    else:
        number = decode(code & 0x7F, FORMATS["e4m3"]) if name == "ue4m3" else decode(code, FORMATS[name])
    return writer.fpext(_native(number).scalar(), "double")


def _write_sums(writer: Emitter) -> None:
    kept = writer.icmp("ne", _field(writer, TensorWork.KEPT), 0)
    result = writer.shl(_field(writer, TensorWork.RESULT), 1)
    cases = writer.or_(result, writer.zext(kept, "i64"))
    saturates = _field(writer, TensorWork.SATURATES)
    limited = writer.and_(writer.icmp("eq", cases, 4), writer.icmp("ne", saturates, 0))
    limited_sparse = writer.and_(writer.icmp("eq", cases, 5), writer.icmp("ne", saturates, 0))
    either = writer.or_(limited, limited_sparse)
    cases = writer.select(either, writer.add(cases, 2), cases)
    labels = {number: f"case{number}" for number in range(8)}
    writer.switch(cases, "done", list(labels.items()))
    for number, label in labels.items():
        writer.start(label)
        _write_case(writer, min(number >> 1, Tensor.RESULT_S32), bool(number & 1), number >= 6)
        writer.jump("done")
    writer.start("done")


def _write_case(writer: Emitter, result: int, sparse: bool, saturates: bool) -> None:
    """Write D of one type: four groups of 32 lanes, column by column."""
    d, columns, depth, step = (
        _field(writer, offset)
        for offset in (TensorWork.D, TensorWork.COLUMNS, TensorWork.DEPTH, TensorWork.RIGHT_STEP)
    )
    left, right = (writer.field("%work", offset, "ptr") for offset in (TensorWork.LEFT, TensorWork.RIGHT))
    reads = writer.icmp("ne", _field(writer, TensorWork.READS), 0)
    factor = writer.splat(writer.field("%work", TensorWork.FACTOR, "double"))
    masks = writer.field("%work", TensorWork.KEPT, "ptr") if sparse else None
    with writer.count_to(4, "group") as group:
        cell = writer.element(writer.place("%work", TensorWork.MASKS), "i32", group)
        mask = writer.load("i32", cell, 4)
        with writer.if_(writer.icmp("ne", mask, 0)):
            lanes = writer.bitcast(mask, lanes_of("i1"))
            first = writer.pointer(writer.add(d, writer.mul(group, 4 * LANES)))
            numbers = writer.place(left, writer.mul(group, 8 * LANES))
            own = None if masks is None else writer.place(masks, writer.shl(group, 2))
            with writer.count_to(columns, "column") as column:
                place = writer.place(first, writer.mul(column, Tensor.COLUMN_BYTES))
                old = writer.load(lanes_of("i32"), place, 4)
                before = _native(begin(NativeValue(writer, U32, old), result)).vector()
                start = writer.select(reads, writer.fmul(before, factor), "zeroinitializer")
                line = writer.place(right, writer.mul(column, step))
                total = _write_sum(writer, start, (numbers, line), depth, own)
                words = _native(finish(NativeValue(writer, F64, total), result, saturates)).clean().vector()
                writer.store(writer.select(lanes, words, old), place, 4)


def _write_sum(writer: Emitter, start: Ref, factors: tuple[Ref, Ref], depth: Ref, masks: Ref | None) -> Ref:
    """Add the products of all k to ``start``, one after the other."""
    before, head, done = writer.block, writer.label("k"), writer.label("k.done")
    writer.enter(head)
    k = writer.phi("i64", (0, before))
    total = writer.phi(_WIDE, (start, before))
    a = writer.load(_WIDE, writer.place(factors[0], writer.mul(k, _COLUMN)), 8)
    b = writer.splat(writer.load("double", writer.element(factors[1], "double", k), 8))
    product = writer.ref(_WIDE, f"fmul contract {_WIDE} {a}, {b}")
    after = writer.ref(_WIDE, f"fadd contract {_WIDE} {total}, {product}")
    if masks is not None:
        mask = writer.load("i32", writer.place(masks, writer.shl(k, 4)), 4)
        after = writer.select(writer.bitcast(mask, lanes_of("i1")), after, total)
    following = writer.add(k, 1)
    k.come(following)
    total.come(after)
    writer.branch(writer.icmp("eq", following, depth), done, head)
    writer.start(done)
    return after


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
