"""Device memory by address, as in the driver API, for runtimes with arrays of their own."""

from __future__ import annotations

import ctypes
import os
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._arguments import takes_annotated
from ..errors import LaunchError
from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray, as_whole
from ..memory.pages import FIRST, map_nothing
from ..memory.shared_pages import PAGE, Shared, SharedPages
from ..ptx.module import Function, Module
from .device_memory import DeviceMemory
from .element_types import UNKNOWN
from .options import HOST_ACCESS, check_name
from .rows import Rows

__all__ = ["AddressedMemory"]

#: bytes of freed objects that are kept while findings may refer to them
_FREED_BYTES = 256 << 20


class AddressedMemory(DeviceMemory):
    """Allocations, copies and variables by address.

    Copies and fills are checked: in device memory each side lies in one object. Any other address is one of the host's, which is taken
    as it is given, as ``memcpy`` does.
    """

    #: pages that are shared with other processes
    _shared: SharedPages | None = None

    @cached_property
    def _opened(self) -> dict[int, tuple[Shared, int, int]]:
        """Opened allocations of other processes, by address: the handle, the address of the first page, and the number of opens."""
        return {}

    def allocate(
        self,
        size: int,
        *,
        name: str = "",
        align: int = 1,
        pad: int | None = 0,
        host: str = "",
        written: bool = False,
        at: int | None = None,
    ) -> int:
        """The address of so many bytes, a multiple of 256 (and of ``align``), zero and never written, unless the ``host`` writes to it
        by pointer: to ``managed`` memory, or to ``pinned`` memory, which copies take for the host's own. ``written``: it counts as
        written, so that accesses need not be followed by byte. ``at``: this address, in memory that was freed with ``hold``, with what
        it holds. Raises ``LaunchError`` if there is no room. ``pad``: see ``array``."""
        check_name(host, HOST_ACCESS, "no access {} of the host", "access")
        whole = as_whole(size, "size", 0)
        if self.recorder is not None:  # findings identify arrays by name
            name = self._unique(name or "array")
        allocation = self.memory.allocate(whole, name, align=as_whole(align, "align", 1), pad=pad, at=at)
        allocation.host = host
        if host or written:
            self.memory.clear(allocation, fresh=not host and at is None)
        self._know(allocation)
        if host == "managed" and self.recorder is not None:
            # kernels never access most of this memory, so it is recorded on first use
            self._late[allocation] = self.call_path()
        else:
            self._append("allocate", (self.array_of[allocation],), whole)
        return allocation.address

    def adopt(self, memory: NDArray[np.generic] | int, size: int = 0, *, name: str = "") -> DeviceArray:
        """Let kernels access memory of the host, in place: that of a contiguous NumPy array, or ``size`` bytes at an address.

        It counts as written, is checked like any other array, and must stay where it is until ``free``. Races in it are not sought.
        Raises ``LaunchError`` unless the device is mapped, for memory that overlaps what kernels have already, and on a device that
        observes ``accesses``, ``footprint`` or ``values``.
        """
        followed = self.observe & {"accesses", "footprint", "values"}
        if followed:
            raise LaunchError(
                f"{', '.join(sorted(followed))} are observed in memory of the device itself only",
                hint="copy host memory with array()",
            )
        if isinstance(memory, np.ndarray):
            if not memory.flags.c_contiguous:
                raise LaunchError(
                    "an array that is not contiguous cannot be adopted", hint="copy it with array()"
                )
            address, size = int(memory.ctypes.data), memory.nbytes
            array = DeviceArray(
                self, self.memory.adopt(address, size, name, None), 0, memory.shape, memory.dtype
            )
        else:
            array = DeviceArray(
                self,
                self.memory.adopt(memory, as_whole(size, "size", 0), name, None),
                0,
                (size,),
                np.dtype("u1"),
            )
        self._know(array.allocation, array)
        self._append("copy-in", (array,), size)
        return array

    def free(self, memory: DeviceArray | int, *, hold: bool = False) -> None:
        """Give memory back: an array, or what lies at an address that ``allocate`` gave. Kernels that access it afterwards fail.
        ``hold``: its pages alone are given back, so that ``allocate`` can be asked for these addresses again.

        Raises ``LaunchError`` for views, variables of modules, and what was freed before. While ``accesses`` or ``values`` are
        observed, the last 256 MiB stay as they are for what refers to them; while ``inputs`` are, all of it does.
        """
        address = memory.address if isinstance(memory, DeviceArray) else memory
        allocation = (
            self._own_allocation(memory) if isinstance(memory, DeviceArray) else self._starting_at(address)
        )
        if allocation is None or allocation.address != address or allocation not in self._arrays:
            where = f"array {memory.name!r}" if isinstance(memory, DeviceArray) else f"address {address:#x}"
            raise LaunchError(
                f"{where} cannot be freed",
                hint="accepted: whole arrays and addresses allocated by this device, once",
            )
        untouched = self._late.pop(allocation, None) is not None
        followed = self._refers_back and not (untouched and "inputs" not in self.observe)
        if self._shared is not None:
            self._shared.withdraw(allocation)
        self.memory.free(allocation, again=not (followed or hold))
        if hold:
            self.memory.empty(allocation)
        self._contents.unknown.pop(allocation, None)
        if not followed:
            del self._arrays[allocation], self.array_of[allocation], self.origins[allocation]
            self._taken.discard(allocation.name)
            self._untyped.discard(allocation)
        else:
            self.ends[allocation] = self._steps
            if "inputs" not in self.observe:
                self._freed.append(allocation)
                self._freed_bytes += allocation.size
            while self._freed_bytes > _FREED_BYTES:
                self._forget(self._freed.popleft())

    def _forget(self, allocation: Allocation) -> None:
        self._freed_bytes -= allocation.size
        if self.recorder is not None:
            self.recorder.forget(allocation)
        self._untyped.discard(allocation)
        self.memory.give_again(allocation)

    def share(self, address: int) -> bytes:
        """A handle of 64 bytes by which other processes of this host can ``open_shared`` the array that an address lies in, until it
        is freed. Raises ``LaunchError``."""
        self._check_shareable()
        allocation = self.memory.holder(address)
        if allocation is None or allocation.adopted or allocation.host or allocation not in self._arrays:
            raise LaunchError(
                f"memory at {address:#x} cannot be shared with other processes",
                hint="accepted: device memory as of cudaMalloc",
            )
        if self._shared is None:
            self._shared = SharedPages()
        try:
            handle = self._shared.share(allocation).handle
        except OSError as error:
            raise LaunchError(f"{allocation.size:,} bytes cannot be shared: {error.strerror}") from None
        self.memory.mark(allocation, 0, allocation.size)
        return handle

    def open_shared(self, handle: bytes) -> int:
        """The address of an array that another process shares; the same as long as it is not closed as often. Raises
        ``LaunchError``."""
        self._check_shareable()
        shared = Shared.from_handle(handle)
        if shared.process == os.getpid():
            raise LaunchError("a process cannot open memory that it shares itself")
        known = self._opened
        for address, (other, pages, times) in known.items():
            if other == shared:
                known[address] = shared, pages, times + 1
                return address
        pages = self.allocate(shared.span, align=PAGE, written=True)
        self.free(pages, hold=True)
        try:
            shared.map(pages)
        except LaunchError:
            self.free(self.allocate(shared.span, written=True, at=pages))
            raise
        address = self.allocate(shared.size, written=True, at=pages + shared.before)
        known[address] = shared, pages, 1
        return address

    def close_shared(self, address: int) -> None:
        """Undo one ``open_shared``. Raises ``LaunchError``."""
        known = self._opened
        if address not in known:
            raise LaunchError(f"no memory of another process was opened at {address:#x}")
        shared, pages, times = known.pop(address)
        if times > 1:
            known[address] = shared, pages, times - 1
            return
        map_nothing(pages, shared.span)  # first, as freeing clears the memory
        self.free(address, hold=True)
        self.free(self.allocate(shared.span, written=True, at=pages))

    def _check_shareable(self) -> None:
        if not self.memory.mapped:
            raise LaunchError("memory is shared between mapped devices", hint="use Device(mapped=True)")
        followed = self.observe & {"accesses", "footprint", "inputs", "values"}
        if followed:
            raise LaunchError(
                f"{', '.join(sorted(followed))} are observed in memory that no other process writes to"
            )

    def _by_copies(self, *allocations: Allocation | None) -> tuple[Allocation | None, ...]:
        """The two sides of a copy, ``None`` for pinned memory, which is host memory. Records the host's accesses to managed memory."""
        if self.recorder is not None:
            self._touch(item for item in allocations if item)
            self.recorder.host_accessed(item for item in allocations if item and item.host == "managed")
        return tuple(None if item is not None and item.host == "pinned" else item for item in allocations)

    def copy_bytes(self, target: int, source: int, size: int) -> None:
        """Copy so many bytes from one address to another, as ``memmove`` does. Raises ``LaunchError`` for addresses of no memory, and
        ``NotObserved`` for contents that a launch did not compute."""
        self.copy_rows(target, Rows(size), source, Rows(size))

    def copy_rows(self, target: int, into: Rows, source: int, of: Rows) -> None:
        """Copy as many rows from one address to another, in one step. Errors as ``copy_bytes``; what lies between rows is no part
        of it, but must be memory of the same object."""
        size = into.bytes
        if not size:
            return
        to, by = self._holder(target, into.extent, "write"), self._holder(source, of.extent, "read")
        if by is not None:
            self._contents.require(by, "this copy")
        holder, (to, by) = to, self._by_copies(to, by)
        if size == into.extent == of.extent:
            ctypes.memmove(self._host(target), self._host(source), size)
        else:
            np.copyto(into.at(self._host(target)), of.at(self._host(source)))
        if holder is not None:
            self._contents.overwritten(holder, size)
            self._mark(holder, target, into)
        if to is not None:
            sides = [(item, at, rows) for item, at, rows in ((to, target, into), (by, source, of)) if item]
            objects = tuple(self._view(item, at, rows.extent) for item, at, rows in sides)
            self._record("copy" if by is not None else "copy-in", objects, size, [rows for *_, rows in sides])
        elif by is not None:
            view = self._view(by, source, of.extent)
            uses = () if self.recorder is None else self.recorder.host_reads(self._steps, view, of.mask)
            self._append("copy-out", (view,), size, uses)

    def _mark(self, holder: Allocation, target: int, rows: Rows) -> None:
        """Record that the host has written these rows."""
        if rows.bytes == rows.extent:
            self.memory.mark(holder, target - holder.address, rows.bytes)
        elif not holder.initialized:
            start = target - holder.address
            rows.over(self.memory.shadow_of(holder)[start : start + rows.extent])[:] = 1

    def fill_bytes(self, target: int, value: bytes, count: int) -> None:
        """Write ``value``, of any number of bytes, so many times from an address on. Raises ``LaunchError``."""
        self.fill_rows(target, Rows(len(value) * count), value)

    def fill_rows(self, target: int, rows: Rows, value: bytes) -> None:
        """Write ``value`` as often as each of the rows has room for it, in one step. Raises ``LaunchError``."""
        size = rows.bytes
        if not size:
            return
        to = self._holder(target, rows.extent, "write")
        (followed,) = self._by_copies(to)
        whole = to is not None and not to.adopted and (target, size) == (to.address, to.size)
        if to is not None and whole and not any(value) and self.memory.is_fresh(to):
            self.memory.zero(to)
        elif size != rows.extent:
            rows.at(self._host(target))[:] = np.frombuffer(value * (rows.width // len(value)), np.uint8)
        elif value.count(value[0]) == len(value):
            ctypes.memset(self._host(target), value[0], size)
        else:
            ctypes.memmove(self._host(target), value * (size // len(value)), size)
        if to is not None:
            self._contents.overwritten(to, size)
            self._mark(to, target, rows)
        if followed is not None:
            self._record("memset", (self._view(followed, target, rows.extent),), size, [rows])

    @takes_annotated
    def read_bytes(self, source: int, size: int) -> bytes:
        """So many bytes at an address of the device. Raises ``LaunchError``, and ``NotObserved`` for contents that a launch did not
        compute."""
        raw = ctypes.create_string_buffer(as_whole(size, "size", 0))
        self._own_bytes(source, size, "read")
        self.copy_bytes(ctypes.addressof(raw), source, size)
        return raw.raw

    def write_bytes(self, target: int, data: bytes) -> None:
        """Put bytes at an address of the device. Raises ``LaunchError``."""
        raw = ctypes.create_string_buffer(data, len(data))
        self._own_bytes(target, len(data), "write")
        self.copy_bytes(target, ctypes.addressof(raw), len(data))

    def note_written(self, address: int, size: int) -> None:
        """The host has written to these bytes by pointer, or will: reads of them are none of memory that nobody wrote."""
        holder = self._holder(address, size, "write")
        if holder is not None:
            self.memory.mark(holder, address - holder.address, size)

    @takes_annotated
    def name_array(self, address: int, name: str) -> None:
        """Give the array that an address lies in a name, or one of that beginning that no other array has. Raises ``LaunchError``."""
        holder = self._holder(address, 1, "name")
        if holder is not None:
            self._taken.discard(holder.name)
            holder.name = self._unique(name)

    def note_managed(self, address: int, size: int) -> None:
        """The host accesses these bytes by pointer, as ``managed`` memory."""
        self.note_written(address, size)
        holder = self._holder(address, size, "write")
        if holder is not None:
            holder.host = "managed"

    def array_at(self, address: int) -> DeviceArray | None:
        """The array or variable that an address lies in, ``None`` if there is none."""
        holder = self.memory.holder(address)
        known = None if holder is None else self.array_of.get(holder)
        return known

    @property
    def memory_left(self) -> tuple[int, int]:
        """Bytes of global memory that are free, and all there are."""
        return self.memory.capacity - self.memory.used, self.memory.capacity

    # -- variables ------------------------------------------------------------------------------------------------------

    @takes_annotated
    def load(self, module: Module) -> dict[str, DeviceArray]:
        """The variables of a module by name, with memory and initial contents. Raises ``LaunchError`` if they do not fit."""
        self._symbols.check_room(module)
        return {
            name: self._symbols.variable(item)
            for name, item in module.variables.items()
            if item.space in ("global", "const") and item.linkage != "extern"
        }

    @takes_annotated
    def variable(self, module: Module, name: str) -> DeviceArray:
        """The array of a variable of a module. Raises ``UnknownName``."""
        return self._variable(module, name)

    def function_at(self, address: int) -> Function | None:
        """The function whose address a kernel has taken; ``None`` where it is no address of a function."""
        return self._symbols.function_at(address)

    @takes_annotated
    def unload(self, module: Module) -> None:
        """Give back the memory of a module's variables; a later launch loads them anew."""
        for item in module.variables.values():
            array = self._symbols.variables.pop(item, None)
            if array is not None and not array.allocation.freed:
                self.memory.free(array.allocation, again=not self._refers_back)
                if not self._refers_back:
                    self.array_of.pop(array.allocation, None)
        self._launched.discard(module)

    # -- addresses ------------------------------------------------------------------------------------------------------

    def _know(self, allocation: Allocation, array: DeviceArray | None = None) -> None:
        kind = UNKNOWN if self.recorder is not None else np.dtype(np.uint8)
        known = array or DeviceArray(self, allocation, 0, (allocation.size,), kind)
        if known.dtype == UNKNOWN:
            self._untyped.add(allocation)
        self.array_of[allocation] = self._arrays[allocation] = known.recorded()
        self.origins[allocation] = self._steps
        self._taken.add(allocation.name)

    def _own_allocation(self, array: DeviceArray) -> Allocation:
        self._own(array)
        return array.allocation

    def _starting_at(self, address: int) -> Allocation | None:
        below = self.memory.below(address)
        return below if below is not None and below.address == address else None

    def _view(self, allocation: Allocation, start: int, size: int) -> DeviceArray:
        return DeviceArray(self, allocation, start - allocation.address, (size,), np.dtype(np.uint8))

    def _holder(self, address: int, size: int, what: str) -> Allocation | None:
        """The allocation that holds so many bytes, ``None`` for memory of the host. Raises ``LaunchError``."""
        holder = self.memory.holder(address)
        if holder is not None and address + size <= holder.end and holder.kind != "param":
            return holder
        outside = holder is None and not self.memory.is_arena(address, size)
        if outside and FIRST <= address < 1 << 63:  # lower addresses belong to no process
            return None
        near = "in no array" if holder is None else f"past the end of {holder.called} ({holder.size:,} bytes)"
        raise LaunchError(f"cannot {what} {size:,} bytes at {address:#x}: that is {near}")

    def _own_bytes(self, address: int, size: int, what: str) -> None:
        """Raises ``LaunchError`` unless so many bytes are in memory of the device."""
        if size and self._holder(address, size, what) is None:
            raise LaunchError(
                f"cannot {what} {size:,} bytes at {address:#x}: that is not memory of this device"
            )

    def _host(self, address: int) -> int:
        """The host address of a device or host address."""
        memory = self.memory
        return memory.host - memory.origin + address if memory.is_arena(address, 1) else address
