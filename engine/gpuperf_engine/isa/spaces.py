"""Where the state spaces lie in the generic address space. PYTEST_DONT_REWRITE

Generic and global addresses are the same numbers. Shared and local memory have windows of their own (manual: "Generic
Addressing"). ``.const`` and kernel ``.param`` variables lie in global memory (manual, ``cvta``, ``ld``): their generic addresses are
their addresses, told by those of the variables. Windows are a property of the virtual machine that PTX
describes here, not of any real GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["RANK_SHIFT", "WINDOWS", "space_of"]

#: In the shared window the memory of the CTA of rank r of a cluster begins at ``r << RANK_SHIFT``, as on hardware.
RANK_SHIFT = 24

#: Space → (first generic address, bytes). No address of the shared and local windows is handed out for global memory.
WINDOWS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "global": (0, 1 << 64),
        "shared": (0x0100_0000_0000, 1 << 32),
        "local": (0x0200_0000_0000, 1 << 32),
        "const": (0, 0),
        "param": (0, 0),
    }
)


def space_of(address: int) -> tuple[str, int]:
    """The space that a generic address lies in, and the address within it."""
    for space, (base, size) in WINDOWS.items():
        if space != "global" and base <= address < base + size:
            return space, address - base
    return "global", address
