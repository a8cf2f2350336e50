"""spcompress and spdecompress, against plain lists: the two of four that a comparison of numbers selects, and where they came from."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

import gpuperf_engine as ge

#: bits, code → NumPy's type; those of six bits are given in the low bits of bytes
TYPES = {
    (16, 0): np.float16, (16, 1): ml_dtypes.bfloat16, (8, 0): np.uint8, (8, 1): np.int8, (8, 2): ml_dtypes.float8_e5m2,
    (8, 3): ml_dtypes.float8_e4m3fn, (8, 4): ml_dtypes.float6_e3m2fn, (8, 5): ml_dtypes.float6_e2m3fn,
}  # fmt: skip
OPERATIONS = ("max", "maxabs", "min", "minabs")


def run(backend: str, instruction: str, inputs: int, outputs: int, given: np.ndarray) -> np.ndarray:
    """Registers ``%a`` from ``given`` (lanes × inputs), registers ``%d`` to the result."""
    loads = "".join(f"ld.global.b32 %a{place}, [%rd1+{4 * place}];\n" for place in range(inputs))
    stores = "".join(f"st.global.b32 [%rd2+{4 * place}], %d{place};\n" for place in range(outputs))
    text = f"""
.version 9.4
.target sm_107a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %a<{inputs + 1}>, %d<{outputs + 1}>, %t;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %rd1, %t, {4 * inputs}, %rd1;
    mad.wide.u32 %rd2, %t, {4 * outputs}, %rd2;
    {loads}{instruction}
    {stores}ret;
}}
"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    source, result = device.array(given), device.zeros(32 * outputs, np.uint32)
    device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [source, result])
    return result.numpy().reshape(32, outputs)


def listed(name: str, count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"%{name}{first + place}" for place in range(count)) + "}"


def bits_of(registers: Sequence[int], width: int) -> list[int]:
    whole = sum(int(register) << 32 * place for place, register in enumerate(registers))
    return [whole >> width * place & (1 << width) - 1 for place in range(32 * len(registers) // width)]


def packed(items: Sequence[int], width: int) -> list[int]:
    whole = sum(item << width * place for place, item in enumerate(items))
    return [whole >> 32 * place & 0xFFFFFFFF for place in range(max(1, math.ceil(len(items) * width / 32)))]


def order(code: int, bits: int, kind: int, operation: str) -> tuple[float, float]:
    """A key that is larger the sooner an element is taken: NaN first, and −0 below +0."""
    dtype = np.dtype(TYPES[bits, kind])
    raw = np.array([code & 63 if kind > 3 else code], np.uint16 if bits == 16 else np.uint8)
    value = float(raw.view(dtype)[0])
    if math.isnan(value):
        return math.inf, math.inf
    sign = 1.0 if np.signbit(value) else 0.0
    found = (abs(value), 0.0) if operation.endswith("abs") else (value, -sign)
    return (-found[0], -found[1]) if operation.startswith("min") else found


@pytest.mark.parametrize("operation", range(4))
@pytest.mark.parametrize(("bits", "kind"), TYPES)
def test_compress(bits: int, kind: int, operation: int, backend: str) -> None:
    """Where equal ones compete only their values are compared: which of them is taken is left open."""
    index, num = (2, 4) if operation % 2 else (4, 2)
    source = random.Random(f"{bits} {kind} {operation}")
    special = [
        0,
        1 << bits - 1,
        (1 << bits) - 1,
        0x7F,
        0x80,
        0x7C,
        0x7C00,
        0x7C01,
        0x7F81,
        0xFC00,
        0x20,
        0x3F,
    ]
    codes = [
        [
            source.choice(special) & (1 << bits) - 1 if source.random() < 0.3 else source.getrandbits(bits)
            for _ in range(2 * num * 32 // bits)
        ]
        for _ in range(32)
    ]
    given = np.array([[*packed(row, bits), operation | kind << 2] for row in codes], np.uint32)
    metadata = math.ceil(num * index / bits)
    found = run(
        backend,
        f"spcompress.b{bits}.b{index}.sp::2:4.x{num} {listed('d', metadata)}, {listed('d', num, metadata)}, "
        f"{listed('a', 2 * num)}, %a{2 * num};",
        2 * num + 1,
        metadata + num,
        given.reshape(-1),
    )
    for lane, row in enumerate(codes):
        indices, values = bits_of(found[lane][:metadata], index), bits_of(found[lane][metadata:], bits)
        assert not any(indices[len(row) // 2 :])
        for group in range(len(row) // 4):
            four = row[4 * group : 4 * group + 4]
            first, second = indices[2 * group : 2 * group + 2]
            assert first < second < 4
            assert values[2 * group : 2 * group + 2] == [four[first], four[second]]
            keys = [order(code, bits, kind, OPERATIONS[operation]) for code in four]
            assert sorted([keys[first], keys[second]]) == sorted(keys)[2:]


def test_types_that_do_not_fit(backend: str) -> None:
    given = np.full(32 * 3, 2 << 2, np.uint32)
    with pytest.raises(ge.TrapError, match="names no type of such elements"):
        run(backend, "spcompress.b16.b2.sp::2:4.x1 {%d0}, {%d1}, {%a0, %a1}, %a2;", 3, 2, given)


CASES = [
    (8, 2, 1, 2, 2), (8, 2, 1, 4, 8), (8, 2, 2, 4, 1), (8, 4, 4, 16, 2), (8, 4, 1, 16, 4), (8, 4, 2, 8, 16), (8, 4, 4, 8, 4),
    (16, 2, 1, 2, 1), (16, 2, 2, 4, 4), (16, 4, 1, 16, 1), (16, 4, 2, 16, 2), (16, 4, 2, 8, 8), (16, 4, 1, 4, 2),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "index", "few", "many", "num"), CASES)
def test_decompress(bits: int, index: int, few: int, many: int, num: int, backend: str) -> None:
    source = random.Random(f"{bits} {index} {few} {many}")
    places = [[spot for _ in range(num) for spot in source.sample(range(many), few)] for _ in range(32)]
    codes = [[source.getrandbits(bits) for _ in range(few * num)] for _ in range(32)]
    metadata, held = (math.ceil(few * width * num / 32) for width in (index, bits))
    given = np.array([[*packed(a, index), *packed(b, bits)] for a, b in zip(places, codes)], np.uint32)
    out = math.ceil(many * bits * num / 32)
    found = run(
        backend,
        f"spdecompress.b{bits}.b{index}.sp::{few}:{many}.x{num} {listed('d', out)}, {listed('a', metadata)}, "
        f"{listed('a', held, metadata)};",
        metadata + held,
        out,
        given.reshape(-1),
    )
    for lane in range(32):
        dense = [0] * (many * num)
        for group in range(num):
            for place in range(few * group, few * (group + 1)):
                dense[many * group + places[lane][place]] = codes[lane][place]
        assert bits_of(found[lane], bits)[: many * num] == dense
