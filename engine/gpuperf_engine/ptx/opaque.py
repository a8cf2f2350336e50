"""Initial values of textures, samplers and surfaces (PTX manual, "Texture Sampler and Surface Types")."""

from __future__ import annotations

from ..errors import PtxError, nearest
from . import raw
from .text import Text, quoted

__all__ = ["OPAQUE", "members_of"]

_SHAPE = ("width", "height", "depth", "channel_data_type", "channel_order")
_SAMPLER = ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2")
#: opaque type → its members, those of unified and of independent mode
OPAQUE = {
    ".texref": (*_SHAPE, "normalized_coords", *_SAMPLER),
    ".samplerref": ("force_unnormalized_coords", *_SAMPLER),
    ".surfref": (*_SHAPE, "memory_layout"),
}
_MODES = ("wrap", "mirror", "clamp_ogl", "clamp_to_edge", "clamp_to_border")
#: words that are values of a member; others have numbers
_WORDS = {"filter_mode": ("nearest", "linear"), **{f"addr_mode_{axis}": _MODES for axis in range(3)}}


def members_of(text: Text, base: int, kind: str, node: raw.Node) -> tuple[tuple[str, str], ...]:
    """The members that an initialiser of this opaque type sets, with their values as written. Raises ``PtxError``."""
    items = node.items if isinstance(node, raw.Braces) else (node,)
    found: dict[str, str] = {}
    for item in items:
        span = text.span(base + item.start, base + item.end)
        if not isinstance(item, raw.Member):
            raise PtxError(f"a {kind} is initialised by member = value", span=span)
        name, value = item.name.text, item.value
        if name not in OPAQUE[kind]:
            hint = nearest(name, OPAQUE[kind], noun="member")
            raise PtxError(f"a {kind} has no member {quoted(name)}", span=span, hint=hint)
        if name in found:
            raise PtxError(f"{quoted(name)} is set twice", span=span)
        words = _WORDS.get(name, ())
        if isinstance(value, raw.Name) and value.text in words:
            found[name] = value.text
        elif isinstance(value, raw.Number) and value.kind[0] != "f" and not words:
            found[name] = str(value.value)
        else:
            raise PtxError(
                f"{quoted(name)} of a {kind} cannot have this value",
                span=span,
                hint=f"accepted: {', '.join(words) if words else 'a whole number'}",
            )
    return tuple(found.items())
