"""8-, 6- and 4-bit floating point of CUDA's headers, with instructions for them (sm_100a) and worked out on integers (sm_80):
both are ml_dtypes' numbers, and those of tables of exact fractions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.isa.narrow_numbers import FORMS, number, power, scale_of

from .running import Array, run

FILES = pytest.mark.parametrize("file", ["narrow", "narrow_software"])
#: in the order of the kernel's results
NAMES = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


def singles() -> Array:
    """256 numbers: those of the formats, what lies between them and beside, special ones."""
    rng = np.random.default_rng(2)
    found = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        448.0,
        464.0,
        465.0,
        57344.0,
        61440.0,
        1e30,
        -1e30,
        1e-30,
        2.0**-127,
        2.0**127,
    ]
    found += [
        7.5,
        7.75,
        28.0,
        30.0,
        6.0,
        7.0,
        5.0,
        0.25,
        0.75,
        2.5,
        2.0**-9,
        2.0**-10,
        1.5 * 2.0**-10,
        2.0**-16,
        2.0**-17,
    ]
    found += (rng.integers(-64, 64, 100) / 8.0).tolist()
    found += (rng.uniform(-1, 1, 256) * 2.0 ** rng.integers(-18, 18, 256)).tolist()
    with np.errstate(over="ignore"):
        made: Array = np.array(found[:256]).astype(np.float32)
    return made


def code(name: str, kind: str, pattern: int) -> int:
    top = 31 if kind == "f32" else 15
    return FORMS[name].encoded(number(kind, pattern), bool(pattern >> top))


def patterns(values: Array) -> dict[str, list[int]]:
    with np.errstate(over="ignore"):
        return {
            "f32": values.view(np.uint32).tolist(),
            "f16": values.astype(np.float16).view(np.uint16).tolist(),
            "bf16": values.astype(ml_dtypes.bfloat16).view(np.uint16).tolist(),
        }


@FILES
def test_to_narrow(file: str) -> None:
    x = singles()
    y = np.roll(x, 5)
    arrays = [x, y, np.zeros((8 * 5 + 6 * 2, 256), np.uint32)]
    (_, _, out), _ = run(file, "to_narrow", 2, 128, arrays)
    first, second = patterns(x), patterns(y)
    for form, name in enumerate(NAMES):
        for place, kind in enumerate(("f32", "f32", "f16", "bf16")):
            one = [code(name, kind, pattern) for pattern in first[kind]]
            other = [code(name, kind, pattern) for pattern in second[kind]]
            assert out[8 * form + place].tolist() == one, (name, kind)
            shift = 4 if name == "e2m1" else 8
            assert out[8 * form + 4 + place].tolist() == [a | b << shift for a, b in zip(one, other)], (
                name,
                kind,
            )
    for group, (rounding, finite) in enumerate((("rz", True), ("rp", False))):
        for place, kind in enumerate(("f32", "f32", "bf16")):
            one = [power(number(kind, pattern), rounding, finite) for pattern in first[kind]]
            other = [power(number(kind, pattern), rounding, finite) for pattern in second[kind]]
            assert out[40 + 6 * group + place].tolist() == one, (rounding, kind)
            assert out[43 + 6 * group + place].tolist() == [a | b << 8 for a, b in zip(one, other)], (
                rounding,
                kind,
            )


def halves(name: str, codes: Array) -> Array:
    """Patterns of f16; every NaN as 0x7fff."""
    values = codes.astype(np.uint8).view(DTYPES[name]).astype(np.float16)
    return np.where(np.isnan(values), 0x7FFF, values.view(np.uint16)).astype(np.uint32)


@FILES
def test_from_narrow(file: str) -> None:
    codes = np.arange(256)
    x = (codes | (codes * 91 + 17 & 0xFF) << 8).astype(np.uint32)
    (_, out), _ = run(file, "from_narrow", 2, 128, [x, np.zeros((12, 256), np.uint32)])
    low, high = x & 0xFF, x >> 8
    masks = {"e4m3": 0xFF, "e5m2": 0xFF, "e2m3": 0x3F, "e3m2": 0x3F, "e2m1": 0xF}
    for place, (name, mask) in enumerate(masks.items()):
        upper = low >> 4 if name == "e2m1" else high
        canonical = np.where((out[2 * place] & 0x7FFF) > 0x7C00, 0x7FFF, out[2 * place])
        assert (canonical == halves(name, low & mask)).all(), name
        for half, part in (
            (out[2 * place + 1] & 0xFFFF, low & mask),
            (out[2 * place + 1] >> 16, upper & mask),
        ):
            canonical = np.where((half & 0x7FFF) > 0x7C00, 0x7FFF, half)
            assert (canonical == halves(name, part)).all(), name
    powers = np.array([float(scale_of(int(c))) for c in range(256)]).astype(ml_dtypes.bfloat16)
    raw = np.where(np.isnan(powers), 0x7FFF, powers.view(np.uint16)).astype(np.uint32)
    assert (out[10] == raw[low]).all()
    assert (out[11] == (raw[low] | raw[high] << 16)).all()


@FILES
def test_classes(file: str) -> None:
    x = singles()
    (_, out), _ = run(file, "narrow_classes", 2, 128, [x, np.zeros((30, 256), np.uint32)])
    ordinary = ~np.isnan(x)
    given: dict[str, Any] = {"a": x, "minus": -x, "half": x * np.float32(0.5), "one": np.ones_like(x)}
    for form, name in enumerate(NAMES):
        step = 4 if name == "e2m1" else 8
        codes = {
            key: np.array([code(name, "f32", p) for p in value.view(np.uint32).tolist()], np.uint32)
            for key, value in given.items()
        }
        rows = out[6 * form : 6 * form + 6]
        pair = codes["a"] | codes["minus"] << step
        assert (rows[0] == codes["a"])[ordinary].all(), name
        assert (rows[1] == pair)[ordinary].all(), name
        assert (rows[2] == (pair | codes["half"] << 2 * step | codes["one"] << 3 * step))[ordinary].all(), (
            name
        )
        for row, key in ((3, "a"), (4, "minus"), (5, "half")):
            wanted = codes[key].astype(np.uint8).view(DTYPES[name]).astype(np.float32)
            assert (rows[row].view(np.float32) == wanted)[ordinary].all(), (name, key)
