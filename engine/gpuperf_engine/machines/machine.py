"""Machine descriptions: one YAML file per GPU, every number with its unit and its source, checked strictly when read.

A file is a mapping with ``schema``, ``id``, ``name``, ``revision`` (raised by hand whenever a number changes, so that a
baseline can tell a change of the machine from a change of the kernel), ``compute_capability``, ``sources`` (key → what it
is) and groups of quantities, each ``{value:, unit:, source:, note:}``. ``source: assumed`` needs a note that says why.

With ``like``, the id of a shipped machine, a file has only the numbers that differ from it, each in its group. Its
compute capability is that machine's, or another of the same major version, and to its revision that machine's is added, so that a
change of either shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import MachineError, UnknownName, nearest
from .common import common
from .schema import LATENCIES, QUANTITIES, SCHEMA_VERSION, UNITS
from .yaml_nodes import Entry, Fields, read_yaml

__all__ = ["Machine", "Quantity", "load_machine", "machine_ids", "machine_path"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a machine description with its unit, the text of its source and a note (empty where there is none)."""

    value: float
    unit: str
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU as the models use it.

    Cycles are those of the SM clock, ``clock_mhz``; ``lanes`` are lanes per sub-partition of each unit (a warp instruction occupies a
    unit of *n* lanes for 32/*n* cycles); ``latencies`` are cycles from issue to use of the result; ``shared_pipes`` maps a unit to the
    unit whose pipe it also occupies; bandwidths and sizes have the units named in ``quantities``, which maps the path of every number
    in the file (``"sm.max_warps"``) to the number with its source.
    """

    id: str
    name: str
    revision: int
    compute_capability: tuple[int, int]
    sm_count: int
    clock_mhz: float
    #: The clock while the tensor cores are busy, whose power lowers it; ``None``: ``clock_mhz``.
    tensor_clock_mhz: float | None
    #: The clock of a loop of single-precision multiply-adds (``clock.fma_share`` in common.yaml); ``None``: ``clock_mhz``.
    fma_clock_mhz: float | None
    sub_partitions: int
    issue_rate: float
    max_warps_per_sm: int
    max_threads_per_sm: int
    max_ctas_per_sm: int
    max_threads_per_cta: int
    memory_queue: int | None
    #: Memory instructions that the SM holds behind these queues until they are answered; ``None``: unknown.
    memory_pool: int | None
    address_rate: float | None
    #: Registers that a sub-partition reads for queued instructions; ``None``: unknown.
    operand_rate: float | None
    #: Lanes of the tensor unit in products with FP16 or integer accumulators or of packed 4-bit numbers; ``None``: as in others.
    tensor_fp16_accumulate: float | None
    #: Of bitwise instructions, shifts, and minima and maxima in single precision; ``None``: those of the integer unit.
    logic_lanes: float | None
    registers_per_sm: int
    registers_per_cta: int
    max_registers_per_thread: int
    register_allocation_unit: int
    register_read_rate: float
    shared_per_sm: int
    shared_per_cta: int
    shared_reserved_per_cta: int
    shared_allocation_unit: int
    shared_carve_out: int | None
    l1_bytes: int
    l1_bandwidth: float
    l1_tag_rate: float
    l2_bytes: int
    l2_partitions: int
    l2_bandwidth: float
    l2_sm_bandwidth: float
    #: Lines per clock of which stores can write sectors in part; ``None``: unknown.
    l2_partial_rate: float | None
    #: The same of which they write single words; ``None``: ``l2_partial_rate``.
    l2_single_rate: float | None
    #: What is read from L2 beside the accesses of the launch; ``None``: unknown.
    l2_other_reads: float | None
    #: The instruction cache of an SM (Nsight Compute's ICC); ``None``: unknown.
    icc_bytes: int | None
    icc_ways: int | None
    icc_prefetch: int | None
    icc_l2_bandwidth: float | None
    #: The next level of the instruction cache (Nsight Compute's GCC); ``None``: none, or unknown.
    gcc_bytes: int | None
    gcc_bandwidth: float | None
    #: Of each of the 128 lanes of tensor memory, shared by loads and stores of registers; ``None``: there is none, or unknown.
    tensor_memory_read: float | None
    tensor_memory_write: float | None
    atomic_rate: float
    atomic_lanes: int
    #: Turns of atomics per clock in an aligned KiB of memory; ``None``: unknown.
    atomic_turns: float | None
    #: GiB, which data sheets call GB, of which a GPU keeps some for itself; ``None``: not known
    dram_size: int | None
    dram_bandwidth: float
    dram_sustained_one_way: float
    dram_sustained_mixed: float
    #: Independent channels, and ns between two rows that one channel opens; ``None``: unknown.
    dram_channels: int | None
    dram_row_interval: float | None
    #: ns by which the slowest load takes longer while DRAM is busy, if it goes one way or alternates; ``None``: none, or unknown.
    dram_wait_one_way: float | None
    dram_wait_mixed: float | None
    launch_overhead_us: float
    cta_turnaround: int
    cta_rate: float
    #: GB/s in one direction; ``None``: unknown.
    host_bandwidth: float | None
    lanes: Mapping[str, float]
    latencies: Mapping[str, int]
    shared_pipes: Mapping[str, str]
    quantities: Mapping[str, Quantity]

    @property
    def targets(self) -> tuple[str, ...]:
        """``.target`` names of exactly this architecture: plain, then (from 9.0) ``a`` and (from 10.0) ``f``."""
        major, minor = self.compute_capability
        suffixes = [""] + (["a"] if major >= 9 else []) + (["f"] if major >= 10 else [])
        return tuple(f"sm_{major}{minor}{suffix}" for suffix in suffixes)

    def l2_latency(self, far: float) -> float:
        """Cycles of a load from L2 if the share ``far`` of the loads is served by another partition than the SM's."""
        near = self.latencies["l2"]
        return near + far * (self.latencies.get("l2_far", near) - near)

    def dram_bytes_per_cycle(self, gigabytes_per_second: float) -> float:
        """A rate in GB/s (10⁹ bytes) as bytes per SM clock cycle."""
        return gigabytes_per_second * 1e3 / self.clock_mhz

    def microseconds(self, cycles: float, tensor: float = 0.0, fma: float = 0.0) -> float:
        """A time in µs. ``tensor``, ``fma``: the shares of the cycles in which the tensor cores and the units for single-precision
        multiply-adds are busy, whose power lowers the clock."""
        clock = self.clock_mhz
        lower = max(
            (clock - (self.tensor_clock_mhz or clock)) * min(1.0, tensor),
            (clock - (self.fma_clock_mhz or clock)) * min(1.0, fma / common("clock.fma_share")),
        )
        return cycles / (clock - lower)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the tables as plain dictionaries, for other processes."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return _machine_of, (
            {name: dict(value) if isinstance(value, Mapping) else value for name, value in values},
        )


def _machine_of(values: Mapping[str, Any]) -> Machine:
    tables = {name: MappingProxyType(value) for name, value in values.items() if isinstance(value, dict)}
    return Machine(**{**values, **tables})


@cache
def _directory() -> Path:
    return Path(str(files("gpuperf_engine") / "machines"))


def _candidates(search: Iterable[str | Path]) -> dict[str, Path]:
    paths = dict(_packaged(_directory()))
    for folder in map(Path, search):
        for name, path in _described(folder).items():
            paths.setdefault(name, path)
    return paths


#: Files in the folder that describe no machine.
_OTHERS = frozenset(["common", "expansion", "products"])


def _described(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml")) if path.stem not in _OTHERS}


#: Installed files do not change; folders of users are read each time.
_packaged = cache(_described)


def machine_ids(search: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """Ids of all machines described in the package and in the folders of ``search``, sorted."""
    return tuple(sorted(_candidates(search)))


def machine_path(id_or_path: str | Path, search: Iterable[str | Path] = ()) -> Path:
    """The file of a machine; raises :class:`UnknownName` for an id that is in no folder."""
    if str(id_or_path).endswith((".yaml", ".yml")):
        return Path(id_or_path)
    known = _candidates(search)
    if str(id_or_path) not in known:
        raise UnknownName(
            f"unknown machine {str(id_or_path)!r}", hint=nearest(str(id_or_path), known, noun="machine")
        )
    return known[str(id_or_path)]


def load_machine(id_or_path: str | Path, search: Iterable[str | Path] = ()) -> Machine:
    """Reads the machine with this id, or the file at this path (anything that ends in ``.yaml``).

    Raises :class:`UnknownName` for an id that is in no folder, with the most similar id, and :class:`MachineError`, with position, for
    a file that is missing or malformed.
    """
    path = machine_path(id_or_path, search)
    try:
        stamp = path.stat()
    except OSError as problem:
        raise MachineError(
            f"cannot read machine description {path}: {problem.strerror}",
            hint=nearest(path.stem, _candidates(search), noun="machine"),
        ) from None
    return _load(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=64)
def _load(path: Path, _modified: int, _size: int) -> Machine:
    top = read_yaml(path).mapping()
    schema = top.take("schema").integer(minimum=1)
    if schema != SCHEMA_VERSION:
        raise top.at("schema").fault(
            f"schema {schema} is not known", f"this version reads schema {SCHEMA_VERSION}"
        )
    identifier = top.take("id")
    name = top.take("name").text()
    revision = top.take("revision").integer(minimum=1)
    if identifier.text() != path.stem:
        raise identifier.fault(
            f"id {identifier.text()!r} in a file named {path.name!r}", f"write: id: {path.stem}"
        )
    like = _shipped(top.take("like")) if "like" in top else None
    keys = ["schema", "id", "name", "revision", *(["like"] if like else [])]
    capability = like.compute_capability if like else (0, 0)
    if not like or "compute_capability" in top:
        keys.append("compute_capability")
        capability = _capability(top.take("compute_capability"), like)
    sources = {key: entry.text() for key, entry in top.take("sources").mapping().items()}

    quantities, values, groups = _quantities(top, sources, like)
    lanes = _table(top, "lanes", UNITS, "lanes/sub-partition", sources, quantities, like, minimum=0.01)
    latencies = _table(top, "latency", LATENCIES, "cycles", sources, quantities, like, whole=True, minimum=1)
    shared_pipes = (
        dict(like.shared_pipes)
        if like and "shared_pipes" not in top
        else _pipes(top.take("shared_pipes"), lanes, sources)
    )
    top.finish([*keys, "sources", *groups, "lanes", "latency", "shared_pipes"])
    return Machine(
        id=identifier.text(),
        name=name,
        revision=revision + (like.revision if like else 0),
        compute_capability=capability,
        lanes=MappingProxyType(lanes),
        latencies=MappingProxyType({key: int(value) for key, value in latencies.items()}),
        shared_pipes=MappingProxyType(shared_pipes),
        quantities=MappingProxyType(quantities),
        **values,  # type: ignore[arg-type]
    )


def _shipped(entry: Entry) -> Machine:
    """The machine that ``like`` names. Only a shipped one: its file does not change while it is in use."""
    known = _packaged(_directory())
    if entry.text() not in known:
        raise entry.fault(
            f"{entry.text()!r} is not a shipped machine", nearest(entry.text(), known, noun="machine")
        )
    return load_machine(known[entry.text()])


def _inherited(quantity: Quantity, like: Machine) -> Quantity:
    """A number of another machine: what was measured there is an assumption here."""
    if not quantity.source.startswith(("measured", "logged")):
        return quantity
    note = f"as on {like.id}, {quantity.source}" + (f": {quantity.note}" if quantity.note else "")
    return Quantity(quantity.value, quantity.unit, "assumed", note)


def _quantities(
    top: Fields, sources: Mapping[str, str], like: Machine | None
) -> tuple[dict[str, Quantity], dict[str, int | float | None], list[str]]:
    """The groups of ``machines.schema.QUANTITIES``: quantities by path, values by attribute of a machine, and the names of the
    groups. What the file does not give is that of ``like``."""
    quantities: dict[str, Quantity] = {}
    values: dict[str, int | float | None] = {rule.attribute: None for rule in QUANTITIES if not rule.needed}
    groups: dict[str, list[str]] = {}
    for rule in QUANTITIES:
        if like and rule.path in like.quantities:
            quantities[rule.path] = _inherited(like.quantities[rule.path], like)
            values[rule.attribute] = getattr(like, rule.attribute)
        if rule.group in top or (rule.needed and not like):
            groups.setdefault(rule.group, []).append(rule.key)
    rules = {rule.path: rule for rule in QUANTITIES}
    for group, keys in groups.items():
        entries = top.take(group).mapping()
        for key in keys:
            rule = rules[f"{group}.{key}"]
            if key not in entries and (like or not rule.needed):
                continue
            quantity = _quantity(
                entries.take(key),
                rule.unit,
                sources,
                whole=rule.whole,
                minimum=rule.minimum,
                maximum=rule.maximum,
            )
            quantities[rule.path] = quantity
            values[rule.attribute] = int(quantity.value) if rule.whole else quantity.value
        entries.finish(keys)
    return quantities, values, list(groups)


def _capability(entry: Entry, like: Machine | None) -> tuple[int, int]:
    """The compute capability of a file; beside ``like``, one of the same major version."""
    major, dot, minor = entry.text().partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise entry.fault(f"{entry.text()!r} is not a compute capability", 'write it as a string, like "9.0"')
    if like and int(major) != like.compute_capability[0]:
        raise entry.fault(
            f"{entry.text()!r} is another architecture than {like.id}",
            f"choose a machine of compute capability {major}.x, or give all numbers without 'like'",
        )
    return int(major), int(minor)


def _quantity(
    entry: Entry,
    unit: str,
    sources: Mapping[str, str],
    *,
    whole: bool,
    minimum: float,
    maximum: float = math.inf,
) -> Quantity:
    fields = entry.mapping()
    value = fields.take("value").number(minimum=minimum, maximum=maximum)
    if not math.isfinite(value) or (whole and value != int(value)):
        raise fields.at("value").fault(f"{value!r} is not a {'whole' if whole else 'finite'} number")
    stated = fields.take("unit")
    if stated.text() != unit:
        raise stated.fault(f"unit {stated.text()!r}", f"this quantity is given in {unit!r}")
    note = fields.take("note").text() if "note" in fields else ""
    source = _source(fields.take("source"), sources, note)
    fields.finish(["value", "unit", "source", "note"])
    return Quantity(value, unit, source, note)


def _source(entry: Entry, sources: Mapping[str, str], note: str) -> str:
    key = entry.text()
    if key == "assumed":
        if not note:
            raise entry.fault("an assumed number without a note", "state in note: where it comes from")
        return "assumed"
    if key not in sources:
        raise entry.fault(f"unknown source {key!r}", nearest(key, [*sources, "assumed"], noun="source"))
    return sources[key]


def _table(
    top: Fields,
    group: str,
    known: Iterable[str],
    unit: str,
    sources: Mapping[str, str],
    quantities: dict[str, Quantity],
    like: Machine | None,
    *,
    whole: bool = False,
    minimum: float,
) -> dict[str, float]:
    table: dict[str, float] = {}
    if like:
        held = {
            key: like.quantities[f"{group}.{key}"] for key in known if f"{group}.{key}" in like.quantities
        }
        quantities |= {f"{group}.{key}": _inherited(quantity, like) for key, quantity in held.items()}
        table = {key: quantity.value for key, quantity in held.items()}
        if group not in top:
            return table
    entries = top.take(group).mapping()
    for key in known:
        if key in entries:
            quantity = _quantity(entries.take(key), unit, sources, whole=whole, minimum=minimum)
            quantities[f"{group}.{key}"] = quantity
            table[key] = quantity.value
    entries.finish(known)
    return table


def _pipes(entry: Entry, lanes: Mapping[str, float], sources: Mapping[str, str]) -> dict[str, str]:
    entries = entry.mapping()
    pipes: dict[str, str] = {}
    for unit, given in entries.items():
        fields = given.mapping()
        pipe = fields.take("pipe")
        _source(fields.take("source"), sources, fields.take("note").text() if "note" in fields else "")
        fields.finish(["pipe", "source", "note"])
        for name, where in ((unit, given), (pipe.text(), pipe)):
            if name not in lanes:
                raise where.fault(f"{name!r} has no lanes here", nearest(name, lanes, noun="unit"))
        pipes[unit] = pipe.text()
    return pipes
