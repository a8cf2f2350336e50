"""Stack manipulation (manual: "Stack Manipulation Instructions"). The semantics return the new stack pointer, which is also the value
of the destination; the stack grows downwards.
"""

from __future__ import annotations

from .. import effects
from ..model import Accepts
from ..primitives import Value
from ..table import Options, instruction

STACK: Options = {
    "category": "misc",
    "unit": "alu",
    "effect": effects.STACK,
    "type": "u32 u64",
    "since": (7, 3),
    "target": 52,
}
#: bytes: the minimum alignment of allocations, and the largest that an instruction may request (manual, ``alloca``)
LEAST_ALIGNMENT, MOST_ALIGNMENT = 8, 1 << 23


@instruction(
    "alloca.type d, size{, align:imm}",
    accepts=Accepts(
        constants={
            "align": (
                lambda align: 0 < align <= MOST_ALIGNMENT and int(align).bit_count() == 1,
                f"a power of two, at most {MOST_ALIGNMENT:,}",
            )
        }
    ),
    **STACK,
)
def alloca(size: Value, align: Value | int, pointer: Value | None = None) -> Value:
    """The address in local memory of so many bytes, freed by stackrestore and where the function returns."""
    if isinstance(align, Value):
        return (align - size) & -LEAST_ALIGNMENT
    assert pointer is not None
    return (pointer - size) & -max(align, LEAST_ALIGNMENT)


@instruction("stacksave.type d", **STACK)
def stacksave(pointer: Value) -> Value:
    """The stack pointer."""
    return pointer


@instruction("stackrestore.type a%", **STACK)
def stackrestore(a: Value, pointer: Value) -> Value:
    """Makes a the stack pointer, which frees what was allocated since stacksave gave it."""
    return a
