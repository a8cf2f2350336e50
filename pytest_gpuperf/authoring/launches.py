"""Launches that a test makes by itself, through a driver of ours: each kernel and line that launches it is a case."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from gpuperf_engine.device.events import Event

from ..config.declared import CaseSettings
from ..core.fingerprint import digest_bytes, digest_parts, kernel_digest
from ..core.mangling import stable_name
from ..sources.base import PtxSource
from .record import CallSite, CaseRecord, LaunchRecord, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from ..triton.device import TritonLaunch
    from .fixture import Gpuperf

__all__ = ["digest_of", "record_launch"]

#: packages between a program and the driver
_BETWEEN = ("pytest_gpuperf", "gpuperf_engine", "triton", "torch", "contextlib")
#: of contents of so many bytes and more the size alone is taken for what went in
_DIGESTED = 64 << 20


def record_launch(gpuperf: Gpuperf, launch: TritonLaunch, rules: CaseSettings) -> None:
    """Adds a launch to the case of its kernel and of the line that made it."""
    recorder = gpuperf._recorder
    site = _site(recorder.rootdir)
    module, entry = launch.kernel.module, launch.kernel.name
    digest = kernel_digest(module.text, entry)
    base = stable_name(entry)
    alike = [case for case in recorder.cases.values() if case.base == base]
    case = next((case for case in alike if (case.digest, case.site) == (digest, site)), None)
    if case is None:
        key = f"{base}#{len(alike) + 1}" if alike else base
        source = PtxSource(module.text, f"{base}.ptx", entry, launch.compiler)
        case = CaseRecord(key, base, entry, source, module, digest, rules, {}, site)
        recorder.declare(case)
    profile = launch.profile
    inputs = digest_parts([profile.grid, profile.block, profile.cluster, launch.inputs], 16)
    number = len(recorder.profiles)
    event = Event("launch", (), kernel=entry, number=number, function=launch.kernel)
    case.launches.append(LaunchRecord(profile, inputs, site, event))
    recorder.profiles.append(profile)


def digest_of(arguments: tuple[Any, ...]) -> str:
    """Of numbers, and of shapes, types and contents of tensors and arrays, as they are now."""
    return digest_parts([_part(argument) for argument in arguments], 16)


def _part(argument: Any) -> str:
    shape = getattr(argument, "shape", None)
    if shape is None or not hasattr(argument, "dtype"):
        known = argument is None or isinstance(argument, (bool, int, float, str))
        return repr(argument) if known else type(argument).__name__
    words = f"{argument.dtype} {tuple(shape)}"
    size = int(getattr(argument, "nbytes", 0))
    if not size or size >= _DIGESTED:
        return f"{words} {size}"
    if hasattr(argument, "detach"):
        import torch

        raw = argument.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    else:
        import numpy as np

        raw = np.ascontiguousarray(argument).reshape(-1).view(np.uint8)
    return f"{words} {digest_bytes(memoryview(raw))}"


def _site(rootdir: Path) -> CallSite:
    """The innermost line of the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    if frame is None:
        return CallSite("", 0, "")
    path = frame.f_code.co_filename
    return CallSite(
        shown_path(path, rootdir), frame.f_lineno, linecache.getline(path, frame.f_lineno).strip()
    )
