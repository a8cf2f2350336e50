"""What the example kernels compute, in NumPy alone.

Where a kernel's order of operations is defined (fused multiply-adds in index order, pairwise trees), the
reference follows it and the comparison is bit for bit; elsewhere it works in double precision and is compared
with a tolerance.
Nothing here knows of PTX or of an emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Array:
    """a * b + c rounded once (nearest, ties to even), elementwise, for float16 or float32 operands.

    The product is exact in float64. The sum is rounded to odd there, which makes the second rounding harmless
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans. Computers 57(4), 2008).
    """
    dtype = np.result_type(a, b, c)
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = np.asarray(total).view(np.int64) & 1 == 0
    to_odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, to_odd, total).astype(dtype)


def pairwise_tree(values: Array) -> Array:
    """Sum over the last axis (a power of two) by adding upper half and lower half until one is left."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return np.asarray(values[..., 0])


def padded(values: Array, multiple: int) -> Array:
    """values with zeros appended up to the next multiple (at least one)."""
    length = max(1, -(-values.size // multiple)) * multiple
    return np.concatenate([values, np.zeros(length - values.size, values.dtype)])


def reduce_shared(values: Array, block: int = 256) -> Array:
    """Partial sums of the tree in shared memory, one per block."""
    return pairwise_tree(padded(values, block).reshape(-1, block))


def reduce_shuffle(values: Array, grid: int, block: int = 256, warp: int = 32) -> Array:
    """Partial sums of the shuffle reduction: in order per thread, then a tree per warp and over the warps."""
    per_thread = np.zeros(grid * block, values.dtype)
    for step in padded(values, grid * block).reshape(-1, grid * block):
        per_thread = per_thread + step
    per_warp = pairwise_tree(per_thread.reshape(grid, block // warp, warp))
    return pairwise_tree(np.pad(per_warp, ((0, 0), (0, warp - block // warp))))


def sgemm(a: Array, b: Array) -> Array:
    """a @ b with one fused multiply-add per step of the inner dimension, in index order."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        total = fma(a[:, i : i + 1], b[i : i + 1, :], total)
    return total


def heat_step(field: Array) -> Array:
    """One step of the five-point stencil; the border is kept. Weights are powers of two: exact products."""
    around = (field[1:-1, :-2] + field[1:-1, 2:]) + (field[:-2, 1:-1] + field[2:, 1:-1])
    after = field.copy()
    after[1:-1, 1:-1] = np.float32(0.5) * field[1:-1, 1:-1] + np.float32(0.125) * around
    return after


def softmax(rows: Array) -> Array:
    """Softmax over the last axis, in float64."""
    powers = np.exp(rows.astype(np.float64) - rows.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    """Causal attention of q, k and v of shape (heads, length, width), in float64."""
    q, k, v = (item.astype(np.float64) for item in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) * scale
    later = np.triu(np.ones(scores.shape[1:], dtype=bool), 1)
    return np.asarray(softmax(np.where(later, -np.inf, scores)) @ v)


def layernorm(rows: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """Layer normalisation over the last axis, in float64."""
    x = rows.astype(np.float64)
    scale = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return np.asarray((x - x.mean(axis=-1, keepdims=True)) / scale * gamma + beta)


def collatz(n: int) -> Array:
    """Number of Collatz steps from 1, 2, ... n to 1."""
    value = np.arange(1, n + 1, dtype=np.uint64)
    steps = np.zeros(n, np.uint32)
    while (running := value != 1).any():
        steps += running
        value = np.where(running, np.where(value % 2 == 0, value // 2, 3 * value + 1), value)
    return steps


INSTRUCTION = np.dtype([("operation", np.int32), ("constant", np.float32)])
"""One step of an expression in postfix form: struct Instruction of expressions.cu."""


def random_expressions(count: int, longest: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Starts (count + 1, int32) and instructions of valid expressions that never hold over eight values."""
    code: list[tuple[int, float]] = []
    starts = [0]
    for _ in range(count):
        depth, target = 0, len(code) + int(rng.integers(1, longest + 1))
        while len(code) < target or depth != 1:
            push = depth == 0 or (depth < 8 and len(code) < target and rng.random() < 0.45)
            fold = depth > 1 and (len(code) >= target or rng.random() < 0.6)
            operation = int(
                rng.integers(0, 2) if push else rng.integers(2, 6) if fold else rng.integers(6, 9)
            )
            depth += push - (fold and not push)
            code.append((operation, float(rng.normal())))
        starts.append(len(code))
    return np.array(starts, np.int32), np.array(code, INSTRUCTION)


def evaluate(starts: Array, code: Array, x: float) -> Array:
    """Values of the expressions, every operation in float32; NaN and infinity as IEEE 754 has them."""
    binary: dict[int, Callable[..., Any]] = {2: np.add, 3: np.subtract, 4: np.multiply, 5: np.divide}
    unary: dict[int, Callable[..., Any]] = {
        6: np.negative,
        7: np.abs,
        8: lambda value: np.sqrt(np.abs(value)),
    }
    values = []
    with np.errstate(all="ignore"):
        for first, last in pairwise(starts):
            stack: list[np.float32] = []
            for operation, constant in code[first:last]:
                if operation < 2:
                    stack.append(np.float32(x) if operation else constant)
                elif operation in binary:
                    right, left = stack.pop(), stack.pop()
                    stack.append(binary[operation](left, right))
                else:
                    stack.append(unary[operation](stack.pop()))
            values.append(stack.pop())
    return np.array(values, np.float32)


VIEW = np.dtype(
    [(name, np.float32) for name in ("left", "top", "dx", "dy")]
    + [(name, np.int32) for name in ("width", "height", "max_iterations")]
)
"""The by-value argument of the Mandelbrot kernel: struct View of mandelbrot.cu."""


def mandelbrot(view: np.void) -> Array:
    """Escape times, shape (height, width), int32; every operation in float32 in the kernel's order."""
    height, width = int(view["height"]), int(view["width"])
    cx = np.broadcast_to(fma(np.arange(width, dtype=np.float32), view["dx"], view["left"]), (height, width))
    cy = np.broadcast_to(
        fma(np.arange(height, dtype=np.float32), view["dy"], view["top"])[:, None], (height, width)
    )
    x = np.zeros((height, width), np.float32)
    y = np.zeros((height, width), np.float32)
    times = np.zeros((height, width), np.int32)
    inside = np.ones((height, width), np.bool_)
    for _ in range(int(view["max_iterations"])):
        xx, yy = x * x, y * y
        inside &= ~(xx + yy > np.float32(4))
        times += inside
        y = np.where(inside, fma(x + x, y, cy), y)
        x = np.where(inside, (xx - yy) + cx, x)
    return times


def random_csr(rows: int, columns: int, mean: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Offsets (rows + 1) and columns of a random sparse matrix, int32; row lengths are skewed, some zero."""
    lengths = np.minimum(rng.geometric(1 / (mean + 1), rows) - 1, columns)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    picks = [np.sort(rng.choice(columns, length, replace=False)) for length in lengths]
    return offsets, np.concatenate([*picks, np.zeros(0)]).astype(np.int32)


def random_graph(vertices: int, edges: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Offsets (vertices + 1) and neighbours of a random undirected graph, no loops or double edges, int32."""
    pairs = rng.integers(0, vertices, (edges, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    offsets = np.searchsorted(both[:, 0], np.arange(vertices + 1)).astype(np.int32)
    return offsets, both[:, 1].astype(np.int32)


def bfs(offsets: Array, neighbours: Array, source: int) -> Array:
    """Distance of every vertex from source, int32, -1 where it cannot be reached."""
    distance = np.full(offsets.size - 1, -1, np.int32)
    distance[source] = 0
    frontier = [source]
    while frontier:
        following = []
        for v in frontier:
            for w in neighbours[offsets[v] : offsets[v + 1]]:
                if distance[w] < 0:
                    distance[w] = distance[v] + 1
                    following.append(int(w))
        frontier = following
    return distance


def spmv(offsets: Array, columns: Array, values: Array, x: Array) -> Array:
    """Sparse matrix times vector, in float64."""
    products = values.astype(np.float64) * x[columns]
    rows = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.bincount(rows, weights=products, minlength=offsets.size - 1)


def e4m3(values: Array) -> Array:
    """The bytes of e4m3 numbers (sign, four bits of exponent with bias 7, three of mantissa) for integers from −16 to 16."""
    size = np.abs(values).astype(np.float64)
    exponent = np.floor(np.log2(np.maximum(size, 1)))
    mantissa = np.where(size > 0, size / 2**exponent * 8 - 8, 0)
    assert np.array_equal(mantissa, np.floor(mantissa)) and size.max() <= 16
    bits = np.where(size > 0, (exponent + 7) * 8 + mantissa, 0).astype(np.uint8)
    found: Array = bits | np.where(values < 0, np.uint8(0x80), np.uint8(0))
    return found
