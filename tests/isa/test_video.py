"""Video instructions in kernels of random forms and operands: both backends against Python integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.oracle.video_numbers import multiply, packed, scalar
from tests.support import head

HEAD = head("8.0", "sm_80")
EDGES = (
    0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80008000,
    0x7FFF8001, 0x80FF7F01, 0xFF00FF00, 0x00010000,
)  # fmt: skip
PARTS = ("", "", "b0", "b1", "b2", "b3", "h0", "h1")
BYTE_MASKS = [
    "b0",
    "b1",
    "b10",
    "b2",
    "b20",
    "b21",
    "b210",
    "b3",
    "b30",
    "b31",
    "b310",
    "b32",
    "b320",
    "b321",
    "b3210",
]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

#: a line of PTX, and its result for the three words of a lane
Case = tuple[str, "Result"]


class Result:
    """The value that one instruction gives; ``former`` is what the destination held."""

    def __init__(self, kind: str, *given: object) -> None:
        self.kind, self.given = kind, given

    def __call__(self, a: int, b: int, c: int) -> int:
        model = {"scalar": scalar, "packed": packed, "vmad": multiply}[self.kind]
        return model(*self.given, a, b, c)  # type: ignore[operator,no-any-return]


def scalar_case(generator: random.Random) -> Case:
    pick = generator.choice
    name = pick(("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"))
    kinds = [pick(("u32", "s32")) for _ in range(2 if name in ("vset", "vshl", "vshr") else 3)]
    opcode = ".".join([name, *kinds])
    if name in ("vshl", "vshr"):
        opcode += ".u32"
    opcode += pick(("", ".sat")) if name != "vset" else f".{pick(COMPARISONS)}"
    if name in ("vshl", "vshr"):
        opcode += pick((".clamp", ".wrap"))
    form = generator.randrange(3)
    second = pick(("add", "min", "max")) if form == 1 else ""
    parts = (pick(PARTS) if form == 2 else "", pick(PARTS), pick(PARTS))
    model = opcode if not second else f"{opcode}.{second}"
    d, a, b = (f"r{place}{'.' * bool(part)}{part}" for place, part in enumerate(parts))
    return f"{model} {d}, {a}, {b}{', r3' if form else ''};", Result("scalar", model, parts)


def packed_case(generator: random.Random) -> Case:
    pick = generator.choice
    lanes = pick((2, 4))
    name = pick(("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"))
    kinds = [pick(("u32", "s32")) for _ in range(2 if name == "vset" else 3)]
    opcode = ".".join([f"{name}{lanes}", *kinds])
    opcode += f".{pick(COMPARISONS)}{pick(('', '.add'))}" if name == "vset" else pick(("", ".sat", ".add"))
    digits = range(4) if lanes == 2 else range(8)
    letter = "h" if lanes == 2 else "b"

    def choice() -> str:
        return pick(("", letter + "".join(str(pick(digits)) for _ in range(lanes))))

    mask = pick(("", *(("h0", "h1", "h10") if lanes == 2 else BYTE_MASKS)))
    parts = (mask, choice(), choice())
    d, a, b = (f"r{place}{'.' * bool(part)}{part}" for place, part in enumerate(parts))
    return f"{opcode} {d}, {a}, {b}, r3;", Result("packed", opcode, parts)


def vmad_case(generator: random.Random) -> Case:
    pick = generator.choice
    po = generator.random() < 0.3
    opcode = "vmad" + "".join(f".{pick(('u32', 's32'))}" for _ in range(3)) + ".po" * po
    opcode += pick(("", ".sat")) + pick(("", ".shr7", ".shr15"))
    negated = (False, False, False) if po else tuple(pick((False, True)) for _ in range(3))
    if negated[0] != negated[1]:
        negated = (negated[0], negated[1], False)
    parts = ("", pick(PARTS), pick(PARTS))
    a, b = (f"{'-' * negated[i]}r{i + 1}{'.' * bool(parts[i + 1])}{parts[i + 1]}" for i in range(2))
    return f"{opcode} r0, {a}, {b}, {'-' * negated[2]}r3;", Result("vmad", opcode, parts, negated)


FAMILIES = {"scalar": scalar_case, "packed": packed_case, "vmad": vmad_case}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_random(family: str, seed: int) -> None:
    """Every other instruction is guarded, and half of the kernel runs with the upper lanes off."""
    generator = random.Random(f"{family}{seed}")
    cases = [FAMILIES[family](generator) for _ in range(60)]
    lines = [".visible .entry k(.param .u64 from, .param .u64 to)", "{"]
    lines += [".reg .b32 r<4>; .reg .b32 lane; .reg .b64 l<3>; .reg .pred p<2>;"]
    lines += [
        "ld.param.u64 l0, [from]; ld.param.u64 l1, [to]; mov.u32 lane, %tid.x; mul.wide.u32 l2, lane, 4;"
    ]
    lines += ["add.u64 l0, l0, l2; add.u64 l1, l1, l2; setp.ne.b32 p0, lane, 7; setp.lt.u32 p1, lane, 20;"]
    lines += [f"ld.global.u32 r{index}, [l0+{128 * (index - 1)}];" for index in (1, 2, 3)]
    for index, (line, _) in enumerate(cases):
        lines += ["@!p1 bra end;"] * (index == len(cases) // 2)
        lines += [
            "mov.u32 r0, 0x5a5a5a5a;",
            "@p0 " * (index % 2) + line,
            f"st.global.u32 [l1+{128 * index}], r0;",
        ]
    text = HEAD + "\n".join([*lines, "end: ret;", "}"])
    module = ge.parse(text, path="video.ptx")
    words = np.array(
        [
            [generator.choice((generator.choice(EDGES), generator.getrandbits(32))) for _ in range(32)]
            for _ in range(3)
        ],
        np.uint32,
    )
    expected = np.zeros((len(cases), 32), np.uint32)
    for index, (_, result) in enumerate(cases):
        for lane in range(32 if index < len(cases) // 2 else 20):
            guarded = index % 2 and lane == 7
            expected[index, lane] = 0x5A5A5A5A if guarded else result(*(int(row[lane]) for row in words))
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        source, target = device.array(words), device.zeros(expected.shape, np.uint32)
        device.launch(module["k"], grid=1, block=32, args=[source, target])
        for index, lane in np.argwhere(target.numpy() != expected)[:1]:
            raise AssertionError((backend, cases[index][0], [hex(int(row[lane])) for row in words],
                                  hex(target.numpy()[index, lane]), hex(expected[index, lane])))  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words", "expected"),
    [
        # 0xFF as a byte is 255 or −1; −1 + 2³¹−1 fits, 255 does not
        ("vadd.s32.u32.s32.sat r0, r1.b0, r2;", (0xFF, 0x7FFFFFFF, 0), 0x7FFFFFFF),
        ("vadd.s32.s32.s32.sat r0, r1.b0, r2;", (0xFF, 0x7FFFFFFF, 0), 0x7FFFFFFE),
        ("vsub.u32.u32.u32.sat r0, r1, r2;", (1, 2, 0), 0),
        ("vabsdiff.s32.s32.s32.sat r0.h0, r1.b0, r2.b2, r3;", (0x80, 0x7F0000, 0xABCD1234), 0xABCD00FF),
        ("vmin.s32.u32.s32.max r0, r1, r2, r3;", (5, 0xFFFFFFFF, 0xFFFFFFFE), 0xFFFFFFFF),
        # the sum is 2³³ − 2, −2 as a signed number of 33 bits
        ("vadd.u32.u32.u32.min r0, r1, r2, r3;", (0xFFFFFFFF, 0xFFFFFFFF, 5), 0xFFFFFFFE),
        ("vshl.u32.u32.u32.sat.clamp r0, r1, r2;", (3, 31, 0), 0xFFFFFFFF),
        ("vshl.u32.u32.u32.clamp r0, r1, r2;", (3, 32, 0), 0),
        ("vshl.u32.u32.u32.wrap r0, r1, r2;", (3, 33, 0), 6),
        ("vshr.s32.s32.u32.clamp r0, r1, r2;", (0x80000000, 77, 0), 0xFFFFFFFF),
        ("vshr.u32.u32.u32.wrap.add r0, r1, r2.h1, r3;", (0x80000000, 0x00210000, 1), 0x40000001),
        ("vset.s32.u32.lt r0.b3, r1, r2, r3;", (0xFFFFFFFF, 0, 0x22222222), 0x01222222),
        ("vmad.u32.u32.u32.sat r0, r1, r2, r3;", (0x10000, 0x10000, 0), 0xFFFFFFFF),
        ("vmad.u32.u32.u32.sat r0, -r1, r2, r3;", (0xFFFFFFFF, 0xFFFFFFFF, 0), 0x80000000),
        ("vmad.u32.u32.u32.shr15 r0, r1, r2, r3;", (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), 0xFFFE0000),
        ("vmad.u32.u32.u32.po.shr7 r0, r1.b0, r2.b1, r3;", (128, 0x100, 127), 2),
        ("vmad.s32.s32.s32 r0, r1, r2, -r3;", (7, 6, 2), 40),
        ("vavrg4.s32.s32.s32 r0, r1, r2, r3;", (0x01FF00FE, 0x02FE00FF, 0), 0x02FE00FE),
        ("vadd4.u32.u32.u32.add r0.b31, r1, r2.b0000, r3;", (0x04030201, 0, 100), 100 + 5 + 3),
        ("vset2.u32.u32.ge r0.h1, r1.h33, r2.h00, r3;", (5, 0x00050000, 0x1234), 0x00011234),
    ],
)  # fmt: skip
def test_by_hand(line: str, words: tuple[int, ...], expected: int) -> None:
    loads = "".join(f"mov.u32 r{index + 1}, {word};" for index, word in enumerate(words))
    text = (
        f"{HEAD}.visible .entry k(.param .u64 to) {{ .reg .b32 r<4>; .reg .b64 l;\nld.param.u64 l, [to]; {loads}\n{line}\n"
        "st.global.u32 [l], r0; ret; }"
    )
    module = ge.parse(text, path="video.ptx")
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        target = device.zeros(1, np.uint32)
        device.launch(module["k"], grid=1, block=1, args=[target])
        assert hex(target.numpy()[0]) == hex(expected), backend
