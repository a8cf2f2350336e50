"""Records that name what does not exist are refused: the compiled simulation would read or overwrite other memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.sm_records import END, Copy
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm import launch, limits, offsets
from gpuperf_engine.sass.sm import simulate as module
from gpuperf_engine.sass.sm.asynchronous import Copies, Named
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.sampling import classes_of
from gpuperf_engine.sass.sm.simulate import Memory, simulate
from gpuperf_engine.sass.sm.streams import Class, class_of
from tests.sass.sm.machines import TOY, access, arrives, copied, decoded, initial, moves, run, run_roles
from tests.support import needs_assembler

LOAD = ["LDG.E R2, [R4.64]", "EXIT"]
INIT = ["SYNCS.EXCH.64 URZ, [UR4], UR6"]
ARRIVE = ["SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ"]
COPY = ["UBLKCP.S.G [UR8], [UR4], UR6"]
BETWEEN = ["UBLKCP.S.S [UR8], [UR4], UR6"]
DOES_NOT_EXIST = "does not exist"


def test_lines() -> None:
    assert run(LOAD, [access(1, {1: 15})], lines=2).cycles
    with pytest.raises(NotRun, match=DOES_NOT_EXIST):
        run(LOAD, [access(1, {2: 15})], lines=2)


@pytest.mark.parametrize("words", [[], [*access(1, {0: 15}), 7], [1 | 3 << 8 | 32 << 16, 15]])
def test_words_of_an_access_that_are_missing_or_left(words: list[int]) -> None:
    with pytest.raises(NotRun, match=DOES_NOT_EXIST):
        run(LOAD, [words], lines=2)


@pytest.mark.parametrize("number", [2, 3, 254])
def test_mbarriers(number: int) -> None:
    assert run_roles([[*INIT, *ARRIVE]], [(0, initial(1, 1) + arrives(1))], mbarriers=2).cycles
    for words in (initial(number, 1) + arrives(1), initial(1, 1) + arrives(number)):
        with pytest.raises(NotRun, match=DOES_NOT_EXIST):
            run_roles([[*INIT, *ARRIVE]], [(0, words)], mbarriers=2)


def test_ctas_of_a_cluster_that_are_told() -> None:
    own, other = [(0, initial(0, 1) + arrives(0, rank=1))], [(0, initial(0, 1) + arrives(0, rank=0))]
    assert run_roles([[*INIT, *ARRIVE]], own, cluster=[other]).cycles
    own = [(0, initial(0, 1) + arrives(0, rank=2))]
    with pytest.raises(NotRun, match=DOES_NOT_EXIST):
        run_roles([[*INIT, *ARRIVE]], own, cluster=[other])


@pytest.mark.parametrize(
    ("code", "way", "words"),
    [
        (COPY, 0, copied(1, 0)),
        (COPY, 0, copied(0, 1)),
        # a copy to shared memory without an mbarrier
        (COPY, 0, copied(0)),
        (BETWEEN, 4, copied(0, 1)),
        (BETWEEN, 4, copied(0, 0, rank=1)),
    ],
)
def test_copies(code: list[str], way: int, words: list[int]) -> None:
    kinds = (moves(128, way),)
    assert run_roles([code], [(0, copied(0, 0))], kinds=kinds, mbarriers=1).cycles
    with pytest.raises(NotRun, match=DOES_NOT_EXIST):
        run_roles([code], [(0, words)], kinds=kinds, mbarriers=1)


def simulated(stream: list[int], **changed: object) -> int:
    """One CTA that loads a line, as ``stream``; ``changed``: fields of its class."""
    words = np.array(stream, np.uint32)
    none = np.zeros(1, np.uint8)
    one = Class(
        words,
        np.array([words.ctypes.data], np.int64),
        none,
        np.zeros(1, np.int64),
        none,
        none.astype(np.uint32),
    )
    one = replace(one, **changed)  # type: ignore[arg-type]
    operations = Operations(build_graph(decoded(LOAD), "k"), TOY)
    memory = Memory(1, 1.0, 1.0, (1.0,), rows=(1.0,), row_rate=1.0)
    return simulate(operations, Classes((one,), (), {}, (1, 1, 1)), Copies(), TOY, memory, [0], 1, 1).cycles


def test_blocks_and_ends() -> None:
    one = access(1, {0: 15})
    assert simulated([0, *one, END])
    for stream in ([1, *one, END], [0, *one, 1, END], [0, *one], [0, *one, END, END], [0]):
        with pytest.raises(NotRun, match=DOES_NOT_EXIST):
            simulated(stream)


def test_arrays_of_a_class() -> None:
    stream = [0, *access(1, {0: 15}), END]
    with pytest.raises(NotRun, match="its lines have numbers from 1 to 1; 1 exist"):
        simulated(stream, rows=np.ones(1, np.uint32))
    for changed in ({"starts": np.zeros(2, np.int64)}, {"groups": np.zeros(0, np.uint8)}):
        with pytest.raises(NotRun, match="not those of a CTA of this launch"):
            simulated(stream, **changed)
    with pytest.raises(NotRun, match="its words of a stream have numbers"):
        simulated(stream, starts=np.zeros(1, np.int64))


@pytest.mark.parametrize("cta", [-1, 1])
def test_classes_of_ctas(cta: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [0, *access(1, {0: 15}), END]
    checked = module.check_records

    def other(*given: object) -> None:
        checked(*given[:4], np.array([cta]), given[5])  # type: ignore[arg-type]

    monkeypatch.setattr(module, "check_records", other)
    with pytest.raises(NotRun, match="its classes of CTAs have numbers"):
        simulated(stream)


def test_streams_are_read_once_for_each_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is simulated several times."""
    asked = []
    addresses = limits.runtime_addresses
    monkeypatch.setattr(limits, "runtime_addresses", lambda names: asked.append(names) or addresses(names))
    words = np.array([0, *access(1, {0: 15}), END], np.uint32)
    none = np.zeros(1, np.uint8)
    one = Class(
        words,
        np.array([words.ctypes.data], np.int64),
        none,
        np.zeros(1, np.int64),
        none,
        none.astype(np.uint32),
    )
    classes, memory = Classes((one,), (), {}, (1, 1, 1)), Memory(1, 1.0, 1.0, (1.0,))
    for _ in range(3):
        operations = Operations(build_graph(decoded(LOAD), "k"), TOY)
        simulate(operations, classes, Copies(), TOY, memory, [0], 1, 1)
    assert len(asked) == 1


def named() -> Named:
    """One block with one access to shared memory."""
    return Named(np.array([[0, 1, 0, 0]] * 2, np.uint8), np.array([0, 1], np.uint32))


def test_records_of_a_trace() -> None:
    """A block that does not exist, and a record that is cut off."""
    assert len(class_of(named(), [np.array([0, END, *range(32)], np.uint32)]).stream)
    for recorded in ([1, END, *range(32)], [0, END, *range(31)], [0]):
        with pytest.raises(NotRun, match="not whole blocks"):
            class_of(named(), [np.array(recorded, np.uint32)])
        with pytest.raises(NotRun, match="not whole blocks"):
            named().copies([np.array(recorded, np.uint32)])


@pytest.mark.parametrize("copies", [2, 40])
def test_there_is_room_for_all_copies_of_a_block(copies: int) -> None:
    """A copy takes 32 words of a record, and its block two."""
    kinds = Named(np.array([[5, 0, 0, 1]] * (copies + 1), np.uint8), np.array([0, copies], np.uint32))
    fields = [0, 64, 1, 7, 0, *[END] * 27]
    warps = [np.array([0, END, *fields * copies] * 60, np.uint32)]
    rows = kinds.copies(warps)
    assert rows.shape == (60 * copies, 8)
    assert (rows[:, 1] == 7).all() and kinds.kind_count == 1
    assert int(kinds.kinds[0, Copy.KEY // 8]) == 0


#: two arrays, each with its own step from one CTA to the next
STEPS = """.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
.reg .b32 %t, %c, %v, %w; .reg .b64 %p, %q, %s;
ld.param.u64 %p, [a]; ld.param.u64 %q, [b]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;
mad.lo.u32 %v, %c, 32, %t; mad.lo.u32 %w, %c, 64, %t;
mul.wide.u32 %s, %v, 4; add.u64 %p, %p, %s; mul.wide.u32 %s, %w, 4; add.u64 %q, %q, %s;
ld.global.b32 %v, [%p]; ld.global.b32 %w, [%q]; add.u32 %v, %v, %w; st.global.b32 [%p], %v; ret;
}
"""


@needs_assembler
@pytest.mark.parametrize("most", [1, 2, 255])
def test_more_groups_of_accesses_than_are_distinguished(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last group stands for all further ones."""
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    monkeypatch.setattr(offsets, "_MOST_GROUPS", most)
    seen = []
    monkeypatch.setattr(launch, "classes_of", lambda *given: seen.append(classes_of(*given)) or seen[-1])
    device = ge.Device(races="off")
    arrays = [device.zeros(64 * 64), device.zeros(64 * 64)]
    profile = device.launch(ge.parse(STEPS, path="k.ptx")["k"], 64, 32, arrays)
    assert ge.estimate(profile, "a100-sxm-80gb", model="simulation").model == "simulation"
    assert len(seen[0].groups) == min(most, 3)
    assert max(item.groups.max() for item in seen[0].classes) < len(seen[0].groups)
