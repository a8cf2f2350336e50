"""Launches of ``ElementwiseKernel`` as CuPy makes them, without a GPU. Imports CuPy.

CuPy decides types and writes the text. Its steps between these (``_kernel.pyx``, ``ElementwiseKernel.__call__``) cannot be called
without a device and are repeated here: broadcasting, merged axes, and the launch shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np
from cupy._core import _kernel
from cupy_backends.cuda.api.runtime import CUDARuntimeError

from gpuperf_engine.errors import LaunchError

from .arguments import (
    ACCEPTED,
    CupyLaunch,
    Placed,
    broadcast,
    indexer,
    indexer_info,
    info,
    place,
    structure,
    taken,
    with_headers,
)
from .memory import MovedArrays
from .options import options

__all__ = ["merge_axes", "prepare"]

_THREADS = 128
_MOST_BLOCKS = 0x7FFFFFFF


def prepare(
    kernel: Any, arguments: Sequence[object], keywords: Mapping[str, object], moved: MovedArrays
) -> list[CupyLaunch]:
    """What ``kernel(*arguments, **keywords)`` launches; nothing if there are no elements. Raises ``LaunchError``."""
    size, threads = _keywords(kernel, keywords)
    if len(arguments) != kernel.nargs:
        missing = ", ".join(parameter.name for parameter in kernel.out_params)
        raise LaunchError(
            f"{kernel.name!r} takes {kernel.nargs} arguments with its outputs, and was given {len(arguments)}",
            hint=f"give arrays for its outputs too ({missing}): the call returns what was counted",
        )
    names = [parameter.name for parameter in kernel.params]
    placed = place(kernel.name, names, arguments, kernel.nin, moved)
    try:
        given, shape = _broadcast(kernel, placed, size)
        inputs, outputs = given[: kernel.nin], given[kernel.nin :]
        kinds, _, types = kernel._decide_params_type(
            tuple(value.view.dtype if isinstance(value, Placed) else None for value in inputs),
            tuple(value.view.dtype for value in outputs if isinstance(value, Placed)),
        )
        if not math.prod(shape):
            return []
        for value, kind in zip(inputs, kinds):
            if not isinstance(value, Placed):
                value.apply_dtype(kind)
    except KeyError as error:
        raise LaunchError(
            f"{kernel.name}: no array has type {error}", hint="numbers decide no types"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise LaunchError(f"{kernel.name}: {error}", hint=ACCEPTED) from None
    if kernel.reduce_dims:
        given, shape = merge_axes(given, kernel.params, shape)
    count = math.prod(shape)
    try:
        code = _kernel._get_elementwise_kernel_code(
            (*map(info, given), indexer_info(shape)),
            types,
            kernel.params,
            kernel.operation,
            kernel.name,
            kernel.preamble,
            **kernel.kwargs,
        )
    except CUDARuntimeError:  # it runs a kernel to learn the alignment of fields
        raise LaunchError(
            f"{kernel.name!r} has structures, and CuPy asks a GPU how they are laid out",
            hint="run the test with --gpuperf-cuda: there each launch is a case",
        ) from None
    blocks = min(_MOST_BLOCKS, -(-count // threads))
    return [
        CupyLaunch(
            with_headers(code),
            options(kernel.kwargs.get("options", ())),
            kernel.name,
            (blocks, 1, 1),
            (min(threads, count), 1, 1),
            (*map(structure, given), indexer(shape)),
        )
    ]


def _keywords(kernel: Any, keywords: Mapping[str, object]) -> tuple[int | None, int]:
    left = taken(kernel.name, keywords, ("size", "block_size"))
    size, threads = left.get("size"), left.get("block_size", _THREADS)
    for name, value, least in (("size", size, 0), ("block_size", threads, 1)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if (value is not None or name == "block_size") and not (whole and int(value) >= least):  # type: ignore[call-overload]
            raise LaunchError(f"{name}={value!r} of {kernel.name!r}", hint=f"a whole number from {least}")
    return (None if size is None else int(size)), int(threads)  # type: ignore[call-overload]


def _broadcast(kernel: Any, placed: list[Any], size: int | None) -> tuple[list[Any], tuple[int, ...]]:
    """Inputs in the shape of the loop, and that shape (``_broadcast`` and ``_get_out_args_with_params`` of CuPy)."""
    if size is not None:
        if any(
            isinstance(value, Placed) and not parameter.raw for value, parameter in zip(placed, kernel.params)
        ):
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        return placed, (size,)
    given, shape = broadcast(placed, kernel.params)
    for number in range(kernel.nin, len(placed)):
        if not kernel.params[number].raw and placed[number].view.shape != shape:
            raise ValueError(
                f"Out shape is mismatched: {placed[number].view.shape}, and the loop has {shape}"
            )
        given[number] = placed[number]
    return given, shape


def merge_axes(
    given: list[Any], parameters: Sequence[Any], shape: tuple[int, ...]
) -> tuple[list[Any], tuple[int, ...]]:
    """Arrays and loop with axes merged that lie behind one another in all arrays (``_reduce_dims`` of CuPy)."""
    numbers = [
        number
        for number, value in enumerate(given)
        if isinstance(value, Placed) and not parameters[number].raw
    ]
    if len(shape) <= 1 or not numbers:
        return given, shape
    strided = [given[number].view for number in numbers if not given[number].view.flags.c_contiguous]
    if len(given) == 1:
        view = given[0].view.reduced_view()
        return [Placed(view, given[0].array)], tuple(view.shape)
    if not strided:
        lengths, axes = [math.prod(shape)], None
    elif len(shape) == 2:
        return given, shape
    else:
        lengths, axes = _merged(strided, shape)
        if len(axes) == len(shape):
            return given, shape
    made = list(given)
    for number in numbers:
        view = given[number].view
        strides = [view.dtype.itemsize] if axes is None else [view.strides[axis] for axis in axes]
        merged = cupy.ndarray(tuple(lengths), view.dtype, view.data, tuple(strides))
        made[number] = Placed(merged, given[number].array)
    return made, tuple(lengths)


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
