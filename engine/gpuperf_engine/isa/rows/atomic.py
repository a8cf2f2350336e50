"""Atomic operations (manual: atom, red). The semantics are the value to store, from the old one and the operands."""

from __future__ import annotations

from collections.abc import Mapping

from .. import effects
from ..model import Accepts
from ..primitives import Value, maximum, minimum, select
from ..table import Modifier, Options, instruction

ATOM: Options = {
    "category": "atomic",
    "unit": "lsu",
    "effect": effects.ATOMIC,
    "sem": "relaxed acquire release acq_rel",
    "scope": "cta cluster gpu sys",
    "space": "global shared shared::cta shared::cluster",
}
RED: Options = {**ATOM, "effect": effects.REDUCTION, "sem": "relaxed release"}
NEEDS = {
    "relaxed": ((6, 0), 70),
    "acquire": ((6, 0), 70),
    "release": ((6, 0), 70),
    "acq_rel": ((6, 0), 70),
    "cta": ((5, 0), 60),
    "gpu": ((5, 0), 60),
    "sys": ((5, 0), 60),
    "cluster": ((7, 8), 90),
    "shared::cta": ((7, 8), 30),
    "shared::cluster": ((7, 8), 90),
}
HINT = {"L2::cache_hint": ((7, 4), 80)}
PREFIX = "{.sem}{.scope}{.space}"
#: Operation → types, extra options. Every line of the manual's table of scalar operations.
OPERATIONS: tuple[tuple[str, str, Options], ...] = (
    ("and or xor", "b32", {}),
    ("and or xor", "b64", {"target": 32}),
    ("add", "u32 s32", {}),
    ("add", "u64", {"target": 12}),
    ("add", "f32", {"target": 20, "flop": "add"}),
    ("add", "f64", {"since": (5, 0), "target": 60, "flop": "add"}),
    ("inc dec", "u32", {}),
    ("min max", "u32 s32", {}),
    ("min max", "u64 s64", {"target": 32}),
)
EXCHANGES: tuple[tuple[str, Options], ...] = (
    ("b32", {}),
    ("b64", {"target": 12}),
    ("b128", {"since": (8, 3), "target": 90, "requires": {**NEEDS, **HINT, "sys": ((8, 4), 90)}}),
)
SWAPS: tuple[tuple[str, Options], ...] = (
    ("b16", {"since": (6, 3), "target": 70}),
    *EXCHANGES,
)
HALVES: tuple[tuple[str, Options], ...] = (
    ("f16x2", {"since": (6, 2), "target": 60}),
    ("f16", {"since": (6, 3), "target": 70}),
    ("bf16 bf16x2", {"since": (7, 8), "target": 90}),
)


def _hinted(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers.get("hint") and str(modifiers.get("space") or "global") != "global":
        return f"'.{modifiers['hint']}' needs global memory or a generic address"
    return ""


def combine(old: Value, b: Value, *, op: str, space: str | None) -> Value:
    """The old value combined with b. The single-precision sum in global memory flushes subnormals."""
    if op == "add":
        if old.type.name != "f32" or (space or "global") != "global":
            return old + b
        return (old.flush() + b.flush()).flush()
    if op in ("and", "or", "xor"):
        return old & b if op == "and" else old | b if op == "or" else old ^ b
    if op == "inc":
        return select(old.compare("ge", b), old.constant(0, old.type), old + 1)
    if op == "dec":
        return select(old.compare("eq", 0) | old.compare("gt", b), b, old - 1)
    return minimum(old, b) if op == "min" else maximum(old, b)


def combine_half(old: Value, b: Value, *, op: str) -> Value:
    """The old value combined with b; subnormals stay."""
    return old + b if op == "add" else minimum(old, b) if op == "min" else maximum(old, b)


def add_single(old: Value, b: Value) -> Value:
    """The sum of the old value and b, subnormals flushed."""
    return (old.flush() + b.flush()).flush()


def exchange(old: Value, b: Value) -> Value:
    """b."""
    return b


def swap(old: Value, b: Value, c: Value) -> Value:
    """c if the old value is b, else the old value."""
    return select(old.compare("eq", b), c, old)


def _rows(name: str, destination: str, family: Options) -> None:
    scalar = {
        **family,
        "requires": {**NEEDS, **HINT},
        "hint": "L2::cache_hint",
        "accepts": Accepts(valid=_hinted),
    }
    policy = ", policy:u64?hint"
    for op, types, options in OPERATIONS:
        instruction(
            f"{name}{PREFIX}.op{{.hint}}.type {destination}[a], b{policy}",
            op=op,
            type=types,
            **{**scalar, **options},
        )(combine)
    for types, options in HALVES:
        instruction(
            f"{name}{PREFIX}.op.noftz{{.hint}}.type {destination}[a], b{policy}",
            op="add",
            type=types,
            flop="add",
            **{**scalar, **options},
        )(combine_half)
    vectors = {**scalar, "space": "global", "since": (8, 1), "target": 90}
    starred = destination.replace("d", "d*vec")
    instruction(
        f"{name}{PREFIX}.add{{.hint}}.vec.f32 {starred}[a], b*vec{policy}", vec="v2 v4", flop="add", **vectors
    )(add_single)
    kept = {"flop": "add", "since": (9, 4), "target": 90}
    instruction(
        f"{name}{PREFIX}.op.noftz{{.hint}}.type {destination}[a], b{policy}",
        op="add",
        type="f32",
        **{**scalar, **kept},
    )(combine_half)
    instruction(
        f"{name}{PREFIX}.op.noftz{{.hint}}.vec.type {starred}[a], b*vec{policy}",
        op="add",
        vec="v2 v4",
        type="f32",
        **{**vectors, **kept},
    )(combine_half)
    for vector, types in (("v2 v4 v8", "f16 bf16"), ("v2 v4", "f16x2 bf16x2")):
        instruction(
            f"{name}{PREFIX}.op.noftz{{.hint}}.vec.type {starred}[a], b*vec{policy}",
            op="add min max",
            vec=vector,
            type=types,
            **vectors,
        )(combine_half)


_rows("atom", "d, ", ATOM)
_rows("red", "", RED)
_SCALAR_ATOM = {**ATOM, "requires": NEEDS}
for _type, _options in EXCHANGES:
    instruction(
        f"atom{PREFIX}.exch{{.hint}}.{_type} d, [a], b, policy:u64?hint",
        hint="L2::cache_hint",
        accepts=Accepts(valid=_hinted),
        **{**_SCALAR_ATOM, "requires": {**NEEDS, **HINT}, **_options},
    )(exchange)
for _type, _options in SWAPS:
    instruction(f"atom{PREFIX}.cas.{_type} d, [a], b, c", **{**_SCALAR_ATOM, **_options})(swap)
