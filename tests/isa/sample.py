"""Which of many like cases run by default: those that take long to compile are drawn by the hash of their name.
``GPUPERF_PRODUCTS=all`` runs every one."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

__all__ = ["ALL", "is_drawn", "sampled"]

ALL = os.environ.get("GPUPERF_PRODUCTS") == "all"


def is_drawn(name: str, one_of: int) -> bool:
    """Whether a case is among the one in ``one_of`` that run by default."""
    return ALL or zlib.crc32(name.encode()) % one_of == 0


def sampled(names: Iterable[str], one_of: int) -> list[str]:
    """The cases that run."""
    return [name for name in names if is_drawn(name, one_of)]
