"""The common forms of statements, read with regular expressions into the raw nodes that the grammar would give.

``None`` means "not one of the common forms": the grammar decides then. A test holds both to the same answer on every
statement of the examples.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import re

from . import raw

__all__ = ["declaration", "directive", "initial", "operand"]

_NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]*)"
_COMPONENT = rf"{_NAME}(?:\.[A-Za-z_]\w*)?"
_INTEGER = r"(?:0[xX][0-9a-fA-F]{1,16}|0|[1-9]\d{0,18})"

_OPERAND = re.compile(
    rf"(?P<name>{_COMPONENT})(?:\s*\+\s*(?P<plus>-?{_INTEGER}))?$"
    rf"|\[\s*(?P<base>{_NAME})(?:\s*\+\s*(?P<offset>-?{_INTEGER}))?\s*\]$"
    rf"|(?P<integer>-?{_INTEGER})$"
    r"|0[fF](?P<single>[0-9a-fA-F]{8})$"
    r"|0[dD](?P<double>[0-9a-fA-F]{16})$"
    rf"|!\s*(?P<negated>{_NAME})$"
    rf"|(?P<first>{_NAME})\s*\|\s*(?P<second>{_NAME})$"
    rf"|\{{(?P<items>[^{{}}\[\]()]*)\}}$"
    rf"|\[\s*(?P<object>{_NAME})\s*,\s*(?P<place>\{{[^{{}}\[\]()]*\}})\s*\]$",
    re.ASCII,
)
_TOKEN = re.compile(
    r"\s*(?:(\.[A-Za-z_]\w*)|(0|[1-9]\d{0,18})(?![\w$.])|([A-Za-z][\w$]*|[_$%][\w$]*)|(\"_*\")|([(),;\[\]<>=]))",
    re.ASCII,
)
_SPECIFIERS = re.compile(r"(?:\s*\.[A-Za-z_]\w*(?:\s+(?:0|[1-9]\d{0,9})(?=\s))?)+", re.ASCII)
_SPECIFIER = re.compile(r"(\.\w+)|(\d+)")
_DECLARATOR = re.compile(
    rf"(?P<name>{_NAME})(?:\s*<\s*(?P<count>\d{{1,9}})\s*>)?(?P<dims>(?:\s*\[\s*(?:(?:0|[1-9]\d{{0,18}})\s*)?\])*)$",
    re.ASCII,
)
_DIMENSION = re.compile(r"\[\s*(\d*)\s*\]")


def _number(digits: str, start: int, end: int) -> raw.Number:
    negative = digits[0] == "-"
    plain = digits[1:] if negative else digits
    value = int(plain, 0)
    if value >> 63:  # an unsigned constant, and so is its negative
        return raw.Number((1 << 64) - value if negative else value, "u64", start, end)
    return raw.Number(-value if negative else value, "s64", start, end)


def operand(piece: str, start: int) -> raw.Node | None:
    """The operand that ``piece`` is, without blanks around it; ``start`` is its place in the statement."""
    found = _OPERAND.match(piece)
    if found is None:
        return None
    end = start + len(piece)
    form = found.lastgroup
    if form == "integer":
        return _number(piece, start, end)
    if form == "name":
        return raw.Name(piece, start, end)
    if form == "base" or form == "offset":
        base = raw.Name(found["base"], start + found.start("base"), start + found.end("base"))
        inner: raw.Node = base
        if form == "offset":
            inner = raw.Offset(base, int(found["offset"], 0), base.start, start + found.end("offset"))
        return raw.Brackets((inner,), start, end)
    if form == "single":
        return raw.Number(int(found["single"], 16), "f32", start, end)
    if form == "double":
        return raw.Number(int(found["double"], 16), "f64", start, end)
    if form == "items":
        return _braces(found["items"], start, end)
    if form == "place":
        item = raw.Name(found["object"], start + found.start("object"), start + found.end("object"))
        place = _braces(found["place"][1:-1], start + found.start("place"), start + found.end("place"))
        return None if place is None else raw.Brackets((item, place), start, end)
    if form == "plus":
        name = raw.Name(found["name"], start, start + found.end("name"))
        return raw.Offset(name, int(found["plus"], 0), start, end)
    if form == "negated":
        return raw.Not(raw.Name(found["negated"], start + found.start("negated"), end), start, end)
    first = raw.Name(found["first"], start, start + found.end("first"))
    return raw.Or(first, raw.Name(found["second"], start + found.start("second"), end), start, end)


def _braces(inside: str, start: int, end: int) -> raw.Braces | None:
    items: list[raw.Node] = []
    place = start + 1
    for piece in inside.split(","):
        stripped = piece.strip()
        item = operand(stripped, place + len(piece) - len(piece.lstrip()))
        if item is None:
            return None
        items.append(item)
        place += len(piece) + 1
    return raw.Braces(tuple(items), start, end)


def _parameter(piece: str, start: int, *, needs_name: bool) -> raw.Declaration | None:
    front = _SPECIFIERS.match(piece)
    if front is None:
        return None
    specifiers = []
    for found in _SPECIFIER.finditer(piece, 0, front.end()):
        begin, end = start + found.start(), start + found.end()
        word, number = found.groups()
        specifiers.append(raw.Word(word, begin, end) if word else raw.Number(int(number), "s64", begin, end))
    declarators = []
    place = front.end()
    for part in piece[front.end() :].split(","):
        declarator = _declarator(part, start + place)
        if declarator is None:
            return None
        declarators.append(declarator)
        place += len(part) + 1
    return raw.Declaration(tuple(specifiers), tuple(declarators)) if declarators or not needs_name else None


def _declarator(part: str, start: int) -> raw.Declarator | None:
    stripped = part.strip()
    found = _DECLARATOR.match(stripped)
    if found is None:
        return None
    start += len(part) - len(part.lstrip())
    name = raw.Name(found["name"], start + found.start("name"), start + found.end("name"))
    dims = tuple(int(size) if size else None for size in _DIMENSION.findall(found["dims"]))
    return raw.Declarator(name, int(found["count"]) if found["count"] else None, dims, None)


def initial(piece: str, start: int) -> raw.Node | None:
    """An initialiser without nesting: numbers and names."""
    stripped = piece.strip()
    return operand(stripped, start + piece.index(stripped)) if stripped else None


def declaration(code: str, start: int, end: int) -> raw.Declaration | None:
    """A variable or register declaration, ``end`` being past its semicolon."""
    piece = code[start : end - 1]
    front, equals, back = piece.partition("=")
    found = _parameter(front, 0, needs_name=True)
    if found is None or not equals:
        return found
    if len(found.declarators) != 1:
        return None
    value = initial(back, len(front) + 1)
    return (
        None if value is None else found._replace(declarators=(found.declarators[0]._replace(initial=value),))
    )


def directive(code: str, start: int, end: int) -> raw.Directive | None:
    """A function header or another directive: words, numbers, names, strings and parameter lists."""
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name] = []
    place = start
    while place < end:
        found = _TOKEN.match(code, place, end)
        if found is None:
            return raw.Directive(tuple(parts)) if not code[place:end].strip() else None
        kind = found.lastindex or 0
        token, begin, stop = found[kind], found.start(kind) - start, found.end(kind) - start
        place = found.end()
        if kind == 1:
            parts.append(raw.Word(token, begin, stop))
        elif kind == 2:
            parts.append(raw.Number(int(token), "s64", begin, stop))
        elif kind == 3:
            parts.append(raw.Name(token, begin, stop))
        elif kind == 4:
            parts.append(raw.String(begin, stop))
        elif token in ",;":
            parts.append(raw.Word(token, begin, stop))
        elif token == "(":
            closing = code.find(")", place, end)
            inside = code[place:closing]
            if closing < 0 or "(" in inside:
                return None
            items = []
            offset = place - start
            for piece in inside.split(",") if inside.strip() else ():
                item = _parameter(piece, offset, needs_name=False)
                if item is None:
                    return None
                items.append(item)
                offset += len(piece) + 1
            place = closing + 1
            parts.append(raw.Group(tuple(items), begin, place - start))
        else:
            return None
    return raw.Directive(tuple(parts))
