"""Rounding against exact fractions: every format, operation and direction, with the edges where roundings go wrong."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf_engine.interp import softfloat, wide
from gpuperf_engine.interp.softfloat import FORMATS, Format

SCALARS = ("f16", "bf16", "f32", "f64")
ROUNDINGS = ("rn", "rz", "rm", "rp")


def exact(pattern: int, form: Format) -> Fraction | str:
    """The value of a pattern by the definition of IEEE 754; ``inf``, ``-inf`` or ``nan`` as text."""
    pattern >>= form.low
    sign = -1 if pattern >> (form.exponent + form.fraction) else 1
    field = (pattern >> form.fraction) & ((1 << form.exponent) - 1)
    fraction = pattern & ((1 << form.fraction) - 1)
    if field == (1 << form.exponent) - 1:
        return "nan" if fraction else ("inf" if sign > 0 else "-inf")
    if field:
        fraction |= 1 << form.fraction
    power = max(field, 1) - form.bias - form.fraction
    return Fraction(sign * fraction << max(0, power), 1 << max(0, -power))


def rounded(value: Fraction, form: Format, rounding: str, zero_sign: int) -> int:
    """The pattern nearest in the given direction, found from the definition: neighbours, then the rule."""
    sign = 1 if value < 0 else 0
    if value == 0:
        return zero_sign << (form.bits - 1)
    numerator, denominator = abs(value.numerator), value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(0, -exponent) < denominator << max(0, exponent):
        exponent -= 1
    exponent = max(exponent, 1 - form.bias)
    scale = exponent - form.fraction  # of the last place
    numerator, denominator = numerator << max(0, -scale), denominator << max(0, scale)
    below, rest = divmod(numerator, denominator)
    up = {
        "rn": rest * 2 > denominator or (rest * 2 == denominator and below % 2 == 1),
        "rna": rest * 2 >= denominator,
        "rz": False,
        "rm": rest > 0 and sign == 1,
        "rp": rest > 0 and sign == 0,
    }[rounding]
    below += up
    if below == 1 << (form.fraction + 1):
        below, exponent = below // 2, exponent + 1
    if exponent > form.bias:
        to_infinity = (
            rounding in ("rn", "rna") or (rounding == "rp" and not sign) or (rounding == "rm" and sign)
        )
        raw = form.infinity if to_infinity else form.infinity - 1
    elif below < 1 << form.fraction:
        raw = below
    else:
        raw = ((exponent + form.bias - 1) << form.fraction) + below
    return (raw << form.low) | (sign << (form.bits - 1))


def array(*patterns: int, form: Format) -> np.ndarray:
    return np.array(patterns, dtype=np.uint64).astype(form.dtype)


def edges(form: Format) -> list[int]:
    """Ends of binades and of the range, without a sign."""
    found = [0, 1, 2, (1 << form.fraction) - 1, 1 << form.fraction, (1 << form.fraction) + 1]
    found += [form.infinity - 1, form.infinity, form.infinity + 1, form.bias << form.fraction]
    return [*found, (form.bias << form.fraction) + 1, (form.bias << form.fraction) - 1]


def patterns(form: Format) -> st.SearchStrategy[int]:
    """All patterns, those near the ends of binades and of the range more often."""
    top = (1 << (form.bits - form.low)) - 1
    signed = [edge | (sign << (form.bits - form.low - 1)) for edge in edges(form) for sign in (0, 1)]
    narrow = st.builds(
        lambda sign, field, fraction: (
            (sign << (form.bits - form.low - 1)) | (field << form.fraction) | fraction
        ),
        st.integers(0, 1),
        st.integers(form.bias - form.fraction - 3, form.bias + 3).map(lambda field: max(0, field)),
        st.integers(0, (1 << form.fraction) - 1),
    )
    return st.one_of(st.integers(0, top), narrow, st.sampled_from(signed)).map(lambda word: word << form.low)


def drawn_patterns(form: Format, made: random.Random, count: int) -> list[int]:
    """As ``patterns``, at a tenth of what Hypothesis takes for each."""
    top = (1 << (form.bits - form.low)) - 1
    found = []
    for _ in range(count):
        if made.random() < 1 / 3:
            word = made.randint(0, top)
        elif made.random() < 1 / 2:
            field = max(0, made.randint(form.bias - form.fraction - 3, form.bias + 3))
            word = (field << form.fraction) | made.getrandbits(form.fraction)
        else:
            word = made.choice(edges(form))
        found.append((word ^ (made.getrandbits(1) << (form.bits - form.low - 1))) << form.low)
    return found


def expected_binary(operation: str, a: int, b: int, form: Format, rounding: str) -> int | None:
    """The result for finite operands with a finite exact result; ``None`` where special rules hold."""
    x, y = exact(a, form), exact(b, form)
    if isinstance(x, str) or isinstance(y, str):
        return None
    top = form.bits - 1
    a_sign, b_sign = a >> top, b >> top
    if operation in ("add", "subtract"):
        if operation == "subtract":
            y, b_sign = -y, b_sign ^ 1
        zero = a_sign if a_sign == b_sign and x == 0 else int(rounding == "rm")
        return rounded(x + y, form, rounding, zero)
    if operation == "multiply":
        return rounded(x * y, form, rounding, a_sign ^ b_sign)
    return None if y == 0 else rounded(x / y, form, rounding, a_sign ^ b_sign)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide"])
def test_binary_operations_round_the_exact_result(operation: str, name: str, rounding: str) -> None:
    form, made = FORMATS[name], random.Random(f"{operation} {name} {rounding}")
    left, right = (drawn_patterns(form, made, 240) for _ in range(2))
    found = getattr(softfloat, operation)(array(*left, form=form), array(*right, form=form), form, rounding)
    assert found.dtype == form.dtype
    for a, b, result in zip(left, right, found.tolist()):
        wanted = expected_binary(operation, a, b, form, rounding)
        if wanted is not None:
            assert result == wanted, (hex(a), hex(b), hex(result), hex(wanted))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SCALARS)
def test_fma_rounds_once(name: str, rounding: str) -> None:
    form, made = FORMATS[name], random.Random(f"fma {name} {rounding}")
    drawn = [drawn_patterns(form, made, 320) for _ in range(3)]
    found = softfloat.fma(*(array(*operand, form=form) for operand in drawn), form, rounding)
    for a, b, c, result in zip(*drawn, found.tolist()):
        x, y, z = exact(a, form), exact(b, form), exact(c, form)
        if isinstance(x, str) or isinstance(y, str) or isinstance(z, str):
            continue
        product_sign = (a ^ b) >> (form.bits - 1)
        same = product_sign == c >> (form.bits - 1)
        zero = product_sign if same and z == 0 else int(rounding == "rm")
        assert result == rounded(x * y + z, form, rounding, zero), (hex(a), hex(b), hex(c), hex(result))


@pytest.mark.parametrize("name", SCALARS)
def test_fma_of_a_product_that_nearly_cancels(name: str) -> None:
    """``a·b − round(a·b)`` is the rounding error of the product: only a single rounding keeps it."""
    form = FORMATS[name]
    generator = np.random.default_rng(7)
    ones = form.bias << form.fraction
    a = (ones | generator.integers(0, 1 << form.fraction, 64, dtype=np.uint64)).astype(form.dtype)
    b = (ones | generator.integers(0, 1 << form.fraction, 64, dtype=np.uint64)).astype(form.dtype)
    product = softfloat.multiply(a, b, form)
    error = softfloat.fma(a, b, product ^ form.dtype.type(1 << (form.bits - 1)), form)
    for x, y, p, e in zip(a.tolist(), b.tolist(), product.tolist(), error.tolist()):
        assert exact(e, form) == exact(x, form) * exact(y, form) - exact(p, form)  # type: ignore[operator]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SCALARS)
def test_square_root(name: str, rounding: str) -> None:
    form = FORMATS[name]

    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(st.lists(patterns(form), min_size=8, max_size=24))
    def check(words: list[int]) -> None:
        found = softfloat.square_root(array(*words, form=form), form, rounding)
        for word, result in zip(words, found.tolist()):
            value = exact(word, form)
            if isinstance(value, str) or value <= 0:
                continue
            root = exact(result, form)
            assert not isinstance(root, str)
            step = 1 if rounding != "rp" else -1
            beside = exact(result + step, form) if rounding != "rn" else None
            if rounding in ("rz", "rm"):
                assert root**2 <= value < beside**2  # type: ignore[operator]
            elif rounding == "rp":
                assert beside**2 < value <= root**2  # type: ignore[operator]
            else:
                below, above = exact(result - 1, form), exact(result + 1, form)
                assert ((root + below) / 2) ** 2 < value < ((root + above) / 2) ** 2  # type: ignore[operator]

    check()


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_special_operands(name: str, rounding: str) -> None:
    form = FORMATS[name]
    top = 1 << (form.bits - 1)
    zero, one, inf, nan = 0, form.bias << form.fraction, form.infinity, form.nan
    quiet = inf | 1 << (form.fraction - 1) | 5
    cases = [
        ("add", inf, inf, inf), ("add", inf, inf | top, nan), ("add", inf | top, one, inf | top),
        ("add", quiet, one, nan), ("add", one, inf + 1, nan), ("add", zero, top, top if rounding == "rm" else 0),
        ("add", top, top, top), ("subtract", one, one, top if rounding == "rm" else 0), ("subtract", inf, inf, nan),
        ("multiply", inf, zero, nan), ("multiply", inf, one | top, inf | top), ("multiply", top, one, top),
        ("multiply", quiet, zero, nan), ("divide", zero, zero, nan), ("divide", inf, inf, nan),
        ("divide", one, zero, inf), ("divide", one, top, inf | top), ("divide", one, inf, zero),
        ("divide", inf, zero, inf), ("divide", top, one, top), ("divide", one, quiet, nan),
    ]  # fmt: skip
    for operation, a, b, wanted in cases:
        found = getattr(softfloat, operation)(array(a, form=form), array(b, form=form), form, rounding)
        assert found.tolist() == [wanted], (operation, hex(a), hex(b))
    triples = [
        (inf, zero, one, nan), (one, one, one | top, top if rounding == "rm" else 0), (inf, one, inf | top, nan),
        (inf, one, inf, inf), (one, one, inf | top, inf | top), (top, one, top, top), (zero, inf, quiet, nan),
        (inf | top, one, one, inf | top),
    ]  # fmt: skip
    for a, b, c, wanted in triples:
        operands = (array(a, form=form), array(b, form=form), array(c, form=form))
        assert softfloat.fma(*operands, form, rounding).tolist() == [wanted], (hex(a), hex(b), hex(c))
    roots = {
        zero: zero,
        top: top,
        inf: inf,
        inf | top: nan,
        one | top: nan,
        quiet: nan,
        one: one,
        1 | top: nan,
    }
    found = softfloat.square_root(array(*roots, form=form), form, rounding)
    assert found.tolist() == list(roots.values())


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_overflow_goes_where_the_rounding_points(rounding: str) -> None:
    for name in SCALARS:
        form = FORMATS[name]
        top = 1 << (form.bits - 1)
        largest = form.infinity - 1
        up = form.infinity if rounding in ("rn", "rp") else largest
        down = form.infinity if rounding in ("rn", "rm") else largest
        operands = array(largest, largest | top, form=form)
        assert softfloat.add(operands, operands, form, rounding).tolist() == [up, down | top]
        assert softfloat.multiply(operands, array(largest, form=form), form, rounding).tolist() == [
            up,
            down | top,
        ]


CONVERSIONS = [(a, b) for a in (*SCALARS, "tf32") for b in (*SCALARS, "tf32") if a != b]


@pytest.mark.parametrize("source,target", CONVERSIONS)
@pytest.mark.parametrize("rounding", [*ROUNDINGS, "rna"])
def test_conversion_between_formats(source: str, target: str, rounding: str) -> None:
    form, other = FORMATS[source], FORMATS[target]
    generator = np.random.default_rng(3)
    words = generator.integers(0, 1 << (form.bits - form.low), 300, dtype=np.uint64) << np.uint64(form.low)
    near = (
        generator.integers(max(0, form.bias - 30), form.bias + 20, 300, dtype=np.uint64)
        << np.uint64(form.fraction)
    ) | (generator.integers(0, 1 << form.fraction, 300, dtype=np.uint64))
    words = np.concatenate([words, near << np.uint64(form.low)]).astype(form.dtype)
    found = softfloat.convert(words, form, other, rounding)
    for word, result in zip(words.tolist(), found.tolist()):
        value = exact(word, form)
        sign = word >> (form.bits - 1)
        if value == "nan":
            assert result == other.nan
        elif isinstance(value, str):
            assert result == (other.infinity << other.low) | (sign << (other.bits - 1))
        else:
            assert result == rounded(value, other, rounding, sign), (hex(word), hex(result))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_become_floats(dtype: type, name: str, rounding: str) -> None:
    form = FORMATS[name]
    info = np.iinfo(dtype)
    generator = np.random.default_rng(11)
    values = generator.integers(info.min, info.max, 100, dtype=dtype, endpoint=True)
    values = np.concatenate([values >> np.array(shift, dtype) for shift in range(0, info.bits, 3)])
    values = np.concatenate([values, np.array([info.min, info.max, 0, 1], dtype)])
    found = softfloat.from_integer(values, form, rounding)
    for value, result in zip(values.tolist(), found.tolist()):
        assert result == rounded(Fraction(value), form, rounding, 0), (value, hex(result))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 200))
def test_wide_integers(a: int, b: int, count: int) -> None:
    one = lambda word: np.array([word], np.uint64)  # noqa: E731
    counts = np.array([count], np.int64)
    assert wide.clz64(one(a)).tolist() == [64 - a.bit_length()]
    high, low = wide.multiply64(one(a), one(b))
    assert (int(high[0]) << 64) | int(low[0]) == a * b
    jammed = (a >> count) | (a & ((1 << count) - 1) != 0)
    assert wide.shift_right_jam64(one(a), counts).tolist() == [jammed]
    whole = (a << 64) | b
    high, low = wide.shift_right_jam128(one(a), one(b), counts)
    assert (int(high[0]) << 64) | int(low[0]) == (whole >> count) | (whole & ((1 << count) - 1) != 0)
    high, low = wide.shift_left128(one(a), one(b), counts % 128)
    assert (int(high[0]) << 64) | int(low[0]) == (whole << (count % 128)) % (1 << 128)
