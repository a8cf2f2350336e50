"""Writes ``ptx/micro`` and ``ptx/micro.json``: kernels that measure one number of a machine each.

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
from pathlib import Path
from typing import TypedDict

HERE = Path(__file__).resolve().parent / "ptx"
UNROLL = 64
LOOPS = 8
CHAINS = 4
KIB, MIB = 1 << 10, 1 << 20


class Launch(TypedDict):
    """One line of ``micro.json``.

    ``ctas`` 0: ``ctas_per_sm`` on every SM; ``bytes`` of ``data``, or ``l2_share`` of the L2 cache; ``stride`` > 0: ``data`` is a
    ring of addresses; ``shared`` −1: as much shared memory as a CTA can have, so that one runs on an SM at a time; ``argument``
    is what the kernel gets as ``size``, −1: the bytes; ``cold``: the L2 cache is overwritten before each launch; ``graph``:
    launches of a graph that is timed too. ``operations``: what each warp does between its two readings, in PTX instructions
    of the thing that is measured; for ``read_…``, ``write_…`` and ``copy_…`` how often the data are gone through.
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
LETTER = {"b32": "%r", "b64": "%l", "f32": "%f", "f64": "%d"}
LOADED = {"b32": "%r3", "b64": "%l3", "f32": "%f3", "f64": "%d3"}


def frame(entry: str, before: str, body: str, after: str, target: str, shared: str = "") -> str:
    """A module with one kernel that times ``body``; ``after`` uses what the body made, so that it is not dropped."""
    version = {"sm_89": "8.4", "sm_90": "8.0", "sm_90a": "8.0", "sm_100": "8.6"}.get(target, "7.8")
    return f""".version {version}
.target {target}
.address_size 64
{shared}
.visible .entry {entry}(.param .u64 out, .param .u64 data, .param .u64 size)
{{
.reg .pred %p<8>;
.reg .b32 %r<320>;
.reg .b64 %l<80>;
.reg .f32 %f<80>;
.reg .f64 %d<80>;
.reg .b64 %c<4>, %t<4>, %out, %data, %size, %mine;
ld.param.u64 %out, [out];
ld.param.u64 %data, [data];
ld.param.u64 %size, [size];
mov.u32 %r310, %tid.x;
mov.u32 %r311, %ctaid.x;
mov.u32 %r312, %ntid.x;
mad.lo.u32 %r313, %r311, %r312, %r310;
and.b32 %r314, %r310, 31;
mad.wide.u32 %mine, %r314, 8, %data;
{before}
bar.sync 0;
mov.u64 %t0, %globaltimer;
mov.u64 %c0, %clock64;
{body}
mov.u64 %c1, %clock64;
mov.u64 %t1, %globaltimer;
{after}
sub.u64 %c1, %c1, %c0;
sub.u64 %t1, %t1, %t0;
setp.ne.u32 %p7, %r314, 0;
shr.u32 %r313, %r313, 5;
mad.wide.u32 %out, %r313, 16, %out;
@!%p7 st.global.v2.u64 [%out], {{%c1, %t1}};
ret;
}}
"""


def keep(kind: str, count: int) -> str:
    """Stores that never happen (the size is no address of the data), but that no compiler can leave out."""
    lines = ["setp.eq.u64 %p6, %size, %data;"]
    wide = "b64" if kind in ("b64", "f64") else "b32"
    lines += [f"@%p6 st.global.{wide} [%data], {LETTER[kind]}{i + 8};" for i in range(count)]
    return "\n".join(lines)


def repeated(lines: list[str]) -> str:
    """The lines, ``LOOPS`` times."""
    inner = "\n".join(lines)
    return f"mov.u32 %r300, 0;\nloop:\n{inner}\nadd.u32 %r300, %r300, 1;\nsetp.lt.u32 %p0, %r300, {LOOPS};\n@%p0 bra loop;"


def chain(entry: str, instruction: str, kind: str, target: str, chains: int) -> str:
    """``UNROLL`` · ``LOOPS`` steps of every chain; constants come from the data, so that no compiler knows them, and
    each lane's from another place, so that they are not taken for uniform."""
    letter, constant = LETTER[kind], LOADED[kind]
    before = [f"ld.global.{kind} {constant}, [%mine];", f"ld.global.{kind} {letter}4, [%mine+8];"]
    before += [f"ld.global.{kind} {letter}{i + 8}, [%mine+{16 + 8 * i}];" for i in range(chains)]
    step = [
        instruction.format(d=f"{letter}{i + 8}", a=constant, b=f"{letter}4")
        for _ in range(UNROLL)
        for i in range(chains)
    ]
    return frame(entry, "\n".join(before), repeated(step), keep(kind, chains), target)


def matrix(entry: str, facts: tuple[str, int, int, int, str, str], chains: int) -> str:
    """Matrix instructions that add to the same accumulators."""
    middle, results, left, right, kind, target = facts
    letter = LETTER[kind]
    operand = "%d" if kind == "f64" else "%r"
    step = []
    for i in range(chains):
        mine = ", ".join(f"{letter}{8 + i * results + j}" for j in range(results))
        a = ", ".join(f"{operand}{60 + j}" for j in range(left))
        b = ", ".join(f"{operand}{70 + j}" for j in range(right))
        step.append(f"mma.sync.aligned.{middle} {{{mine}}}, {{{a}}}, {{{b}}}, {{{mine}}};")
    wide = "f64" if kind == "f64" else "b32"
    before = [f"ld.global.{wide} {operand}{60 + j}, [%mine+{8 * j}];" for j in range(14)]
    before += [f"ld.global.{kind} {letter}{8 + j}, [%mine+{128 + 8 * j}];" for j in range(chains * results)]
    return frame(entry, "\n".join(before), repeated(step * 16), keep(kind, chains * results), target)


def pointer_chase(entry: str, operator: str) -> str:
    """Loads each of whose addresses is what the one before gave; ``size`` of them before the clock is read."""
    warm = f"""mov.u64 %l8, %data;
mov.u64 %l9, %size;
setp.le.s64 %p1, %l9, 0;
@%p1 bra ready;
warm:
ld.global.{operator}.u64 %l8, [%l8];
sub.u64 %l9, %l9, 1;
setp.gt.s64 %p1, %l9, 0;
@%p1 bra warm;
ready:"""
    step = [f"ld.global.{operator}.u64 %l8, [%l8];"] * UNROLL
    return frame(entry, warm, repeated(step), keep("b64", 1), "sm_75")


def shared_chase(entry: str) -> str:
    """The same in shared memory: word i holds the address of word i + 32, so that lanes never conflict."""
    fill = """mov.u32 %r7, pool;
mov.u32 %r9, %r310;
fill:
add.u32 %r10, %r9, 32;
and.b32 %r10, %r10, 1023;
shl.b32 %r10, %r10, 2;
add.u32 %r10, %r10, %r7;
shl.b32 %r11, %r9, 2;
add.u32 %r11, %r11, %r7;
st.shared.u32 [%r11], %r10;
add.u32 %r9, %r9, 32;
setp.lt.u32 %p1, %r9, 1024;
@%p1 bra fill;
shl.b32 %r8, %r310, 2;
add.u32 %r8, %r8, %r7;"""
    step = ["ld.shared.u32 %r8, [%r8];"] * UNROLL
    return frame(entry, fill, repeated(step), keep("b32", 1), "sm_75", ".shared .align 16 .b8 pool[4096];")


def shared_access(entry: str, vector: str) -> str:
    """Loads from shared memory, lane i at ``i · size`` vectors."""
    count = {"": 1, ".v2": 2, ".v4": 4}[vector]
    before = f"""and.b32 %r5, %r310, 31;
cvt.u32.u64 %r6, %size;
mul.lo.u32 %r5, %r5, %r6;
mul.lo.u32 %r5, %r5, {4 * count};
and.b32 %r5, %r5, 16383;
mov.u32 %r7, pool;
add.u32 %r5, %r5, %r7;"""
    step = []
    for i in range(UNROLL // 4):
        names = ", ".join(f"%r{8 + (i % 4) * 4 + j}" for j in range(count))
        step.append(
            f"ld.volatile.shared{vector}.b32 {f'{{{names}}}' if vector else names}, [%r5+{(i % 4) * 128}];"
        )
    return frame(
        entry, before, repeated(step), keep("b32", 16), "sm_75", ".shared .align 16 .b8 pool[32768];"
    )


def stream(entry: str, kind: str, passes: int) -> str:
    """All threads go through the data ``passes`` times, 16 bytes each: they read it (through L1 or past it), write it, or copy
    its first half to the second."""
    load = "ld.global.{}.v4.b32 {{%r8, %r9, %r10, %r11}}, [%l9];\nxor.b32 %r12, %r12, %r8;\nxor.b32 %r12, %r12, %r11;"
    step = {
        "read_l1": load.format("ca"),
        "read": load.format("cg"),
        "write": "st.global.v4.b32 [%l9], {%r8, %r9, %r10, %r11};",
        "copy": "ld.global.cg.v4.b32 {%r8, %r9, %r10, %r11}, [%l9];\nadd.u64 %l9, %l9, %l12;\n"
        "st.global.v4.b32 [%l9], {%r8, %r9, %r10, %r11};",
    }[kind]
    first = "%r310" if kind == "read_l1" else "%r313"
    threads = "%r312" if kind == "read_l1" else "%r1"
    before = f"""mov.b32 %r12, 0;
mov.b32 %r13, 0;
mov.u64 %l12, %size;
{"shr.u64 %l12, %l12, 1;" if kind == "copy" else ""}
mov.u32 %r1, %nctaid.x;
mul.lo.u32 %r1, %r1, %r312;
mul.wide.u32 %l11, {threads}, 16;"""
    body = f"""again:
mul.wide.u32 %l10, {first}, 16;
setp.ge.u64 %p0, %l10, %l12;
@%p0 bra end;
loop:
add.u64 %l9, %data, %l10;
{step}
add.u64 %l10, %l10, %l11;
setp.lt.u64 %p0, %l10, %l12;
@%p0 bra loop;
add.u32 %r13, %r13, 1;
setp.lt.u32 %p0, %r13, {passes};
@%p0 bra again;
end:"""
    after = "mov.b32 %r8, %r12;\n" if kind.startswith("read") else ""
    return frame(entry, before, body, after + keep("b32", 1), "sm_75")


def barrier(entry: str) -> str:
    """Barriers of the whole CTA, one after the other."""
    return frame(entry, "", repeated(["bar.sync 0;"] * UNROLL), "", "sm_75")


def atomics(entry: str, space: str, spread: str) -> str:
    """Integer additions: all lanes of the grid on one word, each lane on its own, or each warp on its own."""
    offset = {
        "same": "mov.u32 %r5, 0;",
        "lanes": "mul.lo.u32 %r5, %r313, 4;",
        "warps": "and.b32 %r5, %r313, -32;\nmul.lo.u32 %r5, %r5, 4;",
    }[spread]
    if space == "shared":
        address = "and.b32 %r5, %r5, 16383;\nmov.u32 %r7, pool;\nadd.u32 %r5, %r5, %r7;"
        place = "[%r5]"
    else:
        address = "cvt.u64.u32 %l5, %r5;\nadd.u64 %l5, %l5, %data;"
        place = "[%l5]"
    step = [f"atom.{space}.add.u32 %r8, {place}, %r8;"] * 8
    return frame(entry, f"mov.u32 %r8, 1;\n{offset}\n{address}", repeated(step), keep("b32", 1), "sm_75",
                 ".shared .align 16 .b8 pool[16384];" if space == "shared" else "")  # fmt: skip


def copy_async(entry: str) -> str:
    """A 16-byte ``cp.async`` and the wait for it, one after the other: the latency of the way through the cache to shared memory."""
    step = [
        "cp.async.cg.shared.global [%r5], [%l5], 16;",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
    ] * 8
    before = "shl.b32 %r5, %r310, 4;\ncvt.u64.u32 %l5, %r5;\nadd.u64 %l5, %l5, %data;\nmov.u32 %r7, pool;\nadd.u32 %r5, %r5, %r7;"
    return frame(entry, before, repeated(step), "", "sm_80", ".shared .align 16 .b8 pool[16384];")


def bulk_copy(entry: str, size: int) -> str:
    """A bulk copy of ``size`` bytes to shared memory and the wait at its mbarrier, by one thread; a wait ends after 2^20 tries."""
    one = f"""mbarrier.arrive.expect_tx.shared.b64 _, [bar], {size};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [pool], [%data], {size}, [bar];
mov.u32 %r9, 0;
wait:
mbarrier.try_wait.parity.shared.b64 %p2, [bar], %r8;
add.u32 %r9, %r9, 1;
setp.gt.u32 %p3, %r9, 1048576;
or.pred %p2, %p2, %p3;
@!%p2 bra wait;
xor.b32 %r8, %r8, 1;"""
    before = "setp.ne.u32 %p4, %r310, 0;\n@!%p4 mbarrier.init.shared.b64 [bar], 1;\nmov.u32 %r8, 0;"
    body = f"@%p4 bra skip;\n{repeated([one])}\nskip:"
    pool = ".shared .align 128 .b8 pool[32768];\n.shared .align 8 .b64 bar;"
    return frame(entry, before, body, "", "sm_90", pool)


def warpgroup(entry: str, columns: int) -> str:
    """Warp-group matrix products m64nNk16 on shared memory, ``LOOPS`` groups of four."""
    count = columns // 2
    names = ", ".join(f"%r{8 + i}" for i in range(count))
    types = f"m64n{columns}k16.f32.f16.f16"
    step = ["wgmma.fence.sync.aligned;"]
    step += [
        f"wgmma.mma_async.sync.aligned.{types} {{{names}}}, %l5, %l6, 1, 1, 1, 0, 0;".replace("%r", "%w")
    ] * 4
    step += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    # descriptor: start address, leading and stride byte offsets, each in units of 16 bytes; no swizzle
    before = [
        "mov.u32 %r5, pool;",
        "shr.u32 %r5, %r5, 4;",
        "and.b32 %r5, %r5, 0x3fff;",
        "cvt.u64.u32 %l5, %r5;",
    ]
    before += ["or.b64 %l5, %l5, 0x0000000800080000;", "mov.b64 %l6, %l5;"]
    before += [f"mov.f32 %w{8 + i}, 0f00000000;" for i in range(count)]
    sum_up = (
        "\n".join(f"add.f32 %w8, %w8, %w{8 + i};" for i in range(1, count))
        + "\nmov.b32 %r8, %w8;\n"
        + keep("b32", 1)
    )
    declared = f".reg .f32 %w<{count + 8}>;\n"
    return frame(
        entry,
        declared + "\n".join(before),
        repeated(step),
        sum_up,
        "sm_90a",
        ".shared .align 1024 .b8 pool[40960];",
    )


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

    def launch(text: str, operations: int, **options: float | str) -> tuple[str, str, Launch]:
        entry = text.split(".entry ")[1].split("(")[0]
        target = text.split(".target ")[1].split()[0]
        made: Launch = {"ptx": f"micro/{entry}.ptx", "entry": entry, "target": target, "ctas": 1, "ctas_per_sm": 1, "threads": 32,
                        "bytes": 4096, "stride": 0, "shared": 0, "argument": -1, "l2_share": 0.0, "cold": False, "graph": 0,
                        "operations": operations}  # fmt: skip
        label = str(options.pop("label", ""))
        made.update(options)  # type: ignore[typeddict-item]
        return entry + (f"/{label}" if label else ""), text, made

    steps = UNROLL * LOOPS
    for name, (instruction, kind) in CHAIN.items():
        plain = name.replace(".", "_")
        yield launch(
            chain(f"latency_{plain}", instruction, kind, "sm_80" if "bf16" in name else "sm_75", 1), steps
        )
        text = chain(f"rate_{plain}", instruction, kind, "sm_80" if "bf16" in name else "sm_75", CHAINS)
        yield launch(text, steps * CHAINS, ctas=0, threads=1024)
    for name, (instruction, kind, target) in NEWER.items():
        plain = name.replace(".", "_")
        yield launch(chain(f"latency_{plain}", instruction, kind, target, 1), steps)
        yield launch(
            chain(f"rate_{plain}", instruction, kind, target, CHAINS), steps * CHAINS, ctas=0, threads=1024
        )
    for name, facts in MATRIX.items():
        plain = name.replace(".", "_")
        yield launch(matrix(f"latency_mma_{plain}", facts, 1), 16 * LOOPS)
        yield launch(matrix(f"rate_mma_{plain}", facts, 4), 64 * LOOPS, ctas=0, threads=512)
    yield launch(pointer_chase("chase_ca", "ca"), steps, label="l1", bytes=16 * KIB, stride=128, argument=128)
    text = pointer_chase("chase_cg", "cg")
    yield launch(text, steps, label="l2", bytes=2 * MIB, stride=128, argument=2 * MIB // 128)
    # each load is the first of its line since the cache was overwritten
    yield launch(text, steps, label="dram", bytes=64 * MIB, stride=4096, argument=0, cold=True)
    yield launch(shared_chase("chase_shared"), steps)
    for vector in ("", ".v2", ".v4"):
        text = shared_access(f"shared_load{vector.replace('.', '_')}", vector)
        for stride in (0, 1, 2, 3, 4, 8, 16, 32):
            yield launch(
                text, UNROLL // 4 * LOOPS, label=f"stride{stride}", ctas=0, threads=512, bytes=stride
            )
    for kind in ("read", "write", "copy"):
        text = stream(f"{kind}_dram", kind, 1)
        yield launch(text, 1, bytes=1024 * MIB, ctas=0, ctas_per_sm=2, threads=1024)
    text = stream("read_l2", "read", 32)
    yield launch(text, 32, label="all", l2_share=0.25, ctas=0, ctas_per_sm=2, threads=1024)
    yield launch(text, 32, label="one", bytes=256 * KIB, threads=1024)
    yield launch(stream("read_l1", "read_l1", 64), 64, bytes=16 * KIB, ctas=0, threads=1024)
    for warps in (1, 2, 4, 8, 16, 32):
        yield launch(barrier("barrier"), steps, label=f"{warps}warps", threads=32 * warps)
    for space in ("global", "shared"):
        for spread in ("same", "lanes", "warps"):
            text = atomics(f"atomic_{space}_{spread}", space, spread)
            yield launch(text, 8 * LOOPS, label="one")
            yield launch(text, 8 * LOOPS, label="all", ctas=0, threads=512, bytes=4 * MIB)
    yield launch(copy_async("copy_async"), 8 * LOOPS, bytes=16 * KIB)
    for size in (1024, 8192, 32768):
        yield launch(bulk_copy(f"bulk_copy_{size}", size), LOOPS, bytes=max(size, 4096))
    for columns in (64, 128, 256):
        yield launch(warpgroup(f"wgmma_n{columns}", columns), 4 * LOOPS, threads=128)
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


def main() -> None:
    """Write the modules and the list of launches."""
    folder = HERE / "micro"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ptx"):
        old.unlink()
    for path, text in files().items():
        (HERE / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
