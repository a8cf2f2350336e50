"""Which functions a call through a register may mean: those whose address the module takes and that fit the prototype.

A pointer may come from anywhere: another kernel may have stored it, as constructors store the address of a table of virtual functions.
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
    """The functions that a call may mean beside those it names, with their bodies, in the order of the text."""
    if target.function is None and not target.candidates:
        known = addressed(module)
        for name in module.functions:
            function = module.functions[name]
            if name in known and not function.is_entry and function.defined and fits(function, target):
                yield module.function(name)


def fits(function: Function, target: CallTarget) -> bool:
    """Whether a function has results and parameters like those of the prototype of a call."""
    prototype = target.prototype
    if prototype is None:
        return len(function.params) == len(target.arguments) and len(function.returns) == len(target.returns)
    wanted = [[_fixed_size(item) for item in group] for group in (prototype.params, prototype.returns)]
    return wanted == [[_fixed_size(item) for item in group] for group in (function.params, function.returns)]


def _fixed_size(formal: Variable) -> int | None:
    """``None`` for parameters of open size."""
    return None if formal.dims[:1] == (None,) else formal.size


def addressed(module: Module) -> frozenset[str]:
    """The names of the functions whose address is taken, in an initial value or in code of any function. Looked for once."""
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
    """Those of the names that stand in the text of a body anywhere but in a call: a few too many, if labels have such names."""
    if not names.isdisjoint(_NAME.findall(body)):
        for statement in body.split(";"):
            if _CALL.search(statement) is None:
                yield from names.intersection(_NAME.findall(statement))
