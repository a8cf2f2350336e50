"""Arguments of the wrong type, given to the engine's own functions: a message, never a bare ``TypeError``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge

TEXT = """.version 8.0
.target sm_80
.address_size 64
.global .u32 g[4];
.visible .entry k(.param .u64 a, .param .u32 n) {
.reg .b64 %d; .reg .b32 %r;
ld.param.u64 %d, [a]; ld.param.u32 %r, [n]; st.global.u32 [%d], %r; ret; }
"""


class World:
    """A device, an array on it, one on another, a kernel and arguments that it takes."""

    def __init__(self) -> None:
        self.other = ge.Device().zeros(4, np.uint32)
        self.device = ge.Device()
        self.array = self.device.zeros(4, np.uint32)
        self.module = ge.parse(TEXT, path="k.ptx")
        self.kernel = self.module["k"]
        self.args: list[Any] = [self.array, np.uint32(1)]

    def launch(self, grid: Any = 1, block: Any = 1, args: Any = None, **options: Any) -> ge.Profile:
        return self.device.launch(self.kernel, grid, block, self.args if args is None else args, **options)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


WRONG: dict[str, Callable[[World], object]] = {
    "no text": lambda w: ge.parse(None),  # type: ignore[arg-type]
    "path as text": lambda w: ge.parse(Path("k.ptx")),  # type: ignore[arg-type]
    "kernel by number": lambda w: w.module[0],  # type: ignore[index]
    "function by nothing": lambda w: w.module.function(None),  # type: ignore[arg-type]
    "symbol by number": lambda w: w.kernel.symbol(5),  # type: ignore[arg-type]
    "symbol of a module": lambda w: w.device.symbol(w.module, "g"),  # type: ignore[arg-type]
    "grid as array": lambda w: w.launch(grid=np.array([1, 2])),
    "grid as float": lambda w: w.launch(grid=1.0),
    "block as text": lambda w: w.launch(block="32"),
    "args as number": lambda w: w.launch(args=5),
    "args as generator": lambda w: w.launch(args=(item for item in w.args)),
    "args as array": lambda w: w.launch(args=w.array),
    "args as text": lambda w: w.launch(args="ab"),
    "shared memory as text": lambda w: w.launch(shared_bytes="1k"),
    "demand as nothing": lambda w: w.launch(demand=None),
    "memset of nothing": lambda w: w.device.memset(None, 1),  # type: ignore[arg-type]
    "memset of a host array": lambda w: w.device.memset(np.zeros(4), 1),  # type: ignore[arg-type]
    "memset of another device's array": lambda w: w.device.memset(w.other, 1),
    "copy to a host array": lambda w: w.device.copy(np.zeros(4), w.array),  # type: ignore[arg-type]
    "copy to another device's array": lambda w: w.device.copy(w.other, np.zeros(4, np.uint32)),
    "index by float": lambda w: w.array[1.5],  # type: ignore[index]
    "index by text": lambda w: w.array["x"],  # type: ignore[index]
    "two indices": lambda w: w.array[0, 1],  # type: ignore[index]
    "slice by float": lambda w: w.array[0.5:],
    "observe a number": lambda w: ge.Device(observe=5),  # type: ignore[arg-type]
    "observe numbers": lambda w: ge.Device(observe=[1, "values"]),  # type: ignore[list-item]
    "backend as nothing": lambda w: ge.Device(backend=None),  # type: ignore[arg-type]
    "resources as number": lambda w: ge.Device(resources=5),  # type: ignore[arg-type]
    "machine as number": lambda w: ge.estimate(w.launch(), 5),  # type: ignore[arg-type]
    "sum of nothing": lambda w: ge.add_profiles([]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_are_told(world: World, name: str) -> None:
    with pytest.raises(ge.EngineError) as error:
        WRONG[name](world)
    assert 1 <= str(error.value).count("\n") + 1 <= 5
    assert world.launch().thread_instructions == 4  # and nothing was broken


def test_what_stands_for_the_same_is_taken(world: World) -> None:
    assert [row.address for row in world.array] == [world.array.address + 4 * index for index in range(4)]
    assert world.launch(grid=np.int64(2), block=[np.uint8(3)], args=tuple(world.args)).threads == 6
    assert ge.Device(observe="values").observe == {"values"}
    assert list(ge.parse(bytearray(TEXT.encode()))) == ["k"]
