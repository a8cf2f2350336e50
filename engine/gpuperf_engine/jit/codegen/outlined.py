"""Blocks in which instructions of one form share a function: several times faster to compile, for programs that run little.

Vectors stay in the warp's state: registers that live across block edges in their slots, all others in ``Slots.scratch``. An
instruction with semantics and without effect is a call of a function, which loads its sources, computes, and stores its results;
instructions of the same form with operands of the same kinds share it, in all programs if it calls no other function. LLVM selects a
call through a pointer with scalar arguments in 10 µs (``FastISel``), but each operation on vectors in 20 µs, of which an instruction
has several. Everything else, and what is the same in all lanes, is written in line, in basic blocks of its own, since all that
precedes a vector operation in a basic block of LLVM is selected slowly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...flow.operands import reads, writes
from ...isa.effects import PURE
from ...isa.evaluation import evaluate
from ...isa.types import ScalarType
from ...ptx.syntax import Immediate, Instruction, Negated, Operand, Pair, Register, Sink, Vector
from ..ir.emitter import Emitter
from ..ir.operands import Ref, lanes_of, scalar_ll, vector_ll
from ..ir.values import NativeValue
from .block import PRED, BlockWriter
from .generator import CodeGenerator

__all__ = ["SHARED_PREFIX", "OutliningWriter", "function_table", "shared_function"]


#: prefix of the names of shared functions
SHARED_PREFIX = "form_"
#: rows whose semantics gain nothing from constant operands, which are given by value then
_PLAIN = frozenset(
    ["mov", "add", "sub", "mul", "mad", "fma", "and", "or", "xor", "setp", "selp", "min", "max"]
)
#: the most functions that a process remembers
_MOST = 4096


@dataclass(frozen=True, slots=True)
class _Function:
    """A shared function. ``needs``: declarations of the runtime functions and intrinsics that it calls, by name."""

    name: str
    text: str
    declaration: str
    needs: dict[str, str]

    @property
    def is_own(self) -> bool:
        """Whether it is part of each module that calls it: a function that calls others is no object of the runtime."""
        return not all(name.startswith("llvm.") for name in self.needs)


_known: dict[Hashable, _Function] = {}
_texts: dict[str, str] = {}


def shared_function(name: str) -> str:
    """The IR of a shared function. Raises ``KeyError`` if no code that this process generated calls it."""
    return _texts[name]


def function_table(generator: CodeGenerator) -> list[str]:
    """The addresses of the shared functions: calls by name, which may be far away, are selected slowly."""
    entries = [f"ptr @{name}" for name in generator.functions]
    table = f"@outlined = internal constant [{len(entries)} x ptr] [{', '.join(entries)}]"
    return [*filter(None, generator.functions.values()), table] if entries else []


@dataclass(frozen=True, slots=True)
class _Held:
    """How a register is given to a function. ``kind``: ``vector``, at an offset in the state; ``uniform``, by value; ``number``, by
    the bits of its constant value; ``constant``, not at all. ``read``, ``written``: in which role; ``masked``: whether lanes outside
    the mask keep its value."""

    type: ScalarType
    kind: str
    number: int = 0
    read: bool = False
    written: bool = False
    masked: bool = False


class OutliningWriter(BlockWriter):
    """Writes one block; see the module. ``calling``: whether the current basic block of LLVM holds calls only."""

    calling = False
    position = -1

    def write_instructions(self) -> None:
        scratch = self.generator.slots.scratch[self.block.index]
        self.scratch = scratch
        self.slots = {**self.slots, **scratch.offsets}
        super().write_instructions()
        self._in_line()

    def instruction(self, instruction: Instruction) -> None:
        """A call of a shared function if possible."""
        self.current = instruction
        if instruction in self.scratch.dead:
            self.position += 1
            return
        if not self._outline(instruction):
            if not self._is_scalar(instruction):
                self._in_line()
            super().instruction(instruction)
        self.position += 1

    def restart(self) -> None:
        self.calling = False
        super().restart()

    def _is_scalar(self, instruction: Instruction) -> bool:
        """Whether an instruction computes the same in all lanes, so that it is written without vectors."""
        if instruction.effect is not PURE or instruction in self.refused:
            return False
        constants = self.generator.slots.constants[self.number]
        return all(
            register in self.uniform or register in constants
            for register in (*writes(instruction), *reads(instruction))
        ) and None not in _opened(instruction.operands)

    # -- basic blocks of LLVM ------------------------------------------------------------------------------------------

    def _in_line(self) -> None:
        """Begin a basic block for vectors, unless this is one."""
        if self.calling:
            self.calling = False
            self._part()
            self.lanes = self.writer.bitcast(self.mask, lanes_of("i1"))

    def _call(self) -> None:
        """Move all vectors to memory and begin a basic block for calls, unless this is one."""
        if self.calling:
            return
        for register in list(self.dirty):
            if register in self.uniform:
                continue
            if register in self.slots and self.scratch.last.get(register, self.position + 1) > self.position:
                self._store(register, self.values[register])
            del self.dirty[register]
        self.values = {
            register: value
            for register, value in self.values.items()
            if value.uniform and register in self.uniform
        }
        self._part()
        self.calling = True

    def _part(self) -> None:
        self.writer.enter(self.writer.label("part"))
        self.writer.forget()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _outline(self, instruction: Instruction) -> bool:
        """Write a call for an instruction. Returns whether there can be one."""
        written = writes(instruction)
        if instruction.effect is not PURE or not written or not self.uniform.isdisjoint(written):
            return False
        operands = list(_opened(instruction.operands))
        guarded = instruction.guard is not None and not (
            self.block.guard_applied and instruction is self.block.instructions[0]
        )
        held = self._held(instruction, guarded) if self._can_share(instruction, operands) else None
        if held is None:
            return False
        self._call()
        mask = self._mask(instruction) if guarded else self.mask
        by_value = self._by_value(instruction)
        place = self._function(instruction, operands, held, by_value)
        given = ["ptr %st"]
        for register, item in held.items():
            if item.kind == "vector":
                given.append(f"i32 {self.slots[register]}")
            elif item.kind == "number":
                given.append(f"i{item.type.bits} {self.read(register).number}")
            elif item.kind == "uniform":
                value = self.read(register)
                text = self.bits_of(value) if item.type is PRED else value.clean().scalar()
                given.append(f"{text.type} {text}")
            if item.written:
                self.values.pop(register, None)
                self.dirty.pop(register, None)
        for _, value in by_value:
            given.append(f"i{value.type.bits} {value.number}")
        if _is_masked(held):
            given.append(f"i32 {mask}")
        self.writer.do(f"call void %form{place}({', '.join(given)})")
        return True

    def _can_share(self, instruction: Instruction, operands: list[Register | Immediate | str | None]) -> bool:
        form = instruction.form
        return (
            form.row.runs
            and form.row.applied.checked is None
            and not (form.reads_carry or form.writes_carry or form.reads_rank)
            and instruction not in self.refused
            and None not in operands
        )

    def _by_value(self, instruction: Instruction) -> list[tuple[int, NativeValue]]:
        """The positions and values of the immediate operands that are arguments."""
        if instruction.form.row.name not in _PLAIN:
            return []
        return [
            (position, self._immediate(operand, slot.type))
            for position, (slot, operand) in enumerate(zip(instruction.form.operands, instruction.operands))
            if isinstance(operand, Immediate)
            and slot.type is not None
            and not (slot.type.is_predicate or slot.constant or instruction.form.has_pairs)
        ]

    def _function(
        self,
        instruction: Instruction,
        operands: list[Register | Immediate | str | None],
        held: dict[Register, _Held],
        by_value: list[tuple[int, NativeValue]],
    ) -> int:
        """The place of the function for an instruction in the table."""
        numbers = {register: number for number, register in enumerate(held)}
        arguments = {id(instruction.operands[position]): value.type for position, value in by_value}
        shape = tuple(
            numbers[item]
            if isinstance(item, Register)
            else arguments.get(id(item), (item.kind, item.value))
            if isinstance(item, Immediate)
            else item
            for item in operands
        )
        key = instruction.form, shape, tuple(held.values())
        place = self.generator.outlined.get(key)
        if place is None:
            function = _known.get(key)
            if function is None:
                if len(_known) >= _MOST:
                    _known.clear()
                function = _known[key] = _Shared(self, instruction, held, by_value).shared()
            place = self._place(function)
            self.generator.outlined[key] = place
        return place

    def _place(self, function: _Function) -> int:
        """The place of a function in the table, into which it is put unless another key has the same function."""
        functions, needs = self.generator.functions, self.generator.writer.needs
        if function.name not in functions:
            functions[function.name] = function.text if function.is_own else ""
            if function.is_own:
                needs.update(function.needs)
            else:
                needs[function.name] = function.declaration
                _texts[function.name] = "\n".join([*function.needs.values(), function.text, ""])
        return list(functions).index(function.name)

    def _held(self, instruction: Instruction, guarded: bool) -> dict[Register, _Held] | None:
        """How each register operand is given, in order; ``None`` if the instruction is written in line."""
        read, written = reads(instruction), writes(instruction)
        constants = self.generator.slots.constants[self.number]
        if any(register in constants or register not in self.slots for register in written):
            return None
        sources = read[1:] if instruction.guard is not None else read
        plain = instruction.form.row.name in _PLAIN
        held: dict[Register, _Held] = {}
        for register in (*written, *sources):
            if register in held:
                continue
            if register in self.uniform or register in constants or register not in self.slots:
                number = self.read(register).number
                if number is None:
                    held[register] = _Held(register.type, "uniform", read=True)
                elif plain and not register.type.is_predicate:
                    held[register] = _Held(register.type, "number", read=True)
                else:
                    held[register] = _Held(register.type, "constant", number, read=True)
                continue
            set_here = register in written
            held[register] = _Held(
                register.type,
                "vector",
                read=register in sources,
                written=set_here,
                masked=set_here and (guarded or self._keeps(register)),
            )
        return held

    def _keeps(self, register: Register) -> bool:
        """Whether inactive lanes of a register may be live."""
        return register not in self.scratch.offsets and (self.blends or register in self.kept)

    def _mask(self, instruction: Instruction) -> Ref:
        """The active lanes in which the guard holds, which are counted."""
        guard, writer = instruction.guard, self.writer
        assert guard is not None
        if guard.register in self.values or guard.register not in self.slots:
            bits = self.bits_of(self.predicate(guard))
        else:
            bits = writer.field("%st", self.slots[guard.register], "i32")
            bits = writer.xor(bits, -1) if guard.negated else bits
        mask = writer.and_(self.mask, bits)
        counter = self.generator.program.predicated_of.get(instruction)
        if counter is not None:
            column = len(self.generator.program.blocks) + counter
            self.generator.count_lanes("%predicated", 8 * counter, mask, column)
        return mask


def _opened(operands: tuple[Operand, ...]) -> Iterator[Register | Immediate | str | None]:
    """Registers, immediates and marks of the structure of operands; ends with ``None`` at an operand of another kind."""
    for operand in operands:
        if isinstance(operand, (Register, Immediate)):
            yield operand
        elif isinstance(operand, Vector):
            yield "{"
            yield from _opened(operand.elements)
            yield "}"
        elif isinstance(operand, Pair):
            yield from _opened((operand.first, operand.second))
        elif isinstance(operand, Negated):
            yield "!"
            yield from _opened((operand.operand,))
        elif isinstance(operand, Sink):
            yield "_"
        else:
            yield None
            return


def _is_masked(held: Mapping[Register, _Held]) -> bool:
    return any(item.masked for item in held.values())


class _Shared(BlockWriter):
    """Writes the function of an instruction, for registers that are given as ``held``."""

    def __init__(
        self,
        to: OutliningWriter,
        instruction: Instruction,
        held: dict[Register, _Held],
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

    def shared(self) -> _Function:
        """The function, named by its content."""
        writer, instruction = self.writer, self.current
        assert instruction is not None
        writer.start("entry")
        given = ["ptr %st"]
        cells: dict[Register, str] = {}
        for number, (register, item) in enumerate(self.held.items()):
            parameter = f"%a{number}"
            if item.kind == "vector":
                given.append(f"i32 {parameter}")
                cells[register] = writer.ref("ptr", f"getelementptr i8, ptr %st, i32 {parameter}")
            if item.read:
                self.values[register] = self._given(item, parameter, cells.get(register, ""), given)
        given += [f"i{type.bits} {name}" for name, type in self.arguments.values()]
        results = evaluate(instruction.form, self.sources(instruction))
        self.assign(instruction, [item for item in results if isinstance(item, NativeValue)], None)
        if _is_masked(self.held):
            given.append("i32 %mask")
            self.mask = Ref("i32", "%mask")
            self.lanes = writer.bitcast(self.mask, lanes_of("i1"))
        for register in self.dirty:
            self._put(self.held[register], self.values[register], cells[register])
        writer.do("ret void")
        body = "\n".join([f"({', '.join(given)}) nounwind {{", *writer.lines, "}"])
        name = SHARED_PREFIX + hashlib.blake2b(body.encode(), digest_size=12).hexdigest()
        types = ", ".join(item.split()[0] for item in given)
        made = _Function(name, "", f"declare void @{name}({types})", writer.needs)
        return replace(made, text=f"define {'internal ' * made.is_own}void @{name}{body}")

    def _given(self, item: _Held, parameter: str, cell: str, given: list[str]) -> NativeValue:
        writer, type = self.writer, item.type
        if item.kind == "constant":
            return self.constant(item.number, type)
        if item.kind == "number":
            given.append(f"i{type.bits} {parameter}")
            return self._argument(parameter, type)
        if item.kind == "uniform":
            scalar = "i32" if type is PRED else scalar_ll(type)
            given.append(f"{scalar} {parameter}")
            text = Ref(scalar, parameter)
            return NativeValue(writer, type, writer.trunc(text, "i1") if type is PRED else text, True)
        if type is PRED:
            return NativeValue(writer, type, writer.bitcast(writer.load("i32", cell), lanes_of("i1")))
        return NativeValue(writer, type, writer.load(vector_ll(type), cell, 64))

    def _put(self, item: _Held, value: NativeValue, cell: str) -> None:
        writer = self.writer
        if item.type is PRED:
            bits = writer.bitcast(value.vector(), "i32")
            writer.store(self._blended_word(cell, bits) if item.masked else bits, cell)
            return
        text = value.clean().vector()
        if item.masked:
            text = writer.select(self.lanes, text, writer.load(vector_ll(item.type), cell, 64))
        writer.store(text, cell, 64)
