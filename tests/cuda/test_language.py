"""What CUDA C++ has beside arithmetic: calls of every kind, memory of every kind, system calls, inline PTX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuperf_engine as ge

from .running import module, run, run_on

N = 96


@pytest.fixture(params=["language", "language_debug"])
def file(request: pytest.FixtureRequest) -> str:
    """The same source with and without optimisation (-G): generic addresses, local memory, a call for every function."""
    return str(request.param)


def test_virtual_functions(file: str) -> None:
    x = np.linspace(1, 5, N).astype(np.float32)
    (_, areas, corners), _ = run(
        file, "virtual_functions", 3, 32, [x, np.zeros_like(x), np.zeros(N, np.int32)]
    )
    odd = np.arange(N) % 2 == 1
    np.testing.assert_allclose(areas, np.where(odd, 3 * x * x, x * x), rtol=1e-6)
    assert (corners == np.where(odd, 0, 4)).all()


def test_function_pointers(file: str) -> None:
    x = np.arange(N, dtype=np.int32) * 5 % 17
    (_, out), _ = run(file, "function_pointers", 3, 32, [x, np.zeros((N, 2), np.int32)])
    functions: list[Callable[[int], int]] = [lambda v: 2 * v, lambda v: v * v, lambda v: -v]
    constant = [functions[2], functions[0], functions[1]]
    for i, v in enumerate(x.tolist()):
        assert out[i].tolist() == [functions[i % 3](v), constant[v % 3](v + 1)]


def _fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def test_recursion(file: str) -> None:
    (out,), _ = run(file, "recursion", 2, 32, [np.zeros((64, 3), np.int32)])
    for i in range(64):  # the Ackermann function of 0 and 1
        assert out[i].tolist() == [_fibonacci(i % 13), int(i % 2 == 0), i % 7 + 1 + i % 2]


PARTICLE = np.dtype(
    [("mass", "f8"), ("position", "f4", 3), ("charge", "i2"), ("tag", "i1"), ("pad", "V1")], align=True
)
PAIR = np.dtype([("first", "i8"), ("second", "i4"), ("pad", "V4")])


def test_structures(file: str) -> None:
    particle = np.zeros((), PARTICLE)
    particle["mass"], particle["position"], particle["charge"], particle["tag"] = 2.5, (1, 2, 3), 9, 4
    x = np.arange(N, dtype=np.float32) / 4
    arrays = [
        x,
        np.zeros(N * PARTICLE.itemsize, np.uint8),
        np.zeros(N * PAIR.itemsize, np.uint8),
        np.zeros(N, np.uint32),
    ]
    (_, out, pairs, words), _ = run(file, "structures", 3, 32, [particle[()], *arrays])
    moved, swapped = out.view(PARTICLE), pairs.view(PAIR)
    assert (moved["mass"] == 2.5).all()
    assert (moved["charge"] == 10).all()
    assert (moved["tag"] == 5).all()
    assert (moved["position"] == np.stack([1 + x, 2 - x, 3 + 2 * x], 1)).all()
    i = np.arange(N)
    assert (swapped["first"] == i - 7).all()
    assert (swapped["second"] == i << 3).all()
    raw = x.view(np.uint32)
    assert (words == (raw & 0x00FFFF00 | raw >> 24 | (raw & 0xFF) << 24)).all()


def test_local_arrays(file: str) -> None:
    x = np.random.default_rng(1).integers(0, 1000, (N, 8)).astype(np.int32)
    (_, found, depth), _ = run(file, "local_arrays", 3, 32, [x, np.zeros_like(x), np.zeros(N, np.int32)])
    assert (found == np.sort(x, 1)).all()
    for row, height in zip(found.tolist(), depth.tolist(), strict=True):
        stack: list[int] = []
        for value in row:
            while stack and stack[-1] > value & 15:
                stack.pop()
            stack.append(value & 15)
        assert height == len(stack)


def test_tables(file: str) -> None:
    x = np.random.default_rng(2).integers(0, 1 << 32, N).astype(np.uint32)
    (_, polynomial, counts), _ = run(
        file, "tables", 3, 32, [x, np.zeros(N, np.float32), np.zeros(N, np.int32)]
    )
    v = (x & 15) * 0.125
    exact = sum(c * v**k for k, c in enumerate((1, -0.5, 0.25, -0.125, 0.0625)))
    np.testing.assert_allclose(polynomial, exact, rtol=1e-6)
    bits = np.bitwise_count(x).astype(int)
    assert (counts == bits + 100 * np.array([4, 5, 6])[np.arange(N) % 3] + 10000 + 200000 + 2 * 1000000).all()


def test_symbols_of_the_host(backend: str, file: str) -> None:
    device = ge.Device(backend=backend)
    kernel = module(file)["tables"]
    nothing = device.zeros(32, np.uint32)
    device.launch(kernel, 1, 32, [nothing, device.zeros(32, np.float32), device.zeros(32, np.int32)])
    assert device.symbol(kernel, "counter").numpy().item() == 14


def _operation(kind: int, a: int, b: int) -> int:
    def s(v: int) -> int:
        return (v + 2**31) % 2**32 - 2**31

    def cut(p: int, q: int) -> int:
        return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)

    table: list[Callable[[], int]] = [
        lambda: a + b,
        lambda: a - b,
        lambda: a * b,
        lambda: a & b,
        lambda: a | b,
        lambda: a ^ b,
        lambda: a << (b & 7),
        lambda: a >> (b & 7),
        lambda: max(a, b),
        lambda: min(a, b),
        lambda: cut(a, b) if b else -1,
        lambda: a - cut(a, b) * b if b else -2,
        lambda: (a % 2**32).bit_count() + b,
        lambda: 32 - (a % 2**32).bit_length() - b,
        lambda: abs(a) + abs(b),
        lambda: a * a - b * b,
    ]
    return s(table[kind]() if kind < len(table) else ~a)


def test_dense_switch(file: str) -> None:
    rng = np.random.default_rng(4)
    kinds, x = rng.permutation(24).astype(np.int32), rng.integers(-1000, 1000, N).astype(np.int32)
    (_, _, out), _ = run(file, "dense_switch", 3, 32, [kinds, x, np.int32(9), np.zeros(N, np.int32)])
    for i, value in enumerate(x.tolist()):
        for j in range(9):
            value = _operation(int(kinds[(i + j) % 24]), value, j - 3)
        assert out[i] == value


def test_unreached_system_calls(file: str) -> None:
    x = np.arange(N, dtype=np.int32)
    (_, out), _ = run(file, "unreached", 3, 32, [x, np.zeros_like(x)])
    assert (out == x + 1).all()


def test_reached_system_calls(backend: str, file: str) -> None:
    (out,), profile = run_on(backend, module(file)["says"], 1, 32, [np.zeros(32, np.int32)])
    assert profile.printed == "".join(f"hello from {i}\n" for i in range(32))
    assert (out == 1).all()
    (given,), _ = run_on(backend, module(file)["allocates"], 1, 32, [np.zeros(32, np.uint64)])
    assert (np.diff(np.sort(given).astype(np.int64)) >= 64).all()
    with pytest.raises(ge.TrapError, match=r'Assertion `x\[THREAD\] < 5 && "too large"` failed') as caught:
        run_on(
            backend, module(file)["asserts"], 1, 32, [np.arange(32, dtype=np.int32), np.zeros(32, np.int32)]
        )
    assert f"{file}.ptx:" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 5


def _control(i: int, x: int) -> int:
    value = 1
    for j in range(5):
        value = value * 3 + j + x
    ended = False
    for a in range(10):
        if (a ^ i) % 3 == 0:
            continue
        b = a
        while True:
            if b * i > 40:
                break
            if b > 20:
                ended = True
                break
            value += b
            b += 1
        if ended:
            break
        value ^= a
    while True:
        value = value * 3 + 1 if value & 1 else value // 2
        if value <= 1000:
            return value


def test_control(file: str) -> None:
    x = np.arange(N, dtype=np.int32) * 7 % 31
    (_, out), profile = run(file, "control", 3, 32, [x, np.int32(N - 5), np.zeros_like(x)])
    assert out[: N - 5].tolist() == [_control(i, v) for i, v in enumerate(x[: N - 5].tolist())]
    assert not out[N - 5 :].any()
    assert profile.branches.divergent


def test_cache_hints(file: str) -> None:
    x = np.arange(4 * N, dtype=np.int32).reshape(N, 4)
    v = np.arange(N, dtype=np.int32)
    zeros = [
        np.zeros((N, 4), np.int32),
        np.zeros((N, 2)),
        np.zeros((N, 4), np.uint8),
        np.zeros((N, 2), np.int16),
    ]
    (_, after, out, d, c, s), _ = run(file, "cache_hints", 3, 32, [x, v, *zeros])
    i = np.arange(N)
    first = x[:, 0] + x[:, 1]
    assert (after == v + 1).all()
    assert (out == np.stack([first, x[:, 1], x[:, 2], 4 * i], 1)).all()
    assert (d == np.stack([first, x[:, 2] * 0.5], 1)).all()
    assert (c == out.astype(np.uint8)).all()
    assert (s == np.stack([first, -x[:, 1]], 1).astype(np.int16)).all()


def test_inline_ptx(file: str) -> None:
    x = np.random.default_rng(6).integers(0, 200, N).astype(np.uint32)
    (_, out), _ = run(file, "inline_ptx", 3, 32, [x, np.zeros_like(x)])
    for i, a in enumerate(x.tolist()):
        b = (a + 1) ** 2 ^ 0xFF
        c = 111 if a > 50 else 222
        total = (a >> 4 & 0xFF) + 0xFFFFFF00
        low, high = total & 0xFFFFFFFF, (a ^ b ^ c) + (total >> 32)
        assert out[i] == (c * 3 + b + i % 32 * 1000 + low + high) & 0xFFFFFFFF
