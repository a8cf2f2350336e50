"""Tensor copies (manual: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, cp.async.bulk.prefetch.tensor, tensormap.replace).
Copies complete when they are issued; ``memory.tensor_maps`` describes tensor maps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from .. import effects
from ..availability import Available
from ..model import Accepts
from ..primitives import Value
from ..table import Modifier, Options, declare
from ..tensor_maps import FIELDS, Field
from .atomic import combine
from .bulk import REPORTS, RUBIN

TELLS = "mbarrier::complete_tx::bytes"
OWN, ANY = "shared::cta", "shared::cluster"
POLICY = ", policy:u64?hint"
COPY: Options = {
    "category": "load_store",
    "unit": "lsu",
    "effect": effects.BULK_COPY,
    "since": (8, 0),
    "target": 90,
    "hint": "L2::cache_hint",
}
TILED: Options = {"dim": "1d 2d 3d 4d 5d", "mode": "tile"}
LOAD: Options = {
    **COPY,
    "dst": f"{ANY} {OWN}",
    "src": "global",
    "multicast": "multicast::cluster multicast::cluster::16b",
    "requires": {OWN: ((8, 6), 90), "multicast::cluster::16b": ((9, 4), 90)},
}
STORE: Options = {**COPY, "dst": "global", "src": OWN}
#: Address, sizes and strides from operands instead of the tensor map (manual: "Overriding tensor property value").
BASE: Options = {**RUBIN, "base": "override::global_address"}
_AT = ", base:u64"
#: What follows the opcode, the operands, and the numbers of axes.
ATTRIBUTES = tuple(
    (
        ".base.attributes",
        f"{_AT}, sizes:{kind}*dim{more}",
        {**BASE, "attributes": f"override::{name}", "dim": dims},
    )
    for kind in ("b8", "b16")
    for name, dims, more in (
        ("global_dim", "1d", ""),
        ("global_dim_stride", "2d 3d 4d 5d", ", lower:b32*dim-1, upper:b16"),
    )
)
_BOX = "Copies a box of a tensor to shared memory, and signals the mbarrier at m there"
#: the only families with CTA pairs and tensor memory (manual, "Target ISA Notes")
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
            accepts=Accepts(valid=_cluster),
            **merged,
        )


def _load_newer(slot: str, coordinates: str, more: str, text: str, **options: Any) -> None:
    """Rows of newer versions, with reports, masks of 32 bits, and operands that override the map."""
    merged = {
        **LOAD,
        **RUBIN,
        "group": "cta_group::1 cta_group::2",
        "report": REPORTS,
        "base": BASE["base"],
        **options,
    }
    for report, multicast, base in (
        ("{.report}", ".multicast::cluster::32b", "{.base}"),
        (".report", "{.multicast}", "{.base}"),
        ("", "{.multicast}", ".base"),
    ):
        mask = "mask:u16?multicast" if "}" in multicast else "mask:u32"
        declare(
            f"cp.async.bulk.tensor.dim.dst.src{slot}.{TELLS}{report}{multicast}{{.group}}{{.hint}}{base} "
            f"[d]:dst, [t, base:u64?base, c:s32*{coordinates}], [m]:dst{more}, {mask}{POLICY}",
            text,
            accepts=Accepts(valid=_cluster if "}" in multicast else _wide),
            **_written(merged, report + multicast + base),
        )


def _written(options: Options, opcode: str) -> Options:
    """The options without slots that the opcode does not have."""
    missing = [name for name in ("multicast", "report", "base") if not re.search(rf"\.{name}\b(?!:)", opcode)]
    return {name: value for name, value in options.items() if name not in missing}


def _wide(modifiers: Mapping[str, Modifier]) -> str:
    return "" if modifiers.get("dst") == ANY else f"'.multicast::cluster::32b' needs .{ANY}"


def _load_attributes() -> None:
    for end, operands, options in ATTRIBUTES:
        for multicast, mask in (("", ""), (".multicast::cluster::32b", ", mask:u32")):
            declare(
                f"cp.async.bulk.tensor.dim.dst.src{{.mode}}.{TELLS}{{.report}}{multicast}{{.group}}{{.hint}}{end} "
                f"[d]:dst, [t{operands}, c:s32*dim], [m]:dst{mask}{POLICY}",
                f"{_BOX}.",
                accepts=Accepts(valid=_wide if multicast else None),
                **_written(
                    {
                        **LOAD,
                        "mode": "tile",
                        "group": "cta_group::1 cta_group::2",
                        "report": REPORTS,
                        **options,
                    },
                    ".report.base",
                ),
            )


_load_attributes()
_load("{.mode}", "dim", "", f"{_BOX}.", **TILED)
_load_newer("{.mode}", "dim", "", f"{_BOX}.", **TILED)
_load_newer(
    ".mode",
    "5",
    "",
    "Copies four rows of a tensor to shared memory, and signals the mbarrier at m there.",
    dim="2d",
    mode="tile::gather4",
)
for _space, _only in ((ANY, DATACENTRE), (OWN, "")):
    _load(
        ".mode",
        "5",
        "",
        "Copies four rows of a tensor to shared memory, and signals the mbarrier at m there.",
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
    _load_newer(
        ".mode",
        "dim",
        f", offsets:u16*{_offsets}",
        f"{_BOX}: pixels of a convolution.",
        dim=_dim,
        mode="im2col",
    )
_load_newer(
    ".mode",
    "dim",
    ", offsets:u16*2",
    f"{_BOX}: pixels of a convolution along W, with those of the halo.",
    dim="3d 4d 5d",
    mode="im2col::w im2col::w::128",
)

WIDE: Options = {"dim": "3d 4d 5d", "since": (8, 6), "target": 100}
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

_STORED = "Copies from shared memory to a tensor what of it lies inside."
for _mode, _coordinates, _options in (
    ("{.mode}", "dim", TILED),
    (".mode", "5", {"dim": "2d", "mode": "tile::scatter4", "since": (8, 6), "only": DATACENTRE}),
    (".mode", "dim", {"dim": "3d 4d 5d", "mode": "im2col_no_offs"}),
):
    declare(
        f"cp.async.bulk.tensor.dim.dst.src{_mode}.bulk_group{{.hint}} [t, c:s32*{_coordinates}], [a]:src{POLICY}",
        _STORED,
        **{**STORE, **_options},
    )
for _mode, _coordinates, _more, _at, _options in (
    ("{.mode}", "dim", ".base", _AT, {**TILED, **BASE}),
    (".mode", "5", ".base", _AT, {"dim": "2d", "mode": "tile::scatter4", **BASE}),
    (".mode", "dim", ".base", _AT, {"dim": "3d 4d 5d", "mode": "im2col_no_offs", **BASE}),
    (".mode", "dim", "{.base}", ", base:u64?base", {"dim": "3d 4d 5d", "mode": "im2col_no_offs::w", **BASE}),
    *(
        ("{.mode}", "dim", end, operands, {"mode": "tile", **options})
        for end, operands, options in ATTRIBUTES
    ),
):
    declare(
        f"cp.async.bulk.tensor.dim.dst.src{_mode}.bulk_group{{.hint}}{_more} [t{_at}, c:s32*{_coordinates}], [a]:src{POLICY}",
        _STORED,
        **{**STORE, **_options},
    )
    if _coordinates == "dim":
        declare(
            f"cp.reduce.async.bulk.tensor.dim.dst.src.op{_mode}.bulk_group{{.hint}}{_more} [t{_at}, c:s32*dim], [a]:src{POLICY}",
            "Combines elements of a tensor with those in shared memory.",
            op="add min max inc dec and or xor",
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
        **{**COPY, "effect": effects.HINT, **_options},
    )
for _mode, _coordinates, _more, _options in (
    ("{.mode}", "dim", "", TILED),
    (".mode", "5", "", {"dim": "2d", "mode": "tile::gather4"}),
    *((".mode", "dim", f", offsets:u16*{count - 2}", {"dim": f"{count}d", "mode": "im2col"}) for count in (3, 4, 5)),
    (".mode", "dim", ", offsets:u16*2", {"dim": "3d 4d 5d", "mode": "im2col::w im2col::w::128"}),
):  # fmt: skip
    for _end, _at, _bound in (
        ("", "", {}),
        (".base", _AT, BASE),
        *(ATTRIBUTES if _options is TILED else ()),
    ):
        _newer: Options = {**COPY, "effect": effects.HINT, **_options, **RUBIN, **_bound}
        if _end != "" and _end != ".base":
            _newer["mode"] = "tile"
        _unhinted = {name: value for name, value in _newer.items() if name != "hint"}
        for _before, _policy in ((".L2::evict_last", ""), ("{.hint}", POLICY)):
            if _end or not _policy:
                declare(
                    f"cp.async.bulk.prefetch.tensor.dim.L2.src{_mode}{_before}{_end} "
                    f"[t{_at}, c:s32*{_coordinates}]{_more}{_policy}",
                    "Brings a box of a tensor into L2.",
                    src="global",
                    **(_newer if _policy else _unhinted),
                )
        declare(
            f"applypriority.async.bulk.tensor.dim{{.src}}.bulk_group{_mode}.L2::evict_normal{_end} "
            f"[t{_at}, c:s32*{_coordinates}]{_more}",
            "Sets the eviction priority of a box of a tensor.",
            src="global",
            **_unhinted,
        )

_REPLACED = Available(since=(8, 3), target=90, variant="a")
REPLACE: Options = {
    "category": "load_store",
    "unit": "lsu",
    "effect": effects.TENSOR_MAP,
    "available": _REPLACED,
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
        accepts=Accepts(constants={"ordinal": (lambda ordinal: 0 <= ordinal <= 4, "0 to 4")}),
        mode="tile",
        field=_field,
        **REPLACE,
    )
_KINDS = ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
declare(
    "tensormap.replace.mode.field{.space}.b1024.b32 [a], value:imm",
    _CHANGED,
    accepts=Accepts(
        constants={
            f"value {field}": (partial(_within, FIELDS[field]), f"0 to {FIELDS[field].high}")
            for field in _KINDS
        }
    ),
    mode="tile",
    field=" ".join(_KINDS),
    **{**REPLACE, "available": replace(_REPLACED, requires={"swizzle_atomicity": ((8, 6), 100)})},
)
declare(
    "tensormap.cp_fenceproxy.dst.src.tensormap::generic.release.scope.sync.aligned [d]:dst, [a]:src, size:imm",
    "Copies a tensor map to global memory, once for the warp, and orders it.",
    accepts=Accepts(constants={"size": (lambda size: size == 128, "128, the bytes of a tensor map")}),
    category="load_store",
    unit="lsu",
    effect=effects.BULK_COPY,
    since=(8, 3),
    target=90,
    dst="global",
    src="shared::cta",
    scope="cta cluster gpu sys",
)
