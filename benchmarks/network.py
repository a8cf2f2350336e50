"""The convolutional network of the examples as a table in the manner of HyPA's, for ``docs/network.md``."""

from __future__ import annotations

from collections.abc import Sequence

import gpuperf_engine as ge
from examples.cnn.layers import small_network
from examples.cnn.network import profiles

__all__ = ["render"]

BATCH, SIDE = 64, 224

TEXT = """\
# A network, counted without computing it

HyPA (Metz, Plump, Berger, Drechsler: *Hybrid PTX Analysis for GPU accelerated CNN inferencing aiding Computer Architecture
Design*, FDL 2023) profiles the kernels of convolutional networks by emulating only the instructions that decide their branches.
This page repeats the experiment on the [network of the examples](../examples/README.md): {launches} launches of {kernels}
kernels for {batch} images of {side} × {side}, under the [demand](engine.md#demands) `control`. No layer is computed, and every
count is exact: for two images of 32 × 32, which are computed in a second, a test compares it with the whole program block by
block and branch by branch.

```console
$ python -m examples.cnn.network --batch {batch} --side {side} -o network.csv
```

*Slice* is the share of the dynamic instructions that decide control flow, *executed* the share that the analysis ran: one
block represents all that behave identically. *Divergent* counts branches, once per warp, at which its lanes diverge. The borders of
the convolutions cause none: there these kernels copy zeros instead of branching.

"""
HEAD = (
    *("layer", "kernel", "CTAs", "threads", "static", "dynamic", "floating point"),
    *("slice", "executed", "divergent", "per CTA", "branch efficiency"),
)


def render() -> str:
    """The page: a row per layer and the sum of all."""
    network = small_network(BATCH, SIDE)
    measured = profiles(network)
    rows = [
        (layer.name, f"`{layer.entry}`", *_row([profile]))
        for layer, profile in zip(network.layers, measured, strict=True)
    ]
    rule = ("---", "---", *["--:"] * (len(HEAD) - 2))
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, rule, *rows, ("all", "", *_row(measured)))]
    kernels = len({profile.kernel for profile in measured})
    return TEXT.format(launches=len(measured), kernels=kernels, batch=BATCH, side=SIDE) + "\n".join(lines)


def _row(found: Sequence[ge.Profile]) -> tuple[str, ...]:
    rows = ge.csv_rows(found)

    def total(column: str) -> int:
        return sum(int(row[column]) for row in rows)

    def percent(share: str) -> str:
        part = sum(getattr(profile, share) * profile.thread_instructions for profile in found)
        value = 100 * part / total("dynamic_instructions")
        return f"{value:.2f} %" if value >= 0.01 else "< 0.01 %"

    branches = sum(profile.branches.executed for profile in found)
    divergent = total("divergent_branches")
    return (
        f"{total('ctas'):,}",
        f"{total('threads'):,}",
        f"{total('static_instructions'):,}" if len(found) == 1 else "",
        f"{total('dynamic_instructions'):,}",
        f"{total('floating_point_instructions'):,}",
        percent("slice_share"),
        percent("share_executed"),
        f"{divergent:,}",
        f"{divergent / total('ctas'):.3g}",
        f"{100 * (branches - divergent) / branches if branches else 100:.2f} %",
    )
