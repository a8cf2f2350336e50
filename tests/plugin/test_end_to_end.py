"""The plugin on the real engine: kernels compute, are counted exactly, gated, and explained down to the line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gpuperf_engine

from .conftest import PLUGIN, in_process

SAXPY = """\
.version 8.0
.target sm_70
.address_size 64
.file 1 "saxpy.cu"
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{{
    .reg .pred %p;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    .loc 1 4 0
    ld.param.u32 %r2, [n];
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.s32 %p, %r1, %r2;
    @%p bra DONE;
    .loc 1 8 9
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd6, %rd1, %rd5;
    ld.global.f32 %f2, [%rd6];
{extra}    add.s64 %rd7, %rd2, %rd5;
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f2, %f1, %f3;
    st.global.f32 [%rd7], %f4;
DONE:
    ret;
}}
"""

TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf(targets=["v100-sxm2", "h100-sxm"])
@pytest.mark.parametrize("n", [1000, 1024])
def test_saxpy(gpuperf, n):
    x = gpuperf.array(np.arange(n, dtype=np.float32))
    y = gpuperf.zeros(n, np.float32)
    saxpy = gpuperf.kernel("saxpy.ptx")
    saxpy[(n + 255) // 256, 256](np.int32(n), np.float32(2), x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(n, dtype=np.float32))
"""


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("saxpy.ptx", SAXPY.format(extra=""))
    project.write("test_k.py", TEST)
    return project


def test_green_then_red_with_lines_then_accepted(real):
    assert real.update().ret == 0
    text = real.baseline()
    # 11 instructions for each of 1024 threads, 7 more for each below n
    assert (
        f"thread_instructions: {11 * 1024 + 7 * 1000}" in text and f"thread_instructions: {18 * 1024}" in text
    )
    # 1000 floats are 125 sectors of x and of y, 31 full warps and one of 8 lanes
    assert "global_load_sectors: 250" in text and "global_store_sectors: 125" in text
    assert real.run().ret == 0
    real.write("saxpy.ptx", SAXPY.format(extra="    ld.global.f32 %f2, [%rd6+0];\n"))
    result = real.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "gpuperf: saxpy is worse: memory.global_load_sectors 250 → 375 (+50 %)",
            "*memory.global_load_sectors*250  →*375*+50 %*allowed 0*worse",
            "*because +1,000 ld.global.f32 at saxpy.ptx:26 (saxpy.cu:8)",
            "* +125 memory.global_load_sectors, +* memory.global_load_wavefronts at saxpy.ptx:26 (saxpy.cu:8)",
            "*pytest --gpuperf --gpuperf-update 'test_k.py::test_saxpy[[]1000[]]'",
        ]
    )
    assert real.update().ret == 0
    assert real.run().ret == 0


def test_reports_are_compared_line_by_line(real):
    real.report("--gpuperf-update")
    (real.path / "out").rename(real.path / "base")
    real.write("saxpy.ptx", "// a line more\n" + SAXPY.format(extra="    ld.global.f32 %f2, [%rd6+0];\n"))
    real.run("--gpuperf-report=head")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuperf.cli", "compare", "base/gpuperf.json", "head/gpuperf.json"],
        cwd=real.path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("because +1,000 ld.global.f32 at saxpy.ptx:27 (saxpy.cu:8)") == 1
    assert "\n  saxpy.ptx:27 (saxpy.cu:8), launched at test_k.py:10\n" in done.stdout


DIVERGING = """\
    setp.lt.f32 %p, %f2, 0f41200000;
    @%p bra SMALL;
    mov.u32 %r4, 7;
SMALL:
"""


def test_a_branch_that_diverges_is_explained(real):
    """Lanes 0 to 9 of the first warp hold numbers below 10; n = 1000 leaves 8 lanes of the last warp at the guard."""
    assert real.update().ret == 0
    real.write("saxpy.ptx", SAXPY.format(extra=DIVERGING))
    result = real.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "gpuperf: saxpy is worse: branches.*",
            "* +32 branches.executed, +1 branches.divergent at saxpy.ptx:27 (saxpy.cu:8)",
            "*lanes diverge 1 of 32 times at saxpy.ptx:27 (saxpy.cu:8): decided by data of x",
        ]
    )
    document = real.report()
    whole = next(case for case in document["cases"] if "1024" in case["id"])
    (branch,) = whole["detail"]["explanation"]["branches"]
    assert (branch["line"], branch["divergent"], branch["executed"]) == (27, 1, 32)
    assert branch["causes"] == [{"kind": "data", "name": "x", "varies": True}]
    page = (real.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "<td>data of x</td>" in page and "⚑ lanes diverge 1 of 32 times, decided by data of x" in page


def test_a_loop_is_explained_in_the_report(real):
    loop = "    mov.u32 %r4, 0;\nL:\n    add.u32 %r4, %r4, 1;\n    setp.lt.u32 %p, %r4, 5;\n    @%p bra L;\n"
    real.write("saxpy.ptx", SAXPY.format(extra=loop))
    case = next(case for case in real.report()["cases"] if "1000" in case["id"])
    (found,) = case["detail"]["explanation"]["loops"]
    assert (found["entries"], found["iterations"], found["mean"], found["source"]) == (
        1000,
        5000,
        5,
        "saxpy.cu:8",
    )
    page = (real.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "⚑ loop to line 30: 5,000 iterations, 5 per entry, 31.2 lanes, decided by constants" in page


def test_finding_names_object_and_call(real):
    real.write(
        "test_k.py",
        TEST
        + ("    gpuperf.memset(y, 0)\n    saxpy[(n + 255) // 256, 256](np.int32(n), np.float32(0), x, y)\n"),
    )
    document = real.report()
    findings = [finding for case in document["cases"] for finding in case["detail"]["findings"]]
    assert findings
    assert all(finding["path"] == "test_k.py" and finding["line"] > 0 for finding in findings)


def test_wrong_kernel_fails_with_the_engines_message_alone(real):
    real.write(
        "test_k.py",
        TEST.replace("np.int32(n), np.float32(2)", "np.int32(n + 9999), np.float32(2)").replace(
            "(n + 255) // 256,", "64,"
        ),
    )
    result = real.update()
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "MemoryFault" in text and "saxpy.ptx:" in text
    assert "emulate/" not in text and "gpuperf_engine/api.py" not in text
    assert not (real.path / "baselines").exists()


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"saxpy.ptx"', '"saxpi.ptx"', "*no PTX file 'saxpi.ptx'*"),
        ('"saxpy.ptx"', '"."', "*'.' is a folder*"),
        ('"saxpy.ptx"', '"saxpy.ptx", entry="saxpi"', "*no kernel 'saxpi' in saxpy.ptx*"),
        ('"saxpy.ptx"', '"saxpy.cu"', "*no CUDA file 'saxpy.cu'*"),
        ('"saxpy.ptx"', "42", "*a kernel comes from a path or from PTX text, not from int*"),
        ("[(n + 255) // 256, 256]", "[7]", "*kernel 'saxpy' needs a grid and a block*"),
        ("[(n + 255) // 256, 256]", "[1, 4096]", "*1*024*"),
        (", x, y)", ", x)", "*LaunchError*"),
    ],
)
def test_misuse_is_a_message(real, old, new, message):
    real.write("test_k.py", TEST.replace(old, new))
    result = real.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([message])


@pytest.mark.parametrize(
    "old, new, same",
    [
        ("[(n + 255) // 256, 256]", "[((n + 255) // 256, 1), (256,)]", True),
        ("    saxpy[", "    unrelated = gpuperf.array(np.ones(3))\n    saxpy[", True),
        ("np.float32(2)", "np.float32(3)", False),
        ("np.arange(n, dtype=np.float32))", "np.arange(n, dtype=np.float32) + 1)", False),
        ("    saxpy[", "    gpuperf.memset(y, 1)\n    saxpy[", False),
        ("    saxpy[", "    y[5:6].fill(1)\n    saxpy[", False),
        ("[(n + 255) // 256, 256]", "[8, 256]", False),
    ],
)
def test_the_inputs_digest_follows_what_the_host_gives(real, old, new, same):
    before = TEST.partition("    np.testing")[0].replace("[1000, 1024]", "[1000]")
    real.write("test_k.py", before)
    first = real.report()["cases"][0]["measured"]["inputs"]
    real.write("test_k.py", before.replace(old, new, 1))
    assert (real.report()["cases"][0]["measured"]["inputs"] == first) is same


def test_same_bytes_on_both_backends(real):
    real.update()
    native = real.baseline()
    (real.path / "baselines" / "test_k.yaml").unlink()
    assert real.update("-o", "gpuperf_backend=reference").ret == 0
    assert real.baseline() == native


def test_estimates_are_never_stored(real):
    """A sample beside the launch changes no byte of the baseline, one without a launch counts as no launch."""
    real.update()
    plain = real.baseline()
    sample = """    import gpuperf_engine as ge
    from pathlib import Path
    kernel = ge.parse(Path("saxpy.ptx").read_text(), path="saxpy.ptx")["saxpy"]
    arguments = [np.int32(n), np.float32(2), x, y]
    assert gpuperf.device.sample(kernel, (n + 255) // 256, 256, arguments).threads == 1
"""
    real.write("test_k.py", TEST.replace("    saxpy[", sample + "    saxpy["))
    assert real.update().ret == 0
    assert real.baseline() == plain
    real.write("test_k.py", TEST.partition("    saxpy[")[0] + sample)
    result = real.update()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*marked with gpuperf, but launched no kernel*"])
    assert real.baseline() == plain


def test_functional_without_counting(real):
    real.plain("-o", "gpuperf_functional=true").assert_outcomes(passed=2)


def test_machine_of_ones_own(real):
    described = Path(gpuperf_engine.__file__).parent / "machines" / "v100-sxm2.yaml"
    source = described.read_text(encoding="utf-8")
    real.write("machines/my-gpu.yaml", source.replace("\nid: v100-sxm2\n", "\nid: my-gpu\n"))
    real.write("test_k.py", TEST.replace('"h100-sxm"', '"my-gpu"'))
    assert real.update("-o", "gpuperf_target_files=machines").ret == 0
    entry = yaml.safe_load(real.baseline())["cases"]["test_saxpy[1000]/saxpy"]["targets"]
    assert entry["my-gpu"] == entry["v100-sxm2"]
    assert real.run().ret == pytest.ExitCode.USAGE_ERROR


#: lanes meet at instructions of two branches, again and again
PARTED = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d;
    ld.param.u64 %d, [out]; mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, 0;
AGAIN: @%p0 bra FIRST;
    bar.warp.sync 3; bra NEXT;
FIRST: bar.warp.sync 3;
NEXT: add.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 600; @%p1 bra AGAIN;
    st.global.u32 [%d], %r1; ret;
}
"""
SLOW = "'k' left compiled code 600 times at bar.warp.sync, which is slow"


def test_what_is_slow_is_said_beside_the_results(pytester):
    """On the terminal and in ``notes`` of the report, in nothing that is compared."""
    pytester.makefile(".ptx", parts=PARTED)
    pytester.makepyfile(
        "import numpy as np\n"
        "def test_parts(gpuperf):\n"
        "    out = gpuperf.zeros(1, np.uint32)\n"
        "    gpuperf.kernel('parts.ptx', targets=['h100-sxm'])[1, 2](out)\n"
        "    assert out.numpy()[0] == 600\n"
    )
    in_process(pytester, "--gpuperf-update").assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess(*PLUGIN, "--gpuperf", "--gpuperf-report=out")
    result.stdout.fnmatch_lines([f"note: test_parts/k: parts.ptx:*: {SLOW}: *"])
    report = json.loads((pytester.path / "out" / "gpuperf.json").read_text())
    (note,) = report["notes"]
    assert SLOW in note
    assert "left compiled code 600 times" in (pytester.path / "out" / "gpuperf.md").read_text()
    assert "<p>note: test_parts/k: parts.ptx:" in (pytester.path / "out" / "gpuperf.html").read_text()
    assert "compiled code" not in json.dumps(report["cases"])
    assert "compiled code" not in next((pytester.path / "baselines").rglob("*.yaml")).read_text()


def test_profile_says_on_stderr_why_it_is_slow(pytester):
    pytester.makefile(".ptx", parts=PARTED)
    command = [
        sys.executable,
        "-m",
        "pytest_gpuperf.cli",
        "profile",
        "parts.ptx",
        "--grid",
        "1",
        "--block",
        "2",
    ]
    done = subprocess.run(
        [*command, "--arg", "u32[1]=zeros", "--format", "json"], capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith("note: parts.ptx:") and SLOW in done.stderr
    assert "compiled code" not in done.stdout
    assert json.loads(done.stdout)["schema_version"] == 1


PRINTING = """\
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[] = {104, 105, 32, 37, 100, 10, 0};
.visible .entry says()
{
    .local .align 8 .b8 room[8];
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    mov.u64 %rd1, room;
    st.local.u32 [%rd1], %r1;
    cvta.local.u64 %rd2, %rd1;
    mov.u64 %rd3, text;
    cvta.global.u64 %rd3, %rd3;
    { .param .b64 f; .param .b64 a; .param .b32 n; st.param.b64 [f], %rd3; st.param.b64 [a], %rd2;
    call.uni (n), vprintf, (f, a); }
    ret;
}
"""
PRINTS = """\
import pytest

@pytest.mark.gpuperf
def test_says(gpuperf, capsys):
    profile = gpuperf.kernel("says.ptx")[1, 3]()
    assert profile.printed == "hi 0\\nhi 1\\nhi 2\\n"
    assert capsys.readouterr().out == profile.printed

@pytest.mark.gpuperf
def test_shown(gpuperf):
    gpuperf.kernel("says.ptx")[1, 2]()
    assert False
"""


def test_what_kernels_print_is_in_the_captured_output(real):
    real.write("says.ptx", PRINTING)
    real.write("test_k.py", PRINTS)
    result = real.run()
    result.assert_outcomes(passed=0, failed=2)  # the first has no baseline yet
    result.stdout.fnmatch_lines(["*Captured stdout call*", "hi 0", "hi 1"])
    real.run("--gpuperf-update", "-k", "says").assert_outcomes(passed=1)
    real.run("-k", "says").assert_outcomes(passed=1)


FETCHES = """\
import numpy as np
import pytest

@pytest.mark.gpuperf
def test_fetch(gpuperf):
    x = gpuperf.array(np.arange(8, dtype=np.float32) / 2)
    out = gpuperf.zeros(8, np.float32)
    texture = gpuperf.texture(gpuperf.array(np.array([1, 2, 4, 8], np.float32)), filter="{filter}")
    gpuperf.kernel("fetch.ptx")[1, 8](texture, x, out)
    assert gpuperf.surface(out).kind == "surface"
"""
FETCH = """\
.version 8.0
.target sm_70
.address_size 64
.visible .entry fetch(.param .u64 image, .param .u64 x, .param .u64 out)
{
    .reg .b32 %r<2>; .reg .f32 %f<6>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [image]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;
    ld.global.f32 %f1, [%rd2];
    tex.1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1}];
    st.global.f32 [%rd3], %f2;
    ret;
}
"""


def test_how_a_texture_is_read_is_an_input(real):
    real.write("fetch.ptx", FETCH)
    real.write("test_k.py", FETCHES.format(filter="nearest"))
    assert real.update().ret == 0
    assert "texture: 8" in real.baseline()
    assert not real.report()["cases"][0]["inputs_changed"]
    real.write("test_k.py", FETCHES.format(filter="linear"))
    assert real.report()["cases"][0]["inputs_changed"]


def test_how_a_sampler_reads_is_an_input(real):
    fetch = FETCH.replace("sm_70", "sm_70, texmode_independent").replace("[%rd1, {%f1}]", "[image, s, {%f1}]")
    fetch = fetch.replace(".u64 image", ".texref image").replace("%rd1, [image];", "%rd1, [x];")
    real.write("fetch.ptx", fetch.replace(", .param .u64 x,", ", .param .u64 x, .param .samplerref s,"))
    sampled = FETCHES.replace("(texture, x, out)", '(texture, x, gpuperf.sampler(filter="{filter}"), out)')
    sampled = sampled.replace('np.float32)), filter="{filter}")', "np.float32)))")
    real.write("test_k.py", sampled.format(filter="nearest"))
    assert real.update().ret == 0
    assert not real.report()["cases"][0]["inputs_changed"]
    real.write("test_k.py", sampled.format(filter="linear"))
    assert real.report()["cases"][0]["inputs_changed"]


def test_accesses_past_the_end_of_an_array(pytester: pytest.Pytester) -> None:
    """A compare-and-swap of the word that a tensor of two bytes lies in: a note, an error or nothing, as the settings say."""

    def run(*args: str) -> pytest.RunResult:
        return in_process(pytester, "-p", "no:cacheprovider", "--gpuperf", *args)

    pytester.path.joinpath("cas.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry cas(.param .u64 x) { .reg .b64 a; .reg .b32 r;\n"
        "ld.param.u64 a, [x];\natom.global.cas.b32 r, [a], 0, 5; ret; }\n",
    )
    test = (
        "import numpy as np\ndef test_c(gpuperf):\n    x = gpuperf.zeros(1, np.uint16, name='x'{pad})\n"
        "    gpuperf.kernel('cas.ptx', entry='cas')[1, 1](x)\n    assert x.numpy()[0] == 5\n"
    )
    pytester.path.joinpath("test_k.py").write_text(test.format(pad=""))
    run("--gpuperf-update")
    note = "cas.ptx:6:1: atom.global.cas.b32: thread (0, 0, 0)*2 bytes past the end of 'x' (2 bytes) [[]object-end]"
    result = run()
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*{note}*"])
    result = run("-o", "gpuperf_strict=error")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*MemoryFault: cas.ptx:6:1: out-of-bounds*", "*[[]object-end]*"])
    result = run("-o", "gpuperf_strict=off")
    assert result.ret == 0 and "object-end" not in result.stdout.str()
    pytester.path.joinpath("test_k.py").write_text(test.format(pad=", pad=0"))
    result = run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*MemoryFault: cas.ptx:6:1: out-of-bounds*"])


def test_a_note_of_many_cases_is_told_once(pytester: pytest.Pytester) -> None:
    """A ``.version`` that is newer than known: one line, however many kernels and tests have it."""
    text = ".version 9.99\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) { ret; }\n"
    pytester.path.joinpath("k.ptx").write_text(text)
    pytester.path.joinpath("test_k.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(5))\ndef test_c(gpuperf, n):\n"
        "    gpuperf.check('k.ptx', grid=1, block=32, args=[None])\n"
    )
    result = in_process(pytester, "-p", "no:cacheprovider", "--gpuperf-update")
    said = [line for line in result.stdout.lines if "9.99" in line]
    assert said == [
        "note: test_c[0]/k and 4 more: .version 9.99 is newer than 9.5: new instructions are unknown"
    ]
