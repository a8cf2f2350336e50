"""Accesses of launches that observe nothing take shorter paths in compiled code: results and errors are those of other launches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge

LANES = 32
#: elements of a form: type, register, bytes and how many
FORMS = [
    ("u8", "h", 1, 1), ("u16", "h", 2, 1), ("u32", "r", 4, 1), ("u64", "d", 8, 1), ("u8", "h", 1, 2), ("u8", "h", 1, 4),
    ("u16", "h", 2, 2), ("u16", "h", 2, 4), ("u32", "r", 4, 2), ("u32", "r", 4, 4), ("u64", "d", 8, 2),
]  # fmt: skip
#: the element of each lane, of 64, in a pattern
PATTERNS: dict[str, Callable[[int], int]] = {
    "row": lambda lane: lane,
    "later row": lambda lane: lane + 3,
    "half rows": lambda lane: (lane & 15) + 32 * (lane >> 4),
    "one": lambda lane: 5,
    "one of each half": lambda lane: 9 + 7 * (lane >> 4),
    "strided": lambda lane: 2 * lane,
    "reversed": lambda lane: 63 - lane,
    "permuted": lambda lane: lane * 37 % 64,
}
MASKS = [0xFFFFFFFF, 0x7FFFFFFE, 0x00000100, 0x0F0F5A5A, 0]


def head(name: str, body: str) -> str:
    return f""".version 8.0
    .target sm_80
    .address_size 64
    .visible .entry {name}(.param .u64 x, .param .u64 y, .param .u64 lanes) {{
        .reg .b64 %d<24>; .reg .b32 %r<24>; .reg .b16 %h<12>; .reg .pred %p<4>;
        .shared .align 16 .b8 near[1024]; .local .align 16 .b8 own[1024];
        ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u64 %d2, [lanes]; mov.u32 %r0, %tid.x;
        mul.wide.u32 %d3, %r0, 8; add.u64 %d2, %d2, %d3;
        ld.global.u32 %r1, [%d2]; ld.global.u32 %r2, [%d2+4]; setp.ne.u32 %p0, %r2, 0;
        {body} ret; }}"""


def names(register: str, count: int) -> str:
    first = {"h": 0, "r": 8, "d": 16}[register]
    listed = [f"%{register}{first + index}" for index in range(count)]
    return listed[0] if count == 1 else "{" + ", ".join(listed) + "}"


def copy_kernel(form: tuple[str, str, int, int], space: str, *, stores: bool) -> str:
    """Lane l with a flag copies element ``lanes[l]`` of x to element l of y, or stores element l of x at element ``lanes[l]`` of y; in
    shared or local memory through a copy of 64 elements there."""
    kind, register, width, count = form
    size, vector = width * count, "" if count == 1 else f".v{count}"
    held, base = (
        names(register, count),
        {"global": "%d1" if stores else "%d0", "shared": "%d6", "local": "%d6"}[space],
    )
    fill = spill = ""
    if space != "global":
        place = "near" if space == "shared" else "own"
        rounds = f"mul.wide.u32 %d7, %r0, {size}; add.u64 %d8, %d0, %d7; add.u64 %d9, %d6, %d7;"
        half = LANES * size
        if space == "local":
            # every thread has its own copy of the 64 elements
            rounds = "mov.u64 %d8, %d0; mov.u64 %d9, %d6;"
            pieces = [index * size for index in range(64)]
        else:
            pieces = [0, half]
        loads = "".join(
            f"ld.global{vector}.{kind} {held}, [%d8+{at}]; st.{space}{vector}.{kind} [%d9+{at}], {held};"
            for at in pieces
        )
        fill = f"mov.u64 %d6, {place}; {rounds} {loads} bar.sync 0;"
        if stores:
            back = [0, half] if space == "shared" else []
            spill = "bar.sync 0; add.u64 %d8, %d1, %d7;" if back else ""
            spill += "".join(
                f"ld.{space}{vector}.{kind} {held}, [%d9+{at}]; st.global{vector}.{kind} [%d8+{at}], {held};"
                for at in back
            )
    near, far = (f"mul.wide.u32 %d4, %r0, {size};", f"mul.wide.u32 %d5, %r1, {size};")
    if stores:
        source = f"{near} add.u64 %d4, %d0, %d4; ld.global{vector}.{kind} {held}, [%d4+{LANES * size}];"
        work = f"{source} {far} add.u64 %d5, {base}, %d5; @%p0 st.{space}{vector}.{kind} [%d5], {held};"
    else:
        load = f"{far} add.u64 %d5, {base}, %d5; @%p0 ld.{space}{vector}.{kind} {held}, [%d5];"
        work = f"{load} {near} add.u64 %d4, %d1, %d4; @%p0 st.global{vector}.{kind} [%d4], {held};"
    return head("k", fill + work + spill)


def devices() -> list[ge.Device]:
    return [
        ge.Device(observe=(), races="off", history=0),
        ge.Device(observe={"memory", "footprint"}, races="off"),
    ]


def lanes_of(pattern: str, mask: int) -> np.ndarray[Any, Any]:
    return np.array([[PATTERNS[pattern](lane), mask >> lane & 1] for lane in range(LANES)], np.uint32)


@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}x{form[3]}")
def test_loads_and_stores(form: tuple[str, str, int, int], space: str) -> None:
    size = form[2] * form[3]
    generator = np.random.default_rng(size)
    # 64 elements that are loaded, or 32 that are stored after 32 others
    x = generator.integers(1, 256, 64 * size, dtype=np.uint8)
    kernels = {stores: ge.parse(copy_kernel(form, space, stores=stores)) for stores in (False, True)}
    for device in devices():
        for stores, module in kernels.items():
            if stores and space == "local":
                continue
            for pattern in PATTERNS:
                for mask in MASKS:
                    lanes = lanes_of(pattern, mask)
                    wanted = np.zeros((64, size), np.uint8)
                    if stores and space == "shared":
                        wanted[:] = x.reshape(64, size)
                    for lane, (element, flag) in enumerate(lanes.tolist()):
                        # lanes that store to one element do so in ascending order
                        if flag and stores:
                            wanted[element] = x.reshape(64, size)[LANES + lane]
                        elif flag:
                            wanted[lane] = x.reshape(64, size)[element]
                    y = device.array(np.zeros(64 * size, np.uint8))
                    device.launch(module["k"], 1, LANES, [device.array(x), y, device.array(lanes)])
                    assert y.numpy().tobytes() == wanted.tobytes(), (pattern, hex(mask), stores)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}x{form[3]}")
def test_errors_name_the_same_lane(form: tuple[str, str, int, int], stores: bool) -> None:
    size = form[2] * form[3]
    module = ge.parse(copy_kernel(form, "global", stores=stores))
    for element in (64, 1000, 1 << 31):
        for pattern in ("row", "permuted"):
            messages = []
            for device in devices():
                lanes = lanes_of(pattern, 0xFFFFFFFF)
                lanes[19, 0] = element
                x, y = (device.array(np.zeros(64 * size, np.uint8), name=name) for name in "xy")
                with pytest.raises(ge.MemoryFault) as caught:
                    device.launch(module["k"], 1, LANES, [x, y, device.array(lanes)])
                messages.append(str(caught.value))
            assert messages[0] == messages[1] and "(19, 0, 0)" in messages[0]


def atomic_kernel(opcode: str, space: str, register: str, operands: int) -> str:
    size = 8 if register == "d" else 4
    place = f"mov.u64 %d6, {'near' if space == 'shared' else '%d0'}; "
    kind = f"u{8 * size}"
    fill = spill = ""
    if space == "shared":
        spread = f"mul.wide.u32 %d7, %r0, {size}; add.u64 %d8, %d0, %d7; add.u64 %d9, %d6, %d7;"
        at = (0, LANES * size)
        fill = spread + "".join(
            f"ld.global.{kind} {names(register, 1)}, [%d8+{o}]; st.shared.{kind} [%d9+{o}], {names(register, 1)};"
            for o in at
        )
        fill += "bar.sync 0;"
        spill = "bar.sync 0;" + "".join(
            f"ld.shared.{kind} {names(register, 1)}, [%d9+{o}]; st.global.{kind} [%d8+{o}], {names(register, 1)};"
            for o in at
        )
    value = (
        f"add.u32 %r9, %r0, 3; cvt.u64.u32 %d10, %r9; mul.wide.u32 %d5, %r1, {size}; add.u64 %d5, %d6, %d5;"
    )
    given = f"%{'d10' if register == 'd' else 'r9'}"
    listed = ", ".join([given] * operands)
    result = f"%{'d11' if register == 'd' else 'r10'}"
    work = f"mov.b{8 * size} {result}, 0; @%p0 {opcode.replace('SPACE', space)} {result}, [%d5], {listed};"
    if opcode.startswith("red"):
        work = f"mov.b{8 * size} {result}, 0; @%p0 {opcode.replace('SPACE', space)} [%d5], {listed};"
    store = f"mul.wide.u32 %d12, %r0, {size}; add.u64 %d12, %d1, %d12; st.global.{kind} [%d12], {result};"
    return head("k", place + fill + value + work + spill + store)


ATOMICS: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, b: old + b,
    "exch": lambda old, b: b,
    "max": max,
    "cas": lambda old, b: b if old == b else old,
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("word", "operation"), [*(("atom", name) for name in ATOMICS), ("red", "add"), ("red", "max")]
)
def test_atomics(operation: str, word: str, space: str, bits: int) -> None:
    kind = f"{'b' if operation in ('exch', 'cas') else 'u'}{bits}"
    operands = 2 if operation == "cas" else 1
    text = atomic_kernel(f"{word}.SPACE.{operation}.{kind}", space, "r" if bits == 32 else "d", operands)
    module = ge.parse(text)
    generator = random.Random(f"{operation}{bits}")
    dtype = np.dtype(f"u{bits // 8}")
    for device in devices():
        for pattern in PATTERNS:
            for mask in MASKS:
                start = [generator.choice((0, 3, 20, 34, 0x5BD1E995, (1 << bits) - 1)) for _ in range(64)]
                lanes, cells, olds = lanes_of(pattern, mask), [*start], [0] * LANES
                for lane, (element, flag) in enumerate(lanes.tolist()):
                    if flag:
                        olds[lane] = cells[element] if word == "atom" else 0
                        cells[element] = ATOMICS[operation](cells[element], lane + 3) % (1 << bits)
                x, y = device.array(np.array(start, dtype)), device.array(np.zeros(LANES, dtype))
                device.launch(module["k"], 1, LANES, [x, y, device.array(lanes)])
                assert x.numpy().tolist() == cells, (pattern, hex(mask))
                assert y.numpy().tolist() == olds, (pattern, hex(mask))


@pytest.mark.parametrize("pattern", ["one", "permuted"])
def test_atomics_of_many_blocks(pattern: str) -> None:
    """Blocks run on several threads of the host: nothing is lost."""
    module = ge.parse(atomic_kernel("red.SPACE.add.u32", "global", "r", 1))
    device = devices()[0]
    lanes = lanes_of(pattern, 0xFFFFFFFF)
    x, y = device.array(np.zeros(64, np.uint32)), device.array(np.zeros(LANES, np.uint32))
    blocks = 20_000
    device.launch(module["k"], blocks, LANES, [x, y, device.array(lanes)])
    wanted = np.zeros(64, np.uint64)
    for lane, (element, _) in enumerate(lanes.tolist()):
        wanted[element] += blocks * (lane + 3)
    assert x.numpy().tolist() == (wanted % (1 << 32)).tolist()


@pytest.mark.parametrize("bits", [32, 64])
def test_atomics_on_unwritten_shared_memory_read_zeros_with_a_note(bits: int) -> None:
    register = "r" if bits == 32 else "d"
    text = atomic_kernel(f"atom.SPACE.add.u{bits}", "shared", register, 1)
    start, end = (
        text.index("ld.global.u32 %r8, [%d8+0]" if bits == 32 else "ld.global.u64 %d16, [%d8+0]"),
        text.index("bar.sync 0;"),
    )
    module = ge.parse(text[:start] + text[end:])
    for device in devices():
        dtype = np.dtype(f"u{bits // 8}")
        x, y = device.array(np.ones(64, dtype)), device.array(np.ones(LANES, dtype))
        profile = device.launch(module["k"], 1, LANES, [x, y, device.array(lanes_of("one", 0xFFFFFFFF))])
        sums = np.cumsum([0, *range(3, 3 + LANES)])
        assert y.numpy().tolist() == sums[:-1].tolist()
        assert x.numpy()[5] == sums[-1]
        assert any("uninitialised" in str(note) for note in profile.notes)


def async_kernel(width: int, read: str = "") -> str:
    """Lane l with a flag copies element ``lanes[l]`` of x to element 2 l of shared memory, which is copied to y then."""
    words = width // 4
    vector, held = {1: ("", "%r8"), 2: (".v2", "{%r8, %r9}"), 4: (".v4", "{%r8, %r9, %r10, %r11}")}[words]
    spread = (
        f"mov.u64 %d6, near; mul.wide.u32 %d7, %r0, {width}; add.u64 %d8, %d6, %d7; add.u64 %d9, %d8, %d7;"
    )
    zero = "mov.u32 %r12, 0; mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u32 %r10, 0; mov.u32 %r11, 0;"
    zero += "".join(f"st.shared{vector}.u32 [%d8+{at}], {held};" for at in (0, LANES * width))
    source = f"mul.wide.u32 %d10, %r1, {width}; add.u64 %d10, %d0, %d10; bar.sync 0;"
    copy = f"@%p0 cp.async.{'cg' if width == 16 else 'ca'}.shared.global [%d9], [%d10], {width}{read};"
    wait = "cp.async.wait_all; bar.sync 0; add.u64 %d11, %d1, %d7;"
    back = "".join(
        f"ld.shared{vector}.u32 {held}, [%d8+{at}]; st.global{vector}.u32 [%d11+{at}], {held};"
        for at in (0, LANES * width)
    )
    return head("k", spread + zero + source + copy + wait + back)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("read", ["", ", %r2"])
def test_asynchronous_copies(width: int, read: str) -> None:
    """The flag is also the number of bytes that are read, if that is an operand; the other bytes are zeros."""
    module = ge.parse(async_kernel(width, read))
    generator = np.random.default_rng(width)
    x = generator.integers(1, 256, (64, width), dtype=np.uint8)
    x[5, :4] = x[9, -4:] = np.frombuffer(0x5BD1E995.to_bytes(4, "little"), np.uint8)
    for device in devices():
        for pattern in PATTERNS:
            for mask in MASKS:
                for bytes_ in (width, 3):
                    lanes = lanes_of(pattern, mask)
                    lanes[::3, 1] *= width
                    lanes[1::3, 1] *= bytes_
                    lanes[2::3, 1] *= width
                    wanted = np.zeros((64, width), np.uint8)
                    for lane, (element, flag) in enumerate(lanes.tolist()):
                        kept = min(flag, width) if read else width
                        if flag:
                            wanted[2 * lane, :kept] = x[element, :kept]
                    y = device.array(np.ones(64 * width, np.uint8))
                    device.launch(module["k"], 1, LANES, [device.array(x), y, device.array(lanes)])
                    assert y.numpy().tobytes() == wanted.tobytes(), (pattern, hex(mask), bytes_)


def test_asynchronous_copies_of_unwritten_memory_patterns_are_written() -> None:
    """The value that marks unwritten shared memory may be copied there: it is no read of uninitialised memory."""
    module = ge.parse(async_kernel(16))
    x = np.full((64, 4), 0x5BD1E995, np.uint32)
    for device in devices():
        y = device.array(np.zeros((64, 4), np.uint32))
        lanes = lanes_of("row", 0xFFFFFFFF)
        profile = device.launch(module["k"], 1, LANES, [device.array(x), y, device.array(lanes)])
        assert (y.numpy()[::2] == 0x5BD1E995).all() and not y.numpy()[1::2].any()
        assert not profile.notes


def test_errors_of_asynchronous_copies() -> None:
    module = ge.parse(async_kernel(16))
    messages = []
    for device in devices():
        lanes = lanes_of("row", 0xFFFFFFFF)
        lanes[19, 0] = 64
        x, y = (device.array(np.zeros(64 * 16, np.uint8), name=name) for name in "xy")
        with pytest.raises(ge.MemoryFault) as caught:
            device.launch(module["k"], 1, LANES, [x, y, device.array(lanes)])
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "(19, 0, 0)" in messages[0]
