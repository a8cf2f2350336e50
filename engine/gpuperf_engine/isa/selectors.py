"""Parts of operands: ``r2.b0``, ``r1.h10``, ``-r3`` (manual: "Video Instructions").

Syntax lines mark operands that accept them: ``a{.asel}`` and ``{-}a``. They are not part of the opcode but decide what the instruction
computes, so they are bound like modifiers, under the name of the slot (``asel``) and under ``a_negated``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .model import Form, Modifier

__all__ = ["SELECTORS", "SUFFIX", "Selector", "bound", "select"]


@dataclass(frozen=True, slots=True)
class Selector:
    """A kind of selector: ``accepts`` matches it without the dot, ``text`` describes it in the words of the manual, ``examples``
    are some of its values."""

    accepts: re.Pattern[str]
    text: str
    examples: tuple[str, ...]


#: A register with a suffix that looks like a selector.
SUFFIX = re.compile(r"(?P<register>.+)\.(?P<selector>[bh][0-7]{1,4})$", re.ASCII)

SELECTORS: Mapping[str, Selector] = {
    "part": Selector(
        re.compile("b[0-3]|h[01]"), ".b0 .b1 .b2 .b3 .h0 .h1", ("b0", "b1", "b2", "b3", "h0", "h1")
    ),
    "halves": Selector(
        re.compile("h[0-3][0-3]"), ".hxy, x and y from 0 to 3", ("h10", "h32", "h01", "h33", "h20")
    ),
    "bytes": Selector(
        re.compile("b[0-7]{4}"), ".bxyzw, x to w from 0 to 7", ("b3210", "b7654", "b0123", "b7777", "b0516")
    ),
    "half_mask": Selector(re.compile("h0|h1|h10"), ".h0 .h1 .h10", ("h0", "h1", "h10")),
    "byte_mask": Selector(
        re.compile("b(?!$)3?2?1?0?"),
        ".b followed by some of 3 2 1 0, in this order",
        ("b0", "b1", "b10", "b2", "b20", "b21", "b210", "b3", "b30", "b31", "b310", "b32", "b320", "b321", "b3210"),
    ),
}  # fmt: skip

_MADE: dict[tuple[Form, tuple[tuple[str, Modifier], ...]], Form] = {}


def select(form: Form, chosen: Mapping[str, Modifier]) -> Form:
    """The form with the selectors of its operands bound; equal arguments return one object, as plans are cached by form."""
    if not chosen:
        return form
    key = form, tuple(sorted(chosen.items()))
    selected = _MADE.get(key)
    if selected is None:
        selected = _MADE[key] = replace(form, modifiers={**form.modifiers, **chosen})
    return selected


def bound(form: Form, name: str) -> tuple[bool, str]:
    """Whether the operand of that name is negated, and its selector or ``""``."""
    selector = next((slot.selector for slot in form.operands if slot.name == name), "")
    return bool(form.modifiers.get(f"{name}_negated")), str(form.modifiers.get(selector) or "")
