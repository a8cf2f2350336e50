"""``model="simulation"``: predictions from machine code, and what is said where there is none. PTX of own kernels."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import SMALL

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.sass.sm.launch import trace_launch
from gpuperf_engine.timing.estimate import MODELS
from gpuperf_engine.timing.models.simulation import Simulation, numbers_of
from tests.support import needs_assembler
from tests.timing import products, streams
from tests.timing.conftest import MACHINES

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
.reg .b32 %r<16>; .reg .b64 %q<8>; .reg .f32 %f<40>; .reg .pred %p<4>;
.shared .align 16 .b8 tile[8448];
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
"""


def profile(
    body: str, grid: int, block: int, words: int, observe: frozenset[str] = frozenset(("memory",))
) -> ge.Profile:
    device = ge.Device(observe=observe, memory_bytes=1 << 26)
    kernel = ge.parse(HEAD + body + "\nret;\n}\n", path="own.ptx")["k"]
    return device.launch(
        kernel, grid, block, [device.zeros(words, np.float32), device.zeros(words, np.float32)]
    )


COPY = """mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; add.s64 %q5, %q2, %q3;
ld.global.f32 %f1, [%q4]; st.global.f32 [%q5], %f1;"""
PTX_OF_LOAD = 11  # the second line behind HEAD


def loop(body: str, turns: int) -> str:
    return f"mov.u32 %r5, 0;\nL:\n{body}\nadd.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, {turns};\n@%p1 bra L;\n"


@needs_assembler
def test_a_copy_takes_what_dram_needs() -> None:
    found = ge.estimate(profile(COPY, 8192, 256, 1 << 21), "rtx-a6000", model="simulation")
    assert (found.model, found.limiter) == ("simulation", "dram")
    # 8 MiB read and 8 MiB written, 727 GB/s in both directions
    assert found.bounds["dram"] == pytest.approx(2 * 8 * 2**20 / 727e3, rel=0.02)
    assert found.bounds["dram"] < found.time_us < 1.25 * found.bounds["dram"] + found.launch_us
    # a load waits for DRAM, and nothing else does
    waits = max(found.stalled, key=lambda item: item.stalled)
    assert waits.text.startswith("STG") and next(iter(waits.stalls)) == "long_scoreboard"
    causes = max(found.stalled, key=lambda item: item.caused)
    assert causes.text.startswith("LDG") and causes.ptx_line == PTX_OF_LOAD
    line = found.stalled_lines("ptx")[0]
    assert line.at == f"ptx:{PTX_OF_LOAD}" and line.caused >= causes.caused
    # each clock of a warp is one of these
    assert sum(sum(item.stalls.values()) for item in found.stalled) == pytest.approx(
        found.warp_clocks - sum(item.issued for item in found.stalled)
    )


@pytest.mark.parametrize(
    ("name", "one_way", "mixed"), [("h100-pcie", 0.5, 0.9), ("gh200", 0.5, 1.25), ("a40", 0, 0)]
)
def test_loads_wait_for_busy_dram_where_the_description_says_so(
    name: str, one_way: float, mixed: float
) -> None:
    machine = load_machine(name)
    numbers = numbers_of(machine)
    assert (numbers.wait_one_way, numbers.wait_mixed) == (one_way, mixed)
    other = numbers_of(replace(machine, dram_wait_one_way=0.1, dram_wait_mixed=None))
    assert (other.wait_one_way, other.wait_mixed) == (0.1, 0)


@needs_assembler
def test_multiply_adds_lower_the_clock_to_the_logged_one() -> None:
    """From 2490 to 1740 MHz on an L40; a copy hardly does."""
    sums = "\n".join(f"fma.rn.f32 %f{number}, %f{number}, %f{number}, %f{number};" for number in range(8, 24))
    total = "mov.f32 %f1, %f8;" + "".join(f"add.f32 %f1, %f1, %f{number};" for number in range(9, 24))
    loaded = COPY.replace(
        "st.global", "".join(f"mov.f32 %f{number}, %f1;" for number in range(8, 24)) + "\nst.global"
    )
    body = loaded.replace("st.global", f"{loop(sums, 200)}{total}\nst.global")
    clocks = []
    for given in (body, COPY):
        found = ge.estimate(profile(given, 568, 256, 1 << 18), "l40", model="simulation")
        assert found.model == "simulation"
        clocks.append(found.cycles / (found.time_us - found.launch_us))
    assert clocks[0] == pytest.approx(1740)
    assert 2490 > clocks[1] > 2465  # the unit computes the addresses


@needs_assembler
def test_bank_conflicts_cost_their_wavefronts() -> None:
    def shared(stride: int) -> ge.Profile:
        lines = [
            f"and.b32 %r6, %r1, 31; mul.lo.u32 %r6, %r6, {4 * stride}; mov.u32 %r7, tile; add.u32 %r6, %r6, %r7;",
            "mov.f32 %f9, 0f00000000;",
        ]
        body = "\n".join(
            f"ld.volatile.shared.f32 %f{n}, [%r6]; add.f32 %f9, %f9, %f{n};" for n in range(1, 9)
        )
        lines.append(loop(body, 64))
        return profile("\n".join(lines) + "st.global.f32 [%q2], %f9;", 84, 256, 64)

    times = {stride: ge.estimate(shared(stride), "rtx-a6000", model="simulation") for stride in (1, 32)}
    wavefronts = 8 * 64 * 8  # loads of the 8 warps of an SM
    clock = load_machine("rtx-a6000").clock_mhz
    for stride, found in times.items():
        assert found.bounds["lsu"] * clock == pytest.approx(wavefronts * max(2, stride), rel=0.03)
        assert found.time_us >= max(found.bounds.values())
    assert times[32].time_us > 6 * times[1].time_us


@needs_assembler
def test_the_same_lines_are_read_from_dram_once() -> None:
    # All CTAs read the same 32 KiB, four times: DRAM gives it once, L1 keeps it.
    body = "and.b32 %r6, %r1, 255; mul.wide.u32 %q3, %r6, 4; add.s64 %q4, %q1, %q3; mov.f32 %f9, 0f00000000;"
    loads = "\n".join(
        f"ld.global.f32 %f{n}, [%q4+{1024 * n}]; add.f32 %f9, %f9, %f{n};" for n in range(1, 33)
    )
    body += loop(loads, 4) + "st.global.f32 [%q2], %f9;"
    found = ge.estimate(profile(body, 336, 256, 1 << 16), "rtx-a6000", model="simulation")
    sectors = 1024 * (1 + 336 / 84) / 84
    assert found.bounds["dram"] * load_machine("rtx-a6000").clock_mhz < sectors * 32 * 84 / 400
    assert found.bounds["l2"] > 0


#: How a CTA of a row of 1024 works out its tile of 32 × 32: the row in %r6 and the column in %r7.
TILES = {
    "by two axes": "mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.x;",
    "by rows": "mov.u32 %r6, %ctaid.x; and.b32 %r7, %r6, 31; shr.u32 %r6, %r6, 5;",
    # four rows by columns
    "by groups of rows": """mov.u32 %r6, %ctaid.x; shr.u32 %r8, %r6, 7; and.b32 %r9, %r6, 127; and.b32 %r6, %r9, 3;
shl.b32 %r8, %r8, 2; add.u32 %r6, %r6, %r8; shr.u32 %r7, %r9, 2;""",
}


@needs_assembler
@pytest.mark.parametrize("order", ["by rows", "by groups of rows"])
def test_tiles_come_from_dram_as_often_whoever_works_out_where_they_are(order: str) -> None:
    # CTAs of a row of 32 × 32 tiles read the same 16 KiB of one array, those of a column the same of the other: once with a grid of
    # two axes, and once with one of which each CTA works out its tile.
    body = """shl.b32 %r8, %r6, 14; shl.b32 %r9, %r7, 14; mad.lo.u32 %r8, %r1, 4, %r8; mad.lo.u32 %r9, %r1, 4, %r9;
cvt.u64.u32 %q3, %r8; add.s64 %q3, %q3, %q1; cvt.u64.u32 %q4, %r9; add.s64 %q4, %q4, %q2; mov.f32 %f9, 0f00000000;
"""
    body += loop(
        "ld.global.f32 %f1, [%q3]; ld.global.f32 %f2, [%q4]; fma.rn.f32 %f9, %f1, %f2, %f9; add.s64 %q3, %q3, 1024; "
        "add.s64 %q4, %q4, 1024;",
        16,
    )
    body += "mul.wide.u32 %q5, %r1, 4; add.s64 %q5, %q2, %q5; st.global.f32 [%q5], %f9;"
    device = ge.Device(memory_bytes=1 << 24)
    arrays = [device.zeros(1 << 17, np.float32) for _ in "ab"]
    dram = {}
    for name in ("by two axes", order):
        kernel = ge.parse(HEAD + TILES[name] + body + "\nret;\n}\n", path="tiles.ptx")["k"]
        grid = (32, 32) if name == "by two axes" else 1024
        run = device.launch(kernel, grid, 256, arrays, demand="addresses")
        # a smaller L2, so that it does not hold both arrays
        machine = replace(load_machine("rtx-a6000"), l2_bytes=1 << 18)
        dram[name] = ge.estimate(run, machine, model="simulation").bounds["dram"]
    # the 504 CTAs that run at once are nearly 16 rows, or nearly 4 groups of 4 rows
    assert dram[order] == pytest.approx(dram["by two axes"], rel=0.01)


@needs_assembler
@pytest.mark.parametrize("order", ["by rows", "by groups of rows"])
def test_tiles_behind_a_long_loop_are_where_the_others_say(order: str) -> None:
    # A CTA reads a row of one array and a column of the other, and stores a tile of 8 rows of 8 words; the loop before the store is
    # longer than what is examined of the first CTAs. Taken as linear, tiles by rows would overlap those of the rows below.
    body = """shl.b32 %r8, %r6, 10; shl.b32 %r9, %r7, 10; mad.lo.u32 %r8, %r1, 4, %r8; mad.lo.u32 %r9, %r1, 4, %r9;
cvt.u64.u32 %q3, %r8; add.s64 %q3, %q3, %q1; cvt.u64.u32 %q4, %r9; add.s64 %q4, %q4, %q2; mov.f32 %f9, 0f00000000;
shl.b32 %r6, %r6, 3; shr.u32 %r10, %r1, 3; add.u32 %r6, %r6, %r10; and.b32 %r11, %r1, 7; mad.lo.u32 %r7, %r7, 8, %r11;
mad.lo.u32 %r6, %r6, 256, %r7; mul.wide.u32 %q5, %r6, 4; add.s64 %q5, %q2, %q5;
"""
    turn = (
        "ld.volatile.global.f32 %f1, [%q3]; ld.volatile.global.f32 %f2, [%q4]; fma.rn.f32 %f9, %f1, %f2, %f9;"
    )
    body += loop(turn, 1000) + "st.global.f32 [%q5], %f9;"
    device = ge.Device(memory_bytes=1 << 24)
    arrays = [device.zeros(1 << 18, np.float32) for _ in "ab"]
    found = {}
    for name in ("by two axes", order):
        kernel = ge.parse(HEAD + TILES[name] + body + "\nret;\n}\n", path="tiles.ptx")["k"]
        grid = (32, 32) if name == "by two axes" else 1024
        run = device.launch(kernel, grid, 64, arrays, demand="addresses")
        found[name] = trace_launch(run.records[0], "sm_80").classes.groups
    number = np.arange(1024)
    row, column = number // 32, number % 32
    if order == "by groups of rows":
        row, column = number // 128 * 4 + number % 4, number % 128 // 4
    # the middle of the grid is CTA 512
    offsets = (row - row[512]) * 8 * 256 + (column - column[512]) * 8
    (stored,) = (group for group in found[order] if group.store)
    assert np.frombuffer(stored.seen, np.int64).tolist() == offsets.tolist()
    (linear,) = (group for group in found["by two axes"] if group.store)
    assert (linear.moves, linear.seen) == ((8, 8 * 256, 0), b"")


@needs_assembler
def test_more_is_never_faster_and_never_below_a_bound() -> None:
    before = 0.0
    for turns in (1, 8):
        chain = "\n".join("fma.rn.f32 %f1, %f1, %f1, %f1;" for _ in range(16))
        found = ge.estimate(
            profile(COPY + loop(chain, turns) + "st.global.f32 [%q5], %f1;", 168, 128, 1 << 16),
            "rtx-a6000",
            model="simulation",
        )
        assert found.time_us > before
        assert found.time_us >= max(found.bounds.values())
        before = found.time_us


def inputs_of(
    body: str, first: np.ndarray, grid: int, block: int = 64, kept: bool = True
) -> tuple[ge.Profile, ge.DeviceArray]:
    """A launch on an array, of which what it held before is kept."""
    device = ge.Device(observe={"memory", "inputs"} if kept else {"memory"}, memory_bytes=1 << 26)
    kernel = ge.parse(HEAD + body + "\nret;\n}\n", path="own.ptx")["k"]
    out = device.zeros(len(first) + grid * block, np.float32)
    return device.launch(kernel, grid, block, [device.array(first), out]), out


GATHER = """mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; ld.global.u32 %r6, [%q4];
mul.wide.u32 %q3, %r6, 4; add.s64 %q6, %q2, %q3; ld.global.f32 %f1, [%q6];
mul.wide.u32 %q3, %r4, 4; add.s64 %q5, %q2, %q3; st.global.f32 [%q5], %f1;"""
ROUNDS = """mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; ld.global.u32 %r6, [%q4]; mov.f32 %f1, 0f00000000;
mov.u32 %r5, 0;
N: add.rn.f32 %f1, %f1, 0f3F800000; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r6;
@%p1 bra N;
add.s64 %q5, %q2, %q3; st.global.f32 [%q5], %f1;"""


@needs_assembler
@pytest.mark.parametrize("ctas", [5, 12])
def test_loaded_values_decide_how_often_a_loop_runs(ctas: int) -> None:
    rounds = np.random.default_rng(3).integers(1, 40, ctas * 64).astype(np.uint32)
    given, _ = inputs_of(ROUNDS, rounds, ctas)
    # on one SM, so that all CTAs are those that are simulated
    alone = replace(load_machine("rtx-a6000"), sm_count=1)
    found = ge.estimate(given, alone, model="simulation")
    assert found.model == "simulation"
    counted = ge.machine_code(given, "rtx-a6000")
    assert counted.ways.endswith("run")
    assert sum(item.issued for item in found.stalled) == counted.warp_instructions
    assert f"{ctas}, spread evenly over the grid, stand for all" in found.notes[0]


@needs_assembler
def test_ctas_that_differ_stand_for_those_beside_them() -> None:
    # the loop runs once more in each CTA
    body = loop("fma.rn.f32 %f1, %f1, %f1, %f1;", 8).replace(", 8;", ", %r9;")
    text = "mov.f32 %f1, 0f00000000; add.u32 %r9, %r2, 1;\n" + body + "st.global.f32 [%q2], %f1;"
    given = profile(text, 84 * 12, 64, 64, frozenset(("memory", "inputs")))
    found = ge.estimate(given, "rtx-a6000", model="simulation")
    assert "12, spread evenly over the grid, stand for all" in found.notes[0]
    counted = ge.machine_code(given, "rtx-a6000")
    assert counted.ways.endswith("run")
    issued = sum(item.issued for item in found.stalled)
    assert issued * 84 == pytest.approx(counted.warp_instructions, rel=0.05)
    # one SM runs them all: none are left out as if waves were alike
    alone = replace(load_machine("rtx-a6000"), sm_count=1)
    whole = ge.estimate(given, alone, model="simulation")
    assert sum(item.issued for item in whole.stalled) == pytest.approx(counted.warp_instructions, rel=0.05)


@needs_assembler
def test_the_longest_of_its_warps_decides_a_cta() -> None:
    rounds = np.full(84 * 64, 4, np.uint32)
    times = []
    for most in (4, 4000):
        rounds[::64] = most  # one lane of each CTA
        times.append(ge.estimate(inputs_of(ROUNDS, rounds, 84)[0], "rtx-a6000", model="simulation").cycles)
    latency = load_machine("rtx-a6000").latencies["fma"]
    assert times[1] - times[0] >= 3996 * latency


@needs_assembler
def test_scattered_gathers_take_longer() -> None:
    words = 1 << 18
    beside = np.arange(words, dtype=np.uint32)
    scattered = np.random.default_rng(5).permutation(words).astype(np.uint32)
    before, after = (
        ge.estimate(inputs_of(GATHER, indices, words // 256, 256)[0], "rtx-a6000", model="simulation")
        for indices in (beside, scattered)
    )
    assert {before.model, after.model} == {"simulation"}
    # a sector for each lane in place of one for eight
    assert after.bounds["l2"] > 3 * before.bounds["l2"]
    assert after.time_us > before.time_us


@needs_assembler
def test_another_content_is_another_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    rounds = [np.full(256, number, np.uint32) for number in (3, 300, 3)]
    few, many, again = (
        ge.estimate(inputs_of(ROUNDS, item, 4)[0], "rtx-a6000", model="simulation").time_us for item in rounds
    )
    assert few == again < many


@needs_assembler
def test_results_of_atomics_decide_where_to_store() -> None:
    """Behind one another, as without a counter, but for the wait of each warp for its place: a load that waits for L2 too."""
    ticket = "atom.global.add.u32 %r6, [%q1], 1;"
    store = "mul.wide.u32 %q6, %r6, 4; add.s64 %q7, %q2, %q6; st.global.f32 [%q7], 0f00000000;"
    machine = "rtx-a6000"
    found, loaded = (
        ge.estimate(inputs_of(first + store, np.zeros(64, np.uint32), 84)[0], machine, model="simulation")
        for first in (ticket, "ld.global.u32 %r6, [%q1]; add.u32 %r6, %r6, %r4;")
    )
    assert found.model == "simulation"
    assert found.time_us == pytest.approx(loaded.time_us, rel=0.1)


@needs_assembler
def test_more_sms_are_never_slower() -> None:
    """That have the same bandwidth together. A copy that DRAM limits takes as long; where 4 of 388 CTAs do anything, each of these has
    all that the others do not ask for."""
    busy = "setp.gt.u32 %p1, %r2, 3;\n@%p1 bra END;\n" + COPY + "\nEND:"
    for body, grid in ((COPY, 4096), (busy, 388), (COPY, 85 * 6 + 1)):
        given = profile(body, grid, 256, 1 << 20)
        times = []
        for count in (84, 85, 97, 105, 168, 336):
            machine = replace(load_machine("rtx-a6000"), sm_count=count)
            found = ge.estimate(given, machine, model="simulation")
            assert found.model == "simulation"
            times.append(found.cycles)
        assert all(after <= before * 1.0003 + 1 for before, after in itertools.pairwise(times)), (grid, times)


@needs_assembler
def test_a_launch_whose_ctas_run_at_once_takes_no_longer_on_more_sms() -> None:
    """194 CTAs that store at their ends: two of an SM do so one after the other, but one on each of 194 SMs all at once."""
    case = next(case for case in SMALL if case.name.startswith("fft512"))
    launch = case.program().launches[0]
    device = ge.Device(races="off")
    kernel = ge.parse(case.text, path="fft512.ptx")[launch.entry]
    args = [device.array(item) if isinstance(item, np.ndarray) else item for item in launch.args]
    given = device.launch(kernel, launch.grid, launch.block, args, shared_bytes=launch.shared_bytes)
    record = replace(given.records[0], plan=replace(given.records[0].plan, grid=(194, 1, 1)))
    two, one = (
        Simulation(record, replace(load_machine("l40"), sm_count=count)).timed() for count in (142, 284)
    )
    assert (two.ctas, one.ctas) == (2, 1)
    assert one.cycles <= two.cycles
    assert one.cycles >= max(one.bounds.values())


@needs_assembler
@pytest.mark.parametrize("block", [1, 1024])
def test_a_launch_of_as_many_ctas_as_a_grid_may_have(block: int) -> None:
    times = []
    for ctas in (10**6, 2**31 - 1):
        device = ge.Device(memory_bytes=1 << 20)
        kernel = ge.parse(HEAD + "ret;\n}\n", path="empty.ptx")["k"]
        given = device.launch(kernel, ctas, block, [device.zeros(1, np.float32)] * 2, demand="addresses")
        times.append(ge.estimate(given, "rtx-a6000", model="simulation"))
    assert {found.model for found in times} == {"simulation"}
    assert times[1].cycles / times[0].cycles == pytest.approx((2**31 - 1) / 10**6, rel=1e-3)


SPIN = """setp.ne.u32 %p1, %r2, 0; mov.u32 %r6, 1;
@%p1 bra W;
st.volatile.global.u32 [%q1], %r6;
bra E;
W: ld.volatile.global.u32 %r7, [%q1]; setp.eq.u32 %p2, %r7, 0;
@%p2 bra W;
E: st.global.u32 [%q2], %r6;"""


@needs_assembler
def test_ctas_that_wait_for_one_another_in_global_memory_are_not_traced_for_ever() -> None:
    # The first of 40 CTAs lets the others go on; of those that are traced it is none.
    found = ge.estimate(inputs_of(SPIN, np.zeros(64, np.uint32), 40, 32)[0], "rtx-a6000", model="simulation")
    assert found.model == "kleimenov-popova" and "wait for what others store" in found.notes[0]


@needs_assembler
def test_what_cannot_be_simulated_is_said() -> None:
    # an address that is loaded, and nobody kept what was there
    given, _ = inputs_of(GATHER, np.arange(4 * 64, dtype=np.uint32), 4, kept=False)
    found, other = (
        ge.estimate(given, "rtx-a6000", model=model) for model in ("simulation", "kleimenov-popova")
    )
    assert (found.model, found.time_us) == (other.model, other.time_us)
    assert "its control flow or addresses depend on" in found.notes[0]


QUOTIENTS = {
    "div.rn.f32": "div.rn.f32 %f3, %f1, %f2;",
    "rcp.rn.f32": "rcp.rn.f32 %f3, %f1;",
    "sqrt.rn.f32": "sqrt.rn.f32 %f3, %f1;",
    "div.rn.f64": "cvt.f64.f32 %d1, %f1; cvt.f64.f32 %d2, %f2; div.rn.f64 %d1, %d1, %d2; cvt.rn.f32.f64 %f3, %d1;",
    "sqrt.rn.f64": "cvt.f64.f32 %d1, %f1; sqrt.rn.f64 %d1, %d1; cvt.rn.f32.f64 %f3, %d1;",
}


@needs_assembler
@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_and_roots_of_what_is_loaded_take_the_way_of_normal_numbers(name: str) -> None:
    # ptxas calls a function where operands are subnormal, infinite or no numbers, and computes others in line: a branch that loaded
    # values decide. The arrays hold zeros, and nobody kept them.
    loads = """.reg .f64 %d<3>; mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; add.s64 %q5, %q2, %q3;
ld.global.f32 %f1, [%q4]; ld.global.f32 %f2, [%q5];"""
    found = ge.estimate(
        profile(f"{loads} {QUOTIENTS[name]} st.global.f32 [%q5], %f3;", 64, 128, 1 << 13),
        "rtx-a6000",
        model="simulation",
        why=True,
    )
    assert found.model == "simulation"
    calls = [item for item in found.stalled if item.text.lstrip("@!P0123456 ").startswith("CALL")]
    assert calls and not any(item.issued for item in calls)
    # every other part of it is executed by the warps: four of each CTA
    assert {item.issued for item in found.stalled if "MUFU" in item.text} - {0} == {4}


@needs_assembler
def test_it_is_the_default_and_says_so() -> None:
    given = profile(COPY, 512, 256, 1 << 17)
    found, asked = ge.estimate(given, "rtx-a6000"), ge.estimate(given, "rtx-a6000", model="simulation")
    assert found == asked
    assert found.assembler == ge.machine_code_tools()[0] and found.assembler in found.notes[0]
    explained = ge.estimate(given, "rtx-a6000", why=True)
    assert explained.model == "simulation" and explained.stalls and not found.stalls


@needs_assembler
def test_what_was_simulated_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    given = profile(COPY, 512, 256, 1 << 17)
    found = ge.estimate(given, "rtx-a6000")

    def again(*_: object) -> None:
        raise AssertionError("it is simulated again")

    monkeypatch.setattr("gpuperf_engine.sass.sm.kept.trace_launch", again)
    assert ge.estimate(profile(COPY, 512, 256, 1 << 17), "rtx-a6000") == found
    for other in (profile(COPY, 511, 256, 1 << 17), profile(COPY + "add.f32 %f2, %f1, %f1;", 1, 32, 64)):
        with pytest.raises(AssertionError):
            ge.estimate(other, "rtx-a6000")


def test_without_an_assembler_the_other_model_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_PTXAS", "/nowhere/ptxas")
    given = profile(COPY, 4, 64, 1 << 12)
    found, other = (ge.estimate(given, "a40", model=model) for model in ("simulation", MODELS[0]))
    assert (found.model, found.time_us, found.stalled) == ("kleimenov-popova", other.time_us, ())
    assert found.notes[0].startswith("simulation: not possible, so kleimenov-popova is used:")


@needs_assembler
def test_a_trace_executes_what_the_counts_say() -> None:
    # Lanes leave the loop at different turns: parts of warps go their own way.
    body = "and.b32 %r8, %r1, 7; add.u32 %r8, %r8, 1;\n" + loop("mul.lo.u32 %r9, %r5, 5;", 3).replace(
        ", 3;", ", %r8;"
    )
    given = profile(body + COPY, 6, 96, 1 << 12)
    counted = ge.machine_code(given, "rtx-a6000", running=False)
    found = ge.estimate(given, "rtx-a6000", model="simulation")
    # six CTAs on as many SMs, one on the SM that is simulated
    assert sum(item.issued for item in found.stalled) * 6 == counted.warp_instructions


def test_a_machine_file_of_an_earlier_version(tmp_path: Path, toy: Machine) -> None:
    """It lacks what only the simulation needs: it is read, and the default model predicts."""
    text = (MACHINES / "toy.yaml").read_text(encoding="utf-8")
    older = [line for line in text.splitlines(keepends=True) if "memory_queue" not in line]
    assert len(older) == text.count("\n") - 1
    (tmp_path / "toy.yaml").write_text("".join(older), encoding="utf-8")
    ours = profile(COPY, 8, 256, 1 << 11)
    found = ge.estimate(ours, load_machine("toy", search=[tmp_path]), model="simulation")
    assert found.model == "kleimenov-popova"
    assert found.time_us == ge.estimate(ours, toy, model="kleimenov-popova").time_us
    assert any("lacks sm.memory_queue" in note for note in found.notes)


def guarded() -> str:
    """Eleven loads and stores, each under the guard of the second half of a tile of 46 rows, of which lanes have 32."""
    steps = [
        f"add.s32 %r4, %r2, 32; setp.lt.s32 %p1, %r4, 46; @!%p1 bra S{at}; ld.global.nc.f32 %f1, [%q1+{8 * at}]; "
        f"st.shared.f32 [%r3+{8 * at}], %f1; S{at}:"
        for at in range(11)
    ]
    body = "\n".join(steps)
    return f"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{{
.shared .align 4 .b8 part[4096];
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %q<5>; .reg .f32 %f<3>;
ld.param.u64 %q1, [a]; ld.param.u64 %q3, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;
mad.lo.s32 %r6, %r2, 2, %r1; mul.wide.s32 %q2, %r6, 4; add.s64 %q1, %q1, %q2; add.s64 %q3, %q3, %q2;
mov.u32 %r3, part; shl.b32 %r6, %r6, 2; add.s32 %r3, %r3, %r6;
{body}
bar.sync 0; ld.shared.f32 %f2, [%r3]; st.global.f32 [%q3], %f2;
ret;
}}
"""


@needs_assembler
def test_lanes_that_leave_a_region_early_are_followed() -> None:
    # on Turing the assembler writes BREAK for the ways out of the middle of what it nests
    device = ge.Device(observe={"memory", "inputs"})
    arrays = [device.zeros(4096), device.zeros(4096)]
    given = device.launch(ge.parse(guarded(), path="k.ptx")["k"], 4, (2, 32), arrays)
    code = ge.machine_code(given, "rtx-2080-ti")
    assert any(item.opcode.startswith("BREAK") for item in code.instructions)
    found = ge.estimate(given, "rtx-2080-ti", model="simulation")
    assert found.model == "simulation"
    # four CTAs on as many SMs
    issued = 4 * sum(item.issued for item in found.stalled)
    assert issued == code.warp_instructions


@needs_assembler
def test_stages_are_predicted_in_the_order_that_was_measured() -> None:
    # 512 × 512, as the measured ones take long: naive, coalesced, tiles in shared memory, tiles in registers
    rows = [products.Row("rtx-a6000", stage, 512, 0.0) for stage in (1, 2, 3, 4)]
    times = [products.simulated_time(row) for row in rows]
    assert times == sorted(times, reverse=True)
    # what was measured of 4096 × 4096 matrices: 445, 69, 46 and 16 ms
    measured = {row.stage: row.microseconds for row in products.measured()}
    assert [measured[stage] for stage in (1, 2, 3, 4)] == sorted(measured.values(), reverse=True)[:4]


@needs_assembler
@pytest.mark.parametrize(
    ("name", "gpu", "ctas"),
    [
        ("stream_measured.csv", "a100_40", 1),
        ("stream_measured.csv", "a40", 1),
        ("stream_measured.csv", "gh200", 1),
        ("stream_heldout.csv", "l40", 2),
    ],
)
def test_rows_that_the_turnaround_is_from_are_given_back(name: str, gpu: str, ctas: int) -> None:
    rows = [
        row
        for row in streams.measured(name)
        if (row.gpu, row.kernel, row.threads, row.ctas_per_sm) == (gpu, "init", 32, ctas)
    ]
    assert len(rows) == 1
    assert abs(streams.simulated_error(rows[0])) < 0.02
