"""Loads, stores and hints about memory (manual: ld, ldu, st, prefetch, discard, applypriority, createpolicy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..table import Modifier, declare

TYPES = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
VECTORS = "v2 v4 v8"
SPACES = "global shared shared::cta shared::cluster local param param::entry param::func const"
ORDERED_SPACES = "global shared shared::cta shared::cluster"
SCOPES = "cta cluster gpu sys"
EVICTIONS = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
EVICTIONS_L2 = "L2::evict_normal L2::evict_first L2::evict_last"
LOAD: dict[str, Any] = {"category": "load_store", "unit": "lsu", "effect": "load"}
STORE: dict[str, Any] = {**LOAD, "effect": "store"}
HINTS: dict[str, Any] = {"level1": EVICTIONS, "level2": EVICTIONS_L2, "hint": "L2::cache_hint"}
PREFETCHED: dict[str, Any] = {"size": "L2::64B L2::128B L2::256B"}
ACCESS: dict[str, Any] = {"vec": VECTORS, "type": TYPES}
NEEDS = {
    "weak": ((6, 0), 70), "cluster": ((7, 8), 90), "shared::cta": ((7, 8), 30), "shared::cluster": ((7, 8), 90),
    "param::entry": ((8, 3), 0), "param::func": ((8, 3), 0), "b128": ((8, 3), 70), "L2::cache_hint": ((7, 4), 80),
    "L2::64B": ((7, 4), 75), "L2::128B": ((7, 4), 75), "L2::256B": ((7, 4), 80), "v8": ((8, 8), 100),
    **{name: ((7, 4), 70) for name in EVICTIONS.split()},
    **{name: ((8, 8), 100) for name in EVICTIONS_L2.split()},
}  # fmt: skip


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    """Vectors are at most 128 bits long (256 in global memory), hints are for global memory."""
    kind, vector = str(modifiers["type"]), modifiers.get("vec")
    bits = int(kind[1:]) * int(str(vector or "v1")[1:])
    space = modifiers.get("space") or ("global" if modifiers.get("global") else None)
    if vector and (kind == "b128" or bits > 256 or (vector == "v8" and kind[1:] != "32")):
        return f"'.{vector}.{kind}' is longer than any access"
    if bits == 256 and space not in ("global", None):
        return "accesses of 256 bits are to global memory"
    for hint in ("hint", "size", "level1", "level2"):
        if modifiers.get(hint) and space not in ("global", None):
            return f"'.{modifiers[hint]}' needs global memory or a generic address"
    return ""


_policy = "{, policy:b64?hint}"
_levels = "{.level1}{.level2}{.hint}"


def _line(syntax: str, text: str, *options: dict[str, Any], **more: Any) -> None:
    merged: dict[str, Any] = {}
    for part in options:
        merged.update(part)
    declare(syntax, text, **{**merged, "requires": NEEDS, "valid": _fits, **more})


_LOADED = "The value at address a."
_line(f"ld{{.weak}}{{.space}}{{.cop}}{_levels}{{.size}}{{.vec}}.type d+*vec, [a]{_policy}", _LOADED, LOAD, HINTS, PREFETCHED, ACCESS,
      {"space": SPACES, "cop": "ca cg cs lu cv"})  # fmt: skip
_line("ld.volatile{.space}{.size}{.vec}.type d+*vec, [a]", _LOADED, LOAD, PREFETCHED, ACCESS, {"space": SPACES})
for _sem in ("relaxed", "acquire"):
    _line(f"ld.{_sem}.scope{{.space}}{_levels}{{.size}}{{.vec}}.type d+*vec, [a]{_policy}", _LOADED, LOAD, HINTS, PREFETCHED, ACCESS,
          {"space": ORDERED_SPACES, "scope": SCOPES}, since=(6, 0), target=70)  # fmt: skip
_line("ld.mmio.relaxed.sys{.space}.type d+, [a]", _LOADED, LOAD, {"type": TYPES, "space": "global"}, since=(8, 2), target=70)
_line(f"ld.global{{.cop}}.nc{_levels}{{.size}}{{.vec}}.type d+*vec, [a]{_policy}",
      "The value at global address a, which nothing writes while the kernel runs.", LOAD, HINTS, PREFETCHED, ACCESS,
      {"cop": "ca cg cs"}, since=(3, 1), target=32)  # fmt: skip
_line("ldu{.space}{.vec}.type d+*vec, [a]", "The value at address a, the same in all lanes.", LOAD, ACCESS, {"space": "global"},
      since=(2, 0), target=20)  # fmt: skip

_STORED = "Puts b at address a."
_line(f"st{{.weak}}{{.space}}{{.cop}}{_levels}{{.vec}}.type [a], b+*vec{_policy}", _STORED, STORE, HINTS, ACCESS,
      {"space": SPACES.replace(" const", ""), "cop": "wb cg cs wt"})  # fmt: skip
_line("st.volatile{.space}{.vec}.type [a], b+*vec", _STORED, STORE, ACCESS, {"space": SPACES.replace(" const", "")})
for _sem in ("relaxed", "release"):
    _line(f"st.{_sem}.scope{{.space}}{_levels}{{.vec}}.type [a], b+*vec{_policy}", _STORED, STORE, HINTS, ACCESS,
          {"space": ORDERED_SPACES, "scope": SCOPES}, since=(6, 0), target=70)  # fmt: skip
_line("st.mmio.relaxed.sys{.space}.type [a], b+", _STORED, STORE, {"type": TYPES, "space": "global"}, since=(8, 2), target=70)

HINT: dict[str, Any] = {"category": "load_store", "unit": "lsu", "effect": "hint"}
declare("prefetch{.space}.level [a]", "Brings a cache line nearer.", space="global local", level="L1 L2", since=(2, 0), target=20, **HINT)
declare(
    "prefetch.global.level [a]", "Brings a cache line into L2 with that priority.", level="L2::evict_last L2::evict_normal",
    since=(7, 4), target=80, **HINT,
)  # fmt: skip
declare("prefetch{.space}.tensormap [a]", "Brings a tensor map nearer.", space="const param", since=(8, 0), target=90, **HINT)
declare("prefetchu.L1 [a]", "Brings a cache line into the uniform cache.", since=(2, 0), target=20, **HINT)
declare("discard{.space}.L2 [a], size:imm", "Drops a cache line; its contents become undefined.", space="global", since=(7, 4), target=80, **HINT)
declare(
    "applypriority{.space}.L2::evict_normal [a], size:imm", "Sets the eviction priority of a cache line.", space="global",
    since=(7, 4), target=80, **HINT,
)  # fmt: skip

POLICY: dict[str, Any] = {
    "category": "misc", "unit": "alu", "effect": "hint", "since": (7, 4), "target": 80,
    "primary": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged", "secondary": "L2::evict_first L2::evict_unchanged",
}  # fmt: skip
declare("createpolicy.fractional.primary{.secondary}.b64 d{, fraction:f32}", "A cache policy; its bits mean nothing here.", **POLICY)
declare(
    "createpolicy.range{.space}.primary{.secondary}.b64 d, [a], primary_size:u32, total_size:u32",
    "A cache policy; its bits mean nothing here.", space="global", **POLICY,
)  # fmt: skip
declare(
    "createpolicy.cvt.L2.b64 d, a", "A cache policy; its bits mean nothing here.", category="misc", unit="alu", effect="hint",
    since=(7, 4), target=80,
)  # fmt: skip
