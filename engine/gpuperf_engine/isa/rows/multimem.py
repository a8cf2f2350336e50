"""Multimem addresses (manual: "multimem"), which point to a location on each device of a multicast object.

There is one device here, so any address of global memory is a multicast object with one location: a load returns its value
unchanged, as the reduction of one value, and stores and reductions access that location.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import effects
from ..model import Accepts
from ..table import Modifier, Options, declare, instruction
from .atomic import combine, combine_half

#: requirements of 8-bit types
NEWER: Options = {"since": (8, 6), "only": "100f 110f 120a 121a"}
NARROW = "e5m2 e5m2x2 e5m2x4 e4m3 e4m3x2 e4m3x4"
MULTIMEM: Options = {
    "category": "atomic",
    "unit": "lsu",
    "space": "global",
    "since": (8, 1),
    "target": 90,
}
SCOPES = "cta cluster gpu sys"
#: type → the vectors that make 32, 64 or 128 bits of it
_HALVES = {"f16": "v2 v4 v8", "f16x2": " v2 v4", "bf16": "v2 v4 v8", "bf16x2": " v2 v4"}
_WORDS: dict[str, str] = dict.fromkeys(("b32", "u32", "s32", "b64", "u64", "s64"), "")
_QUARTERS = {"": "v4 v8", "x2": "v2 v4 v8", "x4": " v2 v4"}
VECTORS: dict[str, str] = {
    **_WORDS,
    **_HALVES,
    "f32": " v2 v4",
    "f64": "",
    **{f"{kind}{lanes}": _QUARTERS[lanes] for kind in ("e5m2", "e4m3") for lanes in _QUARTERS},
}


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    kind, vector = str(modifiers["type"]), str(modifiers.get("vec") or "")
    if vector not in VECTORS[kind].split(" "):
        return f"'.{vector}.{kind}' is not a vector here" if vector else f"'.{kind}' needs a vector"
    if modifiers.get("weak") and modifiers.get("sem"):
        return f"'.weak' and '.{modifiers['sem']}' exclude each other"
    return ""


FLOATS = "f32 f64"
HALVES = " ".join(_HALVES)
_VECTOR: Options = {"vec": "v2 v4 v8"}
_LOAD: Options = {
    **MULTIMEM,
    "effect": effects.LOAD,
    "sem": "relaxed acquire",
    "scope": SCOPES,
    "accepts": Accepts(valid=_fits),
}
_LOADED = "The reduction of the values at the locations of a: here of one, the value itself."
_PRECISE: Options = {"requires": {"acc::f32": ((8, 2), 90)}}
for _op, _types, _more in (
    ("and or xor", "b32 b64", {}),
    ("add", "u32 s32 u64", {}),
    ("min max", "u32 s32 u64 s64", {}),
    ("add", FLOATS, _VECTOR),
    ("add", HALVES, {**_VECTOR, "acc": "acc::f32", **_PRECISE}),
    ("min max", HALVES, _VECTOR),
    ("add", NARROW, {**_VECTOR, "acc": "acc::f16", **NEWER}),
    ("min max", NARROW, {**_VECTOR, **NEWER}),
):
    _slots, _d = (
        ("{.acc}" if "acc" in _more else "") + ("{.vec}" if "vec" in _more else ""),
        "*vec" if _more else "",
    )
    declare(
        f"multimem.ld_reduce{{.weak}}{{.sem.scope}}{{.space}}.op{_slots}.type d{_d}, [a]",
        _LOADED,
        op=_op,
        type=_types,
        leads="ld_reduce",
        **{**_LOAD, **_more},
    )
for _types, _more in (
    (" ".join(_WORDS), {}),
    (f"{FLOATS} {HALVES}", _VECTOR),
    (NARROW, {**_VECTOR, **NEWER}),
):
    _slots, _d = ("{.vec}", "*vec") if _more else ("", "")
    declare(
        f"multimem.st{{.weak}}{{.sem.scope}}{{.space}}{_slots}.type [a], b{_d}",
        "Puts b at all locations of a: here at one.",
        type=_types,
        leads="st",
        **{**_LOAD, "effect": effects.STORE, "sem": "relaxed release", **_more},
    )
for _op, _types, _single, _semantics in (
    ("and or xor", "b32 b64", True, combine),
    ("add", "u32 s32 u64 f32 f64 f16x2 bf16x2", True, combine),
    ("min max", "u32 s32 u64 s64", True, combine),
    ("add", "f32", False, combine),
    ("add min max", HALVES, False, combine_half),
):
    _operands = ".op.type [a], b" if _single else ".op.vec.type [a], b*vec"
    instruction(
        f"multimem.red{{.sem.scope}}{{.space}}{_operands}",
        op=_op,
        type=_types,
        leads="red",
        **{**_LOAD, "effect": effects.REDUCTION, "sem": "relaxed release", **({} if _single else _VECTOR)},
    )(_semantics)
_RELEASED: Options = {**MULTIMEM, "scope": "gpu sys", "since": (9, 3), "target": 100}
declare(
    "multimem.st.async.release.scope{.space}.type [a], b",
    "Puts b at all locations of a: here at one.",
    type="b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    leads="async",
    **{**_RELEASED, "effect": effects.STORE},
)
instruction(
    "multimem.red.async.release.scope{.space}.op.type [a], b",
    documentation="The values at all locations of a, here at one, combined with b.",
    op="add",
    type="u32 s32 u64",
    leads="async",
    **{**_RELEASED, "effect": effects.REDUCTION},
)(combine)
