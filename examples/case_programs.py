"""Builders of the catalogue's programs: one function per kernel family.

Each takes a size and a random generator, makes the data, and returns the launches and what must come out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy_reference as reference
from case_types import Arg, Array, Dim, Launch, Program, Verify, close, exactly


def blocks(elements: int, per_block: int) -> int:
    """Blocks that cover the elements; at least one."""
    return max(1, -(-elements // per_block))


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal float32."""
    return rng.standard_normal(shape, np.float32)


def blank(shape: int | tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    """A buffer that is to be written whole: filled with what no kernel here computes."""
    return np.full(shape, np.nan if issubclass(dtype, np.floating) else 0x5A5A5A5A, dtype)


def saxpy(n: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(2.5), floats(rng, n), floats(rng, n)
    launch = Launch("saxpy", blocks(n, 256), 256, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(lambda: reference.fma(a, x, y))),))


def saxpy_grid_stride(n: int, grid: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(-0.75), floats(rng, n), floats(rng, n)
    launch = Launch("saxpy_grid_stride", grid, 128, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(lambda: reference.fma(a, x, y))),))


def haxpy(n: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(1.5), floats(rng, n).astype(np.float16), floats(rng, n).astype(np.float16)
    launch = Launch("haxpy", blocks(n, 512), 256, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(lambda: reference.fma(np.float16(a), x, y))),))


def reduce_shared(n: int, launches: int, rng: np.random.Generator) -> Program:
    """As many launches as asked for, each over the partial sums of the one before."""
    data = floats(rng, n)
    steps: list[Launch] = []
    expected: list[tuple[Array, Verify]] = []
    value = data
    for _ in range(launches):
        value = reference.reduce_shared(value)
        partial_sums = blank(value.size)
        steps.append(Launch("reduce_shared", value.size, 256, (np.int32(data.size), data, partial_sums)))
        expected.append((partial_sums, exactly(value)))
        data = partial_sums
    return Program(tuple(steps), tuple(expected))


def reduce_shuffle(n: int, grid: int, rng: np.random.Generator) -> Program:
    x, partial_sums, total = floats(rng, n), blank(grid), blank(1)
    first = reference.reduce_shuffle(x, grid)
    second = reference.reduce_shuffle(first, 1)
    launches = (
        Launch("reduce_shuffle", grid, 256, (np.int32(n), x, partial_sums)),
        Launch("reduce_shuffle", 1, 256, (np.int32(grid), partial_sums, total)),
    )
    return Program(launches, ((partial_sums, exactly(first)), (total, exactly(second))))


def scan(n: int, rng: np.random.Generator) -> Program:
    """Block scans, the totals scanned by the same steps, and on the way back the totals added."""
    data = rng.integers(-100, 100, n, np.int32)
    out = blank(n, np.int32)
    down: list[Launch] = []
    up: list[Launch] = []
    expected: list[tuple[Array, Verify]] = []
    source, target, sums = data, out, np.cumsum(data, dtype=np.int32)
    while True:
        expected.append((target, exactly(sums)))
        grid, length = blocks(target.size, 256), np.int32(target.size)
        if grid == 1:
            down.append(Launch("scan_block", 1, 256, (length, source, target, None)))
            break
        totals = blank(grid, np.int32)
        down.append(Launch("scan_block", grid, 256, (length, source, target, totals)))
        up.insert(0, Launch("scan_add_totals", grid, 256, (length, target, totals)))
        sums = np.append(sums[255::256], sums[-1:] if target.size % 256 else sums[:0])
        source = target = totals
    return Program((*down, *up), tuple(expected))


SGEMM: dict[str, Callable[[int, int], tuple[Dim, Dim]]] = {
    "sgemm_naive": lambda m, n: ((blocks(m, 16), blocks(n, 16)), (16, 16)),
    "sgemm_coalesced": lambda m, n: ((blocks(n, 16), blocks(m, 16)), (16, 16)),
    "sgemm_tiled": lambda m, n: ((blocks(n, 16), blocks(m, 16)), (16, 16)),
    "sgemm_register": lambda m, n: ((blocks(n, 64), blocks(m, 64)), 256),
}
"""Grid and block of each stage for an m x n result."""


def sgemm(entry: str, m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    a, b, c = floats(rng, m, k), floats(rng, k, n), blank((m, n))
    grid, block = SGEMM[entry](m, n)
    launch = Launch(entry, grid, block, (np.int32(m), np.int32(n), np.int32(k), a, b, c))
    return Program((launch,), ((c, exactly(lambda: reference.sgemm(a, b))),))


def scaled_sgemm(m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    """The demo's product with a diagonal between the factors; its variants round differently."""
    a, d, b, c = floats(rng, m, k), floats(rng, k), floats(rng, k, n), blank((m, n))
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    launch = Launch("sgemm_tiled", (blocks(n, 16), blocks(m, 16)), (16, 16), (*sizes, a, d, b, c))
    product = (a.astype(np.float64) * d) @ b
    return Program((launch,), ((c, close(product, 1e-5, 1e-5)),))


def transpose(entry: str, rows: int, cols: int, rng: np.random.Generator) -> Program:
    matrix, out = floats(rng, rows, cols), blank((cols, rows))
    grid = (blocks(cols, 32), blocks(rows, 32))
    launch = Launch(entry, grid, (32, 8), (np.int32(rows), np.int32(cols), matrix, out))
    return Program((launch,), ((out, exactly(np.ascontiguousarray(matrix.T))),))


def histogram(entry: str, n: int, grid: int, rng: np.random.Generator) -> Program:
    data = np.minimum(rng.geometric(0.03, n), 255).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    launch = Launch(entry, grid, 128, (np.int32(n), data, bins))
    return Program((launch,), ((bins, exactly(np.bincount(data, minlength=256).astype(np.uint32))),))


def cluster_histogram(n: int, grid: int, rng: np.random.Generator) -> Program:
    data = np.minimum(rng.geometric(0.008, n), 1023).astype(np.uint16)
    bins = np.zeros(1024, np.uint32)
    launch = Launch("cluster_histogram", grid, 96, (np.int32(n), data, bins))
    return Program((launch,), ((bins, exactly(np.bincount(data, minlength=1024).astype(np.uint32))),))


def cluster_sum(n: int, clusters: int, rng: np.random.Generator) -> Program:
    """Of small whole numbers, whose sum does not depend on the order."""
    values, sums = rng.integers(-99, 99, n).astype(np.float32), blank(clusters)
    threads = 96
    owner = np.arange(n) // (8 * threads) % clusters
    expected = np.bincount(owner, weights=values, minlength=clusters).astype(np.float32)
    launch = Launch("cluster_sum", 8 * clusters, threads, (np.int32(n), values, sums))
    return Program((launch,), ((sums, exactly(expected)),))


def heat(entry: str, width: int, height: int, rng: np.random.Generator) -> Program:
    """Two steps, there and back between two fields."""
    field, other = floats(rng, height, width), blank((height, width))
    once = reference.heat_step(field)
    size = (np.int32(width), np.int32(height))
    grid = (blocks(width, 32), blocks(height, 8))
    launches = (
        Launch(entry, grid, (32, 8), (*size, field, other)),
        Launch(entry, grid, (32, 8), (*size, other, field)),
    )
    return Program(launches, ((other, exactly(once)), (field, exactly(reference.heat_step(once)))))


def bfs(vertices: int, edges: int, rng: np.random.Generator) -> Program:
    """Expansion and commitment, level by level, until a level finds nothing."""
    offsets, neighbours = reference.random_graph(vertices, edges, rng)
    final = reference.bfs(offsets, neighbours, 0)
    distance = np.full(vertices, -1, np.int32)
    distance[0] = 0
    marked, n, grid = np.zeros(vertices, np.uint8), np.int32(vertices), blocks(vertices, 128)
    launches: list[Launch] = []
    expected: list[tuple[Array, Verify]] = [
        (distance, exactly(final)),
        (marked, exactly(np.zeros_like(marked))),
    ]
    for level in range(int(final.max()) + 1):
        found = np.zeros(1, np.int32)
        graph = (offsets, neighbours, distance, marked)
        launches.append(Launch("bfs_expand", grid, 128, (n, np.int32(level), *graph)))
        launches.append(Launch("bfs_commit", grid, 128, (n, np.int32(level), distance, marked, found)))
        expected.append((found, exactly(np.array([level < final.max()], np.int32))))
    return Program(tuple(launches), tuple(expected))


def bfs_frontier(vertices: int, edges: int, rng: np.random.Generator) -> Program:
    """One launch per level over two queues; which thread finds a vertex first is up to the schedule."""
    offsets, neighbours = reference.random_graph(vertices, edges, rng)
    final = reference.bfs(offsets, neighbours, 0)
    per_level = np.bincount(final[final >= 0])
    levels = per_level.size
    distance = np.full(vertices, -1, np.int32)
    distance[0] = 0
    queues = [np.full(vertices, -1, np.int32) for _ in range(2)]
    queues[0][0] = 0
    sizes = np.zeros(levels + 1, np.int32)
    sizes[0] = 1

    def holds_last(parity: int) -> Verify:
        newest = max(level for level in range(levels) if level % 2 == parity)

        def verify(queue: Array) -> None:
            members = np.flatnonzero(final == newest)
            np.testing.assert_array_equal(np.sort(queue[: members.size]), members)

        return verify

    launches = tuple(
        Launch(
            "bfs_frontier",
            blocks(int(per_level[level]), 128),
            128,
            (np.int32(level), offsets, neighbours, distance, queues[level % 2], queues[1 - level % 2], sizes),
        )
        for level in range(levels)
    )
    expected = (
        (distance, exactly(final)),
        (sizes, exactly(np.append(per_level, 0).astype(np.int32))),
        *((queues[parity], holds_last(parity)) for parity in range(min(2, levels))),
    )
    return Program(launches, expected)


def spmv(entry: str, rows: int, cols: int, mean: float, rng: np.random.Generator) -> Program:
    offsets, columns = reference.random_csr(rows, cols, mean, rng)
    values, x, y = floats(rng, columns.size), floats(rng, cols), blank(rows)
    grid = blocks(rows * (32 if entry == "spmv_vector" else 1), 128)
    launch = Launch(entry, grid, 128, (np.int32(rows), offsets, columns, values, x, y))
    return Program((launch,), ((y, close(reference.spmv(offsets, columns, values, x), 1e-5, 1e-5)),))


def softmax(rows: int, cols: int, rng: np.random.Generator) -> Program:
    data, out = 4 * floats(rng, rows, cols), blank((rows, cols))
    launch = Launch("softmax", rows, 128, (np.int32(cols), data, out), shared_bytes=4 * cols)
    return Program((launch,), ((out, close(reference.softmax(data), 1e-5, 1e-9)),))


def layernorm(rows: int, cols: int, rng: np.random.Generator) -> Program:
    data, out = 2 * floats(rng, rows, cols) + 3, blank((rows, cols))
    gamma, beta, epsilon = floats(rng, cols), floats(rng, cols), np.float32(1e-5)
    launch = Launch("layernorm", rows, 128, (np.int32(cols), epsilon, data, gamma, beta, out))
    return Program((launch,), ((out, close(reference.layernorm(data, gamma, beta, 1e-5), 1e-5, 2e-5)),))


def fft512(transforms: int, rng: np.random.Generator) -> Program:
    data = rng.standard_normal((transforms, 512, 2))
    spectrum = np.fft.fft(data[..., 0] + 1j * data[..., 1])
    expected = np.stack([spectrum.real, spectrum.imag], axis=-1)
    launch = Launch("fft512", transforms, 64, (data,))
    return Program((launch,), ((data, close(expected, 1e-12, 1e-12)),))


def collatz(n: int, rng: np.random.Generator) -> Program:
    length = blank(n, np.uint32)
    launch = Launch("collatz", blocks(n, 256), 256, (np.uint32(n), length))
    return Program((launch,), ((length, exactly(lambda: reference.collatz(n))),))


def mandelbrot(width: int, height: int, max_iterations: int, rng: np.random.Generator) -> Program:
    view = np.array([(-2.1, -1.2, 2.8 / width, 2.4 / height, width, height, max_iterations)], reference.VIEW)[
        0
    ]
    out = blank((height, width), np.int32)
    launch = Launch("mandelbrot", (blocks(width, 16), blocks(height, 16)), (16, 16), (view, out))
    return Program((launch,), ((out, exactly(lambda: reference.mandelbrot(view))),))


def carrier(n: int, rng: np.random.Generator) -> Program:
    """Phases from a fraction of a turn to 10 ** 18: short and long argument reductions in the same warp."""
    omega = np.float64(6.25)
    t = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 18, n)
    y = blank(n, np.float64)
    launch = Launch("carrier", blocks(n, 128), 128, (np.int32(n), omega, t, y))
    return Program((launch,), ((y, close(np.sin(omega * t), 1e-15, 2e-16)),))


def expressions(count: int, longest: int, rng: np.random.Generator) -> Program:
    starts, code = reference.random_expressions(count, longest, rng)
    x, values = np.float32(0.7), blank(count)
    launch = Launch("evaluate", blocks(count, 128), 128, (np.int32(count), starts, code, x, values))
    return Program((launch,), ((values, exactly(reference.evaluate(starts, code, 0.7))),))


def bitonic(n: int, rng: np.random.Generator) -> Program:
    """Sorted blocks, then merges: wide steps one launch each, the rest of each merge in one."""
    data = rng.integers(0, 1 << 32, n, np.uint32)
    launches = [Launch("bitonic_sort_blocks", n // 1024, 512, (data,))]
    size = 2048
    while size <= n:
        stride = size // 2
        while stride >= 1024:
            step = (data, np.int32(size), np.int32(stride))
            launches.append(Launch("bitonic_merge_step", n // 512, 256, step))
            stride //= 2
        launches.append(Launch("bitonic_merge_blocks", n // 1024, 512, (data, np.int32(size))))
        size *= 2
    return Program(tuple(launches), ((data, exactly(np.sort(data))),))


TRITON_HIDDEN: tuple[Arg, ...] = (None, None)
"""Scratch and profiling memory, the last two parameters of every Triton entry; these kernels use neither."""


def triton_vector_add(n: int, rng: np.random.Generator) -> Program:
    x, y, out = floats(rng, n), floats(rng, n), blank(n)
    launch = Launch("add_kernel", blocks(n, 1024), 128, (x, y, out, np.int32(n), *TRITON_HIDDEN))
    return Program((launch,), ((out, exactly(x + y)),))


def triton_choose(n: int, rng: np.random.Generator) -> Program:
    """One launch for each side of the branch."""
    x, twice, moved = floats(rng, n), blank(n), blank(n)
    launches = tuple(
        Launch(
            "choose_kernel",
            blocks(n, 1024),
            128,
            (x, out, np.int32(n), np.float32(threshold), *TRITON_HIDDEN),
        )
        for out, threshold in ((twice, 1), (moved, -1))
    )
    return Program(launches, ((twice, exactly(2 * x)), (moved, exactly(np.append(x[1:], np.float32(0)) + 1))))


def triton_softmax(rows: int, cols: int, rng: np.random.Generator) -> Program:
    data, out = 4 * floats(rng, rows, cols), blank((rows, cols))
    args = (out, data, np.int32(cols), np.int32(cols), *TRITON_HIDDEN)
    launch = Launch("softmax_kernel", rows, 128, args, shared_bytes=16)
    return Program((launch,), ((out, close(reference.softmax(data), 1e-5, 1e-9)),))


def triton_layernorm(rows: int, cols: int, stride: int, rng: np.random.Generator) -> Program:
    """Rows are stride floats apart; what lies between them is neither read nor written."""
    data, out = 2 * floats(rng, rows, stride) + 3, np.zeros((rows, stride), np.float32)
    gamma, beta = floats(rng, cols), floats(rng, cols)
    data[:, cols:] = np.nan
    expected = np.zeros((rows, stride))
    expected[:, :cols] = reference.layernorm(data[:, :cols], gamma, beta, 1e-5)
    args = (data, gamma, beta, out, np.int32(stride), np.int32(cols), np.float32(1e-5), *TRITON_HIDDEN)
    launch = Launch("layernorm_kernel", rows, 128, args, shared_bytes=16)
    return Program((launch,), ((out, close(expected, 1e-5, 2e-5)),))


#: rows and columns of a block's tile, threads, dynamic shared memory
TENSOR_GEMM: dict[str, tuple[int, int, int, int]] = {
    "hgemm_wmma": (32, 32, 128, 0),
    "hgemm_mma": (64, 64, 128, 0),
    "igemm_mma": (64, 64, 128, 0),
    "qgemm_mma": (64, 64, 128, 0),
    "hgemm_wgmma": (64, 128, 128, 0),
    "hgemm_specialised": (128, 128, 384, 3 * 32768),
}


def tensor_gemm(entry: str, m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    """a · bᵀ on tensor cores. Small integers, so that every sum is exact; numbers of eight bits go as bytes."""
    a, b = (rng.integers(-8, 9, shape) for shape in ((m, k), (n, k)))
    rows, columns, threads, shared = TENSOR_GEMM[entry]
    kind = np.int8 if entry == "igemm_mma" else np.float16
    left, right = (reference.e4m3(item) if entry == "qgemm_mma" else item.astype(kind) for item in (a, b))
    c = blank((m, n), np.int32 if entry == "igemm_mma" else np.float32)
    args = (np.int32(n), np.int32(k), left, right, c)
    launch = Launch(entry, (blocks(n, columns), blocks(m, rows)), threads, args, shared_bytes=shared)
    return Program((launch,), ((c, exactly(lambda: (a.astype(np.float64) @ b.T).astype(c.dtype))),))


def triton_matmul(shared: int, m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    """Small integers, so that every sum is exact."""
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = blank((m, n))
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    tiles = blocks(m, 64) * blocks(n, 64)
    launch = Launch("matmul_kernel", tiles, 128, (a, b, c, *sizes, *TRITON_HIDDEN), shared_bytes=shared)
    return Program((launch,), ((c, exactly(lambda: a.astype(np.float32) @ b.astype(np.float32))),))


def triton_attention(shared: int, heads: int, length: int, rng: np.random.Generator) -> Program:
    """Causal; results may be off by the rounding of the weights and of themselves to half precision."""
    q, k, v = (rng.standard_normal((heads, length, 64)).astype(np.float16) for _ in range(3))
    out = blank((heads, length, 64), np.float16)
    launch = Launch(
        "attention_kernel",
        (blocks(length, 64), heads),
        128,
        (q, k, v, out, np.int32(length), np.float32(0.125), *TRITON_HIDDEN),
        shared_bytes=shared,
    )
    half = 2.0**-11 + 2.0**-20
    expected = close(reference.attention(q, k, v, 0.125), rtol=half, atol=half * float(np.abs(v).max()))
    return Program((launch,), ((out, expected),))
