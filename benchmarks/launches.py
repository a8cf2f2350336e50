"""What a launch costs that does next to nothing: the same kernel again with other arguments, through the public interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gpuperf_engine as ge

__all__ = ["summary"]

#: launches in a round
_MANY = 300
_EMPTY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 number) { ret; }
"""
_SAXPY = Path(__file__).resolve().parent.parent / "examples/kernels/saxpy.ptx"


def _seconds(launch: Callable[[int], object], rounds: int) -> float:
    """CPU seconds of a launch: the least mean of so many rounds, since other processes make a round longer, but never shorter."""
    least = float("inf")
    for _ in range(rounds + 1):  # the first one compiles
        start = time.process_time()
        for number in range(_MANY):
            launch(number)
        least = min(least, (time.process_time() - start) / _MANY)
    return least


def summary(runs: int) -> str:
    """A line for a table of figures: an empty kernel and 1,000 elements of saxpy, on the default device and on one that only counts,
    as programs use it."""
    empty, saxpy = ge.parse(_EMPTY)["k"], ge.parse(_SAXPY.read_text(), path=_SAXPY.name)["saxpy"]
    figures = []
    for options in ({}, {"observe": (), "history": 0}):
        device = ge.Device(memory_bytes=1 << 24, **options)  # type: ignore[arg-type]
        x, y = device.zeros(1000), device.zeros(1000)
        figures.append(_seconds(lambda number, on=device: on.launch(empty, 1, 32, [number]), runs))
        figures.append(
            _seconds(
                lambda number, on=device, x=x, y=y: on.launch(saxpy, 4, 256, [1000, float(number), x, y]),
                runs,
            )
        )
    numbers = ", ".join(f"{seconds * 1e6:.0f}" for seconds in figures)
    return f"| a repeated launch: an empty kernel, 1,000 elements of saxpy; both without observing memory | {numbers} µs of CPU |"
