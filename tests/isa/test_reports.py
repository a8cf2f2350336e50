"""mbarrier objects that keep a report; copies that report, leave out bytes or go to all blocks of a cluster (PTX 9.1 to 9.4).

The expected values are the manual's words about phases, written with plain counters, and NumPy.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge

Array = NDArray[Any]
START = """
.version 9.4
.target sm_107f
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b8 %c<4>;
    .reg .b16 %h<9>;
    .reg .b32 %r<30>;
    .reg .b64 %rd<9>;
    .shared .align 128 .b8 tile[1024];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, tile;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p0, %r2, 0;
"""
COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"


def run(
    backend: str, body: str, given: Array, count: int, block: int = 1, dtype: str = "u4", **options: Any
) -> tuple[Array, ge.Profile]:
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    source, result = device.array(given, name="in"), device.zeros(count, np.dtype(dtype))
    kernel = ge.parse(START + body + "\nret;\n}\n", path="k.ptx")["k"]
    profile = device.launch(kernel, options.pop("grid", 1), block, [source, result], **options)
    return result.numpy(), profile


def shown(*values: str) -> str:
    """Stores registers or predicates one after the other."""
    lines = []
    for place, value in enumerate(values):
        if value.startswith("%p"):
            lines.append(f"selp.u32 %r29, 1, 0, {value};")
            value = "%r29"
        lines.append(f"st.global.u32 [%rd2+{4 * place}], {value};")
    return "\n".join(lines)


#: pattern → what is reported, and what is not (manual: "Report mechanisms for asynchronous copy operations")
PATTERNS = {
    "per_16bytes::80000000": (np.float32(-0.0), np.float32(0.0)),
    "per_16bytes::8000": (np.float16(-0.0), np.float16(6e-8)),
    "per_16bytes::80": (np.uint8(0x80), np.uint8(0x88)),
    "per_16bytes::8": (np.uint8(0x88), np.uint8(0x09)),
    "per_element::ff": (np.uint8(0xFF), np.uint8(0xFE)),
}
WAIT = """
WAIT{0}:
    mbarrier.try_wait.parity.phase_type::primary.shared.b64 %p1|%p2, %c1, [bar], {1};
    @!%p1 bra WAIT{0};
    mbarrier.test_wait.parity.phase_type::conditional.shared.b64 %p3, [bar], {2};
"""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_phases_with_and_without_reports(pattern: str, backend: str) -> None:
    """Five phases: the conditional phase ends with those in which nothing was reported."""
    bad, good = PATTERNS[pattern]
    reports = [False, True, True, False, True]
    parts = []
    for reported in reports:
        part = np.full(64 // good.itemsize, good)
        if reported:
            part[32 // good.itemsize : 48 // good.itemsize] = bad
        parts.append(part.view(np.uint8))
    body = "mbarrier.init.layout::v1.shared::cta.b64 [bar], 1;\n"
    conditional = 0
    expected = []
    for phase, reported in enumerate(reports):
        body += f"""
            mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 64;
            {COPY}.mbarrier::report::validity::{pattern} [%r1], [%rd1+{64 * phase}], 64, [bar];
            {WAIT.format(phase, phase & 1, conditional & 1)}
            cvt.u32.u8 %r5, %c1;
            {shown("%p2", "%p3", "%r5")}
            add.u64 %rd2, %rd2, 12;
        """
        expected += [int(reported), int(not reported), 0]
        conditional += not reported
    found, _ = run(backend, body, np.concatenate(parts), len(expected))
    assert found.tolist() == expected


def test_no_report(backend: str) -> None:
    """.disabled reports nothing; objects of .layout::v0 have no report, and both phases end together."""
    given = np.full(16, -0.0, np.float32)
    for layout, qualifier in (
        (".layout::v1", ".mbarrier::report::disabled"),
        (".layout::v1", ""),
        (".layout::v0", ""),
        ("", ""),
    ):
        body = f"""
            mbarrier.init{layout}.shared::cta.b64 [bar], 1;
            mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 64;
            {COPY}{qualifier} [%r1], [%rd1], 64, [bar];
            mbarrier.test_wait.phase_type::primary.shared.b64 %p1|%p2, [bar], %rd3;
            mbarrier.test_wait.parity.phase_type::conditional.shared.b64 %p3, [bar], 0;
            mbarrier.check_layout.layout::v1.shared::cta.b64 %p4, [bar];
            mbarrier.check_layout.layout::v0.shared::cta.b64 %p5, [bar];
            {shown("%p1", "%p2", "%p3", "%p4", "%p5")}
        """
        found, _ = run(backend, body, given, 5)
        first = int("v1" in layout)
        assert found.tolist() == [1, 0, 1, first, 1 - first]


def test_counts_of_nine_bits(backend: str) -> None:
    """511 arrivals, of which 10 are dropped for the next phase."""
    body = """
        mbarrier.init.layout::v1.shared::cta.b64 [bar], 511;
        mbarrier.arrive_drop.shared.b64 %rd3, [bar], 10;
        mbarrier.arrive.shared.b64 %rd3, [bar], 501;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd3;
        mbarrier.arrive.shared.b64 %rd3, [bar], 500;
        mbarrier.test_wait.shared.b64 %p2, [bar], %rd3;
        mbarrier.arrive.shared.b64 %rd4, [bar], 1;
        mbarrier.test_wait.shared.b64 %p3, [bar], %rd3;
    """
    found, _ = run(backend, body + shown("%p1", "%p2", "%p3"), np.zeros(4, np.uint8), 3)
    assert found.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.init.layout::v1.shared::cta.b64 [bar], 512;", "a count of 512"),
        (
            "mbarrier.init.shared.b64 [bar], 1;\nmbarrier.expect_tx.shared.b64 [bar], 16;\n"
            f"{COPY}.mbarrier::report::validity::per_element::ff [%r1], [%rd1], 16, [bar];",
            "does not store reports",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1;\nmov.u32 %r3, 16;\n"
            f"{COPY}.ignore_oob [%r1], [%rd1], 16, 0, %r3, [bar];",
            "16 bytes to ignore at one end",
        ),
        ("mbarrier.check_layout.layout::v0.shared.b64 %p1, [bar];", "there is no mbarrier object"),
    ],
)
def test_refused(body: str, message: str) -> None:
    texts = []
    for backend in ("reference", "llvm"):
        with pytest.raises(ge.TrapError, match=message) as caught:
            run(backend, body, np.full(16, 0xFF, np.uint8), 1)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("left", "right"), [(0, 0), (5, 0), (0, 15), (15, 15), (3, 9)])
@pytest.mark.parametrize("size", [16, 32, 80])
def test_bytes_left_out(left: int, right: int, size: int, backend: str) -> None:
    """Of what is left out nothing is read: it may lie behind the end of the array; there the target keeps its own."""
    given = np.arange(1, size - right + 1, dtype=np.uint8)
    body = f"""
        mbarrier.init.shared.b64 [bar], 1;
        mov.u32 %r3, 0;
    CLEAR:
        add.u32 %r4, %r1, %r3;
        st.shared.u8 [%r4], 255;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, {size};
        @%p1 bra CLEAR;
        mbarrier.expect_tx.shared.b64 [bar], {size};
        {COPY}.ignore_oob [%r1], [%rd1], {size}, {left}, {right}, [bar];
        mbarrier.arrive.shared.b64 %rd3, [bar];
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        mov.u32 %r3, 0;
    SHOW:
        add.u32 %r4, %r1, %r3;
        ld.shared.u8 %r5, [%r4];
        st.global.u8 [%rd2], %r5;
        add.u64 %rd2, %rd2, 1;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, {size};
        @%p1 bra SHOW;
    """
    found, _ = run(backend, body, given, size, dtype="u1")
    expected = np.full(size, 255, np.uint8)
    expected[left : size - right] = given[left : size - right]
    assert found.tolist() == expected.tolist()
    if right:
        with pytest.raises(ge.MemoryFault):
            run(
                backend, body.replace(f"{left}, {right}, [bar]", f"{left}, 0, [bar]"), given, size, dtype="u1"
            )


MULTICAST = """
    setp.ne.u32 %p0, %r2, 0;
    @!%p0 mbarrier.init.shared.b64 [bar], {count};
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, bar;
    cvt.u64.u32 %rd5, %r4;
    cvta.shared.u64 %rd5, %rd5;
    setp.ne.u32 %p1, %r3, 1;
    or.pred %p1, %p1, %p0;
    @%p1 bra READY;
    {body}
READY:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @%p0 bra DONE;
    mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0;
    selp.u32 %r6, 1, 0, %p3;
    ld.shared.u32 %r7, [tile];
    mul.wide.u32 %rd4, %r3, 8;
    add.u64 %rd4, %rd4, %rd2;
    st.global.v2.u32 [%rd4], {{%r6, %r7}};
DONE:
"""


@pytest.mark.parametrize(
    ("body", "count", "copied"),
    [
        (
            "mbarrier.arrive.release.cluster.shared::cluster.multicast::cluster::32b.b64 _, [%r4], 13;",
            1,
            False,
        ),
        ("mbarrier.arrive.multicast::cluster::32b.b64 _, [%rd5], 3, 13;", 3, False),
        ("mbarrier.arrive_drop.shared::cluster.multicast::cluster::32b.b64 _, [%r4], 2, 13;", 2, False),
        (
            "mbarrier.arrive.expect_tx.shared::cluster.multicast::cluster::32b.b64 _, [%r4], 32, 13;\n"
            "mbarrier.expect_tx.relaxed.cluster.shared::cluster.multicast::cluster::32b.b64 [%r4], 16, 13;\n"
            "mbarrier.complete_tx.relaxed.cluster.shared::cluster.multicast::cluster::32b.b64 [%r4], 48, 13;",
            1,
            False,
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cluster.multicast::cluster::32b.b64 _, [%r4], 32, 13;\nmov.u32 %r8, 13;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::32b "
            "[%r1], [%rd1], 32, [bar], %r8;",
            1,
            True,
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cluster.multicast::cluster::32b.b64 _, [%r4], 32, 13;\nmov.u16 %h1, 13;\n"
            "cp.async.bulk.relaxed.gpu.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::16b.b128 "
            "[%r1], [%rd1], 32, [bar], %h1;",
            1,
            True,
        ),
    ],
)
def test_all_blocks_whose_bit_is_set(body: str, count: int, copied: bool, backend: str) -> None:
    """Block 1 of a cluster of four does it for the blocks 0, 2 and 3."""
    given = np.full(8, 77, np.uint32)
    text = MULTICAST.format(body=body, count=count)
    if not copied:
        text = text.replace("ld.shared.u32 %r7, [tile];", "mov.u32 %r7, 0;")
    else:
        text = "@!%p0 st.shared.u32 [tile], 0;\n" + text
    found, _ = run(backend, text, given, 8, block=32, grid=4, cluster=4)
    chosen = [1, 0, 1, 1]
    assert found.reshape(4, 2).tolist() == [[bit, 77 * bit * copied] for bit in chosen]


@pytest.mark.parametrize("space", ["cp", "multimem.cp"])
def test_copies_to_global_memory(space: str, backend: str) -> None:
    """Strong and weak copies, with and without a mask of bytes."""
    given = np.arange(64, dtype=np.uint8) + 1
    fill = f"""
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 64;
        {COPY.replace(".bulk", ".bulk.weak")} [%r1], [%rd1], 64, [bar];
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd3;
        mov.u16 %h1, 0x00f1;
    """
    for opcode, masked in (
        (".weak{}", False),
        (".relaxed.sys{}.b128", False),
        ("{}", True),
        (".relaxed.gpu{}.b128", True),
    ):
        form = opcode.format(".global.shared::cta.bulk_group" + ".cp_mask" * masked)
        body = f"{fill}\n{space}.async.bulk{form} [%rd2], [%r1], 64{', %h1' * masked};"
        found, _ = run(backend, body, given, 64, dtype="u1")
        kept = np.tile(np.array([0x00F1 >> bit & 1 for bit in range(16)], bool), 4) | (not masked)
        assert found.tolist() == np.where(kept, given, 0).tolist()


SUMS = {
    "add.u32": np.uint32,
    "add.f32": np.float32,
    "add.noftz.f32": np.float32,
    "add.noftz.bf16": ml_dtypes.bfloat16,
    "add.f64": np.float64,
}


@pytest.mark.parametrize("operation", SUMS)
@pytest.mark.parametrize("name", ["cp.reduce", "multimem.cp.reduce"])
def test_sums_keep_subnormals(name: str, operation: str, backend: str) -> None:
    """Twice the same copy onto zeros."""
    dtype = np.dtype(SUMS[operation])
    given = np.arange(32 // dtype.itemsize).astype(dtype)
    if dtype.kind != "u":
        given[1:3] = np.array([2e-39, -3e-39]).astype(dtype)
    body = f"""
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.expect_tx.shared.b64 [bar], 32;
        {COPY} [%r1], [%rd1], 32, [bar];
        mbarrier.arrive.shared.b64 %rd3, [bar];
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        {name}.async.bulk.relaxed.gpu.global.shared::cta.bulk_group.{operation} [%rd2], [%r1], 32;
        {name}.async.bulk.global.shared::cta.bulk_group.{operation} [%rd2], [%r1], 32;
    """
    found, _ = run(backend, body, given.view(np.uint8), 32, dtype="u1")
    assert found.tobytes() == (given + given).astype(dtype).tobytes()


def test_single_accesses(backend: str) -> None:
    """Loads and stores of these versions: read-only proxy, device memory, asynchronous stores to multicast objects, sums."""
    given = np.array([5, 6, 7, 8, 1, 2, 3, 4], np.uint32)
    body = """
        ld.proxy::readonly.global.v2.u32 {%r3, %r4}, [%rd1];
        ld.mmio.acquire.sys.global.u32 %r5, [%rd1+8];
        st.mmio.release.sys.global.u32 [%rd2], %r3;
        multimem.st.async.release.gpu.global.u32 [%rd2+4], %r4;
        multimem.red.async.release.sys.global.add.u32 [%rd2+4], %r5;
        prefetch.global.L1::32B.valid_addr [%rd1];
        applypriority.async.bulk.global.bulk_group.L2::evict_normal [%rd1], 16;
        cp.async.bulk.prefetch.L2.global.L2::evict_last [%rd1], 16;
        mov.f32 %r6, 0f00200000;
        st.global.u32 [%rd2+8], %r6;
        red.global.add.noftz.f32 [%rd2+8], %r6;
        st.global.u32 [%rd2+12], %r6;
        red.global.add.f32 [%rd2+12], %r6;
        st.global.v2.u32 [%rd2+16], {%r6, %r6};
        atom.global.add.noftz.v2.f32 {%r7, %r8}, [%rd2+16], {%r6, %r6};
    """.replace("%r6", "%f6").replace("%r7, %r8", "%f7, %f8")
    body = ".reg .f32 %f<9>;\n" + body.replace("st.global.u32", "st.global.f32").replace(
        "v2.u32 [%rd2", "v2.f32 [%rd2"
    )
    found, _ = run(backend, body, given, 6)
    assert found.tolist() == [5, 13, 0x00400000, 0, 0x00400000, 0x00400000]


def test_wide_asynchronous_store(backend: str) -> None:
    """16 bytes at once, to the other block of a cluster."""
    given = np.arange(1, 5, dtype=np.uint32)
    body = """
        .reg .b128 %q<2>;
        @!%p0 mbarrier.init.shared.b64 [bar], 1;
        @!%p0 mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 16;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mov.u32 %r3, %cluster_ctarank;
        xor.b32 %r4, %r3, 1;
        mapa.shared::cluster.u32 %r5, %r1, %r4;
        mov.u32 %r6, bar;
        mapa.shared::cluster.u32 %r6, %r6, %r4;
        ld.global.b128 %q1, [%rd1];
        @!%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.b128 [%r5], %q1, [%r6];
      WAIT:
        mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
        @!%p1 bra WAIT;
        ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [tile];
        mul.wide.u32 %rd4, %r3, 16;
        add.u64 %rd4, %rd4, %rd2;
        @!%p0 st.global.v4.u32 [%rd4], {%r7, %r8, %r9, %r10};
        barrier.cluster.arrive;
        barrier.cluster.wait;
    """
    found, _ = run(backend, body, given, 8, block=32, grid=2, cluster=2)
    assert found.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
