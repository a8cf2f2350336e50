"""Races of accesses at addresses that depend on data, which are looked at word by word, held against NumPy on the host."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.race_records import Race as Layout
from gpuperf_engine.jit.launch import Launch
from gpuperf_engine.jit.races.checks import race_flags
from gpuperf_engine.jit.races.memory import RaceMemory

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 index) {
.reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<3>;
ld.param.u64 %rd0, [to]; ld.param.u64 %rd1, [index];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r4, [%rd2];
mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd0, %rd3;
"""
STORE = "st.global.u32 [%rd3], %r3;\n"
SUM = "ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, %r3;\nst.global.u32 [%rd3], %r5;\n"
GRID, BLOCK = 160, 64


@pytest.fixture(autouse=True)
def no_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of what is loaded."""
    monkeypatch.setattr("gpuperf_engine.jit.races.places.index_arrays", lambda *given: [])
    monkeypatch.setattr("gpuperf_engine.jit.races.places._COMPUTED", 0)


@pytest.fixture(params=(1, 4))
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: request.param)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
    return int(request.param)


def launched(body: str, index: NDArray[np.int64], launches: int = 1, grid: int = GRID) -> tuple[ge.Race, ...]:
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    kernel = ge.parse(f"{HEAD}{body}ret; }}\n", path="k.ptx")["k"]
    to, given = device.zeros(GRID * BLOCK, np.uint32, name="to"), device.array(index.astype(np.uint32))
    races = {device.launch(kernel, grid, BLOCK, [to, given]).races for _ in range(launches)}
    assert len(races) == 1
    return races.pop()


def permutation() -> NDArray[np.int64]:
    return np.random.default_rng(5).permutation(GRID * BLOCK)


def pairs(races: tuple[ge.Race, ...]) -> set[tuple[str, int, int]]:
    return {(race.kind, race.first.block[0], race.second.block[0]) for race in races}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("body", [STORE, SUM, SUM + "bar.sync 0;\n" + SUM])
def test_a_permutation_is_no_race(body: str) -> None:
    assert launched(body, permutation(), launches=3) == ()


#: the index of the thread that is in the same lane of the other warp
OTHER = """xor.b32 %r6, %r3, 32; mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r4, [%rd2];
mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd0, %rd3;
"""


@pytest.mark.usefixtures("threads")
def test_words_that_another_warp_of_the_block_has_had() -> None:
    """Its accesses come before those behind a barrier, with others of the same warp between, and after these."""
    ordered = SUM + "bar.sync 0;\n" + OTHER + SUM * 2 + "bar.sync 0;\n" + OTHER.replace("32;", "0;") + SUM
    assert launched(ordered, permutation(), launches=2) == ()
    found = launched(SUM + OTHER + SUM, permutation())
    assert pairs(found) == {(kind, 0, 0) for kind in ("RAW", "WAR", "WAW")}
    assert {(race.first.thread[0], race.second.thread[0]) for race in found} == {(0, 32)}


@pytest.mark.usefixtures("threads")
def test_bytes_that_are_stored_again_with_other_values() -> None:
    """A block stores two values to a word, in two intervals; another one stores the second one: they race, as the first differs."""
    index = permutation()
    index[100 * BLOCK + 7] = index[50 * BLOCK + 9]
    both = "mov.u32 %r5, 7; st.global.u32 [%rd3], %r5;\n"
    late = "bar.sync 0; setp.lt.u32 %p0, %r1, 99; @%p0 st.global.u32 [%rd3], SECOND;\n"
    assert launched(both + late.replace("SECOND", "7"), index) == ()
    assert pairs(launched(both + late.replace("SECOND", "519"), index)) == {("WAW", 50, 100)}


@pytest.mark.usefixtures("threads")
def test_the_first_lane_that_loads_and_the_last_one_that_stores() -> None:
    """All lanes of a warp that are on at one word; a later block stores to it, or loads it."""
    index = permutation()
    index[40 * BLOCK : 40 * BLOCK + 32] = index[40 * BLOCK]
    index[90 * BLOCK + 5] = index[40 * BLOCK]
    early = (
        "setp.lt.u32 %p0, %r1, 80; and.b32 %r6, %r0, 31; setp.gt.u32 %p1, %r6, 3; and.pred %p1, %p0, %p1;\n"
    )
    load, store = "ld.global.u32 %r5, [%rd3];\n", "st.global.u32 [%rd3], %r3;\n"
    for body, kind, lane in (
        (f"@%p1 {load}@!%p0 {store}", "WAR", 4),
        (f"@%p1 {store}@!%p0 {load}", "RAW", 31),
    ):
        (race,) = launched(early + body, index)
        assert (race.kind, race.first.block[0], race.second.block[0]) == (kind, 40, 90)
        assert (race.first.thread[0], race.second.thread[0]) == (lane, 5)


@pytest.mark.usefixtures("threads")
def test_two_blocks_at_one_word_among_sixteen_of_a_line() -> None:
    """More blocks than a line keeps: one word of all is stored by two of them."""
    index = permutation()
    one, other = 100 * BLOCK + 7, 150 * BLOCK + 9
    index[other] = index[one]
    (race,) = launched(STORE, index, launches=2)
    assert (race.kind, race.object) == ("WAW", f"to + {4 * index[one]}")
    assert (race.first.block[0], race.first.thread[0]) == (100, 7)
    assert (race.second.block[0], race.second.thread[0]) == (150, 9)
    assert pairs(launched(SUM, index)) == {(kind, 100, 150) for kind in ("RAW", "WAR", "WAW")}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_atomic_and_a_plain_store_of_a_block_to_a_word_are_told_apart(order: tuple[int, int]) -> None:
    """Both race with the plain store of the other block, also where this comes to a word that one block has had alone."""
    index = permutation()
    index[150 * BLOCK + 9] = index[100 * BLOCK + 7]
    lines = ("red.global.add.u32 [%rd3], %r3;\n", "st.global.u32 [%rd3], %r3;\n")
    found = launched("".join(lines[number] for number in order), index)
    first = HEAD.count("\n") + 1
    atomic, plain = (first + order.index(number) for number in (0, 1))
    assert {
        tuple(int(str(item.location).split(":")[1]) for item in (race.first, race.second)) for race in found
    } == {(atomic, plain), (plain, atomic), (plain, plain)}
    assert pairs(found) == {("WAW", 100, 150)}


def test_words_beyond_those_that_batches_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a device of more than 16 GB, as it were: only the first 64 words may be in batches."""
    monkeypatch.setattr("gpuperf_engine.jit.races.memory._ROW", (1 << 32) - 64)
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 1)
    index = permutation()
    assert launched(SUM, index) == ()
    index[150 * BLOCK + 9] = index[100 * BLOCK + 7]
    assert pairs(launched(SUM, index)) == {(kind, 100, 150) for kind in ("RAW", "WAR", "WAW")}


def test_atomics_of_words_that_nobody_else_accesses_are_noted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch for each warp, which its load finds again."""
    seen: list[int] = []
    end = RaceMemory.end
    monkeypatch.setattr(RaceMemory, "end", lambda memory: (seen.append(memory.batches), end(memory))[1])
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 1)
    body = "red.global.add.u32 [%rd3], %r3;\nld.global.u32 %r5, [%rd3];\n"
    assert launched(body, permutation()) == ()
    assert seen == [GRID * BLOCK // 32]


@pytest.mark.usefixtures("threads")
def test_the_first_blocks_that_share_a_word() -> None:
    index = np.random.default_rng(8).integers(0, GRID * BLOCK, GRID * BLOCK)
    owners: dict[int, list[int]] = {}
    for place, block in sorted({(int(word), thread // BLOCK) for thread, word in enumerate(index)}):
        owners.setdefault(place, []).append(block)
    first = min((blocks[0], blocks[1]) for blocks in owners.values() if len(blocks) > 1)
    among = [race for race in launched(STORE, index) if race.first.block != race.second.block]
    assert pairs(tuple(among)) == {("WAW", *first)}


@pytest.mark.usefixtures("threads")
def test_warps_of_one_block_that_share_a_word() -> None:
    index = permutation()
    index[70 * BLOCK + 40] = index[70 * BLOCK + 3]
    (race,) = launched(STORE, index)
    assert (race.kind, race.first.block[0], race.second.block[0]) == ("WAW", 70, 70)
    assert (race.first.thread[0], race.second.thread[0]) == (3, 40)
    ordered = "setp.lt.u32 %p0, %r0, 32;\n@%p0 st.global.u32 [%rd3], %r3;\nbar.sync 0;\n@!%p0 st.global.u32 [%rd3], %r3;\n"
    assert launched(ordered, index) == ()


@pytest.mark.usefixtures("threads")
def test_one_value_from_several_blocks_is_no_race() -> None:
    index = permutation() % 512
    assert launched("mov.u32 %r5, 7; add.u32 %r5, %r5, 0;\nst.global.u32 [%rd3], %r5;\n", index) == ()


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.uint16]]:
    """Those of each launch, by site."""
    seen: list[NDArray[np.uint16]] = []

    def noted(*given: object) -> NDArray[np.uint16]:
        seen.append(race_flags(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr("gpuperf_engine.jit.races.memory.race_flags", noted)
    return seen


BYTE, FOUR = "st.global.u8 [%rd3], %r3;\n", "st.global.v4.u32 [%rd0], {%r3, %r3, %r3, %r3};\n"
#: of words, at one place; bytes, which are words of their own; beside what is wider than a batch takes
BODIES = (STORE, STORE.replace("%rd3]", "%rd0]"), BYTE, STORE.replace("u32", "u16"), BYTE + FOUR)
WORDS = Layout.WORDS | Layout.OF_BYTES | Layout.OF_HALVES
WORDS_OF_BODIES = [Layout.WORDS, 0, Layout.WORDS | Layout.OF_BYTES, Layout.WORDS | Layout.OF_HALVES, 0]


def test_words_are_for_addresses_that_depend_on_data(flags: list[NDArray[np.uint16]]) -> None:
    for body in BODIES:
        launched(body, permutation())
    assert [some[1] & WORDS for some in flags] == WORDS_OF_BODIES


@pytest.mark.parametrize("grid", [1, 8])
def test_words_are_for_launches_of_few_warps_too(grid: int, flags: list[NDArray[np.uint16]]) -> None:
    for body in BODIES:
        launched(body, permutation(), grid=grid)
    assert [some[1] & WORDS for some in flags] == WORDS_OF_BODIES


@pytest.mark.parametrize(("locked", "calls"), [(0.0, 1), (1.0, 0)])
def test_one_thread_runs_all_blocks_where_locking_words_takes_longer(
    locked: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``locked``: seconds for each access by a warp."""
    seen: list[Launch] = []
    lock = Launch.lock_lines
    monkeypatch.setattr(Launch, "lock_lines", lambda launch: (seen.append(launch), lock(launch))[1])
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 4)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", locked)
    assert launched(STORE, permutation()) == ()
    assert len(seen) == calls


LOAD = "ld.global.u32 %r5, [%rd3];\n"


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [(STORE, LOAD, "RAW"), (LOAD, STORE, "WAR"), (STORE, STORE, "WAW")],
)
def test_words_of_another_warp_that_are_accessed_in_one_way(first: str, second: str, kind: str) -> None:
    # the first access by an instruction is looked at lane by lane: in some blocks it is of the warp's own words
    other = "setp.gt.u32 %p0, %r1, 2; selp.b32 %r7, 32, 0, %p0;\n" + OTHER.replace("32;", "%r7;")
    second = f"setp.ge.u32 %p0, %r0, 32; @%p0 {second}"
    assert pairs(launched(first + other + second, permutation())) == {(kind, 3, 3)}
    assert launched(first + "bar.sync 0;\n" + other + second, permutation()) == ()
    # what was accessed before the barrier is accessed again behind it
    again = first + "bar.sync 0;\n" + first + other + second
    assert pairs(launched(again, permutation())) == {(kind, 3, 3)}


#: the block that takes the last of eight tickets loads what all have stored
LAST_BLOCK = """STORE.u32 [%rd3], %r3;
RELEASE bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra MET;
atom.global.add.u32 %r5, [%rd0+8192], 1; ACQUIRE st.shared.u32 [last], %r5;
MET: bar.sync 0; ld.shared.u32 %r5, [last]; setp.ne.u32 %p0, %r5, 7; @%p0 bra DONE; mov.u32 %r6, 0;
NEXT: mad.lo.u32 %r7, %r6, %r2, %r0; mul.wide.u32 %rd2, %r7, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r4, [%rd2];
xor.b32 %r4, %r4, TURN; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd0, %rd3;
ld.global.u32 %r8, [%rd3];
add.u32 %r6, %r6, 1; setp.lt.u32 %p0, %r6, 8; @%p0 bra NEXT;
DONE:
"""


@pytest.mark.parametrize("turn", [0, 16])
@pytest.mark.parametrize(
    ("store", "release", "acquire", "races"),
    [
        ("st.global", "membar.gl;", "membar.gl;", set()),
        ("st.global", "", "membar.gl;", {("RAW", 0, 7)}),
        ("st.global", "membar.gl;", "", {("RAW", 0, 7)}),
        ("red.global.add", "membar.gl;", "membar.gl;", set()),
        ("red.global.add", "", "membar.gl;", {("RAW", 0, 7)}),
    ],
)
def test_blocks_that_wait_for_one_another(
    store: str,
    turn: int,
    release: str,
    acquire: str,
    races: set[tuple[str, int, int]],
    flags: list[NDArray[np.uint16]],
) -> None:
    """The words are those of one access of a warp each, or (``turn``) of two."""
    body = (
        LAST_BLOCK.replace("RELEASE", release)
        .replace("ACQUIRE", acquire)
        .replace("TURN", str(turn))
        .replace("STORE", store)
    )
    index = np.random.default_rng(6).permutation(8 * BLOCK)
    found = launched(f".shared .align 4 .b8 last[4];\n{body}", np.resize(index, GRID * BLOCK), grid=8)
    assert {pair for pair in pairs(found) if pair[1] == 0} == races
    assert {race.kind for race in found} <= {"RAW"} and flags[0][1] & Layout.WORDS
    line = HEAD.count("\n") + 2
    assert {race.first.location for race in found} <= {f"k.ptx:{line}:1"}


HALF = GRID // 2
#: threads of two blocks have the same words
TWICE = np.tile(np.arange(HALF * BLOCK), 2)
SEVEN = "mov.u32 %r5, 7; st.global.u32 [%rd3], %r5;\n"
#: in some blocks of the first half %r6 is 8, else 7
SOME = f"sub.u32 %r6, %r1, 3; setp.lt.u32 %p0, %r6, {HALF // 2 - 3}; selp.b32 %r6, 8, 7, %p0;\n"


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("after", [SEVEN, SEVEN * 2])
def test_a_word_to_which_its_warp_has_stored_something_else(after: str) -> None:
    """At last two blocks store the same."""
    assert launched(after, TWICE) == ()
    found = launched(f"{SOME} st.global.u32 [%rd3], %r6;\n{after}", TWICE)
    assert pairs(found) == {("WAW", 3, HALF + 3)}


@pytest.mark.usefixtures("threads")
def test_the_second_word_of_each_lane_holds_something_else() -> None:
    """Of pairs of words at permuted places the first ones always hold the same."""
    index = np.tile(np.random.default_rng(3).permutation(HALF * BLOCK // 2), 4)
    body = f"""{SOME} shl.b32 %r4, %r4, 1; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd0, %rd3; mov.u32 %r5, 7;
    st.global.v2.u32 [%rd3], {{%r5, %r6}}; st.global.v2.u32 [%rd3], {{%r5, %r5}};
    """
    found = launched(body, index)
    assert pairs(found) == {("WAW", 3, HALF // 2 + 3)}
    assert [race.address % 8 for race in found] == [4]


@pytest.mark.usefixtures("threads")
def test_lanes_that_access_one_word_together() -> None:
    """The first one counts that loads, and the last one that stores."""
    index = np.tile(np.random.default_rng(4).permutation(HALF * BLOCK // 2).repeat(2), 2)
    body = f"""setp.gt.u32 %p0, %r1, 1; @!%p0 ret; setp.lt.u32 %p0, %r1, {HALF}; @%p0 ld.global.u32 %r5, [%rd3];
    @!%p0 st.global.u32 [%rd3], %r3;
    """
    (war,) = launched(body, index)
    assert (war.kind, war.first.thread[0] % 2, war.second.thread[0] % 2) == ("WAR", 0, 1)
    (waw,) = launched("setp.gt.u32 %p0, %r1, 1; @%p0 st.global.u32 [%rd3], %r3;\n", index)
    assert (waw.kind, waw.first.thread[0] % 2, waw.second.thread[0] % 2) == ("WAW", 1, 1)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("starts", "races"), [((3, 4), {("WAW", 4, 5)}), ((3, 5), set()), ((1, 3), set())])
def test_rows_that_overlap(starts: tuple[int, int], races: set[tuple[str, int, int]]) -> None:
    """The first warps of two blocks store rows of 32 words that begin at so many times 16 words; all others store to rows of their
    own."""
    index = np.arange(GRID) * 3 + 16
    index[4:6] = starts
    body = """mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r4, [%rd2];
    mad.lo.u32 %r4, %r4, 16, %r0; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd0, %rd3; setp.lt.u32 %p0, %r0, 32;
    @%p0 st.global.u32 [%rd3], %r3;
    """
    assert pairs(launched(body, np.resize(index, GRID * BLOCK))) == races


@pytest.mark.parametrize("number", ["mov.u32 %r6, %r1;", "shr.u32 %r6, %r0, 5;", "mov.u32 %r6, %r0;"])
def test_words_are_for_rows_whose_number_is_loaded(number: str, flags: list[NDArray[np.uint16]]) -> None:
    """``number``: where the number of the row is loaded from."""
    body = f"""{number} mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r6, [%rd2];
    and.b32 %r6, %r6, 127; mad.lo.u32 %r6, %r6, {BLOCK}, %r0; mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd0, %rd2;
    st.global.u32 [%rd2], %r3;
    """
    launched(body, np.arange(GRID * BLOCK))
    assert flags[0][-2] & Layout.WORDS


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_lanes_that_store_to_their_own_memory_at_one_address(backend: str) -> None:
    """Of lanes that store to one place in global memory the last one counts; local memory of each lane is a place of its own."""
    body = """.local .align 4 .b8 own[16]; mov.u64 %rd2, own; cvta.local.u64 %rd2, %rd2;
    mul.wide.u32 %rd4, %r3, 4; add.u64 %rd4, %rd0, %rd4; setp.gt.u32 %p0, %r3, 100000; selp.b64 %rd2, %rd4, %rd2, %p0;
    st.u32 [%rd2], %r3; ld.u32 %r5, [%rd2]; st.global.u32 [%rd4], %r5;
    """
    device = ge.Device(backend=backend)
    to, index = device.zeros(256, np.uint32), device.zeros(256, np.uint32)
    device.launch(ge.parse(f"{HEAD}{body}ret; }}\n", path="k.ptx")["k"], 4, 64, [to, index])
    assert to.numpy().tolist() == list(range(256))
