"""Names inside one function: nested scopes, registers, variables, labels and tables (PTX manual, "Scoping").

One dictionary maps all names visible at the current position. A nested scope saves the names that it hides and restores them
when it closes, so the cost of a look-up does not depend on the depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from ..errors import PtxError, nearest
from ..isa.types import SCALAR_TYPES, ScalarType
from ..source import Span
from . import raw
from .available import check_type
from .check import Shape
from .declare import COMPONENTS, specify
from .module import Body, Function, Module
from .special import special_names
from .syntax import LabelOperand, Prototype, Register, Variable, Vector
from .text import Text, quoted

__all__ = ["Meaning", "Names", "Scope", "Table"]

_COLOURS = ("r", "g", "b", "a")
_MOST_REGISTERS = 1 << 19
_REGISTER_TYPES = frozenset(
    [
        "pred",
        "b8",
        "b16",
        "b32",
        "b64",
        "b128",
        "u8",
        "u16",
        "u32",
        "u64",
        "s8",
        "s16",
        "s32",
        "s64",
        "f16",
        "f16x2",
        "f32",
        "f64",
    ]
)

#: An operand, or a ``Variable`` with the shape ``("variable",)``; and the shape of the name as an operand.
Meaning = tuple[Any, Shape]


class Table(NamedTuple):
    """``.branchtargets`` or ``.calltargets``: its names, and the offset to which their positions are relative."""

    directive: str
    members: tuple[raw.Name, ...]
    base: int


class Scope:
    """One pair of braces: its labels and tables, and the names that its declarations hide."""

    __slots__ = ("declared", "hidden", "labels", "parent", "tables")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.labels: dict[str, LabelOperand] = {}
        self.tables: dict[str, Table | Prototype] = {}
        self.declared: set[str] = set()
        self.hidden: list[tuple[str, Meaning | None]] = []

    def table(self, name: str) -> Table | Prototype | None:
        """The innermost visible table or prototype of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.parent
        return None

    def label(self, name: str) -> LabelOperand | None:
        """The innermost visible label of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


class Names:
    """Everything declared in a function up to the current position."""

    def __init__(self, module: Module, function: Function, text: Text) -> None:
        self.module = module
        self.function = function
        #: the body read so far
        self.body = Body()
        self.text = text
        self.known: dict[str, Meaning] = {}
        self.scope = Scope(None)
        self._repeated: dict[str, int] = {}
        for variable in (*function.params, *function.returns):
            self.add_variable(variable)
        self._add_formal_vectors()

    def open(self) -> None:
        """Enters a nested scope."""
        self.scope = Scope(self.scope)

    def close(self) -> None:
        """Leaves the innermost scope, which is not the function's own."""
        known = self.known
        for name, before in reversed(self.scope.hidden):
            if before is None:
                del known[name]
            else:
                known[name] = before
        if self.scope.parent is not None:
            self.scope = self.scope.parent

    def bind(self, name: str, meaning: object, shape: Shape, span: Span) -> None:
        """Declares a name in the innermost scope. Raises ``PtxError`` if it is declared there already."""
        scope = self.scope
        if name in scope.declared and name != "_":
            first = getattr(self.known[name][0], "span", None)
            raise PtxError(
                f"{quoted(name)} is declared twice in this scope",
                span=span,
                details=[f"first at {first}"] if first else (),
            )
        scope.declared.add(name)
        if scope.parent is not None:
            scope.hidden.append((name, self.known.get(name)))
        self.known[name] = (meaning, shape)

    def add_variable(self, variable: Variable) -> None:
        """Declares a variable or parameter; register parameters of a ``.func`` become registers."""
        if variable.space == "reg":
            register = Register(variable.name, variable.type, len(self.body.registers), variable.span)
            self.body.registers.append(register)
            self.bind(variable.name, register, ("register", variable.type.name), variable.span)
        else:
            self.bind(variable.name, variable, ("variable",), variable.span)

    def _add_formal_vectors(self) -> None:
        """Bind the name of each vector among the register parameters, whose components are separate parameters."""
        parts: dict[str, list[Register]] = {}
        for register in self.body.registers:
            stem, dot, _ = register.name.partition(".")
            if dot:
                parts.setdefault(stem, []).append(register)
        for stem, elements in parts.items():
            self._bind_vector(stem, tuple(elements), elements[0].span)

    def add_outside(self, declarations: Iterable[tuple[int, raw.Declaration]]) -> None:
        """Declare the registers outside of functions, which declarations of the function may hide. All functions of a thread share
        them, so only kernels can use them here; using them in other functions is an error."""
        scope, known = self.scope, self.known
        own = set(scope.declared)
        own_names = {name: known[name] for name in own}
        scope.declared.clear()
        for base, declaration in declarations:
            self.add_registers(base, declaration)
        if not self.function.is_entry:
            known.update((name, (known[name][0], ("outside", name))) for name in scope.declared)
        known.update(own_names)
        scope.declared.clear()
        scope.declared.update(own)

    def add_registers(self, base: int, declaration: raw.Declaration) -> None:
        """``.reg`` with single names, lists, ``name<count>`` and vectors. Raises ``PtxError``."""
        specified = specify(self.text, base, declaration.specifiers)
        kind = specified.type
        where = self.text.span(base, base + len(".reg"))
        if kind is None:
            raise PtxError(
                "register declaration without a type", span=where, hint="write e.g. .reg .b32 %r<8>;"
            )
        if kind.name not in _REGISTER_TYPES:
            raise PtxError(
                f".{kind} is not a type of registers", span=where, hint=f"declare it as .b{kind.bits}"
            )
        check_type(self.module, kind.name, where)
        if specified.vector > len(COMPONENTS):
            raise PtxError(
                f"a vector of {specified.vector} registers",
                span=where,
                hint=f"a vector has up to {len(COMPONENTS)}; {specified.vector} registers are declared by themselves",
            )
        for declarator in declaration.declarators:
            name, count = declarator.name.text, declarator.repeat
            span = self.text.span(base + declarator.name.start, base + declarator.name.end)
            if declarator.dims or declarator.initial is not None:
                raise PtxError(
                    f"register {quoted(name)} is declared like an array",
                    span=span,
                    hint=f"eight registers are {name}<8>",
                )
            if count is None:
                self._add_register(name, kind, specified.vector, span)
                continue
            if len(self.body.registers) + count * specified.vector > _MOST_REGISTERS:
                raise PtxError(f"{count} registers: a function may have {_MOST_REGISTERS}", span=span)
            if specified.vector == 1:
                self._add_registers(name, count, kind, span)
                continue
            for index in range(count):
                self._add_register(f"{name}{index}", kind, specified.vector, span)

    def _add_registers(self, stem: str, count: int, kind: ScalarType, span: Span) -> None:
        """Declare ``stem<count>`` in bulk, as compilers declare tens of thousands of registers."""
        scope, registers = self.scope, self.body.registers
        names = [f"{stem}{index}" for index in range(count)]
        duplicates = scope.declared.intersection(names)
        if duplicates:
            raise PtxError(f"{quoted(min(duplicates))} is declared twice in this scope", span=span)
        if scope.parent is not None:
            scope.hidden.extend((name, self.known.get(name)) for name in names)
        shape: Shape = ("register", kind.name)
        added = [Register(name, kind, index, span) for index, name in enumerate(names, len(registers))]
        registers.extend(added)
        scope.declared.update(names)
        self.known.update((register.name, (register, shape)) for register in added)

    def _add_register(self, name: str, kind: ScalarType, vector: int, span: Span) -> None:
        registers = self.body.registers
        shape: Shape = ("register", kind.name)
        if vector == 1:
            register = Register(name, kind, len(registers), span)
            self.bind(name, register, shape, span)
            registers.append(register)
            return
        parts = tuple(
            Register(f"{name}.{component}", kind, len(registers) + position, span)
            for position, component in enumerate(COMPONENTS[:vector])
        )
        registers.extend(parts)
        for part in parts:
            self.bind(part.name, part, shape, span)
        self._bind_vector(name, parts, span)

    def _bind_vector(self, name: str, parts: tuple[Register, ...], span: Span) -> None:
        """The name of a vector of registers, and the colours as names of its components."""
        shape: Shape = ("register", parts[0].type.name)
        self.bind(name, Vector(parts, span), ("vector", *[shape] * len(parts)), span)
        for part, colour in zip(parts, _COLOURS):
            self.bind(f"{name}.{colour}", part, shape, span)

    def symbol(self, name: str) -> Variable | Function | None:
        """The variable or function of that name, the function's own before the module's."""
        known = self.known.get(name)
        if known is not None and isinstance(known[0], Variable):
            return known[0]
        module = self.module
        return module.variables.get(name) or module.aliases.get(name) or module.functions.get(name)

    def add_label(self, name: str, span: Span) -> None:
        """Declare a label before the next instruction. Raises ``PtxError`` if the scope already has it."""
        first = self.scope.labels.get(name)
        if first is not None:
            raise PtxError(
                f"label {quoted(name)} is declared twice", span=span, details=[f"first at {first.span}"]
            )
        index = len(self.body.instructions)
        self.scope.labels[name] = LabelOperand(name, index, span)
        labels = self.body.labels
        unique = name
        while unique in labels:
            self._repeated[name] = number = self._repeated.get(name, 1) + 1
            unique = f"{name}${number}"
        labels[unique] = index

    def undeclared(self, name: str, span: Span) -> NoReturn:
        """Raises the ``PtxError`` for an undeclared name, with the closest declared one."""
        if name.startswith("%"):
            known = [each for each, meaning in self.known.items() if meaning[1][0] == "register"]
            known += special_names() if len(self.known) < 10_000 else ()
            raise PtxError(
                f"register {quoted(name)} is not declared", span=span, hint=_closest(name, known, "register")
            )
        if f"%{name}" in self.known:
            raise PtxError(f"{quoted(name)} is not declared", span=span, hint=f"did you mean '%{name}'?")
        own = [each for each in self.known if each[0] != "%"]
        everything = [*own, *self.module.variables, *self.module.functions]
        raise PtxError(f"{quoted(name)} is not declared", span=span, hint=_closest(name, everything, "name"))

    def no_label(self, name: str, span: Span) -> NoReturn:
        """Raises the ``PtxError`` for a branch to a label that does not exist or is not visible."""
        hint = _closest(name, self.body.labels, "label")
        if name in self.body.labels:
            hint = "it is inside a nested { } scope and not visible here"
        raise PtxError(f"label {quoted(name)} is not declared", span=span, hint=hint)


def _closest(name: str, known: Iterable[str], noun: str) -> str:
    """``nearest`` for long lists: skips names of very different length, which cannot be close."""
    near = [each for each in known if abs(len(each) - len(name)) <= 2 and each[:1] == name[:1]]
    return nearest(name, near[:2000] or list(known)[:12], noun=noun)


assert SCALAR_TYPES.keys() >= _REGISTER_TYPES
