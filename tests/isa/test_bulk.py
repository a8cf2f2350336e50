"""Bulk copies: what is moved, combined and filled, what mbarriers are told, what it costs, and what is refused."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.support import BACKENDS

Array = NDArray[Any]
START = """
    .shared .align 128 .b8 tile[4096];
    .shared .align 8 .b64 bar;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r2, tile;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
"""
WAIT = """
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
"""
#: each thread copies 16 bytes of the tile to the result
OUT = """
    mad.lo.u32 %r4, %r1, 16, %r2;
    mul.wide.u32 %rd3, %r1, 16;
    add.u64 %rd3, %rd2, %rd3;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
    st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};
    ret;
"""
PARAMETERS = ".param .u64 in, .param .u64 out"


def module(body: str, target: str) -> str:
    return f"""
.version 9.2
.target {target}
.address_size 64
.visible .entry k({PARAMETERS})
{{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    {body}
}}
"""


def run(
    backend: str,
    body: str,
    given: Array,
    size: int,
    out: Array | None = None,
    block: int = 64,
    grid: int = 1,
    target: str = "sm_90",
    demand: str = "values",
    **options: Any,
) -> tuple[Array, ge.Profile]:
    """Launch on these bytes; the result's bytes, if the demand gives them."""
    observed = {"memory", "footprint"} if demand != "control" else set()
    device = ge.Device(observed, backend=backend, memory_bytes=1 << 24)
    source = device.array(given, name="in")
    result = device.array(np.zeros(size, np.uint8) if out is None else out, name="out")
    kernel = ge.parse(module(body, target), path="k.ptx")["k"]
    profile = device.launch(kernel, grid, block, [source, result], demand=demand, **options)
    return result.numpy() if demand == "values" else given, profile


def data(size: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


def test_in_and_out(backend: str) -> None:
    """Global to shared with an mbarrier, shared to global in a group; counted in sectors of the range and 16-byte pieces."""
    body = (
        START
        + """
        @!%p0 bra READY;
        mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 1008;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1+16], 1008, [bar];
      READY:
        """
        + WAIT
        + """
        bar.sync 0;
        @!%p0 bra DONE;
        cp.async.bulk.global.shared::cta.bulk_group [%rd2+32], [%r2+16], 512;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        cp.async.bulk.prefetch.L2.global [%rd1], 256;
      DONE:
        ret;
        """
    )
    given = data(1024)
    found, profile = run(backend, body, given, 1024)
    assert (found[32:544] == given[32:544]).all()
    assert not found[:32].any()
    assert not found[544:].any()
    memory = profile.memory
    assert memory.global_load_sectors == (16 + 1008 - 1) // 32 - 16 // 32 + 1
    assert memory.global_load_bytes == 1008
    assert memory.global_load_requests == 1
    assert memory.global_store_sectors == 512 // 32
    assert memory.global_store_bytes == 512
    assert memory.shared_store_wavefronts == 1008 // 128 + 1
    assert memory.shared_load_wavefronts == 512 // 128
    assert memory.shared_conflicts == 0
    footprint = {item.object: item for item in profile.footprint or ()}
    assert footprint["in"].bytes_read == 1008
    assert footprint["out"].bytes_written == 512
    assert profile.opcodes["cp.async.bulk.commit_group"] == 1


def test_every_lane_its_own(backend: str) -> None:
    """Each of 20 lanes of a warp copies 16 · (lane + 1) bytes, one after the other; guarded, and each tells the same object."""
    body = (
        START.replace("[bar], 1;", "[bar], 20;")
        + """
        setp.lt.u32 %p2, %r1, 20;
        add.u32 %r3, %r1, 1;
        shl.b32 %r3, %r3, 4;
        mul.lo.u32 %r5, %r1, %r3;
        shr.u32 %r5, %r5, 1;
        add.u32 %r6, %r2, %r5;
        cvt.u64.u32 %rd4, %r5;
        add.u64 %rd4, %rd4, %rd1;
        @%p2 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], %r3;
        @%p2 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%rd4], %r3, [bar];
        """.replace("shared::cta.global", "shared::cluster.global")
        + WAIT
        + OUT
    )
    # lane l's copy begins at l (l + 1) / 2 pieces, behind the lanes before it
    given = data(16 * 20 * 21 // 2)
    found, profile = run(backend, body, given, 2048, block=128)
    assert (found[:2048] == given[:2048]).all()
    assert profile.memory.global_load_bytes == given.size


def test_between_blocks(backend: str) -> None:
    """Shared memory to the other block of the cluster, which waits for it; a sum there, and an exchange of single values."""
    body = (
        START
        + """
        mov.u32 %r9, %cluster_ctarank;
        xor.b32 %r10, %r9, 1;
        mad.lo.u32 %r4, %r1, 4, %r2;
        mad.lo.u32 %r5, %r9, 1000, %r1;
        st.shared.u32 [%r4], %r5;
        mov.u32 %r6, 7;
        st.shared.u32 [%r4+2048], %r6;
        @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 1024;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mapa.shared::cluster.u32 %r11, %r2, %r10;
        mov.u32 %r12, bar;
        mapa.shared::cluster.u32 %r12, %r12, %r10;
        @!%p0 bra SINGLE;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11+1024], [%r2], 256, [%r12];
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32
            [%r11+2048], [%r2], 256, [%r12];
      SINGLE:
        mad.lo.u32 %r13, %r1, 4, %r11;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r13+512], %r5, [%r12];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r13+2048], 5, [%r12];
        """
        + WAIT
        + """
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mad.lo.u32 %r14, %r9, 64, %r1;
        mul.wide.u32 %rd3, %r14, 16;
        add.u64 %rd3, %rd2, %rd3;
        ld.shared.u32 %r5, [%r4+1024];
        ld.shared.u32 %r6, [%r4+2048];
        ld.shared.u32 %r7, [%r4+512];
        st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r9};
        ret;
        """
    )
    found, _ = run(backend, body, data(16), 2048, grid=2, cluster=2)
    rows = found.view(np.uint32).reshape(2, 64, 4)
    for rank in range(2):
        theirs = 1000 * (1 - rank) + np.arange(64)
        expected = np.stack([theirs, theirs + 7 + 5, theirs, np.full(64, rank)], axis=1)
        assert (rows[rank] == expected).all()


def test_multicast(backend: str) -> None:
    """Block 1 of four sends one piece of memory to blocks 0, 1 and 3, each of which waits at its own object."""
    body = (
        START
        + """
        mov.u32 %r9, %cluster_ctarank;
        @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 256;
        bar.sync 0;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        setp.eq.and.u32 %p2, %r9, 1, %p0;
        mov.u16 %h1, 11;
        @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [%r2+64], [%rd1], 256, [bar], %h1;
        setp.eq.u32 %p3, %r9, 2;
        @%p3 bra AFTER;
        """
        + WAIT
        + """
      AFTER:
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mad.lo.u32 %r4, %r1, 4, %r2;
        ld.shared.u32 %r5, [%r4+64];
        mad.lo.u32 %r14, %r9, 64, %r1;
        mul.wide.u32 %rd3, %r14, 4;
        add.u64 %rd3, %rd2, %rd3;
        st.global.u32 [%rd3], %r5;
        ret;
        """
    )
    given = data(256)
    found, profile = run(backend, body, given, 1024, grid=4, cluster=4)
    for rank, part in enumerate(found.reshape(4, 256)):
        assert (part == (given if rank != 2 else 0)).all()
    assert profile.memory.global_load_sectors == 8
    assert profile.memory.global_load_bytes == 256


@pytest.mark.parametrize("mask", [0, 0xFFFF, 0x8001, 0x5A3C])
def test_byte_mask(mask: int, backend: str) -> None:
    body = (
        START
        + f"""
        mad.lo.u32 %r4, %r1, 16, %r2;
        mul.wide.u32 %rd3, %r1, 16;
        add.u64 %rd3, %rd1, %rd3;
        ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd3];
        st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}};
        fence.proxy.async.shared::cta;
        bar.sync 0;
        mov.u16 %h1, {mask};
        @%p0 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [%r2], 512, %h1;
        ret;
    """
    )
    given, before = data(1024), data(1024, 2)
    found, _ = run(backend, body, given, 1024, before, target="sm_100")
    kept = np.array([mask >> place & 1 for place in range(16)], bool)
    expected = before.copy()
    expected[:512] = np.where(np.tile(kept, 32), given[:512], before[:512])
    assert (found == expected).all()


def reductions() -> dict[str, tuple[Any, Any]]:
    """Operation and type → (dtype, plain arithmetic of old and new)."""
    found: dict[str, tuple[Any, Any]] = {}
    for kind in ("u32", "s32", "u64", "s64"):
        dtype = np.dtype(f"{'u' if kind[0] == 'u' else 'i'}{int(kind[1:]) // 8}")
        if kind != "s64":
            found[f"add.{kind}"] = dtype, lambda a, b: a + b
        found[f"min.{kind}"] = dtype, np.minimum
        found[f"max.{kind}"] = dtype, np.maximum
    found["inc.u32"] = np.uint32, lambda a, b: np.where(a >= b, 0, a + 1)
    found["dec.u32"] = np.uint32, lambda a, b: np.where((a == 0) | (a > b), b, a - 1)
    for kind, dtype in (("b32", np.uint32), ("b64", np.uint64)):
        for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
            found[f"{name}.{kind}"] = dtype, function
    found["add.f32"] = np.float32, lambda a, b: a + b
    found["add.f64"] = np.float64, lambda a, b: a + b
    for kind, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        found[f"add.noftz.{kind}"] = (
            dtype,
            lambda a, b: (a.astype(np.float64) + b.astype(np.float64)).astype(a.dtype),
        )
        found[f"min.{kind}"] = dtype, lambda a, b: np.where((a < b) | ((a == b) & np.signbit(a)), a, b)
        found[f"max.{kind}"] = dtype, lambda a, b: np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)
    return found


REDUCTIONS = reductions()


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_reductions(operation: str, backend: str) -> None:
    dtype, function = REDUCTIONS[operation]
    rng = np.random.default_rng(3)
    count = 1024 // np.dtype(dtype).itemsize
    if np.dtype(dtype).kind in "ui":
        old, new = (rng.integers(0, 256, 1024).astype(np.uint8).view(dtype) for _ in range(2))
        small = rng.integers(0, 4, count).astype(dtype)
        old, new = old.copy(), new.copy()
        old[::3], new[::3] = small[::3], small[::-1][::3]
    else:
        old, new = (rng.standard_normal(count).astype(dtype) for _ in range(2))
        tiny = np.array([0.0, -0.0, 1e-41, -1e-41, 6e-8, 1e-39]).astype(dtype)
        old[:6], new[:6] = tiny, np.array([0.0, 0.0, 1e-41, 1e-39, 6e-8, 1e-39]).astype(dtype)
    body = (
        START
        + f"""
        mad.lo.u32 %r4, %r1, 16, %r2;
        mul.wide.u32 %rd3, %r1, 16;
        add.u64 %rd3, %rd1, %rd3;
        ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd3];
        st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}};
        fence.proxy.async.shared::cta;
        bar.sync 0;
        and.b32 %r9, %r1, 31;
        setp.lt.u32 %p2, %r9, 8;
        and.b32 %r10, %r1, 32;
        add.u32 %r9, %r9, %r10;
        shr.u32 %r11, %r10, 2;
        and.b32 %r9, %r1, 7;
        add.u32 %r9, %r9, %r11;
        shl.b32 %r9, %r9, 6;
        cvt.u64.u32 %rd4, %r9;
        add.u64 %rd4, %rd4, %rd2;
        add.u32 %r9, %r9, %r2;
        @%p2 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%rd4], [%r9], 64;
        ret;
    """
    )
    with np.errstate(all="ignore"):
        expected = np.asarray(function(old, new)).astype(dtype)
    found, profile = run(backend, body, new.view(np.uint8), 1024, old.view(np.uint8))
    assert (found.view(f"u{np.dtype(dtype).itemsize}") == expected.view(f"u{np.dtype(dtype).itemsize}")).all()
    assert profile.memory.global_atomic_sectors == 1024 // 32


def test_fill(backend: str) -> None:
    body = (
        START
        + """
        mad.lo.u32 %r4, %r1, 16, %r2;
        mov.u32 %r5, 0x01010101;
        st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5};
        bar.sync 0;
        @%p0 st.bulk.weak.shared::cta [%r2+8], 40, 0;
        cvt.u64.u32 %rd4, %r2;
        cvta.shared.u64 %rd4, %rd4;
        mov.u64 %rd6, 16;
        @%p0 st.bulk [%rd4+64], %rd6, 0;
        bar.sync 0;
    """
        + OUT
    )
    found, _ = run(backend, body, data(16), 1024, target="sm_100")
    expected = np.ones(1024, np.uint8)
    expected[8:48] = expected[64:80] = 0
    assert (found == expected).all()


GLOBAL = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
ERRORS = [
    (f"{GLOBAL} [%r2], [%rd1], %r3, [bar];", "24 bytes", "multiple of 16"),
    (f"{GLOBAL} [%r2], [%rd1+8], 32, [bar];", "misaligned", "16-byte load from"),
    (f"{GLOBAL} [%r2+8], [%rd1], 32, [bar];", "misaligned", "16-byte store to shared"),
    (f"{GLOBAL} [%r2], [%rd1], 2048, [bar];", "out-of-bounds", "16-byte load from"),
    (f"{GLOBAL} [%r2+4080], [%rd1], 64, [bar];", "out-of-bounds", "16-byte store to shared"),
    (f"{GLOBAL} [%r2], [%rd1], 64, [bar+4];", "misaligned", "8-byte store to shared"),
    (f"{GLOBAL} [%r2], [%rd1], 64, [%r2+128];", "there is no mbarrier object", ""),
    ("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 4096;", "out-of-bounds", "16-byte store to"),
    ("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2+4096], 64;", "out-of-bounds", "16-byte load from shared"),
    (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r2], %r3;",
        "24 bytes",
        "multiple of 16",
    ),
    (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2+16384], [%r2], 16;",
        "out-of-bounds",
        "16-byte reduction on",
    ),
    (
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r2], 1, [%r2+64];",
        "there is no mbarrier object",
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message", "more"), ERRORS, ids=[item[0] for item in ERRORS])
def test_errors(wrong: str, message: str, more: str) -> None:
    texts = []
    for backend in BACKENDS:
        with pytest.raises((ge.MemoryFault, ge.TrapError)) as caught:
            run(backend, f"{START}mov.u32 %r3, 24;\n@!%p0 bra END;\n{wrong}\nEND: ret;", data(1024), 2048)
        texts.append(str(caught.value))
        assert message in texts[-1]
        assert more in texts[-1]
        assert wrong.split()[0] in texts[-1]
    assert texts[0] == texts[1]


IGNORING = GLOBAL.replace("cluster", "cta") + ".ignore_oob"
#: instructions with the size in %r3, and what they run out of first
HUGE = {
    f"{GLOBAL} [%r2], [%rd1], %r3, [bar];": "load from 0x",
    f"{IGNORING} [%r2], [%rd1], %r3, 4, 4, [bar];": "load from 0x",
    f"{GLOBAL} [%r2+3584], [%rd1], %r3, [bar];": "store to shared",
    "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], %r3;": "store to 0x",
    "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [%r2], %r3, %h1;": "store to 0x",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r2], %r3;": "reduction on",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r2], %r3, [bar];": "load from shared",
    "cvt.u64.u32 %rd3, %r3; st.bulk.shared::cta [%r2], %rd3, 0;": "store to shared",
}  # fmt: skip


@pytest.mark.parametrize("size", [1 << 20, 2**31 - 16, 2**32 - 16])
@pytest.mark.parametrize("wrong", HUGE)
def test_a_huge_size_ends_where_memory_ends(wrong: str, size: int) -> None:
    """However much is asked for, no more is looked at than there is."""
    body = f"{START}mov.u32 %r3, {size};\nmov.b16 %h1, 7;\n@!%p0 bra END;\n{wrong}\nEND: ret;"
    texts = []
    for backend in BACKENDS:
        tracemalloc.start()
        try:
            with pytest.raises(ge.MemoryFault) as caught:
                run(backend, body, data(1024), 2048, target="sm_100")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        texts.append(str(caught.value))
        assert HUGE[wrong] in texts[-1]
        assert most < 100 << 20
    assert texts[0] == texts[1]


def test_too_many_bytes(backend: str) -> None:
    """Bytes that were not announced leave the phase incomplete."""
    body = (
        START
        + f"@%p0 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 32;\n@%p0 {GLOBAL} [%r2], [%rd1], 64, [bar];"
    )
    with pytest.raises(ge.Deadlock, match=r"for 0 arrivals and -32 bytes"):
        run(backend, body + WAIT + "ret;", data(1024), 64)


def test_reading_what_nobody_wrote(backend: str) -> None:
    _, profile = run(
        backend,
        START + "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 64;\nret;",
        data(16),
        64,
    )
    assert any("cp.async.bulk" in note for note in profile.notes)


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_slices(demand: str, backend: str) -> None:
    """A slice that waits for a copy makes the copy; its counts are those of the whole."""
    body = (
        START
        + f"""
        @!%p0 bra READY;
        mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 1024;
        {GLOBAL} [%r2], [%rd1], 1024, [bar];
      READY:
        """
        + WAIT
        + """
        ld.shared.u32 %r9, [tile+32];
        mov.u32 %r10, 0;
      TRIPS:
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p3, %r10, %r9;
        @%p3 bra TRIPS;
        """
        + OUT
    )
    given = data(1024)
    given[32:36] = [5, 0, 0, 0]
    _, whole = run(backend, body, given, 1024)
    _, part = run(backend, body, given, 1024, demand=demand)
    assert part.opcodes == whole.opcodes
    assert part.branches == whole.branches
    if demand == "addresses":
        assert part.memory.global_load_sectors == whole.memory.global_load_sectors == math.ceil(1024 / 32)
