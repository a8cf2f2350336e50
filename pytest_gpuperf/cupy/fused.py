"""Launches of functions of ``cupy.fuse`` as CuPy makes them, without a GPU. Imports CuPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np
from cupy._core import fusion

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.memory.arrays import DeviceArray, check_dtype

from . import elementwise, reduction
from .arguments import ACCEPTED, CupyLaunch, taken
from .memory import MovedArrays

__all__ = ["prepare"]


def prepare(
    function: Any, arguments: Sequence[object], keywords: Mapping[str, object], moved: MovedArrays
) -> list[CupyLaunch]:
    """What ``function(*arguments)`` launches; the keyword ``out`` is the array, or the arrays, for what it returns. Raises
    ``LaunchError``."""
    name = str(function.name)
    out = taken(name, keywords, ("out",)).get("out")
    outputs = tuple(out) if isinstance(out, (tuple, list)) else () if out is None else (out,)
    kernel, more = _kernel(function, name, arguments)
    if len(outputs) != kernel.nout:
        raise LaunchError(
            f"{name!r} returns {kernel.nout} array{'s' if kernel.nout != 1 else ''}, and was given {len(outputs)} as out",
            hint=f"give {'them' if kernel.nout > 1 else 'it'} as out=…: the call returns what was counted"
            if kernel.nout
            else "omit out",
        )
    given = [*(value for value in arguments if value is not None), *outputs]
    if isinstance(kernel, cupy.ReductionKernel):
        return reduction.prepare(kernel, given, more, moved)
    return elementwise.prepare(kernel, given, more, moved)


def _kernel(function: Any, name: str, arguments: Sequence[object]) -> tuple[Any, dict[str, object]]:
    """The kernel that CuPy writes for arguments of these types, and the keywords of its calls (``Fusion.__call__`` of
    ``fusion.pyx``)."""
    like: list[object] = []
    for number, value in enumerate(arguments):
        if isinstance(value, (np.ndarray, DeviceArray)):
            # types and axes are asked for, not addresses
            check_dtype(value.dtype)
            like.append(_like(value))
        elif value is None or isinstance(value, (int, float, complex, bool, np.generic)):
            like.append(value)
        else:
            raise LaunchError(f"argument {number} of {name!r} is a {type(value).__name__}", hint=ACCEPTED)
    if not any(isinstance(value, cupy.ndarray) for value in like):
        raise LaunchError(
            f"{name!r} was given no array", hint="CuPy then calls the function as it is, without a kernel"
        )
    history = fusion._FusionHistory()
    state = fusion._thread_local
    state.history, state.is_old_fusing = history, True
    try:
        return history.get_fusion(function.func, tuple(like), name)  # type: ignore[no-any-return]
    except Exception as error:
        raise LaunchError(
            f"CuPy does not write one elementwise or reduction kernel for {name!r}: {error}",
            hint="call it as on a GPU, in a test that is run with --gpuperf-cuda: there each launch is a case",
        ) from None
    finally:
        state.history, state.is_old_fusing = None, False


def _like(value: Any) -> Any:
    memory = cupy.cuda.UnownedMemory(0, value.nbytes, None, 0)
    return cupy.ndarray(value.shape, value.dtype, cupy.cuda.MemoryPointer(memory, 0))
