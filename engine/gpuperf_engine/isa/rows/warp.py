"""Exchange between the lanes of a warp (manual: shfl, vote, match, redux, activemask, elect)."""

from __future__ import annotations

from .. import effects
from ..availability import Available, Version
from ..primitives import Value, maximum, minimum, select
from ..table import Options, declare, instruction
from ..types import scalar_type

_SIGNED = scalar_type("s32")
EXCHANGE: Options = {"category": "inter_thread"}
SYNC: Options = {**EXCHANGE, "since": (6, 0), "target": 30}


def _old(since: Version, target: int) -> Available:
    """Without .sync: gone on sm_70 and higher from PTX 6.4 on."""
    return Available(since=since, target=target, removed=((6, 4), 70))


@instruction(
    "shfl.sync.mode.b32 d{|p:pred}, a, b:u32, c:u32, membermask:u32",
    mode="up down bfly idx",
    effect=effects.SHFL,
    unit="lsu",
    **SYNC,
)
@instruction(
    "shfl.mode.b32 d{|p:pred}, a, b:u32, c:u32",
    mode="up down bfly idx",
    effect=effects.SHFL,
    unit="lsu",
    available=_old((3, 0), 30),
    **EXCHANGE,
)
def shfl(lane: Value, b: Value, c: Value, *, mode: str) -> tuple[Value, Value]:
    """The lane that a is taken from, and whether it is in range, from the own lane, b (lane or distance) and c (segment
    mask in bits 12…8, bound in bits 4…0)."""
    offset, segment, bound = b & 31, (c >> 8) & 31, c & 31
    lowest = lane & segment
    last = lowest | (bound & (segment ^ 31))
    if mode == "up":
        source = lane - offset
        inside = source.bits(_SIGNED).compare("ge", last.bits(_SIGNED))
    else:
        source = (
            lane + offset
            if mode == "down"
            else lane ^ offset
            if mode == "bfly"
            else lowest | (offset & (segment ^ 31))
        )
        inside = source.compare("le", last)
    return select(inside, source, lane), inside


declare(
    "vote.sync.mode.pred d, {!}a, membermask:u32",
    "Whether a holds in all (any) member lanes, or is equal in all (uni).",
    mode="all any uni",
    effect=effects.VOTE,
    unit="alu",
    **SYNC,
)
declare(
    "vote.sync.ballot.b32 d, {!}a:pred, membermask:u32",
    "The mask of member lanes in which a holds.",
    effect=effects.VOTE,
    unit="alu",
    **SYNC,
)
declare(
    "vote.mode.pred d, {!}a",
    "As vote.sync, over the active lanes.",
    mode="all any uni",
    effect=effects.VOTE,
    unit="alu",
    available=_old((1, 2), 12),
    **EXCHANGE,
)
declare(
    "vote.ballot.b32 d, {!}a:pred",
    "As vote.sync, over the active lanes.",
    effect=effects.VOTE,
    unit="alu",
    available=_old((2, 1), 20),
    **EXCHANGE,
)
declare(
    "match.any.sync.type d:u32, a, membermask:u32",
    "The mask of member lanes that have the same a.",
    type="b32 b64",
    effect=effects.MATCH,
    unit="alu",
    **{**SYNC, "target": 70},
)
declare(
    "match.all.sync.type d:u32{|p:pred}, a, membermask:u32",
    "The member mask and true if all member lanes have the same a, else 0 and false.",
    type="b32 b64",
    effect=effects.MATCH,
    unit="alu",
    **{**SYNC, "target": 70},
)


@instruction(
    "redux.sync.op.type d:u32, a:u32, membermask:u32",
    op="and or xor",
    type="b32",
    effect=effects.REDUX,
    unit="alu",
    **{**SYNC, "since": (7, 0), "target": 80},
)
@instruction(
    "redux.sync.op.type d, a, membermask:u32",
    op="add min max",
    type="u32 s32",
    effect=effects.REDUX,
    unit="alu",
    **{**SYNC, "since": (7, 0), "target": 80},
)
def redux(a: Value, b: Value, *, op: str) -> Value:
    """The combination of two lanes' values."""
    if op == "add":
        return a + b
    if op in ("and", "or", "xor"):
        return a & b if op == "and" else a | b if op == "or" else a ^ b
    return minimum(a, b) if op == "min" else maximum(a, b)


@instruction(
    "redux.sync.op{.abs}{.NaN}.f32 d, a, membermask:u32",
    op="min max",
    effect=effects.REDUX,
    unit="alu",
    only="100f",
    **{**SYNC, "since": (8, 6)},
)
def redux_float(a: Value, b: Value, *, op: str, abs: bool | None, NaN: bool | None) -> Value:
    """The combination of two lanes' values (.abs: of their magnitudes)."""
    first, second = (a.apply("abs"), b.apply("abs")) if abs else (a, b)
    return (minimum if op == "min" else maximum)(first, second, nan=bool(NaN))


declare(
    "activemask.b32 d",
    "The mask of active lanes.",
    effect=effects.ACTIVEMASK,
    unit="alu",
    **{**SYNC, "since": (6, 2)},
)
declare(
    "elect.sync d:b32|p:pred%, membermask:u32",
    "The lowest member lane, and whether it is this one.",
    effect=effects.ELECT,
    unit="alu",
    **{**SYNC, "since": (8, 0), "target": 90},
)
