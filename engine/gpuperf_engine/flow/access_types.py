"""Types of the values that memory instructions move, inferred from the instructions that compute and use these values.

The types of PTX loads and stores do not determine them: ``ld.b32`` moves any 32 bits, and compilers move floats with ``.u32`` and
``.b64``. Types come from arithmetic (``fma.rn.f32``) and propagate, in both directions, through moves, bit casts, selections, φs,
exchanges between lanes, calls, and stores to and loads from shared and local memory. A pack (``mov.b64 %rd, {%r1, %r2}``) has the
types of its parts. Without any type, or with both floats and integers, the type is unknown: ``b32``. Arithmetic on pairs of halves
overrides moves of ``f32``.

Types do not propagate between different uses of one integer constant: compilers use one register with 0 for a counter and for a float.
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

#: the value of a register by one definition; for an integer constant, additionally by one user
_Value = tuple[Node, "Register | None"] | tuple[Node, "Register | None", Node]
#: instructions whose type does not determine the type of the value
_MOVES = frozenset(("mov", "selp", "slct", "shfl", "prmt"))
#: instructions on matrix fragments, whose 32-bit registers hold elements of the types in the opcode, or of any type
_MATRICES = frozenset(("mma", "wmma", "ldmatrix", "stmatrix"))
_FRAGMENTS = {"f16": "f16x2", "bf16": "bf16x2", "tf32": "f32"}
_ELEMENT = re.compile(r"(b?f16|tf32|f32|f64|[su](4|8|32)|b1|e\dm\d)$")
#: the type of copied words
_COPIED = scalar_type("b32")
_BITWISE = frozenset(("and", "or", "xor", "not", "lop3", "cnot"))


def access_types(program: Layout) -> Mapping[Instruction, tuple[str, ...]]:
    """For each typed load, store, atomic and reduction, the names of the types of its elements, in order: ``f32``, ``s32``, ``u32``
    …, or ``b32`` if unknown. ``cp.async`` and bulk copies move 32-bit words of the type with which these are loaded later, or of
    the halves that products of a warpgroup read. For matrix loads, the elements are the words that a lane moves, access by access;
    for products, the elements of A, followed by those of B. Halves of 32-bit words are separate elements if they are known to be
    floats."""
    return _Types(program).accesses()


class _Types:
    def __init__(self, program: Layout) -> None:
        self.program = program
        self.dependence = Dependence(program)
        self.parent: dict[_Value, _Value] = {}
        #: the types of each set of joined values, by its representative
        self.said: dict[_Value, set[str]] = {}
        #: packed values and their parts, low ones first
        self.parts: list[tuple[_Value, list[_Value], int]] = []
        #: values that exchange halves (``prmt``)
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

    # -- sets of values with the same bits (union-find) --------------------------------------------------------------------

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
        """The types of a value. Arithmetic on pairs of halves overrides moves of ``f32``."""
        types = self.said.get(self._find(value), set())
        if _MOVED not in types:
            return types
        pairs = types & _PAIRS and "f32" not in types
        return types - {_MOVED} if pairs else types - {_MOVED} | {"f32"}

    @staticmethod
    def _value(node: Node, register: object) -> _Value:
        """The value of a register by a definition."""
        return (
            (node, None)
            if isinstance(node, Merge) or not isinstance(register, Register)
            else (node, register)
        )

    def _given(self, source: Node, name: object) -> Iterator[_Value]:
        """The values of a source of a merge: stored registers if it is a store to a parameter; else the register of that name or, for
        a function's entry, the only one that the source writes."""
        if isinstance(source, Merge):
            yield source, None
        elif source.effect is STORE:
            read = self._read(source)
            yield from (read[register] for register in _elements(source) if register is not None)
        else:
            written = writes(source)
            yield from ((source, register) for register in written if register is name or len(written) == 1)

    def _merges(self) -> Iterator[Merge]:
        """All merges that are sources of values, transitively."""
        seen: set[Merge] = set()
        work: list[Node] = [*self.every]
        while work:
            node = work.pop()
            for source in self.dependence.sources(node):
                if isinstance(source, Merge) and source not in seen:
                    seen.add(source)
                    work.append(source)
        yield from seen

    # -- types by instruction ----------------------------------------------------------------------------------------------

    def _read(self, instruction: Instruction) -> dict[Register, _Value]:
        operands = zip(reads(instruction), self.dependence.uses[instruction])
        return {
            register: (node, register, instruction) if node in self.constants else self._value(node, register)
            for register, node in operands
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
        """Joins results with the values that the functions return; arguments are sources of their entries."""
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
        """A ``prmt`` that builds a pair of halves from two registers."""
        *pairs, selector = sources
        if not isinstance(selector, Immediate) or instruction.opcode != "prmt.b32":
            return
        halves = [_HALVES.get(int(selector.value) >> shift & 0xFF) for shift in (0, 8)]
        selected = [pairs[half] for half in halves if half is not None]
        if len(selected) == 2:
            registers = [operand for operand in selected if isinstance(operand, Register)]
            if len(registers) == 2:
                (target,) = writes(instruction)
                self.mixed.append([(instruction, target), *(read[register] for register in registers)])

    def _compute(self, instruction: Instruction, read: Mapping[Register, _Value], name: str) -> None:
        """Arithmetic determines the types of its operands; bitwise logic only if no arithmetic does."""
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
                    elif fragment := _fragment(instruction, slot.name):
                        self._say(value, fragment)
                    self._declared(value, register)

    # -- memory ------------------------------------------------------------------------------------------------------------

    def _join_memory(self) -> None:
        """Joins elements stored to shared and local memory with elements of the same width that may be loaded from there; except
        stores in functions that an indirect call may reach, as it may call another function."""
        uncertain = self._uncertain()
        for load in self.every:
            if load.effect is MATRIX_LOAD and load.form.space == "shared":
                for copy in self.dependence.writers_of(load):
                    if copy.effect in (ASYNC_COPY, BULK_COPY):
                        for result in writes(load):
                            self._join((load, result), (copy, None))
            if load.effect is WARPGROUP and len(names := {*_operand_names(load)} & {*_SIZES}) == 1:
                (type,) = names
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
        """The instructions of all functions reached by indirect calls with several candidates, with the number of their function."""
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

    # -- results -----------------------------------------------------------------------------------------------------------

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
                types = self._known((instruction, None))
                names[instruction] = _word_names(_COPIED, types) * count
            elif instruction.effect is BULK_COPY:
                # repeatedly, each of this type
                if has_semantics(instruction.form):
                    names[instruction] = (scalar_type(str(instruction.form.modifier("type"))).name,)
                    continue
                types = self._known((instruction, None))
                names[instruction] = _word_names(_COPIED, types)[:1]
            elif instruction.effect in (MATRIX_LOAD, MATRIX_STORE):
                names[instruction] = self._matrix_names(instruction)
            elif instruction.effect in (WARPGROUP, TENSOR_PRODUCT):
                names[instruction] = _operand_names(instruction)
        return names

    def _matrix_names(self, instruction: Instruction) -> tuple[str, ...]:
        """The types of the words that a lane moves, or of their halves if these are known to be floats."""
        read = self._read(instruction)
        types: set[str] = set()
        for register in [*writes(instruction), *read]:
            if register.type.bits == _COPIED.bits and not _is_address(instruction, register):
                value = read.get(register, (instruction, register))
                types |= self._known(value)
        moves = instruction.form.moves
        assert moves is not None
        names: tuple[str, ...] = ()
        for move in moves.parts:
            names += _word_names(scalar_type(f"b{8 * move.bytes}"), types) * move.count
        return names

    def _names(self, instruction: Instruction) -> tuple[str, ...]:
        """The types of the elements; of their halves if some are known to be pairs of floats and the others are only moved."""
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
        """Propagates types between packs and their parts, in both directions, until nothing changes."""
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
                types = {item for part in parts for item in self._known(part)}
                each = {item for item in types if item in _SIZES and _SIZES[item] * len(parts) == bits}
                packed = {f"{item}x{len(parts)}" for item in each if len(each) == 1}
                own = self.said.setdefault(self._find(whole), set())
                changed |= not packed <= own
                own |= packed
                inside = {item.split("x")[0] for item in own if item.endswith(f"x{len(parts)}")}
                for part in parts:
                    known = self.said.setdefault(self._find(part), set())
                    changed |= not inside <= known
                    known |= inside


#: types that integer instructions assign
_WHOLE = frozenset(("signed", "integer"))
#: type of a value that is only moved as a 32-bit float: nvcc moves pairs of halves by ``ld.v4.f32`` if the source has ``float4``
_MOVED = "f32 moved"
_PAIRS = frozenset(("f16x2", "bf16x2"))
#: the operand from which ``prmt`` takes a half, by two digits of its selector
_HALVES = {0x10: 0, 0x32: 0, 0x54: 1, 0x76: 1}
#: elements of ``wgmma`` operands, as they are recorded; types without a value kind of their own by their bits
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
    """Whether an instruction moves an integer literal to a register."""
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
    """The float type of a register of a matrix fragment; ``None`` if the opcode does not determine it, or for integers."""
    words = instruction.opcode.split(".")
    types = [word for word in words if _ELEMENT.match(word)]
    if words[:2] in (["wmma", "load"], ["wmma", "store"]):
        return _FRAGMENTS.get(types[-1])
    if operand in ("a", "b") and words[0] == "wmma" and len(types) == 2:
        return _FRAGMENTS["f16"]
    # opcodes name the types of d, a, b and c, in this order
    number = "dabc".find(operand)
    return _FRAGMENTS.get(types[number]) if len(types) == 4 and number >= 0 else None


def _operand_names(instruction: Instruction) -> tuple[str, str]:
    """The types of the elements of A and B that a product of a warpgroup or of tensor memory reads from shared memory."""
    words = instruction.opcode.split(".")
    if instruction.effect is TENSOR_PRODUCT:
        # the kind does not distinguish types of halves or bytes, which are in the instruction descriptor
        kind = next((word for word in words if word.startswith("kind::")), "")
        name = {"kind::f16": "b16", "kind::tf32": "f32"}.get(kind, "b8")
        return name, name
    types = [word for word in words if word in _OPERANDS]
    left, right = types[-2:]
    return _OPERANDS[left], _OPERANDS[right]


def _is_address(instruction: Instruction, register: Register) -> bool:
    """Whether a register is the address of a matrix instruction, or its distance between lines."""
    return any(
        operand is register or (isinstance(operand, Address) and operand.base is register)
        for slot, operand in matched(instruction)
        if slot.role == "address" or slot.name == "stride"
    )


def _copied_elements(instruction: Instruction) -> int:
    """The number of words that ``cp.async`` copies; 0 for instructions on groups of copies."""
    sizes = [operand for slot, operand in matched(instruction) if slot.name == "bytes"]
    return sizes[0].value // (_COPIED.bits // 8) if sizes and isinstance(sizes[0], Immediate) else 0


def _moved(type: ScalarType) -> str:
    """The type that moving a float assigns to its bits."""
    return _MOVED if type.name == "f32" else type.name


def _statement(type: ScalarType, name: str) -> str:
    """The type that an operand assigns to its bits."""
    if type.is_float:
        return type.name
    if type.is_signed:
        return "signed"
    return "bits" if type.is_bits and name in _BITWISE else "integer"


def _word_names(type: ScalarType, types: set[str]) -> tuple[str, ...]:
    """The type of a word, or those of its halves if these are known to be floats."""
    halves = [item for item in ("f16", "bf16") if f"{item}x2" in types]
    if len(halves) == 1 and type.bits == 32 and "f32" not in types:
        return (halves[0],) * 2
    return (_name(type, types),)


def _name(type: ScalarType, assigned: set[str]) -> str:
    """The name of an element's type, from the types assigned to its bits. A float or signed type of the form itself takes
    precedence."""
    unknown = f"b{type.bits}"
    floats = {item for item in assigned if item not in ("signed", "integer", "bits")}
    floats = {item for item in floats if scalar_type(item).bits == type.bits}
    if type.is_float:
        return type.name
    if floats:
        return floats.pop() if len(floats) == 1 and not assigned & _WHOLE else unknown
    if "signed" in assigned:
        return f"s{type.bits}"
    if "integer" in assigned or (type.is_integer and "bits" in assigned):
        return f"u{type.bits}"
    return unknown
