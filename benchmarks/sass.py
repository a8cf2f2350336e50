"""Machine code of a kernel whose threads all go the same way: what each of them executes, by opcode.

Used where documentation compares counts of PTX with those of a profiler. Needs ``ptxas`` and ``nvdisasm``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

__all__ = ["executed", "tools"]

_LINE = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+)?\s*(?P<opcode>[A-Z][\w.]*)(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"^(\.L_x_\d+):")


def tools() -> bool:
    """Whether both programs are in the search path."""
    return all(shutil.which(name) for name in ("ptxas", "nvdisasm"))


def executed(ptx: Path, target: str, entry: str, taken: Callable[[int], bool]) -> Counter[str]:
    """Opcodes on the way from the entry to its ``EXIT``, guards ignored but those of branches: of the n-th guarded branch met
    ``taken(n)`` says whether it is. Raises ``RuntimeError`` for calls and for ways that do not end."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "code.cubin"
        subprocess.run(["ptxas", f"-arch={target}", str(ptx), "-o", str(cubin)], check=True)
        text = subprocess.run(
            ["nvdisasm", "-c", str(cubin)], check=True, capture_output=True, text=True
        ).stdout
    lines, labels = [], {}
    for line in text[text.index(f".text.{entry}:") :].splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif match := _LINE.search(line):
            lines.append(match)
    counts: Counter[str] = Counter()
    place = branches = 0
    while counts.total() < 10**6:
        match = lines[place]
        counts[match["opcode"]] += 1
        place += 1
        if match["opcode"] == "EXIT":
            return counts
        if match["opcode"].startswith("CALL"):
            raise RuntimeError(f"{entry} calls a function on this way")
        if match["opcode"] == "BRA":
            branches += match["guard"] is not None
            if match["guard"] is None or taken(branches - 1):
                place = labels[match["operands"].strip(" `()")]
    raise RuntimeError(f"this way through {entry} does not end")
