"""What ptxas thinks of single instructions: the verdict on each of many, in few runs."""

from __future__ import annotations

import functools
import itertools
import random
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.effects import (
    BULK_COPY,
    HINT,
    INDIRECT_BRANCH,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    PURE,
    STORE,
)
from gpuperf_engine.isa.selectors import SELECTORS, bound, select
from gpuperf_engine.isa.table import Form, OperandSlot, Row, lookup
from gpuperf_engine.isa.types import ScalarType, scalar_type
from gpuperf_engine.ptx.check import LISTED

PTXAS = shutil.which("ptxas")

_LETTERS = {
    "pred": "p",
    "b8": "c",
    "b16": "h",
    "b32": "r",
    "b64": "l",
    "b128": "q",
    "f32": "f",
    "f64": "d",
    "f16": "g",
}
_DECLARATIONS = "".join(f".reg .{kind} {letter}<9>;\n" for kind, letter in _LETTERS.items())


def _register(slot: OperandSlot, index: int) -> str:
    assert slot.type is not None
    name = slot.type.name
    if slot.type.bits == 8 and not slot.wider:
        return f"c{index}"
    if name not in _LETTERS:
        name = f"b{max(16, slot.type.bits)}"
    return f"{_LETTERS[name]}{index}"


def _operand(slot: OperandSlot, index: int, form: Form) -> str:
    if slot.role == "address":
        if form.opcode.startswith("st.bulk") and form.space == "shared":
            return "[r8]"
        if form.space == "param" and (form.effect is STORE or form.modifier("space") == "param::func"):
            return "[out]"
        return {
            "image": "[l8]",
            "param": "[par]",
            "const": "[con]",
            "shared": "[sha]",
            "local": "[loc]",
            "tmem": "[r5]",
            "endpoint": "[r5]",
        }.get(slot.space or form.space or "", "[l8]")
    if slot.role == "label":
        return "targets" if form.effect is INDIRECT_BRANCH else "there"
    if slot.role == "call":
        return "callee"
    if slot.role == "sink":
        return "_"
    if slot.constant and slot.name == "bytes":
        return "16"
    if slot.constant:
        return {"size": "128", "membermask": "0xffffffff", "count": "24", "selector": "0", "value": "0"}.get(
            slot.name, "1"
        )
    if slot.name == "fraction":
        return "0f3F000000"
    if (
        form.category == "texture"
        and slot.vector == 1
        and ((slot.inside and slot.name == "c") or slot.name in ("dx", "dy"))
    ):
        # beside a sampler, ptxas wants one coordinate in braces, and derivatives always
        return "{" + _register(slot, index) + "}"
    # so ptxas does the coordinates and offsets of tensors
    listed = slot.name == "offsets" or (slot.inside and slot.braces and form.effect in (BULK_COPY, HINT))
    listed = listed or (
        slot.braces
        and (
            form.effect in (MATRIX, MATRIX_LOAD, MATRIX_STORE)
            or form.effect.tensor
            or form.row.name in LISTED
        )
    )
    if slot.vector > 1 or listed:
        return "{" + ", ".join(_register(slot, (index + i) % 9) for i in range(slot.vector)) + "}"
    return _register(slot, index)


def decorated(slot: OperandSlot, text: str, form: Form) -> str:
    """An operand with the sign and the part that the form has bound to it."""
    negated, part = bound(form, slot.name) if slot.selector or slot.negatable else (False, "")
    return f"{'-' * negated}{text}{'.' * bool(part)}{part}"


def before_sources(form: Form) -> list[ScalarType]:
    """What semantics get before their operands: addresses that they only compute with, and a zero if they have no source."""
    if form.effect is not PURE:
        return []
    if all(slot.role == "destination" for slot in form.operands):
        return [scalar_type("u32")]
    return [scalar_type("u64") for slot in form.operands if slot.role == "address"]


def instruction_text(form: Form) -> str:
    """One instruction with registers of the operands' types."""
    parts: list[str] = []
    for index, slot in enumerate(form.operands):
        text = decorated(slot, _operand(slot, index % 4, form), form)
        if slot.pair:
            parts[-1] += "|" + text
        elif slot.inside:
            parts[-1] = f"{parts[-1].removesuffix(']')}, {text}]"
        else:
            parts.append(text)
    return f"{form.opcode} {', '.join(parts)};"


def _head(version: tuple[int, int], target: str | int, wide: bool = True) -> tuple[str, int]:
    """The text before the instructions, and the line of the first of them."""
    declarations = (
        _DECLARATIONS if wide and version >= (8, 3) else _DECLARATIONS.replace(".reg .b128 q<9>;\n", "")
    )
    head = (
        f".version {version[0]}.{version[1]}\n.target sm_{target}\n.address_size 64\n.const .b32 con[64];\n"
        ".func callee { ret; }\n.visible .entry k(.param .align 16 .b8 par[256])\n{\n.shared .align 32 .b8 sha[256];\n"
        ".local .align 32 .b8 loc[256];\n.param .align 16 .b8 out[256];\n" + declarations + "there:\n"
        "targets: .branchtargets there;\n"
    )
    return head, head.count("\n") + 1


def module_text(instructions: Sequence[str], version: tuple[int, int], target: str) -> str:
    """A module with a kernel ``k`` of these instructions."""
    return _head(version, target)[0] + "\n".join(instructions) + "\nret;\n}\n"


def refused(
    instructions: Sequence[str], version: tuple[int, int], target: str, directory: Path
) -> dict[str, str]:
    """The instructions that ptxas refuses, each with its first message. ``target`` is ``90`` or ``90a``, and may go on as in the text:
    ``90, texmode_independent``."""
    assert PTXAS is not None
    bad: dict[str, str] = {}
    left = list(dict.fromkeys(instructions))
    while left:
        _, first = _head(version, target)
        path = directory / f"module_{version[0]}{version[1]}_{target}.ptx"
        path.write_text(module_text(left, version, target))
        done = subprocess.run(
            [PTXAS, f"-arch=compute_{target.partition(',')[0]}", str(path), "-o", str(directory / "out.cubin")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, str] = {}
        for number, message in re.findall(
            r"line (\d+); (?:error|fatal)\s*:\s*(.*)", done.stdout + done.stderr
        ):
            index = int(number) - first
            if 0 <= index < len(left):
                found.setdefault(left[index], message)
            else:
                raise AssertionError(f"the frame of the module is refused: {number} {message}")
        if not found:
            assert done.returncode == 0, done.stdout + done.stderr
            return bad
        bad.update(found)
        left = [text for text in left if text not in found]
    return bad


def opcodes(row: Row, limit: int = 200) -> Iterator[str]:
    """Opcodes of a row: all, or where there are too many those in which at most two modifiers differ from the first."""
    yield from itertools.islice(_opcodes(row, limit), 4 * limit)


def _opcodes(row: Row, limit: int) -> Iterator[str]:
    choices = [_choices(item, row.modifiers) for item in row.pattern]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count <= limit:
        picks: Iterable[tuple[str, ...]] = itertools.product(*choices)
    else:
        picks = _near(choices)
    for pick in dict.fromkeys(picks):
        yield row.name + "".join(pick)


def _near(choices: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    base = [choice[0] for choice in choices]
    for one, two in itertools.combinations(range(len(choices)), 2):
        for first, second in itertools.product(choices[one], choices[two]):
            yield tuple(first if i == one else second if i == two else base[i] for i in range(len(choices)))


def _choices(item: object, sets: Mapping[str, tuple[str, ...]]) -> list[str]:
    if item.group:  # type: ignore[attr-defined]
        inner = [_choices(part, sets) for part in item.group]  # type: ignore[attr-defined]
        return ["", *("".join(parts) for parts in itertools.product(*inner))]
    return [f".{value}" for value in (item.values or (item.name,))]  # type: ignore[attr-defined]


def target_of(row: Row) -> str:
    """A target that has the row: of the newest family with letter where that does."""
    newest = not row.available.only or any(
        name == "107a" or (name[:-2] == "10" and name[-1] == "f") for name in row.available.only
    )
    return "sm_107a" if newest else f"sm_{row.available.only[0].replace('f', 'a')}"


def forms(row: Row, limit: int = 200) -> Iterator[Form]:
    """Forms of that row (its own only) that the table accepts."""
    for opcode in opcodes(row, limit):
        try:
            found = lookup(opcode)
        except PtxError:  # refused by a constraint of the row
            continue
        for form in found:
            if form.row is row:
                yield form
                yield from _with_parts(form)


def _with_parts(form: Form) -> Iterator[Form]:
    """The form with parts of its operands chosen and negated, at most five."""
    row = form.row
    if not any(slot.selector or slot.negatable for slot in form.operands):
        return
    generator = random.Random(form.opcode)
    for _ in range(5):
        found: dict[str, str | bool] = {}
        for slot in form.operands:
            if slot.selector and generator.random() < 0.7:
                found[slot.selector] = generator.choice(
                    SELECTORS[row.accepts.selectors[slot.selector]].examples
                )
            if slot.negatable and generator.random() < 0.4:
                found[f"{slot.name}_negated"] = True
        made = select(form, found)
        if made is not form and not (row.accepts.valid and row.accepts.valid(made.modifiers)):
            yield made


def requirements(
    instructions: Sequence[str], directory: Path, version: tuple[int, int], target: int
) -> dict[str, tuple[tuple[int, int], int]]:
    """The PTX version and SM number that ptxas asks for, for the instructions that it refuses below them; of those that it
    refuses without naming a target nothing is said."""
    assert PTXAS is not None
    head, first = _head(version, target, wide=False)
    path = directory / "requirements.ptx"
    last = "cvt.rn.f16x2.e4m3x2 r0, h1;"  # refused below sm_89: ptxas came to the end
    path.write_text(head + "\n".join([*instructions, last]) + "\nret;\n}\n")
    done = subprocess.run(
        [PTXAS, f"-arch=compute_{target}", str(path), "-o", str(directory / "out.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    needed: dict[str, tuple[tuple[int, int], int]] = {}
    unsaid: set[str] = set()
    complete = False
    for number, message in re.findall(r"line (\d+); error\s*:\s*(.*)", done.stdout + done.stderr):
        if int(number) - first >= len(instructions):
            complete = True
            break
        text = instructions[int(number) - first]
        known_version, known_target = needed.get(text, (version, int(target)))
        if found := re.search(r"version (\d+)\.(\d+)", message):
            known_version = max(known_version, (int(found[1]), int(found[2])))
        elif "not supported on .target" in message:
            unsaid.add(text)
        elif found := re.search(r"sm_(\d+)", message):
            known_target = max(known_target, int(found[1]))
        needed[text] = known_version, known_target
    assert complete, done.stderr[-300:]
    return {text: need for text, need in needed.items() if text not in unsaid}


@functools.cache
def ptxas_version() -> tuple[int, int]:
    """The highest PTX version that this ptxas reads: CUDA 12.n has 8.n, 13.n has 9.n."""
    assert PTXAS is not None
    text = subprocess.run([PTXAS, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", text)
    assert found is not None, text
    return int(found[1]) - 4, int(found[2])
