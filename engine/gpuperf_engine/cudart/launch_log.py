"""Every launch of a program, by kernel, launch site and shape, in a file for the gate: written by the program's process
(``LaunchLog``), read and checked by that of the gate (``read_launches``)."""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..device.device import program_of
from ..profile.budget import Budget
from ..profile.merged import MergedLaunches
from ..profile.stored import StoredError, profile_from, stored
from ..ptx.module import Function as Kernel
from ..ptx.module import Module
from ..results import Profile
from .calls import say

__all__ = ["LaunchLog", "LaunchSite", "LoggedCase", "LoggedLaunches", "object_at", "read_launches"]

_SCHEMA = 1
_LOG, _BEGUN = ".launches.json", ".begun"
"""Of the file of a process, and of one that says that there will be such a file."""


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """Where the host launches: a program or library, the address of the call in that file, and the exported function that it is in.
    All empty where it is not known."""

    file: str = ""
    address: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class LoggedCase:
    """The launches of one kernel, site and shape: profiles whose ``launches`` say how many each is of."""

    kernel: Kernel
    site: LaunchSite
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class LoggedLaunches:
    """Of all processes of a program, in the order in which they began. ``over``: why one was ended, if it exceeded its budget;
    ``lost``: how many ended without their launches having been written."""

    cases: tuple[LoggedCase, ...]
    over: str
    lost: int


class LaunchLog:
    """``folder`` is that of the gate, one file for each process."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._pid = os.getpid()
        # names sort in the order in which processes begin
        self._name = f"{time.monotonic_ns():020}-{self._pid}"
        self._folder = folder
        self._budget = budget
        self._cases: dict[Hashable, MergedLaunches] = {}
        (folder / (self._name + _BEGUN)).touch()

    def add(self, profile: Profile, site: int) -> None:
        """A launch from an address of the program. Ends the process where the budget is exceeded."""
        (record,) = profile.records
        plan = record.plan
        key = (
            record.program.kernel, site, plan.grid, plan.block, plan.shared_bytes, plan.cluster, plan.cooperative
        )  # fmt: skip
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = MergedLaunches()
        case.add(profile)
        over = self._budget.spend(profile)
        if over:
            self._end(over)

    def _end(self, over: str) -> NoReturn:
        self.write(over)
        ctypes.CDLL(None).fflush(None)
        os._exit(3)

    def write(self, over: str = "") -> None:
        """Writes the file. A process that was forked leaves that to the one that began."""
        if os.getpid() != self._pid:
            return
        modules: dict[Module, int] = {}
        cases = []
        for key, merged in self._cases.items():
            kernel, site = key[0], key[1]  # type: ignore[index]
            number = modules.setdefault(kernel.module, len(modules))
            launches = [stored(profile) for profile in merged.profiles()]
            cases.append(
                {
                    "module": number,
                    "kernel": kernel.name,
                    "site": asdict(_located(site)),
                    "launches": launches,
                }
            )
        document = {
            "schema_version": _SCHEMA,
            "over": over,
            "modules": [{"path": module.path, "text": module.text} for module in modules],
            "cases": cases,
        }
        path = self._folder / (self._name + _LOG)
        try:
            path.with_suffix(".part").write_text(json.dumps(document), encoding="utf-8")
            os.replace(path.with_suffix(".part"), path)
        except OSError as error:
            say(f"{path}: not written: {error.strerror or error}")


class _Info(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def object_at(address: int) -> tuple[Path, Any] | None:
    """The file of the program or library that the dynamic linker has mapped there, and what it knows of it (``Dl_info``)."""
    info = _Info()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return None
    file = Path(os.fsdecode(info.file or b""))
    return (file if file.is_file() else Path("/proc/self/exe")).resolve(), info


def _located(address: int) -> LaunchSite:
    """What the dynamic linker knows of a return address: the call ends one byte before it."""
    known = object_at(address - 1) if address else None
    if known is None:
        return LaunchSite()
    path, info = known
    with path.open("rb") as stream:
        fixed = stream.read(18)[16:18] == b"\x02\x00"  # ET_EXEC: addresses in the file are those in memory
    base = 0 if fixed else info.base or 0
    return LaunchSite(str(path), address - 1 - base, (info.symbol or b"").decode("utf-8", "replace"))


def read_launches(folder: Path, parse: Callable[[str, str], Module]) -> LoggedLaunches:
    """What the processes of a program have logged in a folder; ``parse`` makes a module of PTX and its path.

    Launches of one kernel, site and shape by several processes are one case. Raises ``StoredError`` for files that no ``LaunchLog``
    can have written.
    """
    known: dict[Hashable, LoggedCase] = {}
    over = ""
    for path in sorted(folder.glob("*" + _LOG)):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            over = over or _text(document, "over")
            for case in _cases(document, parse):
                first = case.profiles[0]
                shape = first.grid, first.block, first.cluster, first.resources.shared_bytes
                key = case.kernel.name, case.kernel.module, case.site, shape
                before = known.get(key)
                merged = case.profiles if before is None else (*before.profiles, *case.profiles)
                known[key] = LoggedCase(case.kernel, case.site, merged)
        except (OSError, ValueError, RecursionError, StoredError) as error:
            raise StoredError(
                f"{path.name}: what the program launched cannot be read: {getattr(error, 'message', error)}",
                hint="run it again; if that fails too, please report this",
            ) from None
    begun = Counter(path.name.removesuffix(_BEGUN) for path in folder.glob("*" + _BEGUN))
    written = {path.name.removesuffix(_LOG) for path in folder.glob("*" + _LOG)}
    return LoggedLaunches(tuple(known.values()), over, len(begun.keys() - written))


def _cases(document: object, parse: Callable[[str, str], Module]) -> list[LoggedCase]:
    if _of(document, "schema_version", int) != _SCHEMA:
        raise StoredError(f"its schema_version is not {_SCHEMA}")
    modules = [parse(_text(row, "text"), _text(row, "path")) for row in _of(document, "modules", list)]
    return [_case(row, modules) for row in _of(document, "cases", list)]


def _case(row: object, modules: list[Module]) -> LoggedCase:
    number, name = _of(row, "module", int), _text(row, "kernel")
    if not 0 <= number < len(modules) or name not in modules[number].kernels:
        raise StoredError(f"there is no kernel {name!r} in its module")
    kernel = modules[number][name]
    program = program_of(kernel)
    site = _of(row, "site", dict)
    launches = _of(row, "launches", list)
    if not launches:
        raise StoredError(f"a case of {name!r} has no launch")
    return LoggedCase(
        kernel,
        LaunchSite(_text(site, "file"), _of(site, "address", int), _text(site, "function")),
        tuple(profile_from(program, launch) for launch in launches),
    )


def _of(row: object, name: str, kind: type) -> Any:
    if not isinstance(row, Mapping) or not isinstance(row.get(name), kind) or isinstance(row[name], bool):
        raise StoredError(f"{name} is missing or no {kind.__name__}")
    return row[name]


def _text(row: object, name: str) -> str:
    text: str = _of(row, name, str)
    return text
