"""Where versions of ptxas differ from each other: what of them departs from the manual, which the table follows.

PTX 9.n is what ptxas of CUDA 13.n reads. The table was held against the ptxas of CUDA 13.0 to 13.5.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .assembler import ptxas_version


class Departure(NamedTuple):
    """Instructions that ptxas of these PTX versions, both included, treats otherwise than the manual."""

    pattern: re.Pattern[str]
    first: tuple[int, int]
    last: tuple[int, int]
    reason: str


DEPARTURES = (
    Departure(
        re.compile(r"^fence\.(acquire|release)\.(cta|cluster|gpu|sys)\b"), (0, 0), (9, 0),
        "asked for no more than fence, the manual for .version 8.6 and sm_90",
    ),
    Departure(
        re.compile(r"^(st|red)\.async\b(?=\S*\.mmio)\S*\.gpu\b"), (0, 0), (9, 0),
        "took .mmio with .gpu, the manual with .sys alone",
    ),
    Departure(
        re.compile(r"^tcgen05\.dealloc\S* \w+, (0|4294967296);"), (0, 0), (9, 1),
        "freed no columns of tensor memory, the manual at least 32",
    ),
    Departure(
        re.compile(r"^tcgen05\.commit\S*multicast::cluster\S* .*\], -?\d+;"), (0, 0), (9, 3),
        "took no constant as mask of blocks",
    ),
    Departure(
        re.compile(r"^tcgen05\.mma\S*block_scale(?!\S*(block32|block16|scale_vec))"), (0, 0), (9, 0),
        "asked for the version of .block32 where no size of the blocks is written, the manual for none",
    ),
)  # fmt: skip


def departs(text: str) -> bool:
    """Whether this ptxas is known to treat an instruction otherwise than the manual."""
    return any(
        departure.first <= ptxas_version() <= departure.last and departure.pattern.search(text)
        for departure in DEPARTURES
    )
