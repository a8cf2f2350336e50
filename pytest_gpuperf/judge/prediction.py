"""Launches of a test on its targets: predicted times, each launch predicted once on each, and machine code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuperf_engine.errors import EngineError

from .._engine import engine
from ..core.metric import significant
from ..core.time_model import ALWAYS

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, Finding, MachineCode, MachineCounts, Profile
    from gpuperf_engine.timing.estimate import Predictor

__all__ = ["Prediction"]


class Prediction:
    """The launches of one test on targets. ``profiles``: by the numbers of their events; ``search``: folders of machine files;
    ``machine_code``: whether that is counted."""

    def __init__(
        self, profiles: Mapping[int, Profile], search: Sequence[str] = (), machine_code: bool = False
    ) -> None:
        self.profiles = profiles
        self.search = search
        self.counted = machine_code
        self._known: dict[tuple[str, str], Predictor] = {}

    def estimate(self, total: Profile, target: str, model: str, *, why: bool = False) -> Estimate:
        """All launches of a kernel, one after the other; ``why``: with stalls and advice. Raises ``EngineError``."""
        return self._of(target, model).estimate(total, why=why)

    def machine_counts(self, total: Profile, target: str) -> MachineCounts | None:
        """The machine code of all launches of a kernel, ``None`` where it is not asked for. Raises ``EngineError``."""
        return engine.machine_counts(total, target, search=self.search) if self.counted else None

    def machine_code(self, total: Profile, target: str, *, running: bool) -> MachineCode:
        """The same, with its instructions; ``running``: whether the machine code is run. Raises ``EngineError``."""
        return engine.machine_code(total, target, search=self.search, running=running)

    def saving_us(self, finding: Finding, targets: Iterable[str]) -> dict[str, float]:
        """By target what launches and copies take less if the advice is followed, on every host alike; nothing where none is
        concerned."""
        saving: dict[str, float] = {}
        known = any(gone.copied or gone.step in self.profiles for gone in finding.traffic)
        for target in targets if known else ():
            try:
                saved = engine.saving_us(finding, self.profiles, self._of(target, ALWAYS))
            except EngineError:
                continue  # the prediction itself says why
            saving[target] = significant(saved)
        return saving

    def _of(self, target: str, model: str) -> Predictor:
        key = target, model
        if key not in self._known:
            self._known[key] = engine.predictor(target, self.search, model=model)
        return self._known[key]
