"""Conversion of program counters and identities of stack entries between ``simt.stack`` and compiled code (unsigned 32 bits)."""

from __future__ import annotations

from ..simt.live_registers import BEHIND
from ..simt.stack_entries import AFTER, AT_END, AT_WAIT
from .ir.codes import EXIT_CODE, GATHER_CODE, RETURN_CODE, SYNC_CODE, WAIT_CODE

__all__ = ["decoded"]


def decoded(code: int) -> int:
    """A program counter or identity of compiled code as in ``simt.stack``."""
    if code >= EXIT_CODE:
        return EXIT_CODE - code - 1
    if code >= SYNC_CODE:
        return code - SYNC_CODE + AFTER
    if code >= RETURN_CODE:
        return code - RETURN_CODE + BEHIND
    if code >= GATHER_CODE:
        return code - GATHER_CODE + AT_END
    return code - WAIT_CODE + AT_WAIT if code >= WAIT_CODE else code
