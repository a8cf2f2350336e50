"""printf, assertions and the heap of kernels, against the C library of the host and plain Python."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.memory.heap import Heap

from .running import module

VALUES = np.dtype(
    [("wide", "i8"), ("real", "f8"), ("word", "i4"), ("half", "i2"), ("byte", "i1"), ("letter", "S1")]
)
CASES: list[tuple[int, float, int, int, int, bytes]] = [
    (-(2**63), -1234.56789, -42, -5, -7, b"x"),
    (2**63 - 1, 0.0, 0, 32767, 127, b"y"),
    (0, float("inf"), 2**31 - 1, -32768, -128, b"~"),
    (123456789012, float("-inf"), -(2**31), 300, 5, b"A"),
    (7, 5e-324, 1, 1, 1, b"b"),
    (-1, 1e300, 255, 0, 0, b"c"),
    (10, 2.5, 99999, -1, -1, b"d"),
    (10, -0.0, 8, 12, 13, b"e"),
    (10, 1 / 3, 4096, 12, 13, b"f"),
    (10, float.fromhex("0x1.fffffffffffffp0"), 77, 12, 13, b"g"),
    (10, 123456.5, 77, 12, 13, b"h"),
]
TEXT = b"some text"
STARS = (9, 2)


def launch(
    backend: str, entry: str, grid: int, block: int, args: list[Any], **options: Any
) -> tuple[ge.Profile, list[Any]]:
    device = ge.Device(backend=backend, memory_bytes=1 << 24, **options)
    given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    profile = device.launch(module("system")[entry], grid, block, given)
    assert profile.remarks == ()  # printing leaves no kernel to the reference backend
    return profile, given


def formats() -> list[tuple[str, list[str]]]:
    """The formats of the first kernel as they stand in its source, with the arguments' text."""
    source = (Path(__file__).parent / "kernels" / "system.cu").read_text(encoding="utf-8")
    body = source[source.index("void conversions") : source.index("void addresses")]
    found = re.findall(r'printf\("(.*?)\\n"(.*?)\);', body, re.DOTALL)
    return [(text, [part.strip() for part in rest.split(",")[1:]]) for text, rest in found]


def expected(case: tuple[int, float, int, int, int, bytes]) -> list[bytes]:
    """What the host's C library prints."""
    wide, real, word, half, byte, letter = case
    known: dict[str, Any] = {
        "v.wide": ctypes.c_longlong(wide),
        "(long)v.wide": ctypes.c_long(wide),
        "(unsigned long)v.wide": ctypes.c_ulong(wide % 2**64),
        "v.real": ctypes.c_double(real),
        "(float)v.real": ctypes.c_double(np.float32(real)),
        "v.word": ctypes.c_int(word),
        "v.half": ctypes.c_int(half),
        "v.byte": ctypes.c_int(byte),
        "v.letter": ctypes.c_int(letter[0]),
        "text": ctypes.c_char_p(TEXT),
        "stars[0]": ctypes.c_int(STARS[0]),
        "stars[1]": ctypes.c_int(STARS[1]),
    }
    lines = []
    library = ctypes.CDLL(None)
    for text, names in formats():
        buffer = ctypes.create_string_buffer(4096)
        library.snprintf(buffer, ctypes.c_size_t(4096), text.encode(), *(known[name] for name in names))
        lines.append(buffer.value)
    return lines


@pytest.mark.skipif(sys.platform != "linux", reason="compared with the C library of Linux")
def test_every_conversion_is_that_of_the_c_library(backend: str) -> None:
    values = np.array(CASES, VALUES)
    text, stars = np.frombuffer(TEXT + b"\0", np.uint8), np.array(STARS, np.int32)
    counts = np.zeros((len(CASES), 16), np.int32)
    with np.errstate(over="ignore"):
        lines = [expected(case) for case in CASES]
    profile, (*_, out) = launch(
        backend, "conversions", 1, len(CASES), [values.view(np.uint8), text, stars, counts]
    )
    # each printf is printed by all threads of the warp, in ascending order
    wanted = [line for call in zip(*lines, strict=True) for line in call]
    assert profile.printed.encode().split(b"\n")[:-1] == wanted
    arguments = [len(names) for _, names in formats()]
    assert len(arguments) == 11
    assert out.numpy()[:, :11].tolist() == [arguments] * len(CASES)


def test_pointers_and_null_texts(backend: str) -> None:
    profile, (x, _) = launch(backend, "addresses", 1, 32, [np.zeros(1, np.int32), None])
    address = f"{x.address:#x}"
    assert profile.printed == f"[{address}|(nil)|(null)|{address:>20}]\n"


def test_texts_of_local_and_shared_memory_in_order_of_blocks(backend: str) -> None:
    profile, _ = launch(backend, "texts", 5, 40, [])
    wanted = [f"{chr(97 + t % 26)}{b} ABCDEFG" for b in range(5) for t in range(40)]
    assert profile.printed.splitlines() == wanted


def test_diverging_threads_print_in_the_order_in_which_they_run(backend: str) -> None:
    x = np.arange(64, dtype=np.int32) * 7 % 23
    profile, _ = launch(backend, "diverging", 2, 32, [x])
    reference, _ = launch("reference", "diverging", 2, 32, [x])
    assert profile.printed == reference.printed
    blocks = profile.printed.split("end of ")
    assert [part[:2] for part in blocks[1:]] == ["0\n", "1\n"]
    lines = [line.split("\n", 1)[-1] if place else line for place, line in enumerate(blocks)]
    for block, said in enumerate(lines[:2]):
        own = x[32 * block : 32 * block + 32].tolist()
        wanted = [f"three {v}" for v in own if v % 3 == 0]
        wanted += [f"one {v} {i}" for v in own if v % 3 == 1 for i in range(v % 4)]
        assert sorted(said.splitlines()) == sorted(wanted)


def test_the_oldest_text_is_lost_beyond_the_limit(backend: str) -> None:
    line = 18  # bytes
    profile, _ = launch(backend, "loud", 3, 32, [np.int32(4)], printf_bytes=line * 100 + 5)
    lines = profile.printed.splitlines()
    every = [f"{t + 32 * b:08d} {i:08d}" for b in range(3) for i in range(4) for t in range(32)]
    assert lines == every[-100:]
    (note,) = profile.notes
    assert "the first 284 calls are not shown" in note and "printf_bytes=" in note
    assert launch(backend, "loud", 1, 32, [np.int32(1)], printf_bytes=0)[0].printed == ""


def test_a_text_without_an_end_is_out_of_bounds(backend: str) -> None:
    with pytest.raises(
        ge.MemoryFault, match=r"vprintf: 1-byte load from .*out-of-bounds|out-of-bounds vprintf"
    ) as caught:
        launch(backend, "unending_text", 1, 32, [np.full(8, 65, np.uint8)])
    assert "1 bytes past the end" in str(caught.value)
    with pytest.raises(ge.MemoryFault, match="vprintf: 1-byte load from 0x10: null pointer"):
        launch(backend, "unending_text", 1, 32, [np.uint64(16)])


HAND = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[] = {{37, 100, 32, 37, 100, 0}};
.visible .entry k(.param .u64 out) {{
.local .align 8 .b8 room[4]; .reg .b64 %rd<6>; .reg .b32 %r<4>;
ld.param.u64 %rd1, [out]; mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2; mov.u64 %rd3, room; cvta.local.u64 %rd4, %rd3;
st.local.u32 [%rd3], 5; {more}
{{ .param .b64 f; .param .b64 a; .param .b32 n; st.param.b64 [f], {format}; st.param.b64 [a], {buffer};
call.uni (n), vprintf, (f, a); ld.param.b32 %r2, [n]; }}
st.global.u32 [%rd1], %r2; ret; }}
"""


def hand(backend: str, format_: str = "%rd2", buffer: str = "%rd4", more: str = "") -> tuple[str, int]:
    text = HAND.format(format=format_, buffer=buffer, more=more)
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(1, np.int32)
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 1, [out])
    return profile.printed, int(out.numpy()[0])


def test_too_few_arguments(backend: str) -> None:
    """The format asks for two; the local memory of the thread ends behind the first (rounded up to 16 bytes)."""
    assert hand(backend) == ("5 0", 2)
    with pytest.raises(ge.MemoryFault, match=r"out-of-bounds vprintf: 4-byte load from local address 0x10"):
        hand(backend, more="add.u64 %rd4, %rd4, 12;")
    with pytest.raises(ge.TrapError, match="the format asks for 2 arguments, but none is given"):
        hand(backend, buffer="0")
    assert hand(backend, format_="0") == ("", -1)


def test_wild_pointers(backend: str) -> None:
    """Into each window, without memory there, and beyond everything."""
    for pointer, message in (
        ("0x7C0000000000", "out-of-bounds vprintf"),
        ("-1", "out-of-bounds vprintf: 1-byte load from 0xffffffffffffffff"),
        ("1", "null pointer"),
    ):
        with pytest.raises(ge.MemoryFault, match=message):
            hand(backend, format_=pointer)
    text = HAND.replace(".local .align 8 .b8 room[4];", "").replace("mov.u64 %rd3, room;", "mov.u64 %rd3, 0;")
    text = text.replace("st.local.u32 [%rd3], 5;", "").format(format="%rd4", buffer="%rd4", more="")
    with pytest.raises(ge.MemoryFault, match=r"load from local address 0x0: beyond the 0 bytes"):
        ge.Device(backend=backend, memory_bytes=1 << 20).launch(
            ge.parse(text, path="k.ptx")["k"], 1, 1, [None]
        )


def test_arguments_on_the_stack(backend: str) -> None:
    more = "alloca.u64 %rd3, 64, 16; st.local.u32 [%rd3], 8; st.local.u32 [%rd3+4], 9; cvta.local.u64 %rd4, %rd3;"
    assert hand(backend, more=more) == ("8 9", 2)


REGISTERS = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.reg .b32 r) vprintf (.reg .b64 f, .reg .b64 a);
.global .align 1 .b8 text[] = {104, 105, 10, 0};
.visible .entry k(.param .u64 out) {
.reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>; ld.param.u64 %rd1, [out]; mov.u64 %rd2, text; mov.u32 %r2, %tid.x;
setp.lt.u32 %p1, %r2, 3; mov.b32 %r1, 9; @%p1 call (%r1), vprintf, (%rd2, 0); mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r1; ret; }
"""


def test_parameters_in_registers_and_a_guard(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(5, np.int32)
    profile = device.launch(ge.parse(REGISTERS, path="k.ptx")["k"], 1, 5, [out])
    assert profile.printed == "hi\n" * 3
    assert out.numpy().tolist() == [0, 0, 0, 9, 9]


def test_more_than_32_arguments_are_an_internal_error(backend: str) -> None:
    text = HAND.replace("37, 100, 32, 37, 100, 0", ", ".join(["37, 100"] * 33) + ", 0")
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(1, np.int32)
    kernel = ge.parse(text.format(format="%rd2", buffer="%rd4", more=""), path="k.ptx")["k"]
    assert device.launch(kernel, 1, 1, [out]).printed == ""
    assert out.numpy()[0] == -2


@pytest.mark.parametrize("demand", ["control", "addresses", "values"])
def test_counts_do_not_depend_on_the_demand(demand: str, backend: str) -> None:
    """Text is not made where nothing asks for it; where its length decides, everything runs, once."""
    x = np.arange(64, dtype=np.int32)
    for entry, args, says in (
        ("loud", [np.int32(3)], ""),
        ("returned", [x, np.zeros(64, np.int32)], "0 7\n1 7\n2 7\n"),
        ("diverging", [x], ""),
    ):
        device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 22)
        given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        profile = device.launch(module("system")[entry], 2, 32, given, demand=demand)
        whole, _ = launch("reference", entry, 2, 32, args)
        assert profile.opcodes == whole.opcodes
        assert profile.warp_opcodes == whole.warp_opcodes
        assert profile.printed.startswith(says)
        assert profile.printed == (whole.printed if says or demand == "values" else "")
        if says:
            assert given[1].numpy().tolist() == (2 * x + 1).tolist()


def test_what_a_failing_launch_printed_is_shown(backend: str) -> None:
    shown: list[str] = []
    device = ge.Device(backend=backend, memory_bytes=1 << 22, printer=shown.append)
    with pytest.raises(ge.MemoryFault):
        device.launch(module("system")["diverging"], 2, 32, [device.array(np.full(32, 3, np.int32))])
    assert "".join(shown) == "three 3\n" * 32 + "end of 0\n"
    device.launch(module("system")["loud"], 1, 1, [np.int32(1)], keep=False)
    assert len(shown) == 1


# -- heap ----------------------------------------------------------------------------------------------------------------


def test_lists_live_from_one_launch_to_the_next(backend: str) -> None:
    lengths = (np.arange(96) * 5 % 7).astype(np.int32)
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    heads, sums = device.zeros(96, np.uint64), device.zeros(96, np.int64)
    given = device.array(lengths)
    between = device.launch(module("system")["build"], 3, 32, [heads, given])
    assert between.remarks == ()
    addresses = heads.numpy()
    assert ((addresses == 0) == (lengths == 0)).all()
    assert len(set(addresses[lengths > 0].tolist())) == int((lengths > 0).sum())
    later = device.zeros(1000, np.uint8)  # memory made meanwhile is elsewhere
    assert device.memory.heap.used == 16 * int(lengths.sum())
    device.launch(module("system")["sum_and_free"], 3, 32, [heads, sums])
    wanted = [sum(i * i + t for i in range(n)) for t, n in enumerate(lengths.tolist())]
    assert sums.numpy().tolist() == wanted
    assert device.memory.heap.used == 0
    assert not later.numpy().any()


def test_a_block_costs_the_same_however_many_there_are(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, rows = Heap.table, Heap.row
    read: list[int] = []
    monkeypatch.setattr(Heap, "table", lambda heap: (read.append(len(heap.blocks)), whole(heap))[1])
    monkeypatch.setattr(Heap, "row", lambda heap, number: (read.append(1), rows(heap, number))[1])
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    heads, sums = device.zeros(96, np.uint64), device.zeros(96, np.int64)
    device.launch(module("system")["build"], 3, 32, [heads, device.array(np.full(96, 20, np.int32))])
    device.launch(module("system")["sum_and_free"], 3, 32, [heads, sums])
    assert len(device.memory.heap.blocks) == 96 * 20
    # made, freed, and looked at once by the second launch
    assert sum(read) <= 4 * 96 * 20


def test_null_when_the_heap_is_exhausted(backend: str) -> None:
    _, (_, given) = launch(
        backend, "exhaust", 2, 32, [np.uint64(1000), np.zeros(64, np.int32)], heap_bytes=20160
    )
    assert given.numpy().sum() == 20  # of 1,008 bytes each
    _, (_, given) = launch(backend, "exhaust", 1, 32, [np.uint64(8 << 20), np.zeros(32, np.int32)])
    assert given.numpy().tolist() == [1] + [0] * 31
    _, (_, given) = launch(backend, "exhaust", 1, 32, [np.uint64(2**64 - 1), np.zeros(32, np.int32)])
    assert not given.numpy().any()


def test_freed_blocks_are_given_again(backend: str) -> None:
    _, (_, where) = launch(
        backend, "recycle", 1, 32, [np.int32(50), np.zeros(32, np.uint64)], heap_bytes=32 * 48
    )
    addresses = where.numpy()
    assert len(set(addresses.tolist())) == 32
    assert (addresses % 16 == 0).all()
    assert addresses.max() - addresses.min() == 31 * (48 + 16)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (
            0,
            ge.MemoryFault,
            r"4-byte store to .*\n.*\n  4 bytes past the end of a block of malloc \(40 bytes",
        ),
        (1, ge.MemoryFault, r"4-byte load from .*\n.*\n.* past the end of a block of malloc|in the heap"),
        (
            2,
            ge.MemoryFault,
            r"use after free\n.*thread \(5, 0, 0\).*\n  in a block of 40 bytes at .* that was freed",
        ),
        (3, ge.TrapError, r"free: 0x\w+ has been freed before\n  thread \(5, 0, 0\)"),
        (4, ge.TrapError, r"free: 0x\w+ lies inside a block"),
        (5, ge.TrapError, r"free: 0x\w+ was not returned by malloc"),
    ],
)
def test_misuse_of_the_heap(kind: int, error: type[Exception], message: str, backend: str) -> None:
    with pytest.raises(error, match=message) as caught:
        launch(backend, "misuse", 1, 32, [np.int32(kind), np.zeros(4, np.int32)])
    assert str(caught.value).startswith("system.ptx:")
    assert len(str(caught.value).splitlines()) <= 5


def test_free_of_null_does_nothing(backend: str) -> None:
    _, (_, out) = launch(backend, "misuse", 1, 32, [np.int32(6), np.zeros(4, np.int32)])
    assert out.numpy().tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_kernels_that_use_the_heap_run_whole(demand: str, backend: str) -> None:
    lengths = (np.arange(64) % 5).astype(np.int32)
    device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 24)
    heads = device.zeros(64, np.uint64)
    counted = device.launch(module("system")["build"], 2, 32, [heads, device.array(lengths)], demand=demand)
    assert "allocate" in counted.method_reason
    sums = device.zeros(64, np.int64)
    device.launch(module("system")["sum_and_free"], 2, 32, [heads, sums])
    assert sums.numpy().tolist() == [sum(i * i + t for i in range(t % 5)) for t in range(64)]
    whole, _ = launch("reference", "build", 2, 32, [np.zeros(64, np.uint64), lengths])
    assert counted.opcodes == whole.opcodes


def test_a_launch_that_keeps_nothing_leaves_the_heap_as_it_was(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    heads, lengths = device.zeros(32, np.uint64), device.array(np.full(32, 3, np.int32))
    kernel = module("system")["build"]
    device.launch(kernel, 1, 32, [heads, lengths])
    first = heads.numpy()
    device.launch(kernel, 1, 32, [heads, lengths], keep=False)
    assert (heads.numpy() == first).all()
    assert device.memory.heap.used == 32 * 3 * 16
    sums = device.zeros(32, np.int64)
    device.launch(module("system")["sum_and_free"], 1, 32, [heads, sums])
    assert sums.numpy().tolist() == [3 * t + 5 for t in range(32)]


# -- assertions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("demand", ["control", "values"])
def test_a_failed_assertion_is_told_as_cuda_tells_it(backend: str, demand: str) -> None:
    x = np.ones(128, np.float32)
    x[101:103] = -1
    device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 22)
    with pytest.raises(ge.TrapError) as caught:
        device.launch(module("system")["checks"], 2, 64, [device.array(x), np.int32(128)], demand=demand)
    message, detail = str(caught.value).splitlines()
    line = next(
        number
        for number, text in enumerate(
            (Path(__file__).parent / "kernels" / "system.cu").read_text().splitlines(), 1
        )
        if "assert(" in text
    )
    assert message.endswith(
        f"system.cu:{line}: void checks(const float *, int): block: [1,0,0], thread: [37,0,0] "
        "Assertion `x[THREAD] >= 0.0f` failed."
    )
    assert detail.endswith(
        "thread (37, 0, 0) of block (1, 0, 0) of kernel 'checks', and 1 more thread of its warp"
    )
    profile = device.launch(
        module("system")["checks"], 2, 64, [device.array(x), np.int32(100)], demand=demand
    )
    assert profile.remarks == ()


# -- functions that nobody defines -----------------------------------------------------------------------------------------

CALL = """.version 8.0
.target sm_80
.address_size 64
{declaration}
.visible .entry k() {{ {call} ret; }}
"""


@pytest.mark.parametrize(
    ("declaration", "call", "message"),
    [
        (
            ".extern .func helper ();",
            "call helper;",
            r"call of 'helper', which no module given defines\n.*\n  link the modules",
        ),
        (
            ".extern .func (.param .b32 r) cudaDeviceSynchronize ();",
            "{ .param .b32 r; call (r), cudaDeviceSynchronize; }",
            r"cudaDeviceSynchronize: kernels that launch kernels are not run .*\n.*\n  launch the inner kernel",
        ),
        (
            ".extern .func (.param .b32 r) malloc (.param .b32 n);",
            "{ .param .b32 r; .param .b32 n; call (r), malloc, (n); }",
            r"'malloc' is declared with other parameters than the system function",
        ),
    ],
)
def test_functions_without_a_body(backend: str, declaration: str, call: str, message: str) -> None:
    kernel = ge.parse(CALL.format(declaration=declaration, call=call), path="k.ptx")["k"]
    with pytest.raises(ge.Unsupported, match=message) as caught:
        ge.Device(backend=backend, memory_bytes=1 << 20).launch(kernel, 1, 32)
    assert str(caught.value).startswith("k.ptx:5:")


def test_a_function_of_that_name_in_the_module_is_called() -> None:
    text = CALL.format(
        declaration=".func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a) { st.param.b32 [r], 77; ret; }",
        call="{ .param .b32 r; .param .b64 f; call (r), vprintf, (f, f); }",
    )
    profile = ge.Device(memory_bytes=1 << 20).launch(ge.parse(text, path="k.ptx")["k"], 1, 32)
    assert profile.opcodes["st.param.b32"] == 32
