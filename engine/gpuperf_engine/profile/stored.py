"""Profiles of launches as JSON, from the process that ran a program to the one that judges it. Input is validated; the program of the
kernel is built again from its PTX, so a profile that was read supports everything that the original does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device.first_inputs import KeptArray, ReachedInputs
from ..errors import EngineError
from ..isa.spaces import WINDOWS
from ..memory.arena import GLOBAL_BASE, LARGEST_BYTES, NOTHING, Allocation
from ..results import Profile, Race, Resources
from ..results.races import RaceAccess
from ..simt.atomic_targets import WORD_SHIFT, HottestAddress
from ..simt.counters import SITE_COLUMNS, Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .build import build_profile

__all__ = ["NO_CONTENTS", "Contents", "StoredError", "profile_from", "stored"]

_COUNTERS = ("block_warps", "block_lanes", "divergent", "taken", "predicated")
_SHAPES = ("grid", "block", "cluster")
_WHOLE = (
    "shared_bytes",
    "dynamic_shared",
    "parameter_address",
    "max_instructions",
    "resident",
)
#: kind of memory → first address and size
_ROOM = {"global": (GLOBAL_BASE, LARGEST_BYTES), "const": WINDOWS["const"]}
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


class StoredError(EngineError):
    """Stored launches that cannot be used."""


class Contents:
    """The bytes of inputs, concatenated, each array once: a file next to the JSON. ``known``: the bytes of such a file (uint8)."""

    def __init__(self, known: NDArray[np.uint8] = NOTHING) -> None:
        self.arrays: list[NDArray[np.uint8]] = []
        self._known = known
        self._places: dict[int, int] = {}
        self._end = 0

    def place(self, array: NDArray[np.uint8]) -> list[int]:
        """Add an array. Returns its offset and size."""
        if id(array) not in self._places:
            self._places[id(array)] = self._end
            self.arrays.append(array)
            self._end += array.nbytes
        return [self._places[id(array)], array.nbytes]

    def at(self, start: int, size: int) -> NDArray[np.uint8]:
        """The bytes of a range. Raises ``StoredError`` if it exceeds the file."""
        if start + size > len(self._known):
            raise StoredError("contents of memory are missing")
        return self._known[start : start + size]


NO_CONTENTS = Contents()


def stored(profile: Profile, contents: Contents | None = None) -> dict[str, object]:
    """A profile of one kernel in one shape, made by running it, ready for JSON; inputs that were kept are in ``contents``."""
    (record,) = profile.records
    inputs = () if contents is None else record.kept
    plan, observation = record.plan, record.observation
    known = {*record.program.kernel.module.notes, *(race.message for race in profile.races)}
    word = observation.hottest.word
    return {
        **{name: list(getattr(plan, name)) for name in _SHAPES},
        **{name: getattr(plan, name) for name in _WHOLE},
        "explicit_cluster": plan.explicit_cluster,
        "cooperative": plan.cooperative,
        "strict": plan.strict,
        "parameters": plan.parameters.hex(),
        "symbols": plan.symbols.tolist(),
        "pointed_at": [list(pair) for pair in plan.pointed_at],
        "names": list(plan.names),
        "images": [list(pair) for pair in plan.images],
        "described": _described(plan, word),
        "times": record.times,
        **{name: getattr(observation, name).tolist() for name in _COUNTERS},
        "sites": None if observation.sites is None else observation.sites.tolist(),
        "hottest": [observation.hottest.lanes, observation.hottest.operations, word],
        "tensor_work": dict(observation.tensor_work),
        "cancelled": observation.cancelled,
        "waited": observation.waited,
        "resources": asdict(profile.resources),
        "notes": [note for note in profile.notes if note not in known],
        "remarks": list(profile.remarks),
        "races": [race.to_dict() for race in profile.races],
        "kept": [
            row
            for plan, times in inputs
            if contents is not None
            for row in _stored_inputs(plan, times, contents)
        ],
    }


def _stored_inputs(plan: LaunchPlan, times: int, contents: Contents) -> list[dict[str, object]]:
    """A list with the inputs, empty if they can only be run on their own device."""
    if not isinstance(plan.inputs, ReachedInputs):
        return []
    arrays = [
        {
            **{name: getattr(item.allocation, name) for name in ("name", "address", "size", "kind", "pad")},
            "initialized": item.initialized,
            "contents": contents.place(item.contents),
            "shadow": contents.place(item.shadow),
        }
        for item in plan.inputs.arrays
    ]
    parameters, symbols = plan.parameters.hex(), plan.symbols.tolist()
    return [{"parameters": parameters, "symbols": symbols, "times": times, "arrays": arrays}]


def _described(plan: LaunchPlan, word: int | None) -> str:
    """A description of the hottest address if no argument points there."""
    address = 0 if word is None else word << WORD_SHIFT
    inside = any(start <= address < start + size for start, size in plan.pointed_at)
    return "" if word is None or inside else plan.describe(address)


def profile_from(program: Program, row: object, contents: Contents = NO_CONTENTS) -> Profile:
    """The profile of a launch of a program. Raises ``StoredError`` for what ``stored`` cannot have given for it."""
    fields = _Row(row)
    sizes: dict[str, Any] = {name: fields.shape(name) for name in _SHAPES}
    sizes |= {name: fields.whole(name) for name in _WHOLE}
    plan = LaunchPlan(
        **sizes,
        explicit_cluster=fields.of("explicit_cluster", bool),
        cooperative=fields.of("cooperative", bool),
        strict=fields.of("strict", str),
        parameters=bytes.fromhex(fields.matching("parameters", _HEX)),
        symbols=np.array(fields.numbers("symbols", len(program.symbols)), dtype=np.uint64),
        threads=1,
        pointed_at=fields.pairs("pointed_at"),
        names=fields.texts("names"),
        images=fields.pairs("images"),
        describe=_always(fields.of("described", str)),
    )
    if len(plan.names) != len(plan.pointed_at):
        raise StoredError("names and pointed_at are not of one length")
    counts = dict.fromkeys(_COUNTERS, len(program.blocks)) | {"predicated": len(program.predicated)}
    arrays: dict[str, Any] = {name: _array(fields.numbers(name, count)) for name, count in counts.items()}
    observation = Observation(
        **arrays,
        sites=fields.sites(len(program.sites)),
        hottest=fields.hottest(),
        tensor_work=fields.counts("tensor_work"),
        cancelled=fields.whole("cancelled"),
        waited=fields.of("waited", bool),
        notes=fields.texts("notes"),
        remarks=fields.texts("remarks"),
        races=tuple(_race(item) for item in fields.of("races", list)),
    )
    times = fields.whole("times")
    if not times:
        raise StoredError("times is 0")
    same = tuple(_inputs(program, plan, _Row(item), contents) for item in fields.of("kept", list))
    if sum(count for _, count in same) > times:
        raise StoredError("more launches were kept than there were")
    if same and same[0][0].parameters == plan.parameters:
        plan = same[0][0]
    return build_profile(program, plan, observation, fields.resources(), times=times, same=same)


def _inputs(program: Program, plan: LaunchPlan, given: _Row, contents: Contents) -> tuple[LaunchPlan, int]:
    """A launch whose inputs were kept, and how many there were with these."""
    arrays, end = [], 0
    for item in map(_Row, given.of("arrays", list)):
        address, size, kind = item.whole("address"), item.whole("size"), item.of("kind", str)
        pad = None if item.is_none("pad") else item.whole("pad")
        base, room = _ROOM.get(kind, (0, 0))
        if not max(base, end) <= address <= address + size + (pad or 0) <= base + room:
            raise StoredError(f"an array of {kind} memory is at {address:#x}")
        end = address + size
        initialized = item.of("initialized", bool)
        first, second = (
            contents.at(*_numbers(item.of(name, list), name, 2)) for name in ("contents", "shadow")
        )
        if len(first) not in (0, size) or len(second) not in (0, size):
            raise StoredError("the contents of an array are not of its size")
        allocation = Allocation(item.of("name", str), address, size, kind, initialized, pad=pad)
        arrays.append(KeptArray(allocation, initialized, first, second))
    symbols = given.numbers("symbols", len(program.symbols))
    inputs = ReachedInputs(tuple(arrays), dict(zip(program.symbols, symbols, strict=True)))
    parameters = bytes.fromhex(given.matching("parameters", _HEX))
    if len(parameters) != len(plan.parameters) and plan.parameters:
        raise StoredError("parameters have another size")
    known = replace(plan, parameters=parameters, symbols=np.array(symbols, np.uint64), inputs=inputs)
    return known, given.whole("times")


def _always(text: str) -> Callable[[int], str]:
    return lambda address: text or hex(address)


def _array(numbers: list[int]) -> NDArray[Any]:
    # counters of many launches may leave 64 bits
    return np.array(numbers, dtype=np.int64 if max(numbers, default=0) < 1 << 62 else object)


class _Row:
    """A mapping read from JSON. Raises ``StoredError`` for what is missing or of another kind."""

    def __init__(self, row: object) -> None:
        if not isinstance(row, Mapping):
            raise StoredError("a launch is no object")
        self._row = row

    def of(self, name: str, kind: type) -> Any:
        value = self._row.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise StoredError(f"{name} is missing or no {kind.__name__}")
        return value

    def is_none(self, name: str) -> bool:
        return name in self._row and self._row[name] is None

    def whole(self, name: str) -> int:
        return _whole(self.of(name, int), name)

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        text: str = self.of(name, str)
        if not pattern.fullmatch(text):
            raise StoredError(f"{name} is malformed")
        return text

    def numbers(self, name: str, count: int | None = None) -> list[int]:
        return _numbers(self.of(name, list), name, count)

    def shape(self, name: str) -> tuple[int, int, int]:
        x, y, z = self.numbers(name, 3)
        if not x * y * z:
            raise StoredError(f"{name} is empty")
        return x, y, z

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        pairs = [_numbers(item, name, 2) for item in self.of(name, list)]
        return tuple((first, second) for first, second in pairs)

    def texts(self, name: str) -> tuple[str, ...]:
        texts = self.of(name, list)
        if not all(isinstance(text, str) for text in texts):
            raise StoredError(f"{name} are no texts")
        return tuple(texts)

    def counts(self, name: str) -> dict[str, int]:
        counts: dict[str, int] = self.of(name, dict)
        return {key: _whole(value, name) for key, value in counts.items()}

    def sites(self, count: int) -> NDArray[Any] | None:
        if self._row.get("sites") is None:
            return None
        rows = self.of("sites", list)
        if len(rows) != count:
            raise StoredError(f"sites has {len(rows)} rows, the kernel has {count} memory instructions")
        flat = [number for row in rows for number in _numbers(row, "sites", len(SITE_COLUMNS))]
        return _array(flat).reshape(count, len(SITE_COLUMNS))

    def hottest(self) -> HottestAddress:
        value = self.of("hottest", list)
        if len(value) != 3:
            raise StoredError("hottest has not three parts")
        lanes, operations = _numbers(value[:2], "hottest", 2)
        return HottestAddress(lanes, operations, None if value[2] is None else _whole(value[2], "hottest"))

    def resources(self) -> Resources:
        row = _Row(self.of("resources", dict))
        values: dict[str, Any] = {
            item.name: row.of("source", str) if item.name == "source" else row.whole(item.name)
            for item in fields(Resources)
        }
        return Resources(**values)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise StoredError(f"{name} holds {value!r}, which is no count")
    return value


def _numbers(values: object, name: str, count: int | None) -> list[int]:
    if not isinstance(values, list) or (count is not None and len(values) != count):
        description = len(values) if isinstance(values, list) else "no list of"
        raise StoredError(f"{name} has {description} numbers, {count} expected")
    return [_whole(value, name) for value in values]


def _race(item: object) -> Race:
    row = _Row(item)
    return Race(
        kind=row.matching("kind", re.compile("RAW|WAR|WAW")),
        space=row.of("space", str),
        object=row.of("object", str),
        address=row.whole("address"),
        first=_access(row.of("first", dict)),
        second=_access(row.of("second", dict)),
        count=row.whole("count"),
        missing=row.of("missing", str),
        nearby=row.of("nearby", bool),
    )


def _access(item: object) -> RaceAccess:
    row = _Row(item)
    block, thread = (
        (first, second, third) for first, second, third in (row.numbers(n, 3) for n in ("block", "thread"))
    )
    return RaceAccess(row.of("location", str), row.of("source", str), row.of("opcode", str), block, thread)
