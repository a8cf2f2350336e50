"""Python processes with an active driver from their start: those of ``gpuperf run --triton``, and those that tests start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

__all__ = ["FOLDERS", "KINDS", "MACHINE", "SITE", "handed_down"]

#: what finds a GPU (``triton``, ``numba``), which, and the folders of descriptions of others
KINDS, MACHINE, FOLDERS = "GPUPERF_PROGRAMS", "GPUPERF_PROGRAMS_MACHINE", "GPUPERF_PROGRAMS_TARGET_FILES"
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def handed_down(kinds: Iterable[str], machine: str, search: Sequence[str]) -> dict[str, str]:
    """Return environment variables of a process in which these drivers are activated when Python starts."""
    path = os.environ.get("PYTHONPATH", "")
    others = [folder for folder in path.split(os.pathsep) if folder and folder != SITE]
    return {
        KINDS: " ".join(kinds),
        MACHINE: machine,
        FOLDERS: os.pathsep.join(search),
        "PYTHONPATH": os.pathsep.join([SITE, *others]),
    }
