"""PTX text to functions and variables: tokenizer, scopes and a recursive reader.

Names are resolved while reading, so the interpreter sees register numbers, variables and statement
indices only. Labels may be used before they stand and are resolved when the body ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WIDTHS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "b128": 128, "f16": 16, "bf16": 16, "f32": 32,
          "f64": 64, "f16x2": 32, "bf16x2": 32, "tf32": 32, "u16x2": 32, "s16x2": 32, "u8x4": 32, "s8x4": 32,
          "e4m3x2": 16, "e5m2x2": 16}  # fmt: skip
WIDTHS.update({f"{kind}{width}": width for kind in "su" for width in (8, 16, 32, 64)})
SPACES = ("reg", "global", "shared", "const", "local", "param")

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\.(?:loc|file)\b[^\n]*)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<float>0[fF][0-9A-Fa-f]{8}\b|0[dD][0-9A-Fa-f]{16}\b|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      |(?P<int>0[xX][0-9A-Fa-f]+U?|0[bB][01]+U?|\d+U?)
      |(?P<word>[A-Za-z_$%][\w$]*)
      |(?P<dot>\.\w+(?:::\w+)*)
      |(?P<punct><<|>>|[-+*/%&|^~!<>=@(){}\[\],;:])""",
    re.VERBOSE | re.DOTALL,
)


class PtxError(Exception):
    """The text is not PTX that the oracle understands."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Register:
    index: int
    width: int
    name: str


@dataclass(eq=False)
class Variable:
    """A variable or parameter; ``offset`` is its place in its space or frame, set by the layout."""

    name: str
    space: str
    type: str
    align: int
    size: int
    values: list[tuple[int, int, object]] = field(default_factory=list)  # offset, size, value
    external: bool = False
    unsized: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Number:
    """An immediate; ``width`` is 0 for integers, 32 or 64 for float literals (then ``value`` holds bits)."""

    value: int
    width: int = 0


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, label or function plus a constant, or a special register's name."""

    name: str
    target: object
    offset: int = 0


@dataclass(frozen=True)
class Address:
    base: object | None
    offset: int


@dataclass(frozen=True)
class Vector:
    items: tuple[object, ...]


@dataclass(frozen=True)
class Arguments:
    items: tuple[object, ...]


@dataclass(frozen=True)
class Pair:
    first: object
    second: object


@dataclass(frozen=True)
class Not:
    operand: object


@dataclass(frozen=True)
class Sink:
    pass


@dataclass(eq=False)
class Statement:
    """One instruction: its opcode as written, its parts, operands and guard."""

    opcode: str
    operands: list[object]
    line: int
    guard: Register | None = None
    guard_value: int = 1
    index: int = 0
    block: int = 0
    ends_block: bool = False

    @property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> list[str]:
        return self.opcode.split(".")[1:]


@dataclass(eq=False)
class Function:
    name: str
    is_entry: bool
    returns: list[Variable | Register] = field(default_factory=list)
    parameters: list[Variable | Register] = field(default_factory=list)
    code: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: int = 0
    variables: list[Variable] = field(default_factory=list)
    defined: bool = False


@dataclass
class Module:
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    target: str = ""


class Scope:
    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, object] = {}

    def find(self, name: str) -> object | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


@dataclass(eq=False)
class Label:
    """A label of one scope; ``targets`` when it names a ``.branchtargets`` list."""

    name: str
    position: int = -1
    targets: list[str] | None = None


def tokenize(text: str) -> list[Token]:
    tokens, position, line = [], 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise PtxError(f"line {line}: cannot read {text[position : position + 20]!r}")
        kind, piece = match.lastgroup or "", match.group()
        if kind != "skip":
            tokens.append(Token(kind, piece, line))
        line += piece.count("\n")
        position = match.end()
    return tokens


def constant(operator: str, left: int, right: int) -> int:
    """A binary operator of constant expressions; division truncates."""
    if operator in ("<<", ">>"):
        return left << right if operator == "<<" else left >> right
    if operator in ("/", "%"):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    return {
        "|": left | right,
        "^": left ^ right,
        "&": left & right,
        "+": left + right,
        "-": left - right,
        "*": left * right,
    }[operator]


def integer(text: str) -> int:
    text = text.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text[1].isdigit():
        return int(text, 8)
    return int(text, 0)


class Reader:
    """Recursive reader over the tokens of one module."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0
        self.module = Module()
        self.scope = Scope()
        self.function: Function | None = None
        self.pending: list[tuple[Statement, Scope]] = []

    # -- tokens

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise PtxError("the text ends in the middle of a statement")
        self.at += 1
        return self.tokens[self.at - 1].text

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            line = self.tokens[min(self.at, len(self.tokens) - 1)].line
            raise PtxError(f"line {line}: expected {text!r}, found {self.peek()!r}")

    def skip_past(self, text: str) -> None:
        while self.take() != text:
            pass

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
            if self.take() == ".pragma":
                self.skip_past(";")
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
        name = self.take()
        if name == "generic":
            self.expect("(")
            inner = self.symbol_value()
            self.expect(")")
            name, offset = inner.name, inner.offset
        else:
            offset = 0
        while self.peek() in ("+", "-"):
            offset += self.expression_signed()
        return Symbol(name, None, offset)

    def expression_signed(self) -> int:
        sign = 1
        while self.peek() in ("+", "-"):
            sign *= -1 if self.take() == "-" else 1
        return sign * self.atom()

    # -- constant expressions

    LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))

    def expression(self, level: int = 0) -> int:
        if level == len(self.LEVELS):
            return self.atom()
        left = self.expression(level + 1)
        while self.peek() in self.LEVELS[level]:
            operator = self.take()
            right = self.expression(level + 1)
            left = constant(operator, left, right)
        return left

    def atom(self) -> int:
        token = self.take()
        if token == "-":
            return -self.atom()
        if token == "+":
            return self.atom()
        if token == "~":
            return ~self.atom()
        if token == "!":
            return int(not self.atom())
        if token == "(":
            if self.kind() == "dot":  # a cast
                self.take()
                self.expect(")")
                return self.atom()
            value = self.expression()
            self.expect(")")
            return value
        if token == "WARP_SZ":
            return 32
        if not token[:1].isdigit():
            raise PtxError(f"line {self.tokens[self.at - 1].line}: expected a number, found {token!r}")
        return integer(token)

    def float_literal(self) -> Number:
        from .floats import F64, from_python

        text = self.take()
        if text[:2] in ("0f", "0F"):
            return Number(int.from_bytes(bytes.fromhex(text[2:]), "big"), 32)
        if text[:2] in ("0d", "0D"):
            return Number(int.from_bytes(bytes.fromhex(text[2:]), "big"), 64)
        return Number(from_python(F64, float(text)), 64)

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
            if base is None:
                offset = self.expression()
            while self.peek() in ("+", "-"):
                offset += self.expression_signed()
            self.expect("]")
            return Address(base, offset)
        if self.accept("{"):
            return Vector(self.list_until("}"))
        if self.peek() == "(" and is_call:
            self.take()
            return Arguments(self.list_until(")"))
        first = self.simple()
        return Pair(first, self.simple()) if self.accept("|") else first

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
        if self.kind() != "word" or self.peek() == "WARP_SZ":
            return Number(self.expression())
        name = self.take()
        if name == "_":
            return Sink()
        component = self.take()[1:] if self.kind() == "dot" else ""
        found = self.scope.find(name)
        if component and isinstance(found, Vector):
            return found.items["xyzw".find(component) if component in "xyzw" else "rgba".find(component)]
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
            return Address(self.bind(operand.base, scope), operand.offset)
        if isinstance(operand, Arguments):
            return Arguments(tuple(self.bind(item, scope) for item in operand.items))
        return operand


def parse(text: str) -> Module:
    """Read a PTX module. Raises :class:`PtxError` with the line when the text is not understood."""
    return Reader(text).read()
