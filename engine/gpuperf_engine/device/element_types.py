"""The types of elements of memory that was allocated as bytes, from the instructions that access it (``flow.access_types``).

The object of an access follows from the pointer parameter or module variable in its address. Instructions whose address may be in
several objects, or whose own type is unknown, are ignored; if accesses are observed, their records name the objects.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..flow.access_types import access_types
from ..flow.dependence import Access, Aliases, objects
from ..isa.types import scalar_type
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Address, Variable
from ..results import ValueRecord
from ..simt.program import Program
from ..symbolic.known_contents import pointers
from ..symbolic.slice_program import dependence_of

__all__ = ["UNKNOWN", "accessed_types", "dtype_of", "recorded_types"]

UNKNOWN = np.dtype("V1")
"""The dtype of bytes of unknown type."""


def accessed_types(
    program: Program, parameters: bytes, symbols: Sequence[int], memory: Memory
) -> dict[Allocation, set[str]]:
    """The names of the types with which a launch accesses the objects of its arguments."""
    objects = pointers(program, parameters, symbols, memory)
    known = program.once(_types_by_aliases)
    key = tuple(objects.aliases.items())
    if key not in known:
        known[key] = _types(program, objects.aliases)
    return {objects.allocations[number]: {*names} for number, names in known[key].items()}


def _types_by_aliases(program: Program) -> dict[object, dict[int, set[str]]]:
    """The cache of a program's results, by the aliases of a launch's pointers, which often repeat."""
    return {}


def _types(program: Program, aliases: Aliases) -> dict[int, set[str]]:
    types: dict[int, set[str]] = {}
    for access, names in program.once(_typed_accesses):
        touched = objects(access, aliases)
        numbers = {number for space, number in touched or () if space == "global"}
        if (
            len(numbers) == len(touched or ()) == 1
            and isinstance(number := numbers.pop(), int)
            and number >= 0
        ):
            types.setdefault(number, set()).update(names)
    for variable, names in program.once(_typed_constants):
        if variable in aliases:
            types.setdefault(aliases[variable], set()).update(names)
    return types


def recorded_types(
    records: Iterable[ValueRecord], named: Mapping[str, Allocation]
) -> dict[Allocation, set[str]]:
    """The same from records of accesses; ``named``: the objects by name."""
    types: dict[Allocation, set[str]] = {}
    for record in records:
        if record.space in ("global", "const") and record.object in named:
            types.setdefault(named[record.object], set()).add(record.type)
    return types


def _typed_accesses(program: Program) -> tuple[tuple[Access, tuple[str, ...]], ...]:
    types, graph = access_types(program), dependence_of(program)
    return tuple(
        (access, names)
        for instruction, names in types.items()
        for access in (*graph.reads_memory(instruction), *graph.writes_memory(instruction))
    )


def _typed_constants(program: Program) -> tuple[tuple[Variable, tuple[str, ...]], ...]:
    """Loads from variables in constant memory."""
    types, graph = access_types(program), dependence_of(program)
    loads = []
    for instruction, names in types.items():
        for operand in instruction.operands if instruction.form.space == "const" else ():
            bases = graph.origin(instruction, operand).bases if isinstance(operand, Address) else frozenset()
            if len(bases) == 1 and isinstance(base := next(iter(bases)), Variable):
                loads.append((base, names))
    return tuple(loads)


def dtype_of(names: Iterable[str]) -> np.dtype[np.generic] | None:
    """The element type of an object that is accessed with these types, ``None`` if there is none, or if they differ in more than the
    signedness of integers."""
    known = {name for name in names if name[0] != "b" or name.startswith("bf")}
    if (
        len(known) == 2
        and {name[0] for name in known} == {"s", "u"}
        and len({name[1:] for name in known}) == 1
    ):
        known = {f"s{next(iter(known))[1:]}"}
    if len(known) != 1:
        return None
    (name,) = known
    type = scalar_type(name)
    if type.lanes != 1 or type.bits not in (8, 16, 32, 64):
        return None
    if name == "bf16":
        return _bfloat16()
    if type.is_float:
        return np.dtype(f"f{type.bytes}") if name in ("f16", "f32", "f64") else None
    return np.dtype(f"{'i' if type.is_signed else 'u'}{type.bytes}")


def _bfloat16() -> np.dtype[np.generic] | None:
    try:
        kind: np.dtype[np.generic] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return None
    return kind
