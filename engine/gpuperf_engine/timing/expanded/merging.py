"""Accesses to neighbouring words of shared memory that an assembler merges into one of 8 or 16 bytes.

``ptxas`` merges loads (and stores) of one block with the same base register and neighbouring offsets if the address is known to be
aligned: variables in shared memory are, as it assigns their addresses itself, and so are multiples of 8 and 16 that are added to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...flow.operands import access_bytes, writes
from ...isa.effects import LOAD, STORE
from ...ptx.syntax import Address, Immediate, Instruction, Register, Symbol, Variable
from ...simt.program import Program

__all__ = ["Merges", "merges_of"]

#: Bytes to which the assembler aligns variables, and the largest alignment that matters.
_ALIGNED = 16


#: Accesses with their offsets, by base and by whether they store.
_Open = dict[tuple[object, bool], list[tuple[int, Instruction]]]


@dataclass(slots=True)
class Merges:
    """``first``: the instruction that stands for all of a merged access, with these in the order of their addresses; ``gone``: the
    others; ``bytes``: of each."""

    first: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    gone: set[Instruction] = field(default_factory=set)
    bytes: dict[Instruction, int] = field(default_factory=dict)


def merges_of(program: Program, bases: Mapping[Register, tuple[Register, int]]) -> Merges:
    """The merged accesses of the kernel of a program; ``bases``: ``folding.Folds.bases``."""
    merges = Merges()
    aligned = _alignments(program)
    for block in program.blocks_of(0):
        open_: _Open = {}
        changed: dict[Register, int] = {}

        for item in block.instructions:
            effect = item.effect
            shared = effect.site and item.form.space in ("shared", "shared::cta")
            if effect in (LOAD, STORE) and shared and item.guard is None and "volatile" not in item.opcode:
                address = next(one for one in item.operands if isinstance(one, Address))
                base: object = address.base
                offset = address.offset
                if isinstance(base, Register):
                    root, more = bases.get(base, (base, 0))
                    base, offset = (root, changed.get(root, 0)), offset + more
                stored = effect is STORE
                # A load does not pass a store, nor a store a load.
                _close(merges, open_, aligned, not stored)
                open_.setdefault((base, stored), []).append((offset, item))
            elif (
                effect.is_barrier
                or effect.orders
                or (effect.site and item.form.space in (None, "generic", "shared"))
            ):
                _close(merges, open_, aligned)
            for register in writes(item):
                changed[register] = changed.get(register, 0) + 1
        _close(merges, open_, aligned)
    return merges


def _close(merges: Merges, accesses: _Open, aligned: dict[Register, int], stores: bool | None = None) -> None:
    """Merges the accesses so far, or only loads or stores."""
    for key in [key for key in accesses if stores is None or key[1] == stores]:
        _merge(merges, accesses.pop(key), key, aligned)


def _merge(
    merges: Merges,
    accesses: list[tuple[int, Instruction]],
    key: tuple[object, bool],
    aligned: dict[Register, int],
) -> None:
    """Merges accesses with one base."""
    if len(accesses) < 2:
        return
    by_offset = {offset: item for offset, item in accesses}
    order = {item: number for number, (_, item) in enumerate(accesses)}
    base, stored = key
    known = aligned.get(base[0], 1) if isinstance(base, tuple) else _ALIGNED
    left = sorted(by_offset)
    while left:
        start = left.pop(0)
        group = [start]
        size = access_bytes(by_offset[start])
        end = start + size
        while left and left[0] == end and access_bytes(by_offset[end]) == size:
            group.append(left.pop(0))
            end += size
        _parts(merges, [by_offset[at] for at in group], start, size, known, order, stored)


def _parts(
    merges: Merges,
    run: Sequence[Instruction],
    start: int,
    size: int,
    known: int,
    order: dict[Instruction, int],
    stored: bool,
) -> None:
    """Cuts a run of neighbouring accesses into aligned ones of 16 or 8 bytes."""
    at = 0
    while at < len(run):
        taken = 1
        for wide in (16, 8) if size >= 4 else (8, 4):
            count = wide // size
            if (
                size >= 2
                and count > 1
                and at + count <= len(run)
                and known % wide == 0
                and (start + at * size) % wide == 0
            ):
                taken = count
                break
        if taken > 1:
            members = tuple(run[at : at + taken])
            chosen = (max if stored else min)(members, key=order.__getitem__)
            merges.first[chosen] = members
            merges.gone.update(one for one in members if one is not chosen)
            merges.bytes.update((one, size) for one in members)
        at += taken


def _alignments(program: Program) -> dict[Register, int]:
    """The power of two up to 16 that each register is known to be a multiple of: the greatest fixed point."""
    known: dict[Register, int] = {}
    items = [item for block in program.blocks_of(0) for item in block.instructions if writes(item)]
    changed = True
    while changed:
        changed = False
        for item in items:
            value = _aligned(item, known)
            for register in writes(item):
                least = min(known.get(register, _ALIGNED), value)
                if known.get(register) != least:
                    known[register] = least
                    changed = True
    return known


def _aligned(item: Instruction, known: dict[Register, int]) -> int:
    root = item.opcode.partition(".")[0]
    given = [_of(operand, known) for operand in item.operands[1:]]
    numbers = [
        operand.value
        for operand in item.operands[1:]
        if isinstance(operand, Immediate) and operand.kind == "int"
    ]
    if root in ("mov", "cvta", "cvt", "add", "sub", "or", "xor", "min", "max"):
        return min(given, default=1)
    if root == "selp":
        return min(given[:2], default=1)
    if root == "and":
        return max(given, default=1)
    if root == "shl" and numbers:
        return min(_ALIGNED, given[0] << min(4, numbers[-1]))
    if root == "mul":
        return min(_ALIGNED, _product(given[:2]))
    if root in ("mad", "fma"):
        return min(_ALIGNED, _product(given[:2]), given[2])
    return 1


def _product(given: Sequence[int]) -> int:
    total = 1
    for one in given:
        total *= one
    return total


def _of(operand: object, known: dict[Register, int]) -> int:
    if isinstance(operand, Register):
        return known.get(operand, _ALIGNED)
    if isinstance(operand, Immediate):
        return _ALIGNED if operand.value == 0 else min(_ALIGNED, operand.value & -operand.value)
    if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
        offset = operand.offset
        return _ALIGNED if offset == 0 else min(_ALIGNED, offset & -offset)
    if isinstance(operand, Variable):
        return _ALIGNED
    return 1
