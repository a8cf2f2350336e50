"""Runtime functions for the memory accesses of a whole warp, as LLVM IR.

Each takes the lanes' addresses as one vector and tries the cheapest path first: one (masked) vector access for consecutive lanes, half
warps of consecutive or equal addresses, a gather or scatter on hosts with AVX-512, and last the loops of ``memory``. Every path
checks the access. An invalid access sets ``Context.FAULTED``, which the generated code tests at the end of the block, and loads
zeros. If ``Context.COUNTING`` is set, the functions count sectors and wavefronts.

Names are ``<space>_<load|store>_<form>``, and ``copied_<bytes>`` (``copies``); ``watched`` is shared memory to which the program
stores parts of words.
"""

from __future__ import annotations

from .copies import COPIED, copied_function
from .global_memory import global_access
from .local_memory import local_access
from .races import race_declarations, races_function
from .shared_memory import shared_access
from .text import Form, declarations

__all__ = ["access_functions", "access_group", "access_names", "is_access"]

_SPACES = {
    "global": global_access,
    "shared": shared_access,
    "watched": shared_access,
    "local": local_access,
}


def is_access(name: str) -> bool:
    """Whether this module defines the function of that name."""
    return name.startswith((COPIED, *(f"{space}_" for space in _SPACES)))


def access_group(name: str) -> str:
    """The group of a function."""
    if name.startswith(COPIED):
        return name
    space, _, form = name.split("_")
    return f"{space}_{form}"


def access_names(group: str) -> tuple[str, ...]:
    """Return the names of the functions of a group such as ``global_4x2``."""
    if group.startswith(COPIED):
        return (group,)
    space, form = group.split("_")
    return tuple(f"{space}_{what}_{form}" for what in ("load", "store"))


def access_functions(group: str, wide: bool) -> str:
    """Return load and store functions of one space and form. ``wide``: the host has AVX-512."""
    if group.startswith(COPIED):
        return copied_function(group)
    space, name = group.split("_")
    form = Form(*(int(part) for part in name.split("x")))
    write = _SPACES[space]
    texts = [write(f"{space}_{what}_{name}", form, wide, what == "store") for what in ("load", "store")]
    head = declarations(form)
    if space in ("shared", "watched"):
        texts += [races_function(form, wide, stores) for stores in (False, True)]
        head = "\n".join(dict.fromkeys((head + race_declarations(form)).splitlines())) + "\n"
    return head + "\n".join(texts)
