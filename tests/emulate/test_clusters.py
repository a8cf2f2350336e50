"""Clusters: where CTAs are, whose shared memory an address means, and how CTAs wait for each other. Both backends."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def kernel(
    body: str, *, directives: str = "", shared: int = 1024, params: str = ".param .u64 out"
) -> ge.Kernel:
    text = (
        f"{HEAD}.visible .entry k({params}) {directives}\n{{\n"
        ".reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<10>;\n"
        f".shared .align 16 .b8 sm[{shared}];\n"
        f"ld.param.u64 %rd0, [out];\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )
    return ge.parse(text, path="k.ptx")["k"]


def put(*registers: str) -> str:
    """Store registers to out[linear thread][…]: threads of a CTA side by side, CTAs by ``%ctaid`` linear."""
    count = len(registers)
    lines = [
        "mov.u32 %r30, %ctaid.z; mov.u32 %r31, %nctaid.y; mov.u32 %r32, %ctaid.y; mad.lo.u32 %r30, %r30, %r31, %r32;",
        "mov.u32 %r31, %nctaid.x; mov.u32 %r32, %ctaid.x; mad.lo.u32 %r30, %r30, %r31, %r32;",
        "mov.u32 %r31, %ntid.x; mad.lo.u32 %r30, %r30, %r31, %r0;",
        f"mul.wide.u32 %rd19, %r30, {4 * count}; add.u64 %rd19, %rd19, %rd0;",
    ]
    lines += [f"st.global.u32 [%rd19+{4 * place}], {name};" for place, name in enumerate(registers)]
    return "\n".join(lines)


@pytest.fixture(params=["lanes", "native"])
def device(request: pytest.FixtureRequest) -> ge.Device:
    return ge.Device(backend=request.param)


REGISTERS = [f"clusterid.{axis}" for axis in "xyz"] + [f"nclusterid.{axis}" for axis in "xyz"]
REGISTERS += [f"cluster_ctaid.{axis}" for axis in "xyz"] + [f"cluster_nctaid.{axis}" for axis in "xyz"]
REGISTERS += ["cluster_ctarank", "cluster_nctarank"]


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 4, 2), (3, 2, 2)), ((6, 4, 2), (1, 4, 1)), ((8,), 4), ((6, 4, 2), None), ((4, 4), (1, 1, 1))],
    ids=str,
)
def test_where_a_cta_is(
    device: ge.Device, grid: tuple[int, ...], cluster: int | tuple[int, ...] | None
) -> None:
    names = " ".join(f"mov.u32 %r{place + 1}, %{name};" for place, name in enumerate(REGISTERS))
    explicit = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r29, 1, 0, %p1;"
    made = kernel(names + explicit + put(*(f"%r{place + 1}" for place in range(14)), "%r29"))
    full = (*grid, 1, 1)[:3]
    shape = (
        (1, 1, 1) if cluster is None else (*((cluster,) if isinstance(cluster, int) else cluster), 1, 1)[:3]
    )
    out = device.zeros((full[0] * full[1] * full[2], 32, 15), np.uint32)
    profile = device.launch(made, grid, 32, [out], cluster=cluster)
    assert profile.grid == full
    found = out.numpy()
    for z in range(full[2]):
        for y in range(full[1]):
            for x in range(full[0]):
                here = found[x + full[0] * (y + full[1] * z)]
                place = (x, y, z)
                inner = [p % s for p, s in zip(place, shape)]
                expected = [p // s for p, s in zip(place, shape)] + [n // s for n, s in zip(full, shape)]
                expected += [*inner, *shape, inner[0] + shape[0] * (inner[1] + shape[1] * inner[2])]
                expected += [shape[0] * shape[1] * shape[2], int(cluster is not None)]
                assert (here == expected).all(), (place, here[0], expected)


def test_addresses_hold_the_rank(device: ge.Device) -> None:
    """The shared memory of rank r begins at r · 2^24, in its own space and from the start of the shared window on."""
    made = kernel(
        "mov.u32 %r1, sm; cvta.shared.u64 %rd1, %rd2; mov.u64 %rd2, sm; cvta.shared.u64 %rd1, %rd2;"
        "mov.u32 %r10, 1; mapa.shared::cluster.u32 %r2, %r1, %r10; mapa.shared::cluster.u32 %r3, sm+8, 2;"
        "mapa.u64 %rd3, %rd1, 3; cvta.to.shared.u64 %rd4, %rd3; cvt.u32.u64 %r4, %rd4;"
        "getctarank.shared::cluster.u32 %r5, sm; getctarank.u64 %r6, %rd3;"
        "isspacep.shared %p1, %rd3; selp.u32 %r7, 1, 0, %p1; isspacep.shared::cta %p1, %rd1; selp.u32 %r8, 1, 0, %p1;"
        "isspacep.shared::cluster %p1, %rd3; selp.u32 %r9, 1, 0, %p1; isspacep.shared::cluster %p1, %rd0;"
        "selp.u32 %r10, 1, 0, %p1;" + put(*(f"%r{place}" for place in range(1, 11)))
    )
    out = device.zeros((8, 32, 10), np.uint32)
    device.launch(made, 8, 32, [out], cluster=4)
    for cta, rows in enumerate(out.numpy()):
        rank = cta % 4
        expected = [rank << 24, 1 << 24, 2 << 24 | 8, 3 << 24, rank, 3, int(rank == 3), 1, 1, 0]
        assert (rows == expected).all(), (cta, rows[0])


WIDTHS = [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)]


@pytest.mark.parametrize(("kind", "size"), WIDTHS, ids=[kind for kind, _ in WIDTHS])
@pytest.mark.parametrize("space", [".shared::cluster", ""])
def test_stores_and_loads_of_the_next_cta(device: ge.Device, kind: str, size: int, space: str) -> None:
    """Each thread stores to the next CTA and loads from the one before; odd lanes keep to their own memory."""
    register, address = ("%rd5", "%rd3") if size == 8 else ("%r5", "%rd3")
    wide = "cvt.u64.u32 %rd5, %r5;" if size == 8 else ""
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u64 %rd2, sm;"
        f"mul.wide.u32 %rd1, %r0, {size}; add.u64 %rd2, %rd2, %rd1;"
        + ("cvta.shared.u64 %rd2, %rd2;" if not space else "")
        + "add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2; and.b32 %r4, %r0, 1; setp.ne.u32 %p1, %r4, 0; selp.u32 %r3, %r1, %r3, %p1;"
        f"mapa{space}.u64 {address}, %rd2, %r3; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r5, %r6, 40, %r0; {wide} {SYNC}"
        f"st{space}.{kind} [{address}], {register}; {SYNC} mov.u32 %r5, 0; mov.u64 %rd5, 0;"
        f"ld{space}.{kind} {register}, [{address}];"
        + ("cvt.u32.u64 %r5, %rd5;" if size == 8 else "")
        + f"ld.shared.{kind} {register.replace('5', '7')}, [sm+{size}];"
        + ("cvt.u32.u64 %r7, %rd7;" if size == 8 else "")
        + SYNC
        + put("%r5", "%r7")
    )
    out = device.zeros((6, 70, 2), np.uint32)
    device.launch(kernel(body), 6, 70, [out], cluster=3)
    found = out.numpy()
    bits = (1 << min(32, 8 * size)) - 1
    for cta in range(6):
        # what a thread wrote it reads again; thread 1 of each CTA wrote its own memory
        assert (found[cta, :, 0] == (cta * 40 + np.arange(70)) & bits).all()
        assert (found[cta, :, 1] == (cta * 40 + 1) & bits).all()
