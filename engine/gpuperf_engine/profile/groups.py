"""Groups of opcodes that are equivalent to the metrics of NVIDIA's ``nvprof``.

Names, levels and definitions are those of the Profiler User's Guide, section "Metrics Reference", capability 7.x. A metric's
instructions follow from their rows in the instruction table (category, effect, kind of floating-point operation, type, state
space), so that a new instruction is grouped by what its row says. CUDA Flux (Braun, Fröning 2019) compares in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ..isa.effects import ATOMIC, LOAD, PURE, REDUCTION, STORE, TEXTURE
from ..isa.model import Form
from ..isa.types import ScalarType

__all__ = [
    "CLASSES",
    "METRICS",
    "PRECISIONS",
    "Metric",
    "metrics_of",
    "worked_on",
]

#: Type of a floating-point operation → precision; packed types count their lanes.
PRECISIONS = {
    "f16": "hp",
    "f16x2": "hp",
    "bf16": "hp",
    "bf16x2": "hp",
    "f32": "sp",
    "f32x2": "sp",
    "f64": "dp",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``level`` is ``thread`` (executions by threads whose guard holds) or ``warp`` (executions by warps); ``own`` says
    that nvprof has no such metric and it was added by analogy."""

    name: str
    level: str
    meaning: str
    own: bool = False


def _flop_metrics() -> list[Metric]:
    metrics = []
    for short, long in (("sp", "single"), ("dp", "double"), ("hp", "half")):
        what = f"{long}-precision floating-point"
        metrics += [
            Metric(
                f"flop_count_{short}", "thread", f"{what} operations: adds, multiplies, 2 per multiply-add"
            ),
            Metric(f"flop_count_{short}_add", "thread", f"{what} adds and subtractions"),
            Metric(f"flop_count_{short}_mul", "thread", f"{what} multiplications"),
            Metric(f"flop_count_{short}_fma", "thread", f"{what} multiply-adds, 1 each"),
            Metric(
                f"flop_count_{short}_special",
                "thread",
                f"{what} divisions, roots and functions, in no other flop_count",
                own=short != "sp",
            ),
        ]
    return metrics


def _access_metrics() -> list[Metric]:
    metrics = []
    for space in ("global", "local", "shared", "surface", "generic"):
        for plural in ("loads", "stores"):
            where = f"{space} addresses" if space == "generic" else space
            metrics.append(
                Metric(f"inst_executed_{space}_{plural}", "warp", f"{where}: {plural}", space == "generic")
            )
    return [
        *metrics,
        Metric("inst_executed_global_atomics", "warp", "global: atom"),
        Metric("inst_executed_global_reductions", "warp", "global: red"),
        Metric("inst_executed_shared_atomics", "warp", "shared: atom and red"),
        Metric("inst_executed_surface_atomics", "warp", "surface: atomics"),
        Metric("inst_executed_surface_reductions", "warp", "surface: reductions"),
        Metric("inst_executed_generic_atomics", "warp", "generic addresses: atom", own=True),
        Metric("inst_executed_generic_reductions", "warp", "generic addresses: red", own=True),
        Metric("inst_executed_tex_ops", "warp", "texture instructions"),
    ]


_CLASSES = {
    "inst_integer": "integer arithmetic, logic, shifts, comparison and selection of integers",
    "inst_fp_16": "half precision and bfloat16: arithmetic, functions, comparison, selection; packed ones once",
    "inst_fp_32": "single precision: arithmetic, functions, comparison, selection",
    "inst_fp_64": "double precision: arithmetic, functions, comparison, selection",
    "inst_bit_convert": "conversions",
    "inst_control": "branches, calls, returns, exits",
    "inst_compute_ld_st": "loads, stores, copies, atomics, of all state spaces; of matrices too",
    "inst_inter_thread_communication": "shuffles, votes, matches, warp reductions",
    "inst_misc": "moves, barriers, fences, matrix products, textures and the rest",
}
#: These partition the instructions: they add up to ``thread_instructions_predicated_on``.
CLASSES: tuple[str, ...] = tuple(_CLASSES)
#: All metrics in the order of reports.
METRICS: tuple[Metric, ...] = (
    *_flop_metrics(),
    *(Metric(name, "thread", meaning) for name, meaning in _CLASSES.items()),
    Metric("inst_executed", "warp", "all instructions"),
    *_access_metrics(),
)

_CLASS_OF = {
    "integer": "inst_integer",
    "logic": "inst_integer",
    "fp16": "inst_fp_16",
    "fp32": "inst_fp_32",
    "fp64": "inst_fp_64",
    "bit_convert": "inst_bit_convert",
    "load_store": "inst_compute_ld_st",
    "atomic": "inst_compute_ld_st",
    "control": "inst_control",
    "inter_thread": "inst_inter_thread_communication",
}
_BY_PRECISION = {"hp": "inst_fp_16", "sp": "inst_fp_32", "dp": "inst_fp_64"}
_PLURALS = {LOAD: "loads", STORE: "stores", ATOMIC: "atomics", REDUCTION: "reductions"}
_SPACES = ("global", "local", "shared", "generic")


def _image_metric(form: Form) -> str:
    """The warp-level metric of an instruction on textures or surfaces: only those of surfaces say what happens outside."""
    if form.modifier("mode") is None:
        return "inst_executed_tex_ops"
    if form.effect is TEXTURE:
        return "inst_executed_surface_loads"
    return f"inst_executed_surface_{'reductions' if form.modifier('op') else 'stores'}"


@cache
def metrics_of(form: Form) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """What one execution adds: to the thread-level metrics (how much), and to which warp-level ones (one each)."""
    threads = {_class_of(form): 1}
    warps = ["inst_executed"]
    if form.effect is PURE and form.row.flop and form.type is not None:
        flop, name = form.row.flop, f"flop_count_{PRECISIONS[form.type.name]}"
        threads[f"{name}_{flop}"] = form.lanes
        if flop != "special":
            threads[name] = form.flops
    if form.effect in _PLURALS and form.space in _SPACES:
        shared = form.space == "shared" and form.effect is REDUCTION
        warps.append(f"inst_executed_{form.space}_{'atomics' if shared else _PLURALS[form.effect]}")
    if form.category == "texture":
        warps.append(_image_metric(form))
    return threads, tuple(warps)


def _class_of(form: Form) -> str:
    """The class by category; comparisons, selections and special functions by the type of their operands; matrix loads and stores as
    accesses."""
    if form.category in ("compare_select", "special_function"):
        worked = worked_on(form)
        return _BY_PRECISION.get(PRECISIONS.get(worked.name if worked else "", ""), "inst_integer")
    if form.category == "matrix" and form.unit == "lsu":
        return "inst_compute_ld_st"
    return _CLASS_OF.get(form.category, "inst_misc")


def worked_on(form: Form) -> ScalarType | None:
    """The type of the first source: for comparisons the compared type, not that of the result."""
    return next((slot.type for slot in form.sources), form.type)
