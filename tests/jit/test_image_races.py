"""Races through textures and surfaces, whose texels lie in arrays of the device: among blocks, among warps, and with pointers.

Manual: the memory consistency model leaves textures and surfaces out; what orders their accesses is taken to be what orders others
(barriers), and ``sured`` is one step. What is ordered is undefined all the same where they read what the same launch has stored.
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.race_records import Race as Layout
from gpuperf_engine.jit.races.checks import race_flags

#: 64 texels of 4 bytes in a row; %r3: a number of each thread, %r4: its first byte, %r5: that of the same thread of the next warp
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 surface, .param .u64 texture, .param .u64 data, .param .u64 out) {
.reg .b32 %r<20>; .reg .b64 %rd<12>; .reg .pred %p<6>; .reg .b16 %h<4>; .reg .f32 %f<4>;
ld.param.u64 %rd0, [surface]; ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [data]; ld.param.u64 %rd3, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; shl.b32 %r4, %r3, 2;
xor.b32 %r5, %r4, 128; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; xor.b32 %r6, %r3, 32; cvt.u16.u32 %h0, %r3;
cvt.u64.u32 %rd4, %r4; add.u64 %rd5, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4; cvt.rn.f32.u32 %f0, %r6;
"""
BEFORE = HEAD.count("\n")
PUT = "sust.b.1d.b32.trap [%rd0, {%r4}], %r3;\n"
GET = "suld.b.1d.b32.trap %r10, [%rd0, {%r5}];\n"
FETCH = "tex.1d.v4.u32.s32 {%r10, %r11, %r12, %r13}, [%rd1, {%r6}];\n"
ATOM = "atom.global.add.u32 %r15, [%rd3+3072], 1;\n"

#: launches of one block of two warps
ORDERED = {
    "a pointer behind a barrier": PUT + "bar.sync 0;\nxor.b64 %rd5, %rd5, 128; ld.global.u32 %r10, [%rd5];\n",
    "stores behind loads": GET + "bar.sync 0;\n" + PUT,
    "texels that nobody stores": PUT + "add.s32 %r5, %r5, 256; suld.b.1d.b32.zero %r10, [%rd0, {%r5}];\n",
    "reductions": "sured.b.add.1d.u32.trap [%rd0, {0}], 1; sured.p.add.1d.b32.trap [%rd0, {0}], 1;\n",
    "one value": "mov.u32 %r7, 7; sust.b.1d.b32.trap [%rd0, {0}], %r7;\n",
    "all read": GET + FETCH + "ld.global.u32 %r14, [%rd2]; st.global.u32 [%rd6], %r10;\n",
    "bytes side by side": "suld.b.1d.b8.trap %h1, [%rd0, {%r0}];\nsust.b.1d.b8.trap [%rd0, {%r0}], %h0;\n",
    "what is outside": "setp.lt.u32 %p2, %r0, 32; add.s32 %r4, %r4, 4096;\n"
    "@%p2 sust.b.1d.b32.zero [%rd0, {%r4}], %r3; suld.b.1d.b32.zero %r10, [%rd0, {%r5}];\n",
    "a pointer to another array": "st.global.u32 [%rd6], %r3;\n" + GET + FETCH,
}
#: ordered reads through images of what the same launch has stored, and threads that store and read
STALE = {
    "a barrier": (PUT + "bar.sync 0;" + GET, 32, 0),
    "a texture behind a barrier": (PUT + "bar.sync 0;" + FETCH, 32, 0),
    "its own texel": (PUT + "suld.b.1d.b32.trap %r10, [%rd0, {%r4}];\n", 0, 0),
    "its own byte": ("sust.b.1d.b8.trap [%rd0, {%r0}], %h0;\nsuld.b.1d.b8.trap %h1, [%rd0, {%r0}];\n", 0, 0),
    "what a pointer has stored": ("st.global.u32 [%rd5], %r3;\nbar.sync 0;" + GET, 32, 0),
    "a reduction": ("sured.b.add.1d.u32.trap [%rd0, {%r4}], 1;\nbar.sync 0;" + GET, 32, 0),
}
#: the body, and kind, lines and threads of what is found; the second warp stores or reads what the first one has
RACES = {
    "a surface": (PUT + GET, [("RAW", 1, 2, 0, 32), ("WAR", 2, 1, 0, 32)]),
    "a texture": (PUT + FETCH, [("RAW", 1, 2, 0, 32), ("WAR", 2, 1, 0, 32)]),
    "several values": ("sust.b.1d.b32.trap [%rd0, {8}], %r3;\n", [("WAW", 1, 1, 31, 63)]),
    "formatted": ("sust.p.1d.b32.trap [%rd0, {2}], {%r3};\n", [("WAW", 1, 1, 31, 63)]),
    "a pointer": (
        "st.global.u32 [%rd5], %r3;\n" + GET,
        [("RAW", 1, 2, 0, 32), ("WAR", 2, 1, 0, 32)],
    ),
    "a surface and a pointer": (
        PUT + "xor.b64 %rd5, %rd5, 128; ld.global.u32 %r10, [%rd5];\n",
        [("RAW", 1, 2, 0, 32), ("WAR", 2, 1, 0, 32)],
    ),
    "a reduction and a load": (
        "sured.b.add.1d.u32.trap [%rd0, {%r4}], 1;\n" + GET,
        [("RAW", 1, 2, 0, 32), ("WAR", 2, 1, 0, 32)],
    ),
    "parts of a texel": (
        "setp.lt.u32 %p2, %r0, 32;\n@%p2 sust.b.1d.v2.b32.trap [%rd0, {64}], {%r0, %r0};\n"
        "@!%p2 suld.b.1d.b16.trap %h1, [%rd0, {70}];\n",
        [("RAW", 2, 3, 31, 32)],
    ),
}


def launched(
    body: str, grid: int = 1, block: int = 64, races: str = "note", device: ge.Device | None = None
) -> ge.Profile:
    device = device or ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    kernel = ge.parse(f"{HEAD}{body}ret; }}\n", path="k.ptx")["k"]
    data, out = device.array(np.arange(1024, dtype=np.uint32), name="texels"), device.zeros(1024, np.uint32)
    image = data[: grid * block]
    return device.launch(kernel, grid, block, [device.surface(image), device.texture(image), data, out])


def found(profile: ge.Profile) -> list[tuple[object, ...]]:
    return sorted(
        (
            race.kind,
            *(int(access.location.split(":")[1]) - BEFORE for access in (race.first, race.second)),
            *(access.block[0] * 64 + access.thread[0] for access in (race.first, race.second)),
        )
        for race in profile.races
    )


@pytest.mark.parametrize("waits", ["", ATOM], ids=["", "blocks may wait"])
@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str, waits: str) -> None:
    assert launched(waits + ORDERED[name]).races == ()


@pytest.mark.parametrize("waits", ["", ATOM], ids=["", "blocks may wait"])
@pytest.mark.parametrize("name", STALE)
def test_what_the_launch_has_stored_is_not_read_through_images(name: str, waits: str) -> None:
    """CUDA C++ Programming Guide, "Texture and Surface Memory": the cache is not kept coherent within a launch, so such reads return
    undefined data, whether the same thread has stored it or another one."""
    body, first, second = STALE[name]
    profile = launched(waits.replace("\n", " ") + body)
    assert [race.missing for race in profile.races] == ["end of the launch"]
    ((kind, *lines, storing, reading),) = found(profile)
    assert (kind, *lines, {storing, reading}) == ("RAW", 1, 2, {first, second})
    assert "with no end of the launch between" in profile.races[0].message


def test_a_block_of_one_warp_reads_what_it_has_stored() -> None:
    body = PUT + "suld.b.1d.b32.trap %r10, [%rd0, {%r4}];\n"
    assert [race.missing for race in launched(body, grid=3, block=32).races] == ["end of the launch"]
    with pytest.raises(ge.RaceError, match="in a later launch"):
        launched(body, grid=1, block=32, races="error")


@pytest.mark.parametrize("waits", ["", ATOM], ids=["", "blocks may wait"])
@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_is_a_race(name: str, waits: str) -> None:
    body, wanted = RACES[name]
    profile = launched(waits.replace("\n", " ") + body)
    assert found(profile) == wanted
    assert all(race.space == "global" for race in profile.races)
    assert {race.message for race in profile.races} <= {*profile.notes}


@pytest.mark.parametrize("read", [f"xor.b32 %r5, %r4, 256; {GET}", f"xor.b32 %r6, %r3, 64; {FETCH}"])
def test_blocks(read: str) -> None:
    """Each block stores its 64 texels, and reads those of another one; no barrier is among blocks."""
    kinds = [row[:3] for row in found(launched(f"{PUT}bar.sync 0; {read}", grid=4))]
    assert kinds == [("RAW", 1, 2), ("WAR", 2, 1)]


def test_blocks_with_texels_of_their_own_and_reductions() -> None:
    assert launched(PUT, grid=4).races == ()
    assert launched("sured.b.add.1d.u32.trap [%rd0, {0}], 1;\n", grid=4).races == ()


@pytest.mark.parametrize(
    ("filter", "coordinate", "texels"), [("linear", 0.5, {0}), ("linear", 1.0, {0, 1}), ("nearest", 1.0, {1})]
)
def test_texels_that_a_filter_takes(filter: str, coordinate: float, texels: set[int]) -> None:
    """At the middle of a texel a linear filter gives the neighbour no weight."""
    body = f"""setp.eq.u32 %p2, %r0, {{}}; setp.ge.u32 %p3, %r0, 32; mov.f32 %f1, {coordinate};
        @%p2 st.global.f32 [%rd5], %f0;
        @%p3 tex.1d.v4.f32.f32 {{{{%f0, %f1, %f2, %f3}}}}, [%rd1, {{{{%f1}}}}];
        """
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    data = device.array(np.arange(64, dtype=np.float32))
    texture = device.texture(data, filter=filter)
    for texel in range(3):
        kernel = ge.parse(f"{HEAD}{body.format(texel)}ret; }}\n", path="k.ptx")["k"]
        assert bool(device.launch(kernel, 1, 64, [None, texture, data, None]).races) == (texel in texels)


def test_narrow_texels_of_rows_that_begin_anywhere() -> None:
    """Three bytes a row: a byte is what a texel has, whatever words it lies in."""
    body = """setp.lt.u32 %p2, %r0, 32; mov.u32 %r7, {}; mov.u32 %r8, 1;
        @%p2 sust.b.2d.b8.trap [%rd0, {{%r8, %r8}}], %h0;
        @!%p2 suld.b.2d.b8.trap %h1, [%rd0, {{%r7, %r8}}];
        """
    for column in range(3):
        device = ge.Device(observe=set(), memory_bytes=1 << 20)
        kernel = ge.parse(f"{HEAD}{body.format(column)}ret; }}\n", path="k.ptx")["k"]
        surface = device.surface(device.zeros((5, 3), np.uint8))
        races = device.launch(kernel, 1, 64, [surface, None, None, None]).races
        assert bool(races) == (column == 1)


@pytest.mark.parametrize(("store", "checked"), [("%rd6", False), ("%rd5", True)])
def test_only_arrays_that_a_launch_stores_to_are_checked(store: str, checked: bool) -> None:
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    record = launched(f"{FETCH}st.global.u32 [{store}], %r10;\n", device=device).records[0]
    flags = race_flags(record.program, record.plan, device.memory)
    assert (flags[len(record.program.sites) + 1 :] & Layout.GLOBAL).any() == checked


def test_arrays_of_other_images_are_not_checked() -> None:
    """A handle that is an argument leads to one array: loads of another one than is stored to conflict with nothing."""
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    arrays = [device.array(np.arange(64, dtype=np.uint32)) for _ in range(2)]
    kernel = ge.parse(f"{HEAD}{FETCH}{PUT}ret; }}\n", path="k.ptx")["k"]
    for fetched, checked in ((0, True), (1, False)):
        args = [device.surface(arrays[0]), device.texture(arrays[fetched]), None, None]
        profile = device.launch(kernel, 1, 64, args)
        record = profile.records[0]
        flags = race_flags(record.program, record.plan, device.memory)[len(record.program.sites) + 1 :]
        assert (flags & Layout.GLOBAL).astype(bool).tolist() == [checked, True]
        assert bool(profile.races) == checked


def test_the_finding_names_both_accesses() -> None:
    (race, _) = sorted(launched(RACES["a surface"][0]).races, key=lambda race: race.kind)
    assert (race.first.opcode, race.second.opcode) == ("sust.b.1d.b32.trap", "suld.b.1d.b32.trap")
    assert race.object == "texels" and race.address % 256 == 0
    with pytest.raises(ge.RaceError, match="race on global memory"):
        launched(RACES["a surface"][0], races="error")


def test_any_number_of_cores_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "rem.u32 %r4, %r4, 128; sust.b.1d.b32.trap [%rd0, {%r4}], %r1;\n" + GET.replace("%r5", "%r4")
    results = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        results.append(launched(body, grid=16).races)
    assert results[0] == results[1] and {race.kind for race in results[0]} == {"RAW", "WAR", "WAW"}


def test_a_level_of_detail_is_an_array_of_its_own() -> None:
    """A fetch of the second level conflicts with stores to it, and one of a texture without it does not."""
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    fine, half = device.zeros(128, np.uint32), device.zeros(64, np.uint32)
    fetch = FETCH.replace("tex.1d", "tex.level.1d").replace("{%r6}]", "{%r6}], 1")
    kernel = ge.parse(f"{HEAD}{fetch}{PUT}ret; }}\n", path="k.ptx")["k"]
    for levels, raced in (([fine, half], True), ([fine], False)):
        profile = device.launch(kernel, 1, 64, [device.surface(half), device.texture(levels), None, None])
        assert bool(profile.races) == raced
