"""Textures and surfaces (manual: tex, tld4, txq, istypep, suld, sust, sured, suq).

Images of one to three dimensions, with layers, levels of detail and samples of texels, and cubes can be sampled and written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import effects
from ..images.image import SAMPLER, SURFACE, TEXTURE, Image, Sampled, is_kind, query, query_level
from ..images.surfaces import read_surface, reduce_surface, write_samples, write_surface
from ..images.textures import Further, gather_texels, gradient_level, sample
from ..model import Accepts, Applied, Modifier
from ..primitives import Value
from ..table import Options, instruction
from ..types import ScalarType
from .special_function import lg2

TEX: Options = {
    "category": "texture",
    "unit": "tex",
    "effect": effects.TEXTURE,
    "applied": Applied(whole=True),
}
#: the sampler of a fetch and the texturing mode: in unified mode it belongs to the texture, in independent mode it is named. (There
#: ptxas 13.0 takes no other; in unified mode it takes some samplers for other operands, and its code reads none.)
MODES = (("", Accepts(texmode="unified")), (", b:b64", Accepts(texmode="independent")))
FETCH: Options = {**TEX, "requires": {"f16": ((4, 2), 53), "f16x2": ((4, 2), 53)}}
#: results by the width of the opcode: operand and types
RESULTS = {"v4": ("d:dtype*4", "u32 s32 f16 f32"), "v2": ("d:dtype*2", "f16x2")}
OPCODES: dict[str, Callable[[int], str]] = {
    "tex{.base}": lambda _: "",
    "tex.level": lambda _: ", lod:ctype",
    "tex.grad": lambda dims: f", dx:f32*{dims}, dy:f32*{dims}",
}


def _with_sampler(image: Image, b: Sequence[Value] | None) -> Image:
    return Sampled(image, b[0]) if b else image


def _further(e: Sequence[Value] | None, f: Sequence[Value] | None, p: bool | None) -> Further:
    return Further(e or (), f[0] if f else None, bool(p))


def tex(
    image: Image,
    *operands: Value,
    geom: str,
    dtype: ScalarType,
    ctype: ScalarType,
    b: Sequence[Value] | None,
    e: Sequence[Value] | None,
    f: Sequence[Value] | None,
    p: bool | None,
) -> tuple[Value, ...]:
    """The texel at coordinates c (.f32: filtered; .s32: that texel; .a: the layer first; .ms: the sample before it), moved by e texels
    (−8 to 7); missing components are 0, the fourth 1. With f, texels count as 1 if f compares with them, otherwise as 0. p: all of
    them are resident; otherwise d is 0."""
    return sample(_with_sampler(image, b), operands, geom, dtype, ctype, further=_further(e, f, p))


def tex_level(
    image: Image,
    *operands: Value,
    geom: str,
    dtype: ScalarType,
    ctype: ScalarType,
    b: Sequence[Value] | None,
    e: Sequence[Value] | None,
    f: Sequence[Value] | None,
    p: bool | None,
) -> tuple[Value, ...]:
    """As tex, in the level of detail lod, or between two where the sampler filters levels linearly."""
    return sample(_with_sampler(image, b), operands, geom, dtype, ctype, operands[-1], _further(e, f, p))


def tex_grad(
    image: Image,
    *operands: Value,
    geom: str,
    dtype: ScalarType,
    ctype: ScalarType,
    b: Sequence[Value] | None,
    e: Sequence[Value] | None,
    f: Sequence[Value] | None,
    p: bool | None,
) -> tuple[Value, ...]:
    """As tex, in the level of detail in which the longer of the gradients dx and dy is one texel."""
    count = {"1d": 1, "2d": 2, "a1d": 1, "a2d": 2}.get(geom, 4)
    gradients = operands[-2 * count : -count], operands[-count:]
    lod = gradient_level(image, operands, geom, gradients, lg2)
    lod = lod if ctype.is_float else lod.convert(ctype, "rni")
    return sample(_with_sampler(image, b), operands, geom, dtype, ctype, lod, _further(e, f, p))


SEMANTICS = {"tex{.base}": tex, "tex.level": tex_level, "tex.grad": tex_grad}


def _fetches(
    geometries: str,
    coordinates: str,
    offsets: str,
    dims: int,
    depth: str,
) -> None:
    """The rows of geometries with the same operands; ``depth`` are the types of coordinates with which depths can be compared."""
    offset = f"{{, {offsets}}}" if offsets else ""
    for width, (result, types) in RESULTS.items():
        for opcode, further in OPCODES.items():
            if "ms" in geometries and opcode != "tex{.base}":
                continue
            head = f"{opcode}.geom.{width}.dtype.ctype {result}"
            tail = f"{coordinates}]{further(dims)}"
            sets: Options = {"geom": geometries, "dtype": types}
            if "base" in opcode:
                sets["leads"] = "base"
            kinds = "f32" if "cube" in geometries else "s32" if "ms" in geometries else "s32 f32"
            for kind in kinds.split():
                compared = "{, f:f32}" if kind in depth.split() else ""
                for pair, since in (("", (1, 0)), ("|p:pred", (7, 1))):
                    own: Options = {
                        **sets,
                        **FETCH,
                        "ctype": kind,
                        "since": since,
                        "target": 60 if pair else 0,
                    }
                    for sampler, mode in MODES:
                        line = f"{head}{pair}, [a:image{sampler}, {tail}{offset}{compared}"
                        instruction(line, **own, accepts=mode)(SEMANTICS[opcode])


_fetches("1d", "c:ctype*1", "e:s32*1", 1, "f32")
_fetches("2d", "c:ctype*2", "e:s32*2", 2, "f32")
_fetches("3d", "c:ctype*4", "e:s32*4", 4, "")
_fetches("a1d", "c:b32*2", "e:s32*1", 1, "f32")
_fetches("a2d", "c:b32*4", "e:s32*2", 2, "f32")
_fetches("cube", "c:ctype*4", "", 4, "f32")
_fetches("acube", "c:b32*4", "", 4, "f32")
# ptxas 13.0 takes the first of them as the sample and the second one as the layer, as the manual's text does, not its example
_fetches("2dms", "c:ctype*4", "e:s32*2", 2, "")
_fetches("a2dms", "c:b32*4", "e:s32*2", 2, "")


def tld4(
    image: Image,
    *operands: Value,
    comp: str,
    geom: str,
    dtype: ScalarType,
    b: Sequence[Value] | None,
    e: Sequence[Value] | None,
    f: Sequence[Value] | None,
    p: bool | None,
) -> tuple[Value, ...]:
    """One component of the four texels around the coordinates, counter-clockwise from the lower left; e, f and p as of tex."""
    return gather_texels(
        _with_sampler(image, b), operands, geom, "rgba".index(comp), dtype, _further(e, f, p)
    )


GATHER: Options = {**TEX, "since": (2, 2), "target": 20, "comp": "r g b a", "dtype": "u32 s32 f32"}
for _geometry, _coordinates, _offsets in (
    ("2d", "c:f32*2", "{, e:s32*2}"),
    ("a2d", "c:b32*4", "{, e:s32*2}"),
    ("cube", "c:f32*4", ""),
    ("acube", "c:b32*4", ""),
):
    _head = "tld4.comp.geom.v4.dtype.f32 d:dtype*4"
    for _pair, _needs in (("", {}), ("|p:pred", {"since": (7, 1), "target": 60})):
        _gather: Options = {**GATHER, **_needs, "geom": _geometry}
        for _sampler, _mode in MODES:
            _line = f"{_head}{_pair}, [a:image{_sampler}, {_coordinates}]{_offsets}{{, f:f32}}"
            instruction(_line, **_gather, accepts=_mode)(tld4)

QUERY: Options = {"category": "texture", "unit": "tex", "effect": effects.IMAGE_QUERY}


@instruction(
    "txq.query.b32 d, [a:image]",
    query=(
        "width height depth channel_data_type channel_order normalized_coords array_size num_mipmap_levels num_samples "
        "filter_mode addr_mode_0 addr_mode_1 addr_mode_2 force_unnormalized_coords"
    ),
    since=(1, 5),
    requires={
        "array_size": ((4, 1), 30),
        "num_mipmap_levels": ((4, 1), 30),
        "num_samples": ((4, 1), 30),
    },
    **QUERY,
)
@instruction(
    "suq.query.b32 d, [a:image]",
    query="width height depth channel_data_type channel_order array_size memory_layout",
    since=(1, 5),
    **QUERY,
)
def image_query(image: Image, *, query: str) -> Value:
    """A property of a texture, its sampler or a surface."""
    return _query(image, query)


_query = query


@instruction(
    "txq.level.query.b32 d, [a:image], lod:u32",
    query="width height depth",
    since=(4, 3),
    target=30,
    **QUERY,
)
def level_query(image: Image, lod: Value, *, query: str) -> Value:
    """The size of a level of a texture."""
    return query_level(image, query, lod)


@instruction(
    "istypep.query p:pred, a:u64%", query="texref samplerref surfref", since=(4, 0), target=30, **QUERY
)
def istypep(image: Image, *, query: str) -> Value:
    """Whether a handle is that of a texture, sampler or surface."""
    return is_kind(image, {"texref": TEXTURE, "surfref": SURFACE, "samplerref": SAMPLER}[query])


SURF: Options = {
    "category": "texture",
    "unit": "tex",
    "mode": "trap clamp zero",
    "applied": Applied(whole=True),
}
#: geometries and their coordinates
PLACES = (("1d", "b:s32*1"), ("2d", "b:s32*2"), ("3d", "b:s32*4"), ("a1d", "b:b32*2"), ("a2d", "b:b32*4"))


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    wide = modifiers["vec"] == "v4" and "b64" in (modifiers.get("dtype"), modifiers.get("ctype"))
    return "four 64-bit elements are more than 128 bits" if wide else ""


def suld(
    image: Image, *operands: Value, geom: str, vec: str | None, dtype: ScalarType, mode: str
) -> tuple[Value, ...]:
    """Bytes of a surface; the first coordinate counts bytes. Outside: an error (trap), the nearest (clamp), or 0."""
    return read_surface(image, operands, geom, dtype, int((vec or "v1")[1]), mode)


def sust(
    image: Image, *operands: Value, geom: str, vec: str | None, ctype: ScalarType, mode: str
) -> tuple[Value, ...]:
    """Bytes of a surface become c; the first coordinate counts bytes. Outside: an error (trap), the nearest (clamp), or nothing."""
    write_surface(image, operands, geom, ctype, int((vec or "v1")[1]), mode)
    return ()


def sust_formatted(
    image: Image, *operands: Value, geom: str, vec: str | None, mode: str
) -> tuple[Value, ...]:
    """The components of a sample become c, converted to its format; the first coordinate counts samples."""
    write_samples(image, operands, geom, int((vec or "v1")[1]), mode)
    return ()


def sured(
    image: Image, *operands: Value, op: str, geom: str, ctype: ScalarType, mode: str
) -> tuple[Value, ...]:
    """Memory of a surface becomes memory op c; the first coordinate counts bytes."""
    reduce_surface(image, operands, geom, ctype, op, mode, samples=False)
    return ()


def sured_samples(
    image: Image, *operands: Value, op: str, geom: str, ctype: ScalarType, mode: str
) -> tuple[Value, ...]:
    """A sample becomes itself op c, by the sign of its format; the first coordinate counts samples."""
    reduce_surface(image, operands, geom, ctype, op, mode, samples=True)
    return ()


for _geometry, _where in PLACES:
    _load: Options = {
        **SURF,
        "effect": effects.TEXTURE,
        "geom": _geometry,
        "since": (1, 5),
        "target": 20,
    }
    instruction(
        f"suld.b.geom{{.cop}}{{.vec}}.dtype.mode d:dtype+*vec, [a:image, {_where}]",
        cop="ca cg cs cv",
        vec="v2 v4",
        dtype="b8 b16 b32 b64",
        accepts=Accepts(valid=_fits),
        **_load,
    )(suld)
    _store: Options = {**_load, "effect": effects.SURFACE, "cop": "wb cg cs wt", "vec": "v2 v4"}
    instruction(
        f"sust.b.geom{{.cop}}{{.vec}}.ctype.mode [a:image, {_where}], c:ctype+*vec",
        ctype="b8 b16 b32 b64",
        accepts=Accepts(valid=_fits),
        **_store,
    )(sust)
    instruction(f"sust.p.geom{{.cop}}{{.vec}}.b32.mode [a:image, {_where}], c:b32*vec", **_store)(
        sust_formatted
    )
    if _geometry[0] == "a":
        continue
    _wide = {f"{op} {kind}": ((8, 1), 50) for op in ("min", "max") for kind in ("u64", "s64", "b64")}
    _reduce: Options = {**_load, "effect": effects.SURFACE, "since": (3, 0), "requires": _wide}
    for _operations, _kinds, _formatted in (
        ("add", "u32 s32 u64", "b32"),
        ("min max", "u32 s32 u64 s64", "b32 b64"),
        ("and or", "b32", "b32"),
    ):
        _tail = f".op.geom.ctype.mode [a:image, {_where}], c:ctype+"
        instruction(f"sured.b{_tail}", op=_operations, ctype=_kinds, **_reduce)(sured)
        instruction(f"sured.p{_tail}", op=_operations, ctype=_formatted, **_reduce)(sured_samples)
