"""The windows of the state spaces in the generic address space.

Generic and global addresses are the same numbers. Every other space has a window (manual: "Generic Addressing"): an address in the
space, as returned by ``mov`` of a variable, is the offset from the beginning of the window. It is less than 2³² for every byte
of the space, so that short pointers of compilers can hold it in 32 bits. The windows are a choice of this engine, not those of a
real GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["RANK_SHIFT", "WINDOWS", "space_of"]

#: In the shared window the memory of the CTA of rank r of a cluster begins at ``r << RANK_SHIFT``, as on hardware.
RANK_SHIFT = 24

#: Space → (first generic address, bytes). Global memory has no addresses in a window. The windows of constant memory and kernel
#: parameters end where global memory begins, so that one table of objects covers all three.
WINDOWS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "global": (0, 1 << 64),
        "shared": (0x0100_0000_0000, 1 << 32),
        "local": (0x0200_0000_0000, 1 << 32),
        "const": (0x2FFF_FE00_0000, 1 << 24),
        "param": (0x2FFF_FF00_0000, 1 << 24),
    }
)


def space_of(address: int) -> tuple[str, int]:
    """The space that a generic address lies in, and the address within it."""
    for space, (base, size) in WINDOWS.items():
        if space != "global" and base <= address < base + size:
            return space, address - base
    return "global", address
