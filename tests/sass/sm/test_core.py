"""The simulation of an SM on small code, by clocks that are worked out by hand. None of this needs an assembler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuperf_engine.sass.sm.launch import further

from .machines import TOY, access, run, waited

START = 100  # the turnaround of a CTA
CHAIN = ["FFMA R1, R1, R2, R1"] * 100 + ["EXIT"]


def test_dependent_instructions_take_their_latency() -> None:
    # The last of the chain is issued at 99 · 4, EXIT one clock later.
    seen = run(CHAIN, [[]])
    assert seen.ended == START + 99 * 4 + 1 + 1
    assert seen.instructions == 101


@pytest.mark.parametrize(("lanes", "clocks"), [(32, 1), (16, 2), (8, 4)])
def test_independent_instructions_take_the_time_of_their_pipe(lanes: int, clocks: int) -> None:
    code = [f"FFMA R{8 + 2 * (n % 60)}, R1, R2, c[0x0][0x160]" for n in range(400)] + ["EXIT"]
    seen = run(code, [[]], numbers=replace(TOY, lanes={**TOY.lanes, "fma": lanes}))
    assert seen.ended - START == pytest.approx(400 * clocks, abs=4)


@pytest.mark.parametrize(
    ("architecture", "clocks"), [(86, 32 + 32), (89, 32 + 32), (75, 32 + 32), (80, 32), (90, 32)]
)
def test_conversions_of_64_bits_go_where_the_64_bit_pipe_is_narrow(architecture: int, clocks: int) -> None:
    code = [
        text
        for n in range(50)
        for text in (f"F2F.F64.F32 R{8 + 2 * n}, R2", f"DADD R{108 + 2 * n}, R4, R6", f"I2F.RP R{208}, R2")
    ]
    seen = run([*code, "EXIT"], [[]], numbers=replace(TOY, architecture=architecture))
    # a lane for doubles: 32 clocks each; conversions of 32 bits take their 8 beside them
    assert seen.ended - START == pytest.approx(50 * clocks, rel=0.02, abs=16)


@pytest.mark.parametrize("cluster", [180, None])
def test_a_generic_load_finds_shared_memory_of_its_cta_in_the_sm(cluster: int | None) -> None:
    # a launch without clusters, on a machine that has them or not
    latencies = {name: clocks for name, clocks in TOY.latencies.items() if name != "cluster"}
    numbers = replace(TOY, latencies=latencies | ({"cluster": cluster} if cluster else {}))
    code = ["LD.E R4, [R4.64]"] * 40 + ["FADD R1, R4, R4", "EXIT"]
    seen = run(code, [access(1) * 40], numbers=numbers)
    assert seen.ended - START == pytest.approx(40 * TOY.latencies["l1"], rel=0.05)


def test_integer_products_have_one_half_of_the_pipe() -> None:
    both = [f"{op} R{8 + 2 * (n % 60)}, R1, R2, c[0x0][0x160]" for n in range(200) for op in ("IMAD", "FFMA")]
    # 200 of each: one half does all IMADs, 2 clocks each, the other the FFMAs.
    assert run([*both, "EXIT"], [[]]).ended - START == pytest.approx(400, abs=6)
    only = [f"IMAD R{8 + 2 * (n % 60)}, R1, R2, c[0x0][0x160]" for n in range(400)]
    assert run([*only, "EXIT"], [[]]).ended - START == pytest.approx(800, abs=6)


@pytest.mark.parametrize(
    ("pair", "clocks"),
    [
        # R1 and R3 share a bank: 2 clocks; R1, R2: 1; on average what the roofline loop on an A40 needs (1.5)
        (("FFMA {}, R1, R3, R2", "FFMA {}, R1, R2, c[0x0][0x160]"), 1.5),
        (("FFMA {}, R1, R3, R5", "FFMA {}, R1, R3, R5"), 3.0),
        (("FFMA {}, R1, R3, R2", "FFMA {}, R1, R3, R2"), 2.0),
        # what is kept is not read again
        (("FFMA {}, R1.reuse, R3, R2", "FFMA {}, R1.reuse, R3, R2"), 1.0),
    ],
)
def test_registers_of_one_bank_are_read_one_after_the_other(pair: tuple[str, str], clocks: float) -> None:
    code = [pair[n % 2].format(f"R{8 + 2 * (n % 60)}") for n in range(400)] + ["EXIT"]
    assert run(code, [[]]).ended - START == pytest.approx(400 * clocks, abs=8)


@pytest.mark.parametrize(
    ("between", "clocks"),
    [
        # as the examples of listing 4 of Huerta et al., MICRO 2025: R2 stays where the other bank is read for the same operand
        ("FFMA {}, R7, R4, c[0x0][0x160]", 4),
        ("FFMA {}, R6, R3, c[0x0][0x160]", 5),
        # kept again where it says so, and read once more where not
        ("FFMA {}, R2.reuse, R3, c[0x0][0x160]", 3),
        ("FFMA {}, R2, R3, c[0x0][0x160]", 4),
    ],
)
def test_a_bank_keeps_a_register_until_it_is_read_again_for_that_operand(between: str, clocks: int) -> None:
    code = ["FFMA {}, R2.reuse, R3, R4", between, "FFMA {}, R2, R4, R5"] * 100
    texts = [text.format(f"R{8 + 2 * (n % 60)}") for n, text in enumerate(code)] + ["EXIT"]
    assert run(texts, [[]]).ended - START == pytest.approx(100 * clocks, abs=8)


@pytest.mark.parametrize(("second", "third", "late"), [(17, 19, 0), (18, 19, 1), (18, 20, 2)])
def test_reads_may_lag_behind_the_issue_by_three_clocks(second: int, third: int, late: int) -> None:
    """As Huerta et al. describe an RTX A6000 (arXiv:2503.20481): the first instruction reads three registers of the even bank, the
    second one and up to two more. It waits only for those that do not fit into its three clocks."""
    code = ["FFMA R11, R10, R12, R14", f"FFMA R13, R16, R{second}, R{third}", "EXIT"]
    assert run(code, [[]]).ended == START + 3 + late


def test_three_registers_of_two_banks_take_one_and_a_half_clocks() -> None:
    """The loop of gpu-roofline (te42kyfo/gpu-benches), in which each multiply-add reads three registers, two of one bank in turn. At
    the logged clock, 240 of its iterations reach 62 % of the peak on A40, H200 and L40, overhead of the loop included."""
    code = ["FFMA R16, R10, R16, R7", "FFMA R17, R11, R17, R8"] * 100 + ["EXIT"]
    assert run(code, [[]] * 16).ended - START == pytest.approx(4 * 200 * 1.5, rel=0.02)


def test_an_instruction_of_its_queue_reads_registers_when_it_can() -> None:
    # three registers of the even bank; the next one is not held up, but reads another of this bank after them
    store = [access(4)]
    assert run(["STS.128 [R2], R4", "FADD R11, R1, R3", "EXIT"], store).ended == START + 3
    assert run(["STS.128 [R2], R4", "FFMA R11, R10, R12, R14", "EXIT"], store).ended == START + 3 + 2


def test_a_warp_waits_for_the_stall_count_and_others_issue_meanwhile() -> None:
    numbers = replace(TOY, parts=1, cta_rate=1e9, lanes={**TOY.lanes, "alu": 32})
    code = [f"5: IADD3 R{8 + n}, R1, R2, RZ" for n in range(20)] + ["EXIT"]
    assert run(code, [[]], numbers=numbers).ended == START + 20 * 5 + 1
    seen = run(code, [[]] * 5, numbers=numbers)
    # the five EXITs take two clocks each
    assert seen.ended == START + 20 * 5 + 4 * 2 + 1
    assert waited(code, run(code, [[]], numbers=numbers))[7, "wait", 6] == 4


def test_warps_of_a_sub_partition_hide_the_latency_of_one_another() -> None:
    # Four warps, one in each sub-partition, take as long as one; so do 16, four of them in each, whose chains wait 4 clocks.
    assert run(CHAIN, [[]] * 4).ended == run(CHAIN, [[]]).ended
    assert run(CHAIN, [[]] * 16).ended == pytest.approx(run(CHAIN, [[]]).ended, abs=8)
    assert run(CHAIN, [[]] * 32).ended - START == pytest.approx(2 * 400, abs=16)


@pytest.mark.parametrize(("mark", "alone", "ends"), [("", 20, (20, 40)), ("~", 40, (41, 42))])
def test_a_warp_that_yields_lets_another_go_on(mark: str, alone: int, ends: tuple[int, int]) -> None:
    """Yields of Jia et al. (arXiv:1804.06826): another warp is preferred; of Huerta et al. (arXiv:2503.20481): the warp issues nothing
    in the next clock, though no other may."""
    numbers = replace(TOY, parts=1, cta_rate=1e9, lanes={**TOY.lanes, "alu": 32})
    code = [f"{mark}IADD3 R{8 + n}, R1, R2, RZ" for n in range(20)] + ["EXIT"]
    assert run(code, [[]], numbers=numbers).ended == START + alone + 1
    # a warp of another CTA is younger: it goes first, and on, unless it yields
    seen = run(code, [[]], numbers=numbers, ctas=2, resident=2)
    assert sorted(int(end) - START for end in seen.finished) == pytest.approx(ends, abs=2)


@pytest.mark.parametrize("wavefronts", [1, 2, 4, 8, 32])
def test_a_load_of_shared_memory_takes_a_clock_for_each_wavefront(wavefronts: int) -> None:
    # 4 warps of 100 loads go through the unit that all share: 2 clocks each at least.
    code = [f"LDS R{8 + n}, [R2]" for n in range(100)] + ["EXIT"]
    seen = run(code, [access(wavefronts) * 100] * 4)
    assert seen.lsu_clocks == 400 * max(2, wavefronts)
    assert seen.cycles - START == pytest.approx(400 * max(2, wavefronts), abs=6 * max(2, wavefronts))


def test_what_waits_for_a_load_waits_for_its_latency() -> None:
    code = ["LDS R8, [R2]", "FADD R9, R8, R8", "EXIT"]
    assert run(code, [access(1)]).ended == START + TOY.latencies["shared"] + 2
    # conflicts make it later
    assert run(code, [access(8)]).ended == START + TOY.latencies["shared"] + 7 + 2


@pytest.mark.parametrize(("share", "where"), [(1.0, "dram"), (0.0, "l2")])
def test_a_line_comes_from_far_once_and_then_from_l1(share: float, where: str) -> None:
    code = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8", "LDG.E R10, [R2.64]", "FADD R11, R10, R10", "EXIT"]
    seen = run(code, [access(1, {0: 1}) * 2], lines=1, share=share)
    assert seen.l2_sectors == 1
    assert seen.dram_sectors == (where == "dram")
    # a sector takes DRAM 4 clocks, the port half a clock, beside its latency
    queue = 4 if where == "dram" else 0
    assert seen.ended == START + TOY.latencies[where] + queue + 1 + TOY.latencies["l1"] + 2
    # no room: it comes from L2 the second time
    code = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8"] * 3 + ["EXIT"]
    two = run(
        code, [[*access(1, {0: 1}), *access(1, {1: 1}), *access(1, {0: 1})]], lines=2, share=share, l1_lines=1
    )
    assert two.l2_sectors == 3
    assert two.dram_sectors == 2 * (where == "dram")


def test_a_stream_takes_the_time_of_dram() -> None:
    # 8 warps read 64 lines of 128 bytes each at 8 bytes a clock.
    code = [f"LDG.E R{8 + n}, [R2.64]" for n in range(64)] + ["EXIT"]
    warps = [[word for n in range(64) for word in access(1, {64 * warp + n: 15})] for warp in range(8)]
    seen = run(code, warps, lines=512)
    assert seen.dram_sectors == 2048
    assert seen.cycles - START == pytest.approx(2048 * 32 / 8, rel=0.01)
    # and half of it of the port where L2 holds all
    assert run(code, warps, lines=512, share=0.0).cycles - START == pytest.approx(2048 * 32 / 64, rel=0.05)


@pytest.mark.parametrize(("apart", "rows"), [(8, 64), (4, 32), (1, 8)])
def test_a_row_of_dram_is_opened_once_for_what_is_wanted_of_it_soon(apart: int, rows: int) -> None:
    # A warp reads a sector of each of 64 lines, of which eight side by side are a row: DRAM opens one in 50 clocks.
    code = [f"LDG.E R{8 + n}, [R2.64]" for n in range(64)] + ["EXIT"]
    words = [[word for n in range(64) for word in access(1, {n: 1})]]
    numbers = replace(TOY, row_open=1000)
    seen = run(code, words, lines=64, row_rate=0.02, apart=apart, numbers=numbers)
    assert seen.row_clocks == 50 * rows
    assert seen.cycles >= START + 50 * rows
    # without a limit the sectors take four clocks each
    assert run(code, words, lines=64, apart=apart).row_clocks == 0.0


def test_a_row_of_dram_is_closed_after_a_while() -> None:
    # Each load waits for the one before, so that the next sector of the row is wanted 500 clocks later.
    code = ["LDG.E R2, [R2.64]"] * 8 + ["EXIT"]
    words = [[word for n in range(8) for word in access(1, {n: 1})]]
    for row_open, rows in ((400, 8), (600, 1)):
        seen = run(code, words, lines=8, row_rate=0.02, numbers=replace(TOY, row_open=row_open))
        assert seen.row_clocks == 50 * rows


@pytest.mark.parametrize(("size", "from_dram"), [("", 4), (".LTC64B", 2), (".LTC128B", 1), (".LTC256B", 1)])
@pytest.mark.parametrize("copy", [False, True])
def test_a_prefetch_size_brings_more_of_a_line_into_l2(size: str, from_dram: int, copy: bool) -> None:
    # The four sectors of a line in turn, each after the one before: the first of an aligned group comes from DRAM, the others from L2.
    code = [*[f"LDG.E{size} R2, [R2.64]"] * 4, "FADD R4, R2, R2"]
    words = [word for n in range(4) for word in access(1, {0: 1 << n})]
    if copy:
        code = [f"LDGSTS.E.BYPASS{size}.128 [R5], [R2.64]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x0"] * 4
        words = [word for n in range(4) for word in [*access(1), *access(1, {0: 1 << n})]]
    seen = run([*code, "EXIT"], [words], lines=1)
    far, near = TOY.latencies["dram"], TOY.latencies["l2"]
    assert seen.ended - START == pytest.approx(from_dram * far + (4 - from_dram) * near, abs=32)
    assert seen.dram_sectors == 4
    # rows of DRAM: one for each time
    soon = replace(TOY, row_open=1)
    assert run([*code, "EXIT"], [words], lines=1, row_rate=0.02, numbers=soon).row_clocks == 50 * from_dram
    # nothing comes from DRAM that is in L2
    assert run([*code, "EXIT"], [words], lines=1, share=0.0).dram_sectors == 0


def test_what_is_fetched_beside_occupies_dram_and_arrives_with_it() -> None:
    # One sector of each of 64 lines, of which the whole is fetched: 4 clocks for each sector, at 8 bytes a clock.
    for size, sectors in (("", 64), (".LTC64B", 128), (".LTC128B", 256)):
        code = [f"LDG.E{size} R{8 + n}, [R2.64]" for n in range(64)] + ["EXIT"]
        seen = run(code, [[word for n in range(64) for word in access(1, {n: 4})]], lines=64)
        assert seen.dram_sectors == sectors
        assert seen.cycles - START == pytest.approx(4 * sectors, abs=16)
    # another sector of the line, wanted at once, does not come before the one that it is fetched with
    code = ["LDG.E.LTC128B R8, [R2.64]", "LDG.E.LTC128B R9, [R2.64]", "FADD R10, R9, R9", "EXIT"]
    seen = run(code, [[*access(1, {0: 1}), *access(1, {0: 8})]], lines=1)
    assert seen.ended - START == pytest.approx(TOY.latencies["dram"], abs=20)
    assert seen.dram_sectors == 4


@pytest.mark.parametrize("warps", [1, 8, 24])
@pytest.mark.parametrize(("mixed", "wait"), [(1.0, 1.2), (0.0, 0.5)])
def test_loads_wait_for_dram_as_long_as_it_is_busy(warps: int, mixed: float, wait: float) -> None:
    # Warps that wait for each of their loads, a line of 16 clocks of DRAM. A round of n warps takes c clocks, so that DRAM is busy for
    # b = 16 n / c of the time. Waits are evenly distributed up to w b c, so that c = 500 + w b c / 2 = 500 + 8 w n.
    # The last warp ends later than the mean, the less so the more rounds there are.
    rounds, far = 400, TOY.latencies["dram"]
    code = ["LDG.E R2, [R2.64]"] * rounds + ["FADD R4, R2, R2", "EXIT"]
    words = [
        [word for n in range(rounds) for word in access(1, {rounds * warp + n: 15})] for warp in range(warps)
    ]
    numbers = replace(TOY, wait_one_way=0.5, wait_mixed=1.2)
    seen = run(code, words, lines=rounds * warps, numbers=numbers, mixed=mixed)
    assert (seen.ended - START) / rounds == pytest.approx(far + 8 * wait * warps, rel=0.04)
    # without loads from DRAM, or if it is not known, nothing changes
    assert run(code, words, lines=rounds * warps, numbers=numbers, mixed=mixed, share=0.0).ended == run(
        code, words, lines=rounds * warps, mixed=mixed, share=0.0
    ).ended  # fmt: skip


def test_a_barrier_holds_all_until_the_last() -> None:
    code = ["MUFU.RCP R1, R2", "BAR.SYNC 0x0", "FADD R3, R4, R5", "EXIT"]
    # One warp: the barrier lets it go on 20 clocks later.
    assert run(code, [[]]).ended == START + 1 + 20 + 2
    # 32 warps, eight in a sub-partition: the unit of MUFU takes 8 clocks for each, that of the barrier too.
    seen = run(code, [[]] * 32)
    assert START + 7 * 8 + 20 < seen.ended < START + 8 * 8 + 20 + 20


def test_ctas_follow_one_another() -> None:
    one, four = run(CHAIN, [[]]).ended, run(CHAIN, [[]], ctas=4).ended
    assert four == 4 * one
    # waves that take equally long are left out, and take as long
    many = run(CHAIN, [[]], ctas=1000)
    assert many.skipped > 900
    assert many.ended + many.skipped_cycles == 1000 * one
    together = run(CHAIN, [[]], ctas=4, resident=4).ended
    # they start one clock apart
    assert together == pytest.approx(one + 3, abs=1)


def test_the_clocks_that_warps_wait_are_those_before_an_instruction() -> None:
    seen = run(["LDS R8, [R2]", "FADD R9, R8, R8", "EXIT"], [access(1)])
    assert seen.issued.tolist() == [1, 1, 1]
    assert np.bincount(seen.stalls.at, seen.stalls.clocks, 3).tolist() == [0, TOY.latencies["shared"] - 1, 0]


def test_copies_are_waited_for_by_groups() -> None:
    copy = "LDGSTS.E [R5], [R2.64]"
    far = [*access(1), *access(1, {0: 1})]
    code = [copy, "LDGDEPBAR", "DEPBAR.LE SB0, 0x0", "EXIT"]
    waits = run(code, [far], lines=1).ended
    assert waits - START == pytest.approx(TOY.latencies["dram"], abs=12)
    code[2] = "DEPBAR.LE SB0, 0x1"
    assert run(code, [far], lines=1).ended - START < 20


@pytest.mark.parametrize(
    ("reads", "writes", "wavefronts"),
    [
        (4, 4, 4),
        (8, 4, 8),
        (16, 4, 16),
        (32, 4, 32),
        (4, 8, 8),
        (4, 16, 16),
        (4, 32, 32),
        (2, 2, 2),
        (4, 2, 4),
        (1, 32, 32),
    ],
)
def test_copies_through_l1_read_and_write_at_once(reads: int, writes: int, wavefronts: int) -> None:
    # wavefronts of shared memory counted for cp.async.ca of 4, 8 and 16 bytes with strided sources or targets, and one of L1, on an
    # RTX 5090: cicuvc/nvidia-sass-document 020c888, notes/sm90/arch/shared_bank_conflicts.md, 4.6 and 4.4
    ends = []
    for count in (20, 60):
        words = [*access(writes), *access(reads, {0: 15})] * count
        code = ["LDGSTS.E.128 [R5], [R2.64]"] * count
        ends.append(run([*code, "EXIT"], [words] * 4, lines=1, share=0.0).ended)
    assert (ends[1] - ends[0]) / 160 == pytest.approx(wavefronts + 1, rel=0.02)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_a_wait_for_a_group_is_one_for_all_before_it(groups: int) -> None:
    """``cp.async.wait_all`` is ``LDGDEPBAR`` and ``DEPBAR.LE SB0, 0x0``: the group that it ends has no copy, those before it have."""
    far = [*access(1), *access(1, {0: 1})]
    code = ["LDGSTS.E [R5], [R2.64]", *["LDGDEPBAR"] * groups, "DEPBAR.LE SB0, 0x0", "EXIT"]
    ended = run(code, [far], lines=1).ended
    assert ended - START == pytest.approx(TOY.latencies["dram"], abs=12)
    # as long as the last group that has a copy need not be complete, nothing is waited for
    code[-2] = f"DEPBAR.LE SB0, {groups:#x}"
    assert run(code, [far], lines=1).ended - START < 20
    code[-2] = f"DEPBAR.LE SB0, {groups - 1:#x}"
    assert run(code, [far], lines=1).ended == ended


def test_more_work_is_never_faster() -> None:
    code = [f"LDS R{8 + n}, [R2]" for n in range(20)] + ["FADD R1, R8, R27", "EXIT"]
    before = 0
    for wavefronts in range(1, 33):
        now = run(code, [access(wavefronts) * 20] * 6).cycles
        assert now >= before
        before = now


def test_sms_are_in_step_when_a_cta_starts_and_drift_apart() -> None:
    # 16 sectors of DRAM take the SM's share 64 clocks, which the others need at the same time; later the SM may lead.
    load = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8", "EXIT"]
    words = access(1, {n: 15 for n in range(4)})
    dram = TOY.latencies["dram"]
    assert run(load, [words], lines=4).ended == START + dram + 64 + 2
    for links in (9, 16, 100):
        # the address waits for the chain, 4 clocks a link; the SM leads by half of them, but not of its port to L2
        chain = ["FFMA R1, R1, R2, R1"] * (links - 1) + ["FFMA R2, R1, R2, R1"]
        left = max(8, 64 - 4 * links // 2)
        assert run([*chain, *load], [words], lines=4).ended == START + 4 * links + dram + left + 2


def closed(sms: int, rounds: int, burst: float, away: float) -> float:
    """Clocks of a round of SMs that start together: each waits in turn for its burst, so many clocks of what all share, and comes back
    so many clocks later."""
    back, free = [0.0] * sms, 0.0
    for _ in range(rounds):
        for sm in sorted(range(sms), key=back.__getitem__):
            free = max(free, back[sm]) + burst
            back[sm] = free + away
    return max(back) / rounds


@pytest.mark.parametrize("lines", [2, 8, 16, 32, 64, 96])
def test_sms_that_only_read_queue_once(lines: int) -> None:
    # Each CTA loads so many lines, 16 clocks of the SM's part of DRAM each, and waits for them, as do those of 99 other SMs.
    count = 40
    load = [
        *(f"LDG.E R{8 + n}, [R2.64]" for n in range(lines // 2)),
        f"FADD R7, R{7 + lines // 2}, R1",
        "EXIT",
    ]
    words = [word for n in range(lines // 2) for word in access(1, {2 * n: 15, 2 * n + 1: 15})]
    seen = run(load, [words], lines=lines, ctas=count, mixed=0.0)
    # one SM alone: its part of DRAM is the burst of all, its own burst a hundredth of that
    away = (
        run(load, [words], lines=lines, share=0.0, l2_rate=1e6).ended
        + TOY.latencies["dram"]
        - TOY.latencies["l2"]
    )
    expected = closed(100, count, 16 * lines / 100, away)
    assert (seen.cycles + seen.skipped_cycles) / count == pytest.approx(expected, rel=0.05)
    # in step at every CTA, as where DRAM is written too, they would wait for all
    if 16 <= lines <= 32:
        waiting = run(load, [words], lines=lines, ctas=count)
        assert seen.ended + seen.skipped_cycles < 0.8 * (waiting.ended + waiting.skipped_cycles)


def chased(starts: list[int], lines: int, far: int, near: int) -> list[int]:
    """When each of some SMs has read the same lines one after the other. A line comes to L2 so many clocks (``far``) after the first
    of them has asked for it, less the way to L2 and back (``near``)."""
    asked = starts
    for _ in range(lines):
        there = min(asked) + far
        asked = [max(at + near, there) for at in asked]
    return asked


@pytest.mark.parametrize("starts", [[0, 10, 20, 30], [0, 1000, 2000, 9000], [0, 0, 0, 12000]])
def test_sms_that_read_the_same_in_the_same_order_wait_for_dram_together(starts: list[int]) -> None:
    # A quarter of the lines is asked of DRAM by each of four SMs, yet all wait for DRAM at every line: a late one catches up.
    lines, latencies = 64, TOY.latencies
    ended = chased(starts, lines, latencies["dram"], latencies["l2"])
    assert ended == [lines * latencies["dram"]] * 4
    chase = ["LDG.E R2, [R2.64]"] * lines + ["EXIT"]
    words = [word for n in range(lines) for word in access(1, {n: 15})]
    seen = run(chase, [words], lines=lines, share=0.25, behind=1.0)
    assert seen.ended - START == pytest.approx(ended[0], rel=0.05)
    # what DRAM moves for the SM is its quarter
    assert seen.dram_sectors == lines * 4 // 4
    # CTAs that read each line at another time find three quarters of them in L2
    alone = run(chase, [words], lines=lines, share=0.25)
    assert alone.ended - START == pytest.approx(
        lines * (latencies["dram"] + 3 * latencies["l2"]) / 4, rel=0.05
    )


@pytest.mark.parametrize("shared", [False, True])
def test_sms_that_read_the_same_lines_are_a_wait_for_dram_apart_at_most(shared: bool) -> None:
    """Each CTA computes and then reads 64 lines, which are in L2: the SM's share of L2 takes 4 clocks for each of their sectors."""
    lines, latencies = 64, TOY.latencies
    chain = ["FFMA R1, R1, R2, R1"] * 500 + ["FFMA R2, R1, R2, R1"]
    code = [*chain, *[f"LDG.E R{8 + n}, [R2.64]" for n in range(lines)], f"FADD R7, R{7 + lines}, R1", "EXIT"]
    words = [word for n in range(lines) for word in access(1, {n: 15})]
    behind = 1.0 if shared else 0.0
    seen = run(code, [words], lines=lines, share=0.0, l2_rate=8.0, mixed=0.0, behind=behind)
    # the first CTA has run for longer than the share takes, so that the SM could be ahead by all of it
    assert 4 * 4 * lines < 4 * 501
    last = latencies["dram"] if shared else latencies["l2"]
    late = 4 * 4 * lines - latencies["dram"] if shared else 0
    issued = START + 4 * 501
    assert seen.ended - issued == pytest.approx(last + max(late, 4 * lines), abs=16)


def test_a_fence_waits_for_what_the_warp_stores() -> None:
    # a store is performed after its way to L2, where the SM's share takes 4 clocks for a sector; then comes the fence's own way
    l2 = TOY.latencies["l2"]
    words = [word for n in range(8) for word in access(1, {n: 15})]

    def ended(fence: str) -> float:
        code = [*["STG.E [R2.64], R8"] * 8, fence, "EXIT"]
        return run(code, [words], lines=8, share=0.0, l2_rate=8.0).ended

    alone = run(["MEMBAR.SC.GPU", "EXIT"], [[]]).ended
    assert alone == START + l2 + 1
    # it leads by half of the clocks until the last store, 4 for each of those before
    stored = START + 4 * 4 * 8 - 4 * 7 // 2 + l2
    assert ended("MEMBAR.SC.GPU") == pytest.approx(stored + l2, abs=4)
    # those of the CTA see what is in L1
    assert ended("MEMBAR.ALL.CTA") < START + 100
    changed = ["ATOMG.E.ADD.STRONG.GPU PT, R9, [R2.64], R8", "MEMBAR.SC.GPU", "EXIT"]
    assert run(changed, [access(1, {0: 1})], lines=1, share=0.0).ended == pytest.approx(
        START + 2 * l2, abs=12
    )


def test_a_line_that_was_waited_for_is_in_l2_afterwards() -> None:
    # Without room in L1 the second load of a line asks L2 again, which has it by now.
    code = ["LDG.E R2, [R2.64]"] * 4 + ["EXIT"]
    words = [word for n in (0, 1, 0, 1) for word in access(1, {n: 1})]
    seen = run(code, [words], lines=2, share=0.0, behind=1.0, l1_lines=1)
    # nothing waits for the last one
    assert seen.ended == START + 2 * TOY.latencies["dram"] + TOY.latencies["l2"] + 2


def test_waves_are_not_left_out_while_stores_pile_up() -> None:
    # The warp waits for no store: CTAs take equally long at first, 16 sectors of DRAM each, until DRAM is ever further behind.
    code = ["STG.E [R2.64], R8"] * 4 + ["EXIT"]
    words = [word for n in range(4) for word in access(1, {n: 15})]
    seen = run(code, [words], lines=4, ctas=300)
    assert seen.cycles + seen.skipped_cycles >= 300 * 16 * 32 / 8
    assert seen.cycles + seen.skipped_cycles == pytest.approx(
        max(300 * 16 * 32 / 8, 300 * (START + 10)), rel=0.1
    )


def test_a_further_cta_takes_what_it_issues_at_the_rate_of_the_sm() -> None:
    # Two at a time issue 3 instructions a clock in all, 120 each: one in 40 clocks, whenever these happen to end. The last one runs
    # alone, at half that rate.
    ends = np.array([50, 100, 110, 180, 200, 220, 280], np.uint64)
    issued = np.where(ends < 280, 3 * ends, 3 * 220 + 90)
    seen = replace(run(["EXIT"], [[]]), finished=ends, progress=issued, instructions=7 * 120)
    assert further(seen, 2) == pytest.approx(40.0)
    # so many CTAs that differ in nothing but where they end
    assert further(
        replace(seen, finished=ends[[1, 0, *range(2, 7)]], progress=issued[[1, 0, *range(2, 7)]]), 2
    ) == pytest.approx(40.0)
    # six at a time, of which four end together each time and the first two get few turns: one in 24 clocks, although only one clock
    # lies between the sixth end and the eighth
    ends = np.array([310, 305, 100, 100, 101, 101, 200, 200, 201, 201, 300, 300, 301], np.uint64)
    assert further(replace(seen, finished=ends, progress=3 * ends, instructions=13 * 72), 6) == pytest.approx(
        24.0
    )
    # one at a time: from the end of the first to that of the last
    alone = run(CHAIN, [[]], ctas=4)
    assert further(alone, 1) == alone.ended / 4


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("LDG.E R4, [R2.64]", True),
        ("LDG.E.STRONG.SM R4, [R2.64]", True),  # ld.ca
        ("LDG.E.STRONG.GPU R4, [R2.64]", False),  # ld.cg
        ("LDG.E.STRONG.SYS R4, [R2.64]", False),  # ld.volatile
        ("LDGSTS.E.128 [R5], [R2.64]", True),
        ("LDGSTS.E.BYPASS.128 [R5], [R2.64]", False),
    ],
)
def test_l1_neither_has_nor_keeps_what_is_loaded_past_it(text: str, kept: bool) -> None:
    """PTX manual, *Cache Operators*: ``.cg`` caches in L2 and below, not L1; ``.ca`` at all levels."""

    def touches(item: str, number: int) -> list[int]:
        return [*(access(1) if item.startswith("LDGSTS") else []), *access(1, {number: 15})]

    plain = "LDG.E R4, [R2.64]"
    for first in (text, plain):
        words = [*touches(first, 0), *touches(text, 0)]
        assert run([first, text, "EXIT"], [words], lines=1).l2_sectors == (4 if kept else 8)
    # a line that stays in L1 while another passes it
    words = [*touches(plain, 0), *touches(text, 1), *touches(plain, 0)]
    assert run([plain, text, plain, "EXIT"], [words], lines=2, l1_lines=1).l2_sectors == (12 if kept else 8)
