"""The causes of a condition in terms of the launch: objects, parameters, thread indices.

The search goes backwards through the dependence graph. It ends at values read from global memory, with the name of the object; the
element matters less. It continues through shared and local memory to the values stored there. At a φ, the branches that decide between
its values are causes too, and so are the exits of a loop for values that are defined in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..flow.control_dependence import ControlDependence
from ..flow.dependence import Access, Dependence
from ..flow.operands import reads, special_registers, writes
from ..flow.ssa import Merge, Node
from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    ELECT,
    LOAD,
    MATRIX_LOAD,
    REDUCTION,
    STORE,
    TEXTURE,
    WARPGROUP,
)
from ..isa.special import SPECIAL_REGISTERS
from ..ptx.syntax import Address, Instruction, Variable
from ..results import Cause
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .naming import object_names, parameter_name

__all__ = ["CauseFinder"]

_ORDER = ("data", "atomic", "thread", "time", "parameter", "block", "launch")
_SCOPES = {"thread": "thread", "warp": "thread", "cta": "block", "launch": "launch", "clock": "time"}


class CauseFinder:
    """Computes and caches the causes of conditions in one program, for a set of its launches.

    For each node of the dependence graph two sets of causes, as bits of Python integers: those by which lanes of a warp may
    differ there, and those on which it depends otherwise. A register that is uniform moves all to the second.
    """

    def __init__(self, program: Program, dependence: Dependence, plans: Sequence[LaunchPlan]) -> None:
        self._program = program
        self._dependence = dependence
        self._plans = plans
        self._control_dependence = [
            ControlDependence(program.blocks_of(number)) for number in range(len(program.functions))
        ]
        self._bits: dict[tuple[str, str], int] = {}
        self._found: dict[Node, tuple[int, int]] = {}
        self._contents: dict[tuple[tuple[Instruction, ...], frozenset[int]], Merge] = {}

    def of(self, branches: Iterable[int]) -> tuple[Cause, ...]:
        """The causes of the conditions at the ends of these blocks, those that can make lanes diverge first."""
        parting = others = 0
        for block in branches:
            for node in self._condition(block):
                self._solve(node)
                parting |= self._found[node][0]
                others |= self._found[node][1]
        causes = [
            Cause(kind, name, bool(parting & bit))
            for (kind, name), bit in self._bits.items()
            if (parting | others) & bit
        ]
        return tuple(
            sorted(causes, key=lambda cause: (not cause.varies, _ORDER.index(cause.kind), cause.name))
        )

    def _solve(self, start: Node) -> None:
        order, inputs = self._needed(start)
        fresh = {node: self._own(node) for node in order}
        own = dict(fresh)
        changed = True
        while changed:
            changed = False
            for node in order:
                parting, others = own[node]
                for source in inputs[node]:
                    more = fresh.get(source) or self._found[source]
                    parting |= more[0]
                    others |= more[1]
                if self._is_uniform(node):
                    parting, others = 0, parting | others
                if (parting, others) != fresh[node]:
                    fresh[node] = parting, others
                    changed = True
        self._found |= fresh

    def _needed(self, start: Node) -> tuple[list[Node], dict[Node, tuple[Node, ...]]]:
        """The nodes that a node depends on and that are not cached, in postorder."""
        inputs: dict[Node, tuple[Node, ...]] = {}
        order: list[Node] = []
        if start in self._found:
            return order, inputs
        inputs[start] = self._inputs(start)
        stack = [(start, iter(inputs[start]))]
        while stack:
            node, rest = stack[-1]
            for source in rest:
                if source not in inputs and source not in self._found:
                    inputs[source] = self._inputs(source)
                    stack.append((source, iter(inputs[source])))
                    break
            else:
                order.append(node)
                stack.pop()
        return order, inputs

    def _own(self, node: Node) -> tuple[int, int]:
        parting = others = 0
        if isinstance(node, Instruction):
            for cause in self._read_here(node):
                bit = self._bits.setdefault((cause.kind, cause.name), 1 << len(self._bits))
                parting |= bit if cause.varies else 0
                others |= 0 if cause.varies else bit
        return parting, others

    def _inputs(self, node: Node) -> tuple[Node, ...]:
        """All that a node's value depends on directly: values, and the conditions that decide which of them it is."""
        inputs = dict.fromkeys(self._sources(node))
        use = self._block_of(node)
        blocks: dict[int, None] = {}
        if isinstance(node, Merge):
            blocks |= dict.fromkeys(self._choosing(node))
        for definition in dict.fromkeys(self._block_of(source) for source in inputs):
            if definition is not None and use is not None and definition != use:
                blocks |= dict.fromkeys(self._on_leaving(definition, use))
        for block in blocks:
            inputs |= dict.fromkeys(self._condition(block))
        return tuple(inputs)

    def _choosing(self, merge: Merge) -> Iterable[int]:
        """The branches that decide which of its values a merge takes."""
        if merge.kind == "phi":
            return self._control_dependence_of(merge.block).of_predecessor(merge.block)
        if merge.kind in ("param", "returned") and len(merge.sources) > 1:
            blocks = (self._block_of(source) for source in merge.sources)
            return [block for index in blocks if index is not None for block in self._over(index)]
        return ()

    def _control_dependence_of(self, block: int) -> ControlDependence:
        return self._control_dependence[self._program.blocks[block].function]

    def _over(self, block: int) -> list[int]:
        return sorted(self._control_dependence_of(block).of_block(block))

    def _on_leaving(self, defined: int, used: int) -> Iterable[int]:
        blocks = self._program.blocks
        return (
            self._control_dependence_of(defined).of_loop_exits(defined, used)
            if blocks[defined].function == blocks[used].function
            else ()
        )

    def _condition(self, block: int) -> Iterable[Node]:
        """The definitions of the guard or index of a block's branch."""
        here = self._program.blocks[block]
        if here.kind == "branch" and not here.counted:
            guard = self._dependence.guards.get(block)
            return () if guard is None else (guard,)
        return () if here.terminator is None else self._dependence.uses[here.terminator]

    def _block_of(self, node: Node) -> int | None:
        if isinstance(node, Instruction):
            return self._program.block_of[node]
        return node.block if node.block >= 0 else None

    def _is_uniform(self, node: Node) -> bool:
        if isinstance(node, Merge):
            return (
                node.kind == "phi"
                and node.name in self._program.uniform[self._program.blocks[node.block].function]
            )
        uniform = self._program.uniform[self._program.blocks[self._program.block_of[node]].function]
        written = writes(node)
        return bool(written) and all(register in uniform for register in written)

    def _sources(self, node: Node) -> Iterable[Node]:
        if isinstance(node, Merge):
            return self._dependence.sources(node)
        if self._passes_on(node):
            stored = self._stored_by(self._dependence.writers_of(node), node)
            # the loaded value depends on the address, too
            return (*self._dependence.kept.get(node, ()), *self._dependence.uses[node], stored)
        if node.effect not in _MEMORY or node.form.space == "param":
            return self._dependence.sources(node)
        chosen = self._values(node) if node.effect.copies else ()
        return (*self._dependence.kept.get(node, ()), *chosen)

    def _stored_by(self, writers: tuple[Instruction, ...], load: Instruction) -> Merge:
        """The values that these instructions store and the conditions under which they do: one node for all loads with the same
        writers. The conditions of the load itself are handled at the load."""
        settled = self._control_dependence_of(self._program.block_of[load]).of_block(
            self._program.block_of[load]
        )
        contents = self._contents.get((writers, settled))
        if contents is None:
            values: dict[Node, None] = {}
            for writer in writers:
                values |= dict.fromkeys(self._stored(writer))
            for block in sorted(
                {block for item in writers for block in self._over(self._program.block_of[item])} - settled
            ):
                values |= dict.fromkeys(self._condition(block))
            contents = self._contents[writers, settled] = Merge(
                "memory", writes(load)[0], sources=list(values)
            )
        return contents

    def _stored(self, writer: Instruction) -> Iterable[Node]:
        """The definitions of the stored value; for a copy or an atomic, the instruction itself."""
        return self._values(writer) if writer.effect is STORE else (writer,)

    def _values(self, instruction: Instruction) -> Iterable[Node]:
        """The definitions of an instruction's operands other than addresses."""
        bases = {item.base for item in instruction.operands if isinstance(item, Address)}
        values = (register for register in reads(instruction) if register not in bases)
        return self._dependence.origins_of(instruction, values)

    def _passes_on(self, node: Instruction) -> bool:
        """Whether an instruction reads what its own CTA stored, in shared or local memory."""
        if node.effect not in (LOAD, MATRIX_LOAD, WARPGROUP) or not writes(node):
            return False
        accesses = self._dependence.reads_memory(node)
        return bool(accesses) and all(_of_cta(access) for access in accesses)

    def _read_here(self, node: Instruction) -> Iterator[Cause]:
        """The causes that originate at an instruction."""
        for name in special_registers(node):
            cause = self._special(name)
            if cause is not None:
                yield cause
        if node.effect is LOAD and node.form.space == "param":
            yield from (Cause("parameter", name, False) for name in self._parameter(node))
        elif node.effect in _MEMORY and not self._passes_on(node):
            kind = "atomic" if node.effect.atomic else "data"
            yield from (Cause(kind, name, True) for name in self._objects(node))
        elif node.effect is ELECT:
            yield Cause("thread", "laneid", True)

    def _special(self, name: str) -> Cause | None:
        form = SPECIAL_REGISTERS.get(name)
        kind = _SCOPES.get(form.scope, "launch") if form is not None else "launch"
        if name.startswith("tid.") and {plan.block["xyz".find(name[-1])] for plan in self._plans} == {1}:
            return None  # zero in every thread
        return Cause(kind, name, kind in ("thread", "time"))

    def _objects(self, node: Instruction) -> Iterator[str]:
        """The names of the objects that an instruction reads, over all launches."""
        origins = [access.origin for access in self._dependence.reads_memory(node)]
        if not origins:  # constants and textures, which no launch writes
            addresses = (item for item in node.operands if isinstance(item, Address))
            origins = [self._dependence.origin(node, address) for address in addresses]
        for origin in origins:
            yield from object_names(origin.bases, self._plans) or [""]

    def _parameter(self, load: Instruction) -> Iterator[str]:
        """The names of the kernel's parameters that a load reads, which are the same for all threads."""
        kernel = self._program.kernel
        for operand in load.operands:
            if isinstance(operand, Address) and operand.base in kernel.params:
                yield parameter_name(kernel, kernel.params.index(operand.base))


def _of_cta(access: Access) -> bool:
    """Whether an access is to shared or local memory, also where it is written as a generic one."""
    bases = access.origin.bases
    own = [isinstance(base, Variable) and base.space in ("shared", "local") for base in bases]
    return "global" not in access.spaces or (bool(own) and all(own))


_MEMORY = frozenset((LOAD, ATOMIC, REDUCTION, ASYNC_COPY, BULK_COPY, TEXTURE))
