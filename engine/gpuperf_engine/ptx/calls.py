"""``call``: direct, and through a register with a list of targets or a prototype (PTX manual, "call")."""

from __future__ import annotations

from typing import cast

from ..errors import PtxError, nearest
from ..source import Span
from . import raw, shapes
from .module import Function
from .operands import Operands
from .syntax import CallTarget, Immediate, Operand, Prototype, Register, Sum, Symbol, Variable, Vector
from .text import quoted

__all__ = ["call_target", "simple_call"]

_ACCEPTED = "accepted: call (results), function, (arguments); or call function;"


def simple_call(pieces: list[str], offset: int) -> tuple[raw.Node, ...] | None:
    """The operands of the common forms of a call, or ``None``. ``offset`` is that of the first piece."""
    operands: list[raw.Node] = []
    for piece in pieces:
        stripped = piece.strip()
        begin = offset + len(piece) - len(piece.lstrip())
        node: raw.Node | None
        if stripped[:1] == "(" and stripped[-1:] == ")":
            inside = stripped[1:-1]
            braces = (
                shapes.operand(f"{{{inside}}}", begin)
                if inside.strip()
                else raw.Braces((), begin, begin + len(stripped))
            )
            node = (
                raw.Parens(braces.items, braces.start, braces.end) if isinstance(braces, raw.Braces) else None
            )
        else:
            node = shapes.operand(stripped, begin)
        if node is None:
            return None
        operands.append(node)
        offset += len(piece) + 1
    return tuple(operands)


def call_target(operands: Operands, nodes: tuple[raw.Node, ...], base: int, span: Span) -> CallTarget:
    """Callee, arguments and results of a call. Raises ``PtxError``."""
    parts = list(nodes)
    returns = _list(parts)
    callee = parts.pop(0) if parts else None
    if not isinstance(callee, raw.Name):
        raise PtxError("'call' names no function", span=span, hint=_ACCEPTED)
    arguments = _list(parts)
    last = parts.pop(0) if parts else None
    if parts or not (last is None or isinstance(last, raw.Name)):
        raise PtxError("'call' has unexpected operands", span=span, hint=_ACCEPTED)
    function, register, candidates, prototype = _callee(operands, callee, last, base, span)
    call = CallTarget(
        function,
        register,
        candidates,
        prototype,
        tuple(value for item in returns for value in _arguments(operands, item, base)),
        tuple(value for item in arguments for value in _arguments(operands, item, base)),
        span,
    )
    signature = function or prototype or (candidates[0] if candidates else None)
    if signature is not None:
        _match(call, signature, span)
    return call


def _list(parts: list[raw.Node]) -> tuple[raw.Node, ...]:
    """The items of a list in parentheses, if one comes next."""
    if parts and isinstance(parts[0], raw.Parens):
        return cast(raw.Parens, parts.pop(0)).items
    if parts and isinstance(parts[0], raw.Number):  # the grammar folds parentheses around one constant
        return (parts.pop(0),)
    return ()


def _callee(
    operands: Operands, callee: raw.Name, last: raw.Name | None, base: int, span: Span
) -> tuple[Function | None, Register | None, tuple[Function, ...], Prototype | None]:
    names = operands.names
    known = names.known.get(callee.text)
    span_of_callee = names.text.span(base + callee.start, base + callee.end)
    if known is None or not isinstance(known[0], Register):
        if last is not None:
            raise PtxError("a direct call has no list of targets", span=span, hint=_ACCEPTED)
        return _function(operands, callee.text, span_of_callee), None, (), None
    if known[0].type.bits not in (32, 64) or known[0].type.is_float:
        raise PtxError(
            f"{quoted(callee.text)} is a .{known[0].type} register, which cannot hold a function",
            span=span_of_callee,
        )
    if last is None:
        raise PtxError("an indirect call needs its .calltargets or .callprototype", span=span)
    table = names.scope.table(last.text)
    if isinstance(table, Prototype):
        return None, known[0], (), table
    if table is None or table.directive != ".calltargets":
        span_of_callee = names.text.span(base + last.start, base + last.end)
        raise PtxError(f"{quoted(last.text)} is neither .calltargets nor .callprototype", span=span_of_callee)
    candidates = tuple(
        _function(operands, member.text, names.text.span(table.base + member.start, table.base + member.end))
        for member in table.members
    )
    return None, known[0], candidates, None


def _function(operands: Operands, name: str, span: Span) -> Function:
    module = operands.names.module
    function = module.aliases.get(name) or module.functions.get(name)
    if function is None:
        raise PtxError(
            f"call of {quoted(name)}, which is not declared",
            span=span,
            hint=nearest(name, module.functions, noun="function"),
        )
    return function


def _arguments(operands: Operands, node: raw.Node, base: int) -> tuple[Operand, ...]:
    """The arguments of an item of a list; a vector of registers is several arguments, like a vector parameter."""
    operand, shape = operands.operand(node, base)
    if isinstance(operand, Vector):
        return operand.elements
    if shape[0] == "name":
        operands.names.undeclared(shape[1], operand.span)
    if isinstance(operand, Sum):
        raise PtxError(
            "an argument of a call cannot be a sum; add in a separate instruction", span=operand.span
        )
    if (
        isinstance(operand, Symbol)
        and isinstance(operand.target, Variable)
        and operand.target.space == "param"
    ):
        return (operand.target,)
    return (cast(Operand, operand),)


def _match(call: CallTarget, signature: Function | Prototype, span: Span) -> None:
    """Raises ``PtxError`` unless arguments and results match the signature in number and size."""
    for argument, formal, noun in (
        (call.arguments, signature.params, "argument"),
        (call.returns, signature.returns, "result"),
    ):
        if len(argument) != len(formal):
            raise PtxError(
                f"call of {signature.name!r} with {len(argument)} {noun}s, it has {len(formal)}", span=span,
                details=[f"declared at {signature.span}"],
            )  # fmt: skip
        for operand, variable in zip(argument, formal):
            wrong = _mismatch(operand, variable)
            if wrong:
                raise PtxError(
                    f"call of {signature.name!r}: {noun} {wrong}, declared is .{variable.type}", span=span,
                    details=[f"declared at {signature.span}"],
                )  # fmt: skip
            size = operand.size if isinstance(operand, Variable) else None
            if size is not None and variable.dims != (None,) and size != variable.size:
                assert isinstance(operand, Variable)
                raise PtxError(
                    f"call of {signature.name!r}: {noun} {operand.name!r} has {size} bytes, declared are {variable.size}",
                    span=span, details=[f"declared at {signature.span}"],
                )  # fmt: skip


def _mismatch(argument: Operand, formal: Variable) -> str:
    """Why a value does not match a parameter, ``""`` if it does: types must have the same size, and floats only match floats and bits.
    Arrays are compared by size."""
    if formal.dims or (isinstance(argument, Variable) and argument.dims):
        return ""
    wanted = formal.type
    if isinstance(argument, Immediate):
        fits = wanted.is_bits or wanted.is_predicate or (argument.kind != "int") == wanted.is_float
        return "" if fits else "is a constant of another kind"
    if not isinstance(argument, (Register, Variable)):
        return ""
    kind = argument.type
    same = kind.bits == wanted.bits and kind.is_predicate == wanted.is_predicate
    if same and (kind.is_bits or wanted.is_bits or kind.is_float == wanted.is_float):
        return ""
    return f"{argument.name!r} is .{kind}"
