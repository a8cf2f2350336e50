"""Moves, packing and address conversion (manual: "Data Movement and Conversion Instructions": mov, cvta, isspacep)."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Accepts, Applied
from ..primitives import Value, concat, minimum, split
from ..spaces import RANK_SHIFT, WINDOWS
from ..table import Modifier, Options, instruction
from ..types import scalar_type

SCALARS = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"
#: What a mov packs or unpacks: type, number of elements, their type.
PACKINGS = (("b16", 2, "b8"), ("b32", 2, "b16"), ("b32", 4, "b8"), ("b64", 2, "b32"), ("b64", 4, "b16"))


@instruction("mov.type d, a", type="b128", category="move", unit="alu", since=(8, 3), target=70)
@instruction("mov.pred d, {!}a", category="move", unit="alu")
@instruction("mov.type d, a", type=SCALARS, category="move", unit="alu")
def mov(a: Value) -> Value:
    """a: a register, constant, special register, or the address of a variable or function in its space."""
    return a


def _fits(modifiers: Mapping[str, Modifier]) -> str:
    kind, vector = str(modifiers["type"]), str(modifiers["vec"])
    return f"'.{vector}.{kind}' is longer than 128 bits" if int(kind[1:]) * int(vector[1:]) > 128 else ""


@instruction(
    "mov.vec.type d*vec, a*vec",
    vec="v2 v4",
    accepts=Accepts(valid=_fits),
    type=SCALARS,
    category="move",
    unit="alu",
)
def mov_vector(*elements: Value) -> tuple[Value, ...]:
    """The elements one by one."""
    return elements


def pack(*pieces: Value) -> Value:
    """The elements side by side, the first least significant."""
    return concat(pieces)


def unpack_two(a: Value) -> tuple[Value, ...]:
    """The bits of a in two elements, the first least significant."""
    return split(a, 2)


def unpack_four(a: Value) -> tuple[Value, ...]:
    """The bits of a in four elements, the first least significant."""
    return split(a, 4)


for _whole, _count, _piece in PACKINGS:
    instruction(f"mov.{_whole} d, a:{_piece}*{_count}", category="move", unit="alu")(pack)
    instruction(f"mov.{_whole} d:{_piece}*{_count}, a", category="move", unit="alu")(
        unpack_two if _count == 2 else unpack_four
    )
for _count, _piece in ((2, "b64"), (4, "b32")):
    instruction(f"mov.b128 d, a:{_piece}*{_count}", category="move", unit="alu", since=(8, 3), target=70)(
        pack
    )
    instruction(f"mov.b128 d:{_piece}*{_count}, a", category="move", unit="alu", since=(8, 3), target=70)(
        unpack_two if _count == 2 else unpack_four
    )

SPACES = "const global local shared param shared::cta shared::cluster param::entry"
NEEDS = {
    "const": ((3, 1), 20),
    "param": ((7, 7), 70),
    "param::entry": ((8, 3), 70),
    "shared::cta": ((7, 8), 30),
    "shared::cluster": ((7, 8), 90),
}


@instruction(
    "cvta.space.type d, a",
    space=SPACES,
    type="u32 u64",
    category="move",
    unit="alu",
    since=(2, 0),
    target=20,
    requires=NEEDS,
)
def cvta(a: Value, *, space: str) -> Value:
    """The generic address of a, an address in the space."""
    base, _ = WINDOWS[space.split("::")[0]]
    return a + base if base else a


@instruction(
    "cvta.to.space.type d, a",
    space=SPACES,
    type="u32 u64",
    category="move",
    unit="alu",
    since=(2, 0),
    target=20,
    requires=NEEDS,
)
def cvta_to(a: Value, *, space: str) -> Value:
    """The address in the space of a, a generic address that lies there."""
    base, _ = WINDOWS[space.split("::")[0]]
    return a - base if base else a


CLUSTER: Options = {
    "category": "move",
    "unit": "alu",
    "since": (7, 8),
    "target": 90,
    "space": "shared::cluster",
}
#: bits of a shared address: the offset in the memory of one CTA, and the rank
_OFFSET = (1 << RANK_SHIFT) - 1
_RANKS = 0xFFFFFFFF ^ _OFFSET


@instruction("mapa{.space}.type d, a, b:u32", type="u32 u64", **CLUSTER)
def mapa(a: Value, b: Value) -> Value:
    """The address in CTA b of the cluster that corresponds to a."""
    # saturates: a rank that is too large must not wrap to that of an existing CTA
    rank = minimum(b, b.constant(_RANKS >> RANK_SHIFT, b.type)).convert(a.type) << RANK_SHIFT
    return (a & ~_RANKS) | rank


@instruction("getctarank{.space}.type d:u32, a", type="u32 u64", **CLUSTER)
def getctarank(a: Value) -> Value:
    """The rank of the CTA whose shared memory holds a."""
    return ((a & _RANKS) >> RANK_SHIFT).convert(scalar_type("u32"))


@instruction(
    "isspacep.space p:pred, a:u64",
    space=SPACES,
    category="compare_select",
    unit="alu",
    since=(2, 0),
    target=20,
    requires=NEEDS,
    applied=Applied(reads_rank=True),
)
def isspacep(a: Value, rank: Value, *, space: str) -> Value:
    """Whether a, a generic address, lies in the window of the space; that of .shared::cta is in that of .shared::cluster, that of
    the kernel's parameters in that of .global."""
    if space in ("shared", "shared::cta"):
        own = (rank << RANK_SHIFT).convert(a.type) + WINDOWS["shared"][0]
        return (a - own).compare("lt", 1 << RANK_SHIFT)
    name = space.split("::")[0]
    if name != "global":
        return _within(a, name)
    elsewhere = _within(a, "const")
    for other in ("shared", "local"):
        elsewhere = elsewhere | _within(a, other)
    return ~elsewhere


@instruction(
    "isspacep.space p:pred, a:u32",
    space=SPACES,
    category="compare_select",
    unit="alu",
    since=(2, 0),
    target=20,
    requires=NEEDS,
    applied=Applied(reads_rank=True),
)
def isspacep_short(a: Value, rank: Value, *, space: str) -> Value:
    """Whether a, a generic address of 32 bits, lies in the window of the space."""
    return isspacep(a.convert(scalar_type("u64")), rank, space=space)


def _within(a: Value, space: str) -> Value:
    base, size = WINDOWS[space]
    return (a - base).compare("lt", size)
