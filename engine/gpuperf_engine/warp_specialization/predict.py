"""The time of a product, configuration by configuration: waves of tiles, each as long as its last stage and its epilogue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .parameters import Parameters, StageTimes
from .problem import Integers, Problem, Tiling, Tilings
from .recurrence import Floats, load_span, math_start, math_wait
from .simulate import Timeline, simulate

__all__ = ["Prediction", "Times", "predict", "predict_one", "timeline"]


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """µs of each configuration: ``total``, and in all waves the ``waiting`` of an SM's MATH warps for loads."""

    total: Floats
    waiting: Floats
    waves: Integers
    stages: Integers
    each: StageTimes


@dataclass(frozen=True, slots=True)
class Prediction:
    """One configuration: times in µs, and the ``limiter`` of its pipeline, ``loads`` or ``math``."""

    tiling: Tiling
    total_us: float
    waiting_us: float
    waves: int
    stages: int
    tiles: int
    load_a_us: float
    load_b_us: float
    math_us: float
    epilogue_us: float
    init_us: float
    shared_bytes: int
    limiter: str


def predict(problem: Problem, tilings: Tilings, parameters: Parameters) -> Times:
    """All configurations at once: T_INIT + waves · (S_m(S) + T_MATH + T_EPILOGUE)."""
    each = parameters.stage_times(problem, tilings)
    stages = tilings.stages(problem)
    waves = tilings.waves(problem, parameters.sm_count)
    shape = {"stages": stages, "depth": tilings.depth, "dma_warps": tilings.dma_warps}
    last = math_start(each.load_a, each.load_b, each.math, **shape)
    waiting = math_wait(each.load_a, each.load_b, each.math, **shape)
    total = parameters.init_us + waves * (last + each.math + each.epilogue)
    return Times(total, waves * waiting, waves, stages, each)


def predict_one(problem: Problem, tiling: Tiling, parameters: Parameters) -> Prediction:
    tilings = Tilings.of([tiling])
    times = predict(problem, tilings, parameters)
    each = times.each
    span = load_span(each.load_a, each.load_b, tilings.dma_warps)
    math = float(np.ravel(each.math)[0])
    return Prediction(
        tiling,
        float(times.total[0]),
        float(times.waiting[0]),
        int(times.waves[0]),
        int(times.stages[0]),
        int(tilings.tiles(problem)[0]),
        float(np.ravel(each.load_a)[0]),
        float(np.ravel(each.load_b)[0]),
        math,
        float(np.ravel(each.epilogue)[0]),
        parameters.init_us,
        int(tilings.shared_bytes(problem)[0]),
        "math" if math > span.ravel()[0] else "loads",
    )


def timeline(problem: Problem, tiling: Tiling, parameters: Parameters, stages: int | None = None) -> Timeline:
    """One tile of a configuration, simulated: all of it, or until MATH of its first ``stages`` ends, if there are more. µs from the
    start of the tile."""
    found = predict_one(problem, tiling, parameters)
    whole = simulate(
        found.load_a_us,
        found.load_b_us,
        found.math_us,
        stages=found.stages,
        depth=tiling.depth,
        dma_warps=tiling.dma_warps,
        epilogue=found.epilogue_us,
    )
    return (
        whole if stages is None or stages >= found.stages else whole.until(whole.of("math")[stages - 1].end)
    )
