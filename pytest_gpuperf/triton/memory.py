"""The memory of a Triton program: torch's CPU allocations are in memory of the device.

torch's CPU allocator uses ``posix_memalign`` and ``free`` of the C library, called from ``libc10.so``. These two functions are
replaced for that library, so each tensor is a separate allocation of the device, whose bounds are checked in kernels. Other memory
that is passed to a launch (NumPy arrays, tensors that share memory with them, older tensors) is adopted for that launch.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError

from .imported_functions import library_base, replace, slots_of
from .signals import Deferred
from .usage import BLOCK, Usage

if TYPE_CHECKING:
    from gpuperf_engine import Device
    from gpuperf_engine.memory.arrays import DeviceArray

__all__ = ["TorchMemory", "storage_of"]

_LIBRARY = "libc10.so"
_FOREIGN = "an array of the host"
_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class TorchMemory:
    """``device``: a device with mapped memory."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._lock = threading.RLock()
        #: nesting depth of changes to the memory and of launches that use it, during which frees are deferred
        self._busy = 0
        self._waiting: list[int] = []
        libc = ctypes.CDLL(None)
        self._real_allocate, self._real_free = _Allocate(("posix_memalign", libc)), _Free(("free", libc))
        self._callbacks = _Allocate(self._allocate), _Free(self._free)
        self.signals: Deferred | None = None
        self._slots: dict[str, list[int]] = {}
        #: sizes of tensors on the GPU by address; all other tensors are on the host
        self._of_gpu: dict[int, int] = {}
        #: of the tensors on the GPU
        self.usage = Usage()
        #: ``on_gpu``: whether tensors that this thread allocates are on the GPU
        self.placing = threading.local()

    @property
    def taken_over(self) -> bool:
        """Whether torch allocates memory of the device."""
        return bool(self._slots)

    def is_of_gpu(self, address: int) -> bool:
        """Whether the tensor whose memory begins at an address is on the GPU. All are if torch does not allocate memory of the
        device."""
        return address in self._of_gpu or not address or not self._slots

    def take_over(self) -> bool:
        """Make torch allocate memory of the device from now on. Returns whether that is possible; otherwise each tensor is adopted
        for its launches."""
        base = library_base(_LIBRARY)
        slots = slots_of(base, ("posix_memalign", "free")) if base is not None else {}
        if not slots or not all(slots.values()):
            return False
        signals = Deferred(*(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._callbacks))
        try:
            replace(slots, {"free": signals.functions["free"]})
            replace(slots, {"posix_memalign": signals.functions["allocate"]})
        except OSError:
            return False
        self._slots = slots
        self.signals = signals
        signals.install()
        atexit.register(self._let_go)
        return True

    def _let_go(self) -> None:
        """Before Python is finalised: restore the C library's functions, as callbacks may not be called after that. Later frees are
        ignored."""
        libc = ctypes.CDLL(None)
        address_of = {
            name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
            for name in ("posix_memalign", "abs")
        }
        # abs has no side effect
        replace(self._slots, {"posix_memalign": address_of["posix_memalign"], "free": address_of["abs"]})

    # -- callbacks of torch -------------------------------------------------------------------------------------------

    def _allocate(self, result: ctypes._Pointer[ctypes.c_void_p], alignment: int, size: int) -> int:
        try:
            with self._lock:
                self._busy += 1
                try:
                    align = max(alignment, BLOCK)
                    address = self.device.allocate(
                        size, name="a tensor", align=align, pad=None, host="managed"
                    )
                finally:
                    self._busy -= 1
                self._settle()
                if getattr(self.placing, "on_gpu", True):
                    self._of_gpu[address] = size
                    self.usage.add(size)
        except EngineError:
            return errno.ENOMEM
        result[0] = address
        return 0

    def _free(self, address: int | None) -> None:
        if address is None or not self.device.memory.is_arena(address, 1):
            self._real_free(address)
            return
        self._waiting.append(address)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Execute deferred frees, unless the memory may be in use."""
        while self._waiting and not self._busy:
            self._busy += 1
            try:
                address = self._waiting.pop()
                size = self._of_gpu.pop(address, None)
                if size is not None:
                    self.usage.remove(size)
                self.device.free(address)
            finally:
                self._busy -= 1

    # -- for launches -------------------------------------------------------------------------------------------------

    def during_launch(self, arguments: Iterable[object]) -> DuringLaunch:
        """Defers frees, and makes all arguments that are tensors or arrays device memory. Raises ``EngineError``."""
        return DuringLaunch(self, arguments)

    def begin(self) -> None:
        """Defer frees until ``end``."""
        self._lock.acquire()
        self._busy += 1

    def end(self) -> None:
        """Execute deferred frees, unless others defer them too."""
        try:
            self._busy -= 1
            self._settle()
        finally:
            self._lock.release()


class DuringLaunch:
    """What holds during a launch: memory that the device has not allocated is adopted, or, while values are observed, copied to the
    device and back, as only allocations of the device are observed."""

    def __init__(self, memory: TorchMemory, arguments: Iterable[object]) -> None:
        self._memory = memory
        self._arguments = arguments
        self._adopted: list[DeviceArray] = []
        self._copied: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Mapping[int, tuple[int, int]]:
        """The copies: size and device address by host address."""
        self._memory.begin()
        try:
            is_arena = self._memory.device.memory.is_arena
            foreign = [item for item in self._arguments if not _is_within(item, is_arena)]
            if foreign:
                self._move(foreign)
        except BaseException:
            self.__exit__()
            raise
        return self._copied

    def __exit__(self, *_: object) -> None:
        device = self._memory.device
        try:
            for array in self._adopted:
                device.free(array)
            for start, (size, address) in self._copied.items():
                ctypes.memmove(start, address, size)
                device.free(address)
        finally:
            self._memory.end()

    def _move(self, arguments: Iterable[object]) -> None:
        device = self._memory.device
        bounds: dict[int, int] = {}
        for argument in arguments:
            start, size = storage_of(argument)
            if size and not device.memory.is_arena(start, size):
                bounds[start] = max(bounds.get(start, 0), size)
        end = 0
        for start, size in sorted(bounds.items()):
            if start < end:
                continue  # a part of the previous range
            end = start + size
            if device.recorder is None:
                self._adopted.append(device.adopt(start, size, name=_FOREIGN))
            else:
                address = device.allocate(size, name=_FOREIGN, pad=None, host="managed")
                self._copied[start] = size, address
                ctypes.memmove(address, start, size)


def _is_within(argument: Any, is_arena: Callable[[int, int], bool]) -> bool:
    """Whether an argument is a tensor in memory of the device, or a number."""
    data_ptr = getattr(argument, "data_ptr", None)
    if data_ptr is None:
        return argument is None or isinstance(argument, (int, float))
    return is_arena(data_ptr(), 1)


def storage_of(argument: Any) -> tuple[int, int]:
    """Address and size in bytes of the whole memory of a tensor or array; size 0 for other objects."""
    storage = getattr(argument, "untyped_storage", None)
    while storage is None and hasattr(argument, "data_ptr") and hasattr(argument, "base"):
        argument = argument.base  # the result of triton.reinterpret, which wraps a tensor
        storage = getattr(argument, "untyped_storage", None)
    if storage is not None:
        whole = storage()
        return int(whole.data_ptr()), int(whole.nbytes())
    if hasattr(argument, "__array_interface__"):
        import numpy as np

        base = argument
        while isinstance(base.base, np.ndarray):
            base = base.base
        low, high = np.lib.array_utils.byte_bounds(base)
        return low, high - low
    return 0, 0
