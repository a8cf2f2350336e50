"""The kernels and launches of one test, in order, to be judged after its body."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..config.declared import CaseSettings
from ..core.fingerprint import IN_PART, digest_bytes, digest_parts

if TYPE_CHECKING:
    from gpuperf_engine import Device, Module, Profile
    from gpuperf_engine.device.events import Event

    from ..sources.base import PtxSource

__all__ = ["CallSite", "CaseRecord", "LaunchRecord", "Recorder", "call_site", "shown_path"]

_VARIABLES = -1
_OWN = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of the test: its path below the rootdir, its number and its text."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def call_site(rootdir: Path) -> CallSite:
    """Return the innermost executing line outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return CallSite("", 0, "")
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return CallSite(shown_path(frame.f_code.co_filename, rootdir), frame.f_lineno, text)


@lru_cache(maxsize=1024)
def shown_path(path: str, rootdir: Path) -> str:
    """Return a path as reports show it, the same on every host: relative to the rootdir, else its last part only."""
    if not path:
        return ""
    try:
        return Path(path).resolve().relative_to(rootdir).as_posix()
    except ValueError:
        return Path(path).name


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch: what was measured, a digest of its shape, scalars and array contents, and its step of the recorded
    program."""

    profile: Profile
    inputs: str
    site: CallSite
    event: Event


@dataclass
class CaseRecord:
    """All launches of one kernel in one test. ``key`` is ``base``, for a variant of PTX ``base@variant``; a ``shadowed`` variant
    runs, but another one's results are what the test sees."""

    key: str
    base: str
    entry: str
    source: PtxSource
    module: Module
    digest: str
    settings: CaseSettings
    declared: Mapping[str, object]
    site: CallSite
    shadowed: bool = False
    #: distinguishes cases of one kernel and line that the test does not declare
    shape: tuple[object, ...] = ()
    #: whether ``inputs`` cover all inputs of the launches
    inputs_known: bool = True
    #: of a program, whether values were observed by ``objects`` or ``accesses``
    values: str = ""
    launches: list[LaunchRecord] = field(default_factory=list)

    @property
    def inputs(self) -> str:
        """Digest of all inputs of all launches, in order."""
        digest = digest_parts([launch.inputs for launch in self.launches], 8)
        return digest if self.inputs_known else f"{IN_PART}{digest}"


class Recorder:
    """Collects the cases and launches of one test and their inputs."""

    def __init__(self, rootdir: Path) -> None:
        self.rootdir = rootdir
        self.cases: dict[str, CaseRecord] = {}
        self.profiles: list[Profile] = []
        #: called before the launches of cases are read
        self.unsettled: list[Callable[[], None]] = []
        self._contents: dict[int, str] = {}
        self._events = self._numbers = 0

    def number(self) -> int:
        """Return a number for an event outside the test's device."""
        self._numbers -= 1
        return self._numbers

    def settle(self) -> None:
        """Brings the launches of all cases up to date."""
        for settle in self.unsettled:
            settle()

    def launched_profiles(self) -> tuple[Profile, ...]:
        """Profiles of all launches so far: first those of the test itself, in order, then the others by case."""
        self.settle()
        own = {id(profile) for profile in self.profiles}
        others = (launch.profile for case in self.cases.values() for launch in case.launches)
        return (*self.profiles, *(profile for profile in others if id(profile) not in own))

    def site(self) -> CallSite:
        return call_site(self.rootdir)

    def declare(self, case: CaseRecord) -> CaseRecord:
        """Return the case of a kernel; an existing one if the same kernel was declared with the same settings.

        Raises ``ValueError`` for two kernels that would share one id.
        """
        known = self.cases.setdefault(case.key, case)
        if (known.digest, known.declared) != (case.digest, case.declared):
            what = (
                "different PTX" if known.digest != case.digest else "different targets, tolerances or limits"
            )
            raise ValueError(
                f"two kernels of this test have the id {case.key!r} and {what}: {known.site} and {case.site}; "
                "give one of them a name: gpuperf.kernel(…, name=…)"
            )
        return known

    def launched(
        self,
        case: CaseRecord,
        profile: Profile,
        shape: tuple[object, ...],
        args: tuple[object, ...],
        device: Device,
    ) -> None:
        """Records a launch: its profile, and a digest of its shape, scalars and the memory that the host wrote."""
        self._follow(device)
        variables = self._contents.get(_VARIABLES, "")
        # digest the normalised shape; (1, 1, 1) counts as no clusters
        cluster = None if profile.cluster == (1, 1, 1) else profile.cluster
        shape = (profile.grid, profile.block, shape[2], cluster, *shape[4:])
        inputs = digest_parts([*shape, *(self._argument(arg) for arg in args), variables], 16)
        case.launches.append(LaunchRecord(profile, inputs, self.site(), device.events[-1]))
        self.profiles.append(profile)

    def _follow(self, device: Device) -> None:
        """Digests the host's writes since the last launch, per allocation; module variables count as one."""
        events = device.events
        arrays = {id(array.allocation): number for number, array in enumerate(device.arrays)}
        for event in events[self._events :]:
            if event.kind in ("copy-in", "memset", "copy"):
                owner = arrays.get(id(event.objects[0].allocation), _VARIABLES)
                # a copy between arrays moves results of kernels, not inputs
                written = [write.digest for write in event.writes] if event.kind != "copy" else []
                self._contents[owner] = digest_parts(
                    [self._contents.get(owner, ""), event.kind, event.bytes, *written], 16
                )
        self._events = len(events)

    def _argument(self, arg: Any) -> str:
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return f"{type(arg).__name__}:{arg!r}"
        array = getattr(arg, "array", None)
        if isinstance(arg, bytes) and array is not None:  # its address differs between runs
            offset = int.from_bytes(arg[:8], "little") - array.address
            return f"structure+{offset}:{digest_bytes(arg[8:])}:{self._argument(array)}"
        if isinstance(arg, (bytes, bytearray)):
            return f"bytes:{digest_bytes(bytes(arg))}"
        properties = getattr(arg, "properties", None)
        if isinstance(properties, bytes):  # a texture, surface or sampler
            texels = "" if arg.kind == "sampler" else f":{self._argument(arg.array)}"
            return f"image:{digest_bytes(properties)}{texels}"
        if type(arg).__name__ == "TensorMap":
            return f"map:{digest_bytes(bytes(arg))}:{self._argument(arg.array)}"
        allocation = getattr(arg, "allocation", None)
        if allocation is not None:
            number = next(
                (n for n, array in enumerate(arg.runtime.arrays) if array.allocation is allocation), -1
            )
            return f"array:{number}+{arg.offset}:{arg.dtype}{arg.shape}:{self._contents.get(number, '')}"
        if hasattr(arg, "tobytes"):
            return f"{getattr(arg, 'dtype', '')}:{digest_bytes(arg.tobytes())}"
        return type(arg).__name__
