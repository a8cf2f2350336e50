"""Errors of kernels in CUDA's form: the driver's text, then the engine's message."""

from __future__ import annotations

from gpuperf_engine.errors import (
    BudgetExceeded,
    Deadlock,
    EngineError,
    LaunchError,
    MemoryFault,
    RaceError,
    TrapError,
    Unsupported,
)

__all__ = ["KernelError", "OverBudget", "as_cuda"]


class OverBudget(BudgetExceeded):
    """The launches of a test cost more than they may. This is the gate's error, not one that a program gets from CUDA."""


class KernelError(RuntimeError):
    """A launch that failed. ``__cause__`` is the engine's error."""


#: texts of ``cuGetErrorString`` (CUDA driver API, ``CUresult``)
_WORDS = (
    (MemoryFault, "an illegal memory access was encountered"),
    (Deadlock, "the launch timed out and was terminated"),
    (BudgetExceeded, "the launch timed out and was terminated"),
    (RaceError, "unspecified launch failure"),
    (Unsupported, "operation not supported"),
    (LaunchError, "invalid argument"),
)


def as_cuda(error: EngineError) -> KernelError:
    """Return the error with CUDA's text as prefix."""
    if isinstance(error, TrapError):
        asserted = "assert" in error.message.lower()
        words = "device-side assert triggered" if asserted else "an illegal instruction was encountered"
    else:
        words = next((text for kind, text in _WORDS if isinstance(error, kind)), "unspecified launch failure")
    return KernelError(f"CUDA error: {words}\n{error}")
