"""The measured kernels that judge predictions and never calibrate a machine description."""

from __future__ import annotations

import zlib

__all__ = ["judged", "kernel_of"]


def kernel_of(case: str) -> str:
    """The kernel of a case: its name up to the size (``saxpy`` of ``saxpy-1048576``)."""
    return case.split("-")[0]


def judged(case: str) -> bool:
    """Whether a case is in the judged half. Only the kernel's name decides, so that measurements and other kernels do not affect the
    choice, and all sizes of a kernel are in the same half."""
    return zlib.crc32(kernel_of(case).encode()) % 2 == 0
