"""Functions of ``intrinsics`` that work on 32 numbers at once, one of each lane, as LLVM IR.

Numbers are 64 bits wide and consecutive at a host address; sets of lanes are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.emitter import Emitter
from ..ir.operands import LANES, Ref, constant, element_of, numbers, vector_of
from .access.text import V1, V64

__all__ = ["race_words", "vector_words"]

_Make = Callable[[Emitter, Ref, Ref], None]
_HALF = vector_of(16, "i32")
_NONE, _WHICH = Ref("i32", "0"), Ref("i64", "%lanes")
#: functions with loops over lanes, which need the numbers in memory
_LOOPING = ("sectors_of", "first_of", "last_of", "most_alike")
_CONFLICTS = "declare <16 x i32> @llvm.x86.avx512.conflict.d.512(<16 x i32>)"
_REVERSAL = "declare i32 @llvm.bitreverse.i32(i32)"
_HEADS = {
    "numbers": "i64 %target, i64 %source, i64 %down, i64 %keep, i64 %group",
    "sectors_of": "i64 %source, i64 %lanes",
    "first_of": "i64 %source, i64 %lanes",
    "last_of": "i64 %source, i64 %lanes",
    "most_alike": "i64 %source, i64 %lanes",
    "neighbours": "i64 %source, i64 %distance",
    "alike": "i64 %source, i64 %lane, i64 %size",
    "differing": "i64 %one, i64 %other",
    "in_row": "i64 %source, i64 %lane, i64 %size",
}


def vector_words(wide: bool) -> str:
    """Return the IR of the functions. ``wide``: the host has AVX-512."""
    makers: dict[str, Callable[[Emitter], None]] = {
        "numbers": _numbers,
        "sectors_of": partial(_sectors_of, wide=wide),
        "first_of": partial(_first_of, wide=wide),
        "last_of": partial(_last_of, wide=wide),
        "most_alike": partial(_most_alike, wide=wide),
        "neighbours": _neighbours,
    }
    declared = [
        _CONFLICTS if wide else "",
        "declare <16 x i32> @llvm.ctpop.v16i32(<16 x i32>)",
        "declare <16 x i32> @llvm.umax.v16i32(<16 x i32>, <16 x i32>)",
        "declare i32 @llvm.vector.reduce.umax.v16i32(<16 x i32>)",
        _REVERSAL,
        "declare i32 @llvm.ctpop.i32(i32)",
        "declare i32 @llvm.umax.i32(i32, i32)",
        "declare i32 @llvm.cttz.i32(i32, i1)",
    ]
    return "\n".join([*declared, *(_function(name, make) for name, make in makers.items()), ""])


def race_words(wide: bool) -> str:
    """The functions ``alike``, ``differing``, ``in_row`` and ``last_of``; ``wide`` as in ``vector_words``."""
    makers: dict[str, Callable[[Emitter], None]] = {
        "alike": _alike, "differing": _differing, "in_row": _in_row, "last_of": partial(_last_of, wide=wide),
    }  # fmt: skip
    declared = [_CONFLICTS if wide else "", _REVERSAL, ""]
    return "\n".join(declared) + "".join(_function(name, make, "internal ") for name, make in makers.items())


def _function(name: str, make: Callable[[Emitter], None], linkage: str = "") -> str:
    to = Emitter()
    to.start("entry")
    if name in _LOOPING:
        to.do(f"%cells = alloca {V64}, align 64")
    make(to)
    return to.function(f"{linkage}i64 @{name}({_HEADS[name]})")


def _lanes(to: Emitter) -> Ref:
    return to.load(V64, to.pointer("%source"), 8)


def _numbers(to: Emitter) -> None:
    """``target[l] = ((source[l] >> down) & keep) << 5 | l >> group``."""
    moved = to.lshr(_lanes(to), to.splat(Ref("i64", "%down")))
    kept = to.and_(moved, to.splat(Ref("i64", "%keep")))
    group = to.lshr(numbers("i64", range(LANES)), to.splat(Ref("i64", "%group")))
    packed = to.or_(to.shl(kept, 5), group)
    to.store(packed, to.pointer("%target"), 8)
    to.give(constant("i64", 0))


def _sectors_of(to: Emitter, wide: bool) -> None:
    """Count the different numbers in units of 32, plus 64 · those in units of 128: sectors and lines of addresses.

    If the lanes are contiguous and the addresses monotonic, the counts are the numbers of changes from lane to lane.
    """
    mask = to.trunc(_WHICH, "i32")
    given = to.lshr(_lanes(to), 5)
    before = to.pick(given, [0, *range(LANES - 1)])
    pairs = to.and_(mask, to.shl(mask, 1))
    ordered = []
    for way in ("uge", "ule"):
        held = to.bits(to.icmp(way, given, before))
        ordered.append(to.icmp("eq", to.and_(held, pairs), pairs))
    lowest = to.and_(mask, to.sub(_NONE, mask))
    rest = to.and_(mask, to.add(mask, lowest))
    together = to.icmp("eq", rest, 0)
    simple = to.and_(to.or_(ordered[0], ordered[1]), together)
    to.branch(simple, "runs", "each")
    to.start("runs")
    changed = to.xor(given, before)
    begun = [
        to.or_(lowest, to.and_(pairs, steps))
        for steps in (to.bits(to.icmp("ugt", changed, bits)) for bits in (0, 3))
    ]
    _counted(to, begun)
    to.start("each")
    _narrow(to, given, mask, _sectors_each, _sectors_wide if wide else _sectors_each)


def _sectors_each(to: Emitter, given: Ref, mask: Ref) -> None:
    def add(fresh: list[Ref], lane: Ref, one: Ref) -> list[Ref]:
        changed = to.xor(given, one)
        same = [to.bits(to.icmp("ult", changed, bits)) for bits in (1, 4)]
        return [_if_first(to, before, lanes, mask, lane) for before, lanes in zip(fresh, same)]

    _counted(to, [to.and_(item, mask) for item in _over_lanes(to, given, 2, add)])


def _sectors_wide(to: Emitter, given: Ref, mask: Ref) -> None:
    """As ``_sectors_each``, by the conflict-detection instruction (``vpconflict``)."""
    sectors = _with_own(to, given, mask)
    lines = to.ashr(sectors, 2)
    _counted(to, [to.and_(_fresh(to, item), mask) for item in (sectors, lines)])


def _with_own(to: Emitter, given: Ref, mask: Ref) -> Ref:
    """Assign inactive lanes distinct numbers that no nearby lane has."""
    ladder = numbers("i32", range(-(1 << 31), 4 * LANES - (1 << 31), 4))
    return to.select(to.bitcast(mask, V1), given, ladder)


def _below(to: Emitter, given: Ref) -> tuple[Ref, Ref, list[Ref]]:
    """Return the halves of the lanes, and for each lane the lower lanes of its half with the same number, as bits."""
    low, high = (to.pick(given, range(start, start + 16)) for start in (0, 16))
    conflicts = [
        to.ref(_HALF, f"call {_HALF} @llvm.x86.avx512.conflict.d.512({_HALF} {part})") for part in (low, high)
    ]
    return low, high, conflicts


def _fresh(to: Emitter, given: Ref) -> Ref:
    """Return the lanes whose number no lower lane has."""
    low, high, conflicts = _below(to, given)
    first = [to.icmp("eq", below, "zeroinitializer") for below in conflicts]
    known: Ref | None = None
    for lane in range(16):
        same = to.icmp("eq", high, to.pick(low, [lane] * 16))
        known = same if known is None else to.or_(known, same)
    assert known is not None
    new = to.and_(first[1], to.not_(known))
    return to.bits(to.pick(first[0], range(32), new))


def _counted(to: Emitter, lanes: list[Ref]) -> None:
    """Write the return of the population counts of two masks."""
    low, high = (to.zext(to.ref("i32", f"call i32 @llvm.ctpop.i32(i32 {item})"), "i64") for item in lanes)
    high = to.shl(high, 6)
    to.give(to.or_(low, high))


def _first_of(to: Emitter, wide: bool) -> None:
    """Return the first lane of the mask for each number."""
    mask = to.trunc(_WHICH, "i32")
    _narrow(to, _lanes(to), mask, _first_each, _first_wide if wide else _first_each)


def _last_of(to: Emitter, wide: bool) -> None:
    """Return the last lane of the mask for each number: the first ones in reverse order."""
    mask = _reversed(to, to.trunc(_WHICH, "i32"))
    given = to.pick(_lanes(to), range(LANES - 1, -1, -1))
    _narrow(to, given, mask, _last_each, _last_wide if wide else _last_each)


def _reversed(to: Emitter, lanes: Ref) -> Ref:
    return to.ref("i32", f"call i32 @llvm.bitreverse.i32(i32 {lanes})")


def _last_wide(to: Emitter, given: Ref, mask: Ref) -> None:
    first_lanes = to.and_(_fresh(to, _with_own(to, given, mask)), mask)
    to.give(to.zext(_reversed(to, first_lanes), "i64"))


def _last_each(to: Emitter, given: Ref, mask: Ref) -> None:
    to.give(to.zext(_reversed(to, _first_lanes(to, given, mask)), "i64"))


def _first_wide(to: Emitter, given: Ref, mask: Ref) -> None:
    first_lanes = to.and_(_fresh(to, _with_own(to, given, mask)), mask)
    to.give(to.zext(first_lanes, "i64"))


def _first_each(to: Emitter, given: Ref, mask: Ref) -> None:
    to.give(to.zext(_first_lanes(to, given, mask), "i64"))


def _first_lanes(to: Emitter, given: Ref, mask: Ref) -> Ref:
    def add(first_lanes: list[Ref], lane: Ref, one: Ref) -> list[Ref]:
        same = to.bits(to.icmp("eq", given, one))
        return [_if_first(to, first_lanes[0], same, mask, lane)]

    (first_lanes,) = _over_lanes(to, given, 1, add)
    return to.and_(first_lanes, mask)


def _over_lanes(
    to: Emitter, given: Ref, results: int, add: Callable[[list[Ref], Ref, Ref], list[Ref]]
) -> list[Ref]:
    """Write a loop over the lanes, which compiles far faster than 32 copies of its body: ``add`` takes the masks so far, the index
    of a lane, and that lane's number broadcast to all lanes."""
    scalar = element_of(given.type)
    to.store(given, "%cells", 64)
    before = to.block
    with to.count_to(LANES) as index:
        masks = [to.phi("i32", (0, before)) for _ in range(results)]
        cell = to.place("%cells", to.mul(index, int(scalar[1:]) // 8))
        added = add([*masks], to.trunc(index, "i32"), to.splat(to.load(scalar, cell)))
        for mask, more in zip(masks, added):
            mask.come(more)
    return added


def _if_first(to: Emitter, first_lanes: Ref, same: Ref, mask: Ref, lane: Ref) -> Ref:
    """Add the lane to ``first_lanes`` if no lower lane of the mask has the same number."""
    below = to.sub(to.shl(Ref("i32", "1"), lane), 1)
    others = to.and_(to.and_(same, mask), below)
    new = to.zext(to.icmp("eq", others, 0), "i32")
    return to.or_(first_lanes, to.shl(new, lane))


def _narrow(to: Emitter, given: Ref, mask: Ref, make: _Make, near_make: _Make | None = None) -> None:
    """The rest of a function for 64-bit numbers, and for 32-bit ones where those of the mask are that near to each other
    (counted from a multiple of 4)."""
    first = to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.extract(given, to.and_(first, 31))
    one = to.and_(one, -4)
    apart = to.sub(given, to.splat(one))
    low = to.trunc(apart, "i32")
    high = to.add(apart, 1 << 30)
    far = to.bits(to.icmp("ugt", high, (1 << 31) - 1))
    near = to.icmp("eq", to.and_(far, mask), 0)
    to.branch(near, "near", "far")
    to.start("near")
    (near_make or make)(to, low, mask)
    to.start("far")
    make(to, given, mask)


def _most_alike(to: Emitter, wide: bool) -> None:
    """Return the count of the most frequent number among the lanes of the mask."""
    mask = to.trunc(_WHICH, "i32")
    _narrow(to, _lanes(to), mask, _most_each, _most_wide if wide else _most_each)


def _most_wide(to: Emitter, given: Ref, mask: Ref) -> None:
    """As ``_most_alike``, by conflict detection: the last lane of a number has the most equal lanes below."""
    low, high, conflicts = _below(to, _with_own(to, given, mask))
    within, above = (
        to.ref(_HALF, f"call {_HALF} @llvm.ctpop.v16i32({_HALF} {below})") for below in conflicts
    )
    for lane in range(16):
        same = to.icmp("eq", high, to.pick(low, [lane] * 16))
        above = to.add(above, to.zext(same, "i32"))
    most = to.ref(_HALF, f"call {_HALF} @llvm.umax.v16i32({_HALF} {within}, {_HALF} {above})")
    others = to.ref("i32", f"call i32 @llvm.vector.reduce.umax.v16i32({_HALF} {most})")
    count = to.select(to.icmp("eq", mask, 0), _NONE, to.add(others, 1))
    to.give(to.zext(count, "i64"))


def _most_each(to: Emitter, given: Ref, mask: Ref) -> None:
    def add(most: list[Ref], lane: Ref, one: Ref) -> list[Ref]:
        same = to.and_(to.bits(to.icmp("eq", given, one)), mask)
        count = to.ref("i32", f"call i32 @llvm.ctpop.i32(i32 {same})")
        return [to.ref("i32", f"call i32 @llvm.umax.i32(i32 {most[0]}, i32 {count})")]

    (most,) = _over_lanes(to, given, 1, add)
    to.give(to.zext(most, "i64"))


def _neighbours(to: Emitter) -> None:
    """Return the lanes l with the number of lane l xor ``distance`` (1 or 2)."""
    given = _lanes(to)
    equal = [
        to.icmp("eq", given, to.pick(given, [lane ^ apart for lane in range(LANES)])) for apart in (1, 2)
    ]
    near = to.icmp("eq", Ref("i64", "%distance"), 1)
    chosen = to.select(near, equal[0], equal[1])
    to.give(to.zext(to.bits(chosen), "i64"))


def _alike(to: Emitter) -> None:
    """Return the lanes whose element equals that of one lane."""
    cases = " ".join(f"i64 {size}, label %of{size}" for size in (1, 2, 4))
    to.do(f"switch i64 %size, label %of8 [{cases}]")
    for size in (1, 2, 4, 8):
        to.start(f"of{size}")
        given = to.load(vector_of(LANES, f"i{8 * size}"), to.pointer("%source"), 1)
        one = to.extract(given, to.trunc(Ref("i64", "%lane"), "i32"))
        same = to.icmp("eq", given, to.splat(one))
        to.give(to.zext(to.bits(same), "i64"))


def _in_row(to: Emitter) -> None:
    """Return the lanes l with the number of lane k plus ``size`` · (l − k)."""
    given = to.load(V64, to.pointer("%source"), 8)
    size = Ref("i64", "%size")
    steps = to.mul(numbers("i64", range(LANES)), to.splat(size))
    starts = to.sub(given, steps)
    one = to.extract(starts, to.trunc(Ref("i64", "%lane"), "i32"))
    to.give(to.zext(to.bits(to.icmp("eq", starts, to.splat(one))), "i64"))


def _differing(to: Emitter) -> None:
    """Which of 64 bytes differ."""
    one, other = (to.load("<64 x i8>", to.pointer(name), 1) for name in ("%one", "%other"))
    to.give(to.bits(to.icmp("ne", one, other)))
