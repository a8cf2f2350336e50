"""Which measured kernels are kept for judging predictions and never serve to calibrate a machine description."""

from __future__ import annotations

import zlib

__all__ = ["judged", "kernel_of"]


def kernel_of(case: str) -> str:
    """The kernel of a case: its name up to the size (``saxpy`` of ``saxpy-1048576``)."""
    return case.split("-")[0]


def judged(case: str) -> bool:
    """Whether a case is in the judged half. By its kernel's name alone, so that no measurement and no other kernel can move it,
    and all sizes of a kernel are on the same side."""
    return zlib.crc32(kernel_of(case).encode()) % 2 == 0
