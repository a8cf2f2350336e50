"""Makes a project in which the gate must come to a known end: the demo's kernel as it was stored, made worse, made better, …"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo"
GOOD, SLOW = "sgemm_tiled.ptx", "sgemm_tiled_slow.ptx"
CASES = {
    "unchanged": (GOOD, GOOD),
    "regression": (GOOD, SLOW),
    "improvement": (SLOW, GOOD),
    "conflict": (GOOD, GOOD),
    "nothing": (GOOD, GOOD),
}
"""Case → kernel that the baseline is made of, kernel that is gated."""


def main(case: str, folder: Path) -> None:
    """Makes the project ``folder``."""
    stored, gated = CASES[case]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    shutil.copy(DEMO / "test_sgemm.py", folder)
    shutil.copy(DEMO / stored, folder / GOOD)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--gpuperf-update"], cwd=folder, check=True)
    shutil.copy(DEMO / gated, folder / GOOD)
    if case == "conflict":
        baseline = folder / "baselines" / "test_sgemm.yaml"
        text = baseline.read_text(encoding="utf-8")
        baseline.write_text(f"<<<<<<< ours\n{text}=======\n{text}>>>>>>> theirs\n", encoding="utf-8")
    if case == "nothing":
        (folder / "test_sgemm.py").write_text("def test_no_kernel():\n    pass\n", encoding="utf-8")
        shutil.rmtree(folder / "baselines")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
