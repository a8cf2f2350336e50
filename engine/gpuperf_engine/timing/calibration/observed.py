"""Costs that microbenchmarks measure and no model uses, for users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["Steps", "observed"]

#: Name, the case in which each operation is that, and the fraction of the operation.
OBSERVED = (
    ("barrier of 1 warp", "barrier/1warps", 1.0),
    ("barrier of 32 warps", "barrier/32warps", 1.0),
    ("barrier of a cluster of 2 CTAs, 8 warps each", "barrier_cluster/8warps", 1.0),
    ("load from shared memory through the cluster, own CTA", "chase_cluster_here", 1.0),
    ("load from shared memory through the cluster, other CTA", "chase_cluster_away", 1.0),
    ("mbarrier: arrival and a wait that finds it complete", "mbarrier_pass", 1.0),
    ("mbarrier: arrival until the warp that waits goes on", "mbarrier_wake", 0.5),
    ("cp.async of 16 bytes a lane, with its wait", "copy_async", 1.0),
    ("bulk copy of 1 KiB from L2, with its wait", "bulk_copy_1024", 1.0),
    ("bulk copy of 32 KiB from L2, with its wait", "bulk_copy_32768", 1.0),
    ("bulk copy of 1 KiB, eight on the way", "bulk_copy_8x1024/one", 1.0),
    ("tensor box of 32 x 32 words from L2, with its wait", "box_copy_32x32", 1.0),
    ("tensor box of 32 x 32 words, eight on the way", "box_copy_8x32x32/one", 1.0),
    ("atom.shared.add, lanes on one word", "atomic_shared_same/one", 1.0),
    ("atom.shared.add, lanes on their own words", "atomic_shared_lanes/one", 1.0),
    ("atom.global.add, lanes on one word", "atomic_global_same/one", 1.0),
    ("atom.global.add, lanes on their own words", "atomic_global_lanes/one", 1.0),
    *((f"warp's loads from shared memory {n} words apart, SM full", f"shared_load/stride{n}", 1 / 16) for n in (1, 2, 32)),
    *((f"warp's loads from L1 {n} words apart, SM full", f"global_load_ca/stride{n}", 1 / 16) for n in (1, 2, 8, 32)),
)  # fmt: skip


class Steps(Protocol):
    """Collected cases as cycles; a missing case raises ``KeyError``."""

    def step(self, case: str) -> float: ...
    def warpgroup(self) -> tuple[float, float]: ...


def observed(steps: Steps) -> Iterator[tuple[str, float, str]]:
    """Name, cycles and case of each cost that was collected."""
    for name, case, scale in OBSERVED:
        try:
            yield name, steps.step(case) * scale, case
        except KeyError:
            continue
    try:
        each, rest = steps.warpgroup()
        yield "wgmma m64n256k16", each, "wgmma_n256_16 less wgmma_n256_4"
        yield "wgmma: fence, commit and wait of a group", rest, "wgmma_n256_4 less 4 products"
    except KeyError:
        pass
