"""The listing of machine instructions whose values have registers, as ``nvdisasm`` would print it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...ptx.syntax import Instruction
from ...sass.graph import Block
from ...sass.registers import PREDICATES, Accesses, Expanded, Source
from .made import Made
from .numbering import UNIFORM, Numbers
from .stalls import stalls_of

__all__ = ["listed"]

#: Bits 105 to 125 of an encoding without scoreboards.
_NO_SCOREBOARDS = 7 << 5 | 7 << 8
_WITHOUT_OPERANDS = ("EXIT", "BSYNC", "BSSY", "LDGDEPBAR")


def listed(
    made: Sequence[Made],
    blocks: Sequence[Block],
    numbers: Numbers,
    origins: Mapping[Instruction, Instruction | None],
    unit: Callable[[str], str],
    latency: Callable[[str], float],
) -> list[Expanded]:
    """The instructions of all blocks. ``origins``: the PTX instructions of which those of an unrolled program were made; ``unit`` and
    ``latency``: of an opcode, in clocks."""
    items: list[Expanded] = []
    for block in blocks:
        before: frozenset[int] = frozenset()
        first = len(items)
        for position in range(block.start, block.end):
            one = made[position]
            operands = frozenset(
                value
                for value in one.reads
                if value >= 0
                and value not in numbers.predicates
                and value not in numbers.uniform
                and value not in one.placed
            )
            registers = _registers_of(one, operands, numbers)
            fetched = operands - before
            items.append(
                Expanded(
                    ".text", "kernel", 16 * position, _text(one, registers), _number_of(one.origin, origins), 0, registers,
                    (_banks(operands, numbers), _banks(fetched, numbers)),
                )
            )  # fmt: skip
            before = operands - frozenset(one.writes)
        stalls = stalls_of(
            [item.opcode for item in items[first:]],
            [item.accesses for item in items[first:]],
            unit,
            latency,
        )
        items[first:] = [
            replace(item, encoding=_control(*stall)) for item, stall in zip(items[first:], stalls)
        ]
    return items


def _number_of(item: Instruction | None, origins: Mapping[Instruction, Instruction | None]) -> int:
    """The number of the PTX instruction (``assemble.instructions_of``), 0 for none."""
    origin = item if item is None else origins.get(item, item)
    return 0 if origin is None else origin.index + 1


def _registers_of(one: Made, operands: frozenset[int], numbers: Numbers) -> Accesses:
    def places(values: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(place for value in values if value >= 0 for place in numbers.of(value)))

    sources = tuple(
        Source(slot, numbers.of(value)[0], len(numbers.of(value)))
        for slot, value in enumerate(sorted(operands))
    )
    deciding = (*places(one.address), *(place for place in places(one.reads) if place >= PREDICATES))
    return Accesses(
        places(value for value in one.reads if value not in one.placed),
        places(value for value in one.writes if value not in one.placed),
        sources,
        tuple(dict.fromkeys(deciding)),
    )


def _text(one: Made, registers: Accesses) -> str:
    """As ``nvdisasm`` prints it, with the registers that were assigned."""
    opcode, _, rest = one.opcode.partition(" ")
    base = opcode.partition(".")[0]
    results = [_name(number) for number in registers.writes[:1]]
    sources = [
        _name(number)
        for number in registers.reads
        if number < PREDICATES and number not in registers.deciding
    ]
    guard = ""
    if one.guard:
        flags = [number for number in registers.reads if number >= PREDICATES]
        guard = f"{one.guard}P{flags[0] - PREDICATES} " if flags else ""
    if base in _WITHOUT_OPERANDS:
        operands = []
    elif base == "BRA":
        operands = ["target"]
    elif one.sites:
        where = "+".join(_name(number) for number in registers.deciding[:1] if number < PREDICATES)
        places = [f"[{where}]"] * (2 if base == "LDGSTS" else 1)
        operands = [*results, *places, *sources[:1]]
    else:
        operands = [rest] if rest else [*results, *sources]
    return f"{guard}{opcode} {', '.join(operands)}".rstrip()


def _control(stall: int, yields: bool) -> int:
    return (stall | (not yields) << 4 | _NO_SCOREBOARDS) << 105


def _banks(values: Iterable[int], numbers: Numbers) -> int:
    """The registers of values, spread over the two banks."""
    count = sum(max(1, numbers.words.get(value, 1)) for value in values)
    return min(15, (count + 1) // 2) | min(15, count // 2) << 4


def _name(number: int) -> str:
    if number >= PREDICATES:
        return f"P{number - PREDICATES}"
    return f"UR{number - UNIFORM}" if number >= UNIFORM else f"R{number}"
