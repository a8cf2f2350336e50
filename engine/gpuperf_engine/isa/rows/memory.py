"""Loads, stores and hints about memory (manual: ld, ldu, st, prefetch, discard …)."""

from __future__ import annotations

from ..table import declare

TYPES = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
VECTORS = "v2 v4"
SPACES = "const global local param shared param::entry param::func shared::cta shared::cluster"
SCOPES = "cta cluster gpu sys"
CACHE = "ca cg cs lu cv"
STORE_CACHE = "wb cg cs wt"
EVICTIONS = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
PREFETCH = "L2::64B L2::128B L2::256B"
MEMORY = {"category": "load_store", "unit": "lsu"}
NEEDS = {
    "weak": ((6, 0), 0),
    "relaxed": ((6, 0), 70),
    "acquire": ((6, 0), 70),
    "release": ((6, 0), 70),
    "cluster": ((7, 8), 90),
    "shared::cta": ((7, 8), 30),
    "shared::cluster": ((7, 8), 90),
    "param::entry": ((8, 3), 0),
    "param::func": ((8, 3), 0),
    "L1_eviction": ((7, 4), 70),
}

declare(
    "ld{.weak}{.space}{.cop}{.level1}{.hint}{.prefetch}{.vec}.type d+*vec, [a]{, policy:b64?hint}",
    "The value at address a.",
    effect="load", space=SPACES, cop=CACHE, level1=EVICTIONS, hint="L2::cache_hint", prefetch=PREFETCH, vec=VECTORS, type=TYPES,
    **MEMORY,
)  # fmt: skip
declare(
    "st{.weak}{.space}{.cop}{.level1}{.hint}{.vec}.type [a], b+*vec{, policy:b64?hint}",
    "Puts b at address a.",
    effect="store", space=SPACES, cop=STORE_CACHE, level1=EVICTIONS, hint="L2::cache_hint", vec=VECTORS, type=TYPES,
    **MEMORY,
)  # fmt: skip
declare(
    "ld.global{.cop}.nc{.level1}{.hint}{.prefetch}{.vec}.type d+*vec, [a]{, policy:b64?hint}",
    "The value at global address a, which nothing writes while the kernel runs.",
    effect="load", cop="ca cg cs", level1=EVICTIONS, hint="L2::cache_hint", prefetch=PREFETCH, vec=VECTORS, type=TYPES,
    since=(3, 1), target=32, **MEMORY,
)  # fmt: skip
