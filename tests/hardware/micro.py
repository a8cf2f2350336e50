"""Makes ``ptx/micro`` and ``ptx/micro.json`` of the hardware kit: kernels that measure one number of a machine each.

    python -m tests.hardware.micro

What ptxas makes of each was looked at: the instruction named stands between the two readings as often as it was written. An
exception is ``m16n8k32.f32.e4m3`` on sm_90, which has no such instruction and adds one product again and again.

Every kernel takes (out, data, size): each warp times its body with ``%clock64`` and ``%globaltimer`` and stores both
differences; ``data`` holds zeros or a ring of addresses. The numbers are those that machine descriptions need: latencies (one
warp, a chain of dependent instructions), issue rates (all warps of an SM, several chains), caches, shared memory, barriers,
atomics, copies, matrices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict

from .micro_async import (
    box_copy,
    bulk_copy,
    cluster_barrier,
    cluster_chase,
    copy_async,
    mbarrier_pass,
    mbarrier_wake,
    warpgroup,
)
from .micro_parts import (
    CHAINS,
    LOOPS,
    UNROLL,
    atomics,
    barrier,
    busy_warps,
    chain,
    frame,
    global_access,
    matrix,
    pointer_chase,
    shared_access,
    shared_chase,
    stream,
    three_operands,
    two_pipes,
)

KIB, MIB = 1 << 10, 1 << 20


class Launch(TypedDict):
    """One line of ``micro.json``.

    ``ctas`` 0: ``ctas_per_sm`` on every SM; ``bytes`` of ``data``, or ``l2_share`` of the L2 cache; ``stride`` > 0: ``data`` is a
    ring of addresses; ``shared`` −1: as much shared memory as a CTA can have, so that one runs on an SM at a time; ``argument`` is
    what the kernel gets as ``size``, −1: the bytes, −2: the places of the ring; ``cold``: the L2 cache is overwritten before each
    launch; ``graph``: launches of a graph that is timed too; ``box``: rows and words of what is copied of a tensor whose map lies
    before the data, or nothing. ``operations``: what each warp does between its two readings, in PTX instructions of the thing that
    is measured; for ``read_…``, ``write_…`` and ``copy_…`` how often the data are gone through.
    """

    ptx: str
    entry: str
    target: str
    ctas: int
    ctas_per_sm: int
    threads: int
    bytes: int
    stride: int
    shared: int
    argument: int
    l2_share: float
    cold: bool
    graph: int
    operations: int
    box: list[int]


#: warp-group products: name → (n, k, types of result and factors)
WARPGROUP = {
    "n64": (64, 16, "f32.f16.f16"), "n128": (128, 16, "f32.f16.f16"), "n256": (256, 16, "f32.f16.f16"),
    "n256_bf16": (256, 16, "f32.bf16.bf16"), "n256_tf32": (256, 8, "f32.tf32.tf32"),
    "n256_e4m3": (256, 32, "f32.e4m3.e4m3"), "n256_s8": (256, 32, "s32.s8.s8"),
}  # fmt: skip
#: chains: name → (instruction on {d} and the constants {a}, {b}; register type). Each step depends on the one before.
CHAIN = {
    "add.s32": (
        "add.s32 {d}, {d}, {a};\nxor.b32 {d}, {d}, {b};",
        "b32",
    ),  # two additions in a row would become one
    "mad.lo.s32": ("mad.lo.s32 {d}, {d}, {a}, {b};", "b32"),
    "mul.hi.u32": ("mul.hi.u32 {d}, {d}, {a};", "b32"),
    "lop3": ("lop3.b32 {d}, {d}, {a}, {b}, 0x6a;", "b32"),
    "shf": ("shf.l.wrap.b32 {d}, {d}, {a}, {b};", "b32"),
    "prmt": ("prmt.b32 {d}, {d}, {a}, {b};", "b32"),
    "popc": ("popc.b32 {d}, {d};", "b32"),
    "clz": ("clz.b32 {d}, {d};", "b32"),
    "min.s32": ("min.s32 {d}, {d}, {a};\nxor.b32 {d}, {d}, {b};", "b32"),
    "dp4a": ("dp4a.s32.s32 {d}, {d}, {a}, {b};", "b32"),
    "add.f32": ("add.rn.f32 {d}, {d}, {a};", "f32"),
    "mul.f32": ("mul.rn.f32 {d}, {d}, {a};", "f32"),
    "fma.rn.f32": ("fma.rn.f32 {d}, {d}, {a}, {b};", "f32"),
    "add.f64": ("add.rn.f64 {d}, {d}, {a};", "f64"),
    "fma.rn.f64": ("fma.rn.f64 {d}, {d}, {a}, {b};", "f64"),
    "fma.rn.f16x2": ("fma.rn.f16x2 {d}, {d}, {a}, {b};", "b32"),
    "fma.rn.bf16x2": ("fma.rn.bf16x2 {d}, {d}, {a}, {b};", "b32"),
    "ex2.approx.f32": ("ex2.approx.ftz.f32 {d}, {d};", "f32"),
    "lg2.approx.f32": ("lg2.approx.ftz.f32 {d}, {d};", "f32"),
    "sin.approx.f32": ("sin.approx.ftz.f32 {d}, {d};", "f32"),
    "rsqrt.approx.f32": ("rsqrt.approx.ftz.f32 {d}, {d};", "f32"),
    # the reciprocal of a reciprocal would be left out
    "rcp.approx.f32": ("rcp.approx.ftz.f32 {d}, {d};\nadd.rn.f32 {d}, {d}, {a};", "f32"),
    "rcp.rn.f32": ("rcp.rn.f32 {d}, {d};", "f32"),
    "sqrt.rn.f32": ("sqrt.rn.f32 {d}, {d};", "f32"),
    "div.rn.f32": ("div.rn.f32 {d}, {d}, {a};", "f32"),
    "div.rn.f64": ("div.rn.f64 {d}, {d}, {a};", "f64"),
    "div.s32": ("div.s32 {d}, {d}, {a};\nadd.s32 {d}, {d}, {b};", "b32"),
    "rem.u32": ("rem.u32 {d}, {d}, {a};\nadd.u32 {d}, {d}, {b};", "b32"),
    "div.s64": ("div.s64 {d}, {d}, {a};\nadd.s64 {d}, {d}, {b};", "b64"),
    "mad.lo.s64": ("mad.lo.s64 {d}, {d}, {a}, {b};", "b64"),
    "cvt.f32.s32": ("cvt.rn.f32.s32 {d}, {d};\ncvt.rzi.s32.f32 {d}, {d};", "b32"),
    "cvt.f64.f32": ("cvt.f64.f32 %d0, {d};\ncvt.rn.f32.f64 {d}, %d0;", "f32"),
    "setp.selp": ("setp.lt.s32 %p1, {d}, {a};\nselp.b32 {d}, {d}, {b}, %p1;", "b32"),
    "shfl.idx": ("shfl.sync.idx.b32 {d}, {d}, {d}, 31, 0xffffffff;", "b32"),
    "vote.ballot": ("setp.ne.s32 %p1, {d}, {a};\nvote.sync.ballot.b32 {d}, %p1, 0xffffffff;", "b32"),
    "match.any": ("match.any.sync.b32 {d}, {d}, 0xffffffff;", "b32"),
}
#: those that are many machine instructions each: fewer stand in a loop, which must fit into the cache of instructions
SEQUENCES = ("div.", "rem.", "rcp.rn", "sqrt.rn")
#: chains of newer machines: name → (instruction, type, target)
NEWER = {
    "redux.add": ("redux.sync.add.s32 {d}, {d}, 0xffffffff;", "b32", "sm_80"),
    "fma.f32x2": ("fma.rn.f32x2 {d}, {d}, {a}, {b};", "b64", "sm_100"),
}
#: matrices: name → (instruction's middle, registers of d, a, b; type of d; target; multiply-adds per instruction)
MATRIX = {
    "m16n8k8.f32.f16": ("m16n8k8.row.col.f32.f16.f16.f32", 4, 2, 1, "f32", "sm_75"),
    "m16n8k16.f32.f16": ("m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2, "f32", "sm_80"),
    "m16n8k16.f16.f16": ("m16n8k16.row.col.f16.f16.f16.f16", 2, 4, 2, "b32", "sm_80"),
    "m16n8k16.f32.bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 4, 2, "f32", "sm_80"),
    "m16n8k8.f32.tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2, "f32", "sm_80"),
    "m16n8k32.s32.s8": ("m16n8k32.row.col.s32.s8.s8.s32", 4, 4, 2, "b32", "sm_80"),
    "m16n8k32.f32.e4m3": ("m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 4, 2, "f32", "sm_89"),
    "m8n8k4.f64": ("m8n8k4.row.col.f64.f64.f64.f64", 2, 1, 1, "f64", "sm_80"),
}
EMPTY = frame("empty", "", "", "", "sm_75")
NOTHING = """.version 7.8
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 out, .param .u64 data, .param .u64 size)
{
ret;
}
"""


def launches() -> Iterator[tuple[str, str, Launch]]:
    """Name, PTX and launch of every measurement."""

    def launch(text: str, operations: int, **options: Any) -> tuple[str, str, Launch]:
        entry = text.split(".entry ")[1].split("(")[0]
        target = text.split(".target ")[1].split()[0]
        made: Launch = {"ptx": f"micro/{entry}.ptx", "entry": entry, "target": target, "ctas": 1, "ctas_per_sm": 1, "threads": 32,
                        "bytes": 4096, "stride": 0, "shared": 0, "argument": -1, "l2_share": 0.0, "cold": False, "graph": 0,
                        "operations": operations, "box": []}  # fmt: skip
        label = str(options.pop("label", ""))
        made.update(options)  # type: ignore[typeddict-item]
        return entry + (f"/{label}" if label else ""), text, made

    steps = UNROLL * LOOPS
    found = [(name, *facts, "sm_80" if "bf16" in name else "sm_75") for name, facts in CHAIN.items()]
    for name, instruction, kind, target in [*found, *((name, *facts) for name, facts in NEWER.items())]:
        plain, unroll = name.replace(".", "_"), 8 if name.startswith(SEQUENCES) else UNROLL
        yield launch(chain(f"latency_{plain}", instruction, kind, target, 1, unroll), steps)
        text = chain(f"rate_{plain}", instruction, kind, target, CHAINS, unroll)
        yield launch(text, steps * CHAINS, ctas=0, threads=1024)
    yield launch(three_operands("rate_fma_three"), steps * CHAINS, ctas=0, threads=1024)
    yield launch(two_pipes("rate_issue"), 8 * UNROLL // 2 * LOOPS, ctas=0, threads=1024)
    for label, warps in (("same_part", 0b10001), ("other_parts", 0b00011)):
        text = busy_warps("busy_warps")
        yield launch(text, steps * CHAINS, label=label, ctas=0, ctas_per_sm=64, threads=256, argument=warps)
    for name, facts in MATRIX.items():
        plain = name.replace(".", "_")
        yield launch(matrix(f"latency_mma_{plain}", facts, 1), 16 * LOOPS)
        yield launch(matrix(f"rate_mma_{plain}", facts, 4), 64 * LOOPS, ctas=0, threads=512)
    yield launch(pointer_chase("chase_ca", "ca"), steps, label="l1", bytes=16 * KIB, stride=128, argument=128)
    text = pointer_chase("chase_cg", "cg")
    yield launch(text, steps, label="l2", bytes=2 * MIB, stride=128, argument=2 * MIB // 128)
    # every SM reads the same line, which is near some of them and far from others
    yield launch(text, steps, label="l2_every_sm", bytes=128, stride=128, argument=64, ctas=0, shared=-1)
    # more than one partition of L2 holds, gone through once before: far from the SM, as published pointer chases have it
    yield launch(text, steps, label="l2_far", l2_share=0.7, stride=128, argument=-2)
    # each load is the first of its line since the cache was overwritten
    yield launch(text, steps, label="dram", bytes=64 * MIB, stride=4096, argument=0, cold=True)
    yield launch(shared_chase("chase_shared"), steps)
    for vector in ("", ".v2", ".v4"):
        text = shared_access(f"shared_load{vector.replace('.', '_')}", vector)
        for stride in (0, 1, 2, 3, 4, 8, 16, 32):
            yield launch(
                text, UNROLL // 4 * LOOPS, label=f"stride{stride}", ctas=0, threads=512, bytes=stride
            )
    for operator in ("ca", "cg"):
        text = global_access(f"global_load_{operator}", operator)
        for stride in (0, 1, 2, 3, 4, 8, 16, 17, 32, 33):
            yield launch(
                text,
                UNROLL // 4 * LOOPS,
                label=f"stride{stride}",
                ctas=0,
                threads=512,
                bytes=32 * KIB,
                argument=stride,
            )
    for kind in ("read", "write", "copy"):
        text = stream(f"{kind}_dram", kind, 1)
        yield launch(text, 1, bytes=1024 * MIB, ctas=0, ctas_per_sm=2, threads=1024)
    text = stream("read_l2", "read", 32)
    yield launch(text, 32, label="all", l2_share=0.25, ctas=0, ctas_per_sm=2, threads=1024)
    yield launch(text, 32, label="one", bytes=256 * KIB, threads=1024)
    yield launch(stream("read_l1", "read_l1", 64, 1), 64, bytes=16 * KIB, ctas=0, threads=1024)
    for warps in (1, 2, 4, 8, 16, 32):
        yield launch(barrier("barrier"), steps, label=f"{warps}warps", threads=32 * warps)
    for space in ("global", "shared"):
        for spread in ("same", "lanes", "warps"):
            text = atomics(f"atomic_{space}_{spread}", space, spread)
            yield launch(text, 8 * LOOPS, label="one")
            yield launch(text, 8 * LOOPS, label="all", ctas=0, threads=512, bytes=4 * MIB)
    yield launch(copy_async("copy_async", 1), 8 * LOOPS, bytes=16 * KIB)
    yield launch(copy_async("copy_async_4", 4), 32 * LOOPS, bytes=32 * KIB, ctas=0, threads=512)
    for size in (1024, 4096, 8192, 32768):
        yield launch(bulk_copy(f"bulk_copy_{size}", size), LOOPS, bytes=max(size, 4096))
    for size in (1024, 4096):  # of which several are on the way
        text = bulk_copy(f"bulk_copy_8x{size}", size, 8)
        for label, ctas in (("one", 1), ("all", 0)):
            yield launch(text, 8 * LOOPS, label=label, bytes=8 * size, ctas=ctas)
    for rows, words in ((8, 32), (32, 32), (64, 64)):
        text = box_copy(f"box_copy_{rows}x{words}", rows, words)
        yield launch(text, LOOPS, bytes=1024 + 64 * KIB, box=[rows, words])
    text = box_copy("box_copy_8x32x32", 32, 32, 8)
    for label, ctas in (("one", 1), ("all", 0)):
        yield launch(text, 8 * LOOPS, label=label, bytes=1024 + 256 * KIB, box=[32, 32], ctas=ctas)
    yield launch(mbarrier_pass("mbarrier_pass"), 8 * LOOPS)
    yield launch(mbarrier_wake("mbarrier_wake"), UNROLL, threads=64)
    for name, away in (("here", 0), ("away", 1)):
        yield launch(cluster_chase(f"chase_cluster_{name}", away), steps, ctas=2)
    for warps in (1, 8, 32):
        yield launch(
            cluster_barrier("barrier_cluster"), 16 * LOOPS, label=f"{warps}warps", ctas=2, threads=32 * warps
        )
    for name, (columns, depth, types) in WARPGROUP.items():
        for count in (1, 4, 16) if name in ("n64", "n256") else (4,):
            text = warpgroup(f"wgmma_{name}_{count}", columns, depth, types, count)
            yield launch(text, count * LOOPS, threads=128)
    yield launch(
        warpgroup("wgmma_n256_16", 256, 16, WARPGROUP["n256"][2], 16),
        16 * LOOPS,
        label="all",
        ctas=0,
        threads=128,
    )
    yield launch(EMPTY, 0)
    yield launch(NOTHING, 0, label="one", graph=64)
    yield launch(NOTHING, 0, label="many", ctas=0, ctas_per_sm=2048)
    for waves in (1, 4, 16, 64):
        yield launch(NOTHING, 0, label=f"{waves}alone", ctas=0, ctas_per_sm=waves, shared=-1)


def kernels() -> tuple[dict[str, str], dict[str, Launch]]:
    """The modules by path, and the launches by name."""
    texts: dict[str, str] = {}
    found: dict[str, Launch] = {}
    for name, text, facts in launches():
        texts[facts["ptx"]] = text
        found[name] = facts
    return texts, found


def files() -> dict[str, str]:
    """The modules and the list of launches, by path below ``ptx``."""
    texts, found = kernels()
    return {**texts, "micro.json": json.dumps(found, indent=0) + "\n"}
