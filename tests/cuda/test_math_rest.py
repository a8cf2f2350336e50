"""What is left of the math library: extremes of integers, special values, arithmetic on pairs of single-precision numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.isa.test_mixed_semantics import arithmetic

from .running import Array, run

MODES = ("rn", "rz", "rm", "rp")


def test_integers() -> None:
    values = [
        0,
        1,
        -1,
        2**31 - 1,
        -(2**31),
        2**32 - 1,
        2**63 - 1,
        -(2**63),
        0x0123456789ABCDEF,
        -5,
        77,
        2**40,
    ]
    x = np.array([a for a in values for _ in values][:128], np.int64)
    y = np.array([b for _ in values for b in values][:128], np.int64)
    (_, _, out), _ = run("math_rest", "integer_rest", 1, 128, [x, y, np.zeros((13, 128), np.uint64)])
    full = (1 << 64) - 1
    for place, (a, b) in enumerate(zip(x.tolist(), y.tolist())):
        u, v, low, other = a & full, b & full, a & 0xFFFFFFFF, b & 0xFFFFFFFF
        signed, second = (word - (word >> 31 << 32) for word in (low, other))
        wanted = [
            abs(a), max(a, b), min(a, b), min(u, v), max(u, v), min(low, other), max(low, other),
            max(signed, second), min(signed, second),
            low, int.from_bytes((a & 0xFFFF).to_bytes(2, "little"), "big"), int.from_bytes(low.to_bytes(4, "little"), "big"),
            int.from_bytes(u.to_bytes(8, "little"), "big"),
        ]  # fmt: skip
        assert out[:, place].tolist() == [word & full for word in wanted], (a, b)


def test_floats() -> None:
    x = np.array(
        [
            0.0,
            -0.0,
            0.25,
            -1.5,
            3.0,
            20.0,
            -20.0,
            1e-6,
            math.inf,
            -math.inf,
            2.5,
            -2.5,
            3.5,
            100.49,
            -7.75,
            0.5,
        ],
        np.float32,
    )
    y = np.array(
        [1.0, 2.0, 3.0, -4.0, 7.0, 0.0, 5.0, 0.1, 2.0, 3.0, 10.0, -20.0, 1.0, 2.0, 3.0, 6.0], np.float32
    )
    (_, _, out), _ = run("math_rest", "float_rest", 1, 16, [x, y, np.zeros((7, 16), np.uint32)])
    single = out.view(np.float32)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(single[0], np.tanh(x.astype(np.float64)), rtol=2**-10.9, atol=0)
        np.testing.assert_allclose(single[1], (x / y), rtol=2**-22)
    assert (np.signbit(single[0]) == np.signbit(x)).all()
    assert np.isnan(single[2]).all()
    assert ((out[3] & 0x7FF80000) == 0x7FF80000).all()
    with np.errstate(over="ignore"):
        assert (single[4] == np.ldexp(x, y.astype(np.int32))).all()
    finite = np.isfinite(x)
    assert (out[5].view(np.int32) == np.rint(np.where(finite, x, 0)))[finite].all()
    away = np.copysign(np.floor(np.abs(np.where(finite, x, 0)) + 0.5), x)
    assert (out[6].view(np.int32) == away)[finite].all()


def test_pairs_of_singles() -> None:
    rng = np.random.default_rng(4)
    x, y, z = (rng.uniform(-2, 2, (3, 64)) * 2.0 ** rng.integers(-30, 30, (3, 64))).astype(np.float32)
    x[:8], y[:8] = 3, [1 / 3, 7, 1e-3, -5, 1e30, 1e-30, math.inf, 0]
    z[8:16] = -x[8:16] * y[8:16]
    (*_, out), _ = run("math_rest", "pairs_of_singles", 1, 32, [x, y, z, np.zeros((12, 64), np.float32)])
    words = [v.view(np.uint32).tolist() for v in (x, y, z)]
    for operation, name in enumerate(("add", "mul", "fma")):
        for place, mode in enumerate(MODES):
            found = out[4 * operation + place].view(np.uint32).tolist()
            for index, got in enumerate(found):
                given = [("f32", word[index]) for word in words[: 3 if name == "fma" else 2]]
                assert got == arithmetic(name, given, "f32", mode), (name, mode, index)


def test_doubles_with_a_mode() -> None:
    """dadd and its like, which take the rounding as an argument."""
    x = np.array([1.0, -1.0, 1 / 3, 1e16, -2.5, 0.1, 3.7, -3.7], np.float64)
    y = np.array([2.0**-60, 2.0**-60, 3.0, 1.0, 7.0, 0.2, -1e-20, 1e-20], np.float64)
    (_, _, out), _ = run("math_rest", "double_modes", 1, 8, [x, y, np.zeros((26, 8), np.uint64)])
    words = [v.view(np.uint64).tolist() for v in (x, y)]
    for operation, name in enumerate(("add", "sub", "mul", "fma")):
        for place, mode in enumerate(("rz", "rp")):
            for index, got in enumerate(out[2 * operation + place].tolist()):
                a, b = (("f64", word[index]) for word in words)
                given = [a, b, a] if name == "fma" else [a, b]
                assert got == arithmetic(name, given, "f64", mode), (name, mode, index)
    for place, bits in enumerate((32, 32, 64, 64)):
        for offset, whole in ((0, math.floor), (1, math.ceil)):
            low = 0 if place % 2 else -(1 << bits - 1)
            top = low + (1 << bits) - 1
            wanted = [max(low, min(top, whole(value))) & ((1 << bits) - 1) for value in x.tolist()]
            assert (out[8 + 2 * place + offset] & np.uint64((1 << bits) - 1)).tolist() == wanted, (
                bits,
                place,
            )
    assert out[16].view(np.float64).tolist() == [
        float(max(-(2**31), min(2**31 - 1, int(v)))) for v in x.tolist()
    ]
    assert out[18:22].view(np.float64).tolist() == [[7.0] * 8] * 4


NAN = math.nan
INF = math.inf
#: value at +0, −0, +∞, −∞ (C standard, annex F; CUDA Math API); None: see the test
SPECIAL: dict[str, tuple[float, float, float, float]] = {
    "acos": (math.pi / 2, math.pi / 2, NAN, NAN), "acosh": (NAN, NAN, INF, NAN), "asin": (0.0, -0.0, NAN, NAN),
    "asinh": (0.0, -0.0, INF, -INF), "atan": (0.0, -0.0, math.pi / 2, -math.pi / 2), "atanh": (0.0, -0.0, NAN, NAN),
    "cbrt": (0.0, -0.0, INF, -INF), "cos": (1.0, 1.0, NAN, NAN), "cosh": (1.0, 1.0, INF, INF), "cospi": (1.0, 1.0, NAN, NAN),
    "cyl_bessel_i0": (1.0, 1.0, INF, INF), "cyl_bessel_i1": (0.0, -0.0, INF, -INF), "erf": (0.0, -0.0, 1.0, -1.0),
    "erfc": (1.0, 1.0, 0.0, 2.0), "erfcinv": (INF, INF, NAN, NAN), "erfcx": (1.0, 1.0, 0.0, INF), "erfinv": (0.0, -0.0, NAN, NAN),
    "exp": (1.0, 1.0, INF, 0.0), "exp2": (1.0, 1.0, INF, 0.0), "exp10": (1.0, 1.0, INF, 0.0), "expm1": (0.0, -0.0, INF, -1.0),
    "j0": (1.0, 1.0, 0.0, 0.0), "j1": (0.0, -0.0, 0.0, -0.0), "lgamma": (INF, INF, INF, INF), "log": (-INF, -INF, INF, NAN),
    "log10": (-INF, -INF, INF, NAN), "log1p": (0.0, -0.0, INF, NAN), "log2": (-INF, -INF, INF, NAN), "normcdf": (0.5, 0.5, 1.0, 0.0),
    "normcdfinv": (-INF, -INF, NAN, NAN), "rcbrt": (INF, -INF, 0.0, -0.0), "rsqrt": (INF, -INF, 0.0, NAN),
    "sin": (0.0, -0.0, NAN, NAN),
    "sinh": (0.0, -0.0, INF, -INF), "sinpi": (0.0, -0.0, NAN, NAN), "sqrt": (0.0, -0.0, INF, NAN), "tan": (0.0, -0.0, NAN, NAN),
    "tanh": (0.0, -0.0, 1.0, -1.0), "tgamma": (INF, -INF, INF, NAN), "y0": (-INF, -INF, 0.0, NAN), "y1": (-INF, -INF, 0.0, NAN),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, dtype: Any) -> None:
    file, suffix = ("math_single", "f") if dtype is np.float32 else ("math_double", "")
    x: Array = np.array([0.0, -0.0, INF, -INF, NAN], dtype)
    (_, found), _ = run(file, f"k_{name}{suffix}", 1, 5, [x, np.zeros_like(x)])
    wanted = np.array([*SPECIAL[name], NAN], dtype)
    with np.errstate(invalid="ignore"):
        close = np.abs(found - wanted) <= 2 * np.spacing(np.abs(wanted))
    same = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    same |= (np.isnan(found) & np.isnan(wanted)) | (close & np.isfinite(wanted) & (wanted != 0))
    assert same.all(), (name, found, wanted)
