"""The engine's device for one test, with its settings."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuperf_engine.errors import MemoryFault

from .._engine import are_inputs_kept, engine
from ..config.settings import Settings

if TYPE_CHECKING:
    from gpuperf_engine import Device, Profile
    from gpuperf_engine.device.options import DeviceOptions

__all__ = ["check_uninitialized", "make_device"]


def make_device(settings: Settings, strict: str, races: str) -> Device:
    """Return a new ``Device``. If kernels are judged, it observes memory, values, inputs if machine code is judged or times are
    simulated, and proofs or accesses if requested; else memory. Output of kernels goes to standard output, where pytest captures
    it."""
    observe = {"memory", "values"} if settings.enabled else {"memory"}
    if settings.enabled and settings.values != "objects":
        observe.add("proofs" if settings.values == "proven" else settings.values)
    if settings.enabled and are_inputs_kept(settings.judge, settings.time_model):
        observe.add("inputs")
    # read ``sys.stdout`` at each launch: pytest replaces it for each phase
    options: DeviceOptions = {"observe": observe, "printer": lambda text: sys.stdout.write(text)}
    if settings.backend != "auto":
        options["backend"] = settings.backend
    options["races"] = races
    if settings.resources != "estimate":
        options["resources"] = settings.resources
    if strict != "note":
        options["strict"] = strict
    return engine.Device(**options)


_UNINITIALISED = "reads uninitialised memory"


def check_uninitialized(profile: Profile, settings: Settings) -> Profile:
    """The profile; raises ``MemoryFault`` for reads of memory never written if ``gpuperf_uninitialized = error``, and
    leaves out the notes about them if it is ``ignore``."""
    notes = [note for note in profile.notes if note.endswith(_UNINITIALISED)]
    if not notes or settings.uninitialized == "warn":
        return profile
    if settings.uninitialized == "ignore":
        return replace(profile, notes=tuple(note for note in profile.notes if note not in notes))
    more = [f"and {len(notes) - 1} other instructions"] if len(notes) > 1 else []
    raise MemoryFault(
        notes[0],
        details=[f"kernel {profile.kernel}", *more],
        hint="write it first, or set gpuperf_uninitialized = warn",
    )
