"""Products of warpgroups, mbarriers, bulk copies and clusters in the simulation of an SM, by clocks that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.timing.models.simulation import numbers_of
from gpuperf_engine.warp_specialization.recurrence import math_start

from .machines import TOY, arrives, asks, copied, expects, initial, moves, run_roles
from .machines import access as access_of
from .pipelines import ARRIVE, COPY, EXPECT, INIT, PRODUCT, READY, TEST, USE, WAIT, pipeline

START = 100
HOPPER = {name: numbers_of(load_machine(name)) for name in ("h100-sxm", "h100-pcie", "h200-sxm", "gh200")}


@pytest.mark.parametrize(
    ("columns", "clocks"),
    [
        # 64 · N · 16 multiply-adds at 4 · 512 a clock
        (256, 128), (128, 64), (64, 32),
        # A and B have 64 and N lines of 32 bytes, of which 128 bytes a clock are read
        (32, (64 + 32) * 32 / 128), (8, (64 + 8) * 32 / 128),
    ],
)  # fmt: skip
def test_products_take_the_time_of_the_tensor_cores_or_of_shared_memory(columns: int, clocks: float) -> None:
    product = PRODUCT.format(columns)
    seen = run_roles([[READY, *[product] * 99, product + ", gsb0", WAIT]], [(0, [])] * 4)
    assert seen.ended - START - TOY.latencies["tensor"] == pytest.approx(100 * clocks, rel=0.05)


def test_a_in_registers_is_not_read_from_shared_memory() -> None:
    product = "HGMMA.64x32x16.F32.BF16 R24, R20, gdesc[UR4], R24"
    seen = run_roles([[READY, *[product] * 99, product + ", gsb0", WAIT]], [(0, [])] * 4)
    assert seen.ended - START - TOY.latencies["tensor"] == pytest.approx(100 * 16, rel=0.05)


def test_two_warpgroups_share_the_tensor_cores() -> None:
    code = [READY, *[PRODUCT.format(128)] * 49, PRODUCT.format(128) + ", gsb0", WAIT]
    seen = run_roles([code], [(0, [])] * 8)
    assert seen.ended - START - TOY.latencies["tensor"] == pytest.approx(100 * 64, rel=0.05)


def test_warpgroups_take_turns() -> None:
    """The tensor cores execute products in the order in which they are issued: none of four warpgroups, each of which waits for its
    product before it issues the next one, is served again while another waits."""
    rounds, busy = 16, 128
    code = [READY, PRODUCT.format(256) + ", gsb0", WAIT] * rounds
    seen = run_roles([code], [(0, [])] * 4, ctas=4, resident=4)
    ends = seen.finished.astype(np.int64)
    assert ends.max() - START == pytest.approx(4 * rounds * busy + TOY.latencies["tensor"], rel=0.02)
    assert ends.max() - ends.min() == pytest.approx(3 * busy, abs=12)


def test_a_group_of_products_is_waited_for() -> None:
    code = [READY, *[PRODUCT.format(256)] * 3, PRODUCT.format(256) + ", gsb0", WAIT]
    seen = run_roles([code], [(0, [])] * 4)
    assert seen.ended - START == pytest.approx(4 * 128 + TOY.latencies["tensor"], abs=12)
    # one group may be left
    pair = [PRODUCT.format(256), PRODUCT.format(256) + ", gsb0"]
    code = [READY, *pair, *pair, "WARPGROUP.DEPBAR.LE gsb0, 0x1"]
    seen = run_roles([code], [(0, [])] * 4)
    assert seen.ended - START == pytest.approx(2 * 128 + TOY.latencies["tensor"], abs=12)


def test_products_of_a_warpgroup_begin_together() -> None:
    # one of four warps comes late: its chain takes 100 · 4 clocks
    late = ["FFMA R1, R1, R2, R1"] * 100
    code = [READY, PRODUCT.format(64) + ", gsb0", WAIT]
    seen = run_roles([code, [*late, *code]], [(0, []), (0, []), (0, []), (1, [])])
    alone = run_roles([code], [(0, [])] * 4)
    assert seen.ended - alone.ended == pytest.approx(400, abs=12)
    with pytest.raises(NotRun, match="forever"):
        run_roles([code], [(0, [])] * 3)


def test_an_mbarrier_holds_warps_until_all_have_arrived() -> None:
    shared, chain = TOY.latencies["shared"], ["FFMA R1, R1, R2, R1"] * 100 + ["FADD R3, R1, R1"]
    waits = (0, [*initial(0, 2), *asks(0, 0)])
    tells = (1, arrives(0, 2))
    seen = run_roles([[INIT, TEST, USE], [*chain, ARRIVE]], [waits, tells])
    # the signal and its answer take as long as a load of shared memory
    assert seen.ended - START == pytest.approx(400 + shared, abs=12)
    # the phase before the first counts as complete
    seen = run_roles([[INIT, TEST, USE]], [(0, [*initial(0, 2), *asks(0, 1)])])
    assert seen.ended - START < 2 * shared + 20
    # one arrival is not two
    with pytest.raises(NotRun, match="forever"):
        run_roles([[INIT, TEST, USE], [*chain, ARRIVE]], [waits, (1, arrives(0, 1))])


def test_ctas_of_an_sm_wait_for_the_grid_together() -> None:
    """One CTA of three comes late, once to the first and once to the second of two waits."""
    late, wait = ["FFMA R1, R1, R2, R1"] * 100, "LOP3.LUT R6, R5, R4, RZ, 0x3c, !PT"
    roles = [[wait, wait], [*late, wait, wait], [wait, *late, wait]]
    alone = run_roles([[wait, wait]], [(0, [])], grid_wait=wait)
    one = run_roles(roles, [(0, [])], beside=[[(1, [])], [(0, [])]], grid_wait=wait)
    both = run_roles(roles, [(0, [])], beside=[[(1, [])], [(2, [])]], grid_wait=wait)
    assert alone.ended - START < 20
    assert one.ended - alone.ended == pytest.approx(400, abs=12)
    assert both.ended - alone.ended == pytest.approx(800, abs=24)
    # those that do not wait for the grid end on their own
    apart = run_roles(roles, [(0, [])], beside=[[(1, [])], [(2, [])]])
    assert apart.ended - alone.ended == pytest.approx(400, abs=12)


COUNTED, DROPS = "SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR4], R6", "SYNCS.ARRIVE.TRANS64.OPTOUT.ART0 RZ, [UR4], R6"
FAR, COMES = "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR4], R6", "SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR4], R6"
COPIES, COPIED = "SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR4], RZ", "ARRIVES.LDGSTSBAR.64.TRANSCNT [UR4]"


def counted(number: int, value: int, lanes: int) -> list[int]:
    """What a stream has of lanes that each signal ``value`` arrivals or bytes."""
    return [1, number | lanes << 16, value]


def test_lanes_arrive_as_often_as_they_say() -> None:
    """Three lanes arrive four times each, and one once."""
    code = [INIT, COUNTED, ARRIVE, TEST, USE]
    words = [*initial(0, 13), *counted(0, 4, 3), *arrives(0), *asks(0, 0)]
    assert run_roles([code], [(0, words)]).ended - START < 200
    for times, lanes in ((3, 3), (4, 2)):
        words[3:6] = counted(0, times, lanes)
        with pytest.raises(NotRun, match="forever"):
            run_roles([code], [(0, words)])


def test_phases_expect_fewer_arrivals_after_drops() -> None:
    """Of six arrivals, two lanes drop two each: the second phase has two."""
    first = [*initial(0, 6), *counted(0, 2, 2), *arrives(0, 2), *asks(0, 0)]
    code = [INIT, DROPS, ARRIVE, TEST, USE, ARRIVE, TEST, USE]
    assert run_roles([code], [(0, [*first, *arrives(0, 2), *asks(0, 1)])]).ended - START < 200
    with pytest.raises(NotRun, match="forever"):
        run_roles([code], [(0, [*first, *arrives(0, 1), *asks(0, 1)])])


def test_bytes_are_expected_and_come() -> None:
    words = [*initial(0, 1), *counted(0, 24, 2), *arrives(0), *counted(0, 16, 3), *asks(0, 0)]
    code = [INIT, FAR, ARRIVE, COMES, TEST, USE]
    assert run_roles([code], [(0, words)]).ended - START < 200
    with pytest.raises(NotRun, match="forever"):
        run_roles([[INIT, FAR, ARRIVE, TEST, USE]], [(0, words[:9] + words[12:])])


def test_copies_of_threads_hold_a_phase_without_arriving() -> None:
    """``cp.async.mbarrier.arrive`` expects one transaction of each lane, which its copies complete."""
    words = [*initial(0, 1), *arrives(0, 32), *arrives(0), *arrives(0, 32), *asks(0, 0)]
    assert run_roles([[INIT, COPIES, ARRIVE, COPIED, TEST, USE]], [(0, words)]).ended - START < 200
    with pytest.raises(NotRun, match="forever"):
        run_roles([[INIT, COPIES, ARRIVE, TEST, USE]], [(0, words[:9] + words[12:])])


def test_a_phase_is_complete_with_its_arrivals_and_bytes() -> None:
    kinds = (moves(1024),)
    one = [*initial(0, 1), *expects(0, 2048), *copied(0, 0), *copied(0, 0), *asks(0, 0)]
    seen = run_roles([[INIT, EXPECT, COPY, COPY, TEST, USE]], [(0, one)], kinds=kinds)
    # 2048 bytes through the port of 64 a clock, behind the latency; no load of shared memory follows
    expected = TOY.latencies["tma_l2"] - TOY.latencies["shared"] + 2048 / 64
    assert seen.ended - START == pytest.approx(expected, rel=0.05)
    assert seen.l2_sectors == 64
    with pytest.raises(NotRun, match="forever"):
        run_roles([[INIT, EXPECT, COPY, TEST, USE]], [(0, one[:8] + one[-3:])], kinds=kinds)


def chased(numbers: SmNumbers, share: float) -> float:
    """Clocks of a step of a pointer chase by copies of 16 bytes: copy, wait, load from shared memory."""
    turns = 64
    code, words = [INIT], initial(0, 1)
    for turn in range(turns):
        code += [EXPECT, COPY, TEST, "@P0 LDS R6, [R2]", "IADD3 R6, R6, R6, R6"]
        words += [*expects(0, 32), *copied(0, 0), *asks(0, turn & 1), *access_of(1)]
    seen = run_roles([code], [(0, words)], numbers=numbers, kinds=(moves(32, share=share),))
    return (seen.ended - numbers.turnaround) / turns


@pytest.mark.parametrize("name", HOPPER)
def test_a_pointer_chase_by_copies_gives_the_latencies_of_the_machine(name: str) -> None:
    numbers = HOPPER[name]
    assert chased(numbers, 0.0) == pytest.approx(numbers.latencies["tma_l2"], rel=0.05)
    assert chased(numbers, 1.0) == pytest.approx(numbers.latencies["tma_dram"], rel=0.05)


@pytest.mark.parametrize(("share", "rate"), [(0.0, 64.0), (1.0, 8.0)])
def test_copies_take_the_time_of_the_port_or_of_dram(share: float, rate: float) -> None:
    count, size = 64, 8192
    words = [*initial(0, 1), *expects(0, count * size), *copied(0, 0) * count, *asks(0, 0)]
    seen = run_roles(
        [[INIT, EXPECT, *[COPY] * count, TEST, USE]], [(0, words)], kinds=(moves(size, share=share),)
    )
    assert count * size / rate <= seen.cycles - START < 1.05 * count * size / rate + TOY.latencies["tma_dram"]


def test_stores_are_waited_for_by_groups() -> None:
    store = ["UBLKCP.G.S [UR6], [UR8], UR10", "UTMACMDFLUSH", "DEPBAR.LE SB0, 0x0", "CCTL.IVALL"]
    seen = run_roles([store], [(0, copied(0))], kinds=(moves(4096, way=1),))
    # read, 64 bytes a clock, and told by L2
    expected = TOY.latencies["shared"] + 4096 / 64 + TOY.latencies["l2"]
    assert seen.ended - START == pytest.approx(expected, abs=12)
    # read is enough, and no answer of L2 waited for
    seen = run_roles([store[:-1]], [(0, copied(0))], kinds=(moves(4096, way=1),))
    assert seen.ended - START == pytest.approx(expected - TOY.latencies["l2"], abs=12)
    store[2] = "DEPBAR.LE SB0, 0x1"
    assert run_roles([store], [(0, copied(0))], kinds=(moves(4096, way=1),)).ended - START < 20


@pytest.mark.parametrize(("products", "size"), [(4, 16384), (4, 49152), (8, 49152), (2, 65536)])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_pipeline_takes_the_time_of_the_recurrences(depth: int, products: int, size: int) -> None:
    """Liu and Grover's, with the time of the unit of copies for L and that of the tensor cores for T, and what they leave out: each
    stage waits for latencies where nothing hides them."""
    stages, load, math = 48, size / TOY.port_rate, 128.0 * products
    told = TOY.latencies["shared"]
    latency = TOY.latencies["tma_l2"] - told - told // 2
    chain = latency + told + TOY.latencies["tensor"] + told
    ours = pipeline(TOY, stages, depth, size, products)
    theirs = float(math_start(load, 0.0, math, stages=stages, depth=depth, dma_warps=1)) + math
    assert ours >= theirs
    # a buffer is free again after its load, its product and the latencies between
    limit = max(load, math + TOY.latencies["tensor"] + told, (load + math + chain) / depth)
    assert ours == pytest.approx(stages * limit, rel=0.06, abs=700)
    if depth == 4 and load > math:
        assert ours == pytest.approx(theirs, rel=0.05, abs=500)


def test_the_barrier_of_a_cluster_holds_all_its_ctas() -> None:
    gather = ["UCGABAR_ARV", "UCGABAR_WAIT"]
    late = ["FFMA R1, R1, R2, R1"] * 100 + ["FADD R3, R1, R1"]
    seen = run_roles([gather, [*late, *gather]], [(0, [])], cluster=[[(1, [])]])
    assert seen.ended - START == pytest.approx(400 + TOY.latencies["cluster"], abs=12)
    # warps that have ended are not waited for
    assert run_roles([gather, []], [(0, [])], cluster=[[(1, [])]]).ended - START < 200


def test_a_copy_to_all_ctas_of_a_cluster_reads_l2_once() -> None:
    count, size = 32, 8192
    gather = ["UCGABAR_ARV", "UCGABAR_WAIT"]
    code = [INIT, EXPECT, *gather, *[COPY] * count, TEST, USE]
    roles = [code, [INIT, EXPECT, *gather, TEST, USE]]

    def warp(rank: int, copies: list[int]) -> list[int]:
        return [*initial(0, 1, rank), *expects(0, count * size, rank), *copies, *asks(0, 0, rank)]

    both = copied(0, 0, mask=3) * count
    once = run_roles(roles, [(0, warp(0, both))], cluster=[[(1, warp(1, []))]], kinds=(moves(size),))
    own = [[(0, warp(rank, copied(0, 0, rank=rank) * count))] for rank in (0, 1)]
    twice = run_roles(roles, own[0], cluster=own[1:], kinds=(moves(size),))
    assert (once.l2_sectors, twice.l2_sectors) == (count * size // 32 // 2, count * size // 32)
    # each SM receives as much
    assert once.ended == pytest.approx(twice.ended, rel=0.05)


def test_an_arrival_at_another_cta_takes_its_way() -> None:
    gather = ["UCGABAR_ARV", "UCGABAR_WAIT"]
    waits = [(0, [*initial(0, 1), *asks(0, 0)])]
    tells = [(1, [*initial(0, 1, rank=1), *arrives(0)])]
    roles = [[INIT, *gather, TEST, USE], [INIT, *gather, ARRIVE]]
    seen = run_roles(roles, waits, cluster=[tells])
    half = TOY.latencies["cluster"] // 2 + TOY.latencies["shared"] // 2
    assert seen.ended - START == pytest.approx(TOY.latencies["cluster"] + half, rel=0.1)


def test_clusters_follow_one_another() -> None:
    chain = ["FFMA R1, R1, R2, R1"] * 100
    one = run_roles([chain, chain * 2], [(0, [])], cluster=[[(1, [])]])
    many = run_roles([chain, chain * 2], [(0, [])], cluster=[[(1, [])]], ctas=500)
    assert many.ended + many.skipped_cycles == pytest.approx(500 * one.ended, rel=0.01)


def test_a_better_machine_is_never_slower() -> None:
    numbers = HOPPER["h100-sxm"]
    now = pipeline(numbers, 16, 3, 32768, 4)
    for better in (
        replace(numbers, port_rate=2 * numbers.port_rate),
        replace(numbers, lanes={**numbers.lanes, "tensor": 2 * numbers.lanes["tensor"]}),
        replace(numbers, latencies={**numbers.latencies, "tma_l2": 250}),
    ):
        assert pipeline(better, 16, 3, 32768, 4) <= now


def test_sms_that_copy_the_same_stay_in_step() -> None:
    """Four times 4 KiB after a chain: where SMs drift apart, an SM may have used half of the clocks before of L2 ahead of its part."""
    chain = ["FFMA R1, R1, R2, R1"] * 1000 + ["FADD R3, R1, R1"]
    words = [*initial(0, 1), *expects(0, 16384), *copied(0, 0) * 4, *asks(0, 0)]
    code = [INIT, *chain, EXPECT, *[COPY] * 4, TEST, USE]
    own, alike = (
        run_roles(
            [code], [(0, words)], kinds=(replace(moves(4096), distinct=part),), l2_rate=8.0, dram_rate=64.0
        ).ended
        for part in (1.0, 0.5)
    )
    # at 8 bytes a clock, or at the 64 of the port
    assert alike - own == pytest.approx(16384 / 8 - 16384 / 64, rel=0.05)
