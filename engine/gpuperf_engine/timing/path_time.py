"""How long the longest warp would take alone: dependences, issue and pipes (Kleimenov and Popova's ``time(th, lat)``).

    issue(1) = 0
    issue(i) = max(issue(i-1) + 1, pipe of its unit free, max over the instructions it depends on of issue + latency)
    time     = max over i of issue(i) + latency(i)

A warp instruction keeps the pipe of its unit for 32 / lanes cycles. The paper lets the *next* instruction wait for that,
whatever its unit (``as_printed``); hardware lets it wait only if it needs the same pipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .inputs import Block, Instruction, Loop, Path
from .occupancy import WARP_SIZE

__all__ = ["PathTime", "path_time"]

_FOLLOWED_TRIPS = 8
"""Iterations of a loop that are followed at most; what each of its moments moved by in the last, it goes on moving by."""


@dataclass(frozen=True, slots=True)
class PathTime:
    """Cycles of the path, the ``global`` latencies that lie one after the other on its critical part, how many global loads
    it executes in all, how many instructions it holds statically, and by unit the cycles before it is taken for the first time
    (``heads``) and those that the quickest of its instructions takes after it has left the unit (``tails``)."""

    cycles: float
    global_latencies: float
    global_loads: float
    instructions: int
    heads: Mapping[str, float] = field(default_factory=dict, compare=False)
    tails: Mapping[str, float] = field(default_factory=dict, compare=False)


# A moment is (cycles, global latencies on the chain that leads to it): tuples compare by cycles first.
_Moment = tuple[float, float]

# What limits the next instruction: the moment at which each register is ready (int), the pipe of each unit is free (str), the
# issue port is free (_PORT), and the last result of all so far is there (_END). With _FIRST before its name, when a unit was first
# taken.
_Front = dict["int | str", _Moment]

_PORT, _END, _FIRST = ".port", ".end", "first "
_ZERO: _Moment = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Rules:
    lanes: Mapping[str, float]
    latencies: Mapping[str, float]
    waits: Mapping[int, float]
    issue_cycles: float
    as_printed: bool
    changed: dict[int, frozenset[int | str]] = field(default_factory=dict)
    """Keys of the front that following a part can change, by the identity of its body."""


def path_time(
    path: Path,
    lanes: Mapping[str, float],
    latencies: Mapping[str, float],
    *,
    waits: Mapping[int, float] | None = None,
    issue_rate: float = 1.0,
    as_printed: bool = False,
) -> PathTime:
    """Time of the path for one warp alone on its sub-partition.

    ``lanes`` are lanes per sub-partition by unit, ``latencies`` cycles by latency name (``none`` is 0 and may be left
    out; ``global`` must be there if the path loads), ``waits`` what the results of memory instructions take beyond that, by
    number of the instruction. ``KeyError`` for a unit or latency that is not given.
    """
    rules = _Rules(lanes, latencies, waits or {}, 1.0 / issue_rate, as_printed)
    front: _Front = {_PORT: _ZERO, _END: _ZERO}
    _follow(path, front, rules)
    end = max(front[_END], front[_PORT])
    heads = {unit: front[_FIRST + unit][0] for unit in lanes if unit in front}
    tails: dict[str, float] = {}
    _tails(path, rules, tails)
    return PathTime(end[0], end[1], _loads(path), _static(path), heads, tails)


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
    lanes, latencies, further, issue_cycles, as_printed = (
        rules.lanes,
        rules.latencies,
        rules.waits,
        rules.issue_cycles,
        rules.as_printed,
    )
    ready = front.get
    for item in instructions:
        unit, latency = item.unit, item.latency
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
            cycles, waits = start
            busy = WARP_SIZE / lanes[unit]
            if as_printed:
                port = (cycles + max(busy, issue_cycles), waits)
            else:
                port = (cycles + issue_cycles, waits)
                if unit not in front:
                    front[_FIRST + unit] = start
                front[unit] = (cycles + busy, waits)
        done = start
        if latency != "none":
            cycles = latencies[latency]
            if item.site in further:
                cycles += further[item.site]
            done = (start[0] + cycles, start[1] + (latency == "global"))
        for register in item.writes:
            # A register is not ready before a value that it was given earlier: hardware keeps the writes in order.
            before = ready(register)
            front[register] = done if before is None or done > before else before
        if done > end:
            end = done
    front[_PORT], front[_END] = port, end


def _changed(part: Block | Loop, rules: _Rules) -> frozenset[int | str]:
    """Keys of the front that following the part can change: most parts write few of a kernel's registers."""
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
    """Follow a part that is executed only in a share of the cases: everything moves by that share of its way."""
    taken = dict(front)
    _follow((part,), taken, rules)
    start = front[_PORT]
    for key in _changed(part, rules) & taken.keys():
        after, before = taken[key], front.get(key, start)
        if after is not before or key not in front:
            front[key] = (
                before[0] + weight * (after[0] - before[0]),
                before[1] + weight * (after[1] - before[1]),
            )


def _loop(loop: Loop, front: _Front, rules: _Rules) -> None:
    whole = int(loop.trips)
    steps: _Front = {}
    changed = _changed(loop, rules)
    done = 0
    while done < min(whole, _FOLLOWED_TRIPS):
        before = {key: front.get(key, _ZERO) for key in changed}
        _follow(loop.body, front, rules)
        done += 1
        last, steps = steps, {key: _step(before[key], front[key]) for key in changed & front.keys()}
        if done < whole and _same(steps, last):
            break
    for key, step in steps.items():
        now = front[key]
        front[key] = now[0] + step[0] * (whole - done), now[1] + step[1] * (whole - done)
    front[_END] = max(front.values())
    if loop.trips > whole:
        _mix(Loop(loop.body, 1.0), loop.trips - whole, front, rules)


def _step(before: _Moment, now: _Moment) -> _Moment:
    return now[0] - before[0], now[1] - before[1]


def _same(steps: _Front, last: _Front) -> bool:
    return steps.keys() == last.keys() and all(
        abs(step[0] - last[key][0]) <= 1e-9 * max(1.0, abs(step[0])) for key, step in steps.items()
    )
