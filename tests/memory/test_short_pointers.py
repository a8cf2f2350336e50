"""Addresses in state spaces held in 32 bits, as compilers with short pointers do: what ``mov`` of a variable gives fits, and zero
extension gives it back. Every space, every way to hold the address, every kind of access that may go there; on both backends, in
slices, in clusters, and in the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.oracle.memory import Buffer
from tests.oracle.scalar import run as oracle

BACKENDS = ("llvm", "reference")
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.const .align 8 .b32 con[4] = {20, 30, 40, 50};
.const .align 8 .u64 chain[2] = {con, generic(con)};
.shared .align 8 .b8 pad[24]; .shared .align 8 .b8 sha[16];
.visible .entry k(.param .u64 out, .param .align 8 .b8 par[16]) {
.reg .b32 r, s, v, w; .reg .b64 a, o; .reg .pred p; .local .align 8 .b8 gap[24]; .local .align 8 .b8 loc[16];
ld.param.u64 o, [out]; st.shared.u32 [pad], 0; st.local.u32 [gap], 0;
"""
VARIABLES = {"const": "con", "param": "par", "shared": "sha", "local": "loc"}
#: how the address comes into the register that is used: as one in the space, or as a generic one
WAYS = {
    "32 bits": ("mov.b32 r, {name};", "r"),
    "32 bits with an offset": ("mov.u32 r, {name}+4; sub.u32 r, r, 4;", "r"),
    "64 bits": ("mov.b64 a, {name};", "a"),
    "32 bits extended": ("mov.b32 r, {name}; cvt.u64.u32 a, r;", "a"),
    "64 bits cut": ("mov.b64 a, {name}; cvt.u32.u64 r, a;", "r"),
    "both halves": ("mov.b64 a, {name}; mov.b64 {{r, s}}, a; mov.b64 a, {{r, s}};", "a"),
    "generic of 64": ("mov.b64 a, {name}; cvta.{space}.u64 a, a;", ""),
    "generic of 32": ("mov.b32 r, {name}; cvt.u64.u32 a, r; cvta.{space}.u64 a, a;", ""),
    "there and back": (
        "mov.b32 r, {name}; cvt.u64.u32 a, r; cvta.{space}.u64 a, a; cvta.to.{space}.u64 a, a; cvt.u32.u64 r, a;",
        "r",
    ),
}


def program(space: str) -> str:
    """In every way: reads (and where kernels may write, writes and combines) the second and third word through the address."""
    lines = []
    for make, register in WAYS.values():
        dot, at = (f".{space}", register) if register else ("", "a")
        lines += [make.format(name=VARIABLES[space], space=space)]
        if space in ("shared", "local"):
            lines += [f"st{dot}.v2.u32 [{at}], {{20, 30}};", f"st{dot}.u32 [{at}+8], 40;"]
        if space == "shared":
            lines += [f"red{dot}.add.u32 [{at}+8], 0;", f"atom{dot}.cas.b32 v, [{at}+4], 30, 30;"]
        lines += [f"ld{dot}.u32 v, [{at}+4];", f"ld{dot}.v2.u32 {{r, w}}, [{at}+8];", "add.u32 v, v, r;"]
        lines += ["mov.u32 s, %tid.x; add.u32 v, v, s; st.global.u32 [o], v; add.u64 o, o, 4;"]
    return HEAD + "\n".join(lines) + "ret; }"


@pytest.mark.parametrize("space", VARIABLES)
def test_every_way(space: str) -> None:
    given = np.array([20, 30, 40, 50], np.uint32)
    text, empty = program(space), np.zeros(len(WAYS), np.uint32)
    oracle(text, "k", 1, 1, [wanted := Buffer(empty), given.tobytes()])
    assert wanted.numpy().tolist() == [70] * len(WAYS)
    for backend in BACKENDS:
        device = ge.Device(backend=backend)
        out = device.array(empty)
        device.launch(ge.parse(text, path="short.ptx")["k"], 1, 1, [out, given.tobytes()])
        found = dict(zip(WAYS, out.numpy().tolist(), strict=True))
        assert set(found.values()) == {70}, (backend, found)


def test_scattered(backend: str) -> None:
    """A table indexed by the lane through a 32-bit address: every lane has one of its own."""
    text = HEAD + (
        "mov.b32 r, con; mov.u32 s, %tid.x; and.b32 v, s, 3; xor.b32 v, v, 2; mad.lo.u32 r, v, 4, r;"
        "ld.const.u32 v, [r]; mad.wide.u32 o, s, 4, o; st.global.u32 [o], v; ret; }"
    )
    device = ge.Device(backend=backend)
    out = device.zeros(64, np.uint32)
    device.launch(ge.parse(text, path="short.ptx")["k"], 1, 64, [out, bytes(16)])
    assert out.numpy().tolist() == [40, 50, 20, 30] * 16


def test_initial_values(backend: str) -> None:
    """A constant's address in an initialiser is one in its space, unless it is ``generic()``."""
    text = HEAD + (
        "ld.const.u64 a, [chain]; cvt.u32.u64 r, a; ld.const.u32 v, [r+4]; ld.const.u64 a, [chain+8]; ld.u32 w, [a+8];"
        "ld.global.u32 s, [a+12]; add.u32 v, v, w; add.u32 v, v, s; st.global.u32 [o], v; ret; }"
    )
    device = ge.Device(backend=backend)
    out = device.zeros(1, np.uint32)
    device.launch(ge.parse(text, path="short.ptx")["k"], 1, 1, [out, bytes(16)])
    assert out.numpy()[0] == 30 + 40 + 50
    oracle(text, "k", 1, 1, [found := Buffer(np.zeros(1, np.uint32)), bytes(16)])
    assert found.numpy()[0] == 30 + 40 + 50


def test_slices(backend: str) -> None:
    """A branch that parameters and constants decide, read through 32 bits: counted alike from slices of the program."""
    text = HEAD + (
        "mov.b32 r, par; mov.u32 s, %ctaid.x; and.b32 s, s, 1; mad.lo.u32 r, s, 4, r; ld.param.u32 v, [r];"
        "mov.b32 r, con; cvt.u64.u32 a, r; cvta.const.u64 a, a; ld.u32 w, [a+4];"
        "setp.eq.u32 p, v, w; @p bra END; add.u32 v, v, 1;\nEND: ret; }"
    )
    kernel = ge.parse(text, path="short.ptx")["k"]
    given = np.array([30, 31, 0, 0], np.uint32).tobytes()
    profiles = [
        ge.Device(backend=backend, observe=set()).launch(kernel, 1000, 32, [None, given], demand=demand)
        for demand in ("values", "addresses", "control")
    ]
    assert profiles[0].opcodes["add.u32"] == 500 * 32
    assert all(profile.opcodes == profiles[0].opcodes for profile in profiles)


def test_clusters(backend: str) -> None:
    """The shared memory of the CTA of rank r begins at r · 2^24: in 32 bits, too."""
    text = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 4 {
.reg .b32 r, s, v, w; .reg .b64 a, o; .shared .align 4 .b32 gap[3]; .shared .align 4 .b32 sha;
ld.param.u64 o, [out]; mov.u32 s, %cluster_ctarank; st.shared.u32 [gap], 0;
mov.b32 r, sha; add.u32 v, s, 100; st.shared.u32 [r], v;
barrier.cluster.arrive; barrier.cluster.wait;
xor.b32 w, s, 3; mapa.shared::cluster.u32 r, r, w; ld.shared::cluster.u32 v, [r];
cvt.u64.u32 a, r; cvta.shared::cluster.u64 a, a; ld.u32 w, [a]; shl.b32 w, w, 16; or.b32 v, v, w;
mad.wide.u32 o, s, 4, o; st.global.u32 [o], v;
barrier.cluster.arrive; barrier.cluster.wait; ret; }
"""
    device = ge.Device(backend=backend)
    out = device.zeros(4, np.uint32)
    device.launch(ge.parse(text, path="short.ptx")["k"], 4, 1, [out])
    assert out.numpy().tolist() == [value << 16 | value for value in (103, 102, 101, 100)]


#: what is refused as before, with what the message says
REFUSED = {
    "beyond the parameters": ("mov.b32 r, par; ld.param.u32 v, [r+16];", ("outside the 24 bytes", "param address 0x1018")),
    "beyond the constants": ("mov.b32 r, chain; ld.const.u32 v, [r+16];", ("out-of-bounds", "past the end of 'chain'")),
    "before the first": ("mov.u32 r, 0; ld.const.u32 v, [r];", ("const address 0x0", "null pointer")),
    "misaligned": ("mov.b32 r, con; ld.const.u32 v, [r+2];", ("misaligned",)),
    "a constant as a parameter": ("mov.b32 r, con; ld.param.u32 v, [r+8192];", ("outside",)),
    "a parameter as a constant": ("mov.b32 r, par; ld.const.u32 v, [r+8192];", ("out-of-bounds",)),
    "no cvta": ("mov.b64 a, con; ld.u32 v, [a+0];", ("cvta.const makes a generic one of it",)),
    "no cvta of 32 bits": ("mov.b32 r, par; cvt.u64.u32 a, r; ld.global.u32 v, [a];", ("address of",)),
    "no cvta.to": ("mov.b64 a, con; cvta.const.u64 a, a; ld.const.u32 v, [a];", ("cvta.to.const makes one",)),
    "a store to a constant": ("mov.b64 a, con; cvta.const.u64 a, a; st.u32 [a], 1;", ("'con' is constant memory",)),
    "an array as a constant": ("ld.const.u32 v, [o];", ("cvta.to.const makes one",)),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    body, parts = REFUSED[case]
    kernel = ge.parse(f"{HEAD}mov.u32 s, chain; mov.u32 s, con; {body} ret; }}", path="short.ptx")["k"]
    messages = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend)
        with pytest.raises(ge.MemoryFault) as caught:
            device.launch(kernel, 1, 1, [device.zeros(64, np.uint32, name="out"), bytes(16)])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert all(part in messages[0] for part in parts), messages[0]
