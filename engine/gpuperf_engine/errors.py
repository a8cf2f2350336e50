"""Every error that the engine raises on purpose: what was found, where, what would be accepted, what to do."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

from .source import Span

__all__ = [
    "ArgumentError",
    "BinaryError",
    "BudgetExceeded",
    "Deadlock",
    "EngineError",
    "LaunchError",
    "MachineError",
    "MemoryFault",
    "NotObserved",
    "PtxError",
    "PtxSyntaxError",
    "RaceError",
    "TrapError",
    "UnknownName",
    "Unsupported",
    "meant",
    "nearest",
    "warn_renamed",
]


class EngineError(Exception):
    """Base of all errors raised on purpose.

    ``message`` says in one line what was found; ``details`` are further lines (kernel, thread, address, waiting threads); ``hint``
    says what would be accepted or what to do. ``str()`` gives one to five lines for people, beginning with the position where one
    is known. ``causes``: what a launch had done before that may be the cause, in lines of their own.
    """

    causes: tuple[str, ...] = ()

    def __init__(
        self, message: str, *, span: Span | None = None, details: Iterable[str] = (), hint: str | None = None
    ) -> None:
        self.message = message
        self.span = span
        self.details = tuple(details)
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.span}: {self.message}" if self.span is not None else self.message]
        lines += [f"  {detail}" for detail in self.details]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.span, self.details, self.hint), self.__dict__


class ArgumentError(EngineError, TypeError):
    """An argument of a type that a function does not take."""


def _rebuild(
    kind: type[EngineError], message: str, span: Span | None, details: tuple[str, ...], hint: str | None
) -> EngineError:
    return kind(message, span=span, details=details, hint=hint)


class PtxSyntaxError(EngineError):
    """The text is not PTX: found and expected, with position."""


class PtxError(EngineError):
    """The text is PTX, but invalid: undeclared name, wrong operand type, version or target too low."""


class BinaryError(EngineError):
    """A binary that is damaged, that cannot be decompressed, or that holds no PTX."""


class UnknownName(EngineError):
    """A kernel, variable, machine, metric or option that does not exist; the hint names the closest one that does."""


class Unsupported(EngineError):
    """An instruction that is known, checked and counted, but not implemented; raised when it would run."""


class LaunchError(EngineError):
    """Invalid grid, block, shared memory or arguments of a launch."""


class MemoryFault(EngineError):
    """An access out of bounds, misaligned, to a null pointer, to memory of the wrong kind or (if asked) uninitialised.

    ``misaligned``: its address is no multiple of its size.
    """

    misaligned: bool = False


class TrapError(EngineError):
    """The kernel executed ``trap``, ``brkpt`` or a failing device assertion."""


class Deadlock(EngineError):
    """Threads wait for events that cannot happen: the details name the threads and where they wait."""


class BudgetExceeded(EngineError):
    """A warp executed more than ``max_instructions`` warp instructions, or the launches of a test more than its budget."""


class RaceError(EngineError):
    """Unordered accesses of different warps to the same memory, one of them a store; raised only with ``races="error"``."""


class NotObserved(EngineError):
    """A result was requested that the run did not observe."""


class MachineError(EngineError):
    """A machine description is missing or malformed, or the machine cannot run the kernel."""


#: names that begin with what was given, as a hint shows them at most
_SHOWN_BEGINNINGS = 4


def meant(name: object, known: Iterable[str]) -> str:
    """A hint: the names that the given one begins, in either case, else the closest one; empty if none is close."""
    candidates = sorted(set(known))
    given = str(name)[:200]
    folded = given.casefold()
    begun = [candidate for candidate in candidates if folded and candidate.casefold().startswith(folded)]
    if not begun or len(begun) > _SHOWN_BEGINNINGS:
        begun = difflib.get_close_matches(given, candidates, n=1, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, begun))}?" if begun else ""


def nearest(name: object, known: Iterable[str], *, noun: str = "name") -> str:
    """A hint: the closest known names, or the whole list where it is short."""
    candidates = sorted(set(known))
    if close := meant(name, candidates):
        return close
    if not candidates:
        return f"there is no {noun} at all"
    shown = ", ".join(candidates[:12]) + (f", … ({len(candidates)} in all)" if len(candidates) > 12 else "")
    return f"known {noun}s: {shown}"


def warn_renamed(old: str, new: str, stacklevel: int = 1) -> None:
    """Warns with ``DeprecationWarning`` that a name which still works has become another; ``stacklevel`` 1 is the caller's caller."""
    warnings.warn(f"{old} is now {new}: write {new}", DeprecationWarning, stacklevel + 2)
