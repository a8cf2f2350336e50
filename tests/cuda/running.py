"""Runs the compiled kernels of this folder on both backends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.support import BACKENDS, launch

from . import compiled

Array = NDArray[Any]


def text(name: str) -> str:
    """The PTX of a file of ``kernels``."""
    return compiled.ptx(f"cuda/kernels/{name}")


@cache
def module(name: str) -> ge.Module:
    """The PTX of a file of ``kernels`` as a module."""
    return ge.parse(text(name), path=f"{name}.ptx")


def run_on(
    backend: str,
    kernel: ge.Kernel,
    grid: Any,
    block: Any,
    args: Sequence[object],
    **options: Any,
) -> tuple[list[Array], ge.Profile]:
    """Launch once on a device of its own; the arrays among ``args`` as they are afterwards, and the profile."""
    return launch(backend, kernel, grid, block, args, memory_bytes=1 << 26, **options)


def run(
    file: str, entry: str, grid: Any, block: Any, args: Sequence[object], **options: Any
) -> tuple[list[Array], ge.Profile]:
    """Launch on both backends, which must agree in every bit and every count; arrays afterwards, and the profile."""
    kernel = module(file)[entry]
    (reference, counted), (arrays, profile) = (
        run_on(backend, kernel, grid, block, args, **options) for backend in BACKENDS
    )
    for number, (expected, found) in enumerate(zip(reference, arrays, strict=True)):
        same = expected.view(np.uint8) == found.view(np.uint8)
        assert same.all(), f"{entry}: array {number} differs in {int((~same).sum())} bytes"
    assert counted.opcodes == profile.opcodes
    assert counted.warp_opcodes == profile.warp_opcodes
    assert counted.branches.executed == profile.branches.executed
    assert counted.branches.divergent == profile.branches.divergent
    return arrays, profile
