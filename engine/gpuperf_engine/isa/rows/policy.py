"""Cache policies (manual: ``createpolicy``). Their bits, which the manual does not specify, are those that ptxas 13 computes; loads
and stores ignore them.
"""

from __future__ import annotations

from ..model import Accepts, Applied
from ..primitives import Value, clz, maximum, minimum, select
from ..table import Options, instruction
from ..types import scalar_type

U32, U64 = scalar_type("u32"), scalar_type("u64")
POLICY: Options = {"category": "misc", "unit": "alu", "since": (7, 4), "target": 80}
PRIORITIES = {"L2::evict_unchanged": 0, "L2::evict_first": 1, "L2::evict_last": 2, "L2::evict_normal": 3}
LEVELS: Options = {
    "primary": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
    "secondary": "L2::evict_first L2::evict_unchanged",
}


def _levels(primary: str, secondary: str | None) -> int:
    """The bits of both priorities, in the upper half of a policy."""
    return PRIORITIES[primary] << 25 | PRIORITIES[secondary or "L2::evict_unchanged"] << 24


def _upper(word: Value) -> Value:
    return word.convert(U64) << 32


PART = "fraction is not a part of the cache lines", "more than 0, at most 1"


@instruction(
    "createpolicy.fractional.primary{.secondary}.b64 d:u64, fraction:f32",
    applied=Applied(checked=PART),
    accepts=Accepts(constants={"fraction": (lambda part: 0 < part <= 1, PART[1])}),
    **LEVELS,
    **POLICY,
)
def fractional(fraction: Value, *, primary: str, secondary: str | None) -> tuple[Value, Value]:
    """A cache policy: the primary priority for this part of the cache lines, the secondary for the others."""
    sixteenths = fraction.mul(15.989999771118164).convert(U32, rounding="rzi") & 15
    policy = _upper((sixteenths << 20) | (0x10000000 | _levels(primary, secondary)))
    return policy, ~(fraction.compare("gt", 0.0) & fraction.compare("le", 1.0))


@instruction("createpolicy.fractional.primary{.secondary}.b64 d:u64", **LEVELS, **POLICY)
def whole(zero: Value, *, primary: str, secondary: str | None) -> Value:
    """A cache policy: the primary priority for all cache lines."""
    return _upper(zero | (0x10F00000 | _levels(primary, secondary)))


ORDER = "primary_size is more than total_size", "primary_size of at most total_size, as unsigned numbers"


@instruction(
    "createpolicy.range{.space}.primary{.secondary}.b64 d:u64, [a], primary_size:u32, total_size:u32",
    space="global",
    applied=Applied(checked=ORDER),
    accepts=Accepts(
        constants={
            "primary_size,total_size": (
                lambda primary, total: int(primary) % 2**32 <= int(total) % 2**32,
                ORDER[1],
            )
        }
    ),
    **LEVELS,
    **POLICY,
)
def ranged(
    a: Value, primary_size: Value, total_size: Value, *, primary: str, secondary: str | None
) -> tuple[Value, Value]:
    """A cache policy: the primary priority for the first bytes from a on, the secondary for the rest of the total."""
    shift = maximum(32 - clz(total_size - 1), 19) - 7
    first = a >> shift
    last = (a + ((primary_size.constant(1, U32) << shift) - 1 + primary_size).convert(a.type)) >> shift
    count = minimum(last - first, 127).convert(U32)
    block = first.convert(U32) & 127
    encoded = ((shift - 12) << 20) | (block << 12) | (count << 5) | (0x18000000 | _levels(primary, secondary))
    policy = _upper(select(total_size.compare("eq", 0), encoded.constant(0x18000000, U32), encoded))
    return policy, primary_size.compare("gt", total_size)


@instruction("createpolicy.cvt.L2.b64 d:u64, a:u64", **POLICY)
def converted(a: Value) -> Value:
    """The cache policy of an access property of the CUDA API, which has the same bits."""
    return a
