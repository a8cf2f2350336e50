"""Traces of PTX kernels: blocks and lanes against the counters of the launch, addresses against NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import SMALL, Case, execute
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.sass.ordering import aliases_of
from gpuperf_engine.sass.run.trace_kernel import OFF
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.sampling import classes_of
from gpuperf_engine.simt.counters import SITE_COLUMNS
from gpuperf_engine.timing.expanded.tracing import ExpandedTracer
from tests.engine.running import GLOBAL_THREAD, Engine, module
from tests.files.reader import PtxTest, every_file

from .listing import code_of

LANES = np.arange(32)
WORDS = 1 << 12
#: Why kernels of the examples are not traced.
REFUSED = {
    "cluster_histogram": "may depend on shared memory of other CTAs",
}
#: The largest case of each example kernel that calls no functions; these are inlined before (``test_inlining``).
KERNELS = list(
    {
        case.name.partition("-")[0]: case
        for case in SMALL
        if case.ptx.parent.name == "kernels" and "call.uni" not in case.text
    }.values()
)

#: Small kernels about control flow, barriers, exchanges and memory.
FILES = [
    test
    for test in every_file()
    if test.name.split("/")[0] in ("barriers", "control_flow", "memory", "warp_sync")
    and not test.errors
    and "call" not in test.text
]

Record = tuple[int, int, NDArray[np.uint32]]


def records(words: NDArray[np.uint32], of_block: dict[int, list[int]]) -> Iterator[Record]:
    """The block, the lanes as bits, and the words of each access, [access, lane], of each block that a warp executes."""
    at = 0
    while at < len(words):
        block, lanes = int(words[at]), int(words[at + 1])
        count = len(of_block[block])
        yield block, lanes, words[at + 2 : at + 2 + 32 * count].reshape(count, 32)
        at += 2 + 32 * count
    assert at == len(words)


def traced(record: LaunchRecord, **options: Any) -> tuple[ExpandedTracer, list[list[list[Record]]]]:
    """The tracer of a launch, and the records of each warp of each CTA."""
    tracer = ExpandedTracer(code_of(record.program, **options), 80)
    wide, tall, deep = record.plan.grid
    ctas = [(x, y, z) for z in range(deep) for y in range(tall) for x in range(wide)]
    words = tracer.whole(record, ctas, WORDS)
    return tracer, [[[*records(warp, tracer.of_block)] for warp in cta] for cta in words]


def active(lanes: int) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = (lanes >> LANES & 1).astype(np.bool_)
    return bits


def check_counts(record: LaunchRecord, joined: bool = False) -> None:
    """Compares executed blocks and lanes, and the lanes of each access, with the counters of the launch. ``joined``: with blocks that
    only follow one another as one, which is recorded where the first begins."""
    program, seen = record.program, record.observation
    tracer, ctas = traced(record, joined=joined)
    begins = code_of(program, joined=joined).begins
    warps, lanes = np.zeros((2, len(program.blocks)), np.int64)
    accesses = np.zeros(len(tracer.sites), np.int64)
    for block, mask, words in (one for cta in ctas for warp in cta for one in warp):
        warps[block] += 1
        lanes[block] += active(mask).sum()
        accesses[tracer.of_block[block]] += ((words != OFF) & active(mask)).sum(axis=1)
    blocks = program.blocks
    filled = np.array(
        [
            begins[at] == at
            and any(blocks[other].instructions for other in np.flatnonzero(np.equal(begins, at)))
            for at in range(len(blocks))
        ]
    )
    np.testing.assert_array_equal(warps, np.where(filled, seen.block_warps, 0))
    np.testing.assert_array_equal(lanes, np.where(filled, seen.block_lanes, 0))
    assert seen.sites is not None
    of_site = code_of(program, joined=joined).sites
    expected = [
        seen.sites[program.site_of[site.instruction], SITE_COLUMNS.index("lanes")]
        for site in of_site
        if site.instruction is not None
    ]
    np.testing.assert_array_equal(accesses, expected)


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_blocks_and_lanes_are_those_of_the_launch(case: Case) -> None:
    engine = Engine(case.text, "llvm", ("memory", "inputs"))
    execute(case.program(), engine)
    for profile in engine.profiles[:2]:
        record = profile.records[0]
        reason = REFUSED.get(record.program.kernel.name)
        if reason is None:
            for joined in (False, True):
                check_counts(record, joined)
        else:
            with pytest.raises(NotRun, match=reason):
                traced(record)


@pytest.mark.parametrize("test", FILES, ids=lambda test: test.name)
def test_lanes_meet_where_those_of_the_launch_do(test: PtxTest) -> None:
    device = ge.Device(("memory", "inputs"), memory_bytes=1 << 24)
    args = [device.array(item) if np.ndim(item) else item for item in test.arguments()]
    kernel = ge.parse(test.text, path=f"{test.name}.ptx")[test.entry]
    shape = test.shape
    profile = device.launch(kernel, shape["grid"], shape["block"], args, shared_bytes=shape["shared"])
    for joined in (False, True):
        check_counts(profile.records[0], joined)


def run(
    body: str,
    args: Sequence[NDArray[Any] | np.generic] = (),
    parameters: str = "",
    *,
    before: str = "",
    grid: Any = 1,
    block: Any = 32,
    kept: bool = False,
    **options: Any,
) -> LaunchRecord:
    """The record of a launch of a body as the kernel ``k``; ``kept``: whether memory is kept."""
    device = ge.Device(("memory", "inputs") if kept else ("memory",), memory_bytes=1 << 24)
    given = [device.array(item) if isinstance(item, np.ndarray) else item for item in args]
    kernel = ge.parse(module(body, parameters, before), path="k.ptx")["k"]
    record: LaunchRecord = device.launch(kernel, grid, block, given, **options).records[0]
    return record


def of_space(
    tracer: ExpandedTracer, warp: list[Record], space: str
) -> list[tuple[NDArray[np.uint32], NDArray[np.bool_]]]:
    """The words of the accesses of a warp to a space, in order, and the lanes that were active."""
    return [
        (row, active(mask))
        for block, mask, words in warp
        for site, row in zip(tracer.of_block[block], words)
        if tracer.sites[site].space == space
    ]


def start_of(record: LaunchRecord, offset: int) -> int:
    """The word that a pointer parameter points to, as it is recorded."""
    address = int.from_bytes(record.plan.parameters[offset : offset + 8], "little")
    return address >> 2 & 0xFFFFFFFF


A, AB = ".param .u64 a", ".param .u64 a, .param .u64 b"
OUT = np.zeros(1024, np.float32)
#: Loads the pointers of the two parameters.
POINTERS = "ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b];"
BYTES = "mul.wide.u32 %rd2, %r19, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;"


def test_saxpy() -> None:
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        ld.global.f32 %f0, [%rd3+16]; ld.global.f32 %f1, [%rd4]; fma.rn.f32 %f2, %f0, 0f40000000, %f1;
        st.global.f32 [%rd4], %f2; ret;"""
    record = run(body, [np.zeros(260, np.float32), OUT], AB, grid=2, block=128)
    check_counts(record)
    tracer, ctas = traced(record)
    assert not tracer.reads_memory and not tracer.reads_shared
    x, y = start_of(record, 0), start_of(record, 8)
    for cta, warps in enumerate(ctas):
        for number, warp in enumerate(warps):
            first = 128 * cta + 32 * number + LANES
            words = [row for row, _ in of_space(tracer, warp, "global")]
            np.testing.assert_array_equal(words, [x + 4 + first, y + first, y + first])
    last = tracer.trace(record, [(1, 0, 0)], 1).last
    np.testing.assert_array_equal(last[0, :, 0], x + 4 + 128 + 32 * np.arange(4) + 31)


def test_transpose_with_shared_memory() -> None:
    body = f"""
        .shared .align 4 .b8 first[20];
        .shared .align 16 .b8 tile[4224];
        {POINTERS}
        mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r5, first; st.shared.u32 [%r5], %r0;
        mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;
        ld.global.f32 %f0, [%rd3];
        mov.u64 %rd6, tile; cvt.u32.u64 %r6, %rd6;
        mad.lo.u32 %r3, %r1, 132, %r6; mad.lo.u32 %r3, %r0, 4, %r3; st.shared.f32 [%r3], %f0;
        bar.sync 0;
        mul.wide.u32 %rd7, %r0, 132; mul.wide.u32 %rd8, %r1, 4; add.s64 %rd7, %rd7, %rd8; add.s64 %rd7, %rd7, %rd6;
        ld.shared.f32 %f1, [%rd7]; st.global.f32 [%rd4], %f1; ret;"""
    record = run(body, [OUT, OUT], AB, block=(32, 32))
    check_counts(record)
    tracer, ctas = traced(record)
    tile = 32 // 4  # behind the first variable
    for row, warp in enumerate(ctas[0]):
        words = [words for words, _ in of_space(tracer, warp, "shared")]
        np.testing.assert_array_equal(words, [0 * LANES, tile + 33 * row + LANES, tile + 33 * LANES + row])


@pytest.mark.parametrize("guard", ["", "@%p0 "])
def test_32_bit_addresses_of_module_variables(guard: str) -> None:
    """In constant memory, as halves of 64-bit ones are; what is looked up there decides about another address."""
    table = f".const .align 4 .b32 table[34] = {{{', '.join(str(3 * at) for at in range(34))}}};\n"
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 40; {guard}mov.u32 %r1, table+8; mad.lo.u32 %r2, %r0, 4, %r1;
        ld.const.u32 %r3, [%r2]; mul.wide.u32 %rd5, %r3, 4; add.s64 %rd6, %rd0, %rd5; ld.global.f32 %f0, [%rd6];
        st.global.f32 [%rd4], %f0; ret;"""
    record = run(body, [OUT, OUT], AB, before=table, kept=True)
    check_counts(record)
    tracer, ctas = traced(record)
    assert tracer.reads_memory
    (load, _), (store, _) = of_space(tracer, ctas[0][0], "global")
    np.testing.assert_array_equal(load, start_of(record, 0) + 3 * (LANES + 2))
    np.testing.assert_array_equal(store, start_of(record, 8) + LANES)


@pytest.mark.parametrize("negated", [False, True])
def test_a_guarded_load(negated: bool) -> None:
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        setp.lt.u32 %p0, %r18, 5; mov.f32 %f0, 0f00000000;
        @{"!" * negated}%p0 ld.global.f32 %f0, [%rd3]; st.global.f32 [%rd4], %f0; ret;"""
    record = run(body, [OUT, OUT], AB)
    check_counts(record)
    tracer, ctas = traced(record)
    (load, _), (store, _) = of_space(tracer, ctas[0][0], "global")
    np.testing.assert_array_equal(load, np.where((LANES < 5) != negated, start_of(record, 0) + LANES, OFF))
    np.testing.assert_array_equal(store, start_of(record, 8) + LANES)


def test_a_divergent_branch_and_an_early_exit() -> None:
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        setp.ge.u32 %p1, %r18, 30; @%p1 exit;
        and.b32 %r0, %r18, 1; setp.eq.u32 %p0, %r0, 0;
        @%p0 bra EVEN;
        ld.global.f32 %f0, [%rd3+128]; bra.uni MEET;
        EVEN: ld.global.f32 %f0, [%rd3];
        MEET: st.global.f32 [%rd4], %f0; ret;"""
    record = run(body, [OUT, OUT], AB)
    check_counts(record)
    tracer, ctas = traced(record)
    x, y = start_of(record, 0), start_of(record, 8)
    even = np.isin(LANES, np.arange(0, 30, 2))
    found = of_space(tracer, ctas[0][0], "global")
    expected = {0: (x + LANES + 32, np.roll(even, 1)), 1: (x + LANES, even), 2: (y + LANES, LANES < 30)}
    assert len(found) == len(expected)
    for site, (words, lanes) in zip(_order(tracer, ctas[0][0]), found):
        np.testing.assert_array_equal(lanes, expected[site][1])
        np.testing.assert_array_equal(words[lanes], expected[site][0][lanes])


def _order(tracer: ExpandedTracer, warp: list[Record]) -> list[int]:
    return [site for block, _, _ in warp for site in tracer.of_block[block]]


def test_cp_async() -> None:
    body = f"""
        .shared .align 16 .b8 tile[512];
        {GLOBAL_THREAD}{POINTERS}
        mul.wide.u32 %rd2, %r19, 16; add.s64 %rd3, %rd0, %rd2;
        mov.u32 %r0, tile; mad.lo.u32 %r1, %r18, 16, %r0;
        cp.async.cg.shared.global [%r1], [%rd3], 16; cp.async.commit_group; cp.async.wait_group 0;
        ld.shared.f32 %f0, [%r1+4]; st.global.f32 [%rd1], %f0; ret;"""
    record = run(body, [OUT, OUT], AB)
    check_counts(record)
    tracer, ctas = traced(record)
    assert [(site.operand, site.space) for site in tracer.sites[:2]] == [(0, "shared"), (1, "global")]
    shared = [words for words, _ in of_space(tracer, ctas[0][0], "shared")]
    np.testing.assert_array_equal(shared, [4 * LANES, 4 * LANES + 1])
    np.testing.assert_array_equal(
        of_space(tracer, ctas[0][0], "global")[0][0], start_of(record, 0) + 4 * LANES
    )


def test_ldmatrix_that_overwrites_its_address() -> None:
    """Lanes come from both sides of a branch, so that the block begins where they have met."""
    body = """
        .shared .align 16 .b8 tile[512];
        mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1;
        setp.lt.u32 %p0, %r0, 7;
        @%p0 bra LOW;
        xor.b32 %r5, %r0, 1;
        bra.uni MEET;
        LOW: add.u32 %r5, %r0, 1;
        MEET: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r6}, [%r2];
        mad.lo.u32 %r7, %r5, 4, %r1; st.shared.u32 [%r7], %r3; ret;"""
    record = run(body)
    check_counts(record)
    tracer, ctas = traced(record)
    (rows, lanes), (store, _) = of_space(tracer, ctas[0][0], "shared")
    assert lanes.all()
    np.testing.assert_array_equal(rows, 4 * LANES)
    np.testing.assert_array_equal(store, np.where(LANES < 7, LANES + 1, LANES ^ 1))


def test_generic_addresses() -> None:
    body = f"""
        .shared .align 16 .b8 tile[128];
        .local .align 16 .b8 own[16];
        {GLOBAL_THREAD} ld.param.u64 %rd0, [a]; mul.wide.u32 %rd2, %r19, 4;
        mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; setp.lt.u32 %p0, %r18, 16; selp.b64 %rd4, %rd0, %rd3, %p0;
        add.s64 %rd4, %rd4, %rd2; st.f32 [%rd4], 0f3F800000;
        mov.u64 %rd5, own; cvta.local.u64 %rd5, %rd5; ld.f32 %f0, [%rd5+8]; ret;"""
    record = run(body, [OUT], A)
    check_counts(record)
    tracer, ctas = traced(record)
    (store, _), (load, _) = of_space(tracer, ctas[0][0], "generic")
    (window, _), (own, _) = of_space(tracer, ctas[0][0], "window")
    np.testing.assert_array_equal(store[:16] & 0x3FFFFFFF, (start_of(record, 0) & 0x3FFFFFFF) + LANES[:16])
    np.testing.assert_array_equal(store[16:] & 0x3FFFFFFF, LANES[16:])
    upper = int.from_bytes(record.plan.parameters[4:8], "little")
    assert set(window[:16].tolist()) == {upper} and len({*window[16:].tolist()} | {upper}) == 2
    assert (load & 0x3FFFFFFF == 2).all() and len({*own.tolist()}) == 1
    assert own[0] not in window


def test_a_generic_instruction_whose_space_is_known() -> None:
    body = f"""
        .shared .align 16 .b8 before[64];
        .shared .align 16 .b8 tile[128];
        mov.u32 %r5, before; st.shared.u32 [%r5], 0;
        {GLOBAL_THREAD} mov.u64 %rd3, tile; cvta.shared.u64 %rd3, %rd3; mul.wide.u32 %rd2, %r18, 4;
        add.s64 %rd4, %rd3, %rd2; st.f32 [%rd4], 0f3F800000; ret;"""
    record = run(body)
    code = code_of(record.program, generic="shared")
    tracer = ExpandedTracer(code, 80)
    words = tracer.whole(record, [(0, 0, 0)], WORDS)
    warp = [*records(words[0][0], tracer.of_block)]
    np.testing.assert_array_equal(of_space(tracer, warp, "shared")[1][0], 16 + LANES)


def test_local_memory_and_a_spilled_register() -> None:
    body = """
        .local .align 16 .b8 other[32];
        .local .align 4 .b8 own[64];
        mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 3; mul.wide.u32 %rd0, %r1, 4; mov.u64 %rd1, own; add.s64 %rd2, %rd1, %rd0;
        st.local.u32 [other], %r0; st.local.u32 [%rd2+8], %r0; ret;"""
    record = run(body)
    tracer, ctas = traced(record, spilled=7)
    # Variables are laid out in the order of their first use.
    words = [row for row, _ in of_space(tracer, ctas[0][0], "local")]
    np.testing.assert_array_equal(words, [0 * LANES + 7, 0 * LANES + 16, LANES % 4 + 2])


TABLES = """
.global .align 4 .u32 counts[4] = {3, 1, 2, 4};
.const .align 4 .u32 steps[4] = {1, 2, 3, 4};
"""
#: Each CTA repeats a load as often as a table of the module says, at distances from another one.
WALK = f"""{GLOBAL_THREAD} ld.param.u64 %rd0, [a];
    mul.wide.u32 %rd2, %r16, 4; mov.u64 %rd3, counts; add.s64 %rd3, %rd3, %rd2; ld.global.u32 %r1, [%rd3];
    mov.u64 %rd4, steps+4; add.s64 %rd4, %rd4, %rd2; ld.const.u32 %r2, [%rd4+-4]; mul.wide.u32 %rd5, %r2, 128;
    mul.wide.u32 %rd6, %r18, 4; add.s64 %rd7, %rd0, %rd6; mov.f32 %f1, 0f00000000;
    AGAIN: ld.global.f32 %f0, [%rd7]; add.f32 %f1, %f1, %f0; add.s64 %rd7, %rd7, %rd5; sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p0, %r1, 0; @%p0 bra AGAIN;
    st.global.f32 [%rd0+4092], %f1; ret;"""


def test_module_variables_that_decide() -> None:
    record = run(WALK, [OUT], A, before=TABLES, grid=3, kept=True)
    check_counts(record)
    tracer, ctas = traced(record)
    assert tracer.reads_memory
    x = start_of(record, 0)
    counts = int(record.plan.symbols[0]) >> 2 & 0xFFFFFFFF
    for cta, (times, step) in enumerate(zip((3, 1, 2), (1, 2, 3))):
        found = [row for row, _ in of_space(tracer, ctas[cta][0], "global")]
        loads = [x + 32 * step * each + LANES for each in range(times)]
        np.testing.assert_array_equal(found, [counts + cta + 0 * LANES, *loads, x + 1023 + 0 * LANES])


def test_module_variables_that_decide_need_the_contents_of_memory() -> None:
    record = run(WALK, [OUT], A, before=TABLES, grid=3)
    with pytest.raises(NotRun, match="memory contents were not kept"):
        traced(record)


def test_module_variables_have_addresses_of_their_own() -> None:
    body = f"""{GLOBAL_THREAD} ld.global.u32 %r0, [counts+8]; st.global.u32 [others], %r0; ret;"""
    record = run(body, before=f"{TABLES}.global .align 4 .u32 others[4];")
    tracer, ctas = traced(record)
    expected = [int(record.plan.symbols[0]) + 8, int(record.plan.symbols[1])]
    found = [row for row, _ in of_space(tracer, ctas[0][0], "global")]
    np.testing.assert_array_equal(found, [[address >> 2 & 0xFFFFFFFF] * 32 for address in expected])


def test_values_in_shared_memory_that_decide() -> None:
    """Each warp reads where another one stored how far it goes."""
    body = f"""
        .shared .align 4 .b8 limits[128];
        {GLOBAL_THREAD} ld.param.u64 %rd0, [a]; mov.u32 %r0, limits; mad.lo.u32 %r1, %r18, 4, %r0;
        setp.lt.u32 %p0, %r18, 32; shr.u32 %r2, %r18, 3; add.u32 %r2, %r2, 1;
        @%p0 st.shared.u32 [%r1], %r2;
        bar.sync 0;
        and.b32 %r3, %r18, 31; mad.lo.u32 %r3, %r3, 4, %r0; ld.shared.u32 %r4, [%r3];
        AGAIN: st.global.u32 [%rd0], %r4; sub.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra AGAIN;
        ret;"""
    record = run(body, [OUT], A, block=64)
    check_counts(record)
    tracer, ctas = traced(record)
    assert tracer.reads_shared and not tracer.reads_memory
    masks = [[mask for block, mask, _ in warp if block == 2] for warp in ctas[0]]
    assert masks == [[0xFFFFFFFF, 0xFFFFFF00, 0xFFFF0000, 0xFF000000]] * 2


def test_guarded_barriers_and_exchanges() -> None:
    body = f"""{GLOBAL_THREAD} ld.param.u64 %rd0, [a];
        setp.lt.u32 %p0, %r18, 32; setp.lt.u32 %p1, %r18, 40; selp.b32 %r2, -1, 255, %p0;
        @%p0 bar.sync 1, 32;
        @%p1 shfl.sync.idx.b32 %r0, %r18, 3, 31, %r2;
        @!%p1 bra OTHERS;
        vote.sync.ballot.b32 %r1, %p0, %r2;
        OTHERS: bar.sync 0;
        st.global.u32 [%rd0], %r18; ret;"""
    check_counts(run(body, [OUT], A, block=64))


def test_brx_idx() -> None:
    body = f"""{GLOBAL_THREAD} ld.param.u64 %rd0, [a]; rem.u32 %r0, %r18, 3;
        where: .branchtargets FIRST, SECOND, THIRD;
        brx.idx %r0, where;
        FIRST: st.global.u32 [%rd0], %r0; bra.uni MEET;
        SECOND: st.global.u32 [%rd0+4], %r0; bra.uni MEET;
        THIRD: st.global.u32 [%rd0+8], %r0;
        MEET: st.global.u32 [%rd0+12], %r0; ret;"""
    record = run(body, [OUT], A)
    check_counts(record)
    tracer, ctas = traced(record)
    x, found = start_of(record, 0), of_space(tracer, ctas[0][0], "global")
    for site, (words, lanes) in zip(_order(tracer, ctas[0][0]), found):
        np.testing.assert_array_equal(lanes, (site == LANES % 3) | (site == 3))
        assert (words[lanes] == x + site).all()


def test_the_position_of_the_cta_in_the_grid() -> None:
    body = """ld.param.u64 %rd0, [a];
        mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;
        mad.lo.u32 %r5, %r2, %r4, %r1; mad.lo.u32 %r5, %r5, %r3, %r0; mul.wide.u32 %rd1, %r5, 4; add.s64 %rd2, %rd0, %rd1;
        st.global.u32 [%rd2], %r5; ret;"""
    record = run(body, [OUT], A, grid=(3, 2, 4))
    tracer, ctas = traced(record)
    words = [of_space(tracer, warps[0], "global")[0][0][0] for warps in ctas]
    np.testing.assert_array_equal(words, start_of(record, 0) + np.arange(24))


def test_names_of_the_kernel_like_those_of_the_trace() -> None:
    body = """.reg .b32 %Tnow, %Tblock, %Tx, own, block0; .reg .b64 %Taddress; .reg .pred %Troom;
        ld.param.u64 %Taddress, [trace]; mov.u32 %Tnow, %tid.x; mov.u32 %Tx, %Tnow; setp.lt.u32 %Troom, %Tx, 9;
        mul.wide.u32 %rd0, %Tx, 4; add.s64 %Taddress, %Taddress, %rd0; mov.u32 own, %Tx; mov.u32 block0, own;
        @%Troom st.global.u32 [%Taddress], block0; ret;"""
    record = run(body, [OUT], ".param .u64 trace")
    check_counts(record)
    tracer, ctas = traced(record)
    expected = np.where(LANES < 9, start_of(record, 0) + LANES, OFF)
    np.testing.assert_array_equal(of_space(tracer, ctas[0][0], "global")[0][0], expected)


def test_printf_is_left_out() -> None:
    before = """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
        .global .align 1 .b8 format[4] = {104, 105, 10, 0};"""
    body = f"""{GLOBAL_THREAD} ld.param.u64 %rd0, [a]; mov.u64 %rd1, format; cvta.global.u64 %rd1, %rd1;
        setp.ne.u32 %p0, %r18, 3; @%p0 bra SILENT;
        {{ .param .b64 p0; st.param.b64 [p0], %rd1; .param .b64 p1; st.param.b64 [p1], 0; .param .b32 r0;
        call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r0, [r0]; }}
        SILENT: st.global.u32 [%rd0], %r18; ret;"""
    check_counts(run(body, [OUT], A, before=before))


def test_warps_end_when_enough_is_recorded() -> None:
    """The first accesses are known, barriers do not keep warps that go on from ending."""
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES} mov.u32 %r0, 0;
        ld.global.f32 %f0, [%rd3];
        AGAIN: bar.sync 0; ld.global.f32 %f0, [%rd4]; add.s64 %rd4, %rd4, 256; add.u32 %r0, %r0, 1;
        setp.lt.u32 %p0, %r0, 1000; @%p0 bra AGAIN; ret;"""
    record = run(body, [OUT, np.zeros(1 << 17, np.float32)], AB, block=64)
    tracer = ExpandedTracer(code_of(record.program), 80)
    last = tracer.beginnings(record, [(0, 0, 0)], 200)
    assert (last[0, :, 0] == start_of(record, 0) + np.array([31, 63])).all()
    ended = (last[0, :, 1].astype(np.int64) - start_of(record, 8) - np.array([31, 63])) // 64
    assert (ended >= 0).all() and (ended < 20).all()


def test_needed_loads_may_read_what_the_kernel_stores() -> None:
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        add.u32 %r0, %r18, 1; shr.u32 %r0, %r0, 3; st.global.u32 [%rd3+4], %r0; bar.sync 0;
        ld.global.u32 %r1, [%rd3]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r1; ret;"""
    array = np.zeros(64, np.uint32)
    record = run(body, [array, OUT], AB, kept=True)
    tracer, ctas = traced(record)
    store = of_space(tracer, ctas[0][0], "global")[2][0]
    np.testing.assert_array_equal(store, start_of(record, 8) + LANES // 8)


def test_stores_to_other_arrays_are_left_out_if_the_pointers_of_the_launch_are_known() -> None:
    """The atomic decides only if the store of its result may change what is loaded."""
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        atom.global.add.u32 %r0, [%rd1+2048], 1; st.global.u32 [%rd4], %r0;
        ld.global.u32 %r1, [%rd3]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6+1024], %r1; ret;"""
    record = run(body, [np.arange(1024, dtype=np.uint32)[::-1] & 31, OUT], AB, kept=True)
    code = code_of(record.program)
    assert ExpandedTracer(code, 80).atomics
    tracer = ExpandedTracer(code, 80, aliases_of(record))
    assert not tracer.atomics
    words = tracer.whole(record, [(0, 0, 0)], WORDS)
    store = of_space(tracer, [*records(words[0][0], tracer.of_block)], "global")[3][0]
    np.testing.assert_array_equal(store, start_of(record, 0) + 256 + 31 - LANES)
    first = record.plan.parameters[:8]
    shared = replace(record, plan=replace(record.plan, parameters=first + first))
    with pytest.raises(ValueError, match="other pointers"):
        tracer.whole(shared, [(0, 0, 0)], WORDS)


def test_all_ctas_take_part_in_atomics_whose_results_decide() -> None:
    """CTA 2 alone is recorded: behind 2 others of 32 threads, or before 3 of 6."""
    body = f"""{GLOBAL_THREAD}{POINTERS}
        atom.global.add.u32 %r0, [%rd0], 1; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;
        st.global.u32 [%rd3], %r0; ret;"""
    record = run(body, [np.zeros(4, np.uint32), OUT], AB, grid=6, kept=True)
    tracer = ExpandedTracer(code_of(record.program), 80)
    assert tracer.atomics and tracer.takes_all(record.plan)
    words = tracer.whole(record, [(2, 0, 0)], WORDS)
    store = of_space(tracer, [*records(words[0][0], tracer.of_block)], "global")[1][0]
    np.testing.assert_array_equal(np.sort(store), start_of(record, 8) + 64 + LANES)
    there, back = tracer.in_turns(record, [(0, 0, 0), (2, 0, 0), (2, 0, 0)])
    np.testing.assert_array_equal(there, back)
    used = body.replace("add.s64 %rd3, %rd1, %rd2", "add.s64 %rd3, %rd1, 4")
    check_counts(run(used, [OUT, OUT], AB))


def test_streams_for_the_simulation() -> None:
    body = f"""{GLOBAL_THREAD}{POINTERS}{BYTES}
        ld.global.f32 %f0, [%rd3]; st.global.f32 [%rd4], %f0; ret;"""
    record = run(body, [OUT, OUT], AB, grid=8, block=128)
    classes = classes_of(ExpandedTracer(code_of(record.program), 80), record)
    assert [group.space for group in classes.groups] == ["global", "global"]
    assert len(classes.typical.lines) == 8
