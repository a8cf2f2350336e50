"""What the emulator makes of the cases that ``collect.py`` runs on a GPU: the same PTX, the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gpuperf_engine as ge
from gpuperf_engine.memory.tensor_maps import Layout
from tests.hardware import collect

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


def argument(value: Any, arrays: Mapping[int, Any]) -> Any:
    """An argument of the catalogue for a launch; ``arrays``: identity of a host array → the device's."""
    if hasattr(value, "layout"):  # a tensor map of timed.py
        return Layout(address=arrays[id(value.array)].address, **value.layout).encode()
    return arrays.get(id(value), value)


def recorded_buffers(record: dict[str, Any], skew: int = 0) -> list[Array]:
    """What the buffers of a launch of ``ptx/kernels.jsonl`` hold afterwards, as bytes. ``skew``: how many other arrays lie before
    them, for results that must not depend on that."""
    device = ge.Device(observe=())
    for place in range(skew):
        device.zeros(4096 + 256 * place, np.uint8)
    buffers = [device.array(collect.unpack(text, np.uint8)) for text in record["buffers"]]
    arguments: list[Any] = []
    kernel = ge.parse(record["ptx"], path="kernels.jsonl")[record["entry"]]
    for parameter, given in zip(kernel.params, record["args"]):
        if isinstance(given, str):
            raw = bytes.fromhex(given)
            plain = not parameter.dims and not parameter.type.is_float
            arguments.append(int.from_bytes(raw, "little") if plain else _number(parameter, raw))
        elif isinstance(given, list):
            arguments.append(buffers[given[0]].address + given[1])
        else:
            layout = {
                key: tuple(item) if isinstance(item, list) else item for key, item in given["layout"].items()
            }
            address = buffers[given["buffer"]].address + given["offset"]
            arguments.append(Layout(address=address, **layout).encode())
    cluster = record["cluster"]
    device.launch(
        kernel, tuple(record["grid"]), tuple(record["block"]), arguments, shared_bytes=record["shared_bytes"],
        cluster=None if cluster is None else tuple(cluster),
    )  # fmt: skip
    return [buffer.numpy() for buffer in buffers]


def _number(parameter: Any, raw: bytes) -> Any:
    if parameter.dims:
        return raw
    return np.frombuffer(raw, {2: np.float16, 4: np.float32, 8: np.float64}[parameter.size])[0]


def example_buffers(case: Any, program: Any) -> list[Array]:
    """What the buffers of a program hold after its last launch."""
    device = ge.Device(observe=())
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
    module = _module(case.ptx, case.text)
    for launch in program.launches:
        device.launch(
            module[launch.entry],
            launch.grid,
            launch.block,
            [argument(value, arrays) for value in launch.args],
            shared_bytes=launch.shared_bytes,
        )
    return [arrays[id(buffer)].numpy() for buffer in program.buffers]
