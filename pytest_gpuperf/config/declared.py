"""Declarations of markers and calls: checks them strictly, and merges them into the settings of one kernel.

Command line > call > closest marker > ini > default. ``--gpuperf-targets`` only narrows what is declared.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from .options import CHOICES

if TYPE_CHECKING:
    from ..core.metric import Metric, Table
    from ..core.tolerance import Tolerance
    from .settings import Settings

__all__ = [
    "NO_RULES",
    "SEVERITIES",
    "CaseSettings",
    "FindingRules",
    "case_settings",
    "check_declaration",
    "check_marker",
    "check_targets",
    "check_tolerances",
    "checked_budget",
    "max_instructions",
    "present_names",
    "unknown",
    "warn_renamed",
    "way",
]

_MARKER_KEYS = ("targets", "tolerance", "limits", "max_instructions", "budget", "strict", "races", "accept")


SEVERITIES = ("fail", "note", "off")


@dataclass(frozen=True)
class FindingRules:
    """Which findings fail: severities by rule or glob, the last that fits; and the least bytes and predicted microseconds that a
    finding must save to fail."""

    severities: tuple[tuple[str, str], ...] = ()
    least_bytes: int = 0
    least_us: float = 0.0


NO_RULES = FindingRules()


@dataclass(frozen=True)
class CaseSettings:
    """The settings of one kernel of one test: targets, limits and tolerances, closest source first; and accepted findings, with the
    reason."""

    targets: tuple[str, ...]
    skipped_targets: tuple[str, ...]
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerances: tuple[tuple[tuple[str, str], ...], ...] = ()
    accept: Mapping[str, str] = field(default_factory=dict)
    #: keys of accepted findings that apply to all tests
    accepted_by_all: frozenset[str] = frozenset()

    def tolerance(self, metric: str, target: str, unit: str, default: str) -> Tolerance:
        """The tolerance of a metric: of the closest source that names it, there its own name before a glob, a later glob
        before an earlier one; ``target.metric`` counts as a name of it too."""
        from ..core.tolerance import parse_tolerance

        names = (f"{target}.{metric}", metric) if target else (metric,)
        for source in self.tolerances:
            exact = dict(source)
            for name in names:
                if name in exact:
                    return parse_tolerance(exact[name], unit)
            for pattern, text in reversed(source):
                if any(fnmatchcase(name, pattern) for name in names):
                    return parse_tolerance(text)
        return parse_tolerance(default)


def unknown(name: str, value: str, known: Iterable[str]) -> pytest.UsageError:
    """Return the error for an unknown name, with the nearest known one."""
    choices = list(known)
    from gpuperf_engine.errors import meant

    hint = meant(value, choices) or f"known: {', '.join(choices)}"
    return pytest.UsageError(f"{name} is not known; {hint}")


def warn_renamed(message: str, config: pytest.Config | None = None) -> None:
    """Warns about a renamed setting; ``config``: the configuration, while it is being read. Raises ``pytest.UsageError`` where
    warnings are errors. With pytest-xdist only the controller warns about names in ``config``."""
    warning = DeprecationWarning(message)
    try:
        if config is None:
            warnings.warn(warning, stacklevel=2)
        elif not hasattr(config, "workerinput"):
            config.issue_config_time_warning(warning, stacklevel=2)
    except DeprecationWarning as error:
        raise pytest.UsageError(str(error)) from None


def check_tolerances(
    pairs: Iterable[tuple[str, object]],
    where: str,
    metrics: Table,
    search: Sequence[str] = (),
    config: pytest.Config | None = None,
) -> None:
    """Warns of former names of metrics (``config`` as for ``warn_renamed``). Raises ``pytest.UsageError`` for a metric or
    machine that does not exist or a tolerance that is none."""
    from ..core.tolerance import parse_tolerance

    for name, text in pairs:
        metric = _metric(name, where, metrics, search, config)
        if metric is not None and metric.kind == "set":
            allowed = f"; limits={{{name!r}: N}} allows N" if metric.better == "lower" else ""
            raise pytest.UsageError(f"{where}: {name} has no tolerance: every new one counts{allowed}")
        try:
            parse_tolerance(text, metric.unit if metric is not None else None)
        except ValueError as error:
            raise pytest.UsageError(f"{where}: {name}: {error}") from None


def _metric(
    name: object, where: str, metrics: Table, search: Sequence[str], config: pytest.Config | None = None
) -> Metric | None:
    """The metric of that name, ``None`` for a glob. Raises ``pytest.UsageError`` for one that can match nothing."""
    if not isinstance(name, str):
        raise pytest.UsageError(f"{where}: {name!r} is not the name of a metric, for example 'time_us'")
    present = metrics.present(name)
    if present != (name,):
        words = " and ".join(map(repr, present))
        warn_renamed(f"{where}: metric {name!r} is now {words}: write {words}", config)
        name = present[0]
    hint = metrics.known_pattern(name)
    if hint is not None:
        raise pytest.UsageError(f"{where}: metric {name!r} is not known; {hint}")
    family = next((family for family in metrics.families if name.startswith(family.prefix)), None)
    if family is not None:
        _matches(name.removeprefix(family.prefix), _members(family.name), f"{where}: metric {name!r}")
    elif not any(fnmatchcase(metric.name, name) for metric in metrics.rows):
        from .._engine import engine

        target = name.partition(".")[0]
        _matches(target, tuple(engine.machine_ids(search)), f"{where}: target {target!r} of {name!r}")
    return None if any(char in name for char in "*?[") else metrics.find(name)


def _matches(pattern: str, known: Sequence[str], what: str) -> None:
    if not any(fnmatchcase(name, pattern) for name in known):
        raise unknown(what, pattern, known)


def _members(family: str) -> tuple[str, ...]:
    if family == "flops.*":
        from gpuperf_engine.isa.matrix_work import TENSOR
        from gpuperf_engine.profile.groups import PRECISIONS

        return tuple(dict.fromkeys((*PRECISIONS.values(), *TENSOR.values())))
    from gpuperf_engine.isa.model import CATEGORIES

    return CATEGORIES


def check_targets(names: Iterable[str], where: str, search: Sequence[str] = ()) -> None:
    """Raises ``pytest.UsageError`` for a machine that does not exist."""
    names = tuple(names)
    if not names:
        return
    from .._engine import engine

    known = tuple(engine.machine_ids(search))
    for name in names:
        if name not in known:
            if all(part in known for part in name.split()):
                raise pytest.UsageError(f"{where}: {name!r} are several targets: separate them by commas")
            raise unknown(f"{where}: target {name!r}", name, known)


def check_declaration(
    values: Mapping[str, Any], where: str, metrics: Table, search: Sequence[str] = ()
) -> None:
    """Checks ``targets``, ``tolerance`` and ``limits`` of a marker or call; raises ``pytest.UsageError``."""
    targets = values.get("targets")
    if targets is not None:
        listed = isinstance(targets, Iterable) and not isinstance(targets, (str, Mapping))
        if not listed or not all(isinstance(target, str) for target in targets):
            raise pytest.UsageError(
                f"{where}: targets must be a list of machine ids, for example ['h100-sxm']"
            )
        check_targets(targets, where, search)
    for key in ("tolerance", "limits"):
        if values.get(key) is not None and not isinstance(values[key], Mapping):
            raise pytest.UsageError(f"{where}: {key} must be a dictionary {{metric: value}}")
    check_tolerances((values.get("tolerance") or {}).items(), f"{where}: tolerance", metrics, search)
    for name, limit in (values.get("limits") or {}).items():
        metric = _metric(name, f"{where}: limits", metrics, search)
        if metric is None:
            raise pytest.UsageError(f"{where}: limits: {name!r} must be one metric, not a glob")
        if metric.kind == "set" and metric.better == "neutral":
            raise pytest.UsageError(f"{where}: limits: {name} are not numbers, so they have no limit")
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not math.isfinite(limit):
            raise pytest.UsageError(f"{where}: limits: {name} must be a finite number, not {limit!r}")


def check_marker(item: pytest.Item, metrics: Table, search: Sequence[str] = ()) -> None:
    """Raises ``pytest.UsageError`` if a ``gpuperf`` marker of the test has an unknown or wrong argument."""
    for marker in item.iter_markers("gpuperf"):
        where = f"@pytest.mark.gpuperf of {item.nodeid}"
        if marker.args:
            raise pytest.UsageError(f"{where}: arguments must be named: {', '.join(_MARKER_KEYS)}")
        for key in marker.kwargs:
            if key not in _MARKER_KEYS:
                raise unknown(f"{where}: argument {key!r}", key, _MARKER_KEYS)
        check_declaration(marker.kwargs, where, metrics, search)
        steps = marker.kwargs.get("max_instructions")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise pytest.UsageError(f"{where}: max_instructions must be a whole number of at least 1")
        if marker.kwargs.get("budget") is not None:
            checked_budget(str(marker.kwargs["budget"]), f"{where}: budget")
        _check_accept(marker.kwargs.get("accept"), where)
        for key in ("strict", "races"):
            value = marker.kwargs.get(key)
            if value is not None and value not in CHOICES[key]:
                raise unknown(f"{where}: {key}={value!r}", str(value), CHOICES[key])


_BUDGET = re.compile(r"none|\d+(?:\.\d*)?(?:e\d+)?s?")


def checked_budget(text: str, where: str) -> str:
    """Return the text of a budget. Raises ``pytest.UsageError`` for an invalid one."""
    if not _BUDGET.fullmatch(text):
        raise pytest.UsageError(
            f"{where}: {text!r} is not a budget: give warp instructions (20e9), seconds (600s) or none"
        )
    return text


def _check_accept(accept: object, where: str) -> None:
    if accept is None:
        return
    example = "{'single-zero:out': 'why that is so'}"
    if not isinstance(accept, Mapping):
        raise pytest.UsageError(f"{where}: accept must be a dictionary of findings and reasons: {example}")
    for key, reason in accept.items():
        if not isinstance(key, str) or not key.partition(":")[0]:
            raise pytest.UsageError(f"{where}: accept: {key!r} names no rule; for example {example}")
        if not isinstance(reason, str) or not reason.strip():
            raise pytest.UsageError(f"{where}: accept: {key!r} needs a reason; for example {example}")


def present_names(pairs: Iterable[tuple[str, object]], metrics: Table) -> tuple[tuple[str, str], ...]:
    """Tolerances by the present names of their metrics."""
    return tuple((name, str(text)) for former, text in pairs for name in metrics.present(former))


def case_settings(settings: Settings, item: pytest.Item, call: Mapping[str, object]) -> CaseSettings:
    """Settings of one kernel: ``call`` holds ``targets``, ``tolerance`` and ``limits`` as given to it, or ``None``."""
    sources = [call, *(marker.kwargs for marker in item.iter_markers("gpuperf"))]
    declared: Iterable[str] = next(
        (s["targets"] for s in sources if s.get("targets") is not None), settings.targets
    )
    declared = tuple(dict.fromkeys(declared))
    only = settings.only_targets
    limits: dict[str, float] = {}
    for source in reversed(sources):
        given = source.get("limits") or {}
        limits.update({name: limit for key, limit in given.items() for name in settings.metrics.present(key)})
    tolerances = [present_names((s.get("tolerance") or {}).items(), settings.metrics) for s in sources]
    return CaseSettings(
        targets=tuple(name for name in declared if only is None or name in only),
        skipped_targets=tuple(name for name in declared if only is not None and name not in only),
        limits=limits,
        tolerances=(settings.override, *tolerances, settings.tolerances),
        accept={
            **dict(settings.accept),
            **{key: why for source in reversed(sources) for key, why in (source.get("accept") or {}).items()},
        },
        accepted_by_all=frozenset(key for key, _ in settings.accept),
    )


def way(settings: Settings, item: pytest.Item, key: str) -> str:
    """Return how a test handles breaches of rules that work on today's GPUs (``strict``), or races (``races``), in its kernels."""
    for marker in item.iter_markers("gpuperf"):
        if marker.kwargs.get(key) is not None:
            return str(marker.kwargs[key])
    return str(getattr(settings, key))


def max_instructions(settings: Settings, item: pytest.Item, call: int | None) -> int | None:
    """The budget of one launch, ``None`` for the engine's default."""
    if settings.max_instructions_cli or call is not None:
        return settings.max_instructions if settings.max_instructions_cli else call
    for marker in item.iter_markers("gpuperf"):
        if marker.kwargs.get("max_instructions") is not None:
            return int(marker.kwargs["max_instructions"])
    return settings.max_instructions
