"""Parameter buffers of Triton kernels, against layouts of C structures, NumPy's conversions and exact fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from pytest_gpuperf.triton.arguments import Packer, Signature, pairs, pointer_of


def pack(signature: Signature, arguments: Sequence[object], more: Sequence[int] = ()) -> bytes:
    packer = Packer(signature, len(more))
    return packer.pack(packer.values(arguments), *more)


class Tensor:
    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def test_parameters_lie_as_in_a_c_structure() -> None:
    """As ``struct { void *x; int8_t a; int16_t b; float c; int64_t d; void *scratch, *profile; }``."""
    raw = pack(["*fp32", "i8", "i16", "fp32", "i64"], [Tensor(0x1000), -1, 7, 1.5, -2], [0x2000, 0])
    assert raw == struct.pack("@P b h f q P P", 0x1000, -1, 7, 1.5, -2, 0x2000, 0)


def test_constants_are_left_out_and_tuples_unrolled() -> None:
    signature = ["i32", "constexpr", ("i32", ("*i8", "constexpr"), "i64"), "i1"]
    arguments = [1, "anything", (2, (None, object()), 3), True]
    assert [*pairs(signature, arguments)] == [("i32", 1), ("i32", 2), ("*i8", None), ("i64", 3), ("i1", True)]
    assert pack(signature, arguments) == struct.pack("@i i P q ?", 1, 2, 0, 3, True)
    with pytest.raises(TypeError, match="2 arguments for the signature"):
        pack(["i32"], [1, 2])


def test_last_constants_may_be_missing() -> None:
    """Triton's launcher skips them by position without reading them."""
    signature = ["i32", "constexpr", "i32", "constexpr", "constexpr"]
    assert pack(signature, [1, "anything", 2]) == pack(signature, [1, None, 2, 3]) == struct.pack("ii", 1, 2)
    with pytest.raises(TypeError, match="2 arguments for the signature"):
        pack(signature, [1, 2])


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("i32", 1 << 31, np.int32(-(1 << 31)).tobytes()),
        ("u8", -1, b"\xff"),
        ("i64", (1 << 64) - 1, np.int64(-1).tobytes()),
        ("fp16", 1.0009765625, np.float16(1.0009765625).tobytes()),
        ("fp16", 1e6, np.float16("inf").tobytes()),
        ("fp32", 0.1, np.float32(0.1).tobytes()),
        ("fp32", -1e300, np.float32("-inf").tobytes()),
        ("fp64", 0.1, np.float64(0.1).tobytes()),
    ],
)
def test_numbers_are_cut_and_rounded_to_their_parameter(type_: str, value: float, expected: bytes) -> None:
    assert pack([type_], [value]) == expected


@pytest.mark.parametrize("value", [1.0, 1.00390625, 1.01171875, -3.1415, 2.0**-130, 3.3895e38, 65504.0, 0.0])
def test_bfloat16_is_the_nearest(value: float) -> None:
    """Of the two neighbours with eight bits the nearer one, of equally near ones the even one."""
    (bits,) = struct.unpack("<H", pack(["bf16"], [value]))
    single = Fraction(float(np.float32(value)))

    def number(code: int) -> Fraction:
        return Fraction(struct.unpack("<f", struct.pack("<I", code << 16))[0])

    error = abs(number(bits) - single)
    for other in (bits - 1, bits + 1):
        if 0 <= other < 0x7F80 or 0x8000 < other < 0xFF80:
            apart = abs(number(other) - single)
            assert error < apart or (error == apart and bits % 2 == 0)


def test_a_bfloat16_that_is_no_number() -> None:
    (bits,) = struct.unpack("<H", pack(["bf16"], [math.nan]))
    assert bits & 0x7F80 == 0x7F80 and bits & 0x7F


def test_pointers() -> None:
    array = np.zeros(4)
    assert pointer_of(array) == array.ctypes.data
    assert pointer_of(None) == 0 and pointer_of(-1) == (1 << 64) - 1
    with pytest.raises(TypeError, match="a list is not a pointer"):
        pointer_of([1])


def test_a_tensor_map_is_aligned() -> None:
    raw = pack(["i32", "nvTmaDesc"], [1, bytes(range(128))])
    assert raw[64:] == bytes(range(128)) and len(raw) == 192
    with pytest.raises(TypeError, match="127 bytes for a tensor map"):
        pack(["nvTmaDesc"], [bytes(127)])


def test_types_that_are_not_known() -> None:
    with pytest.raises(TypeError, match="'fp8' are not known"):
        pack(["fp8"], [1])
