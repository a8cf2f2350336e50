"""Packs arguments of Numba's launches into the parameter buffer.

Numba's launcher flattens its arguments to a list of numbers: of an array meminfo, parent, items, bytes of an item, address, shape
and strides. ``cuda.core`` passes the bytes of each number as one parameter, as ``cuLaunchKernel`` does: integers have eight bytes,
which are truncated to the parameter's size.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from gpuperf_engine.errors import LaunchError

__all__ = ["pack", "raw_of"]


def pack(fields: Sequence[tuple[int, int]], arguments: Sequence[object], kernel: str = "") -> bytes:
    """The parameter buffer. ``fields``: offset and bytes of each parameter. Raises ``LaunchError``."""
    if len(fields) != len(arguments):
        raise LaunchError(f"kernel {kernel!r} has {len(fields)} parameters and was given {len(arguments)}")
    buffer = bytearray(max((offset + size for offset, size in fields), default=0))
    for (offset, size), argument in zip(fields, arguments):
        buffer[offset : offset + size] = raw_of(argument)[:size].ljust(size, b"\0")
    return bytes(buffer)


def raw_of(argument: Any) -> bytes:
    """The bytes of a number, NumPy scalar, ``ctypes`` value, or of what stands for an address. Raises ``LaunchError``."""
    if argument is None:
        return bytes(8)
    if isinstance(argument, bool):
        return bytes([argument])
    if isinstance(argument, int):
        return (argument % (1 << 64)).to_bytes(8, "little")
    if isinstance(argument, float):
        return struct.pack("<d", argument)
    if isinstance(argument, complex):
        return struct.pack("<dd", argument.real, argument.imag)
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
        return bytes(argument)
    if hasattr(argument, "tobytes") and hasattr(argument, "dtype"):
        return bytes(argument.tobytes())
    handle = getattr(argument, "handle", argument)
    try:
        return int(handle).to_bytes(8, "little")
    except (TypeError, ValueError):
        raise LaunchError(
            f"a {type(argument).__name__} cannot be a kernel argument", hint="numbers and arrays are"
        ) from None
