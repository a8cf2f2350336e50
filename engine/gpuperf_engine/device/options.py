"""What a device can be asked for by name: what it observes, its backend, and how it treats races and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

from ..errors import UnknownName, nearest, warn_renamed

if TYPE_CHECKING:
    from .thresholds import Thresholds

__all__ = [
    "FORMER_BACKENDS",
    "HOST_ACCESS",
    "OBSERVABLE",
    "RACES",
    "RESOURCES",
    "DeviceOptions",
    "check_backend",
    "check_name",
    "check_observe",
]

HOST_ACCESS = ("", "managed", "pinned")
"""How the host accesses what was allocated, besides by copies."""
OBSERVABLE = ("accesses", "footprint", "inputs", "memory", "proofs", "threads", "values")
BACKENDS = ("llvm", "reference")

FORMER_BACKENDS = {"native": "llvm", "lanes": "reference"}
"""Their names before: accepted with a warning."""
RESOURCES = ("estimate", "ptxas")
RACES = ("off", "note", "error")


class DeviceOptions(TypedDict, total=False):
    """What ``api.Device`` takes by name."""

    observe: Iterable[str]
    memory_bytes: int | None
    backend: str
    max_instructions: int
    resources: str
    heap_bytes: int
    printf_bytes: int
    printer: Callable[[str], object] | None
    strict: str
    races: str | None
    thresholds: Thresholds | None
    mapped: bool
    history: int | None


def check_observe(observe: Iterable[str]) -> frozenset[str]:
    """A subset of ``OBSERVABLE``, given as names or as one name. Raises ``UnknownName``."""
    try:
        names = frozenset((observe,) if isinstance(observe, str) else observe)
    except TypeError:
        raise UnknownName(
            f"cannot observe {observe!r:.60}", hint=nearest(observe, OBSERVABLE, noun="observation")
        ) from None
    for name in sorted(names - set(OBSERVABLE), key=str):
        raise UnknownName(f"cannot observe {name!r}", hint=nearest(name, OBSERVABLE, noun="observation"))
    return names


def check_backend(backend: str) -> str:
    """The present name of a backend; former ones warn. Raises ``UnknownName``."""
    if isinstance(backend, str) and backend in FORMER_BACKENDS:
        former, backend = backend, FORMER_BACKENDS[backend]
        warn_renamed(f"Device(backend={former!r})", f"Device(backend={backend!r})", 2)
    return check_name(backend, BACKENDS, "no backend {}", "backend")


def check_name(name: str, accepted: Sequence[str], message: str, noun: str) -> str:
    """The name, if it is accepted. Raises ``UnknownName``: ``message`` has a place for the name, ``noun`` says what it is one of."""
    if name not in accepted:
        raise UnknownName(message.format(f"{name!r:.60}"), hint=nearest(name, accepted, noun=noun))
    return name
