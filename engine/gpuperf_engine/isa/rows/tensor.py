"""Tensor copies (manual: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, cp.async.bulk.prefetch.tensor, tensormap.replace).
Complete when they are issued; ``emulate.tensor_maps`` says what tensor maps are.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..table import Modifier, declare
from ..tensor_maps import FIELDS, Field
from ..words import Value
from .atomic import combine

TELLS = "mbarrier::complete_tx::bytes"
OWN, ANY = "shared::cta", "shared::cluster"
POLICY = ", policy:u64?hint"
COPY: dict[str, Any] = {
    "category": "load_store",
    "unit": "lsu",
    "effect": "bulk_copy",
    "since": (8, 0),
    "target": 90,
    "hint": "L2::cache_hint",
}
TILED: dict[str, Any] = {"dim": "1d 2d 3d 4d 5d", "mode": "tile"}
LOAD: dict[str, Any] = {
    **COPY,
    "dst": f"{ANY} {OWN}",
    "src": "global",
    "multicast": "multicast::cluster",
    "requires": {OWN: ((8, 6), 90)},
}
STORE: dict[str, Any] = {**COPY, "dst": "global", "src": OWN}
_BOX = "Copies a box of a tensor to shared memory, and tells the mbarrier at m there"
#: the families with pairs of CTAs and tensor memory, which no other target has (manual, "Target ISA Notes")
DATACENTRE = "100f 110f"


def _cluster(modifiers: Mapping[str, Modifier]) -> str:
    """Copies into several CTAs are copies into the cluster."""
    if modifiers.get("multicast") and modifiers.get("dst") != ANY:
        return f"'.{modifiers['multicast']}' needs .{ANY}"
    return ""


def _load(slot: str, coordinates: str, more: str, text: str, **options: Any) -> None:
    merged = {**LOAD, **options}
    several, mask = "{.multicast}", ", mask:u16?multicast"
    if merged["dst"] == OWN:
        several = mask = ""
        del merged["multicast"]
    for group in ("", ".group"):
        if group:
            merged |= {"group": "cta_group::1 cta_group::2", "since": (8, 6), "only": DATACENTRE}
        declare(
            f"cp.async.bulk.tensor.dim.dst.src{slot}.{TELLS}{several}{group}{{.hint}} "
            f"[d]:dst, [t, c:s32*{coordinates}], [m]:dst{more}{mask}{POLICY}",
            text,
            valid=_cluster,
            **merged,
        )


_load("{.mode}", "dim", "", f"{_BOX}.", **TILED)
for _space, _only in ((ANY, DATACENTRE), (OWN, "")):
    _load(
        ".mode",
        "5",
        "",
        "Copies four rows of a tensor to shared memory, and tells the mbarrier at m there.",
        dim="2d",
        mode="tile::gather4",
        since=(8, 6),
        target=100,
        dst=_space,
        only=_only,
    )
for _dim, _offsets in (("3d", 1), ("4d", 2), ("5d", 3)):
    _load(
        ".mode",
        "dim",
        f", offsets:u16*{_offsets}",
        f"{_BOX}: pixels of a convolution.",
        dim=_dim,
        mode="im2col",
    )

WIDE: dict[str, Any] = {"dim": "3d 4d 5d", "since": (8, 6), "target": 100}
for _mode, _space, _only in (
    ("im2col::w", ANY, DATACENTRE),
    ("im2col::w", OWN, ""),
    ("im2col::w::128", ANY, DATACENTRE),
    ("im2col::w::128", OWN, DATACENTRE),
):
    _load(
        ".mode",
        "dim",
        ", offsets:u16*2",
        f"{_BOX}: pixels of a convolution along W, with those of the halo.",
        **{**WIDE, "mode": _mode, "dst": _space, "only": _only},
    )

for _mode, _coordinates, _options in (
    ("{.mode}", "dim", TILED),
    (".mode", "5", {"dim": "2d", "mode": "tile::scatter4", "since": (8, 6), "only": DATACENTRE}),
    (".mode", "dim", {"dim": "3d 4d 5d", "mode": "im2col_no_offs"}),
):
    declare(
        f"cp.async.bulk.tensor.dim.dst.src{_mode}.bulk_group{{.hint}} [t, c:s32*{_coordinates}], [a]:src{POLICY}",
        "Copies from shared memory to a tensor what of it lies inside.",
        **{**STORE, **_options},
    )


def combine_elements(old: Value, new: Value, *, op: str, element: str) -> Value:
    """Elements of a tensor combined; sums flush subnormals only if the map's type says so."""
    return combine(old, new, op=op, space="global" if element.endswith(".ftz") else "shared")


for _mode, _options in (("{.mode}", TILED), (".mode", {"dim": "3d 4d 5d", "mode": "im2col_no_offs"})):
    declare(
        f"cp.reduce.async.bulk.tensor.dim.dst.src.op{_mode}.bulk_group{{.hint}} [t, c:s32*dim], [a]:src{POLICY}",
        "Combines elements of a tensor with those in shared memory.",
        op="add min max inc dec and or xor",
        **{**STORE, **_options},
    )
for _mode, _coordinates, _more, _options in (
    ("{.mode}", "dim", "", TILED),
    (".mode", "5", "", {"dim": "2d", "mode": "tile::gather4", "since": (8, 6), "only": DATACENTRE}),
    *((".mode", "dim", f", offsets:u16*{count - 2}", {"dim": f"{count}d", "mode": "im2col"}) for count in (3, 4, 5)),
    (".mode", "dim", ", offsets:u16*2", {**WIDE, "mode": "im2col::w im2col::w::128", "only": DATACENTRE}),
):  # fmt: skip
    declare(
        f"cp.async.bulk.prefetch.tensor.dim.L2.src{_mode}{{.hint}} [t, c:s32*{_coordinates}]{_more}{POLICY}",
        "Brings a box of a tensor into L2.",
        src="global",
        **{**COPY, "effect": "hint", **_options},
    )

REPLACE: dict[str, Any] = {
    "category": "load_store",
    "unit": "lsu",
    "effect": "tensor_map",
    "since": (8, 3),
    "target": 90,
    "variant": "a",
    "space": f"global {OWN}",
}
_CHANGED = "Changes a field of the tensor map at address a."


def _within(field: Field, value: int) -> bool:
    return field.low <= value <= field.high


for _field, _type in (("global_address", "b64"), ("rank", "b32")):
    declare(
        f"tensormap.replace.mode.field{{.space}}.b1024.{_type} [a], value:{_type}",
        _CHANGED,
        mode="tile",
        field=_field,
        **REPLACE,
    )
for _field, _type in (("box_dim global_dim element_stride", "u32"), ("global_stride", "b64")):
    declare(
        f"tensormap.replace.mode.field{{.space}}.b1024.b{_type[1:]} [a], ordinal:imm, value:{_type}",
        _CHANGED,
        constants={"ordinal": (lambda ordinal: 0 <= ordinal <= 4, "0 to 4")},
        mode="tile",
        field=_field,
        **REPLACE,
    )
#: numbers of the values of a field (manual: "tensormap.replace")
_CHOICES = {"elemtype": 16, "interleave_layout": 3, "swizzle_mode": 5, "swizzle_atomicity": 4, "fill_mode": 2}
_KINDS = ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
declare(
    "tensormap.replace.mode.field{.space}.b1024.b32 [a], value:imm",
    _CHANGED,
    constants={
        f"value {field}": (partial(_within, FIELDS[field]), f"0 to {FIELDS[field].high}") for field in _KINDS
    },
    mode="tile",
    field=" ".join(_KINDS),
    **{**REPLACE, "requires": {"swizzle_atomicity": ((8, 6), 100)}},
)
declare(
    "tensormap.cp_fenceproxy.dst.src.tensormap::generic.release.scope.sync.aligned [d]:dst, [a]:src, size:imm",
    "Copies a tensor map to global memory, once for the warp, and orders it.",
    constants={"size": (lambda size: size == 128, "128, the bytes of a tensor map")},
    category="load_store",
    unit="lsu",
    effect="bulk_copy",
    since=(8, 3),
    target=90,
    dst="global",
    src="shared::cta",
    scope="cta cluster gpu sys",
)
