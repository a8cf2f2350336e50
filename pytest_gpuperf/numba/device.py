"""The device that Numba sees."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuperf_engine.errors import EngineError

from .._engine import engine
from ..core.mangling import stable_name
from ..programs.device import ProgramDevice
from .arguments import pack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuperf_engine import Kernel, Module

__all__ = ["NumbaDevice"]

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


class NumbaDevice(ProgramDevice):
    """Memory and launches by address. ``lines``: kernels are compiled with their lines, also where the program does not ask."""

    lines = False
    #: names of the array arguments of the kernel that Numba launches next, in order
    array_names: Sequence[str] = ()

    def attribute(self, number: int) -> int:
        """Of the machine (``CUdevice_attribute``)."""
        from gpuperf_engine.cudart.properties import attribute_of

        return attribute_of(self, number)

    def load(self, ptx: str) -> Module:
        """Load a module with its variables; messages name it by its first kernel. Raises ``EngineError``."""
        entry = _ENTRY.search(ptx)
        module = engine.parse(ptx, path=f"{stable_name(entry[1]) if entry else 'numba'}.ptx")
        self.device.load(module)
        return module

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[object],
        *,
        shared_bytes: int = 0,
        cluster: tuple[int, int, int] | None = None,
        cooperative: bool = False,
        compiler: str = "",
    ) -> None:
        """Run a kernel with numbers, some of them addresses. Raises ``EngineError``."""
        fields = [(param.offset, param.size) for param in kernel.params]
        named: dict[int, str] = {}
        if self.array_names:
            pointers = [value for value in map(self._array_address, arguments) if value]
            if len(pointers) == len(self.array_names):
                named = dict(zip(reversed(pointers), reversed(self.array_names)))
        self.run(
            kernel,
            grid,
            block,
            pack(fields, arguments, kernel.name),
            map(self._contents, arguments),
            shared_bytes=shared_bytes,
            cluster=cluster,
            cooperative=cooperative,
            compiler=compiler,
            named=named,
        )

    def _array_address(self, argument: object) -> int:
        """The argument if it is the address of an array, else 0."""
        if isinstance(argument, bool) or not isinstance(argument, int) or argument <= 0:
            return 0
        return argument if self.device.array_at(argument) is not None else 0

    def _contents(self, argument: object) -> object:
        """Return the memory at an address, or the value of another argument, as addresses differ between runs."""
        address = self._array_address(argument)
        held = self.device.array_at(address) if address else None
        if held is None:
            return getattr(argument, "value", argument)
        return self._bytes_at(held.address, held.nbytes)

    @staticmethod
    def _bytes_at(address: int, size: int) -> NDArray[np.uint8]:
        import numpy as np

        return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)

    def resident(self, kernel: Kernel, threads: int, shared: int) -> int:
        """CTAs of a kernel on one SM."""
        from gpuperf_engine.machines.occupancy import occupancy

        try:
            known = self.device.attributes(kernel)
            return occupancy(
                self.machine,
                threads_per_cta=threads,
                registers_per_thread=known.registers,
                shared_bytes=known.shared_bytes + shared,
            ).ctas_per_sm
        except EngineError:
            return 0
