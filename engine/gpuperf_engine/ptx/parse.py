"""PTX text to ``Module``; the only module that uses lark.

The grammar (``grammar.lark``) defines every statement. ``shapes`` reads the common forms with regular expressions into the same raw
nodes, some fifty times faster, and all other statements, including invalid ones, are parsed here, so that all syntax errors come from
one place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .._data import text_of
from ..errors import PtxError
from ..isa.special import WARP_SZ
from . import constants, raw
from .module import Module
from .reader import read_module
from .text import Text, shorten

if TYPE_CHECKING:
    from lark import Lark

__all__ = ["parse"]

#: the children of a rule: tokens, and results of the methods of ``_Build`` for nested rules
Parts: TypeAlias = Sequence[Any]

#: Names of tokens in messages.
_SPOKEN = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'", "COMMA": "','",
    "SEMICOLON": "';'", "COLON": "':'", "AT": "'@'", "MORE": "'>'", "LESS": "'<'",
    "NAME": "a name",
    "WORD": "a dotted word",
    "INTEGER": "an integer",
    "FLOAT": "a number",
    "FLOAT_BITS": "a number",
    "DOUBLE_BITS": "a number",
    "STRING": "a string",
    "$END": "the end of the statement",
}  # fmt: skip
_OPERATORS = frozenset(
    [
        *(
            "LOGICAL_OR",
            "LOGICAL_AND",
            "OR",
            "XOR",
            "AND",
            "INVERT",
            "QMARK",
            "PLUS",
            "MINUS",
            "TIMES",
            "DIVIDE",
            "REMAINDER",
        ),
        *("EQUAL", "UNEQUAL", "LESS", "MORE", "LESS_EQUAL", "MORE_EQUAL", "LEFT", "RIGHT"),
    ]
)


def parse(text: str | bytes, path: str = "<string>") -> Module:
    """The module that a PTX text describes.

    Module scope is read at once; the body of a function on first use (``module["kernel"]``, ``module.function("name")``), and
    errors in it are raised then. ``path`` is used in positions only. Bytes are decoded as UTF-8, otherwise as Latin-1; the
    terminating zero of a C string, as from NVRTC, is not part of the text.

    Raises ``PtxSyntaxError`` if the text is not PTX and ``PtxError`` if it is invalid PTX.
    """
    if not isinstance(text, (str, bytes, bytearray)):
        raise PtxError(
            f"a {type(text).__name__} is not PTX text", hint="give a str or bytes, e.g. Path(…).read_bytes()"
        )
    decoded = text if isinstance(text, str) else _decode(text)
    return read_module(Text(decoded.removeprefix("\ufeff").rstrip("\0"), path), _Grammar())


def _decode(data: bytes | bytearray) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class _Grammar:
    """The three start symbols of the grammar, as functions from a piece of a text to its raw node."""

    def instruction(self, text: Text, start: int, end: int) -> raw.Instruction:
        node: raw.Instruction = _run("instruction", text, start, end)
        return node

    def declaration(self, text: Text, start: int, end: int) -> raw.Declaration:
        node: raw.Declaration = _run("declaration", text, start, end)
        return node

    def directive(self, text: Text, start: int, end: int) -> raw.Directive:
        node: raw.Directive = _run("directive", text, start, end)
        return node


#: Maximum lengths of statements in characters, beyond those of any written or generated PTX.
_LONGEST = {"instruction": 1 << 15, "declaration": 1 << 20, "directive": 1 << 17}
_MOST_COUNTED = 1 << 14
_lock = threading.Lock()
_parsers: list[Lark] = []


def _parser() -> Lark:
    """The parser, built on first use."""
    with _lock:
        if not _parsers:
            from lark import Lark

            grammar = text_of(Path(__file__).parent / "grammar.lark")
            _parsers.append(Lark(grammar, start=list(_LONGEST), parser="lalr", transformer=_Build()))
        return _parsers[0]


def _run(rule: str, text: Text, start: int, end: int) -> Any:
    from lark import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

    if end - start > _LONGEST[rule]:
        text.fail(
            f"a statement of {end - start} characters",
            start,
            hint=f"at most {_LONGEST[rule]} are read; is a ';' missing?",
        )
    try:
        return _parser().parse(text.code[start:end], start=rule)
    except UnexpectedToken as error:
        expected = _speak(error.accepts or error.expected)
        if error.token.type == "$END":
            text.fail("the statement ends too early", max(start, end - 1), hint=expected)
        offset = start + (error.token.start_pos or 0)
        text.fail(
            f"unexpected {shorten(str(error.token))!r}", offset, offset + len(error.token), hint=expected
        )
    except UnexpectedCharacters as error:
        offset = start + (error.pos_in_stream or 0)
        text.fail(
            f"unexpected {shorten(text.code[offset:end].split(maxsplit=1)[0])!r}",
            offset,
            hint=_speak(error.allowed or ()),
        )
    except UnexpectedEOF as error:
        text.fail("the statement ends too early", max(start, end - 1), hint=_speak(error.expected))
    except _Misplaced as error:
        text.fail(str(error), start + error.start, start + error.end)


def _speak(terminals: Iterable[str]) -> str | None:
    """``expected …`` in words; operators, which are allowed almost everywhere, are omitted if anything else is expected."""
    names = sorted(set(terminals) - _OPERATORS) or sorted(terminals)
    words = list(dict.fromkeys(_SPOKEN[name] for name in names if name in _SPOKEN))
    return f"expected {' or '.join(words)}" if words else None


class _Misplaced(Exception):
    """An invalid constant expression, with its offsets in the statement."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class _Build:
    """The parser's callbacks, one for each rule, so that it builds no tree."""

    def instruction(self, parts: Parts) -> raw.Instruction:
        guard, name, *rest = parts
        words = [part for part in rest if _is_token(part)]
        end = words[-1].end_pos if words else name.end_pos
        operands = tuple(part for part in rest if part is not None and not _is_token(part))
        negated, predicate = guard if guard is not None else (False, None)
        return raw.Instruction(predicate, negated, "".join([name, *words]), name.start_pos, end, operands)

    def guard(self, parts: Parts) -> tuple[bool, raw.Name]:
        return parts[0] is not None, _name(parts[1])

    def declaration(self, parts: Parts) -> raw.Declaration:
        declarators = tuple(part for part in parts if isinstance(part, raw.Declarator))
        return raw.Declaration(
            tuple(_part(part) for part in parts[: len(parts) - len(declarators)]), declarators
        )

    def item(self, parts: Parts) -> raw.Declaration:
        return self.declaration([part for part in parts if part is not None])

    def directive(self, parts: Parts) -> raw.Directive:
        tokens: list[Any] = []
        for part in parts:
            tokens += part if isinstance(part, list) else [_part(part)]
        return raw.Directive(tuple(tokens))

    def counted(self, parts: Parts) -> list[raw.Name | raw.Word]:
        """``L<3>`` in a list is ``L0, L1, L2`` (PTX manual, "Parameterized Variable Names")."""
        name, _, digits, closing = parts
        count = _constant(constants.integer, digits).value
        if not 0 < count <= _MOST_COUNTED:
            raise _Misplaced(f"{count} names in a list", name.start_pos, closing.end_pos)
        start, end = name.start_pos, closing.end_pos
        listed: list[raw.Name | raw.Word] = []
        for index in range(count):
            listed += [raw.Name(f"{name}{index}", start, end), raw.Word(",", start, end)]
        return listed[:-1]

    def group(self, parts: Parts) -> raw.Group:
        items = tuple(part for part in parts[1:-1] if part is not None)
        return raw.Group(items, parts[0].start_pos, parts[-1].end_pos)

    def declarator(self, parts: Parts) -> raw.Declarator:
        name, _, count, _, *dims, initial = parts
        number = None if count is None else _constant(constants.integer, count).value
        return raw.Declarator(_name(name), number, tuple(dims), initial)

    def dimension(self, parts: Parts) -> int | None:
        opening, size, closing = parts
        if size is None:
            return None
        if not isinstance(size, raw.Number) or size.kind[0] == "f":
            raise _Misplaced(
                "an array dimension must be an integer constant", opening.start_pos, closing.end_pos
            )
        return size.value

    def choice(self, parts: Parts) -> raw.Node:
        condition, yes, no = parts
        if not all(isinstance(part, raw.Number) for part in parts):
            raise _Misplaced("'? :' takes constants only", condition.start, no.end)
        chosen = yes if condition.value else no
        return raw.Number(chosen.value, chosen.kind, condition.start, no.end)

    def binary(self, parts: Parts) -> raw.Node:
        left, operator, right = parts
        start, end = left.start, right.end
        if isinstance(left, raw.Number) and isinstance(right, raw.Number):
            try:
                return raw.Number(*constants.binary(str(operator), left[:2], right[:2]), start, end)
            except constants.ConstantError as error:
                raise _Misplaced(str(error), start, end) from None
        if operator == "|" and not isinstance(left, raw.Number) and not isinstance(right, raw.Number):
            return raw.Or(left, right, start, end)
        if isinstance(left, raw.Offset) and _is_integer(right):
            # r + 4 << 1 is r + (4 << 1): whatever follows the plus sign is one constant
            try:
                amount, kind = constants.binary(str(operator), (left.amount, left.kind), right[:2])
            except constants.ConstantError as error:
                raise _Misplaced(str(error), start, end) from None
            return raw.Offset(left.base, amount, kind, start, end)
        if isinstance(left, (raw.Name, raw.Element, raw.Apply)) and _is_integer(right):
            if operator == "+":
                return raw.Offset(left, right.value, right.kind, start, end)
            if operator == "-":
                message = "only a constant can be added here, not subtracted; accepted: r + 4, r + -4"
                raise _Misplaced(message, start, end)
        if operator == "+" and _is_integer(left) and isinstance(right, (raw.Name, raw.Element, raw.Apply)):
            message = "only a constant can be added here, on the right; accepted: r + 4, r + -4"
            raise _Misplaced(message, start, end)
        raise _Misplaced(f"operator {str(operator)!r} cannot be applied to these operands", start, end)

    def unary(self, parts: Parts) -> raw.Node:
        operator, operand = parts
        start, end = operator.start_pos, operand.end
        if isinstance(operand, raw.Number):
            try:
                return raw.Number(*constants.unary(str(operator), operand[:2]), start, end)
            except constants.ConstantError as error:
                raise _Misplaced(str(error), start, end) from None
        if isinstance(operand, raw.Name) and operator in ("!", "-"):
            return raw.Not(operand, start, end) if operator == "!" else raw.Minus(operand, start, end)
        raise _Misplaced(f"operator {str(operator)!r} cannot be applied to this operand", start, end)

    def cast(self, parts: Parts) -> raw.Node:
        opening, word, operand = parts
        if not isinstance(operand, raw.Number):
            raise _Misplaced("only constants can be cast", opening.start_pos, operand.end)
        try:
            return raw.Number(*constants.cast(str(word), operand[:2]), opening.start_pos, operand.end)
        except constants.ConstantError as error:
            raise _Misplaced(str(error), opening.start_pos, operand.end) from None

    def integer(self, parts: Parts) -> raw.Number:
        return _constant(constants.integer, parts[0])

    def decimal(self, parts: Parts) -> raw.Number:
        return _constant(constants.decimal, parts[0])

    def single_bits(self, parts: Parts) -> raw.Number:
        return _constant(constants.single_bits, parts[0])

    def double_bits(self, parts: Parts) -> raw.Number:
        return _constant(constants.double_bits, parts[0])

    def name(self, parts: Parts) -> raw.Name | raw.Number:
        name = _name(parts[0])
        return raw.Number(WARP_SZ, "s64", name.start, name.end) if name.text == "WARP_SZ" else name

    def component(self, parts: Parts) -> raw.Name:
        return raw.Name(parts[0] + parts[1], parts[0].start_pos, parts[1].end_pos)

    def element(self, parts: Parts) -> raw.Element:
        name, index, closing = parts
        if not _is_integer(index):
            raise _Misplaced("an array index must be an integer constant", index.start, index.end)
        return raw.Element(_name(name), index.value, name.start_pos, closing.end_pos)

    def apply(self, parts: Parts) -> raw.Apply:
        name, argument, closing = parts
        return raw.Apply(_name(name), argument, name.start_pos, closing.end_pos)

    def mask(self, parts: Parts) -> raw.Mask:
        number, argument, closing = parts
        return raw.Mask(
            _constant(constants.integer, number).value, argument, number.start_pos, closing.end_pos
        )

    def braces(self, parts: Parts) -> raw.Braces:
        return raw.Braces(_items(parts), parts[0].start_pos, parts[-1].end_pos)

    def member(self, parts: Parts) -> raw.Member:
        name, value = parts
        return raw.Member(_name(name), value, name.start_pos, value.end)

    def brackets(self, parts: Parts) -> raw.Brackets:
        return raw.Brackets(_items(parts), parts[0].start_pos, parts[-1].end_pos)

    def parens(self, parts: Parts) -> raw.Node:
        items = _items(parts)
        if len(items) == 1 and isinstance(items[0], raw.Number):
            return items[0]._replace(start=parts[0].start_pos, end=parts[-1].end_pos)
        return raw.Parens(items, parts[0].start_pos, parts[-1].end_pos)


def _is_token(part: object) -> bool:
    return isinstance(part, str)


def _is_integer(node: object) -> bool:
    return isinstance(node, raw.Number) and node.kind[0] != "f"


def _items(parts: Parts) -> tuple[Any, ...]:
    return tuple(part for part in parts[1:-1] if part is not None)


def _name(token: Any) -> raw.Name:
    return raw.Name(str(token), token.start_pos, token.end_pos)


def _constant(read: Callable[[str], constants.Constant], token: Any) -> raw.Number:
    try:
        value, kind = read(str(token))
    except constants.ConstantError as error:
        raise _Misplaced(str(error), token.start_pos, token.end_pos) from None
    return raw.Number(value, kind, token.start_pos, token.end_pos)


def _part(part: Any) -> Any:
    if not _is_token(part):
        return part
    start, end = part.start_pos, part.end_pos
    if part.type == "INTEGER":
        return _constant(constants.integer, part)
    if part.type == "FLOAT":
        return raw.Word(str(part), start, end)
    if part.type == "STRING":
        return raw.String(start, end)
    return _name(part) if part.type == "NAME" else raw.Word(str(part), start, end)
