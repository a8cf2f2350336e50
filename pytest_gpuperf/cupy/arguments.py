"""Arguments of CuPy's kernels, without a GPU. Imports CuPy.

Arrays on no GPU stand for the arguments where CuPy decides types and writes text. Kernels get the structures ``CArray`` and
``CIndexer`` of ``carray.cuh``.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from cupy._core import _carray, _kernel, _scalar, core
from cupy.cuda import compiler

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.memory.arrays import DeviceArray

from .memory import ArrayStructure, MovedArrays

__all__ = [
    "ACCEPTED",
    "CupyLaunch",
    "Placed",
    "broadcast",
    "indexer",
    "indexer_info",
    "info",
    "place",
    "place_array",
    "structure",
    "taken",
    "with_headers",
    "written",
]

ACCEPTED = "accepted: NumPy arrays, arrays of gpuperf, numbers"

# _ArgKind of _kernel.pxd
_NDARRAY, _INDEXER, _SCALAR = 1, 2, 3
_MOST_32_BIT = 1 << 31


@dataclass(frozen=True, slots=True)
class CupyLaunch:
    """``text`` and ``options``: the CUDA C++ that CuPy compiles, and how; ``name``: of the kernel; ``arguments``: the bytes of each
    parameter. ``part`` tells the kernels of one call apart."""

    text: str
    options: list[str]
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[bytes, ...]
    shared_bytes: int = 0
    cooperative: bool = False
    part: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """An array as CuPy knows it, and the array of the device where it is."""

    view: Any
    array: DeviceArray | None

    def bytes(self) -> ArrayStructure:
        """Its ``CArray``."""
        view = self.view
        numbers = (view.data.ptr, view.size, *view.shape, *view.strides)
        return ArrayStructure(struct.pack(f"={len(numbers)}q", *numbers), self.array)

    def pointer(self) -> ArrayStructure:
        """Its address."""
        return ArrayStructure(struct.pack("=q", self.view.data.ptr), self.array)

    def of(self, view: Any) -> Placed:
        """A view of it."""
        return Placed(view, self.array)


def taken(name: str, keywords: Mapping[str, object], accepted: Sequence[str]) -> dict[str, object]:
    """The keywords of a call without its stream. Raises ``LaunchError`` for one that is not accepted."""
    left = {key: value for key, value in keywords.items() if key != "stream"}
    unknown = [repr(key) for key in left if key not in accepted]
    if unknown:
        raise LaunchError(
            f"{name!r} takes no {', '.join(unknown)}", hint=f"accepted: {', '.join((*accepted, 'stream'))}"
        )
    return left


def place(
    kernel: str, names: Sequence[str], arguments: Sequence[object], inputs: int, moved: MovedArrays
) -> list[Any]:
    """Arrays where the device has them, and CuPy's scalars for numbers among the first ``inputs`` arguments. Raises
    ``LaunchError``."""
    moved.take([(name, value) for name, value in zip(names, arguments) if isinstance(value, np.ndarray)])
    placed: list[Any] = []
    for number, (name, value) in enumerate(zip(names, arguments)):
        if isinstance(value, (np.ndarray, DeviceArray)):
            placed.append(place_array(value, moved))
            continue
        if number >= inputs:
            raise LaunchError(
                f"output {name!r} of {kernel!r} is a {type(value).__name__}",
                hint="accepted: NumPy arrays, arrays of gpuperf",
            )
        try:
            placed.append(_scalar.CScalar(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise LaunchError(f"{name!r} of {kernel!r}: {error}", hint=ACCEPTED) from None
    return placed


def place_array(value: Any, moved: MovedArrays) -> Placed:
    """A NumPy array that was taken, or an array of the device. Raises ``LaunchError`` for a type that CuPy does not have."""
    if isinstance(value, DeviceArray):
        array, address, strides = value, value.address, None
    elif value.size:
        array, before = moved.place(value)
        address, strides = array.address + before, value.strides
    else:
        array, address, strides = None, 0, None
    # CuPy frees nothing there, and asks no driver about it as the number of the device is given
    memory = cupy.cuda.UnownedMemory(address, value.nbytes, None, 0)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    try:
        return Placed(cupy.ndarray(value.shape, value.dtype, pointer, strides), array)
    except (TypeError, ValueError) as error:
        raise LaunchError(f"an array of {value.dtype}: {error}", hint="CuPy has no such arrays") from None


def broadcast(placed: list[Any], parameters: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Arrays that are not raw in one shape, and that shape (``_broadcast`` of CuPy). Raises ``ValueError``."""
    whole = [
        number
        for number, value in enumerate(placed)
        if isinstance(value, Placed) and not parameters[number].raw
    ]
    if not whole:
        raise ValueError("Loop size is undecided.")
    views = cupy.broadcast_arrays(*(placed[number].view for number in whole))
    given = list(placed)
    for number, view in zip(whole, views):
        given[number] = placed[number].of(view)
    return given, tuple(views[0].shape)


def structure(value: Any) -> bytes:
    """The bytes of a parameter."""
    if isinstance(value, Placed):
        return value.bytes()
    return ctypes.string_at(value.ptr, value.descr.itemsize)


def indexer(shape: Sequence[int]) -> bytes:
    """A ``CIndexer``. The index is last: CuPy leaves it unset, as the kernel sets it first."""
    numbers = (math.prod(shape), *shape, *[0] * len(shape))
    return struct.pack(f"={len(numbers)}q", *numbers)


def info(value: Any) -> Any:
    """What CuPy's text depends on of an argument."""
    if isinstance(value, Placed):
        view = value.view
        given = (_NDARRAY, type(view), view.dtype, view.ndim, view.flags.c_contiguous, view._index_32_bits)
    else:
        given = (_SCALAR, _scalar.CScalar, value.descr, 0, True, True)
    return _kernel._ArgInfo(*given)


def indexer_info(shape: Sequence[int]) -> Any:
    """What CuPy's text depends on of an index."""
    small = math.prod(shape) <= _MOST_32_BIT
    return _kernel._ArgInfo(_INDEXER, _carray.Indexer, None, len(shape), True, small)


def with_headers(code: str) -> str:
    """The text that CuPy compiles of what it has written for a kernel."""
    return "".join(f"#include <{header}>\n" for header in core._cupy_header_list) + code


class _Written(Exception):
    pass


def written(create: Callable[[], object]) -> tuple[str, list[str]]:
    """The text and the options that CuPy would compile in ``create``: it goes no further, since it loads what it compiles."""
    compile_module = compiler._compile_module_with_cache

    def stop(source: str, options: tuple[str, ...] = (), **rest: object) -> None:
        raise _Written(source, [*options, "-ftz=true"])

    compiler._compile_module_with_cache = stop
    try:
        create()
    except _Written as caught:
        text, options = caught.args
        return text, options
    finally:
        compiler._compile_module_with_cache = compile_module
    raise AssertionError("nothing was compiled")
