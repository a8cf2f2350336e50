"""``--gpuperf-triton``: Triton finds a GPU, and with the gate each of its launches is part of a case of the test that makes it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from ..config.declared import check_targets
from ..config.options import enabled
from ..config.settings import Settings

if TYPE_CHECKING:
    from ..authoring.fixture import Gpuperf
    from ..triton.device import TritonLaunch

__all__ = ["TritonGate", "switch_on"]


def switch_on(config: pytest.Config) -> None:
    """Before tests and their conftest.py are imported. Raises ``pytest.UsageError`` for a target that does not exist."""
    from ..triton.activation import switch_on as activate
    from ..triton.device import DEFAULT_MACHINE

    lines = [part.strip() for line in config.getini("gpuperf_targets") for part in str(line).split(",")]
    search = tuple(str(config.rootpath / str(line).strip()) for line in config.getini("gpuperf_target_files"))
    targets = [line for line in lines if line]
    check_targets(targets, "gpuperf_targets", search)
    options: dict[str, object]
    if enabled(config.known_args_namespace):
        races = str(config.getini("gpuperf_races")).strip()
        options = {"races": races, "strict": str(config.getini("gpuperf_strict")).strip()}
    else:
        options = {"races": "off"}
    backend = str(config.getini("gpuperf_backend")).strip()
    if backend != "auto":
        options["backend"] = backend
    activate(targets[0] if targets else DEFAULT_MACHINE, search, **options)


class TritonGate:
    """Takes the launches of each test down as cases: one for each kernel and line that launches it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        from ..triton.activation import current

        device = current()
        if device is None:
            return (yield)
        from ..authoring.launches import digest_of

        device.before_launch, device.on_launch = digest_of, lambda launch: self._launched(item, launch)
        try:
            return (yield)
        finally:
            device.before_launch = device.on_launch = None

    def _launched(self, item: pytest.Item, launch: TritonLaunch) -> None:
        self._gpuperf(item)._launched(launch)

    def _gpuperf(self, item: pytest.Item) -> Gpuperf:
        from ..authoring.fixture import RECORDER, Gpuperf

        known = item.stash.get(RECORDER, None)
        return known if known is not None else Gpuperf(item, self.settings)
