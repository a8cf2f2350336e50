"""Which loops are unrolled, against the machine code of an assembler."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.timing.expanded.unrolling import unrolled
from tests.support import needs_assembler

from .rewritten import kernel, looped

PRODUCT = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {sums}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {sums};"
LOADED = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];"


def of_kind(kind: str, count: int) -> str:
    """So many instructions of one kind, with what keeps them."""
    lines = {
        "products": [PRODUCT.format(sums=f"{{%f{4 * (at % 4)}, %f{4 * (at % 4) + 1}, %f{4 * (at % 4) + 2}, %f{4 * (at % 4) + 3}}}")
                     for at in range(count)],
        "loads of matrices": [LOADED + PRODUCT.format(sums="{%f0, %f1, %f2, %f3}") + "add.u32 %r5, %r5, 16;" for _ in range(count)],
        "exchanges": [f"shfl.sync.bfly.b32 %r10, %r9, {at % 5 + 1}, 31, -1; add.u32 %r9, %r9, %r10;" for at in range(count)],
        "waits of lanes": ["add.f32 %f0, %f0, %f1; bar.warp.sync -1;"] * count,
        "barriers": ["ld.shared.f32 %f1, [%r5]; bar.sync 0;", *["fma.rn.f32 %f0, %f0, %f1, %f2;"] * count,
                     "st.shared.f32 [%r5], %f0; bar.sync 0;"],
        "copies": [*[f"cp.async.ca.shared.global [%r5+{16 * at}], [%rd0+{16 * at}], 16;" for at in range(count)],
                   "cp.async.commit_group; add.u32 %r5, %r5, 16; add.s64 %rd0, %rd0, 512;"],
        "stores": [*[f"st.global.f32 [%rd0+{4 * at}], %f{at % 16};" for at in range(count)], "add.s64 %rd0, %rd0, 512;"],
        "atomics": [*[f"red.global.add.u32 [%rd0+{4 * at}], %r9;" for at in range(count)], "add.s64 %rd0, %rd0, 512;"],
    }  # fmt: skip
    return "\n".join(lines[kind])


OPCODES = {
    "products": "HMMA", "loads of matrices": "LDSM", "exchanges": "SHFL", "waits of lanes": "FADD", "barriers": "FFMA",
    "copies": "LDGSTS", "stores": "STG", "atomics": "RED",
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("products", [(1, 64), (16, 8), (64, 2), (2, 0), (8, 0), (10, 0), (24, 0)]),
        ("loads of matrices", [(1, 16), (4, 64), (16, 8), (2, 0), (8, 0), (24, 0)]),
        ("exchanges", [(1, 2), (4, 16), (1, 0), (8, 0)]),
        ("waits of lanes", [(1, 2), (8, 16), (2, 0)]),
        ("barriers", [(2, 4), (1, 0), (6, 0), (32, 0)]),
        ("copies", [(1, 8), (8, 16), (2, 0), (4, 0), (6, 0), (8, 0)]),
        ("stores", [(1, 16), (8, 16), (1, 0), (8, 0), (10, 0), (24, 0)]),
        ("atomics", [(1, 8), (4, 8), (8, 8), (16, 4), (1, 0), (2, 0), (4, 0)]),
    ],
)
def test_loops_are_unrolled_as_by_the_assembler(kind: str, sizes: list[tuple[int, int]]) -> None:
    """Loops of instructions of one kind: their number and that of iterations, which 0 leaves open."""
    for count, trips in sizes:
        body = of_kind(kind, count) + "add.s32 %r2, %r2, 1;"
        test = f"setp.lt.s32 %p1, %r2, {trips or '%r1'};"
        before = "mov.u32 %r2, 0; mov.u32 %r5, tile; mov.u32 %r9, %r0; .reg .f32 %f<16>;"
        after = (
            "".join(f"st.global.f32 [%rd1+{128 * at}], %f{at};" for at in range(16))
            + "st.global.u32 [%rd1+4096], %r9;"
        )
        source = kernel(looped(body, test, before, after)).replace(".reg .f32 %f<8>;", "")
        entry = ge.parse(source, path="k.ptx")["k"]
        listing = disassemble(assemble(entry, "sm_86"))
        theirs = sum(item.base == OPCODES[kind] for item in listing.instructions)
        made = unrolled(program_of(entry), 86)
        if kind == "stores":
            theirs -= 17  # behind the loop
        assert (made is not None) == (theirs > count), (kind, count, trips, theirs)


def loaded(kind: str, loads: int, products: int) -> str:
    """``loads`` loads with an addition each, and multiply-adds."""
    where, step = (
        ("%r5", "add.u32 %r5, %r5, 1024;") if kind == "shared" else ("%rd0", "add.s64 %rd0, %rd0, 1024;")
    )
    lines = [
        f"ld.{kind}.f32 %f{16 + at}, [{where}+{20 * at}]; add.f32 %f{at % 16}, %f{at % 16}, %f{16 + at};"
        for at in range(loads)
    ]
    lines += [
        f"fma.rn.f32 %f{at % 16}, %f{at % 16}, %f{(at + 1) % 16}, %f{(at + 2) % 16};"
        for at in range(products)
    ]
    return "\n".join([*lines, step])


@needs_assembler
@pytest.mark.parametrize("architecture", [86, 90])
@pytest.mark.parametrize(
    ("kind", "loads", "sizes"),
    [
        ("shared", 0, [(50, 8), (70, 8), (96, 4), (110, 4), (160, 2), (32, 16), (36, 16), (16, 0), (20, 0), (70, 256), (80, 256)]),
        ("shared", 1, [(52, 8), (60, 8), (80, 8), (92, 4), (100, 4), (130, 4), (18, 32), (30, 32), (18, 0), (24, 0)]),
        ("shared", 8, [(30, 8), (40, 8), (190, 8), (8, 16), (20, 16), (130, 16), (32, 0), (38, 0)]),
        ("shared", 16, [(6, 8), (16, 8), (48, 8), (64, 8), (64, 16), (46, 0), (52, 0)]),
        ("global", 1, [(52, 8), (60, 8), (92, 4), (100, 4), (18, 32), (40, 0), (46, 0)]),
        ("global", 8, [(30, 8), (40, 8), (8, 16), (14, 16), (20, 0), (26, 0), (46, 256), (52, 256)]),
    ],
)  # fmt: skip
def test_what_a_loop_may_have(kind: str, loads: int, sizes: list[tuple[int, int]], architecture: int) -> None:
    """Copies of the multiply-adds of a loop: all iterations, four and the rest, or one. Newer architectures unroll loops with loads
    from shared memory as others."""
    for products, trips in sizes:
        before = "mov.u32 %r2, 0; mov.u32 %r5, tile; mov.u32 %r9, %r0; .reg .f32 %f<64>;"
        after = "".join(f"st.global.f32 [%rd1+{128 * at}], %f{at};" for at in range(16))
        body = loaded(kind, loads, products) + "add.s32 %r2, %r2, 1;"
        text = kernel(looped(body, f"setp.lt.s32 %p1, %r2, {trips or '%r1'};", before, after))
        source = text.replace(".reg .f32 %f<8>;", "").replace("sm_80", f"sm_{architecture}")
        entry = ge.parse(source, path="k.ptx")["k"]
        listing = disassemble(assemble(entry, f"sm_{architecture}"))
        theirs = sum(item.base == "FFMA" for item in listing.instructions)
        made = unrolled(program_of(entry), architecture)
        own = products
        if made is not None:
            own = sum(item.opcode == "fma.rn.f32" for item in made.kernel.instructions)
        whole = theirs == products * trips
        assert (own == products * trips) == whole and (own > products) == (theirs > products), (
            products,
            trips,
            own,
            theirs,
        )
        # what is left of unknown numbers is unrolled once more
        assert own <= theirs <= 2 * own, (products, trips, own, theirs)
