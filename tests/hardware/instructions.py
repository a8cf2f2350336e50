"""Makes ``ptx/instructions`` of the hardware kit: kernels that run single instructions on the words of ``ptx/inputs.npy``.

Each kernel runs up to ``PER_KERNEL`` instructions of one mnemonic, with sources that no instruction before it has written as
far as the operands' letters allow, and stores what each one writes: registers, and for atomics the memory behind the address too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from gpuperf_engine.isa.effects import PURE
from gpuperf_engine.isa.evaluation import has_semantics
from gpuperf_engine.isa.table import Form, Version, needs, rows
from gpuperf_engine.isa.targets import TARGETS
from tests.isa.assembler import forms, instruction_text
from tests.isa.programs import COUNT, REGISTERS

PER_KERNEL = 40
#: 7.8 is the first version with sm_90; older drivers get what they take, see collect.py
BASE_VERSION: Version = (7, 8)
BASE_TARGET = 75
#: what gives addresses, which depend on where things lie, or words whose bits the manual does not define
OPAQUE = ("cvta", "isspacep", "mapa", "getctarank", "createpolicy", "mbarrier")
#: parts of opcodes of matrix products with operands that random words cannot be: positions in a sparse matrix, scales
NOT_RANDOM = ("sp", "block_scale")
#: bytes behind the address of an atomic
SLOT = 32


def chosen() -> Iterator[Form]:
    """Forms that give the same result on every run: those that compute, exchange within a whole warp, multiply matrices, or
    change a word of their own thread in global memory."""
    for row in rows():
        if row.name in OPAQUE or row.available.removed is not None:
            continue
        whole_warp = row.effect.exchanges and row.available.removed is None
        for form in forms(row, 24):
            modifiers = {name for name, value in form.modifiers.items() if value}
            parts = form.opcode.split(".")[1:]
            own_word = row.effect.atomic and form.space == "global"
            if (
                (row.effect is PURE and has_semantics(form))
                or whole_warp
                or (row.name == "mma" and not any(part.startswith(NOT_RANDOM) for part in parts))
                or (own_word and not modifiers & {"sem", "scope", "hint"})
            ):
                yield form


def instruction(form: Form) -> str:
    """The instruction's text; the lanes of an exchange are all the warp's."""
    text = instruction_text(form)
    if any(slot.name == "membermask" for slot in form.operands):
        text = re.sub(r"\w+;$", "0xffffffff;", text)
    return text


def written(form: Form, text: str) -> list[str]:
    """Registers that the instruction writes, as they stand in its text."""
    if form.operands[0].role != "destination":
        return []
    operands = text.split(" ", 1)[1]
    first = operands.split("}")[0] if operands.startswith("{") else operands.split(",")[0]
    return re.findall(r"(?<![\w.])[a-z]\d+", first)


def module(part: list[Form], version: Version, target: str) -> tuple[str, int]:
    """A module that runs the instructions, and how many words each of its threads stores."""
    body: list[str] = []
    stores = 0

    def store(kind: str, name: str) -> None:
        nonlocal stores
        body.append(f"st.global.{kind} [%out+{8 * stores}], {name};")
        stores += 1

    for form in part:
        text = instruction(form)
        in_memory = form.effect.atomic
        if in_memory:
            body += ["st.global.v2.b64 [l8], {l1, l2};", "st.global.v2.b64 [l8+16], {l3, l4};"]
        body.append(text)
        for name in written(form, text):
            if name.startswith("p"):
                body.append(f"selp.u32 %t2, 1, 0, {name};")
                store("u32", "%t2")
            else:
                kind = REGISTERS[name[0]][0]
                store("b16" if kind == "f16" else kind, name)
        for offset in range(0, SLOT if in_memory else 0, 8):
            body.append(f"ld.global.b64 %a2, [l8+{offset}];")
            store("b64", "%a2")
    size = 8 * stores + SLOT
    head = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64"]
    head += [".visible .entry k(.param .u64 in, .param .u64 out)", "{"]
    head += [f".reg .{kind} {letter}<{COUNT}>;" for letter, (kind, _) in REGISTERS.items()]
    head += [f".reg .pred p<{COUNT}>;", ".reg .b32 %t<3>;", ".reg .b64 %a<3>;", ".reg .b64 %in, %out;"]
    head += ["mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %tid.x;", "mad.lo.u32 %t0, %t0, 32, %t1;"]
    head += ["ld.param.u64 %in, [in];", f"mad.wide.u32 %in, %t0, {8 * len(REGISTERS) * COUNT}, %in;"]
    head += ["ld.param.u64 %out, [out];", f"mad.wide.u32 %out, %t0, {-(-size // SLOT) * SLOT}, %out;"]
    for place, (letter, (kind, _)) in enumerate(REGISTERS.items()):
        loaded = "b16" if kind == "f16" else kind
        head += [f"ld.global.{loaded} {letter}{i}, [%in+{8 * (place * COUNT + i)}];" for i in range(COUNT)]
    head += [f"setp.lt.s32 p{i}, r{i}, r{(i + 1) % COUNT};" for i in range(COUNT)]
    head += [f"add.u64 l8, %out, {-(-size // SLOT) * SLOT - SLOT};"]
    return "\n".join([*head, *body, "ret;", "}", ""]), -(-size // SLOT) * SLOT // 8


@cache
def kernels() -> dict[str, tuple[str, dict[str, object]]]:
    """Name → (PTX, its line in ``instructions.json``)."""
    groups: dict[tuple[str, int, str, Version], dict[str, Form]] = defaultdict(dict)
    for form in chosen():
        version, target = needs(form)
        text = instruction(form)
        if not re.search(r"\bq\d", text):
            number, variant = (
                max(BASE_TARGET, target),
                "a" if form.row.available.only else form.row.available.variant,
            )
            since = TARGETS[f"sm_{number}{variant}"]
            key = (form.row.name, number, variant, max(BASE_VERSION, version, since))
            groups[key].setdefault(text, form)
    made: dict[str, tuple[str, dict[str, object]]] = {}
    for (mnemonic, number, variant, version), found in groups.items():
        target = f"sm_{number}{variant}"
        every = list(found.values())
        for start in range(0, len(every), PER_KERNEL):
            part = every[start : start + PER_KERNEL]
            text, stores = module(part, version, target)
            name = f"{mnemonic}-{target}-{version[0]}.{version[1]}-{start // PER_KERNEL}"
            facts = {"ptx": f"instructions/{name}.ptx", "target": target, "stores": stores}
            made[name] = text, facts
    return made


def files() -> dict[str, str]:
    """The modules and their list, by path below ``ptx``."""
    made = kernels()
    index = {name: facts for name, (_, facts) in made.items()}
    texts = {str(facts["ptx"]): text for text, facts in made.values()}
    return {**texts, "instructions.json": json.dumps(index, indent=0) + "\n"}
