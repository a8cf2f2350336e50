"""Which model predicts a time, and whether it is that of the baseline: a time is judged by the model that predicted it there."""

from __future__ import annotations

from collections.abc import Mapping

from .fingerprint import same_work
from .records import Entry, Policy, TargetEntry

__all__ = [
    "ALWAYS",
    "BEST",
    "EXPANDED",
    "SIMULATION",
    "model_of",
    "models_of",
    "other_model",
    "with_simulated",
]

ALWAYS = "kleimenov-popova"
"""The model that is possible for every launch. An entry that names none was predicted by it."""

SIMULATION = "simulation"
"""The simulation of an SM on the machine code of an assembler, the only model that needs one."""

EXPANDED = "simulation-expanded"
"""The simulation on the machine code that the PTX suggests."""

BEST = "auto"
"""The first of ``SIMULATION``, ``EXPANDED`` and ``ALWAYS`` that is possible."""


def model_of(time_model: str, judge: str) -> str:
    """Return the model without a baseline, by ``gpuperf_time_model`` and ``gpuperf_judge``: if the counts of PTX decide, no
    assembler is used."""
    return EXPANDED if (time_model, judge) == (BEST, "ptx") else time_model


def models_of(old: Entry | None, time_model: str, judge: str) -> dict[str, str]:
    """Return the model of each target of a baseline, if ``time_model`` is ``BEST``; else nothing. A time that was simulated with an
    assembler is shown by the best model where there is none."""
    targets = (old or {}).get("targets", {}) if time_model == BEST else {}
    names = {name: _name(entry) for name, entry in targets.items()}
    best = model_of(time_model, judge)
    return {target: best if name == SIMULATION else name for target, name in names.items()}


def other_model(target: str, new: Entry, old: Entry, policy: Mapping[str, str]) -> tuple[str, str]:
    """Return the verdict of a time whose model differs from the baseline's, and why; empty if the models are equal.

    It is ``unjudged`` if only the assembler is missing or different, and the settings do not require it.
    """
    was, now = (side["targets"][target] for side in (old, new))
    before, after = was.get("model"), now.get("model")
    if before == after:
        return "", ""
    asked = policy.get("judge", "auto") != "auto" or policy.get("time_model", BEST) != BEST
    if before and after and before["name"] == after["name"]:
        if before["revision"] != after["revision"]:
            return (
                "incomparable",
                f"the {before['name']} changed: revision {before['revision']} → {after['revision']}",
            )
        reason = f"machine code of {after['assembler']}, the baseline of {before['assembler']}"
        return "incomparable" if asked else "unjudged", reason
    reason = f"predicted by {_named(now)}, the baseline by {_named(was)}"
    elsewhere = _name(was) == SIMULATION and not _is_assembled(now)
    return "unjudged" if elsewhere and not asked else "incomparable", reason


def _name(entry: TargetEntry) -> str:
    return entry["model"]["name"] if "model" in entry else ALWAYS


def _named(entry: TargetEntry) -> str:
    assembler = entry["model"].get("assembler") if "model" in entry else None
    return f"{_name(entry)} ({assembler})" if assembler else _name(entry)


def _is_assembled(entry: TargetEntry) -> bool:
    """Whether an assembler was there."""
    return _name(entry) == SIMULATION or "machine_code" in entry


def with_simulated(measured: Entry, old: Entry, policy: Policy) -> Entry:
    """Return a case with the simulated times of a baseline made with the assembler, if kernel, inputs and machine are the same."""
    model = model_of(policy.get("time_model", BEST), policy.get("judge", "auto"))
    if model != BEST or not same_work(old, measured):
        return measured
    targets = measured.get("targets", {}).copy()
    for name, was in old.get("targets", {}).items():
        now = targets.get(name)
        if now is None or _name(was) != SIMULATION or _is_assembled(now):
            continue
        if was["machine"] == now["machine"]:
            kept: TargetEntry = {"model": was["model"], "time_us": was["time_us"], "limiter": was["limiter"]}
            if "stalls" in was:
                kept["stalls"] = was["stalls"]
            shared = now.copy()
            shared.pop("stalls", None)
            targets[name] = {**shared, **kept, "occupancy": was["occupancy"]}
    return {**measured, "targets": targets} if targets else measured
