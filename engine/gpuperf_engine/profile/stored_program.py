"""Recorded programs as JSON: from the process that ran a program to the one that seeks patterns in it. What is read is checked as far
as patterns rely on it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from ..device.contents import Contents
from ..device.events import CallSite, Event, Same, Use
from ..device.recorded import Program, RecordedProgram
from ..device.thresholds import Thresholds
from ..errors import NotObserved
from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray
from ..ptx.module import Function
from ..results import AffineFit, ValueRecord
from .stored import StoredError

__all__ = ["program_from", "stored_program"]

_KINDS = ("allocate", "copy-in", "copy", "memset", "launch", "copy-out")
_USE = tuple(item.name for item in fields(Use) if item.name not in ("array", "contents", "unread", "same"))


def stored_program(program: Program, kernels: Sequence[Function]) -> dict[str, object]:
    """A recorded program, ready for JSON; kernels are stored as their place in the list."""
    objects: dict[Allocation, DeviceArray] = {array.allocation: array for array in program.arrays}
    for event in program.events:
        for use in event.uses:
            objects.setdefault(use.array.allocation, use.array)
    numbers = {allocation: number for number, allocation in enumerate(objects)}
    paths: dict[tuple[CallSite, ...], int] = {}
    places = {kernel: number for number, kernel in enumerate(kernels)}
    events = []
    for event in program.events:
        function = event.function
        events.append(
            {
                "kind": event.kind,
                "path": paths.setdefault(event.path, len(paths)),
                "objects": [
                    numbers[array.allocation] for array in event.objects if array.allocation in numbers
                ],
                "bytes": event.bytes,
                "kernel": -1 if function is None else places.get(function, -1),
                "number": event.number,
                "uses": [_stored_use(use, numbers) for use in event.uses],
            }
        )
    own = {array.allocation for array in program.arrays}
    return {
        "observe": sorted(program.observe),
        "observed_all": program.observed_all,
        "paths": [[asdict(site) for site in path] for path in paths],
        "objects": [
            {
                "name": array.name,
                "size": allocation.size,
                "type": array.dtype.name if array.dtype.kind != "V" else array.dtype.str[1:],
                "shape": list(array.shape),
                "kind": allocation.kind,
                "host": allocation.host,
                "array": allocation in own,
                "origin": program.origins.get(allocation, -1),
                "end": program.ends.get(allocation, -1),
                **_left(program, allocation, allocation in own and not allocation.host),
            }
            for allocation, array in objects.items()
        ],
        "events": events,
        "carried": {
            str(number): [asdict(record) for record in records] for number, records in program.carried.items()
        },
    }


def _left(program: Program, allocation: Allocation, known: bool) -> dict[str, object]:
    """What was not read or written of an array."""
    never = program.never_read(allocation) if known else {}
    return {
        "untouched": list(program.untouched(allocation)) if known else [0, 0],
        "never_read": {str(number): size for number, size in never.items()},
    }


def _stored_use(use: Use, numbers: Mapping[Allocation, int]) -> dict[str, object]:
    same = use.same
    known = same is not None and same.array.allocation in numbers
    return {
        "object": numbers[use.array.allocation],
        **{name: getattr(use, name) for name in _USE},
        "contents": [asdict(item) for item in use.contents],
        "unread": [list(pair) for pair in use.unread],
        "same": [numbers[same.array.allocation], same.start, same.bytes, same.writer, same.freed]
        if same and known
        else None,
    }


class _Gone:
    """What owned arrays of a process that has ended."""

    @property
    def memory(self) -> Any:
        raise _gone()

    def read(self, array: DeviceArray) -> Any:
        raise _gone()

    def memset(self, array: DeviceArray, value: object) -> None:
        raise _gone()

    def copy(self, target: DeviceArray, source: object) -> None:
        raise _gone()


def _gone() -> NotObserved:
    return NotObserved("the process that had this array has ended")


def program_from(row: object, kernels: Sequence[Function], first: int = 0) -> RecordedProgram:
    """The program, with its events numbered from ``first`` on. ``kernels``: those of ``stored_program``. Raises ``StoredError`` for
    what that cannot have given."""
    try:
        return _Reader(row, kernels, first).program()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StoredError(f"a recorded program is damaged: {type(error).__name__} {error}") from None


class _Reader:
    def __init__(self, row: Any, kernels: Sequence[Function], first: int) -> None:
        self.row, self.kernels, self.first = row, kernels, first
        owner = _Gone()
        self.arrays: list[DeviceArray] = []
        at = 1 << 12
        for item in row["objects"]:
            allocation = Allocation(
                str(item["name"]), at, int(item["size"]), str(item["kind"]), host=str(item["host"])
            )
            at += allocation.size + (1 << 12)
            dtype = _dtype(item["type"])
            self.arrays.append(DeviceArray(owner, allocation, 0, tuple(map(int, item["shape"])), dtype))
        self.paths = [tuple(CallSite(**site) for site in path) for path in row["paths"]]

    def program(self) -> RecordedProgram:
        row, first = self.row, self.first
        own = [array for array, item in zip(self.arrays, row["objects"]) if item["array"]]
        rows = [item for item in row["objects"] if item["array"]]
        pairs = list(zip((array.allocation for array in own), rows))
        return RecordedProgram(
            frozenset(map(str, row["observe"])),
            Thresholds(),
            tuple(self._event(item) for item in row["events"]),
            tuple(own),
            {key: item["origin"] + first for key, item in pairs if item["origin"] >= 0},
            {key: item["end"] + first for key, item in pairs if item["end"] >= 0},
            {int(key) + first: tuple(map(_record, items)) for key, items in row["carried"].items()},
            {key: (int(item["untouched"][0]), int(item["untouched"][1])) for key, item in pairs},
            {
                key: {int(number) + first: int(size) for number, size in item["never_read"].items()}
                for key, item in pairs
            },
            bool(row["observed_all"]),
        )

    def _event(self, item: Any) -> Event:
        if item["kind"] not in _KINDS:
            raise ValueError(item["kind"])
        kernel = self.kernels[item["kernel"]] if item["kernel"] >= 0 else None
        return Event(
            item["kind"],
            self.paths[item["path"]],
            tuple(self.arrays[number] for number in item["objects"]),
            "" if kernel is None else kernel.name,
            int(item["bytes"]),
            tuple(map(self._use, item["uses"])),
            int(item["number"]) + self.first,
            True,
            kernel,
        )

    def _use(self, item: Any) -> Use:
        same = item["same"]
        return Use(
            self.arrays[item["object"]],
            **{name: item[name] for name in _USE},
            contents=tuple(
                Contents(
                    part["rule"],
                    part["text"],
                    tuple((key, value) for key, value in part["evidence"]),
                    part["width"],
                )
                for part in item["contents"]
            ),
            unread=tuple((int(number) + self.first, int(size)) for number, size in item["unread"]),
            same=None
            if same is None
            else Same(
                self.arrays[same[0]],
                same[1],
                same[2],
                same[3] + self.first if same[3] >= 0 else -1,
                bool(same[4]),
            ),
        )


def _dtype(name: str) -> np.dtype[np.generic]:
    if name == "bfloat16":
        name = importlib.import_module("ml_dtypes").bfloat16
    kind: np.dtype[np.generic] = np.dtype(name)
    return kind


def _record(item: Mapping[str, Any]) -> ValueRecord:
    affine, overwriter = item["affine"], item["overwriter"]
    fit = None
    if affine is not None:
        fit = AffineFit(**{**affine, "beyond": tuple(affine["beyond"]), "sizes": tuple(affine["sizes"])})
    return ValueRecord(
        **{
            **item,
            "top": tuple((value, count) for value, count in item["top"]),
            "affine": fit,
            "overwriter": None if overwriter is None else (overwriter[0], overwriter[1]),
        }
    )
