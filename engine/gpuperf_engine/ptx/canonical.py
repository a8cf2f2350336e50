"""A kernel without what does not matter: comments, names, positions. The same text means the same program."""

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
    ``.loc``, ``.file``, ``.version`` and ``.target`` are left out. Called functions and used variables follow, with their
    initial contents. Functions without a body keep their names: it is all that is known of them.
    """
    things = _Things(function)
    lines: list[str] = []
    while things.pending:
        thing = things.pending.pop(0)
        if isinstance(thing, Variable):
            lines.append(f"{spell.declare(thing, things.variable(thing), things)};")
        else:
            lines += _function(thing, things)
    return "\n".join(lines) + "\n"


class _Things:
    """What the whole text shares: the numbers of functions and of variables outside them."""

    def __init__(self, first: Function) -> None:
        self.pending: list[Function | Variable] = []
        self.numbers: dict[int, str] = {}
        self.kept: list[Function | Variable] = []
        self.function(first)

    def _number(self, thing: Function | Variable, letter: str) -> str:
        known = self.numbers.get(id(thing))
        if known is None:
            known = self.numbers[id(thing)] = f"{letter}{len(self.numbers)}"
            self.kept.append(thing)
            self.pending.append(thing)
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
    """Numbers inside one function; those of variables outside come from ``_Things``."""

    def __init__(self, things: _Things, function: Function) -> None:
        self.things = things
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
            return self.things.variable(variable)
        known = self.variables.get(id(variable))
        if known is None:
            known = self.variables[id(variable)] = f"l{len(self.variables)}"
            self.declared.append(variable)
        return known

    def function(self, function: Function) -> str:
        return self.things.function(function)

    def label(self, index: int) -> str:
        return self.labels[index]

    def table(self, name: str) -> str:
        return "targets"


def _function(function: Function, things: _Things) -> Iterable[str]:
    function = function.module.function(function.name)
    names = _Local(things, function)
    params = ", ".join(
        spell.declare(variable, names.variable(variable), names, initial=False)
        for variable in (*function.returns, *function.params)
    )
    kind = "entry" if function.is_entry else "func"
    yield f".{kind} {things.function(function)} {len(function.returns)} ({params})"
    yield from sorted(spell.tuning(function))
    body: list[str] = []
    for item in function.instructions:
        if item.index in names.labels:
            body.append(f"{names.labels[item.index]}:")
        body += [f'.pragma "{text}";' for text in item.pragmas]
        text = spell.instruction(item, names)
        if item.call is not None:
            for candidate in possible(function.module, item.call):
                things.function(candidate)
        if item.effect is INDIRECT_BRANCH:
            text += " " + ", ".join(names.label(target.index) for target in item.targets)
        if item.call is not None and item.call.prototype is not None:
            text += " " + spell.prototype(item.call.prototype, names)
        if item.call is not None and item.call.register is not None:
            text += " " + ", ".join(things.function(candidate) for candidate in item.call.candidates)
        body.append(text)
    if len(function.instructions) in names.labels:
        body.append(f"{names.labels[len(function.instructions)]}:")
    yield from (f"{spell.declare(variable, names.variable(variable), names)};" for variable in names.declared)
    yield "{"
    yield from body
    yield "}"
