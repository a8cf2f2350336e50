"""``TensorMap``: a tensor map from a description in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import DTypeLike

from ..errors import LaunchError
from ..isa.tensor_maps import CHANNELS_MAX, MODES, OFFSET_BITS, PIXELS_MAX
from .arrays import DeviceArray
from .tensor_layouts import check_inner, described, five, whole, with_options
from .tensor_maps import Layout

__all__ = ["TensorMap"]

#: those of ``im2col_wide``
_WIDE_SWIZZLES = ("64B 16B", "128B 16B", "128B 32B")


class TensorMap:
    """A tensor map, to be passed for a ``const __grid_constant__ CUtensorMap`` parameter, or copied to device memory as
    ``bytes(map)``.

    ``array`` is a device array, or an address with ``shape`` and ``dtype``. Axes are in NumPy's order, the last one
    innermost: ``box`` gives the elements of a copy along each, ``strides`` (bytes) is for tensors that are not packed,
    ``element_strides`` takes every n-th element along all axes but the last (there the driver ignores it). ``swizzle`` is
    ``none``, ``32B``, ``64B`` or ``128B``, with ``atomicity`` ``16B``, ``32B``, ``32B_FLIP_8B`` or ``64B``; ``fill``, the value of
    elements outside, ``zero`` or ``nan``.

    ``data_type`` is the name of a ``CUtensorMapDataType`` such as ``TFLOAT32``; the default is that of the dtype. For
    ``16U4_ALIGN8B``, ``16U4_ALIGN16B`` and ``16U6_ALIGN16B`` the array has the bytes into which the elements are packed, and
    ``shape`` and ``box`` count elements.

    ``interleave`` ``16B`` or ``32B``: the array's axes are N, slices, (D,) (H,) W and a slice of that many bytes of channels;
    ``box`` and ``element_strides`` have all of them but the last.

    Raises ``LaunchError`` for maps that the driver refuses (CUDA driver API, ``cuTensorMapEncodeTiled``).
    """

    layout: Layout
    #: the device array that it was made of, if it was
    array: DeviceArray | None

    def __init__(
        self,
        array: DeviceArray | int,
        box: Sequence[int] | int,
        *,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        data_type: str | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        atomicity: str = "16B",
        element_strides: Sequence[int] | None = None,
        fill: str = "zero",
    ) -> None:
        base = described(array, shape, strides, dtype, data_type, interleave, element_strides)
        layout = with_options(base, swizzle, atomicity, fill)
        lengths = whole(box, base.rank, "box", 1, 256)[::-1]
        layout = replace(layout, box=five(lengths))
        if layout.interleave and lengths[-2] != 1:
            raise LaunchError(
                f"TensorMap: box has {lengths[-2]} slices of the channels",
                hint="a copy of an interleaved tensor takes one: the second element of box is 1",
            )
        check_inner(layout, lengths[0], "box")
        self._keep(layout, array)

    @classmethod
    def im2col(
        cls,
        array: DeviceArray | int,
        channels: int,
        pixels: int,
        *,
        lower: Sequence[int],
        upper: Sequence[int],
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        data_type: str | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        atomicity: str = "16B",
        element_strides: Sequence[int] | None = None,
        fill: str = "zero",
    ) -> TensorMap:
        """A map for im2col copies of a tensor N, (D,) (H,) W, C: ``pixels`` of the bounding box, which begins ``lower`` away from
        the first and ends ``upper`` away from the last element of each axis between N and C, with ``channels`` each
        (``cuTensorMapEncodeIm2col``). Of an interleaved tensor ``channels`` is those of a slice."""
        base = described(array, shape, strides, dtype, data_type, interleave, element_strides)
        if not 3 <= base.rank <= 5:
            raise LaunchError(
                f"TensorMap.im2col: a tensor of {base.rank} axes", hint="accepted: 3, 4 or 5 axes, N … C"
            )
        spatial = base.rank - 2
        most = 1 << OFFSET_BITS[spatial] - 1
        corners = [
            whole(item, spatial, name, -most, most - 1)[::-1]
            for item, name in ((lower, "lower"), (upper, "upper"))
        ]
        return cls._column(
            array, with_options(base, swizzle, atomicity, fill), "im2col", channels, pixels, *corners
        )

    @classmethod
    def im2col_wide(
        cls,
        array: DeviceArray | int,
        channels: int,
        pixels: int | None,
        *,
        lower: int,
        upper: int,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        data_type: str | None = None,
        swizzle: str = "128B",
        atomicity: str = "16B",
        element_strides: Sequence[int] | None = None,
        fill: str = "zero",
    ) -> TensorMap:
        """A map for copies ``im2col::w``, which go along W and N only: ``pixels`` of the bounding box, which begins ``lower`` and ends
        ``upper`` away from the ends of W. For ``im2col::w::128`` ``pixels`` is ``None`` (``cuTensorMapEncodeIm2colWide``)."""
        base = described(array, shape, strides, dtype, data_type, "none", element_strides)
        if not 3 <= base.rank <= 5:
            raise LaunchError(
                f"TensorMap.im2col_wide: a tensor of {base.rank} axes", hint="accepted: 3, 4 or 5 axes, N … C"
            )
        layout = with_options(base, swizzle, atomicity, fill)
        if f"{swizzle} {atomicity}" not in _WIDE_SWIZZLES:
            raise LaunchError(
                f"TensorMap.im2col_wide: swizzle {swizzle!r} with atomicity {atomicity!r}",
                hint="accepted: swizzle '64B', or '128B' with atomicity '16B' or '32B'",
            )
        corners = [
            whole(item, 1, name, -(1 << 15), (1 << 15) - 1)
            for item, name in ((lower, "lower"), (upper, "upper"))
        ]
        mode = "im2col::w::128" if pixels is None else "im2col::w"
        return cls._column(array, layout, mode, channels, 1 if pixels is None else pixels, *corners)

    @classmethod
    def _column(
        cls,
        array: DeviceArray | int,
        base: Layout,
        mode: str,
        channels: int,
        pixels: int,
        lower: tuple[int, ...],
        upper: tuple[int, ...],
    ) -> TensorMap:
        (count,), (points,) = (
            whole(channels, 1, "channels", 1, CHANNELS_MAX),
            whole(pixels, 1, "pixels", 1, PIXELS_MAX),
        )
        first = int(not base.interleave)
        for axis, (low, high) in enumerate(zip(lower, upper)):
            if low >= base.shape[first + axis] + high:
                raise LaunchError(
                    f"TensorMap: a bounding box from {low} to {base.shape[first + axis] + high}",
                    hint="it must have pixels: lower is less than the size of the axis plus upper",
                )
        if base.steps[base.rank - 1] != 1:
            raise LaunchError(
                f"TensorMap: an element stride of {base.steps[base.rank - 1]} along N",
                hint="the manual gives im2col copies strides along W, H and D only",
            )
        slice_channels = base.unit.size * base.element.elements // base.element.size
        if base.interleave and count != slice_channels:
            raise LaunchError(
                f"TensorMap: {count} channels of an interleaved tensor",
                hint=f"a pixel has those of one slice, {slice_channels}",
            )
        described = cls.__new__(cls)
        pad = (0,) * (3 - len(lower))
        layout = replace(
            base, mode=MODES.index(mode), channels=count, pixels=points, corners=(*lower, *pad, *upper, *pad)
        )
        check_inner(layout, count, "channels")
        described._keep(layout, array)
        return described

    def _keep(self, layout: Layout, array: DeviceArray | int) -> None:
        self.layout = layout
        self.array = array if isinstance(array, DeviceArray) else None

    def __bytes__(self) -> bytes:
        return self.layout.encode()

    def __repr__(self) -> str:
        return f"<TensorMap {self.layout.shape[: self.layout.rank][::-1]} at {self.layout.address:#x}>"
