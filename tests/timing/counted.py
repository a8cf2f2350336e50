"""Predictions by the model of PTX counts: tests that work its results out by hand ask for it, whichever simulations are possible."""

from __future__ import annotations

from typing import Any

from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.results import Estimate, Profile
from gpuperf_engine.timing.estimate import MODELS
from gpuperf_engine.timing.estimate import estimate as predict
from gpuperf_engine.timing.launch.inputs import TimingInput

__all__ = ["estimate"]


def estimate(profile: Profile | TimingInput, machine: Machine | str, **options: Any) -> Estimate:
    """``timing.estimate.estimate`` by the first of ``MODELS``, if ``options`` name no model."""
    return predict(profile, machine, **{"model": MODELS[0], **options})
