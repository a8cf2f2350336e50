"""Atomics and ordered accesses at generic addresses in local memory: they work as on a GPU, and are noted (rule ``local-order``).

ptxas 13.0 (sm_80 to sm_120) generates ``LD``, the operation and ``ST`` behind each generic atomic, for addresses that
are neither global nor shared. The sum of two ``f32`` there is an ``FADD`` without ``.FTZ``. Of atomics of 128 bits
there is no such code.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.program import build_program
from tests.oracle.scalar import Buffer, run

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"
THREADS = 61
#: operation and type, with a compare value for cas
ATOMICS = [
    *((op, kind) for op in ("add", "min", "max") for kind in ("u32", "s32", "u64")),
    *((op, kind) for op in ("and", "or", "xor", "exch", "cas") for kind in ("b32", "b64")),
    *(("inc", "u32"), ("dec", "u32"), ("min", "s64"), ("max", "s64"), ("cas", "b16")),
    *(("add", "f32"), ("add", "f64"), ("add.noftz", "f16"), ("add.noftz", "f16x2"), ("add.noftz", "bf16x2")),
]
#: a thread's place: local for half of them, shared or global for the others, so that one warp goes everywhere
PLACES = """
    .local .align 16 .b8 own[32]; .shared .align 16 .b8 all[2048];
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<19>; .reg .b64 %rd<19>; .reg .b64 %at;
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd0, %r0, 32;
    ld.param.u64 %rd1, [slots]; add.u64 %rd1, %rd1, %rd0;
    mov.u64 %rd2, all; cvta.shared.u64 %rd2, %rd2; add.u64 %rd2, %rd2, %rd0;
    mov.u64 %rd3, own; cvta.local.u64 %rd3, %rd3;
    and.b32 %r1, %r0, 3; setp.lt.u32 %p1, %r1, 2; setp.eq.u32 %p2, %r1, 2;
    selp.b64 %at, %rd2, %rd1, %p2; selp.b64 %at, %rd3, %at, %p1;
    and.b32 %r2, %r0, 5; setp.ne.u32 %p3, %r2, 4;
    ld.param.u64 %rd4, [given]; mul.wide.u32 %rd5, %r0, 16; add.u64 %rd4, %rd4, %rd5;
    ld.global.b64 %rd6, [%rd4]; ld.global.b64 %rd7, [%rd4+8];
    ld.param.u64 %rd8, [out]; mul.wide.u32 %rd5, %r0, 16; add.u64 %rd8, %rd8, %rd5;
"""
PARAMETERS = ".param .u64 slots, .param .u64 given, .param .u64 out"


def kernel_text(body: str) -> str:
    return f"{HEAD}.visible .entry k({PARAMETERS}) {{{PLACES}{body}\nret; }}\n"


def atomics() -> str:
    """Each atomic on its place, the old value and what is there afterwards: a row of ``out`` for each."""
    lines = []
    for op, kind in ATOMICS:
        bits = {"x2": 32}.get(kind[-2:]) or int(kind[-2:])
        value, old = {16: ("%h1", "%h2"), 32: ("%r4", "%r5"), 64: ("%rd7", "%rd9")}[bits]
        lines.append("st.b64 [%at], %rd6; mov.b64 %rd9, 0; mov.b32 %r5, 0; mov.b16 %h2, 0;")
        lines.append(
            "cvt.u32.u64 %r4, %rd7; cvt.u16.u64 %h1, %rd7; cvt.u32.u64 %r6, %rd6; cvt.u16.u64 %h3, %rd6;"
        )
        compared = {16: "%h3, ", 32: "%r6, ", 64: "%rd6, "}[bits] if op == "cas" else ""
        lines.append(f"@%p3 atom.{op}.{kind} {old}, [%at], {compared}{value};")
        if op not in ("cas", "exch"):
            lines.append(f"red.{op}.{kind} [%at], {value};")
        widened = {16: "cvt.u64.u16 %rd9, %h2;", 32: "cvt.u64.u32 %rd9, %r5;", 64: ""}[bits]
        lines.append(f"{widened} ld.b64 %rd10, [%at]; st.global.v2.b64 [%rd8], {{%rd9, %rd10}};")
        lines.append(f"add.u64 %rd8, %rd8, {16 * THREADS};")
    return kernel_text("\n".join(lines))


def operands(subnormal: bool) -> np.ndarray:
    drawn = np.random.default_rng(77).integers(0, 1 << 63, (THREADS, 2), dtype=np.uint64)
    # both halves are subnormal numbers of 32 bits, and of 16 bits in their lower halves
    return (
        drawn & np.uint64(0x807F83FF_807F83FF)
        if subnormal
        else drawn | (drawn & np.uint64(1)) << np.uint64(63)
    )


def ran(text: str, data: np.ndarray, rows: int, backend: str, *, outlined: bool = False, **options: object):
    kernel = ge.parse(text, path="k.ptx")["k"]
    kernel.memo["program"] = build_program(kernel, outlined=outlined)
    device = ge.Device(backend=backend, memory_bytes=1 << 24, **options)
    slots, out = device.zeros(8 * THREADS, np.uint32), device.zeros((rows, THREADS, 2), np.uint64)
    profile = device.launch(kernel, 1, THREADS, [slots, device.array(data), out])
    assert not profile.remarks
    return out.numpy(), profile


@pytest.mark.parametrize("subnormal", [False, True])
def test_values_are_those_of_the_oracle(backend: str, subnormal: bool) -> None:
    text, data = atomics(), operands(subnormal)
    out = np.zeros((len(ATOMICS), THREADS, 2), np.uint64)
    result = run(text, "k", 1, THREADS, [Buffer(8 * 4 * THREADS), Buffer(data), Buffer(out)])
    expected = result.memory[2].view(np.uint64).reshape(out.shape)
    # a thread without the atomic has only the reduction, and no old value
    sums, lanes = expected[ATOMICS.index(("add", "u64"))], np.arange(THREADS)
    twice = (lanes & 5) != 4
    np.testing.assert_array_equal(sums[:, 0], np.where(twice, data[:, 0], 0))
    np.testing.assert_array_equal(sums[:, 1], data[:, 0] + data[:, 1] * (1 + twice).astype(np.uint64))
    for outlined in (False, True) if backend == "llvm" else (False,):
        found, profile = ran(text, data, len(ATOMICS), backend, outlined=outlined)
        for row, atomic in enumerate(ATOMICS):
            np.testing.assert_array_equal(found[row], expected[row], err_msg=str(atomic))
        # one note for each atomic and reduction, none for plain accesses
        assert len(profile.notes) == len(ATOMICS) + sum(op not in ("cas", "exch") for op, _ in ATOMICS)
        assert all(re.search(r"'k': (atom|red)\..*\[local-order\]$", note) for note in profile.notes)


def test_sums_of_subnormal_numbers_by_hand(backend: str) -> None:
    """As ``FADD`` in local and shared memory, as ``ATOM.E.ADD.F32.FTZ.RN`` in global memory."""
    tiny = np.float32(1e-40)
    data = np.zeros((THREADS, 2), np.uint64)
    data[:] = tiny.view(np.uint32)
    text = kernel_text(
        "cvt.u32.u64 %r4, %rd6; st.b32 [%at], %r4; atom.add.f32 %r5, [%at], %r4; ld.b32 %r6, [%at];"
        "cvt.u64.u32 %rd9, %r6; st.global.b64 [%rd8], %rd9;"
    )
    found, _ = ran(text, data, 1, backend)
    sums = found[0, :, 0].astype(np.uint32).view(np.float32)
    in_global = np.arange(THREADS) % 4 == 3
    np.testing.assert_array_equal(sums, np.where(in_global, np.float32(0), tiny + tiny))


ORDERED = """
    st.relaxed.gpu.u64 [%at], %rd6; st.release.sys.v2.u32 [%at+8], {%r0, %r1};
    fence.acq_rel.gpu;
    ld.acquire.gpu.u64 %rd9, [%at]; ld.relaxed.cta.v2.u32 {%r7, %r8}, [%at+8]; ld.acquire.sys.u8 %r9, [%at+8];
    add.u32 %r7, %r7, %r8; add.u32 %r7, %r7, %r9; cvt.u64.u32 %rd10, %r7;
    st.global.v2.b64 [%rd8], {%rd9, %rd10};
"""


def test_ordered_loads_and_stores(backend: str) -> None:
    data, lanes = operands(False), np.arange(THREADS)
    expected = np.stack([data[:, 0], (2 * lanes + (lanes & 3)).astype(np.uint64)], axis=1)
    for outlined in (False, True) if backend == "llvm" else (False,):
        found, profile = ran(kernel_text(ORDERED), data, 1, backend, outlined=outlined)
        np.testing.assert_array_equal(found[0], expected)
        opcodes = [
            re.search(r"'k': (\S+) at local address (\S+) \(thread \(0, 0, 0\)", n).groups()
            for n in profile.notes
        ]
        assert opcodes == [
            ("st.relaxed.gpu.u64", "0x0"), ("st.release.sys.v2.u32", "0x8"), ("ld.acquire.gpu.u64", "0x0"),
            ("ld.relaxed.cta.v2.u32", "0x8"), ("ld.acquire.sys.u8", "0x8"),
        ]  # fmt: skip


def test_counters(backend: str) -> None:
    """An atomic of local memory is a load and a store of it, and neither a serialisation nor an address that threads contend for."""
    text = kernel_text(
        "st.local.u32 [own], %r0; atom.add.u32 %r4, [%rd3], 5; red.max.u64 [%rd3+8], %rd6; ld.local.u32 %r5, [own];"
    )
    found = []
    for observe in ({"memory"}, {"memory", "threads", "values"}):
        _, profile = ran(
            text.replace("red.max", "st.local.u64 [own+8], %rd6; red.max"),
            operands(False),
            1,
            backend,
            observe=observe,
        )
        found.append(profile.memory)
    assert found[0] == found[1]
    memory, warps = found[0], 2
    # a warp's word lies in one row of 128 bytes (4 sectors), its double word in two
    assert (memory.local_load_requests, memory.local_store_requests) == (3 * warps, 4 * warps)
    lanes = 4 * THREADS
    assert memory.local_bytes == lanes + 2 * lanes + lanes + 2 * lanes + 2 * 2 * lanes
    for name in ("requests", "sectors", "serializations", "hottest", "bytes", "lines"):
        assert getattr(memory, f"global_atomic_{name}") == 0
    for name in ("requests", "wavefronts", "serializations", "bytes"):
        assert getattr(memory, f"shared_atomic_{name}") == 0


def test_no_races_and_uninitialised_reads(backend: str) -> None:
    store = "st.local.u64 [own], %rd6;"
    body = "atom.add.acq_rel.gpu.u64 %rd9, [%rd3], 1; ld.acquire.gpu.u64 %rd10, [%rd3];"
    checked = {"races": "error"} if backend == "llvm" else {}
    _, profile = ran(kernel_text(store + body), operands(False), 1, backend, **checked)
    assert all(note.endswith("[local-order]") for note in profile.notes)
    _, profile = ran(kernel_text(body), operands(False), 1, backend, **checked)
    assert [note.split(": ")[1] for note in profile.notes if "local-order" not in note] == [
        "atom.add.acq_rel.gpu.u64 reads uninitialised memory"
    ]


def test_notes_errors_and_nothing(backend: str) -> None:
    body = "\n.loc 1 12 3\nst.local.u32 [own], %r0; atom.add.u32 %r4, [%rd3], 5;"
    text = kernel_text(body) + '\n.file 1 "flags.cu"\n'
    _, profile = ran(text, operands(False), 1, backend)
    line = text[: text.index("atom.add")].count("\n") + 1
    (note,) = profile.notes
    assert note.startswith(f"k.ptx:{line}:") and note.endswith("[local-order]")
    assert "(thread (0, 0, 0) of block (0, 0, 0), source line flags.cu:12)" in note
    _, profile = ran(text, operands(False), 1, backend, strict="off")
    assert profile.notes == ()
    with pytest.raises(
        ge.MemoryFault, match=r"local address 0x0: that is local memory \[local-order\]"
    ) as caught:
        ran(text, operands(False), 1, backend, strict="error")
    assert "global or shared memory" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("atom.add.u32 %r4, [%rd3+32], 5;", "out-of-bounds"),
        ("red.add.u64 [%rd3+28], %rd6;", "misaligned"),
        ("atom.add.u64 %rd9, [%rd3+4], 5;", "misaligned"),
        ("ld.acquire.gpu.u32 %r4, [%rd3+4096];", "out-of-bounds"),
        ("st.relaxed.gpu.u64 [%rd3+32], %rd6;", "out-of-bounds"),
        # no code for local memory: an error as before
        (".reg .b128 %q; mov.b128 %q, {%rd6, %rd7}; atom.exch.b128 %q, [%rd3], %q;", "that is"),
    ],
)  # fmt: skip
def test_what_is_wrong_on_a_gpu_too_is_an_error(backend: str, body: str, message: str) -> None:
    with pytest.raises(ge.MemoryFault, match=message):
        ran(kernel_text(body), operands(False), 1, backend)
