"""The ``gpuperf`` command: what works, what it says when it does not, and its exit codes."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import FAILED, NOT_JUDGED, OK, USAGE
from tests.plugin.conftest import ptx

LOAD = "ld.global.f32 %f3, [%rd1];"

LOOP = """\
.version 8.0
.target sm_70
.address_size 64
.visible .entry count(.param .u32 n, .param .u64 out)
{
    .reg .u32 %r<4>;
    .reg .u64 %rd<2>;
    .reg .pred %p;
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd1, [out];
    mov.u32 %r2, 0;
    setp.eq.u32 %p, %r1, 0;
    @%p bra DONE;
LOOP:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra LOOP;
DONE:
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


@pytest.fixture
def loop(tmp_path: Path) -> str:
    path = tmp_path / "loop.ptx"
    path.write_text(LOOP)
    return str(path)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_inspect(loop, capsys):
    code, out, _ = run(capsys, "inspect", loop)
    assert code == OK
    assert "count(u32 n, u64 out)  line 4" in out
    assert "3, 2 conditional branches, 1 back edge\n" in out
    document = json.loads(run(capsys, "inspect", loop, "--format", "json")[1])
    (kernel,) = document["kernels"]
    assert (kernel["instructions"], kernel["blocks"], kernel["branches"], kernel["loops"]) == (10, 3, 2, 1)


def test_control_flow_graph(loop, capsys, tmp_path):
    code, dot, _ = run(capsys, "inspect", loop, "--cfg", "dot")
    assert code == OK
    assert [line.strip() for line in dot.splitlines() if "->" in line] == [
        'n0 -> n2 [label="taken"];',
        'n0 -> n1 [label="not taken"];',
        'n1 -> n1 [label="taken", style=dashed];',
        'n1 -> n2 [label="not taken"];',
    ]
    assert run(capsys, "inspect", loop, "--cfg", "svg", "-o", str(tmp_path / "c.svg"))[0] == OK
    root = ElementTree.parse(tmp_path / "c.svg").getroot()
    assert len(root.findall(".//{*}path[@class='edge']")) == 3
    assert len(root.findall(".//{*}path[@class='edge back']")) == 1
    assert len(root.findall(".//{*}rect")) == 3


def test_graph_of_hostile_text_is_inert(tmp_path, capsys):
    path = tmp_path / "evil.ptx"
    path.write_text(ptx('/* "]; </text><script>alert(1)</script> \\ */ mov.f32 %f4, %f2;'))
    svg = run(capsys, "inspect", str(path), "--cfg", "svg")[1]
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    dot = run(capsys, "inspect", str(path), "--cfg", "dot")[1]
    label = r'"(?:[^"\\]|\\.)*"'
    assert re.fullmatch(
        rf'digraph {label} {{\n  node \[shape=box, fontname="monospace"\];\n(?:  n\d+(?: -> n\d+)? \[label={label}\];\n)+}}\n',
        dot,
    )


def test_profile_table_json_and_csv(loop, capsys):
    base = ["profile", loop, "--grid", "2", "--block", "32", "--arg", "u32=5", "--arg", "u32[1]=zeros"]
    # per thread: 5 before the loop, 3 × 5 in it, 2 after; 64 threads, 2 warps
    code, out, _ = run(capsys, *base, "--target", "v100-sxm2")
    assert code == OK
    assert "thread_instructions" in out and "1,408" in out and "v100-sxm2: " in out
    document = json.loads(run(capsys, *base, "--format", "json", "--target", "v100-sxm2")[1])
    assert document["profile"]["thread_instructions"] == 22 * 64
    assert document["profile"]["warp_instructions"] == 22 * 2
    assert document["profile"]["branches"]["executed"] == 6 * 2
    assert document["estimates"]["v100-sxm2"]["time_us"] > 0
    assert document["profile"]["opcodes"]["add.u32"] == 320
    assert document["profile"]["warp_opcodes"]["add.u32"] == 10
    assert document["profile"]["nvprof"]["inst_integer"] == (1 + 5 + 5) * 64
    command = [*base, "--format", "csv", "--target", "v100-sxm2", "--groups", "nvprof"]
    (row,) = csv.DictReader(run(capsys, *command)[1].splitlines())
    assert (row["file"], row["kernel"], row["launch"], row["ctas"]) == (loop, "count", "1", "2")
    assert (row["static_instructions"], row["dynamic_instructions"]) == ("10", "1408")
    assert (row["inst_integer"], row["inst_executed"]) == ("704", "44")
    assert float(row["time_us.v100-sxm2"]) == document["estimates"]["v100-sxm2"]["time_us"]
    assert "inst_executed_global_stores" in run(capsys, *base, "--groups", "nvprof")[1]


PROGRAM = """\
arrays:
  out: u32[1]=zeros
  other: u32[1]=@other.npy
launches:
  - {file: loop.ptx, grid: 2, block: [32], args: [u32=5, out]}
  - {file: loop.ptx, entry: count, grid: [1, 1], block: 32, args: ["u32=1", other], shared_bytes: 16}
"""


def test_several_launches_from_a_file(loop, capsys, tmp_path):
    folder = Path(loop).parent
    numpy.save(folder / "other.npy", numpy.zeros(1, numpy.uint32))
    (folder / "program.yaml").write_text(PROGRAM)
    path = str(folder / "program.yaml")
    code, out, _ = run(
        capsys, "profile", "--launches", path, "--format", "csv", "-o", str(tmp_path / "o.csv")
    )
    assert (code, out) == (OK, "")
    data = (tmp_path / "o.csv").read_bytes()
    assert data.count(b"\r\n") == data.count(b"\n") == 3
    rows = list(csv.DictReader(data.decode().splitlines()))
    # per thread: 5 before the loop, 3 per round in it, 2 after
    assert [(row["launch"], row["threads"], row["dynamic_instructions"]) for row in rows] == [
        ("1", "64", str(64 * 22)),
        ("2", "32", str(32 * 10)),
    ]
    document = json.loads(run(capsys, "profile", "--launches", path, "--format", "json")[1])
    assert [launch["profile"]["grid"] for launch in document["launches"]] == [[2, 1, 1], [1, 1, 1]]
    assert "add --exact" in run(capsys, "profile", "--launches", path, "--sample", "1")[2]
    out = run(capsys, "profile", "--launches", path, "--sample", "1", "--exact")[1]
    assert out.count("ESTIMATE") == 2
    assert "grid 2 × 1 × 1" in run(capsys, "profile", "--launches", path)[1]
    as_json = folder / "program.json"
    as_json.write_text(
        json.dumps(
            {"launches": [{"file": "loop.ptx", "grid": 1, "block": 1, "args": ["u32=1", "u32[1]=zeros"]}]}
        )
    )
    assert run(capsys, "profile", "--launches", str(as_json))[0] == OK


def test_estimates_say_so_and_state_their_error(loop, capsys):
    """Thread 16 of CTA 2 stands for all; every thread goes 5 rounds, so there is no error but the one made here by hand."""
    base = ["profile", loop, "--grid", "4", "--block", "32", "--arg", "u32=5", "--arg", "u32[1]=zeros"]
    code, out, _ = run(capsys, *base, "--sample", "centre")
    assert code == OK
    assert out.startswith(
        "ESTIMATE of count from 1 of 128 threads: [16, 0, 0] of CTA [2, 0, 0]\nCTAs run for it: 1\n"
    )
    assert re.search(r"^thread_instructions +≈ 2,816$", out, re.MULTILINE)
    code, out, _ = run(capsys, *base, "--sample", "3", "--exact", "--groups", "nvprof")
    assert re.search(r"^inst_integer +≈ 1,408 +1,408 +\+0 %$", out, re.MULTILINE)
    assert "from 3 of 128 threads" in out and "branches.executed" in out
    document = json.loads(run(capsys, *base, "--sample", "2", "--format", "json")[1])
    assert list(document) == ["schema_version", "sample", "findings"]
    assert document["sample"]["estimate"] is True and document["sample"]["thread_instructions"] == 2816
    document = json.loads(run(capsys, *base, "--sample", "2", "--exact", "--format", "json")[1])
    assert document["profile"]["thread_instructions"] == 2816
    assert document["sample"]["errors"]["thread_instructions"] == 0


def test_single_threads(loop, capsys):
    base = ["profile", loop, "--grid", "4", "--block", "32,2", "--arg", "u32=5", "--arg", "u32[1]=zeros"]
    places = ["--thread", "3:63", "--thread", "0,0:1,1,0"]
    code, out, _ = run(capsys, *base, *places, "--demand", "control")
    assert code == OK and "demand control: " in out
    assert re.search(r"^opcode +CTA 3 thread 63 +CTA \(0, 0\) thread \(1, 1, 0\)$", out, re.MULTILINE)
    assert re.search(r"^add.u32 +5 +5$", out, re.MULTILINE) and re.search(r"^all +22 +22$", out, re.MULTILINE)
    document = json.loads(run(capsys, *base, *places, "--format", "json")[1])
    assert document["threads"]["CTA 3 thread 63"]["opcodes"]["add.u32"] == 5
    (row,) = csv.DictReader(run(capsys, *base, "--demand", "control", "--format", "csv")[1].splitlines())
    assert int(row["executed_instructions"]) < int(row["dynamic_instructions"]) == 8 * 32 * 22
    assert float(row["executed_percent"]) == pytest.approx(
        100 * int(row["executed_instructions"]) / (8 * 32 * 22)
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the file is empty"),
        ("launches: [", "no YAML or JSON"),
        ("launches: []", "program.yaml:1: there are no launches"),
        ("launch: []", "'launch' is not known; did you mean 'launches'?"),
        ("launches: 5", "program.yaml:1: expected a list"),
        ("launches:\n- {grid: 1, block: 1}", "program.yaml:2: 'file' is missing"),
        ("launches:\n- {file: a, file: b, grid: 1, block: 1}", "'file' is given twice"),
        ("launches:\n- {file: a, grid: x, block: 1}", "program.yaml:2: 'x' is not a whole number"),
        ("launches:\n- {file: a, grid: [1, 1, 1, 1], block: 1}", "4 dimensions"),
        ("launches:\n- {file: a, grid: 1, block: 1, cooperative: 2}", "'2' is neither true nor false"),
        ("launches:\n- {file: none.ptx, grid: 1, block: 1}", "none.ptx: No such file"),
        ("launches:\n- {file: loop.ptx, entry: cunt, grid: 1, block: 1}", "did you mean 'count'?"),
        (
            "launches:\n- file: loop.ptx\n  grid: 1\n  block: 1\n  args: [u32=1, ouu]",
            "program.yaml:5: 'ouu': write TYPE",
        ),
        (
            "arrays:\n  x: f32[2]=some\nlaunches:\n- {file: loop.ptx, grid: 1, block: 1}",
            "program.yaml:2: 'f32[2]=some'",
        ),
        ("arrays: [1]\nlaunches: []", "program.yaml:1: expected a mapping"),
    ],
)
def test_files_of_launches_that_mean_nothing(loop, capsys, text, message):
    path = Path(loop).parent / "program.yaml"
    path.write_text(text)
    code, out, err = run(capsys, "profile", "--launches", str(path))
    assert (code, out) == (USAGE, "")
    assert message in err and "Traceback" not in err


ONE = ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "u32=1", "--arg", "u32[1]=zeros"]


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["inspect", "none.ptx"], USAGE, "none.ptx: No such file or directory"),
        (["inspect", "{loop}", "--entry", "cuont"], NOT_JUDGED, "did you mean 'count'?"),
        (["nothing"], USAGE, "invalid choice: 'nothing'"),
        ([], USAGE, "arguments are required: COMMAND"),
        (["profile", "{loop}", "--grid", "1"], USAGE, "--block"),
        (["profile", "--grid", "1", "--block", "1"], USAGE, "FILE.ptx is needed"),
        (["profile", "--launches", "none.yaml"], USAGE, "none.yaml: No such file"),
        ([*ONE, "--sample", "0"], USAGE, "'0' is neither 'centre' nor a number of CTAs"),
        ([*ONE, "--demand", "control", "--target", "h100-sxm"], USAGE, "use --demand addresses"),
        ([*ONE, "--exact"], USAGE, "--exact needs --sample"),
        ([*ONE, "--sample", "1", "--format", "csv"], USAGE, "cannot show estimates"),
        ([*ONE, "--sample", "1", "--target", "h100-sxm"], USAGE, "add --exact"),
        ([*ONE, "--sample", "1", "--thread", "0:0"], USAGE, "add --exact"),
        ([*ONE, "--thread", "0"], USAGE, "'0' is not CTA:THREAD"),
        ([*ONE, "--thread", "5:0"], NOT_JUDGED, "no CTA 5"),
        ([*ONE, "--thread", "0:1"], NOT_JUDGED, "no thread 1"),
        (["profile", "{loop}", "--launches", "none.yaml"], USAGE, "omit FILE.ptx"),
        (["profile", "--launches", "none.yaml", "--grid", "1"], USAGE, "omit --grid"),
        (["profile", "{loop}", "--grid", "a", "--block", "1"], USAGE, "'a' is not X[,Y[,Z]]"),
        (["profile", "{loop}", "--grid", "1,1,1,1", "--block", "1"], USAGE, "4 dimensions"),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--entry", "cont"],
            USAGE,
            "did you mean 'count'?",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--target", "h200-sx"],
            USAGE,
            "did you mean 'h200-sxm'?",
        ),
        (["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "5"], USAGE, "write TYPE=VALUE"),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "q7=5"],
            USAGE,
            "type 'q7' is not one of",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "s8=500"],
            USAGE,
            "500 is outside -128 … 127",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "f32[9999999999]=zeros"],
            USAGE,
            "more than the device's",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "f32[2]=some"],
            USAGE,
            "contents 'some' are not one of",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "f32[2]=@none.npy"],
            USAGE,
            "none.npy",
        ),
        (["profile", "{loop}", "--grid", "1", "--block", "1"], NOT_JUDGED, "count"),
        (
            [
                "profile",
                "{loop}",
                "--grid",
                "1",
                "--block",
                "2000",
                "--arg",
                "u32=1",
                "--arg",
                "u32[1]=zeros",
            ],
            NOT_JUDGED,
            "2,000",
        ),
        (
            ["profile", "{loop}", "--grid", "1", "--block", "1", "--arg", "u32=1", "--arg", "ptr=null"],
            NOT_JUDGED,
            "null",
        ),
        (["report", "none.json", "-o", "x"], NOT_JUDGED, "none.json: No such file"),
        (["check", "{loop}"], NOT_JUDGED, "not JSON"),
    ],
)
def test_errors_are_messages_with_their_exit_code(loop, capsys, arguments, code, message):
    got, out, err = run(capsys, *(argument.format(loop=loop) for argument in arguments))
    assert (got, message in err) == (code, True), err
    assert "Traceback" not in err and len(err.strip().splitlines()) <= 8
    assert not out


def test_targets(capsys):
    code, out, _ = run(capsys, "targets")
    assert code == OK and "h100-sxm" in out
    assert "a100-sxm-80gb" in {row["id"] for row in json.loads(run(capsys, "targets", "--format", "json")[1])}


def test_targets_are_compared(capsys):
    code, out, _ = run(capsys, "targets", "--compare", "rtx-a4000", "rtx-a6000", "h100-sxm")
    rows = {row.split()[0]: row for row in out.splitlines()[:-1]}
    assert code == 0 and rows["number"].split()[-3:] == ["rtx-a4000", "rtx-a6000", "h100-sxm"]
    assert rows["chip.sm_count"].split()[-3:] == ["48", "84", "132"]
    assert rows["latency.dram"].split()[-3:-1] == ["~547", "~547"]  # as an A40's
    assert "sm.sub_partitions" not in rows  # 4 on each
    _, out, _ = run(capsys, "targets", "--compare", "p100", "t4", "--all", "--format", "json")
    both = json.loads(out)
    assert both["sm.issue_rate"]["p100"]["value"] == 2 * both["sm.issue_rate"]["t4"]["value"]
    assert both["lanes.tensor"]["p100"] is None
    code, _, err = run(capsys, "targets", "--compare", "t4", "t5")
    assert code != 0 and "t5" in err


def test_every_number_of_every_machine_is_printed_with_its_source(capsys):
    code, out, _ = run(capsys, "targets", "--all")
    machines = json.loads(run(capsys, "targets", "--all", "--format", "json")[1])
    assert code == OK and len(machines) > 20
    sections = dict(part.split("\n", 1) for part in out.split("\n## ")[1:])
    assert set(sections) == {machine["id"] for machine in machines}
    for machine in machines:
        rows = [line.split(" | ") for line in sections[machine["id"]].splitlines() if line.startswith("| `")]
        assert [row[0] for row in rows] == [f"| `{name}`" for name in machine["numbers"]]
        for row, number in zip(rows, machine["numbers"].values(), strict=True):
            assert float(row[1].replace(",", "")) == pytest.approx(number["value"])
            assert row[2] == number["unit"] and row[3].startswith(number["source"])


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_names_every_command_and_option(shell, capsys):
    code, out, _ = run(capsys, "completion", shell)
    assert code == OK
    for word in ("inspect", "profile", "targets", "report", "check", "compare", "accept", "baselines"):
        assert word in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


def test_bash_completes(capsys):
    script = run(capsys, "completion", "bash")[1]
    ask = "COMP_WORDS=(gpuperf accept --b) COMP_CWORD=2; _shtab_gpuperf; echo ${COMPREPLY[@]}"
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--baselines"]


@pytest.fixture
def reports(project):
    """out/: the run that regressed against its baseline; good.json: the run that made the baseline."""
    project.report("--gpuperf-update")
    (project.path / "good.json").write_bytes((project.path / "out" / "gpuperf.json").read_bytes())
    project.kernel(LOAD)
    project.report()
    return project


def test_check_gates_a_report(reports, capsys):
    code, out, _ = run(capsys, "check", "out/gpuperf.json")
    assert code == FAILED and "thread_instructions" in out and "regressed: 1 kernel:" in out
    assert run(capsys, "check", "out/gpuperf.json", "--baselines", "baselines")[0] == FAILED
    assert run(capsys, "check", "out/gpuperf.json", "--baselines", "out/candidates", "-o", "again")[0] == OK
    assert json.loads(Path("again/gpuperf.json").read_text())["verdict"] == "ok"
    code, out, _ = run(capsys, "check", "out/gpuperf.json", "--baselines", "nowhere")
    assert code == FAILED and "new: 1 kernel:" in out


def test_compare_gates_two_reports(reports, capsys):
    code, out, _ = run(capsys, "compare", "good.json", "out/gpuperf.json")
    assert code == FAILED and "▲ thread_instructions" in out
    assert run(capsys, "compare", "out/gpuperf.json", "good.json")[0] == OK
    assert run(capsys, "compare", "good.json", "good.json")[0] == OK


def test_report_renders_and_merges(reports, capsys):
    page = Path("out/gpuperf.html").read_bytes()
    assert run(capsys, "report", "out/gpuperf.json", "-o", "views")[0] == OK
    assert Path("views/gpuperf.html").read_bytes() == page
    code, _, err = run(capsys, "report", "out/gpuperf.json", "good.json", "-o", "views")
    assert code == NOT_JUDGED and "different results of test_k.py::test_scale" in err


def test_accept_takes_what_the_run_proposed(reports, capsys):
    assert run(capsys, "accept", "out", "-k", "nothing like it")[1] == "nothing to accept\n"
    code, out, _ = run(capsys, "accept", "out")
    assert code == OK and "test_k.yaml" in out
    assert reports.run().ret == 0
    capsys.readouterr()
    assert run(capsys, "accept", "out")[:2] == (OK, "nothing to accept\n")
    path = Path("baselines/test_k.yaml")
    path.write_text(path.read_text().replace("launches: 1", "launches: 2"))
    code, _, err = run(capsys, "accept", "out")
    assert code == NOT_JUDGED and "is not what the run saw" in err


def test_accept_removes_what_the_run_found_unused(project, capsys, monkeypatch):
    monkeypatch.chdir(project.path)
    project.update()
    project.write("test_k.py", "def test_plain(): pass\n")
    assert project.run("--gpuperf-report=out", "--gpuperf-min-cases=0").ret == 1
    capsys.readouterr()
    code, out, _ = run(capsys, "accept", "out")
    assert (code, out) == (OK, "removed baselines/test_k.yaml\n")
    assert project.run("--gpuperf-min-cases=0").ret == 0


def test_a_folder_that_cannot_be_made_is_a_message(reports, capsys):
    code, _, err = run(capsys, "report", "out/gpuperf.json", "-o", "out/gpuperf.json")
    assert code == NOT_JUDGED and err.startswith("gpuperf: ") and "out/gpuperf.json" in err


def test_accept_refuses_paths_outside(reports, capsys):
    document = json.loads(Path("out/gpuperf.json").read_text())
    document["baselines"][0]["module"] = "../../evil.py"
    Path("out/gpuperf.json").write_text(json.dumps(document))
    code, _, err = run(capsys, "accept", "out")
    assert code == NOT_JUDGED and "is outside" in err


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d.update(schema_version=2), "schema_version 2 is not known"),
        (lambda d: d.pop("cases"), "$ has no 'cases'"),
        (lambda d: d["cases"][0].update(extra=1), "$.cases[0] has the unknown key 'extra'"),
        (
            lambda d: d["cases"][0]["measured"].update(launches="2"),
            "$.cases[0].measured.launches must be of type integer",
        ),
        (lambda d: d["cases"][0]["rows"][0].update(verdict="fine"), "verdict must be one of"),
        (lambda d: d["cases"][0]["detail"]["lines"][0].append(1), "has 7 items"),
        (lambda d: d["counts"].update(new=-1), "out of range"),
    ],
)
def test_damaged_reports_are_refused_as_a_full_validator_does(reports, capsys, change, message):
    import jsonschema

    from pytest_gpuperf.report.validate import load_schema

    document = json.loads(Path("out/gpuperf.json").read_text())
    change(document)
    Path("bad.json").write_text(json.dumps(document))
    code, _, err = run(capsys, "check", "bad.json")
    assert code == NOT_JUDGED and message in err
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, load_schema("report-1"))


def test_the_least_that_answers_is_run(loop, capsys):
    """A table shows findings and so runs all; a csv row needs control flow alone, with a predicted time addresses too."""
    base = ["profile", loop, "--grid", "4", "--block", "32", "--arg", "u32=5", "--arg", "u32[1]=zeros"]

    def percent(*more):
        (row,) = csv.DictReader(run(capsys, *base, "--format", "csv", *more)[1].splitlines())
        return float(row["executed_percent"])

    control, addresses = percent(), percent("--target", "h100-sxm")
    assert 0 < control == percent("--demand", "control") < 100
    assert control < addresses == percent("--demand", "addresses") <= percent("--demand", "values") == 100
    assert "demand" not in run(capsys, *base)[1]
    assert "demand control: " in run(capsys, *base, "--demand", "control")[1]


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_what_is_proven_of_a_launch_that_does_not_run(tmp_path, capsys, demand):
    """A store of zeros by 10⁸ threads."""
    file = tmp_path / "fill.ptx"
    file.write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry fill(.param .u64 x) {\n"
        ".reg .b64 %rd<3>; .reg .b32 %r<3>;\nld.param.u64 %rd1, [x]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;\n"
        "mad.lo.u32 %r1, %r1, 1000, %r2; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;\n"
        "st.global.u32 [%rd1], 0;\nret;\n}\n"
    )
    given = ["profile", str(file), "--grid", "100000", "--block", "1000", "--arg", "u32[100000000]=zeros"]
    code, out, _ = run(capsys, *given, "--demand", demand)
    assert code == OK
    assert (
        "finding: single-zero" in out
        and "stores 100,000,000 elements" in out
        and "as warp classes prove" in out
    )


def test_a_program_whose_data_decide_is_run_whole(tmp_path, capsys):
    """The second launch goes as many rounds as the first one stored: its control flow alone cannot be had without that."""
    (tmp_path / "pair.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry put(.param .u64 a) { .reg .b64 %d<2>; ld.param.u64 %d0, [a]; st.global.u32 [%d0], 7; ret; }\n"
        ".visible .entry get(.param .u64 a) { .reg .b64 %d<2>; .reg .b32 %r<2>; .reg .pred %p<2>; ld.param.u64 %d0, [a];\n"
        " ld.global.u32 %r0, [%d0]; L: sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra L; ret; }\n"
    )
    (tmp_path / "program.yaml").write_text(
        "arrays: {a: 'u32[1]=zeros'}\nlaunches:\n"
        "- {file: pair.ptx, entry: put, grid: 1, block: 1, args: [a]}\n"
        "- {file: pair.ptx, entry: get, grid: 1, block: 1, args: [a]}\n"
    )
    base = ["profile", "--launches", str(tmp_path / "program.yaml"), "--format", "csv"]
    rows = list(csv.DictReader(run(capsys, *base)[1].splitlines()))
    assert [row["dynamic_instructions"] for row in rows] == ["3", str(2 + 3 * 7 + 1)]
    assert [row["executed_percent"] for row in rows] == ["100.0", "100.0"]
    code, _, error = run(capsys, *base, "--demand", "control")
    assert code != OK and "the contents of" in error and 'demand="values"' in error
