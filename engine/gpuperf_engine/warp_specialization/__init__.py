"""Warp-specialised matrix products (Liu and Grover, 2025): recurrences, simulation, calibration and the best tiling"""

from .calibrate import Calibration, Measurement, calibrate
from .parameters import PAPER, Coefficients, Derived, Number, Parameters
from .predict import Prediction, Times, predict, predict_one, timeline
from .problem import DTYPES, Problem, TileSpace, Tiling, Tilings
from .recurrence import StageStarts, math_start, math_wait, stage_starts
from .simulate import Interval, Timeline, simulate
from .sweep import Search, connect, sweep
from .tiling import GOALS, SOLVERS, best_tiling

__all__ = [
    "DTYPES",
    "GOALS",
    "PAPER",
    "SOLVERS",
    "Calibration",
    "Coefficients",
    "Derived",
    "Interval",
    "Measurement",
    "Number",
    "Parameters",
    "Prediction",
    "Problem",
    "Search",
    "StageStarts",
    "TileSpace",
    "Tiling",
    "Tilings",
    "Timeline",
    "Times",
    "best_tiling",
    "calibrate",
    "connect",
    "math_start",
    "math_wait",
    "predict",
    "predict_one",
    "simulate",
    "stage_starts",
    "sweep",
    "timeline",
]
