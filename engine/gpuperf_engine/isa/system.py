"""Functions that the CUDA driver links into every program: PTX declares but does not define them.

Sources: CUDA C++ Programming Guide, "Formatted Output", "Assertion" and "Dynamic Global Memory Allocation and Operations"; PTX
Writer's Guide to Interoperability, "System Calls". Backends and analyses use the *effect* of such a function, never its name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEVICE_LAUNCH", "SYSTEM_EFFECTS", "SYSTEM_FUNCTIONS", "SystemFunction"]

#: Effect → description.
SYSTEM_EFFECTS: dict[str, str] = {
    "print": "writes text that the device cannot read; its result is the number of arguments",
    "assert": "ends the launch with a message",
    "allocate": "allocates memory from the device's heap; the address depends on all earlier allocations and frees",
    "free": "frees memory of the device's heap",
}


@dataclass(frozen=True, slots=True)
class SystemFunction:
    """``arguments`` and ``results`` are the sizes of the parameters in bytes."""

    name: str
    effect: str
    arguments: tuple[int, ...]
    results: tuple[int, ...] = ()

    @property
    def observes_heap(self) -> bool:
        """Whether its result depends on the order of other threads' calls."""
        return self.effect in ("allocate", "free")


SYSTEM_FUNCTIONS: dict[str, SystemFunction] = {
    item.name: item
    for item in (
        SystemFunction("vprintf", "print", (8, 8), (4,)),
        # message, file, line, function, bytes per character
        SystemFunction("__assertfail", "assert", (8, 8, 4, 8, 8)),
        SystemFunction("malloc", "allocate", (8,), (8,)),
        SystemFunction("free", "free", (8,)),
    )
}

#: The functions of dynamic parallelism that launch kernels from kernels.
DEVICE_LAUNCH = frozenset(
    (
        "cudaDeviceSynchronize",
        "cudaGetParameterBuffer",
        "cudaGetParameterBufferV2",
        "cudaLaunchDevice",
        "cudaLaunchDeviceV2",
        "cudaGraphLaunch",
        "cudaGraphSetConditional",
    )
)
