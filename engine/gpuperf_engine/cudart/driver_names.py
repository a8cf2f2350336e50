"""Names of driver functions: the symbol for a function name in a version of CUDA."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

__all__ = ["symbol_of", "symbols"]

_FILE = Path(__file__).resolve().parent / "driver.txt"


@lru_cache(maxsize=1)
def _rows() -> dict[str, tuple[tuple[int, ...], str]]:
    """By name: the versions of CUDA that introduced a new form, and the suffix of the per-thread variant (``cudaTypedefs.h``)."""
    rows = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        name, *words = line.split()
        suffix = words.pop() if words[-1].startswith("pt") else ""
        rows[name] = tuple(map(int, words)), suffix
    return rows


def _symbol(name: str, form: int) -> str:
    return name if form == 0 else f"{name}_v{form + 1}"


@lru_cache(maxsize=1)
def symbols() -> tuple[str, ...]:
    """All exports of the driver library: the second form of a function has the suffix ``_v2``, and so on."""
    plain = [
        (_symbol(name, form), suffix)
        for name, (since, suffix) in _rows().items()
        for form in range(len(since))
    ]
    return tuple(name for name, _ in plain) + tuple(f"{name}_{suffix}" for name, suffix in plain if suffix)


def symbol_of(name: str, version: int, *, per_thread: bool = False) -> tuple[str | None, bool]:
    """The symbol of a function in a version (12040 for 12.4), and whether the name exists, as reported by ``cuGetProcAddress``."""
    since, suffix = _rows().get(name, ((), ""))
    forms = [form for form, first in enumerate(since) if first <= version]
    if not forms:
        return None, bool(since)
    return _symbol(name, forms[-1]) + (f"_{suffix}" if per_thread and suffix else ""), True
