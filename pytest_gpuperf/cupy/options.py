"""What CuPy compiles with, and what compiles it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["compiler", "options"]


def options(given: Sequence[str]) -> list[str]:
    """The options that CuPy gives to NVRTC for those of a kernel: standard and headers, then that of ``cupy/cuda/compiler.py``."""
    from cupy._core import core

    return [*core.assemble_cupy_compiler_options(tuple(given)), "-ftz=true"]


def compiler(title: str) -> str:
    """CuPy and the compiler that it calls, with their versions, in the form that baselines have: CuPy chooses options and headers, and
    writes texts, so PTX changes with either."""
    import cupy

    return f"cupy {cupy.__version__}, {title}"
