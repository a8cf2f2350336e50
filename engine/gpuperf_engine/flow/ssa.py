"""Static single assignment: the definitions that each read of a register may see.

A *node* is an instruction, which represents all registers that it writes, or a ``Merge`` of several definitions. A guarded write
keeps the old value in lanes whose guard does not hold, so it does not kill the previous definition but has it as a source. The
condition code CC.CF is a register like any other. Source: Cytron et al., "Efficiently Computing Static Single Assignment Form and the
Control Dependence Graph", 1991; with φs only for live registers (pruned SSA).

Nearly all registers of compiled PTX are written once and need no φ; these take one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..isa.types import scalar_type
from ..ptx.module import Function
from ..ptx.syntax import Instruction, Register, Variable
from .blocks import BasicBlock
from .dominators import dominance_frontiers, immediate_dominators, predecessors
from .operands import reads, writes

__all__ = ["Merge", "Node", "SsaForm", "ssa_form"]


@dataclass(slots=True, eq=False)
class Merge:
    """A merge of definitions.

    ``kind`` is ``phi`` (of a register, at the start of ``block``), ``entry`` (the value of a register at the entry of its function: an
    argument, or 0), ``returned`` (the value of a register when its function returns), ``param`` (the contents of a ``.param``
    variable of a call or device function) or ``memory`` (all values that a load into that register may read).
    """

    kind: str
    name: Register | Variable
    block: int = -1
    sources: list[Node] = field(default_factory=list)


Node = Instruction | Merge


@dataclass(slots=True, eq=False)
class SsaForm:
    """The SSA form of one function. ``uses[i]``: the definitions of ``reads(i)``, in that order, followed by that of the condition
    code if it is read. ``kept[i]``: the definitions of the old values that a guarded write preserves. ``guards``: by block, those of
    the guards of branches to a guarded call or barrier. ``returned``: those of the return registers."""

    uses: dict[Instruction, tuple[Node, ...]] = field(default_factory=dict)
    kept: dict[Instruction, tuple[Node, ...]] = field(default_factory=dict)
    guards: dict[int, Node] = field(default_factory=dict)
    entry: dict[Register, Merge] = field(default_factory=dict)
    returned: dict[Register, Merge] = field(default_factory=dict)


def ssa_form(function: Function, blocks: Sequence[BasicBlock], returned: Iterable[Register] = ()) -> SsaForm:
    """The SSA form of one function. Needs the live sets of its blocks. ``returned``: registers that its callers read."""
    return _Builder(function, blocks, tuple(returned)).build()


@dataclass(slots=True, eq=False)
class _Several:
    """A register without a single definition that dominates all reads."""

    last: dict[int, Node] = field(default_factory=dict)  # block → its last definition
    phis: dict[int, Merge] = field(default_factory=dict)
    into: dict[int, Node] = field(default_factory=dict)  # block → the definition that reaches its start


class _Builder:
    def __init__(
        self, function: Function, blocks: Sequence[BasicBlock], returned: tuple[Register, ...]
    ) -> None:
        self.blocks = blocks
        self.returned = returned
        self.carry = Register("CC.CF", scalar_type("pred"), -1, function.span)
        first = blocks[0].index
        self.graph = [[target - first for target in block.successors if target >= 0] for block in blocks]
        self.form = SsaForm()
        self.single: dict[Register, Node] = {}
        self.several: dict[Register, _Several] = {}

    def build(self) -> SsaForm:
        self._find_definitions()
        self.before = predecessors(self.graph)
        if any(state.last for state in self.several.values()):
            self.dominator = immediate_dominators(self.graph, 0)
            frontiers = dominance_frontiers(self.before, self.dominator)
            for register, state in self.several.items():
                self._place_phis(register, state, frontiers)
        for index in range(len(self.blocks)):
            self._link(index)
        ends = [index for index, block in enumerate(self.blocks) if _returns(block)]
        for register in self.returned:
            returned = self.form.returned[register] = Merge("returned", register)
            returned.sources = list(dict.fromkeys(self._leaving(register, index) for index in ends))
        for register, state in self.several.items():
            for index, phi in state.phis.items():
                reaching = [self._leaving(register, source) for source in self.before[index]]
                if index == 0:
                    reaching.append(self._entry(register))
                phi.sources = [node for node in dict.fromkeys(reaching) if node is not phi]
        return self.form

    def _reads(self, instruction: Instruction) -> tuple[Register, ...]:
        registers = reads(instruction)
        return (*registers, self.carry) if instruction.form.reads_carry else registers

    def _writes(self, instruction: Instruction) -> tuple[Register, ...]:
        registers = writes(instruction)
        return (*registers, self.carry) if instruction.form.writes_carry else registers

    def _find_definitions(self) -> None:
        """Distinguish registers with one definition that dominates every read from the others."""
        definitions_of: dict[Register, list[tuple[int, Instruction]]] = {}
        several = {*self.returned, self.carry, *self.blocks[0].live_in}
        for index, block in enumerate(self.blocks):
            for instruction in block.instructions:
                partial = instruction.guard is not None and not block.guard_applied
                for register in self._writes(instruction):
                    definitions_of.setdefault(register, []).append((index, instruction))
                    if partial:
                        several.add(register)
        for register, definitions in definitions_of.items():
            if len(definitions) == 1 and register not in several:
                self.single[register] = definitions[0][1]
            else:
                self.several[register] = _Several(dict(definitions))

    def _place_phis(self, register: Register, state: _Several, frontiers: Sequence[Iterable[int]]) -> None:
        # live sets do not contain the condition code and return registers, so these get φs everywhere
        always = register is self.carry or register in self.returned
        work = [0, *state.last]
        while work:
            for index in frontiers[work.pop()]:
                if index not in state.phis and (always or register in self.blocks[index].live_in):
                    state.phis[index] = Merge("phi", register, self.blocks[index].index)
                    work.append(index)

    def _entry(self, register: Register) -> Merge:
        merge = self.form.entry.get(register)
        if merge is None:
            merge = self.form.entry[register] = Merge("entry", register, self.blocks[0].index)
        return merge

    def _entering(self, register: Register, index: int) -> Node:
        """The definition of a register that reaches the start of a block."""
        state = self.several.get(register)
        if state is None:
            return self.single.get(register) or self._entry(register)
        passed = []
        while (definition := state.into.get(index) or state.phis.get(index)) is None:
            passed.append(index)
            if index == 0:
                definition = self._entry(register)
                break
            index = self.dominator[index]
            definition = state.last.get(index)
            if definition is not None:
                break
        for index in passed:
            state.into[index] = definition
        return definition

    def _leaving(self, register: Register, index: int) -> Node:
        """The definition of a register that reaches the end of a block."""
        state = self.several.get(register)
        definition = state.last.get(index) if state is not None else None
        return definition or self._entering(register, index)

    def _link(self, index: int) -> None:
        block, form = self.blocks[index], self.form
        current: dict[Register, Node] = {}

        def find(register: Register) -> Node:
            return self.single.get(register) or current.get(register) or self._entering(register, index)

        for instruction in block.instructions:
            form.uses[instruction] = tuple(map(find, self._reads(instruction)))
            written = self._writes(instruction)
            if instruction.guard is not None and not block.guard_applied and written:
                form.kept[instruction] = tuple(map(find, written))
            for register in written:
                current[register] = instruction
        if block.guard is not None and not block.instructions:
            form.guards[block.index] = find(block.guard.register)


def _returns(block: BasicBlock) -> bool:
    return block.kind == "return" or block.leaves == "return"
