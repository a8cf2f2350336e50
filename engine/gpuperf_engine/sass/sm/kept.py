"""Simulated launches in the cache of compiled code, under all that decides them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import attrgetter

from ...jit import cache
from ...profile.build import LaunchRecord
from ...results import Resources
from ..assemble import assemble
from ..resources import resources_of
from ..run.writer import NotRun
from ..tools import find_tool
from .launch import Stalled, Timed, trace_launch
from .numbers import SmNumbers
from .waits import Wait

__all__ = ["assembled_resources", "timed_launch"]


def assembled_resources(record: LaunchRecord, architecture: str) -> Resources:
    """Registers, shared and local memory of a launch as ``ptxas`` assigns them. Raises ``MachineError``."""
    kernel, shared = record.program.kernel, record.plan.dynamic_shared
    tool = find_tool("ptxas")
    name = cache.key(
        "resources", tool.full_version, architecture, kernel.name, kernel.module.text, str(shared)
    )
    known = cache.read(name)
    if known is not None:
        return Resources(**json.loads(known))
    resources = resources_of(assemble(kernel, architecture), shared)
    cache.keep(name, json.dumps(asdict(resources)).encode())
    return resources


def timed_launch(
    record: LaunchRecord,
    architecture: str,
    numbers: SmNumbers,
    resident: int,
    shared_per_cta: int,
    warm: bool,
    changed: Mapping[int, int] | None = None,
) -> Timed:
    """``Traced.timed`` of a launch. Raises ``NotRun`` for what cannot be simulated, ``MachineError`` for what the assembler or the
    disassembler cannot do."""
    kernel, plan = record.program.kernel, record.plan
    if len(plan.parameters) < kernel.param_bytes:
        raise NotRun("its counters are the mean of different launches")
    name = cache.key(
        "simulation",
        find_tool("ptxas").full_version,
        find_tool("nvdisasm").full_version,
        architecture,
        kernel.name,
        kernel.module.text,
        repr((plan.grid, plan.block, plan.cluster, plan.dynamic_shared, plan.parameters)),
        repr((numbers, resident, shared_per_cta, warm, sorted((changed or {}).items()))),
    )
    known = cache.read(name)
    if known == _OF_INPUTS:
        known = cache.read(_with_inputs(name, record))
    if known is not None:
        return _timed(known)
    try:
        traced = trace_launch(record, architecture)
        if traced.of_inputs:
            cache.keep(name, _OF_INPUTS)
            name = _with_inputs(name, record)
        timed = traced.timed(numbers, resident, shared_per_cta, warm, changed)
    except NotRun as reason:
        if plan.inputs is not None:  # else what was loaded might have told
            cache.keep(name, json.dumps({"refused": str(reason)}).encode())
        raise
    cache.keep(name, json.dumps(_fields(timed) | {rows: _rows(timed, rows) for rows in _ROWS}).encode())
    return timed


#: lists of records, each kept as a list of its fields
_ROWS: dict[str, type[Stalled] | type[Wait]] = {"instructions": Stalled, "waits": Wait}
#: in place of a time: what memory held before the launch decides it too
_OF_INPUTS = b"inputs"


def _fields(timed: Timed) -> dict[str, object]:
    return {field.name: getattr(timed, field.name) for field in fields(timed)}


def _rows(timed: Timed, name: str) -> list[tuple[object, ...]]:
    """``asdict`` would copy every number of thousands of records."""
    values = attrgetter(*(field.name for field in fields(_ROWS[name])))
    return [values(row) for row in getattr(timed, name)]


def _with_inputs(name: str, record: LaunchRecord) -> str:
    inputs = record.plan.inputs
    return cache.key(name, b"" if inputs is None else inputs.digest)


def _timed(known: bytes) -> Timed:
    stored = json.loads(known)
    if "refused" in stored:
        raise NotRun(stored["refused"])
    return Timed(**stored | {rows: tuple(made(*row) for row in stored[rows]) for rows, made in _ROWS.items()})
