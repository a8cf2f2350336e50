"""Launches as a table: what HyPA (Metz et al. 2023) prints for each kernel, a row per launch. RFC 4180."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .._arguments import takes_annotated
from ..results import Profile

__all__ = ["COLUMNS", "csv_rows", "csv_text"]

#: Column → what it holds, in order. Only ``duration_ms`` is not the same in every run.
COLUMNS: dict[str, str] = {
    "file": "the PTX file, as it was named to the engine",
    "kernel": "the kernel (entry)",
    "launch": "1 for the kernel's first launch in this table, 2 for its second, …",
    "ptx_version": "`.version` of the file",
    "target": "`.target` of the file",
    "address_size": "`.address_size` of the file, in bits",
    "file_instructions": "instructions in the file, of all its kernels and functions",
    "ctas": "CTAs of the launch",
    "threads": "threads of the launch",
    "static_instructions": "instructions of the kernel and the functions that it may call",
    "dynamic_instructions": "thread instructions executed (`thread_instructions`)",
    "floating_point_instructions": "of these, arithmetic and functions on floating-point numbers of any precision",
    "executed_instructions": "of the dynamic instructions, those that the analysis itself executed",
    "executed_percent": "the same in per cent",
    "divergent_branches": "branches, once per warp, at which its lanes diverged (`branches.divergent`)",
    "divergent_branches_per_cta": "the same per CTA",
    "branch_efficiency": "per cent of branches that did not diverge, 100 if there were none (`branches.efficiency`)",
    "duration_ms": "wall-clock milliseconds of the analysis: compiling, running and counting",
}
_FLOATING = ("fp16", "fp32", "fp64", "special_function")


@takes_annotated
def csv_rows(profiles: Iterable[Profile]) -> list[dict[str, str | int | float]]:
    """A row of ``COLUMNS`` per profile, in the order given. A sum of launches is one row."""
    counts: Counter[tuple[str, str]] = Counter()
    rows = []
    for profile in profiles:
        counts[profile.path, profile.kernel] += 1
        rows.append(_row(profile, counts[profile.path, profile.kernel]))
    return rows


@takes_annotated
def csv_text(profiles: Iterable[Profile], further: Mapping[str, Sequence[object]] | None = None) -> str:
    """The table with a header, lines ending in CR LF. ``further`` are additional columns at the end, by name, a value per profile.

    Numbers are written as Python writes them: a point, no grouping, floats with as many digits as distinguish them.
    """
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\r\n")
    further = further or {}
    table.writerow((*COLUMNS, *further))
    for index, row in enumerate(csv_rows(profiles)):
        table.writerow((*row.values(), *(values[index] for values in further.values())))
    return stream.getvalue()


def _row(profile: Profile, launch: int) -> dict[str, str | int | float]:
    plans = [(record.plan, record.times) for record in profile.records]
    ctas = sum(plan.ctas * times for plan, times in plans)
    values: tuple[str | int | float, ...] = (
        profile.path,
        profile.kernel,
        launch,
        f"{profile.version[0]}.{profile.version[1]}",
        profile.target,
        profile.address_size,
        profile.records[0].program.kernel.module.instruction_count,
        ctas,
        sum(plan.ctas * plan.threads_per_cta * times for plan, times in plans),
        profile.static_instructions,
        profile.thread_instructions,
        sum(profile.by_category.get(category, 0) for category in _FLOATING),
        round(profile.share_executed * profile.thread_instructions),
        100 * profile.share_executed,
        profile.branches.divergent,
        profile.branches.divergent / ctas,
        profile.branches.efficiency,
        round(1000 * profile.seconds, 3),
    )
    return dict(zip(COLUMNS, values, strict=True))
