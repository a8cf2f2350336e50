"""Contributions of the plugins of a run; errors name the plugin.

Each plugin is called separately, so that a result or an error belongs to a known plugin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy
import pytest

from gpuperf_engine.errors import EngineError

from ..core.escaping import one_line
from ..core.metric import PLUGINS, Metric, Table
from ..core.metrics import TABLE
from ..core.records import Access
from ..core.tolerance import parse_tolerance

if TYPE_CHECKING:
    from gpuperf_engine import Finding, Pattern, Step

__all__ = ["answers", "call_named", "metrics_of", "patterns_of"]

T = TypeVar("T")

_OWN = "pytest_gpuperf"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_CLASSES = ("exact", "ratio", "modelled")
_BETTER = ("lower", "higher", "neutral")
_METRICS, _PATTERNS = "pytest_gpuperf_metrics", "pytest_gpuperf_patterns"


def answers(
    hook: pluggy.HookCaller, arguments: Mapping[str, object], config: pytest.Config
) -> Iterator[tuple[str, Any]]:
    """Yield (plugin, result) for each plugin with that hook, in call order; the plugin is empty for built-in ones. Raises
    ``EngineError`` for any other exception of a plugin."""
    manager = config.pluginmanager
    everybody = [hook_impl.plugin for hook_impl in getattr(manager.hook, hook.name).get_hookimpls()]
    for implementation in reversed(hook.get_hookimpls()):
        others = [plugin for plugin in everybody if plugin is not implementation.plugin]
        call = manager.subset_hook_caller(hook.name, others)
        plugin = _name(implementation)
        result = call_named(plugin, hook.name, partial(call, **arguments))
        if hook.spec is not None and not hook.spec.opts.get("firstresult"):
            result = next(iter(result), None)  # a list of the answers that are not None
        yield plugin, result


def call_named(plugin: str, what: str, call: Callable[[], T]) -> T:
    """Return the result of a plugin's code. Raises ``EngineError`` with the plugin's name if that raises."""
    try:
        return call()
    except EngineError as error:
        if not plugin:
            raise
        raise EngineError(f"plugin {plugin!r}: {error}") from None
    except Exception as error:
        if not plugin:
            raise
        raise EngineError(
            f"plugin {plugin!r} failed in {what}: {type(error).__name__}: {one_line(str(error), 300)}",
            hint=f"{_where(error)}; to run without it: pytest -p no:{plugin}",
        ) from None


def _where(error: BaseException) -> str:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return "report it to the plugin's author"
    return f"raised at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def _name(implementation: pluggy.HookImpl) -> str:
    """The name of a plugin, the same on every machine: that of its entry point or module; empty for a built-in one."""
    module = getattr(implementation.plugin, "__name__", type(implementation.plugin).__module__)
    if module.partition(".")[0] == _OWN:
        return ""
    name = str(implementation.plugin_name)
    # pytest names a conftest.py by its path
    return "conftest" if name.endswith("conftest.py") else name.rpartition(".")[2]


def _installed(config: pytest.Config) -> list[str]:
    """The plugins with metrics or patterns, sorted."""
    plugins = {
        _name(implementation)
        for hook in (_METRICS, _PATTERNS)
        for implementation in getattr(config.hook, hook).get_hookimpls()
    }
    for name in plugins - {""}:
        if not _NAME.fullmatch(name) or name in {row.path[0] for row in TABLE.rows}:
            raise pytest.UsageError(
                f"plugin {name!r}: its metrics and patterns would be named {name}.…, which is not a valid plugin name; "
                "register it under a name of letters, digits, - and _ that is not a section of a baseline"
            )
    return sorted(plugins - {""})


def metrics_of(config: pytest.Config) -> Table:
    """Return the metrics of a run. Raises ``pytest.UsageError`` for invalid metrics of a plugin."""
    rows: list[Metric] = []
    try:
        for plugin, metrics in answers(config.hook.pytest_gpuperf_metrics, {"config": config}, config):
            rows += _checked(plugin, metrics) if plugin else metrics or ()
    except EngineError as error:
        raise pytest.UsageError(str(error)) from None
    rows.sort(key=lambda row: row.plugin)  # those of the gate first, in their order
    for name, count in Counter(row.name for row in rows).items():
        if count > 1:
            raise pytest.UsageError(
                f"two plugins have a metric named {name!r}: register one under another name"
            )
    return Table(rows, _installed(config))


def _checked(plugin: str, metrics: object) -> Iterator[Metric]:
    names: set[str] = set()
    for row in _listed(plugin, _METRICS, metrics):
        where = f"plugin {plugin!r}, {_METRICS}"
        if not isinstance(row, Metric):
            raise pytest.UsageError(f"{where}: {one_line(repr(row), 80)} is not a pytest_gpuperf.Metric")
        where = f"{where}: metric {one_line(str(row.name), 80)!r}"
        if not isinstance(row.name, str) or not _NAME.fullmatch(row.name):
            raise pytest.UsageError(
                f"{where}: a name is letters, digits, - and _; it will be named {plugin}.NAME"
            )
        if row.name in names:
            raise pytest.UsageError(f"{where} is given twice")
        names.add(row.name)
        for value, known, what in ((row.kind, _CLASSES, "class"), (row.better, _BETTER, "better")):
            if value not in known:
                raise pytest.UsageError(f"{where}: {what} {value!r} is not one of {', '.join(known)}")
        if row.read is None:
            raise pytest.UsageError(f"{where}: read is missing: a function from a profile to a number")
        try:
            parse_tolerance(row.default_tolerance, row.unit)
        except ValueError as error:
            raise pytest.UsageError(f"{where}: {error}") from None
        yield _namespaced(plugin, row)


def _namespaced(plugin: str, row: Metric) -> Metric:
    name, read = f"{plugin}.{row.name}", row.read
    assert read is not None

    def number(source: object) -> float:
        value = call_named(plugin, f"metric {name!r}", lambda: float(read(source)))
        if not 0 <= value < float("inf") or (not row.digits and not value.is_integer()):
            wanted = (
                "a number" if row.digits else "a whole number (digits= sets the number of digits of others)"
            )
            raise EngineError(
                f"plugin {plugin!r}: metric {name!r} must be {wanted} of at least 0, not {value!r}"
            )
        return value

    return replace(
        row,
        name=name,
        read=number,
        path=(PLUGINS, plugin, row.name),
        group="time" if row.per_target else "counts",
        since=1,
        estimated="",
        plugin=plugin,
        lines=() if row.access is not None else row.lines,
        access=None if row.access is None else _counting(plugin, name, row.access),
    )


def _counting(plugin: str, name: str, access: Callable[[Access], int]) -> Callable[[Access], int]:
    return lambda row: call_named(plugin, f"metric {name!r}", lambda: int(access(row)))


def patterns_of(config: pytest.Config) -> tuple[Pattern, ...]:
    """Return the patterns of a run. Raises ``EngineError`` for invalid patterns of a plugin."""
    patterns: list[Pattern] = []
    for plugin, given in answers(config.hook.pytest_gpuperf_patterns, {"config": config}, config):
        if not plugin:
            patterns[:0] = given or ()
            continue
        for pattern in _listed(plugin, _PATTERNS, given):
            rules = getattr(pattern, "rules", None)
            if not isinstance(rules, tuple) or not all(
                isinstance(r, str) and _NAME.fullmatch(r) for r in rules
            ):
                raise EngineError(
                    f"plugin {plugin!r}, {_PATTERNS}: {one_line(repr(pattern), 80)} is not a pattern",
                    hint="a pattern has rules, a tuple of names, and find(steps)",
                )
            patterns.append(_OfPlugin(plugin, pattern))
    return tuple(patterns)


class _OfPlugin:
    """A pattern of a plugin, whose rules and errors have the plugin's name as prefix."""

    def __init__(self, plugin: str, pattern: Pattern) -> None:
        self.plugin, self.pattern = plugin, pattern
        self.rules = tuple(f"{plugin}.{rule}" for rule in pattern.rules)

    def find(self, steps: Sequence[Step]) -> Iterable[tuple[Step, Finding]]:
        """The findings of the pattern."""
        what = f"the pattern of {', '.join(self.pattern.rules)}"
        return call_named(
            self.plugin, what, lambda: [self._named(*pair) for pair in self.pattern.find(steps)]
        )

    def _named(self, step: Step, finding: Finding) -> tuple[Step, Finding]:
        if finding.rule not in self.pattern.rules:
            raise ValueError(f"a finding has the rule {finding.rule!r}, which the pattern does not have")
        return step, replace(finding, rule=f"{self.plugin}.{finding.rule}")


def _listed(plugin: str, hook: str, answer: Any) -> Iterator[Any]:
    if answer is None:
        return
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise EngineError(f"plugin {plugin!r}, {hook}: {one_line(repr(answer), 80)} is not a list")
    yield from call_named(plugin, hook, lambda: list(answer))
