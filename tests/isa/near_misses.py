"""Instructions one change away from right ones, and what our parser says of many instructions at once."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuperf_engine.errors import EngineError
from gpuperf_engine.isa.table import Form, Row, rows
from gpuperf_engine.isa.types import SCALAR_TYPES
from gpuperf_engine.ptx.parse import parse
from gpuperf_engine.ptx.resolve import _STATEMENT, _Body

from .assembler import PTXAS, _head, forms, instruction_text

#: Modifiers that most instructions do not have.
FOREIGN = (
    "sat", "ftz", "rn", "rzi", "relu", "wide", "lo", "cc", "sync", "aligned", "global", "shared", "v2", "volatile", "uni",
    "L2::cache_hint", "approx", "to", "nc", "x2", "cta", "acquire", "pred", "shared::cluster", "trans", "noinc",
)  # fmt: skip
TYPES = (
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2",
    "f32", "f64", "tf32", "u16x2", "s16x2", "f32x2", "e4m3x2", "pred",
)  # fmt: skip
#: What may stand where something else should.
STRANGERS = (
    "1", "-1", "0f3F800000", "0d3FF0000000000000", "1.5", "p4", "!p4", "[l8]", "[sha]", "[r1]", "{r5, r6}", "{h5, h6}", "c4", "h4",
    "r4", "l4", "q4", "f4", "d4", "g4", "%tid.x", "%clock64", "con", "callee", "there", "{r5}", "-r4", "4294967296",
)  # fmt: skip
GUARDS = ("@r0 ", "@l0 ")


def _split(operands: str) -> list[str]:
    """Operands at the commas outside brackets and braces."""
    parts, depth = [""], 0
    for letter in operands:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if operands.strip() else []


def misses(text: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``(kind of change, instruction)`` for an instruction as text; ``words`` are the modifiers of its family."""
    opcode, _, rest = text.rstrip(";").partition(" ")
    name, *tokens = opcode.split(".")
    operands = _split(rest)

    def spelled(kind: str, modifiers: Sequence[str], given: Sequence[str] = operands) -> tuple[str, str]:
        return kind, f"{'.'.join([name, *modifiers])} {', '.join(given)}".rstrip() + ";"

    for place, token in enumerate(tokens):
        before, after = tokens[:place], tokens[place + 1 :]
        yield spelled("modifier dropped", [*before, *after])
        yield spelled("modifier doubled", [*before, token, token, *after])
        if after:
            yield spelled("modifiers swapped", [*before, after[0], token, *after[1:]])
        others = TYPES if token in SCALAR_TYPES else words
        for other in others:
            if other != token:
                yield spelled("modifier replaced", [*before, other, *after])
    for word in (*words, *FOREIGN):
        yield spelled("modifier added", [word, *tokens])
        yield spelled("modifier added", [*tokens, word])
    for place, operand in enumerate(operands):
        before, after = operands[:place], operands[place + 1 :]
        yield spelled("operand dropped", tokens, [*before, *after])
        yield spelled("operand doubled", tokens, [*before, operand, operand, *after])
        if after:
            yield spelled("operands swapped", tokens, [*before, after[0], operand, *after[1:]])
        for stranger in STRANGERS:
            if stranger != operand:
                yield spelled("operand replaced", tokens, [*before, stranger, *after])
        if operand[0] == "{" and operand[-1] == "}":
            parts = _split(operand[1:-1])
            yield spelled(
                "vector longer", tokens, [*before, "{" + ", ".join([*parts, parts[-1]]) + "}", *after]
            )
            if len(parts) > 1:
                yield spelled("vector shorter", tokens, [*before, "{" + ", ".join(parts[:-1]) + "}", *after])
            yield spelled(
                "vector mixed", tokens, [*before, "{" + ", ".join([*parts[:-1], "p4"]) + "}", *after]
            )
        elif operand[0] not in "[(" and "|" not in operand:
            yield spelled("vector", tokens, [*before, f"{{{operand}, {operand}}}", *after])
            yield spelled("vector", tokens, [*before, f"{{{operand}}}", *after])
            yield spelled("negated", tokens, [*before, f"!{operand}", *after])
            yield spelled("address", tokens, [*before, f"[{operand}]", *after])
        elif operand[0] == "[":
            yield spelled("no address", tokens, [*before, operand.strip("[]"), *after])
            yield spelled("address and more", tokens, [*before, operand[:-1] + ", r1]", *after])
    if operands and operands[0][0] not in "[{(" and "|" not in operands[0]:
        yield spelled("pair", tokens, [f"{operands[0]}|p4", *operands[1:]])
        yield spelled("discarded", tokens, ["_", *operands[1:]])
    for stranger in STRANGERS:
        yield spelled("operand added", tokens, [*operands, stranger])
    for guard in GUARDS:
        yield "guard", guard + text


def near_misses(row: Row, count: int | None, seed: int = 0) -> dict[str, tuple[str, Form]]:
    """Instructions one change away from forms of a row (first and some others), with the kind of the change; ``count``
    of them, drawn by the row and the seed, or all."""
    source = random.Random(f"{row.syntax} {seed}")
    found = list(forms(row, 60))
    right = {instruction_text(form) for form in found}
    some = {len(form.operands): form for form in reversed(found)}
    chosen = list(some.values()) + source.sample(found, min(len(found), 2))
    words = sorted({word for other in rows() if other.name == row.name for word in other.words})
    made: dict[str, tuple[str, Form]] = {}
    for form in chosen:
        for kind, text in misses(instruction_text(form), words):
            if text not in right:
                made.setdefault(text, (kind, form))
    if count is None:
        return made
    kinds: dict[str, list[str]] = {}
    for text in source.sample(sorted(made), len(made)):
        kinds.setdefault(made[text][0], []).append(text)
    rounds = itertools.zip_longest(*kinds.values())
    drawn = itertools.islice((text for some in rounds for text in some if text is not None), count)
    return {text: made[text] for text in drawn}


def refused_by_us(instructions: Sequence[str], version: tuple[int, int], target: str) -> dict[str, str]:
    """The instructions that the parser refuses, each with the message."""
    head, _ = _head(version, target)
    text = head + "\n".join(instructions) + "\n}\n"
    module = parse(text, path="k.ptx")
    function = module.functions["k"]
    start, _ = module.bodies[function.name]  # type: ignore[attr-defined]
    body = _Body(module, module._text, module.grammar, function)  # type: ignore
    first = len(head)
    body.resolve(start, first)
    assert not body.errors, body.errors
    refused: dict[str, str] = {}
    place = first
    for instruction in instructions:
        end = place + len(instruction)
        found = _STATEMENT.match(body.code, place, end)
        body.branches.clear()
        try:
            if found is None or found.end() != end or found.lastgroup != "operands":
                body._unreadable(place, end)
            body._instruction(found)
            body._connect()
            if body.errors:
                raise body.errors.pop()
        except EngineError as error:
            refused[instruction] = str(error)
        place = end + 1
    return refused


#: What may end ptxas at once, so that it has to be asked again about all that stands behind.
_FATAL = re.compile(r" _|\b(row|col)\.(row|col)\.(row|col)|, \w+\|\w+|\.b\d+,|\[\w+\.b|call")


def refused_by_ptxas(
    instructions: Sequence[str], version: tuple[int, int], target: str, directory: Path
) -> dict[str, str]:
    """The instructions that ptxas refuses, each with its first message; ``"crash"`` for those that end it."""
    refused: dict[str, str] = {}
    for fatal, size in ((True, 40), (False, 1500)):
        group = [text for text in instructions if (_FATAL.search(text) is not None) == fatal]
        for start in range(0, len(group), size):
            refused.update(_judged(group[start : start + size], version, target, directory))
    return refused


def _judged(
    instructions: Sequence[str], version: tuple[int, int], target: str, directory: Path
) -> dict[str, str]:
    assert PTXAS is not None
    head, first = _head(version, target)
    path = directory / "misses.ptx"
    refused: dict[str, str] = {}
    left = list(instructions)
    while left:
        path.write_text(head + "\n".join(left) + "\nret;\n}\n")
        done = subprocess.run(
            [PTXAS, f"-arch=compute_{target.partition(',')[0]}", str(path), "-o", str(directory / "out.cubin")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, str] = {}
        said = done.stdout + done.stderr
        for number, message in re.findall(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", said):
            index = int(number) - first
            if 0 <= index < len(left):
                found.setdefault(left[index], message)
        doubtful = [text for text, said in found.items() if "formal parameter" in said or "'__cuda_" in said]
        if len(left) > 1 and doubtful:  # of another line, which called the same function otherwise
            for text in doubtful:
                del found[text]
                refused.update(_judged([text], version, target, directory))
            left = [text for text in left if text not in doubtful]
        refused.update(found)
        if (
            done.returncode and not found and not doubtful
        ):  # it crashed, or names a line that is not the instruction's
            if len(left) == 1:
                return {**refused, left[0]: (said[:80] if done.returncode > 0 else "") or "crash"}
            half = len(left) // 2
            return {
                **refused,
                **_judged(left[:half], version, target, directory),
                **_judged(left[half:], version, target, directory),
            }
        if not done.returncode:
            return refused
        left = [text for text in left if text not in found]
    return refused
