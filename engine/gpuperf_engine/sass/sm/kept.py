"""Simulated launches in the cache of compiled code. The key holds everything that the result depends on."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any

from ...jit import cache
from ...profile.build import LaunchRecord
from ...profile.images import image_traffic
from ...results import Resources
from ..assemble import assemble
from ..resources import resources_of
from ..run.writer import NotRun
from ..tools import Tool, find_tool
from .launch import Clocks, Stalled, Timed, Traced, trace_launch
from .numbers import SmNumbers
from .reads import read_sectors
from .waits import Wait

__all__ = ["AssembledCode", "CodeSource", "changed_clocks", "timed_launch"]


class CodeSource(ABC):
    """Where the machine code of a launch comes from. ``record``: the launch; ``architecture``: ``sm_86``."""

    record: LaunchRecord
    architecture: str

    @property
    @abstractmethod
    def name(self) -> str:
        """What the code is, for notes."""

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """What the code depends on besides the PTX, the launch and the architecture."""

    @abstractmethod
    def used(self) -> Resources:
        """Registers per thread and shared memory per CTA."""

    @abstractmethod
    def trace(self) -> Traced:
        """The traced launch. Raises ``NotRun`` if it cannot be simulated."""


@dataclass(frozen=True)
class AssembledCode(CodeSource):
    """The output of ``ptxas``. Its methods raise ``MachineError`` if ``ptxas`` or ``nvdisasm`` is missing or fails."""

    record: LaunchRecord
    architecture: str

    @property
    def assembler(self) -> Tool:
        return find_tool("ptxas", self.architecture, self.record.program.kernel.module.version)

    @property
    def name(self) -> str:
        return f"the machine code of ptxas {self.assembler.full_version}"

    @property
    def key(self) -> tuple[str, ...]:
        return self.assembler.full_version, find_tool("nvdisasm").full_version

    def used(self) -> Resources:
        kernel, shared = self.record.program.kernel, self.record.plan.dynamic_shared
        name = cache.key(
            "resources",
            self.assembler.full_version,
            self.architecture,
            kernel.name,
            kernel.module.text,
            str(shared),
        )
        known = cache.read(name)
        if known is not None:
            return Resources(**json.loads(known))
        resources = resources_of(assemble(kernel, self.architecture), shared)
        cache.keep(name, json.dumps(asdict(resources)).encode())
        return resources

    def trace(self) -> Traced:
        return trace_launch(self.record, self.architecture)


def timed_launch(
    code: CodeSource, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str
) -> Timed:
    """``Traced.timed`` of a launch, and its reads from L2. Raises ``NotRun`` if the launch cannot be simulated, ``MachineError`` if
    ``ptxas`` or ``nvdisasm`` fails."""

    def found(traced: Traced) -> dict[str, object]:
        timed = traced.timed(numbers, resident, shared_per_cta, caches)
        timed = replace(timed, reads=_reads(traced, timed, numbers, resident, shared_per_cta))
        return _fields(timed) | {rows: _rows(timed, rows) for rows in _ROWS}

    stored = _kept(code, (numbers, resident, shared_per_cta, caches), found)
    return Timed(**stored | {rows: tuple(made(*row) for row in stored[rows]) for rows, made in _ROWS.items()})


def changed_clocks(
    code: CodeSource,
    numbers: SmNumbers,
    resident: int,
    shared_per_cta: int,
    caches: str,
    changed: Mapping[int, int],
) -> Clocks:
    """``Traced.clocks`` of a launch. Errors as for ``timed_launch``."""

    def found(traced: Traced) -> dict[str, object]:
        return traced.clocks(numbers, resident, shared_per_cta, caches, changed)._asdict()

    key = "changed", numbers, resident, shared_per_cta, caches, sorted(changed.items())
    return Clocks(**_kept(code, key, found))


def _kept(
    code: CodeSource, key: tuple[object, ...], found: Callable[[Traced], dict[str, Any]]
) -> dict[str, Any]:
    """What is ``found`` out about a launch, from the cache if it is there. ``key``: all that it depends on beside the launch."""
    record = code.record
    kernel, plan = record.program.kernel, record.plan
    if len(plan.parameters) < kernel.param_bytes:
        raise NotRun("its counters are the mean of different launches")
    name = without_inputs = cache.key(
        "simulation",
        *code.key,
        code.architecture,
        kernel.name,
        kernel.module.text,
        repr((plan.grid, plan.block, plan.cluster, plan.dynamic_shared, plan.parameters)),
        repr(image_traffic(record)),
        repr(key),
    )
    known = cache.read(name)
    if known == _OF_INPUTS:
        known = cache.read(_with_inputs(name, record))
    if known is not None:
        stored: dict[str, Any] = json.loads(known)
        if "refused" in stored:
            raise NotRun(stored["refused"])
        return stored
    try:
        traced = code.trace()
        if traced.of_inputs:
            cache.keep(name, _OF_INPUTS)
            name = _with_inputs(name, record)
        stored = found(traced)
    except NotRun as reason:
        if plan.inputs is not None:  # else the reason may be that memory contents were not kept
            # it may be what memory contains, or how large an array is
            cache.keep(without_inputs, _OF_INPUTS)
            cache.keep(_with_inputs(without_inputs, record), json.dumps({"refused": str(reason)}).encode())
        raise
    cache.keep(name, json.dumps(stored).encode())
    return stored


def _reads(
    traced: Traced, timed: Timed, numbers: SmNumbers, resident: int, shared_per_cta: int
) -> int | None:
    issued = sum(item.issued for item in timed.instructions)
    try:
        loaded = read_sectors(traced, numbers, resident, shared_per_cta, issued / timed.simulated)
    except NotRun:
        return None
    return loaded + round(numbers.other_reads * timed.cycles)


#: Fields that are lists of records; each record is stored as a list of its fields.
_ROWS: dict[str, type[Stalled] | type[Wait]] = {"instructions": Stalled, "waits": Wait}
#: Stored instead of a time if the time depends on the contents of memory before the launch too.
_OF_INPUTS = b"inputs"


def _fields(timed: Timed) -> dict[str, object]:
    return {field.name: getattr(timed, field.name) for field in fields(timed)}


def _rows(timed: Timed, name: str) -> list[tuple[object, ...]]:
    """Does not use ``asdict``, which would copy every number of thousands of records."""
    values = attrgetter(*(field.name for field in fields(_ROWS[name])))
    return [values(row) for row in getattr(timed, name)]


def _with_inputs(name: str, record: LaunchRecord) -> str:
    inputs = record.plan.inputs
    if inputs is None:
        return cache.key(name, b"")
    return cache.key(
        name, inputs.digest, repr([(item.address, item.size) for item in inputs.memory.allocations])
    )
