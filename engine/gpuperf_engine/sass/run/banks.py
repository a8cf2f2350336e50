"""Constant bank 0: the offsets at which ``ptxas`` expects parameters and launch properties."""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx.module import Function

__all__ = ["BANKS", "NEW", "WORKSPACE", "Bank", "places_of"]

#: The name of the workspace of a grid, for which no variable has one.
WORKSPACE = "%envreg"


@dataclass(frozen=True, slots=True)
class Bank:
    """Offsets in constant bank 0. ``parameters``: the first parameter; ``block`` and ``grid``: their shapes; ``stack``: the end of the
    stack; ``memory``: the descriptor of global memory; ``pointer``: the generic address of the parameters; ``explicit``: whether the
    launch has clusters; ``windows``: the generic addresses of the shared and the local window, with the upper word of each;
    ``cluster``: the cluster shape; ``inverse``: 1 / cluster shape in single precision; ``ctas``: the number of CTAs of a cluster;
    ``clusters``: the shape of the grid in clusters; ``registers``: ``%envreg0``; the next two hold the address of the workspace with
    which a grid synchronises; ``reserved``: the address of the shared memory that cooperative groups use
    (``%reserved_smem_offset_1``); ``dynamic``: the size of dynamic shared memory; ``sms``: ``%nsmid``; ``number``: ``%gridid``. With
    ``indexed``, those from ``cluster`` to ``dynamic`` are bases of indexed loads."""

    parameters: int
    block: int
    grid: int
    stack: int
    memory: int
    pointer: int | None = None
    explicit: int | None = None
    cluster: int | None = None
    inverse: int | None = None
    ctas: int | None = None
    clusters: int | None = None
    registers: int = 0x88
    reserved: int = 0x124
    dynamic: int = 0x2C
    sms: int = 0x10C
    number: int = 0x30
    indexed: bool = False
    windows: tuple[tuple[int, int], ...] = ((0x18, 0x100), (0x20, 0x200))


_OLD = Bank(0x160, 0x0, 0xC, 0x28, 0x118)
BANKS = {
    7: _OLD,
    8: _OLD,
    9: Bank(
        0x210,
        0x0,
        0xC,
        0x28,
        0x208,
        pointer=0x198,
        explicit=0x140,
        cluster=0x144,
        inverse=0x150,
        ctas=0x188,
        clusters=0x15C,
        registers=0x40,
        reserved=0x6C,
    ),
}
NEW = Bank(
    0x380, 0x360, 0x370, 0x37C, 0x358,
    pointer=0x348, explicit=0x36C, cluster=0x2A0, inverse=0x2B0, ctas=0x2CC, clusters=0x2C0,
    registers=0x250,
    reserved=0x27C, dynamic=0x2AC, sms=0x2D0, number=0x140, indexed=True,
    windows=((0x2F8, 0x200),),
)  # fmt: skip


def places_of(kernel: Function, start: int) -> list[int]:
    """The offset of each parameter in bank 0. Alignment counts from the start of the bank, not from the first parameter."""
    places, end = [], start
    for item in kernel.params:
        places.append(-(-end // item.align) * item.align)
        end = places[-1] + item.size
    return places
