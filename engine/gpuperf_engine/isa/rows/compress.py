"""Structured sparse vectors (manual: spcompress, spdecompress). Elements and their indices are packed from the low bits of the first
register on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from ..model import Applied
from ..primitives import Value, select
from ..table import Options, instruction
from ..types import scalar_type

S32, U32 = scalar_type("s32"), scalar_type("u32")
SPARSE: Options = {"category": "move", "unit": "alu", "since": (9, 4), "only": "107a"}
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
#: Registers of all operands of the longest instruction in the manual, and of its longest dense vector.
MOST, MOST_DENSE = 253, 128
DESCRIPTOR = (
    "the descriptor names no type of such elements",
    "bits 2 to 4: 0 and 1 for f16 and bf16 of 16 bits; 0 to 5 for u8, s8, e5m2, e4m3, e3m2, e2m3 of 8 bits",
)


def _length(bits: int) -> str:
    """The length of a vector with so many bits for each of ``num``, in the notation of syntax lines."""
    shared = gcd(bits, 32)
    return f"num*{bits // 32}" if bits % 32 == 0 else f"num/{32 // shared}"


def _count(bits: int, num: int) -> int:
    return -(-bits * num // 32)


def _numbers(dense: int, *others: int) -> tuple[str, ...]:
    """The values of ``num`` that vectors of so many bits for each allow."""
    return tuple(
        f"x{num}"
        for num in NUMBERS
        if dense * num >= 32
        and _count(dense, num) <= MOST_DENSE
        and sum(_count(bits, num) for bits in (dense, *others)) <= MOST
    )


def _element(registers: Sequence[Value], index: int, bits: int) -> Value:
    """The element at an index."""
    at = index * bits
    return (registers[at // 32].bits(U32) >> (at % 32)) & ((1 << bits) - 1)


def _packed(elements: Sequence[Value], bits: int) -> Iterator[Value]:
    """Elements of so many bits, in registers."""
    each = 32 // bits
    for start in range(0, len(elements), each):
        word = elements[start]
        for index, element in enumerate(elements[start + 1 : start + each], 1):
            word = word | element << (bits * index)
        yield word


def _signed(magnitude: Value, sign: Value) -> Value:
    """A number that orders as sign and magnitude do, −0 before +0."""
    number = magnitude.bits(S32)
    return select(sign.compare("ne", 0), ~number, number)


def _keys(element: Value, bits: int, kind: Value, operation: Value) -> Value:
    """A sort key: of two elements, the one with the larger key is selected first."""
    absolute, smallest = (operation & 1).compare("ne", 0), (operation & 2).compare("ne", 0)
    width = bits - 1
    magnitude, sign = element & ((1 << width) - 1), element >> width
    if bits == 16:
        none = magnitude.compare("gt", select(kind.compare("eq", 1), kind.constant(0x7F80, U32), 0x7C00))
        key = select(absolute, magnitude.bits(S32), _signed(magnitude, sign))
    else:
        short, short_sign = element & 0x1F, (element >> 5) & 1
        integer = element.bits(S32)
        integer = select(kind.compare("eq", 1) & sign.compare("ne", 0), integer - 256, integer)
        floating = select(absolute, magnitude.bits(S32), _signed(magnitude, sign))
        small = select(absolute, short.bits(S32), _signed(short, short_sign))
        key = select(kind.compare("gt", 3), small, floating)
        key = select(kind.compare("lt", 2), select(absolute, abs(integer), integer), key)
        none = kind.compare("eq", 2) & magnitude.compare("gt", 0x7C)
        none = none | (kind.compare("eq", 3) & magnitude.compare("eq", 0x7F))
    key = select(smallest, ~key, key)
    return select(none, key.constant(0x7FFFFFFF, S32), key)


def _selected(keys: Sequence[Value]) -> list[Value]:
    """Which two of four elements are selected: the first of equal ones."""
    selected = []
    for index, key in enumerate(keys):
        before = key.constant(0, U32)
        for other, rival in enumerate(keys):
            if other != index:
                wins = rival.compare("ge" if other < index else "gt", key)
                before = before + select(wins, before.constant(1, U32), 0)
        selected.append(before.compare("lt", 2))
    return selected


def _compress(bits: int, index: int) -> None:
    # for each of num two registers of elements, of which one is kept
    dense, kept, metadata = 64, 32, 32 * index // bits

    @instruction(
        f"spcompress.element.index.sp::2:4.num d:b32*{_length(metadata)}, result:b32*num, data:b32*num*2, spdesc:b32%",
        element=f"b{bits}",
        index=f"b{index}",
        num=_numbers(dense, kept, metadata),
        applied=Applied(checked=DESCRIPTOR),
        **SPARSE,
    )
    def compress(*operands: Value) -> tuple[Value, ...]:
        """d, result: of each four elements of data the indices and values of two, the largest or smallest as spdesc says; the first of
        equal ones, those that are NaN in any case."""
        *data, descriptor = (operand.bits(U32) for operand in operands)
        kind, operation = (descriptor >> 2) & 7, descriptor & 3
        indices: list[Value] = []
        values: list[Value] = []
        for start in range(0, len(data) * 32 // bits, 4):
            four = [_element(data, start + position, bits) for position in range(4)]
            first, second, third, last = _selected([_keys(item, bits, kind, operation) for item in four])
            zero = descriptor.constant(0, U32)
            indices.append(select(first, zero, select(second, zero + 1, zero + 2)))
            indices.append(select(last, zero + 3, select(third, zero + 2, zero + 1)))
            values.append(select(first, four[0], select(second, four[1], four[2])))
            values.append(select(last, four[3], select(third, four[2], four[1])))
        wrong = kind.compare("gt", 1 if bits == 16 else 5)
        return *_packed(indices, index), *_packed(values, bits), wrong


def _decompress(bits: int, index: int, few: int, many: int) -> None:
    @instruction(
        f"spdecompress.element.index.sp::{few}:{many}.num d:b32*{_length(many * bits)}, "
        f"mdata:b32%*{_length(few * index)}, cdata:b32%*{_length(few * bits)}",
        element=f"b{bits}",
        index=f"b{index}",
        num=_numbers(many * bits, few * index, few * bits),
        **SPARSE,
    )
    def decompress(*operands: Value, num: str) -> tuple[Value, ...]:
        """The elements of cdata at the places that mdata says, in groups; elsewhere zeros."""
        repeated = int(num[1:])
        metadata = operands[: _count(few * index, repeated)]
        data = operands[len(metadata) :]
        dense = []
        for group in range(repeated):
            sources = range(few * group, few * (group + 1))
            elements = [
                (_element(metadata, source, index), _element(data, source, bits)) for source in sources
            ]
            for target in range(many):
                result = elements[0][1].constant(0, U32)
                for index_in_group, element in elements:
                    result = select(index_in_group.compare("eq", target), element, result)
                dense.append(result)
        return tuple(_packed(dense, bits))


def _fits(bits: int, index: int, few: int, many: int) -> bool:
    return few * bits <= 32 and many <= 1 << index


for _bits in (8, 16):
    for _index in (2, 4):
        _compress(_bits, _index)
        for _few, _many in ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16)):
            if _fits(_bits, _index, _few, _many):
                _decompress(_bits, _index, _few, _many)
