"""What warp classes prove of values: against NumPy, and against the records of the same launch run whole."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import module

PARAMETERS = ".param .u64 out, .param .u64 other, .param .u32 n, .param .u32 k"
#: %r0 is the thread's index in the grid, %r1 how many do something, %r4 in the block, %r2 the block's, %r7 the parameter k
START = """
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [other]; ld.param.u32 %r1, [n]; ld.param.u32 %r7, [k];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r0, %r2, %r3, %r4;
    setp.ge.u32 %p0, %r0, %r1;
    @%p0 bra END;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
"""
END = "END: ret;"
GRID, BLOCK, N = 37, 96, 37 * 96 - 45
K = 5


@dataclass(frozen=True)
class Launched:
    proven: tuple[ge.ProvenValues, ...]
    records: tuple[ge.ValueRecord, ...]
    findings: tuple[ge.Finding, ...]
    out: np.ndarray


def run(body: str, grid: int = GRID, block: int = BLOCK, n: int = N, type: str = "u4") -> Launched:
    """The launch under ``auto``, which computes nothing of what it stores, and whole."""
    kernel = ge.parse(module(START + body + END, PARAMETERS), path="k.ptx")["k"]
    size = grid * block + 8
    found = []
    for observe, demand in (({"proofs"}, "auto"), ({"accesses", "values"}, "values")):
        device = ge.Device(observe=observe, races="off", memory_bytes=1 << 22)
        out = device.array(np.zeros(size, type), name="out")
        other = device.array(np.arange(size, dtype=np.uint32), name="other")
        profile = device.launch(kernel, grid, block, [out, other, n, K], demand=demand)
        found.append((device, profile, out))
    (device, profile, _), (_, whole, out) = found
    assert profile.demand == "control"
    return Launched(profile.proven, whole.values, ge.find_patterns(device), out.numpy())


def agree(launched: Launched) -> None:
    """Everything proven is what the records of all accesses say."""
    records = {(item.site, item.element, item.object): item for item in launched.records}
    for item in launched.proven:
        record = records[item.site, item.element, item.object]
        assert (record.count, record.bytes, record.type, record.kind) == (
            item.count, item.bytes, item.type, item.kind
        )  # fmt: skip
        if item.single:
            assert record.single and record.minimum == record.maximum == item.base
        elif item.elements > 1:
            line = record.affine
            assert line is not None and line.fits == record.count
            wide = 1 << 8 * item.width
            assert (int(line.at_zero) - int(item.base)) % wide == 0 and (
                int(line.slope) - item.slope
            ) % wide == 0
        assert 1 <= item.elements <= record.count


#: body, rule, base and slope
PROVEN = {
    "zeros": ("st.global.u32 [%rd3], 0;", "single-zero", 0, 0),
    "a constant": ("st.global.f32 [%rd3], 0f40200000;", "single-value", 2.5, 0),
    "negative zeros and zeros": (
        "and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 0; selp.f32 %f0, 0f80000000, 0f00000000, %p1;"
        "st.global.f32 [%rd3], %f0;", "single-zero", 0, 0),
    "a parameter": ("st.global.u32 [%rd3], %r7;", "single-value", K, 0),
    "what a parameter points to": ("ld.global.u32 %r5, [%rd1+12]; st.global.u32 [%rd3], %r5;", "single-value", 3, 0),
    "the index": ("st.global.u32 [%rd3], %r0;", "structured-values", 0, 1),
    "an affine function": ("mad.lo.u32 %r5, %r0, %r7, 11; st.global.u32 [%rd3], %r5;", "structured-values", 11, K),
    "downwards": ("sub.u32 %r5, %r1, %r0; st.global.u32 [%rd3], %r5;", "structured-values", N, -1),
    "bytes behind": ("mad.lo.u32 %r5, %r0, 2, 1; st.global.u32 [%rd3+8], %r5;", "structured-values", -3 % (1 << 32), 2),
    "but one thread": ("setp.ne.u32 %p1, %r0, 1234; @%p1 st.global.u32 [%rd3], 9;", "single-value", 9, 0),
    "one thread of each block": (
        "setp.eq.u32 %p1, %r4, 7; mad.lo.u32 %r5, %r2, 96, 7; @%p1 st.global.u32 [%rd3], %r5;",
        "structured-values", 0, 1),
    "both sides of a branch": (
        "setp.lt.u32 %p1, %r2, 9; mov.u32 %r5, 4; @%p1 bra SAME; mov.u32 %r5, %r7; sub.u32 %r5, %r5, 1;"
        "SAME: st.global.u32 [%rd3], %r5;", "single-value", 4, 0),
    "a loop": (
        "mov.u32 %r5, 0;\nLOOP: st.global.u32 [%rd3], 6; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 50; @%p1 bra LOOP;",
        "single-value", 6, 0),
    "elements of a vector": (
        "shr.u32 %r5, %r0, 2; mul.wide.u32 %rd2, %r5, 16; add.u64 %rd3, %rd0, %rd2; mul.lo.u32 %r5, %r5, 4;"
        "st.global.v4.u32 [%rd3], {%r5, %r5, %r5, %r5};", "structured-values", 0, 1),
}  # fmt: skip
#: near misses: what warp classes may not say
NOT_PROVEN = {
    "another value in one block": "setp.eq.u32 %p1, %r2, 20; selp.u32 %r5, 1, 0, %p1; st.global.u32 [%rd3], %r5;",
    "another value in one thread": "setp.eq.u32 %p1, %r0, 777; selp.u32 %r5, 8, 9, %p1; st.global.u32 [%rd3], %r5;",
    "off the line in one thread": "setp.eq.u32 %p1, %r0, 777; selp.u32 %r5, 8, %r0, %p1; st.global.u32 [%rd3], %r5;",
    "two lines": "setp.lt.u32 %p1, %r2, 20; selp.u32 %r6, 1, 2, %p1; mul.lo.u32 %r5, %r0, %r6; st.global.u32 [%rd3], %r5;",
    "the lane": "and.b32 %r5, %r0, 31; st.global.u32 [%rd3], %r5;",
    "the block": "st.global.u32 [%rd3], %r2;",
    "a square": "mul.lo.u32 %r5, %r0, %r0; st.global.u32 [%rd3], %r5;",
    "loaded": "ld.global.u32 %r5, [%rd4]; st.global.u32 [%rd3], %r5;",
    "loaded from what the launch writes": "st.global.u32 [%rd1+64], %r2; ld.global.u32 %r5, [%rd1+64]; st.global.u32 [%rd3], %r5;",
    "atomically read": "atom.global.add.u32 %r5, [%rd1], 0; st.global.u32 [%rd3], %r5;",
    "one element, many values": "st.global.u32 [%rd0], %r0;",
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_proven(name: str) -> None:
    body, rule, base, slope = PROVEN[name]
    launched = run(body, n=GRID * BLOCK if "vector" in name else N)
    agree(launched)
    first = next(item for item in launched.proven if item.kind == "store")
    assert (first.base, first.slope) == (base, slope)
    if rule == "structured-values" and name != "one thread of each block":
        assert {(item.base, item.slope) for item in launched.proven} >= {(base, slope)}
    found = [item for item in launched.findings if item.evidence["kind"] == "store"]
    assert {item.rule for item in found} == {rule}
    assert all(item.evidence["proof"] == "warp classes" and item.object == "out" for item in found)


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_near_misses(name: str) -> None:
    launched = run(NOT_PROVEN[name])
    agree(launched)
    assert not [item for item in launched.proven if item.kind == "store" and item.object == "out"]


def test_values_are_those_of_numpy() -> None:
    """All but the last 45 threads of the grid, and of these all but one, store."""
    launched = run("mad.lo.u32 %r5, %r0, 7, 40; setp.ne.u32 %p1, %r0, 100; @%p1 st.global.u32 [%rd3], %r5;")
    (item,) = launched.proven
    expected = np.zeros(GRID * BLOCK + 8, np.uint32)
    expected[:N] = item.base + item.slope * np.arange(N)
    expected[100] = 0
    np.testing.assert_array_equal(launched.out, expected)
    assert item.count == N - 1


def test_another_grid_costs_no_more() -> None:
    device = ge.Device(observe={"proofs"}, memory_bytes=1 << 36)
    n = (1 << 33) - 5
    out = device.empty(n, np.uint32, name="out")
    kernel = ge.parse(
        module(
            "ld.param.u64 %rd0, [out]; mov.u32 %r2, %ctaid.x; mov.u32 %r4, %tid.x; cvt.u64.u32 %rd1, %r2; cvt.u64.u32 %rd2, %r4;"
            "mad.lo.u64 %rd1, %rd1, 1024, %rd2; ld.param.u64 %rd3, [n]; setp.ge.u64 %p0, %rd1, %rd3; @%p0 ret;"
            "shl.b64 %rd1, %rd1, 2; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], 0; ret;",
            ".param .u64 out, .param .u64 n",
        )
    )["k"]
    profile = device.launch(kernel, 1 << 23, 1024, [out, n], demand="auto")
    (item,) = profile.proven
    assert (item.count, item.base, item.slope) == (n, 0, 0) and profile.share_executed < 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_random_affine_kernels(seed: int) -> None:
    """What is stored is affine, or is not by one block, one thread, or another slope: told apart as NumPy does."""
    draw = random.Random(seed)
    grid, block = draw.randrange(2, 40), draw.choice((32, 48, 64, 100, 256))
    n = draw.randrange(grid * block // 2, grid * block + 1)
    slope, base = draw.choice((0, 0, 1, 2, -3, 1000)), draw.randrange(0, 1 << 16)
    near = draw.choice(("", "", "block", "thread", "slope"))
    excluded = draw.choice((None, draw.randrange(n)))
    at = draw.randrange(min(grid, -(-n // block))) if near == "block" else draw.randrange(n)
    index = np.arange(n)
    values = base + slope * index
    body = f"mul.lo.s32 %r5, %r0, {slope}; add.s32 %r5, %r5, {base};"
    if near:
        body += f"setp.eq.u32 %p1, {'%r2' if near == 'block' else '%r0'}, {at};" if near != "slope" else (
            f"setp.ge.u32 %p1, %r0, {at};"
        )  # fmt: skip
        body += "add.s32 %r6, %r5, 1; selp.b32 %r5, %r6, %r5, %p1;"
        hit = {"block": index // block == at, "thread": index == at, "slope": index >= at}[near]
        values = values + hit
    stored = np.ones(n, bool)
    if excluded is not None:
        body += f"setp.ne.u32 %p2, %r0, {excluded}; @%p2 "
        stored[excluded] = False
    launched = run(body + "st.global.s32 [%rd3], %r5;", grid, block, n, "i4")
    agree(launched)
    steps = np.diff(values[stored]) / np.diff(index[stored])
    assert len(launched.proven) == (len(set(steps.tolist())) == 1)
    for item in launched.proven:
        assert (item.count, item.slope) == (stored.sum(), steps[0])
        np.testing.assert_array_equal(launched.out[:n][stored], (item.base + item.slope * index)[stored])


def test_unknown_contents_prove_nothing() -> None:
    """A launch that computes nothing of what it stores leaves memory of which nothing follows."""
    text = module(START + "st.global.u32 [%rd3], 1;" + END, PARAMETERS)
    reads = module(START + "ld.global.u32 %r5, [%rd1+8]; st.global.u32 [%rd3], %r5;" + END, PARAMETERS)
    device = ge.Device(observe={"proofs"})
    out, other = (device.array(np.zeros(4096, np.uint32), name=name) for name in ("out", "other"))
    kernel = ge.parse(reads)["k"]
    assert len(device.launch(kernel, GRID, BLOCK, [out, other, N, K], demand="auto").proven) == 2
    device.launch(ge.parse(text)["k"], GRID, BLOCK, [other, out, N, K], demand="auto")
    assert not device.launch(kernel, GRID, BLOCK, [out, other, N, K], demand="auto").proven


def test_another_launch_of_the_call_needs_the_access() -> None:
    """A finding fails if it is proven of each launch of the call: with k ≠ 0 one thread stores something else."""
    body = "setp.eq.u32 %p1, %r0, 100; selp.u32 %r5, %r7, 0, %p1; st.global.u32 [%rd3], %r5;"
    kernel = ge.parse(module(START + body + END, PARAMETERS))["k"]
    for given, severity in (((0, 0), "fail"), ((0, 1), "note")):
        device = ge.Device(observe={"memory", "proofs"})
        out, other = (device.array(np.zeros(4096, np.uint32), name=name) for name in ("out", "other"))
        for k in given:
            device.launch(kernel, GRID, BLOCK, [out, other, N, k], demand="auto")
        (finding,) = ge.find_patterns(device)
        assert (finding.rule, finding.severity, finding.calls) == ("single-zero", severity, given.count(0))
        assert finding.waste == N * 4 * finding.calls and finding.traffic[0].stores == 1


def test_not_asked() -> None:
    device = ge.Device()
    kernel = ge.parse(module("ret;", ""))["k"]
    with pytest.raises(ge.NotObserved, match="proofs were not requested"):
        device.launch(kernel, 1, 32).proven  # noqa: B018
