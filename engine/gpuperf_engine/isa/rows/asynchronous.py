"""Asynchronous copies that are not bulk copies (manual: cp.async). Copies are complete when they are issued."""

from __future__ import annotations

from .. import effects
from ..model import Accepts
from ..table import Options, declare

COPY: Options = {
    "category": "load_store",
    "unit": "lsu",
    "effect": effects.ASYNC_COPY,
    "since": (7, 0),
    "target": 80,
    "requires": {
        "L2::cache_hint": ((7, 4), 80),
        "L2::64B": ((7, 4), 80),
        "L2::128B": ((7, 4), 80),
        "L2::256B": ((7, 4), 80),
    },
}
TRANSFER: Options = {
    **COPY,
    "cop": "ca cg",
    "to": "shared shared::cta",
    "hint": "L2::cache_hint",
    "size": "L2::64B L2::128B L2::256B",
    "accepts": Accepts(
        constants={
            "bytes": (lambda size: size in (4, 8, 16), "4, 8 or 16 bytes"),
            "bytes cg": (lambda size: size == 16, "16 bytes with .cg"),
            "source_bytes": (lambda size: 0 <= size <= 16, "0 to 16"),
        }
    ),
}

declare(
    "cp.async.cop.to.global{.hint}{.size} [d]:to, [a], bytes:imm{, source_bytes:u32}, policy:u64?hint",
    "Copies 4, 8 or 16 bytes from global to shared memory, zeros beyond source_bytes.",
    **TRANSFER,
)
declare(
    "cp.async.cop.to.global{.hint}{.size} [d]:to, [a], bytes:imm, {!}ignore:pred, policy:u64?hint",
    "Copies 4, 8 or 16 bytes from global to shared memory, zeros where ignore holds.",
    **{**TRANSFER, "since": (7, 5)},
)
declare("cp.async.commit_group", "Makes a group of this thread's copies so far.", **COPY)
declare("cp.async.wait_group n:imm", "Waits until at most n groups of copies are pending.", **COPY)
declare("cp.async.wait_all", "Waits until all copies of this thread are done.", **COPY)
declare(
    "cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]",
    "Arrives at an mbarrier when all copies of this thread are done.",
    space="shared shared::cta",
    **{**COPY, "effect": effects.MBARRIER, "requires": {"shared::cta": ((7, 8), 80)}},
)
