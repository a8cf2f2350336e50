"""Text before the traceback of a failed test: races in its kernels, a likely reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative

if TYPE_CHECKING:
    from gpuperf_engine import Profile

__all__ = ["put_races"]

_MOST = 8


def put_races(report: pytest.TestReport, profiles: Iterable[Profile]) -> None:
    """Put the races of the launches of a test at the head of its failure."""
    messages = dict.fromkeys(race.message for profile in profiles for race in profile.races)
    if not messages or not isinstance(report.longrepr, ExceptionChainRepr):
        return
    lines = [
        "gpuperf: results of this test depend on the order of threads:",
        *(f"  {line}" for line in [*messages][:_MOST]),
    ]
    if len(messages) > _MOST:
        lines.append(f"  … and {len(messages) - _MOST} more")
    traceback = report.longrepr.chain[0][0]
    traceback.reprentries = [ReprEntryNative([f"{line}\n" for line in lines]), *traceback.reprentries]
