"""The schema of machine descriptions: each quantity with its unit, its range and the attribute that holds it."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LATENCIES", "QUANTITIES", "SCHEMA_VERSION", "UNITS", "QuantityRule"]

SCHEMA_VERSION = 1

UNITS = ("fma", "alu", "imad", "fp64", "fp16", "xu", "lsu", "cbu", "adu", "uniform", "tensor", "tex")
"""Names of execution units that an instruction can occupy (Nsight Compute's pipelines); ``none`` has no cost."""

LATENCIES = (
    "fma", "alu", "imad", "fp64", "fp16", "xu", "cbu", "adu", "uniform", "tensor", "tex",
    "shuffle", "shared", "barrier", "l1", "gcc", "l2", "l2_far", "dram", "tma_l2", "tma_dram", "cluster",
    "tcgen05", "tcgen05_pair", "tensor_load", "tensor_store",
)  # fmt: skip
"""Names of latencies: of a result of a unit, of a warp shuffle, and of a load served at a level of memory; ``l2_far``: from another
partition of L2 than the SM's (``l2`` if not given); ``barrier``: from the arrival of the last warp to the next instruction;
``tma_l2``, ``tma_dram``: from a bulk copy to the first use of its data in shared memory, as in a pointer chase; ``cluster``: of a load
from the shared memory of another CTA of the cluster; ``gcc``: of code from the level behind the instruction cache of the SM;
``tcgen05``, ``tcgen05_pair``: from the end of a product on tensor memory, of one CTA or of a pair, until an mbarrier has the arrival
of its ``commit``; ``tensor_load``, ``tensor_store``: of tensor memory, besides the time in which the data pass."""


@dataclass(frozen=True, slots=True)
class QuantityRule:
    """One quantity of a machine description.

    ``group`` and ``key`` are its path in the file, ``attribute`` its name in :class:`Machine`, ``unit`` the only accepted unit,
    ``whole`` whether it must be an integer, ``minimum`` and ``maximum`` the least and the largest accepted value; ``needed``:
    whether it is required (files for earlier versions lack later quantities).
    """

    group: str
    key: str
    attribute: str
    unit: str
    whole: bool = True
    minimum: float = 1
    maximum: float = math.inf
    needed: bool = True

    @property
    def path(self) -> str:
        return f"{self.group}.{self.key}"


QUANTITIES = (
    QuantityRule("chip", "sm_count", "sm_count", "SMs"),
    QuantityRule("chip", "clock", "clock_mhz", "MHz", whole=False),
    QuantityRule("chip", "tensor_clock", "tensor_clock_mhz", "MHz", whole=False, needed=False),
    QuantityRule("chip", "fma_clock", "fma_clock_mhz", "MHz", whole=False, needed=False),
    QuantityRule("sm", "sub_partitions", "sub_partitions", "sub-partitions"),
    QuantityRule(
        "sm", "issue_rate", "issue_rate", "warp instructions/clk/sub-partition", whole=False, minimum=0.01
    ),
    QuantityRule("sm", "max_warps", "max_warps_per_sm", "warps"),
    QuantityRule("sm", "max_threads", "max_threads_per_sm", "threads"),
    QuantityRule("sm", "max_ctas", "max_ctas_per_sm", "CTAs"),
    QuantityRule("sm", "max_threads_per_cta", "max_threads_per_cta", "threads"),
    QuantityRule("sm", "memory_queue", "memory_queue", "instructions/sub-partition", needed=False),
    QuantityRule("sm", "memory_pool", "memory_pool", "instructions/SM", needed=False),
    QuantityRule(
        "sm",
        "address_rate",
        "address_rate",
        "warp instructions/clk/sub-partition",
        whole=False,
        minimum=0.01,
        needed=False,
    ),
    QuantityRule(
        "sm",
        "operand_rate",
        "operand_rate",
        "registers/clk/sub-partition",
        whole=False,
        minimum=0.01,
        needed=False,
    ),
    QuantityRule(
        "sm",
        "tensor_fp16_accumulate",
        "tensor_fp16_accumulate",
        "lanes/sub-partition",
        whole=False,
        minimum=0.01,
        needed=False,
    ),
    QuantityRule(
        "sm", "logic", "logic_lanes", "lanes/sub-partition", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule("registers", "per_sm", "registers_per_sm", "registers"),
    QuantityRule("registers", "per_cta", "registers_per_cta", "registers"),
    QuantityRule("registers", "per_thread", "max_registers_per_thread", "registers"),
    QuantityRule("registers", "allocation_unit", "register_allocation_unit", "registers/warp"),
    QuantityRule(
        "registers",
        "read_rate",
        "register_read_rate",
        "operands/clk/sub-partition",
        whole=False,
        minimum=0.01,
    ),
    QuantityRule("shared", "per_sm", "shared_per_sm", "B"),
    QuantityRule("shared", "carve_out", "shared_carve_out", "B", needed=False),
    QuantityRule("shared", "per_cta", "shared_per_cta", "B"),
    QuantityRule("shared", "reserved_per_cta", "shared_reserved_per_cta", "B", minimum=0),
    QuantityRule("shared", "allocation_unit", "shared_allocation_unit", "B"),
    QuantityRule("cache", "l1", "l1_bytes", "B"),
    QuantityRule("cache", "l1_bandwidth", "l1_bandwidth", "B/clk/SM", whole=False),
    QuantityRule("cache", "l1_tag_rate", "l1_tag_rate", "lines/clk/SM", whole=False),
    QuantityRule("cache", "l2", "l2_bytes", "B"),
    QuantityRule("cache", "l2_partitions", "l2_partitions", "partitions"),
    QuantityRule("cache", "l2_bandwidth", "l2_bandwidth", "B/clk", whole=False),
    QuantityRule("cache", "l2_sm_bandwidth", "l2_sm_bandwidth", "B/clk/SM", whole=False),
    QuantityRule(
        "cache", "l2_partial_rate", "l2_partial_rate", "lines/clk", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule(
        "cache", "l2_single_rate", "l2_single_rate", "lines/clk", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule(
        "cache", "l2_other_reads", "l2_other_reads", "sectors/clk", whole=False, minimum=0, needed=False
    ),
    QuantityRule("cache", "icc", "icc_bytes", "B", minimum=128, needed=False),
    QuantityRule("cache", "icc_ways", "icc_ways", "lines/set", needed=False),
    QuantityRule("cache", "icc_prefetch", "icc_prefetch", "lines", minimum=0, needed=False),
    QuantityRule(
        "cache", "icc_l2_bandwidth", "icc_l2_bandwidth", "B/clk/SM", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule("cache", "gcc", "gcc_bytes", "B", minimum=128, needed=False),
    QuantityRule(
        "cache", "gcc_bandwidth", "gcc_bandwidth", "B/clk/SM", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule(
        "tensor_memory", "read", "tensor_memory_read", "B/clk/lane", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule(
        "tensor_memory", "write", "tensor_memory_write", "B/clk/lane", whole=False, minimum=0.01, needed=False
    ),
    QuantityRule("atomics", "rate", "atomic_rate", "operations/clk/address", whole=False, minimum=0.001),
    QuantityRule("atomics", "lanes", "atomic_lanes", "lanes/operation"),
    QuantityRule(
        "atomics", "turns", "atomic_turns", "turns/clk/KiB", whole=False, minimum=0.001, needed=False
    ),
    QuantityRule("dram", "size", "dram_size", "GiB", needed=False),
    QuantityRule("dram", "bandwidth", "dram_bandwidth", "GB/s", whole=False),
    QuantityRule("dram", "sustained_one_way", "dram_sustained_one_way", "GB/s", whole=False),
    QuantityRule("dram", "sustained_mixed", "dram_sustained_mixed", "GB/s", whole=False),
    QuantityRule("dram", "channels", "dram_channels", "channels", needed=False),
    QuantityRule("dram", "row_interval", "dram_row_interval", "ns", whole=False, minimum=0.01, needed=False),
    # at 2 the latency of a load would have no end while DRAM is busy
    QuantityRule(
        "dram",
        "wait_one_way",
        "dram_wait_one_way",
        "of the latency",
        whole=False,
        minimum=0,
        maximum=1.9,
        needed=False,
    ),
    QuantityRule(
        "dram",
        "wait_mixed",
        "dram_wait_mixed",
        "of the latency",
        whole=False,
        minimum=0,
        maximum=1.9,
        needed=False,
    ),
    QuantityRule("launch", "overhead", "launch_overhead_us", "us", whole=False, minimum=0),
    QuantityRule("launch", "cta_turnaround", "cta_turnaround", "cycles", minimum=0),
    QuantityRule("launch", "cta_rate", "cta_rate", "CTAs/clk", whole=False, minimum=0.001),
    QuantityRule("link", "host", "host_bandwidth", "GB/s", whole=False, minimum=0.01, needed=False),
)
