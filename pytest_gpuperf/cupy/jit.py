"""Launches of functions of ``cupyx.jit.rawkernel`` as CuPy makes them, without a GPU. Imports CuPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cupy_backends.cuda.api.runtime import CUDARuntimeError
from cupyx.jit import _compile, _cuda_typerules, _cuda_types

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.memory.arrays import DeviceArray

from .arguments import ACCEPTED, CupyLaunch, place_array, taken, with_headers
from .memory import MovedArrays
from .options import options

__all__ = ["prepare"]

_MANUAL = "what it compiles: https://docs.cupy.dev/en/stable/user_guide/kernel.html#jit-kernel-definition"


def prepare(
    function: Any,
    shape: tuple[object, object],
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    moved: MovedArrays,
) -> list[CupyLaunch]:
    """What ``function[grid, block](*arguments, **keywords)`` launches. Raises ``LaunchError``."""
    name = function._func.__name__
    shared = taken(name, keywords, ("shared_mem",)).get("shared_mem", 0)
    if isinstance(shared, bool) or not isinstance(shared, (int, np.integer)) or int(shared) < 0:
        raise LaunchError(f"shared_mem={shared!r} of {name!r}", hint="a number of bytes from 0")
    if function._device:
        raise LaunchError(f"{name!r} is a device function", hint="call it in a kernel")
    moved.take(
        [
            (f"argument {number}", value)
            for number, value in enumerate(arguments)
            if isinstance(value, np.ndarray)
        ]
    )
    types: list[Any] = []
    given: list[bytes] = []
    for number, value in enumerate(arguments):
        if isinstance(value, (np.ndarray, DeviceArray)):
            placed = place_array(value, moved)
            types.append(_cuda_types.CArray.from_ndarray(placed.view))
            given.append(placed.bytes())
        elif np.isscalar(value):
            try:
                kind = _cuda_typerules.get_ctype_from_scalar(function._mode, value)
                # half numbers are passed as float
                number_type: Any = np.float32 if kind.dtype.char == "e" else kind.dtype.type
                given.append(number_type(value).tobytes())
            except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
                raise LaunchError(f"argument {number} of {name!r}: {error}", hint=ACCEPTED) from None
            types.append(kind)
        else:
            raise LaunchError(f"argument {number} of {name!r} is a {type(value).__name__}", hint=ACCEPTED)
    try:
        made = _compile.transpile(
            function._func, ['extern "C"', "__global__"], function._mode, tuple(types), _cuda_types.void
        )
    except CUDARuntimeError:
        raise LaunchError(
            f"CuPy asks a GPU what it can before it compiles {name!r}",
            hint="run the test with --gpuperf-cuda: there each launch is a case",
        ) from None
    except Exception as error:
        raise LaunchError(f"CuPy does not compile {name!r}: {error}", hint=_MANUAL) from None
    if made.backend != "nvrtc" or made.jitify:
        raise LaunchError(
            f"CuPy compiles {name!r} by nvcc or with Jitify, as it uses Thrust or such",
            hint="run the test with --gpuperf-cuda: there each launch is a case",
        )
    grid, block = (_three(value, name) for value in shape)
    return [
        CupyLaunch(
            with_headers(made.code),
            options(made.options),
            made.func_name,
            grid,
            block,
            tuple(given),
            int(shared),
            made.enable_cooperative_groups,
        )
    ]


def _three(value: object, name: str) -> tuple[int, int, int]:
    lengths: Sequence[Any] = value if isinstance(value, Sequence) else (value,)
    if not 1 <= len(lengths) <= 3 or not all(
        isinstance(length, (int, np.integer)) and not isinstance(length, bool) and length > 0
        for length in lengths
    ):
        raise LaunchError(f"{value!r} as a grid or block of {name!r}", hint="one to three numbers from 1")
    x, y, z = (*map(int, lengths), 1, 1)[:3]
    return x, y, z
