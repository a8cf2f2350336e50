"""What ``make demo`` shows: the gate on the real example kernels, then a kernel made worse on purpose, and the red it gets.

Every command is printed before it runs, so that each can be repeated by hand. Exits with 0 if the gate was green on the
good kernels, red on the slower one and named what changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build" / "demo"


def step(text: str) -> None:
    """A heading."""
    print(f"\n\033[1m── {text}\033[0m" if sys.stdout.isatty() else f"\n── {text}", flush=True)


def run(arguments: list[str], folder: Path, *, expect: int) -> str:
    """Run pytest, show its output, and stop the demo if it ends otherwise than expected."""
    print(
        f"$ cd {folder.relative_to(ROOT) if folder != ROOT else '.'} && pytest {' '.join(arguments)}",
        flush=True,
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    print(done.stdout, flush=True)
    if done.returncode != expect:
        sys.exit(f"the demo expected exit code {expect} here, not {done.returncode}")
    return done.stdout


def main() -> None:
    """The four steps."""
    step(
        "1. The gate on the example kernels: CUDA C++ and Triton, counted exactly, compared with the committed baselines"
    )
    run(["--gpuperf", "-q", "-n", "auto", "examples"], ROOT, expect=0)

    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name in ("test_sgemm.py", "sgemm_tiled.ptx", "sgemm_tiled.cu", "sgemm_tiled_slow.cu"):
        shutil.copy(HERE / name, WORK / name)

    step(
        "2. A repository of your own: a test that declares a tiled matrix product; its baseline is written once"
    )
    run(["--gpuperf-update", "-q", "test_sgemm.py"], WORK, expect=0)

    step("3. Somebody changes the kernel: one more load in the inner loop. The result is still right, but")
    shutil.copy(HERE / "sgemm_tiled_slow.ptx", WORK / "sgemm_tiled.ptx")
    shown = run(["--gpuperf", "--gpuperf-report=report", "-q", "test_sgemm.py"], WORK, expect=1)

    step("4. What to do")
    report = WORK / "report" / "gpuperf.html"
    print(f"Open the report: {report}")
    print("Accept an intended change: the update command in the message above.")
    for needed in ("thread_instructions", "→", "--gpuperf-update", "sgemm_tiled"):
        if needed not in shown:
            sys.exit(f"the demo's red gate did not show {needed!r}")
    if not report.is_file():
        sys.exit("the demo's report was not written")


if __name__ == "__main__":
    main()
