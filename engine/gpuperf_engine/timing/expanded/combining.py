"""Atomics of a warp at one address, which the assembler combines: one lane executes the operation on the sum or minimum of all.

The rules are those of ptxas 13.0 for 7.5 to 9.0, for the forms of ``atom`` and ``red`` on integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...flow.operands import access_bytes, matched
from ...isa.effects import ATOMIC, REDUCTION
from ...ptx.syntax import Immediate, Instruction, Operand

__all__ = ["Combined", "combined_of", "counts_lanes", "value_of"]

_OPERATIONS = frozenset(["add", "min", "max", "and", "or", "xor"])
_INTEGERS = frozenset(["u32", "s32", "b32", "u64", "s64", "b64"])
#: The first architecture with ``redux.sync``, and of which shared memory counts the lanes at each address.
_REDUX = 80
#: Operations and operands that add one to each word.
_INCREMENTS = {("add", 1), ("inc", 0xFFFFFFFF)}
_REDUCED = {
    "add": "REDUX.SUM",
    "min": "REDUX.MIN",
    "max": "REDUX.MAX",
    "and": "REDUX",
    "or": "REDUX.OR",
    "xor": "REDUX.XOR",
}


@dataclass(frozen=True, slots=True)
class Combined:
    """How the lanes of a warp are combined. ``operand``: the opcode that makes the operand of the operation, from the lanes that take
    part (``POPC``) or from the values of all lanes; ``words``: of the result that the other lanes get, 0 if it is not used."""

    operand: str
    words: int


def value_of(item: Instruction) -> Operand | None:
    """The operand of an atomic that is added, compared or combined with the word in memory."""
    found = [operand for slot, operand in matched(item) if slot.name == "b"]
    return found[0] if found else None


def counts_lanes(item: Instruction, space: str, architecture: int, used: bool) -> bool:
    """Whether shared memory counts the lanes at each address (``ATOMS.POPC.INC``). Arguments as for ``combined_of``."""
    words, value = item.opcode.split("."), value_of(item)
    if space != "shared" or used or architecture < _REDUX or words[-1] != "u32":
        return False
    return isinstance(value, Immediate) and any(
        (word, value.value & 0xFFFFFFFF) in _INCREMENTS for word in words
    )


def combined_of(
    item: Instruction, space: str, architecture: int, used: bool, uniform: bool
) -> Combined | None:
    """How the assembler combines the lanes of an atomic whose address is the same for all; ``None`` if it does not. ``used``: whether
    its result is; ``uniform``: whether all lanes have the same value."""
    words = item.opcode.split(".")
    name = next((word for word in words if word in _OPERATIONS), "")
    if item.effect not in (ATOMIC, REDUCTION) or space not in ("global", "shared"):
        return None
    if not name or words[-1] not in _INTEGERS or {"v2", "v4", "v8", "cas", "exch"} & set(words):
        return None
    if counts_lanes(item, space, architecture, used):
        return None
    size = access_bytes(item)
    if name == "add" and uniform:
        return Combined("POPC", size // 4 if used else 0)
    if not used and size == 4 and architecture >= _REDUX:
        return Combined(_REDUCED[name], 0)
    return None
