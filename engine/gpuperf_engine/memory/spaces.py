"""The memory that an instruction may access: its state space, or the spaces of a generic address.

Each kind of memory is a bit. The window of kernel parameters is within that of global memory (manual, "Generic Addressing"), so
accesses to global memory may access it. Constant memory has a window of its own, but nvcc reads through pointers to constant variables
that are loaded from memory with ``ld.global``, so this is allowed too.
"""

from __future__ import annotations

from ..flow.operands import left_out
from ..ptx.syntax import Instruction

__all__ = ["ANY", "KINDS", "STRAYS", "bit_of", "piece_of", "reachable", "words"]

#: bit numbers, allocations first
KINDS = {"global": 0, "const": 1, "param": 2, "shared": 3, "local": 4}
ANY = (1 << len(KINDS)) - 1
#: beside these bits: accesses to local memory violate the rule ``local-order``
STRAYS = 1 << len(KINDS)
_WORDS = {"global": "global", "const": "constant", "param": "parameter", "shared": "shared", "local": "local"}


def bit_of(kind: str) -> int:
    """The bit of one kind of memory."""
    return 1 << KINDS[kind]


def reachable(instruction: Instruction, space: str = "") -> int:
    """The bits of the memory that an instruction may access. ``space``: that of one of several addresses."""
    modifiers = instruction.form.modifiers
    spaces: frozenset[str] = frozenset((space,)) if space else instruction.form.spaces
    if instruction.effect.copies and not spaces and "dim" not in modifiers:
        spaces = frozenset(("global", "shared"))  # one at each end
    if not spaces or "generic" in spaces:
        return ANY
    bits = sum(bit_of(item) for item in spaces) | STRAYS * (instruction.form.strays and not space)
    return bits | bit_of("const") | bit_of("param") if "global" in spaces else bits


def piece_of(instruction: Instruction) -> int:
    """Bytes of an element of a load, store or atomic, which must begin inside an object; 0 if the whole access must be inside."""
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
