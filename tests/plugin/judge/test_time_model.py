"""Which model predicts a time in the gate, and that it is judged by the model of its baseline.

The fake engine simulates where ``FAKE_PTXAS`` names an assembler, and no kernel with ``trap``; a simulated time is half of the other.
Where ``FAKE_EXPANDED`` is set, it simulates without an assembler too: then a time is three quarters of the other.
"""

from __future__ import annotations

import pytest

HEAD = "[pytest]\naddopts = -p no:cacheprovider\n"
MORE = "add.f32 %f3, %f2, %f2;"


@pytest.fixture
def project(project):
    """Enough warps for an instruction to cost more than ``time_us`` tolerates."""
    text = (project.path / "test_k.py").read_text(encoding="utf-8")
    project.write("test_k.py", text.replace("kernel[2, 32]", "kernel[400, 32]"))
    return project


@pytest.fixture
def assembler(monkeypatch):
    monkeypatch.setenv("FAKE_PTXAS", "13.0")


@pytest.fixture
def expansion(monkeypatch):
    """The simulation that needs no assembler is possible."""
    monkeypatch.setenv("FAKE_EXPANDED", "1")


@pytest.fixture
def simulated(project, assembler):
    """A project whose baseline was written where the assembler is."""
    project.update()
    return project


def times(project, *args):
    """By target the row of the predicted time."""
    (case,) = project.report(*args)["cases"]
    return {row["target"]: row for row in case["rows"] if row["metric"] == "time_us"}


def stored(project):
    return [line.strip() for line in project.baseline().splitlines() if "time_us" in line]


def test_the_baseline_says_what_was_simulated(project, monkeypatch):
    project.update()
    plain = project.baseline()
    assert "model:" not in plain
    before = [float(line.split()[1]) for line in stored(project)]
    monkeypatch.setenv("FAKE_PTXAS", "13.0")
    project.update()
    text = (
        "        model:\n          name: simulation\n          revision: 1\n          assembler: ptxas 13.0\n"
    )
    assert project.baseline().count(text) == len(before) > 0
    assert [float(line.split()[1]) for line in stored(project)] == [time / 2 for time in before]
    assert {row["verdict"] for row in times(project).values()} == {"ok"}
    assert project.result.ret == 0


def test_a_baseline_of_the_other_model_is_judged_by_it(project, monkeypatch):
    project.update()
    plain = project.baseline()
    monkeypatch.setenv("FAKE_PTXAS", "13.0")
    rows = times(project)
    assert {(row["verdict"], row["new"] == row["old"]) for row in rows.values()} == {("ok", True)}
    assert project.baseline() == plain
    project.kernel(MORE)
    assert {row["verdict"] for row in times(project).values()} == {"regressed"}


def test_a_simulated_time_regresses(simulated):
    simulated.kernel(MORE)
    rows = times(simulated)
    assert {row["verdict"] for row in rows.values()} == {"regressed"} and simulated.result.ret == 1


def test_without_the_assembler_it_is_shown_and_kept(simulated, monkeypatch):
    monkeypatch.delenv("FAKE_PTXAS")
    before = simulated.baseline()
    rows = times(simulated)
    assert simulated.result.ret == 0
    for row in rows.values():
        assert (row["verdict"], row["new"]) == ("unjudged", 2 * row["old"])
        assert row["note"] == "predicted by kleimenov-popova, the baseline by simulation (ptxas 13.0)"
    simulated.result.stdout.fnmatch_lines(
        ["*predicted times of 1 kernel are not judged: predicted by kleimen*"]
    )
    simulated.update()
    assert simulated.baseline() == before


def test_without_the_assembler_an_update_of_another_kernel_stores_the_other_model(simulated, monkeypatch):
    monkeypatch.delenv("FAKE_PTXAS")
    simulated.kernel(MORE)
    simulated.update()
    assert "model:" not in simulated.baseline()


@pytest.mark.parametrize(("judge", "verdict"), [("auto", "unjudged"), ("machine", "incomparable")])
def test_another_assembler_is_said(simulated, monkeypatch, judge, verdict):
    simulated.write("pytest.ini", f"{HEAD}gpuperf_judge = {judge}\n")
    monkeypatch.setenv("FAKE_PTXAS", "13.1")
    for row in times(simulated).values():
        assert (row["verdict"], row["old"], row["fails"]) == (verdict, row["new"], judge == "machine")
        assert row["note"] == "machine code of ptxas 13.1, the baseline of ptxas 13.0"


def test_another_simulation_is_incomparable(simulated, monkeypatch):
    monkeypatch.setenv("FAKE_SIMULATION", "2")
    for row in times(simulated).values():
        assert (row["verdict"], row["note"]) == ("incomparable", "the simulation changed: revision 1 → 2")


def test_what_is_no_longer_simulated_is_incomparable(simulated):
    simulated.kernel("trap;")
    assert {row["verdict"] for row in times(simulated).values()} == {"incomparable"}
    assert simulated.result.ret == 1


@pytest.mark.parametrize("setting", ["gpuperf_time_model = kleimenov-popova", "gpuperf_judge = ptx"])
def test_the_other_model_can_be_asked_for(simulated, setting):
    simulated.write("pytest.ini", f"{HEAD}{setting}\n")
    assert {row["verdict"] for row in times(simulated).values()} == {"incomparable"}
    simulated.update()
    assert "model:" not in simulated.baseline()
    assert {row["verdict"] for row in times(simulated).values()} == {"ok"}


def test_the_simulation_can_be_asked_for(project, assembler):
    project.write("pytest.ini", f"{HEAD}gpuperf_time_model = kleimenov-popova\n")
    project.update()
    project.write("pytest.ini", f"{HEAD}gpuperf_time_model = simulation\n")
    for row in times(project).values():
        assert row["verdict"] == "incomparable"
        assert row["note"] == "predicted by simulation (ptxas 13.0), the baseline by kleimenov-popova"


def test_an_unknown_model_is_refused(project):
    project.write("pytest.ini", f"{HEAD}gpuperf_time_model = simulaton\n")
    result = project.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*gpuperf_time_model = 'simulaton'*simulation*"])


@pytest.fixture
def expanded(project, expansion):
    """A project whose baseline was written where no assembler is."""
    project.update()
    return project


def test_the_baseline_says_what_was_simulated_without_an_assembler(project, monkeypatch):
    project.update()
    before = [float(line.split()[1]) for line in stored(project)]
    monkeypatch.setenv("FAKE_EXPANDED", "1")
    project.update()
    text = "        model:\n          name: simulation-expanded\n          revision: 1\n        time_us"
    assert project.baseline().count(text) == len(before) > 0
    assert [float(line.split()[1]) for line in stored(project)] == [0.75 * time for time in before]
    assert "assembler" not in project.baseline()


@pytest.mark.parametrize("with_assembler", [False, True])
def test_it_is_judged_everywhere(expanded, monkeypatch, with_assembler):
    if with_assembler:
        monkeypatch.setenv("FAKE_PTXAS", "13.0")
    before = expanded.baseline()
    rows = times(expanded)
    assert {(row["verdict"], row["new"] == row["old"]) for row in rows.values()} == {("ok", True)}
    assert expanded.result.ret == 0 and expanded.baseline() == before
    expanded.kernel(MORE)
    assert {row["verdict"] for row in times(expanded).values()} == {"regressed"}
    assert expanded.result.ret == 1


def test_a_baseline_that_names_no_model_is_judged_by_the_counts(project, monkeypatch):
    project.update()
    monkeypatch.setenv("FAKE_EXPANDED", "1")
    for judge in ("auto", "ptx"):
        project.write("pytest.ini", f"{HEAD}gpuperf_judge = {judge}\n")
        rows = times(project)
        assert {(row["verdict"], row["new"] == row["old"]) for row in rows.values()} == {("ok", True)}
    project.kernel(MORE)
    assert {row["verdict"] for row in times(project).values()} == {"regressed"}


def test_an_update_stores_the_best_model(expanded, monkeypatch):
    without = expanded.baseline()
    monkeypatch.setenv("FAKE_PTXAS", "13.0")
    expanded.update()
    simulated = expanded.baseline()
    assert "name: simulation\n" in simulated and "simulation-expanded" not in simulated
    monkeypatch.delenv("FAKE_PTXAS")
    expanded.update()
    assert expanded.baseline() == simulated  # kept, as the kernel is the same
    expanded.kernel(MORE)
    expanded.update()
    expanded.kernel()
    expanded.update()
    assert times(expanded) and "name: simulation-expanded\n" in expanded.baseline()
    kept = [line for line in without.splitlines() if "time_us" in line]
    assert [line for line in expanded.baseline().splitlines() if "time_us" in line] == kept


def test_where_the_assembler_is_missing_it_shows_what_that_simulated(simulated, expansion, monkeypatch):
    monkeypatch.delenv("FAKE_PTXAS")
    before = simulated.baseline()
    for row in times(simulated).values():
        assert (row["verdict"], row["new"]) == ("unjudged", 1.5 * row["old"])
        assert row["note"] == "predicted by simulation-expanded, the baseline by simulation (ptxas 13.0)"
    assert simulated.result.ret == 0
    simulated.update()
    assert simulated.baseline() == before


def test_another_revision_of_it_is_incomparable(expanded, monkeypatch):
    monkeypatch.setenv("FAKE_SIMULATION", "2")
    for row in times(expanded).values():
        assert row["verdict"] == "incomparable"
        assert row["note"] == "the simulation-expanded changed: revision 1 → 2"
    assert expanded.result.ret == 1


def test_what_it_no_longer_simulates_is_incomparable(expanded):
    expanded.kernel("trap;")
    for row in times(expanded).values():
        assert row["verdict"] == "incomparable"
        assert row["note"] == "predicted by kleimenov-popova, the baseline by simulation-expanded"
    assert expanded.result.ret == 1


@pytest.mark.parametrize("setting", ["gpuperf_time_model = simulation-expanded", "gpuperf_judge = ptx"])
def test_it_can_be_asked_for_where_an_assembler_is(simulated, expansion, setting):
    simulated.write("pytest.ini", f"{HEAD}{setting}\n")
    assert {row["verdict"] for row in times(simulated).values()} == {"incomparable"}
    simulated.update()
    text = simulated.baseline()
    assert "name: simulation-expanded\n" in text and "name: simulation\n" not in text
    assert {row["verdict"] for row in times(simulated).values()} == {"ok"}
    assert simulated.result.ret == 0


def test_the_report_can_be_judged_again_by_it(expanded):
    """``gpuperf check`` reads a policy that names the model."""
    expanded.write("pytest.ini", f"{HEAD}gpuperf_time_model = simulation-expanded\n")
    (case,) = expanded.report()["cases"]
    assert case["policy"]["time_model"] == "simulation-expanded"
    assert {target["model"] for target in case["detail"]["targets"].values()} == {"simulation-expanded"}
    assert all("assembler" not in entry["model"] for entry in case["measured"]["targets"].values())
