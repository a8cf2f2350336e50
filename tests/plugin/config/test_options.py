"""Options, ini keys and marker: strict, typed, and free when not used."""

from __future__ import annotations

import subprocess
import sys

import pytest

USAGE = pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--gpuperf-targets=h100-sxn"], "*target 'h100-sxn' is not known; did you mean 'h100-sxm'?*"),
        (["--gpuperf-targets=,"], "*--gpuperf-targets names no target*"),
        (["--gpuperf-tolerance=time_us"], "*'time_us' is not METRIC=TOL*"),
        (["--gpuperf-tolerance=tim_us=2%"], "*metric 'tim_us' is not known; did you mean 'time_us'?*"),
        (["--gpuperf-tolerance=time_us=150 percent"], "*tolerance '150 percent' *"),
        (["--gpuperf-tolerance=time_us=2kg"], "*has the unit 'kg', the metric has 'us'*"),
        (["--gpuperf-tolerance=findings=2"], "*findings has no tolerance: every new one counts*"),
        (["--gpuperf-stale=perhaps"], "*invalid choice: 'perhaps'*"),
        (["--gpuperf-update", "--gpuperf-update-new"], "*exclude each other*"),
        (["--gpuperf-max-instructions=0"], "*must be at least 1*"),
        (
            ["-o", "gpuperf_on_improvement=fial"],
            "*gpuperf_on_improvement = 'fial' is not known; did you mean 'fail'?*",
        ),
        (["-o", "gpuperf_min_cases=many"], "*gpuperf_min_cases = 'many' is not a whole number*"),
        (
            ["-o", "gpuperf_tolerances=findngs = 2"],
            "*metric 'findngs' is not known; did you mean 'findings'?*",
        ),
        (["-o", "gpuperf_targets=b2000"], "*gpuperf_targets: target 'b2000' is not known; known: *"),
        (
            ["-o", "gpuperf_targets=h100-sxm a100-sxm-80gb"],
            "*gpuperf_targets: 'h100-sxm a100-sxm-80gb' are several targets: separate them by commas",
        ),
    ],
)
def test_bad_options_are_usage_errors(project, arguments, message):
    result = project.run(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    "marker, message",
    [
        ("target=['h100-sxm']", "*argument 'target' is not known; did you mean 'targets'?*"),
        ("['h100-sxm']", "*arguments must be named*"),
        ("targets='h100-sxm'", "*targets must be a list of machine ids*"),
        ("targets=['h100']", "*target 'h100' is not known; did you mean 'h100-sxm'?*"),
        (
            "limits={'registers': 3}",
            "*limits: metric 'registers' is not known; did you mean 'resources.registers'?*",
        ),
        ("limits={'time_us': 'fast'}", "*time_us must be a finite number*"),
        ("tolerance={'time_us': 'a lot'}", "*tolerance 'a lot' is not valid: write 0, 2%, +5 or 2%&0.5us*"),
        ("max_instructions=0", "*max_instructions must be a whole number*"),
        ("strict='notes'", "*strict='notes' is not known; did you mean 'note'?*"),
    ],
)
def test_strict_markers(project, marker, message):
    project.write("test_k.py", f"import pytest\n@pytest.mark.gpuperf({marker})\ndef test_a(gpuperf): pass\n")
    result = project.run()
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])


def test_wrong_keyword_of_a_kernel(project):
    project.write("test_k.py", "def test_a(gpuperf):\n    gpuperf.kernel('scale.ptx', limits={'time': 1})\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*gpuperf.kernel at test_k.py:2: limits: metric 'time' is not known; did you mean 'time_us'?*"]
    )


def test_without_the_option_tests_are_skipped_with_a_reason(project):
    project.write("test_k.py", (project.path / "test_k.py").read_text() + "\ndef test_plain(): pass\n")
    result = project.plain("-rs")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["*GPU kernels are analysed under --gpuperf*"])
    assert "= gpuperf =" not in result.stdout.str()


def test_functional_runs_without_judging(project):
    result = project.plain("-o", "gpuperf_functional=true")
    result.assert_outcomes(passed=1)
    assert "gpuperf:" not in result.stdout.str()


def test_only_deselects_the_rest(project):
    project.update()
    project.write(
        "test_k.py", (project.path / "test_k.py").read_text() + "\ndef test_plain(): assert False\n"
    )
    result = project.plain("--gpuperf-only")
    result.assert_outcomes(passed=1, deselected=1)


def test_nothing_analysed_fails(project):
    project.write("test_k.py", "def test_plain(): pass\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*nothing-analysed: 0 kernels were analysed*--gpuperf-min-cases=0*"])
    assert project.run("--gpuperf-min-cases=0").ret == 0
    assert project.run("-o", "gpuperf_min_cases=0").ret == 0
    assert project.run("-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures", "--markers", "--help"])
def test_looking_never_fails(project, option):
    result = project.run(option)
    assert result.ret == 0
    assert "nothing-analysed" not in result.stdout.str()


def test_marker_and_fixture_are_documented(project):
    project.run("--markers").stdout.fnmatch_lines(["@pytest.mark.gpuperf(targets=None, *"])
    project.run("--fixtures").stdout.fnmatch_lines(["gpuperf*"])


def test_clean_under_strict_markers_and_warnings_as_errors(project):
    project.update()
    assert project.run("--strict-markers", "--strict-config", "-W", "error").ret == 0


def test_precedence_command_line_call_marker_ini(project):
    """Each closer source overrides the others; the kernel is 20 % longer than its baseline."""
    body = "    gpuperf.kernel('scale.ptx'{call})[2, 32](gpuperf.zeros(4, np.float32), 1.0)\n"
    text = "import numpy as np\nimport pytest\n\n{marker}def test_a(gpuperf):\n" + body
    project.write("test_k.py", text.format(call="", marker=""))
    project.update()
    project.kernel("mov.f32 %f4, %f2;")
    wide, narrow = "{'*instructions': '25%'}", "{'*instructions': '1%'}"
    quiet = ["-o", "gpuperf_on_improvement=ignore"]

    def code(*arguments, call="", marker=""):
        project.write(
            "test_k.py",
            text.format(
                call=f", tolerance={call}" if call else "",
                marker=f"@pytest.mark.gpuperf(tolerance={marker})\n" if marker else "",
            ),
        )
        return project.run(*quiet, *arguments).ret

    ini = ["-o", "gpuperf_tolerances=*instructions = 25%"]
    assert code() == 1
    assert code(*ini) == 0
    assert code(*ini, marker=narrow) == 1
    assert code(marker=wide) == 0
    assert code(call=narrow, marker=wide) == 1
    assert code(call=wide, marker=narrow) == 0
    assert code("--gpuperf-tolerance=*instructions=1%", call=wide) == 1
    assert code("--gpuperf-tolerance=*instructions=25%", call=narrow) == 0


def test_targets_of_the_command_line_only_narrow(project):
    document = project.report("--gpuperf-targets=a100-sxm-80gb")
    (case,) = document["cases"]
    assert "targets" not in case["measured"]
    assert case["skipped_targets"] == ["h100-sxm"]


def test_without_the_option_no_heavy_module_is_imported(project):
    """In a process of its own: the plugin, its options and a skipped test load none of the libraries."""
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['-q', *{plugin!r}, {path!r}])\n"
        "heavy = ['numpy', 'yaml', 'lark', 'jinja2', 'deepdiff', 'llvmlite', 'networkx', 'ml_dtypes', 'gpuperf_engine']\n"
        "print('HEAVY', [name for name in heavy if name in sys.modules], int(code))\n"
    )
    test = project.write(
        "test_light.py",
        "import pytest\n@pytest.mark.gpuperf\ndef test_a(gpuperf): pass\ndef test_b(): pass\n",
    )
    from tests.plugin.conftest import PLUGIN

    plugin = [*PLUGIN, "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-c", code.format(plugin=plugin, path=str(test))],
        capture_output=True,
        text=True,
        cwd=project.path,
    )
    assert "HEAVY [] 0" in run.stdout, run.stdout + run.stderr


def test_importing_the_plugin_loads_nothing():
    """And what judges loads nothing that runs kernels: the controller of pytest-xdist runs none, nor does a process that only reads
    baselines."""
    heavy = ["numpy", "yaml", "lark", "jinja2", "deepdiff", "llvmlite", "networkx"]
    runs = [
        f"gpuperf_engine.{name}"
        for name in ("api", "device.device", "symbolic", "interp", "jit", "sass.code")
    ]
    code = f"""if True:
        import sys, pytest_gpuperf.plugin
        print([name for name in {heavy} if name in sys.modules])
        import pytest_gpuperf.judge.judge
        print([name for name in {runs} if name in sys.modules])"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split("\n")[:2] == ["[]", "[]"], run.stdout + run.stderr
