"""Launches of ``ReductionKernel`` as CuPy makes them, without a GPU. Imports CuPy.

CuPy decides types, axes and whether CUB reduces, and writes the text. Its steps between these (``_reduction.pyx``,
``_AbstractReductionKernel._call``; ``_cub_reduction.pyx``, ``_try_to_call_cub_reduction``) cannot be called without a device and are
repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import cupy
import numpy as np
from cupy._core import _accelerator, _cub_reduction, _kernel, _reduction, _scalar
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
    written,
)
from .elementwise import merge_axes
from .memory import ArrayStructure, MovedArrays
from .options import options

__all__ = ["prepare"]

# _ArgKind of _kernel.pxd
_POINTER = 4
_MOST_32_BIT = 0x7FFFFFFF
# of _get_cub_block_specs
_CUB_ITEMS = 4
_CUB_THREADS = (32, 512)
#: bytes of a value of the first pass of CUB
_CUB_VALUE = 32


def prepare(
    kernel: Any, arguments: Sequence[object], keywords: Mapping[str, object], moved: MovedArrays
) -> list[CupyLaunch]:
    """What ``kernel(*arguments, **keywords)`` launches: nothing if there are no results, two kernels where CUB reduces whole arrays.
    Raises ``LaunchError``."""
    keywords = taken(kernel.name, keywords, ("axis", "keepdims", "out"))
    out = keywords.get("out")
    if out is not None:
        if kernel.nout != 1:
            raise LaunchError(
                f"{kernel.name!r} has {kernel.nout} outputs, and was given out", hint="give all by position"
            )
        arguments = (*arguments, out)
    if len(arguments) != kernel.nargs:
        missing = ", ".join(parameter.name for parameter in kernel.out_params)
        raise LaunchError(
            f"{kernel.name!r} takes {kernel.nargs} arguments with its outputs, and was given {len(arguments)}",
            hint=f"give arrays for its outputs too ({missing}): the call returns what was counted",
        )
    parameters = (*kernel.in_params, *kernel.out_params)
    placed = place(kernel.name, [parameter.name for parameter in parameters], arguments, kernel.nin, moved)
    try:
        return _prepare(kernel, placed, keywords.get("axis"), bool(keywords.get("keepdims", False)), moved)
    except KeyError as error:
        raise LaunchError(
            f"{kernel.name}: no array has type {error}", hint="numbers decide no types"
        ) from None
    except CUDARuntimeError:
        raise LaunchError(
            f"{kernel.name!r} has structures, and CuPy asks a GPU how they are laid out",
            hint="run the test with --gpuperf-cuda: there each launch is a case",
        ) from None
    except (TypeError, ValueError, ArithmeticError, NotImplementedError) as error:
        raise LaunchError(f"{kernel.name}: {error}", hint=ACCEPTED) from None


def _prepare(
    kernel: Any, placed: list[Any], axis: object, keepdims: bool, moved: MovedArrays
) -> list[CupyLaunch]:
    inputs, shape = broadcast(placed[: kernel.nin], kernel.in_params)
    outputs = placed[kernel.nin :]
    kinds, _, types = _kernel._decide_params_type(
        kernel.in_params,
        kernel.out_params,
        tuple(value.view.dtype.type if isinstance(value, Placed) else None for value in inputs),
        tuple(value.view.dtype.type for value in outputs),
    )
    try:
        reduced, kept = _reduction._get_axis(axis, len(shape))
    except (TypeError, ValueError) as error:
        raise LaunchError(
            f"{kernel.name}: axis={axis!r} of {len(shape)} axes: {error}",
            hint="the number of an axis, or a tuple of such",
        ) from None
    # one array whose memory is not in order of its axes is read in order of its memory
    first = inputs[0]
    if len(inputs) == 1 and len(kept) <= 1 and not first.view.flags.c_contiguous:
        reduced, kept = (
            tuple(sorted(axes, key=lambda number: -abs(first.view.strides[number])))
            for axes in (reduced, kept)
        )
    result = tuple(_reduction._get_out_shape(shape, reduced, kept, keepdims))
    for value, parameter in zip(outputs, kernel.out_params):
        if not parameter.raw and value.view.shape != result:
            raise ValueError(f"Out shape is mismatched: {value.view.shape}, and the results have {result}")
    if not outputs[0].view.size:
        return []
    if not kernel.identity and 0 in shape:
        raise ValueError(f"zero-size array to reduction operation {kernel.name} which has no identity")
    long = math.prod(shape) / math.prod(result) > _MOST_32_BIT
    types = _kernel._TypeMap((*types._pairs, ("IndexT", "int64" if long else "int32")))
    for value, kind in zip(inputs, kinds):
        if not isinstance(value, Placed):
            value.apply_dtype(kind)
    if _accelerator.ACCELERATOR_CUB in _accelerator.get_reduction_accelerators():
        views = [
            [value.view if isinstance(value, Placed) else value for value in values]
            for values in (inputs, outputs)
        ]
        fits = _cub_reduction._can_use_cub_block_reduction(*views, reduced, kept)
        if fits is not None:
            return _by_cub(kernel, inputs[0], outputs[0], types, fits, moved)
    return [_plain(kernel, inputs, outputs, types, shape, result, (*reduced, *kept))]


def _plain(
    kernel: Any,
    inputs: list[Any],
    outputs: list[Any],
    types: Any,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    order: tuple[int, ...],
) -> CupyLaunch:
    """The launch of CuPy's own kernel, which reads axes in ``order``."""
    if order != tuple(range(len(order))):
        if any(parameter.raw for parameter in kernel.in_params):
            raise NotImplementedError("raw arrays, with axes in another order")
        inputs = [
            value.of(value.view.transpose(order)) if isinstance(value, Placed) else value for value in inputs
        ]
        shape = tuple(shape[axis] for axis in order)
    if kernel.reduce_dims:
        inputs, shape = merge_axes(inputs, kernel.in_params, shape)
        outputs, result = merge_axes(outputs, kernel.out_params, result)
    contiguous = max(
        [
            _contiguous(value.view, result, len(shape))
            for value, parameter in zip(inputs, kernel.in_params)
            if isinstance(value, Placed) and not parameter.raw
        ],
        default=1,
    )
    threads, stride, blocks = _reduction._get_block_specs(math.prod(shape), math.prod(result), contiguous, -1)
    strides = _scalar.CScalar(np.int32(stride))
    given = [*inputs, *outputs]
    infos = (*map(info, given), indexer_info(shape), indexer_info(result), info(strides))
    code = _reduction._ReductionKernel_get_cached_function_code(
        kernel.nin,
        kernel.nout,
        kernel._params,
        infos,
        types,
        kernel.name,
        threads,
        kernel.reduce_type,
        kernel.identity,
        kernel.map_expr,
        kernel.reduce_expr,
        kernel.post_map_expr,
        kernel.preamble,
        kernel.options,
    )
    return CupyLaunch(
        with_headers(code),
        options(kernel.options),
        kernel.name,
        (blocks, 1, 1),
        (threads, 1, 1),
        (*map(structure, given), indexer(shape), indexer(result), structure(strides)),
    )


def _contiguous(view: Any, result: tuple[int, ...], axes: int) -> int:
    """How many results in turn read elements that lie behind one another (``_get_contiguous_size`` of CuPy)."""
    size = 1
    for number in range(len(result)):
        if view.strides[axes - number - 1] != size * view.dtype.itemsize:
            break
        size *= result[len(result) - number - 1]
    return size


def _by_cub(
    kernel: Any, read: Placed, result: Placed, types: Any, fits: tuple[Any, int, bool], moved: MovedArrays
) -> list[CupyLaunch]:
    """The launches with CUB's block reduction: one block for each result, or two kernels for a single one."""
    _, length, whole = fits
    _check_order(kernel, read.view, result.view)
    threads = min(max(1 << (-(-length // _CUB_ITEMS) - 1).bit_length(), _CUB_THREADS[0]), _CUB_THREADS[1])
    wide = length > _MOST_32_BIT
    kind = "uint64" if wide else "int32"
    parameters = (
        *kernel._params[:2],
        *_kernel._get_param_info(f"{kind} _segment_size", True),
        *_kernel._get_param_info(f"{kind} _array_size", True),
    )
    types = _kernel._TypeMap((*types._pairs, ("sizeT", kind)))
    before, after = kernel.map_expr, kernel.post_map_expr
    mean = "mean" in kernel.name
    if mean and not whole:
        after = after.replace("_in_ind.size()", "_segment_size").replace("_out_ind.size()", "1.0")
    old_input, old_output = parameters[0].name, parameters[1].name
    if (old_input, old_output) != ("in0", "out0"):
        parameters = (
            *_kernel._get_param_info("T in0", True),
            *_kernel._get_param_info("T out0", False),
            *parameters[2:],
        )
        before, after = before.replace(old_input, "in0"), after.replace(old_output, "out0")
        raw = (("type_in0_raw", read.view.dtype.type), ("type_out0_raw", result.view.dtype.type))
        types = _kernel._TypeMap((*types._pairs, *raw))

    def launch(
        part: str,
        blocks: int,
        source: tuple[ArrayStructure, Any],
        target: tuple[ArrayStructure, Any],
        sizes: tuple[int, int],
        expressions: tuple[str, str],
        more: tuple[str, ...] = (),
    ) -> CupyLaunch:
        scalars = [_scalar.CScalar(np.int64(size) if wide else np.int32(size)) for size in sizes]
        name = f"{kernel.name}{part}"
        text, flags = written(
            partial(
                _cub_reduction._SimpleCubReductionKernel_get_cached_function.__wrapped__,
                expressions[0],
                kernel.reduce_expr,
                expressions[1],
                kernel.reduce_type,
                parameters,
                (source[1], target[1], *map(info, scalars)),
                types,
                name,
                threads,
                kernel.identity,
                kernel.preamble,
                more,
                _CUB_ITEMS,
            )
        )
        entry = name.replace("cupy_", "cupy_cub_").replace("cupyx_", "cupyx_cub_")
        return CupyLaunch(
            text,
            flags,
            entry,
            (blocks, 1, 1),
            (threads, 1, 1),
            (source[0], target[0], *map(structure, scalars)),
            part=part,
        )

    whence, whither = ((value.pointer(), info(value)) for value in (read, result))
    if not whole:
        return [launch("", result.view.size, whence, whither, (length, 0), (before, after))]
    share = min(length, threads * _CUB_ITEMS)
    blocks = -(-length // share)
    scratch = np.empty(blocks * _CUB_VALUE, np.uint8)
    between = (
        moved.scratch(scratch, "partial"),
        _kernel._ArgInfo(_POINTER, cupy.cuda.MemoryPointer, None, 0, True, True),
    )
    first = last = after
    if mean:
        first = after.replace("_in_ind.size()", "1.0").replace("_out_ind.size()", "1.0")
        last = after.replace("_in_ind.size()", "_array_size").replace("_out_ind.size()", "1.0")
    return [
        launch("_pass1", blocks, whence, between, (share, length), (before, first), ("-DFIRST_PASS=1",)),
        launch("_pass2", 1, between, whither, (blocks, length), ("in0", last), ("-DSECOND_PASS=1",)),
    ]


def _check_order(kernel: Any, read: Any, result: Any) -> None:
    """Raises ``LaunchError`` where CuPy changes strides of the result, or copies the input first."""
    if not read.flags.f_contiguous:
        return
    if not result.flags.f_contiguous:
        raise LaunchError(
            f"{kernel.name}: of an array in Fortran's order CuPy writes results in that order, whatever the output's is",
            hint="give it an output in that order: np.empty(shape, order='F')",
        )
    if read.ndim > 1 and any(name in kernel.name for name in ("argmax", "argmin")) and result.size == 1:
        raise LaunchError(
            f"{kernel.name}: CuPy copies an array in Fortran's order first, since the name has argmax or argmin",
            hint="give it a copy in C's order",
        )
