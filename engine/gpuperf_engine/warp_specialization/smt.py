"""The search for the best configuration as a problem for an SMT solver, in SMT-LIB 2, solved by z3.

Each value of each extent has a Boolean. Limits of the SM and the pipeline are constraints over real numbers: the time of a load
depends on pairs and triples of extents, so each triple implies the stage times and the factors of waves and stages; depth and DMA
warps enter through the recurrences' closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..errors import Unsupported
from ..machines.machine import Machine
from ..machines.occupancy import WARP_SIZE
from .parameters import Parameters
from .problem import BARRIER_BYTES, Integers, Problem, TileSpace, Tiling, Tilings

__all__ = ["Encoding", "encode", "solve"]

_AXES = ("m", "n", "k", "depth", "dma", "math")
_NUMBERS = ("serial", "parallel", "compute", "fill", "period")
_TIES = ("shared", "warps", "tm", "tn", "tk", "dma")
_TIE_AXES = {"tm": "m", "tn": "n", "tk": "k", "dma": "dma"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The problem as SMT-LIB 2 text, and the values of each axis, of which the Boolean ``AXIS_VALUE`` chooses one."""

    text: str
    values: dict[str, tuple[int, ...]]


def encode(
    problem: Problem,
    machine: Machine,
    parameters: Parameters,
    space: TileSpace,
    whole: Callable[[object], Integers],
) -> Encoding:
    """Encode the constraints of a space; ``whole`` converts times in µs to integers."""
    values = {name: tuple(sorted(set(axis))) for name, axis in zip(_AXES, space.axes, strict=True)}
    lines = [f"(declare-const {name}_{value} Bool)" for name in _AXES for value in values[name]]
    lines += [f"(declare-const {name} Real)" for name in (*_NUMBERS, "total", "waiting", *_TIES, "rank")]
    for name in _AXES:
        lines.append(f"(assert (or {' '.join(f'{name}_{value}' for value in values[name])}))")
        for index, value in enumerate(values[name]):
            lines += [f"(assert (not (and {name}_{value} {name}_{other})))" for other in values[name][:index]]
    for term, name in (("tm", "m"), ("tn", "n"), ("tk", "k"), ("dma", "dma")):
        lines += [f"(assert (=> {name}_{value} (= {term} {value}.0)))" for value in values[name]]
    lines += [
        f"(assert (=> (and dma_{dma} math_{math}) (= warps {dma + math}.0)))"
        for dma, math in product(values["dma"], values["math"])
    ]
    lines += _limits(problem, machine, space, values)
    lines += _pipeline(problem, parameters, whole, values)
    # one number for the lexicographic order of the tie-breakers: each has a weight above the sum of all that follow
    terms, unit = [], 1
    for name in reversed(_TIES):
        terms.append(f"(* {unit}.0 {name})")
        unit *= (
            1 + max(values[_TIE_AXES[name]])
            if name in _TIE_AXES
            else 1 + max(values["dma"]) + max(values["math"])
        )
    lines.append(f"(assert (= rank (+ {' '.join(terms)})))")
    return Encoding("\n".join(lines), values)


def _limits(
    problem: Problem, machine: Machine, space: TileSpace, values: dict[str, tuple[int, ...]]
) -> Iterator[str]:
    """Shared memory, registers and warps of a CTA."""
    of = problem.elements
    grain = machine.shared_allocation_unit
    most = min(
        machine.shared_per_cta, machine.shared_per_sm // grain * grain - machine.shared_reserved_per_cta
    )
    yield f"(assert (<= shared {most}.0))"
    for k, depth in product(values["k"], values["depth"]):
        bytes_ = f"(* {depth * k * of.bytes}.0 (+ tm tn))"
        yield f"(assert (=> (and k_{k} depth_{depth}) (= shared (+ {2 * depth * BARRIER_BYTES}.0 {bytes_}))))"
    resident = min(machine.max_threads_per_cta // WARP_SIZE, machine.max_warps_per_sm)
    yield f"(assert (<= warps {resident}.0))"
    registers = min(machine.registers_per_cta, machine.registers_per_sm)
    unit = machine.register_allocation_unit
    for math, dma in product(values["math"], values["dma"]):
        warps = -(-(math + dma) // machine.sub_partitions) * machine.sub_partitions
        of_thread = min(machine.max_registers_per_thread, registers // warps // unit * unit // WARP_SIZE)
        accumulators = max(0, of_thread - space.spare_registers)
        area = accumulators * WARP_SIZE * math // of.registers
        for m in values["m"]:
            yield f"(assert (=> (and math_{math} dma_{dma} m_{m}) (<= tn {area // m}.0)))"


def _pipeline(
    problem: Problem,
    parameters: Parameters,
    whole: Callable[[object], Integers],
    values: dict[str, tuple[int, ...]],
) -> Iterator[str]:
    """The closed form: ``fill`` until the first MATH, then a ``period`` for each further stage."""
    triples = list(product(values["m"], values["n"], values["k"]))
    one = Tilings.of(Tiling(m, n, k, dma_warps=1) for m, n, k in triples)
    two = Tilings.of(Tiling(m, n, k, dma_warps=2) for m, n, k in triples)
    apart, beside = parameters.stage_times(problem, one), parameters.stage_times(problem, two)
    serial = whole(apart.load_a) + whole(apart.load_b)
    parallel = [max(pair) for pair in zip(whole(beside.load_a), whole(beside.load_b), strict=True)]
    compute, epilogue = whole(apart.math), whole(apart.epilogue)
    stages, waves = one.stages(problem), one.waves(problem, parameters.sm_count)
    if 2 not in values["dma"]:
        yield "(assert (= fill serial))"
    elif 1 not in values["dma"]:
        yield "(assert (= fill parallel))"
    else:
        yield "(assert (= fill (ite dma_1 serial parallel)))"
    overlapped = "(ite (> fill compute) fill compute)"
    if 1 in values["depth"]:
        yield f"(assert (= period (ite depth_1 (+ fill compute) {overlapped})))"
    else:
        yield f"(assert (= period {overlapped}))"
    for index, (m, n, k) in enumerate(triples):
        wave, steps = int(waves[index]), int(waves[index]) * (int(stages[index]) - 1)
        math, end = int(compute[index]), int(epilogue[index])
        facts = (
            f"(= serial {int(serial[index])}.0) (= parallel {int(parallel[index])}.0) (= compute {math}.0) "
            f"(= total (+ (* {wave}.0 fill) (* {steps}.0 period) {wave * (math + end)}.0)) "
            f"(= waiting (+ (* {wave}.0 fill) (* {steps}.0 (- period {math}.0))))"
        )
        yield f"(assert (=> (and m_{m} n_{n} k_{k}) (and {facts})))"


def solve(encoding: Encoding, goal: str) -> Tiling | None:
    """Return the best configuration by z3; ``None`` if none fits. Raises :class:`Unsupported` without z3."""
    try:
        import z3
    except ImportError:
        raise Unsupported(
            "z3 is not installed", hint="pip install 'pytest-gpuperf[tune]', or search exhaustively"
        ) from None
    solver = z3.SolverFor("QF_LRA", ctx=z3.Context())
    solver.from_string(encoding.text)
    ends = ("total", "waiting") if goal == "time" else ("waiting", "total")
    model: Any = None
    for name in (*ends, "rank"):
        quantity = z3.Real(name, solver.ctx)
        model = _least(solver, quantity, model)
        if model is None:
            return None
        solver.add(quantity == model[quantity])
    chosen = (
        next(value for value in encoding.values[name] if model[z3.Bool(f"{name}_{value}", solver.ctx)])
        for name in _AXES
    )
    return Tiling(*chosen)


def _least(solver: Any, quantity: Any, model: Any) -> Any:
    """Return a model that minimises the quantity, starting from a known one; ``None`` if there is no model."""
    solver.push()
    if model is not None:
        solver.add(quantity < model[quantity])
    while str(solver.check()) == "sat":
        model = solver.model()
        solver.add(quantity < model[quantity])
    solver.pop()
    return model
