"""What one test did with its kernels, in order, for judging after its body."""

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
    """The innermost line outside this package that is being executed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return CallSite("", 0, "")
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return CallSite(shown_path(frame.f_code.co_filename, rootdir), frame.f_lineno, text)


@lru_cache(maxsize=1024)
def shown_path(path: str, rootdir: Path) -> str:
    """A path as reports show it, the same on every host: below the rootdir, else its last part only."""
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
    #: what distinguishes it from other cases of its kernel and line, where the test does not declare it
    shape: tuple[object, ...] = ()
    #: whether ``inputs`` say all that went into the launches
    inputs_known: bool = True
    #: of a program what its values were observed of: ``objects`` or ``accesses``
    values: str = ""
    launches: list[LaunchRecord] = field(default_factory=list)

    @property
    def inputs(self) -> str:
        """Digest of all inputs of all launches, in order."""
        digest = digest_parts([launch.inputs for launch in self.launches], 8)
        return digest if self.inputs_known else f"{IN_PART}{digest}"


class Recorder:
    """Collects the cases and launches of one test and what went into them."""

    def __init__(self, rootdir: Path) -> None:
        self.rootdir = rootdir
        self.cases: dict[str, CaseRecord] = {}
        self.profiles: list[Profile] = []
        #: called before the launches of cases are read
        self.unsettled: list[Callable[[], None]] = []
        self._contents: dict[int, str] = {}
        self._events = self._numbers = 0

    def number(self) -> int:
        """For an event that the device of the test does not know."""
        self._numbers -= 1
        return self._numbers

    def settle(self) -> None:
        """Brings the launches of all cases up to date."""
        for settle in self.unsettled:
            settle()

    def launched_profiles(self) -> tuple[Profile, ...]:
        """Those of all launches so far: in their order those that the test wrote, then those of each case that it did not."""
        self.settle()
        own = {id(profile) for profile in self.profiles}
        others = (launch.profile for case in self.cases.values() for launch in case.launches)
        return (*self.profiles, *(profile for profile in others if id(profile) not in own))

    def site(self) -> CallSite:
        return call_site(self.rootdir)

    def declare(self, case: CaseRecord) -> CaseRecord:
        """The case for a kernel; the one that is there already where it is the same kernel declared alike.

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
        """Notes a launch: what was measured, and a digest of its shape, scalars and what the host put into memory."""
        self._follow(device)
        variables = self._contents.get(_VARIABLES, "")
        # the shape that ran, however it was written; without clusters as ever
        cluster = None if profile.cluster == (1, 1, 1) else profile.cluster
        shape = (profile.grid, profile.block, shape[2], cluster, *shape[4:])
        inputs = digest_parts([*shape, *(self._argument(arg) for arg in args), variables], 16)
        case.launches.append(LaunchRecord(profile, inputs, self.site(), device.events[-1]))
        self.profiles.append(profile)

    def _follow(self, device: Device) -> None:
        """Digests what the host wrote since the last launch, per allocation; module variables count together."""
        events = device.events
        arrays = {id(array.allocation): number for number, array in enumerate(device.arrays)}
        for event in events[self._events :]:
            if event.kind in ("copy-in", "memset", "copy"):
                owner = arrays.get(id(event.objects[0].allocation), _VARIABLES)
                # What a copy between arrays brings is the kernels' doing.
                written = [write.digest for write in event.writes] if event.kind != "copy" else []
                self._contents[owner] = digest_parts(
                    [self._contents.get(owner, ""), event.kind, event.bytes, *written], 16
                )
        self._events = len(events)

    def _argument(self, arg: Any) -> str:
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return f"{type(arg).__name__}:{arg!r}"
        if isinstance(arg, (bytes, bytearray)):
            return f"bytes:{digest_bytes(bytes(arg))}"
        properties = getattr(arg, "properties", None)
        if isinstance(properties, bytes):  # a texture or surface
            return f"image:{digest_bytes(properties)}:{self._argument(arg.array)}"
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
