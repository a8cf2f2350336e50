"""Every example kernel as data: what to launch, with what, and what must come out.

Other tests (emulator against interpreter, backend against backend), the benchmark and the documentation read
this catalogue; it imports NumPy and nothing of the product. The dataclasses (in ``case_types.py``):

``Case``
    One kernel at one size. ``name`` is unique (``"saxpy-1000"``); ``ptx`` is the path of the PTX file and
    ``text`` its contents; ``kind`` is ``"small"`` (at most about 2 000 threads per launch) or ``"bench"``
    (the sizes of the benchmark). ``fixed_schedule`` is False where *warp-level* counts and the order inside
    some buffer depend on the order in which blocks and warps run (atomics whose result decides a branch).
    ``program()`` builds the launches with data from a generator seeded by the case's name: equal everywhere.

``Program``
    ``launches``, run in order on one set of buffers; ``buffers``, the distinct arrays among their arguments
    in order of first use; ``check(outputs)``, called with the contents of those buffers after the last
    launch, in the same order, shape and dtype: raises AssertionError where a result is wrong or an input was
    changed.

``Launch``
    ``entry``, ``grid``, ``block`` (int or tuple of up to three), ``args`` and ``shared_bytes`` (dynamic
    shared memory). An argument is an array (a device buffer; the *same object* in two launches is the same
    buffer), a NumPy scalar of the parameter's width, a ``np.void`` (structure by value) or None (null).

``SMALL`` and ``BENCH`` are the two halves of ``CASES``; ``execute`` runs a program through any function that
launches one kernel on arrays in place::

    for case in SMALL:
        program = case.program()
        program.check(execute(program, lambda launch, args: run(case.text, launch, args)))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import case_programs as programs
from case_types import Arg, Array, Case, Dim, Launch, Program, execute
from cnn import programs as layers

__all__ = ["BENCH", "CASES", "SMALL", "Arg", "Array", "Case", "Dim", "Launch", "Program", "execute"]

HERE = Path(__file__).resolve().parent

Make = Callable[..., Program]


def cuda(
    stem: str,
    name: str,
    make: Make,
    *size: int | float | str,
    kind: Literal["small", "bench"] = "small",
    fixed_schedule: bool = True,
    folder: str = "kernels",
) -> Case:
    """A case of <folder>/<stem>.ptx."""
    return Case(name, HERE / folder / f"{stem}.ptx", kind, partial(make, *size), fixed_schedule)


def layer(stem: str, entry: str, make: Make, *size: int) -> Case:
    """A case of cnn/<stem>.ptx."""
    return cuda(stem, f"cnn_{entry}-{'x'.join(map(str, size))}", make, *size, folder="cnn")


def both(stem: str, make: Make, *size: int) -> list[Case]:
    """A Triton kernel at both of its architectures."""
    label = "x".join(map(str, size))
    return [
        Case(
            f"triton_{stem}.sm_{arch}-{label}",
            HERE / "triton" / f"{stem}.sm_{arch}.ptx",
            "small",
            partial(make, *size),
        )
        for arch in (80, 90)
    ]


CASES: list[Case] = [
    *(cuda("saxpy", f"saxpy-{n}", programs.saxpy, n) for n in (1, 256, 1000)),
    *(cuda("saxpy", f"saxpy_grid_stride-{n}", programs.saxpy_grid_stride, n, 2) for n in (100, 1001)),
    *(cuda("haxpy", f"haxpy-{n}", programs.haxpy, n) for n in (1, 512, 1001)),
    *(cuda("reduce", f"reduce_shared-{n}", programs.reduce_shared, n, 2) for n in (1, 1000, 1024)),
    *(cuda("reduce", f"reduce_shuffle-{n}", programs.reduce_shuffle, n, 3) for n in (5, 1000, 2000)),
    *(cuda("scan", f"scan-{n}", programs.scan, n) for n in (1, 256, 1000)),
    *(
        cuda("sgemm", f"{entry}-{m}x{n}x{k}", programs.sgemm, entry, m, n, k)
        for entry in programs.SGEMM
        for m, n, k in ((16, 32, 16), (33, 17, 20))
    ),
    cuda("sgemm", "sgemm_register-70x65x9", programs.sgemm, "sgemm_register", 70, 65, 9),
    *(
        cuda("transpose", f"{entry}-{rows}x{cols}", programs.transpose, entry, rows, cols)
        for entry in ("transpose_conflicts", "transpose_padded")
        for rows, cols in ((32, 64), (45, 33))
    ),
    *(
        cuda("histogram", f"{entry}-{n}", programs.histogram, entry, n, 3)
        for entry in ("histogram_global", "histogram_shared")
        for n in (10, 1500)
    ),
    *(cuda("cluster", f"cluster_histogram-{n}", programs.cluster_histogram, n, 8) for n in (10, 2500)),
    *(cuda("cluster", f"cluster_sum-{n}", programs.cluster_sum, n, 2) for n in (10, 2500)),
    *(
        cuda("stencil", f"{entry}-{width}x{height}", programs.heat, entry, width, height)
        for entry in ("heat_step", "heat_step_shared")
        for width, height in ((32, 16), (37, 13))
    ),
    *(cuda("bfs", f"bfs-{v}x{e}", programs.bfs, v, e) for v, e in ((20, 25), (300, 450))),
    *(
        cuda("bfs", f"bfs_frontier-{v}x{e}", programs.bfs_frontier, v, e, fixed_schedule=False)
        for v, e in ((20, 25), (300, 450))
    ),
    *(
        cuda("spmv", f"spmv_scalar-{rows}x{cols}", programs.spmv, "spmv_scalar", rows, cols, 6.0)
        for rows, cols in ((1, 5), (200, 150))
    ),
    *(
        cuda("spmv", f"spmv_vector-{rows}x{cols}", programs.spmv, "spmv_vector", rows, cols, 40.0)
        for rows, cols in ((1, 5), (37, 150))
    ),
    *(
        cuda("softmax", f"softmax-{rows}x{cols}", programs.softmax, rows, cols)
        for rows, cols in ((1, 1), (3, 200))
    ),
    *(
        cuda("layernorm", f"layernorm-{rows}x{cols}", programs.layernorm, rows, cols)
        for rows, cols in ((1, 1), (3, 200))
    ),
    *(
        cuda(
            "tensor_gemm",
            f"{entry}-{m}x{n}x{k}",
            programs.tensor_gemm,
            entry,
            m,
            n,
            k,
        )
        for entry, m, n, k in (
            ("hgemm_wmma", 32, 64, 32),
            ("hgemm_mma", 64, 128, 32),
            ("hgemm_mma", 64, 64, 160),
            ("igemm_mma", 64, 64, 192),
        )
    ),
    cuda("tensor_gemm_fp8", "qgemm_mma-64x64x128", programs.tensor_gemm, "qgemm_mma", 64, 64, 128),
    *(
        cuda("warpgroup_gemm", f"{entry}-{m}x{n}x{k}", programs.tensor_gemm, entry, m, n, k)
        for entry, m, n, k in (
            ("hgemm_wgmma", 128, 128, 64),
            ("hgemm_specialised", 128, 256, 64),
            ("hgemm_specialised", 128, 128, 320),
        )
    ),
    *(cuda("fft512", f"fft512-{n}", programs.fft512, n) for n in (1, 2)),
    *(cuda("collatz", f"collatz-{n}", programs.collatz, n) for n in (1, 300)),
    *(
        cuda("mandelbrot", f"mandelbrot-{w}x{h}x{limit}", programs.mandelbrot, w, h, limit)
        for w, h, limit in ((16, 16, 1), (35, 20, 40))
    ),
    *(cuda("carrier", f"carrier-{n}", programs.carrier, n) for n in (1, 300)),
    *(
        cuda("expressions", f"expressions-{n}x{longest}", programs.expressions, n, longest)
        for n, longest in ((1, 1), (200, 40))
    ),
    *(cuda("bitonic", f"bitonic-{n}", programs.bitonic, n) for n in (1024, 2048)),
    *(
        Case(
            f"demo_{stem}-33x17x20",
            HERE / "demo" / f"{stem}.ptx",
            "small",
            partial(programs.scaled_sgemm, 33, 17, 20),
        )
        for stem in ("sgemm_tiled", "sgemm_tiled_slow")
    ),
    *(
        layer("convolution", "convolution_3x3", partial(layers.convolution, 3), *size)
        for size in ((1, 2, 3, 5, 4, 5), (2, 1, 1, 9, 7, 66))
    ),
    layer("convolution", "convolution_1x1", partial(layers.convolution, 1), 1, 1, 16, 8, 8, 64),
    *(
        layer("depthwise", "depthwise_3x3", partial(layers.depthwise, 1), *size)
        for size in ((1, 1, 1, 1), (1, 2, 17, 9))
    ),
    *(
        layer("depthwise", "depthwise_3x3_stride_2", partial(layers.depthwise, 2), *size)
        for size in ((1, 1, 1, 1), (1, 1, 17, 35))
    ),
    *(layer("elementwise", "batch_norm", layers.batch_norm, *size) for size in ((1, 1, 4), (2, 3, 140))),
    *(
        layer("elementwise", f"{name}_activation", partial(layers.activation, name), size)
        for name in ("relu6", "silu")
        for size in (4, 512, 600)
    ),
    *(layer("pooling", "max_pool_3x3", layers.max_pool, *size) for size in ((1, 1, 1, 1), (1, 2, 17, 6))),
    *(layer("pooling", "average_pool", layers.average_pool, *size) for size in ((1, 1, 1, 1), (3, 2, 7, 9))),
    *(
        layer("classifier", "fully_connected", layers.fully_connected, *size)
        for size in ((1, 4, 1), (2, 268, 5))
    ),
    *(layer("classifier", "softmax", layers.softmax, *size) for size in ((1, 1), (5, 45))),
    *both("vector_add", programs.triton_vector_add, 1008),
    *both("choose", programs.triton_choose, 1008),
    *both("softmax", programs.triton_softmax, 2, 300),
    *both("layernorm", programs.triton_layernorm, 2, 700, 704),
    *(
        Case(
            f"triton_{stem}.sm_{arch}-{'x'.join(map(str, size))}",
            HERE / "triton" / f"{stem}.sm_{arch}.ptx",
            "small",
            partial(make, shared, *size),
        )
        for stem, make, size, sizes in (
            ("matmul", programs.triton_matmul, (80, 48, 48), (16384, 24576)),
            ("attention", programs.triton_attention, (1, 80), (24576, 32768)),
        )
        for arch, shared in zip((80, 90), sizes)
    ),
    cuda("saxpy", "saxpy-1048576", programs.saxpy, 1 << 20, kind="bench"),
    cuda("sgemm", "sgemm_tiled-256x256x256", programs.sgemm, "sgemm_tiled", 256, 256, 256, kind="bench"),
    cuda("collatz", "collatz-65536", programs.collatz, 1 << 16, kind="bench"),
    cuda("reduce", "reduce_shared-1048576", programs.reduce_shared, 1 << 20, 1, kind="bench"),
]
SMALL = [case for case in CASES if case.kind == "small"]
BENCH = [case for case in CASES if case.kind == "bench"]
