"""Accesses that extend past the last byte of an object into the padding of the allocator.

Allocators of device memory align objects to 256 bytes ("CUDA C++ Best Practices Guide", "A Sequential but Misaligned Access
Pattern": memory from ``cudaMalloc`` is "guaranteed to be aligned to at least 256 bytes"; PyTorch's rounds sizes up to 512,
``kMinBlockSize`` in c10/cuda/CUDACachingAllocator.h). So an element that begins inside an object, aligned to its own size of at
most 16 bytes, never overlaps another object: a compare-and-swap of 4 bytes on a tensor of 2 bytes works as intended. It is executed
and noted as a violation of the rule ``object-end`` (``isa.rules``). An access that begins after the last byte is an error, as for
``compute-sanitizer memcheck``, although real allocators hide it too. For an object with explicit padding, any access may use
exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..memory.arena import Memory
from ..results.cxx_names import readable_name
from .faults import cta_of, thread_of
from .launch import LaunchPlan

if TYPE_CHECKING:
    from .program import Program

__all__ = ["BlankRead", "Overrun", "merge", "notes_of"]


class Overrun(NamedTuple):
    """The access of the first thread at a site that extended past an object, and the largest excess of all in bytes; ordered as
    tuples."""

    cta: int
    warp: int
    lane: int
    address: int
    farthest: int


class BlankRead(NamedTuple):
    """The first read of uninitialised memory by the first thread at a site, with the generic address of the first such byte; ordered
    as tuples. Addresses of shared memory are those in the memory of the block that has it."""

    cta: int
    warp: int
    lane: int
    address: int


def merge(overruns: dict[int, Overrun], more: Mapping[int, Overrun]) -> None:
    """Merge the overruns of other CTAs or accesses of a launch, by site."""
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
    for index, overrun in sorted(overruns.items()):
        site, holder = program.sites[index], memory.below(overrun.address)
        thread, block = thread_of(plan, overrun.warp, overrun.lane), cta_of(plan, overrun.cta)
        location = site.instruction.location
        source = f", source line {location.described}" if location is not None else ""
        object_text = f"{holder.called} ({holder.size:,} bytes)" if holder is not None else "an array"
        what = f"up to {overrun.farthest:,} bytes past the end of {object_text} [object-end]"
        where = f"thread {thread} of block {block} of kernel {readable_name(program.kernel.name)!r}{source}"
        notes.append(f"{site.instruction.span}: {site.instruction.opcode}: {where}: {what}")
    return tuple(notes)
