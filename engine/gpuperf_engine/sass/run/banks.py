"""Where ``ptxas`` expects parameters and what describes a launch: constants of bank 0."""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx.module import Function

__all__ = ["BANKS", "NEW", "Bank", "places_of"]


@dataclass(frozen=True, slots=True)
class Bank:
    """Of the constants of a launch where ``ptxas`` expects parameters, the shape of a block and of the grid, the end of the stack,
    what describes global memory, and the shapes of a cluster, of which there are two copies. ``ctas``: where the CTAs of a cluster
    are counted, by their number, and that from which copies of it are indexed. ``pointer``: the generic address of the parameters,
    ``inverse``: 1 / the shape of a cluster, in single precision; ``explicit``: whether the launch has clusters. ``windows``: where
    the generic addresses of the windows of shared and local memory are, and the upper word of each. ``copies``: from where copies of
    the shape of a cluster are indexed, and of what is ``inverse``."""

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
    """Of each parameter where it lies in bank 0: alignment counts from the beginning of that, not from the first parameter."""
    places, end = [], start
    for item in kernel.params:
        places.append(-(-end // item.align) * item.align)
        end = places[-1] + item.size
    return places
