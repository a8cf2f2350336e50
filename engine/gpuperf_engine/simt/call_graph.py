"""The call graph of a kernel: reachable functions, candidates of calls, and recursive functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..isa.effects import CALL
from ..ptx.module import Function
from ..ptx.pointers import fits, possible
from ..ptx.syntax import Address, CallTarget, Immediate, Operand, Register, Symbol, Variable, Vector

__all__ = ["callees", "reachable", "recursive_functions", "size_open_parameters", "variables_of"]


#: operands that name no function or variable
_PLAIN = frozenset([Register, Immediate])


def reachable(kernel: Function) -> tuple[Function, ...]:
    functions: dict[str, Function] = {kernel.name: kernel}
    queue = [kernel]
    variables: set[Variable] = set()
    while queue:
        function = queue.pop(0)
        for target in _named(function, variables):
            if target.name in functions or target.is_entry or not target.defined:
                continue
            loaded = kernel.module.function(target.name)
            functions[target.name] = loaded
            queue.append(loaded)
    return tuple(functions.values())


def _named(function: Function, seen: set[Variable]) -> Iterable[Function]:
    """The functions that a function calls, or whose address it uses, directly or through the initial values of variables."""
    for instruction in function.instructions:
        for operand in instruction.operands:
            if type(operand) in _PLAIN:
                continue
            if isinstance(operand, CallTarget):
                if operand.function is not None:
                    yield operand.function
                yield from operand.candidates
                yield from possible(function.module, operand)
            elif targets := variables_of(operand):
                yield from _pointed_at(targets, seen)


def _pointed_at(targets: Iterable[Variable | Function], seen: set[Variable]) -> Iterable[Function]:
    """The functions among these, and those in the initial values of these variables."""
    left = list(targets)
    while left:
        target = left.pop(0)
        if isinstance(target, Function):
            yield target
        elif target not in seen:
            seen.add(target)
            left += [relocation[2] for relocation in target.relocations]


def callees(target: CallTarget, functions: tuple[Function, ...], number_of: dict[str, int]) -> list[int]:
    """The candidates of a call, by number: the named function, the listed targets, or all functions with the prototype's signature."""
    if target.function is not None:
        names = [target.function.name]
    elif target.candidates:
        names = [item.name for item in target.candidates]
    else:
        names = [item.name for item in functions if not item.is_entry and fits(item, target)]
    return [number_of[name] for name in names if name in number_of]


def size_open_parameters(functions: tuple[Function, ...]) -> None:
    """Set the size of parameters without one (``.param .b8 rest[]``) to that of the largest argument."""
    open_ones = [item for item in functions if any(formal.dims[:1] == (None,) for formal in item.params)]
    if not open_ones:
        return
    for function in functions:
        for instruction in function.instructions:
            target = instruction.call
            if target is None:
                continue
            for callee in open_ones:
                if target.function in (None, callee) and len(callee.params) == len(target.arguments):
                    for formal, given in zip(callee.params, target.arguments):
                        if formal.dims[:1] == (None,) and isinstance(given, Variable):
                            formal.size = max(formal.size, given.size)


def recursive_functions(functions: tuple[Function, ...], number_of: dict[str, int]) -> frozenset[int]:
    calls: list[set[int]] = []
    for function in functions:
        targets: set[int] = set()
        for instruction in function.instructions:
            if instruction.form.effect is CALL:
                for operand in instruction.operands:
                    if isinstance(operand, CallTarget):
                        targets.update(callees(operand, functions, number_of))
        calls.append(targets)
    recursive = set()
    for start in range(len(functions)):
        seen: set[int] = set()
        stack = list(calls[start])
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += calls[node]
        if start in seen:
            recursive.add(start)
    return frozenset(recursive)


def variables_of(operand: Operand) -> Sequence[Variable | Function]:
    if isinstance(operand, (Register, Immediate)):
        return ()
    if isinstance(operand, Variable):
        return (operand,)
    if isinstance(operand, Symbol):
        return (operand.target,)
    if isinstance(operand, Address):
        base = (operand.base,) if isinstance(operand.base, Variable) else ()
        return (*base, *(target for inner in operand.further for target in variables_of(inner)))
    if isinstance(operand, Vector):
        return [target for element in operand.elements for target in variables_of(element)]
    return ()
