"""Hong and Kim's model: the paper's worked example, one launch for each of its cases, and launches on the toy machine, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import Block, Instruction, MemoryTraffic, TimingInput
from gpuperf_engine.timing.models.hong_kim import Launch, parallelism
from tests.timing.counted import estimate

#: section 4 of the paper: 80 CTAs of 128 threads on the 16 SMs of an FX 5600, 5 CTAs at once on each, 33 instructions of a warp, of
#: which 6 access memory, each with 32 transactions of 4 bytes, and 6 are barriers; 1 GHz, 80 GB/s
EXAMPLE = Launch(
    instructions=33, coalesced=0, uncoalesced=6, transactions=32, barriers=6, bytes_per_request=128, warps=20,
    ctas_per_sm=5, active_sms=16, repetitions=1, issue_cycles=4, latency=420, departure_coalesced=4,
    departure_uncoalesced=10, bandwidth=80,
)  # fmt: skip


def test_the_example_of_the_paper() -> None:
    found = parallelism(EXAMPLE)
    # Mem_L = 420 + 31 · 10 = 730, departure delay 32 · 10 = 320; bandwidth would allow 80 · 730 / (128 · 16) = 28.5 warps
    assert found.mwp == pytest.approx(730 / 320)
    # 4 · 33 = 132 cycles of computation, 6 · 730 = 4380 of memory: (4380 + 132) / 132 = 34.2, but there are 20 warps
    assert found.cwp == 20
    # more computation could overlap than memory lets: 4380 · 20 / 2.28 + 132 / 6 · 1.28
    memory = 4380 * 20 * 320 / 730 + 22 * (730 / 320 - 1)
    # six barriers, each of which holds up 5 CTAs for the departures of 1.28 warps
    barriers = 320 * (730 / 320 - 1) * 6 * 5
    assert memory == pytest.approx(38428, abs=1) and barriers == pytest.approx(12300)
    assert found.cycles == pytest.approx(memory + barriers)
    assert found.limiter == "departure"


def test_without_memory_only_computation_counts() -> None:
    found = parallelism(replace(EXAMPLE, uncoalesced=0, barriers=0, repetitions=2))
    assert (found.cycles, found.limiter) == (33 * 4 * 20 * 2, "issue")


def test_too_few_warps() -> None:
    # two warps: MWP = CWP = 2, nothing hides the rest: 6 · 420 + 132 + 132 / 6 · (2 - 1)
    found = parallelism(replace(EXAMPLE, coalesced=6, uncoalesced=0, warps=2, barriers=0))
    assert (found.mwp, found.cwp, found.limiter) == (2, 2, "latency")
    assert found.cycles == 2520 + 132 + 22


def test_computation_hides_memory() -> None:
    # 1000 instructions of 4 cycles, one load: CWP = 4420 / 4000; bandwidth allows 80 · 420 / (128 · 16) = 16.4 warps
    found = parallelism(replace(EXAMPLE, instructions=1000, coalesced=1, uncoalesced=0, barriers=0))
    assert found.cwp == pytest.approx(1.105)
    assert found.mwp == 16.40625
    # the second form, since there is more computation than memory: 420 · 20 / 16.40625 = 512, and 4000 · 15.40625
    assert (found.cycles, found.limiter) == (512 + 61625, "issue")
    more = parallelism(
        replace(EXAMPLE, instructions=100, coalesced=1, uncoalesced=0, barriers=0, issue_cycles=1)
    )
    # CWP = 520 / 100 = 5.2, less than MWP, and less computation than memory: a latency, and everybody's computation
    assert (more.cycles, more.limiter) == (420 + 100 * 20, "issue")


def test_bandwidth() -> None:
    # 512 bytes a request: 80 · 420 / (512 · 16) = 4.1 warps at once
    found = parallelism(replace(EXAMPLE, coalesced=6, uncoalesced=0, bytes_per_request=512, barriers=0))
    assert found.mwp == pytest.approx(80 * 420 / (512 * 16))
    # 20 warps with 6 requests each through a sixteenth of 80 bytes a cycle, and the computation between
    assert found.cycles == pytest.approx(20 * 6 * 512 * 16 / 80 + 22 * (found.mwp - 1))
    assert found.limiter == "bandwidth"


def streaming() -> TimingInput:
    """64 CTAs of 256 threads: a warp reads 128 bytes, from DRAM, and has ten more instructions."""
    warps = 64 * 8
    memory = MemoryTraffic(
        load_requests=warps, load_sectors=4 * warps, read_footprint=128 * warps, cta_read_sectors=4 * warps
    )
    path = (Block((Instruction("lsu", "global", (), (1,)), *(Instruction("fma", "fma", (1,), (1,)),) * 10)),)
    return TimingInput((64, 1, 1), (256, 1, 1), 16, 0, {"lsu": warps, "fma": 10 * warps}, path, memory)


def test_on_the_toy_machine(toy: Machine) -> None:
    """2 SMs with 2 CTAs of 8 warps each: 16 waves. A request's 128 bytes come from DRAM at 100 bytes a cycle for both SMs."""
    found = estimate(streaming(), toy, model="hong-kim")
    # departure 128 · 2 / 100 = 2.56 cycles, latency 400: MWP = min(156, 156, 16) = 16; 11 / 4 cycles of computation: CWP = 16
    assert found.notes[-1] == "MWP 16, CWP 16 of 16 warps on an SM"
    assert found.cycles == pytest.approx(16 * (400 + 2.75 + 2.75 * 15))
    assert (found.limiter, found.launch_us, found.waves) == ("latency", 1, 16)
    assert found.time_us == pytest.approx(1 + found.cycles / 1e3)
    # as of 2009: an issue in 4 cycles, a departure every 4
    found = estimate(streaming(), toy, model="hong-kim-2009")
    # CWP = (400 + 44) / 44 = 10.1; bandwidth of the data sheet 125 · 400 / (128 · 2) = 195: MWP = 16, so the third form
    assert found.cycles == pytest.approx(16 * (400 + 44 * 16))
    assert found.limiter == "issue"


def test_a_wave_that_is_not_full(toy: Machine) -> None:
    """65 CTAs: 16.25 repetitions as the paper has it, 17 in the other."""
    work = replace(streaming(), grid=(65, 1, 1))
    whole = {model: estimate(streaming(), toy, model=model).cycles for model in ("hong-kim", "hong-kim-2009")}
    work = replace(work, warp_instructions={unit: 65 / 64 * n for unit, n in work.warp_instructions.items()})
    sizes = {
        name: getattr(work.memory, name) * 65 / 64
        for name in ("load_requests", "load_sectors", "read_footprint", "cta_read_sectors")
    }
    work = replace(work, memory=MemoryTraffic(**sizes))
    assert estimate(work, toy, model="hong-kim").cycles == pytest.approx(whole["hong-kim"] * 17 / 16)
    assert estimate(work, toy, model="hong-kim-2009").cycles == pytest.approx(
        whole["hong-kim-2009"] * 65 / 64
    )


@pytest.mark.parametrize(("stride", "uncoalesced"), [(4, 0), (8, 4), (128, 4)])
def test_which_requests_are_uncoalesced(toy: Machine, stride: int, uncoalesced: int) -> None:
    """Lanes that read 4 bytes side by side, 8 bytes apart (8 sectors for 4), and a line apart (32); the store is side by side."""
    kernel = ge.parse(
        f"""
        .version 7.0
        .target sm_70
        .address_size 64
        .visible .entry k(.param .u64 in, .param .u64 out) {{
        .reg .b32 %r<3>; .reg .b64 %rd<5>;
        ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd3, %r1, {stride}; add.u64 %rd3, %rd1, %rd3;
        ld.global.u32 %r2, [%rd3];
        mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd2, %rd4;
        st.global.u32 [%rd4], %r2;
        ret; }}""",
        path="k.ptx",
    )["k"]
    device = ge.Device()
    profile = device.launch(kernel, 1, 128, [device.zeros(128 * 32, np.uint32), device.zeros(128, np.uint32)])
    memory = timing_input(profile.records[0], toy, profile.resources).memory
    assert memory.uncoalesced_load_requests == uncoalesced
    assert memory.uncoalesced_load_sectors == (memory.load_sectors if uncoalesced else 0)
    assert (memory.uncoalesced_store_requests, memory.uncoalesced_store_sectors) == (0, 0)
    assert memory.scaled(0.5, 1.0).uncoalesced_load_requests == uncoalesced / 2
