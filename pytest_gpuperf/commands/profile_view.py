"""Text and JSON of a launch: its profile, estimate, counts of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .._engine import engine
from ..core.metric import ESTIMATE
from ..core.numbers import number
from ..core.records import Explanation
from ..judge.accesses import access_rows, access_table, footprint_table
from ..judge.explanation import explanation_tables
from ..judge.why import why_lines
from ..sources.paths import SourcePaths
from .common import columns

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, Profile
    from gpuperf_engine.profile.threads import Sample

__all__ = ["Shown", "document_of", "from_here", "lines_of"]


class Shown(NamedTuple):
    """One launch: its estimate and its profile (one of them may be ``None``), predicted times, counts of single threads by name."""

    sample: Sample | None
    profile: Profile | None
    estimates: dict[str, Estimate]
    threads: list[tuple[str, Any]]


def lines_of(shown: Shown, scheme: str) -> Iterator[str]:
    """For a terminal, opcodes grouped by a scheme of ``Profile.groups``."""
    if shown.profile is not None:
        explanation = _shown_from_here(cast(Explanation, engine.explain(shown.profile).to_dict()))
        yield from _profile_table(shown.profile, shown.estimates, scheme, explanation)
    if shown.threads:
        yield ""
        yield from _threads_table(shown.threads)
    if shown.sample is not None:
        yield from ("",) if shown.profile is not None else ()
        yield from _sample_table(shown.sample, shown.profile, scheme)


def document_of(shown: Shown) -> dict[str, object]:
    """For JSON."""
    document: dict[str, Any] = {}
    if shown.sample is not None:
        document["sample"] = shown.sample.to_dict()
        if shown.profile is not None:
            errors = shown.sample.errors(shown.profile)
            document["sample"]["errors"] = {
                name: None if math.isinf(error) else error for name, error in errors.items()
            }
    if shown.threads:
        document["threads"] = {name: asdict(counts) for name, counts in shown.threads}
    return document if shown.profile is None else {**_launch(shown.profile, shown.estimates), **document}


def _launch(profile: Profile, estimates: dict[str, Estimate]) -> dict[str, object]:
    return {
        "profile": profile.to_dict(),
        "explanation": engine.explain(profile).to_dict(),
        "estimates": {
            name: {
                "model": e.model,
                "machine_revision": e.machine_revision,
                "time_us": e.time_us,
                "launch_us": e.launch_us,
                "limiter": e.limiter,
                "bounds": dict(e.bounds),
                "occupancy": e.occupancy,
                "ctas_per_sm": e.ctas_per_sm,
                "waves": e.waves,
                "l2_read_sectors": e.l2_read_sectors,
                "notes": list(e.notes),
                "stalls": [asdict(stall) for stall in e.stalls],
                "advice": [asdict(item) for item in e.advice],
            }
            for name, e in estimates.items()
        },
    }


def _metrics(profile: Profile) -> Iterator[tuple[str, int | float]]:
    yield "thread_instructions", profile.thread_instructions
    yield "warp_instructions", profile.warp_instructions
    yield "thread_instructions_predicated_on", profile.thread_instructions_predicated_on
    yield "branches.executed", profile.branches.executed
    yield "branches.divergent", profile.branches.divergent
    yield "branches.efficiency", profile.branches.efficiency
    memory = profile.observed_memory
    for name, value in memory.to_dict().items() if memory is not None else ():
        # omit the efficiency of kinds without accesses
        moved = isinstance(value, float) and getattr(memory, name.replace("efficiency", "sectors"))
        if isinstance(value, int) or moved:
            yield f"memory.{name}", value
    source = "estimated" if profile.resources.source == ESTIMATE else "ptxas"
    yield f"resources.registers ({source})", profile.resources.registers
    yield "resources.shared_bytes", profile.resources.shared_bytes
    yield "resources.local_bytes", profile.resources.local_bytes
    for name, value in sorted(profile.flops.items()):
        yield f"flops.{name}", value


def from_here(position: str) -> str:
    """Return a source line with its path relative to the current folder, if it was compiled by its absolute path."""
    folder = Path.cwd()
    absolute = PurePosixPath(position).is_absolute() or PureWindowsPath(position).is_absolute()
    return SourcePaths([folder], folder).place(position) if absolute else position


def _shown_from_here(explanation: Explanation) -> Explanation:
    for row in (*explanation["loops"], *explanation["branches"]):
        row["source"] = from_here(row["source"])
    for line in explanation["lines"]:
        line["path"] = from_here(f"{line['path']}:").removesuffix(":")
    return explanation


def _profile_table(
    profile: Profile, estimates: dict[str, Estimate], groups: str, explanation: Explanation
) -> Iterator[str]:
    shapes = {"grid": profile.grid, "block": profile.block, "cluster": profile.cluster}
    if profile.cluster == (1, 1, 1):
        del shapes["cluster"]
    shown = ", ".join(f"{name} {' × '.join(map(str, parts))}" for name, parts in shapes.items())
    yield f"{profile.kernel} of {profile.path} ({profile.target}), {shown}"
    for note in profile.notes:
        yield f"note: {note}"
    if profile.demand != "values":
        share = (
            f"demand {profile.demand}: {100 * profile.share_executed:.3g} % of the instructions were executed"
        )
        reason = f", because {profile.method_reason}" if profile.method_reason else ""
        yield f"{share}, {'in' if profile.method == 'every block' else 'by'} {profile.method}{reason}"
    yield ""
    yield from columns([(name, number(value)) for name, value in _metrics(profile) if value], right=(1,))
    yield ""
    head = ("category", "thread instructions") if groups == "categories" else ("metric", "executions")
    counts = [(name, number(value)) for name, value in profile.groups(groups).items() if value]
    yield from columns([head, *counts], right=(1,))
    yield ""
    opcodes = sorted(profile.opcodes, key=lambda name: (-profile.opcodes[name], name))
    table = [("opcode", "threads", "warps")]
    table += [
        (name, number(profile.opcodes[name]), number(profile.warp_opcodes.get(name, 0)))
        for name in opcodes[:20]
    ]
    yield from columns(table, right=(1, 2))
    if len(opcodes) > 20:
        yield f"… {len(opcodes) - 20} more opcodes (--format json has all)"
    memory = access_table(access_rows(profile.sites, from_here), profile.path)
    yield from ("", *columns(memory, right=(2,))) if memory else ()
    touched = footprint_table(profile.observed_footprint or ())
    yield from ("", *columns(touched, right=range(1, 6))) if touched else ()
    for numbers, rows in explanation_tables(explanation, profile.path, profile.thread_instructions):
        yield ""
        yield from columns(rows, right=numbers)
    for name, estimate in estimates.items():
        yield ""
        yield f"{name}: {number(estimate.time_us)} µs, limited by {estimate.limiter} ({estimate.model})"
        bounds = sorted(estimate.bounds.items(), key=lambda item: (-item[1], item[0]))
        yield from (
            f"  {line}"
            for line in columns(
                [(f"bound {bound}", f"{value:.4g} µs") for bound, value in bounds], right=(1,)
            )
        )
        yield f"  occupancy {100 * estimate.occupancy:.3g} % ({estimate.ctas_per_sm} CTAs per SM, by {estimate.occupancy_limiter})"
        if estimate.l2_read_sectors is not None:
            yield f"  {number(estimate.l2_read_sectors)} sectors read from L2 (modelled)"
        yield from (f"  note: {note}" for note in estimate.notes)
        yield from (
            f"  {line}" for line in why_lines(estimate.stalls, estimate.advice, estimate.time_us, from_here)
        )


def _sample_table(sample: Sample, exact: Profile | None, scheme: str) -> Iterator[str]:
    """An estimate, beside the exact counts if these were run."""
    threads = [f"{list(thread)} of CTA {list(cta)}" for cta, thread in sample.places]
    shown = ", ".join(threads[:4]) + (f", … ({len(threads)} in all)" if len(threads) > 4 else "")
    yield f"ESTIMATE of {sample.kernel} from {sample.threads:,} of {sample.of_threads:,} threads: {shown}"
    yield f"CTAs run for it: {sample.ctas_run:,}"
    yield ""
    guess = {"thread_instructions": sample.thread_instructions, **sample.groups(scheme)}
    if exact is None:
        rows = [(name, f"≈ {value:,.0f}") for name, value in guess.items() if value]
        yield from columns([("thread level", "estimate"), *rows], right=(1,))
        return
    truth = {"thread_instructions": exact.thread_instructions, **exact.groups(scheme)}
    compared = [("thread level", "estimate", "exact", "error")]
    for name, error in sample.errors(exact, scheme).items():
        percent = "–" if math.isinf(error) else f"{100 * error:+.3g} %"
        compared.append((name, f"≈ {guess.get(name, 0):,.0f}", number(truth.get(name, 0)), percent))
    yield from columns(compared, right=(1, 2, 3))


def _threads_table(threads: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Opcodes of single threads, a column each."""
    opcodes = sorted({opcode for _, counts in threads for opcode in counts.opcodes})
    rows = [("opcode", *(name for name, _ in threads))]
    rows += [
        (opcode, *(number(counts.opcodes.get(opcode, 0)) for _, counts in threads)) for opcode in opcodes
    ]
    rows.append(("all", *(number(counts.thread_instructions) for _, counts in threads)))
    yield from columns(rows, right=range(1, len(threads) + 1))
