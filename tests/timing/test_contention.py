"""Atomics that meet at an address: shares worked out by hand or counted in random draws, and histograms of few bins."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.timing.adapt import timing_input
from gpuperf_engine.timing.contention import busiest_share, most_by_chance
from gpuperf_engine.timing.estimate import estimate
from gpuperf_engine.timing.machine import Machine, load_machine, machine_ids

HISTOGRAM = Path(__file__).parents[2] / "examples" / "kernels" / "histogram.ptx"
HEADER = """
.version 8.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 data)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mov.u32 %r2, 1; mov.f32 %f1, 0f3F800000;
"""


@cache
def histogram(bins: int, entry: str = "histogram_global") -> ge.Profile:
    """Counts of 2¹⁹ random bytes below ``bins``, in 256 counters."""
    device = ge.Device()
    data = np.random.default_rng(bins).integers(0, bins, 1 << 19).astype(np.uint8)
    text = HISTOGRAM.read_text(encoding="utf-8").replace(".target sm_80", ".target sm_60")
    kernel = ge.parse(text, path="histogram.ptx")[entry]
    args = [np.int32(data.size), device.array(data), device.zeros(256, np.uint32)]
    return device.launch(kernel, grid=64, block=256, args=args)


def launched(body: str, *, threads: int = 32, ctas: int = 4) -> ge.Profile:
    device = ge.Device()
    kernel = ge.parse(HEADER + body + "\nret;\n}\n", path="k.ptx")["k"]
    return device.launch(kernel, grid=ctas, block=threads, args=[device.zeros(1024, np.uint32)])


@pytest.mark.parametrize("addresses", [1, 2, 8, 31, 256, 4096])
@pytest.mark.parametrize("lanes", [1, 16, 32])
def test_most_lanes_that_meet_by_chance(lanes: int, addresses: int) -> None:
    drawn = np.random.default_rng(1).integers(0, addresses, (4000, lanes))
    most = np.mean([np.bincount(row).max() for row in drawn])
    assert most_by_chance(lanes, addresses) == pytest.approx(most, rel=0.05)


def test_the_busiest_address_takes_what_chance_does_not_explain() -> None:
    # 32 lanes at one of 256 addresses: all. As many as meet by chance: an even part, however many addresses there are.
    assert busiest_share(32, 32, 256) == 1
    assert busiest_share(32, most_by_chance(32, 256), 256) == 1 / 256
    assert busiest_share(32, 1, 8) == 1 / 8
    assert busiest_share(32, 32, 1) == 1
    # Half of the lanes at one of very many addresses, where one lane is what chance explains: 15 of 31.
    assert busiest_share(32, 16, 1 << 40) == pytest.approx(15 / 31)
    shares = [busiest_share(32, lanes, 256) for lanes in range(1, 33)]
    assert shares == sorted(shares)


@pytest.mark.parametrize(
    ("instruction", "operations"),
    [
        # 4 CTAs of 2 warps, all lanes at one address: of integers each half of a warp is an operation, else each lane.
        ("red.global.add.u32 [%rd1], %r2;", 4 * 2 * 2),
        ("atom.global.max.s32 %r3, [%rd1], %r2;", 4 * 2 * 2),
        ("red.global.add.f32 [%rd1], %f1;", 4 * 2 * 32),
        ("atom.global.exch.b32 %r3, [%rd1], %r2;", 4 * 2 * 32),
        ("atom.global.cas.b32 %r3, [%rd1], %r2, %r1;", 4 * 2 * 32),
        ("red.global.add.u64 [%rd1], %rd1;", 4 * 2 * 32),
        # two instructions on the same array
        ("red.global.add.u32 [%rd1], %r2; red.global.add.u32 [%rd1], %r2;", 4 * 2 * 4),
        # in shared memory they are wavefronts
        (".shared .b32 s; red.shared.add.u32 [s], %r2;", 0),
    ],
)
def test_operations_at_one_address(toy: Machine, instruction: str, operations: int) -> None:
    profile = launched(instruction, threads=64)
    given = timing_input(profile.records[0], toy, profile.resources)
    assert given.memory.atomic_operations == pytest.approx(operations)
    found = estimate(given, toy)
    # at half an operation per cycle of a nanosecond
    assert found.bounds.get("atomics", 0.0) == pytest.approx(operations * 2 / 1000)


def test_threads_with_addresses_of_their_own_do_not_meet(toy: Machine) -> None:
    index = "mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, 256, %r1; "
    spread = "mul.wide.u32 %rd2, {}, 4; add.s64 %rd3, %rd1, %rd2; red.global.add.f32 [%rd3], %f1;"
    # 4 CTAs of 256 lanes, with a word for each of all threads, or of those of one CTA.
    for register, operations in (("%r5", 1), ("%r1", 4)):
        profile = launched(index + spread.format(register), threads=256)
        given = timing_input(profile.records[0], toy, profile.resources)
        assert given.memory.atomic_operations == operations


def test_a_result_is_waited_for_until_all_lanes_had_their_turn(toy: Machine) -> None:
    one, all_ = (
        launched(
            f"mul.wide.u32 %rd2, %r1, {size}; add.s64 %rd1, %rd1, %rd2;"
            "atom.global.exch.b32 %r3, [%rd1], %r2; st.global.u32 [%rd1], %r3;",
            ctas=1,
        )
        for size in (4, 0)
    )
    times = [estimate(profile, toy).bounds["latency"] for profile in (one, all_)]
    # 31 lanes after the first, 2 cycles each
    assert times[1] - times[0] == pytest.approx(31 * 2 / 1000)


@pytest.mark.parametrize("machine", machine_ids())
def test_fewer_bins_are_slower(machine: str) -> None:
    one, eight, all_ = (ge.estimate(histogram(bins), machine) for bins in (1, 8, 256))
    assert one.time_us > eight.time_us > all_.time_us
    # 2¹⁴ requests of which each half is an operation at the one address, before Volta each lane
    operations = 2**19 if load_machine(machine).compute_capability < (7, 0) else 2**15
    assert one.bounds["atomics"] == pytest.approx(operations / load_machine(machine).clock_mhz)
    assert one.bounds["atomics"] > eight.bounds["atomics"] > 5 * all_.bounds["atomics"]


def test_fewer_bins_in_shared_memory_are_more_passes() -> None:
    one, eight, all_ = (histogram(bins, "histogram_shared").memory for bins in (1, 8, 256))
    assert one.shared_atomic_serializations == one.shared_atomic_requests * 32
    for machine in ("v100-sxm2", "a100-sxm-80gb", "rtx-4090", "h100-sxm"):
        bounds = [
            ge.estimate(histogram(bins, "histogram_shared"), machine).bounds["shared"] for bins in (1, 8, 256)
        ]
        assert bounds[0] > 2 * bounds[1] > 2 * bounds[2]
    assert one.shared_atomic_wavefronts > eight.shared_atomic_wavefronts > all_.shared_atomic_wavefronts


#: a counter that one lane of each warp adds to
ONE_LANE = "setp.ne.u32 %p1, %r1, 0; @%p1 bra END; {0} END:"


@pytest.mark.parametrize(
    ("instruction", "operations"),
    [
        ("atom.global.add.u32 %r3, [%rd1], %r2;", 96),
        ("red.global.add.f32 [%rd1+8], %f1;", 96),
        ("atom.global.exch.b32 %r3, [%rd1], %r2;", 96),
        # a counter for each CTA, of 4,096 that the array has
        (
            "mov.u32 %r4, %ctaid.x; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd3, %rd1, %rd2; red.global.add.u32 [%rd3], 1;",
            1,
        ),
    ],
)
def test_a_counter_where_no_lanes_meet(toy: Machine, instruction: str, operations: float) -> None:
    """Each of 96 CTAs comes once: operations on one address follow each other, though each request has a single lane."""
    body = ".reg .pred %p<2>;" + ONE_LANE.format(instruction)
    profile = launched(body, ctas=96)
    assert profile.memory.global_atomic_serializations == 96
    given = timing_input(profile.records[0], toy, profile.resources)
    assert given.memory.atomic_operations == pytest.approx(operations)
