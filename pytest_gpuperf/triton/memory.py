"""The memory of a Triton program: what torch allocates on the CPU lies in the memory of the device.

torch's CPU allocator is ``posix_memalign`` and ``free`` of the C library, called from ``libc10.so``. These two are replaced for that
library: each tensor is then an allocation of the device by itself, and kernels are held to its bounds. Other memory that a launch is
given (NumPy arrays, tensors made from them, tensors from before) is adopted for that launch.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError

from .imported_functions import library_base, replace, slots_of
from .signals import Deferred

if TYPE_CHECKING:
    from gpuperf_engine import Device
    from gpuperf_engine.memory.arrays import DeviceArray

__all__ = ["TorchMemory", "storage_of"]

_LIBRARY = "libc10.so"
#: of torch's CUDA allocator (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize): addresses are multiples of it
_ALIGNMENT = 512
_FOREIGN = "an array of the host"
_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class TorchMemory:
    """``device``: a mapped one."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._lock = threading.RLock()
        #: whether memory is being changed, or a launch uses it: what is freed meanwhile waits
        self._busy = 0
        self._waiting: list[int] = []
        libc = ctypes.CDLL(None)
        self._real_allocate, self._real_free = _Allocate(("posix_memalign", libc)), _Free(("free", libc))
        self._callbacks = _Allocate(self._allocate), _Free(self._free)
        self.signals: Deferred | None = None
        self._slots: dict[str, list[int]] = {}
        #: addresses of tensors of the GPU; the others are the host's
        self._of_gpu: set[int] = set()
        #: ``on_gpu``: whether what this thread allocates is for tensors of the GPU
        self.placing = threading.local()

    @property
    def taken_over(self) -> bool:
        """Whether torch allocates here."""
        return bool(self._slots)

    def is_of_gpu(self, address: int) -> bool:
        """Whether the tensor whose memory begins there would be on the GPU. All are where torch does not allocate here."""
        return address in self._of_gpu or not address or not self._slots

    def take_over(self) -> bool:
        """Let torch allocate here from now on; whether that is possible (else every tensor is adopted for its launches)."""
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
        """Python ends: nothing of it may be called any more. What torch frees from now on is left to the system."""
        libc = ctypes.CDLL(None)
        address_of = {
            name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
            for name in ("posix_memalign", "abs")
        }
        # a function that does nothing takes the place of free
        replace(self._slots, {"posix_memalign": address_of["posix_memalign"], "free": address_of["abs"]})

    # -- called by torch ----------------------------------------------------------------------------------------------

    def _allocate(self, result: ctypes._Pointer[ctypes.c_void_p], alignment: int, size: int) -> int:
        try:
            with self._lock:
                self._busy += 1
                try:
                    align = max(alignment, _ALIGNMENT)
                    address = self.device.allocate(
                        size, name="a tensor", align=align, pad=None, host="managed"
                    )
                finally:
                    self._busy -= 1
                self._settle()
        except EngineError:
            return errno.ENOMEM
        if getattr(self.placing, "on_gpu", True):
            self._of_gpu.add(address)
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
        """Give back what is free, unless it may be in use."""
        while self._waiting and not self._busy:
            self._busy += 1
            try:
                address = self._waiting.pop()
                self._of_gpu.discard(address)
                self.device.free(address)
            finally:
                self._busy -= 1

    # -- for launches -------------------------------------------------------------------------------------------------

    @contextmanager
    def during_launch(self, arguments: Iterable[object]) -> Iterator[Mapping[int, tuple[int, int]]]:
        """Nothing is freed meanwhile, and all of these arguments that are tensors or arrays are memory of the device: where values are
        observed, which they are in memory of the device alone, what it has not allocated is copied there and back. Gives where.
        Raises ``EngineError``."""
        with self._lock:
            self._busy += 1
            adopted: list[DeviceArray] = []
            copied: dict[int, tuple[int, int]] = {}
            try:
                for start, size in self._foreign(arguments):
                    if self.device.recorder is None:
                        adopted.append(self.device.adopt(start, size, name=_FOREIGN))
                    else:
                        copied[start] = (
                            size,
                            self.device.allocate(size, name=_FOREIGN, pad=None, host="managed"),
                        )
                        ctypes.memmove(copied[start][1], start, size)
                yield copied
            finally:
                for array in adopted:
                    self.device.free(array)
                for start, (size, address) in copied.items():
                    ctypes.memmove(start, address, size)
                    self.device.free(address)
                self._busy -= 1
                self._settle()

    def _foreign(self, arguments: Iterable[object]) -> Iterator[tuple[int, int]]:
        """Address and bytes of what the device has not allocated."""
        bounds: dict[int, int] = {}
        for argument in arguments:
            start, size = storage_of(argument)
            if size and not self.device.memory.is_arena(start, size):
                bounds[start] = max(bounds.get(start, 0), size)
        end = 0
        for start, size in sorted(bounds.items()):
            if start < end:
                continue  # a part of one that is there already
            end = start + size
            yield start, size


def storage_of(argument: Any) -> tuple[int, int]:
    """Address and bytes of the memory behind a tensor or array, all of it; no bytes for others."""
    storage = getattr(argument, "untyped_storage", None)
    while storage is None and hasattr(argument, "data_ptr") and hasattr(argument, "base"):
        argument = argument.base  # what triton.reinterpret has made: a tensor in the types of Triton
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
