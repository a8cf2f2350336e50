"""Defers signal handlers while torch allocates or frees through Python callbacks.

An exception from a handler (Ctrl-C, the time limit of a test) cannot propagate through C code, and would leave the memory of the
device half changed. An exception that is propagating while tensors are freed is preserved.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

from gpuperf_engine.jit.llvm import compile_object, link

__all__ = ["Deferred"]

_Handler = Callable[[int, FrameType | None], object]
#: arguments and results of ``signal.signal``
_Set: TypeAlias = "_Handler | int | None"


#: A C function that wraps a callback. It counts active calls in native code, because a handler may run before the first instruction
#: of a Python callback. It also saves and restores an exception that is propagating, as its unwinding may free tensors.
_GUARD = """
define {result} @{name}({parameters}) {{
  %error = alloca [3 x ptr]
  %value = getelementptr ptr, ptr %error, i64 1
  %trace = getelementptr ptr, ptr %error, i64 2
  %entered = atomicrmw add ptr inttoptr (i64 {inside} to ptr), i64 1 seq_cst
  %state = call i32 inttoptr (i64 {PyGILState_Ensure} to ptr)()
  call void inttoptr (i64 {PyErr_Fetch} to ptr)(ptr %error, ptr %value, ptr %trace)
  {keep}call {result} inttoptr (i64 {callback} to ptr)({parameters})
  %error_was = load ptr, ptr %error
  %value_was = load ptr, ptr %value
  %trace_was = load ptr, ptr %trace
  call void inttoptr (i64 {PyErr_Restore} to ptr)(ptr %error_was, ptr %value_was, ptr %trace_was)
  call void inttoptr (i64 {PyGILState_Release} to ptr)(i32 %state)
  %left = atomicrmw sub ptr inttoptr (i64 {inside} to ptr), i64 1 seq_cst
  ret {answer}
}}
"""
_OF_PYTHON = ("PyGILState_Ensure", "PyErr_Fetch", "PyErr_Restore", "PyGILState_Release")


class Deferred:
    """``allocate``, ``free``: addresses of callbacks during which no handler runs; ``functions``: by name, the functions to call
    instead. ``settle`` runs deferred handlers."""

    def __init__(self, allocate: int, free: int) -> None:
        self._inside = ctypes.c_int64(0)
        #: deferred handlers, with their signals
        self.waiting: list[tuple[_Handler, int]] = []
        known = {"inside": ctypes.addressof(self._inside)} | {
            name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _OF_PYTHON
        }
        text = "".join(
            _GUARD.format(
                name=name,
                callback=callback,
                parameters=parameters,
                result=result,
                keep=keep,
                answer=answer,
                **known,
            )
            for name, callback, parameters, result, keep, answer in (
                (
                    "allocate",
                    allocate,
                    "ptr %place, i64 %alignment, i64 %size",
                    "i32",
                    "%code = ",
                    "i32 %code",
                ),
                ("free", free, "ptr %memory", "void", "", "void"),
            )
        )
        self._library = link([compile_object(text, 0)], ("allocate", "free"), {})
        self.functions: dict[str, int] = self._library.addresses

    def settle(self) -> None:
        """Run deferred handlers. Raises what a handler raises."""
        while self.waiting:
            handler, number = self.waiting.pop(0)
            handler(number, sys._getframe(1))

    def install(self) -> None:
        """Defer all Python signal handlers from now on, existing ones and those set later."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        setting, asking = signal.signal, signal.getsignal

        def set_handler(number: int, handler: _Set) -> _Set:
            return _own(setting(number, self._later(handler) if callable(handler) else handler))

        def handler_of(number: int) -> _Set:
            return _own(asking(number))

        for number in signal.valid_signals():
            handler = asking(number)
            if callable(handler) and not isinstance(handler, signal.Handlers):
                set_handler(number, handler)
        signal.signal, signal.getsignal = set_handler, handler_of  # type: ignore[assignment]

    def _later(self, handler: _Handler) -> _Handler:
        def run(number: int, frame: FrameType | None) -> object:
            if self._inside.value:
                self.waiting.append((handler, number))
                return None
            return handler(number, frame)

        run.gpuperf_handler = handler  # type: ignore[attr-defined]
        return run


def _own(handler: _Set) -> _Set:
    """The handler that a program has set."""
    return getattr(handler, "gpuperf_handler", handler)
