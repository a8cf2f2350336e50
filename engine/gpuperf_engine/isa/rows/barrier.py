"""Barriers and memory order (manual: "Parallel Synchronization and Communication Instructions": bar, barrier, fence)."""

from __future__ import annotations

from ..table import declare

BARRIER = {"category": "barrier", "unit": "adu"}

declare("bar{.cta}.sync a:u32{, b:u32}", "Waits until all threads (b of them) arrived at barrier a.", effect="barrier", **BARRIER)
