"""The text of a failed test: the largest change, its size and lines, and the command that accepts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..core.escaping import clean, one_line
from ..core.finding_groups import rounded
from ..core.mangling import stable_name
from ..core.numbers import change, counted, number
from ..core.program_cases import is_program, update_command
from ..core.records import Case, Row
from ..core.verdict import CASE_VERDICTS, SAME_CODE, SILENT, SYMBOLS, WORDS, leading

__all__ = [
    "accepting",
    "failure_text",
    "headline",
    "metric_label",
    "other_opcodes",
    "same_code",
    "unjudged",
    "updating",
]

_ROWS = 12
_WITHOUT_NUMBER = ("error", "unmodelled")


def metric_label(row: Row) -> str:
    """``time_us (h100-sxm)``, ``resources.registers (estimated)``."""
    about = ", ".join(filter(None, (row["target"], row.get("source"))))
    return f"{row['metric']} ({about})" if about else str(row["metric"])


def accepting(record: Case) -> str:
    """Return the command that accepts the measurement of a record's test."""
    policy = record["policy"]
    return update_command(record["nodeid"], policy["targets"], policy.get("programs", ()))


def updating(records: Iterable[Case], option: str = "--gpuperf-update") -> str:
    """Return the command that measures the tests of all records."""
    records = [*records]
    commands = {accepting(record) for record in records if is_program(record["module"])}
    if len(commands) == 1:
        return commands.pop()
    programs = {name: None for record in records for name in record["policy"].get("programs", ())}
    return " ".join(("pytest", *programs, "--gpuperf", option))


_TIMES = ("time_us", "occupancy")
"""Metrics whose model may differ from the baseline's."""
_OTHER_VALUES = "(gpuperf_program_values)"
"""End of the note about findings of other value settings."""

_MACHINE_CODE = "machine.warp_instructions"
"""The metric whose note explains for all machine code metrics why they are not judged."""


def unjudged(records: Iterable[Case]) -> str:
    """What of the records is not judged: metrics that what they are compared with does not have yet, machine code and predicted times
    that were made there and not here, or otherwise, and findings of values that were observed there otherwise; empty if there is
    none."""
    metrics: dict[str, None] = {}
    kernels = 0
    reasons, values = Counter[str](), Counter[str]()
    predicted: Counter[str] = Counter()
    for record in records:
        rows = [row for row in record["rows"] if row["verdict"] == "unjudged"]
        elsewhere = {row["note"] for row in rows if row["metric"] == _MACHINE_CODE and row["old"] is not None}
        reasons.update(elsewhere)
        others = {
            row["note"] for row in rows if row["metric"] in _TIMES and None not in (row["old"], row["new"])
        }
        predicted.update(others)
        otherwise = {row["note"] for row in rows if _OTHER_VALUES in row["note"]}
        values.update(otherwise)
        elsewhere |= others | otherwise
        lacking = [row["metric"] for row in rows if row["note"] not in elsewhere]
        metrics.update(dict.fromkeys(lacking))
        kernels += bool(lacking)
    sentences = [
        f"counts of PTX decide for {counted(number, 'kernel')}: {reason}"
        for reason, number in reasons.items()
    ]
    sentences += [
        f"predicted times of {counted(number, 'kernel')} are not judged: {reason}"
        for reason, number in predicted.items()
    ]
    sentences += [
        f"findings of {counted(number, 'kernel')} are not judged: {reason}"
        for reason, number in values.items()
    ]
    if metrics:
        sentences.append(
            f"not judged yet: {', '.join(metrics)} of {counted(kernels, 'kernel')}, which the baseline lacks; "
            "the next update adds them: pytest --gpuperf --gpuperf-update"
        )
    return "; ".join(sentences)


def same_code(record: Case) -> str:
    """Return why a kernel with changed PTX counts does not fail, if its machine code is the reason."""
    return f" ({SAME_CODE})" if any(row["note"] == SAME_CODE for row in record["rows"]) else ""


def other_opcodes(records: Iterable[Case], limit: int = 10) -> Iterator[str]:
    """Yield the changed opcodes of kernels that changed without failing."""
    opcodes = [
        f"{SYMBOLS['changed']} {one_line(record['id'], 60)}: opcodes {one_line(row['note'], 200)}"
        for record in records
        for row in record["rows"]
        if row["metric"] == "opcodes" and row["verdict"] == "changed" and not record["fails"]
    ]
    yield from opcodes[:limit]
    if len(opcodes) > limit:
        yield f"… and {len(opcodes) - limit} more with other opcodes"


def headline(records: Sequence[Case]) -> str:
    """Return the largest change, in one line."""
    record = min(records, key=lambda r: CASE_VERDICTS.index(r["verdict"]))
    kernel, verdict = _named(record), record["verdict"]
    more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
    if record["error"]:
        return f"{kernel}: {one_line(record['error'].splitlines()[0])}{more}"
    row = leading(record["rows"], record["verdict"])
    label = metric_label(row)
    if verdict == "new":
        what = (
            "has no baseline" if record["stored"] is None else f"has no baseline for {row['target'] or label}"
        )
        return f"{kernel} {what}: nothing to compare with{more}"
    if row["metric"] == "findings" and row["note"]:
        word = {"improved": "fixed", "changed": "of an object with another name"}.get(verdict, "new")
        return f"{kernel}: finding {word}: {one_line(row['note'])}{more}"
    if row["metric"] == "opcodes":
        return f"{kernel}: opcodes {WORDS[verdict]}: {one_line(row['note'])}{more}"
    if row["new"] is None:
        return f"{kernel} on {row['target']}: {one_line(row['note'].splitlines()[0])}{more}"
    if verdict == "over-limit":
        return f"{kernel}: {label} is {number(row['new'], row['unit'])}, {row['allowed']}{more}"
    if verdict == "incomparable" and row["old"] == row["new"]:
        return f"{kernel} is not comparable: {one_line(row['note'])}{more}"
    word = {"improved": "better than its baseline", "regressed": "worse"}.get(verdict, WORDS[verdict])
    moved = f"{label} {number(row['old'])} → {number(row['new'], row['unit'])}"
    return f"{kernel} is {word}: {moved} ({change(row['old'], row['new'])}){more}"


def _named(record: Case) -> str:
    """The kernel, before it the name that the test gave it."""
    kernel = record["kernel"]["name"]
    test = record["nodeid"].removeprefix(record["module"] + "::")
    name = record["id"].removeprefix(test + "/")
    shown = one_line(name, 80)
    return (
        shown if name.split("@")[0] in (kernel, stable_name(kernel)) else f"{shown} ({one_line(kernel, 80)})"
    )


def failure_text(records: Sequence[Case], *, verbose: bool = False) -> str:
    """The whole message of one test; ``records`` are those that fail."""
    lines = [f"gpuperf: {headline(records)}"]
    for record in records:
        lines += ["", *_case(record, verbose)]
    if any(record["error"] for record in records):
        return "\n".join(lines)
    verdicts = {record["verdict"] for record in records}
    lines.append("")
    if verdicts <= {"error", "over-limit", "unmodelled"}:
        lines.append("An update does not accept this: fix it, or change the declaration.")
    else:
        lines += [
            "If this is what you want, accept it and commit the baseline:",
            f"  {accepting(records[0])}",
        ]
    return "\n".join(lines)


def _case(record: Case, verbose: bool) -> list[str]:
    call = record["call"]
    at = f"{one_line(call['path'])}:{call['line']}" if call["line"] else one_line(call["path"])
    lines = [
        f"{SYMBOLS[record['verdict']]} {one_line(record['id'])}: {WORDS[record['verdict']]}",
        f"  {one_line(record['position'])}, launched at {at}",
    ]
    if record["error"]:
        return [*lines, *(f"  {clean(line)}" for line in record["error"].splitlines())]
    if record["stored"] is None and record["verdict"] == "new":
        return [*lines, f"  no entry in {one_line(record['baseline'])}", *_table(_essential(record["rows"]))]
    rows = record["rows"]
    failing = sorted(
        (row for row in rows if row["fails"]), key=lambda row: CASE_VERDICTS.index(row["verdict"])
    )
    if record["stored"] is None:
        failing = _essential(failing)
    shown = rows if verbose else (failing or [row for row in rows if row["verdict"] not in SILENT])
    lines += _table(shown if verbose else shown[:_ROWS])
    if len(shown) > _ROWS and not verbose:
        lines.append(f"    … {len(shown) - _ROWS} more (-vv shows all)")
    unfailing = [row for row in rows if row["verdict"] not in SILENT and not row["fails"]]
    quiet = len(unfailing) if failing and not verbose else 0
    if quiet:
        lines.append(f"    … and {quiet} that moved without failing (-vv shows all)")
    lines += _explained(record, shown)
    for position, sentence in enumerate(record["because"]):
        lines.append(f"    {'because' if position == 0 else '       '} {one_line(sentence)}")
    if record["inputs_changed"]:
        lines.append("    the inputs (launch shape, scalars or array contents) are not those of the baseline")
    return lines


def _explained(record: Case, rows: Iterable[Row]) -> list[str]:
    """Return the texts of new findings, with savings and advice."""
    new = {row["note"] for row in rows if row["metric"] == "findings" and row["verdict"] == "regressed"}
    lines = []
    for finding in record["detail"]["findings"]:
        if finding["identity"] not in new or finding["severity"] != "fail":
            continue
        lines.append(f"    {one_line(finding['message'], 400)}")
        saved = [f"{finding['waste']:,} bytes"] if finding.get("waste") else []
        saved += [f"{rounded(time)} us on {target}" for target, time in finding.get("saving_us", {}).items()]
        if finding.get("advice"):
            saving = f" (saves {', '.join(saved)})" if saved else ""
            lines.append(f"    advice: {one_line(finding['advice'])}{saving}")
        key = f"{finding['rule']}:{finding['object']}"
        where = f"@pytest.mark.gpuperf(accept={{{key!r}: 'the reason'}})"
        if is_program(record["module"]):
            where = f"gpuperf_accept = {key} = the reason (in the ini file)"
        lines.append(f"    to accept it: {where}")
    return lines


def _essential(rows: Sequence[Row]) -> list[Row]:
    wanted = ("thread_instructions", "warp_instructions", "time_us")
    return [row for row in rows if row["metric"] in wanted or row["verdict"] not in ("new", *SILENT)]


def _table(rows: Sequence[Row]) -> list[str]:
    """Aligned columns: symbol and metric, baseline → now, change, allowed, word."""
    plain = [row for row in rows if row["new"] is not None]
    cells = [
        (
            f"{SYMBOLS[row['verdict']]} {one_line(metric_label(row), 60)}",
            number(row["old"]) if row["old"] is not None else "",
            "→" if row["old"] is not None else "",
            number(row["new"], row["unit"]),
            change(row["old"], row["new"]),
            f"allowed {row['allowed']}" if row["allowed"] and "limit" not in row else row["allowed"],
            WORDS[row["verdict"]] + (f" ({one_line(row['note'])})" if row["note"] else ""),
        )
        for row in plain
    ]
    widths = [max((len(cell[column]) for cell in cells), default=0) for column in range(7)]
    right = {1, 3, 4}
    lines = [line for row in rows if row["verdict"] in _WITHOUT_NUMBER for line in _sentence(row)]
    for cell in cells:
        padded = [
            text.rjust(widths[column]) if column in right else text.ljust(widths[column])
            for column, text in enumerate(cell)
        ]
        lines.append("  " + "  ".join(part for column, part in enumerate(padded) if widths[column]).rstrip())
    others = [row for row in rows if row["new"] is None and row["verdict"] not in _WITHOUT_NUMBER]
    return lines + [line for row in others for line in _sentence(row)]


def _sentence(row: Row) -> list[str]:
    """A finding, or why there is no prediction."""
    word = WORDS[row["verdict"]]
    if row["metric"] == "findings":
        word = {
            "regressed": "new finding",
            "improved": "finding fixed",
            "changed": "finding of an object allocated differently",
        }.get(row["verdict"], word)
    where = f"{row['target']}: " if row["target"] else "opcodes " if row["metric"] == "opcodes" else ""
    first, *more = clean(row["note"]).splitlines()
    return [f"  {SYMBOLS[row['verdict']]} {where}{word}: {first}", *(f"    {line}" for line in more)]
