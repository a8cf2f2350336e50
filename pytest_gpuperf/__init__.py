"""pytest-gpuperf: a performance gate for GPU kernels that needs no GPU. PYTEST_DONT_REWRITE

Loading the entry point imports this package first, so it imports nothing; the public names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .authoring.fixture import Gpuperf
    from .authoring.kernel import Kernel
    from .core.metric import Metric
    from .sources.base import PtxSource
    from .sources.cuda_source import CudaSource

__all__ = ["CudaSource", "Gpuperf", "Kernel", "Metric", "PtxSource"]

_HOMES = {
    "CudaSource": "sources.cuda_source",
    "Gpuperf": "authoring.fixture",
    "Kernel": "authoring.kernel",
    "Metric": "core.metric",
    "PtxSource": "sources.base",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
