"""What docs/architecture.md says of the code: each file and function that it names is there, and its ways go one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT

_PACKAGES = {"gpuperf_engine": ROOT / "engine" / "gpuperf_engine", "pytest_gpuperf": ROOT / "pytest_gpuperf"}
_NAMED = re.compile(r"`([\w./…]+)`")


def _sections() -> dict[str, str]:
    parts = re.split(
        r"^## (.+)$", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return dict(zip(parts[1::2], parts[2::2]))


def _steps(text: str) -> list[str]:
    """The items of a numbered list, with what continues them."""
    return [" ".join(item.split()) for item in re.findall(r"^\d\. (.+(?:\n   .+)*)", text, re.MULTILINE)]


def _ways() -> dict[str, list[str]]:
    """Question → the steps that answer it."""
    parts = re.split(r"^\*\*(.+)\*\*$", _sections()["Five questions"], flags=re.MULTILINE)
    return {question: _steps(text) for question, text in zip(parts[1::2], parts[2::2])}


def _file(name: str, seen: list[Path]) -> Path | None:
    """A path below a package or the checkout, or a name beside a path named before."""
    folders = [
        *_PACKAGES.values(),
        ROOT,
        *(path if path.is_dir() else path.parent for path in reversed(seen)),
    ]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _object(name: str) -> tuple[object, Path] | None:
    """What a dotted name stands for below a package or the checkout, and the file or folder of its module."""
    parts = name.split(".")
    for package, folder in (*_PACKAGES.items(), ("", ROOT)):
        depth = next(
            (
                depth
                for depth in range(len(parts), 0, -1)
                if (folder.joinpath(*parts[:depth]).with_suffix(".py")).is_file()
                or (folder.joinpath(*parts[:depth]) / "__init__.py").is_file()
            ),
            0,
        )
        if depth:
            path = folder.joinpath(*parts[:depth])
            held: object = import_module(".".join([*([package] if package else []), *parts[:depth]]))
            for part in parts[depth:]:
                held = getattr(held, part, None) or (getattr(held, "__annotations__", None) or {}).get(part)
                if held is None:
                    return None
            return held, path if path.is_dir() else path.with_suffix(".py")
    return None


def _resolve(text: str) -> Iterator[tuple[str, Path | None]]:
    """Each name in code font and the file or folder that has it; names of one word may be of a module named before."""
    seen: list[Path] = []
    for name in _NAMED.findall(text):
        if "…" in name:
            continue
        path = _file(name, seen) if "/" in name or name.endswith((".py", ".lark")) else None
        if path is None and "/" not in name:
            resolved = _object(name)
            path = resolved[1] if resolved is not None else None
        if path is None and re.fullmatch(r"\w+(\.\w+)?", name):
            path = next((item for item in reversed(seen) if item.is_file() and _defines(item, name)), None)
        if path is not None:
            seen.append(path)
        yield name, path


def _defines(path: Path, name: str) -> bool:
    """Whether a module has a name, or a class of it an attribute."""
    package = next(folder for folder in _PACKAGES.values() if path.is_relative_to(folder))
    held: object = import_module(".".join([package.name, *path.relative_to(package).with_suffix("").parts]))
    assert isinstance(held, ModuleType)
    for part in name.split("."):
        if not hasattr(held, part):
            return False
        held = getattr(held, part)
    return True


@pytest.mark.parametrize(
    "section", ["Five questions", "The path of an instruction", "The path of an argument"]
)
def test_each_file_and_function_that_is_named_exists(section: str) -> None:
    steps = _steps(_sections()[section])
    assert len(steps) >= 4
    for step in steps:
        assert [name for name, path in _resolve(step) if path is None] == [], step


@cache
def _imports(path: Path) -> frozenset[Path]:
    """The modules of the same package that a module imports, for types and lazily too."""
    package = next(folder for folder in _PACKAGES.values() if path.is_relative_to(folder))
    imported = set[Path]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for target in (base, *(base / item.name for item in node.names)):
                imported.add(target if target.is_dir() else target.with_suffix(".py"))
    return frozenset(item for item in imported if item.is_relative_to(package))


def test_there_are_five_ways() -> None:
    assert len(_ways()) == 5
    assert all(len(steps) >= 4 for steps in _ways().values())


@pytest.mark.parametrize("question", _ways())
def test_no_step_uses_what_a_later_one_defines(question: str) -> None:
    steps = [
        {
            path
            for _, path in _resolve(step)
            if path is not None and path.suffix == ".py" and "tests" not in path.parts
        }
        for step in _ways()[question]
    ]
    for number, step in enumerate(steps):
        later = {path for other in steps[number + 1 :] for path in other}.difference(*steps[: number + 1])
        for path in step:
            used = sorted(item.relative_to(ROOT).as_posix() for item in _imports(path) & later)
            assert used == [], f"step {number + 1}: {path.relative_to(ROOT)}"
