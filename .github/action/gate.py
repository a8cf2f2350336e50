"""Runs pytest as the inputs of the action say and writes its outputs.

Inputs come from the environment and reach pytest as separate arguments; what is written to ``GITHUB_OUTPUT`` are numbers, words of a
fixed list and paths without line breaks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

COUNTED = ("regressed", "improved", "new")


def main() -> int:
    """The exit code of the step: that of pytest, unless ``fail-on`` is ``never``."""
    fail_on = os.environ.get("GPUPERF_FAIL_ON", "any")
    if fail_on not in ("any", "never"):
        print(f"fail-on must be any or never, not {fail_on!r}", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("GPUPERF_REPORT_DIR") or "build/gpuperf")
    report = folder / "gpuperf.json"
    report.unlink(missing_ok=True)  # what an earlier run left must not speak for this one
    cases = os.environ.get("GPUPERF_MIN_CASES", "").strip()
    arguments = [line.strip() for line in os.environ.get("GPUPERF_ARGS", "").splitlines() if line.strip()]
    code = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--gpuperf",
            f"--gpuperf-report={folder}",
            *([f"--gpuperf-min-cases={cases}"] if cases else []),
            *arguments,
        ],
        check=False,
    ).returncode
    write_outputs(outputs(report, code))
    judged = code in (0, 1) and report.is_file()
    return 0 if fail_on == "never" and judged else code


def outputs(report: Path, code: int) -> dict[str, str]:
    """Name → value. Without a report, because pytest stopped before there could be one, the verdict is ``error``."""
    try:
        document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"verdict": "error" if code else "nothing-analysed", "cases": "0"}
    counts = document.get("counts", {})
    verdict = str(document.get("verdict"))
    folder = report.resolve().parent
    return {
        "verdict": verdict if re.fullmatch(r"[a-z-]+", verdict) else "error",
        "cases": str(len(document.get("cases", []))),
        **{name: str(int(counts.get(name, 0))) for name in COUNTED},
        "stale": str(len(document.get("stale", []))),
        "report-path": str(folder / "gpuperf.html"),
        "json-path": str(folder / "gpuperf.json"),
        "report-dir": str(folder),
    }


def write_outputs(values: dict[str, str]) -> None:
    """Appends to the file that GitHub reads."""
    path = os.environ.get("GITHUB_OUTPUT")
    lines = [f"{name}={' '.join(value.splitlines())}\n" for name, value in values.items()]
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.writelines(lines)
    else:
        sys.stdout.writelines(lines)


if __name__ == "__main__":
    sys.exit(main())
