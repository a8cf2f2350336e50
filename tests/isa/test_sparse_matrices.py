"""Products with a sparse A, of narrow types and with scaled blocks, against a loop over the manual's fragments, on both backends."""

from __future__ import annotations

import itertools
import math
import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms
from tests.isa.sample import sampled

Words = npt.NDArray[np.uint64]
#: bits that an element takes, its own bits, the lowest of them, and where its value can be looked up
ELEMENTS = {
    "f16": (16, 16, 0, np.float16),
    "bf16": (16, 16, 0, ml_dtypes.bfloat16),
    "e4m3": (8, 8, 0, ml_dtypes.float8_e4m3fn),
    "e5m2": (8, 8, 0, ml_dtypes.float8_e5m2),
    "e2m3": (8, 6, 0, ml_dtypes.float6_e2m3fn),
    "e3m2": (8, 6, 0, ml_dtypes.float6_e3m2fn),
    "e2m1": (8, 4, 2, ml_dtypes.float4_e2m1fn),
    "close e2m1": (4, 4, 0, ml_dtypes.float4_e2m1fn),
}


@dataclass(frozen=True)
class Case:
    """One opcode, taken apart."""

    opcode: str

    @property
    def words(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def depth(self) -> int:
        return int(re.findall(r"m16n8k(\d+)", self.opcode)[0])

    @property
    def types(self) -> list[str]:
        known = (*ELEMENTS, "tf32", "f32", "s32", "u8", "s8", "u4", "s4")
        found = [word for word in self.words if word in known][:4]
        if "mxf4" in self.opcode:
            found[1:3] = ["close e2m1"] * 2
        return found

    @property
    def sparse(self) -> bool:
        return self.words[1].startswith("sp")

    @property
    def ordered(self) -> bool:
        return self.words[1] == "sp::ordered_metadata"

    @property
    def scales(self) -> int:
        if "block_scale" not in self.words:
            return 0
        found = re.findall(r"scale_vec::(\d)X", self.opcode)
        return int(found[0]) if found else 2 if "kind::mxf4" in self.words else 1

    @property
    def bits(self) -> int:
        kind = self.types[1]
        return ELEMENTS[kind][0] if kind in ELEMENTS else 32 if kind == "tf32" else int(kind[1:])

    @property
    def threads(self) -> int:
        """Threads of a quad that hold metadata, as the manual lists them by shape and type."""
        return {
            (16, 16): 1, (16, 32): 2, (32, 8): 1, (32, 16): 2,
            (8, 32): 2, (4, 64): 2, (8, 64): 4, (4, 128): 4,
        }[self.bits, self.depth]  # fmt: skip


def cases() -> Iterator[Case]:
    """All opcodes that ``test_matrices`` leaves out."""
    for row in rows():
        if row.name == "mma" and (row.checked is not None or "kind::" in row.syntax):
            for form in forms(row, 200):
                yield Case(form.opcode)


CASES = {case.opcode: case for case in cases()}


def few() -> list[str]:
    """Of each shape and kind two pairs of types, among them different ones."""
    groups: dict[str, list[str]] = {}
    for opcode in CASES:
        plain = re.sub(r"\.(e\dm\d|[su][48])(?=\.)", ".T", opcode)
        groups.setdefault(plain, []).append(opcode)
    return [
        opcode
        for group in groups.values()
        for opcode in sorted({group[0], group[min(len(group) - 1, len(group) // 2 + 1)]})
    ]


def decoded(pattern: int, kind: str) -> float:
    """The value of an element."""
    if kind in ELEMENTS:
        _, own, low, type = ELEMENTS[kind]
        code = pattern >> low & (1 << own) - 1
        return float(np.array([code], f"u{max(1, own // 8)}").view(type)[0])
    if kind == "tf32":
        return float(struct.unpack("<f", struct.pack("<I", pattern & 0xFFFFE000))[0])
    bits = int(kind[1:])
    return pattern - (1 << bits) if kind[0] == "s" and pattern >> (bits - 1) else pattern


def pattern_of(rng: random.Random, kind: str, edges: bool) -> int:
    """Bits of a random element: any, or such that sums stay moderate."""
    bits = ELEMENTS[kind][0] if kind in ELEMENTS else 32 if kind == "tf32" else int(kind[1:])
    if edges or bits <= 8:
        return rng.getrandbits(bits)
    value = rng.uniform(-4, 4)
    if kind == "tf32":
        return int.from_bytes(struct.pack("<f", value), "little")
    return int(np.array([value]).astype(ELEMENTS[kind][3]).view(np.uint16)[0])


class Product:
    """Random matrices of one case, as the words that the lanes hold, and the product."""

    def __init__(self, case: Case, seed: int, edges: bool = False) -> None:
        self.case, rng = case, random.Random(seed)
        _, a, b, c = case.types
        stored = case.depth // 2 if case.sparse else case.depth
        self.left = [[pattern_of(rng, a, edges) for _ in range(stored)] for _ in range(16)]
        self.right = [[pattern_of(rng, b, edges) for _ in range(8)] for _ in range(case.depth)]
        self.added = [[self._added(rng, c, edges) for _ in range(8)] for _ in range(16)]
        self.selector = rng.randrange(4 // case.threads) if case.sparse else 0
        self.places = [self._places(rng) for _ in range(16)] if case.sparse else []
        self.rng = rng

    @staticmethod
    def _added(rng: random.Random, kind: str, edges: bool) -> int:
        if kind == "s32":
            return rng.getrandbits(32)
        bits = 16 if kind == "f16" else 32
        if edges and rng.random() < 0.3:
            return rng.getrandbits(bits)
        value = rng.uniform(-8, 8)
        return int.from_bytes(struct.pack("<e" if bits == 16 else "<f", value), "little")

    def _places(self, rng: random.Random) -> list[tuple[int, list[int]]]:
        """Of one row, group by group of stored elements: the bits of metadata, and the columns of the elements."""
        case, found = self.case, []
        if case.bits == 32:
            for group in range(case.depth // 2):
                column = rng.randrange(2)
                found.append(((0b0100, 0b1110)[column], [2 * group + column]))
            return found
        size = 8 if case.bits == 4 else 4
        for group in range(case.depth // size):
            pair = rng.sample(range(4), 2)
            if case.ordered:
                pair.sort()
            columns = [size * group + place for place in pair]
            if case.bits == 4:
                columns = [size * group + 2 * place + odd for place in pair for odd in (0, 1)]
            found.append((pair[0] | pair[1] << 2, columns))
        return found

    def metadata(self) -> list[int]:
        """A word for each lane; those that the selector leaves out hold something that means nothing."""
        case = self.case
        words = [0] * 32
        rows = [sum(bits << 4 * place for place, (bits, _) in enumerate(row)) for row in self.places]
        first = self.selector * case.threads
        for group in range(8):
            low, high = rows[group], rows[group + 8]
            quad = 4 * group + first
            if (
                case.bits >= 16
            ):  # 16 bits of row g, then 16 of row g + 8; the next thread has the next 16 columns (tf32: 8)
                for thread in range(case.threads):
                    words[quad + thread] = low >> 16 * thread & 0xFFFF | (high >> 16 * thread & 0xFFFF) << 16
            else:  # 32 bits of row g, the next thread those of row g + 8, and the same of the next columns
                for thread in range(case.threads):
                    words[quad + thread] = (high if thread % 2 else low) >> 32 * (thread // 2) & 0xFFFFFFFF
        return words

    def words(self) -> Words:
        """(32, registers): a, b, c, then metadata."""
        case = self.case
        c = case.types[3]
        per = 32 // case.bits
        made = np.zeros((32, 24), np.uint64)
        stored = len(self.left[0])
        for lane in range(32):
            group, inner = lane // 4, lane % 4
            registers = []
            for register in range(16 * stored // 32 // per):
                row, block = group + 8 * (register % 2), register // 2
                columns = [(4 * block + inner) * per + place for place in range(per)]
                registers.append(join([self.left[row][column] for column in columns], case.bits))
            for register in range(8 * case.depth // 32 // per):
                lines = [(4 * register + inner) * per + place for place in range(per)]
                registers.append(join([self.right[line][group] for line in lines], case.bits))
            sums = [self.added[group + 8 * (place // 2)][2 * inner + place % 2] for place in range(4)]
            registers += [join(sums[:2], 16), join(sums[2:], 16)] if c == "f16" else sums
            if case.sparse:
                registers.append(self.metadata()[lane])
            made[lane, : len(registers)] = registers
        return made

    def scale(self) -> tuple[list[list[int]], list[list[int]]]:
        """Codes of scales: of 16 rows and 8 columns."""
        ue8m0 = ".ue8m0" in self.case.opcode
        low, high = (110, 144) if ue8m0 else (0, 127)

        rows_, columns = (
            [[self.rng.randrange(low, high) for _ in range(self.case.scales)] for _ in range(lines)]
            for lines in (16, 8)
        )
        return rows_, columns

    def result(
        self, scales: tuple[list[list[int]], list[list[int]]] | None = None
    ) -> list[list[int | float]]:
        """What d must be: for floats the documented order of sums, in double precision, rounded once."""
        case = self.case
        d, a, b, c = case.types
        found: list[list[int | float]] = []
        for row in range(16):
            columns = (
                [column for _, part in self.places[row] for column in part]
                if case.sparse
                else list(range(case.depth))
            )
            line: list[int | float] = []
            for column in range(8):
                total = start(self.added[row][column], c)
                for stored, k in enumerate(columns):
                    x, y = decoded(self.left[row][stored], a), decoded(self.right[k][column], b)
                    if scales is not None:
                        part = k * case.scales // case.depth
                        x *= scale_of(scales[0][row][part], case.opcode)
                        y *= scale_of(scales[1][column][part], case.opcode)
                    if math.isfinite(x) and math.isfinite(y):
                        assert Fraction(x) * Fraction(y) == Fraction(x * y)
                    total = total + x * y
                line.append(finish(total, d, "satfinite" in case.words))
            found.append(line)
        return found


def join(pieces: list[int], bits: int) -> int:
    return sum(piece << bits * place for place, piece in enumerate(pieces))


def scale_of(code: int, opcode: str) -> float:
    type = ml_dtypes.float8_e8m0fnu if ".ue8m0" in opcode else ml_dtypes.float8_e4m3fn
    return float(np.array([code], np.uint8).view(type)[0])


def start(bits: int, kind: str) -> int | float:
    if kind == "s32":
        return bits - (1 << 32) if bits >> 31 else bits
    if kind == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def finish(total: int | float, kind: str, limited: bool) -> int | float:
    if kind == "s32":
        whole = int(total)
        if limited:
            return max(-(1 << 31), min((1 << 31) - 1, whole))
        return (whole + (1 << 31)) % (1 << 32) - (1 << 31)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.float64(total).astype(np.float16 if kind == "f16" else np.float32))


def module(case: Case, selector: int, before: str = "") -> str:
    """Loads 24 words of each lane, 8 bytes apart, and stores four; the words of scales follow those of metadata."""
    d, _, _, c = case.types
    stored = case.depth // 2 if case.sparse else case.depth
    counts = [16 * stored * case.bits // 1024, 8 * case.depth * case.bits // 1024, 2 if c == "f16" else 4]
    float_sums = d == "f32"
    body, operands, place = [], [], 0
    result = [f"%{'f' if float_sums else 'd'}{i}" for i in range(counts[2])]
    for index, count in enumerate(counts):
        names = []
        for _ in range(count):
            names.append(f"%{'g' if index == 2 and float_sums else 'r'}{place}")
            body.append(f"ld.global.b32 {names[-1]}, [%in+{8 * place}];")
            place += 1
        operands.append("{" + ", ".join(names) + "}")
    if case.sparse:
        body.append(f"ld.global.b32 %r{place}, [%in+{8 * place}];")
        operands += [f"%r{place}", str(selector)]
        place += 1
    if case.scales:
        for _ in range(2):
            for offset, kind in enumerate(("b32", "u16", "u16")):
                body.append(
                    f"ld.global.{kind} %{'r' if kind == 'b32' else 'h'}{place + offset}, [%in+{8 * (place + offset)}];"
                )
            operands += [f"%r{place}", f"{{%h{place + 1}, %h{place + 2}}}"]
            place += 3
    body += [before, f"{case.opcode} {{{', '.join(result)}}}, {', '.join(operands)};"]
    body += [f"st.global.b32 [%out+{8 * i}], {name};" for i, name in enumerate(result)]
    return f""".version 9.1
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
.reg .b64 %in, %out; .reg .b32 %r<24>, %d<4>, %t, %m; .reg .f32 %f<4>, %g<24>; .reg .b16 %h<24>; .reg .pred %p;
mov.u32 %t, %tid.x;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mad.wide.u32 %in, %t, 192, %in;
mad.wide.u32 %out, %t, 32, %out;
{chr(10).join(body)}
ret;
}}
"""


def run(case: Case, words: Words, selector: int, backend: str) -> npt.NDArray[np.uint64]:
    device = ge.Device(backend=backend)
    given, out = device.array(words), device.zeros((32, 4), np.uint64)
    kernel = ge.parse(module(case, selector), path="mma.ptx")["k"]
    device.launch(kernel, grid=1, block=32, args=[given, out])
    if backend == "llvm":
        assert kernel.memo["llvm"] is not None
    return out.numpy()


def matrix(case: Case, found: npt.NDArray[np.uint64]) -> list[list[int | float]]:
    """d from the registers."""
    d = case.types[0]
    made: list[list[int | float]] = [[math.nan] * 8 for _ in range(16)]
    for lane in range(32):
        for place in range(4):
            if d == "f16":
                bits = int(found[lane, place // 2]) >> 16 * (place % 2) & 0xFFFF
            else:
                bits = int(found[lane, place])
            made[lane // 4 + 8 * (place // 2)][2 * (lane % 4) + place % 2] = start(bits, d)
    return made


def same(found: list[list[int | float]], expected: list[list[int | float]]) -> None:
    for one, other in zip(itertools.chain(*found), itertools.chain(*expected)):
        assert one == other or (one != one and other != other), (found, expected)
        assert math.copysign(1, one) == math.copysign(1, other) or one != one


def scaled_words(product: Product, words: Words) -> tuple[Words, tuple[list[list[int]], list[list[int]]]]:
    """Adds scales and their selectors. Threads that are not chosen hold other factors."""
    case, rng = product.case, product.rng
    rows_, columns = product.scale()
    byte = [rng.randrange(4) if case.scales == 1 else rng.choice((0, 2)) if case.scales == 2 else 0 for _ in range(2)]  # fmt: skip
    thread = [rng.randrange(2), rng.randrange(4)]
    first = 13 if case.sparse else 10
    for lane in range(32):
        group, inner = lane // 4, lane % 4
        held = [rng.getrandbits(32), rng.getrandbits(32)]
        lines = [
            rows_[group + 8 * (inner % 2)] if inner // 2 == thread[0] else None,
            columns[group] if inner == thread[1] else None,
        ]
        for side, line in enumerate(lines):
            if line is not None:
                held[side] = (
                    int.from_bytes(
                        bytes(rng.getrandbits(8) for _ in range(byte[side])) + bytes(line) + bytes(4),
                        "little",
                    )
                    & 0xFFFFFFFF
                )
        words[lane, first : first + 6] = [held[0], byte[0], thread[0], held[1], byte[1], thread[1]]
    return words, (rows_, columns)


@pytest.mark.parametrize("opcode", CASES)
def test_every_product_on_the_reference_backend(opcode: str) -> None:
    check(CASES[opcode], "reference", 1)


@pytest.mark.parametrize("opcode", sampled(few(), 3))
def test_products_of_each_shape_on_the_native_backend(opcode: str) -> None:
    for seed in range(3):
        check(CASES[opcode], "llvm", seed, edges=seed == 2)


def check(case: Case, backend: str, seed: int, edges: bool = False) -> None:
    product = Product(case, seed, edges)
    words, scales = product.words(), None
    if case.scales:
        words, scales = scaled_words(product, words)
    same(matrix(case, run(case, words, product.selector, backend)), product.result(scales))


REFUSED = {
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": [0x44444440, 0x44445444, 0xA4444444, 0x4444444F],
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": [0x44444441, 0x64444444],
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32": [0x44444442, 0xB4444444],
    "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": [0x44444448, 0x44444445, 0xC4444444, 0x44444446],
}


@pytest.mark.parametrize("opcode", REFUSED)
def test_metadata_that_means_nothing_is_an_error(backend: str, opcode: str) -> None:
    case = CASES[opcode]
    for wrong in REFUSED[opcode]:
        words = np.zeros((32, 24), np.uint64)
        place = 8 if case.threads == 1 else 12
        words[:, place] = 0x44444444
        run(case, words, 0, backend)
        words[8 + case.threads - 1, place] = wrong
        with pytest.raises(ge.EngineError, match=r"mma.ptx:\d+:\d+: mma.sp.*: sparsity metadata") as caught:
            run(case, words, 0, backend)
        assert f"thread ({8 + case.threads - 1}, 0, 0)" in str(caught.value)
        if case.threads == 1:  # another selector chooses other threads
            words[:, place] = 0x44444444
            words[8, place] = wrong
            run(case, words, 1, backend)


def test_selectors_that_mean_nothing_are_errors(backend: str) -> None:
    case = CASES["mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"]
    words = np.full((32, 24), 0x44444444, np.uint64)
    with pytest.raises(ge.EngineError, match="selector"):
        run(case, words, 2, backend)
    scaled = CASES["mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"]
    for place, wrong in ((11, 1), (12, 2), (14, 3), (15, 4)):
        words = np.zeros((32, 24), np.uint64)
        run(scaled, words, 0, backend)
        words[:, place] = wrong
        with pytest.raises(ge.EngineError, match="selector of scale factors"):
            run(scaled, words, 0, backend)


def test_what_is_not_stored_is_not_multiplied(backend: str) -> None:
    """Infinity in B where A has no element leaves the sum as it is."""
    case = CASES["mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    product = Product(case, 3)
    product.places = [[(0b0100, [4 * group, 4 * group + 1]) for group in range(4)] for _ in range(16)]
    for k in range(16):
        if k % 4 >= 2:
            product.right[k] = [0x7C00] * 8
    found = matrix(case, run(case, product.words(), product.selector, backend))
    same(found, product.result())
    assert all(math.isfinite(value) for row in found for value in row)


def test_a_scale_that_is_no_number_spoils_its_row(backend: str) -> None:
    case = CASES["mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e2m1.e3m2.f32.ue8m0"]
    product = Product(case, 5)
    words, _ = scaled_words(product, product.words())
    words[:, 10:16] = [0x7F, 0, 0, 0x7F, 0, 0]
    words[4 * 3 + 1, 10] = 0xFF
    found = matrix(case, run(case, words, 0, backend))
    assert [all(value != value for value in row) for row in found] == [row == 11 for row in range(16)]
