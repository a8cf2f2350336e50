"""Accesses of shared memory that are known to meet no other ones are not checked: held against the same launches with all checked."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.races.barrier_intervals import conflicting_sites
from gpuperf_engine.simt.launch import LaunchPlan
from gpuperf_engine.simt.program import Program

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data) {
.reg .b32 %r<20>; .reg .b64 %rd<8>; .reg .pred %p<8>; .reg .b16 %h<4>; .shared .align 16 .b8 sm[4096];
mov.u32 %r0, %tid.x; mov.u32 %r1, sm; ld.param.u64 %rd0, [data]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1;
ld.global.u32 %r2, [%rd1]; mov.u32 %r9, 1; setp.lt.u32 %p0, %r0, 32; setp.ge.u32 %p1, %r2, 5; mov.u32 %r8, 0;
"""


def address(made: random.Random) -> str:
    """Sets %r3 to a multiple of 16 within the array."""
    shift, mask, factor = made.randrange(6), made.choice((7, 31, 32, 63, 96)), made.choice((1, 1, 2, 3, 5))
    index = made.choice(
        (
            "mov.u32 %r3, %r0;",
            "mov.u32 %r3, %r0;",
            f"xor.b32 %r3, %r0, {made.choice((1, 2, 16, 32, 64))};",
            f"shr.u32 %r3, %r0, {shift};",
            f"and.b32 %r3, %r0, {mask};",
            f"shr.u32 %r3, %r0, {shift}; shl.b32 %r4, %r0, {5 - shift}; add.u32 %r3, %r3, %r4; and.b32 %r3, %r3, 127;",
            f"bfe.u32 %r3, %r0, {shift}, 3;",
            f"rem.u32 %r3, %r0, {made.choice((7, 32, 48))};",
            "setp.lt.u32 %p2, %r0, 40; selp.b32 %r3, %r0, 3, %p2;",
            f"mov.u32 %r3, {made.randrange(64)};",
            "and.b32 %r3, %r2, 63;",
            "mul.lo.u32 %r3, %r0, %r0; and.b32 %r3, %r3, 127;",
            "mov.u32 %r3, %r8;",
        )
    )
    return f"{index} mul.lo.u32 %r3, %r3, {factor}; and.b32 %r3, %r3, 255; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r1;"


def access(made: random.Random) -> str:
    offset = made.choice((0, 0, 0, 4, 8))
    what = made.choice(
        (
            *(f"st.shared.u32 [%r3+{offset}], %r0;",) * 3,
            *(f"ld.shared.u32 %r5, [%r3+{offset}];",) * 3,
            "st.shared.v2.u32 [%r3+8], {%r0, %r2};",
            "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];",
            f"cvt.u16.u32 %h0, %r0; st.shared.u8 [%r3+{made.randrange(4)}], %h0;",
            "red.shared.add.u32 [%r3], %r9;",
            "atom.shared.max.u32 %r5, [%r3+4], %r0;",
            "st.volatile.shared.u32 [%r3], %r0;",
            "ld.volatile.shared.u32 %r5, [%r3];",
            "membar.cta;",
        )
    )
    guard = made.choice(("", "", "", "@%p0 ", "@!%p0 ", "@%p1 "))
    return (
        f"{address(made)}\n{'cvt.u16.u32 %h0, %r0; ' if '.u8' in what else ''}{guard}{what.split('; ')[-1]}\n"
    )


def body(made: random.Random) -> str:
    def several(atomics: bool = False) -> str:
        if atomics:
            return "".join(
                f"{address(made)}\nred.shared.add.u32 [%r3], %r0;\n" for _ in range(made.choice((1, 2)))
            )
        return "".join(access(made) for _ in range(made.choice((0, 1, 1, 2, 3))))

    text = ""
    for number in range(made.choice((1, 2, 3))):
        text += several(made.random() < 0.2)
        kind = made.randrange(5)
        if kind == 0:
            text += f"@%p0 bra one{number};\n{several()}bar.sync 0;\n{several()}bra two{number};\n"
            text += f"one{number}: {several()}bar.sync 0;\n{several()}two{number}:\n"
        elif kind == 1:
            barrier = made.choice(("bar.sync 0;", "bar.sync 0;", ""))
            text += f"mov.u32 %r8, 0;\nmore{number}: {several()}{barrier}\n{several()}add.u32 %r8, %r8, 1;\n"
            text += f"setp.lt.u32 %p3, %r8, 2; @%p3 bra more{number};\n"
        elif kind == 2:
            text += f"barrier.red.popc.u32 %r5, 0, %p0;\n{several()}"
        else:
            text += f"bar.sync 0;\n{several()}"
    return text


def test_what_is_not_checked_has_no_race(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = unchecked = 0
    for seed in range(1195, 1225):
        made = random.Random(seed)
        text = f"{HEAD}{body(made)}ret; }}\n"
        block = made.choice((64, 96, 128, (16, 4), 33))
        found = []
        noted: list[tuple[frozenset[int] | None, int]] = []

        def watched(
            program: Program, plan: LaunchPlan | None, noted: list[tuple[frozenset[int] | None, int]] = noted
        ) -> frozenset[int] | None:
            met = conflicting_sites(program, plan)
            if plan is not None:
                noted.append((met, len(conflicting_sites(program, None) or ())))
            return met

        monkeypatch.setattr("gpuperf_engine.jit.races.checks.conflicting_sites", watched)
        for least in (1 << 30, 0):
            monkeypatch.setattr("gpuperf_engine.jit.races.checks._WORTH_IT", least)
            module = ge.parse(text, path="k.ptx")
            device = ge.Device(observe=set(), races="note", memory_bytes=1 << 20)
            data = device.array(np.arange(1024, dtype=np.uint32) % 9)
            found.append(device.launch(module["k"], 2, block, [data]).races)
        assert found[0] == found[1], text
        raced += bool(found[0])
        unchecked += any(met is not None and len(met) < every for met, every in noted)
    assert raced > 15 and unchecked > 10
