"""Our CUDA libraries in this process, for tests that call CUDA through CuPy, the driver API or extension modules."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpuperf_engine.cudart import boot
from gpuperf_engine.cudart.build import LIBRARIES, PRELOAD, UNVERSIONED, build_libraries
from gpuperf_engine.cudart.state import State

from .device import DEFAULT_MACHINE, ProgramDevice
from .start import variables

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine import Kernel, Profile
    from gpuperf_engine.device.options import DeviceOptions

__all__ = ["CudaDevice", "forgive", "switch_on"]

#: clears the error of a kernel, so that it does not fail later tests
forgive = boot.forgive


_device: CudaDevice | None = None


def switch_on(
    machine: str = DEFAULT_MACHINE,
    search: Sequence[str] = (),
    *,
    telling: bool = False,
    **options: Unpack[DeviceOptions],
) -> None:
    """Let libraries that this process loads from now on find a GPU; ``telling``: print notes on launches to stderr; ``options``: of
    the engine's device. Later calls have no effect. Raises ``EngineError`` if the libraries cannot be built."""
    global _device
    if _device is not None:
        return
    folder = build_libraries()
    os.environ.update(variables())
    _device = CudaDevice(machine, search, **options)
    _device.state.telling = telling
    boot.begin(_device.state)
    libraries = (*LIBRARIES, UNVERSIONED, PRELOAD)
    loaded = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in libraries]
    # for modules that are already imported; pytest imports CuPy for a warnings filter
    loaded[-1].gpuperf_register_again()


class CudaDevice(ProgramDevice):
    """The device of CUDA's functions. Contents of memory do not count as inputs, as most bytes of a pool's blocks are left from
    earlier uses."""

    inputs_known = False

    def __init__(
        self, machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Unpack[DeviceOptions]
    ) -> None:
        super().__init__(machine, search, **options)
        self.state = State(self.device, self.machine)
        self.state.launch = self._launch

    def _launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        **shape: Any,
    ) -> Profile:
        return self.run(kernel, grid, block, parameters, self._scalars(parameters), **shape)

    def _scalars(self, parameters: bytes) -> Iterator[str]:
        """Return the words that are not addresses, as addresses differ between runs."""
        words = (parameters[at : at + 8] for at in range(0, len(parameters), 8))
        return (word.hex() for word in words if self.device.array_at(int.from_bytes(word, "little")) is None)
