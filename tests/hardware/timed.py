"""What is timed on a GPU: the example kernels at three sizes each, and pairs of kernels that differ in one thing.

NumPy and ``examples/`` only. ``TIMED`` holds the cases, ``PAIRS`` the names of two cases of which one differs from the other in
the thing that the key says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import case_programs as programs
import numpy as np
from case_types import Array, Case, Launch, Program

__all__ = ["PAIRS", "TIMED", "Timed"]

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
Make = Callable[..., Program]


@dataclass(frozen=True, eq=False)
class Timed(Case):
    """A case of the catalogue's kind; ``max_registers`` is what ``-maxrregcount`` would say, 0 for no limit; ``again``: a run on
    what a run has left does the same work, so that it can be replayed."""

    max_registers: int = 0
    again: bool = True


def example(
    stem: str,
    entry: str,
    make: Make,
    *sizes: tuple[int | float, ...],
    folder: str = "kernels",
    again: bool = True,
) -> list[Timed]:
    """An example at several sizes."""
    path = EXAMPLES / folder / f"{stem}.ptx"
    return [
        Timed(f"{entry}-{'x'.join(map(str, size))}", path, "bench", partial(make, *size), again=again)
        for size in sizes
    ]


def pair(name: str, program: Make, *arguments: object, max_registers: int = 0) -> Timed:
    """A kernel of ``pairs.ptx``."""
    return Timed(
        name, HERE / "ptx" / "pairs.ptx", "bench", partial(program, *arguments), max_registers=max_registers
    )


def _floats(rng: np.random.Generator, count: int) -> Array:
    return rng.random(count, np.float32)


def strided(stride: int, rng: np.random.Generator) -> Program:
    """4 Mi floats, every ``stride``-th of an array."""
    n = 1 << 22
    return Program(
        (
            Launch(
                f"strided_{stride}",
                n // 256,
                256,
                (np.int32(n), _floats(rng, n * stride), np.zeros(n, np.float32)),
            ),
        ),
        (),
    )


def copied(kind: str, width: int, rng: np.random.Generator) -> Program:
    """16 Mi floats, ``width`` at a time."""
    n = 1 << 24
    arguments = (np.int32(n // width), _floats(rng, n), np.zeros(n, np.float32))
    return Program((Launch(f"copy_{kind}", 2048, 256, arguments),), ())


def rounds(entry: str, rng: np.random.Generator) -> Program:
    """1 024 blocks of 200 rounds with barriers."""
    arguments = (np.int32(200), _floats(rng, 200 * 256), np.zeros(1024 * 256, np.float32))
    return Program((Launch(entry, 1024, 256, arguments),), ())


def many_values(shared_bytes: int, rng: np.random.Generator) -> Program:
    """64 values per thread, 20 steps, 256 Ki threads."""
    threads = 1 << 18
    arguments = (np.int32(20), _floats(rng, threads * 64), np.zeros(threads, np.float32))
    return Program((Launch("many_values", threads // 128, 128, arguments, shared_bytes),), ())


def polynomial(entry: str, shared_bytes: int, rng: np.random.Generator) -> Program:
    """Degree 256 at a million places."""
    n = 1 << 20
    kind = np.float64 if entry.endswith("double") else np.float32
    arguments = (np.int32(n), np.int32(256), rng.random(n).astype(kind), np.zeros(n, kind))
    return Program((Launch(entry, n // 256, 256, arguments, shared_bytes),), ())


def split(entry: str, rng: np.random.Generator) -> Program:
    """400 steps on either side of a branch, a million threads."""
    n = 1 << 20
    arguments = (np.int32(400), _floats(rng, n), np.zeros(n, np.float32))
    return Program((Launch(entry, n // 256, 256, arguments),), ())


def adding(entry: str, mask: int, rng: np.random.Generator) -> Program:
    """16 additions of each of 256 Ki threads."""
    return Program(
        (Launch(entry, 1024, 256, (np.int32(16), np.uint32(mask), np.zeros(1 << 16, np.uint32))),), ()
    )


def piped(depth: int, rng: np.random.Generator) -> Program:
    """264 blocks, 128 tiles of 4 KiB each."""
    arguments = (np.int32(128), _floats(rng, 264 * 128 * 1024), np.zeros(264 * 256, np.float32))
    return Program((Launch(f"piped_{depth}", 264, 256, arguments),), ())


SQUARES = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024))
TIMED: list[Timed] = [
    *example("saxpy", "saxpy", programs.saxpy, (1 << 16,), (1 << 20,), (1 << 24,)),
    *example("haxpy", "haxpy", programs.haxpy, (1 << 16,), (1 << 20,), (1 << 24,)),
    *(
        item
        for entry in programs.SGEMM
        for item in example("sgemm", entry, partial(programs.sgemm, entry), *SQUARES)
    ),
    *(
        item
        for entry in ("transpose_conflicts", "transpose_padded")
        for item in example(
            "transpose", entry, partial(programs.transpose, entry), (512, 512), (2048, 2048), (8192, 4096)
        )
    ),
    *example("reduce", "reduce_shared", programs.reduce_shared, (1 << 16, 1), (1 << 20, 1), (1 << 24, 1)),
    *example(
        "reduce", "reduce_shuffle", programs.reduce_shuffle, (1 << 16, 64), (1 << 20, 256), (1 << 24, 1024)
    ),
    *example("scan", "scan", programs.scan, (1 << 16,), (1 << 20,), (1 << 23,)),
    *(
        item
        for entry in ("histogram_global", "histogram_shared")
        for item in example(
            "histogram",
            entry,
            partial(programs.histogram, entry),
            (1 << 16, 64),
            (1 << 20, 256),
            (1 << 24, 1024),
        )
    ),
    *(
        item
        for entry in ("heat_step", "heat_step_shared")
        for item in example(
            "stencil", entry, partial(programs.heat, entry), (256, 256), (1024, 1024), (4096, 4096)
        )
    ),
    *example(
        "bfs", "bfs", programs.bfs, (1 << 12, 1 << 14), (1 << 14, 1 << 16), (1 << 16, 1 << 18), again=False
    ),
    *(
        item
        for entry in ("spmv_scalar", "spmv_vector")
        for item in example(
            "spmv",
            entry,
            partial(programs.spmv, entry),
            (1 << 12, 1 << 12, 32.0),
            (1 << 14, 1 << 14, 32.0),
            (1 << 16, 1 << 16, 32.0),
        )
    ),
    *example("softmax", "softmax", programs.softmax, (256, 256), (1024, 1024), (8192, 2048)),
    *example("layernorm", "layernorm", programs.layernorm, (256, 256), (1024, 1024), (8192, 2048)),
    *example("fft512", "fft512", programs.fft512, (64,), (1024,), (16384,)),
    *example("collatz", "collatz", programs.collatz, (1 << 14,), (1 << 16,), (1 << 18,)),
    *example(
        "mandelbrot", "mandelbrot", programs.mandelbrot, (128, 128, 100), (512, 512, 100), (1024, 1024, 200)
    ),
    *example("bitonic", "bitonic", programs.bitonic, (1 << 12,), (1 << 16,), (1 << 20,), again=False),
    *example(
        "softmax.sm_80",
        "triton_softmax",
        programs.triton_softmax,
        (256, 256),
        (1024, 512),
        (8192, 900),
        folder="triton",
    ),
    *example(
        "vector_add.sm_80",
        "triton_vector_add",
        programs.triton_vector_add,
        (1 << 16,),
        (1 << 20,),
        (1 << 24,),
        folder="triton",
    ),
    *example("sgemm_tiled", "demo_sgemm_tiled", programs.scaled_sgemm, *SQUARES, folder="demo"),
    *example("sgemm_tiled_slow", "demo_sgemm_tiled_slow", programs.scaled_sgemm, *SQUARES, folder="demo"),
    *(pair(f"strided_{stride}", strided, stride) for stride in (1, 2, 32)),
    *(
        pair(f"copy_{kind}", copied, kind, width)
        for kind, width in (("float", 1), ("float2", 2), ("float4", 4))
    ),
    *(pair(f"rounds_{kind}", rounds, f"rounds_{kind}") for kind in ("plain", "barrier")),
    pair("many_values", many_values, 0),
    pair("many_values_spilled", many_values, 0, max_registers=32),
    pair("polynomial_rolled", polynomial, "polynomial_rolled", 0),
    pair("polynomial_unrolled", polynomial, "polynomial_unrolled", 0),
    pair("polynomial_double", polynomial, "polynomial_double", 0),
    pair("polynomial_few_ctas", polynomial, "polynomial_unrolled", 96 << 10),
    *(pair(f"split_by_{what}", split, f"split_by_{what}") for what in ("lane", "warp")),
    pair("add_same", adding, "add_same", 0),
    pair("add_spread", adding, "add_spread", 0xFFFF),
    *(pair(f"piped_{depth}", piped, depth) for depth in (1, 2, 4)),
]

#: what differs → (the case without it, the case with it)
PAIRS: dict[str, tuple[str, str]] = {
    "stride 2": ("strided_1", "strided_2"),
    "stride 32": ("strided_1", "strided_32"),
    "padding of shared memory": ("transpose_conflicts-2048x2048", "transpose_padded-2048x2048"),
    "8-byte accesses": ("copy_float", "copy_float2"),
    "16-byte accesses": ("copy_float", "copy_float4"),
    "one more barrier": ("rounds_plain", "rounds_barrier"),
    "spills": ("many_values", "many_values_spilled"),
    "occupancy by shared memory": ("polynomial_unrolled", "polynomial_few_ctas"),
    "unrolling": ("polynomial_rolled", "polynomial_unrolled"),
    "double for float": ("polynomial_unrolled", "polynomial_double"),
    "a redundant load": ("demo_sgemm_tiled-512x512x512", "demo_sgemm_tiled_slow-512x512x512"),
    "divergence": ("split_by_warp", "split_by_lane"),
    "atomics on one address": ("add_spread", "add_same"),
    "two tiles on the way": ("piped_1", "piped_2"),
    "four tiles on the way": ("piped_1", "piped_4"),
}
