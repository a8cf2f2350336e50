"""Converts the arguments of a Triton kernel to the bytes of its parameter buffer.

Types are those of Triton's signatures: ``i32``, ``*fp16``, ``constexpr``, nested tuples, ``nvTmaDesc``. Values are converted as by
Triton's own launcher (``backends/nvidia/driver.c`` of Triton: ``extractI32`` and the like): integers are truncated to the size of the
parameter, floating-point numbers are rounded to its type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Packer", "argument_names", "bytes_of", "named_pointers", "pairs", "pointer_of"]

_INTEGERS = {"i1": 1, "u1": 1, **{f"{sign}{8 * size}": size for sign in "iu" for size in (1, 2, 4, 8)}}
_FLOATS = {"fp16": "e", "fp32": "f", "f32": "f", "fp64": "d"}
#: codes of ``struct`` for unsigned integers by size
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
Signature: TypeAlias = "Sequence[str | Signature]"
#: size and alignment of a ``CUtensorMap`` in bytes (cuda.h)
_TENSOR_MAP, _TENSOR_MAP_ALIGNMENT = 128, 64


def pairs(signature: Signature, arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Type and value of each parameter, with tuples flattened and without constants. As Triton's launcher never reads constants, the
    last ones may be missing (``extractArgs`` in ``driver.c``); FlagGems leaves them out. Raises ``TypeError`` if they do not match."""
    missing = signature[len(arguments) :]
    if len(arguments) > len(signature) or any(type_ != "constexpr" for type_ in missing):
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


class Packer:
    """Makes parameter buffers from arguments of one signature; ``addresses``: how many to append (Triton's scratch memory). Raises
    ``TypeError`` for an unknown type."""

    def __init__(self, signature: Signature, addresses: int = 0) -> None:
        self._signature = signature
        nested = any(not isinstance(type_, str) for type_ in signature)
        #: the positions of the arguments that are parameters; ``None`` if they have to be searched in tuples
        self._places = None if nested else [at for at, item in enumerate(signature) if item != "constexpr"]
        self.types = tuple(_flat(signature))
        self._forms = [_form(type_) for type_ in self.types]
        self._convert = [convert for *_, convert in self._forms]
        text, size = "<", 0
        for code, alignment, _ in (*self._forms, *[_form("*")] * addresses):
            text += f"{-size % alignment}x{code}"
            size = struct.calcsize(text)
        self._struct = struct.Struct(text)

    def values(self, arguments: Sequence[Any]) -> list[Any]:
        """The values of the parameters. Raises ``TypeError`` if the arguments do not match the signature."""
        if self._places is None or len(arguments) != len(self._signature):
            return [value for _, value in pairs(self._signature, arguments)]
        return [arguments[at] for at in self._places]

    def pack(self, values: Sequence[Any], *addresses: int) -> bytes:
        """The parameter buffer. Raises ``TypeError`` for values that are not of their types."""
        converted = [convert(value) for convert, value in zip(self._convert, values)]
        try:
            return self._struct.pack(*converted, *addresses)
        except OverflowError:  # out of range: infinity, as a conversion on the host returns
            for at, (code, *_) in enumerate(self._forms):
                if code in _FLOATS.values():
                    (converted[at],) = struct.unpack(f"<{code}", _rounded(f"<{code}", converted[at]))
            return self._struct.pack(*converted, *addresses)


def _flat(signature: Signature) -> Iterator[str]:
    """The types of the parameters."""
    for type_ in signature:
        if not isinstance(type_, str):
            yield from _flat(type_)
        elif type_ != "constexpr":
            yield type_


def _form(type_: str) -> tuple[str, int, Callable[[Any], Any]]:
    """The code of ``struct`` for a type, its alignment, and the conversion of values. Raises ``TypeError`` for an unknown type."""
    if type_.startswith("*"):
        return "Q", 8, pointer_of
    if type_ in _INTEGERS:
        size = _INTEGERS[type_]
        most = (1 << 8 * size) - 1
        return _UNSIGNED[size], size, lambda value: int(value) & most
    if type_ == "bf16":
        return "H", 2, _bfloat16
    if type_ in _FLOATS:
        return _FLOATS[type_], struct.calcsize(_FLOATS[type_]), float
    if type_ == "nvTmaDesc":
        return f"{_TENSOR_MAP}s", _TENSOR_MAP_ALIGNMENT, _tensor_map
    raise TypeError(f"parameters of type {type_!r} are not known")


def bytes_of(type_: str, value: Any) -> bytes:
    """The bytes of a value of a type. Raises ``TypeError``."""
    return Packer((type_,)).pack((value,))


def _tensor_map(value: Any) -> bytes:
    raw = bytes(value)
    if len(raw) != _TENSOR_MAP:
        raise TypeError(f"{len(raw)} bytes for a tensor map of {_TENSOR_MAP}")
    return raw


def _rounded(form: str, value: float) -> bytes:
    try:
        return struct.pack(form, value)
    except OverflowError:  # out of range: infinity, as a conversion on the host returns
        return struct.pack(form, float("inf") if value > 0 else float("-inf"))


def _bfloat16(value: Any) -> int:
    """The bits after rounding to nearest even, from single precision."""
    number = float(value)
    (bits,) = struct.unpack("<I", _rounded("<f", number))
    if number != number:
        return int(bits >> 16 | 0x40)
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
