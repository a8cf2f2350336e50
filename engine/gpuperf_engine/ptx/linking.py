"""Linking of PTX texts that were compiled separately (``nvcc -rdc=true``, ``cuLink…``, Numba): PTX manual, "Linking Directives"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, filterfalse

from ..errors import PtxError
from .retarget import first_mark

__all__ = ["link"]

#: strings and comments, which may contain any character, and directives that end with their line
_OPAQUE = r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/'
_LINE = r"^[ \t]*\.(?:version|target|address_size|file)\b[^\n]*"
_COMMENT = re.compile(_OPAQUE, re.S)
_TOKEN = re.compile(rf'"(?:[^"\\\n]|\\.)*"|{_LINE}|[{{}};]', re.M)
_VERSION = re.compile(r"\.version\s+(\d+)\.(\d+)")
_ARCHITECTURE = re.compile(r"\bsm_(\d+)")
_FUNCTION = re.compile(r"\.(func|entry)\b\s*(?:\([^)]*\)\s*)?([\w$%]+)")
_VARIABLE = re.compile(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)*$")
_LINKAGE = re.compile(r"\s*\.(extern|visible|weak|common)\b")
_LABEL = re.compile(r"([\w$]+)(?=\s*:)")
_LABEL_USED = re.compile(r"(?<=\bfunction_name )([\w$]+)")
_FILE = re.compile(r"^(\.file\s+)(\d+)")
_LOCATION = re.compile(r"^([ \t]*\.loc\s+)(\d+)", re.M)
_INLINED = re.compile(r"(\binlined_at\s+)(\d+)")
_NUMBERED = re.compile(r"__(\d+)(?![\w$])")


@dataclass(frozen=True)
class _Statement:
    """A statement at module scope. ``linkage`` is empty for module-local names; ``kind`` is ``func``, ``entry``, ``variable``,
    ``section``, ``alias``, or the name of a directive."""

    text: str
    name: str
    linkage: str
    kind: str

    @property
    def links(self) -> bool:
        return self.kind in ("func", "entry", "variable")

    @property
    def defines(self) -> bool:
        return self.links and self.linkage != "extern" and (self.kind == "variable" or "{" in self.text)

    @property
    def prototype(self) -> str:
        return self.text.partition("{")[0].rstrip() + ";"

    @property
    def strength(self) -> int:
        """The precedence of a definition: the strongest one is linked; only one may be ``.visible`` or a kernel."""
        return {"weak": 1, "common": 1}.get(self.linkage, 2)


def link(texts: Sequence[str]) -> str:
    """The linked module. The first definition of ``.weak`` and ``.common`` names is used; module-local names are made unique.
    Positions in source files are preserved, other debug sections are not. Raises ``PtxError`` for a name that two modules
    define."""
    if len(texts) == 1:
        return texts[0]
    modules: list[list[_Statement]] = []
    files = 0
    # names of a text that was itself linked already end in numbers
    used = {int(number) for text in texts for number in _NUMBERED.findall(text)}
    free = filterfalse(used.__contains__, count(1))
    for text in texts:
        module, files = _renumbered([*_statements(text)], files)
        modules.append(_apart(module, next(free)) if modules else module)
    every = [statement for module in modules for statement in module]
    defined: dict[str, _Statement] = {}
    for statement in filter(lambda item: item.defines, every):
        known = defined.get(statement.name)
        if known is not None and known.strength == statement.strength == 2:
            raise PtxError(
                f"{statement.name} is defined by two modules that are linked",
                hint="make one of them .weak, or link one of the modules alone",
            )
        if known is None or known.strength < statement.strength:
            defined[statement.name] = statement
    declared = {item.name: item for item in every if item.links and item.name not in defined}
    functions = [item for item in defined.values() if item.kind != "variable"]
    version = max(
        tuple(map(int, match))
        for item in every
        for match in _VERSION.findall(item.text)
        if item.kind == "version"
    )
    parts = [
        [f".version {version[0]}.{version[1]}"],
        [max((item.text for item in every if item.kind == "target"), key=_architecture) + first_mark(texts)],
        [".address_size 64"],
        [item.text for item in every if item.kind == "file"],
        [item.text for item in declared.values()],
        [item.prototype for item in functions if item.kind == "func"],
        [item.text for item in defined.values() if item.kind == "variable"],
        [item.text for item in functions],
        dict.fromkeys(item.text for item in every if item.kind == "alias"),
        [
            item.text
            for item in every
            if item.kind == "section" and ".debug_str" in item.text.partition("{")[0]
        ],
        [""],
    ]
    return "\n".join(line for part in parts for line in part)


def _architecture(target: str) -> int:
    match = _ARCHITECTURE.search(target)
    return int(match[1]) if match else 0


def _bare(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else " "


def _statements(text: str) -> Iterator[_Statement]:
    text = _COMMENT.sub(_bare, text.strip("\0"))
    start, depth = 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth or token[0] in '"{':
            continue
        head = text[start : match.end()].partition("{")[0]
        if token == "}" and not (_FUNCTION.search(head) or ".section" in head):
            continue  # a brace of an initialiser, whose statement ends with a semicolon
        yield _statement(text[start : match.end()].strip())
        start = match.end()


def _statement(text: str) -> _Statement:
    head = text.partition("{")[0]
    linkage = _LINKAGE.match(text)
    visible = linkage[1] if linkage else ""
    if function := _FUNCTION.search(head):
        return _Statement(text, function[2], visible, function[1])
    word = head.split(maxsplit=1)[0].strip(".;")
    if word in ("version", "target", "address_size", "file", "section", "alias", "pragma", ""):
        return _Statement(text, "", "", word)
    variable = _VARIABLE.search(text.partition("=")[0].rstrip("; \n"))
    return _Statement(text, variable[1] if variable else "", visible, "variable")


def _apart(statements: list[_Statement], number: int) -> list[_Statement]:
    """The statements with unique module-local names: functions, variables, and labels of debug strings."""
    shared = {item.name for item in statements if item.linkage or item.kind == "entry"}
    own = {item.name for item in statements if item.links} - shared
    either = "|".join(map(re.escape, sorted(own, key=len, reverse=True)))
    names = re.compile(rf"(?<![\w$%])({either})(?![\w$])" if own else "(?!)()")
    renamed = rf"\1__{number}"

    def apart(item: _Statement) -> _Statement:
        if item.kind == "section":
            return replace(item, text=_LABEL.sub(renamed, item.text))
        if not item.links and item.kind != "alias":
            return item
        text = _LABEL_USED.sub(renamed, names.sub(renamed, item.text))
        return replace(item, text=text, name=names.sub(renamed, item.name))

    return [apart(item) for item in statements]


def _renumbered(statements: list[_Statement], before: int) -> tuple[list[_Statement], int]:
    """The statements with an offset added to file numbers, and the highest number."""
    most = before

    def shifted(match: re.Match[str]) -> str:
        nonlocal most
        most = max(most, int(match[2]) + before)
        return f"{match[1]}{int(match[2]) + before}"

    remaining = []
    for item in statements:
        patterns = [_FILE] if item.kind == "file" else [_LOCATION, _INLINED] if item.links else []
        text = item.text
        for pattern in patterns:
            text = pattern.sub(shifted, text)
        remaining.append(replace(item, text=text))
    return remaining, most
