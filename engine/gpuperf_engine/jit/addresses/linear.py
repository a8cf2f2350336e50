"""Addresses of a program's sites as linear forms in the indices of threads and blocks.

The definition of an address is traced to parameters, constants, ``%tid`` and ``%ctaid`` through registers, shifts and masks of
bits, and induction variables. With the values of a launch it is a sum of products of a coefficient and an index, a bit of an index,
or a loop count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from ...flow.blocks import BasicBlock
from ...flow.dependence import Dependence
from ...flow.loops import Loop, find_loops
from ...flow.ssa import Merge, Node
from ...isa.effects import STORE
from ...ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    SpecialRegister,
    Variable,
    Vector,
)
from ...simt.launch import LaunchPlan
from ...simt.program import Program, Site
from ...symbolic.slice_program import dependence_of
from .disjoint import AXES, Form

__all__ = ["Forms", "loops_of"]


#: limit of the length of chains of definitions
_DEPTH = 64
_WIDE = 1 << 62
#: limits of the iterations of a loop and of its stride, whose product is less than ``_WIDE``
_ITERATIONS = _STRIDE = 1 << 30
#: the condition of another iteration, a < b …, as the sign of b − a and its minimum
_WHILE = {
    "lt": (1, 1), "le": (1, 0), "gt": (-1, 1), "ge": (-1, 0), "lo": (1, 1), "ls": (1, 0), "hi": (-1, 1), "hs": (-1, 0),
}  # fmt: skip
_KINDS = (["s32"], ["u32"], ["s64"], ["u64"])
_NEGATED = {
    "lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq", "lo": "hs", "hs": "lo", "ls": "hi", "hi": "ls",
}  # fmt: skip


@dataclass
class Forms:
    """The linear forms of a launch's addresses."""

    program: Program
    plan: LaunchPlan
    #: loads from one index array, with its minimum and maximum
    loaded: Mapping[Instruction, tuple[int, int]] = field(default_factory=dict)
    #: whether a requested form contained one of these loads
    has_loaded: bool = False
    _known: dict[Node, Form | None] = field(default_factory=dict)
    _iterations: dict[int, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graph: Dependence = dependence_of(self.program)
        self._loops = loops_of(self.program)

    def of(self, site: Site) -> Form | None:
        """The address of a site; ``None`` unless it is linear."""
        addresses = [item for item in site.instruction.operands if isinstance(item, Address)]
        if len(addresses) != 1 or not site.instruction.effect.per_lane:
            return None
        (address,) = addresses
        if not isinstance(address.base, Register):
            return None
        base = self._operand(site.instruction, address.base, _DEPTH, 64)
        return base and base.plus(Form(address.offset))

    def pieces(self, sites: Sequence[Site]) -> tuple[list[Form], int] | None:
        """The accesses of all sites, in pieces of the size of the smallest access, and that size; ``None`` unless all are linear."""
        linear = [form for site in sites if site.index < len(self.program.sites) and (form := self.of(site))]
        if len(linear) < len(sites):
            return None
        size = min(site.bytes for site in sites)
        pieces = [
            replace(form, constant=form.constant + start)
            for form, site in zip(linear, sites)
            for start in range(0, site.bytes, size)
        ]
        return pieces, size

    def handle(self, instruction: Instruction) -> int | None:
        """The handle of the image that an instruction accesses; ``None`` if unknown."""
        image = next((item.base for item in instruction.operands if isinstance(item, Address)), None)
        if isinstance(image, Variable):
            return dict(zip(self.program.symbols, self.plan.symbols.tolist())).get(image)
        form = self._operand(instruction, image, _DEPTH, 64) if image is not None else None
        return form.constant if form is not None and form.known else None

    def stored(self, site: Site) -> bytes | tuple[int, Form] | None:
        """The stored bytes of each element if they are the same in all threads, or their number and a form of the value per block;
        ``None`` if unknown, or if elements differ."""
        instruction = site.instruction
        if instruction.effect is not STORE:
            return None
        value = instruction.operands[-1]
        elements = value.elements if isinstance(value, Vector) else (value,)
        width = site.bytes // len(elements)
        found = {self._constant(instruction, item, width, _DEPTH) for item in elements}
        return found.pop() if len(found) == 1 else None

    def _constant(
        self, reader: Instruction, operand: Operand, width: int, depth: int
    ) -> bytes | tuple[int, Form] | None:
        """The low bytes of an operand, as returned by ``stored``."""
        if isinstance(operand, Immediate):
            return operand.value.to_bytes(16, "little", signed=operand.value < 0)[:width]
        if not isinstance(operand, Register) or width > operand.type.bytes:
            return None
        node = self._source(reader, operand)
        if isinstance(node, Instruction) and node.opcode.startswith("mov.") and node not in self._graph.kept:
            target, value = node.operands
            if depth and isinstance(target, Register) and isinstance(value, (Immediate, Register)):
                return self._constant(node, value, width, depth - 1)
        form = self._node(node, depth)
        if form is None or not form.is_of_block:
            return None
        if not form.known:
            return width, form
        return form.constant.to_bytes(16, "little", signed=form.constant < 0)[:width]

    def _node(self, node: Node, depth: int) -> Form | None:
        if node not in self._known:
            self._known[node] = None  # breaks cyclic definitions
            if depth:
                form = (
                    self._merge(node, depth - 1) if isinstance(node, Merge) else self._result(node, depth - 1)
                )
                self._known[node] = form
        return self._known[node]

    def _operand(self, reader: Instruction, operand: Operand, depth: int, bits: int) -> Form | None:
        if isinstance(operand, Register):
            return self._node(self._source(reader, operand), depth)
        if isinstance(operand, Immediate) and operand.kind == "int":
            return Form(_signed(operand.value, bits))
        if isinstance(operand, SpecialRegister):
            name, _, axis = operand.name.partition(".")
            index = "xyz".find(axis) if axis else -1
            if index < 0:
                return None
            if name in ("ntid", "nctaid"):
                return Form((self.plan.block if name == "ntid" else self.plan.grid)[index])
            if name in ("tid", "ctaid"):
                index += 3 * (name == "ctaid")
                return Form(0, tuple(int(number == index) for number in range(AXES)))
        return None

    def _source(self, reader: Instruction, register: Register) -> Node:
        return next(iter(self._graph.origins_of(reader, [register])))

    # -- loops -----------------------------------------------------------------------------------------------------------

    def _merge(self, node: Merge, depth: int) -> Form | None:
        """The form of a merge of several definitions."""
        if node.kind != "phi":
            return None
        begin, step = self._induction(node, depth)
        if begin is None or not step:
            return begin
        assert isinstance(node.name, Register)
        bits = node.name.type.bits
        iterations = self._iterations_of(node.block, depth)
        if iterations is None and bits == 64 and abs(step) <= _STRIDE:
            iterations = _ITERATIONS
        if iterations is None or bits not in (32, 64):
            return None
        most = Form(0, steps=((abs(step), iterations),))
        return self._fitting(begin.plus(most, 1 if step > 0 else -1), bits)

    def _induction(self, node: Merge, depth: int) -> tuple[Form | None, int]:
        """The initial value of an induction variable, and its step; 0 if unknown."""
        changes: set[int] = set()
        forms: list[Form | None] = []
        for source in node.sources:
            chain = self._chain(source, node.block, depth)
            if chain is not None and chain[0] is node:
                changes.add(chain[1])
            else:
                forms.append(self._node(source, depth))
        begin = forms[0] if forms else None
        for other in forms[1:]:
            begin = begin and other and begin.joined(other)
        if not changes:
            return begin, 0
        loop = self._loops.get(node.block)
        if len(changes) > 1 or 0 in changes or loop is None or not loop.reducible:
            return None, 0
        return begin, changes.pop()

    def _chain(self, node: Node, head: int, depth: int) -> tuple[Merge, int] | None:
        """The φ at the head of a loop from which a node is computed by adding constants, and their sum."""
        change = 0
        for _ in range(depth):
            if isinstance(node, Merge):
                return (node, change) if node.kind == "phi" and node.block == head else None
            word, *kind = node.opcode.split(".")
            if word not in ("add", "sub") or kind not in _KINDS or node in self._graph.kept:
                return None
            _, one, other = node.operands
            amount = self._operand(node, other, depth - 1, int(kind[0][1:]))
            if amount is None and word == "add":
                one, other = other, one
                amount = self._operand(node, other, depth - 1, int(kind[0][1:]))
            if amount is None or not amount.known or not isinstance(one, Register):
                return None
            change += amount.constant if word == "add" else -amount.constant
            node = self._source(node, one)
        return None

    def _iterations_of(self, head: int, depth: int) -> int | None:
        """An upper bound of the further iterations of a loop, by the branch at its end or at its head."""
        if head not in self._iterations:
            self._iterations[head] = None
            loop = self._loops[head]
            places = {head, *loop.latches} if len(loop.latches) == 1 else {head}
            limits = [self._until(loop, self.program.blocks[block], depth) for block in places]
            self._iterations[head] = min((item for item in limits if item is not None), default=None)
        return self._iterations[head]

    def _until(self, loop: Loop, block: BasicBlock, depth: int) -> int | None:
        """The same, by the branch at the end of a block that every iteration executes."""
        if block.kind != "branch" or block.guard is None or block.terminator is None or depth <= 0:
            return None
        stays = [target in loop.body for target in block.successors]
        test = self._source(block.terminator, block.guard.register)
        if stays[0] == stays[1] or isinstance(test, Merge) or test in self._graph.kept:
            return None
        word, name, *kind = [*test.opcode.split("."), ""][:3]
        if word != "setp" or [*kind] not in _KINDS or name not in _NEGATED or len(test.operands) != 3:
            return None
        if stays[0] is block.guard.negated:
            name = _NEGATED[name]
        _, counted, limit = test.operands
        chain = None
        if isinstance(counted, Register):
            chain = self._chain(self._source(test, counted), loop.head, depth)
        end = self._operand(test, limit, depth, int(kind[0][1:]))
        if chain is None or end is None:
            return None
        begin, step = self._induction(chain[0], depth)
        return self._least(name, begin.plus(Form(chain[1])), step, end, kind[0]) if begin and step else None

    def _least(self, name: str, begin: Form, step: int, end: Form, kind: str) -> int | None:
        """The maximum count for which begin + step · count passes a test."""
        (first, last), (low, high) = self.range(begin), self.range(end)
        if kind[0] == "u" and min(first, low) < 0:
            return None
        if name == "ne":
            whole = begin.known and end.known and (low - first) % step == 0
            iterations = (low - first) // step if whole else -1
        elif name in _WHILE and (sign := _WHILE[name][0]) * step > 0:
            distance = (high - first if sign > 0 else last - low) - _WHILE[name][1]
            iterations = max(distance // abs(step) + 1, 0)
        else:
            return None
        if iterations < 0:
            return None
        most = last + step * iterations, first + step * iterations
        limit = 1 << (int(kind[1:]) - 1)
        least = 0 if kind[0] == "u" else -limit
        return iterations if least <= min(most) and max(most) < limit else None

    # -- arithmetic --------------------------------------------------------------------------------------------------------

    def _fitting(self, form: Form, bits: int) -> Form | None:
        low, high = self.range(form)
        limit = _WIDE if bits == 64 else 1 << (bits - 1)
        return form if -limit <= low and high < limit else None

    def _result(self, instruction: Instruction, depth: int) -> Form | None:
        """The form of an instruction's result."""
        word, *rest = instruction.opcode.split(".")
        operands = instruction.operands
        if instruction in self._graph.kept:
            return None
        if word == "ld":
            return self._element(instruction) or self._parameter(instruction)
        if (
            not isinstance(operands[0], Register)
            or not rest
            or any(item in ("cc", "sat", "hi", "rn", "rz") for item in rest)
        ):
            return None
        kind = rest[-1]
        bits = {"32": 32, "64": 64}.get(kind[1:], 0) if kind[0] in "sub" else 0
        if not bits:
            return None
        wide = "wide" in rest
        given = [
            self._operand(instruction, item, depth, 64 if wide and number == 2 else bits)
            for number, item in enumerate(operands[1:])
        ]
        if not given or any(item is None for item in given):
            return None
        forms = [item for item in given if item is not None]
        if sum(item.is_loaded for item in forms) > 1:
            # the result may have several elements
            return None
        form: Form | None = None
        if word in ("mov", "cvt", "cvta") and len(forms) == 1:
            form = forms[0]
        elif word == "neg":
            form = Form(0).plus(forms[0], -1)
        elif word in ("add", "sub") and len(forms) == 2:
            form = forms[0].plus(forms[1], 1 if word == "add" else -1)
        elif word in ("mul", "mad") and ("lo" in rest or wide):
            form = forms[0].times(forms[1])
            if form is not None and word == "mad":
                form = form.plus(forms[2])
        elif word == "shl" and forms[1].known and 0 <= forms[1].constant < bits:
            form = forms[0].times(Form(1 << forms[1].constant))
        else:
            form = self._of_bits("bfe.s" if word == "bfe" and kind[0] == "s" else word, forms, bits)
        if form is None:
            return None
        if (
            (wide or word == "cvt")
            and kind.startswith("u")
            and any(self.range(item)[0] < 0 for item in forms)
        ):
            return None
        low, high = self.range(form)
        target = rest[-2] if word == "cvt" and len(rest) > 1 else kind
        limit = _WIDE if wide or target[1:] == "64" else 1 << 31
        if target[0] not in "sub" or target[1:] not in ("32", "64"):
            return None
        return form if -limit <= low and high < limit else None

    def _of_bits(self, word: str, forms: Sequence[Form], bits: int) -> Form | None:
        """The form of an instruction that shifts or masks bits of indices by constants."""
        first, *others = forms
        if word in ("or", "xor") and len(others) == 1:
            return first.plus(others[0]) if self._share_no_bit(first, others[0]) else None
        if word == "and" and first.known:
            first, others = others[0], [first]
        if not others or not all(item.known for item in others[word == "bfi" :]):
            return None
        if word == "and":
            return self._field(first, 0, others[0].constant % (1 << bits))
        if word == "shr" and 0 <= others[0].constant < bits:
            return self._field(first, others[0].constant, -1)
        if word in ("bfe", "bfi"):
            start, length = (item.constant & 255 for item in others[-2:])
            if start + length > bits:
                return None
            ones = (1 << length) - 1
            if word == "bfe":
                return self._field(first, start, ones)
            inside, around = self._field(first, 0, ones), self._field(others[0], 0, ~(ones << start))
            moved = inside and inside.times(Form(1 << start))
            return around and moved and around.plus(moved)
        return None

    def _share_no_bit(self, one: Form, other: Form) -> bool:
        """Whether no bit can be set in both values."""
        for low, high in ((one, other), (other, one)):
            numbers = (
                high.constant,
                *high.numbers,
                *(number for _, number in high.bits),
                *(step for step, _ in high.steps),
            )
            (least, most), below = self.range(low), gcd(*numbers)
            if least >= 0 and (below == 0 or most < below & -below):
                return True
        places = self._places(one), self._places(other)
        if places[0] is None or places[1] is None or one.constant & other.constant:
            return False
        bits = [{bit for bit, _ in items} for items in places if items is not None]
        free = all(
            not form.constant >> bit & 1
            for form, items in ((one, bits[1]), (other, bits[0]))
            for bit in items
        )
        return free and bits[0].isdisjoint(bits[1])

    def _places(self, form: Form) -> list[tuple[int, tuple[int, int]]] | None:
        """The bits of a value that are bits (axis, bit) of an index; ``None`` unless all other bits are constant."""
        if form.steps or form.constant < 0:
            return None
        bits = []
        for axis, extent in enumerate(self.extents):
            for bit, number in enumerate(form.by_bits(axis, extent)):
                if number < 0 or number & (number - 1):
                    return None
                if number:
                    bits.append((number.bit_length() - 1, (axis, bit)))
        places = [bit for bit, _ in bits]
        distinct = len({*places}) == len(places) and not any(form.constant >> bit & 1 for bit in places)
        return bits if distinct else None

    def _field(self, form: Form, start: int, ones: int) -> Form | None:
        """The bits of a value from ``start`` on that are in a mask."""
        places = self._places(form)
        if places is None:
            return None
        kept = [
            (key, 1 << (bit - start)) for bit, key in places if bit >= start and ones >> (bit - start) & 1
        ]
        return Form(form.constant >> start & ones, bits=tuple(sorted(kept)))

    def _element(self, instruction: Instruction) -> Form | None:
        """The form of a load from an index array."""
        if instruction not in self.loaded:
            return None
        self.has_loaded = True
        low, _ = self.loaded[instruction]
        form = Form(low, tuple(int(axis == AXES - 1) for axis in range(AXES)))
        kind = instruction.form.type
        return None if kind is None else self._fitting(form, 8 * kind.bytes)

    def _parameter(self, instruction: Instruction) -> Form | None:
        kind = instruction.form.type
        source = instruction.operands[-1]
        if instruction.form.space != "param" or kind is None or not isinstance(source, Address):
            return None
        base = source.base
        known = isinstance(base, Variable) and base in self.program.kernel.params
        if not known or not isinstance(instruction.operands[0], Register) or kind.bytes not in (4, 8):
            return None
        assert isinstance(base, Variable)
        start = base.offset + source.offset
        value = int.from_bytes(self.plan.parameters[start : start + kind.bytes], "little")
        return Form(_signed(value, 8 * kind.bytes))

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the six indices, and the range of loaded indices."""
        low, high = next(iter(self.loaded.values()), (0, 0))
        return (*self.plan.block, *self.plan.grid, high - low + 1)

    def range(self, form: Form) -> tuple[int, int]:
        """The least and the greatest value."""
        spans = [number * (extent - 1) for number, extent in zip(form.numbers, self.extents)]
        spans += [number for _, number in form.bits]
        far = sum(step * count for step, count in form.steps)
        return (
            form.constant + sum(span for span in spans if span < 0),
            form.constant + sum(span for span in spans if span > 0) + far,
        )


def loops_of(program: Program) -> Mapping[int, Loop]:
    """The loops of all functions, by their heads."""
    loops = program.kernel.memo.get("loops")
    if loops is None:
        every = (
            loop for number in range(len(program.functions)) for loop in find_loops(program.blocks_of(number))
        )
        loops = program.kernel.memo["loops"] = {loop.head: loop for loop in every}
    assert isinstance(loops, dict)
    return loops


def _signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value
