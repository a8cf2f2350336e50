"""``gpuperf tune``: the best tiling of a warp-specialised matrix product, and its timeline."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError, nearest
from gpuperf_engine.machines.machine import load_machine

from ..core.escaping import clean, one_line
from ..report.gantt import gantt_svg, gantt_text
from .common import NOT_JUDGED, OK, Subcommands, UsageError, check_targets, columns, write

if TYPE_CHECKING:
    from gpuperf_engine.warp_specialization import (
        Calibration,
        Parameters,
        Prediction,
        Problem,
        Search,
        Timeline,
    )

__all__ = ["add_parser"]

_MEASURED = ("m", "n", "k", "tile_m", "tile_n", "tile_k", "us")
_STAGES = 8
"""Drawn stages of a tile by default."""


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "tune",
        help="find the best tiling of a warp-specialised matrix product",
        usage="gpuperf tune MxNxK… [--dtype TYPE] --target ID… [options]",
        epilog="the model is Liu and Grover's; docs/warp-specialization.md says what it assumes",
    )
    _add_problem(parser)
    _add_tilings(parser)
    _add_search(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_problem(parser: argparse.ArgumentParser) -> None:
    """Options for the product and its machines."""
    parser.add_argument("shape", metavar="MxNxK", nargs="+", type=_extents, help="A is M x K, B is K x N")
    parser.add_argument(
        "--dtype",
        metavar="TYPE",
        default="f16",
        help="element type of A and B: f16 (default), bf16, tf32, s8, e4m3, f32, f64",
    )
    parser.add_argument(
        "--target",
        metavar="ID",
        action="append",
        required=True,
        help="a machine (repeatable; see gpuperf targets)",
    )


def _add_tilings(parser: argparse.ArgumentParser) -> None:
    """Options for the candidate tilings."""
    parser.add_argument(
        "--tile",
        metavar="MxNxK",
        action="append",
        type=_extents,
        help="use this tile instead of searching (repeatable)",
    )
    parser.add_argument(
        "--depth", metavar="N", action="append", type=_positive, help="buffers (repeatable; default: 1 to 8)"
    )
    parser.add_argument(
        "--dma-warps",
        type=int,
        choices=(1, 2),
        help="1: A and B are loaded one after the other; 2: concurrently (default: either)",
    )
    parser.add_argument(
        "--math-warps",
        metavar="N",
        action="append",
        type=_positive,
        help="MATH warps (repeatable; default: 4 and 8)",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    """Options for the objective of the search, the model, and the number of processes."""
    parser.add_argument(
        "--goal",
        choices=("time", "waiting"),
        default="time",
        help="the shortest time (default), or the shortest wait for loads",
    )
    parser.add_argument(
        "--solver",
        choices=("exhaustive", "z3"),
        default="exhaustive",
        help="both find the same tiling (default: exhaustive)",
    )
    parser.add_argument(
        "--measurements",
        metavar="FILE.csv",
        help=f"fit the model of the one target to these: columns {','.join(_MEASURED)}",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=_positive, default=1, help="number of search processes (default: 1)"
    )
    parser.add_argument("--dask", metavar="ADDRESS", help="search on the Dask cluster of this scheduler")


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Options for the output."""
    parser.add_argument(
        "--stages", metavar="N", type=_positive, default=_STAGES, help=f"stages to draw (default: {_STAGES})"
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "svg", "html"),
        default="table",
        help="svg draws the timeline, html has the table and a timeline for each row (default: table)",
    )
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )


def _extents(text: str) -> tuple[int, int, int]:
    try:
        m, n, k = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not MxNxK") from None
    if min(m, n, k) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: each extent is at least 1")
    return m, n, k


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


@dataclass(frozen=True)
class _SearchResult:
    """The result of a search: a configuration, or why there is none."""

    search: Search
    result: Prediction | EngineError

    @property
    def target(self) -> str:
        return self.search.machine.id

    def timeline(self, stages: int) -> Timeline:
        from gpuperf_engine.warp_specialization import timeline

        assert not isinstance(self.result, EngineError)
        return timeline(self.search.problem, self.result.tiling, self.search.chosen(), stages)

    def drawn(self, stages: int) -> str:
        """Describe the drawn part of the tile."""
        assert not isinstance(self.result, EngineError)
        of = self.result.stages
        return (
            f"the first {stages} of {of} stages, without the epilogue" if stages < of else f"all {of} stages"
        )


def run(arguments: argparse.Namespace) -> int:
    from gpuperf_engine.warp_specialization import DTYPES, connect, sweep

    check_targets(*arguments.target)
    if arguments.dtype not in DTYPES:
        raise UsageError(
            f"--dtype {arguments.dtype!r} is not known; {nearest(arguments.dtype, DTYPES, noun='type')}"
        )
    calibration = _calibration(arguments)
    searches = _searches(arguments, calibration.parameters if calibration else None)
    if arguments.format == "svg" and len(searches) != 1:
        raise UsageError(
            f"--format svg draws one timeline, not {len(searches)}: give one shape, tile and target"
        )
    if arguments.dask:
        with closing(connect(arguments.dask)) as cluster:
            results = sweep(searches, cluster=cluster)
    else:
        results = sweep(searches, jobs=arguments.jobs)
    found = [_SearchResult(search, result) for search, result in zip(searches, results, strict=True)]
    failed = [item.result for item in found if isinstance(item.result, EngineError)]
    if failed and (arguments.format == "svg" or len(failed) == len(found)):
        raise failed[0]
    if arguments.format == "json":
        rows = [_row(item, arguments.stages) for item in found]
        document: dict[str, Any] = {"schema_version": 1, "goal": arguments.goal, "rows": rows}
        if calibration:
            document["calibration"] = {
                "fit_percent": calibration.fit,
                "left_out_percent": calibration.left_out,
            }
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    elif arguments.format == "svg":
        text = gantt_svg(found[0].timeline(arguments.stages), _title(found[0]))
    elif arguments.format == "html":
        text = _page(found, calibration, arguments.stages)
    else:
        text = "\n".join(_lines(found, calibration, arguments)) + "\n"
    write(text, arguments.output)
    return NOT_JUDGED if failed else OK


def _searches(arguments: argparse.Namespace, parameters: Parameters | None) -> list[Search]:
    from gpuperf_engine.warp_specialization import Problem, Search, TileSpace

    space = TileSpace()
    space = replace(
        space,
        depth=tuple(arguments.depth or space.depth),
        dma_warps=(arguments.dma_warps,) if arguments.dma_warps else space.dma_warps,
        math_warps=tuple(arguments.math_warps or space.math_warps),
    )
    spaces = [replace(space, m=(m,), n=(n,), k=(k,)) for m, n, k in arguments.tile or ()] or [space]
    return [
        Search(
            Problem(m, n, k, arguments.dtype),
            load_machine(target),
            some,
            arguments.goal,
            arguments.solver,
            parameters,
        )
        for m, n, k in arguments.shape
        for target in arguments.target
        for some in spaces
    ]


def _calibration(arguments: argparse.Namespace) -> Calibration | None:
    """Return the calibration fitted to the file of measurements, if there is one."""
    if arguments.measurements is None:
        return None
    from gpuperf_engine.warp_specialization import Measurement, Problem, Tiling, calibrate
    from gpuperf_engine.warp_specialization.parameters import math_us_per_multiply_add

    if len(arguments.target) != 1:
        raise UsageError("--measurements belong to one GPU: give one --target")
    path = arguments.measurements
    machine = load_machine(arguments.target[0])
    try:
        rows = list(csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()))
        given = [
            Measurement(
                Problem(int(row["m"]), int(row["n"]), int(row["k"]), arguments.dtype),
                Tiling(
                    int(row["tile_m"]),
                    int(row["tile_n"]),
                    int(row["tile_k"]),
                    depth=int(row.get("depth") or 2),
                    dma_warps=int(row.get("dma_warps") or 1),
                ),
                float(row["us"]),
            )
            for row in rows
        ]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error}; columns are {','.join(_MEASURED)}, a number in each") from None
    math = math_us_per_multiply_add(machine, arguments.dtype).value
    return calibrate(given, machine.sm_count, source=f"fitted to {path}", multiply_add_us=math)


def _teraflops(problem: Problem, us: float) -> float:
    return 2 * problem.m * problem.n * problem.k / us / 1e6


def _row(item: _SearchResult, stages: int) -> dict[str, Any]:
    problem = item.search.problem
    row: dict[str, Any] = {
        **asdict(problem),
        "target": item.target,
        "machine_revision": item.search.machine.revision,
    }
    if isinstance(item.result, EngineError):
        return row | {"error": str(item.result)}
    parameters = item.search.chosen()
    drawn = item.timeline(stages)
    return row | {
        **asdict(item.result),
        "tflops": _teraflops(problem, item.result.total_us),
        "parameters": {"name": parameters.name, "numbers": [asdict(number) for number in parameters.numbers]},
        "timeline": [asdict(part) for part in drawn.intervals],
    }


_HEAD = (
    "product",
    "target",
    "tile",
    "depth",
    "DMA",
    "MATH",
    "us",
    "waits",
    "TFLOP/s",
    "waves",
    "stages",
    "shared B",
    "limiter",
)


def _cells(item: _SearchResult) -> tuple[str, ...]:
    """A row of the table."""
    problem = item.search.problem
    name = f"{problem.m}x{problem.n}x{problem.k} {problem.dtype}"
    if isinstance(item.result, EngineError):
        return (name, item.target, "–", *("",) * 9, "–")
    best, tiling = item.result, item.result.tiling
    return (
        name,
        item.target,
        str(tiling),
        *map(str, (tiling.depth, tiling.dma_warps, tiling.math_warps)),
        f"{best.total_us:.2f}",
        f"{best.waiting_us:.2f}",
        f"{_teraflops(problem, best.total_us):.1f}",
        *map(str, (best.waves, best.stages, best.shared_bytes)),
        best.limiter,
    )


def _remarks(
    results: Sequence[_SearchResult], calibration: Calibration | None
) -> tuple[list[str], list[str]]:
    """Return why there is no configuration, by target; and the sources of the numbers."""
    errors = [
        f"{item.target}: {one_line(line, 400)}"
        for item in results
        if isinstance(item.result, EngineError)
        for line in str(item.result).splitlines()
    ]
    one = len({item.target for item in results}) == 1
    return errors, _about(results[0].search.chosen(), calibration, all_of_one=one)


def _lines(
    results: Sequence[_SearchResult], calibration: Calibration | None, arguments: argparse.Namespace
) -> list[str]:
    errors, sources = _remarks(results, calibration)
    lines = [*columns([_HEAD, *map(_cells, results)], right=range(3, 12)), *errors, "", *sources]
    if len(results) == 1:
        lines += [
            "",
            f"one tile, {results[0].drawn(arguments.stages)} (A, B load, # MATH, E epilogue, . waits):",
        ]
        lines += gantt_text(results[0].timeline(arguments.stages))
    return lines


def _page(results: Sequence[_SearchResult], calibration: Calibration | None, stages: int) -> str:
    """The table as a page, and below it the timeline of each row."""
    errors, sources = _remarks(results, calibration)
    cells = [[f"<th>{name}</th>" for name in _HEAD]]
    cells += [[f"<td>{escape(clean(cell))}</td>" for cell in _cells(item)] for item in results]
    pictures = [
        f"<h2>{escape(clean(_title(item)))}</h2><p>One tile, {item.drawn(stages)}.</p>{gantt_svg(item.timeline(stages), _title(item))}"
        for item in results
        if not isinstance(item.result, EngineError)
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gpuperf tune</title>',
            f"<style>{_PAGE_STYLE}</style></head><body><h1>Tilings of warp-specialised products</h1><table>",
            *(f"<tr>{''.join(row)}</tr>" for row in cells),
            "</table>",
            f"<pre>{escape(clean(chr(10).join([*errors, *sources])))}</pre>",
            *pictures,
            "</body></html>",
            "",
        ]
    )


_PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "th,td{padding:.2em .6em;border-bottom:1px solid #8888;text-align:right}"
    "pre{overflow-x:auto}svg{max-width:100%;height:auto}"
)


def _about(parameters: Parameters, calibration: Calibration | None, *, all_of_one: bool) -> list[str]:
    """Describe the sources of the numbers."""
    if calibration:
        fit, apart = calibration.fit, calibration.left_out
        return [
            f"{parameters.name}, {calibration.parameters.source}: {len(fit)} rows, mean error {sum(fit) / len(fit):.2f} % "
            f"(worst {max(fit):.2f} %), leave-one-out {sum(apart) / len(apart):.2f} % ({max(apart):.2f} %)"
        ]
    if not all_of_one:
        return ["times are derived from the descriptions of the machines, not measured"]
    rows = [
        (number.name, f"{number.value:.6g}", number.unit, one_line(number.source, 70))
        for number in parameters.numbers
    ]
    return [f"{parameters.name}, not measured:", *columns(rows, right=(1,))]


def _title(item: _SearchResult) -> str:
    assert not isinstance(item.result, EngineError)
    problem, tiling = item.search.problem, item.result.tiling
    return (
        f"{problem.m}x{problem.n}x{problem.k} {problem.dtype} on {item.target}: tile {tiling}, {tiling.depth} buffers, "
        f"{tiling.dma_warps} DMA warps, {item.result.total_us:.2f} us"
    )
