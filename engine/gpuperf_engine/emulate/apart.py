"""Sites whose addresses are linear in the indices of threads and blocks, and which blocks therefore access at places of their own.

An address is followed back to parameters, constants, ``%tid`` and ``%ctaid`` through registers that are written once. With the
values of a launch it is a sum of an index times a number each. If every one of these numbers, in ascending order, is no less than
what the smaller ones can add up to, no two blocks meet.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..flow.operands import writes
from ..ptx.syntax import Address, Immediate, Instruction, Operand, Register, SpecialRegister, Variable
from .launch import LaunchPlan
from .program import Program, Site

__all__ = ["Forms", "are_apart"]

#: definitions that are followed one behind the other
_DEPTH = 64
_WIDE = 1 << 62


@dataclass(frozen=True)
class Form:
    """``constant`` + Σ number · index, of which no partial result wrapped around."""

    constant: int
    #: by axis of ``%tid`` (0 … 2) and ``%ctaid`` (3 … 5)
    numbers: tuple[int, ...] = (0,) * 6

    def plus(self, other: Form, sign: int = 1) -> Form:
        pairs = zip(self.numbers, other.numbers)
        return Form(self.constant + sign * other.constant, tuple(a + sign * b for a, b in pairs))

    def times(self, other: Form) -> Form | None:
        """The product, if one of them is a constant."""
        if any(self.numbers):
            return None if any(other.numbers) else other.times(self)
        return Form(self.constant * other.constant, tuple(self.constant * item for item in other.numbers))


@dataclass
class Forms:
    """The linear forms of a launch's addresses."""

    program: Program
    plan: LaunchPlan
    _known: dict[Register, Form | None] = field(default_factory=dict)

    def of(self, site: Site) -> Form | None:
        """The address that a site accesses; ``None``: it is not known to be linear."""
        addresses = [item for item in site.instruction.operands if isinstance(item, Address)]
        if len(addresses) != 1 or site.instruction.effect not in ("load", "store", "atomic", "reduction"):
            return None
        (address,) = addresses
        base = self._register(address.base, _DEPTH) if isinstance(address.base, Register) else None
        return base and base.plus(Form(address.offset))

    def _definitions(self) -> Mapping[Register, Instruction | None]:
        """The only instruction that writes each register; ``None`` where there are several, or a guard."""
        memo = self.program.kernel.memo
        found = memo.get("definitions")
        if found is None:
            made: dict[Register, Instruction | None] = {}
            for block in self.program.blocks:
                for instruction in block.instructions:
                    for register in writes(instruction):
                        alone = register not in made and instruction.guard is None
                        made[register] = instruction if alone else None
            found = memo["definitions"] = made
        assert isinstance(found, dict)
        return found

    def _register(self, register: Register, depth: int) -> Form | None:
        if register not in self._known:
            instruction = self._definitions().get(register)
            found = None if instruction is None or depth == 0 else self._result(instruction, depth - 1)
            self._known[register] = found
        return self._known[register]

    def _operand(self, operand: Operand, depth: int, bits: int) -> Form | None:
        if isinstance(operand, Register):
            return self._register(operand, depth)
        if isinstance(operand, Immediate) and operand.kind == "int":
            return Form(_signed(operand.value, bits))
        if isinstance(operand, SpecialRegister):
            name, _, axis = operand.name.partition(".")
            place = "xyz".find(axis) if axis else -1
            if place < 0:
                return None
            if name in ("ntid", "nctaid"):
                return Form((self.plan.block if name == "ntid" else self.plan.grid)[place])
            if name in ("tid", "ctaid"):
                place += 3 * (name == "ctaid")
                return Form(0, tuple(int(number == place) for number in range(6)))
        return None

    def _result(self, instruction: Instruction, depth: int) -> Form | None:
        """What an instruction computes."""
        word, *rest = instruction.opcode.split(".")
        operands = instruction.operands
        if word == "ld":
            return self._parameter(instruction)
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
            self._operand(item, depth, 64 if wide and number == 2 else bits)
            for number, item in enumerate(operands[1:])
        ]
        if any(item is None for item in given):
            return None
        forms = [item for item in given if item is not None]
        found: Form | None = None
        if word in ("mov", "cvt", "cvta") and len(forms) == 1:
            found = forms[0]
        elif word in ("add", "sub") and len(forms) == 2:
            found = forms[0].plus(forms[1], 1 if word == "add" else -1)
        elif word in ("mul", "mad") and ("lo" in rest or wide):
            found = forms[0].times(forms[1])
            if found is not None and word == "mad":
                found = found.plus(forms[2])
        elif word == "shl" and not any(forms[1].numbers) and 0 <= forms[1].constant < bits:
            found = forms[0].times(Form(1 << forms[1].constant))
        if found is None:
            return None
        if (
            (wide or word == "cvt")
            and kind.startswith("u")
            and any(self.range(item)[0] < 0 for item in forms)
        ):
            return None
        low, high = self.range(found)
        target = rest[-2] if word == "cvt" and len(rest) > 1 else kind
        limit = _WIDE if wide or target[1:] == "64" else 1 << 31
        if target[0] not in "sub" or target[1:] not in ("32", "64"):
            return None
        return found if -limit <= low and high < limit else None

    def _parameter(self, instruction: Instruction) -> Form | None:
        kind = instruction.spelling.type
        source = instruction.operands[-1]
        if instruction.spelling.space != "param" or kind is None or not isinstance(source, Address):
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
        """Of the six indices."""
        return (*self.plan.block, *self.plan.grid)

    def range(self, form: Form) -> tuple[int, int]:
        """The least and the greatest value."""
        spans = [number * (extent - 1) for number, extent in zip(form.numbers, self.extents)]
        return (
            form.constant + sum(span for span in spans if span < 0),
            form.constant + sum(span for span in spans if span > 0),
        )


def _signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def are_apart(forms: Sequence[Form], size: int, extents: Sequence[int]) -> bool:
    """Whether no two blocks access a byte through any of these addresses, with ``size`` bytes each."""
    numbers = forms[0].numbers
    if any(form.numbers != numbers for form in forms):
        return False
    if any(extent > 1 and not number for number, extent in zip(numbers[3:], extents[3:])):
        return False
    steps = [(abs(number), extent) for number, extent in zip(numbers, extents) if number and extent > 1]
    threads = sum(1 for number, extent in zip(numbers[:3], extents) if number and extent > 1)
    within, among = steps[:threads], steps[threads:]
    places = sorted({form.constant for form in forms})
    distances = {after - before for before, after in pairwise(places)}
    around = size + places[-1] - places[0]
    if (
        len(distances) == 1
        and min(distances) >= size
        and _is_ladder([*steps, (min(distances), len(places))], size)
    ):
        return True
    if _is_ladder(steps, around):
        return True
    return _is_ladder(among, around + sum(number * (extent - 1) for number, extent in within))


def _is_ladder(steps: Sequence[tuple[int, int]], size: int) -> bool:
    reach = size
    for number, extent in sorted(steps):
        if number < reach:
            return False
        reach += number * (extent - 1)
    return True
