"""Asks the plugins of a run for the PTX of a test's source."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuperf_engine.errors import EngineError

from ..config.contributions import answers
from ..core.escaping import one_line
from ..sources.base import Compilation, JitFunction, LaunchedFunction, PtxSource

__all__ = ["ptx_of"]


def ptx_of(
    source: object, entry: str | None, target: str, item: pytest.Item
) -> PtxSource | Compilation | JitFunction | LaunchedFunction | Mapping[str, object]:
    """Return the PTX of a source, an object that compiles it for a target or for arguments, or its variants by target. Raises
    ``EngineError``."""
    if isinstance(source, PtxSource):
        return source
    arguments = {"source": source, "entry": entry, "target": target, "item": item, "config": item.config}
    for plugin, result in answers(item.ihook.pytest_gpuperf_ptx_source, arguments, item.config):
        if result is None:
            continue
        if isinstance(result, str) and "\n" in result:
            return PtxSource(result, f"<{' '.join(filter(None, (plugin or 'ptx', target)))}>")
        if isinstance(result, PtxSource) or (
            isinstance(result, (Compilation, JitFunction, LaunchedFunction, Mapping)) and not target
        ):
            return result
        raise EngineError(
            f"plugin {plugin!r}, pytest_gpuperf_ptx_source: {one_line(repr(result), 80)} is not PTX",
            hint="return PTX text, a pytest_gpuperf.PtxSource, or a dictionary of such by target",
        )
    raise EngineError(
        f"a kernel comes from a path or from PTX text, not from {type(source).__name__}",
        hint='for example gpuperf.kernel("kernels/saxpy.ptx"); a plugin can add other sources',
    )
