"""Groups of value findings: notes of several instructions with the same text about one object at one call count as one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .records import FindingRow

__all__ = ["FindingGroup", "finding_groups", "rounded"]

#: most listed lines of instructions
_NAMED = 6
#: what ends the identity of an element of a vector access
_VECTOR = re.compile(r"\[\d+\]$")


@dataclass
class FindingGroup:
    """A finding, and ``more`` findings with the same text about other instructions."""

    first: FindingRow
    more: list[FindingRow] = field(default_factory=list)

    @property
    def message(self) -> str:
        """The text of the first finding, and number and lines of the others."""
        if not self.more:
            return self.first["message"]
        own = _place(self.first)
        places = list(dict.fromkeys(place for row in self.more if (place := _place(row)) != own))
        named = [*places[:_NAMED], *(["…"] if len(places) > _NAMED else [])]
        where = f", at {', '.join(named)} too" if named else " of that line" if own else ""
        instructions = _instructions((self.first, *self.more)) - 1
        if not instructions:
            return (
                f"{self.first['message']}; likewise {_count(len(self.more), 'more element')} of that vector"
            )
        return f"{self.first['message']}; likewise {_count(instructions, 'more instruction')}{where}"

    def saved(self, unit: str = "us") -> str:
        """``48 bytes, 0.2 us on h100-sxm``: the total saving of all of them; empty for none."""
        rows = (self.first, *self.more)
        waste = sum(row.get("waste", 0) for row in rows)
        saved = [f"{waste:,} bytes"] if waste else []
        for target in self.first.get("saving_us", {}):
            saving = sum(row.get("saving_us", {}).get(target, 0.0) for row in rows)
            saved.append(f"{rounded(saving)} {unit} on {target}")
        return ", ".join(saved)


def _instructions(rows: Iterable[FindingRow]) -> int:
    """Count the instructions of findings; each element of a vector access has its own finding."""
    identities = [row["identity"] for row in rows]
    vectors = [identity for identity in identities if _VECTOR.search(identity)]
    return len(identities) - len(vectors) + len({_VECTOR.sub("", identity) for identity in vectors})


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def rounded(number: float) -> str:
    """A predicted time with two significant digits, or three from 100 on."""
    if not number:
        return "0"
    more = abs(number) >= 100
    digits = 1 + more - int(f"{number:.{1 + more}e}".partition("e")[2])
    return f"{round(number, digits):,.{max(0, digits)}f}"


def finding_groups(rows: Iterable[FindingRow]) -> list[FindingGroup]:
    """Group findings, in the order of the first of each. Failing and accepted findings are not grouped, as each has a line in the
    baseline, or a reason."""
    groups: list[FindingGroup] = []
    known: dict[tuple[object, ...], FindingGroup] = {}
    for row in rows:
        evidence = row["evidence"]
        alone = row["severity"] == "fail" or "accepted" in row or "opcode" not in evidence
        key = row["rule"], row["object"], row["path"], row["line"], evidence.get("kind")
        if not alone and key in known:
            known[key].more.append(row)
            continue
        groups.append(FindingGroup(row))
        if not alone:
            known[key] = groups[-1]
    return groups


def _place(row: FindingRow) -> str:
    """The line of the instruction: of the source, or of the PTX."""
    evidence = row["evidence"]
    source = str(evidence.get("source") or "")
    if source:
        return source.replace("\\", "/").rpartition("/")[2]
    return f"line {evidence['line']}" if evidence.get("line") else ""
