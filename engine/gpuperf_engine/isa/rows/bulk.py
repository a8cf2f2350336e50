"""Bulk copies and stores that signal an mbarrier (manual: cp.async.bulk, cp.reduce.async.bulk, their multimem forms, st.async,
red.async, st.bulk). Copies are complete when they are issued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import effects
from ..model import Accepts
from ..table import Modifier, Options, declare, instruction
from .atomic import combine, combine_half

HOPPER: Options = {"category": "load_store", "unit": "lsu", "since": (8, 0), "target": 90}
_SIXTEENTHS = {
    "size": (lambda size: 0 <= size <= 0xFFFF0 and size % 16 == 0, "a multiple of 16, at most 1,048,560")
}
BULK: Options = {
    **HOPPER,
    "effect": effects.BULK_COPY,
    "accepts": Accepts(constants=_SIXTEENTHS),
    "requires": {"weak": ((9, 3), 90), "multicast::cluster::16b": ((9, 4), 90)},
}
HINTED: Options = {**BULK, "hint": "L2::cache_hint"}
TELLS = "mbarrier::complete_tx::bytes"
OWN, ANY = "shared::cta", "shared::cluster"
_POLICY = ", policy:u64?hint"
#: How a copy reports invalid data: the bit patterns that mark it.
REPORTS = (
    "mbarrier::report::disabled",
    *(f"mbarrier::report::validity::per_16bytes::{pattern}" for pattern in ("80000000", "8000", "80", "8")),
    "mbarrier::report::validity::per_element::ff",
)
MULTICAST: Options = {"multicast": "multicast::cluster multicast::cluster::16b"}
RUBIN: Options = {"since": (9, 4), "only": "107f"}


def _cluster(modifiers: Mapping[str, Modifier]) -> str:
    """Copies into several CTAs are copies into the cluster."""
    if modifiers.get("multicast") and modifiers.get("dst") != ANY:
        return f"'.{modifiers['multicast']}' needs .{ANY}"
    return ""


def _copies(
    opcode: str, end: str, operands: str, text: str, scopes: str = "cta cluster gpu sys", **options: Any
) -> None:
    """Rows of a copy of bytes, and of one with strong accesses of 16 bytes each. For the latter the manual lists required targets
    that ptxas checks only for copies into the cluster. What precedes the opcode belongs to its name."""
    name = opcode.split("{")[0].split(".dst")[0]
    rest = opcode[len(name) :]
    declare(f"{name}{{.weak}}{rest}{end} {operands}", text, **options)
    strong = {**options, "since": max((9, 3), options["since"]), "scope": scopes}
    spaces = str(options["dst"]).split() if options["src"] == "global" and "only" not in options else ()
    for space in spaces or (options["dst"],):
        own = {"dst": space, "only": "90a 100f 110f"} if spaces and space == ANY else {"dst": space}
        declare(f"{name}.relaxed.scope{rest}{end}.b128 {operands}", text, **{**strong, **own})


_LOADED = "Copies size bytes to shared memory (in several blocks of the cluster at once), and signals the mbarrier at m there."
_TO_SHARED: Options = {
    **HINTED,
    "dst": f"{ANY} {OWN}",
    "src": "global",
    "accepts": Accepts(constants=_SIXTEENTHS, valid=_cluster),
    "requires": {**BULK["requires"], OWN: ((8, 6), 90)},
}
_ENDS = "[d]:dst, [a]:src, size:u32"
for _report, _wide, _options in (
    ("", False, MULTICAST),
    (".report", False, {**MULTICAST, **RUBIN, "report": REPORTS}),
    ("{.report}", True, {**RUBIN, "report": REPORTS}),
):
    _copies(
        f"cp.async.bulk.dst.src.{TELLS}{_report}" + (".multicast::cluster::32b" if _wide else "{.multicast}"),
        "{.hint}",
        f"{_ENDS}, [m]:dst, " + ("mask:u32" if _wide else "mask:u16?multicast") + _POLICY,
        _LOADED if not _report else f"{_LOADED[:-1]}; what is not valid is reported to it.",
        **{**_TO_SHARED, **_options, "dst": ANY if _wide else _TO_SHARED["dst"]},
    )
_IGNORED = {
    "left": (lambda count: 0 <= count <= 15, "0 to 15"),
    "right": (lambda count: 0 <= count <= 15, "0 to 15"),
}
for _report, _options in (("", {"since": (9, 2)}), (".mbarrier::report::disabled", RUBIN)):
    _copies(
        f"cp.async.bulk.dst.src.{TELLS}{_report}",
        ".ignore_oob{.hint}",
        f"{_ENDS}, left:u32, right:u32, [m]:dst{_POLICY}",
        "As without .ignore_oob, but for left bytes at the beginning and right bytes at the end, which need not exist: here the "
        "target keeps its own.",
        **{
            **_TO_SHARED,
            "dst": OWN,
            "accepts": Accepts(constants={**_SIXTEENTHS, **_IGNORED}, valid=_cluster),
            **_options,
        },
    )
_copies(
    f"cp.async.bulk.dst.src.{TELLS}",
    "",
    f"{_ENDS}, [m]:dst",
    "Copies size bytes to the shared memory of a block of the cluster, and signals the mbarrier at m there.",
    scopes="cta cluster",
    dst=ANY,
    src=OWN,
    **BULK,
)
for _masked, _operand, _options, _text in (
    ("", "", {}, "Copies size bytes to global memory."),
    (
        ".cp_mask",
        ", bytes:u16",
        {"since": (8, 6), "target": 100},
        "Copies those of each 16 bytes to global memory whose bit is set in bytes.",
    ),
):
    _to_global: Options = {**BULK, "dst": "global", "src": OWN, **_options}
    _copies(
        "cp.async.bulk.dst.src.bulk_group",
        f"{{.hint}}{_masked}",
        f"{_ENDS}{_POLICY}{_operand}",
        _text,
        **{**_to_global, "hint": "L2::cache_hint"},
    )
    _copies(
        "multimem.cp.async.bulk.dst.src.bulk_group",
        _masked,
        f"{_ENDS}{_operand}",
        f"{_text[:-1]}, at all locations that a multicast object joins: here at one.",
        leads="bulk",
        **{**_to_global, "since": (9, 1)},
    )
for _end, _operand, _options in (
    ("{.hint}", _POLICY, {"hint": "L2::cache_hint"}),
    (".L2::evict_last", "", RUBIN),
):
    declare(
        f"cp.async.bulk.prefetch.L2.src{_end} [a]:src, size:u32{_operand}",
        "Brings size bytes into L2.",
        src="global",
        **{
            **BULK,
            **_options,
            "effect": effects.HINT,
        },
    )
_GROUPS: Options = {**HOPPER, "effect": effects.ASYNC_COPY}
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
    ("add", "u32 s32 u64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32 u64 s64"),
)
_STRONG = {"relaxed": ((9, 3), 90)}
for _ops, _types in _LOCAL:
    instruction(
        f"cp.reduce.async.bulk{{.relaxed.scope}}.dst.src.{TELLS}.op.type [d]:dst, [a]:src, size:u32, [m]:dst",
        documentation="Combines size bytes with those in the shared memory of a block of the cluster, and signals the mbarrier at m.",
        scope="cta cluster",
        dst=ANY,
        src=OWN,
        op=_ops,
        type=_types,
        **{**BULK, "requires": _STRONG},
    )(combine)
for _name, _hint, _operand, _options, _destination in (
    ("cp.reduce", "{.hint}", _POLICY, {"hint": "L2::cache_hint"}, ""),
    (
        "multimem.cp.reduce",
        "",
        "",
        {"since": (9, 1), "leads": "bulk"},
        ", at all locations that a multicast object joins: here at one",
    ),
):
    for _ops, _noftz, _types, _needs in (
        *((ops, "", types, {}) for ops, types in _GLOBAL),
        ("add", "", "f32 f64", {}),
        ("add", ".noftz", "f16 bf16", {}),
        ("add", ".noftz", "f32", {"since": (9, 4)}),
        ("min max", "", "f16 bf16", {}),
    ):
        _add = instruction(
            f"{_name}.async.bulk{{.relaxed.scope}}.dst.src.bulk_group{_hint}.op{_noftz}.type "
            f"[d]:dst, [a]:src, size:u32{_operand}",
            documentation=f"Combines size bytes with those in global memory{_destination}; subnormals stay.",
            scope="cta cluster gpu sys",
            dst="global",
            src=OWN,
            op=_ops,
            type=_types,
            **{**BULK, "requires": _STRONG, **_options, **_needs},
        )
        if "f" in _types:
            _add(combine_half)
        else:
            _add(combine)


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    kind, vector = str(modifiers["type"]), str(modifiers.get("vec") or "v1")
    return "" if int(kind[1:]) * int(vector[1:]) <= 128 else f"'.{vector}.{kind}' is longer than 128 bits"


def _system(modifiers: Mapping[str, Modifier]) -> str:
    """Input and output of devices is ordered for all of the system."""
    if modifiers.get("mmio") and modifiers["scope"] != "sys":
        return f"'.mmio' needs .sys, not .{modifiers['scope']}"
    return ""


_STORE: Options = {
    "category": "load_store",
    "unit": "lsu",
    "effect": effects.STORE,
    "since": (8, 1),
    "target": 90,
    "type": "b32 b64 b128 u32 u64 s32 s64 f32 f64",
    "requires": {"b128": ((9, 2), 90)},
}
declare(
    f"st.async{{.weak}}{{.space}}.{TELLS}{{.vec}}.type [a], b*vec, [m]",
    "Puts b at address a of a block of the cluster, and signals the mbarrier at m there.",
    space=ANY,
    vec="v2 v4",
    accepts=Accepts(valid=_fits),
    **_STORE,
)
declare(
    "st.async{.mmio}.release.scope{.space}.type [a], b",
    "Puts b at address a.",
    space="global",
    scope="gpu sys",
    accepts=Accepts(valid=_system),
    **{
        **_STORE,
        "since": (8, 7),
        "target": 100,
        "type": "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    },
)
_REDUCE: Options = {
    "category": "atomic",
    "unit": "lsu",
    "effect": effects.REDUCTION,
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
        accepts=Accepts(valid=_system),
        op=_ops,
        type=_types,
        **{**_REDUCE, "since": (8, 7), "target": 100},
    )(combine)
    instruction(
        f"red.async.relaxed.cluster{{.space}}.{TELLS}.op.type [a], b, [m]",
        documentation="The value at address a of a block of the cluster, combined with b; signals the mbarrier at m there.",
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
        "requires": {},
        "since": (8, 6),
        "target": 100,
        "accepts": Accepts(
            constants={
                "bytes": (
                    lambda size: 0 <= size <= 1 << 24 and size % 8 == 0,
                    "a multiple of 8, at most 16,777,216",
                ),
                "value": (lambda value: value == 0, "0"),
            }
        ),
    },
)
