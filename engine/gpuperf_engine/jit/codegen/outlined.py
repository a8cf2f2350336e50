"""Blocks in which instructions of one form share a function: several times faster to compile, for programs that run little.

Vectors stay in the warp's state: registers that live across block edges in their slots, all others in ``Slots.scratch``. An
instruction with semantics and without effect is a call of a function, which loads its sources, computes, and stores its results;
instructions of the same form with operands of the same kinds share it, in all programs if it calls no other function. LLVM selects a
call through a pointer with scalar arguments in 10 µs (``FastISel``), but each operation on vectors in 20 µs, of which an instruction
has several. Memory accesses, exchanges between lanes, counters of blocks and branches call functions of the same program
(``procedures``). Everything else, and what is the same in all lanes, is written in line, in basic blocks of its own, since all that
precedes a vector operation in a basic block of LLVM is selected slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping

from ...flow.blocks import EXIT
from ...flow.operands import reads, writes
from ...isa.effects import (
    ACTIVEMASK,
    CONVERGENCE,
    ELECT,
    LOAD,
    MATCH,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    MBARRIER_WAIT,
    PURE,
    REDUX,
    SHFL,
    STORE,
    TENSOR_LOAD,
    TENSOR_STORE,
    VOTE,
    WARP_BARRIER,
    WARPGROUP,
    WARPGROUP_FENCE,
    WARPGROUP_WAIT,
)
from ...ptx.syntax import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Vector,
)
from ...simt.effects import signals_mbarrier
from ..ir.operands import Ref, lanes_of
from ..ir.values import NativeValue
from .block import PRED, BlockWriter
from .procedures import Procedure, write_call
from .shared_functions import (
    ControlWriter,
    EffectWriter,
    Held,
    PureWriter,
    SharedFunction,
    held_as,
    is_masked,
    keep_text,
)
from .terminators import Sides

__all__ = ["OutliningWriter"]


#: rows whose semantics gain nothing from constant operands, which are given by value then
_PLAIN = frozenset(
    ["mov", "add", "sub", "mul", "mad", "fma", "and", "or", "xor", "setp", "selp", "min", "max"]
)
#: instructions of an effect from which on they share functions
_OFTEN = 3
#: the most functions that a process remembers
_MOST = 4096
#: waits, and effects of all lanes of a warp together (``exchange``)
_EXCHANGES = frozenset(
    [SHFL, VOTE, MATCH, REDUX, ELECT, ACTIVEMASK, WARP_BARRIER, CONVERGENCE, MATRIX, MATRIX_LOAD, MATRIX_STORE, WARPGROUP,
     TENSOR_LOAD, TENSOR_STORE, MBARRIER_WAIT, WARPGROUP_FENCE, WARPGROUP_WAIT]
)  # fmt: skip


_known: dict[Hashable, SharedFunction] = {}


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

    def count_block(self) -> None:
        if self.generator.columns is not None or not self.generator.shares_control:
            super().count_block()
            return
        counts = bool(self.block.counts)
        procedure = self._control(
            ("count", counts), lambda writer: writer.count_block(), charge=str(self.block.counts)
        )
        assert not procedure.exits
        self.load_mask()

    def split(self, sides: Sides, taken: Ref) -> None:
        if not self.generator.shares_control:
            super().split(sides, taken)
            return
        block = self.block
        then, other = block.successors
        end = block.reconvergence
        shape = then == EXIT, then == end, other == end, end == EXIT
        key = ("split", block.function, block.counted, block.leaves, shape)
        inner = Sides("then", "other", "%code", "%point")
        labels = {"then": sides.then, "other": sides.other}
        numbers = {"taken": taken, "code": sides.code, "point": sides.point}
        self._control(
            key, lambda writer: writer.split(inner, Ref("i32", "%taken")), labels, ends=True, **numbers
        )

    def push_reconvergence(self, code: str) -> Ref:
        if self.block.reconvergence == EXIT or not self.generator.shares_control:
            return super().push_reconvergence(code)
        self._control("reconverge", lambda writer: writer.push_reconvergence("%point"), point=code)
        return Ref("i32", code)

    def push_if(self, code: str, mask: Ref, identity: Ref) -> None:
        if not self.generator.shares_control:
            super().push_if(code, mask, identity)
            return
        inner = Ref("i32", "%taken"), Ref("i32", "%point")
        self._control(
            "push", lambda writer: writer.push_if("%code", *inner), code=code, taken=mask, point=identity
        )

    def _control(
        self,
        key: Hashable,
        write: Callable[[BlockWriter], object],
        labels: Mapping[str, str] | None = None,
        *,
        ends: bool = False,
        **numbers: str,
    ) -> Procedure:
        """A call of a function for control flow of the block; ``labels`` replace those to which it branches."""
        procedure = self.generator.procedures.get(key)
        if procedure is None:
            procedure = ControlWriter(self).procedure(write)
            self.generator.procedures[key] = procedure
        named = labels or {}
        exits = [named.get(label, label) for label in procedure.exits]
        write_call(
            self.generator, procedure, {**numbers, "block": str(8 * self.block.index)}, (), exits, ends=ends
        )
        return procedure

    def guard_bits(self, guard: Guard) -> Ref:
        writer = self.writer
        register = guard.register
        # the slot of a uniform predicate holds one bit
        if register in self.values or register not in self.slots or register in self.uniform:
            return writer.and_(self.mask, self.bits_of(self.predicate(guard)))
        bits = writer.field("%st", self.slots[register], "i32")
        return writer.and_(self.mask, writer.xor(bits, -1) if guard.negated else bits)

    def instruction(self, instruction: Instruction) -> None:
        """A call of a shared function if possible."""
        self.current = instruction
        if instruction in self.scratch.dead:
            self.position += 1
            return
        if not self._outline(instruction):
            if not (self._is_scalar(instruction) or self._has_function(instruction)):
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

    def _has_function(self, instruction: Instruction) -> bool:
        """Whether ``share`` is called for an instruction."""
        if instruction.effect in _EXCHANGES:
            return True
        accesses = instruction.effect in (LOAD, STORE) or instruction.effect.atomic
        return accesses and instruction in self.generator.program.site_of

    def share(self, instruction: Instruction, write: Callable[[BlockWriter], None]) -> bool:
        """A call of a function for an effect, if its operands are registers and immediates."""
        operands = list(_opened(instruction.operands, addressed=True))
        site = self.generator.program.site_of.get(instruction)
        seldom = self.generator.opcodes[instruction.opcode] < _OFTEN
        if (
            seldom
            or None in operands
            or signals_mbarrier(instruction)
            or self.generator.values.get(site or 0)
        ):
            self._in_line()
            return False
        guarded = self._is_guarded(instruction)
        held = self._held(instruction, guarded)
        if held is None or (instruction.effect is LOAD and not guarded and not _varies(instruction, held)):
            self._in_line()
            return False
        numbers = {register: number for number, register in enumerate(held)}
        shape = tuple(
            numbers[item]
            if isinstance(item, Register)
            else (item.kind, item.value)
            if isinstance(item, Immediate)
            else item
            for item in operands
        )
        key = instruction.opcode, instruction.form, shape, tuple(held.values()), guarded
        procedure = self.generator.procedures.get(key)
        if procedure is None:
            procedure = EffectWriter(self, instruction, held, guarded).procedure(write)
            self.generator.procedures[key] = procedure
        if procedure.exits:
            self.check_faults()
        self._call()
        given = {"guard": str(self._mask(instruction))} if guarded else {}
        if site is not None:
            given["site"] = str(site)
        given |= {
            "place": self.place,
            "code": self.wait_code,
            "reason": self.reason,
            "offset": str(_offset(instruction)),
        }
        if "where" in procedure.takes:
            given["where"] = str(self.place_of(instruction))
        registers = self._given(held)
        write_call(self.generator, procedure, given, registers, procedure.exits)
        self.faulting |= procedure.faulting
        return True

    def _is_guarded(self, instruction: Instruction) -> bool:
        """Whether a guard decides in which lanes an instruction is executed."""
        return instruction.guard is not None and not (
            self.block.guard_applied and instruction is self.block.instructions[0]
        )

    def _given(self, held: Mapping[Register, Held]) -> list[str]:
        """The arguments for registers; those that the function sets are in memory from now on."""
        given = []
        for register, item in held.items():
            if item.kind in ("vector", "same"):
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
        return given

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
        guarded = self._is_guarded(instruction)
        held = self._held(instruction, guarded) if self._can_share(instruction, operands) else None
        if held is None:
            return False
        self._call()
        mask = self._mask(instruction) if guarded else self.mask
        by_value = self._by_value(instruction)
        place = self._function(instruction, operands, held, by_value)
        given = ["ptr %st", *self._given(held)]
        for _, value in by_value:
            given.append(f"i{value.type.bits} {value.number}")
        if is_masked(held):
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
        held: dict[Register, Held],
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
                function = _known[key] = PureWriter(self, instruction, held, by_value).shared()
            place = self._place(function)
            self.generator.outlined[key] = place
        return place

    def _place(self, function: SharedFunction) -> int:
        """The place of a function in the table, into which it is put unless another key has the same function."""
        functions, needs = self.generator.functions, self.generator.writer.needs
        if function.name not in functions:
            functions[function.name] = function.text if function.is_own else ""
            if function.is_own:
                needs.update(function.needs)
            else:
                needs[function.name] = function.declaration
                keep_text(function)
        return list(functions).index(function.name)

    def _held(self, instruction: Instruction, guarded: bool) -> dict[Register, Held] | None:
        """How each register operand is given, in order; ``None`` if the instruction is written in line."""
        read, written = reads(instruction), writes(instruction)
        constants = self.generator.slots.constants[self.number]
        if any(register in constants or register not in self.slots for register in written):
            return None
        sources = read[1:] if instruction.guard is not None else read
        plain = instruction.form.row.name in _PLAIN
        pure = instruction.effect is PURE
        held: dict[Register, Held] = {}
        for register in (*written, *sources):
            if register in held:
                continue
            if register in written and register in self.uniform:
                read_too = not pure or register in sources
                held[register] = held_as(register.type, "same", read=read_too, written=True)
                continue
            if register in self.uniform or register in constants or register not in self.slots:
                number = self.read(register).number
                if number is None:
                    held[register] = held_as(register.type, "uniform", read=True)
                elif plain and not register.type.is_predicate:
                    held[register] = held_as(register.type, "number", read=True)
                else:
                    held[register] = held_as(register.type, "constant", number, read=True)
                continue
            set_here = register in written
            held[register] = held_as(
                register.type,
                "vector",
                read=register in sources or (set_here and guarded and not pure),
                written=set_here,
                masked=set_here and ((guarded and pure) or self._keeps(register)),
            )
        return held

    def _keeps(self, register: Register) -> bool:
        """Whether inactive lanes of a register may be live."""
        return register not in self.scratch.offsets and (self.blends or register in self.kept)

    def _mask(self, instruction: Instruction) -> Ref:
        """The active lanes in which the guard holds, which are counted."""
        assert instruction.guard is not None
        mask = self.guard_bits(instruction.guard)
        counter = self.generator.program.predicated_of.get(instruction)
        if counter is not None:
            column = len(self.generator.program.blocks) + counter
            self.generator.count_lanes("%predicated", 8 * counter, mask, column)
        return mask


def _opened(
    operands: tuple[Operand, ...], *, addressed: bool = False
) -> Iterator[Register | Immediate | str | None]:
    """Registers, immediates and marks of the structure of operands; ends with ``None`` at an operand of another kind. ``addressed``:
    with addresses in registers."""
    for operand in operands:
        if isinstance(operand, (Register, Immediate)):
            yield operand
        elif addressed and isinstance(operand, Address) and not operand.further:
            yield operand.base if isinstance(operand.base, Register) else None
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


def _offset(instruction: Instruction) -> int:
    """The offset of the address of a memory instruction."""
    return next((item.offset for item in instruction.operands if isinstance(item, Address)), 0)


def _varies(instruction: Instruction, held: Mapping[Register, Held]) -> bool:
    """Whether lanes may access different addresses."""
    bases = (item.base for item in instruction.operands if isinstance(item, Address))
    return any(isinstance(base, Register) and held[base].kind == "vector" for base in bases)
