"""The functions of CUDA's driver that Numba calls (``cuda.bindings.driver``), on a device of the engine.

Each returns a tuple as those of ``cuda.bindings`` do: the result's code, then the values. Calls execute in order and synchronously, so
streams and events are only numbers.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, SupportsInt, TypeAlias

from cuda.bindings import driver as binding

from gpuperf_engine.cudart.codes import code_of
from gpuperf_engine.errors import EngineError, LaunchError, UnknownName
from gpuperf_engine.memory.shared_pages import HANDLE_BYTES

from .device import NumbaDevice

if TYPE_CHECKING:
    from gpuperf_engine import DeviceArray, Kernel, Module

__all__ = ["PRIMARY", "Functions", "result_of"]

#: a stream, or None for the default one
Stream: TypeAlias = "binding.CUstream | None"

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_INVALID_CONFIGURATION = 9  # cudaErrorInvalidConfiguration
PRIMARY = 1
"""The handle of the device's primary context."""
_DEVICE_MAP = 2  # CU_MEMHOSTREGISTER_DEVICEMAP (cuda.h)


class Functions:
    """A method for each function; ``modules`` and ``kernels`` by the number of their handles."""

    def __init__(self, device: NumbaDevice) -> None:
        self.device = device
        self.modules: dict[int, Module] = {}
        self.kernels: dict[int, Kernel] = {}
        self._numbers = count(0x1000)
        self._contexts = threading.local()
        self._times: dict[int, float] = {}
        self._registered: dict[int, DeviceArray | None] = {}

    def number(self) -> int:
        """Return a new handle."""
        return next(self._numbers)

    def install(self, module: ModuleType) -> None:
        """Install the functions in ``cuda.bindings.driver``; its other functions return that they are not supported."""
        for name in dir(module):
            if name.startswith("cu") and name[2:3].isupper() and callable(getattr(module, name)):
                setattr(module, name, self._wrapped(name))

    def _wrapped(self, name: str) -> Callable[..., tuple[object, ...]]:
        act = getattr(self, name, None)

        def call(*arguments: object, **named: object) -> tuple[object, ...]:
            if act is None:
                return (binding.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
            try:
                result = act(*arguments, **named)
            except EngineError as error:
                return (result_of(error),)
            values = result if isinstance(result, tuple) else () if result is None else (result,)
            return (binding.CUresult.CUDA_SUCCESS, *values)

        call.__name__ = name
        return call

    # -- the device ---------------------------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> None: ...

    def cuDriverGetVersion(self) -> int:
        return int(binding.CUDA_VERSION)

    def cuDeviceGetCount(self) -> int:
        return 1

    def cuDeviceGet(self, number: int) -> binding.CUdevice:
        return binding.CUdevice(number)

    def cuDeviceGetAttribute(self, attribute: binding.CUdevice_attribute, device: binding.CUdevice) -> int:
        return self.device.attribute(int(attribute))

    def cuDeviceCanAccessPeer(self, device: binding.CUdevice, peer: binding.CUdevice) -> int:
        return 0

    def _stack(self) -> list[binding.CUcontext]:
        if not hasattr(self._contexts, "stack"):
            self._contexts.stack = []
        stack: list[binding.CUcontext] = self._contexts.stack
        return stack

    def cuCtxGetCurrent(self) -> binding.CUcontext:
        stack = self._stack()
        return stack[-1] if stack else binding.CUcontext(0)

    def cuCtxPushCurrent(self, context: binding.CUcontext) -> None:
        self._stack().append(context)

    def cuCtxPopCurrent(self) -> binding.CUcontext:
        return self._stack().pop()

    def cuCtxCreate(self, *arguments: object) -> binding.CUcontext:
        """``flags, device``, since CUDA 13 after parameters."""
        context = binding.CUcontext(self.number())
        self._stack().append(context)
        return context

    def cuCtxDestroy(self, context: binding.CUcontext) -> None:
        self._contexts.stack = [other for other in self._stack() if int(other) != int(context)]

    def cuCtxGetDevice(self) -> binding.CUdevice:
        return binding.CUdevice(0)

    def cuCtxSynchronize(self) -> None: ...

    def cuDevicePrimaryCtxRetain(self, device: binding.CUdevice) -> binding.CUcontext:
        return binding.CUcontext(PRIMARY)

    def cuDevicePrimaryCtxRelease(self, device: binding.CUdevice) -> None: ...

    def cuDevicePrimaryCtxReset(self, device: binding.CUdevice) -> None: ...

    def cuProfilerStart(self) -> None: ...

    def cuProfilerStop(self) -> None: ...

    # -- memory -------------------------------------------------------------------------------------------------------

    def _allocated(self, size: int, host: str) -> int:
        if not size:
            raise LaunchError("an allocation of 0 bytes")
        return self.device.device.allocate(int(size), name="a device array", host=host)

    def cuMemAlloc(self, size: int) -> binding.CUdeviceptr:
        return binding.CUdeviceptr(self._allocated(size, ""))

    def cuMemAllocManaged(self, size: int, flags: int) -> binding.CUdeviceptr:
        return binding.CUdeviceptr(self._allocated(size, "managed"))

    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        return self._allocated(size, "pinned")

    def cuMemFree(self, address: SupportsInt) -> None:
        self.device.device.free(int(address))

    cuMemFreeHost = cuMemFree

    def cuMemHostRegister(self, address: SupportsInt, size: int, flags: int) -> None:
        array = (
            self.device.device.adopt(int(address), int(size), name="pinned memory")
            if flags & _DEVICE_MAP and self.device.device.recorder is None
            else None
        )
        self._registered[int(address)] = array

    def cuMemHostUnregister(self, address: SupportsInt) -> None:
        array = self._registered.pop(int(address), None)
        if array is not None:
            self.device.device.free(array)

    def cuMemHostGetDevicePointer(self, address: SupportsInt, flags: int) -> binding.CUdeviceptr:
        return binding.CUdeviceptr(int(address))

    def cuMemGetInfo(self) -> tuple[int, int]:
        return self.device.device.memory_left

    def cuMemGetAddressRange(self, address: SupportsInt) -> tuple[binding.CUdeviceptr, int]:
        held = self.device.device.array_at(int(address))
        if held is None:
            raise LaunchError(f"nothing was allocated at {int(address):#x}")
        return binding.CUdeviceptr(held.address), held.nbytes

    def cuIpcGetMemHandle(self, address: SupportsInt) -> binding.CUipcMemHandle:
        handle = binding.CUipcMemHandle()
        shared = self.device.device.share(int(address))
        ctypes.memmove(handle.getPtr(), shared, len(shared))
        return handle

    def cuIpcOpenMemHandle(self, handle: binding.CUipcMemHandle, flags: int) -> binding.CUdeviceptr:
        return binding.CUdeviceptr(
            self.device.device.open_shared(ctypes.string_at(handle.getPtr(), HANDLE_BYTES))
        )

    def cuIpcCloseMemHandle(self, address: SupportsInt) -> None:
        self.device.device.close_shared(int(address))

    def cuPointerGetAttribute(
        self, attribute: binding.CUpointer_attribute, address: SupportsInt
    ) -> binding.CUdeviceptr | int:
        known = binding.CUpointer_attribute
        if attribute == known.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return 0
        if attribute != known.CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            raise LaunchError(f"{attribute.name} is not known of memory")
        return binding.CUdeviceptr(int(address))

    def cuMemcpyHtoD(self, target: SupportsInt, source: SupportsInt, size: int) -> None:
        if size:
            self.device.device.copy_bytes(int(target), int(source), int(size))

    def cuMemcpyHtoDAsync(self, target: SupportsInt, source: SupportsInt, size: int, stream: Stream) -> None:
        self.cuMemcpyHtoD(target, source, size)

    cuMemcpyDtoH = cuMemcpyDtoD = cuMemcpyHtoD
    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemsetD8(self, target: SupportsInt, value: int, size: int) -> None:
        if size:
            self.device.device.fill_bytes(int(target), bytes([int(value) & 0xFF]), int(size))

    def cuMemsetD8Async(self, target: SupportsInt, value: int, size: int, stream: Stream) -> None:
        self.cuMemsetD8(target, value, size)

    # -- streams and events -------------------------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int) -> binding.CUstream:
        return binding.CUstream(self.number())

    def cuStreamDestroy(self, stream: Stream) -> None: ...

    def cuStreamQuery(self, stream: Stream) -> None: ...

    def cuStreamSynchronize(self, stream: Stream) -> None: ...

    def cuStreamWaitEvent(self, stream: Stream, event: binding.CUevent, flags: int) -> None: ...

    def cuStreamAddCallback(
        self, stream: Stream, callback: SupportsInt, data: SupportsInt, flags: int
    ) -> None:
        _Callback(int(callback))(int(stream or 0), 0, int(data))

    def cuEventCreate(self, flags: int) -> binding.CUevent:
        # CU_EVENT_DISABLE_TIMING is 2 (cuda.h): without it times are predicted from now on
        self.device.timing |= not flags & 2
        return binding.CUevent(self.number())

    def cuEventDestroy(self, event: binding.CUevent) -> None:
        self._times.pop(int(event), None)

    def cuEventRecord(self, event: binding.CUevent, stream: Stream) -> None:
        self._times[int(event)] = self.device.elapsed_us

    def cuEventQuery(self, event: binding.CUevent) -> None: ...

    def cuEventSynchronize(self, event: binding.CUevent) -> None: ...

    def cuEventElapsedTime(self, start: binding.CUevent, end: binding.CUevent) -> float:
        return max(self._times[int(end)] - self._times[int(start)], 1e-3) / 1000

    # -- modules and kernels ------------------------------------------------------------------------------------------

    def cuLibraryUnload(self, library: binding.CUlibrary) -> None:
        module = self.modules.pop(int(library), None)
        if module is not None:
            self.device.device.unload(module)

    def cuLibraryGetGlobal(self, library: binding.CUlibrary, name: bytes) -> tuple[binding.CUdeviceptr, int]:
        array = self.device.device.variable(self.modules[int(library)], name.decode())
        return binding.CUdeviceptr(array.address), array.nbytes

    def cuKernelSetCacheConfig(
        self, kernel: binding.CUkernel, config: binding.CUfunc_cache, device: binding.CUdevice
    ) -> None: ...

    def cuKernelSetAttribute(
        self,
        attribute: binding.CUfunction_attribute,
        value: int,
        kernel: binding.CUkernel,
        device: binding.CUdevice,
    ) -> None: ...

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, kernel: binding.CUkernel, threads: int, shared: int
    ) -> int:
        return self.device.resident(self.kernels[int(kernel)], threads, shared)

    def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, kernel: binding.CUkernel, threads: int, shared: int, flags: int
    ) -> int:
        return self.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, threads, shared)


def result_of(error: EngineError) -> binding.CUresult:
    """The ``CUresult`` for an error."""
    results = binding.CUresult
    if isinstance(error, UnknownName):
        return results.CUDA_ERROR_NOT_FOUND
    if "bytes of device memory are left" in error.message:
        return results.CUDA_ERROR_OUT_OF_MEMORY
    code = code_of(error, running=not isinstance(error, LaunchError))
    # only the runtime has a code for invalid configurations
    return results.CUDA_ERROR_INVALID_VALUE if code == _INVALID_CONFIGURATION else results(code)
