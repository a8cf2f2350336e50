"""PTX text to functions and variables: scopes and a recursive reader.

Names are resolved while reading, so the interpreter sees register numbers, variables and statement
indices only. Labels may be used before they stand and are resolved when the body ends.
"""

from __future__ import annotations

from functools import lru_cache

from .syntax import (
    SPACES,
    WIDTHS,
    Address,
    Arguments,
    Function,
    Label,
    Module,
    Negated,
    Not,
    Number,
    Pair,
    Part,
    Register,
    Scope,
    Sink,
    Statement,
    Sum,
    Symbol,
    Variable,
    Vector,
)
from .tokens import Cursor, PtxError, integer


class Reader(Cursor):
    """Recursive reader over the tokens of one module."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.module = Module()
        self.scope = Scope()
        self.function: Function | None = None
        self.pending: list[tuple[Statement, Scope]] = []

    # -- module level

    def read(self) -> Module:
        while self.at < len(self.tokens):
            word = self.peek()
            if word in (".version", ".address_size"):
                self.take()
                self.take()
            elif word == ".target":
                self.take()
                self.module.target = self.take()
                while self.accept(","):
                    self.take()
            elif word == ".section":
                self.skip_past("{")
                self.skip_past("}")
            elif word in (".pragma", ".alias"):
                self.skip_past(";")
            else:
                self.declaration()
        return self.module

    def declaration(self) -> None:
        external = False
        while self.peek() in (".visible", ".extern", ".weak", ".common", ".attribute"):
            word = self.take()
            external |= word == ".extern"
            if word == ".attribute":
                self.skip_past(")")
        if self.peek() in (".entry", ".func"):
            self.read_function()
        else:
            for variable in self.variables(external):
                assert isinstance(variable, Variable)
                self.module.variables[variable.name] = variable

    def read_function(self) -> None:
        is_entry = self.take() == ".entry"
        outer, self.scope = self.scope, Scope(self.scope)
        self.function = function = Function("", is_entry)
        while self.peek() == ".attribute":
            self.skip_past(")")
        if not is_entry and self.peek() == "(":
            function.returns = self.parameters()
        function.name = self.take()
        if self.peek() == "(":
            function.parameters = self.parameters()
        known = self.module.functions.get(function.name)
        if known is None:
            self.module.functions[function.name] = function
        elif not known.defined:  # the definition of a declared function: keep the object that calls refer to
            known.returns, known.parameters = function.returns, function.parameters
            known.registers, known.is_entry = function.registers, is_entry
            known.variables = function.variables
            self.function = function = known
        while self.peek() not in ("{", ";"):
            word = self.take()
            if word == ".pragma":
                self.skip_past(";")
            elif word == ".reqnctapercluster":
                numbers = [integer(self.take())]
                while self.accept(","):
                    numbers.append(integer(self.take()))
                function.cluster = tuple(numbers)
        if not self.accept(";"):
            function.defined = True
            self.pending = []
            self.block()
            self.finish_body(function)
        self.scope = outer
        self.function = None

    def parameters(self) -> list[Variable | Register]:
        self.expect("(")
        result: list[Variable | Register] = []
        while not self.accept(")"):
            result += self.variables(False, one=True)
            self.accept(",")
        return result

    # -- declarations

    def variables(self, external: bool, one: bool = False) -> list[Variable | Register]:
        """``.space [.align n] [.vn] .type name…`` up to the semicolon (or one parameter)."""
        space, align, lanes, type_name, pointee = "", 0, 1, "", False
        while self.kind() == "dot":
            word = self.take()[1:]
            if word.split("::")[0] in SPACES and not space:
                space = word.split("::")[0]
            elif word == "align":
                number = integer(self.take())
                align = align if pointee else number
            elif word in ("v2", "v4"):
                lanes = int(word[1])
            elif word in WIDTHS:
                type_name = word
            elif word == "attribute":
                self.skip_past(")")
            elif word in ("texref", "samplerref", "surfref"):
                type_name = "u64"
            pointee |= word == "ptr"  # what follows describes what the parameter points to
        if not space or not type_name:
            raise PtxError(f"line {self.tokens[self.at - 1].line}: neither a declaration nor a directive")
        result: list[Variable | Register] = []
        while True:
            name = self.take()
            if self.accept("<"):
                count = integer(self.take())
                self.expect(">")
                for number in range(count):
                    self.declare_register(f"{name}{number}", type_name, lanes)
            elif space == "reg":
                result.append(self.declare_register(name, type_name, lanes))
            else:
                result.append(self.declare_variable(name, space, type_name, lanes, align, external))
            if one or not self.accept(","):
                break
        if not one:
            self.expect(";")
        return result

    def declare_register(self, name: str, type_name: str, lanes: int) -> Register:
        assert self.function is not None
        registers = []
        for _ in range(lanes):
            registers.append(Register(self.function.registers, WIDTHS[type_name], name))
            self.function.registers += 1
        self.scope.names[name] = registers[0] if lanes == 1 else Vector(tuple(registers))
        return registers[0]

    def declare_variable(self, name: str, space: str, type_name: str, lanes: int, align: int,
                         external: bool) -> Variable:  # fmt: skip
        element = WIDTHS[type_name] // 8 * lanes
        dimensions: list[int] = []
        while self.accept("["):
            dimensions.append(0 if self.peek() == "]" else self.expression())
            self.expect("]")
        values: list[tuple[int, int, object]] = []
        if self.accept("="):
            length = self.initialiser(values, 0, dimensions, element, type_name, lanes)
            if dimensions and dimensions[0] == 0:
                inner = element
                for dimension in dimensions[1:]:
                    inner *= dimension
                dimensions[0] = -(-length // inner)
        size = element
        for dimension in dimensions:
            size *= dimension
        unsized = bool(dimensions) and size == 0
        variable = Variable(name, space, type_name, max(align, element), size, values, external, unsized)
        self.scope.names[name] = variable
        if self.function is not None:
            self.function.variables.append(variable)
        return variable

    def initialiser(self, values: list[tuple[int, int, object]], at: int, dimensions: list[int], element: int,
                    type_name: str, lanes: int) -> int:  # fmt: skip
        """Collect ``(offset, size, value)`` of an initialiser that starts at byte ``at``; returns its end."""
        if not self.accept("{"):
            size = element // lanes
            values.append((at, size, self.initial_value(type_name)))
            return at + size
        inner = element
        for dimension in dimensions[1:]:
            inner *= dimension
        while not self.accept("}"):
            if self.peek() == "{":
                self.initialiser(values, at, dimensions[1:], element, type_name, lanes)
                at += inner if dimensions else element
            else:
                at = self.initialiser(values, at, [], element, type_name, lanes)
            self.accept(",")
        return at

    def initial_value(self, type_name: str) -> object:
        if self.kind() == "word":
            return self.symbol_value()
        negative = self.peek() == "-" and self.kind(1) == "float"
        if negative:
            self.take()
        if self.kind() == "float":
            number = self.float_literal()
            bits = number.value ^ ((1 << (number.width - 1)) if negative else 0)
            return Number(bits, number.width)
        value = self.expression()
        if self.accept("("):  # 0xFF(symbol): one byte of an address
            symbol = self.symbol_value()
            self.expect(")")
            return (value, symbol)
        return Number(value)

    def symbol_value(self) -> Symbol:
        name, generic = self.take(), False
        if name == "generic":
            self.expect("(")
            inner = self.symbol_value()
            self.expect(")")
            name, offset, generic = inner.name, inner.offset, True
        else:
            offset = 0
        while self.peek() in ("+", "-"):
            offset += self.expression_signed()
        return Symbol(name, None, offset, generic)

    # -- bodies

    def block(self) -> None:
        self.expect("{")
        outer, self.scope = self.scope, Scope(self.scope)
        while not self.accept("}"):
            self.statement()
        self.scope = outer

    def statement(self) -> None:
        assert self.function is not None
        word = self.peek()
        if word == "{":
            self.block()
        elif word == ";":
            self.take()
        elif word in (".pragma", ".noreturn", ".calltargets", ".callprototype"):
            self.skip_past(";")
        elif self.kind() == "dot":
            self.variables(False)
        elif self.kind() == "word" and self.peek(1) == ":":
            self.label()
        else:
            self.instruction()

    def label(self) -> None:
        assert self.function is not None
        name = self.take()
        self.take()
        label = Label(name, len(self.function.code))
        self.scope.names[name] = label
        if self.peek() == ".branchtargets":
            self.take()
            label.targets = [self.take()]
            while self.accept(","):
                label.targets.append(self.take())
            self.expect(";")
        elif self.peek() in (".callprototype", ".calltargets"):
            self.skip_past(";")
        else:
            unique = name if name not in self.function.labels else f"{name}@{label.position}"
            self.function.labels[unique] = label.position

    def instruction(self) -> None:
        assert self.function is not None
        line = self.tokens[self.at].line
        guard, value = None, 1
        if self.accept("@"):
            value = 0 if self.accept("!") else 1
            found = self.scope.find(self.take())
            if not isinstance(found, Register):
                raise PtxError(f"line {line}: the guard is not a declared predicate")
            guard = found
        opcode = self.take()
        while self.kind() == "dot":
            opcode += self.take()
        operands: list[object] = []
        while not self.accept(";"):
            operands.append(self.operand(opcode.startswith("call")))
            self.accept(",")
        statement = Statement(opcode, operands, line, guard, value, len(self.function.code))
        self.function.code.append(statement)
        self.pending.append((statement, self.scope))

    def operand(self, is_call: bool = False) -> object:
        if self.accept("!"):
            return Not(self.operand())
        if self.accept("["):
            base = self.simple() if self.kind() == "word" else None
            offset = 0
            if isinstance(base, Sum):
                base, offset = base.register, base.offset
            if base is None:
                offset = self.expression()
            while self.peek() in ("+", "-"):
                offset += self.expression_signed()
            coordinates = self.coordinates() if self.accept(",") else ()
            self.expect("]")
            return Address(base, offset, coordinates)
        if self.accept("{"):
            return Vector(self.list_until("}"))
        if self.peek() == "(" and is_call:
            self.take()
            return Arguments(self.list_until(")"))
        first = self.simple()
        return Pair(first, self.simple()) if self.accept("|") else first

    def coordinates(self) -> tuple[object, ...]:
        self.expect("{")
        return self.list_until("}")

    def list_until(self, end: str) -> tuple[object, ...]:
        items = []
        while not self.accept(end):
            items.append(self.operand())
            self.accept(",")
        return tuple(items)

    def simple(self) -> object:
        if self.peek() == "-" and self.kind(1) == "float":
            self.take()
            number = self.float_literal()
            return Number(number.value ^ (1 << (number.width - 1)), number.width)
        if self.kind() == "float":
            return self.float_literal()
        if self.peek() == "-" and self.kind(1) == "word" and self.peek(1) != "WARP_SZ":
            self.take()
            return Negated(self.simple())
        if self.kind() != "word" or self.peek() == "WARP_SZ":
            return Number(self.expression())
        name = self.take()
        if name == "_":
            return Sink()
        component = self.take()[1:] if self.kind() == "dot" else ""
        found = self.scope.find(name)
        if component and isinstance(found, Vector):
            return found.items["xyzw".find(component) if component in "xyzw" else "rgba".find(component)]
        if component and isinstance(found, Register):
            return Part(found, component)
        if isinstance(found, Register) and self.peek() == "+":
            added = 0
            while self.peek() == "+":
                added += self.expression_signed()
            return Sum(found, added)
        if isinstance(found, (Register, Vector)):
            return found
        offset = 0
        while self.peek() in ("+", "-") and self.kind(1) in ("int", "punct"):
            offset += self.expression_signed()
        return Symbol(name + ("." + component if component else ""), found, offset)

    def finish_body(self, function: Function) -> None:
        """Bind what was used before it stood: labels, and symbols of inner scopes."""
        for statement, scope in self.pending:
            statement.operands = [self.bind(operand, scope) for operand in statement.operands]

    def bind(self, operand: object, scope: Scope) -> object:
        if isinstance(operand, Symbol) and (operand.target is None or isinstance(operand.target, Label)):
            found = scope.find(operand.name)
            if isinstance(found, Label) and found.targets is not None:
                positions = []
                for name in found.targets:
                    label = scope.find(name)
                    if not isinstance(label, Label):
                        raise PtxError(f"unknown label {name!r} in .branchtargets")
                    positions.append(label.position)
                return Symbol(operand.name, positions, 0)
            return Symbol(operand.name, found, operand.offset)
        if isinstance(operand, Address) and operand.base is not None:
            return Address(self.bind(operand.base, scope), operand.offset, operand.coordinates)
        if isinstance(operand, Arguments):
            return Arguments(tuple(self.bind(item, scope) for item in operand.items))
        return operand


@lru_cache(maxsize=4)
def parse(text: str) -> Module:
    """Read a PTX module, once for several launches. Raises :class:`PtxError` with the line when the text is not understood."""
    return Reader(text).read()
