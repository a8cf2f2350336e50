"""Results of the engine: plain immutable records, free of engine objects, ready for JSON."""

from __future__ import annotations

from .control_flow import (
    BlockProfile,
    Branches,
    BranchProfile,
    Cause,
    DivergentBranch,
    Explanation,
    LineProfile,
    LoopProfile,
)
from .estimate import Estimate, StalledInstruction, StalledLine
from .finding import Finding, Traffic, added_traffic
from .memory import LINE_BYTES, SECTOR_BYTES, Memory, ObjectFootprint, SiteProfile
from .profile import KernelAttributes, Profile, Resources
from .races import Race, RaceAccess, race_error
from .stalls import Advice, CodeLine, Stall
from .values import AffineFit, ProvenValues, ValueRecord

__all__ = [
    "LINE_BYTES",
    "SECTOR_BYTES",
    "Advice",
    "AffineFit",
    "BlockProfile",
    "BranchProfile",
    "Branches",
    "Cause",
    "CodeLine",
    "DivergentBranch",
    "Estimate",
    "Explanation",
    "Finding",
    "KernelAttributes",
    "LineProfile",
    "LoopProfile",
    "Memory",
    "ObjectFootprint",
    "Profile",
    "ProvenValues",
    "Race",
    "RaceAccess",
    "Resources",
    "SiteProfile",
    "Stall",
    "StalledInstruction",
    "StalledLine",
    "Traffic",
    "ValueRecord",
    "added_traffic",
    "race_error",
]
