"""Mbarriers, bulk and tensor copies and products of warpgroups without an assembler: what traces record, the machine instructions, and
times against those of the code of ``ptxas``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.sass.run.asynchronous import COORDINATES, HIGH, LOW, MASK, PARAMETERS, SHARED, TOKEN
from gpuperf_engine.sass.run.trace_kernel import OFF
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.launch import Traced
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.timing.expanded.asynchronous import RESERVED, register_limits, uniform_of
from gpuperf_engine.timing.models.simulation import Simulation, numbers_of, simulated
from tests.sass.sm.test_kernels import ASYNC_SUMS, CHASE, COUNTED, ELECTED, LISTED, MEET
from tests.support import needs_assembler

from .test_tracing import LANES, of_space, records

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
H100 = load_machine("h100-sxm")
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 n, .param .u64 a, .param .align 64 .b8 map[128])
{
.reg .b32 %r<12>; .reg .b64 %q<8>; .reg .b16 %h; .reg .pred %p<6>; .reg .f32 %f<6>;
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b8 full[64];
ld.param.u32 %r1, [n]; ld.param.u64 %q1, [a]; mov.b64 %q2, map; cvta.param.u64 %q2, %q2;
mov.u32 %r2, tile; mov.u32 %r3, full; mov.u32 %r4, %tid.x; setp.eq.u32 %p1, %r4, 0;
"""


def launched(body: str, *, block: int = 32, **options: Any) -> tuple[LaunchRecord, ge.Profile]:
    """A launch of a body as one CTA with ``n`` = 5, an array and a map of boxes of 16 rows and 64 columns of half precision."""
    device = ge.Device(races="off", memory_bytes=1 << 24, **options)
    array = device.zeros((64, 128), np.float16)
    boxes = ge.TensorMap(array, (16, 64), swizzle="128B")
    kernel = ge.parse(f"{HEAD}{body} ret;\n}}", path="k.ptx")["k"]
    profile = device.launch(kernel, 1, block, [np.uint32(5), array, boxes])
    return profile.records[0], profile


def simulation_of(record: LaunchRecord, profile: ge.Profile) -> Simulation:
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    return Simulation(record, H100, expanded=resources)


def traced(body: str, **options: Any) -> tuple[LaunchRecord, Traced]:
    record, profile = launched(body, **options)
    return record, simulation_of(record, profile).code().trace()


def words_of(record: LaunchRecord, found: Traced, space: str, warp: int = 0) -> list[NDArray[np.uint32]]:
    """The words of the accesses of a warp to a space."""
    words = found.tracer.whole(record, [(0, 0, 0)], 1 << 12)
    warps = [*records(words[0][warp], found.tracer.of_block)]
    return [row for row, _ in of_space(found.tracer, warps, space)]  # type: ignore[arg-type]


def texts(found: Traced) -> list[str]:
    return [item.text for item in found.tracer.graph.listing.instructions]


#: A phase of an mbarrier that two lanes end, one of them with bytes, and tests by parity and by state.
PHASE = """
@%p1 mbarrier.init.shared.b64 [%r3], 33; @%p1 mbarrier.init.shared.b64 [%r3+8], %r1; bar.sync 0;
@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r3], 16;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 2032;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1+256], 2048, [%r3];
mbarrier.arrive.shared.b64 %q3, [%r3];
W: mbarrier.try_wait.shared.b64 %p2, [%r3], %q3; @!%p2 bra W;
mov.u32 %r5, 1;
X: mbarrier.test_wait.parity.shared.b64 %p3, [full+8], %r5; @!%p3 bra X;
mbarrier.inval.shared.b64 [%r3];
"""


def test_mbarriers_are_recorded_as_their_operands() -> None:
    record, found = traced(PHASE)
    places, values = words_of(record, found, "mbarrier"), words_of(record, found, "value")
    bar, first = (RESERVED + 4096) // 4, LANES == 0
    expected = [
        (bar, 2 * ((1 << 20) - 33), first), (bar + 2, 2 * ((1 << 20) - 5), first), (bar, 16, first), (bar, 2032, first),
        (bar, 0, LANES >= 0), (bar, TOKEN, LANES >= 0), (bar + 2, 1 << 31, LANES >= 0),
    ]  # fmt: skip
    assert len(places) == len(values) == len(expected)
    for place, value, (where, what, lanes) in zip(places, values, expected):
        np.testing.assert_array_equal(place, np.where(lanes, where, OFF))
        np.testing.assert_array_equal(value, np.where(lanes, what, OFF))
    (copy,) = words_of(record, found, "copy")
    start = int.from_bytes(record.plan.parameters[8:16], "little") + 256
    assert copy[[SHARED, 1, MASK]].tolist() == [RESERVED, RESERVED + 4096, 2048 // 16]
    assert int(copy[LOW]) | int(copy[HIGH]) << 32 == start


def test_the_instructions_of_mbarriers() -> None:
    listing = texts(traced(PHASE)[1])
    opcodes = [text.split()[1 if text.startswith("@") else 0] for text in listing]
    told = [opcode for opcode in opcodes if opcode.startswith(("SYNCS", "UBLKCP"))]
    assert told == [
        "SYNCS.EXCH.64", "SYNCS.EXCH.64", "SYNCS.ARRIVE.TRANS64.RED.A0TR", "SYNCS.ARRIVE.TRANS64", "UBLKCP.S.G",
        "SYNCS.ARRIVE.TRANS64.A1T0", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "SYNCS.PHASECHK.TRANS64", "SYNCS.CCTL.IV",
    ]  # fmt: skip
    copy = opcodes.index("UBLKCP.S.G")
    assert "ELECT" in opcodes[:copy] and "BRA.U.ANY" in opcodes[copy:]


#: By the change of an mbarrier: its machine instruction as ptxas 13.0 writes it, and the recorded value.
CHANGES = {
    "mbarrier.arrive.shared.b64 _, [%r3], %r1": ("ART0", 5),
    "mbarrier.arrive.shared.b64 %q3, [%r3], 3": ("ART0", 3),
    "mbarrier.arrive_drop.shared.b64 %q3, [%r3]": ("OPTOUT.A1T0", 0),
    "mbarrier.arrive_drop.shared.b64 _, [%r3], %r1": ("OPTOUT.ART0", 5),
    "mbarrier.arrive_drop.expect_tx.shared.b64 _, [%r3], 24": ("OPTOUT", 24),
    "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r3], 24": ("RED.A0TX", 24),
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3], %r1": ("RED.ART0", 5),
    "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r3], 8": ("RED", 8),
    "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r3]": ("RED.OPTOUT.A1T0", 0),
}


PASSED = "mbarrier.test_wait.parity.shared.b64 %p3, [%r3], 1;"


@pytest.mark.parametrize("change", CHANGES)
def test_counted_changes_of_mbarriers(change: str) -> None:
    suffix, value = CHANGES[change]
    record, found = traced(f"@%p1 mbarrier.init.shared.b64 [%r3], 999; bar.sync 0; {change}; {PASSED}")
    np.testing.assert_array_equal(words_of(record, found, "value")[1], np.full(32, value))
    opcodes = [text.split()[0] for text in texts(found)]
    assert f"SYNCS.ARRIVE.TRANS64.{suffix}" in opcodes


@pytest.mark.parametrize("noinc", [False, True])
def test_copies_of_threads_hold_a_phase(noinc: bool) -> None:
    """Without ``.noinc`` the phase waits for the copies without counting them. A phase with another count would never be complete."""
    times = []
    for arrival, count in (
        (f"cp.async.mbarrier.arrive{'.noinc' * noinc}.shared.b64 [%r3];", 32 * (1 + noinc)),
        ("", 32),
    ):
        body = (
            f"@%p1 mbarrier.init.shared.b64 [%r3], {count}; bar.sync 0; mad.wide.u32 %q3, %r4, 4, %q1; mad.lo.u32 %r5, %r4, 4, %r2;"
            f"cp.async.ca.shared.global [%r5], [%q3], 4; {arrival} mbarrier.arrive.shared.b64 _, [%r3];"
            "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra W;"
        )
        time = ge.estimate(launched(body)[1], "h100-sxm", model="simulation-expanded")
        assert time.model == "simulation-expanded", time.notes
        times.append(time.cycles)
    assert times[0] - times[1] > numbers_of(H100).latencies["l2"] / 2


#: Loads, a store and a reduction of boxes.
BOXES = """
mov.u32 %r6, 7; @%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0; @!%p1 bra END;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 2048;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+1024], [%q2, {64, %r6}], [%r3];
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra W;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q2, {%r6, %r1}], [%r2];
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%q2, {0, 0}], [%r2];
cp.async.bulk.global.shared::cta.bulk_group [%q1], [%r2], 64;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
END:
"""


def test_tensor_copies_are_recorded_by_their_fields() -> None:
    record, found = traced(BOXES)
    load, store, reduction, linear = words_of(record, found, "copy")
    two = [COORDINATES, COORDINATES + 1]
    for words in (load, store, reduction):
        assert words[[LOW, HIGH]].tolist() == [64, PARAMETERS]
    assert load[[SHARED, 1, *two]].tolist() == [RESERVED + 1024, RESERVED + 4096, 64, 7]
    assert store[[SHARED, 1, *two]].tolist() == [RESERVED, OFF, 7, 5]
    assert reduction[two].tolist() == [0, 0] and linear[MASK] == 4
    copies = found.classes.copying
    assert copies is not None
    moved = copies.of(1).moved
    assert [item.bytes for item in moved] == [2048, 2048, 2048, 64]
    assert [item.way for item in moved] == [0, 1, 2, 1]
    opcodes = [text.split()[0] for text in texts(found)]
    names = {
        "UTMALDG.2D",
        "UTMASTG.2D",
        "UTMAREDG.2D.ADD",
        "UBLKCP.G.S",
        "UTMACMDFLUSH",
        "DEPBAR.LE",
        "CCTL.IVALL",
    }
    assert names <= {*opcodes} and opcodes.count("DEPBAR.LE") == 2 and opcodes.count("CCTL.IVALL") == 1


def test_products_of_a_group_end_with_its_mark() -> None:
    sums = "{%f1, %f2, %f3, %f4}"
    body = f"""
    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1; setp.eq.u32 %p2, 0, 0; mov.u64 %q3, 0;
    setmaxnreg.inc.sync.aligned.u32 232;
    fence.proxy.async.shared::cta;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {sums}, %q3, %q3, %p2, 1, 1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {sums}, {{%r1, %r2, %r3, %r4}}, %q3, %p2, 1, 1;
    wgmma.commit_group.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {sums}, %q3, %q3, %p2, 1, 1;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    mad.wide.u32 %q4, %r4, 16, %q1; st.global.v4.f32 [%q4], {sums};"""
    listing = texts(traced(body, block=128)[1])
    assert [text for text in listing if "MMA" in text or text.startswith("WARPGROUP")] == [
        "WARPGROUP.ARRIVE",
        "HGMMA.64x8x16.F32 R0, gdesc[UR4], R0",
        "QGMMA.64x8x32.F32.E4M3.E5M2 R0, R0, gdesc[UR4], R0, gsb0",
        "HGMMA.64x8x8.F32.TF32 R0, gdesc[UR4], R0, gsb0",
        "WARPGROUP.DEPBAR.LE gsb0, 0x1",
    ]
    fences = ("MEMBAR", "FENCE")
    assert [text for text in listing if text.startswith(fences)] == ["MEMBAR.ALL.CTA", "FENCE.VIEW.ASYNC.S"]


#: Each CTA of a pair copies half of a tile to both, when both have the mbarrier, and tells the other one that it has it.
PAIRS = """
.reg .pred %t; mov.u32 %r6, %cluster_ctarank; mov.u32 %r7, %clusterid.x; mov.u32 %r8, %cluster_ctaid.x;
@%p1 mbarrier.init.shared.b64 [%r3], 1; @%p1 mbarrier.init.shared.b64 [%r3+8], 1;
barrier.cluster.arrive; barrier.cluster.wait;
@!%p1 bra END;
mov.u16 %h, 3; shl.b32 %r9, %r6, 10; add.u32 %r10, %r2, %r9; xor.b32 %r11, %r6, 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 2048;
mad.wide.u32 %q3, %r8, 1024, %q1;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [%q3], 1024, [%r3], %h;
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra W;
mapa.shared::cluster.u32 %r4, %r3, %r11;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4+8];
X: mbarrier.try_wait.parity.shared.b64 %p3, [%r3+8], 0; @!%p3 bra X;
END:
"""


def in_pairs(count: int = 4) -> ge.Profile:
    device = ge.Device(races="off", memory_bytes=1 << 24)
    text = f"{HEAD}{PAIRS} ret;\n}}".replace(
        "map[128])", "map[128]) .explicitcluster .reqnctapercluster 2, 1, 1"
    )
    array = device.zeros(4096, np.uint8)
    return device.launch(
        ge.parse(text, path="pairs.ptx")["k"], 2 * count, 32, [np.uint32(0), array, bytes(128)]
    )


def test_addresses_in_a_cluster_are_recorded_with_ranks() -> None:
    profile = in_pairs()
    record = profile.records[0]
    found = simulation_of(record, profile).code().trace()
    words = found.tracer.whole(record, [(2, 0, 0), (3, 0, 0)], 1 << 12)
    array = int.from_bytes(record.plan.parameters[8:16], "little")
    for rank, cta in enumerate(words):
        warp = [*records(cta[0], found.tracer.of_block)]
        told = [int(row[0]) for row, _ in of_space(found.tracer, warp, "mbarrier")]  # type: ignore[arg-type]
        own, other = ((RESERVED + 4096 | each << 24) // 4 for each in (rank, 1 - rank))
        assert told == [own, own + 2, own, own, other + 2, own + 2]
        ((copy, _),) = of_space(found.tracer, warp, "copy")  # type: ignore[arg-type]
        assert copy[[SHARED, 1]].tolist() == [
            RESERVED + 1024 * rank | rank << 24,
            RESERVED + 4096 | rank << 24,
        ]
        assert int(copy[MASK]) == 3 << 16 | 64
        assert int(copy[LOW]) | int(copy[HIGH]) << 32 == array + 1024 * rank
    opcodes = [text.split()[0] for text in texts(found)]
    assert {"UCGABAR_ARV", "UCGABAR_WAIT", "UBLKCP.S.G.MULTICAST", "SYNCS.ARRIVE.TRANS64.RED.A1T0"} <= {
        *opcodes
    }


INIT = "@%p1 mbarrier.init.shared.b64 [%r3], 32; bar.sync 0;"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0; @!%p4 bra W;"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "@%p1 mbarrier.arrive.noComplete.shared.b64 %q3, [%r3], 1; @%p1 mbarrier.arrive.shared.b64 _, [%r3], 31;",
            "noComplete",
        ),
        (
            "mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16; "
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1], 16, [%r3];",
            "several lanes",
        ),
        (
            "mbarrier.arrive.shared.b64 _, [%r3]; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%q1], [%r2], 16; "
            "ld.global.u32 %r5, [%q1+64]; mul.wide.u32 %q4, %r5, 4; add.u64 %q4, %q4, %q1; st.global.u32 [%q4], %r5;",
            "what copies or asynchronous stores write",
        ),
    ],
)  # fmt: skip
def test_what_stays_out(body: str, reason: str) -> None:
    with pytest.raises(NotRun, match=reason):
        traced(f"{INIT}{body}{WAIT}", observe={"memory", "inputs"})


def test_mbarriers_before_hopper_stay_out() -> None:
    text = f"{HEAD}{INIT} mbarrier.arrive.shared.b64 %q3, [%r3]; ret;\n}}".replace("sm_90a", "sm_80")
    device = ge.Device(races="off", memory_bytes=1 << 24)
    profile = device.launch(
        ge.parse(text, path="k.ptx")["k"], 1, 32, [np.uint32(5), device.zeros(64, np.uint8), bytes(128)]
    )
    record = profile.records[0]
    a100 = load_machine("a100-sxm-80gb")
    with pytest.raises(NotRun, match="simulated on machine code only"):
        Simulation(record, a100, expanded=replace(profile.resources, shared_bytes=80)).code().trace()


def product(entry: str, size: int, depth: int) -> ge.Profile:
    file = "warpgroup_gemm_tma" if entry == "hgemm_tma" else "warpgroup_gemm"
    device = ge.Device(races="off")
    a, b = (device.zeros((size, depth), np.float16) for _ in range(2))
    given: list[Any] = [a, b]
    if entry == "hgemm_tma":
        given = [ge.TensorMap(item, (128, 64), swizzle="128B") for item in (a, b)]
    kernel = ge.parse((KERNELS / f"{file}.ptx").read_text(encoding="utf-8"), path=file)[entry]
    arguments = [np.int32(size), np.int32(depth), *given, device.zeros((size, size), np.float32)]
    return device.launch(
        kernel, (size // 128, size // 128), 384, arguments, shared_bytes=98304, demand="addresses"
    )


def chase() -> ge.Profile:
    device = ge.Device(races="off")
    ends = "ld.shared.u32 %r6, [%r2]; add.u32 %r2, %r2, 0; st.shared.u32 [%r2+4], %r6;"
    kernel = ge.parse(CHASE.replace("END", ends), path="chase.ptx")["k"]
    return device.launch(kernel, 1, 1, [np.int32(64), bytes(64), device.zeros(1 << 16, np.uint8)])


def elected() -> ge.Profile:
    device = ge.Device(races="off")
    boxes = ge.TensorMap(device.zeros((64 * 264, 64 * 100), np.float16), (64, 64), swizzle="128B")
    return device.launch(ge.parse(ELECTED, path="elected.ptx")["k"], 264, 64, [boxes, np.int32(100)])


def listed() -> ge.Profile:
    device = ge.Device(races="off", observe={"memory", "inputs"})
    order = np.full((8, 32), -1, np.int32)
    order[:, :20] = np.arange(8 * 20).reshape(8, 20)
    kernel = ge.parse(LISTED.replace("MEET", MEET), path="listed.ptx")["k"]
    return device.launch(kernel, 16, 64, [device.zeros(1 << 18, np.uint8), device.array(order.reshape(-1))])


def counted() -> ge.Profile:
    device = ge.Device(races="off", observe={"memory", "inputs"})
    number = device.array(np.array([20], np.uint32))
    return device.launch(
        ge.parse(COUNTED, path="counted.ptx")["k"], 1, 128, [number, device.zeros(1 << 12, np.uint32)]
    )


def told(add: str) -> ge.Profile:
    text = ASYNC_SUMS.replace("ADD", add).replace("SHIFT", "2").replace("SIZE", "4").replace("TIMES", "48")
    device = ge.Device(races="off")
    return device.launch(ge.parse(text, path="told.ptx")["k"], 1, 32, [device.zeros(32, np.uint32)])


TOLD = "mbarrier::complete_tx::bytes.shared::cluster"
LAUNCHES: dict[str, Callable[[], ge.Profile]] = {
    "hgemm_tma": lambda: product("hgemm_tma", 256, 2048),
    "hgemm_specialised": lambda: product("hgemm_specialised", 256, 512),
    "chase": chase,
    "elected": elected,
    "counted": counted,
    "listed": listed,
    "in_pairs": in_pairs,
    "st.async": lambda: told(f"st.async.weak.{TOLD}.b32 [%r6], 16, [%r7];"),
    "red.async": lambda: told(f"red.async.relaxed.cluster.{TOLD}.add.u32 [%r6], 16, [%r7];"),
}


@needs_assembler
@pytest.mark.parametrize("name", LAUNCHES)
def test_times_are_those_of_the_machine_code(name: str) -> None:
    profile = LAUNCHES[name]()
    record = profile.records[0]
    expanded = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    ours, theirs = simulated(record, H100, expanded=expanded), simulated(record, H100)
    assert ours.time_us == pytest.approx(theirs.time_us, rel=0.1)
    for bound in ("tensor", "l2", "dram"):
        assert ours.bounds.get(bound, 0.0) == pytest.approx(theirs.bounds.get(bound, 0.0), rel=0.1, abs=0.1)


@needs_assembler
@pytest.mark.parametrize("name", ["chase", "elected", "in_pairs"])
def test_times_on_blackwell(name: str) -> None:
    """There, what lies in the first KiB of shared memory belongs to the system."""
    profile, b200 = LAUNCHES[name](), load_machine("b200")
    record = profile.records[0]
    text = record.program.kernel.module.text
    assert "sm_90" in text
    kernel = ge.parse(text.replace("sm_90a", "sm_90"), path="k.ptx")["k"]
    record = replace(record, program=program_of(kernel))
    expanded = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    ours, theirs = simulated(record, b200, expanded=expanded), simulated(record, b200)
    assert ours.time_us == pytest.approx(theirs.time_us, rel=0.1)


def test_registers_that_setmaxnreg_leaves() -> None:
    body = """
    setp.gt.u32 %p2, %r4, 127; @%p2 bra OTHERS;
    setmaxnreg.dec.sync.aligned.u32 40; mov.u32 %r5, 1; bra.uni END;
    OTHERS: setmaxnreg.inc.sync.aligned.u32 232; mov.u32 %r5, 2;
    L: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r1; @%p3 bra L;
    END: st.global.u32 [%q1], %r5;"""
    program = launched(body, block=256)[0].program
    limits = register_limits(program, 168)
    by_text = {block.index: [item.opcode for item in block.instructions] for block in program.blocks}
    found = {opcode: limits.get(index, 168) for index, opcodes in by_text.items() for opcode in opcodes}
    assert found["setp.gt.u32"] == 168 and found["setmaxnreg.dec.sync.aligned.u32"] == 40
    # where both meet, the more
    assert found["setp.lt.u32"] == found["st.global.u32"] == 232
    assert register_limits(launched("mov.u32 %r5, 1;")[0].program, 168) == {}


def test_values_that_are_the_same_in_all_lanes() -> None:
    body = """
    mov.u32 %r5, %ctaid.x; add.u32 %r5, %r5, 3; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r8, %laneid;
    @%p1 mbarrier.init.shared.b64 [%r3], 32; bar.sync 0;
    L: mbarrier.arrive.shared.b64 %q3, [%r3]; W: mbarrier.try_wait.shared.b64 %p2, [%r3], %q3; @!%p2 bra W;
    ld.global.u32 %r9, [%q1]; add.u32 %r7, %r7, %r8; add.u32 %r6, %r6, %r5; setp.lt.u32 %p3, %r6, %r1; @%p3 bra L;
    st.global.u32 [%q1], %r7;"""
    kernel = launched(body)[0].program.kernel
    names = {register.name for register in uniform_of(program_of(kernel))}
    assert {"%r5", "%r6", "%p3", "%q1", "%r3"} <= names
    assert names.isdisjoint({"%r4", "%p1", "%r7", "%r8", "%r9", "%q3", "%p2"})


def test_registers_at_the_start_of_a_kernel_that_changes_them() -> None:
    """All that 384 threads of one CTA may have; what ``ptxas`` 13.0 gives it too."""
    profile = product("hgemm_tma", 256, 128)
    assert simulation_of(profile.records[0], profile).used().registers == 168
