"""The device that Triton programs see: a device of the engine with the properties of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError

from .._engine import engine
from ..programs.device import DEFAULT_MACHINE, ProgramDevice
from ..programs.errors import OverBudget, as_cuda
from .memory import TorchMemory

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine import Kernel
    from gpuperf_engine.device.options import DeviceOptions

    from .graphs import Capture
    from .profiler import Profiler

__all__ = ["TritonDevice", "map_options"]

#: names of the values of ``CUtensorMapDataType``, in order (CUDA driver API)
_TMA_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip
_SWIZZLES = ("none", "32B", "64B", "128B")


class TritonDevice(ProgramDevice):
    """A device that shares memory with torch. Parameters as for ``ProgramDevice``."""

    def __init__(
        self, machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Unpack[DeviceOptions]
    ) -> None:
        super().__init__(machine, search, **options)
        self.memory = TorchMemory(self.device)
        #: the CUDA graph that records launches; ``None`` if launches run
        self.capture: Capture | None = None
        #: Triton's profiler, once it is imported
        self.profiler: Profiler | None = None

    def during_launch(
        self, arguments: Iterable[object]
    ) -> AbstractContextManager[Mapping[int, tuple[int, int]]]:
        """Makes tensors and arrays device memory during a launch, and keeps them allocated."""
        return self.memory.during_launch(arguments)

    @property
    def properties(self) -> dict[str, int]:
        """Results of ``cuDeviceGetAttribute`` that Triton uses."""
        machine = self.machine
        bus = 5120
        return {
            "max_shared_mem": machine.shared_per_cta,
            "max_num_regs": machine.registers_per_cta,
            "multiprocessor_count": machine.sm_count,
            "warpSize": 32,
            "sm_clock_rate": int(machine.clock_mhz * 1000),
            # consistent with the bus width: 2 × clock × width ÷ 8 is the machine's bandwidth
            "mem_clock_rate": int(machine.dram_bandwidth * 1e6 * 8 / (2 * bus)),
            "mem_bus_width": bus,
        }

    def load(self, name: str, ptx: str) -> tuple[Kernel, int, int, int]:
        """The kernel, its registers, spilled registers and largest block. Raises ``KernelError``."""
        try:
            kernel = engine.parse(ptx, path=f"{name}.ptx")[name]
            known = self.device.attributes(kernel)
        except EngineError as error:
            raise as_cuda(error) from error
        return kernel, known.registers, known.spill_bytes // 4, known.largest_block

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        threads: int,
        parameters: bytes,
        arguments: Sequence[object],
        *,
        shared_bytes: int = 0,
        ctas: int = 1,
        cooperative: bool = False,
        compiler: str = "",
        named: Mapping[int, str] | None = None,
    ) -> None:
        """Run a kernel. ``grid``: in clusters of ``ctas`` along x. Raises ``KernelError``."""
        __tracebackhide__ = True
        if not all(grid):
            return
        if self.capture is not None:
            options: dict[str, Any] = {
                "shared_bytes": shared_bytes,
                "ctas": ctas,
                "cooperative": cooperative,
                "compiler": compiler,
                "named": named,
            }
            self.capture.launch(lambda: self.launch(kernel, grid, threads, parameters, arguments, **options))
            return
        # the kernel may have fewer parameters: the compiler drops unused ones from the end
        raw = parameters[: kernel.param_bytes]
        before = self.elapsed_us
        try:
            self.run(
                kernel,
                (grid[0] * ctas, *grid[1:]),
                threads,
                raw,
                arguments,
                shared_bytes=shared_bytes,
                cluster=(ctas, 1, 1) if ctas > 1 else None,
                cooperative=cooperative,
                compiler=compiler,
                named=named,
            )
        except OverBudget:
            raise
        except EngineError as error:
            raise as_cuda(error) from error
        if self.profiler is not None and not self._trying:
            self.profiler.launched(kernel.name, self.elapsed_us - before)

    def tensor_map(
        self,
        address: int,
        swizzle: int,
        size: int,
        kind: int,
        box: Sequence[int],
        shape: Sequence[int],
        strides: Sequence[int],
        padding: int,
    ) -> bytes:
        """The bytes of a tiled tensor map, from the arguments of ``cuTensorMapEncodeTiled``; axes outermost first, strides in
        elements of ``size`` bytes. Raises ``KernelError``."""
        described = map_options(swizzle, size, kind, shape, strides, padding)
        try:
            return bytes(engine.TensorMap(address, list(box), **described))
        except EngineError as error:
            raise as_cuda(error) from error

    def im2col_tensor_map(
        self,
        address: int,
        swizzle: int,
        size: int,
        kind: int,
        column: Sequence[int],
        shape: Sequence[int],
        strides: Sequence[int],
        padding: int,
        lower: Sequence[int],
        upper: Sequence[int],
        element_strides: Sequence[int],
    ) -> bytes:
        """As ``tensor_map``, from the arguments of ``cuTensorMapEncodeIm2col``. ``column``: pixels, and channels per pixel; ``lower``
        and ``upper``: the corners of the bounding box, for the axes between the first and the last."""
        described = map_options(swizzle, size, kind, shape, strides, padding)
        pixels, channels = column
        try:
            return bytes(
                engine.TensorMap.im2col(
                    address,
                    channels,
                    pixels,
                    lower=list(lower),
                    upper=list(upper),
                    element_strides=list(element_strides),
                    **described,
                )
            )
        except EngineError as error:
            raise as_cuda(error) from error


def map_options(
    swizzle: int, size: int, kind: int, shape: Sequence[int], strides: Sequence[int], padding: int
) -> dict[str, Any]:
    """The arguments of ``TensorMap`` that all kinds of maps have."""
    import numpy as np

    packed = _TMA_TYPES[kind].startswith("16U")
    return {
        "shape": list(shape),
        "strides": [*(size * stride for stride in strides[:-1]), 1 if packed else size],
        "dtype": np.dtype(f"u{size}"),
        "data_type": _TMA_TYPES[kind],
        "swizzle": _SWIZZLES[swizzle],
        "fill": "nan" if padding else "zero",
    }
