"""``tcgen05`` in the simulation of an SM: by published measurements of a B200, and by clocks that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.timing.models.simulation import numbers_of
from tests.support import head, needs_assembler

from .machines import TOY, asks, copied, expects, initial, moves, run, run_roles
from .pipelines import COPY, EXPECT, INIT, TEST, USE
from .tensor_pipelines import COMMIT, commits, idesc, product, steps

B200 = numbers_of(load_machine("b200"))
SHARED, TENSOR, PAIR = "gdesc[UR12]", "tmem[UR12]", ".2CTA"


def each(
    rows: int, columns: int, count: int, a: str = SHARED, words: str = "", numbers: SmNumbers = B200
) -> float:
    """Clocks of a batch of products that is committed and waited for, the mean of eight."""

    def ended(batches: int) -> int:
        code, stream = [INIT, "NOP"], initial(0, 1)
        for batch in range(batches):
            code += [*[product(a, words)] * count, COMMIT.format(PAIR * (PAIR in words)), TEST, USE]
            stream += [*[idesc(rows, columns)] * count, *commits(0), *asks(0, batch & 1)]
        other = [[(1, initial(0, 1, 1))]] if PAIR in words else None
        return run_roles([code, [INIT]], [(0, stream)], numbers=numbers, cluster=other).ended

    return (ended(12) - ended(4)) / 8


@pytest.mark.parametrize(
    ("a", "words", "rows", "columns", "interval", "latency"),
    # SemiAnalysis, lookup1980/microbench-blackwell a5eef42, umma_latency/fit_results.csv, BF16 on a B200: clocks of one product among
    # many, and of one alone with its commit and wait
    [
        (SHARED, "", 128, 64, 48.02, 168), (SHARED, "", 128, 96, 56.02, 184), (SHARED, "", 128, 128, 64.02, 200),
        (SHARED, "", 128, 256, 128.0, 264), (SHARED, "", 64, 64, 32.02, 152), (SHARED, "", 64, 256, 128.0, 248),
        (TENSOR, "", 128, 64, 32.02, 136), (TENSOR, "", 128, 256, 128.03, 232), (TENSOR, "", 64, 128, 64.03, 168),
        (SHARED, PAIR, 128, 64, 25.02, 173), (SHARED, PAIR, 128, 256, 64.02, 229), (SHARED, PAIR, 256, 64, 43.02, 202),
        (SHARED, PAIR, 256, 128, 64.03, 234), (SHARED, PAIR, 256, 256, 128.03, 298), (TENSOR, PAIR, 256, 256, 128.02, 266),
    ],
)  # fmt: skip
def test_products_take_the_measured_time(
    a: str, words: str, rows: int, columns: int, interval: float, latency: float
) -> None:
    assert each(rows, columns, 1, a, words) == pytest.approx(latency, rel=0.045)
    among = (each(rows, columns, 48, a, words) - each(rows, columns, 16, a, words)) / 32
    assert among == pytest.approx(interval, rel=0.08)


@pytest.mark.parametrize(
    ("words", "rows", "columns", "rates"),
    # Antoniomv7/gb300-microbench 1f27767, results/umma_throughput.csv: operations per clock and SM of a B300 with 64 and 256
    # products of BF16 in a batch
    [
        ("", 128, 64, (4941.666873, 5321.432661)), ("", 128, 128, (7706.483983, 8064.974680)),
        ("", 128, 256, (7840.687983, 8101.277950)), (PAIR, 256, 64, (4680.991352, 5577.478143)),
        (PAIR, 256, 128, (6906.888706, 7827.881669)), (PAIR, 256, 256, (7507.307359, 8032.390556)),
    ],
)  # fmt: skip
def test_products_take_the_time_measured_on_a_b300(
    words: str, rows: int, columns: int, rates: tuple[float, float]
) -> None:
    """The difference of both batches is the time of 192 products."""
    few, many = (count * 2 * 128 * columns * 16 / rate for count, rate in zip((64, 256), rates, strict=True))
    b300 = numbers_of(load_machine("b300"))
    among = (each(rows, columns, 48, SHARED, words, b300) - each(rows, columns, 16, SHARED, words, b300)) / 32
    assert among == pytest.approx((many - few) / 192, rel=0.1)


@pytest.mark.parametrize("columns", [64, 256])
def test_products_with_96_of_k_read_half_as_much_again(columns: int) -> None:
    """In the time of 64 numbers of 4 bits: 13 to 14 PFLOP/s beside 9 on a B200, as the data sheets say."""

    def long(depth: int) -> float:
        word = idesc(128, columns) | (depth == 96) << 31
        words = [*initial(0, 1), *[word] * 64, *commits(0), *asks(0, 0)]
        code = [
            INIT,
            "NOP",
            *[product(SHARED).replace("UTCHMMA", "UTCOMMA.4X")] * 64,
            COMMIT.format(""),
            TEST,
            USE,
        ]
        return run_roles([code], [(0, words)], numbers=B200).ended - B200.turnaround

    for depth in (64, 96):
        reads = depth // 2 * (128 + columns) / 128
        assert long(depth) == pytest.approx(64 * max(reads, columns / 2), rel=0.05)


@pytest.mark.parametrize(
    ("words", "rows", "clocks"),
    # AndreSlavescu/flashinfer-competition 77ccd7a, microbenchmarks/utcmma, version 3: 256 columns with .ws
    [(".WS", 64, 76.0), (".WS", 128, 138.0)],
)
def test_weight_stationary_products_use_all_lanes(words: str, rows: int, clocks: float) -> None:
    # the measured ones have ten to twelve clocks more
    among = (each(rows, 256, 48, TENSOR, words) - each(rows, 256, 16, TENSOR, words)) / 32
    assert clocks - 12.5 < among < clocks


def test_a_kept_operand_is_not_read_again() -> None:
    kept = (each(128, 64, 48, SHARED + ".A_REUSE") - each(128, 64, 16, SHARED + ".A_REUSE")) / 32
    assert kept == pytest.approx(32, rel=0.01)


def test_a_sparse_product_takes_as_long_and_reads_twice_as_much_of_b() -> None:
    def sparse(columns: int) -> float:
        words = [*initial(0, 1), *[idesc(128, columns) | 4] * 64, *commits(0), *asks(0, 0)]
        code = [INIT, "NOP", *[product(SHARED)] * 64, COMMIT.format(""), TEST, USE]
        return run_roles([code], [(0, words)], numbers=B200).ended - B200.turnaround

    # 128 rows of 32 bytes and 256, or 64, columns of 64 bytes, of which 128 bytes a clock are read
    assert sparse(256) == pytest.approx(64 * (128 * 32 + 256 * 64) / 128, rel=0.03)
    assert sparse(64) == pytest.approx(64 * (128 * 32 + 64 * 64) / 128, rel=0.05)


@pytest.mark.parametrize(
    ("store", "load", "rate"),
    # tile-ai/TileSight 75428c4, micro_benchmark/src/b200/tmem.cu, bytes per clock of eight warps that move 32 columns at a time
    [(True, False, 1023.88), (True, True, 1007.97)],
)
def test_fragments_pass_at_the_measured_rate(store: bool, load: bool, rate: float) -> None:
    def ended(turns: int) -> int:
        turn = ["STTM.x32 tmem[UR10], R64"] * store
        turn += ["LDTM.x32 R4, tmem[UR12]", "IADD3 R100, R4, R100, RZ"] * load
        return run([*turn * turns, "FENCE.VIEW.ASYNC.T"], [[]] * 8, numbers=B200).ended

    size = 8 * 32 * 32 * 4 * (store + load)
    assert size * 32 / (ended(48) - ended(16)) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize(
    ("columns", "clocks"),
    # AndreSlavescu/flashinfer-competition 77ccd7a, microbenchmarks/utcmma, version 3
    [(1, 13.0), (4, 14.6), (8, 16.2), (16, 21.6), (32, 31.6), (64, 49.8)],
)
def test_a_store_and_its_wait_take_the_measured_time(columns: int, clocks: float) -> None:
    code = [f"STTM.x{columns} tmem[UR10], R64", "FENCE.VIEW.ASYNC.T"]
    taken = run(code * 40, [[]], numbers=B200).ended - run(code * 20, [[]], numbers=B200).ended
    assert taken / 20 == pytest.approx(clocks, rel=0.1)


def test_shapes_of_16_lanes_take_as_long_for_half_the_lanes() -> None:
    def ended(name: str) -> int:
        loads = [f"LDTM.{name} R{16 * n}, tmem[UR10]" for n in range(12)]
        return run([*loads, "IADD3 R250, R176, R177, RZ"], [[]], numbers=B200).ended - B200.turnaround

    words = 12 * 16 * 4 / B200.tensor_read
    latency = B200.latencies["tensor_load"]
    assert ended("x16") == pytest.approx(words + latency, rel=0.15)
    assert ended("16dp128bit.x8") == pytest.approx(2 * words + latency, rel=0.15)


def test_a_copy_to_tensor_memory_is_done_in_order() -> None:
    copy = "UTCCP.T.S.4x32dp128bit tmem[UR10], gdesc[UR6]"
    words = [*initial(0, 1), *[idesc(128, 256)] * 8, *commits(0), *asks(0, 0)]
    alone = [INIT, "NOP", *[product(TENSOR)] * 8, COMMIT.format(""), TEST, USE]
    both = [*alone[:10], *[copy] * 4, *alone[10:]]
    # four times 512 bytes are read while the products run
    seen = [run_roles([code], [(0, words)], numbers=B200).ended for code in (alone, both)]
    assert seen[1] - seen[0] < 8
    words[3:11] = []
    code = [INIT, "NOP", *[copy] * 64, COMMIT.format(""), TEST, USE]
    assert run_roles([code], [(0, words)], numbers=B200).ended - B200.turnaround > 64 * 512 / 128


def test_a_commit_tells_the_mbarriers_of_a_mask() -> None:
    gather = ["UCGABAR_ARV", "UCGABAR_WAIT"]
    code = [INIT, *gather, product(SHARED, PAIR), COMMIT.format(".2CTA.MULTICAST"), TEST, USE]
    words = [*initial(0, 1), idesc(256, 256), *commits(0, mask=3), *asks(0, 0)]
    other = [INIT, *gather, TEST, USE]
    waits = [(1, [*initial(0, 1, 1), *asks(0, 0, 1)])]
    seen = run_roles([code, other], [(0, words)], numbers=B200, cluster=[waits])
    # the product, with A read before it, the way to the other CTA and the answer there
    least = 128 + 32 + B200.latencies["tcgen05_pair"] + B200.latencies["cluster"] // 2
    assert seen.ended - B200.turnaround > least + B200.latencies["cluster"]
    words[-6:-3] = commits(0, mask=1)
    with pytest.raises(NotRun, match="forever"):
        run_roles([code, other], [(0, words)], numbers=B200, cluster=[waits])


def allocating(units: int, free: bool, ctas: int = 2, resident: int = 2) -> int:
    chain = ["FFMA R1, R1, R2, R1"] * 500
    code = ["UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR4, UR4", *chain, *["UTCATOMSWS.AND URZ, UR5"] * free]
    return run_roles([code], [(0, [units])], numbers=B200, ctas=ctas, resident=resident).ended


@pytest.mark.parametrize("free", [True, False])
def test_a_cta_waits_for_columns_that_another_holds(free: bool) -> None:
    """Also for those that it has not freed when it ends."""
    alone = allocating(16, free, 1, 1) - B200.turnaround
    assert allocating(8, free) - B200.turnaround < 1.4 * alone
    assert allocating(16, free) - B200.turnaround > 1.9 * alone
    # three of eight units do not fit at once
    assert 1.9 * alone < allocating(8, free, 3, 3) - B200.turnaround < 2.9 * alone


def test_data_of_another_cta_complete_a_phase() -> None:
    """``st.async``: 128 bytes of a warp."""
    gather = ["UCGABAR_ARV", "UCGABAR_WAIT"]
    waits = [(0, [*initial(0, 1), *expects(0, 128), *asks(0, 0)])]
    sends = [(1, [*initial(0, 1, 1), 1, 0 | 32 << 16, 4])]
    roles = [[INIT, EXPECT, *gather, TEST, USE], [INIT, *gather, "STAS [R4.64], R6"]]
    seen = run_roles(roles, waits, cluster=[sends])
    half = TOY.latencies["cluster"] // 2 + TOY.latencies["shared"] // 2
    assert seen.ended - TOY.turnaround == pytest.approx(TOY.latencies["cluster"] + half, rel=0.15)
    sends = [(1, [*initial(0, 1, 1), 1, 0 | 16 << 16, 4])]
    with pytest.raises(NotRun, match="forever"):
        run_roles(roles, waits, cluster=[sends])


def test_expected_bytes_are_no_arrival() -> None:
    expect = "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR4], R6"
    code, kinds = [INIT, expect, COPY, EXPECT, TEST, USE], (moves(1024),)
    words = [*initial(0, 1), *expects(0, 1024), *copied(0, 0), *expects(0, 0), *asks(0, 0)]
    assert run_roles([code], [(0, words)], kinds=kinds).ended > TOY.latencies["tma_l2"] - 40
    with pytest.raises(NotRun, match="forever"):
        run_roles([[INIT, expect, COPY, TEST, USE]], [(0, words[:8] + words[-3:])], kinds=kinds)


def test_a_copy_of_a_pair_tells_the_mbarrier_of_its_leader() -> None:
    """The data arrive at the CTA that copies, through its port."""
    gather, count = ["UCGABAR_ARV", "UCGABAR_WAIT"], 32
    words = [*initial(0, 1), *expects(0, count * 8192), *asks(0, 0)]
    sends = [*initial(0, 1, 1), *[0 | 1 << 16 | 1 << 24, 0] * count]
    roles = [[INIT, EXPECT, *gather, TEST, USE], [INIT, *gather, *[COPY] * count]]
    seen = run_roles(roles, [(0, words)], cluster=[[(1, sends)]], kinds=(moves(8192),), numbers=B200)
    assert seen.ended - B200.turnaround > count * 8192 / B200.port_rate


def test_a_machine_without_tensor_memory_is_named() -> None:
    with pytest.raises(NotRun, match=r"lacks tensor_memory\.read"):
        each(128, 128, 1, numbers=TOY)


def test_each_step_is_faster_than_the_one_before() -> None:
    """Waiting for each copy, two buffers, a warp for copies and one for products, pairs of CTAs, persistent CTAs: the order of the
    steps that gau-nernst/learn-cuda (1454f8b, 02e_matmul_sm100) measured on a B200. Clocks per tile."""
    taken = steps(B200)
    assert list(taken) == ["waits", "two buffers", "specialised", "pairs", "persistent"]
    for slower, faster in zip(list(taken.values()), list(taken.values())[1:]):
        assert faster < 0.98 * slower, taken
    # never below the tensor cores
    assert min(taken.values()) >= 64 * 128


@pytest.mark.parametrize("factor", [1.25, 2.0])
def test_a_better_machine_is_never_slower(factor: float) -> None:
    taken = steps(B200)
    better = {
        "lanes": {**B200.lanes, "tensor": B200.lanes["tensor"] * factor},
        "port_rate": B200.port_rate * factor,
        "tensor_read": B200.tensor_read * factor,
        "latencies": {**B200.latencies, "tcgen05": round(B200.latencies["tcgen05"] / factor)},
    }
    for name, value in better.items():
        changed = steps(replace(B200, **{name: value}))  # type: ignore[arg-type]
        for step, clocks in changed.items():
            assert clocks <= taken[step] * 1.002, (name, step)


_KERNEL = """
.visible .entry product(.param .u64 out, .param .u32 turns)
{
.reg .b32 %r<20>, %v<8>; .reg .b64 %x<8>; .reg .pred %p<6>;
.shared .align 1024 .b8 tiles[16384]; .shared .align 8 .b64 done; .shared .align 4 .b32 slot;
ld.param.u64 %x0, [out]; ld.param.u32 %r0, [turns];
mov.u32 %r1, %tid.x; mov.u32 %r2, done; mov.u32 %r3, slot; mov.u32 %r4, tiles;
setp.ge.u32 %p0, %r1, 32; @%p0 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 256;
ALLOCATED:
setp.ne.u32 %p1, %r1, 0; @%p1 bra BEGUN;
mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
BEGUN:
bar.sync 0;
ld.shared.u32 %r5, [%r3];
shr.u32 %r6, %r4, 4; and.b32 %r6, %r6, 16383; cvt.u64.u32 %x1, %r6; or.b64 %x1, %x1, 0x401000080000;
add.u64 %x2, %x1, 256;
@%p1 bra MULTIPLIED;
mov.u32 %r7, 0; mov.u32 %r8, 0; setp.eq.u32 %p5, %r8, %r8;
TURN:
setp.ne.u32 %p2, %r7, 0;
PRODUCT %p2; PRODUCT %p5; PRODUCT %p5; PRODUCT %p5;
add.u32 %r7, %r7, 1;
EACH
setp.lt.u32 %p3, %r7, %r0; @%p3 bra TURN;
LAST
MULTIPLIED:
bar.sync 0;
shr.u32 %r9, %r1, 5; shl.b32 %r9, %r9, 21; add.u32 %r9, %r5, %r9;
tcgen05.ld.sync.aligned.32x32b.x4.b32 {%v0, %v1, %v2, %v3}, [%r9];
tcgen05.wait::ld.sync.aligned;
mad.wide.u32 %x3, %r1, 16, %x0; st.global.v4.b32 [%x3], {%v0, %v1, %v2, %v3};
bar.sync 0; @%p0 bra ENDED;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 256;
ENDED:
ret;
}
"""
_WAITS = """
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
ASK: mbarrier.try_wait.parity.shared.b64 %p4, [%r2], %r8; @!%p4 bra ASK; xor.b32 %r8, %r8, 1;
"""


def estimated(where: str) -> ge.Estimate:
    """A CTA that multiplies tiles of 128 rows and 256 columns 64 times, four products at a time, and waits each time, or at last."""
    multiply = f"tcgen05.mma.cta_group::1.kind::f16 [%r5], %x1, %x2, {idesc(128, 256) | 1 << 4},"
    text = _KERNEL.replace("PRODUCT", multiply).replace(where, _WAITS).replace("EACH", "").replace("LAST", "")
    device = ge.Device(observe={"memory", "inputs"}, races="off")
    kernel = ge.parse(head("8.7", "sm_100a") + text, path="k.ptx")["product"]
    profile = device.launch(kernel, 1, 128, [device.zeros(512, np.uint32), np.uint32(64)])
    return ge.estimate(profile, "b200", model="simulation")


@needs_assembler
def test_a_kernel_takes_the_time_of_its_products() -> None:
    once, each = estimated("LAST"), estimated("EACH")
    # 64 turns of four products of 256 columns, two a clock
    assert 64 * 4 * 128 <= once.cycles <= 1.1 * 64 * 4 * 128
    assert once.limiter == "tensor"
    # after each wait A of the next product is read (32 clocks); a wait takes the way to the mbarrier and back, and the loop up to 60
    least = 32 + B200.latencies["tcgen05"] + B200.latencies["shared"] // 2
    assert least <= (each.cycles - once.cycles) / 63 <= least + 60
