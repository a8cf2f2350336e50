"""Every instruction with an address, given addresses of every state space: what it may not reach is an error, on both backends.

What it may reach is told here from the manual: an address must be one of the space that is written; a generic one must fall into the
window of a space that the instruction can have, beyond which "the behavior is undefined". The window of kernel parameters lies in that
of global memory, and constant variables can be read as global ones, as nvcc does. Atomics of up to 64 bits and ordered accesses reach
local memory although the manual excludes it, as ptxas 13.0 generates ``LD`` and ``ST`` for that case (rule ``local-order``).
Addresses of shared memory are truncated to 32 bits, from sm_90 on also without a state space, where nothing else is accessed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    LOAD,
    MATRIX_LOAD,
    MATRIX_STORE,
    MBARRIER,
    MBARRIER_WAIT,
    REDUCTION,
    STORE,
)
from gpuperf_engine.isa.model import Form, OperandSlot, Row
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms, instruction_text

#: what ``l8`` may point to: generic addresses, and those in the spaces that have windows
WINDOWS = ("const", "param", "shared", "local")
PLACES = ("global", *WINDOWS, *(f"{space} offset" for space in WINDOWS))
EFFECTS = (
    *(LOAD, STORE, ATOMIC, REDUCTION, ASYNC_COPY, BULK_COPY),
    *(MBARRIER, MBARRIER_WAIT, MATRIX_LOAD, MATRIX_STORE),
)
FAULT = re.compile(
    r"that is|memory$|outside the|out-of-bounds|null pointer|not in shared memory", re.MULTILINE
)
BYTES = 1024
READ_ONLY = {"const", "param"}
#: instructions of one kernel
GROUP = 16
WAYS = (
    "arrive",
    "init",
    "test_wait",
    "try_wait",
    "cas",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "mmio",
    "reduce",
    "load",
    "store",
    "v8",
    "nc",
)


def reaches(form: Form, slot: OperandSlot) -> set[str]:
    """The places that are allowed."""
    opcode, space = form.opcode, str(slot.space or form.modifier("space") or "generic").split("::")[0]
    words = set(opcode.split("."))
    writes = (
        form.effect in (STORE, REDUCTION, ATOMIC)
        or slot.name == "d"
        or opcode.startswith(("st", "wmma.store"))
    )
    if space == "generic":
        wide = "v8" in words or ("v4" in words and form.type is not None and form.type.bits == 64)
        combined = words & {"atom", "red"} and (
            form.vector > 1 or ("b128" in words and "op" in form.modifiers)
        )
        found = READ_ONLY | {"global", "shared", "local"}
        if "mbarrier" in opcode or words & {"ldmatrix", "stmatrix", "bulk", "clusterlaunchcontrol"}:
            found = {"shared", "shared offset"}
        elif words & {"ldu", "multimem", "mmio"} or wide or combined or words >= {"async", "release"}:
            found = READ_ONLY | {"global"}
        elif "wmma" in words or (words & {"atom", "red"} and "b128" in words):
            found = READ_ONLY | {"global", "shared"}
        elif words & {"atom", "red", "relaxed", "acquire", "release"} or "volatile" in words:
            found = READ_ONLY | {"global", "shared", "local"}
    else:
        found = READ_ONLY | {"global"} if space == "global" else {f"{space} offset"}
        found |= {"shared"} if space == "shared" else set()
    return found - READ_ONLY - {f"{space} offset" for space in READ_ONLY} if writes else found


def addresses(form: Form) -> list[OperandSlot]:
    return [slot for slot in form.operands if slot.role == "address"]


def asked(row: Row) -> Iterator[Form]:
    """One form for each space that the row may have, the generic one among them, and of those that go to several CTAs."""
    seen = set()
    for form in forms(row, 30):
        place = form.modifier("space"), form.modifier("dst"), form.modifier("multicast")
        if place not in seen:
            seen.add(place)
            yield form


def line(form: Form, victim: int) -> str:
    """The instruction with ``l8`` as the address number ``victim``; the others are good ones."""
    valid = {"shared": "sha", "global": "l11", "generic": "l10", "param": "par"}
    good = [
        valid.get(str(slot.space or form.modifier("space") or "generic").split("::")[0], "l11")
        for slot in addresses(form)
    ]
    good[victim] = "l8"
    text = re.sub(r"\[\w+", lambda _: "[" + good.pop(0), instruction_text(form))
    return text.replace(", 128;", ", 16;") if "cp.async" in text else text


@functools.cache
def cases() -> list[list[tuple[str, str, set[str]]]]:
    """Groups of opcode, line and what its address may point to: of rows that differ in types only, one."""
    found: dict[tuple[object, ...], tuple[str, str, set[str]]] = {}
    for row in rows():
        # tensor maps are told by what they hold, not by where they are
        if (
            row.effect not in EFFECTS
            or not row.runs
            or "dim" in row.modifiers
            or "cp_fenceproxy" in row.syntax
        ):
            continue
        for form in asked(row):
            # those of calls have no address
            if form.modifier("space") == "param::func":
                continue
            for place, slot in enumerate(addresses(form)):
                allowed = reaches(form, slot)
                kind = (
                    row.name,
                    row.effect.name,
                    form.modifier("space"),
                    form.modifier("multicast"),
                    slot.name,
                    *allowed,
                )
                ways = [word for word in WAYS if word in form.opcode.split(".")]
                case = f"{form.opcode} [{slot.name}]", line(form, place), allowed
                found.setdefault((*map(str, kind), *ways), case)
    every = list(found.values())
    return [every[start : start + GROUP] for start in range(0, len(every), GROUP)]


def module(lines: list[str]) -> str:
    arms = "\n".join(f"A{number}: {text}\nbra END;" for number, text in enumerate(lines))
    tests = "setp.eq.u32 p1, r9, 1; @p1 mov.u64 l8, con; setp.eq.u32 p1, r9, 2; @p1 mov.b64 l8, par;\n" + "".join(
        f"setp.eq.u32 p1, r9, {place}; @p1 {instruction};\n"
        for place, instruction in enumerate(
            (
                "mov.u64 l8, glo", "cvta.const.u64 l8, l8", "cvta.param.u64 l8, l8", "mov.u64 l8, l10", "mov.u64 l8, l12",
                "mov.u64 l8, con", "mov.b64 l8, par", "mov.u64 l8, sha", "mov.u64 l8, loc",
            )
        )
    )  # fmt: skip
    registers = "".join(f"mov.b{bits} {name}{n}, {value};" for bits, name, value in ((32, "r", 16), (64, "l", 16), (16, "h", 1))
                        for n in range(9))  # fmt: skip
    return f"""
.version 9.4
.target sm_107a
.address_size 64
.const .align 128 .b8 con[{BYTES}]; .global .align 128 .b8 glo[{BYTES}];
.visible .entry k(.param .align 128 .b8 par[{BYTES}], .param .u32 which, .param .u32 place) {{
.shared .align 128 .b8 sha[{BYTES}]; .local .align 128 .b8 loc[{BYTES}];
.reg .pred p<9>; .reg .b8 c<9>; .reg .b16 h<9>, g<9>; .reg .b32 r<12>, f<9>; .reg .b64 l<13>, d<9>; .reg .b128 q<9>;
{registers}
mov.u64 l10, sha; cvta.shared.u64 l10, l10; mov.u64 l12, loc; cvta.local.u64 l12, l12; mov.u64 l11, glo;
ld.param.u32 r10, [which]; ld.param.u32 r9, [place];
{tests}
targets: .branchtargets {", ".join(f"A{number}" for number in range(len(lines)))};
brx.idx r10, targets;
{arms}
END: ret; }}
"""


def test_addresses_of_every_space(backend: str) -> None:
    every = [case for group in cases() for case in group]
    assert len(every) > 150
    assert {opcode.split(".")[0] for opcode, _, _ in every} >= {
        "ld", "st", "atom", "red", "ldu", "mbarrier", "ldmatrix", "stmatrix", "wmma", "cp", "multimem", "clusterlaunchcontrol",
    }  # fmt: skip
    wrong = []
    for group in cases():
        kernel = ge.parse(module([text for _, text, _ in group]), path="spaces.ptx")["k"]
        device = ge.Device(backend=backend, observe=set())
        for which, (opcode, text, allowed) in enumerate(group):
            for number, place in enumerate(PLACES):
                # as a generic address an offset is one of nothing, and in another space it may be good
                if place.endswith("offset") and place not in allowed:
                    continue
                if backend == "reference" and place not in allowed and (which + number) % 2:
                    continue  # half of them will do: launches take long there
                message = ""
                try:
                    device.launch(kernel, 1, 32, [bytes(BYTES), np.uint32(which), np.uint32(number)])
                except ge.EngineError as error:
                    message = str(error)
                if bool(FAULT.search(message)) == (place in allowed):
                    wrong.append((opcode, text, place, message))
    assert not wrong, f"{len(wrong)}: {wrong[:8]}"
