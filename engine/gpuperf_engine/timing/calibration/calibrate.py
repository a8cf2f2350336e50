"""The numbers of a machine, from microbenchmarks that ran on it (``tests/hardware/micro.py``, collected by ``collect.py``).

Only the part ``micro`` is read: kernels whose predicted times are judged do not take part. Numbers that were not measured keep the
value and the source of the base machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log2
from statistics import median, quantiles

from ...errors import MachineError
from ...machines.machine import Machine
from ...machines.schema import QUANTITIES
from .collected import Collected
from .observed import observed

__all__ = ["Calibration", "Number", "calibrate"]

#: The largest interquartile range of a case's times, relative to the median, of a valid measurement.
UNSTEADY = 0.10
#: The largest relative deviation of the clock from its median.
CLOCK = 0.10
#: A rate within this of a power of two is rounded to it: units have whole lanes, and loops have a small overhead.
WHOLE_LANES = 0.05
#: Measurement error may exceed a limit by this factor.
MARGIN = 1.05
#: Facts reported by the driver, and the attribute of the machine that each must equal.
STATED = {
    "sm_count": "sm_count", "threads_per_sm": "max_threads_per_sm", "ctas_per_sm": "max_ctas_per_sm",
    "registers_per_sm": "registers_per_sm", "shared_per_sm": "shared_per_sm", "shared_per_block_optin": "shared_per_cta",
}  # fmt: skip

#: Latency → case: a dependence chain.
LATENCY_CASES = {
    "fma": "latency_fma_rn_f32", "alu": "latency_lop3", "imad": "latency_mad_lo_s32", "fp64": "latency_fma_rn_f64",
    "fp16": "latency_fma_rn_f16x2", "xu": "latency_rsqrt_approx_f32", "shuffle": "latency_shfl_idx",
    "shared": "chase_shared", "l1": "chase_ca/l1", "l2": "chase_cg/l2", "dram": "chase_cg/dram",
}  # fmt: skip
#: Unit → case in which all warps of an SM issue independent instructions.
RATE_CASES = {
    "fma": "rate_fma_rn_f32", "alu": "rate_lop3", "imad": "rate_mad_lo_s32", "fp64": "rate_fma_rn_f64",
    "fp16": "rate_fma_rn_f16x2", "xu": "rate_ex2_approx_f32", "lsu": "shared_load/stride1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Number:
    """One measured number: its path in a machine file, its value, and its derivation."""

    path: str
    value: float
    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured numbers by path, and for each other number of ``wanted`` the reason for which it was not measured; ``observed``:
    measurements that have no field in a machine description, by name."""

    numbers: Mapping[str, Number]
    missing: Mapping[str, str]
    observed: Mapping[str, Number]


def calibrate(collected: Collected, base: Machine) -> Calibration:
    """The numbers of the machine on which ``collected`` was measured; ``base`` describes the same model.

    Raises :class:`MachineError` if the driver reports another machine than ``base``, or if measurements are inconsistent or
    impossible: unsteady times, a varying clock, latencies of caches out of order, rates above the hardware limits.
    """
    _same_model(collected, base)
    measured = _Measured(collected, base)
    numbers: dict[str, Number] = {}
    missing: dict[str, str] = {}
    for path, unit, work in measured.rules():
        try:
            value, note = work()
        except KeyError as problem:
            missing[path] = str(problem.args[0])
            continue
        numbers[path] = Number(path, value, unit, note)
    if not numbers:
        raise MachineError(f"{collected.path} holds no microbenchmark", hint="collect the part 'micro'")
    _consistent(numbers, base, collected)
    others = {name: Number(name, _rounded(value), "cycles", note) for name, value, note in observed(measured)}
    return Calibration(numbers, missing, others)


def _same_model(collected: Collected, base: Machine) -> None:
    about = collected.machine
    capability = (about.get("capability_major"), about.get("capability_minor"))
    if capability != base.compute_capability:
        seen, own = (".".join(map(str, item)) for item in (capability, base.compute_capability))
        raise MachineError(
            f"{collected.path} is of compute capability {seen}, {base.id} of {own}",
            hint="give the most similar machine with --base",
        )
    for key, attribute in STATED.items():
        if key in about and about[key] != getattr(base, attribute):
            raise MachineError(
                f"{about.get('gpu')} states {key} {about[key]}, {base.id} says {getattr(base, attribute)}",
                hint="give a base machine of the same model; parts of a GPU (MIG) cannot be calibrated",
            )


class _Measured:
    """The cases of a collected part as numbers. Missing data raise ``KeyError`` with the reason."""

    def __init__(self, collected: Collected, base: Machine) -> None:
        self.collected, self.base = collected, base
        self.mhz, self.clock_note = self._clock()

    def rules(self) -> Iterator[tuple[str, str, Callable[[], tuple[float, str]]]]:
        """Path, unit and evaluation of every number that microbenchmarks give."""
        units = {rule.path: rule.unit for rule in QUANTITIES}

        def rule(
            path: str, work: Callable[[], tuple[float, str]]
        ) -> tuple[str, str, Callable[[], tuple[float, str]]]:
            group = path.partition(".")[0]
            return path, {"latency": "cycles", "lanes": "lanes/sub-partition"}.get(group) or units[path], work

        yield rule("chip.clock", lambda: (self._known_clock(), self.clock_note))
        for name, case in LATENCY_CASES.items():
            yield rule(f"latency.{name}", partial(self.latency, case))
        if self.base.l2_partitions > 1:
            yield rule("latency.l2_far", partial(self.latency, "chase_cg/l2_far"))
        yield rule("latency.tensor", lambda: self.latency(self.matrix("latency")[0]))
        for name, case in RATE_CASES.items():
            yield rule(f"lanes.{name}", partial(self.lanes, case))
        yield rule("sm.issue_rate", self.issue_rate)
        yield rule("registers.read_rate", self.read_rate)
        yield rule("lanes.adu", self.barrier_lanes)
        yield rule("lanes.tensor", self.matrix_lanes)
        yield rule("cache.l1_bandwidth", lambda: self.bytes_per_cycle("read_l1"))
        yield rule("cache.l1_tag_rate", self.tag_rate)
        yield rule("cache.l2_sm_bandwidth", lambda: self.bytes_per_cycle("read_l2/one"))
        yield rule("cache.l2_bandwidth", self.l2_bandwidth)
        yield rule("dram.sustained_one_way", self.one_way)
        yield rule("dram.sustained_mixed", lambda: self.gigabytes("copy_dram"))
        yield rule("launch.cta_turnaround", self.turnaround)
        yield rule("launch.cta_rate", self.cta_rate)
        yield rule("launch.overhead", self.overhead)

    # -- single cases ---------------------------------------------------------------------------------------------------

    def fact(self, case: str, key: str) -> float:
        """A number that occurs once in a case's line."""
        if case not in self.collected.cases:
            raise KeyError(f"{case} was not collected")
        record = self.collected.cases[case]
        if "error" in record:
            raise KeyError(f"{case} failed: {str(record['error']).splitlines()[0]}")
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise self.collected.fault(case, f"{key!r} is {value!r}, not a number", "collect this case again")
        return float(value)

    def steady(self, case: str, key: str = "us") -> float:
        """The median of a case's times, which must be steady."""
        self.fact(case, "operations")
        values = self.collected.numbers(case, key)
        middle = median(values)
        if len(values) > 1 and middle > 0:
            low, _, high = quantiles(values, n=4, method="inclusive")
            if (high - low) / middle > UNSTEADY:
                raise self.collected.fault(
                    case,
                    f"its times spread over {100 * (high - low) / middle:.0f} % of {middle:.4g} µs",
                    "measure on an otherwise idle machine, with locked clocks",
                )
        if middle <= 0:
            raise self.collected.fault(case, f"its time is {middle:g} µs", "collect this case again")
        return middle

    def cycles(self, case: str) -> float:
        """Cycles of the slowest warp."""
        value = self.fact(case, "longest")
        if value <= 0:
            raise self.collected.fault(case, "it took no cycles", "collect this case again")
        return value

    def _clock(self) -> tuple[float | None, str]:
        rates: dict[str, float] = {}
        for case, record in self.collected.cases.items():
            if "error" in record or "ns" not in record or not self.fact(case, "longest"):
                continue
            nanoseconds, cycles = self.collected.numbers(case, "ns"), self.collected.numbers(case, "cycles")
            if min(nanoseconds) >= 50_000:  # the timer has a resolution of up to a microsecond
                rates[case] = 1e3 * median(cycles) / median(nanoseconds)
        if not rates:
            return None, ""
        middle = median(rates.values())
        for case, rate in rates.items():
            if abs(rate / middle - 1) > CLOCK:
                raise self.collected.fault(
                    case,
                    f"its clock was {rate:.0f} MHz, that of the others {middle:.0f}: the clock changed while it was measured",
                    "lock the clocks (nvidia-smi --lock-gpu-clocks) and collect again",
                )
        return float(round(middle)), f"cycles over nanoseconds of {len(rates)} kernels"

    def _known_clock(self) -> float:
        if self.mhz is None:
            raise KeyError("no kernel ran for 50 µs")
        return self.mhz

    # -- what they give -------------------------------------------------------------------------------------------------

    def step(self, case: str) -> float:
        """Cycles of each operation in a dependence chain."""
        nothing = self.fact("empty", "longest") if "empty" in self.collected.cases else 0.0
        return max(0.0, self.cycles(case) - nothing) / self.fact(case, "operations")

    def latency(self, case: str) -> tuple[float, str]:
        per_step = self.step(case)
        return float(max(1, round(per_step))), f"{case}: {per_step:.2f} cycles a step"

    def issue_rate(self) -> tuple[float, str]:
        case = "rate_issue"
        warps = self.fact(case, "threads") / 32 / self.base.sub_partitions
        rate = warps * self.fact(case, "operations") / self.cycles(case)
        return _whole(rate), f"{case}: {rate:.3g}"

    def lanes(self, case: str, units: float = 1.0) -> tuple[float, str]:
        """Lanes of a sub-partition: 32 for each instruction of its warps, divided by the cycles of all of them."""
        warps = self.fact(case, "threads") / 32 / self.base.sub_partitions
        rate = warps * self.fact(case, "operations") * units * 32 / self.cycles(case)
        return _whole(rate), f"{case}: {rate:.3g}"

    def read_rate(self) -> tuple[float, str]:
        """Operands that a sub-partition reads per cycle: three for each multiply-add, without register reuse."""
        case, kept = "rate_fma_three", "rate_fma_rn_f32"
        if self.cycles(case) < MARGIN * self.cycles(kept):
            raise KeyError(
                "multiply-adds of operands that are kept are as slow: their unit limits before the register file"
            )
        warps = self.fact(case, "threads") / 32 / self.base.sub_partitions
        rate = 3 * warps * self.fact(case, "operations") / self.cycles(case)
        return _whole(rate), f"{case}: {rate:.3g}"

    def barrier_lanes(self) -> tuple[float, str]:
        case = "barrier/32warps"
        each = self.cycles(case) / self.fact(case, "operations")
        rate = self.fact(case, "threads") / self.base.sub_partitions / each
        return _whole(rate), f"{case}: {each:.3g} cycles a barrier"

    def matrix(self, kind: str) -> tuple[str, float]:
        """The case for this architecture, and 1 024 multiply-adds per instruction."""
        if self.base.compute_capability >= (8, 0):
            return f"{kind}_mma_m16n8k16_f32_f16", 2.0
        return f"{kind}_mma_m16n8k8_f32_f16", 1.0

    def matrix_lanes(self) -> tuple[float, str]:
        if self.base.compute_capability >= (10, 0):
            raise KeyError(
                "from 10.0 on tcgen05 alone reaches the rate of the matrix units, and is not measured"
            )
        if self.base.compute_capability < (9, 0):
            return self.lanes(*self.matrix("rate"))
        each, _ = self.warpgroup()
        # m64n256k16 has 256 units of 1 024 multiply-adds; a warp on each sub-partition executes its share.
        rate = 256 / self.base.sub_partitions * 32 / each
        return _whole(rate), f"wgmma_n256_16 less wgmma_n256_4: {each:.4g} cycles a product"

    def warpgroup(self) -> tuple[float, float]:
        """Cycles of one warpgroup product m64n256k16, and the additional cycles of a group of them: fence, commit and wait."""
        few, many = "wgmma_n256_4", "wgmma_n256_16"
        nothing = self.fact("empty", "longest") if "empty" in self.collected.cases else 0.0
        groups, cycles = [], []
        for case, count in ((few, 4), (many, 16)):
            groups.append(self.fact(case, "operations") / count)
            cycles.append(max(0.0, self.cycles(case) - nothing) / groups[-1])
        if cycles[1] <= cycles[0]:
            raise self.collected.fault(many, "16 products took no longer than 4", "collect both again")
        each = (cycles[1] - cycles[0]) / 12
        return each, max(0.0, cycles[0] - 4 * each)

    def bytes_per_cycle(self, case: str) -> tuple[float, str]:
        rate = self.fact(case, "bytes") * self.fact(case, "operations") / self.cycles(case)
        return _rounded(rate), case

    def tag_rate(self) -> tuple[float, str]:
        """Lines of L1 per cycle: each lane accesses its own line and its own bank."""
        case = "global_load_ca/stride33"
        rate = self.fact(case, "threads") * self.fact(case, "operations") / self.cycles(case)
        return _whole(rate), f"{case}: {rate:.3g}"

    def beyond_launch(self, case: str) -> float:
        """Microseconds of a kernel beyond those of an empty kernel."""
        time, nothing = self.steady(case), self.steady("nothing/one")
        if time <= nothing:
            raise self.collected.fault(
                case, f"it took {time:.4g} µs, a kernel that does nothing {nothing:.4g}", "collect both again"
            )
        return time - nothing

    def l2_bandwidth(self) -> tuple[float, str]:
        case = "read_l2/all"
        moved = self.fact(case, "bytes") * self.fact(case, "operations")
        return _rounded(moved / self.beyond_launch(case) / self._known_clock()), case

    def gigabytes(self, case: str) -> tuple[float, str]:
        moved = self.fact(case, "bytes") * self.fact(case, "operations")
        return _rounded(moved / self.beyond_launch(case) / 1e3), case

    def one_way(self) -> tuple[float, str]:
        (read, _), (write, _) = self.gigabytes("read_dram"), self.gigabytes("write_dram")
        return _rounded((read + write) / 2), f"mean of read_dram, {read:g}, and write_dram, {write:g}"

    def turnaround(self) -> tuple[float, str]:
        few, many = "nothing/16alone", "nothing/64alone"
        more = self.steady(many) - self.steady(few)
        waves = (self.fact(many, "ctas") - self.fact(few, "ctas")) / self.base.sm_count
        if more <= 0 or waves <= 0:
            raise self.collected.fault(many, "more waves took no longer", "collect both again")
        return float(round(more / waves * self._known_clock())), "an empty CTA after another on each SM"

    def cta_rate(self) -> tuple[float, str]:
        case = "nothing/many"
        return _rounded(self.fact(case, "ctas") / self.beyond_launch(case) / self._known_clock()), case

    def overhead(self) -> tuple[float, str]:
        each = self.steady("nothing/one", "graph_us")
        rest = each - self.turnaround()[0] / self._known_clock()
        if rest < 0:
            raise self.collected.fault(
                "nothing/one", f"a launch takes {each:.4g} µs, less than a CTA on it", "collect it again"
            )
        return _rounded(rest), "a kernel that does nothing, in a graph, less the turnaround of its CTA"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _whole(rate: float) -> float:
    """A rate near a power of two, rounded to it."""
    near = 2.0 ** round(log2(rate)) if rate > 0 else 1.0
    return near if abs(rate / near - 1) <= WHOLE_LANES else float(f"{rate:.3g}")


def _consistent(numbers: Mapping[str, Number], base: Machine, collected: Collected) -> None:
    """Raises ``MachineError`` for impossible numbers."""

    def value(path: str) -> float:
        return numbers[path].value if path in numbers else base.quantities[path].value

    def refuse(said: str) -> MachineError:
        return MachineError(
            f"{collected.path}: {said}", hint="nothing is written; collect again, or remove that case"
        )

    levels = ["latency.l1", "latency.l2", "latency.l2_far", "latency.dram"]
    for near, far in pairwise(name for name in levels if name in numbers or name in base.quantities):
        if {near, far} & set(numbers) and value(near) >= value(far):
            raise refuse(f"{near} is {value(near):g} cycles, {far} {value(far):g}")
    for path in numbers:
        if path.startswith("lanes.") and value(path) > 32 * MARGIN:
            raise refuse(
                f"{path} is {value(path):g}: a sub-partition issues one instruction of 32 lanes a clock"
            )
    sheet = base.dram_bandwidth * MARGIN
    for path in ("dram.sustained_one_way", "dram.sustained_mixed"):
        if path in numbers and value(path) > sheet:
            raise refuse(f"{path} is {value(path):g} GB/s, the data sheet says {base.dram_bandwidth:g}")
    clock = value("chip.clock")
    if (
        "cache.l2_bandwidth" in numbers
        and value("cache.l2_bandwidth") * clock < value("dram.sustained_one_way") * 1e3
    ):
        rate = value("cache.l2_bandwidth") * clock / 1e3
        raise refuse(f"L2 gives {rate:.4g} GB/s, DRAM behind it {value('dram.sustained_one_way'):g}")
    ports = value("cache.l2_sm_bandwidth") * base.sm_count * MARGIN
    if {"cache.l2_bandwidth", "cache.l2_sm_bandwidth"} <= set(numbers) and value(
        "cache.l2_bandwidth"
    ) > ports:
        raise refuse(
            f"L2 gives {value('cache.l2_bandwidth'):g} B/clk, {base.sm_count} SMs can take {ports:.4g}"
        )
    if "cache.l1_bandwidth" in numbers and value("cache.l1_bandwidth") > 128 * MARGIN:
        raise refuse(f"cache.l1_bandwidth is {value('cache.l1_bandwidth'):g}: a wavefront has 128 bytes")
