"""Registers that a launch has on a machine, spills where they do not suffice, and constants that need none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import LaunchError
from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids
from gpuperf_engine.machines.occupancy import occupancy
from gpuperf_engine.results import Resources
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.allocation import registers_that_fit
from tests.timing.counted import estimate

needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
TARGETS = ("v100-sxm2", "a100-sxm-80gb", "rtx-4090", "h100-sxm")


def kernel(body: str, *, directives: str = "", before: str = "", target: str = "sm_70") -> str:
    return f"""
.version 8.0
.target {target}
.address_size 64
{before}
.visible .entry k(.param .u64 data) {directives}
{{
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<19>; .reg .f32 %f<999>;
ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
{body}
ret;
}}
"""


def values(count: int, directives: str = "") -> str:
    """A loop of 100 trips in which so many values of a thread live, each changed in every trip."""
    loads = "".join(f"ld.global.f32 %f{i}, [%rd3+{4 * i}];\n" for i in range(count))
    changes = "".join(f"fma.rn.f32 %f{i}, %f{i}, %f{(i + 1) % count}, %f{i};\n" for i in range(count))
    stores = "".join(f"st.global.f32 [%rd3+{4 * i}], %f{i};\n" for i in range(count))
    loop = f"mov.u32 %r2, 0;\nL:\n{changes}add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 100;\n@%p1 bra L;\n"
    return kernel(loads + loop + stores, directives=directives)


@cache
def launched(text: str, threads: int = 128, ctas: int = 300, resources: str = "estimate") -> ge.Profile:
    device = ge.Device(resources=resources)
    array = device.zeros(2048, np.float32)
    return device.launch(ge.parse(text, path="k.ptx")["k"], grid=ctas, block=threads, args=[array])


def test_a_limit_is_what_registers_are_reported(toy: Machine) -> None:
    """As ptxas does: at least 24."""
    for limit, registers in (
        ("", 41),
        (".maxnreg 60", 41),
        (".maxnreg 32", 32),
        (".maxnreg 24", 24),
        (".maxnreg 9", 24),
    ):
        profile = launched(values(36, limit), 32, 1)
        assert (profile.resources.registers, profile.resources.source) == (registers, "estimate")
        assert timing_input(profile.records[0], toy, profile.resources).registers_per_thread == registers


def test_constants_are_not_spilled(toy: Machine) -> None:
    """Parameters are read where they are, and other constants made anew."""
    constants = "".join(f"mov.b32 %r{i}, {i * 77777};\n" for i in range(4, 19))
    uses = "".join(f"st.global.u32 [%rd3+{4 * i}], %r{i};\n" for i in range(4, 19))
    loop = values(19, ".maxnreg 24").replace("mov.u32 %r2, 0;", f"{constants}mov.u32 %r2, 0;")
    profile = launched(loop.replace("ret;", f"{uses}ret;"), 32, 1)
    # 19 values, the counter, an address of two words and two kept aside
    assert timing_input(profile.records[0], toy, profile.resources).local_bytes == 0
    varying = loop.replace("ret;", f"{uses}ret;")
    for i in range(4, 19):
        varying = varying.replace(f"mov.b32 %r{i}, {i * 77777};", f"add.s32 %r{i}, %r1, {i * 77777};")
    profile = launched(varying, 32, 1)
    assert timing_input(profile.records[0], toy, profile.resources).local_bytes == 4 * 15


@pytest.mark.parametrize("machine", TARGETS)
def test_fewer_registers_than_live_values_cost_time(machine: str) -> None:
    free, tight, tighter = (
        estimate(launched(values(36, limit)), machine) for limit in ("", ".maxnreg 32", ".maxnreg 24")
    )
    assert free.time_us < tight.time_us < tighter.time_us
    assert not any("spills" in note for note in free.notes)
    assert any("bytes per thread estimated, with 24 registers" in note for note in tighter.notes)
    # In each trip the values that have no register are loaded and stored: 100 · 2 · 12 of the 36 at least.
    assert tighter.bounds["lsu"] > 10 * free.bounds["lsu"]


def test_spills_by_hand(toy: Machine) -> None:
    """What the loop does not use goes to memory first."""
    body = (
        "".join(f"ld.global.f32 %f{i}, [%rd3+{4 * i}];\n" for i in range(23))
        + "mov.u32 %r2, 0;\nL:\nadd.f32 %f0, %f0, %f1;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 9;\n@%p1 bra L;\n"
        + "".join(f"st.global.f32 [%rd3+{4 * i}], %f{i};\n" for i in range(23))
    )
    # Live in the loop: 23 values, the counter and an address of two words: 26. With two kept aside 28 suffice. The address
    # goes first, since one instruction moves two words; then a value that the loop does not use. ptxas takes no limit below 24.
    for limit, words in ((28, 0), (27, 2), (26, 2), (25, 3), (24, 4), (23, 4), (16, 4)):
        profile = launched(kernel(body, directives=f".maxnreg {limit}"), 32, 1)
        given = timing_input(profile.records[0], toy, profile.resources)
        assert given.local_bytes == 4 * words, limit
        # each is stored after its load and loaded before its store, once: four sectors for a warp's word
        assert given.memory.local_sectors == 8 * words, limit


@pytest.mark.parametrize(
    ("directives", "registers"),
    [
        (".maxnreg 40", 40),
        (".reqntid 1024, 1, 1", 64),
        (".maxntid 256, 1, 1\n.minnctapersm 2", 128),
        (".maxntid 384, 1, 1", 168),
        ("", 255),
    ],
)
def test_directives_limit_registers(directives: str, registers: int) -> None:
    threads = 1024 if "reqntid" in directives else 128
    given = timing_input(
        launched(values(300, directives), threads, 1).records[0],
        load_machine("h100-sxm"),
        Resources(255, 0, 0),
    )
    assert given.registers_per_thread == registers
    assert given.local_bytes > 0


@pytest.mark.parametrize("machine", machine_ids())
@pytest.mark.parametrize("threads", [32, 96, 384, 512, 1000, 1024])
def test_registers_that_fit_are_the_most_with_which_the_occupancy_rules_let_a_cta_run(
    machine: str, threads: int
) -> None:
    found = load_machine(machine)
    most = registers_that_fit(found, threads)
    assert occupancy(found, threads_per_cta=threads, registers_per_thread=most).ctas_per_sm >= 1
    if most < found.max_registers_per_thread:
        with pytest.raises(LaunchError):
            occupancy(found, threads_per_cta=threads, registers_per_thread=most + 1)


def test_an_estimate_refuses_no_launch_and_ptxas_does() -> None:
    # 237 registers for each of 384 threads are 90 624 where an SM has 65 536.
    profile = launched(values(230), 384, 132)
    assert profile.resources.registers > 230
    found = estimate(profile, "h100-sxm", model="kleimenov-popova")
    assert found.ctas_per_sm == 1
    assert (
        f"registers: {profile.resources.registers} estimated, of which 168 fit with 384 threads per CTA"
        in found.notes
    )
    with pytest.raises(
        LaunchError, match="384 threads with 237 registers each need 92160 registers"
    ) as caught:
        estimate(profile, "h100-sxm", resources=Resources(237, 0, 0, "ptxas 13.0"))
    assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in str(caught.value)


def test_warpgroups_that_take_registers_for_themselves_do_not_spill() -> None:
    body = values(200, ".maxntid 384, 1, 1").replace(".target sm_70", ".target sm_90a")
    plain = launched(body, 384, 132)
    taking = launched(
        body.replace("mov.u32 %r2, 0;", "setmaxnreg.inc.sync.aligned.u32 240; mov.u32 %r2, 0;"), 384, 132
    )
    found = [
        timing_input(item.records[0], load_machine("h100-sxm"), item.resources) for item in (plain, taking)
    ]
    assert [item.registers_per_thread for item in found] == [168, 168]
    assert found[0].local_bytes > 0 == found[1].local_bytes


@needs_ptxas
def test_spills_of_ptxas_cost_time() -> None:
    free, tight = (
        launched(values(60, limit).replace("sm_70", "sm_80"), resources="ptxas")
        for limit in ("", ".maxnreg 32")
    )
    assert (free.resources.spill_loads, free.resources.spill_stores) == (0, 0)
    assert tight.resources.spill_loads > 0 < tight.resources.spill_stores
    for machine in TARGETS[1:]:
        assert estimate(tight, machine).time_us > 1.5 * estimate(free, machine).time_us


@needs_ptxas
@pytest.mark.parametrize(("loop", "most"), [('L:\n.pragma "nounroll";\n', 2.3), ("L:\n", 5.0)])
def test_estimated_spills_are_the_least_of_those_of_ptxas(loop: str, most: float) -> None:
    """What does not fit is kept in memory by ptxas too, and as much again: it loads some twenty values ahead of their use. Of a loop
    that it unrolls by four, twice of that, for what the copies have in flight (docs/timing.md has the figures)."""
    text = [values(60, f".maxnreg {limit}").replace("sm_70", "sm_80") for limit in (56, 48, 40, 32)]
    text = [item.replace("L:\n", loop) for item in text]
    exact = [launched(item, resources="ptxas").resources.local_bytes for item in text]
    guessed = [
        timing_input(item.records[0], load_machine("a100-sxm-80gb"), item.resources).local_bytes
        for item in map(launched, text)
    ]
    assert exact == sorted(exact) and guessed == sorted(guessed)
    # 60 values and what the loop itself needs, less the registers that there are
    assert all(4 * (60 - limit) <= one for limit, one in zip((56, 48, 40, 32), guessed, strict=True))
    for one, other in zip(exact, guessed, strict=True):
        assert other <= one <= most * other


def test_spills_beyond_l1_go_to_l2(toy: Machine) -> None:
    profile = launched(values(24, ".maxnreg 16"))
    given = timing_input(profile.records[0], toy, profile.resources)
    # 512 threads on an SM, 4 CTAs with 1 KiB aside for each: 124 KiB of L1 hold 248 bytes of each.
    small, large = (estimate(replace(given, local_bytes=size), toy) for size in (256, 512))
    assert small.bounds["l2"] < large.bounds["l2"]
    assert large.bounds["latency"] > small.bounds["latency"]
    moved = given.memory.local_sectors * 32 * (248 / 256 - 248 / 512) / 200 / 1000
    assert large.bounds["l2"] - small.bounds["l2"] == pytest.approx(moved)


def test_constants_at_one_address_are_operands(toy: Machine) -> None:
    table = ".const .align 4 .f32 table[64];\n"
    lines = "".join(f"ld.const.f32 %f2, [table+{4 * i}]; fma.rn.f32 %f1, %f2, %f1, %f1;\n" for i in range(64))
    immediate = "".join("fma.rn.f32 %f1, 0f3F800000, %f1, %f1;\n" for _ in range(64))
    inputs = []
    for body in (lines, immediate):
        profile = launched(
            kernel(f"mov.f32 %f1, 0f00000000; {body} st.global.f32 [%rd3], %f1;", before=table)
        )
        inputs.append(timing_input(profile.records[0], toy, profile.resources))
    assert inputs[0].warp_instructions == inputs[1].warp_instructions
    assert inputs[0].memory == inputs[1].memory
    assert estimate(inputs[0], toy).time_us == estimate(inputs[1], toy).time_us


def test_constants_at_the_lanes_own_addresses_are_loads_one_after_the_other(toy: Machine) -> None:
    table = ".const .align 4 .f32 table[64];\n"
    times = []
    for address in (
        "mov.u64 %rd4, table;",
        "mov.u64 %rd4, table; and.b64 %rd5, %rd2, 124; add.s64 %rd4, %rd4, %rd5;",
    ):
        body = f"{address} ld.const.f32 %f1, [%rd4]; st.global.f32 [%rd3], %f1;"
        profile = launched(kernel(body, before=table), 32, 1)
        given = timing_input(profile.records[0], toy, profile.resources)
        found = estimate(given, toy).bounds["lsu"] * 1000
        times.append((given.warp_instructions["lsu"], given.memory.constant_serializations, round(found)))
    # a store; and a load of 32 lanes
    assert times == [(1, 0, 1), (2, 31, 33)]
