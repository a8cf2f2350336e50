"""Parses functions of the subset of Python that ``compile_python`` translates."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..._data import text_of

__all__ = ["Signature", "assigned_names", "functions_of", "only_expression", "signatures"]

#: name, parameters and returned record of a top-level function, with its decorators
_HEAD = re.compile(r"^(?:@\w+\n)*def (\w+)\(([^)]*)\) -> ([^:]+):.*\n", re.MULTILINE)
#: the rest of a function that only returns an expression
_SHORT = re.compile(r'(?: {4}"""(?:[^"]|"(?!""))*"""\n)?\n* {4}return ')


class Signature(NamedTuple):
    """The signature of a function in another object."""

    name: str
    parameters: int
    returns: str
    #: the expression of a function that only returns one
    node: ast.FunctionDef | None


def signatures(paths: Sequence[Path]) -> list[Signature]:
    """Signatures of the functions in some files. They are matched by regular expressions: parsing all files that an object may call
    takes longer than parsing its own files."""
    return [signature for path in paths for signature in _signatures_of(path)]


def functions_of(paths: Sequence[Path]) -> list[ast.FunctionDef]:
    return [node for path in paths for node in _read_functions(path)]


@lru_cache(64)
def _read_functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(text_of(path), str(path))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


@lru_cache(64)
def _signatures_of(path: Path) -> list[Signature]:
    text = text_of(path)
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = []
    for head, end in zip(heads, ends):
        name, given, returns = head.groups()
        node = _alone(text[head.start() : end]) if _SHORT.match(text, head.end()) else None
        found.append(Signature(name, sum(bool(part.strip()) for part in given.split(",")), returns, node))
    return found


def _alone(text: str) -> ast.FunctionDef:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def only_expression(node: ast.FunctionDef) -> ast.expr | None:
    """The expression of a function that does nothing but return it; otherwise ``None``."""
    *others, last = node.body
    documented = len(others) == 1 and ast.get_docstring(node) is not None
    return last.value if isinstance(last, ast.Return) and (documented or not others) else None


def assigned_names(statements: Sequence[ast.stmt]) -> set[str]:
    """Names of the variables that statements assign."""
    names = set()
    for node in statements:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                names.add(target.id)
        elif isinstance(node, (ast.If, ast.While)):
            names |= assigned_names(node.body) | assigned_names(node.orelse)
    return names
