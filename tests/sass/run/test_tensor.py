"""Machine code on tensor memory: the run must leave the same bytes as the PTX."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.isa.tensor_kernels import COLUMNS, IDESC, READS, SCALE_A, SCALE_B, SHARED, A, B, D, idesc, text
from tests.support import head, needs_assembler

#: instruction and descriptor of what is multiplied; rows of 32 bytes of both factors lie one behind the other
PRODUCTS = [
    *(
        (f"tcgen05.mma.cta_group::1.kind::{kind} [%r11], {factor}, %x1, %r16, %p5;", word)
        for kind, word in (
            ("f16", idesc(128, 16, a=1, b=1)),
            ("tf32", idesc(128, 16, a=2, b=2)),
            ("f8f6f4", idesc(128, 16, b=1)),
            ("i8", idesc(128, 16, a=1, d=2)),
        )
        for factor in ("%x0", "[%r12]")
    ),
    *(
        (
            f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{size} [%r11], %x0, %x1, %r16, [%r14], [%r15], %p5;",
            word,
        )
        for kind, size, word in (
            ("mxf8f6f4", "block32", idesc(128, 16, d=0, ue8m0=1)),
            ("mxf4", "block32", idesc(128, 16, a=1, b=1, d=0, ue8m0=1)),
            ("mxf4nvf4", "block16", idesc(128, 16, a=1, b=1, d=0)),
        )
    ),
    *(
        (f"tcgen05.cp.cta_group::1.{shape} [%r11], %x0;", 0)
        for shape in (
            "128x256b",
            "4x256b",
            "128x128b",
            "64x128b.warpx2::02_13",
            "64x128b.warpx2::01_23",
            "32x128b.warpx4",
        )
    ),
]
#: with K = 96, of sm_103a alone
LONG = [
    (
        f"tcgen05.mma.cta_group::1.kind::{kind} [%r11], %x0, %x1, %r16, [%r14], [%r15], %p5;",
        1 << 31 | idesc(128, 16, a=1, b=1, d=0, ue8m0=powers),
    )
    for kind, powers in (("mxf4.block_scale.block32", 1), ("mxf4nvf4.block_scale.block16", 0))
]


def counted(profile: ge.Profile, target: str = "sm_100a") -> ge.MachineCode:
    code = counted_code(profile, target)
    assert code.ways in ("run", "flow and run"), code.notes
    assert code.residue < 0.01, code.notes
    return code


ALL = {"UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCCP", "UTCBAR"}


@needs_assembler
@pytest.mark.parametrize(
    ("target", "products", "opcodes"),
    [("sm_100a", PRODUCTS, ALL), ("sm_103a", LONG, {"UTCOMMA"})],
)
def test_products_and_copies(target: str, products: list[tuple[str, int]], opcodes: set[str]) -> None:
    """One kernel, launched once for each line."""
    rng = np.random.default_rng(3)
    device = ge.Device(observe={"memory", "inputs"}, races="off", memory_bytes=1 << 24)
    # descriptors count from where the shared memory of the kernel begins: in machine code behind what the system reserves
    moved = "cvt.u64.u32 %rd9, %r2; shr.u64 %rd9, %rd9, 4; add.u64 %x0, %x0, %rd9; add.u64 %x1, %x1, %rd9;"
    lines = text([line for line, _ in products], target=target).replace(
        "setp.ne.u32 %p5", f"{moved}\nsetp.ne.u32 %p5"
    )
    kernel = ge.parse(lines, path="k.ptx")["k"]
    matrix = 128 >> 4 << 32 | 4096 >> 4 << 16 | 1 << 46
    profiles = []
    for number, (line, word) in enumerate(products):
        # small numbers in every type, and scales around 1
        shared = rng.integers(0x30, 0x3C, SHARED).astype(np.uint8)
        tensor = rng.integers(0x3C00, 0x3C80, (128, COLUMNS)).astype(np.uint32) * 0x10001
        given = np.zeros(16, np.uint64)
        given[[A, B, IDESC, D, READS]] = 64 if "[%r12]" in line else matrix, matrix | 8192 >> 4, word, 32, 1
        given[[SCALE_A, SCALE_B]] = 64, 96
        words = device.array(tensor)
        arguments = [device.array(shared), words, device.array(given), np.uint32(number)]
        profiles.append(device.launch(kernel, 1, 128, arguments))
        assert (words.numpy() != tensor).any(), line
    code = counted(ge.add_profiles(profiles), target)
    assert opcodes <= code.by_opcode.keys()


#: shapes of fragments, and registers of a thread for .x1
SHAPES = (
    ("32x32b", 1, ""),
    ("16x64b", 1, ""),
    ("16x128b", 2, ""),
    ("16x256b", 4, ""),
    ("16x32bx2", 1, ", 17"),
)


@needs_assembler
@pytest.mark.parametrize("half", ["", "16b"])
def test_fragments_of_every_shape(half: str) -> None:
    """What is stored in one shape is loaded in the next; with 16 bits of each word as well."""
    lines = []
    for number, (shape, count, offset) in enumerate(SHAPES):
        other, more, moved = SHAPES[number - 1]
        place = 40 * number
        unpack, pack = (f".{name}::{half}" if half else "" for name in ("unpack", "pack"))
        for registers in (4, 8):
            stored = ", ".join(f"%v{index}" for index in range(registers))
            lines += [
                f"tcgen05.st.sync.aligned.{other}.x{registers // more}{unpack}.b32 [%t+{place}]{moved}, {{{stored}}};",
                "tcgen05.wait::st.sync.aligned;",
                f"tcgen05.ld.sync.aligned.{shape}.x{registers // count}{pack}.b32 {{{stored}}}, [%t+{place}]{offset};",
                "tcgen05.wait::ld.sync.aligned;",
                f"add.u32 %v0, %v0, {number}; xor.b32 %v3, %v3, %v1;",
            ]
    kernel = f"""
    .visible .entry k(.param .u64 out) {{
    .reg .b32 %v<8>, %t, %s, %r; .reg .b64 %o; .reg .pred %p; .shared .align 4 .b32 slot;
    ld.param.u64 %o, [out]; mov.u32 %r, %tid.x; mov.u32 %s, slot; setp.ge.u32 %p, %r, 32;
    @%p bra.uni GO;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 256;
    GO: bar.sync 0; ld.shared.u32 %t, [%s]; mad.wide.u32 %o, %r, 32, %o; shr.u32 %r, %r, 5; shl.b32 %r, %r, 21;
    add.u32 %t, %t, %r; ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%o]; ld.global.v4.b32 {{%v4, %v5, %v6, %v7}}, [%o+16];
    {"".join(lines)}
    st.global.v4.b32 [%o], {{%v0, %v1, %v2, %v3}}; st.global.v4.b32 [%o+16], {{%v4, %v5, %v6, %v7}};
    bar.sync 0; @%p bra.uni END; sub.u32 %t, %t, %r;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 256; tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    END: ret; }}
    """
    device = ge.Device(observe={"memory", "inputs"}, races="off", memory_bytes=1 << 22)
    data = np.random.default_rng(3).integers(0, 1 << 32, 8 * 128, dtype=np.uint32)
    out = device.array(data)
    profile = device.launch(ge.parse(head("8.6", "sm_100a") + kernel, path="k.ptx")["k"], 1, 128, [out])
    assert (out.numpy() != data).any()
    assert {"LDTM", "STTM", "UTCATOMSWS"} <= counted(profile).by_opcode.keys()
