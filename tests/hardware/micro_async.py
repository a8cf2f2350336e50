"""Bodies of micro kernels for what newer machines do beside the instruction stream: copies, mbarriers, clusters, warp groups."""

from __future__ import annotations

from .micro_parts import LOOPS, UNROLL, frame, keep, repeated

__all__ = [
    "box_copy", "bulk_copy", "cluster_barrier", "cluster_chase", "copy_async", "mbarrier_pass", "mbarrier_wake", "warpgroup",
]  # fmt: skip

#: a wait at an mbarrier, bounded: {bar}, parity in {parity}; each wait of a kernel has a label of its own
WAIT = """mov.u32 %r9, 0;
{label}:
mbarrier.try_wait.parity.shared.b64 %p2, [{bar}], {parity};
add.u32 %r9, %r9, 1;
setp.gt.u32 %p3, %r9, 1048576;
or.pred %p2, %p2, %p3;
@!%p2 bra {label};"""
#: one thread, of which the compiler knows that it is one, makes mbarriers, which copies see too; %p4: all others
INIT = "elect.sync %r12|%p5, 0xffffffff;\nnot.pred %p4, %p5;\n{made}\nfence.proxy.async;\nmov.u32 %r8, 0;"


def _made(name: str) -> str:
    return f"@!%p4 mbarrier.init.shared.b64 [{name}], 1;"


def copy_async(entry: str, copies: int) -> str:
    """``cp.async`` of 16 bytes, some on the way at once, and the wait for them: the way through the cache to shared memory."""
    step = [f"cp.async.cg.shared.global [%r5+{8192 * i}], [%l5+{8192 * i}], 16;" for i in range(copies)]
    step += ["cp.async.commit_group;", "cp.async.wait_group 0;"]
    before = "shl.b32 %r5, %r310, 4;\ncvt.u64.u32 %l5, %r5;\nadd.u64 %l5, %l5, %data;\nmov.u32 %r7, pool;\nadd.u32 %r5, %r5, %r7;"
    return frame(entry, before, repeated(step * 8), "", "sm_80", ".shared .align 16 .b8 pool[32768];")


def bulk_copy(entry: str, size: int, copies: int = 1) -> str:
    """Bulk copies of ``size`` bytes to shared memory, some on the way at once, and the wait at their mbarrier, by one thread."""
    step = [f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], {size * copies};"]
    step += [
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [pool+{size * i}], [%l{8 + i}], {size}, [bar];"
        for i in range(copies)
    ]
    step += [WAIT.format(label="wait", bar="bar", parity="%r8"), "xor.b32 %r8, %r8, 1;"]
    before = [
        INIT.format(made=_made("bar")),
        *(f"add.u64 %l{8 + i}, %data, {size * i};" for i in range(copies)),
    ]
    return _one_thread(entry, "\n".join(before), step)


def box_copy(entry: str, rows: int, words: int, copies: int = 1) -> str:
    """The same for boxes of a tensor, whose map lies at the beginning of the data."""
    size = 4 * rows * words
    step = [f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], {size * copies};", "mov.u32 %r10, 0;"]
    for i in range(copies):
        step += [
            f"mov.u32 %r11, {rows * i};",
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            f"[pool+{size * i}], [%data, {{%r10, %r11}}], [bar];",
        ]
    step += [WAIT.format(label="wait", bar="bar", parity="%r8"), "xor.b32 %r8, %r8, 1;"]
    return _one_thread(entry, INIT.format(made=_made("bar")), step)


def _one_thread(entry: str, before: str, step: list[str]) -> str:
    body = f"@%p4 bra skip;\n{repeated(step)}\nskip:"
    pool = ".shared .align 128 .b8 pool[32768];\n.shared .align 8 .b64 bar;"
    return frame(entry, before, body, "", "sm_90", pool)


def mbarrier_pass(entry: str) -> str:
    """Arrival at an mbarrier that waits for nobody else, and the wait that finds it complete."""
    step = [
        line
        for i in range(8)
        for line in (
            "mbarrier.arrive.shared.b64 %l8, [bar];",
            WAIT.format(label=f"wait{i}", bar="bar", parity="%r8"),
            "xor.b32 %r8, %r8, 1;",
        )
    ]
    return _one_thread(entry, INIT.format(made=_made("bar")), step)


def mbarrier_wake(entry: str) -> str:
    """Two warps in turn: each waits for the arrival of the other, so that both sleep once and are woken once in every step."""
    sides = []
    for side, order in enumerate((("arrive", "wait"), ("wait", "arrive"))):
        mine, other = ("ping", "pong") if side == 0 else ("pong", "ping")
        work = {
            "arrive": f"mbarrier.arrive.shared.b64 %l8, [{mine}];",
            "wait": WAIT.format(label=f"wait{side}", bar=other, parity="%r8"),
        }
        lines = [work[name] for name in order] + ["xor.b32 %r8, %r8, 1;"]
        sides.append(repeated(lines, label=f"side{side}", count=UNROLL))
    body = f"""@%p5 bra skip;
@%p6 bra second;
{sides[0]}
bra skip;
second:
{sides[1]}
skip:"""
    before = [
        "setp.ne.u32 %p4, %r310, 0;",
        _made("ping"),
        _made("pong"),
        "setp.ne.u32 %p5, %r314, 0;",  # not the first lane of a warp
        "setp.ne.u32 %p6, %r310, 0;",
        "mov.u32 %r8, 0;",
    ]
    bars = ".shared .align 8 .b64 ping;\n.shared .align 8 .b64 pong;"
    return frame(entry, "\n".join(before), body, "", "sm_90", bars)


def cluster_chase(entry: str, away: int) -> str:
    """Loads each of whose addresses is what the one before gave, in the shared memory of this CTA (``away`` 0) or the other one of
    the cluster (1): each line of a pool holds the address of the next."""
    before = f"""mov.u64 %l5, pool;
cvta.shared.u64 %l5, %l5;
mov.u32 %r3, %cluster_ctarank;
mapa.u64 %l6, %l5, %r3;
add.u32 %r9, %r310, 1;
and.b32 %r9, %r9, 31;
mad.wide.u32 %l7, %r9, 128, %l6;
mad.wide.u32 %l9, %r310, 128, %l5;
st.u64 [%l9], %l7;
xor.b32 %r3, %r3, {away};
mapa.u64 %l8, %l5, %r3;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;"""
    step = ["ld.u64 %l8, [%l8];"] * UNROLL
    after = f"barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n{keep('b64', 1)}"
    pool = ".shared .align 128 .b8 pool[4096];"
    return frame(entry, before, repeated(step), after, "sm_90", pool, directives=_PAIR)


#: clusters of two CTAs
_PAIR = "\n.explicitcluster\n.reqnctapercluster 2, 1, 1"


def cluster_barrier(entry: str) -> str:
    """Barriers of the whole cluster, one after the other."""
    step = ["barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"] * 16
    return frame(entry, "", repeated(step), "", "sm_90", directives=_PAIR)


def warpgroup(entry: str, columns: int, depth: int, types: str, count: int) -> str:
    """Warp-group matrix products m64nNkK on shared memory, ``LOOPS`` groups of ``count`` that are committed and waited for."""
    whole = types.startswith("s32")
    kind = "b32" if whole else "f32"
    registers = columns // 2
    names = ", ".join(f"%w{8 + i}" for i in range(registers))
    signs = "" if whole else ", 1, 1" if depth != 16 else ", 1, 1, 0, 0"
    step = ["wgmma.fence.sync.aligned;"]
    step += [
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{{names}}}, %l5, %l6, 1{signs};"
    ] * count
    step += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    # descriptor: start address, leading and stride byte offsets, each in units of 16 bytes; no swizzle
    before = [
        f".reg .{kind} %w<{registers + 8}>;",
        "mov.u32 %r5, pool;",
        "shr.u32 %r5, %r5, 4;",
        "and.b32 %r5, %r5, 0x3fff;",
        "cvt.u64.u32 %l5, %r5;",
        "or.b64 %l5, %l5, 0x0000000800080000;",
        "mov.b64 %l6, %l5;",
        *(f"mov.{kind} %w{8 + i}, {'0' if whole else '0f00000000'};" for i in range(registers)),
    ]
    add = "add.s32" if whole else "add.f32"
    total = [f"{add} %w8, %w8, %w{8 + i};" for i in range(1, registers)]
    after = "\n".join([*total, "mov.b32 %r8, %w8;", keep("b32", 1)])
    pool = ".shared .align 1024 .b8 pool[40960];"
    return frame(entry, "\n".join(before), repeated(step, count=LOOPS), after, "sm_90a", pool)
