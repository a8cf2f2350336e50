"""Constant bank 0: the offsets at which ``ptxas`` expects parameters and launch properties."""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx.module import Function

__all__ = ["BANKS", "NEW", "Bank", "places_of"]


@dataclass(frozen=True, slots=True)
class Bank:
    """Offsets in constant bank 0. ``parameters``: the first parameter; ``block`` and ``grid``: their shapes; ``stack``: the end of the
    stack; ``memory``: the descriptor of global memory; ``clusters``: the two copies of the cluster shape; ``ctas``: the number of CTAs
    of a cluster, first at its own offset, then at the base of an indexed load; ``pointer``: the generic address of the parameters;
    ``inverse``: 1 / cluster shape in single precision; ``explicit``: whether the launch has clusters; ``windows``: the generic
    addresses of the shared and the local window, with the upper word of each; ``copies``: the bases of indexed loads of the cluster
    shape and of its inverse."""

    parameters: int
    block: int
    grid: int
    stack: int
    memory: int
    clusters: tuple[int, ...] = ()
    ctas: tuple[int, ...] = ()
    pointer: int | None = None
    inverse: int | None = None
    explicit: int | None = None
    copies: tuple[int, ...] = ()
    windows: tuple[tuple[int, int], ...] = ((0x18, 0x100), (0x20, 0x200))


_OLD = Bank(0x160, 0x0, 0xC, 0x28, 0x118)
BANKS = {
    7: _OLD,
    8: _OLD,
    9: Bank(0x210, 0x0, 0xC, 0x28, 0x208, (0x188, 0x144), pointer=0x198, inverse=0x150, explicit=0x140),
}
NEW = Bank(
    0x380,
    0x360,
    0x370,
    0x37C,
    0x358,
    ctas=(0x36C, 0x2CC),
    pointer=0x348,
    copies=(0x2A0, 0x2B0),
    windows=((0x2F8, 0x200),),
)


def places_of(kernel: Function, start: int) -> list[int]:
    """The offset of each parameter in bank 0. Alignment counts from the start of the bank, not from the first parameter."""
    places, end = [], start
    for item in kernel.params:
        places.append(-(-end // item.align) * item.align)
        end = places[-1] + item.size
    return places
