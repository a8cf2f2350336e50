"""Random kernels whose CTAs work on each other's shared memory: both backends and the oracle leave the same memory and counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.oracle import scalar

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    .shared .align 16 .b8 sm[4096];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r10, %r3, 2654435, %r0;
    mov.u32 %r11, 1;
    mul.lo.u32 %r5, %r0, 16;
    mov.u32 %r6, sm;
    add.u32 %r7, %r6, %r5;
    st.shared.v4.u32 [%r7], {%r10, %r3, %r0, %r11};
"""
#: registers that carry values from phase to phase
VALUES = ("%r10", "%r11", "%r12", "%r13")
SYNC = (
    "barrier.cluster.arrive;",
    "barrier.cluster.arrive.release.aligned;",
    "barrier.cluster.arrive.release;",
)
WAIT = ("barrier.cluster.wait;", "barrier.cluster.wait.acquire.aligned;", "barrier.cluster.wait.acquire;")


class Kernel:
    """A kernel of phases; in each, threads either only read the arrays of others, or each writes to a slot that is its alone."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.lines = [HEAD]
        self.barriers = 0
        self.sync()
        for _ in range(self.choose.randint(3, 7)):
            self.choose.choice((self.reads, self.writes, self.atomics))()
            self.sync()
        stores = "".join(
            f"st.global.u32 [%rd2+{4 * place}], {name};\n" for place, name in enumerate((*VALUES, "%r14"))
        )
        self.lines.append(
            "ld.shared.u32 %r14, [%r7+8];\nmad.lo.u32 %r15, %r3, %r4, %r0;\nmul.wide.u32 %rd1, %r15, 20;\n"
            f"add.u64 %rd2, %rd0, %rd1;\n{stores}ret;\n}}\n"
        )
        self.text = "".join(self.lines)

    def sync(self) -> None:
        between = "xor.b32 %r11, %r11, %r10;\n" if self.choose.random() < 0.3 else ""
        self.lines.append(f"{self.choose.choice(SYNC)}\n{between}{self.choose.choice(WAIT)}\n")

    def rank(self) -> str:
        """Some CTA of the cluster in %r8, a different one in every thread or the same in all."""
        made = [f"add.u32 %r8, %r1, {self.choose.randint(0, 20)};"]
        if self.choose.random() < 0.5:
            made.append("add.u32 %r8, %r8, %r0;")
        return "\n".join([*made, "rem.u32 %r8, %r8, %r2;\n"])

    def address(self, slot: str, inner: int) -> str:
        """``slot``: register of an index of 16 bytes; state space and operand, the address computed in one of the ways there are."""
        way = self.choose.randrange(4)
        base = f"shl.b32 %r9, {slot}, 4;\nadd.u32 %r9, %r6, %r9;\n"
        if way == 0:
            self.lines.append(f"{base}mapa.shared::cluster.u32 %r9, %r9, %r8;\n")
            return f".shared::cluster|[%r9+{inner}]"
        if way == 1:
            self.lines.append(
                f"{base}cvt.u64.u32 %rd3, %r9;\ncvta.shared.u64 %rd3, %rd3;\nmapa.u64 %rd3, %rd3, %r8;\n"
            )
            return f"|[%rd3+{inner}]"
        if way == 2:
            self.lines.append(
                f"{base}and.b32 %r9, %r9, 0xFFFFFF;\nshl.b32 %r16, %r8, 24;\nor.b32 %r9, %r9, %r16;\n"
            )
            return f".shared::cluster|[%r9+{inner}]"
        self.lines.append(f"{base}cvt.u64.u32 %rd3, %r9;\nmapa.shared::cluster.u64 %rd3, %rd3, %r8;\n")
        return f".shared::cluster|[%rd3+{inner}]"

    def guard(self) -> str:
        if self.choose.random() < 0.6:
            return ""
        self.lines.append(f"and.b32 %r17, %r0, {self.choose.randint(1, 7)};\nsetp.ne.u32 %p1, %r17, 0;\n")
        return "@%p1 "

    def reads(self) -> None:
        for _ in range(self.choose.randint(1, 3)):
            self.lines.append(self.rank())
            factor, step = self.choose.choice((0, 1, 1, 3)), self.choose.randint(0, 9)
            self.lines.append(f"mad.lo.u32 %r18, %r0, {factor}, {step};\nrem.u32 %r18, %r18, %r4;\n")
            target = self.choose.choice(VALUES)
            kind = self.choose.choice(("u32", "u8", "s16", "v2", "v4"))
            inner = self.choose.randrange(4) * 4 if kind in ("u32", "u8", "s16") else 0
            space, where = self.address("%r18", inner).split("|")
            guard = self.guard()
            if kind == "v2":
                self.lines.append(f"{guard}ld{space}.v2.u32 {{{target}, %r19}}, {where};\n")
            elif kind == "v4":
                self.lines.append(f"{guard}ld{space}.v4.u32 {{%r19, %r20, %r21, {target}}}, {where};\n")
            else:
                self.lines.append(f"{guard}ld{space}.{kind} {target}, {where};\n")

    def writes(self) -> None:
        """Thread t of each CTA writes to slot t of the CTA so many further on: nobody else does."""
        self.lines.append(f"add.u32 %r8, %r1, {self.choose.randint(0, 20)};\nrem.u32 %r8, %r8, %r2;\n")
        space, where = self.address("%r0", self.choose.choice((0, 4, 8))).split("|")
        guard = self.guard()
        kind, value = self.choose.choice((("u32", "%r10"), ("u32", "%r12"), ("u8", "%r11"), ("u16", "%h1")))
        if kind == "u16":
            self.lines.append("cvt.u16.u32 %h1, %r10;\n")
        self.lines.append(f"{guard}st{space}.{kind} {where}, {value};\n")

    def atomics(self) -> None:
        """Sums, which do not depend on the order."""
        self.lines.append(self.rank())
        self.lines.append(f"rem.u32 %r18, %r0, {self.choose.randint(1, 9)};\n")
        space, where = self.address("%r18", 8).split("|")
        op = self.choose.choice(("add.u32", "xor.b32", "max.u32", "min.s32"))
        self.lines.append(f"{self.guard()}red.relaxed.cluster{space}.{op} {where}, %r10;\n")


@pytest.mark.parametrize("seed", range(16))
def test_backends_and_oracle_agree(seed: int) -> None:
    choose = random.Random(1000 + seed)
    cluster, threads = choose.choice((1, 2, 3, 4, 8)), choose.choice((20, 32, 64, 70))
    grid = cluster * choose.randint(1, 3)
    text = Kernel(seed).text
    kernel = ge.parse(text, path="random.ptx")["k"]
    expected = scalar.Buffer(np.zeros((grid, threads, 5), np.uint32))
    counted = scalar.run(text, "k", grid, threads, [expected], cluster=cluster)
    profiles = []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        out = device.zeros((grid, threads, 5), np.uint32)
        profiles.append(device.launch(kernel, grid, threads, [out], cluster=cluster))
        np.testing.assert_array_equal(out.numpy(), expected.numpy(), err_msg=text)
    assert profiles[0] == profiles[1]
    assert profiles[0].opcodes == counted.opcodes
    assert profiles[0].warp_opcodes == counted.warp_opcodes
    device = ge.Device()
    out = device.zeros((grid, threads, 5), np.uint32)
    addresses = device.launch(kernel, grid, threads, [out], cluster=cluster, demand="addresses")
    assert addresses.memory == profiles[0].memory
