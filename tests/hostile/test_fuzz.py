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

ROOT = Path(__file__).resolve().parents[2]
#: of more bytes parsing alone takes long
LARGEST = 150_000
MODULES = sorted(
    path
    for path in (*(ROOT / "examples").rglob("*.ptx"), *(ROOT / "tests" / "cuda" / "kernels").glob("*.ptx"))
    if path.stat().st_size <= LARGEST
)
COUNT, MORE = 72, int(os.environ.get("GPUPERF_FUZZ", "0"))
INSTRUCTION = re.compile(r"\s+(@!?%p\d+\s+)?[a-z]\w*[.;]")
REGISTER = re.compile(r"((%[a-z]+)\d+)\b")
SWAPS = (
    ("u32", "s32"), ("f32", "b32"), ("global", "shared"), (".lt", ".ge"), (".global", ""), (".ne", ".eq"), ("@%p", "@!%p"),
    ("bra.uni", "bra"), ("b32", "b64"), ("add", "sub"), (".sync", ".sync.aligned"), ("shl", "shr"), ("bar.sync", "bar.arrive"),
    ("mbarrier.arrive", "mbarrier.arrive_drop"), (".shared::cluster", ".shared::cta"), (".row", ".col"), ("f16", "bf16"),
    (".m16n8k16", ".m16n8k8"), ("v4", "v2"), (".rn", ".rz"), (".x4", ".x2"), ("cluster", "cta"), (".b8", ".b16"),
    ("{", "{_, "), ("_|", ""), ("wait", "arrive"), ("1;", "-1;"), ("]", "+4096]"), ("[", "[%rd1, "),
    (".x", ".y"), ("ld", "st"), ("0x", "0xf"), ("-1", "12345"), ("ret;", "trap;"), ("exit;", "bar.sync 1;"),
)  # fmt: skip


@cache
def modules() -> tuple[tuple[str, ...], ...]:
    """The lines of each module."""
    return tuple(tuple(path.read_text(encoding="utf-8").split("\n")) for path in MODULES)


def mutate(source: random.Random) -> str:
    """One of the modules with one to three changes, mostly such as leave PTX: in instructions, to operands of the same kind."""
    lines = list(source.choice(modules()))
    for _ in range(source.randint(1, 3)):
        (rough if source.randrange(8) == 0 else gentle)(lines, source)
    return "\n".join(lines)


def gentle(lines: list[str], source: random.Random) -> None:
    places = [place for place, line in enumerate(lines) if INSTRUCTION.match(line)]
    if not places:
        return
    place, other = source.choice(places), source.choice(places)
    line, kind = lines[place], source.randrange(6)
    registers = REGISTER.findall(line)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[other])
    elif kind == 2:
        lines[place], lines[other] = lines[other], line
    elif kind == 3 and registers:
        old, prefix = source.choice(registers)
        alike = [name for name, its in REGISTER.findall("\n".join(lines)) if its == prefix]
        lines[place] = re.sub(rf"{re.escape(old)}\b", source.choice(alike), line, count=1)
    elif kind == 4:
        values = (0, 1, -1, 3, 4, 31, 32, 255, 4096, 2**31, 2**32 - 1)
        lines[place] = re.sub(r"(?<=[ +])-?\d+\b", lambda _: str(source.choice(values)), line)
    else:
        old, new = source.choice(SWAPS)
        lines[place] = line.replace(old, new)


def rough(lines: list[str], source: random.Random) -> None:
    place = source.randrange(len(lines))
    line, kind = lines[place], source.randrange(4)
    at = source.randrange(max(len(line), 1))
    if kind == 0:
        lines[place] = line[:at] + chr(source.randrange(32, 127)) + line[at + 1 :]
    elif kind == 1:
        lines[place] = line[:at] + line[at + 1 :]
    elif kind == 2:
        del lines[max(place, 3) :]
    else:
        lines[place] = re.sub(r"\d+", lambda _: str(source.choice((0, 1, 33, 2**32, 2**63))), line)


def arguments(text: str, entry: str, source: random.Random) -> list[object]:
    """Something for each parameter that the text seems to declare."""
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*\((.*?)\)\s*[.{{]", text, re.DOTALL)
    given: list[object] = []
    for kind in re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", found.group(1) if found else ""):
        if kind in ("u64", "b64"):
            given.append(
                source.choice([np.arange(4096, dtype=np.uint32)] * 3 + [np.zeros(64, np.uint32), None])
            )
        elif kind.startswith("f"):
            given.append(float(source.randint(-2, 2)))
        elif kind == "b8":
            size = re.search(r"\.b8\s+\w+\[(\d+)\]", found.group(1) if found else "")
            given.append(bytes(min(int(size.group(1)), 4096) if size else 32))
        else:
            given.append(source.choice([0, 1, 33, 64]))
    return given


@pytest.mark.parametrize("seed", range(COUNT + MORE))
def test_changed_modules(sandbox: Sandbox, seed: int) -> None:
    source = random.Random(seed)
    text = mutate(source)
    names = re.findall(r"\.entry\s+(\w+)", text)
    entry = source.choice(names) if names else "k"
    required = re.search(r"\.reqntid (\d+)", text)
    blocks = [int(required.group(1))] * 9 if required else []
    job = Job(
        text,
        entry=entry,
        backend="lanes" if seed % 8 == 0 else "native",
        grid=source.choice([1, 2, (2, 2)]),
        block=source.choice([1, 32, 64, 128, 256, (16, 16), (32, 8), *blocks]),
        args=arguments(text, entry, source),
        options={
            "max_instructions": 1_000 if seed % 8 == 0 else 200_000,
            "shared_bytes": source.choice([0, 1024]),
        },
    )
    outcome = sandbox.run(job, 60)
    assert outcome.kind in ("ok", "error"), f"{outcome.kind}\n{outcome.text}"
    if outcome.kind == "error":
        assert 1 <= len(outcome.text.splitlines()) <= 5, outcome.text
        assert outcome.type != "EngineError", outcome.text
