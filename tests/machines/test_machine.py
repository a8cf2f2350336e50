"""Machine descriptions: every shipped one is complete and sourced, and every fault in one is named with its position."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gpuperf_engine.errors import MachineError, UnknownName, nearest
from gpuperf_engine.machines.expansion import expansion_of
from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids
from gpuperf_engine.machines.rates import peak_rate
from gpuperf_engine.machines.schema import QUANTITIES
from gpuperf_engine.machines.targets import can_run, parse_target


def test_required_machines_are_there() -> None:
    wanted = (
        "v100-sxm2 v100-pcie a100-sxm-40gb a100-sxm-80gb h100-pcie h100-sxm h200-sxm gh200 b200 t4 l4 l40 a40 rtx-2080-ti "
        "rtx-3090 rtx-4090 rtx-a6000 rtx-a5000 rtx-a4000 gtx-1050 p100 "
        "a10 a30 a100-pcie-80gb l40s rtx-3080 rtx-4080 rtx-6000-ada rtx-5080 rtx-5090 "
        "rtx-3060 rtx-3070 rtx-4070 rtx-4070-ti-super l20 rtx-5070-ti rtx-pro-6000-blackwell b300"
    )
    assert set(machine_ids()) == set(wanted.split())


def test_toy_is_found_only_where_tests_look(machines: Path) -> None:
    assert "toy" not in machine_ids()
    assert "toy" in machine_ids([machines])
    with pytest.raises(UnknownName):
        load_machine("toy")


def test_a_machine_goes_to_another_process_and_stays_what_it_is(toy: Machine) -> None:
    there = pickle.loads(pickle.dumps(toy))
    assert there == toy and type(there.lanes) is type(toy.lanes)


@pytest.mark.parametrize("identifier", machine_ids())
def test_shipped_machine_is_complete(identifier: str) -> None:
    machine = load_machine(identifier)
    assert machine.id == identifier
    # the link to the host too; the clocks of busy tensor cores and multiply-adds where they are others, caches of instructions from
    # Ampere on, and two levels of them from GA10x on; turns of atomics and sectors stored in part from Turing on, and single words
    # on 8.0
    absent = {"chip.tensor_clock", "chip.fma_clock"}
    if machine.compute_capability < (7, 5):
        absent |= {"atomics.turns"}
    if machine.compute_capability < (7, 5):
        absent |= {"cache.l2_partial_rate"}
    if machine.compute_capability != (8, 0):
        absent |= {"cache.l2_single_rate"}
    # Turing shares L1 and shared memory in two ways only; what else reads L2 is known of one GPU
    if machine.compute_capability != (7, 5):
        absent |= {"shared.carve_out"}
    if identifier != "rtx-2080-ti":
        absent |= {"cache.l2_other_reads"}
    if machine.compute_capability <= (8, 0):
        absent |= {"cache.gcc", "cache.gcc_bandwidth"}
    if machine.compute_capability < (8, 0):
        absent |= {"cache.icc", "cache.icc_ways", "cache.icc_prefetch", "cache.icc_l2_bandwidth"}
    # of 9.0, 10.0 and 12.0 it is known in which time queued instructions read their registers, and how many the SM holds
    if machine.compute_capability < (9, 0):
        absent |= {"sm.operand_rate", "sm.memory_pool"}
    # that loads wait for busy DRAM was measured on 8.0 and 9.0, which have HBM, like 10.0 and 10.3; GDDR6 has no such wait
    if machine.compute_capability not in ((8, 0), (9, 0), (10, 0), (10, 3)):
        waits = {"dram.wait_one_way", "dram.wait_mixed"}
        assert not waits & set(machine.quantities)
        absent |= waits
    # GeForce GPUs alone execute products with FP16 or integer accumulators at another rate
    if (
        not ("GeForce" in machine.name and "tensor" in machine.lanes)
        and identifier != "rtx-pro-6000-blackwell"
    ):
        absent |= {"sm.tensor_fp16_accumulate"}
    # additions of integers have twice the rate of other integer instructions on 12.0 alone
    if machine.compute_capability[0] != 12:
        absent |= {"sm.logic"}
    if machine.compute_capability[0] != 10:
        absent |= {"tensor_memory.read", "tensor_memory.write"}
    assert {rule.path for rule in QUANTITIES} - absent <= set(machine.quantities)
    for path, quantity in machine.quantities.items():
        assert quantity.source, path
        assert quantity.source != "assumed" or quantity.note, path
    assert {"fma", "alu", "imad", "fp64", "fp16", "xu", "lsu", "cbu", "adu"} <= set(machine.lanes)
    assert {"fma", "alu", "imad", "fp64", "fp16", "xu", "shuffle", "shared", "l1", "l2", "dram"} <= set(
        machine.latencies
    )
    assert machine.dram_bandwidth >= machine.dram_sustained_one_way >= machine.dram_sustained_mixed
    assert machine.latencies["l1"] < machine.latencies["l2"] < machine.latencies["dram"]
    assert machine.max_threads_per_sm == 32 * machine.max_warps_per_sm


@pytest.mark.parametrize(
    ("identifier", "teraflops", "gigabytes"),
    # Peak FP32 and memory bandwidth as NVIDIA's data sheets state them.
    [
        ("v100-sxm2", 15.7, 900),
        ("a100-sxm-80gb", 19.5, 2039),
        ("h100-sxm", 67, 3350),
        ("rtx-4090", 82.6, 1008),
        ("p100", 10.6, 732),
        ("gtx-1050", 1.862, 112),
        ("a10", 31.2, 600),
        ("a30", 10.3, 933),
        ("a100-pcie-80gb", 19.5, 1935),
        ("l40s", 91.6, 864),
        ("rtx-3080", 29.8, 760),
        ("rtx-4080", 48.7, 716.8),
        ("rtx-6000-ada", 91.1, 960),
        ("rtx-5080", 56.3, 960),
        ("rtx-5090", 104.8, 1792),
        ("rtx-3060", 12.74, 360),
        ("rtx-3070", 20.31, 448),
        ("rtx-4070", 29.1, 504),
        ("rtx-4070-ti-super", 44.1, 672),
        ("l20", 59.35, 864),
        ("rtx-5070-ti", 43.9, 896),
        ("rtx-pro-6000-blackwell", 125, 1792),
    ],
)
def test_peak_rates_are_those_of_the_data_sheet(identifier: str, teraflops: float, gigabytes: float) -> None:
    machine = load_machine(identifier)
    lanes = machine.lanes["fma"] * machine.sub_partitions * machine.sm_count
    assert 2 * lanes * machine.clock_mhz * 1e-6 == pytest.approx(teraflops, rel=0.01)
    assert machine.dram_bandwidth == gigabytes


@pytest.mark.parametrize(
    ("identifier", "both_ways"),
    [
        ("t4", 32),
        ("v100-pcie", 32),
        ("a10", 64),
        ("a30", 64),
        ("l40s", 64),
        ("h100-pcie", 128),
        ("gh200", 900),
    ],
)
def test_the_link_to_the_host_is_that_of_the_data_sheet(identifier: str, both_ways: int) -> None:
    """Which leaves out that 128 bits are sent as 130, and counts both directions together."""
    host = load_machine(identifier).host_bandwidth
    assert host is not None
    encoded = 1 if identifier == "gh200" else 130 / 128
    assert 2 * host * encoded == pytest.approx(both_ways, rel=1e-3)


def test_the_clock_falls_with_the_units_that_are_busy() -> None:
    """Down to the logged one: of tensor cores if they always are, of multiply-adds if 62 % of their units are."""
    h100, l40 = load_machine("h100-sxm"), load_machine("l40")
    assert (h100.tensor_clock_mhz, h100.fma_clock_mhz) == (1830, None)
    assert [h100.microseconds(1e6, *busy) for busy in ((), (0.0, 1.0), (1.0,), (0.5, 0.9))] == pytest.approx(
        [1e6 / clock for clock in (1980, 1980, 1830, 1905)]
    )
    assert (l40.tensor_clock_mhz, l40.fma_clock_mhz) == (None, 1740)
    assert [l40.microseconds(1e6, 1.0, busy) for busy in (0.0, 0.31, 0.62, 1.0)] == pytest.approx(
        [1e6 / clock for clock in (2490, 2115, 1740, 1740)]
    )


def test_peak_rates_of_b200_are_an_eighth_of_the_boards() -> None:
    """HGX B200 data sheet: 600 TFLOP/s single precision, 18 PFLOP/s dense half precision, 62 TB/s for eight GPUs."""
    machine = load_machine("b200")
    per_second = machine.sub_partitions * machine.sm_count * machine.clock_mhz * 1e6
    assert 2 * machine.lanes["fma"] * per_second == pytest.approx(600e12 / 8, rel=0.01)
    # the data sheet's peak is at a clock between those of light load and of a board at its power limit
    assert machine.tensor_clock_mhz is not None
    peak = 2 * 32 * machine.lanes["tensor"] * per_second
    assert peak * machine.tensor_clock_mhz / machine.clock_mhz < 18e15 / 8 < peak
    assert 18e15 / 8 / peak * machine.clock_mhz == pytest.approx(1856, rel=0.01)
    assert machine.dram_bandwidth == pytest.approx(62_000 / 8, rel=0.02)


@pytest.mark.parametrize(
    ("opcode", "operations", "teraflops"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2 * 16 * 8 * 16, 209.5),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", 2 * 16 * 8 * 32, 419),
    ],
)
def test_peak_rates_of_products_on_an_rtx_5090(opcode: str, operations: int, teraflops: float) -> None:
    """Dense, single-precision sums, as the whitepaper states them."""
    machine = load_machine("rtx-5090")
    expansion = expansion_of(opcode, machine.compute_capability)
    assert expansion is not None
    cycles = expansion.units["tensor"] * 32 / machine.lanes["tensor"]
    per_second = machine.sub_partitions * machine.sm_count * machine.clock_mhz * 1e6
    assert operations / cycles * per_second == pytest.approx(teraflops * 1e12, rel=0.01)


@pytest.mark.parametrize(
    ("identifier", "teraops"),
    # Dense INT8, as the whitepapers state it; that of products with FP16 accumulators is half of it.
    [
        ("rtx-2080-ti", 215.2),
        ("rtx-3060", 102),
        ("rtx-3070", 162.6),
        ("rtx-3080", 238),
        ("rtx-3090", 284),
        ("rtx-4080", 389.9),
        ("rtx-4090", 660.6),
        ("rtx-5080", 450.2),
        ("rtx-5090", 838),
        ("a40", 299.3),
        ("l40", 362),
        ("t4", 130),
    ],
)
def test_peak_rates_of_integers(identifier: str, teraops: float) -> None:
    machine = load_machine(identifier)
    per_second = machine.sm_count * machine.clock_mhz * 1e6
    assert peak_rate("tensor_int8", machine) * per_second == pytest.approx(teraops * 1e12, rel=0.02)


@pytest.mark.parametrize(
    ("identifier", "teraflops"), [("rtx-5080", 900.4), ("rtx-5090", 1676), ("rtx-pro-6000-blackwell", 2000)]
)
def test_peak_rates_of_packed_4_bit_numbers(identifier: str, teraflops: float) -> None:
    """Dense; of the RTX PRO 6000 half of the 4000 TOP/s with a sparse factor that its data sheet states."""
    machine = load_machine(identifier)
    per_second = machine.sm_count * machine.clock_mhz * 1e6
    assert peak_rate("tensor_fp4", machine) * per_second == pytest.approx(teraflops * 1e12, rel=0.02)


@pytest.mark.parametrize(("identifier", "runs"), [("p100", "60"), ("gtx-1050", "61"), ("b200", "100a")])
def test_oldest_and_newest_targets(identifier: str, runs: str) -> None:
    machine = load_machine(identifier)
    assert can_run(f"sm_{runs}", machine) and can_run("sm_50", machine)
    assert can_run("sm_90", machine) == (identifier == "b200")
    assert not can_run("sm_90a", machine)


def test_every_number_keeps_unit_and_source(toy: Machine) -> None:
    quantity = toy.quantities["latency.dram"]
    assert (quantity.value, quantity.unit, quantity.source) == (400, "cycles", "made up: round numbers")
    assert toy.quantities["chip.clock"].note == "a cycle is a nanosecond"


def test_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown machine 'h100_sxm'") as caught:
        load_machine("h100_sxm")
    assert "did you mean 'h100-sxm'?" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("h100", "did you mean 'h100-pcie' or 'h100-sxm'?"),
        ("H100-SXM", "did you mean 'h100-sxm'?"),
        ("A100", "did you mean 'a100-pcie-80gb' or 'a100-sxm-40gb' or 'a100-sxm-80gb'?"),
        ("", "known machines: "),
    ],
)
def test_the_beginning_of_an_id_names_those_that_begin_so(given: str, hint: str) -> None:
    """By the number of changed letters alone 'h100' is nearest to 'p100'."""
    assert nearest(given, machine_ids(), noun="machine").startswith(hint)


def test_missing_file_is_named() -> None:
    with pytest.raises(MachineError, match=r"cannot read machine description .*nowhere\.yaml"):
        load_machine("/nowhere.yaml")


@pytest.fixture
def edited(tmp_path: Path, machines: Path):
    text = (machines / "toy.yaml").read_text()

    def edit(old: str, new: str) -> Path:
        assert text.count(old) == 1, old
        path = tmp_path / "toy.yaml"
        path.write_text(text.replace(old, new))
        return path

    return edit


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("sm_count:", "sm_cout:", 13, "chip: missing key 'sm_count'", "is it 'sm_cout'?"),
        (
            "  max_ctas:",
            "  ctas: 1\n  max_ctas:",
            21,
            "sm.ctas: unknown key 'ctas'",
            "did you mean 'max_ctas'?",
        ),
        ("value: 2, unit: SMs", "value: two, unit: SMs", 13, "chip.sm_count.value: expected a number", ""),
        ("value: 2, unit: SMs", "value: 2.5, unit: SMs", 13, "2.5 is not a whole number", ""),
        (
            "value: 2, unit: SMs",
            "value: 0, unit: SMs",
            13,
            "chip.sm_count.value: 0 is too small",
            "the minimum is 1",
        ),
        (
            "value: 80, unit: GB/s, source: TOY",
            "value: 80, unit: GB/s, source: TOY}\n  wait_mixed: {value: 2, unit: of the latency, source: TOY",
            84,
            "dram.wait_mixed.value: 2 is too large",
            "the maximum is 1.9",
        ),
        (
            "value: 2, unit: SMs",
            "value: .nan, unit: SMs",
            13,
            "chip.sm_count.value: .* is not a decimal number",
            "",
        ),
        ("unit: SMs,", "unit: SM,", 13, "chip.sm_count.unit: unit 'SM'", "given in 'SMs'"),
        (
            "unit: SMs, source: TOY",
            "unit: SMs, source: TAY",
            13,
            "unknown source 'TAY'",
            "did you mean 'TOY'?",
        ),
        (
            "unit: SMs, source: TOY",
            "unit: SMs, source: assumed",
            13,
            "an assumed number without a note",
            "state in note",
        ),
        ("unit: SMs, source: TOY", "unit: SMs", 13, "chip.sm_count: missing key 'source'", ""),
        ("  alu: {value: 32", "  alw: {value: 32", 41, "lanes.alw: unknown key 'alw'", "did you mean 'alu'?"),
        ("imad: {pipe: fma,", "imad: {pipe: fna,", 51, "'fna' has no lanes here", "did you mean 'fma'?"),
        ("id: toy", "id: tay", 4, "id: id 'tay' in a file named 'toy.yaml'", "write: id: toy"),
        ('"8.0"', "eight", 7, "'eight' is not a compute capability", "9.0"),
        ("schema: 1", "schema: 2", 3, "schema 2 is not known", "reads schema 1"),
        ("revision: 1", "revision: 1\nrevision: 2", 7, "revision: this key is given twice", "remove one"),
        ("chip:\n", "chip: [\n", 14, "not YAML", ""),
    ],
)
def test_faults_are_named_with_position(
    edited, old: str, new: str, line: int, message: str, hint: str
) -> None:
    with pytest.raises(MachineError, match=message) as caught:
        load_machine(edited(old, new))
    text = str(caught.value)
    assert f"toy.yaml:{line}:" in text
    assert hint in text
    assert len(text.splitlines()) <= 5


LIKE = """schema: 1
id: mine
name: Mine
revision: 2
like: rtx-4080

sources:
  SPEC: "its data sheet"

chip:
  sm_count: {value: 46, unit: SMs, source: SPEC}

latency:
  l2_far: {value: 400, unit: cycles, source: SPEC}
"""


def described(tmp_path: Path, text: str) -> Machine:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_machine(path)


def test_a_machine_like_another_has_its_numbers(tmp_path: Path) -> None:
    mine, other = described(tmp_path, LIKE), load_machine("rtx-4080")
    assert (mine.id, mine.sm_count, other.sm_count) == ("mine", 46, 76)
    assert mine.latencies == {**other.latencies, "l2_far": 400}
    assert (mine.lanes, mine.shared_pipes) == (other.lanes, other.shared_pipes)
    same = ("compute_capability", "clock_mhz", "l2_bytes", "dram_bandwidth", "icc_bytes")
    assert [getattr(mine, name) for name in same] == [getattr(other, name) for name in same]
    # a change of either file is a change of this machine
    assert mine.revision == 2 + other.revision
    assert mine.quantities["chip.sm_count"].source == "its data sheet"
    assert mine.quantities.keys() == {*other.quantities, "latency.l2_far"}


def test_a_machine_like_one_of_another_minor_version() -> None:
    """A B300 runs PTX of its own architecture and of its family, but no other architecture-specific PTX."""
    b300, b200 = load_machine("b300"), load_machine("b200")
    assert (b300.compute_capability, b200.compute_capability) == ((10, 3), (10, 0))
    runs = {
        target
        for target in ("sm_103a", "sm_103f", "sm_100f", "sm_100", "sm_100a", "sm_110f")
        if can_run(target, b300)
    }
    assert runs == {"sm_103a", "sm_103f", "sm_100f", "sm_100"}
    assert not can_run("sm_103f", b200)
    # HGX B300 data sheet: 75 TFLOP/s single, 1.25 double, 2250 dense half precision; the clocks are measured ones
    per_second = 2e6 * b300.sub_partitions * b300.sm_count * b300.clock_mhz
    assert b300.lanes["fma"] * per_second == pytest.approx(75e12, rel=0.03)
    assert b300.lanes["fp64"] * per_second == pytest.approx(1.25e12, rel=0.04)
    assert b300.lanes["tensor"] == b200.lanes["tensor"] and b300.tensor_clock_mhz is not None
    assert 32 * b300.lanes["tensor"] * per_second * b300.tensor_clock_mhz / b300.clock_mhz < 2250e12


def test_what_another_machine_was_measured_to_take_is_assumed(tmp_path: Path) -> None:
    text = LIKE.replace("rtx-4080", "rtx-4090")
    other, mine = load_machine("rtx-4090").quantities["latency.dram"], described(tmp_path, text)
    assert other.source.startswith("measured, ")
    quantity = mine.quantities["latency.dram"]
    assert (quantity.value, quantity.source) == (other.value, "assumed")
    assert quantity.note == f"as on rtx-4090, {other.source}: {other.note}"
    # what the manual says of all GPUs of the compute capability is no assumption
    assert mine.quantities["sm.max_warps"] == load_machine("rtx-4090").quantities["sm.max_warps"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("like: rtx-4080", "like: rtx-408", 5, "like: 'rtx-408' is not a shipped machine", "'rtx-4080'"),
        ("like: rtx-4080", "like: mine", 5, "like: 'mine' is not a shipped machine", "known machines"),
        (
            "like: rtx-4080",
            'like: rtx-4080\ncompute_capability: "9.0"',
            6,
            "compute_capability: '9.0' is another architecture than rtx-4080",
            "without 'like'",
        ),
        (
            "like: rtx-4080",
            "like: rtx-4080\ncompute_capability: 8",
            6,
            "'8' is not a compute capability",
            '"9.0"',
        ),
        ("sm_count:", "sm_cout:", 11, "unknown key 'sm_cout'", "did you mean 'sm_count'?"),
        ("l2_far:", "l2_fra:", 14, "unknown key 'l2_fra'", "did you mean 'l2_far'?"),
        ("unit: SMs", "unit: SM", 11, "unit 'SM'", "given in 'SMs'"),
        ("latency:", "latencies:", 14, "unknown key 'latencies'", "did you mean 'latency'?"),
    ],
)
def test_faults_of_a_machine_like_another(
    tmp_path: Path, old: str, new: str, line: int, message: str, hint: str
) -> None:
    assert LIKE.count(old) == 1
    with pytest.raises(MachineError, match=message) as caught:
        described(tmp_path, LIKE.replace(old, new))
    assert f"mine.yaml:{line}:" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "- a\n- b\n", "just text", "\x00", "a: &x [*x]\n", "{" * 3000, "!!python/object:os.system {}"],
)
def test_hostile_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(text)
    with pytest.raises(MachineError):
        load_machine(path)


def test_a_changed_file_is_read_again(edited) -> None:
    path = edited("value: 400,", "value: 401,")
    assert load_machine(path).latencies["dram"] == 401
    path.write_text(path.read_text().replace("value: 401,", "value: 4020,"))
    assert load_machine(path).latencies["dram"] == 4020


@pytest.mark.parametrize(
    ("target", "runs_on"),
    [
        ("sm_50", "7.0 8.0 8.9 9.0 10.0 10.3 12.0"),
        ("sm_80", "8.0 8.9 9.0 10.0 10.3 12.0"),
        ("sm_89", "8.9 9.0 10.0 10.3 12.0"),
        ("sm_90", "9.0 10.0 10.3 12.0"),
        ("sm_90a", "9.0"),
        ("sm_100", "10.0 10.3 12.0"),
        ("sm_100a", "10.0"),
        ("sm_100f", "10.0 10.3"),
        ("sm_103f", "10.3"),
        ("sm_120a", "12.0"),
        ("sm_90a, texmode_independent", "9.0"),
        ("texmode_unified", ""),
        ("sm_9", ""),
    ],
)
def test_targets(toy: Machine, target: str, runs_on: str) -> None:
    from dataclasses import replace

    for capability in ("7.0", "8.0", "8.9", "9.0", "10.0", "10.3", "12.0"):
        major, minor = map(int, capability.split("."))
        assert can_run(target, replace(toy, compute_capability=(major, minor))) == (
            capability in runs_on.split()
        ), capability


def test_parse_target() -> None:
    assert parse_target("sm_121a") == (12, 1, "a")
    assert parse_target("sm_100f") == (10, 0, "f")
    assert parse_target("sm_90b") is None


def test_a_machine_knows_its_targets() -> None:
    assert load_machine("h100-sxm").targets == ("sm_90", "sm_90a")
    assert load_machine("v100-sxm2").targets == ("sm_70",)


def test_busy_tensor_cores_lower_the_clock() -> None:
    """To the one at which the data sheet states its peak: 989.4 TFLOP/s are 132 · 4096 operations at 1830 MHz."""
    h100 = load_machine("h100-sxm")
    assert 132 * 4096 / h100.microseconds(1.0, 1.0) / 1e6 == pytest.approx(989.4, rel=1e-3)
    assert h100.microseconds(1980.0) == 1.0
    times = [h100.microseconds(1e6, part / 10) for part in range(11)]
    assert times == sorted(times)
    # more clocks in which they are not busy take more time
    assert h100.microseconds(1.1e6, 1 / 1.1) > h100.microseconds(1e6, 1.0)
    assert load_machine("a100-sxm-80gb").microseconds(1410.0, 1.0) == 1.0
