"""The expansion of PTX instructions into machine instructions: ``machines/expansion.yaml``, read strictly; of matrix products
``products``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from ..errors import nearest
from .products import cost_of, product_of
from .schema import SCHEMA_VERSION, UNITS
from .yaml_nodes import Entry, read_yaml

__all__ = ["Expansion", "expansion_of", "load_rules"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The number of machine instructions by unit, and those of them on the dependence chain from operand to result."""

    units: Mapping[str, int]
    chain: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    patterns: tuple[str, ...]
    capabilities: tuple[str, ...]
    expansion: Expansion


def expansion_of(opcode: str, capability: tuple[int, int]) -> Expansion | None:
    """The expansion of an opcode as written, on a compute capability; ``None`` if it is one machine instruction of the unit in its
    row. Of a matrix product: instructions of the tensor unit as in ``products``, at least one."""
    product = product_of(opcode)
    if product is not None:
        cost = cost_of(product, capability)
        count = max(1, round(cost.instructions))
        return Expansion({cost.unit: count}, {cost.unit: min(count, cost.chain)})
    return _lookup(opcode, f"{capability[0]}.{capability[1]}")


@lru_cache(maxsize=4096)
def _lookup(opcode: str, capability: str) -> Expansion | None:
    for rule in _rules_of(opcode.partition(".")[0]):
        if rule.capabilities and capability not in rule.capabilities:
            continue
        if any(fnmatchcase(opcode, pattern) for pattern in rule.patterns):
            return rule.expansion
    return None


@lru_cache(maxsize=1024)
def _rules_of(name: str) -> tuple[_Rule, ...]:
    """The rules, in order, that may match instructions with this name."""
    return tuple(
        rule
        for rule in load_rules()
        if any(fnmatchcase(name, pattern.partition(".")[0]) for pattern in rule.patterns)
    )


@lru_cache(maxsize=1)
def load_rules(path: Path | None = None) -> tuple[_Rule, ...]:
    """All rules in order. Raises :class:`MachineError`, with position, for a malformed file."""
    top = read_yaml(path or Path(str(files("gpuperf_engine") / "machines" / "expansion.yaml"))).mapping()
    schema = top.take("schema").integer(minimum=1)
    if schema != SCHEMA_VERSION:
        raise top.at("schema").fault(
            f"schema {schema} is not known", f"this version reads schema {SCHEMA_VERSION}"
        )
    sources = [*top.take("sources").mapping().fields, "assumed"]
    rules = tuple(_rule(entry, sources) for entry in top.take("rules").sequence())
    top.finish(["schema", "sources", "rules"])
    return rules


def _rule(entry: Entry, sources: list[str]) -> _Rule:
    fields = entry.mapping()
    patterns = tuple(item.text() for item in fields.take("match").sequence())
    capabilities = (
        tuple(item.text() for item in fields.take("capabilities").sequence())
        if "capabilities" in fields
        else ()
    )
    units = _units(fields.take("units"))
    chain = _units(fields.take("chain")) if "chain" in fields else units
    source = fields.take("source")
    if source.text() not in sources:
        raise source.fault(
            f"unknown source {source.text()!r}", nearest(source.text(), sources, noun="source")
        )
    if source.text() == "assumed" and "note" not in fields:
        raise source.fault("an assumed expansion without a note", "state in note: where it comes from")
    for unit, count in chain.items():
        if count > units.get(unit, 0):
            raise fields.at("chain").fault(f"{count} {unit} in a chain of {units.get(unit, 0)} in all")
    fields.finish(["match", "capabilities", "units", "chain", "source", "note"])
    return _Rule(patterns, capabilities, Expansion(units, chain))


def _units(entry: Entry) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for unit, count in entry.mapping().items():
        if unit not in UNITS:
            raise count.fault(f"unknown unit {unit!r}", nearest(unit, UNITS, noun="unit"))
        counts[unit] = count.integer(minimum=1)
    return MappingProxyType({unit: counts[unit] for unit in UNITS if unit in counts})
