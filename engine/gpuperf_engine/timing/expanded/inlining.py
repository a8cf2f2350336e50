"""Functions that a kernel calls as a part of it, as PTX.

``nvcc`` leaves calls of functions that are not to be inlined, for example of the reduction of large angles for ``sin`` of doubles and
of ``pow``. ``ptxas`` passes their parameters in registers; here each part of a ``.param`` variable of a call becomes a register too.
What the call and the return cost, and that several calls share one copy of the code, is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...isa.effects import CALL, LOAD, RETURN, STORE
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.syntax import (
    Address,
    CallTarget,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from ...ptx.write import Names, table
from ...sass.run.writer import NotRun
from ...simt.call_graph import variables_of
from ...simt.program import Program
from .rewriting import Rewriter, Rewritten

__all__ = ["inlined"]

_DEEPEST = "it calls functions recursively, which is simulated on machine code only"
_BY_ADDRESS = "it calls functions by address, which is simulated on machine code only"
_IN_MEMORY = (
    "a parameter of a function that it calls is accessed by address, which is simulated on machine code only"
)
_IN_PARTS = "a parameter of a function that it calls is written and read in other parts, which is simulated on machine code only"
#: The most instructions with all functions in their places.
_MOST = 40_000


def inlined(program: Program) -> Rewritten | None:
    """The kernel of a program with the functions that it calls in place of the calls; ``None`` if it calls none. Raises ``NotRun``
    for calls by address, recursion and parameters that are accessed by address."""
    if len(program.functions) == 1:
        return None
    if program.recursive:
        raise NotRun(_DEEPEST)
    return _Inlining(program.kernel).written()


#: The registers that hold a variable: name and bytes by offset.
_Places = dict[int, tuple[str, int]]


@dataclass
class _Activation:
    """A function in one of its places. ``places``: of ``.param`` variables of calls, by their identity; ``end``: the label behind
    it, ``""`` for the kernel."""

    function: Function
    names: Names
    places: dict[int, _Places] = field(default_factory=dict)
    end: str = ""
    returns: bool = False


class _Callee(Names):
    """Names of a function in one of its places, unlike all others of the kernel; ``variables``: those of its variables."""

    def __init__(self, function: Function, kernel: Names, variables: dict[int, str]) -> None:
        super().__init__(function.module, function)
        self.kernel = kernel
        self.registers = [kernel.fresh(name) for name in self.registers]
        self.labels = {label: kernel.fresh(name) for label, name in self.labels.items()}
        self.at = {function.labels[label]: name for label, name in self.labels.items()}
        self.variables = variables

    def fresh(self, name: str) -> str:
        return self.kernel.fresh(name) if hasattr(self, "kernel") else super().fresh(name)


class _Inlining(Rewriter):
    def __init__(self, kernel: Function) -> None:
        super().__init__(kernel)
        #: Names of the variables of functions, which all their places share.
        self.variables: dict[Function, dict[int, str]] = {}

    def body(self) -> None:
        self.function(_Activation(self.kernel, self.names))

    def function(self, at: _Activation) -> None:
        function, names = at.function, at.names
        ends: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            ends.setdefault(index, []).append(f"{names.labels[label]}:")
        real = _of_system_calls(function)
        for number, item in enumerate(function.instructions):
            self.lines += ends.get(item.index, ())
            call = item.call
            if len(self.origins) > _MOST:
                raise NotRun("too much code")
            if call is not None and item.system is None:
                self.call(at, item, call)
            elif item.effect is RETURN and at.end:
                if item.guard is not None or number + 1 < len(function.instructions):
                    at.returns = True
                    self.line(f"{_guard(item, names)}bra {at.end};", item)
            elif (
                (variable := _parameter(item)) is not None
                and id(variable) not in real
                and (at.end or variable not in function.params)
            ):
                self.parameter(at, item, variable)
            else:
                if any(_is_passed(one, function, at) and id(one) not in real for one in _variables(item)):
                    raise NotRun(_IN_MEMORY)
                self.lines += table(item, names, len(self.origins))
                self.lines += [f'\t.pragma "{text}";' for text in item.pragmas]
                self.line(spell.instruction(item, names), item)
        self.lines += ends.get(len(function.instructions), ())

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, at: _Activation, item: Instruction, call: CallTarget) -> None:
        if call.function is None:
            raise NotRun(_BY_ADDRESS)
        callee = call.function.load()
        own = _Activation(callee, self.named(callee), end=self.names.fresh("$returned"))
        around = ""
        if item.guard is not None:
            around = self.names.fresh("$around")
            negated = "" if item.guard.negated else "!"
            self.line(f"@{negated}{at.names.register(item.guard.register)} bra {around};", item)
        self.pass_on(at, own, item, callee.params, call.arguments, inward=True)
        for formal, actual in zip(callee.returns, call.returns):
            if formal.space != "reg" and isinstance(actual, Variable):
                own.places[id(formal)] = self.places(at, actual)
        self.function(own)
        if own.returns:
            self.lines.append(f"{own.end}:")
        self.pass_on(at, own, item, callee.returns, call.returns, inward=False)
        if around:
            self.lines.append(f"{around}:")

    def named(self, callee: Function) -> Names:
        """The names of a function in a further place, with its registers declared, and its variables if this is the first one."""
        known = self.variables.get(callee)
        if known is None:
            known = self.variables[callee] = {
                id(variable): self.names.fresh(variable.name) for variable in callee.variables
            }
            real = _of_system_calls(callee)
            names = _Callee(callee, self.names, known)
            self.declared += [
                f"\t{spell.declare(variable, known[id(variable)], names)};"
                for variable in callee.variables
                if variable.space != "param" or id(variable) in real
            ]
        names = _Callee(callee, self.names, known)
        pairs = list(zip(callee.registers, names.registers))
        for kind, group in groupby(pairs, key=lambda pair: pair[0].type.name):
            self.declared.append(f"\t.reg .{kind} {', '.join(name for _, name in group)};")
        return names

    def pass_on(
        self,
        at: _Activation,
        own: _Activation,
        item: Instruction,
        formals: Sequence[Variable],
        actuals: Sequence[Operand],
        *,
        inward: bool,
    ) -> None:
        """Arguments to parameters, or results to where the caller has them."""
        registers = _registers_of(own.function)
        for formal, actual in zip(formals, actuals):
            if isinstance(actual, Sink):
                continue
            if formal.space == "reg":
                inner = own.names.register(registers[id(formal)])
                kind = registers[id(formal)].type
            elif isinstance(actual, Variable):
                own.places[id(formal)] = self.places(at, actual)
                continue
            else:
                kind, places = formal.type, own.places.setdefault(id(formal), {})
                inner = (
                    self.written_place(places, 0, kind.bytes)
                    if inward
                    else self.read_place(places, 0, kind.bytes, item)
                )
            if not isinstance(actual, Variable):
                outer = spell.operand(actual, at.names)
            elif inward:
                outer = self.read_place(self.places(at, actual), 0, kind.bytes, item)
            else:
                outer = self.written_place(self.places(at, actual), 0, kind.bytes)
            typed = "pred" if kind.name == "pred" else f"b{kind.bits}"
            if isinstance(actual, Immediate) and actual.kind in ("f32", "f64"):
                typed = actual.kind
            target, source = (inner, outer) if inward else (outer, inner)
            self.line(f"mov.{typed} {target}, {source};", item)

    # -- parameters ----------------------------------------------------------------------------------------------------

    def places(self, at: _Activation, variable: Variable) -> _Places:
        return at.places.setdefault(id(variable), {})

    def written_place(self, places: _Places, offset: int, size: int) -> str:
        """The register for a part of a variable that is written."""
        known = places.get(offset)
        if known is not None and known[1] == size:
            return known[0]
        if any(one < offset + size and offset < one + other for one, (_, other) in places.items()):
            # Which parts hold the value may depend on the branch that wrote it.
            raise NotRun(_IN_PARTS)
        places[offset] = self.passed(size), size
        return places[offset][0]

    def read_place(self, places: _Places, offset: int, size: int, item: Instruction) -> str:
        """A register with a part of a variable, composed of those that were written."""
        known = places.get(offset)
        if known is not None and known[1] == size:
            return known[0]
        parts = [
            (one, *place)
            for one, place in sorted(places.items())
            if one < offset + size and offset < one + place[1]
        ]
        if not parts:
            return self.written_place(places, offset, size)
        name, bits = self.passed(size), _bits(size)
        first, held, wide = parts[0]
        if len(parts) == 1 and first <= offset and offset + size <= first + wide:
            if first < offset:
                shifted = self.passed(wide)
                self.line(f"shr.b{_bits(wide)} {shifted}, {held}, {8 * (offset - first)};", item)
                held = shifted
            self.line(_converted(name, bits, held, _bits(wide)), item)
            return name
        if any(one < offset or offset + size < one + wide for one, _, wide in parts):
            raise NotRun(_IN_PARTS)
        if [(one - offset, wide) for one, _, wide in parts] == [
            (0, size // 2),
            (size // 2, size // 2),
        ] and size >= 4:
            self.line(f"mov.b{bits} {name}, {{{parts[0][1]}, {parts[1][1]}}};", item)
            return name
        self.line(f"mov.b{bits} {name}, 0;", item)
        for one, held, wide in parts:
            # What is above a byte in its register is not a part of it.
            piece, shifted = self.passed(size), self.passed(size)
            self.line(f"cvt.u{bits}.u{8 * wide} {piece}, {held};", item)
            self.line(f"shl.b{bits} {shifted}, {piece}, {8 * (one - offset)};", item)
            self.line(f"or.b{bits} {name}, {name}, {shifted};", item)
        return name

    def passed(self, size: int) -> str:
        """A further register of so many bytes, at least two."""
        if size > 8:
            raise NotRun(_IN_PARTS)
        name = self.names.fresh("%passed")
        self.declared.append(f"\t.reg .b{_bits(size)} {name};")
        return name

    def parameter(self, at: _Activation, item: Instruction, variable: Variable) -> None:
        """A load or store of a parameter as copies."""
        places, kind = self.places(at, variable), item.form.type
        assert kind is not None
        stores = item.effect is STORE
        address, value = item.operands if stores else reversed(item.operands)
        assert isinstance(address, Address)
        parts = value.elements if isinstance(value, Vector) else (value,)
        signed = "s" if kind.name.startswith("s") else "u"
        for number, part in enumerate(parts):
            offset, bits, other = (
                address.offset + number * kind.bytes,
                _bits(kind.bytes),
                spell.operand(part, at.names),
            )
            wide = part.type.bits if isinstance(part, Register) else bits
            if not stores:
                held = self.read_place(places, offset, kind.bytes, item)
                text = (
                    f"cvt.{signed}{wide}.{signed}{kind.bits} {other}, {held};"
                    if kind.bits < wide
                    else f"mov.b{bits} {other}, {held};"
                )
            else:
                held = self.written_place(places, offset, kind.bytes)
                text = (
                    f"mov.{part.kind} {held}, {other};"
                    if isinstance(part, Immediate) and part.kind in ("f32", "f64")
                    else _converted(held, bits, other, wide)
                )
            self.line(_guard(item, at.names) + text, item)


def _bits(size: int) -> int:
    """Bits of the register for so many bytes."""
    return max(16, 8 * size)


def _converted(target: str, bits: int, source: str, wide: int) -> str:
    return f"mov.b{bits} {target}, {source};" if bits == wide else f"cvt.u{bits}.u{wide} {target}, {source};"


def _guard(item: Instruction, names: Names) -> str:
    if item.guard is None:
        return ""
    return f"@{'!' if item.guard.negated else ''}{names.register(item.guard.register)} "


def _parameter(item: Instruction) -> Variable | None:
    """The ``.param`` variable that a load or store accesses by name."""
    if item.effect not in (LOAD, STORE) or item.form.space != "param":
        return None
    base = next((one.base for one in item.operands if isinstance(one, Address)), None)
    return base if isinstance(base, Variable) else None


def _variables(item: Instruction) -> Iterable[Variable]:
    """The variables that an instruction names."""
    for operand in item.operands:
        found = [operand.target] if isinstance(operand, Symbol) else variables_of(operand)
        yield from (one for one in found if isinstance(one, Variable))


def _is_passed(variable: Variable, function: Function, at: _Activation) -> bool:
    """Whether it is a variable of a call, or a parameter of a function other than the kernel."""
    return variable.space == "param" and (bool(at.end) or variable not in function.params)


def _of_system_calls(function: Function) -> set[int]:
    """The identities of the variables that system functions get, such as ``vprintf``."""
    calls = (item.call for item in function.instructions if item.effect is CALL and item.system is not None)
    return {
        id(one)
        for call in calls
        if call is not None
        for one in (*call.returns, *call.arguments)
        if isinstance(one, Variable)
    }


def _registers_of(function: Function) -> dict[int, Register]:
    """The registers of parameters and results that are registers, by the identity of the variable."""
    given = [one for one in (*function.params, *function.returns) if one.space == "reg"]
    return {id(variable): register for variable, register in zip(given, function.registers)}
