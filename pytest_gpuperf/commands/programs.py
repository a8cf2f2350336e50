"""Several launches as a file: named arrays, then launches of one or several PTX files that share them.

    arrays:
      x: f32[1000]=arange
    launches:
      - {file: saxpy.ptx, entry: saxpy, grid: 4, block: 256, args: [s32=1000, f32=2, x, x]}

YAML, and with it JSON. Paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gpuperf_engine.errors import nearest

from .common import UsageError

__all__ = ["LaunchSpec", "ProgramSpec", "read_program"]

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class LaunchSpec:
    """One requested launch; ``where`` precedes messages about its arguments (``program.yaml:4: args``)."""

    file: str
    entry: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[str, ...]
    shared_bytes: int = 0
    cluster: tuple[int, ...] | None = None
    cooperative: bool = False
    where: str = "--arg"


@dataclass(frozen=True)
class ProgramSpec:
    """Arrays by name, as ``TYPE[SHAPE]=CONTENTS`` with their places in the file, and the launches. Paths start at ``folder``."""

    arrays: Mapping[str, tuple[str, str]]
    launches: tuple[LaunchSpec, ...]
    folder: Path


def read_program(path: str) -> ProgramSpec:
    """Read a program. Raises ``UsageError`` with file and line for an unreadable or invalid one."""
    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        location = f"{path}:{mark.line + 1}" if mark is not None else path
        raise UsageError(f"{location}: no YAML or JSON: {getattr(error, 'problem', None) or error}") from None
    if root is None:
        raise UsageError(f"{path}: the file is empty; it needs 'launches:'")
    reader = _Reader(path)
    fields = reader.mapping(root, ("arrays", "launches"), ("launches",))
    arrays = reader.mapping(fields["arrays"]) if "arrays" in fields else {}
    launches = reader.items(fields["launches"])
    if not launches:
        reader.fail(fields["launches"], "there are no launches")
    return ProgramSpec(
        {name: (reader.text(node), reader.at(node)) for name, node in arrays.items()},
        tuple(reader.launch(node) for node in launches),
        Path(path).parent,
    )


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path

    def at(self, node: yaml.Node) -> str:
        return f"{self.path}:{node.start_mark.line + 1}:"

    def fail(self, node: yaml.Node, message: str) -> NoReturn:
        raise UsageError(f"{self.at(node)} {message}")

    def mapping(
        self, node: yaml.Node, known: tuple[str, ...] = (), needed: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"expected a mapping{' with ' + ', '.join(known) if known else ''}")
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key)
            if name in values:
                self.fail(key, f"{name!r} is given twice")
            if known and name not in known:
                self.fail(key, f"{name!r} is not known; {nearest(name, known, noun='key')}")
            values[name] = value
        for name in needed:
            if name not in values:
                self.fail(node, f"{name!r} is missing")
        return values

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, "expected a list")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.fail(node, "expected a text or number")
        return str(node.value)

    def whole(self, node: yaml.Node) -> int:
        try:
            return int(self.text(node).replace("_", ""), 10)
        except ValueError:
            self.fail(node, f"{self.text(node)!r} is not a whole number")

    def flag(self, node: yaml.Node) -> bool:
        if self.text(node) not in ("true", "false"):
            self.fail(node, f"{self.text(node)!r} is neither true nor false")
        return self.text(node) == "true"

    def shape(self, node: yaml.Node) -> tuple[int, ...]:
        parts = self.items(node) if isinstance(node, yaml.SequenceNode) else [node]
        if not 1 <= len(parts) <= 3:
            self.fail(node, f"{len(parts)} dimensions, a launch has one to three")
        return tuple(self.whole(part) for part in parts)

    def launch(self, node: yaml.Node) -> LaunchSpec:
        fields = self.mapping(
            node,
            ("file", "entry", "grid", "block", "args", "shared_bytes", "cluster", "cooperative"),
            ("file", "grid", "block"),
        )
        args = self.items(fields["args"]) if "args" in fields else []

        def read(name: str, reader: Callable[[yaml.Node], Any], default: Any) -> Any:
            return reader(fields[name]) if name in fields else default

        return LaunchSpec(
            file=self.text(fields["file"]),
            entry=read("entry", self.text, None),
            grid=self.shape(fields["grid"]),
            block=self.shape(fields["block"]),
            args=tuple(self.text(item) for item in args),
            shared_bytes=read("shared_bytes", self.whole, 0),
            cluster=read("cluster", self.shape, None),
            cooperative=read("cooperative", self.flag, False),
            where=self.at(fields.get("args", node)),
        )
