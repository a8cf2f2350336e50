"""Converts the arguments of a Triton kernel to the bytes of its parameter buffer.

Types are those of Triton's signatures: ``i32``, ``*fp16``, ``constexpr``, nested tuples, ``nvTmaDesc``. Values are converted as by
Triton's own launcher (``backends/nvidia/driver.c`` of Triton: ``extractI32`` and the like): integers are truncated to the size of the
parameter, floating-point numbers are rounded to its type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["argument_names", "bytes_of", "named_pointers", "pack", "pairs", "pointer_of"]

_INTEGERS = {"i1": 1, "u1": 1, **{f"{sign}{8 * size}": size for sign in "iu" for size in (1, 2, 4, 8)}}
_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
Signature: TypeAlias = "Sequence[str | Signature]"
#: size and alignment of a ``CUtensorMap`` in bytes (cuda.h)
_TENSOR_MAP, _TENSOR_MAP_ALIGNMENT = 128, 64


def pairs(signature: Signature, arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Type and value of each parameter, with tuples flattened and without constants. Raises ``TypeError`` if they do not match."""
    if len(signature) != len(arguments):
        raise TypeError(f"{len(arguments)} arguments for the signature {tuple(signature)!r}")
    for type_, value in zip(signature, arguments):
        if not isinstance(type_, str):
            yield from pairs(type_, value)
        elif type_ != "constexpr":
            yield type_, value


def pointer_of(value: object) -> int:
    """The address for a pointer argument: ``None``, an integer, or anything with ``data_ptr()``. Raises ``TypeError``."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value % (1 << 64)
    data_ptr = getattr(value, "data_ptr", None)
    if data_ptr is not None:
        return int(data_ptr())
    address = getattr(value, "__array_interface__", None)
    if address is not None:
        return int(address["data"][0])
    raise TypeError(
        f"a {type(value).__name__} is not a pointer; accepted: tensors, arrays, addresses and None"
    )


def argument_names(signature: Mapping[str | int, Signature | str], function: object) -> tuple[str, ...]:
    """The names of a kernel's parameters: those of Triton's signatures, or those of the function by position."""
    names = list(getattr(function, "arg_names", ()))
    return tuple(
        key if isinstance(key, str) else names[key] if key < len(names) else f"argument {key}"
        for key in signature
    )


def named_pointers(names: Sequence[str], signature: Signature, arguments: Sequence[Any]) -> dict[int, str]:
    """The first parameter name for each pointer argument, by its address."""
    named: dict[int, str] = {}
    for name, type_, value in zip(names, signature, arguments) if len(names) == len(signature) else ():
        for number, (kind, item) in enumerate(pairs((type_,), (value,))):
            if kind.startswith("*") and item is not None:
                several = isinstance(type_, (tuple, list))
                named.setdefault(pointer_of(item), f"{name}[{number}]" if several else name)
    return named


def pack(signature: Signature, arguments: Sequence[Any], more: Sequence[int] = ()) -> bytes:
    """The parameter buffer; ``more``: addresses to append after the arguments (Triton's scratch memory). Raises ``TypeError``."""
    buffer = bytearray()
    for type_, value in pairs(signature, arguments):
        raw, alignment = bytes_of(type_, value)
        buffer += bytes(-len(buffer) % alignment) + raw
    for address in more:
        buffer += bytes(-len(buffer) % 8) + address.to_bytes(8, "little")
    return bytes(buffer)


def bytes_of(type_: str, value: Any) -> tuple[bytes, int]:
    """The bytes of a value, and their alignment. Raises ``TypeError`` for an unknown type."""
    if type_.startswith("*"):
        return pointer_of(value).to_bytes(8, "little"), 8
    if type_ in _INTEGERS:
        size = _INTEGERS[type_]
        return (int(value) % (1 << 8 * size)).to_bytes(size, "little"), size
    if type_ == "bf16":
        return _bfloat16(float(value)), 2
    if type_ in _FLOATS:
        return _rounded(_FLOATS[type_], float(value)), struct.calcsize(_FLOATS[type_])
    if type_ == "nvTmaDesc":
        raw = bytes(value)
        if len(raw) != _TENSOR_MAP:
            raise TypeError(f"{len(raw)} bytes for a tensor map of {_TENSOR_MAP}")
        return raw, _TENSOR_MAP_ALIGNMENT
    raise TypeError(f"parameters of type {type_!r} are not known")


def _rounded(form: str, value: float) -> bytes:
    try:
        return struct.pack(form, value)
    except OverflowError:  # out of range: infinity, as a conversion on the host returns
        return struct.pack(form, float("inf") if value > 0 else float("-inf"))


def _bfloat16(value: float) -> bytes:
    """Round to nearest even, from single precision."""
    (bits,) = struct.unpack("<I", _rounded("<f", value))
    if value != value:
        return int(bits >> 16 | 0x40).to_bytes(2, "little")
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).to_bytes(2, "little")
