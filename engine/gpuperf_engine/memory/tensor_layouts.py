"""Descriptions of tensors in Python as fields of a tensor map, checked as the CUDA driver checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from ..errors import LaunchError
from ..isa.tensor_maps import ATOMS, ELEMENTS, FILLS, INTERLEAVES, SWIZZLES, Element
from .arrays import DeviceArray, as_dtype
from .tensor_maps import Layout

__all__ = ["check_inner", "described", "five", "whole", "with_options"]

#: the driver's names of NumPy's kinds and widths; types that NumPy lacks are unsigned integers
_OF_DTYPE = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "int32": "INT32", "uint64": "UINT64", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
}  # fmt: skip
_OF_WIDTH = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
_NUMBERS = {element.driver: number for number, element in enumerate(ELEMENTS)}
#: padded types → accepted swizzles, with their atomicities
_PADDED = {
    "16U4_ALIGN16B": ("none 16B", "128B 16B", "128B 32B"),
    "16U6_ALIGN16B": ("none 16B", "128B 16B", "128B 32B", "128B 64B"),
}


def whole(values: object, rank: int, what: str, low: int, high: int) -> tuple[int, ...]:
    """So many integers from ``low`` to ``high``. Raises ``LaunchError``."""
    items = values if isinstance(values, (tuple, list)) else (values,)
    if len(items) != rank or not all(isinstance(item, (int, np.integer)) for item in items):
        raise LaunchError(
            f"TensorMap: {what} is {values!r}", hint=f"accepted: {rank} integers, one for each axis"
        )
    for item in items:
        if not low <= item <= high:
            raise LaunchError(f"TensorMap: {what} has {int(item):,}", hint=f"accepted: {low} to {high:,}")
    return tuple(int(item) for item in items)


def five(items: Sequence[int]) -> tuple[int, ...]:
    """The items padded with ones to five axes."""
    return (*items, *(1,) * (5 - len(items)))


def number_of(value: object, names: Sequence[str], what: str) -> int:
    if not isinstance(value, str) or value not in names:
        accepted = ", ".join(repr(name) for name in names)
        raise LaunchError(f"TensorMap: {what} is {value!r}", hint=f"accepted: {accepted}")
    return names.index(value)


def _element(kind: np.dtype[np.generic], data_type: str | None) -> Element:
    if data_type is None:
        element_type = _OF_DTYPE.get(kind.name, _OF_WIDTH.get(kind.itemsize))
        if element_type is None:
            raise LaunchError(
                f"TensorMap: elements of type {kind}", hint="accepted: elements of 1, 2, 4 or 8 bytes"
            )
        return ELEMENTS[_NUMBERS[element_type]]
    element = ELEMENTS[number_of(data_type, [item.driver for item in ELEMENTS], "data_type")]
    width = element.size if element.elements == 1 else 1
    if kind.itemsize != width:
        raise LaunchError(
            f"TensorMap: data_type {data_type!r} of an array of {kind}",
            hint=f"it is for arrays whose elements have {width} byte{'s' * (width > 1)}",
        )
    return element


def described(
    array: DeviceArray | int,
    shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    dtype: DTypeLike | None,
    data_type: str | None,
    interleave: str,
    element_strides: Sequence[int] | None,
) -> Layout:
    """The fields that all kinds of map have."""
    address, element, shape = _source(array, shape, dtype, data_type)
    slices = number_of(interleave, INTERLEAVES, "interleave")
    least, most = (4, 6) if slices else (1, 5)
    axes = len(shape) if isinstance(shape, (tuple, list)) else 0
    if not least <= axes <= most:
        raise LaunchError(f"TensorMap: a tensor of shape {shape!r}", hint=f"accepted: {least} to {most} axes")
    sizes = whole(shape, axes, "shape", 1, 1 << 32)[::-1]
    steps = _strides(strides, sizes, element)
    if slices:
        if element.held != element.size:
            raise LaunchError(
                f"TensorMap: interleave {interleave!r} of elements of type {element.driver}",
                hint="padded elements cannot be interleaved",
            )
        sizes, steps = _sliced(sizes, steps, element, 8 << slices)
    _check_alignment(
        address, sizes, steps, element, 32 if slices == 2 or element.held != element.size else 16
    )
    rank = len(sizes)
    every: Sequence[int] = (1,) * rank
    if element_strides is not None:
        every = whole(element_strides, rank, "element_strides", 1, 8)[::-1]
        # like the driver, ignores the innermost one except for interleaved layouts
        every = every if slices else (1, *every[1:])
    layout = Layout(
        address, rank, _NUMBERS[element.driver], 0, 0, 0, slices, (1,) * 5, five(every), 0,
        (*steps, *(0,) * (4 - len(steps))), five(sizes),
    )  # fmt: skip
    if isinstance(array, DeviceArray):
        _check_inside(array, layout.unit, address, sizes, steps)
    return layout


def _source(
    array: DeviceArray | int, shape: Sequence[int] | None, dtype: DTypeLike | None, data_type: str | None
) -> tuple[int, Element, Sequence[int]]:
    """Address, element type and shape of the tensor of a map."""
    if isinstance(array, DeviceArray):
        element = _element(array.dtype if dtype is None else as_dtype(dtype), data_type)
        if shape is None and element.elements > 1 and array.shape:
            # the bytes of the last axis, in elements
            shape = (*array.shape[:-1], array.shape[-1] * element.elements // element.size)
        return array.address, element, array.shape if shape is None else shape
    if isinstance(array, (int, np.integer)) and shape is not None and dtype is not None:
        return int(array), _element(as_dtype(dtype), data_type), shape
    raise LaunchError(
        f"TensorMap of {type(array).__name__}",
        hint="accepted: a device array, or an address with shape= and dtype=",
    )


def _check_alignment(
    address: int, sizes: tuple[int, ...], steps: tuple[int, ...], element: Element, aligned: int
) -> None:
    """Raises ``LaunchError`` unless the address and all strides are multiples of ``aligned`` bytes."""
    if sizes[0] % element.start:
        raise LaunchError(
            f"TensorMap: {sizes[0]:,} elements along the last axis",
            hint=f"of type {element.driver} they are a multiple of {element.start}",
        )
    if address % aligned:
        raise LaunchError(f"TensorMap: address {address:#x}", hint=f"it must be a multiple of {aligned}")
    for step in steps:
        if step % aligned or step >= 1 << 40:
            raise LaunchError(
                f"TensorMap: a stride of {step:,} bytes",
                hint=f"strides of all axes but the last are multiples of {aligned}, less than 2^40; pad the rows, or give strides=",
            )


def _check_inside(
    array: DeviceArray, unit: Element, address: int, sizes: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    """Raises ``LaunchError`` for a tensor that exceeds the array."""
    inner = -(-sizes[0] // unit.elements) * unit.size
    last = address + inner + sum((size - 1) * step for size, step in zip(sizes[1:], steps))
    if last > array.allocation.end:
        raise LaunchError(
            f"TensorMap: {last - address:,} bytes from {array.name!r} on, which has {array.allocation.end - address:,}",
            hint="shape and strides must lie inside the array",
        )


def _strides(strides: Sequence[int] | None, sizes: tuple[int, ...], element: Element) -> tuple[int, ...]:
    """Strides in bytes along all axes but the innermost."""
    if strides is None:
        packed = -(-sizes[0] // element.elements) * element.size
        steps = []
        for size in sizes[1:]:
            steps.append(packed)
            packed *= size
        return tuple(steps)
    inner, *rest = whole(strides, len(sizes), "strides", 0, (1 << 40) - 1)[::-1]
    width = element.size if element.elements == 1 else 1
    if inner != width:
        raise LaunchError(
            f"TensorMap: a stride of {inner:,} bytes along the last axis",
            hint=f"elements must be contiguous, {width} bytes",
        )
    return tuple(rest)


def _sliced(
    sizes: tuple[int, ...], steps: tuple[int, ...], element: Element, size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of an interleaved tensor, whose elements are slices."""
    slice_bytes = sizes[0] * element.size // element.elements
    if slice_bytes != size or steps[0] != size:
        raise LaunchError(
            f"TensorMap: the last axis has {slice_bytes} bytes, {steps[0]} from one to the next",
            hint=f"the last axis of a tensor with this interleave is a slice of {size} bytes, and slices are contiguous",
        )
    return sizes[1:], steps[1:]


def with_options(base: Layout, swizzle: str, atomicity: str, fill: str) -> Layout:
    """The layout with options whose combinations are restricted."""
    layout = replace(
        base,
        swizzle=number_of(swizzle, SWIZZLES[:-1], "swizzle"),
        atom=number_of(atomicity, ATOMS, "atomicity"),
        fill=number_of(fill, FILLS, "fill"),
    )
    if layout.atom and swizzle != "128B":
        raise LaunchError(
            f"TensorMap: atomicity {atomicity!r} with swizzle {swizzle!r}",
            hint="values other than '16B' need swizzle '128B'",
        )
    if INTERLEAVES[layout.interleave] == "32B" and swizzle != "32B":
        raise LaunchError(
            f"TensorMap: swizzle {swizzle!r} with interleave '32B'", hint="accepted: swizzle '32B'"
        )
    swizzles = _PADDED.get(layout.element.driver)
    if swizzles is not None and f"{swizzle} {atomicity}" not in swizzles:
        accepted = ", ".join("{!r} with atomicity {!r}".format(*item.split()) for item in swizzles)
        raise LaunchError(
            f"TensorMap: swizzle {swizzle!r} with atomicity {atomicity!r} of elements of type {layout.element.driver}",
            hint=f"accepted: {accepted}",
        )
    if layout.fill and not layout.element.is_float:
        raise LaunchError(
            "TensorMap: fill 'nan' of integers", hint="accepted for floating-point elements; otherwise 'zero'"
        )
    return layout


def check_inner(layout: Layout, length: int, what: str) -> None:
    """Check the length of a box along the innermost axis: a multiple of 16 bytes, at most the swizzle's width."""
    if layout.interleave:
        return
    element = layout.element
    if element.held != element.size and length != element.start:
        raise LaunchError(
            f"TensorMap: {what} has {length} elements along the last axis",
            hint=f"of type {element.driver} they are {element.start}",
        )
    inner = length * element.held // element.elements
    if length % element.elements or inner % 16:
        raise LaunchError(
            f"TensorMap: {what} has {length * element.size / element.elements:,g} bytes along the last axis",
            hint="they must be a multiple of 16",
        )
    most = 16 << layout.swizzle
    if layout.swizzle and inner > most:
        raise LaunchError(
            f"TensorMap: {what} has {inner:,} bytes along the last axis",
            hint=f"swizzle {SWIZZLES[layout.swizzle]!r} takes at most {most}",
        )
