"""Kernels for tests of tensor memory: shared and tensor memory are filled, one instruction runs, tensor memory is read back.

Everything that lies somewhere is placed here by the manual's words and figures, in plain loops or NumPy, and not by the engine's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.oracle import scalar as oracle
from tests.support import head

__all__ = ["COLUMNS", "WORK", "Words", "idesc", "image", "interpreted", "on_both", "run", "spread", "text"]

Words = NDArray[np.uint32]
#: operations that the last kernel counted, by type
WORK: dict[str, int] = {}
COLUMNS, SHARED = 128, 40960
#: numbers of the parameters of an instruction: descriptors and addresses, whether D is read, lanes that are not written
A, B, IDESC, D, META, SCALE_A, SCALE_B, READS, MASKS = range(9)

_KERNEL = """
.visible .entry k(.param .u64 bytes, .param .u64 words, .param .u64 given, .param .u32 which)
{
.reg .pred %p<6>, %q<99>;
.reg .b32 %r<30>, %m<8>, %v<16>;
.reg .b64 %rd<30>, %x<24>;
.shared .align 1024 .b8 smem[40960];
.shared .align 8 .b64 done;
.shared .align 4 .b32 slot;
ld.param.u64 %rd1, [bytes];
ld.param.u64 %rd2, [words];
ld.param.u64 %rd3, [given];
ld.param.u32 %r0, [which];
mov.u32 %r1, %tid.x;
mov.u32 %r20, %cluster_ctarank;
mul.wide.u32 %rd5, %r20, 40960;
add.u64 %rd1, %rd1, %rd5;
mul.wide.u32 %rd5, %r20, 65536;
add.u64 %rd2, %rd2, %rd5;
mov.u32 %r2, smem;
mov.u32 %r3, done;
mov.u32 %r4, slot;
shl.b32 %r5, %r1, 4;
FILL:
cvt.u64.u32 %rd4, %r5;
add.u64 %rd4, %rd1, %rd4;
ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%rd4];
add.u32 %r6, %r2, %r5;
st.shared.v4.b32 [%r6], {%v0, %v1, %v2, %v3};
add.u32 %r5, %r5, 2048;
setp.lt.u32 %p0, %r5, 40960;
@%p0 bra FILL;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra READY;
tcgen05.alloc.GROUP.sync.aligned.shared::cta.b32 [%r4], 512;
tcgen05.relinquish_alloc_permit.GROUP.sync.aligned;
setp.ne.u32 %p2, %r1, 0;
@%p2 bra READY;
mbarrier.init.shared.b64 [%r3], 1;
READY:
fence.proxy.async.shared::cta;
bar.sync 0;
ld.shared.u32 %r7, [%r4];
shr.u32 %r8, %r1, 5;
shl.b32 %r8, %r8, 21;
add.u32 %r8, %r8, %r7;
shl.b32 %r9, %r1, 9;
cvt.u64.u32 %rd4, %r9;
add.u64 %rd6, %rd2, %rd4;
mov.u64 %rd7, %rd6;
mov.u32 %r10, 0;
PUT:
ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%rd7+0];
ld.global.v4.b32 {%v4, %v5, %v6, %v7}, [%rd7+16];
ld.global.v4.b32 {%v8, %v9, %v10, %v11}, [%rd7+32];
ld.global.v4.b32 {%v12, %v13, %v14, %v15}, [%rd7+48];
tcgen05.st.sync.aligned.32x32b.x16.b32 [%r8], {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7, %v8, %v9, %v10, %v11, %v12, %v13, %v14, %v15};
add.u64 %rd7, %rd7, 64;
add.u32 %r8, %r8, 16;
add.u32 %r10, %r10, 16;
setp.lt.u32 %p0, %r10, 128;
@%p0 bra PUT;
tcgen05.wait::st.sync.aligned;
tcgen05.fence::before_thread_sync;
SYNC
tcgen05.fence::after_thread_sync;
setp.ne.u32 %p3, %r1, 0;
@%p3 bra WAIT;
setp.ne.u32 %p3, %r20, 0;
@%p3 bra WAIT;
LOADS
INSTRUCTIONS
COMMIT
WAIT:
mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0;
@!%p4 bra WAIT;
tcgen05.fence::after_thread_sync;
shr.u32 %r8, %r1, 5;
shl.b32 %r8, %r8, 21;
add.u32 %r8, %r8, %r7;
mov.u32 %r10, 0;
GET:
tcgen05.ld.sync.aligned.32x32b.x16.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7, %v8, %v9, %v10, %v11, %v12, %v13, %v14, %v15}, [%r8];
tcgen05.wait::ld.sync.aligned;
st.global.v4.b32 [%rd6+0], {%v0, %v1, %v2, %v3};
st.global.v4.b32 [%rd6+16], {%v4, %v5, %v6, %v7};
st.global.v4.b32 [%rd6+32], {%v8, %v9, %v10, %v11};
st.global.v4.b32 [%rd6+48], {%v12, %v13, %v14, %v15};
add.u64 %rd6, %rd6, 64;
add.u32 %r8, %r8, 16;
add.u32 %r10, %r10, 16;
setp.lt.u32 %p0, %r10, 128;
@%p0 bra GET;
SYNC
@%p1 bra OVER;
tcgen05.dealloc.GROUP.sync.aligned.b32 %r7, 512;
OVER:
ret;
}
"""


def text(lines: Sequence[str], pair: bool = False, target: str = "sm_100a") -> str:
    """A module with the entry ``k``, which runs the line that its parameter ``which`` says. Operands: descriptors ``%x0`` and ``%x1``,
    addresses ``%r11`` (D), ``%r12`` (A), ``%r13`` (metadata), ``%r14`` and ``%r15`` (scales), the instruction descriptor ``%r16``,
    ``%p5`` (D is read), ``%m0`` to ``%m7``."""
    loads = [f"ld.global.u64 %x{number}, [%rd3+{8 * number}];" for number in range(16)]
    loads += [
        f"cvt.u32.u64 %r{register}, %x{number};"
        for register, number in (
            (16, IDESC),
            (11, D),
            (12, A),
            (13, META),
            (14, SCALE_A),
            (15, SCALE_B),
            (17, READS),
        )
    ]
    loads += [f"cvt.u32.u64 %m{number}, %x{MASKS + number};" for number in range(8)]
    loads.append("setp.ne.u32 %p5, %r17, 0;")
    chosen = []
    for number, line in enumerate(lines):
        chosen += [f"setp.eq.u32 %q{number}, %r0, {number};", f"@%q{number} {line}"]
    group = f"cta_group::{1 + pair}"
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster.b64 [%r3];"
    sync = "bar.sync 0;"
    if pair:
        commit = f"mov.b16 %h0, 3;\ntcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r3], %h0;"
        sync = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"
    kernel = _KERNEL.replace("INSTRUCTIONS", "\n".join(chosen)).replace("LOADS", "\n".join(loads))
    kernel = kernel.replace("COMMIT", commit).replace("GROUP", group).replace("SYNC", sync)
    if pair:
        kernel = kernel.replace(".reg .b64 %rd<30>", ".reg .b16 %h<2>;\n.reg .b64 %rd<30>")
    return head("9.0", target) + kernel


def _numbers(given: Mapping[str, int]) -> NDArray[np.uint64]:
    """The parameters of an instruction by their names."""
    numbers = np.zeros(16, np.uint64)
    places = {
        "a": A,
        "b": B,
        "idesc": IDESC,
        "d": D,
        "meta": META,
        "scale_a": SCALE_A,
        "scale_b": SCALE_B,
        "reads": READS,
    }
    for name, value in given.items():
        numbers[MASKS + int(name[1:]) if name[0] == "m" and name != "meta" else places[name]] = value
    return numbers


def run(
    backend: str,
    kernel: ge.Kernel,
    which: int,
    shared: NDArray[np.uint8],
    tensor: Words,
    pair: bool = False,
    **given: int,
) -> Words:
    """Tensor memory after one instruction, shape (CTAs, lanes, columns); ``shared`` (CTAs, bytes) and ``tensor`` are what was
    there."""
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    ctas = 1 + pair
    whole = np.zeros((ctas, SHARED), np.uint8)
    whole[:, : shared.shape[-1]] = shared
    words = device.array(np.ascontiguousarray(np.broadcast_to(tensor, (ctas, 128, COLUMNS))))
    arguments: list[Any] = [device.array(whole), words, device.array(_numbers(given)), np.uint32(which)]
    profile = device.launch(kernel, ctas, 128, arguments, **({"cluster": 2} if pair else {}))
    WORK.clear()
    WORK.update({name: count for name, count in profile.flops.items() if count})
    result: Words = words.numpy()
    return result


def interpreted(
    line: str,
    shared: NDArray[np.uint8],
    tensor: Words,
    pair: bool = False,
    target: str = "sm_100a",
    **given: int,
) -> Words:
    """Tensor memory after one instruction in the interpreter of ``tests/oracle``, as ``run`` gives it."""
    ctas = 1 + pair
    whole = np.zeros((ctas, SHARED), np.uint8)
    whole[:, : shared.shape[-1]] = shared
    words = oracle.Buffer(np.ascontiguousarray(np.broadcast_to(tensor, (ctas, 128, COLUMNS))).tobytes())
    arguments = [
        oracle.Buffer(whole.tobytes()),
        words,
        oracle.Buffer(_numbers(given).tobytes()),
        np.uint32(0),
    ]
    oracle.run(text([line], pair, target), "k", ctas, 128, arguments, cluster=2 if pair else None)
    return np.frombuffer(bytes(words.data), np.uint32).reshape(ctas, 128, COLUMNS)


def idesc(rows: int, columns: int, *, a: int = 0, b: int = 0, d: int = 1, **bits: int) -> int:
    """An instruction descriptor (manual, table "Instruction descriptor format")."""
    places = {
        "selector": 0, "sparse": 2, "saturate": 3, "negate_a": 13, "negate_b": 14, "transpose_a": 15, "transpose_b": 16,
        "scale_b": 4, "scale_a": 29, "ue8m0": 23,
    }  # fmt: skip
    word = d << 4 | a << 7 | b << 10 | columns >> 3 << 17 | rows >> 4 << 24
    return word | sum(value << places[name] for name, value in bits.items())


#: modes of swizzling: field of the descriptor, bytes of the pattern, and which bits are added without carry to which
MODES = {
    "none": (0, 16, 0, 0),
    "32": (6, 32, 0x080, 3),
    "64": (4, 64, 0x180, 3),
    "128": (2, 128, 0x380, 3),
    "128 of 32": (1, 128, 0x180, 2),
}


def image(lines: NDArray[Any], mode: str, start: int, shared: NDArray[np.uint8], across: bool = False) -> int:
    """Put lines (rows of A, columns of B; K along axis 1) of elements of whole bytes into shared memory; gives their descriptor.
    Manual: "Canonical Layouts", in units of 16 bytes."""
    field, width, bits, down = MODES[mode]
    raw = np.ascontiguousarray(lines)
    size = raw.itemsize
    count, depth = raw.shape
    unit, pattern = 16 // size, width // 16
    if not across:
        leading, stride = (-(-count // 8) * 128, 128) if mode == "none" else (16, 8 * width)
    elif mode == "none":
        stride, leading = 128, -(-count // unit) * 128
    else:
        high = 4 if mode == "128 of 32" else 8
        stride, leading = high * width, -(-depth // high) * high * width
    for line in range(count):
        for k in range(depth):
            if not across:
                piece, within = divmod(k * size, 16)
                offset = line % 8 * width + line // 8 * stride + piece * leading + within
            else:
                group, within = divmod(line, unit)
                high = 4 if mode == "128 of 32" else 8
                if mode == "none":
                    offset = group * stride + k % 8 * 16 + k // 8 * leading
                else:
                    offset = (
                        group % pattern * 16
                        + group // pattern * leading
                        + k % high * width
                        + k // high * stride
                    )
                offset += within * size
            place = start + offset
            place ^= (place & bits) >> down
            shared[place : place + size] = np.frombuffer(raw[line, k].tobytes(), np.uint8)
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | field << 61


def on_both(cases: Sequence[tuple[Any, ...]], every: int = 4) -> list[tuple[Any, ...]]:
    """Cases with the backend in front: all on the one, one of so many on the reference, where a launch takes 0.1 s."""
    return [("llvm", *case) for case in cases] + [("reference", *case) for case in cases[::every]]


def spread(rows: int) -> NDArray[np.int64]:
    """The lanes of the rows of D (and A) with M = 64: 16 of each 32 (manual: layout F)."""
    row = np.arange(rows)
    return row // 16 * 32 + row % 16
