"""Launches of ``ElementwiseKernel`` as CuPy makes them, without a GPU. Imports CuPy.

CuPy decides types and writes the text; arrays on no GPU stand for the arguments there. Its steps between these (``_kernel.pyx``,
``ElementwiseKernel.__call__``) cannot be called without a device and are repeated here: broadcasting, merged axes, launch shape, and
the structures ``CArray`` and ``CIndexer`` of ``carray.cuh``.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from cupy._core import _carray, _kernel, _scalar, core
from cupy_backends.cuda.api.runtime import CUDARuntimeError

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.memory.arrays import DeviceArray

from .memory import ArrayStructure, MovedArrays

__all__ = ["ElementwiseLaunch", "prepare"]

# _ArgKind of _kernel.pxd
_NDARRAY, _INDEXER, _SCALAR = 1, 2, 3
_THREADS = 128
_MOST_BLOCKS = 0x7FFFFFFF
_MOST_32_BIT = 1 << 31
_ACCEPTED = "accepted: NumPy arrays, arrays of gpuperf, numbers"


@dataclass(frozen=True, slots=True)
class ElementwiseLaunch:
    """``text``: the CUDA C++ that CuPy compiles; ``arguments``: the bytes of each parameter."""

    text: str
    blocks: int
    threads: int
    arguments: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """An array as CuPy knows it, and the array of the device where it is."""

    view: Any
    array: DeviceArray | None

    def bytes(self) -> ArrayStructure:
        """Its ``CArray``."""
        view = self.view
        numbers = (view.data.ptr, view.size, *view.shape, *view.strides)
        return ArrayStructure(struct.pack(f"={len(numbers)}q", *numbers), self.array)


def prepare(
    kernel: Any, arguments: Sequence[object], keywords: Mapping[str, object], moved: MovedArrays
) -> ElementwiseLaunch | None:
    """What ``kernel(*arguments, **keywords)`` launches; nothing if there are no elements. Raises ``LaunchError``."""
    size, threads = _keywords(kernel, keywords)
    if len(arguments) != kernel.nargs:
        missing = ", ".join(parameter.name for parameter in kernel.out_params)
        raise LaunchError(
            f"{kernel.name!r} takes {kernel.nargs} arguments with its outputs, and was given {len(arguments)}",
            hint=f"give arrays for its outputs too ({missing}): the call returns what was counted",
        )
    placed = _place(kernel, arguments, moved)
    try:
        given, shape = _broadcast(kernel, placed, size)
        inputs, outputs = given[: kernel.nin], given[kernel.nin :]
        kinds, _, types = kernel._decide_params_type(
            tuple(value.view.dtype if isinstance(value, _Placed) else None for value in inputs),
            tuple(value.view.dtype for value in outputs if isinstance(value, _Placed)),
        )
        if not math.prod(shape):
            return None
        for value, kind in zip(inputs, kinds):
            if not isinstance(value, _Placed):
                value.apply_dtype(kind)
    except KeyError as error:
        raise LaunchError(
            f"{kernel.name}: no array has type {error}", hint="numbers decide no types"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise LaunchError(f"{kernel.name}: {error}", hint=_ACCEPTED) from None
    if kernel.reduce_dims:
        given, shape = _reduced(given, kernel.params, shape)
    count = math.prod(shape)
    indexer = (_INDEXER, _carray.Indexer, None, len(shape), True, count <= _MOST_32_BIT)
    infos = (*map(_info, given), _kernel._ArgInfo(*indexer))
    try:
        code = _kernel._get_elementwise_kernel_code(
            infos, types, kernel.params, kernel.operation, kernel.name, kernel.preamble, **kernel.kwargs
        )
    except CUDARuntimeError:  # it runs a kernel to learn the alignment of fields
        raise LaunchError(
            f"{kernel.name!r} has structures, and CuPy asks a GPU how they are laid out",
            hint="run the test with --gpuperf-cuda: there each launch is a case",
        ) from None
    text = "".join(f"#include <{header}>\n" for header in core._cupy_header_list) + code
    # the index is last: CuPy leaves it unset, as the kernel sets it first
    rest = (count, *shape, *[0] * len(shape))
    structures = [
        value.bytes() if isinstance(value, _Placed) else ctypes.string_at(value.ptr, value.descr.itemsize)
        for value in given
    ]
    blocks = min(_MOST_BLOCKS, -(-count // threads))
    return ElementwiseLaunch(
        text,
        blocks,
        min(threads, count),
        (*structures, struct.pack(f"={len(rest)}q", *rest)),
    )


def _keywords(kernel: Any, keywords: Mapping[str, object]) -> tuple[int | None, int]:
    left = dict(keywords)
    left.pop("stream", None)
    size, threads = left.pop("size", None), left.pop("block_size", _THREADS)
    if left:
        raise LaunchError(
            f"{kernel.name!r} takes no {', '.join(map(repr, left))}",
            hint="accepted: size, block_size, stream",
        )
    for name, value, least in (("size", size, 0), ("block_size", threads, 1)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if (value is not None or name == "block_size") and not (whole and int(value) >= least):  # type: ignore[call-overload]
            raise LaunchError(f"{name}={value!r} of {kernel.name!r}", hint=f"a whole number from {least}")
    return (None if size is None else int(size)), int(threads)  # type: ignore[call-overload]


def _place(kernel: Any, arguments: Sequence[object], moved: MovedArrays) -> list[Any]:
    """Arrays where the device has them, and CuPy's scalars."""
    names = [parameter.name for parameter in kernel.params]
    moved.take([(name, value) for name, value in zip(names, arguments) if isinstance(value, np.ndarray)])
    placed: list[Any] = []
    for number, (name, value) in enumerate(zip(names, arguments)):
        if isinstance(value, (np.ndarray, DeviceArray)):
            placed.append(_placed(value, moved))
            continue
        if number >= kernel.nin:
            raise LaunchError(
                f"output {name!r} of {kernel.name!r} is a {type(value).__name__}",
                hint="accepted: NumPy arrays, arrays of gpuperf",
            )
        try:
            placed.append(_scalar.CScalar(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise LaunchError(f"{name!r} of {kernel.name!r}: {error}", hint=_ACCEPTED) from None
    return placed


def _placed(value: Any, moved: MovedArrays) -> _Placed:
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
        return _Placed(cupy.ndarray(value.shape, value.dtype, pointer, strides), array)
    except (TypeError, ValueError) as error:
        raise LaunchError(f"an array of {value.dtype}: {error}", hint="CuPy has no such arrays") from None


def _broadcast(kernel: Any, placed: list[Any], size: int | None) -> tuple[list[Any], tuple[int, ...]]:
    """Inputs in the shape of the loop, and that shape (``_broadcast`` and ``_get_out_args_with_params`` of CuPy)."""
    whole = [
        number
        for number, value in enumerate(placed)
        if isinstance(value, _Placed) and not kernel.params[number].raw
    ]
    if size is not None:
        if whole:
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        return placed, (size,)
    if not whole:
        raise ValueError("Loop size is undecided.")
    views = cupy.broadcast_arrays(*(placed[number].view for number in whole))
    shape = tuple(views[0].shape)
    given = list(placed)
    for number, view in zip(whole, views):
        if number < kernel.nin:
            given[number] = _Placed(view, placed[number].array)
        elif placed[number].view.shape != shape:
            raise ValueError(
                f"Out shape is mismatched: {placed[number].view.shape}, and the loop has {shape}"
            )
    return given, shape


def _reduced(
    given: list[Any], parameters: Sequence[Any], shape: tuple[int, ...]
) -> tuple[list[Any], tuple[int, ...]]:
    """Arrays and loop with axes merged that lie behind one another in all arrays (``_reduce_dims`` of CuPy)."""
    numbers = [
        number
        for number, value in enumerate(given)
        if isinstance(value, _Placed) and not parameters[number].raw
    ]
    if len(shape) <= 1 or not numbers:
        return given, shape
    strided = [given[number].view for number in numbers if not given[number].view.flags.c_contiguous]
    if len(given) == 1:
        view = given[0].view.reduced_view()
        return [_Placed(view, given[0].array)], tuple(view.shape)
    if not strided:
        lengths, axes = [math.prod(shape)], None
    elif len(shape) == 2:
        return given, shape
    else:
        lengths, axes = _merged(strided, shape)
        if len(axes) == len(shape):
            return given, shape
    reduced = list(given)
    for number in numbers:
        view = given[number].view
        strides = [view.dtype.itemsize] if axes is None else [view.strides[axis] for axis in axes]
        merged = cupy.ndarray(tuple(lengths), view.dtype, view.data, tuple(strides))
        reduced[number] = _Placed(merged, given[number].array)
    return reduced, tuple(lengths)


def _merged(strided: Sequence[Any], shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The lengths of merged axes, and the innermost axis of each."""
    lengths, axes, last = list(shape), [], -1
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        if last >= 0:
            if all(view.strides[axis] * lengths[axis] == view.strides[last] for view in strided):
                lengths[axis] *= lengths[last]
            else:
                axes.append(last)
        last = axis
    if last >= 0:
        axes.append(last)
    return [lengths[axis] for axis in axes], axes


def _info(value: Any) -> Any:
    """What CuPy's text depends on of an argument."""
    if isinstance(value, _Placed):
        view = value.view
        given = (_NDARRAY, type(view), view.dtype, view.ndim, view.flags.c_contiguous, view._index_32_bits)
    else:
        given = (_SCALAR, _scalar.CScalar, value.descr, 0, True, True)
    return _kernel._ArgInfo(*given)
