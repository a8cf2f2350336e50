"""What people write who have not read everything: each gets one message that says what is wrong, and nothing passes by accident."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import TEST

USAGE = pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "option, name",
    [
        ("--gpuperf-report=out", "--gpuperf-report"),
        ("--gpuperf-targets=h100-sxm", "--gpuperf-targets"),
        ("--gpuperf-no-prune", "--gpuperf-no-prune"),
    ],
)
def test_an_option_without_the_gate_is_no_green_run(project, option, name):
    result = project.plain(option)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {name} does nothing without --gpuperf: give both"])
    # In the configuration it waits for the runs that have the gate.
    project.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider {option}\n")
    project.plain().assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--gpuperf-min-cases=-1"], "--gpuperf-min-cases must be at least 0"),
        (
            ["-o", "gpuperf_baseline_dir=../elsewhere"],
            "gpuperf_baseline_dir = '../elsewhere' is not a folder below*",
        ),
        (
            ["-o", "gpuperf_baseline_dir="],
            "gpuperf_baseline_dir = '' is not a folder below the rootdir*for example baselines",
        ),
        (["-o", "gpuperf_target_files=nowhere"], "gpuperf_target_files: there is no folder *nowhere"),
        (
            ["-o", "gpuperf_functional=perhaps"],
            "gpuperf_functional: invalid truth value 'perhaps': write true or false",
        ),
        (
            ["--gpuperf-tolerance", "h100-smx.time_us=5%"],
            "*target 'h100-smx' of *is not known; did you mean 'h100-sxm'?",
        ),
        (["--gpuperf-tolerance", "b*.time_us=5%"], "*target 'b[*]' of 'b[*].time_us' is not known*"),
        (
            ["--gpuperf-tolerance", "flops.qp=0"],
            "*metric 'flops.qp' is not known; known: hp, sp, dp, tensor_fp64, *",
        ),
        (["--gpuperf-tolerance", "counts.by_category.loadstore=5%"], "*did you mean 'load_store'?"),
    ],
    ids=lambda found: "" if isinstance(found, str) else " ".join(found),
)
def test_settings_that_mean_nothing(project, arguments, message):
    result = project.run(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


@pytest.mark.parametrize("tolerance", ["h100-*.time_us", "*.time_us", "flops.*", "flops.s?", "counts.*", "*"])
def test_globs_that_can_match(project, tolerance):
    project.update()
    assert project.run("--gpuperf-tolerance", f"{tolerance}=5%").ret == 0


@pytest.mark.parametrize(
    "marker, message",
    [
        ("targets=5", "targets must be a list of machine ids, for example ['h100-sxm']"),
        ("targets={'h100-sxm': 1}", "targets must be a list of machine ids, for example ['h100-sxm']"),
        ("tolerance={5: 1}", "tolerance: 5 is not the name of a metric, for example 'time_us'"),
        ("limits={None: 1}", "limits: None is not the name of a metric, for example 'time_us'"),
        ("limits={'launches': float('nan')}", "limits: launches must be a finite number, not nan"),
        ("limits={'launches': float('inf')}", "limits: launches must be a finite number, not inf"),
        ("limits={'flops.*': 1}", "limits: 'flops.*' must be one metric, not a glob"),
        (
            "limits={'h100.time_us': 1}",
            "limits: target 'h100' of 'h100.time_us' is not known; did you mean 'h100-sxm'?",
        ),
    ],
)
def test_markers_that_mean_nothing(project, marker, message):
    project.write("test_k.py", TEST.replace('targets=["h100-sxm"]', marker))
    result = project.run()
    assert result.ret == USAGE
    assert f"ERROR: @pytest.mark.gpuperf of test_k.py::test_scale: {message}" in result.errlines


@pytest.mark.parametrize("name", ["''", "' '", "5", "b'x'"])
def test_a_name_that_names_nothing(project, name):
    project.write("test_k.py", TEST.replace('entry="scale"', f"name={name}"))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *EngineError: name={name} names nothing"])


def test_a_wrong_setting_of_a_call_ends_at_the_test_s_own_line(project):
    project.write("test_k.py", TEST.replace('entry="scale"', "targets='h100-sxm'"))
    result = project.run()
    result.stdout.fnmatch_lines(
        ["E *UsageError: gpuperf.kernel at test_k.py:7: targets must be a list*", "test_k.py:7: UsageError"]
    )
    assert "fixture.py" not in result.stdout.str()


@pytest.mark.parametrize(
    "limit, targets, code",
    [
        ("time_us", "[]", 1),
        ("time_us", '["h100-sxm"]', 0),
        ("a100-sxm-80gb.time_us", '["h100-sxm"]', 1),
        ("h100-sxm.time_us", '["h100-sxm"]', 0),
        ("h100-sxm.occupancy", "[]", 1),
    ],
)
def test_a_limit_that_says_nothing_does_not_hold(project, limit, targets, code):
    project.write(
        "test_k.py", TEST.replace('targets=["h100-sxm"]', f"targets={targets}, limits={{{limit!r}: 99}}")
    )
    result = project.update()
    assert result.ret == code
    if code:
        result.stdout.fnmatch_lines(
            [f"gpuperf: limits: '{limit}' has no effect: no kernel of this test declares a target for it*"]
        )
        assert not (project.path / "baselines").exists()


def test_a_limit_of_a_target_left_out_of_this_run_is_no_error(project):
    project.write("test_k.py", TEST.replace("targets=", "limits={'h100-sxm.time_us': 9}, targets="))
    project.update()
    assert project.run("--gpuperf-targets=a100-sxm-80gb").ret == 0


def test_a_limit_of_one_variant_is_none_of_the_other(project):
    """It is about the test: that one of its kernels has the target is enough."""
    declared = "{'sm_70': 'scale.ptx', 'a100-sxm-80gb': 'scale.ptx'}, targets=['h100-sxm', 'a100-sxm-80gb']"
    text = TEST.replace('targets=["h100-sxm"]', "limits={'h100-sxm.time_us': 9}").replace(
        '"scale.ptx"', declared
    )
    project.write("test_k.py", text)
    assert project.update().ret == 0


@pytest.mark.parametrize(
    "change, message",
    [
        (("    launches: 1\n", ""), "'test_scale/scale' has no 'launches': the file was truncated or edited"),
        (
            ("      efficiency: ", "      # "),
            "'branches' has no 'efficiency': the file was truncated or edited",
        ),
        (
            ("        time_us: ", "        # "),
            "'h100-sxm' has no 'time_us': the file was truncated or edited",
        ),
        (("launches: 1", "launches: 010"), "'launches' must be a whole number, found '010'"),
    ],
    ids=["a metric", "a ratio", "a time", "octal"],
)
def test_a_baseline_with_something_missing_is_none(project, change, message):
    """Read as 0, what is missing would be an improvement, which may be told not to fail."""
    project.update()
    text = project.baseline()
    assert change[0] in text
    project.write("baselines/test_k.yaml", text.replace(*change))
    result = project.run("-o", "gpuperf_on_improvement=ignore")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"gpuperf: scale: baselines/test_k.yaml:*: {message}"])
    assert project.update().ret == 0
    assert project.baseline() == text


def test_what_is_not_comparable_says_why_first(project, monkeypatch):
    project.update()
    import fake_engine

    monkeypatch.setitem(fake_engine.REVISION, "h100-sxm", 4)
    project.run().stdout.fnmatch_lines(["gpuperf: scale is not comparable: machine description 3 → 4"])


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_looking_at_fixtures_never_fails(project, option):
    assert project.run(option).ret == 0


def test_an_update_that_only_removes_does_not_say_that_it_wrote_nothing(project):
    project.update()
    (project.path / "test_k.py").rename(project.path / "test_l.py")
    project.write("test_l.py", "def test_plain(): pass\n")
    result = project.update("--gpuperf-min-cases=0")
    result.stdout.fnmatch_lines(["removed 1 unused baseline entries", "*baselines/test_k.yaml"])
    result.stdout.no_fnmatch_line("baselines: nothing to write")


def test_a_test_outside_the_rootdir_is_one_message(project):
    outside = project.path.parent / f"{project.path.name}-outside"
    outside.mkdir()
    (outside / "test_o.py").write_text(TEST.replace('"scale.ptx"', repr(str(project.path / "scale.ptx"))))
    result = project.run("--rootdir=.", "-c", "pytest.ini", str(outside))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpuperf: *test_o.py lies outside the rootdir*"])
    result.stdout.no_fnmatch_line("During handling of*")


LATE = """\
import numpy as np
import pytest

@pytest.fixture
def late(gpuperf):
    yield
    gpuperf.kernel("scale.ptx")[1, 32](gpuperf.zeros(4, np.float32), 1.0)

def test_late(late, gpuperf):
    gpuperf.kernel("scale.ptx")[1, 32](gpuperf.zeros(4, np.float32), 1.0)
    test_late.kept = gpuperf

def test_other(gpuperf):
    test_late.kept.kernel("scale.ptx")[1, 32](test_late.kept.zeros(4, np.float32), 1.0)
"""


def test_a_launch_after_judging_does_not_go_unseen(project):
    """In what a fixture does afterwards, or with what another test left behind."""
    project.write("test_k.py", LATE)
    result = project.update()
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, errors=1)
    message = "E *LaunchError: the kernels of test_k.py::test_late have been judged already, this launch would not be judged"
    result.stdout.fnmatch_lines([message, message])
    project.write("pytest.ini", "[pytest]\ngpuperf_functional = true\n")
    project.plain().assert_outcomes(passed=2)


def test_an_update_says_accepted_of_what_it_accepted_alone(project):
    project.update()
    project.kernel("mov.f32 %f4, %f2;")
    project.write("test_k.py", TEST.replace("targets=", "limits={'launches': 0}, targets="))
    result = project.update()
    assert result.ret == 1
    result.stdout.no_fnmatch_line("accepted *")
    project.write("test_k.py", TEST)
    result = project.run("--gpuperf-update-new")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["1 kernel analysed: 1 worse", "▲ scale is worse: *", "baselines: nothing to write"]
    )
    result.stdout.no_fnmatch_line("accepted *")
    project.update().stdout.fnmatch_lines(["accepted ▲ test_scale/scale: scale is worse: *"])
