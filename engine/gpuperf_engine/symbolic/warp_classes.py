"""The warps of a launch as points: block and warp index as symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..affine.lanes import FULL, Lanes
from ..affine.linear import Linear
from ..simt.launch import LaunchPlan

__all__ = ["warp_classes"]

Box = Sequence[tuple[int, int]]
#: symbols: the block index by axis, then the warp's index
_WARP = 3


def warp_classes(plan: LaunchPlan) -> Iterator[tuple[Mapping[tuple[str, int], Lanes], Box, int]]:
    """``(coordinates, box, lanes)`` of sets of warps that together are all of the launch.

    ``coordinates`` are ``tid``, ``ctaid`` (by axis) and ``warpid``. Full warps are one set if their thread indices are affine in the
    warp's index; a partial last warp, and warps of other shapes, are separate sets.
    """
    grid = [(0, extent - 1) for extent in plan.grid]
    whole, left = divmod(plan.threads_per_cta, 32)
    symbolic = _symbolic(plan, whole)
    if symbolic is not None and whole:
        tids, warpid, box = symbolic
        yield _coordinates(tids, warpid), [*grid, *box], FULL
    for warp in range(0 if symbolic is None else whole, whole + (left > 0)):
        lanes = FULL if warp < whole else (1 << left) - 1
        wide, tall, _ = plan.block
        threads = range(32 * warp, 32 * warp + 32)
        coordinates = (
            [thread % wide for thread in threads],
            [thread // wide % tall for thread in threads],
            [thread // (wide * tall) for thread in threads],
        )
        yield _coordinates([(coordinate, ()) for coordinate in coordinates], (warp, ())), grid, lanes


def _coordinates(
    tids: Sequence[tuple[Sequence[int], Linear]], warpid: tuple[int, Linear]
) -> dict[tuple[str, int], Lanes]:
    coordinates = {("ctaid", axis): Lanes((0,), ((FULL, ((axis, 1),), 0),)) for axis in range(3)}
    coordinates |= {
        ("tid", axis): Lanes(base, ((FULL, linear, 0),)) for axis, (base, linear) in enumerate(tids)
    }
    coordinates["tid", 3] = coordinates["ctaid", 3] = Lanes((0,), ((FULL, (), 0),))
    coordinates["warpid", 0] = Lanes((warpid[0],), ((FULL, warpid[1], 0),))
    return coordinates


def _symbolic(
    plan: LaunchPlan, whole: int
) -> tuple[list[tuple[Sequence[int], Linear]], tuple[int, Linear], Box] | None:
    """Thread indices and the warp's index, affine in up to three symbols, and their ranges; ``None`` where they are not affine."""
    wide, tall, deep = plan.block
    lanes = range(32)
    first, second, third = _WARP, _WARP + 1, _WARP + 2
    plane = wide * tall
    if tall == deep == 1:  # 32·w + lane
        return [(lanes, ((first, 32),)), ((0,), ()), ((0,), ())], (0, ((first, 1),)), [(0, whole - 1)]
    if wide % 32 == 0:
        across = wide // 32
        tids: list[tuple[Sequence[int], Linear]] = [
            (lanes, ((first, 32),)),
            ((0,), ((second, 1),)),
            ((0,), ((third, 1),)),
        ]
        return (
            tids,
            (0, ((first, 1), (second, across), (third, across * tall))),
            [(0, across - 1), (0, tall - 1), (0, deep - 1)],
        )
    if 32 % wide:
        return None
    columns, rows = [lane % wide for lane in lanes], [lane // wide for lane in lanes]
    if deep == 1:
        tids = [(columns, ()), (rows, ((first, 32 // wide),)), ((0,), ())]
        return tids, (0, ((first, 1),)), [(0, whole - 1)]
    if plane % 32 == 0:
        tids = [(columns, ()), (rows, ((first, 32 // wide),)), ((0,), ((second, 1),))]
        return tids, (0, ((first, 1), (second, plane // 32))), [(0, plane // 32 - 1), (0, deep - 1)]
    if 32 % plane == 0:
        planes = [lane // plane for lane in lanes]
        tids = [(columns, ()), ([row % tall for row in rows], ()), (planes, ((first, 32 // plane),))]
        return tids, (0, ((first, 1),)), [(0, whole - 1)]
    return None
