"""The device that Triton programs see: one of the engine, with the properties of a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError, LaunchError

from .._engine import engine
from .errors import as_cuda
from .memory import TorchMemory

if TYPE_CHECKING:
    from gpuperf_engine import Device, Kernel, Profile

__all__ = ["DEFAULT_MACHINE", "TritonDevice", "TritonLaunch"]

DEFAULT_MACHINE = "h100-sxm"
"""Where none is declared."""
#: of ``CUtensorMapDataType`` in the order of its numbers (CUDA driver API), with the bytes of an element
_TMA_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip
_SWIZZLES = ("none", "32B", "64B", "128B")
_ROOMS = (64 << 30, 4 << 30)


@dataclass(frozen=True)
class TritonLaunch:
    """A launch that has ended. ``inputs`` is what ``before_launch`` said of its arguments; ``compiler`` what made the kernel."""

    kernel: Kernel
    profile: Profile
    inputs: str
    compiler: str


class TritonDevice:
    """``machine``: the id of a description; ``search``: folders with more of them; ``options``: of the engine's device.

    ``before_launch`` is called with the arguments of each launch, ``on_launch`` after it.
    ``elapsed_us`` is the predicted time of all launches while ``timing``.
    """

    def __init__(self, machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Any) -> None:
        from gpuperf_engine.timing.machine import load_machine

        self.machine = load_machine(machine, search)
        self.search = tuple(search)
        self.device = _mapped(options)
        self.memory = TorchMemory(self.device)
        self.before_launch: Callable[[tuple[Any, ...]], str] | None = None
        self.on_launch: Callable[[TritonLaunch], object] | None = None
        self.timing = False
        self.elapsed_us = 0.0

    @cached_property
    def _predictor(self) -> Any:
        return engine.predictor(self.machine, self.search)

    @property
    def properties(self) -> dict[str, int]:
        """What Triton asks of ``cuDeviceGetAttribute``."""
        machine = self.machine
        bus = 5120
        return {
            "max_shared_mem": machine.shared_per_cta,
            "max_num_regs": machine.registers_per_cta,
            "multiprocessor_count": machine.sm_count,
            "warpSize": 32,
            "sm_clock_rate": int(machine.clock_mhz * 1000),
            # so that both ways to work out the bandwidth give that of the machine (2 × clock × width ÷ 8)
            "mem_clock_rate": int(machine.dram_bandwidth * 1e6 * 8 / (2 * bus)),
            "mem_bus_width": bus,
        }

    def load(self, name: str, ptx: str) -> tuple[Kernel, int, int, int]:
        """The kernel, its registers, registers spilled and largest block. Raises ``KernelError``."""
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
        arguments: Sequence[Any],
        *,
        shared_bytes: int = 0,
        ctas: int = 1,
        cooperative: bool = False,
        compiler: str = "",
    ) -> None:
        """Run a kernel. ``grid``: in clusters of ``ctas`` along x. Raises ``KernelError``."""
        if not all(grid):
            return
        # the buffer ends with what the kernel has of it: parameters that the compiler left out are at its end
        raw = parameters[: kernel.param_bytes]
        try:
            inputs = "" if self.before_launch is None else self.before_launch(tuple(arguments))
            with self.memory.during_launch(arguments):
                profile = self.device.launch(
                    kernel,
                    (grid[0] * ctas, *grid[1:]),
                    threads,
                    raw,
                    shared_bytes=shared_bytes,
                    cluster=(ctas, 1, 1) if ctas > 1 else None,
                    cooperative=cooperative,
                )
            if self.timing:
                self.elapsed_us += self._predictor.estimate(profile).time_us
            if self.on_launch is not None:
                self.on_launch(TritonLaunch(kernel, profile, inputs, compiler))
        except EngineError as error:
            raise as_cuda(error) from error

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
        """The bytes of a tiled tensor map, from the numbers of ``cuTensorMapEncodeTiled``; axes outermost first, strides in elements
        of ``size`` bytes. Raises ``KernelError``."""
        import numpy as np

        try:
            packed = _TMA_TYPES[kind].startswith("16U")
            return bytes(
                engine.TensorMap(
                    address,
                    list(box),
                    shape=list(shape),
                    strides=[*(size * stride for stride in strides[:-1]), 1 if packed else size],
                    dtype=np.dtype(f"u{size}"),
                    data_type=_TMA_TYPES[kind],
                    swizzle=_SWIZZLES[swizzle],
                    fill="nan" if padding else "zero",
                )
            )
        except EngineError as error:
            raise as_cuda(error) from error


def _mapped(options: dict[str, Any]) -> Device:
    """A mapped device with as much room as the host lets it reserve."""
    given = {"history": 0, "printer": _print, **options}
    for room in _ROOMS[:-1]:
        try:
            return engine.Device(mapped=True, memory_bytes=room, **given)
        except LaunchError as error:
            if "cannot reserve" not in error.message:
                raise
    return engine.Device(mapped=True, memory_bytes=_ROOMS[-1], **given)


def _print(text: str) -> None:
    # looked up at each launch: pytest puts another stream there for each phase
    sys.stdout.write(text)
    sys.stdout.flush()
