"""The schedule on warps that are scripts: order of time slices, barriers, windows, and launches that cannot end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from gpuperf_engine.errors import Deadlock
from gpuperf_engine.simt.barriers import Barriers
from gpuperf_engine.simt.clusters import WAITING, ClusterBarrier
from gpuperf_engine.simt.faults import Waiting
from gpuperf_engine.simt.schedule import Cluster, Cta, Pending, Room, Status, run_ctas

Step = Callable[["Script"], Status]


class Script:
    """A warp that does one thing each time it is resumed, and ends after the last."""

    def __init__(
        self, name: str, log: list[str], barriers: Barriers, index: int, steps: Iterable[str]
    ) -> None:
        self.name, self.log, self.barriers, self.index = name, log, barriers, index
        self.steps = list(steps)
        self.live = 0xFFFFFFFF
        self.yielding = self.arrived = False

    def begin_slice(self, quantum: int) -> None:
        pass

    def resume(self) -> Status:
        if not self.steps:
            self.live = 0
            return Status.DONE
        step = self.steps.pop(0)
        self.log.append(f"{self.name}:{step}")
        if step == "slice":
            return Status.SLICE_OVER
        if step == "circle":
            self.steps.insert(0, "slice" if self.yielding else step)
            return Status.SLICE_OVER
        kind, _, rest = step.partition(" ")
        number, _, expected = rest.partition("/")
        self.barriers.arrive(
            int(number),
            self.index,
            self.live,
            live=self.live,
            expected=int(expected or 0),
            waits=kind == "sync",
        )
        return Status.WAITS if kind == "sync" else Status.READY

    def release(self, lanes: int, true: int, false: int) -> None:
        self.log.append(f"{self.name}:released")

    def is_complete(self) -> bool:
        return True

    def arrive_diverged(self) -> bool:
        changed, self.arrived = not self.arrived and self.name == "arrives", True
        if changed:
            self.steps.insert(0, "slice")
            self.log.append(f"{self.name}:arrives")
        return changed

    @property
    def runs(self) -> bool:
        return self.arrived and self.name == "arrives"

    def force_yield(self) -> bool:
        changed, self.yielding = not self.yielding and self.name == "helpful", True
        return changed

    def state(self) -> Iterator[bytes]:
        yield repr((self.steps, self.live)).encode()

    def waiting(self) -> Iterator[Waiting]:
        return iter(())


def run(ctas: list[list[list[str]]], resident: int, names: str = "") -> list[str]:
    """``ctas[c][w]`` are the steps of warp w of CTA c; the log of what happened."""
    log: list[str] = []

    def start(index: int) -> Cluster:
        barriers = Barriers()
        warps = [
            Script(names or f"{index}{'abc'[place]}", log, barriers, place, steps)
            for place, steps in enumerate(ctas[index])
        ]
        return Cluster([Cta(warps, barriers, lambda: ())], ClusterBarrier(), [WAITING])

    run_ctas(Pending(len(ctas)), Room(resident, resident), start, lambda: ())
    return log


def test_warps_in_index_order_turn_by_turn() -> None:
    log = run([[["slice", "slice"], ["slice"]], [["slice", "slice"]]], resident=2)
    assert log == ["0a:slice", "0b:slice", "1a:slice", "0a:slice", "1a:slice"]


def test_a_barrier_lets_warps_go_on_in_the_same_visit() -> None:
    log = run([[["sync 0", "slice"], ["sync 0", "slice"]], [["slice"]]], resident=2)
    assert log == [
        "0a:sync 0", "0b:sync 0", "0a:released", "0b:released", "0a:slice", "0b:slice", "1a:slice",
    ]  # fmt: skip


def test_arriving_without_waiting_steps_aside_until_the_next_pass() -> None:
    log = run([[["arrive 1/64", "slice"], ["slice"], ["sync 1/64"]]], resident=1)
    assert log == ["0a:arrive 1/64", "0b:slice", "0c:sync 1/64", "0c:released", "0a:slice"]


def test_the_place_of_a_finished_cta_goes_to_the_next() -> None:
    log = run([[["slice"]], [["slice", "slice", "slice"]], [["slice"]], [["slice"]]], resident=2)
    assert log == ["0a:slice", "1a:slice", "1a:slice", "1a:slice", "2a:slice", "3a:slice"]


def test_a_barrier_that_nobody_can_complete() -> None:
    with pytest.raises(Deadlock, match="no thread can continue"):
        run([[["sync 0"], ["sync 1"]]], resident=1)


def test_lanes_at_aligned_barriers_arrive_when_nothing_else_can_go_on() -> None:
    log = run([[["slice", "sync 0"], ["slice", "sync 1"]]], resident=1, names="arrives")
    assert log[:5] == ["arrives:slice"] * 2 + ["arrives:sync 0", "arrives:sync 1", "arrives:arrives"]


def test_a_launch_that_runs_in_circles() -> None:
    with pytest.raises(Deadlock, match="no thread can make progress"):
        run([[["circle"]]], resident=1)


def test_urging_helps() -> None:
    log = run([[["circle"]]], resident=1, names="helpful")
    assert log[0] == "helpful:circle" and log[-1] == "helpful:slice"
