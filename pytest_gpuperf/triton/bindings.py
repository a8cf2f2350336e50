"""What the Python code of ``torch.cuda`` and ``torch.accelerator`` calls in C++, for a device that torch was not built for. Imports
torch."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .placement import one_device

if TYPE_CHECKING:
    from .device import TritonDevice

__all__ = ["nothing", "take_over"]

_Function = Callable[..., object]
#: the CUDA that the driver stands for, if torch names none
_CUDA_VERSION = "13.0"


def nothing(*_: object, **__: object) -> None:
    """Does what is complete already, or has no effect here."""


def take_over(device: TritonDevice, stream: object) -> None:
    """Replace the functions of ``torch._C``, NVTX and the CUDA runtime that Python code calls. ``stream``: the only one."""
    for name, function in {**_cuda(device), **_accelerator(device, stream)}.items():
        setattr(torch._C, name, function)
    torch.cuda._initialized = True
    torch.cuda._cudart = _runtime(device)
    torch.cuda.check_error = _check_error
    torch.cuda.profiler.check_error = _check_error
    torch.cuda.nvtx._nvtx = _markers()
    _with_activity_of_gpu()
    torch.version.cuda = torch.version.cuda or _CUDA_VERSION


def _with_activity_of_gpu() -> None:
    """``torch.profiler`` may record the GPU, of which it then finds nothing. Otherwise it would record CUDA events at each operator,
    and print an error for each."""
    supported = torch.autograd._supported_activities

    def activities() -> set[torch.profiler.ProfilerActivity]:
        return {*supported(), torch._C._profiler.ProfilerActivity.CUDA}

    torch.autograd._supported_activities = torch.autograd.profiler._supported_activities = activities


def _set_device(number: int) -> None:
    one_device(number)


def _cuda(device: TritonDevice) -> dict[str, _Function]:
    """Functions behind ``torch.cuda``. There is no cache of freed memory, so nothing is reserved that is not in use."""
    usage = device.memory.usage
    settings = {"fraction": 1.0, "debug": 0}

    def set_fraction(fraction: float, *_: object) -> None:
        settings["fraction"] = fraction

    def set_debug(mode: int) -> None:
        settings["debug"] = mode

    return {
        "_cuda_getDevice": lambda: 0, "_cuda_getDeviceCount": lambda: 1, "_cuda_setDevice": _set_device,
        "_cuda_synchronize": nothing, "_cuda_isInBadFork": lambda: False,
        "_cuda_memoryStats": lambda *_: usage.statistics(), "_cuda_resetPeakMemoryStats": lambda *_: usage.reset_peak(),
        "_cuda_resetAccumulatedMemoryStats": lambda *_: usage.reset_accumulated(),
        "_cuda_hostMemoryStats": lambda *_: {}, "_cuda_resetPeakHostMemoryStats": nothing,
        "_cuda_resetAccumulatedHostMemoryStats": nothing, "_cuda_emptyCache": nothing,
        "_cuda_memorySnapshot": lambda *_: {"segments": [], "device_traces": [[]], "allocator_settings": {}},
        "_cuda_record_memory_history": nothing, "_cuda_record_memory_history_legacy": nothing,
        "_cuda_getMemoryFraction": lambda *_: settings["fraction"], "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getAllocatorBackend": lambda: "native", "_cuda_getCurrentBlasHandle": lambda: 0,
        "_cuda_get_sync_debug_mode": lambda: settings["debug"], "_cuda_set_sync_debug_mode": set_debug,
        "_cuda_sleep": nothing, "_host_emptyCache": nothing,
    }  # fmt: skip


def _accelerator(device: TritonDevice, stream: object) -> dict[str, _Function]:
    """Functions behind ``torch.accelerator``. C++ sees none, see ``inductor``."""
    usage = device.memory.usage

    def exchange(number: int) -> int:
        one_device(number)
        return 0

    return {
        "_get_accelerator": lambda *_: torch.device("cuda"), "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": lambda: 0, "_accelerator_setDeviceIndex": _set_device,
        "_accelerator_exchangeDevice": exchange, "_accelerator_maybeExchangeDevice": exchange,
        "_accelerator_getStream": lambda *_: stream, "_accelerator_setStream": nothing,
        "_accelerator_synchronizeDevice": nothing, "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": nothing, "_accelerator_emptyHostCache": nothing,
        "_accelerator_getDeviceStats": lambda *_: usage.statistics(),
        "_accelerator_resetAccumulatedStats": lambda *_: usage.reset_accumulated(),
        "_accelerator_resetPeakStats": lambda *_: usage.reset_peak(),
        "_accelerator_getMemoryInfo": lambda *_: device.device.memory_left,
    }  # fmt: skip


class _Code(int):
    """A code of the CUDA runtime."""

    success = 0


def _runtime(device: TritonDevice) -> types.SimpleNamespace:
    """The functions of the CUDA runtime that torch offers (torch/csrc/cuda/shared/cudart.cpp), with their results."""
    return types.SimpleNamespace(
        cudaError=_Code,
        cudaGetErrorString=lambda code: "no error" if not code else f"error {int(code)}",
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaHostRegister=lambda *_: 0,
        cudaHostUnregister=lambda *_: 0,
        cudaDeviceSynchronize=lambda: 0,
        cudaStreamCreate=lambda *_: 0,
        cudaStreamDestroy=lambda *_: 0,
        cudaMemGetInfo=lambda *_: device.device.memory_left,
    )


def _check_error(code: int) -> None:
    """``torch.cuda.check_error``: raises ``CudaError`` for a code other than success."""
    if int(code) != 0:
        raise torch.cuda.CudaError(code)


def _markers() -> types.SimpleNamespace:
    """NVTX without a profiler: ranges are counted, as the functions return their depth or number."""
    depth, last = [0], [0]

    def push(message: str) -> int:
        depth[0] += 1
        return depth[0] - 1

    def pop() -> int:
        depth[0] -= 1
        return depth[0]

    def start(message: str) -> int:
        last[0] += 1
        return last[0]

    return types.SimpleNamespace(
        rangePushA=push, rangePop=pop, rangeStartA=start, rangeEnd=nothing, markA=nothing,
        deviceRangeStart=lambda message, stream: object(), deviceRangeEnd=nothing,
    )  # fmt: skip
