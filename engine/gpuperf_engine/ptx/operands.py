"""Operands: raw nodes to registers, constants, addresses and symbols (PTX manual, "Instruction Operands")."""

from __future__ import annotations

import re
from typing import Any

from ..errors import PtxError
from ..isa.selectors import SUFFIX
from ..isa.special import SPECIAL_REGISTERS, WARP_SZ, check_register
from ..isa.table import Form
from ..source import Span
from . import constants, raw
from .check import Shape
from .module import Function
from .scopes import Meaning, Names
from .special import special_type
from .syntax import (
    Address,
    Immediate,
    LabelOperand,
    Negated,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Symbol,
    Variable,
    Vector,
)
from .text import shorten

__all__ = ["Operands", "check_constants", "narrow"]

_DEEPEST = 8
#: Special registers that had 16 bits, or 32, in PTX 1.x and may still be read so.
_COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}
_TARGET = re.compile(r"sm_(\d+)")
_ONCE_NARROWER = frozenset(["%tid", "%ntid", "%ctaid", "%nctaid", "%gridid"])


class Operands:
    """Resolves the raw operands of one function."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.text = names.text

    def operand(self, node: raw.Node, base: int, depth: int = 0) -> Meaning:
        """The operand and its shape; an unknown name becomes a label, its shape ``("name", …)``. Raises ``PtxError``."""
        span = self.text.span(base + node.start, base + node.end)
        if depth > _DEEPEST:
            raise PtxError("operands nested too deeply", span=span)
        if isinstance(node, raw.Name):
            return self._name(node.text, span)
        if isinstance(node, raw.Number):
            if node.kind[0] == "f":
                return Immediate(node.value, node.kind, span), (node.kind,)
            return Immediate(node.value, "int", span), ("integer",)
        if isinstance(node, raw.Brackets):
            return self._address(node, base, span, depth)
        if isinstance(node, raw.Braces):
            items = [self._declared(item, base, depth + 1) for item in node.items]
            return Vector(tuple(item[0] for item in items), span), ("vector", *(item[1] for item in items))
        if isinstance(node, raw.Or):
            first, second = (
                self._declared(node.first, base, depth + 1),
                self._declared(node.second, base, depth + 1),
            )
            return Pair(first[0], second[0], span), ("pair", first[1], second[1])
        if isinstance(node, raw.Not):
            inner, shape = self._declared(node.operand, base, depth + 1)
            return Negated(inner, span), ("not", shape)
        if isinstance(node, raw.Minus):
            inner, shape = self._declared(node.operand, base, depth + 1)
            return inner, ("minus", shape)
        if isinstance(node, (raw.Offset, raw.Element)):
            base_object, offset = self._resolve(node, base)
            if isinstance(base_object, Register):
                if not isinstance(node, raw.Offset):
                    raise PtxError(
                        "only a constant can be added to a register here",
                        span=span,
                        hint="accepted: r + 4, r + -4",
                    )
                return Sum(base_object, offset, span), ("sum", ("register", base_object.type.name))
            return Symbol(base_object, offset, span), _symbol(base_object)
        piece = shorten(self.text.code[base + node.start : base + node.end])
        raise PtxError(f"{piece!r} cannot be an operand here", span=span)

    def _declared(self, node: raw.Node, base: int, depth: int) -> Meaning:
        operand, shape = self.operand(node, base, depth)
        if shape[0] == "name":
            self.names.undeclared(shape[1], operand.span)
        return operand, shape

    def _name(self, name: str, span: Span) -> Meaning:
        known = self.names.known.get(name)
        if known is not None:
            return (Symbol(known[0], 0, span), _symbol(known[0])) if known[1] == ("variable",) else known
        if name == "_":
            return Sink(span), ("sink",)
        if name[0] == "%":
            special = special_type(name[1:])
            if special is not None:
                narrows = name.partition(".")[0] in _ONCE_NARROWER
                return self._special(name[1:], span), ("special", special.name, narrows)
            if special_type(f"{name[1:]}.x") is not None:
                self._special(f"{name[1:]}.x", span)
                parts = tuple(SpecialRegister(f"{name[1:]}.{part}", span) for part in "xyzw")
                return Vector(parts, span), ("vector", *[("special", "u32", name in _ONCE_NARROWER)] * 4)
        if name == "WARP_SZ":
            return Immediate(WARP_SZ, "int", span), ("integer",)
        selected = SUFFIX.match(name)
        if selected is not None:
            register = self.names.known.get(selected["register"])
            if register is not None and register[1][0] == "register":
                return register[0], ("part", selected["selector"], register[1])
        target = self.names.symbol(name)
        if target is not None:
            return Symbol(target, 0, span), _symbol(target)
        return LabelOperand(name, -1, span), ("name", name)

    def _special(self, name: str, span: Span) -> SpecialRegister:
        """A special register by the manual's name; components may also be written as colours."""
        stem, dot, part = name.partition(".")
        known = f"{stem}.{_COLOURS.get(part, part)}" if dot else stem
        target = _TARGET.match(self.names.module.target)
        try:
            form = SPECIAL_REGISTERS[known]
            check_register(form, self.names.module.version, int(target[1]) if target else 0)
            directives = (text.partition(" ")[0] for text in self.names.function.directives)
            if form.directive and form.directive not in directives:
                raise PtxError(f"%{form.name} is for kernels with '{form.directive}'")
        except PtxError as error:
            raise PtxError(error.message, span=span, hint=error.hint) from None
        return SpecialRegister(known, span)

    def _resolve(self, node: raw.Node, base: int) -> tuple[Register | Variable | Function, int]:
        """The object of ``name``, ``name + offset`` or ``name[index]``, and the offset in bytes."""
        offset, index = 0, 0
        if isinstance(node, raw.Offset):
            offset, node = node.addend, node.base
        if isinstance(node, raw.Element):
            index, node = node.position, node.base
        span = self.text.span(base + node.start, base + node.end)
        if not isinstance(node, raw.Name):
            raise PtxError("expected a register or a variable here", span=span)
        resolved: Any = self.names.known.get(node.text)
        resolved = resolved[0] if resolved is not None else self.names.symbol(node.text)
        if not isinstance(resolved, (Register, Variable, Function)):
            if node.text[0] == "%" and special_type(node.text[1:]) is not None:
                raise PtxError(
                    f"{node.text} is a special register, to which nothing can be added; move it to a register first",
                    span=span,
                )
            self.names.undeclared(node.text, span)
        if index and isinstance(resolved, Variable):
            offset += index * resolved.type.bytes * resolved.vector
        if not -(1 << 63) <= offset < 1 << 63:
            raise PtxError("the offset does not fit 64 bits", span=span)
        return resolved, offset

    def _address(self, node: raw.Brackets, base: int, span: Span, depth: int) -> Meaning:
        inner = node.items[0]
        more = [self._declared(item, base, depth + 1) for item in node.items[1:]]
        further, shapes = tuple(item[0] for item in more), tuple(item[1] for item in more)
        if isinstance(inner, raw.Number):
            if inner.kind[0] == "f":
                raise PtxError("an address is not a floating-point number", span=span)
            return Address(None, inner.value, span, further), ("address", None, None, *shapes)
        base_object, offset = self._resolve(inner, base)
        if isinstance(base_object, Register):
            return Address(base_object, offset, span, further), (
                "address",
                None,
                base_object.type.name,
                *shapes,
            )
        if isinstance(base_object, Function):
            raise PtxError(f"{base_object.name!r} is a function, its code cannot be accessed", span=span)
        return Address(base_object, offset, span, further), ("address", base_object.space, None, *shapes)


def _symbol(target: Variable | Function) -> Shape:
    """The shape of a symbol used as a value."""
    if isinstance(target, Function):
        return ("function",)
    kind = ("sampler",) if ".samplerref" in target.attributes else ()
    return ("symbol", target.space, *kind)


def narrow(form: Form, operands: list[object]) -> list[object]:
    """Operands with floating-point constants converted to the operand's type: ``1.5`` is a double unless the operand is ``.f32``."""
    result = []
    for operand, slot in zip(operands, [slot for slot in form.operands if not slot.pair and not slot.inside]):
        if slot.type is not None and slot.type.name in ("f32", "f64"):
            name = slot.type.name
            if isinstance(operand, Immediate):
                operand = _convert(operand, name)
            elif isinstance(operand, Vector):
                items = tuple(
                    _convert(item, name) if isinstance(item, Immediate) else item for item in operand.elements
                )
                operand = Vector(items, operand.span)
        result.append(operand)
    return result


def _convert(number: Immediate, name: str) -> Immediate:
    if number.kind in (name, "int"):
        return number
    value = float(constants.value_of((number.value, number.kind)))
    return Immediate(constants.bits_of(value, name), name, number.span)


def check_constants(form: Form, operands: list[object]) -> None:
    """Raises ``PtxError`` for a constant that its operand does not accept."""
    modifiers = {name if value is True else value for name, value in form.modifiers.items()}
    slots = [slot for slot in form.operands if not slot.pair]
    for words, (accepts, text) in form.row.accepts.constants.items():
        name, *only = words.split()
        if not modifiers.issuperset(only):
            continue
        together = name.split(",")
        constants = [operand for operand, slot in zip(operands, slots) if slot.name in together]
        constant = [operand for operand in constants if isinstance(operand, Immediate)]
        if len(constant) == len(together) and not accepts(*map(_number, constant)):
            values = " and ".join(
                f"{part} is {_number(operand)}" for part, operand in zip(together, constant)
            )
            raise PtxError(f"{form.opcode}: {values}", span=constant[0].span, hint=f"accepted: {text}")


def _number(constant: Immediate) -> float:
    if constant.kind == "int":
        return constant.value
    return float(constants.value_of((constant.value, constant.kind)))
