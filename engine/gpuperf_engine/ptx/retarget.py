"""PTX of one architecture that stands for machine code of another: where a program has machine code that a GPU runs, but PTX of higher
architectures alone. A comment behind ``.target`` says so, since a module is what its text says and assemblers must read it too."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["first_mark", "marked", "retargeted"]

_TARGET = re.compile(r"^([ \t]*\.target[ \t]+)((?:sm|compute)_\w+)([^\n/]*)", re.M)
_MARK = re.compile(r"[ \t]*// compiled for (sm_\d+), stands for machine code of (sm_\w+)")
#: with its predicate, which would else be that of what follows
_GRID_DEPENDENCE = re.compile(r"(?:@!?%\w+[ \t]+)?\bgriddepcontrol\.\w+[ \t]*;")
_WITH_DEPENDENT_GRIDS = 90


def retargeted(text: str, target: str, compiled_for: str, code: str) -> str:
    """PTX that was compiled for one architecture with another ``target``, marked as standing for machine code of a third. Instructions
    that the target has not are errors when they are read, as in all PTX. ``griddepcontrol`` alone is left out for it: sources leave it
    out by ``__CUDA_ARCH__``, and where it does not exist no grid is launched that it could let wait."""
    if int(re.sub(r"\D", "", target)) < _WITH_DEPENDENT_GRIDS:
        text = _GRID_DEPENDENCE.sub(lambda match: " " * len(match[0]), text)
    mark = f"  // compiled for {compiled_for}, stands for machine code of {code}"
    return _TARGET.sub(lambda match: f"{match[1]}{target}{match[3].rstrip()}{mark}", text, count=1)


def marked(text: str, offset: int) -> tuple[str, str] | None:
    """Of the mark behind a ``.target`` that ends at an offset of the text: the architecture that the PTX was compiled for, and that of
    the machine code that it stands for."""
    match = _MARK.match(text, offset)
    return (match[1], match[2]) if match else None


def first_mark(texts: Iterable[str]) -> str:
    """The mark of the first of some texts that has one, as it stands behind ``.target``; empty where none has."""
    for text in texts:
        target = _TARGET.search(text)
        match = _MARK.match(text, target.end()) if target else None
        if match:
            return f"  {match[0].strip()}"
    return ""
