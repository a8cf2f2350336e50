"""Accesses that run past the last byte of an object into what an allocator keeps behind it.

Allocators of device memory give objects that begin at multiples of 256 bytes ("CUDA C++ Best Practices Guide", "A Sequential but
Misaligned Access Pattern": memory from ``cudaMalloc`` is "guaranteed to be aligned to at least 256 bytes"; PyTorch's rounds sizes up
to 512, ``kMinBlockSize`` in c10/cuda/CUDACachingAllocator.h). So an element that begins inside an object, which is aligned to its own
size of at most 16 bytes, never reaches another object: a compare-and-swap of 4 bytes on a tensor of 2 does what it was written for.
That is carried out and noted, as a breach of the rule ``object-end`` (``isa.rules``). What begins behind the last byte is an error,
as ``compute-sanitizer memcheck`` has it, although real allocators hide that too. An object made with a padding of its own has exactly
that: no byte more, for any access.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..memory.arena import Memory
from .faults import cta_of, thread_of
from .launch import LaunchPlan

if TYPE_CHECKING:
    from .program import Program

__all__ = ["Overrun", "merge", "notes_of"]


class Overrun(NamedTuple):
    """Of the accesses of a site that ran past an object the one of the first thread, and how many bytes the farthest of all went;
    smaller tuples come first."""

    cta: int
    warp: int
    lane: int
    address: int
    farthest: int


def merge(overruns: dict[int, Overrun], more: Mapping[int, Overrun]) -> None:
    """Add what other CTAs, or other accesses, of a launch did, by site."""
    for site, other in more.items():
        own = overruns.get(site, other)
        overruns[site] = min(own, other)._replace(farthest=max(own.farthest, other.farthest))


def notes_of(
    program: Program, plan: LaunchPlan, memory: Memory, overruns: Mapping[int, Overrun]
) -> tuple[str, ...]:
    """One note per memory instruction."""
    if plan.strict == "off":
        return ()
    notes = []
    for index, seen in sorted(overruns.items()):
        site, holder = program.sites[index], memory.below(seen.address)
        thread, block = thread_of(plan, seen.warp, seen.lane), cta_of(plan, seen.cta)
        location = site.instruction.location
        source = f", source line {location}" if location is not None else ""
        what = f"{holder.name!r} ({holder.size:,} bytes)" if holder is not None else "an array"
        notes.append(
            f"{site.instruction.span}: {site.instruction.opcode}: thread {thread} of block {block} of kernel "
            f"{program.kernel.name!r}{source}: up to {seen.farthest:,} bytes past the end of {what} [object-end]"
        )
    return tuple(notes)
