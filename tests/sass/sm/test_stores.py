"""Stores of parts of sectors, and atomics on few lines: what streams count, and what L2 and DRAM take for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.sm_records import END, SINGLE
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.sm.asynchronous import Named
from gpuperf_engine.sass.sm.streams import Class, class_of
from tests.sass.sm.machines import TOY, access, run
from tests.support import needs_assembler

LOAD, ATOMIC, STORE = 0, 1, 32


def traced(flags: int, words: list[int], width: int = 1) -> Class:
    """One access of global memory by the lanes of a warp, at these numbers of 4-byte words."""
    named = Named(np.array([[1, width, 0, flags]] * 2, np.uint8), np.array([0, 1], np.uint32))
    return class_of(named, [np.array([0, END, *words], np.uint32)])


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2, 3, 8, 40])
def test_lines_with_sectors_that_a_store_writes_in_part_are_counted(width: int, stride: int) -> None:
    starts = width * stride * np.arange(32)
    made = traced(STORE, starts.tolist(), width)
    written = np.unique(starts[:, None] + np.arange(width))
    sectors, words = np.unique(written // 8, return_counts=True)
    partial = np.unique(sectors[words < 8] // 4)
    assert made.stream[1] >> 24 & SINGLE - 1 == len(partial)
    # of 8 aligned bytes both words, in lines with sectors in part
    pairs, both = np.unique(written[np.isin(written // 32, partial)] // 2, return_counts=True)
    of_parts = np.isin(pairs // 4, sectors[words < 8])
    assert bool(made.stream[1] >> 24 & SINGLE) == (len(partial) > 0 and not (both[of_parts] > 1).any())
    assert np.bitwise_count(made.sectors).sum() == len(sectors)
    assert np.bitwise_count(made.written).sum() == len(written)
    parts = made.filled([True], [False])
    assert np.bitwise_count(parts).sum() == (words < 8).sum()
    # what another group has loaded is in L2, and other groups do not count
    assert not made.filled([True], [True]).any() and not made.filled([False], [False]).any()


def test_loads_write_nothing() -> None:
    made = traced(LOAD, list(range(0, 256, 8)))
    assert made.stream[1] >> 24 == 0 and not made.written.any()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("words", [1, 8, 64, 256])
def test_atomics_take_the_turns_of_the_most_accessed_word_of_each_sector(seed: int, words: int) -> None:
    drawn = np.random.default_rng(seed).integers(0, words, 32)
    counts = np.bincount(drawn, minlength=-(-words // 8) * 8).reshape(-1, 8)
    made = traced(ATOMIC, drawn.tolist())
    assert made.stream[1] >> 24 == counts.max(axis=1).sum()
    # they write what L2 has read
    assert np.bitwise_count(made.filled([True], [False])).sum() == (counts.sum(axis=1) > 0).sum()


def test_l2_takes_longer_for_lines_with_sectors_written_in_part() -> None:
    # 40 stores of a warp, each to a sector of 16 lines: 4 sectors a clock by the bandwidth, a line in 5 clocks in part.
    code = ["STG.E [R2.64], R4"] * 40 + ["EXIT"]
    one = access(16, {n: 1 for n in range(16)})
    words = [one * 40]
    whole = run(code, words, lines=16, share=0.0, l2_rate=128.0, numbers=replace(TOY, port_rate=256.0))
    one[0] |= 16 << 24
    part = run(
        code,
        [one * 40],
        lines=16,
        share=0.0,
        l2_rate=128.0,
        partial_rate=0.2,
        numbers=replace(TOY, port_rate=256.0),
    )
    assert part.cycles == pytest.approx(40 * 16 * 5, rel=0.1)
    assert whole.cycles < part.cycles / 3
    assert part.turns[:40].tolist() == [16] * 40


@pytest.mark.parametrize("filled", [0, 1, 15])
def test_dram_reads_sectors_written_in_part(filled: int) -> None:
    code = ["STG.E [R2.64], R4"] * 64 + ["EXIT"]
    words = [[word for n in range(64) for word in access(1, {n: 3})]]
    seen = run(
        code, words, lines=64, filled=filled, row_rate=0.02, apart=8, numbers=replace(TOY, row_open=1000)
    )
    assert seen.dram_sectors == 64 * (2 + bin(filled & 3).count("1"))
    assert seen.row_clocks == 50 * 64 * (1 + (filled > 0))


HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 mask)
{
.reg .b32 %r<16>; .reg .b64 %q<8>; .reg .pred %p<4>;
ld.param.u64 %q1, [a]; ld.param.u32 %r8, [mask];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
"""
#: a hash of the thread
HASH = """mul.lo.u32 %r5, %r4, 0x9E3779B1; shr.u32 %r6, %r5, 15; xor.b32 %r5, %r5, %r6; mul.lo.u32 %r5, %r5, 0x85EBCA77;
and.b32 %r5, %r5, %r8; """


def timed(body: str, machine: str, words: int, threads: int = 1 << 19, mask: int = 0) -> ge.Estimate:
    device = ge.Device(memory_bytes=1 << 30)
    kernel = ge.parse(HEAD + body + "ret;\n}\n", path="stores.ptx")["k"]
    given = [device.zeros(words, np.uint32), np.uint32(mask)]
    profile = device.launch(kernel, threads // 512, 512, given, demand="addresses")
    return ge.estimate(profile, machine, model="simulation")


@needs_assembler
def test_lanes_that_store_a_word_of_each_line_take_l2_longest() -> None:
    stored = "mul.wide.u32 %q2, %r4, {bytes}; add.s64 %q2, %q2, %q1; st.global.u32 [%q2], %r4;"
    found = {size: timed(stored.format(bytes=size), "a100-sxm-40gb", 32 << 19) for size in (4, 128)}
    machine = load_machine("a100-sxm-40gb")
    assert machine.l2_partial_rate is not None and machine.l2_single_rate is not None
    clocks = (1 << 19) / machine.l2_single_rate
    assert found[128].bounds["l2"] * machine.clock_mhz == pytest.approx(clocks, rel=0.02)
    assert found[4].bounds["l2"] < found[128].bounds["l2"] / 20
    # two words of 8 aligned bytes at once
    place = (
        "and.b32 %r5, %r4, 1; shr.u32 %r6, %r4, 1; mad.lo.u32 %r5, %r6, 32, %r5; mul.wide.u32 %q2, %r5, 4;"
    )
    pairs = timed(place + "add.s64 %q2, %q2, %q1; st.global.u32 [%q2], %r4;", "a100-sxm-40gb", 32 << 18)
    clocks = (1 << 18) / machine.l2_partial_rate
    assert pairs.bounds["l2"] * machine.clock_mhz == pytest.approx(clocks, rel=0.02)


@needs_assembler
def test_stores_that_fill_sectors_one_after_the_other_take_l2_a_turn_for_each_line() -> None:
    """On an H100 such a scan of blocks takes no longer than DRAM (simveit/effective_scan e21df5e, kernel_4)."""
    place = "mul.wide.u32 %q2, %r4, 16; add.s64 %q2, %q2, %q1;"
    words = "".join(f"st.global.u32 [%q2+{4 * each}], %r4;" for each in range(4))
    apart, vector = (
        timed(place + stores, "h100-sxm", 4 << 19)
        for stores in (words, "st.global.v4.u32 [%q2], {%r4, %r4, %r4, %r4};")
    )
    machine = load_machine("h100-sxm")
    assert machine.l2_partial_rate is not None
    # each of the four stores of a warp writes half of each of the sectors of 4 lines, of which all but one cost their bytes alone
    lines = 4 * 4 * (1 << 19) / 32
    clocks = lines / machine.l2_partial_rate + 3 * lines * 32 / machine.l2_bandwidth
    assert apart.bounds["l2"] * machine.clock_mhz == pytest.approx(clocks, rel=0.02)
    assert vector.bounds["l2"] < apart.bounds["l2"] / 3


@needs_assembler
def test_random_stores_take_twice_the_rows_of_random_loads() -> None:
    """An H100 was measured to write 13.4 and 32 G/s to read (NVIDIA-developer-blog/code-samples, issue 56)."""
    place = HASH + "mul.wide.u32 %q2, %r5, 8; add.s64 %q2, %q2, %q1;"
    mask = (1 << 25) - 1
    load = timed(
        place + "ld.global.v2.u32 {%r9, %r10}, [%q2]; st.global.v2.u32 [%q2], {%r9, %r9};",
        "h100-sxm",
        1 << 26,
        mask=mask,
    )
    store = timed(place + "st.global.v2.u32 [%q2], {%r4, %r4};", "h100-sxm", 1 << 26, mask=mask)
    machine = load_machine("h100-sxm")
    assert machine.dram_channels is not None and machine.dram_row_interval is not None
    rows = (1 << 19) * machine.dram_row_interval / machine.dram_channels / 1e3
    assert store.bounds["dram"] == pytest.approx(2 * rows, rel=0.05)
    # a load brings the sector, so that the store only writes it
    assert load.bounds["dram"] == pytest.approx(2 * rows, rel=0.05)


@needs_assembler
@pytest.mark.parametrize("kib", [1, 2, 64])
def test_atomics_of_few_kib_share_few_slices_of_l2(kib: int) -> None:
    body = f"and.b32 %r5, %r4, {256 * kib - 1}; mul.wide.u32 %q2, %r5, 4; add.s64 %q2, %q2, %q1; red.global.add.u32 [%q2], %r4;"
    found = timed(body, "rtx-3080", 256 * kib)
    machine = load_machine("rtx-3080")
    assert machine.atomic_turns is not None
    # four sectors of each warp; at one address there are 2¹⁹ / (256 · KiB) lanes
    clocks = (1 << 19) / 32 * 4 / machine.atomic_turns / kib
    assert found.bounds["atomics"] * machine.clock_mhz == pytest.approx(max(clocks, 2048 / kib), rel=0.05)


@needs_assembler
@pytest.mark.parametrize(("stride", "times"), [(1, 1), (2, 4), (4, 8)])
def test_words_that_are_stored_long_after_their_neighbours_fill_no_sector(stride: int, times: int) -> None:
    """Threads store every second or fourth word, and again when all have gone through an array of four times the size of L2, so that
    together they store as many words as its sectors have. Each store moves its sectors twice: they are read first. On an A100 such
    loops take 1.5 times as long as their loads and stores alone (ayush-os/gpu-perf-lab 2194495, strided_access)."""
    threads = 1 << 22
    place = f"mul.lo.u32 %r5, %r4, {stride}; and.b32 %r5, %r5, %r8; mul.wide.u32 %q2, %r5, 4;"
    store = "add.s64 %q2, %q2, %q1; st.global.u32 [%q2], %r4;"
    found = timed(place + store, "rtx-3070", threads, threads, threads - 1)
    expected = times * 4 * threads / load_machine("rtx-3070").dram_sustained_one_way
    assert found.bounds["dram"] == pytest.approx(expected / 1e3, rel=0.02)


@needs_assembler
def test_additions_of_floating_point_numbers_take_l2_longer() -> None:
    """2²⁴ threads add to one word in 37.29 ms on an A100 (ayush-os/reduction e353cae), here an eighth of them."""
    found = timed("red.global.add.f32 [%q1], 0f3F800000;", "a100-sxm-40gb", 1, 1 << 21)
    assert found.bounds["atomics"] == pytest.approx(37289.8 / 8, rel=0.01)


@needs_assembler
def test_sums_of_gradients_on_an_l4() -> None:
    """8192 rows add to 768 consecutive words in 395.7 to 409.2 us (abideenml/llama3.cuda b6c34a1, rmsnorm_backward 2)."""
    place = "rem.u32 %r5, %r4, 768; mul.wide.u32 %q2, %r5, 4; add.s64 %q2, %q2, %q1;"
    found = timed(place + "red.global.add.f32 [%q2], 0f3F800000;", "l4", 768, 8192 * 768)
    assert 395.7 <= found.bounds["atomics"] <= 409.2


def test_local_stores_write_through_and_stay_in_l1() -> None:
    """A profiler counts every local store of an RTX 2080 Ti as a write to L2 (docs/machine-code.md); loads that follow hit in L1, and
    what L1 evicts need not be written again."""
    stores = [line for number in range(8) for line in access(1, {number: 15})]
    text = ["STL [R1], R2"] * 8
    for times, kept in ((1, 8), (4, 8), (1, 2)):
        seen = run([*text * times, "EXIT"], [stores * times], lines=8, share=0.0, l1_lines=kept)
        assert (seen.l2_sectors, seen.dram_sectors) == (4 * 8 * times, 0)
        # at 64 bytes a clock
        assert seen.cycles >= 4 * 8 * times * 32 // 64
    again = [*text, *["LDL R2, [R1]"] * 8, "EXIT"]
    assert run(again, [stores * 2], lines=8, share=0.0, l1_lines=8).l2_sectors == 4 * 8
    assert run(again, [stores * 2], lines=8, share=0.0, l1_lines=2).l2_sectors == 2 * 4 * 8


@pytest.mark.parametrize(
    ("kept", "lost", "times"),
    [
        (64, 65, 1.0),  # L2 holds all 64 lines
        (31, 32, 2.0),  # of which it has lost each before it is loaded again
        # A line is lost with probability (m - 32) / 64, m of which have moved since it was loaded: m' = m / 64 - 1.5 from 64 on.
        (32, 96, 1.0 + math.log(2.0) - 0.5),
    ],
)
def test_what_l2_has_lost_comes_from_dram_again(kept: int, lost: int, times: float) -> None:
    code = ["LDG.E R5, [R2.64]"] * 128 + ["EXIT"]
    words = [word for n in range(128) for word in access(1, {n % 64: 15})]
    seen = run(code, [words], lines=64, l1_lines=1, l2_kept=128.0 * kept, l2_lost=128.0 * lost)
    assert seen.dram_sectors == pytest.approx(256 * times, abs=4)
    # what L1 holds is not read at all
    assert run(code, [words], lines=64, l2_kept=128.0 * kept, l2_lost=128.0 * lost).l2_sectors == 256
