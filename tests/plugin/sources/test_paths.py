"""Paths in reports and annotations: below the rootdir, never those of the machine; annotations where people edited."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pytest_gpuperf.sources.original import source_texts
from pytest_gpuperf.sources.paths import SourcePaths, outside
from tests.plugin.conftest import ptx
from tests.plugin.test_end_to_end import SAXPY, real

__all__ = ["real"]

LOAD = "    ld.global.f32 %f2, [%rd6+0];\n"
SOURCE = (
    "".join(f"// line {number}\n" for number in range(1, 7))
    + "__global__ void saxpy() {\n  y[i] = a * x[i] + y[i];\n}\n"
)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("kernel.cu", "kernels/kernel.cu"),  # beside the PTX
        ("kernels/kernel.cu", "kernels/kernel.cu"),
        ("./kernels/../kernels/kernel.cu", "kernels/kernel.cu"),
        ("{root}/kernels/kernel.cu", "kernels/kernel.cu"),
        ("/home/somebody/work/project/kernels/kernel.cu", "kernels/kernel.cu"),
        ("C:\\Users\\Somebody\\project\\kernels\\kernel.cu", "kernels/kernel.cu"),
        ("/home/somebody/kernel.cu", "kernels/kernel.cu"),
        ("/home/somebody/other.cu", "other.cu"),
        ("/opt/venv/lib/python3.12/site-packages/triton/language/standard.py", "triton/language/standard.py"),
        ("/usr/local/cuda-13.0/targets/x86_64-linux/include/crt/mma.hpp", "include/crt/mma.hpp"),
        ("cuda/include/cuda_fp16.hpp", "cuda/include/cuda_fp16.hpp"),
        ("<ipython-input-3>", "<ipython-input-3>"),
        ("/etc/passwd", "passwd"),
        ("", ""),
    ],
)
def test_paths_of_sources(tmp_path: Path, path: str, shown: str) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "kernel.cu").write_text("first\nsecond\n", encoding="utf-8")
    paths = SourcePaths([tmp_path / "kernels", tmp_path], tmp_path)
    assert paths.shown(path.format(root=tmp_path)) == shown
    found = source_texts([f"{shown}:2"], paths)
    assert found == ({f"{shown}:2": "second"} if shown == "kernels/kernel.cu" else {})


def test_files_outside_of_the_project_are_not_read(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "kernel.cu").write_text("secret\n", encoding="utf-8")
    (root / "notes.txt").write_text("secret\n", encoding="utf-8")
    paths = SourcePaths([root], root)
    for path in (
        "../kernel.cu",
        str(tmp_path / "kernel.cu"),
        "notes.txt",
        str(root / "notes.txt"),
        "a\0.cu",
        ".",
    ):
        assert paths.find(path) is None
        assert source_texts([f"{paths.shown(path)}:1"], paths) == {}
    assert outside("/a/b/../c.cu") == "c.cu"


MADE_ELSEWHERE = """\
import numpy as np

def test_saxpy(gpuperf):
    n = 1024
    x = gpuperf.array(np.arange(n, dtype=np.float32), name="x")
    y = gpuperf.array(np.zeros(n, np.float32), name="y")
    same = gpuperf.array(np.zeros(n, np.float32), name="same")
    saxpy = gpuperf.kernel("kernels/saxpy.ptx")
    saxpy[4, 256](np.int32(n), np.float32(2), x, y)
"""


def test_no_report_holds_a_path_of_the_machine(real) -> None:
    """The PTX was compiled in the project, on another machine, and from installed files."""
    text = SAXPY.format(extra="").replace(
        '.file 1 "saxpy.cu"',
        f'.file 1 "{real.path}/kernels/saxpy.cu"\n.file 2 "/home/somebody/project/kernels/saxpy.cu"\n'
        '.file 3 "/opt/venv/lib/python3.12/site-packages/tools/saxpy.py"\n.file 4 "/usr/local/cuda/include/cuda_fp16.h"',
    )
    text = text.replace("    fma.rn", "    .loc 2 8 9\n    fma.rn").replace(
        "    st.global", "    .loc 3 8 9\n    st.global"
    )
    text = text.replace("    add.s64 %rd7", "    .loc 4 8 9\n    add.s64 %rd7")
    real.write("kernels/saxpy.cu", SOURCE)
    real.write("kernels/saxpy.ptx", text)
    real.write("test_k.py", MADE_ELSEWHERE)
    assert real.update().ret == 0
    real.write("kernels/saxpy.ptx", text.replace("    ld.global.f32 %f3", LOAD + "    ld.global.f32 %f3"))
    document = real.report("--gpuperf-github=on", "-vv", "--junitxml=out/junit.xml")
    (record,) = document["cases"]
    assert {place.rpartition(":")[0] for place in record["detail"]["sources"].values()} == {
        "kernels/saxpy.cu",
        "tools/saxpy.py",
        "include/cuda_fp16.h",
    }
    assert any(found["path"] == "test_k.py" for found in record["detail"]["findings"])
    assert "(kernels/saxpy.cu:8)" in record["position"] or "include/cuda_fp16.h:8" in record["position"]
    parts = {
        path.name: path.read_text(encoding="utf-8")
        for path in (real.path / "out").rglob("*.*")
        if path.is_file()
    }
    parts["baseline"] = real.baseline()
    shown = real.result.stdout.str()
    shown = shown[shown.index("= FAILURES") :]
    parts["terminal"] = re.sub(r"^- generated xml file: .*$", "", shown, flags=re.MULTILINE)  # pytest's own
    assert "report: out/gpuperf.html" in shown
    assert {"gpuperf.json", "gpuperf.html", "gpuperf.md", "junit.xml"} <= parts.keys()
    for name, found in parts.items():
        for path in (str(real.path), "/home/somebody", "/opt/venv", "/usr/local"):
            assert path not in found, (name, found[max(0, found.index(path) - 200) : found.index(path) + 200])


def test_the_command_shows_sources_from_the_current_folder(real, monkeypatch, capsys) -> None:
    from pytest_gpuperf.cli import main

    monkeypatch.chdir(real.path)
    text = SAXPY.format(extra="").replace('"saxpy.cu"', f'"{real.path}/src/saxpy.cu"')
    real.write("src/saxpy.cu", SOURCE)
    real.write("saxpy.ptx", text.replace("mul.wide.s32 %rd5, %r1, 4", "mul.wide.s32 %rd5, %r1, 32"))
    arguments = ["s32=64", "f32=2", "f32[1024]=arange", "f32[1024]=zeros"]
    options = [option for argument in arguments for option in ("--arg", argument)]
    assert main(["profile", "saxpy.ptx", "--entry", "saxpy", "--grid", "1", "--block", "64", *options]) == 0
    out = capsys.readouterr().out
    assert "(src/saxpy.cu:8)" in out and "src/saxpy.cu:8 " in out and str(real.path) not in out


def annotations(output: str) -> list[str]:
    return re.findall(r"^::error file=([^,]*),line=(\d+)", output, re.MULTILINE)


def test_an_annotation_points_at_the_source_line_that_grew(real, monkeypatch) -> None:
    real.write("saxpy.cu", SOURCE)
    assert real.update().ret == 0
    real.write("saxpy.ptx", SAXPY.format(extra=LOAD))
    assert annotations(real.run("--gpuperf-github=on").stdout.str()) == [("saxpy.cu", "8")] * 2
    # GitHub knows files by their path in the repository, not below the rootdir
    monkeypatch.setenv("GITHUB_WORKSPACE", str(real.path.parent))
    assert (
        annotations(real.run("--gpuperf-github=on").stdout.str()) == [(f"{real.path.name}/saxpy.cu", "8")] * 2
    )
    monkeypatch.delenv("GITHUB_WORKSPACE")
    (real.path / "saxpy.cu").unlink()
    assert annotations(real.run("--gpuperf-github=on").stdout.str()) == [("test_k.py", "10")] * 2


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_an_annotation_prefers_what_the_pull_request_changes(real) -> None:
    """As GitHub checks it out: the merge of the pull request into its base."""
    real.write("saxpy.cu", SOURCE)
    assert real.update().ret == 0
    git(real.path, "init", "-q")
    git(real.path, "add", "-A", ":!saxpy.cu")
    git(real.path, "commit", "-qm", "base")
    real.write("saxpy.ptx", SAXPY.format(extra=LOAD))
    # a source file that is not in the repository is none to point at
    assert annotations(real.run("--gpuperf-github=on").stdout.str()) == [("test_k.py", "10")] * 2
    git(real.path, "checkout", "-qb", "change")
    git(real.path, "commit", "-qam", "change")
    git(real.path, "checkout", "-q", "main")
    git(real.path, "merge", "-q", "--no-ff", "-m", "merge", "change")
    assert annotations(real.run("--gpuperf-github=on").stdout.str()) == [("saxpy.ptx", "26")] * 2
    git(real.path, "add", "saxpy.cu")
    git(real.path, "commit", "-qm", "source")
    assert annotations(real.run("--gpuperf-github=on").stdout.str()) == [("saxpy.cu", "8")] * 2


def test_new_kernels_are_annotated_in_their_test(project) -> None:
    project.write("scale.ptx", ptx())
    assert annotations(project.run("--gpuperf-github=on").stdout.str()) == [("test_k.py", "8")]
