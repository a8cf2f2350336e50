"""PTX of one architecture that represents machine code of another, for programs that have machine code for a GPU but only PTX of
higher architectures. A comment after ``.target`` marks it, as modules are identified by their text and assemblers must read it
too."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["first_mark", "marked", "retargeted"]

_TARGET = re.compile(r"^([ \t]*\.target[ \t]+)((?:sm|compute)_\w+)([^\n/]*)", re.M)
_MARK = re.compile(r"[ \t]*// compiled for (sm_\d+), stands for machine code of (sm_\w+)")
#: including its predicate, which would otherwise apply to the next instruction
_GRID_DEPENDENCE = re.compile(r"(?:@!?%\w+[ \t]+)?\bgriddepcontrol\.\w+[ \t]*;")
_WITH_DEPENDENT_GRIDS = 90


def retargeted(text: str, target: str, compiled_for: str, code: str) -> str:
    """PTX that was compiled for one architecture with another ``target``, marked as representing machine code of a third. Instructions
    that the target lacks are errors when they are read, as in all PTX. Only ``griddepcontrol`` is removed: sources exclude it by
    ``__CUDA_ARCH__``, and without it no dependent grid is launched early."""
    if int(re.sub(r"\D", "", target)) < _WITH_DEPENDENT_GRIDS:
        text = _GRID_DEPENDENCE.sub(lambda match: " " * len(match[0]), text)
    mark = f"  // compiled for {compiled_for}, stands for machine code of {code}"
    return _TARGET.sub(lambda match: f"{match[1]}{target}{match[3].rstrip()}{mark}", text, count=1)


def marked(text: str, offset: int) -> tuple[str, str] | None:
    """From the mark after a ``.target`` that ends at an offset of the text: the architecture for which the PTX was compiled, and that
    of the machine code that it represents."""
    match = _MARK.match(text, offset)
    return (match[1], match[2]) if match else None


def first_mark(texts: Iterable[str]) -> str:
    """The mark of the first text that has one, as written after ``.target``; empty if none has."""
    for text in texts:
        target = _TARGET.search(text)
        match = _MARK.match(text, target.end()) if target else None
        if match:
            return f"  {match[0].strip()}"
    return ""
