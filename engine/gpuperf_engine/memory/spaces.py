"""Which memory an instruction may reach: that of its state space, or what its generic address may point to.

Each kind of memory is a bit. The window of kernel parameters lies in that of global memory (manual, "Generic Addressing"), so what
may reach global memory may reach it. Constant memory has a window of its own, but nvcc takes pointers to constant variables that it
finds in memory for pointers to global ones, and reads with ``ld.global``: so that is possible too.
"""

from __future__ import annotations

from ..flow.operands import left_out
from ..ptx.syntax import Instruction

__all__ = ["ANY", "KINDS", "bit_of", "piece_of", "reachable", "words"]

#: numbers of the bits; those of allocations first
KINDS = {"global": 0, "const": 1, "param": 2, "shared": 3, "local": 4}
ANY = (1 << len(KINDS)) - 1
_WORDS = {"global": "global", "const": "constant", "param": "parameter", "shared": "shared", "local": "local"}


def bit_of(kind: str) -> int:
    """The bit of one kind of memory."""
    return 1 << KINDS[kind]


def reachable(instruction: Instruction, space: str = "") -> int:
    """The bits of the memory that an instruction may reach. ``space``: that of one of several addresses."""
    modifiers = instruction.form.modifiers
    spaces: frozenset[str] = frozenset((space,)) if space else instruction.form.spaces
    if instruction.effect.copies and not spaces and "dim" not in modifiers:
        spaces = frozenset(("global", "shared"))  # one at each end
    if not spaces or "generic" in spaces:
        return ANY
    bits = sum(bit_of(item) for item in spaces)
    return bits | bit_of("const") | bit_of("param") if "global" in spaces else bits


def piece_of(instruction: Instruction) -> int:
    """Bytes of what must begin inside an object: one element of a load, store or atomic; 0 for what may not leave it at all."""
    if not instruction.effect.per_lane or left_out(instruction):
        return 0
    kind = instruction.form.type
    return 0 if kind is None else kind.bytes


def words(bits: int) -> str:
    """``global or shared``."""
    named = [_WORDS[kind] for kind in KINDS if bits & bit_of(kind)]
    if "global" in named:
        named = [name for name in named if name not in ("constant", "parameter")]
    return " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
