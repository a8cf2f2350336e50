"""Candidates of indirect calls: functions whose address the module takes and whose signature matches the prototype.

A pointer may come from anywhere: another kernel may have stored it, as constructors store the address of a virtual function table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .module import Function, Module
from .syntax import CallTarget, Variable

__all__ = ["addressed", "fits", "named_in", "possible"]

_NAME = re.compile(r"[\w$%]+")
_CALL = re.compile(r"\bcall\b")


def possible(module: Module, target: CallTarget) -> Iterator[Function]:
    """The candidates of a call other than those it names, with their bodies, in textual order."""
    if target.function is None and not target.candidates:
        known = addressed(module)
        for name in module.functions:
            function = module.functions[name]
            if name in known and not function.is_entry and function.defined and fits(function, target):
                yield module.function(name)


def fits(function: Function, target: CallTarget) -> bool:
    """Whether a function's results and parameters match the prototype of a call."""
    prototype = target.prototype
    if prototype is None:
        return len(function.params) == len(target.arguments) and len(function.returns) == len(target.returns)
    wanted = [[_fixed_size(item) for item in group] for group in (prototype.params, prototype.returns)]
    return wanted == [[_fixed_size(item) for item in group] for group in (function.params, function.returns)]


def _fixed_size(formal: Variable) -> int | None:
    """The size of a parameter, ``None`` if it is open."""
    return None if formal.dims[:1] == (None,) else formal.size


def addressed(module: Module) -> frozenset[str]:
    """The cached names of the functions whose address is taken, in an initial value or in the code of any function."""
    if module.addressed is None:
        names = {
            relocation[2].name
            for variable in module.variables.values()
            for relocation in variable.relocations
            if isinstance(relocation[2], Function)
        }
        module.addressed = frozenset(names) | module.addressed_in_text()
    return module.addressed


def named_in(body: str, names: frozenset[str]) -> Iterator[str]:
    """The names that occur in the text of a body other than in a call. Labels of the same name are included."""
    if not names.isdisjoint(_NAME.findall(body)):
        for statement in body.split(";"):
            if _CALL.search(statement) is None:
                yield from names.intersection(_NAME.findall(statement))
