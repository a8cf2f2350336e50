"""Operands, variables and directives as PTX text; callers choose the names."""

from __future__ import annotations

from typing import Protocol

from ..isa.selectors import bound
from .module import Function
from .syntax import (
    Address,
    CallTarget,
    Immediate,
    Instruction,
    LabelOperand,
    Negated,
    Operand,
    Pair,
    Prototype,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Symbol,
    Variable,
    Vector,
)

__all__ = ["Naming", "declare", "instruction", "operand", "prototype", "tuning"]

_VECTOR_REGISTER = tuple([".x", ".y", ".z", ".w"])


class Naming(Protocol):
    """The names of registers, labels, variables and functions in the text."""

    def register(self, register: Register) -> str: ...

    def variable(self, variable: Variable) -> str: ...

    def function(self, function: Function) -> str: ...

    def label(self, index: int) -> str: ...

    def table(self, name: str) -> str: ...


def operand(value: Operand, names: Naming) -> str:
    """One operand of an instruction."""
    if isinstance(value, Register):
        return names.register(value)
    if isinstance(value, Immediate):
        return _immediate(value)
    if isinstance(value, SpecialRegister):
        return f"%{value.name}"
    if isinstance(value, Address):
        return _address(value, names)
    if isinstance(value, Vector):
        parts = [operand(element, names) for element in value.elements]
        whole = parts[0][:-2] if parts else ""
        if len(parts) == 4 and whole[:1] == "%" and parts == [whole + suffix for suffix in _VECTOR_REGISTER]:
            return whole
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, Symbol):
        return _offset(_target(value.target, names), value.offset)
    if isinstance(value, Variable):
        return names.variable(value)
    if isinstance(value, Pair):
        return f"{operand(value.first, names)}|{operand(value.second, names)}"
    if isinstance(value, Negated):
        return f"!{operand(value.operand, names)}"
    if isinstance(value, Sum):
        return _offset(operand(value.register, names), value.offset)
    if isinstance(value, Sink):
        return "_"
    if isinstance(value, LabelOperand):
        return names.table(value.name) if value.index < 0 else names.label(value.index)
    if isinstance(value, CallTarget):
        return _call(value, names)
    return names.table(value.name)


def _immediate(value: Immediate) -> str:
    if value.kind == "f32":
        return f"0f{value.value:08X}"
    if value.kind == "f64":
        return f"0d{value.value:016X}"
    return str(value.value)


def _offset(base: str, offset: int) -> str:
    return f"{base}+{offset}" if offset else base


def _target(target: Variable | Function, names: Naming) -> str:
    return names.function(target) if isinstance(target, Function) else names.variable(target)


def _address(value: Address, names: Naming) -> str:
    base = value.base
    if base is None:
        inner = str(value.offset)
    else:
        inner = _offset(
            names.register(base) if isinstance(base, Register) else names.variable(base), value.offset
        )
    return "[" + ", ".join([inner, *(operand(part, names) for part in value.further)]) + "]"


def _call(value: CallTarget, names: Naming) -> str:
    parts = []
    if value.returns:
        parts.append("(" + ", ".join(operand(item, names) for item in value.returns) + ")")
    if value.function is not None:
        parts.append(names.function(value.function))
    elif value.register is not None:
        parts.append(names.register(value.register))
    if value.arguments or value.register is not None:
        parts.append("(" + ", ".join(operand(item, names) for item in value.arguments) + ")")
    if value.register is not None:
        parts.append(names.table(value.prototype.name if value.prototype is not None else ""))
    return ", ".join(parts)


def instruction(value: Instruction, names: Naming) -> str:
    """One instruction with guard and semicolon."""
    written = [operand(item, names) for item in value.operands]
    for index, slot in enumerate(value.form.operands[: len(written)]):
        if slot.selector or slot.negatable:
            negated, part = bound(value.form, slot.name)
            written[index] = f"{'-' * negated}{written[index]}{'.' * bool(part)}{part}"
    operands = ", ".join(written)
    guard = ""
    if value.guard is not None:
        guard = f"@{'!' if value.guard.negated else ''}{names.register(value.guard.register)} "
    return f"{guard}{value.opcode}{' ' if operands else ''}{operands};"


def declare(variable: Variable, name: str, names: Naming, *, initial: bool = True) -> str:
    """A variable's declaration without its semicolon."""
    words = [f".{variable.linkage}"] if variable.linkage and initial else []
    opaque = [word for word in variable.attributes if word.startswith((".tex", ".sampler", ".surf"))]
    attributes = [word for word in variable.attributes if word not in opaque]
    space = ".param" if variable.space == "tex" and variable.function is not None else f".{variable.space}"
    words.append(".global" if space == ".tex" else space)
    if attributes:
        words.append(f".attribute({', '.join(attributes)})")
    if variable.space != "reg" and variable.pointer_space is None:
        words.append(f".align {variable.align}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(opaque[0] if opaque else f".{variable.type}")
    if variable.pointer_space is not None:
        words.append(".ptr")
        words += [] if variable.pointer_space == "generic" else [f".{variable.pointer_space}"]
        words += [] if variable.pointer_align is None else [f".align {variable.pointer_align}"]
    dims = "".join("[]" if size is None else f"[{size}]" for size in variable.dims)
    values = f" = {_initial(variable, names)}" if initial and variable.initial is not None else ""
    if initial and variable.members:
        values = " = { " + ", ".join(f"{member} = {value}" for member, value in variable.members) + " }"
    return f"{' '.join(words)} {name}{dims}{values}"


def _initial(variable: Variable, names: Naming) -> str:
    """The initialiser: constants element by element, and names for relocations."""
    assert variable.initial is not None
    size = variable.type.bytes
    form = "0f{:08X}" if variable.type.name == "f32" else "0d{:016X}" if variable.type.name == "f64" else "{}"
    data = variable.initial
    values = [form.format(int.from_bytes(data[at : at + size], "little")) for at in range(0, len(data), size)]
    for at, width, target, addend, generic in variable.relocations:
        name = _target(target, names)
        text = _offset(f"generic({name})" if generic else name, addend)
        if width == size:
            values[at // size] = text
        else:
            for byte in range(width):
                values[at + byte] = f"{0xFF << 8 * byte:#x}({text})"
    if not variable.dims and variable.vector == 1:
        return values[0]
    while len(values) > 1 and values[-1] in ("0", "0f00000000", "0d0000000000000000"):
        values.pop()
    return "{" + ", ".join(values) + "}"


def prototype(value: Prototype, names: Naming) -> str:
    """``.callprototype`` with nameless parameters, without the semicolon."""

    def params(variables: tuple[Variable, ...]) -> str:
        return "(" + ", ".join(declare(variable, "_", names) for variable in variables) + ")"

    returns = f"{params(value.returns)} " if value.returns else ""
    return f".callprototype {returns}_ {params(value.params)}"


def tuning(function: Function) -> list[str]:
    """Performance-tuning directives and pragmas of a header, one a line."""
    lines = []
    for word, numbers in ((".maxntid", function.maxntid), (".reqntid", function.reqntid)):
        if numbers is not None:
            lines.append(f"{word} {', '.join(map(str, numbers))}")
    if function.minnctapersm is not None:
        lines.append(f".minnctapersm {function.minnctapersm}")
    if function.maxnreg is not None:
        lines.append(f".maxnreg {function.maxnreg}")
    if function.cluster is not None:
        lines.append(f".reqnctapercluster {', '.join(map(str, function.cluster))}")
    lines += [f"{word};" if word.startswith(".pragma") else word for word in function.directives]
    return lines
