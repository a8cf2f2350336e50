"""The common forms of statements, read with regular expressions into the same raw nodes as by the grammar.

``None`` means "not one of the common forms": then the grammar parses the statement. A test compares both on every statement of the
examples.
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


def _offset(base: raw.Name, digits: str, end: int) -> raw.Offset:
    amount = _number(digits, base.start, end)
    return raw.Offset(base, amount.value, amount.kind, base.start, end)


def operand(piece: str, start: int) -> raw.Node | None:
    """The operand in ``piece``, without surrounding blanks; ``start`` is its offset in the statement."""
    match = _OPERAND.match(piece)
    if match is None:
        return None
    end = start + len(piece)
    form = match.lastgroup
    if form == "integer":
        return _number(piece, start, end)
    if form == "name":
        return raw.Name(piece, start, end)
    if form == "base" or form == "offset":
        base = raw.Name(match["base"], start + match.start("base"), start + match.end("base"))
        inner: raw.Node = base
        if form == "offset":
            inner = _offset(base, match["offset"], start + match.end("offset"))
        return raw.Brackets((inner,), start, end)
    if form == "single":
        return raw.Number(int(match["single"], 16), "f32", start, end)
    if form == "double":
        return raw.Number(int(match["double"], 16), "f64", start, end)
    if form == "items":
        return _braces(match["items"], start, end)
    if form == "place":
        item = raw.Name(match["object"], start + match.start("object"), start + match.end("object"))
        coordinates = _braces(match["place"][1:-1], start + match.start("place"), start + match.end("place"))
        return None if coordinates is None else raw.Brackets((item, coordinates), start, end)
    if form == "plus":
        name = raw.Name(match["name"], start, start + match.end("name"))
        return _offset(name, match["plus"], end)
    if form == "negated":
        return raw.Not(raw.Name(match["negated"], start + match.start("negated"), end), start, end)
    first = raw.Name(match["first"], start, start + match.end("first"))
    return raw.Or(first, raw.Name(match["second"], start + match.start("second"), end), start, end)


def _braces(inside: str, start: int, end: int) -> raw.Braces | None:
    items: list[raw.Node] = []
    offset = start + 1
    for piece in inside.split(","):
        stripped = piece.strip()
        item = operand(stripped, offset + len(piece) - len(piece.lstrip()))
        if item is None:
            return None
        items.append(item)
        offset += len(piece) + 1
    return raw.Braces(tuple(items), start, end)


def _parameter(piece: str, start: int, *, needs_name: bool) -> raw.Declaration | None:
    front = _SPECIFIERS.match(piece)
    if front is None:
        return None
    specifiers = []
    for match in _SPECIFIER.finditer(piece, 0, front.end()):
        begin, end = start + match.start(), start + match.end()
        word, number = match.groups()
        specifiers.append(raw.Word(word, begin, end) if word else raw.Number(int(number), "s64", begin, end))
    declarators = []
    offset = front.end()
    for part in piece[front.end() :].split(","):
        declarator = _declarator(part, start + offset)
        if declarator is None:
            return None
        declarators.append(declarator)
        offset += len(part) + 1
    return raw.Declaration(tuple(specifiers), tuple(declarators)) if declarators or not needs_name else None


def _declarator(part: str, start: int) -> raw.Declarator | None:
    stripped = part.strip()
    match = _DECLARATOR.match(stripped)
    if match is None:
        return None
    start += len(part) - len(part.lstrip())
    name = raw.Name(match["name"], start + match.start("name"), start + match.end("name"))
    dims = tuple(int(size) if size else None for size in _DIMENSION.findall(match["dims"]))
    return raw.Declarator(name, int(match["count"]) if match["count"] else None, dims, None)


def initial(piece: str, start: int) -> raw.Node | None:
    """An initialiser without nesting: numbers and names."""
    stripped = piece.strip()
    return operand(stripped, start + piece.index(stripped)) if stripped else None


def declaration(code: str, start: int, end: int) -> raw.Declaration | None:
    """A variable or register declaration, ``end`` being past its semicolon."""
    piece = code[start : end - 1]
    front, equals, back = piece.partition("=")
    declared = _parameter(front, 0, needs_name=True)
    if declared is None or not equals:
        return declared
    if len(declared.declarators) != 1:
        return None
    value = initial(back, len(front) + 1)
    return (
        None
        if value is None
        else declared._replace(declarators=(declared.declarators[0]._replace(initial=value),))
    )


def directive(code: str, start: int, end: int) -> raw.Directive | None:
    """A function header or another directive: words, numbers, names, strings and parameter lists."""
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name] = []
    position = start
    while position < end:
        match = _TOKEN.match(code, position, end)
        if match is None:
            return raw.Directive(tuple(parts)) if not code[position:end].strip() else None
        kind = match.lastindex or 0
        token, begin, stop = match[kind], match.start(kind) - start, match.end(kind) - start
        position = match.end()
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
            closing = code.find(")", position, end)
            inside = code[position:closing]
            if closing < 0 or "(" in inside:
                return None
            items = []
            offset = position - start
            for piece in inside.split(",") if inside.strip() else ():
                item = _parameter(piece, offset, needs_name=False)
                if item is None:
                    return None
                items.append(item)
                offset += len(piece) + 1
            position = closing + 1
            parts.append(raw.Group(tuple(items), begin, position - start))
        else:
            return None
    return raw.Directive(tuple(parts))
