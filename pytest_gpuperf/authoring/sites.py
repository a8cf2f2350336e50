"""Lines of source of launch sites in programs: by ``addr2line``, where it is installed and the program has lines (``-g``)."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gpuperf_engine.cudart.launch_log import LaunchSite

from .record import CallSite, shown_path

__all__ = ["source_lines"]

_LINE = re.compile(r"(.+):(\d+)(?: \(discriminator \d+\))?")
_SECONDS = 60


def source_lines(sites: Iterable[LaunchSite], rootdir: Path) -> dict[LaunchSite, CallSite | None]:
    """The line of each site, ``None`` where it is not known."""
    known: dict[LaunchSite, CallSite | None] = dict.fromkeys(sites)
    files: dict[str, list[LaunchSite]] = defaultdict(list)
    for site in known:
        if site.file:
            files[site.file].append(site)
    for file, here in files.items():
        for site, line in zip(here, _lines(file, [site.address for site in here]), strict=True):
            match = _LINE.fullmatch(line)
            if match and match[1] != "??" and int(match[2]):
                path, number = match[1], int(match[2])
                text = linecache.getline(path, number).strip()
                known[site] = CallSite(shown_path(path, rootdir), number, text)
    return known


def _lines(file: str, addresses: list[int]) -> list[str]:
    """``file:line`` of each address, the innermost of functions that were inlined."""
    nothing = [""] * len(addresses)
    tool = shutil.which("addr2line")
    if tool is None:
        return nothing
    try:
        done = subprocess.run(
            [tool, "-e", file, *map(hex, addresses)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return nothing
    lines = done.stdout.splitlines()
    return lines if done.returncode == 0 and len(lines) == len(addresses) else nothing
