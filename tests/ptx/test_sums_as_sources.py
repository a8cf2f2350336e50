"""A register plus a constant as a source operand (``st.u64 [x], r + 1``), as ptxas takes it: where it may stand, and what it means.

What it means is worked out here with Python integers, from the code that ptxas makes of it: an addition in the width of the register,
then the instruction. Both backends and the oracle agree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.assembler import PTXAS
from tests.oracle.memory import Buffer
from tests.oracle.scalar import run as oracle

HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n) {
.reg .b64 a, b; .reg .b32 r, s; .reg .b16 h; .reg .f32 f; .reg .pred p, q; .local .align 4 .u32 t[4];
ld.param.u64 a, [x]; ld.param.u32 s, [n]; mov.u32 r, %tid.x; mad.wide.u32 a, r, 8, a; add.u32 s, s, r; cvt.u16.u32 h, s;
mul.wide.u32 b, s, 65537; mov.u32 r, 0;
"""
GIVEN = 0xFFFF_FFF0

#: the instructions, and the value stored at ``a`` from s, which is ``GIVEN`` plus the thread
MEANT: dict[str, Callable[[int], int]] = {
    "st.global.u32 [a], s + 100;": lambda s: s + 100,
    "st.global.u32 [a], s+-3;": lambda s: s - 3,
    "st.global.u64 [a], b + 4294967296;": lambda s: (s * 65537 + (1 << 32)) % (1 << 64),
    "st.global.u16 [a], s + 0x12345;": lambda s: (s + 0x12345) % (1 << 16),
    "mov.u32 r, s + 17 + 1; st.global.u32 [a], r;": lambda s: s + 18,
    "mov.b64 b, b+8; st.global.u64 [a], b;": lambda s: s * 65537 + 8,
    "cvt.u64.u32 b, s + 100; st.global.u64 [a], b;": lambda s: (s + 100) % (1 << 32),
    "add.u16 h, h+65535, 2; st.global.u16 [a], h;": lambda s: (s + 1) % (1 << 16),
    "mul.lo.u32 r, s+1, r+7; st.global.u32 [a], r;": lambda s: (s + 1) * 7,
    "mad.wide.u32 b, s + 100, 3, b + 1; st.global.u64 [a], b;": lambda s: (s + 100) % (1 << 32) * 3 + s * 65537 + 1,
    "setp.lt.u32 p, s + 100, 100; selp.u32 r, s + 1, r + 9, p; st.global.u32 [a], r;": lambda s: (
        s + 1 if (s + 100) % (1 << 32) < 100 else 9
    ),
    "shl.b32 r, s, r+(1+1); st.global.u32 [a], r;": lambda s: s << 2,
    "atom.global.add.u32 r, [a], s + 5; st.global.u32 [a+4], r;": lambda s: (s + 5) % (1 << 32),
    "atom.global.cas.b32 r, [a], r + 0, s + 6;": lambda s: (s + 6) % (1 << 32),
    "red.global.max.u32 [a], s+7;": lambda s: (s + 7) % (1 << 32),
    "st.local.u32 [t], s + 8; ld.local.u32 r, [t]; st.global.u32 [a], r;": lambda s: s + 8,
    "shfl.sync.idx.b32 r, s + 2, 3, 31, -1; st.global.u32 [a], r;": lambda s: (GIVEN + 3 + 2) % (1 << 32),
}  # fmt: skip


@pytest.mark.parametrize("body", MEANT)
def test_meaning(body: str) -> None:
    meant = [MEANT[body]((GIVEN + lane) % (1 << 32)) for lane in range(32)]
    bits = 64 if ".u64 [a]" in body else 32
    text, empty = f"{HEAD}{body} ret; }}", np.zeros(32, np.uint64)
    oracle(text, "k", 1, 32, [found := Buffer(empty), np.uint32(GIVEN)])
    results = [found.numpy()]
    for backend in ("llvm", "reference"):
        device = ge.Device(backend=backend)
        out = device.array(empty)
        device.launch(ge.parse(text, path="sum.ptx")["k"], 1, 32, [out, np.uint32(GIVEN)])
        results.append(out.numpy())
    for result in results:
        assert [int(value) % (1 << bits) for value in result] == [value % (1 << bits) for value in meant]


def test_slices_and_addresses() -> None:
    """Counted alike from what decides jumps, and without running each block; what it points to is still known."""
    text = HEAD + (
        "mov.u32 r, %ctaid.x; and.b32 r, r, 1; setp.eq.u32 p, r + 4, 5; @p bra END; mov.u64 b, a + 16; ld.global.u32 s, [b+-16];\n"
        "END: ret; }"
    )
    kernel = ge.parse(text, path="sum.ptx")["k"]
    profiles = []
    for demand in ("values", "addresses", "control"):
        device = ge.Device(observe=set())
        given = [device.zeros(1024, np.uint64), np.uint32(0)]
        profiles.append(device.launch(kernel, 100, 32, given, demand=demand))
    assert profiles[0].opcodes["ld.global.u32"] == 50 * 32
    assert all(profile.opcodes == profiles[0].opcodes for profile in profiles)


#: what ptxas refuses too, and the error
REFUSED = {
    "mov.u32 r + 1, s;": "must be a register",
    "st.global.v2.u32 [a], {s+1, r};": "cannot be a sum",
    "mov.b64 b, {s+1, r};": "mov.b64",
    "st.global.u32 [a], s - 1;": "only a constant can be added",
    "st.global.u32 [a], s + r;": "cannot be applied",
    "st.global.u32 [a], 1 + r;": "only a constant can be added",
    "st.global.u32 [a], (s + 1);": "cannot be an operand",
    "mov.u32 r, s*2;": "cannot be applied",
    "mov.u32 r, %tid.x + 1;": "special register",
    "mov.u32 r, s + 1.0;": "",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refused(body: str) -> None:
    with pytest.raises(ge.EngineError, match=r"sum\.ptx:8:") as caught:
        ge.parse(f"{HEAD}{body} ret; }}", path="sum.ptx")["k"]
    assert REFUSED[body] in str(caught.value)


@pytest.mark.skipif(PTXAS is None, reason="no ptxas here")
def test_ptxas_agrees(tmp_path: Path) -> None:
    wrong = []
    for body in (*MEANT, *REFUSED):
        path = tmp_path / "sum.ptx"
        path.write_text(f"{HEAD}{body} ret; }}")
        done = subprocess.run(
            [str(PTXAS), "-arch=sm_90", str(path), "-o", str(tmp_path / "sum.cubin")],
            capture_output=True,
            check=False,
        )
        if (done.returncode == 0) != (body in MEANT):
            wrong.append((body, done.stderr.decode()))
    assert not wrong
