"""The rows of the instruction table, one family a file. Importing this package fills the table.

PYTEST_DONT_REWRITE
"""

from . import (
    asynchronous,
    atomic,
    barrier,
    compare,
    control,
    convert,
    extended,
    floating,
    half,
    integer,
    logic,
    matrix,
    memory,
    move,
    narrow,
    scaled,
    sparse,
    special_function,
    video,
    video_packed,
    warp,
    wmma,
)

__all__ = [
    "asynchronous",
    "atomic",
    "barrier",
    "compare",
    "control",
    "convert",
    "extended",
    "floating",
    "half",
    "integer",
    "logic",
    "matrix",
    "memory",
    "move",
    "narrow",
    "scaled",
    "sparse",
    "special_function",
    "video",
    "video_packed",
    "warp",
    "wmma",
]
