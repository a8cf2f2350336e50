"""Settings of the method: how much is simulated, and how the rest is extrapolated. Numbers of a machine are in its description."""

from __future__ import annotations

__all__ = [
    "ALIKE_PART",
    "ALIKE_WAVES",
    "BEGINNING",
    "FIRST_CTAS",
    "FIRST_WARPS",
    "LISTED",
    "MOST_EVENTS",
    "MOST_INSTRUCTIONS",
    "MOST_INSTRUCTIONS_AGAIN",
    "MOST_LOOKED_UP",
    "MOST_PROBED",
    "MOST_RUNS",
    "MOST_WAVES",
    "ORDERED",
    "PATH_WORDS",
    "PROBED",
    "READ_CTAS",
    "READ_WORDS",
    "SAMPLE",
    "SEEN_COPIES",
    "START_INSTRUCTIONS",
]

MOST_INSTRUCTIONS = 12_000_000
"""If the CTAs of an SM execute at most this many warp instructions, all CTAs are simulated; this takes a second or less."""
MOST_INSTRUCTIONS_AGAIN = 2_000_000
"""A launch whose CTAs all run at once is also simulated on fewer SMs, up to this many warp instructions of an SM."""
START_INSTRUCTIONS = 16
"""The start and the end of a CTA take as long to simulate as this many warp instructions."""
MOST_WAVES = 8
"""The most waves of CTAs that are simulated of a longer launch; at least two are. On 50 launches of a prototype whose CTAs were
also all simulated, CTAs extrapolated from the third and fourth wave had a mean error of 1.5 %, from the fifth to the eighth wave of
1.1 %."""
ALIKE_WAVES, ALIKE_PART = 6, 128
"""The next waves are skipped after this many consecutive waves that each differ from the wave before by at most 1 / n of its time.
Fewer waves may agree by chance while CTAs still drift apart."""
SAMPLE = 12
"""CTAs sampled evenly over the grid, if each CTA executes different instructions. The cost of the trace grows with them."""
PROBED = 64
"""CTAs spread over the grid whose paths are compared with that of the CTA in its middle, besides those next to the edges."""
PATH_WORDS = 1024
"""Words that tell the path of a warp: some tens of blocks. A warp ends when it would have recorded more."""
MOST_PROBED = 1 << 17
"""Warps whose paths are examined if CTAs differ: 0.1 s on one core."""
ORDERED = 256
"""The most CTAs of an SM that run in the order of the grid if CTAs differ by area. Of more, or if only some are simulated, any part
has the mean share of each class."""
LISTED = 32
"""Waves of CTAs, besides those that start at once, that are given to SMs one after the other to find how much more than the mean the
SM has that ends last. Before them, the SMs have the mean."""
SEEN_COPIES = 4096
"""Words recorded of each warp of concurrent CTAs to find the copies that they share: about 50 copies, more than a pipeline has
stages."""
FIRST_CTAS, FIRST_WARPS = 4096, 1 << 14
"""CTAs, and warps of them, whose first accesses are examined if addresses are not linear in the position in the grid: as many as run
at once on any machine, except for CTAs of few warps."""
BEGINNING = 8192
"""Words that each of these warps records before it ends: some hundred blocks, more than the first iteration of a loop over tiles."""
READ_CTAS = 96
"""CTAs whose reads from L2 are counted, besides those that fill L1 and those that run last."""
READ_WORDS = 1 << 24
"""Words that the traces of these CTAs have at most: 64 MiB."""
MOST_RUNS = 1_000_000
"""Runs of sectors, of all CTAs together, whose union is computed. Of more runs, a part of each CTA's is used."""
MOST_LOOKED_UP = 1 << 22
"""CTAs of a grid of which those that access memory are counted, if CTAs differ."""
MOST_EVENTS = 1 << 16
"""Events of a window that are kept, more than a picture of it can show."""
