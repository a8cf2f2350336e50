"""What a gate must see: regressions that leave every count of instructions as it was, and what it must not take for one."""

from __future__ import annotations

import shutil

import pytest
import yaml

from pytest_gpuperf.cli import main
from pytest_gpuperf.config.declared import CaseSettings
from pytest_gpuperf.core.metrics import ANALYSIS
from pytest_gpuperf.judge.compare import compare_case
from tests.plugin.store.test_baseline import CASE

KERNEL = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .f32 %f<9>;
    .shared .align 16 .b8 tile[16384];
    .local .align 16 .b8 own[256];
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    setp.lt.u32 %p1, %r2, 32;
    setp.lt.u32 %p2, %r2, 8;
{body}
    ret;
}}
"""

TEST = """\
import numpy as np

def test_k(gpuperf):
    x = gpuperf.zeros(1 << 16, np.uint32)
    gpuperf.kernel("k.ptx")[2, 64](x)
"""

PAIRS = {
    "one-bin": (
        "memory.global_atomic_serializations", 4, 128,
        "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; red.global.add.u32 [%rd1], 1;",
        "mul.wide.u32 %rd2, %r2, 0; add.u64 %rd1, %rd1, %rd2; red.global.add.u32 [%rd1], 1;",
    ),
    "scattered-atomics": (
        "memory.global_atomic_sectors", 16, 128,
        "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; atom.global.add.u32 %r3, [%rd1], 1;",
        "mul.wide.u32 %rd2, %r2, 128; add.u64 %rd1, %rd1, %rd2; atom.global.add.u32 %r3, [%rd1], 1;",
    ),
    "same-sectors-fewer-banks": (
        "memory.global_load_wavefronts", 32, 128,  # a stride of 9 words meets each bank once, of 32 words one bank 32 times
        "mul.wide.u32 %rd2, %r2, 32; add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r3, [%rd1];",
        "mul.wide.u32 %rd2, %r2, 128; add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r3, [%rd1];",
    ),
    "wider-than-needed": (
        "memory.shared_wavefronts", 4, 16,
        "mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 4, %r3; ld.shared.u32 %r4, [%r3];",
        "mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 16, %r3; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];",
    ),
    "contended-shared-atomics": (
        "memory.shared_conflicts", 0, 124,
        "mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 4, %r3; red.shared.add.u32 [%r3], 1;",
        "mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 0, %r3; red.shared.add.u32 [%r3], 1;",
    ),
    "indexed-local": (
        "memory.local_sectors", 16, 128,
        "mov.u32 %r3, own; mad.lo.u32 %r3, %r2, 0, %r3; st.local.u32 [%r3], %r2;",
        "mov.u32 %r3, own; mad.lo.u32 %r3, %r2, 4, %r3; st.local.u32 [%r3], %r2;",
    ),
}  # fmt: skip


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("test_k.py", TEST)
    return project


def write(project, body: str) -> None:
    project.write(
        "k.ptx",
        KERNEL.format(body="\n".join(f"    {line.strip()};" for line in body.split(";") if line.strip())),
    )


def after(project, before: str, now: str) -> dict:
    """The record of the kernel with one body, judged by the baseline of another."""
    write(project, before)
    project.update()
    write(project, now)
    (record,) = project.report()["cases"]
    return record


def row(record, metric):
    (found,) = [row for row in record["rows"] if row["metric"] == metric]
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_what_costs_more_at_equal_instruction_counts_fails(real, name):
    metric, was, now, before, then = PAIRS[name]
    record = after(real, before, then)
    for count in (
        "thread_instructions",
        "warp_instructions",
        "memory.global_load_sectors",
        "memory.local_bytes",
    ):
        assert row(record, count)["verdict"] == "ok", count
    found = row(record, metric)
    assert (found["old"], found["new"], found["verdict"], found["fails"]) == (was, now, "regressed", True)
    assert record["verdict"] == "regressed" and real.result.ret == 1
    real.result.stdout.fnmatch_lines([f"*▲ {metric} *{was}*→*{now}*worse*"])


SPELLINGS = {
    "volatile": ("ld.global.u32 %r3, [%rd1]", "ld.volatile.global.u32 %r3, [%rd1]"),
    "relaxed-sys": ("ld.global.u32 %r3, [%rd1]", "ld.relaxed.sys.global.u32 %r3, [%rd1]"),
    "do-not-cache": ("ld.global.u32 %r3, [%rd1]", "ld.global.cv.u32 %r3, [%rd1]"),
    "read-only": ("ld.global.nc.u32 %r3, [%rd1]", "ld.global.u32 %r3, [%rd1]"),
    "write-through": ("st.global.u32 [%rd1], %r2", "st.global.wt.u32 [%rd1], %r2"),
    "system-scope": ("atom.global.add.u32 %r3, [%rd1], 1", "atom.global.sys.add.u32 %r3, [%rd1], 1"),
    "fence": ("membar.cta", "membar.gl"),
    "rounding": ("add.rn.f32 %f1, %f2, %f3", "add.rz.f32 %f1, %f2, %f3"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_other_opcodes_at_equal_totals_are_seen(project, name):
    project.write("test_k.py", TEST)
    before, now = SPELLINGS[name]
    record = after(project, before, now)
    went, came = before.split()[0], now.split()[0]
    assert record["verdict"] == "changed" and project.result.ret == 0
    note = row(record, "opcodes")["note"]
    assert sorted(note.split(", ")) == sorted([f"−128 {went}", f"+128 {came}"])
    project.result.stdout.fnmatch_lines(
        ["1 kernel analysed: 1 changed", "moved without failing: test_k/k", f"  ≠ test_k/k: opcodes {note}"]
    )
    for report in ("gpuperf.md", "gpuperf.html"):
        assert came.split(".")[0] in (project.path / "out" / report).read_text()


def test_commands_name_other_opcodes_too(project, capsys):
    project.write("test_k.py", TEST)
    for folder, opcode in (("base", "ld.global.u32"), ("head", "ld.volatile.global.u32")):
        write(project, f"{opcode} %r3, [%rd1]")
        project.run(f"--gpuperf-report={folder}")
    capsys.readouterr()
    assert main(["compare", "base/gpuperf.json", "head/gpuperf.json"]) == 0
    said = capsys.readouterr().out
    assert "changed: 1 kernel: 1 changed" in said
    assert "test_k/k: opcodes −128 ld.global.u32, +128 ld.volatile.global.u32" in said


def test_a_predicate_that_lets_more_lanes_through_is_seen(real):
    record = after(real, "@%p2 add.rn.f32 %f1, %f2, %f3", "@%p1 add.rn.f32 %f1, %f2, %f3")
    found = row(record, "thread_instructions_predicated_on")
    assert found["new"] - found["old"] == 4 * (32 - 8)  # 4 warps, of each 8 lanes and all
    assert record["verdict"] == "changed" and not record["fails"]


def test_other_opcodes_are_part_of_a_regression_and_no_reason_for_one(project):
    project.update()
    project.kernel("mov.f32 %f4, %f2;")
    result = project.run("-vv")
    result.stdout.fnmatch_lines(["*≠ opcodes changed: +64 mov.f32"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('tolerance={"opcodes": 5}', "opcodes has no tolerance: every new one counts"),
        ('limits={"opcodes": 5}', "limits: opcodes are not numbers, so they have no limit"),
    ],
)
def test_opcodes_have_neither_tolerance_nor_limit(project, marker, message):
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text.replace('targets=["h100-sxm"]', marker))
    result = project.run()
    assert result.ret != 0
    result.stderr.fnmatch_lines([f"*{message}"])


def judged(was: dict, now: dict, **tolerance: str) -> dict:
    """Metric (and target) → row, of CASE with other resources and registers before and after."""
    made = []
    target = {name: value for name, value in CASE["targets"]["h100-sxm"].items() if name != "machine_code"}
    for change in (was, now):
        occupancy = {**target, "occupancy": change.pop("occupancy", 0.75)}
        made.append(
            {**CASE, "resources": {**CASE["resources"], **change}, "targets": {"h100-sxm": occupancy}}
        )
    rows = compare_case(
        made[1],
        made[0],
        stored_analysis=ANALYSIS,
        analysis=ANALYSIS,
        failures={},
        policy={"on_improvement": "fail", "on_unmodelled": "fail"},
        case=CaseSettings(("h100-sxm",), (), {}, (tuple(tolerance.items()),)),
    )
    return {row["metric"]: row for row in rows}


@pytest.mark.parametrize(
    ("was", "now", "verdicts"),
    [
        (["single-zero | x = a() in t | go(x)"], ["single-zero | y = a() in t | go(x)"], {"changed"}),
        (
            ["single-zero | x = a() in t | go(x)"],
            ["single-zero | y = a() in t | go(x)", "single-zero | z = a() in t | go(x)"],
            {"changed", "regressed"},
        ),
        (
            ["single-zero | x = a() in t | go(x)"],
            ["single-value | y = a() in t | go(x)"],
            {"improved", "regressed"},
        ),
        (
            ["single-zero | x = a() in t | go(x)"],
            ["single-zero | y = a() in t | go(z)"],
            {"improved", "regressed"},
        ),
        # of the lines that allocate there is nothing else to tell that they are the same
        (["single-zero | x = a() in t"], ["single-zero | y = a() in t"], {"improved", "regressed"}),
    ],
)
def test_a_finding_of_a_renamed_object_is_no_new_one(was, now, verdicts):
    rows = compare_case(
        {**CASE, "findings": now},
        {**CASE, "findings": was},
        stored_analysis=ANALYSIS,
        analysis=ANALYSIS,
        failures={},
        policy={"on_improvement": "fail", "on_unmodelled": "fail"},
        case=CaseSettings((), (), {}, ()),
    )
    assert {row["verdict"] for row in rows if row["metric"] == "findings"} == verdicts


@pytest.mark.parametrize(
    ("was", "now", "verdict", "fails"),
    [
        (20, 27, "ok", False),  # 35 %, but fewer than 8
        (64, 79, "ok", False),  # 15, but less than 25 %
        (32, 41, "regressed", True),
        (41, 32, "ok", False),
        (64, 32, "improved", False),
    ],
)
def test_estimated_registers_are_judged_with_a_tolerance(was, now, verdict, fails):
    found = judged({"registers": was}, {"registers": now})["resources.registers"]
    assert (found["class"], found["source"], found["allowed"]) == ("modelled", "estimated", "25%&8")
    assert (found["verdict"], found["fails"]) == (verdict, fails)


@pytest.mark.parametrize(
    ("was", "now", "verdict"), [(32, 33, "regressed"), (33, 32, "improved"), (32, 32, "ok")]
)
def test_registers_of_ptxas_are_judged_exactly(was, now, verdict):
    source = {"from": "ptxas 13.0"}
    found = judged({**source, "registers": was}, {**source, "registers": now})["resources.registers"]
    assert (found["class"], found["source"], found["allowed"]) == ("exact", "ptxas", "0")
    assert (found["verdict"], found["fails"]) == (verdict, verdict != "ok")


def test_a_declared_tolerance_wins_over_that_of_estimates():
    rows = judged({"registers": 32}, {"registers": 33}, **{"resources.registers": "0"})
    assert rows["resources.registers"]["verdict"] == "regressed"


def test_registers_from_elsewhere_and_what_follows_from_them_are_not_comparable():
    rows = judged({}, {"from": "ptxas 13.0", "registers": 40, "occupancy": 0.5})
    reason = "from ptxas 13.0, the baseline from estimate"
    for name in ("resources.registers", "occupancy", "time_us"):
        assert (rows[name]["verdict"], rows[name]["note"]) == ("incomparable", reason), name
    assert rows["thread_instructions"]["verdict"] == "ok"


def test_occupancy_from_estimated_registers_has_a_tolerance():
    assert judged({"occupancy": 0.75}, {"occupancy": 0.625})["occupancy"]["verdict"] == "ok"
    moved = judged({"occupancy": 0.75}, {"occupancy": 0.5})["occupancy"]
    assert (moved["verdict"], moved["class"], moved["source"]) == ("changed", "modelled", "estimated")
    exact = {"from": "ptxas 13.0"}
    moved = judged({**exact, "occupancy": 0.75}, {**exact, "occupancy": 0.7}.copy())["occupancy"]
    assert (moved["verdict"], moved["class"], moved["source"]) == ("changed", "ratio", "ptxas")


@pytest.mark.parametrize("resources", ["estimate", "ptxas"])
def test_every_report_says_where_registers_come_from(real, resources):
    if resources == "ptxas" and shutil.which("ptxas") is None:
        pytest.skip("there is no ptxas")
    chosen = ["-o", f"gpuperf_resources={resources}"]
    write(real, "mov.u32 %r3, 1")
    real.update(*chosen)
    path = real.path / "baselines" / "test_k.yaml"
    now = yaml.safe_load(path.read_text())["cases"]["test_k/k"]["resources"]["registers"]
    path.write_text(path.read_text().replace(f"registers: {now}\n", "registers: 250\n"))
    write(real, "mov.u32 %r3, 2")  # else the analysis would have moved it
    (record,) = real.report("-vv", *chosen)["cases"]
    word = {"estimate": "estimated", "ptxas": "ptxas"}[resources]
    assert row(record, "resources.registers")["source"] == word
    said = f"resources.registers ({word})"
    assert (
        said in real.result.stdout.str() or word == "estimated"
    )  # a better estimate fails nothing, so no test fails
    assert said in (real.path / "out" / "gpuperf.html").read_text()
    assert word in (real.path / "out" / "gpuperf.md").read_text()
