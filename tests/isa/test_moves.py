"""Moves, packing and unpacking of every width, 128 bits too, against ``int.from_bytes``: both backends, a part of the warp."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.6", "sm_90")
LETTERS = {8: "c", 16: "h", 32: "r", 64: "l", 128: "q"}
DECLARED = (
    ".reg .b8 c<9>; .reg .b16 h<9>; .reg .b32 r<9>; .reg .b64 l<9>; .reg .b128 q<9>; .reg .f32 f<9>; .reg .f64 d<9>;"
    ".reg .pred p<3>;"
)
#: bits of the whole, and of its elements
PACKINGS = [(16, 8), (32, 16), (32, 8), (64, 32), (64, 16), (128, 64), (128, 32)]


def run(backend: str, body: str, data: np.ndarray, size: int) -> np.ndarray:
    """``body`` between 16 bytes at ``[a]`` and ``size`` bytes at ``[b]``; both are of the lane. Lanes 20 and up do not run it."""
    text = f"""{HEAD}.visible .entry k(.param .u64 pa, .param .u64 pb) {{ {DECLARED} .reg .b64 a, b, o; .reg .b32 t;
ld.param.u64 a, [pa]; ld.param.u64 b, [pb]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 16; add.u64 a, a, o; mul.wide.u32 o, t, {size};
add.u64 b, b, o; setp.ge.u32 p0, t, 20; @p0 bra END; {body}
END: ret; }}"""
    device = ge.Device(backend=backend)
    source, target = device.array(data), device.zeros((32, size), np.uint8)
    device.launch(ge.parse(text, path="moves.ptx")["k"], 1, 32, [source, target])
    return target.numpy()


def random_bytes(seed: int) -> np.ndarray:
    generator = random.Random(seed)
    return np.array([[generator.getrandbits(8) for _ in range(16)] for _ in range(32)], np.uint8)


@pytest.mark.parametrize(("whole", "element"), PACKINGS)
def test_packing(backend: str, whole: int, element: int) -> None:
    """Packing puts the first element lowest; unpacking gives it back; a guard leaves what was there."""
    count, big, small = whole // element, LETTERS[whole], LETTERS[element]
    names = ", ".join(f"{small}{i}" for i in range(1, count + 1))
    loads = "".join(f"ld.global.b{element} {small}{i + 1}, [a+{i * element // 8}];" for i in range(count))
    stores = "".join(
        f"st.global.b{element} [b+{16 + i * element // 8}], {small}{i + 1};" for i in range(count)
    )
    first = ", ".join(["_"] * (count - 1) + [f"{small}8"])
    body = (
        f"{loads} mov.b{whole} {big}7, {{{names}}}; setp.eq.u32 p1, t, 3; st.global.b{whole} [b], {big}7;"
        f"ld.global.b{whole} {big}6, [a]; @p1 mov.b{whole} {big}6, {big}7; mov.b{whole} {{{names}}}, {big}6; {stores}"
        f"mov.b{whole} {{{first}}}, {big}6; st.global.b{element} [b+32], {small}8;"
    )
    data = random_bytes(whole + element)
    found = run(backend, body, data, 48)
    size = whole // 8
    for lane in range(32):
        own = bytes(data[lane, :size]) if lane < 20 else bytes(size)
        assert bytes(found[lane, :size]) == own
        assert bytes(found[lane, 16 : 16 + size]) == own
        assert bytes(found[lane, 32 : 32 + element // 8]) == own[size - element // 8 :]


def test_mixed_elements(backend: str) -> None:
    """Elements may be constants and floats, and a whole of another kind."""
    body = (
        "ld.global.b32 f1, [a]; mov.b64 d1, {f1, 7}; st.global.f64 [b], d1; mov.b64 {f2, r2}, d1; st.global.f32 [b+8], f2;"
        "mov.b32 r3, {1, -1}; st.global.u32 [b+12], r3; mov.v4.b32 {r4, r5, r6, r7}, {r2, r3, 9, r2};"
        "st.global.v4.b32 [b+16], {r4, r5, r6, r7};"
        "ld.global.b64 l1, [a+8]; mov.b128 q1, {l1, 5}; mov.b128 q2, q1; mov.b128 {r0, r1, r2, r3}, q2;"
        "st.global.v4.b32 [b+32], {r3, r2, r1, r0};"
    )
    data = random_bytes(7)
    found = run(backend, body, data, 48)
    for lane in range(20):
        own = bytes(data[lane])
        seven, ends = (7).to_bytes(4, "little"), b"\x01\x00\xff\xff"
        wanted = own[:4] + seven + own[:4] + ends
        wanted += seven + ends + (9).to_bytes(4, "little") + seven
        wanted += bytes(4) + (5).to_bytes(4, "little") + own[12:16] + own[8:12]
        assert bytes(found[lane]) == wanted


def test_wide_registers_through_control_flow(backend: str) -> None:
    """128-bit registers keep their values in lanes that take other ways, through loops and calls."""
    body = (
        "ld.global.b128 q1, [a]; mov.u32 r1, 0; and.b32 r2, t, 3; mov.b64 l3, 0;\n"
        "LOOP: setp.ge.u32 p1, r1, r2; @p1 bra DONE; mov.b128 {l1, l2}, q1; add.u64 l1, l1, 1; mov.b128 q1, {l2, l1};\n"
        "add.u32 r1, r1, 1; bra LOOP;\nDONE: setp.eq.u32 p1, r2, 1; @p1 bra ODD; st.global.b128 [b], q1; bra BOTH;\n"
        "ODD: mov.b128 q2, {l3, l3}; st.global.b128 [b], q2;\nBOTH: st.global.b128 [b+16], q1;"
    )
    data = random_bytes(9)
    found = run(backend, body, data, 32)
    for lane in range(20):
        low, high = (int.from_bytes(bytes(data[lane, part : part + 8]), "little") for part in (0, 8))
        for _ in range(lane % 4):
            low, high = high, (low + 1) % 2**64
        both = low.to_bytes(8, "little") + high.to_bytes(8, "little")
        assert bytes(found[lane]) == (bytes(16) if lane % 4 == 1 else both) + both


@pytest.mark.parametrize("number", [0, 1, 2, 8, -1, 2**31, 2**32])
def test_constants_as_predicates(backend: str, number: int) -> None:
    """PTX manual, "Predicate Constants": "zero values are False and non-zero values are True"."""
    uses = (
        f"mov.pred p1, {number};",
        f"setp.ne.u32 p2, t, t; or.pred p1, {number}, p2;",
        f"setp.eq.u32 p2, t, t; and.pred p1, p2, {number};",
        f"setp.eq.and.u32 p1, t, t, {number};",
        f"not.pred p2, {number}; not.pred p1, p2;",
    )
    for use in uses:
        made = run(backend, f"{use} selp.u32 r1, 7, 5, p1; st.global.u32 [b], r1;", random_bytes(1), 4)
        assert made[:20].view(np.uint32).reshape(-1).tolist() == [7 if number else 5] * 20
    made = run(backend, f"selp.u32 r1, 7, 5, {number}; st.global.u32 [b], r1;", random_bytes(1), 4)
    assert made[:20].view(np.uint32).reshape(-1).tolist() == [7 if number else 5] * 20
