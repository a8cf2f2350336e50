"""The slots of registers and call parameters in the state of a warp, and which of them must preserve inactive lanes."""

from __future__ import annotations

from dataclasses import dataclass

from ...flow.blocks import EXIT, BasicBlock
from ...flow.operands import formal_register, reads, writes
from ...isa.effects import PURE
from ...isa.types import ScalarType
from ...ptx.module import Function
from ...ptx.syntax import CallTarget, Immediate, Instruction, Register, Variable
from ...simt.program import Program
from ..ir.operands import LANES

__all__ = ["Slots"]


@dataclass(frozen=True, slots=True)
class Scratch:
    """The memory of a block for registers that no other block uses: their offsets, and the position of the last instruction with
    each. ``dead``: instructions without effect whose results are not used."""

    offsets: dict[Register, int]
    last: dict[Register, int]
    dead: frozenset[Instruction]


class Slots:
    """The layout of the state after its stack.

    ``of[function]`` maps a register to its offset; vectors are 64-byte aligned, registers that are the same in all lanes
    take eight bytes, predicates an i32. ``parameters`` maps ``.param`` variables of calls and of device functions to the
    offset of their first 4-byte word (each word is a vector over the lanes). ``carry[function]`` is the condition code,
    ``stack[function]`` the size of its stack, which grows down from the end of local memory (absent without ``alloca``);
    ``bases[function]`` and ``top`` the addresses of local variables of recursive functions (``recursion``).
    ``keeps[function]`` are registers whose values in inactive lanes may still be live.
    """

    def __init__(self, program: Program, start: int) -> None:
        self.program = program
        self.of: list[dict[Register, int]] = [{} for _ in program.functions]
        self.carry: list[int] = []
        self.stack: list[int] = []
        self.bases: dict[int, int] = {}
        self.parameters: dict[Variable, int] = {}
        self._next = -(-start // 64) * 64
        self.zero_start = self._next
        #: registers that are return parameters: live after the function's end
        self.returned = [_returned(function) for function in program.functions]
        self.constants = [_constants(program, number) for number in range(len(program.functions))]
        self.divergent = _divergent_blocks(program)
        self.keeps = [self._kept(number) for number in range(len(program.functions))]
        for number in range(len(program.functions)):
            entry = program.blocks[program.entries[number]].live_in
            for register in sorted(entry, key=lambda item: item.index):
                self._place(number, register)
            self.carry.append(self._take(4, 4))
            if program.uses_stack:
                self.stack.append(self._take(8 * LANES, 64))
        for number in program.frame_bytes:
            self.bases[number] = self._take(8 * LANES, 64)
        self.top = self._take(8 * LANES, 64) if program.frame_bytes else 0
        self.zero_bytes = -(-(self._next - self.zero_start) // 8) * 8
        self._next = self.zero_start + self.zero_bytes
        for number in range(len(program.functions)):
            crossing: set[Register] = set(self.returned[number])
            for block in program.blocks_of(number):
                crossing |= block.live_in | block.live_out
                if block.synchronises and program.uniformity[number].may_diverge:
                    # the block may be continued after its first instruction
                    crossing.update(writes(block.instructions[0]))
            crossing -= set(self.constants[number])
            for register in sorted(crossing, key=lambda item: item.index):
                self._place(number, register)
        self.report = self._take(8 * LANES, 64)
        #: arguments of a system call, a vector of u64 each; the first one then holds its result
        self.system = self._take(8 * LANES * _most_arguments(program), 64)
        self.scratch = self._scratch() if program.outlined else []
        self.parameters_start = self.bytes = -(-self._next // 64) * 64

    def _take(self, size: int, align: int) -> int:
        offset = -(-self._next // align) * align
        self._next = offset + size
        return offset

    def _place(self, number: int, register: Register) -> None:
        if register in self.of[number]:
            return
        if register.type.is_predicate:
            offset = self._take(4, 4)
        elif register in self.program.uniformity[number].uniform:
            offset = self._take(max(8, register.type.bytes), 8 if register.type.bytes <= 8 else 16)
        else:
            offset = self._take(LANES * register.type.bytes, 64)
        self.of[number][register] = offset

    def _scratch(self) -> list[Scratch]:
        """By block, memory for the registers without a slot, which it shares between registers that are not used at the same time."""
        made: list[Scratch] = []
        free: dict[int, list[int]] = {}
        taken: dict[int, list[int]] = {}
        for block in self.program.blocks:
            number = block.function
            skipped = (self.of[number], self.constants[number])
            uniform = self.program.uniformity[number].uniform
            last: dict[Register, int] = {}
            stored: set[Register] = set()
            for index, instruction in enumerate(block.instructions):
                for register in (*reads(instruction), *writes(instruction)):
                    last[register] = index
                if instruction.effect is not PURE:
                    stored.update(writes(instruction))
            for register in list(last):
                if any(register in group for group in skipped) or (
                    register in uniform and register not in stored
                ):
                    del last[register]
            offsets: dict[Register, int] = {}
            for index, instruction in enumerate(block.instructions):
                ending = []
                for register in (*reads(instruction), *writes(instruction)):
                    if register in last:
                        size = 64 if register.type.is_predicate else LANES * register.type.bytes
                        if register not in offsets:
                            room = free.setdefault(size, [])
                            if not room:
                                taken.setdefault(size, []).append(self._take(size, 64))
                                room.append(taken[size][-1])
                            offsets[register] = room.pop()
                        if last[register] == index:
                            ending.append((size, register))
                for size, register in dict.fromkeys(ending):
                    free[size].append(offsets[register])
            free = {size: list(reversed(places)) for size, places in taken.items()}
            made.append(Scratch(offsets, last, self._dead(block)))
        return made

    def _dead(self, block: BasicBlock) -> frozenset[Instruction]:
        live = {*block.live_out, *self.returned[block.function]}
        dead: set[Instruction] = set()
        for instruction in reversed(block.instructions):
            written = writes(instruction)
            plain = instruction.guard is None
            form = instruction.form
            if (
                plain
                and instruction.effect is PURE
                and written
                and form.row.applied.checked is None
                and not form.writes_carry
                and live.isdisjoint(written)
            ):
                dead.add(instruction)
                continue
            if plain:
                live.difference_update(written)
            live.update(reads(instruction))
        return frozenset(dead)

    def parameter(self, variable: Variable) -> int:
        """Offset of the words of a ``.param`` variable of a call or device function."""
        offset = self.parameters.get(variable)
        if offset is None:
            words = -(-max(variable.size, 1) // 4)
            offset = self.parameters[variable] = self._take(words * 4 * LANES, 64)
            self.bytes = -(-self._next // 64) * 64
        return offset

    def blends(self, block: BasicBlock) -> tuple[bool, frozenset[Register]]:
        """Whether writes in this block must preserve inactive lanes: of all registers, or else of which."""
        if self.program.uniformity[block.function].may_diverge or block.function in self.program.recursive:
            return True, frozenset()
        return False, self.keeps[block.function] if block.index in self.divergent else frozenset()

    def _kept(self, number: int) -> frozenset[Register]:
        """Registers that are live in lanes that wait while others run: at reconvergence points and pending sides."""
        program = self.program
        kept: set[Register] = set(self.returned[number])
        for block in program.blocks_of(number):
            if block.kind == "barrier" and block.index in self.divergent:
                kept |= block.live_out
            if not diverges(program, block):
                continue
            point = block.reconvergence
            if point != EXIT:
                kept |= program.blocks[point].live_in
            if block.kind == "call":
                continue
            sides = [side for side in block.successors if side != EXIT]
            if point in sides and block.kind == "branch":
                continue
            for side in sides:
                kept |= program.blocks[side].live_in
        return frozenset(kept)


def _most_arguments(program: Program) -> int:
    """The maximum number of arguments or results of a system call, 0 without such calls."""
    functions = (item.system for block in program.blocks for item in block.instructions)
    return max((max(len(item.arguments), 1) for item in functions if item is not None), default=0)


def _returned(function: Function) -> frozenset[Register]:
    registers = (formal_register(function, formal) for formal in function.returns)
    return frozenset(register for register in registers if register is not None)


def _constants(program: Program, number: int) -> dict[Register, tuple[Immediate, ScalarType]]:
    """Registers that are only ever set to one constant, and never read before: ``mov`` of 31 and −1 before a shuffle."""
    definitions: dict[Register, list[Instruction]] = {}
    for block in program.blocks_of(number):
        for instruction in block.instructions:
            for register in writes(instruction):
                definitions.setdefault(register, []).append(instruction)
    unset = program.blocks[program.entries[number]].live_in | _returned(program.functions[number])
    constants: dict[Register, tuple[Immediate, ScalarType]] = {}
    for register, instructions in definitions.items():
        first = instructions[0]
        plain = first.form.row.name == "mov" and first.guard is None and len(instructions) == 1
        if plain and register not in unset:
            source = first.operands[-1]
            if isinstance(source, Immediate) and len(first.operands) == 2:
                constants[register] = (source, first.form.operands[-1].type or register.type)
    return constants


def diverges(program: Program, block: BasicBlock) -> bool:
    """Whether lanes may diverge at the end of a block."""
    uniform = program.uniformity[block.function].uniform
    if block.kind == "branch" and block.guard is not None:
        return block.guard.register not in uniform
    if block.kind == "indirect":
        return True
    if block.kind == "call" and block.terminator is not None:
        return any(
            isinstance(item, CallTarget) and item.function is None for item in block.terminator.operands
        )
    return False


def _divergent_blocks(program: Program) -> frozenset[int]:
    """Blocks that may run while other live lanes of their function's activation wait elsewhere."""
    divergent: set[int] = set()
    for block in program.blocks:
        if not diverges(program, block) or block.kind == "call":
            continue
        stack = [target for target in block.successors if target not in (EXIT, block.reconvergence)]
        seen: set[int] = set()
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            stack += [
                target
                for target in program.blocks[index].successors
                if target not in (EXIT, block.reconvergence)
            ]
        divergent |= seen
    return frozenset(divergent)
