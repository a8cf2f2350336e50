"""Triton's profiler (``triton.profiler``, Proton) without CUPTI: the tree of scopes and launches, with predicted times.

The Python part of the profiler stays; the functions of its library (``libproton``) are replaced. As there, a launch is a node below
the scope that launches it, named by the launch hook or after the kernel, and times are in nanoseconds. What torch computes is no
launch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import TritonDevice

__all__ = ["Profiler", "replace"]

_ROOT = "ROOT"
_TIME, _COUNT = "time (ns)", "count"
_FORMATS = ("", "hatchet")


class _Node:
    """A scope or a kernel, and what was added up there."""

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {}
        self.children: dict[str, _Node] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def tree(self, name: str) -> dict[str, Any]:
        children = [child.tree(each) for each, child in self.children.items()]
        return {"frame": {"name": name, "type": "function"}, "metrics": self.metrics, "children": children}


class _Session:
    """What ``proton.start`` begins: a file, and whether it records now."""

    def __init__(self, path: str) -> None:
        self.path, self.active = path, True
        self.root = _Node()
        self.root.add({_COUNT: 0, _TIME: 0})

    def at(self, path: tuple[str, ...]) -> _Node:
        node = self.root
        for name in path:
            node = node.children.setdefault(name, _Node())
        return node


class Profiler:
    """All sessions of a process."""

    def __init__(self, device: TritonDevice) -> None:
        self._device = device
        self._sessions: dict[int, _Session] = {}
        self._next = self._scopes = 0
        self._timing = False
        #: names of the scopes that are entered; the paths of scopes by their numbers
        self._path: tuple[str, ...] = ()
        self._paths: dict[int, tuple[str, ...]] = {}
        #: the name that the hook gives the launch that follows
        self._launch: str | None = None

    def launched(self, name: str, microseconds: float) -> None:
        """A kernel has run, with its predicted time."""
        path = self._path if self._launch is not None else (*self._path, name)
        for session in self._recording():
            node = session.at(path)
            node.add({_COUNT: 1, _TIME: round(microseconds * 1000)})
            node.metrics.update(device_id="0", device_type="CUDA")

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names in ``libproton``."""
        return {
            "start": self._start, "activate": self._activate, "activate_all": self._activate, "deactivate": self._deactivate,
            "deactivate_all": lambda *_: self._deactivate(), "finalize": self._finalize,
            "finalize_all": lambda output="": self._finalize(None, output), "record_scope": self._record_scope,
            "enter_scope": self._enter, "exit_scope": self._leave, "enter_op": self._enter_op, "exit_op": self._leave_op,
            "enter_state": _nothing, "exit_state": _nothing, "add_metrics": self._add_metrics,
            "get_context_depth": lambda session: len(self._path), "set_metric_kernels": _nothing,
            "get_data": lambda session, phase=0: json.dumps(self._data(self._sessions[session])),
        }  # fmt: skip

    def _recording(self) -> list[_Session]:
        return [session for session in self._sessions.values() if session.active]

    def _start(self, path: str, context: str, data: str, backend: str, mode: str = "") -> int:
        if backend == "instrumentation" or data != "tree" or context != "shadow":
            raise RuntimeError(
                f"gpuperf runs proton.start(backend='cupti', data='tree', context='shadow'); got {backend!r}, {data!r}, {context!r}"
            )
        if not self._sessions:
            self._timing, self._device.timing = self._device.timing, True
        self._next += 1
        self._sessions[self._next - 1] = _Session(path)
        return self._next - 1

    def _chosen(self, session: int | None) -> list[int]:
        return list(self._sessions) if session is None else [session] if session in self._sessions else []

    def _activate(self, session: int | None = None) -> None:
        for number in self._chosen(session):
            self._sessions[number].active = True

    def _deactivate(self, session: int | None = None, flushing: bool = False) -> None:
        for number in self._chosen(session):
            self._sessions[number].active = False

    def _finalize(self, session: int | None, output: str = "") -> None:
        if output not in _FORMATS:
            raise RuntimeError(f"gpuperf writes Proton's output_format='hatchet'; got {output!r}")
        for number in self._chosen(session):
            done = self._sessions.pop(number)
            Path(f"{done.path}.hatchet").write_text(json.dumps(self._data(done)))
        if not self._sessions:
            self._device.timing = self._timing

    def _data(self, session: _Session) -> list[dict[str, Any]]:
        major, minor = self._device.machine.compute_capability
        known = self._device.properties
        about = {
            "arch": f"{major}{minor}", "bus_width": known["mem_bus_width"], "clock_rate": known["sm_clock_rate"],
            "memory_clock_rate": known["mem_clock_rate"], "num_sms": known["multiprocessor_count"],
        }  # fmt: skip
        return [session.root.tree(_ROOT), {"CUDA": {"0": about}}]

    def _record_scope(self) -> int:
        self._scopes += 1
        return self._scopes - 1

    def _enter(self, scope: int, name: str) -> None:
        self._path = self._paths[scope] = (*self._path, name)

    def _leave(self, scope: int, name: str) -> None:
        self._path = self._paths.pop(scope, (name,))[:-1]

    def _enter_op(self, scope: int, name: str) -> None:
        self._launch = name
        self._enter(scope, name)

    def _leave_op(self, scope: int, name: str) -> None:
        self._launch = None
        self._leave(scope, name)

    def _add_metrics(
        self, scope: int, metrics: Mapping[str, Any], tensors: Mapping[str, Any] | None = None
    ) -> None:
        """``tensors``, whose values a GPU reads later, are left out."""
        for session in self._recording():
            session.at(self._paths.get(scope, self._path)).add(metrics)


def _nothing(*_: object, **__: object) -> None:
    pass


def replace(device: TritonDevice) -> None:
    """Replace the library's functions for this device."""
    from triton._C.libproton import proton

    device.profiler = Profiler(device)
    for name, function in device.profiler.functions().items():
        setattr(proton, name, function)
