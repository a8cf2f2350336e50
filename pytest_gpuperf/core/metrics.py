"""Every metric the gate knows, one row each.

The order here is the order of baselines and reports. All else follows from the rows: what is measured, what a baseline must hold, what
is compared, which lines made it move, the published schemas and the table in ``docs/metrics.md`` (``make docs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from .metric import MACHINE, SIGNIFICANT_DIGITS, Metric, Table
from .records import Access

__all__ = ["ANALYSIS", "METRICS", "TABLE", "UNKNOWN", "UNSAID"]


def _sectors(*kinds: str) -> Callable[[Access], int]:
    # reports of earlier versions do not say the kind
    return lambda row: row["sectors"] if row.get("kind", "") in kinds else 0


def _serializations(row: Access) -> int:
    return int(row["serializations"] - row["shared_serializations"]) if row.get("kind", "") else 0


def _machine(*rows: tuple[str, str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Metrics of the machine code for a target."""
    for name, said, more in rows:
        kind, better, unit = (more.get(key, usual) for key, usual in _USUAL.items())
        rest = {"since": 3, **{key: value for key, value in more.items() if key not in _USUAL}}
        yield Metric(
            f"machine.{name}", kind, better, unit, said,
            read=attrgetter(name), path=("machine_code", name), group=MACHINE, per_target=True, **rest,
        )  # fmt: skip


_USUAL = {"kind": "exact", "better": "lower", "unit": ""}

METRICS: tuple[Metric, ...] = (
    Metric("launches", "exact", "lower", "", "launches of the kernel in the test"),
    Metric(
        "thread_instructions", "exact", "lower", "", "instructions, once per active lane",
        path=("counts", "thread_instructions"), lines=("threads",),
        decided_by="machine.thread_instructions",
    ),
    Metric(
        "warp_instructions", "exact", "lower", "", "instructions, once per warp",
        path=("counts", "warp_instructions"), lines=("warps",),
        decided_by="machine.warp_instructions",
    ),
    Metric(
        "thread_instructions_predicated_on", "exact", "neutral", "",
        "instructions, once per active lane whose guard holds",
        path=("counts", "thread_instructions_predicated_on"), since=2,
        lines=("threads",),  # guards are not counted by line
    ),
    Metric(
        "opcodes", "set", "neutral", "", "executions of each opcode with all its modifiers",
        path=("counts", "opcodes"),
    ),
    Metric(
        "branches.executed", "exact", "lower", "", "conditional branches, once per warp", lines=("executed",),
        decided_by="machine.warp_instructions",
    ),
    Metric(
        "branches.divergent", "exact", "lower", "", "branches at which lanes of a warp diverged", lines=("divergent",),
        decided_by="machine.warp_instructions",
    ),
    Metric(
        "branches.efficiency", "ratio", "higher", "%", "share of branches that did not diverge",
        digits=6, lines=("divergent", "executed"),
        decided_by="machine.warp_instructions",
    ),
    Metric(
        "memory.global_load_sectors", "exact", "lower", "", "32-byte sectors of global loads",
        access=_sectors("load"),
        decided_by="machine.global_load_sectors",
    ),
    Metric(
        "memory.global_store_sectors", "exact", "lower", "", "32-byte sectors of global stores", access=_sectors("store"),
        decided_by="machine.global_store_sectors",
    ),
    Metric(
        "memory.global_load_wavefronts", "exact", "lower", "",
        "wavefronts of global loads in the banks of L1",
        since=2, access=lambda row: row.get("global_wavefronts", 0),
        decided_by="machine.global_load_wavefronts",
    ),
    Metric(
        "memory.global_atomic_sectors", "exact", "lower", "", "sectors of global atomics and reductions",
        since=2, access=_sectors("atomic", "reduction"),
        decided_by="machine.global_atomic_sectors",
    ),
    Metric(
        "memory.global_atomic_serializations", "exact", "lower", "",
        "lanes of global atomics that are served one by one",
        since=2, formerly=("memory.global_atomic_turns",), access=_serializations,
    ),
    Metric(
        "memory.global_atomic_hottest", "exact", "lower", "",
        "lanes of global atomics on the hottest address",
        since=3, lines=("global_atomic_serializations", "global_atomic_sectors"),
    ),
    Metric(
        "memory.shared_wavefronts", "exact", "lower", "", "wavefronts of shared memory",
        since=2, access=lambda row: row["wavefronts"],
        decided_by="machine.shared_wavefronts",
    ),
    Metric(
        "memory.shared_conflicts", "exact", "lower", "", "wavefronts of shared memory beyond those that the access widths need",
        access=lambda row: row["conflicts"],
        decided_by="machine.shared_wavefronts",
    ),
    Metric(
        "memory.local_sectors", "exact", "lower", "", "sectors of local memory",
        since=2, access=lambda row: row["local_sectors"],
    ),
    Metric(
        "memory.local_bytes", "exact", "lower", "B", "bytes moved to and from local memory",
        access=lambda row: row.get("local_bytes", 0),
    ),
    Metric(
        "resources.registers", "exact", "lower", "",
        "32-bit registers per thread; an estimate is [modelled](#resources)",
        group="resources", estimated="25%&8",
    ),
    Metric(
        "resources.shared_bytes", "exact", "lower", "B", "shared memory per block, static and dynamic",
        group="resources",
    ),
    Metric("resources.local_bytes", "exact", "lower", "B", "local memory per thread", group="resources"),
    Metric(
        "findings", "set", "lower", "",
        "[value findings](#values): a new one fails, one that disappears is an improvement", group="findings",
    ),
    Metric(
        "time_us", "modelled", "lower", "us", "predicted time of all launches, per target",
        group="time", per_target=True, digits=SIGNIFICANT_DIGITS, tolerance="2%&0.05us",
    ),
    Metric(
        "occupancy", "ratio", "neutral", "",
        "resident warps ÷ the maximum of an SM, predicted, per target",
        group="time", per_target=True, digits=SIGNIFICANT_DIGITS, estimated="25%",
    ),
    *_machine(
        ("warp_instructions", "machine instructions, once per warp", {"open": True, "lines": ("warps",)}),
        ("thread_instructions", "machine instructions, once per active lane", {"open": True, "lines": ("threads",)}),
        ("registers", "registers per thread", {}),
        ("stack_bytes", "local memory per thread, spills included", {"unit": "B"}),
        ("code_bytes", "size of the code", {"unit": "B", "better": "neutral"}),
        ("spill_loads", "loads of spilled registers, once per warp", {"open": True}),
        ("spill_stores", "stores of spilled registers, once per warp", {"open": True}),
        ("shared_load_requests", "loads of shared memory, once per warp", {"open": True, "lines": ("shared_wavefronts",)}),
        ("shared_load_wavefronts", "wavefronts of shared loads", {"missing": True, "lines": ("shared_wavefronts",)}),
        (
            "shared_wavefronts", "wavefronts of all accesses of shared memory",
            {"missing": True, "lines": ("shared_wavefronts",), "since": 4},
        ),
        (
            "global_load_wavefronts", "wavefronts of global loads in the banks of L1",
            {"missing": True, "lines": ("global_load_wavefronts",), "since": 4},
        ),
        *(
            (f"global_{kind}_sectors", said, {"missing": True, "lines": (f"global_{kind}_sectors",)})
            for kind, said in (
                ("load", "32-byte sectors of global loads that the assembler kept"),
                ("store", "32-byte sectors of global stores that it kept"),
                ("atomic", "32-byte sectors of global atomics and reductions that it kept"),
            )
        ),
        (
            "residue", "share of the warp instructions that PTX counts do not determine, or that depend on the order of threads",
            {"kind": "ratio", "better": "neutral", "digits": SIGNIFICANT_DIGITS},
        ),
    ),
    Metric(
        "flops.*", "exact", "neutral", "",
        "floating-point operations by precision, operations of matrix products by type",
        lines=("threads",), work=1,
    ),
    Metric(
        "counts.by_category.*", "exact", "neutral", "", "thread instructions by category",
        read=attrgetter("by_category"), lines=("threads",), work=0,
    ),
)  # fmt: skip
"""A new row needs a ``since`` of no released version."""

TABLE = Table(METRICS)
"""The metrics of the gate itself."""

UNKNOWN = 0
"""Revision of numbers whose definition is unknown: never the present one."""

ANALYSIS: Mapping[str, int] = {
    "counts": 1,
    "findings": 12,
    "time": 6,
    "metrics": max(metric.since for metric in METRICS),
}
"""Revision of the meaning of each group of metrics, and of the table of ``metrics``. Raise one of the groups by hand when a number
of it comes to mean something else: stored numbers then count as incomparable instead of as regressions."""

UNSAID: Mapping[str, int] = {**dict.fromkeys(ANALYSIS, UNKNOWN), "metrics": 1}
"""Revisions of a baseline without revisions: the table had none at first."""
