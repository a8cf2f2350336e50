"""Microkernels give back the numbers of every machine file, within 5 %. Machine code written by hand: no assembler."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.timing.models.simulation import numbers_of

from .machines import access, run

CLOSE = 0.05
#: by latency of a machine file: an instruction that needs its own result, and the unit that it occupies
CHAINS = {
    "fma": ("FFMA R1, R1, R2, R1", "fma"),
    "alu": ("IADD3 R1, R1, R2, RZ", "alu"),
    "imad": ("IMAD R1, R1, R2, R1", "imad"),
    "fp64": ("DFMA R2, R2, R4, R2", "fp64"),
    "fp16": ("HFMA2 R1, R1, R2, R1", "fp16"),
    "xu": ("MUFU.RCP R1, R1", "xu"),
    "shuffle": ("SHFL.IDX PT, R1, R1, R2, R3", "lsu"),
    "shared": ("LDS R1, [R1]", "lsu"),
    "l1": ("LDG.E R2, [R2.64]", "lsu"),
    "l2": ("LDG.E R2, [R2.64]", "lsu"),
    "dram": ("LDG.E R2, [R2.64]", "lsu"),
}
#: by unit: instructions side by side
STREAMS = {
    "fma": "FFMA R{}, R1, R2, c[0x0][0x160]",
    "alu": "IADD3 R{}, R1, R2, RZ",
    "imad": "IMAD R{}, R1, R2, c[0x0][0x160]",
    "fp64": "DFMA R{}, R2, R4, c[0x0][0x160]",
    "fp16": "HFMA2 R{}, R1, R2, c[0x0][0x160]",
    "xu": "MUFU.RCP R{}, R1",
}


def described(name: str) -> tuple[Machine, SmNumbers]:
    machine = load_machine(name)
    return machine, numbers_of(machine)


def slope(texts: list[str], words: list[int], numbers: SmNumbers, **how: float) -> float:
    """Clocks that one more of this code takes a warp that is alone: of 60 more than 20."""
    ends = [
        run([*texts * count, "EXIT"], [words * count], numbers=numbers, **how).ended  # type: ignore[arg-type]
        for count in (20, 80)
    ]
    return (ends[1] - ends[0]) / 60


def each(machine: Machine, unit: str) -> float:
    """Clocks from one instruction of a warp to its next. A unit with fewer lanes than there are sub-partitions cannot be one for each:
    a chain of DFMA takes 45 clocks on a TITAN RTX (NMSU, GPUs-ISA-Latencies), where a quarter of two lanes would take 64 for one."""
    lanes = machine.lanes[unit]
    return 32 / (lanes if lanes >= 1 else lanes * machine.sub_partitions)


@pytest.mark.parametrize("name", machine_ids())
def test_a_chain_takes_the_latency(name: str) -> None:
    machine, numbers = described(name)
    for of, (text, unit) in CHAINS.items():
        if of not in machine.latencies:
            continue
        words, how = [], {}
        if of == "shared":
            words = access(1)
        if of == "l1":
            words, how = access(1, {0: 1}), {"lines": 1, "share": 0.0}
        if of in ("l2", "dram"):  # no line is kept in L1
            continue
        busy = each(machine, unit) if unit != "lsu" else 0
        expected = max(machine.latencies[of], busy)
        found = slope([text], words, numbers, **how)
        assert found == pytest.approx(expected, rel=CLOSE), (of, found, expected)


@pytest.mark.parametrize("name", machine_ids())
@pytest.mark.parametrize("level", ["l2", "dram"])
def test_a_chase_takes_the_latency_of_its_level(name: str, level: str) -> None:
    """Cold caches: each line comes from DRAM; warm: from L2."""
    machine, numbers = described(name)
    ends = []
    for count in (20, 80):
        words = [word for line in range(count) for word in access(1, {line: 1})]
        code = [CHAINS[level][0]] * count + ["EXIT"]
        share = float(level == "dram")
        seen = run(code, [words], numbers=numbers, lines=count, share=share, dram_rate=1e3, l2_rate=1e3)
        assert seen.dram_sectors == count * share
        ends.append(seen.ended)
    assert (ends[1] - ends[0]) / 60 == pytest.approx(machine.latencies[level], rel=CLOSE)


def test_latencies_of_slices_have_the_measured_mean_and_deviation() -> None:
    """Jin et al., MICRO 2024: of a V100, 13.9 of 213 cycles from the SMs of one GPC, 7.5 of 209 from those of another, and 175 to 248
    from all. Both spaces, L2 and DRAM, are reached through the same slices."""
    _, numbers = described("v100-pcie")
    for share in (0.0, 1.0):
        ends = []
        for line in range(512):
            words = access(1, {line: 1})
            seen = run(
                [CHAINS["l2"][0], "IADD3 R2, R2, R3, RZ", "EXIT"], [words], numbers=numbers, lines=512, share=share,
                dram_rate=1e3, l2_rate=1e3,
            )  # fmt: skip
            ends.append(seen.ended)
        plain = run(
            [CHAINS["l2"][0], "IADD3 R2, R2, R3, RZ", "EXIT"], [access(1, {0: 1})], numbers=replace(numbers, spread=0), lines=512,
            share=share, dram_rate=1e3, l2_rate=1e3,
        )  # fmt: skip
        assert np.mean(ends) == pytest.approx(plain.ended, abs=1.5)
        assert 7.5 <= np.std(ends) <= 13.9
        assert np.max(np.abs(np.array(ends) - plain.ended)) <= (248 - 175) / 2
        assert len(set(ends)) > 16


@pytest.mark.parametrize("name", machine_ids())
def test_warps_that_do_not_wait_take_the_lanes_of_the_unit(name: str) -> None:
    machine, numbers = described(name)
    for unit, text in STREAMS.items():
        # where it has 10 lanes (6.0 and 6.1, which ptxas no longer knows) it is occupied for whole clocks
        if unit not in machine.lanes or machine.lanes[unit] == 10:
            continue
        code = [text.format(8 + 2 * (n % 60)) for n in range(300)] + ["EXIT"]
        ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
        # four warps in each sub-partition, which issues one instruction a clock
        clocks = max(32 / machine.lanes[unit], 1 / min(1.0, machine.issue_rate))
        assert ended == pytest.approx(4 * 300 * clocks, rel=CLOSE), (unit, ended / 1200, clocks)


def test_multiply_adds_of_64_bits_have_half_the_rate() -> None:
    """An RTX 4090 executes 32 IMAD.WIDE in a clock and SM, of 64 IMAD (notes on proofs of work, September 2026)."""
    numbers = described("rtx-4090")[1]
    code = [f"IMAD.WIDE.U32 R{8 + 2 * (n % 60)}, R1, 0x4, R2" for n in range(300)] + ["EXIT"]
    ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    assert 32 * 300 * 4 * numbers.parts / ended == pytest.approx(32, rel=CLOSE)


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("IADD3 R{}, R1, R2, RZ", 128), ("LOP3.LUT R{}, R1, R2, RZ, 0xc0, !PT", 64), ("SHF.L.U32 R{}, R1, 0x3, RZ", 64),
     ("FMNMX R{}, R1, R2, PT", 64), ("F2I.TRUNC.NTZ R{}, R1", 2), ("IMAD R{}, R1, R2, c[0x0][0x160]", 64)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["rtx-5090", "rtx-5080", "rtx-pro-6000-blackwell"])
def test_integers_of_12_0(name: str, text: str, lanes: int) -> None:
    """Results per clock and SM (CUDA C++ Best Practices Guide 13.4, throughput of native arithmetic instructions)."""
    numbers = described(name)[1]
    code = [text.format(8 + 2 * (n % 60)) for n in range(60)] + ["EXIT"]
    ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    assert 32 * 60 * 4 * numbers.parts / ended == pytest.approx(lanes, rel=CLOSE)


def test_the_pipes_of_single_precision_are_as_busy_as_on_an_h100() -> None:
    """FMA 25.5 % in 399,504,955 clocks (Nsight Compute, ahmadsharif1/cuda_study be5cef0, ``matmul_naive``, 4096 × 8192 × 16,384). Its
    loop has 16 FFMA and 17 IMAD.WIDE for 16 steps along k, in 73 instructions: 4.5625 a step, and 4.5655 were counted. The percentage
    is that of both halves of the pipe, of which one alone multiplies integers."""
    machine, numbers = described("h100-sxm")
    steps = 4096 * 8192 * 16384 / 32 / (machine.sm_count * numbers.parts)
    code = [text for n in range(80) for text in _step(n)] + ["EXIT"]
    clocks = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    # the half that multiplies integers is always busy; the other one with an FFMA for 2 clocks of each step
    assert clocks == pytest.approx(4 * 80 * 4 * 17 / 16, rel=CLOSE)
    assert (2 + clocks / (4 * 80)) / 2 * steps / 399_504_955 == pytest.approx(0.255, rel=0.02)


def _step(number: int) -> list[str]:
    wide = f"IMAD.WIDE R{8 + 2 * (number % 60)}, R1, 0x4, R2"
    return [f"FFMA R{130 + number % 60}, R1, R2, R3", *[wide] * (2 if number % 16 == 15 else 1)]


@pytest.mark.parametrize(
    ("name", "half"),
    # clocks of a sub-partition for 16 x 8 x 16 halves, by the whitepapers: GeForce GPUs accumulate in FP32 at half the rate
    [
        ("rtx-2080-ti", 16),
        ("rtx-3090", 16),
        ("rtx-3060", 16),
        ("rtx-4090", 16),
        ("rtx-5090", 16),
        ("a10", 16),
        ("a100-sxm-40gb", 8),
        ("a40", 16),
    ],
)
@pytest.mark.parametrize(
    ("text", "wide", "times"),
    [
        ("HMMA.16816.F32", True, 1),
        ("HMMA.16816.F32.BF16", True, 1),
        ("HMMA.16816.F16", False, 1),
        ("HMMA.1688.F16", False, 0.5),
        ("IMMA.16832.S8.S8", False, 1),
        ("QMMA.16832.F32.E4M3.E4M3", True, 1),
        ("QMMA.16832.F16.E4M3.E4M3", False, 1),
    ],
)
def test_products_with_fp16_or_integer_accumulators_have_their_own_rate(
    name: str, half: int, text: str, wide: bool, times: float
) -> None:
    machine, numbers = described(name)
    code = [f"{text} R{8 + 4 * (n % 40)}, R200, R204, R{8 + 4 * (n % 40)}" for n in range(200)] + ["EXIT"]
    ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    slower = 2 if wide and "GeForce" in machine.name else 1
    assert ended / 800 == pytest.approx(half * times * slower, rel=CLOSE)


@pytest.mark.parametrize(
    ("text", "operations", "peak"),
    # operations of a product (of a sparse A, those with its stored elements), dense TFLOP/s or TOP/s by the whitepaper
    [
        ("HMMA.16816.F32", 2 * 16 * 8 * 16, 312),
        ("HMMA.1688.F32.BF16", 2 * 16 * 8 * 8, 312),
        ("HMMA.16816.F16", 2 * 16 * 8 * 16, 312),
        ("HMMA.SP.16832.F32", 2 * 16 * 8 * 16, 312),
        ("HMMA.1684.F32.TF32", 2 * 16 * 8 * 4, 156),
        ("HMMA.1688.F32.TF32", 2 * 16 * 8 * 8, 156),
        ("HMMA.SP.16816.F32.TF32", 2 * 16 * 8 * 8, 156),
        ("IMMA.8816.S8.S8", 2 * 8 * 8 * 16, 624),
        ("IMMA.16816.U8.S8.SAT", 2 * 16 * 8 * 16, 624),
        ("IMMA.16832.S8.S8", 2 * 16 * 8 * 32, 624),
        ("IMMA.SP.16864.S8.S8", 2 * 16 * 8 * 32, 624),
        ("IMMA.8832.S4.S4", 2 * 8 * 8 * 32, 1248),
        ("IMMA.16832.S4.U4", 2 * 16 * 8 * 32, 1248),
        ("IMMA.16864.U4.U4", 2 * 16 * 8 * 64, 1248),
        ("IMMA.SP.168128.S4.S4", 2 * 16 * 8 * 64, 1248),
        ("BMMA.88128.XOR.POPC", 2 * 8 * 8 * 128, 4992),
        ("BMMA.168128.AND.POPC", 2 * 16 * 8 * 128, 4992),
        ("BMMA.168256.XOR.POPC", 2 * 16 * 8 * 256, 4992),
        ("DMMA.884", 2 * 8 * 8 * 4, 19.5),
    ],
)
def test_products_reach_the_peak_rates_of_an_a100(text: str, operations: int, peak: float) -> None:
    machine, numbers = described("a100-sxm-80gb")
    code = [f"{text} R{8 + 4 * (n % 40)}, R200, R205, R{8 + 4 * (n % 40)}" for n in range(400)] + ["EXIT"]
    ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    done = operations * 400 * 4 * numbers.parts * machine.sm_count
    assert done / ended * machine.clock_mhz / 1e6 == pytest.approx(peak, rel=CLOSE)


@pytest.mark.parametrize(
    ("name", "text", "clocks"),
    # of a sub-partition; 256 multiply-adds in double precision by 16, 32 or 2 units of four sub-partitions
    [
        ("a100-sxm-80gb", "DMMA.884", 16),
        ("h100-sxm", "DMMA.8x8x4", 8),
        ("h100-sxm", "DMMA.16x8x16", 64),
        ("b200", "DMMA.8x8x4", 16),
        ("a40", "DMMA.884", 4 * 128),
        ("rtx-4090", "DMMA.884.RZ", 4 * 128),
        ("rtx-5090", "DMMA.8x8x4", 4 * 128),
        # four products of 8 x 8 x 4 in two or four steps
        ("t4", "HMMA.884.F16.F16.STEP0", 4),
        ("rtx-2080-ti", "HMMA.884.F16.F16.STEP0", 4),
        ("rtx-2080-ti", "HMMA.884.F32.F16.STEP0", 4),
        ("t4", "IMMA.8816.S8.S8", 4),
        ("t4", "IMMA.8832.S4.S4", 4),
        ("t4", "BMMA.88128.XOR.POPC", 4),
        ("rtx-5090", "QMMA.16832.F32.E2M1.E4M3", 32),
        ("rtx-5090", "QMMA.SF.16832.F32.E4M3.E4M3.E8", 32),
        ("rtx-5090", "QMMA.SP.16864.F16.E5M2.E5M2", 16),
        ("rtx-5090", "OMMA.SF.16864.F32.E2M1.E2M1.E8", 16),
        ("rtx-5090", "OMMA.SF.SP.168128.F32.E2M1.E2M1.UE4M3.4X", 16),
        ("rtx-pro-6000-blackwell", "QMMA.16832.F32.E4M3.E4M3", 16),
        ("rtx-pro-6000-blackwell", "OMMA.SF.16864.F32.E2M1.E2M1.E8", 16),
        ("l20", "HMMA.1684.F32.TF32", 16),
        ("l20", "HMMA.1688.F32.TF32", 32),
        ("l40s", "QMMA.16816.F32.E4M3.E4M3", 8),
    ],
)
def test_products_of_other_gpus(name: str, text: str, clocks: int) -> None:
    _, numbers = described(name)
    code = [f"{text} R{8 + 4 * (n % 40)}, R200, R205, R{8 + 4 * (n % 40)}" for n in range(200)] + ["EXIT"]
    ended = run(code, [[]] * 4 * numbers.parts, numbers=numbers).ended - numbers.turnaround
    assert ended / 800 == pytest.approx(clocks, rel=CLOSE)


def test_a_chain_of_products_by_double_precision_units_waits_for_all_their_multiply_adds() -> None:
    """Two units need 128 clocks for 256 multiply-adds; the last 32 of them are ready when those of a ``DFMA`` would be."""
    machine, numbers = described("a40")
    code = ["DMMA.884 R8, R2, R4, R8"] * 50 + ["EXIT"]
    ended = run(code, [[]], numbers=numbers).ended - numbers.turnaround
    assert ended / 50 == pytest.approx(128 - 16 + machine.latencies["fp64"], rel=CLOSE)


@pytest.mark.parametrize("name", [name for name in machine_ids() if load_machine(name).lanes["fp64"] < 1])
@pytest.mark.parametrize("warps", [1, 2, 3, 4, 6])
def test_two_double_precision_units_serve_whichever_sub_partitions_want_them(name: str, warps: int) -> None:
    _, numbers = described(name)
    code = [f"DFMA R{8 + 2 * (n % 60)}, R2, R4, c[0x0][0x160]" for n in range(100)] + ["EXIT"]
    seen = run(code, [[]] * warps, numbers=numbers)
    assert (seen.ended - numbers.turnaround) / (100 * warps) == pytest.approx(32 / 2, rel=CLOSE)


@pytest.mark.parametrize("name", machine_ids())
def test_sectors_far_apart_take_the_rows_that_dram_opens(name: str) -> None:
    """Lanes a page or more apart: a sector each. Random reads of an H100 and an H200 have been measured so."""
    machine, numbers = described(name)
    assert machine.dram_channels is not None
    assert machine.dram_row_interval is not None
    ends = []
    for loads in (10, 30):
        words = apart(32, loads, 32, 1)
        code = [f"LDG.E R{8 + n}, [R2.64]" for n in range(loads)] + ["EXIT"]
        rate = numbers.one_way / machine.sm_count
        how = {"dram_rate": rate, "row_rate": numbers.row_rate / machine.sm_count, "mixed": 0.0}
        seen = run(code, words, numbers=numbers, lines=32 * 32 * loads, apart=8, l2_rate=1e3, **how)
        ends.append(seen.cycles)
    clocks = machine.dram_row_interval / machine.dram_channels * machine.sm_count * machine.clock_mhz / 1e3
    slowest = max(clocks, 32 / min(machine.l2_sm_bandwidth, rate), 1 / machine.l1_tag_rate)
    assert (ends[1] - ends[0]) / (32 * 32 * 20) == pytest.approx(slowest, rel=CLOSE)


@pytest.mark.parametrize("name", machine_ids())
@pytest.mark.parametrize("wavefronts", [1, 2, 32])
def test_bank_conflicts_take_their_wavefronts(name: str, wavefronts: int) -> None:
    """Lanes so many words apart: a wavefront of 128 bytes each."""
    machine, numbers = described(name)
    code = [f"LDS R{8 + n}, [R2]" for n in range(100)] + ["EXIT"]
    seen = run(code, [access(wavefronts) * 100] * 8, numbers=numbers)
    each = max(wavefronts * 128 / machine.l1_bandwidth, 32 / (machine.lanes["lsu"] * machine.sub_partitions))
    # with what is left in the queues when the last warp ends
    assert (seen.cycles - numbers.turnaround) / 800 == pytest.approx(each, rel=CLOSE)


@cache
def apart(warps: int, loads: int, lines: int, sectors: int) -> list[list[int]]:
    """Of each warp its accesses, each of which reads lines of its own. Every machine has the same."""
    count = iter(range(warps * loads * lines))
    return [
        [word for _ in range(loads) for word in access(1, {next(count): sectors for _ in range(lines)})]
        for _ in range(warps)
    ]


def streamed(name: str, level: str, sectors: int, loads: int) -> int:
    """Clocks in which 32 warps have read four lines with each of so many loads."""
    machine, numbers = described(name)
    warps, lines = 32, 4
    words = apart(warps, loads, lines, sectors)
    seen = run(
        [f"LDG.E R{8 + n % 200}, [R2.64]" for n in range(loads)] + ["EXIT"], words, numbers=numbers, lines=warps * loads * lines,
        share=float(level == "dram"), dram_rate=numbers.one_way / machine.sm_count, l2_rate=machine.l2_bandwidth / machine.sm_count,
        mixed=0.0,
    )  # fmt: skip
    return seen.cycles


@pytest.mark.parametrize("name", machine_ids())
@pytest.mark.parametrize("level", ["l2", "dram"])
@pytest.mark.parametrize("sectors", [15, 1])
def test_streams_take_the_bandwidth_of_their_level(name: str, level: str, sectors: int) -> None:
    """The SM's part of it, from cold and from warm caches; lanes side by side, or a sector of each line (stride 32)."""
    machine, numbers = described(name)
    rate = {"l2": machine.l2_bandwidth, "dram": numbers.one_way}[level] / machine.sm_count
    moved = 32 * 4 * 32 * bin(sectors).count("1")
    looked_up = 32 * max(4 / machine.l1_tag_rate, 32 / (machine.lanes["lsu"] * machine.sub_partitions))
    found = (streamed(name, level, sectors, 120) - streamed(name, level, sectors, 40)) / 80
    assert found == pytest.approx(max(moved / min(rate, machine.l2_sm_bandwidth), looked_up), rel=CLOSE)


@pytest.mark.parametrize("name", machine_ids())
@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_warps_move_what_they_have_under_way_in_a_latency(name: str, warps: int) -> None:
    """Little's law: each warp waits for a line before it asks for the next, while bandwidth is not used up."""
    machine, numbers = described(name)
    numbers = replace(numbers, spread=0)
    latency, ends = machine.latencies["dram"], []
    for links in (20, 80):
        words = [
            [word for link in range(links) for word in access(1, {warp * links + link: 15})]
            for warp in range(warps)
        ]
        code = ["LDG.E R2, [R2.64]"] * links + ["EXIT"]
        seen = run(code, words, numbers=numbers, lines=warps * links, dram_rate=1e3, l2_rate=1e3)
        ends.append(seen.ended)
    # its own line comes through the port of the SM, and others may be before it
    way = 128 / machine.l2_sm_bandwidth
    assert latency <= (ends[1] - ends[0]) / 60 <= latency + warps * way
