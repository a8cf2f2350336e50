"""Machine instructions before registers are assigned."""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx.syntax import Instruction

__all__ = ["Made"]


@dataclass(slots=True)
class Made:
    """A machine instruction. ``reads`` and ``writes``: values (registers of the PTX by index, further ones behind them, negative ones
    for the order of memory accesses); ``origin``: the PTX instruction that it is made of; ``guard``: ``@`` or ``@!`` if it has one;
    ``address``: values that determine addresses; ``sites``: the recorded operands (number, state space, word in local memory);
    ``latency``: in clocks, for the order of the code; ``last``: whether it ends its block; ``placed``: values on which only its place
    in the code depends; ``element``: the access among those of ``wmma.load`` and ``wmma.store``. ``offset`` and ``bytes``: of a plain
    load or store, from ``address``."""

    opcode: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    origin: Instruction | None = None
    guard: str = ""
    address: tuple[int, ...] = ()
    sites: tuple[tuple[int, str, int], ...] = ()
    latency: float = 1.0
    last: bool = False
    placed: frozenset[int] = frozenset()
    element: int = 0
    offset: int = 0
    bytes: int = 0
