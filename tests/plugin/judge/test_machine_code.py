"""``gpuperf_judge``: machine code decides where it is known, and the counts of PTX where it is not.

The assembler of the fake engine drops ``mov`` and ``ld.global.ca``, and spills at ``pmevent``; 200 warps run.
"""

from __future__ import annotations

import re

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.judge.machine_lines import moved_machine_lines

VANISHES = "mov.u32 %r1, 1;"
REAL = "add.f32 %f3, %f2, %f2;"
SPILLS = "pmevent 1;"
OPEN = "vote.sync.any.pred %p1, %p1, -1;"


@pytest.fixture(autouse=True)
def assembler(monkeypatch):
    monkeypatch.setenv("FAKE_PTXAS", "13.0")


WARPS, THREADS = 200, 200 * 32


@pytest.fixture
def project(project):
    text = (project.path / "test_k.py").read_text(encoding="utf-8")
    project.write("test_k.py", text.replace("kernel[2, 32]", "kernel[200, 32]"))
    return project


@pytest.fixture
def stored(project):
    """A project with seven instructions, of which the assembler drops one, and their baseline."""
    project.kernel(f".reg .b32 %r<2>;\n.reg .pred %p<2>;\n{VANISHES}\n{REAL}")
    project.update()
    return project


def declare(project, *lines):
    text = "".join(f"{line}\n" for line in lines)
    project.kernel(f".reg .b32 %r<2>;\n.reg .pred %p<2>;\n{VANISHES}\n{REAL}\n{text}")


def judged(document):
    (case,) = document["cases"]
    return case, {(row["metric"], row["target"]): row for row in case["rows"]}


def test_a_baseline_holds_machine_code_by_target(stored):
    text = stored.baseline()
    assert "      h100-sxm:\n" in text and "        machine_code:\n" in text
    assert "          architecture: sm_90a\n          assembler: ptxas 13.0\n" in text
    document = stored.report()
    case, rows = judged(document)
    assert case["verdict"] == "ok"
    row = rows["machine.warp_instructions", "h100-sxm"]
    assert (row["old"], row["new"], row["verdict"], row["class"]) == (6 * WARPS, 6 * WARPS, "ok", "exact")
    assert rows["machine.spill_loads", "h100-sxm"]["new"] == 0
    assert ("machine.shared_load_wavefronts", "h100-sxm") not in rows
    assert case["detail"]["targets"]["h100-sxm"]["machine_code"]["by_pipe"] == {"fma": 6 * WARPS}
    html = (stored.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "Machine code: ptxas 13.0 for sm_90a: fma 100 %" in html


def test_what_the_assembler_drops_is_changed_and_green(stored):
    declare(stored, VANISHES)
    case, rows = judged(stored.report())
    assert stored.result.ret == 0
    row = rows["thread_instructions", ""]
    assert (row["old"], row["new"], row["verdict"], row["fails"]) == (
        7 * THREADS,
        8 * THREADS,
        "changed",
        False,
    )
    assert row["note"] == "the machine code is the same"
    assert rows["time_us", "h100-sxm"]["verdict"] == "changed"
    assert case["verdict"] == "changed"
    stored.result.stdout.fnmatch_lines(
        ["moved without failing: test_scale/scale (the machine code is the same)"]
    )


def test_the_same_is_red_where_ptx_decides(stored):
    stored.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\ngpuperf_judge = ptx\n")
    declare(stored, VANISHES)
    _, rows = judged(stored.report())
    assert stored.result.ret == 1
    assert rows["thread_instructions", ""]["verdict"] == "regressed"
    assert not any(row["verdict"] == "ok" for (name, _), row in rows.items() if name.startswith("machine."))


def test_other_inputs_take_the_metric_that_decides(stored):
    """The machine code is the same, but what it does may not be: then each metric has its own."""
    declare(stored, VANISHES)
    stored.write(
        "test_k.py",
        (stored.path / "test_k.py").read_text(encoding="utf-8").replace("float32(2)", "float32(3)"),
    )
    _, rows = judged(stored.report())
    assert rows["thread_instructions", ""]["note"] == "machine.thread_instructions decides"
    assert rows["time_us", "h100-sxm"]["verdict"] == "regressed" and stored.result.ret == 1


def test_a_spill_is_red_though_ptx_is_shorter(stored):
    stored.kernel(f".reg .b32 %r<2>;\n.reg .pred %p<2>;\n{REAL}\n{SPILLS}")
    _, rows = judged(stored.report())
    assert stored.result.ret == 1
    spilled = rows["machine.spill_loads", "h100-sxm"]
    assert (spilled["old"], spilled["new"], spilled["verdict"]) == (0, 2 * WARPS, "regressed")
    # as many instructions of PTX as before
    assert rows["thread_instructions", ""]["verdict"] == "ok"
    assert rows["machine.stack_bytes", "h100-sxm"]["verdict"] == "regressed"


def test_what_is_slower_on_the_machine_stays_red(stored):
    declare(stored, "add.f32 %f4, %f2, %f2;")
    _, rows = judged(stored.report())
    assert stored.result.ret == 1
    assert rows["machine.warp_instructions", "h100-sxm"]["verdict"] == "regressed"
    changed = rows["warp_instructions", ""]
    assert (changed["verdict"], changed["note"]) == ("changed", "machine.warp_instructions decides")
    stored.result.stdout.fnmatch_lines(["*machine.warp_instructions*"])


def test_what_is_open_does_not_decide(project):
    project.kernel(f".reg .b32 %r<2>;\n.reg .pred %p<2>;\n{OPEN}")
    project.update()
    project.kernel(f".reg .b32 %r<2>;\n.reg .pred %p<2>;\n{OPEN}\n{REAL}")
    _, rows = judged(project.report())
    open_row = rows["machine.warp_instructions", "h100-sxm"]
    assert (open_row["class"], open_row["allowed"], open_row["verdict"]) == ("modelled", "50%", "ok")
    assert rows["warp_instructions", ""]["verdict"] == "regressed"
    assert rows["machine.registers", "h100-sxm"]["class"] == "exact"


@pytest.mark.parametrize(("judge", "verdict"), [("auto", "unjudged"), ("machine", "incomparable")])
def test_another_assembler_is_said(stored, monkeypatch, judge, verdict):
    stored.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider\ngpuperf_judge = {judge}\n")
    monkeypatch.setenv("FAKE_PTXAS", "13.1")
    _, rows = judged(stored.report())
    row = rows["machine.warp_instructions", "h100-sxm"]
    assert row["verdict"] == verdict and (stored.result.ret != 0) == (judge == "machine")
    assert row["note"] == "assembled by ptxas 13.1 for sm_90a, the baseline by ptxas 13.0 for sm_90a"
    if judge == "auto":
        stored.result.stdout.fnmatch_lines(["*counts of PTX decide for 1 kernel: assembled by ptxas 13.1*"])


def test_without_the_assembler_ptx_decides_and_nothing_is_lost(stored, monkeypatch):
    before = stored.baseline()
    monkeypatch.delenv("FAKE_PTXAS")
    _, rows = judged(stored.report())
    assert stored.result.ret == 0 and [name for name, _ in rows if name.startswith("machine.")] == [
        "machine.warp_instructions"
    ]
    stored.result.stdout.fnmatch_lines(
        ["*counts of PTX decide for 1 kernel: machine code was not counted*nvcc*"]
    )
    stored.update()
    assert stored.baseline() == before
    declare(stored, VANISHES)
    assert stored.run().ret == 1
    stored.update()
    assert "machine_code" not in stored.baseline()


def test_machine_code_that_must_decide_must_be_there(stored, monkeypatch):
    """A runner that lost its assembler would pass on the counts of PTX otherwise."""
    stored.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\ngpuperf_judge = machine\n")
    monkeypatch.delenv("FAKE_PTXAS")
    _, rows = judged(stored.report())
    row = rows["machine.warp_instructions", "h100-sxm"]
    assert stored.result.ret == 1 and (row["verdict"], row["new"]) == ("incomparable", None)
    stored.result.stdout.fnmatch_lines(
        ["*scale on h100-sxm: machine code was not counted: there is no ptxas*"]
    )


def test_a_baseline_without_machine_code_is_not_judged_by_it(project, monkeypatch):
    monkeypatch.delenv("FAKE_PTXAS")
    project.update()
    monkeypatch.setenv("FAKE_PTXAS", "13.0")
    assert project.run().ret == 0
    project.result = project.run()
    project.result.stdout.fnmatch_lines(["*not judged yet: machine.warp_instructions of 1 kernel*update*"])


def test_what_the_assembler_refuses_is_said(stored):
    declare(stored, "nanosleep.u32 20;")
    document = stored.report()
    assert any(
        "no machine code for h100-sxm: ptxas 13.0 refuses 'scale'" in note for note in document["notes"]
    )
    _, rows = judged(document)
    assert rows["thread_instructions", ""]["verdict"] == "regressed"
    why = rows["machine.warp_instructions", "h100-sxm"]["note"]
    assert why.startswith("machine code was not counted: ptxas 13.0 refuses 'scale'")


def test_a_report_is_judged_again_as_it_was(stored):
    declare(stored, VANISHES)
    stored.report()
    assert (
        main(
            [
                "check",
                str(stored.path / "out" / "gpuperf.json"),
                "--baselines",
                str(stored.path / "baselines"),
            ]
        )
        == 0
    )


def test_an_unknown_judge_is_refused(project):
    project.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\ngpuperf_judge = sass\n")
    assert project.run().ret == pytest.ExitCode.USAGE_ERROR


def test_a_report_shows_it_beside_ptx_and_source_without_running_it(stored):
    document = stored.report()
    (case,) = document["cases"]
    rows = case["detail"]["targets"]["h100-sxm"]["machine_code"]["instructions"]
    line = (stored.path / "scale.ptx").read_text(encoding="utf-8").split("\n")[7].strip()
    assert rows[0] == [0, "@!P0 LDG.E R2, [R2.64]", 8, 6 * WARPS, 16 * 6 * WARPS, True, 2, "0,3"]
    page = (stored.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "beside PTX and source: h100-sxm (sm_90a)</summary>" in page
    (row,) = (row for row in page.split("<tr") if "LDG.E" in row)
    cells = [cell.strip() for cell in re.split("<td[^>]*>", row.replace("</tr>", ""))[1:]]
    counts = [f"{6 * WARPS:,}", f"{96 * WARPS:,}", "", "2", "0,3"]
    assert cells[1:] == [f"8 {line}", "0000", "@!P0 LDG.E R2, [R2.64]", *counts]
    assert row.startswith(' class="h9"')
    # the assembler's own code: no PTX, counts that are not exact, and its text is text
    assert "<tr><td><td><td>0010<td>&lt;b&gt;NOP&lt;/b&gt;<td>1?<td>32?<td><td>1<td></tr>" in page


def test_without_a_report_no_instruction_is_asked_for(stored, monkeypatch):
    monkeypatch.setattr("fake_engine.machine_code", None)
    assert stored.run("--gpuperf").ret == 0


def test_two_reports_are_compared_by_line_of_machine_code(stored, capsys):
    stored.report()
    (stored.path / "out").rename(stored.path / "base")
    declare(stored, REAL)
    stored.report()
    capsys.readouterr()
    assert main(["compare", "base/gpuperf.json", "out/gpuperf.json"]) == 1
    assert f"+{WARPS} machine.warp_instructions at scale.ptx:8 (h100-sxm)\n" in capsys.readouterr().out


def reported(lines, sources, instructions, target="h100-sxm"):
    """A case and the listing of its PTX, as reports hold them; ``instructions``: (PTX line, executions by warps)."""
    rows = [
        [16 * n, "NOP", line, warps, 32 * warps, True, 1, ""] for n, (line, warps) in enumerate(instructions)
    ]
    case = {
        "kernel": {"path": "k.ptx"},
        "detail": {"sources": sources, "targets": {target: {"machine_code": {"instructions": rows}}}},
    }
    texts = {"k.cu:3": "y += x;", "k.cu:4": "y += x;", "k.cu:9": "z();", "k.cu:10": "w();"}
    return case, {"lines": lines, "source": texts}


def test_lines_of_machine_code_are_the_same_by_file_and_text():
    old, before = reported([[7, "add"], [8, "ld"]], {"7": "k.cu:3", "8": "k.cu:9"}, [(7, 10), (8, 5), (0, 1)])
    # a line further down, and once more: that of line 3 stands at 4 now, its PTX at 17
    new, after = reported(
        [[17, "add"], [18, "ld"], [19, "st"]],
        {"17": "k.cu:4", "18": "k.cu:10"},
        [(17, 10), (17, 2), (18, 4), (0, 1), (19, 3)],
    )
    assert moved_machine_lines(new, old, after, before) == [
        "−5 machine.warp_instructions at gone: k.cu:9 (h100-sxm)",
        "+4 machine.warp_instructions at k.cu:10 (h100-sxm)",
        "+3 machine.warp_instructions at k.ptx:19 (h100-sxm)",
        "+2 machine.warp_instructions at k.cu:4 (h100-sxm)",
    ]
    assert moved_machine_lines(new, new, after, after) == []
    other, listing = reported([], {}, [(7, 1)], target="rtx-4090")
    assert moved_machine_lines(new, other, after, listing) == []
