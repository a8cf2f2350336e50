"""Statements as written, with unresolved names. Positions are offsets from the beginning of the statement's text."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Apply",
    "Braces",
    "Brackets",
    "Declaration",
    "Declarator",
    "Directive",
    "Element",
    "Group",
    "Instruction",
    "Mask",
    "Minus",
    "Name",
    "Node",
    "Not",
    "Number",
    "Offset",
    "Or",
    "Parens",
    "String",
    "Word",
]


class Name(NamedTuple):
    """An identifier, with its component if one is written: ``%r1``, ``%tid.x``, ``$L__BB0_2``, ``_``."""

    text: str
    start: int
    end: int


class Number(NamedTuple):
    """A folded constant. ``kind`` is ``s64`` or ``u64`` for integers (``value`` in that type's range), ``f32`` or ``f64`` for
    floating point (``value`` is the bit pattern)."""

    value: int
    kind: str
    start: int
    end: int


class Offset(NamedTuple):
    """``base + amount``; the base is a name, an element or ``generic(name)``. ``amount`` is a constant of type ``kind``, as of a
    ``Number``."""

    base: Node
    amount: int
    kind: str
    start: int
    end: int

    @property
    def addend(self) -> int:
        """The amount as a signed integer: addition is modulo 2⁶⁴."""
        return self.amount - (self.amount >> 63 << 64) if self.amount > 0 else self.amount


class Element(NamedTuple):
    """``name[position]``: an element of an array."""

    base: Name
    position: int
    start: int
    end: int


class Apply(NamedTuple):
    """``generic(symbol)``."""

    function: Name
    argument: Node
    start: int
    end: int


class Mask(NamedTuple):
    """``0xFF00(symbol)``: some bytes of an address, in initialisers."""

    mask: int
    argument: Node
    start: int
    end: int


class Or(NamedTuple):
    """``a|b`` of names: a destination pair."""

    first: Node
    second: Node
    start: int
    end: int


class Not(NamedTuple):
    """``!p``."""

    operand: Node
    start: int
    end: int


class Minus(NamedTuple):
    """``-a`` of a name."""

    operand: Node
    start: int
    end: int


class Braces(NamedTuple):
    """``{a, b}``."""

    items: tuple[Node, ...]
    start: int
    end: int


class Member(NamedTuple):
    """``name = value``, in the initialiser of a texture, sampler or surface."""

    name: Name
    value: Node
    start: int
    end: int


class Brackets(NamedTuple):
    """``[a]``, ``[a, {b, c}]``."""

    items: tuple[Node, ...]
    start: int
    end: int


class Parens(NamedTuple):
    """``(a, b)`` of a call."""

    items: tuple[Node, ...]
    start: int
    end: int


Node = (
    Name | Number | Offset | Element | Apply | Mask | Or | Not | Minus | Braces | Member | Brackets | Parens
)


class Instruction(NamedTuple):
    guard: Name | None
    negated: bool
    opcode: str
    opcode_start: int
    opcode_end: int
    operands: tuple[Node, ...]


class Word(NamedTuple):
    """A dotted word: ``.reg``, ``.align``, ``.shared``."""

    text: str
    start: int
    end: int


class String(NamedTuple):
    """A string literal; its characters are in the original text between the positions."""

    start: int
    end: int


class Declarator(NamedTuple):
    """``name``, ``name<count>``, ``name[dims]``, with an initialiser. A dimension ``None`` is ``[]``."""

    name: Name
    repeat: int | None
    dims: tuple[int | None, ...]
    initial: Node | None


class Group(NamedTuple):
    """``( … )`` of a header or an attribute: parameters as declarations with at most one declarator."""

    items: tuple[Declaration, ...]
    start: int
    end: int


class Declaration(NamedTuple):
    """Specifiers (words and numbers), then the declarators."""

    specifiers: tuple[Word | Number | Group, ...]
    declarators: tuple[Declarator, ...]


class Directive(NamedTuple):
    """Any other directive, as its parts; punctuation is a ``Word`` of that character."""

    parts: tuple[Word | Number | Group | String | Name, ...]
