"""Bulk copies and stores that tell an mbarrier (manual: cp.async.bulk, cp.reduce.async.bulk, st.async, red.async, st.bulk). Copies are
complete when they are issued.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..table import Modifier, declare, instruction
from .atomic import combine, combine_half

HOPPER: dict[str, Any] = {"category": "load_store", "unit": "lsu", "since": (8, 0), "target": 90}
BULK: dict[str, Any] = {
    **HOPPER,
    "effect": "bulk_copy",
    "constants": {"size": (lambda size: size >= 0 and size % 16 == 0, "a multiple of 16")},
}
HINTED: dict[str, Any] = {**BULK, "hint": "L2::cache_hint"}
TELLS = "mbarrier::complete_tx::bytes"
OWN, ANY = "shared::cta", "shared::cluster"
_POLICY = ", policy:u64?hint"


def _cluster(modifiers: Mapping[str, Modifier]) -> str:
    """Copies into several CTAs are copies into the cluster."""
    if modifiers.get("multicast") and modifiers.get("dst") != ANY:
        return f"'.{modifiers['multicast']}' needs .{ANY}"
    return ""


declare(
    f"cp.async.bulk.dst.src.{TELLS}{{.multicast}}{{.hint}} [d]:dst, [a]:src, size:u32, [m]:dst, mask:b16?multicast{_POLICY}",
    "Copies size bytes to shared memory (in several blocks of the cluster at once), and tells the mbarrier at m there.",
    dst=f"{ANY} {OWN}",
    src="global",
    multicast="multicast::cluster",
    valid=_cluster,
    **{**HINTED, "requires": {OWN: ((8, 6), 90)}},
)
declare(
    f"cp.async.bulk.dst.src.{TELLS} [d]:dst, [a]:src, size:u32, [m]:dst",
    "Copies size bytes to the shared memory of a block of the cluster, and tells the mbarrier at m there.",
    dst=ANY,
    src=OWN,
    **BULK,
)
declare(
    f"cp.async.bulk.dst.src.bulk_group{{.hint}} [d]:dst, [a]:src, size:u32{_POLICY}",
    "Copies size bytes to global memory.",
    dst="global",
    src=OWN,
    **HINTED,
)
declare(
    f"cp.async.bulk.dst.src.bulk_group{{.hint}}.cp_mask [d]:dst, [a]:src, size:u32{_POLICY}, bytes:b16",
    "Copies those of each 16 bytes to global memory whose bit is set in bytes.",
    dst="global",
    src=OWN,
    **{**HINTED, "since": (8, 6), "target": 100},
)
declare(
    f"cp.async.bulk.prefetch.L2.src{{.hint}} [a]:src, size:u32{_POLICY}",
    "Brings size bytes into L2.",
    src="global",
    **{
        **HINTED,
        "effect": "hint",
        "constants": {
            "size": (
                lambda size: 0 <= size <= 0xFFFF0 and size % 16 == 0,
                "a multiple of 16, at most 1,048,560",
            )
        },
    },
)
_GROUPS: dict[str, Any] = {**HOPPER, "effect": "async_copy"}
declare("cp.async.bulk.commit_group", "Makes a group of this thread's bulk copies so far.", **_GROUPS)
declare(
    "cp.async.bulk.wait_group{.read} n:imm",
    "Waits until at most n groups of bulk copies are pending, or have not read their sources.",
    **_GROUPS,
)

_LOCAL: tuple[tuple[str, str], ...] = (
    ("and or xor", "b32"),
    ("add", "u32 s32 u64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32"),
)
_GLOBAL: tuple[tuple[str, str], ...] = (
    ("and or xor", "b32 b64"),
    ("add", "u32 s32 u64 f32 f64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32 u64 s64"),
)
for _ops, _types in _LOCAL:
    instruction(
        f"cp.reduce.async.bulk.dst.src.{TELLS}.op.type [d]:dst, [a]:src, size:u32, [m]:dst",
        documentation="Combines size bytes with those in the shared memory of a block of the cluster, and tells the mbarrier at m.",
        dst=ANY,
        src=OWN,
        op=_ops,
        type=_types,
        **BULK,
    )(combine)
for _ops, _types in _GLOBAL:
    instruction(
        f"cp.reduce.async.bulk.dst.src.bulk_group{{.hint}}.op.type [d]:dst, [a]:src, size:u32{_POLICY}",
        documentation="Combines size bytes with those in global memory.",
        dst="global",
        src=OWN,
        op=_ops,
        type=_types,
        **HINTED,
    )(combine)
for _ops, _flush in (("add", ".noftz"), ("min max", "")):
    instruction(
        f"cp.reduce.async.bulk.dst.src.bulk_group{{.hint}}.op{_flush}.type [d]:dst, [a]:src, size:u32{_POLICY}",
        documentation="Combines size bytes with those in global memory; subnormals stay.",
        dst="global",
        src=OWN,
        op=_ops,
        type="f16 bf16",
        **HINTED,
    )(combine_half)


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    kind, vector = str(modifiers["type"]), str(modifiers.get("vec") or "v1")
    return "" if int(kind[1:]) * int(vector[1:]) <= 128 else f"'.{vector}.{kind}' is longer than 128 bits"


def _system(modifiers: Mapping[str, Modifier]) -> str:
    """Input and output of devices is ordered for all of the system."""
    if modifiers.get("mmio") and modifiers["scope"] != "sys":
        return f"'.mmio' needs .sys, not .{modifiers['scope']}"
    return ""


_STORE: dict[str, Any] = {
    "category": "load_store",
    "unit": "lsu",
    "effect": "store",
    "since": (8, 1),
    "target": 90,
    "type": "b32 b64 u32 u64 s32 s64 f32 f64",
}
declare(
    f"st.async{{.weak}}{{.space}}.{TELLS}{{.vec}}.type [a], b*vec, [m]",
    "Puts b at address a of a block of the cluster, and tells the mbarrier at m there.",
    space=ANY,
    vec="v2 v4",
    valid=_fits,
    **_STORE,
)
declare(
    "st.async{.mmio}.release.scope{.space}.type [a], b",
    "Puts b at address a.",
    space="global",
    scope="gpu sys",
    valid=_system,
    **{
        **_STORE,
        "since": (8, 7),
        "target": 100,
        "type": "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    },
)
_REDUCE: dict[str, Any] = {
    "category": "atomic",
    "unit": "lsu",
    "effect": "reduction",
    "since": (8, 1),
    "target": 90,
}
for _ops, _types in (
    ("and or xor", "b32"),
    ("add", "u32 s32 u64 s64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32"),
):
    instruction(
        "red.async{.mmio}.release.scope{.space}.op.type [a], b",
        documentation="The value at address a, combined with b.",
        space="global",
        scope="gpu sys",
        valid=_system,
        op=_ops,
        type=_types,
        **{**_REDUCE, "since": (8, 7), "target": 100},
    )(combine)
    instruction(
        f"red.async.relaxed.cluster{{.space}}.{TELLS}.op.type [a], b, [m]",
        documentation="The value at address a of a block of the cluster, combined with b; tells the mbarrier at m there.",
        space=ANY,
        op=_ops,
        type=_types,
        **_REDUCE,
    )(combine)
declare(
    "st.bulk{.weak}{.space} [a], bytes:u64, value:imm",
    "Fills so many bytes of shared memory with zeros.",
    space=OWN,
    **{
        **BULK,
        "since": (8, 6),
        "target": 100,
        "constants": {
            "bytes": (lambda size: size >= 0 and size % 8 == 0, "a multiple of 8"),
            "value": (lambda value: value == 0, "0"),
        },
    },
)
