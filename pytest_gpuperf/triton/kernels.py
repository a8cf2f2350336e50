"""Captures the kernels of ``@triton.jit`` functions for an architecture, without a GPU. Imports Triton.

Triton specialises and compiles them as for a launch on a GPU of that architecture; its driver is replaced by one that records the
launch and runs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia_driver
from triton.compiler.errors import CompilationError
from triton.runtime import errors as runtime_errors
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver as active_driver

from gpuperf_engine.errors import EngineError, LaunchError
from gpuperf_engine.memory.arrays import DeviceArray

from .._engine import engine
from .arguments import bytes_of, pairs
from .device import map_options
from .driver import Launcher, leave_out_ptxas
from .memory import storage_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuperf_engine import TensorMap

    from .driver import Hook

__all__ = ["Architecture", "Captured", "Move", "Moved", "capture", "compiler"]

Move = Callable[["NDArray[np.generic]", str, bool], DeviceArray]
"""Copies a host array to a named device array; with its contents or without."""

_ERRORS = (CompilationError, *(kind for kind in vars(runtime_errors).values() if isinstance(kind, type)))
_ACCEPTED = "accepted: tensors of torch on the CPU, NumPy arrays, arrays of gpuperf, numbers, None"
_MOST_CONFIGS = 12


@dataclass(frozen=True, slots=True)
class Architecture:
    """Properties of a GPU that Triton uses: compute capability, SMs, and bytes of shared memory per CTA."""

    capability: tuple[int, int]
    sm_count: int
    shared_per_cta: int

    @property
    def name(self) -> str:
        return "sm_{}{}".format(*self.capability)


@dataclass(frozen=True, slots=True)
class Captured:
    """A launch that Triton would make. ``grid``: in CTAs; ``arguments``: arrays, tensor maps and bytes, one for each parameter that
    the kernel may have; arguments beyond its parameters are ignored."""

    name: str
    ptx: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    ctas: int
    cooperative: bool
    arguments: tuple[object, ...]


def compiler() -> str:
    """Triton and its version, in the form that baselines have."""
    return f"triton {triton.__version__}"


class Moved:
    """Device copies of the memory of arguments, one for each tensor or array. ``move``: copies a host array to the device."""

    def __init__(self, move: Move) -> None:
        self._move = move
        #: by host address: the bytes there, the device array, and whether the host memory is writeable
        self._known: dict[int, tuple[NDArray[np.generic], DeviceArray, bool]] = {}

    def array_of(self, value: Any, name: str) -> DeviceArray | None:
        """The device array for a pointer argument. Raises ``LaunchError`` for an argument without host memory."""
        if isinstance(value, _Pointer):
            value = value.given
        if isinstance(value, DeviceArray) or value is None:
            return value
        start, size = storage_of(value)
        if not size and hasattr(value, "data_ptr") and not value.data_ptr():
            return None  # a tensor without elements
        if not size:
            raise LaunchError(
                f"{name} is a {type(value).__name__}, not memory of the host",
                hint=_ACCEPTED,
            )
        if start not in self._known:
            self._keep(start, size, value, name)
        return self.at(_address(value))

    def at(self, address: int) -> DeviceArray:
        """The device array that begins at the copy of a host address. Raises ``LaunchError``."""
        for start, (host, array, _) in self._known.items():
            if start <= address < start + host.nbytes:
                offset = address - start
                if not offset % array.dtype.itemsize:
                    return array[offset // array.dtype.itemsize :] if offset else array
                return array.view(np.uint8)[offset:]
        raise LaunchError(f"0x{address:x} is in no argument of the launch")

    def new(self, size: int, name: str) -> DeviceArray:
        """Scratch memory for the kernel."""
        return self._move(np.zeros(size, np.uint8), name, False)

    def write_back(self) -> None:
        """Copy the results of kernels to host memory. Raises ``LaunchError`` if a kernel wrote to read-only memory."""
        for host, array, writeable in self._known.values():
            result = array.numpy()
            if writeable:
                host[:] = result
            elif not np.array_equal(host.view(np.uint8), result.view(np.uint8)):
                raise LaunchError(
                    f"the kernel wrote to {array.name!r}, which is read-only", hint="give it a copy"
                )

    def _keep(self, start: int, size: int, value: Any, name: str) -> None:
        import ctypes

        raw = np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)
        type_ = _numpy_type(value)
        typed = raw.view(type_) if size % type_.itemsize == 0 else raw
        writeable = not isinstance(value, np.ndarray) or bool(value.flags.writeable)
        self._known[start] = (typed, self._move(typed, name, True), writeable)


class _Pointer:
    """Presents an array to Triton as a tensor."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.dtype = given.dtype

    def data_ptr(self) -> int:
        return self.given.address if isinstance(self.given, DeviceArray) else int(self.given.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.given, name)


class _Utils:
    """The methods of Triton's ``CudaUtils`` that compiling and launching use."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self.moved: Moved | None = None

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: str
    ) -> tuple[None, str, int, int, int]:
        # without a module, Triton has nothing to unload
        return None, binary.decode(), 0, 0, 1024

    def get_device_properties(self, device: str) -> dict[str, int]:
        machine = self._architecture
        return {
            "max_shared_mem": machine.shared_per_cta,
            "multiprocessor_count": machine.sm_count,
            "warpSize": 32,
        }

    def set_printf_fifo_size(self, size: int) -> None:
        pass

    def fill_tma_descriptor_tiled(
        self, address: int, swizzle: int, size: int, kind: int, box: Sequence[int], shape: Sequence[int],
        strides: Sequence[int], padding: int,
    ) -> TensorMap:  # fmt: skip
        return engine.TensorMap(
            self._array(address), list(box), **map_options(swizzle, size, kind, shape, strides, padding)
        )

    def fill_tma_descriptor_im2col(
        self, address: int, swizzle: int, size: int, kind: int, column: Sequence[int], shape: Sequence[int],
        strides: Sequence[int], padding: int, lower: Sequence[int], upper: Sequence[int], steps: Sequence[int],
    ) -> TensorMap:  # fmt: skip
        pixels, channels = column
        options = map_options(swizzle, size, kind, shape, strides, padding)
        return engine.TensorMap.im2col(
            self._array(address),
            channels,
            pixels,
            lower=list(lower),
            upper=list(upper),
            element_strides=list(steps),
            **options,
        )

    def _array(self, address: int) -> DeviceArray:
        assert self.moved is not None
        return self.moved.at(address)


class _CapturingLauncher(Launcher):
    """Passes launches to the driver instead of executing them."""

    def _launch_expanded(
        self, x: int, y: int, z: int, stream: int, function: Any, launch_metadata: Any, enter: Hook | None, leave: Hook | None,
        arguments: Sequence[object],
    ) -> None:  # fmt: skip
        active_driver.active.launched(self, (x, y, z), function, arguments)

    def captured(
        self, name: str, ptx: str, grid: tuple[int, int, int], arguments: Sequence[object], moved: Moved
    ) -> Captured:
        metadata = self._metadata
        ctas = metadata.num_ctas
        blocks = grid[0] * grid[1] * grid[2] * ctas
        values: list[object] = []
        for number, (type_, value) in enumerate(pairs(self._signature, arguments)):
            if type_.startswith("*"):
                values.append(moved.array_of(value, self._name_of(number)))
            elif type_ == "nvTmaDesc" and not isinstance(value, bytes):
                values.append(value)
            else:
                values.append(bytes_of(type_, value))
        for size, purpose in (
            (metadata.global_scratch_size, "scratch memory"),
            (metadata.profile_scratch_size, "profile memory"),
        ):
            values.append(moved.new(blocks * size, purpose) if size else None)
        return Captured(
            name,
            ptx,
            (grid[0] * ctas, *grid[1:]),
            32 * metadata.num_warps,
            metadata.shared,
            ctas,
            bool(metadata.launch_cooperative_grid),
            tuple(values),
        )

    def _name_of(self, number: int) -> str:
        flat = all(isinstance(type_, str) for type_ in self._signature)
        names = [
            name for name, type_ in zip(self._names, self._signature) if not flat or type_ != "constexpr"
        ]
        return names[number] if flat and number < len(names) else f"argument {number}"


class _CapturingDriver(nvidia_driver.CudaDriver):  # type: ignore[misc]
    """Triton's driver for CUDA while a launch is captured."""

    def __init__(self, architecture: Architecture, moved: Moved) -> None:
        self._moved = moved
        self.utils = _Utils(architecture)
        self.utils.moved = moved
        self.launcher_cls = _CapturingLauncher
        self.captures: list[Captured] = []
        # the key of Triton's caches of compiled kernels and of device limits
        device = f"gpuperf {architecture.name} {architecture.shared_per_cta}"
        target = GPUTarget("cuda", 10 * architecture.capability[0] + architecture.capability[1], 32)
        self.get_current_device = lambda: device
        self.get_current_stream = lambda device=None: 0
        self.get_current_target = lambda: target
        self.get_device_capability = lambda device=None: architecture.capability

    @staticmethod
    def is_active() -> bool:
        return True

    def get_benchmarker(self) -> Callable[..., object]:
        raise LaunchError(
            "the kernel is chosen by measuring several, and a test counts one",
            hint="fix the configuration, or run the test with --gpuperf-triton: there predicted time decides",
        )

    def launched(
        self, launcher: _CapturingLauncher, grid: tuple[int, int, int], ptx: str, arguments: Sequence[object]
    ) -> None:
        if not all(grid):
            return
        name = _entry(ptx)
        self.captures.append(launcher.captured(name, ptx, grid, arguments, self._moved))


@contextmanager
def _driver(driver: _CapturingDriver) -> Iterator[None]:
    before = active_driver._active
    active_driver.set_active(driver)
    restore = leave_out_ptxas()
    try:
        yield
    finally:
        restore()
        active_driver._active = before


def capture(
    function: Any,
    architecture: Architecture,
    grid: Any,
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    moved: Moved,
) -> Captured | None:
    """The launch that ``function[grid](*arguments, **keywords)`` would make; ``None`` for an empty grid. Raises ``EngineError``."""
    name = _name(function)
    function, keywords = _fixed(function, keywords)
    for argument in (*arguments, *keywords.values()):
        for base in _bases(argument):
            moved.array_of(base, "the tensor of a descriptor")
    driver = _CapturingDriver(architecture, moved)
    given = [_as_pointer(argument) for argument in arguments]
    named = {key: _as_pointer(value) for key, value in keywords.items()}
    with _driver(driver):
        try:
            function.run(*given, grid=(grid,) if isinstance(grid, int) else grid, warmup=False, **named)
        except _ERRORS as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(
                f"{name} does not compile for {architecture.name}", details=lines[-12:]
            ) from error
        except TypeError as error:
            text = str(error)
            if "dynamic_func()" in text:  # the name of the function that Triton generates from the signature
                raise LaunchError(text.replace("dynamic_func()", name)) from None
            if "failed to specialize" in text:
                raise LaunchError(f"{name}: {text}", hint=_ACCEPTED) from None
            raise
    return driver.captures[-1] if driver.captures else None


def _fixed(function: Any, keywords: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
    """The function with each autotuner in it reduced to the configuration that keywords select, and the other keywords. Raises
    ``LaunchError`` if they do not select exactly one."""
    left = dict(keywords)
    inner = getattr(function, "fn", None)
    if inner is not None and hasattr(inner, "run"):
        inner, left = _fixed(inner, left)
        if inner is not function.fn:
            function = copy.copy(function)
            function.fn = inner
    if not isinstance(function, Autotuner) or len(function.configs) == 1:
        return function, left
    known = {name for config in function.configs for name in config.all_kwargs()}
    asked = {name: value for name, value in left.items() if name in known}
    fitting = [
        config
        for config in function.configs
        if all(config.all_kwargs().get(name) == value for name, value in asked.items())
    ]
    if asked and not fitting and {name for config in function.configs for name in config.kwargs} <= set(left):
        return (
            function.fn,
            left,
        )  # the keywords give a complete configuration, which need not be one of the autotuner's
    if not asked or len(fitting) != 1:
        raise LaunchError(
            f"{_name(function)} is autotuned, and a test counts one configuration: "
            + (f"{len(fitting)} of its {len(function.configs)} fit" if asked else "none was named"),
            details=[_shown(config) for config in (fitting or function.configs)[:_MOST_CONFIGS]],
            hint="name it by its keyword arguments: kernel[grid](…, "
            + ", ".join(
                f"{key}={value}" for key, value in (fitting or function.configs)[0].all_kwargs().items()
            )
            + ")",
        )
    function = copy.copy(function)
    function.configs = fitting
    return function, {name: value for name, value in left.items() if name not in asked}


def _shown(config: triton.Config) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.all_kwargs().items())


def _name(function: Any) -> str:
    while hasattr(function, "fn"):
        function = function.fn
    return str(getattr(function, "__name__", function))


def _bases(value: Any) -> Iterator[object]:
    """The base tensors of descriptors."""
    if isinstance(value, tuple):
        for item in value:
            yield from _bases(item)
    elif hasattr(value, "block_shape") and hasattr(value, "base"):
        yield value.base


def _as_pointer(value: Any) -> Any:
    return _Pointer(value) if isinstance(value, (np.ndarray, DeviceArray)) else value


def _address(value: Any) -> int:
    return int(value.ctypes.data) if isinstance(value, np.ndarray) else int(value.data_ptr())


def _numpy_type(value: Any) -> np.dtype[np.generic]:
    """The NumPy type of a tensor's elements; for types that NumPy lacks, an unsigned integer of the same size."""
    name = str(value.dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError:
        size = getattr(value, "element_size", lambda: 1)()
        return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else "u1")


def _entry(ptx: str) -> str:
    """The name of the only kernel of a module."""
    return ptx.partition(".entry")[2].partition("(")[0].strip()
