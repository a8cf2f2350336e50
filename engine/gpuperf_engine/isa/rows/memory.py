"""Loads, stores and hints about memory (manual: ld, ldu, st, prefetch, discard, applypriority, createpolicy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import effects
from ..model import Accepts
from ..table import Modifier, Options, declare

LONG_TYPES = "b32 u32 s32 f32 b64 u64 s64 f64"
TYPES = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
SPACES = "global shared shared::cta shared::cluster local param param::entry param::func const"
ORDERED_SPACES = "global shared shared::cta shared::cluster"
VOLATILE_SPACES = f"{ORDERED_SPACES} local"
SCOPES = "cta cluster gpu sys"
EVICTIONS = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
EVICTIONS_L2 = "L2::evict_normal L2::evict_first L2::evict_last"
LOAD: Options = {"category": "load_store", "unit": "lsu", "effect": effects.LOAD}
STORE: Options = {**LOAD, "effect": effects.STORE}
NEEDS = {
    "weak": ((6, 0), 70),
    "cluster": ((7, 8), 90),
    "shared::cta": ((7, 8), 30),
    "shared::cluster": ((7, 8), 90),
    "param::entry": ((8, 3), 0),
    "param::func": ((8, 3), 0),
    "b128": ((8, 3), 70),
    "b128 sys": ((8, 4), 70),
    "L2::cache_hint": ((7, 4), 80),
    "L2::64B": ((7, 4), 75),
    "L2::128B": ((7, 4), 75),
    "L2::256B": ((7, 4), 80),
    "volatile local": ((9, 1), 0),
    "mmio acquire": ((9, 3), 75),
    "mmio release": ((9, 3), 75),
    **{name: ((7, 4), 70) for name in EVICTIONS.split()},
}


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    """Vectors are at most 128 bits long, hints are for global memory."""
    kind, vector = str(modifiers["type"]), modifiers.get("vec")
    if vector and int(kind[1:]) * int(str(vector)[1:]) > 128:
        return f"'.{vector}.{kind}' is longer than 128 bits"
    space = modifiers.get("space") or ("global" if modifiers.get("global") else None)
    for hint in ("hint", "size", "level1"):
        if modifiers.get(hint) and space not in ("global", None):
            return f"'.{modifiers[hint]}' needs global memory or a generic address"
    return ""


def _long(modifiers: Mapping[str, Modifier]) -> str:
    """Accesses of 256 bits."""
    kind, vector = str(modifiers["type"]), str(modifiers["vec"])
    return (
        "" if int(kind[1:]) * int(vector[1:]) == 256 else f"'.{vector}.{kind}' is not an access of 256 bits"
    )


def _line(name: str, text: str, rest: str, operands: str, priorities: bool, **options: Any) -> None:
    """Two rows for one line of the manual: accesses of up to 128 bits, and of 256 bits, which may have an eviction priority of L2."""
    short = {"requires": NEEDS, "type": TYPES, **options, "vec": "v2 v4 v8", "accepts": Accepts(valid=_fits)}
    long = {**short, "vec": "v4 v8", "type": LONG_TYPES, "accepts": Accepts(valid=_long), "target": 100}
    long["since"] = max((8, 8), short.get("since", (1, 0)))
    level1 = level2 = ""
    if priorities:
        level1, level2 = "{.level1}", "{.level2}"
        short["level1"] = long["level1"] = EVICTIONS
        long["level2"] = EVICTIONS_L2
    if "space" in long:
        long["space"] = "global"
    declare(f"{name}{level1}{rest}{{.vec}}.type {operands}", text, **short)
    declare(f"{name}{level1}{level2}{rest}.vec.type {operands}", text, **long)


_LOADED, _LOAD = "The value at address a.", "d+*vec, [a], policy:u64?hint"
_HINTED: Options = {"hint": "L2::cache_hint", "size": "L2::64B L2::128B L2::256B"}
_ORDERED: Options = {"space": ORDERED_SPACES, "scope": SCOPES, "since": (6, 0), "target": 70}
_line(
    "ld{.weak}{.space}.cop", _LOADED, "{.hint}{.size}", _LOAD, False,
    space=SPACES, cop="ca cg cs lu cv", **_HINTED, **LOAD,
)  # fmt: skip
_line("ld{.weak}{.space}", _LOADED, "{.hint}{.size}", _LOAD, True, space=SPACES, **_HINTED, **LOAD)
_line(
    "ld.volatile{.space}", _LOADED, "{.size}", "d+*vec, [a]", False,
    space=VOLATILE_SPACES, size=_HINTED["size"], **LOAD,
)  # fmt: skip
for _sem in ("relaxed", "acquire"):
    _line(f"ld.{_sem}.scope{{.space}}", _LOADED, "{.hint}{.size}", _LOAD, True, **_HINTED, **_ORDERED, **LOAD)
declare(
    "ld.mmio.sem.sys{.space}.type d+*1, [a]",
    _LOADED,
    sem="relaxed acquire",
    type=TYPES,
    space="global",
    requires=NEEDS,
    since=(8, 2),
    target=70,
    **LOAD,
)
_CONSTANT = "The value at global address a, which nothing writes while the kernel runs."
_line(
    "ld.proxy{.space}", _CONSTANT, "", "d+*vec, [a]", False,
    proxy="proxy::readonly", space="global", type=TYPES.replace(" b128", ""), since=(9, 4), target=90, **LOAD,
)  # fmt: skip
_READ_ONLY: Options = {"since": (3, 1), "target": 32, **_HINTED, **LOAD}
_line("ld.global.cop.nc", _CONSTANT, "{.hint}{.size}", _LOAD, False, cop="ca cg cs", **_READ_ONLY)
_line("ld.global.nc", _CONSTANT, "{.hint}{.size}", _LOAD, True, **_READ_ONLY)
declare(
    "ldu{.space}{.vec}.type d+*vec, [a]",
    "The value at address a, the same in all lanes.",
    space="global",
    vec="v2 v4",
    type=TYPES,
    accepts=Accepts(valid=_fits),
    requires=NEEDS,
    since=(2, 0),
    target=20,
    **LOAD,
)

_STORED, _STORE = "Puts b at address a.", "[a], b+*vec, policy:u64?hint"
STORE_SPACES = "global shared shared::cta shared::cluster local param param::func"
_HINT: Options = {"hint": "L2::cache_hint"}
_line(
    "st{.weak}{.space}.cop", _STORED, "{.hint}", _STORE, False,
    space=STORE_SPACES, cop="wb cg cs wt", **_HINT, **STORE,
)  # fmt: skip
_line("st{.weak}{.space}", _STORED, "{.hint}", _STORE, True, space=STORE_SPACES, **_HINT, **STORE)
_line("st.volatile{.space}", _STORED, "", "[a], b+*vec", False, space=VOLATILE_SPACES, **STORE)
for _sem in ("relaxed", "release"):
    _line(f"st.{_sem}.scope{{.space}}", _STORED, "{.hint}", _STORE, True, **_HINT, **_ORDERED, **STORE)
declare(
    "st.mmio.sem.sys{.space}.type [a], b+*1",
    _STORED,
    sem="relaxed release",
    type=TYPES,
    space="global",
    requires=NEEDS,
    since=(8, 2),
    target=70,
    **STORE,
)

LINE = {"size": (lambda size: size == 128, "128, the bytes of a cache line")}
HINT: Options = {"category": "load_store", "unit": "lsu", "effect": effects.HINT}
declare(
    "prefetch{.space}.level [a]",
    "Brings a cache line nearer.",
    space="global local",
    level="L1 L2",
    since=(2, 0),
    target=20,
    **HINT,
)
declare(
    "prefetch{.space}.level [a]",
    "Brings a cache line into L2 with that priority.",
    space="global",
    level="L2::evict_last L2::evict_normal",
    since=(7, 4),
    target=80,
    **HINT,
)
declare(
    "prefetch{.space}.L1::32B.valid_addr [a]",
    "Brings at least 32 bytes nearer.",
    space="global",
    since=(9, 4),
    target=90,
    **HINT,
)
declare(
    "prefetch{.space}.tensormap [a]",
    "Brings a tensor map nearer.",
    space="const param",
    since=(8, 0),
    target=90,
    **HINT,
)
declare("prefetchu.L1 [a]", "Brings a cache line into the uniform cache.", since=(2, 0), target=20, **HINT)
declare(
    "discard{.space}.L2 [a], size:imm",
    "Drops a cache line; its contents become undefined (here they stay).",
    accepts=Accepts(constants=LINE),
    space="global",
    since=(7, 4),
    target=80,
    **HINT,
)
declare(
    "applypriority{.space}.L2::evict_normal [a], size:imm",
    "Sets the eviction priority of a cache line.",
    accepts=Accepts(constants=LINE),
    space="global",
    since=(7, 4),
    target=80,
    **HINT,
)
declare(
    "applypriority.async.bulk{.space}.bulk_group.L2::evict_normal [a], size:u32",
    "Sets the eviction priority of size bytes.",
    accepts=Accepts(constants={"size": (lambda size: size >= 0 and size % 16 == 0, "a multiple of 16")}),
    space="global",
    since=(9, 4),
    only="107f",
    **HINT,
)
