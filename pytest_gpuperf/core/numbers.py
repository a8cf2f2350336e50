"""Formats numbers for people."""

from __future__ import annotations

__all__ = ["change", "counted", "number", "signed"]


def number(value: float | int | None, unit: str = "") -> str:
    """``13,631,488``, ``18.42 µs``; ``–`` for none."""
    if value is None:
        return "–"
    unit = "µs" if unit == "us" else unit
    text = f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return f"{text} {unit}".strip()


def counted(amount: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def signed(delta: float, name: str) -> str:
    """``+1,048,576 ld.global.f32``."""
    return f"{'+' if delta > 0 else '−'}{number(abs(delta))} {name}"


def change(old: float | None, new: float | None) -> str:
    """The signed difference, relative where there is something to relate it to: ``+7.69 %``, ``0 → 5`` as ``+5``."""
    if old is None or new is None:
        return ""
    delta = new - old
    if delta == 0:
        return "0"
    if old == 0:
        return f"{delta:+,}" if isinstance(delta, int) else f"{delta:+.4g}"
    percent = 100.0 * delta / old
    return f"{percent:+.3g} %" if abs(percent) >= 0.001 else f"{delta:+,}"
