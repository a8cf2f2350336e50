"""Sectors, lines, wavefronts, serializations and requests of all kinds of accesses equal the definitions of ``docs/metrics.md``,
worked out here byte by byte with Python sets."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import cache
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.results import LoopProfile, Memory, SiteProfile
from tests.engine.running import launch

SPACE = 4096  # bytes
#: what one lane accesses: opcode suffix, registers, bytes
FORMS = {
    "u8": ("%h1", 1),
    "u16": ("%h1", 2),
    "u32": ("%r10", 4),
    "u64": ("%rd10", 8),
    "b128": ("%q1", 16),
    "v2.u8": ("{%h1, %h2}", 2),
    "v4.u8": ("{%h1, %h2, %h3, %h4}", 4),
    "v2.u16": ("{%h1, %h2}", 4),
    "v4.u16": ("{%h1, %h2, %h3, %h4}", 8),
    "v2.f32": ("{%f1, %f2}", 8),
    "v4.f32": ("{%f1, %f2, %f3, %f4}", 16),
    "v2.u64": ("{%rd10, %rd11}", 16),
    "v8.f32": ("{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}", 32),
    "v4.u64": ("{%rd10, %rd11, %rd12, %rd13}", 32),
}
LONG = [form for form, (_, width) in FORMS.items() if width == 32]
Offsets = tuple[int, ...]  # bytes per lane; −1 for a lane that does not take part


@cache
def touched(offsets: Offsets, width: int, piece: int) -> int:
    """Distinct pieces of so many bytes."""
    return len({byte // piece for at in offsets if at >= 0 for byte in range(at, at + width)})


@cache
def local_sectors(offsets: Offsets, width: int) -> int:
    """The same word of consecutive lanes is consecutive: word w of lane l lies at 128 w + 4 l."""
    places = {
        byte // 4 * 128 + 4 * lane
        for lane, at in enumerate(offsets)
        if at >= 0
        for byte in range(at, at + width)
    }
    return len({place // 32 for place in places})


def passes(offsets: Offsets, width: int) -> int:
    """Every bank gives one word per pass, to whoever asks for it."""
    banks: dict[int, set[int]] = {}
    for at in offsets:
        for byte in range(at, at + width) if at >= 0 else ():
            banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
    return max(map(len, banks.values()), default=0)


def mergeable(offsets: Offsets) -> bool:
    """Whether for i xor 1, or for i xor 2, all pairs of active lanes have one address."""
    return any(
        all(at < 0 or offsets[lane ^ apart] in (-1, at) for lane, at in enumerate(offsets))
        for apart in (1, 2)
    )


@cache
def wavefronts(offsets: Offsets, width: int, kind: str) -> tuple[int, int]:
    """Passes and phases: all lanes at once up to 4 bytes, half warps of 8, quarter warps of 16 bytes. Two neighbouring phases
    of a load become one where lanes pair up and that is fewer passes."""
    lanes = 128 // max(width, 4)
    taken = ideal = 0
    for first in range(0, 32, 2 * lanes):
        parts = [offsets[first : first + lanes], offsets[first + lanes : first + 2 * lanes]]
        needed = [passes(part, width) for part in parts]
        together = passes(parts[0] + parts[1], width)
        merged = all(needed) and kind == "load" and mergeable(parts[0] + parts[1]) and together < sum(needed)
        taken += together if merged else sum(needed)
        ideal += 1 if merged else sum(number > 0 for number in needed)
    return taken, ideal


@cache
def unmerged(offsets: Offsets, width: int) -> int:
    """Passes of a load from global memory through the banks of L1: 128 bytes' worth of lanes at a time, each by itself."""
    lanes = 128 // max(width, 4)
    return sum(passes(offsets[first : first + lanes], width) for first in range(0, 32, lanes))


@cache
def patterns(width: int) -> dict[str, Offsets]:
    """By name; each is worked out once for all forms of this width."""
    rng = np.random.default_rng(width)
    last = SPACE // width - 1
    some = {
        "consecutive": np.arange(32),
        "backwards": np.arange(32)[::-1],
        "shifted": np.arange(32) + 5,
        "all the same": np.full(32, 7),
        "every second": 2 * np.arange(32),
        "every 32nd": np.minimum(32 * np.arange(32), last),
        "every 33rd": np.minimum(33 * np.arange(32), last),
        "every 31st, downwards": np.minimum(31 * np.arange(32), last)[::-1],
        "pairs": np.arange(32) // 2,
        "pairs in one bank": np.minimum(np.arange(32) // 2 * 32, last),
        "every second the same": np.arange(32) // 4 * 2 + np.arange(32) % 2,
        "quarters the same": np.arange(32) // 8,
        "eights in turn": np.arange(32) % 8,
        "halves swapped": np.arange(32) ^ 16,
        "random": rng.integers(0, last, 32),
        "random in a corner": rng.integers(0, 64, 32),
        "random pairs": np.repeat(rng.integers(0, 64, 16), 2),
    }
    made = {name: [int(place) * width for place in places] for name, places in some.items()}
    made["half of the lanes"] = [at if lane % 2 else -1 for lane, at in enumerate(made["random"])]
    made["a quarter of the lanes"] = [
        at if lane % 4 == 1 else -1 for lane, at in enumerate(made["every second"])
    ]
    made["one lane"] = [at if lane == 19 else -1 for lane, at in enumerate(made["random"])]
    made["upper half warp"] = [at if lane >= 16 else -1 for lane, at in enumerate(made["consecutive"])]
    made["some consecutive lanes"] = [at if 3 <= lane < 21 else -1 for lane, at in enumerate(made["shifted"])]
    made["nobody"] = [-1] * 32
    return {name: tuple(offsets) for name, offsets in made.items()}


@cache
def kernel(kind: str, space: str, form: str, generic: bool) -> Any:
    """One access per lane at given offsets from the start of ``space``."""
    base = {
        ".global": "ld.param.u64 %rd4, [data];",
        ".shared": "mov.u64 %rd4, tile;",
        ".local": "mov.u64 %rd4, scratch;",
    }[space]
    if generic and space != ".global":
        base += f" cvta{space}.u64 %rd4, %rd4;"
    registers, where = FORMS[form][0], "" if generic else space
    access = (
        f"ld{where}.{form} {registers}, [%rd5]" if kind == "load" else f"st{where}.{form} [%rd5], {registers}"
    )
    text = f"""
    .version 8.8
    .target sm_100
    .address_size 64
    .shared .align 32 .b8 tile[{SPACE}];
    .visible .entry k(.param .u64 offsets, .param .u64 data)
    {{
    .reg .pred %p<2>; .reg .b16 %h<5>; .reg .b32 %r<12>; .reg .b64 %rd<14>; .reg .f32 %f<9>; .reg .b128 %q<2>;
    .local .align 32 .b8 scratch[{SPACE}];
    ld.param.u64 %rd1, [offsets];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.s64 %rd3, [%rd1];
    setp.lt.s64 %p1, %rd3, 0;
    {base}
    add.u64 %rd5, %rd4, %rd3;
    @!%p1 {access};
    ret;
    }}"""
    return ge.parse(text, path="k.ptx")["k"]


def run(
    backend: str, kind: str, space: str, form: str, offsets: Offsets, generic: bool = False
) -> ge.Profile:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    args = [device.array(np.array(offsets, np.int64)), device.zeros(SPACE, np.uint8)]
    return device.launch(kernel(kind, space, form, generic), 1, 32, args)


SPACES = (".global", ".shared", ".local")


@cache
def everything(kind: str, form: str) -> tuple[ge.Kernel, list[tuple[str, str, bool]], list[int]]:
    """A kernel with an access of each pattern to each space, through its own and a generic address: pattern, space and generic of
    each in order, and the lines that they are on. Launching it once costs what one access by itself does."""
    registers, spaces = FORMS[form][0], SPACES[:1] if form in LONG else SPACES
    accesses = [
        (name, space, generic)
        for name in patterns(FORMS[form][1])
        for generic in (False, True)
        for space in spaces
    ]
    places = {name: 256 * place for place, name in enumerate(patterns(FORMS[form][1]))}
    lines = [
        f".version 8.8\n.target sm_100\n.address_size 64\n.shared .align 32 .b8 tile[{SPACE}];",
        ".visible .entry k(.param .u64 offsets, .param .u64 data) {",
        ".reg .pred %p<2>; .reg .b16 %h<5>; .reg .b32 %r<12>; .reg .b64 %rd<14>; .reg .f32 %f<9>; .reg .b128 %q<2>;",
        f".reg .b64 %base<3>, %wide<3>; .local .align 32 .b8 scratch[{SPACE}];",
        "ld.param.u64 %rd1, [offsets]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2;",
        "ld.param.u64 %base0, [data]; mov.u64 %base1, tile; mov.u64 %base2, scratch;",
        "mov.u64 %wide0, %base0; cvta.shared.u64 %wide1, %base1; cvta.local.u64 %wide2, %base2;",
    ]
    numbers = []
    for name, space, generic in accesses:
        base, where = ("%wide", "") if generic else ("%base", space)
        lines.append(f"ld.global.s64 %rd3, [%rd1+{places[name]}]; setp.lt.s64 %p1, %rd3, 0;")
        lines.append(f"add.u64 %rd5, {base}{SPACES.index(space)}, %rd3;")
        operands = f"{registers}, [%rd5]" if kind == "load" else f"[%rd5], {registers}"
        lines.append(f"@!%p1 {'ld' if kind == 'load' else 'st'}{where}.{form} {operands};")
        numbers.append("\n".join(lines).count("\n") + 1)
    text = "\n".join([*lines, "ret; }"])
    return ge.parse(text, path="k.ptx")["k"], accesses, numbers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["load", "store"])
def test_accesses(backend: str, kind: str, form: str) -> None:
    width = FORMS[form][1]
    compute, accesses, numbers = everything(kind, form)
    drawn = patterns(width)
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    args = [device.array(np.array(list(drawn.values()), np.int64)), device.zeros(SPACE, np.uint8)]
    by_line = {site.line: site for site in device.launch(compute, 1, 32, args).sites}
    for what, number in zip(accesses, numbers, strict=True):
        name, space, _ = what
        offsets, site = drawn[name], by_line[number]
        lanes = sum(at >= 0 for at in offsets)
        some = int(lanes > 0)
        assert (site.requests, site.lanes, site.bytes_per_lane) == (some, lanes, width), what
        requests = (site.global_requests, site.shared_requests, site.local_requests)
        assert requests == tuple(some * (space == other) for other in (".global", ".shared", ".local")), what
        if space == ".global":
            assert (site.sectors, site.cache_lines) == (
                touched(offsets, width, 32),
                touched(offsets, width, 128),
            ), what
            assert (site.wavefronts, site.local_sectors, site.global_bytes) == (0, 0, lanes * width), what
            assert site.global_wavefronts == (unmerged(offsets, width) if kind == "load" else 0), what
        elif space == ".shared":
            assert site.shared_lanes == lanes, what
            assert (site.wavefronts, site.ideal_wavefronts) == wavefronts(offsets, width, kind), what
            assert (site.sectors, site.cache_lines, site.local_sectors, site.global_bytes) == (0, 0, 0, 0), (
                what
            )
            assert site.global_wavefronts == 0, what
        else:
            assert site.local_lanes == lanes, what
            assert site.local_sectors == local_sectors(offsets, width), what
            assert (site.sectors, site.cache_lines, site.wavefronts, site.global_bytes) == (0, 0, 0, 0), what


def test_totals_by_space(backend: str) -> None:
    offsets = patterns(4)["every 32nd"]
    memory = run(backend, "store", ".shared", "u32", offsets).memory
    assert (memory.shared_store_requests, memory.shared_store_wavefronts, memory.shared_conflicts) == (
        1,
        32,
        31,
    )
    assert (memory.global_load_requests, memory.global_load_sectors, memory.global_load_bytes) == (1, 8, 256)
    assert dict(memory.accesses) == {"load.global.64": 32, "store.shared.32": 32}
    memory = run(backend, "load", ".local", "u64", patterns(8)["half of the lanes"]).memory
    assert memory.local_bytes == 16 * 8
    assert dict(memory.accesses) == {"load.global.64": 32, "load.local.64": 16}


ATOMICS = {
    "all distinct": list(range(32)),
    "one address": [3] * 32,
    "eight each": [lane % 4 for lane in range(32)],
    "two each, free banks": [lane % 16 * 2 for lane in range(32)],
    "one bank": [32 * (lane % 8) for lane in range(32)],
    "some lanes": [7 if lane in (2, 5, 9) else lane if lane % 3 == 0 else -1 for lane in range(32)],
    "one lane": [9 if lane == 30 else -1 for lane in range(32)],
}


@pytest.mark.parametrize("operation", ["atom", "red"])
@pytest.mark.parametrize("space", [".global", ".shared"])
@pytest.mark.parametrize("generic", [False, True])
def test_atomics(backend: str, operation: str, space: str, generic: bool) -> None:
    opcode = f"{operation}{'' if generic else space}.add.u32"
    base = "ld.param.u64 %rd4, [data];" if space == ".global" else "mov.u64 %rd4, tile;"
    if generic and space == ".shared":
        base += " cvta.shared.u64 %rd4, %rd4;"
    body = f"""
    ld.param.u64 %rd1, [places];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.s64 %rd3, [%rd1];
    setp.lt.s64 %p1, %rd3, 0;
    {base}
    shl.b64 %rd3, %rd3, 2;
    add.u64 %rd5, %rd4, %rd3;
    @!%p1 {opcode} {"%r10, " if operation == "atom" else ""}[%rd5], 1;
    ret;"""
    for name, places in ATOMICS.items():
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        data = device.zeros(1024, np.uint32)
        profile = launch(
            backend,
            body,
            parameters=".param .u64 places, .param .u64 data",
            before=".shared .align 4 .b8 tile[4096];",
            args=[device.array(np.array(places, np.int64)), data],
            device=device,
        )
        offsets = tuple(4 * place if place >= 0 else -1 for place in places)
        lanes = sum(place >= 0 for place in places)
        turns = max(places.count(place) for place in places if place >= 0)
        memory, site = profile.memory, profile.sites[-1]
        if space == ".global":
            sectors, lines = touched(offsets, 4, 32), touched(offsets, 4, 128)
            assert (memory.global_atomic_requests, memory.global_atomic_sectors) == (1, sectors), name
            assert (memory.global_atomic_lines, memory.global_atomic_bytes) == (lines, 4 * lanes), name
            assert (memory.global_atomic_serializations, memory.shared_atomic_serializations) == (turns, 0), (
                name
            )
            assert (site.serializations, site.shared_serializations) == (turns, 0), name
            expected = np.zeros(1024, np.uint32)
            np.add.at(expected, [place for place in places if place >= 0], 1)
            assert (data.numpy() == expected).all()
        else:
            banks, ideal = wavefronts(offsets, 4, "atomic")
            assert (memory.shared_atomic_requests, memory.shared_atomic_bytes) == (1, 4 * lanes), name
            assert (memory.shared_atomic_serializations, memory.global_atomic_serializations) == (turns, 0), (
                name
            )
            assert memory.shared_atomic_wavefronts == banks + turns - 1, name
            assert memory.shared_conflicts == banks + turns - 1 - ideal, name
        # the load of the places
        assert (memory.global_load_sectors, memory.global_load_lines, memory.global_store_sectors) == (
            8,
            2,
            0,
        )


def test_efficiency_is_bytes_asked_for_in_percent_of_bytes_moved(backend: str) -> None:
    # beside the access itself each lane loads its offset: 8 sectors, 256 bytes
    cases = {"consecutive": 4, "every 32nd": 32, "all the same": 1, "shifted": 5}
    for name, count in cases.items():
        offsets = patterns(4)[name]
        profile = run(backend, "load", ".global", "u32", offsets)
        assert profile.sites[-1].efficiency == 100 * 128 / (32 * count), name
        assert profile.memory.global_load_efficiency == 100 * (256 + 128) / (32 * (8 + count)), name
        assert (profile.sites[-1].sectors_per_request, profile.sites[-1].ideal_sectors_per_request) == (
            count,
            4,
        )
        memory = run(backend, "store", ".global", "u32", offsets).memory
        assert (memory.global_load_efficiency, memory.global_store_efficiency) == (100, 100 * 4 / count), name
    nothing = run(backend, "load", ".global", "u32", [-1] * 32).sites[-1]
    assert (nothing.efficiency, nothing.sectors_per_request, nothing.ideal_sectors_per_request) == (100, 0, 0)
    stored = run(backend, "store", ".global", "u32", [-1] * 32).to_dict()
    assert stored["memory"]["global_store_efficiency"] == stored["sites"][-1]["efficiency"] == 100


def test_a_generic_access_may_go_everywhere(backend: str) -> None:
    """Lanes 0–7 to global, 8–15 to shared, 16–23 to local memory; the others do not take part."""
    body = """
    .local .align 16 .b8 scratch[256];
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mov.u64 %rd2, tile;
    cvta.shared.u64 %rd2, %rd2;
    mov.u64 %rd3, scratch;
    cvta.local.u64 %rd3, %rd3;
    setp.lt.u32 %p1, %r1, 8;
    setp.lt.u32 %p2, %r1, 16;
    setp.lt.u32 %p3, %r1, 24;
    selp.b64 %rd4, %rd2, %rd3, %p2;
    selp.b64 %rd4, %rd1, %rd4, %p1;
    and.b32 %r2, %r1, 7;
    mul.wide.u32 %rd5, %r2, 8;
    add.u64 %rd6, %rd4, %rd5;
    @%p3 st.u64 [%rd6], %rd5;
    @%p3 ld.u64 %rd7, [%rd6];
    ret;"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    profile = launch(
        backend, body, parameters=".param .u64 data", before=".shared .align 16 .b8 tile[256];",
        args=[device.zeros(32, np.uint64)], device=device,
    )  # fmt: skip
    for site in profile.sites:
        assert (site.requests, site.lanes, site.shared_lanes, site.local_lanes) == (1, 24, 8, 8)
        assert (site.global_requests, site.shared_requests, site.local_requests) == (1, 1, 1)
        assert (site.sectors, site.cache_lines, site.wavefronts, site.ideal_wavefronts) == (2, 1, 1, 1)
        assert (site.local_sectors, site.global_bytes) == (
            16,
            64,
        )  # lane l has words 2 l and 2 l + 1 of its own
    memory = profile.memory
    assert dict(memory.accesses) == {
        f"{kind}.{space}.64": 8 for kind in ("load", "store") for space in ("global", "shared", "local")
    }
    assert (memory.global_load_requests, memory.shared_load_requests, memory.local_load_requests) == (1, 1, 1)
    assert (memory.local_bytes, memory.local_moved_bytes) == (2 * 64, 2 * 16 * 32)
    assert memory.global_moved_bytes == 2 * 2 * 32


@pytest.mark.parametrize("form", [form for form in FORMS if form != "b128"])
def test_loads_of_one_address(backend: str, form: str) -> None:
    """An address that the compiler knows to be the same for all lanes, under a mask that leaves phases of lanes out."""
    registers, width = FORMS[form]
    text = f"""
    .version 8.8
    .target sm_100
    .address_size 64
    .visible .entry k(.param .u64 data)
    {{
    .reg .pred %p<2>; .reg .b16 %h<5>; .reg .b32 %r<12>; .reg .b64 %rd<14>; .reg .f32 %f<9>;
    ld.param.u64 %rd1, [data];
    ld.global.{form} {registers}, [%rd1+{width}];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 5;
    @%p1 bra END;
    ld.global.{form} {registers}, [%rd1+{width}];
    END:
    ret;
    }}"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    sites = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [device.zeros(256, np.uint8)]).sites
    for site, lanes in zip(sites, (32, 5), strict=True):
        offsets = tuple(width if lane < lanes else -1 for lane in range(32))
        assert (site.sectors, site.cache_lines) == (1, 1)
        assert site.global_wavefronts == unmerged(offsets, width)


FORMER = {
    Memory: {
        "global_atomic_turns": "global_atomic_serializations",
        "shared_atomic_turns": "shared_atomic_serializations",
    },
    SiteProfile: {"turns": "serializations", "shared_turns": "shared_serializations"},
    LoopProfile: {"passes": "head_thread_executions", "warp_passes": "head_warp_executions"},
}
"""Names that attributes had before, with those that they have."""


@pytest.mark.parametrize("record", FORMER)
def test_the_former_names_of_attributes_work_with_a_warning(record):
    made = record(**{field.name: index for index, field in enumerate(fields(record), 3)})
    for former, present in FORMER[record].items():
        with pytest.warns(DeprecationWarning) as told:
            assert getattr(made, former) == getattr(made, present) >= 3
        assert [str(one.message) for one in told] == [f"{former} is now {present}: write {present}"]
        assert told[0].filename == __file__ and former not in asdict(made)
