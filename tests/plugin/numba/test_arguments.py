"""The parameter buffer of what Numba's launcher gives, against bytes by hand."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from gpuperf_engine.errors import LaunchError
from pytest_gpuperf.numba.arguments import pack, raw_of


@pytest.mark.parametrize(
    ("argument", "raw"),
    [
        (None, bytes(8)),
        (True, b"\x01"),
        (-2, b"\xfe" + b"\xff" * 7),
        (1 << 63, bytes(7) + b"\x80"),
        (1.5, struct.pack("<d", 1.5)),
        (1 - 2j, struct.pack("<dd", 1, -2)),
        (ctypes.c_float(0.25), struct.pack("<f", 0.25)),
        (ctypes.c_uint16(0x3C00), b"\x00\x3c"),
        (np.int16(-1), b"\xff\xff"),
    ],
)
def test_bytes_of_a_number(argument: object, raw: bytes) -> None:
    assert raw_of(argument) == raw


def test_parameters_take_as_many_bytes_as_they_have() -> None:
    # .u64 at 0, .u8 at 8, .f32 at 12, .u32 at 16
    fields = [(0, 8), (8, 1), (12, 4), (16, 4)]
    buffer = pack(fields, [0x1122334455667788, True, ctypes.c_float(1), -1])
    assert buffer == bytes.fromhex("8877665544332211 01000000 0000803f ffffffff")


def test_what_is_no_argument() -> None:
    with pytest.raises(LaunchError, match="a str cannot be a kernel argument"):
        raw_of("text")
    with pytest.raises(LaunchError, match="kernel 'k' has 1 parameters and was given 2"):
        pack([(0, 8)], [1, 2], "k")
