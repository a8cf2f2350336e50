"""How far predicted times are from measured ones: the page ``docs/accuracy.md``.

Own measurements (``benchmarks/hardware``) are judged on the half of the kernels that never calibrates anything; measurements
that others published are judged on all rows, each with what of it any machine description was taken from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean, median
from typing import Any

import numpy as np

__all__ = ["Point", "Score", "directions", "render", "score"]

#: measured times that differ by less are not asked for their direction
LEAST_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Point:
    """One case: measured and predicted microseconds."""

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Score:
    """Errors as parts of one: mean, median and largest of their magnitudes, mean with sign; Spearman's rank correlation."""

    count: int
    mean: float
    median: float
    worst: float
    signed: float
    spearman: float


def score(points: Sequence[Point]) -> Score:
    """The errors of some points; raises ``ValueError`` for none."""
    if not points:
        raise ValueError("no points to judge")
    errors = [point.error for point in points]
    return Score(
        len(points),
        mean(map(abs, errors)),
        median(map(abs, errors)),
        max(map(abs, errors)),
        mean(errors),
        spearman([point.measured for point in points], [point.predicted for point in points]),
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation, equal values sharing their ranks; NaN where one side is constant."""
    ranks = [_ranks(np.asarray(side, float)) for side in (one, other)]
    centred = [side - side.mean() for side in ranks]
    size = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float((centred[0] * centred[1]).sum()) / size if size else float("nan")


def _ranks(values: Any) -> Any:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def directions(pairs: Iterable[tuple[Point, Point]]) -> tuple[int, int]:
    """Of the pairs whose measured times differ by more than 5 %: how many, and in how many of them the prediction says the same
    of which is slower."""
    asked = right = 0
    for one, other in pairs:
        if abs(other.measured / one.measured - 1) > LEAST_DIFFERENCE:
            asked += 1
            right += (other.predicted > one.predicted) == (other.measured > one.measured)
    return asked, right


# -- own measurements ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def profiles(case: Any) -> list[Any]:
    """The launches of a timed case on the emulator; its cases of other caches follow one another in a document."""
    import gpuperf_engine as ge
    from tests.hardware.expected import argument

    program = case.program()
    device = ge.Device(observe={"memory", "footprint"})
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
    module = ge.parse(case.text, path=str(case.ptx))
    return [
        device.launch(
            module[launch.entry],
            launch.grid,
            launch.block,
            [argument(value, arrays) for value in launch.args],
            shared_bytes=launch.shared_bytes,
        )
        for launch in program.launches
    ]


def predicted(case: Any, machine: str, caches: str) -> float:
    """What the engine says of a timed case, in microseconds."""
    import gpuperf_engine as ge

    return sum(
        ge.estimate(profile, machine, model="kleimenov-popova", caches=caches).time_us
        for profile in profiles(case)
    )


def own(document: Any, predict: Callable[[Any, str, str], float] = predicted) -> list[str]:
    """The section of one measured GPU."""
    from benchmarks.measurements import judged
    from tests.hardware import collect

    timed = collect.timed()
    cases = {case.name: case for case in timed.TIMED}
    points: dict[tuple[str, str], Point] = {}
    for item in document["cases"]:
        key = (item["name"], item["caches"])
        time = predict(cases[item["name"]], document["machine"], item["caches"])
        points[key] = Point(item["name"], item["median_us"], time)
    lines = [
        f"### {document['gpu']}",
        "",
        f"Driver {document['driver'] or 'unknown'}, CUDA {document['cuda']}, {document['date'][:10]}, predicted as "
        f"`{document['machine']}`.",
        "",
        *TABLE,
    ]
    for caches in ("warm", "cold"):
        for half, name in ((True, "judged"), (False, "calibrating")):
            some = [point for key, point in points.items() if key[1] == caches and judged(key[0]) == half]
            if some:
                lines.append(_row(f"{name} half, {caches} caches", score(some)))
    lines += [
        "",
        "| pairs that differ in one thing | differ by more than 5 % | direction right |",
        "|---|---:|---:|",
    ]
    for caches in ("warm", "cold"):
        pairs = [
            (points[one, caches], points[other, caches])
            for one, other in timed.PAIRS.values()
            if (one, caches) in points and (other, caches) in points and (judged(one) or judged(other))
        ]
        asked, right = directions(pairs)
        lines.append(
            f"| {caches} caches, one of the two in the judged half | {asked} of {len(pairs)} | {right} |"
        )
    return lines


TABLE = [
    "| points | number | mean | median | worst | with sign | Spearman |",
    "|---|---:|---:|---:|---:|---:|---:|",
]


def _row(name: str, found: Score) -> str:
    percents = (found.mean, found.median, found.worst, found.signed)
    return (
        f"| {name} | {found.count:,} | "
        + " | ".join(f"{100 * x:.1f} %" for x in percents)
        + f" | {found.spearman:.3f} |"
    )


# -- what others measured -----------------------------------------------------------------------------------------------


def streams() -> list[str]:
    """Six streaming kernels over all occupancies."""
    from tests.timing import streams as source

    lines = [*TABLE]
    for file, label in (("stream_measured.csv", "six kernels, V100, A100 40 GB, A40, GH200"),
                        ("stream_heldout.csv", "the same, H200 and L40, held out")):  # fmt: skip
        rows = list(source.measured(file))
        points = [
            Point("", row.microseconds, (1 + source.error(row, "kleimenov-popova")) * row.microseconds)
            for row in rows
        ]
        lines.append(_row(label, score(points)))
    return lines


def small_kernels() -> list[str]:
    """One kernel at every size."""
    from tests.timing import small_kernels as source

    lines = [*TABLE]
    rows = list(source.measured())
    for series, machine in source.MACHINES.items():
        for label, chosen in source.REGIONS.items():
            some = [
                row
                for row in rows
                if row.series == series and source.region(row) == label and source.judged(row)
            ]
            if some:
                points = [
                    Point("", row.microseconds, (1 + source.error(row)) * row.microseconds) for row in some
                ]
                lines.append(_row(f"`{machine}`, {chosen}", score(points)))
    return lines


def strides() -> list[str]:
    """Cycles of L1 for strided loads."""
    from tests.timing import strides as source

    lines = [*TABLE]
    rows = list(source.measured())
    for gpu, machine in source.MACHINES.items():
        for label, chosen in source.GROUPS.items():
            some = [row for row in rows if row.gpu == gpu and chosen(row)]
            if some:
                points = [Point("", row.cycles, source.predicted(row)) for row in some]
                lines.append(_row(f"`{machine}`, {label}", score(points)))
    return lines


def roofline() -> list[str]:
    """From bound by memory to bound by arithmetic."""
    from tests.timing import roofline as source

    lines = [*TABLE]
    rows = list(source.measured())
    for gpu, machine in source.MACHINES.items():
        for bound in ("memory", "arithmetic"):
            some = [row for row in rows if row.gpu == gpu and row.bound == bound]
            points = [Point("", row.flops / row.rate, row.flops / source.predicted(row)) for row in some]
            lines.append(_row(f"`{machine}`, {bound}", score(points)))
    return lines


def render() -> str:
    """The page."""
    from benchmarks.measurements import documents

    measured = documents()
    lines = [HEAD, "", "## Measured with these tools", ""]
    if measured:
        lines += [OWN, ""]
        for document in measured.values():
            lines += [*own(document), ""]
    else:
        lines += [NOTHING, ""]
    lines += [
        "## Measured by others",
        "",
        STREAMS,
        "",
        *streams(),
        "",
        SMALL,
        "",
        *small_kernels(),
        "",
        STRIDES,
        "",
        *strides(),
        "",
        ROOFLINE,
        "",
        *roofline(),
        "",
        SIMULATED,
        "",
        UNKNOWN,
    ]
    return "\n".join(lines) + "\n"


HEAD = """# Accuracy

How far `time_us` is from measured times. Errors are predicted / measured − 1; mean, median and worst are of their magnitudes.
Spearman is the rank correlation of predicted and measured times. [timing.md](timing.md) describes the model."""

OWN = """Predictions for the kernels of `tests/hardware/timed.py`, whose measured times are in `benchmarks/hardware`
([how they are measured](hardware.md)). The judged half of the kernels, chosen by a hash of the name, was not used for calibration."""

NOTHING = """Nothing yet: `benchmarks/hardware` holds no measurement. The collector, the comparison with the emulator, the conversion,
the calibration and this page's statistics have been run only on substitutes for the driver and on made-up numbers
([hardware.md](hardware.md)). Therefore these are unmeasured on every GPU:

- *Results*: the results of every instruction, of barriers, mbarriers, clusters, copies and matrix products, and of every
  example, compared with a GPU's bit for bit; whether the approximations of a GPU stay within the manual's bounds, and the
  order in which its matrix units add.
- *Counters*: sectors, requests, wavefronts, bank conflicts and divergent branches compared with a profiler's; machine instructions
  executed per PTX instruction, by class (`python -m tests.hardware.static_sass` counts those in the code without a GPU).
- *Times*: the error of predicted times on the judged half of the kernels, mean, median and rank, at three sizes of each example,
  with warm and with cold caches; the direction for pairs that differ in one property (stride, padding, vector width, barriers,
  spills, occupancy by shared memory, unrolling, redundant loads, divergence, atomics on one address, depth of a pipeline, double
  instead of float).
- *Machine numbers*: none was measured with these tools. Those marked `assumed` in `gpuperf targets --all` have not been
  measured for that chip by anyone; on most chips they include the bandwidth of the register file. This project has not
  measured the wake-up at an mbarrier, the issue and latency of bulk and tensor copies, the fence, commit and wait of `wgmma`,
  and shared memory of other CTAs; the simulation uses latencies that others measured on an H800.
- *The collector itself*: its run on a real driver, its time of less than ten minutes on an H200, and the format of `ncu` beyond
  samples."""

STREAMS = """Six streaming kernels (`init read scale triad stencil3pt stencil5pt`) on 2²⁸ doubles over all occupancies, published by
RRZE-HPC/gpu-benches (`gpu-stream`, commits 1038c5d, fd7091f, 0a45416), predicted with cold caches. For the first four GPUs and
the L40, one row each gives the CTA turnaround, and the saturated rows the sustained DRAM rates; the exponent that combines
latency and bandwidth was chosen on the first four; all other rows are the check
([which is which](../tests/timing/data/README.md))."""

SMALL = """One kernel (`a[i] = factor * b[i]` on doubles, back and forth between two arrays) at every size from 4 096 elements, in CTAs
of 32 to 1 024 threads, 10 000 launches in a graph, published by te42kyfo/gpu-benches (`gpu-small-kernels`, commit c35574e). The
caches are warm: data that fits stays in L2, and the predictions use `caches="warm"`. Rows from which a machine
description takes a number are not judged: the smallest size (launch overhead), the smallest CTAs (rate at which CTAs start), the
largest arrays of the H200 (sustained rate). When these measurements were first examined, the model had no rate at which CTAs start
and no warm caches, its launch overhead included the time of a small kernel, and latency and bandwidth did not add up: the
mean error of the same rows was 37, 36 and 18 % on the A100, 58, 96 and 2 % on the A40, 31, 28 and 19 % on the H200, 154, 190 and 5 %
on the L40. With these defects fixed it was 14, 12 and 3 %, 11, 10 and 2 %, 11, 7 and 2 %, 14, 15 and 5 %. At that time the
start of the CTAs and the latency of the last one overlapped completely, as did a narrow pipe (`double` on A40 and L40) and the
latency before and after it, all of L2 was as fast as its near partition, and the A40's CTAs started at the rate of DRAM-bound
arrays."""

STRIDES = """Cycles of an SM per load of a warp from L1, with lanes a number of 4- or 8-byte elements apart, or in blocks of contiguous
lanes, published by RRZE-HPC/gpu-benches (`gpu-strides`, commit 1038c5d). The benchmark's launch runs on the emulator. Its
wavefronts in the banks of L1 equal the profiler's counter in the log, in every row. A load takes the time of these, or of the
tag look-ups of its lines, four per cycle according to NVIDIA, whichever is longer. If the look-ups take longer, some lines
share a set of the tags and wait for each other. That is part of
[the simulation](simulation.md#tags-of-l1-copies-and-wide-loads) only, as the counters of a launch have the number of lines, not
which they are. The only number taken from these rows is the 126 bytes per clock of A100 and H200 (stride 1). When the cost
of a load in L1 was its sectors and L1 of the A40 had 64 bytes per clock, the mean errors of strides 0 to 8, of 16 to 64 and of
all others were 11, 70 and 35 % on the A100, 60, 33 and 139 % on the A40, and on the H200 11 and 96 % (first and last)."""

ROOFLINE = """One kernel that reads two arrays of floats once and performs 0 to 240 multiply-adds on each pair, published by
te42kyfo/gpu-benches (`gpu-roofline`, commit e4e93a3), predicted at the clock in the log, which falls to 1 320 MHz on the
L40. `memory` are the rows that read at nine tenths of the highest rate or more. No number was taken from these rows. The A100 reads
slower than it writes, and its sustained rate was taken from writes. Before the register file was modelled, the errors of
`arithmetic` were 6, 29, 37 and 25 % (A100, A40, H200, L40)."""

SIMULATED = """## Simulated

`make accuracy` also predicts these sets with the simulation, which needs an assembler: here ptxas 13.0.88, revision 29 of the
simulation, convolutions and products 34. Streams are every tenth row, convolutions every fourth; products are the eleven
stages of 4096³ with this project's own kernels, as are the convolutions (the 2080 Ti at its clock). The small kernels, the loop
of multiply-adds and the strides are not simulated. Eight of the 24 rows on the GH200 are of `scale`, from which (and from
`read`) its waits for busy DRAM were taken. The largest errors are `init` on H200 and GH200 (too fast), a convolution of blocks
of 80 × 2 with tiles of 3 × 4 whose measured code was probably another, and stages 7, 10 and 11 of the products (-8.2, 16.2 and
-13.2 %), whose code here is not the measured one.

It predicts the same rows without an assembler too (`simulation-expanded`): streams (revision 31002) with a mean error of 3.4 %
(99.6 % of the directions), convolutions (36009) with 6.7 % (93.8 %), products (36009) with 7.2 % (96.1 %).

| points | number | mean | median | worst | with sign | Spearman | direction of pairs > 5 % apart |
|---|---:|---:|---:|---:|---:|---:|---:|
| streams, all | 98 | 2.6 % | 1.3 % | 12.6 % | -0.8 % | 0.996 | 99.8 % |
| `a100-sxm-40gb` | 23 | 2.8 % | 1.8 % | 9.5 % | -1.2 % | 0.974 | 100 % |
| `a40` | 18 | 1.7 % | 0.7 % | 6.1 % | -0.8 % | 0.936 | 100 % |
| `gh200` | 24 | 2.7 % | 2.0 % | 12.5 % | -1.8 % | 0.995 | 98.9 % |
| `h200-sxm` | 19 | 4.3 % | 4.6 % | 12.6 % | 1.0 % | 0.991 | 97.6 % |
| `l40` | 14 | 1.2 % | 0.4 % | 4.4 % | -0.9 % | 0.676 | 100 % |
| convolution 17 × 17, `rtx-a6000` | 25 | 7.2 % | 4.3 % | 63.4 % | -3.1 % | 0.817 | 90.9 % |
| convolution 15 × 15, `rtx-2080-ti` | 13 | 5.0 % | 2.8 % | 19.9 % | -4.5 % | 0.978 | 100 % |
| products, `rtx-a6000` | 11 | 6.0 % | 3.5 % | 16.2 % | 0.9 % | 0.918 | 94.1 % |

[timing.md](timing.md#simulated) has the errors if the measured kernels themselves are simulated, and further sets."""

UNKNOWN = """Few kernels here are bound by shared memory or integer arithmetic, and none is divergent or dominated by atomics:
the absolute error of predictions for such kernels is unknown."""
