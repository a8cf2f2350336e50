"""Taking over clusters that have not started (manual: clusterlaunchcontrol). The schedule decides which requests succeed
(``simt.schedule``). NVIDIA does not document the layout of the response; here it is 1 and three coordinates, or zeros on failure.
"""

from __future__ import annotations

from .. import effects
from ..availability import Available
from ..primitives import Value, split
from ..table import Options, declare, instruction
from .bulk import OWN, TELLS

UNIT: Options = {"category": "misc", "unit": "lsu"}
CONTROL: Options = {**UNIT, "since": (8, 6), "target": 100}
ASKS: Options = {"effect": effects.BULK_COPY, "space": OWN}

declare(
    f"clusterlaunchcontrol.try_cancel.async{{.space}}.{TELLS}.b128 [a], [m]",
    "Cancels the next cluster that has not started, if any; writes the response at a and signals the mbarrier at m.",
    **ASKS,
    **CONTROL,
)
declare(
    f"clusterlaunchcontrol.try_cancel.async{{.space}}.{TELLS}.multicast.b128 [a], [m]",
    "The same, with the response and the telling in every block of the cluster.",
    multicast="multicast::cluster::all",
    available=Available(since=(8, 6), target=100, variant="a"),
    **ASKS,
    **UNIT,
)


@instruction("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p:pred, a:b128", **CONTROL)
def is_canceled(a: Value) -> Value:
    """Whether a request succeeded, by its response."""
    lowest, *_ = split(a, 4)
    return lowest.compare("ne", 0)


@instruction("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 d:b32*4, a:b128", **CONTROL)
def first_ctaid(a: Value) -> tuple[Value, ...]:
    """The first block of the cluster that was taken over; the fourth element means nothing."""
    other, x, y, z = split(a, 4)
    return x, y, z, other


@instruction(
    "clusterlaunchcontrol.query_cancel.part.b32.b128 d:b32, a:b128",
    part="get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z",
    **CONTROL,
)
def first_ctaid_part(a: Value, *, part: str) -> Value:
    """One coordinate of the first block of the cluster that was taken over."""
    return split(a, 4)[1 + "xyz".index(part[-1])]
