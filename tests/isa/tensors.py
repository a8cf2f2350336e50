"""Kernels that copy one box of a tensor, and what they should leave, in plain loops over the manual's words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge

Array = NDArray[Any]
SHARED = 8192
STORE = "async.bulk.tensor.{}.global.shared::cta.{}.bulk_group"
EMPTY = np.zeros(SHARED, np.uint8)
HEAD = """
.version 8.6
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 bar;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    mov.u32 %r3, 0;
"""
#: what is not written keeps 0x11
CLEAR = """
    mov.u32 %r4, 0x11111111;
    mad.lo.u32 %r5, %r1, 16, %r2;
  CLEAR:
    st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4};
    add.u32 %r5, %r5, 2048;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 4;
    @%p1 bra CLEAR;
    bar.sync 0;
"""
WAIT = """
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
"""
DUMP = """
    mad.lo.u32 %r5, %r1, 16, %r2;
    mul.wide.u32 %rd3, %r1, 16;
    add.u64 %rd3, %rd2, %rd3;
    mov.u32 %r3, 0;
  DUMP:
    ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];
    st.global.v4.u32 [%rd3], {%r6, %r7, %r8, %r9};
    add.u32 %r5, %r5, 2048;
    add.u64 %rd3, %rd3, 2048;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 4;
    @%p1 bra DUMP;
    ret;
}
"""
#: the other way: shared memory is filled from the array first
FILL = """
    mad.lo.u32 %r5, %r1, 16, %r2;
    mul.wide.u32 %rd3, %r1, 16;
    add.u64 %rd3, %rd2, %rd3;
  FILL:
    ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd3];
    st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9};
    add.u32 %r5, %r5, 2048;
    add.u64 %rd3, %rd3, 2048;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 4;
    @%p1 bra FILL;
    fence.proxy.async;
    bar.sync 0;
"""
TELLS = "mbarrier::complete_tx::bytes"
#: 16 bits of what elements outside are filled with
NAN = b"\xf7\x7f"


def listed(numbers: Sequence[object]) -> str:
    return "{" + ", ".join(str(number) for number in numbers) + "}"


def load(
    opcode: str,
    start: Sequence[int],
    size: int,
    *,
    offset: int = 0,
    offsets: Sequence[int] = (),
    more: str = "",
    target: str = "sm_90",
) -> str:
    """A kernel that loads one box and shows shared memory; coordinates innermost first, ``offsets`` are those of im2col. It ends
    when just ``size`` bytes have come."""
    named = [f"%h{place + 1}" for place in range(len(offsets))]
    given = "".join(f"    mov.u16 {name}, {offset};\n" for name, offset in zip(named, offsets))
    more = f", {listed(named)}{more}" if offsets else more
    return (
        HEAD.format(target=target)
        + CLEAR
        + given
        + f"""
    @!%p0 bra READY;
    mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], {size};
    mov.u32 %r10, {start[0]};
    cp.async.bulk.tensor.{opcode}.{TELLS} [%r2+{offset}], [%rd1, {listed(["%r10", *start[1:]])}], [bar]{more};
  READY:
    """
        + WAIT
        + DUMP
    )


def store(opcode: str, start: Sequence[int], *, offset: int = 0, target: str = "sm_90") -> str:
    """A kernel that fills shared memory, and stores (or combines) one box of it."""
    return (
        HEAD.format(target=target)
        + FILL
        + f"    @%p0 cp.{opcode} [%rd1, {listed(start)}], [%r2+{offset}];\n    ret;\n}}\n"
    )


@cache
def _parsed(text: str) -> ge.Module:
    return ge.parse(text, path="k.ptx")


def run(
    backend: str, text: str, array: Array, out: Array, make: Any, **options: Any
) -> tuple[Array, Array, ge.Profile]:
    """The array, the result, and the profile; ``make`` makes the map of the array."""
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    tensor = device.array(array, name="tensor")
    result = device.array(out, name="out")
    profile = device.launch(_parsed(text)["k"], 1, 128, [make(tensor), result], **options)
    return tensor.numpy(), result.numpy(), profile


def moved(place: int, swizzle: str) -> int:
    """An address after swizzling: 16-byte pieces of 32, 64 or 128 bytes change places with every 128 bytes (from 32B: 256, …)."""
    bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle]
    row = place // 128
    piece = place // 16
    return (piece ^ (row % (1 << bits))) * 16 + place % 16


def elements(
    box: Sequence[int], steps: Sequence[int], start: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Place in the box and coordinates of each element, innermost axis fastest; all innermost first."""
    counts = [-(-length // step) for length, step in zip(box, steps)]
    for place, index in enumerate(itertools.product(*(range(count) for count in reversed(counts)))):
        yield place, tuple(first + step * at for first, step, at in zip(start, steps, reversed(index)))


def inside(array: Array, at: Sequence[int]) -> bool:
    return all(0 <= place < size for place, size in zip(at, reversed(array.shape)))


def expected_load(
    array: Array,
    box: Sequence[int],
    start: Sequence[int],
    steps: Sequence[int],
    swizzle: str,
    padding: bytes,
    offset: int,
) -> Array:
    """Shared memory after a load; box, start and steps innermost first."""
    found = np.full(SHARED, 0x11, np.uint8)
    width = array.itemsize
    for place, at in elements(box, steps, start):
        raw = array[tuple(reversed(at))].tobytes() if inside(array, at) else padding
        to = moved(offset + place * width, swizzle)
        found[to : to + width] = np.frombuffer(raw, np.uint8)
    return found


def random_bytes(shape: Any, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def shared_after(pieces: Iterable[tuple[int, bytes]]) -> Array:
    """Shared memory in which only these pieces were written."""
    found = np.full(SHARED, 0x11, np.uint8)
    for place, raw in pieces:
        found[place : place + len(raw)] = np.frombuffer(raw, np.uint8)
    return found


def walk(
    start: Sequence[int], lower: Sequence[int], upper: Sequence[int], steps: Sequence[int], count: int
) -> list[tuple[int, ...]]:
    """Pixels of a bounding box from one on, W first; the last coordinate is N. ``upper`` is where the box ends."""
    found, at = [], list(start)
    for _ in range(count):
        found.append(tuple(at))
        for axis, step in enumerate(steps):
            at[axis] += step
            if at[axis] < upper[axis]:
                break
            at[axis] = lower[axis]
        else:
            at[-1] += 1
    return found
