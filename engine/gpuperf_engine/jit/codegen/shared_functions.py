"""Functions that instructions and parts of blocks share (``outlined``): what they are given, and their code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ...isa.evaluation import evaluate
from ...isa.types import ScalarType, scalar_type
from ...ptx.syntax import Address, Immediate, Instruction, Register
from ..ir.access_records import SITE_BYTES
from ..ir.emitter import Emitter
from ..ir.operands import Ref, lanes_of, scalar_ll, vector_ll
from ..ir.values import NativeValue
from .block import PRED, BlockWriter
from .generator import CodeGenerator
from .procedures import Procedure, make_procedure

__all__ = [
    "SHARED_PREFIX", "ControlWriter", "EffectWriter", "Held", "PureWriter", "SharedFunction", "function_table", "held_as", "is_masked",
    "keep_text", "shared_function",
]  # fmt: skip

#: prefix of the names of shared functions
SHARED_PREFIX = "form_"
_S64 = scalar_type("s64")


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """A shared function. ``needs``: declarations of the runtime functions and intrinsics that it calls, by name."""

    name: str
    text: str
    declaration: str
    needs: dict[str, str]

    @property
    def is_own(self) -> bool:
        """Whether it is part of each module that calls it: a function that calls others is no object of the runtime."""
        return not all(name.startswith("llvm.") for name in self.needs)


_texts: dict[str, str] = {}


def shared_function(name: str) -> str:
    """The IR of a shared function. Raises ``KeyError`` if no code that this process generated calls it."""
    return _texts[name]


def keep_text(function: SharedFunction) -> None:
    """Keep the IR of a function that is an object of the runtime."""
    _texts[function.name] = "\n".join([*function.needs.values(), function.text, ""])


def function_table(generator: CodeGenerator) -> list[str]:
    """The addresses of the shared functions: calls by name, which may be far away, are selected slowly."""
    entries = [f"ptr @{name}" for name in generator.functions]
    table = f"@outlined = internal constant [{len(entries)} x ptr] [{', '.join(entries)}]"
    return [*filter(None, generator.functions.values()), table] if entries else []


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """How a register is given to a function, one object for each way (``held_as``). ``kind``: ``vector``, at an offset in the state;
    ``same``, a scalar there; ``uniform``, by value; ``number``, by the bits of its constant value; ``constant``, not at all. ``read``,
    ``written``: in which role; ``masked``: whether lanes outside the mask keep its value."""

    type: ScalarType
    kind: str
    number: int = 0
    read: bool = False
    written: bool = False
    masked: bool = False


@lru_cache(4096)
def held_as(
    type: ScalarType,
    kind: str,
    number: int = 0,
    *,
    read: bool = False,
    written: bool = False,
    masked: bool = False,
) -> Held:
    """A ``Held``. Keys of functions contain several of them, so that they are compared as objects."""
    return Held(type, kind, number, read, written, masked)


def is_masked(held: Mapping[Register, Held]) -> bool:
    return any(item.masked for item in held.values())


class PureWriter(BlockWriter):
    """Writes the function of an instruction, for registers that are given as ``held``."""

    def __init__(
        self,
        to: BlockWriter,
        instruction: Instruction,
        held: dict[Register, Held],
        by_value: list[tuple[int, NativeValue]],
    ) -> None:
        super().__init__(to.generator, to.block, to.function)
        self.writer = Emitter()
        self.current = instruction
        self.held = held
        self.arguments = {
            id(instruction.operands[position]): (f"%i{position}", value.type) for position, value in by_value
        }

    def _immediate(self, operand: Immediate, type: ScalarType) -> NativeValue:
        if id(operand) not in self.arguments:
            return super()._immediate(operand, type)
        return self._argument(*self.arguments[id(operand)])

    def _argument(self, name: str, type: ScalarType) -> NativeValue:
        """An argument with the bits of a value."""
        text = Ref(f"i{type.bits}", name)
        if scalar_ll(type) != text.type:
            text = self.writer.bitcast(text, scalar_ll(type))
        return NativeValue(self.writer, type, text, True)

    def shared(self) -> SharedFunction:
        """The function, named by its content."""
        writer, instruction = self.writer, self.current
        assert instruction is not None
        writer.start("entry")
        given = ["ptr %st"]
        cells = self._load_registers(given)
        given += [f"i{type.bits} {name}" for name, type in self.arguments.values()]
        results = evaluate(instruction.form, self.sources(instruction))
        self.assign(instruction, [item for item in results if isinstance(item, NativeValue)], None)
        if is_masked(self.held):
            given.append("i32 %mask")
            self.mask = Ref("i32", "%mask")
            self.lanes = writer.bitcast(self.mask, lanes_of("i1"))
        for register in self.dirty:
            self._put(self.held[register], self.values[register], cells[register])
        writer.do("ret void")
        body = "\n".join([f"({', '.join(given)}) nounwind {{", *writer.lines, "}"])
        name = SHARED_PREFIX + hashlib.blake2b(body.encode(), digest_size=12).hexdigest()
        types = ", ".join(item.split()[0] for item in given)
        made = SharedFunction(name, "", f"declare void @{name}({types})", writer.needs)
        return replace(made, text=f"define {'internal ' * made.is_own}void @{name}{body}")

    def _load_registers(self, given: list[str]) -> dict[Register, str]:
        """Load what is read, and add the parameters to ``given``. Returns the places of registers in memory."""
        writer = self.writer
        cells: dict[Register, str] = {}
        for number, (register, item) in enumerate(self.held.items()):
            parameter = f"%a{number}"
            if item.kind in ("vector", "same"):
                given.append(f"i32 {parameter}")
                cells[register] = writer.ref("ptr", f"getelementptr i8, ptr %st, i32 {parameter}")
            if item.read:
                self.values[register] = self._taken(item, parameter, cells.get(register, ""), given)
        return cells

    def _taken(self, item: Held, parameter: str, cell: str, given: list[str]) -> NativeValue:
        writer, type = self.writer, item.type
        if item.kind == "constant":
            return self.constant(item.number, type)
        if item.kind == "number":
            given.append(f"i{type.bits} {parameter}")
            return self._argument(parameter, type)
        if item.kind == "same":
            value = writer.load("i32" if type is PRED else scalar_ll(type), cell, min(16, type.bytes))
            return NativeValue(writer, type, writer.trunc(value, "i1") if type is PRED else value, True)
        if item.kind == "uniform":
            scalar = "i32" if type is PRED else scalar_ll(type)
            given.append(f"{scalar} {parameter}")
            text = Ref(scalar, parameter)
            return NativeValue(writer, type, writer.trunc(text, "i1") if type is PRED else text, True)
        if type is PRED:
            return NativeValue(writer, type, writer.bitcast(writer.load("i32", cell), lanes_of("i1")))
        return NativeValue(writer, type, writer.load(vector_ll(type), cell, 64))

    def _put(self, item: Held, value: NativeValue, cell: str) -> None:
        writer = self.writer
        if item.kind == "same":
            text = value.clean().scalar()
            writer.store(
                writer.zext(text, "i32") if item.type is PRED else text, cell, min(16, item.type.bytes)
            )
            return
        if item.type is PRED:
            bits = writer.bitcast(value.vector(), "i32")
            writer.store(self._blended_word(cell, bits) if item.masked else bits, cell)
            return
        text = value.clean().vector()
        if item.masked:
            text = writer.select(self.lanes, text, writer.load(vector_ll(item.type), cell, 64))
        writer.store(text, cell, 64)


class ControlWriter(BlockWriter):
    """Writes the function of a part of the control flow of a block."""

    charge = "%charge"

    def __init__(self, to: BlockWriter) -> None:
        super().__init__(to.generator, to.block, to.function)

    def procedure(self, write: Callable[[BlockWriter], object]) -> Procedure:
        """The function, written by ``write``."""

        def fill(writer: Emitter) -> bool:
            self.writer = writer
            self.mask = writer.load("i32", "%mask")
            write(self)
            return False

        return make_procedure(self.generator, (), fill)

    def load_mask(self) -> None:
        """The mask is loaded at the start."""

    def bump_block(self, column: int, amount: str) -> None:
        row = self.writer.place("%blocks", "%block")
        self.writer.bump(row, 8 * column * len(self.generator.program.blocks), amount)


class EffectWriter(PureWriter):
    """Writes the function of an instruction with an effect. ``guarded``: the lanes in which its guard holds are given."""

    place = "%place"
    reason = "%reason"
    wait_code = "%code"

    def __init__(
        self, to: BlockWriter, instruction: Instruction, held: dict[Register, Held], guarded: bool
    ) -> None:
        super().__init__(to, instruction, held, [])
        self.guarded = guarded

    def procedure(self, write: Callable[[BlockWriter], None]) -> Procedure:
        """The function, written by ``write``."""
        given: list[str] = []

        def fill(writer: Emitter) -> bool:
            self.writer = writer
            self.load_mask()
            cells = self._load_registers(given)
            write(self)
            for register in self.dirty:
                self._put(self.held[register], self.values[register], cells[register])
            return self.faulting

        return make_procedure(self.generator, given, fill)

    def guard(self, instruction: Instruction) -> NativeValue | None:
        if not self.guarded:
            return None
        return self.value(PRED, self.writer.bitcast(Ref("i32", "%guard"), lanes_of("i1")))

    def effective_mask(self, guard: NativeValue | None) -> Ref:
        return self.mask if guard is None else Ref("i32", "%guard")

    def site(self, instruction: Instruction) -> str:
        return "%site"

    def bump_site(self, instruction: Instruction, counter: int, amount: str) -> None:
        row = self.writer.mul(Ref("i64", "%site"), SITE_BYTES)
        self.writer.bump(self.writer.place("%sites", row), counter, amount)

    def moved(self, base: NativeValue, operand: Address) -> NativeValue:
        offset = NativeValue(self.writer, _S64, Ref("i64", "%offset"), True)
        moved = base + offset.convert(base.type)
        assert isinstance(moved, NativeValue)
        return moved

    def place_of(self, instruction: Instruction) -> int | str:
        return "%where"
