"""Functions of the runtime library, as C calls them: arguments by their types, results as error codes."""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections.abc import Callable
from ctypes import c_int
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .codes import CudaError, code_of

if TYPE_CHECKING:
    from .state import State

__all__ = ["FUNCTIONS", "Function", "bound", "function", "missing", "say", "text_at"]

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """``result`` is its type in C; one that is not ``plain`` runs in any state and returns what it likes."""

    implementation: Implementation
    types: tuple[Any, ...]
    result: Any
    plain: bool


FUNCTIONS: dict[str, Function] = {}


def function(
    *types: Any, result: Any = c_int, plain: bool = True, also: tuple[str, ...] = ()
) -> Callable[[Implementation], Implementation]:
    """Makes a Python function the one of this name, and of the names ``also`` (``name@13``: in that version of CUDA); it is given the
    state, then its arguments."""

    def register(implementation: Implementation) -> Implementation:
        for name in (implementation.__name__, *also):
            FUNCTIONS[name] = Function(implementation, types, result, plain)
        return implementation

    return register


def bound(name: str, known: Function, state: State) -> Any:
    """The C function."""
    implementation = known.implementation

    def call(*arguments: Any) -> Any:
        with state.lock:
            if known.plain and state.sticky:
                return state.sticky
            try:
                value = implementation(state, *arguments)
                return 0 if value is None else value
            except CudaError as error:
                code = error.code
                if error.message:
                    say(f"{name}: {error.message}")
            except EngineError as error:
                code = code_of(error, running=False)
                say(f"{name}: {error}")
            except Exception:
                code = 999
                say(f"{name} failed inside the emulator; please report this:\n{traceback.format_exc()}")
            if code != 600:  # "not ready" is an answer
                state.last = code
            return code

    return ctypes.CFUNCTYPE(known.result, *known.types)(call)


def missing(name: str, state: State) -> Any:
    """A C function that says that it is not there."""

    def call() -> int:
        if name not in state.said:
            state.said.add(name)
            say(f"{name} is not supported (cudaErrorNotSupported)")
        state.last = 801
        return 801

    return ctypes.CFUNCTYPE(c_int)(call)


def say(text: str) -> None:
    """A message to people, between what the program writes."""
    sys.stderr.write(f"gpuperf: {text}\n")
    sys.stderr.flush()


def text_at(address: int | None) -> str:
    """The C string at an address."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""
