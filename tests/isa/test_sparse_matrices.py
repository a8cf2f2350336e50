"""Products with a sparse A, of narrow types and with scaled blocks, against a loop over the manual's fragments, on both backends."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.table import rows
from gpuperf_engine.jit.compiled import Code
from tests.isa.assembler import forms
from tests.isa.sample import sampled
from tests.support import compiled

Words = npt.NDArray[np.uint64]
#: codes of scales: of 16 rows and of 8 columns
Scales = tuple[list[list[int]], list[list[int]]]
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
        if row.name == "mma" and (row.applied.checked is not None or "kind::" in row.syntax):
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


def wide(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(np.float64)


def decoded(patterns: npt.ArrayLike, kind: str) -> npt.NDArray[Any]:
    """The values of elements: int64, or float64, which holds each exactly."""
    codes = np.asarray(patterns, np.uint64)
    if kind in ELEMENTS:
        _, own, low, type = ELEMENTS[kind]
        codes = codes >> np.uint64(low) & np.uint64((1 << own) - 1)
        return wide(codes.astype(f"u{max(1, own // 8)}").view(type))
    if kind == "tf32":
        return wide((codes & np.uint64(0xFFFFE000)).astype(np.uint32).view(np.float32))
    bits, values = int(kind[1:]), codes.astype(np.int64)
    return np.where(values >> (bits - 1), values - (1 << bits), values) if kind[0] == "s" else values


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

    def __init__(self, case: Case, seed: int, edges: bool = False, selector: int | None = None) -> None:
        self.case, rng = case, random.Random(seed)
        _, a, b, c = case.types
        stored = case.depth // 2 if case.sparse else case.depth
        self.left = [[pattern_of(rng, a, edges) for _ in range(stored)] for _ in range(16)]
        self.right = [[pattern_of(rng, b, edges) for _ in range(8)] for _ in range(case.depth)]
        self.added = [[self._added(rng, c, edges) for _ in range(8)] for _ in range(16)]
        self.selector = rng.randrange(4 // case.threads) if case.sparse else 0
        if selector is not None:
            self.selector = selector
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

    def scale(self) -> Scales:
        """Codes of scales: of 16 rows and 8 columns."""
        ue8m0 = ".ue8m0" in self.case.opcode
        low, high = (110, 144) if ue8m0 else (0, 127)

        rows_, columns = (
            [[self.rng.randrange(low, high) for _ in range(self.case.scales)] for _ in range(lines)]
            for lines in (16, 8)
        )
        return rows_, columns

    def result(self, scales: Scales | None = None) -> npt.NDArray[Any]:
        """What d must be, (16, 8): for floats the documented order of sums, in double precision, rounded once.

        No product is rounded before: factors have at most 11 significant bits, scales 4.
        """
        case = self.case
        d, a, b, c = case.types
        x, y, total = decoded(self.left, a), decoded(self.right, b), start(self.added, c)
        columns = np.broadcast_to(np.arange(case.depth), (16, case.depth))
        if case.sparse:
            columns = np.array([[column for _, part in row for column in part] for row in self.places])
        if scales is not None:
            rows_, columns_ = (scale_of(codes, case.opcode) for codes in scales)
            x = x * np.take_along_axis(rows_, columns * case.scales // case.depth, 1)
            y = y * np.repeat(columns_, case.depth // case.scales, 1).T
        with np.errstate(invalid="ignore"):
            for stored, ks in enumerate(columns.T):
                total = total + x[:, stored, None] * y[ks]
        return finish(total, d, "satfinite" in case.words)


def join(pieces: list[int], bits: int) -> int:
    return sum(piece << bits * place for place, piece in enumerate(pieces))


def scale_of(codes: npt.ArrayLike, opcode: str) -> npt.NDArray[np.float64]:
    type = ml_dtypes.float8_e8m0fnu if ".ue8m0" in opcode else ml_dtypes.float8_e4m3fn
    return np.asarray(codes, np.uint8).view(type).astype(np.float64)


def start(patterns: npt.ArrayLike, kind: str) -> npt.NDArray[Any]:
    """The values of sums."""
    codes = np.asarray(patterns, np.uint64).astype(np.uint16 if kind == "f16" else np.uint32)
    if kind == "s32":
        return codes.view(np.int32).astype(np.int64)
    return wide(codes.view(np.float16 if kind == "f16" else np.float32))


def finish(total: npt.NDArray[Any], kind: str, limited: bool) -> npt.NDArray[Any]:
    if kind == "s32":
        return np.clip(total, -(1 << 31), (1 << 31) - 1) if limited else total.astype(np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        return total.astype(np.float16 if kind == "f16" else np.float32).astype(np.float64)


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
    """Each warp with 32 rows of words."""
    device = ge.Device(backend=backend)
    given, out = device.array(words), device.zeros((len(words), 4), np.uint64)
    kernel = ge.parse(module(case, selector), path="mma.ptx")["k"]
    device.launch(kernel, grid=1, block=len(words), args=[given, out])
    if backend == "llvm":
        assert isinstance(compiled(kernel), Code)
    return out.numpy()


def matrix(case: Case, found: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """d from the registers of a warp, (16, 8)."""
    d = case.types[0]
    if d == "f16":
        found = np.stack([found[:, place // 2] >> np.uint64(16 * (place % 2)) for place in range(4)], 1)
    values = start(found & np.uint64(0xFFFF if d == "f16" else 0xFFFFFFFF), d)
    # lane 4 g + t holds elements (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1)
    return values.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)


def same(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Equal, NaN where NaN is expected, and zeros with their signs."""
    assert found.shape == expected.shape and np.array_equal(found, expected, equal_nan=True)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def scaled_words(product: Product, words: Words) -> tuple[Words, Scales]:
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


@pytest.mark.parametrize("opcode", sampled(CASES, 2))
def test_products_on_the_reference_backend(opcode: str) -> None:
    check(CASES[opcode], "reference", [Product(CASES[opcode], 1)])


@pytest.mark.parametrize("opcode", sampled(few(), 3))
def test_products_of_each_shape_on_the_native_backend(opcode: str) -> None:
    """A warp for each of three products with one selector."""
    case, selector = CASES[opcode], Product(CASES[opcode], 0).selector
    check(case, "llvm", [Product(case, seed, seed == 2, selector) for seed in range(3)])


def check(case: Case, backend: str, products: list[Product]) -> None:
    words, expected = [], []
    for product in products:
        held, scales = scaled_words(product, product.words()) if case.scales else (product.words(), None)
        words.append(held)
        expected.append(product.result(scales))
    found = run(case, np.concatenate(words), products[0].selector, backend)
    for warp, result in enumerate(expected):
        same(matrix(case, found[32 * warp : 32 * warp + 32]), result)


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
    assert np.isfinite(found).all()


def test_a_scale_that_is_no_number_spoils_its_row(backend: str) -> None:
    case = CASES["mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e2m1.e3m2.f32.ue8m0"]
    product = Product(case, 5)
    words, _ = scaled_words(product, product.words())
    words[:, 10:16] = [0x7F, 0, 0, 0x7F, 0, 0]
    words[4 * 3 + 1, 10] = 0xFF
    found = matrix(case, run(case, words, 0, backend))
    assert np.isnan(found).all(axis=1).tolist() == [row == 11 for row in range(16)]
