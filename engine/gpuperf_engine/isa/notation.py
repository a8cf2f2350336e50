"""The notation of syntax lines of opcodes and their operands.

The syntax line is the manual's: ``add{.rnd}{.ftz}{.sat}.f32 d, a, b``. Dotted names with a value set (a keyword argument
of ``instruction``; ``::`` becomes ``_``) are slots, all others are literals; braces enclose optional parts. An
operand is ``name``, of the instruction's type, with these additions:

=============== =====================================================================================================
``a:u32``       another type; a slot's name means the type bound there; ``wide`` doubles the type's width, ``half``
                halves it, ``raw`` is the ``b`` type of its width, ``element`` the type of one lane of a packed type
``b:imm``       an integer constant (type ``u32``)
``t:label``     a label; ``list`` a table of labels; ``f:call`` everything of a call
``d*vec``       a ``{…}`` operand with as many elements as the slot says (``v2`` → 2; scalar if absent); ``a:b32*2`` two,
                ``*num*2`` twice as many
``d*num/4``     a part of what the slot says, rounded up; ``d*num-1`` one less
``d*n/2``       as many as the ``n`` of the slot ``shape``, divided by two (``m64n16k8`` → 8)
``d=``          a destination that is also read
``[a]``         an address; ``[a]:slot`` in the state space that the slot says, or of that name; ``[a, c*2]`` with more
                inside the brackets; ``[a]:image`` a texture, sampler or surface
``d|p:pred``    a pair; ``d{|p:pred}``: its second part is optional
``{!}c:pred``   a predicate that may be negated
``{-}a``        a number that may be negated
``a{.asel}``    an optional selector of a part, of the kind that the row assigns to ``asel``
``a:u32%``      a register, no constant
``a:b32+``      registers wider than the type are allowed (manual: "Operand Size Exceeding Instruction-Type Size")
``{, b}``       optional: one form for each choice
``c:b64?slot``  present exactly if that modifier is
``_``           a literal ``_``: the result is discarded
=============== =====================================================================================================

The operand named ``d``, ``f`` or ``p`` at the start, the other part of its pair, and one named ``result`` are destinations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["Item", "Operand", "bind", "is_type", "names", "parse_operands", "parse_pattern"]


@dataclass(frozen=True, slots=True)
class Item:
    """One element of an opcode pattern: a literal, a slot (``values``), or an optional group (``group``)."""

    name: str
    values: tuple[str, ...] = ()
    group: tuple[Item, ...] = ()
    #: part of the name: precedes all modifiers, in the order of the pattern
    first: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a syntax line; types and vector length are names that are not bound yet."""

    name: str
    role: str
    type: str
    vector: str
    pair: bool
    wider: bool
    when: str
    register: bool = False
    negatable: bool = False
    selector: str = ""
    updated: bool = False
    inside: bool = False


_DESTINATIONS = frozenset("dpf")
_OPERAND = re.compile(
    r"(?P<negatable>\{[!-]\})?(?P<address>\[)?(?P<name>\w+)\]?(?:\{\.(?P<selector>\w+)\})?"
    r"(?::(?P<type>\w+))?(?P<register>%)?(?P<wider>\+)?(?:\*(?P<vector>\w+(?:/\d+|[*-]\d+)?))?(?P<updated>=)?(?:\?(?P<when>[\w:]+))?(?P<close>\])?$"
)


def parse_pattern(
    text: str, sets: Mapping[str, tuple[str, ...]], syntax: str, leads: str = ""
) -> tuple[Item, ...]:
    """The pattern of an opcode after its name. ``leads`` is the last slot that belongs to the name;
    without it, the name continues with all words that no other instruction has (``wmma.load.a``)."""
    items = list(_items(text, sets, syntax))
    last = next((index for index, item in enumerate(items) if leads and leads in names((item,))), None)
    if last is None:
        loose = (index for index, item in enumerate(items) if not _is_name(item))
        last = next(loose, len(items)) - 1
    return tuple(_leading(item) if index <= last else item for index, item in enumerate(items))


#: Modifiers of many instructions, which opcodes may have in any order.
_MODIFIERS = frozenset(
    [
        *(
            "sync",
            "aligned",
            "noComplete",
            "any",
            "all",
            "cc",
            "sat",
            "relu",
            "approx",
            "rn",
            "rs",
            "rna",
            "uni",
            "L1",
            "L2",
        ),
        *("volatile", "relaxed", "acquire", "release", "mmio", "global", "shared", "const", "param", "local"),
    ]
)


def _is_name(item: Item) -> bool:
    return not item.values and not item.group and item.name not in _MODIFIERS and not is_type(item.name)


def _leading(item: Item) -> Item:
    return replace(item, first=True, group=tuple(_leading(part) for part in item.group))


def _items(text: str, sets: Mapping[str, tuple[str, ...]], syntax: str) -> tuple[Item, ...]:
    items: list[Item] = []
    position = 0
    while position < len(text):
        if text[position] == "{":
            end = text.index("}", position)
            items.append(Item("", group=_items(text[position + 1 : end], sets, syntax)))
            position = end + 1
            continue
        match = re.compile(r"\.([\w:]+)").match(text, position)
        if match is None:
            raise ValueError(f"{syntax!r}: cannot read {text[position:]!r}")
        name = match.group(1)
        slot = name.replace("::", "_")
        items.append(Item(slot, sets[slot]) if slot in sets else Item(name))
        position = match.end()
    return tuple(items)


def names(pattern: tuple[Item, ...]) -> Iterator[str]:
    """The names of all literals and slots, in order."""
    return (item.name for item in flatten(pattern))


def parse_operands(text: str, syntax: str) -> Iterator[tuple[Operand, ...]]:
    """All operand lists of a syntax line; each ``{…}`` that encloses operands doubles their number."""
    opening = re.search(r"\{(?![!.-])", text)
    if opening:
        depth, end = 1, opening.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield from parse_operands(
            text[: opening.start()] + text[opening.end() : end - 1] + text[end:], syntax
        )
        yield from parse_operands(text[: opening.start()] + text[end:], syntax)
        return
    operands: list[Operand] = []
    inside = False
    for position, written in enumerate(filter(None, (part.strip() for part in text.split(",")))):
        first, *others = written.split("|")
        for pair, part in enumerate((first, *others)):
            match = _OPERAND.match(part)
            if match is None:
                raise ValueError(f"{syntax!r}: cannot read operand {part!r}")
            type_name = match["type"] or "type"
            role = "source"
            if match["address"]:
                role = "address"
            elif match["name"] == "_":
                role = "sink"
            elif type_name in ("label", "list", "call"):
                role = "call" if type_name == "call" else "label"
            elif (position == 0 and re.split(r"\W", first)[0] in _DESTINATIONS) or match["name"] == "result":
                role = "destination"
            elif match["negatable"] == "{!}":
                role = "predicate_source"
            wider = match["wider"] is not None
            operands.append(
                Operand(
                    match["name"],
                    role,
                    type_name,
                    match["vector"] or "",
                    bool(pair),
                    wider,
                    match["when"] or "",
                    match["register"] is not None,
                    match["negatable"] == "{-}",
                    match["selector"] or "",
                    match["updated"] is not None,
                    inside and not match["address"],
                )
            )
        inside = (written.startswith("[") and "]" not in written) or (inside and not written.endswith("]"))
    yield tuple(operands)


_TYPE = re.compile(r"(?:[sub]|f|bf|tf)\d+(?:x\d+)?|u?e\dm\d(?:p\d)?(?:x\d)?|s\df\d(?:x\d)?")
_ORDERED = {
    "space": "global shared shared::cta shared::cluster local const param",
    "layout": "row col",
    "priority": "L2::evict_first L2::evict_last L2::evict_normal L2::evict_unchanged",
    "operation": "and or xor popc",
    "format": "b8x16 b6x16_p32 b4x16_p64",
}
_KINDS = {word: kind for kind, words in _ORDERED.items() for word in words.split()}


def is_type(word: str) -> bool:
    """Whether a modifier is a type, those of matrix elements included (``u4``)."""
    return _TYPE.fullmatch(word) is not None


def _kind(token: str) -> str:
    """The kind of a modifier of which an opcode may have several, distinguished by their order."""
    return _KINDS.get(token) or ("type" if is_type(token) else "")


def bind(items: tuple[Item, ...], tokens: Sequence[str]) -> dict[str, str | bool] | None:
    """The modifiers bound by the tokens of an opcode, or ``None`` if they do not match this pattern.

    Like ptxas, it accepts tokens in any order, except that those of the name come first, and that types, state spaces, layouts,
    priorities and operations each keep the pattern's order.
    """
    if not items:
        return None if tokens else {}
    item, rest = items[0], items[1:]
    if item.group:
        present = bind(item.group + rest, tokens)
        return present if present is not None else bind(rest, tokens)
    passed = set()
    for position, token in enumerate(tokens[:1] if item.first else tokens):
        if kind := _kind(token):
            if kind in passed:
                continue
            passed.add(kind)
        if (token in item.values) if item.values else (token == item.name):
            bound = bind(rest, [*tokens[:position], *tokens[position + 1 :]])
            if bound is not None:
                return {item.name: token if item.values else True, **bound}
    return None


def flatten(items: tuple[Item, ...]) -> Iterator[Item]:
    """The literals and slots of a pattern, in order, braces removed."""
    for item in items:
        if item.group:
            yield from flatten(item.group)
        else:
            yield item
