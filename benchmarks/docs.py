"""What is made from the code: ``python -m benchmarks.docs`` writes it, ``--check`` compares.

Pages of ``docs/``: the groups of nvprof come from the rows of the instruction table, for example. In ``docs/metrics.md`` the table of
the metrics, from their rows; the schemas of reports and baselines from these and from the types of records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Made by `make docs` from {source}; do not edit. -->\n\n"


def rules() -> str:
    """What the manuals forbid, and what becomes of it."""
    from gpuperf_engine.isa.rules import render

    return NOTE.format(source="engine/gpuperf_engine/isa/rules.py") + render()


def nvprof() -> str:
    """The groups of nvprof, and the FFT of CUDA Flux's tables."""
    from benchmarks.fft512 import render as fft512
    from gpuperf_engine.profile.document import render

    source = "engine/gpuperf_engine/profile/document.py and benchmarks/fft512.py"
    return NOTE.format(source=source) + render() + "\n" + fft512()


def network() -> str:
    """The convolutional network of the examples, counted by its control slice."""
    from benchmarks.network import render

    return NOTE.format(source="benchmarks/network.py and examples/cnn") + render()


def accuracy() -> str:
    """Predicted beside measured times."""
    from benchmarks.accuracy import render

    return NOTE.format(source="benchmarks/accuracy.py and benchmarks/hardware") + render()


def regressions() -> str:
    """What the gate catches."""
    from benchmarks.regressions import render

    return NOTE.format(source="tests/regressions/changes.yaml") + render()


def architecture() -> str:
    """The layers, from the import contracts."""
    from benchmarks.architecture import page

    return page()


def schema(name: str) -> str:
    """A published schema."""
    from pytest_gpuperf.store.schema import SCHEMAS

    return _json(SCHEMAS[name](), 0)


def _json(value: object, depth: int) -> str:
    """JSON in which what fits into a line is on one."""
    line = json.dumps(value)
    if len(line) + depth <= 120 or not isinstance(value, (dict, list)):
        return line
    inner = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        items, ends = [_json(item, depth + 1) for item in value], "[]"
    else:
        items, ends = [f"{json.dumps(key)}: {_json(item, depth + 1)}" for key, item in value.items()], "{}"
    return f"{ends[0]}{inner}{f',{inner}'.join(items)}{inner[:-1]}{ends[1]}"


def metrics() -> str:
    """The page of the metrics with its first table as the rows make it."""
    from pytest_gpuperf.core.metrics import METRICS

    before, head, after = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").partition(METRICS_HEAD)
    rest = after.lstrip("\n").split("\n")
    while rest[0].startswith("|"):
        del rest[0]
    rows = (
        f"| `{row.name}` | {row.kind} | {row.better} |{f' {row.unit}' if row.unit else ''} | {row.said} |"
        for row in METRICS
    )
    return before + head + "\n".join(["", "|---|---|---|---|---|", *rows, *rest])


METRICS_HEAD = "| metric | class | better | unit | |"
PAGES: dict[str, Callable[[], str]] = {
    "docs/metrics.md": metrics,
    "docs/rules.md": rules,
    "docs/nvprof.md": nvprof,
    "docs/network.md": network,
    "docs/accuracy.md": accuracy,
    "docs/regressions.md": regressions,
    "docs/architecture.md": architecture,
    **{f"pytest_gpuperf/schemas/{name}.json": partial(schema, name) for name in ("baseline-1", "report-1")},
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` name those that are out of date (exit code 1)."""
    stale = []
    for name, render in PAGES.items():
        path, text = ROOT / name, render().rstrip("\n") + "\n"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"out of date: {', '.join(stale)}; run `make docs`")
        return 1
    print(f"written: {', '.join(stale)}" if stale else "generated pages are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
