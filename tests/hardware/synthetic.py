"""SYNTHETIC microbenchmark results: what a machine with known numbers would measure, by arithmetic of their definitions.

No GPU made these; they test that calibrating recovers the numbers they were computed from. Launches are those of
``ptx/micro.json``; every time carries the costs that real ones have: a fixed number of cycles before and after, a loop around the
instructions, an event's and a launch's microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hardware import micro

#: the machine that is to be recovered
KNOWN: dict[str, float] = {
    "chip.clock": 1755, "sm.issue_rate": 1, "registers.read_rate": 2, "latency.fma": 4, "latency.alu": 5, "latency.imad": 6,
    "latency.fp64": 17, "latency.fp16": 7, "latency.xu": 23, "latency.tensor": 34, "latency.shuffle": 24, "latency.shared": 30,
    "latency.l1": 38, "latency.l2": 273, "latency.l2_far": 490, "latency.dram": 661, "lanes.fma": 32, "lanes.alu": 16,
    "lanes.imad": 16, "lanes.fp64": 16, "lanes.fp16": 32, "lanes.xu": 4, "lanes.lsu": 8, "lanes.tensor": 16, "lanes.adu": 5.33,
    "cache.l1_bandwidth": 121, "cache.l1_tag_rate": 4, "cache.l2_sm_bandwidth": 58, "cache.l2_bandwidth": 4100,
    "dram.sustained_one_way": 3100, "dram.sustained_mixed": 2900, "launch.cta_turnaround": 430, "launch.cta_rate": 0.8,
    "launch.overhead": 0.9,
}  # fmt: skip
#: what the driver says of that machine
ABOUT: dict[str, Any] = {
    "part": "micro", "gpu": "SYNTHETIC H100", "driver": "999.00", "cuda": "13.0", "date": "2026-01-02T03:04:05Z", "commit": "abcdef0",
    "capability_major": 9, "capability_minor": 0, "sm_count": 132, "memory_bytes": 80 << 30, "l2_bytes": 52428800,
    "threads_per_sm": 2048, "ctas_per_sm": 32, "registers_per_sm": 65536, "shared_per_sm": 233472,
    "shared_per_block_optin": 232448,
}  # fmt: skip
#: cycles of a kernel around what it measures, and of each of its eight turns; microseconds of two events and a launch
AROUND, TURN, EVENTS = 30.0, 6.0, 4.2
#: cycles of what has no place in a machine description: a commit group, a round of two warps at an
#: mbarrier, a tensor copy, a load from another CTA
OBSERVED = {"commit": 60.0, "wake": 90.0, "box": 700.0, "away": 200.0}
ONE_STEP = {
    "latency_fma_rn_f32": "fma", "latency_lop3": "alu", "latency_mad_lo_s32": "imad", "latency_fma_rn_f64": "fp64",
    "latency_fma_rn_f16x2": "fp16", "latency_rsqrt_approx_f32": "xu", "latency_mma_m16n8k16_f32_f16": "tensor",
    "latency_shfl_idx": "shuffle", "chase_shared": "shared", "chase_ca/l1": "l1", "chase_cg/l2": "l2",
    "chase_cg/l2_far": "l2_far", "chase_cg/dram": "dram",
}  # fmt: skip
ALL_WARPS = {
    "rate_fma_rn_f32": "fma", "rate_lop3": "alu", "rate_mad_lo_s32": "imad", "rate_fma_rn_f64": "fp64",
    "rate_fma_rn_f16x2": "fp16", "rate_ex2_approx_f32": "xu", "shared_load/stride1": "lsu",
}  # fmt: skip


def results(
    known: Mapping[str, float] = KNOWN, about: Mapping[str, Any] = ABOUT
) -> dict[str, dict[str, Any]]:
    """The lines of the cases, by name."""
    _, launches = micro.kernels()
    mhz, sms = known["chip.clock"], about["sm_count"]
    made: dict[str, dict[str, Any]] = {}

    def case(name: str, cycles: float, microseconds: float | None = None, **more: Any) -> None:
        launch = launches[name]
        ctas = launch["ctas"] or sms * launch["ctas_per_sm"]
        size = (
            int(about["l2_bytes"] * launch["l2_share"]) >> 16 << 16 if launch["l2_share"] else launch["bytes"]
        )
        time = EVENTS + cycles / mhz if microseconds is None else microseconds
        made[name] = {
            "case": name, "ctas": ctas, "threads": launch["threads"], "bytes": size, "operations": launch["operations"],
            "cycles": [round(cycles)], "longest": round(cycles), "ns": [round(1e3 * cycles / mhz)],
            "us": [round(time * factor, 4) for factor in (1.0, 1.01, 0.99, 1.0, 1.02)], **more,
        }  # fmt: skip

    case("empty", AROUND)
    warps = launches["rate_issue"]["threads"] // 32 // 4
    case(
        "rate_issue",
        AROUND + 8 * TURN + warps * launches["rate_issue"]["operations"] / known["sm.issue_rate"],
    )
    for count in (1, 4, 16):  # products of 256 units of 1 024 multiply-adds, over four sub-partitions
        each = 256 / 4 * 32 / known["lanes.tensor"]
        case(f"wgmma_n256_{count}", AROUND + 8 * (TURN + OBSERVED["commit"] + count * each))
    fma = launches["rate_fma_three"]
    each = max(32 / known["lanes.fma"], 3 / known["registers.read_rate"])
    case("rate_fma_three", AROUND + 8 * TURN + fma["threads"] // 32 // 4 * fma["operations"] * each)
    for name, key in (("mbarrier_wake", "wake"), ("box_copy_32x32", "box"), ("chase_cluster_away", "away")):
        case(name, AROUND + 8 * TURN + launches[name]["operations"] * OBSERVED[key])
    for name, key in ONE_STEP.items():
        case(name, AROUND + 8 * TURN + launches[name]["operations"] * known[f"latency.{key}"])
    for name, key in ALL_WARPS.items():
        warps = launches[name]["threads"] // 32 // 4
        issued = warps * launches[name]["operations"]
        case(name, AROUND + 8 * TURN + issued * 32 / known[f"lanes.{key}"])
    # 32 warps pass one after the other, ``adu`` threads a clock in each of four sub-partitions
    case(
        "barrier/32warps",
        AROUND + launches["barrier/32warps"]["operations"] * 1024 / (4 * known["lanes.adu"]),
    )
    tags = launches["global_load_ca/stride33"]
    case(
        "global_load_ca/stride33",
        AROUND + 8 * TURN + tags["threads"] * tags["operations"] / known["cache.l1_tag_rate"],
    )
    for name, key in (("read_l1", "cache.l1_bandwidth"), ("read_l2/one", "cache.l2_sm_bandwidth")):
        case(name, AROUND + launches[name]["bytes"] * launches[name]["operations"] / known[key])
    quarter = int(about["l2_bytes"] * 0.25) >> 16 << 16
    case("read_l2/all", 1e5, EVENTS + quarter * 32 / known["cache.l2_bandwidth"] / mhz)
    for name, key in (("read", "one_way"), ("write", "one_way"), ("copy", "mixed")):
        case(f"{name}_dram", 1e6, EVENTS + (1 << 30) / known[f"dram.sustained_{key}"] / 1e3)
    turnaround = known["launch.cta_turnaround"] / mhz
    case("nothing/one", 0, EVENTS, graph_us=[known["launch.overhead"] + turnaround] * 5)
    case("nothing/many", 0, EVENTS + sms * 2048 / known["launch.cta_rate"] / mhz)
    for waves in (1, 4, 16, 64):
        case(f"nothing/{waves}alone", 0, EVENTS + waves * turnaround)
    return made


def write(folder: Path, cases: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any] = ABOUT) -> Path:
    """``folder/micro.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [dict(about), *cases.values()]
    (folder / "micro.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return folder
