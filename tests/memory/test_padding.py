"""Accesses that run past the last byte of an object: what is carried out and noted, and what stays an error. Both backends alike.

What is right is told from the rule: an element that begins inside an object may end behind it; with a padding that was asked for, any
access may that ends in it."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

BACKENDS = ("llvm", "reference")
HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {
.reg .b16 h; .reg .b32 r, s, v, w; .reg .b64 a, o, l; .reg .pred p;
ld.param.u64 a, [x]; ld.param.u64 o, [y]; mov.u32 r, %tid.x; mov.u32 s, %ctaid.x;
"""


def launch(
    body: str,
    size: int,
    backend: str,
    pad: int | None = None,
    block: int = 1,
    grid: int = 1,
    strict: str = "note",
) -> tuple[np.ndarray, np.ndarray, ge.Profile]:
    """Bytes of ``x`` (made 1, 2, 3 …) and of ``y``, and the profile."""
    device = ge.Device(backend=backend, observe={"footprint", "memory"}, strict=strict)
    x = device.array(np.arange(1, size + 1, dtype=np.uint8), name="x", pad=pad)
    y = device.zeros(64, np.uint32, name="y")
    profile = device.launch(ge.parse(f"{HEAD}{body} ret; }}", path="k.ptx")["k"], grid, block, [x, y])
    return x.numpy(), y.numpy(), profile


#: body, bytes of the object, how far past its end
ALLOWED = {
    "compare and swap": ("atom.global.cas.b32 v, [a], 0x201, 0x1234; st.global.u32 [o], v;", 2, 2),
    "atomic addition": ("atom.global.add.u32 v, [a], 1; st.global.u32 [o], v;", 2, 2),
    "reduction": ("red.global.or.b64 [a], 0;", 5, 3),
    "load": ("ld.global.u32 v, [a]; st.global.u32 [o], v;", 3, 1),
    "generic load": ("ld.u32 v, [a+4]; st.global.u32 [o], v;", 6, 2),
    "load of a vector": ("ld.global.v2.u32 {v, w}, [a]; st.global.u32 [o], w;", 5, 3),
    "store": ("mov.u32 v, 7; st.global.u32 [a], v;", 2, 2),
    "scattered": (
        "mul.lo.u32 s, r, 8; cvt.u64.u32 l, s; add.u64 a, a, l; ld.global.u32 v, [a]; st.global.u32 [o], v;",
        2, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_elements_that_begin_inside(name: str) -> None:
    body, size, over = ALLOWED[name]
    found = [launch(body, size, backend) for backend in BACKENDS]
    for array in range(2):
        assert found[0][array].tolist() == found[1][array].tolist()
    notes = [profile.notes for *_, profile in found]
    opcode = next(
        word
        for word in body.replace(";", " ").split()
        if word.startswith(("atom", "red", "ld", "st.global.u32"))
    )
    assert notes[0] == notes[1]
    (note,) = notes[0]
    assert note.startswith(
        f"k.ptx:7:{1 + body.index(opcode)}: {opcode}: thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'"
    )
    assert note.endswith(f": up to {over} bytes past the end of 'x' ({size} bytes) [object-end]")
    footprints = [next(item for item in profile.footprint if item.object == "x") for *_, profile in found]
    assert footprints[0] == footprints[1] and footprints[0].bytes_touched <= size
    assert [profile.opcodes for *_, profile in found[:1]] == [profile.opcodes for *_, profile in found[1:]]


def test_what_is_carried_out() -> None:
    """A counter of two bytes counts by a compare-and-swap of the word it lies in, as libraries do."""
    for backend in BACKENDS:
        x, y, _ = launch("atom.global.cas.b32 v, [a], 0x201, 0x1234; st.global.u32 [o], v;", 2, backend)
        assert x.tolist() == [0x34, 0x12]
        assert y[0] == 0x201  # what lies behind was never written


def test_the_first_thread_and_the_farthest() -> None:
    """Of many that run past the end the lowest block and thread are named; how far is told of all."""
    body = (
        "shl.b32 w, s, 3; add.u32 v, r, w; setp.lt.u32 p, v, 3; @p ret; mul.lo.u32 w, v, 4; cvt.u64.u32 l, w;"
        "add.u64 a, a, l; ld.global.u32 v, [a];"
    )
    notes = [launch(body, 8, backend, 4096, 8, 40)[2].notes for backend in BACKENDS]
    assert notes[0] == notes[1]
    (note,) = notes[0]
    assert "thread (3, 0, 0) of block (0, 0, 0)" in note
    assert f"up to {40 * 8 * 4 - 8:,} bytes past the end of 'x' (8 bytes)" in note


#: body, bytes, padding asked for
REFUSED = {
    "behind the last byte": ("ld.global.u32 v, [a+4];", 4, None),
    "a byte behind the last": ("st.global.u8 [a+2], r;", 2, None),
    "the last element of a vector": ("ld.global.v4.u32 {v, w, r, s}, [a];", 12, None),
    "a store of a vector": ("st.global.v2.u32 [a], {r, s};", 4, None),
    "none asked for": ("atom.global.cas.b32 v, [a], 0, 1;", 2, 0),
    "beyond what was asked for": ("ld.global.u64 l, [a+8];", 8, 7),
    "an empty object": ("ld.global.u8 h, [a];", 0, None),
    "before the object": ("ld.global.u32 v, [a+-4];", 4, 64),
    "misaligned": ("ld.global.u32 v, [a+1];", 4, 64),
    "an asynchronous copy": ("{ .shared .align 16 .b8 t[16]; cp.async.ca.shared.global [t], [a], 16; }", 12, None),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_an_error(name: str) -> None:
    body, size, pad = REFUSED[name]
    messages = []
    for backend in BACKENDS:
        with pytest.raises(ge.MemoryFault) as caught:
            launch(body, size, backend, pad)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_padding_that_was_asked_for(backend: str) -> None:
    """All accesses up to its end, what is stored there is read again, and nothing past it."""
    body = "mov.u32 v, 77; st.global.u32 [a+12], v; ld.global.v4.u32 {v, w, r, s}, [a]; st.global.u32 [o], s;"
    x, y, profile = launch(body, 12, backend, 4)
    assert y[0] == 77 and x.tolist() == list(range(1, 13))
    assert [note.partition(": up to")[2] for note in profile.notes] == [
        " 4 bytes past the end of 'x' (12 bytes) [object-end]"
    ] * 2
    with pytest.raises(ge.MemoryFault):
        launch(body, 12, backend, 3)


def test_paddings_that_mean_nothing() -> None:
    device = ge.Device()
    for pad in (-1, 2.5, "4", True):
        with pytest.raises(ge.LaunchError, match="pad is"):
            device.zeros(4, np.uint8, pad=pad)  # type: ignore[arg-type]
    with pytest.raises(ge.LaunchError, match="bytes of device memory are left"):
        device.zeros(4, np.uint8, pad=1 << 40)


def test_variables_of_modules_have_none(backend: str) -> None:
    """Linkers put variables side by side."""
    text = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 small[2];
.visible .entry k() { .reg .b32 r; .reg .b64 a; mov.u64 a, small; ld.global.u32 r, [a]; ret; }
"""
    with pytest.raises(ge.MemoryFault, match="past the end of 'small'"):
        ge.Device(backend=backend).launch(ge.parse(text, path="k.ptx")["k"], 1, 1)


def test_strictness(backend: str) -> None:
    """An error where rules are strict, unless a padding was asked for; nothing is said where they are off."""
    body = "atom.global.cas.b32 v, [a], 0, 1;"
    with pytest.raises(
        ge.MemoryFault, match=r"past the end of 'x' \(2 bytes at 0x300000000000\) \[object-end\]"
    ):
        launch(body, 2, backend, strict="error")
    assert len(launch(body, 2, backend, 2, strict="error")[2].notes) == 1
    assert launch(body, 2, backend, strict="off")[2].notes == ()


def test_kernels_of_cxx_are_named_as_their_source_does(backend: str) -> None:
    """``math::scale<float>``, as ptxas and c++filt read the symbol: at an element past an object, and where a race is an error."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry _ZN4math5scaleIfEEvPf(.param .u64 x) {
    .reg .b64 a; .reg .b32 v;
    ld.param.u64 a, [x];
    ld.global.u64 a, [a];
    ret;
}"""
    kernel = ge.parse(text, path="k.ptx")["_ZN4math5scaleIfEEvPf"]
    device = ge.Device(backend=backend)
    (note,) = device.launch(kernel, 1, 1, [device.array(np.zeros(4, np.uint8), name="x")]).notes
    assert "of kernel 'math::scale<float>': up to 4 bytes past the end of 'x'" in note
