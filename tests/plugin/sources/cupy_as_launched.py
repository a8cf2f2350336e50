"""Runs each case once as CuPy does, on our libraries of CUDA, and once without; prints what is equal, as JSON."""

import json
from functools import partial

import cupy
import numpy as np
from cupy.cuda import compiler
from cupyx import jit

from gpuperf_engine import Device
from pytest_gpuperf.cupy import elementwise, fused, reduction
from pytest_gpuperf.cupy import jit as jitted
from pytest_gpuperf.cupy.memory import ArrayStructure, MovedArrays
from pytest_gpuperf.programs import cuda

cuda.switch_on("a100-sxm-80gb")

texts: list[tuple[str, list[str], str]] = []
launches: list[tuple[object, ...]] = []
compile_now, launch_now = compiler._compile_using_nvrtc_no_warning, cuda.CudaDevice._launch


def compiling(source, given, arch, *rest):
    texts.append((source, list(given), arch))
    return compile_now(source, given, arch, *rest)


def recording(self, kernel, grid, block, parameters, **shape):
    launches.append((kernel.name, tuple(grid), tuple(block), bytes(parameters), shape.get("shared_bytes", 0)))
    return launch_now(self, kernel, grid, block, parameters, **shape)


compiler._compile_using_nvrtc_no_warning = compiling
cuda._device.state.launch = recording.__get__(cuda._device)


def kernel(name, inputs, operation="z = x + y", outputs="T z", **more):
    return cupy.ElementwiseKernel(inputs, outputs, operation, name, **more)


def numbers(xp, *shape, dtype="float32"):
    return xp.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))


def case(made, *arguments, **keywords):
    return (
        made,
        lambda xp: [
            numbers(xp, *given) if isinstance(given, tuple) else given(xp) if callable(given) else given
            for given in arguments
        ],
        keywords,
    )


def typed(dtype, *shape):
    return lambda xp: numbers(xp, *shape, dtype=dtype)


half, complex_, halves = (
    typed("float16", 9),
    typed("complex64", 5),
    lambda xp: numbers(xp, 3, 4, 5, 8)[..., ::2],
)
CASES = {
    "contiguous": case(kernel("k0", "T x, T y"), (3, 50), (3, 50), (3, 50)),
    "scalar": case(kernel("k1", "T x, T y"), (1000,), 2, (1000,)),
    "numpy scalar": case(kernel("k2", "T x, int32 y"), (7,), np.int16(3), (7,)),
    "half": case(kernel("k3", "T x, T y"), half, half, half),
    "complex": case(kernel("k4", "T x, bool y", "z = y ? x * x : x"), complex_, True, complex_),
    "broadcast": case(kernel("k5", "T x, T y"), (4, 1, 6), (5, 1), (4, 5, 6)),
    "transposed": case(kernel("k6", "T x, T y"), lambda xp: numbers(xp, 6, 4).T, (4, 6), (4, 6)),
    "merged": case(kernel("k7", "T x, T y"), halves, (3, 4, 5, 4), (3, 4, 5, 4)),
    "partly merged": case(
        kernel("k8", "T x, T y"), lambda xp: numbers(xp, 2, 3, 4, 5).transpose(2, 3, 0, 1), 1, (4, 5, 2, 3)
    ),
    "ones": case(
        kernel("k9", "T x, T y"), lambda xp: numbers(xp, 3, 1, 4, 1).transpose(2, 1, 0, 3), 1, (4, 1, 3, 1)
    ),
    "backwards": case(kernel("k10", "T x, T y"), lambda xp: numbers(xp, 40)[::-3], 1, (14,)),
    "not reduced": case(kernel("k11", "T x, T y", reduce_dims=False), (3, 4, 5), (3, 4, 5), (3, 4, 5)),
    "no axes": case(kernel("k12", "T x, T y"), (), 1, ()),
    "raw": case(
        kernel("k13", "raw T x, int32 y", "z = x[y - 1 - i]"),
        lambda xp: numbers(xp, 4, 5).T,
        20,
        (20,),
        block_size=16,
    ),
    "size": case(
        kernel("k14", "raw T x, int64 y", "z[i] = x[i] * y", "raw T z"), (300,), 5, (300,), size=257
    ),
    "parts": case(
        kernel(
            "k15",
            "T x, T y",
            "z = twice(x) * f + y; s = z",
            "T z, float64 s",
            loop_prep="const float f = N",
            options=("-DN=3",),
            preamble="__device__ float twice(float v) { return 2 * v; }",
            after_loop="__syncthreads()",
        ),
        (33,),
        (33,),
        (33,),
        typed("float64", 33),
    ),
    "nothing to read": case(kernel("k16", "", "z = i"), lambda xp: numbers(xp, 2, 3, 8)[..., ::2]),
}


def reducing(name, inputs, mapped="x", combined="a + b", after="y = a", outputs="T y", identity="0", **more):
    return cupy.ReductionKernel(inputs, outputs, mapped, combined, after, identity, name, **more)


def columns(xp):
    return numbers(xp, 200, 6).T


CASES |= {
    "whole": case(reducing("r0", "T x"), (40, 50), ()),
    "whole, squared": case(
        reducing("r1", "T x", "x * x", after="y = sqrt(a)"), typed("float64", 5000), typed("float64")
    ),
    "rows": case(reducing("r2", "T x"), (7, 300), (7,), axis=1),
    "rows of Fortran": case(
        reducing("r3", "T x"), lambda xp: xp.asarray(numbers(xp, 300, 7), order="F"), (7,), axis=0
    ),
    "columns": case(reducing("r4", "T x"), (300, 7), (7,), axis=0),
    "kept": case(reducing("r5", "T x"), (3, 400, 5), (1, 400, 1), axis=(0, 2), keepdims=True),
    "few": case(reducing("r6", "T x"), (9, 20), (9,), axis=-1),
    "in order of memory": case(reducing("r7", "T x"), columns, (6,), axis=1),
    "two inputs": case(
        reducing("r8", "T x, T y", "x * y", after="z = a", outputs="T z"), (30, 40), (40,), (40,), axis=0
    ),
    "a number": case(reducing("r9", "T x, float32 p", "x * p", after="z = a", outputs="T z"), (600,), 2, ()),
    "mean": case(
        reducing("r10_mean", "T x", after="y = a / (_in_ind.size() / _out_ind.size())"), (5000,), ()
    ),
    "mean of rows": case(
        reducing("r11_mean", "T x", after="y = a / (_in_ind.size() / _out_ind.size())"),
        (6, 500),
        (6,),
        axis=1,
    ),
    "strided": case(reducing("r12", "T x"), lambda xp: numbers(xp, 20, 30, 8)[..., ::2], (30,), axis=(0, 2)),
    "not merged": case(reducing("r13", "T x", reduce_dims=False), (4, 5, 6), (4,), axis=(1, 2)),
    "other type": case(
        reducing("r14", "T x", outputs="float64 y", reduce_type="double", options=("-DN=3",)),
        (20, 30),
        typed("float64", 30),
        axis=0,
    ),
    "smallest": case(reducing("r15", "T x", combined="min(a, b)", identity="1e9f"), (1000,), ()),
    "no axes reduced": case(reducing("r17", "T x"), (), ()),
    "whole of Fortran, kept": case(
        reducing("r18", "T x"), lambda xp: xp.asarray(numbers(xp, 20, 30), order="F"), (1, 1), keepdims=True
    ),
    "two outputs": case(
        reducing("r19", "T x", after="y = a, z = -a", outputs="T y, T z", reduce_type="T"),
        (4, 500),
        (4,),
        (4,),
        axis=1,
    ),
    "raw input": case(reducing("r20", "T x, raw T w", "x * w[_J]"), (4, 500), (4,), (500,), axis=0),
    "halves": case(
        reducing("r16", "T x", reduce_type="float"), typed("float16", 33, 500), typed("float16", 33), axis=1
    ),
}


def fuses(result=lambda xp: [], **keywords):
    return lambda function: (cupy.fuse(**keywords)(function), result)


@fuses(lambda xp: [numbers(xp, 20, 30)])
def product(x, y):
    return x * y + cupy.sqrt(x)


@fuses(lambda xp: [numbers(xp, 4, 5), numbers(xp, 4, 5)], kernel_name="two")
def both(x, y):
    z = x - y
    return cupy.exp(z), cupy.where(z > 0, z, -z) * 3


@fuses()
def inplace(x, y):
    x += y * 2


@fuses(lambda xp: [numbers(xp)])
def squares(x, y):
    return cupy.sum((x - y) ** 2)


@fuses(lambda xp: [numbers(xp, 9)])
def rows(x):
    return cupy.sum(x * x, axis=1) / 2


FUSED = {
    "product": (product, [(20, 30), (30,)]),
    "both": (both, [(4, 5), 2.0]),
    "inplace": (inplace, [(5, 6), np.float32(3)]),
    "squares": (squares, [(40, 50), (40, 50)]),
    "rows": (rows, [(9, 300)]),
}
CASES |= {
    "fused " + name: (*case(None, *given), (function, result))
    for name, ((function, result), given) in FUSED.items()
}


@jit.rawkernel()
def copied(x, y, size, scale):
    tid = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    for i in range(tid, size, jit.gridDim.x * jit.blockDim.x):
        y[i] = x[i] * scale


@jit.rawkernel()
def summed(x, y):
    shared = jit.shared_memory(cupy.float32, None)
    shared[jit.threadIdx.x] = x[jit.blockIdx.x, jit.threadIdx.x]
    jit.syncthreads()
    jit.atomic_add(y, 0, shared[31 - jit.threadIdx.x])


@jit.rawkernel(mode="numpy")
def scaled(x, factor, more, on):
    i = jit.threadIdx.x + jit.threadIdx.y * jit.blockDim.x
    if on:
        x[i] = x[i] * factor + more


@jit.rawkernel()
def ranked(x):
    grid = jit.cg.this_grid()
    grid.sync()
    x[grid.thread_rank()] = 1


CASES |= {
    "jit with types of NumPy": (
        *case(None, typed("float64", 16), np.float32(2), 3, True),
        (scaled, (1, (4, 4))),
    ),
    "jit with a cooperative grid": (*case(None, (8,)), (ranked, ((2,), (4,)))),
    "jit": (*case(None, (1000,), (1000,), 1000, np.float16(2)), (copied, (4, 64))),
    "jit with shared memory": (
        *case(None, lambda xp: numbers(xp, 64, 4).T[:, ::2], (1,), shared_mem=128),
        (summed, ((4,), (32,))),
    ),
}


def zeroed(launch):
    """The parameters, with zeros for addresses and for what the kernel sets first, and where these are."""
    given, unknown = b"", []
    for argument in launch.arguments:
        given += bytes(-len(given) % min(8, len(argument)))
        if isinstance(argument, ArrayStructure):
            unknown.append((len(given), len(given) + 8))
        elif len(argument) > 16 and len(argument) % 16 == 8:
            # the index of a CIndexer: CuPy gives what is there
            unknown.append((len(given) + (len(argument) + 8) // 2, len(given) + len(argument)))
        given += argument
    return blank(given, unknown), unknown


def blank(given, unknown):
    for start, end in unknown:
        given = given[:start] + bytes(end - start) + given[end:]
    return given


def ways(name, made, given, there, keywords, more, moved):
    """What this project launches, and the call that lets CuPy launch it."""
    if made is not None:
        kind = reduction if isinstance(made, cupy.ReductionKernel) else elementwise
        return kind.prepare(made, given, keywords, moved), partial(made, *there, **keywords)
    made, special = more[0]
    if name.startswith("jit"):
        return jitted.prepare(made, special, given, keywords, moved), partial(
            made[special], *there, **keywords
        )
    return fused.prepare(made, given, {"out": special(np)}, moved), partial(made, *there)


def compared(name, made, arguments, keywords, *more):
    device = Device()
    moved = MovedArrays(lambda host, name, contents: device.array(host, name=name))
    ours, launch = ways(name, made, arguments(np), arguments(cupy), keywords, more, moved)
    launches.clear()
    texts.clear()
    launch()
    alike = {"text": True, "options": True, "shape": True, "parameters": True}
    for mine, (entry, grid, block, parameters, shared), (text, flags, arch) in zip(ours, launches, texts):
        expected, unknown = zeroed(mine)
        alike["text"] &= (text, entry, arch) == (mine.text, mine.name, "80")
        alike["options"] &= flags == mine.options
        alike["shape"] &= (grid, block, shared) == (mine.grid, mine.block, mine.shared_bytes)
        # what CuPy gives may end with the kernel's own parameters
        alike["parameters"] &= blank(parameters, unknown)[: len(parameters)] == expected[: len(parameters)]
    return {"number": (len(ours), len(launches), len(texts))} | alike


print(json.dumps({name: compared(name, *case) for name, case in CASES.items()}))
