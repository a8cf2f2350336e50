"""What each word means that a kernel of ``ptx/instructions`` stores: read off its text, so that no generator has to be trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tests.isa.programs import COUNT, REGISTERS

__all__ = ["Store", "inputs_of", "stores"]

_STORE = re.compile(r"st\.global\.(\w+) \[%out\+(\d+)\], (%?\w+);")
_LOAD = re.compile(r"ld\.global\.b64 %a2, \[l8\+(\d+)\];")
_SKIPPED = re.compile(r"selp\.u32 %t2|st\.global\.v2\.b64 \[l8")
LETTERS = list(REGISTERS)


@dataclass(frozen=True)
class Store:
    """Word ``index`` of a thread: what ``instruction``, at ``line``, left in ``place`` (a register, or a word of memory)."""

    index: int
    kind: str
    place: str
    instruction: str
    line: int

    @property
    def opcode(self) -> str:
        return self.instruction.split(" ", 1)[0]

    @property
    def mask(self) -> int:
        """The bits of the 8-byte slot that the store writes."""
        return (1 << int(re.sub(r"\D", "", self.kind))) - 1

    @property
    def sources(self) -> tuple[str, ...]:
        """Registers named after the destination."""
        operands = self.instruction.split(" ", 1)[1].rstrip(";")
        rest = operands.split("}", 1)[1] if operands.startswith("{") else operands.partition(",")[2]
        return tuple(re.findall(r"(?<!\.)\b[a-z]\d\b", rest))


@lru_cache(maxsize=8)
def stores(text: str) -> tuple[Store, ...]:
    """All stores of a kernel, in order."""
    found: list[Store] = []
    instruction, line, place = "", 0, ""
    for number, content in enumerate(text.splitlines(), 1):
        if (load := _LOAD.fullmatch(content)) is not None:
            place = f"memory+{load[1]}"
        elif (store := _STORE.fullmatch(content)) is not None:
            register = place or store[3]
            found.append(Store(int(store[2]) // 8, store[1], register, instruction, line))
            place = ""
        elif not _SKIPPED.match(content):
            instruction, line = content, number
    return tuple(found)


def inputs_of(name: str) -> tuple[int, int] | None:
    """Place of a register's first value in ``inputs.npy``: (letter, index); none for predicates."""
    return (LETTERS.index(name[0]), int(name[1:])) if name[0] in LETTERS and int(name[1:]) < COUNT else None
