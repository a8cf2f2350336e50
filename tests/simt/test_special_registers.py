"""Special registers of every name, as one value, as vectors and in 16 bits: both backends against plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.special import SPECIAL_REGISTERS
from tests.support import BACKENDS

BLOCK, GRID, SHARED = (5, 4, 3), (3, 2, 2), 100
THREADS, CTAS = 60, 12

#: of the thread's number in its CTA and the CTA's in the grid; ``None``: not said, but the same on both backends
Expected = Callable[[int, int], int] | None


def coordinate(shape: tuple[int, ...], axis: int, number: int) -> int:
    wide, tall, _ = shape
    return (number % wide, number // wide % tall, number // (wide * tall), 0)[axis]


def expected() -> dict[str, Expected]:
    found: dict[str, Expected] = {}
    for axis, part in enumerate("xyzw"):
        found[f"tid.{part}"] = lambda t, c, axis=axis: coordinate(BLOCK, axis, t)
        found[f"ntid.{part}"] = lambda t, c, axis=axis: (*BLOCK, 1)[axis]
        for name in ("ctaid", "clusterid"):
            found[f"{name}.{part}"] = lambda t, c, axis=axis: coordinate(GRID, axis, c)
        for name in ("nctaid", "nclusterid"):
            found[f"{name}.{part}"] = lambda t, c, axis=axis: (*GRID, 1)[axis]
        found[f"cluster_ctaid.{part}"] = lambda t, c: 0
        found[f"cluster_nctaid.{part}"] = lambda t, c: 1
    found["laneid"] = lambda t, c: t % 32
    found["warpid"] = lambda t, c: t // 32
    found["nwarpid"] = lambda t, c: 2
    found["lanemask_eq"] = lambda t, c: 1 << t % 32
    found["lanemask_lt"] = lambda t, c: (1 << t % 32) - 1
    found["lanemask_le"] = lambda t, c: (2 << t % 32) - 1
    found["lanemask_ge"] = lambda t, c: 2**32 - (1 << t % 32)
    found["lanemask_gt"] = lambda t, c: 2**32 - (2 << t % 32)
    for name in (
        "cluster_ctarank",
        "is_explicit_cluster",
        "smid",
        "gridid",
        "current_graph_exec",
        "clock_hi",
        "globaltimer_hi",
    ):
        found[name] = lambda t, c: 0
    for name in ("cluster_nctarank", "nsmid"):
        found[name] = lambda t, c: 1
    for name in ("clock", "clock64", "globaltimer", "globaltimer_lo"):
        found[name] = None
    for index in range(32):
        found[f"envreg{index}"] = None if index in (1, 2) else lambda t, c: 0
    for index in range(8):
        found[f"pm{index}"] = found[f"pm{index}_64"] = lambda t, c: 0
    found["perctamemoryoffset"] = found["perctamemorysize"] = lambda t, c: 0
    # 20 bytes of static and 100 of dynamic shared memory, allocated in units of 128 bytes, beside a kilobyte of the system's
    found["dynamic_smem_size"] = lambda t, c: SHARED
    found["total_smem_size"] = lambda t, c: 128
    found["aggr_smem_size"] = lambda t, c: 128 + 1024
    for name in ("begin", "0", "1"):
        found[f"reserved_smem_offset_{name}"] = lambda t, c: 1024
    for name in ("end", "cap"):
        found[f"reserved_smem_offset_{name}"] = lambda t, c: 2048
    return found


EXPECTED = expected()


def run(backend: str, line: str, version: str = "9.4", target: str = "sm_90") -> np.ndarray:
    """What ``line`` puts into ``l2``, shape (CTAs, threads)."""
    directive = ".minperctamemory 16" if "perctamemory" in line else ""
    text = f""".version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 to) {directive} {{ .reg .b16 h<5>; .reg .b32 r<9>; .reg .b64 l<9>; .reg .pred p<3>; .shared .b32 s[5];
st.shared.u32 [s], 0; ld.param.u64 l0, [to];
{line}
mov.u32 r5, %ctaid.z; mov.u32 r6, %nctaid.y; mov.u32 r7, %ctaid.y; mad.lo.u32 r5, r5, r6, r7; mov.u32 r6, %nctaid.x;
mov.u32 r7, %ctaid.x; mad.lo.u32 r5, r5, r6, r7; mov.u32 r6, %ntid.z; mul.lo.u32 r5, r5, r6; mov.u32 r7, %tid.z; add.u32 r5, r5, r7;
mov.u32 r6, %ntid.y; mov.u32 r7, %tid.y; mad.lo.u32 r5, r5, r6, r7; mov.u32 r6, %ntid.x; mov.u32 r7, %tid.x;
mad.lo.u32 r5, r5, r6, r7; mul.wide.u32 l1, r5, 8; add.u64 l0, l0, l1; st.global.u64 [l0], l2; ret; }}
"""
    device = ge.Device(backend=backend)
    out = device.zeros((CTAS, THREADS), np.uint64)
    kernel = ge.parse(text, path="special.ptx")["k"]
    profile = device.launch(kernel, GRID, BLOCK, [out], shared_bytes=SHARED)
    assert profile.remarks == ()
    return out.numpy()


@pytest.mark.parametrize("name", SPECIAL_REGISTERS)
def test_value(name: str) -> None:
    kind = SPECIAL_REGISTERS[name].type.name
    line = {
        "pred": f"mov.pred p0, %{name}; selp.u64 l2, 1, 0, p0;",
        "u64": f"mov.u64 l2, %{name};",
    }.get(kind, f"mov.u32 r0, %{name}; cvt.u64.u32 l2, r0;")
    results = [run(backend, line) for backend in BACKENDS]
    np.testing.assert_array_equal(results[0], results[1])
    value = EXPECTED[name]
    if value is not None:
        assert results[0].tolist() == [[value(t, c) for t in range(THREADS)] for c in range(CTAS)]


@pytest.mark.parametrize(
    "name", ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"]
)
def test_vectors(backend: str, name: str) -> None:
    """As a vector of four, and by the other names of components, those of colours."""
    whole = (
        f"mov.v4.u32 {{r0, r1, r2, r3}}, %{name}; shl.b32 r1, r1, 8; shl.b32 r2, r2, 16; shl.b32 r3, r3, 24; or.b32 r0, r0, r1;"
        "or.b32 r0, r0, r2; or.b32 r0, r0, r3; cvt.u64.u32 l2, r0;"
    )
    colours = whole.replace(
        f"mov.v4.u32 {{r0, r1, r2, r3}}, %{name};",
        "".join(f"mov.u32 r{i}, %{name}.{part};" for i, part in enumerate("rgba")),
    )
    values = [EXPECTED[f"{name}.{part}"] for part in "xyzw"]
    wanted = [
        [sum(value(t, c) << 8 * axis for axis, value in enumerate(values) if value) for t in range(THREADS)]
        for c in range(CTAS)
    ]
    assert run(backend, whole).tolist() == wanted
    assert run(backend, colours).tolist() == wanted


def test_sixteen_bits(backend: str) -> None:
    """As PTX 1.x had them; conversions take the low bits of any."""
    line = (
        "mov.u16 h0, %tid.y; mov.v4.u16 {h1, h2, h3, h4}, %ntid; mad.lo.u16 h0, h0, h1, h3; cvt.u64.u16 l2, h0;"
        "cvt.u32.u16 r0, %clock64;"
        "cvt.u16.u32 h1, %ctaid.x; cvt.u64.u16 l3, h1; mad.lo.u64 l2, l2, 1000, l3;"
    )
    wanted = [[(t // 5 % 4 * 5 + 3) * 1000 + c % 3 for t in range(THREADS)] for c in range(CTAS)]
    assert run(backend, line).tolist() == wanted


@pytest.mark.parametrize(("target", "total"), [("sm_75", 256), ("sm_80", 128), ("sm_90", 128)])
def test_units_of_shared_memory(target: str, total: int) -> None:
    """Memory is allocated in units; what the system keeps is not part of the total."""
    for backend in BACKENDS:
        line = "mov.u32 r0, %total_smem_size; cvt.u64.u32 l2, r0;"
        assert set(run(backend, line, target=target).flat) == {total}
    if target != "sm_75":
        kept = "mov.u32 r1, %reserved_smem_offset_begin; mov.u32 r0, %total_smem_size; cvt.u64.u32 l2, r0;"
        # the kilobyte begins at a multiple of its size
        assert {int(value) for backend in BACKENDS for value in run(backend, kept, target=target).flat} == {
            1024 + 128
        }


@pytest.mark.parametrize(
    ("line", "version", "target", "message"),
    [
        (
            "mov.u32 r0, %cluster_ctarank;",
            "8.0",
            "sm_80",
            r"%cluster_ctarank needs \.version 7\.8 and \.target sm_90",
        ),
        ("mov.v4.u32 {r0, r1, r2, r3}, %clusterid;", "8.0", "sm_80", r"%clusterid\.x needs"),
        ("mov.u32 r0, %aggr_smem_size;", "8.0", "sm_90", r"%aggr_smem_size needs \.version 8\.1"),
        ("mov.u16 h0, %laneid;", "8.0", "sm_80", r"a must be a \.u16 value"),
        ("mov.b32 r0, %tid;", "8.0", "sm_80", "vector of 4"),
        ("mov.b64 l2, %tid;", "8.0", "sm_80", "found a vector of 4"),
        ("mov.u32 r0, %tid.q;", "8.0", "sm_80", "is not declared"),
    ],
)
def test_refused(line: str, version: str, target: str, message: str) -> None:
    with pytest.raises(ge.PtxError, match=message):
        run("reference", line, version, target)
