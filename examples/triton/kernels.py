"""Seven Triton kernels: vector addition, softmax, layer normalisation, matrix product, attention, a choice, and described tiles."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y; one program adds BLOCK elements. n is a multiple of 16."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    y = tl.load(y_ptr + index, mask=mask)
    tl.store(out_ptr + index, x + y, mask=mask)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, row_stride, cols, BLOCK: tl.constexpr):
    """Softmax of one row per program; BLOCK is a power of two of at least cols."""
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < cols
    values = tl.load(in_ptr + row * row_stride + index, mask=mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out_ptr + row * row_stride + index, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def layernorm_kernel(in_ptr, gamma_ptr, beta_ptr, out_ptr, row_stride, cols, epsilon, BLOCK: tl.constexpr):
    """Layer normalisation of one row per program, BLOCK columns at a time; row_stride is a multiple of 16."""
    in_ptr += tl.program_id(0) * row_stride
    out_ptr += tl.program_id(0) * row_stride

    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += tl.load(in_ptr + index, mask=index < cols, other=0.0)
    mean = tl.sum(total, axis=0) / cols

    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        index = start + tl.arange(0, BLOCK)
        values = tl.load(in_ptr + index, mask=index < cols, other=0.0)
        deviation = tl.where(index < cols, values - mean, 0.0)
        squares += deviation * deviation
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + epsilon)

    for start in range(0, cols, BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < cols
        gamma = tl.load(gamma_ptr + index, mask=mask)
        beta = tl.load(beta_ptr + index, mask=mask)
        values = tl.load(in_ptr + index, mask=mask)
        tl.store(out_ptr + index, (values - mean) * scale * gamma + beta, mask=mask)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    """c = a @ b, half-precision factors, single-precision sums; programs go down GROUP tiles before they go right."""
    program = tl.program_id(0)
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    row = group * GROUP + program % (GROUP * across) % height
    column = program % (GROUP * across) // height

    rows = row * ROWS + tl.arange(0, ROWS)
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, DEPTH)
    a = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    b = b_ptr + inner[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, k, DEPTH):
        left = tl.load(a, mask=inner[None, :] < k - start, other=0.0)
        right = tl.load(b, mask=inner[:, None] < k - start, other=0.0)
        total = tl.dot(left, right, total)
        a += DEPTH
        b += DEPTH * n
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total, mask=mask)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr
):
    """out = softmax(scale · q kᵀ) v for QUERIES rows of one head, KEYS rows of k and v at a time (flash attention, forward).

    q, k, v, out: (heads, length, WIDTH) in half precision; length is a multiple of 16. The maximum of a row and the sum of its powers
    are corrected as further keys come in, so no row of q kᵀ is ever whole. CAUSAL: no query sees later keys.
    """
    first = tl.program_id(0) * QUERIES
    head = tl.program_id(1) * length * WIDTH
    queries = first + tl.arange(0, QUERIES)
    keys = tl.arange(0, KEYS)
    inner = tl.arange(0, WIDTH)
    inside = queries[:, None] < length
    place = head + queries[:, None] * WIDTH + inner[None, :]
    q = tl.load(q_ptr + place, mask=inside, other=0.0)
    scale *= 1.4426950408889634  # powers of two cost less than those of e

    highest = tl.full([QUERIES], -float("inf"), dtype=tl.float32)
    powers = tl.zeros([QUERIES], dtype=tl.float32)
    total = tl.zeros([QUERIES, WIDTH], dtype=tl.float32)
    end = min(first + QUERIES, length) if CAUSAL else length
    for start in range(0, end, KEYS):
        current = start + keys
        k = tl.load(k_ptr + head + current[None, :] * WIDTH + inner[:, None], mask=current[None, :] < length, other=0.0)
        scores = tl.dot(q, k) * scale
        visible = current[None, :] < length
        if CAUSAL:
            visible = visible & (queries[:, None] >= current[None, :])
        scores = tl.where(visible, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        correction = tl.exp2(highest - higher)
        powers = powers * correction + tl.sum(weights, 1)
        v = tl.load(v_ptr + head + current[:, None] * WIDTH + inner[None, :], mask=current[:, None] < length, other=0.0)
        total = tl.dot(weights.to(tl.float16), v, total * correction[:, None])
        highest = higher
    tl.store(out_ptr + place, (total / powers[:, None]).to(tl.float16), mask=inside)


@triton.jit
def choose_kernel(x_ptr, out_ptr, n, threshold, BLOCK: tl.constexpr):
    """out = 2 x if the threshold is positive, else x moved by one place, plus 1: a branch that whole programs take."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    if threshold > 0:
        out = 2 * tl.load(x_ptr + index, mask=mask)
    else:
        out = tl.load(x_ptr + index + 1, mask=index + 1 < n, other=0.0) + 1
    tl.store(out_ptr + index, out, mask=mask)


@triton.jit
def tiles_kernel(x, out, ROWS: tl.constexpr):
    """out = x + x in tiles of whole rows; x and out are tensor descriptors that the host makes."""
    row = tl.program_id(0) * ROWS
    tile = x.load([row, 0])
    out.store([row, 0], tile + tile)
