"""Cache policies and other hints: the bits that ptxas folds into constants, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.8", "sm_90a")
ENTRY = (
    ".visible .entry k(.param .u64 to) { .reg .b64 l<9>; .reg .b32 r<9>; .reg .f32 f<3>; .reg .pred p<3>;\n"
    ".shared .b32 s; .global .b32 g; ld.param.u64 l0, [to]; mov.u32 r0, %tid.x;\n"
).replace(".global .b32 g; ", "")


def policies(lines: list[str]) -> list[int]:
    text = (
        HEAD
        + ENTRY
        + "".join(f"{line} st.global.u64 [l0+{8 * place}], l1;\n" for place, line in enumerate(lines))
    )
    found = []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        out = device.zeros(len(lines), np.uint64)
        device.launch(ge.parse(text + "ret; }", path="policy.ptx")["k"], 1, 32, [out])
        found.append(out.numpy().tolist())
    assert found[0] == found[1]
    return list(found[0])


@pytest.mark.parametrize(
    ("line", "upper"),
    [
        # what ptxas 13.0 makes of them; the first three are CUTLASS's TMA::CacheHintSm90
        ("createpolicy.fractional.L2::evict_normal.b64 l1;", 0x16F00000),
        ("createpolicy.fractional.L2::evict_first.b64 l1, 1.0;", 0x12F00000),
        ("createpolicy.fractional.L2::evict_last.b64 l1, 1.0;", 0x14F00000),
        ("createpolicy.fractional.L2::evict_unchanged.b64 l1;", 0x10F00000),
        ("createpolicy.fractional.L2::evict_last.b64 l1, 0.5;", 0x14700000),
        ("createpolicy.fractional.L2::evict_last.b64 l1, 0.3;", 0x14400000),
        ("createpolicy.fractional.L2::evict_last.b64 l1, 0.01;", 0x14000000),
        ("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 l1, 0.5;", 0x15700000),
    ],
)
def test_fractions(line: str, upper: int) -> None:
    assert policies([line]) == [upper << 32]


def ranged(address: int, primary: int, total: int) -> int:
    """The instructions that ptxas makes of createpolicy.range.L2::evict_last.L2::evict_first, on Python integers."""
    if total == 0:
        return 0x18000000 << 32
    shift = max((total - 1).bit_length() - 7, 12)
    first = address >> shift
    count = min(((address + primary - 1 + (1 << shift)) >> shift) - first, 127)
    return (0x1D000000 | (shift - 12) << 20 | (first & 127) << 12 | count << 5) << 32


@pytest.mark.parametrize(
    ("address", "primary", "total"),
    [
        (0x7F0012345680, 0x100000, 0x200000),
        (4096, 1, 1),
        (0, 0, 0),
        (0xFFFFF000, 4096, 0xFFFFFFFF),
        (12345, 70000, 500001),
    ],
)
def test_ranges(address: int, primary: int, total: int) -> None:
    lines = [
        f"mov.u64 l2, {address - 16}; mov.u32 r1, {primary}; mov.u32 r2, {total};"
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 l1, [l2+16], r1, r2;",
        f"mov.u64 l3, {address}; createpolicy.range.L2::evict_last.L2::evict_first.b64 l2, [l3], {primary}, {total};"
        "createpolicy.cvt.L2.b64 l1, l2;",
    ]
    assert policies(lines) == [ranged(address, primary, total)] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("createpolicy.fractional.L2::evict_last.b64 l1, 1.5;", "more than 0, at most 1"),
        ("createpolicy.fractional.L2::evict_last.b64 l1, 0.0;", "more than 0, at most 1"),
        ("createpolicy.fractional.L2::evict_first.L2::evict_last.b64 l1;", "does not combine"),
        (
            "createpolicy.range.L2::evict_last.b64 l1, [l0], 4096, 128;",
            "primary_size is 4096 and total_size is 128\\n.*at most total_size",
        ),
        ("createpolicy.range.L2::evict_last.b64 l1, [l0], -1, 128;", "primary_size is -1"),
        ("createpolicy.range.L2::evict_last.b64 l1, [l0], 4, 0;", "primary_size is 4"),
        ("createpolicy.range.L2::evict_last.b64 l1, [l0], 7, 4294967296;", "primary_size is 7"),
        ("discard.L2 [l0], 256;", "128"),
        ("applypriority.L2::evict_normal [l0], 64;", "128"),
        ("cvta.global.u64 l1, s;", "shared"),
        ("pmevent 16;", "the events 0 to 15"),
        ("pmevent.mask 65536;", "a mask of 16 bits"),
        ("setmaxnreg.dec.sync.aligned.u32 25;", "a multiple of 8 from 24 to 256"),
        ("setmaxnreg.inc.sync.aligned.u32 264;", "a multiple of 8 from 24 to 256"),
        ("elect.sync r1|_, -1;", "must be a register"),
        ("mov.b64 {_, _}, l0;", "found a vector of 2"),
    ],
)
def test_constants_that_are_refused(line: str, message: str) -> None:
    with pytest.raises(ge.PtxError, match=message):
        ge.parse(HEAD + ENTRY + line + "ret; }", path="policy.ptx").function("k")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("createpolicy.range.L2::evict_last.b64 l1, [l0], r0, 6;", "primary_size is more than total_size"),
        ("createpolicy.range.L2::evict_last.b64 l1, [l0], 6, r1;", "primary_size is more than total_size"),
        ("createpolicy.fractional.L2::evict_last.b64 l1, f1;", "fraction is not a part"),
    ],
)
def test_registers_that_are_refused(line: str, message: str, backend: str) -> None:
    """Lanes whose guard does not hold may have anything there."""
    text = "sub.u32 r1, 12, r0; cvt.rn.f32.u32 f1, r0; sub.f32 f1, 7.0, f1; setp.eq.u32 p1, r0, 6;"
    device = ge.Device(backend=backend)
    out = device.zeros(1, np.uint64)

    def launch(line: str) -> None:
        module = ge.parse(HEAD + ENTRY + text + line + "st.global.u64 [l0], 0;\nret; }", path="policy.ptx")
        device.launch(module["k"], 1, 32, [out])

    launch("@p1 " + line)
    with pytest.raises(ge.TrapError, match=rf"createpolicy.*{message}.*\n.*thread \((7|0), 0, 0\)") as caught:
        launch(line)
    assert caught.value.span is not None and caught.value.span.line == 6


def test_sizes_are_unsigned() -> None:
    line = "createpolicy.range.L2::evict_last.b64 l1, [l0], {}, -1;"
    ge.parse(HEAD + ENTRY + line.format(4096) + line.format(-1) + "ret; }", path="policy.ptx").function("k")
    assert policies([f"mov.u32 r1, 9999; mov.u64 l2, 0; {line.format('r1').replace('l0', 'l2')}"]) == [
        ranged(0, 9999, 2**32 - 1) & ~(1 << 56)
    ]


def test_results_that_are_not_wanted() -> None:
    """CUTLASS and Triton write ``_`` for the lane that was elected."""
    text = (
        HEAD
        + ENTRY
        + (
            "mov.u64 l1, 0; elect.sync _|p0, -1; selp.u32 r1, 1, 0, p0; cvt.u64.u32 l2, r0; shr.u64 l2, l2, 5;\n"
            "match.all.sync.b64 _|p1, l2, -1; selp.u32 r2, 2, 0, p1; mov.pred p2, !p0; selp.u32 r3, 4, 0, p2;\n"
            "or.b32 r1, r1, r2; or.b32 r1, r1, r3; mul.wide.u32 l2, r0, 4; add.u64 l0, l0, l2; st.global.u32 [l0], r1; ret; }"
        )
    )
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        out = device.zeros(32, np.uint32)
        device.launch(ge.parse(text, path="policy.ptx")["k"], 1, 32, [out])
        assert out.numpy().tolist() == [1 | 2] + [2 | 4] * 31


def test_short_generic_addresses() -> None:
    text = (
        HEAD
        + ENTRY
        + (
            "mov.u32 r1, 16; isspacep.shared p0, r1; isspacep.global p1, r1; selp.u32 r2, 1, 0, p0; selp.u32 r3, 2, 0, p1;\n"
            "or.b32 r2, r2, r3; st.global.u32 [l0], r2; ret; }"
        )
    )
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        out = device.zeros(1, np.uint32)
        device.launch(ge.parse(text, path="policy.ptx")["k"], 1, 1, [out])
        assert out.numpy().tolist() == [2]
