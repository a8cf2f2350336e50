"""Liveness of the words of ``.param`` variables of calls and device functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..isa.effects import CALL, LOAD, STORE
from ..ptx.module import Function
from ..ptx.syntax import Address, Instruction, Operand, Variable
from .blocks import EXIT, BasicBlock
from .operands import access_bytes, left_out

__all__ = ["Word", "live_words"]

#: a variable and the index of one of its 32-bit words
Word = tuple[Variable, int]


def live_words(
    function: Function, blocks: Sequence[BasicBlock]
) -> tuple[frozenset[Word], dict[int, frozenset[Word]]]:
    """Words that are live at the entry of a device function, and by block those live after the call that ends it, without the results
    of the call."""
    returned = frozenset(_words(item for item in function.returns if item.space == "param"))
    first = blocks[0].index
    used, killed, results = [], [], []
    for block in blocks:
        use: set[Word] = set()
        kill: set[Word] = set()
        for instruction in block.instructions:
            reads, writes = _effects(instruction)
            use |= reads - kill
            if instruction.guard is None or block.guard_applied:
                kill |= writes
        used.append(use)
        killed.append(kill)
        call = None if block.terminator is None else block.terminator.call
        results.append(frozenset(_words(_parameters(call.returns))) if call is not None else frozenset())
    live_in, live_out = [set(use) for use in used], [set[Word]() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks) - 1, -1, -1):
            out: set[Word] = set()
            for target in blocks[index].successors:
                out |= returned if target == EXIT else live_in[target - first]
            into = used[index] | (out - killed[index])
            if out != live_out[index] or into != live_in[index]:
                live_out[index], live_in[index] = out, into
                changed = True
    behind = {
        block.index: frozenset(live_out[index] - results[index])
        for index, block in enumerate(blocks)
        if block.kind == "call"
    }
    return frozenset(live_in[0]), behind


def _words(variables: Iterable[Variable]) -> Iterable[Word]:
    return ((item, word) for item in variables for word in range(-(-item.size // 4)))


def _parameters(operands: Iterable[Operand]) -> list[Variable]:
    return [item for item in operands if isinstance(item, Variable) and item.space == "param"]


def _effects(instruction: Instruction) -> tuple[set[Word], set[Word]]:
    """The words that an instruction reads, and those that it overwrites completely."""
    if instruction.effect is CALL:
        call = instruction.call
        assert call is not None
        return set(_words(_parameters(call.arguments))), set(_words(_parameters(call.returns)))
    if instruction.effect not in (LOAD, STORE) or instruction.form.space != "param":
        return set(), set()
    address = next(item for item in instruction.operands if isinstance(item, Address))
    if not isinstance(address.base, Variable):
        return set(), set()
    start, end = address.offset, address.offset + access_bytes(instruction)
    if instruction.effect is LOAD:
        return {(address.base, word) for word in range(start // 4, -(-end // 4))}, set()
    if left_out(instruction):
        return set(), set()
    return set(), {(address.base, word) for word in range(-(-start // 4), end // 4)}
