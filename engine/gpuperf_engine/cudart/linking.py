"""One text of PTX from several that were compiled apart (``nvcc -rdc=true``, ``cuLink…``): PTX manual, "Linking Directives"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .codes import CudaError

__all__ = ["linked"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.M)
_TARGET = re.compile(r"^\s*\.target\s+[^\n]+", re.M)
#: directives that end with their line; positions in sources are of one module alone
_LINES = re.compile(r"^[ \t]*\.(version|target|address_size|file|loc)\b[^\n]*", re.M)
_FUNCTION = re.compile(r"\.(func|entry)\b\s*(?:\([^)]*\)\s*)?([\w$%]+)")
_VARIABLE = re.compile(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)*$")
_LINKAGE = re.compile(r"\s*\.(extern|visible|weak|common)\b")


@dataclass
class _Statement:
    """``linkage`` is empty for what only its module sees; ``kind`` is ``func``, ``entry`` or ``variable``."""

    text: str
    name: str
    linkage: str
    kind: str

    @property
    def defines(self) -> bool:
        return self.linkage != "extern" and (self.kind == "variable" or "{" in self.text)

    @property
    def prototype(self) -> str:
        return self.text.partition("{")[0].rstrip() + ";"


def linked(texts: Sequence[str]) -> str:
    """The module of these; of names that are ``.weak`` in several the first is taken. Raises ``CudaError`` (invalid PTX) for a name
    that two of them define."""
    if len(texts) == 1:
        return texts[0]
    modules = [_apart(_statements(text), number) for number, text in enumerate(texts)]
    every = [statement for module in modules for statement in module]
    defined: dict[str, _Statement] = {}
    for statement in every:
        known = defined.get(statement.name)
        if not statement.defines:
            continue
        if (
            known is not None
            and "weak" not in (known.linkage, statement.linkage)
            and statement.linkage != "common"
        ):
            raise CudaError(218, f"{statement.name} is defined by two modules that are linked")
        if known is None or (known.linkage == "weak" and statement.linkage == "visible"):
            defined[statement.name] = statement
    declared = {item.name: item for item in every if not item.defines and item.name not in defined}
    functions = [item for item in defined.values() if item.kind != "variable"]
    variables = [item for item in defined.values() if item.kind == "variable"]
    version = max((int(match[1]), int(match[2])) for text in texts for match in _VERSION.finditer(text))
    target = max((match[0].strip() for text in texts for match in _TARGET.finditer(text)), key=_architecture)
    return "\n".join(
        [
            f".version {version[0]}.{version[1]}",
            target,
            ".address_size 64",
            *(item.text for item in declared.values()),
            *(item.prototype for item in functions if item.kind == "func"),
            *(item.text for item in variables),
            *(item.text for item in functions),
            "",
        ]
    )


def _architecture(target: str) -> int:
    match = re.search(r"sm_(\d+)", target)
    return int(match[1]) if match else 0


def _statements(text: str) -> list[_Statement]:
    """What stands at the top of a module, in its order."""
    text = _LINES.sub("", _COMMENT.sub("", text))
    statements, start, depth = [], 0, 0
    for match in re.finditer(r"[{};]", text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        piece = text[start : match.end()]
        head = piece.partition("{")[0]
        block = _FUNCTION.search(head) or ".section" in head
        if depth or (match[0] == "}" and not block):
            continue
        start = match.end()
        if statement := _statement(piece.strip()):
            statements.append(statement)
    return statements


def _statement(text: str) -> _Statement | None:
    linkage = _LINKAGE.match(text)
    function = _FUNCTION.search(text.partition("{")[0])
    kind, name = (function[1], function[2]) if function else ("variable", "")
    if not function:
        if text.startswith((".section", ".pragma", ".alias", ";")):
            return None
        found = _VARIABLE.search(text.partition("=")[0].rstrip("; \n"))
        name = found[1] if found else ""
    return _Statement(text, name, linkage[1] if linkage else "", kind)


def _apart(statements: list[_Statement], number: int) -> list[_Statement]:
    """With names that only this module sees made its own."""
    own = {item.name for item in statements if not item.linkage and item.kind != "entry"}
    counts = Counter(item.name for item in statements if item.linkage)
    own = {name for name in own if not counts[name]}
    if not own:
        return statements
    names = re.compile(
        "(?<![\\w$%])(" + "|".join(map(re.escape, sorted(own, key=len, reverse=True))) + ")(?![\\w$])"
    )
    return [
        _Statement(names.sub(rf"\1__{number}", item.text), f"{item.name}__{number}" if item.name in own else item.name,
                   item.linkage, item.kind)
        for item in statements
    ]  # fmt: skip
