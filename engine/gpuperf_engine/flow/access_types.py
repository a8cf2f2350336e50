"""What the bits that memory instructions move are: floats or integers, from what computes and uses them.

PTX loads and stores need not say: ``ld.b32`` moves any 32 bits, and compilers move floats with ``.u32`` and ``.b64``. What computes a
value or computes with it says (``fma.rn.f32``); moves, bit casts, selections, φs, exchanges between lanes, calls, and what is
stored to shared or local memory and loaded from there pass it on, in both directions. A pack (``mov.b64 %rd, {%r1, %r2}``) has the
types of its parts. Where nothing says, or floats and integers are both said of the same bits, the type is unknown: ``b32``. What only
moves ``f32`` says less than what computes with pairs of halves.

An integer constant in a register says nothing of another use of it: compilers keep one 0 for a counter and for a float to store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    LOAD,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUCTION,
    SHFL,
    STORE,
    TENSOR_PRODUCT,
    WARPGROUP,
)
from ..isa.evaluation import has_semantics
from ..isa.types import ScalarType, scalar_type
from ..ptx.syntax import Address, CallTarget, Immediate, Instruction, Operand, Register, Vector
from .dependence import Dependence, Layout
from .operands import matched, reads, writes
from .ssa import Merge, Node

__all__ = ["access_types"]

#: bits that one definition gives a register; of an integer constant the bits that one user of it takes
_Value = tuple[Node, "Register | None"] | tuple[Node, "Register | None", Node]
#: instructions whose type does not say what the bits are
_MOVES = frozenset(("mov", "selp", "slct", "shfl", "prmt"))
#: instructions on fragments of matrices, whose registers of 32 bits hold elements of types that the opcode says, or of any
_MATRICES = frozenset(("mma", "wmma", "ldmatrix", "stmatrix"))
_FRAGMENTS = {"f16": "f16x2", "bf16": "bf16x2", "tf32": "f32"}
_ELEMENT = re.compile(r"(b?f16|tf32|f32|f64|[su](4|8|32)|b1|e\dm\d)$")
#: what copies are taken to move
_COPIED = scalar_type("b32")
_BITWISE = frozenset(("and", "or", "xor", "not", "lop3", "cnot"))


def access_types(program: Layout) -> Mapping[Instruction, tuple[str, ...]]:
    """For each load, store, atomic and reduction with a type the names of the types of its elements, in order: ``f32``, ``s32``,
    ``u32`` … or ``b32`` where it is unknown. ``cp.async`` moves words of 32 bits, all of the type that those are loaded with, and so
    do bulk copies, any number of them, or of the halves that products of a warpgroup read. Of matrices that are loaded the words are
    elements that a lane moves, one access after the other; products read elements of A, the first one, and of B. Halves of words of 32
    bits count by themselves where they are known to be floats."""
    return _Types(program).accesses()


class _Types:
    def __init__(self, program: Layout) -> None:
        self.program = program
        self.dependence = Dependence(program)
        self.parent: dict[_Value, _Value] = {}
        #: what is said of the values that are joined, by their representative: names of types
        self.said: dict[_Value, set[str]] = {}
        #: values made of parts, low ones first
        self.parts: list[tuple[_Value, list[_Value], int]] = []
        #: values of which one has halves of the others
        self.mixed: list[list[_Value]] = []
        self.every = [item for block in program.blocks for item in block.instructions]
        self.constants = {item for item in self.every if _is_constant(item)}
        for instruction in self.every:
            self._look_at(instruction)
        for merge in self._merges():
            for source in self.dependence.sources(merge):
                for value in self._given(source, merge.name):
                    if source not in self.constants:
                        self._join((merge, None), value)
        self._join_memory()

    # -- which values are the same bits ------------------------------------------------------------------------------------

    def _find(self, value: _Value) -> _Value:
        root = value
        while (above := self.parent.get(root, root)) != root:
            root = above
        while value != root:
            self.parent[value], value = root, self.parent.get(value, value)
        return root

    def _join(self, one: _Value, other: _Value) -> None:
        first, second = self._find(one), self._find(other)
        if first != second:
            self.parent[second] = first
            if second in self.said:
                self.said.setdefault(first, set()).update(self.said.pop(second))

    def _say(self, value: _Value, type: str) -> None:
        self.said.setdefault(self._find(value), set()).add(type)

    def _known(self, value: _Value) -> set[str]:
        """What is said of a value. Whoever computes with pairs of halves knows better than moves of ``f32``."""
        said = self.said.get(self._find(value), set())
        if _MOVED not in said:
            return said
        pairs = said & _PAIRS and "f32" not in said
        return said - {_MOVED} if pairs else said - {_MOVED} | {"f32"}

    @staticmethod
    def _value(node: Node, register: object) -> _Value:
        """What a node gives a register."""
        return (
            (node, None)
            if isinstance(node, Merge) or not isinstance(register, Register)
            else (node, register)
        )

    def _given(self, source: Node, name: object) -> Iterator[_Value]:
        """What a source gives a merge: of a parameter that is stored to what is stored; else the register of that name or, where a
        function begins, the only one that the source writes."""
        if isinstance(source, Merge):
            yield source, None
        elif source.effect is STORE:
            read = self._read(source)
            yield from (read[register] for register in _elements(source) if register is not None)
        else:
            written = writes(source)
            yield from ((source, register) for register in written if register is name or len(written) == 1)

    def _merges(self) -> Iterator[Merge]:
        """All merges that values come from."""
        seen: set[Merge] = set()
        work: list[Node] = [*self.every]
        while work:
            node = work.pop()
            for source in self.dependence.sources(node):
                if isinstance(source, Merge) and source not in seen:
                    seen.add(source)
                    work.append(source)
        yield from seen

    # -- what instructions say ---------------------------------------------------------------------------------------------

    def _read(self, instruction: Instruction) -> dict[Register, _Value]:
        given = zip(reads(instruction), self.dependence.uses[instruction])
        return {
            register: (node, register, instruction) if node in self.constants else self._value(node, register)
            for register, node in given
        }

    def _look_at(self, instruction: Instruction) -> None:
        read = self._read(instruction)
        name = instruction.opcode.split(".")[0]
        if instruction.call is not None:
            self._call(instruction, instruction.call)
        elif instruction.effect in (LOAD, STORE):
            self._access(instruction, read)
        elif name in _MOVES:
            self._move(instruction, read, name)
        else:
            self._compute(instruction, read, name)
        for register, node in zip(writes(instruction), self.dependence.kept.get(instruction, ())):
            if node not in self.constants:
                self._join((instruction, register), self._value(node, register))

    def _call(self, instruction: Instruction, target: CallTarget) -> None:
        """Results are what the functions return; arguments are sources of what these begin with."""
        returned = [item for item in target.returns if isinstance(item, Register)]
        sources = [
            node
            for node in self.dependence.sources(instruction)
            if isinstance(node, Merge) and node.kind == "returned"
        ]
        for register, node in zip(returned, sources):
            self._join((instruction, register), (node, None))

    def _access(self, instruction: Instruction, read: Mapping[Register, _Value]) -> None:
        type = scalar_type(str(instruction.form.modifier("type")))
        for register in _elements(instruction):
            if register is None:
                continue
            value = read[register] if instruction.effect is STORE else (instruction, register)
            if type.is_float or type.is_signed:
                self._say(value, _moved(type) if type.is_float else "signed")
            self._declared(value, register)
        if instruction.effect is LOAD and instruction.form.space == "param":
            for source in self.dependence.sources(instruction):
                if isinstance(source, Merge) and source.kind == "param":
                    for register in writes(instruction):
                        self._join((instruction, register), (source, None))

    def _declared(self, value: _Value, register: Register) -> None:
        if register.type.is_float:
            self._say(value, _moved(register.type))

    def _move(self, instruction: Instruction, read: Mapping[Register, _Value], name: str) -> None:
        targets = [operand for slot, operand in matched(instruction) if slot.role == "destination"]
        sources = [
            operand
            for slot, operand in matched(instruction)
            if slot.role == "source" and (instruction.effect is not SHFL or slot.name == "a")
        ]
        if name == "prmt":
            self._permute(instruction, read, sources)
            return
        if name in ("selp", "slct") and len(sources) < 2:
            return
        target, wanted = targets[0], sources[:1] if name in ("mov", "shfl") else sources[:2]
        type = instruction.form.modifier("type")
        floating = isinstance(type, str) and type in ("f16", "bf16", "f32", "f64")
        for source in wanted:
            if isinstance(target, Register) and isinstance(source, Register):
                if target.type.bits == source.type.bits:
                    self._join((instruction, target), read[source])
            elif isinstance(target, Register) and isinstance(source, Immediate) and source.kind != "int":
                if scalar_type(source.kind).bits == target.type.bits:
                    self._say((instruction, target), _moved(scalar_type(source.kind)))
            elif isinstance(target, Register) and isinstance(source, Vector):
                parts = [read[item] for item in source.elements if isinstance(item, Register)]
                if len(parts) == len(source.elements):
                    self.parts.append(((instruction, target), parts, target.type.bits))
            elif isinstance(target, Vector) and isinstance(source, Register):
                pieces = [(instruction, item) for item in target.elements if isinstance(item, Register)]
                if len(pieces) == len(target.elements):
                    self.parts.append((read[source], list(pieces), source.type.bits))
        for register in [item for item in (target, *wanted) if isinstance(item, Register)]:
            value = (instruction, register) if register is target else read[register]
            if floating:
                self._say(value, _moved(scalar_type(str(type))))
            self._declared(value, register)

    def _permute(
        self, instruction: Instruction, read: Mapping[Register, _Value], sources: Sequence[Operand]
    ) -> None:
        """``prmt`` that makes a pair of halves out of those of others."""
        *pairs, selector = sources
        if not isinstance(selector, Immediate) or instruction.opcode != "prmt.b32":
            return
        halves = [_HALVES.get(int(selector.value) >> shift & 0xFF) for shift in (0, 8)]
        taken = [pairs[half] for half in halves if half is not None]
        if len(taken) == 2:
            registers = [operand for operand in taken if isinstance(operand, Register)]
            if len(registers) == 2:
                (target,) = writes(instruction)
                self.mixed.append([(instruction, target), *(read[register] for register in registers)])

    def _compute(self, instruction: Instruction, read: Mapping[Register, _Value], name: str) -> None:
        """Arithmetic says what its operands are; logic on bits says nothing that arithmetic would not overrule."""
        for slot, operand in matched(instruction):
            if slot.role not in ("source", "destination") or slot.type is None or slot.type.is_predicate:
                continue
            for register in operand.elements if isinstance(operand, Vector) else (operand,):
                if not isinstance(register, Register):
                    continue
                value = (instruction, register) if slot.role == "destination" else read.get(register)
                if value is not None and register.type.bits == slot.type.bits:
                    if name not in _MATRICES or slot.type.is_float:
                        self._say(value, _statement(slot.type, name))
                    elif said := _fragment(instruction, slot.name):
                        self._say(value, said)
                    self._declared(value, register)

    # -- memory ------------------------------------------------------------------------------------------------------------

    def _join_memory(self) -> None:
        """What is stored to shared and local memory is what may be loaded from there, element for element of one width; not what a
        function stores that a call by address may mean, as the call may mean another one."""
        uncertain = self._uncertain()
        for load in self.every:
            if load.effect is MATRIX_LOAD and load.form.space == "shared":
                for copy in self.dependence.writers_of(load):
                    if copy.effect in (ASYNC_COPY, BULK_COPY):
                        for result in writes(load):
                            self._join((load, result), (copy, None))
            if load.effect is WARPGROUP and len(said := {*_operand_names(load)} & {*_SIZES}) == 1:
                (type,) = said
                for copy in self.dependence.writers_of(load):
                    if copy.effect in (ASYNC_COPY, BULK_COPY):
                        self._say((copy, None), type if _SIZES[type] == _COPIED.bits else f"{type}x2")
            if load.effect is not LOAD or load.form.space not in ("shared", "local"):
                continue
            width = scalar_type(str(load.form.modifier("type"))).bits
            for store in self.dependence.writers_of(load):
                if store.effect in (ASYNC_COPY, BULK_COPY) and width == _COPIED.bits:
                    for register in _elements(load):
                        if register is not None:
                            self._join((load, register), (store, None))
                if store.effect is not STORE or scalar_type(str(store.form.modifier("type"))).bits != width:
                    continue
                if uncertain.get(store, -1) not in (-1, uncertain.get(load, -1)):
                    continue
                read = self._read(store)
                for target in _elements(load):
                    for source in _elements(store):
                        if target is not None and source is not None:
                            self._join((load, target), read[source])

    def _uncertain(self) -> dict[Instruction, int]:
        """The instructions of functions that calls which may mean several reach, with the function that each is in."""
        program = self.program
        calls = [item.call for item in self.every if item.call is not None and item.call.function is None]
        several = (callees for callees in map(program.callees, calls) if len(callees) > 1)
        work = [callee for callees in several for callee in callees]
        reached: dict[Instruction, int] = {}
        seen = set[int]()
        while work:
            function = work.pop()
            if function in seen:
                continue
            seen.add(function)
            for item in (item for block in program.blocks_of(function) for item in block.instructions):
                reached[item] = function
                if item.call is not None:
                    work += program.callees(item.call)
        return reached

    # -- the answer --------------------------------------------------------------------------------------------------------

    def accesses(self) -> dict[Instruction, tuple[str, ...]]:
        """See ``access_types``."""
        self._settle_parts()
        names: dict[Instruction, tuple[str, ...]] = {}
        for instruction in self.every:
            if instruction.effect in (ATOMIC, REDUCTION):
                type, count = (
                    scalar_type(str(instruction.form.modifier("type"))),
                    _atomic_elements(instruction),
                )
                names[instruction] = (type.name,) * count
            elif instruction.effect in (LOAD, STORE) and instruction.form.modifier("type") is not None:
                names[instruction] = self._names(instruction)
            elif instruction.effect is ASYNC_COPY and (count := _copied_elements(instruction)):
                said = self._known((instruction, None))
                names[instruction] = _word_names(_COPIED, said) * count
            elif instruction.effect is BULK_COPY:
                # one after the other, each of this type
                if has_semantics(instruction.form):
                    names[instruction] = (scalar_type(str(instruction.form.modifier("type"))).name,)
                    continue
                said = self._known((instruction, None))
                names[instruction] = _word_names(_COPIED, said)[:1]
            elif instruction.effect in (MATRIX_LOAD, MATRIX_STORE):
                names[instruction] = self._matrix_names(instruction)
            elif instruction.effect in (WARPGROUP, TENSOR_PRODUCT):
                names[instruction] = _operand_names(instruction)
        return names

    def _matrix_names(self, instruction: Instruction) -> tuple[str, ...]:
        """The types of what a lane moves: words, or their halves where these are known to be floats."""
        read = self._read(instruction)
        said: set[str] = set()
        for register in [*writes(instruction), *read]:
            if register.type.bits == _COPIED.bits and not _is_address(instruction, register):
                value = read.get(register, (instruction, register))
                said |= self._known(value)
        moves = instruction.form.moves
        assert moves is not None
        names: tuple[str, ...] = ()
        for move in moves.parts:
            names += _word_names(scalar_type(f"b{8 * move.bytes}"), said) * move.count
        return names

    def _names(self, instruction: Instruction) -> tuple[str, ...]:
        """The types of the elements; of their halves where some are known to be pairs of floats, and of no other more is known than
        that it is moved."""
        type = scalar_type(str(instruction.form.modifier("type")))
        read = self._read(instruction)
        every: list[set[str]] = []
        sure = set[str]()
        for register in _elements(instruction):
            said: set[str] = set()
            if register is not None:
                value = read[register] if instruction.effect is STORE else (instruction, register)
                said = self._known(value)
                sure |= self.said.get(self._find(value), set()) - {_MOVED}
            every.append(said)
        pair = _word_names(type, sure)
        if len(pair) > 1 and not sure & _WHOLE:
            return pair * len(every)
        return tuple(_name(type, said) for said in every)

    def _settle_parts(self) -> None:
        """Packs have the type of their parts, and parts that of the pack, also of halves of other packs; until nothing changes."""
        changed = True
        while changed:
            changed = False
            for values in self.mixed:
                halves = _PAIRS & {item for value in values for item in self._known(value)}
                for value in values:
                    own = self.said.setdefault(self._find(value), set())
                    changed |= not halves <= own
                    own |= halves
            for whole, parts, bits in self.parts:
                said = {item for part in parts for item in self._known(part)}
                each = {item for item in said if item in _SIZES and _SIZES[item] * len(parts) == bits}
                packed = {f"{item}x{len(parts)}" for item in each if len(each) == 1}
                own = self.said.setdefault(self._find(whole), set())
                changed |= not packed <= own
                own |= packed
                inside = {item.split("x")[0] for item in own if item.endswith(f"x{len(parts)}")}
                for part in parts:
                    known = self.said.setdefault(self._find(part), set())
                    changed |= not inside <= known
                    known |= inside


#: what is said of integers
_WHOLE = frozenset(("signed", "integer"))
#: said of what is only moved as a float of 32 bits: nvcc moves pairs of halves by ``ld.v4.f32`` where the source says ``float4``
_MOVED = "f32 moved"
_PAIRS = frozenset(("f16x2", "bf16x2"))
#: of which operand ``prmt`` takes a half, by two digits of its selector
_HALVES = {0x10: 0, 0x32: 0, 0x54: 1, 0x76: 1}
#: elements of operands of ``wgmma``, as they are recorded: what is no number of its own by its bits
_OPERANDS = {
    "f16": "f16",
    "bf16": "bf16",
    "tf32": "f32",
    "s8": "s8",
    "u8": "u8",
    "e4m3": "b8",
    "e5m2": "b8",
    "b1": "b32",
}
_SIZES = {"f16": 16, "bf16": 16, "f32": 32}


def _is_constant(instruction: Instruction) -> bool:
    """Whether an instruction gives a register an integer that the text has."""
    if instruction.opcode.split(".")[0] != "mov" or instruction.guard is not None:
        return False
    source = instruction.operands[-1]
    return isinstance(source, Immediate) and source.kind == "int"


def _elements(instruction: Instruction) -> Iterator[Register | None]:
    """The registers of the elements that a load or store moves; ``None`` for constants and sinks."""
    wanted = "destination" if instruction.effect is LOAD else "source"
    for slot, operand in matched(instruction):
        if slot.role == wanted and slot.name != "policy" and not isinstance(operand, Address):
            for element in operand.elements if isinstance(operand, Vector) else (operand,):
                yield element if isinstance(element, Register) else None
            return


def _atomic_elements(instruction: Instruction) -> int:
    return max((len(item.elements) for item in instruction.operands if isinstance(item, Vector)), default=1)


def _fragment(instruction: Instruction, operand: str) -> str | None:
    """What a register of a fragment of a matrix holds; ``None`` if the opcode does not say, or no floats."""
    words = instruction.opcode.split(".")
    types = [word for word in words if _ELEMENT.match(word)]
    if words[:2] in (["wmma", "load"], ["wmma", "store"]):
        return _FRAGMENTS.get(types[-1])
    if operand in ("a", "b") and words[0] == "wmma" and len(types) == 2:
        return _FRAGMENTS["f16"]
    # of d, a, b and c, in this order
    number = "dabc".find(operand)
    return _FRAGMENTS.get(types[number]) if len(types) == 4 and number >= 0 else None


def _operand_names(instruction: Instruction) -> tuple[str, str]:
    """The types of the elements of A and B that a product of a warpgroup or of tensor memory reads from shared memory."""
    words = instruction.opcode.split(".")
    if instruction.effect is TENSOR_PRODUCT:
        # a descriptor says which halves or bytes they are
        kind = next((word for word in words if word.startswith("kind::")), "")
        name = {"kind::f16": "b16", "kind::tf32": "f32"}.get(kind, "b8")
        return name, name
    types = [word for word in words if word in _OPERANDS]
    left, right = types[-2:]
    return _OPERANDS[left], _OPERANDS[right]


def _is_address(instruction: Instruction, register: Register) -> bool:
    """Whether a matrix instruction takes its address, or the distance of lines, from a register."""
    return any(
        operand is register or (isinstance(operand, Address) and operand.base is register)
        for slot, operand in matched(instruction)
        if slot.role == "address" or slot.name == "stride"
    )


def _copied_elements(instruction: Instruction) -> int:
    """How many words ``cp.async`` copies; 0 of what makes or awaits groups of copies."""
    sizes = [operand for slot, operand in matched(instruction) if slot.name == "bytes"]
    return sizes[0].value // (_COPIED.bits // 8) if sizes and isinstance(sizes[0], Immediate) else 0


def _moved(type: ScalarType) -> str:
    """What a float that is moved says of its bits."""
    return _MOVED if type.name == "f32" else type.name


def _statement(type: ScalarType, name: str) -> str:
    """What an operand of a type says of its bits."""
    if type.is_float:
        return type.name
    if type.is_signed:
        return "signed"
    return "bits" if type.is_bits and name in _BITWISE else "integer"


def _word_names(type: ScalarType, said: set[str]) -> tuple[str, ...]:
    """The type of a word, or those of its halves where these are known to be floats."""
    halves = [item for item in ("f16", "bf16") if f"{item}x2" in said]
    if len(halves) == 1 and type.bits == 32 and "f32" not in said:
        return (halves[0],) * 2
    return (_name(type, said),)


def _name(type: ScalarType, said: set[str]) -> str:
    """The type of an element, from what is said of its bits. A form that says float, or signed, is believed."""
    unknown = f"b{type.bits}"
    floats = {item for item in said if item not in ("signed", "integer", "bits")}
    floats = {item for item in floats if scalar_type(item).bits == type.bits}
    if type.is_float:
        return type.name
    if floats:
        return floats.pop() if len(floats) == 1 and not said & _WHOLE else unknown
    if "signed" in said:
        return f"s{type.bits}"
    if "integer" in said or (type.is_integer and "bits" in said):
        return f"u{type.bits}"
    return unknown
