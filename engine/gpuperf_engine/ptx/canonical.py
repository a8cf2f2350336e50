"""The canonical text of a kernel, without comments, names and positions: equal texts are equal programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..isa.effects import INDIRECT_BRANCH
from . import spell
from .module import Function
from .pointers import possible
from .syntax import Register, Variable

__all__ = ["canonical", "digest"]


def digest(function: Function) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(function).encode("utf-8")).hexdigest()[:12]


def canonical(function: Function) -> str:
    """Canonical PTX of a function with everything it reaches.

    Registers, labels, variables and functions are numbered in the order of their first use; unused ones, comments,
    ``.loc``, ``.file``, ``.version`` and ``.target`` are omitted. Called functions and used variables follow, with their
    initial contents. Functions without a body keep their names, which are all that identifies them.
    """
    numbering = _Globals(function)
    lines: list[str] = []
    while numbering.pending:
        item = numbering.pending.pop(0)
        if isinstance(item, Variable):
            lines.append(f"{spell.declare(item, numbering.variable(item), numbering)};")
        else:
            lines += _function(item, numbering)
    return "\n".join(lines) + "\n"


class _Globals:
    """Numbers of functions and of variables outside functions, shared by the whole text."""

    def __init__(self, first: Function) -> None:
        self.pending: list[Function | Variable] = []
        self.numbers: dict[int, str] = {}
        self.kept: list[Function | Variable] = []
        self.function(first)

    def _number(self, item: Function | Variable, letter: str) -> str:
        known = self.numbers.get(id(item))
        if known is None:
            known = self.numbers[id(item)] = f"{letter}{len(self.numbers)}"
            self.kept.append(item)
            self.pending.append(item)
        return known

    def function(self, function: Function) -> str:
        return self._number(function, "f") if function.defined else function.name

    def variable(self, variable: Variable) -> str:
        return self._number(variable, "v")

    def register(self, register: Register) -> str:
        raise AssertionError("module scope has no registers")

    def label(self, index: int) -> str:
        raise AssertionError("module scope has no labels")

    def table(self, name: str) -> str:
        raise AssertionError("module scope has no tables")


class _Local:
    """Numbers inside one function; ``_Globals`` has those of variables outside."""

    def __init__(self, numbering: _Globals, function: Function) -> None:
        self.numbering = numbering
        self.registers: dict[int, str] = {}
        self.labels: dict[int, str] = {}
        self.variables: dict[int, str] = {}
        self.declared: list[Variable] = []
        for index, variable in enumerate((*function.returns, *function.params)):
            self.variables[id(variable)] = f"p{index}"
        for item in function.instructions:
            for target in item.targets:
                self.labels.setdefault(target.index, "")
        self.labels = {index: f"L{number}" for number, index in enumerate(sorted(self.labels))}

    def register(self, register: Register) -> str:
        known = self.registers.get(register.index)
        if known is None:
            known = self.registers[register.index] = f"%{register.type.name}_{len(self.registers)}"
        return known

    def variable(self, variable: Variable) -> str:
        if variable.function is None:
            return self.numbering.variable(variable)
        known = self.variables.get(id(variable))
        if known is None:
            known = self.variables[id(variable)] = f"l{len(self.variables)}"
            self.declared.append(variable)
        return known

    def function(self, function: Function) -> str:
        return self.numbering.function(function)

    def label(self, index: int) -> str:
        return self.labels[index]

    def table(self, name: str) -> str:
        return "targets"


def _function(function: Function, numbering: _Globals) -> Iterable[str]:
    function = function.module.function(function.name)
    names = _Local(numbering, function)
    params = ", ".join(
        spell.declare(variable, names.variable(variable), names, initial=False)
        for variable in (*function.returns, *function.params)
    )
    kind = "entry" if function.is_entry else "func"
    yield f".{kind} {numbering.function(function)} {len(function.returns)} ({params})"
    yield from sorted(spell.tuning(function))
    body: list[str] = []
    for item in function.instructions:
        if item.index in names.labels:
            body.append(f"{names.labels[item.index]}:")
        body += [f'.pragma "{text}";' for text in item.pragmas]
        text = spell.instruction(item, names)
        if item.call is not None:
            for candidate in possible(function.module, item.call):
                numbering.function(candidate)
        if item.effect is INDIRECT_BRANCH:
            text += " " + ", ".join(names.label(target.index) for target in item.targets)
        if item.call is not None and item.call.prototype is not None:
            text += " " + spell.prototype(item.call.prototype, names)
        if item.call is not None and item.call.register is not None:
            text += " " + ", ".join(numbering.function(candidate) for candidate in item.call.candidates)
        body.append(text)
    if len(function.instructions) in names.labels:
        body.append(f"{names.labels[len(function.instructions)]}:")
    yield from (f"{spell.declare(variable, names.variable(variable), names)};" for variable in names.declared)
    yield "{"
    yield from body
    yield "}"
