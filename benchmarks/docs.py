"""What is made from the code: ``python -m benchmarks.docs`` writes it, ``--check`` compares.

Pages of ``docs/``: the instruction table and the groups of nvprof come from the rows, the machines from their YAML files. In
``docs/metrics.md`` the table of the metrics, from their rows; the schemas of reports and baselines from these and from the types of
records.
Kernels of ``tests/hardware/ptx``: every instruction of the table that can be run alone, and the microbenchmarks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Made by `make docs` from {source}; do not edit. -->\n\n"


def instructions() -> str:
    """The instruction table."""
    from gpuperf_engine.isa.document import render

    return NOTE.format(source="engine/gpuperf_engine/isa/rows") + render()


def rules() -> str:
    """What the manuals forbid, and what becomes of it."""
    from gpuperf_engine.isa.rules import render

    return NOTE.format(source="engine/gpuperf_engine/isa/rules.py") + render()


def machines() -> str:
    """One row per machine, with the numbers that decide most."""
    from gpuperf_engine.timing.document import render

    return NOTE.format(source="engine/gpuperf_engine/machines") + render()


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
    import json

    from pytest_gpuperf.store.schema import SCHEMAS

    return json.dumps(SCHEMAS[name](), indent=2)


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


def kernels() -> dict[str, str]:
    """The kernels that ``tests/hardware/collect.py`` runs on a GPU, by path."""
    from tests.hardware import instructions, micro

    return {
        f"{KERNELS}/{path}": text for part in (instructions, micro) for path, text in part.files().items()
    }


METRICS_HEAD = "| metric | class | better | unit | |"
KERNELS = "tests/hardware/ptx"
#: what is in that folder and not made here
OTHER_KERNELS = {"pairs.ptx", "inputs.npy", "kernels.jsonl"}
PAGES: dict[str, Callable[[], str]] = {
    "docs/instructions.md": instructions,
    "docs/machines.md": machines,
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
    made = {name: render().rstrip("\n") + "\n" for name, render in PAGES.items()} | kernels()
    for path in sorted((ROOT / KERNELS).rglob("*")):
        if (
            path.is_file()
            and path.relative_to(ROOT).as_posix() not in made
            and path.name not in OTHER_KERNELS
        ):
            stale.append(path.relative_to(ROOT).as_posix())
            if "--check" not in arguments:
                path.unlink()
    for name, text in made.items():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"out of date: {', '.join(stale)}; run `make docs`")
        return 1
    print(
        f"written or removed: {', '.join(stale)}" if stale else "generated pages and kernels are up to date"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
