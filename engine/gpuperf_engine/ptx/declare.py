"""Resolution of declarations: variables with space, type, alignment, size and initial bytes (PTX manual, "State Spaces, Types, and
Variables").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from typing import Protocol

from ..errors import PtxError, nearest
from ..isa.types import SCALAR_TYPES, ScalarType, scalar_type
from ..source import Span
from . import raw, shapes
from .initial import Image
from .module import Function
from .opaque import OPAQUE, members_of
from .syntax import Variable
from .text import Text, quoted

__all__ = [
    "COMPONENTS",
    "Grammar",
    "Lookup",
    "Specified",
    "declaration_of",
    "parameters",
    "specify",
    "variables",
]

#: Resolves a name in an initialiser, or returns ``None``.
Lookup = Callable[[str], "Variable | Function | None"]

SPACES = frozenset([".reg", ".sreg", ".const", ".global", ".local", ".param", ".shared", ".tex"])
LINKAGE = frozenset([".extern", ".visible", ".weak", ".common"])
#: The registers of a vector, ``v.x`` and so on.
COMPONENTS = ("x", "y", "z", "w")
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_POINTER_SPACES = frozenset([".const", ".global", ".local", ".shared"])
_LARGEST = 1 << 48
_LARGEST_INITIALISED = 1 << 28
_LARGEST_ALIGNMENT = 1 << 20
#: the words of a declaration, for hints
_SPECIFIERS = (*SPACES, *LINKAGE, *(f".{known}" for known in SCALAR_TYPES), ".align", ".ptr", ".attribute")


class Grammar(Protocol):
    """The parser of statements that ``shapes`` does not recognise."""

    def instruction(self, text: Text, start: int, end: int) -> raw.Instruction: ...

    def declaration(self, text: Text, start: int, end: int) -> raw.Declaration: ...

    def directive(self, text: Text, start: int, end: int) -> raw.Directive: ...


class Specified:
    """The specifiers before a declaration's names."""

    __slots__ = (
        "align",
        "attributes",
        "linkage",
        "pointer",
        "pointer_align",
        "pointer_space",
        "space",
        "type",
        "vector",
    )

    def __init__(self) -> None:
        self.space = ""
        self.type: ScalarType | None = None
        self.vector = 1
        self.align: int | None = None
        self.linkage = ""
        self.attributes: tuple[str, ...] = ()
        self.pointer = False
        self.pointer_space: str | None = None
        self.pointer_align: int | None = None


def declaration_of(text: Text, start: int, end: int, grammar: Grammar) -> raw.Declaration:
    """The raw declaration between two offsets, by its common form or by the grammar."""
    return shapes.declaration(text.code, start, end) or grammar.declaration(text, start, end)


def _check_alignment(alignment: int, span: Span) -> None:
    if alignment < 1 or alignment & (alignment - 1):
        raise PtxError(f"alignment {alignment} is not a power of two", span=span)
    if alignment > _LARGEST_ALIGNMENT:
        raise PtxError(f"alignment {alignment:,}", span=span, hint=f"it may be up to {_LARGEST_ALIGNMENT:,}")


def specify(text: Text, base: int, specifiers: Iterable[raw.Word | raw.Number | raw.Group]) -> Specified:
    """Space, type, vector, alignment, linkage and attributes. Raises ``PtxError`` for words that are none of these."""
    result = Specified()
    words = list(specifiers)
    position = 0

    def here() -> Span:
        return text.span(base + word.start, base + word.end)

    while position < len(words):
        word = words[position]
        position += 1
        if not isinstance(word, raw.Word):
            raise PtxError("unexpected number or list", span=here())
        name = word.text
        following = words[position] if position < len(words) else None
        if name == ".ptr":
            result.pointer = True
        elif result.pointer and name in _POINTER_SPACES and result.pointer_space is None:
            result.pointer_space = name[1:]
        elif name in SPACES or name.split("::")[0] in SPACES:
            if result.space:
                raise PtxError(f"two state spaces, .{result.space} and {name}", span=here())
            result.space = name[1:]
        elif name == ".align":
            if not isinstance(following, raw.Number):
                raise PtxError("'.align' needs a number of bytes", span=here())
            position += 1
            _check_alignment(following.value, here())
            if result.pointer:
                result.pointer_align = following.value
            else:
                result.align = following.value
        elif name in _VECTORS:
            result.vector = _VECTORS[name]
        elif name in LINKAGE:
            result.linkage = name[1:]
        elif name == ".attribute":
            if not isinstance(following, raw.Group):
                raise PtxError("'.attribute' needs a list in parentheses", span=here())
            position += 1
            start, end = base + following.start + 1, base + following.end - 1
            result.attributes += tuple(part.strip() for part in _outer_commas(text.code[start:end]))
        elif name[1:] in SCALAR_TYPES or name in OPAQUE:
            if result.type is not None:
                raise PtxError(f"two types, .{result.type} and {name}", span=here())
            result.type = scalar_type("b64" if name in OPAQUE else name[1:])
            if name in OPAQUE:
                result.attributes += (name,)
        else:
            raise PtxError(
                f"{quoted(name)} is not allowed in a declaration",
                span=here(),
                hint=nearest(name, _SPECIFIERS, noun="word"),
            )
    return result


def _outer_commas(inside: str) -> list[str]:
    depth, parts = 0, [""]
    for character in inside:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def variables(
    text: Text, base: int, raw_declaration: raw.Declaration, lookup: Lookup, owner: Function | None
) -> list[Variable]:
    """The variables of one declaration outside ``.reg``. Raises ``PtxError``."""
    specified = specify(text, base, raw_declaration.specifiers)
    return [
        _variable(text, base, specified, declarator, lookup, owner)
        for declarator in raw_declaration.declarators
    ]


def _variable(
    text: Text,
    base: int,
    specified: Specified,
    declarator: raw.Declarator,
    lookup: Lookup,
    owner: Function | None,
) -> Variable:
    name = declarator.name.text
    span = text.span(base + declarator.name.start, base + declarator.name.end)
    kind, space = _type_and_space(specified, name, span)
    if declarator.repeat is not None:
        raise PtxError(f"{quoted(name)}: '<{declarator.repeat}>' is for registers only", span=span)
    dims = declarator.dims
    _check_dims(dims, name, span)
    element = kind.bytes * specified.vector
    image = None
    members: tuple[tuple[str, str], ...] = ()
    opaque = next((word for word in specified.attributes if word in OPAQUE), None)
    if declarator.initial is not None and opaque is not None:
        members = members_of(text, base, opaque, declarator.initial)
    elif declarator.initial is not None:
        _check_initialised(space, element, dims, name, span)
        image = Image(text, base, kind, specified.vector, dims, lookup)
        dims = image.fill(declarator.initial)
    size = element * prod(0 if size is None else size for size in dims)
    if size > _LARGEST:
        raise PtxError(f"{quoted(name)} has {size} bytes, no memory is that large", span=span)
    return Variable(
        name=name,
        space=space.split("::")[0],
        type=kind,
        align=specified.align or element,
        dims=dims,
        size=size,
        span=span,
        vector=specified.vector,
        linkage=specified.linkage,
        initial=None if image is None else bytes(image.data),
        relocations=() if image is None else tuple(image.relocations),
        pointer_space=(specified.pointer_space or "generic") if specified.pointer else None,
        pointer_align=specified.pointer_align,
        attributes=specified.attributes,
        members=members,
        function=owner,
    )


def _type_and_space(specified: Specified, name: str, span: Span) -> tuple[ScalarType, str]:
    """Type and space of a variable. Raises ``PtxError`` if one is missing or they are incompatible."""
    kind, space = specified.type, specified.space
    if kind is None:
        raise PtxError(f"variable {quoted(name)} has no type", span=span, hint="write one, e.g. .b8 or .u32")
    if any(word in OPAQUE for word in specified.attributes):
        space = "tex"
    if not space:
        raise PtxError(
            f"variable {quoted(name)} has no state space",
            span=span,
            hint="write one, e.g. .global or .shared",
        )
    if kind.is_predicate and space != "reg":
        raise PtxError(
            f"{quoted(name)}: predicates live in registers only", span=span, hint="use .b8 or .u8 in memory"
        )
    return kind, space


def _check_dims(dims: tuple[int | None, ...], name: str, span: Span) -> None:
    if any(size is None for size in dims[1:]):
        raise PtxError(f"array {quoted(name)}: only the first dimension may be left open", span=span)
    if any(size is not None and size < 0 for size in dims):
        raise PtxError(f"array {quoted(name)} has a negative dimension", span=span)


def _check_initialised(space: str, element: int, dims: tuple[int | None, ...], name: str, span: Span) -> None:
    """Raises ``PtxError`` for a variable that cannot have an initialiser; ``element``: bytes of an element."""
    if space not in ("global", "const"):
        raise PtxError(f"{quoted(name)}: only .global and .const variables have initialisers", span=span)
    if prod(size for size in dims if size is not None) * element > _LARGEST_INITIALISED:
        raise PtxError(f"{quoted(name)}: an initialised array may have at most 2**28 bytes", span=span)


def parameters(
    text: Text, base: int, group: raw.Group | None, owner: Function | None
) -> tuple[Variable, ...]:
    """The parameters of a header or prototype with their byte offsets in the parameter buffer; registers count as such."""
    result: list[Variable] = []
    names: set[str] = set()
    offset = 0
    for position, item in enumerate(group.items if group is not None else ()):
        nameless = not item.declarators or item.declarators[0].name.text == "_"
        if not item.declarators:
            first, last = item.specifiers[0], item.specifiers[-1]
            item = item._replace(
                declarators=(raw.Declarator(raw.Name("_", first.start, last.end), None, (), None),)
            )
        (parameter,) = variables(text, base, item, lambda _: None, owner)
        if parameter.space not in ("param", "reg", "tex"):
            raise PtxError(
                f"parameter {quoted(parameter.name)} is in .{parameter.space}, parameters are in .param",
                span=parameter.span,
            )
        if nameless:
            parameter.name = f"_{position}"
        elif parameter.name in names:
            raise PtxError(f"parameter {quoted(parameter.name)} is declared twice", span=parameter.span)
        names.add(parameter.name)
        for formal in _components(parameter):
            formal.offset = offset = -(-offset // formal.align) * formal.align
            offset += formal.size
            result.append(formal)
    return tuple(result)


def _components(formal: Variable) -> list[Variable]:
    """A parameter that is a vector of registers is one parameter for each of them, as ``.reg .v2`` is two registers."""
    if formal.space != "reg" or formal.vector == 1:
        return [formal]
    size = formal.type.bytes
    names = (f"{formal.name}.{component}" for component in COMPONENTS[: formal.vector])
    return [replace(formal, name=name, vector=1, size=size, align=size) for name in names]
