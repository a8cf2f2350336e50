"""Random sequences of accesses to shared, local and global memory: both backends leave the same bytes, counters and notes.

Each kernel is a list of accesses of random forms at random places, some under a guard; loaded elements are added up. What
the reference backend is to find is compared with plain Python in ``test_memory_counters``.
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit import llvm as native_jit
from tests.support import with_fresh_libraries

SPACE = 512
WIDTHS = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}
LETTERS = {"b8": "h", "b16": "h", "b32": "r", "b64": "d"}


def form(rng: np.random.Generator, narrowest: int) -> tuple[str, int, int]:
    """Type, elements, and bytes of an access that is at least so wide."""
    while True:
        kind = str(rng.choice(list(WIDTHS)))
        count = int(rng.choice([1, 1, 2, 4]))
        size = WIDTHS[kind] * count
        if narrowest <= size <= 16:
            return kind, count, size


def kernel(rng: np.random.Generator, whole_words: bool) -> tuple[str, list[np.ndarray]]:
    """PTX, and the places of each access: a row of byte offsets by lane (−1: not active)."""
    lines, rows = [], []
    for number in range(14):
        space = str(rng.choice(["shared", "shared", "local", "global", "generic"]))
        stores = bool(rng.random() < 0.6)
        kind, count, size = form(rng, 4 if whole_words and stores else 1)
        last = SPACE // size - 1
        places = [
            np.arange(32) + rng.integers(0, last - 30),
            np.full(32, rng.integers(0, last + 1)),
            np.arange(32) // 16 + rng.integers(0, last),
            np.arange(32) % 16 + rng.integers(0, last - 14),
            rng.integers(0, last + 1, 32),
            np.minimum(np.arange(32) * rng.integers(1, 40), last),
        ][rng.integers(6)]
        places = np.minimum(places, last) * size
        if rng.random() < 0.5:
            places = np.where(rng.random(32) < 0.6, places, -1)
        rows.append(places)
        base = {
            "shared": "%tile",
            "local": "%own",
            "global": "%data",
            "generic": str(rng.choice(["%gtile", "%data"])),
        }[space]
        registers = [f"%{LETTERS[kind]}{item}" for item in range(count)]
        operand = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
        opcode = f"{'' if space == 'generic' else '.' + space}{'' if count == 1 else f'.v{count}'}.{kind}"
        lines.append(
            f"ld.global.s64 %at, [%rows+{number * 256}]; setp.ge.s64 %p, %at, 0; add.u64 %at, %at, {base};"
        )
        if stores:
            for item, register in enumerate(registers):
                value = f"mad.lo.u64 %x, %lane, {2 * number + 3}, {7 * item + number};"
                lines.append(
                    value + f" cvt.u{16 if kind == 'b8' else kind[1:]}.u64 {register}, %x;"
                    if kind != "b64"
                    else value + f" mov.b64 {register}, %x;"
                )
            lines.append(f"@%p st{opcode} [%at], {operand};")
        else:
            for register in registers:
                lines.append(f"mov.b{kind[1:] if kind != 'b8' else 16} {register}, 0;")
            lines.append(f"@%p ld{opcode} {operand}, [%at];")
            for register in registers:
                wide = (
                    f"mov.b64 %x, {register};"
                    if kind == "b64"
                    else f"cvt.u64.u{16 if kind == 'b8' else kind[1:]} %x, {register};"
                )
                lines.append(f"{wide} mad.lo.u64 %sum, %sum, 31, %x;")
        if rng.random() < 0.3:
            lines.append("bar.sync 0;")
    body = "\n".join(lines)
    return (
        f"""
.version 8.0
.target sm_80
.address_size 64
.shared .align 16 .b8 tile[{SPACE}];
.visible .entry k(.param .u64 rows, .param .u64 data, .param .u64 out)
{{
.local .align 16 .b8 own[{SPACE}];
.reg .pred %p; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>;
.reg .b64 %rows, %data, %out, %tile, %gtile, %own, %at, %x, %sum, %lane; .reg .b32 %t, %c;
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; cvt.u64.u32 %lane, %t; mov.u64 %sum, 0;
ld.param.u64 %rows, [rows]; mad.lo.u64 %rows, %lane, 8, %rows;
ld.param.u64 %data, [data]; mul.wide.u32 %x, %c, {SPACE}; add.u64 %data, %data, %x;
mov.u64 %tile, tile; cvta.shared.u64 %gtile, %tile; mov.u64 %own, own;
{body}
ld.param.u64 %out, [out]; mul.wide.u32 %x, %c, 256; add.u64 %out, %out, %x;
mad.lo.u64 %out, %lane, 8, %out;
st.global.u64 [%out], %sum;
ret;
}}""",
        rows,
    )


def check(seed: int, whole_words: bool) -> None:
    rng = np.random.default_rng(seed)
    text, rows = kernel(rng, whole_words)
    outcomes = []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"memory", "footprint"})
        places = device.array(np.stack(rows).astype(np.int64))
        data, out = device.empty(3 * SPACE, np.uint8, name="data"), device.zeros(96, np.uint64)
        profile = device.launch(ge.parse(text, path="k.ptx")["k"], 3, 32, [places, data, out])
        outcomes.append((out.numpy(), data.numpy(), profile.sites, profile.notes, profile.footprint))
    (sums, held, *counted), (other_sums, other_held, *other_counted) = outcomes
    np.testing.assert_array_equal(sums, other_sums)
    np.testing.assert_array_equal(held, other_held)
    assert counted == other_counted


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_backends_agree(seed: int, whole_words: bool) -> None:
    check(seed, whole_words)


@pytest.mark.parametrize("whole_words", [False, True])
def test_hosts_without_avx512(whole_words: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on the ways that other hosts take."""
    with_fresh_libraries(monkeypatch)
    here = native_jit.host()
    plain = native_jit.Host(here.triple, here.cpu, here.features, False)
    monkeypatch.setattr(native_jit, "host", lambda: plain)
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    for seed in range(3):
        check(seed, whole_words)


@pytest.mark.parametrize("seed", range(2))
def test_both_backends_record_the_same_values(seed: int) -> None:
    """What accesses carry, of more blocks than a chunk of records has warps; every element of every active lane counts."""
    text, rows = kernel(np.random.default_rng(7000 + seed), False)
    blocks, seen = 20, []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"accesses"}, races="off")
        places = device.array(np.stack(rows).astype(np.int64))
        data, out = device.empty(blocks * SPACE, np.uint8, name="data"), device.zeros(32 * blocks, np.uint64)
        seen.append(device.launch(ge.parse(text, path="k.ptx")["k"], blocks, 32, [places, data, out]).values)
    assert repr(seen[0]) == repr(seen[1])
    # each access stands behind the load of its places: by line and element, of all objects
    counts: dict[tuple[int, int], int] = {}
    for record in seen[0]:
        counts[record.line, record.element] = counts.get((record.line, record.element), 0) + record.count
    accesses = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("@%p ")]
    for line, row in zip(accesses, rows, strict=True):
        active = blocks * int((row >= 0).sum())
        assert {counts.get((line, 0), 0)} == {active}
        assert {count for (own, _), count in counts.items() if own == line} <= {active}
