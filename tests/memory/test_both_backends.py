"""Loads, stores and atomics of every width, space and pattern of lanes, on both backends: same bytes, same counters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device.device import Runtime
from gpuperf_engine.isa.evaluation import has_semantics
from gpuperf_engine.isa.table import lookup, rows
from gpuperf_engine.jit.compiled import Code
from gpuperf_engine.jit.runtime.access.functions import access_functions
from gpuperf_engine.simt.counters import Observation
from tests.isa.assembler import opcodes
from tests.support import compiled, head, launch

HEAD = head("9.4", "sm_100a")
#: lane → distance in elements; what each pattern is good for is in its name
PATTERNS = {
    "consecutive": "mov.u32 %i, %t;",
    "reversed": "sub.u32 %i, 31, %t;",
    "same": "mov.u32 %i, 5;",
    "rows": "and.b32 %i, %t, 15;",
    "halves": "shr.u32 %i, %t, 4;",
    "stride2": "shl.b32 %i, %t, 1;",
    "stride32": "shl.b32 %i, %t, 5;",
    "scrambled": "mul.lo.u32 %i, %t, 11; and.b32 %i, %i, 31;",
    "pairs": "shr.u32 %i, %t, 1;",
}
MASKS = {"all": "setp.ge.u32 %p, %t, 0;", "odd": "and.b32 %m, %t, 1; setp.eq.u32 %p, %m, 1;", "some": "setp.lt.u32 %p, %t, 20;",
         "none": "setp.gt.u32 %p, %t, 99;", "middle": "sub.u32 %m, %t, 7; setp.lt.u32 %p, %m, 12;"}  # fmt: skip


def both(text: str, arrays: Sequence[npt.NDArray[Any]], block: int = 32, grid: int = 2) -> None:
    """Run on both backends; memory and everything observed must be equal."""
    outcomes: list[tuple[list[npt.NDArray[Any]], Observation]] = []
    for backend in ("reference", "llvm"):
        runtime = Runtime(backend=backend, memory_bytes=1 << 24)
        given = [runtime.array(array) for array in arrays]
        kernel = ge.parse(text, path="k.ptx")["k"]
        _, _, seen = runtime.run(kernel, grid, block, given)
        assert backend == "reference" or isinstance(compiled(kernel), Code)
        outcomes.append(([array.numpy() for array in given], seen))
    (expected, reference), (found, observed) = outcomes
    for one, other in zip(expected, found):
        np.testing.assert_array_equal(one, other)
    for name in ("block_warps", "block_lanes", "divergent", "taken", "predicated", "sites"):
        np.testing.assert_array_equal(getattr(reference, name), getattr(observed, name), err_msg=name)
    assert reference.uninitialized == observed.uninitialized
    assert reference.blank == observed.blank


def _value(i: int) -> str:
    return f"mad.lo.u32 %m, %t, 77, {i * 5 + 1}; cvt.u16.u32 %h{i}, %m; mov.b32 %r{i}, %m; mul.wide.u32 %l{i}, %m, 65537;"


def access_kernel(space: str, kind: str, count: int, pattern: str, mask: str, size: int) -> str:
    """Stores and loads back through a pattern of lanes, under a guard, and stores what was loaded where all can see it."""
    letters = {"b8": "%h", "b16": "%h", "b32": "%r", "b64": "%l"}[kind]
    vector = "" if count == 1 else f".v{count}"
    registers = ", ".join(f"{letters}{i}" for i in range(count))
    operand = registers if count == 1 else f"{{{registers}}}"
    base = {"global": "%data", "shared": "%sh", "generic": "%data", "local": "%lo"}[space]
    where = "" if space == "generic" else f".{space}"
    return f"""{HEAD}
.visible .entry k(.param .u64 a, .param .u64 b) {{
.reg .pred %p; .reg .b32 %t, %i, %m, %n, %sh, %lo; .reg .b64 %data, %out, %o, %x;
.reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>;
.shared .align 16 .b8 tile[32768];
.local .align 16 .b8 own[16384];
ld.param.u64 %data, [a]; ld.param.u64 %out, [b];
mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x;
{PATTERNS[pattern]}
{MASKS[mask]}
mul.lo.u32 %i, %i, {size};
cvt.u64.u32 %o, %i;
mov.u32 %sh, tile; add.u32 %sh, %sh, %i; mov.u32 %lo, own; add.u32 %lo, %lo, %i;
mul.wide.u32 %x, %n, 32768; add.u64 %data, %data, %x; add.u64 %data, %data, %o;
{"".join(_value(i) for i in range(count))}
@%p st{where}{vector}.{kind} [{base}], {operand};
{"".join(f"mov.b16 %h{i}, 0; mov.b32 %r{i}, 0; mov.b64 %l{i}, 0;" for i in range(count))}
@%p ld{where}{vector}.{kind} {operand}, [{base}];
mad.lo.u32 %m, %n, 32, %t; mul.wide.u32 %x, %m, 32; add.u64 %out, %out, %x;
{"".join(f"st.global.{kind} [%out+{i * 8}], {letters}{i};" for i in range(count))}
ret; }}"""


WIDTHS = (("b8", 1), ("b16", 1), ("b32", 1), ("b64", 1), ("b32", 2), ("b32", 4), ("b64", 2), ("b16", 4))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("space", ["global", "shared", "generic", "local"])
def test_accesses_of_every_width(space: str, pattern: str) -> None:
    for number, (kind, count) in enumerate(WIDTHS):
        # every width with every mask somewhere, not everything with everything
        mask = list(MASKS)[(number + list(PATTERNS).index(pattern)) % len(MASKS)]
        size = int(kind[1:]) // 8 * count
        arrays = [np.arange(1 << 16, dtype=np.uint8), np.zeros(2 * 32 * 4, np.uint64)]
        if pattern in ("stride32", "stride2") and space == "local" and size > 8:
            continue
        both(access_kernel(space, kind, count, pattern, mask, size), arrays)


#: modifiers that change nothing here
ORDERS = (".acquire", ".release", ".acq_rel", ".sys", ".gpu", ".cta", ".cluster")


def atomic_lines() -> list[str]:
    """Every atomic with semantics, as an instruction on ``[%a]``."""
    made = []
    for row in rows():
        if not row.effect.atomic or row.name == "multimem":
            continue  # multimem is a reduction of global memory, with vectors that others lack
        for opcode in opcodes(row, 40):
            if "::" in opcode or any(word in opcode for word in ORDERS):
                continue
            for form in lookup(opcode):
                kind = str(form.modifier("type"))
                if form.row is not row or not has_semantics(form) or kind == "b128":
                    continue
                names = {
                    "16": "%h",
                    "32": "%f" if kind == "f32" else "%r",
                    "64": "%d" if kind == "f64" else "%l",
                }
                letter = names[
                    str(16 if kind in ("f16", "bf16", "b16") else 64 if kind.endswith("64") else 32)
                ]
                operands = []
                for index, slot in enumerate(form.operands):
                    if slot.role == "address":
                        operands.append("[%a]")
                    elif slot.name == "policy":
                        operands = []
                        break
                    elif slot.vector > 1:
                        operands.append(
                            "{" + ", ".join(f"{letter}{(index + i) % 8}" for i in range(slot.vector)) + "}"
                        )
                    else:
                        operands.append(f"{letter}{index}")
                if operands:
                    made.append(f"{opcode} {', '.join(operands)};")
    return list(dict.fromkeys(made))


ATOMICS = atomic_lines()


def _operand(i: int) -> str:
    return (
        f"mad.lo.u32 %r{i}, %t, {37 * i + 3}, {i}; cvt.u64.u32 %l{i}, %r{i}; cvt.rn.f32.u32 %f{i}, %r{i}; "
        f"cvt.rn.f64.u32 %d{i}, %r{i}; cvt.rn.f16.f32 %h{i}, %f{i};"
    )


def _atomic(line: str, place: int) -> str:
    """One atomic by lanes that share four slots of 32 bytes, of which it has 128 bytes of its own; then what its registers hold."""
    shared = ".shared" in line
    used = sorted({int(number) for number in re.findall(r"%[hrlfd](\d)", line)} | {0})
    slots = f"""
add.u64 %x, %slot, {128 * place}; add.u64 %x, %data, %x; mov.u32 %s, tile; add.u32 %s, %s, %i; add.u32 %s, %s, {128 * place};
ld.global.v2.b64 {{%l0, %l1}}, [%x]; ld.global.v2.b64 {{%l2, %l3}}, [%x+16];"""
    if shared:
        slots += (
            "\nst.shared.v2.b64 [%s], {%l0, %l1}; st.shared.v2.b64 [%s+16], {%l2, %l3}; bar.warp.sync -1;"
        )
    return f"""{slots}
{"cvt.u64.u32 %a, %s;" if shared else "mov.u64 %a, %x;"}
{"".join(_operand(i) for i in used)}
{line}
st.global.b16 [%out], %h0; st.global.b32 [%out+8], %r0; st.global.b64 [%out+16], %l0;
st.global.f32 [%out+24], %f0; st.global.f64 [%out+32], %d0;
{"ld.shared.b64 %l4, [%s]; st.global.b64 [%out+40], %l4;" if shared else ""}
add.u64 %out, %out, 2048;"""


@pytest.mark.parametrize("start", range(0, len(ATOMICS), 12))
def test_every_atomic(start: int) -> None:
    lines = ATOMICS[start : start + 12]
    text = f"""{HEAD}
.visible .entry k(.param .u64 a, .param .u64 b) {{
.reg .b32 %t, %i, %s; .reg .b64 %data, %out, %a, %x, %slot;
.reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %l<9>; .reg .f32 %f<9>; .reg .f64 %d<9>;
.shared .align 32 .b8 tile[{128 * len(lines)}];
ld.param.u64 %data, [a]; ld.param.u64 %out, [b];
mov.u32 %t, %tid.x; and.b32 %i, %t, 3; mul.lo.u32 %i, %i, 32; cvt.u64.u32 %slot, %i;
mul.wide.u32 %x, %t, 64; add.u64 %out, %out, %x;
{"".join(_atomic(line, place) for place, line in enumerate(lines))}
ret; }}"""
    values = np.array([1.5, 3.0, -2.0, 100.0] * 8 * len(lines), np.float32).view(np.uint8)
    both(text, [values, np.zeros(32 * 8 * len(lines), np.uint64)], grid=1)


def test_memory_that_nobody_wrote_is_told_alike() -> None:
    text = f"""{HEAD}
.visible .entry k(.param .u64 a) {{
.reg .pred %p; .reg .b32 %t, %s, %r<4>; .reg .b64 %a, %x; .shared .align 4 .b8 tile[256];
ld.param.u64 %a, [a]; mov.u32 %t, %tid.x; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;
setp.lt.u32 %p, %t, 16;
@%p st.shared.b32 [%s], %t;
@%p ld.shared.b32 %r0, [%s];
ld.shared.b32 %r1, [%s];
ld.shared.b32 %r2, [tile];
ld.shared.b32 %r3, [tile+128];
mul.wide.u32 %x, %t, 4; add.u64 %a, %a, %x;
add.u32 %r0, %r0, %r1; add.u32 %r0, %r0, %r2; add.u32 %r0, %r0, %r3;
st.global.b32 [%a], %r0; ret; }}"""
    both(text, [np.zeros(32, np.uint32)])


@pytest.mark.parametrize("start", [0, 3, 40])
def test_arrays_that_are_written_in_part(start: int) -> None:
    """Loads and stores of memory that nobody wrote, in part or whole, with lanes missing and in any order."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 a, .param .u64 b) {{
.reg .pred %p; .reg .b32 %t, %i, %v; .reg .b16 %h; .reg .b64 %a, %b, %x, %y, %l;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x;
add.u32 %i, %t, {start}; mul.wide.u32 %x, %i, 4; add.u64 %x, %x, %a; mul.wide.u32 %y, %t, 8; add.u64 %b, %b, %y;
and.b32 %v, %t, 7; setp.ne.u32 %p, %v, 3;
ld.global.u32 %v, [%x]; st.global.u32 [%b], %v;
@%p st.global.u32 [%x], %t;
@%p ld.global.u32 %v, [%x];
ld.global.u16 %h, [%x]; cvt.u32.u16 %i, %h; add.u32 %v, %v, %i;
@!%p ld.global.u32 %i, [%x+128]; add.u32 %v, %v, %i;
sub.u32 %i, 31, %t; mul.wide.u32 %x, %i, 8; add.u64 %x, %x, %a; ld.global.u64 %l, [%x]; cvt.u32.u64 %i, %l;
ld.global.u32 %t, [%a+200]; add.u32 %v, %v, %t;
add.u32 %v, %v, %i; st.global.u32 [%b+4], %v; ret; }}"""
    outcomes = []
    for backend in ("reference", "llvm"):
        runtime = Runtime(backend=backend, memory_bytes=1 << 24)
        part, out = runtime.empty(128, np.uint32), runtime.empty(64, np.uint32)
        part[5:20].copy_from(np.arange(15, dtype=np.uint32))
        part[60:96].copy_from(np.arange(36, dtype=np.uint32))
        _, _, seen = runtime.run(ge.parse(text, path="k.ptx")["k"], 1, 32, [part, out])
        shadow = runtime.memory.shadow_of(part.allocation).tolist()
        outcomes.append((part.numpy().tolist(), out.numpy().tolist(), sorted(seen.blank.items()), shadow))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2]


def test_a_value_that_looks_like_unwritten_memory() -> None:
    text = f"""{HEAD}
.visible .entry k(.param .u64 a) {{
.reg .b32 %t, %s, %v; .reg .b64 %a, %x; .shared .align 4 .b8 tile[256];
ld.param.u64 %a, [a]; mov.u32 %t, %tid.x; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;
mov.u32 %v, 0x5BD1E995;
st.shared.b32 [%s], %v; ld.shared.b32 %v, [%s];
atom.shared.add.u32 %v, [%s+128], 0x5BD1E995;
ld.shared.b32 %v, [%s+128];
mul.wide.u32 %x, %t, 4; add.u64 %a, %a, %x;
st.global.b32 [%a], %v; ret; }}"""
    both(text, [np.zeros(32, np.uint32)])


@pytest.mark.parametrize("kind", ["u8", "s16", "b32", "v2.u8", "v4.u8", "v2.u16", "v4.s8"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_parts_of_shared_words_that_were_stored_whole(kind: str, pattern: str) -> None:
    """Shared memory is then not watched byte by byte; the words behind the first 32 are never stored."""
    count = int(kind[1]) if kind[0] == "v" else 1
    bits = int(kind.rpartition(".")[2][1:])
    shift = (bits * count // 8).bit_length() - 1
    targets = [f"%h{i}" if bits < 32 else f"%r{i}" for i in range(count)]
    loaded = targets[0] if count == 1 else "{" + ", ".join(targets) + "}"
    stores = "\n".join(
        f"st.global.{'u16' if bits < 32 else 'u32'} [%l4+{4 * i}], {target};"
        for i, target in enumerate(targets)
    )
    text = f"""{HEAD}
.visible .entry k(.param .u64 out)
{{
    .shared .align 16 .b8 tile[4096];
    .reg .pred %p;
    .reg .b16 %h<4>;
    .reg .b32 %r<4>, %t, %i, %m, %a, %b;
    .reg .b64 %l<5>;
    mov.u32 %t, %tid.x;
    mov.u32 %b, tile;
    shl.b32 %a, %t, 2;
    add.u32 %a, %a, %b;
    mul.lo.u32 %m, %t, 0x9E3779B1;
    st.shared.u32 [%a], %m;
    bar.warp.sync -1;
    {PATTERNS[pattern]}
    shl.b32 %i, %i, {shift};
    add.u32 %i, %i, %b;
    ld.shared.{kind} {loaded}, [%i];
    ld.param.u64 %l0, [out];
    mov.u32 %m, %ctaid.x;
    mad.lo.u32 %m, %m, 32, %t;
    mul.wide.u32 %l1, %m, 16;
    add.u64 %l4, %l0, %l1;
    {stores}
    ret;
}}
"""
    both(text, [np.zeros(256, np.uint32)])


@pytest.mark.parametrize("wide", [False, True], ids=["plain", "AVX-512"])
def test_every_access_function_is_good_llvm(wide: bool) -> None:
    for space in ("global", "shared", "watched", "local"):
        for size in (1, 2, 4, 8, 16):
            for pieces in (1, 2, 4, 8):
                if size * pieces <= 32:
                    name = f"{space}_{size}" + (f"x{pieces}" if pieces > 1 else "")
                    llvm.parse_assembly(access_functions(name, wide))


@pytest.mark.parametrize("backend", ["reference", "llvm"])
@pytest.mark.parametrize("given, size", [(16, 16), (8, 1), (3, 1)])
def test_a_copy_that_reads_in_part_is_refused_by_its_byte(backend: str, given: int, size: int) -> None:
    """A size of the source below that of the copy: byte after byte is read, here from nothing."""
    text = HEAD + (
        ".visible .entry k(.param .u32 n) { .reg .b32 %r<3>; .reg .b64 %a; .shared .align 16 .b8 s[16];\n"
        "ld.param.u32 %r0, [n]; mov.u32 %r1, s; mov.u64 %a, 0;\ncp.async.cg.shared.global [%r1], [%a], 16, %r0; ret; }"
    )
    with pytest.raises(ge.MemoryFault, match=rf": {size}-byte load from 0x0: null pointer"):
        launch(backend, text, 1, 1, [np.uint32(given)])
