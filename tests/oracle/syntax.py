"""The parts of a PTX module once it has been read: names are resolved to these objects."""

from __future__ import annotations

from dataclasses import dataclass, field

WIDTHS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "b128": 128, "f16": 16, "bf16": 16, "f32": 32,
          "f64": 64, "f16x2": 32, "bf16x2": 32, "tf32": 32, "u16x2": 32, "s16x2": 32, "u8x4": 32, "s8x4": 32,
          "f32x2": 64, "e4m3x2": 16, "e5m2x2": 16, "e3m2x2": 16, "e2m3x2": 16, "e2m1x2": 8, "ue8m0x2": 16, "e4m3": 8,
          "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 4, "s4": 4, "u4": 4, "s2": 2, "u2": 2,
          "b1": 1}  # fmt: skip
WIDTHS.update({f"{kind}{width}": width for kind in "su" for width in (8, 16, 32, 64)})
SPACES = ("reg", "global", "shared", "const", "local", "param")


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
    """The address of a variable, label or function plus a constant, or a special register's name; a generic address in
    ``generic(name)``."""

    name: str
    target: object
    offset: int = 0
    generic: bool = False


@dataclass(frozen=True)
class Address:
    """``coordinates`` are those of a tensor whose map is at the address."""

    base: object | None
    offset: int
    coordinates: tuple[object, ...] = ()


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
class Part:
    """A part of a register, ``b0`` … ``b7654`` or ``h0`` …, for the video instructions."""

    register: Register
    name: str


@dataclass(frozen=True)
class Negated:
    operand: object


@dataclass(frozen=True)
class Sum:
    """An integer register plus a constant."""

    register: Register
    offset: int


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
    cluster: tuple[int, ...] = ()  # .reqnctapercluster


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
