"""What each instruction that one thread can carry out alone does to that thread."""

from __future__ import annotations

from . import (
    access,
    arithmetic,
    conversion,
    copies,
    launch_control,
    logic,
    mbarriers,
    tensor_products,
    video,
    warpgroup,
    wmma,
)
from .registry import SEMANTICS

# importing a family fills the table
__all__ = [
    "SEMANTICS",
    "access",
    "arithmetic",
    "conversion",
    "copies",
    "launch_control",
    "logic",
    "mbarriers",
    "tensor_products",
    "video",
    "warpgroup",
    "wmma",
]
