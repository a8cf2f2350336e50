"""The time of a warp alone on its sub-partition: dependences, issue and pipes (Kleimenov and Popova's ``time(th, lat)``).

    issue(1) = 0
    issue(i) = max(issue(i-1) + 1, pipe of its unit free, max over the instructions it depends on of issue + latency)
    time     = max over i of issue(i) + latency(i)

A warp instruction occupies the pipe of its unit for 32 / lanes cycles. In the paper the *next* instruction waits for the pipe,
whatever its unit (``as_printed``); in hardware it waits only if it needs the same pipe.

``path_stalls`` divides the same time among the instructions that wait, and those that they wait for: every moment carries the
instruction that causes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...machines.occupancy import WARP_SIZE
from ..launch.inputs import NO_ORIGIN, Block, Instruction, Loop, Path

__all__ = ["PathTime", "Wait", "path_stalls", "path_time"]

_FOLLOWED_TRIPS = 8
"""The most iterations of a loop that are simulated. The steps of the last one are extrapolated to the rest."""


@dataclass(frozen=True, slots=True)
class PathTime:
    """``cycles`` of the path; ``global_latencies``: those in sequence on its critical path; ``global_loads``: executed;
    ``instructions``: static; by unit, ``heads``: the cycles before its first use, and ``tails``: the shortest remaining latency of an
    instruction that leaves the unit."""

    cycles: float
    global_latencies: float
    global_loads: float
    instructions: int
    heads: Mapping[str, float] = field(default_factory=dict, compare=False)
    tails: Mapping[str, float] = field(default_factory=dict, compare=False)


class Wait(NamedTuple):
    """Why an instruction issues later than the issue port allows. ``waiter`` waits for the result of ``producer`` (numbers of PTX
    instructions, ``Instruction.origin``) or, if ``pipe`` names a unit, for the pipe that ``producer`` occupies. ``waiter`` is
    ``NO_ORIGIN`` for the time after the last instruction has issued."""

    waiter: int
    producer: int
    pipe: str = ""


# A moment: cycles, global latencies on the dependence chain that leads to it, and the instruction that causes it. Tuples compare by
# cycles first.
_Moment = tuple[float, float, int]

# The limits of the next instruction: when each register is ready (int), the pipe of each unit is free (str), the issue port is free
# (_PORT), and the last result so far is available (_END). The prefix _FIRST marks the first use of a unit.
_Front = dict["int | str", _Moment]

# The steps of moments in the last iteration of a loop: cycles and global latencies.
_Steps = dict["int | str", tuple[float, float]]

_PORT, _END, _FIRST = ".port", ".end", "first "
_ZERO: _Moment = (0.0, 0.0, NO_ORIGIN)


@dataclass(slots=True)
class _Stalls:
    """Cycles and number of waits in a part of the path."""

    found: dict[Wait, tuple[float, float]] = field(default_factory=dict)

    def wait(self, wait: Wait, cycles: float) -> None:
        self.add({wait: (cycles, 1.0)}, 1.0)

    def add(self, more: Mapping[Wait, tuple[float, float]], times: float) -> None:
        for wait, (cycles, number) in more.items():
            known = self.found.get(wait, (0.0, 0.0))
            self.found[wait] = known[0] + times * cycles, known[1] + times * number

    def taken(self) -> dict[Wait, tuple[float, float]]:
        """Returns the waits found since the last call."""
        found, self.found = self.found, {}
        return found


@dataclass(frozen=True, slots=True)
class _Rules:
    lanes: Mapping[str, float]
    latencies: Mapping[str, float]
    waits: Mapping[int, float]
    issue_cycles: float
    as_printed: bool
    stalls: _Stalls | None = None
    changed: dict[int, frozenset[int | str]] = field(default_factory=dict)
    """Keys of the front that a part can change, by the identity of its body."""


def path_time(
    path: Path,
    lanes: Mapping[str, float],
    latencies: Mapping[str, float],
    *,
    waits: Mapping[int, float] | None = None,
    issue_rate: float = 1.0,
    as_printed: bool = False,
) -> PathTime:
    """The time of the path for one warp alone on its sub-partition.

    ``lanes`` are lanes per sub-partition by unit; ``latencies`` are cycles by name of the latency (``none`` is 0 and may be omitted;
    ``global`` is required if the path loads); ``waits`` are additional cycles of memory instructions, by number of the instruction.
    Raises ``KeyError`` for a unit or latency that is not given.
    """
    rules = _Rules(lanes, latencies, waits or {}, 1.0 / issue_rate, as_printed)
    front: _Front = {_PORT: _ZERO, _END: _ZERO}
    _follow(path, front, rules)
    end = max(front[_END], front[_PORT])
    heads = {unit: front[_FIRST + unit][0] for unit in lanes if unit in front}
    tails: dict[str, float] = {}
    _tails(path, rules, tails)
    return PathTime(end[0], end[1], _loads(path), _static(path), heads, tails)


def path_stalls(
    path: Path,
    lanes: Mapping[str, float],
    latencies: Mapping[str, float],
    *,
    waits: Mapping[int, float] | None = None,
    issue_rate: float = 1.0,
) -> dict[Wait, tuple[float, float]]:
    """The cycles in which the warp of ``path_time`` cannot issue, and the number of waits, by cause.

    They and the issue cycles add up to ``PathTime.cycles``.
    """
    stalls = _Stalls()
    rules = _Rules(lanes, latencies, waits or {}, 1.0 / issue_rate, False, stalls)
    front: _Front = {_PORT: _ZERO, _END: _ZERO}
    _follow(path, front, rules)
    left = front[_END][0] - front[_PORT][0]
    if left > 0.0:
        stalls.wait(Wait(NO_ORIGIN, front[_END][2]), left)
    return stalls.found


def _static(path: Path) -> int:
    return sum(_static(part.body) if isinstance(part, Loop) else len(part.instructions) for part in path)


def _tails(path: Path, rules: _Rules, tails: dict[str, float]) -> None:
    for part in path:
        if isinstance(part, Loop):
            _tails(part.body, rules, tails)
            continue
        for item in part.instructions:
            if item.unit != "none":
                latency = 0.0 if item.latency == "none" else rules.latencies[item.latency]
                after = latency + rules.waits.get(item.site, 0.0) - WARP_SIZE / rules.lanes[item.unit]
                tails[item.unit] = max(0.0, min(after, tails.get(item.unit, after)))


def _loads(path: Path) -> float:
    count = 0.0
    for part in path:
        if isinstance(part, Loop):
            count += part.trips * _loads(part.body)
        else:
            count += part.weight * sum(item.latency == "global" for item in part.instructions)
    return count


def _follow(path: Path, front: _Front, rules: _Rules) -> None:
    for part in path:
        if isinstance(part, Loop):
            _loop(part, front, rules)
        elif part.weight >= 1.0:
            _issue(part.instructions, front, rules)
        elif part.weight > 0.0:
            _mix(Block(part.instructions), part.weight, front, rules)


def _issue(instructions: tuple[Instruction, ...], front: _Front, rules: _Rules) -> None:
    port, end = front[_PORT], front[_END]
    stalls = rules.stalls
    lanes, latencies, further, issue_cycles, as_printed = (
        rules.lanes,
        rules.latencies,
        rules.waits,
        rules.issue_cycles,
        rules.as_printed,
    )
    ready = front.get
    for item in instructions:
        unit, latency, origin = item.unit, item.latency, item.origin
        executed = unit != "none"
        start = port if executed else _ZERO
        for register in item.reads:
            moment = ready(register, _ZERO)
            if moment > start:
                start = moment
        if executed:
            moment = ready(unit, _ZERO)
            if moment > start:
                start = moment
            cycles, waits, producer = start
            if stalls is not None and cycles > port[0]:
                stalls.wait(Wait(origin, producer, unit if start is moment else ""), cycles - port[0])
            busy = WARP_SIZE / lanes[unit]
            if as_printed:
                port = (cycles + max(busy, issue_cycles), waits, origin)
            else:
                port = (cycles + issue_cycles, waits, origin)
                if unit not in front:
                    front[_FIRST + unit] = start
                front[unit] = (cycles + busy, waits, origin)
        done = start
        if latency != "none":
            cycles = latencies[latency]
            if item.site in further:
                cycles += further[item.site]
            done = (start[0] + cycles, start[1] + (latency == "global"), origin)
        for register in item.writes:
            # Hardware keeps the order of writes: a register is not ready before its previous value.
            before = ready(register)
            front[register] = done if before is None or done > before else before
        if done > end:
            end = done
    front[_PORT], front[_END] = port, end


def _changed(part: Block | Loop, rules: _Rules) -> frozenset[int | str]:
    """Keys of the front that the part can change: most parts write few of a kernel's registers."""
    body = part.body if isinstance(part, Loop) else part.instructions
    keys = rules.changed.get(id(body))
    if keys is None:
        written: set[int | str] = {_PORT, _END}
        if isinstance(part, Loop):
            for inner in part.body:
                written |= _changed(inner, rules)
        else:
            for item in part.instructions:
                written.update(item.writes)
            for unit in {item.unit for item in part.instructions}:
                written.update((unit, _FIRST + unit))
        keys = rules.changed[id(body)] = frozenset(written)
    return keys


def _mix(part: Block | Loop, weight: float, front: _Front, rules: _Rules) -> None:
    """Follows a part that is executed with probability ``weight``: each moment advances by that share of its step."""
    taken = dict(front)
    stalls = rules.stalls
    before_it = {} if stalls is None else stalls.taken()
    _follow((part,), taken, rules)
    if stalls is not None:
        in_it = stalls.taken()
        stalls.add(before_it, 1.0)
        stalls.add(in_it, weight)
    start = front[_PORT]
    for key in _changed(part, rules) & taken.keys():
        after, before = taken[key], front.get(key, start)
        if after is not before or key not in front:
            front[key] = (
                before[0] + weight * (after[0] - before[0]),
                before[1] + weight * (after[1] - before[1]),
                after[2],
            )


def _loop(loop: Loop, front: _Front, rules: _Rules) -> None:
    whole = int(loop.trips)
    steps: _Steps = {}
    changed = _changed(loop, rules)
    stalls = rules.stalls
    found = {} if stalls is None else stalls.taken()
    done = 0
    while done < min(whole, _FOLLOWED_TRIPS):
        before = {key: front.get(key, _ZERO) for key in changed}
        _follow(loop.body, front, rules)
        done += 1
        last, steps = steps, {key: _step(before[key], front[key]) for key in changed & front.keys()}
        following = done < min(whole, _FOLLOWED_TRIPS) and not _same(steps, last)
        if stalls is not None:
            trip = stalls.taken()
            stalls.add(found, 1.0)
            stalls.add(trip, 1.0 if following else 1.0 + whole - done)
            found = stalls.taken()
        if not following:
            break
    if stalls is not None:
        stalls.add(found, 1.0)
    for key, step in steps.items():
        now = front[key]
        front[key] = now[0] + step[0] * (whole - done), now[1] + step[1] * (whole - done), now[2]
    front[_END] = max(front.values())
    if loop.trips > whole:
        _mix(Loop(loop.body, 1.0), loop.trips - whole, front, rules)


def _step(before: _Moment, now: _Moment) -> tuple[float, float]:
    return now[0] - before[0], now[1] - before[1]


def _same(steps: _Steps, last: _Steps) -> bool:
    return steps.keys() == last.keys() and all(
        abs(step[0] - last[key][0]) <= 1e-9 * max(1.0, abs(step[0])) for key, step in steps.items()
    )
