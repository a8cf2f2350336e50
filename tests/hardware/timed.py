"""What is timed on a GPU: the example kernels at three sizes each, and pairs of kernels that differ in one thing.

NumPy and ``examples/`` only. ``TIMED`` holds the cases, ``PAIRS`` the names of two cases of which one differs from the other in
the thing that the key says.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import case_programs as programs
import numpy as np
from case_types import Array, Case, Launch, Program, exactly
from cnn import programs as layers

__all__ = ["PAIRS", "TIMED", "Map", "Timed"]

HERE = Path(__file__).resolve().parent
EXAMPLES = Path(programs.__file__).resolve().parent
Make = Callable[..., Program]


@dataclass(frozen=True, eq=False)
class Timed(Case):
    """A case of the catalogue's kind; ``max_registers`` is what ``-maxrregcount`` would say, 0 for no limit; ``again``: a run on
    what a run has left does the same work, so that it can be replayed."""

    max_registers: int = 0
    again: bool = True


@dataclass(frozen=True, eq=False)
class Map:
    """A tensor map among the arguments of a launch: of ``array``, with the fields of ``gpuperf_engine.memory.tensor_maps.Layout``."""

    array: Array
    layout: dict[str, Any]


class Mapped(Program):
    """A program with tensor maps among its arguments."""

    @cached_property
    def buffers(self) -> tuple[Array, ...]:
        """As ``Program.buffers``, with the arrays that maps are of."""
        given = [
            arg.array if isinstance(arg, Map) else arg for launch in self.launches for arg in launch.args
        ]
        return tuple({id(item): item for item in given if isinstance(item, np.ndarray)}.values())


def example(
    stem: str,
    entry: str,
    make: Make,
    *sizes: tuple[int | float, ...],
    folder: str = "kernels",
    again: bool = True,
    name: str = "",
    fixed_schedule: bool = True,
) -> list[Timed]:
    """An example at several sizes."""
    path = EXAMPLES / folder / f"{stem}.ptx"
    return [
        Timed(
            f"{name or entry}-{'x'.join(map(str, size))}",
            path,
            "bench",
            partial(make, *size),
            fixed_schedule,
            again=again,
        )
        for size in sizes
    ]


@cache
def pairs_ptx() -> str:
    """``pairs.ptx``: in the hardware kit a file, in the repository among the packed PTX."""
    carried = HERE / "ptx" / "pairs.ptx"
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    packed = json.loads(lzma.decompress((HERE.parent / "cuda/compiled.json.xz").read_bytes()))
    return str(packed["hardware/pairs"]["ptx"])


class Pair(Timed):
    """A kernel of ``pairs.ptx``."""

    @cached_property
    def text(self) -> str:
        """Contents of the PTX file."""
        return pairs_ptx()


def pair(name: str, program: Make, *arguments: object, max_registers: int = 0) -> Timed:
    """A kernel of ``pairs.ptx``."""
    return Pair(name, Path("pairs.ptx"), "bench", partial(program, *arguments), max_registers=max_registers)


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


def tensor_copies(m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    """a · bᵀ, whose factors come in boxes of 128 rows with 64 elements of k, 128 bytes that are swizzled."""
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = np.zeros((m, n), np.float32)
    maps = [
        Map(item, {
            "rank": 2, "type": 6, "swizzle": 3, "atom": 0, "fill": 0, "mode": 0, "interleave": 0, "box": (64, 128, 1, 1, 1),
            "steps": (1,) * 5, "strides": (2 * k, 0, 0, 0), "shape": (k, len(item), 1, 1, 1),
        })
        for item in (a, b)
    ]  # fmt: skip
    args: tuple[Any, ...] = (np.int32(n), np.int32(k), *maps, c)
    launch = Launch("hgemm_tma", (n // 128, m // 128), 384, args, 3 * 32768)
    return Mapped((launch,), ((c, exactly(lambda: a.astype(np.float32) @ b.astype(np.float32).T)),))


def layer(
    stem: str, entry: str, make: Make, *sizes: tuple[int | float, ...], again: bool = True
) -> list[Timed]:
    """A layer of the network at several sizes."""
    return example(stem, entry, make, *sizes, folder="cnn", again=again, name=f"cnn_{entry}")


def triton(stem: str, entry: str, make: Make, *sizes: tuple[int, ...], **shared: int) -> list[Timed]:
    """A Triton kernel of both its architectures; ``shared``: dynamic shared memory of each, where it takes some."""
    return [
        case
        for arch in ("sm_80", "sm_90")
        for case in example(
            f"{stem}.{arch}", entry, partial(make, shared[arch]) if shared else make, *sizes, folder="triton",
            name=f"triton_{stem}" + ("" if arch == "sm_80" else f"_{arch}"),
        )
    ]  # fmt: skip


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
        "saxpy",
        "saxpy_grid_stride",
        programs.saxpy_grid_stride,
        (1 << 16, 64),
        (1 << 20, 264),
        (1 << 24, 1056),
    ),
    *example("carrier", "carrier", programs.carrier, (1 << 14,), (1 << 17,), (1 << 20,)),
    *example("expressions", "expressions", programs.expressions, (256, 20), (1024, 20), (4096, 20)),
    *example(
        "cluster",
        "cluster_histogram",
        programs.cluster_histogram,
        (1 << 16, 64),
        (1 << 20, 264),
        (1 << 24, 1056),
    ),
    *example("cluster", "cluster_sum", programs.cluster_sum, (1 << 16, 4), (1 << 20, 33), (1 << 24, 132)),
    *example(
        "bfs",
        "bfs_frontier",
        programs.bfs_frontier,
        (1 << 12, 1 << 14),
        (1 << 14, 1 << 16),
        (1 << 16, 1 << 18),
        again=False,
        fixed_schedule=False,
    ),
    *(
        item
        for stem, entry in (
            ("tensor_gemm", "hgemm_wmma"),
            ("tensor_gemm", "hgemm_mma"),
            ("tensor_gemm", "igemm_mma"),
            ("tensor_gemm_fp8", "qgemm_mma"),
            ("warpgroup_gemm", "hgemm_wgmma"),
            ("warpgroup_gemm", "hgemm_specialised"),
        )
        for item in example(stem, entry, partial(programs.tensor_gemm, entry), *SQUARES)
    ),
    *example("warpgroup_gemm_tma", "hgemm_tma", tensor_copies, *SQUARES),
    *layer(
        "convolution",
        "convolution_3x3",
        partial(layers.convolution, 3),
        (1, 1, 16, 28, 28, 32),
        (1, 1, 32, 56, 56, 64),
        (1, 4, 32, 56, 56, 64),
    ),
    *layer(
        "convolution",
        "convolution_1x1",
        partial(layers.convolution, 1),
        (1, 1, 32, 28, 28, 64),
        (1, 4, 32, 56, 56, 64),
        (1, 16, 32, 56, 56, 64),
    ),
    *layer(
        "depthwise",
        "depthwise_3x3",
        partial(layers.depthwise, 1),
        (1, 32, 28, 28),
        (4, 64, 56, 56),
        (16, 64, 112, 112),
    ),
    *layer(
        "depthwise",
        "depthwise_3x3_stride_2",
        partial(layers.depthwise, 2),
        (1, 32, 28, 28),
        (4, 64, 56, 56),
        (16, 64, 112, 112),
    ),
    *layer("elementwise", "batch_norm", layers.batch_norm, (1, 32, 784), (4, 64, 3136), (16, 64, 12544)),
    *(
        item
        for name in ("relu6", "silu")
        for item in layer(
            "elementwise",
            f"{name}_activation",
            partial(layers.activation, name),
            (1 << 14,),
            (1 << 18,),
            (1 << 22,),
        )
    ),
    *layer("pooling", "max_pool_3x3", layers.max_pool, (1, 32, 28, 28), (4, 64, 56, 56), (8, 64, 112, 112)),
    *layer(
        "pooling", "average_pool", layers.average_pool, (1, 32, 28, 28), (4, 64, 56, 56), (16, 64, 112, 112)
    ),
    *layer(
        "classifier",
        "fully_connected",
        layers.fully_connected,
        (1, 256, 100),
        (16, 1280, 1000),
        (256, 1280, 1000),
    ),
    *layer("classifier", "softmax", layers.softmax, (16, 100), (256, 1000), (8192, 1000)),
    *triton("softmax", "triton_softmax", programs.triton_softmax, (256, 256), (1024, 512), (8192, 900)),
    *triton(
        "vector_add", "triton_vector_add", programs.triton_vector_add, (1 << 16,), (1 << 20,), (1 << 24,)
    ),
    *triton(
        "layernorm",
        "triton_layernorm",
        programs.triton_layernorm,
        (256, 700, 704),
        (1024, 700, 704),
        (8192, 1000, 1024),
    ),
    *triton("matmul", "triton_matmul", programs.triton_matmul, *SQUARES, sm_80=16384, sm_90=24576),
    *triton(
        "attention",
        "triton_attention",
        programs.triton_attention,
        (4, 256),
        (8, 512),
        (16, 1024),
        sm_80=24576,
        sm_90=32768,
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
    # one address all the same, as no compiler can know; where it does know, it has one lane of a warp add for all
    pair("add_same", adding, "add_spread", 0),
    pair("add_combined", adding, "add_same", 0),
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
    "atomics on one address, as the compiler sees": ("add_same", "add_combined"),
    "two tiles on the way": ("piped_1", "piped_2"),
    "four tiles on the way": ("piped_1", "piped_4"),
}
