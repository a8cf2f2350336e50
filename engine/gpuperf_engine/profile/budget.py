"""The budget of the launches of a test, and the message if they exceed it."""

from __future__ import annotations

from dataclasses import dataclass

from ..results import Profile

__all__ = ["Budget"]

_SHOWN = 5


@dataclass
class Budget:
    """The limit of all launches of a test: warp instructions, or seconds of launches. ``None``: unlimited."""

    instructions: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        self.executed, self.elapsed = 0, 0.0
        self._by_kernel: dict[str, list[int]] = {}

    def spend(self, profile: Profile) -> str:
        """Add a launch. Returns the message if the budget is exceeded, else ``""``."""
        executed = sum(record.observation.warp_instructions(record.program) for record in profile.records)
        self.executed += executed
        self.elapsed += profile.seconds
        spent = self._by_kernel.setdefault(profile.kernel, [0, 0])
        spent[0] += profile.launches
        spent[1] += executed
        if self.instructions is not None and self.executed > self.instructions:
            return self._said(f"{self.executed:,} warp instructions", f"{self.instructions:,}")
        if self.seconds is not None and self.elapsed > self.seconds:
            return self._said(f"{self.elapsed:.1f} s of launches", f"{self.seconds:g} s")
        return ""

    def _said(self, spent: str, allowed: str) -> str:
        most = sorted(self._by_kernel.items(), key=lambda item: -item[1][1])
        shown = [
            f"{name} {work:,} in {count:,} launch{'es' if count != 1 else ''}"
            for name, (count, work) in most[:_SHOWN]
        ]
        more = f", and {len(most) - _SHOWN} other kernels" if len(most) > _SHOWN else ""
        return f"the test has executed {spent}, its budget is {allowed}; most by {', '.join(shown)}{more}"
