"""A metric is one row: with it added to the table and nothing else, it is measured, stored, judged, attributed and shown."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_gpuperf.core.metrics import ANALYSIS
from tests.plugin.conftest import PLUGIN, in_process

ROOT = Path(__file__).resolve().parents[3]
NAME = "memory.global_load_lines"
FILE = "core/metrics.py"
BEFORE = '    Metric(\n        "memory.global_store_sectors"'
ROW = f"""\
    Metric(
        "{NAME}", "exact", "lower", "", "128-byte lines of global loads",
        since={ANALYSIS["metrics"] + 1},
        access=lambda row: row["cache_lines"] if row.get("kind", "") == "load" else 0,
    ),
"""

PTX = """\
.version 8.0
.target sm_70
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .f32 %f<9>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    mul.wide.u32 %rd6, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd6;
    ld.global.f32 %f1, [%rd4];
    st.global.f32 [%rd5], %f1;
    ret;
}
"""
LOAD = 1 + PTX[: PTX.index("ld.global")].count("\n")

TEST = """\
import numpy as np

def test_copy(gpuperf):
    x, y = gpuperf.zeros(256, np.float32), gpuperf.zeros(256, np.float32)
    gpuperf.kernel("copy.ptx")[1, 128](x, y)
"""

SCHEMAS = """\
import html
import json
from benchmarks.docs import PAGES
print(json.dumps({name: render() for name, render in PAGES.items() if "schemas" in name or "metrics" in name}))
"""


class Patched:
    """A project, the plugin as it is, in this process, and the plugin with the row."""

    def __init__(self, folder: Path, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.project = pytester.path
        (self.project / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
        (self.project / "test_copy.py").write_text(TEST)
        self.kernel(4)
        self.code = folder / "code"
        # with what Python has compiled of it: what changes is compiled anew, as its size is another
        shutil.copytree(ROOT / "pytest_gpuperf", self.code / "pytest_gpuperf")
        shutil.copytree(ROOT / "templates", self.code / "templates")
        path = self.code / "pytest_gpuperf" / FILE
        text = path.read_text(encoding="utf-8")
        assert text.count(BEFORE) == 1
        path.write_text(text.replace(BEFORE, ROW + BEFORE), encoding="utf-8")

    def kernel(self, stride: int) -> None:
        """Lane ``i`` loads the word at ``stride · i``."""
        (self.project / "copy.ptx").write_text(PTX.replace("%rd3, %r1, 4;", f"%rd3, %r1, {stride};"))

    def python(self, *arguments: str) -> tuple[int, str]:
        names = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in names}
        environment["PYTHONPATH"] = os.pathsep.join([str(self.code), str(ROOT), str(ROOT / "engine")])
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.project, env=environment, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    def gate(self, *arguments: str) -> tuple[int, str]:
        return self.python("-m", "pytest", *PLUGIN, "--gpuperf", *arguments)

    def before(self, *arguments: str) -> tuple[int, str]:
        """The gate of the release before."""
        done = in_process(self.pytester, "--gpuperf", *arguments)
        return int(done.ret), done.stdout.str()

    def report(self) -> dict:
        return json.loads((self.project / "out" / "gpuperf.json").read_text(encoding="utf-8"))


@pytest.fixture
def patched(tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Patched:
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return Patched(tmp_path, pytester)


def rows(document: dict) -> dict[str, dict]:
    (record,) = document["cases"]
    return {row["metric"]: row for row in record["rows"]}


def test_a_row_is_all_that_a_metric_takes(patched):
    assert patched.before("--gpuperf-update")[0] == 0
    baseline = patched.project / "baselines" / "test_copy.yaml"
    assert "global_load_lines" not in baseline.read_text()

    code, out = patched.gate("--gpuperf-report=out")  # against the baseline of the release before
    assert code == 0 and f"not judged yet: {NAME} of 1 kernel" in out
    assert rows(patched.report())[NAME]["verdict"] == "unjudged"

    assert patched.gate("--gpuperf-update")[0] == 0
    stored = yaml.safe_load(baseline.read_text())
    assert stored["analysis"]["metrics"] == ANALYSIS["metrics"] + 1
    (case,) = stored["cases"].values()
    assert case["memory"]["global_load_lines"] == 4  # 4 warps of 32 lanes × 4 bytes, a line each

    patched.kernel(8)
    code, out = patched.gate("--gpuperf-report=out")  # twice as many bytes apart: twice as many lines
    assert code == 1 and f"▲ {NAME}" in out
    row = rows(patched.report())[NAME]
    assert (row["verdict"], row["old"], row["new"], row["class"]) == ("regressed", 4, 8, "exact")
    assert row["where"].startswith(f"copy.ptx:{LOAD}")
    for view in ("gpuperf.html", "gpuperf.md"):
        assert NAME in html.unescape((patched.project / "out" / view).read_text(encoding="utf-8"))

    code, out = patched.python("-c", SCHEMAS)
    made = json.loads(out)
    assert code == 0
    jsonschema.validate(stored, json.loads(made["pytest_gpuperf/schemas/baseline-1.json"]))
    jsonschema.validate(patched.report(), json.loads(made["pytest_gpuperf/schemas/report-1.json"]))
    assert "global_load_lines" in made["pytest_gpuperf/schemas/baseline-1.json"]
    assert f"| `{NAME}` | exact | lower | | 128-byte lines of global loads |" in made["docs/metrics.md"]

    code, out = patched.before()  # the release before ignores what it does not know …
    assert code == 1 and "thread_instructions" not in out and NAME not in out
    assert patched.before("--gpuperf-update")[0] == 0  # … and drops it
    assert "global_load_lines" not in baseline.read_text()
