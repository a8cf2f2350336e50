"""How far each model of time is from each measured set of the repository, by GPU and kernel: ``make accuracy``.

Written to standard output, as it takes minutes; the page ``docs/accuracy.md`` has the default model alone. Simulations take part of a
second for a launch: they predict one row in ``--every`` (10); the first needs an assembler. What they cannot simulate is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from benchmarks.accuracy import Point, directions, score

__all__ = ["Set", "best", "lines", "main", "sets"]

_SIMULATION, _EXPANDED = "simulation", "simulation-expanded"
_SIMULATIONS = _SIMULATION, _EXPANDED


@dataclass(frozen=True)
class Set:
    """Measured rows. ``group``: GPU and kernel of a row; ``measured``: its µs (or clocks); ``predicted``: by row and model, ``None``
    where the model cannot. ``whole``: all rows are simulated."""

    name: str
    rows: Sequence[Any]
    group: Callable[[Any], tuple[str, str]]
    measured: Callable[[Any], float]
    predicted: Callable[[Any, str], float | None]
    whole: bool = False


def best(points: Sequence[Point]) -> float:
    """How much longer than the best took, measured, what is predicted to be the best: 0 for the best itself."""
    chosen = min(points, key=lambda point: point.predicted)
    return chosen.measured / min(point.measured for point in points) - 1


def lines(one: Set, models: Sequence[str], every: int) -> Iterator[str]:
    """A table for each set: its GPUs and kernels, each by model."""
    yield from (
        f"## {one.name}",
        "",
        "| GPU | kernel | model | points | mean | Spearman | direction | best |",
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in one.rows:
        gpu, kernel = one.group(row)
        groups.setdefault((gpu, kernel), []).append(row)
        if kernel:
            groups.setdefault((gpu, ""), []).append(row)
    groups[("", "")] = list(one.rows)
    for (gpu, kernel), rows in sorted(groups.items()):
        for model in models:
            some = rows[::every] if model in _SIMULATIONS and not one.whole else rows
            points = [
                Point("", one.measured(row), time)
                for row in some
                if (time := one.predicted(row, model)) is not None
            ]
            if points:
                yield _row((gpu or "all", kernel or "all", model), points, bool(kernel))
    yield ""


def _row(names: tuple[str, ...], points: Sequence[Point], same_work: bool) -> str:
    found, (asked, right) = score(points), directions(_pairs(points))
    agreed = f"{100 * right / asked:.1f} % of {asked:,}" if asked else "–"
    rank = "–" if found.spearman != found.spearman else f"{found.spearman:.3f}"
    numbers = (
        f"{found.count:,}",
        f"{100 * found.mean:.1f} %",
        rank,
        agreed,
        f"+{100 * best(points):.1f} %" if same_work else "–",
    )
    return "| " + " | ".join((*names, *numbers)) + " |"


def _pairs(points: Sequence[Point]) -> Iterable[tuple[Point, Point]]:
    """All; of many points those at most 50 rows apart."""
    if len(points) <= 200:
        return combinations(points, 2)
    return ((one, other) for place, one in enumerate(points) for other in points[place + 1 : place + 51])


def sets() -> list[Set]:
    """All measured sets of the repository that are times of launches."""
    from tests.timing import convolution, products, roofline, small_kernels, streams

    def of_error(error: Callable[..., float], row: Any, model: str) -> float | None:
        return None if model in _SIMULATIONS else (1 + error(row, model)) * row.microseconds

    streamed = [
        row for name in ("stream_measured.csv", "stream_heldout.csv") for row in streams.measured(name)
    ]
    bound = list(roofline.measured())
    small = [row for row in small_kernels.measured() if small_kernels.judged(row)]
    return [
        Set(
            "Streams, cold caches",
            streamed,
            lambda row: (row.machine.id, row.kernel),
            lambda row: float(row.microseconds),
            _streamed,
        ),
        Set(
            "Small kernels, warm caches",
            small,
            lambda row: (row.machine.id, small_kernels.REGIONS[small_kernels.region(row)]),
            lambda row: float(row.microseconds),
            partial(of_error, small_kernels.error),
        ),
        Set(
            "Roofline",
            bound,
            lambda row: (roofline.MACHINES[row.gpu], f"bound by {row.bound}"),
            lambda row: float(row.flops / row.rate),
            lambda row, model: (
                row.flops / roofline.predicted(row, model) if model not in _SIMULATIONS else None
            ),
        ),
        Set(
            "Convolution",
            list(convolution.measured(convolution.DEVELOPMENT)),
            lambda row: (row.machine_id, f"filter of {row.filter} × {row.filter}"),
            lambda row: float(row.microseconds),
            _convolved,
        ),
        Set(
            "Products",
            list(products.measured()),
            lambda row: (row.machine_id, "eleven stages"),
            lambda row: float(row.microseconds),
            _multiplied,
            whole=True,
        ),
    ]


def _streamed(row: Any, model: str) -> float | None:
    from gpuperf_engine.errors import EngineError
    from gpuperf_engine.timing.models.simulation import NotRun
    from tests.timing import streams

    if model not in _SIMULATIONS:
        return float((1 + streams.error(row, model)) * row.microseconds)
    try:
        error = streams.simulated_error(row, assembled=model == _SIMULATION)
        return float((1 + error) * row.microseconds)
    except (EngineError, NotRun):
        return None


def _convolved(row: Any, model: str) -> float | None:
    from gpuperf_engine.errors import EngineError
    from gpuperf_engine.timing.models.simulation import NotRun
    from tests.timing import convolution

    error = (
        partial(convolution.simulated_error, assembled=model == _SIMULATION)
        if model in _SIMULATIONS
        else partial(convolution.error, model=model)
    )
    try:
        return float((1 + error(row)) * row.microseconds)
    except (EngineError, NotRun):
        return None


def _multiplied(row: Any, model: str) -> float | None:
    from gpuperf_engine.errors import EngineError
    from gpuperf_engine.timing.models.simulation import NotRun
    from tests.timing import products

    if model not in _SIMULATIONS:
        return None
    try:
        return products.simulated_time(row, assembled=model == _SIMULATION)
    except (EngineError, NotRun):
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    from gpuperf_engine.timing.estimate import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=10, help="rows that the simulation predicts one of")
    given = parser.parse_args(arguments)
    for one in sets():
        for line in lines(one, (*MODELS, *_SIMULATIONS), given.every):
            print(line, flush=True)


if __name__ == "__main__":
    main()
