"""Random numbers of cuRAND's device functions, against their published recurrences on Python integers.

cuRAND's headers are found beside nvcc, or in the folder that ``GPUPERF_CURAND`` names.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.support import BACKENDS

from .running import Array, run_on

NVCC = shutil.which("nvcc")
SOURCE = Path(__file__).parent / "headers" / "random.cu"
SEED, THREADS, OFFSET = 0x123456789ABCDEF1, 64, 5
M32, M64 = 2**32 - 1, 2**64 - 1


def include() -> Path | None:
    """The folder of ``curand_kernel.h``."""
    if NVCC is None:
        return None
    folders = [os.environ.get("GPUPERF_CURAND", ""), *Path(NVCC).resolve().parent.parent.rglob("include")]
    return next((Path(item) for item in folders if item and (Path(item) / "curand_kernel.h").exists()), None)


INCLUDE = include()
pytestmark = pytest.mark.skipif(INCLUDE is None, reason="no curand_kernel.h beside nvcc")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ge.Module:
    ptx = tmp_path_factory.mktemp("random") / "random.ptx"
    subprocess.run(
        [str(NVCC), "-std=c++17", "-ptx", "-arch=sm_75", "-w", f"-I{INCLUDE}", str(SOURCE), "-o", str(ptx)],
        check=True,
    )
    made = ge.parse(ptx.read_text(encoding="utf-8"), path=ptx.name)
    for name in made.functions:
        made.function(name)
    return made


def xorwow(thread: int) -> list[int]:
    """Marsaglia, "Xorshift RNGs" (2003), section 3.1; threads are 2^67 steps apart."""
    low = 1099087573 * ((SEED & M32) ^ 0xAAD26B49) & M32
    high = 2591861531 * ((SEED >> 32) ^ 0xF7DCEFDD) & M32
    state = [123456789 + low, 362436069 ^ low, 521288629 + high, 88675123 ^ high, 5783321 + low]
    weyl = 6615241 + high + low
    vector = sum((word & M32) << (32 * place) for place, word in enumerate(state))
    for bit in range(thread.bit_length()):
        if thread >> bit & 1:
            vector = _apply(_jump(67 + bit), vector)
    drawn = []
    for step in range(OFFSET + 8):
        vector = _step(vector)
        weyl += 362437
        if step >= OFFSET:
            drawn.append((vector >> 128) + weyl & M32)
    return drawn


def _step(vector: int) -> int:
    first, last = vector & M32, vector >> 128
    t = first ^ (first >> 2)
    return vector >> 32 | ((last ^ (last << 4) ^ t ^ (t << 1)) & M32) << 128


def _apply(matrix: list[int], vector: int) -> int:
    """The sum, modulo 2, of the images of the vector's bits."""
    return reduce(lambda total, bit: total ^ matrix[bit] if vector >> bit & 1 else total, range(160), 0)


_JUMPS: list[list[int]] = []


def _jump(power: int) -> list[int]:
    """2^power steps: the image of each bit."""
    if not _JUMPS:
        _JUMPS.append([_step(1 << bit) for bit in range(160)])
    while len(_JUMPS) <= power:
        _JUMPS.append([_apply(_JUMPS[-1], image) for image in _JUMPS[-1]])
    return _JUMPS[power]


def philox(thread: int) -> list[int]:
    """Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011): philox4x32-10."""
    drawn: list[int] = []
    for counter in range(OFFSET // 4, OFFSET // 4 + 3):
        x, key = [counter, 0, thread, 0], [SEED & M32, SEED >> 32]
        for _ in range(10):
            a, b = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
            x = [(b >> 32) ^ x[1] ^ key[0], b & M32, (a >> 32) ^ x[3] ^ key[1], a & M32]
            key = [(key[0] + 0x9E3779B9) & M32, (key[1] + 0xBB67AE85) & M32]
        drawn += x
    return drawn[OFFSET % 4 :]


M1, M2 = 2**32 - 209, 2**32 - 22853


def mrg32k3a(thread: int) -> list[int]:
    """L'Ecuyer, "Good Parameters and Implementations for Combined Multiple Recursive Random Number Generators" (1999); threads are
    2^76 steps apart."""
    low, high = (SEED & M32) ^ 0x55555555, (SEED >> 32) ^ 0xAAAAAAAA
    first = [low * 12345 % M1, high * 12345 % M1, low * 12345 % M1]
    second = [high * 12345 % M2, low * 12345 % M2, high * 12345 % M2]
    steps = (thread << 76) + OFFSET
    first = _multiply(_power([[0, 1, 0], [0, 0, 1], [M1 - 810728, 1403580, 0]], steps, M1), first, M1)
    second = _multiply(_power([[0, 1, 0], [0, 0, 1], [M2 - 1370589, 0, 527612]], steps, M2), second, M2)
    drawn = []
    for _ in range(8):
        first = [*first[1:], (1403580 * first[1] - 810728 * first[0]) % M1]
        second = [*second[1:], (527612 * second[2] - 1370589 * second[0]) % M2]
        drawn.append((first[2] - second[2]) % M1 or M1)
    return drawn


def _multiply(matrix: list[list[int]], vector: list[int], modulus: int) -> list[int]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) % modulus for row in matrix]


def _power(matrix: list[list[int]], exponent: int, modulus: int) -> list[list[int]]:
    found = [[int(i == j) for j in range(3)] for i in range(3)]
    while exponent:
        columns = [list(column) for column in zip(*matrix, strict=True)]
        if exponent & 1:
            made = [_multiply(matrix, list(column), modulus) for column in zip(*found, strict=True)]
            found = [list(row) for row in zip(*made, strict=True)]
        squared = [_multiply(matrix, column, modulus) for column in columns]
        matrix = [list(row) for row in zip(*squared, strict=True)]
        exponent >>= 1
    return found


def run(module: ge.Module, name: str, args: list[object]) -> list[Array]:
    """On both backends, which agree."""
    (expected, _), (found, _) = (run_on(backend, module[name], 2, THREADS // 2, args) for backend in BACKENDS)
    for one, other in zip(expected, found, strict=True):
        assert one.tobytes() == other.tobytes()
    return found


def draw(module: ge.Module, name: str) -> list[Array]:
    kinds = (np.uint32, np.float32, np.float64, np.float32, np.uint32)
    return run(module, name, [SEED, *(np.zeros(THREADS, kind) for kind in kinds)])


@pytest.mark.parametrize(
    ("name", "scale"), [("xorwow", 2.0**-32), ("philox", 2.0**-32), ("mrg32k3a", 1 / (M1 + 1))]
)
def test_generators(module: ge.Module, name: str, scale: float) -> None:
    words = {"xorwow": xorwow, "philox": philox, "mrg32k3a": mrg32k3a}[name]
    bits, uniform, _, _, poisson = draw(module, name)
    drawn = [words(thread) for thread in range(THREADS)]
    if name == "mrg32k3a":  # its words are scaled from 1 … m1 to 32 bits
        assert np.abs(bits.astype(np.float64) * 2.0**-32 - [row[0] * scale for row in drawn]).max() < 1e-9
    else:
        assert bits.tolist() == [row[0] for row in drawn]
    assert np.abs(uniform - [row[1] * scale for row in drawn]).max() < 2.0**-23
    assert uniform.min() > 0 and uniform.max() <= 1
    assert abs(poisson.mean() - 5103.5) < 5 * math.sqrt(5103.5 / THREADS)


def test_normal_numbers(module: ge.Module) -> None:
    """Box and Muller's of the two words after those of the uniform numbers."""
    normal = draw(module, "xorwow")[3]
    for thread in range(0, THREADS, 7):
        x, y = xorwow(thread)[4:6]
        radius = math.sqrt(-2 * math.log((x + 0.5) * 2.0**-32))
        assert normal[thread] == pytest.approx(radius * math.sin((y + 0.5) * 2.0**-31 * math.pi), abs=2e-6)


def test_sobol(module: ge.Module) -> None:
    """The first dimension of Sobol's sequence: bits of the Gray code, mirrored."""
    short: NDArray[np.uint32] = (1 << np.arange(31, -1, -1)).astype(np.uint32)
    long: NDArray[np.uint64] = np.array([1 << place for place in range(63, -1, -1)], np.uint64)
    bits, wide = run(
        module, "sobol", [short, long, np.zeros(2 * THREADS, np.uint32), np.zeros(THREADS, np.uint64)]
    )[2:]

    def mirrored(index: int, width: int) -> int:
        return int(f"{index ^ (index >> 1):0{width}b}"[::-1], 2)

    assert bits.tolist() == [mirrored(thread + step, 32) for thread in range(THREADS) for step in (0, 1)]
    assert wide.tolist() == [mirrored(thread, 64) ^ 0x123456789ABCDEF for thread in range(THREADS)]
