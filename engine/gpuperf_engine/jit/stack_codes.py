"""Program counters and identities of stack entries: as ``simt.stack`` has them, and as compiled code does, in unsigned 32 bits."""

from __future__ import annotations

from ..simt.live_registers import BEHIND
from ..simt.stack_entries import AFTER, AT_END, AT_WAIT
from .ir.codes import EXIT_CODE, GATHER_CODE, RETURN_CODE, SYNC_CODE, WAIT_CODE

__all__ = ["decoded"]


def decoded(code: int) -> int:
    """Places and identities of compiled code as ``Warp`` has them."""
    if code >= EXIT_CODE:
        return EXIT_CODE - code - 1
    if code >= SYNC_CODE:
        return code - SYNC_CODE + AFTER
    if code >= RETURN_CODE:
        return code - RETURN_CODE + BEHIND
    if code >= GATHER_CODE:
        return code - GATHER_CODE + AT_END
    return code - WAIT_CODE + AT_WAIT if code >= WAIT_CODE else code
