"""The fifth generation of tensor cores (manual: tcgen05.*).

Descriptors specify the factors; results are in tensor memory, the space ``tmem`` here (see ``isa.tensor_memory``). Additions of
PTX 9.4 are not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import effects
from ..model import Accepts
from ..table import Modifier, Options, declare

#: Families of targets with tensor memory; single targets with it; those of the first PTX versions.
FAMILIES, SINGLE, FIRST = "100f 110f", "100a 103a 107a 110a", "100a 110a"
TENSOR: Options = {
    "category": "matrix",
    "unit": "tensor",
    "effect": effects.TENSOR,
    "since": (8, 6),
    "only": FAMILIES,
}
PRODUCT: Options = {**TENSOR, "effect": effects.TENSOR_PRODUCT}
GROUPS: Options = {**TENSOR, "group": "cta_group::1 cta_group::2"}
COLUMNS = {"columns": (lambda count: count in (32, 64, 128, 256, 512), "32, 64, 128, 256 and 512")}
NUMBERS = "x1 x2 x4 x8 x16 x32 x64 x128"

#: Exclusive allocations, of any multiple of 32 columns; the last family has 576 columns.
EXCLUSIVE = {"columns": (lambda count: 32 <= count <= 576 and count % 32 == 0, "a multiple of 32 up to 576")}
RUBIN: Options = {"since": (9, 4), "only": "107f"}
declare(
    "tcgen05.alloc.exclusive.group.sync.aligned{.space}.b32 [a], columns:u32",
    "Allocates columns of tensor memory when no others are; their address goes to a in shared memory.",
    space="shared::cta",
    exclusive="exclusive",
    accepts=Accepts(constants=EXCLUSIVE),
    **{**GROUPS, "unit": "adu", "since": (9, 4)},
)
declare(
    "tcgen05.dealloc.exclusive.group.sync.aligned.b32 taddr:u32%, columns:u32",
    "Frees the only columns of tensor memory.",
    exclusive="exclusive",
    accepts=Accepts(constants=EXCLUSIVE),
    **{**GROUPS, "unit": "adu", "since": (9, 4)},
)
declare(
    "tcgen05.alloc.group.sync.aligned{.space}.b32 [a], columns:u32",
    "Allocates columns of tensor memory; their address goes to a in shared memory.",
    space="shared::cta",
    accepts=Accepts(constants=COLUMNS),
    **{**GROUPS, "unit": "adu", "effect": effects.TENSOR_ALLOC},
)
declare(
    "tcgen05.dealloc.group.sync.aligned.b32 taddr:u32%, columns:u32",
    "Frees columns of tensor memory.",
    accepts=Accepts(
        constants={
            "columns": (lambda count: 0 < count < 1 << 32 and count % 32 == 0, "a multiple of 32, not 0")
        }
    ),
    **{**GROUPS, "unit": "adu", "effect": effects.TENSOR_FREE},
)
declare(
    "tcgen05.relinquish_alloc_permit.group.sync.aligned",
    "The CTA allocates no more tensor memory.",
    **{**GROUPS, "unit": "adu", "effect": effects.TENSOR_FREE},
)

#: shape, registers of a lane for .x1, largest number, a second offset
SHAPES = (
    ("16x64b", 1, 8, ""),
    ("16x128b", 2, 7, ""),
    ("16x256b", 4, 6, ""),
    ("32x32b", 1, 8, ""),
    ("16x32bx2", 1, 8, ", offset:imm"),
)
for _shape, _count, _largest, _offset in SHAPES:
    _moved: Options = {**TENSOR, "unit": "lsu", "num": tuple(NUMBERS.split()[:_largest])}
    _times = f"*{_count}" if _count > 1 else ""
    declare(
        f"tcgen05.ld.sync.aligned.{_shape}.num{{.pack::16b}}.b32 d:b32*num{_times}, [taddr]:tmem{_offset}",
        "Tensor memory of the warp's lanes, by columns.",
        **{**_moved, "effect": effects.TENSOR_LOAD},
    )
    declare(
        f"tcgen05.st.sync.aligned.{_shape}.num{{.unpack::16b}}.b32 [taddr]:tmem{_offset}, b:b32*num{_times}",
        "Puts b into tensor memory of the warp's lanes, by columns.",
        **{**_moved, "effect": effects.TENSOR_STORE},
    )
for _shape, _offset in (("32x32b", ""), ("16x32bx2", ", offset:imm")):
    for _types, _more in (("f32", "{.abs}{.NaN}"), ("u32 s32", "")):
        declare(
            f"tcgen05.ld.red.sync.aligned.{_shape}.num.op{_more}.type d*num, result, [taddr]:tmem{_offset}",
            "As tcgen05.ld; result: the smallest or largest of what the lane loaded.",
            num=tuple(NUMBERS.split()[1:]),
            op="min max",
            type=_types,
            **{**TENSOR, "effect": effects.TENSOR_LOAD, "unit": "lsu", "since": (8, 8), "only": "103f 110f"},
        )
for _reduced, _nan, _result in (("", "", ""), (".red", "{.NaN}", "result:f32, ")):
    declare(
        f"tcgen05.ld{_reduced}.spcompress.sync.aligned.32x32b.num.op.sp::2:4{{.abs}}{_nan}.f32.b2 "
        f"d:b32*num/32, result:f32*num/2, {_result}[taddr]:tmem",
        "As tcgen05.ld, of which two of each four are kept, with their indices; then the smallest or largest of all.",
        num=tuple(NUMBERS.split()[2:]),
        op="min max",
        **{**TENSOR, "unit": "lsu", "since": (9, 4), "only": "107a"},
    )
for _access in ("ld", "st"):
    declare(
        f"tcgen05.wait::{_access}.sync.aligned",
        f"Waits until all tcgen05.{_access} of this thread are done.",
        **{**TENSOR, "unit": "adu", "effect": effects.TENSOR_ORDER},
    )


def _copied(modifiers: Mapping[str, Modifier]) -> str:
    """Why a shape does not accept this multicast, or ``""``."""
    shape, multicast = str(modifiers["shape"]), str(modifiers.get("multicast") or "")
    wanted = {"64x128b": "warpx2", "32x128b": "warpx4"}.get(shape, "")
    return (
        ""
        if multicast.split("::")[0] == wanted
        else f"'.{shape}' goes with {'.' + wanted if wanted else 'no multicast'}"
    )


for _format, _source in (("", ""), (".b8x16.source", "b6x16_p32 b4x16_p64")):
    declare(
        f"tcgen05.cp.group.shape{{.multicast}}{_format} [taddr]:tmem, b:u64",
        "Copies a matrix from shared to tensor memory.",
        shape="128x256b 4x256b 128x128b 64x128b 32x128b",
        multicast="warpx2::02_13 warpx2::01_23 warpx4",
        accepts=Accepts(valid=_copied),
        **({"source": _source} if _source else {}),
        **{**GROUPS, "effect": effects.TENSOR_COPY},
    )
declare(
    "tcgen05.shift.group.down [taddr]:tmem",
    "Moves the rows of a matrix of 32 lanes and 8 columns in tensor memory by one lane, the last row excepted.",
    **{**GROUPS, "only": SINGLE, "effect": effects.TENSOR_SHIFT},
)
_COMMITTED = "Arrives at an mbarrier when the tcgen05 operations of this thread so far are done."
for _read, _options, _text in (
    ("", {}, _COMMITTED),
    (
        ".sync_restrict::shared::read::mma::a",
        RUBIN,
        "Arrives at an mbarrier when the products of this thread so far have read a.",
    ),
):
    _arrives: Options = {**GROUPS, "space": "shared::cluster", "unit": "adu"}
    declare(
        f"tcgen05.commit.group.mbarrier::arrive::one{_read}{{.space}}{{.multicast}}.b64 [a], mask:u16?multicast",
        _text,
        multicast="multicast::cluster multicast::cluster::16b",
        **{
            **_arrives,
            **_options,
            **({} if _read else {"effect": effects.MBARRIER}),
            "requires": {"multicast::cluster::16b": ((9, 4), 100)},
        },
    )
    declare(
        f"tcgen05.commit.group.mbarrier::arrive::one{_read}{{.space}}.multicast::cluster::32b.b64 [a], mask:u32",
        _text,
        **{**_arrives, **RUBIN},
    )
for _when in ("before", "after"):
    declare(
        f"tcgen05.fence::{_when}_thread_sync",
        f"Orders tcgen05 operations with those {_when} a barrier of threads.",
        **{**TENSOR, "unit": "adu", "effect": effects.TENSOR_ORDER},
    )


def _shifted(modifiers: Mapping[str, Modifier]) -> str:
    """Why a shifted matrix does not accept this collector buffer, or ``""``."""
    collector = str(modifiers.get("collector") or "")
    return (
        "'.ashift' goes with .collector::a::lastuse and .collector::a::discard only"
        if (modifiers.get("ashift") and collector.endswith(("fill", "::use")))
        else ""
    )


_PRODUCT = "d = a · b, or d + a · b where enable holds, asynchronously; a and b by descriptors, or a in tensor memory."
_KEPT = {"collector": tuple(f"collector::a::{action}" for action in ("fill", "use", "lastuse", "discard"))}
_META = "[meta]:tmem?sp"
_KEPT_B = {"kept": tuple(f"collector::b::{action}" for action in ("fill", "use", "lastuse", "discard"))}
_LUT = {**TENSOR, **_KEPT, **_KEPT_B, **RUBIN}
_LUT_TEXT = "d = a · b, or d + a · b where enable holds, asynchronously; b by a descriptor, looked up in a table in tensor memory."
for _group, _lanes in (("cta_group::1", 4), ("cta_group::2", 8)):
    for _a, _shift in (("a:u64", ""), ("[a]:tmem", "{.ashift}")):
        _ends = f"idesc:u32{{, mask:u32*{_lanes}}}, {{!}}enable:pred"
        for _kinds, _sparse, _kept, _scale in (
            ("f16 tf32 f8f6f4", "{.sp}", ".kept", ""),
            ("f16 tf32", "{.sp}", ".kept", ", scale:imm"),
            ("ti16", "{.sp}", "{.kept}", ""),
            ("ti16", "", "{.kept}", ", scale:imm"),
        ):
            declare(
                f"tcgen05.mma{_sparse}.{_group}.kind{_shift}{{.collector}}{_kept} [d]:tmem, {_a}, b:u64, {_META}, {_ends}{_scale}",
                _PRODUCT,
                kind=tuple(f"kind::{kind}" for kind in _kinds.split()),
                accepts=Accepts(
                    valid=_shifted, constants={"scale": (lambda scale: 0 <= scale <= 15, "0 to 15")}
                ),
                **_LUT,
            )
        declare(
            f"tcgen05.mma.{_group}.kind::f8f6f4.decompress::lut::b{{.collector}}{{.kept}} "
            f"[d]:tmem, {_a}, b:u64, [table]:tmem, {_ends}",
            _LUT_TEXT,
            **_LUT,
        )
for _a in ("a:u64", "[a]:tmem"):
    for _vector, _only in (("{.block32}", "107f"), (".scale_vec::1X", "107a")):
        declare(
            f"tcgen05.mma.group.kind::mxf8f6f4.block_scale.decompress::lut::b{_vector}{{.collector}}{{.kept}} "
            f"[d]:tmem, {_a}, b:u64, [table]:tmem, idesc:u32, [scale_a]:tmem, [scale_b]:tmem, {{!}}enable:pred",
            _LUT_TEXT,
            **{**GROUPS, **_LUT, "only": _only},
        )
    for _kind, _vector, _only in (
        ("mxf8f6f4", "{.block32}", "107f"),
        ("mxf8f6f4", ".scale_vec::1X", "107a"),
        ("mxf4", "{.block32}", "107f"),
        ("mxf4", ".scale_vec::2X", "107a"),
        ("mxf4nvf4", ".block16", "107f"),
        ("mxf4nvf4", ".block32", "107f"),
        ("mxf4nvf4", ".scale_vec::2X", "107a"),
        ("mxf4nvf4", ".scale_vec::4X", "107a"),
    ):
        for _sparse, _meta in (("", ""), (".sp", " [meta]:tmem,")):
            declare(
                f"tcgen05.mma{_sparse}.group.kind::{_kind}.block_scale{_vector}{{.collector}}.kept "
                f"[d]:tmem, {_a}, b:u64,{_meta} idesc:u32, [scale_a]:tmem, [scale_b]:tmem, {{!}}enable:pred",
                _PRODUCT.replace("b, or", "b of scaled blocks, or"),
                **{**GROUPS, **_LUT, "only": "107a" if _sparse and _kind != "mxf8f6f4" else _only},
            )
for _group, _lanes in (("cta_group::1", 4), ("cta_group::2", 8)):
    for _a, _shift in (("a:u64", ""), ("[a]:tmem", "{.ashift}")):
        for _kinds, _scale, _only in (
            ("f16 tf32 f8f6f4", "", FAMILIES),
            ("f16 tf32", ", scale:imm", "100f"),
            ("i8", "", FIRST),
        ):
            declare(
                f"tcgen05.mma{{.sp}}.{_group}.kind{_shift}{{.collector}} "
                f"[d]:tmem, {_a}, b:u64, {_META}, idesc:u32{{, mask:u32*{_lanes}}}, {{!}}enable:pred{_scale}",
                _PRODUCT,
                kind=tuple(f"kind::{kind}" for kind in _kinds.split()),
                accepts=Accepts(
                    valid=_shifted, constants={"scale": (lambda scale: 0 <= scale <= 15, "0 to 15")}
                ),
                **{**PRODUCT, **_KEPT, "only": _only},
            )
for _a in ("a:u64", "[a]:tmem"):
    for _kind, _vector, _only, _since in (
        ("mxf8f6f4", "{.block32}", FAMILIES, (8, 6)),
        ("mxf8f6f4", ".scale_vec::1X", SINGLE, (8, 6)),
        ("mxf4", "{.block32}", FAMILIES, (8, 6)),
        ("mxf4", ".scale_vec::2X", SINGLE, (8, 6)),
        ("mxf4nvf4", ".block16", FAMILIES, (8, 8)),
        ("mxf4nvf4", ".block32", FAMILIES, (8, 8)),
        ("mxf4nvf4", ".scale_vec::2X", SINGLE, (8, 7)),
        ("mxf4nvf4", ".scale_vec::4X", SINGLE, (8, 7)),
    ):
        for _sparse, _meta in (("", ""), (".sp", " [meta]:tmem,")):
            declare(
                f"tcgen05.mma{_sparse}.group.kind::{_kind}.block_scale{_vector}{{.collector}} "
                f"[d]:tmem, {_a}, b:u64,{_meta} idesc:u32, [scale_a]:tmem, [scale_b]:tmem, {{!}}enable:pred",
                _PRODUCT.replace("b, or", "b of scaled blocks, or"),
                **{
                    **GROUPS,
                    **_KEPT,
                    "effect": effects.TENSOR_PRODUCT,
                    "only": SINGLE if _sparse and _kind != "mxf8f6f4" else _only,
                    "since": _since,
                    "requires": {"block32": ((8, 8), 100)},
                },
            )
    for _kinds, _only in (("f16 tf32 f8f6f4", FAMILIES), ("i8", FIRST), ("ti16", "107f")):
        declare(
            "tcgen05.mma.ws{.sp}.cta_group::1.kind{.collector} "
            f"[d]:tmem, {_a}, b:u64, {_META}, idesc:u32, {{!}}enable:pred{{, zeros:u64}}",
            _PRODUCT.replace("asynchronously", "asynchronously, with b kept"),
            kind=tuple(f"kind::{kind}" for kind in _kinds.split()),
            collector=tuple(
                f"collector::b{buffer}::{action}"
                for buffer in range(4)
                for action in ("fill", "use", "lastuse", "discard")
            ),
            **{
                **(TENSOR if _kinds == "ti16" else PRODUCT),
                "only": _only,
                "since": (9, 4) if _kinds == "ti16" else TENSOR["since"],
            },
        )
