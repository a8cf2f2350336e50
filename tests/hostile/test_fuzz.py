"""Real modules with random changes, parsed and launched: an error raised on purpose or success, never anything else.

``GPUPERF_FUZZ=N`` runs N more.
"""

from __future__ import annotations

import os
import random
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.hostile.sandbox import Job, Sandbox

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODULES = sorted([*EXAMPLES.glob("kernels/*.ptx"), *EXAMPLES.glob("triton/*.ptx")])
COUNT, MORE = 60, int(os.environ.get("GPUPERF_FUZZ", "0"))
TOKEN = re.compile(r"[%$.\w]+|\S")


@cache
def tokens() -> tuple[tuple[str, ...], ...]:
    """The lines and the words of each module."""
    return tuple(tuple(path.read_text(encoding="utf-8").split("\n")) for path in MODULES)


def mutate(source: random.Random) -> str:
    """One of the modules with one to five changes."""
    lines = list(source.choice(tokens()))
    for _ in range(source.randint(1, 5)):
        place = source.randrange(len(lines))
        line, kind = lines[place], source.randrange(9)
        words = TOKEN.findall(line)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(place, source.choice(lines))
        elif kind == 2:
            other = source.randrange(len(lines))
            lines[place], lines[other] = lines[other], line
        elif kind == 3 and words:
            donor = TOKEN.findall(source.choice(lines)) or words
            lines[place] = line.replace(source.choice(words), source.choice(donor), 1)
        elif kind == 4 and line:
            at = source.randrange(len(line))
            lines[place] = line[:at] + chr(source.randrange(32, 127)) + line[at + 1 :]
        elif kind == 5 and line:
            at = source.randrange(len(line))
            lines[place] = line[:at] + line[at + 1 :]
        elif kind == 6:
            lines[place] = re.sub(
                r"\d+", lambda _: str(source.choice((0, 1, 31, 32, 255, 2**31, 2**32, 2**63))), line
            )
        elif kind == 7:
            swaps = [
                ("u32", "s32"),
                ("f32", "b32"),
                ("global", "shared"),
                (".lt", ".ge"),
                ("@%p", "@!%p"),
                ("32", "64"),
            ]
            old, new = source.choice(swaps)
            lines[place] = line.replace(old, new)
        else:
            lines = lines[: max(place, 3)]
    return "\n".join(lines)


def arguments(text: str, entry: str, source: random.Random) -> list[object]:
    """Something for each parameter that the text seems to declare."""
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*\((.*?)\)\s*[.{{]", text, re.DOTALL)
    given: list[object] = []
    for kind in re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", found.group(1) if found else ""):
        if kind in ("u64", "b64"):
            given.append(source.choice([np.zeros(1024, np.uint32), np.zeros(64, np.uint32), None]))
        elif kind.startswith("f"):
            given.append(float(source.randint(-2, 2)))
        elif kind == "b8":
            given.append(bytes(32))
        else:
            given.append(source.choice([0, 1, 33, 64]))
    return given


@pytest.mark.parametrize("seed", range(COUNT + MORE))
def test_changed_modules(sandbox: Sandbox, seed: int) -> None:
    source = random.Random(seed)
    text = mutate(source)
    names = re.findall(r"\.entry\s+(\w+)", text)
    entry = source.choice(names) if names else "k"
    job = Job(
        text,
        entry=entry,
        backend="lanes" if seed % 4 == 0 else "native",
        grid=source.choice([1, 2, (2, 2)]),
        block=source.choice([1, 32, 64, 128, 256, (16, 16), (32, 8)]),
        args=arguments(text, entry, source),
        options={
            "max_instructions": 5_000 if seed % 4 == 0 else 200_000,
            "shared_bytes": source.choice([0, 1024]),
        },
    )
    outcome = sandbox.run(job, 60)
    assert outcome.kind in ("ok", "error"), f"{outcome.kind}\n{outcome.text}"
    if outcome.kind == "error":
        assert 1 <= len(outcome.text.splitlines()) <= 5, outcome.text
        assert outcome.type != "EngineError", outcome.text
