"""The report's folder: JSON, HTML, Markdown and the baselines as they would be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..core.records import Document
from ..store.baseline import write_if_changed
from ..store.update import FilePlan, is_baseline

__all__ = ["dump_json", "write_report", "write_views"]


def dump_json(document: Document) -> bytes:
    """The document's bytes: UTF-8, in the document's order, one case, listing or other item per line."""
    parts = [f"{json.dumps(key)}:{_value(value)}" for key, value in document.items()]
    return ("{" + ",\n".join(parts) + "}\n").encode("utf-8", "backslashreplace")


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_compact(item) for item in value) + "]"
    return _compact(value)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_views(directory: Path, document: Document) -> dict[str, str]:
    """Writes the document as JSON, HTML and Markdown; returns the paths by kind."""
    from .render import render_html, render_markdown
    from .view import build_view

    view = build_view(document)
    directory.mkdir(parents=True, exist_ok=True)
    outputs = {
        "json": ("gpuperf.json", dump_json(document)),
        "html": ("gpuperf.html", render_html(view).encode("utf-8", "backslashreplace")),
        "md": ("gpuperf.md", render_markdown(view).encode("utf-8", "backslashreplace")),
    }
    for name, data in outputs.values():
        write_if_changed(directory / name, data)
    return {kind: str(directory / name) for kind, (name, _) in outputs.items()}


def write_report(directory: Path, document: Document, plans: Iterable[FilePlan]) -> dict[str, str]:
    """Writes everything; returns the paths by kind."""
    files = write_views(directory, document)
    candidates = directory / "candidates"
    for old in sorted(candidates.rglob("*.yaml")) if candidates.is_dir() else []:
        if is_baseline(old):
            old.unlink()
    for plan in plans:
        for name, data in plan.after.items() if not plan.problem else ():
            write_if_changed(candidates / name, data)
    return files
