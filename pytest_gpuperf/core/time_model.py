"""Which model predicts a time, and whether it is that of the baseline: a time is judged by the model that predicted it there."""

from __future__ import annotations

from collections.abc import Mapping

from .fingerprint import same_work
from .records import Entry, Policy, TargetEntry

__all__ = ["ALWAYS", "BEST", "model_of", "models_of", "other_model", "with_simulated"]

ALWAYS = "kleimenov-popova"
"""The model that needs no assembler. An entry that names none was predicted by it."""

BEST = "auto"
"""The simulation where it is possible, else ``ALWAYS``."""


def model_of(time_model: str, judge: str) -> str:
    """Return the model without a baseline, by ``gpuperf_time_model`` and ``gpuperf_judge``: if the counts of PTX decide, no
    assembler is used."""
    return ALWAYS if (time_model, judge) == (BEST, "ptx") else time_model


def models_of(old: Entry | None, model: str) -> dict[str, str]:
    """Return the model of each target of a baseline, if ``model`` is ``BEST``; else nothing."""
    targets = (old or {}).get("targets", {}) if model == BEST else {}
    return {name: entry["model"]["name"] if "model" in entry else ALWAYS for name, entry in targets.items()}


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
    elsewhere = before is not None and after is None and "machine_code" not in now
    return "unjudged" if elsewhere and not asked else "incomparable", reason


def _named(entry: TargetEntry) -> str:
    model = entry.get("model")
    return f"{model['name']} ({model['assembler']})" if model else ALWAYS


def with_simulated(measured: Entry, old: Entry, policy: Policy) -> Entry:
    """Return a case with the simulated times of a baseline made with the assembler, if kernel, inputs and machine are the same."""
    model = model_of(policy.get("time_model", BEST), policy.get("judge", "auto"))
    if model != BEST or not same_work(old, measured):
        return measured
    targets = measured.get("targets", {}).copy()
    for name, was in old.get("targets", {}).items():
        now = targets.get(name)
        if now is None or "model" not in was or "model" in now or "machine_code" in now:
            continue
        if was["machine"] == now["machine"]:
            kept: TargetEntry = {"model": was["model"], "time_us": was["time_us"], "limiter": was["limiter"]}
            if "stalls" in was:
                kept["stalls"] = was["stalls"]
            targets[name] = {**now, **kept, "occupancy": was["occupancy"]}
    return {**measured, "targets": targets} if targets else measured
