"""A module whose functions are read on first use."""

from __future__ import annotations

import re

from .._gc import uncollected
from ..errors import UnknownName, nearest
from . import raw
from .declare import Grammar
from .locations import debug_labels
from .module import Body, Function, Module, text_digest
from .pointers import named_in
from .resolve import Verdicts, resolve_body
from .text import Text

__all__ = ["LazyModule"]

#: Text before a statement: ends and beginnings of scopes, labels, source positions.
_FRONT = re.compile(r"(?:[\s{}]|[\w$%]+\s*:|\.loc(?:_intermediate)?\b[^\n]*|@@DWARF\b[^\n]*)*", re.ASCII)


class LazyModule(Module):
    """A module that resolves a function's body on first use."""

    __slots__ = (
        "_strings",
        "_text",
        "bodies",
        "checked_address_size",
        "grammar",
        "outside",
        "sections",
        "verdicts",
    )

    def __init__(self, text: Text, grammar: Grammar) -> None:
        super().__init__(text.original, text.path, (0, 0), "")
        self._text = text
        self.grammar = grammar
        self.bodies: dict[str, tuple[int, int]] = {}
        self.sections: list[tuple[int, int]] = []
        self.outside: list[
            tuple[int, raw.Declaration]
        ] = []  # registers declared outside of functions, and where
        self.checked_address_size = 0
        self._strings: dict[str, str] | None = None
        self.verdicts: Verdicts = {}
        self.files = {}

    def debug_name(self, label: str, offset: int) -> str:
        """The string of a debug section that a label and an offset denote; the label itself if there is none."""
        if self._strings is None:
            self._strings = {}
            for start, end in self.sections:
                self._strings.update(debug_labels(self._text.code, start, end))
        return self._strings.get(label, label)

    @property
    def instruction_count(self) -> int:
        """Instructions of all functions. Bodies that were not read yet are counted from their text."""
        total = 0
        for function in self.functions.values():
            if function.read or function.name not in self.bodies:
                total += len(function.instructions)
            else:
                start, end = self.bodies[function.name]
                total += _statements(self._text.code[start:end])
        return total

    @property
    def digest(self) -> bytes:
        return text_digest(self._text.original)

    def __reduce__(self) -> tuple[object, ...]:
        from .parse import parse

        return parse, (self._text.original, self._text.path)

    def addressed_in_text(self) -> frozenset[str]:
        names = frozenset((*self.functions, *self.aliases))
        bodies = (self._text.code[start:end] for start, end in self.bodies.values())
        addressed = {name for body in bodies for name in named_in(body, names)}
        return frozenset(self.aliases[name].name if name in self.aliases else name for name in addressed)

    @uncollected
    def _body(self, function: Function) -> Body:
        bounds = self.bodies.get(function.name)
        if bounds is not None:
            return resolve_body(self, self._text, self.grammar, function, *bounds)
        if function.defined:
            raise UnknownName(
                f"no function {function.name!r} in {self.path}",
                hint=nearest(function.name, self.functions, noun="function"),
            )
        return Body()


def _statements(body: str) -> int:
    """The number of statements of a body that are instructions, as they do not begin with a dot."""
    fronts = (_FRONT.match(statement) for statement in body.split(";")[:-1])
    return sum(not front.string.startswith(".", front.end()) for front in fronts if front is not None)
