"""Functions of the runtime library as C functions: converts arguments by their types, and returns error codes."""

from __future__ import annotations

import ctypes
import opcode
import re
import sys
import traceback
from collections.abc import Callable
from ctypes import c_int
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .codes import DRIVER_CODES, CudaError, code_of

if TYPE_CHECKING:
    from .state import State

__all__ = ["DRIVER", "FUNCTIONS", "Function", "bound", "function", "say", "text_at"]

DRIVER = "libcuda.so.1"
#: for functions that are not supported: what a part of their name refers to, and the alternative
_INSTEAD = (
    ("ShareableHandle|HandleForAddressRange", "other processes are given memory by cudaIpcGetMemHandle, or as a file by "
     "cuMemExportToShareableHandle"),
    ("External", "memory and semaphores of graphics APIs are not here; allocate with cudaMalloc"),
    ("Graphics|GL|EGL|Vdpau|D3D", "there are no graphics APIs; allocate with cudaMalloc"),
    ("Multicast", "there is one device; its memory is written by plain stores"),
    ("GreenCtx|DevSm|DevResource", "the device is not divided; use its primary context"),
)  # fmt: skip
#: operand of ``RESUME`` (see ``dis``)
_AFTER_YIELD_FROM = 2
#: functions of the runtime that do not make the primary context current: they need no device, or only describe it
_WITHOUT_CONTEXT = re.compile(
    r"__cuda|cuda(GetDevice|SetDeviceFlags|SetValidDevices|ChooseDevice|DeviceGet|\w*Version$|\w*Error|GetDriverEntryPoint"
    r"|GetExportTable|ThreadExchangeStreamCaptureMode|CreateChannelDesc|Profiler)"
)
_NOT_PERMITTED = 800
_VARIANT = re.compile(r"_pt[ds][sz]$")
_VERSION = re.compile(r"_v\d+$")

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """An implemented function. ``result``: its type in C. A function that is not ``plain`` also runs while the device is in error,
    and returns values other than error codes."""

    implementation: Implementation
    types: tuple[Any, ...]
    result: Any
    plain: bool


FUNCTIONS: dict[str, Function] = {}


def function(
    *types: Any, result: Any = c_int, plain: bool = True, also: tuple[str, ...] = ()
) -> Callable[[Implementation], Implementation]:
    """Register a Python function under its name and the names ``also`` (``name@13``: for that version of CUDA). It is called with the
    state, then its arguments."""

    def register(implementation: Implementation) -> Implementation:
        for name in (implementation.__name__, *also):
            FUNCTIONS[name] = Function(implementation, types, result, plain)
        return implementation

    return register


def bound(name: str, library: str, state: State) -> Any:
    """The C function for a name of a library. If the function is not supported, it reports that when it is called."""
    driver, version = library == DRIVER, library.rpartition(".")[2]
    plain = _VARIANT.sub("", name)
    known = FUNCTIONS.get(f"{plain}@{version}") or FUNCTIONS.get(plain)
    if known is None and driver:  # versions of a function that behave the same here
        known = FUNCTIONS.get(_VERSION.sub("", plain))
    if known is None:
        return _missing(plain, driver, state)
    implementation, always = known.implementation, not known.plain
    enters = not driver and not _WITHOUT_CONTEXT.match(plain)

    def answer(arguments: tuple[Any, ...]) -> Any:
        if state.work.flights and state.work.flight is not None:
            return _NOT_PERMITTED  # a function of the host that a stream calls may not call CUDA
        with state.lock:
            if state.sticky and not always:
                return state.sticky
            if state.work.operations:
                state.work.meets(plain)
                if state.sticky and not always:
                    return state.sticky
            state.called = plain
            if enters and not state.contexts:
                state.contexts.append(state.primary)
            try:
                value = implementation(state, *arguments)
                if state.observed and state.launches is not None:
                    state.launches.bound()
                return 0 if value is None else value
            except CudaError as error:
                code = error.code
                if error.message:
                    say(f"{plain}: {error.message}")
            except EngineError as error:
                code = code_of(error, running=False)
                say(f"{plain}: {error}")
            except Exception:
                code = 999
                say(f"{plain} failed inside the emulator; please report this:\n{traceback.format_exc()}")
            if driver:
                return DRIVER_CODES.get(code, code)
            if code != 600:  # "not ready" is a result, not an error
                state.last = code
            return code

    return _callable_by_c(plain, known.result, known.types, answer, state)


def _callable_by_c(
    name: str, result: Any, kinds: tuple[Any, ...], answer: Callable[[tuple[Any, ...]], Any], state: State
) -> Any:
    """A C function that passes its arguments to ``answer``."""

    def call(*arguments: Any) -> Any:
        try:
            return answer(arguments)
        except BaseException as interruption:
            # an exception cannot propagate through C, and the call was not completed, so later calls must not succeed
            state.sticky = state.last = 999
            say(f"{name} was interrupted by {type(interruption).__name__}: the device is in error")
            return 999 if result is c_int else None

    _enter_at_once(call)
    return ctypes.CFUNCTYPE(result, *kinds)(call)


def _enter_at_once(function: Any) -> None:
    """Prevent signal handlers from running before the first instruction of a function, outside of its ``try``: ctypes would print an
    exception raised there and return an undefined result to C. CPython runs handlers at ``RESUME`` only for its operands 0 and 1
    (start of a function, after ``yield``). Python 3.10 has no such instruction, and runs no handler before a leading ``try``."""
    resume = opcode.opmap.get("RESUME")
    code = bytearray(function.__code__.co_code)
    for at in range(0, len(code), 2):
        if code[at] == resume:
            code[at + 1] = code[at + 1] & ~3 | _AFTER_YIELD_FROM
            break
    function.__code__ = function.__code__.replace(co_code=bytes(code))


def _missing(name: str, driver: bool, state: State) -> Any:
    code = "CUDA_ERROR_NOT_SUPPORTED" if driver else "cudaErrorNotSupported"

    def answer(_: tuple[Any, ...]) -> int:
        if name not in state.said:
            state.said.add(name)
            instead = next((text for part, text in _INSTEAD if re.search(part, name)), "")
            say(f"{name} is not supported ({code})" + (f": {instead}" if instead else ""))
        if not driver:
            state.last = 801
        return 801

    return _callable_by_c(name, c_int, (), answer, state)


def say(text: str) -> None:
    """Write a message to stderr, between the output of the program."""
    sys.stderr.write(f"gpuperf: {text}\n")
    sys.stderr.flush()


def text_at(address: int | None) -> str:
    """The C string at an address."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""
