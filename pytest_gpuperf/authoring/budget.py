"""The budget of the launches of one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.settings import Settings
from ..programs.errors import OverBudget

if TYPE_CHECKING:
    import pytest

    from gpuperf_engine.profile.budget import Budget

__all__ = ["budget_of", "over_budget"]

_HINT = (
    "launch less (a smaller problem, fewer iterations), or allow more: gpuperf_budget, --gpuperf-budget or "
    "@pytest.mark.gpuperf(budget=…), in warp instructions (20e9) or seconds (600s)"
)


def budget_of(settings: Settings, item: pytest.Item) -> Budget:
    """Return the budget of the command line, the closest marker, or the ini file."""
    from gpuperf_engine.profile.budget import Budget

    markers = (marker.kwargs.get("budget") for marker in item.iter_markers("gpuperf"))
    marked = next((str(budget) for budget in markers if budget is not None), settings.budget)
    text = settings.budget_cli or marked
    if text == "none" or not settings.enabled:
        return Budget()
    if text.endswith("s"):
        return Budget(seconds=float(text[:-1]))
    return Budget(instructions=int(float(text)))


def over_budget(message: str) -> OverBudget:
    """Return the error for a test whose launches exceed the budget."""
    return OverBudget(message, hint=_HINT)
