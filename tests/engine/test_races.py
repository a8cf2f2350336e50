"""Races in shared memory: every deletion of a barrier in the examples is held against vector clocks over the interpreter's accesses,
all pairs of which are compared; those of waits for copies and products against ``happens_before``. Races in global memory: the
examples with one array in the place of two, held against the same accesses of all blocks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from case_types import Case, Launch, execute
from cases import CASES

import gpuperf_engine as ge
from tests.engine.happens_before import traced
from tests.examples.interpreter import Interpreter
from tests.oracle import exchange, threads
from tests.oracle.scalar import OracleError

NAMES = (
    "reduce_shared-1000",
    "scan-256",
    "sgemm_tiled-33x17x20",
    "transpose_padded-45x33",
    "histogram_shared-1500",
    "heat_step_shared-37x13",
    "softmax-3x200",
    "layernorm-3x200",
)
_BARRIER = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:bar\.sync|barrier\.sync(?:\.aligned)?)\b.*;", re.MULTILINE)
_BY_NAME = {case.name: case for case in CASES}


@dataclass
class Clocks:
    """Vector clocks of the warps of a CTA; accesses of each byte of its shared memory: (warp, time, line, stores, atomic)."""

    clocks: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    accesses: dict[int, list[tuple[int, int, int, bool, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def meet(self, warps: list[int]) -> None:
        """Warps have passed a barrier together."""
        joined: dict[int, int] = defaultdict(int)
        for warp in warps:
            for other, time in self.clocks[warp].items():
                joined[other] = max(joined[other], time)
            joined[warp] = max(joined[warp], self.clocks[warp][warp] + 1)
        for warp in warps:
            self.clocks[warp].clear()
            self.clocks[warp].update(joined)


@dataclass
class Watcher:
    """Notes the pairs of lines that race."""

    ctas: dict[Any, Clocks] = field(default_factory=lambda: defaultdict(Clocks))
    pairs: set[tuple[int, int]] = field(default_factory=set)
    #: pairs of lines of different blocks on global memory, and by byte: (block, line, stores, atomic)
    among_blocks: set[tuple[int, int]] = field(default_factory=set)
    bytes: dict[int, set[tuple[Any, int, bool, bool]]] = field(default_factory=lambda: defaultdict(set))

    def begin(self) -> None:
        """A launch begins."""
        self.ctas.clear()
        self.bytes.clear()

    def access_global(self, thread: Any, place: int, size: int, stores: bool, value: int | None) -> None:
        statement = thread.frame.function.code[thread.frame.pc]
        atomic = statement.base in ("atom", "red")
        memory, offset = thread.place("global", place, size)
        for index in range(size):
            known = self.bytes[place + index]
            same = value is not None and not atomic and memory[offset + index] == value >> 8 * index & 255
            for cta, line, stored, was_atomic in known:
                if cta is thread.cta or not (stores or stored) or (atomic and was_atomic):
                    continue
                if not (stores and stored and same and not was_atomic):
                    self.among_blocks.add((min(line, statement.line), max(line, statement.line)))
            known.add((thread.cta, statement.line, stores, atomic))

    def access(
        self, thread: Any, space: str, address: int, size: int, stores: bool, value: int | None
    ) -> None:
        space, place = thread.resolve(space, address)
        if space == "global":
            self.access_global(thread, place, size, stores, value)
        if space != "shared":
            return
        statement = thread.frame.function.code[thread.frame.pc]
        atomic = statement.base in ("atom", "red")
        clocks = self.ctas[thread.cta]
        warp = thread.number // 32
        mine = clocks.clocks[warp]
        for byte in range(place, place + size):
            known = clocks.accesses[byte]
            same = value is not None and thread.cta.shared[byte] == value >> 8 * (byte - place) & 255
            for other, time, line, stored, was_atomic in known:
                if other == warp or not (stores or stored) or (atomic and was_atomic):
                    continue
                if time < mine[other] or (stores and stored and same and not atomic and not was_atomic):
                    continue
                self.pairs.add((min(line, statement.line), max(line, statement.line)))
            entry = (warp, mine[warp], statement.line, stores, atomic)
            if entry not in known:
                known.append(entry)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:
    """The interpreter with its loads, stores and barriers watched."""
    found = Watcher()
    load, store, settle = threads.Thread.load, threads.Thread.store, exchange.settle_barrier

    def watched_load(self: Any, space: str, address: int, size: int, align: int = 0) -> int:
        found.access(self, space, address, size, False, None)
        return load(self, space, address, size, align)

    def watched_store(self: Any, space: str, address: int, size: int, value: int) -> None:
        found.access(self, space, address, size, True, value)
        store(self, space, address, size, value)

    def watched_settle(cta: Any, number: int) -> None:
        barrier = cta.barriers[number]
        settle(cta, number)
        if cta.barriers.get(number) is not barrier:
            found.ctas[cta].meet(list(barrier.arrived))

    monkeypatch.setattr(threads.Thread, "load", watched_load)
    monkeypatch.setattr(threads.Thread, "store", watched_store)
    monkeypatch.setattr(exchange, "settle_barrier", watched_settle)
    monkeypatch.setattr(threads, "settle_barrier", watched_settle)
    yield found


#: of the arguments of a launch others
Change = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def races_of(text: str, case: Case, change: Change = tuple) -> tuple[list[ge.Race], bool]:
    """What the engine finds in all launches of a case, and whether they ended."""
    device = ge.Device(observe=set(), races="note")
    module = ge.parse(text, path=case.ptx.name)
    found: list[ge.Race] = []

    def launch_one(launch: Launch, args: tuple[Any, ...]) -> None:
        args = change(args)
        arrays = {id(arg): device.array(arg) for arg in args if isinstance(arg, np.ndarray)}
        given = [arrays.get(id(arg), arg) for arg in args]
        profile = device.launch(
            module[launch.entry], launch.grid, launch.block, given, shared_bytes=launch.shared_bytes
        )
        found.extend(profile.races)
        for arg in args:
            if isinstance(arg, np.ndarray):
                arg[...] = arrays[id(arg)].numpy()

    try:
        execute(case.program(), launch_one)
    except ge.EngineError:
        return found, False
    return found, True


def line_of(access: ge.RaceAccess) -> int:
    return int(access.location.split(":")[1])


def mutants(case: Case) -> Iterator[tuple[int, str]]:
    """The text without one of the barriers of the kernels that the case launches, and its line; first the text as it is."""
    text = case.ptx.read_text()
    yield 0, text
    entries = {launch.entry for launch in case.program().launches}
    for found in _BARRIER.finditer(text):
        if re.findall(r"\.entry\s+(\w+)", text[: found.start()])[-1] in entries:
            line = text.count("\n", 0, found.end()) + 1
            yield line, text[: found.start()] + "\n" * found.group().count("\n") + text[found.end() :]


@pytest.mark.parametrize("name", NAMES)
def test_barriers_that_are_left_out(name: str, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _BY_NAME[name]
    told = []
    for line, text in mutants(case):
        watcher.ctas.clear()
        watcher.pairs.clear()
        try:
            execute(case.program(), Interpreter(text))
        except OracleError:
            assert watcher.pairs  # what it read sent it out of bounds
        races, ended = races_of(text, case)
        with monkeypatch.context() as patched:
            # as if the launch were large enough to find out which accesses need no check
            patched.setattr("gpuperf_engine.jit.races._WORTH_IT", 0)
            assert races_of(text, case) == (races, ended)
        pairs = {tuple(sorted((line_of(race.first), line_of(race.second)))) for race in races}
        assert pairs <= watcher.pairs, line
        assert bool(pairs) == bool(watcher.pairs) or not ended, line
        told.append(bool(pairs))
    assert not told[0]
    assert any(told[1:])


#: cases, and opcodes that order asynchronous copies and products there
ASYNCHRONOUS = {
    "hgemm_mma-64x64x160": ("cp.async.wait_group", "bar.sync"),
    "triton_matmul.sm_80-80x48x48": ("cp.async.wait_group", "bar.sync"),
    "triton_matmul.sm_90-80x48x48": ("cp.async.wait_group", "wgmma.wait_group.sync.aligned", "bar.sync"),
    "triton_attention.sm_80-1x80": ("cp.async.wait_group", "bar.sync"),
    "triton_attention.sm_90-1x80": ("cp.async.wait_group", "wgmma.wait_group.sync.aligned", "bar.sync"),
}


def occurrences(text: str, case: Case, opcode: str) -> list[re.Match[str]]:
    """Of an opcode in the kernel that a case launches."""
    (entry,) = {launch.entry for launch in case.program().launches}
    wanted = re.compile(rf"(?<![\w.]){re.escape(opcode)}\b[^;]*;")
    return [
        item
        for item in wanted.finditer(text)
        if re.findall(r"\.entry\s+(\w+)", text[: item.start()])[-1] == entry
    ]


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_waits_that_are_left_out(name: str) -> None:
    """What the interpreter did once, without the order that one instruction makes, tells which lines race."""
    case = _BY_NAME[name]
    text = case.ptx.read_text()
    with traced() as trace:
        execute(case.program(), Interpreter(text))
    assert trace.races() == set() and races_of(text, case) == ([], True)
    for opcode in ASYNCHRONOUS[name]:
        told = []
        for item in occurrences(text, case, opcode):
            line = text.count("\n", 0, item.start()) + 1
            races, _ = races_of(text[: item.start()] + text[item.end() :], case)
            pairs = {tuple(sorted((line_of(race.first), line_of(race.second)))) for race in races}
            wanted = trace.races(line)
            assert pairs <= wanted, (opcode, line)
            assert bool(pairs) == bool(wanted), (opcode, line)
            told.append(bool(pairs))
        assert any(told), opcode


#: for each fence in order whether the async proxy lacks it (manual, "Async proxy", ``wgmma.mma_async``, ``cp.async``)
FENCES = {
    # the only one between cp.async, in the generic proxy, and the products that read what they brought
    "triton_matmul.sm_90-80x48x48": [True],
    # Q comes by st.shared and K and V by cp.async; the second fence has nothing to add, as the wait before the first one is for both
    "triton_attention.sm_90-1x80": [True, False],
    "hgemm_wgmma-128x128x64": [True],
    # by the warps that copy, before they arrive at the mbarrier for which those that multiply wait
    "hgemm_specialised-128x256x64": [True],
}


@pytest.mark.parametrize("name", FENCES)
def test_fences_that_are_left_out(name: str) -> None:
    case = _BY_NAME[name]
    text = case.ptx.read_text()
    told = []
    for item in occurrences(text, case, "fence.proxy.async.shared::cta"):
        races, _ = races_of(text[: item.start()] + text[item.end() :], case)
        assert all(race.missing and race.second.opcode.startswith("wgmma.mma_async") for race in races)
        told.append(bool(races))
    assert told == FENCES[name]
    assert races_of(text, case) == ([], True)


#: cases, and which of their arguments takes the place of which other one
IN_PLACE = {
    "saxpy-1000": (2, 3),
    "transpose_padded-45x33": (2, 3),
    "heat_step-37x13": (2, 3),
    "heat_step_shared-37x13": (2, 3),
    "layernorm-3x200": (2, 5),
    "cnn_depthwise_3x3-1x2x17x9": (3, 5),
    "triton_vector_add.sm_80-1008": (0, 2),
}
RACING = {"transpose_padded-45x33", "heat_step-37x13", "heat_step_shared-37x13", "cnn_depthwise_3x3-1x2x17x9"}


@pytest.mark.parametrize("name", IN_PLACE)
def test_arrays_that_are_one(name: str, watcher: Watcher) -> None:
    case, (source, target) = _BY_NAME[name], IN_PLACE[name]
    text = case.ptx.read_text()
    run = Interpreter(text)

    def in_place(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*args[:target], args[source], *args[target + 1 :])

    def both(change: Change) -> tuple[set[Any], set[Any]]:
        def launch_one(launch: Launch, args: tuple[Any, ...]) -> None:
            watcher.begin()
            run(launch, change(args))

        watcher.among_blocks.clear()
        execute(case.program(), launch_one)
        races, ended = races_of(text, case, change)
        assert ended
        told = [race for race in races if race.space == "global"]
        assert all(race.first.block != race.second.block for race in told)
        return {tuple(sorted((line_of(race.first), line_of(race.second)))) for race in told}, set(
            watcher.among_blocks
        )

    assert both(tuple) == (set(), set())
    pairs, wanted = both(in_place)
    assert pairs <= wanted
    assert bool(pairs) == bool(wanted) == (name in RACING)
