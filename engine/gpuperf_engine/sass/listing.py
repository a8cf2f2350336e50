"""Parses the output of ``nvdisasm -g -c -hex``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import MachineError
from .encoding import Control, control_of
from .tools import shortened

__all__ = ["NEVER", "Decoded", "Listing", "read_listing"]

#: Predicates that are always false.
NEVER = ("@!PT", "@!UPT")
_SECTION = re.compile(r"\s*\.section\s+(\.text\.[^\s,]+|[^\s,]+)")
_LABEL = re.compile(r"([^\s:/]+):\s*$")
_LINE = re.compile(r'\s*//## File "[^"]*", line (\d+)')
_FUNCTION = re.compile(r"\s*\.type\s+([^\s,]+)\s*,\s*@function")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,16})\*/\s+(\S.*?)\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_UPPER_HALF = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_PREDICATE = re.compile(r"@!?U?P[0-9T]+\s+")
_TARGET = re.compile(r"`\(([^)]+)\)")
#: An older ``nvdisasm`` prints ``???`` for what it cannot decode.
_OPCODE = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[\w:]+)*")
#: A label inside a section.
_LOCAL = re.compile(r"\.L_\w+")
#: Annotations that ``nvdisasm`` adds to operands: targets, and spilled registers (``SpillRefill``).
_REMARK = re.compile(r'\s*\(\*"[^"]*"\*\)')
_TARGETS = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')
_OPERAND = re.compile(r"(?:[^,\[\](){}]|\[[^\]]*\]|\([^)]*\)|\{[^}]*\})+")


@dataclass(frozen=True)
class Decoded:
    """One machine instruction. ``ptx`` is the number of the PTX instruction that it was compiled from (``assemble.numbered``), 0 for
    code that the assembler adds. ``function`` is the preceding label, ``encoding`` its 128 bits."""

    section: str
    function: str
    address: int
    text: str
    ptx: int
    encoding: int

    @cached_property
    def predicate(self) -> str:
        """``@P0``, ``@!UP1``; empty if there is none, or if it is always true."""
        match = _PREDICATE.match(self.text)
        guard = match.group().strip() if match is not None else ""
        return "" if guard in ("@PT", "@UPT") else guard

    @cached_property
    def opcode(self) -> str:
        """With all modifiers: ``IMAD.WIDE.U32``."""
        return next(iter(_PREDICATE.sub("", self.text).split(None, 1)), "")

    @cached_property
    def base(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands as written, without the annotations of ``nvdisasm``."""
        rest = _REMARK.sub("", _PREDICATE.sub("", self.text)).split(None, 1)
        return tuple(part.strip() for part in _OPERAND.findall(rest[1]) if part.strip()) if rest[1:] else ()

    @cached_property
    def control(self) -> Control:
        return control_of(self.encoding)

    @property
    def targets(self) -> tuple[str, ...]:
        """The labels that the instruction names."""
        listed = _TARGETS.search(self.text)
        if listed is not None:
            return tuple(name.strip() for name in listed[1].split(","))
        return tuple(_TARGET.findall(self.text))


@dataclass(frozen=True, slots=True)
class Listing:
    """Instructions in the order of the text. ``labels``: the position of the instruction after each label; ``functions``: labels of
    functions; ``sections``: the encoded machine code of each section, with its padding."""

    instructions: tuple[Decoded, ...]
    labels: dict[str, int]
    functions: frozenset[str]
    sections: dict[str, bytes] = field(default_factory=dict)

    def without(self, sections: Collection[str]) -> Listing:
        """The listing without these sections."""
        kept = [number for number, item in enumerate(self.instructions) if item.section not in sections]
        moved = {number: position for position, number in enumerate(kept)}
        return Listing(
            tuple(self.instructions[number] for number in kept),
            {label: moved[at] for label, at in self.labels.items() if at in moved},
            self.functions,
            {name: body for name, body in self.sections.items() if name not in sections},
        )


def read_listing(text: str) -> Listing:
    """Parses the instructions of all code sections, without their padding.

    Raises ``MachineError``, which says what was printed, for text that is not a listing.
    """
    instructions: list[Decoded] = []
    labels: dict[str, int] = {}
    functions: set[str] = set()
    section, function, ptx = "", "", 0
    lines = iter(text.split("\n"))
    for line in lines:
        if match := _INSTRUCTION.match(line):
            upper = _UPPER_HALF.match(next(lines, ""))
            if upper is None:
                raise MachineError(
                    f"it prints instruction {match[1]} of {shortened(section)} without its second half"
                )
            encoding = int(match[3], 16) | int(upper[1], 16) << 64
            body = match[2].rstrip("; ")
            instructions.append(Decoded(section, function, int(match[1], 16), body, ptx, encoding))
            if not _OPCODE.fullmatch(instructions[-1].opcode):
                raise _not_read(instructions[-1], "which is no instruction")
        elif match := _LINE.match(line):
            ptx = int(match[1])
        elif match := _SECTION.match(line):
            section = function = match[1]
            ptx = 0
        elif match := _FUNCTION.match(line):
            functions.add(match[1])
        elif match := _LABEL.match(line):
            labels[match[1]] = len(instructions)
            if match[1] in functions:
                function, ptx = match[1], 0
    for item in instructions:
        if any(_LOCAL.fullmatch(name) and name not in labels for name in item.targets):
            raise _not_read(item, "without the label that it names")
    kept, moved = _without_padding(instructions)
    return Listing(
        tuple(kept),
        {label: moved[at] for label, at in labels.items() if at in moved},
        frozenset(functions),
        {
            instructions[start].section: b"".join(
                item.encoding.to_bytes(16, "little") for item in instructions[start:end]
            )
            for start, end in _sections(instructions)
        },
    )


def _not_read(item: Decoded, what: str) -> MachineError:
    return MachineError(
        f"it prints '{shortened(item.text)}' at {item.address:#06x} of {shortened(item.section)}, {what}"
    )


def _without_padding(instructions: list[Decoded]) -> tuple[list[Decoded], dict[int, int]]:
    """Removes the padding at the end of each section: the branch to itself and the ``NOP`` after it. Returns the new position for each
    position too."""
    kept: list[Decoded] = []
    moved: dict[int, int] = {}
    for start, end in _sections(instructions):
        last = end
        while last > start and instructions[last - 1].opcode == "NOP":
            last -= 1
        if last > start and _is_padding(instructions[last - 1]):
            last -= 1
        for position in range(start, last):
            moved[position] = len(kept)
            kept.append(instructions[position])
    return kept, moved


def _sections(instructions: list[Decoded]) -> Iterator[tuple[int, int]]:
    start = 0
    for position in range(1, len(instructions) + 1):
        if position == len(instructions) or instructions[position].section != instructions[start].section:
            yield start, position
            start = position


def _is_padding(item: Decoded) -> bool:
    """A ``BRA`` to its own address: its offset is minus its length."""
    return (
        item.opcode == "BRA"
        and not item.predicate
        and item.encoding >> 32 & 0xFFFFFFFF in (0xFFFFFFF0, 0xFFFFFFFC)
    )
