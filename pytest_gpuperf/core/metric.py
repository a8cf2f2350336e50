"""What a metric is, and the table of those that hold in a run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, cast

from .records import Access, Entry, PluginMetric, PluginRow

__all__ = ["ESTIMATE", "MACHINE", "PLUGINS", "SIGNIFICANT_DIGITS", "Metric", "Table", "put", "significant"]

ESTIMATE = "estimate"
"""Source of registers that ``ptxas`` did not assign, in baselines."""

PLUGINS: Final = "plugins"
"""The section of a case that holds the metrics of plugins, by plugin."""

MACHINE: Final = "machine"
"""The group of metrics of machine code."""

SIGNIFICANT_DIGITS = 4
"""Digits to which modelled numbers are stored and compared."""


_PLAIN = ("name", "kind", "better", "unit", "per_target", "digits", "tolerance")


@dataclass(frozen=True)
class Metric:
    """One metric, or a family of them (``counts.by_category.*``), for which a profile has a number per name.

    ``kind`` is its class: ``exact``, ``ratio``, ``modelled`` or ``set``; ``better`` is ``lower``, ``higher`` or ``neutral``;
    ``said`` is its description. ``read`` reads its value from a profile of the engine, or from an estimate for a metric per target;
    the default is the attribute of its name. It is stored with ``digits`` significant digits, or as a whole number with 0. ``path``
    is its path in a case of a baseline (below the target for metrics per target); by default it follows from the name. ``since`` is
    the revision of the table that introduced it: baselines of earlier revisions lack it. ``formerly`` are its former names, in the
    same section: values and settings under these names apply to it.

    A difference is attributed by ``lines``, the per-line counts of which it consists, best first: ``threads``, ``warps``,
    ``divergent``, ``executed`` or the name of a metric with ``access``, the contribution of one memory instruction (a row of
    ``accesses`` of a report). The members of a family count the opcodes by their ``work``: 0 for the category, 1 for the kind of
    floating-point operation.

    A metric that depends on registers is an estimate unless ``ptxas`` assigned them: then ``estimated`` is its tolerance, and its
    class ``modelled``. ``source`` says which of the two applies to a metric of a case, ``estimated`` or ``ptxas``; it is empty for
    all others. ``plugin`` is the plugin that defines it, whose name precedes its own.

    Metrics of the group ``machine`` are read from the ``MachineCounts`` of a target; ``open`` marks those that ``machine.residue``
    makes uncertain, ``missing`` those that may be absent. ``decided_by`` is the machine metric that decides whether a metric of the
    PTX got worse.
    """

    name: str
    kind: str
    better: str
    unit: str
    said: str
    read: Callable[[Any], Any] | None = None
    path: tuple[str, ...] = ()
    group: str = "counts"
    per_target: bool = False
    digits: int = 0
    since: int = 1
    formerly: tuple[str, ...] = ()
    tolerance: str = ""
    estimated: str = ""
    lines: tuple[str, ...] = ()
    access: Callable[[Access], int] | None = None
    work: int | None = None
    source: str = ""
    plugin: str = ""
    open: bool = False
    missing: bool = False
    decided_by: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            object.__setattr__(self, "path", tuple(self.name.removesuffix(".*").split(".")))
        if self.access is not None and not self.lines:
            object.__setattr__(self, "lines", (self.count,))

    @property
    def family(self) -> bool:
        """Whether this stands for many metrics, whose last name part the engine determines; a missing one is 0."""
        return self.name.endswith(".*")

    @property
    def prefix(self) -> str:
        """The common prefix of the names of a family."""
        return self.name.removesuffix("*")

    @property
    def count(self) -> str:
        """The name of the per-line count of ``access``."""
        return self.name if self.plugin else self.path[-1]

    def key_in(self, section: Mapping[str, object]) -> str:
        """The key under which a section of a stored case holds this: its own name, or a former one."""
        keys = (self.path[-1], *(name.rpartition(".")[2] for name in self.formerly))
        return next((key for key in keys if key in section), keys[0])

    def of(self, case: Entry) -> Metric:
        """The metric as it applies to a case, by the source of the case's registers."""
        if not self.estimated:
            return self
        return self._by_source[case["resources"]["from"] == ESTIMATE]

    @cached_property
    def _by_source(self) -> tuple[Metric, Metric]:
        return replace(self, source="ptxas"), replace(self, kind="modelled", source="estimated")

    def measured(self, source: object) -> object:
        """The metric of a profile (per target: of an estimate), as a baseline stores it: a number; for a family and for opcodes the
        nonzero numbers."""
        value = (self.read or attrgetter(self.name.removesuffix(".*")))(source)
        if self.family or self.kind == "set":
            return {key: int(value[key]) for key in sorted(value) if value[key]}
        return significant(value, self.digits) if self.digits else int(value)

    def to_dict(self) -> PluginMetric:
        """The fields needed to judge it again, as a report holds them for the metrics of plugins."""
        data = {name: getattr(self, name) for name in _PLAIN}
        return cast(PluginMetric, {**data, "lines": [] if self.access is not None else [*self.lines]})

    @classmethod
    def from_dict(cls, data: PluginMetric) -> Metric:
        """The metric of a plugin, without its measurement."""
        plugin, _, name = data["name"].partition(".")
        return cls(
            **{key: value for key, value in data.items() if key in _PLAIN},  # type: ignore[arg-type]
            said="",
            path=(PLUGINS, plugin, name),
            group="time" if data["per_target"] else "counts",
            lines=tuple(data["lines"]),
            plugin=plugin,
        )

    @property
    def default_tolerance(self) -> str:
        """Exact numbers and their ratios may not move, predictions by 2 % or the tolerance of the row; estimates by
        ``estimated``."""
        if self.source == "estimated":
            return self.estimated
        return self.tolerance or ("2%" if self.kind == "modelled" else "0")


class Table:
    """The metrics of a run, in the order of baselines and reports: ``single`` ones and ``families``; ``of_profile`` are those read
    off the sum of all launches, ``per_target`` those of an estimate (``of_estimate``) or of machine code (``of_machine_code``),
    ``counted`` those that single memory instructions add to. ``plugins`` are the names of the plugins that bring metrics or
    patterns, ``formerly`` the names that metrics had before, with those that they have."""

    def __init__(self, rows: Iterable[Metric], plugins: Iterable[str] = ()) -> None:
        self.rows = tuple(rows)
        self.single = tuple(row for row in self.rows if not row.family)
        self.families = tuple(row for row in self.rows if row.family)
        self.per_target = tuple(row for row in self.single if row.per_target)
        self.of_estimate = tuple(row for row in self.per_target if row.group != MACHINE)
        self.of_machine_code = tuple(row for row in self.per_target if row.group == MACHINE)
        self.of_profile = tuple(row for row in self.rows if not row.per_target and row.group != "findings")
        self.counted = tuple(row for row in self.rows if row.access is not None)
        self.plugins = tuple(plugins)
        self.by_name = {row.name: row for row in self.single}
        self.rank = {row.name: index for index, row in enumerate(self.single)}
        self.formerly = {old: row.name for row in self.rows for old in row.formerly}
        self._members: dict[str, Metric] = {}

    def with_plugins(self, plugins: Iterable[PluginRow]) -> Table:
        """The same with the metrics of plugins as a report names them."""
        plugins = list(plugins)
        more = (Metric.from_dict(row) for plugin in plugins for row in plugin["metrics"])
        return Table((*self.rows, *more), (plugin["name"] for plugin in plugins)) if plugins else self

    def to_dicts(self) -> list[PluginRow]:
        """The plugins and their metrics, as a report names them."""
        return [
            {"name": plugin, "metrics": [row.to_dict() for row in self.rows if row.plugin == plugin]}
            for plugin in self.plugins
        ]

    def find(self, name: str) -> Metric | None:
        """The metric of that name; a member of a family, a target's metric (``h100-sxm.time_us``) included."""
        if name in self.by_name:
            return self.by_name[name]
        for family in self.families:
            if name.startswith(family.prefix) and len(name) > len(family.prefix):
                return self._member(family, name.removeprefix(family.prefix))
        target, _, rest = name.partition(".")
        metric = self.by_name.get(rest)
        return metric if target and metric is not None and metric.per_target else None

    def _member(self, family: Metric, key: str) -> Metric:
        name = family.prefix + key
        if name not in self._members:
            self._members[name] = replace(family, name=name, path=(*family.path, key))
        return self._members[name]

    def present(self, pattern: str) -> tuple[str, ...]:
        """The name or glob itself; of a name that a metric had before, or a glob that fits such names alone, the present names."""
        if self.known_pattern(pattern) is None:
            return (pattern,)
        names = dict.fromkeys(new for old, new in self.formerly.items() if fnmatchcase(old, pattern))
        return tuple(names) or (pattern,)

    def known_pattern(self, pattern: str) -> str | None:
        """``None`` if the name or glob can match a metric, else a hint with the nearest one."""
        if self.find(pattern) is not None:
            return None
        names = [metric.name for metric in (*self.single, *self.families)]
        if any(char in pattern for char in "*?["):
            candidates = [*names, *(f"target.{metric.name}" for metric in self.per_target)]
            if any(fnmatchcase(name, pattern) for name in candidates):
                return None
            if any(pattern.startswith(family.prefix) for family in self.families):
                return None
            target, _, rest = pattern.partition(".")
            if target and any(fnmatchcase(metric.name, rest) for metric in self.per_target):
                return None
        close = [name for name in names if name.rpartition(".")[2] == pattern]
        close = close or difflib.get_close_matches(pattern, names, n=1, cutoff=0.5)
        return f"did you mean {close[0]!r}?" if close else f"known metrics: {', '.join(names)}"

    def flatten(self, case: Entry) -> Iterator[tuple[Metric, str, float]]:
        """All metrics of a baseline case but the sets: (metric, target or ``""``, value)."""
        for metric in self.single:
            if metric.kind == "set" or metric.per_target:
                continue
            value = _lookup(case, metric.path)
            if value is not None:
                yield metric.of(case), "", value
        for family in self.families:
            for key, value in (_lookup(case, family.path) or {}).items():
                yield self._member(family, key), "", value
        for target, entry in case.get("targets", {}).items():
            for metric in self.per_target:
                value = _lookup(entry, metric.path)
                if value is not None:
                    yield metric.of(case), target, value


def significant(value: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """``value`` rounded to so many significant decimal digits."""
    return float(f"{value:.{digits}g}")


def put(case: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Stores a value in a case, or below its target, and creates missing mappings of the path."""
    *way, name = path
    for key in way:
        case = case.setdefault(key, {})
    case[name] = value


def _lookup(case: Mapping[str, object], path: Iterable[str]) -> Any:
    node: object = case
    for key in path:
        if not isinstance(node, (dict, Mapping)) or key not in node:  # the first is found at once
            return None
        node = node[key]
    return node
