"""Red and green: what the gate says of kernels against their baselines."""

from __future__ import annotations

import pytest

from pytest_gpuperf.core.metrics import ANALYSIS

LOAD = "ld.global.f32 %f3, [%rd1];"


def test_new_fails_with_the_command_then_update_then_green(project):
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "gpuperf: scale has no baseline: nothing to compare with",
            "*pytest --gpuperf --gpuperf-update test_k.py::test_scale",
        ]
    )
    assert not (project.path / "baselines").exists()
    assert project.update().ret == 0
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 kernel analysed: 1 equal"])


def test_tests_in_a_package(project):
    """The command names the test as pytest does: without the package that its folder is."""
    for name in ("pack/__init__.py", "pack/deep/__init__.py"):
        project.write(name, "")
    (project.path / "test_k.py").rename(project.path / "pack/deep/test_k.py")
    result = project.run()
    result.stdout.fnmatch_lines(["*pytest --gpuperf --gpuperf-update pack/deep/test_k.py::test_scale"])
    project.run("--gpuperf-update", "pack/deep/test_k.py::test_scale").assert_outcomes(passed=1)
    assert "\n  test_scale/scale:\n" in project.baseline("pack/deep/test_k")


def test_the_baseline_is_what_the_design_says(project):
    project.update()
    text = project.baseline()
    lines = text.splitlines()
    assert lines[:8] == [
        "# pytest-gpuperf baseline; refresh: pytest --gpuperf --gpuperf-update test_k.py",
        "schema: 1",
        "analysis:",
        *(f"  {name}: {revision}" for name, revision in ANALYSIS.items()),
        "cases:",
    ]
    assert lines[8] == "  test_scale/scale:"
    # 5 instructions × 64 threads, 2 warps; 10 warp instructions × 1 ns
    for line in (
        "      thread_instructions: 320",
        "      warp_instructions: 10",
        "        time_us: 0.01",
        "        machine: 3",
    ):
        assert line in lines
    assert text.endswith("\n")


def test_regression_names_metric_numbers_lines_and_command(project):
    project.update()
    project.kernel(LOAD)
    result = project.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "gpuperf: scale is worse: memory.global_load_sectors 0 → 64 (+64)",
            "▲ test_scale/scale: worse",
            "  ▲ thread_instructions *320  →  *384 *+20 %  allowed 0*worse",
            "    because +64 ld.global.f32 at scale.ptx:10",
            "  pytest --gpuperf --gpuperf-update test_k.py::test_scale",
        ]
    )
    assert project.update().ret == 0
    assert project.run().ret == 0


def test_improvement_fails_until_banked_unless_told_otherwise(project):
    project.kernel(LOAD)
    project.update()
    project.kernel()
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["gpuperf: scale is better than its baseline: *", "*▼ thread_instructions*better"]
    )
    assert project.run("-o", "gpuperf_on_improvement=warn").ret == 0
    assert project.update().ret == 0
    assert project.run().ret == 0


def test_refresh_without_change_leaves_the_file_untouched(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    before = path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()
    result = project.update()
    result.stdout.fnmatch_lines(["baselines: nothing to write"])
    assert (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) == before


def test_update_new_adds_but_changes_nothing(project):
    project.update()
    project.write(
        "test_l.py",
        "import numpy as np\n\ndef test_l(gpuperf):\n    gpuperf.kernel('scale.ptx')[1, 32](gpuperf.zeros(1, np.float32), 1.0)\n",
    )
    assert project.run("--gpuperf-update-new").ret == 0
    assert "test_l/scale" in project.baseline("test_l")
    before = project.baseline()
    project.kernel(LOAD)
    result = project.run("--gpuperf-update-new")
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    assert project.baseline() == before


def test_tolerance_allows_and_is_named(project):
    project.update()
    project.kernel("mov.f32 %f4, %f2;")
    result = project.run("--gpuperf-tolerance", "*instructions=20%", "--gpuperf-tolerance", "counts.*=100")
    assert result.ret == 0, result.stdout.str()
    assert project.run("--gpuperf-tolerance", "*instructions=19%").ret == 1


def test_limits_survive_an_update(project):
    project.write(
        "test_k.py",
        project.path.joinpath("test_k.py")
        .read_text()
        .replace('targets=["h100-sxm"]', 'limits={"thread_instructions": 300}'),
    )
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["gpuperf: scale: thread_instructions is 320, limit: at most 300", "*does not accept this*"]
    )
    assert not (project.path / "baselines").exists()


def test_a_failing_body_wins_and_nothing_is_judged_or_written(project):
    project.write("test_k.py", project.path.joinpath("test_k.py").read_text() + "    assert 1 == 2\n")
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*assert 1 == 2*", "not judged: test_k.py::test_scale (failed: *assert 1 == 2*"]
    )
    assert "no baseline" not in result.stdout.str()
    assert not (project.path / "baselines").exists()


def test_marked_test_that_launches_nothing_fails(project):
    project.write("test_k.py", "import pytest\n@pytest.mark.gpuperf\ndef test_none(gpuperf):\n    pass\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["gpuperf: the test is marked with gpuperf, but launched no kernel*"])


def test_several_kernels_of_a_test_in_one_message(project):
    project.kernel("", "shift")
    project.write(
        "test_k.py",
        "import numpy as np\ndef test_two(gpuperf):\n    x = gpuperf.zeros(8, np.float32)\n"
        "    gpuperf.kernel('scale.ptx')[1, 32](x, 1.0)\n    gpuperf.kernel('shift.ptx')[1, 32](x, 1.0)\n",
    )
    project.update()
    project.kernel(LOAD)
    project.kernel(LOAD, "shift")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["gpuperf: scale is worse: * (and 1 more)", "▲ test_two/scale: worse", "▲ test_two/shift: worse"]
    )


def test_launches_of_one_kernel_are_summed(project):
    project.write(
        "test_k.py", project.path.joinpath("test_k.py").read_text() + "    kernel[2, 32](x, np.float32(2))\n"
    )
    project.update()
    assert "launches: 2" in project.baseline()
    assert "thread_instructions: 640" in project.baseline()


def test_two_kernels_with_one_id(project):
    project.write("other.ptx", (project.path / "scale.ptx").read_text().replace("fma.rn", "fma.rz"))
    project.write(
        "test_k.py",
        "import numpy as np\ndef test_two(gpuperf):\n    x = gpuperf.zeros(8, np.float32)\n"
        "    gpuperf.kernel('scale.ptx')[1, 32](x, 1.0)\n    gpuperf.kernel('other.ptx')[1, 32](x, 1.0)\n",
    )
    result = project.run()
    result.stdout.fnmatch_lines(
        ["*two kernels of this test have the id 'scale' and different PTX: test_k.py:4 and test_k.py:5*"]
    )


def test_findings_are_gated_as_a_set(project):
    project.update()
    project.kernel("st.volatile.global.f32 [%rd1], %f2;")
    project.run("--gpuperf-tolerance", "*=1000%").stdout.fnmatch_lines(
        ["gpuperf: scale*", "*new finding: redundant-values | out | st.volatile.global.f32 of scale"]
    )
    project.update()
    assert "redundant-values | out | st.volatile.global.f32 of scale" in project.baseline()
    project.kernel()
    project.run().stdout.fnmatch_lines(
        ["*finding fixed: redundant-values | out | st.volatile.global.f32 of scale"]
    )


def test_machine_revision_makes_time_incomparable_only(project, monkeypatch):
    project.update()
    import fake_engine

    monkeypatch.setitem(fake_engine.REVISION, "h100-sxm", 4)
    monkeypatch.setitem(fake_engine.NANOSECONDS, "h100-sxm", 100.0)
    document = project.report()
    rows = document["cases"][0]["rows"]
    assert {row["verdict"] for row in rows if row["target"]} == {"incomparable"}
    assert {row["verdict"] for row in rows if not row["target"]} == {"ok"}
    assert document["verdict"] == "incomparable"


@pytest.mark.parametrize("policy, code", [("fail", 1), ("warn", 0)])
def test_unmodelled(project, policy, code):
    project.kernel("membar.sys;")
    project.update()
    result = project.run("-o", f"gpuperf_on_unmodelled={policy}", "--gpuperf-update-new")
    assert result.ret == code
    if code:
        result.stdout.fnmatch_lines(["gpuperf: scale on h100-sxm: membar.sys has no time on this machine"])


def test_ptx_that_cannot_run_on_a_target_is_an_error(project):
    project.write("test_k.py", (project.path / "test_k.py").read_text().replace("h100-sxm", "v100-sxm2"))
    project.write("scale.ptx", (project.path / "scale.ptx").read_text().replace("sm_70", "sm_80"))
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpuperf: scale on v100-sxm2: PTX for sm_80 cannot run on v100-sxm2"])


def test_changed_inputs_are_named(project):
    project.update()
    project.write(
        "test_k.py", (project.path / "test_k.py").read_text().replace("kernel[2, 32]", "kernel[4, 32]")
    )
    project.run().stdout.fnmatch_lines(
        ["*the inputs (launch shape, scalars or array contents) are not those of the baseline"]
    )


@pytest.mark.parametrize(
    "decorator, parameters, named",
    [
        (
            "@given(st.just(0))\n@settings(suppress_health_check=list(HealthCheck))",
            "gpuperf, n",
            "Hypothesis draws",
        ),
        ("", "gpuperf, benchmark, n=0", "the fixture `benchmark`"),
    ],
)
def test_what_draws_other_inputs_each_time_is_named(project, decorator, parameters, named):
    test = (project.path / "test_k.py").read_text()
    assert "def test_scale(gpuperf)" in test
    test = test.replace("def test_scale(gpuperf)", f"{decorator}\ndef test_scale({parameters})")
    imports = "from hypothesis import HealthCheck, given, settings, strategies as st\nimport pytest\n"
    test = f"{imports}{test}\n\n@pytest.fixture\ndef benchmark():\n    pass\n"
    # as pytest-benchmark is registered
    project.write(
        "conftest.py",
        "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'benchmark')\n",
    )
    project.write("test_k.py", test)
    project.update()
    assert named not in project.run().stdout.str()
    project.write("test_k.py", test.replace("kernel[2, 32]", "kernel[4, 32]"))
    project.run().stdout.fnmatch_lines([f"   * {named}*"])


def test_same_kernel_and_inputs_but_other_numbers_is_no_regression(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    path.write_text(path.read_text().replace("thread_instructions: 320", "thread_instructions: 300"))
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "gpuperf: scale is not comparable: thread_instructions 300 → 320 (+6.67 %)",
            "*the analysis changed*",
        ]
    )


def test_a_neutral_metric_that_the_baseline_does_not_know_fails_nothing(project):
    """As after an update of the tool that counts something new: no kernel moved."""
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    text = path.read_text()
    assert "      sp: 64\n" in text
    path.write_text(text.replace("    flops:\n      sp: 64\n", ""))
    result = project.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 changed*"])
    # What it knows must still be as it was.
    path.write_text(text.replace("      sp: 64\n", "      sp: 60\n"))
    assert project.run().ret == 1


def test_reads_of_uninitialised_memory(project):
    project.kernel("brkpt;")
    assert project.update().ret == 0
    result = project.run("-o", "gpuperf_uninitialized=error")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*MemoryFault: k.ptx:8:1: ld.global.f32 reads uninitialised memory*"])


def test_check_is_one_launch_of_host_arrays(project):
    project.write(
        "test_k.py",
        "import numpy as np\ndef test_c(gpuperf):\n    profile = gpuperf.check('scale.ptx', grid=2, block=32,"
        " args=[np.arange(4, dtype=np.float32), 2.0], name='once')\n    assert profile.thread_instructions == 320\n"
        "    assert gpuperf.launches == (profile,)\n",
    )
    project.update()
    assert "test_c/once:" in project.baseline()


def test_module_outside_the_rootdir_is_a_message(project):
    inner = project.path / "inner"
    inner.mkdir()
    (inner / "pytest.ini").write_text("[pytest]\n")
    result = project.run(
        "-p", "no:cacheprovider", "--rootdir", str(inner), "-c", str(inner / "pytest.ini"), "test_k.py"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpuperf: *lies outside the rootdir*"])
    assert not list(project.path.rglob("*.yaml"))
