"""The memory of a device and the arrays in it: what the host allocates, copies, sets and binds.

All operations of the host are recorded in order, with their source lines, for the value patterns.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arguments import takes_annotated
from ..errors import LaunchError, UnknownName
from ..memory.arena import DEFAULT_BYTES, MAPPED_BYTES, Allocation, Memory
from ..memory.arrays import (
    DeviceArray,
    HostArray,
    as_dtype,
    as_shape,
    as_whole,
    axes_of,
    check_dtype,
    converted,
)
from ..memory.images import (
    ImageObject,
    SamplerObject,
    check_flags,
    levels_of,
    resident_map,
    sampler_row,
    set_resident,
    surface_row,
    texture_row,
)
from ..ptx.module import Function, Module, make_current
from ..results import ProvenValues, ValueRecord
from ..simt.launch import Launcher
from ..symbolic.known_contents import KnownContents
from .element_types import UNKNOWN
from .events import CallSite, Event, Use, call_path
from .options import check_observe
from .recording import Recorder
from .rows import Rows
from .symbols import Symbols
from .thresholds import Thresholds

__all__ = ["DeviceMemory", "check_kernel"]

_numbers = itertools.count()


def check_kernel(kernel: object) -> None:
    """Raises ``LaunchError`` unless this is a kernel or another function of a module."""
    if not isinstance(kernel, Function):
        raise LaunchError(f"a {type(kernel).__name__} is not a kernel", hint='write module["name"]')


def _memory(capacity: int | None, heap_bytes: int, mapped: bool) -> Memory:
    """Memory of so many bytes; ``None``: the default, or less if the host cannot reserve that. Raises ``LaunchError``."""
    if capacity is not None:
        return Memory(as_whole(capacity, "memory_bytes", 0), heap_bytes, mapped)
    if mapped:
        try:
            return Memory(MAPPED_BYTES, heap_bytes, mapped)
        except LaunchError as error:  # the host limits address space, or does not overcommit
            if "cannot reserve" not in error.message:
                raise
    return Memory(DEFAULT_BYTES, heap_bytes, mapped)


class DeviceMemory:
    """Memory, the arrays in it, and the recorded program of what was done with them.

    ``observe`` is a subset of ``options.OBSERVABLE``; ``memory_bytes``: ``None`` for 4 GiB, mapped 64 GiB where that is reserved;
    ``thresholds``: when values are a pattern, if others than the defaults; ``mapped``: whether device addresses are addresses of the
    host; ``history``: how many of the last steps are kept as ``events`` at least (``None``: all of them).
    """

    def __init__(
        self,
        observe: Iterable[str],
        memory_bytes: int | None,
        heap_bytes: int,
        thresholds: Thresholds | None,
        mapped: bool = False,
        history: int | None = None,
    ) -> None:
        self.observe = check_observe(observe)
        self.history = None if history is None else as_whole(history, "history", 0)
        #: whether findings or inputs refer to freed objects
        self._refers_back = bool(self.observe & {"accesses", "inputs", "values"})
        #: freed objects that are kept for that
        self._freed: deque[Allocation] = deque()
        self._freed_bytes = 0
        #: whether all steps were observed
        self.observed_all = True
        #: managed memory that no launch or copy has accessed yet → call path of its allocation
        self._late: dict[Allocation, tuple[CallSite, ...]] = {}
        #: number of events before ``begin_program``, and their limit since then
        self._first = 0
        self.most_events: int | None = None
        if self.history is not None and self._refers_back:
            raise LaunchError(
                f"history={history!r} on a device that observes {', '.join(sorted(self.observe))}",
                hint="the whole program is needed: leave history out",
            )
        #: returns the current call path of the host program
        self.call_path: Callable[[], tuple[CallSite, ...]] = call_path
        #: limit of shared memory per block in bytes, if it does not follow from the PTX target
        self.largest_shared: int | None = None
        #: the program, if it can go on while the next launch waits for it
        self.launcher: Launcher | None = None
        self.memory = _memory(memory_bytes, as_whole(heap_bytes, "heap_bytes", 0), mapped)
        self._contents = KnownContents(self.memory)
        self.events: list[Event] = []
        #: total number of events
        self._steps = 0
        self._arrays: dict[Allocation, DeviceArray] = {}
        #: numbers of the events that allocated arrays
        self.origins: dict[Allocation, int] = {}
        #: freed arrays → number of the next event
        self.ends: dict[Allocation, int] = {}
        #: arrays and variables of modules
        self.array_of: dict[Allocation, DeviceArray] = {}
        #: arrays that were allocated as bytes, while their element type is unknown
        self._untyped: set[Allocation] = set()
        #: values of the accesses of launches, by the number of the event, while ``accesses`` are observed
        self.carried: dict[int, tuple[ValueRecord, ...]] = {}
        self.proven: dict[int, tuple[ProvenValues, ...]] = {}
        self.thresholds = Thresholds() if thresholds is None else thresholds
        self.recorder = (
            Recorder(self.memory, self.array_of.get, self.thresholds) if "values" in self.observe else None
        )
        #: names of arrays
        self._taken: set[str] = set()
        self._names: dict[str, int] = {}
        self._symbols = Symbols(self, self.memory, self._loaded)
        self._number = next(_numbers)
        self._launched: set[Module] = set()

    # -- arrays ---------------------------------------------------------------------------------------------------------

    def array(self, values: object, *, name: str | None = None, pad: int | None = None) -> DeviceArray:
        """Device memory with a copy of a host array (anything ``np.asarray`` takes).

        ``pad``: bytes behind the last one that kernels may access too, with a note in the profile. ``None``: none but those of an
        element that begins inside, as every allocator of CUDA makes possible; 0: none at all.
        """
        try:
            host = np.asarray(values, order="C")
        except (TypeError, ValueError) as error:
            raise LaunchError(f"a {type(values).__name__} is not an array: {error}") from None
        array = self._allocate(host.shape, host.dtype, name, pad)
        self.memory.write(array.allocation, 0, host.reshape(-1).view(np.uint8))
        self._record("copy-in", (array,), array.nbytes)
        return array

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = np.float32,
        *,
        name: str | None = None,
        pad: int | None = None,
    ) -> DeviceArray:
        """Uninitialised device memory. Reading it before a write is reported. ``pad``: see ``array``."""
        array = self._allocate(as_shape(shape), as_dtype(dtype), name, pad)
        self._append("allocate", (array,), array.nbytes)
        return array

    def zeros(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = np.float32,
        *,
        name: str | None = None,
        pad: int | None = None,
    ) -> DeviceArray:
        """Device memory set to zero, recorded as an allocation and a memset. ``pad``: see ``array``."""
        array = self._allocate(as_shape(shape), as_dtype(dtype), name, pad)
        self.memory.mark(array.allocation, 0, array.nbytes)
        self._record("memset", (array,), array.nbytes)
        return array

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str | None, pad: int | None
    ) -> DeviceArray:
        check_dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        behind = None if pad is None else as_whole(pad, "pad", 0)
        allocation = self.memory.allocate(size, name or "", pad=behind)
        array = DeviceArray(self, allocation, 0, shape, dtype)
        allocation.axes = axes_of(shape, dtype.itemsize)
        self.array_of[allocation] = array.recorded()
        self._arrays[allocation] = self.array_of[allocation]
        self.origins[allocation] = self._steps
        self._taken.add(allocation.name)
        return array

    @property
    def arrays(self) -> list[DeviceArray]:
        """All arrays, in the order in which they were made; variables of modules are none."""
        return [*self._arrays.values()]

    def memset(self, array: DeviceArray, value: object) -> None:
        """Set every element of an array or view to one value."""
        self._own(array)
        one = converted(value, array.dtype)
        if one.size != 1:
            raise LaunchError(
                f"cannot fill with {value!r:.60}", hint="accepted: one value; copy_from() takes arrays"
            )
        filled = np.full(array.size, one.reshape(()), dtype=array.dtype)
        array.bytes()[:] = filled.view(np.uint8)
        self._contents.overwritten(array.allocation, array.nbytes)
        self.memory.mark(array.allocation, array.offset, array.nbytes)
        self._record("memset", (array,), array.nbytes)

    def copy(self, target: DeviceArray, source: HostArray | DeviceArray) -> None:
        """Copy host → device or device → device; both sides must have the same number of bytes. Host data is converted to
        the array's dtype if that keeps its kind (``np.can_cast(…, "same_kind")``)."""
        self._own(target)
        kind = "copy-in"
        objects: tuple[DeviceArray, ...] = (target,)
        if isinstance(source, DeviceArray):
            self._address_of(source)
            self._contents.require(source.allocation, "this copy")
            raw, kind, objects = source.bytes().copy(), "copy", (target, source)
        else:
            raw = converted(source, target.dtype).reshape(-1).view(np.uint8)
        if raw.size != target.nbytes:
            raise LaunchError(f"copy of {raw.size:,} bytes to an array of {target.nbytes:,} bytes")
        array_bytes = target.bytes()
        array_bytes[:] = raw
        self._contents.overwritten(target.allocation, target.nbytes)
        self.memory.mark(target.allocation, target.offset, target.nbytes)
        self._record(kind, objects, target.nbytes)

    def read(self, array: DeviceArray) -> HostArray:
        """Copy out, recorded. Raises ``NotObserved`` for contents that a launch did not compute."""
        self._own(array)
        self._contents.require(array.allocation, "numpy()")
        uses = () if self.recorder is None else self.recorder.host_reads(self._steps, array)
        self._append("copy-out", (array,), array.nbytes, uses)
        copied: HostArray = array.bytes().copy().view(array.dtype).reshape(array.shape)
        return copied

    # -- variables ------------------------------------------------------------------------------------------------------

    @takes_annotated
    def symbol(self, kernel: Function, name: str) -> DeviceArray:
        """The array of a ``__constant__`` or ``__device__`` variable of the kernel's module. Raises ``UnknownName``."""
        check_kernel(kernel)
        return self._variable(kernel.module, name)

    def _variable(self, module: Module, name: str) -> DeviceArray:
        variable = module.variable(name)
        if variable.space not in ("global", "const") or variable.linkage == "extern":
            raise UnknownName(
                f".{variable.space} variable {name!r} has no memory on the device itself"
                if variable.linkage != "extern"
                else f"variable {name!r} is declared extern and defined in no module given",
                span=variable.span,
                hint="accepted: .global and .const variables that the module defines",
            )
        self._symbols.check_room(module)
        array = replace(self._symbols.variable(variable), runtime=self)
        module.expected_on = None
        return array

    def current_symbol(self, kernel: Function, name: str) -> DeviceArray:
        """The result of ``kernel.symbol(name)`` while this is the current device."""
        array = self.symbol(kernel, name)
        if kernel.module not in self._launched:
            kernel.module.expected_on = self._number
        return array

    def _becomes_current(self, kernel: Function) -> None:
        """Make this the current device, before a launch. Raises ``LaunchError`` if the kernel's variables were set on another
        device."""
        if kernel.module.expected_on not in (None, self._number):
            raise LaunchError(
                f"{kernel.name!r} is launched on a device that was not the current one when symbol() was called on its kernel",
                hint=f"with several devices, name the one that is meant: device.symbol(module[{kernel.name!r}], …)",
            )
        kernel.module.expected_on = None
        if kernel.module not in self._launched:
            self._symbols.check_room(kernel.module)
        self._launched.add(kernel.module)
        make_current(self)

    def _loaded(self, array: DeviceArray, initial: bool) -> None:
        """Record that a variable of a module was loaded. Compilers declare arrays of any type as bytes, so in programs the element
        type is unknown; tests use the declared one."""
        if self.recorder is not None and self.memory.mapped and array.dtype == np.uint8 and array.nbytes > 1:
            self._untyped.add(array.allocation)
            array = replace(array, shape=(array.nbytes,), dtype=UNKNOWN)
        self.array_of[array.allocation] = array.recorded()
        if initial and self.recorder is not None:
            self.recorder.load(array.allocation)

    def share_variables(self, kernels: Iterable[Function]) -> None:
        """Let variables that the kernels' modules declare alike, by name, size and initial contents, be the same memory.

        For kernels that stand for one another, such as one source compiled for several targets.
        """
        self._symbols.share(dict.fromkeys(kernel.module for kernel in kernels))

    # -- images ---------------------------------------------------------------------------------------------------------

    def texture(
        self,
        array: DeviceArray | Sequence[DeviceArray],
        *,
        channels: int = 1,
        layered: bool = False,
        cube: bool = False,
        normalized: bool = False,
        read: str = "element",
        filter: str = "nearest",
        address: str | Sequence[str] = "clamp",
        border: Sequence[float] = (0, 0, 0, 0),
        linear_memory: bool = False,
        level_filter: str = "nearest",
        level_bias: float = 0.0,
        level_range: Sequence[float] = (0.0, float("inf")),
        compare: str | None = None,
        resident: object = None,
        samples: int | None = None,
    ) -> ImageObject:
        """A texture object of an array, an argument for kernels.

        The array's shape is (depth, height,) width; with ``layered`` the first axis are layers, with ``channels`` of 2 or 4 the last
        axis. ``normalized`` coordinates run from 0 to 1; ``read="normalized"`` gives 8- and 16-bit integers as floats of 0 (−1) to 1;
        ``filter`` is ``nearest`` or ``linear``; ``address``, one or one per dimension, ``clamp``, ``border``, and for normalized
        coordinates ``wrap`` and ``mirror``. ``linear_memory``: as bound to linear memory, where fetches outside give 0. ``cube``: the
        first axis are the six faces of a cube map, or with ``layered`` those of several. A mipmapped texture is made of a sequence of
        arrays, the finest first; ``level_filter``, ``level_bias`` and ``level_range`` are those of its sampler. ``compare`` is the
        comparison of a depth texture, with the operand on the left: ``less``, ``less_equal``, ``equal``, ``not_equal``, ``greater`` or
        ``greater_equal``. ``resident``: which texels of a sparse texture are in memory, an array of ``bool`` with the shape of the
        texels, or one for each level. ``samples``: how many samples each texel has, along the last axis before that of the channels;
        such a texture has one level.

        Raises ``LaunchError``.
        """
        levels = [array] if not isinstance(array, Iterable) or isinstance(array, DeviceArray) else [*array]
        if not levels:
            raise LaunchError(
                "a texture of no arrays", hint="a mipmapped texture has an array for each level"
            )
        for level in levels:
            self._own(level)
        check_flags("texture", layered=layered, cube=cube, normalized=normalized, linear_memory=linear_memory)
        rows = [
            texture_row(
                level, channels, layered=layered, cube=cube, normalized=normalized, read=read, filter=filter,
                address=address, border=border, linear_memory=linear_memory, level_filter=level_filter,
                level_bias=level_bias, level_range=level_range, compare=compare,
                samples=samples,
            )
            for level in levels
        ]  # fmt: skip
        if samples is not None and len(rows) > 1:
            raise LaunchError(
                f"a texture of {len(rows)} levels with samples", hint="accepted: one array (PTX manual, tex)"
            )
        levels_of(rows)
        maps = b"" if resident is None else self._set_resident(rows, levels, int(channels), resident)
        handle = self.memory.images.add_levels(rows, [level.allocation for level in levels])
        return ImageObject(levels[0], rows[0], handle, maps)

    def _set_resident(
        self, rows: list[NDArray[np.uint32]], levels: list[DeviceArray], channels: int, resident: object
    ) -> bytes:
        """Store which texels of each level of a sparse texture are resident; these maps. Raises ``LaunchError``."""
        one = isinstance(resident, np.ndarray) or len(levels) == 1
        masks: list[object] = [resident] if one else [*resident] if isinstance(resident, Iterable) else []
        if len(masks) != len(levels):
            raise LaunchError(
                f"a texture of {len(levels)} levels with resident= for {len(masks)}",
                hint="accepted: a mask for each level",
            )
        maps = [resident_map(level, channels, mask) for level, mask in zip(levels, masks, strict=True)]
        for row, map in zip(rows, maps, strict=True):
            allocation = self.memory.allocate(map.size, "resident texels", "global", 4)
            self.memory.write(allocation, 0, map.reshape(-1))
            set_resident(row, allocation.address)
        return b"".join(map.tobytes() for map in maps)

    def surface(self, array: DeviceArray, *, channels: int = 1, layered: bool = False) -> ImageObject:
        """A surface object of an array, which kernels read and write; shapes as for ``texture``. Raises ``LaunchError``."""
        self._own(array)
        check_flags("surface", layered=layered)
        row = surface_row(array, channels, layered=layered)
        return ImageObject(array, row, self.memory.images.add(row, array.allocation))

    def sampler(
        self,
        *,
        filter: str = "nearest",
        address: str | Sequence[str] = "clamp",
        force_unnormalized: bool = False,
    ) -> SamplerObject:
        """A sampler apart from textures (``.target texmode_independent``). It replaces the filter and the address modes of the texture
        that is read with it, and with ``force_unnormalized`` coordinates count texels. Arguments as of ``texture``.

        Raises ``LaunchError``.
        """
        check_flags("sampler", force_unnormalized=force_unnormalized)
        row = sampler_row(filter, address, force_unnormalized=force_unnormalized)
        return SamplerObject(self.memory, row, self.memory.images.add(row, None))

    def bind(self, kernel: Function, name: str, image: ImageObject | SamplerObject) -> None:
        """Let a ``.texref``, ``.surfref`` or ``.samplerref`` variable of the kernel's module mean an image or sampler of this device.
        Raises ``UnknownName`` and ``LaunchError``."""
        check_kernel(kernel)
        variable = kernel.module.variable(name)
        opaque = (".texref", ".surfref", ".samplerref")
        wanted = next((word[1:-3] for word in variable.attributes if word in opaque), "tex")
        if variable.space != "tex":
            raise LaunchError(
                f"{name!r} is not a .texref, .surfref or .samplerref variable", span=variable.span
            )
        if (
            not isinstance(image, (ImageObject, SamplerObject))
            or self._address_of(image) is None
            or image.kind[:3] != wanted[:3]
        ):
            raise LaunchError(
                f"cannot bind {image!r:.60} to {name!r}",
                span=variable.span,
                hint=f"make a {dict(surf='surface', sampler='sampler').get(wanted, 'texture')} of this device",
            )
        self._symbols.bind(variable, image)

    # -- arguments ------------------------------------------------------------------------------------------------------

    def _address_of(self, argument: object) -> int | None:
        if isinstance(argument, SamplerObject):
            if argument.owner is not self.memory:
                raise LaunchError(f"{argument!r} is on another device")
            return argument.handle
        if isinstance(argument, ImageObject):
            if argument.array.runtime.memory is not self.memory:
                raise LaunchError(f"{argument!r} is on another device")
            return argument.handle
        if not isinstance(argument, DeviceArray):
            return None
        if argument.runtime.memory is not self.memory:
            raise LaunchError(f"array {argument.name!r} is on another device")
        if argument.allocation.freed:
            raise LaunchError(f"array {argument.name!r} was freed")
        return argument.address

    def _own(self, array: object) -> None:
        """Raises ``LaunchError`` unless this is an array on this device."""
        if self._address_of(array) is None:
            raise LaunchError(
                f"a {type(array).__name__} is not a device array",
                hint="make one with array(), zeros() or empty()",
            )

    def _name_by_parameter(self, kernel: Function, args: Sequence[object]) -> None:
        prefix = f"{kernel.name}_param_"
        for index, (param, argument) in enumerate(zip(kernel.params, args)):
            if isinstance(argument, DeviceArray) and not argument.allocation.name:
                plain = param.name
                if not plain or plain.startswith(prefix) or plain == f"{kernel.name}_{index}":
                    plain = f"{kernel.name}[{index}]"
                argument.allocation.name = self._unique(plain)

    def _unique(self, name: str) -> str:
        number, fresh = self._names.get(name, 1), name
        while fresh in self._taken:
            number += 1
            fresh = f"{name}#{number}"
        self._names[name] = number
        self._taken.add(fresh)
        return fresh

    # -- events ---------------------------------------------------------------------------------------------------------

    def _record(
        self, kind: str, objects: tuple[DeviceArray, ...], size: int, rows: Sequence[Rows] = ()
    ) -> None:
        """Record a copy or memset by the host, of ``rows`` of the objects or of whole objects."""
        uses: tuple[Use, ...] = ()
        if self.recorder is not None:
            source = objects[1] if len(objects) > 1 else None
            masks = [item.mask for item in rows] or [None] * len(objects)
            uses = self.recorder.host_writes(self._steps, objects[0], source, kind, masks)
        self._append(kind, objects, size, uses)

    def _append(
        self,
        kind: str,
        objects: tuple[DeviceArray, ...],
        size: int,
        uses: tuple[Use, ...] = (),
        kernel: Function | None = None,
        kept: bool = True,
        path: tuple[CallSite, ...] | None = None,
    ) -> None:
        number, name = self._steps, "" if kernel is None else kernel.name
        self._steps += 1
        if self.history == 0:
            return
        if self.most_events is not None and len(self.events) >= self.most_events:
            self.observed_all = False
            self.carried.pop(number, None)
            self.proven.pop(number, None)
            return
        recorded = tuple([self._recorded(array) for array in objects])
        path = self.call_path() if path is None else path
        self.events.append(Event(kind, path, recorded, name, size, uses, number, kept, kernel))
        if self.history is not None and len(self.events) >= 2 * self.history:
            del self.events[: -self.history]

    def _recorded(self, array: DeviceArray) -> DeviceArray:
        """An array as events hold it: the same object for all events with the whole array."""
        known = self.array_of.get(array.allocation)
        return known if known == array else array.recorded()

    def begin_program(self, most_events: int) -> None:
        """Start a new recorded program, of so many events at most; memory is not changed."""
        self.events.clear()
        self.carried.clear()
        self.proven.clear()
        for allocation in self.recorder.dropped() if self.recorder is not None else ():
            for known in (self._arrays, self.array_of, self.origins, self.ends):
                known.pop(allocation, None)
        self._first, self.most_events, self.observed_all = self._steps, most_events, True

    def _touch(self, allocations: Iterable[Allocation]) -> None:
        """Record the allocation of managed memory before its first access."""
        for allocation in [item for item in allocations if item in self._late] if self._late else ():
            path, array = self._late.pop(allocation), self.array_of[allocation]
            self.origins[allocation] = self._steps
            self._append("allocate", (array,), array.nbytes, path=path)

    def untouched(self, allocation: Allocation) -> tuple[int, int]:
        """Bytes of an object that nobody has read or written, and bytes that were written and that nobody has read."""
        return (0, 0) if self.recorder is None else self.recorder.untouched(allocation)

    def never_read(self, allocation: Allocation) -> dict[int, int]:
        """By the number of the event that wrote them last the bytes of an object that nobody has ever read."""
        return {} if self.recorder is None else self.recorder.never_read(allocation)

    def end_observation(self) -> None:
        """Record no more steps, so that a program may make any number of them. What was recorded stays; memory in use does not."""
        self.observe -= {"accesses", "values"}
        self.recorder, self._refers_back, self.observed_all, self.history = None, False, False, 0
        self.memory.touched = None
        while self._freed:
            self.memory.give_again(self._freed.popleft())

    def _retype(self, allocation: Allocation, dtype: np.dtype[np.generic]) -> None:
        """Set the element type of an object that was allocated as bytes, also in previous steps."""
        self._untyped.discard(allocation)
        typed_array = DeviceArray(self, allocation, 0, (allocation.size // dtype.itemsize,), dtype).recorded()
        self.array_of[allocation] = typed_array
        if allocation in self._arrays:
            self._arrays[allocation] = typed_array
        for number, change in self.recorder.typed(typed_array).items() if self.recorder is not None else ():
            index = number - self._first
            if 0 <= index < len(self.events):
                event = self.events[index]
                uses = tuple(change(use) if use.array.allocation is allocation else use for use in event.uses)
                self.events[index] = replace(event, uses=uses)
