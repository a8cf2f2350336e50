"""Launches kernels of (out, n, m, p) and compares counts of block classes with those of running every block."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.symbolic.backend import Refusal, count_by_warp_classes
from gpuperf_engine.symbolic.slice_program import slice_of
from tests.cuda import compiled

KERNELS = Path(__file__).parent / "kernels"
BLOCKS: tuple[Any, ...] = (
    *(1, 5, 31, 32, 33, 64, 96, 100, 128, 256),
    *((10, 10), (16, 16), (32, 8), (8, 4), (16, 2), (3, 2), (64, 4), (96, 2), (1, 33), (48, 3)),
    *((4, 4, 4), (2, 2, 64), (32, 2, 2), (5, 3, 7)),
)
#: per warp: launches that run longer are not compared
LONGEST = 30_000


@dataclass(frozen=True)
class Counts:
    """Per block of a program: executions by warps and lanes, divergent and taken branches; per predicated instruction the lanes
    whose guard held, ``None`` if that was not counted."""

    program: Any = field(repr=False, compare=False)
    warps: list[int]
    lanes: list[int]
    divergent: list[int]
    taken: list[int]
    predicated: list[int | None]

    @classmethod
    def of(cls, program: Any, seen: Any) -> Counts:
        columns = (seen.block_warps, seen.block_lanes, seen.divergent, seen.taken, seen.predicated)
        return cls(program, *([None if n is None else int(n) for n in column] for column in columns))

    @property
    def executed(self) -> int:
        """Branches executed: guarded ``bra``, ``ret`` and ``exit``, and ``brx.idx``."""
        blocks = self.program.blocks
        return sum(n for n, block in zip(self.warps, blocks, strict=True) if block.counted)


def text(name: str) -> str:
    """The PTX of a file of ``kernels``; ``written`` is written by hand."""
    if name == "written":
        return (KERNELS / "written.ptx").read_text(encoding="utf-8")
    return compiled.ptx(f"symbolic/kernels/{name}")


@cache
def module(name: str) -> ge.Module:
    return ge.parse(text(name), path=f"{name}.ptx")


def every_block(kernel: ge.Kernel, grid: Any, block: Any, numbers: tuple[Any, ...]) -> Counts:
    """Run it all."""
    device = ge.Device(memory_bytes=1 << 16, max_instructions=LONGEST, observe=())
    profile = device.launch(kernel, grid, block, [device.zeros(32, np.uint32), *numbers])
    return Counts.of(profile.records[0].program, profile.records[0].observation)


class _Caught(Exception):
    """A launch that is ready to run."""


class _Catching:
    """A backend that runs nothing."""

    def run(self, program: Any, plan: Any, memory: Any, observe: Any) -> Any:
        raise _Caught(program, plan, memory)


def by_classes(kernel: ge.Kernel, grid: Any, block: Any, numbers: tuple[Any, ...]) -> Counts | str:
    """Count by classes; the reason if that is refused."""
    device = ge.Device(memory_bytes=1 << 16, max_instructions=10**30, observe=())
    device._backend = _Catching()
    with pytest.raises(_Caught) as caught:
        device.launch(kernel, grid, block, [device.zeros(32, np.uint32), *numbers])
    program, plan, memory = caught.value.args
    wanted = slice_of(program, "control", None)
    try:
        return Counts.of(
            program, count_by_warp_classes(program, plan, wanted.instructions, memory, guards=wanted.guards)
        )
    except Refusal as refusal:
        return str(refusal)


def random_shape(chance: random.Random) -> tuple[Any, Any]:
    """A grid and a block of it."""
    block = chance.choice(BLOCKS)
    grid: Any = chance.choice([1, 2, 3, 5, 8, 13, 40, (3, 2), (2, 5), (1, 2, 3), (7, 1, 2), (9, 9)])
    if chance.random() < 0.1:
        grid = chance.choice([777, 2048, (60, 40), (2, 3, 333)])
    return grid, block


def random_number(chance: random.Random, threads: int, bits: int) -> int:
    """A parameter: none, few, about as many as there are threads, far more, negative, or near a wrap."""
    kind = chance.randrange(10)
    if kind < 2:
        return chance.choice([0, 1, 2, 3, 4, 7, 8, 16])
    if kind < 4:
        return chance.randint(0, 70)
    if kind < 7:
        return threads + chance.randint(-40, 40)
    if kind == 7:
        return chance.randint(0, 2 * threads + 5)
    if kind == 8:
        return -chance.randint(1, 2 * threads + 5)
    near = chance.choice([2**31, -(2**31), 2**32, 2**30, 65536] + [2**40, 2**63, -(2**63)] * (bits == 64))
    number = near + chance.randint(-50, 50)
    half = 1 << bits - 1
    return (number + half) % (2 * half) - half
