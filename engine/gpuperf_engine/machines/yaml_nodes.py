"""YAML read as nodes with positions, so that every error names its position and the values that would be accepted."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from .._data import text_of
from ..errors import MachineError, nearest
from ..source import Span

__all__ = ["Entry", "Fields", "read_yaml"]

_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Entry:
    """One node: ``where`` is its path in the file (``lanes.fma``), for messages."""

    path: str
    where: str
    node: yaml.Node

    def fault(self, problem: str, hint: str | None = None) -> MachineError:
        start, end = self.node.start_mark, self.node.end_mark
        span = Span(self.path, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        return MachineError(f"{self.where}: {problem}" if self.where else problem, span=span, hint=hint)

    def mapping(self) -> Fields:
        """The fields of a mapping. Raises :class:`MachineError` if the node is not a mapping, or repeats a key."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fault("expected a mapping of keys to values")
        fields: dict[str, Entry] = {}
        for key, value in self.node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            inner = Entry(self.path, f"{self.where}.{name}" if self.where else name, value)
            if name in fields:
                raise Entry(self.path, inner.where, key).fault(
                    "this key is given twice", "remove one of them"
                )
            fields[name] = inner
        return Fields(self, fields)

    def sequence(self) -> list[Entry]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fault("expected a list")
        return [
            Entry(self.path, f"{self.where}[{index}]", node) for index, node in enumerate(self.node.value)
        ]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fault("expected text")
        return str(self.node.value)

    def number(self, *, minimum: float, maximum: float = math.inf) -> float:
        """A YAML integer or float from ``minimum`` to ``maximum``."""
        tag = self.node.tag.rpartition(":")[2]
        if not isinstance(self.node, yaml.ScalarNode) or tag not in ("int", "float"):
            raise self.fault("expected a number")
        try:
            value = float(self.node.value.replace("_", ""))
        except ValueError:
            raise self.fault(f"{self.node.value!r} is not a decimal number") from None
        if not value >= minimum:
            raise self.fault(f"{self.node.value} is too small", f"the minimum is {minimum:g}")
        if value > maximum:
            raise self.fault(f"{self.node.value} is too large", f"the maximum is {maximum:g}")
        return value

    def integer(self, *, minimum: float) -> int:
        value = self.number(minimum=minimum)
        if value != value // 1:
            raise self.fault(f"{value!r} is not a whole number")
        return int(value)


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of one mapping node."""

    entry: Entry
    fields: dict[str, Entry]

    def __contains__(self, key: str) -> bool:
        return key in self.fields

    def items(self) -> ItemsView[str, Entry]:
        return self.fields.items()

    def at(self, key: str) -> Entry:
        return self.fields[key]

    def take(self, key: str) -> Entry:
        """The value of a required key."""
        if key not in self.fields:
            close = nearest(key, self.fields, noun="key") if self.fields else ""
            raise self.entry.fault(
                f"missing key {key!r}",
                close.replace("did you mean", "is it") if close.startswith("did") else None,
            )
        return self.fields[key]

    def finish(self, known: Iterable[str]) -> None:
        """Raises for the first key that is not in ``known``."""
        accepted = list(known)
        for key, entry in self.fields.items():
            if key not in accepted:
                raise entry.fault(f"unknown key {key!r}", nearest(key, accepted, noun="key"))


def read_yaml(path: Path) -> Entry:
    """The document in a file; raises :class:`MachineError` for text that is not YAML, is empty or holds aliases or tags."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as problem:
        raise MachineError(f"cannot read {path}: {problem}") from None
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise MachineError(
            f"not YAML: {problem.problem}", span=Span(str(path), line, column, line, column + 1)
        ) from None
    except (yaml.YAMLError, RecursionError) as problem:
        raise MachineError(f"{path}: not YAML: {problem}") from None
    if node is None:
        raise MachineError(f"{path} is empty", hint="expected a mapping")
    return Entry(str(path), "", node)
