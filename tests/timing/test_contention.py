"""Atomics that meet at an address: shares worked out by hand or counted in random draws, and histograms of few bins."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids
from gpuperf_engine.timing.launch.adapt import timing_input
from tests.timing.counted import estimate

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


def launched(body: str, *, threads: int = 32, ctas: int = 4, header: str = HEADER) -> ge.Profile:
    device = ge.Device()
    kernel = ge.parse(header + body + "\nret;\n}\n", path="k.ptx")["k"]
    return device.launch(kernel, grid=ctas, block=threads, args=[device.zeros(1024, np.uint32)])


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


def test_bulk_copies_that_reduce_follow_each_other(toy: Machine) -> None:
    """4 CTAs of 2 warps, each thread with a copy of 48 bytes to one place: each word has an operation of every copy."""
    body = ".shared .align 16 .b8 from[48]; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [from], 48;"
    profile = launched(body, threads=64, header=HEADER.replace("sm_70", "sm_90"))
    given = timing_input(profile.records[0], toy, profile.resources)
    assert given.memory.atomic_operations == 4 * 2 * 32
    assert estimate(given, toy).bounds["atomics"] == pytest.approx(4 * 2 * 32 * 2 / 1000)


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
    one, eight, all_ = (estimate(histogram(bins), machine) for bins in (1, 8, 256))
    assert one.time_us > eight.time_us > all_.time_us
    # 2¹⁴ requests: each lane is an operation at the one address, on Volta each half of a warp
    operations = 2**15 if load_machine(machine).compute_capability == (7, 0) else 2**19
    assert one.bounds["atomics"] == pytest.approx(operations / load_machine(machine).clock_mhz)
    assert one.bounds["atomics"] > eight.bounds["atomics"] > 5 * all_.bounds["atomics"]


def test_fewer_bins_in_shared_memory_are_more_passes() -> None:
    one, eight, all_ = (histogram(bins, "histogram_shared").memory for bins in (1, 8, 256))
    assert one.shared_atomic_serializations == one.shared_atomic_requests * 32
    for machine in ("v100-sxm2", "a100-sxm-80gb", "rtx-4090", "h100-sxm"):
        bounds = [
            estimate(histogram(bins, "histogram_shared"), machine).bounds["shared"] for bins in (1, 8, 256)
        ]
        assert bounds[0] > 2 * bounds[1] > 2 * bounds[2]
    assert one.shared_atomic_wavefronts > eight.shared_atomic_wavefronts > all_.shared_atomic_wavefronts


#: each thread adds to the word whose number it loads
GATHERED = """
mov.u32 %r4, %ctaid.x; mad.lo.u32 %r4, %r4, 256, %r1; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
ld.global.u32 %r5, [%rd3]; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4;
red.global.add.{type} [%rd5+65536], {value};
"""


def gathered(indices: np.ndarray, type: str) -> ge.Profile:
    """64 CTAs of 256 threads, no two lanes of a warp with one address."""
    device = ge.Device(races="off")
    body = GATHERED.format(type=type, value="%f1" if type == "f32" else "1")
    text = HEADER.replace("sm_70", "sm_60").replace("version 8.0", "version 7.8") + body
    kernel = ge.parse(text + "ret;\n}\n", path="k.ptx")["k"]
    data = np.zeros(1 << 17, np.uint32)
    data[: indices.size] = indices.reshape(-1)
    return device.launch(kernel, 64, 256, [device.array(data)])


@pytest.mark.parametrize("type", ["u32", "f32"])
def test_addresses_out_of_memory_at_which_warps_meet(type: str) -> None:
    """All 512 warps at the same 32, 64 … words, in an order of their own: fewer words never take less, and few take longer."""
    random = np.random.default_rng(3)
    profiles = []
    for words in (32, 64, 256, 2048):
        rows = [32 * (warp % (words // 32)) + random.permutation(32) for warp in range(512)]
        profile = gathered(np.array(rows), type)
        assert profile.memory.global_atomic_serializations == 512
        assert profile.memory.global_atomic_hottest == 512 // (words // 32)
        profiles.append(profile)
    for machine in machine_ids():
        bounds = [estimate(profile, machine).bounds["atomics"] for profile in profiles]
        assert bounds[0] == pytest.approx(512 / load_machine(machine).clock_mhz)
        times = [estimate(profile, machine).time_us for profile in profiles]
        assert times == sorted(times, reverse=True), machine
    assert estimate(profiles[0], "h100-sxm").time_us > ge.estimate(profiles[-1], "h100-sxm").time_us


def test_more_bins_of_random_data_never_take_longer() -> None:
    """Each number of bins joins two of the next one; beyond 2,584 words the count is a bound."""
    data = np.random.default_rng(4).integers(0, 1 << 16, (64, 256))
    for type in ("u32", "f32"):
        profiles = [gathered(data >> shift, type) for shift in range(16, -1, -1)]
        for machine in ("p100", "a100-sxm-80gb", "h100-sxm", "rtx-4090"):
            times = [estimate(profile, machine).bounds["atomics"] for profile in profiles[:12]]
            assert times == sorted(times, reverse=True), machine
            # integers of lanes with one address are combined: there a line for every lane takes longer
            one, many = (estimate(profiles[number], machine).time_us for number in (0, 12))
            assert type == "u32" or one > many


def test_what_limits_is_named() -> None:
    profile = gathered(np.full((64, 256), 3), "f32")
    found = estimate(profile, "h100-sxm")
    assert found.limiter == "atomics"
    (note,) = [note for note in found.notes if note.startswith("atomics")]
    assert note == "atomics: 16,384 lanes on one address of global memory, byte 65,548 of 'data'"
    assert not [
        note for note in estimate(gathered(np.arange(64 * 256), "f32"), "h100-sxm").notes if "atomics" in note
    ]


def test_launches_that_differ_in_the_hottest_address_alone_take_their_own_times(toy: Machine) -> None:
    random = np.random.default_rng(3)
    device = ge.Device(races="off")
    kernel = ge.parse(HEADER + GATHERED.format(type="f32", value="%f1") + "ret;\n}\n", path="k.ptx")["k"]
    array, profiles = device.zeros(1 << 17, np.uint32), []
    for words in (32, 1 << 14):
        rows = np.array([32 * (warp % (words // 32)) + random.permutation(32) for warp in range(512)])
        array.copy_from(np.concatenate([rows.reshape(-1), np.zeros((1 << 17) - rows.size)]).astype(np.uint32))
        profiles.append(device.launch(kernel, 64, 256, [array]))
    parts = [estimate(profile, "h100-sxm").time_us for profile in profiles]
    assert parts[0] > parts[1]
    assert estimate(ge.add_profiles(profiles), "h100-sxm").time_us == pytest.approx(sum(parts))


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
