"""PTX of CuPy's ``RawKernel`` and ``RawModule``: their text is compiled as CuPy compiles it, without a GPU."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuperf_engine.errors import EngineError

from .base import Compilation, PtxSource
from .files import read_source

__all__ = ["pytest_gpuperf_ptx_source"]

_RAW = ("RawKernel", "RawModule")
_NAME = re.compile(r"\w+")


@pytest.hookimpl
def pytest_gpuperf_ptx_source(
    source: object, entry: str | None, target: str
) -> Compilation | PtxSource | None:
    """A ``RawKernel``, or a kernel of a ``RawModule`` by ``entry``, perhaps a name expression. Raises ``EngineError``."""
    kind = type(source)
    if not str(kind.__module__).startswith("cupy."):
        return None
    if kind.__name__ not in _RAW:
        return None
    compiled = partial(_compiled, source, entry)
    return compiled(target) if target.startswith(("sm_", "compute_")) else Compilation(compiled)


def _compiled(source: Any, entry: str | None, arch: str) -> PtxSource:
    from ..cupy.options import compiler, options
    from .compiler import compile_text

    named = entry or getattr(source, "name", None) or ""
    expression = "" if _NAME.fullmatch(named) else named
    path = source.file_path
    text = source.code
    if text is None:
        try:
            text = read_source(Path(path), "surrogateescape")
        except OSError as error:
            raise EngineError(
                f"{path}: {error.strerror}", hint="CuPy takes paths from the working directory"
            ) from None
    if expression and source.name_expressions and expression not in source.name_expressions:
        raise EngineError(
            f"{expression!r} is not a name expression of this RawModule",
            hint=f"it has {', '.join(source.name_expressions)}",
        )
    shown = Path(path).name if path else (named.partition("<")[0] or "cupy")
    flags = [*options(source.options), *(["--device-c"] if source.enable_cooperative_groups else [])]
    made = compile_text(text, shown, flags, arch, expression, source.backend)
    return PtxSource(made.text, made.path, made.entry or named, compiler(made.compiler))
