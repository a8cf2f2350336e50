"""The dependence graph of a program: what each value is computed from, through registers, calls and memory.

*Registers* depend by the SSA form. *Calls*: parameters of a function depend on the arguments of every call that may mean it, results
on what those functions return. *Memory*: a read depends on every write of the program that may reach it, of any thread at
any time: both in the same state space (generic ones in any), based on the same object or on objects that may be the same,
and not at offsets that can be told apart (``addresses``). Where nothing is known, they may.

``Aliases`` says what a launch knows: which words of the parameter buffer and which module variables point into the same
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

#: byte offset of a word of the parameter buffer, or module variable → the object that it points into. Words that are
#: missing are not pointers.
Aliases = Mapping[int | Variable, int]


class Layout(Protocol):
    """What the analyses need of a program; ``simt.program.Program`` is one."""

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
    """What one instruction may touch through one address: ``spaces`` of ``global shared local``; the ``origin`` of the address;
    ``size`` in bytes per lane."""

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
        #: what the guard of a branch to the block of a guarded call or barrier comes from, by block
        self.guards: dict[int, Node] = {}
        self._forms: list[SsaForm] = []
        self._params: dict[Variable, Merge] = {}
        self._results: dict[Instruction, list[Node]] = {}
        self._readers: dict[Instruction, tuple[Access, ...]] = {}
        self._writers: dict[Instruction, tuple[Access, ...]] = {}
        self._writing: list[Instruction] = []
        #: all that moves stack pointers: what one gives follows from any of the others
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
        """The nodes that a node's value comes from through registers, parameters and calls: everything but memory.

        Of a call these are what its results come from; its arguments are sources of the parameters of the functions called.
        """
        if isinstance(node, Merge):
            return node.sources
        target = node.call
        if target is not None:
            given = self._system_arguments(node, target) if node.system is not None else ()
            return (
                *self._pointer(node, target),
                *given,
                *self._results.get(node, ()),
                *self.kept.get(node, ()),
            )
        parameter = self._parameter_read(node)
        nodes = (*self.uses[node], *self.kept.get(node, ()))
        if node.effect is STACK:
            nodes = (*nodes, *self._stack)
        return nodes if parameter is None else (*nodes, parameter)

    def origins_of(self, instruction: Instruction, registers: Iterable[Register]) -> Iterator[Node]:
        """The nodes that some of the registers that an instruction reads come from."""
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
        """What the arguments of a call of the system come from: no function takes them over."""
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
        given = dict(zip(reads(call), self.uses[call]))
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
                    into.sources.append(given[argument])
            for formal, result in zip(function.returns, target.returns):
                register = formal_register(function, formal)
                merge = self._contents(formal) if register is None else form.returned[register]
                if isinstance(result, Variable):
                    self._contents(result).sources.append(merge)
                elif isinstance(result, Register):
                    self._results.setdefault(call, []).append(merge)

    # ---------------------------------------------------------------------------------------------------- memory

    def reads_memory(self, instruction: Instruction) -> tuple[Access, ...]:
        """What an instruction may read of global, shared and local memory."""
        self._find_accesses()
        return self._readers.get(instruction, ())

    def writes_memory(self, instruction: Instruction) -> tuple[Access, ...]:
        """What an instruction may write."""
        self._find_accesses()
        return self._writers.get(instruction, ())

    @property
    def writing(self) -> Sequence[Instruction]:
        """All instructions that may write memory, parameters of calls aside."""
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
        if effect.tensor:  # whatever descriptors and the tensor memory of the CTA lead to
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
                origin = Origin(origin.bases, 1, 0)  # lines and texels lie at distances that are not known
            if effect is BULK_COPY and slot.name == "t":
                # the map, and what it describes
                spaces, origin = frozenset(("global",)), Origin(frozenset((ANYWHERE,)), 1, 0)
            access = Access(spaces, origin, access_bytes(instruction))
            reads_it, writes_it = _directions(instruction, slot.name)
            if reads_it:
                read.append(access)
            if writes_it:
                written.append(access)
        return tuple(read), tuple(written)

    def origin(self, instruction: Instruction, address: Address) -> Origin:
        """Where an address operand of an instruction points."""
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
        """The stores, atomics, reductions and copies whose effect an instruction may read."""
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


#: state space, and what in it: a number of ``Aliases`` (−1: any pointer into device memory) or a variable
Object = tuple[str, "int | Variable | str"]


def objects(access: Access, aliases: Aliases | None) -> frozenset[Object] | None:
    """The objects that an access may touch; ``None``: any in its spaces."""
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
    """A shared address as one in the memory of whichever CTA of the cluster: places that lie a multiple of 2^RANK_SHIFT apart are the
    same one, of different CTAs."""
    size = 1 << RANK_SHIFT
    if origin.stride == 0 and 0 <= origin.offset < size:
        return origin
    stride = gcd(origin.stride, size)
    return Origin(origin.bases, stride, origin.offset % stride)


def _reach(access: Access, objects: frozenset[Object] | None) -> frozenset[str]:
    return access.spaces if objects is None else frozenset(space for space, _ in objects)


def _overlap(one: Access, other: Access) -> bool:
    """Whether bytes at offsets from the same base can be the same."""
    stride = gcd(one.origin.stride, other.origin.stride)
    distance = other.origin.offset - one.origin.offset
    if stride == 0:
        return -other.size < distance < one.size
    distance %= stride
    return distance < one.size or stride - distance < other.size


def _directions(instruction: Instruction, name: str) -> tuple[bool, bool]:
    """Whether an instruction reads and writes what its address operand of that name points to."""
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
    """Whether what it reads is not written while the kernel runs: textures too (CUDA C++ Programming Guide, "Read/Write Coherency"),
    but not what is read through a surface, which says what becomes of places outside."""
    if instruction.effect is TEXTURE:
        return instruction.form.modifier("mode") is None
    return instruction.effect is LOAD and "nc" in instruction.opcode.split(".")


def _address(instruction: Instruction) -> Address:
    return next(item for item in instruction.operands if isinstance(item, Address))


def _close_over_carry(form: SsaForm) -> None:
    """A function that reads a condition code that it has not written finds that of its last activation."""
    for register, merge in form.entry.items():
        if register.index < 0:
            merge.sources += [item for item in form.uses if item.form.writes_carry]
