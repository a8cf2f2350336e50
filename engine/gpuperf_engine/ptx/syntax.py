"""Instructions of a PTX module and their operands, after parsing and name resolution.

``ptx.parse.parse`` makes these from text; registers of nested ``{ }`` scopes are already flattened into one namespace per
function, labels into instruction indices, symbols into objects (``ptx.module``). Spans point into the PTX text, ``location`` into
the program that was compiled to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..isa.effects import CALL, Effect
from ..isa.system import SystemFunction
from ..isa.types import ScalarType
from ..source import SourcePosition, Span

if TYPE_CHECKING:
    from ..isa.table import Form
    from .module import Function

__all__ = [
    "Address",
    "CallTarget",
    "Guard",
    "Immediate",
    "Instruction",
    "LabelOperand",
    "Negated",
    "Operand",
    "Pair",
    "Prototype",
    "Register",
    "Sink",
    "SpecialRegister",
    "Sum",
    "Symbol",
    "Variable",
    "Vector",
]


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A virtual register of one function. ``index`` is dense from 0 within the function; ``vector`` registers
    (``.reg .v4 .f32 v``) are flattened into one register per component, named ``v.x`` …"""

    name: str
    type: ScalarType
    index: int
    span: Span


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. ``value`` is an ``int`` for integer constants (already folded), or the raw bit pattern for ``0f``/``0d``
    and decimal floating-point constants; ``kind`` is ``"int"``, ``"f32"`` or ``"f64"`` accordingly."""

    value: int
    kind: str
    span: Span


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """``%tid.x``, ``%laneid``, ``%clock64`` …: ``name`` is without the percent sign, with the component."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or function used as a value (``mov.u64 %rd1, table+8``)."""

    target: Variable | Function
    offset: int
    span: Span


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``. ``base`` is a register, a variable (any space, parameters included) or ``None`` (absolute);
    ``further`` are the other operands inside the brackets (``[texture, {x, y}]``)."""

    base: Register | Variable | None
    offset: int
    span: Span
    further: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Operand, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``."""

    first: Operand
    second: Operand
    span: Span


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p`` as a source operand."""

    operand: Operand
    span: Span


@dataclass(frozen=True, slots=True)
class Sum:
    """``r + 4`` as a source operand: an integer register plus a constant, modulo two to the power of the register's bits. The manual
    has such sums in addresses only; ptxas takes them for any source that is not a vector and adds before the instruction."""

    register: Register
    offset: int
    span: Span


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a discarded destination or an omitted source."""

    span: Span


@dataclass(frozen=True, slots=True)
class LabelOperand:
    """A label as target; ``index`` is the position in ``Function.instructions`` it stands before (may be one past the
    end); −1 for the name of a ``.branchtargets`` list, whose labels are the instruction's ``targets``."""

    name: str
    index: int
    span: Span


@dataclass(frozen=True, slots=True)
class Prototype:
    """``.callprototype`` signature: parameter variables (nameless ones get positional names)."""

    name: str
    returns: tuple[Variable, ...]
    params: tuple[Variable, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CallTarget:
    """Everything of a ``call``: ``function`` for direct calls, else ``register`` and the functions it may mean.

    ``returns`` and ``arguments`` are ``.param`` variables, registers or immediates as written.
    """

    function: Function | None
    register: Register | None
    candidates: tuple[Function, ...]
    prototype: Prototype | None
    returns: tuple[Operand, ...]
    arguments: tuple[Operand, ...]
    span: Span


@dataclass(slots=True, eq=False)
class Variable:
    """A declared variable or parameter. ``space`` is ``global shared const local param reg tex``; ``dims`` are the array
    dimensions, outermost first, ``()`` for scalars; the first may be ``None`` for ``[]``. ``size`` is in bytes (0 for
    ``[]``). ``initial`` holds the initial bytes (zero-padded to ``size``) or ``None``; ``relocations`` are ``(offset, width in
    bytes, target, addend, generic)`` for symbols in the initialiser. ``vector`` is 2, 4 or 8 for ``.v2`` …, else 1. ``members`` are
    those that the initialiser of a texture, sampler or surface sets, with the values as written."""

    name: str
    space: str
    type: ScalarType
    align: int
    dims: tuple[int | None, ...]
    size: int
    span: Span
    vector: int = 1
    linkage: str = ""  # "", "extern", "visible", "weak", "common"
    initial: bytes | None = None
    relocations: tuple[tuple[int, int, Variable | Function, int, bool], ...] = ()
    pointer_space: str | None = None  # of `.ptr .global .align 16` parameters
    pointer_align: int | None = None
    attributes: tuple[str, ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    function: Function | None = None  # owner of locals and parameters
    offset: int = 0  # parameters of entries: byte offset in the parameter buffer


Operand = (
    Register
    | Immediate
    | SpecialRegister
    | Symbol
    | Address
    | Vector
    | Pair
    | Negated
    | Sum
    | Sink
    | LabelOperand
    | CallTarget
    | Prototype
    | Variable
)


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p``."""

    register: Register
    negated: bool


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction. ``opcode`` is as written with all modifiers; ``form`` is its row with the modifiers bound.

    ``index`` is the position in ``Function.instructions``. ``targets`` are the possible targets of ``brx.idx`` in table
    order (or the single target of ``bra``).
    """

    opcode: str
    form: Form
    operands: tuple[Operand, ...]
    guard: Guard | None
    span: Span
    index: int
    location: SourcePosition | None = None
    targets: tuple[LabelOperand, ...] = ()
    pragmas: tuple[str, ...] = ()
    #: cached results of ``flow.operands``, which every analysis uses
    registers_read: tuple[Register, ...] | None = field(default=None, repr=False)
    registers_written: tuple[Register, ...] | None = field(default=None, repr=False)

    @property
    def effect(self) -> Effect:
        """What it does beyond computing its destinations; see ``isa.effects``."""
        return self.form.effect

    @property
    def call(self) -> CallTarget | None:
        """Callee, arguments and results of a ``call``, ``None`` for other instructions."""
        first = self.operands[0] if self.operands else None
        return first if isinstance(first, CallTarget) else None

    @property
    def system(self) -> SystemFunction | None:
        """The system function that a ``call`` calls, ``None`` for other calls and instructions."""
        call = self.call if self.form.effect is CALL else None
        return None if call is None or call.function is None else call.function.system
