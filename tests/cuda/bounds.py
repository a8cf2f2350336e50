"""What the CUDA math library promises, and the exact values to hold it against.

Errors are those of the CUDA C++ Programming Guide, "Mathematical Functions" (tables "Maximum ULP error"), the largest that any
release from 11 to 13 states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.prec = 160

Exact = Callable[..., Any]


def _erfcinv(x: mpf) -> mpf:
    return mpmath.erfinv(1 - x) if x > mpf(2) ** -40 else _solve(mpmath.erfc, x)


def _solve(tail: Exact, y: mpf) -> mpf:
    """The x with tail(x) = y for a tail that falls like exp(-x²)."""
    x = mpmath.sqrt(-mpmath.log(y))
    return mpmath.findroot(lambda t: mpmath.log(tail(t)) - mpmath.log(y), x)


def _erfcx(x: mpf) -> mpf:
    return mpmath.exp(x * x) * mpmath.erfc(x)


def _normcdf(x: mpf) -> mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _normcdfinv(x: mpf) -> mpf:
    return -mpmath.sqrt(2) * _erfcinv(2 * x)


def _lgamma(x: mpf) -> mpf:
    return mpmath.log(abs(mpmath.gamma(x)))


def _cbrt(x: mpf) -> mpf:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


#: name → exact function, largest error in ulp in single and in double precision, values to try in (low, high)
UNARY: dict[str, tuple[Exact, float, float, float, float]] = {
    "acos": (mpmath.acos, 3, 2, -1, 1),
    "acosh": (mpmath.acosh, 4, 3, 1, 1e6),
    "asin": (mpmath.asin, 4, 2, -1, 1),
    "asinh": (mpmath.asinh, 3, 3, -1e6, 1e6),
    "atan": (mpmath.atan, 2, 2, -100, 100),
    "atanh": (mpmath.atanh, 3, 2, -0.9999, 0.9999),
    "cbrt": (_cbrt, 1, 1, -1e9, 1e9),
    "cos": (mpmath.cos, 2, 2, -1e6, 1e6),
    "cosh": (mpmath.cosh, 2, 1, -80, 80),
    "cospi": (mpmath.cospi, 2, 2, -300, 300),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), 6, 6, -60, 60),
    "cyl_bessel_i1": (lambda x: mpmath.besseli(1, x), 6, 6, -60, 60),
    "erf": (mpmath.erf, 2, 2, -4, 4),
    "erfc": (mpmath.erfc, 4, 5, -4, 9),
    "erfcinv": (_erfcinv, 4, 6, 1e-30, 1.99),
    "erfcx": (_erfcx, 4, 4, -5, 100),
    "erfinv": (mpmath.erfinv, 2, 5, -0.9999, 0.9999),
    "exp": (mpmath.exp, 2, 1, -80, 80),
    "exp2": (lambda x: mpf(2) ** x, 2, 1, -120, 120),
    "exp10": (lambda x: mpf(10) ** x, 2, 1, -35, 35),
    "expm1": (mpmath.expm1, 1, 1, -10, 60),
    "j0": (lambda x: mpmath.besselj(0, x), 9, 7, -8, 8),
    "j1": (lambda x: mpmath.besselj(1, x), 9, 7, -8, 8),
    "lgamma": (_lgamma, 6, 4, -1.9, 40),
    "log": (mpmath.log, 1, 1, 1e-30, 1e30),
    "log10": (mpmath.log10, 3, 1, 1e-30, 1e30),
    "log1p": (mpmath.log1p, 2, 1, -0.99, 1e6),
    "log2": (lambda x: mpmath.log(x, 2), 3, 1, 1e-30, 1e30),
    "normcdf": (_normcdf, 5, 5, -9, 5),
    "normcdfinv": (_normcdfinv, 5, 8, 1e-20, 0.999),
    "rcbrt": (lambda x: 1 / _cbrt(x), 2, 1, 1e-9, 1e9),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 2, 1, 1e-30, 1e30),
    "sin": (mpmath.sin, 2, 2, -1e6, 1e6),
    "sinh": (mpmath.sinh, 3, 2, -80, 80),
    "sinpi": (mpmath.sinpi, 2, 2, -300, 300),
    "sqrt": (mpmath.sqrt, 0.5, 0.5, 0, 1e30),
    "tan": (mpmath.tan, 4, 2, -1e5, 1e5),
    "tanh": (mpmath.tanh, 2, 2, -10, 10),
    "tgamma": (mpmath.gamma, 11, 10, -4.9, 30),
    "y0": (lambda x: mpmath.bessely(0, x), 9, 7, 0.01, 8),
    "y1": (lambda x: mpmath.bessely(1, x), 9, 7, 0.01, 8),
}

#: name → exact function, ulp in single and in double precision
BINARY: dict[str, tuple[Exact, float, float]] = {
    "atan2": (mpmath.atan2, 3, 2),
    "hypot": (mpmath.hypot, 3, 2),
    "pow": (lambda x, y: abs(x) ** y, 9, 2),
    "rhypot": (lambda x, y: 1 / mpmath.hypot(x, y), 2, 1),
    "norm3d": (lambda x, y: mpmath.sqrt(x * x + y * y + mpf(1.5) ** 2), 3, 1),
    "norm4d": (lambda x, y: mpmath.sqrt(x * x + y * y + mpf(1.5) ** 2 + mpf(2.5) ** 2), 3, 1),
    "rnorm3d": (lambda x, y: 1 / mpmath.sqrt(x * x + y * y + mpf(1.5) ** 2), 2, 1),
    "rnorm4d": (lambda x, y: 1 / mpmath.sqrt(x * x + y * y + mpf(1.5) ** 2 + mpf(2.5) ** 2), 2, 1),
    "fma": (lambda x, y: x * y + x, 0.5, 0.5),
}

#: of higher order: exact function, largest absolute error in single and in double precision
BESSEL: dict[str, tuple[Exact, float, float]] = {
    "jn": (lambda x: mpmath.besselj(3, x), 2.2e-6, 5e-12),
    "yn": (lambda x: mpmath.bessely(2, x), 2.2e-6, 5e-12),
}

#: intrinsics, single precision only: exact function, absolute error allowed, ulp allowed (either will do), low, high
FAST: dict[str, tuple[Exact, float, float, float, float]] = {
    "__cosf": (mpmath.cos, 2**-21.19, 0, -3.14, 3.14),
    "__sinf": (mpmath.sin, 2**-21.41, 0, -3.14, 3.14),
    "__tanf": (mpmath.tan, 2**-20.0, 0, -0.75, 0.75),
    "__logf": (mpmath.log, 2**-21.41, 3, 0.01, 1e6),
    "__log2f": (lambda x: mpmath.log(x, 2), 2**-22.0, 2, 0.01, 1e6),
    "__log10f": (mpmath.log10, 2**-24.0, 3, 0.01, 1e6),
    "__expf": (mpmath.exp, 0, 2 + 1.173 * 10, -10, 10),
    "__exp10f": (lambda x: mpf(10) ** x, 0, 2 + 2.97 * 10, -10, 10),
    "__frsqrt_rn": (lambda x: 1 / mpmath.sqrt(x), 0, 0.5, 1e-20, 1e20),
}
