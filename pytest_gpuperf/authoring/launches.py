"""Launches through our drivers and by programs, which the test does not write: each kernel, launching line and shape is a case."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import FrameType
from typing import TYPE_CHECKING

from gpuperf_engine.device.events import Event
from gpuperf_engine.profile.merged import MergedLaunches

from ..config.declared import CaseSettings
from ..core.fingerprint import digest_bytes, digest_parts, kernel_digest
from ..core.mangling import function_name, stable_name
from ..programs.device import BETWEEN
from ..sources.base import PtxSource
from .record import CallSite, CaseRecord, LaunchRecord, Recorder, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from gpuperf_engine import Kernel, Profile

    from ..programs.device import Launch

__all__ = ["LaunchStreams", "digest_of", "fits", "program_site"]

_OWN = ("pytest_gpuperf", "gpuperf_engine")
#: contents of at least so many bytes are digested by their size alone
_DIGESTED = 64 << 20


@dataclass(slots=True)
class _Stream:
    """A case, and its launches so far."""

    case: CaseRecord
    site: CallSite
    number: int
    merged: MergedLaunches
    inputs: str = ""


class LaunchStreams:
    """Adds launches to the cases of a test. ``kernels``: globs of those that are cases, all if there are none."""

    def __init__(self, recorder: Recorder, kernels: Sequence[str] = ()) -> None:
        self._recorder = recorder
        self._kernels = kernels
        self._known: dict[Hashable, _Stream] = {}

    def launched(self, launch: Launch, rules: CaseSettings) -> CaseRecord | None:
        """Adds a launch by the program's current line; returns its case."""
        kernel, profile = launch.kernel, launch.profile
        if not fits(kernel.name, self._kernels):
            return None
        site = program_site(self._recorder.rootdir)
        key = kernel, site, profile.grid, profile.block, profile.cluster, profile.resources.shared_bytes
        stream = self._known.get(key)
        if stream is None:
            case = self.case_of(kernel, site, profile, launch.compiler, rules)
            case.inputs_known = launch.inputs_known
            stream = _Stream(case, site, self._recorder.number(), MergedLaunches())
            self._known[key] = stream
            self._recorder.unsettled.append(lambda: self._settle(stream))
        stream.merged.add(profile)
        inputs = digest_parts([profile.grid, profile.block, profile.cluster, launch.inputs], 16)
        stream.inputs = digest_parts([stream.inputs, inputs], 16) if stream.inputs else inputs
        return stream.case

    @staticmethod
    def _settle(stream: _Stream) -> None:
        event = Event("launch", (), kernel=stream.case.entry, number=stream.number)
        stream.case.launches = [
            LaunchRecord(profile, stream.inputs, stream.site, event) for profile in stream.merged.profiles()
        ]

    def case_of(
        self,
        kernel: Kernel,
        site: CallSite,
        profile: Profile,
        compiler: str,
        rules: CaseSettings,
        where: str = "",
    ) -> CaseRecord:
        """Return the case of a kernel, site and shape: ``name``, ``name#2`` and so on, by first launch. ``where`` distinguishes sites
        with the same text."""
        recorder = self._recorder
        module, entry = kernel.module, kernel.name
        digest = kernel_digest(module.text, entry)
        base = stable_name(entry)
        shape = (profile.grid, profile.block, profile.cluster, profile.resources.shared_bytes, where)
        alike = [case for case in recorder.cases.values() if case.base == base]
        case = next(
            (case for case in alike if (case.digest, case.site, case.shape) == (digest, site, shape)), None
        )
        if case is None:
            key = f"{base}#{len(alike) + 1}" if alike else base
            source = PtxSource(module.text, module.path, entry, compiler)
            case = CaseRecord(key, base, entry, source, module, digest, rules, {}, site, shape=shape)
            recorder.declare(case)
        return case


def fits(entry: str, kernels: Sequence[str]) -> bool:
    """Whether a kernel is a case, by globs of its name in the PTX, or of the function's own name."""
    names = (entry, stable_name(entry), function_name(entry))
    return not kernels or any(fnmatchcase(name, pattern) for pattern in kernels for name in names)


def digest_of(arguments: tuple[object, ...]) -> str:
    """Return a digest of numbers, and of shapes, types and present contents of tensors and arrays."""
    return digest_parts([_part(argument) for argument in arguments], 16)


def _part(argument: object) -> str:
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


def program_site(rootdir: Path) -> CallSite:
    """The innermost line of the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in (
        *_OWN,
        *BETWEEN,
    ):
        frame = frame.f_back
    if frame is None:
        return CallSite("", 0, "")
    path = frame.f_code.co_filename
    return CallSite(
        shown_path(path, rootdir), frame.f_lineno, linecache.getline(path, frame.f_lineno).strip()
    )
