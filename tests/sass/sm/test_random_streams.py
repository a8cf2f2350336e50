"""Any stream of instructions ends in a time or is refused: also code that no assembler writes, which must not lead out of the arrays
that the compiled simulation reads. None of this needs an assembler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gpuperf_engine.jit.ir.sm_records import END, Kind, Op, Signal
from gpuperf_engine.sass.graph import StateAccess, build_graph
from gpuperf_engine.sass.listing import Decoded, Listing
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.asynchronous import Copies
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.numbers import CodeCaches, SmNumbers
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.sharing import Group
from gpuperf_engine.sass.sm.simulate import Memory, Simulated, simulate
from gpuperf_engine.sass.sm.streams import Class

from .machines import TOY, moves, run

PLAIN = (
    "FFMA R{a}, R{b}, R{c}, R{d}", "IMAD R{a}, R{b}, R{c}, R{d}", "MUFU.RCP R{a}, R{b}", "DFMA R{a}, R{b}, R{c}, R{d}",
    "HMMA.16816.F32 R{a}, R{b}, R{c}, R{d}", "NOP", "S2R R{a}, SR_TID.X", "MEMBAR.SC.GPU", "FENCE.VIEW.ASYNC.S", "BAR.SYNC 0x0",
    "BAR.SYNC 0x1, 0x40", "BAR.ARV 0x1, 0x40", "BAR.SYNC R{a}, R{b}", "BAR.RED.POPC 0xf, PT", "LDGDEPBAR", "DEPBAR.LE SB0, 0x0",
    "WARPSYNC 0xffffffff", "HGMMA.64x128x16.F32 R{a}, gdesc[UR4], R{b}, gsb0", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE gsb0, 0x0",
    "UCGABAR_ARV", "UCGABAR_WAIT", "@!PT LDG.E R{a}, [R{b}.64]", "@!PT BAR.SYNC 0x0", "KILL", "EXIT", "UNHEARD.OF R{a}, R{b}",
)  # fmt: skip
MEMORY = (
    "LDG.E R{a}, [R{b}.64]", "LDG.E.128 R{a}, [R{b}.64]", "STG.E [R{b}.64], R{a}", "LDS.128 R{a}, [R{b}]", "STS [R{b}], R{a}",
    "LDL R{a}, [R{b}]", "STL.128 [R{b}], R{a}", "ATOMG.E.ADD R{a}, [R{b}.64], R{c}", "RED.E.ADD [R{b}.64], R{a}",
    "SHFL.BFLY PT, R{a}, R{b}, 0x1, 0x1f", "LDGSTS.E [R{b}], [R{c}.64]", "LDSM.16.M88.4 R{a}, [R{b}]",
)  # fmt: skip
BESIDE = (
    "SYNCS.EXCH.64 URZ, [UR4], UR6", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R{a}], RZ", "SYNCS.ARRIVE.TRANS64 RZ, [R{a}], R{b}",
    "SYNCS.ARRIVE.TRANS64.OPTOUT.ART0 R{a}, [R{b}], R{c}", "SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [R{a}], R{b}",
    "SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [R{a}], RZ", "ARRIVES.LDGSTSBAR.64.TRANSCNT [R{a}]", "BAR.ARV R{a}, R{b}",
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R{a}], R{b}", "UBLKCP.S.G [UR4], [UR6], UR8",
)  # fmt: skip


class Streams:
    """Random code, and warps that execute its blocks in any order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        pick = self.random.choice
        self.lines, self.mbarriers, self.cluster = pick([1, 40, 300]), pick([1, 8]), pick([1, 1, 1, 2, 4])
        texts, labels = [], {"k": 0}
        for block in range(pick([1, 2, 5])):
            texts += [self.instruction() for _ in range(pick([0, 1, 6, 12]))] + [f"@P0 BRA `(.L_{block})"]
            labels[f".L_{block}"] = len(texts)
        texts.append(pick(["EXIT", "EXIT", *PLAIN[5:10]]).format(a=0, b=1, c=2, d=3))
        items = tuple(
            Decoded(".text.k", "k", 16 * at, text, 0, self.random.getrandbits(128))
            for at, text in enumerate(texts)
        )
        self.graph = build_graph(Listing(items, labels, frozenset()), "k")
        signals = [Signal.ARRIVES, Signal.ARRIVES | Signal.TIMES, Signal.DROPS, Signal.DROPS | Signal.TIMES]
        for position, item in enumerate(items):
            if item.base == "LDS" and self.random.random() < 0.3:
                kind = self.random.choice(["init", "signal", "test"])
                how = self.random.choice(signals) if kind == "signal" else 0
                self.graph.states[position] = StateAccess(kind, how)

    def instruction(self) -> str:
        pick = self.random.choice
        numbers = {name: pick([0, 1, 2, 8, 100, 252, 254]) for name in "abcd"}
        text = pick(pick((PLAIN, MEMORY, BESIDE))).format(**numbers)
        return f"@P0 {text}" if self.random.random() < 0.1 and text[0] != "@" else text

    def machine(self) -> SmNumbers:
        pick = self.random.choice
        caches = CodeCaches(512, 4, 9, 1024, 16.0, 100, 32.0)
        return replace(
            TOY, parts=pick([1, 2, 4]), queue=pick([1, 5, 32]), lsu_clocks=pick([1, 32]), turnaround=pick([0, 1, 400]),
            cta_rate=pick([0.001, 100.0]), tag_rate=pick([1, 4]), code=pick([None, CodeCaches(128, 1, 2, 0, 32.0, 100, 32.0), caches]),
        )  # fmt: skip

    def access(self, most: int) -> list[int]:
        count = self.random.choice([0, 1, 4, most]) if most else 0
        lines = [self.random.randrange(self.lines) << 4 | self.random.randint(1, 15) for _ in range(count)]
        return [self.random.choice([1, 4, 128]) | count << 8 | self.random.randint(1, 32) << 16, *lines]

    def words(self, kind: int, state: bool) -> list[int]:
        """What a stream has of an instruction of some kind, which may access the ``state`` of an mbarrier too."""
        draw, pick = self.random.randrange, self.random.choice
        if Kind.SHARED <= kind < Kind.INIT and kind != Kind.SHUFFLE and self.random.random() < 0.1:
            return [0] * (1 + (kind == Kind.COPY))
        if kind == Kind.SHARED:
            return self.access(0)
        if kind == Kind.COPY:
            return [*self.access(0), *self.access(32)]
        if Kind.LOAD <= kind <= Kind.LOCAL_STORE:
            return self.access(128)
        if kind >= Kind.INIT:
            told = [
                [
                    draw(self.mbarriers) | draw(self.cluster) << 8 | (1 + draw(32)) << 16,
                    pick([0, 2 * (2**20 - 1), 2 * (2**20 - 32), 128, 1 << 31, draw(1 << 32)]),
                ]
                for _ in range(pick([0, 1, 1, 2, 32]))
            ]
            head = pick([[0], self.access(0)]) if state else []
            return [*head, len(told), *(word for one in told for word in one)]
        if kind in (Kind.NAMED_BARRIER, Kind.NAMED_ARRIVE):
            return [pick([END, draw(16), draw(16) | 2 << 4, draw(1 << 32)])]
        if kind == Kind.TRANSFER:
            named = draw(3) | draw(self.mbarriers) << 8 | draw(self.cluster) << 16
            return pick([[END, END], [named, 0], [named, draw(256)]])
        return []

    def warp(self, kinds: list[int]) -> list[int]:
        words = []
        for _ in range(self.random.choice([1, 1, 3, 20])):
            block = self.graph.blocks[self.random.randrange(len(self.graph.blocks))]
            words.append(block.index)
            for position in range(block.start, block.end):
                words += self.words(kinds[position], position in self.graph.states)
        return [*words, END]

    def classes(self, kinds: list[int], warps: int) -> Classes:
        found = []
        for _ in range(self.cluster):
            parts = [np.array(self.warp(kinds), np.uint32) for _ in range(self.random.choice([1, warps]))]
            parts = (parts * warps)[:warps]
            stream = np.concatenate(parts)
            starts = int(stream.ctypes.data) + 4 * np.cumsum([0, *map(len, parts[:-1])])
            groups = np.array([self.random.randrange(2) for _ in range(self.lines)], np.uint8)
            lines, sectors = np.arange(self.lines, dtype=np.int64), np.full(self.lines, 15, np.uint8)
            found.append(
                Class(
                    stream,
                    starts.astype(np.int64),
                    groups,
                    lines,
                    sectors,
                    np.full(len(lines), END, np.uint32),
                )
            )
        group = Group("global", False, (0, 0, 0))
        return Classes(tuple(found), (group, group), {}, (1, 1, 1), cluster=self.cluster)

    def simulated(self) -> Simulated:
        pick, share = self.random.choice, self.random.random
        numbers = self.machine()
        operations = Operations(self.graph, numbers)
        if share() < 0.2:
            operations.change({at: self.random.getrandbits(5) for at in range(len(operations.items))})
        warps = pick([1, 1, 2, 3, 8, 32])
        classes = self.classes(operations.counted(Op.KIND, np.uint16).tolist(), warps)
        ways = [0, 1, 2, 3] + [4] * (self.cluster > 1)
        kinds = tuple(moves(pick([16, 128, 65536]), pick(ways), share()) for _ in range(3))
        memory = Memory(
            pick([1, 4, 1000]), pick([0.5, 64.0]), pick([0.1, 8.0, 100.0]), (share(), share()), (share(),) * 3, share(),
            (share(), share()),
        )  # fmt: skip
        window = pick([None, None, (0, 1000)])
        copies = Copies(kinds, self.mbarriers)
        ctas, resident = [0] * pick([1, 2, 7, 50, 500]), pick([1, 2, 4, 32])
        return simulate(operations, classes, copies, numbers, memory, ctas, resident, warps, window)


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_any_stream_takes_a_time_or_is_refused(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + 100):
        try:
            found = Streams(seed).simulated()
        except NotRun as reason:
            seen[str(reason)] += 1
            continue
        seen["time"] += 1
        assert 0 < found.ended < 1 << 40, seed
        assert found.skipped or (found.finished <= found.ended).all(), seed
    assert seen.keys() <= {"time", "its warps wait for one another forever"}
    assert seen["time"] > 50


@pytest.mark.parametrize(
    "last", ["BAR.SYNC 0x0", "BAR.SYNC 0x1, 0x40", "BAR.ARV 0x0", "UCGABAR_WAIT", "WARPGROUP.ARRIVE", "NOP"]
)
@pytest.mark.parametrize("warps", [1, 2, 4, 32])
def test_code_that_ends_without_exit_ends(last: str, warps: int) -> None:
    # The next CTA starts in the place of one whose last warp has come to the end.
    chain = ["FFMA R1, R1, R2, R1"] * 20
    whole = run([*chain, "EXIT"], [[]] * warps, ctas=9, resident=2)
    cut = run([*chain, last], [[]] * warps, ctas=9, resident=2)
    assert cut.instructions == whole.instructions == 9 * warps * 21
    assert cut.ended == pytest.approx(whole.ended, rel=0.6)


def test_warps_that_execute_nothing_are_refused() -> None:
    stream = np.array([0, END, END], np.uint32)
    starts = int(stream.ctypes.data) + 4 * np.array([0, 2], np.int64)
    none = np.zeros(0, np.uint8)
    only = Class(stream, starts, none, np.zeros(0, np.int64), none, none.astype(np.uint32))
    graph = build_graph(Listing((Decoded(".text.k", "k", 0, "EXIT", 0, 0),), {"k": 0}, frozenset()), "k")
    with pytest.raises(NotRun, match="execute nothing"):
        simulate(
            Operations(graph, TOY), Classes((only,), (), {}, (1, 1, 1)), Copies(), TOY, Memory(1, 1.0, 1.0, ()), [0], 1, 2
        )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        (replace(TOY, queue=33), "memory queues of 33"),
        (replace(TOY, pool=32), "holds 32 memory instructions"),
        (replace(TOY, parts=5), "5 sub-partitions"),
        (replace(TOY, code=CodeCaches(128, 4, 2, 0, 32.0, 100, 32.0)), "smaller than one of its sets"),
    ],
)
def test_machines_that_there_is_no_room_for_are_refused(numbers: SmNumbers, why: str) -> None:
    with pytest.raises(NotRun, match=why):
        run(["EXIT"], [[]], numbers=numbers)
