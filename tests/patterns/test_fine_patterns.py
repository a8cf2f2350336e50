"""Value patterns of single instructions: programs that show exactly one, near misses, and random data, which shows none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge

from ..support import head

_COUNT = 1024
_RANDOM = np.random.default_rng(5)
_INDEX = np.arange(_COUNT)
_NOISE = _RANDOM.random(_COUNT)


def _module(type: str) -> str:
    """Loads x[i] and does arithmetic with it; the result is not stored, but folded into y[i & 1] by an atomic."""
    size = 8 if type.endswith("64") else 2 if type == "f16" else 4
    move, register, use = type, type, f"add.{type} %v, %v, %v;"
    if type == "f16":
        move, register, use = "b16", "b16", "add.f16 %v, %v, %v;"
    return (
        head("7.8", "sm_80")
        + f""".visible .entry k(.param .u64 x) {{
    .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .{register} %v;
    ld.param.u64 %rd1, [x];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, {size};
    add.s64 %rd2, %rd1, %rd3;
    ld.global.{move} %v, [%rd2]; {use}
    ret;
}}"""
    )


def _findings(type: str, values: NDArray[Any], *patterns: ge.Pattern) -> list[ge.Finding]:
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    x = device.array(values, name="x")
    device.launch(ge.parse(_module(type), path="k.ptx")["k"], _COUNT // 128, 128, [x])
    return list(ge.find_patterns(device, patterns) if patterns else ge.find_patterns(device))


def _with(values: NDArray[Any], place: int, value: float) -> NDArray[Any]:
    changed = values.copy()
    changed[place] = value
    return changed


_MOST = np.where(_INDEX % 5 < 3, 3.25, _NOISE)
_ZEROS = np.where(_INDEX % 2 == 0, np.where(_INDEX % 4 == 0, 0.0, -0.0), _NOISE)
_NARROW = _RANDOM.integers(-100, 100, _COUNT)
_HALVES = _RANDOM.integers(-2047, 2047, _COUNT) / 64 * 1.0
_BFLOATS = _RANDOM.integers(128, 255, _COUNT) * 2.0 ** _RANDOM.integers(20, 60, _COUNT)
#: one value to three bits: the least is 7/8 of the largest
_CLOSE = _with(_with(_RANDOM.uniform(0.875, 1, _COUNT), 7, 0.875), 8, 1)
_FEW = _NOISE[_RANDOM.integers(0, 40, _COUNT)]

#: what shows exactly a pattern, with what tells it, and a near miss
_SHOWN: dict[str, tuple[str, NDArray[Any], dict[str, object]]] = {
    "single-zero": ("f32", np.where(_INDEX % 3 == 0, -0.0, 0.0), {"value": 0}),
    "single-zero ": ("s64", 0 * _INDEX, {"value": 0}),
    "single-value": ("f32", 0 * _INDEX + 2.5, {"value": 2.5}),
    "structured-values": ("s32", 7 * _INDEX - 3, {"base": -3, "slope": 7}),
    "structured-values ": ("f32", np.linspace(0, 511.5, _COUNT), {"base": 0.0, "slope": 0.5}),
    "frequent-values": ("f32", _MOST, {"value": 3.25}),
    "frequent-values ": ("f32", _ZEROS, {"value": 0, "count": _COUNT // 2}),
    "heavy-type": ("s32", _NARROW, {"narrower": "s8"}),
    "heavy-type ": ("u64", _RANDOM.integers(1, 60000, _COUNT), {"narrower": "u16"}),
    "heavy-type f64": ("f64", _NOISE.astype(np.float32), {"narrower": "f32"}),
    "heavy-type f16": ("f32", _HALVES, {"narrower": "f16"}),
    "heavy-type bf16": ("f32", _BFLOATS, {"narrower": "bf16"}),
    "heavy-type e4m3": ("f16", _RANDOM.integers(-15, 15, _COUNT), {"narrower": "e4m3"}),
    "heavy-type dictionary": ("f32", _FEW, {"narrower": "dictionary", "distinct": len(set(_FEW.astype(np.float32).tolist()))}),
    "approximate-values": ("f32", _CLOSE, {"bits": 3, "bound": 0.0625}),
}  # fmt: skip
_MISSES: dict[str, tuple[str, NDArray[Any]]] = {
    "six of 100 are not that line's": ("s32", np.where(_INDEX % 100 > 93, 5, 7919000 * (_INDEX + 1))),
    "fewer than half": ("f32", np.where(_INDEX % 100 < 47, 3.25, _NOISE)),
    "one integer is too large": ("s32", _with(_NARROW, 9, 1 << 17)),
    "one fraction is too long": ("f32", _with(_HALVES, 9, 1 + 2.0**-23)),
    "one exponent is too large": ("f64", _with(_NOISE.astype(np.float32).astype(np.float64), 9, 1e39)),
    "one is no normal half": ("f32", _with(_HALVES * 8 + 2.0**-23 * 5, 9, 2.0**-15)),
    "one bit too far apart": ("f32", _with(_CLOSE, 9, 0.875 - 2.0**-20)),
    "too many for a dictionary": ("f32", _NOISE[_RANDOM.integers(0, 110, _COUNT)]),
}


@pytest.mark.parametrize("shown", _SHOWN)
def test_a_program_that_shows_exactly_this_pattern(shown: str) -> None:
    type, values, evidence = _SHOWN[shown]
    (finding,) = _findings(
        type, values.astype(type.replace("f", "float").replace("u", "uint").replace("s", "int"))
    )
    assert finding.rule == shown.split()[0], finding.message
    assert evidence.items() <= finding.evidence.items()
    assert (finding.object, finding.kernel, finding.evidence["line"], finding.evidence["kind"]) == (
        "x",
        "k",
        10,
        "load",
    )
    assert 0 < finding.waste <= finding.evidence["bytes"] and finding.advice


@pytest.mark.parametrize("miss", _MISSES)
def test_a_near_miss_shows_none(miss: str) -> None:
    type, values = _MISSES[miss]
    values = values.astype(type.replace("f", "float").replace("s", "int"))
    rules = [finding.rule for finding in _findings(type, values)]
    # what is left of a line or of a narrow type may fit the next wider one
    assert rules in ([], ["heavy-type"]) and (not rules or "narrow" not in miss)
    if "one " in miss and rules:
        (finding,) = _findings(type, values)
        assert finding.evidence["narrower"] not in ("s8", "f16")


@pytest.mark.parametrize("type", ["s32", "u64", "f16", "f32", "f64"])
def test_random_data_shows_none(type: str) -> None:
    dtype = np.dtype(type.replace("f", "float").replace("u", "uint").replace("s", "int"))
    raw = _RANDOM.integers(0, 256, _COUNT * dtype.itemsize, np.uint8).view(dtype)
    values = _RANDOM.normal(size=_COUNT).astype(dtype) if dtype.kind == "f" else raw
    assert _findings(type, values) == []


def test_values_that_are_structured_but_for_a_boundary_are_a_note() -> None:
    """Rows of neighbours as srad of Rodinia makes them: the first element is its own neighbour."""
    values = np.maximum(_INDEX - 1, 0).astype(np.int32)
    (finding,) = _findings("s32", values)
    assert (finding.rule, finding.severity, finding.evidence["slope"]) == ("structured-values", "note", 1)
    # all but the first warp, through which no line goes
    assert finding.evidence["fraction"] == round(1 - 32 / _COUNT, 4)
    assert finding.waste == 4 * (_COUNT - 32) and "in at least 96.9 %" in finding.message


_FLAG = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u32 step, .param .u32 threads) {
    .reg .b64 %a; .reg .b32 %i, %step, %last; .reg .pred %out;
    ld.param.u64 %a, [x]; ld.param.u32 %step, [step]; ld.param.u32 %last, [threads];
    mov.u32 %i, %tid.x; setp.ge.u32 %out, %i, %last; @%out ret;
    mad.lo.u32 %i, %i, %step, 1;
    st.global.u32 [%a], %i;
    ret;
}"""
)


@pytest.mark.parametrize(
    ("elements", "step", "threads", "rules"),
    [
        (1, 0, 100, ["single-value", "silent-stores"]),  # as bfs of Rodinia says that it is not done yet
        (1, 1, 100, []),  # each thread another value
        (1, 0, 1, []),  # one store alone
        (2, 0, 100, ["silent-stores"]),  # the other element is not known
    ],
)
def test_a_flag_that_all_threads_set_is_a_single_value(
    elements: int, step: int, threads: int, rules: list[str]
) -> None:
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 20, races="off")
    x = device.array(np.zeros(elements, np.uint32), name="flag")
    device.launch(ge.parse(_FLAG)["k"], 1, 128, [x, np.uint32(step), np.uint32(threads)])
    findings = ge.find_patterns(device)
    assert [finding.rule for finding in findings] == rules
    if "single-value" in rules:
        assert (findings[0].severity, findings[0].waste) == ("note", 4 * (threads - 1))


_COLUMNS = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u32 rows) {
    .reg .b64 %a, %o; .reg .b32 %i, %n, %rows, %v;
    ld.param.u64 %a, [x]; ld.param.u32 %rows, [rows];
    mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %n, %i, %n, 0; mov.u32 %i, %tid.x; add.u32 %i, %i, %n;
    div.s32 %i, %i, %rows;
    mul.wide.u32 %o, %i, 4; add.s64 %a, %a, %o;
    ld.global.s32 %v, [%a]; add.s32 %v, %v, %v;
    ret;
}"""
)


@pytest.mark.parametrize(("columns", "shown"), [(64, True), (24, False)])
def test_a_boundary_at_the_start_is_left_out_of_a_line(backend: str, columns: int, shown: bool) -> None:
    """Columns to the west, as srad of Rodinia loads them, each for 64 rows: the first two are column 0, through which a line of slope
    0 goes. What was loaded before the right one is drawn may be a quarter."""
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 20, backend=backend)
    west = device.array(np.maximum(np.arange(columns, dtype=np.int32) - 1, 0), name="west")
    launch = device.launch(ge.parse(_COLUMNS)["k"], columns, 64, [west, np.int32(64)])
    (record,) = launch.values
    assert record.affine is not None
    assert (record.affine.slope, record.affine.at_zero) == (1, -1)
    assert record.affine.fits + record.affine.before == record.count == 64 * columns
    assert 128 < record.affine.before <= 8 * 64
    (finding,) = (item for item in ge.find_patterns(device) if item.rule != "repeated-loads")
    assert finding.rule == ("structured-values" if shown else "heavy-type")
    if shown:
        assert (finding.severity, finding.evidence["fraction"]) == (
            "note",
            round(record.affine.fits / record.count, 4),
        )


def test_the_error_of_approximate_values_is_that_of_all_accesses() -> None:
    (finding,) = _findings("f32", _CLOSE.astype(np.float32))
    assert (finding.evidence["narrower"], finding.evidence["narrower_error"]) == ("f16", 2.0**-11)
    off = _CLOSE.astype(np.float32).astype(np.float64) - 0.9375
    assert finding.evidence["rmse"] == pytest.approx(np.sqrt((off * off).mean()), rel=1e-9)
    assert finding.evidence["rmse"] < finding.evidence["bound"]


@pytest.mark.parametrize("few", [True, False])
def test_a_table_is_one_for_the_object(few: bool) -> None:
    """Blocks that all load the same 128 elements, which have 40 values, of 1,024 that have 40 or all different ones."""
    values = _FEW if few else np.where(_INDEX < 128, _FEW, _NOISE)
    device = ge.Device(observe={"memory", "values", "accesses"}, memory_bytes=1 << 24)
    kernel = ge.parse(_module("f32").replace("mad.lo.u32 %r5, %r2, %r3, %r4", "mov.u32 %r5, %r4"))["k"]
    x = device.array(values.astype(np.float32), name="x")
    device.launch(kernel, _COUNT // 128, 128, [x])
    tables = [item for item in ge.find_patterns(device) if item.instruction]
    assert [(item.rule, item.evidence["narrower"]) for item in tables] == [("heavy-type", "dictionary")] * few


def test_values_that_are_structured_along_two_axes() -> None:
    grid = (3 + 2.5 * np.arange(64) + 100 * np.arange(16)[:, None]).astype(np.float32)
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    device.launch(
        ge.parse(_module("f32"), path="k.ptx")["k"], _COUNT // 128, 128, [device.array(grid, name="x")]
    )
    (finding,) = ge.find_patterns(device)
    assert (finding.rule, finding.severity) == ("structured-values", "fail")
    assert finding.evidence["slopes"] == [2.5, 100.0]
    assert finding.message.endswith("element (y, x) is 3 + 2.5 · x + 100 · y")


@pytest.mark.parametrize("again, severity", [(5.0, "fail"), (0.25, "note")])
def test_one_value_fails_if_the_call_has_one_each_time(again: float, severity: str) -> None:
    """The second launch of the line loads one value too, or different ones: then the load is needed."""
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    kernel = ge.parse(_module("f32"), path="k.ptx")["k"]
    x = device.array(np.full(_COUNT, 2.5, np.float32), name="x")
    second = np.full(_COUNT, again) if again == 5 else _NOISE
    for values in (np.full(_COUNT, 2.5), second):
        x.copy_from(values.astype(np.float32))
        device.launch(kernel, _COUNT // 128, 128, [x])
    (finding,) = ge.find_patterns(device)
    assert (finding.rule, finding.severity, finding.calls) == (
        "single-value",
        severity,
        2 if again == 5 else 1,
    )


_STORE = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    st.global.u32 [%rd5], %r2;
    ret;
}"""
)


def test_stores_that_change_nothing_and_loads_of_nothing() -> None:
    """A third of the stores is silent, less is none; memory that nobody wrote is read. A second launch of the call adds to it."""
    kernel = ge.parse(_STORE)["k"]
    values = _RANDOM.integers(1 << 20, 1 << 30, 96, np.uint32)
    for same, rules in ((32, ["silent-stores"]), (31, [])):
        device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
        x, y = (
            device.array(values),
            device.array(np.where(np.arange(96) < same, values, 0).astype(np.uint32), name="y"),
        )
        device.launch(kernel, 1, 96, [x, y])
        findings = ge.find_patterns(device)
        assert [finding.rule for finding in findings] == rules
        assert all(item.waste == 4 * same and item.evidence["silent"] == same for item in findings)
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    x, y = device.empty(96, np.uint32, name="x"), device.array(values)
    for _ in range(2):
        device.launch(kernel, 1, 96, [x, y])
    findings = {(finding.rule, finding.object): finding for finding in ge.find_patterns(device)}
    read = findings["uninitialized-reads", "x"]
    assert read.evidence["launches"] == 2 and read.evidence["bytes"] == 2 * 96 * 4
    assert findings["single-zero", "x"].evidence["bytes"] == 2 * 96 * 4


_REPEATED = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u32 n) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r3, 0;
LOOP:
    ld.global.f32 %f1, [%rd3]; add.f32 %f2, %f1, %f1;
    setp.ne.u32 %p0, %r3, 0;
    @%p0 add.s64 %rd3, %rd3, 512;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra LOOP;
    ret;
}"""
)


@pytest.mark.parametrize(
    "rounds, word, rules", [(3, "ld", ["repeated-loads"]), (4, "ld", []), (3, "ld.volatile", [])]
)
def test_loads_of_what_the_thread_has_loaded(rounds: int, word: str, rules: list[str]) -> None:
    """The second round loads what the first did, the others something else: one in three is repeated, or one in four."""
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    x = device.array(_NOISE.astype(np.float32), name="x")
    kernel = ge.parse(_REPEATED.replace("ld.global", f"{word}.global"))["k"]
    device.launch(kernel, 1, 128, [x, np.uint32(rounds)])
    findings = ge.find_patterns(device)
    assert [finding.rule for finding in findings] == rules
    assert all((item.waste, item.evidence["reloads"]) == (128 * 4, 128) for item in findings)


def test_thresholds_can_be_set() -> None:
    values = np.where(_INDEX % 4 == 0, 3.25, _NOISE).astype(np.float32)
    assert _findings("f32", values) == []
    (finding,) = _findings("f32", values, ge.FinePatterns(ge.Thresholds(frequent=0.18)))
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24, thresholds=ge.Thresholds(frequent=0.18))
    device.launch(
        ge.parse(_module("f32"), path="k.ptx")["k"], _COUNT // 128, 128, [device.array(values, name="x")]
    )
    assert [of_device.rule for of_device in ge.find_patterns(device)] == [finding.rule]
    # the count is what is certain: an eighth of all accesses may be missing
    assert finding.rule == "frequent-values" and 0.25 - 1 / 8 <= finding.evidence["fraction"] <= 0.25


def test_an_identity_outlives_lines_that_are_added() -> None:
    """Lines, and accesses of other objects by the same opcode."""
    loads_more = "ld.global.f32 %f9, [%rd9];\n\n    ld.global"
    identities = set()
    for text in (_module("f32"), _module("f32").replace("ld.global", loads_more)):
        text = text.replace(".param .u64 x", ".param .u64 x, .param .u64 other")
        text = text.replace(
            "ld.param", ".reg .f32 %f9; .reg .b64 %rd9; ld.param.u64 %rd9, [other];\n    ld.param", 1
        )
        device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
        x = device.zeros(_COUNT, np.float32, name="x")
        other = device.array(_RANDOM.normal(size=_COUNT).astype(np.float32), name="other")
        device.launch(ge.parse(text)["k"], _COUNT // 128, 128, [x, other])
        identities |= {finding.identity for finding in ge.find_patterns(device)}
    assert len(identities) == 1 and "k ld.global.f32 #1" in next(iter(identities))


_DEAD = (
    head("7.8", "sm_80")
    + """.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    mov.u32 %r2, 0; mov.u32 %r3, 0;
LOOP:
    ld.global.u32 %r4, [%rd4];
    mad.lo.u32 %r3, %r3, 77, %r4;
    st.global.u32 [%rd5], %r3;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 8;
    @%p bra LOOP;
    ret;
}"""
)


def test_stores_of_a_loop_that_the_next_iteration_overwrites() -> None:
    """Seven of eight iterations store what nobody reads; if the loop reads it back none does. Each thread counts: one block of 32."""
    values = _RANDOM.integers(1 << 20, 1 << 30, 32, np.uint32)
    for text, dead in ((_DEAD, 7), (_DEAD.replace("mad.lo.u32", "ld.global.u32 %r3, [%rd5]; mad.lo.u32"), 0)):
        device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.array(values, name="x"), device.array(values + 1, name="y")
        for _ in range(2):
            device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [x, y])
        findings = [item for item in ge.find_patterns(device) if item.rule == "dead-stores"]
        assert [(item.waste, item.calls, item.severity) for item in findings] == [
            (2 * 7 * 128, 2, "fail")
        ] * (dead > 0)
        for finding in findings:
            assert (finding.object, finding.evidence["line"], finding.evidence["overwriter"]) == (
                "y",
                12,
                "line 12",
            )
            assert "896 bytes (87.5 %) their thread overwrites at line 12 before" in finding.message


@pytest.mark.parametrize("type", ["s32", "u64"])
def test_few_accesses_are_patterns_only_if_they_are_no_chance(type: str) -> None:
    """Half of 32 elements are 7, and all fit 8 bits; but 32 zeros are zeros."""
    dtype = np.dtype(type.replace("u", "uint").replace("s", "int"))
    kernel = ge.parse(_module(type))["k"]
    for values, rules in ((np.where(_INDEX[:32] % 2, 7, _INDEX[:32]), []), (np.zeros(32), ["single-zero"])):
        device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
        device.launch(kernel, 1, 32, [device.array(values.astype(dtype), name="x")])
        assert [item.rule for item in ge.find_patterns(device)] == rules


@pytest.mark.parametrize(
    ("base", "rules"),
    [(0x3000_0000_0000, []), (1 << 40, ["structured-values"] * 2)],
    ids=["addresses", "numbers"],
)
def test_addresses_follow_where_the_allocator_puts_what(base: int, rules: list[str]) -> None:
    """A table of pointers to arrays that are allocated one after the other is no function that a program could compute."""
    device = ge.Device(observe={"values", "accesses"}, memory_bytes=1 << 24)
    table = device.array((base + 5120 * _INDEX).astype(np.uint64), name="x")
    device.launch(ge.parse(_module("u64"), path="k.ptx")["k"], _COUNT // 128, 128, [table])
    assert [item.rule for item in ge.find_patterns(device)] == rules


def _combined(operation: str, operands: NDArray[Any], used: bool = False) -> list[ge.Finding]:
    """Thread i combines its operand with x[i & 63]; ``used``: and does something with what was there."""
    type = operation.rpartition(".")[2]
    text = (
        head("7.8", "sm_80")
        + f""".visible .entry k(.param .u64 x, .param .u64 given) {{
    .reg .b64 %a, %o; .reg .b32 %r<5>; .reg .{type} %v, %old;
    ld.param.u64 %a, [given];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r0, 128, %r1;
    mul.wide.u32 %o, %r2, 4; add.u64 %a, %a, %o; ld.global.{type} %v, [%a];
    ld.param.u64 %a, [x]; and.b32 %r3, %r2, 63; mul.wide.u32 %o, %r3, 4; add.u64 %a, %a, %o;
    atom.global.{operation} %old, [%a], %v;
    {f"st.global.{type} [%a + 256], %old;" if used else ""}
    ret;
}}"""
    )
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    x, given = device.zeros(128, operands.dtype, name="x"), device.array(operands, name="given")
    device.launch(ge.parse(text, path="k.ptx")["k"], _COUNT // 128, 128, [x, given])
    return [item for item in ge.find_patterns(device) if item.evidence["kind"] == "atomic"]


_COUNTS = np.where(_INDEX % 4 == 0, 1 + _INDEX % 7, 0)


@pytest.mark.parametrize("operation", ["add.u32", "or.b32", "xor.b32", "max.u32"])
def test_atomics_that_mostly_leave_memory_as_it_is(operation: str) -> None:
    (finding,) = _combined(operation, _COUNTS.astype(np.uint32))
    assert (finding.rule, finding.object, finding.severity) == ("frequent-values", "x", "note")
    assert (finding.evidence["count"], finding.waste) == (
        int((_COUNTS == 0).sum()),
        4 * int((_COUNTS == 0).sum()),
    )


def test_atomics_that_all_leave_memory_as_it_is() -> None:
    """0.0 and −0.0 alike."""
    (finding,) = _combined("add.f32", np.where(_INDEX % 2, 0.0, -0.0).astype(np.float32))
    assert (finding.rule, finding.evidence["fraction"]) == ("single-zero", 1.0)


@pytest.mark.parametrize(
    ("operation", "used"), [("max.s32", False), ("and.b32", False), ("exch.b32", False), ("add.u32", True)]
)
def test_atomics_whose_zero_counts(operation: str, used: bool) -> None:
    """0 is more than a negative number, clears all bits, is exchanged, or is how a thread reads what others add to."""
    type = np.int32 if operation == "max.s32" else np.uint32
    assert not _combined(operation, _COUNTS.astype(type), used)


def test_atomics_of_which_fewer_than_half_are_zero() -> None:
    assert not _combined("add.u32", (_INDEX % 3).astype(np.uint32))


def test_findings_name_the_element_of_a_vector() -> None:
    """x[i] = {i, 0, i, 0}."""
    text = (
        head("7.8", "sm_80")
        + """.visible .entry k(.param .u64 x) {
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.s64 %rd1, %rd1, %rd2; mov.u32 %r2, 0;
    st.global.v4.u32 [%rd1], {%r1, %r2, %r1, %r2};
    ret;
}"""
    )
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 24)
    device.launch(ge.parse(text)["k"], 1, 256, [device.zeros(1024, np.uint32, name="x")])
    said = [finding.message for finding in ge.find_patterns(device) if finding.rule == "single-zero"]
    assert [text[text.index("'x'") :] for text in said] == [
        f"'x' (vector element {n}): all are 0" for n in (1, 3)
    ]
