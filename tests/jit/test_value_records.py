"""What accesses carry, against brute force over the accesses in NumPy; both backends."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import SMALL
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit import llvm, runtime_libraries
from gpuperf_engine.jit.host_arrays import address_of, aligned
from gpuperf_engine.jit.ir.abi import Context
from gpuperf_engine.jit.ir.access_records import ValueLoad, ValueRow, Values
from gpuperf_engine.jit.runtime.values.function import IMPORTS, values_function
from gpuperf_engine.jit.value_records import LaunchValues
from gpuperf_engine.results import AffineFit, ValueRecord
from gpuperf_engine.simt.value_records import LOADS, hashed, value_kind

from ..support import BACKENDS, head

Elements = NDArray[Any]
_DTYPES = {"u8": np.uint8, "s8": np.int8, "s16": np.int16, "u32": np.uint32, "s32": np.int32}
_DTYPES |= {"u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64}
_FRACTION = {"f16": 10, "f32": 23, "f64": 52}
_THREADS = 128


def _copy(type: str) -> str:
    """y[i] = x[i] for all i below n."""
    size = np.dtype(_DTYPES[type]).itemsize
    move = f"b{8 * size}" if type == "f16" else type
    register = f"b{max(16, 8 * size)}"
    # f16 has no loads of its own: that a value is a half is said by what is computed with it
    said = ".reg .b16 %h1;" if type == "f16" else ""
    compute = "mov.b16 %h1, 0x0000; add.f16 %h1, %v, %h1;" if type == "f16" else ""
    return (
        head("7.8", "sm_80")
        + f""".visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {{
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .{register} %v; .reg .pred %p; {said}
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    mul.wide.u32 %rd3, %r5, {size};
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    @%p bra END;
    ld.global.{move} %v, [%rd4]; {compute}
    st.global.{move} [%rd5], %v;
END:
    ret;
}}"""
    )


def _run(
    text: str, grid: int, block: int, *args: object, memory_bytes: int = 1 << 24
) -> tuple[ValueRecord, ...]:
    """The records, which both backends must give alike."""
    seen = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=memory_bytes)
        given = [device.array(item) if isinstance(item, np.ndarray) else item for item in args]
        profile = device.launch(ge.parse(text, path="k.ptx")["k"], grid, block, given)
        assert not profile.remarks
        seen.append(profile.values)
    assert repr(seen[0]) == repr(seen[1])  # NaN is not equal to itself
    return seen[0]


def _bits(values: Elements) -> Elements:
    return values.view(f"u{values.itemsize}")


def _check(record: ValueRecord, type: str, values: Elements) -> None:
    """A record against all values that were accessed."""
    numbers = values[~np.isnan(values)] if type in _FRACTION else values
    # ``.u32`` moves floats as well: nothing says here that it does not
    name = type.replace("u", "b")
    assert (record.type, record.count, record.bytes) == (name, len(values), values.nbytes)
    assert record.zeros == (values == 0).sum() and record.nans == len(values) - len(numbers)
    if len(numbers):
        assert record.minimum == numbers.min() and record.maximum == numbers.max()
    true = Counter(_bits(values).tolist())
    # what the bound promises: 16 values, none further off than an eighth, and all that are more frequent are there
    assert record.top_error <= len(values) // 8 and len(record.top) <= 16
    top = {
        int(_bits(np.array([value], values.dtype))[0]): count for value, count in record.top if value == value
    }
    for bits, count in top.items():
        assert true[bits] - record.top_error <= count <= true[bits]
    for bits, count in true.items():
        assert (
            count <= record.top_error
            or bits in top
            or np.isnan(np.array(bits, _bits(values).dtype).view(values.dtype))
        )
    if record.width == 1:
        assert all(count == true[bits] for bits, count in top.items())
        assert [count for _, count in record.top] == sorted(true.values(), reverse=True)[:16]
    if len(true) <= 16:
        assert sorted(count for _, count in record.top) == sorted(true.values()) and record.top_error == 0
    assert record.distinct_exact == (len(true) - (0 in true) <= 384)
    assert abs(record.distinct - len(true)) <= (0 if record.distinct_exact else 0.35 * len(true))
    if type in _FRACTION:
        fraction = int(np.bitwise_or.reduce(_bits(numbers), initial=0)) & ((1 << _FRACTION[type]) - 1)
        assert record.mantissa_bits == (
            _FRACTION[type] - (fraction & -fraction).bit_length() + 1 if fraction else 0
        )
        nonzero = np.abs(numbers[numbers != 0])
        assert record.smallest == (nonzero.min() if len(nonzero) else None)
    doubles = values.astype(np.float64)
    with np.errstate(all="ignore"):
        near = type in ("f32", "f64") and bool((abs(doubles - doubles[0]) <= abs(doubles[0])).all())
    assert (record.mean is None, record.deviation is None) == (not near, not near)
    if near:
        np.testing.assert_allclose((record.mean, record.deviation), (doubles.mean(), doubles.std()), 1e-9)


def _draws(type: str, rng: np.random.Generator, count: int) -> list[Elements]:
    dtype = _DTYPES[type]
    if type in _FRACTION:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -(2.0**-14)], dtype)
        draws = [
            rng.zipf(1.3, count) % 512,
            rng.normal(size=count),
            rng.integers(-3, 3, count),
            rng.integers(0, 60, count),
            special[rng.integers(0, 7, count)],
            rng.uniform(300, 345, count),
        ]
    else:
        limits = np.iinfo(dtype)
        several = rng.integers(limits.min, limits.max, 100, dtype, endpoint=True)[rng.integers(0, 100, count)]
        draws = [
            rng.zipf(1.2, count) % (limits.max // 2),
            rng.integers(limits.min, limits.max, count, dtype, endpoint=True),
            several,
            rng.integers(0, 3, count),
        ]
    draws.append(np.where(rng.random(count) < 0.4, 7, np.arange(count) % 100))
    return [item.astype(dtype) for item in draws]


@pytest.mark.parametrize("type", _DTYPES)
def test_records_are_those_of_all_accesses(type: str) -> None:
    rng = np.random.default_rng(len(type) + 7)
    text, count = _copy(type), 9 * _THREADS - 5
    for values in _draws(type, rng, count):
        target = np.where(rng.random(count) < 0.5, values, np.zeros_like(values))
        loaded, stored = _run(text, 9, _THREADS, values, target, np.uint32(count))
        _check(loaded, type, values)
        _check(stored, type, values)
        assert (loaded.kind, stored.kind, loaded.silent) == ("load", "store", 0)
        assert stored.silent == (_bits(values) == _bits(target)).sum()


@pytest.mark.parametrize("form", ["u32", "v2.u32", "v2.f32"])
def test_pairs_of_halves_are_two_elements_each(form: str) -> None:
    """What nvcc makes of ``half2``, of structures of them, and of ``float4`` in their place: words, some of one address."""
    rng, count = np.random.default_rng(29), 4 * _THREADS
    vector, register = (2 if "v2" in form else 1), ("%g" if "f32" in form else "%v")
    words = f"{{{register}1, {register}2}}" if vector > 1 else "%v1"
    size, (to, back) = 4 * vector, ("", "")
    if register == "%g":
        to, back = "mov.b32 %v1, %g1; mov.b32 %v2, %g2;", "mov.b32 %g1, %v1; mov.b32 %g2, %v2;"
    text = (
        head("7.8", "sm_80")
        + f""".visible .entry k(.param .u64 x, .param .u64 y) {{
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .b32 %v<4>; .reg .f32 %g<3>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, {size}; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    and.b32 %r5, %r5, 3; setp.eq.u32 %p, %r5, 0;
    ld.global.{form} {words}, [%rd4]; {to}
    ld.global.u32 %v3, [%rd1];
    add.f16x2 %v1, %v1, %v3; {back}
    @!%p st.global.{form} [%rd5], {words};
    ret;
}}"""
    )
    values = rng.integers(-3, 9, (count, 2 * vector)).astype(np.float16)
    values[0] = 0
    values[7] = -0.0
    target = np.where(rng.random(values.shape) < 0.5, values, np.float16(1))
    records = _run(text, 4, _THREADS, values, target)
    stores = np.arange(count) % 4 > 0
    assert [item.element for item in records] == [*range(2 * vector), 0, 1, *range(2 * vector)]
    loaded, same, stored = records[: 2 * vector], records[2 * vector :][:2], records[2 * vector + 2 :]
    for half in range(2 * vector):
        _check(loaded[half], "f16", np.ascontiguousarray(values[:, half]))
        # sums with 0.0 are 0.0
        sums = values[stores, half] + np.float16(0) if half < 2 else values[stores, half].copy()
        _check(stored[half], "f16", sums)
        assert stored[half].silent == (_bits(sums) == _bits(target[stores, half].copy())).sum()
    for record in same:
        _check(record, "f16", np.zeros(count, np.float16))


@pytest.mark.parametrize("type", ["s32", "f16", "f32", "f64"])
def test_warps_that_carry_the_same_and_special_values_that_come_late(type: str) -> None:
    """What one warp carries again and again, in all lanes or in halves, and zeros and NaN that only the last warps have."""
    rng, dtype = np.random.default_rng(17), _DTYPES[type]
    rows = rng.integers(1, 2000, (5, 32))
    halves, pairs = np.tile(rows[3:, :16], 2), np.repeat(rows[3:, :2], 16, axis=1)
    some = [*rows[[0] * 5], *rows[[1, 2, 1]], *halves[[0, 0, 1]], *pairs[[0, 1, 1]], *rows[[4] * 2]]
    values = np.concatenate([*some, -np.concatenate(some), *some, *[row * 0 for row in rows[:2]]]).astype(
        dtype
    )
    values[-40:-35] = np.nan if type in _FRACTION else -1
    values[-35:-33] *= -1
    loaded, stored = _run(
        _copy(type), 13, _THREADS, values, np.zeros_like(values), np.uint32(len(values) - 3)
    )
    for record in (loaded, stored):
        _check(record, type, values[:-3])


_HOT = np.float32([0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize("shares", [[0.6], [0.3, 0.2, 0.1], [0.07] * 4], ids=str)
def test_values_of_more_than_a_sixteenth_are_counted_among_random_ones(shares: list[float]) -> None:
    """Far better than the bound: what such a value loses is at most what chunks in which it is rare have of it."""
    rng, count = np.random.default_rng(31), 60 * _THREADS
    hot = rng.choice(len(shares) + 1, count, p=[*shares, 1 - sum(shares)])
    values = np.where(hot < len(shares), _HOT[hot % 4], rng.random(count, np.float32) + 8)
    loaded, stored = _run(_copy("f32"), 60, _THREADS, values, np.zeros(count, np.float32), np.uint32(count))
    top = dict(stored.top)
    for number, share in enumerate(shares):
        true = int((values == _HOT[number]).sum())
        assert (0.95 if share > 0.08 else 0.5) * true <= top[_HOT[number]] <= true
    assert loaded.top == stored.top


@pytest.mark.parametrize("type", ["s16", "u64", "f32"])
def test_hosts_without_avx_512_sample_the_hashes_below_a_limit(type: str) -> None:
    """The functions for such hosts, on this one, given rows: of all different values, those whose hash has enough leading zeros."""
    kind = value_kind(type)
    word, reduced = np.dtype(f"u{kind.word // 8}"), f"values_reduced_{kind.name}"
    imports = runtime_libraries.runtime_addresses(IMPORTS)
    code = llvm.compile_object(values_function(f"values_of_{kind.name}", wide=False), 1)
    library = llvm.link([code], (reduced,), imports)
    reduce = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(library.addresses[reduced])
    rng, seen = np.random.default_rng(5), set[int]()
    context, scratch = aligned(Context.BYTES), aligned(8192)
    record = aligned(Values.TABLE + Values.WORDS * word.itemsize)
    head = record[: Values.MINIMUM].view(np.uint64)
    context.view(np.uint64)[Context.SCRATCH // 8] = address_of(scratch)
    head[Values.HIGHEST // 8] = (1 << kind.word) - 1
    for _ in range(8):
        words = rng.integers(0, 1 << 15, (16, 32)).astype(word)
        lanes = rng.integers(0, 1 << 32, 16, dtype=np.uint32)
        record[Values.LANES : Values.INDICES].view(np.uint32)[:] = lanes
        record[-words.nbytes :].view(word)[:] = words.ravel()
        head[Values.ROWS // 8] = 16
        reduce(address_of(context), address_of(record))
        seen.update(words[(lanes[:, None] >> np.arange(32, dtype=np.uint32) & 1) > 0].tolist())
    level, sampled = (int(head[field // 8]) for field in (Values.LEVEL, Values.SAMPLED))
    hashes = hashed(np.array(sorted(seen), word)).tolist()
    assert level == 3 and sampled == sum(0 < value < 1 << (kind.word - level) for value in hashes)


@pytest.mark.parametrize("type", ["u32", "s32", "s64", "f32", "f64"])
@pytest.mark.parametrize(
    "line", [lambda i: 3 * i + 5, lambda i: 1000 - 7 * i, lambda i: 0 * i + 4], ids=["up", "down", "flat"]
)
def test_a_line_is_fitted(type: str, line: Callable[[Elements], Elements]) -> None:
    dtype, count = _DTYPES[type], 3 * _THREADS
    values = line(np.arange(count, dtype=np.int64)).astype(dtype)
    stored = _run(_copy(type), 3, _THREADS, values, np.zeros(count, dtype), np.uint32(count))[1]
    assert stored.affine == AffineFit(0, values[0], line(np.int64(1)) - line(np.int64(0)), count)
    values[count // 2 :: 2] += dtype(1)
    stored = _run(_copy(type), 3, _THREADS, values, np.zeros(count, dtype), np.uint32(count))[1]
    assert stored.affine is not None and stored.affine.fits == count - len(values[count // 2 :: 2])


def test_a_rounded_line_of_floats_is_fitted_and_a_curve_is_not() -> None:
    count = 8 * _THREADS
    for values, fits in ((np.linspace(0, 1, count), count), (np.linspace(0, 1, count) ** 2, 0)):
        given = values.astype(np.float32), np.zeros(count, np.float32), np.uint32(count)
        line = _run(_copy("f32"), 8, _THREADS, *given)[0].affine
        assert (0 if line is None else line.fits) == fits


@pytest.mark.parametrize("type", ["s32", "u64", "f32", "f64"])
@pytest.mark.parametrize("shape", [(40, 9), (5, 8, 9), (3, 1, 2, 60), (360, 1)], ids=str)
def test_a_function_of_the_axes_is_fitted(type: str, shape: tuple[int, ...]) -> None:
    """With slopes along each axis that is longer than one element; the flat index is no line unless there is one of them."""
    dtype = _DTYPES[type]
    long = [size for size in shape if size > 1]
    slopes = (3, 5, -7)[-len(long) :]
    places = np.indices(long).reshape(len(long), -1)
    values = (100 + np.tensordot(slopes, places, 1)).astype(dtype)
    given = values.reshape(shape), np.zeros(shape, dtype), np.uint32(values.size)
    fit = _run(_copy(type), 3, _THREADS, *given)[1].affine
    assert fit is not None and fit.fits == values.size and fit.at_zero == 100
    assert fit.slopes == slopes[::-1]
    off = values.copy()
    off[100::2] += dtype(1)
    fit = _run(_copy(type), 3, _THREADS, off.reshape(shape), *given[1:])[1].affine
    assert fit is not None and fit.fits == values.size - len(off[100::2])


@pytest.mark.parametrize("type", ["s32", "f32"])
def test_a_line_is_found_behind_a_boundary(type: str) -> None:
    """The rows of neighbours of srad, of Rodinia: max(i − 1, 0). No line goes through the first warp; one does through all others."""
    dtype, count = _DTYPES[type], 40 * _THREADS
    values = np.maximum(np.arange(count) - 1, 0).astype(dtype)
    stored = _run(_copy(type), 40, _THREADS, values, np.zeros(count, dtype), np.uint32(count))[1]
    assert stored.affine is not None and (stored.affine.slope, stored.affine.at_zero) == (1, -1)
    assert stored.affine.fits == count - 32


def test_a_line_through_the_structures_of_an_array_is_fitted() -> None:
    """The offsets of the boxes of lavaMD, of Rodinia: 100 more in each structure of 41 words, of which one word is loaded."""
    text = _copy("s32").replace("mul.wide.u32 %rd3, %r5, 4;", "mul.wide.u32 %rd3, %r5, 164;")
    boxes = np.zeros((2 * _THREADS, 41), np.int32)
    boxes[:, 0] = 100 * np.arange(len(boxes)) + 7
    loaded = _run(text, 2, _THREADS, boxes.ravel(), np.zeros(boxes.size, np.int32), np.uint32(len(boxes)))[0]
    assert loaded.affine is not None and loaded.affine.fits == len(boxes)
    assert (loaded.affine.slope, loaded.affine.every, loaded.affine.at_zero) == (100, 41, 7)


def test_a_line_of_floats_far_from_zero_is_fitted() -> None:
    """1 + i / 10,000, of GVProf's ``op_pattern_simple``: neighbours differ by a thousand units in the last place, so that two of them
    say little of the slope."""
    count = 40 * _THREADS
    values = (1 + np.arange(count) / 10000).astype(np.float32)
    line = _run(_copy("f32"), 40, _THREADS, values, np.zeros(count, np.float32), np.uint32(count))[1].affine
    assert line is not None and line.fits == count and abs(line.slope - 1e-4) < 1e-10


_MANY = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<8>; .reg .f32 %f<6>; .reg .b32 %r<8>; .reg .pred %p;
    .shared .align 4 .b8 buffer[256];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 0;
    mul.wide.u32 %rd3, %r1, 16; add.s64 %rd4, %rd1, %rd3;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4];
    mov.u32 %r3, buffer; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4;
    @%p st.shared.f32 [%r5], %f2;
    @%p ld.shared.b32 %r6, [%r5];
    selp.b64 %rd5, %rd1, %rd2, %p;
    mul.wide.u32 %rd6, %r1, 4; add.s64 %rd7, %rd5, %rd6;
    ld.f32 %f5, [%rd7];
    red.global.add.u32 [%rd2], %r2;
    @%p st.global.b32 [%rd4+1024], %r6;
    ret;
}"""
)


def test_elements_spaces_guards_and_objects() -> None:
    """A vector has a record for each element, an access of two objects one for each; what shared memory passes on keeps its type."""
    x, y = np.arange(512, dtype=np.float32), np.zeros(64, np.float32)
    records = _run(_MANY, 1, 64, x, y)
    assert [(item.opcode, item.element, item.object, item.type, item.count) for item in records] == [
        *(("ld.global.v4.f32", element, "x", "f32", 64) for element in range(4)),
        ("st.shared.f32", 0, "shared memory", "f32", 32),
        ("ld.shared.b32", 0, "shared memory", "f32", 32),
        ("ld.f32", 0, "x", "f32", 32),
        ("ld.f32", 0, "y", "f32", 32),
        ("red.global.add.u32", 0, "y", "u32", 64),
        ("st.global.b32", 0, "x", "f32", 32),
    ]
    by_element = records[:4]
    assert [(item.minimum, item.maximum) for item in by_element] == [
        (element, 252 + element) for element in range(4)
    ]
    assert records[4].top == records[5].top and records[4].maximum == 62 * 4 + 1
    assert (records[7].zeros, records[7].maximum, records[6].maximum) == (32, 0, 62)
    assert (records[8].kind, records[8].zeros, records[8].top[:2]) == ("reduction", 32, ((0, 32), (1, 32)))


def test_what_nobody_wrote_is_overwritten_by_no_silent_store() -> None:
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.zeros(64, np.uint32), device.empty(64, np.uint32)
        launch = [ge.parse(_copy("u32"))["k"], 1, 64, [x, y, np.uint32(64)]]
        assert device.launch(*launch).values[1].silent == 0
        assert device.launch(*launch).values[1].silent == 64


_RELOADS = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {
    .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    mov.u32 %r6, 0;
LOOP:
    and.b32 %r7, %r6, 1; setp.eq.u32 %p1, %r7, 0;
    ld.global.u32 %r8, [%rd1];
    ld.global.u32 %r9, [%rd4];
    @%p1 ld.global.u32 %r10, [%rd4];
    ld.volatile.global.u32 %r11, [%rd4];
    st.global.u32 [%rd5], %r6;
    ld.global.u32 %r8, [%rd5];
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r1;
    @%p2 bra LOOP;
    ret;
}"""
)


_INDEXED = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 index) {
    .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [index];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4; add.s64 %rd3, %rd2, %rd3;
    mov.u32 %r6, 0;
LOOP:
    ld.global.u32 %r7, [%rd3];
    mul.wide.u32 %rd4, %r7, 4; add.s64 %rd4, %rd1, %rd4;
    ld.global.u32 %r8, [%rd4];
    add.s64 %rd3, %rd3, 256;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 16;
    @%p2 bra LOOP;
    ret;
}"""
)


def test_a_reload_is_of_the_same_address_and_bits_by_the_same_thread() -> None:
    """Four times around a loop: the first element of all threads, each thread's own, that again in every other round, with
    ``volatile``, and one that changes."""
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    records = [item for item in _run(_RELOADS, 2, 32, x, y, np.uint32(4)) if item.kind == "load"]
    counts = [(256, 192), (256, 192), (128, 128), (256, 0), (256, 0)]
    assert [(item.count, item.reloads) for item in records] == counts


def test_random_loads_of_few_elements_are_counted_as_those_remembered() -> None:
    """Each thread loads 16 elements by random indices of four: against plain Python that remembers all loads of a warp (none of which
    displaces another one here)."""
    rng = np.random.default_rng(6)
    index = rng.integers(0, 4, (16, 64)).astype(np.uint32)
    index[8:] = index[rng.integers(0, 8, 8)]
    x = rng.integers(0, 2, 4).astype(np.uint32)
    (loaded,) = [item for item in _run(_INDEXED, 2, 32, x, index) if item.object == "x"]
    true, seen = 0, dict[tuple[int, int, int], dict[int, int]]()
    for round, warp in np.ndindex(16, 2):
        own = index[round, 32 * warp : 32 * warp + 32].tolist()
        known = seen.setdefault((warp, own[0], own[-1]), {})
        true += sum(known.get(lane) == place for lane, place in enumerate(own))
        known.update(enumerate(own))
    assert 0 < loaded.reloads == true


_ASYNC = (
    head("8.0", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .f32 %f<6>; .reg .pred %p;
    .shared .align 16 .b8 buffer[1024];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 16; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    mov.u32 %r3, buffer; mad.lo.u32 %r4, %r2, 16, %r3;
    shl.b32 %r5, %r2, 4; sub.s32 %r6, %r1, %r5; max.s32 %r6, %r6, 0; min.s32 %r6, %r6, 16;
    cp.async.ca.shared.global [%r4], [%rd4], 16, %r6;
    cp.async.wait_all;
    ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4];
    st.global.v4.f32 [%rd5], {%f1, %f2, %f3, %f4};
    ret;
}"""
)


@pytest.mark.parametrize("bytes", [1024, 472, 0])
def test_asynchronous_copies_are_recorded_by_the_words_that_they_read(bytes: int) -> None:
    """64 threads copy 16 bytes each, of which those below a size are read and the others filled with zeros."""
    x = np.random.default_rng(2).normal(size=256).astype(np.float32)
    records = _run(_ASYNC, 1, 64, x, np.zeros(256, np.float32), np.uint32(bytes))
    copied = {item.element: item for item in records if item.opcode.startswith("cp.async")}
    for element in range(4):
        read = x[: bytes // 4][element::4]
        if not len(read):
            assert element not in copied
            continue
        record = copied[element]
        assert (record.kind, record.space, record.object, record.type) == ("load", "global", "x", "f32")
        _check(record, "f32", read)


_MATRICES = (
    head("8.0", "sm_90")
    + """.visible .entry k(.param .u64 x, .param .u64 c, .param .u64 y) {
    .reg .b64 %rd<8>; .reg .b32 %r<24>; .reg .f32 %f<20>;
    .shared .align 16 .b8 buffer[1024];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [y];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd1, %rd4;
    mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 16, %r2;
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd5];
    st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%r8, %r9, %r10, %r11}, [%r3];
    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r8, %r9, %r10, %r11}, {%r8, %r9}, {%f1, %f1, %f1, %f1};
    stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3+512], {%r8, %r9, %r10, %r11};
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r12, %r13, %r14, %r15, %r16, %r17, %r18, %r19}, [%rd1];
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f5, %f6, %f7, %f8, %f9, %f10, %f11, %f12}, [%rd2];
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd3], {%f5, %f6, %f7, %f8, %f9, %f10, %f11, %f12};
    ret;
}"""
)


@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_matrix_instructions_are_recorded_as_they_lie_in_memory(transposed: str) -> None:
    """A lane loads or stores a row of 8 halves by ``ldmatrix`` and ``stmatrix``, and 16 bytes at a time by ``wmma``."""
    rng = np.random.default_rng(12)
    x, c = rng.normal(size=(32, 8)).astype(np.float16), rng.normal(size=256).astype(np.float32)
    y = np.where(rng.random(256) < 0.3, c, 0).astype(np.float32)
    records = _run(_MATRICES.replace("TRANS", transposed), 1, 32, x, c, y)
    by_name: dict[str, dict[int, ValueRecord]] = {}
    for record in records:
        by_name.setdefault(record.opcode.split(".")[0], {})[record.element] = record
        if record.opcode.startswith("wmma"):
            by_name.setdefault(record.opcode[:12], {})[record.element] = record
    names = ["ldmatrix", "wmma.load.a."] + ["stmatrix"] * (not transposed)
    for name in names:
        assert len(by_name[name]) == 8
        for element, record in by_name[name].items():
            assert record.kind == ("store" if name == "stmatrix" else "load")
            _check(record, "f16", x[:, element])
    for name, values in (("wmma.load.c.", c), ("wmma.store.d", c)):
        own = by_name[name].values()
        assert {record.type for record in own} == {"f32"} and sum(record.count for record in own) == 256
        assert min(record.minimum for record in own if record.minimum is not None) == values.min()
        assert max(record.maximum for record in own if record.maximum is not None) == values.max()
    assert sum(record.silent for record in by_name["wmma.store.d"].values()) == (y == c).sum()


def test_copies_for_a_product_are_of_its_halves() -> None:
    """``cp.async`` to shared memory, ``ldmatrix`` from there, and ``mma``, which says that they are ``bf16``; the last lane copies 8
    bytes."""
    text = (_MATRICES.replace("TRANS", "").replace("f32.f16.f16.f32 {%f1", "f32.bf16.bf16.f32 {%f1")).replace(
        "st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};",
        "shl.b32 %r5, %r1, 4; sub.s32 %r4, 504, %r5; min.s32 %r4, %r4, 16;"
        "cp.async.ca.shared.global [%r3], [%rd5], 16, %r4; cp.async.wait_all;",
    )
    x = (np.random.default_rng(4).normal(size=(32, 8)).astype(np.float32).view(np.uint32) >> 16).astype("u2")
    records = _run(text, 1, 32, x, np.zeros(256, np.float32), np.zeros(256, np.float32))
    copied = [item for item in records if item.opcode.startswith("cp.async")]
    assert [(item.element, item.type, item.count) for item in copied] == [
        (element, "bf16", 32 - (element > 3)) for element in range(8)
    ]
    values = (x.astype(np.uint32) << 16).view(np.float32)
    for element, item in enumerate(copied):
        assert item.maximum == values[: item.count, element].max()
        assert item.minimum == values[: item.count, element].min()


def test_any_number_of_cores_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that store different values to one place: which of them are silent depends on the order, which is that of blocks."""
    text = _copy("u32").replace("add.s64 %rd5, %rd2, %rd3", "mov.b64 %rd5, %rd2")
    values = np.repeat(np.arange(64, dtype=np.uint32) % 2, 32)
    seen = []
    for cores in (1, 8):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda cores=cores: cores)
        device = ge.Device(observe={"accesses"}, races="off", memory_bytes=1 << 24)
        given = [device.array(values), device.zeros(1, np.uint32), np.uint32(values.size)]
        seen.append(device.launch(ge.parse(text)["k"], 64, 32, given).values)
    assert seen[0] == seen[1] and seen[0][1].silent == 32


@pytest.mark.parametrize(
    "name",
    [
        "cluster_sum-10",
        "cluster_histogram-10",
        "bfs-20x25",
        "spmv_vector-1x5",
        "hgemm_wmma-32x64x32",
    ],
)
def test_both_backends_record_the_same_of_examples(name: str) -> None:
    """Clusters, whose CTAs access one another's shared memory, atomics, and data that decide what is accessed."""
    case = next(item for item in SMALL if item.name == name)
    seen = []
    for backend in BACKENDS:
        program, device = (
            case.program(),
            ge.Device(backend=backend, observe={"accesses"}, races="off", memory_bytes=1 << 24),
        )
        module = ge.parse(case.text, path=case.ptx.name)
        arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
        records = []
        for one in program.launches:
            given = [
                arrays.get(id(item), item) if isinstance(item, np.ndarray) else item for item in one.args
            ]
            profile = device.launch(
                module[one.entry], one.grid, one.block, given, shared_bytes=one.shared_bytes
            )
            records += profile.values
        seen.append(records)
    assert repr(seen[0]) == repr(seen[1]) and any(item.space == "global" for item in seen[0])


def test_records_take_no_more_memory_for_more_accesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10^10 accesses as of 10^3: a record's size follows from the width of its elements, and counters have 64 bits."""
    sizes = {word: Values.TABLE + Values.WORDS * word for word in (4, 8)}
    assert sizes == {4: 10368, 8: 16512}
    # and the rows of 2^16 elements of memory instructions, more than any kernel has, and the loads remembered
    assert Values.ROOM + (ValueRow.BYTES << 16) + ValueLoad.BYTES * LOADS < 64 << 20
    used: list[int] = []
    records = LaunchValues.records

    def noted(self: LaunchValues, context: int, size: int, *others: Any) -> tuple[ValueRecord, ...]:
        used.append(size)
        return records(self, context, size, *others)

    monkeypatch.setattr(LaunchValues, "records", noted)
    for blocks in (1, 64):
        device = ge.Device(observe={"accesses"}, races="off", memory_bytes=1 << 24)
        count = blocks * _THREADS
        given = [device.array(np.arange(count, dtype=np.uint32)), device.zeros(count, np.uint32)]
        device.launch(ge.parse(_copy("u32"))["k"], blocks, _THREADS, [*given, np.uint32(count)])
    assert used == [2 * sizes[4]] * 2


def test_accesses_without_room_for_a_record_are_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Values, "ROOM", 16384)
    device = ge.Device(observe={"accesses"}, races="off", memory_bytes=1 << 24)
    given = [device.zeros(32, np.uint32), device.zeros(32, np.uint32), np.uint32(32)]
    profile = device.launch(ge.parse(_copy("u32"), path="k.ptx")["k"], 1, 32, given)
    assert [item.kind for item in profile.values] == ["load"]
    (note,) = profile.notes
    assert note.startswith("k.ptx:4:17: 'k' accesses more objects than") and "is not recorded" in note


def test_accesses_are_observed_only_where_asked_for() -> None:
    device = ge.Device(memory_bytes=1 << 24)
    given = [device.zeros(32, np.uint32), device.zeros(32, np.uint32), np.uint32(32)]
    profile = device.launch(ge.parse(_copy("u32"))["k"], 1, 32, given)
    with pytest.raises(ge.NotObserved, match="the values that 'k' accesses were not observed"):
        _ = profile.values
    with pytest.raises(ge.NotObserved, match="computes no values"):
        ge.Device(observe={"accesses"}).launch(ge.parse(_copy("u32"))["k"], 1, 32, [], demand="addresses")
