"""The dependence graph of a program: what each value is computed from, through registers, calls and memory.

*Registers* depend by the SSA form. *Calls*: parameters of a function depend on the arguments of every call that may reach it, results
on the values that these functions return. *Memory*: a read depends on every write of the program, by any thread at any time, that may
write the same bytes: in the same state space (generic accesses are in all), based on the same object or on objects that may be the
same, and at offsets that may overlap (``addresses``). Without information, they may.

``Aliases`` is the information of a launch: which words of the parameter buffer and which module variables point into the same
object. Without it all pointers into device memory may be the same. ``ld.global.nc``, ``.const`` and kernel parameters are
not written while a kernel runs (manual, "ld.global.nc").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from ..isa.effects import ASYNC_COPY, BULK_COPY, LOAD, STACK, STORE, TENSOR, TEXTURE, WARPGROUP
from ..isa.evaluation import has_semantics
from ..isa.spaces import RANK_SHIFT
from ..ptx.module import Function
from ..ptx.syntax import Address, CallTarget, Instruction, Register, Variable
from .addresses import ANYWHERE, Origin, OriginFinder
from .blocks import BasicBlock
from .operands import access_bytes, formal_register, matched, reads
from .ssa import Merge, Node, SsaForm, ssa_form
from .uniformity import Uniformity

__all__ = ["Access", "Aliases", "Dependence", "Layout", "Object", "objects"]

#: byte offset of a word of the parameter buffer, or module variable → the object that it points into. Other words are not pointers.
Aliases = Mapping[int | Variable, int]


class Layout(Protocol):
    """The attributes of a program that the analyses use; ``simt.program.Program`` implements it."""

    @property
    def kernel(self) -> Function: ...
    @property
    def functions(self) -> tuple[Function, ...]: ...
    @property
    def blocks(self) -> tuple[BasicBlock, ...]: ...
    @property
    def uniformity(self) -> tuple[Uniformity, ...]: ...
    @property
    def predicated(self) -> tuple[Instruction, ...]: ...
    def blocks_of(self, function: int) -> tuple[BasicBlock, ...]: ...
    def callees(self, target: CallTarget) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Access:
    """The possible accesses of an instruction through one address: ``spaces`` of ``global shared local``; the ``origin`` of the
    address; ``size`` in bytes per lane."""

    spaces: frozenset[str]
    origin: Origin
    size: int


_WRITTEN = frozenset(("global", "shared", "local"))


class Dependence:
    """The dependence graph of one program. Nodes are instructions and merges (``ssa``)."""

    def __init__(self, program: Layout) -> None:
        self.program = program
        self.kernel = program.kernel
        self.uses: dict[Instruction, tuple[Node, ...]] = {}
        self.kept: dict[Instruction, tuple[Node, ...]] = {}
        #: by block, the node of the guard of the branch to a guarded call or barrier
        self.guards: dict[int, Node] = {}
        self._forms: list[SsaForm] = []
        self._params: dict[Variable, Merge] = {}
        self._results: dict[Instruction, list[Node]] = {}
        self._readers: dict[Instruction, tuple[Access, ...]] = {}
        self._writers: dict[Instruction, tuple[Access, ...]] = {}
        self._writing: list[Instruction] = []
        #: all instructions that change a stack pointer; each depends on all others
        self._stack: list[Instruction] = []
        self._written_at: dict[tuple[Access, ...], list[Instruction]] = {}
        self._reaching: dict[object, tuple[Instruction, ...]] = {}
        self._searched = False
        self._build()
        self._origins = OriginFinder(
            self.kernel, self.sources, self.uses.__getitem__, lambda item: self.kept.get(item, ())
        )

    # ------------------------------------------------------------------------------------------------- registers

    def sources(self, node: Node) -> Iterable[Node]:
        """The nodes that a node's value depends on through registers, parameters and calls, but not memory.

        For a call, these are the sources of its results; its arguments are sources of the parameters of the functions called.
        """
        if isinstance(node, Merge):
            return node.sources
        target = node.call
        if target is not None:
            arguments = self._system_arguments(node, target) if node.system is not None else ()
            return (
                *self._pointer(node, target),
                *arguments,
                *self._results.get(node, ()),
                *self.kept.get(node, ()),
            )
        parameter = self._parameter_read(node)
        nodes = (*self.uses[node], *self.kept.get(node, ()))
        if node.effect is STACK:
            nodes = (*nodes, *self._stack)
        return nodes if parameter is None else (*nodes, parameter)

    def origins_of(self, instruction: Instruction, registers: Iterable[Register]) -> Iterator[Node]:
        """The definitions of some of the registers that an instruction reads."""
        wanted = set(registers)
        for register, node in zip(reads(instruction), self.uses[instruction]):
            if register in wanted:
                yield node

    def _pointer(self, call: Instruction, target: CallTarget) -> Iterator[Node]:
        wanted = [target.register] if target.register is not None else []
        if call.guard is not None:
            wanted.append(call.guard.register)
        return self.origins_of(call, wanted)

    def _system_arguments(self, call: Instruction, target: CallTarget) -> Iterator[Node]:
        """The sources of the arguments of a system call, which has no parameters that depend on them."""
        for argument in target.arguments:
            if isinstance(argument, Variable):
                yield self._contents(argument)
            elif isinstance(argument, Register):
                yield from self.origins_of(call, [argument])

    def _build(self) -> None:
        program = self.program
        for number, function in enumerate(program.functions):
            returned = [formal_register(function, formal) for formal in function.returns]
            form = ssa_form(
                function, program.blocks_of(number), [item for item in returned if item is not None]
            )
            self._forms.append(form)
            self.uses |= form.uses
            self.kept |= form.kept
            self.guards |= form.guards
        for block in program.blocks:
            for instruction in block.instructions:
                target = instruction.call
                if target is not None:
                    self._link_call(instruction, target)
                elif instruction.effect is STACK:
                    self._stack.append(instruction)
                elif instruction.effect is STORE and instruction.form.space == "param":
                    address = _address(instruction)
                    if isinstance(address.base, Variable):
                        self._contents(address.base).sources.append(instruction)
        for form in self._forms[1:]:
            _close_over_carry(form)

    def _contents(self, variable: Variable) -> Merge:
        contents = self._params.get(variable)
        if contents is None:
            contents = self._params[variable] = Merge("param", variable)
        return contents

    def _parameter_read(self, instruction: Instruction) -> Merge | None:
        """The parameter variable of a call or device function that an instruction reads."""
        if instruction.effect is not LOAD or instruction.form.space != "param":
            return None
        base = _address(instruction).base
        return self._contents(base) if isinstance(base, Variable) and base not in self.kernel.params else None

    def _link_call(self, call: Instruction, target: CallTarget) -> None:
        definitions = dict(zip(reads(call), self.uses[call]))
        if call.system is not None:
            for result in target.returns:
                if isinstance(result, Variable):
                    self._contents(result).sources.append(call)
        for number in self.program.callees(target):
            function, form = self.program.functions[number], self._forms[number]
            for formal, argument in zip(function.params, target.arguments):
                register = formal_register(function, formal)
                if register is None:
                    into = self._contents(formal)
                else:
                    into = form.entry.setdefault(register, Merge("entry", register))
                if isinstance(argument, Variable):
                    into.sources.append(self._contents(argument))
                elif isinstance(argument, Register):
                    into.sources.append(definitions[argument])
            for formal, result in zip(function.returns, target.returns):
                register = formal_register(function, formal)
                merge = self._contents(formal) if register is None else form.returned[register]
                if isinstance(result, Variable):
                    self._contents(result).sources.append(merge)
                elif isinstance(result, Register):
                    self._results.setdefault(call, []).append(merge)

    # ---------------------------------------------------------------------------------------------------- memory

    def reads_memory(self, instruction: Instruction) -> tuple[Access, ...]:
        """The possible reads of an instruction from global, shared and local memory."""
        self._find_accesses()
        return self._readers.get(instruction, ())

    def writes_memory(self, instruction: Instruction) -> tuple[Access, ...]:
        """The possible writes of an instruction."""
        self._find_accesses()
        return self._writers.get(instruction, ())

    @property
    def writing(self) -> Sequence[Instruction]:
        """All instructions that may write memory other than call parameters."""
        self._find_accesses()
        return self._writing

    def _find_accesses(self) -> None:
        if self._searched:
            return
        self._searched = True
        for block in self.program.blocks:
            for instruction in block.instructions:
                read, written = self._accesses(instruction)
                if read:
                    self._readers[instruction] = read
                if written:
                    self._writers[instruction] = written
                    self._writing.append(instruction)
                    self._written_at.setdefault(written, []).append(instruction)

    def _accesses(self, instruction: Instruction) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        effect, space = instruction.effect, instruction.form.space
        if space in ("param", "const") or not (effect.reads or effect.writes):
            return (), ()
        if effect is WARPGROUP:  # descriptors may point to anywhere in shared memory
            return (Access(frozenset(("shared",)), Origin(frozenset((ANYWHERE,)), 1, 0), 16),), ()
        if effect.tensor:  # through descriptors, and all tensor memory of the CTA
            shared = effect is not TENSOR
            spaces = frozenset(("shared",)) if shared else _WRITTEN
            anything = Access(spaces, Origin(frozenset((ANYWHERE,)), 1, 0), 1)
            return (anything,) * effect.reads, (anything,) * effect.writes
        read: list[Access] = []
        written: list[Access] = []
        for slot, operand in matched(instruction):
            if not isinstance(operand, Address):
                continue
            where = str(slot.space or space or "generic").split("::")[0]
            where = "global" if where == "image" else where
            spaces = _WRITTEN if where == "generic" else frozenset((where,)) & _WRITTEN
            origin = self.origin(instruction, operand)
            if "shared" in spaces:
                origin = _in_any_cta(origin)
            scattered = instruction.form.moves is not None or slot.space == "image"
            if scattered or (effect is BULK_COPY and slot.name != "m"):
                origin = Origin(origin.bases, 1, 0)  # distances of lines and texels are unknown
            if effect is BULK_COPY and slot.name == "t":
                # the map, and the tensor that it describes
                spaces, origin = frozenset(("global",)), Origin(frozenset((ANYWHERE,)), 1, 0)
            access = Access(spaces, origin, access_bytes(instruction))
            reads_it, writes_it = _directions(instruction, slot.name)
            if reads_it:
                read.append(access)
            if writes_it:
                written.append(access)
        return tuple(read), tuple(written)

    def origin(self, instruction: Instruction, address: Address) -> Origin:
        """The origin of an address operand."""
        if isinstance(address.base, Register):
            origin = self._origins.of(next(self.origins_of(instruction, [address.base])))
        elif isinstance(address.base, Variable):
            origin = Origin(frozenset((address.base,)), 0, 0)
        else:
            origin = Origin(frozenset((ANYWHERE,)), 0, 0)
        return origin.moved(address.offset)

    def may_touch(self, one: Access, other: Access, aliases: Aliases | None = None) -> bool:
        """Whether two accesses, of any threads at any time, may have a byte in common."""
        mine, others = objects(one, aliases), objects(other, aliases)
        if mine is None or others is None:
            return bool(_reach(one, mine) & _reach(other, others))
        if not mine & others:
            return False
        same = len(one.origin.bases) == 1 and one.origin.bases == other.origin.bases
        return not same or _overlap(one, other)

    def writers_of(self, instruction: Instruction, aliases: Aliases | None = None) -> tuple[Instruction, ...]:
        """The stores, atomics, reductions and copies whose values an instruction may read."""
        read = () if _is_constant(instruction) else self.reads_memory(instruction)
        if not read:
            return ()
        question = read, None if aliases is None else tuple(aliases.items())
        known = self._reaching.get(question)
        if known is None:
            reaching: list[Instruction] = []
            for written, writers in self._written_at.items():
                if any(self.may_touch(one, other, aliases) for one in read for other in written):
                    reaching += writers
            known = self._reaching[question] = tuple(reaching)
        return known


#: state space, and the object in it: a number of ``Aliases`` (−1: any pointer into device memory) or a variable
Object = tuple[str, "int | Variable | str"]


def objects(access: Access, aliases: Aliases | None) -> frozenset[Object] | None:
    """The objects that an access may reach; ``None``: all in its spaces."""
    objects: set[Object] = set()
    for base in access.origin.bases:
        if base is None:
            return None
        if isinstance(base, int) or base.space in ("global", "tex"):
            number = -1 if aliases is None else aliases.get(base)
            if number is not None:
                objects.add(("global", number))
        elif base.space == "shared":
            dynamic = base.linkage == "extern" and base.size == 0
            objects.add(("shared", "dynamic" if dynamic else base))
        elif base.space == "local":
            objects.add(("local", base))
        elif base.space != "const":
            return None
    return frozenset(item for item in objects if item[0] in access.spaces) or None


def _in_any_cta(origin: Origin) -> Origin:
    """A shared address in any CTA of the cluster: equal offsets in different CTAs differ by multiples of 2^RANK_SHIFT."""
    size = 1 << RANK_SHIFT
    if origin.stride == 0 and 0 <= origin.offset < size:
        return origin
    stride = gcd(origin.stride, size)
    return Origin(origin.bases, stride, origin.offset % stride)


def _reach(access: Access, objects: frozenset[Object] | None) -> frozenset[str]:
    return access.spaces if objects is None else frozenset(space for space, _ in objects)


def _overlap(one: Access, other: Access) -> bool:
    """Whether two accesses relative to the same base may overlap."""
    stride = gcd(one.origin.stride, other.origin.stride)
    distance = other.origin.offset - one.origin.offset
    if stride == 0:
        return -other.size < distance < one.size
    distance %= stride
    return distance < one.size or stride - distance < other.size


def _directions(instruction: Instruction, name: str) -> tuple[bool, bool]:
    """Whether an instruction reads, and whether it writes, through its address operand of that name."""
    effect = instruction.effect
    if effect is BULK_COPY and name == "t":
        return True, instruction.form.modifier("dst") == "global"
    if effect is BULK_COPY:
        return name != "d" or has_semantics(instruction.form), name != "a" or "d" not in {
            slot.name for slot in instruction.form.operands
        }
    if effect is ASYNC_COPY:
        return name != "d", name != "a"
    return effect.reads, effect.writes


def _is_constant(instruction: Instruction) -> bool:
    """Whether the memory that it reads is not written while the kernel runs. This includes textures (CUDA C++ Programming Guide,
    "Read/Write Coherency") but not surfaces, which the kernel may write."""
    if instruction.effect is TEXTURE:
        return instruction.form.modifier("mode") is None
    return instruction.effect is LOAD and "nc" in instruction.opcode.split(".")


def _address(instruction: Instruction) -> Address:
    return next(item for item in instruction.operands if isinstance(item, Address))


def _close_over_carry(form: SsaForm) -> None:
    """A function that reads the condition code before writing it sees the value of its last activation."""
    for register, merge in form.entry.items():
        if register.index < 0:
            merge.sources += [item for item in form.uses if item.form.writes_carry]
