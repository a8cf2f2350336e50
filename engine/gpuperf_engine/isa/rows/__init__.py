"""The rows of the instruction table, one family a file. Importing this package fills the table."""

from . import barrier, compare, control, convert, floating, integer, logic, memory, move

__all__ = ["barrier", "compare", "control", "convert", "floating", "integer", "logic", "memory", "move"]
