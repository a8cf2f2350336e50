"""What is recorded of the values that each step touches, held against NumPy and against a replay that keeps everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.device.contents import describe
from gpuperf_engine.device.thresholds import Thresholds
from tests.engine.running import GLOBAL_THREAD, module

#: thread i of those below n reads element from + i and stores it to element to + i·step
MOVE = ge.parse(
    module(
        f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [data];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [from];
    ld.param.u32 %r3, [to];
    ld.param.u32 %r4, [step];
    setp.ge.u32 %p1, %r19, %r1;
    @%p1 ret;
    add.u32 %r5, %r19, %r2;
    mul.wide.u32 %rd1, %r5, 4;
    add.u64 %rd1, %rd0, %rd1;
    ld.global.u32 %r6, [%rd1];
    mad.lo.u32 %r7, %r19, %r4, %r3;
    mul.wide.u32 %rd2, %r7, 4;
    add.u64 %rd2, %rd0, %rd2;
    st.global.u32 [%rd2], %r6;
    ret;""",
        ".param .u64 data, .param .u32 n, .param .u32 from, .param .u32 to, .param .u32 step",
    ),
    path="k.ptx",
)["k"]
SIZE = 64

#: a step: a launch that moves, a copy from the host, a memset, a copy to the host
_moves = st.tuples(
    st.just("launch"), st.integers(0, 20), st.integers(0, 40), st.integers(0, 20), st.integers(1, 2)
)
_ranges = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda p: (p[0], min(p[0] + p[1], SIZE))
)
_steps = st.lists(
    st.one_of(
        _moves,
        st.tuples(st.just("copy"), _ranges, st.integers(0, 3)),
        st.tuples(st.just("fill"), _ranges, st.integers(0, 3)),
        st.tuples(st.just("read"), _ranges),
    ),
    min_size=1,
    max_size=10,
)


class Replay:
    """The same program on lists: for each element its value, whether it was written, and who wrote it if nobody read it since."""

    def __init__(self) -> None:
        self.value = [0] * SIZE
        self.written = [False] * SIZE
        self.unread: list[int | None] = [None] * SIZE

    def step(self, number: int, read: list[int], write: dict[int, int]) -> dict[str, Any]:
        blank = sum(not self.written[i] and i not in write for i in set(read))
        for i in read:
            self.unread[i] = None
        lost: dict[int, int] = {}
        for i in write:
            writer = self.unread[i]
            if writer is not None:
                lost[writer] = lost.get(writer, 0) + 4
        same = sum(self.written[i] and self.value[i] == value for i, value in write.items())
        for i, value in write.items():
            self.value[i], self.written[i] = value, True
            self.unread[i] = None if i in read else number
        return {
            "read": 4 * len(set(read)),
            "written": len(write),
            "unchanged": same,
            "blank": 4 * blank,
            "lost": sorted(lost.items()),
        }


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@settings(max_examples=25, deadline=None)
@given(steps=_steps)
def test_against_a_replay(backend: str, steps: list[tuple[Any, ...]]) -> None:
    device = ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 20)
    data, replay = device.empty(SIZE, np.uint32), Replay()
    for kind, *rest in steps:
        number = len(device.events)
        read: list[int] = []
        write: dict[int, int] = {}
        if kind == "launch":
            n, source, to, step = rest
            n = min(n, SIZE - source, (SIZE - to + step - 1) // step)
            # an element that one thread reads and another writes would be a race
            places = {to + step * i for i in range(n)}
            read = [source + i for i in range(n)]
            if places & {*read} and (source, 1) != (to, step):
                continue
            write = {to + step * i: replay.value[source + i] for i in range(n)}
            device.launch(MOVE, 1, 32, [data, n, source, to, step])
        else:
            start, end = rest[0]
            if kind == "read":
                read = list(range(start, end))
                data[start:end].numpy()
            else:
                write = dict.fromkeys(range(start, end), rest[1])
                view = data[start:end]
                view.fill(rest[1]) if kind == "fill" else view.copy_from(
                    np.full(end - start, rest[1], np.uint32)
                )
        expected = replay.step(number, read, write)
        uses = device.events[-1].uses
        if not read and not write:
            assert uses == ()
            continue
        (use,) = uses
        assert {
            "read": use.bytes_read,
            "written": use.written,
            "unchanged": use.unchanged,
            "blank": use.bytes_blank,
            "lost": sorted(use.unread),
        } == expected
    assert data.numpy().tolist() == replay.value


def _brute(values: NDArray[Any]) -> set[str]:
    """Definitions, element by element."""
    listed = values.tolist()
    if len(set(values.view(f"u{values.itemsize}").tolist())) == 1:
        return {"single-value" if listed[0] else "single-zero"}
    rules = set()
    counts: dict[Any, int] = {}
    for value in values.view(f"u{values.itemsize}").tolist():
        counts[value] = counts.get(value, 0) + 1
    order = sorted(counts.values(), reverse=True)
    few = len(order) <= 0.1 * min(len(listed), 2 ** (8 * values.itemsize))
    if (few and sum(order[:10]) >= 0.5 * len(listed)) or order[0] >= 0.75 * len(listed):
        rules.add("frequent-values")
    if values.dtype.kind in "iu":
        fits = any(
            np.iinfo(kind).min <= min(listed) and max(listed) <= np.iinfo(kind).max
            for kind in ("i1", "u1", "i2", "u2", "i4", "u4")
            if np.dtype(kind).itemsize < values.itemsize
        )
        if fits or (values.itemsize > 1 and len(order) <= min(256, 0.1 * len(listed))):
            rules.add("heavy-type")
    return rules


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_patterns_of_integers_against_their_definitions(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["int8", "uint8", "int16", "int32", "uint32", "int64"]))
    info = np.iinfo(dtype)
    bound = data.draw(st.sampled_from([1, 3, 100, 300, 70000, int(info.max)]))
    seed, size = data.draw(st.integers(0, 1000)), data.draw(st.integers(32, 400))
    common = data.draw(st.sampled_from([0.0, 0.5, 0.74, 0.76, 0.95]))
    generator = np.random.default_rng(seed)
    values = generator.integers(0, min(bound, int(info.max)), size, endpoint=True).astype(dtype)
    values[generator.random(size) < common] = info.min
    rules = {pattern.rule for pattern in describe(values, (size,), Thresholds())}
    assert rules - {"structured-values"} == _brute(values) - (
        {"heavy-type"} if "structured-values" in rules else set()
    )


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "int32", "uint64", "float16", "float32", "float64", "bool"]
)
@pytest.mark.parametrize("size", [100, 5000, 300_000])
def test_random_data_have_no_pattern(dtype: str, size: int) -> None:
    generator = np.random.default_rng(size)
    raw = generator.integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    values = (raw & 1).astype(bool) if dtype == "bool" else raw.view(dtype)
    if values.dtype.kind == "f":
        values = generator.standard_normal(size).astype(dtype)
    assert describe(values, (size,), Thresholds()) == ()


@pytest.mark.parametrize("word", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("size", [64, 70_000])
def test_signalling_nans_between_zeros_are_no_warning(word: Any, size: int) -> None:
    """Integers that a program reads as floats may be such; NumPy warns of them even in ``any``."""
    floats = {np.uint16: np.float16, np.uint32: np.float32, np.uint64: np.float64}[word]
    bits = np.zeros(size, word)
    infinity = np.array([np.inf], floats).view(word)[0]
    bits[1 + size // 2 :: 7][:-1] = infinity + word(1)
    values = bits.view(floats)
    assert values[0] == values[-1] == 0
    assert "single-zero" not in [item.rule for item in describe(values, (size,), Thresholds())]
    assert [item.rule for item in describe(values[: size // 2], (size // 2,), Thresholds())] == [
        "single-zero"
    ]


def _rules(values: NDArray[Any]) -> list[str]:
    return [pattern.rule for pattern in describe(values.reshape(-1), values.shape, Thresholds())]


RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("values", "rules"),
    [
        (np.zeros(40, np.float32), ["single-zero"]),
        (np.where(np.arange(40) % 2, 0.0, -0.0), ["single-zero"]),
        (np.full(40, 2.5), ["single-value"]),
        (np.array([2.5] * 39 + [np.pi]), ["frequent-values", "heavy-type"]),
        (RANDOM.choice([1.4, 0.0, 2.6, 7.1], 4000), ["frequent-values", "heavy-type"]),
        (RANDOM.random(4000) * (RANDOM.random(4000) < 0.2), ["frequent-values"]),
        (RANDOM.random(4000) * (RANDOM.random(4000) < 0.3), []),
        (RANDOM.integers(-100, 100, 4000, np.int32), ["heavy-type"]),
        (RANDOM.integers(-100, 1 << 31, 4000, np.int64), ["heavy-type"]),
        (RANDOM.integers(1 << 31, 1 << 33, 4000, np.int64), []),
        (RANDOM.integers(0, 4000, 4000).astype(np.float32), ["heavy-type"]),
        (RANDOM.random(4000).astype(np.float16).astype(np.float32), ["heavy-type"]),
        (RANDOM.random(4000).astype(np.float32).astype(np.float64), ["heavy-type"]),
        (RANDOM.random(4000).astype(np.float32), []),
        (np.arange(500, dtype=np.int32) * 3 - 7, ["structured-values"]),
        (np.maximum(np.arange(1500, dtype=np.int32) - 1, 0), ["structured-values"]),
        (np.linspace(1, 2, 3000, dtype=np.float32), ["structured-values"]),
        (np.add.outer(np.arange(40) * 1000, np.arange(30) * 7).astype(np.int64), ["structured-values"]),
        (np.arange(500, dtype=np.int64) ** 4, []),
        ((323 + 17 * RANDOM.random(4000)).astype(np.float32), ["approximate-values"]),
        ((310 + 17 * RANDOM.random(4000)).astype(np.float32), []),
        (np.array([np.nan, 1.0] * 400 + [np.inf]), ["frequent-values", "heavy-type"]),
    ],
)
def test_each_pattern_and_a_near_miss(values: NDArray[Any], rules: list[str]) -> None:
    assert _rules(values) == rules


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("zeros", "rules"), [(4, ["frequent-values"]), (3, [])])
def test_zeros_of_either_sign_are_one_value(dtype: type, zeros: int, rules: list[str]) -> None:
    """Of ten elements 4 or 3 are 0, as many are -0, and the others differ, as what is rounded to multiples."""
    place = np.arange(20_000) % 10
    values = np.where(
        place < zeros, 0.0, np.where(place < 2 * zeros, -0.0, 1 + np.random.default_rng(3).random(20_000))
    )
    patterns = [
        item
        for item in describe(values.astype(dtype), values.shape, Thresholds())
        if item.rule != "heavy-type"
    ]
    assert [item.rule for item in patterns] == rules
    for pattern in patterns:
        assert dict(pattern.evidence)["count"] == 16_000 and pattern.text == "0.0 in 80.0 %"


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_an_approximation_says_its_error(scale: float) -> None:
    """Also where the squares of the values are more than a float holds."""
    values = np.linspace(1.0, 1.12, 1001) ** 1.5 * 2.0 ** np.round(np.log2(scale))
    (pattern,) = describe(values, values.shape, Thresholds(residual_share=0, mantissa=((8, 2),)))
    evidence = dict(pattern.evidence)
    middle = (values[0] + values[-1]) / 2
    assert evidence["error"] == pytest.approx(np.abs(values - middle).max())
    assert evidence["rmse"] / middle == pytest.approx(np.sqrt(((values / middle - 1) ** 2).mean()))


@pytest.mark.parametrize(
    ("scale", "dtype", "narrower", "rounded"),
    [
        (1.0, np.float32, "f16", lambda values: values.astype(np.float16)),
        (40000.0, np.float32, "f16", lambda values: values.astype(np.float16)),
        (2.0**20, np.float32, "bf16", lambda values: (values.view(np.uint32) + 0x8000 >> 16 << 16).view(np.float32)),
        (1e30, np.float64, "f32", lambda values: values.astype(np.float32)),
    ],
)  # fmt: skip
def test_an_approximation_says_what_a_narrower_type_loses(
    scale: float, dtype: type, narrower: str, rounded: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    values = (scale * (1 + 0.02 * np.random.default_rng(3).random(4000))).astype(dtype)
    (pattern,) = describe(values, values.shape, Thresholds(mantissa=((4, 3), (8, 3))))
    evidence = dict(pattern.evidence)
    lost = np.abs(rounded(values).astype(np.float64) - values).max()
    assert evidence["narrower"] == narrower
    assert 0.9 * evidence["narrower_error"] < lost <= evidence["narrower_error"]


@pytest.mark.parametrize("scale", [1e-40, 1e39])
def test_no_narrower_type_where_none_is_exact_to_its_fraction(scale: float) -> None:
    """Below the normal numbers of a float, or above all."""
    values = scale * (1 + 0.02 * np.random.default_rng(3).random(4000))
    (pattern,) = describe(values, values.shape, Thresholds(mantissa=((8, 3),)))
    assert pattern.rule == "approximate-values" and "narrower" not in dict(pattern.evidence)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_large_integers_are_not_rounded(dtype: type) -> None:
    """As floats the first are all the same, and the second lie on no line or on one."""
    start = dtype(np.iinfo(dtype).max - 1000)
    scattered = start + np.random.default_rng(0).integers(0, 1000, 500).astype(dtype)
    line = start + np.arange(500).astype(dtype)
    assert [found.rule for found in describe(scattered, (500,), Thresholds())] == []
    (found,) = describe(line, (500,), Thresholds())
    assert (found.rule, dict(found.evidence)["residual"]) == ("structured-values", 0)


Steps = Callable[[ge.Device], object]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint64])
def test_extreme_values_are_described_without_a_warning(dtype: type) -> None:
    """A warning is an error here, as it is in many projects."""
    scalar = np.dtype(dtype)
    info = np.finfo(dtype) if scalar.kind == "f" else np.iinfo(dtype)
    ends = np.array([info.min, info.max], dtype)
    near = ends[1] - (np.arange(64) % 7).astype(dtype) * (ends[1] // 64 if scalar.kind == "f" else 1)
    for values in (np.repeat(ends, 32), np.tile(ends, 32), near, np.linspace(0, 1, 64).astype(dtype) * near):
        for shape in ((64,), (8, 8)):
            assert all(found.rule for found in describe(values, shape, Thresholds()))


def test_what_a_launch_does_not_touch_costs_nothing() -> None:
    """Beside 1 GiB of arrays, those of the launch alone are looked at: less than twice the time is left for noise."""

    def launches(device: ge.Device) -> float:
        data = device.array(np.arange(SIZE, dtype=np.uint32))
        times = []
        for _ in range(6):
            start = time.process_time()
            device.launch(MOVE, 1, 32, [data, 8, 0, 8, 1])
            times.append(time.process_time() - start)
        return min(times)

    beside = ge.Device(observe={"memory", "values"})
    for _ in range(4):
        beside.empty(1 << 26, np.float32)
    assert launches(beside) < 2 * launches(ge.Device(observe={"memory", "values"})) + 0.002
    for use in (use for event in beside.events for use in event.uses):
        assert use.array.nbytes == 4 * SIZE


def test_a_copy_to_the_host_of_what_it_has() -> None:
    device = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
    data = device.array(np.arange(SIZE, dtype=np.uint32) ** 2)

    def held() -> int:
        data.numpy()
        return device.events[-1].uses[0].bytes_held

    assert held() == 4 * SIZE  # copied there, and nothing changed it
    device.launch(MOVE, 1, 32, [data, 8, 0, 8, 1])
    assert held() == 0
    assert held() == 4 * SIZE
    device.launch(MOVE, 1, 32, [data, 8, 0, 8, 1])  # the same again: the host has it still
    assert held() == 4 * SIZE
    data[:4].fill(3)
    assert data[8:].numpy().size and device.events[-1].uses[0].bytes_held == 0


def test_what_a_surface_holds_is_followed_too(backend: str) -> None:
    text = module(
        """
    ld.param.u64 %rd0, [image];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    sust.b.1d.b32.trap [%rd0, {%r1}], {%r0};
    ret;""",
        ".param .u64 image",
    )
    device = ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 20)
    data = device.zeros(32, np.uint32)
    device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [device.surface(data)])
    (use,) = device.events[-1].writes
    assert (use.array, use.written) == (data, 31)  # element 0 is as it was


def test_a_launch_that_is_not_kept_changes_nothing(backend: str) -> None:
    device = ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 20)
    data = device.array(np.arange(SIZE, dtype=np.uint32))
    for keep in (False, False, True, True):
        device.launch(MOVE, 1, 32, [data, 8, 0, 8, 1], keep=keep)
    unchanged = [event.uses[0].unchanged for event in device.events if event.kind == "launch"]
    assert unchanged == [0, 0, 0, 8]


@pytest.mark.parametrize("seed", range(12))
def test_values_that_are_ruled_out_early_are_no_pattern(seed: int) -> None:
    """Held against counting them all: few different values of which ten have half, or one that has three quarters."""
    random = np.random.default_rng(seed)
    size, kinds = int(random.integers(5000, 60_000)), int(2 ** random.uniform(3, 15))
    values = random.normal(size=kinds).astype(np.float32)[random.integers(0, kinds, size)]
    if seed % 2:
        values[random.random(size) < random.random()] = values[0]
    if seed % 3 == 0:
        values = np.sort(values)
    counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
    few = len(counts) <= size / 10 and counts[:10].sum() >= size / 2
    rules = [pattern.rule for pattern in describe(values, (size,), Thresholds())]
    assert ("frequent-values" in rules) is bool(few or counts[0] >= 0.75 * size)
    assert ("heavy-type" in rules) is (len(counts) <= 256)
