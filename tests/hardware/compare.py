"""Holds what a GPU computed against the emulator, word by word.

    python -m tests.hardware.compare DIR [--parts instructions kernels examples times] [--report OUT] [--live]

``DIR`` is what ``collect.py`` wrote; with ``--live`` it is collected there first, on the GPU of this machine. Everything must
be equal bit for bit, but for what the manual leaves open: approximations (``bounds.py``), the order of a matrix instruction's
sum, the order of floating-point atomics. ``--report OUT`` writes ``OUT/compare.json`` and ``OUT/compare.md``. Exit codes: 0 all
equal, 1 something differs, 2 nothing to compare, 3 nothing differs, but something could not be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpuperf_engine.errors import EngineError, MachineError
from gpuperf_engine.timing.calibration.collected import Collected, read_part, same_machine
from tests.hardware import collect
from tests.hardware.verdicts import EQUAL, Verdict, example, instruction_kernel, not_compared, recorded

PARTS = ("instructions", "kernels", "examples", "times")
OK, DIFFERENT, USAGE, NOT_COMPARED = 0, 1, 2, 3


def instructions(found: Collected) -> Iterator[Verdict]:
    """Every kernel of ``ptx/instructions`` that runs on that machine."""
    index = json.loads((collect.PTX / "instructions.json").read_text(encoding="utf-8"))
    source = np.load(collect.PTX / "inputs.npy")
    capability = (found.machine["capability_major"], found.machine["capability_minor"])
    for name, facts in index.items():
        if not collect.runs_on(facts["target"], capability):
            continue
        path = collect.PTX / facts["ptx"]
        yield judged(
            "instructions",
            name,
            found,
            path.read_text(encoding="utf-8"),
            lambda record, path=path, facts=facts, name=name: instruction_kernel(
                name, path, facts["stores"], source, record
            ),
        )


def kernels(found: Collected) -> Iterator[Verdict]:
    """Every launch of ``ptx/kernels.jsonl`` that runs on that machine."""
    capability = (found.machine["capability_major"], found.machine["capability_minor"])
    for line in (collect.PTX / "kernels.jsonl").read_text(encoding="utf-8").splitlines():
        kernel = json.loads(line)
        if collect.runs_on(collect.written_target(kernel["ptx"]), capability):
            yield judged("kernels", kernel["name"], found, kernel["ptx"], partial(recorded, kernel))


def examples(found: Collected) -> Iterator[Verdict]:
    """Every case of the catalogue."""
    return _programs("examples", collect.catalogue().CASES, found)


def times(found: Collected) -> Iterator[Verdict]:
    """Every timed case, by the digests of its first results."""
    return _programs("times", collect.timed().TIMED, found)


def _programs(part: str, cases: Sequence[Any], found: Collected) -> Iterator[Verdict]:
    capability = (found.machine["capability_major"], found.machine["capability_minor"])
    for case in cases:
        if not collect.runs_on(collect.written_target(case.text), capability):
            continue
        yield judged(part, case.name, found, case.text, lambda record, case=case: example(part, case, record))


def judged(
    part: str, name: str, found: Collected, text: str, judge: Callable[[Mapping[str, Any]], Verdict]
) -> Verdict:
    """The verdict on one case: what keeps it from being compared, or what the comparison says."""
    record = found.cases.get(name)
    if record is None:
        return not_compared(part, name, "missing", f"{found.path} has no line of it")
    if "error" in record:
        refused = any(f"({number})" in record["error"] for number in (218, 222))
        return not_compared(part, name, "refused" if refused else "failed", str(record["error"]))
    if record.get("ptx") != collect.digest(np.frombuffer(text.encode(), np.uint8)):
        return not_compared(part, name, "stale", "it was made from other PTX than there is here")
    try:
        verdict = judge(record)
    except EngineError as error:
        return not_compared(part, name, "not emulated", str(error))
    except (KeyError, ValueError, TypeError) as error:
        where = f"{found.path}:{found.lines[name]}"
        return not_compared(part, name, "unreadable", f"{where}: {type(error).__name__}: {error}")
    verdict.lowered = str(record.get("lowered", ""))
    return verdict


def markdown(machine: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """The report for people."""
    counts = Counter((item.part, item.verdict) for item in verdicts)
    lines = [
        f"# {machine['gpu']} against the emulator",
        "",
        f"Driver {machine.get('driver') or 'unknown'}, CUDA {machine['cuda']}, collected {machine['date']}"
        + (f" at commit {machine['commit']}." if machine.get("commit") else "."),
        "",
        "| part | verdict | kernels | words | equal | within a bound | different |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (part, verdict), count in sorted(counts.items()):
        some = [item for item in verdicts if (item.part, item.verdict) == (part, verdict)]
        sums = [sum(getattr(item, key) for item in some) for key in ("words", "equal", "within", "different")]
        lines.append(f"| {part} | {verdict} | {count} | " + " | ".join(f"{value:,}" for value in sums) + " |")
    for title, wanted in (
        ("Differences", lambda item: item.verdict == "different"),
        ("Not compared", lambda item: not item.compared),
        ("Within a bound", lambda item: item.verdict == "within a bound"),
    ):
        chosen = [item for item in verdicts if wanted(item)]
        if chosen:
            lines += ["", f"## {title}", ""]
            for item in chosen:
                lowered = f" (as PTX {item.lowered})" if item.lowered else ""
                lines.append(f"- `{item.name}`{lowered}: {item.reason or item.verdict}")
                lines += [f"  - {text}" for text in item.differences]
    return "\n".join(lines) + "\n"


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0, 1 or 3, as the module says."""
    if any(item.verdict == "different" for item in verdicts):
        return DIFFERENT
    return OK if all(item.compared for item in verdicts) else NOT_COMPARED


def main(arguments: Sequence[str] | None = None, found: tuple[Any, Any | None] | None = None) -> int:
    """The command; ``found`` as in ``collect.main``."""
    parser = argparse.ArgumentParser(description="Hold what a GPU computed against the emulator.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="what collect.py wrote")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS[:3], help="default: the first three"
    )
    parser.add_argument("--report", type=Path, metavar="OUT", help="write compare.json and compare.md there")
    parser.add_argument("--live", action="store_true", help="collect into DIR first, on this machine's GPU")
    options = parser.parse_args(arguments)
    needed = not {"instructions", "kernels"}.isdisjoint(options.parts)
    if needed and not collect.PTX.is_dir() and (missing := collect.write_kit()):
        print(missing, file=sys.stderr)
        return USAGE
    if options.live:
        code = collect.main([str(options.folder), "--parts", *options.parts], found)
        if code:
            return USAGE
    try:
        parts = {part: read_part(options.folder, part) for part in options.parts}
        same_machine(parts.values())
    except MachineError as error:
        print(error, file=sys.stderr)
        return USAGE
    machine = next(iter(parts.values())).machine
    verdicts: list[Verdict] = []
    for part, data in parts.items():
        for verdict in globals()[part](data):
            verdicts.append(verdict)
            if verdict.verdict != EQUAL:
                print(verdict)
    counts = Counter(item.verdict for item in verdicts)
    print(f"{machine['gpu']}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine, "verdicts": [item.to_dict() for item in verdicts]}
        (options.report / "compare.json").write_text(
            json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        (options.report / "compare.md").write_text(markdown(machine, verdicts), encoding="utf-8")
    return exit_code(verdicts)


if __name__ == "__main__":
    sys.exit(main())
