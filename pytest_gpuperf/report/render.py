"""The document rendered: HTML in one file, Markdown.

PTX, test ids and messages are untrusted: control characters are written out, HTML is escaped by the template engine, and
Markdown shows them only inside ``<code>``, where neither markup nor mentions work.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..core.escaping import clean

__all__ = ["render_html", "render_markdown", "template_dir"]

_MARKDOWN_LIMIT = 900_000
"""Bytes: a GitHub job summary may have 1 MiB."""


def template_dir() -> Path:
    """The installed templates, else those of the checkout."""
    here = Path(__file__).resolve().parent.parent
    installed = here / "templates"
    return installed if installed.is_dir() else here.parent / "templates"


@cache
def _environment(*, html: bool) -> Environment:
    """One of each per process: it keeps its templates compiled."""
    environment = Environment(
        loader=FileSystemLoader(template_dir()),
        undefined=StrictUndefined,
        autoescape=html,
        finalize=_finalize if html else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _code
    return environment


def _finalize(value: object) -> object:
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _code(text: object) -> str:
    """Untrusted text for Markdown: inert in tables, lists and running text."""
    line = " ".join(clean(str(text)).split())
    escaped = "".join(char if char.isalnum() or char in " .,/-=+%→–…" else f"&#{ord(char)};" for char in line)
    return f"<code>{escaped}</code>"


def render_html(view: Mapping[str, object]) -> str:
    """A document (``build_view``) as one HTML file without network; its one script filters cases, and no other may run."""
    script = (template_dir() / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode("ascii")
    template = _environment(html=True).get_template("report.html.j2")
    return template.render(report=view, script=Markup(script), script_hash=f"sha256-{digest}")


def render_markdown(view: Mapping[str, object]) -> str:
    """A summary with changed metrics only, for a job summary or a comment."""
    text = _environment(html=False).get_template("report.md.j2").render(report=view)
    data = text.encode("utf-8")
    if len(data) <= _MARKDOWN_LIMIT:
        return text
    kept = data[:_MARKDOWN_LIMIT].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    return f"{kept}\n\n(truncated: the full report is in gpuperf.html)\n"
