"""How the addresses of accesses depend on the position of a CTA in the grid: groups of accesses that move alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import GROUPS
from ...profile.build import LaunchRecord
from ..run.needed import LOADS
from ..run.trace_kernel import OFF, TraceKernel
from .areas import Place
from .settings import BEGINNING, FIRST_CTAS, FIRST_WARPS
from .sharing import Group
from .streams import ATOMICS

__all__ = ["atomics_of", "groups_of"]

#: Groups of accesses that are distinguished; the last one stands for all further ones.
_MOST_GROUPS = GROUPS - 1
#: The most that a whole number of words, computed in floating point, may be off.
_OFF_WHOLE = 1 / 16


def groups_of(
    tracer: TraceKernel,
    record: LaunchRecord,
    last: NDArray[np.uint32],
    middle: Place,
    within: list[tuple[Place, NDArray[np.uint32]]],
    whole: list[tuple[Place, NDArray[np.uint32]]],
    moved: list[bool],
    signs: list[int],
) -> tuple[tuple[Group, ...], list[int]]:
    """Groups of accesses, and the group of each site. ``last``: the accesses of the CTA in the middle of the grid and its neighbours;
    ``within``: those of other CTAs, by position, which test whether addresses are linear in the position; ``whole``: those from which
    it follows how sites depend on one another."""
    numbers: dict[Group, int] = {}
    of_site: list[int] = []
    ways: list[tuple[int, int, int] | None] = []
    for index, site in enumerate(tracer.sites):
        space = "global" if site.space == "generic" else site.space
        if space == "global":
            ways.append(_moves(last[:, :, index].astype(np.int64), moved, signs))
        else:
            ways.append((0, 0, 0))
    sizes = list(record.plan.cluster)
    straight = {
        index: moves
        for index, moves in enumerate(ways)
        if moves is not None and tracer.sites[index].space in ("global", "generic")
    }
    bent = any(
        _bent(last[0, :, index], there[:, index], place, middle, moves, sizes)
        for index, moves in straight.items()
        for place, there in within
    )
    seen = _seen(tracer, record, middle, straight, sizes, last[0], whole) if bent else {}
    for index, site in enumerate(tracer.sites):
        item = tracer.graph.listing.instructions[site.position]
        store = item.base not in LOADS and not (item.base == "LDGSTS" and site.operand)
        space = "global" if site.space == "generic" else site.space
        group = Group(space, store and space == "global", ways[index], seen.get(index, b""))
        of_site.append(min(_MOST_GROUPS - 1, numbers.setdefault(group, len(numbers))))
    return tuple(numbers)[:_MOST_GROUPS], of_site


def _bent(
    here: NDArray[np.uint32],
    there: NDArray[np.uint32],
    place: Place,
    middle: Place,
    moves: tuple[int, ...],
    sizes: list[int],
) -> bool:
    """Whether the accesses of a CTA (or the first of a cluster, of ``sizes`` CTAs) deviate from the linear prediction from the
    middle."""
    known = (here != OFF) & (there != OFF)
    expected = sum((at - start) * size * each for at, start, size, each in zip(place, middle, sizes, moves))
    return bool((_signed(there[known], here[known]) != (expected + (1 << 31)) % (1 << 32) - (1 << 31)).any())


def _signed(there: NDArray[np.uint32], here: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The signed difference in words."""
    return (there - here).view(np.int32).astype(np.int64)


def _seen(
    tracer: TraceKernel,
    record: LaunchRecord,
    middle: Place,
    straight: dict[int, tuple[int, int, int]],
    sizes: list[int],
    ended: NDArray[np.uint32],
    whole: list[tuple[Place, NDArray[np.uint32]]],
) -> dict[int, bytes]:
    """``Group.seen`` by site, from the first accesses of the first CTAs of the grid. The offsets of sites that no CTA reaches by then,
    such as those behind a loop, follow from those of the others, if they do in ``whole``, CTAs that were traced to their end
    (``ended``: the one in the middle). Otherwise, and where the warps of a CTA have different offsets, the linear prediction
    applies."""
    plan = record.plan
    wide, tall, deep = plan.grid
    count = min(wide * tall * deep, FIRST_CTAS, max(1, FIRST_WARPS // plan.warps_per_cta))
    index = np.arange(count)
    places = np.stack([index % wide, index // wide % tall, index // (wide * tall)], axis=1)
    start = np.array([at * size for at, size in zip(middle, sizes)])
    x, y, z = start.tolist()
    last = tracer.beginnings(record, [(x, y, z), *map(tuple, places.tolist())], BEGINNING)
    found: dict[int, NDArray[np.int64]] = {}
    behind = []
    for site, moves in straight.items():
        moved, alike = _offsets(last[0, :, site], last[1:, :, site])
        expected = (places - start) @ np.array(moves, np.int64)
        if (alike & (moved != expected)).any():
            found[site] = np.where(alike, moved, expected)
        elif not alike.any():
            behind.append(site)
    to_end = np.stack([there for _, there in whole])
    known = np.array([place for place, _ in whole]) * np.array(sizes) - start
    for site in behind:
        moved, alike = _offsets(ended[:, site], to_end[:, :, site])
        if (moved[alike] != known[alike] @ np.array(straight[site], np.int64)).any():
            others = [(_offsets(ended[:, other], to_end[:, :, other]), found[other]) for other in found]
            combined = _combined(moved, alike, known, places - start, others)
            if combined is not None:
                found[site] = combined
    return {site: moved.tobytes() for site, moved in found.items()}


def _offsets(
    here: NDArray[np.uint32], there: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The offset in words of each CTA of ``there`` from the one of ``here``, at one site, and whether all its warps have it."""
    known = (there != OFF) & (here != OFF)
    steps = _signed(there, here)
    least = np.min(steps, axis=1, where=known, initial=1 << 31)
    return least, least == np.max(steps, axis=1, where=known, initial=-(1 << 31))


def _combined(
    moved: NDArray[np.int64],
    alike: NDArray[np.bool_],
    known: NDArray[np.int64],
    places: NDArray[np.int64],
    others: list[tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]],
) -> NDArray[np.int64] | None:
    """The offsets of a site in the CTAs at ``places``, if in those at ``known`` they are a sum of multiples of the position and of the
    offsets of other sites, as the place of an element in C is of those of its row in A and its column in B. Positions are relative
    to the CTA that offsets are from. ``others``: the offsets of each of these sites at ``known``, as ``_offsets`` returns them, and at
    ``places``. ``None`` if they are no such sum, or too few CTAs are known to tell."""
    columns = [(known[:, axis], places[:, axis]) for axis in range(3) if places[:, axis].any()]
    for (there, same), everywhere in others:
        if same[alike].all() and not any((everywhere == column).all() for _, column in columns):
            columns.append((there, everywhere))
    given, wanted = (
        np.stack(side, axis=1) for side in ([one[alike] for one, _ in columns], [all_ for _, all_ in columns])
    )
    scale = np.abs(given).max(axis=0, initial=1)
    factors, _, rank, _ = np.linalg.lstsq(given / scale, moved[alike], rcond=None)
    of_known, of_all = given @ (factors / scale), wanted @ (factors / scale)
    whole: NDArray[np.int64] = np.rint(of_all).astype(np.int64)
    # Fractions show that multiples were found which hold for the known CTAs only.
    if (
        len(given) <= rank
        or (np.rint(of_known) != moved[alike]).any()
        or (np.abs(of_all - whole) > _OFF_WHOLE).any()
    ):
        return None
    return whole


def _moves(last: NDArray[np.int64], moved: list[bool], signs: list[int]) -> tuple[int, int, int] | None:
    found = []
    for axis in range(3):
        if not moved[axis]:
            found.append(0)
            continue
        known = (last[0] != OFF) & (last[axis + 1] != OFF)
        # The offset between clusters, divided by the CTAs of a cluster along the axis.
        steps = np.unique((last[axis + 1] - last[0])[known]) // signs[axis]
        if len(steps) != 1:
            return None
        found.append((int(steps[0]) + (1 << 31)) % (1 << 32) - (1 << 31))
    x, y, z = found
    return x, y, z


def atomics_of(tracer: TraceKernel, of_site: list[int]) -> tuple[tuple[int, int], ...]:
    """``Classes.atomics``."""
    items = tracer.graph.listing.instructions
    return tuple(
        (site.position, group)
        for site, group in zip(tracer.sites, of_site)
        if site.space in ("global", "generic") and items[site.position].base.startswith(ATOMICS)
    )
