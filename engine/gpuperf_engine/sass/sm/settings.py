"""Settings of the method: how much is simulated, and how the rest is worked out from it. Numbers of a machine are in its
description.
"""

from __future__ import annotations

__all__ = [
    "ALIKE_PART",
    "ALIKE_WAVES",
    "BEGINNING",
    "FIRST_CTAS",
    "FIRST_WARPS",
    "MOST_EVENTS",
    "MOST_INSTRUCTIONS",
    "MOST_INSTRUCTIONS_AGAIN",
    "MOST_RUNS",
    "MOST_WAVES",
    "SAMPLE",
    "SEEN_COPIES",
    "START_INSTRUCTIONS",
]

MOST_INSTRUCTIONS = 12_000_000
"""Warp instructions of an SM up to which all of its CTAs are simulated: so many take a second or less."""
MOST_INSTRUCTIONS_AGAIN = 2_000_000
"""Warp instructions of an SM up to which a launch whose CTAs all run at once is simulated on fewer SMs too."""
START_INSTRUCTIONS = 16
"""Warp instructions that take as long to simulate as the start and the end of a CTA."""
MOST_WAVES = 8
"""Waves of CTAs that are simulated at most where there are more instructions; two are in any case. On 50 launches of a prototype whose
CTAs were all simulated too, further CTAs worked out from the third and fourth wave were off by 1.5 % in the mean, from the fifth to
the eighth by 1.1 %."""
ALIKE_WAVES, ALIKE_PART = 6, 128
"""Waves in a row that must take as long as the one before them, within a part (1 / n) of that, for the next ones to be left out: fewer
may be alike by chance while CTAs still drift apart."""
SAMPLE = 12
"""CTAs that stand for all, evenly over the grid, where each does something else: what must be traced grows with them."""
SEEN_COPIES = 4096
"""Words that are recorded of CTAs that run at once, of each warp, to see which copies they share: some 50 copies, more than a pipeline
has stages."""
FIRST_CTAS, FIRST_WARPS = 4096, 1 << 14
"""CTAs, and warps of them, whose first accesses are looked at where addresses do not move by steps along the axes of the grid: as many
as run at once on all machines, but for CTAs of few warps."""
BEGINNING = 8192
"""Words that each of these warps would record until it ends: some hundred blocks, beyond the first round of a loop over tiles."""
MOST_RUNS = 1_000_000
"""Runs of lines, of all CTAs together, of which it is worked out how many are different; of more a part of each CTA's."""
MOST_EVENTS = 1 << 16
"""Events of a window that are kept: more than a picture of it can show."""
