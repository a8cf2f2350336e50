"""Makes the catalogue of example kernels and the interpreter importable, wherever pytest was started."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
for folder in (TESTS, TESTS.parent / "examples"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
