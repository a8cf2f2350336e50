"""One basic block as LLVM IR: reading and writing registers, instructions with semantics, and the terminator."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import cast

from ...errors import Unsupported
from ...flow.blocks import BasicBlock
from ...flow.operands import matched
from ...isa.effects import PURE, TRAP
from ...isa.evaluation import evaluate, extend
from ...isa.primitives import Value
from ...isa.types import ScalarType, scalar_type
from ...ptx.module import Function
from ...ptx.syntax import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Symbol,
    Variable,
    Vector,
)
from ..ir.abi import Context
from ..ir.access_records import SITE_BYTES
from ..ir.codes import PLACE_SHIFT, WAIT_CODE, Event, Status
from ..ir.operands import LANES, Ref, constant, lanes_of, scalar_ll, vector_ll
from ..ir.values import NativeValue
from . import bulk, copy, exchange, images, mbarrier, ordering, stack, tensor_memory, warpgroup  # noqa: F401  (they register handlers)
from .generator import CodeGenerator
from .handlers import handles
from .memory import address_value
from .special import read_rank, read_special, variable_address
from .terminators import Sides, write_push, write_reconvergence, write_split, write_terminator

__all__ = ["BlockWriter"]

PRED = scalar_type("pred")
#: limit of LLVM instructions per LLVM basic block, as instruction selection and scheduling take superlinear time
_LONGEST = 1000


class BlockWriter:
    """Writes one block. ``mask`` is the active mask as i32, ``lanes`` the same as ``<32 x i1>``."""

    def __init__(
        self,
        generator: CodeGenerator,
        block: BasicBlock,
        function: Function,
        refused: Container[Instruction] = (),
    ) -> None:
        self.generator = generator
        #: instructions that cannot be run: an error if they are reached
        self.refused = refused
        #: the instruction being written
        self.current: Instruction | None = None
        self.block = block
        self.function = function
        self.number = block.function
        self.writer = generator.writer
        self.uniform = generator.program.uniformity[block.function].uniform
        self.slots = generator.slots.of[block.function]
        #: registers whose inactive lanes must be preserved; ``blends``: all registers
        self.blends, self.kept = generator.slots.blends(block)
        self.values: dict[Register, NativeValue] = {}
        self.dirty: dict[Register, None] = {}
        self.carry: NativeValue | None = None
        self.carry_written = False
        self.mask = Ref("i32", "")
        self.lanes = Ref(lanes_of("i1"), "")
        #: whether an access of this block may have failed
        self.faulting = False
        #: lines after the block: stubs of its edges
        self.later: list[str] = []

    # ------------------------------------------------------------------------------------------------- structure

    def write(self) -> None:
        """The whole block, from its label to its terminator."""
        block, writer = self.block, self.writer
        writer.start(f"b{block.index}")
        self.count_block()
        self.write_instructions()
        self.check_faults()
        self.current = block.terminator
        if self.current is not None and self.current in self.refused:
            self.generator.stop(
                str(block.index), Status.EVENT, Event.REFUSED, str(len(block.instructions) - 1)
            )
        else:
            write_terminator(self)

    def count_block(self) -> None:
        """Load the active mask, and count the execution."""
        self.load_mask()
        self.bump_block(0, "1")
        self.bump_block(1, self.generator.lanes_of(self.mask))
        self.generator.count_threads(self.mask, self.block.index)
        if self.block.counts:
            self.writer.bump("%steps", 0, self.charge)

    @property
    def charge(self) -> str:
        """The instructions of the block that count."""
        return str(self.block.counts)

    def bump_block(self, column: int, amount: str) -> None:
        """Add to a counter of the block."""
        count = len(self.generator.program.blocks)
        self.writer.bump("%blocks", 8 * (column * count + self.block.index), amount)

    def write_instructions(self) -> None:
        """All instructions but the terminator."""
        block, instructions = self.block, self.block.instructions
        if block.terminator is not None and instructions and instructions[-1] is block.terminator:
            instructions = instructions[:-1]
        for instruction in instructions:
            self.instruction(instruction)
            self.writer.go_on(_LONGEST)

    def restart(self) -> None:
        """Continue in a new LLVM basic block, in which registers are read from their slots again."""
        self.values.clear()
        self.dirty.clear()
        self.carry, self.carry_written = None, False
        self.writer.forget()
        self.load_mask()

    def load_mask(self) -> None:
        """Load the active mask."""
        self.mask = self.writer.load("i32", "%mask")
        self.lanes = self.writer.bitcast(self.mask, f"<{LANES} x i1>")

    def instruction(self, instruction: Instruction) -> None:
        """One instruction that does not end the block."""
        self.current = instruction
        if instruction in self.refused:
            self.stop_at(instruction, Event.REFUSED)
            return
        handler = handles.for_effect(instruction.effect)
        if handler is None or not instruction.form.row.runs:
            raise Unsupported(
                f"{instruction.opcode} is known and counted, but cannot be run yet", span=instruction.span
            )
        handler(self, instruction)

    def compute(self, instruction: Instruction) -> None:
        """Apply the row's semantics to the operands."""
        form = instruction.form
        sources: list[Value] = list(self.sources(instruction))
        if form.reads_carry:
            sources.append(self.read_carry())
        if form.reads_rank:
            sources.append(read_rank(self))
        guard = self.guard(instruction)
        results = cast("list[NativeValue]", list(evaluate(form, sources)))
        if form.writes_carry:
            self.write_carry(results.pop(), guard)
        if form.row.applied.checked is not None:
            wrong = self.writer.and_(self.bits_of(results.pop()), self.effective_mask(guard))
            self.error(wrong, Event.MEANINGLESS, str(self.block.instructions.index(instruction)))
        self.assign(instruction, results, guard)

    def split(self, sides: Sides, taken: Ref) -> None:
        """The end of a block at which lanes may diverge: those in ``taken`` go one way, the others another."""
        write_split(self, sides, taken)

    def push_reconvergence(self, code: str) -> Ref:
        """At a divergence: push the entry of the reconvergence point, whose code is given, unless it is the current one already.
        Returns its identity."""
        return write_reconvergence(self, code)

    def push_if(self, code: str, mask: Ref, identity: Ref) -> None:
        """Push the entry of a path unless its mask is empty."""
        write_push(self, code, mask, identity)

    def guard_bits(self, guard: Guard) -> Ref:
        """The active lanes in which a guard holds, as i32."""
        return self.effective_mask(self.predicate(guard))

    def share(self, instruction: Instruction, write: Callable[[BlockWriter], None]) -> bool:
        """Whether the code of an effect, which ``write`` writes, is a function that other instructions share; then it is called."""
        return False

    @property
    def place(self) -> str:
        """The code of the block, where the warp stops at an error."""
        return str(self.block.index)

    @property
    def wait_code(self) -> str:
        """The code of the place in the block where the warp continues to wait."""
        return str(WAIT_CODE + self.block.index)

    @property
    def reason(self) -> str:
        """The reason for which lanes wait at the exchange of the block."""
        return str(self.generator.reasons.get(self.block.index, 0))

    def site(self, instruction: Instruction) -> str:
        """The number of a site, as an operand."""
        return str(self.generator.program.site_of[instruction])

    def bump_site(self, instruction: Instruction, counter: int, amount: str) -> None:
        """Add to a counter of a site."""
        self.writer.bump("%sites", self.generator.program.site_of[instruction] * SITE_BYTES + counter, amount)

    def moved(self, base: NativeValue, operand: Address) -> NativeValue:
        """The base of an address plus its offset."""
        return _native(base + operand.offset) if operand.offset else base

    def place_of(self, instruction: Instruction) -> int | str:
        """The number of an instruction that is not a site."""
        return -1 - (self.block.index << PLACE_SHIFT | self.block.instructions.index(instruction))

    def stop_at(self, instruction: Instruction, event: int) -> None:
        """Stop the warp if the guard holds in any lane."""
        mask = self.effective_mask(self.guard(instruction))
        index = self.block.instructions.index(instruction)
        self.error(mask, event, str(index))

    # -------------------------------------------------------------------------------------------------- operands

    def sources(self, instruction: Instruction) -> list[NativeValue]:
        """The value operands in the order that ``evaluate`` takes."""
        values: list[NativeValue] = []
        plain = instruction.effect is PURE
        if plain and instruction.form.only_writes:
            values.append(self.constant(0, scalar_type("u32")))  # to make constants from
        for slot, operand in matched(instruction):
            if slot.role == "source" or slot.role == "predicate_source":
                if isinstance(operand, Vector):
                    values += [self.source(element, slot.type) for element in operand.elements]
                else:
                    values.append(self.source(operand, slot.type))
            elif plain and slot.role == "address" and isinstance(operand, Address):
                values.append(_native(address_value(self, operand, 0).convert(scalar_type("u64"))))
        return values

    def source(self, operand: Operand, type: ScalarType | None) -> NativeValue:
        """One operand as a value of a type (``None``: its own)."""
        if isinstance(operand, Register):
            value = self.read(operand)
            return value if type is None or type is value.type else self.as_type(value, type)
        if isinstance(operand, Immediate):
            return self._immediate(operand, type or scalar_type("s64"))
        if isinstance(operand, Sum):
            base = self.read(operand.register)
            base = base.bits_as(scalar_type(f"u{base.type.bits}"))
            return self.as_type(_native(base + operand.offset), type)
        if isinstance(operand, Negated):
            return _native(~self.source(operand.operand, PRED))
        if isinstance(operand, SpecialRegister):
            return self.as_type(read_special(self, operand), type)
        if isinstance(operand, (Symbol, Variable)):
            return self.as_type(self.address_of(operand), type)
        if isinstance(operand, Sink):
            return self.constant(0, type or scalar_type("u32"))
        raise Unsupported(f"a {operand.__class__.__name__.lower()} as source operand", span=operand.span)

    def _immediate(self, operand: Immediate, type: ScalarType) -> NativeValue:
        if operand.kind == "int":
            if type.is_float:
                return self._literal(operand, type)
            # manual, "Predicate Constants": "non-zero values are True"
            bits = int(operand.value != 0) if type.is_predicate else operand.value
            return NativeValue.of_bits(self.writer, bits, type)
        held = scalar_type(operand.kind)
        if held.bits == type.bits:
            return NativeValue.of_bits(self.writer, operand.value, type)
        value = NativeValue.of_bits(self.writer, operand.value, held)
        return _native(value.convert(type)) if type.is_float else self.as_type(value, type)

    def _literal(self, operand: Immediate, type: ScalarType) -> NativeValue:
        """An integer literal as a float: those of 16-bit formats are bit patterns (``0x3C00``)."""
        if type.bits <= 16 or type.lanes > 1:
            return NativeValue.of_bits(self.writer, operand.value, type)
        return NativeValue.of_bits(self.writer, 0, type).constant(float(operand.value), type)

    def as_type(self, value: NativeValue, type: ScalarType | None) -> NativeValue:
        """The content of a register as an operand of a type: the same bits, or the low ones."""
        if type is None or type is value.type:
            return value
        if value.type.bits == type.bits:
            return value.bits_as(type)
        raw = value.bits_as(scalar_type(f"u{value.type.bits}")) if value.type.bits != 128 else value
        return _native(raw.convert(scalar_type(f"u{type.bits}"))).bits_as(type)

    def address_of(self, operand: Symbol | Variable) -> NativeValue:
        """The address of a variable or function in its own space."""
        if isinstance(operand, Variable):
            return variable_address(self, operand, 0)
        return variable_address(self, operand.target, operand.offset)

    def constant(self, number: int, type: ScalarType) -> NativeValue:
        """An integer constant."""
        return NativeValue.of_bits(self.writer, number, type)

    def value(self, type: ScalarType, text: str, uniform: bool = False) -> NativeValue:
        """A value from the IR."""
        return NativeValue(self.writer, type, text, uniform)

    # ------------------------------------------------------------------------------------------------- registers

    def read(self, register: Register) -> NativeValue:
        """The value of a register, initially 0."""
        value = self.values.get(register)
        if value is None:
            value = self.values[register] = self._load(register)
        return value

    def _load(self, register: Register) -> NativeValue:
        constant = self.generator.slots.constants[self.number].get(register)
        if constant is not None:
            return _native(extend(self.source(*constant), register.type))
        offset = self.slots.get(register)
        if offset is None:
            return self.constant(0, register.type)
        return self.load_slot(register.type, offset, register in self.uniform)

    def load_slot(self, type: ScalarType, offset: int, uniform: bool) -> NativeValue:
        """A register's value from its slot."""
        writer = self.writer
        if type.is_predicate:
            word = writer.field("%st", offset, "i32")
            text = writer.trunc(word, "i1") if uniform else writer.bitcast(word, lanes_of("i1"))
        elif uniform:
            text = writer.field("%st", offset, scalar_ll(type), min(16, type.bytes))
        else:
            text = writer.field("%st", offset, vector_ll(type), 64)
        return NativeValue(writer, type, text, uniform)

    def assign(self, instruction: Instruction, results: list[NativeValue], guard: NativeValue | None) -> None:
        """Assign the results to the destination operands, in order; excess results are dropped."""
        first = instruction.operands[0] if instruction.operands else None
        if (
            len(results) == 1
            and isinstance(first, Register)
            and instruction.form.operands[0].role == "destination"
        ):
            self.assign_register(first, results[0], guard)
            return
        position = 0
        for slot, operand in matched(instruction):
            if slot.role != "destination":
                continue
            elements = operand.elements if isinstance(operand, Vector) else (operand,)
            for element in elements:
                if isinstance(element, Register) and position < len(results):
                    self.assign_register(element, results[position], guard)
                position += 1

    def assign_register(
        self, register: Register, value: NativeValue, guard: NativeValue | None = None
    ) -> None:
        """Write a register where the guard holds; narrower values are extended."""
        extended = value if value.type is register.type else _native(extend(value, register.type))
        if guard is not None:
            extended = _native(guard.apply("select", extended, self.read(register)))
        if register in self.uniform and not extended.uniform:
            extended = self.first_lane(extended)
        self.values[register] = extended
        self.dirty[register] = None

    def first_lane(self, value: NativeValue) -> NativeValue:
        """A uniform register's value, from the first active lane."""
        lane = self.writer.intrinsic("cttz.i32", "i32", self.mask, constant("i1", "true"))
        text = self.writer.extract(value.vector(), lane)
        return NativeValue(self.writer, value.type, text, True, None, value.loose)

    def read_carry(self) -> NativeValue:
        """The condition code CC.CF."""
        if self.carry is None:
            word = self.writer.field("%st", self.generator.slots.carry[self.number], "i32")
            self.carry = self.value(PRED, self.writer.bitcast(word, f"<{LANES} x i1>"))
        return self.carry

    def write_carry(self, value: NativeValue, guard: NativeValue | None) -> None:
        """Set the condition code where the guard holds."""
        if guard is not None:
            value = _native(guard.apply("select", value, self.read_carry()))
        self.carry, self.carry_written = value, True

    def flush(self, live: frozenset[Register] | None = None) -> None:
        """Write changed live registers back to their slots."""
        live = self.block.live_out if live is None else live
        returned = self.generator.slots.returned[self.number]
        for register in self.dirty:
            if (register in live or register in returned) and register in self.slots:
                self._store(register, self.values[register])
        if self.carry_written and self.carry is not None:
            cell = self.writer.at("%st", self.generator.slots.carry[self.number])
            bits = self.writer.bitcast(self.carry.vector(), "i32")
            self.writer.store(self._blended_word(cell, bits), cell)
        self.dirty.clear()
        self.carry_written = False

    def _blended_word(self, cell: str, bits: Ref) -> Ref:
        writer = self.writer
        kept = writer.and_(writer.load("i32", cell), writer.xor(self.mask, -1))
        return writer.or_(writer.and_(bits, self.mask), kept)

    def _store(self, register: Register, value: NativeValue) -> None:
        writer = self.writer
        cell = self.writer.at("%st", self.slots[register])
        kind = register.type
        if register in self.uniform:
            if kind.is_predicate:
                writer.store(writer.zext(value.scalar(), "i32"), cell)
            else:
                clean = value.clean()
                writer.store(clean.scalar(), cell, min(16, kind.bytes))
            return
        blend = self.blends or (register in self.kept)
        if kind.is_predicate:
            bits = writer.bitcast(value.vector(), "i32")
            writer.store(self._blended_word(cell, bits) if blend else bits, cell)
            return
        clean, ll = value.clean(), vector_ll(kind)
        text = clean.vector()
        if blend:
            old = writer.load(ll, cell, 64)
            text = writer.select(self.lanes, text, old)
        writer.store(text, cell, 64)

    # ---------------------------------------------------------------------------------------------------- guards

    def predicate(self, guard: Guard) -> NativeValue:
        """A guard as a predicate."""
        value = self.read(guard.register)
        return _native(~value) if guard.negated else value

    def guard(self, instruction: Instruction) -> NativeValue | None:
        """The guard of an instruction that runs under a mask; counts the lanes in which it holds."""
        if instruction.guard is None or (
            self.block.guard_applied and instruction is self.block.instructions[0]
        ):
            return None
        guard_value = self.predicate(instruction.guard)
        counter = self.generator.program.predicated_of.get(instruction)
        if counter is not None:
            column = len(self.generator.program.blocks) + counter
            self.generator.count_lanes("%predicated", 8 * counter, self.effective_mask(guard_value), column)
        return guard_value

    def effective_mask(self, guard: NativeValue | None) -> Ref:
        """Active lanes in which a guard holds, as i32."""
        if guard is None:
            return self.mask
        return self.writer.and_(self.mask, self.bits_of(guard))

    def bits_of(self, predicate: NativeValue) -> Ref:
        """A predicate as an i32 mask."""
        if predicate.uniform:
            return self.writer.sext(predicate.scalar(), "i32")
        return self.writer.bitcast(predicate.text, "i32")

    def spread(self, mask: Ref) -> Ref:
        """An i32 mask as ``<32 x i1>``."""
        return self.lanes if mask == self.mask else self.writer.bitcast(mask, lanes_of("i1"))

    def error(self, mask: Ref, event: int, detail: str = "0") -> None:
        """Leave with an error if any lane of a mask is set. A preceding invalid access takes precedence."""
        self.check_faults()
        self.generator.guarded_stop(self.writer.icmp("ne", mask, 0), self.place, event, detail, culprits=mask)

    def report(self, value: NativeValue) -> None:
        """Store the lanes' values for a message."""
        wide = _native(value.convert(scalar_type("u64")))
        cell = self.writer.at("%st", self.generator.slots.report)
        self.writer.store(wide.vector(), cell, 64)

    def check_faults(self) -> None:
        """Leave if an access of this block was invalid."""
        if self.faulting:
            self.faulting = False
            flag = self.writer.field("%ctx", Context.FAULTED)
            self.fault_if(self.writer.icmp("ne", flag, 0))

    def fault_if(self, test: Ref) -> None:
        """Leave with a memory fault, which the runtime has recorded, if an i1 holds."""
        writer = self.writer
        bad, good = writer.label("fault"), writer.label("ok")
        writer.branch(test, bad, good)
        writer.start(bad)
        self.generator.stop(self.place, Status.FAULT)
        writer.start(good)


@handles(PURE)
def _compute(to: BlockWriter, instruction: Instruction) -> None:
    to.compute(instruction)


@handles(TRAP)
def _trap(to: BlockWriter, instruction: Instruction) -> None:
    to.stop_at(instruction, Event.TRAP)


def _native(value: Value) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
