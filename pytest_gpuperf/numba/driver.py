"""Numba's driver with the engine in place of CUDA's. Imports Numba.

Numba compiles and links as usual (libNVVM, NVRTC, nvJitLink) except for the last step, which links to one module of PTX instead of
machine code. This module replaces the parts of CUDA that Numba calls: functions of ``cuda.bindings.driver``, the device, streams and
launches of ``cuda.core``, and views of arrays, as those of ``cuda.core`` need a driver.
"""

from __future__ import annotations

import inspect
import uuid
from collections import namedtuple
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, SupportsInt

import numpy as np
from cuda.bindings import driver as binding
from cuda.core._utils.cuda_utils import CUDAError
from numba.cuda import codegen, dispatcher, types
from numba.cuda.cudadrv import devicearray, devices
from numba.cuda.cudadrv import driver as numba_driver
from numba.cuda.memory_management import nrt

from gpuperf_engine.cudart.codes import described
from gpuperf_engine.errors import EngineError

from ..programs.errors import KernelError, OverBudget
from .device import NumbaDevice
from .functions import PRIMARY, Functions, result_of
from .link import link
from .linker import EngineLinker, compiler, texts_of

if TYPE_CHECKING:
    from cuda.core import ObjectCode
    from numpy.typing import NDArray

    from gpuperf_engine import Kernel

__all__ = ["LaunchFailed", "activate"]

Capability = namedtuple("Capability", ["major", "minor"])


class LaunchFailed(numba_driver.CudaAPIError, CUDAError, KernelError):  # type: ignore[misc]
    """A launch that failed. ``__cause__`` is the engine's error."""


def failed(error: EngineError) -> LaunchFailed:
    """Return Numba's error for an error of the engine."""
    name = result_of(error)
    return LaunchFailed(
        name, f"Call to cuLaunchKernelEx results in {name.name}: {described(int(name))[1]}\n{error}"
    )


class CoreDevice:
    """Replaces ``cuda.core.Device``."""

    def __init__(self, device: NumbaDevice, number: int = 0) -> None:
        self.device_id = number
        self.compute_capability = Capability(*device.machine.compute_capability)
        self.name = device.machine.name
        # a UUID that is the same in every process
        self.uuid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"gpuperf-{device.machine.id}"))
        self.context = SimpleNamespace(handle=binding.CUcontext(PRIMARY), _handle=binding.CUcontext(PRIMARY))

    def set_current(self) -> None:
        if not int(binding.cuCtxGetCurrent()[1]):
            binding.cuCtxPushCurrent(self.context.handle)


class CoreStream:
    """Replaces ``cuda.core.Stream``."""

    def __init__(self, handle: SupportsInt) -> None:
        self.handle = handle if isinstance(handle, binding.CUstream) else binding.CUstream(int(handle))

    from_handle = classmethod(lambda cls, handle: cls(handle))

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self.handle)

    def __bool__(self) -> bool:
        return bool(int(self.handle))

    def sync(self) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoreStream) and int(self.handle) == int(other.handle)

    def __hash__(self) -> int:
        return hash(int(self.handle))


class LoadedKernel:
    """Replaces ``cuda.core.Kernel``."""

    def __init__(self, functions: Functions, kernel: Kernel) -> None:
        number = functions.number()
        functions.kernels[number] = kernel
        self.kernel = kernel
        self.handle = self._handle = binding.CUkernel(number)
        known = functions.device.device.attributes(kernel)
        values = {
            "num_regs": known.registers,
            "const_size_bytes": known.constant_bytes,
            "local_size_bytes": known.local_bytes,
            "shared_size_bytes": known.shared_bytes,
            "max_threads_per_block": known.largest_block,
        }
        # they were functions before cuda.core 1.0
        as_functions = not getattr(numba_driver, "CUDA_CORE_GE_1_0", False)
        self.attributes = SimpleNamespace(
            **{name: (lambda value=value: value) if as_functions else value for name, value in values.items()}
        )


class LoadedImage:
    """Replaces a loaded ``cuda.core.ObjectCode``."""

    def __init__(self, functions: Functions, image: ObjectCode) -> None:
        # pytest prints the arguments of a frame, and ``repr`` of an ``ObjectCode`` queries the driver, which takes minutes
        __tracebackhide__ = True
        self._functions = functions
        self.code = image.code
        try:
            self.module = functions.device.load(link(texts_of(image)))
        except EngineError as error:
            raise failed(error) from error
        number = functions.number()
        functions.modules[number] = self.module
        self.handle = binding.CUlibrary(number)

    def get_kernel(self, name: str | bytes) -> LoadedKernel:
        text = name.decode() if isinstance(name, bytes) else name
        try:
            return LoadedKernel(self._functions, self.module[text])
        except EngineError as error:
            raise failed(error) from error


class View(devicearray._StridedMemoryViewShim):  # type: ignore[misc]
    """A view of device memory that keeps its array alive."""

    def __init__(self, owner: object, address: int, array: NDArray[np.generic]) -> None:
        shape, strides = tuple(array.shape), tuple(array.strides)
        contiguous_c, contiguous_f = array.flags.c_contiguous, array.flags.f_contiguous
        super().__init__(
            ptr=address,
            shape=shape,
            dtype=array.dtype,
            size=array.size,
            _layout=devicearray._StridedLayoutShim(
                strides_in_bytes=strides,
                is_contiguous_c=contiguous_c,
                is_contiguous_f=contiguous_f,
                is_contiguous_any=contiguous_c or contiguous_f,
            ),
        )
        self.owner = owner


def _view(
    obj: Any, stream: object = 0, copy: bool = True, user_explicit: bool = False
) -> tuple[devicearray._StridedMemoryViewShim, bool]:
    """``_to_strided_memory_view`` of Numba: a view of an array on the device, of a copy of one of the host; whether it was copied."""
    if isinstance(obj, devicearray._StridedMemoryViewShim):
        return obj, False
    if numba_driver.is_device_memory(obj):
        return obj._strided_memory_view_shim, False
    described_as = getattr(obj, "__cuda_array_interface__", None)
    if described_as is not None:
        from numba.cuda.api import from_cuda_array_interface

        return _view(from_cuda_array_interface(described_as, owner=obj))
    array = np.asanyarray(obj)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        # the copy back transfers contiguous bytes
        raise ValueError(
            "a host array that is not contiguous cannot be copied to the device: np.ascontiguousarray"
        )
    if not array.nbytes:
        return View(None, 0, array), True
    memory = devices.get_context().memalloc(array.nbytes)
    if copy:
        _warn_of_copies(obj, user_explicit)
        numba_driver.driver.cuMemcpyHtoD(memory.device_pointer, array.ctypes.data, array.nbytes)
    return View(memory, memory.device_pointer_value, array), True


def _warn_of_copies(obj: object, user_explicit: bool) -> None:
    config = devicearray.config
    wanted = config.CUDA_WARN_ON_IMPLICIT_COPY and not config.DISABLE_PERFORMANCE_WARNINGS
    if wanted and not user_explicit and isinstance(obj, np.ndarray):
        devicearray.warn(
            devicearray.NumbaPerformanceWarning(
                "Host array used in CUDA kernel will incur copy overhead to/from device."
            )
        )


def activate(device: NumbaDevice) -> Functions:
    """Let Numba use this device from now on."""
    functions = Functions(device)
    functions.install(binding)
    load = numba_driver.load_module_image

    def load_module_image(
        context: numba_driver.Context, image: ObjectCode, *callbacks: object
    ) -> numba_driver.CudaPythonModule:
        __tracebackhide__ = True
        return load(context, LoadedImage(functions, image), *callbacks)

    def launch(stream: CoreStream, config: SimpleNamespace, kernel: LoadedKernel, *arguments: object) -> None:
        cooperative = getattr(config, "is_cooperative", None)
        try:
            device.launch(
                kernel.kernel,
                tuple(config.grid),
                tuple(config.block),
                arguments,
                shared_bytes=config.shmem_size or 0,
                cluster=tuple(config.cluster) if getattr(config, "cluster", None) else None,
                cooperative=bool(config.cooperative_launch if cooperative is None else cooperative),
                compiler=compiler(),
            )
        except OverBudget:
            raise
        except EngineError as error:
            raise failed(error) from error

    numba_driver.load_module_image = load_module_image
    numba_driver.ExperimentalDevice = lambda number=0: CoreDevice(device, number)
    numba_driver.ExperimentalStream = CoreStream
    numba_driver._Linker = nrt._Linker = EngineLinker
    devicearray._to_strided_memory_view = _view
    for module in (dispatcher, nrt):
        module.launch = launch
        module.LaunchConfig = _configuration
    if device.lines:
        _keep_lines()
    if device.device.recorder is not None:
        _keep_names(device)
    # PTX in Numba's disk cache must not be loaded as machine code, nor vice versa
    magic = codegen.JITCUDACodegen.magic_tuple
    codegen.JITCUDACodegen.magic_tuple = lambda self: (*magic(self), "gpuperf")
    driver = numba_driver.driver
    driver.lib = driver.initialization_error = None
    driver.is_initialized = False
    return functions


def _configuration(
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shmem_size: int | None = 0,
    cluster: Sequence[int] | None = None,
    **options: bool,
) -> SimpleNamespace:
    """Replaces ``cuda.core.LaunchConfig``."""
    cooperative = options.get("is_cooperative", options.get("cooperative_launch", False))
    return SimpleNamespace(
        grid=_three(grid),
        block=_three(block),
        shmem_size=shmem_size,
        cluster=cluster,
        is_cooperative=cooperative,
    )


def _three(shape: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _keep_names(device: NumbaDevice) -> None:
    """Pass the names of each launch's array arguments to the device."""
    launch = dispatcher._Kernel.launch

    def with_names(self: dispatcher._Kernel, *arguments: object, **options: object) -> None:
        names = inspect.signature(self.py_func).parameters
        device.array_names = tuple(
            name for name, kind in zip(names, self.argument_types) if isinstance(kind, types.Array)
        )
        try:
            launch(self, *arguments, **options)
        finally:
            device.array_names = ()

    dispatcher._Kernel.launch = with_names


def _keep_lines() -> None:
    """Compile every kernel with its lines."""
    make = dispatcher._Kernel.__init__

    def with_lines(self: dispatcher._Kernel, *arguments: object, **options: object) -> None:
        options["lineinfo"] = options.get("lineinfo") or not options.get("debug")
        make(self, *arguments, **options)

    dispatcher._Kernel.__init__ = with_lines
