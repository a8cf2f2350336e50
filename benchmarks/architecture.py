"""The layers of engine and plugin as a picture, from the import contracts in ``pyproject.toml`` and the docstrings of the packages."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"gpuperf_engine": ROOT / "engine", "pytest_gpuperf": ROOT}


def layers() -> dict[str, list[list[str]]]:
    """For each package with a contract of layers its modules, the topmost layer first."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts: list[Mapping[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0]: [re.split(r" [|:] ", layer) for layer in contract["layers"]]
        for contract in contracts
        if contract["type"] == "layers"
    }


def summary(module: str) -> str:
    """The first sentence of a module's docstring."""
    base = SOURCES[module.partition(".")[0]] / module.replace(".", "/")
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(text.split("\n\n")[0].split())
    return text.replace("``", "`").strip().rstrip(".")


def _chart(levels: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Mermaid flow chart: each layer imports those below it."""
    yield "```mermaid"
    yield "flowchart TD"
    names = []
    for number, level in enumerate(levels):
        names.append(f"layer{number}")
        yield f'    layer{number}["{" · ".join(level)}"]'
    yield f"    {' --> '.join(names)}"
    yield "```"


def render() -> str:
    """A chart and a table for each package."""
    lines: list[str] = []
    for package, levels in layers().items():
        lines += [f"### `{package}`", "", *_chart(levels), "", "| module | holds |", "|---|---|"]
        lines += [f"| `{name}` | {summary(f'{package}.{name}')} |" for level in levels for name in level]
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """``docs/architecture.md`` with its charts made anew."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    before, mark, rest = text.partition("<!-- layers -->\n")
    _, end, after = rest.partition("<!-- /layers -->")
    assert mark and end, "docs/architecture.md has lost its marks"
    return f"{before}{mark}\n{render()}\n{end}{after}"
