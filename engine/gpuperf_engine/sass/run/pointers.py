"""Calls through pointers: the functions that each call in machine code may reach."""

from __future__ import annotations

from collections.abc import Sequence

from ...ptx.module import Function
from ...ptx.pointers import possible
from ...ptx.syntax import CallTarget, Instruction
from ..assemble import instructions_of
from ..graph import Graph

__all__ = ["Callees", "callees_of"]

#: By the position of a call, the functions that it may reach: their names in the PTX by the position of their first instruction.
Callees = dict[int, dict[int, str]]


def callees_of(kernel: Function, graph: Graph) -> Callees:
    """The candidates of all calls through pointers, as the PTX has them: functions whose address is taken, with the same signature."""
    places = _places(kernel, graph)
    instructions = instructions_of(kernel)
    through = [item for item in map(_target, instructions) if item is not None and item.function is None]
    found: Callees = {}
    for block in graph.blocks:
        last = graph.listing.instructions[block.end - 1]
        if block.kind != "call" or block.callee != -1 or not last.operands or not through:
            continue
        own = _target(instructions[last.ptx - 1]) if 0 < last.ptx <= len(instructions) else None
        if own is not None and own.function is not None:
            continue  # a function of the system, whose address is in constant bank 4
        found[block.end - 1] = {
            places[function.name]: function.name
            for target in (through if own is None else [own])
            for function in _candidates(kernel, target)
            if function.name in places
        }
    return found


def _target(instruction: Instruction) -> CallTarget | None:
    return instruction.call


def _candidates(kernel: Function, target: CallTarget) -> Sequence[Function]:
    return [*target.candidates, *possible(kernel.module, target)]


def _places(kernel: Function, graph: Graph) -> dict[str, int]:
    """The position of each function, which is a label of its own or one with the kernel's name in front: ``$kernel$function``."""
    front = f"${kernel.name}$"
    labels = graph.listing.labels
    return {name.removeprefix(front): labels[name] for name in graph.listing.functions if name in labels}
