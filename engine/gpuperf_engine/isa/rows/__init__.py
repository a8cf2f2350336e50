"""The rows of the instruction table, one family a file. Importing this package fills the table."""

from . import (
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
    memory,
    move,
    narrow,
    special_function,
    warp,
)

__all__ = [
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
    "memory",
    "move",
    "narrow",
    "special_function",
    "warp",
]
