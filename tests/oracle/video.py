"""The video instructions: their operands, and the parts of them that are named behind a dot."""

from __future__ import annotations

from .operands import Builder, Step
from .registry import apply, semantics
from .syntax import Negated, Part
from .video_numbers import multiply, packed, scalar

SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
PACKED = [
    f"v{name}{lanes}" for name in ("add", "sub", "avrg", "absdiff", "min", "max", "set") for lanes in (2, 4)
]


def bare(b: Builder) -> tuple[list[str], list[bool]]:
    """Leaves the registers of the first three operands in their place; returns their parts, and which operands are negated."""
    parts, negated = [], []
    for at, operand in enumerate(b.operands):
        negated.append(isinstance(operand, Negated))
        if isinstance(operand, Negated):
            operand = operand.operand
        parts.append(operand.name if isinstance(operand, Part) else "")
        b.operands[at] = operand.register if isinstance(operand, Part) else operand
    return parts, negated


@semantics(*SCALAR, *PACKED, "vmad")
def video(b: Builder) -> Step:
    b.operands = list(b.operands)
    parts, negated = bare(b)
    a_part, b_part, d_part = parts[1], parts[2], parts[0]
    opcode, base = b.statement.opcode, b.statement.base
    gets = [b.get(at, 32) for at in range(1, len(b.operands))]

    def one(x: int, y: int, z: int = 0) -> int:
        if base == "vmad":
            signs = (negated[1], negated[2], negated[3])
            return multiply(opcode, (d_part, a_part, b_part), signs, x, y, z)
        return (scalar if base in SCALAR else packed)(opcode, (d_part, a_part, b_part), x, y, z)

    return apply(b, one, gets, 32, is_signed=False)
