"""Both ways of counting executed machine code on kernels of tests: ``python -m pytest -p benchmarks.machine_code_tests tests/cuda``.

A plugin of pytest that needs ``ptxas`` and ``nvdisasm``. The first launch of each kernel on the LLVM backend is counted for one
architecture, chosen by a digest of its name among those that can run it. At the end: pairs of kernel and architecture by how they were
counted, and those of which more than 1 % is open, with the reasons. What the tests themselves find is of no account: a device that
keeps inputs is another one for some.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.sass.ways import NothingFits

_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
_OPEN = 0.01
_seen: set[tuple[str, str]] = set()
_counts: Counter[str] = Counter()
_reasons: list[str] = []
_init, _launch = ge.Device.__init__, ge.Device.launch


def _observing(self: ge.Device, *args: Any, **options: Any) -> None:
    if options.get("backend", "llvm") == "llvm":
        options["observe"] = frozenset(options.get("observe") or ()) | {"memory", "inputs"}
    _init(self, *args, **options)


def _counting(self: ge.Device, kernel: ge.Kernel, *args: Any, **options: Any) -> ge.Profile:
    profile = _launch(self, kernel, *args, **options)
    name = str(kernel.module.path), kernel.name
    if name not in _seen and "inputs" in self.observe and options.get("demand", "values") == "values":
        _seen.add(name)
        _count(profile, *name)
    return profile


def _count(profile: ge.Profile, path: str, kernel: str) -> None:
    first = zlib.crc32(f"{path} {kernel}".encode())
    for step in range(len(_ARCHITECTURES)):
        architecture = _ARCHITECTURES[(first + step) % len(_ARCHITECTURES)]
        try:
            code = counted_code(profile, architecture)
        except NothingFits as error:
            _counts["nothing fits"] += 1
            _reasons.append(f"{path} {kernel} {architecture}: {error.message}")
            return
        except ge.MachineError:
            continue
        _counts[code.ways] += 1
        if code.residue > _OPEN:
            _counts["open above 1 %"] += 1
            notes = "; ".join(code.notes)
            _reasons.append(f"{path} {kernel} {architecture}: {code.residue:.3f} by {code.ways}: {notes}")
        return


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError("the counts are of one process: run it without -n")
    ge.Device.__init__, ge.Device.launch = _observing, _counting  # type: ignore[method-assign]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"machine code: {dict(_counts)}")
    for reason in sorted(_reasons):
        terminalreporter.write_line(f"  {reason}")
