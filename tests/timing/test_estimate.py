"""Predictions on the toy machine, each worked out by hand: one cycle is one nanosecond, so 1000 cycles are 1 µs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from gpuperf_engine.errors import LaunchError, UnknownName, Unsupported
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.machines.occupancy import occupancy
from gpuperf_engine.timing.estimate import MODELS, estimate
from gpuperf_engine.timing.launch.caches import estimate_caches
from gpuperf_engine.timing.launch.inputs import Block, Instruction, Loop, MemoryTraffic, TimingInput
from gpuperf_engine.timing.models.wave_model import smooth_max

LOAD = Instruction("lsu", "global", (0,), (1,))
FMA = Instruction("fma", "fma", (1,), (1,))
STORE = Instruction("lsu", "none", (1,))


def launch(ctas: int, threads: int, *path: Block | Loop, **more) -> TimingInput:
    counts: dict[str, float] = {}

    def count(parts, times: float) -> None:
        for part in parts:
            if isinstance(part, Loop):
                count(part.body, times * part.trips)
            else:
                for item in part.instructions:
                    counts[item.unit] = counts.get(item.unit, 0) + times * part.weight

    count(path, ctas * -(-threads // 32))
    return TimingInput((ctas, 1, 1), (threads, 1, 1), 16, 0, counts, path, **more)


def streaming(ctas: int, *, loads: int = 1, stores: int = 1) -> TimingInput:
    """CTAs of 256 threads, each of which reads and writes 4 bytes per load and store: 1 KiB per CTA."""
    warps = ctas * 8
    return launch(
        ctas,
        256,
        Block((LOAD,) * loads + (FMA,) + (STORE,) * stores),
        memory=MemoryTraffic(
            load_requests=warps * loads,
            load_sectors=warps * loads * 4,
            store_requests=warps * stores,
            store_sectors=warps * stores * 4,
            read_footprint=ctas * loads * 1024,
            write_footprint=ctas * stores * 1024,
            cta_read_sectors=ctas * loads * 32,
        ),
    )


def met(latency: float, bandwidth: float) -> float:
    """Where latency and bandwidth meet."""
    return (latency**3 + bandwidth**3) ** (1 / 3)


def test_one_small_cta_is_all_latency(toy: Machine) -> None:
    # launch 1 µs; turnaround 100 + load 400 + fma 5 + the store's issue 1 = 506 cycles. Of the 8 warps two are on each sub-partition:
    # the second one's fma comes a cycle later and is done at 506 too. The 2 KiB take 25.6 cycles.
    found = estimate(streaming(1), toy)
    assert found.cycles == pytest.approx(met(506, 25.6))
    assert found.time_us == pytest.approx(1 + found.cycles / 1000)
    assert found.launch_us == 1
    assert found.bounds["latency"] == pytest.approx(0.506)
    assert found.limiter == "launch"
    assert (found.machine, found.machine_revision, found.model) == ("toy", 1, "kleimenov-popova")


def test_a_long_stream_is_bound_by_dram(toy: Machine) -> None:
    # 2 CTAs per SM, 4 per wave. A wave moves 4 KiB in and 4 KiB out at 80 bytes per cycle: 102.4 cycles, hidden behind the
    # 506 of latency. With 64 loads per warp in flight it is 4 * 128 KiB / 80 = 6554 cycles, which the latency of 1009 lengthens.
    assert estimate(streaming(4000), toy).limiter == "latency"
    found = estimate(streaming(4000, loads=64, stores=64), toy)
    wave = 4 * 128 * 1024 / 80
    assert found.limiter == "dram"
    # The last of the four CTAs of the last wave starts 3 / 100 cycles after the first.
    latency = found.bounds["latency"]
    assert found.cycles == pytest.approx(999 * met(latency, wave) + met(latency + 0.03, wave))
    assert found.bounds["dram"] == pytest.approx(1000 * wave / 1000)
    assert found.time_us == pytest.approx(1 + found.cycles / 1000)
    assert (found.occupancy, found.ctas_per_sm, found.occupancy_limiter, found.waves) == (
        1.0,
        2,
        "warps",
        1000,
    )


def test_one_way_traffic_is_faster_than_mixed(toy: Machine) -> None:
    # Reads alone at 100 bytes per cycle.
    found = estimate(streaming(4000, loads=64, stores=0), toy)
    assert found.bounds["dram"] == pytest.approx(4000 * 64 * 1024 / 100 / 1000)


def test_waves_and_their_tail(toy: Machine) -> None:
    # 4 CTAs fill the machine: 5 take two waves, each with the latency of 506. In the last wave the fmas of the four warps of a
    # sub-partition follow each other, with nothing else beside them: 100 + 400, then one a cycle, the last result 4 later.
    full, last, one = met(506, 102.4), 500 + 4 + 4, met(506, 25.6)
    assert met(506 + 3 / 100, 102.4) < last
    assert estimate(streaming(4), toy).cycles == pytest.approx(last)
    assert estimate(streaming(5), toy).cycles == pytest.approx(full + one)
    assert estimate(streaming(8), toy).cycles == pytest.approx(full + last)
    assert estimate(streaming(8), toy).waves == 2


def test_dependent_fmas_wait_and_independent_ones_issue(toy: Machine) -> None:
    # One warp: 1000 dependent fmas of 5 cycles, and the turnaround.
    chain = Loop((Block((FMA,)),), 1000)
    alone = estimate(launch(1, 32, chain), toy)
    assert (alone.cycles, alone.limiter) == (pytest.approx(5100), "latency")
    # 16 warps on an SM are 4 per sub-partition: 4000 issue cycles still hide behind 5000; wider ones do not.
    # The fourth CTA starts 3 / 100 cycles after the first.
    assert estimate(launch(4, 256, chain), toy).cycles == pytest.approx(5100.03)
    four = tuple(Instruction("fma", "fma", (register,), (register,)) for register in range(4))
    wide = estimate(launch(4, 256, Loop((Block(four),), 1000)), toy)
    assert wide.bounds["fma"] == pytest.approx(16)
    assert wide.bounds["issue"] == pytest.approx(16)
    # A warp alone: turnaround, then its last fma issues at 4998 and is done at 5003. The pipe, busy for 16 000 cycles, waits for the
    # turnaround and has no work for the last 4 of these.
    assert (wide.cycles, wide.limiter) == (pytest.approx(16_000 + 100 + 4), "issue")


def test_a_narrow_unit_is_named(toy: Machine) -> None:
    # fp64: 8 cycles per warp instruction; 4 warps per sub-partition * 1000. Before it the turnaround, after it 2 more cycles until
    # the last result is there.
    item = Instruction("fp64", "fp64", (1,), (1,))
    found = estimate(launch(4, 256, Loop((Block((item,)),), 1000)), toy)
    assert (found.limiter, found.cycles) == ("fp64", pytest.approx(32_000 + 100 + 2))


def test_a_warp_that_leaves_sub_partitions_idle_gains_nothing_from_them(toy: Machine) -> None:
    item = Instruction("fp64", "fp64", (), (1,))
    found = estimate(launch(1, 32, Loop((Block((item,)),), 1000)), toy)
    assert found.bounds["fp64"] == pytest.approx(8)


def test_multiply_adds_share_the_pipe_of_the_fmas(toy: Machine) -> None:
    both = Block((Instruction("fma", "fma", (), (1,)), Instruction("imad", "imad", (), (2,))))
    found = estimate(launch(4, 256, Loop((both,), 1000)), toy)
    assert found.bounds["imad"] == pytest.approx(8)
    assert found.bounds["fma"] == pytest.approx(8)


def test_shared_memory_conflicts(toy: Machine) -> None:
    # 1000 shared loads per warp, 16 warps per SM: 16 000 wavefronts; with 8-way conflicts 128 000. Before them the turnaround; the
    # last one's data comes 25 cycles after it was issued, of which it holds its 8 lanes for 4: with 8 wavefronts 7 later.
    loads = Block((Instruction("lsu", "shared", (), (1,), site=0),))
    for ways, limiter in ((1, "shared"), (8, "shared")):
        memory = MemoryTraffic(shared_requests=4 * 8 * 1000, shared_wavefronts=4 * 8 * 1000 * ways)
        work = launch(4, 256, Loop((loads,), 1000), memory=memory, waits={0: ways - 1})
        found = estimate(work, toy)
        assert found.bounds["shared"] == found.bounds["l1"] == pytest.approx(16 * ways)
        assert found.bounds["lsu"] == pytest.approx(16)
        late = 25 - 4 + (ways - 1)
        assert (found.limiter, found.cycles) == (limiter, pytest.approx(16_000 * ways + 100 + late))


def test_barriers_let_one_warp_after_the_other_pass(toy: Machine) -> None:
    # 4 warps, 4 cycles of 8 lanes each on 4 sub-partitions: one cycle per warp, 4 cycles per barrier.
    quiet = launch(1, 128, Block((FMA,)))
    assert estimate(quiet, toy).cycles == pytest.approx(105)
    assert estimate(replace(quiet, barriers=10), toy).cycles == pytest.approx(145)
    # Of 8 warps the second one on a sub-partition issues its fma a cycle later: somewhere among 80 cycles of barriers.
    assert estimate(launch(1, 256, Block((FMA,))), toy).cycles == pytest.approx(106)
    assert estimate(launch(1, 256, Block((FMA,)), barriers=10), toy).cycles == pytest.approx(185)


def test_what_l2_serves(toy: Machine) -> None:
    # Every CTA reads the same 1 KiB 64 times: DRAM gives it once, L2 the first read of each CTA, L1 the rest.
    ctas = 4000
    given_ = replace(
        streaming(ctas, loads=64, stores=0),
        memory=MemoryTraffic(
            load_requests=ctas * 8 * 64,
            load_sectors=ctas * 32 * 64,
            read_footprint=1024,
            cta_read_sectors=ctas * 32,
        ),
    )
    found = estimate(given_, toy)
    assert found.bounds["dram"] == pytest.approx(1024 / 100 / 1000)
    assert found.bounds["l2"] == pytest.approx(ctas * 1024 / 200 / 1000)
    assert found.bounds["l1"] == pytest.approx(ctas / 2 * 64 * 1024 / 128 / 1000)
    assert found.limiter == "l1"
    unknown = replace(given_, memory=replace(given_.memory, cta_read_sectors=None))
    assert estimate(unknown, toy).bounds["l2"] == pytest.approx(ctas * 64 * 1024 / 200 / 1000)


def test_roofline_leaves_latency_out(toy: Machine) -> None:
    found = estimate(streaming(4000), toy, model="roofline")
    assert "latency" not in found.bounds
    assert found.limiter == "dram"
    assert found.cycles == pytest.approx(4000 * 2048 / 80)


def test_as_printed_lowers_what_the_corrected_form_keeps(toy: Machine) -> None:
    # Little traffic: the printed rule drives the latency of the load down to what the bandwidth asks for.
    printed = estimate(streaming(4000), toy, model="kleimenov-popova-as-printed")
    assert printed.cycles < estimate(streaming(4000), toy).cycles


def test_a_wait_for_several_loads_is_for_the_slowest(toy: Machine) -> None:
    # Three loads of the same sectors side by side: one of them misses, so the warp waits for DRAM, not for a mean.
    several = (LOAD, replace(LOAD, writes=(2,)), replace(LOAD, writes=(3,)), replace(FMA, reads=(1, 2, 3)))
    warps = 8
    memory = MemoryTraffic(
        load_requests=3 * warps, load_sectors=3 * warps * 4, read_footprint=1024, cta_read_sectors=32
    )
    found = estimate(launch(1, 256, Block(several), memory=memory), toy)
    # The third load issues at 8, its data is there at 408, the fma's at 413. The 1 KiB from DRAM takes 10.24 cycles. The loads of
    # the 8 warps take the load/store units 24 cycles, 4 each: the last data comes 396 later.
    assert met(100 + 413, 10.24) < 100 + 24 + 396
    assert found.cycles == pytest.approx(100 + 24 + 396)


def test_ctas_are_started_one_after_the_other(toy: Machine) -> None:
    # 4 000 CTAs at one in 500 cycles; four a wave, which wait 506 cycles for latency otherwise. The last one starts at 3999 * 500
    # and takes its 506, lengthened by the wave's 102.4 for DRAM.
    slow = replace(toy, cta_rate=1 / 500)
    found = estimate(streaming(4000), slow)
    assert found.limiter == "dispatch"
    assert found.cycles == pytest.approx(999 * 4 * 500 + met(3 * 500 + 506, 102.4))
    assert found.bounds["dispatch"] == pytest.approx(2000)
    for model in MODELS[1:]:
        assert "dispatch" not in estimate(streaming(4000), slow, model=model).bounds


def test_one_cta_a_time_on_an_sm_leaves_its_pipes_idle_between(toy: Machine) -> None:
    # A load, then 100 fp64 operations in a row, each 10 cycles after the one before: turnaround 100 + 400 + 1000 = 1500 cycles. The
    # pipe has 8 * 100 * 8 / 4 = 1600 cycles of work for a CTA of 8 warps, none of it before 500; the last result comes 10 - 8 later.
    double = Instruction("fp64", "fp64", (1,), (1,))
    memory = MemoryTraffic(load_requests=4 * 8, load_sectors=4 * 8, read_footprint=4 * 8 * 32)
    work = launch(4, 256, Block((LOAD, *(double,) * 100)), memory=memory)
    # Two CTAs on an SM: 3200 cycles of the pipe.
    found = estimate(work, toy)
    assert (found.waves, found.cycles) == (1, pytest.approx(500 + 3200 + 2))
    # So much shared memory that they come one after the other: 1600 twice, each with what comes before and after.
    found = estimate(replace(work, shared_bytes=60_000), toy)
    assert (found.waves, found.cycles) == (2, pytest.approx(2 * (500 + 1600 + 2)))


def test_half_of_the_reads_of_a_warm_cache_go_to_the_other_partition(toy: Machine) -> None:
    # One CTA reads 1 KiB that L2 holds, each sector once: half of them lie in the other partition, 100 cycles further.
    latencies = {**toy.latencies, "l2_far": 300}
    two = replace(toy, l2_partitions=2, latencies=latencies)
    assert estimate(streaming(1), toy, caches="warm").bounds["latency"] == pytest.approx(0.306)
    assert estimate(streaming(1), two, caches="warm").bounds["latency"] == pytest.approx(0.356)
    # From DRAM the way there is in its latency; and without a number for the far partition both are alike.
    assert estimate(streaming(1), two).bounds["latency"] == pytest.approx(0.506)
    assert estimate(streaming(1), replace(toy, l2_partitions=2), caches="warm").bounds[
        "latency"
    ] == pytest.approx(0.306)
    # 64 CTAs read the same 1 KiB: DRAM gives it once, and in the other partition the first read of it goes across. Half of the
    # 32 sectors come from the partition that asks, the others are already counted: 16 of 63 * 32 hits.
    shared = MemoryTraffic(load_requests=64 * 8, load_sectors=64 * 32, read_footprint=1024)
    resident = occupancy(two, threads_per_cta=256, registers_per_thread=16, shared_bytes=0)
    found = estimate_caches(replace(streaming(64), memory=shared), two, resident)
    assert found.l2_far == pytest.approx(16 / (63 * 32))


def test_atomics_are_done_where_their_address_belongs(toy: Machine) -> None:
    # Half of them 100 cycles further: turnaround 100 + 250.
    latencies = {**toy.latencies, "l2_far": 300}
    two = replace(toy, l2_partitions=2, latencies=latencies)
    atomic = launch(1, 32, Block((Instruction("lsu", "atomic", (0,), (1,)),)))
    assert estimate(atomic, toy).bounds["latency"] == pytest.approx(0.3)
    assert estimate(atomic, two).bounds["latency"] == pytest.approx(0.35)


def test_l1_takes_the_slower_of_banks_and_tags(toy: Machine) -> None:
    # 4 CTAs of 8 warps, 100 loads each, on 2 SMs: 1600 loads per SM. Coalesced: a pass of 128 bytes each, one cycle.
    def bound(passes: float, tags: float) -> float:
        loads = 4 * 8 * 100
        memory = MemoryTraffic(
            load_requests=loads, load_sectors=loads * 4, read_footprint=1024, cta_read_sectors=4 * 32,
            load_wavefronts=loads * passes, load_tag_wavefronts=loads * tags,
        )  # fmt: skip
        return estimate(launch(4, 256, Loop((Block((LOAD,)),), 100), memory=memory), toy).bounds["l1"]

    assert bound(1, 1) == pytest.approx(1.6)
    assert bound(32, 8) == pytest.approx(32 * 1.6)
    assert bound(1, 8) == pytest.approx(8 * 1.6)


def test_a_warm_cache_holds_what_the_launch_before_left(toy: Machine) -> None:
    # 1 MiB of L2, one partition. 256 CTAs bring 256 KiB in and write as much: half of the cache, nothing goes to DRAM.
    small = estimate(streaming(256), toy, caches="warm")
    assert "dram" not in small.bounds
    assert estimate(streaming(256), toy).bounds["dram"] == pytest.approx(256 * 2048 / 80 / 1000)
    # 2 MiB are more than 1.6 times L2: as cold.
    assert estimate(streaming(1024), toy, caches="warm") == estimate(streaming(1024), toy)
    # 1.275 MiB: half way between 0.95 and 1.6, half of it is still there.
    between = 1.275 * 512
    found = estimate(streaming(int(between)), toy, caches="warm")
    cold = estimate(streaming(int(between)), toy)
    assert found.bounds["dram"] == pytest.approx(cold.bounds["dram"] / 2, rel=0.01)
    # Each of two partitions keeps what it reads: 512 + 512 + 512 KiB of the 1.5 MiB are again too many.
    two = replace(toy, l2_partitions=2)
    assert "dram" not in estimate(streaming(512 - 64), toy, caches="warm").bounds
    assert "dram" in estimate(streaming(512 - 64), two, caches="warm").bounds
    with pytest.raises(UnknownName, match="unknown cache state 'hot'"):
        estimate(streaming(1), toy, caches="hot")


@pytest.mark.parametrize("model", ["kleimenov-popova", "roofline"])
def test_reads_displace_what_others_wrote(toy: Machine, model: str) -> None:
    """1 MiB of L2 is full: what is read makes DRAM write as much, up to 0.95 MiB."""

    def bound(given: TimingInput) -> float:
        return estimate(given, toy, model=model, caches="dirty").bounds["dram"]

    assert bound(streaming(256)) == pytest.approx(256 * 3072 / 80 / 1000)
    assert bound(streaming(2048)) == pytest.approx((2048 * 2048 + 0.95 * (1 << 20)) / 80 / 1000)
    # half of what DRAM moves is written, where it would be none
    assert bound(streaming(256, stores=0)) == pytest.approx(256 * 2048 / 80 / 1000)


@given(latency=st.floats(0, 1e12), bandwidth=st.floats(0, 1e12))
def test_latency_and_bandwidth_meet_above_both(latency: float, bandwidth: float) -> None:
    found = smooth_max(latency, bandwidth)
    assert found >= max(latency, bandwidth)
    assert found == pytest.approx(float((mpf(latency) ** 3 + mpf(bandwidth) ** 3) ** (mpf(1) / 3)), rel=1e-13)
    assert smooth_max(bandwidth, latency) == found


def test_errors(toy: Machine) -> None:
    with pytest.raises(UnknownName, match="unknown time model 'rofline'") as caught:
        estimate(streaming(1), toy, model="rofline")
    assert "roofline" in str(caught.value)
    with pytest.raises(UnknownName, match="unknown machine 'h100'"):
        estimate(streaming(1), "h100")
    with pytest.raises(Unsupported, match="does not describe the unit 'tensor'"):
        estimate(launch(1, 32, Block((Instruction("tensor"),))), toy)
    with pytest.raises(LaunchError, match="no CTA of 1024 threads"):
        estimate(launch(1, 1024, Block((FMA,))), toy)


counts = st.integers(0, 64)


@st.composite
def launches(draw: st.DrawFn) -> TimingInput:
    ctas = draw(st.integers(1, 500))
    threads = draw(st.integers(1, 512))
    items = draw(
        st.lists(
            st.builds(
                Instruction,
                st.sampled_from(["fma", "alu", "imad", "fp64", "xu", "lsu"]),
                st.sampled_from(["fma", "global", "shared", "none"]),
                st.lists(st.integers(0, 3), max_size=2).map(tuple),
                st.lists(st.integers(0, 3), max_size=1).map(tuple),
            ),
            min_size=1,
            max_size=6,
        ).map(tuple)
    )
    sectors = draw(st.integers(0, 10_000))
    stored = draw(st.integers(0, 10_000))
    memory = MemoryTraffic(
        load_requests=draw(st.integers(1, 1000)),
        load_sectors=sectors,
        store_requests=1,
        store_sectors=stored,
        read_footprint=draw(st.integers(0, sectors * 32)),
        write_footprint=draw(st.integers(0, stored * 32)),
        cta_read_sectors=draw(st.none() | st.integers(0, sectors)),
        shared_wavefronts=draw(st.integers(0, 10_000)),
        atomic_sectors=draw(st.integers(0, 1000)),
    )
    return launch(
        ctas, threads, Loop((Block(items),), draw(st.integers(1, 30))), memory=memory, barriers=draw(counts)
    )


@settings(deadline=None, derandomize=True, max_examples=150)
@given(work=launches(), model=st.sampled_from(MODELS))
def test_time_is_never_under_a_bound(toy: Machine, work: TimingInput, model: str) -> None:
    found = estimate(work, toy, model=model)
    if model != "kleimenov-popova-as-printed":
        assert found.time_us >= max(found.bounds.values()) * (1 - 1e-12)
        assert found.limiter in found.bounds
    assert found.time_us > 0
    assert found == estimate(work, toy, model=model)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(work=launches(), more=st.sampled_from(["fma", "alu", "lsu", "fp64"]))
def test_more_never_takes_less_and_more_machine_never_longer(
    toy: Machine, work: TimingInput, more: str
) -> None:
    time = estimate(work, toy).time_us
    issued = {**work.warp_instructions, more: work.warp_instructions.get(more, 0) + 1000}
    assert estimate(replace(work, warp_instructions=issued), toy).time_us >= time
    assert estimate(replace(work, barriers=work.barriers + 1), toy).time_us >= time
    for field, factor in (
        ("clock_mhz", 2.0), ("l2_bandwidth", 2.0), ("l1_bandwidth", 2.0), ("dram_sustained_one_way", 2.0),
        ("dram_sustained_mixed", 1.2), ("l2_bytes", 2),
    ):  # fmt: skip
        better = replace(toy, **{field: getattr(toy, field) * factor})
        assert estimate(work, better).time_us <= time * (1 + 1e-12), field


@settings(deadline=None, derandomize=True, max_examples=60)
@given(work=launches())
def test_a_larger_grid_never_takes_less(toy: Machine, work: TimingInput) -> None:
    def scaled(factor: int) -> TimingInput:
        memory = work.memory
        sizes = {
            name: getattr(memory, name) * factor
            for name in memory.__dataclass_fields__
            if getattr(memory, name) is not None
        }
        return replace(
            work,
            grid=(work.grid[0] * factor, 1, 1),
            warp_instructions={unit: count * factor for unit, count in work.warp_instructions.items()},
            memory=MemoryTraffic(**sizes),
        )

    times = [estimate(scaled(factor), toy).time_us for factor in (1, 2, 5)]
    assert times == sorted(times)
