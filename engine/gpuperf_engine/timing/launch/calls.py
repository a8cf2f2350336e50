"""The functions that calls enter, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from ...simt.call_graph import callees
from ...simt.program import BasicBlock, Program

__all__ = ["Calls"]


class Calls:
    """The calls of a program whose blocks were executed ``executions`` times.

    Mutually recursive functions are entered as one: their executions are divided among the calls from outside. The entries of a
    function are divided likewise among the indirect calls that may target it.
    """

    def __init__(self, program: Program, executions: Sequence[int]) -> None:
        self.program, self.executions = program, executions

    def entered(self, block: BasicBlock) -> Iterator[tuple[int, int, float]]:
        """The functions that the call at the end of a block enters, without its own function and functions that are mutually recursive
        with it: number, executions in the launch, and executions per call."""
        targets = self.targets.get(block.index, [])
        for group in dict.fromkeys(self.group(number) for number in targets):
            if block.function in group:
                continue
            calls = sum(
                self.executions[index]
                for index, meant in self.targets.items()
                if self.program.blocks[index].function not in group and not group.isdisjoint(meant)
            )
            for number in sorted(group):
                executions = self.executions[self.program.entries[number]]
                yield number, executions, executions / calls

    @cached_property
    def targets(self) -> dict[int, list[int]]:
        """By block that ends with a call, the functions that it may target."""
        program = self.program
        return {
            block.index: callees(block.terminator.call, program.functions, program.function_of)
            for block in program.blocks
            if block.kind == "call" and block.terminator is not None and block.terminator.call is not None
        }

    def group(self, number: int) -> frozenset[int]:
        """The function, and those that are mutually recursive with it."""
        reached = self.reached
        return frozenset(other for other in reached[number] if number in reached[other]) | {number}

    @cached_property
    def reached(self) -> list[set[int]]:
        """By function, the functions that it calls directly or indirectly."""
        direct: list[set[int]] = [set() for _ in self.program.functions]
        for index, meant in self.targets.items():
            direct[self.program.blocks[index].function].update(meant)
        functions = []
        for own in direct:
            seen, left = set(own), list(own)
            while left:
                further = direct[left.pop()] - seen
                seen |= further
                left += further
            functions.append(seen)
        return functions
