"""Names of objects and parameters, as in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..flow.addresses import Base
from ..ptx.module import Function
from ..simt.launch import LaunchPlan

__all__ = ["object_names", "parameter_name", "plain_name"]

_STATIC = re.compile(r"(?=(?:E|^_ZL)(\d+)([A-Za-z_]\w*)$)")


def object_names(bases: Iterable[Base], plans: Sequence[LaunchPlan]) -> list[str]:
    """The objects that addresses with these bases lie in, over some launches: words of the parameter buffer in order, then
    variables by name; empty if none is known."""
    names = dict.fromkeys(name for base in sorted(bases, key=_order_of) for name in _names(base, plans))
    return list(names)


def _order_of(base: Base) -> tuple[int, int, str]:
    if isinstance(base, int):
        return 0, base, ""
    return (2, 0, "") if base is None else (1, 0, base.name)


def _names(base: Base, plans: Sequence[LaunchPlan]) -> Iterator[str]:
    if isinstance(base, int):
        for plan in plans:
            address = int.from_bytes(plan.parameters[base : base + 8], "little")
            for (start, size), name in zip(plan.pointed_at, plan.names):
                if start <= address < start + size:
                    yield name
    elif base is not None:
        yield plain_name(base.name)


def parameter_name(kernel: Function, index: int) -> str:
    """The name of a parameter as written, or ``saxpy[0]`` if the compiler only numbered it."""
    plain = kernel.params[index].name
    numbered = plain.startswith(f"{kernel.name}_param_") or plain == f"{kernel.name}_{index}"
    return f"{kernel.name}[{index}]" if numbered or not plain else plain


def plain_name(mangled: str) -> str:
    """``tile`` for ``_ZZ6kernelPfE4tile``, a variable of a function, and for ``_ZL4tile``, one of a file (Itanium C++ ABI)."""
    for match in _STATIC.finditer(mangled) if mangled.startswith("_Z") else ():
        size, name = int(match[1]), match[2]
        if size <= len(name) and re.fullmatch(r"(_\d+|__\d+_)?", name[size:]):
            return name[:size]
    return mangled
