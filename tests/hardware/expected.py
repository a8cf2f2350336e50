"""What the emulator makes of the cases that ``collect.py`` runs on a GPU: the same PTX, the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gpuperf_engine as ge

Array = npt.NDArray[Any]

#: the sign bits of a register's numbers, whatever their type down to 8 bits: clearing them makes every product positive and no
#: number smaller than a quarter of what it was
SIGNS = np.uint64(0x8080808080808080)


@lru_cache(maxsize=4)
def _module(path: Path, text: str) -> ge.Module:
    return ge.parse(text, path=str(path))


def instruction_words(path: Path, text: str, stores: int, source: Array) -> npt.NDArray[np.uint64]:
    """What each thread stores, (threads, stores)."""
    device = ge.Device(observe=())
    given = device.array(source)
    target = device.zeros((len(source), stores), np.uint64)
    device.launch(_module(path, text)["k"], grid=len(source) // 32, block=32, args=[given, target])
    found: npt.NDArray[np.uint64] = target.numpy()
    return found


def example_buffers(case: Any, program: Any) -> list[Array]:
    """What the buffers of a program hold after its last launch."""
    device = ge.Device(observe=())
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
    module = _module(case.ptx, case.text)
    for launch in program.launches:
        arguments = [arrays.get(id(value), value) for value in launch.args]
        options: dict[str, Any] = {}
        if getattr(launch, "cluster", None) is not None:
            options["cluster"] = launch.cluster
        run: Callable[..., Any] = device.launch
        run(
            module[launch.entry],
            launch.grid,
            launch.block,
            arguments,
            shared_bytes=launch.shared_bytes,
            **options,
        )
    return [arrays[id(buffer)].numpy() for buffer in program.buffers]
