"""Triton's driver for CUDA, with the engine in place of the CUDA driver. Imports Triton.

Triton's NVIDIA backend is used with two changes: the last stage of compilation, ``ptxas``, is left out, so that the binary is the
PTX; and calls of CUDA are replaced by functions of the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import triton
from triton._C import libtriton
from triton.backends import backends
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.backends.nvidia import driver as nvidia_driver
from triton.runtime import _allocation
from triton.runtime.driver import driver as active_driver

from ..programs.imports import after_import
from . import benchmark, machine_code, profiler
from .arguments import Packer, Signature, argument_names, named_pointers, pointer_of
from .descriptors import expand_signature, with_tensor_maps
from .device import TritonDevice

if TYPE_CHECKING:
    from contextvars import ContextVar

    import torch
    from triton.compiler import ASTSource
    from triton.compiler.compiler import IRSource

    from gpuperf_engine import Kernel

    from .cublas import CublasLt

__all__ = ["EngineDriver", "Hook", "Launcher", "activate", "leave_out_ptxas"]


_COMPILER = f"triton {triton.__version__}"
Hook = Callable[[object], object]
"""Called with the metadata of a launch, before or after it."""
Allocator = Callable[[int, int, int], object]
"""From size in bytes, alignment and stream to an object that owns the memory."""


class KernelMetadata(Protocol):
    """The metadata of a compiled kernel that the driver uses."""

    num_warps: int
    num_ctas: int
    shared: int
    global_scratch_size: int
    global_scratch_align: int
    profile_scratch_size: int
    profile_scratch_align: int
    launch_cooperative_grid: bool


class Utils:
    """Replaces Triton's ``CudaUtils``."""

    def __init__(self, device: TritonDevice) -> None:
        self._device = device
        self._kernels: dict[int, Kernel] = {}

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spilled registers, and threads of the largest block."""
        kernel, registers, spills, threads = self._device.load(name, binary.decode())
        handle = id(kernel)
        self._kernels[handle] = kernel
        return handle, handle, registers, spills, threads

    def unload_module(self, module: int) -> None:
        kernel = self._kernels.pop(module, None)
        if kernel is not None:
            self._device.device.unload(kernel.module)

    def kernel(self, function: int) -> Kernel:
        return self._kernels[function]

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_default_stream(self, device: int) -> int:
        return 0

    def is_stream_capturing(self, stream: int) -> bool:
        return False

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._device.machine.compute_capability

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        return self._device.properties

    def cuOccupancyMaxActiveClusters(self, function: int, shared: int, x: int, y: int, z: int) -> int:
        return max(1, self._device.machine.sm_count // (x * y * z))

    def set_printf_fifo_size(self, size: int) -> None:
        self._device.device.printf_bytes = size

    def fill_tma_descriptor_tiled(self, *fields: Any) -> bytes:
        return self._device.tensor_map(*fields)

    def fill_tma_descriptor_im2col(self, *fields: Any) -> bytes:
        return self._device.im2col_tensor_map(*fields)


class Launcher:
    """Replaces Triton's launcher: created for each compiled kernel, and called with a grid and arguments."""

    def __init__(self, src: ASTSource | IRSource, metadata: KernelMetadata) -> None:
        signature: dict[str | int, Signature | str] = dict(src.signature.items())
        tensor_maps = getattr(metadata, "tensordesc_meta", None)
        self._signature = expand_signature(signature, tensor_maps)
        self._packer = Packer(self._signature, addresses=2)
        self._names = () if tensor_maps else argument_names(signature, getattr(src, "fn", None))
        self._metadata = metadata
        self._launch = with_tensor_maps(self._launch_expanded, signature, tensor_maps)

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: int, packed: object, launch_metadata: object,
        enter: Hook | None, leave: Hook | None, *arguments: object,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        self._launch(x, y, z, stream, function, launch_metadata, enter, leave, arguments)

    def _scratch(
        self, size: int, align: int, grid: int, allocator: ContextVar[Allocator], stream: int
    ) -> object:
        if not size:
            return None
        return allocator.get()(grid * self._metadata.num_ctas * size, align, stream)

    def _all_scratch(self, driver: EngineDriver, grid: int, stream: int) -> tuple[object, object]:
        """Scratch memory of a launch, and that of Triton's profiler."""
        metadata = self._metadata
        own = self._scratch(
            metadata.global_scratch_size, metadata.global_scratch_align, grid, _allocation._allocator, stream
        )
        size, align = metadata.profile_scratch_size, metadata.profile_scratch_align
        # before Triton 3.8 there is always a profile allocator
        if size and not getattr(_allocation, "has_profile_allocator", lambda: True)():
            return own, driver.allocate_default_profile_scratch(
                grid * metadata.num_ctas * size, align, stream
            )
        return own, self._scratch(size, align, grid, _allocation._profile_allocator, stream)

    def _launch_expanded(
        self, x: int, y: int, z: int, stream: int, function: int, launch_metadata: Any, enter: Hook | None, leave: Hook | None,
        arguments: Sequence[object],
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        metadata, driver, packer = self._metadata, active_driver.active, self._packer
        own = profile = None
        if metadata.global_scratch_size or metadata.profile_scratch_size:
            own, profile = self._all_scratch(driver, x * y * z, stream)
        if enter is not None:
            enter(launch_metadata)
        with _without_modes():
            values = packer.values(arguments)
            driver.device.launch(
                driver.utils.kernel(function),
                (x, y, z),
                32 * metadata.num_warps,
                packer.pack(values, pointer_of(own), pointer_of(profile)),
                [*values, own, profile],
                shared_bytes=metadata.shared,
                ctas=metadata.num_ctas,
                cooperative=metadata.launch_cooperative_grid,
                compiler=_COMPILER,
                named=None
                if driver.device.device.recorder is None
                else named_pointers(self._names, self._signature, arguments),
            )
        if leave is not None:
            leave(launch_metadata)


def _without_modes() -> AbstractContextManager[object]:
    """Run without torch's Python modes, whose overhead for calls on tensors exceeds the calls themselves. A program may not have
    torch."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch._C.DisableTorchFunction()


class EngineDriver(nvidia_driver.CudaDriver):  # type: ignore[misc]
    """Triton's driver for CUDA on a ``TritonDevice``."""

    def __init__(self, device: TritonDevice) -> None:
        self.device = device
        self.utils = Utils(device)
        self.launcher_cls = Launcher
        self.get_device_capability = self.utils.get_device_capability
        self.get_current_stream = self.utils.get_default_stream
        self.get_current_device = self.utils.get_current_device
        self.set_current_device = self.utils.set_current_device

    @staticmethod
    def is_active() -> bool:
        return True

    def get_active_torch_device(self) -> torch.device:
        import torch

        return torch.device("cuda", 0)

    def get_benchmarker(self) -> Callable[..., object]:
        return benchmark.bencher(self.device, gated=False)

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing to clear: caches are cold in every prediction."""
        return None

    def clear_cache(self, cache: object) -> None:
        pass

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: object) -> torch.Tensor:
        import torch

        return torch.zeros(size, dtype=torch.int8)


def _keep_ptx(
    self: nvidia_compiler.CUDABackend, src: str | bytes, metadata: object, options: object, capability: int
) -> bytes:
    """Replaces ``make_cubin``: the binary is the PTX."""
    return src.encode() if isinstance(src, str) else src


def leave_out_ptxas() -> Callable[[], None]:
    """Make Triton compile only to PTX from now on; returns a function that undoes this."""
    backend = nvidia_compiler.CUDABackend
    version, assemble = backend.hash, backend.make_cubin
    if assemble is _keep_ptx:
        return lambda: None

    def restore() -> None:
        backend.hash, backend.make_cubin = version, assemble

    backend.make_cubin = _keep_ptx
    # a different cache key, so that PTX and binaries of ptxas are never confused
    backend.hash = lambda self: f"gpuperf-{version(self)}"
    return restore


def activate(device: TritonDevice) -> EngineDriver:
    """Make Triton use this device from now on."""
    assemble = nvidia_compiler.CUDABackend.make_cubin
    leave_out_ptxas()
    machine_code.assemble_on_demand(assemble)
    driver = EngineDriver(device)

    class Found(EngineDriver):
        """Returns the existing driver when Triton creates one again."""

        def __new__(cls) -> EngineDriver:
            return driver

    backends["nvidia"] = replace(backends["nvidia"], driver=Found)
    active_driver._default = driver
    active_driver.set_active(driver)
    _replace_in_libtriton(device)
    benchmark.replace_in_triton(device)
    after_import("triton.profiler", partial(profiler.replace, device))
    return driver


def _replace_in_libtriton(device: TritonDevice) -> None:
    """Replace the functions of Triton's own library that call CUDA."""

    def cublas(workspace: object) -> CublasLt:
        from .cublas import CublasLt  # imports torch, which a program may not have

        return CublasLt(workspace)

    def copy_to_device(address: int, data: bytes) -> None:
        device.device.write_bytes(address, data)

    for name, function in {
        "device_malloc": device.device.allocate, "device_free": device.device.free,
        "copy_host_to_device": copy_to_device, "copy_device_to_host": device.device.read_bytes,
        "synchronize": lambda: None,
    }.items():  # fmt: skip
        setattr(libtriton.nvidia, name, function)
    libtriton.nvidia.cublas.CublasLt = cublas
