"""The search for the warp of a sub-partition that can issue first, as LLVM IR: eight warps at once.

``earliest`` is a function of ``intrinsics``. A loop over warps would take several times as long.
"""

from __future__ import annotations

from ..ir.emitter import Emitter
from ..ir.operands import Ref, constant, numbers, vector_of
from ..ir.sm_records import AT_BIT, NEVER, QUEUED, TOGETHER

__all__ = ["earliest_words"]

_TIMES, _TESTS, _BYTES, _PLACES = (vector_of(TOGETHER, kind) for kind in ("i64", "i1", "i8", "ptr"))
_LATEST = NEVER << AT_BIT | (1 << AT_BIT) - 1
_DECLARATIONS = f"""\
declare {_TIMES} @llvm.smax.v8i64({_TIMES}, {_TIMES})
declare {_TIMES} @llvm.smin.v8i64({_TIMES}, {_TIMES})
declare i64 @llvm.vector.reduce.smin.v8i64({_TIMES})
"""
_LOOK_UP = f"declare {_TIMES} @llvm.x86.avx512.vpermi2var.q.512({_TIMES}, {_TIMES}, {_TIMES})\n"
_GATHER = f"declare {_TIMES} @llvm.masked.gather.v8i64.v8p0({_PLACES}, i32, {_TESTS}, {_TIMES})\n"


def earliest_words(wide: bool) -> str:
    """The function ``earliest``. ``wide``: the host has AVX-512."""
    to = Emitter()
    to.start("entry")
    given = [Ref("i64", f"%{name}") for name in ("keys", "uses", "count", "pipes", "room", "slot", "out")]
    keys, uses, count, pipes, room, slot, out = given
    rooms, slots, left_out, none = (to.splat(value, TOGETHER) for value in (room, slot, out, Ref("i64", "0")))
    low, lanes = constant(_TIMES, (1 << AT_BIT) - 1), numbers("i64", range(TOGETHER))
    halves = [to.load(_TIMES, to.pointer(to.add(pipes, 8 * TOGETHER * half)), 8) for half in range(2 * wide)]
    to.enter("loop")
    first = to.phi("i64", (0, "entry"))
    best = to.phi(_TIMES, (constant(_TIMES, _LATEST), "entry"))
    key = to.load(_TIMES, to.pointer(to.add(keys, to.shl(first, 3))), 8)
    use = to.zext(to.load(_BYTES, to.pointer(to.add(uses, first)), 1), "i64")
    if wide:
        arguments = f"{_TIMES} {halves[0]}, {_TIMES} {use}, {_TIMES} {halves[1]}"
        free = to.ref(_TIMES, f"call {_TIMES} @llvm.x86.avx512.vpermi2var.q.512({arguments})")
    else:
        offsets = to.shl(to.and_(use, constant(_TIMES, QUEUED - 1)), constant(_TIMES, 3))
        places = to.ref(
            _PLACES, f"inttoptr {_TIMES} {to.add(to.splat(pipes, TOGETHER), offsets)} to {_PLACES}"
        )
        arguments = f"{_PLACES} {places}, i32 8, {_TESTS} splat (i1 true), {_TIMES} poison"
        free = to.ref(_TIMES, f"call {_TIMES} @llvm.masked.gather.v8i64.v8p0({arguments})")
    queued = to.icmp("uge", use, constant(_TIMES, QUEUED))
    free = _latest(to, _latest(to, free, to.select(queued, rooms, none)), slots)
    at = _latest(to, key, to.or_(to.shl(free, constant(_TIMES, AT_BIT)), to.and_(key, low)))
    places = to.add(lanes, to.splat(first, TOGETHER))
    at = to.select(to.icmp("eq", places, left_out), constant(_TIMES, _LATEST), at)
    better = to.ref(_TIMES, f"call {_TIMES} @llvm.smin.v8i64({_TIMES} {best}, {_TIMES} {at})")
    following = to.add(first, TOGETHER)
    first.come(following)
    best.come(better)
    to.branch(to.icmp("ult", following, count), "loop", "done")
    to.start("done")
    to.give(to.ref("i64", f"call i64 @llvm.vector.reduce.smin.v8i64({_TIMES} {better})"))
    head = ", ".join(f"i64 {item}" for item in given)
    return (
        _DECLARATIONS
        + (_LOOK_UP if wide else _GATHER)
        + to.function(f"internal i64 @earliest({head})", "alwaysinline nounwind")
    )


def _latest(to: Emitter, one: Ref, other: Ref) -> Ref:
    return to.ref(_TIMES, f"call {_TIMES} @llvm.smax.v8i64({_TIMES} {one}, {_TIMES} {other})")
