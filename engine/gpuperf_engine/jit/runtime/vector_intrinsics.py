"""Words of ``compile_python`` that work on 32 numbers at once, one of each lane, as LLVM IR. PYTEST_DONT_REWRITE

Numbers are 64 bits wide and lie side by side at a host address; lanes are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.emitter import LANES
from .access_text import V1, V32, V64, Text

__all__ = ["vector_words"]

_Make = Callable[[Text, str, str, str], None]
_HALF = "<16 x i32>"
_HEADS = {
    "numbers": "i64 %target, i64 %source, i64 %down, i64 %keep, i64 %group",
    "sectors_of": "i64 %source, i64 %lanes",
    "first_of": "i64 %source, i64 %lanes",
    "most_alike": "i64 %source, i64 %lanes",
    "neighbours": "i64 %source, i64 %distance",
}


def vector_words(wide: bool) -> str:
    """The functions. ``wide``: the host has AVX-512."""
    makers: dict[str, Callable[[Text], None]] = {
        "numbers": _numbers,
        "sectors_of": partial(_sectors_of, wide=wide),
        "first_of": partial(_first_of, wide=wide),
        "most_alike": partial(_most_alike, wide=wide),
        "neighbours": _neighbours,
    }
    declared = [
        "declare <16 x i32> @llvm.x86.avx512.conflict.d.512(<16 x i32>)" if wide else "",
        "declare <16 x i32> @llvm.ctpop.v16i32(<16 x i32>)",
        "declare <16 x i32> @llvm.umax.v16i32(<16 x i32>, <16 x i32>)",
        "declare i32 @llvm.vector.reduce.umax.v16i32(<16 x i32>)",
        "declare i32 @llvm.ctpop.i32(i32)",
        "declare i32 @llvm.umax.i32(i32, i32)",
        "declare i32 @llvm.cttz.i32(i32, i1)",
    ]
    return "\n".join([*declared, *(_function(name, make) for name, make in makers.items()), ""])


def _function(name: str, make: Callable[[Text], None]) -> str:
    to = Text()
    to.do(f"define i64 @{name}({_HEADS[name]}) nounwind {{", "entry:")
    make(to)
    return "\n".join([*to.lines, "}"])


def _lanes(to: Text, source: str) -> str:
    pointer = to.op(f"inttoptr i64 {source} to ptr")
    return to.op(f"load {V64}, ptr {pointer}, align 8")


def _numbers(to: Text) -> None:
    """``target[l] = ((source[l] >> down) & keep) << 5 | l >> group``."""
    ladder = ", ".join(f"i64 {lane}" for lane in range(LANES))
    moved = to.op(f"lshr {V64} {_lanes(to, '%source')}, {to.splat('%down', 'i64')}")
    kept = to.op(f"and {V64} {moved}, {to.splat('%keep', 'i64')}")
    group = to.op(f"lshr {V64} <{ladder}>, {to.splat('%group', 'i64')}")
    made = to.op(f"or {V64} {to.op(f'shl {V64} {kept}, splat (i64 5)')}, {group}")
    pointer = to.op("inttoptr i64 %target to ptr")
    to.do(f"store {V64} {made}, ptr {pointer}, align 8", "ret i64 0")


def _sectors_of(to: Text, wide: bool) -> None:
    """How many different numbers there are in units of 32 and of 128 (as 64 · them): sectors and lines of addresses.

    Where the lanes are side by side and the addresses only rise or only fall, these are the places where a unit ends.
    """
    mask = to.op("trunc i64 %lanes to i32")
    given = to.op(f"lshr {V64} {_lanes(to, '%source')}, splat (i64 5)")
    before = to.pick(given, "i64", LANES, [0, *range(LANES - 1)])
    pairs = to.op(f"and i32 {mask}, {to.op(f'shl i32 {mask}, 1')}")
    ordered = []
    for way in ("uge", "ule"):
        held = to.bits(to.op(f"icmp {way} {V64} {given}, {before}"))
        ordered.append(to.op(f"icmp eq i32 {to.op(f'and i32 {held}, {pairs}')}, {pairs}"))
    lowest = to.op(f"and i32 {mask}, {to.op(f'sub i32 0, {mask}')}")
    rest = to.op(f"and i32 {mask}, {to.op(f'add i32 {mask}, {lowest}')}")
    together = to.op(f"icmp eq i32 {rest}, 0")
    simple = to.op(f"and i1 {to.op(f'or i1 {ordered[0]}, {ordered[1]}')}, {together}")
    to.do(f"br i1 {simple}, label %runs, label %each", "runs:")
    changed = to.op(f"xor {V64} {given}, {before}")
    begun = [
        to.op(f"or i32 {lowest}, {to.op(f'and i32 {pairs}, {steps}')}")
        for steps in (to.bits(to.op(f"icmp ugt {V64} {changed}, splat (i64 {bits})")) for bits in (0, 3))
    ]
    _counted(to, begun)
    to.do("each:")
    _narrow(to, given, mask, _sectors_each, _sectors_wide if wide else _sectors_each)


def _sectors_each(to: Text, given: str, kind: str, mask: str) -> None:
    fresh = ["0", "0"]
    for lane in range(LANES):
        one = to.pick(given, kind, LANES, [lane] * LANES)
        changed = to.op(f"xor <{LANES} x {kind}> {given}, {one}")
        for number, bits in enumerate((1, 4)):
            same = to.bits(to.op(f"icmp ult <{LANES} x {kind}> {changed}, splat ({kind} {bits})"))
            fresh[number] = _if_first(to, fresh[number], same, mask, lane)
    _counted(to, [to.op(f"and i32 {item}, {mask}") for item in fresh])


def _sectors_wide(to: Text, given: str, kind: str, mask: str) -> None:
    """As ``_sectors_each``, by the instruction that finds what lanes below have the same number."""
    del kind
    sectors = _with_own(to, given, mask)
    lines = to.op(f"ashr {V32} {sectors}, splat (i32 2)")
    _counted(to, [to.op(f"and i32 {_fresh(to, item)}, {mask}") for item in (sectors, lines)])


def _with_own(to: Text, given: str, mask: str) -> str:
    """Lanes that are off get numbers of their own, which no lane that is near has."""
    ladder = ", ".join(f"i32 {4 * lane - (1 << 31)}" for lane in range(LANES))
    lanes = to.op(f"bitcast i32 {mask} to {V1}")
    return to.op(f"select {V1} {lanes}, {V32} {given}, {V32} <{ladder}>")


def _below(to: Text, given: str) -> tuple[str, str, list[str]]:
    """The halves of the lanes, and as bits which lanes below, in the same half, have the number of each."""
    low, high = (to.pick(given, "i32", LANES, range(start, start + 16)) for start in (0, 16))
    conflicts = [
        to.op(f"call {_HALF} @llvm.x86.avx512.conflict.d.512({_HALF} {part})") for part in (low, high)
    ]
    return low, high, conflicts


def _fresh(to: Text, given: str) -> str:
    """The lanes whose number no lane below has."""
    half = _HALF
    low, high, conflicts = _below(to, given)
    first = [to.op(f"icmp eq {half} {below}, zeroinitializer") for below in conflicts]
    known = ""
    for lane in range(16):
        same = to.op(f"icmp eq {half} {high}, {to.pick(low, 'i32', 16, [lane] * 16)}")
        known = to.op(f"or <16 x i1> {known}, {same}") if known else same
    new = to.op(f"and <16 x i1> {first[1]}, {to.op(f'xor <16 x i1> {known}, splat (i1 true)')}")
    return to.bits(to.pick(first[0], "i1", 16, range(32), new))


def _counted(to: Text, lanes: list[str]) -> None:
    """Return how many lanes two masks have."""
    low, high = (to.op(f"zext i32 {to.op(f'call i32 @llvm.ctpop.i32(i32 {item})')} to i64") for item in lanes)
    high = to.op(f"shl i64 {high}, 6")
    to.do(f"ret i64 {to.op(f'or i64 {low}, {high}')}")


def _first_of(to: Text, wide: bool) -> None:
    """The lanes that have a number before all others of the mask that have it."""
    mask = to.op("trunc i64 %lanes to i32")
    _narrow(to, _lanes(to, "%source"), mask, _first_each, _first_wide if wide else _first_each)


def _first_wide(to: Text, given: str, kind: str, mask: str) -> None:
    del kind
    found = to.op(f"and i32 {_fresh(to, _with_own(to, given, mask))}, {mask}")
    to.do(f"ret i64 {to.op(f'zext i32 {found} to i64')}")


def _first_each(to: Text, given: str, kind: str, mask: str) -> None:
    found = "0"
    for lane, same in enumerate(_same(to, given, kind)):
        found = _if_first(to, found, same, mask, lane)
    found = to.op(f"and i32 {found}, {mask}")
    to.do(f"ret i64 {to.op(f'zext i32 {found} to i64')}")


def _if_first(to: Text, found: str, same: str, mask: str, lane: int) -> str:
    """``found`` and the lane, if no lane of the mask below is among those with the same number."""
    others = to.op(f"and i32 {to.op(f'and i32 {same}, {mask}')}, {(1 << lane) - 1}")
    new = to.op(f"zext i1 {to.op(f'icmp eq i32 {others}, 0')} to i32")
    return to.op(f"or i32 {found}, {to.op(f'shl i32 {new}, {lane}')}")


def _narrow(to: Text, given: str, mask: str, make: _Make, near_make: _Make | None = None) -> None:
    """The rest of a function for 64-bit numbers, and for 32-bit ones where those of the mask are that near to each other
    (counted from a multiple of 4)."""
    first = to.op(f"call i32 @llvm.cttz.i32(i32 {mask}, i1 false)")
    one = to.op(f"extractelement {V64} {given}, i32 {to.op(f'and i32 {first}, 31')}")
    one = to.op(f"and i64 {one}, -4")
    apart = to.op(f"sub {V64} {given}, {to.splat(one, 'i64')}")
    low = to.op(f"trunc {V64} {apart} to {V32}")
    high = to.op(f"add {V64} {apart}, splat (i64 {1 << 30})")
    far = to.bits(to.op(f"icmp ugt {V64} {high}, splat (i64 {(1 << 31) - 1})"))
    near = to.op(f"icmp eq i32 {to.op(f'and i32 {far}, {mask}')}, 0")
    to.do(f"br i1 {near}, label %near, label %far", "near:")
    (near_make or make)(to, low, "i32", mask)
    to.do("far:")
    make(to, given, "i64", mask)


def _most_alike(to: Text, wide: bool) -> None:
    """How many lanes of the mask have the number that most of them have."""
    mask = to.op("trunc i64 %lanes to i32")
    _narrow(to, _lanes(to, "%source"), mask, _most_each, _most_wide if wide else _most_each)


def _most_wide(to: Text, given: str, kind: str, mask: str) -> None:
    """The last lane that has a number has the most below that have it."""
    del kind
    low, high, conflicts = _below(to, _with_own(to, given, mask))
    within, above = (to.op(f"call {_HALF} @llvm.ctpop.v16i32({_HALF} {below})") for below in conflicts)
    for lane in range(16):
        same = to.op(f"icmp eq {_HALF} {high}, {to.pick(low, 'i32', 16, [lane] * 16)}")
        above = to.op(f"add {_HALF} {above}, {to.op(f'zext <16 x i1> {same} to {_HALF}')}")
    most = to.op(f"call {_HALF} @llvm.umax.v16i32({_HALF} {within}, {_HALF} {above})")
    others = to.op(f"call i32 @llvm.vector.reduce.umax.v16i32({_HALF} {most})")
    found = to.op(f"select i1 {to.op(f'icmp eq i32 {mask}, 0')}, i32 0, i32 {to.op(f'add i32 {others}, 1')}")
    to.do(f"ret i64 {to.op(f'zext i32 {found} to i64')}")


def _most_each(to: Text, given: str, kind: str, mask: str) -> None:
    most = "0"
    for same in _same(to, given, kind):
        count = to.op(f"call i32 @llvm.ctpop.i32(i32 {to.op(f'and i32 {same}, {mask}')})")
        most = to.op(f"call i32 @llvm.umax.i32(i32 {most}, i32 {count})")
    to.do(f"ret i64 {to.op(f'zext i32 {most} to i64')}")


def _same(to: Text, given: str, kind: str) -> list[str]:
    """For each lane, those that have its number."""
    found = []
    for lane in range(LANES):
        one = to.pick(given, kind, LANES, [lane] * LANES)
        found.append(to.bits(to.op(f"icmp eq <{LANES} x {kind}> {given}, {one}")))
    return found


def _neighbours(to: Text) -> None:
    """The lanes l that have the number of lane l xor ``distance`` (1 or 2)."""
    given = _lanes(to, "%source")
    equal = [
        to.op(
            f"icmp eq {V64} {given}, {to.pick(given, 'i64', LANES, [lane ^ apart for lane in range(LANES)])}"
        )
        for apart in (1, 2)
    ]
    near = to.op("icmp eq i64 %distance, 1")
    chosen = to.op(f"select i1 {near}, {V1} {equal[0]}, {V1} {equal[1]}")
    to.do(f"ret i64 {to.op(f'zext i32 {to.bits(chosen)} to i64')}")
