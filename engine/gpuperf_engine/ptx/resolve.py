"""Function bodies: statements to instructions, names to objects (PTX manual, "Syntax" and "Identifiers")."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import PtxError, nearest
from ..isa.table import Spelling, check_available, lookup
from ..isa.types import ScalarType
from ..source import SourcePosition, Span
from . import constants, raw, shapes
from .check import Shape, fits
from .declare import Grammar, declaration_of, specify, variables
from .headers import prototype_of
from .locations import FILE, LOC, file_entry
from .special import special_names, special_type
from .syntax import (
    Address,
    CallTarget,
    Function,
    Guard,
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
    Symbol,
    Variable,
    Vector,
)
from .text import Text, shorten

if TYPE_CHECKING:
    from .reader import LazyModule

__all__ = ["resolve_body"]

_STATEMENT = re.compile(
    r"\s*(?:(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)"
    r"|(?:@\s*(?P<not>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[A-Za-z][\w.:]*)(?P<operands>[^;{}]*(?:\{[^{};]*\}[^;{}]*)*);"
    r"|(?P<brace>[{}])"
    r"|(?P<directive>\.\w+))",
    re.ASCII,
)
_PIECE = re.compile(r"\[[^\]]*\]|\{[^}]*\}(?:\s*\|[^,]*)?|\([^)]*\)|[^,\[{(]+")
_COMPONENTS = ("x", "y", "z", "w")
_COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}
_MAX_REGISTERS = 1 << 20

#: What a name means in the scope at hand, with the shape of an operand that is this name alone.
Meaning = tuple[Any, Shape]


def resolve_body(module: LazyModule, text: Text, grammar: Grammar, function: Function, start: int, end: int) -> None:
    """Fills in ``registers``, ``variables``, ``labels`` and ``instructions`` of a function whose body stands between two
    offsets, braces excluded. Raises ``PtxSyntaxError`` and ``PtxError`` for the first error."""
    _Body(module, text, grammar, function).resolve(start, end)


class _Scope:
    __slots__ = ("hidden", "labels", "parent", "tables")

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.labels: dict[str, LabelOperand] = {}
        self.tables: dict[str, tuple[str, tuple[raw.Name, ...], int]] = {}
        self.hidden: list[tuple[str, Meaning | None]] = []


class _Body:
    def __init__(self, module: LazyModule, text: Text, grammar: Grammar, function: Function) -> None:
        self.module = module
        self.text = text
        self.code = text.code
        self.grammar = grammar
        self.function = function
        self.names: dict[str, Meaning] = {}
        self.own: set[str] = set()  # names declared in the innermost scope
        self.scope = _Scope(None)
        self.depth = 0
        self.location: SourcePosition | None = None
        self.locations: dict[str, SourcePosition] = {}
        self.positions: dict[tuple[int, ...], SourcePosition] = {}
        self.pragmas: tuple[str, ...] = ()
        self.verdicts: dict[tuple[str, tuple[Shape, ...]], tuple[Spelling, bool]] = module.verdicts
        self.fixups: list[tuple[Instruction, _Scope]] = []
        found = re.match(r"sm_(\d+)([af]?)", module.target)
        self.target = (int(found[1]), found[2]) if found else (0, "")
        for variable in (*function.params, *function.returns):
            self._add_variable(variable)

    # -- statements ----------------------------------------------------------------------------------------------------

    def resolve(self, start: int, end: int) -> None:
        match, code = _STATEMENT.match, self.code
        place = start
        stack: list[set[str]] = []
        while True:
            found = match(code, place, end)
            if found is None:
                if code[place:end].strip():
                    self._unreadable(place, end)
                break
            place = found.end()
            form = found.lastgroup
            if form == "operands":
                self._instruction(found)
            elif form == "label":
                self._label(found)
            elif form == "brace":
                if found["brace"] == "{":
                    self.scope = _Scope(self.scope)
                    stack.append(self.own)
                    self.own = set()
                elif stack:
                    self._close()
                    self.own = stack.pop()
            else:
                place = self._directive(found, end)
        self._connect()

    def _close(self) -> None:
        names = self.names
        for name, before in reversed(self.scope.hidden):
            if before is None:
                del names[name]
            else:
                names[name] = before
        if self.scope.parent is not None:
            self.scope = self.scope.parent

    def _unreadable(self, place: int, end: int) -> NoReturn:
        """Words the error for text that is no statement: the grammar knows what it expected."""
        code = self.code
        while code[place].isspace():
            place += 1
        stop = code.find(";", place, end)
        self.grammar.instruction(self.text, place, end if stop < 0 else stop + 1)
        self.text.fail(f"cannot read {shorten(code[place:end])!r}", place)

    def _label(self, found: re.Match[str]) -> None:
        name, span = found["label"], self.text.span(*found.span("label"))
        if name in self.scope.labels:
            first = self.scope.labels[name]
            raise PtxError(f"label {name!r} is declared twice", span=span, details=[f"first at {first.span}"])
        index = len(self.function.instructions)
        following = re.compile(r"\s*\.(branchtargets|calltargets|callprototype)\b").match(self.code, found.end())
        if following is not None:
            self.table_name = name
            return
        self.scope.labels[name] = LabelOperand(name, index, span)
        unique, number = name, 1
        while unique in self.function.labels:
            number += 1
            unique = f"{name}${number}"
        self.function.labels[unique] = index

    # -- directives and declarations -------------------------------------------------------------------------------------

    def _directive(self, found: re.Match[str], limit: int) -> int:
        word, start, code = found["directive"], found.start("directive"), self.code
        if word == ".loc":
            return self._loc(start)
        if word == ".file":
            entry = FILE.match(code, start)
            if entry is None:
                self.text.fail("cannot read this '.file'", start, start + 5, hint='write .file INDEX "path"')
            index, path = file_entry(self.text, entry)
            self.module.files = {**self.module.files, index: path}
            return entry.end()
        end = code.find(";", start, limit) + 1
        if not end:
            self.text.fail(f"'{word}' without ';'", start, start + len(word))
        if word in (".reg", ".param", ".shared", ".local", ".global", ".const", ".align", ".extern", ".visible", ".weak", ".common", ".attribute", ".tex"):
            declaration = declaration_of(self.text, start, end, self.grammar)
            if any(isinstance(item, raw.Word) and item.text == ".reg" for item in declaration.specifiers):
                self._registers(start, declaration)
                return end
            for variable in variables(self.text, start, declaration, self._symbol, self.function):
                self._unused(variable.name, variable.span)
                self._add_variable(variable)
                self.function.variables.append(variable)
            return end
        directive = shapes.directive(code, start, end) or self.grammar.directive(self.text, start, end)
        if word == ".pragma":
            strings = [part for part in directive.parts if isinstance(part, raw.String)]
            self.pragmas += tuple(self.text.string(start + part.start, start + part.end) for part in strings)
        elif word in (".branchtargets", ".calltargets"):
            members = tuple(part for part in directive.parts if isinstance(part, raw.Name))
            self._table(word, start, end, (word, members, start))
        elif word == ".callprototype":
            prototype = prototype_of(self._table_name(word, start, end), self.text, start, directive)
            self._unused(prototype.name, prototype.span)
            self._bind(prototype.name, prototype, ("prototype",))
        else:
            self.text.fail(f"{word!r} has no place in a function body", start, start + len(word))
        return end

    table_name: str = ""

    def _table_name(self, word: str, start: int, end: int) -> str:
        if not self.table_name:
            self.text.fail(f"'{word}' needs a label before it", start, end)
        name, self.table_name = self.table_name, ""
        return name

    def _table(self, word: str, start: int, end: int, entry: tuple[str, tuple[raw.Name, ...], int]) -> None:
        self.scope.tables[self._table_name(word, start, end)] = entry

    def _loc(self, start: int) -> int:
        found = LOC.match(self.code, start)
        if found is None:
            self.text.fail("cannot read this '.loc'", start, start + 4, hint="write .loc FILE LINE COLUMN")
        known = self.locations.get(found.group())
        if known is None:
            file, line, column, name, offset, *inlined = found.groups()
            files = self.module.files
            outer = None
            if inlined[0] is not None:
                at = tuple(int(part) for part in inlined)
                outer = self.positions.get(at) or SourcePosition(files.get(at[0], f"<file {at[0]}>"), at[1], at[2])
            function = None if name is None else self.module.debug_name(name, int(offset or 0))
            known = SourcePosition(files.get(int(file), f"<file {file}>"), int(line), int(column), function, outer)
            self.locations[found.group()] = known
        self.positions[tuple(int(part) for part in found.groups()[:3])] = known
        self.location = known
        return found.end()

    def _unused(self, name: str, span: Span) -> None:
        if name in self.own and name != "_":
            raise PtxError(f"{name!r} is declared twice in this scope", span=span)

    def _bind(self, name: str, meaning: Any, shape: Shape) -> None:
        if self.scope.parent is not None:
            self.scope.hidden.append((name, self.names.get(name)))
        self.own.add(name)
        self.names[name] = (meaning, shape)

    def _add_variable(self, variable: Variable) -> None:
        if variable.space == "reg":
            register = Register(variable.name, variable.type, len(self.function.registers), variable.span)
            self.function.registers.append(register)
            self._bind(variable.name, register, ("register", variable.type.name))
        else:
            self._bind(variable.name, variable, ("variable",))

    def _registers(self, base: int, declaration: raw.Declaration) -> None:
        specified = specify(self.text, base, declaration.specifiers)
        kind = specified.type
        if kind is None:
            self.text.fail("register declaration without a type", base, base + 4, hint="write e.g. .reg .b32 %r<8>;")
        for declarator in declaration.declarators:
            name = declarator.name
            span = self.text.span(base + name.start, base + name.end)
            if declarator.dims or declarator.initial is not None:
                raise PtxError(f"register {name.text!r} is declared like an array", span=span, hint="write %r<8> for eight registers")
            if declarator.count is not None and len(self.function.registers) + declarator.count > _MAX_REGISTERS:
                raise PtxError(f"{declarator.count} registers are more than {_MAX_REGISTERS}", span=span)
            names = [name.text] if declarator.count is None else [f"{name.text}{index}" for index in range(declarator.count)]
            for each in names:
                self._unused(each, span)
                self._register(each, kind, specified.vector, span)

    def _register(self, name: str, kind: ScalarType, vector: int, span: Span) -> None:
        registers = self.function.registers
        shape: Shape = ("register", kind.name)
        if vector == 1:
            register = Register(name, kind, len(registers), span)
            registers.append(register)
            self._bind(name, register, shape)
            return
        parts = []
        for component in _COMPONENTS[:vector]:
            part = Register(f"{name}.{component}", kind, len(registers), span)
            registers.append(part)
            parts.append(part)
            self._bind(part.name, part, shape)
        for colour, component in list(_COLOURS.items())[:vector]:
            self._bind(f"{name}.{colour}", parts[_COMPONENTS.index(component)], shape)
        self._bind(name, Vector(tuple(parts), span), ("vector", *[shape] * vector))

    # -- instructions ----------------------------------------------------------------------------------------------------

    def _instruction(self, found: re.Match[str]) -> None:
        code = self.code
        opcode = found["opcode"]
        start = found.start("guard") - 1 if found["guard"] else found.start("opcode")
        rest = found["operands"]
        if found["guard"]:
            start = code.rfind("@", 0, found.start("guard"))
        span = self.text.span(start, found.end())
        if opcode.startswith("call"):
            self._call(found, start, span)
            return
        operands: list[Any] = []
        keys: list[Shape] = []
        if rest and not rest.isspace():
            names = self.names
            first = found.start("operands")
            pieces = rest.split(",") if "{" not in rest and "[" not in rest and "(" not in rest else None
            if pieces is None:
                pieces = self._split(rest)
            offset = first
            for piece in pieces or ():
                stripped = piece.strip()
                known = names.get(stripped)
                if known is None or known[1][0] == "variable":
                    node = shapes.operand(stripped, offset + len(piece) - len(piece.lstrip()))
                    if node is None:
                        pieces = None
                        break
                    known = self._operand(node, 0)
                operands.append(known[0])
                keys.append(known[1])
                offset += len(piece) + 1
            if pieces is None:
                operands, keys = [], []
                node_i = self.grammar.instruction(self.text, start, found.end())
                opcode = node_i.opcode
                if opcode.startswith("call"):
                    self._call(found, start, span)
                    return
                for node in node_i.operands:
                    known = self._operand(node, start)
                    operands.append(known[0])
                    keys.append(known[1])
        guard = self._guard(found) if found["guard"] else None
        key = (opcode, tuple(keys))
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = self.verdicts[key] = self._judge(opcode, key[1], operands, found.start("opcode"), span)
        spelling, convert = verdict
        if convert:
            operands = self._narrow(spelling, operands)
        self._emit(Instruction(opcode, spelling, tuple(operands), guard, span, 0))

    def _emit(self, instruction: Instruction) -> None:
        instructions = self.function.instructions
        instruction.index = len(instructions)
        instruction.location = self.location
        if self.pragmas:
            instruction.pragmas, self.pragmas = self.pragmas, ()
        if instruction.effect in ("branch", "indirect_branch"):
            self.fixups.append((instruction, self.scope))
        instructions.append(instruction)

    @staticmethod
    def _split(rest: str) -> list[str] | None:
        """Operands of a list with brackets or braces, blanks kept; ``None`` if they nest."""
        pieces, depth, begin = [], 0, 0
        for position, character in enumerate(rest):
            if character in "[{(":
                depth += 1
            elif character in "]})":
                depth -= 1
            elif character == "," and not depth:
                pieces.append(rest[begin:position])
                begin = position + 1
        pieces.append(rest[begin:])
        return pieces if not depth else None

    def _guard(self, found: re.Match[str]) -> Guard:
        name = found["guard"]
        known = self.names.get(name)
        span = self.text.span(*found.span("guard"))
        if known is None:
            self._undeclared(name, span)
        register, shape = known
        if shape != ("register", "pred"):
            raise PtxError(f"guard {name!r} must be a predicate register", span=span)
        return Guard(register, bool(found["not"]))

    def _judge(
        self, opcode: str, keys: tuple[Shape, ...], operands: list[Any], place: int, span: Span
    ) -> tuple[Spelling, bool]:
        """The spelling that takes operands of these shapes, and whether floating-point constants need its type."""
        where = self.text.span(place, place + len(opcode))
        try:
            spellings = lookup(opcode)
        except PtxError as error:
            raise PtxError(error.message, span=where, details=error.details, hint=error.hint) from None
        reasons: list[str] = []
        for spelling in spellings:
            reason = fits(spelling, keys)
            if not reason:
                try:
                    check_available(spelling, self.module.version, *self.target)
                except PtxError as error:
                    raise PtxError(error.message, span=where, details=error.details, hint=error.hint) from None
                return spelling, any("f32" in key or "f64" in key for key in keys if key[0] in ("f32", "f64", "vector"))
            reasons.append(reason)
        for operand, key in zip(operands, keys):
            if key[0] == "name":
                self._undeclared(key[1], operand.span)
        accepted = list(dict.fromkeys(spelling.row.syntax for spelling in spellings))
        raise PtxError(f"{opcode}: {reasons[0]}", span=span, hint=f"accepted: {' or '.join(accepted[:3])}")

    def _undeclared(self, name: str, span: Span) -> NoReturn:
        known = [*self.names, *self.module.variables, *self.module.functions]
        if name.startswith("%") and special_type(name[1:]) is None:
            known += special_names()
            raise PtxError(f"register {name!r} is not declared", span=span, hint=nearest(name, known, noun="register"))
        raise PtxError(f"{name!r} is not declared", span=span, hint=nearest(name, known, noun="name"))

    def _narrow(self, spelling: Spelling, operands: list[Any]) -> list[Any]:
        """Floating-point constants in the type of their operand: ``1.5`` is a double until an ``.f32`` operand takes it."""
        forms = [form for form in spelling.operands if not form.pair]
        result = []
        for operand, form in zip(operands, forms):
            if isinstance(operand, Immediate) and form.type is not None and form.type.name in ("f32", "f64"):
                operand = _convert(operand, form.type.name)
            elif isinstance(operand, Vector) and form.type is not None and form.type.name in ("f32", "f64"):
                name = form.type.name
                operand = Vector(
                    tuple(_convert(item, name) if isinstance(item, Immediate) else item for item in operand.elements), operand.span
                )
            result.append(operand)
        return result

    # -- operands --------------------------------------------------------------------------------------------------------

    def _symbol(self, name: str) -> Variable | Function | None:
        known = self.names.get(name)
        if known is not None and isinstance(known[0], Variable):
            return known[0]
        return self.module.variables.get(name) or self.module.functions.get(name) or self.module.aliases.get(name)

    def _operand(self, node: raw.Node, base: int) -> Meaning:
        """An operand and its shape."""
        span = self.text.span(base + node.start, base + node.end)
        if isinstance(node, raw.Name):
            return self._name(node.text, span)
        if isinstance(node, raw.Number):
            kind = "int" if node.kind[0] != "f" else node.kind
            return Immediate(node.value, kind, span), ("integer",) if kind == "int" else (kind,)
        if isinstance(node, raw.Brackets):
            return self._address(node, base, span)
        if isinstance(node, raw.Braces):
            items = [self._operand(item, base) for item in node.items]
            for (operand, shape), item in zip(items, node.items):
                if shape[0] == "name":
                    self._undeclared(shape[1], self.text.span(base + item.start, base + item.end))
            return Vector(tuple(item[0] for item in items), span), ("vector", *(item[1] for item in items))
        if isinstance(node, raw.Or):
            first, second = self._operand(node.first, base), self._operand(node.second, base)
            return Pair(first[0], second[0], span), ("pair", first[1], second[1])
        if isinstance(node, raw.Not):
            inner, shape = self._operand(node.operand, base)
            if shape[0] == "name":
                self._undeclared(shape[1], span)
            return Negated(inner, span), ("not", shape)
        if isinstance(node, (raw.Offset, raw.Element)):
            found, offset = self._place(node, base)
            if isinstance(found, Register):
                raise PtxError("a register with an offset is an address", span=span, hint="write it in brackets: [%rd1+4]")
            return Symbol(found, offset, span), ("symbol",)
        raise PtxError(f"{shorten(self.code[base + node.start : base + node.end])!r} is no operand", span=span)

    def _name(self, name: str, span: Span) -> Meaning:
        known = self.names.get(name)
        if known is None:
            if name == "_":
                return Sink(span), ("sink",)
            if name[0] == "%" and (special := special_type(name[1:])) is not None:
                return SpecialRegister(name[1:], span), ("special", special.name)
            if name == "WARP_SZ":
                return Immediate(32, "int", span), ("integer",)
            variable = self.module.variables.get(name)
            if variable is not None:
                return Symbol(variable, 0, span), ("symbol",)
            function = self.module.functions.get(name) or self.module.aliases.get(name)
            if function is not None:
                return Symbol(function, 0, span), ("function",)
            special = None if name[0] != "%" else special_type(f"{name[1:]}.x")
            if special is not None:
                parts = tuple(SpecialRegister(f"{name[1:]}.{part}", span) for part in "xyz")
                return Vector((*parts, Immediate(0, "int", span)), span), ("vector", *[("special", "u32")] * 3, ("integer",))
            return LabelOperand(name, -1, span), ("name", name)
        if isinstance(known[0], Variable):
            return Symbol(known[0], 0, span), ("symbol",)
        return known

    def _place(self, node: raw.Node, base: int) -> tuple[Register | Variable | Function, int]:
        """What ``name``, ``name + offset`` or ``name[index]`` denotes, and the offset in bytes."""
        offset = 0
        if isinstance(node, raw.Offset):
            offset, node = node.amount, node.base
        index = 0
        if isinstance(node, raw.Element):
            index, node = node.index, node.base
        if not isinstance(node, raw.Name):
            raise PtxError("expected a name here", span=self.text.span(base + node.start, base + node.end))
        found: Any = self.names.get(node.text)
        found = found[0] if found is not None else self._symbol(node.text)
        if not isinstance(found, (Register, Variable, Function)):
            self._undeclared(node.text, self.text.span(base + node.start, base + node.end))
        if index and isinstance(found, Variable):
            offset += index * found.type.bytes * found.vector
        return found, offset

    def _address(self, node: raw.Brackets, base: int, span: Span) -> Meaning:
        inner = node.items[0]
        further: tuple[Operand, ...] = tuple(self._operand(item, base)[0] for item in node.items[1:])
        if isinstance(inner, raw.Number):
            if inner.kind[0] == "f":
                raise PtxError("an address is no floating-point number", span=span)
            return Address(None, inner.value, span, further), ("address", None, None)
        found, offset = self._place(inner, base)
        if isinstance(found, Register):
            return Address(found, offset, span, further), ("address", None, found.type.name)
        if isinstance(found, Function):
            raise PtxError(f"{found.name!r} is a function, its code cannot be accessed", span=span)
        return Address(found, offset, span, further), ("address", found.space, None)

    # -- calls and branches ----------------------------------------------------------------------------------------------

    def _call(self, found: re.Match[str], start: int, span: Span) -> None:
        node = self._call_node(found, start)
        parts = list(node.operands)
        returns: tuple[raw.Node, ...] = ()
        arguments: tuple[raw.Node, ...] = ()
        if parts and isinstance(parts[0], raw.Parens):
            returns = parts.pop(0).items  # type: ignore[union-attr]
        if not parts or not isinstance(parts[0], raw.Name):
            raise PtxError("'call' names no function", span=span, hint="accepted: call (returns), function, (arguments);")
        callee = parts.pop(0)
        if parts and isinstance(parts[0], raw.Parens):
            arguments = parts.pop(0).items  # type: ignore[union-attr]
        last = parts.pop(0) if parts else None
        if parts or not (last is None or isinstance(last, raw.Name)):
            raise PtxError("'call' has an operand too many", span=span)
        target = self._target(callee, last, start, span)  # type: ignore[arg-type]
        function, register, candidates, prototype = target
        call = CallTarget(
            function, register, candidates, prototype,
            tuple(self._argument(item, start) for item in returns),
            tuple(self._argument(item, start) for item in arguments), span,
        )  # fmt: skip
        self._match_signature(call, span)
        guard = self._guard(found) if found["guard"] else None
        spelling, _ = self._judge(node.opcode, (("call",),), [], found.start("opcode"), span)
        self._emit(Instruction(node.opcode, spelling, (call,), guard, span, 0))

    def _call_node(self, found: re.Match[str], start: int) -> raw.Instruction:
        """Common forms by hand, all others by the grammar."""
        offset = found.start("operands") - start
        operands: list[raw.Node] = []
        for piece in self._split(found["operands"]) or ():
            stripped = piece.strip()
            place = offset + len(piece) - len(piece.lstrip())
            node: raw.Node | None
            if stripped[:1] == "(" and stripped[-1:] == ")" and stripped.count("(") == 1:
                braces = shapes.operand("{" + stripped[1:-1] + "}", place) if stripped[1:-1].strip() else raw.Braces((), place, place + 2)
                node = raw.Parens(braces.items, braces.start, braces.end) if isinstance(braces, raw.Braces) else None
            else:
                node = shapes.operand(stripped, place)
            if node is None:
                return self.grammar.instruction(self.text, start, found.end())
            operands.append(node)
            offset += len(piece) + 1
        return raw.Instruction(None, False, found["opcode"], 0, 0, tuple(operands))

    def _target(
        self, callee: raw.Name, last: raw.Name | None, base: int, span: Span
    ) -> tuple[Function | None, Register | None, tuple[Function, ...], Prototype | None]:
        known = self.names.get(callee.text)
        where = self.text.span(base + callee.start, base + callee.end)
        if known is None or not isinstance(known[0], Register):
            function = self.module.functions.get(callee.text) or self.module.aliases.get(callee.text)
            if function is None:
                hint = nearest(callee.text, self.module.functions, noun="function")
                raise PtxError(f"call of {callee.text!r}, which is not declared", span=where, hint=hint)
            if function.is_entry:
                raise PtxError(f"call of {callee.text!r}, which is a kernel", span=where, hint="only .func can be called")
            return function, None, (function,), None
        if last is None:
            raise PtxError("an indirect call needs a list of targets or a prototype", span=span)
        signature = self.names.get(last.text)
        if signature is not None and isinstance(signature[0], Prototype):
            return None, known[0], (), signature[0]
        table = self._find_table(self.scope, last.text)
        where = self.text.span(base + last.start, base + last.end)
        if table is None or table[0] != ".calltargets":
            raise PtxError(f"{last.text!r} is neither .calltargets nor .callprototype", span=where)
        candidates = []
        for member in table[1]:
            function = self.module.functions.get(member.text)
            if function is None:
                place = self.text.span(table[2] + member.start, table[2] + member.end)
                raise PtxError(f"call target {member.text!r} is not declared", span=place)
            candidates.append(function)
        return None, known[0], tuple(candidates), None

    def _argument(self, node: raw.Node, base: int) -> Operand:
        operand, shape = self._operand(node, base)
        if shape[0] == "name":
            self._undeclared(shape[1], operand.span)
        if isinstance(operand, Symbol) and isinstance(operand.target, Variable) and operand.target.space == "param":
            return operand.target
        return operand  # type: ignore[no-any-return]

    def _match_signature(self, call: CallTarget, span: Span) -> None:
        callee = call.function or call.prototype or (call.candidates[0] if call.candidates else None)
        if callee is None:
            return
        if len(call.arguments) != len(callee.params) or len(call.returns) != len(callee.returns):
            raise PtxError(
                f"call of {callee.name!r} with {len(call.arguments)} arguments and {len(call.returns)} results", span=span,
                hint=f"it takes {len(callee.params)} and gives {len(callee.returns)}",
            )  # fmt: skip

    @staticmethod
    def _find_table(scope: _Scope | None, name: str) -> tuple[str, tuple[raw.Name, ...], int] | None:
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.parent
        return None

    def _find_label(self, scope: _Scope | None, name: str, span: Span) -> LabelOperand:
        while scope is not None:
            found = scope.labels.get(name)
            if found is not None:
                return LabelOperand(name, found.index, span)
            scope = scope.parent
        hint = nearest(name, self.function.labels, noun="label")
        raise PtxError(f"label {name!r} is not declared", span=span, hint=hint)

    def _connect(self) -> None:
        """Gives branches their targets, now that all labels are known."""
        for instruction, scope in self.fixups:
            position = len(instruction.operands) - 1
            named = instruction.operands[position]
            assert isinstance(named, LabelOperand)
            if instruction.effect == "branch":
                label = self._find_label(scope, named.name, named.span)
                instruction.operands = (*instruction.operands[:position], label)
                instruction.targets = (label,)
                continue
            table = self._find_table(scope, named.name)
            if table is None or table[0] != ".branchtargets":
                raise PtxError(f"{named.name!r} is no list of .branchtargets", span=named.span)
            instruction.targets = tuple(
                self._find_label(scope, member.text, self.text.span(table[2] + member.start, table[2] + member.end))
                for member in table[1]
            )


def _convert(number: Immediate, name: str) -> Immediate:
    if number.kind == name or number.kind == "int":
        return number
    value = float(constants.value_of((number.value, number.kind)))
    if name == "f64":
        return Immediate(constants.bits_of_double(value), "f64", number.span)
    try:
        pattern = int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        pattern = 0xFF800000 if value < 0 else 0x7F800000
    return Immediate(pattern, "f32", number.span)

