"""A project that runs every change: its tests load ``NAME/*.ptx``, the kernel before or after the change, beside its sources."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MODULE = """\
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, {examples!r})
import case_programs
from cases import CASES, execute
from cnn import programs as layers

HERE = Path(__file__).resolve().parent
RUNS = {runs!r}
FILES = {files!r}


def program_of(case):
    if isinstance(case, str):
        return next(known for known in CASES if known.name == case).program()
    builder, *sizes = case
    source, _, name = builder.rpartition(":")
    make = getattr(layers if source else case_programs, name)
    return make(*sizes, np.random.default_rng(zlib.crc32(repr(case).encode())))


TARGETS = {targets!r}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.gpuperf(targets=TARGETS[name])) for name in RUNS])
def test_change(gpuperf, name):
    program = program_of(RUNS[name])
    arrays = {{id(buffer): gpuperf.array(buffer) for buffer in program.buffers}}
    for launch in program.launches:
        kernel = gpuperf.kernel(f"{{name}}/{{FILES[name]}}", entry=launch.entry)
        kernel[launch.grid, launch.block, launch.shared_bytes](*(arrays.get(id(arg), arg) for arg in launch.args))
    np.savez(HERE / os.environ["RESULTS"] / name, *(arrays[id(buffer)].numpy() for buffer in program.buffers))
"""


#: The advice of a report takes a quarter of the time of all this: each simulates the launch again. No verdict depends on it.
CONFTEST = """\
from gpuperf_engine.timing import simulated_why

assert callable(simulated_why._advice)
simulated_why._advice = lambda *_: ()
"""


class Project:
    """A folder with the tests, in which the gate is run on one set of files after another.

    ``runs`` maps the name of each change to the program that shows it, ``files`` to the name of its PTX, ``targets`` to the GPUs.
    """

    def __init__(
        self,
        folder: Path,
        runs: Mapping[str, Any],
        files: Mapping[str, str],
        targets: Mapping[str, Sequence[str]],
    ) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\ngpuperf_judge = ptx\n", encoding="utf-8")
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        module = MODULE.format(
            examples=str(EXAMPLES),
            runs=dict(runs),
            files=dict(files),
            targets={name: list(chosen) for name, chosen in targets.items()},
        )
        (folder / "test_changes.py").write_text(module, encoding="utf-8")

    def update(self, texts: Mapping[str, Mapping[str, str]], originals: Mapping[str, str]) -> None:
        """Measures these files (name of the change, file, text) for the baseline. ``originals`` maps every change to one of them
        with the same kernel and program, whose entries are its own too."""
        tests = [f"test_changes.py::test_change[{name}]" for name in texts]
        said = self._pytest("before", texts, "--gpuperf-update", *tests)
        path = self.folder / "baselines" / "test_changes.yaml"
        assert path.exists(), said
        head, *entries = re.split(r"^(?=  test_change\[)", path.read_text(encoding="utf-8"), flags=re.M)
        assert {_change_of(entry) for entry in entries} == set(texts), said
        shared = [
            entry.replace(f"[{original}]", f"[{name}]", 1)
            for name, original in originals.items()
            for entry in entries
            if _change_of(entry) == original
        ]
        path.write_text(head + "".join(shared), encoding="utf-8")

    def judge(self, texts: Mapping[str, Mapping[str, str]]) -> dict[str, list[dict[str, Any]]]:
        """Runs the gate on these files: the records of the report by the name of the change."""
        said = self._pytest("after", texts, "--gpuperf-report=report")
        report = self.folder / "report" / "gpuperf.json"
        assert report.exists(), said
        records: dict[str, list[dict[str, Any]]] = {}
        for record in json.loads(report.read_text(encoding="utf-8"))["cases"]:
            records.setdefault(_change_of(record["id"]), []).append(record)
        return records

    def _pytest(self, when: str, texts: Mapping[str, Mapping[str, str]], *options: str) -> str:
        """What pytest said. What the kernels computed is kept in the folder ``when``."""
        (self.folder / when).mkdir()
        for change, files in texts.items():
            (self.folder / change).mkdir(exist_ok=True)
            for name, text in files.items():
                (self.folder / change / name).write_text(text, encoding="utf-8")
        options = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--gpuperf", *options)
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=self.folder,
            env={**os.environ, "RESULTS": when, "PYTEST_ADDOPTS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
        ).stdout


def _change_of(identifier: str) -> str:
    """The name of the change in ``test_change[NAME]/ENTRY``."""
    return identifier.partition("[")[2].partition("]")[0]
